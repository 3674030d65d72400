"""The views on a batch of weights."""

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from lightgbm import LGBMRegressor
from scipy.sparse import csr_array

from axil import Explainer, Explanation, InputError
from axil.output.context import Context
from axil.output.predictions import WeightedSums


@pytest.fixture
def sums():
    rng = np.random.default_rng(0)
    return WeightedSums(
        weights=rng.normal(size=(4, 30)),
        intercepts=rng.normal(size=4),
        targets=rng.normal(size=30),
        index=np.array([f"row {i}" for i in range(30)], dtype=object),
        query_index=np.array([10, 20, 30, 40]),
    )


@pytest.fixture
def explanation(sums):
    return Explanation(sums)


def test_members_are_those_that_users_ask_for(explanation):
    arrays = {
        "weights",
        "intercepts",
        "targets",
        "index",
        "query_index",
        "outputs",
        "exact",
        "kind",
        "scale",
        "meaning",
        "feature_names",
    }
    views = {"predictions", "contributions", "probabilities", "effective_size", "negative_share"}
    as_in_shap = {"values", "base_values", "data", "to_shap"}
    methods = {"top", "group", "concentration", "column", "show", "to_html", "to_frame", "to_json"}
    assert {
        name for name in dir(explanation) if not name.startswith("_")
    } == arrays | views | methods | as_in_shap


def test_predictions_and_contributions(explanation):
    expected = explanation.contributions.sum(axis=1) + explanation.intercepts
    np.testing.assert_allclose(explanation.predictions, expected, atol=1e-12)


@pytest.mark.parametrize("kind", ["pandas", "polars", "array", "sparse"])
def test_a_feature_is_given_by_name(sums, kind):
    make = {"pandas": pd.DataFrame, "polars": pl.DataFrame}.get(
        kind, lambda columns: np.column_stack([*columns.values()])
    )
    make = (
        (lambda columns: csr_array(np.column_stack([*columns.values()])))
        if kind == "sparse"
        else make
    )
    X, X_train = (make({"a": np.arange(1.0, n + 1), "b": np.arange(n) % 2.0}) for n in (4, 30))
    names = ["a", "b"] if kind in ("pandas", "polars") else ["c", "d"]
    context = Context(X, X_train, None if names[0] == "a" else names, None)
    explanation = Explanation(replace(sums, context=context))
    assert explanation.feature_names == names
    for name in (names[1], 1):
        trained, asked = explanation.column(name)
        np.testing.assert_array_equal(trained, np.arange(30) % 2)
        np.testing.assert_array_equal(asked, np.arange(4) % 2)
    np.testing.assert_array_equal(explanation[[2, 0]].column(0)[1], [3.0, 1.0])
    loaded = Explanation(replace(sums, context=replace(context, X_train=None)))
    assert loaded.column(names[0])[0] is None
    with pytest.raises(InputError, match="name names 'e'; expected names such as"):
        explanation.column("e")


def test_without_features_there_are_no_columns(explanation):
    assert explanation.feature_names == []
    with pytest.raises(InputError, match="keeps no features"):
        explanation.column("a")


@pytest.mark.parametrize("by", ["weight", "contribution"])
def test_top_is_sorted_by_magnitude(explanation, by):
    table = explanation.top(3, by=by)
    assert list(table.columns) == [
        "query",
        "prediction",
        "rank",
        "row",
        "weight",
        "target",
        "contribution",
    ]
    values = explanation.weights if by == "weight" else explanation.contributions
    for i, query in enumerate(explanation.query_index):
        part = table[table["query"] == query]
        order = np.argsort(-np.abs(values[i]))[:3]
        assert list(part["row"]) == list(explanation.index[order])
        assert list(part["rank"]) == [1, 2, 3]
        assert list(part["prediction"]) == [explanation.predictions[i]] * 3
        np.testing.assert_array_equal(part["weight"], explanation.weights[i, order])
        np.testing.assert_array_equal(part["target"], explanation.targets[order])
        np.testing.assert_array_equal(
            part["contribution"], (explanation.weights * explanation.targets)[i, order]
        )


def test_top_takes_what_there_is(explanation):
    assert len(explanation.top(1000)) == 4 * 30
    assert len(explanation[:0].top(5)) == 0


@pytest.mark.parametrize("k", [0, -1, 2.5, "3", True])
def test_bad_k(explanation, k):
    with pytest.raises(InputError, match="k is"):
        explanation.top(k)


def test_bad_by(explanation):
    with pytest.raises(InputError, match='expected "weight" or "contribution"'):
        explanation.top(by="size")


