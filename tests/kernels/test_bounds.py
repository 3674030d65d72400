"""The k largest by blocks and bounds: the rows and the bits of reading every row, whatever the numbers."""

from __future__ import annotations

import pickle
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest

import axil
from axil import _core
from axil.kernels import Rows
from axil.kernels import bounds as module
from axil.kernels.cpu import Cpu
from axil.methods.method import verified_model
from tests.devices import GPU

MUCH = 1 << 60  # bytes, and look-ups


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of few rows for few queries, and every query by them."""
    for name, value in {"LEAST_ROWS": 1, "BUILD": 0, "SHARE": 1e-9}.items():
        monkeypatch.setattr(module, name, value)


def alike(
    n_rows: int, n_leaves: list[int], dtype: Any = np.uint8, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Leaves of trees that cut the same three coordinates, each along a line of its own, and where they start."""
    rng = np.random.default_rng(seed)
    X = rng.random((n_rows, 3))
    cuts = [
        np.unique(X @ rng.normal(size=3), return_inverse=True)[1] * n // n_rows for n in n_leaves
    ]
    return np.array(cuts).astype(dtype), np.concatenate([[0], np.cumsum(n_leaves)]).astype(np.int64)


def found(
    rows: Rows, table: np.ndarray, constant: np.ndarray, k: int, *factors: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Values and rows (S, k) of the largest, as `rows` finds them."""
    n = len(constant)
    values, numbers = np.zeros((n, k)), np.full((n, k), -1, np.int64)
    rows.top(table, constant, *(factors or (None, None)), values, numbers)
    return values, numbers


def both(
    cells: np.ndarray, starts: np.ndarray, backend: Any = Cpu, n_threads: int = 2
) -> tuple[Any, Any]:
    """Rows with blocks, and rows without."""
    rows = backend(n_threads).rows(cells, starts)
    assert rows.index(1, MUCH)
    return rows, backend(n_threads).rows(cells, starts)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
@pytest.mark.parametrize("kind", ["plain", "ties", "weights", "scale", "both"])
@pytest.mark.parametrize(
    ("n_rows", "columns", "k"),
    [(5003, 70, 10), (5003, 1, 3), (300, 5, 400), (31, 2, 1), (900, 5, 256)],
)
def test_same_rows_and_bits_as_reading_all(
    backend: Any, dtype: Any, kind: str, n_rows: int, columns: int, k: int
) -> None:
    cells, starts = alike(n_rows, [5, 1, 31, 17, 2, 31, 8, 12], dtype)
    rng = np.random.default_rng(columns)
    table, constant = rng.normal(size=(starts[-1], columns)), rng.normal(size=columns)
    if kind == "ties":  # nothing is rounded, and sums of small whole numbers are often the same
        table, constant = rng.integers(-2, 3, table.shape) / 4.0, np.zeros(columns)
    weights = rng.choice([-1.5, 0.0, 0.3, 2.0], n_rows) if kind in ("weights", "both") else None
    scale = rng.normal(size=n_rows) if kind in ("scale", "both") else None
    for n_threads in (1, 3):
        bounds, whole = both(cells, starts, backend, n_threads)
        values, rows = found(bounds, table, constant, k, weights, scale)
        expected = found(whole, table, constant, k, weights, scale)
        np.testing.assert_array_equal(rows, expected[1])
        np.testing.assert_array_equal(values.view(np.int64), expected[0].view(np.int64))


@pytest.mark.parametrize("size", [1e-60, 1e-300, 5e-324, 1e30, 1e300])
def test_sizes_beyond_single_precision(backend: Any, size: float) -> None:
    cells, starts = alike(3000, [20, 31, 9])
    rng = np.random.default_rng(0)
    table = (
        np.sign(rng.normal(size=(starts[-1], 3)))
        * size
        * (1 if size < 1e-300 else rng.random((starts[-1], 3)))
    )
    bounds, whole = both(cells, starts, backend)
    for a, b in zip(found(bounds, table, np.zeros(3), 7), found(whole, table, np.zeros(3), 7)):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("n_rows", [3000, 90])  # trees that are joined, and trees that are not
@pytest.mark.parametrize(
    ("table", "weight", "scale"),
    [(0, 0, 40), (0, 0, -42), (-42, 40, 0), (40, -42, 3), (-60, 9, 30)],
)
def test_factors_beyond_single_precision(
    backend: Any, n_rows: int, table: int, weight: int, scale: int
) -> None:
    """Powers of ten of the numbers: the largest are those of all values, written down and sorted."""
    cells, starts = alike(n_rows, [3, 2, 4, 9])
    rng = np.random.default_rng(0)
    entries, constant = 10.0**table * rng.normal(size=(starts[-1], 3)), np.zeros(3)
    weights, factors = 10.0**weight * rng.random(n_rows), 10.0**scale * rng.normal(size=n_rows)
    values = np.empty((n_rows, 3))
    backend(1).rows(cells, starts).read_out(entries, constant, weights, 0, values)
    expected = np.argsort(-np.abs(factors[:, None] * values), axis=0, kind="stable")[:7].T
    for rows in both(cells, starts, backend):
        found_values, found_rows = found(rows, entries, constant, 7, weights, factors)
        np.testing.assert_array_equal(found_rows, expected)
        np.testing.assert_array_equal(found_values, np.take_along_axis(values.T, expected, axis=1))


def test_sums_that_cancel(backend: Any) -> None:
    """Sums of numbers far larger than what is left of them, which single precision does not tell apart."""
    cells, starts = alike(5000, [40, 40, 31])
    rng = np.random.default_rng(0)
    table = 1e-4 * rng.normal(size=(starts[-1], 3))
    table[:40] += 1e6
    table[40:80] -= 1e6
    bounds, whole = both(cells, starts, backend)
    for a, b in zip(found(bounds, table, np.zeros(3), 20), found(whole, table, np.zeros(3), 20)):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_numbers_that_bound_nothing(backend: Any, odd: float) -> None:
    """Such a query reads all rows, and the others do not mind."""
    cells, starts = alike(3000, [20, 31, 9])
    table = np.random.default_rng(0).normal(size=(starts[-1], 4))
    table[3, 1] = odd
    scale = np.ones(3000)
    scale[5] = odd
    bounds, whole = both(cells, starts, backend)
    for factors in ((None, None), (None, scale)):
        for a, b in zip(
            found(bounds, table, np.zeros(4), 7, *factors),
            found(whole, table, np.zeros(4), 7, *factors),
        ):
            np.testing.assert_array_equal(a, b)


def test_places_that_are_taken_already(backend: Any) -> None:
    """Two sets of rows, one after the other, as partitions have them: the same as both at once."""
    cells, starts = alike(4000, [20, 31, 9])
    table = np.random.default_rng(0).normal(size=(starts[-1], 3))
    bounds, whole = both(cells, starts, backend)
    once = found(whole, table, np.zeros(3), 5)
    values, rows = (part.copy() for part in once)
    bounds.top(table, np.zeros(3), None, None, values, rows)
    np.testing.assert_array_equal(
        rows, np.repeat(once[1], 2, axis=1)[:, :5]
    )  # each row twice: nothing is lost


def test_few_blocks_are_opened() -> None:
    """Rows alike, weights of one leaf far above the others: most blocks are never looked into."""
    cells, starts = alike(50_000, [31] * 20)
    table = np.random.default_rng(0).random((starts[-1], 8))
    table[cells[:, 7] + starts[:-1]] += 10
    bounds, whole = both(cells, starts)
    values, rows, done = np.zeros((8, 10)), np.full((8, 10), -1, np.int64), np.zeros(8, np.uint8)
    _core.top_blocks(
        bounds.blocks, table, np.zeros(8), None, None, cells.size // 10, values, rows, done, 2
    )
    assert done.all()
    np.testing.assert_array_equal(rows, found(whole, table, np.zeros(8), 10)[1])


def test_blocks_that_do_not_pay_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that are nearly the same everywhere: every block may hold the largest."""
    cells, starts = alike(5000, [31] * 5)
    table = 1 + 1e-9 * np.random.default_rng(0).random((starts[-1], 100))
    monkeypatch.setattr(module, "SHARE", 32)
    bounds, whole = both(cells, starts)
    for a, b in zip(
        found(bounds, table, np.zeros(100), 10), found(whole, table, np.zeros(100), 10)
    ):
        np.testing.assert_array_equal(a, b)
    assert bounds.blocks is None
    assert not bounds.index(10**6, MUCH)


def test_rows_that_are_not_alike_have_no_blocks(backend: Any) -> None:
    rng = np.random.default_rng(0)
    cells = rng.integers(0, 200, (6, 3000)).astype(np.uint8)
    rows = backend(2).rows(cells, 200 * np.arange(7))
    assert not rows.index(1, MUCH)


def test_made_when_they_pay_and_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    cells, starts = alike(3000, [20, 31, 9])
    table = np.random.default_rng(0).normal(size=(starts[-1], 6))
    monkeypatch.setattr(module, "BUILD", 10)
    rows = Cpu(2).rows(cells, starts)
    assert not rows.index(9, MUCH)
    assert not rows.index(10, cells.nbytes)
    found(rows, table, np.zeros(6), 3)
    assert rows.index(4, MUCH)  # six have been read whole
    assert pickle.loads(pickle.dumps(rows)).blocks is None  # copies make their own
    monkeypatch.setattr(module, "LEAST_ROWS", 3001)
    assert not Cpu(2).rows(cells, starts).index(10**6, MUCH)


def test_interrupted_blocks_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    cells, starts = alike(3000, [20, 31, 9])
    rows = Cpu(2).rows(cells, starts)

    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_core, "blocks", interrupted)
        with pytest.raises(KeyboardInterrupt):
            rows.index(1, MUCH)
    assert rows.blocks is None
    assert rows.index(1, MUCH)


