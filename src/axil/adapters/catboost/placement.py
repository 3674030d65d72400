"""The leaves that training rows had in CatBoost's fit, where splits are on encodings of categories."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from axil.adapters.catboost.blob import ModelBlob
from axil.adapters.catboost.categories import Categories, column
from axil.adapters.catboost.encodings import Encoder, Fold, above, classifications
from axil.adapters.catboost.permutations import AveragingFold
from axil.adapters.catboost.splits import Ids, is_high, split_routes, tree_nodes
from axil.adapters.contract import TrainingRows
from axil.arrays import BoolArray, FloatArray
from axil.errors import UnsupportedModelError
from axil.kernels import Backend

TOGETHER = 64  # encodings that are kept at a time, a byte for each row
BLOCK = 1 << 14  # rows whose columns are put side by side

Cells = NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True)
class EncodedRows:
    """`Placement` of the rows of a fit."""

    blob: ModelBlob
    n_leaves: Ids
    rows: TrainingRows
    based: bool  #: whether the trees begin with the base, a tree of one leaf

    @property
    def encodings(self) -> int:
        """How many encodings trees have splits on."""
        return self.blob.features("target statistics")

    def assign(self, out: Cells, n_threads: int, backend: Backend | None = None) -> None:
        """Fill ``out`` (T, N) with the leaves of all training rows."""
        if self.based:
            out[0] = 0
            out = out[1:]
        tests = Tests(self.blob, self._fold())
        if self.blob.trees.length(10):
            self._by_trees(tests, out, n_threads, backend)
        else:
            self._by_columns(tests, out)
        place = np.empty_like(tests.order)
        place[tests.order] = np.arange(len(place))
        for leaves in out:
            leaves[:] = leaves[place]

    def _by_columns(self, tests: Tests, out: Cells) -> None:
        """Trees with one split per level: column by column, each into all levels that test it; the first has the lowest bit."""
        depths, splits = self.blob.depths, self.blob.split_numbers
        tree = np.repeat(np.arange(len(depths)), depths)
        level = np.arange(len(splits)) - np.repeat(np.cumsum(depths) - depths, depths)
        out[:] = 0
        for split in np.unique(splits).tolist():
            passed = tests.passed(tests.values(split), split).astype(out.dtype)
            for i in np.flatnonzero(splits == split):
                out[tree[i]] |= passed << out.dtype.type(level[i])

    def _by_trees(self, tests: Tests, out: Cells, n_threads: int, backend: Backend | None) -> None:
        """Trees whose nodes have splits of their own, some at a time."""
        starts, split, children = tree_nodes(self.blob, self.n_leaves)
        for begin, end in tests.groups(starts, split):
            own = slice(starts[begin], starts[end])
            columns, used = tests.columns(split[own])
            routes = split_routes(
                starts[begin : end + 1] - starts[begin],
                columns,
                tests.borders[split[own]],
                tests.high[split[own]],
                children[own],
            )
            if routes is None or out.dtype.itemsize > 2:
                raise UnsupportedModelError(
                    "depth",
                    f"trees of up to {self.n_leaves.max()} leaves",
                    "rows are encoded and assigned to trees of fewer leaves",
                    "Fit trees of at most 65,535 leaves.",
                )
            for row in range(0, out.shape[1], BLOCK):
                part = slice(row, row + BLOCK)
                table = np.column_stack([values[part] for values in used]).astype(np.float32)
                routes.assign(table, out[begin:end, part], n_threads, backend)

    def _fold(self) -> Fold:
        """The rows in the order of the averaging fold."""
        settings, X = self.blob.settings[-1], self.rows.X
        own = settings["cat_feature_params"]
        # A feature has its number among those of its kind, and then that among all.
        features = [feature for feature in self.blob.trees.tables(5) if feature.length(3)]
        categories = [feature for feature in self.blob.trees.tables(4) if feature.number(3, "b", 1)]
        order = AveragingFold.of(
            len(self.rows.targets), settings, bool(self.blob.trees.length(5))
        ).rows
        return Fold(
            order,
            {
                feature.integer(0): Categories.of(column(X, feature.integer(1))[order])
                for feature in categories
            },
            {
                feature.integer(1): number_column(X, feature.integer(2))[order]
                for feature in features
            },
            {feature.integer(1) for feature in features if is_high(feature)},
            self.rows.targets,
            int(own["ctr_leaf_count_limit"]),
            bool(own["store_all_simple_ctr"]),
            classifications(settings, self.rows.targets.shape[1]),
        )


class Tests:
    """The tests of all splits by their numbers: on numbers, on categories, on encodings, in this order."""

    def __init__(self, blob: ModelBlob, fold: Fold):
        self._fold, self._encoder = fold, Encoder(blob, fold)
        numbers = [feature for feature in blob.trees.tables(5) if feature.length(3)]
        one_hot = [
            (f.integer(0), value)
            for f in blob.trees.tables(6)
            for value in f.numbers(1, "<i4").tolist()
        ]
        sizes = [
            *(f.length(3) for f in numbers),
            *([1] * len(one_hot)),
            *(len(e.borders) for e in self._encoder.encodings),
        ]
        self._numbers, self._one_hot = [feature.integer(1) for feature in numbers], one_hot
        self._column = np.repeat(np.arange(len(sizes)), sizes)  # of each split
        borders = [feature.numbers(3, "<f4").astype(np.float64) for feature in numbers]
        borders += [np.full(len(one_hot), 0.5), *(own.borders for own in self._encoder.encodings)]
        self.borders: FloatArray = np.concatenate(borders)
        high = np.zeros(len(sizes), dtype=np.bool_)
        high[: len(numbers)] = [is_high(feature) for feature in numbers]
        self.high: BoolArray = high[self._column]

    def columns(self, splits: Ids) -> tuple[Ids, list[NDArray[Any]]]:
        """The column of each of these splits, and the columns (N,) that they have."""
        used, places = np.unique(self._column[splits], return_inverse=True)
        return places.reshape(-1).astype(np.int64), [self._values(int(i)) for i in used]

    @property
    def order(self) -> Ids:
        """(N,): the row in each place of the fold, in whose order values are."""
        return self._fold.order

    def values(self, split: int) -> NDArray[Any]:
        """(N,): the column that a split is on."""
        return self._values(int(self._column[split]))

    def _values(self, i: int) -> NDArray[Any]:
        n, m = len(self._numbers), len(self._one_hot)
        if i < n:
            return self._fold.numbers[self._numbers[i]]
        return (
            self._fold.equals(*self._one_hot[i - n]) if i < n + m else self._encoder.bins(i - n - m)
        )

    def passed(self, values: NDArray[Any], split: int) -> BoolArray:
        """(N,): whether rows with these values go right."""
        if values.dtype.kind != "f":
            return np.asarray(
                values > int(self.borders[split])
            )  # borders are whole, or 0.5 of two values
        return above(values, self.borders[split], bool(self.high[split]))

    def groups(self, starts: Ids, split: Ids) -> Iterator[tuple[int, int]]:
        """Consecutive trees, from one up to another, whose splits are on few encodings."""
        before, begin, seen = len(self._numbers) + len(self._one_hot), 0, set[int]()
        for t in range(len(starts) - 1):
            own = self._column[split[starts[t] : starts[t + 1]]]
            new = set(own[own >= before].tolist())
            if t > begin and len(seen | new) > TOGETHER:
                yield begin, t
                begin, seen = t, set()
            seen |= new
        yield begin, len(starts) - 1


def number_column(X: Any, i: int) -> NDArray[np.float32]:
    """(N,): a column of numbers as CatBoost keeps them, in any container."""
    frame = None if sparse.issparse(X) else nw.from_native(X, eager_only=True, pass_through=True)
    if sparse.issparse(X):
        values = sparse.csc_matrix(X)[:, [i]].toarray()[:, 0]
    elif not isinstance(frame, nw.DataFrame):
        values = np.asarray(X)[:, i]
    elif frame.implementation.is_pandas() and isinstance(X.dtypes.iloc[i], np.dtype):
        values = X.iloc[:, i].to_numpy()
    else:
        values = frame.get_column(frame.columns[i]).cast(nw.Float64).to_numpy()
    if values.dtype.kind not in "biuf":
        values = np.array(
            [np.nan if value is None else value for value in values.tolist()], dtype=np.float64
        )
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, dtype=np.float32)
