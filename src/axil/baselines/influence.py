"""BoostIn and LeafInfluence: influence of training rows by gradients along the boosted trees.

For a classifier both use the gradients g and second derivatives h of its replayed fit. A leaf's
value is v = -G / (H + l2). With a row's weight it moves by ``v_G g_j + v_H h_j``, v_G = dv/dG and
v_H = dv/dH.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import NoReturn, cast

import numpy as np

from axil.adapters.contract import Adapter
from axil.arrays import FloatArray, LeafArray
from axil.attribution import WEIGHTS
from axil.baselines.classifier import ClassQueries, FittedClassifier
from axil.baselines.tree_baselines import Batch, TreeBaseline, Trees, add_effects
from axil.errors import UnsupportedQuestionError
from axil.replay.replayed_stages import Round
from axil.trees.losses import Softmax
from axil.weights.boosting import BoostedTrees
from axil.weights.forest import is_forest
from axil.weights.residuals import ResidualStep


@dataclass(frozen=True)
class BoostIn(TreeBaseline):
    """BoostIn: the influence of a training row on an explained row.

    It sums over the trees in which the two rows share a leaf.

    A term is x's residual times row j's derivative of the step at x.

        score(x, j) = sum_t [leaf_t(x) = leaf_t(j)] rate_t e^(t) w_j draw_tj (r_j^(t) - rate_t v_t)
        / (W_t + l2)

    with e^(t) = y - F_t(x) and r_j^(t) the residuals of x and j before tree t, v_t the value of the
    shared leaf before the rate and W_t its weight. The derivative of v_t by the row's weight has
    ``r_j - v_t``; the authors' package puts the value as it stands in the model, with the rate in
    it, and so does this. What row j does to later residuals is left out. A leaf value that other
    leaves contribute to (path smoothing) passes on their rows' contributions too.

    Of a classifier, with g and h of its loss by the score, g(x) those of the explained row and v_t
    = -G / (H + l2):

        score(x, j) = sum_t [leaf_t(x) = leaf_t(j)] rate_t g^(t)(x) w_j draw_tj (g_j^(t) + rate_t
        v_t h_j^(t)) / (H_t + l2)

    summed over classes; every step counts where leaves take several. (Brophy, Hammoudeh and Lowd,
    JMLR 24(154), 2023, after Pruthi et al., NeurIPS 2020.) Without y, e^(t) is 1 and g(x) is -1:
    the effect on the prediction. Refuses forests. O(T N) per explained row.
    """

    scores_predictions = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for trees in self.trees:
            structure = trees.fit.structure
            coefficients = structure.coefficients
            is_independent = (
                coefficients is not None
                and structure.n_trees > 1
                and not coefficients.omega[:-1].any()
            )
            if is_independent or is_forest(structure):
                raise UnsupportedQuestionError(
                    self.name,
                    "it follows the residuals from tree to tree, and in this forest no tree sees "
                    "another",
                    "Use LeafInfluence, TREX or TreeSim.",
                )

    def _add_scores(self, queries: Batch, out: FloatArray) -> None:
        for trees in self.trees:
            leaves = trees.leaves(queries.coordinates)
            if queries.targets is None:
                tables = _step_tables(trees, leaves, None)
            else:
                tables = _step_tables(trees, leaves, queries.targets[:, trees.outputs])
            for output, table in enumerate(tables):
                row_factor = partial(_row_gradients, rates=trees.fit.structure.final, output=output)
                add_effects(trees, table, row_factor, out)

    def _add_class_scores(
        self, fit: FittedClassifier, queries: ClassQueries, out: FloatArray
    ) -> None:
        walked = fit.walked
        n = len(queries)
        sums = np.zeros(out.T.shape)
        for round, row_scores, query_scores in fit.rounds(queries):
            query_gradients = _query_gradients(fit, queries, query_scores)
            g, h = _row_slopes(fit, round, row_scores)
            for place, stage in enumerate(round.stages):
                tree = int(walked.stage_tree[stage])
                output = int(walked.stage_output[stage])
                rate = fit.rates[stage]
                step = walked.steps[stage]
                leaf = queries.leaves[:, tree]
                if step.inverse is None:
                    gradients = step.by_g[leaf] * query_gradients[:, output]
                    row_values = step.value[walked.leaves[tree]]
                else:  # leaf values of all classes are solved for together; h has the value in it
                    inverse = step.inverse[leaf, place]
                    gradients = -np.einsum("im,im->i", inverse, query_gradients)
                    row_values = 1.0
                table = np.zeros((len(step.value), n))
                table[leaf, np.arange(n)] = -rate * gradients
                row_gradients = g[:, output] + rate * row_values * h[:, output]
                fit.spread(tree, table, _counted_weights(fit, tree) * row_gradients, sums)
        out += sums.T


def _row_gradients(step: ResidualStep, rates: FloatArray, output: int) -> FloatArray:
    """Return ``draw_j * (r_j - rate v[leaf(j)])``, (rows,).

    `ResidualStep.gradient` is the same without the rate.
    """
    values = rates[step.tree] * step.value[:, output]
    return np.asarray(step.count * (step.residual[:, output] - values))


def _query_gradients(
    fit: FittedClassifier, queries: ClassQueries, scores: FloatArray
) -> FloatArray:
    """Return the derivatives of the loss by the scores of the explained rows, (n, K).

    Without targets the score itself takes the place of the loss, with the opposite sign: -1.
    """
    if queries.targets is None:
        return np.full(scores.shape, -1.0)
    return np.broadcast_to(fit.loss.slopes(queries.targets, scores).g, scores.shape)


def _step_tables(trees: Trees, leaves: LeafArray, targets: FloatArray | None) -> list[FloatArray]:
    """Return ``rate_t e^(t) / (W_t + l2)`` at the leaf of x in tree t, else 0: (L, n) per output.

    Without targets e^(t) is 1.
    """
    structure = trees.fit.structure
    n = leaves.shape[1]
    residuals_by_tree: Iterable[FloatArray]
    if targets is None:
        n_outputs = 1
        residuals_by_tree = repeat(np.ones((n, 1)))
    else:
        n_outputs = targets.shape[1]
        residuals_by_tree = trees.fit.residuals(leaves, targets)
    tables = [np.zeros((structure.total_leaves, n)) for _ in range(n_outputs)]
    for tree, residuals in zip(range(structure.n_trees), residuals_by_tree):
        leaves_of_tree = slice(structure.starts[tree], structure.starts[tree + 1])
        for output, table in enumerate(tables):
            steps = np.zeros((int(structure.n_leaves[tree]), n))
            steps[leaves[tree], np.arange(n)] = structure.final[tree] * residuals[:, output]
            table[leaves_of_tree] = structure.leaf_values_transpose(tree, steps)
    return tables


@dataclass(frozen=True)
class LeafInfluence(TreeBaseline):
    """LeafInfluence: the first-order fall of the loss at an explained row by the weight of a row.

    Splits and the initial prediction are fixed.

        score(x, j) = (y - F(x)) w_j dF(x) / dw_j
        dF(x) / dw_j = sum_t phi_t[leaf_t(j)] draw_tj (r_j^(t) - v_t[leaf_t(j)])

    with r_j^(t) the residual of j before tree t, v_t leaf values before the rate and phi_t the
    adjoints of the leaves' sums (see `axil.weights.boosting`). One backward pass serves all rows,
    where the published recursion takes one for each. Leaves follow the row's weight ("AllPoints").
    l2 and the initial prediction are fixed, even if that is a mean. The derivative is exact. In a
    leaf of its own a row changes nothing: in fully grown forests all scores vanish.

    Of a classifier the recursion is the published one, with g, h and dh/dF of its loss: exact for
    two classes. Of several it takes every class by itself, with h for dg/dF, and leaves out what
    one class's score does to another's gradient. (Sharchilev et al., ICML 2018.) Without y the
    score is w_j dF(x) / dw_j, the effect on the prediction. LeafInfluence refuses leaf values that
    are no such quotients. O(T N) per explained row.
    """

    scores_predictions = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classifier is not None:
            newton_steps = int(np.max(self.classifier.walked.fit.leaf_rule.steps))
        else:
            newton_steps = cast(Adapter, self.verified_model.adapter).leaf_steps
        if newton_steps > 1:
            _refuse(
                "leaf_estimation_iterations", newton_steps, "of one step", "fit with one iteration"
            )
        if self.classifier is not None and self.classifier.loss.joint:
            _refuse(
                "loss_function", "MultiClass", "of one class each", "fit with MultiClassOneVsAll"
            )
        if any(trees.fit.structure.linear_leaves.mixing is not None for trees in self.trees):
            _refuse(
                "path_smooth",
                "positive",
                "that depend on their own leaf's rows alone",
                "fit without it",
            )

    def _add_scores(self, queries: Batch, out: FloatArray) -> None:
        errors = queries.errors
        if errors is None:
            errors = np.ones_like(queries.predictions)
        engines = self.verified_model.ready(WEIGHTS, queries.n_asked).engines
        for trees, engine in zip(self.trees, engines):
            if isinstance(engine, BoostedTrees):
                boosted = engine
            else:
                boosted = trees.boosted
            adjoints = boosted.adjoints(trees.leaves(queries.coordinates).T)
            for output, error in enumerate(errors[:, trees.outputs].T):
                row_factor = partial(ResidualStep.gradient, output=output)
                add_effects(trees, adjoints.phi * error, row_factor, out)

    def _add_class_scores(
        self, fit: FittedClassifier, queries: ClassQueries, out: FloatArray
    ) -> None:
        """Run the published recursion backwards for all rows at once."""
        walked = fit.walked
        n = len(queries)
        sums = np.zeros(out.T.shape)
        seeds = -_query_gradients(fit, queries, queries.scores)
        # Minus the derivatives of the loss by the scores of the training rows, (N, n) per output
        adjoints = [np.zeros((fit.n_rows, n)) for _ in range(seeds.shape[1])]
        for round, row_scores, _ in fit.rounds(queries):
            slopes = fit.loss.slopes(walked.targets, row_scores)
            g = np.broadcast_to(slopes.g, row_scores.shape)
            h = np.broadcast_to(slopes.h, row_scores.shape)
            mean_slopes = _mean_slopes(fit, row_scores)
            second = slopes.g_by_score * mean_slopes if fit.loss.unit_hessian else h
            third = slopes.h_by_score * mean_slopes
            for stage in round.stages:
                tree = int(walked.stage_tree[stage])
                output = int(walked.stage_output[stage])
                step = walked.steps[stage]
                table = fit.gathered(tree, adjoints[output], len(step.value))
                table[queries.leaves[:, tree], np.arange(n)] += seeds[:, output]
                table *= fit.rates[stage]
                leaf = walked.leaves[tree]
                weights = _counted_weights(fit, tree)
                by_g = weights * step.by_g[leaf]
                by_h = weights * step.by_h[leaf]
                fit.spread(tree, table, by_g * g[:, output] + by_h * h[:, output], sums)
                row_slopes = by_g * second[:, output] + by_h * third[:, output]
                fit.spread(tree, table, row_slopes, adjoints[output])
        out += sums.T


def _refuse(setting: str, value: object, kind: str, instead: str) -> NoReturn:
    raise UnsupportedQuestionError(
        "LeafInfluence",
        f"it differentiates leaf values S / (W + l2) {kind}, and this model has {setting}={value}",
        f"Use BoostIn, TREX or TreeSim, or {instead}.",
    )


def _counted_weights(fit: FittedClassifier, tree: int) -> FloatArray:
    """Return the weights of the rows times how often the tree counts them, (N,)."""
    return np.asarray(fit.walked.weights * fit.walked.counted(tree))


def _row_slopes(
    fit: FittedClassifier, round: Round, row_scores: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return g and h of the training rows, (N, K) each.

    Where the leaf values of all classes are solved for together, h has rate and value in it, as the
    row's own part of the leaf's matrix gives it.
    """
    walked = fit.walked
    loss = fit.loss
    if isinstance(loss, Softmax) and loss.joint:
        leaf = walked.leaves[int(walked.stage_tree[round.stages[0]])]
        solutions = [walked.steps[stage].solved for stage in round.stages]
        values = [solution[leaf] for solution in solutions if solution is not None]
        slopes = loss.joint_slopes(walked.targets, row_scores, np.stack(values, axis=1))
    else:
        slopes = loss.slopes(walked.targets, row_scores)
    return (
        np.broadcast_to(slopes.g, row_scores.shape),
        np.broadcast_to(slopes.h, row_scores.shape),
    )


def _mean_slopes(fit: FittedClassifier, row_scores: FloatArray) -> FloatArray:
    """Return the derivative of an output's mean by its own score, (N, K); 1 if none is needed."""
    if not fit.loss.coupled:
        return np.ones_like(row_scores)
    probabilities = fit.loss.mean(row_scores)
    return np.asarray(probabilities * (1 - probabilities))
