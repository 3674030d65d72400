import numpy as np
import pytest
from reference import random_structure

from axil.structure import cell_dtype


@pytest.mark.parametrize(
    ("leaves", "dtype"), [(1, np.uint8), (256, np.uint8), (257, np.uint16), (65536, np.uint16), (65537, np.uint32)]
)
def test_leaf_numbers_take_the_smallest_type(leaves, dtype):
    assert cell_dtype(leaves) is dtype


def test_a_structure_is_frozen():
    structure = random_structure(0, weighted=True, mixed=True)
    for array in (structure.cells, structure.rates, structure.row_weights, structure.starts, structure.mixing[0]):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(AttributeError):
        structure.rates = None


def test_leaf_values_and_their_transpose_agree():
    rng = np.random.default_rng(0)
    for mixed in (False, True):
        structure = random_structure(1, mixed=mixed)
        for t, n in enumerate(structure.n_leaves):
            a, b = rng.normal(size=(2, n, 1))
            left, right = b.T @ structure.leaf_values(t, a), structure.leaf_values_transpose(t, b).T @ a
            np.testing.assert_allclose(left, right, rtol=1e-12)
