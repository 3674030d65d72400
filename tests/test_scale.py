"""Models fitted to transformed targets: weights on the scale of the fit, answers in prices."""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostRegressor
from lightgbm import LGBMRegressor
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import PoissonRegressor, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    PowerTransformer,
    QuantileTransformer,
    StandardScaler,
)
from xgboost import XGBRegressor

import axil
import axil.baselines
import axil.plots
from axil import ExactnessError, InputError, UnsupportedModelError
from axil.cli import main
from axil.scale import IDENTITY, fitted_targets
from tests.output.page.page_models import data_of

N, Q = 200, 4
# Predictions agree to 1e-6 of the largest on the scale of the fit; the exponential makes that 12 times as much in prices.
PRICES = 2e-5

REGRESSORS = {
    "lightgbm": LGBMRegressor(
        n_estimators=20, verbose=-1, n_jobs=1, subsample=0.7, subsample_freq=1
    ),
    "xgboost": XGBRegressor(n_estimators=20, max_depth=3, n_jobs=1),
    "catboost": CatBoostRegressor(
        iterations=20, depth=3, verbose=0, thread_count=1, allow_writing_files=False
    ),
    "hist": HistGradientBoostingRegressor(max_iter=20),
    "stages": GradientBoostingRegressor(n_estimators=20),
    "forest": RandomForestRegressor(10, random_state=0),
    "ridge": make_pipeline(StandardScaler(), Ridge()),
}
TRANSFORMS = {
    "log": ({"func": np.log, "inverse_func": np.exp}, "log"),
    "log1p": ({"func": np.log1p, "inverse_func": np.expm1}, "log1p"),
    "log10": ({"func": np.log10, "inverse_func": lambda t: 10.0**t}, "log10"),
    "sqrt": ({"func": np.sqrt, "inverse_func": np.square}, "sqrt"),
    "lambda": ({"func": lambda y: y**0.25, "inverse_func": lambda t: t**4}, "transformed"),
    "reversed": ({"func": np.reciprocal, "inverse_func": np.reciprocal}, "reciprocal"),
    "scaled": ({"transformer": StandardScaler()}, "StandardScaler"),
    "power": ({"transformer": PowerTransformer()}, "PowerTransformer"),
    "quantile": ({"transformer": QuantileTransformer(n_quantiles=100)}, "QuantileTransformer"),
    "transformer of logs": ({"transformer": FunctionTransformer(np.log, np.exp)}, "log"),
}


@pytest.fixture(scope="module")
def homes():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        rng.normal(size=(N, 4)), columns=list("abcd"), index=[f"home {i}" for i in range(N)]
    )
    prices = np.round(np.exp(12 + 0.3 * X["a"] + 0.2 * X["b"] ** 2 + 0.1 * rng.normal(size=N)))
    return X, prices


def wrapped(regressor, X, y, **transform):
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # of a transform that does not lead back, which is one of the tests
        return TransformedTargetRegressor(regressor, **transform).fit(X, y)


def logs_of(homes, regressor="lightgbm", **settings):
    """A model fitted to logarithms that the user took, and its explainer."""
    X, prices = homes
    model = REGRESSORS[regressor].fit(X, np.log(prices))
    return model, axil.Explainer(model, X, np.log(prices), inverse_func=np.exp, **settings)


@pytest.mark.parametrize(
    ("regressor", "transform"),
    [(r, t) for r in REGRESSORS for t in TRANSFORMS if r == "forest" or t in ("log", "sqrt")],
)
def test_predictions_in_prices_are_the_models_own(homes, regressor, transform):
    X, prices = homes
    settings, name = TRANSFORMS[transform]
    model = wrapped(REGRESSORS[regressor], X, prices, **settings)
    explainer = axil.Explainer(model, X, prices)
    explanation = explainer(X[:Q])
    inner = model.transformer_.transform(prices.to_numpy()[:, None])[:, 0]
    np.testing.assert_allclose(explanation.targets, inner, rtol=1e-15)
    np.testing.assert_allclose(
        explanation.weights @ inner + explanation.intercepts,
        model.regressor_.predict(X[:Q]),
        rtol=2e-6,
    )
    np.testing.assert_allclose(
        explanation.scale.inverse(explanation.predictions), model.predict(X[:Q]), rtol=PRICES
    )
    assert explainer.scale.name == name
    assert explainer.scale.is_log == name.startswith("log")
    assert f"fitted to {name}" in repr(explanation)
    assert axil.supports(model).exact


