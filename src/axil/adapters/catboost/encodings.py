"""CatBoost's encodings of categories by the targets, as the training rows had them in the fit.

A fit encodes a category, or a combination of categories and tests, from the rows before it in the
order of the averaging fold: by how many of them share it, and how many of these have a target above
a border (ComputeOnlineCTRs, catboost/private/libs/algo/online_ctr.cpp; CalcCTR, online_ctr.h).
Predictions take the counts of all rows, which the model keeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.catboost.blob import ModelBlob, Table
from axil.adapters.catboost.categories import Categories, Words, combined
from axil.arrays import AnyArray, BoolArray, FloatArray, IntArray
from axil.errors import ExactnessError, UnsupportedModelError
from axil.kernels.cpu import encodings_before, number_keys

# ECtrType, catboost/libs/model/flatbuffers/ctr_data.fbs
BORDERS = 0
BUCKETS = 1
MEAN = 2
COUNTER = 4
FREQUENCY = 5
NO_HASH = np.uint64(2**64 - 1)  # an empty place of a table
#: Columns of the counts of a final table; other kinds have one for each class of targets.
COUNTS_PER_VALUE = {MEAN: 2, COUNTER: 1, FREQUENCY: 1}

Single = NDArray[np.float32]
Bins = NDArray[np.uint8]
Combination = tuple[Any, ...]


@dataclass(frozen=True)
class Statistic:
    """The statistic of an encoding: rows of a category or combination by classes of the targets."""

    categories: tuple[int, ...]  #: columns, numbered among those of categories
    tests: tuple[tuple[int, float], ...]  #: columns, numbered among those of numbers, and borders
    one_hot: tuple[tuple[int, int], ...]  #: columns of categories, and hashes
    kind: int
    classification: int  #: the number of the classification of the targets

    @classmethod
    def of(cls, base: Table) -> Statistic:
        """Return the statistic of a TModelCtrBase."""
        combination = base.table(0)
        tests = combination.numbers(1, np.dtype("<i4,<f4"))
        one_hot = combination.numbers(2, np.dtype("<i4,<i4"))
        return cls(
            tuple(combination.numbers(0, "<i4").tolist()),
            tuple(tests.tolist()),
            tuple(one_hot.tolist()),
            int(base.number(1, "b", 0)),
            base.integer(2),
        )

    @property
    def combination(self) -> Combination:
        """Return the category or combination whose rows are counted."""
        return self.categories, self.tests, self.one_hot

    @property
    def needs_targets(self) -> bool:
        """Return whether the statistic uses targets, rather than only numbers of rows."""
        return self.kind != COUNTER

    @property
    def is_simple(self) -> bool:
        """Return whether the statistic is about a single category, not a combination."""
        return len(self.categories) == 1 and not self.tests and not self.one_hot


@dataclass(frozen=True)
class Encoding:
    """A column that trees have splits on."""

    statistic: Statistic
    target_border: int  #: the class, or the border between classes, that is counted
    prior: float
    denominator: float  #: of the prior
    scale: float  #: bins per unit, once the least encoding is zero
    #: Bins up to which rows go left. The model keeps 0.999999 more, in float32, which is 1 more
    #: for large ones.
    borders: FloatArray

    @classmethod
    def of(cls, feature: Table) -> Encoding:
        """Return the encoding of a TCtrFeature."""
        settings = feature.table(0)
        return cls(
            Statistic.of(settings.table(0)),
            settings.integer(1),
            settings.number(2, "f", 0.0),
            settings.number(3, "f", 1.0),
            settings.number(5, "f", 1.0),
            np.ceil(feature.numbers(1, "<f4").astype(np.float64)) - 1,
        )

    @property
    def is_known(self) -> bool:
        """Return whether the encoding is of a type that CatBoost has on a CPU."""
        kinds = (BORDERS, BUCKETS, MEAN, COUNTER)
        return self.statistic.kind in kinds and self.denominator == 1.0

    @property
    def bin_scale(self) -> tuple[np.float32, ...]:
        """Return the prior, and the start, the length and the number of the bins (CalcCTR).

        They are computed in single precision and in CatBoost's order.
        """
        prior = np.float32(self.prior)
        start = min(np.float32(0), prior)
        length = max(np.float32(1), prior) - start
        return prior, start, length, np.float32(round(self.scale * float(length)))

    def bins(self, counts: Single, total: np.float32) -> Bins:
        """Return the bins of categories with these counts."""
        prior, start, length, n_bins = self.bin_scale
        shares = (counts + prior) / (total + np.float32(1))
        return ((shares - start) / length * n_bins).astype(np.uint8)


@dataclass(frozen=True)
class FinalTable:
    """The counts of all rows, by which the model predicts."""

    statistic: Statistic
    hashes: Words
    #: (values, classes); (values, 1) of rows alone; of means sums beside numbers of rows
    counts: NDArray[np.int32]
    denominator: int

    @classmethod
    def of(cls, table: Table) -> FinalTable:
        """Return the counts of a TCtrValueTable."""
        statistic = Statistic.of(table.table(0))
        entries = table.numbers(1, "u1").view(np.dtype([("hash", "<u8"), ("index", "<u4")]))
        entries = entries[entries["hash"] != NO_HASH]
        n_columns = COUNTS_PER_VALUE.get(statistic.kind, table.integer(4))
        counts = table.numbers(2, "u1").view("<i4").reshape(-1, n_columns)
        return cls(statistic, entries["hash"].copy(), counts[entries["index"]], table.integer(3))


@dataclass(frozen=True)
class Fold:
    """The training rows in the order of the averaging fold, targets in the order of the data."""

    order: IntArray  #: (N,) the row in each place
    categories: dict[int, Categories]  #: columns by their numbers among those of categories
    numbers: dict[int, Single]  #: columns by their numbers among those of numbers
    missing_right: set[int]  #: columns of numbers whose missing values are above every border
    targets: FloatArray  #: (N, K)
    most_categories: int  #: categories or combinations that are told apart
    keeps_all_simple: bool  #: whether categories by themselves are always told apart
    classifications: list[Classification]  #: of the targets, from number 1 on

    def components(self, statistic: Statistic) -> list[tuple[AnyArray, int]]:
        """Return codes (N,) of each category combined with tests, and their largest number."""
        columns = [self.categories[i] for i in statistic.categories]
        coded = [(column.codes, len(column.hashes)) for column in columns]
        return [*coded, *((test, 2) for test in self._tests(statistic))]

    def words(self, statistic: Statistic, rows: IntArray) -> Words:
        """Return the hash of the category or combination of each of these rows."""
        words = [self.categories[i].words(rows) for i in statistic.categories]
        words += [test[rows].astype(np.uint64) for test in self._tests(statistic)]
        return combined(words)

    def _tests(self, statistic: Statistic) -> list[BoolArray]:
        """Return the outcomes (N,) of each test of a combination."""
        is_above = [self.is_above(*test) for test in statistic.tests]
        return is_above + [self.equals(*value) for value in statistic.one_hot]

    def classification(self, statistic: Statistic) -> Classification:
        """Return how targets are classified.

        It is 0 if a file lost the number, as there is only one way.
        """
        return self.classifications[max(statistic.classification, 1) - 1]

    def is_above(self, column: int, border: float) -> BoolArray:
        """Return whether numbers are above a border, (N,)."""
        return above(self.numbers[column], border, column in self.missing_right)

    def equals(self, column: int, value: int) -> BoolArray:
        """Return whether categories have this hash, (N,)."""
        categories = self.categories[column]
        is_value = categories.hashes == np.uint32(value & 0xFFFFFFFF)
        return np.asarray(is_value[categories.codes])


def above(values: Single, border: float, missing_right: bool) -> BoolArray:
    """Return whether numbers are above a border, (N,); missing ones as CatBoost does."""
    with np.errstate(invalid="ignore"):
        is_above = values > np.float32(border)
    if missing_right:
        is_above |= np.isnan(values)
    return np.asarray(is_above)


@dataclass(frozen=True)
class RowsByCategory:
    """The training rows by category or combination."""

    combination: Combination
    numbers: NDArray[np.uint32]  #: (N,) of the category or combination that each row has
    size: int  #: numbers are below it

    @classmethod
    def of(cls, combination: Combination, components: list[tuple[AnyArray, int]]) -> RowsByCategory:
        """Return the numbers of combinations of codes.

        Numbers that few rows have are assigned again.
        """
        first_codes, size = components[0]
        numbers = first_codes.astype(np.uint32)
        limit = max(1 << 16, 2 * len(numbers))
        for codes, n_codes in components[1:]:
            if size * n_codes > limit:
                keys = numbers.astype(np.uint64) * np.uint64(n_codes) + codes.astype(np.uint64)
                new_numbers, size = number_keys(keys)
                numbers = new_numbers.astype(np.uint32)
            else:
                numbers *= np.uint32(n_codes)
                numbers += codes
                size *= n_codes
        return cls(combination, numbers, size)

    def present(self) -> tuple[IntArray, IntArray]:
        """Return the distinct numbers of the rows, and one row of each."""
        row = np.full(self.size, -1, dtype=np.int64)
        row[self.numbers] = np.arange(len(self.numbers))
        numbers = np.flatnonzero(row >= 0)
        return numbers, row[numbers]


class Encoder:
    """The encodings that training rows had in a fit."""

    def __init__(self, blob: ModelBlob, fold: Fold):
        self._fold = fold
        self.encodings = encodings(blob)
        self._tables = {table.statistic: table for table in final_tables(blob)}
        self._classes: dict[int, IntArray] = {}  # of the targets, by classification
        # Encodings of the same counts are computed together.
        self._sharing: dict[tuple[Statistic, int], list[int]] = {}
        for i, encoding in enumerate(self.encodings):
            key = (encoding.statistic, encoding.target_border)
            self._sharing.setdefault(key, []).append(i)
        # Only the last of each is kept, as encodings of one combination follow each other.
        self._grouped: RowsByCategory | None = None
        self._bins: dict[int, Bins] = {}

    def bins(self, i: int) -> Bins:
        """Return encoding i of each row, in the order of the fold, (N,)."""
        if i not in self._bins:
            encoding = self.encodings[i]
            sharing = self._sharing[encoding.statistic, encoding.target_border]
            bins: Bins | list[Bins]
            if encoding.statistic.needs_targets:
                bins = self._bins_of_targets(sharing)
            else:
                bins = self._bins_of_occurrences(sharing)
            self._bins = dict(zip(sharing, bins))
        return self._bins[i]

    def _bins_of_targets(self, sharing: list[int]) -> Bins | list[Bins]:
        """Return encodings by the targets of the rows before each in its category, (E, N)."""
        statistic = self.encodings[sharing[0]].statistic
        target_border = self.encodings[sharing[0]].target_border
        groups = self._groups(statistic)
        classes = self._target_classes(statistic)
        values: AnyArray
        if statistic.kind == MEAN:
            n_borders = np.float32(self._fold.classification(statistic).n_borders)
            values = classes.astype(np.float32) / n_borders
        elif statistic.kind == BORDERS:
            values = (classes > target_border).view(np.uint8)
        else:
            values = (classes == target_border).view(np.uint8)
        scales = np.array([self.encodings[i].bin_scale for i in sharing], dtype=np.float32)
        return encodings_before(groups.numbers, groups.size, values, scales)

    def _groups(self, statistic: Statistic) -> RowsByCategory:
        """Return the rows by the category or combination that a statistic is about."""
        if self._grouped is None or self._grouped.combination != statistic.combination:
            components = self._fold.components(statistic)
            groups = RowsByCategory.of(statistic.combination, components)
            if not (statistic.is_simple and self._fold.keeps_all_simple):
                self._check_number_of_categories(groups)
            self._grouped = groups
        return self._grouped

    def _check_number_of_categories(self, groups: RowsByCategory) -> None:
        """Raise if CatBoost put categories together because there are too many."""
        most = self._fold.most_categories
        if groups.size <= most:
            return
        n_categories = len(groups.present()[0])
        if n_categories > most:
            raise UnsupportedModelError(
                "ctr_leaf_count_limit",
                f"{most} with {n_categories} categories or combinations of them",
                "which of them CatBoost puts together is not replayed",
                "Fit without ctr_leaf_count_limit.",
            )

    def _bins_of_occurrences(self, sharing: list[int]) -> Bins | list[Bins]:
        """Return encodings by how often each row's category occurs, (E, N).

        The counts are divided by those of the most frequent category. No order matters, but an
        eval_set may count as well, so the counts are those of the model's own table.
        """
        statistic = self.encodings[sharing[0]].statistic
        table = self._tables[statistic]
        groups = self._groups(statistic)
        numbers, rows = groups.present()
        words = self._fold.words(statistic, rows)
        order = np.argsort(table.hashes)
        sorted_place = np.searchsorted(table.hashes[order], words)
        place = order[np.minimum(sorted_place, len(order) - 1)]
        n_unknown = np.count_nonzero(table.hashes[place] != words)
        if n_unknown:
            raise ExactnessError(
                "number of categories, or combinations of them, that the model does not know",
                float(n_unknown),
                0.0,
                "Categories are not those of the fit: pass the same columns, as text or whole "
                "numbers.",
            )
        position = np.empty(groups.size, dtype=np.int64)
        position[numbers] = np.arange(len(numbers))
        position_of_row = position[groups.numbers]
        counts = table.counts[place, 0].astype(np.float32)
        total = np.float32(table.denominator)
        return [self.encodings[i].bins(counts, total)[position_of_row] for i in sharing]

    def _target_classes(self, statistic: Statistic) -> IntArray:
        """Return the class of each row's target, in the order of the fold, (N,)."""
        number = statistic.classification
        if number not in self._classes:
            classification = self._fold.classification(statistic)
            target = classification.target(self._fold.targets)
            totals = self._class_totals(number)
            if totals is None:
                classes = classification.classes(target)
            else:
                classes = classes_of(target, totals)
            self._classes[number] = classes[self._fold.order]
        return self._classes[number]

    def _class_totals(self, classification: int) -> IntArray | None:
        """Return the number of rows of each class, (C,), if a table of the model has it."""
        for table in self._tables.values():
            counts_classes = table.statistic.kind in (BORDERS, BUCKETS)
            if counts_classes and table.statistic.classification == classification:
                return np.asarray(table.counts.sum(axis=0))
        return None


