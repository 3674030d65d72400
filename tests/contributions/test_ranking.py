"""Ranking models: contributions and refits, compared with replays in plain loops."""

import catboost as cb
import numpy as np
import pytest

import axil
from tests.contributions.ranking_models import (
    CASES,
    CAT,
    GROUP,
    GROUP_WEIGHTS,
    LABELS,
    ROW_WEIGHTS,
    SIZES,
    X_NEW,
    XGB_VERSION,
    X,
    catboost_case,
    lightgbm_case,
    xgboost_case,
)

# The references have no table of sigmoids and no float32 sums, which are 1e-5 apart.
CLOSE = 1e-4


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]()


def assert_close(values, expected, size):
    np.testing.assert_allclose(values, expected, rtol=0, atol=CLOSE * size)


def test_contributions_are_those_of_the_replay(case):
    explanation = case.explainer()(X_NEW)
    expected = case.replay()
    assert_close(explanation.contributions, expected, np.abs(expected).sum(axis=1).max())
    sums = explanation.base_values + explanation.contributions.sum(axis=1)
    np.testing.assert_allclose(sums, case.scores(), rtol=0, atol=1e-5 * np.abs(case.scores()).max())


def test_the_difference_of_two_scores_has_coefficients(case):
    explainer = case.explainer()
    difference = explainer.aggregate(X_NEW[:2], [1, -1])
    expected = case.replay()
    size = np.abs(expected).sum(axis=1).max()
    assert_close(difference.contributions[0], expected[0] - expected[1], size)
    scores = case.scores()
    np.testing.assert_allclose(
        np.ravel(difference.predictions), scores[0] - scores[1], atol=1e-5 * np.abs(scores).max()
    )


def changed_label(case):
    """Return the label of a row in a large group, after a change."""
    row = int(np.flatnonzero(np.bincount(GROUP)[GROUP] > 5)[0])
    labels = case.labels.copy()
    labels[row] = labels.max() - labels[row]
    if labels[row] == case.labels[row]:
        labels[row] = 0
    return row, labels


def test_what_if_of_a_label(case):
    row, labels = changed_label(case)
    expected = case.replay(labels, own=True) - case.replay(own=True)
    table = case.explainer().what_if(X_NEW, {row: labels[row]})
    assert np.abs(expected).max() > 0
    assert_close(table["change"], expected, np.abs(expected).max() + np.abs(case.scores()).max())


@pytest.mark.parametrize("rows", ["rows", "groups"])
def test_without_rows_and_groups(case, rows):
    large = int(np.argmax(SIZES))
    removed = {
        "rows": np.flatnonzero(large == GROUP)[:3],
        "groups": np.flatnonzero(np.isin(GROUP, (large, 0))),
    }[rows]
    is_present = np.ones(len(X), dtype=bool)
    is_present[removed] = False
    expected = case.replay(is_present=is_present, own=True) - case.replay(own=True)
    explainer = case.explainer()
    table = explainer.without(X_NEW, removed.tolist())
    assert np.abs(expected).max() > 0
    assert_close(table["change"], expected, np.abs(expected).max() + np.abs(case.scores()).max())
    if case.draws:
        with pytest.raises(axil.UnsupportedQuestionError, match="random numbers"):
            explainer.refit(drop=removed.tolist())
        return
    refitted = explainer.refit(drop=removed.tolist())
    scores = refitted(X_NEW).predictions
    np.testing.assert_allclose(scores, table["after"], atol=2e-5 * np.abs(scores).max())


def test_refit_to_other_labels(case):
    row, labels = changed_label(case)
    explainer = case.explainer()
    refitted = explainer.refit(targets={row: labels[row]})
    expected = explainer.what_if(X_NEW, {row: labels[row]})["after"]
    scores = refitted(X_NEW).predictions
    np.testing.assert_allclose(scores, expected, atol=2e-5 * np.abs(scores).max())
    same = explainer.refit()
    np.testing.assert_allclose(same(X_NEW).predictions, case.scores(), rtol=1e-6)


def test_wrong_groups_labels_and_weights_are_noticed(case):
    moved = SIZES.copy()
    largest = int(np.argmax(moved))
    moved[largest] -= 1
    moved[largest - 1] += 1
    labels = case.labels.copy()
    row = int(np.flatnonzero(np.bincount(GROUP)[GROUP] > 5)[0])
    labels[row] = (labels[row] + 1) % (labels.max() + 1)
    weights = np.ones(len(SIZES))
    weights[largest] = 7.0
    for changes in ({"group": moved}, {"y_train": labels}, {"sample_weight": weights}):
        # PairLogit takes no weights that differ within a group, which other groups may have.
        with pytest.raises((axil.ExactnessError, axil.UnsupportedModelError)):
            case.explainer(**changes)
    with pytest.raises(axil.InputError, match="Pass the groups of the fit"):
        case.explainer(group=None, sample_weight=None)


