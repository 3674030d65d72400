"""The diagonal and the squares of K, in the leaf matrix and in batches, against the dense recursion."""

import numpy as np
import pytest

import axil
from axil import InputError
from axil.kernels.cpu import Cpu
from axil.methods.method import verified_model
from axil.weights import hat_matrix, work
from axil.weights.boosting import BoostedTrees
from tests.contract_models import GRID, case_of, dense, explainer_of
from tests.reference import dense_weights, random_structure
from tests.subsets import chosen
from tests.weights.test_boosting import SHAPES

CLOSE = {"rtol": 1e-10, "atol": 1e-12}
PLENTY = 1 << 30


@pytest.mark.parametrize("ready", [False, True])
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "uint16 leaves"])
def test_both_ways_equal_the_dense_recursion(shape, ready, monkeypatch):
    structure = random_structure(3, **SHAPES[shape])
    K, _ = dense_weights(structure, structure.leaves().T)
    trees = BoostedTrees(structure, Cpu(2)).prepared() if ready else BoostedTrees(structure, Cpu(2))
    monkeypatch.setattr(hat_matrix, "FACTOR_ROWS", 13)
    monkeypatch.setattr(hat_matrix, "BLOCK", 11)
    monkeypatch.setattr(work.LeverageWork, "leaf_matrix_pays", lambda *_: True)
    np.testing.assert_allclose(trees.leverage(PLENTY), np.diag(K), **CLOSE)
    np.testing.assert_allclose(trees.squares(PLENTY), np.square(K).sum(), **CLOSE)
    monkeypatch.setattr(hat_matrix, "BATCH_ENTRIES", 7 * structure.n_rows)
    monkeypatch.setattr(work.LeverageWork, "leaf_matrix_pays", lambda *_: False)
    np.testing.assert_allclose(trees.leverage(PLENTY), np.diag(K), **CLOSE)
    np.testing.assert_allclose(trees.squares(PLENTY), np.square(K).sum(), **CLOSE)


def test_the_cheaper_way_that_fits_is_gone():
    def pays(structure, available):
        return work.LeverageWork.of(
            structure, Cpu(1).costs, ready=False, matrices=4
        ).leaf_matrix_pays(available)

    small, deep = (
        random_structure(0, n_rows=9, most_leaves=60),
        random_structure(0, n_rows=4000, n_trees=4),
    )
    assert not pays(small, PLENTY)
    assert pays(deep, PLENTY)
    assert not pays(deep, 1000)  # it does not fit


def test_more_work_than_anyone_waits_for_is_refused_with_its_cost(monkeypatch):
    monkeypatch.setattr(work, "MOST_WORK", 1e3)
    trees = BoostedTrees(random_structure(0, n_rows=400), Cpu(1))
    with pytest.raises(InputError, match=r"in the leaf matrix.*visits of rows.*memory_limit"):
        trees.leverage(1000)
    assert len(trees.leverage(PLENTY)) == 400


@pytest.mark.parametrize(("library", "name"), dense(chosen(11, GRID)))
def test_models(library, name):
    case, explainer = case_of(library, name), explainer_of(library, name)
    K, leverage = explainer.jacobian.matrix(), explainer.diagnostics.leverage()
    assert leverage.shape == K.shape[:-1]
    K = np.swapaxes(K, 0, 1) if K.ndim == 3 else K[None]  # (outputs with trees of their own, N, N)
    np.testing.assert_allclose(
        leverage.reshape(len(case.y), -1).T, np.diagonal(K, axis1=1, axis2=2), **CLOSE
    )
    np.testing.assert_allclose(
        np.atleast_1d(explainer.diagnostics.degrees_of_freedom()),
        np.trace(K, axis1=1, axis2=2),
        **CLOSE,
    )
    squares = [engine.squares(PLENTY) for engine in verified_model(explainer).engines]
    close = (
        CLOSE if library != "smoother" else {"rtol": 1e-8}
    )  # a kernel matrix of low rank loses digits in the products
    np.testing.assert_allclose(squares, np.square(K).reshape(len(squares), -1).sum(axis=1), **close)
    assert len(case.y) == K.shape[-1]


def test_results_do_not_depend_on_the_thread_count():
    case = case_of("lightgbm", "regressor")
    one, three = (
        axil.Explainer(case.model, case.X, case.y, n_threads=n).precompute() for n in (1, 3)
    )
    for engine, other in zip(verified_model(one).engines, verified_model(three).engines):
        for own in (hat_matrix.leverage_in_leaf_matrix, hat_matrix.squares_in_leaf_matrix):
            np.testing.assert_array_equal(
                own(engine.leaf_matrix, engine.rows), own(other.leaf_matrix, other.rows)
            )
