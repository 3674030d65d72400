"""Derivatives of boosting with smooth losses against finite differences of an independent replay with the leaves held fixed."""

from functools import cache

import catboost
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight

import axil
from axil.methods.method import verified_model
from tests.contributions.boosting_models import (
    BINARY,
    CASES,
    CAT,
    CLASSES,
    COUNTS,
    GB,
    HIST,
    LGB,
    OFFSETS,
    SCORE,
    WEIGHTS,
    X_NEW,
    XGB,
    N,
    X,
    along_gradients,
    case_of,
    explain,
)
from tests.contributions.fixed_structure import differences, replay, sigmoid, softmax
from tests.subsets import mostly_slow

COLUMNS = [0, 3, 17, 60, 119]


@cache
def explainer_of(name, output="raw"):
    case = case_of(name)
    return explain(case, output=output)


def replayed(case, y, w):
    """(n, K): what the independent replay predicts for the new rows."""
    more = {"rate": 0.25, **case.more}
    if case.offsets is not None:
        more["offsets"] = case.offsets[:, None]
    w = (
        w if case.library == "sklearn" else w + (np.float32(case.w) - case.w)
    )  # as the library keeps them
    return replay(case.leaves(X), case.leaves(X_NEW), y, w, case.loss, case.start, **more)


@pytest.mark.parametrize("name", CASES)
def test_the_replay_of_the_tests_is_the_fit(name):
    case = case_of(name)
    scores = case.scores(X_NEW)
    assert np.abs(replayed(case, case.targets, case.w) - scores).max() < 2e-6 * np.abs(scores).max()


@pytest.mark.parametrize("name", mostly_slow(2, CASES))
def test_target_derivatives_are_finite_differences(name):
    """Central differences of 1e-5 are good to some 1e-9; the fit in float32 moves the point where they are taken by 1e-7."""
    case = case_of(name)
    found = explainer_of(name)(X_NEW).weights.reshape(len(X_NEW), -1, N)
    for k in range(case.targets.shape[1]):

        def predict(column, k=k):
            y = case.targets.copy()
            y[:, k] = column
            return replayed(case, y, case.w)[:, k]

        expected = differences(predict, case.targets[:, k], COLUMNS, 1e-5)
        assert np.abs(found[:, k, COLUMNS].T - expected).max() < 1e-6 * np.abs(found[:, k]).max()


@pytest.mark.parametrize("name", mostly_slow(2, CASES, share=1))
def test_weight_derivatives_are_finite_differences(name):
    case = case_of(name)
    explanation = explainer_of(name).jacobian.by_sample_weight(X_NEW).reshape(len(X_NEW), -1, N)
    expected = differences(lambda w: replayed(case, case.targets, w), case.w, COLUMNS, 1e-5)
    assert (
        np.abs(explanation[:, :, COLUMNS].transpose(2, 0, 1) - expected).max()
        < 1e-6 * np.abs(explanation).max()
    )


@pytest.mark.parametrize(
    ("name", "link"),
    [
        ("lightgbm binary", sigmoid),
        ("xgboost multiclass", softmax),
        ("catboost multiclass", softmax),
        ("sklearn hist poisson", np.exp),
    ],
)
def test_probabilities_are_differentiated_through_the_link(name, link):
    case = case_of(name)
    explanation = explainer_of(name, "probability")(X_NEW)
    K = case.targets.shape[1]
    found = explanation.weights.reshape(len(X_NEW), K, N)
    for k in range(K):

        def predict(column, k=k):
            y = case.targets.copy()
            y[:, k] = column
            return link(replayed(case, y, case.w))[:, k]

        expected = differences(predict, case.targets[:, k], COLUMNS, 1e-5)
        assert np.abs(found[:, k, COLUMNS].T - expected).max() < 1e-6 * np.abs(found[:, k]).max()
    own = (
        case.model.predict_proba(X_NEW)[:, -K:]
        if hasattr(case.model, "predict_proba")
        else case.model.predict(X_NEW)
    )
    assert np.allclose(
        explanation.probabilities.reshape(len(X_NEW), K),
        np.reshape(own, (len(X_NEW), K)),
        atol=1e-6,
    )


