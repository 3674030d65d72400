"""Answers are those of the data and of the model as they were when the explainer was made."""

from __future__ import annotations

import copy
import pickle

import lightgbm
import numpy as np
import pandas as pd
import polars as pl
import pytest
import xgboost
from catboost import CatBoostRegressor
from scipy import sparse
from sklearn.datasets import make_regression
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import axil
from axil.inputs.copies import owned_rows
from axil.methods.method import verified_model
from tests.fits import explainer_of_fit
from tests.subsets import mostly_slow

N = 60
QUERIES = make_regression(5, 4, random_state=1)[0]
WEIGHTED = {
    "lightgbm",
    "xgboost",
    "catboost",
    "forest",
    "boosting",
    "histogram",
    "ridge",
    "kernel ridge",
}
OFFSET = {"lightgbm", "xgboost", "catboost"}

MODELS = {
    "lightgbm": lambda: lightgbm.LGBMRegressor(n_estimators=4, min_child_samples=5, verbose=-1),
    "xgboost": lambda: xgboost.XGBRegressor(n_estimators=4, max_depth=3),
    "catboost": lambda: CatBoostRegressor(
        iterations=4, depth=3, verbose=0, allow_writing_files=False
    ),
    "forest": lambda: RandomForestRegressor(5, random_state=0, max_depth=4),
    "boosting": lambda: GradientBoostingRegressor(n_estimators=4),
    "histogram": lambda: HistGradientBoostingRegressor(max_iter=4, min_samples_leaf=5),
    "neighbours": lambda: KNeighborsRegressor(3),
    "brute neighbours": lambda: KNeighborsRegressor(3, algorithm="brute"),
    "ridge": lambda: Ridge(),
    "kernel ridge": lambda: KernelRidge(alpha=0.5, kernel="rbf"),
    "gaussian process": lambda: GaussianProcessRegressor(
        alpha=0.5, optimizer=None, copy_X_train=False
    ),
    "pipeline": lambda: make_pipeline(
        StandardScaler(), RandomForestRegressor(5, random_state=0, max_depth=4)
    ),
    "smoother pipeline": lambda: make_pipeline(StandardScaler(), KNeighborsRegressor(3)),
}

FRAMES = {
    "numpy": np.array,
    "pandas": lambda X: pd.DataFrame(X.copy(), columns=list("abcd"), index=np.arange(len(X)) * 10),
    "polars": lambda X: pl.DataFrame(X, schema=list("abcd")),
    "sparse": sparse.csr_matrix,
}


def data() -> tuple[np.ndarray, np.ndarray]:
    X, y = make_regression(N, 4, noise=5.0, random_state=0)
    return X, y + 10


def answers(explainer: axil.Explainer, kind: str, X: object) -> list[object]:
    """All that the explainer says, as bytes where it is made of numbers."""
    explanation = explainer(X)
    found = [
        explanation.predictions,
        explanation.weights,
        explanation.intercepts,
        explanation.targets,
    ]
    found += [
        explainer.targets,
        explainer.index,
        explainer.jacobian.matrix(),
        explainer.diagnostics.leverage(),
    ]
    found += [
        explainer.diagnostics.degrees_of_freedom(),
        explainer.diagnostics.standard_error(X, sigma=2.0),
    ]
    if not kind.startswith("gaussian"):
        found.append(explainer.diagnostics.standard_error(X))
    frames = [explainer.top(X, 3), explainer.influence(X, np.arange(len(QUERIES), dtype=float))]
    frames.append(explainer.what_if(X, {explainer.index[4]: 3.0}))
    if verified_model(explainer).features is not None:
        frames.append(explainer.similar(X, 3))
    return [pickle.dumps(np.asarray(one)) for one in found] + [
        str(frame.to_dict()) for frame in frames
    ]


def settled(explainer: axil.Explainer, kind: str, X: object) -> list[object]:
    """The answers once all is prepared that later questions use: it is made when it pays, and rounds otherwise."""
    explainer.precompute()
    answers(explainer, kind, X)
    return answers(explainer, kind, X)


def spoil(X: object) -> None:
    """Change rows of any kind in place."""
    if isinstance(X, pd.DataFrame):
        X.iloc[:, :] = 7.0
        X.index = X.index[::-1]
    elif isinstance(X, pl.DataFrame):
        X[0, 0] = 7.0
    elif sparse.issparse(X):
        X.data[:] = 7.0
    else:
        X[:] = 7.0


CASES = [(kind, frame) for kind in MODELS for frame in ("numpy", "pandas")]
CASES += [
    (kind, frame)
    for kind in ("lightgbm", "forest", "brute neighbours", "ridge")
    for frame in ("polars", "sparse")
]


