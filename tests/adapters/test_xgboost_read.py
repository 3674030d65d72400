"""The XGBoost adapter against XGBoost: from what it reads, a replay in plain NumPy arrives at the model's leaves."""

from __future__ import annotations

import copy
import pickle
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xgboost as xgb
from numpy.typing import NDArray
from scipy import sparse

from axil import Explainer
from axil.adapters.boosted_fit import BoostedFit
from axil.adapters.contract import TrainingRows
from axil.adapters.xgboost.adapter import read
from axil.adapters.xgboost.base import XGBoostAdapter
from axil.adapters.xgboost.document import Tree
from axil.errors import ExactnessError, InputError, UnsupportedModelError
from tests.adapters.common import as_float32, drawn_rows, settled
from tests.adapters.xgboost_models import (
    CASES,
    OLD,
    VERSION,
    Case,
    booster,
    loaded,
    regressor,
    table,
    with_targets,
)
from tests.reference import bent_tree
from tests.subsets import mostly_slow

Array = NDArray[np.float64]


def adapter_of(model: Any) -> XGBoostAdapter:
    adapter = read(model)
    assert adapter is not None
    return adapter


def two_columns(y: Array) -> Array:
    return y.reshape(len(y), -1)


def read_trees(case: Case, adapter: XGBoostAdapter) -> list[BoostedFit]:
    weights = None if case.sample_weight is None else as_float32(case.sample_weight)
    offsets = None if case.base_margin is None else margins(case)
    return settled(adapter, TrainingRows(case.X, two_columns(as_float32(case.y)), weights, offsets))


def margins(case: Case) -> Array:
    """(N, K): base_margin, 0 where there was none."""
    shape = two_columns(case.y).shape
    return (
        np.zeros(shape) if case.base_margin is None else as_float32(case.base_margin).reshape(shape)
    )


def outputs_of(trees: BoostedFit, which: int) -> slice:
    """The outputs that an entry serves."""
    return slice(which, which + trees.table.leaf_values.shape[1])


def replay(
    case: Case, trees: BoostedFit, leaves: NDArray[Any], targets: Array, offsets: Array
) -> tuple[Array, Array, Array, Array]:
    """Leaf counts and weights (L,), values (L, K) and predictions (N, K), from the model's own values of earlier trees.

    As the contract defines them: coefficients, draws, l2; rounded as XGBoost rounds.
    """
    w = np.ones(len(targets)) if case.sample_weight is None else as_float32(case.sample_weight)
    T, starts = len(trees.table.n_leaves), np.cumsum(trees.table.n_leaves) - trees.table.n_leaves
    omega = np.tril(np.ones((T + 1, T)), -1) * trees.learning_rates
    beta = np.ones(T + 1)
    if trees.schedule.coefficients is not None:
        omega, beta = trees.schedule.coefficients.omega, trees.schedule.coefficients.beta
    added = [trees.table.leaf_values[starts[t] + leaves[:, t]] for t in range(T)]

    def score(t: int) -> Array:
        total = as_float32(beta[t] * trees.initial.values + offsets + np.zeros_like(targets))
        for s in np.flatnonzero(omega[t]):
            total = as_float32(total + as_float32(omega[t, s] / omega[T, s] * added[s]))
        return total

    counts, weights, values = [], [], []
    running, plain = score(0), trees.schedule.coefficients is None
    for t, n in enumerate(trees.table.n_leaves):
        own, leaf = slice(starts[t], starts[t] + n), leaves[:, t]
        residual = as_float32(targets - (running if plain else score(t)))
        draw = (
            np.ones(len(targets))
            if trees.sampler is None
            else drawn_rows(trees.sampler, t, leaf, residual).astype(float)
        )
        counts.append(np.bincount(leaf, draw, n))
        weights.append(np.bincount(leaf, w * draw, n))
        sums = np.stack(
            [np.bincount(leaf, draw * as_float32(w * r), n) for r in residual.T], axis=1
        )
        whole = weights[-1] + trees.leaf_rule.l2[own]
        v = sums * np.divide(1.0, whole, out=np.zeros(n), where=whole > 0)[:, None]
        values.append(
            omega[T, t]
            * (v if trees.leaf_rule.nodes is None else bent_tree(trees, t, sums, weights[-1]))
        )
        running = as_float32(running + added[t])
    predictions = (running if plain else score(T)) - offsets
    return np.concatenate(counts), np.concatenate(weights), np.concatenate(values), predictions


