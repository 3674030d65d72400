"""Arrays of an explanation, as users read them: read-only, and where the explained rows were."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from axil.arrays import FloatArray
from axil.errors import InputError
from axil.inputs import chosen_columns, feature_columns
from axil.inputs.copies import frozen
from axil.machine.threads import Kept
from axil.output.predictions import WeightedSums
from axil.scale import TargetScale


def queries_first(weights: Any) -> Any:
    """Weights (n, N), or (K, n, N) as (n, K, N)."""
    return np.swapaxes(weights, 0, 1) if weights.ndim == 3 else weights


@dataclass(frozen=True, eq=False, repr=False)
class Arrays:
    """Everything about n predictions that is an array or a word; `Explanation` adds tables and the page."""

    _sums: WeightedSums
    _module: str = "numpy"  # of the arrays: cupy's where the rows were
    _copies: Kept = field(default_factory=Kept)

    def __len__(self) -> int:
        return len(self.query_index)

    def _given(self, name: str, array: Any) -> Any:
        """An array where the explained rows were, copied once; sparse ones stay."""
        if self._module == "numpy" or not isinstance(array, np.ndarray):
            return array
        return self._copies.get(name, lambda: import_module(self._module).asarray(array))

    @property
    def weights(self) -> Any:
        """(n, n_train), or (n, K, n_train) where outputs have their own: the weight of each target; scipy.sparse where asked for.

        Derivatives by the targets unless ``exact``; of an additive explanation they are computed now, and once.
        """
        return self._given("weights", queries_first(self._sums.derived.weights))

    @property
    def intercepts(self) -> FloatArray:
        """(n,) or (n, K): what no target makes: a constant base, offsets."""
        return cast(FloatArray, self._given("intercepts", self._sums.intercepts))

    @property
    def targets(self) -> FloatArray:
        """(n_train,) or (n_train, K): the training targets, on the scale of the fit; one-hot for classes."""
        return self._sums.labels

    @property
    def index(self) -> NDArray[Any]:
        """(n_train,): the labels of the training rows."""
        return self._sums.index

    @property
    def query_index(self) -> NDArray[Any]:
        """(n,): the labels of the explained rows."""
        return self._sums.query_index

    @property
    def exact(self) -> bool:
        """Whether the weights decompose the prediction, not only differentiate it.

        False of an additive explanation too: its contributions are exact, but they are not weights times targets.
        """
        return self._sums.kind == "exact"

    @property
    def kind(self) -> str:
        """ "exact" (weights decompose), "additive" (pushes do) or "derivative" (derivatives alone), as `axil.supports` has it."""
        return self._sums.kind

    @property
    def probabilities(self) -> FloatArray | None:
        """(n,) or (n, K): what the link makes of the scores of an additive explanation; None where there is no link.

        Probabilities of classes (of the second of two), or the expected value of a Poisson, gamma or Tweedie target. Of a
        calibrated classifier of exact weights the calibrated probabilities.
        """
        if not self._sums.meant:
            return None
        (means,) = self._sums.meant.values()
        return means[:, 0].copy() if self.outputs is None else means.copy()

    @property
    def meaning(self) -> str:
        """The name of `probabilities`: "probability" or "mean"; "" where there are none."""
        if self._sums.account is not None:
            return self._sums.account.meaning
        return next(iter(self._sums.meant), "")

    @property
    def outputs(self) -> NDArray[Any] | None:
        """(K,): numbers of the outputs or names of the classes; None for one output."""
        return self._sums.outputs

    @property
    def predictions(self) -> FloatArray:
        """(n,) or (n, K): ``weights @ targets + intercepts``, the model's own predictions, on the scale of the fit.

        Of an additive explanation ``contributions.sum(axis=-1) + intercepts``, the model's raw scores.
        """
        return cast(FloatArray, self._given("predictions", self._sums.predictions))

    @property
    def scale(self) -> TargetScale:
        """The scale of the fit; ``scale.inverse`` leads from it to the targets' own units."""
        return self._sums.scale

    @property
    def feature_names(self) -> list[str]:
        """The names of the features, in their order; empty where the explanation keeps no features."""
        return [] if self._sums.context is None else self._sums.context.names()

    def column(self, name: Any) -> tuple[NDArray[Any] | None, NDArray[Any]]:
        """One feature: its values in the training rows (n_train,), and in the explained rows (n,).

        None takes the place of the first where the explainer was loaded from a file, which keeps no features. Sums of
        predictions (`Explainer.combine`) have None for every one.

        Parameters
        ----------
        name : str or int
            The feature, by name or position.
        """
        context = self._sums.context
        if context is None:
            raise InputError(
                "The explanation keeps no features; expected one that an explainer made: explainer(X)."
            )
        (place,) = chosen_columns([name], context.names(), "name")
        (own,) = context.columns([place], len(self))
        if context.X_train is None:
            return None, own
        return feature_columns(context.X_train, np.arange(len(self.targets)), [place])[0], own

    @property
    def contributions(self) -> Any:
        """(n, n_train) or (n, K, n_train): ``weights * targets``, or pushes; their sums and intercepts are the predictions.

        Of several outputs that share sparse weights a list, one for each output.
        """
        if self._sums.additive:
            return self._given("contributions", queries_first(self._sums.weights))
        parts = [
            weights.multiply(y).tocsr() if issparse(weights) else weights * y
            for weights, y in self._sums.by_output()
        ]
        if self.outputs is not None and issparse(self._sums.weights):
            return parts
        return self._given(
            "contributions", parts[0] if self.outputs is None else np.stack(parts, axis=1)
        )

    @property
    def values(self) -> Any:
        """(n, n_train) or (n, n_train, K): `contributions` by the name and in the order of axes that shap has."""
        found = self.contributions
        return (
            found if self.outputs is None or isinstance(found, list) else np.moveaxis(found, 1, -1)
        )

    @property
    def base_values(self) -> FloatArray:
        """(n,) or (n, K): `intercepts` by the name that shap has."""
        return self.intercepts

    @property
    def data(self) -> NDArray[Any]:
        """(n_train,) or (n_train, K): what `values` are of, the training targets as people read them; of classes their names."""
        return frozen(self._sums.named)

    @property
    def effective_size(self) -> FloatArray:
        """(n,) or (n, K): ``(sum |k|)^2 / sum k^2``, how many rows of equal weight each prediction rests on; 0 on none."""
        return self._sums.effective_size.T

    @property
    def negative_share(self) -> FloatArray:
        """(n,) or (n, K): the share of negative weights in ``sum |k|``, from 0 to 1; it grows with the number of trees."""
        return self._sums.negative_share.T
