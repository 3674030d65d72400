"""Messages for the commonest mistakes with training data: what must be in them and what must not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import polars as pl
import pytest
import xgboost
from catboost import CatBoostRegressor
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.svm import SVR

import axil
from tests.fits import explainer_of_fit

RNG = np.random.default_rng(0)
N = 200
X = pd.DataFrame(
    RNG.normal(size=(N, 4)) * [1, 10, 100, 3] + [5, 50, 0, -3],
    columns=["age", "size", "income", "rooms"],
)
Y = pd.Series(np.exp(11 + 0.3 * RNG.normal(size=N) + 0.01 * X["size"]), name="price")
SCALED = (X - X.mean()) / X.std(ddof=0)
WEIGHTS = RNG.uniform(0.5, 2.5, N)

MODELS: dict[str, Callable[[], Any]] = {
    "LightGBM": lambda: lightgbm.LGBMRegressor(n_estimators=5, verbose=-1),
    "XGBoost": lambda: xgboost.XGBRegressor(n_estimators=5, max_depth=3),
    "CatBoost": lambda: CatBoostRegressor(
        iterations=5, depth=3, verbose=0, allow_writing_files=False
    ),
    "GradientBoosting": lambda: GradientBoostingRegressor(n_estimators=5),
    "HistGradientBoosting": lambda: HistGradientBoostingRegressor(max_iter=5),
    "RandomForest": lambda: RandomForestRegressor(5, random_state=0),
    "Ridge": lambda: Ridge(),
    "KNeighbors": lambda: KNeighborsRegressor(3),
}
BAGGED = lightgbm.LGBMRegressor(n_estimators=5, subsample=0.6, subsample_freq=1, verbose=-1)
EVERY = tuple(MODELS)
TREES = tuple(name for name in EVERY if name not in ("Ridge", "KNeighbors"))
# Forests from scikit-learn 1.9 on draw rows by the weights that they keep themselves: those given do not matter.
WEIGHED = tuple(name for name in EVERY if name not in ("KNeighbors", "RandomForest"))
ORDER = RNG.permutation(N)

# mistake: which models, how they were fitted (X, y, weights), what axil is given, words that must be there, words that must not
MISTAKES: dict[
    str, tuple[tuple[str, ...], tuple[Any, ...], tuple[Any, ...], list[str], list[str]]
] = {
    "logged target": (
        EVERY[:-1],
        (X, np.log(Y)),
        (X, Y),
        ["np.log(y_train)", "agree"],
        ["order", "-2"],
    ),
    "log1p of the target": (EVERY[:-1], (X, np.log1p(Y)), (X, Y), ["np.log1p(y_train)"], ["order"]),
    "not logged target": (TREES, (X, Y), (X, np.log(Y)), ["np.exp(y_train)"], ["order"]),
    "weights invented": (
        WEIGHED,
        (X, Y),
        (X, Y, WEIGHTS),
        ["ithout sample_weight", "eave sample_weight out"],
        ["order", "columns"],
    ),
    "weights forgotten": (
        TREES[:4],
        (X, Y, WEIGHTS),
        (X, Y),
        ["sample_weight", "Pass the same"],
        [],
    ),
    "columns scaled for the fit": (EVERY[:-1], (SCALED, Y), (X, Y), ["scaled"], ["bundle"]),
    "standardised target": (
        ("LightGBM", "Ridge"),
        (X, (Y - Y.mean()) / Y.std()),
        (X, Y),
        ["y_train.std(ddof=1)", "inverse_func=lambda z: z * y_train.std(ddof=1) + y_train.mean()"],
        ["order"],
    ),
    "target in thousands": (
        ("LightGBM", "RandomForest", "Ridge"),
        (X, Y / 1000),
        (X, Y),
        [
            "Reasons, the most likely first:\n- Was the target transformed for the fit? The model predicts"
        ],
        [],
    ),
    "columns scaled to 0 to 1": (
        ("LightGBM", "RandomForest"),
        ((X - X.min()) / (X.max() - X.min()), Y),
        (X, Y),
        ["scaled to 0 to 1 the data agree"],
        ["bundle"],
    ),
    "labels in another order": (
        EVERY,
        (X, Y),
        (X, Y.iloc[ORDER]),
        ["same row labels in another order", "y_train.loc[X_train.index]"],
        ["columns", "weight"],
    ),
}
CASES = [(mistake, model) for mistake, (models, *_) in MISTAKES.items() for model in models]


def fitted(name: str, given: tuple[Any, ...]) -> Any:
    X, y, *weights = given
    return MODELS[name]().fit(X, y, **({"sample_weight": weights[0]} if weights else {}))


@pytest.mark.parametrize(("mistake", "name"), CASES)
def test_the_message_names_the_mistake(mistake: str, name: str) -> None:
    _, fit, given, words, others = MISTAKES[mistake]
    model = fitted(name, fit)
    explainer_of_fit(model, *fit)
    with pytest.raises((axil.ExactnessError, axil.InputError)) as error:
        explainer_of_fit(model, *given)
    said = str(error.value)
    for word in words:
        assert word.lower() in said.lower(), said
    for word in others:
        assert word not in said, said


def test_reasons_stand_on_lines_of_their_own() -> None:
    """Other targets that no try explains: the most likely reason comes first."""
    model = fitted("LightGBM", (X, Y))
    with pytest.raises(axil.ExactnessError) as error:
        axil.Explainer(model, X, Y + RNG.normal(size=N) * 1e4)
    lines = str(error.value).splitlines()
    assert lines[0].endswith("Reasons, the most likely first:")
    assert all(line.startswith("- ") for line in lines[1:])
    assert "targets" in lines[1]
    assert len(lines) > 3


@pytest.mark.parametrize(
    ("found", "words"), [(2_999_000.0, "apart by 1000)"), (299_999.5, "apart by 0.5)")]
)
def test_a_distance_of_thousands_is_written_out(found: float, words: str) -> None:
    assert words in str(
        axil.ExactnessError("number of training rows", found, found + float(words[9:-1]), "Why.")
    )


def test_bagged_rows_in_another_order() -> None:
    BAGGED.fit(X, Y)
    explainer = axil.Explainer(BAGGED, X, Y)
    assert "LightGBM bagging replayed" in repr(explainer.verification)
    with pytest.raises(axil.ExactnessError) as error:
        axil.Explainer(BAGGED, X.iloc[ORDER], Y.iloc[ORDER])
    assert "in the order of the fit" in str(error.value).splitlines()[1]
    assert "draws" not in repr(axil.Explainer(fitted("LightGBM", (X, Y)), X, Y).verification)
    forest = fitted("RandomForest", (X, Y))
    assert "RandomForestRegressor replayed" in repr(axil.Explainer(forest, X, Y).verification)


def test_numbers_are_those_of_the_model() -> None:
    """LightGBM keeps the mean in the leaves of its first tree, so that without it their values look odd."""
    model = fitted("LightGBM", (X, np.log(Y)))
    with pytest.raises(axil.ExactnessError) as error:
        axil.Explainer(model, X, Y)
    leaves = [
        float(v)
        for v in model.booster_.model_to_string().split("leaf_value=")[1].split("\n")[0].split()
    ]
    assert any(abs(error.value.expected - v) < 1e-9 for v in leaves)
    assert Y.min() < error.value.replayed < Y.max()


def test_columns_too_many_are_named() -> None:
    frame = X.assign(price=Y)
    named, unnamed = fitted("LightGBM", (X, Y)), fitted("LightGBM", (X.to_numpy(), Y))
    with pytest.raises(
        axil.InputError, match=r"unexpected \['price'\].*Column 'price' holds y_train"
    ):
        axil.Explainer(named, frame, Y)
    with pytest.raises(
        axil.InputError, match=r"5 columns \(age, size, .*does not say which.*'price' holds y_train"
    ):
        axil.Explainer(unnamed, frame, Y)
    with pytest.raises(axil.InputError, match=r"missing \['rooms'\]"):
        axil.Explainer(named, X.drop(columns="rooms"), Y)
    with pytest.raises(axil.InputError, match=r"fitted on 4.*Column 4 holds y_train"):
        axil.Explainer(named, frame.to_numpy(), Y)


def test_a_target_among_the_features_of_the_fit() -> None:
    model = fitted("LightGBM", (X.assign(price=Y), Y))
    with pytest.raises(
        axil.InputError, match="'price' is y_train: the model was fitted with its own target"
    ):
        axil.Explainer(model, X, Y)


def test_labels_in_another_order_where_there_are_no_exact_weights() -> None:
    dear = Y.median() < Y
    model = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(X, dear)
    with pytest.raises(axil.ExactnessError, match="same row labels in another order"):
        axil.Explainer(model, X, dear.iloc[ORDER])
    with pytest.raises(axil.ExactnessError, match="the most likely first"):
        axil.Explainer(model, X, dear.iloc[ORDER].to_numpy())


def test_other_targets_on_the_same_scale_are_not_asked_about() -> None:
    with pytest.raises(axil.ExactnessError) as error:
        axil.Explainer(fitted("LightGBM", (X, Y)), X, Y.iloc[ORDER].to_numpy())
    assert "transformed for the fit?" not in str(error.value)


class Search:
    """A search of another library."""

    best_estimator_ = Ridge().fit(X, Y)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            lightgbm.LGBMRegressor,
            r"is the class LGBMRegressor itself; expected a fitted model: LGBMRegressor\(...\).fit",
        ),
        (Search(), "Pass the model that it chose: its best_estimator_"),
    ],
)
def test_what_is_no_model(model: Any, said: str) -> None:
    with pytest.raises(axil.InputError, match=said):
        axil.Explainer(model, X, Y)


@pytest.mark.parametrize(
    ("table", "end"),
    [
        (X.iloc[0], "x.reshape(1, -1)."),
        (X.to_numpy()[0], "x.reshape(1, -1)."),
        (pl.DataFrame(X.to_dict("list")).lazy(), "Pass X.collect()."),
        (xgboost.DMatrix(X), "Pass the table that it was made from."),
        ("rows.csv", "such as with pandas.read_csv."),
        (object(), "or a scipy.sparse matrix."),
    ],
)
def test_what_is_no_table(table: Any, end: str) -> None:
    explainer = axil.Explainer(fitted("Ridge", (X, Y)), X, Y)
    with pytest.raises(axil.InputError) as error:
        explainer(table)
    assert str(error.value).endswith(end)


def test_a_class_is_no_setting() -> None:
    with pytest.raises(axil.UnsupportedModelError) as error:
        axil.Explainer(SVR().fit(X, Y), X, Y)
    assert str(error.value).startswith("This model, of class SVR, has no exact weights: ")
    assert (
        "Exact weights need residuals and fitted values that are linear in the targets (condition (ii)"
        in str(error.value)
    )


def test_weights_that_are_whole_numbers() -> None:
    whole = RNG.integers(1, 4, N)
    model = fitted("CatBoost", (X, Y, whole))
    with pytest.raises(axil.ExactnessError, match="sample_weight that add up to"):
        axil.Explainer(model, X, Y)


def test_labels_in_another_order_are_no_mistake_if_the_fit_had_them_so() -> None:
    model = fitted("LightGBM", (X, Y.iloc[ORDER]))
    assert axil.Explainer(model, X, Y.iloc[ORDER]).verification is not None
    with pytest.raises(axil.InputError, match="same row labels in another order"):
        axil.Explainer(model, X, Y.iloc[ORDER], verify=False)