@pytest.mark.parametrize("dtype", ["float32", "int64", "int16", "object"])
def test_targets_are_transformed_in_their_own_type(homes, dtype):
    """float32 and int16 have logarithms of single precision, which a proof to 1e-9 does not take for those of float64."""
    X, prices = homes
    y = (prices / 100).round().astype(dtype)
    model = wrapped(
        RandomForestRegressor(5, random_state=0), X, y, func=np.log, inverse_func=np.exp
    )
    explainer = axil.Explainer(model, X, y)
    np.testing.assert_allclose(
        explainer.scale.inverse(explainer(X[:Q]).predictions), model.predict(X[:Q]), rtol=1e-6
    )
    if dtype != "object":
        with (
            pytest.raises(ExactnessError)
            if dtype in ("float32", "int16")
            else warnings.catch_warnings()
        ):
            axil.Explainer(model, X, y.astype(float))


def test_pipelines_outside_and_inside(homes):
    X, prices = homes
    inner = make_pipeline(StandardScaler(), LGBMRegressor(n_estimators=10, verbose=-1, n_jobs=1))
    model = make_pipeline(
        StandardScaler(), TransformedTargetRegressor(inner, func=np.log, inverse_func=np.exp)
    ).fit(X, prices)
    explainer = axil.Explainer(model, X, prices)
    assert explainer.scale.is_log
    explanation = explainer(X[:Q])
    np.testing.assert_allclose(
        explanation.scale.inverse(explanation.predictions), model.predict(X[:Q]), rtol=PRICES
    )


def test_several_outputs(homes):
    X, prices = homes
    Y = np.column_stack([prices, 2 * prices[::-1]])
    model = wrapped(
        RandomForestRegressor(10, random_state=0), X, Y, func=np.log, inverse_func=np.exp
    )
    explainer = axil.Explainer(model, X, Y)
    explanation = explainer(X[:Q])
    np.testing.assert_allclose(
        explanation.scale.inverse(explanation.predictions), model.predict(X[:Q]), rtol=1e-9
    )
    table = explainer.top(X[:Q], 3)
    positions = X.index.get_indexer(table["row"])
    np.testing.assert_array_equal(table["target"], Y[positions, table["output"]])


def test_a_transform_that_changes_nothing_is_none(homes):
    X, prices = homes
    model = TransformedTargetRegressor(LGBMRegressor(n_estimators=5, verbose=-1, n_jobs=1)).fit(
        X, prices
    )
    explainer = axil.Explainer(model, X, prices)
    assert explainer.scale.is_identity
    assert "contribution" in explainer.top(X[:1], 2).columns


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_reg_sqrt(homes, sign):
    """LightGBM's own transform, sign(y) sqrt(|y|), also of targets below zero."""
    X, prices = homes
    y = sign * (prices - 150_000)
    model = LGBMRegressor(n_estimators=20, verbose=-1, n_jobs=1, reg_sqrt=True).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    explanation = explainer(X[:Q])
    roots = np.sign(y) * np.sqrt(np.abs(y))
    np.testing.assert_allclose(
        explanation.targets, roots, rtol=1e-6
    )  # LightGBM keeps them in float32
    largest = np.abs(model.predict(X)).max()
    np.testing.assert_allclose(
        explanation.scale.inverse(explanation.predictions),
        model.predict(X[:Q]),
        atol=PRICES * largest,
    )
    np.testing.assert_allclose(
        explanation.predictions, model.predict(X[:Q], raw_score=True), rtol=1e-5
    )
    assert list(explainer.top(X[:1], 1).columns)[-2:] == ["target", "contribution (sqrt)"]
    with pytest.raises(UnsupportedModelError, match="reg_sqrt"):
        axil.Explainer(
            LGBMRegressor(verbose=-1, n_jobs=1, reg_sqrt=True, objective="fair").fit(X, y), X, y
        )


