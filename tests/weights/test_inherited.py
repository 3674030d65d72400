"""Averaged trees whose leaves lose all their rows, against trees of scikit-learn that are pruned in NumPy."""

import numpy as np
import pytest
from lightgbm import LGBMRegressor
from sklearn.ensemble import (
    BaggingRegressor,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeRegressor
from xgboost import XGBRFRegressor

import axil
from axil.methods.method import verified_model
from axil.structure import Ancestors

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 4)).astype(np.float32)
Y = X[:, 0] - X[:, 1] ** 2 + RNG.normal(size=90)
W = RNG.uniform(0.5, 2.0, size=90)
QUERIES = RNG.normal(size=(25, 4)).astype(np.float32)

RF = {
    "boosting_type": "rf",
    "n_estimators": 5,
    "bagging_freq": 1,
    "bagging_fraction": 0.5,
    "min_child_samples": 1,
    "n_jobs": 1,
    "verbose": -1,
}
XGB_RF = {"n_estimators": 5, "min_child_weight": 0, "n_jobs": 1}

MODELS = {
    "tree": lambda: DecisionTreeRegressor(random_state=0),
    "tree best first": lambda: DecisionTreeRegressor(max_leaf_nodes=40, random_state=0),
    "forest": lambda: RandomForestRegressor(7, random_state=0),
    "forest of few rows each": lambda: RandomForestRegressor(9, max_samples=3, random_state=0),
    "forest of single rows": lambda: RandomForestRegressor(9, max_samples=1, random_state=0),
    "extra trees": lambda: ExtraTreesRegressor(6, max_depth=5, random_state=0),
    "bagging": lambda: BaggingRegressor(n_estimators=5, max_features=0.7, random_state=0),
}


def parts_of(model):
    """The trees of a model, the features of each, and how often it drew each training row."""
    trees = getattr(model, "estimators_", [model])
    features = getattr(model, "estimators_features_", [np.arange(4)] * len(trees))
    if hasattr(model, "estimators_samples_") and getattr(model, "bootstrap", False):
        drawn = [np.bincount(rows, minlength=len(X)) for rows in model.estimators_samples_]
    else:
        drawn = [np.ones(len(X))] * len(trees)
    return list(zip(trees, features, drawn))


def pruned_predictions(model, y, weights, queries):
    """Predictions where a leaf without weight has the value of its nearest ancestor that has some."""
    y = y.reshape(len(y), -1)
    total = np.zeros((len(queries), y.shape[1]))
    parts = parts_of(model)
    for tree, features, drawn in parts:
        weight = weights * drawn
        inside = tree.decision_path(X[:, features]).toarray().astype(bool)
        paths = tree.decision_path(queries[:, features]).toarray().astype(bool)
        for query, path in enumerate(paths):
            nodes = [node for node in np.flatnonzero(path) if weight[inside[:, node]].sum() > 0]
            rows = (
                inside[:, max(nodes)] if nodes else np.ones(len(X), bool)
            )  # numbers grow on the way down
            own = weight if nodes else weights
            total[query] += np.average(y[rows], axis=0, weights=own[rows])
    return total / len(parts)


def without(weights, rows):
    left = weights.copy()
    left[rows] = 0.0
    return left


UNSAMPLED = ("tree", "tree best first", "extra trees")  # bags may be drawn by weights
CASES = [(name, False) for name in MODELS] + [(name, True) for name in UNSAMPLED]


