"""CatBoost's encodings of categories by the targets, as its training rows had them: each from the rows before it.

A fit encodes a category, or a combination of categories and tests, by how many of the rows before it, in the order of the
averaging fold, share it, and how many of these have a target above a border: ComputeOnlineCTRs and CalcCTR,
catboost/private/libs/algo/online_ctr.cpp and online_ctr.h. Predictions take the counts of all rows, which the model keeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.catboost.blob import ModelBlob, Table
from axil.adapters.catboost.categories import Categories, Words, combined
from axil.errors import ExactnessError, UnsupportedModelError
from axil.kernels.cpu import number_keys, sums_before
from axil.types import Array

# ECtrType, catboost/libs/model/flatbuffers/ctr_data.fbs
BORDERS, BUCKETS, MEAN, COUNTER, FREQUENCY = 0, 1, 2, 4, 5
NO_HASH = np.uint64(2**64 - 1)  # an empty place of a table

Single = NDArray[np.float32]
Bins = NDArray[np.uint8]


@dataclass(frozen=True)
class Counted:
    """Rows that are counted: those of a category or combination, by classes of the targets."""

    categories: tuple[int, ...]  #: columns, numbered among those of categories
    tests: tuple[tuple[int, float], ...]  #: columns, numbered among those of numbers, and borders
    one_hot: tuple[tuple[int, int], ...]  #: columns of categories, and hashes
    kind: int
    classes: int  #: the number of the classification of the targets

    @classmethod
    def of(cls, base: Table) -> Counted:
        """From TModelCtrBase."""
        combination = base.table(0)
        tests, one_hot = (combination.numbers(i, np.dtype(f"<i4,{kind}")) for i, kind in ((1, "<f4"), (2, "<i4")))
        return cls(
            tuple(combination.numbers(0, "<i4").tolist()),
            tuple(tests.tolist()),
            tuple(one_hot.tolist()),
            int(base.number(1, "b", 0)),
            int(base.number(2, "i", 0)),
        )

    @property
    def what(self) -> tuple[Any, ...]:
        """The category or combination."""
        return self.categories, self.tests, self.one_hot

    @property
    def needs_classes(self) -> bool:
        """Whether targets are counted, and not rows alone."""
        return self.kind != COUNTER

    @property
    def is_simple(self) -> bool:
        """Whether it is a category by itself."""
        return len(self.categories) == 1 and not self.tests and not self.one_hot


@dataclass(frozen=True)
class Encoding:
    """A column that trees have splits on."""

    counted: Counted
    target_border: int  #: the class, or the border between classes, that is counted
    prior: float
    denominator: float  #: of the prior
    scale: float  #: bins per unit, once the least encoding is zero
    #: bins up to which rows go left; the model keeps 0.999999 more, in float32, which is 1 more for large ones
    borders: Array

    @classmethod
    def of(cls, feature: Table) -> Encoding:
        """From TCtrFeature."""
        own = feature.table(0)
        return cls(
            Counted.of(own.table(0)),
            int(own.number(1, "i", 0)),
            own.number(2, "f", 0.0),
            own.number(3, "f", 1.0),
            own.number(5, "f", 1.0),
            np.ceil(feature.numbers(1, "<f4").astype(np.float64)) - 1,
        )

    @property
    def is_known(self) -> bool:
        """Whether it is one that a CPU makes."""
        return self.counted.kind in (BORDERS, BUCKETS, MEAN, COUNTER) and self.denominator == 1.0

    def bins(self, good: Single, total: Single) -> Bins:
        """(N,): the bins of rows with these counts, in single precision and in CatBoost's order (CalcCTR)."""
        prior, one = np.float32(self.prior), np.float32(1)
        left, right = min(np.float32(0), prior), max(one, prior)
        norm = right - left
        n_bins = np.float32(round(self.scale * float(norm)))
        return (((good + prior) / (total + one) - left) / norm * n_bins).astype(np.uint8)


@dataclass(frozen=True)
class FinalTable:
    """The counts of all rows, by which the model predicts."""

    counted: Counted
    hashes: Words
    counts: NDArray[np.int32]  #: (values,), or (values, classes); of means, sums beside numbers of rows
    denominator: int

    @classmethod
    def of(cls, table: Table) -> FinalTable:
        """From TCtrValueTable."""
        counted = Counted.of(table.table(0))
        places = table.numbers(1, "u1").view(np.dtype([("hash", "<u8"), ("index", "<u4")]))
        held = places[places["hash"] != NO_HASH]
        counts, by = table.numbers(2, "u1").view("<i4"), {MEAN: 2, COUNTER: 1, FREQUENCY: 1}
        n_classes = by.get(counted.kind, int(table.number(4, "i", 0)))
        counts = counts.reshape(-1, n_classes)[held["index"]]
        return cls(counted, held["hash"].copy(), counts, int(table.number(3, "i", 0)))


