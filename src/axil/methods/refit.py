"""refit: the model at its own splits, fitted to other rows, targets or weights.

The result is a model of the library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from axil import adapters, inputs
from axil.adapters.contract import Form, Model, TargetForm
from axil.adapters.pipeline import last_step, rewritten, writer
from axil.adapters.searches import unwrapped
from axil.aliases import ArrayLike, FeatureTable, ForeignModel
from axil.arrays import AnyArray, FloatArray, IntArray
from axil.errors import InputError, UnsupportedQuestionError
from axil.inputs.copies import owned
from axil.methods.kinds import refittable_model
from axil.methods.method import Method
from axil.methods.what_if import by_label
from axil.methods.without import warn_of_splits
from axil.replay.refit import RefitInputs
from axil.replay.verified_model import Refittable, VerifiedModel


@dataclass(frozen=True, eq=False)
class ExplainerArguments:
    """The arguments of an explainer, from which `refit` makes another one."""

    model: ForeignModel  #: the user's own
    y: AnyArray  #: (N,) or (N, K) as the user gave it
    sample_weight: FloatArray | None
    init_score: FloatArray | None
    groups: IntArray | None  #: (N,) the number of each row's group, of a ranking model
    settings: dict[str, Any]  #: further keyword arguments of `Explainer`
    make: Callable[..., Any]  #: `Explainer` itself
    #: how many training rows ``drop`` of `refit` left out, all rows of a label
    dropped: int = 0

    @classmethod
    def of(
        cls,
        model: ForeignModel,
        verified: VerifiedModel,
        y: Any,
        sample_weight: ArrayLike | None,
        init_score: ArrayLike | None,
        group: ArrayLike | None,
        settings: dict[str, Any],
        make: Callable[..., Any],
    ) -> ExplainerArguments:
        """Return the checked arguments of `Explainer`, with copies of what the user may change."""
        if hasattr(y, "detach"):
            y = y.detach()
        targets = owned(_as_given(verified.adapter, y, "y_train"))
        groups = inputs.as_row_groups(group, len(targets))
        weights = inputs.weights_of_rows(sample_weight, groups, len(targets))
        if weights is not None:
            weights = owned(weights)
        offsets = None
        if init_score is not None:
            offsets = owned(inputs.as_array(init_score, "init_score").astype(np.float64))
        return cls(model, targets, weights, offsets, groups, settings, make)

    @property
    def is_picklable(self) -> bool:
        """Whether a pickle can hold the arguments.

        It holds no lambda, and no function that was defined within another function.
        """
        inner_model = unwrapped(self.model)
        final_step = last_step(inner_model)
        if final_step is not None:
            inner_model = final_step
        values = [*self.settings.values(), *getattr(inner_model, "__dict__", {}).values()]
        return not any("<" in getattr(value, "__qualname__", "") for value in values)


class Refit(Method):
    """Provide `Explainer.refit`."""

    _arguments: ExplainerArguments | None = None
    _refitted_from: Refit | None = None  # the explainer before `refit`

    @property
    def model(self) -> Any:
        """The fitted model of the explainer; after `refit` a new one."""
        return arguments_of(self).model

    def refit(
        self,
        *,
        drop: Sequence[Any] | None = None,
        add: Sequence[Any] | None = None,
        targets: Mapping[Any, Any] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Any:
        """Fit the leaves of the model again at its own splits, and return a new verified explainer.

        Its ``model`` is a fitted model of the same class, which its library saves and loads. It has
        the same splits, with the leaf values, counts and weights of the new rows. Its predictions
        are those of `without` and `what_if`, up to the precision in which the library stores
        targets. Splits, learning rates, sampled rows and the fitted steps of a pipeline are fixed.
        So it is no retraining, and it does not show that deleted rows left no trace: they had their
        part in the choice of the splits. Added rows are in the sample of every tree. Rows that
        early stopping held out are left out of the new explainer. The old model is not changed.

        Parameters
        ----------
        drop : sequence of labels, or of n_train truth values, optional
            The training rows to leave out, by label, all rows of a label that several share, or
            marked with True.
        add : (X, y), (X, y, sample_weight) or (X, y, sample_weight, init_score), optional
            Further rows: features, targets as ``y_train`` was given, and weights and offsets where
            the fit had them. The rows of an evaluation set that chose the number of trees can be
            folded back in so.
        targets : mapping of row label to target, optional
            Other targets, given as ``y_train`` was.
        sample_weight : mapping of row label to weight, or array of shape (n_train,), optional
            Other weights of the training rows.

        Returns
        -------
        Explainer

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> again = explainer.refit(drop=[0, 7, 30])
        >>> type(again.model).__name__, len(again.index)
        ('LGBMRegressor', 439)
        >>> after = explainer.without(X.head(1), [0, 7, 30])["after"]
        >>> bool(abs(again.model.predict(X.head(1)) - after).max() < 1e-5)
        True
        """
        self._model.capabilities.require("refit")
        if drop is None:
            rows = np.zeros(0, dtype=np.intp)
        else:
            rows = self._model.training.positions(drop)
        warn_of_splits(self._model.deletions.share_of(rows))
        refitted = again(self, drop, add, targets, sample_weight)._without(len(rows))
        refitted._refitted_from = copy(self)
        refitted._refitted_from._refitted_from = None  # a chain of refits would keep all of them
        return refitted

    def _without(self, dropped: int) -> Any:
        """Record the number of dropped rows in this explainer, and return it."""
        self._arguments = replace(arguments_of(self), dropped=dropped)
        return self


RefitT = TypeVar("RefitT", bound=Refit)


def arguments_of(self: Refit) -> ExplainerArguments:
    """Return the arguments of an explainer; raise if it was loaded from a file without them."""
    if self._arguments is None:
        raise UnsupportedQuestionError(
            "refit",
            "this explainer was loaded from a file, which keeps neither the targets as they were "
            "given nor the model",
            "Make it from the model and its training data: "
            "axil.Explainer(model, X_train, y_train).",
        )
    return self._arguments


def again(
    self: RefitT,
    drop: Sequence[Any] | AnyArray | None = None,
    add: Sequence[Any] | None = None,
    targets: Mapping[Any, Any] | None = None,
    sample_weight: ArrayLike | None = None,
    added_labels: AnyArray | None = None,
) -> RefitT:
    """Refit as `Explainer.refit` does, without a warning about splits.

    ``added_labels`` are the labels of the rows of ``add``.
    """
    arguments = _refit_arguments(self)
    refit_inputs, labels = _changed(
        refittable_model(self._model), arguments, drop, add, targets, sample_weight, added_labels
    )
    return _refitted(self, arguments, refit_inputs, labels)


def with_features(self: RefitT, X: FeatureTable, y: AnyArray) -> RefitT:
    """Refit to the training rows with other features and targets, at the model's own splits.

    Each row keeps its weight, its offset and its sample counts. The rows fall into
    the leaves that their new features lead to.

    Parameters
    ----------
    X : table
        The features of all training rows, in the order of the fit.
    y : array of shape (N,) or (N, K)
        Their targets, as ``y_train`` was given.
    """
    arguments = _refit_arguments(self)
    model = refittable_model(self._model)
    rows = np.flatnonzero(~model.held_out(arguments.sample_weight))
    y = y[rows]
    new_X = inputs.as_features(inputs.take_rows(X, rows), model.adapter, "X", model.features)
    refit_inputs = RefitInputs(
        old_rows=np.zeros(0, dtype=np.intp),
        new_X=new_X,
        X=new_X,
        y=y,
        targets=model.changes.as_targets(y, len(y), "y", "training"),
        weights=_at_rows(arguments.sample_weight, rows),
        offsets=_at_rows(arguments.init_score, rows),
        groups=inputs.as_row_groups(_at_rows(arguments.groups, rows), len(y)),
        replaced_rows=rows,
    )
    return _refitted(self, arguments, refit_inputs, model.index[rows])


def _at_rows(values: AnyArray | None, rows: IntArray) -> AnyArray | None:
    """Return the values of some rows; None if no row has one."""
    if values is None:
        return None
    return values[rows]


def _refit_arguments(self: Refit) -> ExplainerArguments:
    """Return the arguments of an explainer; raise if its model cannot be refitted."""
    arguments = arguments_of(self)
    if (
        adapters.fingerprint(arguments.model, arguments.settings.get("objective"))
        != self._model.adapter.fingerprint
    ):
        raise InputError(
            "The model was fitted again or changed since this explainer was made of it. Make a new "
            "explainer."
        )
    if getattr(self._model.adapter, "encodings", 0):
        raise UnsupportedQuestionError(
            "refit",
            "its categories were encoded by the targets of the rows before each row, and other "
            "rows come in another order",
            "Ask explainer.without(X, rows) or what_if(X, targets), which hold the encodings "
            "fixed.",
        )
    return arguments


def _refitted(
    self: RefitT, arguments: ExplainerArguments, refit_inputs: RefitInputs, labels: AnyArray
) -> RefitT:
    """Return the explainer of the model refitted to these labelled rows."""
    model = self._model
    if model.adapter.form is Form.SMOOTHER:
        smoother_targets = refit_inputs.y
        if not model.adapter.scale.is_identity:
            # The model transforms the targets before the smoother sees them.
            smoother_targets = refit_inputs.targets
            if smoother_targets.shape[1] == 1:
                smoother_targets = smoother_targets[:, 0]
        fit = partial(_fitted_anew, refit_inputs, smoother_targets)
        refitted = rewritten(arguments.model, fit, refit_inputs.X)
        in_bag = None
    else:
        fits, in_bag = refittable_model(model).refit_leaves(refit_inputs)
        refitted = rewritten(arguments.model, lambda inside, _: writer(inside).write(inside, fits))
    explainer: RefitT = arguments.make(
        refitted,
        refit_inputs.X,
        refit_inputs.y,
        sample_weight=refit_inputs.weights,
        init_score=refit_inputs.offsets,
        in_bag=in_bag,
        group=refit_inputs.groups,
        index=labels,
        **arguments.settings,
    )
    return explainer


def _fitted_anew(
    refit_inputs: RefitInputs, targets: AnyArray, model: ForeignModel, X: FeatureTable
) -> ForeignModel:
    """Return a smoother with ``model``'s settings, fitted to rows and targets as they reach it."""
    model_writer = writer(model)
    if not hasattr(model_writer, "again"):
        raise UnsupportedQuestionError(
            "refit", "models of this kind are not written", "Fit its model to the new rows."
        )
    return model_writer.again(model, X, targets, refit_inputs.weights)