def test_methods_about_groups(case, tmp_path):
    explainer = case.explainer()
    by_group = explainer.group(X_NEW[:2], GROUP)
    sums = by_group.groupby("query")["contribution"].sum()
    scores = case.scores()[:2]
    np.testing.assert_allclose(sums + case.start, scores, atol=1e-5 * np.abs(scores).max())
    assert len(explainer.top(X_NEW[:2], k=3)) == 6
    assert len(explainer.similar(X_NEW[:2], k=3)) == 6
    explainer.save(tmp_path / "ranking.axil")
    loaded = axil.load(tmp_path / "ranking.axil", case.model)
    np.testing.assert_array_equal(loaded(X_NEW).contributions, explainer(X_NEW).contributions)
    assert axil.supports(case.model).kind == "additive"


@pytest.mark.parametrize("as_given", ["sizes", "labels", "text", "weights of groups"])
def test_groups_as_libraries_take_them(as_given):
    case = lightgbm_case(weights=GROUP_WEIGHTS[GROUP])
    changes = {
        "sizes": {"group": list(SIZES)},
        "labels": {"group": GROUP[::-1].max() - GROUP},
        "text": {"group": np.array([f"query {number}" for number in GROUP])},
        "weights of groups": {"sample_weight": GROUP_WEIGHTS},
    }[as_given]
    contributions = case.explainer(**changes)(X_NEW).contributions
    np.testing.assert_array_equal(contributions, case.explainer()(X_NEW).contributions)


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (SIZES[1:], "add up to"),
        (GROUP % 2, "next to each other"),
        (np.full(3, 0.5), "they are not group sizes"),
        (np.zeros((2, 2)), "has shape"),
    ],
)
def test_groups_that_are_none(group, message):
    with pytest.raises(axil.InputError, match=message):
        CASES["lambdarank"]().explainer(group=group)


def test_groups_of_other_models_are_refused():
    import lightgbm as lgb
    from sklearn.linear_model import LogisticRegression, Ridge

    models = [
        Ridge().fit(X, LABELS),
        LogisticRegression().fit(X, LABELS > 1),
        lgb.LGBMClassifier(n_estimators=2, verbose=-1).fit(X, LABELS > 1),
    ]
    for model, targets in zip(models, (LABELS, LABELS > 1, LABELS > 1)):
        with pytest.raises(axil.InputError, match="group is for ranking models"):
            axil.Explainer(model, X, targets, group=SIZES)


XGBOOST_REFUSALS = {
    "booster": {"booster": "dart", "rate_drop": 0.5},
    "lambdarank_unbiased": {"lambdarank_unbiased": True},
}
if XGB_VERSION < (3, 0):
    XGBOOST_REFUSALS["lambdarank_pair_method"] = {"lambdarank_pair_method": "mean"}
if XGB_VERSION >= (3, 4):  # earlier ones have generators of their own for pairs
    XGBOOST_REFUSALS["lambdarank_pair_method"] = {
        "lambdarank_pair_method": "mean",
        "subsample": 0.5,
    }


@pytest.mark.parametrize("setting", XGBOOST_REFUSALS)
def test_xgboost_settings_that_are_refused(setting):
    with pytest.raises(axil.UnsupportedModelError, match=setting):
        xgboost_case(**XGBOOST_REFUSALS[setting]).explainer()


@pytest.mark.parametrize(
    "settings",
    [
        {"subsample": 0.6},
        {"reg_alpha": 0.1},
        {"max_delta_step": 0.1},
        {"monotone_constraints": (1, 0, 0, -1)},
        {"num_parallel_tree": 2, "subsample": 0.6},
        {"tree_method": "exact"},
        {"ndcg_exp_gain": False, "base_score": 0.5},
    ],
)
def test_settings_of_xgboost(settings):
    explanation = xgboost_case(**settings).explainer()(X_NEW)
    sums = explanation.base_values + explanation.contributions.sum(axis=1)
    size = np.abs(explanation.predictions).max()
    np.testing.assert_allclose(sums, explanation.predictions, atol=1e-5 * size)


