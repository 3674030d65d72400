"""Forward, backward and read-out against the paper's algorithms and against dense recursion."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from axil.kernels import Rows, cpu
from axil.kernels.cpu import Cpu
from axil.machine.arrays import host
from axil.structure import LinearLeaves, Structure
from axil.weights import leaf_matrix, passes
from axil.weights.boosting import BoostedTrees
from axil.weights.passes import leaf_sums
from tests.away import Away
from tests.devices import GPU
from tests.reference import (
    axil_backward,
    axil_forward,
    axil_oos,
    dense_weights,
    random_structure,
    replay,
)
from tests.subsets import mostly_slow

# Sums of a few hundred products of order one in float64, in another order than the reference's.
CLOSE = {"rtol": 0, "atol": 1e-12}


def plain(leaves, rate=0.5):
    leaves = np.asarray(leaves, dtype=np.uint8)
    n_leaves = leaves.max(axis=1).astype(np.int64) + 1
    counts = np.concatenate([np.bincount(leaf) for leaf in leaves]).astype(float)
    return Structure(
        leaves, n_leaves, counts, LinearLeaves(1 / counts), np.full(len(leaves), rate), None
    )


def random_queries(structure, n, seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, m, n) for m in structure.n_leaves], axis=1)


@pytest.fixture(params=[pytest.param(Cpu, id="cpu"), pytest.param(Away, id="away"), *GPU])
def backend(request):
    """Makes a back end of so many threads."""
    return request.param


@pytest.fixture(
    params=[
        "one tree a pass",
        "shared passes",
        "the leaf matrix by solves",
        "the leaf matrix by look-ups",
    ]
)
def make(request, monkeypatch, backend):
    """Trees that are asked in one way, whatever the size of the problem."""
    if request.param == "one tree a pass":
        monkeypatch.setattr(passes, "SHARED_TREES", 1)
        monkeypatch.setattr(Rows, "swept", 2)
    if request.param.startswith("the leaf matrix"):
        monkeypatch.setattr(cpu, "BLOCK", 7)
    if request.param.endswith("solves"):
        monkeypatch.setattr(leaf_matrix, "INVERTED", 0)

    def make(structure, n_threads=2):
        trees = BoostedTrees(structure, backend(n_threads))
        return trees.prepared() if request.param.startswith("the leaf matrix") else trees

    return make


def test_worked_example_of_the_paper(make):
    structure = plain([[0, 0, 1, 1], [0, 1, 0, 1]])
    y = np.array([1.0, 2, 3, 4])
    K = np.array([[2, 1, 1, 0], [1, 2, 0, 1], [1, 0, 2, 1], [0, 1, 1, 2]]) / 4
    trees = make(structure)
    np.testing.assert_allclose(trees.weight_rows(structure.leaves().T).dense(), K, **CLOSE)
    np.testing.assert_allclose(trees.matvec(None, np.eye(4)), K, **CLOSE)
    np.testing.assert_allclose(trees.rmatvec(None, np.eye(4)), K.T, **CLOSE)
    np.testing.assert_allclose(
        trees.matvec(None, y[:, None])[:, 0], [7 / 4, 9 / 4, 11 / 4, 13 / 4], **CLOSE
    )


def test_equal_to_the_papers_algorithms(make):
    rng = np.random.default_rng(0)
    leaves = np.stack(
        [
            np.unique(rng.integers(0, m, 200), return_inverse=True)[1]
            for m in rng.integers(2, 40, 12)
        ]
    )
    structure, rate = plain(leaves, 0.3), 0.3
    trees = make(structure)
    v = rng.normal(size=(200, 3))
    queries = random_queries(structure, 9)
    expected = np.stack([axil_forward(column, leaves, rate) for column in v.T], axis=1)
    np.testing.assert_allclose(trees.matvec(None, v), expected, **CLOSE)
    expected = np.stack([axil_backward(column, leaves, rate) for column in v.T], axis=1)
    np.testing.assert_allclose(trees.rmatvec(None, v), expected, **CLOSE)
    expected = np.stack([axil_oos(query, leaves, rate) for query in queries])
    np.testing.assert_allclose(trees.weight_rows(queries).dense(), expected, **CLOSE)


SHAPES = {
    "plain": {},
    "weighted": {"weighted": True},
    "l2": {"l2": 3.0},
    "constant base": {"base": 1.5},
    "offsets": {"base": 0.0, "offsets": True},
    "mean and offsets": {"offsets": True, "weighted": True},
    "mixed leaves": {"mixed": True, "weighted": True},
    "shifted": {"shifted": True, "weighted": True, "draws": (1.0, 0.0)},
    "shifted mixed drops": {
        "shifted": True,
        "mixed": True,
        "coefficients": "drops",
        "base": 1.0,
        "offsets": True,
    },
    "one row": {"n_rows": 1},
    "one tree": {"n_trees": 1},
    "single leaves": {"most_leaves": 1},
    "more leaves than rows": {"n_rows": 5, "most_leaves": 30},
    "uint16 leaves": {"n_rows": 400, "most_leaves": 400},
    "bags": {"draws": (1.0, 0.0)},
    "bags weighted l2": {"draws": (0.0, 1.0, 2.0, 7.5), "weighted": True, "l2": 1.0},
    "bags mixed": {"draws": (1.0, 0.0), "mixed": True, "base": 2.0, "offsets": True},
    "drops": {"coefficients": "drops", "weighted": True},
    "drops bags": {"coefficients": "drops", "draws": (1.0, 0.0), "l2": 1.0, "base": 1.0},
    "shrinkage": {"coefficients": "shrinkage", "l2": 1.0},
    "parallel": {"coefficients": "parallel", "draws": (0.0, 1.0), "n_trees": 9},
    "forest": {"coefficients": "forest", "draws": (0.0, 1.0, 2.0), "base": 0.0},
    "forest with a mean": {"coefficients": "forest", "draws": (0.0, 1.0), "l2": 1.0},
}


@cache
def by_recursion(shape):
    """A structure, queries, and the dense weights of these and of the training rows."""
    structure = random_structure(3, **SHAPES[shape])
    queries = random_queries(structure, 11)
    return (
        structure,
        queries,
        dense_weights(structure, queries),
        dense_weights(structure, structure.leaves().T),
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_equal_to_the_dense_recursion(make, shape):
    structure, queries, (weights, left), (K, _) = by_recursion(shape)
    trees = make(structure)
    found, adjoints = trees.weight_rows(queries).dense(), trees.adjoints(queries)
    np.testing.assert_allclose(found, weights, **CLOSE)
    np.testing.assert_allclose(host(adjoints.beta), left, **CLOSE)
    eye = np.eye(structure.n_rows)
    np.testing.assert_allclose(trees.matvec(None, eye), K, **CLOSE)
    np.testing.assert_allclose(trees.rmatvec(None, eye), K.T, **CLOSE)
    offsets = np.zeros((structure.n_rows, 1)) if structure.offsets is None else structure.offsets
    without_base = weights - (
        0 if structure.initial is not None else np.outer(left, base_share(structure))
    )
    expected = (0.0 if structure.initial is None else structure.initial) * left[
        :, None
    ] - without_base @ offsets
    nothing = replace(structure, initial=np.zeros(1), offsets=None)
    expected = (
        expected + replay(nothing, np.zeros(structure.n_rows), queries)[:, None]
    )  # what shifts alone predict
    np.testing.assert_allclose(
        trees.intercepts(adjoints, trees.constants(queries)), expected, rtol=0, atol=1e-11
    )


@pytest.mark.parametrize("base", [1.0, 0.0])
@pytest.mark.parametrize("shape", mostly_slow(2, SHAPES))
def test_no_queries_stand_for_the_training_rows(make, shape, base):
    """By the fast ways as by the leaves of the training rows given for queries; offsets of the fit are left out of those."""
    structure = random_structure(3, **SHAPES[shape])
    trees, leaves = make(structure), structure.leaves().T
    rng = np.random.default_rng(4)
    v, n_outputs = rng.normal(size=(structure.n_rows, 2)), 1 if structure.initial is not None else 2
    for found, expected in [
        (trees.weight_rows(None, base).dense(), trees.weight_rows(leaves, base).dense()),
        (trees.weight_rows(None, base).intercepts, trees.weight_rows(leaves, base).intercepts),
        (trees.matvec(None, v, base), trees.matvec(leaves, v, base)),
        (trees.rmatvec(None, v, base), trees.rmatvec(leaves, v, base)),
        (
            trees.predicted(None, v[:, :n_outputs])
            - (0.0 if structure.offsets is None else structure.offsets),
            trees.predicted(leaves, v[:, :n_outputs]),
        ),
    ]:
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("shape", SHAPES)
def test_weights_times_targets_and_intercepts_are_the_fit(make, shape):
    structure = random_structure(5, **SHAPES[shape])
    y, queries = (
        np.random.default_rng(1).normal(size=structure.n_rows),
        random_queries(structure, 7),
    )
    trees = make(structure)
    answer, expected = trees.weight_rows(queries), replay(structure, y, queries)
    found = answer.dense() @ y + answer.intercepts[:, 0]
    np.testing.assert_allclose(found, expected, **CLOSE)
    np.testing.assert_allclose(trees.predicted(queries, y[:, None])[:, 0], expected, **CLOSE)
    if trees.leaf_matrix is not None:
        started = (y if structure.offsets is None else y - structure.offsets[:, 0])[:, None]
        sums, base = leaf_sums(structure, trees.rows, started), trees.fit(y[:, None]).base
        values = trees.leaf_matrix.leaf_values(sums, base)
        np.testing.assert_allclose(values, trees.fit(y[:, None]).values, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "shape", ["weighted", "shifted", "bags weighted l2", "drops", "mixed leaves"]
)
def test_weights_of_leaf_sums(shape):
    structure = random_structure(6, **SHAPES[shape])
    trees, rng = BoostedTrees(structure, Cpu(1)), np.random.default_rng(2)
    y, seeds = (
        rng.normal(size=(2, structure.n_rows, 1)),
        rng.normal(size=(structure.total_leaves, 3)),
    )
    difference = (
        trees.fit(y[0]).sums - trees.fit(y[1]).sums
    )  # an affine map: its differences are linear
    np.testing.assert_allclose(
        seeds.T @ difference, trees.sum_weights(seeds).T @ (y[0] - y[1]), rtol=0, atol=1e-10
    )


def base_share(structure):
    w = np.ones(structure.n_rows) if structure.row_weights is None else structure.row_weights
    return w / w.sum()


def test_forward_from_given_bases():
    """With a constant base the whole prediction is K v + beta * base, also where the base is dropped on the way."""
    structure = random_structure(5, base=3.0, coefficients="drops", weighted=True)
    trees = BoostedTrees(structure, Cpu(1))
    v = np.random.default_rng(1).normal(size=(structure.n_rows, 1))
    K, left = dense_weights(structure, structure.leaves().T)
    np.testing.assert_allclose(trees.predicted(None, v), K @ v + 3.0 * left[:, None], **CLOSE)


@given(
    seed=st.integers(0, 10**6),
    n_rows=st.integers(1, 60),
    n_trees=st.integers(1, 12),
    most_leaves=st.integers(1, 70),
    weighted=st.booleans(),
    l2=st.sampled_from([0.0, 0.7, 30.0]),
    base=st.sampled_from([None, 0.0, -2.0]),
    mixed=st.booleans(),
    draws=st.sampled_from([(1.0,), (1.0, 0.0), (0.0, 1.0, 3.0)]),
    coefficients=st.sampled_from([None, "drops", "shrinkage", "parallel", "forest"]),
    shared=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_every_engine_gives_the_dense_weights(shared, **shape):
    structure = random_structure(**shape)
    queries = random_queries(structure, 4, shape["seed"])
    expected, _ = dense_weights(structure, queries)
    # weights may grow where mixing is random: compare relative to the largest
    close = {"rtol": 0, "atol": 1e-12 * max(1.0, np.abs(expected).max())}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "SHARED_TREES", 4 if shared else 1)
        trees = BoostedTrees(structure, Cpu(2))
    np.testing.assert_allclose(trees.weight_rows(queries).dense(), expected, **close)
    np.testing.assert_allclose(trees.prepared().weight_rows(queries).dense(), expected, **close)


@pytest.mark.parametrize("draws", [(1.0,), (1.0, 0.0), (0.0, 1.0, 2.5)])
@pytest.mark.parametrize("coefficients", [None, "drops", "shrinkage", "forest"])
def test_transpose_dot_test(make, draws, coefficients):
    """<u, K v> = <K'u, v>, also where sampling makes leaf averages asymmetric."""
    structure = random_structure(
        8, n_rows=300, n_trees=20, weighted=True, l2=2.0, draws=draws, coefficients=coefficients
    )
    trees = make(structure)
    rng = np.random.default_rng(2)
    u, v = rng.normal(size=(2, 300, 1))
    left, right = u[:, 0] @ trees.matvec(None, v)[:, 0], trees.rmatvec(None, u)[:, 0] @ v[:, 0]
    assert left == pytest.approx(right, rel=1e-11)


