"""LeafInfluence: the derivative of a prediction by every training row's weight, through all leaf values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np

from axil.adapters.contract import Adapter
from axil.arrays import FloatArray
from axil.attribution import WEIGHTS
from axil.baselines.class_gradients import add_leaf_influence
from axil.baselines.classifier import ClassQueries, FittedClassifier
from axil.baselines.tree_baselines import Batch, TreeBaseline, add_effects
from axil.errors import UnsupportedQuestionError
from axil.weights.boosting import BoostedTrees
from axil.weights.residuals import ResidualStep


@dataclass(frozen=True)
class LeafInfluence(TreeBaseline):
    """How the loss at (x, y) falls with the weight of row j, to first order, with the splits and the base held fixed.

        score(x, j) = (y - F(x)) w_j dF(x) / dw_j,    dF(x) / dw_j = sum_t phi_t[leaf_t(j)] draw_tj (r_j^(t) - v_t[leaf_t(j)])

    with r_j^(t) the residual of j before tree t, v_t leaf values before the rate and phi_t the adjoints of the leaves' sums (see
    `axil.weights.boosting`): one sweep for all rows, where the published recursion takes one for each. Leaves follow the row's
    weight ("AllPoints"), l2 is held as it is, and so is the base, even if it is a mean. The derivative is exact.
    In a leaf of its own a row changes nothing: in fully grown forests all scores vanish.

    Of a classifier the recursion is the published one, with g, h and dh/dF of its loss: exact for two classes. Of several it
    takes every class by itself, with h for dg/dF, and leaves out what one class's score does to another's gradient.
    (Sharchilev et al., ICML 2018.)
    Needs y; refuses leaf values that are no such quotients. O(T N) per query.
    """

    needs_targets = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classifier is not None:
            steps = int(np.max(self.classifier.walked.fit.steps))
        else:
            steps = cast(Adapter, self.proven.adapter).leaf_steps
        if steps > 1:
            _refuse("leaf_estimation_iterations", steps, "of one step", "fit with one iteration")
        if self.classifier is not None and self.classifier.loss.joint:
            _refuse(
                "loss_function", "MultiClass", "of one class each", "fit with MultiClassOneVsAll"
            )
        if any(t.fit.structure.mixing is not None for t in self.trees):
            _refuse(
                "path_smooth",
                "positive",
                "that depend on their own leaf's rows alone",
                "fit without it",
            )

    def _add_class_scores(
        self, fit: FittedClassifier, queries: ClassQueries, out: FloatArray
    ) -> None:
        add_leaf_influence(fit, queries, out)

    def _add_scores(self, queries: Batch, out: FloatArray) -> None:
        errors = queries.errors
        assert errors is not None
        for trees, engine in zip(self.trees, self.proven.ready(WEIGHTS, queries.n_asked).engines):
            leaves = trees.leaves(queries.coordinates).T
            adjoints = (engine if isinstance(engine, BoostedTrees) else trees.boosted).adjoints(
                leaves
            )
            for k, error in enumerate(errors[:, trees.outputs].T):
                add_effects(trees, adjoints.phi * error, partial(ResidualStep.pull, output=k), out)


def _refuse(setting: str, value: object, kind: str, instead: str) -> None:
    reason = f"it takes the derivative of quotients S / (W + l2), leaf values {kind}, and this model has {setting}={value}"
    raise UnsupportedQuestionError(
        "LeafInfluence", reason, f"Use BoostIn, TREX or TreeSim, or {instead}."
    )