def _changed(
    model: Refittable,
    arguments: ExplainerArguments,
    drop: Sequence[Any] | AnyArray | None,
    add: Sequence[Any] | None,
    targets: Mapping[Any, Any] | None,
    sample_weight: ArrayLike | None,
    added_labels: AnyArray | None,
) -> tuple[RefitInputs, AnyArray]:
    """Return the rows of the new fit, and their labels."""
    n = model.shape[0]
    keep = ~model.held_out(arguments.sample_weight)
    y = arguments.y.copy()
    weights = _weights(model, arguments, sample_weight)
    if drop is not None:
        keep[model.training.positions(drop)] = False
    if targets is not None:
        target_labels, values = by_label(targets, "targets", "new target")
        entries, rows = inputs.positions(target_labels, model.index, "targets")
        model.changes.as_targets(
            values, len(values), "targets", "changed"
        )  # raises for wrong values
        if len(rows):
            y[rows] = _as_given(model.adapter, values, "targets")[entries]
    old_rows = np.flatnonzero(keep)
    X = inputs.take_rows(model.features, old_rows)
    labels = model.index[old_rows]
    y = y[old_rows]
    offsets = None
    if arguments.init_score is not None:
        offsets = arguments.init_score[old_rows]
    if weights is not None:
        weights = weights[old_rows]
    groups = None
    if arguments.groups is not None:
        groups = arguments.groups[old_rows]
    new_X = None
    if add is not None:
        if groups is not None:
            raise UnsupportedQuestionError(
                "refit(add=)",
                "the rows of a ranking model belong to groups, and added rows have none",
                "Train again with the new groups.",
            )
        added = _added(model, arguments, add)
        new_X = added.X
        X = inputs.stack_rows(X, new_X)
        y = np.concatenate([y, added.y])
        weights = _joined_weights(weights, len(old_rows), added)
        offsets = _joined_offsets(offsets, added.offsets)
        if added_labels is None:
            added_labels = _added_labels(model, new_X, n)
        labels = inputs.joined(labels, added_labels)
    if not len(y) or (weights is not None and not weights.any()):
        raise InputError("Without these rows no row with a weight is left to fit again; keep some.")
    fit_targets = model.changes.as_targets(y, len(y), "targets", "training")
    refit_inputs = RefitInputs(
        old_rows, new_X, X, y, fit_targets, weights, offsets, inputs.as_row_groups(groups, len(y))
    )
    return refit_inputs, labels


