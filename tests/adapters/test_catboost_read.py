"""The CatBoost adapter against CatBoost: from what it reads, a replay in plain NumPy arrives at the model's leaves."""

from __future__ import annotations

import copy
import os
import warnings
from dataclasses import replace
from itertools import pairwise
from typing import Any

import catboost as cb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.isotonic import isotonic_regression

from axil import Explainer
from axil.adapters.boosted_fit import BoostedFit
from axil.adapters.catboost.adapter import read
from axil.adapters.catboost.base import CatBoostAdapter
from axil.adapters.contract import TrainingRows
from axil.errors import InputError, UnsupportedQuestionError
from tests.adapters.catboost_models import (
    CASES,
    QUIET,
    TAKES_NA,
    Case,
    loaded,
    pickled,
    regressor,
    table,
)
from tests.adapters.common import as_float32, settled
from tests.subsets import mostly_slow

Array = NDArray[np.float64]


def adapter_of(model: Any) -> CatBoostAdapter:
    adapter = read(model)
    assert adapter is not None
    return adapter


def parts(case: Case) -> tuple[Array, Array | None, Array | None]:
    """Targets (N, K), weights and offsets as the explainer passes them."""
    y = as_float32(case.y).reshape(len(case.y), -1)
    rounded = (
        None if values is None else as_float32(values)
        for values in (case.sample_weight, case.baseline)
    )
    weights, offsets = rounded
    return y, weights, offsets


def read_trees(case: Case, adapter: CatBoostAdapter) -> BoostedFit:
    y, weights, offsets = parts(case)
    columns = None if offsets is None else np.broadcast_to(offsets.reshape(len(y), -1), y.shape)
    (trees,) = settled(adapter, TrainingRows(case.X, y, weights, columns))
    return trees


def settle(case: Case, trees: BoostedFit, leaves: NDArray[Any]) -> BoostedFit:
    """With the rates that the model leaves open fitted to its leaf values."""
    if not np.isnan(trees.learning_rates).any():
        return trees
    once = trees.with_learning_rates(
        np.where(np.isnan(trees.learning_rates), 1.0, trees.learning_rates)
    )
    pairs = zip(
        *(
            np.split(v, np.cumsum(trees.table.n_leaves)[:-1])
            for v in (replay(case, once, leaves, True)[2], trees.table.leaf_values)
        )
    )
    fitted = np.array([np.sum(u * v) / (np.sum(u * u) or 1.0) for u, v in pairs])
    return trees.with_learning_rates(
        np.where(np.isnan(trees.learning_rates), fitted, trees.learning_rates)
    )


