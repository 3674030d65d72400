"""Explainers in files: the inputs of the verification, and none of its results.

A file keeps the leaves, targets, weights, offsets and recorded draws of the training rows. `load`
gives them to the same functions that `Explainer` calls, which replay the fit and compare every leaf
value with the model's. A file that was changed is refused. Two things need the features of the
rows, which a file does not keep. The error of the training rows' predictions is taken over from the
file, once it is within the model's tolerance. A leaf of a row in a tree that was fitted without the
row is part of no leaf value, so only a signature (`key`) shows that it was changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from axil import adapters
from axil.adapters.contract import Adapter, Model, TargetForm, TrainingRows
from axil.adapters.sample_counts import compact
from axil.aliases import ForeignModel, ForeignObject, PathLike
from axil.arrays import AnyArray, Cells, FloatArray, IntArray, LeafArray
from axil.attribution import Kind
from axil.contributions.additive_model import AdditiveModel
from axil.contributions.boosting import Boosting
from axil.errors import ExactnessError, InputError, UnsupportedModelError
from axil.implicit.readers import OUTPUTS
from axil.inputs import as_features, as_in_bag, as_weights, take_rows
from axil.inputs.copies import frozen, owned_rows
from axil.kernels.choose import settled
from axil.machine.memory import Limits
from axil.output import archive
from axil.output.archive import Archive
from axil.output.tables import as_backend
from axil.replay.build import build
from axil.replay.compare_predictions import checked_rows
from axil.replay.exact_model import ExactModel
from axil.replay.recover import check_placement
from axil.replay.verification import Verification
from axil.replay.verified_model import VerifiedModel
from axil.scale import INVERSES, FittedTargets, TargetScale, loaded_targets, user_scale
from axil.structure import all_n_leaves, cell_dtype

SavedModel = ExactModel | AdditiveModel

ERRORS = (AttributeError, IndexError, KeyError, TypeError, ValueError)  #: of arrays that do not fit


# -- saving ----------------------------------------------------------------------------------------


def save(path: PathLike, model: VerifiedModel, key: bytes | None = None) -> None:
    """Write the file whole or not at all."""
    if model.verification is None:
        raise InputError(
            "This explainer was made with verify=False, and only a verified one is saved. Make it "
            "with verify=True."
        )
    if isinstance(model, ExactModel):
        arrays, settings = _exact_contents(model)
    else:
        assert isinstance(model, AdditiveModel)
        arrays, settings = _additive_contents(model)
    header = {
        "kind": model.kind.value,
        "fingerprint": model.adapter.fingerprint,
        "backend": model.backend,
        "prediction_error": model.verification.max_error,
        **settings,
    }
    archive.write(path, header, model.index, arrays, key)


def _exact_contents(model: ExactModel) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """Return the arrays and the settings of a model with weights of its targets."""
    arrays = _row_arrays(_leaves_of(model), model.rows)
    if model.seen is not None and not model.scale.is_identity:
        arrays["shown"] = model.seen
    chosen_class = None
    if model.chosen_class is not None:
        assert model.names.classes is not None
        chosen_class = model.names.classes.tolist().index(model.chosen_class)
    settings = {
        "inverse_func": _inverse_name(model),
        "prepared": model.is_prepared,
        "chosen_class": chosen_class,
    }
    return arrays, settings


def _additive_contents(model: AdditiveModel) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """Return the arrays and the settings of a model whose scores are sums of contributions."""
    boosting = model.boosting
    if boosting.verification is None:
        details = {}
    else:
        details = boosting.verification.details
    settings = {
        "scores_first_class": model.is_reflected,
        "output": boosting.differentiates,
        "counts_classes": boosting.label_weights.counts_classes,
        "rounding_error": details.get("rounding_error"),
        "prepared": model.is_prepared,
    }
    return _row_arrays(boosting.walked.leaves, boosting.rows), settings


def _row_arrays(leaves: LeafArray, rows: TrainingRows) -> dict[str, AnyArray]:
    """Return the data of the training rows in the fit, by name."""
    arrays: dict[str, AnyArray] = {"leaves": leaves, "targets": rows.targets}
    if rows.weights is not None:
        arrays["weights"] = rows.weights
    if rows.offsets is not None:
        arrays["offsets"] = rows.offsets
    if rows.in_bag is not None:
        arrays["in_bag"] = compact(rows.in_bag)
    if rows.groups is not None:
        arrays["groups"] = rows.groups
    return arrays


def _leaves_of(model: ExactModel) -> LeafArray:
    """Return the leaves (T, N) of the training rows in the trees of all outputs."""
    structures = [engine.structure for engine in model.engines]
    n_leaves = all_n_leaves(structures)
    leaves = np.empty((len(n_leaves), structures[0].n_rows), dtype=cell_dtype(int(n_leaves.max())))
    for structure in structures:
        trees = slice(None) if structure.columns is None else structure.columns
        leaves[trees] = structure.leaves()
    return leaves


def _inverse_name(model: ExactModel) -> str | None:
    """Return the name of the function that returns to the user's units.

    The name is "other" for a function that a file cannot name. It is None if there is no
    function, or the model has it.
    """
    inverse = model.scale.backward
    if inverse is None or not model.adapter.scale.is_identity:
        return None
    names = [name for name, function in INVERSES.items() if function is inverse]
    if names:
        return names[0]
    return "other"


# -- loading ---------------------------------------------------------------------------------------


def load(
    file: Archive,
    model: ForeignModel,
    limits: Limits,
    X_train: Any = None,
    inverse_func: ForeignObject = None,
    objective: ForeignObject = None,
) -> Callable[[], SavedModel]:
    """Check the parts of a file, and return a function that verifies the model.

    The parts must fit each other and the model.

    Parameters
    ----------
    file : Archive
    model : fitted model
        The model that the file was saved for.
    limits : Limits
    X_train : table, optional
        The training rows, which must be those of the file.
    inverse_func, objective : function, optional
        See `axil.load`.

    Returns
    -------
    callable
        It replays the fit and returns the verified model.
    """
    _refuse_unused(file, inverse_func, objective)
    if file.kind == Kind.EXACT.value:
        return _load_exact(file, adapters.read(model), limits, X_train, inverse_func)
    adapter = adapters.find_by_gradients(model, objective)
    if adapter is None:
        raise InputError(
            f"{file.path} was saved for boosted trees, and the model given is a "
            f"{type(model).__module__}."
            f"{type(model).__qualname__}. Pass the model that it was saved for."
        )
    return _load_additive(file, adapter, limits, X_train)


def _refuse_unused(file: Archive, inverse_func: ForeignObject, objective: ForeignObject) -> None:
    """Raise for an unknown kind, and for a function that this kind does not use."""
    if file.kind == Kind.EXACT.value:
        name = "objective"
        function = objective
    elif file.kind == Kind.ADDITIVE.value:
        name = "inverse_func"
        function = inverse_func
    else:
        raise file.damaged(ValueError(f"kind {file.kind!r}"))
    if function is not None:
        raise InputError(
            f"{name} is given, but {file.path} is of an explainer that takes none. Leave it out."
        )


def _load_exact(
    file: Archive, adapter: Any, limits: Limits, X_train: Any, inverse_func: ForeignObject
) -> Callable[[], ExactModel]:
    """Return the verification of a model whose predictions are weighted sums of the targets."""
    shown = file.arrays.pop("shown", None)
    rows = _training_rows(file, adapter)
    _require_model(file, adapter, rows.targets.shape[1])
    scale = _scale_of(file, adapter, inverse_func)
    try:
        backend = as_backend(file.header.get("backend"))
        fitted = _fitted_targets(scale, rows.targets, shown)
        chosen_class = _chosen_class(file, adapter)
    except InputError:
        raise
    except ERRORS as error:
        raise file.damaged(error) from error
    limits = settled(limits, _leaf_array(rows).size)

    def verified() -> ExactModel:
        try:
            model = build(adapter, rows, file.index, limits)
            assert model.verification is not None
            verification = _with_stated_error(model.verification, file.header)
        except InputError:
            raise
        except (ExactnessError, UnsupportedModelError, *ERRORS) as error:
            raise file.damaged(error) from error
        model = replace(
            model.on(fitted),
            backend=backend,
            verification=verification,
            chosen_class=chosen_class,
        )
        if file.header.get("prepared") is True:
            model = model.prepared()
        if X_train is None:
            return model
        return replace(model, features=_same_features(model, X_train, rows, adapter.trees))

    return verified


def _chosen_class(file: Archive, adapter: Any) -> Any:
    """Return the class of two that the user chose; None if the file names none."""
    place = file.header["chosen_class"]
    if place is None:
        return None
    if type(place) is not int or place not in (0, 1) or len(adapter.classes) != 2:
        raise ValueError(f"the class {place!r}")
    return adapter.classes[place]


def _load_additive(
    file: Archive, adapter: Adapter, limits: Limits, X_train: Any
) -> Callable[[], AdditiveModel]:
    """Return the verification of a model whose scores are sums of contributions."""
    rows = _training_rows(file, adapter)
    header = file.header
    _require_model(file, adapter, adapter.replayed_targets(rows.targets).shape[1])
    try:
        if header["output"] not in OUTPUTS:
            raise ValueError(f"the output {header['output']!r}")
        if type(header["counts_classes"]) is not bool:
            raise ValueError(f"counts_classes of {header['counts_classes']!r}")
        if type(header["scores_first_class"]) is not bool:
            raise ValueError(f"scores_first_class of {header['scores_first_class']!r}")
        backend = as_backend(header.get("backend"))
    except (InputError, KeyError, *ERRORS) as error:
        raise file.damaged(error) from error

    def verified() -> AdditiveModel:
        try:
            boosting = Boosting(
                adapter,
                None,
                rows.targets,
                rows.weights,
                rows.offsets,
                header["output"],
                limits,
                True,
                rows.leaves,
                rows.in_bag,
                header["counts_classes"],
                rows.groups,
            )
            assert boosting.verification is not None
            verification = _with_stated_error(boosting.verification, header)
        except InputError:
            raise
        except (ExactnessError, UnsupportedModelError, *ERRORS) as error:
            raise file.damaged(error) from error
        boosting.verification = verification
        model = AdditiveModel(
            adapter,
            file.index,
            None,
            backend,
            boosting.limits,
            verification,
            is_reflected=header["scores_first_class"],
            seen=boosting.seen,
            boosting=boosting,
        )
        if header.get("prepared") is True:
            model = model.prepared()
        if X_train is None:
            return model
        return replace(model, features=_same_features(model, X_train, rows, adapter.trees))

    return verified


def _training_rows(file: Archive, adapter: Any) -> TrainingRows:
    """Return the training rows of the fit after checking that the arrays fit each other."""
    arrays = dict(file.arrays)
    try:
        targets = _checked_targets(arrays.pop("targets"), len(file.index), adapter)
        n_rows = len(targets)
        if file.index.shape != (n_rows,):
            raise ValueError(f"labels of shape {file.index.shape}")
        leaves = arrays.pop("leaves")
        if leaves.ndim != 2 or leaves.shape[1] != n_rows or leaves.dtype.kind != "u":
            raise ValueError(f"leaves of shape {leaves.shape} and type {leaves.dtype}")
        weights = arrays.pop("weights", None)
        offsets = arrays.pop("offsets", None)
        if weights is not None:
            _checked_table(weights[:, None], n_rows)
            as_weights(weights, n_rows)
        shape = adapter.replayed_targets(targets).shape
        if offsets is not None and _checked_table(offsets, n_rows).shape != shape:
            raise ValueError("offsets of other outputs")
        in_bag = as_in_bag(arrays.pop("in_bag", None), n_rows)
        n_trees = len(leaves) - int(adapter.has_initial_tree)
        if in_bag is not None and in_bag.shape[1] != n_trees:
            raise ValueError("in_bag of other trees")
        groups = _checked_groups(arrays.pop("groups", None), n_rows)
        if arrays:
            raise ValueError(f"{len(arrays)} arrays too many")
    except MemoryError:
        raise
    except Exception as error:  # arrays that do not fit may raise anything
        raise file.damaged(error) from error
    return TrainingRows(None, targets, weights, offsets, in_bag, groups, leaves=frozen(leaves))


def _checked_groups(groups: AnyArray | None, n_rows: int) -> IntArray | None:
    """Return the group numbers of a file, (N,), after checking that groups are in order."""
    if groups is None:
        return None
    if groups.shape != (n_rows,) or groups.dtype.kind != "i":
        raise ValueError(f"groups of type {groups.dtype} and shape {groups.shape}")
    if groups[0] != 0 or not np.isin(np.diff(groups), (0, 1)).all():
        raise ValueError("groups that are not numbered in order")
    return groups.astype(np.intp)


def _checked_table(values: AnyArray, n_rows: int, missing: bool = False) -> FloatArray:
    """Return numbers (N, K) after checking that they are finite, or nan if allowed."""
    shape = values.shape
    if values.dtype != np.float64 or len(shape) != 2 or len(values) != n_rows or not values.size:
        raise ValueError(f"numbers of type {values.dtype} and shape {shape} for {n_rows} rows")
    if not np.all(np.isfinite(values) | (np.isnan(values) & missing)):
        raise ValueError("numbers that are not finite")
    return values


def _checked_targets(values: AnyArray, n_rows: int, adapter: Model) -> FloatArray:
    """Return targets (N, K); check that they are finite, except where the model takes others."""
    if adapter.target_form is not TargetForm.BOUNDS:
        return _checked_table(values, n_rows, adapter.missing_targets)
    if values.ndim != 2 or values.shape[1] != 2:
        raise ValueError(f"bounds of shape {values.shape}")
    _checked_table(values[:, :1], n_rows)
    return values


def _leaf_array(rows: TrainingRows) -> Cells:
    """Return the leaves of rows of a file, (T, N)."""
    assert rows.leaves is not None
    return rows.leaves


def _require_model(file: Archive, adapter: Any, n_outputs: int) -> None:
    """Raise unless the file was saved for this model."""
    if file.header.get("fingerprint") != adapter.fingerprint:
        raise InputError(
            f"{file.path} was saved for another model than the {adapter.library} model given. Pass "
            "that model."
        )
    if n_outputs != adapter.n_outputs:
        raise InputError(
            f"{file.path} has {n_outputs} outputs; the {adapter.library} model has "
            f"{adapter.n_outputs}. Pass the model that the "
            "explainer was made of."
        )


def _scale_of(file: Archive, adapter: Any, inverse_func: ForeignObject) -> TargetScale:
    """Return the scale of the fit.

    Its inverse is the model's own, the one that the user passes, or the one that the file names.
    """
    scale: TargetScale = adapter.scale
    if not scale.is_identity:
        if inverse_func is not None:
            raise InputError(
                f"This model transforms its targets itself ({scale.name}). Leave inverse_func out."
            )
        return scale
    name = file.header.get("inverse_func")
    if inverse_func is None and name is not None:
        if name not in INVERSES:
            raise InputError(
                "This explainer was made with an inverse_func that no file can keep. Pass it "
                "again: "
                "axil.load(path, model, inverse_func=...)."
            )
        inverse_func = INVERSES[name]
    if inverse_func is None:
        return scale
    return user_scale(inverse_func)


def _fitted_targets(
    scale: TargetScale, targets: FloatArray, shown: AnyArray | None
) -> FittedTargets:
    """Return the targets on the scale of the fit and in the user's units."""
    if not scale.is_identity:
        return loaded_targets(scale, targets, shown)
    if shown is not None:
        raise ValueError("targets to show without a function that leads to them")
    return FittedTargets(targets, targets, scale)


