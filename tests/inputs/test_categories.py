"""Categories of frames that were read separately: the numbers of the fit, and a word about values that no training row has."""

import warnings

import catboost
import lightgbm as lgb
import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xgboost as xgb
from sklearn.ensemble import HistGradientBoostingRegressor

import axil
from axil import inputs
from axil.inputs.categories import align_categories
from axil.methods.method import verified_model

RNG = np.random.default_rng(0)
N = 150
ZIPS = np.array(["98001", "98002", "98003", "98004", "98005"])
CODES = RNG.integers(0, 5, N)
SIZE = RNG.normal(size=N)
Y = 10.0 * np.array([3, 1, 5, 2, 4])[CODES] + SIZE
LIGHT = {
    "n_estimators": 5,
    "num_leaves": 6,
    "min_child_samples": 5,
    "min_data_per_group": 2,
    "cat_smooth": 1,
    "verbose": -1,
}
KEPT = tuple(int(part) for part in xgb.__version__.split(".")[:2]) >= (
    3,
    1,
)  # whether models keep their categories


def frame(codes, size, categories=None, kind="str", names=ZIPS):
    values = pd.Series(names[codes], dtype=object if kind == "object" else None)
    if kind == "object":
        listed = pd.Index(sorted(set(values)) if categories is None else categories, dtype=object)
        return pd.DataFrame({"zip": pd.Categorical(values, categories=listed), "size": size})
    return pd.DataFrame({"zip": pd.Categorical(values, categories=categories), "size": size})


def models():
    return {
        "lightgbm": lgb.LGBMRegressor(**LIGHT),
        "lightgbm poisson": lgb.LGBMRegressor(**LIGHT, objective="poisson"),
        "xgboost": xgb.XGBRegressor(
            n_estimators=5, max_depth=3, enable_categorical=True, max_cat_to_onehot=1, n_jobs=1
        ),
    }


SEPARATE = {
    "fewer": {"categories": None},
    "another order": {"categories": ZIPS[::-1].tolist()},
    "more that no row has": {"categories": ["00000", *ZIPS.tolist(), "99999"]},
    "objects": {"kind": "object"},
    "objects in another order": {"kind": "object", "categories": ZIPS[::-1].tolist()},
}


@pytest.mark.parametrize("name", models())
@pytest.mark.parametrize("how", SEPARATE)
def test_frames_that_were_read_separately(name, how):
    """Rows of two codes alone, which are 0 and 1 in their own frame and 1 and 3 in the fit."""
    X, some = frame(CODES, SIZE), np.isin(CODES, [1, 3])
    model = models()[name].fit(X, Y)
    explainer = axil.Explainer(model, X, Y)
    asked = frame(CODES[some], SIZE[some], **SEPARATE[how])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = explainer(asked)
    expected = explainer(X)[np.flatnonzero(some)]
    np.testing.assert_allclose(found.predictions, expected.predictions, rtol=1e-12)
    np.testing.assert_allclose(found.contributions, expected.contributions, rtol=1e-12)


@pytest.mark.parametrize("name", models())
@pytest.mark.parametrize("how", SEPARATE)
def test_training_rows_that_were_read_again(name, how):
    X = frame(CODES, SIZE)
    model = models()[name].fit(X, Y)
    if name == "xgboost" and not KEPT and how not in ("fewer", "objects"):
        pytest.skip("the model does not know which number a category has")
    again = axil.Explainer(model, frame(CODES, SIZE, **SEPARATE[how]), Y)
    np.testing.assert_allclose(
        again(X).predictions, axil.Explainer(model, X, Y)(X).predictions, rtol=1e-12
    )


@pytest.mark.parametrize("name", models())
@pytest.mark.parametrize("how", SEPARATE)
def test_rows_of_another_frame_are_added(name, how):
    X, some = frame(CODES, SIZE), np.isin(CODES, [1, 3])
    explainer = axil.Explainer(models()[name].fit(X, Y), X, Y)
    more = Y[some] + 5.0
    found = explainer.refit(add=(frame(CODES[some], SIZE[some], **SEPARATE[how]), more))
    expected = explainer.refit(add=(X[some], more))
    np.testing.assert_allclose(found(X).predictions, expected(X).predictions, rtol=1e-12)
    assert list(verified_model(found).features["zip"].cat.categories)[:5] == ZIPS.tolist()


def test_two_models_of_frames_with_other_categories_are_compared():
    """The new data have a zip code that the old ones lack, and the old ones one that is gone."""
    names = np.array([*ZIPS, "98006"])
    codes = np.where(np.arange(N) % 10 == 0, 5, CODES)
    old = axil.Explainer(
        lgb.LGBMRegressor(**LIGHT).fit(frame(CODES, SIZE), Y), frame(CODES, SIZE), Y
    )
    kept = codes != 2
    X_new = frame(codes, SIZE, kind="object", names=names)[kept]
    X_new["zip"] = X_new["zip"].cat.remove_unused_categories()
    new = axil.Explainer(lgb.LGBMRegressor(**LIGHT).fit(X_new, Y[kept]), X_new, Y[kept])
    asked = frame(CODES[:20], SIZE[:20])
    with pytest.warns(axil.UnseenCategoryWarning) as said:
        found = axil.compare(old, new, asked)
    assert (
        {str(one.message).split(". ")[0] for one in said}
        == {
            "Column 'zip' of the rows added has a value that no training row has: '98006'",
            "Column 'zip' of X has a value that no training row has: '98003'",  # of which the new model knows nothing
        }
    )
    table = found.table()
    np.testing.assert_allclose(table.iloc[:, 4:].sum(axis=1), table["change"], atol=1e-9)
    np.testing.assert_allclose(table["before"], old.model.predict(asked), rtol=1e-6)
    np.testing.assert_allclose(table["after"], new.model.predict(asked), rtol=1e-6)
    same = np.flatnonzero(kept & (codes != 5))
    assert (found.rows.status[same] == 0).all()  # kept: equal values count, whatever their numbers


