"""`similar(tree_weights=)` against the leaves and leaf values that the libraries themselves report."""

import numpy as np
import pytest
from lightgbm import LGBMClassifier, LGBMRanker, LGBMRegressor
from sklearn.ensemble import RandomForestRegressor
from xgboost import XGBRegressor

import axil
from axil.errors import InputError, UnsupportedQuestionError
from tests.adapters.xgboost_models import OLD
from tests.methods.test_similar import NEW, OUTPUTS, QUICK, X, Y

DEAR = (Y.median() < Y).to_numpy()


def added_by(model, rows):
    """(n, T) leaves and what each tree adds, the base apart: it is in the first tree of LightGBM."""
    booster, leaves = model.booster_, model.predict(rows, pred_leaf=True)
    values = [[booster.get_leaf_output(t, leaf) for leaf in own] for t, own in enumerate(leaves.T)]
    return leaves, np.array(values).T


def replayed(model, targets, base, mean, rule):
    """(Q, N): similarities by their definition."""
    leaves, added = added_by(model, X)
    added[:, 0] -= base
    scores = base + np.concatenate([np.zeros((len(X), 1)), np.cumsum(added, axis=1)], axis=1)
    errors = np.abs(np.asarray(targets)[:, None] - mean(scores))
    reduced = np.maximum(errors[:, :-1] - errors[:, 1:], 0.0)
    weights = {
        "variance": np.tile(added.var(axis=0), (len(X), 1)),
        "error": reduced,
        "improved": 1.0 * (reduced > 0),
    }
    own = weights[rule] / weights[rule].sum(axis=1, keepdims=True)
    shared = model.predict(NEW, pred_leaf=True)[:, None] == leaves
    return (shared * own).sum(axis=2)


@pytest.mark.parametrize("rule", ["variance", "error", "improved"])
@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_rows_are_ranked_by_the_trees_that_count(kind, rule):
    if kind == "numbers":
        model = LGBMRegressor(**QUICK).fit(X, Y)
        explainer, right = (
            axil.Explainer(model, X, Y),
            replayed(model, Y, Y.mean(), lambda score: score, rule),
        )
    else:
        model, base = LGBMClassifier(**QUICK).fit(X, DEAR), np.log(DEAR.mean() / (1 - DEAR.mean()))
        explainer = axil.Explainer(model, X, DEAR)
        right = replayed(model, DEAR, base, lambda score: 1 / (1 + np.exp(-score)), rule)
    comparables = explainer.similar(NEW, 5, columns=[], tree_weights=rule)
    listed = comparables["similarity"].to_numpy().reshape(len(NEW), 5)
    np.testing.assert_allclose(
        listed, -np.sort(-right, axis=1)[:, :5], rtol=1e-5
    )  # libraries round to single precision
    at = X.index.get_indexer(comparables["row"]).reshape(len(NEW), 5)
    np.testing.assert_allclose(np.take_along_axis(right, at, axis=1), listed, rtol=1e-5)
    assert "took away" in comparables.attrs["axil"] or "variance" in comparables.attrs["axil"]
    some = explainer.similar(
        NEW, 5, columns=[], tree_weights=rule, among=np.arange(len(X)) % 2 == 0
    )
    np.testing.assert_allclose(
        some["similarity"].to_numpy().reshape(len(NEW), 5),
        -np.sort(-right[:, ::2], axis=1)[:, :5],
        rtol=1e-5,
    )


@pytest.mark.skipif(
    OLD, reason="before XGBoost 3.1 the outputs start from one mean, which is refused"
)
def test_trees_of_several_outputs_share_one_measure():
    trees = XGBRegressor(
        n_estimators=8, max_depth=3, n_jobs=1, multi_strategy="one_output_per_tree"
    )
    explainer = axil.Explainer(trees.fit(X, OUTPUTS), X, OUTPUTS)
    for rule in ("variance", "error", "improved"):
        comparables = explainer.similar(X.head(3), 1, columns=[], tree_weights=rule)
        assert list(comparables["row"][::2]) == list(
            X.index[:3]
        )  # a row shares every leaf with itself
        np.testing.assert_allclose(comparables["similarity"], 1.0, rtol=1e-12)


def test_rules_that_do_not_fit_are_refused_by_name():
    model = LGBMRegressor(**QUICK).fit(X, Y)
    explainer = axil.Explainer(model, X, Y)
    with pytest.raises(
        InputError,
        match=r'tree_weights is "error", and the rows listed are those of the largest weights',
    ):
        explainer.similar(NEW, 3, by="weight", tree_weights="error")
    with pytest.raises(InputError, match='expected "alike", "variance", "error" or "improved"'):
        explainer.similar(NEW, 3, tree_weights="depth")
    forest = axil.Explainer(RandomForestRegressor(5, random_state=0).fit(X, Y), X, Y)
    dart = axil.Explainer(LGBMRegressor(**QUICK, boosting_type="dart").fit(X, Y), X, Y)
    for other, rule in ((forest, "variance"), (dart, "error")):
        with pytest.raises(UnsupportedQuestionError, match="not fitted one after the other"):
            other.similar(NEW, 3, by="leaves", tree_weights=rule)


@pytest.mark.parametrize("rule", ["error", "improved"])
def test_scores_that_stand_for_no_target_have_no_errors(rule):
    relevance = np.digitize(Y, np.quantile(Y, [0.5, 0.8]))
    sizes = [20] * (len(X) // 20) + [len(X) % 20] * (len(X) % 20 > 0)
    ranker = LGBMRanker(n_estimators=5, verbose=-1).fit(X, relevance, group=sizes)
    explainer = axil.Explainer(ranker, X, relevance, group=sizes)
    assert len(explainer.similar(X[:2], 3, tree_weights="variance")) == 6
    with pytest.raises(UnsupportedQuestionError, match="which target a score stands for"):
        explainer.similar(X[:2], 3, tree_weights=rule)
