"""The contents of a CatBoost model, read from the bytes that pickle and save_model keep: "CBM1", a size, a FlatBuffer.

CatBoost's Python functions hide parts of it: whether splits use target statistics, the leaf weights of several outputs
and the settings of the models that training went on from. Fields and their order: catboost/libs/model/flatbuffers/model.fbs.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray
from axil.errors import InputError

HEAD = 8  # bytes before the FlatBuffer
LEAF_VALUES, LEAF_WEIGHTS = 8, 9  # fields of the trees


ENCODINGS = "static_provider_v1"  # the part of a model that has the tables of encodings


class Table:
    """A table of a FlatBuffer; fields are numbered from 0 in the order of the schema."""

    def __init__(self, data: bytes, start: int):
        self._data = data
        self._start = start

    def _place(self, field: int) -> int:
        """Where the field is, 0 if the table does not have it."""
        fields = self._start - int(struct.unpack_from("<i", self._data, self._start)[0])
        if 4 + 2 * field >= int(struct.unpack_from("<H", self._data, fields)[0]):
            return 0
        offset = int(struct.unpack_from("<H", self._data, fields + 4 + 2 * field)[0])
        return self._start + offset if offset else 0

    def number(self, field: int, kind: str, default: float) -> float:
        """A scalar of ``struct`` format ``kind``."""
        place = self._place(field)
        return float(struct.unpack_from("<" + kind, self._data, place)[0]) if place else default

    def integer(self, field: int) -> int:
        """A whole number, 0 where the table does not have it."""
        return int(self.number(field, "i", 0))

    def vector(self, field: int) -> tuple[int, int]:
        """Where the elements of a vector, a string or a table begin, and how many there are."""
        place = self._place(field)
        if not place:
            return 0, 0
        start = place + int(struct.unpack_from("<I", self._data, place)[0])
        return start + 4, int(struct.unpack_from("<I", self._data, start)[0])

    def length(self, field: int) -> int:
        """Length of a vector."""
        return self.vector(field)[1]

    def numbers(self, field: int, dtype: str | np.dtype[Any]) -> NDArray[Any]:
        """A vector of scalars, or of structs of them."""
        start, n = self.vector(field)
        return np.frombuffer(self._data, dtype, n, start)

    def text(self, field: int) -> str:
        """A string."""
        start, n = self.vector(field)
        return self._data[start : start + n].decode()

    def texts(self, field: int) -> list[str]:
        """A vector of strings."""
        start, n = self.vector(field)
        found = []
        for i, offset in enumerate(np.frombuffer(self._data, "<u4", n, start)):
            at = start + 4 * i + int(offset)
            size = int(struct.unpack_from("<I", self._data, at)[0])
            found.append(self._data[at + 4 : at + 4 + size].decode())
        return found

    def table(self, field: int) -> Table:
        """A table inside this one."""
        return Table(self._data, self.vector(field)[0] - 4)

    def tables(self, field: int) -> list[Table]:
        """A vector of tables."""
        start, n = self.vector(field)
        offsets = np.frombuffer(self._data, "<u4", n, start)
        return [Table(self._data, start + 4 * i + int(offset)) for i, offset in enumerate(offsets)]


@dataclass(frozen=True)
class ModelBlob:
    """The parts of a serialised model that axil uses."""

    trees: Table
    info: dict[str, str]  #: metadata, settings among them
    parts: list[Table]  #: tables of the encodings of categories

    @cached_property
    def n_outputs(self) -> int:
        """K."""
        return self.trees.integer(0)

    @cached_property
    def splits(self) -> bytes:
        """The trees' splits, for telling models apart."""
        return b"".join(
            self.trees.numbers(field, kind).tobytes()
            for field, kind in ((1, "<i4"), (2, "<i4"), (10, "<u4"))
        )

    @cached_property
    def depths(self) -> NDArray[np.int64]:
        """(T,): how many splits each symmetric tree has."""
        return self.trees.numbers(2, "<i4").astype(np.int64)

    @cached_property
    def split_numbers(self) -> NDArray[np.int64]:
        """The split of each node, or of each level of symmetric trees, tree after tree; numbered as in `split_features`."""
        return self.trees.numbers(1, "<i4").astype(np.int64)

    @cached_property
    def split_features(self) -> NDArray[np.int64]:
        """The feature, among those of numbers, of each split of symmetric trees, tree after tree; -1 for other kinds.

        Splits are numbered by the borders of these features, feature after feature, and then by those of other kinds.
        """
        features = self.trees.tables(5)
        own = np.repeat(
            [feature.integer(1) for feature in features], [f.length(3) for f in features]
        )
        split = np.minimum(self.split_numbers, len(own))
        return np.asarray(np.append(own, -1)[split], dtype=np.int64)

    @cached_property
    def leaf_values(self) -> FloatArray:
        """(L * K,): of each leaf its outputs."""
        return self.trees.numbers(LEAF_VALUES, "<f8")

    @cached_property
    def leaf_weights(self) -> FloatArray:
        """(L,), or empty: total weights, kept by default and lost by some exports."""
        return self.trees.numbers(LEAF_WEIGHTS, "<f8")

    @cached_property
    def scale(self) -> float:
        """Factor of the sum of leaf values in a prediction."""
        return self.trees.number(14, "d", 1.0)

    @cached_property
    def bias(self) -> FloatArray:
        """(K,): what is added to it."""
        several = self.trees.numbers(16, "<f8")
        return several if len(several) else np.full(self.n_outputs, self.trees.number(15, "d", 0.0))

    def features(self, kind: str) -> int:
        """How many splits use features of this kind: "target statistics" or "texts and embeddings"."""
        return self.trees.length({"target statistics": 7, "texts and embeddings": 13}[kind])

    @cached_property
    def present_classes(self) -> list[int]:
        """Which of the classes that a classifier names were in its data, by their places; those alone have outputs."""
        return [
            int(place)
            for place in json.loads(self.info.get("class_params") or "{}").get("class_to_label", [])
        ]

    @cached_property
    def settings(self) -> list[dict[str, Any]]:
        """Settings of the fits that made the model, in order (init_model); empty: not kept, as of a sum of models."""
        found, key = [], "params"
        while self.info.get(key):
            found.append(json.loads(self.info[key]))
            key = "initModel:" + key
        return found[::-1]


def parse(blob: bytes) -> ModelBlob:
    """The model in these bytes."""
    if blob[:4] != b"CBM1":
        raise InputError(
            "This CatBoost model does not serialise to the binary format that axil reads (CBM1). Pass one that CatBoost fitted."
        )
    data = blob[HEAD:]
    core = Table(data, int(struct.unpack_from("<I", data)[0]))
    info = {pair.text(0): pair.text(1) for pair in core.tables(2)}
    rest = data[int(struct.unpack_from("<I", blob, 4)[0]) :]
    return ModelBlob(core.table(1), info, _parts(rest) if core.texts(3)[:1] == [ENCODINGS] else [])


def _parts(data: bytes) -> list[Table]:
    """The tables that follow the model, each after its size."""
    place, (n,) = 4, struct.unpack_from("<I", data)
    found = []
    for _ in range(n):
        (size,) = struct.unpack_from("<I", data, place)
        own = data[place + 4 : place + 4 + size]
        found.append(Table(own, int(struct.unpack_from("<I", own)[0])))
        place += 4 + size
    return found
