"""One definition of deletion: the rows are gone, the splits stay, and every rule of the library follows the rows that remain.

On one column of zeros and ones trees have the same splits whatever rows they are fitted to. There a retrained model is the fit
without the rows: an independent reference.
"""

import re
from copy import deepcopy

import numpy as np
import pytest
import sklearn
from catboost import CatBoostClassifier, CatBoostRegressor
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.ensemble import (
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.class_weight import compute_sample_weight
from xgboost import XGBClassifier, XGBRegressor

import axil
from axil.methods.method import verified_model
from tests import contract_models
from tests.adapters.xgboost_models import VERSION as XGBOOST
from tests.contributions import boosting_models, more_models, sampled_models
from tests.reference import predicted_numbers
from tests.subsets import mostly_slow

N = 90
RNG = np.random.default_rng(0)
X = RNG.integers(0, 2, (N, 1)).astype(float)
X_NEW = np.array([[0.0], [1.0]])
NUMBERS = X[:, 0] + RNG.normal(size=N)
CLASSES = np.digitize(NUMBERS, [0, 1])
BINARY = (NUMBERS > 0.3).astype(int)
HALVES = (np.median(NUMBERS) < NUMBERS).astype(int)
WEIGHTS = RNG.uniform(0.5, 2.0, N)
SOME_ZERO = np.where(np.arange(N) % 3 == 0, 0.0, WEIGHTS)
WHOLE = np.arange(N) % 3 + 1.0
GONE = np.array([0, 1, 2, 5, 7, 11, 12])  # with and without weight
LEFT = np.delete(np.arange(N), GONE)
SINGLE = 1e-6  # of predictions of order one, which libraries make of targets in single precision

CAT = {
    "iterations": 4,
    "depth": 1,
    "learning_rate": 0.5,
    "l2_leaf_reg": 5,
    "verbose": 0,
    "thread_count": 1,
    "allow_writing_files": False,
}

LGB = {
    "n_estimators": 4,
    "num_leaves": 2,
    "min_child_samples": 1,
    "learning_rate": 0.5,
    "verbose": -1,
    "n_jobs": 1,
}
HIST = {"max_iter": 4, "max_leaf_nodes": 2, "min_samples_leaf": 1, "learning_rate": 0.5}

STUMPS = {
    "catboost": (CatBoostRegressor(**CAT), NUMBERS, None),
    "catboost weighted": (CatBoostRegressor(**CAT), NUMBERS, WEIGHTS),
    "catboost some weights zero": (CatBoostRegressor(**CAT), NUMBERS, SOME_ZERO),
    "catboost steps": (CatBoostRegressor(**CAT, leaf_estimation_iterations=3), NUMBERS, SOME_ZERO),
    "catboost monotone": (CatBoostRegressor(**CAT, monotone_constraints=[1]), NUMBERS, WEIGHTS),
    "catboost median": (CatBoostRegressor(**CAT, loss_function="MAE"), NUMBERS, None),
    "catboost binary": (CatBoostClassifier(**CAT), BINARY, SOME_ZERO),
    "catboost poisson": (
        CatBoostRegressor(**CAT, loss_function="Poisson"),
        CLASSES.astype(float),
        WEIGHTS,
    ),
    "catboost classes": (CatBoostClassifier(**CAT), CLASSES, SOME_ZERO),
    "catboost class_weights": (CatBoostClassifier(**CAT, class_weights=[1, 3]), BINARY, WEIGHTS),
    "catboost Balanced": (CatBoostClassifier(**CAT, auto_class_weights="Balanced"), BINARY, None),
    "catboost Balanced weighted": (
        CatBoostClassifier(**CAT, auto_class_weights="Balanced"),
        CLASSES,
        WEIGHTS,
    ),
    "catboost Balanced whole weights": (
        CatBoostClassifier(**CAT, auto_class_weights="Balanced"),
        BINARY,
        WHOLE,
    ),
    "catboost SqrtBalanced": (
        CatBoostClassifier(**CAT, auto_class_weights="SqrtBalanced"),
        BINARY,
        SOME_ZERO,
    ),
    "lightgbm balanced": (LGBMClassifier(**LGB, class_weight="balanced"), BINARY, None),
    "lightgbm balanced weighted": (
        LGBMClassifier(**LGB, class_weight="balanced"),
        CLASSES,
        SOME_ZERO,
    ),
    "lightgbm class_weight": (LGBMClassifier(**LGB, class_weight={0: 1, 1: 3}), BINARY, WEIGHTS),
    "lightgbm is_unbalance": (LGBMClassifier(**LGB, is_unbalance=True), BINARY, SOME_ZERO),
    "lightgbm is_unbalance halves": (LGBMClassifier(**LGB, is_unbalance=True), HALVES, None),
    "lightgbm scale_pos_weight": (LGBMClassifier(**LGB, scale_pos_weight=3.0), BINARY, WEIGHTS),
    "lightgbm numbers": (LGBMRegressor(**LGB, reg_lambda=2.0), NUMBERS, SOME_ZERO),
    "lightgbm median": (LGBMRegressor(**LGB, objective="l1"), NUMBERS, WEIGHTS),
    "histograms balanced": (
        HistGradientBoostingClassifier(**HIST, class_weight="balanced"),
        CLASSES,
        None,
    ),
    "histograms balanced weighted": (
        HistGradientBoostingClassifier(**HIST, class_weight="balanced"),
        BINARY,
        SOME_ZERO,
    ),
}


def raw(model, rows):
    """(n, K): predictions, or scores before any link."""
    if hasattr(model, "decision_function"):
        found = model.decision_function(rows)
    elif "catboost" in type(model).__module__:
        found = model.predict(rows, prediction_type="RawFormulaVal")
    else:
        found = model.predict(rows, raw_score=True)
    return np.asarray(found, dtype=float).reshape(len(rows), -1)


def table(found, column):
    return found[column].to_numpy().reshape(len(X_NEW), -1)


@pytest.mark.parametrize("name", STUMPS)
def test_a_retrained_stump_is_the_fit_without_the_rows(name):
    model, y, weights = STUMPS[name]
    explainer = axil.Explainer(
        deepcopy(model).fit(X, y, sample_weight=weights), X, y, sample_weight=weights
    )
    for gone in (GONE, [4], [3]):  # a row with weight, and one that has none where some are zero
        left = np.delete(np.arange(N), gone)
        own = None if weights is None else weights[left]
        expected = raw(deepcopy(model).fit(X[left], y[left], sample_weight=own), X_NEW)
        changes = explainer.without(X_NEW, gone)
        np.testing.assert_allclose(table(changes, "after"), expected, rtol=0, atol=SINGLE)
        again = explainer.refit(drop=gone)
        np.testing.assert_allclose(raw(again.model, X_NEW), expected, rtol=0, atol=SINGLE)
        if len(gone) == 1:
            effects = explainer.removal(X_NEW, method="exact").reshape(*expected.shape, N)[
                :, :, gone[0]
            ]
            np.testing.assert_allclose(effects, table(changes, "change"), rtol=0, atol=1e-9)
    groups = np.where(np.isin(np.arange(N), GONE), "gone", "left")
    by_group = explainer.removal(X_NEW, groups=groups)
    part = by_group[by_group["group"] == "gone"]
    after = explainer.without(X_NEW, GONE)
    np.testing.assert_allclose(table(part, "after"), table(after, "after"), rtol=0, atol=1e-9)
    if explainer.kind == "exact":
        alone = explainer.diagnostics.leave_one_out()["prediction"].to_numpy().reshape(N, -1)
        for row in (3, 4):
            own = explainer.without(X[[row]], [row])["after"].to_numpy()
            np.testing.assert_allclose(alone[row], own, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in STUMPS if name.startswith("catboost")])