@pytest.mark.parametrize("kind", ["wrapped", "reg_sqrt", "by hand"])
def test_wrong_targets_are_caught(homes, kind):
    X, prices = homes
    settings = {}
    if kind == "wrapped":
        model = wrapped(
            LGBMRegressor(n_estimators=20, verbose=-1, n_jobs=1),
            X,
            prices,
            func=np.log,
            inverse_func=np.exp,
        )
        y = prices.to_numpy()
    elif kind == "reg_sqrt":
        model, y = (
            LGBMRegressor(n_estimators=20, verbose=-1, n_jobs=1, reg_sqrt=True).fit(X, prices),
            prices.to_numpy(),
        )
    else:
        y, settings = np.log(prices.to_numpy()), {"inverse_func": np.exp}
        model = LGBMRegressor(n_estimators=20, verbose=-1, n_jobs=1).fit(X, y)
    axil.Explainer(model, X, y, **settings)
    changed = y.copy()
    changed[17] *= 1.01
    swapped = y.copy()
    swapped[[3, 4]] = y[[4, 3]]
    for wrong in (changed, swapped, y[::-1].copy(), 1.001 * y):
        with pytest.raises(ExactnessError):
            axil.Explainer(model, X, wrong, **settings)
    with pytest.raises((ExactnessError, InputError)):
        axil.Explainer(model, X[1:], y[1:], **settings)


def test_logarithms_given_to_a_model_that_takes_them_itself(homes):
    X, prices = homes
    model = wrapped(REGRESSORS["lightgbm"], X, prices, func=np.log, inverse_func=np.exp)
    with pytest.raises(ExactnessError):
        axil.Explainer(model, X, np.log(prices))
    with pytest.raises(InputError, match="transforms its targets itself"):
        axil.Explainer(model, X, prices, inverse_func=np.exp)
    with pytest.raises(InputError, match="fit` got it"):
        axil.Explainer(model, X, prices - prices.min())  # the logarithm of 0


def test_prices_given_for_logarithms(homes):
    X, prices = homes
    model, _ = logs_of(homes)
    with pytest.raises(InputError, match="inverse_func gives inf"):
        axil.Explainer(model, X, prices, inverse_func=np.exp)
    with pytest.raises(ExactnessError, match=r"with inverse_func=np.exp answers are in the units"):
        axil.Explainer(model, X, prices)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda t: np.abs(t - 12.0), "not monotone"),
        (np.zeros_like, "not monotone"),
        (lambda t: t.sum(), "expected one for each"),
        (lambda t: 1 / 0, "ZeroDivisionError"),
        ("exp", "expected a function"),
    ],
)
def test_functions_that_are_no_inverse(homes, function, message):
    X, prices = homes
    model = REGRESSORS["ridge"].fit(X, np.log(prices))
    with pytest.raises(InputError, match=message):
        axil.Explainer(model, X, np.log(prices), inverse_func=function)


def test_targets_that_single_precision_makes_equal_may_come_in_any_order():
    y = np.linspace(1, 9, 40)
    y[20], y[21] = y[20] * (1 + 3e-8), y[20]  # one float32, and so one root of LightGBM's reg_sqrt
    model = LGBMRegressor(n_estimators=2, reg_sqrt=True, min_child_samples=2, verbose=-1).fit(
        y[:, None], y
    )
    assert axil.Explainer(model, y[:, None], y).scale.name == "sqrt"


@pytest.mark.parametrize(
    "transform",
    [
        {"func": np.log, "inverse_func": np.expm1},
        {"func": np.sin, "inverse_func": np.arcsin},
        {"func": np.log, "inverse_func": lambda t: np.exp(np.abs(t - 12.0))},
    ],
)
def test_an_inverse_that_does_not_lead_back_is_refused_with_the_numbers(homes, transform):
    X, prices = homes
    prices = prices / 10_000
    model = wrapped(Ridge(), X, prices, **transform)
    with pytest.raises(UnsupportedModelError, match=r"the target [0-9.e+]+ becomes") as caught:
        axil.Explainer(model, X, prices)
    assert "does not lead back" in str(caught.value)