def leaf_values(trees: BoostedFit, own: slice, S: Array, W: Array) -> Array:
    """(L, K): as BoostedFit defines them, before the rate."""
    l2, steps = (
        trees.leaf_rule.l2[own],
        np.broadcast_to(trees.leaf_rule.steps, trees.leaf_rule.l2.shape)[own],
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        after = np.where(np.isinf(l2), 0, (1 - (l2 / (W + l2)) ** steps) / W)
        found = np.where(steps == 1, 1 / (W + l2), after)[:, None] * S
    for first, last in pairwise(
        trees.leaf_rule.chains.starts if trees.leaf_rule.chains is not None else ()
    ):
        chain = trees.leaf_rule.chains.order[first:last] - own.start
        if last - first > 1 and own.start <= trees.leaf_rule.chains.order[first] < own.stop:
            found[chain, 0] = isotonic_regression(found[chain, 0], sample_weight=(W + l2)[chain])
    return found


def tables(trees: BoostedFit) -> tuple[Array, Array]:
    """omega and beta, of plain boosting too."""
    if trees.schedule.coefficients is not None:
        return trees.schedule.coefficients.omega, trees.schedule.coefficients.beta
    n_trees = len(trees.learning_rates)
    return np.tril(np.tile(trees.learning_rates, (n_trees + 1, 1)), -1), np.ones(n_trees + 1)


def replay(
    case: Case, trees: BoostedFit, leaves: NDArray[Any], forced: bool
) -> tuple[Array, Array, Array, Array]:
    """Leaf counts, weights and values (L, K), and predictions (N, K) without offsets, wherever they are made.

    ``forced``: each tree is fitted to what the model's own trees leave over, from the model's own base; otherwise to what
    the replayed ones leave over, from the mean of the targets where the base is that.
    """
    y, weights, offsets = parts(case)
    w = np.ones(len(y)) if weights is None else weights
    omega, beta = tables(trees)
    shift = np.zeros((len(y), 1)) if offsets is None else offsets[:, None]
    mean = np.average(y, axis=0, weights=w)
    base = (
        trees.initial.values
        if forced
        else mean
        if trees.initial.follows_targets
        else trees.initial.constants
    )
    found: list[Array] = []  # values before the rate of each tree, leaf by leaf
    counts, sums = [], []
    start = 0
    for t, n in enumerate(trees.table.n_leaves):
        own, leaf = slice(start, start + n), leaves[:, t]
        residual = (
            y
            - shift
            - beta[t] * base
            - sum(omega[t, s] * v[leaves[:, s]] for s, v in enumerate(found))
        )
        counts.append(np.bincount(leaf, minlength=n))
        W = np.bincount(leaf, w, n)
        S = np.stack([np.bincount(leaf, w * r, n) for r in residual.T], axis=1)
        u = leaf_values(trees, own, S, W)
        sums.append((W, u))
        found.append(trees.table.leaf_values[own] / omega[-1, t] if forced else u)
        start += n
    values = np.concatenate([omega[-1, t] * u for t, (_, u) in enumerate(sums)])
    asked = leaves if trees.placement is None else adapter_of(case.model).leaves(case.X)
    predictions = beta[-1] * base + sum(omega[-1, s] * v[asked[:, s]] for s, v in enumerate(found))
    return np.concatenate(counts), np.concatenate([W for W, _ in sums]), values, predictions


def fitted_leaves(case: Case, adapter: Any, trees: BoostedFit) -> NDArray[Any]:
    """(N, T): the leaves that training rows had in the fit."""
    if trees.placement is None:
        return adapter.leaves(case.X)
    found = np.empty((len(trees.table.n_leaves), len(case.y)), dtype=np.uint16)
    trees.placement.assign(found, 1)
    return found.T


def predict(case: Case, X: Any) -> Array:
    return np.asarray(case.model.predict(X), dtype=np.float64).reshape(X.shape[0], -1)


@pytest.mark.parametrize("name", mostly_slow(2, CASES))
def test_replay_meets_every_leaf(name: str) -> None:
    case = CASES[name]()
    adapter = adapter_of(case.model)
    trees = read_trees(case, adapter)
    leaves = fitted_leaves(case, adapter, trees)
    trees = settle(case, trees, leaves)
    counts, weights, values, forced = replay(case, trees, leaves, forced=True)
    predictions = predict(case, case.X)
    scale = np.abs(predictions).max() or 1.0
    assert trees.table.leaf_values.shape == (trees.table.n_leaves.sum(), adapter.n_outputs)
    assert (trees.table.leaf_counts is None) == (case.sample_weight is not None)
    if trees.table.leaf_counts is not None:
        np.testing.assert_array_equal(counts, trees.table.leaf_counts)
    assert (trees.weights.recorded_by is not None) == (name == "encoded Lossguide weighted")
    if trees.weights.recorded_by is None:
        np.testing.assert_allclose(
            weights, trees.table.leaf_weights, rtol=0, atol=1e-14 * weights.sum()
        )
    np.testing.assert_allclose(
        values, trees.table.leaf_values, rtol=0, atol=adapter.leaf_tolerance * scale
    )
    np.testing.assert_allclose(forced, predictions, rtol=0, atol=1e-14 * scale)
    np.testing.assert_array_equal(adapter.predictions(case.X), predictions)
    free = replay(case, trees, leaves, forced=False)[3]
    np.testing.assert_allclose(free, predictions, rtol=0, atol=adapter.tolerance * scale)


@pytest.mark.parametrize("name", mostly_slow(2, CASES, share=1))
def test_leaf_values_add_up_to_new_predictions(name: str) -> None:
    case = CASES[name]()
    adapter = adapter_of(case.model)
    trees = read_trees(case, adapter)
    starts = np.cumsum(trees.table.n_leaves) - trees.table.n_leaves
    summed = tables(trees)[1][-1] * trees.initial.values + trees.table.leaf_values[
        starts + adapter.leaves(case.X_new)
    ].sum(axis=1)
    predictions = predict(case, case.X_new)
    np.testing.assert_allclose(
        summed, predictions, rtol=0, atol=1e-14 * (np.abs(predictions).max() or 1.0)
    )


# -- what is read -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "estimated"),
    [
        ("defaults", True),
        ("weighted", True),
        ("boost_from_average=False", False),
        ("baseline", False),
        ("continued", True),
        ("continued loaded", True),
        ("continued loaded without average", False),
        ("shrink stopped", True),
        ("multi", True),
        ("multi boost_from_average=False", False),
    ],
)
def test_base(name: str, estimated: bool) -> None:
    case = CASES[name]()
    trees = read_trees(case, adapter_of(case.model))
    if estimated:
        assert trees.initial.follows_targets
        y, weights, _ = parts(case)
        np.testing.assert_allclose(
            trees.initial.values, np.average(y, axis=0, weights=weights), rtol=6e-8
        )
    else:
        np.testing.assert_array_equal(trees.initial.constants, np.zeros_like(trees.initial.values))
        np.testing.assert_array_equal(trees.initial.values, np.zeros_like(trees.initial.values))


