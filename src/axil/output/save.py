"""Exact weights on disk: every array of a file must fit all others, and the header's numbers must follow from the arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, fields, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from axil.adapters.contract import Adapter, Model, TrainingRows
from axil.arrays import FloatArray
from axil.errors import InputError
from axil.inputs import as_features, take_rows
from axil.inputs.copies import owned_rows
from axil.kernels.choose import settled
from axil.machine.memory import Limits
from axil.output import archive
from axil.output.archive import Archive
from axil.output.tables import as_backend
from axil.replay.build import confirm, tree_engine
from axil.replay.checks import ROUNDING, checked_rows
from axil.replay.exact_model import ExactModel
from axil.replay.recover import check_placement
from axil.replay.walk import leaf_totals
from axil.scale import INVERSES, FittedTargets, loaded_targets, user_scale
from axil.structure import (
    Ancestors,
    Chains,
    ClassCounts,
    Coefficients,
    Cut,
    IsotonicRule,
    NewtonRule,
    NodeRule,
    Nodes,
    Structure,
)

UNPROVEN = "This explainer was made with verify=False, and only a proven one is saved. Make it with verify=True."
_NODES = [part.name for part in fields(Nodes)]
_CHAINS = [part.name for part in fields(Chains)]


def save(path: Any, proven: ExactModel, key: bytes | None = None) -> None:
    """Write the file whole or not at all."""
    if proven.verification is None:
        raise InputError(UNPROVEN)
    arrays = {"targets": proven.targets}
    if proven.seen is not None and not proven.scale.is_identity:
        arrays["shown"] = proven.seen
    for i, engine in enumerate(proven.engines):
        arrays |= {f"{i}.{name}": array for name, array in _arrays(engine.structure).items()}
    header = {
        "structures": len(proven.engines),
        "fingerprint": proven.adapter.fingerprint,
        "backend": proven.backend,
        "verification": asdict(proven.verification),
        "inverse_func": _function_name(proven),
        "prepared": proven.is_prepared,
    }
    archive.write(path, header, proven.index, arrays, key)


def _function_name(proven: ExactModel) -> str | None:
    """The function that leads back to the targets as people read them: its name if a file may name it, else "other".

    None where there is none, or the model has it.
    """
    if proven.scale.backward is None or not proven.adapter.scale.is_identity:
        return None
    return next(
        (name for name, known in INVERSES.items() if known is proven.scale.backward), "other"
    )


def load(
    file: Archive, adapter: Model, limits: Limits, X_train: Any = None, inverse_func: Any = None
) -> Callable[[], ExactModel]:
    """The proof of a file's model, for the same fitted model, once the arrays fit each other.

    Called, it compares all that the file states of its proof with what the arrays make, in one replay of the fit.
    """
    budget, path, header = limits.budget, file.path, file.header
    try:
        structures, targets, seen = _contents(file)
    except MemoryError:
        raise
    except Exception as error:  # whatever arrays that do not fit raise
        raise file.damaged(error) from error
    require_model(file, adapter, targets.shape[1])
    try:
        backend = as_backend(header.get("backend"))
        scaled = _scaled(adapter, inverse_func, header.get("inverse_func"), targets, seen)
    except InputError:
        raise
    except (AttributeError, TypeError, ValueError) as error:
        raise file.damaged(error) from error
    cells = sum(int(structure.cell_starts[-1]) for structure in structures)
    budget.require(
        24 * cells * targets.shape[1], f"The sums over the leaves of {path}", "Raise memory_limit."
    )
    limits = settled(limits, sum(structure.cells.size for structure in structures))

    def proven() -> ExactModel:
        engines = [tree_engine(structure, limits) for structure in structures]
        try:
            for structure in structures:
                _check_leaves(structure, limits.n_threads)
            verification, fitted = confirm(adapter, engines, targets, header.get("verification"))
        except InputError:
            raise
        except (AttributeError, TypeError, ValueError) as error:
            raise file.damaged(error) from error
        about = adapter, file.index, None, backend, limits, verification
        found = ExactModel(*about, engines=engines, targets=targets).on(scaled)
        if header.get("prepared") is True:
            found = found.prepared()
        return found if X_train is None else _with_features(found, X_train, fitted)

    return proven


def require_model(file: Archive, adapter: Any, n_outputs: int) -> None:
    """Raise unless the file was saved for this model."""
    if file.header.get("fingerprint") != adapter.fingerprint:
        raise InputError(
            f"{file.path} was saved for another model than the {adapter.library} model given. Pass that model."
        )
    if n_outputs != adapter.n_outputs:
        raise InputError(
            f"{file.path} has {n_outputs} outputs; the {adapter.library} model has {adapter.n_outputs}. Pass the model that the "
            "explainer was made of."
        )


def _contents(file: Archive) -> tuple[list[Structure], NDArray[Any], NDArray[Any] | None]:
    """Structures, targets and targets to show."""
    arrays = dict(file.arrays)
    targets, seen = arrays.pop("targets"), arrays.pop("shown", None)
    structures = [
        _structure(arrays, f"{i}.")
        for i in range(_count(file.header["structures"], targets.shape[1]))
    ]
    if arrays:
        raise ValueError(f"{len(arrays)} arrays too many")
    _check_fit(structures, targets, file.index)
    return structures, targets, seen


def _scaled(
    adapter: Model, inverse_func: Any, named: Any, targets: NDArray[Any], seen: NDArray[Any] | None
) -> FittedTargets:
    """The targets on both scales, by the model's own inverse, the one given or the one that the file names."""
    own = adapter.scale
    if not own.is_identity and inverse_func is not None:
        raise InputError(
            f"This model transforms its targets itself ({own.name}). Leave inverse_func out."
        )
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