@pytest.mark.parametrize("name", mostly_slow(2, CASES))
def test_replay_meets_every_leaf(name: str) -> None:
    case = CASES[name]()
    adapter = adapter_of(case.model)
    leaves, predictions = adapter.leaves(case.X), case.predict(case.X)
    scale = np.abs(predictions).max() or 1.0
    offset = 0.0 if case.base_margin is None else np.abs(case.base_margin).max()
    output_groups = 0
    for trees in read_trees(case, adapter):
        own = outputs_of(trees, output_groups)
        columns = slice(None) if trees.table.columns is None else trees.table.columns
        targets, offsets = two_columns(as_float32(case.y))[:, own], margins(case)[:, own]
        counts, weights, values, found = replay(case, trees, leaves[:, columns], targets, offsets)
        if trees.table.leaf_counts is not None:
            np.testing.assert_array_equal(counts, trees.table.leaf_counts)
        if trees.table.leaf_weights is not None:  # kept in float32
            np.testing.assert_allclose(
                weights, trees.table.leaf_weights, rtol=1e-5, atol=1e-6 * weights.max()
            )
        slack = adapter.leaf_tolerance * np.abs(trees.table.leaf_values).max() + 1e-12 * scale
        np.testing.assert_allclose(values, trees.table.leaf_values, rtol=0, atol=slack)
        # base_margin is added first and rounds the sum
        np.testing.assert_allclose(found, predictions[:, own], rtol=0, atol=1e-6 * (scale + offset))
        output_groups = own.stop
    assert output_groups == adapter.n_outputs == predictions.shape[1]
    np.testing.assert_allclose(adapter.predictions(case.X), predictions, rtol=0, atol=1e-6 * scale)


@pytest.mark.parametrize("name", mostly_slow(2, CASES, share=1))
def test_leaf_values_add_up_to_new_predictions(name: str) -> None:
    case = CASES[name]()
    adapter = adapter_of(case.model)
    leaves, predictions = adapter.leaves(case.X_new), case.predict(case.X_new)
    parts = []
    for trees in read_trees(case, adapter):
        starts = np.cumsum(trees.table.n_leaves) - trees.table.n_leaves
        columns = slice(None) if trees.table.columns is None else trees.table.columns
        parts.append(
            trees.initial.values + trees.table.leaf_values[starts + leaves[:, columns]].sum(axis=1)
        )
    atol = 1e-6 * (np.abs(predictions).max() or 1.0)
    np.testing.assert_allclose(np.concatenate(parts, axis=1), predictions, rtol=0, atol=atol)


@pytest.mark.parametrize("name", mostly_slow(2, CASES))
def test_the_linear_map_alone_arrives_at_the_predictions(name: str) -> None:
    """In float64, from targets to predictions, without the model's leaf values: what the weights are made of."""
    case = CASES[name]()
    adapter = adapter_of(case.model)
    leaves, predictions, targets = (
        adapter.leaves(case.X),
        case.predict(case.X),
        two_columns(as_float32(case.y)),
    )
    output_groups = 0
    for trees in read_trees(case, adapter):
        own = outputs_of(trees, output_groups)
        columns = slice(None) if trees.table.columns is None else trees.table.columns
        found = linear_map(case, trees, leaves[:, columns], targets[:, own], margins(case)[:, own])
        scale = max(
            np.abs(predictions[:, own]).max(),
            np.abs(case.base_margin).max() if case.base_margin is not None else 0,
        )
        np.testing.assert_allclose(
            found, predictions[:, own], rtol=0, atol=adapter.tolerance * (scale or 1.0)
        )
        output_groups = own.stop


