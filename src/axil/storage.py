"""A prepared explainer on disk: one .npz of plain arrays with a JSON header, never pickle."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.errors import InputError
from axil.structure import Structure

FORMAT = "axil-explainer"
VERSION = 1


def save(path: Any, header: dict[str, Any], structure: Structure, targets: NDArray[Any], index: NDArray[Any]) -> None:
    """Write the file whole or not at all: it takes its name only once it is complete."""
    arrays = {f.name: getattr(structure, f.name) for f in fields(Structure) if f.init and f.name != "mixing"}
    arrays = {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}
    arrays |= {f"mixing_{t}": matrix for t, matrix in enumerate(structure.mixing or ())}
    arrays |= {"targets": targets, "index": plain_labels(index)}
    header = {"format": FORMAT, "version": VERSION, "base": structure.base, **header}
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    path = Path(path)
    handle, name = tempfile.mkstemp(prefix=path.name, suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **arrays)
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def load(path: Any) -> tuple[dict[str, Any], Structure, NDArray[Any], NDArray[Any]]:
    """Header, structure, targets and row labels of a saved explainer; a damaged or foreign file is an InputError."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop("header").tobytes())
        if header["format"] != FORMAT:
            raise KeyError(header["format"])
        if header["version"] != VERSION:
            raise InputError(
                f"{path} has version {header['version']} of the format, this axil reads version {VERSION}. Save it again."
            )
        targets, index = arrays.pop("targets"), arrays.pop("index")
        mixing = tuple(arrays.pop(f"mixing_{t}") for t in range(sum(name.startswith("mixing_") for name in arrays)))
        structure = Structure(base=header.pop("base"), mixing=mixing or None, **arrays)
        if structure.leaves.shape != (structure.n_trees, len(targets)) or len(index) != len(targets):
            raise ValueError("arrays of different lengths")
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        EOFError,
        OSError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{path} is not a complete axil explainer: it is damaged, cut short or of another kind. "
            "Make it anew with Explainer.save."
        ) from error
    return header, structure, targets, index


def plain_labels(index: NDArray[Any]) -> NDArray[Any]:
    """Labels as an array that needs no pickle: numbers, dates and text as they are."""
    if index.dtype != object:
        return index
    plain = np.array(list(index))
    if plain.shape != index.shape or plain.dtype == object or not all(isinstance(label, str) for label in index):
        found = type(next(label for label in index if not isinstance(label, str))).__name__
        raise InputError(
            f"The training rows' labels are of type {found}, which cannot be saved without pickle. "
            "Give X_train an index of numbers, dates or text."
        )
    return plain


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