def test_targets_that_do_not_change_leave_the_model_as_it_is(name):
    """Rows without weight stay: CatBoost multiplies l2_leaf_reg by the mean weight of all rows."""
    model, y, weights = STUMPS[name]
    explainer = axil.Explainer(
        deepcopy(model).fit(X, y, sample_weight=weights), X, y, sample_weight=weights
    )
    again = explainer.refit(targets={60: y[60]})
    assert len(again.index) == N
    np.testing.assert_allclose(
        raw(again.model, X_NEW), raw(explainer.model, X_NEW), rtol=0, atol=SINGLE
    )


@pytest.mark.parametrize(
    "name", ["lightgbm balanced", "lightgbm is_unbalance", "catboost Balanced"]
)
def test_weights_that_follow_the_labels_have_no_first_order(name):
    """To first order they would be held; every row is replayed instead."""
    model, y, weights = STUMPS[name]
    explainer = axil.Explainer(
        deepcopy(model).fit(X, y, sample_weight=weights), X, y, sample_weight=weights
    )
    with pytest.raises(
        axil.UnsupportedQuestionError, match=r"first-order.*class weights are counted"
    ):
        explainer.removal(X_NEW, method="first-order")
    assert np.isfinite(explainer.removal(X_NEW)).all()


@pytest.mark.parametrize(
    "name", ["lightgbm balanced weighted", "histograms balanced", "catboost Balanced weighted"]
)
def test_explainers_of_files_count_classes_again(name, tmp_path):
    model, y, weights = STUMPS[name]
    explainer = axil.Explainer(
        deepcopy(model).fit(X, y, sample_weight=weights), X, y, sample_weight=weights
    )
    explainer.save(tmp_path / "explainer.npz")
    loaded = axil.load(tmp_path / "explainer.npz", explainer.model)
    found, expected = loaded.without(X_NEW, GONE), explainer.without(X_NEW, GONE)
    np.testing.assert_allclose(found["after"], expected["after"], rtol=0, atol=1e-12)