@dataclass(frozen=True)
class Fold:
    """The training rows of the averaging fold."""

    order: NDArray[np.int64]  #: (N,) the row in each place
    categories: dict[int, Categories]  #: columns by their numbers among those of categories
    numbers: dict[int, Single]  #: columns by their numbers among those of numbers
    high: set[int]  #: columns of numbers whose missing values are above every border
    targets: Array  #: (N, K)
    most: int  #: categories or combinations that are told apart
    all_simple: bool  #: whether categories by themselves are always told apart
    classifications: list[Classification]  #: of the targets, from number 1 on

    def words(self, counted: Counted) -> Words:
        """(N,): the hash of the category or combination that each row has."""
        parts = [self.categories[i].words for i in counted.categories]
        parts += [self.is_above(*test).astype(np.uint64) for test in counted.tests]
        parts += [self.equals(*pair).astype(np.uint64) for pair in counted.one_hot]
        return combined(parts)

    def classification(self, counted: Counted) -> Classification:
        """How targets were parted; 0 stands for the only way where a file has lost the number."""
        return self.classifications[max(counted.classes, 1) - 1]

    def is_above(self, column: int, border: float) -> NDArray[np.bool_]:
        """(N,): whether numbers are above a border."""
        values = self.numbers[column]
        with np.errstate(invalid="ignore"):
            above = values > np.float32(border)
        return np.asarray(above | np.isnan(values) if column in self.high else above)

    def equals(self, column: int, value: int) -> NDArray[np.bool_]:
        """(N,): whether categories have this hash."""
        own = self.categories[column]
        return np.asarray((own.hashes == np.uint32(value & 0xFFFFFFFF))[own.codes])


@dataclass(frozen=True)
class RowsByCategory:
    """The training rows by category or combination."""

    what: tuple[Any, ...]
    numbers: NDArray[np.int64]  #: (N,)
    words: Words  #: hash of each number


class Encoder:
    """The encodings that training rows had in a fit."""

    def __init__(self, blob: ModelBlob, fold: Fold):
        self._fold, self.encodings = fold, encodings(blob)
        self._tables = {table.counted: table for table in final_tables(blob)}
        self._classes: dict[int, NDArray[np.int64]] = {}
        self._grouped: RowsByCategory | None = None  # the last, as encodings of one combination follow each other
        self._counts: tuple[tuple[Counted, int], Single, Single] | None = None  # likewise

    def bins(self, i: int) -> Bins:
        """(N,): encoding i of each row."""
        own = self.encodings[i]
        asked = own.counted, own.target_border
        if self._counts is None or self._counts[0] != asked:
            counts = self._before(*asked) if own.counted.needs_classes else self._occurrences(own.counted)
            self._counts = asked, *counts
        return own.bins(*self._counts[1:])

    def _before(self, counted: Counted, target_border: int) -> tuple[Single, Single]:
        """(N,) twice: of the rows before each that share its category those of the classes counted, and all of them."""
        groups, classes = self._groups(counted), self._classified(counted)
        if counted.kind == MEAN:
            values = classes.astype(np.float32) / np.float32(self._fold.classification(counted).n_borders)
        else:
            chosen = classes > target_border if counted.kind == BORDERS else classes == target_border
            values = chosen.astype(np.float32)
        return sums_before(groups.numbers, len(groups.words), self._fold.order, values, single=counted.kind == MEAN)

    def _groups(self, counted: Counted) -> RowsByCategory:
        if self._grouped is None or self._grouped.what != counted.what:
            words = self._fold.words(counted)
            numbers, n = number_keys(words)
            if n > self._fold.most and not (counted.is_simple and self._fold.all_simple):
                raise UnsupportedModelError(
                    "ctr_leaf_count_limit",
                    f"{self._fold.most} with {n} categories or combinations of them",
                    "which of them CatBoost puts together is not replayed",
                    "Fit without ctr_leaf_count_limit.",
                )
            keys = np.empty(n, dtype=np.uint64)
            keys[numbers] = words
            self._grouped = RowsByCategory(counted.what, numbers, keys)
        return self._grouped

    def _occurrences(self, counted: Counted) -> tuple[Single, Single]:
        """(N,) twice: how often each row's category occurs, and how often the most frequent one does.

        No order matters, but an eval_set may count as well: the model's own table says it.
        """
        table, groups = self._tables[counted], self._groups(counted)
        order = np.argsort(table.hashes)
        place = order[np.minimum(np.searchsorted(table.hashes[order], groups.words), len(order) - 1)]
        unknown = np.flatnonzero(table.hashes[place] != groups.words)
        if len(unknown):
            raise ExactnessError(
                "number of categories, or combinations of them, that the model does not know",
                float(len(unknown)),
                0.0,
                "Categories are not those of the fit: pass the same columns, as text or whole numbers.",
            )
        total = np.full(len(groups.numbers), table.denominator, dtype=np.float32)
        return table.counts[place, 0].astype(np.float32)[groups.numbers], total

    def _classified(self, counted: Counted) -> NDArray[np.int64]:
        """(N,): the class of each row's target."""
        if counted.classes not in self._classes:
            known = [table for table in self._tables.values() if table.counted.classes == counted.classes]
            parted = next((table for table in known if table.counted.kind in (BORDERS, BUCKETS)), None)
            how = self._fold.classification(counted)
            target = how.target(self._fold.targets)
            self._classes[counted.classes] = (
                how.classes(target) if parted is None else classes_of(target, parted.counts.sum(axis=0))
            )
        return self._classes[counted.classes]


