"""Rows as parts of their leaves: which of them outweigh the rest, or are alone, by leaves and row by row."""

from dataclasses import replace

import numpy as np
import pytest

from axil.weights.parts import Parts, RowTest
from tests.reference import random_structure

HEAVY = {"even": 1.0, "one heavy": 1e9}


@pytest.mark.parametrize("such", [Parts.is_singleton, Parts.dominant])
@pytest.mark.parametrize("heavy", HEAVY)
@pytest.mark.parametrize(
    "own", [{"l2": 1e-9}, {"l2": 1e-9, "steps": 3, "draws": (1.0, 0.0)}, {"shifted": True}]
)
def test_what_leaves_say_of_all_rows_is_what_each_row_says(own, heavy, such):
    s = random_structure(4, weighted=True, n_rows=300, most_leaves=4, **own)
    w = s.row_weights.copy()
    w[3] *= HEAVY[heavy]
    drawn = s.sample_counts[s.cells // s.n_leaves[:, None]] * w
    leaf_weights = np.concatenate(
        [np.bincount(leaf, d, n) for leaf, d, n in zip(s.leaves(), drawn, s.n_leaves)]
    )
    scale = np.where(s.linear_leaves.scale > 0, s.newton_rule.scale(leaf_weights), 0.0)
    s = replace(
        s,
        row_weights=w,
        leaf_weights=leaf_weights,
        linear_leaves=replace(s.linear_leaves, scale=scale),
    )
    expected = such(Parts.of_rows(s, slice(0, 300)), s).any(axis=0)
    np.testing.assert_array_equal(RowTest(s, such)(slice(0, 300)), expected)
    assert expected.any() == (
        such is Parts.dominant and heavy == "one heavy"
    )  # the row itself, with none of its leaf alone
