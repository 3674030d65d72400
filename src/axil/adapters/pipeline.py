"""Pipelines: the transformers are applied, the last step is explained."""

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
from typing import Any

import numpy as np

from axil.adapters.boundary import TAKES_ROWS, Around
from axil.adapters.contract import TrainingRows
from axil.adapters.searches import inside_of, is_calibrated, is_calibrated_ensemble, unwrapped
from axil.errors import UnsupportedModelError


class PipelineAdapter(Around):
    """The adapter of a pipeline's last step, with rows transformed on their way to it.

    A transformer is held fixed as the trees' splits are; one that needs the targets to make its features (a target encoder)
    is refused, since the features would move with them. Selecting columns by the targets is like a split.
    """

    def __init__(self, pipeline: Any, last: Any):
        # Copied: a pipeline that is fitted again fits these very transformers.
        before = [step for _, step in pipeline.steps[:-1] if _first_fitted(step) is not None]
        self._steps = copy.deepcopy(pipeline[:-1]) if before else None
        self._inside = last
        for transformer in transformers(self._steps):
            if uses_targets(transformer):
                raise UnsupportedModelError(
                    "transformer",
                    type(transformer).__name__,
                    "its fit needs the targets, so the features that it makes would move with them",
                    "Encode without the targets (OneHotEncoder, OrdinalEncoder). Or explain the last step with the features of "
                    "its fit held fixed, which transformers make again unless they shuffle without a seed:\n"
                    "    Z = sklearn.base.clone(model[:-1]).fit_transform(X, y)\n    axil.Explainer(model[-1], Z, y)",
                    "(ii)",
                )
        first = _first_fitted(pipeline)
        names = getattr(first, "feature_names_in_", None)
        self.feature_names: list[str] | None = (
            None if names is None else [str(name) for name in names]
        )
        self.n_features = _width(first)
        self.takes_text = True
        self.fingerprint = fingerprint(last, self._steps)

    @property
    def trees(self) -> Callable[[TrainingRows], Any]:
        """The reader of the last step's trees; a property, so that a smoother has none."""
        read = self._inside.trees

        def transformed(rows: TrainingRows) -> Any:
            if not rows.at_hand or rows.X is None or self._steps is None:
                return read(rows)
            return self.through(lambda X: read(replace(rows, X=X)), rows.X)

        return transformed

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        return partial(self.through, found) if name in TAKES_ROWS else found

    def through(self, method: Callable[..., Any], X: Any, *arguments: Any) -> Any:
        """Call a method of the last step's adapter with transformed rows."""
        if X.shape[0] == 0:  # transformers want at least one row
            return method(np.zeros((0, self._inside.n_features)), *arguments)
        if self._steps is None:
            return method(X, *arguments)
        with (
            warnings.catch_warnings()
        ):  # those of the transformers, which came with the fit already
            warnings.simplefilter("ignore")
            transformed = self._steps.transform(X)
        return method(transformed, *arguments)

    def spelling(self, name: str) -> str:
        """scikit-learn keeps names as they are."""
        return name


def _first_fitted(step: Any) -> Any:
    """The first step that was fitted; "passthrough" and None, also in pipelines of their own, hand columns on unseen."""
    if not _is_pipeline(step):
        return None if isinstance(step, str) else step
    return next(
        (found for _, inside in step.steps if (found := _first_fitted(inside)) is not None), None
    )


def _width(step: Any) -> int:
    """How many columns the first fitted step takes, by its own account or by the names that it knows."""
    found = getattr(step, "n_features_in_", None)
    if found is None and hasattr(step, "feature_names_in_"):
        found = len(step.feature_names_in_)
    if found is None:
        raise UnsupportedModelError(
            "transformer",
            type(step).__name__,
            "it does not say how many columns it was fitted on (n_features_in_)",
            "Set n_features_in_ in its fit, or transform first and explain the last step.",
        )
    return int(found)