def test_rates_and_l2() -> None:
    def read_case(name: str) -> BoostedFit:
        return read_trees(CASES[name](), adapter_of(CASES[name]().model))

    rates = read_case("defaults").learning_rates  # CatBoost chose it
    assert len(set(rates)) == 1
    assert 0 < rates[0] <= 0.5
    assert set(read_case("loaded").learning_rates) == {float(np.float32(1 / 3))}
    np.testing.assert_array_equal(
        read_case("loaded").leaf_rule.l2, read_case("pickled").leaf_rule.l2
    )
    filled = read_case("l2_leaf_reg=0.123").leaf_rule.l2
    mean_weight = as_float32(table().weight).mean()
    np.testing.assert_allclose(
        filled[np.isfinite(filled)], np.float32(0.123) * mean_weight, rtol=1e-14
    )
    assert np.isinf(read_case("defaults").leaf_rule.l2).any()  # empty leaves of symmetric trees


def test_a_continued_model_tells_the_settings_of_each_fit() -> None:
    case = CASES["continued other settings"]()  # CatBoost keeps those of the last fit only
    trees = read_trees(case, adapter_of(case.model))
    np.testing.assert_array_equal(
        trees.learning_rates, np.float32([0.11] * 8 + [0.3] * 3).astype(float)
    )
    first = slice(0, int(trees.table.n_leaves[:8].sum()))
    assert set(trees.leaf_rule.l2[first]) - {np.inf} == {7.0}
    case = CASES["continued twice"]()
    trees = read_trees(case, adapter_of(case.model))
    np.testing.assert_array_equal(
        trees.learning_rates, np.float32([0.3] * 16 + [0.17] * 8).astype(float)
    )


def test_a_continued_model_on_other_data_keeps_its_rate_open() -> None:
    other = replace(table(), y=table(seed=1).y)
    model = regressor(fit={"init_model": regressor(other).model}).model
    data = table()
    (trees,) = settled(adapter_of(model), TrainingRows(data.X, as_float32(data.y)[:, None]))
    assert np.isnan(trees.learning_rates[:8]).all()