@pytest.mark.parametrize("dtype", ["text", "numbers", "with missing", "mixed"])
def test_groups_add_up(explanation, dtype):
    labels = {
        "text": np.array(["a", "b", "c"] * 10, dtype=object),
        "numbers": pd.Series([2021, 2020, 2022] * 10),
        "with missing": pd.Series([1.0, np.nan, 2.0] * 10),
        "mixed": np.array(["a", 1, None] * 10, dtype=object),
    }[dtype]
    table = explanation.group(labels)
    assert list(table.columns) == ["query", "group", "weight", "contribution"]
    assert len(table) == 4 * 3
    sums = table.groupby("query", sort=False)[["weight", "contribution"]].sum()
    np.testing.assert_allclose(sums["weight"], explanation.weights.sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(
        sums["contribution"] + explanation.intercepts, explanation.predictions, atol=1e-12
    )
    first, group = explanation.weights[:, ::3].sum(axis=1), np.asarray(labels)[0]
    np.testing.assert_allclose(table[table["group"] == group]["weight"], first, atol=1e-12)


def test_group_wants_one_label_a_row(explanation):
    with pytest.raises(InputError, match=r"groups has shape \(29,\); expected \(30,\)"):
        explanation.group(["a"] * 29)


def test_slices_and_iteration(explanation):
    assert len(explanation) == 4
    assert explanation[1].query_index == [20]
    assert explanation[-1].weights.shape == (1, 30)
    assert list(explanation[1:3].query_index) == [20, 30]
    assert list(explanation[[0, 3]].query_index) == [10, 40]
    assert [one.query_index[0] for one in explanation] == [10, 20, 30, 40]
    np.testing.assert_array_equal(explanation[2].top(2)["query"], [30, 30])
    with pytest.raises(IndexError, match="prediction 4 of 4"):
        explanation[4]


def test_repr_says_what_the_numbers_mean(explanation):
    assert "exact, structure fixed" in repr(explanation)


def test_frames_of_every_library(sums, explanation):
    from dataclasses import replace

    pandas_frame = explanation.to_frame()
    assert list(pandas_frame.columns) == list(explanation.index)
    assert list(pandas_frame.index) == [10, 20, 30, 40]
    np.testing.assert_array_equal(pandas_frame.to_numpy(), explanation.weights)
    polars_frame = Explanation(replace(sums, backend="polars")).to_frame()
    assert isinstance(polars_frame, pl.DataFrame)
    np.testing.assert_array_equal(polars_frame.drop("query").to_numpy(), explanation.weights)
    assert isinstance(Explanation(replace(sums, backend="polars")).top(), pl.DataFrame)
    assert isinstance(Explanation(replace(sums, backend="pyarrow")).top(), pa.Table)
    assert isinstance(
        Explanation(replace(sums, backend="pyarrow")).group(list("ab") * 15), pa.Table
    )


def test_frames_of_several_outputs_have_a_row_for_each():
    from lightgbm import LGBMClassifier
    from sklearn.datasets import load_wine

    X, y = load_wine(return_X_y=True)
    model = LGBMClassifier(n_estimators=2, num_leaves=3, verbose=-1, n_jobs=1).fit(X, y)
    found = Explainer(model, X, y)(X[:2])
    frame = found.to_frame()
    assert frame.index.tolist() == [(q, k) for q in (0, 1) for k in (0, 1, 2)]
    np.testing.assert_array_equal(frame.loc[(1, 2)], found.contributions[1, 2])
    other = Explainer(model, pl.DataFrame(X), y)(pl.DataFrame(X[:2])).to_frame()
    assert other.columns[:2] == ["query", "output"]
    np.testing.assert_allclose(other.drop("query", "output").to_numpy(), frame.to_numpy())


def test_to_frame_refuses_labels_that_are_no_column_names(sums):
    from dataclasses import replace

    with pytest.raises(InputError, match="not unique"):
        Explanation(replace(sums, backend="polars", index=np.zeros(30))).to_frame()


def test_one_is_no_plural():
    X, y = np.arange(8.0)[:, None], np.arange(8.0)
    explainer = Explainer(
        LGBMRegressor(n_estimators=1, min_child_samples=1, verbose=-1).fit(X, y), X, y
    )
    assert "1 prediction by 8 training rows" in repr(explainer(X[:1]))
    assert "2 predictions by 8 training rows" in repr(explainer(X[:2]))
    assert "1 tree replayed on 8 training rows" in repr(explainer.verification)