def test_class_weights_that_the_user_multiplied_in_are_the_users():
    """They are sample weights then: no rule of the library made them."""
    weights = compute_sample_weight("balanced", BINARY)
    model = LGBMClassifier(**LGB, class_weight="balanced").fit(X, BINARY)
    explainer = axil.Explainer(model, X, BINARY, sample_weight=weights)
    plain = LGBMClassifier(**LGB).fit(X, BINARY, sample_weight=weights)
    expected = axil.Explainer(plain, X, BINARY, sample_weight=weights).without(X_NEW, GONE)["after"]
    np.testing.assert_allclose(
        explainer.without(X_NEW, GONE)["after"], expected, rtol=0, atol=SINGLE
    )
    again = explainer.refit(drop=GONE)
    np.testing.assert_allclose(
        again.model.predict(X_NEW, raw_score=True), expected, rtol=0, atol=SINGLE
    )


@pytest.mark.parametrize("seed", [105, 123, 138, 250])
def test_leaves_of_saturated_classifiers_are_zero_again(seed):
    """scikit-learn sets a leaf without curvature to zero: which leaves these are follows the rows that remain."""
    rng = np.random.default_rng(seed)
    n = 40 if seed % 2 else 25
    x = rng.integers(0, 3, (n, 2)).astype(float)
    y = (x[:, 0] + rng.normal(size=n) * 0.3 > 1).astype(int)
    model = GradientBoostingClassifier(
        n_estimators=60, max_depth=3, learning_rate=3.0, random_state=0
    ).fit(x, y)
    explainer = axil.Explainer(model, x, y)
    zero = verified_model(explainer).boosting.walked.zeroed
    assert zero.any()
    gone = rng.choice(n, 3, replace=False)
    after, again = explainer.without(x, gone)["after"], explainer.refit(drop=gone)
    np.testing.assert_allclose(again.model.decision_function(x), after, rtol=1e-9, atol=1e-9)