@dataclass(frozen=True)
class Classification:
    """The division of targets into classes, whose rows encodings count."""

    output: int
    n_borders: int
    border_type: str  #: by which CatBoost chose the borders
    by_class: bool  #: targets are classes, with borders between their numbers

    def target(self, targets: FloatArray) -> FloatArray:
        """Return the numbers to classify, (N,), of targets (N, K)."""
        if self.by_class and targets.shape[1] > 1:
            return targets.argmax(axis=1).astype(np.float64)
        return targets[:, self.output]

    def classes(self, target: FloatArray) -> IntArray:
        """Return the class of each target, (N,).

        See BuildTargetClassifier, catboost/private/libs/algo/target_classifier.cpp.
        """
        from catboost.utils import calculate_quantization_grid

        if self.by_class:
            return np.minimum(target.astype(np.int64), self.n_borders)
        single = target.astype(np.float32)
        grid = calculate_quantization_grid(single, self.n_borders, self.border_type)
        borders = np.sort(np.asarray(grid, dtype=np.float32))
        return np.searchsorted(borders, single, "left").astype(np.int64)


def classifications(settings: dict[str, Any], n_outputs: int) -> list[Classification]:
    """Return the classifications of a fit, from number 1 on.

    See InitCtrHelper, catboost/private/libs/algo/ctr_helper.cpp.
    """
    category_settings = settings["cat_feature_params"]
    loss = str(settings["loss_function"]["type"])
    if loss != "MultiRMSE":
        n_outputs = 1
    by_column = sorted(category_settings["per_feature_ctrs"].items(), key=lambda item: int(item[0]))
    descriptions = list[dict[str, Any]]()
    for _, column_descriptions in by_column:
        descriptions += column_descriptions
    descriptions += category_settings["simple_ctrs"]
    descriptions += category_settings["combinations_ctrs"]
    result = list[Classification]()
    for description in descriptions:
        binarization = description.get("target_binarization")
        if not binarization:
            continue
        for output in range(n_outputs):
            classification = Classification(
                output,
                int(binarization["border_count"]),
                str(binarization["border_type"]),
                by_class=loss.startswith("MultiClass"),
            )
            if classification not in result:
                result.append(classification)
    return result


