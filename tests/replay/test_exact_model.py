"""A proven model, and queries of it that ask the fitted model once."""

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

import axil
from axil.methods.method import verified_model
from axil.weights.engine import across, by_output
from tests.contract_models import case_of, offsets_of


def made(library="lightgbm", name="regressor"):
    case = case_of(library, name)
    return axil.Explainer(
        case.model, case.X, case.y, sample_weight=case.sample_weight, init_score=offsets_of(case)
    ), case


@pytest.fixture
def counted(monkeypatch):
    """An explainer with the calls of its model: which of them, and for how many rows."""
    explainer, case = made()
    adapter, calls = verified_model(explainer).adapter, []
    for name in ("predictions", "coordinates"):
        real = getattr(adapter, name)

        def ask(X, *rest, real=real, name=name):
            calls.append((name, X.shape[0]))
            return real(X, *rest)

        monkeypatch.setattr(adapter, name, ask)
    return explainer, case, calls


@pytest.mark.parametrize("question", ["influence", "what_if"])
def test_the_model_is_asked_once(counted, question, monkeypatch):
    """In batches too: they share what the whole is known to be."""
    explainer, case, calls = counted
    explainer.diagnostics.leverage()
    calls.clear()
    monkeypatch.setattr("axil.machine.memory.MOST_QUERIES", 7)
    n = case.X_new.shape[0]
    if question == "influence":
        explainer.influence(case.X_new, np.zeros(n))
    else:
        explainer.what_if(case.X_new, {explainer.index[0]: 1.0})
    assert sorted(calls) == [("coordinates", n), ("predictions", n)]


def test_queries_are_asked_by_one_thread(counted):
    explainer, case, calls = counted
    queries = verified_model(explainer).queries(case.X_new)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: queries.predictions, range(8)))
    assert all(one is found[0] for one in found)
    assert len(calls) == 1


def test_a_part_of_queries_is_what_it_would_be_by_itself():
    explainer, case = made("xgboost", "one_output_per_tree")
    proven, part = verified_model(explainer), slice(2, 5)
    offsets = np.arange(3.0 * case.X_new.shape[0]).reshape(-1, proven.targets.shape[1])[
        : case.X_new.shape[0]
    ]
    whole = proven.queries(case.X_new, offsets)
    early = whole[part]
    whole.coordinates, whole.predictions  # noqa: B018  known from here on
    for one in (early, whole[part]):
        alone = proven.queries(case.X_new[part], offsets[part])
        np.testing.assert_array_equal(one.coordinates, alone.coordinates)
        np.testing.assert_array_equal(one.predictions, alone.predictions)
        np.testing.assert_array_equal(one.labels, whole.labels[part])


def test_it_does_not_change():
    explainer, _ = made()
    before = verified_model(explainer)
    with pytest.raises(FrozenInstanceError):
        before.targets = None
    explainer.precompute()
    assert before.engines[0].leaf_matrix is None
    assert verified_model(explainer).engines[0].leaf_matrix is not None
    assert verified_model(explainer).kept is before.kept


def test_an_explainer_of_a_proven_model_answers_alike():
    explainer, case = made("catboost", "multi weighted")
    other = axil.Explainer._of(lambda: copy.deepcopy(verified_model(explainer)))
    np.testing.assert_array_equal(other(case.X_new).weights, explainer(case.X_new).weights)


@pytest.mark.parametrize(
    ("library", "name"), [("lightgbm", "regressor"), ("xgboost", "one_output_per_tree")]
)
def test_columns_go_to_the_engines_of_their_outputs(library, name):
    proven = verified_model(made(library, name)[0])
    whole = np.concatenate([own for _, own in by_output(proven.engines, proven.targets)], axis=1)
    np.testing.assert_array_equal(whole, proven.targets)
    np.testing.assert_array_equal(
        across(proven.engines, proven.targets, lambda engine, own: 2 * own), 2 * proven.targets
    )
