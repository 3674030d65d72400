"""Sums over groups of training rows, streamed, against those of a whole explanation."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import axil
from axil import InputError
from axil.output.tables import NOTES
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