def linear_map(
    case: Case, trees: BoostedFit, leaves: NDArray[Any], targets: Array, offsets: Array
) -> Array:
    w = np.ones(len(targets)) if case.sample_weight is None else as_float32(case.sample_weight)
    T, starts = len(trees.table.n_leaves), np.cumsum(trees.table.n_leaves) - trees.table.n_leaves
    omega, beta = np.tril(np.ones((T + 1, T)), -1) * trees.learning_rates, np.ones(T + 1)
    if trees.schedule.coefficients is not None:
        omega, beta = trees.schedule.coefficients.omega, trees.schedule.coefficients.beta
    base = (
        np.average(targets, axis=0, weights=w)
        if trees.initial.follows_targets
        else trees.initial.constants
    )
    values = np.zeros((T, *targets.shape))  # of each tree at each row, before the rate
    for t, n in enumerate(trees.table.n_leaves):
        leaf = leaves[:, t]
        residual = targets - offsets - beta[t] * base - np.tensordot(omega[t], values, 1)
        draw = w if trees.sampler is None else w * drawn_rows(trees.sampler, t, leaf, residual)
        weights = np.bincount(leaf, draw, n)
        whole = weights + trees.leaf_rule.l2[starts[t] : starts[t] + n]
        sums = np.stack([np.bincount(leaf, draw * r, n) for r in residual.T], axis=1)
        v = sums * np.divide(1.0, whole, out=np.zeros(n), where=whole > 0)[:, None]
        values[t] = (v if trees.leaf_rule.nodes is None else bent_tree(trees, t, sums, weights))[
            leaf
        ]
    return np.asarray(beta[T] * base + np.tensordot(omega[T], values, 1))


# -- what is read -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("regressor", None),
        ("hist weighted", None),
        ("loaded", None),
        ("base_margin", None),
        ("continued", None),
        ("base_score=0", 0.0),
        ("base_score=3.3 weighted", 3.3),
        ("outputs base_score=2", 2.0),
    ],
)
def test_base(name: str, base: float | None) -> None:
    case = CASES[name]()
    for trees in read_trees(case, adapter_of(case.model)):
        if base is None:
            assert trees.initial.follows_targets
            assert trees.initial.values == pytest.approx(
                np.average(case.y, weights=case.sample_weight), rel=1e-6
            )
        else:
            assert trees.initial.constants == pytest.approx(base)
            assert trees.initial.values == pytest.approx(base)


def test_a_fit_with_base_margin_does_not_start_from_the_base() -> None:
    beta = {}
    for name in ("base_margin", "base_margin base_score=0", "regressor"):
        case = CASES[name]()
        coefficients = read_trees(case, adapter_of(case.model))[0].schedule.coefficients
        beta[name] = None if coefficients is None else list(coefficients.beta)
    assert beta == {
        "base_margin": [0] * 10 + [1],
        "base_margin base_score=0": None,
        "regressor": None,
    }


@pytest.mark.parametrize(
    ("name", "rate", "l2"),
    [
        ("eta=1/3", 1 / 3, 1.0),
        ("loaded", 0.17, 2.5),
        ("loaded json", 1 / 3, 0.1234567),
        ("loaded reg_lambda=0", 0.05, 0.0),
        ("loaded reg_lambda=500", 0.05, 500.0),
        ("loaded exact", 0.4, 0.3),
        ("loaded stumps", 0.4, 7.0),
        ("loaded forests", 0.2, 7.0),
        ("loaded base_margin", 0.4, 7.0),
        ("multi_output_tree loaded", 0.15, 0.4),
        ("one_output_per_tree exact loaded", 0.15, 0.4),
    ],
)
def test_rates_and_lambda_are_those_of_the_fit(name: str, rate: float, l2: float) -> None:
    case = CASES[name]()
    for trees in read_trees(case, adapter_of(case.model)):
        assert set(trees.learning_rates) == {float(np.float32(rate))}
        np.testing.assert_allclose(trees.leaf_rule.l2, l2, rtol=1e-7)


