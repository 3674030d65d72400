"""Comparables over Dask collections: the tables of one machine, whatever rows are allowed, with features read again."""

import dask
import dask.dataframe as dd
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import ExtraTreesClassifier

import axil
from tests.contract_models import case_of, explainer_of
from tests.dask.dask_models import QUERIES, WEIGHTS, X, Y, over_dask, partitioned, unequal
from tests.fits import explainer_of_fit

TARGETS = {"lightgbm": "regressor weighted scored", "xgboost": "one_output_per_tree weighted"}
TARGETS |= {"catboost": "multi weighted", "sklearn": "ExtraTreesRegressor outputs weighted"}


def same(found, expected):
    """Numbers agree to 1e-12 of the largest, as partitions add in another order; all else is equal."""
    assert list(found.columns) == list(expected.columns)
    for name in expected.columns:
        if expected[name].dtype.kind == "f":
            slack = 1e-12 * max(1.0, expected[name].abs().max())
            np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=slack)
        else:
            np.testing.assert_array_equal(found[name], expected[name])
    assert found.attrs["axil"] == expected.attrs["axil"]
    ours, theirs = (pd.DataFrame(frame.attrs.get("comparables", [])) for frame in (found, expected))
    pd.testing.assert_frame_equal(ours, theirs, rtol=1e-12, atol=1e-11)


@pytest.fixture(scope="module")
def frames():
    """Training rows with a property that is sold several times, or not known."""
    rows = X.assign(property=np.where(np.arange(len(X)) % 7 == 0, np.nan, np.arange(len(X)) % 60))
    model = lgb.LGBMRegressor(n_estimators=25, num_leaves=9, n_jobs=1, verbose=-1).fit(
        rows, Y, WEIGHTS
    )
    parts = [partitioned(values) for values in (rows, Y, WEIGHTS)]
    with dask.config.set(scheduler="synchronous"):
        return (
            rows,
            explainer_of_fit(model, *parts),
            axil.Explainer(model, rows, Y, sample_weight=WEIGHTS),
        )


@pytest.mark.parametrize(
    ("own", "theirs"),
    [
        ({}, {}),
        (
            {"adjust": True, "columns": ["bmi", "property"]},
            {"adjust": True, "columns": ["bmi", "property"]},
        ),
        ({"among": lambda rows: rows["sex"] > 0, "sign": "for"},) * 2,
        ({"among": lambda rows: rows["bmi"] >= rows["bmi"].max()},)
        * 2,  # of all rows, not of each partition's
        ({"distinct": "property", "adjust": True},) * 2,
        ({"distinct": 10, "sign": "for", "k": 80},) * 2,
        (
            {"among": partitioned(X["age"] > 0), "distinct": partitioned(X["sex"])},
            {"among": X["age"] > 0, "distinct": X["sex"]},
        ),
        ({"within": ("bmi", 0.02)},) * 2,
        ({"within": [("bmi", 0.03), (("age", "bp"), "3 km"), ("s1", "60%")], "k": 9},) * 2,
        (
            {
                "within": (3, 0.02),
                "distinct": "property",
                "among": lambda rows: rows["sex"] > 0,
                "adjust": True,
            },
        )
        * 2,
        ({"within": ("property", 9), "k": 200},) * 2,  # which some rows do not have
    ],
)
def test_the_tables_of_one_machine(frames, own, theirs):
    rows, explainer, whole = frames
    queries = rows.loc[QUERIES.index]
    same(explainer.similar(queries, **own), whole.similar(queries, **theirs))


@pytest.mark.parametrize("library", TARGETS)
def test_every_library(library):
    case = case_of(library, TARGETS[library])
    queries = case.X_new[:4]
    found, expected = (
        one.similar(queries, 3, adjust=True)
        for one in (over_dask(case), explainer_of(library, TARGETS[library]))
    )
    same(found, expected)


