"""What holds for every model that axil reads, of whatever library and with whatever settings."""

import contextlib
import copy
import pickle
import re
from dataclasses import dataclass

import dask
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import axil
import axil.adapters
from axil.methods.method import verified_model
from axil.structure import Structure
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
from tests.fits import explainer_of_fit
from tests.places import PLACES
from tests.reference import dense_weights, replay, replayed_steps
from tests.subsets import chosen, mostly_slow


def by_output(numbers, n_outputs=1):
    """Return the numbers (n, N) of each output, of (n, K, N); outputs may share them."""
    if numbers.ndim == 3:
        return np.moveaxis(numbers, 1, 0)
    return [numbers] * n_outputs


@dataclass(frozen=True)
class Output:
    """The structure of an output, the leaves of explained rows in it, and the targets of the training rows."""

    structure: Structure
    leaves: np.ndarray
    targets: np.ndarray
    number_in_structure: int

    @property
    def base(self):
        """The base of the output, which is the mean target where the structure has none."""
        if self.structure.initial is None:
            return np.average(self.targets, weights=self.structure.row_weights)
        return self.structure.initial[self.number_in_structure % len(self.structure.initial)]


def outputs_of(explainer, X):
    """Return the `Output` of each output of a model of trees; all have one structure, or each its own."""
    model = verified_model(explainer)
    leaves = model.adapter.coordinates(X)
    outputs = []
    for number, targets in enumerate(model.targets.T):
        has_own_trees = len(model.engines) > 1
        structure = model.engines[number if has_own_trees else 0].structure
        own_leaves = leaves if structure.columns is None else leaves[:, structure.columns]
        outputs.append(Output(structure, own_leaves, targets, 0 if has_own_trees else number))
    return outputs


@pytest.mark.parametrize(("library", "name"), GRID)
def test_weights_times_targets_are_the_predictions(library, name):
    """In and out of sample, to 1e-6 of the largest prediction where residuals are float32 and 1e-9 where they are not."""
    case = case_of(library, name)
    explainer = explainer_of(library, name)
    tolerance = verified_model(explainer).adapter.tolerance
    assert tolerance <= 2e-6  # XGBoost's own sum of many trees in float32 strays further than 1e-6
    for X, offsets in ((case.X, offsets_of(case)), (case.X_new, None)):
        explanation = explainer(X, init_score=offsets)
        if offsets is None:
            expected = predict(case, X)
        else:
            expected = predict_from(case, X, offsets)
        errors = explanation.predictions.reshape(expected.shape) - expected
        scale = max(np.abs(expected).max(), explainer.verification.scale)
        assert np.abs(errors).max() <= tolerance * scale
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
        assigned = np.empty(expected.shape[::-1], dtype=np.uint16)
        adapter.assign(X, assigned, 2)
        np.testing.assert_array_equal(assigned.T, expected)
        np.testing.assert_array_equal(adapter.coordinates(X), expected)


@pytest.mark.parametrize(("library", "name"), dense(TREES))
def test_engines_agree_with_the_dense_recursion(library, name):
    case = case_of(library, name)
    explainer = explainer_of(library, name)
    n_engines = len(verified_model(explainer).engines)
    expected = [
        dense_weights(output.structure, output.leaves)[0]
        for output in outputs_of(explainer, case.X_new)[:n_engines]
    ]
    prepared = copy.deepcopy(explainer).precompute()
    for either in (explainer, prepared):
        weights = by_output(either(case.X_new).weights)
        for weights_of_output, expected_of_output in zip(weights, expected):
            np.testing.assert_allclose(weights_of_output, expected_of_output, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("library", "name"), mostly_slow(2, TREES))
def test_perturbed_targets_move_predictions_by_the_weights(library, name):
    """Linearity by an independent replay: new targets through the model's own structure, tree by tree in NumPy."""
    case = case_of(library, name)
    explainer = explainer_of(library, name)
    outputs = outputs_of(explainer, case.X_new)
    weights = by_output(explainer(case.X_new).weights, len(outputs))
    changes = np.random.default_rng(0).normal(size=verified_model(explainer).targets.shape)
    for output, weights_of_output, change in zip(outputs, weights, changes.T):
        before = replay(output.structure, output.targets, output.leaves)
        after = replay(output.structure, output.targets + change, output.leaves)
        # Two predictions of the size of the targets are subtracted.
        slack = 1e-12 * np.abs(output.targets + change).max()
        np.testing.assert_allclose(weights_of_output @ change, after - before, rtol=0, atol=slack)


