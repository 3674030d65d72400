"""what_if and sensitivity, against weights and replays."""

import re
import warnings

import catboost
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import RidgeClassifier
from sklearn.utils.class_weight import compute_sample_weight

import axil
from axil import InputError
from axil.methods.method import verified_model
from tests.contract_models import GRID, case_of, explainer_of, offsets_of, predict
from tests.contributions import boosting_models as pushed
from tests.methods.method_models import MODELS, weights_of
from tests.reference import replay
from tests.subsets import mostly_slow


def lines(frame, name, n):
    """(n, K): a column of a table with a line for each query and output."""
    return frame[name].to_numpy().reshape(n, -1)


def changed_targets(explainer, case):
    """Three rows with other targets, as the user writes them, and as numbers (N, K)."""
    y, rows = np.array(case.y), [1, 40, 7]
    if verified_model(explainer).adapter.classes is not None:
        new = [
            next(c for c in verified_model(explainer).adapter.classes if c != y[row])
            for row in rows
        ]
        after = verified_model(explainer).targets.copy()
        after[rows] = np.array(new)[:, None] == verified_model(explainer).adapter.classes
    elif getattr(verified_model(explainer).adapter, "label_classes", None) is not None:
        new, after = (
            [y[(row + 3) % len(y)] for row in rows],
            verified_model(explainer).targets.copy(),
        )
        after[rows] = after[[(row + 3) % len(y) for row in rows]]
    else:
        new, after = [y[row] + 3 for row in rows], verified_model(explainer).targets.copy()
        after[rows] += 3
    return dict(zip(explainer.index[rows], new)), after


@pytest.mark.parametrize(("library", "name"), MODELS)
def test_what_if_moves_predictions_by_the_weights(library, name):
    case, explainer = case_of(library, name), explainer_of(library, name)
    new, after = changed_targets(explainer, case)
    frame = explainer.what_if(case.X_new, new)
    model, n = predict(case, case.X_new), case.X_new.shape[0]
    change = np.einsum(
        "ikj,jk->ik", weights_of(explainer, case.X_new), after - verified_model(explainer).targets
    )
    slack = 1e-12 * np.abs(after).max()
    np.testing.assert_allclose(lines(frame, "change", n), change, rtol=0, atol=slack)
    np.testing.assert_array_equal(lines(frame, "before", n), model)
    np.testing.assert_allclose(
        lines(frame, "after", n), model + change, rtol=0, atol=slack + 1e-15 * np.abs(model).max()
    )
    assert "structure fixed" in frame.attrs["axil"]


ACTIVE_SET = re.compile(
    "l1|alpha|max_delta|monoton|quantile|absolute|MAE|mape|huber", re.IGNORECASE
)
# Refitted models of these settings are refused, or do not agree with their own library yet.
NOT_REFITTED = re.compile(
    "path_smooth|encoded|vector leaves|rf failing|dart forest|schedule stumps|multi_output_tree|class_weight|zero|"
    "advanced goss|TreeClassifier monotonic|lassifier (costs|balanced|labels)"
)
REFITTED = [(library, name) for library, name in GRID if not NOT_REFITTED.search(name)]


@pytest.mark.parametrize(
    ("library", "name"),
    mostly_slow(2, [case for case in REFITTED if ACTIVE_SET.search(case[1])])
    + mostly_slow(16, [case for case in REFITTED if not ACTIVE_SET.search(case[1])]),
)
def test_what_if_is_refit_with_these_targets(library, name):
    case, explainer = case_of(library, name), explainer_of(library, name)
    model, y = verified_model(explainer), np.array(case.y)
    has_label_outputs = model.names.classes is None and y.dtype.kind not in "biuf"
    classes = model.names.classes
    has_one_class = classes is not None and len(classes) == 1
    if len(y) <= 40 or has_label_outputs or has_one_class:
        pytest.skip("there is no other target")
    far = 30 * np.abs(model.targets).max()
    for size in (0.1, far):
        new, _ = changed_targets(explainer, case)
        if model.names.classes is None and getattr(model.adapter, "label_classes", None) is None:
            new[explainer.index[40]] = y[40] + size
        try:
            again = explainer.refit(targets=new)
        except axil.UnsupportedQuestionError:
            pytest.skip("this model is not written")
        after = lines(explainer.what_if(case.X_new, new), "after", case.X_new.shape[0])
        expected = again(case.X_new).predictions.reshape(after.shape)
        scale = max(np.abs(expected).max(), again.verification.scale)
        tolerance = model.adapter.tolerance
        if tolerance > 1e-9:  # targets, starts or scores are in single precision
            tolerance = max(1e-6, tolerance)
        np.testing.assert_allclose(after, expected, rtol=0, atol=tolerance * scale)