@pytest.mark.parametrize("name", ["rate schedule", "rate schedule loaded", "rate schedule stumps"])
def test_rate_schedules(name: str) -> None:
    """The scheduler acts after each iteration, so the second tree is the first that it decides."""
    case = CASES[name]()
    trees = read_trees(case, adapter_of(case.model))[0]
    expected = [0.3, *(0.3 * 0.9**i for i in range(9))]
    np.testing.assert_allclose(trees.learning_rates, expected, rtol=2e-7)


ENDS_AT_ZERO = (0.2, 0.0, 0.1, 0.05, 0.0)


@pytest.mark.parametrize(
    "params",
    [
        {"max_depth": 3},
        {"max_depth": 1, "num_parallel_tree": 2},
        {"max_depth": 2, "reg_alpha": 0.5},
        {"max_depth": 1, "objective": "reg:pseudohubererror", "huber_slope": 20.0},
        {"max_depth": 1, "objective": "count:poisson", "max_delta_step": 0.05},
        {"max_depth": 2, "objective": "reg:absoluteerror"},
    ],
    ids=str,
)
def test_schedules_with_rates_of_zero(params: dict[str, Any]) -> None:
    """The settings then state a rate of zero, and the trees of that rate have no value."""
    schedule = xgb.callback.LearningRateScheduler(list(ENDS_AT_ZERO))
    case = booster(table(120), n_trees=len(ENDS_AT_ZERO), callbacks=[schedule], **params)
    explainer = Explainer(case.model, case.X, case.y)
    explanation = explainer(case.X_new)
    margins = np.asarray(
        case.model.predict(xgb.DMatrix(case.X_new), output_margin=True), dtype=np.float64
    )
    sums = explanation.predictions
    if explainer.kind == "additive":
        sums = np.asarray(
            explanation.intercepts
        ).ravel() + explainer.jacobian.gradient_contributions(case.X_new).reshape(
            len(margins), -1
        ).sum(axis=1)
    np.testing.assert_allclose(sums, margins, rtol=0, atol=2e-6 * np.abs(margins).max())
    with pytest.raises(ExactnessError):
        Explainer(case.model, case.X, 1.1 * case.y[::-1])


@pytest.mark.skipif(OLD, reason="vector leaves of classes are trained from 3.1 on")
@pytest.mark.parametrize("loads", [False, True])
@pytest.mark.parametrize("several", ["targets", "classes"])
def test_stumps_of_vector_leaves(several: str, loads: bool) -> None:
    """Two leaves with a value for each output show the rate."""
    data = table(120)
    if several == "targets":
        data = replace(data, y=np.stack([data.y, np.sqrt(np.abs(data.y))], axis=1))
        params: dict[str, Any] = {}
    else:
        data = replace(data, y=np.digitize(data.y, np.quantile(data.y, [0.3, 0.7])))
        params = {"objective": "multi:softprob", "num_class": 3}
    case = booster(data, multi_strategy="multi_output_tree", max_depth=1, eta=0.17, **params)
    case = loaded(case) if loads else case
    explainer = Explainer(case.model, case.X, case.y)
    recovered = explainer.verification.recovered.get("rates", [])
    np.testing.assert_allclose([rate for _, rate in recovered], np.float32(0.17), rtol=1e-5)


def test_best_iteration() -> None:
    case, every = CASES["early stopping"](), CASES["early stopping, all trees"]()
    best = case.model.best_iteration + 1
    assert best < every.model.num_boosted_rounds()
    assert adapter_of(case.model).leaves(case.X).shape == (400, best)
    assert adapter_of(every.model).leaves(case.X).shape == (400, every.model.num_boosted_rounds())
    assert adapter_of(case.model).fingerprint == adapter_of(every.model[:best]).fingerprint
    assert adapter_of(case.model).fingerprint != adapter_of(every.model).fingerprint


