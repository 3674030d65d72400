"""Adjustments by feature, compared with brute force over the model's predictions of mixed rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import TypeAlias

import catboost
import lightgbm
import numpy as np
import pandas as pd
import polars as pl
import pytest
import xgboost
from scipy import sparse
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import (
    BaggingRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingRegressor,
)
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeRegressor

import axil
from axil.aliases import ForeignModel
from axil.methods import feature_differences
from axil.methods.adjustments import as_groups, training_rows
from axil.methods.method import verified_model

Estimator: TypeAlias = ForeignModel
Data: TypeAlias = tuple[pd.DataFrame, pd.Series]
Groups: TypeAlias = dict[str, list[str]] | None

N_ROWS = 400
COMPARABLES = [3, 50, 111]


def numbers(seed: int = 0) -> Data:
    """Return rows of six numbers, some of them missing or zero, and positive targets."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(N_ROWS, 6)), columns=list("abcdef")).round(1)
    X.loc[rng.random(N_ROWS) < 0.2, "c"] = np.nan
    y = np.exp(0.3 * X["a"] * X["b"] + np.sin(X["c"].fillna(2)) + 0.2 * X["d"])
    return X, y + rng.uniform(0.1, 0.2, N_ROWS)


def complete() -> Data:
    """Return the same rows without missing numbers."""
    X, y = numbers()
    return X.fillna(0.5), y


def categories() -> Data:
    """Return rows with two columns of categories, whose values matter."""
    X, y = numbers(1)
    rng = np.random.default_rng(2)
    towns = np.array(["Ames", "Boone", "Story", "Nevada", "Roland"])[rng.integers(0, 5, N_ROWS)]
    X["e"] = pd.Categorical(towns)
    X["f"] = pd.Categorical(np.array(["x", "y", "z"])[rng.integers(0, 3, N_ROWS)])
    return X.fillna(0.5), y * (1 + X["e"].cat.codes * (1 + X["f"].cat.codes))


def texts() -> Data:
    """Return the same rows with text for categories."""
    X, y = categories()
    return X.astype({"e": str, "f": str}), y


def combinations() -> Data:
    """Return rows whose targets depend on pairs of categories."""
    X, y = texts()
    pair = (X["e"] + X["f"]).astype("category").cat.codes
    return X, y + 20 * np.random.default_rng(3).normal(size=15)[pair]


def binary() -> Data:
    X, y = numbers()
    return X, (y > y.median()).astype(int)


def three_classes() -> Data:
    X, y = complete()
    return X, pd.qcut(y, 3, labels=False)


def two_targets() -> Data:
    X, y = complete()
    return X, pd.DataFrame({"first": y, "second": y * X["a"]})


LIGHTGBM = {
    "n_estimators": 20,
    "num_leaves": 12,
    "min_child_samples": 5,
    "verbose": -1,
    "n_jobs": 1,
}
XGBOOST = {"n_estimators": 20, "max_depth": 4, "n_jobs": 1}
CATBOOST = {
    "iterations": 20,
    "depth": 4,
    "verbose": 0,
    "thread_count": 1,
    "allow_writing_files": False,
}
SIMPLE = CATBOOST | {"max_ctr_complexity": 1, "cat_features": ["e", "f"], "one_hot_max_size": 3}

one_hot = make_pipeline(
    ColumnTransformer(
        [("words", OneHotEncoder(sparse_output=False), ["e", "f"])], remainder="passthrough"
    ),
    lightgbm.LGBMRegressor(**LIGHTGBM),
)
logarithms = TransformedTargetRegressor(
    lightgbm.LGBMRegressor(**LIGHTGBM), func=np.log, inverse_func=np.exp
)