def test_xgboost_takes_one_weight_for_each_group():
    with pytest.raises(axil.InputError, match="one weight for each group"):
        xgboost_case().explainer(sample_weight=ROW_WEIGHTS)


@pytest.mark.parametrize("name", ["QueryRMSE", "QueryRMSE row weights"])
def test_derivatives_of_query_rmse_are_weights(name):
    """Predictions are linear in the targets, so weights times targets are the predictions."""
    case = CASES[name]()
    explainer = case.explainer()
    weights = explainer(X_NEW).weights
    scores = case.scores()
    np.testing.assert_allclose(weights @ case.labels, scores, atol=1e-9 * np.abs(scores).max())
    rng = np.random.default_rng(3)
    targets = case.labels + rng.normal(size=len(case.labels))
    changed = explainer.what_if(X_NEW, dict(enumerate(targets)))["after"]
    np.testing.assert_allclose(weights @ targets, changed, atol=1e-6 * np.abs(changed).max())
    with pytest.raises(axil.UnsupportedQuestionError, match="moves the gradients of the other"):
        explainer.removal(X_NEW[:1], method="first-order")


@pytest.mark.parametrize("loss", ["QueryRMSE", "PairLogit"])
@pytest.mark.parametrize(
    "settings",
    [
        {"leaf_estimation_iterations": 5},
        {"leaf_estimation_iterations": 10, "l2_leaf_reg": 0.01},
        {"leaf_estimation_iterations": 5, "leaf_estimation_backtracking": "No"},
        {"leaf_estimation_method": "Gradient", "leaf_estimation_iterations": 3},
        {"boosting_type": "Ordered"},
        {"model_shrink_rate": 0.1},
    ],
)
def test_settings_of_catboost(loss, settings):
    l2 = settings.pop("l2_leaf_reg", 3.0)
    case = catboost_case(loss, GROUP_WEIGHTS[GROUP], l2, **settings)
    explainer = case.explainer()
    explanation = explainer(X_NEW)
    sums = explanation.base_values + explanation.contributions.sum(axis=1)
    size = np.abs(explanation.predictions).max()
    np.testing.assert_allclose(sums, explanation.predictions, atol=1e-5 * size)
    if "model_shrink_rate" not in settings:
        same = explainer.refit()(X_NEW).predictions
        np.testing.assert_allclose(same, explanation.predictions, atol=1e-5 * size)


CATBOOST_REFUSALS = {
    "max_pairs": ("PairLogit:max_pairs=10", {}),
    "monotone_constraints": ("PairLogit", {"monotone_constraints": [1, 0, 0, 0]}),
}


@pytest.mark.parametrize("setting", CATBOOST_REFUSALS)
def test_catboost_settings_that_are_refused(setting):
    loss, settings = CATBOOST_REFUSALS[setting]
    model = cb.CatBoost({**CAT, **settings, "loss_function": loss})
    model.fit(cb.Pool(X, LABELS, group_id=GROUP))
    with pytest.raises(axil.UnsupportedModelError, match=setting):
        axil.Explainer(model, X, LABELS, group=GROUP)


def test_pairs_of_rows_with_weights_of_their_own_are_refused():
    case = catboost_case("PairLogit", ROW_WEIGHTS)
    with pytest.raises(axil.UnsupportedModelError, match="different within a group"):
        case.explainer()


def test_dropped_trees_and_added_rows_are_refused():
    case = CASES["lambdarank"]()
    with pytest.raises(axil.UnsupportedQuestionError, match="belong to groups"):
        case.explainer().refit(add=(X[:2], LABELS[:2]))
    dropped = lightgbm_case(boosting_type="dart")
    with pytest.raises(axil.UnsupportedModelError, match="dart with lambdarank"):
        dropped.explainer()
    assert lightgbm_case("rank_xendcg", boosting_type="dart").explainer()


@pytest.mark.parametrize(
    "settings",
    [
        {"subsample": 0.6, "subsample_freq": 2},
        {"data_sample_strategy": "goss"},
        {"boosting_type": "rf", "subsample": 0.6, "subsample_freq": 1},
        {"reg_alpha": 0.05},
        {"max_delta_step": 0.05},
        {"monotone_constraints": [1, 0, 0, -1]},
        {"num_leaves": 31, "lambdarank_truncation_level": 1},
    ],
)
def test_settings_of_lightgbm(settings):
    explanation = lightgbm_case(**settings).explainer()(X_NEW)
    sums = explanation.base_values + explanation.contributions.sum(axis=1)
    np.testing.assert_allclose(sums, explanation.predictions, atol=1e-9)