def test_pushes():
    rows, y = load_breast_cancer(return_X_y=True, as_frame=True)
    model = lgb.LGBMClassifier(n_estimators=8, num_leaves=6, verbose=-1, n_jobs=1).fit(rows, y)
    explainer = axil.Explainer(model, partitioned(rows), partitioned(y))
    whole, queries = axil.Explainer(model, rows, y), rows.iloc[[3, 200]]
    same(
        explainer.similar(queries, 4, columns=["mean area"]),
        whole.similar(queries, 4, columns=["mean area"]),
    )
    chosen = {"among": lambda frame: frame["mean area"] > 500, "sign": "for"}
    same(explainer.similar(queries, 4, **chosen), whole.similar(queries, 4, **chosen))
    with pytest.raises(axil.UnsupportedQuestionError, match="adjust"):
        explainer.similar(queries, adjust=True)


def test_offsets_of_pushes():
    rows, y = load_breast_cancer(return_X_y=True, as_frame=True)
    model = lgb.LGBMClassifier(n_estimators=8, num_leaves=6, verbose=-1, n_jobs=1).fit(rows, y)
    explainer = axil.Explainer(model, partitioned(rows), partitioned(y))
    whole, queries, offsets = (
        axil.Explainer(model, rows, y),
        rows.iloc[[3, 200]],
        np.array([0.5, -2.0]),
    )
    same(
        *(
            one.similar(queries, 4, columns=["mean area"], init_score=offsets)
            for one in (explainer, whole)
        )
    )
    same(
        *(
            one.similar(queries, 4, columns=["mean area"], within=("mean area", 90.0))
            for one in (explainer, whole)
        )
    )


def test_one_line_for_all_classes():
    rows, y = load_breast_cancer(return_X_y=True, as_frame=True)
    words = y.map({0: "no", 1: "yes"})
    model = ExtraTreesClassifier(6, min_samples_leaf=4, random_state=0).fit(rows, words)
    explainer = axil.Explainer(model, partitioned(rows), partitioned(words))
    whole, queries = axil.Explainer(model, rows, words), rows.iloc[[3, 200]]
    for per_class in (True, False):
        same(
            *(
                one.similar(queries, 4, columns=["mean area"], per_class=per_class)
                for one in (explainer, whole)
            )
        )


def test_days_within_a_distance():
    rows = X.assign(day=np.arange(len(X)) * 10.0)
    model = lgb.LGBMRegressor(n_estimators=5, n_jobs=1, verbose=-1).fit(rows, Y)
    explainer, whole = (
        axil.Explainer(model, partitioned(rows), partitioned(Y)),
        axil.Explainer(model, rows, Y),
    )
    queries = rows.iloc[[0, 17, 441]]
    for distance in (5, 400.0, 1e9):
        same(
            *(
                one.similar(queries, 6, columns=["day"], within=("day", distance))
                for one in (explainer, whole)
            )
        )


def test_many_queries_and_none(frames, monkeypatch):
    rows, explainer, whole = frames
    monkeypatch.setattr(
        "axil.dask.exact_model.SENT_BYTES", 8 * 9 * 25 * 100
    )  # a hundred queries at a time
    same(
        explainer.similar(rows, 2, columns=["bmi"], adjust=True),
        whole.similar(rows, 2, columns=["bmi"], adjust=True),
    )
    assert len(explainer.similar(rows.iloc[:0], 2)) == 0


def test_rows_that_change_are_noticed(frames):
    rows, _, _ = frames
    model, calls = lgb.LGBMRegressor(n_estimators=5, n_jobs=1, verbose=-1).fit(rows, Y), []

    def part(bounds):
        calls.append(bounds)
        own = rows.iloc[slice(*bounds)]
        return own if len(calls) <= 2 else own[::-1].set_axis(own.index)

    explainer = axil.Explainer(
        model,
        dd.from_map(part, [(0, 200), (200, len(rows))], meta=rows.iloc[:0]),
        partitioned(Y, (200, len(Y) - 200)),
    )
    calls.extend([None] * 2)
    with pytest.raises(axil.InputError, match="not those that the explainer was made of"):
        explainer.similar(rows.iloc[:3])