@dataclass(frozen=True)
class Classification:
    """How targets were parted into classes, which encodings count."""

    output: int
    n_borders: int
    kind: str  #: by which CatBoost chose the borders
    by_class: bool  #: targets are classes, with borders between their numbers

    def target(self, targets: Array) -> Array:
        """(N,): the numbers that are parted, of targets (N, K)."""
        several = self.by_class and targets.shape[1] > 1
        return targets.argmax(axis=1).astype(np.float64) if several else targets[:, self.output]

    def classes(self, target: Array) -> NDArray[np.int64]:
        """(N,): the class of each target (BuildTargetClassifier, catboost/private/libs/algo/target_classifier.cpp)."""
        from catboost.utils import calculate_quantization_grid

        if self.by_class:
            return np.minimum(target.astype(np.int64), self.n_borders)
        single = target.astype(np.float32)
        borders = np.asarray(calculate_quantization_grid(single, self.n_borders, self.kind), dtype=np.float32)
        return np.searchsorted(np.sort(borders), single, "left").astype(np.int64)


def classifications(settings: dict[str, Any], n_outputs: int) -> list[Classification]:
    """Classifications of a fit, from number 1 on (InitCtrHelper, catboost/private/libs/algo/ctr_helper.cpp)."""
    own, loss = settings["cat_feature_params"], str(settings["loss_function"]["type"])
    by_column = sorted(own["per_feature_ctrs"].items(), key=lambda item: int(item[0]))
    described = [*(several for _, several in by_column), own["simple_ctrs"], own["combinations_ctrs"]]
    binarized = [parts for several in described for one in several if (parts := one.get("target_binarization"))]
    found = list[Classification]()
    for parts in binarized:
        for output in range(n_outputs if loss == "MultiRMSE" else 1):
            by_class = loss.startswith("MultiClass")
            one = Classification(output, int(parts["border_count"]), str(parts["border_type"]), by_class)
            found += [] if one in found else [one]
    return found


def classes_of(target: Array, totals: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """(N,): the class of each target, where borders part the sorted targets into classes of ``totals`` rows each.

    The model does not keep the borders, but only which targets lie above them matters.
    """
    ranked = np.sort(target)
    ends = np.cumsum(totals)[:-1]
    inside = ends[(ends > 0) & (ends < len(ranked))]
    if int(totals.sum()) != len(target) or (ranked[inside - 1] == ranked[inside]).any():
        raise ExactnessError(
            "number of targets up to the border that encodes categories",
            float(np.searchsorted(ranked, ranked[inside[0] - 1], "right")) if len(inside) else float(len(target)),
            float(inside[0]) if len(inside) else float(totals.sum()),
            "The targets are not those of the fit, or rows are missing.",
        )
    borders = [np.inf if end == len(ranked) else ranked[end] for end in ends]  # the least target of the class above
    found = np.zeros(len(target), dtype=np.int64)
    for border in borders:
        found += target >= border
    return found


def encodings(blob: ModelBlob) -> list[Encoding]:
    """The encodings that splits use, in the order of their splits' numbers."""
    return [Encoding.of(feature) for feature in blob.trees.tables(7)]


def final_tables(blob: ModelBlob) -> list[FinalTable]:
    """The counts that the model keeps (TCtrData, catboost/libs/model/ctr_data.cpp)."""
    return [FinalTable.of(table) for table in blob.parts]
