"""Tables of unusual columns, explained wherever the library itself fits and predicts them."""

from contextlib import suppress
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from catboost import CatBoostRegressor
from lightgbm import LGBMRegressor
from scipy import sparse
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from xgboost import XGBRegressor

import axil
from axil import InputError
from tests.adapters.catboost_models import TAKES_NA

DRAWS = np.random.default_rng(5)
VALUES = DRAWS.integers(1, 9, (60, 3)).astype(
    float
)  # no zeros, which XGBoost takes for missing in sparse tables
Y = VALUES @ [1.0, 2.0, 3.0] + DRAWS.normal(size=60)
FRAME = pd.DataFrame(VALUES, columns=list("abc"))
TRUTHS = VALUES > 4

TABLES = {
    "nullable Int64": FRAME.astype("Int64"),
    "nullable Float64": FRAME.astype("Float64"),
    "nullable boolean": FRAME.assign(c=TRUTHS[:, 2]).astype({"c": "boolean"}),
    "Arrow": FRAME.astype(pd.ArrowDtype(pa.float64())),
    "Arrow whole": FRAME.astype(pd.ArrowDtype(pa.int64())),
    "Arrow truths": FRAME.assign(c=TRUTHS[:, 2]).astype({"c": pd.ArrowDtype(pa.bool_())}),
    "sparse columns": FRAME.astype(pd.SparseDtype("float64", 0.0)),
    "sparse whole columns": FRAME.astype("int64").astype(pd.SparseDtype("int64", 0)),
    "sparse missing columns": FRAME.astype(pd.SparseDtype("float64", np.nan)),
    "float16": FRAME.astype("float16"),
    "long double": FRAME.astype("longdouble"),
    "objects": FRAME.astype(object),
    "objects in numbered columns": FRAME.set_axis([5, 6, 7], axis=1).astype(object),
    "objects in an array": FRAME.to_numpy().astype(object),
    "array of objects with truths": FRAME.assign(c=TRUTHS[:, 2]).to_numpy(),
    "objects of two levels": FRAME.set_axis(
        pd.MultiIndex.from_product([["a"], list("xyz")]), axis=1
    ).astype(object),
    "two levels": FRAME.set_axis(pd.MultiIndex.from_product([["a"], list("xyz")]), axis=1),
    "sparse truths": sparse.csr_matrix(TRUTHS),
    "sparse whole": sparse.csr_matrix(VALUES.astype(np.int8)),
}
MODELS = {
    "lightgbm": lambda: LGBMRegressor(n_estimators=4, min_child_samples=5, verbose=-1, n_jobs=1),
    "xgboost": lambda: XGBRegressor(n_estimators=4, max_depth=2, n_jobs=1),
    "catboost": lambda: CatBoostRegressor(
        iterations=4, depth=2, verbose=0, allow_writing_files=False, thread_count=1
    ),
    "forest": lambda: RandomForestRegressor(4, max_depth=3, random_state=0),
    "hist": lambda: HistGradientBoostingRegressor(max_iter=4, min_samples_leaf=5),
    "neighbours": lambda: KNeighborsRegressor(3),
    "ridge": lambda: Ridge(),
}


@cache
def plain(name, kind=""):
    """Fitted on the same numbers in an array."""
    return MODELS[name]().fit(numbers(kind), Y)


def numbers(kind):
    if kind == "sparse truths":
        return TRUTHS.astype(float)
    if "truths" in kind or kind == "nullable boolean":
        return np.column_stack([VALUES[:, :2], TRUTHS[:, 2]])
    return VALUES


def head(table):
    return table.iloc[:5] if isinstance(table, pd.DataFrame) else table[:5]


def fitted(name, table):
    """The model fitted on the table and its predictions; None where the library does not take it."""
    try:
        model = MODELS[name]().fit(table, Y)
        return model, model.predict(head(table))
    except Exception:
        return None