def _joined_offsets(offsets: FloatArray | None, added: FloatArray | None) -> FloatArray | None:
    """Return the offsets of the old and the added rows; None unless both have some."""
    if offsets is None or added is None:
        return None
    return np.concatenate([offsets, added])


def _joined_weights(
    weights: FloatArray | None, n_old: int, added: RefitInputs
) -> FloatArray | None:
    """Return the weights of the old and the added rows; None if all of them are one."""
    added_weights = added.weights
    if weights is None and added_weights is None:
        return None
    if weights is None:
        weights = np.ones(n_old)
    if added_weights is None:
        added_weights = np.ones(len(added.y))
    return np.concatenate([weights, added_weights])


def _weights(
    model: Refittable, arguments: ExplainerArguments, sample_weight: ArrayLike | None
) -> FloatArray | None:
    """Return the weights of the training rows with the new ones in their places, (N,).

    None if all of them are one.
    """
    n = model.shape[0]
    if sample_weight is None:
        return arguments.sample_weight
    if not hasattr(sample_weight, "items") or hasattr(sample_weight, "to_numpy"):
        inputs.refuse_other_order(model.features, sample_weight, "sample_weight")
        return inputs.as_weights(sample_weight, n)
    labels, values = by_label(sample_weight, "sample_weight", "weight")
    entries, rows = inputs.positions(labels, model.index, "sample_weight")
    if arguments.sample_weight is None:
        weights = np.ones(n)
    else:
        weights = arguments.sample_weight.copy()
    weights[rows] = np.asarray(values, dtype=np.float64)[entries]
    return inputs.as_weights(weights, n)