#: by name the model, the data and what its score is
MODELS: dict[str, tuple[Estimator, Callable[[], Data], str]] = {
    "lightgbm": (lightgbm.LGBMRegressor(**LIGHTGBM), numbers, "predict"),
    "lightgbm zeros missing": (
        lightgbm.LGBMRegressor(**LIGHTGBM, zero_as_missing=True),
        numbers,
        "predict",
    ),
    "lightgbm categories": (lightgbm.LGBMRegressor(**LIGHTGBM), categories, "predict"),
    "lightgbm quantile": (
        lightgbm.LGBMRegressor(**LIGHTGBM, objective="quantile", alpha=0.7),
        numbers,
        "predict",
    ),
    "lightgbm forest": (
        lightgbm.LGBMRegressor(
            **LIGHTGBM, boosting_type="rf", subsample=0.7, subsample_freq=1, random_state=0
        ),
        numbers,
        "predict",
    ),
    "lightgbm binary": (lightgbm.LGBMClassifier(**LIGHTGBM), binary, "raw_score"),
    "lightgbm classes": (lightgbm.LGBMClassifier(**LIGHTGBM), three_classes, "raw_score"),
    "lightgbm poisson": (
        lightgbm.LGBMRegressor(**LIGHTGBM, objective="poisson"),
        numbers,
        "raw_score",
    ),
    "xgboost": (xgboost.XGBRegressor(**XGBOOST), numbers, "predict"),
    "xgboost dart": (
        xgboost.XGBRegressor(**XGBOOST, booster="dart", rate_drop=0.3, random_state=0),
        numbers,
        "predict",
    ),
    "xgboost quantiles": (
        xgboost.XGBRegressor(**XGBOOST, objective="reg:quantileerror", quantile_alpha=[0.3, 0.7]),
        numbers,
        "output_margin",
    ),
    "xgboost two targets": (xgboost.XGBRegressor(**XGBOOST), two_targets, "predict"),
    "xgboost vector leaves": (
        xgboost.XGBRegressor(**XGBOOST, multi_strategy="multi_output_tree"),
        two_targets,
        "predict",
    ),
    "xgboost categories": (
        xgboost.XGBRegressor(**XGBOOST, enable_categorical=True),
        categories,
        "predict",
    ),
    "xgboost binary": (xgboost.XGBClassifier(**XGBOOST), binary, "output_margin"),
    "catboost": (catboost.CatBoostRegressor(**CATBOOST), numbers, "predict"),
    "catboost deep": (
        catboost.CatBoostRegressor(**CATBOOST | {"depth": 11, "iterations": 2}),
        numbers,
        "predict",
    ),
    "catboost depthwise": (
        catboost.CatBoostRegressor(**CATBOOST, grow_policy="Depthwise"),
        numbers,
        "predict",
    ),
    "catboost categories": (catboost.CatBoostRegressor(**SIMPLE), texts, "predict"),
    "catboost two targets": (
        catboost.CatBoostRegressor(**CATBOOST, loss_function="MultiRMSE"),
        two_targets,
        "predict",
    ),
    "catboost binary": (catboost.CatBoostClassifier(**CATBOOST), binary, "RawFormulaVal"),
    "gradient boosting": (GradientBoostingRegressor(n_estimators=20), complete, "predict"),
    "histograms": (HistGradientBoostingRegressor(max_iter=20), numbers, "predict"),
    "histograms of categories": (
        HistGradientBoostingRegressor(max_iter=20, categorical_features="from_dtype"),
        categories,
        "predict",
    ),
    "histograms of classes": (
        HistGradientBoostingClassifier(max_iter=10),
        three_classes,
        "decision_function",
    ),
    "tree": (DecisionTreeRegressor(max_depth=6), numbers, "predict"),
    "forest": (RandomForestRegressor(10, random_state=0), numbers, "predict"),
    "extra trees": (ExtraTreesRegressor(10, random_state=0), complete, "predict"),
    "forest of classes": (RandomForestClassifier(10, random_state=0), binary, "predict_proba"),
    "side by side": (
        MultiOutputRegressor(GradientBoostingRegressor(n_estimators=5)),
        two_targets,
        "predict",
    ),
    "voting": (
        VotingRegressor([("a", Ridge()), ("b", DecisionTreeRegressor(max_depth=3))]),
        complete,
        "predict",
    ),
    "bagging": (
        BaggingRegressor(
            make_pipeline(StandardScaler(), DecisionTreeRegressor(max_depth=4)),
            n_estimators=4,
            max_features=4,
            random_state=0,
        ),
        complete,
        "predict",
    ),
    "boosting after a model": (
        GradientBoostingRegressor(n_estimators=10, init=Ridge()),
        complete,
        "predict",
    ),
    "linear regression": (LinearRegression(), complete, "predict"),
    "scaled ridge": (make_pipeline(StandardScaler(), Ridge()), complete, "predict"),
    "scaled boosting": (
        make_pipeline(StandardScaler(), lightgbm.LGBMRegressor(**LIGHTGBM)),
        complete,
        "predict",
    ),
    "one-hot": (one_hot, categories, "predict"),
    "logarithms": (logarithms, numbers, "log"),
}


