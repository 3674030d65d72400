"""Pushes over Dask collections: the numbers of one machine, the same proof, and refusals by name."""

from itertools import pairwise

import catboost
import dask.array as da
import dask.dataframe as dd
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from distributed import Client
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

import axil
from axil.methods.method import verified_model
from tests.contributions.boosting_models import (
    BINARY,
    CAT,
    CLASSES,
    HIST,
    LGB,
    WEIGHTS,
    WORDS,
    X_NEW,
    XGB,
    N,
    X,
    case_of,
)
from tests.contributions.more_models import MODELS
from tests.fits import explainer_of_fit

SIZES = (50, 0, 1, 53, 16)  # one empty and one of a single row
SUMMED = (
    "lightgbm binary weighted",
    "lightgbm is_unbalance",
    "lightgbm multiclass",
    "lightgbm tweedie",
    "lightgbm l1 and clipped",
    "xgboost binary from offsets",
    "xgboost multiclass",
    "catboost one vs all",
    "catboost poisson",
    "sklearn multiclass",
    "sklearn hist gamma",
)
LABELS = [f"row {i}" for i in range(N)]


def partitioned(values, sizes=SIZES):
    if values is None:
        return None
    if isinstance(values, (pd.DataFrame, pd.Series)):
        ends = np.cumsum((0, *sizes))
        return dd.from_map(
            lambda part: part, [values.iloc[a:b] for a, b in pairwise(ends)], meta=values.iloc[:0]
        )
    return da.from_array(np.asarray(values), chunks=(sizes, *np.shape(values)[1:]))


def over_dask(case, **settings):
    given = X, case.y, case.weights, case.offsets
    return explainer_of_fit(case.model, *map(partitioned, given), **settings)


def same_numbers(explainer, whole):
    """Partitions merely add in another order."""
    expected = whole.jacobian.gradient_contributions(X_NEW)
    slack = 1e-12 * np.abs(expected).max()
    np.testing.assert_allclose(
        explainer.jacobian.gradient_contributions(X_NEW), expected, rtol=0, atol=slack
    )
    found, own = explainer(X_NEW), whole(X_NEW)
    np.testing.assert_allclose(found.contributions, own.contributions, rtol=0, atol=slack)
    np.testing.assert_allclose(found.predictions, own.predictions, rtol=1e-12, atol=slack)
    np.testing.assert_allclose(found.intercepts, own.intercepts, rtol=1e-14)
    assert (found.probabilities is None) == (own.probabilities is None)
    if own.probabilities is not None:
        np.testing.assert_allclose(found.probabilities, own.probabilities, rtol=1e-12)
    ours, theirs = explainer.top(X_NEW, 4), whole.top(X_NEW, 4)
    assert list(ours.columns) == list(theirs.columns)
    np.testing.assert_allclose(
        ours["contribution"].abs(), theirs["contribution"].abs(), rtol=0, atol=slack
    )
    labels = np.arange(N) % 3
    ours, theirs = explainer.group(X_NEW, partitioned(labels)), whole.group(X_NEW, labels)
    assert list(ours.columns) == list(theirs.columns)
    np.testing.assert_allclose(ours["contribution"], theirs["contribution"], rtol=0, atol=N * slack)
    ours, theirs = explainer.verification, whole.verification
    for name in ("leaf_error", "max_error"):
        assert abs(getattr(ours, name) - getattr(theirs, name)) < theirs.tolerance


@pytest.mark.parametrize("name", SUMMED)
def test_the_numbers_of_one_machine(name):
    case = case_of(name)
    whole = axil.Explainer(
        case.model, X, case.y, sample_weight=case.weights, init_score=case.offsets
    )
    same_numbers(over_dask(case), whole)