def classes_of(target: FloatArray, totals: IntArray) -> IntArray:
    """Return the class of each target, (N,), from the number of rows of each class.

    The model does not keep the borders between the sorted targets, but only which targets lie
    above them matters.
    """
    ranked = np.sort(target)
    ends = np.cumsum(totals)[:-1]
    inside = ends[(ends > 0) & (ends < len(ranked))]
    n_rows = int(totals.sum())
    if n_rows != len(target) or (ranked[inside - 1] == ranked[inside]).any():
        actual = float(len(target))
        expected = float(n_rows)
        if len(inside):
            actual = float(np.searchsorted(ranked, ranked[inside[0] - 1], "right"))
            expected = float(inside[0])
        raise ExactnessError(
            "number of targets up to the border that encodes categories",
            actual,
            expected,
            "The targets are not those of the fit, or rows are missing.",
        )
    classes = np.zeros(len(target), dtype=np.int64)
    for end in ends:
        if end == len(ranked):
            least_above = np.inf
        else:
            least_above = ranked[end]
        classes += target >= least_above
    return classes


def encodings(blob: ModelBlob) -> list[Encoding]:
    """Return the encodings that splits use, in the order of their splits' numbers."""
    return [Encoding.of(feature) for feature in blob.trees.tables(7)]


def final_tables(blob: ModelBlob) -> list[FinalTable]:
    """Return the counts that the model keeps (TCtrData, catboost/libs/model/ctr_data.cpp)."""
    return [FinalTable.of(table) for table in blob.encoding_tables]
