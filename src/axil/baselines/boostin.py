"""BoostIn: TracIn's sum of gradient products along the boosting trajectory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from axil.arrays import FloatArray, LeafArray
from axil.baselines.class_gradients import add_boostin
from axil.baselines.classifier import ClassQueries, FittedClassifier
from axil.baselines.tree_baselines import Batch, TreeBaseline, Trees, add_effects
from axil.errors import UnsupportedQuestionError
from axil.weights.forest import is_forest
from axil.weights.residuals import ResidualStep


@dataclass(frozen=True)
class BoostIn(TreeBaseline):
    """Sum, over the trees where x and row j share a leaf, of x's residual times row j's derivative of the step at x.

        score(x, j) = sum_t [leaf_t(x) = leaf_t(j)] rate_t e^(t) w_j draw_tj (r_j^(t) - rate_t v_t) / (W_t + l2)

    with e^(t) = y - F_t(x) and r_j^(t) the residuals of x and j before tree t, v_t the value of the shared leaf before the rate
    and W_t its weight. The derivative of v_t by the row's weight has ``r_j - v_t``; the authors' package puts the value as it
    stands in the model, with the rate in it, and so does this. What row j does to later residuals is left out. A leaf
    value that other leaves contribute to (path smoothing) passes on their rows' contributions too.

    Of a classifier, with g and h of its loss by the score, g(x) those of the explained row and v_t = -G / (H + l2):

        score(x, j) = sum_t [leaf_t(x) = leaf_t(j)] rate_t g^(t)(x) w_j draw_tj (g_j^(t) + rate_t v_t h_j^(t)) / (H_t + l2)

    summed over classes; every step counts where leaves take several. (Brophy, Hammoudeh and Lowd,
    JMLR 24(154), 2023, after Pruthi et al., NeurIPS 2020.) Needs y; refuses forests. O(T N) per query.
    """

    needs_targets = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for trees in self.trees:
            s = trees.fit.structure
            unseen = (
                s.coefficients is not None and s.n_trees > 1 and not s.coefficients.omega[:-1].any()
            )
            if unseen or is_forest(s):
                raise UnsupportedQuestionError(
                    self.name,
                    "it follows the residuals from tree to tree, and in this forest no tree sees another",
                    "Use LeafInfluence, TREX or TreeSim.",
                )

    def _add_class_scores(
        self, fit: FittedClassifier, queries: ClassQueries, out: FloatArray
    ) -> None:
        add_boostin(fit, queries, out)

    def _add_scores(self, queries: Batch, out: FloatArray) -> None:
        assert queries.targets is not None
        for trees in self.trees:
            tables = _tables(
                trees, trees.leaves(queries.coordinates), queries.targets[:, trees.outputs]
            )
            for k, table in enumerate(tables):
                add_effects(
                    trees, table, partial(_pull, rates=trees.fit.structure.final, output=k), out
                )


def _pull(step: ResidualStep, rates: FloatArray, output: int) -> FloatArray:
    """(rows,): ``draw_j * (r_j - rate v[leaf(j)])``; with the rate, which `ResidualStep.pull` is without."""
    return np.asarray(
        step.drawn * (step.residual[:, output] - rates[step.tree] * step.value[:, output])
    )


def _tables(trees: Trees, leaves: LeafArray, targets: FloatArray) -> list[FloatArray]:
    """For each output (L, n): ``rate_t e^(t) / (W_t + l2)`` at the leaf of x in tree t, else zero."""
    s, n = trees.fit.structure, leaves.shape[1]
    tables = [np.zeros((s.total_leaves, n)) for _ in range(targets.shape[1])]
    for t, residual in zip(range(s.n_trees), trees.fit.residuals(leaves, targets)):
        for k, table in enumerate(tables):
            asked = np.zeros((int(s.n_leaves[t]), n))
            asked[leaves[t], np.arange(n)] = s.final[t] * residual[:, k]
            table[s.starts[t] : s.starts[t + 1]] = s.leaf_values_transpose(t, asked)
    return tables
