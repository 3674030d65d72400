"""refit: the model again at its own splits, on other rows, to other targets or with other weights, as a model of its library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import adapters, inputs
from axil.adapters.pipeline import last_step, rewritten, writer
from axil.adapters.searches import unwrapped
from axil.aliases import ArrayLike
from axil.arrays import FloatArray
from axil.errors import InputError, UnsupportedQuestionError
from axil.inputs.copies import owned
from axil.methods.question import Method
from axil.methods.what_if import by_label
from axil.methods.without import warn_of_splits
from axil.replay.refit import RefitInputs


@dataclass(frozen=True, eq=False)
class Made:
    """How an explainer was made, so that another can be made alike."""

    model: Any  #: the user's own
    y: NDArray[Any]  #: (N,) or (N, K) as it was given
    sample_weight: FloatArray | None
    init_score: FloatArray | None
    settings: dict[str, Any]  #: keyword arguments of `Explainer` besides
    make: Callable[..., Any]  #: `Explainer` itself
    dropped: int = (
        0  #: training rows that ``drop`` of `refit` left out, all rows of the labels given
    )

    @classmethod
    def of(
        cls, model: Any, y: Any, sample_weight: Any, init_score: Any, settings: Any, make: Any
    ) -> Made:
        """From the arguments of `Explainer`, which has checked them; what can be changed is copied."""
        given = inputs.as_array(y.detach() if hasattr(y, "detach") else y, "y_train")
        weights = inputs.as_weights(sample_weight, len(given))
        offsets = None
        if init_score is not None:
            offsets = owned(inputs.as_array(init_score, "init_score").astype(np.float64))
        return cls(
            model,
            owned(given),
            None if weights is None else owned(weights),
            offsets,
            settings,
            make,
        )

    @property
    def is_picklable(self) -> bool:
        """Whether a pickle can hold it: no function in it was defined within another, or has no name."""
        inside = unwrapped(self.model)
        last = last_step(inside)
        parts = [
            *self.settings.values(),
            *getattr(inside if last is None else last, "__dict__", {}).values(),
        ]
        return not any("<" in getattr(part, "__qualname__", "") for part in parts)


class Refit(Method):
    """Provide `Explainer.refit`."""

    _made: Made | None = None

    @property
    def model(self) -> Any:
        """The fitted model that the explainer was made of; after `refit` a new one."""
        return made_of(self).model

    def refit(
        self,
        drop: Sequence[Any] | None = None,
        add: Sequence[Any] | None = None,
        targets: Mapping[Any, Any] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Any:
        """Fit the leaves of the model again at its own splits, and return a new explainer, proven on the new data.

        Its ``model`` is a fitted model of the same class, which its library saves and loads: the
        same splits, with the leaf values, counts and weights of the new rows. Predictions are those
        of `without` and `what_if`, up to the precision in which the library keeps targets. Splits,
        rates, draws and what a pipeline learnt are held fixed, so it is no retraining, and no proof
        that deleted rows left no trace: they had their part in the choice of the splits. Rows that
        are added are in every bag. Rows that early stopping held out are left out of the new
        explainer. The old model is not touched, and the repr of the new explainer says how many
        rows were left out. A leaf of a tree, a forest or bagged trees that loses all its rows has
        the value of its nearest ancestor that still has some, and the repr says how many there are.
        A `SplitsWarning` says where dropped rows hold more than a tenth of the weight of the fit.
        Linear models and neighbours are fitted anew with the settings that they have. O(T N).

        Dropped rows are gone: every rule of the library follows the rows that remain, as in
        `without`. A row whose weight is set to zero stays. In CatBoost the two differ: l2_leaf_reg
        is multiplied by the mean weight of all rows. Weights that come of classes are counted again
        from the new labels; `what_if` holds them.

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
            rows = self._model.positions(drop)
        warn_of_splits(self._model.share_of(rows))
        return again(self, drop, add, targets, sample_weight)._without(len(rows))

    def _without(self, dropped: int) -> Any:
        """This explainer, which now knows how many rows were dropped for it."""
        self._made = replace(made_of(self), dropped=dropped)
        return self


def made_of(self: Refit) -> Made:
    """How an explainer was made; refuses one that does not know it."""
    if self._made is None:
        raise UnsupportedQuestionError(
            "refit",
            "this explainer was loaded from a file, which keeps neither the targets as they were given nor the model",
            "Make it from the model and its training data: axil.Explainer(model, X_train, y_train).",
        )
    return self._made


def again(
    self: Refit,
    drop: Any = None,
    add: Any = None,
    targets: Any = None,
    sample_weight: Any = None,
    added_labels: NDArray[Any] | None = None,
) -> Any:
    """Refit as `Explainer.refit` does, without a warning about splits; ``added_labels`` name the rows of ``add``."""
    made = made_of(self)
    if (
        adapters.fingerprint(made.model, made.settings.get("objective"))
        != self._model.adapter.fingerprint
    ):
        raise InputError(
            "The model was fitted again or changed since this explainer was made of it. Make a new explainer."
        )
    if getattr(self._model.adapter, "encodings", 0):
        raise UnsupportedQuestionError(
            "refit",
            "its categories were encoded by the targets of the rows before each row, and other rows come in another order",
            "Ask explainer.without(X, rows) or what_if(X, targets), which hold the encodings fixed.",
        )
    given, labels = _changed(self._model, made, drop, add, targets, sample_weight, added_labels)
    if hasattr(self._model.adapter, "smoother"):
        targets = given.y
        if (
            not self._model.adapter.scale.is_identity
        ):  # around the smoother the model transforms its targets
            if given.targets.shape[1] == 1:
                targets = given.targets[:, 0]
            else:
                targets = given.targets
        fit = partial(_fitted_anew, given, targets)
        model = rewritten(made.model, fit, given.X)
        bags = None
    else:
        fits, bags = self._model.refit_leaves(given)
        model = rewritten(made.model, lambda inside, _: writer(inside).write(inside, fits))
    weights = given.weights
    offsets = given.offsets
    return made.make(model, given.X, given.y, weights, offsets, bags, index=labels, **made.settings)


