"""What holds for every model that axil reads, of whatever library and with whatever settings."""

import contextlib
import copy
import pickle
import re

import dask
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import axil
import axil.adapters
from axil.methods.question import verified_model
from tests.adapters import lightgbm_models, smoother_models
from tests.contract_models import (
    GRID,
    LARGE,
    MEANS,
    TREES,
    case_of,
    dense,
    explainer_of,
    offsets_of,
    predict,
    predict_from,
)
from tests.dask.dask_models import partitioned
from tests.places import PLACES
from tests.reference import dense_weights, replay, replayed_steps
from tests.subsets import chosen, mostly_slow


def by_output(numbers, n_outputs=1):
    """Those of each output, (n, N), of (n, K, N); what outputs share for each of them."""
    return np.moveaxis(numbers, 1, 0) if numbers.ndim == 3 else [numbers] * n_outputs


@pytest.mark.parametrize(("library", "name"), GRID)
def test_weights_times_targets_are_the_predictions(library, name):
    """In and out of sample, to 1e-6 of the largest prediction where residuals are float32 and 1e-9 where they are not."""
    case = case_of(library, name)
    explainer = explainer_of(library, name)
    tolerance = verified_model(explainer).adapter.tolerance
    assert tolerance <= 2e-6  # XGBoost's own sum of many trees in float32 strays further than 1e-6
    for X, offsets in ((case.X, offsets_of(case)), (case.X_new, None)):
        explanation = explainer(X, init_score=offsets)
        model = predict(case, X) if offsets is None else predict_from(case, X, offsets)
        made = explanation.predictions.reshape(model.shape)
        assert np.abs(made - model).max() <= tolerance * max(
            np.abs(model).max(), explainer.verification.scale
        )
    assert explainer.verification.max_error <= tolerance


@pytest.mark.parametrize(("library", "name"), GRID)
def test_supports_says_the_kind_of_the_explainer(library, name):
    assert axil.supports(case_of(library, name).model).kind == explainer_of(library, name).kind


@pytest.mark.parametrize(
    ("library", "name"),
    mostly_slow(2, [(library, name) for library, name in TREES if name in MEANS[library]]),
)
def test_leaves_are_those_of_the_library(library, name):
    case = case_of(library, name)
    adapter = axil.adapters.read(case.model)
    if not hasattr(adapter, "leaves"):
        pytest.skip("the model has members or no trees")
    for X in (case.X, case.X_new):
        expected = adapter.leaves(X)
        found = np.empty(expected.shape[::-1], dtype=np.uint16)
        adapter.assign(X, found, 2)
        np.testing.assert_array_equal(found.T, expected)
        np.testing.assert_array_equal(adapter.coordinates(X), expected)


@pytest.mark.parametrize(("library", "name"), dense(TREES))
def test_engines_agree_with_the_dense_recursion(library, name):
    case = case_of(library, name)
    explainer = explainer_of(library, name)
    leaves = verified_model(explainer).adapter.coordinates(case.X_new)
    structures = [engine.structure for engine in verified_model(explainer).engines]
    expected = [
        dense_weights(s, leaves if s.columns is None else leaves[:, s.columns])[0]
        for s in structures
    ]
    prepared = copy.deepcopy(explainer)
    for one in (explainer, prepared.prepare()):
        weights = one(case.X_new).weights
        for found, right in zip(by_output(weights), expected):
            np.testing.assert_allclose(found, right, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("library", "name"), mostly_slow(2, TREES))
def test_perturbed_targets_move_predictions_by_the_weights(library, name):
    """Linearity by an independent replay: new targets through the model's own structure, tree by tree in NumPy."""
    case = case_of(library, name)
    explainer = explainer_of(library, name)
    leaves = verified_model(explainer).adapter.coordinates(case.X_new)
    weights = explainer(case.X_new).weights
    delta = np.random.default_rng(0).normal(size=verified_model(explainer).targets.shape)
    for k, found in enumerate(by_output(weights, verified_model(explainer).targets.shape[1])):
        s = (
            verified_model(explainer)
            .engines[k if len(verified_model(explainer).engines) > 1 else 0]
            .structure
        )
        own = leaves if s.columns is None else leaves[:, s.columns]
        y = verified_model(explainer).targets[:, k]
        moved = replay(s, y + delta[:, k], own) - replay(s, y, own)
        slack = 1e-12 * np.abs(y + delta[:, k]).max()  # two predictions of this size are subtracted
        np.testing.assert_allclose(found @ delta[:, k], moved, rtol=0, atol=slack)