@pytest.mark.filterwarnings("ignore")  # of the libraries, about columns that they convert
@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("name", MODELS)
def test_what_the_library_takes_is_taken(name, kind):
    found = fitted(name, TABLES[kind])
    if found is None:
        with suppress(
            InputError
        ):  # axil refuses it as well, or hands the same numbers over as the library takes them
            explained = axil.Explainer(plain(name, kind), numbers(kind), Y)(
                head(TABLES[kind])
            ).predictions
            np.testing.assert_allclose(
                explained, plain(name, kind).predict(numbers(kind)[:5]), rtol=1e-5
            )
        return
    model, expected = found
    explainer = axil.Explainer(model, TABLES[kind], Y)
    # Each library's own rounding of a prediction, float32 in XGBoost.
    np.testing.assert_allclose(explainer(head(TABLES[kind])).predictions, expected, rtol=1e-5)
    assert len(explainer.similar(head(TABLES[kind]), k=2)) == 10


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "table",
    [
        pl.DataFrame(VALUES, schema=list("abc")).cast(pl.Decimal(10, 2)),
        pa.table(
            {
                name: pa.array(own.astype(int)).cast(pa.decimal128(25, 2))
                for name, own in zip("abc", VALUES.T)
            }
        ),
    ],
    ids=["polars", "pyarrow"],
)
def test_decimals_are_numbers(name, table):
    explainer = axil.Explainer(plain(name), table, Y)
    np.testing.assert_allclose(
        explainer(table[:5]).predictions, plain(name).predict(VALUES[:5]), rtol=1e-5
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["lightgbm", "xgboost", *["catboost"] * TAKES_NA, "hist"])
def test_missing_values_of_nullable_columns_are_missing(name):
    gaps = DRAWS.random(VALUES.shape) < 0.2
    nullable, expected = FRAME.astype("Int64").mask(gaps), np.where(gaps, np.nan, VALUES)
    model = MODELS[name]().fit(nullable, Y)
    explainer = axil.Explainer(model, nullable, Y)
    np.testing.assert_allclose(explainer(nullable).predictions, model.predict(nullable), rtol=1e-5)
    twin = MODELS[name]().fit(pd.DataFrame(expected, columns=list("abc")), Y)
    np.testing.assert_allclose(
        explainer(nullable).predictions,
        twin.predict(pd.DataFrame(expected, columns=list("abc"))),
        rtol=1e-5,
    )


WHOLE = DRAWS.integers(1, 9, 60)
CLASSES = WHOLE % 2


def wide(values, as_table=False):
    """The values as polars' integers of 128 bits, which numpy does not have."""
    column = pl.Series("value", values).cast(pl.Int128)
    return column.to_frame() if as_table else column


@pytest.mark.skipif(not hasattr(pl, "Int128"), reason="polars has no such integers")
@pytest.mark.parametrize("as_table", [False, True])
@pytest.mark.parametrize(
    "model",
    [
        Ridge(),
        LGBMRegressor(n_estimators=3, verbose=-1),
        LGBMRegressor(n_estimators=3, verbose=-1, objective="poisson"),
        TransformedTargetRegressor(Ridge(), func=np.log, inverse_func=np.exp),
    ],
    ids=lambda model: type(model).__name__,
)
def test_targets_of_128_bits(model, as_table):
    model.fit(VALUES, WHOLE)
    explainer = axil.Explainer(model, VALUES, wide(WHOLE, as_table))
    np.testing.assert_array_equal(
        explainer.explain(VALUES).weights, axil.Explainer(model, VALUES, WHOLE)(VALUES).weights
    )
    if not isinstance(model, TransformedTargetRegressor):
        again = explainer.refit(add=(VALUES[:2], wide(WHOLE[:2], as_table)))
        assert len(again.index) == 62


@pytest.mark.skipif(not hasattr(pl, "Int128"), reason="polars has no such integers")
@pytest.mark.parametrize("as_table", [False, True])
def test_classes_and_offsets_of_128_bits(as_table):
    classifier = RandomForestClassifier(3, random_state=0).fit(VALUES, CLASSES)
    found = axil.Explainer(classifier, VALUES, wide(CLASSES, as_table))
    assert found.outputs.tolist() == [0, 1]
    model = LGBMRegressor(n_estimators=3, verbose=-1).fit(VALUES, Y, init_score=CLASSES)
    explainer = axil.Explainer(model, VALUES, Y, init_score=wide(CLASSES, as_table))
    assert len(explainer.refit(drop=[0]).index) == 59


def test_one_weight_for_all_rows():
    """scikit-learn takes one number for the weight of every row."""
    model = Ridge().fit(VALUES, Y, sample_weight=3.0)
    expected = axil.Explainer(model, VALUES, Y, sample_weight=np.full(60, 3.0))(VALUES[:4]).weights
    for weight in (3.0, 3, np.float32(3), np.array(3)):
        explainer = axil.Explainer(model, VALUES, Y, sample_weight=weight)
        np.testing.assert_array_equal(explainer(VALUES[:4]).weights, expected)
        assert len(explainer.refit(drop=[0]).index) == 59
    with pytest.raises(InputError, match="zero everywhere"):
        axil.Explainer(model, VALUES, Y, sample_weight=0.0)
