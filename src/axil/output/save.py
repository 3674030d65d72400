"""A prepared explainer on disk: one .npz of plain arrays with a JSON header, never pickle.

A file may come from anywhere, so nothing in it is trusted: sizes are looked up before memory is taken, every array must fit all
others, and the header's numbers must follow from the arrays.
"""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from axil.adapters.contract import Model
from axil.errors import InputError
from axil.inputs import as_features, as_file, as_path, take_rows
from axil.inputs.owned import owned_rows
from axil.machine.atomic import atomic
from axil.machine.limits import Limits
from axil.machine.memory import Budget
from axil.output.tables import as_backend
from axil.replay.build import confirm, tree_engine
from axil.replay.checks import checked_rows
from axil.replay.proven import ProvenModel
from axil.scale import INVERSES, FittedTargets, loaded_targets, user_scale
from axil.structure import Chains, Coefficients, Nodes, Regularisation, Structure

FORMAT = "axil-explainer"
VERSION = 4
_PARTS = (
    "cells n_leaves leaf_weights leaf_scale shift rates base row_weights offsets draws columns omega beta "
    "l2 steps l2_by_weight l1 max_step mixed mixing.data mixing.columns mixing.ends"
)
_NODES = [part.name for part in fields(Nodes)]
_CHAINS = [part.name for part in fields(Chains)]
_OF_RULES = [*(f"nodes.{name}" for name in _NODES), *(f"chains.{name}" for name in _CHAINS)]
_NAMES = "|".join(map(re.escape, [*_PARTS.split(), *_OF_RULES]))
_MEMBER = re.compile(rf"(header|targets|shown|index|index\.ends|\d+\.(?:{_NAMES}))\.npy")
_CHUNK = 1 << 20  # bytes read at a time


def save(path: Any, proven: ProvenModel) -> None:
    """Write the file whole or not at all: it takes its name only once it is complete."""
    if proven.verification is None:
        raise InputError(
            "This explainer was made with verify=False, and only a proven one is saved. Make it with verify=True."
        )
    structures = [engine.structure for engine in proven.engines]
    target = as_file(path)
    arrays = {"targets": proven.targets, **_label_arrays(proven.index)}
    if proven.seen is not None:
        arrays["shown"] = proven.seen
    for i, structure in enumerate(structures):
        arrays |= {f"{i}.{name}": array for name, array in _arrays(structure).items()}
    header = {
        "format": FORMAT,
        "version": VERSION,
        "structures": len(structures),
        "fingerprint": proven.adapter.fingerprint,
        "backend": proven.backend,
        "verification": asdict(proven.verification),
        "inverse_func": _function_name(proven),
    }
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    with atomic(target) as part, part.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _function_name(proven: ProvenModel) -> str | None:
    """The function that leads back to the targets as people read them: its name if a file may name it, else "other".

    None where there is none, or the model has it.
    """
    if proven.scale.backward is None or not proven.adapter.scale.is_identity:
        return None
    return next((name for name, known in INVERSES.items() if known is proven.scale.backward), "other")


def load(path: Any, adapter: Model, limits: Limits, X_train: Any = None, inverse_func: Any = None) -> ProvenModel:
    """The proven model of a file, for the same fitted model, once all that the file states of its proof follows from it."""
    budget = limits.budget
    header, structures, targets, index, seen = read(path, budget)
    if header.get("fingerprint") != adapter.fingerprint:
        raise InputError(f"{path} was saved for another model than the {adapter.library} model given. Pass that model.")
    if targets.shape[1] != adapter.n_outputs:
        raise InputError(f"{path} has {targets.shape[1]} outputs; the {adapter.library} model has {adapter.n_outputs}.")
    cells = sum(int(structure.cell_starts[-1]) for structure in structures)
    budget.require(24 * cells * targets.shape[1], f"The sums over the leaves of {path}", "Raise memory_limit.")
    engines = [tree_engine(structure, limits.n_threads) for structure in structures]
    try:
        verification, fitted = confirm(adapter, engines, targets, header.get("verification"))
        backend = as_backend(header.get("backend"))
        scaled = _scaled(adapter, inverse_func, header.get("inverse_func"), targets, seen)
    except InputError:
        raise
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(damaged(path, error)) from error
    proven = ProvenModel(adapter, engines, targets, index, None, backend, limits, verification).on(scaled)
    return proven if X_train is None else _with_features(proven, X_train, fitted)


