"""Categories as CatBoost tells them apart: by 32 bits of the CityHash64 of their text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.aliases import ForeignObject
from axil.arrays import AnyArray, LeafArray
from axil.errors import InputError
from axil.kernels.cpu import number_keys

Words = NDArray[np.uint64]

K0 = np.uint64(0xC3A5C85C97CB3127)
K1 = np.uint64(0xB492B66FBE98F273)
K2 = np.uint64(0x9AE16A3B2F90404F)
K3 = np.uint64(0xC949D7C7509E6557)
#: Multiplier that makes one word of two.
PAIR_MULTIPLIER = np.uint64(0x9DDFEA08EB382D69)
#: Multiplier that combines categories (CalcHash, catboost/libs/model/hash.h).
COMBINATION_MULTIPLIER = np.uint64(0x4906BA494954CB65)


@dataclass(frozen=True)
class Categories:
    """One column of categories."""

    codes: NDArray[np.uint32]  #: (N,) which of the hashes each row has
    hashes: NDArray[np.uint32]  #: the different hashes

    @classmethod
    def of(cls, values: AnyArray) -> Categories:
        """Return the column of these values: texts unchanged, other values as whole numbers."""
        if values.dtype.kind in "biu":
            value_codes, labels = _numbered_integers(values)
        else:
            value_codes, labels = _numbered_objects(values)
        texts = [_text(label) for label in labels]
        distinct_hashes, hash_codes = np.unique(hashes(texts), return_inverse=True)
        return cls(hash_codes.reshape(-1).astype(np.uint32)[value_codes], distinct_hashes)

    def words(self, rows: NDArray[np.int64]) -> Words:
        """Return the hashes of some rows, signed as CatBoost combines them."""
        signed = self.hashes.view(np.int32).astype(np.int64).view(np.uint64)
        return np.asarray(signed[self.codes[rows]])


def _numbered_integers(values: AnyArray) -> tuple[LeafArray, list[ForeignObject]]:
    """Return the code of each value, and the value that each code stands for."""
    codes, n_labels = number_keys(values.astype(np.uint64))
    labels = np.empty(n_labels, dtype=values.dtype)
    labels[codes] = values
    return codes, labels.tolist()


def _numbered_objects(values: AnyArray) -> tuple[LeafArray, list[ForeignObject]]:
    """Return the code of each value, and the value that each code stands for."""
    code_of: dict[Any, int] = {}
    numbered = (code_of.setdefault(label, len(code_of)) for label in values.tolist())
    codes = np.fromiter(numbered, np.int64, len(values))
    labels = list(code_of)
    if any(label is None or label != label for label in labels):
        raise InputError(
            "A column of categories has missing values, which CatBoost does not take: give them "
            "the name that they had in the fit."
        )
    return codes, labels


def _text(label: ForeignObject) -> bytes:
    if isinstance(label, bytes):
        return label
    if isinstance(label, str):
        return label.encode()
    return str(int(label)).encode()


def combined(parts: list[Words]) -> Words:
    """Return the hash of a combination of categories and tests, (N,)."""
    total = np.zeros_like(parts[0])
    for words in parts:
        total = COMBINATION_MULTIPLIER * (total + COMBINATION_MULTIPLIER * words)
    return total


def hashes(texts: list[bytes]) -> NDArray[np.uint32]:
    """Return the lower half of the CityHash64, version 1, of each text."""
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    words = np.empty(len(texts), dtype=np.uint64)
    for length in np.unique(lengths).tolist():
        positions = np.flatnonzero(lengths == length)
        joined = b"".join(texts[i] for i in positions)
        table = np.frombuffer(joined, np.uint8).reshape(len(positions), length)
        words[positions] = _EqualLengthTexts(table).hash()
    return (words & np.uint64(0xFFFFFFFF)).astype(np.uint32)


def _rotate(x: Words, by: int) -> Words:
    return (x >> np.uint64(by)) | (x << np.uint64(64 - by))


def _shift_mix(x: Words) -> Words:
    return x ^ (x >> np.uint64(47))


def _hash_pair(u: Words, v: Words) -> Words:
    a = _shift_mix((u ^ v) * PAIR_MULTIPLIER)
    return _shift_mix((v ^ a) * PAIR_MULTIPLIER) * PAIR_MULTIPLIER


class _EqualLengthTexts:
    """CityHash64 of texts of one length, (n, length) bytes; variables are named as in city.cc."""

    def __init__(self, table: NDArray[np.uint8]):
        self._table = table
        self._length = table.shape[1]

    def _word(self, start: int, size: int = 8) -> Words:
        """Return ``size`` bytes as a number, (n,); a negative start counts from the end."""
        if start < 0:
            start += self._length
        columns = np.ascontiguousarray(self._table[:, start : start + size])
        return columns.view(f"<u{size}")[:, 0].astype(np.uint64)

    def _byte(self, position: int) -> Words:
        return self._table[:, position].astype(np.uint64)

    def hash(self) -> Words:
        """Return the hash of each text, (n,)."""
        if self._length <= 16:
            return self._up_to_16()
        if self._length <= 32:
            return self._up_to_32()
        if self._length <= 64:
            return self._up_to_64()
        return self._longer()

    def _up_to_16(self) -> Words:
        n = np.uint64(self._length)
        if self._length > 8:
            a = self._word(0)
            b = self._word(-8)
            return _hash_pair(a, _rotate(b + n, self._length)) ^ b
        if self._length >= 4:
            return _hash_pair(n + (self._word(0, 4) << np.uint64(3)), self._word(-4, 4))
        if not self._length:
            return np.full(len(self._table), K2)
        y = self._byte(0) + (self._byte(self._length >> 1) << np.uint64(8))
        z = n + (self._byte(self._length - 1) << np.uint64(2))
        return _shift_mix(y * K2 ^ z * K3) * K2

    def _up_to_32(self) -> Words:
        a = self._word(0) * K1
        b = self._word(8)
        c = self._word(-8) * K2
        d = self._word(-16) * K0
        u = _rotate(a - b, 43) + _rotate(c, 30) + d
        return _hash_pair(u, a + _rotate(b ^ K3, 20) - c + np.uint64(self._length))

    def _up_to_64(self) -> Words:
        word = self._word
        start = word(0) + (np.uint64(self._length) + word(-16)) * K0
        vf, vs = _half(start, word(24), word(8), word(16))
        wf, ws = _half(word(16) + word(-32), word(-8), word(-24), word(-16))
        r = _shift_mix((vf + ws) * K2 + (wf + vs) * K0)
        return _shift_mix(r * K0 + vs) * K2

    def _weak(self, start: int, a: Words, b: Words) -> tuple[Words, Words]:
        w, x, y, z = (self._word(start + 8 * i) for i in range(4))
        a = a + w
        b = _rotate(b + a + z, 21)
        c = a
        a = a + x + y
        return a + z, b + _rotate(a, 44) + c

    def _longer(self) -> Words:
        word = self._word
        n = np.full(len(self._table), self._length, dtype=np.uint64)
        x = word(0)
        y = word(-16) ^ K1
        z = word(-56) ^ K0
        v = self._weak(self._length - 64, n, y)
        w = self._weak(self._length - 32, n * K1, np.full_like(n, K0))
        z = z + _shift_mix(v[1]) * K1
        x = _rotate(z + x, 39) * K1
        y = _rotate(y, 33) * K1
        for start in range(0, (self._length - 1) & ~63, 64):
            x = _rotate(x + y + v[0] + word(start + 16), 37) * K1
            y = _rotate(y + v[1] + word(start + 48), 42) * K1
            x = x ^ w[1]
            y = y ^ v[0]
            z = _rotate(z ^ w[0], 33)
            v = self._weak(start, v[1] * K1, x + w[0])
            w = self._weak(start + 32, z + w[1], y)
            x, z = z, x
        return _hash_pair(
            _hash_pair(v[0], w[0]) + _shift_mix(y) * K1 + z, _hash_pair(v[1], w[1]) + x
        )


def _half(a: Words, z: Words, second: Words, third: Words) -> tuple[Words, Words]:
    """Return the two words of a hash of 32 bytes that begin with ``a`` and end with ``z``."""
    b = _rotate(a + z, 52)
    c = _rotate(a, 37)
    a = a + second
    c = c + _rotate(a, 7)
    a = a + third
    return a + z, b + _rotate(a, 31) + c
