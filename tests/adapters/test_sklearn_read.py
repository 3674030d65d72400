"""The scikit-learn adapters against scikit-learn: from what they read, a replay in plain NumPy arrives at the leaves."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn import ensemble
from sklearn.impute import SimpleImputer
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from axil import Explainer
from axil.adapters.boosted_fit import BoostedFit
from axil.adapters.contract import Adapter, TrainingRows
from axil.adapters.sklearn.adapter import read as find
from axil.errors import InputError, UnsupportedModelError
from tests.adapters.common import drawn_rows
from tests.adapters.sklearn_models import (
    CASES,
    Case,
    boosted,
    fit,
    forest,
    frame,
    hist,
    lone,
    named,
    table,
)
from tests.reference import bent_tree
from tests.subsets import mostly_slow

Array = NDArray[np.float64]


def read(model: Any) -> Adapter:
    adapter = find(model)
    assert adapter is not None
    return adapter


def read_trees(case: Case, adapter: Adapter) -> BoostedFit:
    (trees,) = adapter.trees(TrainingRows(case.X, case.targets, case.sample_weight))
    return trees


def predict(case: Case, X: Any) -> Array:
    """What the model itself says, (n, K)."""
    found = (
        case.model.predict_proba(X) if hasattr(case.model, "classes_") else case.model.predict(X)
    )
    found = np.hstack(found) if isinstance(found, list) else found
    return np.asarray(found, dtype=np.float64).reshape(len(found), -1)


def replay(
    case: Case, adapter: Adapter, trees: BoostedFit, own: bool = False
) -> tuple[NDArray[np.int64], Array, Array, Array]:
    """Leaf counts, weights (L,) and values (L, K) and predictions (N, K), as `BoostedFit` and `Coefficients` define them.

    Each tree is fitted to what the model's own trees leave over, or where ``own`` is set to what the replayed ones do, in
    float64: the linear map that axil explains.
    """
    y, leaves, n_trees = case.targets, adapter.leaves(case.X), len(trees.table.n_leaves)
    w = trees.weights.row_weights if trees.weights.row_weights is not None else case.sample_weight
    w = np.ones(len(y)) if w is None else w
    w = w if trees.weights.held_out is None else np.where(trees.weights.held_out, 0.0, w)
    base = (
        trees.initial.values
        if not own or not trees.initial.follows_targets
        else np.average(y, axis=0, weights=w)
    )
    omega, beta = np.tril(np.tile(trees.learning_rates, (n_trees + 1, 1)), -1), np.ones(n_trees + 1)
    if trees.schedule.coefficients is not None:
        omega, beta = trees.schedule.coefficients.omega, trees.schedule.coefficients.beta
    starts = np.concatenate([[0], np.cumsum(trees.table.n_leaves)])
    counts, weights, values, steps = [], [], [], []
    precision = np.float64 if own else adapter.rounding.residuals
    for t, n in enumerate(trees.table.n_leaves):
        leaf = leaves[:, t]
        before = sum(
            (omega[t, s] * steps[s] for s in np.flatnonzero(omega[t])),
            beta[t] * base + np.zeros_like(y),
        )
        residuals = (y - before).astype(precision).astype(np.float64)
        draw = (
            np.ones(len(y))
            if trees.sampler is None
            else drawn_rows(trees.sampler, t, leaf, residuals)
        )
        taken = draw > 0 if trees.weights.held_out is None else (draw > 0) & ~trees.weights.held_out
        counts.append(np.bincount(leaf[taken], minlength=n))
        weights.append(np.bincount(leaf, w * draw, n))
        products = ((w * draw)[:, None] * residuals).astype(precision).astype(np.float64)
        sums = np.stack([np.bincount(leaf, column, n) for column in products.T], axis=1)
        v = sums / (weights[-1] + trees.leaf_rule.l2[starts[t] : starts[t + 1]])[:, None]
        v = v if trees.leaf_rule.nodes is None else bent_tree(trees, t, sums, weights[-1])
        values.append(omega[-1, t] * v)
        fitted = (
            trees.table.leaf_values[starts[t] : starts[t + 1]] / omega[-1, t]
            if omega[-1, t]
            else 0 * v
        )
        steps.append((v if own else fitted)[leaf])
    predictions = sum(
        (omega[-1, s] * steps[s] for s in range(n_trees)), beta[-1] * base + np.zeros_like(y)
    )
    return np.concatenate(counts), np.concatenate(weights), np.concatenate(values), predictions


@pytest.mark.parametrize("name", mostly_slow(2, CASES))
def test_replay_meets_every_leaf(name: str) -> None:
    case = CASES[name]()
    adapter = read(case.model)
    trees = read_trees(case, adapter)
    counts, weights, values, predictions = replay(case, adapter, trees)
    expected = predict(case, case.X)
    scale = np.abs(expected).max()
    assert trees.table.leaf_counts is not None or trees.table.leaf_weights is not None
    if trees.table.leaf_counts is not None:
        np.testing.assert_array_equal(counts, trees.table.leaf_counts)
    if trees.table.leaf_weights is not None:  # sums in float64, in another order
        np.testing.assert_allclose(
            weights, trees.table.leaf_weights, rtol=0, atol=1e-14 * weights.sum()
        )
    # float64 sums in any order, relative to what is summed
    slack = (
        adapter.leaf_tolerance * np.abs(trees.table.leaf_values).max()
        + 1e-14 * np.abs(case.targets).max()
    )
    np.testing.assert_allclose(values, trees.table.leaf_values, rtol=0, atol=slack)
    np.testing.assert_allclose(predictions, expected, rtol=0, atol=1e-14 * scale)
    np.testing.assert_array_equal(adapter.predictions(case.X), expected)


@pytest.mark.parametrize("name", CASES)
def test_the_linear_map_meets_predictions(name: str) -> None:
    case = CASES[name]()
    adapter = read(case.model)
    expected = predict(case, case.X)
    found = replay(case, adapter, read_trees(case, adapter), own=True)[3]
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=adapter.tolerance * np.abs(expected).max()
    )


@pytest.mark.parametrize("name", mostly_slow(2, CASES, share=1))
def test_leaf_values_add_up_to_new_predictions(name: str) -> None:
    case = CASES[name]()
    adapter = read(case.model)
    trees = read_trees(case, adapter)
    starts = np.cumsum(trees.table.n_leaves) - trees.table.n_leaves
    leaves = adapter.leaves(case.X_new)
    assert leaves.min() >= 0
    assert np.all(leaves.max(axis=0) < trees.table.n_leaves)
    summed = trees.initial.values + trees.table.leaf_values[starts + leaves].sum(axis=1)
    expected = predict(case, case.X_new)
    np.testing.assert_allclose(summed, expected, rtol=0, atol=1e-14 * np.abs(expected).max())


def one_off(case: Case, row: int) -> Case:
    """The case with one target changed, by little or to another class."""
    y = case.y.copy()
    if hasattr(case.model, "classes_"):
        y[row] = next(label for label in case.model.classes_ if label != y[row])
    else:
        y[row] += 1e-3
    return replace(case, y=y)


@pytest.mark.parametrize(
    "name",
    [
        "stages weighted",
        "stages subsample=0.9 seed=7",
        "stages n_iter_no_change subsample",
        "hist plain",
        "hist l2 weighted",
        "hist early stopping by default",
        "RandomForestRegressor",
        "RandomForestClassifier balanced bootstrap=True",
        "ExtraTreesClassifier weighted",
        "DecisionTreeRegressor outputs",
        "BaggingRegressor columns",
        "BaggingClassifier weighted",
    ],
)
def test_one_wrong_target_shows(name: str) -> None:
    case = CASES[name]()
    adapter = read(case.model)
    trees = read_trees(case, adapter)
    held = (
        np.zeros(len(case.y), dtype=bool)
        if trees.weights.held_out is None
        else trees.weights.held_out
    )
    drawn = (
        ~held
        if trees.sampler is None
        else drawn_rows(trees.sampler, 0, adapter.leaves(case.X)[:, 0], case.targets) > 0
    )
    row = int(np.flatnonzero(drawn)[10])
    wrong = one_off(case, row)
    values = replay(wrong, adapter, read_trees(wrong, adapter))[2]
    slack = (
        adapter.leaf_tolerance * np.abs(trees.table.leaf_values).max()
        + 1e-12 * np.abs(predict(case, case.X)).max()
    )
    assert np.abs(values - trees.table.leaf_values).max() > 10 * slack
    if held.any():  # a target that took no part does not matter
        values = replay(one_off(case, int(np.flatnonzero(held)[3])), adapter, trees)[2]
        np.testing.assert_allclose(values, trees.table.leaf_values, rtol=0, atol=slack)


def test_wrong_weights_and_rows_show() -> None:
    for case in (
        boosted(fit_with={"weighted": True}),
        lone("DecisionTreeClassifier", class_weight="balanced"),
    ):
        adapter = read(case.model)
        right = read_trees(case, adapter)
        weight = np.ones(len(case.y)) if case.sample_weight is None else case.sample_weight.copy()
        weight[3] *= 1.001
        wrong = replace(case, sample_weight=weight)
        found = replay(wrong, adapter, read_trees(wrong, adapter))[1]
        assert np.abs(found - right.table.leaf_weights).max() > 1e-4
    case = forest("RandomForestRegressor")
    assert read(case.model).fitted_rows == len(case.y)
    with pytest.raises(InputError, match="no offsets"):
        read(case.model).trees(TrainingRows(case.X, case.targets, None, np.zeros((len(case.y), 1))))


def test_bases() -> None:
    for name, base in {
        "plain": None,
        "init=zero": 0.0,
        "init=constant": 4.25,
        "init=mean weighted": None,
    }.items():
        case = CASES[f"stages {name}"]()
        trees = read_trees(case, read(case.model))
        assert (
            trees.initial.constants == base if base is not None else trees.initial.follows_targets
        )
    case = CASES["hist early stopping"]()
    trees = read_trees(case, read(case.model))
    assert trees.initial.follows_targets
    assert trees.weights.held_out is not None
    assert trees.weights.held_out.sum() == 30
    assert trees.initial.values[0] == pytest.approx(
        np.average(case.y, weights=~trees.weights.held_out), rel=1e-14
    )


def test_rows_given_to_stop_early_by_are_no_split() -> None:
    data = table()
    model = ensemble.HistGradientBoostingRegressor(max_iter=5, early_stopping=True)
    try:
        model.fit(data.X, data.y, X_val=data.X[:50], y_val=data.y[:50])
    except TypeError:
        pytest.skip("X_val is of later versions")
    case = Case(model, data.X, data.y, None, data.X_new)
    trees = read_trees(case, read(model))
    assert trees.weights.held_out is None
    np.testing.assert_allclose(
        replay(case, read(model), trees)[2], trees.table.leaf_values, rtol=0, atol=1e-10
    )


# -- models as they come ----------------------------------------------------------------------------------------------


def test_models_of_others() -> None:
    data = table()
    pipeline = make_pipeline(StandardScaler(), ensemble.RandomForestRegressor(2))
    assert find(pipeline.fit(data.X, data.y)) is None
    for thing in (None, "model.txt", pd.DataFrame(), StandardScaler()):
        assert find(thing) is None


@pytest.mark.parametrize(
    "name",
    [
        "stages plain",
        "hist plain",
        "hist categorical frame",
        "RandomForestClassifier",
        "BaggingRegressor columns",
    ],
)
def test_fingerprint_survives_pickle_and_nothing_is_changed(name: str) -> None:
    case = CASES[name]()
    before = pickle.dumps(case.model)
    adapter = read(case.model)
    again = read(pickle.loads(before))
    read_trees(case, adapter)
    adapter.leaves(case.X)
    adapter.predictions(case.X)
    assert pickle.dumps(case.model) == before
    assert again.fingerprint == adapter.fingerprint
    assert (again.feature_names, again.n_features) == (adapter.feature_names, adapter.n_features)
    np.testing.assert_array_equal(again.leaves(case.X), adapter.leaves(case.X))
    np.testing.assert_array_equal(
        read_trees(case, again).table.leaf_values, read_trees(case, adapter).table.leaf_values
    )
    others = {
        read(make().model).fingerprint
        for make in (boosted, hist, lambda: lone("ExtraTreeRegressor"))
    }
    assert len(others | {read(boosted(learning_rate=0.2).model).fingerprint}) == 4


def test_names_classes_and_outputs() -> None:
    assert read(CASES["stages plain"]().model).feature_names is None
    assert read(CASES["stages frame"]().model).feature_names == [f"feature {i}" for i in range(6)]
    assert read(CASES["hist categorical frame"]().model).feature_names == list("abcdef")
    adapter = read(CASES["RandomForestClassifier"]().model)
    assert adapter.classes is not None
    assert adapter.classes.tolist() == ["few", "middling", "plenty"]
    assert adapter.n_outputs == 3
    assert adapter.spelling("feature 0") == "feature 0"
    assert read(CASES["ExtraTreesRegressor outputs weighted"]().model).n_outputs == 2


# -- rows as they come ------------------------------------------------------------------------------------------------

KINDS = {
    "stages": lambda: boosted(fit_with={"convert": named}),
    "hist": lambda: hist(fit_with={"convert": named}),
    "forest": lambda: forest("RandomForestRegressor", fit_with={"convert": named}),
    "bagging": lambda: forest("BaggingRegressor", max_features=3, fit_with={"convert": named}),
    "classes": lambda: forest("ExtraTreesClassifier", fit_with={"convert": named}),
    "tree": lambda: lone("DecisionTreeRegressor", fit_with={"convert": named}),
    "stages nameless": lambda: boosted(),
    "hist nameless": lambda: hist(),
    "hist categories nameless": lambda: hist(categorical_features=[4]),
    "forest nameless": lambda: forest("RandomForestRegressor"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_and_frames_of_all_kinds_give_the_same_leaves(kind: str) -> None:
    case = KINDS[kind]()
    adapter, X = read(case.model), table().X_new
    names = [f"feature {i}" for i in range(6)]
    rows: dict[str, Any] = {
        "array": X,
        "F": np.asfortranarray(X),
        "pandas": pd.DataFrame(X, columns=names),
        "pandas Float64": pd.DataFrame(X, columns=names).convert_dtypes(),
        "polars": pl.DataFrame(X, schema=names),
        "pyarrow": pa.table(dict(zip(names, X.T))),
        "csr": sparse.csr_matrix(X),
        "csc array": sparse.csc_array(X),
        "coo": sparse.coo_matrix(X),
    }
    expected, predicted = adapter.leaves(case.X_new), predict(case, case.X_new)
    for name, given in rows.items():
        before = pickle.dumps(given)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # pandas 2.0 calls what NumPy 1.25 deprecates
            warnings.filterwarnings("ignore", "np.find_common_type", DeprecationWarning)
            np.testing.assert_array_equal(adapter.leaves(given), expected, err_msg=name)
            np.testing.assert_array_equal(adapter.predictions(given), predicted, err_msg=name)
        assert pickle.dumps(given) == before, name


def test_sparse_rows_with_wide_indices() -> None:
    case = CASES["RandomForestRegressor sparse"]()
    rows = case.X_new.copy()
    rows.indices, rows.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    np.testing.assert_array_equal(
        read(case.model).leaves(rows), read(case.model).leaves(case.X_new)
    )


def test_rows_that_the_model_does_not_take() -> None:
    adapter = read(CASES["RandomForestRegressor"]().model)
    with pytest.raises(InputError, match="scikit-learn cannot read these rows"):
        adapter.predictions(np.full((2, 6), np.inf))


@pytest.mark.skipif(
    "RandomForestRegressor nan" not in CASES, reason="before scikit-learn 1.8 it is refused"
)
def test_missing_values_in_frames() -> None:
    case = CASES["RandomForestRegressor nan"]()
    adapter, X = read(case.model), case.X_new
    nulls = pl.DataFrame(X, schema=list("abcdef")).fill_nan(None)
    for rows in (nulls, nulls.to_arrow(), pd.DataFrame(X).convert_dtypes()):
        np.testing.assert_array_equal(adapter.leaves(rows), adapter.leaves(X))


def test_categories_in_frames_of_all_kinds() -> None:
    case = CASES["hist categorical frame"]()
    adapter, given = read(case.model), case.X_new
    expected, predicted = adapter.leaves(given), case.model.predict(given)
    polars = pl.from_pandas(given)
    strings = polars.with_columns(pl.col("e").cast(pl.String))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows in (given, polars, strings, polars.to_arrow(), given.astype({"e": object})):
            np.testing.assert_array_equal(adapter.leaves(rows), expected)
            np.testing.assert_array_equal(adapter.predictions(rows)[:, 0], predicted)
    numeric = CASES["hist plain"]()
    with pytest.raises(InputError, match="cannot be read as numbers"):
        read(numeric.model).leaves(frame(table().X_new))


@pytest.mark.parametrize("convert", [np.asarray, pd.DataFrame, pl.DataFrame, sparse.csr_matrix])
@pytest.mark.parametrize(
    "name", ["stages plain", "hist plain", "RandomForestClassifier", "BaggingRegressor columns"]
)
def test_no_rows_and_one(name: str, convert: Any) -> None:
    case = CASES[name]()
    adapter = read(case.model)
    n_trees = len(read_trees(case, adapter).table.n_leaves)
    assert adapter.leaves(convert(case.X[:0])).shape == (0, n_trees)
    assert adapter.predictions(convert(case.X[:0])).shape == (0, adapter.n_outputs)
    assert adapter.leaves(convert(case.X[:1])).shape == (1, n_trees)
    assert adapter.predictions(convert(case.X[:1])).shape == (1, adapter.n_outputs)


def test_causes_name_what_to_look_at() -> None:
    adapter = read(CASES["stages plain"]().model)
    assert "rows and columns" in adapter.causes("counts")
    assert "sample_weight" in adapter.causes("weights")
    assert "targets" in adapter.causes("values")


def test_subclasses_are_read_like_their_parents() -> None:
    class Own(ensemble.RandomForestRegressor):
        pass

    case = fit(Own(n_estimators=3, random_state=0))
    trees = read_trees(case, read(case.model))
    np.testing.assert_allclose(
        replay(case, read(case.model), trees)[2], trees.table.leaf_values, rtol=1e-12
    )


def test_a_singular_kernel_is_refused_and_transformers_do_not_warn_again(recwarn: Any) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)) * 1e9, rng.normal(size=30)
    with pytest.raises(UnsupportedModelError, match="singular"):
        Explainer(KernelRidge(alpha=1e-3, kernel="linear").fit(X, y), X, y)
    X[:, 1] = np.nan
    piped = make_pipeline(SimpleImputer(), Ridge()).fit(X, y)
    recwarn.clear()
    Explainer(piped, X, y)
    assert not recwarn.list