def test_offsets_that_leave_nothing_to_learn():
    """Leaf values of 1e-14 are what rounding leaves of probabilities next to 0 and 1."""
    baseline = np.where(BINARY > 0, 30.0, -30.0)
    model = catboost.CatBoost({**CAT, "loss_function": "Logloss", "bootstrap_type": "No"})
    model.fit(catboost.Pool(X, BINARY, baseline=baseline))
    explainer = axil.Explainer(
        model, partitioned(X), partitioned(BINARY), init_score=partitioned(baseline)
    )
    found = explainer(X[:5], init_score=baseline[:5]).predictions
    np.testing.assert_allclose(found, baseline[:5], rtol=1e-12)
    wrong = BINARY.copy()
    wrong[3] = 1 - wrong[3]
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(model, partitioned(X), partitioned(wrong), init_score=partitioned(baseline))


def test_rows_held_out_and_labels_of_a_frame():
    rows = pd.DataFrame(X, index=LABELS, columns=list("abcd"))
    y = pd.Series(WORDS, index=LABELS)
    model = HistGradientBoostingClassifier(**HIST, early_stopping=True, random_state=0).fit(
        rows, WORDS
    )
    explainer = axil.Explainer(model, partitioned(rows), partitioned(y))
    whole = axil.Explainer(model, rows, WORDS)
    queries = rows.iloc[:3]
    np.testing.assert_allclose(
        explainer.jacobian.gradient_contributions(queries),
        whole.jacobian.gradient_contributions(queries),
        rtol=0,
        atol=1e-14,
    )
    assert list(explainer.top(queries, 2)["row"]) == list(whole.top(queries, 2)["row"])
    assert list(explainer.index.compute()) == LABELS
    np.testing.assert_array_equal(explainer.targets.compute(), whole.targets)


def test_streamed_questions():
    case = case_of("lightgbm multiclass")
    explainer, whole = (
        over_dask(case),
        axil.Explainer(case.model, X, case.y, sample_weight=case.weights),
    )
    pd.testing.assert_frame_equal(
        explainer.concentration(X_NEW), whole.concentration(X_NEW), rtol=1e-9
    )
    assert sum(len(part) for part in explainer.iter(X_NEW, batch_size=2)) == len(X_NEW)
    assert len(explainer.top(X_NEW[:0])) == 0
    assert "120 training rows, contributions" in repr(explainer)


@pytest.mark.parametrize(
    "name", ["lightgbm multiclass", "xgboost binary from offsets", "catboost poisson"]
)
def test_offsets_of_queries(name):
    """LightGBM and CatBoost add them; of XGBoost they take the place of the base."""
    case = case_of(name)
    explainer, whole = (
        over_dask(case),
        axil.Explainer(case.model, X, case.y, sample_weight=case.weights, init_score=case.offsets),
    )
    shape = (len(X_NEW),) if whole.outputs is None else (len(X_NEW), len(whole.outputs))
    offsets = np.random.default_rng(0).normal(size=shape)
    found, expected = explainer(X_NEW, init_score=offsets), whole(X_NEW, init_score=offsets)
    for name in ("predictions", "intercepts", "contributions"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), rtol=1e-12, atol=1e-12
        )
    assert np.abs(expected.predictions - whole(X_NEW).predictions).max() > 0.1
    for ask in (
        lambda one, groups: one.top(X_NEW, 3, init_score=offsets),
        lambda one, groups: one.group(X_NEW, groups, init_score=offsets),
        lambda one, groups: one.concentration(X_NEW, init_score=offsets),
    ):
        pd.testing.assert_frame_equal(
            ask(explainer, partitioned(np.arange(N) % 3)),
            ask(whole, np.arange(N) % 3),
            rtol=1e-9,
            atol=1e-12,
        )


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_with_a_client(processes):
    with Client(
        n_workers=1, threads_per_worker=2, processes=processes, dashboard_address=None
    ) as client:
        case = case_of("xgboost binary from offsets")
        explainer = over_dask(case, client=client)
        whole = axil.Explainer(
            case.model, X, case.y, sample_weight=case.weights, init_score=case.offsets
        )
        found, expected = explainer.top(X_NEW, 3), whole.top(X_NEW, 3)
        np.testing.assert_allclose(found["contribution"], expected["contribution"], rtol=1e-9)