@pytest.mark.parametrize("shape", ["plain", "weighted", "l2", "mixed leaves"])
def test_rows_of_weights_sum_to_one(make, shape):
    structure = random_structure(4, **SHAPES[shape])
    weights = make(structure).weight_rows(random_queries(structure, 6)).dense()
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, **CLOSE)


def test_columns_sum_to_one_in_the_plain_case_only(make):
    leaves = np.stack([np.arange(60) % m for m in (2, 3, 5, 7)])
    K = make(plain(leaves)).weight_rows(leaves.T).dense()
    np.testing.assert_allclose(K.sum(axis=0), 1.0, **CLOSE)
    structure = random_structure(4, weighted=True)
    K = make(structure).weight_rows(structure.leaves().T).dense()
    assert np.abs(K.sum(axis=0) - 1.0).max() > 1e-3


def test_results_do_not_depend_on_the_thread_count(make):
    structure = random_structure(9, n_rows=50_000, n_trees=10, most_leaves=31, weighted=True)
    queries = random_queries(structure, 5)
    v = np.random.default_rng(3).normal(size=(50_000, 3))
    results = []
    for n_threads in (1, 2, 5):
        trees = make(structure, n_threads)
        results.append(
            (trees.weight_rows(queries).dense(), trees.matvec(None, v), trees.rmatvec(None, v))
        )
    for other in results[1:]:
        for a, b in zip(results[0], other):
            np.testing.assert_array_equal(a, b)