def test_leaves_set_to_zero_have_infinite_l2() -> None:
    keeps = VERSION >= (3, 4)  # from there on a light root keeps its value, and no leaf is light
    case = CASES["min_child_weight=1000"]()
    assert (np.isinf(read_trees(case, adapter_of(case.model))[0].leaf_rule.l2) != keeps).all()
    case = CASES["targets zero"]()
    assert not np.isinf(read_trees(case, adapter_of(case.model))[0].leaf_rule.l2).any()
    case = booster(with_targets(np.zeros_like), min_child_weight=1000)
    assert (np.isinf(read_trees(case, adapter_of(case.model))[0].leaf_rule.l2) != keeps).all()
    for name in (
        ()
        if OLD or keeps
        else ("multi_output_tree min_child_weight=4", "multi_output_tree min_child_weight=4 loaded")
    ):
        case = CASES[name]()
        trees = read_trees(case, adapter_of(case.model))[0]
        assert 0 < np.isinf(trees.leaf_rule.l2).sum() < len(trees.leaf_rule.l2) / 2
        assert not trees.table.leaf_values[np.isinf(trees.leaf_rule.l2)].any()


# -- models as they come ----------------------------------------------------------------------------------------------


def test_unfitted_and_foreign_models() -> None:
    with pytest.raises(InputError, match="XGBRegressor has not been fitted"):
        read(xgb.XGBRegressor())
    with pytest.raises(InputError, match="no trees"):
        read(xgb.Booster({"verbosity": 0}))
    data = table()
    with pytest.raises(InputError, match=rf"no trees.*a newer XGBoost than {xgb.__version__}"):
        read(xgb.Booster({"verbosity": 0}, [xgb.DMatrix(data.X, data.y)]))
    for thing in (None, "model.json", xgb.DMatrix(data.X), pd.DataFrame()):
        assert read(thing) is None


@pytest.mark.parametrize(
    "name",
    [
        "regressor",
        "early stopping",
        "categorical frame",
        "one leaf",
        "multi_output_tree",
        "dart plain",
        "exact gamma=3",
    ],
)
def test_fingerprint_survives_copies(name: str, tmp_path: Any) -> None:
    case = CASES[name]()
    adapter = adapter_of(case.model)
    copies = [pickle.loads(pickle.dumps(case.model))]
    for form in ("json", "ubj"):
        case.model.save_model(tmp_path / f"model.{form}")
        again = type(case.model)()
        again.load_model(tmp_path / f"model.{form}")
        copies.append(again)
    for model in copies:
        again = adapter_of(model)
        assert again.fingerprint == adapter.fingerprint
        assert again.feature_names == adapter.feature_names
        assert again.n_features == adapter.n_features == 8
        np.testing.assert_array_equal(again.leaves(case.X), adapter.leaves(case.X))
    assert adapter_of(booster(n_trees=4, reg_lambda=1.01).model).fingerprint != adapter.fingerprint


def test_feature_names() -> None:
    assert adapter_of(CASES["regressor"]().model).feature_names is None
    assert adapter_of(CASES["categorical frame"]().model).feature_names == list("abcdefgh")
    assert adapter_of(CASES["float32 frame"]().model).feature_names == [str(i) for i in range(8)]


def test_a_loaded_regressor(tmp_path: Any) -> None:
    case = regressor(learning_rate=0.2, reg_lambda=3.0)
    case.model.save_model(tmp_path / "model.json")
    again = xgb.XGBRegressor()
    again.load_model(tmp_path / "model.json")
    trees = read_trees(case, adapter_of(again))[0]
    assert set(trees.learning_rates) == {float(np.float32(0.2))}
    assert set(trees.leaf_rule.l2) == {3.0}


# -- rows as they come ------------------------------------------------------------------------------------------------