def _with_stated_error(verification: Verification, header: dict[str, Any]) -> Verification:
    """Return the verification with the errors of predictions that a file states.

    Raises if these are larger than a verification allows.
    """
    stated = header.get("prediction_error")
    rounding = header.get("rounding_error")
    allowed = verification.tolerance + verification.rounding / verification.scale
    if type(stated) is not float or not 0 <= stated <= allowed:
        raise ValueError(f"predictions that are {stated!r} apart, which no verification allows")
    if rounding is None:
        return replace(verification, max_error=stated)
    if type(rounding) is not float or not 0 <= rounding < np.inf:
        raise ValueError(f"a rounding error of {rounding!r}")
    details = verification.details | {"rounding_error": rounding}
    return replace(verification, max_error=stated, details=details)


def _same_features(
    model: SavedModel,
    X_train: Any,
    rows: TrainingRows,
    read: Callable[[TrainingRows], list[Any]],
) -> Any:
    """Return the features of the training rows after checking their leaves.

    ``read`` reads the trees of the model from training rows, which says where encodings put them.
    """
    adapter: Any = model.adapter
    features = owned_rows(as_features(X_train, adapter, "X_train"))
    leaves = _leaf_array(rows)
    n_rows = leaves.shape[1]
    if features.shape[0] != n_rows:
        raise InputError(
            f"X_train has {features.shape[0]} rows; the explainer was made of {n_rows}. Pass those."
        )
    if adapter.encodings:
        (fit, *_) = read(replace(rows, X=features, leaves=None))
        check_placement(fit.placement, leaves, model.limits)
        return features
    checked = checked_rows(n_rows)
    found = adapter.coordinates(take_rows(features, checked), model.limits.n_threads)
    expected = leaves[:, checked].T
    for i, tree in np.argwhere(found != expected)[:1].tolist():
        raise ExactnessError(
            f"leaf of training row {checked[i]} (from 0)",
            float(found[i, tree]),
            float(expected[i, tree]),
            "X_train is not what the explainer was made of: pass the same rows in the same order.",
            tree,
        )
    return features
