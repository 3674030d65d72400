"""TargetChanges: the fit of a verified model to other targets, and derivatives by its targets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from axil import inputs
from axil.aliases import ArrayLike
from axil.arrays import FloatArray, IntArray
from axil.errors import InputError, UnsupportedQuestionError
from axil.machine.threads import Cache
from axil.replay.queries import QueryBatch
from axil.replay.walk import round_to
from axil.weights.engine import across, all_structures, by_output
from axil.weights.fit_rules import rule_of

if TYPE_CHECKING:
    from axil.replay.exact_model import ExactModel


class TargetChanges(ABC):
    """The fit to other targets of the training rows, with the tree structure fixed."""

    @abstractmethod
    def as_targets(self, values: ArrayLike, n: int, name: str, rows: str) -> FloatArray:
        """Return targets, or classes, that the user gives on the scale of the fit, (n, K).

        Parameters
        ----------
        values : array of shape (n,) or (n, K)
        n : int
        name, rows : str
            The parameter that they come from and the word for its rows, for messages.
        """

    def as_counted(self, targets: FloatArray, rows: IntArray) -> FloatArray:
        """Return new targets of these training rows as the fit uses them, (n, K).

        Raise for targets of outputs of which a row had none.
        """
        return targets

    @abstractmethod
    def moved(self, queries: QueryBatch, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return predictions, and their changes with other training targets (N, K), (n, K)."""

    @abstractmethod
    def loss_slopes(self, queries: QueryBatch, y: FloatArray) -> FloatArray:
        """Return the derivatives of the losses of explained rows by their scores, (n, K).

        The score is compared with the model's own.
        """

    @abstractmethod
    def pulled_back(self, queries: QueryBatch, u: FloatArray) -> FloatArray:
        """Return J'u, (N, K), for u (n, K).

        J are the derivatives of the scores of the explained rows by the targets: K for squared
        error.
        """


@dataclass(frozen=True, eq=False)
class ExactTargetChanges(TargetChanges):
    """Other targets of a model whose predictions are weighted sums of them."""

    model: ExactModel

    def as_targets(self, values: ArrayLike, n: int, name: str, rows: str) -> FloatArray:
        model = self.model
        targets = inputs.as_targets(
            values,
            n,
            model.shape[1],
            inputs.coding_of(model.adapter),
            name,
            rows,
            model.adapter.repeats_targets,
            model.missing is not None,
        )
        return model.scale.checked_forward(targets, name)

    def as_counted(self, targets: FloatArray, rows: IntArray) -> FloatArray:
        missing = self.model.missing
        if missing is None:
            return targets
        for i, output in np.argwhere(np.isnan(targets) != missing[rows])[:1]:
            new_target = f"{targets[i, output]:.6g}"
            old_target = "a target"
            if missing[rows[i], output]:
                old_target = "no target"
            raise InputError(
                f"targets holds {new_target} for output {output} of row "
                f"{self.model.index[rows[i]]}, which had {old_target} there in the fit. Which "
                "targets are missing is fixed: pass nan for those, and numbers for all others."
            )
        return np.nan_to_num(targets)

    def moved(self, queries: QueryBatch, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
        model = self.model
        change_of_targets = targets - model.targets
        if model.adapter.weighs_classes and change_of_targets.any():
            raise UnsupportedQuestionError(
                "what_if",
                "class_weight gives a row the weight of its class, and balanced weights count all "
                "classes again",
                "Multiply weights by changes of the one-hot classes, which holds the row weights "
                "of the fit: explainer(X).weights @ changes. Or fit the model to the other "
                "classes.",
            )
        before = model.predicted(queries)  # which compares them with the model
        if self._keeps_active_set(change_of_targets):
            coordinates = queries.coordinates
            base = queries.offsets.base
            change = across(
                model.engines,
                change_of_targets,
                lambda engine, columns: engine.matvec(coordinates, columns, base),
            )
        else:
            change = self._refit(targets).predicted(queries) - before
        return queries.predictions, change

    def _refit(self, targets: FloatArray) -> ExactModel:
        """Return the fit to other targets, (N, K), with an active set of its own."""
        # The library's own numbers decide ties.
        rounded_targets = round_to(self.model.adapter.rounding.targets, targets)
        engines = [
            engine.with_targets(columns)
            for engine, columns in by_output(self.model.engines, rounded_targets)
        ]
        return replace(
            self.model, engines=engines, targets=targets, verification=None, kept=Cache()
        )

    def _keeps_active_set(self, change_of_targets: FloatArray) -> bool:
        """Return whether a fit to other targets certainly has the same active set, or none."""
        if not any(rule_of(s).has_active_set for s in all_structures(self.model.engines)):
            return True
        verification = self.model.verification
        if verification is None or verification.active_set is None:
            return False
        return float(np.abs(change_of_targets).sum()) < verification.active_set.radius

    def loss_slopes(self, queries: QueryBatch, y: FloatArray) -> FloatArray:
        return 2.0 * (self.model.predicted(queries) - y)

    def pulled_back(self, queries: QueryBatch, u: FloatArray) -> FloatArray:
        coordinates = queries.coordinates
        base = queries.offsets.base
        return across(
            self.model.engines,
            u,
            lambda engine, columns: engine.rmatvec(coordinates, columns, base),
        )