TINY = np.array([[0.0], [0.0], [0.0], [1.0], [1.0]])
TARGETS = np.array([10.0, 20.0, 30.0, 40.0, 50.0])


def one_tree(library, loss, y, **given):
    if library == "catboost":
        own = {"depth": 1, "learning_rate": 1.0, "leaf_estimation_method": "Exact", "verbose": 0}
        model = catboost.CatBoostRegressor(
            loss_function=loss, iterations=1, allow_writing_files=False, **own
        )
    else:
        own = {
            "num_leaves": 2,
            "min_child_samples": 1,
            "min_data_in_bin": 1,
            "learning_rate": 1.0,
            "verbose": -1,
        }
        model = lgb.LGBMRegressor(objective=loss, n_estimators=1, **own)
    return model.fit(TINY, y, **given)


@pytest.mark.parametrize(("library", "loss"), [("catboost", "MAPE"), ("lightgbm", "mape")])
@pytest.mark.parametrize("weights", [None, np.array([1.0, 2.0, 1.0, 1.0, 3.0])])
@pytest.mark.parametrize("target", [5.0, 10.5, 60.0])
def test_mape_weighs_rows_by_their_new_targets(library, loss, weights, target):
    """Retraining finds the same two leaves."""
    model = one_tree(library, loss, TARGETS, sample_weight=weights)
    explainer = axil.Explainer(model, TINY, TARGETS, sample_weight=weights)
    changed = TARGETS.copy()
    changed[0] = target
    expected = one_tree(library, loss, changed, sample_weight=weights).predict(TINY)
    np.testing.assert_allclose(explainer.what_if(TINY, {0: target})["after"], expected, rtol=1e-6)
    held = explainer.verification.active_set
    assert held.radius == 0  # every change of a target moves a weight