def test_vector_leaves_are_refitted():
    """XGBoost sets classes of a leaf to zero for their weight; other leaves of a refit are not zero for that."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(120, 3))
    y = np.digitize(x[:, 0] + rng.normal(size=120) / 2, [-0.5, 0.5])
    model = XGBClassifier(
        n_estimators=4, max_depth=3, multi_strategy="multi_output_tree", n_jobs=1
    ).fit(x, y)
    explainer = axil.Explainer(model, x, y)
    expected = explainer.without(x[:5], GONE)["after"].to_numpy().reshape(5, -1)
    made = explainer.refit(drop=GONE).model.predict(x[:5], output_margin=True)
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(made, expected, rtol=0, atol=SINGLE)


LIGHT = {
    "n_estimators": 6,
    "max_depth": 2,
    "reg_lambda": 0.0,
    "reg_alpha": 0.05,
    "min_child_weight": 1.0,
    "n_jobs": 1,
}
VECTOR_LEAVES = {
    "classes": XGBClassifier(**LIGHT, multi_strategy="multi_output_tree"),
    "quantiles": XGBRegressor(
        **LIGHT,
        multi_strategy="multi_output_tree",
        objective="reg:quantileerror",
        quantile_alpha=[0.1, 0.5, 0.9],
    ),
}


@pytest.mark.parametrize("name", VECTOR_LEAVES)
def test_light_outputs_of_vector_leaves_follow_the_library(name):
    """XGBoost up to 3.3 sets an output of a leaf below min_child_weight to zero; later versions keep its value."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.integers(0, 4, 24)).astype(float)[:, None]
    y = x[:, 0] * 3 + rng.standard_t(2, size=24)
    if name == "classes":
        y = np.digitize(y, [3, 6])
    elif XGBOOST < (3, 4):
        pytest.skip("these leaves are percentiles")
    model = deepcopy(VECTOR_LEAVES[name]).fit(x, y)
    explainer = axil.Explainer(model, x, y)
    queries, compared = np.arange(4.0)[:, None], 0
    for row in range(24):
        left = np.delete(np.arange(24), row)
        if name == "classes" and len(np.unique(y[left])) < 3:
            continue
        again = deepcopy(VECTOR_LEAVES[name]).fit(x[left], y[left])
        if not np.array_equal(again.apply(queries), model.apply(queries)):
            continue  # it has other splits
        compared += 1
        expected = again.predict(queries, output_margin=True)
        after = explainer.without(queries, [row])["after"].to_numpy().reshape(expected.shape)
        refitted = explainer.refit(drop=[row]).model.predict(queries, output_margin=True)
        np.testing.assert_allclose(after, expected, rtol=0, atol=1e-5)
        np.testing.assert_allclose(refitted, expected, rtol=0, atol=1e-5)
    assert compared > 4


def test_huge_leaf_values_that_cancel_keep_the_targets():
    """Without l2 CatBoost's leaves of clipped residuals are 1e20 and more; residuals are targets less what trees add up to."""
    x = np.array([[0.0], [1.0], [0.0], [1.0]])
    y, weights = np.array([6.79519, 3.01726, -3.90791, -7.23378]), np.array([2.0, 1.0, 0.5, 1.0])
    settings = CAT | {
        "iterations": 5,
        "l2_leaf_reg": 0,
        "loss_function": "Huber:delta=3",
        "boost_from_average": False,
    }
    model = CatBoostRegressor(**settings).fit(x, y, sample_weight=weights)
    assert np.abs(model.get_leaf_values()).max() > 1e18
    explainer = axil.Explainer(model, x, y, sample_weight=weights)
    alone = explainer.diagnostics.leave_one_out()["prediction"].to_numpy()
    for row in range(4):
        after = explainer.without(x[[row]], [row])["after"].to_numpy()
        np.testing.assert_allclose(alone[row], after[0], rtol=1e-9)


LARGE_LEAVES = {"min_samples_leaf": 8, "random_state": 0}  # more rows than are deleted
BALANCED = LARGE_LEAVES | {"class_weight": "balanced"}
BALANCED_TREES = {
    "tree": (DecisionTreeClassifier(**BALANCED), None),
    "tree weighted": (DecisionTreeClassifier(**BALANCED), WEIGHTS),
    "trees": (ExtraTreesClassifier(5, **BALANCED), None),
    "trees weighted": (ExtraTreesClassifier(5, **BALANCED), WEIGHTS),
    "trees by bag": (
        ExtraTreesClassifier(5, **LARGE_LEAVES, class_weight="balanced_subsample"),
        None,
    ),
    "bootstrap": (RandomForestClassifier(5, **BALANCED), None),
    "bagging": (BaggingClassifier(DecisionTreeClassifier(**BALANCED), 5, random_state=0), None),
}
SINGLE_ROWS = [
    lambda explainer: explainer.removal(TABLE[:3]),
    lambda explainer: explainer.removal(TABLE[:3], k=2, greedy=True),
    lambda explainer: explainer.removal(TABLE[:3], k=2, method="first-order"),
    lambda explainer: explainer.diagnostics.leave_one_out(),
    lambda explainer: explainer.find_label_issues(out_of_fold="leave-one-out"),
]
DRAWS_BY_WEIGHT = tuple(map(int, sklearn.__version__.split(".")[:2])) >= (
    1,
    9,
)  # forests, whose leaves then count rows
TABLE = RNG.normal(size=(N, 3)) + CLASSES[:, None]