@pytest.mark.parametrize(("library", "name"), mostly_slow(2, TREES, share=1))
def test_steps_are_those_of_a_replay_and_add_up_to_the_predictions(library, name):
    case, explainer = case_of(library, name), explainer_of(library, name)
    X, targets = case.X_new[:5], verified_model(explainer).targets
    steps, model, leaves = (
        explainer.pushes(X),
        predict(case, X),
        verified_model(explainer).adapter.coordinates(X),
    )
    assert steps.ndim == 2 + (targets.shape[1] > 1)
    scale = max(np.abs(model).max(), explainer.verification.scale)
    for k, found in enumerate(by_output(steps)):
        s = (
            verified_model(explainer)
            .engines[k if len(verified_model(explainer).engines) > 1 else 0]
            .structure
        )
        own = leaves if s.columns is None else leaves[:, s.columns]
        np.testing.assert_allclose(
            found,
            replayed_steps(
                s, targets[:, k], own, 0 if len(verified_model(explainer).engines) > 1 else k
            ),
            rtol=0,
            atol=1e-12 * scale,
        )
        base = (
            np.average(targets[:, k], weights=s.row_weights)
            if s.base is None
            else s.base[k % len(s.base)]
        )
        made = found.sum(axis=1) + s.beta[-1] * base
        np.testing.assert_allclose(
            made, model[:, k], rtol=0, atol=verified_model(explainer).adapter.tolerance * scale
        )


@pytest.mark.parametrize(
    "name", [name for name in smoother_models.CASES if not re.search("pipeline|cv|estimated", name)]
)
def test_smoothers_refitted_to_other_targets_move_by_the_weights(name):
    """Once its kernel is held fixed a smoother chooses nothing by its targets: here even a refit moves exactly by the weights."""
    case = smoother_models.CASES[name]()
    delta = np.random.default_rng(0).normal(size=case.y.shape)
    weights = {} if case.sample_weight is None else {"sample_weight": case.sample_weight}
    fixed = (
        {"kernel": case.model.kernel_, "optimizer": None} if hasattr(case.model, "kernel_") else {}
    )
    refitted = clone(case.model).set_params(**fixed).fit(case.X, case.y + delta, **weights)
    moved = refitted.predict(case.X_new) - case.model.predict(case.X_new)
    explainer = explainer_of("smoother", name)
    weights = explainer(case.X_new).weights
    columns = np.reshape(delta, (len(delta), -1)).T
    found = np.stack(
        [own @ column for own, column in zip(by_output(weights, len(columns)), columns)], axis=1
    )
    np.testing.assert_allclose(
        found.reshape(moved.shape),
        moved,
        rtol=0,
        atol=verified_model(explainer).adapter.tolerance * np.abs(case.y).max(),
    )


@pytest.mark.parametrize(("library", "name"), mostly_slow(3, GRID))
def test_a_wrong_target_is_noticed(library, name):
    case = case_of(library, name)
    wrong = np.array(case.y)
    weights = explainer_of(library, name)(case.X[:3]).weights
    if not weights.any() or len(np.unique(wrong)) == 1:
        pytest.skip("no target enters the predictions, or all are alike")
    if hasattr(case.model, "predict_proba") or "RidgeClassifier" in type(case.model).__name__:
        wrong = np.roll(wrong, 1, axis=0)
    else:
        row = int(
            np.abs(weights).reshape(-1, len(wrong)).max(axis=0).argmax()
        )  # held-out rows may have any target
        wrong[row] = wrong[row] + 0.1 * np.maximum(np.ptp(wrong, axis=0), 0.1)
    # CatBoost may itself be why leaves of sparse or continued models disagree: that is named first, the data second.
    doubted = library == "catboost" and any(word in name for word in ("csr", "csc", "continued"))
    with pytest.raises(
        (axil.ExactnessError, axil.UnsupportedModelError) if doubted else axil.ExactnessError
    ):
        axil.Explainer(case.model, case.X, wrong, case.sample_weight, offsets_of(case))


@pytest.mark.parametrize(("library", "name"), mostly_slow(6, GRID))
def test_fewer_rows_are_noticed(library, name):
    if name == "targets constant" and library == "lightgbm" and lightgbm_models.VERSION < (4, 6):
        pytest.skip("before LightGBM 4.6 a tree of one leaf does not record its number of rows")
    case = case_of(library, name)
    keep = np.arange(len(case.y)) != 5
    X = (
        case.X[keep]
        if not hasattr(case.X, "filter") or not hasattr(case.X, "schema")
        else case.X.filter(keep)
    )
    offsets = offsets_of(case)
    parts = [None if a is None else np.asarray(a)[keep] for a in (case.sample_weight, offsets)]
    with pytest.raises(axil.AxilError):
        axil.Explainer(case.model, X, np.asarray(case.y)[keep], *parts)


# Of alpha=1/3 a copy keeps six digits, which the refusal names.
COPIED = [case for case in chosen(5, GRID) if not re.search("all trees kept|alpha=1/3", case[1])]


@pytest.mark.parametrize(("library", "name"), mostly_slow(3, COPIED))
def test_pickled_and_copied_models_give_the_same_weights(library, name):
    case = case_of(library, name)
    expected = explainer_of(library, name)(case.X_new).weights
    copies = [copy.deepcopy(case.model)]
    with contextlib.suppress(pickle.PicklingError, AttributeError):  # a lambda among the settings
        copies.append(pickle.loads(pickle.dumps(case.model)))
    for model in copies:
        again = axil.Explainer(model, case.X, case.y, case.sample_weight, offsets_of(case))
        np.testing.assert_allclose(
            again(case.X_new).weights, expected, rtol=0, atol=1e-7
        )  # text keeps six digits