def _scaled(
    adapter: Model, inverse_func: Any, named: Any, targets: NDArray[Any], seen: NDArray[Any] | None
) -> FittedTargets:
    """The targets on both scales, by the model's own inverse, the one given or the one that the file names."""
    own = adapter.scale
    if not own.is_identity and inverse_func is not None:
        raise InputError(f"This model transforms its targets itself ({own.name}). Leave inverse_func out.")
    if own.is_identity and inverse_func is None and named is not None:
        if named not in INVERSES:
            raise InputError(
                "This explainer was made with an inverse_func that no file can keep. Pass it again: "
                "axil.load(path, model, inverse_func=...)."
            )
        inverse_func = INVERSES[named]
    if inverse_func is not None:
        own = user_scale(inverse_func)
    if own.is_identity:
        if seen is not None:
            raise ValueError("targets to show without a function that leads to them")
        return FittedTargets(targets, targets, own)
    return loaded_targets(own, targets, seen)


def _with_features(proven: ProvenModel, X_train: Any, fitted: NDArray[np.float64]) -> ProvenModel:
    """The proven model with its training rows, once their predictions are those (n_train, K) that the file leads to."""
    features = owned_rows(as_features(X_train, proven.adapter, "X_train"))
    if features.shape[0] != len(fitted):
        raise InputError(f"X_train has {features.shape[0]} rows; the explainer was made of {len(fitted)}.")
    some = checked_rows(len(fitted))
    labelled = replace(proven.queries(take_rows(features, some)), labels=proven.index[some])
    proven.check(labelled, fitted[some])
    return replace(proven, features=features)


def read(
    path: Any, budget: Budget
) -> tuple[dict[str, Any], list[Structure], NDArray[Any], NDArray[Any], NDArray[Any] | None]:
    """Header, structures, targets, row labels and targets to show of a saved explainer; of another file an InputError."""
    path = as_path(path)
    if not path.exists():
        raise InputError(f"There is no file {path}.")
    if not path.is_file():
        raise InputError(f"{path} is not a file; expected one that Explainer.save wrote.")
    try:
        arrays = _read(path, budget)
        header = json.loads(arrays.pop("header").tobytes())
        if header["format"] != FORMAT:
            raise ValueError("another format")
        if header["version"] != VERSION:
            raise InputError(
                f"{path} has version {header['version']} of the format, this axil reads version {VERSION}. Save it again."
            )
        targets, index, seen = arrays.pop("targets"), _labels(arrays), arrays.pop("shown", None)
        structures = [_structure(arrays, f"{i}.") for i in range(_count(header["structures"], targets.shape[1]))]
        if arrays:
            raise ValueError(f"{len(arrays)} arrays too many")
        _check_fit(structures, targets, index)
    except (InputError, MemoryError):
        raise
    except PermissionError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}. Allow it, or choose another file.") from error
    except Exception as error:  # a damaged file can raise anything in the parsers of zip, npy and JSON
        raise InputError(damaged(path, error)) from error
    return header, structures, targets, index, seen


def damaged(path: Path, error: Exception) -> str:
    """The error about a file whose contents do not fit together."""
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return (
        f"{path} is not a complete axil explainer: it is damaged, cut short or of another kind ({reason}). "
        "Make it again with Explainer.save."
    )


def _read(path: Path, budget: Budget) -> dict[str, NDArray[Any]]:
    """All arrays by name, once their names and sizes are such as `save` writes and the budget has room for them."""
    with zipfile.ZipFile(path) as file:
        members = file.infolist()
        for one in members:
            # Members are stored as they are: a small file cannot unfold into a large one.
            plain = one.compress_type == zipfile.ZIP_STORED and one.file_size == one.compress_size
            if not plain or one.flag_bits & ~0x800 or _MEMBER.fullmatch(one.filename) is None:
                raise ValueError(f"a member that Explainer.save does not write: {one.filename!r}")
        if len({one.filename for one in members}) < len(members):
            raise ValueError("two members of one name")
        size = sum(one.file_size for one in members)
        if size > path.stat().st_size:
            raise ValueError("members that overlap")
        labels = sum(8 * one.file_size for one in members if one.filename == "index.ends.npy")  # as objects of Python
        budget.require(size + labels, f"The explainer in {path}", "Raise memory_limit.")
        return {one.filename.removesuffix(".npy"): _array(file, one) for one in members}