def shares_of_leaves(model, rows, y, weights, left):
    """(n, C): the shares of classes in leaves, whose rows are those left, weighed as scikit-learn weighs balanced classes."""
    members = getattr(model, "estimators_", [model])
    bagging = hasattr(model, "estimators_features_")
    own = np.ones(N) if weights is None else weights
    by_weight = DRAWS_BY_WEIGHT and isinstance(model, ExtraTreesClassifier)
    counted = own[left] if by_weight else np.ones(len(left))
    sizes = np.bincount(y[left], counted)
    factors = counted.sum() / (np.count_nonzero(sizes) * np.maximum(sizes, 1e-300))
    if DRAWS_BY_WEIGHT and isinstance(model, RandomForestClassifier):
        factors = np.ones(len(sizes))
    drawn = (
        model.estimators_samples_
        if bagging or getattr(model, "bootstrap", False)
        else [np.arange(N)] * len(members)
    )
    total = np.zeros((len(rows), len(model.classes_)))
    for member, bag in zip(members, drawn):
        tree, times = getattr(member, "tree_", member), np.bincount(bag, minlength=N)
        leaves, met = tree.apply(TABLE.astype(np.float32)), tree.apply(rows.astype(np.float32))
        for i, leaf in enumerate(met):
            inside = left[leaves[left] == leaf]
            added = own[inside] * times[inside] * factors[y[inside]]
            sums = np.bincount(y[inside], added, len(model.classes_))
            total[i] += sums / sums.sum() / len(members)
    return total