SQUARED = {
    "lightgbm": lgb.LGBMRegressor(**LGB, reg_lambda=0.5),
    "lightgbm bagging": lgb.LGBMRegressor(**LGB, subsample=0.6, subsample_freq=1),
    "xgboost": xgb.XGBRegressor(**XGB),
    "xgboost subsample": xgb.XGBRegressor(**XGB, subsample=0.6, num_parallel_tree=2),
    "catboost": catboost.CatBoostRegressor(**CAT, leaf_estimation_iterations=3),
    "sklearn": GradientBoostingRegressor(**GB, subsample=0.6),
    "sklearn hist": HistGradientBoostingRegressor(**HIST, early_stopping=True, random_state=1),
}


@pytest.mark.parametrize("name", SQUARED)
def test_squared_error_gives_the_exact_weights(name):
    model = SQUARED[name].fit(X, SCORE, sample_weight=WEIGHTS)
    exact = axil.Explainer(model, X, SCORE, sample_weight=WEIGHTS)(X_NEW)
    found = along_gradients(model, X, SCORE, WEIGHTS)(X_NEW)
    assert np.abs(found.weights - exact.weights).max() < 1e-8 * np.abs(exact.weights).max()
    assert np.abs(found.predictions - exact.predictions).max() < 1e-6


def test_the_step_search_finds_halved_steps():
    """CatBoost's default of ten steps gives up some of them near the optimum: the replay has to say which."""
    model = catboost.CatBoostClassifier(
        **{**CAT, "iterations": 30}, leaf_estimation_iterations=10
    ).fit(X, BINARY)
    explainer = axil.Explainer(model, X, BINARY)
    assert explainer.verification.leaf_error < 1e-12
    stages = np.bincount(verified_model(explainer).boosting.walked.stage_tree)
    assert stages.min() < 10  # or there would be nothing to find


@pytest.mark.parametrize(
    "name", ["lightgbm multiclass", "catboost binary 4 steps", "xgboost binary"]
)
def test_threads_and_batches_change_nothing(name):
    case, explainer = case_of(name), explainer_of(name)
    other = axil.Explainer(case.model, X, case.y, sample_weight=case.weights, n_threads=2)
    whole = explainer(X[:7]).weights
    assert np.array_equal(other(X[:7]).weights, whole)
    parts = [part.weights for part in explainer.iter(X[:7], batch_size=3)]
    assert np.allclose(np.concatenate(parts), whole, rtol=0, atol=1e-15 * np.abs(whole).max())
    assert np.allclose(
        np.concatenate(
            [
                explainer.jacobian.by_sample_weight(X[:4]),
                explainer.jacobian.by_sample_weight(X[4:7]),
            ]
        ),
        explainer.jacobian.by_sample_weight(X[:7]),
    )


@pytest.mark.parametrize(
    "name", ["lightgbm binary", "xgboost gamma", "catboost multiclass", "sklearn multiclass"]
)
def test_wrong_training_data_raise(name):
    case = case_of(name)
    swapped = case.y.copy()
    i, j = 0, int(np.flatnonzero(case.y != case.y[0])[0])
    swapped[[i, j]] = swapped[[j, i]]
    with pytest.raises(axil.ExactnessError, match=r"leaf|initial prediction"):
        axil.Explainer(case.model, X, swapped, sample_weight=case.weights)
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(case.model, X, case.y, sample_weight=case.w * np.linspace(0.9, 1.1, N))
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(case.model, X[::-1], case.y, sample_weight=case.weights)


def test_a_model_that_changed_is_noticed():
    model = lgb.LGBMClassifier(**LGB).fit(X, BINARY)
    explainer = axil.Explainer(model, X, BINARY)
    verified_model(explainer).boosting.adapter._booster.set_leaf_output(
        2, 0, 3.0
    )  # a copy of its own
    with pytest.raises(axil.ExactnessError, match="changed"):
        explainer(X)


def loaded(tmp_path):
    model = xgb.XGBClassifier(**XGB).fit(X, BINARY)
    model.save_model(tmp_path / "model.json")
    booster = xgb.Booster()
    booster.load_model(tmp_path / "model.json")
    return booster, BINARY


def schedule(i):
    return 0.3 * 0.9**i