def score(model: Estimator, X: pd.DataFrame, kind: str) -> np.ndarray:
    """Return the score that axil explains, (n, K), by the library itself."""
    if kind == "predict":
        values = model.predict(X)
    elif kind == "log":
        values = np.log(model.predict(X))
    elif kind == "RawFormulaVal":
        values = model.predict(X, prediction_type=kind)
    elif kind in ("raw_score", "output_margin"):
        values = model.predict(X, **{kind: True})
    else:
        values = getattr(model, kind)(X)
    return np.asarray(values, dtype=np.float64).reshape(len(X), -1)


def brute_force(
    predict: Callable[[pd.DataFrame], np.ndarray],
    query: pd.DataFrame,
    row: pd.DataFrame,
    groups: list[list[str]],
) -> np.ndarray:
    """Return the Shapley values of groups, (G, K), from predictions of all mixtures of two rows."""
    n = len(groups)
    subsets = list(itertools.product([False, True], repeat=n))
    mixed = pd.concat([row] * len(subsets), ignore_index=True)
    for group, columns in enumerate(groups):
        joined = [subset[group] for subset in subsets]
        for column in columns:
            values = mixed[column].copy()
            values[joined] = query[column].iloc[0]
            mixed[column] = values
    worth = dict(zip(subsets, predict(mixed)))
    parts = np.zeros((n, len(next(iter(worth.values())))))
    for subset in subsets:
        size = sum(subset)
        for group in range(n):
            if subset[group]:
                continue
            joined = (*subset[:group], True, *subset[group + 1 :])
            share = math.factorial(size) * math.factorial(n - size - 1) / math.factorial(n)
            parts[group] += share * (worth[joined] - worth[subset])
    return parts


def fitted(
    name: str,
) -> tuple[Estimator, pd.DataFrame, pd.Series, Callable[[pd.DataFrame], np.ndarray]]:
    template, data, kind = MODELS[name]
    X, y = data()
    model = template.fit(X, y)
    return model, X, y, lambda rows: score(model, rows, kind)


def parts_of(
    explainer: axil.Explainer, query: pd.DataFrame, rows: list[int], feature_groups: Groups = None
) -> tuple[np.ndarray, list[str]]:
    """Return the parts (rows, G, K) on the scale of the fit, and the groups' names."""
    model = verified_model(explainer)
    groups = as_groups(feature_groups, model.training.names(query))
    pairs = feature_differences.RowPairs(
        model.queries(query),
        training_rows(model, np.array(rows)),
        np.array([[0, i] for i in range(len(rows))]),
    )
    return feature_differences.differences(model, pairs, groups), groups.names


@pytest.mark.parametrize("name", MODELS)
def test_parts_are_shapley_values_of_mixed_rows(name: str) -> None:
    model, X, y, predict = fitted(name)
    explainer = axil.Explainer(model, X, y)
    query = X.iloc[[7]]
    parts, names = parts_of(explainer, query, COMPARABLES)
    size = float(np.abs(predict(X)).max())
    for place, row in enumerate(COMPARABLES):
        expected = brute_force(predict, query, X.iloc[[row]], [[column] for column in names])
        np.testing.assert_allclose(parts[place], expected, atol=2e-6 * size)
    assert np.abs(parts).max() > 1e-3 * size


@pytest.mark.parametrize(
    "name", ["lightgbm", "xgboost categories", "catboost categories", "one-hot"]
)
def test_parts_of_groups(name: str) -> None:
    model, X, y, predict = fitted(name)
    explainer = axil.Explainer(model, X, y)
    query = X.iloc[[9]]
    columns = {"first": ["a", "b"], "last": ["e", "c"]}
    parts, names = parts_of(explainer, query, COMPARABLES, feature_groups=columns)
    assert names == ["first", "last", "d", "f"]
    groups = [columns.get(group, [group]) for group in names]
    for place, row in enumerate(COMPARABLES):
        expected = brute_force(predict, query, X.iloc[[row]], groups)
        np.testing.assert_allclose(parts[place], expected, atol=1e-6 * np.abs(predict(X)).max())