def test_a_far_target_of_a_quantile_does_not_carry_the_prediction_along():
    """A leaf's quantile moves to its next row at most."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 1)), np.exp(rng.normal(size=200))
    model = lgb.LGBMRegressor(
        objective="quantile", alpha=0.7, n_estimators=1, num_leaves=4, learning_rate=1.0, verbose=-1
    ).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    row = int(np.abs(explainer(X[:1]).weights[0]).argmax())
    changed, leaves = y.copy(), model.predict(X, pred_leaf=True).ravel()
    changed[row] = 1e5
    own = np.sort(changed[leaves == leaves[0]])[::-1]
    place = (len(own) - 1) * (1 - 0.7)
    expected = own[int(place)] + (place - int(place)) * (own[int(place) + 1] - own[int(place)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = explainer.what_if(X[:1], {row: 1e5})
    np.testing.assert_allclose(frame["after"], expected, rtol=1e-5)
    assert "computed again" in frame.attrs["axil"]


@pytest.mark.parametrize("name", ["quantile", "lambda_l1=2", "huber"])
def test_within_the_radius_the_answer_is_weights_times_changes(name):
    case, explainer = case_of("lightgbm", name), explainer_of("lightgbm", name)
    radius, y = explainer.verification.active_set.radius, explainer.targets
    changes = explainer.what_if(case.X_new, {3: y[3] + 0.5 * radius})["change"]
    expected = explainer(case.X_new).weights[:, 3] * 0.5 * radius
    np.testing.assert_allclose(changes, expected, rtol=1e-6, atol=1e-12 * np.abs(y).max())


def test_a_loaded_explainer_of_a_quantile_answers_beyond_its_radius_too(tmp_path):
    case, explainer = case_of("lightgbm", "quantile"), explainer_of("lightgbm", "quantile")
    explainer.save(tmp_path / "quantile.npz")
    again = axil.load(tmp_path / "quantile.npz", case.model)
    near = {3: explainer.targets[3] + 0.5 * explainer.verification.active_set.radius}
    for change in (near, {3: 1e5}):
        pd.testing.assert_frame_equal(
            again.what_if(case.X_new, change), explainer.what_if(case.X_new, change)
        )


def test_what_if_against_a_replay_with_the_new_targets():
    case, explainer = case_of("lightgbm", "bagging"), explainer_of("lightgbm", "bagging")
    new, after = changed_targets(explainer, case)
    leaves, s = (
        verified_model(explainer).adapter.leaves(case.X_new),
        verified_model(explainer).engines[0].structure,
    )
    frame = explainer.what_if(case.X_new, new)
    moved = replay(s, after[:, 0], leaves) - replay(s, explainer.targets, leaves)
    np.testing.assert_allclose(frame["change"], moved, rtol=0, atol=1e-12)


def test_what_if_with_offsets_labels_and_nothing_new():
    case = case_of("lightgbm", "regressor weighted scored")
    X = pd.DataFrame(np.asarray(case.X), index=[f"r{i}" for i in range(len(case.y))])
    X.columns = getattr(case.model, "booster_", case.model).feature_name()
    explainer = axil.Explainer(
        case.model, X, case.y, sample_weight=case.sample_weight, init_score=offsets_of(case)
    )
    frame = explainer.what_if(X.iloc[:4], {"r3": 0.0}, init_score=np.arange(4.0))
    plain = explainer.what_if(X.iloc[:4], pd.Series({"r3": 0.0}))
    np.testing.assert_allclose(frame["before"] - plain["before"], np.arange(4.0))
    assert list(frame["query"]) == ["r0", "r1", "r2", "r3"]
    assert not explainer.what_if(X.iloc[:4], {})["change"].any()
    assert len(explainer.what_if(X.iloc[:0], {"r3": 1.0})) == 0


def test_a_label_that_several_rows_share_means_all_of_them():
    case, plain = case_of("lightgbm", "regressor"), explainer_of("lightgbm", "regressor")
    repeated = pd.DataFrame(np.asarray(case.X), index=np.arange(len(case.y)) // 2)
    repeated.columns = getattr(case.model, "booster_", case.model).feature_name()
    explainer = axil.Explainer(case.model, repeated, case.y)
    found, expected = (
        explainer.what_if(case.X_new, {3: 1.0}),
        plain.what_if(case.X_new, {6: 1.0, 7: 1.0}),
    )
    pd.testing.assert_frame_equal(found, expected)
    np.testing.assert_array_equal(
        explainer.jacobian.sensitivity(case.X_new, [3, 0]),
        plain.jacobian.sensitivity(case.X_new, [6, 7, 0, 1]),
    )


def test_bad_changes_are_refused():
    case, explainer = case_of("lightgbm", "regressor"), explainer_of("lightgbm", "regressor")
    bad = {
        "unknown": ({10**6: 1.0}, "names row 1000000"),
        "twice": (pd.Series([1.0, 2.0], index=[3, 3]), "names row 3 twice"),
        "nan": ({3: np.nan}, "targets holds nan"),
        "text": ({3: "high"}, "not numeric"),
        "a list": ([1.0], "targets is a list"),
    }
    for new, message in bad.values():
        with pytest.raises(InputError, match=message):
            explainer.what_if(case.X_new, new)
    classifier = explainer_of("sklearn", "RandomForestClassifier")
    with pytest.raises(InputError, match="knows the classes"):
        classifier.what_if(case_of("sklearn", "RandomForestClassifier").X_new, {0: "no such class"})


@pytest.mark.parametrize(
    ("library", "name"),
    [
        ("lightgbm", "regressor"),
        ("lightgbm", "bagging"),
        ("xgboost", "one_output_per_tree weighted"),
        ("xgboost", "base_margin base_score=2 weighted"),
        ("catboost", "multi weighted"),
        ("sklearn", "RandomForestRegressor weighted"),
        ("smoother", "ridge two outputs"),
        ("smoother", "neighbours"),
    ],
)
@pytest.mark.parametrize("scored", [False, True])
def test_sensitivity_is_columns_of_the_weights(library, name, scored, monkeypatch):
    """Up to rounding: these are made by replays of the fit, those by sweeps back from the predictions."""
    monkeypatch.setattr("axil.methods.jacobian.COLUMNS", 3)
    explainer, case = explainer_of(library, name), case_of(library, name)
    rows = [5, 0, 17, 3]
    offsets = (
        np.arange(case.X_new.shape[0], dtype=float) if scored and library != "smoother" else None
    )
    if offsets is not None and explainer.outputs is not None:
        offsets = np.stack([offsets] * len(explainer.outputs), axis=1)
    sensitivities = explainer.jacobian.sensitivity(
        case.X_new, explainer.index[rows], init_score=offsets
    )
    wanted = explainer(case.X_new, init_score=offsets).weights[..., rows]
    np.testing.assert_allclose(sensitivities, wanted, rtol=1e-9, atol=1e-12)
    assert explainer.jacobian.sensitivity(case.X_new, []).shape == (*wanted.shape[:-1], 0)


def test_sensitivity_refuses_what_it_cannot_answer():
    explainer, X = explainer_of("lightgbm", "regressor"), case_of("lightgbm", "regressor").X_new
    for rows, message in [
        (["nobody"], "rows"),
        ("nobody", "expected a list of labels"),
        (3, "expected a list of labels"),
    ]:
        with pytest.raises(axil.InputError, match=message):
            explainer.jacobian.sensitivity(X, rows)
    small = axil.Explainer(
        *(getattr(case_of("lightgbm", "regressor"), part) for part in ("model", "X", "y"))
    )
    verified_model(small).budget.limit = 1000
    with pytest.raises(axil.InputError, match=r"would take .* memory_limit"):
        small.jacobian.sensitivity(X, small.index[:2])


BALANCED = {
    "lightgbm": lambda: lgb.LGBMClassifier(**pushed.LGB, class_weight="balanced"),
    "lightgbm by number": lambda: lgb.LGBMClassifier(**pushed.LGB, class_weight={0: 1.0, 1: 3.0}),
    "lightgbm unbalanced": lambda: lgb.LGBMClassifier(**pushed.LGB, is_unbalance=True),
    "catboost": lambda: catboost.CatBoostClassifier(**pushed.CAT, auto_class_weights="Balanced"),
    "catboost roots": lambda: catboost.CatBoostClassifier(
        **pushed.CAT, auto_class_weights="SqrtBalanced"
    ),
    "catboost by number": lambda: catboost.CatBoostClassifier(**pushed.CAT, class_weights=[1, 3]),
    "histograms": lambda: HistGradientBoostingClassifier(**pushed.HIST, class_weight="balanced"),
}


def turned(explainer, y):
    """Three rows with other targets: the next class, or another number of the same kind."""
    classes, labels = verified_model(explainer).names.classes, explainer.index[[1, 40, 7]]
    if classes is None:
        return {label: 1.0 - y[label] if y.max() <= 1 else 1.7 * y[label] + 0.2 for label in labels}
    return {label: next(name for name in classes if name != y[label]) for label in labels}


def assert_refit_agrees(explainer, new, tolerance=1e-6):
    predictions_after = explainer.what_if(pushed.X_NEW, new)["after"]
    expected = np.asarray(explainer.refit(targets=new)(pushed.X_NEW).predictions).ravel()
    np.testing.assert_allclose(
        predictions_after, expected, rtol=0, atol=tolerance * np.abs(expected).max()
    )


@pytest.mark.parametrize("name", [name for name in pushed.CASES if "clipped" not in name])
def test_what_if_of_other_losses_is_refit_with_these_targets(name):
    case = pushed.case_of(name)
    explainer = pushed.explain(case)
    assert_refit_agrees(explainer, turned(explainer, case.y))


@pytest.mark.parametrize("name", BALANCED)
@pytest.mark.parametrize("weights", [None, pushed.WEIGHTS])
def test_class_weights_follow_the_new_classes(name, weights):
    """A row has the weight of its new class, and those that balance classes are counted again."""
    y = pushed.BINARY
    model = BALANCED[name]().fit(pushed.X, y, sample_weight=weights)
    explainer = axil.Explainer(model, pushed.X, y, sample_weight=weights)
    new = turned(explainer, y)
    assert_refit_agrees(explainer, new)
    held = verified_model(explainer).boosting.walked.weights
    changed = y.copy()
    changed[list(new)] = list(new.values())
    if name == "lightgbm" and weights is None:  # by hand
        remaining = verified_model(explainer).boosting.label_weights.with_targets(
            verified_model(explainer).boosting.walked, changed[:, None].astype(float), None
        )
        expected = compute_sample_weight("balanced", changed)
        np.testing.assert_allclose(remaining.weights[0], expected, rtol=1e-6)
        assert np.abs(expected - held).max() > 0.01


@pytest.mark.parametrize(
    "name",
    [
        "DecisionTreeClassifier balanced",
        "RandomForestClassifier costs bootstrap=False",
        "BaggingClassifier balanced",
    ],
)
def test_trees_whose_rows_weigh_by_class_are_refused(name):
    """Their leaves hold shares of weights, which follow the classes."""
    case, explainer = case_of("sklearn", name), explainer_of("sklearn", name)
    label, other = (
        explainer.index[3],
        next(
            one for one in verified_model(explainer).names.classes if one != np.asarray(case.y)[3]
        ),
    )
    with pytest.raises(
        axil.UnsupportedQuestionError, match="class_weight gives a row the weight of its class"
    ):
        explainer.what_if(case.X_new, {label: other})
    assert not explainer.what_if(case.X_new, {label: np.asarray(case.y)[3]})["change"].any()


def test_a_ridge_classifier_with_class_weights_is_refused():
    model = RidgeClassifier(class_weight="balanced").fit(pushed.X, pushed.BINARY)
    explainer = axil.Explainer(model, pushed.X, pushed.BINARY)
    with pytest.raises(axil.UnsupportedQuestionError, match="class_weight"):
        explainer.what_if(pushed.X_NEW, {3: 1 - pushed.BINARY[3]})