def test_what_stands_inside_is_refused_by_its_own_reason(homes):
    X, prices = homes
    model = wrapped(
        PoissonRegressor(), X, prices / prices.max(), func=np.sqrt, inverse_func=np.square
    )
    found = axil.supports(model)
    assert (found.kind, found.setting) == ("no", "class")
    assert "regressor_" in found.reason


def test_one_transform_inside_another_is_refused(homes):
    X, prices = homes
    roots = LGBMRegressor(n_estimators=5, verbose=-1, n_jobs=1, reg_sqrt=True)
    model = wrapped(roots, X, prices, func=np.log, inverse_func=np.exp)
    with pytest.raises(UnsupportedModelError, match="sqrt inside a TransformedTargetRegressor"):
        axil.Explainer(model, X, prices)


def test_dask_refuses_it_by_name(homes):
    import dask.array as da

    X, prices = homes
    model = wrapped(
        REGRESSORS["lightgbm"], X.to_numpy(), prices.to_numpy(), func=np.log, inverse_func=np.exp
    )
    with pytest.raises(UnsupportedModelError, match="Dask"):
        axil.Explainer(
            model, da.from_array(X.to_numpy(), (100, 4)), da.from_array(prices.to_numpy(), 100)
        )


# -- answers -------------------------------------------------------------------------------------------------------------


def both(homes):
    """The same fit, wrapped and by hand, with their explainers."""
    X, prices = homes
    model = wrapped(REGRESSORS["forest"], X, prices, func=np.log, inverse_func=np.exp)
    return model, axil.Explainer(model, X, prices), logs_of(homes, "forest")[1]


def test_tables_are_in_prices_and_factors_multiply_up(homes):
    X, prices = homes
    model, explainer, by_hand = both(homes)
    explanation = explainer(X[:Q])
    for table in (explanation.top(N), explainer.top(X[:Q], N), explainer.similar(X[:Q], N)):
        assert not {"contribution"} & set(table.columns)
        y, k = table["target"].to_numpy(), table["weight"].to_numpy()
        np.testing.assert_array_equal(y, prices[table["row"]])
        np.testing.assert_allclose(table["factor"], y**k, rtol=1e-12)
        np.testing.assert_allclose(
            table["contribution (log)"], k * np.log(y), rtol=1e-9, atol=1e-12
        )
        product = table.groupby("query", sort=False)["factor"].prod().to_numpy()
        np.testing.assert_allclose(
            product * np.exp(explanation.intercepts), model.predict(X[:Q]), rtol=1e-9
        )
    pd.testing.assert_frame_equal(by_hand.top(X[:Q], 9), explainer.top(X[:Q], 9), rtol=1e-12)
    pd.testing.assert_frame_equal(
        by_hand.similar(X[:Q], 9), explainer.similar(X[:Q], 9), rtol=1e-12
    )


def test_groups_multiply_up(homes):
    X, prices = homes
    model, explainer, _ = both(homes)
    labels = np.arange(N) % 3
    table = explainer.group(X[:Q], labels)
    pd.testing.assert_frame_equal(table, explainer(X[:Q]).group(labels))
    product = table.groupby("query", sort=False)["factor"].prod().to_numpy()
    geometric_mean = np.exp(np.log(prices).mean())
    np.testing.assert_allclose(product * geometric_mean, model.predict(X[:Q]), rtol=1e-9)


def test_factors_of_log1p_multiply_up_to_one_more(homes):
    X, prices = homes
    model = wrapped(REGRESSORS["forest"], X, prices, func=np.log1p, inverse_func=np.expm1)
    table = axil.Explainer(model, X, prices).top(X[:Q], N)
    np.testing.assert_allclose(
        table["factor"], (1 + table["target"]) ** table["weight"], rtol=1e-12
    )
    product = table.groupby("query", sort=False)["factor"].prod().to_numpy()
    np.testing.assert_allclose(product - 1, model.predict(X[:Q]), rtol=1e-9)


