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
from axil.arrays import BoolArray, FloatArray
from axil.errors import ExactnessError, UnsupportedModelError
from axil.kernels.cpu import encodings_before, number_keys

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
        tests, one_hot = (
            combination.numbers(i, np.dtype(f"<i4,{kind}")) for i, kind in ((1, "<f4"), (2, "<i4"))
        )
        return cls(
            tuple(combination.numbers(0, "<i4").tolist()),
            tuple(tests.tolist()),
            tuple(one_hot.tolist()),
            int(base.number(1, "b", 0)),
            base.integer(2),
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
    borders: FloatArray

    @classmethod
    def of(cls, feature: Table) -> Encoding:
        """From TCtrFeature."""
        own = feature.table(0)
        return cls(
            Counted.of(own.table(0)),
            own.integer(1),
            own.number(2, "f", 0.0),
            own.number(3, "f", 1.0),
            own.number(5, "f", 1.0),
            np.ceil(feature.numbers(1, "<f4").astype(np.float64)) - 1,
        )

    @property
    def is_known(self) -> bool:
        """Whether it is one that a CPU makes."""
        return self.counted.kind in (BORDERS, BUCKETS, MEAN, COUNTER) and self.denominator == 1.0

    @property
    def bin_scale(self) -> tuple[np.float32, ...]:
        """Prior, left end, length and number of bins, in single precision and in CatBoost's order (CalcCTR)."""
        prior, one = np.float32(self.prior), np.float32(1)
        left, right = min(np.float32(0), prior), max(one, prior)
        norm = right - left
        return prior, left, norm, np.float32(round(self.scale * float(norm)))

    def bins(self, good: Single, total: np.float32) -> Bins:
        """The bins of categories with these counts."""
        prior, left, norm, n_bins = self.bin_scale
        return (((good + prior) / (total + np.float32(1)) - left) / norm * n_bins).astype(np.uint8)


@dataclass(frozen=True)
class FinalTable:
    """The counts of all rows, by which the model predicts."""

    counted: Counted
    hashes: Words
    counts: NDArray[
        np.int32
    ]  #: (values,), or (values, classes); of means, sums beside numbers of rows
    denominator: int

    @classmethod
    def of(cls, table: Table) -> FinalTable:
        """From TCtrValueTable."""
        counted = Counted.of(table.table(0))
        places = table.numbers(1, "u1").view(np.dtype([("hash", "<u8"), ("index", "<u4")]))
        held = places[places["hash"] != NO_HASH]
        counts, by = table.numbers(2, "u1").view("<i4"), {MEAN: 2, COUNTER: 1, FREQUENCY: 1}
        n_classes = by.get(counted.kind, table.integer(4))
        counts = counts.reshape(-1, n_classes)[held["index"]]
        return cls(counted, held["hash"].copy(), counts, table.integer(3))


@dataclass(frozen=True)
class Fold:
    """The training rows of the averaging fold, in its order but for the targets."""

    order: NDArray[np.int64]  #: (N,) the row in each place
    categories: dict[int, Categories]  #: columns by their numbers among those of categories
    numbers: dict[int, Single]  #: columns by their numbers among those of numbers
    high: set[int]  #: columns of numbers whose missing values are above every border
    targets: FloatArray  #: (N, K)
    most: int  #: categories or combinations that are told apart
    all_simple: bool  #: whether categories by themselves are always told apart
    classifications: list[Classification]  #: of the targets, from number 1 on

    def parts(self, counted: Counted) -> list[tuple[NDArray[Any], int]]:
        """Categories and tests of a combination: codes (N,), and how many there may be."""
        own = [self.categories[i] for i in counted.categories]
        tests = [self.is_above(*test) for test in counted.tests] + [
            self.equals(*pair) for pair in counted.one_hot
        ]
        return [*((each.codes, len(each.hashes)) for each in own), *((test, 2) for test in tests)]

    def words(self, counted: Counted, rows: NDArray[np.int64]) -> Words:
        """The hash of the category or combination that each of these rows has."""
        parts = [self.categories[i].words(rows) for i in counted.categories]
        parts += [test[rows].astype(np.uint64) for test, _ in self.parts(counted)[len(parts) :]]
        return combined(parts)

    def classification(self, counted: Counted) -> Classification:
        """How targets were parted; 0 stands for the only way where a file has lost the number."""
        return self.classifications[max(counted.classes, 1) - 1]

    def is_above(self, column: int, border: float) -> BoolArray:
        """(N,): whether numbers are above a border."""
        return above(self.numbers[column], border, column in self.high)

    def equals(self, column: int, value: int) -> BoolArray:
        """(N,): whether categories have this hash."""
        own = self.categories[column]
        return np.asarray((own.hashes == np.uint32(value & 0xFFFFFFFF))[own.codes])


def above(values: Single, border: float, high: bool) -> BoolArray:
    """(N,): whether numbers are above a border, missing ones too where they are ``high``."""
    with np.errstate(invalid="ignore"):
        found = values > np.float32(border)
    return np.asarray(found | np.isnan(values) if high else found)


@dataclass(frozen=True)
class RowsByCategory:
    """The training rows by category or combination."""

    what: tuple[Any, ...]
    numbers: NDArray[np.uint32]  #: (N,)
    size: int  #: numbers are below it

    @classmethod
    def of(cls, what: tuple[Any, ...], parts: list[tuple[NDArray[Any], int]]) -> RowsByCategory:
        """By codes below some number each, which are put together into one; numbers that few rows have are given anew."""
        numbers, size = parts[0][0].astype(np.uint32), parts[0][1]
        most = max(1 << 16, 2 * len(numbers))
        for codes, n in parts[1:]:
            if size * n > most:
                keys, size = number_keys(
                    numbers.astype(np.uint64) * np.uint64(n) + codes.astype(np.uint64)
                )
                numbers = keys.astype(np.uint32)
            else:
                numbers *= np.uint32(n)
                numbers += codes
                size *= n
        return cls(what, numbers, size)

    def found(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The numbers that rows have, and a row of each."""
        row = np.full(self.size, -1, dtype=np.int64)
        row[self.numbers] = np.arange(len(self.numbers))
        numbers = np.flatnonzero(row >= 0)
        return numbers, row[numbers]


class Encoder:
    """The encodings that training rows had in a fit."""

    def __init__(self, blob: ModelBlob, fold: Fold):
        self._fold, self.encodings = fold, encodings(blob)
        self._tables = {table.counted: table for table in final_tables(blob)}
        self._classes: dict[int, NDArray[np.int64]] = {}
        self._sharing: dict[tuple[Counted, int], list[int]] = {}  # encodings of the same counts
        for i, own in enumerate(self.encodings):
            self._sharing.setdefault((own.counted, own.target_border), []).append(i)
        self._grouped: RowsByCategory | None = (
            None  # the last, as encodings of one combination follow each other
        )
        self._bins: dict[int, Bins] = {}  # likewise

    def bins(self, i: int) -> Bins:
        """(N,): encoding i of each row, in the order of the fold."""
        if i not in self._bins:
            counted, border = self.encodings[i].counted, self.encodings[i].target_border
            same = self._sharing[counted, border]
            self._bins = dict(
                zip(same, (self._before if counted.needs_classes else self._occurrences)(same))
            )
        return self._bins[i]

    def _before(self, same: list[int]) -> Bins:
        """(E, N): encodings by the rows before each that share its category: those of the classes counted, and all of them."""
        counted, target_border = (
            self.encodings[same[0]].counted,
            self.encodings[same[0]].target_border,
        )
        groups, classes = self._groups(counted), self._classified(counted)
        if counted.kind == MEAN:
            values: Any = classes.astype(np.float32) / np.float32(
                self._fold.classification(counted).n_borders
            )
        else:
            values = (
                classes > target_border if counted.kind == BORDERS else classes == target_border
            ).view(np.uint8)
        scales = np.array([self.encodings[i].bin_scale for i in same], dtype=np.float32)
        return encodings_before(groups.numbers, groups.size, values, scales)

    def _groups(self, counted: Counted) -> RowsByCategory:
        if self._grouped is None or self._grouped.what != counted.what:
            groups, most = (
                RowsByCategory.of(counted.what, self._fold.parts(counted)),
                self._fold.most,
            )
            if groups.size > most and not (counted.is_simple and self._fold.all_simple):
                n = len(groups.found()[0])
                if n > most:
                    raise UnsupportedModelError(
                        "ctr_leaf_count_limit",
                        f"{most} with {n} categories or combinations of them",
                        "which of them CatBoost puts together is not replayed",
                        "Fit without ctr_leaf_count_limit.",
                    )
            self._grouped = groups
        return self._grouped

    def _occurrences(self, same: list[int]) -> list[Bins]:
        """(E, N): encodings by how often each row's category occurs, and how often the most frequent one does.

        No order matters, but an eval_set may count as well: the model's own table says it.
        """
        counted = self.encodings[same[0]].counted
        table, groups = self._tables[counted], self._groups(counted)
        numbers, rows = groups.found()
        words, order = self._fold.words(counted, rows), np.argsort(table.hashes)
        place = order[np.minimum(np.searchsorted(table.hashes[order], words), len(order) - 1)]
        unknown = np.flatnonzero(table.hashes[place] != words)
        if len(unknown):
            raise ExactnessError(
                "number of categories, or combinations of them, that the model does not know",
                float(len(unknown)),
                0.0,
                "Categories are not those of the fit: pass the same columns, as text or whole numbers.",
            )
        number = np.empty(groups.size, dtype=np.int64)
        number[numbers] = np.arange(len(numbers))
        good, own = table.counts[place, 0].astype(np.float32), number[groups.numbers]
        return [self.encodings[i].bins(good, np.float32(table.denominator))[own] for i in same]

    def _classified(self, counted: Counted) -> NDArray[np.int64]:
        """(N,): the class of each row's target, in the order of the fold."""
        if counted.classes not in self._classes:
            known = [
                table for table in self._tables.values() if table.counted.classes == counted.classes
            ]
            parted = next(
                (table for table in known if table.counted.kind in (BORDERS, BUCKETS)), None
            )
            how = self._fold.classification(counted)
            target = how.target(self._fold.targets)
            found = (
                how.classes(target)
                if parted is None
                else classes_of(target, parted.counts.sum(axis=0))
            )
            self._classes[counted.classes] = found[self._fold.order]
        return self._classes[counted.classes]


@dataclass(frozen=True)
class Classification:
    """How targets were parted into classes, which encodings count."""

    output: int
    n_borders: int
    kind: str  #: by which CatBoost chose the borders
    by_class: bool  #: targets are classes, with borders between their numbers

    def target(self, targets: FloatArray) -> FloatArray:
        """(N,): the numbers that are parted, of targets (N, K)."""
        several = self.by_class and targets.shape[1] > 1
        return targets.argmax(axis=1).astype(np.float64) if several else targets[:, self.output]

    def classes(self, target: FloatArray) -> NDArray[np.int64]:
        """(N,): the class of each target (BuildTargetClassifier, catboost/private/libs/algo/target_classifier.cpp)."""
        from catboost.utils import calculate_quantization_grid

        if self.by_class:
            return np.minimum(target.astype(np.int64), self.n_borders)
        single = target.astype(np.float32)
        borders = np.asarray(
            calculate_quantization_grid(single, self.n_borders, self.kind), dtype=np.float32
        )
        return np.searchsorted(np.sort(borders), single, "left").astype(np.int64)


def classifications(settings: dict[str, Any], n_outputs: int) -> list[Classification]:
    """Classifications of a fit, from number 1 on (InitCtrHelper, catboost/private/libs/algo/ctr_helper.cpp)."""
    own, loss = settings["cat_feature_params"], str(settings["loss_function"]["type"])
    by_column = sorted(own["per_feature_ctrs"].items(), key=lambda item: int(item[0]))
    described = [
        *(several for _, several in by_column),
        own["simple_ctrs"],
        own["combinations_ctrs"],
    ]
    binarized = [
        parts
        for several in described
        for one in several
        if (parts := one.get("target_binarization"))
    ]
    found = list[Classification]()
    for parts in binarized:
        for output in range(n_outputs if loss == "MultiRMSE" else 1):
            by_class = loss.startswith("MultiClass")
            one = Classification(
                output, int(parts["border_count"]), str(parts["border_type"]), by_class
            )
            found += [] if one in found else [one]
    return found


def classes_of(target: FloatArray, totals: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """(N,): the class of each target, where borders part the sorted targets into classes of ``totals`` rows each.

    The model does not keep the borders, but only which targets lie above them matters.
    """
    ranked = np.sort(target)
    ends = np.cumsum(totals)[:-1]
    inside = ends[(ends > 0) & (ends < len(ranked))]
    if int(totals.sum()) != len(target) or (ranked[inside - 1] == ranked[inside]).any():
        raise ExactnessError(
            "number of targets up to the border that encodes categories",
            float(np.searchsorted(ranked, ranked[inside[0] - 1], "right"))
            if len(inside)
            else float(len(target)),
            float(inside[0]) if len(inside) else float(totals.sum()),
            "The targets are not those of the fit, or rows are missing.",
        )
    borders = [
        np.inf if end == len(ranked) else ranked[end] for end in ends
    ]  # the least target of the class above
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