def test_large_trees() -> None:
    """Trees whose rows are followed one by one elsewhere, in several sets of routes."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(3000, 5)), columns=list("abcde"))
    y = X["a"] * X["b"] + rng.normal(size=3000)
    model = RandomForestRegressor(4, random_state=0, n_jobs=1).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    parts, names = parts_of(explainer, X.iloc[[7]], [20])
    expected = brute_force(
        lambda rows: model.predict(rows)[:, None], X.iloc[[7]], X.iloc[[20]], [[n] for n in names]
    )
    np.testing.assert_allclose(parts[0], expected, atol=1e-10)


def test_amounts_sum_to_the_adjustment() -> None:
    X, y = numbers()
    model = lightgbm.LGBMRegressor(**LIGHTGBM).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    table = explainer.adjustments(X.head(4), 3)
    sums = table.groupby(["query", "row"])["amount"].sum()
    predictions = model.predict(X)
    for (query, row), amount in sums.items():
        assert amount == pytest.approx(predictions[query] - predictions[row], abs=1e-9)
    similar = explainer.similar(X.head(4), 3, columns=[], adjust=True)
    lines = table.attrs["comparables"]
    assert [line["row"] for line in lines] == similar["row"].tolist()
    np.testing.assert_allclose([line["adjusted"] for line in lines], similar["adjusted"])
    np.testing.assert_allclose(table["percent"], 100 * table["amount"] / y[table["row"]].to_numpy())


def test_of_logarithms_in_money_and_percent() -> None:
    model, X, y, _ = fitted("logarithms")
    explainer = axil.Explainer(model, X, y)
    table = explainer.adjustments(X.iloc[[7]], COMPARABLES)
    predictions = model.predict(X)
    for row in COMPARABLES:
        lines = table[table["row"] == row]
        adjusted = y[row] * predictions[7] / predictions[row]
        assert lines["amount"].sum() == pytest.approx(adjusted - y[row])
        assert np.prod(1 + lines["percent"] / 100) == pytest.approx(adjusted / y[row])
        steps = y[row] * np.cumprod(1 + lines["percent"] / 100)
        np.testing.assert_allclose(y[row] + np.cumsum(lines["amount"]), steps)
        sizes = np.abs(np.log1p(lines["percent"] / 100)).to_numpy()
        assert (np.diff(sizes) <= 1e-12).all()
    similar = explainer.similar(X.iloc[[7]], 3, columns=[], adjust=True)
    listed = explainer.adjustments(X.iloc[[7]], similar)
    parts = [line["adjusted"] for line in listed.attrs["comparables"]]
    np.testing.assert_allclose(parts, similar["adjusted"])


def test_values_and_names_of_the_table() -> None:
    X, y = categories()
    model = lightgbm.LGBMRegressor(**LIGHTGBM).fit(X, y)
    explainer = axil.Explainer(model, X, y, index=[f"sale {i}" for i in range(N_ROWS)])
    table = explainer.adjustments(X.iloc[[7]], ["sale 50"], feature_groups={"place": ["e", "f"]})
    assert list(table.columns) == [
        *("query", "row", "feature", "value (row)", "value (query)", "amount", "percent")
    ]
    line = table[table["feature"] == "place"].iloc[0]
    assert line["row"] == "sale 50"
    assert line["value (row)"] == f"{X['e'].iloc[50]}, {X['f'].iloc[50]}"
    assert line["value (query)"] == f"{X['e'].iloc[7]}, {X['f'].iloc[7]}"


def test_other_containers() -> None:
    X, y = complete()
    model = lightgbm.LGBMRegressor(**LIGHTGBM).fit(X.to_numpy(), y)
    expected = axil.Explainer(model, X.to_numpy(), y).adjustments(X.to_numpy()[:2], [5, 6])
    rows = sparse.csr_matrix(X.to_numpy())
    parts = axil.Explainer(model, rows, y).adjustments(rows[:2], [5, 6])
    np.testing.assert_allclose(parts["amount"], expected["amount"])
    frame = pl.DataFrame({name: X[name].to_numpy() for name in X.columns})
    piped = make_pipeline(StandardScaler(), Ridge()).fit(X.to_numpy(), y)
    whole = axil.Explainer(piped, X.to_numpy(), y).adjustments(X.to_numpy()[:2], [5, 6])
    table = axil.Explainer(piped, frame, y).adjustments(frame[:2], [5, 6])
    assert isinstance(table, pl.DataFrame)
    np.testing.assert_allclose(table["amount"].to_numpy(), whole["amount"])


def test_several_outputs_have_lines_of_their_own() -> None:
    model, X, y, predict = fitted("xgboost two targets")
    explainer = axil.Explainer(model, X, y)
    table = explainer.adjustments(X.iloc[[7]], [3])
    sums = table.groupby("output")["amount"].sum()
    np.testing.assert_allclose(sums, (predict(X.iloc[[7]]) - predict(X.iloc[[3]]))[0], atol=1e-4)
    by_weight = explainer.similar(X.iloc[[7]], 2, columns=[])
    chosen = explainer.adjustments(X.iloc[[7]], by_weight)
    assert set(zip(chosen["output"], chosen["row"])) <= set(
        zip(by_weight["output"], by_weight["row"])
    )


def combined() -> Estimator:
    return catboost.CatBoostRegressor(**SIMPLE | {"max_ctr_complexity": 2, "one_hot_max_size": 2})


REFUSED: dict[str, tuple[Estimator, Callable[[], Data], str]] = {
    "combinations": (combined(), combinations, "'e' and 'f' in one group"),
    "products": (make_pipeline(PolynomialFeatures(2), Ridge()), complete, "in one group"),
    "neighbours": (KNeighborsRegressor(3), complete, "neighbours have weights"),
    "linear leaves": (lightgbm.LGBMRegressor(**LIGHTGBM, linear_tree=True), complete, "group"),
    "derivatives": (
        LogisticRegression(C=0.5, tol=1e-10),
        three_classes,
        "neither trees nor coefficients",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    template, data, message = REFUSED[name]
    X, y = data()
    explainer = axil.Explainer(template.fit(X, y), X, y)
    with pytest.raises(axil.UnsupportedQuestionError, match=message):
        explainer.adjustments(X.head(2), [5, 6])


def test_combined_features_in_one_group() -> None:
    X, y = combinations()
    model = combined().fit(X, y)
    explainer = axil.Explainer(model, X, y)
    parts, names = parts_of(
        explainer, X.iloc[[7]], COMPARABLES, feature_groups={"words": ["e", "f"]}
    )
    columns = {"words": ["e", "f"]}
    groups = [columns.get(name, [name]) for name in names]
    for place, row in enumerate(COMPARABLES):
        expected = brute_force(
            lambda rows: model.predict(rows)[:, None], X.iloc[[7]], X.iloc[[row]], groups
        )
        np.testing.assert_allclose(parts[place], expected, atol=1e-8 * y.max())


def test_offsets_are_refused() -> None:
    X, y = complete()
    start = np.linspace(0, 1, N_ROWS)
    model = lightgbm.LGBMRegressor(**LIGHTGBM).fit(X, y, init_score=start)
    explainer = axil.Explainer(model, X, y, init_score=start)
    with pytest.raises(axil.UnsupportedQuestionError, match="start from offsets"):
        explainer.adjustments(X.head(1), [4])


def test_bad_arguments() -> None:
    X, y = complete()
    explainer = axil.Explainer(lightgbm.LGBMRegressor(**LIGHTGBM).fit(X, y), X, y)
    for groups, message in (
        (["a"], "expected a mapping"),
        ({"x": ["a"], "y": ["a", "b"]}, "in two places"),
        ({"x": ["nowhere"]}, "nowhere"),
        ({"c": ["a", "b"]}, "also a column"),
    ):
        with pytest.raises(axil.InputError, match=message):
            explainer.adjustments(X.head(1), 2, feature_groups=groups)
    for comparables, message in (
        ([9999], "9999"),
        (pd.DataFrame({"query": [0]}), "without the column row"),
        (pd.DataFrame({"query": [0], "row": [9999]}), "no label of X_train"),
        (pd.DataFrame({"query": [77], "row": [3]}), "no label of X"),
    ):
        with pytest.raises(axil.InputError, match=message):
            explainer.adjustments(X.head(1), comparables)


def test_a_model_that_has_changed_is_noticed() -> None:
    X, y = complete()
    model = lightgbm.LGBMRegressor(**LIGHTGBM).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    explainer.adjustments(X.head(1), [4])
    trees = verified_model(explainer).kept.known()["parts by feature"]
    trees.leaf_values[:5] += 1e-3
    with pytest.raises(axil.ExactnessError, match="the sum of the adjustments"):
        explainer.adjustments(X.head(1), [4, 7, 9])