def unseen_models():
    text = {
        "cat_features": ["zip"],
        "iterations": 5,
        "depth": 3,
        "verbose": 0,
        "allow_writing_files": False,
    }
    own = {
        "catboost": (
            catboost.CatBoostRegressor(**text, one_hot_max_size=10),
            "no test for a single category finds it",
        ),
        "histograms": (
            HistGradientBoostingRegressor(
                max_iter=5, categorical_features="from_dtype", min_samples_leaf=5
            ),
            "scikit-learn takes such a value for a missing one",
        ),
    }
    return {
        name: (model, "LightGBM takes such a value for a missing one")
        for name, model in models().items()
        if name != "xgboost"
    } | own


@pytest.mark.parametrize("name", unseen_models())
def test_a_category_that_no_training_row_has_is_reported(name):
    model, action = unseen_models()[name]
    X = frame(CODES, SIZE)
    explainer = axil.Explainer(model.fit(X, Y), X, Y)
    asked = pd.DataFrame({"zip": pd.Categorical(["98001", "10001", "10002"]), "size": SIZE[:3]})
    with pytest.warns(axil.UnseenCategoryWarning) as said:
        found = explainer(asked)
    assert [str(one.message) for one in said] == [
        f"Column 'zip' of X has 2 values that no training row has: '10001', '10002'. {verified_model(explainer).adapter.unseen}"
    ]
    assert action in str(said[0].message)
    np.testing.assert_allclose(
        found.predictions,
        np.log(model.predict(asked)) if "poisson" in name else model.predict(asked),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explainer(asked[:1])
        explainer(asked.assign(zip=pd.Categorical([None, "98001", "98002"]))[1:])


def test_columns_may_have_numbers_for_names():
    X = frame(CODES, SIZE).set_axis([1, 0], axis=1)
    explainer = axil.Explainer(lgb.LGBMRegressor(**LIGHT).fit(X, Y), X, Y)
    with pytest.warns(axil.UnseenCategoryWarning, match=r"Column 1 of X has a value .*: '10001'"):
        explainer(frame([0], [1.0], names=np.array(["10001"])).set_axis([1, 0], axis=1))


def test_a_loaded_explainer_knows_the_categories_of_its_model(tmp_path):
    X = frame(CODES, SIZE)
    model = lgb.LGBMRegressor(**LIGHT).fit(X, Y)
    axil.Explainer(model, X, Y).save(tmp_path / "zips.npz")
    again = axil.load(tmp_path / "zips.npz", model)
    with pytest.warns(axil.UnseenCategoryWarning, match="'10001'"):
        again(frame([0], [1.0], names=np.array(["10001"])))


@pytest.mark.skipif(not KEPT, reason="XGBoost takes it")
def test_xgboost_refuses_an_unseen_category_and_axil_says_which():
    X = frame(CODES, SIZE)
    explainer = axil.Explainer(models()["xgboost"].fit(X, Y), X, Y)
    asked = pd.DataFrame({"zip": pd.Categorical(["98001", "10001", "10001"]), "size": SIZE[:3]})
    with pytest.raises(
        axil.InputError, match=r"Column 'zip' holds the category '10001' \(2 rows\)"
    ):
        explainer(asked)


def test_values_keep_their_places_and_have_the_numbers_of_the_other_frame():
    like, asked = (
        nw.from_native(frame(CODES, SIZE, categories), eager_only=True)
        for categories in (None, ZIPS[::-1])
    )
    aligned = align_categories(asked, like).to_native()["zip"]
    assert aligned.tolist() == ZIPS[CODES].tolist()
    np.testing.assert_array_equal(aligned.cat.codes, CODES)


def test_frames_of_other_libraries_are_stacked():
    enum = pl.DataFrame({"zip": ["a", "b"]}).with_columns(pl.col("zip").cast(pl.Enum(["b", "a"])))
    other = pl.DataFrame({"zip": ["c", "a"]}).with_columns(pl.col("zip").cast(pl.Enum(["a", "c"])))
    stacked = inputs.stack_rows(enum, other)
    assert stacked["zip"].to_list() == ["a", "b", "c", "a"]
    assert stacked["zip"].dtype.categories.to_list() == ["b", "a", "c"]
    first, second = (
        pa.table({"zip": pa.array(values).dictionary_encode()})
        for values in (["a", "b"], ["c", "a"])
    )
    assert inputs.stack_rows(first, second)["zip"].to_pylist() == ["a", "b", "c", "a"]


def test_categories_keep_their_numbers_in_frames_of_polars():
    """As XGBoost before 3.1 needs them, which takes the numbers of each frame."""
    like, asked = (
        nw.from_native(
            pl.DataFrame({"zip": values}).with_columns(pl.col("zip").cast(pl.Categorical))
        )
        for values in (["c", "a", "b"], ["d", "b"])
    )
    aligned = align_categories(asked, like, not_only_pandas=True).to_native()
    assert aligned["zip"].to_list() == ["d", "b"]
    assert aligned["zip"].to_physical().to_list() == [3, 1]


def test_a_frame_of_the_same_categories_is_not_copied():
    first, second = (nw.from_native(frame(CODES, SIZE), eager_only=True) for _ in range(2))
    assert align_categories(second, first) is second
