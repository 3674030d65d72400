"""Explainers from the data of a fit in the order of the library's own ``fit``."""

from typing import Any

import axil


def explainer_of_fit(
    model: Any,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    init_score: Any = None,
    **settings: Any,
) -> axil.Explainer:
    """Return the explainer; tuples of data can be unpacked into the arguments."""
    return axil.Explainer(
        model, X, y, sample_weight=sample_weight, init_score=init_score, **settings
    )