def _fitted_anew(given: RefitInputs, targets: NDArray[Any], model: Any, X: Any) -> Any:
    """Return a smoother with the settings of ``model``, fitted to these rows and targets as they reach it."""
    found = writer(model)
    if not hasattr(found, "again"):
        raise UnsupportedQuestionError(
            "refit", "models of this kind are not written", "Fit its model to the new rows."
        )
    return found.again(model, X, targets, given.weights)


def _changed(
    model: Any,
    made: Made,
    drop: Any,
    add: Any,
    targets: Any,
    sample_weight: Any,
    added_labels: NDArray[Any] | None,
) -> tuple[RefitInputs, NDArray[Any]]:
    """The rows of the new fit and their labels."""
    n = model.shape[0]
    keep = ~model.held_out(made.sample_weight)
    y, weights = made.y.copy(), _weights(model, made, sample_weight)
    if drop is not None:
        keep[model.positions(drop)] = False
    if targets is not None:
        named, values = by_label(targets, "targets", "new target")
        which, rows = inputs.positions(named, model.index, "targets")
        model.as_targets(values, len(values), "targets", "changed")  # which checks them
        y[rows] = np.asarray(values)[which] if len(rows) else y[rows]
    kept = np.flatnonzero(keep)
    X, labels = inputs.take_rows(model.features, kept), model.index[kept]
    y, offsets = y[kept], None if made.init_score is None else made.init_score[kept]
    weights = None if weights is None else weights[kept]
    added = None
    if add is not None:
        more = _added(model, made, add)
        added = more.X
        X, y = inputs.stack_rows(X, more.X), np.concatenate([y, more.y])
        if weights is not None or more.weights is not None:
            ones = np.ones(len(more.y)) if more.weights is None else more.weights
            weights = np.concatenate([np.ones(len(kept)) if weights is None else weights, ones])
        offsets = (
            None
            if offsets is None or more.offsets is None
            else np.concatenate([offsets, more.offsets])
        )
        if added_labels is None:
            added_labels = _added_labels(model, more.X, n)
        labels = inputs.joined(labels, added_labels)
    if not len(y) or (weights is not None and not weights.any()):
        raise InputError("Without these rows none of any weight is left to fit again; keep some.")
    fitted = model.as_targets(y, len(y), "targets", "training")
    return RefitInputs(kept, added, X, y, fitted, weights, offsets), labels


def _weights(model: Any, made: Made, sample_weight: Any) -> FloatArray | None:
    """(N,): the weights of the training rows, those that were given anew in their places; None: all one."""
    n = model.shape[0]
    if sample_weight is None:
        return made.sample_weight
    if not hasattr(sample_weight, "items") or hasattr(sample_weight, "to_numpy"):
        inputs.refuse_other_order(model.features, sample_weight, "sample_weight")
        return inputs.as_weights(sample_weight, n)
    named, values = by_label(sample_weight, "sample_weight", "weight")
    which, rows = inputs.positions(named, model.index, "sample_weight")
    if made.sample_weight is None:
        weights = np.ones(n)
    else:
        weights = made.sample_weight.copy()
    weights[rows] = np.asarray(values, dtype=np.float64)[which]
    return inputs.as_weights(weights, n)


def _added(model: Any, made: Made, add: Any) -> RefitInputs:
    """Further rows, checked."""
    if not isinstance(add, (tuple, list)) or not 2 <= len(add) <= 4:
        raise InputError(
            "add has to be (X, y), (X, y, sample_weight) or (X, y, sample_weight, init_score)."
        )
    X, y, weights, offsets = (*add, None, None)[:4]
    for part, given in enumerate(add[1:], 1):
        inputs.refuse_other_order(X, given, f"add[{part}]", "add[0]")
    rows = inputs.as_features(X, model.adapter, "add[0]", model.features)
    model.warn_of_unseen(rows, "the rows added")
    n = rows.shape[0]
    fitted = model.as_targets(y, n, "add[1]", "added")
    if (offsets is None) != (made.init_score is None):
        if made.init_score is None:
            need = "takes none, as the fit had none"
        else:
            need = "needs one, as the fit had one"
        raise InputError(f"add has {len(add)} parts, and init_score {need}.")
    given = owned(inputs.as_array(y, "add[1]")).reshape(n, *made.y.shape[1:])
    own = inputs.as_weights(weights, n)
    return RefitInputs(
        np.zeros(0, dtype=np.intp),
        None,
        rows,
        given,
        fitted,
        own,
        None if offsets is None else inputs.as_array(offsets, "add[3]"),
    )


def _added_labels(model: Any, X: Any, n: int) -> NDArray[Any]:
    """Return the labels of added rows: of a frame its index, else numbers from N on."""
    labels = inputs.row_labels(X)
    if np.array_equal(labels, np.arange(X.shape[0])) and np.array_equal(model.index, np.arange(n)):
        return labels + n
    return labels