def test_wrong_data_are_refused():
    case = case_of("lightgbm binary")
    with pytest.raises(axil.ExactnessError, match="value"):
        axil.Explainer(case.model, partitioned(X), partitioned(1 - BINARY))
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(case.model, partitioned(X[::-1].copy()), partitioned(BINARY))
    sizes, broken = (50, 69), BINARY.astype(float)
    broken[60] = np.nan
    with pytest.raises(axil.ExactnessError, match="number of training rows"):
        axil.Explainer(case.model, partitioned(X[1:], sizes), partitioned(BINARY[1:], sizes))
    with pytest.raises(axil.InputError, match="partition 3"):
        axil.Explainer(case.model, partitioned(X), partitioned(broken))
    with pytest.raises(axil.InputError, match="2 partitions"):
        axil.Explainer(case.model, partitioned(X), partitioned(BINARY, (60, 60)))


def test_a_model_that_changes_is_noticed():
    model = lgb.train(
        {"objective": "binary", "verbose": -1, "num_leaves": 5}, lgb.Dataset(X, BINARY), 4
    )
    explainer = axil.Explainer(model, partitioned(X), partitioned(BINARY))
    verified_model(explainer).adapter._booster.set_leaf_output(0, 0, 9.0)
    with pytest.raises(axil.ExactnessError, match="score of explained row"):
        explainer.top(X, 2)


def test_what_is_not_summed_is_refused_by_name():
    forest = xgb.XGBClassifier(**XGB, num_parallel_tree=2).fit(X, BINARY)
    own = MODELS["lightgbm custom"]().fit()
    bagged = lgb.LGBMClassifier(**LGB, subsample=0.7, subsample_freq=1).fit(X, BINARY)
    dart = lgb.LGBMClassifier(**LGB, boosting_type="dart").fit(X, BINARY)
    goss = lgb.LGBMClassifier(**LGB, data_sample_strategy="goss", top_rate=0.3, other_rate=0.2).fit(
        X, BINARY
    )
    joint = case_of("catboost multiclass")
    several = case_of("catboost binary 4 steps")
    for model, y, w, words in (
        (forest, BINARY, None, "parallel trees"),
        (own.model, BINARY, None, "objective"),
        (bagged, BINARY, None, "row sampling"),
        (dart, BINARY, None, "boosting"),
        (goss, BINARY, None, "row sampling"),
        (joint.model, CLASSES, WEIGHTS, "all classes together"),
        (several.model, several.y, WEIGHTS, "leaf steps"),
    ):
        with pytest.raises(axil.UnsupportedModelError, match=words):
            axil.Explainer(model, partitioned(X), partitioned(y), sample_weight=partitioned(w))
    with pytest.raises(axil.InputError, match="over Dask collections expected trees"):
        axil.Explainer(LogisticRegression().fit(X, BINARY), partitioned(X), partitioned(BINARY))
    with pytest.raises(axil.InputError, match=r'device is "cuda".*training rows in memory'):
        axil.Explainer(several.model, partitioned(X), partitioned(several.y), device="cuda")
    explainer = over_dask(case_of("lightgbm binary"))
    for ask in (lambda: explainer(X_NEW).weights, lambda: explainer.top(X_NEW, by="weight")):
        with pytest.raises(axil.UnsupportedQuestionError, match="Dask"):
            ask()
    for name, ask in {
        "removal": lambda: explainer.removal(X_NEW, k=2),
        "what_if": lambda: explainer.what_if(X_NEW, {0: 1.0}),
        "without": lambda: explainer.without(X_NEW, [0]),
    }.items():
        with pytest.raises(axil.UnsupportedQuestionError, match=f"{name} has no answer here"):
            ask()
    with pytest.raises(axil.InputError, match="init_score"):
        explainer.top(X_NEW, init_score=np.zeros(len(X_NEW) + 1))
    small = over_dask(case_of("lightgbm binary"), memory_limit=30_000 * 4)
    with pytest.raises(axil.InputError, match="memory_limit"):
        small(X)