def test_no_queries(make):
    structure = random_structure(1)
    trees, none = make(structure), np.zeros((0, structure.n_trees), dtype=int)
    assert trees.weight_rows(none).dense().shape == (0, structure.n_rows)
    assert trees.adjoints(none).beta.shape == (0,)


def test_leaf_matrix_is_for_many_queries_on_many_rows():
    trees = BoostedTrees(random_structure(0, n_rows=100_000, n_trees=50), Cpu(1))
    assert not trees.prepare_pays(2)
    assert trees.prepare_pays(1000)
    wide = BoostedTrees(random_structure(0, n_rows=50, n_trees=50, most_leaves=40), Cpu(1))
    assert not wide.prepare_pays(1000)


def test_what_is_kept_of_leaf_matrix_counts(monkeypatch):
    """Few queries are solved for, many are looked up in the inverse; what was made for many serves few."""
    monkeypatch.setattr("axil.weights.boosting.WORTH", 0.0)
    trees = BoostedTrees(random_structure(0, n_rows=20_000, n_trees=30), Cpu(1))
    some, one = 25, np.zeros((1, 30), dtype=int)
    assert not trees.prepare_pays(1)
    assert trees.prepare_pays(some)
    assert not trees.inverse_pays(some)
    solved = trees.prepared(some, 1 << 40)
    assert trees.prepared(some, 0) is solved, "it is there"
    assert trees.prepare_pays(1)
    assert trees.inverse_pays(1 << 20)
    inverted = trees.prepared(1 << 20, 1 << 40)
    assert inverted is not solved
    assert trees.prepared(some, 1 << 40) is inverted
    np.testing.assert_allclose(
        inverted.weight_rows(one).dense(), solved.weight_rows(one).dense(), rtol=1e-10, atol=1e-15
    )
    np.testing.assert_allclose(
        trees.weight_rows(one).dense(), solved.weight_rows(one).dense(), rtol=1e-10, atol=1e-15
    )


