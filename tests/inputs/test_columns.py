"""Labels of training rows: given, or by the name of a column of X_train."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from lightgbm import LGBMClassifier, LGBMRegressor
from scipy import sparse
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import Ridge

import axil
from axil import InputError

DRAWS = np.random.default_rng(0)
N = 60
FRAME = pd.DataFrame(
    {
        "region": DRAWS.integers(0, 3, N),
        "size": DRAWS.normal(size=N),
        "number": DRAWS.permutation(N) + 100,
    }
)
Y = FRAME["size"].to_numpy() + FRAME["region"].to_numpy()
NAMES = [f"house {i}" for i in range(N)]
TABLES = {
    "pandas": FRAME,
    "polars": pl.DataFrame(FRAME.to_dict("list")),
    "numpy": FRAME.to_numpy(dtype=float),
}
SETTINGS = {"n_estimators": 4, "min_child_samples": 5, "verbose": -1}


def exact(table, **more):
    """The model knows the names of the columns, whatever the table."""
    return axil.Explainer(LGBMRegressor(**SETTINGS).fit(FRAME, Y), table, Y, **more)


def additive(table, **more):
    return axil.Explainer(LGBMClassifier(**SETTINGS).fit(FRAME, Y > 1), table, Y > 1, **more)


@pytest.mark.parametrize("kind", [exact, additive])
@pytest.mark.parametrize("table", TABLES)
def test_a_column_by_name_stands_for_its_values(kind, table):
    X = TABLES[table]
    explainer, region = kind(X), np.asarray(X)[:, 0].astype(float if table == "numpy" else int)
    explanation = explainer(X[:3])
    answers = [
        lambda labels: explainer.group(X[:3], labels),
        explanation.group,
        lambda labels: explanation.to_html(groups=labels),
        lambda labels: explainer.to_html(
            X[:3], groups=labels, sigma=1.0 if kind is exact else None
        ),
    ]
    if kind is exact:
        answers += [
            lambda labels: explainer.removal(X[:3], groups=labels),
            lambda labels: explainer.shapley(X[:9], Y[:9], groups=labels),
            lambda labels: explainer.min_label_changes(X[:3], 2.0, 0.5, groups=labels),
        ]
    for ask in answers:
        found, expected = ask("region"), ask(region)
        assert np.array_equal(
            np.asarray(found).astype(str), np.asarray(expected).astype(str)
        )  # nan too


@pytest.mark.parametrize("kind", [exact, additive])
@pytest.mark.parametrize("table", TABLES)
def test_index_labels_the_rows_of_any_table(kind, table, tmp_path):
    X = TABLES[table]
    explainer = kind(X, index=NAMES)
    assert list(explainer.index) == NAMES
    assert set(explainer.top(X[:2], 3)["row"]) <= set(NAMES)
    pair = [NAMES[3], NAMES[7]]
    assert np.array_equal(
        explainer.without(X[:2], pair)["after"], kind(X).without(X[:2], [3, 7])["after"]
    )
    explainer.save(tmp_path / "labelled.npz")
    model = (LGBMRegressor if kind is exact else LGBMClassifier)(**SETTINGS)
    loaded = axil.load(tmp_path / "labelled.npz", model.fit(FRAME, Y if kind is exact else Y > 1))
    assert list(loaded.index) == NAMES
    assert list(kind(X, index="number").index) == list(FRAME["number"])
    own = np.array(NAMES)
    explainer = kind(X, index=own)
    own[:] = "changed"
    assert list(explainer.index) == NAMES


@pytest.mark.parametrize("kind", [exact, additive])
def test_labels_of_two_levels_name_rows(kind):
    pairs = pd.MultiIndex.from_arrays([[f"p{i % 7}" for i in range(N)], range(N)])
    found = kind(FRAME.set_axis(pairs)).without(FRAME[:2], [pairs[3], pairs[7]])
    pd.testing.assert_frame_equal(found, kind(FRAME).without(FRAME[:2], [3, 7]))


def test_labels_of_rows_whatever_the_kind():
    for model in (Ridge().fit(FRAME, Y), LGBMClassifier(**SETTINGS).fit(FRAME, Y > 1)):
        targets = Y if isinstance(model, Ridge) else Y > 1
        assert list(axil.Explainer(model, TABLES["numpy"], targets, index=NAMES).index) == NAMES


def test_what_is_no_column_is_refused_by_name(tmp_path):
    explainer = exact(FRAME)
    with pytest.raises(
        InputError,
        match=r"groups is 'postcode', which is no column of X_train; expected one of \['region'",
    ):
        explainer.group(FRAME[:2], "postcode")
    with pytest.raises(InputError, match="index is 'postcode', which is no column"):
        exact(FRAME, index="postcode")
    with pytest.raises(InputError, match=r"index has shape \(59,\); expected \(60,\)"):
        exact(FRAME, index=NAMES[1:])
    explainer.save(tmp_path / "explainer.npz")
    loaded = axil.load(tmp_path / "explainer.npz", LGBMRegressor(**SETTINGS).fit(FRAME, Y))
    with pytest.raises(InputError, match=r"training rows that are not at hand.*X_train=X_train"):
        loaded.group(FRAME[:2], "region")
    with pytest.raises(InputError, match="training rows that are not at hand"):
        loaded(FRAME[:2]).group("region")


@pytest.mark.parametrize("kind", ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"])
def test_sparse_rows_of_any_kind_are_compared(kind):
    rows = getattr(sparse.random(N, 4, 0.5, random_state=0, format="csr"), f"to{kind}")()
    model = GradientBoostingClassifier(n_estimators=3).fit(rows.tocsr(), Y > 1)
    for explainer in (
        axil.Explainer(model, rows, Y > 1),
        axil.Explainer(Ridge().fit(rows.tocsr(), Y), rows, Y),
    ):
        assert len(explainer.similar(rows, k=1)) == N


@pytest.mark.skipif(not hasattr(pl, "Int128"), reason="polars has no such integers")
def test_integers_of_128_bits():
    table = TABLES["polars"].with_columns(pl.col("number").cast(pl.Int128))
    found = exact(table).similar(table[:3], k=1)
    assert set(found["number (row)"]) <= set(FRAME["number"])
