"""Explainers from the data of a fit in the order of the library's own ``fit``."""

import axil
from axil.aliases import ArrayLike, ForeignModel, ForeignObject, TableLike


def explainer_of_fit(
    model: ForeignModel,
    X: TableLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    init_score: ArrayLike | None = None,
    **settings: ForeignObject,
) -> axil.Explainer:
    """Return the explainer; tuples of data can be unpacked into the arguments."""
    return axil.Explainer(
        model, X, y, sample_weight=sample_weight, init_score=init_score, **settings
    )