def _added(model: Refittable, arguments: ExplainerArguments, add: Sequence[Any]) -> RefitInputs:
    """Check the rows that ``add`` brings, and return them as the inputs of a fit."""
    if not isinstance(add, (tuple, list)) or not 2 <= len(add) <= 4:
        raise InputError(
            "add has to be (X, y), (X, y, sample_weight) or (X, y, sample_weight, init_score)."
        )
    X, y, weights, offsets = (*add, None, None)[:4]
    for place, values in enumerate(add[1:], 1):
        inputs.refuse_other_order(X, values, f"add[{place}]", "add[0]")
    rows = inputs.as_features(X, model.adapter, "add[0]", model.features)
    model.training.warn_of_unseen(rows, "the rows added")
    n = rows.shape[0]
    fit_targets = model.changes.as_targets(y, n, "add[1]", "added")
    if (offsets is None) != (arguments.init_score is None):
        if arguments.init_score is None:
            need = "takes none, as the fit had none"
        else:
            need = "needs one, as the fit had one"
        raise InputError(f"add has {len(add)} parts, and init_score {need}.")
    targets = owned(_as_given(model.adapter, y, "add[1]")).reshape(n, *arguments.y.shape[1:])
    weights = inputs.as_weights(weights, n)
    if offsets is not None:
        offsets = inputs.as_array(offsets, "add[3]")
    no_rows = np.zeros(0, dtype=np.intp)
    return RefitInputs(no_rows, None, rows, targets, fit_targets, weights, offsets)


def _as_given(adapter: Model, values: Any, name: str) -> AnyArray:
    """Return targets as the user gave them, (N,) or (N, K); records of times as numbers."""
    if adapter.target_form is TargetForm.NUMBERS:
        return inputs.as_array(values, name)
    times = inputs.as_array(inputs.as_signed_times(values, name), name)
    if adapter.target_form is TargetForm.BOUNDS:
        return inputs.as_bounds(times, len(times), name)
    return times


def _added_labels(model: Refittable, X: FeatureTable, n: int) -> AnyArray:
    """Return the labels of added rows: the index of a frame, and else numbers from N on."""
    labels = inputs.row_labels(X)
    if np.array_equal(labels, np.arange(X.shape[0])) and np.array_equal(model.index, np.arange(n)):
        return labels + n
    return labels