def test_what_if_is_in_prices(homes):
    """Against the product with one price changed: in prices for the wrapper, in logarithms where the user took them."""
    X, prices = homes
    model, explainer, by_hand = both(homes)
    weights = explainer(X[:Q]).weights
    row = int(np.argmax(np.abs(weights[0])))
    new = 2 * prices.iloc[row]
    table = explainer.what_if(X[:Q], {X.index[row]: new})
    np.testing.assert_allclose(table["before"], model.predict(X[:Q]), rtol=1e-12)
    expected = model.predict(X[:Q]) * 2 ** weights[:, row]
    np.testing.assert_allclose(table["after"], expected, rtol=1e-12)
    np.testing.assert_allclose(table["change"], table["after"] - table["before"])
    pd.testing.assert_frame_equal(
        by_hand.what_if(X[:Q], {X.index[row]: np.log(new)}), table, rtol=1e-9
    )
    with pytest.raises(InputError, match="as y_train was given, transformed"):
        by_hand.what_if(X[:Q], {X.index[row]: new})
    with pytest.raises(InputError, match="the model does that itself"):
        explainer.what_if(X[:Q], {X.index[row]: -1.0})


def test_influence_measures_the_error_on_the_scale_of_the_fit(homes):
    X, prices = homes
    model, explainer, by_hand = both(homes)
    table = explainer.influence(X[:20], prices[:20])
    assert list(table.columns) == ["row", "target", "gradient (log)", "corrected", "gain (log)"]
    plain = axil.Explainer(model.regressor_, X, np.log(prices)).influence(
        X[:20], np.log(prices[:20])
    )
    assert list(table["row"]) == list(plain["row"])
    np.testing.assert_allclose(table["gain (log)"], plain["gain"], rtol=1e-9)
    np.testing.assert_allclose(table["corrected"], np.exp(plain["corrected"]), rtol=1e-9)
    np.testing.assert_array_equal(table["target"], prices[table["row"]])
    pd.testing.assert_frame_equal(by_hand.influence(X[:20], np.log(prices[:20])), table, rtol=1e-9)
    guesses = 1.1 * prices
    np.testing.assert_allclose(
        explainer.influence(X[:20], prices[:20], out_of_fold=guesses)["corrected"].max(),
        guesses.max(),
    )
    with pytest.raises(InputError, match="y_val holds"):
        by_hand.influence(X[:20], prices[:20])
    assert "effect (log)" in explainer.removal(X[:1], 2, same_sign=True).columns


def test_deletions_are_in_prices_and_their_errors_on_the_scale_of_the_fit(homes):
    X, prices = homes
    model, explainer, by_hand = both(homes)
    plain = axil.Explainer(model.regressor_, X, np.log(prices))
    gone = list(X.index[:3])
    table, logs = explainer.without(X[:Q], gone), plain.without(X[:Q], gone)
    np.testing.assert_allclose(table["before"], model.predict(X[:Q]), rtol=1e-9)
    np.testing.assert_allclose(table["after"], np.exp(logs["after"]), rtol=1e-12)
    np.testing.assert_allclose(table["change"], table["after"] - table["before"])
    left_out, logs = explainer.diagnostics.leave_one_out(), plain.diagnostics.leave_one_out()
    np.testing.assert_array_equal(left_out["target"], prices)
    np.testing.assert_allclose(left_out["prediction"], np.exp(logs["prediction"]), rtol=1e-12)
    np.testing.assert_allclose(left_out["residual"], left_out["target"] - left_out["prediction"])
    pd.testing.assert_frame_equal(by_hand.diagnostics.leave_one_out(), left_out, rtol=1e-9)
    model, logs_explainer = logs_of(homes)
    curve, plain = (
        logs_explainer.diagnostics.leave_one_out_curve(),
        axil.Explainer(model, X, np.log(prices)),
    )
    assert list(curve.columns) == ["trees", "error (log)", "training_error (log)"]
    np.testing.assert_array_equal(
        curve["error (log)"], plain.diagnostics.leave_one_out_curve()["error"]
    )
    assert "mean squared error (log)" in axil.plots.leave_one_out_curve(curve).get_ylabel()


