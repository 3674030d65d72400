"""Weights over Dask collections: labels, batches, groups, refusals. tests/test_contract.py compares the numbers of all models."""

import numpy as np
import pandas as pd
import pytest

import axil
from axil.methods.method import verified_model
from tests.dask.dask_models import QUERIES, X, Y, partitioned


def test_labels_are_those_of_the_frame(explainer, whole):
    table = explainer.top(QUERIES, 6)
    pd.testing.assert_frame_equal(table, whole.top(QUERIES, 6))
    assert list(explainer.index.compute()) == list(X.index)
    np.testing.assert_array_equal(explainer.targets.compute(), Y)


def test_rows_of_an_array_are_numbered_throughout(model):
    explainer = axil.Explainer(model, partitioned(X.to_numpy()), partitioned(Y.to_numpy()))
    expected = axil.Explainer(model, X.to_numpy(), Y.to_numpy()).top(QUERIES.to_numpy(), 6)
    pd.testing.assert_frame_equal(explainer.top(QUERIES.to_numpy(), 6), expected)


def test_many_queries_go_in_batches(explainer, whole, monkeypatch):
    expected = whole(X)
    monkeypatch.setattr(
        "axil.dask.exact_model.SENT_BYTES", 8 * 9 * 25 * 100
    )  # a hundred queries at a time
    np.testing.assert_allclose(explainer(X).weights, expected.weights, rtol=0, atol=1e-14)
    pd.testing.assert_frame_equal(explainer.top(X, 3), whole.top(X, 3))
    batches = list(explainer.iter(X, batch_size=200))
    assert [len(batch) for batch in batches] == [200, 200, 42]
    np.testing.assert_allclose(
        np.concatenate([b.weights for b in batches]), expected.weights, rtol=0, atol=1e-14
    )


def test_fewer_rows_than_asked_for(model, explainer, whole):
    pd.testing.assert_frame_equal(explainer.top(QUERIES, 600), whole.top(QUERIES, 600))


def test_no_queries(explainer):
    nothing = X.iloc[:0]
    assert explainer(nothing).weights.shape == (0, len(X))
    assert list(explainer.top(nothing).columns) == list(explainer.top(QUERIES).columns)
    assert len(explainer.top(nothing)) == len(list(explainer.iter(nothing))) == 0


def test_groups_by_any_labels(explainer, whole):
    labels = pd.Series(np.where(np.arange(len(X)) % 5 == 0, "north", "south"), index=X.index)
    pd.testing.assert_frame_equal(
        explainer.group(QUERIES, partitioned(labels)), whole(QUERIES).group(labels)
    )
    with pytest.raises(axil.InputError, match="groups has 2 partitions and X has 5"):
        explainer.group(QUERIES, partitioned(labels, (100, 342)))


def test_a_model_that_changed_is_noticed(model):
    """The explainer has a copy of the model: the check is the last resort, for what no copy protects."""
    explainer = axil.Explainer(model, partitioned(X), partitioned(Y))
    verified_model(explainer).adapter._booster.set_leaf_output(0, 0, 1e4)
    for ask in (explainer, explainer.top, lambda q: explainer.group(q, partitioned(Y))):
        with pytest.raises(axil.ExactnessError, match="may have changed"):
            ask(X)


def test_unverified_explainers_prepare_on_their_own(model, whole):
    explainer = axil.Explainer(model, partitioned(X), partitioned(Y), verify=False)
    np.testing.assert_allclose(
        explainer(QUERIES).weights, whole(QUERIES).weights, rtol=0, atol=1e-14
    )
    assert explainer.precompute() is explainer
    assert "not verified" in repr(explainer)


def test_bad_questions(explainer):
    for ask in (explainer.jacobian.matrix, lambda: explainer.jacobian.operator):
        with pytest.raises(
            axil.UnsupportedQuestionError, match=r"in their partitions.*Use training rows in memory"
        ):
            ask()
    with pytest.raises(axil.InputError, match=r"X\.compute\(\)"):
        explainer(partitioned(X))
    with pytest.raises(axil.InputError, match="X has 1 columns"):
        explainer.top(np.zeros((2, 1)))
    with pytest.raises(axil.InputError, match="k is 0"):
        explainer.top(QUERIES, 0)