def test_arrays_and_frames_of_all_kinds_give_the_same_leaves(capfd: Any) -> None:
    case = CASES["hist nan"]()
    adapter, X = adapter_of(case.model), case.X_new.copy()
    X[::5, ::2] = 0.0
    names = [f"x{i}" for i in range(8)]
    frame = pl.DataFrame(
        {name: pl.Series(np.where(np.isnan(x), 0, x)) for name, x in zip(names, X.T)}
    )
    frame = frame.with_columns(
        pl.when(pl.Series(~np.isnan(x))).then(pl.col(n)).alias(n) for n, x in zip(names, X.T)
    )
    assert frame.null_count().sum_horizontal()[0] == np.isnan(X).sum()
    kinds: dict[str, Any] = {
        "C": X,
        "F": np.asfortranarray(X),
        "pandas": pd.DataFrame(X, columns=names),
        "pandas Float64": pd.DataFrame(X, columns=names).convert_dtypes(),
        "polars": frame,
        "pyarrow": pa.table(dict(zip(names, X.T))),
        "pyarrow null": frame.to_arrow(),
    }
    expected = adapter.leaves(X)
    for name, rows in kinds.items():
        before = copy.deepcopy(rows)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_array_equal(adapter.leaves(rows), expected, err_msg=name)
            np.testing.assert_array_equal(adapter.predictions(rows), case.predict(X), err_msg=name)
        np.testing.assert_array_equal(adapter.leaves(before), expected, err_msg=name)
        assert repr(rows) == repr(before), name
    assert capfd.readouterr() == ("", "")


def test_what_sparse_matrices_leave_out_is_missing() -> None:
    case = CASES["csr"]()
    adapter = adapter_of(case.model)
    dense = np.where(case.X_new.toarray() == 0, np.nan, case.X_new.toarray())
    for kind in ("csr", "csc", "coo"):
        for how in ("matrix", "array"):
            rows = getattr(sparse, f"{kind}_{how}")(case.X_new)
            np.testing.assert_array_equal(adapter.leaves(rows), adapter.leaves(dense))


def test_integers_and_booleans_in_frames() -> None:
    data, rng = table(), np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "i": rng.integers(0, 9, 400),
            "b": rng.random(400) < 0.5,
            "x": data.X[:, 0],
            "g": [None if i % 7 == 0 else i % 5 for i in range(400)],
        }
    )
    X = frame.with_columns(pl.all().cast(pl.Float64)).to_numpy()
    adapter = adapter_of(xgb.train({"nthread": 1}, xgb.DMatrix(X, data.y), 5))
    for rows in (frame, frame.to_arrow(), frame.to_pandas()):
        np.testing.assert_array_equal(adapter.leaves(rows), adapter.leaves(X))


@pytest.mark.skipif(OLD, reason="before 3.1 models do not know their categories")
@pytest.mark.parametrize("booster", ["gbtree", "dart"])
def test_categories_that_a_model_states(booster) -> None:
    """Texts, numbers, a category that no row has; not columns of numbers, nor texts whose characters XGBoost cuts apart."""
    rng = np.random.default_rng(0)
    words = pd.Categorical(rng.choice(["Oslo", "Rome"], 60), categories=["Rome", "Oslo", "nowhere"])
    frame = pd.DataFrame(
        {"a": rng.normal(size=60), "b": words, "c": pd.Categorical(rng.choice([5, 1, 2], 60))}
    )
    frame["d"] = pd.Categorical(rng.choice(["Łódź", "é"], 60))
    model = xgb.XGBRegressor(
        n_estimators=2, max_depth=2, n_jobs=1, booster=booster, enable_categorical=True
    )
    found = adapter_of(model.fit(frame, rng.normal(size=60))).categories
    assert found == {name: frame[name].cat.categories.tolist() for name in ("b", "c")}
    assert adapter_of(model.fit(frame[["a"]], frame["a"])).categories == {}


@pytest.mark.skipif(OLD, reason="before 3.1 models do not know their categories")
def test_categories_in_frames_of_all_kinds() -> None:
    case = CASES["categorical frame"]()
    adapter, frame = adapter_of(case.model), case.X_new
    expected = adapter.leaves(frame)
    polars = pl.from_pandas(frame)
    backwards = polars.with_columns(
        pl.col("g").cast(pl.Enum([f"c{i}" for i in reversed(range(12))]))
    )
    odd = frame.assign(g=frame["g"].cat.reorder_categories([f"c{i}" for i in reversed(range(12))]))
    for rows in (frame, polars, backwards, polars.to_arrow(), odd, frame[:1], polars[:1]):
        np.testing.assert_array_equal(adapter.leaves(rows), expected[: len(rows)])
    with pytest.raises(InputError, match=r"without category columns, this table has 2 \(f, g\)"):
        adapter_of(CASES["regressor"]().model).leaves(polars)


