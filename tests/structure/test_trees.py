from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from axil.structure import Coefficients, LinearLeaves, NewtonRule, cell_dtype
from axil.weights.sum_rule import SumRule
from tests.reference import random_structure


@pytest.mark.parametrize(
    ("leaves", "dtype"),
    [(1, np.uint8), (256, np.uint8), (257, np.uint16), (65536, np.uint16), (65537, np.uint32)],
)
def test_leaf_numbers_take_the_smallest_type(leaves, dtype):
    assert cell_dtype(leaves) is dtype


def test_a_structure_is_frozen():
    structure = random_structure(0, weighted=True, mixed=True)
    arrays = [
        structure.cells,
        structure.learning_rates,
        structure.row_weights,
        structure.starts,
        structure.linear_leaves.mixing[0].data,
    ]
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(AttributeError):
        structure.learning_rates = None


def test_leaf_values_and_their_transpose_agree():
    rng = np.random.default_rng(0)
    for mixed in (False, True):
        structure = random_structure(1, mixed=mixed)
        for t, n in enumerate(structure.n_leaves):
            a, b = rng.normal(size=(2, n, 1))
            left, right = (
                b.T @ structure.leaf_values(t, a),
                structure.leaf_values_transpose(t, b).T @ a,
            )
            np.testing.assert_allclose(left, right, rtol=1e-12)


def wrong_parts():
    """Names of parts and what is wrong with each, for a structure of six trees and forty rows."""
    good = random_structure(0, weighted=True)
    total = good.n_leaves.sum()
    overflowing = good.n_leaves.copy()
    overflowing[:2], overflowing[2] = (
        2**63 - 1,
        good.n_leaves[:3].sum() + 2,
    )  # adds up, in 64 bits, to the same
    yield {"n_leaves": overflowing}
    yield {"n_leaves": good.n_leaves.astype(float)}
    yield {"n_leaves": np.where(np.arange(6) == 3, 0, good.n_leaves)}
    yield {"n_leaves": np.zeros(0, np.int64), "cells": np.zeros((0, 40), np.uint8)}
    yield {
        "n_leaves": np.where(np.arange(6) == 3, 257, good.n_leaves)
    }  # more than uint8 can number
    yield {"cells": good.cells.astype(np.int64)}
    yield {"cells": good.cells[:, ::2]}
    yield {"sample_counts": np.ones((1, 1))}
    yield {"sample_counts": np.ones(300)}
    yield {"columns": np.arange(6) - 1}
    yield {"columns": np.zeros(6, np.int64)}
    yield {"columns": np.arange(6.0)}
    yield {"offsets": np.zeros(40)}
    yield {"initial": np.zeros((1, 1))}
    yield {"linear_leaves": LinearLeaves(np.ones(total, np.float32))}
    yield {"row_weights": np.ones(39)}
    yield {"linear_leaves": LinearLeaves(np.ones(total), mixing=(csr_array(np.eye(3)),))}
    yield {"linear_leaves": LinearLeaves(np.ones(total), mixing=(csr_array(np.eye(8)),) * 6)}
    yield {"linear_leaves": LinearLeaves(np.ones(total), np.ones(total - 1))}
    yield {"leaf_rule": SumRule(NewtonRule(np.ones(total), np.ones(total - 1)))}
    yield {"coefficients": Coefficients(np.zeros((7, 6)), np.ones(6))}


@pytest.mark.parametrize("wrong", list(wrong_parts()), ids=lambda wrong: ", ".join(wrong))
def test_parts_that_do_not_fit_are_refused(wrong):
    with pytest.raises(ValueError, match=r"expected|cell number|columns"):
        replace(random_structure(0, weighted=True), **wrong)
