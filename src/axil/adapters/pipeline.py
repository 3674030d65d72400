"""Pipelines: the transformers are applied.

The last step is explained, or written with other leaves.
"""

from __future__ import annotations

import copy
import hashlib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from inspect import Parameter, signature
from types import ModuleType
from typing import Any

import numpy as np

from axil.adapters.boundary import TAKES_ROWS, Around
from axil.adapters.contract import Model, TrainingRows
from axil.adapters.searches import (
    CALIBRATED,
    inside_of,
    is_calibrated,
    is_calibrated_ensemble,
    kinds_of,
    own_threshold,
    unwrapped,
)
from axil.aliases import FeatureTable, ForeignModel, ForeignObject
from axil.errors import UnsupportedModelError, UnsupportedQuestionError
from axil.machine.forks import after_fork


class PipelineAdapter(Around):
    """The adapter of a pipeline's last step, with rows transformed on their way to it.

    A transformer is held fixed as the trees' splits are; one that needs the targets to make its
    features (a target encoder) is refused, since the features would move with them. Selecting
    columns by the targets is like a split.
    """

    def __init__(self, pipeline: ForeignModel, last: ForeignModel):
        has_transformers = any(_first_fitted(step) is not None for _, step in pipeline.steps[:-1])
        self._steps = None
        if has_transformers:  # copied: a pipeline that is fitted again fits these very transformers
            self._steps = copy.deepcopy(pipeline[:-1])
        self.transforms_columns = self._steps is not None
        self._inside = last
        for transformer in transformers(self._steps):
            if uses_targets(transformer):
                raise UnsupportedModelError(
                    "transformer",
                    type(transformer).__name__,
                    "its fit uses the targets, so its features would change with them",
                    "Encode without the targets (OneHotEncoder, OrdinalEncoder). Or explain the "
                    "last step, with its features fixed. Transformers make these features again "
                    "unless they shuffle without a seed:\n    Z = "
                    "sklearn.base.clone(model[:-1]).fit_transform(X, y)\n    "
                    "axil.Explainer(model[-1], Z, y)",
                    "(ii)",
                )
        first = _first_fitted(pipeline)
        names = getattr(first, "feature_names_in_", None)
        self.feature_names: list[str] | None = None
        if names is not None:
            self.feature_names = [str(name) for name in names]
        self.n_features = _n_columns(first)
        self.takes_text = True
        self.fingerprint = fingerprint(last, self._steps)

    @property
    def trees(self) -> Callable[[TrainingRows], Any]:
        """The reader of the last step's trees.

        It is a property, so that a smoother has none.
        """
        read = self._inside.trees

        def transformed(rows: TrainingRows) -> ForeignObject:
            if not rows.at_hand or rows.X is None or self._steps is None:
                return read(rows)
            return self.through(lambda X: read(replace(rows, X=X)), rows.X)

        return transformed

    def __getattr__(self, name: str) -> ForeignObject:
        """Return a member of the last step's adapter; one that takes rows gets transformed rows."""
        attribute = super().__getattr__(name)
        if name in TAKES_ROWS:
            return partial(self.through, attribute)
        return attribute

    def through(
        self, method: Callable[..., Any], X: FeatureTable, *arguments: Any
    ) -> ForeignObject:
        """Call a method of the last step's adapter with transformed rows."""
        if X.shape[0] == 0:  # transformers want at least one row
            return method(np.zeros((0, self._inside.n_features)), *arguments)
        if self._steps is None:
            return method(X, *arguments)
        with warnings.catch_warnings():  # transformers have warned in the fit already
            warnings.simplefilter("ignore")
            transformed = self._steps.transform(X)
        return method(transformed, *arguments)

    def spelling(self, name: str) -> str:
        """Return the name unchanged, as scikit-learn keeps it."""
        return name


