"""Two models compared: the parts of every change against a replay written by hand, and what cannot be compared."""

import re

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge

import axil
from axil import InputError, UnsupportedQuestionError
from axil.methods.method import verified_model
from tests.notebooks import table_cells

RNG = np.random.default_rng(3)
ALL = pd.DataFrame(
    RNG.normal(size=(70, 3)), columns=["a", "b", "c"], index=[f"r{i}" for i in range(70)]
)
TARGETS = (4 * ALL["a"] + np.sin(3 * ALL["b"]) + RNG.normal(size=70) / 3 + 20).rename("y")
OLD = ALL.index[:55]  # rows 55 to 69 are added
NEW = ALL.index[8:]  # rows 0 to 7 are removed
CHANGED = ["r10", "r20", "r30"]
Y_NEW = TARGETS.copy()
Y_NEW[CHANGED] += 5.0
X = ALL.iloc[[0, 12, 33, 60]] + 0.05
SETTINGS = {
    "n_estimators": 6,
    "num_leaves": 4,
    "min_child_samples": 5,
    "learning_rate": 0.3,
    "verbose": -1,
    "n_jobs": 1,
}
PARTS = ["targets changed", "rows added", "rows removed", "rows kept", "base", "new splits"]


def explainers(make, y=TARGETS, y_new=Y_NEW):
    found = []
    for labels, own in ((OLD, y), (NEW, y_new)):
        found.append(
            axil.Explainer(
                make().fit(ALL.loc[labels], own.loc[labels]), ALL.loc[labels], own.loc[labels]
            )
        )
    return found


@pytest.fixture(scope="module")
def both():
    return explainers(lambda: lgb.LGBMRegressor(**SETTINGS))


def by_hand(model, labels, query):
    """(n, N): the weights of a fit to these rows at the splits of a LightGBM model, column by column of the identity."""
    leaves, asked = (
        np.asarray(model.predict(rows, pred_leaf=True)) for rows in (ALL.loc[labels], query)
    )
    n = len(labels)
    F, Q = np.full((n, n), 1 / n), np.full((len(query), n), 1 / n)
    for t in range(leaves.shape[1]):
        values = {
            leaf: (np.eye(n) - F)[leaves[:, t] == leaf].mean(axis=0)
            for leaf in np.unique(leaves[:, t])
        }
        F = F + 0.3 * np.stack([values[leaf] for leaf in leaves[:, t]])
        Q = Q + 0.3 * np.stack([values.get(leaf, np.zeros(n)) for leaf in asked[:, t]])
    return Q