@pytest.mark.parametrize(("kind", "frame"), mostly_slow(2, CASES))
def test_answers_stay_when_the_data_are_changed(kind: str, frame: str) -> None:
    table, numbers = data()
    X, queries = FRAMES[frame](table), FRAMES[frame](QUERIES)
    y: object = pd.Series(numbers, index=X.index) if frame == "pandas" else numbers
    weights = np.linspace(1, 2, N) if kind in WEIGHTED else None
    offsets = np.linspace(-1, 1, N) if kind in OFFSET else None
    model = MODELS[kind]()
    given = {} if weights is None else {"sample_weight": weights.copy()}
    if offsets is not None:
        name = {"lightgbm": "init_score", "xgboost": "base_margin", "catboost": "baseline"}[kind]
        given[name] = offsets.copy()
    model.fit(np.array(table) if frame == "polars" else X, np.array(y), **given)
    explainer = axil.Explainer(model, X, y, sample_weight=weights, init_score=offsets)
    before, made = settled(explainer, kind, queries), explainer(queries)
    kept = (
        [
            pickle.dumps(one)
            for one in (made.predictions, made.targets, made.index, made.query_index)
        ],
        made.to_html(),
    )
    asked = FRAMES[frame](QUERIES)
    spoil(X)
    if isinstance(y, pd.Series):
        y.iloc[:] = 0.0
    numbers[:] = 0.0
    spoil(queries)
    for own in (weights, offsets):
        if own is not None:
            own[:] = 5.0
    assert answers(explainer, kind, asked) == before
    again = (
        [
            pickle.dumps(one)
            for one in (made.predictions, made.targets, made.index, made.query_index)
        ],
        made.to_html(),
    )
    assert again == kept


def refit(model: object) -> None:
    X, y = make_regression(40, 4, random_state=5)
    model.fit(X, y)


def change_trees(model: object) -> None:
    model.estimators_.pop()


def change_coefficients(model: object) -> None:
    model.coef_[:] = 3.0


def train_on(model: object) -> None:
    X, y = make_regression(40, 4, random_state=5)
    model.get_booster().update(xgboost.DMatrix(X, y), 9)


def go_on(model: object) -> None:
    model.set_params(
        warm_start=True,
        **{next(k for k in ("n_estimators", "max_iter") if k in model.get_params()): 9},
    )
    model.fit(*data())


CHANGES = [
    *((kind, refit) for kind in MODELS),
    ("catboost", lambda model: model.shrink(2)),
    ("catboost", lambda model: model.set_scale_and_bias(2.0, 1.0)),
    ("xgboost", train_on),
    ("forest", change_trees),
    ("forest", go_on),
    ("boosting", go_on),
    ("histogram", go_on),
    ("ridge", change_coefficients),
    ("pipeline", lambda model: model[0].fit(5 * data()[0])),
]


@pytest.mark.parametrize(("kind", "change"), CHANGES)
def test_answers_stay_when_the_model_is_changed(kind: str, change: object) -> None:
    X, y = data()
    model = MODELS[kind]()
    model.fit(X, y)
    explainer = axil.Explainer(model, X, y)
    before, predicted = settled(explainer, kind, QUERIES), model.predict(QUERIES)
    change(model)
    assert not np.array_equal(model.predict(QUERIES), predicted)  # else the test says nothing
    assert answers(explainer, kind, QUERIES) == before


def test_a_lightgbm_booster_that_is_trained_further() -> None:
    X, y = data()
    given = lightgbm.Dataset(X, y)
    booster = lightgbm.train(
        {"min_data_in_leaf": 5, "verbosity": -1}, given, 4, keep_training_booster=True
    )
    explainer, predicted = axil.Explainer(booster, X, y), booster.predict(QUERIES)
    before = settled(explainer, "lightgbm", QUERIES)
    booster.update()
    assert not np.array_equal(booster.predict(QUERIES), predicted)
    assert answers(explainer, "lightgbm", QUERIES) == before


def test_a_tree_that_was_changed_by_hand_is_an_error() -> None:
    X, y = data()
    model = RandomForestRegressor(5, random_state=0).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    model.estimators_[0].tree_.value[:] += 30.0
    asked = [
        explainer,
        explainer.top,
        explainer.similar,
        explainer.removal,
        explainer.jacobian.gradient_contributions,
        explainer.concentration,
    ]
    for ask in [
        *asked,
        explainer.diagnostics.standard_error,
        lambda X: explainer.what_if(X, {0: 1.0}),
    ]:
        with pytest.raises(axil.ExactnessError, match="may have changed"):
            ask(QUERIES)


