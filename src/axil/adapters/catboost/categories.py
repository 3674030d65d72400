"""Categories as CatBoost tells them apart: by 32 bits of the CityHash64 of their text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from axil.errors import InputError
from axil.kernels.cpu import number_keys

Words = NDArray[np.uint64]

K0, K1, K2, K3 = (
    np.uint64(k)
    for k in (0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F, 0xC949D7C7509E6557)
)
JOINED = np.uint64(0x9DDFEA08EB382D69)  # of two words made one
COMBINED = np.uint64(
    0x4906BA494954CB65
)  # of categories made a combination (CalcHash, catboost/libs/model/hash.h)


@dataclass(frozen=True)
class Categories:
    """One column of categories."""

    codes: NDArray[np.uint32]  #: (N,) numbers of the different hashes
    hashes: NDArray[np.uint32]  #: each of them

    @classmethod
    def of(cls, values: NDArray[Any]) -> Categories:
        """The column with these values: texts as they are, all else as whole numbers."""
        if values.dtype.kind in "biu":
            codes, n = number_keys(values.astype(np.uint64))
            found = np.empty(n, dtype=values.dtype)
            found[codes] = values
            labels: list[Any] = found.tolist()
        else:
            seen: dict[Any, int] = {}
            codes = np.fromiter(
                (seen.setdefault(label, len(seen)) for label in values.tolist()),
                np.int64,
                len(values),
            )
            labels = list(seen)
            if any(label is None or label != label for label in labels):
                raise InputError(
                    "A column of categories has missing values, which CatBoost does not take: give them the name that they had "
                    "in the fit."
                )
        own, number = np.unique(hashes([_text(label) for label in labels]), return_inverse=True)
        return cls(number.reshape(-1).astype(np.uint32)[codes], own)

    def words(self, rows: NDArray[np.int64]) -> Words:
        """Hashes of some rows, with the sign that CatBoost gives them when it combines them."""
        return np.asarray(
            self.hashes.view(np.int32).astype(np.int64).view(np.uint64)[self.codes[rows]]
        )


def _text(label: Any) -> bytes:
    if isinstance(label, bytes):
        return label
    return label.encode() if isinstance(label, str) else str(int(label)).encode()


def column(X: Any, i: int) -> NDArray[Any]:
    """(N,): a column of categories, in any container."""
    if bool(sparse.issparse(X)):
        return np.asarray(sparse.csc_matrix(X)[:, [i]].toarray()[:, 0]).astype(np.int64)
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return np.asarray(np.asarray(X)[:, i])
    values = frame.get_column(frame.columns[i])  # names may be numbers
    return np.asarray(
        values.to_numpy() if values.dtype.is_integer() else np.array(values.to_list(), dtype=object)
    )


def combined(parts: list[Words]) -> Words:
    """(N,): the hash of a combination of categories and tests."""
    found = np.zeros_like(parts[0])
    for part in parts:
        found = COMBINED * (found + COMBINED * part)
    return found


def hashes(texts: list[bytes]) -> NDArray[np.uint32]:
    """The lower half of the CityHash64, version 1, of each text; texts of one length together."""
    sizes = np.array([len(text) for text in texts], dtype=np.int64)
    found = np.empty(len(texts), dtype=np.uint64)
    for size in np.unique(sizes).tolist():
        chosen = np.flatnonzero(sizes == size)
        table = np.frombuffer(b"".join(texts[i] for i in chosen), np.uint8).reshape(
            len(chosen), size
        )
        found[chosen] = _Texts(table).hash()
    return (found & np.uint64(0xFFFFFFFF)).astype(np.uint32)


def _turned(x: Words, by: int) -> Words:
    return (x >> np.uint64(by)) | (x << np.uint64(64 - by))


def _mixed(x: Words) -> Words:
    return x ^ (x >> np.uint64(47))


def _joined(u: Words, v: Words) -> Words:
    a = _mixed((u ^ v) * JOINED)
    return _mixed((v ^ a) * JOINED) * JOINED


class _Texts:
    """Texts of one length, (n, length) bytes."""

    def __init__(self, table: NDArray[np.uint8]):
        self._table, self._length = table, table.shape[1]

    def _word(self, start: int, size: int = 8) -> Words:
        """(n,): ``size`` bytes from ``start`` on as a number; a negative start counts from the end."""
        start = start if start >= 0 else self._length + start
        own = np.ascontiguousarray(self._table[:, start : start + size])
        return own.view(f"<u{size}")[:, 0].astype(np.uint64)

    def hash(self) -> Words:
        """(n,)."""
        if self._length <= 16:
            return self._up_to_16()
        if self._length <= 32:
            return self._up_to_32()
        return self._up_to_64() if self._length <= 64 else self._longer()

    def _up_to_16(self) -> Words:
        n = np.uint64(self._length)
        if self._length > 8:
            a, b = self._word(0), self._word(-8)
            return _joined(a, _turned(b + n, self._length)) ^ b
        if self._length >= 4:
            return _joined(n + (self._word(0, 4) << np.uint64(3)), self._word(-4, 4))
        if not self._length:
            return np.full(len(self._table), K2)
        first, middle, last = (
            self._table[:, i].astype(np.uint64) for i in (0, self._length >> 1, self._length - 1)
        )
        y, z = first + (middle << np.uint64(8)), n + (last << np.uint64(2))
        return _mixed(y * K2 ^ z * K3) * K2

    def _up_to_32(self) -> Words:
        a, b, c, d = self._word(0) * K1, self._word(8), self._word(-8) * K2, self._word(-16) * K0
        u = _turned(a - b, 43) + _turned(c, 30) + d
        return _joined(u, a + _turned(b ^ K3, 20) - c + np.uint64(self._length))

    def _up_to_64(self) -> Words:
        word, n = self._word, np.uint64(self._length)

        def half(a: Words, z: Words, second: Words, third: Words) -> tuple[Words, Words]:
            b, c = _turned(a + z, 52), _turned(a, 37)
            a = a + second
            c = c + _turned(a, 7)
            a = a + third
            return a + z, b + _turned(a, 31) + c

        first, second = half(word(0) + (n + word(-16)) * K0, word(24), word(8), word(16))
        third, fourth = half(word(16) + word(-32), word(-8), word(-24), word(-16))
        found = _mixed((first + fourth) * K2 + (third + second) * K0)
        return _mixed(found * K0 + second) * K2

    def _weak(self, start: int, a: Words, b: Words) -> tuple[Words, Words]:
        w, x, y, z = (self._word(start + 8 * i) for i in range(4))
        a = a + w
        b, c = _turned(b + a + z, 21), a
        a = a + x + y
        return a + z, b + _turned(a, 44) + c

    def _longer(self) -> Words:
        n, word = np.full(len(self._table), self._length, dtype=np.uint64), self._word
        x, y, z = word(0), word(-16) ^ K1, word(-56) ^ K0
        v = self._weak(self._length - 64, n, y)
        w = self._weak(self._length - 32, n * K1, np.full_like(n, K0))
        z = z + _mixed(v[1]) * K1
        x, y = _turned(z + x, 39) * K1, _turned(y, 33) * K1
        for start in range(0, (self._length - 1) & ~63, 64):
            x = _turned(x + y + v[0] + word(start + 16), 37) * K1
            y = _turned(y + v[1] + word(start + 48), 42) * K1
            x, y = x ^ w[1], y ^ v[0]
            z = _turned(z ^ w[0], 33)
            v = self._weak(start, v[1] * K1, x + w[0])
            w = self._weak(start + 32, z + w[1], y)
            x, z = z, x
        return _joined(_joined(v[0], w[0]) + _mixed(y) * K1 + z, _joined(v[1], w[1]) + x)
