"""A prepared explainer on disk: one .npz of plain arrays with a JSON header, never pickle."""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from axil.errors import InputError
from axil.structure import Coefficients, Regularisation, Structure

FORMAT = "axil-explainer"
VERSION = 2


def save(
    path: Any, header: dict[str, Any], structures: list[Structure], targets: NDArray[Any], index: NDArray[Any]
) -> None:
    """Write the file whole or not at all: it takes its name only once it is complete."""
    arrays = {"targets": targets, "index": plain_labels(index)}
    for i, structure in enumerate(structures):
        arrays |= {f"{i}.{name}": array for name, array in _arrays(structure).items()}
    header = {"format": FORMAT, "version": VERSION, "structures": len(structures), **header}
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    path = Path(path)
    handle, name = tempfile.mkstemp(prefix=path.name, suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def load(path: Any) -> tuple[dict[str, Any], list[Structure], NDArray[Any], NDArray[Any]]:
    """Header, structures, targets and row labels of a saved explainer; a damaged or foreign file is an InputError."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays["header"].tobytes())
        if header["format"] != FORMAT:
            raise ValueError("another format")
        if header["version"] != VERSION:
            raise InputError(
                f"{path} has version {header['version']} of the format, this axil reads version {VERSION}. Save it again."
            )
        targets, index = arrays["targets"], arrays["index"]
        structures = [_structure(arrays, f"{i}.") for i in range(header["structures"])]
        if targets.ndim != 2 or {len(index), *(s.n_rows for s in structures)} != {len(targets)}:
            raise ValueError("arrays of different lengths")
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except (KeyError, TypeError, ValueError, AttributeError, EOFError, OSError, BadZipFile, zlib.error) as error:
        raise InputError(
            f"{path} is not a complete axil explainer: it is damaged, cut short or of another kind. "
            "Make it anew with Explainer.save."
        ) from error
    return header, structures, targets, index


def _arrays(structure: Structure) -> dict[str, NDArray[Any]]:
    """The structure's arrays by name, its parts flattened."""
    arrays = {f.name: getattr(structure, f.name) for f in fields(Structure) if f.init}
    for t, matrix in enumerate(arrays.pop("mixing") or ()):
        arrays[f"mixing.{t}"] = matrix
    coefficients = arrays.pop("coefficients")
    if coefficients is not None:
        arrays |= {"omega": coefficients.omega, "beta": coefficients.beta}
    regularisation = arrays.pop("regularisation")
    if regularisation is not None:
        arrays |= {"l2": regularisation.l2, "steps": regularisation.steps, "l2_by_weight": regularisation.by_weight}
    return {name: array for name, array in arrays.items() if array is not None}


def _structure(arrays: dict[str, NDArray[Any]], prefix: str) -> Structure:
    """The inverse of `_arrays`."""
    own = {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
    mixing = tuple(own.pop(f"mixing.{t}") for t in range(sum(name.startswith("mixing.") for name in own)))
    omega, beta = own.pop("omega", None), own.pop("beta", None)
    coefficients = None if omega is None or beta is None else Coefficients(omega, beta)
    regularisation = Regularisation(own.pop("l2"), own.pop("steps"), bool(own.pop("l2_by_weight")))
    parts: dict[str, Any] = {"base": None, **own}
    return Structure(**parts, mixing=mixing or None, coefficients=coefficients, regularisation=regularisation)


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
