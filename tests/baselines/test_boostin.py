"""BoostIn against its sum, tree by tree and pair by pair."""

import numpy as np
import pytest

import axil
from axil.baselines import BoostIn
from tests.baselines.direct import BOOSTED, FORESTS, asked
from tests.subsets import chosen


def direct(a, of_loss=True):
    """The sum over trees in which the query and the row share a leaf, of gradient times derivative of the leaf's step.

    With a row's gradient g = -w (y - F_t) and second derivative h = w: (g + h * value with the rate) / (sum h + l2).
    """
    total = 0.0
    for fit, queries, targets in a.fits():
        for t in range(fit.s.n_trees):
            same = queries[:, t][:, None] == fit.leaf[t]
            error = np.ones(len(queries))
            if of_loss:
                error = targets - fit.before(t, queries.T)
            rate = fit.omega[-1, t]
            gradient, second = (
                -fit.weights * fit.draw[t] * fit.residuals[t],
                fit.weights * fit.draw[t],
            )
            in_model = (rate * fit.values[t])[fit.leaf[t]]
            part = (gradient + second * in_model) / fit.totals[t][fit.leaf[t]]
            total = total + same * rate * -error[:, None] * part
    return total


@pytest.mark.parametrize(("library", "name"), BOOSTED)
def test_scores_are_the_sum_over_shared_leaves(library, name):
    a = asked(library, name)
    expected = direct(a)
    found = a.scores(BoostIn(a.explainer))
    assert found.shape == expected.shape == (len(a.y), len(a.explainer.targets))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("library", "name"), [("lightgbm", "bagging scored"), ("sklearn", "stages weighted")]
)
def test_without_targets_scores_are_effects_on_the_prediction(library, name):
    a = asked(library, name)
    expected = direct(a, of_loss=False)
    scores = a.scores(BoostIn(a.explainer), y=False)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-11 * np.abs(expected).max())


@pytest.mark.parametrize(("library", "name"), FORESTS)
def test_forests_are_refused(library, name):
    with pytest.raises(
        axil.UnsupportedQuestionError, match="BoostIn has no answer here: it follows the residuals"
    ):
        BoostIn(asked(library, name).explainer)


@pytest.mark.parametrize(
    ("library", "name"),
    [
        *chosen(4, BOOSTED),
        ("lightgbm", "path_smooth=2"),
        ("catboost", "steps"),
        ("catboost", "shrink"),
    ],
)
def test_scores_of_a_query_sum_to_residuals_times_steps(library, name):
    """Whatever makes a leaf value of its rows: their residuals add up to it, what is taken off to what a fit of it gives."""
    a = asked(library, name)
    expected, size = 0.0, 0.0
    for trees in BoostIn(a.explainer).trees:
        leaves, s = trees.leaves(a.leaves), trees.fit.structure
        for t, residual in zip(
            range(s.n_trees), trees.fit.residuals(leaves, a.targets[:, trees.outputs])
        ):
            here = slice(s.starts[t], s.starts[t + 1])
            values = trees.fit.values[here]
            again = s.leaf_values(
                t, s.leaf_weights[here, None] * values
            )  # of rows whose residual is their leaf's value
            steps = s.final[t] * (values - s.final[t] * again)[leaves[t]]
            expected = expected + (residual * steps).sum(axis=1)
            size = size + np.abs(residual * s.final[t] * values[leaves[t]]).max()
    np.testing.assert_allclose(
        a.scores(BoostIn(a.explainer)).sum(axis=1), expected, rtol=0, atol=1e-11 * size
    )


def test_one_tree_of_means():
    """The first tree's mean moves towards a row's target: it helps others of its leaf, as far as the step falls short of it."""
    a = asked("lightgbm", "one tree")
    scores = BoostIn(a.explainer).scores(a.case.X, a.case.y)
    residuals = a.case.y - a.case.y.mean()
    fit, *_ = next(a.fits())
    same = fit.leaf[0][:, None] == fit.leaf[0]
    ahead = a.case.y - a.case.model.predict(a.case.X)
    np.testing.assert_array_equal(np.sign(scores), np.sign(np.outer(residuals, ahead)) * same)