@pytest.mark.parametrize("name", BALANCED_TREES)
def test_balanced_trees_count_classes_again(name):
    """The splits are fixed; class weights, and the shares of leaves with them, follow the rows that are left."""
    model, weights = BALANCED_TREES[name]
    model = deepcopy(model).fit(TABLE, CLASSES, sample_weight=weights)
    explainer = axil.Explainer(model, TABLE, CLASSES, sample_weight=weights)
    queries = TABLE[20:30]
    np.testing.assert_allclose(
        shares_of_leaves(model, queries, CLASSES, weights, np.arange(N)),
        model.predict_proba(queries),
        atol=1e-9,
    )
    gone = np.concatenate(
        [np.flatnonzero(CLASSES == 2)[:6], np.flatnonzero(CLASSES == 0)[:1]]
    )  # of one class above all
    expected = shares_of_leaves(model, queries, CLASSES, weights, np.delete(np.arange(N), gone))
    predictions_after = (
        explainer.without(queries, gone)["after"].to_numpy().reshape(len(queries), -1)
    )
    np.testing.assert_allclose(predictions_after, expected, rtol=0, atol=1e-9)
    again = explainer.refit(drop=gone)
    np.testing.assert_allclose(again.model.predict_proba(queries), expected, rtol=0, atol=1e-9)
    groups = np.where(np.isin(np.arange(N), gone), "gone", "left")
    by_group = explainer.removal(queries, groups=groups)
    after = by_group[by_group["group"] == "gone"]["after"].to_numpy().reshape(len(queries), -1)
    np.testing.assert_allclose(after, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", BALANCED_TREES)
def test_balanced_trees_refuse_deletions_of_single_rows(name, tmp_path):
    model, weights = BALANCED_TREES[name]
    explainer = axil.Explainer(
        deepcopy(model).fit(TABLE, CLASSES, sample_weight=weights),
        TABLE,
        CLASSES,
        sample_weight=weights,
    )
    explainer.save(tmp_path / "explainer.npz")
    loaded = axil.load(tmp_path / "explainer.npz", explainer.model)
    after = explainer.without(TABLE[:3], GONE)["after"]
    np.testing.assert_allclose(loaded.without(TABLE[:3], GONE)["after"], after, rtol=0, atol=1e-12)
    assert np.isfinite(explainer.removal(TABLE[:3], k=2, by="contribution")["contribution"]).all()
    if name == "bootstrap" and DRAWS_BY_WEIGHT:  # the weights are in the draws alone
        assert len(explainer.diagnostics.leave_one_out()) == 3 * N
        return
    for own in (explainer, loaded):
        for ask in SINGLE_ROWS:
            with pytest.raises(
                axil.UnsupportedQuestionError,
                match=r"class weights are counted .*without\(X, rows\)",
            ):
                ask(own)
    assert len(explainer.find_label_issues()) == N  # by folds


@pytest.mark.parametrize(
    "labels", [CLASSES, np.stack([BINARY, HALVES], axis=1)], ids=["classes", "labels"]
)
def test_classes_that_are_balanced_in_each_bag_refuse_deletions(labels):
    model = RandomForestClassifier(
        5, max_depth=3, class_weight="balanced_subsample", random_state=0
    )
    explainer = axil.Explainer(model.fit(TABLE, labels), TABLE, labels)
    for ask in (
        lambda: explainer.without(TABLE[:3], GONE),
        lambda: explainer.removal(TABLE[:3]),
        lambda: explainer.diagnostics.leave_one_out(),
        lambda: explainer.refit(drop=GONE),
    ):
        with pytest.raises(axil.UnsupportedQuestionError, match=r"class weights .*\(a dict\)"):
            ask()


def test_weights_that_the_model_alone_knows_refuse_deletions():
    """The replay takes the row weights that a forest keeps; how they follow from the classes is not known without its own."""
    if not DRAWS_BY_WEIGHT:
        pytest.skip("forests keep no weights")
    model = ExtraTreesClassifier(5, max_depth=3, class_weight="balanced", random_state=0)
    explainer = axil.Explainer(model.fit(TABLE, CLASSES, sample_weight=WEIGHTS), TABLE, CLASSES)
    with pytest.raises(axil.UnsupportedQuestionError, match="class weights"):
        explainer.without(TABLE[:3], GONE)


def test_several_labels_are_balanced_again():
    """Weights of several labels are multiplied."""
    labels = np.stack([BINARY, HALVES], axis=1)
    model = DecisionTreeClassifier(max_depth=3, class_weight="balanced", random_state=0).fit(
        TABLE, labels
    )
    left = np.delete(np.arange(N), GONE)
    weights = compute_sample_weight("balanced", labels[left])
    leaves = model.apply(TABLE)
    shares = []
    for own in leaves[:5]:
        inside = leaves[left] == own
        for label in labels[left].T:
            sums = np.bincount(label[inside], weights[inside], 2)
            shares.append(sums / sums.sum())
    explainer = axil.Explainer(model, TABLE, labels)
    predictions_after = explainer.without(TABLE[:5], GONE)["after"].to_numpy()
    np.testing.assert_allclose(predictions_after, np.concatenate(shares), rtol=0, atol=1e-9)
    made = explainer.refit(drop=GONE).model.predict_proba(TABLE[:5])
    np.testing.assert_allclose(np.hstack(made).ravel(), np.concatenate(shares), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["tree", "bootstrap"])
def test_class_weights_of_a_dict_are_held(name):
    model = deepcopy(BALANCED_TREES[name][0]).set_params(class_weight={0: 1.0, 1: 3.0, 2: 0.5})
    explainer = axil.Explainer(model.fit(TABLE, CLASSES), TABLE, CLASSES)
    after = explainer.without(TABLE[:5], GONE)["after"].to_numpy()
    made = explainer.refit(drop=GONE).model.predict_proba(TABLE[:5])
    np.testing.assert_allclose(made.ravel(), after, rtol=0, atol=1e-9)
    single = explainer.without(TABLE[:5], [4])["change"].to_numpy()
    np.testing.assert_allclose(
        explainer.removal(TABLE[:5])[..., 4].ravel(), single, rtol=0, atol=1e-9
    )


#: Models whose refits fail for reasons that have nothing to do with deletions.
UNWRITTEN = re.compile("rf failing|rf targets constant|rf nothing to split")
ADDITIVE = [
    (module, name)
    for module in (boosting_models, more_models, sampled_models)
    for name in (module.CASES if hasattr(module, "CASES") else module.MODELS)
]
LONG = 0.2  # seconds of all deletions of single rows, which slow tests wait for


def rows_of(X, rows):
    """These rows of a frame, an array or a sparse matrix."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return X[[int(row) for row in rows]]


def numbers(table, column):
    return np.asarray(table[column], dtype=float)


def marked(n, rows):
    mask = np.zeros(n, dtype=bool)
    mask[rows] = True
    return mask


def has_balanced_trees(model):
    """Whether class weights that are counted from the labels are in leaves: deletions of single rows are refused."""
    engines = getattr(model, "engines", ())
    return any(
        s.leaf_rule.class_counts is not None for engine in engines for s in engine.structures
    )


def deletions_agree(explainer, queries, tolerance, refits=True):
    """Compare `without` with `refit`, and each row's `removal` with `without`; the largest prediction."""
    model = verified_model(explainer)
    n = model.shape[0]
    counted = np.flatnonzero(model.row_weights > 0)
    gone = np.random.default_rng(0).choice(counted, min(7, len(counted) - 1), replace=False)
    changes = explainer.without(queries, marked(n, gone))
    before, after = numbers(changes, "before"), numbers(changes, "after")
    scale = max(
        np.abs(before).max(), np.abs(model.targets).max() if explainer.kind == "exact" else 0.0
    )
    try:
        again = explainer.refit(drop=marked(n, gone)) if refits else None
    except (axil.UnsupportedQuestionError, axil.UnsupportedModelError):
        again = None  # refused by name: it is not written
    if again is not None:
        left = numbers(again.without(queries, marked(verified_model(again).shape[0], [])), "before")
        np.testing.assert_allclose(left, after, rtol=0, atol=tolerance * scale)
    if model.deletions.seconds(model.budget.available)[0] < LONG and not has_balanced_trees(model):
        single = numbers(explainer.without(queries, marked(n, gone[:1])), "change")
        effects = explainer.removal(queries, method="exact")[..., gone[0]].ravel()
        np.testing.assert_allclose(effects, single, rtol=0, atol=1e-9 * scale)
    return gone, scale


@pytest.mark.parametrize(("library", "name"), mostly_slow(8, contract_models.TREES))
@pytest.mark.filterwarnings("ignore")
def test_deletions_of_exact_models_agree(library, name):
    """Libraries keep targets or sums in single precision, scikit-learn's trees and stages in double."""
    case, explainer = (
        contract_models.case_of(library, name),
        contract_models.explainer_of(library, name),
    )
    tolerance = 1e-9 if library == "sklearn" and "hist" not in name else 1e-8
    model = verified_model(explainer)
    if getattr(model.adapter, "_balances_samples", False):
        pytest.skip("refused: test_classes_that_are_balanced_in_each_bag_refuse_deletions")
    gone, scale = deletions_agree(
        explainer, rows_of(case.X_new, range(4)), tolerance, not UNWRITTEN.search(name)
    )
    if has_balanced_trees(model):
        return
    if model.deletions.seconds(model.budget.available)[0] >= LONG or getattr(
        model.adapter, "encodings", 0
    ):
        return  # rows whose categories are encoded are in other leaves in the fit than in predictions
    n, n_outputs = model.shape
    alone = predicted_numbers(explainer.diagnostics.leave_one_out()).reshape(n, n_outputs)
    offsets = contract_models.offsets_of(case)
    for row in gone[:2]:
        own = None if offsets is None else np.asarray(offsets)[[row]]
        after = numbers(
            explainer.without(rows_of(case.X, [row]), marked(n, [row]), init_score=own), "after"
        )
        if not np.isnan(alone[row]).any():  # offsets of queries are in double precision
            np.testing.assert_allclose(
                alone[row], after, rtol=0, atol=(1e-9 if own is None else 1e-7) * scale
            )


@pytest.mark.parametrize(("module", "name"), mostly_slow(2, ADDITIVE))
def test_deletions_of_additive_models_agree(module, name):
    """Libraries keep gradients in single precision."""
    made = getattr(module, "model_of", getattr(module, "case_of", None))
    case = module.MODELS[name]().fit() if made is None else made(name)
    if case.loss == "squared":
        pytest.skip("it has exact weights")
    explainer = boosting_models.explain(case)
    try:
        explainer.without(boosting_models.X_NEW, [0])
    except axil.UnsupportedQuestionError as refusal:
        pytest.skip(str(refusal))
    deletions_agree(explainer, boosting_models.X_NEW, SINGLE)


def test_trees_of_dart_that_do_not_see_each_other_are_no_mean():
    """With rate_drop=1 every tree is fitted to what the base leaves over; a leaf that lost all its rows adds nothing."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 2))
    y = X[:, 0] + rng.normal(size=12)
    settings = {
        "booster": "dart",
        "rate_drop": 1.0,
        "one_drop": 1,
        "learning_rate": 0.3,
        "min_child_weight": 0.0,
    }
    model = XGBRegressor(n_estimators=3, max_depth=4, n_jobs=1, **settings).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    leaves = model.apply(X)
    alone = [row for row in range(12) if ((leaves == leaves[row]).sum(axis=0) == 1).any()]
    assert alone
    effects = explainer.removal(X)
    for row in alone:
        gone = np.arange(12) == row
        change = explainer.without(X, gone)["change"].to_numpy()
        np.testing.assert_allclose(effects[:, row], change, rtol=0, atol=1e-12)
        refitted = explainer.refit(drop=gone).model.predict(X)
        np.testing.assert_allclose(refitted, model.predict(X) + change, rtol=0, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_forests_with_trees_that_find_no_split(seed):
    """LightGBM does not record how many rows such trees sampled; a refit has rows of its own."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(40, 2)), rng.integers(-2, 3, 40).astype(float)
    settings = {
        "boosting_type": "rf",
        "n_estimators": 12,
        "subsample": 0.3,
        "subsample_freq": 1,
        "min_child_samples": 6,
        "verbose": -1,
    }
    model = LGBMRegressor(**settings).fit(X, y)
    trees = model.booster_.dump_model()["tree_info"]
    n_leaves = [tree["num_leaves"] for tree in trees]
    assert min(n_leaves) == 1
    explainer = axil.Explainer(model, X, y)
    deleted = np.flatnonzero(rng.random(40) < 0.3)
    refitted = explainer.refit(drop=deleted).model
    with pytest.warns(axil.SplitsWarning):
        after = explainer.without(X[:5], deleted)["after"]
    np.testing.assert_allclose(refitted.predict(X[:5]), after, atol=1e-6)


MONOTONE = {
    "xgboost": XGBRegressor(max_depth=6, n_estimators=10, monotone_constraints=(1, -1, 0)),
    "xgboost classes": XGBClassifier(
        max_depth=6, n_estimators=10, min_child_weight=0, monotone_constraints=(1, -1, 0)
    ),
    "lightgbm": LGBMRegressor(
        num_leaves=20,
        min_child_samples=1,
        n_estimators=10,
        monotone_constraints=[1, -1, 0],
        verbose=-1,
    ),
    "lightgbm classes": LGBMClassifier(
        num_leaves=20,
        min_child_samples=1,
        n_estimators=10,
        monotone_constraints=[1, -1, 0],
        verbose=-1,
    ),
}


@pytest.mark.parametrize("n_deleted", [12, 20, 40])
@pytest.mark.parametrize("name", MONOTONE)
def test_nodes_without_weight_bound_no_others(name, n_deleted):
    """Many leaves of monotone trees lose all weight: `without` and refits follow one rule."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = X[:, 0] - X[:, 1] + rng.normal(size=60)
    tolerance = 1e-9
    if "classes" in name:
        y = (y > 0).astype(int)
        tolerance = 1e-6
    explainer = axil.Explainer(deepcopy(MONOTONE[name]).fit(X, y), X, y)
    deleted = rng.choice(60, n_deleted, replace=False)
    sample_weight = np.ones(60)
    sample_weight[deleted] = 0.0
    with pytest.warns(axil.SplitsWarning):
        after = np.asarray(explainer.without(X, deleted)["after"])
    for change in ({"drop": deleted}, {"sample_weight": sample_weight}):
        predictions = explainer.refit(**change)(X).predictions.ravel()
        np.testing.assert_allclose(predictions, after, rtol=0, atol=tolerance)