FITTED = {
    "lightgbm schedule": lambda path: (
        lgb.train(
            {"objective": "binary", "verbose": -1, "num_threads": 1},
            lgb.Dataset(X, BINARY),
            6,
            callbacks=[lgb.reset_parameter(learning_rate=schedule)],
        ),
        BINARY,
    ),
    "lightgbm text": lambda path: (
        lgb.Booster(model_str=case_of("lightgbm multiclassova").model.booster_.model_to_string()),
        CLASSES,
    ),
    "lightgbm bagging": lambda path: (
        lgb.LGBMClassifier(**LGB, subsample=0.6, subsample_freq=2).fit(X, BINARY),
        BINARY,
    ),
    "lightgbm no splits": lambda path: (
        lgb.LGBMClassifier(**{**LGB, "min_child_samples": 100}).fit(X, BINARY),
        BINARY,
    ),
    "xgboost loaded": loaded,
    "xgboost schedule": lambda path: (
        xgb.train(
            {"objective": "binary:logistic", "nthread": 1},
            xgb.DMatrix(X, BINARY),
            6,
            callbacks=[xgb.callback.LearningRateScheduler(schedule)],
        ),
        BINARY,
    ),
    "xgboost logitraw": lambda path: (
        xgb.train({"objective": "binary:logitraw", "nthread": 1}, xgb.DMatrix(X, BINARY), 6),
        BINARY,
    ),
    "xgboost subsample multiclass": lambda path: (
        xgb.XGBClassifier(**XGB, subsample=0.6, num_parallel_tree=2).fit(X, CLASSES),
        CLASSES,
    ),
    "catboost lossguide": lambda path: (
        catboost.CatBoostClassifier(**CAT, grow_policy="Lossguide").fit(X, CLASSES),
        CLASSES,
    ),
    "sklearn early stopping": lambda path: (
        GradientBoostingClassifier(**GB, n_iter_no_change=3).fit(X, CLASSES),
        CLASSES,
    ),
    "sklearn hist early stopping": lambda path: (
        HistGradientBoostingClassifier(**HIST, early_stopping=True, random_state=0).fit(X, CLASSES),
        CLASSES,
    ),
    "sklearn from zero": lambda path: (
        GradientBoostingClassifier(**GB, init="zero").fit(X, BINARY),
        BINARY,
    ),
}


