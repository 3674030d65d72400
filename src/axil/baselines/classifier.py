"""A proven classifier as baselines read it: gradients and leaves of its replayed fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from axil.arrays import FloatArray, IntArray
from axil.contributions.additive_model import AdditiveModel
from axil.errors import InputError
from axil.replay.replayed_stages import Round
from axil.replay.score_checks import leaf_scores
from axil.trees.losses import Logit, Loss, Softmax


@dataclass(frozen=True)
class ClassQueries:
    """Explained rows of a classifier."""

    leaves: IntArray  #: (n, T)
    scores: FloatArray  #: (n, K) raw
    targets: FloatArray | None  #: (n, K) of 0 and 1; None: not given

    def __len__(self) -> int:
        return len(self.leaves)

    def part(self, rows: slice) -> ClassQueries:
        """The queries in a slice of the rows."""
        return ClassQueries(
            self.leaves[rows],
            self.scores[rows],
            None if self.targets is None else self.targets[rows],
        )


class FittedClassifier:
    """A boosted classifier: log-loss of two classes, softmax or one-vs-all of more. Other losses and DART are refused."""

    def __init__(self, proven: AdditiveModel):
        self.proven, self.walked = proven, proven.boosting.contributions.walked
        fit = self.walked.fit
        if not isinstance(fit.loss, (Logit, Softmax)):
            raise InputError(
                f"The model was fitted to the loss {fit.loss.name!r}; expected log-loss or softmax, or squared error. For "
                "other losses there are no baselines."
            )
        if fit.schedule.tree_shares is not None:
            raise InputError(
                "The model was fitted with DART, which drops trees and puts them back smaller; the baselines are defined for "
                "trees that are added one after the other. Ask axil.Explainer, which takes DART."
            )
        if fit.coupling_rule is not None:
            raise InputError(
                "The model was fitted with monotone constraints or path_smooth, which lead leaves by those of other rows; the "
                "baselines are defined for leaves of their own rows. Ask axil.Explainer, which takes both."
            )
        if not np.isin(self.walked.targets, (0.0, 1.0)).all():
            raise InputError(
                "y_train holds shares; expected classes, 0 and 1 for a model that has no names for them."
            )
        #: (stages,) what a step's leaf values are multiplied by at the end
        self.rates = np.zeros(len(self.walked.steps))
        for one in self.walked.rounds:
            for stage, coefficient in one.changes:
                self.rates[stage] += coefficient

    @property
    def loss(self) -> Loss:
        """The loss of the fit."""
        return self.walked.fit.loss

    @property
    def n_threads(self) -> int:
        """How many threads to use."""
        return self.proven.n_threads

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return len(self.walked.targets)

    @property
    def row_weights(self) -> FloatArray:
        """(N,): weights of the rows in the loss."""
        factors = self.walked.fit.leaf_factors
        return self.walked.weights if factors is None else self.walked.weights * factors

    def queries(self, X: Any, y: Any) -> ClassQueries:
        """Checked rows; the sums of their leaves must be the model's scores."""
        asked = self.proven.queries(X)
        self.proven.prove(asked, None)
        targets = None if y is None else self.proven.as_targets(y, len(asked), "y", "explained")
        if targets is not None and not np.isin(targets, (0.0, 1.0)).all():
            raise InputError("y holds numbers other than 0 and 1; expected classes.")
        leaves = asked.coordinates.astype(np.intp)
        return ClassQueries(leaves, leaf_scores(self.walked.fit, leaves), targets)

    def rounds(self, queries: ClassQueries) -> Iterator[tuple[Round, FloatArray, FloatArray]]:
        """The rounds of the fit, last first, with the scores of training and of explained rows before them: (N, K), (n, K).

        The arrays are changed in place from one round to the next.
        """
        w = self.walked
        rows, asked = w.score.copy(), queries.scores.copy()
        for one in w.rounds[::-1]:
            for t, k, gain in w.gains(one):
                rows[:, k] -= gain[w.leaves[t]]
            for stage, coefficient in one.changes:
                t, k, value = (
                    int(w.stage_tree[stage]),
                    int(w.stage_output[stage]),
                    w.steps[stage].value,
                )
                asked[:, k] -= coefficient * value[queries.leaves[:, t]]
            yield one, rows, asked