@pytest.mark.parametrize("convert", [np.asarray, pd.DataFrame, pl.DataFrame, sparse.csr_matrix])
@pytest.mark.parametrize("name", ["one tree", "multi_output_tree"])
def test_no_rows_and_one_row(convert: Any, name: str) -> None:
    case = CASES[name]()
    adapter = adapter_of(case.model)
    n_trees = adapter.leaves(case.X).shape[1]
    for n in (0, 1):
        assert adapter.leaves(convert(case.X[:n])).shape == (n, n_trees)
        assert adapter.predictions(convert(case.X[:n])).shape == (n, adapter.n_outputs)
    assert np.issubdtype(adapter.leaves(convert(case.X)).dtype, np.integer)


def test_causes_name_what_to_look_at() -> None:
    adapter = adapter_of(CASES["regressor"]().model)
    assert "missing" in adapter.causes("counts")
    assert "sample_weight" in adapter.causes("weights")
    assert "base_margin" in adapter.causes("values")
    assert "subsample" not in adapter.causes("counts")
    assert "subsample" in adapter_of(CASES["hist subsample=0.5 seed=0"]().model).causes("counts")


def test_tolerance_grows_with_the_trees_as_their_float32_sum_strays() -> None:
    assert adapter_of(CASES["regressor"]().model).tolerance == 1e-6
    case = booster(n_trees=300, max_depth=3)
    adapter = adapter_of(case.model)
    trees = read_trees(case, adapter)[0]
    assert 1e-6 < adapter.tolerance < 4e-6
    found = linear_map(
        case, trees, adapter.leaves(case.X), two_columns(as_float32(case.y)), margins(case)
    )
    error = np.abs(found - case.predict(case.X)).max() / np.abs(found).max()
    assert error < adapter.tolerance


# -- mistakes show ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["regressor weighted", "hist subsample weighted", "loaded json", "dart weighted"]
)
def test_mistakes_show(name: str) -> None:
    """The replay of this file tells right from wrong: one target, one weight or a margin out of place."""
    case = CASES[name]()
    adapter = adapter_of(case.model)
    leaves = adapter.leaves(case.X)
    expected = read_trees(case, adapter)[0].table.leaf_values
    y, weights = (
        case.y.copy(),
        np.ones(len(case.y)) if case.sample_weight is None else case.sample_weight.copy(),
    )
    y[3] += 0.1
    weights[3] *= 1.1
    slack = adapter.leaf_tolerance * np.abs(expected).max() + 1e-12 * np.abs(case.y).max()
    for wrong in (
        replace(case, y=y),
        replace(case, sample_weight=weights),
        replace(case, base_margin=np.full(len(y), 5.1)),
    ):
        trees = read_trees(wrong, adapter)[0]
        _, found_weights, values, _ = replay(
            wrong, trees, leaves, two_columns(as_float32(wrong.y)), margins(wrong)
        )
        apart = np.abs(values - expected).max() > 10 * slack
        assert apart or not np.allclose(found_weights, trees.table.leaf_weights, rtol=1e-5)


def test_a_wrong_target_shows_in_the_predictions() -> None:
    case = CASES["regressor"]()
    adapter = adapter_of(case.model)
    y = case.y.copy()
    y[3] += 0.1
    wrong = replace(case, y=y)
    trees = read_trees(wrong, adapter)[0]
    found = linear_map(
        wrong, trees, adapter.leaves(case.X), two_columns(as_float32(y)), margins(wrong)
    )
    assert np.abs(found - case.predict(case.X)).max() > 100 * adapter.tolerance * np.abs(y).max()