def test_best_iteration() -> None:
    stopped, kept = CASES["stopped"](), CASES["stopped, all trees kept"]()
    assert adapter_of(stopped.model).leaves(stopped.X).shape[1] == stopped.model.best_iteration_ + 1
    assert (
        adapter_of(kept.model).leaves(kept.X).shape[1]
        == kept.model.tree_count_
        > stopped.model.tree_count_
        > 2
    )
    shrunk = CASES["shrink stopped"]().model
    assert shrunk.tree_count_ < 60  # and its bias is shrunk by more iterations than that


def test_tolerances() -> None:
    def tolerances(name: str) -> tuple[float, float]:
        adapter = adapter_of(CASES[name]().model)
        return adapter.tolerance, adapter.leaf_tolerance

    assert tolerances("defaults") == (1e-6, 1e-12)
    assert tolerances("baseline") == (1e-6, 1e-12)
    assert tolerances("30 steps") == (1e-6, 1e-6)
    assert tolerances("30 steps without backtracking") == (1e-6, 1e-12)


# -- models as they come ----------------------------------------------------------------------------------------------


def test_unfitted_and_foreign_models() -> None:
    for unfitted in (cb.CatBoostRegressor(), cb.CatBoost()):
        with pytest.raises(InputError, match="has not been fitted"):
            read(unfitted)
    for thing in (None, "model.cbm", cb.Pool(np.zeros((2, 2))), pd.DataFrame()):
        assert read(thing) is None


@pytest.mark.parametrize(
    "name", ["defaults", "stopped", "one-hot", "Lossguide Plain", "multi", "shrink", "continued"]
)
def test_fingerprint_survives_copies(name: str) -> None:
    case = CASES[name]()
    adapter = adapter_of(case.model)
    copies = [
        pickled(case),
        loaded(case),
        loaded(loaded(case)),
        replace(case, model=case.model.copy()),
    ]
    if name != "Lossguide Plain":  # whose leaves JSON numbers in another order
        copies.append(loaded(case, "json"))
    for other in copies:
        again = adapter_of(other.model)
        assert again.fingerprint == adapter.fingerprint
        assert again.feature_names == adapter.feature_names
        assert again.n_features == adapter.n_features
        np.testing.assert_array_equal(again.leaves(case.X), adapter.leaves(case.X))
    assert adapter_of(regressor(l2_leaf_reg=0.01).model).fingerprint != adapter.fingerprint


def test_feature_names() -> None:
    assert adapter_of(CASES["defaults"]().model).feature_names is None
    assert adapter_of(CASES["one-hot"]().model).feature_names == list("abcdefgh")
    assert adapter_of(CASES["frame"]().model).feature_names == [f"x {i}" for i in range(8)]
    assert adapter_of(CASES["csr"]().model).n_features == 8
    assert adapter_of(CASES["frame"]().model).spelling("x 0") == "x 0"


# -- rows as they come ------------------------------------------------------------------------------------------------


def same(rows: Any, before: Any) -> bool:
    """Whether reading left the caller's data alone."""
    if sparse.issparse(rows):
        rows, before = rows.toarray(), before.toarray()
    if isinstance(rows, pa.Table):  # to which nan is not nan
        rows, before = rows.to_pandas(), before.to_pandas()
    if isinstance(rows, np.ndarray):
        return np.array_equal(rows, before, equal_nan=True)
    return bool(rows.equals(before))