@pytest.mark.filterwarnings("ignore::axil.SplitsWarning")
@pytest.mark.parametrize(("name", "weighted"), CASES)
def test_deletions_of_sets(name, weighted):
    given = {"sample_weight": W} if weighted else {}
    model = MODELS[name]().fit(X, Y, **given)
    explainer, weights = axil.Explainer(model, X, Y, **given), W if weighted else np.ones(len(X))
    for rows in ([3], [0, 1, 2, 50], np.flatnonzero(X[:, 0] > 0), np.arange(1, 90)):
        predictions_after = explainer.without(QUERIES, list(rows))["after"]
        expected = pruned_predictions(model, Y, without(weights, rows), QUERIES)[:, 0]
        np.testing.assert_allclose(predictions_after, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_deletions_of_single_rows(name):
    model = MODELS[name]().fit(X, Y)
    explainer, ones = axil.Explainer(model, X, Y), np.ones(len(X))
    before = model.predict(QUERIES)
    effects = explainer.removal(QUERIES)
    alone = explainer.diagnostics.leave_one_out()["prediction"]
    for row in range(0, 90, 7):
        left = without(ones, [row])
        expected = pruned_predictions(model, Y, left, QUERIES)[:, 0]
        np.testing.assert_allclose(before + effects[:, row], expected, rtol=0, atol=1e-12)
        own = pruned_predictions(model, Y, left, X[[row]])[0, 0]
        np.testing.assert_allclose(alone[row], own, rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore::axil.SplitsWarning")
def test_classes():
    y = (Y > 0).astype(int) + (Y > 1)
    model = RandomForestClassifier(6, random_state=0).fit(X, y)
    explainer, rows = axil.Explainer(model, X, y), list(range(30))
    predictions_after = explainer.without(QUERIES, rows)["after"].to_numpy().reshape(-1, 3)
    expected = pruned_predictions(model, np.eye(3)[y], without(np.ones(90), rows), QUERIES)
    np.testing.assert_allclose(predictions_after, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(predictions_after.sum(axis=1), 1.0)


def test_deletions_after_others():
    """Rows taken out one after the other are the same as all at once."""
    model = RandomForestRegressor(5, random_state=0).fit(X, Y)
    explainer = axil.Explainer(model, X, Y)
    engine = verified_model(explainer).engines[0]
    leaves = verified_model(explainer).queries(QUERIES).coordinates
    targets = Y[:, None].copy()
    gone = np.flatnonzero(X[:, 0] > 0.2)
    left = engine.without(gone, targets)
    for row in (int(gone[0]), *np.flatnonzero(X[:, 0] <= 0.2)[:12]):
        effects = left.deletion(leaves, targets, 0)[0]
        found = np.zeros((len(X), len(QUERIES)))
        for first, block in effects.blocks():
            found[first : first + len(block)] = block
        again = engine.without(np.append(gone, row), targets)
        expected = again.predicted(leaves, targets) - left.predicted(leaves, targets)
        np.testing.assert_allclose(found[row], expected[:, 0], rtol=0, atol=1e-12)
    v = RNG.normal(size=(len(X), 2))
    K = left.weight_rows(None).dense()
    np.testing.assert_allclose(left.matvec(None, v), K @ v, atol=1e-12)
    np.testing.assert_allclose(left.rmatvec(None, v), K.T @ v, atol=1e-12)
    np.testing.assert_allclose(left.leverage(0), np.diag(K), atol=1e-12)
    np.testing.assert_allclose(left.squares(0), (K**2).sum(), atol=1e-10)
    np.testing.assert_allclose(K.sum(axis=1), 1.0)


REFITTED = {
    **MODELS,
    "monotone": lambda: RandomForestRegressor(5, monotonic_cst=[1, 0, 0, 0], random_state=0),
    "lightgbm rf": lambda: LGBMRegressor(**RF),
    "lightgbm rf l1": lambda: LGBMRegressor(**RF, reg_alpha=0.5, reg_lambda=1.0),
    "lightgbm rf monotone": lambda: LGBMRegressor(**RF, monotone_constraints=[1, 0, 0, 0]),
    "xgboost rf": lambda: XGBRFRegressor(**XGB_RF),
    "xgboost rf l1": lambda: XGBRFRegressor(**XGB_RF, reg_alpha=0.5, base_score=0.5),
    "xgboost rf monotone": lambda: XGBRFRegressor(**XGB_RF, monotone_constraints=(1, 0, 0, 0)),
}


@pytest.mark.filterwarnings("ignore::axil.SplitsWarning")
@pytest.mark.parametrize("name", REFITTED)
def test_refits(name):
    """The library's own model predicts what deletions say, and is verified with the rows that are left."""
    model = REFITTED[name]().fit(X, Y)
    explainer = axil.Explainer(model, X, Y)
    tolerance = 1e-6 if "rf" in name else 1e-12
    for rows in ([3], list(range(40))):
        again = explainer.refit(drop=rows)
        expected = explainer.without(QUERIES, rows)["after"]
        np.testing.assert_allclose(again.model.predict(QUERIES), expected, rtol=0, atol=tolerance)
        np.testing.assert_allclose(again(QUERIES).predictions, expected, rtol=0, atol=tolerance)
        gone = [45, 50, 51, 52, 60, 70]
        both = explainer.without(QUERIES, [*rows, *gone])["after"]
        np.testing.assert_allclose(
            again.without(QUERIES, gone)["after"], both, rtol=0, atol=tolerance
        )
        np.testing.assert_allclose(
            again.refit(drop=gone).model.predict(QUERIES), both, rtol=0, atol=tolerance
        )
        single = again.removal(QUERIES, method="exact")[:, list(again.index).index(50)]
        np.testing.assert_allclose(
            single, again.without(QUERIES, [50])["change"], rtol=0, atol=tolerance
        )
        back = again.refit(add=(X[rows], Y[rows]))
        if name in UNSAMPLED:  # else rows that are added are in every bag
            np.testing.assert_allclose(
                back.model.predict(QUERIES), model.predict(QUERIES), rtol=0, atol=tolerance
            )


@pytest.mark.filterwarnings("ignore::axil.SplitsWarning")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["monotone", "lightgbm rf monotone", "xgboost rf monotone"])
def test_rows_that_come_back_are_bounded_again(name, seed):
    """A refit to dropped rows does not depend on a refit without them in between."""
    model = REFITTED[name]().set_params(random_state=seed).fit(X, Y)
    explainer = axil.Explainer(model, X, Y)
    rows = list(range(40))
    returned = (X[rows], Y[rows])
    back = explainer.refit(drop=rows).refit(add=returned)
    at_once = explainer.refit(drop=rows, add=returned)
    expected = at_once.model.predict(QUERIES)
    np.testing.assert_allclose(back.model.predict(QUERIES), expected, rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore::axil.SplitsWarning")
@pytest.mark.parametrize("seed", range(4))
def test_refits_of_monotone_trees_without_most_rows(seed):
    """A node without rows has the value of the node above it, within the bounds of the splits."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(120, 3))
    targets = features[:, 0] + 0.3 * rng.normal(size=120)
    model = ExtraTreesRegressor(
        5, monotonic_cst=[1, 0, -1], random_state=seed, min_samples_leaf=2
    ).fit(features, targets)
    explainer = axil.Explainer(model, features, targets)
    rows = rng.choice(120, 111, replace=False)
    expected = explainer.without(features, rows)["after"]
    again = explainer.refit(drop=rows)
    np.testing.assert_allclose(again.model.predict(features), expected, rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore::axil.SplitsWarning")
def test_a_monotone_tree_that_loses_its_whole_sample():
    """A plain one predicts the mean of the rows left; bounds have no node with this value."""
    X_train = np.arange(40.0)[:, None]
    y_train = X_train[:, 0] + RNG.normal(size=40)
    settings = {"n_estimators": 3, "max_samples": 4, "random_state": 0}
    for monotonic in (None, [1]):
        model = RandomForestRegressor(**settings, monotonic_cst=monotonic).fit(X_train, y_train)
        explainer = axil.Explainer(model, X_train, y_train)
        # Only rows of the first tree's sample are left.
        rows_left = np.unique(model.estimators_samples_[0])
        rows = np.setdiff1d(np.arange(40), rows_left)
        if monotonic is None:
            expected = explainer.without(X_train, rows)["after"]
            predictions = explainer.refit(drop=rows).model.predict(X_train)
            np.testing.assert_allclose(predictions, expected, rtol=0, atol=1e-12)
            continue
        with pytest.raises(axil.UnsupportedQuestionError, match="lose all rows of their samples"):
            explainer.without(X_train, rows)


@pytest.mark.filterwarnings("ignore::axil.SplitsWarning")
def test_refitted_forests_are_saved(tmp_path):
    explainer = axil.Explainer(RandomForestRegressor(4, random_state=0).fit(X, Y), X, Y)
    again = explainer.refit(drop=list(range(30)))
    again.save(tmp_path / "forest.axil")
    emptied = explainer.without(QUERIES, list(range(30))).attrs["emptied"]
    assert emptied > 20
    assert f"60 training rows (30 dropped), {emptied} leaves without rows" in repr(again)
    assert "emptied" not in explainer.without(QUERIES, []).attrs
    loaded = axil.load(tmp_path / "forest.axil", again.model)
    expected = explainer.without(QUERIES, list(range(33)))["after"]
    np.testing.assert_allclose(
        loaded.without(QUERIES, [30, 31, 32])["after"], expected, rtol=0, atol=1e-12
    )


def test_ancestors_of_random_trees():
    children = [
        np.array([[1, ~0], [~1, 2], [~2, ~3]]),
        np.zeros((0, 2), dtype=np.int64),
        np.array([[~0, ~1]]),
    ]
    ancestors, n_leaves = Ancestors.of(children), np.array([4, 1, 2])
    ancestors.check(n_leaves)
    np.testing.assert_array_equal(ancestors.parents, [7, 8, 9, 9, -1, 10, 10, -1, 7, 8, -1])
    np.testing.assert_array_equal(
        ancestors.totals(np.arange(7.0)), [0, 1, 2, 3, 4, 5, 6, 6, 6, 5, 11]
    )
    has_rows = ancestors.totals(np.array([1.0, 1, 0, 0, 0, 0, 1])) > 0
    np.testing.assert_array_equal(
        ancestors.nearest(np.array([2, 3, 4, 5, 0]), has_rows), [8, 8, -1, 10, 0]
    )
    filled = ancestors.totals(np.array([0.0, 1, 0, 1, 1, 1, 1])).astype(int)
    np.testing.assert_array_equal(
        ancestors.nearest_beside(np.array([1, 3, 4, 5]), filled), [8, 8, -1, 10]
    )
    nodes = ancestors.nodes(n_leaves, np.zeros(7))
    nodes.check(n_leaves)
    np.testing.assert_array_equal(
        nodes.totals(np.arange(7.0)).sum(), ancestors.totals(np.arange(7.0)).sum()
    )
    with pytest.raises(ValueError, match="their own ancestors"):
        Ancestors(np.array([2, 3, 3, 2], dtype=np.int32)).check(np.array([2]))
    with pytest.raises(ValueError, match="below several roots"):
        Ancestors(np.array([2, 3, -1, -1], dtype=np.int32)).check(np.array([2]))


def test_bagging_without_bootstrap_is_refitted():
    """Every tree is fitted to all rows, however many there are."""
    model = BaggingRegressor(
        DecisionTreeRegressor(max_depth=3), 4, bootstrap=False, random_state=0
    ).fit(X, Y)
    explainer = axil.Explainer(model, X, Y)
    dropped = explainer.refit(drop=[3, 5])
    expected = explainer.without(QUERIES, [3, 5])["after"]
    np.testing.assert_allclose(dropped.model.predict(QUERIES), expected, rtol=0, atol=1e-12)
    back = dropped.refit(add=(X[[3, 5]], Y[[3, 5]]))
    np.testing.assert_allclose(
        back.model.predict(QUERIES), model.predict(QUERIES), rtol=0, atol=1e-12
    )