def test_shapley_values_are_of_errors_on_the_scale_of_the_fit(homes):
    X, prices = homes
    model, explainer, by_hand = both(homes)
    table = explainer.shapley(X[:20], prices[:20], baseline=np.full(N, 2e5))
    assert list(table.columns) == ["row", "target", "baseline", "value (log)"]
    np.testing.assert_allclose(table["baseline"], 2e5)
    np.testing.assert_array_equal(table["target"], prices[table["row"]])
    plain = axil.Explainer(model.regressor_, X, np.log(prices))
    logs = plain.shapley(X[:20], np.log(prices[:20]), baseline=np.full(N, np.log(2e5)))
    np.testing.assert_allclose(table["value (log)"], logs["value"], rtol=1e-9)
    again = by_hand.shapley(X[:20], np.log(prices[:20]), baseline=np.full(N, np.log(2e5)))
    pd.testing.assert_frame_equal(again, table, rtol=1e-9)
    assert "value (log)" in explainer.shapley(X[:20], prices[:20], groups=np.arange(N) % 3).columns
    with pytest.raises(InputError, match="baseline holds"):
        explainer.shapley(X[:20], prices[:20], baseline=np.full(N, -1.0))


def test_min_label_changes_takes_thresholds_and_bounds_as_targets_were_given(homes):
    """Moving the targets listed, by what_if, leads to the price listed; one target fewer does not cross the threshold."""
    X, prices = homes
    model, explainer, by_hand = both(homes)
    line, most = 1.15 * model.predict(X[:1])[0], 0.2 * prices.to_numpy()
    listed = explainer.min_label_changes(X[:1], line, most, listed=True)
    assert list(listed.columns) == ["query", "rank", "row", "change (log)", "prediction"]
    assert len(listed) == explainer.min_label_changes(X[:1], line, most)["fewest"][0] > 1
    weights = dict(zip(X.index, explainer(X[:1]).weights[0]))
    moved = {row: prices[row] * (1.2 if weights[row] > 0 else 0.8) for row in listed["row"]}
    after = explainer.what_if(X[:1], moved)["after"][0]
    np.testing.assert_allclose(listed["prediction"].iloc[-1], after, rtol=1e-12)
    assert after >= line > listed["prediction"].iloc[-2]
    logs = np.log(prices.to_numpy() - most), np.log(prices.to_numpy() + most)
    pd.testing.assert_frame_equal(
        by_hand.min_label_changes(X[:1], np.log(line), logs, listed=True), listed, rtol=1e-9
    )
    with pytest.raises(InputError, match="threshold holds"):
        explainer.min_label_changes(X[:1], -5.0, most)
    with pytest.raises(InputError, match="bounds holds"):
        explainer.min_label_changes(X[:1], line, 2 * prices.to_numpy())


def test_baselines_take_targets_as_the_explainer_did(homes):
    X, prices = homes
    model = wrapped(REGRESSORS["lightgbm"], X, prices, func=np.log, inverse_func=np.exp)
    scores = [
        axil.baselines.BoostIn(axil.Explainer(one, X, y)).scores(X[:Q], y[:Q])
        for one, y in ((model, prices), (model.regressor_, np.log(prices)))
    ]
    np.testing.assert_array_equal(*scores)


# -- pictures, page, command line ------------------------------------------------------------------------------------------


def texts(ax):
    """All that a picture says."""
    ticks = [tick.get_text() for tick in (*ax.get_yticklabels(), *ax.get_xticklabels())]
    return "\n".join(
        [
            ax.get_title(loc="left"),
            ax.get_xlabel(),
            ax.get_ylabel(),
            *ticks,
            *(t.get_text() for t in ax.texts),
        ]
    )


def test_the_waterfall_of_logarithms_multiplies(homes):
    X, _ = homes
    model, explainer, _ = both(homes)
    explanation = explainer(X[:1])
    price = f"{model.predict(X[:1])[0]:,.0f}"
    said = texts(axil.plots.waterfall(explanation, 5, reference=0))
    largest = explanation.top(1)["factor"][0]
    for words in (f"prediction {price}", f"× {largest:.4g}", "running product of target ^ weight"):
        assert words in said
    mean = explanation.targets.mean()
    ax = axil.plots.waterfall(explanation, 5)
    written = [float(tick.get_text().replace(",", "")) for tick in ax.get_xticklabels()]
    np.testing.assert_allclose(
        np.exp(ax.get_xticks()), written, rtol=1e-9
    )  # at round prices, not rounded
    assert len(written) > 1
    said = texts(ax)
    assert f"all targets at {np.exp(mean):,.0f}" in said
    assert f"(target / {np.exp(mean):,.0f}) ^ weight" in said
    assert "running sum of weight × target (log)" in texts(
        axil.plots.waterfall(explanation.top(5), prediction=explanation.predictions[0])
    )
    height = axil.plots.targets(explanation).lines[-1].get_ydata()[0]
    assert height == pytest.approx(model.predict(X[:1])[0])


