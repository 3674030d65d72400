"""LeafOrder: precomputed contributions have the bits of those that a walk through the rows computes."""

import copy
import pickle

import numpy as np
import pytest

import axil
from axil.contributions import leaf_order
from axil.errors import InputError
from axil.methods.method import verified_model
from tests.contributions.boosting_models import CASES, X_NEW, case_of, explain
from tests.contributions.more_models import MODELS

SOME = [*list(CASES)[::4], *MODELS]


def explainer_of(name, **limits):
    if name in CASES:
        return explain(case_of(name), **limits)
    return explain(MODELS[name]().fit(), **limits)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 50 rows, the last of them shorter, in which some leaves are dense."""
    monkeypatch.setattr(leaf_order, "ORDERED_ROWS", 50)


@pytest.mark.parametrize("name", SOME)
def test_precomputed_contributions_have_the_same_bits(name, small_blocks):
    explainer = explainer_of(name)
    prepared = copy.copy(explainer)
    assert prepared.precompute() is prepared
    assert verified_model(prepared).is_prepared
    assert not verified_model(explainer).is_prepared
    np.testing.assert_array_equal(
        prepared(X_NEW).contributions, explainer(X_NEW).contributions, strict=True
    )
    rows = prepared.top(X_NEW, 5)
    expected = explainer.top(X_NEW, 5)
    np.testing.assert_array_equal(rows["row"], expected["row"])
    np.testing.assert_array_equal(rows["contribution"], expected["contribution"])


def test_other_methods_read_precomputed_contributions(small_blocks):
    explainer = explainer_of(next(name for name in CASES if "multiclass" in name))
    expected = {
        "concentration": explainer.concentration(X_NEW),
        "aggregate": explainer.aggregate(X_NEW, [1.0, -1.0, 0.5]).contributions,
        "without": explainer.without(X_NEW, [3, 5]),
    }
    explainer.precompute()
    for batch in (1, 2, 3):
        parts = [part.contributions for part in explainer.iter(X_NEW, batch)]
        np.testing.assert_array_equal(
            np.concatenate(parts), explainer(X_NEW).contributions, strict=True
        )
    assert explainer.concentration(X_NEW).equals(expected["concentration"])
    assert explainer.without(X_NEW, [3, 5]).equals(expected["without"])
    np.testing.assert_array_equal(
        explainer.aggregate(X_NEW, [1.0, -1.0, 0.5]).contributions, expected["aggregate"]
    )


def test_entries_are_those_of_a_loop_over_leaves(small_blocks):
    model = verified_model(explainer_of("lightgbm binary").precompute())
    contributions = model.boosting.contributions
    (ordered,) = model.boosting.leaf_order.outputs
    leaves = contributions.walked.leaves
    (factors,) = contributions.factors(slice(0, leaves.shape[1]))
    n_dense = 0
    for block, first in enumerate(range(0, leaves.shape[1], 50)):
        rows = slice(first, min(first + 50, leaves.shape[1]))
        for tree in range(len(leaves)):
            for leaf in range(contributions.walked.fit.table.n_leaves[tree]):
                cell = contributions.starts[0][tree] + leaf
                entries = slice(ordered.ends[block, cell], ordered.ends[block, cell + 1])
                members = np.flatnonzero(leaves[tree, rows] == leaf)
                expected = factors[tree, rows]
                if len(members) > 0.6 * (rows.stop - rows.start):
                    n_dense += 1
                    expected = np.where(leaves[tree, rows] == leaf, expected, 0.0)
                    members = np.arange(rows.stop - rows.start)
                np.testing.assert_array_equal(ordered.rows[entries], members)
                np.testing.assert_array_equal(ordered.values[entries], expected[members])
    assert n_dense


def test_a_file_keeps_that_contributions_were_precomputed(tmp_path):
    case = case_of("lightgbm binary")
    explainer = explain(case).precompute()
    explainer.save(tmp_path / "explainer.npz")
    loaded = axil.load(tmp_path / "explainer.npz", case.model)
    assert verified_model(loaded).is_prepared
    again = pickle.loads(pickle.dumps(explainer))
    for other in (loaded, again):
        np.testing.assert_array_equal(other(X_NEW).contributions, explainer(X_NEW).contributions)


def test_memory_is_stated_before_it_is_taken():
    explainer = explainer_of("lightgbm binary", memory_limit="6 KiB")
    with pytest.raises(InputError, match=r"The contributions in leaf order would take \S+ KiB"):
        explainer.precompute()
    assert not verified_model(explainer).is_prepared


def test_scratch_keeps_the_entries_on_disk(tmp_path):
    explainer = explainer_of("lightgbm binary")
    on_disk = explainer_of("lightgbm binary", scratch=tmp_path).precompute()
    (ordered,) = verified_model(on_disk).boosting.leaf_order.outputs
    assert isinstance(ordered.values.base.base, np.memmap)
    np.testing.assert_array_equal(on_disk(X_NEW).contributions, explainer(X_NEW).contributions)