@pytest.mark.parametrize(("library", "name"), mostly_slow(2, TREES, share=1))
def test_steps_are_those_of_a_replay_and_add_up_to_the_predictions(library, name):
    case = case_of(library, name)
    explainer = explainer_of(library, name)
    X = case.X_new[:5]
    outputs = outputs_of(explainer, X)
    predictions = predict(case, X)
    steps = explainer.jacobian.gradient_contributions(X)
    assert steps.ndim == 2 + (len(outputs) > 1)
    scale = max(np.abs(predictions).max(), explainer.verification.scale)
    tolerance = verified_model(explainer).adapter.tolerance
    for output, steps_of_output, prediction in zip(outputs, by_output(steps), predictions.T):
        expected = replayed_steps(
            output.structure, output.targets, output.leaves, output.number_in_structure
        )
        np.testing.assert_allclose(steps_of_output, expected, rtol=0, atol=1e-12 * scale)
        total = steps_of_output.sum(axis=1) + output.structure.beta[-1] * output.base
        np.testing.assert_allclose(total, prediction, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize(
    "name", [name for name in smoother_models.CASES if not re.search("pipeline|cv|estimated", name)]
)
def test_smoothers_refitted_to_other_targets_move_by_the_weights(name):
    """A smoother with a fixed kernel chooses nothing by its targets, so even a refit moves exactly by the weights."""
    case = smoother_models.CASES[name]()
    change = np.random.default_rng(0).normal(size=case.y.shape)
    refitted = clone(case.model)
    if hasattr(case.model, "kernel_"):
        refitted.set_params(kernel=case.model.kernel_, optimizer=None)
    arguments = {} if case.sample_weight is None else {"sample_weight": case.sample_weight}
    refitted.fit(case.X, case.y + change, **arguments)
    expected = refitted.predict(case.X_new) - case.model.predict(case.X_new)
    explainer = explainer_of("smoother", name)
    change_by_output = np.reshape(change, (len(change), -1)).T
    weights = by_output(explainer(case.X_new).weights, len(change_by_output))
    moves = [weights[k] @ change_by_output[k] for k in range(len(change_by_output))]
    slack = verified_model(explainer).adapter.tolerance * np.abs(case.y).max()
    actual = np.stack(moves, axis=1).reshape(expected.shape)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=slack)


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
        # Not any row: a row that the fit holds out may have any target.
        row = int(np.abs(weights).reshape(-1, len(wrong)).max(axis=0).argmax())
        wrong[row] = wrong[row] + 0.1 * np.maximum(np.ptp(wrong, axis=0), 0.1)
    errors = (axil.ExactnessError,)
    if library == "catboost" and re.search("csr|csc|continued", name):
        # CatBoost itself may be the reason why leaves of these models disagree; axil names this first.
        errors += (axil.UnsupportedModelError,)
    with pytest.raises(errors):
        axil.Explainer(
            case.model, case.X, wrong, sample_weight=case.sample_weight, init_score=offsets_of(case)
        )


@pytest.mark.parametrize(("library", "name"), mostly_slow(6, GRID))
def test_fewer_rows_are_noticed(library, name):
    if name == "targets constant" and library == "lightgbm" and lightgbm_models.VERSION < (4, 6):
        pytest.skip("before LightGBM 4.6 a tree of one leaf does not record its number of rows")
    case = case_of(library, name)
    keep = np.arange(len(case.y)) != 5
    is_polars = hasattr(case.X, "filter") and hasattr(case.X, "schema")
    X = case.X.filter(keep) if is_polars else case.X[keep]
    per_row = (case.y, case.sample_weight, offsets_of(case))
    data = [None if values is None else np.asarray(values)[keep] for values in per_row]
    with pytest.raises(axil.AxilError):
        explainer_of_fit(case.model, X, *data)


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
        explainer = axil.Explainer(
            model, case.X, case.y, sample_weight=case.sample_weight, init_score=offsets_of(case)
        )
        weights = explainer(case.X_new).weights
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-7)  # text keeps six digits


@pytest.mark.parametrize(("library", "name"), mostly_slow(4, GRID))
def test_copies_of_explainers_give_the_same_bits(library, name):
    explainer = explainer_of(library, name)
    rows = case_of(library, name).X_new
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
    streamed = explainer.top(case.X_new, 4)
    columns = ["weight", "target", "contribution"]
    np.testing.assert_allclose(streamed[columns], explanation.top(4)[columns], atol=1e-12)
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
    verification = explainer.verification
    for name in ("n_rows", "n_trees", "compared", "tolerance"):
        assert getattr(verification, name) == getattr(expected.verification, name), name
    assert verification.max_error <= verification.tolerance
    assert verification.leaf_error == pytest.approx(expected.verification.leaf_error, abs=1e-12)


