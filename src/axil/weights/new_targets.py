"""Fits to other targets: the tree structure is fixed, and the active set is computed again by the rule of the library.

The active set is what makes leaf values linear in the targets while it stays as it is: which sums L1 moves, which values are
clipped or bounded, which rows a percentile is taken from, and which residuals are cut off.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from axil.arrays import FloatArray
from axil.errors import UnsupportedQuestionError
from axil.kernels import Backend
from axil.structure import Structure
from axil.weights import ranks_left
from axil.weights.inherited import inheriting
from axil.weights.rows_left import fit_by_rule, with_pattern, without


def has_active_set(structure: Structure) -> bool:
    """Return whether leaf values are linear in the targets only while an active set is fixed."""
    rule = structure.regularisation
    return (
        structure.is_ranked
        or structure.cut is not None
        or (rule is not None and rule.has_active_set)
    )


def with_targets(structure: Structure, targets: FloatArray, backend: Backend) -> Structure:
    """Return the structure of the fit to other targets (N, K), with its own active set.

    One replay of the fit, O(T N K); percentiles sort the rows of each leaf besides.
    """
    if not has_active_set(structure):
        return structure
    if structure.is_ranked:
        return ranks_left.without(_ranked_by(structure, targets), targets)
    if structure.cut is not None:
        no_rows = np.zeros(0, dtype=np.intp)
        return without(structure, no_rows, targets, backend)
    fitted = inheriting(structure)
    return with_pattern(fitted, fit_by_rule(fitted, targets, backend).sums)


def _ranked_by(structure: Structure, targets: FloatArray) -> Structure:
    """Return the structure with the rule of its percentiles for these targets (N, 1)."""
    ranks = structure.ranks
    if ranks is None:
        raise UnsupportedQuestionError(
            "what_if",
            "these targets may change which rows its leaves take their values from, and no rule for that is known",
            "Make the explainer again from the model and its training data: axil.Explainer(model, X_train, y_train).",
        )
    rule = ranks.rule.with_targets(targets[:, 0])
    return replace(structure, ranks=replace(ranks, rule=rule))
