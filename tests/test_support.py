"""Whether a model can be explained, told without data."""

import catboost as cb
import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    BaggingClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, TargetEncoder

import axil
from tests.adapters import (
    catboost_models,
    lightgbm_models,
    test_catboost_refusals,
    test_lightgbm_refusals,
    test_sklearn_refusals,
    test_xgboost_refusals,
    xgboost_models,
)
from tests.adapters.smoother_models import CASES as SMOOTHERS
from tests.fits import explainer_of_fit
from tests.notebooks import table_cells
from tests.subsets import mostly_slow

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 3)), RNG.normal(size=60)
CLASSES, LABELS = np.digitize(Y, [-0.5, 0.5]), np.stack([Y > 0, X[:, 0] > 0], axis=1).astype(int)
QUIET = {"verbose": -1, "n_estimators": 2}


@pytest.mark.parametrize(
    ("model", "kind", "setting"),
    [
        (lgb.LGBMRegressor(**QUIET).fit(X, Y), "exact", None),
        (lgb.LGBMRegressor(**QUIET, reg_alpha=1.0).fit(X, Y), "exact", None),
        (lgb.LGBMRegressor(**QUIET, objective="fair").fit(X, Y), "additive", "objective"),
        (lgb.LGBMRegressor(**QUIET, objective="huber").fit(X, Y), "exact", None),
        (lgb.LGBMRegressor(**QUIET, objective="l1").fit(X, Y), "exact", None),
        (lgb.LGBMClassifier(**QUIET).fit(X, Y > 0), "additive", "objective"),
        (RandomForestClassifier(2).fit(X, Y > 0), "exact", None),
        (GradientBoostingClassifier(n_estimators=2).fit(X, Y > 0), "additive", "class"),
        (MLPRegressor(hidden_layer_sizes=(2,), max_iter=5).fit(X, Y), "derivative", "class"),
        (MLPRegressor(hidden_layer_sizes=(2,), max_iter=5, alpha=0.0).fit(X, Y), "no", "alpha"),
        (
            make_pipeline(
                StandardScaler(), MLPRegressor(hidden_layer_sizes=(2,), max_iter=5, alpha=0.0)
            ).fit(X, Y),
            "no",
            "alpha",
        ),
        (make_pipeline(StandardScaler(), LinearRegression()).fit(X, Y), "exact", None),
        (make_pipeline(TargetEncoder(), LinearRegression()).fit(X.round(), Y), "no", "transformer"),
        (GaussianNB().fit(X, Y > 0), "no", "class"),
        (StandardScaler().fit(X), "no", None),
        ("a file name", "no", None),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_kinds(model, kind, setting):
    found = axil.supports(model)
    assert (found.kind, found.setting) == (kind, setting)
    assert found.exact == bool(found) == (kind == "exact")
    first = found.reason.partition(". ")[0]
    leads = {
        "exact": "are weighted sums of its training targets",
        "additive": "by contributions of its training rows",
        "derivative": "gives the derivatives of this model's predictions",
    }
    if kind in leads:  # what it has comes first, and no advice against the model
        assert leads[kind] in first
        assert "Fit with" not in found.reason
    assert found.reason
    assert table_cells(found._repr_html_()) == (
        "axil.Support",
        ["kind", kind, "reason", found.reason],
    )


def test_a_notebook_shows_the_name_of_a_class_escaped():
    support = axil.supports(type("<b>Model</b>", (GaussianNB,), {})().fit(X, Y > 0))
    assert "<b>Model</b>" in support.reason
    assert "&lt;b&gt;Model&lt;/b&gt;" in support._repr_html_()
    assert "<b>" not in support._repr_html_()


@pytest.mark.parametrize(
    "model",
    [
        GaussianNB(),
        GridSearchCV(GaussianNB(), {}),
        make_pipeline(StandardScaler(), GaussianNB()),
        GridSearchCV(make_pipeline(StandardScaler(), GridSearchCV(GaussianNB(), {})), {}),
    ],
    ids=["alone", "in a search", "in a pipeline", "in several"],
)
def test_a_model_that_is_not_read_is_named_wherever_it_is(model):
    model.fit(X, Y > 0)
    found = axil.supports(model)
    with pytest.raises(
        axil.UnsupportedModelError, match=r"class sklearn\.naive_bayes\.GaussianNB, is not read"
    ) as caught:
        axil.Explainer(model, X, Y > 0)
    assert (found.kind, found.setting, found.reason) == (
        "no",
        caught.value.setting,
        str(caught.value),
    )


def test_a_search_of_another_kind_has_the_model_inside():
    class Search:
        best_estimator_ = LinearRegression().fit(X, Y)

        def predict(self, rows):
            return self.best_estimator_.predict(rows)

    with pytest.raises(axil.InputError, match="Pass the model that it chose: its best_estimator_"):
        axil.Explainer(Search(), X, Y)


def test_an_unfitted_model_cannot_be_judged():
    with pytest.raises(axil.InputError, match="not been fitted"):
        axil.supports(lgb.LGBMRegressor())


@pytest.mark.parametrize("name", SMOOTHERS)
def test_smoothers_and_pipelines(name):
    assert axil.supports(SMOOTHERS[name]().model).exact


@pytest.mark.parametrize(
    ("module", "attribute"),
    [
        ("mlforecast.forecast", "models_"),
        ("skforecast.recursive", "estimator"),
        ("darts.models.forecasting.regression_model", "its model"),
        ("sktime.forecasting.compose._reduce", "estimator_"),
        ("mlflow.pyfunc", "get_raw_model"),
    ],
)
def test_objects_around_a_model_name_what_to_pass(module, attribute):
    around = type("Forecaster", (), {"__module__": module})()
    found = axil.supports(around)
    assert found.kind == "no"
    assert attribute in found.reason
    assert f"{module}.Forecaster" in found.reason
    with pytest.raises(axil.InputError, match=attribute):
        axil.Explainer(around, X, Y)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_advice_for_encodings_by_the_targets_works():
    from sklearn.base import clone

    model = make_pipeline(TargetEncoder(random_state=0), LinearRegression()).fit(X.round(), Y)
    assert "sklearn.base.clone(model[:-1]).fit_transform(X, y)" in axil.supports(model).reason
    Z = clone(model[:-1]).fit_transform(X.round(), Y)
    explained = axil.Explainer(model[-1], Z, Y)(model[:-1].transform(X.round()[:3]))
    np.testing.assert_allclose(explained.predictions, model.predict(X.round()[:3]))


MONOTONE = [1, 0, 0]
BOOSTED = {"n_estimators": 3, "max_depth": 2, "n_jobs": 1}
HISTOGRAMS = {"max_iter": 2, "max_leaf_nodes": 3, "min_samples_leaf": 5}
INSIDE = {
    "lightgbm": lgb.LGBMClassifier(**QUIET),
    "lightgbm DART": lgb.LGBMClassifier(**QUIET, boosting_type="dart"),
    "lightgbm scale_pos_weight": lgb.LGBMClassifier(**QUIET, scale_pos_weight=2.0),
    "lightgbm is_unbalance": lgb.LGBMClassifier(**QUIET, is_unbalance=True),
    "lightgbm class_weight": lgb.LGBMClassifier(**QUIET, class_weight="balanced"),
    "lightgbm path_smooth": lgb.LGBMClassifier(**QUIET, path_smooth=1.0),
    "lightgbm monotone": lgb.LGBMClassifier(**QUIET, monotone_constraints=MONOTONE),
    "lightgbm forest": lgb.LGBMClassifier(
        **QUIET, boosting_type="rf", subsample=0.5, subsample_freq=1
    ),
    "xgboost": xgb.XGBClassifier(**BOOSTED),
    "xgboost DART": xgb.XGBClassifier(**BOOSTED, booster="dart", rate_drop=0.9),
    "xgboost scale_pos_weight": xgb.XGBClassifier(**BOOSTED, scale_pos_weight=2.0),
    "xgboost monotone": xgb.XGBClassifier(**BOOSTED, monotone_constraints=tuple(MONOTONE)),
    "catboost weights": cb.CatBoostClassifier(
        iterations=2, auto_class_weights="Balanced", verbose=False, allow_writing_files=False
    ),
    "histograms class_weight": HistGradientBoostingClassifier(
        **HISTOGRAMS, class_weight="balanced"
    ),
    "histograms stopped": HistGradientBoostingClassifier(
        **HISTOGRAMS, early_stopping=True, random_state=0
    ),
    "histograms monotone": HistGradientBoostingClassifier(**HISTOGRAMS, monotonic_cst=MONOTONE),
    "stages stopped": GradientBoostingClassifier(
        n_estimators=2, n_iter_no_change=2, random_state=0
    ),
    "stages by chance": GradientBoostingClassifier(n_estimators=2, subsample=0.5),
    "forest": RandomForestClassifier(2, random_state=0),
}
AROUND = {
    "itself": (lambda inside: inside, CLASSES > 0),
    "one against the rest": (OneVsRestClassifier, CLASSES),
    "one of two": (OneVsRestClassifier, CLASSES > 0),
    "labels": (MultiOutputClassifier, LABELS),
    "calibrated": (
        lambda inside: CalibratedClassifierCV(inside, cv=2, ensemble=False),
        CLASSES > 0,
    ),
    "calibrated in folds": (lambda inside: CalibratedClassifierCV(inside, cv=2), CLASSES > 0),
    "voting": (lambda inside: VotingClassifier([("a", inside)], voting="soft"), CLASSES > 0),
    "bagging": (
        lambda inside: BaggingClassifier(inside, n_estimators=2, random_state=0),
        CLASSES > 0,
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", INSIDE)
def test_an_explainer_is_of_the_kind_that_supports_says(name):
    """Of every model inside every other: what is refused with its data is refused without them."""
    for around, (wrap, targets) in AROUND.items():
        if name.startswith("catboost"):
            targets = targets.astype(
                int
            )  # CatBoost 1.2 makes text of truth values, which calibration does not take
        model = wrap(clone(INSIDE[name])).fit(X, targets)
        told = axil.supports(model)
        if told.kind == "no":
            with pytest.raises(axil.UnsupportedModelError) as refused:
                axil.Explainer(model, X, targets)
            assert refused.value.setting == told.setting, around
        else:
            assert axil.Explainer(model, X, targets).kind == told.kind, around


REFUSALS = {
    "lightgbm": (
        test_lightgbm_refusals.REFUSED,
        lambda entry: lightgbm_models.booster(**{"n_trees": 3} | entry[0]),
    ),
    "xgboost": (
        test_xgboost_refusals.REFUSED,
        lambda entry: xgboost_models.booster(**{"n_trees": 3, "verbosity": 0} | entry[0]),
    ),
    "catboost": (
        test_catboost_refusals.REFUSED,
        lambda entry: catboost_models.regressor(**{"iterations": 3} | entry[0]),
    ),
    "sklearn": (test_sklearn_refusals.REFUSED, lambda entry: entry[0]()),
}
REFUSED = [(library, name) for library, (table, _) in REFUSALS.items() for name in table]
FAILURES = cb.CatBoostError, xgb.core.XGBoostError, lgb.basic.LightGBMError


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("library", "name"), mostly_slow(2, REFUSED))
def test_what_supports_says_of_refused_models_is_what_the_explainer_does(library, name):
    """Of those that have no exact weights too, which the explainer may take all the same."""
    table, make = REFUSALS[library]
    try:
        case = make(table[name])
    except FAILURES as error:
        pytest.skip(f"this version of the library does not have it: {error}")
    told = axil.supports(case.model)
    given = [getattr(case, name, None) for name in ("init_score", "base_margin", "baseline")]
    offsets = next((own for own in given if own is not None), None)
    fit = case.model, case.X, case.y, case.sample_weight, offsets
    group = None
    if name.startswith("rank:"):
        group = table[name][0]["matrix"]["qid"]
    if told.kind == "no":
        with pytest.raises(axil.UnsupportedModelError) as refused:
            explainer_of_fit(*fit)
        assert refused.value.setting == told.setting
    else:
        assert explainer_of_fit(*fit, group=group).kind == told.kind