def _first_fitted(step: ForeignModel) -> ForeignModel:
    """Return the first step that was fitted; None if there is none.

    "passthrough" and None, also in pipelines of their own, hand columns on unseen.
    """
    if not _is_pipeline(step):
        if isinstance(step, str):
            return None
        return step
    for _, inner_step in step.steps:
        first = _first_fitted(inner_step)
        if first is not None:
            return first
    return None


def _n_columns(step: ForeignModel) -> int:
    """Return how many columns the first fitted step takes, by its number or its names."""
    n_columns = getattr(step, "n_features_in_", None)
    if n_columns is None and hasattr(step, "feature_names_in_"):
        n_columns = len(step.feature_names_in_)
    if n_columns is None:
        raise UnsupportedModelError(
            "transformer",
            type(step).__name__,
            "it does not say how many columns it was fitted on (n_features_in_)",
            "Set n_features_in_ in its fit, or transform first and explain the last step.",
        )
    return int(n_columns)


def last_step(model: ForeignModel) -> ForeignModel:
    """Return the last step of a fitted pipeline, None for any other object."""
    if _is_pipeline(model):
        return unwrapped(model.steps[-1][1])
    return None


def _is_pipeline(model: object) -> bool:
    pipeline = sys.modules.get("sklearn.pipeline")
    return pipeline is not None and isinstance(model, pipeline.Pipeline)


def calibrates(model: ForeignModel) -> bool:
    """Return whether a classifier, or the last step of a pipeline, is calibrated."""
    if is_calibrated(model) or is_calibrated_ensemble(model):
        return True
    inside = inside_of(model)
    if inside is not None:
        return calibrates(inside[1])
    return last_step(model) is not None and calibrates(model.steps[-1][1])


#: returns the adapter of a model, None for an object that it does not know
Reader = Callable[[ForeignObject], ForeignObject]
TREES = ("lightgbm", "xgboost", "catboost", "sksurv", "sklearn")  # libraries of trees


def library_readers(libraries: Iterable[str], **options: Any) -> list[Reader]:
    """Return ``read`` of each `axil.adapters.<library>.adapter` whose library is loaded.

    Readers get these options. The module is imported when its reader is first called.
    """
    return [partial(_read, library, options) for library in libraries if library in sys.modules]


def _read(library: str, options: dict[str, Any], model: ForeignModel) -> ForeignObject:
    read: Reader = import_module(f"axil.adapters.{library}.adapter").read
    return after_fork(read, model, **options)


def state_threshold(adapter: Model, model: ForeignModel) -> None:
    """Add to what an adapter says of its predictions that a threshold of the model is left out.

    A threshold inside a calibrated classifier has no effect on the class, and "auto" is that of the
    classifier inside.
    """
    while "CalibratedClassifierCV" not in kinds_of(model):
        threshold = own_threshold(model)
        if threshold == "auto":
            return
        if threshold is not None:
            text = (
                f"the predicted class is that of largest probability, without the threshold "
                f"{threshold:.6g} of {type(model).__name__}"
            )
            adapter.about_predictions = "; ".join(filter(None, (adapter.about_predictions, text)))
            return
        inside = inside_of(model)
        if inside is not None:
            model = inside[1]
        elif _is_pipeline(model):
            model = model.steps[-1][1]
        else:
            return


def search(model: ForeignModel, readers: list[Reader], together: str = "") -> ForeignObject:
    """Return the adapter of the first reader that accepts a model, or the last step of a pipeline.

    None: no one knows it.

    Searches over settings are looked into, wherever they are. ``together`` names the module for
    scikit-learn that reads models of several others, whose members are searched for in the same
    way.
    """
    inside = inside_of(model)
    if inside is not None:
        adapter = search(inside[1], readers, together)
        if adapter is not None and is_calibrated(model):
            import_module("axil.adapters.sklearn.calibration").calibrate(adapter, model)
        return adapter
    if last_step(model) is not None:
        adapter = search(model.steps[-1][1], readers, together)
        if adapter is None:
            return None
        return PipelineAdapter(model, adapter)
    for read in readers:
        adapter = read(model)
        if adapter is not None:
            return adapter
    if not together or "sklearn" not in sys.modules:
        return None
    reader = import_module(f"axil.adapters.sklearn.{together}")
    return reader.read(model, lambda member: search(member, readers, together))


