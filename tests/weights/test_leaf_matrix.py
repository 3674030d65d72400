"""The leaf matrix from parts of the rows: co-occurrences and leaf sums add up, and say what the fit comes to."""

import numpy as np
import pytest

from axil.kernels import cpu
from axil.kernels.cpu import Cpu
from axil.weights import leaf_matrix
from axil.weights.boosting import BoostedTrees
from axil.weights.leaf_matrix import LeafMatrix, cooccurrence
from axil.weights.passes import Passes, leaf_sums
from tests.reference import random_structure, replay
from tests.weights.test_boosting import SHAPES

# Sums of a few hundred products of order one in float64, in another order than the reference's.
CLOSE = {"rtol": 0, "atol": 1e-11}


@pytest.mark.parametrize("inverted", [0, leaf_matrix.INVERTED])
@pytest.mark.parametrize("shape", SHAPES)
def test_leaf_values_from_sums_lead_to_the_predictions_of_a_replay(shape, inverted, monkeypatch):
    monkeypatch.setattr(leaf_matrix, "INVERTED", inverted)
    monkeypatch.setattr(cpu, "BLOCK", 7)
    s = random_structure(3, **SHAPES[shape])
    trees = BoostedTrees(s, Cpu(1)).prepared()
    y = np.random.default_rng(1).normal(size=(s.n_rows, 2))
    started = y if s.offsets is None else y - s.offsets
    base = trees.mean(y) if s.initial is None else np.repeat(s.initial, 2)
    values = trees.leaf_matrix.leaf_values(leaf_sums(s, trees.rows, started), base)
    np.testing.assert_allclose(
        values, Passes(s, trees.rows).forward(started, base, s.shifted_values)[1], **CLOSE
    )
    made = np.empty((s.n_rows, 2))
    stepped = np.repeat(s.final, s.n_leaves)[:, None] * values
    trees.rows.read_out(s.by_cells(stepped, drawn=False), s.beta[-1] * base, None, 0, made)
    for column, targets in zip(made.T, y.T):
        np.testing.assert_allclose(column, replay(s, targets, s.leaves().T), **CLOSE)


def test_co_occurrences_of_parts_add_up():
    """Whole numbers, so to the last bit; and the rows themselves are not needed once they are counted."""
    whole = random_structure(5, n_rows=60)
    parts = []
    for rows in (slice(0, 13), slice(13, 13), slice(13, 60)):
        changed = {"cells": np.ascontiguousarray(whole.cells[:, rows])}
        part = type(whole)(**{**_arguments(whole), **changed})
        parts.append(cooccurrence(part, Cpu(1).rows_of(part), 0, part.n_trees))
    expected = LeafMatrix.build(whole, Cpu(1), Cpu(1).rows_of(whole)).responses
    nowhere = type(whole)(
        **{**_arguments(whole), "cells": whole.cells[:, :0].copy(), "total": whole.total_weight}
    )
    np.testing.assert_array_equal(LeafMatrix.of(nowhere, sum(parts), Cpu(1)).responses, expected)
    assert nowhere.total_weight == whole.total_weight


def _arguments(structure):
    return {
        name: getattr(structure, name)
        for name in (
            "cells",
            "n_leaves",
            "leaf_weights",
            "linear_leaves",
            "learning_rates",
            "initial",
        )
    }