def last_step(model: Any) -> Any:
    """The last step of a fitted pipeline, None for any other object."""
    return unwrapped(model.steps[-1][1]) if _is_pipeline(model) else None


def _is_pipeline(model: Any) -> bool:
    return "sklearn.pipeline" in sys.modules and isinstance(
        model, sys.modules["sklearn.pipeline"].Pipeline
    )


def calibrates(model: Any) -> bool:
    """Whether a classifier, or the last step of a pipeline, is calibrated."""
    if is_calibrated(model) or is_calibrated_ensemble(model):
        return True
    inside = inside_of(model)
    if inside is not None:
        return calibrates(inside[1])
    return last_step(model) is not None and calibrates(model.steps[-1][1])


Reader = Callable[
    [Any], Any
]  # from a model to its adapter, None for an object that it does not know
TREES = ("lightgbm", "xgboost", "catboost", "sklearn")  # libraries of trees


def library_readers(libraries: Iterable[str], **options: Any) -> list[Reader]:
    """Return ``read`` of each `axil.adapters.<library>.adapter` whose library is loaded, with these options.

    The module is imported when its reader is first called.
    """
    return [partial(_read, library, options) for library in libraries if library in sys.modules]


def _read(library: str, options: dict[str, Any], model: Any) -> Any:
    return import_module(f"axil.adapters.{library}.adapter").read(model, **options)


def search(model: Any, readers: list[Reader], together: str = "") -> Any:
    """Return the adapter of the first reader that knows a model, or the last step of a pipeline; None: no one knows it.

    Searches over settings are looked into, wherever they are. ``together`` names the module for scikit-learn that reads models of
    several others, whose members are searched for in the same way.
    """
    inside = inside_of(model)
    if inside is not None:
        found = search(inside[1], readers, together)
        if found is not None and is_calibrated(model):
            import_module("axil.adapters.sklearn.calibration").calibrate(found, model)
        return found
    if last_step(model) is not None:
        inner = search(model.steps[-1][1], readers, together)
        return None if inner is None else PipelineAdapter(model, inner)
    found = next((found for read in readers if (found := read(model)) is not None), None)
    if found is not None or not together or "sklearn" not in sys.modules:
        return found
    reader = import_module(f"axil.adapters.sklearn.{together}")
    return reader.read(model, lambda member: search(member, readers, together))


def fingerprint(last: Any, steps: Any) -> str:
    """Digest of the last step and of what its transformers have learnt."""
    from axil.adapters.digests import (
        digest,
    )  # joblib comes with scikit-learn, which has made the steps

    return hashlib.sha256(f"{last.fingerprint} {digest(steps)}".encode()).hexdigest()


def transformers(step: Any) -> Iterator[Any]:
    """All fitted transformers inside a pipeline, a column transformer or a union, and the step itself."""
    inner = (
        getattr(step, "steps", None)
        or getattr(step, "transformers_", None)
        or getattr(step, "transformer_list", None)
    )
    if not inner:
        if step is not None and not isinstance(step, str):
            yield step
        return
    # A mapping from columns to transformers is skrub's way, lists of (name, transformer, ...) are scikit-learn's.
    for part in inner.values() if isinstance(inner, Mapping) else (part[1] for part in inner):
        yield from transformers(part)


def uses_targets(transformer: Any) -> bool:
    """Whether its output is a function of the targets, beyond which columns it keeps, by its tags or as its fit demands them."""
    from sklearn import utils

    if callable(getattr(transformer, "get_support", None)):  # keeps some columns as they are
        return False
    try:
        demanded = signature(transformer.fit).parameters["y"].default is Parameter.empty
    except (
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
    ):  # no fit, none that takes targets, or one of C
        demanded = False
    if demanded or not hasattr(transformer, "get_params"):
        return demanded
    if hasattr(utils, "get_tags"):
        return bool(utils.get_tags(transformer).target_tags.required)
    return bool(transformer._get_tags()["requires_y"])  # before scikit-learn 1.6
