"""Give users the arrays of an explanation: read-only, and on the device of the explained rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, cast

import numpy as np
from scipy.sparse import issparse

from axil.arrays import AnyArray, FloatArray
from axil.errors import InputError
from axil.inputs import chosen_columns, feature_columns
from axil.inputs.copies import frozen
from axil.machine.threads import Cache
from axil.output.predictions import WeightedSums
from axil.scale import TargetScale


def queries_first(weights: Any) -> Any:
    """Return weights with the explained rows first: (n, N), or (n, K, N) from (K, n, N)."""
    if weights.ndim == 3:
        return np.swapaxes(weights, 0, 1)
    return weights


@dataclass(frozen=True, eq=False, repr=False)
class Arrays:
    """The arrays and words of n predictions; `Explanation` adds tables and the page."""

    _sums: WeightedSums
    _module: str = "numpy"  # of the arrays: cupy's where the rows were
    _copies: Cache = field(default_factory=Cache)

    def __len__(self) -> int:
        return len(self.query_index)

    def _on_device(self, name: str, array: Any) -> Any:
        """Return an array on the device of the explained rows, copied once; sparse arrays stay."""
        if self._module == "numpy" or not isinstance(array, np.ndarray):
            return array
        return self._copies.get(name, lambda: import_module(self._module).asarray(array))

    @property
    def weights(self) -> Any:
        """The weights of the targets, (n, n_train), or (n, K, n_train) if outputs have their own.

        They are sparse if you asked for that. Unless ``exact`` they are derivatives by the targets,
        which an additive explanation computes once.
        """
        return self._on_device("weights", queries_first(self._sums.derived.weights))

    @property
    def intercepts(self) -> FloatArray:
        """The part that does not depend on targets, (n,) or (n, K).

        It consists of an initial prediction and offsets.
        """
        return cast(FloatArray, self._on_device("intercepts", self._sums.intercepts))

    @property
    def targets(self) -> FloatArray:
        """The training targets on the scale of the fit, (n_train,) or (n_train, K).

        Classes are one-hot.
        """
        return self._sums.labels

    @property
    def index(self) -> AnyArray:
        """The labels of the training rows, (n_train,)."""
        return self._sums.index

    @property
    def query_index(self) -> AnyArray:
        """The labels of the explained rows, (n,)."""
        return self._sums.query_index

    @property
    def exact(self) -> bool:
        """Whether the weights decompose the prediction, and do not only differentiate it.

        It is also False for an additive explanation, whose contributions are exact but not weights
        times targets.
        """
        return self._sums.kind == "exact"

    @property
    def kind(self) -> str:
        """The kind that `axil.supports` has.

        It is "exact" for weights, "additive" for contributions, or "derivative".
        """
        return self._sums.kind

    @property
    def probabilities(self) -> FloatArray | None:
        """The probabilities or means of an additive explanation, (n,) or (n, K).

        These are probabilities of classes (of the second of two), or expected values of a Poisson,
        gamma or Tweedie target. Without a link they are None. A calibrated classifier with exact
        weights has its calibrated probabilities here.
        """
        if not self._sums.meant:
            return None
        (means,) = self._sums.meant.values()
        return (means[:, 0] if self.outputs is None else means).copy()

    @property
    def meaning(self) -> str:
        """The name of `probabilities`: "probability" or "mean", or "" without any."""
        if self._sums.account is not None:
            return self._sums.account.meaning
        return next(iter(self._sums.meant), "")

    @property
    def outputs(self) -> AnyArray | None:
        """The numbers of the outputs or names of the classes, (K,); None for one output."""
        return self._sums.outputs

    @property
    def predictions(self) -> FloatArray:
        """The model's predictions on the scale of the fit, (n,) or (n, K).

        They are ``weights @ targets + intercepts``. For an additive explanation these are the raw
        scores, ``contributions.sum(axis=-1) + intercepts``.
        """
        return cast(FloatArray, self._on_device("predictions", self._sums.predictions))

    @property
    def scale(self) -> TargetScale:
        """The scale of the fit; ``scale.inverse`` returns numbers in the targets' own units."""
        return self._sums.scale

    @property
    def feature_names(self) -> list[str]:
        """The names of the features in their order; empty if the explanation keeps no features."""
        if self._sums.context is None:
            return []
        return self._sums.context.names()

    def column(self, name: Any) -> tuple[AnyArray | None, AnyArray]:
        """Return one feature of the training rows (n_train,), and of the explained rows (n,).

        The first is None if the explainer was loaded from a file, which keeps no features. For sums
        of predictions (`Explainer.aggregate`) every value is None.

        Parameters
        ----------
        name : str or int
            The feature, by name or position.
        """
        context = self._sums.context
        if context is None:
            raise InputError(
                "The explanation keeps no features; expected one that an explainer made: "
                "explainer(X)."
            )
        (place,) = chosen_columns([name], context.names(), "name")
        (explained,) = context.columns([place], len(self))
        if context.X_train is None:
            return None, explained
        (trained,) = feature_columns(context.X_train, np.arange(len(self.targets)), [place])
        return trained, explained

    @property
    def contributions(self) -> Any:
        """The contributions of training rows, (n, n_train) or (n, K, n_train).

        These and the intercepts sum to scores. For an exact explanation they are ``weights *
        targets``. Several outputs that share sparse weights have a list with one array per output.
        """
        if self._sums.additive:
            return self._on_device("contributions", queries_first(self._sums.weights))
        is_sparse = issparse(self._sums.weights)
        by_output = []
        for weights, targets in self._sums.by_output():
            by_output.append(weights.multiply(targets).tocsr() if is_sparse else weights * targets)
        if self.outputs is None:
            return self._on_device("contributions", by_output[0])
        if is_sparse:
            return by_output
        return self._on_device("contributions", np.stack(by_output, axis=1))

    @property
    def values(self) -> Any:
        """`contributions` by shap's name and in shap's order of axes.

        The shape is (n, n_train) or (n, n_train, K).
        """
        contributions = self.contributions
        if self.outputs is None or isinstance(contributions, list):
            return contributions
        return np.moveaxis(contributions, 1, -1)

    @property
    def base_values(self) -> FloatArray:
        """`intercepts` by shap's name, (n,) or (n, K)."""
        return self.intercepts

    @property
    def data(self) -> AnyArray:
        """The training targets of `values` in the user's units, (n_train,) or (n_train, K).

        Classes are names.
        """
        return frozen(self._sums.named)

    @property
    def effective_size(self) -> FloatArray:
        """The number of rows of equal weight that a prediction rests on, (n,) or (n, K).

        It is ``(sum |k|)^2 / sum k^2``.
        """
        return self._sums.effective_size.T

    @property
    def negative_share(self) -> FloatArray:
        """The share of negative weights in ``sum |k|``, from 0 to 1, (n,) or (n, K).

        It grows with the number of trees.
        """
        return self._sums.negative_share.T