def _array(file: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """One array, once its shape fits the size of its member."""
    with file.open(member) as stream:
        try:
            version = np.lib.format.read_magic(stream)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(stream)
        except Exception as error:  # a parser of Python's own literals
            raise ValueError(f"no header of an array in {member.filename}") from error
        count = 1
        for length in shape:
            count *= max(length, 0)
        if dtype.kind not in "buifMm" or not dtype.isnative or not dtype.itemsize:
            raise ValueError(f"{member.filename} is of type {dtype}")
        if count * dtype.itemsize != member.file_size - stream.tell():
            raise ValueError(f"{member.filename} has shape {shape} in {member.file_size} bytes")
        flat = np.empty(count * dtype.itemsize, dtype=np.uint8)
        for start in range(0, len(flat), _CHUNK):
            part = stream.read(min(_CHUNK, len(flat) - start))
            flat[start : start + _CHUNK] = np.frombuffer(part, dtype=np.uint8)
        if stream.read(1):  # the checksum is compared at the end
            raise ValueError(f"{member.filename} is longer than it says")
    return flat.view(dtype).reshape(shape, order="F" if fortran else "C")


def _count(value: Any, n_outputs: int) -> int:
    """How many structures there are: one for all outputs, or one for each."""
    if isinstance(value, bool) or value not in (1, n_outputs):
        raise ValueError(f"{value} structures of {n_outputs} outputs")
    return int(value)


def _check_fit(structures: list[Structure], targets: NDArray[Any], index: NDArray[Any]) -> None:
    """Refuse targets, labels and structures that do not belong together."""
    n_rows, n_outputs = targets.shape
    own = n_outputs if len(structures) == 1 else 1
    if targets.dtype != np.float64 or not np.isfinite(targets).all() or not n_rows:
        raise ValueError("targets are no finite numbers")
    if index.shape != (n_rows,) or {s.n_rows for s in structures} != {n_rows}:
        raise ValueError("arrays of different lengths")
    for s in structures:
        widths = [len(s.base)] if s.base is not None else []
        widths += [s.offsets.shape[1]] if s.offsets is not None else []
        if not set(widths) <= {1, own}:
            raise ValueError(f"bases or offsets of {widths} outputs, expected {own}")
        if (s.columns is None) != (len(structures) == 1):
            raise ValueError("columns where all trees serve all outputs, or none where they do not")
    if len(structures) > 1:
        columns = np.unique(np.concatenate([s.columns for s in structures if s.columns is not None]))
        if not np.array_equal(columns, np.arange(len(columns))):
            raise ValueError("columns that are not all trees")


def _arrays(structure: Structure) -> dict[str, NDArray[Any]]:
    """The structure's arrays by name, its parts flattened."""
    arrays = {f.name: getattr(structure, f.name) for f in fields(Structure) if f.init}
    arrays |= _packed(arrays.pop("mixing"), structure.n_leaves)
    coefficients = arrays.pop("coefficients")
    if coefficients is not None:
        arrays |= {"omega": coefficients.omega, "beta": coefficients.beta}
    regularisation = arrays.pop("regularisation")
    if regularisation is not None:
        arrays |= {"l2": regularisation.l2, "steps": regularisation.steps, "l2_by_weight": regularisation.by_weight}
        arrays |= {"l1": regularisation.l1, "max_step": regularisation.max_step}
        if regularisation.nodes is not None:
            arrays |= {f"nodes.{name}": getattr(regularisation.nodes, name) for name in _NODES}
        if regularisation.chains is not None:
            arrays |= {f"chains.{name}": getattr(regularisation.chains, name) for name in _CHAINS}
    return {name: np.asarray(array) for name, array in arrays.items() if array is not None}


def _structure(arrays: dict[str, NDArray[Any]], prefix: str) -> Structure:
    """The inverse of `_arrays`; takes its arrays out of all."""
    own = {name[len(prefix) :]: arrays.pop(name) for name in list(arrays) if name.startswith(prefix)}
    coefficients = Coefficients(own.pop("omega"), own.pop("beta")) if {"omega", "beta"} & own.keys() else None
    nodes = {name: own.pop(f"nodes.{name}") for name in _NODES if f"nodes.{name}" in own}
    if "slack" in nodes and nodes["slack"].ndim == 0:
        nodes["slack"] = nodes["slack"].item()
    chains = {name: own.pop(f"chains.{name}") for name in _CHAINS if f"chains.{name}" in own}
    regularisation = Regularisation(
        own.pop("l2"),
        own.pop("steps"),
        own.pop("l2_by_weight").item() is True,
        _number(own.pop("l1")),
        _number(own.pop("max_step")),
        Nodes(**nodes) if nodes else None,
        Chains(**chains) if chains else None,
    )
    mixing = _unpacked(own)
    parts: dict[str, Any] = {"base": None, **own}
    return Structure(**parts, mixing=mixing, coefficients=coefficients, regularisation=regularisation)


def _number(array: NDArray[Any]) -> float:
    """A number from 0 up, or infinity."""
    value = array.item()
    if not isinstance(value, float) or not value >= 0:
        raise ValueError(f"{value!r} where a number from 0 up belongs")
    return value


def _packed(mixing: tuple[csr_array | None, ...] | None, n_leaves: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """The matrices of all trees as one list of rows, and which trees have one."""
    if mixing is None:
        return {}
    found = [matrix for matrix in mixing if matrix is not None]
    lengths = np.concatenate([np.diff(matrix.indptr) for matrix in found]).astype(np.int64)
    return {
        "mixed": np.array([matrix is not None for matrix in mixing]),
        "mixing.data": np.concatenate([matrix.data for matrix in found]),
        "mixing.columns": np.concatenate([matrix.indices for matrix in found]).astype(np.int64),
        "mixing.ends": np.cumsum(lengths),
    }


def _unpacked(own: dict[str, NDArray[Any]]) -> tuple[csr_array | None, ...] | None:
    """The inverse of `_packed`; takes its arrays out of all."""
    if "mixed" not in own:
        return None
    mixed, data, columns, ends = (own.pop(name) for name in ("mixed", "mixing.data", "mixing.columns", "mixing.ends"))
    sizes = own["n_leaves"]
    if mixed.dtype != np.bool_ or mixed.shape != sizes.shape or data.shape != columns.shape or data.dtype != np.float64:
        raise ValueError("matrices of trees that do not fit")
    starts = np.concatenate([[0], ends])
    if sizes[mixed].sum() != len(ends) or (np.diff(starts) < 0).any() or starts[-1] != len(data):
        raise ValueError("rows of matrices that do not follow one another")
    matrices: list[csr_array | None] = []
    row = 0
    for size, own_matrix in zip(sizes.tolist(), mixed.tolist()):
        if not own_matrix:
            matrices.append(None)
            continue
        part = starts[row : row + size + 1]
        inside = slice(int(part[0]), int(part[-1]))
        matrix = csr_array((data[inside], columns[inside], part - part[0]), shape=(size, size))
        matrix.check_format(full_check=True)
        matrices.append(matrix)
        row += size
    return tuple(matrices)


def _label_arrays(index: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Labels as arrays that need no pickle: text as UTF-8 with the ends of each label, all else as it is."""
    if plain_labels(index).dtype.kind != "U":
        return {"index": index}
    texts = [str(label).encode("utf-8", "surrogatepass") for label in index]
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    return {"index": np.frombuffer(b"".join(texts), dtype=np.uint8), "index.ends": ends}


def _labels(arrays: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """The inverse of `_label_arrays`; takes its arrays out of all."""
    index, ends = arrays.pop("index"), arrays.pop("index.ends", None)
    if ends is None:
        return index
    if index.dtype != np.uint8 or index.ndim != 1 or ends.dtype != np.int64 or ends.ndim != 1 or not len(ends):
        raise ValueError(f"labels of type {index.dtype} and {ends.dtype}")
    if ends[0] < 0 or (ends[1:] < ends[:-1]).any() or ends[-1] != len(index):
        raise ValueError("labels that do not follow one another")
    text, start = index.tobytes(), 0
    found = np.empty(len(ends), dtype=object)
    for i, end in enumerate(ends.tolist()):
        found[i], start = text[start:end].decode("utf-8", "surrogatepass"), end
    return found


def plain_labels(index: NDArray[Any]) -> NDArray[Any]:
    """Labels as an array that needs no pickle: numbers, dates and text as they are."""
    if index.dtype != object:
        return index
    plain = np.array(list(index))
    if plain.shape != index.shape or plain.dtype == object or not all(isinstance(label, str) for label in index):
        found = type(next((label for label in index if not isinstance(label, str)), None)).__name__
        raise InputError(
            f"The training rows' labels are of type {found}, which cannot be saved without pickle. "
            "Give X_train an index of numbers, dates or text."
        )
    return plain
