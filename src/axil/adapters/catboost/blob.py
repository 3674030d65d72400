"""The contents of a CatBoost model, read from the bytes that pickle and save_model keep.

These are "CBM1", a size and a FlatBuffer. CatBoost's Python functions hide parts of it: whether
splits use target statistics, the leaf weights of several outputs and the settings of the models
that training went on from. Fields and their order: catboost/libs/model/flatbuffers/model.fbs and
features.fbs.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import AnyArray, FloatArray
from axil.errors import InputError

HEAD = 8  # bytes before the FlatBuffer
#: Fields of the trees.
LEAF_VALUES = 8
LEAF_WEIGHTS = 9
#: The part of a model that has the tables of encodings.
ENCODINGS = "static_provider_v1"
#: NanValueTreatment: missing values are above every border.
MISSING_AS_LARGEST = 2


class Table:
    """A table of a FlatBuffer; fields are numbered from 0 in the order of the schema."""

    def __init__(self, data: bytes, start: int):
        self._data = data
        self._start = start

    def _place(self, field: int) -> int:
        """Return the position of the field; 0 if the table does not have it."""
        fields = self._start - int(struct.unpack_from("<i", self._data, self._start)[0])
        if 4 + 2 * field >= int(struct.unpack_from("<H", self._data, fields)[0]):
            return 0
        offset = int(struct.unpack_from("<H", self._data, fields + 4 + 2 * field)[0])
        if offset:
            return self._start + offset
        return 0

    def number(self, field: int, kind: str, default: float) -> float:
        """Return a scalar of ``struct`` format ``kind``."""
        place = self._place(field)
        if not place:
            return default
        return float(struct.unpack_from("<" + kind, self._data, place)[0])

    def integer(self, field: int) -> int:
        """Return a whole number, 0 if the table does not have it."""
        return int(self.number(field, "i", 0))

    def vector(self, field: int) -> tuple[int, int]:
        """Return the start of a vector, a string or a table, and its number of elements."""
        place = self._place(field)
        if not place:
            return 0, 0
        start = place + int(struct.unpack_from("<I", self._data, place)[0])
        return start + 4, int(struct.unpack_from("<I", self._data, start)[0])

    def length(self, field: int) -> int:
        """Return the length of a vector."""
        return self.vector(field)[1]

    def numbers(self, field: int, dtype: str | np.dtype[Any]) -> AnyArray:
        """Return a vector of scalars, or of structs of them."""
        start, n = self.vector(field)
        return np.frombuffer(self._data, dtype, n, start)

    def text(self, field: int) -> str:
        """Return a string."""
        start, n = self.vector(field)
        return self._data[start : start + n].decode()

    def texts(self, field: int) -> list[str]:
        """Return a vector of strings."""
        texts = []
        for place in self._elements(field):
            size = int(struct.unpack_from("<I", self._data, place)[0])
            texts.append(self._data[place + 4 : place + 4 + size].decode())
        return texts

    def table(self, field: int) -> Table:
        """Return a table inside this one."""
        return Table(self._data, self.vector(field)[0] - 4)

    def tables(self, field: int) -> list[Table]:
        """Return a vector of tables."""
        return [Table(self._data, place) for place in self._elements(field)]

    def _elements(self, field: int) -> list[int]:
        """Return the start of each element of a vector of strings or tables."""
        start, n = self.vector(field)
        offsets = np.frombuffer(self._data, "<u4", n, start).tolist()
        return [start + 4 * i + offset for i, offset in enumerate(offsets)]


@dataclass(frozen=True)
class NumberFeature:
    """A numeric column of a model."""

    number: int  #: among the columns of numbers
    column: int  #: among all columns
    borders: FloatArray  #: of its splits
    missing_right: bool  #: whether a missing value is above every border

    @classmethod
    def of(cls, feature: Table) -> NumberFeature:
        """Return the feature of a TFloatFeature."""
        return cls(
            number=feature.integer(1),
            column=feature.integer(2),
            borders=feature.numbers(3, "<f4").astype(np.float64),
            missing_right=feature.number(5, "b", 0) == MISSING_AS_LARGEST,
        )


@dataclass(frozen=True)
class ModelBlob:
    """The parts of a serialised model that axil uses."""

    trees: Table
    info: dict[str, str]  #: metadata, settings among them
    encoding_tables: list[Table]  #: of the counts by which predictions encode categories

    @cached_property
    def n_outputs(self) -> int:
        """Return the number of outputs, K."""
        return self.trees.integer(0)

    @cached_property
    def splits(self) -> bytes:
        """Return the splits of all trees, which tell models apart."""
        return b"".join(
            self.trees.numbers(field, kind).tobytes()
            for field, kind in ((1, "<i4"), (2, "<i4"), (10, "<u4"))
        )

    @cached_property
    def has_nested_trees(self) -> bool:
        """Return whether each node has a split of its own, rather than each level of a tree."""
        return self.trees.length(10) > 0

    @cached_property
    def depths(self) -> NDArray[np.int64]:
        """Return the number of splits of each symmetric tree, (T,)."""
        return self.trees.numbers(2, "<i4").astype(np.int64)

    @cached_property
    def split_numbers(self) -> NDArray[np.int64]:
        """Return the split of each node, or of each level of symmetric trees, tree after tree.

        Splits are numbered as in `split_features`.
        """
        return self.trees.numbers(1, "<i4").astype(np.int64)

    @cached_property
    def split_features(self) -> NDArray[np.int64]:
        """Return the feature of numbers of each split of symmetric trees; -1 for other splits.

        Splits are numbered by the borders of these features, feature after feature, and then by
        those of other kinds.
        """
        features = self.number_features
        feature_of_border = np.repeat(
            [feature.number for feature in features], [len(f.borders) for f in features]
        )
        split = np.minimum(self.split_numbers, len(feature_of_border))
        return np.asarray(np.append(feature_of_border, -1)[split], dtype=np.int64)

    @cached_property
    def number_features(self) -> list[NumberFeature]:
        """Return the numeric columns, including those without borders."""
        return [NumberFeature.of(feature) for feature in self.trees.tables(5)]

    @cached_property
    def category_columns(self) -> list[tuple[int, int]]:
        """Return the categorical columns in use: their numbers among these and among all."""
        return [
            (feature.integer(0), feature.integer(1))
            for feature in self.trees.tables(4)
            if feature.number(3, "b", 1)
        ]

    @cached_property
    def one_hot_values(self) -> list[tuple[int, int]]:
        """Return the tests for single categories: number of the column of categories, and hash."""
        values = []
        for feature in self.trees.tables(6):
            values += [(feature.integer(0), value) for value in feature.numbers(1, "<i4").tolist()]
        return values

    @cached_property
    def leaf_values(self) -> FloatArray:
        """Return the values of all leaves, (L * K,), the outputs of a leaf side by side."""
        return self.trees.numbers(LEAF_VALUES, "<f8")

    @cached_property
    def leaf_weights(self) -> FloatArray:
        """Return the total weights of the leaves, (L,); empty if an export lost them."""
        return self.trees.numbers(LEAF_WEIGHTS, "<f8")

    @cached_property
    def scale(self) -> float:
        """Return the factor of the sum of leaf values in a prediction."""
        return self.trees.number(14, "d", 1.0)

    @cached_property
    def bias(self) -> FloatArray:
        """Return the constant of predictions, (K,)."""
        bias_of_each = self.trees.numbers(16, "<f8")
        if len(bias_of_each):
            return bias_of_each
        return np.full(self.n_outputs, self.trees.number(15, "d", 0.0))

    def features(self, kind: str) -> int:
        """Count the features of a kind: "target statistics" or "texts and embeddings"."""
        return self.trees.length({"target statistics": 7, "texts and embeddings": 13}[kind])

    @cached_property
    def present_classes(self) -> list[int]:
        """Return the positions, in the list of classes, of the classes that the data had.

        Only these classes have outputs.
        """
        class_params = json.loads(self.info.get("class_params") or "{}")
        return [int(place) for place in class_params.get("class_to_label", [])]

    @cached_property
    def settings(self) -> list[dict[str, Any]]:
        """Return the settings of the fits that made the model, in order (init_model).

        The list is empty if the model does not keep them, as a sum of models does not.
        """
        settings = []
        key = "params"
        while self.info.get(key):
            settings.append(json.loads(self.info[key]))
            key = "initModel:" + key
        return settings[::-1]


def parse(blob: bytes) -> ModelBlob:
    """Return the model in these bytes."""
    if blob[:4] != b"CBM1":
        raise InputError(
            "This CatBoost model does not serialise to the binary format that axil reads (CBM1). "
            "Pass one that CatBoost fitted."
        )
    data = blob[HEAD:]
    core = Table(data, int(struct.unpack_from("<I", data)[0]))
    info = {pair.text(0): pair.text(1) for pair in core.tables(2)}
    tables = []
    if core.texts(3)[:1] == [ENCODINGS]:
        model_size = int(struct.unpack_from("<I", blob, 4)[0])
        tables = _tables_after_model(data[model_size:])
    return ModelBlob(core.table(1), info, tables)


def _tables_after_model(data: bytes) -> list[Table]:
    """Return the tables that follow the model, each after its size."""
    (n_tables,) = struct.unpack_from("<I", data)
    place = 4
    tables = []
    for _ in range(n_tables):
        (size,) = struct.unpack_from("<I", data, place)
        content = data[place + 4 : place + 4 + size]
        tables.append(Table(content, int(struct.unpack_from("<I", content)[0])))
        place += 4 + size
    return tables