@pytest.mark.parametrize(
    ("places", "message"),
    [
        (np.full((50, 2), np.nan), "finite"),
        (np.zeros((50, 0)), "dimension"),
        (np.zeros((49, 2)), "shape"),
    ],
)
def test_places_that_are_refused(places: np.ndarray, message: str) -> None:
    cells, starts = alike(50, [3, 4])
    with pytest.raises(ValueError, match=message):
        _core.blocks(cells, starts, places.astype(np.float32), 1)


def explained(monkeypatch: pytest.MonkeyPatch, build: float, **machine: Any) -> tuple[Any, Any]:
    """An explainer of a weighted, bagged model in the leaf matrix, and rows to ask about."""
    monkeypatch.setattr(module, "BUILD", build)
    rng = np.random.default_rng(0)
    X = rng.random((3000, 4))
    y, weights = X @ [3, -2, 1, 0] + rng.normal(size=3000), rng.choice([0.5, 1.0, 2.0], 3000)
    settings = {
        "num_leaves": 15,
        "bagging_fraction": 0.7,
        "bagging_freq": 1,
        "verbose": -1,
        "objective": "regression",
    }
    model = lgb.train(settings, lgb.Dataset(X, y, weight=weights), 20)
    return axil.Explainer(model, X, y, sample_weight=weights, **machine).precompute(), rng.random(
        (50, 4)
    )


@pytest.mark.parametrize("device", ["cpu"] + ["cuda"] * len(GPU))
@pytest.mark.parametrize("by", ["weight", "contribution"])
def test_top_of_an_explainer(by: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, asked = explained(monkeypatch, np.inf, device=device)
    expected = whole.top(asked, 7, by=by)
    assert verified_model(whole).engines[0].rows._bounded.blocks is None
    ours, _ = explained(monkeypatch, 0, device=device)
    found = ours.top(asked, 7, by=by)
    assert verified_model(ours).engines[0].rows._bounded.blocks is not None
    assert found.equals(expected)


def test_blocks_count_against_the_memory_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made where they fit twice, besides the table that is asked for."""
    explainer, asked = explained(monkeypatch, 0, memory_limit=6 << 20)
    rows = verified_model(explainer).engines[0].rows
    with monkeypatch.context() as patch:
        patch.setattr(module, "size", lambda cells: 3 << 20)
        explainer.top(asked, 7)
        assert rows.blocks is None
    explainer.top(asked, 7)
    assert 0 < rows.blocks.nbytes <= module.size(rows.cells)