def _with_features(proven: ExactModel, X_train: Any, fitted: FloatArray) -> ExactModel:
    """The proven model with its training rows, once their predictions are those (n_train, K) that the file leads to."""
    features = owned_rows(as_features(X_train, proven.adapter, "X_train"))
    if features.shape[0] != len(fitted):
        raise InputError(
            f"X_train has {features.shape[0]} rows; the explainer was made of {len(fitted)}. Pass those."
        )
    some, s = checked_rows(len(fitted)), proven.engines[0].structure
    labelled = replace(proven.queries(take_rows(features, some)), labels=proven.index[some])
    held = None if proven.verification is None else proven.verification.held
    if held is not None and held.encodings:  # predictions are made in other leaves
        rows = TrainingRows(features, proven.targets, s.row_weights, s.offsets)
        check_placement(
            cast(Adapter, proven.adapter).trees(rows)[0].placement, s.leaves(), proven.limits
        )
        proven.predicted(labelled)
    else:
        proven.check(labelled, fitted[some])
    return replace(proven, features=features)


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
        columns = np.unique(
            np.concatenate([s.columns for s in structures if s.columns is not None])
        )
        if not np.array_equal(columns, np.arange(len(columns))):
            raise ValueError("columns that are not all trees")


def _check_leaves(s: Structure, n_threads: int) -> None:
    """Refuse weights of leaves that their rows do not make, and scales that do not follow from weights and regularisation.

    Predictions have the scales alone in them; only rows that are taken out show what the scales were made of.
    """
    if len(s.draws) == 1 and s.draws[0] != 1:
        raise ValueError(f"all rows drawn {s.draws[0]:g} times")
    of_cells = leaf_totals(s.cells, len(s.draws) * s.n_leaves, s.row_weights, n_threads)
    of_leaves = s.by_leaves(of_cells[:, None], drawn=True)[:, 0]
    most = np.abs(s.draws).max(initial=1.0) * s.total_weight
    if not (np.abs(of_leaves - s.leaf_weights) <= ROUNDING * most).all():
        raise ValueError("weights of leaves that are not those of their rows")
    rule = s.regularisation
    assert rule is not None  # every file has one
    free = rule.scale(
        s.uncut().leaf_weights if s.cut is not None and s.cut.weighs else s.leaf_weights
    )
    right = np.isclose(s.leaf_scale, free, rtol=ROUNDING, atol=0.0)
    if rule.has_active_set:
        right |= s.leaf_scale == 0  # a leaf whose value the pattern holds
    if not right.all():
        raise ValueError(
            "scales of leaves that do not follow from their weights and regularisation"
        )