def test_what_is_handed_out_is_read_only() -> None:
    X, y = data()
    frame = pd.DataFrame(X, index=[f"r{i}" for i in range(N)])
    forest = RandomForestClassifier(3, random_state=0).fit(X, y > 10)
    several = RandomForestRegressor(3, random_state=0).fit(X, np.c_[y, -y])
    for model, targets in ((forest, y > 10), (several, np.c_[y, -y]), (Ridge().fit(X, y), y)):
        explainer = axil.Explainer(model, frame.set_axis([str(c) for c in frame], axis=1), targets)
        explanations = [explainer(frame.head(3)), explainer(frame.head(3), sparse=True)]
        shared = [explainer.targets, explainer.index]
        shared += (
            []
            if explainer.outputs is None or verified_model(explainer).adapter.classes is None
            else [explainer.outputs]
        )
        for made in explanations:
            for one in (made, made[1:]):
                shared += [one.targets, one.index, one.intercepts, one.query_index]
                shared.append(one.weights.data if sparse.issparse(one.weights) else one.weights)
        for array in shared:
            with pytest.raises(ValueError, match="read-only"):
                array[...] = array[0]
        for own in (
            (
                explainer.jacobian.matrix(),
                explainer.diagnostics.leverage(),
                explainer.removal(frame.head(3)),
            )
            if model is not several
            else ()
        ):
            own[...] = 0.0
        table = explanations[0].to_frame()
        table.iloc[:, :] = 0.0
        assert np.abs(explanations[0].weights).sum() > 0


def test_rows_are_copied_only_where_they_can_change(tmp_path: object) -> None:
    X = data()[0]
    assert not np.shares_memory(owned_rows(X), X)
    constant = X.copy()
    constant.flags.writeable = False
    assert owned_rows(constant) is constant
    view = X.view()
    view.flags.writeable = False  # but its base can be written to
    assert not np.shares_memory(owned_rows(view), X)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert owned_rows(mapped) is mapped
    table = pl.DataFrame(X)
    assert owned_rows(table) is not table
    fortran = np.asfortranarray(X)
    assert owned_rows(fortran).flags.f_contiguous


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(tol=1e-10, max_iter=1000),
        lightgbm.LGBMClassifier(n_estimators=4, verbose=-1),
        PoissonRegressor(tol=1e-10, max_iter=1000),
    ],
)
def test_derivatives_stay_when_data_and_model_are_changed(model: object) -> None:
    X, numbers = data()
    y = (numbers > 10).astype(float)
    weights = np.linspace(1, 2, N)
    fitted = copy.deepcopy(model).fit(X, y, sample_weight=weights)
    explainer = axil.Explainer(fitted, X, y, sample_weight=weights)

    def told() -> list[object]:
        made = explainer(QUERIES)
        found = [
            made.weights,
            made.predictions,
            made.targets,
            explainer.jacobian.by_sample_weight(QUERIES),
            explainer.index,
        ]
        return [pickle.dumps(np.asarray(one)) for one in found] + [
            made.to_html(),
            str(explainer.top(QUERIES, 3).to_dict()),
        ]

    before = told()
    X[:], y[:], weights[:] = X[::-1].copy(), y[::-1].copy(), 1.0
    fitted.fit(X[:40], y[:40])
    assert told() == before
    for array in (explainer.targets, explainer.index):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0


def test_answers_over_dask_stay_when_the_data_are_changed() -> None:
    dd = pytest.importorskip("dask.dataframe")
    X, y = data()
    frame, targets = pd.DataFrame(X, columns=list("abcd")), pd.Series(y)
    model = lightgbm.LGBMRegressor(n_estimators=4, min_child_samples=5, verbose=-1).fit(
        frame, targets
    )
    given = dd.from_pandas(frame, npartitions=2), dd.from_pandas(targets, npartitions=2)
    explainer = explainer_of_fit(model, *given)
    before = str(explainer.top(QUERIES, 3).to_dict()), explainer.targets.compute()
    frame.iloc[:, :], targets.iloc[:], X[:], y[:] = 7.0, 0.0, 0.0, 0.0
    model.fit(frame.assign(a=np.arange(N)), np.arange(N, dtype=float))
    assert str(explainer.top(QUERIES, 3).to_dict()) == before[0]
    np.testing.assert_array_equal(explainer.targets.compute(), before[1])
    np.testing.assert_array_equal(explainer(QUERIES).targets, before[1])
