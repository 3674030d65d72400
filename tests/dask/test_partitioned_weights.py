"""The same numbers over Dask collections as on one machine."""

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import axil
from tests.dask.dask_models import QUERIES, X, Y, over_dask, partitioned, unequal
from tests.test_contract import TREES, case_of, explainer_of

SAME = [
    ("lightgbm", "regressor"),
    ("lightgbm", "regressor weighted scored"),
    ("lightgbm", "weights some zero"),
    ("lightgbm", "categorical frame"),
    ("lightgbm", "path_smooth=5 categorical"),
    ("lightgbm", "huber path_smooth weighted scored"),
    ("lightgbm", "targets constant"),
    ("lightgbm", "rate schedule"),
    ("lightgbm", "early stopping"),
    ("lightgbm", "dart"),
    ("lightgbm", "rf without bagging"),
    ("xgboost", "regressor weighted"),
    ("xgboost", "base_margin base_score=2 weighted"),
    ("xgboost", "categorical frame regressor"),
    ("xgboost", "one_output_per_tree weighted"),
    ("xgboost", "base_margin multi_output_tree"),
    ("xgboost", "dart weighted"),
    ("xgboost", "one_output_per_tree loaded"),
    ("xgboost", "rate schedule"),
    ("catboost", "defaults"),
    ("catboost", "baseline weighted steps"),
    ("catboost", "one-hot category dtype weighted"),
    ("catboost", "shrink weighted steps"),
    ("catboost", "multi weighted"),
    ("catboost", "continued other settings"),
    ("catboost", "Huber weighted"),
    ("sklearn", "stages n_iter_no_change weighted"),
    ("sklearn", "hist early stopping weighted"),
    ("sklearn", "hist categorical frame"),
    ("sklearn", "ExtraTreesRegressor outputs weighted"),
    ("sklearn", "DecisionTreeClassifier weighted"),
]

# Settings that axil computes from all training rows of a leaf, or in their order, at once.
NEED_ALL_ROWS = {
    "row sampling",
    "training rows",
    "objective",
    "loss",
    "loss_function",
    "criterion",
    "categories",
}


def same_numbers(explainer, whole, X):
    """Weights, intercepts, predictions and tables agree to 1e-12; these partitions merely add in another order."""
    found, expected = explainer(X), whole(X)
    np.testing.assert_allclose(found.weights, expected.weights, rtol=0, atol=1e-12)
    slack = 1e-12 * max(1.0, np.abs(expected.predictions).max())
    np.testing.assert_allclose(found.intercepts, expected.intercepts, rtol=0, atol=slack)
    np.testing.assert_allclose(found.predictions, expected.predictions, rtol=0, atol=slack)
    np.testing.assert_array_equal(found.index, expected.index)
    for by in ("weight", "contribution"):
        ours, theirs = explainer.top(X, 4, by=by), whole.top(X, 4, by=by)
        assert list(ours.columns) == list(theirs.columns)
        np.testing.assert_allclose(
            ours[by].abs(), theirs[by].abs(), rtol=0, atol=slack
        )  # ties may come in another order
    labels = np.arange(len(expected.targets)) % 3
    chunks = unequal(len(labels))
    ours, theirs = (
        explainer.group(X, da.from_array(labels, chunks=(chunks,))),
        expected.group(labels),
    )
    assert list(ours.columns) == list(theirs.columns)
    np.testing.assert_array_equal(ours["group"], theirs["group"])
    np.testing.assert_allclose(ours["weight"], theirs["weight"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(ours["contribution"], theirs["contribution"], rtol=0, atol=slack)


@pytest.mark.parametrize(("library", "name"), SAME)
def test_the_same_numbers_as_on_one_machine(library, name):
    case = case_of(library, name)
    explainer, whole = over_dask(case), explainer_of(library, name)
    same_numbers(explainer, whole, case.X_new[:9])
    ours, theirs = explainer.verification, whole.verification
    assert (ours.n_rows, ours.n_trees, ours.compared) == (
        theirs.n_rows,
        theirs.n_trees,
        theirs.compared,
    )
    assert ours.max_error <= ours.tolerance == theirs.tolerance
    assert ours.leaf_error == pytest.approx(theirs.leaf_error, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("library", "name"), TREES)
def test_every_model_is_the_same_or_refused_by_name(library, name):
    case = case_of(library, name)
    if sparse.issparse(case.X):
        pytest.skip("Dask arrays of dense blocks only")
    try:
        explainer = over_dask(case)
    except axil.UnsupportedModelError as error:
        if error.setting in NEED_ALL_ROWS:
            return
        raise
    whole = explainer_of(library, name)
    same_numbers(explainer, whole, case.X_new[:5])


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
        "axil.dask.partitioned_weights.ASKED_BYTES", 8 * 9 * 25 * 100
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
    explainer._model.adapter._booster.set_leaf_output(0, 0, 1e4)
    for ask in (explainer, explainer.top, lambda q: explainer.group(q, partitioned(Y))):
        with pytest.raises(axil.ExactnessError, match="may have changed"):
            ask(X)


def test_unverified_explainers_prepare_on_their_own(model, whole):
    explainer = axil.Explainer(model, partitioned(X), partitioned(Y), verify=False)
    np.testing.assert_allclose(
        explainer(QUERIES).weights, whole(QUERIES).weights, rtol=0, atol=1e-14
    )
    assert explainer.prepare() is explainer
    assert "not verified" in repr(explainer)


def test_bad_questions(explainer):
    for ask in (explainer.matrix, lambda: explainer.operator):
        with pytest.raises(
            axil.UnsupportedQuestionError, match=r"Dask collections.*Use training rows in memory"
        ):
            ask()
    with pytest.raises(axil.InputError, match=r"X\.compute\(\)"):
        explainer(partitioned(X))
    with pytest.raises(axil.InputError, match="X has 1 columns"):
        explainer.top(np.zeros((2, 1)))
    with pytest.raises(axil.InputError, match="k is 0"):
        explainer.top(QUERIES, 0)