def test_pictures_name_any_other_scale(homes):
    X, prices = homes
    model = wrapped(REGRESSORS["forest"], X, prices, func=np.sqrt, inverse_func=np.square)
    explainer = axil.Explainer(model, X, prices)
    explanation, labels = explainer(X[:1]), np.arange(N) % 3
    said = texts(axil.plots.waterfall(explanation, 5, reference=0))
    assert f"prediction {model.predict(X[:1])[0]:,.0f}" in said
    assert "running sum of weight × target (sqrt)" in said
    assert "prediction (sqrt)" in said
    for source, options in (
        (explanation, {"groups": labels}),
        (explainer.group(X[:1], labels), {}),
    ):
        ax = axil.plots.group(source, by="contribution", **options)
        assert "contributions (sqrt)" in texts(ax)
        assert sum(bar.get_width() for bar in ax.patches) == pytest.approx(
            explanation.predictions[0]
        )
    assert "(sqrt)" in texts(axil.plots.influence(explainer.influence(X[:9], prices[:9])))
    frame = explainer.removal(X[:1], 3, same_sign=True)
    drawn = axil.plots.removal(frame, explainer, X=X[:1])
    assert "change of the prediction\n" in texts(drawn)
    expected = explainer.without(X[:1], frame["row"].tolist())["change"][
        0
    ]  # in the targets' own units
    assert drawn.lines[1].get_ydata()[-1] == pytest.approx(expected)


@pytest.mark.parametrize("transform", ["log1p", "sqrt"])
def test_the_page_has_both_scales(homes, transform):
    X, prices = homes
    settings, name = TRANSFORMS[transform]
    model = wrapped(REGRESSORS["forest"], X, prices, **settings)
    explainer = axil.Explainer(model, X, prices)
    summary = data_of(explainer.to_html(X[:Q], groups=np.arange(N) % 2))
    is_log = transform == "log1p"
    assert summary["scale"] == {
        "name": name,
        "base": np.e if is_log else None,
        "shift": float(is_log),
    }
    np.testing.assert_allclose(summary["shown"][0], model.predict(X[:Q]), rtol=1e-6)
    np.testing.assert_allclose(
        summary["predictions"][0], model.regressor_.predict(X[:Q]), rtol=1e-12
    )
    labels, shown = summary["training"]["labels"], summary["training"]["shown"][0]
    np.testing.assert_array_equal(shown, prices[labels])
    np.testing.assert_allclose(
        summary["training"]["targets"][0], settings["func"](prices[labels]), rtol=1e-6
    )
    plain = axil.Explainer(model.regressor_, X, settings["func"](prices))
    assert data_of(plain.to_html(X[:Q]))["scale"] is None
    assert f"{model.predict(X[:1])[0]:.6g}"[:5] in explainer(X[:1])._repr_html_().replace(",", "")


def test_the_command_line_shows_prices(homes, tmp_path, capsys):
    X, prices = homes
    model, explainer = logs_of(homes)
    model.booster_.save_model(tmp_path / "model.txt")
    X.assign(logs=np.log(prices)).to_parquet(tmp_path / "train.parquet")
    X[:1].to_parquet(tmp_path / "new.parquet")
    files = f"{tmp_path}/model.txt --train {tmp_path}/train.parquet --target logs".split()
    asked = [*files, "--query", f"{tmp_path}/new.parquet", "--inverse-func", "exp", "--top", "3"]
    assert main(["explain", *asked]) == 0
    said = capsys.readouterr().out
    assert f"predicted {np.exp(model.predict(X[:1]))[0]:.7g}" in said
    assert "contribution (log)" in said
    assert "factor" in said
    assert f"{prices[explainer.top(X[:1], 1)['row'][0]]:.0f}" in said
    assert (
        main(
            [
                "influence",
                *files,
                "--validation",
                f"{tmp_path}/train.parquet",
                "--inverse-func",
                "exp",
            ]
        )
        == 0
    )
    assert "gain (log)" in capsys.readouterr().out