def other_target(case):
    """Return the label of a training row, and the target of another one."""
    targets = np.asarray(case.y)
    return targets[len(targets) // 2]


def bounds_around(expected):
    """Return the lowest and the highest target, and what lies a little beyond."""
    targets = np.asarray(expected.targets)
    return targets.min() - 1.0, targets.max() + 1.0


#: Methods with a number for every training row in their answer or argument. Each takes an
#: explainer, the one in memory, and the case.
NUMBER_FOR_EVERY_ROW = {
    "leverage": lambda e, expected, case: e.diagnostics.leverage(),
    "leave_one_out": lambda e, expected, case: e.diagnostics.leave_one_out(),
    "standard_error": lambda e, expected, case: e.diagnostics.standard_error(
        case.X_new[:5], sigma=1.0
    ),
    "sensitivity": lambda e, expected, case: e.jacobian.sensitivity(
        case.X_new[:5], expected.index[[0, 3]]
    ),
    "what_if": lambda e, expected, case: e.what_if(
        case.X_new[:5], {expected.index[0]: other_target(case)}
    ),
    "influence": lambda e, expected, case: e.influence(case.X[:9], case.y[:9]),
    "shapley": lambda e, expected, case: e.shapley(case.X[:9], case.y[:9]),
    "min_label_changes": lambda e, expected, case: e.min_label_changes(
        case.X_new[:2], float(np.mean(expected.targets)), bounds_around(expected)
    ),
    "find_label_issues": lambda e, expected, case: e.find_label_issues(),
    "similar": lambda e, expected, case: e.similar(case.X_new[:5], 3, suspects="mark"),
}


def outcome(ask, explainer, expected, case):
    """Return the answer of a method, or its refusal."""
    try:
        return ask(explainer, expected, case)
    except axil.AxilError as refusal:
        return refusal


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", [place for place in PLACES if place != "memory"])
@pytest.mark.parametrize(
    ("library", "name"), mostly_slow(48, GRID, is_slow=lambda case: LARGE.search(case[1]))
)
def test_every_place_has_the_numbers_of_all_training_rows(library, name, place):
    """What memory answers, a place answers alike to 1e-8, or refuses because of the place.

    Where a target changes the active set, partitions compute leaf values from sums, and memory from
    rows: 4e-9 apart for XGBoost with max_delta_step.
    """
    case = case_of(library, name)
    if place == "dask" and sparse.issparse(case.X):
        pytest.skip("Dask arrays have dense blocks")
    data = (case.X, case.y, case.sample_weight, offsets_of(case))
    expected = explainer_of(library, name)
    with dask.config.set(scheduler="synchronous"):
        try:
            explainer = PLACES[place](case.model, *data)
        except (axil.UnsupportedModelError, axil.UnsupportedQuestionError) as refusal:
            assert_refused_by_name(refusal, library, place)
            return
        for method, ask in NUMBER_FOR_EVERY_ROW.items():
            answer = outcome(ask, explainer, expected, case)
            answer_expected = outcome(ask, expected, expected, case)
            assert_same_outcome(answer, answer_expected, method, np.abs(expected.targets).max())


def assert_same_outcome(answer, expected, method, scale):
    """Check an answer, or a refusal, against the one of memory; ``scale`` is the largest target."""
    if isinstance(expected, Exception):
        assert type(answer) is type(expected), method
        return
    if isinstance(answer, axil.UnsupportedQuestionError):
        assert "partitions" in answer.reason, method
        return
    if isinstance(answer, Exception):
        raise answer
    if isinstance(expected, np.ndarray):
        assert_same_numbers(answer, expected, method, scale)
        return
    assert list(answer.columns) == list(expected.columns), method
    assert len(answer) == len(expected), method
    for column in expected.columns:
        if expected[column].dtype.kind == "f":  # ties may come in another order
            numbers, numbers_expected = np.sort(answer[column]), np.sort(expected[column])
            assert_same_numbers(numbers, numbers_expected, method, scale)


def assert_same_numbers(numbers, expected, method, scale):
    """Check numbers to 1e-8 of the largest, and 1e-12 of the largest target, nan included."""
    largest = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
    atol = 1e-8 * largest + 1e-12 * scale
    np.testing.assert_allclose(numbers, expected, rtol=1e-8, atol=atol, err_msg=method)