def _arrays(structure: Structure) -> dict[str, NDArray[Any]]:
    """The structure's arrays by name, its parts flattened."""
    arrays = {f.name: getattr(structure, f.name) for f in fields(Structure) if f.init}
    del arrays[
        "ranks"
    ]  # rules of libraries are no arrays: what follows from them is refused of a file
    arrays |= _packed(arrays.pop("mixing"))
    ancestors = arrays.pop("ancestors")
    if ancestors is not None:
        arrays |= {"ancestors.parents": ancestors.parents, "ancestors.l2": ancestors.l2}
    coefficients = arrays.pop("coefficients")
    if coefficients is not None:
        arrays |= {"omega": coefficients.omega, "beta": coefficients.beta}
    class_counts = arrays.pop("class_counts")
    if class_counts is not None:
        arrays |= {
            f"class_counts.{f.name}": getattr(class_counts, f.name) for f in fields(ClassCounts)
        }
    cut = arrays.pop("cut")
    if cut is not None:
        arrays["cut"] = np.array([cut.delta, cut.weighs, cut.closed])
    regularisation = arrays.pop("regularisation")
    if regularisation is not None:
        arrays |= {
            "l2": regularisation.l2,
            "steps": regularisation.steps,
            "l2_by_weight": regularisation.by_weight,
        }
        arrays |= {"l1": regularisation.l1, "max_step": regularisation.max_step}
        if isinstance(regularisation, NodeRule):
            arrays |= {f"nodes.{name}": getattr(regularisation.nodes, name) for name in _NODES}
        if isinstance(regularisation, IsotonicRule):
            arrays |= {f"chains.{name}": getattr(regularisation.chains, name) for name in _CHAINS}
    return {name: np.asarray(array) for name, array in arrays.items() if array is not None}


def _structure(arrays: dict[str, NDArray[Any]], prefix: str) -> Structure:
    """The inverse of `_arrays`; takes its arrays out of all."""
    own = {
        name[len(prefix) :]: arrays.pop(name) for name in list(arrays) if name.startswith(prefix)
    }
    coefficients = (
        Coefficients(own.pop("omega"), own.pop("beta")) if {"omega", "beta"} & own.keys() else None
    )
    nodes: dict[str, Any] = {
        name: own.pop(f"nodes.{name}") for name in _NODES if f"nodes.{name}" in own
    }
    if "slack" in nodes and nodes["slack"].ndim == 0:
        nodes["slack"] = nodes["slack"].item()
    if nodes:
        nodes["path_smooth"] = _number(nodes["path_smooth"])
    chains = {name: own.pop(f"chains.{name}") for name in _CHAINS if f"chains.{name}" in own}
    settings = (
        own.pop("l2"),
        own.pop("steps"),
        own.pop("l2_by_weight").item() is True,
        _number(own.pop("l1")),
        _number(own.pop("max_step")),
    )
    regularisation: NewtonRule = NewtonRule(*settings)
    if nodes:
        regularisation = NodeRule(*settings, nodes=Nodes(**nodes))
    elif chains:
        regularisation = IsotonicRule(*settings, chains=Chains(**chains))
    mixing = _unpacked(own)
    parents, inner_l2 = own.pop("ancestors.parents", None), own.pop("ancestors.l2", None)
    ancestors = None if parents is None else Ancestors(parents, inner_l2)
    class_counts = None
    if "class_counts.own" in own:
        labels, weights = own.pop("class_counts.labels"), own.pop("class_counts.own")
        class_counts = ClassCounts(
            labels, weights, own.pop("class_counts.by_weight").item() is True
        )
    parts: dict[str, Any] = {"base": None, "class_counts": class_counts, **own}
    if "cut" in parts:
        delta, weighs, closed = parts.pop("cut").tolist()
        parts["cut"] = Cut(_number(np.array(delta)), weighs == 1, closed == 1)
    return Structure(
        **parts,
        mixing=mixing,
        coefficients=coefficients,
        regularisation=regularisation,
        ancestors=ancestors,
    )


def _number(array: NDArray[Any]) -> float:
    """A number from 0 up, or infinity."""
    value = array.item()
    if not isinstance(value, float) or not value >= 0:
        raise ValueError(f"{value!r} where a number from 0 up belongs")
    return value


def _packed(mixing: tuple[csr_array | None, ...] | None) -> dict[str, NDArray[Any]]:
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
    mixed, data, columns, ends = (
        own.pop(name) for name in ("mixed", "mixing.data", "mixing.columns", "mixing.ends")
    )
    sizes = own["n_leaves"]
    if (
        mixed.dtype != np.bool_
        or mixed.shape != sizes.shape
        or data.shape != columns.shape
        or data.dtype != np.float64
    ):
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
