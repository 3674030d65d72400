"""The order of arguments: X first, and the earlier order where only one of the two can be a table."""

import inspect
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from lightgbm import LGBMClassifier, LGBMRegressor

import axil

DRAWS = np.random.default_rng(0)
X = DRAWS.normal(size=(60, 3))
Y = X[:, 0] + DRAWS.normal(size=60)
NEW = X[:4] + 0.1
PAIRS = pd.MultiIndex.from_arrays([[f"p{i % 7}" for i in range(60)], range(60)])


def exact(X_train=X):
    return axil.Explainer(LGBMRegressor(n_estimators=4, verbose=-1).fit(X, Y), X_train, Y)


def additive():
    classes = (Y > 0).astype(int)
    return axil.JacobianExplainer(LGBMClassifier(n_estimators=4, verbose=-1).fit(X, classes), X, classes)


ASKED = {
    "what_if": ("targets", {3: 1.0, 7: 0.0}),
    "without": ("rows", [3, 7]),
    "reach": ("rows", [3, 7]),
}


@pytest.mark.parametrize("table", [np.asarray, pd.DataFrame, pl.DataFrame, np.ndarray.tolist])
@pytest.mark.parametrize("question", ASKED)
def test_tables_come_first_and_the_earlier_order_is_read_too(question, table):
    other, asked = ASKED[question]
    for explainer in (exact(), *([] if question == "reach" else [additive()])):
        ask, new = getattr(explainer, question), table(NEW)
        first, *others = ask(new, asked), ask(asked, new), ask(asked, X=new), ask(**{other: asked}, X=new)
        others.append(ask(new, **{other: asked}))
        assert list(inspect.signature(ask).parameters)[:2] == ["X", other]
        for found in others:
            assert np.array_equal(np.asarray(found), np.asarray(first))


def test_labels_that_are_pairs_are_no_table():
    explainer = exact(pd.DataFrame(X, index=PAIRS))
    rows = [PAIRS[3], PAIRS[7]]
    first = explainer.without(NEW, rows)
    pd.testing.assert_frame_equal(explainer.without(rows, NEW), first)
    pd.testing.assert_frame_equal(exact().without(NEW, [3, 7]), first)


def test_a_warning_names_the_line_that_asked():
    model = LGBMRegressor(n_estimators=4, reg_alpha=1.0, verbose=-1).fit(X, Y)
    explainer = axil.Explainer(model, X, Y)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        explainer.what_if(NEW, {3: 1000.0})
    assert [one.filename for one in found] == [__file__]
