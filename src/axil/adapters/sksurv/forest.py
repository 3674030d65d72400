"""scikit-survival's forests: risk scores as sums of what the events of training rows put in."""

from __future__ import annotations

import numpy as np

from axil.adapters.boosted_fit import (
    BoostedFit,
    InitialPrediction,
    LeafRule,
    Sampler,
    Schedule,
    TreeTable,
)
from axil.adapters.contract import Kind, TargetForm, TrainingRows
from axil.adapters.refusals import refusal
from axil.adapters.sklearn.base import require_no_offsets
from axil.adapters.sklearn.draws import BootstrapSampler, is_seed, sampled_rows
from axil.adapters.sklearn.trees import StackAdapter
from axil.adapters.sksurv.loss import LeafHazards
from axil.adapters.sksurv.refusals import FOREST
from axil.aliases import FeatureTable, ForeignModel, ForeignObject
from axil.arrays import FloatArray
from axil.errors import UnsupportedModelError

ABOUT = (
    "the score is the number of events that the forest expects, summed over the times of all "
    "events; censored rows put nothing into it"
)


class SurvivalForestAdapter(StackAdapter):
    """RandomSurvivalForest and ExtraSurvivalTrees; see `axil.adapters.sksurv.loss`."""

    library = "scikit-survival"
    kind = Kind.ADDITIVE
    target_form = TargetForm.TIMES
    is_written = False
    gradient_tolerance = 1e-9
    about_predictions = ABOUT

    def __init__(self, model: ForeignModel):
        self._members = list(model.estimators_)
        super().__init__(model, self._members)
        self.not_exact = refusal(FOREST, model)
        self.fitted_rows = getattr(self._model, "_n_samples", None)

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return the trees as one entry, whose leaf values are risk scores."""
        require_no_offsets(rows)
        n_trees = len(self._members)
        sampler = self._sampler(rows)
        n_leaves = self._stack.n_leaves
        counts = None
        if rows.totals.lightest > 0:
            counts = self._stack.gather("n_node_samples").astype(np.int64)
        fit = BoostedFit(
            table=TreeTable(
                n_leaves=n_leaves,
                leaf_values=self._risk_scores()[:, None] / n_trees,
                leaf_counts=counts,
                leaf_weights=self._stack.gather("weighted_n_node_samples"),
            ),
            leaf_rule=LeafRule(l2=np.ones(int(n_leaves.sum()))),
            schedule=Schedule.one_by_one(np.full(n_trees, 1 / n_trees)),
            initial=InitialPrediction(np.zeros(1)),
            loss=LeafHazards(leaves=self.leaves_of(rows).T, sampler=sampler),
            sampler=sampler,
        )
        return [fit]

    def predictions(self, X: FeatureTable) -> FloatArray:
        """Return the risk scores, (n, 1)."""
        if not X.shape[0]:
            return np.zeros((0, 1))
        return super().predictions(X)

    def _risk_scores(self) -> FloatArray:
        """Return the risk score of each leaf, (L,): its hazards summed over the times of events.

        A forest of ``low_memory=True`` has nothing else in its leaves.
        """
        values = self._stack.gather("value")
        if values.shape[1] == 1:
            return np.asarray(values[:, 0, 0], dtype=np.float64)
        hazards = values[:, np.asarray(self._model.is_event_time_), 0]
        return np.asarray(hazards.sum(axis=1), dtype=np.float64)

    def _sampler(self, rows: TrainingRows) -> Sampler | None:
        """Return the sampler that repeats the samples of the fit.

        It is None if all rows are in each tree.
        """
        model = self._model
        if not model.bootstrap:
            return None
        if rows.totals.weighted or getattr(model, "_sample_weight", None) is not None:
            raise UnsupportedModelError(
                "sample_weight",
                "given with bootstrap=True",
                "whether weights count in the sampling or in the leaves depends on the version",
                "Fit with bootstrap=False, or without sample_weight.",
            )
        seeds: list[ForeignObject] = [
            getattr(member, "random_state", None) for member in self._members
        ]
        name = f"the samples of scikit-survival's {type(model).__name__}"
        n_rows = rows.totals.n_rows
        if not all(is_seed(seed) for seed in seeds):
            seeds = []
        n_drawn = int(self._members[0].tree_.weighted_n_node_samples[0])
        return BootstrapSampler(
            name, n_rows, lambda: sampled_rows(model), None, seeds or None, n_drawn
        )