def test_arrays_and_frames_of_all_kinds_give_the_same_leaves(
    capfd: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    case = CASES["nan"]()
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
        "pyarrow": pl.from_numpy(X, schema=names).to_arrow(),
        "pyarrow null": frame.to_arrow(),
        **{
            f"{kind} {how}": getattr(sparse, f"{kind}_{how}")(X)
            for kind in ("csr", "csc", "coo")
            for how in ("matrix", "array")
        },
    }
    if not TAKES_NA:
        del kinds["pandas Float64"]
    expected = case.model.calc_leaf_indexes(X)
    for name, rows in kinds.items():
        before = copy.deepcopy(rows)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_array_equal(adapter.leaves(rows), expected, err_msg=name)
            np.testing.assert_array_equal(
                adapter.predictions(rows)[:, 0], case.model.predict(X), err_msg=name
            )
        assert same(rows, before), name
    assert capfd.readouterr() == ("", "")
    assert os.listdir(tmp_path) == []


def test_integers_and_booleans_in_frames() -> None:
    data, rng = table(), np.random.default_rng(0)
    n = len(data.y)
    columns = {"i": rng.integers(0, 9, n), "b": rng.random(n) < 0.5, "x": data.X[:, 0]}
    frame = pl.DataFrame({**columns, "g": [None if i % 7 == 0 else i % 5 for i in range(n)]})
    X = frame.with_columns(pl.all().cast(pl.Float64)).to_numpy()
    model = cb.CatBoostRegressor(iterations=5, **QUIET).fit(X, data.y)
    for rows in (frame, frame.to_arrow(), frame.to_pandas()):
        np.testing.assert_array_equal(adapter_of(model).leaves(rows), model.calc_leaf_indexes(X))


def test_categories_in_frames_of_all_kinds() -> None:
    case = CASES["one-hot"]()
    adapter, frame = adapter_of(case.model), case.X_new
    expected = case.model.calc_leaf_indexes(cb.Pool(frame, cat_features=["f", "g"]))
    polars = pl.from_pandas(frame)
    enum = polars.with_columns(pl.col("f").cast(pl.Enum(["high", "low", "mid"])))
    objects = frame.to_numpy(object)
    typed = frame.astype({"f": "category", "g": "category"})
    for rows in (frame, polars, enum, polars.to_arrow(), objects, typed):
        np.testing.assert_array_equal(adapter.leaves(rows), expected)
    with pytest.raises(InputError, match="Column 'f' is categorical"):
        adapter.leaves(polars.with_columns(pl.lit(None, dtype=pl.String).alias("f")))


@pytest.mark.parametrize("name", ["frame", "one-hot"])
def test_columns_in_another_order_are_found_by_name(name: str) -> None:
    case = CASES[name]()
    adapter, frame = adapter_of(case.model), case.X_new
    turned = frame[frame.columns[::-1]]
    for rows in (turned, pl.from_pandas(turned), pa.Table.from_pandas(turned)):
        np.testing.assert_array_equal(adapter.leaves(rows), adapter.leaves(frame))


@pytest.mark.parametrize("convert", [np.asarray, pd.DataFrame, pl.DataFrame, sparse.csr_matrix])
@pytest.mark.parametrize("name", ["one tree", "multi"])
def test_no_rows_and_one_row(name: str, convert: Any, capfd: Any) -> None:
    case = CASES[name]()
    adapter = adapter_of(case.model)
    n_trees, n_outputs = case.model.tree_count_, adapter.n_outputs
    for n in (0, 1):
        assert adapter.leaves(convert(case.X[:n])).shape == (n, n_trees)
        assert adapter.predictions(convert(case.X[:n])).shape == (n, n_outputs)
    assert np.issubdtype(adapter.leaves(convert(case.X)).dtype, np.integer)
    assert capfd.readouterr() == ("", "")


# -- mistakes ---------------------------------------------------------------------------------------------------------


def disagreement(case: Case, adapter: CatBoostAdapter) -> tuple[float, float]:
    """The largest differences of leaf weights and of leaf values, the latter in leaf tolerances."""
    leaves = adapter.leaves(case.X)
    trees = settle(case, read_trees(case, adapter), leaves)
    _, weights, values, _ = replay(case, trees, leaves, forced=True)
    assert trees.table.leaf_weights is not None
    tolerance = adapter.leaf_tolerance * np.abs(adapter.predictions(case.X)).max()
    return float(np.abs(weights - trees.table.leaf_weights).max()), float(
        np.abs(values - trees.table.leaf_values).max()
    ) / tolerance