@pytest.mark.parametrize("ending", ["json", "ubj"])
@pytest.mark.parametrize("settings", [{}, {"max_delta_step": 0.3}])
def test_poisson_models_from_files_keep_their_step(settings, ending, tmp_path):
    """max_delta_step, 0.7 where nobody set it, clips leaves, and files keep it with the objective alone."""
    model = xgb.XGBRegressor(
        **{**XGB, "learning_rate": 0.1, "min_child_weight": 0.0},
        objective="count:poisson",
        **settings,
    )
    model.fit(X, COUNTS, base_margin=OFFSETS).save_model(tmp_path / f"model.{ending}")
    again = xgb.XGBRegressor()
    again.load_model(tmp_path / f"model.{ending}")
    expected = axil.Explainer(model, X, COUNTS, init_score=OFFSETS)
    assert verified_model(expected).boosting.walked.fit.leaf_rule.max_step == pytest.approx(
        settings.get("max_delta_step", 0.7)
    )
    for loaded in (again, xgb.Booster(model_file=tmp_path / f"model.{ending}")):
        found = axil.Explainer(loaded, X, COUNTS, init_score=OFFSETS)
        both = [
            own(X_NEW, init_score=OFFSETS[: len(X_NEW)]).contributions for own in (found, expected)
        ]
        np.testing.assert_allclose(*both, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", FITTED)
def test_other_ways_to_a_model_are_replayed(name, tmp_path):
    model, y = FITTED[name](tmp_path)
    explainer = axil.Explainer(model, X, y)
    assert explainer.verification.leaf_error < 3e-7
    assert np.isfinite(explainer(X_NEW).weights).all()


@pytest.mark.parametrize(
    ("kind", "settings", "setting"),
    [
        (lgb.LGBMClassifier, LGB, "balanced"),
        (lgb.LGBMClassifier, LGB, {"mid": 4.0}),
        (HistGradientBoostingClassifier, HIST, "balanced"),
        (
            HistGradientBoostingClassifier,
            HIST,
            {1: 4.0},
        ),  # by the number of the class, whatever its name
    ],
)
def test_class_weights_multiply_sample_weights(kind, settings, setting):
    """As the fit does it: the same model comes of the product of both."""
    labels, w = np.array(["low", "mid", "top"])[CLASSES], np.linspace(0.2, 2, N)
    product = w * compute_sample_weight("balanced" if setting == "balanced" else {1: 4.0}, CLASSES)
    model = kind(**settings, class_weight=setting).fit(X, labels, sample_weight=w)
    by_hand = kind(**settings).fit(X, labels, sample_weight=product)
    found = axil.Explainer(model, X, labels, sample_weight=w)
    expected = axil.Explainer(by_hand, X, labels, sample_weight=product)
    np.testing.assert_allclose(
        found.jacobian.gradient_contributions(X_NEW),
        expected.jacobian.gradient_contributions(X_NEW),
        rtol=0,
        atol=1e-12,
    )
    by_product = axil.Explainer(
        model, X, labels, sample_weight=product
    )  # multiplied by hand already
    np.testing.assert_array_equal(
        by_product.jacobian.gradient_contributions(X_NEW),
        found.jacobian.gradient_contributions(X_NEW),
    )
    with pytest.raises(
        axil.ExactnessError, match=r"first:\n- The model has class_weight=.* as the fit got it"
    ):
        axil.Explainer(model, X, labels, sample_weight=w[::-1])


@pytest.mark.parametrize(
    ("settings", "factors"),
    [
        ({"class_weights": [1, 4, 0.5]}, [1.0, 4.0, 0.5]),
        ({"class_weights": {"low": 1, "mid": 2, "top": 3}}, [1.0, 2.0, 3.0]),
        ({"auto_class_weights": "Balanced"}, "Balanced"),
        ({"auto_class_weights": "SqrtBalanced"}, "SqrtBalanced"),
        ({"scale_pos_weight": 2.5}, [1.0, 2.5]),
    ],
)
def test_class_weights_of_catboost_multiply_sample_weights(settings, factors):
    several = "scale_pos_weight" not in settings
    codes = CLASSES if several else BINARY.astype(int)
    labels, w = np.array(["low", "mid", "top"])[codes], np.linspace(0.2, 2, N)
    if isinstance(
        factors, str
    ):  # the largest class by the sum of its weights, over each; CatBoost cuts off the sums' decimals
        totals = np.floor(np.bincount(codes, w))
        factors = totals.max() / totals
        factors = np.sqrt(factors) if "Sqrt" in settings["auto_class_weights"] else factors
    product = w * np.array(factors)[codes]
    model = catboost.CatBoostClassifier(**CAT, **settings).fit(X, labels, sample_weight=w)
    by_hand = catboost.CatBoostClassifier(**CAT).fit(X, labels, sample_weight=product)
    found = axil.Explainer(model, X, labels, sample_weight=w)
    assert found.kind == "additive"
    expected = axil.Explainer(by_hand, X, labels, sample_weight=product)
    np.testing.assert_allclose(
        found.jacobian.gradient_contributions(X_NEW),
        expected.jacobian.gradient_contributions(X_NEW),
        rtol=0,
        atol=1e-6,
    )  # kept in float32
    swapped = labels.copy()
    swapped[[0, -1]] = (
        np.roll(np.unique(labels), 1)[:2] if labels[0] == labels[-1] else labels[[-1, 0]]
    )
    for wrong in (swapped, np.random.default_rng(0).permutation(labels)):
        with pytest.raises(axil.ExactnessError):
            axil.Explainer(model, X, wrong, sample_weight=w)


def test_categories():
    frame = pd.DataFrame(X, columns=list("abcd")).assign(
        kind=pd.Categorical(np.array(list("uvwxyz"))[CLASSES * 2])
    )
    models = (
        lgb.LGBMClassifier(**LGB),
        xgb.XGBClassifier(**XGB, enable_categorical=True),
        HistGradientBoostingClassifier(**HIST, categorical_features="from_dtype"),
    )
    for model in models:
        assert axil.Explainer(model.fit(frame, BINARY), frame, BINARY)(
            frame.head(2)
        ).weights.shape == (2, N)


def test_pipelines():
    model = make_pipeline(StandardScaler(), GradientBoostingClassifier(**GB)).fit(X, BINARY)
    plain = GradientBoostingClassifier(**GB).fit(StandardScaler().fit_transform(X), BINARY)
    scaler = StandardScaler().fit(X)
    expected = axil.Explainer(plain, scaler.transform(X), BINARY)(scaler.transform(X_NEW))
    explanation = axil.Explainer(model, X, BINARY)(X_NEW)
    assert np.array_equal(explanation.weights, expected.weights)


@pytest.mark.slow
def test_default_models_on_more_rows():
    """The settings that people use, where leaves are many and probabilities near 0 and 1."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20_000, 8))
    labels = (
        3 * rows[:, 0] + 2 * rows[:, 1] * rows[:, 2] + rng.logistic(size=len(rows)) > 0
    ).astype(int)
    models = (
        lgb.LGBMClassifier(n_estimators=300, verbose=-1, n_jobs=1),
        xgb.XGBClassifier(n_estimators=300, n_jobs=1),
        catboost.CatBoostClassifier(verbose=0, thread_count=1, allow_writing_files=False),
        HistGradientBoostingClassifier(random_state=0),
    )
    for model in models:
        explainer = axil.Explainer(model.fit(rows, labels), rows, labels)
        assert explainer.verification.leaf_error < explainer.verification.tolerance
        assert len(explainer.top(rows[:2], k=3)) == 6


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("loss", ["MultiClass", "MultiClassOneVsAll"])
def test_classes_that_are_named_but_not_there_have_no_output(loss):
    model = catboost.CatBoostClassifier(**CAT, loss_function=loss, class_names=[3, 1, 0, 2]).fit(
        X, BINARY
    )
    explanation = axil.Explainer(model, X, BINARY)(X_NEW)
    np.testing.assert_array_equal(explanation.outputs, [1, 0])
    own = model.predict(X_NEW, prediction_type="RawFormulaVal")
    np.testing.assert_allclose(explanation.predictions, own[:, 1:3], atol=1e-12)
    assert np.isneginf(own[:, [0, 3]]).all()
    np.testing.assert_allclose(
        explanation.contributions.sum(axis=-1) + explanation.intercepts, own[:, 1:3], atol=1e-9
    )


@pytest.mark.parametrize("size", [30.0, 100.0, 700.0])
@pytest.mark.parametrize("loss", ["Logloss", "MultiClass", "MultiClassOneVsAll"])
def test_baselines_that_leave_nothing_to_learn(loss, size):
    """Leaf values are what rounding leaves of probabilities next to 0 and 1: 1e-15, or 1e-44 where CatBoost has 0."""
    labels = BINARY if loss == "Logloss" else CLASSES.astype(int)
    right = np.eye(2 if loss == "Logloss" else 3)[labels.astype(int)]
    baseline = size * (2 * right - 1)
    baseline = baseline[:, 1:] if loss == "Logloss" else baseline
    pool = catboost.Pool(X, labels, baseline=baseline)
    model = catboost.CatBoost({**CAT, "loss_function": loss, "bootstrap_type": "No"}).fit(pool)
    explainer = axil.Explainer(model, X, labels, init_score=baseline)
    explanation = explainer(X[:5], init_score=baseline[:5])
    np.testing.assert_allclose(explanation.predictions.reshape(5, -1), baseline[:5], rtol=1e-12)
    wrong = labels.copy()
    wrong[3] = 1 - wrong[3] if wrong[3] < 2 else 0
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(model, X, wrong, init_score=baseline)


@pytest.mark.parametrize("names", [["1", "0"], ["0.0", "1.0"]])
def test_names_of_classes_that_are_text_where_targets_are_numbers(names):
    model = catboost.CatBoostClassifier(**CAT, class_names=names).fit(X, BINARY)
    explainer = axil.Explainer(model, X, BINARY)
    assert explainer(X_NEW).predictions == pytest.approx(
        model.predict(X_NEW, prediction_type="RawFormulaVal")
    )
    assert explainer.targets.tolist() == (float(names[1]) == BINARY).astype(float).tolist()
    with pytest.raises(axil.InputError, match="knows the classes"):
        axil.Explainer(model, X, BINARY + 1)


def test_classes_that_are_kept_in_single_precision():
    y = np.array([0.1, 1 / 3, 0.5])[CLASSES.astype(int)]
    model = catboost.CatBoostClassifier(**CAT).fit(X, y)
    explanation = axil.Explainer(model, X, y)(X_NEW)
    np.testing.assert_allclose(
        explanation.predictions, model.predict(X_NEW, prediction_type="RawFormulaVal"), atol=1e-12
    )
    with pytest.raises(axil.InputError, match=r"holds 0\.2 at position"):
        axil.Explainer(model, X, np.where(y == 0.1, 0.2, y))


def test_lightgbm_frames_may_be_renamed_by_the_fit():
    frame, names = pd.DataFrame(X, columns=["a", "b", "c", "d"]), ["p", "q", "r", "s"]
    for model, y in ((lgb.LGBMClassifier(**LGB), BINARY), (lgb.LGBMRegressor(**LGB), SCORE)):
        explainer = axil.Explainer(model.fit(frame, y, feature_name=names), frame, y)
        own = model.predict(frame[:5], raw_score=True)
        np.testing.assert_allclose(explainer(frame[:5]).predictions, own, rtol=1e-6)
        for other in (frame[["b", "a", "c", "d"]], frame.rename(columns={"a": "b", "b": "z"})):
            with pytest.raises(axil.InputError, match="another place than X_train"):
                explainer(other[:5])
        with pytest.raises(axil.InputError, match="other columns"):
            axil.Explainer(model, frame.rename(columns={"a": "p"}), y)


@pytest.mark.filterwarnings("ignore")  # LightGBM names the alias
def test_lightgbm_objectives_have_several_names():
    def squared(y, F):
        return F - y, np.ones_like(y)

    for settings in (
        *({name: squared} for name in ("loss", "app", "application")),
        {"loss": "fair", "objective": squared},
    ):
        model = lgb.LGBMRegressor(**LGB, **settings).fit(X, SCORE)
        np.testing.assert_allclose(
            axil.Explainer(model, X, SCORE)(X_NEW).predictions, model.predict(X_NEW), rtol=1e-9
        )


@pytest.mark.parametrize("objective", ["multiclass", "multiclassova", "binary", "cross_entropy"])
def test_a_lightgbm_class_that_no_row_has(objective):
    y = np.zeros(N) if objective in ("binary", "cross_entropy") else 2.0 * BINARY
    settings = {
        "objective": objective,
        "num_class": 3 if y.any() else 1,
        "verbose": -1,
        "num_threads": 1,
    }
    model = lgb.train(settings, lgb.Dataset(X, y), 3)
    np.testing.assert_allclose(
        axil.Explainer(model, X, y)(X_NEW).predictions,
        model.predict(X_NEW, raw_score=True),
        rtol=1e-13,
    )


def test_lightgbm_does_not_start_from_a_mean_next_to_zero():
    model = lgb.LGBMRegressor(**LGB, objective="fair").fit(X, 1e-17 * SCORE)
    own = model.predict(X_NEW)
    np.testing.assert_allclose(
        axil.Explainer(model, X, 1e-17 * SCORE)(X_NEW).predictions, own, rtol=1e-9
    )


@pytest.mark.parametrize("loss", ["log_loss", "exponential"])
@pytest.mark.parametrize(
    ("data", "rate"), [(load_breast_cancer, 0.3), (load_breast_cancer, 1.0), (load_iris, 1.0)]
)
def test_scikit_learns_stages_once_every_row_is_certain(data, rate, loss):
    """Gradients end next to zero, and second derivatives are made of them as scikit-learn rounds them."""
    X, y = data(return_X_y=True)
    y = y if loss == "log_loss" else y > 0
    model = GradientBoostingClassifier(
        n_estimators=150, learning_rate=rate, loss=loss, random_state=0
    ).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    scores = model.decision_function(X)
    # of the order of the sums alone: no difference of numbers near one is left
    assert explainer.verification.leaf_error < 1e-12
    explanation = explainer(X[::7])
    total = explanation.intercepts + explanation.contributions.sum(axis=-1)
    np.testing.assert_allclose(total, scores[::7], rtol=0, atol=1e-12 * np.abs(scores).max())


def test_dart_without_drops_finds_rates_that_trees_do_not_show():
    """L1 hides a rate from the tree alone; a rate that is not known must not reach the factors of drops."""
    settings = {**XGB, "booster": "dart", "rate_drop": 0.0, "reg_alpha": 0.3, "n_estimators": 5}
    model = xgb.XGBClassifier(**settings).fit(X, BINARY)
    explainer = axil.Explainer(model, X, BINARY)
    own = model.predict(X_NEW, output_margin=True)
    np.testing.assert_allclose(
        explainer(X_NEW).predictions, own, rtol=0, atol=1e-5 * np.abs(own).max()
    )


@pytest.mark.parametrize("l2", [1e-7, 0.01])
def test_steps_are_found_on_the_leaf_that_needs_most_of_them(l2):
    """Without much regularisation pure leaves go on for as many steps as there are, while others have long arrived."""
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(400, 4))
    labels = (rows[:, 0] + 0.5 * rng.normal(size=400) > 0.4).astype(int)
    model = catboost.CatBoostClassifier(
        **CAT | {"iterations": 20, "depth": 5, "learning_rate": 0.4, "l2_leaf_reg": l2},
        leaf_estimation_iterations=10,
    ).fit(rows, labels)
    explainer = axil.Explainer(model, rows, labels)
    own = model.predict(rows, prediction_type="RawFormulaVal")
    np.testing.assert_allclose(
        explainer(rows).predictions, own, rtol=0, atol=1e-6 * np.abs(own).max()
    )
    wrong = labels.copy()
    wrong[:2] = 1 - wrong[:2]
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(model, rows, wrong)
