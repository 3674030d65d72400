"""Sums over groups of training rows, streamed, against those of a whole explanation."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import axil
from axil import InputError
from axil.output.tables import NOTES
from axil.reductions.groups import GroupFold
from tests.contract_models import case_of, explainer_of
from tests.methods.method_models import (
    CLASSES,
    GROUPS,
    MODELS,
    NEW,
    QUIET,
    X,
    Y,
    groups_for,
    labels_for,
    same,
    small_batches,
)


@pytest.mark.parametrize(("library", "name"), MODELS)
def test_streamed_groups_are_those_of_the_explanation(library, name, monkeypatch):
    case, explainer = case_of(library, name), explainer_of(library, name)
    groups = np.arange(len(case.y)) % 3
    expected = explainer(case.X_new).group(groups)
    small_batches(monkeypatch, explainer)
    pd.testing.assert_frame_equal(
        explainer.group(case.X_new, groups), expected, rtol=1e-9, atol=1e-10
    )
    assert len(explainer.group(case.X_new[:0], groups)) == 0
    with pytest.raises(InputError, match="groups has shape"):
        explainer.group(case.X_new, groups[1:])


def test_groups_of_every_kind_and_place(any_explainer, batches):
    found, whole = any_explainer.group(NEW, groups_for(any_explainer)), any_explainer(NEW)
    same(found, whole.group(GROUPS))
    assert found.attrs["axil"].startswith(NOTES[whole.kind])
    assert whole.group(GROUPS).attrs == found.attrs
    assert len(any_explainer.group(NEW.head(0), groups_for(any_explainer))) == 0


def test_derivatives_take_no_offsets():
    explainer = axil.Explainer(LogisticRegression(tol=1e-10).fit(X, CLASSES > 1), X, CLASSES > 1)
    with pytest.raises(InputError, match="init_score is not taken here"):
        explainer.group(NEW, GROUPS, init_score=np.ones(len(NEW)))


def test_offsets_are_in_no_weight():
    explainer = axil.Explainer(lgb.LGBMRegressor(**QUIET).fit(X, Y), X, Y)
    offsets = np.arange(len(NEW), dtype=float)
    same(
        explainer.group(NEW, GROUPS, init_score=offsets),
        explainer(NEW, init_score=offsets).group(GROUPS),
    )
    same(explainer.group(NEW, GROUPS, init_score=offsets), explainer.group(NEW, GROUPS))
    same(
        explainer.concentration(NEW, init_score=offsets),
        explainer(NEW, init_score=offsets).concentration(),
    )


def test_groups_come_by_size_and_small_ones_are_put_together(any_explainer, batches):
    """Ten groups of one row each, and the rows of three large ones."""
    labels = np.array([f"group {label}" for label in GROUPS], dtype=object)
    labels[:10] = [f"single {i}" for i in range(10)]
    labels[10] = "alone"
    groups = labels_for(any_explainer, labels)
    table = any_explainer.group(NEW, groups)
    size = "contribution"
    if "weight" in table:
        size = "weight"
    outputs = [name for name in ("query", "output") if name in table]
    for _, lines in table.groupby(outputs, sort=False):
        sizes = lines[size].abs().to_numpy()
        assert (np.diff(sizes) <= 1e-8 * sizes.max()).all()
    folded = any_explainer.group(NEW, groups, min_group_size=5)
    is_small = table["group"].astype(str).str.match("single|alone")
    expected = table[is_small].groupby(outputs, sort=False)[size].sum().to_numpy()
    is_other = (folded["group"] == "11 groups of few rows").to_numpy()
    np.testing.assert_allclose(folded[size][is_other], expected, rtol=1e-9, atol=1e-12)
    assert not folded["group"].astype(str).str.match("single|alone").any()
    same(folded, any_explainer(NEW).group(labels, min_group_size=5))
    with pytest.raises(InputError, match="min_group_size is 0"):
        any_explainer.group(NEW, groups, min_group_size=0)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((5, 5), (5, 5)),
        ((9, 1), (10,)),  # one row alone takes a large group along
        ((9, 2, 2, 1), (9, 5)),
        ((9, 2, 6), (9, 8)),
    ],
)
def test_no_group_is_smaller_than_asked_for(sizes, expected):
    codes = np.repeat(np.arange(len(sizes)), sizes)
    fold = GroupFold.of(codes, np.array([f"g{i}" for i in range(len(sizes))]), 5)
    assert tuple(np.bincount(fold.places[codes]).tolist()) == expected
    assert len(fold.names) == len(expected)


def test_contributions_to_logarithms_are_counted_from_their_mean():
    y = np.log(50 + np.abs(np.asarray(Y, dtype=float)))
    model = lgb.LGBMRegressor(**QUIET).fit(X, y)
    explainer = axil.Explainer(model, X, y, inverse_func=np.exp)
    weights = explainer(NEW).weights
    for table in (explainer.group(NEW, GROUPS), explainer(NEW).group(GROUPS)):
        for i, query in enumerate(NEW.index):
            lines = table[table["query"] == query].set_index("group")
            for group in lines.index:
                rows = np.asarray(GROUPS) == group
                expected = weights[i, rows] @ (y[rows] - y.mean())
                assert lines["contribution (log)"][group] == pytest.approx(expected, abs=1e-9)
                assert lines["factor"][group] == pytest.approx(np.exp(expected), rel=1e-9)