@pytest.mark.parametrize(
    "name", ["weighted", "steps", "30 steps", "shrink", "continued", "continued loaded", "multi"]
)
def test_mistakes_show(name: str) -> None:
    """The replay of this file tells right from wrong: one target, one weight or one row out of place."""
    case = CASES[name]()
    adapter = adapter_of(case.model)
    assert disagreement(case, adapter)[1] < 1
    y = case.y.copy()
    y[17] += 0.1
    assert disagreement(replace(case, y=y), adapter)[1] > 100
    assert disagreement(replace(case, baseline=np.full(len(y), 0.01)), adapter)[1] > 100
    weights = np.ones(len(y)) if case.sample_weight is None else case.sample_weight.copy()
    weights[5] += 0.5
    assert disagreement(replace(case, sample_weight=weights), adapter)[0] > 0.1
    X = np.roll(case.X, 1, axis=0)
    assert disagreement(replace(case, X=X), adapter)[1] > 100


def test_a_changed_model_shows() -> None:
    case = regressor()
    case.model.set_scale_and_bias(1.0, [5.5])
    assert disagreement(case, adapter_of(case.model))[1] > 100
    case = regressor()
    case.model.shrink(8, ntree_start=3)
    assert disagreement(case, adapter_of(case.model))[1] > 100


def test_causes_name_what_to_look_at() -> None:
    adapter = adapter_of(CASES["defaults"]().model)
    assert "sparse_features_conflict_fraction" not in adapter.causes("counts")
    bundled = adapter_of(regressor(sparse_features_conflict_fraction=0.1).model)
    assert "sparse_features_conflict_fraction=0" in bundled.causes("counts")
    assert "sample_weight" in adapter.causes("weights")
    assert "baseline" in adapter.causes("values")


def test_whole_numbers_in_sparse_rows_can_be_categories() -> None:
    rng = np.random.default_rng(0)
    X, y = sparse.csr_matrix(rng.integers(0, 4, (60, 3))), rng.normal(size=60)
    pool = cb.Pool(X, y, cat_features=[0, 1])
    model = cb.CatBoostRegressor(iterations=4, one_hot_max_size=10, **QUIET).fit(pool)
    np.testing.assert_allclose(
        Explainer(model, X, y)(X).predictions, model.predict(pool), rtol=1e-6
    )


@pytest.mark.parametrize("loss", ["RMSE", "MultiRMSE"])
def test_targets_around_1e18(loss: str) -> None:
    """CatBoost neither copies a model with such a mean nor reads it from a file."""
    data = table(80)
    y = 1e18 * data.y / data.y.mean()
    y = y if loss == "RMSE" else np.column_stack([y, y**2 / 1e18])
    model = cb.CatBoostRegressor(iterations=5, depth=3, loss_function=loss, **QUIET).fit(data.X, y)
    explainer = Explainer(model, data.X, y)
    found = explainer(data.X_new).predictions
    np.testing.assert_allclose(found, model.predict(data.X_new), rtol=1e-6)  # targets in float32
    try:
        written = explainer.refit(drop=[0]).model
    except UnsupportedQuestionError as error:
        assert "in another unit" in str(error)  # noqa: PT017 - another version may read it
    else:
        assert written.is_fitted()


def test_truth_values_are_labels_as_the_fit_had_them() -> None:
    """CatBoost 1.2 keeps them as text."""
    X = table(60).X[:, :3]
    y = X[:, 0] > 0
    model = cb.CatBoostClassifier(iterations=3, verbose=False, allow_writing_files=False).fit(X, y)
    scores = model.predict(X, prediction_type="RawFormulaVal")
    np.testing.assert_allclose(Explainer(model, X, y)(X).predictions, scores, rtol=0, atol=1e-9)
