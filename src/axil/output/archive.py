"""Arrays and a JSON header in one .npz file, never pickle.

A file may come from anywhere, so nothing in it is trusted: sizes are looked up before memory is
taken, and members are what NumPy itself writes, uncompressed. The header has a digest of all
arrays: a changed entry, of whatever array, is seen at once, so the checksums of the members are not
computed besides. It is no signature, as who changes an entry may change the digest too; so readers
compare what the arrays say of each other besides. With a key the header has a signature,
HMAC-SHA256 over the same bytes, which only who knows the key can make.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from axil.arrays import AnyArray
from axil.errors import InputError
from axil.inputs import as_file, as_path
from axil.machine.atomic import atomic
from axil.machine.memory import Budget

FORMAT = "axil-explainer"
VERSION = 7
_MEMBER = re.compile(r"[a-z0-9_.]+\.npy")
# the first of the 30 bytes before each member's name; the last four say how far its bytes are
# beyond
_LOCAL = b"PK\3\4"


@dataclass(frozen=True)
class Archive:
    """A checked file: its header, its row labels, and all other arrays by name."""

    path: Path
    header: dict[str, Any]
    index: AnyArray
    arrays: dict[str, AnyArray]

    @property
    def kind(self) -> Any:
        """The kind of the explainer: "exact" or "additive"."""
        return self.header.get("kind")

    def damaged(self, error: Exception) -> InputError:
        """Return the error about contents that do not fit together."""
        return damaged(self.path, error)


def write(
    path: Any,
    header: dict[str, Any],
    index: AnyArray,
    arrays: dict[str, AnyArray],
    key: bytes | None = None,
) -> None:
    """Write the whole file, signed if there is a key.

    It has its final name only after it is complete.
    """
    target = as_file(path)
    contents = {**arrays, **_label_arrays(index)}
    stated = json.loads(
        json.dumps({"format": FORMAT, "version": VERSION, **header})
    )  # as it will be read
    seal = {"digest": digest(stated, contents)}
    if key is not None:
        seal["signature"] = signature(stated, contents, as_key(key))
    packed = json.dumps(stated | seal).encode()
    whole = {**contents, "header": np.frombuffer(packed, dtype=np.uint8)}
    with atomic(target) as part, part.open("wb") as file:
        np.savez(file, **whole)  # type: ignore[arg-type]


def read(path: Any, budget: Budget, key: bytes | None = None) -> Archive:
    """Return a saved explainer; raise InputError for another file.

    With a key the file must be signed with it, otherwise not signed at all.
    """
    path = as_path(path)
    if key is None:
        key = None
    else:
        key = as_key(key)
    if not path.exists():
        raise InputError(
            f"There is no file {path}. Check the path; explainer.save(path) writes one."
        )
    if not path.is_file():
        raise InputError(f"{path} is not a file; expected one that explainer.save wrote.")
    try:
        arrays = _read(path, budget)
        header = json.loads(arrays.pop("header").tobytes())
        if header["format"] != FORMAT:
            raise ValueError("another format")
        if header["version"] != VERSION:
            raise _other_version(path, header["version"])
        stated_digest = header.pop("digest", None)
        stated_signature = header.pop("signature", None)
        _check_signature(path, header, arrays, stated_signature, key)
        if stated_digest != digest(header, arrays):
            raise ValueError("an entry that was changed since the file was written")
        return Archive(path, header, _labels(arrays), arrays)
    except (InputError, MemoryError):
        raise
    except PermissionError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}. Allow it, or choose another file."
        ) from error
    except (
        Exception
    ) as error:  # a damaged file can raise anything in the parsers of zip, npy and JSON
        raise damaged(path, error) from error


def _other_version(path: Path, version: Any) -> InputError:
    """Return the error about a file of an older or newer format."""
    newer = isinstance(version, int) and version > VERSION
    if newer:
        advice = (
            "Load it with the newer axil that wrote it, or make the explainer again and save it."
        )
    else:
        advice = (
            "An older axil wrote it: make the explainer again from the model and its training "
            "data, and save it."
        )
    return InputError(
        f"{path} has version {version} of the format, this axil reads version {VERSION}. {advice}"
    )


def as_key(key: Any) -> bytes:
    """Return a key for signatures after checking it."""
    if not isinstance(key, (bytes, bytearray)) or not key:
        if isinstance(key, (bytes, bytearray)):
            kind = "empty"
        else:
            kind = f"a {type(key).__name__}"
        raise InputError(f"key is {kind}; expected bytes, such as 32 of secrets.token_bytes(32).")
    return bytes(key)


def digest(header: dict[str, Any], arrays: dict[str, AnyArray]) -> str:
    """Return the SHA-256 of the header and of every array: its name, type, shape and bytes."""
    return _fed(hashlib.sha256(), header, arrays)


def signature(header: dict[str, Any], arrays: dict[str, AnyArray], key: bytes) -> str:
    """Return the HMAC-SHA256 of everything that `digest` covers."""
    return _fed(hmac.new(key, digestmod=hashlib.sha256), header, arrays)


def _fed(state: Any, header: dict[str, Any], arrays: dict[str, AnyArray]) -> str:
    """Return the hexadecimal digest of a hash or HMAC that has read the header and every array."""
    state.update(json.dumps(header, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        state.update(f"{name} {array.dtype.str} {array.shape}".encode())
        state.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
    return str(state.hexdigest())


def _check_signature(
    path: Path,
    header: dict[str, Any],
    arrays: dict[str, AnyArray],
    stated: Any,
    key: bytes | None,
) -> None:
    """Raise unless the file is signed with the key; without a key, unless it is not signed."""
    if key is None and stated is None:
        return
    if key is None:
        raise InputError(
            f"{path} is signed. Pass the key that it was saved with: axil.load(path, model, "
            "key=key)."
        )
    if stated is None:
        raise InputError(
            f"{path} is not signed, so the key says nothing about it. Load it without key=, if you "
            "trust where it comes from; or save it again with explainer.save(path, key=key)."
        )
    expected = signature(header, arrays, key)
    if not isinstance(stated, str) or not hmac.compare_digest(stated.encode(), expected.encode()):
        raise InputError(
            f"The signature of {path} does not belong to this key: it was signed with another one, "
            "or changed since. Do not use the file unless you know why."
        )


def damaged(path: Path, error: Exception) -> InputError:
    """Return the error about a file whose contents do not fit together."""
    if str(error):
        reason = f"{type(error).__name__}: {error}"
    else:
        reason = type(error).__name__
    return InputError(
        f"{path} is not a complete axil explainer: it is damaged, cut short or of another kind "
        f"({reason}). Make it again with explainer.save."
    )


def _read(path: Path, budget: Budget) -> dict[str, AnyArray]:
    """Return all arrays by name.

    First check that their names and sizes are such as `save` writes, and that they fit into the
    budget.
    """
    with path.open("rb") as stream, zipfile.ZipFile(stream) as file:
        members = file.infolist()
        for member in members:
            # Members are stored as they are: a small file cannot unfold into a large one.
            plain = (
                member.compress_type == zipfile.ZIP_STORED
                and member.file_size == member.compress_size
            )
            if not plain or member.flag_bits & ~0x800 or _MEMBER.fullmatch(member.filename) is None:
                raise ValueError(
                    f"a member that explainer.save does not write: {member.filename!r}"
                )
        if len({member.filename for member in members}) < len(members):
            raise ValueError("two members of one name")
        size = sum(member.file_size for member in members)
        if size > path.stat().st_size:
            raise ValueError("members that overlap")
        labels = sum(
            8 * member.file_size for member in members if member.filename == "index.ends.npy"
        )  # as objects of Python
        budget.require(size + labels, f"The explainer in {path}", "Raise memory_limit.")
        return {member.filename.removesuffix(".npy"): _array(stream, member) for member in members}


def _array(stream: io.BufferedReader, member: zipfile.ZipInfo) -> AnyArray:
    """Return one array after checking that its shape fits the size of its member."""
    stream.seek(member.header_offset)
    local = stream.read(30)
    if local[:4] != _LOCAL:
        raise ValueError(f"{member.filename} is not where it should be")
    start = stream.seek(
        int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:], "little"), 1
    )
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            read = np.lib.format.read_array_header_1_0
        else:
            read = np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(stream)
    except Exception as error:  # a parser of Python's own literals
        raise ValueError(f"no header of an array in {member.filename}") from error
    count = 1
    for length in shape:
        count *= max(length, 0)
    if dtype.kind not in "buifMm" or not dtype.isnative or not dtype.itemsize:
        raise ValueError(f"{member.filename} is of type {dtype}")
    if count * dtype.itemsize != member.file_size - (stream.tell() - start):
        raise ValueError(f"{member.filename} has shape {shape} in {member.file_size} bytes")
    flat = np.empty(count * dtype.itemsize, dtype=np.uint8)
    if stream.readinto(flat.data) != len(flat):
        raise ValueError(f"{member.filename} is cut short")
    return flat.view(dtype).reshape(shape, order="F" if fortran else "C")


def _label_arrays(index: AnyArray) -> dict[str, AnyArray]:
    """Return labels as arrays that need no pickle.

    Text becomes UTF-8 with the end of each label; other types stay as they are.
    """
    if plain_labels(index).dtype.kind != "U":
        return {"index": index}
    texts = [str(label).encode("utf-8", "surrogatepass") for label in index]
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    return {"index": np.frombuffer(b"".join(texts), dtype=np.uint8), "index.ends": ends}


def _labels(arrays: dict[str, AnyArray]) -> AnyArray:
    """Remove the arrays of `_label_arrays` from all arrays, and return the labels."""
    index = arrays.pop("index")
    ends = arrays.pop("index.ends", None)
    if ends is None:
        return index
    if (
        index.dtype != np.uint8
        or index.ndim != 1
        or ends.dtype != np.int64
        or ends.ndim != 1
        or not len(ends)
    ):
        raise ValueError(f"labels of type {index.dtype} and {ends.dtype}")
    if ends[0] < 0 or (ends[1:] < ends[:-1]).any() or ends[-1] != len(index):
        raise ValueError("labels that do not follow one another")
    text = index.tobytes()
    start = 0
    labels = np.empty(len(ends), dtype=object)
    for i, end in enumerate(ends.tolist()):
        labels[i], start = text[start:end].decode("utf-8", "surrogatepass"), end
    return labels


def plain_labels(index: AnyArray) -> AnyArray:
    """Return labels as an array that needs no pickle: numbers, dates and text as they are."""
    if index.dtype != object:
        return index
    plain = np.array(list(index))
    if (
        plain.shape != index.shape
        or plain.dtype == object
        or not all(isinstance(label, str) for label in index)
    ):
        kind = type(next((label for label in index if not isinstance(label, str)), None)).__name__
        raise InputError(
            f"The training rows' labels are of type {kind}, which cannot be saved without pickle. "
            "Give X_train an index of numbers, dates or text."
        )
    return plain