def shared(structure):
    groups = BoostedTrees(structure, Cpu(1))._passes.groups
    assert [t for group in groups for t in group.trees] == list(range(structure.n_trees))
    assert 1 < max(len(group.trees) for group in groups) <= passes.SHARED_TREES
    return [structure.n_leaves[group.trees] for group in groups if len(group.trees) > 1]


def test_shared_passes_cover_every_tree_once():
    most = 200
    assert all(
        leaves.sum() <= most
        for leaves in shared(random_structure(2, n_rows=300, n_trees=40, most_leaves=150))
    )


def test_large_trees_share_a_pass_where_their_tables_are_smaller_than_the_leaf_numbers():
    """With as many rows that tables of single precision pay, and one byte for a leaf number."""
    structure = random_structure(2, n_rows=40_000, n_trees=12, most_leaves=250)
    groups = shared(structure)
    assert any(leaves.sum() > 200 for leaves in groups)
    for leaves in groups:
        pairs = (leaves.sum() ** 2 - np.square(leaves).sum()) // 2
        assert leaves.sum() <= 200 or 4 * pairs <= len(leaves) * structure.n_rows


@pytest.mark.parametrize("weighted", [False, True])
def test_large_trees_that_share_a_pass_have_the_same_weights(weighted, monkeypatch):
    structure = random_structure(5, n_rows=3_000, n_trees=9, most_leaves=250, weighted=weighted)
    queries, v = random_queries(structure, 37), np.random.default_rng(1).normal(size=(3_000, 2))
    alone = BoostedTrees(structure, Cpu(2))
    monkeypatch.setattr(Rows, "shared_leaves", 600)
    together = BoostedTrees(structure, Cpu(2))
    assert len(together._passes.groups) < len(alone._passes.groups)
    assert together.rows.swept < len(queries)  # several sweeps
    expected, _ = dense_weights(structure, queries)
    for trees in (alone, together):
        np.testing.assert_allclose(trees.weight_rows(queries).dense(), expected, **CLOSE)
    np.testing.assert_allclose(together.matvec(queries, v), expected @ v, **CLOSE)


def test_the_last_fit_is_kept_and_no_other():
    structure = random_structure(3, n_rows=50, n_trees=6)
    trees, targets = BoostedTrees(structure, Cpu(1)), np.random.default_rng(0).normal(size=(50, 2))
    values = trees.fit(targets).values
    np.testing.assert_array_equal(values, BoostedTrees(structure, Cpu(1)).fit(targets).values)
    assert trees.fit(targets.copy()).values is values
    targets[7] += 1.0  # the very array that was given before
    changed = trees.fit(targets).values
    np.testing.assert_array_equal(changed, BoostedTrees(structure, Cpu(1)).fit(targets).values)
    assert not np.array_equal(changed, values)