def test_loaded_dart_models_are_refused() -> None:
    case = loaded(CASES["dart plain"]())
    with pytest.raises(
        UnsupportedModelError, match="weight_drop does not follow from rate_drop=0"
    ) as error:
        read_trees(case, adapter_of(case.model))
    assert error.value.setting == "booster"


@pytest.mark.parametrize("kind", ["two leaves", "loaded stumps"])
def test_rates_are_not_fitted_to_wrong_targets(kind: str) -> None:
    """Where there are as many rates and lambdas to find as leaf values, any targets would be explained."""
    made = (
        booster(max_depth=1, n_trees=1)
        if kind == "two leaves"
        else loaded(booster(max_depth=1, n_trees=1, eta=0.2))
    )
    y = made.y.copy()
    y[0] += 5.0
    with pytest.raises(ExactnessError):
        Explainer(made.model, made.X, y)


def test_a_leaf_of_zero_confirms_no_rate() -> None:
    """Three leaves, of which one has no residual at all: any rate leads to its value."""
    X = np.array([[1, 0], [1, 0], [1, 0], [0, 1], [0, 0], [0, 0], [0, 0], [0, 0]], dtype=float)
    y = np.array([1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    settings = {
        "base_score": 0.0,
        "gamma": 0.0,
        "min_child_weight": 0.0,
        "max_depth": 2,
        "reg_lambda": 1.0,
        "nthread": 1,
    }
    model = xgb.train(settings, xgb.DMatrix(X, y), 1)
    values = {
        line.split("leaf=")[1].split(",")[0]
        for line in model.get_dump()[0].splitlines()
        if "leaf=" in line
    }
    assert len(values) == 3
    Explainer(model, X, y)
    y[3] += 0.2
    with pytest.raises(ExactnessError):
        Explainer(model, X, y)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([1, 0, -1], [2, 2, -1]),  # a node above itself
        ([1, 3, -1, -1], [2, 2, -1, -1]),  # two parents
        ([1, 9, -1], [2, 2, -1]),
        ([1, -7, -1], [2, 2, -1]),
        ([1, -1, -1], [-1, -1, -1]),  # one child
        ([1, -1, -1], [2, -1]),
    ],
)
def test_children_that_make_no_tree_are_refused(left, right):
    """A cycle doubled the nodes of every level, for ever."""
    tree = Tree({"left_children": left, "right_children": right}, 1)
    with pytest.raises(InputError, match="XGBoost model is damaged"):
        _ = tree.splits


@pytest.mark.parametrize("trees", [2, 20])
def test_a_base_far_from_the_targets(trees: int) -> None:
    """The first scores are in the rounding of the base, which predictions keep some of."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = 1e-3 * rng.normal(size=60)
    how = {
        "n_estimators": trees,
        "max_depth": 2,
        "learning_rate": 1.0,
        "reg_lambda": 0,
        "base_score": 0.3,
    }
    model = xgb.XGBRegressor(**how).fit(X, y)
    explanation = Explainer(model, X, y)(X[:5])
    np.testing.assert_allclose(
        explanation.predictions, model.predict(X[:5]), rtol=0, atol=1e-6 * 0.3
    )
    with pytest.raises(ExactnessError):
        Explainer(model, X, y + np.where(np.arange(60) == 7, 1e-4, 0.0))


def test_single_leaves_near_a_share_of_the_largest_step() -> None:
    """A value that is 0.00533 times max_delta_step does not show a learning rate of 0.00533."""
    X, y = np.zeros((50, 1)), np.full(50, 2.0)
    learning_rate, max_delta_step = 0.3, 0.7
    for share in (0.00533, 0.0021, 0.08):
        step = share * max_delta_step / learning_rate
        base_score = 2.0 / (1.0 + step * np.exp(max_delta_step))
        settings = {"objective": "count:poisson", "base_score": base_score, "lambda": 0.0}
        model = xgb.train(settings, xgb.DMatrix(X, y), 2)
        assert Explainer(model, X, y).verification.n_trees == 2