def test_the_parts_are_those_of_a_replay_by_hand(both):
    old, new = both
    table = axil.compare(old, new, X).table()
    k_old = pd.DataFrame(by_hand(old.model, OLD, X), columns=OLD)
    k_mid = pd.DataFrame(by_hand(old.model, NEW, X), columns=NEW)
    c = old.model.predict(X)[:, None]
    kept, added, removed = (
        OLD.intersection(NEW),
        NEW.difference(OLD, sort=False),
        OLD.difference(NEW, sort=False),
    )
    expected = {
        "targets changed": (k_mid[kept] * (Y_NEW - TARGETS)[kept]).sum(axis=1),
        "rows added": (k_mid[added] * (Y_NEW[added].to_numpy() - c)).sum(axis=1),
        "rows removed": -(k_old[removed] * (TARGETS[removed].to_numpy() - c)).sum(axis=1),
        "rows kept": ((k_mid[kept] - k_old[kept]) * (TARGETS[kept].to_numpy() - c)).sum(axis=1),
        "base": np.zeros(4),
        "new splits": new.model.predict(X) - (k_mid * Y_NEW[NEW]).sum(axis=1),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(
            table[name], values, atol=2e-5
        )  # LightGBM keeps targets in single precision
    np.testing.assert_allclose(table["before"], old.model.predict(X), atol=2e-5)
    np.testing.assert_allclose(table["after"], new.model.predict(X), atol=2e-5)
    np.testing.assert_allclose(
        table["before"] + table[PARTS].sum(axis=1), table["after"], atol=1e-9
    )
    assert table["query"].tolist() == X.index.tolist()


def test_rows_and_groups_add_up(both):
    comparison = axil.compare(*both, X)
    table, every = comparison.table(), comparison.top(100)
    assert every.groupby("query", sort=False)["effect"].sum().tolist() == pytest.approx(
        (table[PARTS[:4]].sum(axis=1)).tolist()
    )
    assert set(every["status"]) == {"kept", "changed", "added", "removed"}
    first = every[every["row"] == "r10"].iloc[0]
    assert (first["status"], first["target after"] - first["target before"]) == (
        "changed",
        pytest.approx(5.0),
    )
    assert np.isnan(every[every["status"] == "added"]["weight before"]).all()
    top = comparison.top(3)
    assert (
        top.groupby("query")["effect"].apply(lambda own: own.abs().is_monotonic_decreasing)
    ).all()
    years = pd.Series(np.where(np.arange(70) % 2, "odd", "even"), index=ALL.index)
    sums = comparison.group(years)
    assert sums.groupby("query", sort=False)["effect"].sum().tolist() == pytest.approx(
        (table[PARTS[:4]].sum(axis=1)).tolist()
    )
    one = sums[(sums["query"] == "r0") & (sums["group"] == "odd")]["effect"].iloc[0]
    assert one == pytest.approx(
        every[(every["query"] == "r0") & every["row"].map(years).eq("odd")]["effect"].sum()
    )
    assert len(comparison.group("a")) == 4 * 70
    with pytest.raises(InputError, match="groups has no label for row"):
        comparison.group(years.iloc[:-1])


@pytest.mark.parametrize(
    "kind",
    [
        "forest",
        "other library",
        "ridge",
        "logarithms",
        "two outputs",
        "classes",
        "classifier",
        "counts",
    ],
)
def test_every_kind(kind):
    import xgboost as xgb

    y, y_new, make = (
        TARGETS,
        Y_NEW,
        {
            "forest": lambda: RandomForestRegressor(5, min_samples_leaf=4, random_state=0),
            "ridge": Ridge,
            "two outputs": lambda: RandomForestRegressor(5, min_samples_leaf=4, random_state=0),
            "logarithms": lambda: TransformedTargetRegressor(
                lgb.LGBMRegressor(**SETTINGS), func=np.log, inverse_func=np.exp
            ),
            "classifier": lambda: lgb.LGBMClassifier(**SETTINGS),
            "classes": lambda: lgb.LGBMClassifier(**SETTINGS),
            "counts": lambda: lgb.LGBMRegressor(objective="poisson", **SETTINGS),
        }.get(kind, lambda: lgb.LGBMRegressor(**SETTINGS)),
    )
    if kind in ("classifier", "classes"):
        y, y_new = (
            pd.Series(np.where(own > 20, "high", "low"), index=ALL.index) for own in (y, y_new)
        )
    if kind == "classes":
        y, y_new = (own.where(ALL["c"] < 0.5, "none") for own in (y, y_new))
    if kind == "two outputs":
        y, y_new = (pd.DataFrame({"y": own, "z": own**2}) for own in (y, y_new))
    old, new = explainers(make, y, y_new)
    if kind == "other library":
        model = xgb.XGBRegressor(n_estimators=4, max_depth=2).fit(ALL.loc[NEW], Y_NEW[NEW])
        new = axil.Explainer(model, ALL.loc[NEW], Y_NEW[NEW])
    comparison = axil.compare(old, new, X)
    table, whole = comparison.table(), comparison.top(100)
    names = [comparison.scale.label(name) for name in PARTS]
    moved = comparison.scale.forward(table["after"].to_numpy()) - comparison.scale.forward(
        table["before"].to_numpy()
    )
    np.testing.assert_allclose(table[names].sum(axis=1), moved, atol=1e-9)
    rows = whole.groupby(["query", *(["output"] if "output" in whole else [])], sort=False)[
        comparison.scale.label("effect")
    ].sum()
    np.testing.assert_allclose(rows, table[names[:4]].sum(axis=1), atol=1e-9)
    assert np.abs(table[names[0]]).max() > 0
    assert "weight before" in whole or kind in ("classifier", "classes", "counts")


def test_the_same_model_twice_moves_nothing(both):
    table = axil.compare(both[0], both[0], X).table()
    np.testing.assert_allclose(
        table[["change", *PARTS]], 0.0, atol=1e-5
    )  # single precision of the refit


def test_rows_of_other_features_are_removed_and_added(both):
    moved = ALL.loc[NEW].copy()
    moved.loc["r15", "a"] += 2.0
    new = axil.Explainer(lgb.LGBMRegressor(**SETTINGS).fit(moved, Y_NEW[NEW]), moved, Y_NEW[NEW])
    every = axil.compare(both[0], new, X).top(100)
    assert sorted(every[(every["row"] == "r15") & (every["query"] == "r0")]["status"]) == [
        "added",
        "removed",
    ]


def test_labels_must_be_unique_and_shared(both):
    old, new = both
    twice = axil.Explainer(new.model, ALL.loc[NEW], Y_NEW[NEW], index=["r8", "r8", *NEW[2:]])
    with pytest.raises(
        InputError, match=r"label 'r8' stands for 2 training rows of the new explainer.*index="
    ):
        axil.compare(old, twice, X)
    others = axil.Explainer(new.model, ALL.loc[NEW], Y_NEW[NEW], index=np.arange(len(NEW)))
    with pytest.raises(
        InputError, match="No training row of the new explainer has a label that the old one has"
    ):
        axil.compare(old, others, X)


def test_refusals(both, tmp_path):
    old, new = both
    with pytest.raises(InputError, match=r"old is .*; expected an axil\.Explainer"):
        axil.compare(old.model, new, X)
    two = RandomForestRegressor(3, random_state=0).fit(
        ALL.loc[NEW], np.column_stack([Y_NEW[NEW]] * 2)
    )
    with pytest.raises(InputError, match="new has 2 outputs and old 1"):
        axil.compare(old, axil.Explainer(two, ALL.loc[NEW], np.column_stack([Y_NEW[NEW]] * 2)), X)
    logs = axil.Explainer(
        lgb.LGBMRegressor(**SETTINGS).fit(ALL, np.log(TARGETS)),
        ALL,
        np.log(TARGETS),
        inverse_func=np.exp,
    )
    with pytest.raises(InputError, match="fitted to"):
        axil.compare(old, logs, X)
    line = axil.Explainer(LogisticRegression(tol=1e-10).fit(ALL, TARGETS > 20), ALL, TARGETS > 20)
    with pytest.raises((InputError, UnsupportedQuestionError)):
        axil.compare(line, line, X)
    old.save(tmp_path / "old.npz")
    with pytest.raises(UnsupportedQuestionError, match="loaded from a file"):
        axil.compare(axil.load(tmp_path / "old.npz", old.model), new, X)


def test_the_page(both, tmp_path):
    comparison = axil.compare(*both, X)
    page = comparison.to_html(title="<b>", target="price", rows="sales", query="home")
    assert "&lt;b&gt;" in page
    assert "r60" in page
    assert "New sales, and those left out" in page
    assert "44 stayed as they were, 15 are new, 8 were left out, and 3 have another price" in page
    for words in ("rows kept", "new splits", "e+0", "base"):
        assert words not in page
    comparison.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 1000
    assert (
        repr(comparison)
        == "<axil.Comparison: 4 predictions; 47 training rows kept, 3 of them with other targets, 15 added, 8 removed>"
    )
    caption, cells = table_cells(comparison._repr_html_())
    assert cells[::2] == ["explained", "training data"]
    assert repr(comparison) == f"<{caption}: {'; '.join(cells[1::2])}>"


def numbers_of(section):
    """Return the amounts and the percentages of the bars of a section of the page."""
    amounts = re.findall(r'class="amount">([^<]*?)(?: <small>\(([^)]*)\)</small>)?</span>', section)
    return [
        (
            float(amount.replace("\u2212", "-").replace(",", "")),
            float(share.replace("\u2212", "-").replace("\u00a0%", "") or "nan"),
        )
        for amount, share in amounts
    ]


SCALES = {
    "none": (None, None),
    "log": (np.log, np.exp),
    "log1p": (np.log1p, np.expm1),
    "sqrt": (np.sqrt, np.square),
}


@pytest.mark.parametrize("by", [None, "year"])
@pytest.mark.parametrize("scale", SCALES)
def test_the_parts_on_the_page_add_up(scale, by):
    forward, inverse = SCALES[scale]
    regressor = lgb.LGBMRegressor(**SETTINGS)

    def model():
        if forward is None:
            return lgb.LGBMRegressor(**SETTINGS)
        return TransformedTargetRegressor(regressor, func=forward, inverse_func=inverse)

    found = axil.compare(*explainers(model), X)
    groups = None
    if by is not None:
        groups = {label: f"{number % 3}" for number, label in enumerate(found.rows.labels)}
    page = found.to_html(k=1, target="price", rows="sales", by=groups)
    table = found.table()
    sections = page.split("<section")[1:]
    assert len(sections) == len(table)
    for section, before, after in zip(sections, table["before"], table["after"]):
        bars = numbers_of(section)
        assert sum(amount for amount, _ in bars) == pytest.approx(
            after - before, abs=1e-3 * abs(after)
        )
        if scale == "log":
            factor = np.prod([1 + share / 100 for _, share in bars])
            assert factor == pytest.approx(after / before, rel=1e-2)
        assert all(amount for amount, _ in bars)  # parts without effect are left out
        assert ("Sales of 0" in section) <= (by is not None)


def test_the_page_lists_comparables_before_and_now(both):
    comparison = axil.compare(*both, X)
    page = comparison.to_html(target="price", rows="sales", query="home", columns=["a"])
    old, new = (explainer.similar(X, 5, columns=[]) for explainer in both)
    sections = page.split("<section")[1:]
    for section, label in zip(sections, comparison.query_index):
        table = section.split("The sales most like this home, now and before")[1]
        listed = re.findall(r"<tr><td[^>]*>([^<]*)</td>.*?<td[^>]*>([a-z ]*)</td></tr>", table)
        lists = [set(one["row"][one["query"] == label].astype(str)) for one in (old, new)]
        assert {row for row, _ in listed} == lists[0] | lists[1]
        assert {row for row, status in listed if status == "no longer"} == lists[0] - lists[1]
        assert {row for row, status in listed if status == "new in this list"} == (
            lists[1] - lists[0]
        )


def test_the_waterfall_leads_from_old_to_new(both):
    comparison = axil.compare(*both, X)
    ax = axil.plots.waterfall(comparison, query="r33")
    labels = [one.get_text() for one in ax.get_yticklabels()]
    assert labels == [
        "old model",
        "targets changed",
        "rows added",
        "rows removed",
        "rows kept",
        "new splits",
        "new model",
    ]


@pytest.mark.parametrize("unit", ["ns", "s"])
@pytest.mark.parametrize("index", ["frame", "array"])
def test_dates_as_labels(unit, index):
    """Dates of any unit name rows, in the tables and in error messages, also where the rows are arrays."""
    dates = np.arange("2011-01-01", "2011-03-12", dtype="datetime64[D]").astype(
        f"datetime64[{unit}]"
    )
    explainers_of_dates = []
    for labels, y in ((slice(0, 55), TARGETS), (slice(8, 70), Y_NEW)):
        X_train, own = ALL.iloc[labels], y.iloc[labels].to_numpy()
        X_train = (
            X_train.set_axis(dates[labels], axis=0) if index == "frame" else X_train.to_numpy()
        )
        model = lgb.LGBMRegressor(**SETTINGS).fit(X_train, own)
        explainers_of_dates.append(axil.Explainer(model, X_train, own, index=dates[labels]))
    comparison = axil.compare(*explainers_of_dates, X if index == "frame" else X.to_numpy())
    expected = axil.compare(*explainers(lambda: lgb.LGBMRegressor(**SETTINGS)), X)
    np.testing.assert_allclose(comparison.table()[PARTS], expected.table()[PARTS], atol=1e-9)
    top = comparison.top(3)
    assert top["row"].dtype.kind == "M"
    assert top["row"].iloc[0] == pd.Timestamp(
        dates[ALL.index.get_loc(expected.top(3)["row"].iloc[0])]
    )
    years = pd.Series(np.arange(70) % 2, index=dates)
    np.testing.assert_allclose(
        comparison.group(years)["effect"],
        expected.group(pd.Series(np.arange(70) % 2, index=ALL.index))["effect"],
        atol=1e-9,
    )
    with pytest.raises(InputError, match=r"groups has no label for row 2011-03-11 \(1 rows"):
        comparison.group(years.iloc[:-1])
    other = explainers_of_dates[1]
    moved = axil.Explainer(
        other.model,
        verified_model(other).features,
        Y_NEW.iloc[8:].to_numpy(),
        index=dates[8:] + 1000,
    )
    if unit == "ns":
        with pytest.raises(InputError, match=r"2011-01-09 .*and 2011-01-01 are their first"):
            axil.compare(explainers_of_dates[0], moved, X if index == "frame" else X.to_numpy())


def test_a_model_of_logarithms_and_one_that_takes_them_itself():
    """Nothing changed but who takes the logarithm: no target is a changed one, whatever unit it was given in."""
    prices = TARGETS**2
    inside = TransformedTargetRegressor(
        lgb.LGBMRegressor(**SETTINGS), func=np.log, inverse_func=np.exp
    )
    old = axil.Explainer(
        lgb.LGBMRegressor(**SETTINGS).fit(ALL.loc[OLD], np.log(prices[OLD])),
        ALL.loc[OLD],
        np.log(prices[OLD]),
        inverse_func=np.exp,
    )
    new = axil.Explainer(inside.fit(ALL.loc[OLD], prices[OLD]), ALL.loc[OLD], prices[OLD])
    for first, second in ((old, new), (new, old)):
        found = axil.compare(first, second, X)
        assert (found.rows.status == 0).all()
        assert (
            np.abs(found.table().iloc[:, 3:]).max().max() < 1e-4
        )  # both models keep logarithms in single precision
    changed = prices[NEW].copy()
    changed["r10"] *= 2.0
    new = axil.Explainer(inside.fit(ALL.loc[NEW], changed), ALL.loc[NEW], changed)
    again = axil.Explainer(
        lgb.LGBMRegressor(**SETTINGS).fit(ALL.loc[NEW], np.log(changed)),
        ALL.loc[NEW],
        np.log(changed),
        inverse_func=np.exp,
    )
    found, expected = axil.compare(old, new, X), axil.compare(old, again, X)
    np.testing.assert_allclose(
        found.table().iloc[:, 1:], expected.table().iloc[:, 1:], rtol=1e-6, atol=1e-6
    )
    top = found.top(70)
    assert top[top["status"] == "changed"]["row"].unique().tolist() == ["r10"]
    np.testing.assert_allclose(top["target before"], expected.top(70)["target before"])


def test_other_links_are_not_compared():
    counts = (TARGETS / 5).round()
    make = {
        "poisson": lambda: lgb.LGBMRegressor(objective="poisson", **SETTINGS),
        "gamma": lambda: lgb.LGBMRegressor(objective="gamma", **SETTINGS),
        "fair": lambda: lgb.LGBMRegressor(objective="fair", **SETTINGS),
    }
    found = {
        name: axil.Explainer(model().fit(ALL, counts), ALL, counts) for name, model in make.items()
    }
    with pytest.raises(
        InputError,
        match=r"stands for a mean \(a score of 1 is 2.72\), by poisson, .*the prediction itself",
    ):
        axil.compare(found["poisson"], found["fair"], X)
    axil.compare(found["poisson"], found["gamma"], X)
    binary = (TARGETS > 20).astype(int)
    first, second = (
        axil.Explainer(
            lgb.LGBMClassifier(**SETTINGS, sigmoid=sigmoid).fit(ALL, binary), ALL, binary
        )
        for sigmoid in (1.0, 2.0)
    )
    with pytest.raises(InputError, match="no common scale"):
        axil.compare(first, second, X)