@pytest.mark.parametrize(("library", "name"), mostly_slow(4, GRID))
def test_copies_of_explainers_give_the_same_bits(library, name):
    explainer, rows = explainer_of(library, name), case_of(library, name).X_new
    copies = [copy.deepcopy(explainer)]
    if name != "neighbours by a function":  # no lambda can be pickled
        copies.append(pickle.loads(pickle.dumps(explainer)))
    for again in copies:
        np.testing.assert_array_equal(again(rows).weights, explainer(rows).weights)


@pytest.mark.parametrize(("library", "name"), chosen(3, GRID))
def test_sparse_weights_and_streams_agree_with_dense_ones(library, name):
    case = case_of(library, name)
    explainer = explainer_of(library, name)
    explanation = explainer(case.X_new)
    if explanation.weights.ndim == 2:
        again = explainer(case.X_new, sparse=True)
        assert sparse.issparse(again.weights)
        np.testing.assert_allclose(again.weights.toarray(), explanation.weights, rtol=0, atol=1e-15)
        np.testing.assert_allclose(again.predictions, explanation.predictions, atol=1e-12)
    streamed, whole = explainer.top(case.X_new, 4), explanation.top(4)
    columns = ["weight", "target", "contribution"]
    np.testing.assert_allclose(streamed[columns], whole[columns], atol=1e-12)
    assert len(explainer(case.X_new[:0])) == 0


# Settings whose answers follow from all training rows of a leaf, or from the order of rows: over Dask axil refuses them.
NEED_ALL_ROWS = {
    "row sampling",
    "training rows",
    "objective",
    "loss",
    "loss_function",
    "criterion",
    "categories",
}


@pytest.mark.parametrize("place", [place for place in PLACES if place != "memory"])
@pytest.mark.parametrize(
    ("library", "name"), mostly_slow(16, GRID, is_slow=lambda case: LARGE.search(case[1]))
)
def test_every_place_gives_the_answers_of_memory_or_refuses_by_name(library, name, place):
    """Partitions and devices add in another order: 1e-12 of the largest number."""
    case = case_of(library, name)
    if place == "dask" and sparse.issparse(case.X):
        pytest.skip("Dask arrays have dense blocks")
    data = (case.X, case.y, case.sample_weight, offsets_of(case))
    with dask.config.set(scheduler="synchronous"):
        try:
            explainer = PLACES[place](case.model, *data)
        except (axil.UnsupportedModelError, axil.UnsupportedQuestionError) as refusal:
            assert_refused_by_name(refusal, library, place)
            return
        assert_same_answers(explainer, explainer_of(library, name), case.X_new[:5], place)


def assert_refused_by_name(refusal, library, place):
    """Check that Dask refuses what needs all rows at once, and that only smoothers cannot be saved."""
    if place == "dask" and library != "smoother":
        assert refusal.setting in NEED_ALL_ROWS
    elif place == "file":
        assert refusal.question == "save"
    else:
        assert (place, library) == ("dask", "smoother")


def assert_same_answers(explainer, expected, X, place):
    """Check numbers and tables of rows against those of an explainer in memory."""
    explanation = explainer(X)
    explanation_expected = expected(X)
    scale = max(1.0, np.abs(explanation_expected.predictions).max())
    slack = {"weights": 1e-12, "intercepts": 1e-12 * scale, "predictions": 1e-12 * scale}
    for name, atol in slack.items():
        np.testing.assert_allclose(
            getattr(explanation, name), getattr(explanation_expected, name), rtol=0, atol=atol
        )
    np.testing.assert_array_equal(explanation.index, explanation_expected.index)
    for by in ("weight", "contribution"):
        top = explainer.top(X, 4, by=by)
        top_expected = expected.top(X, 4, by=by)
        assert list(top.columns) == list(top_expected.columns)
        sizes = (top[by].abs(), top_expected[by].abs())  # ties may come in another order
        np.testing.assert_allclose(*sizes, rtol=0, atol=1e-12 * scale)
    labels = np.arange(len(explanation_expected.targets)) % 3
    sums = explainer.group(X, partitioned(labels) if place == "dask" else labels)
    sums_expected = explanation_expected.group(labels)
    assert list(sums.columns) == list(sums_expected.columns)
    np.testing.assert_array_equal(sums["group"], sums_expected["group"])
    for name in ("weight", "contribution"):
        np.testing.assert_allclose(sums[name], sums_expected[name], rtol=0, atol=1e-12 * scale)
    ours, theirs = explainer.verification, expected.verification
    for name in ("n_rows", "n_trees", "compared", "tolerance"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.max_error <= ours.tolerance
    assert ours.leaf_error == pytest.approx(theirs.leaf_error, abs=1e-12)