FIRST = unequal(len(X))[0]
ORDER = [*range(FIRST)[::-1], *range(FIRST, len(X))]  # within the first partition
BAD = {
    "in memory": ({"among": np.ones(len(X), dtype=bool)}, "among is a numpy"),
    "other partitions": (
        {"among": partitioned(X["age"] > 0, (42, 400))},
        "among has 2 partitions and X has 5",
    ),
    "numbers": ({"among": partitioned(X["age"])}, "In partition .*numbers or text"),
    "none": ({"among": lambda rows: rows["age"] > 1e9}, "allows none of the 442 training rows"),
    "raises": ({"among": lambda rows: rows["nothing"]}, "among raised KeyError"),
    "no column": ({"distinct": "nothing"}, "distinct names 'nothing'"),
    "a list": ({"distinct": list(range(len(X)))}, "distinct is a builtins.list"),
    "another order": ({"among": partitioned((X["age"] > 0).iloc[ORDER])}, "another order"),
    "sign": ({"sign": "negative"}, "sign is 'negative'"),
    "no distance": ({"within": "bmi"}, "within is 'bmi'; expected a column and a distance"),
    "no such column": ({"within": ("bim", 1)}, r"within names 'bim'.*Did you mean 'bmi'"),
    "below zero": ({"within": ("bmi", -1)}, "within has the distance -1"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(frames, what):
    rows, explainer, _ = frames
    options, message = BAD[what]
    with pytest.raises(axil.InputError, match=message):
        explainer.similar(rows.iloc[:2], 3, **options)


def test_a_column_of_single_precision_is_measured_as_in_memory():
    years = np.repeat([2000.1, 2000.2, 2000.3], 40).astype(np.float32)
    rows = pd.DataFrame({"size": np.random.default_rng(0).normal(size=120), "year": years})
    y = rows["size"] + years
    model = lgb.LGBMRegressor(n_estimators=5, num_leaves=4, n_jobs=1, verbose=-1).fit(rows, y)
    both = axil.Explainer(model, partitioned(rows), partitioned(y)), axil.Explainer(model, rows, y)
    queries = pd.DataFrame({"size": [0.1, 0.2], "year": [2000.2, 2000.2]})
    same(
        *(one.similar(queries, 100, within=("year", 0.1)) for one in both)
    )  # to the digits of single precision, all rows
    for one in both:
        with pytest.raises(
            axil.InputError, match="year of the training rows holds numbers, and asof dates"
        ):
            one.similar(queries, 5, within="year", asof=np.datetime64("2001-01-01"))


@pytest.mark.parametrize("rule", ["variance", "error", "improved"])
@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_trees_count_by_the_same_rules(kind, rule, frames):
    if kind == "numbers":
        rows, over, here = frames
        queries = rows.iloc[[5, 17, 200]]
    else:
        queries, dear = QUERIES, (Y.median() < Y).astype(int)
        model = lgb.LGBMClassifier(n_estimators=8, num_leaves=5, n_jobs=1, verbose=-1).fit(X, dear)
        here = axil.Explainer(model, X, dear)
        with dask.config.set(scheduler="synchronous"):
            over = axil.Explainer(model, partitioned(X), partitioned(dear))
    for own in ({}, {"sign": "for"}):
        with dask.config.set(scheduler="synchronous"):
            found = over.similar(queries, 4, columns=[], by="leaves", tree_weights=rule, **own)
        expected = here.similar(queries, 4, columns=[], by="leaves", tree_weights=rule, **own)
        np.testing.assert_allclose(found["similarity"], expected["similarity"], rtol=1e-10)
        assert found.attrs["axil"] == expected.attrs["axil"]