# -- files ---------------------------------------------------------------------------------------------------------------


def test_saved_explainers_keep_their_scale(homes, tmp_path):
    X, prices = homes
    path = tmp_path / "explainer.npz"
    model, explainer, by_hand = both(homes)
    for own, saved in ((model, explainer), (REGRESSORS["forest"].fit(X, np.log(prices)), by_hand)):
        saved.save(path)
        loaded = axil.load(path, own, X_train=X)
        assert loaded.scale.name == "log"
        pd.testing.assert_frame_equal(loaded.similar(X[:Q], 5), saved.similar(X[:Q], 5))
        pd.testing.assert_frame_equal(loaded.what_if(X[:Q], {}), saved.what_if(X[:Q], {}))
    with pytest.raises(InputError, match="that the explainer was made with"):
        axil.load(path, own, inverse_func=np.exp2)
    explainer.save(path)
    with pytest.raises(InputError, match="Leave inverse_func out"):
        axil.load(path, model, inverse_func=np.exp)


def test_functions_that_no_file_can_keep_are_asked_for_again(homes, tmp_path):
    X, prices = homes
    path = tmp_path / "explainer.npz"
    model = REGRESSORS["forest"].fit(X, np.log(prices))

    def back(logs):
        return np.exp(logs)

    explainer = axil.Explainer(model, X, np.log(prices), inverse_func=back)
    explainer.save(path)
    with pytest.raises(InputError, match="inverse_func"):
        axil.load(path, model)
    pd.testing.assert_frame_equal(
        axil.load(path, model, inverse_func=back).top(X[:Q]), explainer.top(X[:Q])
    )


@pytest.mark.parametrize("kind", ["wrapped", "reg_sqrt"])
def test_copies_and_pickles(homes, kind):
    X, prices = homes
    own = {"reg_sqrt": True} if kind == "reg_sqrt" else {}
    model = LGBMRegressor(n_estimators=5, verbose=-1, n_jobs=1, **own)
    model = (
        model.fit(X, prices) if own else wrapped(model, X, prices, func=np.log, inverse_func=np.exp)
    )
    explainer = axil.Explainer(model, X, prices)
    for again in (copy.deepcopy(explainer), pickle.loads(pickle.dumps(explainer))):
        pd.testing.assert_frame_equal(again.top(X[:Q]), explainer.top(X[:Q]))


def test_a_plain_file_may_be_read_in_prices(homes, tmp_path):
    X, prices = homes
    path = tmp_path / "explainer.npz"
    model = REGRESSORS["forest"].fit(X, np.log(prices))
    axil.Explainer(model, X, np.log(prices)).save(path)
    assert axil.load(path, model).scale.is_identity
    table = axil.load(path, model, inverse_func=np.exp).top(X[:Q])
    np.testing.assert_allclose(table["target"], prices[table["row"]], rtol=1e-12)


# -- the noun ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inverse", "name", "base"),
    [
        (np.exp, "log", np.e),
        (lambda t: np.exp(t), "log", np.e),
        (np.exp2, "log2", 2.0),
        (lambda t: 10.0**t, "log10", 10.0),
        (lambda t: 3.0**t, "log base 3", 3.0),
        (lambda t: 2.0**t - 1, "log2 of 1 + target", 2.0),
        (np.square, "sqrt", None),
        (lambda t: 5 + np.exp(t), "transformed", None),
        (
            lambda t: np.minimum(np.exp(t), np.exp(3.5)),
            "transformed",
            None,
        ),  # a power at the targets, not beyond
    ],
)
def test_logarithms_are_recognised_by_what_they_do(inverse, name, base):
    y = np.linspace(1.0, 3.0, 50)[:, None]
    scale = fitted_targets(IDENTITY, inverse, y, y).scale
    assert scale.name == name
    assert scale.base == pytest.approx(base) if base else scale.base is None


def test_one_target_for_all_rows_is_no_logarithm():
    y = np.full((10, 1), 4.0)
    assert not fitted_targets(IDENTITY, np.square, y, y).scale.is_log
    assert fitted_targets(IDENTITY, np.exp, y, y).scale.is_log