def fingerprint(last: Model, steps: Any) -> str:
    """Return a digest of the last step and of its fitted transformers."""
    # It needs joblib, which comes with scikit-learn, which has made the steps.
    from axil.adapters.digests import digest

    return hashlib.sha256(f"{last.fingerprint} {digest(steps)}".encode()).hexdigest()


def transformers(step: ForeignModel) -> Iterator[Any]:
    """Return all fitted transformers inside a step of a pipeline, and the step itself."""
    lists = (getattr(step, name, None) for name in ("steps", "transformers_", "transformer_list"))
    inner = next((steps for steps in lists if steps), None)
    if inner is None:
        if step is not None and not isinstance(step, str):
            yield step
        return
    if isinstance(inner, Mapping):  # from columns to transformers, as in skrub
        inner_steps = list(inner.values())
    else:  # (name, transformer, ...), as in scikit-learn
        inner_steps = [entry[1] for entry in inner]
    for inner_step in inner_steps:
        yield from transformers(inner_step)


def uses_targets(transformer: ForeignModel) -> bool:
    """Return whether the output of a transformer depends on the targets by more than column choice.

    Its tags say so, or its fit demands targets.
    """
    from sklearn import utils

    if callable(getattr(transformer, "get_support", None)):  # keeps some columns as they are
        return False
    if _demands_targets(transformer):
        return True
    if not hasattr(transformer, "get_params"):
        return False
    if hasattr(utils, "get_tags"):
        return bool(utils.get_tags(transformer).target_tags.required)
    return bool(transformer._get_tags()["requires_y"])  # before scikit-learn 1.6


def _demands_targets(transformer: ForeignModel) -> bool:
    """Return whether the fit of a transformer requires targets."""
    try:
        return signature(transformer.fit).parameters["y"].default is Parameter.empty
    except (AttributeError, KeyError, TypeError, ValueError):  # no fit, no targets, or one of C
        return False


# -- models with other leaves ---------------------------------------------------------------------


def rewritten(
    model: ForeignModel, make: Callable[[Any, Any], Any], X: FeatureTable = None
) -> ForeignModel:
    """Return a copy of the model with another fitted model inside; everything else is fixed.

    Parameters
    ----------
    model : object
        A fitted model, or a search, a pipeline or a model with transformed targets around one.
    make : callable
        ``make(inside, rows)`` returns the other model, from the one inside and the rows as they
        reach it.
    X : array or table, optional
        The rows.
    """
    inside = inside_of(model)
    if inside is not None:
        name, fitted = inside
        new = rewritten(fitted, make, X)
        return _with_attribute(model, name, [new] if name == CALIBRATED else new)
    if last_step(model) is not None:
        rows = X
        if X is not None and len(model.steps) > 1:
            rows = model[:-1].transform(X)
        *first, (name, last) = model.steps
        return _with_attribute(model, "steps", [*first, (name, rewritten(last, make, rows))])
    if hasattr(model, "regressor_") and hasattr(model, "transformer_"):
        return _with_attribute(model, "regressor_", rewritten(model.regressor_, make, X))
    return make(model, X)


def _with_attribute(model: ForeignModel, name: str, value: ForeignObject) -> ForeignModel:
    """Return a copy of the model with another value of an attribute."""
    copied = copy.copy(model)
    setattr(copied, name, value)
    return copied


def writer(model: object) -> ModuleType:
    """Return the module that writes models of this one's library."""
    names = [kind.__module__.split(".")[0] for kind in type(model).__mro__]
    library = next((name for name in TREES if name in names), None)
    if library is None:
        raise UnsupportedQuestionError(
            "refit",
            f"models of {names[0]} are not written",
            "Ask explainer.without(X, rows) or what_if(X, targets).",
        )
    return import_module(f"axil.adapters.{library}.writer")
