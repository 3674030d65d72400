"""`similar` with adjust, among, distinct and sign against dense NumPy, row by row."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from lightgbm import LGBMClassifier, LGBMRegressor
from scipy import sparse
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from xgboost import XGBRegressor

import axil
from axil.errors import InputError, UnsupportedQuestionError
from axil.methods.method import verified_model
from axil.output.tables import NOTES
from tests.contract_models import case_of, explainer_of
from tests.methods import method_models
from tests.methods.method_models import same

N, Q = 120, 6
DRAWS = np.random.default_rng(3)
FRAME = pd.DataFrame(
    {
        "area": DRAWS.uniform(40, 200, N + Q),
        "age": DRAWS.integers(0, 30, N + Q).astype(np.uint8),
        "year": DRAWS.integers(2018, 2025, N + Q),
    },
    index=[f"h{i}" for i in range(N + Q)],
)
PRICE = 1000 * FRAME["area"] * np.exp(-0.01 * FRAME["age"]) * (1 + 0.1 * DRAWS.normal(size=N + Q))
X, NEW, Y = FRAME.iloc[:N], FRAME.iloc[N:], PRICE.iloc[:N]
OWNER = np.arange(N) // 4  # four sales per property
OUTPUTS = np.column_stack([Y, Y[::-1].to_numpy()])
DAYS = pd.Series(
    pd.Timestamp("2020-02-29") + pd.to_timedelta(DRAWS.integers(0, 2000, N + Q), "D"), FRAME.index
)
SOLD, NOW = DAYS.iloc[:N], DAYS.iloc[N:]
BESIDE = pd.DataFrame({"sold": SOLD, "owner": OWNER}), pd.DataFrame({"sold": NOW})
QUICK = {"n_estimators": 20, "min_child_samples": 5, "n_jobs": 1, "verbose": -1}


def made(name):
    if name == "boosting":
        return axil.Explainer(LGBMRegressor(**QUICK).fit(X, Y), X, Y)
    if name == "shrunk":  # weights do not sum to one
        return axil.Explainer(
            LGBMRegressor(**QUICK, reg_lambda=20.0, boost_from_average=False).fit(X, Y), X, Y
        )
    if name == "forest":
        return axil.Explainer(
            RandomForestRegressor(15, min_samples_leaf=3, random_state=0).fit(X, Y), X, Y
        )
    if name == "outputs":
        trees = XGBRegressor(
            n_estimators=8,
            max_depth=3,
            n_jobs=1,
            base_score=0.5,
            multi_strategy="one_output_per_tree",
        )
        return axil.Explainer(trees.fit(X, OUTPUTS), X, OUTPUTS)
    if name == "classes":
        dear = (Y.median() < Y).to_numpy()
        return axil.Explainer(
            RandomForestClassifier(9, max_depth=3, random_state=0).fit(X, dear), X, dear
        )
    if name == "log":
        return axil.Explainer(
            LGBMRegressor(**QUICK).fit(X, np.log(Y)), X, np.log(Y), inverse_func=np.exp
        )
    own = TransformedTargetRegressor(LGBMRegressor(**QUICK), func=np.log1p, inverse_func=np.expm1)
    return axil.Explainer(own.fit(X, Y), X, Y)


NAMES = ["boosting", "shrunk", "forest", "outputs", "classes", "log", "own logarithms"]


@pytest.fixture(scope="module", params=NAMES)
def explainer(request):
    return made(request.param)


@pytest.fixture(scope="module")
def boosting():
    return made("boosting")


def dense(explainer, rows):
    """Weights (n, K, N), targets (N, K) and predictions (n, K), on the scale of the fit."""
    explanation = explainer(rows)
    targets = explainer.targets.reshape(N, -1)
    weights = np.broadcast_to(
        explanation.weights.reshape(len(rows), -1, N), (len(rows), targets.shape[1], N)
    )
    return (
        weights,
        targets,
        np.einsum("ikj,jk->ik", weights, targets) + explanation.intercepts.reshape(len(rows), -1),
    )


def expected(weights, k, among=None, labels=None, positive=False):
    """The positions to list for one prediction, by the definition."""
    order = sorted(range(N), key=lambda j: (-abs(weights[j]), j))
    kept, seen = [], set()
    for j in order:
        if (among is not None and not among[j]) or (positive and weights[j] <= 0):
            continue
        if labels is not None and labels[j] in seen:
            continue
        kept.append(j)
        seen |= set() if labels is None else {labels[j]}
    return kept[:k]


def test_adjusted_targets_and_the_footer(explainer):
    comparables = explainer.similar(NEW, 5, adjust=True, by="weight")
    weights, targets, predictions = dense(explainer, NEW)
    fitted = dense(explainer, X)[2]
    residuals, inverse = targets - fitted, explainer.scale.inverse
    lines, footer = (
        iter(comparables.itertuples(index=False)),
        iter(comparables.attrs["comparables"]),
    )
    for i, output in np.ndindex(Q, targets.shape[1]):
        own = weights[i, output]
        bias = own @ residuals[:, output]
        mean = own @ (residuals[:, output] + predictions[i, output]) / own.sum()
        said = next(footer)
        # sums of 120 numbers in another order: rounding of float64
        np.testing.assert_allclose(said["mean"], inverse(np.array([mean]))[0], rtol=1e-9)
        np.testing.assert_allclose(
            said[explainer.scale.label("bias")], bias, rtol=1e-9, atol=1e-9 * abs(targets).max()
        )
        np.testing.assert_allclose(
            said["prediction"], inverse(predictions[i, [output]])[0], rtol=1e-9
        )
        np.testing.assert_allclose(
            said["share"], np.sort(abs(own))[-5:].sum() / abs(own).sum(), rtol=1e-9
        )
        assert said["query"] == NEW.index[i]
        for _ in range(5):
            line = dict(zip(comparables.columns, next(lines)))
            j = X.index.get_loc(line["row"])
            wanted = inverse(predictions[i, [output]] + residuals[j, [output]])[0]
            np.testing.assert_allclose(line["adjusted"], wanted, rtol=1e-9, atol=1e-9)
            assert line["adjusted (all)"] == said["mean"]
            assert line["age (difference)"] == int(X["age"].iloc[j]) - int(
                NEW["age"].iloc[i]
            )  # of unsigned numbers
    plain = explainer.similar(NEW, 5, by="weight")
    pd.testing.assert_frame_equal(comparables[plain.columns], plain)


def test_prices_of_a_model_of_logarithms():
    explainer = made("log")
    comparables = explainer.similar(NEW.head(1), 3, adjust=True, weights=True)
    model = LGBMRegressor(**QUICK).fit(X, np.log(Y))
    rows = X.loc[comparables["row"]]
    wanted = (
        Y[comparables["row"]] * np.exp(model.predict(NEW.head(1))) / np.exp(model.predict(rows))
    )
    np.testing.assert_allclose(
        comparables["adjusted"], wanted, rtol=1e-6
    )  # LightGBM fits gradients in float32
    assert "local bias (log)" in comparables.attrs["axil"]


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("kept", [None, "recent"])
@pytest.mark.parametrize("labels", [None, OWNER])
def test_the_rows_listed(explainer, monkeypatch, positive, kept, labels):
    monkeypatch.setattr("axil.machine.memory.Budget.batch_size", lambda self, *_: 4)
    among = None if kept is None else (X["year"] >= 2023).to_numpy()
    comparables = explainer.similar(
        NEW,
        9,
        columns=[],
        by="weight",
        among=among,
        distinct=labels,
        sign="for" if positive else "any",
        adjust=True,
    )
    weights, targets, _ = dense(explainer, NEW)
    if (
        verified_model(explainer).names.classes is not None
    ):  # rows of another class speak against the one that the line is about
        weights = weights * np.where(targets.T > 0, 1.0, -1.0)
    rows = [
        (NEW.index[i], rank + 1, X.index[j])
        for i, output in np.ndindex(weights.shape[:2])
        for rank, j in enumerate(expected(weights[i, output], 9, among, labels, positive))
    ]
    assert list(zip(comparables["query"], comparables["rank"], comparables["row"])) == rows
    assert len(comparables.attrs["comparables"]) == Q * weights.shape[1]


def test_all_that_allows_the_same_rows(boosting):
    wanted = boosting.similar(NEW, 4, among=(X["year"] > 2020).to_numpy())
    recent = X["year"] > 2020
    for among in (
        list(recent),
        recent,
        recent.astype(object),
        recent.astype("boolean"),
        pl.Series(recent.tolist()),
        pa.array(recent.tolist()),
        lambda rows: rows["year"] > 2020,
        lambda rows: (rows["year"] > 2020).to_numpy()[:, None],
    ):
        pd.testing.assert_frame_equal(boosting.similar(NEW, 4, among=among), wanted)
    by_column = boosting.similar(NEW, 4, distinct="year")
    pd.testing.assert_frame_equal(by_column, boosting.similar(NEW, 4, distinct=X["year"]))
    pd.testing.assert_frame_equal(by_column, boosting.similar(NEW, 4, distinct=2))


def test_fewer_rows_than_asked_for(boosting):
    assert len(boosting.similar(NEW, 50, distinct="year", by="weight")) == Q * X["year"].nunique()
    assert len(boosting.similar(NEW, 50, among=np.arange(N) < 3, by="weight")) == Q * 3
    assert len(boosting.similar(NEW.head(0), 5, adjust=True, sign="for", distinct=OWNER)) == 0


def test_rows_without_a_label_stand_for_themselves(boosting):
    labels = np.where(np.arange(N) < 60, None, "one")
    comparables = boosting.similar(NEW.head(1), N, distinct=labels, by="weight")
    assert len(comparables) == 61


def test_of_rows_with_one_label_the_most_similar_is_listed(boosting):
    comparables = boosting.similar(NEW, N, distinct=OWNER, by="leaves").set_index(["query", "row"])[
        "similarity"
    ]
    shared = pd.DataFrame(axil.similarity(boosting.model, NEW, X), NEW.index, X.index)
    for query, own in comparables.groupby(level="query"):
        largest = shared.loc[query].groupby(OWNER).max()
        np.testing.assert_allclose(own.to_numpy(), np.sort(largest[largest > 0])[::-1], rtol=1e-12)


def test_a_function_cannot_change_the_training_rows(boosting):
    before = boosting.similar(NEW, 3)

    def greedy(rows):
        rows["area"] = 0.0
        return np.ones(N, dtype=bool)

    pd.testing.assert_frame_equal(boosting.similar(NEW, 3, among=greedy), before)
    pd.testing.assert_frame_equal(boosting.similar(NEW, 3), before)


def test_sparse_weights_and_frames_of_other_libraries():
    values, new = X.to_numpy(float), NEW.to_numpy(float)
    forest = RandomForestRegressor(5, max_depth=4, random_state=0).fit(values, Y)
    wanted = axil.Explainer(forest, values, Y).similar(new, 3, adjust=True, distinct=OWNER)
    others = {
        "polars": lambda one: pl.DataFrame(one, schema=["x0", "x1", "x2"]),
        "csr": sparse.csr_matrix,
    }
    for convert in others.values():
        found = axil.Explainer(forest, convert(values), Y).similar(
            convert(new), 3, adjust=True, distinct=OWNER
        )
        found = found.to_pandas() if isinstance(found, pl.DataFrame) else found
        pd.testing.assert_frame_equal(found, wanted)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"among": np.arange(N)},
            "among holds numbers or text .int64.; expected True or False for each of the 120",
        ),
        ({"among": [True] * 5}, r"among has shape \(5,\); expected \(120,\)"),
        (
            {"among": [None, *[True] * (N - 1)]},
            "among holds None at position 0; expected True or False",
        ),
        ({"among": np.zeros(N, dtype=bool)}, "among allows none of the 120 training rows"),
        (
            {"among": lambda rows: rows["price"] > 1},
            "among raised KeyError: .*price.*function of the training rows",
        ),
        ({"among": lambda rows: rows}, "What the function among returned has shape"),
        (
            {"among": (X["year"] > 2020)[::-1]},
            "among has the row labels of X_train in another order",
        ),
        ({"within": ("aera", 3)}, r"within names 'aera'; .* Did you mean 'area'\?"),
        ({"distinct": "parcel"}, "distinct names 'parcel'; expected names such as 'area'"),
        ({"distinct": [1, 2]}, r"distinct has shape \(2,\); expected \(120,\)"),
        ({"distinct": X["year"][::-1]}, "distinct has the row labels of X_train in another order"),
        ({"sign": "positive"}, 'sign is "?\'?positive.*expected "any", "for" or "against"'),
        ({"within": "sold"}, "within is 'sold'; expected a column and a distance"),
        ({"within": ("parcel", 3)}, "within names 'parcel'; expected names such as 'area'"),
        ({"within": ("area", -1)}, "within has the distance -1; expected"),
        (
            {"within": ("area", "3Y")},
            "within has the distance '3Y'; expected a number, as area holds numbers",
        ),
        (
            {"within": ("sold", "3 years"), "beside": BESIDE},
            "within has the distance '3 years'; expected .*\"3Y\"",
        ),
        (
            {"within": ("owner", 3), "beside": BESIDE},
            "within names owner, which only the training rows have",
        ),
        (
            {"within": ("sold", "3Y"), "beside": (BESIDE[0].astype(str), BESIDE[1])},
            "sold of the training rows holds '20.*expected numbers or dates.*pandas.to_datetime",
        ),
        (
            {
                "within": ("sold", "3Y"),
                "beside": (BESIDE[0], BESIDE[1].mask(BESIDE[1] == BESIDE[1].iloc[2, 0])),
            },
            "sold of X has no value in row 2",
        ),
        (
            {"within": ("sold", "3Y"), "beside": (BESIDE[0], BESIDE[1].assign(sold=1.0))},
            "sold of the training rows holds dates, and sold of X numbers",
        ),
        ({"beside": BESIDE[0]}, r"beside is one frame of shape \(120, 2\); expected two frames"),
        (
            {"distinct": "parcel"},
            "distinct names 'parcel'.* A column that is no feature comes with beside=",
        ),
        (
            {"columns": ["parcel"]},
            "columns names 'parcel'.* A column that is no feature comes with beside=",
        ),
        (
            {"among": [True]},
            r"among has shape \(1,\); expected \(120,\), True or False for each of the 120 training rows",
        ),
        ({"suspects": "leave"}, "suspects is 'leave'; expected"),
        ({"asof": "2023-01-01"}, "within is None; expected .*the column alone"),
        (
            {"asof": "valued", "within": "year"},
            "asof is 'valued'; expected a date such as .* comes with beside=",
        ),
        (
            {"asof": "2023-01-01", "within": "year"},
            "year of the training rows holds numbers, and asof dates",
        ),
        ({"asof": None, "within": "year"}, "within is 'year'; expected a column and a distance"),
        ({"asof": [2], "within": "year"}, r"asof is \[2\]; expected a date"),
        ({"asof": float("nan"), "within": "year"}, "asof is nan; expected a date"),
        ({"asof": float("inf"), "within": "year"}, "asof is inf; expected a date"),
        ({"asof": 10**400, "within": "year"}, "asof is .*; expected a date"),
        (
            {"asof": "owner", "within": "sold", "beside": BESIDE},
            "asof names owner, which only the training rows have",
        ),
        (
            {"among": lambda rows, query: rows["x"]},
            "among raised KeyError.*the training rows, and of a query",
        ),
        ({"beside": BESIDE[::-1]}, "The first frame of beside has 6 rows; expected 120"),
        (
            {"beside": (BESIDE[0][::-1], BESIDE[1])},
            "The first frame of beside has the row labels .* in another order",
        ),
        ({"adjust": 1}, "adjust is 1; expected True or False"),
    ],
)
def test_what_is_refused(boosting, given, message):
    with pytest.raises(InputError, match=message):
        boosting.similar(NEW, 3, **given)


def within_by_definition(distance):
    """(Q, N): the sales at most so far from each query, one pair at a time."""
    return np.array([[now - distance <= sold <= now + distance for sold in SOLD] for now in NOW])


@pytest.mark.parametrize(
    ("given", "distance"),
    [
        ("2Y", pd.DateOffset(years=2)),
        ("7 M", pd.DateOffset(months=7)),
        ("30W", pd.Timedelta(weeks=30)),
        (400, pd.Timedelta(days=400)),
        (np.timedelta64(400, "D"), pd.Timedelta(days=400)),
    ],
)
@pytest.mark.parametrize("name", ["boosting", "forest"])
def test_rows_within_a_distance_in_time(monkeypatch, name, given, distance):
    monkeypatch.setattr("axil.machine.memory.Budget.batch_size", lambda self, *_: 4)
    explainer = made(name)
    near, weights = within_by_definition(distance), dense(explainer, NEW)[0]
    for more in ({}, {"distinct": "owner", "among": (X["year"] >= 2019).to_numpy(), "sign": "for"}):
        comparables = explainer.similar(
            NEW, 9, columns=[], by="weight", within=("sold", given), beside=BESIDE, **more
        )
        rows = [
            (NEW.index[i], rank + 1, X.index[j])
            for i in range(Q)
            for rank, j in enumerate(
                expected(
                    weights[i, 0],
                    9,
                    near[i] & more.get("among", True),
                    OWNER if more else None,
                    bool(more),
                )
            )
        ]
        assert list(zip(comparables["query"], comparables["rank"], comparables["row"])) == rows
        assert len(rows) > Q  # the test would say nothing of no rows


def test_rows_within_a_distance_of_numbers(boosting):
    comparables = boosting.similar(NEW, N, columns=["area"], by="weight", within=("area", 12.5))
    gap = abs(comparables["area (row)"] - comparables["area (query)"])
    wanted = abs(X["area"].to_numpy() - NEW["area"].to_numpy()[:, None]) <= 12.5
    assert len(comparables) == wanted.sum()
    assert gap.max() <= 12.5
    # dates of any kind are the same days
    wanted = boosting.similar(NEW, 4, columns=[], within=("sold", "1Y"), beside=BESIDE)
    plain = [pd.DataFrame({"sold": part["sold"].dt.date}) for part in BESIDE]
    zoned = [pd.DataFrame({"sold": part["sold"].dt.tz_localize("UTC")}) for part in BESIDE]
    other = [pl.DataFrame({"sold": part["sold"].dt.date.tolist()}) for part in BESIDE]
    for beside in (plain, zoned, other):
        pd.testing.assert_frame_equal(
            boosting.similar(NEW, 4, columns=[], within=("sold", "1Y"), beside=beside), wanted
        )
    missing = BESIDE[0].assign(
        sold=SOLD.where(np.arange(N) % 2 == 0)
    )  # a row without a date is near no query
    comparables = boosting.similar(
        NEW, N, columns=[], within=("sold", "1Y"), beside=(missing, BESIDE[1])
    )
    assert set(comparables["row"]) <= set(X.index[::2])


@pytest.mark.parametrize("name", ["boosting", "forest", "outputs"])
def test_rows_before_a_date(monkeypatch, name):
    """Of one date or of a column of the queries, which only they have; never at the date itself, nor longer before."""
    monkeypatch.setattr("axil.machine.memory.Budget.batch_size", lambda self, *_: 4)
    explainer, homes = made(name), pd.DataFrame({"valued": NOW, "town": 1})
    weights, year = dense(explainer, NEW)[0], pd.DateOffset(years=1)
    sold = SOLD.where(np.arange(N) != 3, NOW.iloc[0])  # a sale on the very day
    sales = pd.DataFrame({"sold": sold})
    for asof, dates in (
        ("2023-01-01", [pd.Timestamp("2023-01-01")] * Q),
        ("valued", NOW),
        (NOW.iloc[0], [NOW.iloc[0]] * Q),
    ):
        for within, least in (
            ("sold", [pd.Timestamp.min] * Q),
            (("sold", "1Y"), [one - year for one in dates]),
        ):
            comparables = explainer.similar(
                NEW,
                9,
                columns=["sold"],
                by="weight",
                asof=asof,
                within=within,
                beside=(sales, homes),
            )
            near = [
                ((sold < date) & (sold >= first)).to_numpy() for date, first in zip(dates, least)
            ]
            rows = [
                X.index[j]
                for i in range(Q)
                for own in weights[i]
                for j in expected(own, 9, near[i])
            ]
            assert list(comparables["row"]) == rows
            assert "sold (query)" not in comparables
            assert len(rows) > Q


def test_numbers_before_a_number(boosting):
    comparables = boosting.similar(NEW, N, columns=["year"], asof=2022, within=("year", 2))
    assert set(comparables["year (row)"]) == {2020, 2021}
    assert set(
        boosting.similar(NEW, N, columns=["year"], asof=2020, within="year")["year (row)"]
    ) == {
        2018,
        2019,
    }
    single = X.astype(np.float32).assign(year=np.float32(0.7))  # rounded to less than 0.7
    other = axil.Explainer(LGBMRegressor(**QUICK).fit(single, Y), single, Y)
    with pytest.warns(
        UserWarning, match=f"No training row meets the conditions for {Q} of {Q} rows of X"
    ):
        assert not len(other.similar(NEW, N, asof=0.7, within="year"))


def test_queries_without_a_row_are_named_once(boosting, monkeypatch):
    monkeypatch.setattr("axil.machine.memory.Budget.batch_size", lambda self, *_: 4)
    far = NEW.assign(area=NEW["area"].where(np.arange(Q) != 2, 1e6))
    with pytest.warns(UserWarning, match="No training row meets") as warned:
        comparables = boosting.similar(far, 3, columns=["area"], within=("area", 50.0))
    assert len(warned) == 1
    said = str(warned[0].message)
    assert f"for 1 of {Q} rows of X, which the table leaves out: {NEW.index[2]!r}." in said
    assert set(comparables["query"]) == {*NEW.index} - {NEW.index[2]}
    with pytest.warns(UserWarning, match=f"leaves out: .*, .*, .* and {Q - 3} more.") as warned:
        assert not len(boosting.similar(NEW.assign(area=1e6), 3, within=("area", 50.0)))
    assert len(warned) == 1


@pytest.mark.parametrize("name", ["boosting", "forest"])
def test_a_function_of_rows_and_query(monkeypatch, name):
    monkeypatch.setattr("axil.machine.memory.Budget.batch_size", lambda self, *_: 4)
    explainer, weights = made(name), dense(made(name), NEW)[0]
    own = (X["year"].to_numpy() >= NEW["year"].to_numpy()[:, None] - 1) & (OWNER >= 5)

    def alike(sales, home):
        assert isinstance(home["year"], int)
        return (sales["year"] >= home["year"] - 1) & (sales["owner"] >= home["least"])

    beside = BESIDE[0], BESIDE[1].assign(least=5)
    near = within_by_definition(pd.DateOffset(years=2))
    for more, also in (({}, True), ({"within": ("sold", "2Y")}, near)):
        found = explainer.similar(
            NEW, 9, columns=[], by="weight", among=alike, beside=beside, **more
        )
        rows = [
            X.index[j]
            for i, mask in enumerate(own & also)
            for j in expected(weights[i, 0], 9, mask)
        ]
        assert list(found["row"]) == rows
        assert len(rows) > Q
    arrays = LGBMRegressor(**QUICK).fit(X.to_numpy(), Y)
    found = axil.Explainer(arrays, X.to_numpy(), Y).similar(
        NEW.to_numpy(), 9, among=lambda rows, row: rows[:, 2] == row[2]
    )
    assert (found["x2 (row)"] == found["x2 (query)"]).all()
    assert not len(explainer.similar(NEW.head(0), 9, among=alike))


def test_suspects_are_marked_or_dropped(monkeypatch):
    prices = Y.copy()
    prices.iloc[[3, 50, 99]] *= [0.05, 12, 0.02]
    explainer = axil.Explainer(
        LGBMRegressor(**QUICK).fit(X, np.log(prices)), X, np.log(prices), inverse_func=np.exp
    )
    table = explainer.find_label_issues()
    wrong = set(table["row"][table["is_label_issue"]])
    assert {X.index[3], X.index[50], X.index[99]} <= wrong
    marked = explainer.similar(NEW, N, columns=[], suspects="mark")
    assert set(marked["row"][marked["suspect"]]) == wrong & set(marked["row"])
    pd.testing.assert_frame_equal(
        marked.drop(columns="suspect"), explainer.similar(NEW, N, columns=[])
    )
    kept = ~X.index.isin(wrong)
    dropped = explainer.similar(
        NEW, 5, columns=[], suspects="drop", among=(X["year"] > 2018).to_numpy()
    )
    same(dropped, explainer.similar(NEW, 5, columns=[], among=kept & (X["year"] > 2018).to_numpy()))
    monkeypatch.setattr("axil.methods.label_issues.suspects", None)  # found once for each explainer
    same(explainer.similar(NEW, N, columns=[], suspects="mark"), marked)


def test_suspects_of_ones_own(monkeypatch):
    """With labels or truth values find_label_issues is not called.

    The reference is the column, and a mask for ``among``.
    """
    monkeypatch.setattr(
        "axil.methods.label_issues.suspects", lambda *_: pytest.fail("find_label_issues was called")
    )
    explainer = made("boosting")
    own = X.index[[3, 5, 40]]
    mask = X.index.isin(own)
    for given in (list(own), mask, pd.Series(mask, index=X.index), ("mark", own)):
        marked = explainer.similar(NEW, N, columns=[], suspects=given)
        assert set(marked["row"][marked["suspect"]]) == set(own) & set(marked["row"])
    for given in (("drop", list(own)), ("drop", mask)):
        same(
            explainer.similar(NEW, 5, columns=[], suspects=given),
            explainer.similar(NEW, 5, columns=[], among=~mask),
        )
    assert not explainer.similar(NEW, 5, columns=[], suspects=[])["suspect"].any()
    with pytest.raises(InputError, match="suspects names row"):
        explainer.similar(NEW, 5, suspects=["nobody"])
    with pytest.raises(InputError, match="suspects has the row labels of X_train in another order"):
        explainer.similar(NEW, 5, suspects=pd.Series(mask, index=X.index)[::-1])
    with pytest.raises(InputError, match="find_label_issues judges targets by out_of_fold"):
        explainer.similar(NEW, 5, suspects=list(own), out_of_fold=Y)
    with pytest.raises(InputError, match="find_label_issues judges targets by out_of_fold"):
        explainer.similar(NEW, 5, out_of_fold=Y)


def test_suspects_by_out_of_fold_predictions():
    explainer = made("boosting")
    unseen = np.asarray(Y) + np.where(np.arange(N) % 20 == 0, 50.0, 0.1) * np.ptp(Y)
    table = explainer.find_label_issues(out_of_fold=unseen)
    wrong = set(table["row"][table["is_label_issue"]])
    assert wrong
    marked = explainer.similar(NEW, N, columns=[], suspects="mark", out_of_fold=unseen)
    assert set(marked["row"][marked["suspect"]]) == wrong & set(marked["row"])


def test_a_check_that_takes_longer_than_the_rest_is_announced(monkeypatch):
    explainer = made("boosting")
    monkeypatch.setattr("axil.methods.similar.ON_PAGE", 0.0)
    with pytest.warns(
        axil.CostWarning, match='longer than the rest of this call. Say suspects="keep"'
    ) as said:
        explainer.similar(NEW, 3, columns=[], suspects="mark")
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explainer.similar(NEW, 3, columns=[], suspects="mark")  # it is known by now
        made("boosting").similar(NEW, 3, columns=[], suspects=["h3"])
        many = pd.concat([NEW] * 10)
        made("boosting").similar(many, 3, columns=[], suspects="mark")


def test_suspects_of_classes_and_of_several_outputs():
    for name in ("classes", "outputs"):
        explainer = made(name)
        table = explainer.find_label_issues()
        wrong = set(table["row"][table["is_label_issue"]])
        comparables = explainer.similar(NEW, N, columns=[], suspects="mark")
        assert set(comparables["row"][comparables["suspect"]]) == wrong & set(comparables["row"])


def test_columns_beside_the_features(boosting):
    comparables = boosting.similar(NEW, 3, columns=["area", "owner", "sold"], beside=BESIDE)
    assert list(comparables.columns[-5:]) == [
        "area (row)",
        "area (query)",
        "owner (row)",
        "sold (row)",
        "sold (query)",
    ]
    places = X.index.get_indexer(comparables["row"])
    assert list(comparables["owner (row)"]) == list(OWNER[places])
    assert list(comparables["sold (row)"]) == list(SOLD.iloc[places])
    assert list(comparables["sold (query)"]) == list(NOW.loc[comparables["query"]])


@pytest.mark.parametrize("name", ["boosting", "shrunk", "forest", "log", "own logarithms"])
def test_the_share_of_the_value_is_what_follows_the_listed_targets(name):
    """A hundredth of a percent on every target listed, and how far the prediction follows: an independent refit."""
    explainer, step = made(name), 1e-4
    query = NEW.head(1)
    comparables = explainer.similar(query, 8, adjust=True, weights=True)
    said = comparables.attrs["comparables"][0]
    raised = Y[comparables["row"]] * (1 + step)
    given = np.log(raised) if name == "log" else raised
    moved = explainer.what_if(query, dict(given)).iloc[0]
    wanted = (moved["after"] / moved["before"] - 1) / step
    # a difference quotient: of a curve, so right to some steps
    np.testing.assert_allclose(said["value share"], wanted, rtol=20 * step)
    assert f"{said['value share']:.1%} of the value" in comparables.attrs["axil"]


def test_pushes_are_chosen_from_and_not_adjusted():
    dear = (Y.median() < Y).to_numpy()
    pushes = axil.Explainer(LGBMClassifier(**QUICK).fit(X, dear), X, dear)
    with pytest.raises(
        UnsupportedQuestionError,
        match=r"similar\(adjust=True\) has no answer here: .*not a weighted sum",
    ):
        pushes.similar(NEW, 3, adjust=True)
    comparables = pushes.similar(NEW, 3, by="contribution", sign="for", among=X["year"] > 2020)
    scores = pd.Series(pushes(NEW).predictions, NEW.index)[comparables["query"]].to_numpy()
    assert (comparables["contribution"] * scores > 0).all()
    assert (comparables["year (row)"] > 2020).all()


def test_comparables_in_every_kind_of_table():
    case = case_of("lightgbm", "regressor")
    names = getattr(case.model, "booster_", case.model).feature_name()
    train, new = np.asarray(case.X, dtype=float), np.asarray(case.X_new, dtype=float)[:3]
    kinds = {
        "numpy": lambda values: values,
        "csr": sparse.csr_matrix,
        "pandas": lambda values: pd.DataFrame(
            values, columns=names, index=[f"h{i}" for i in range(len(values))]
        ),
        "polars": lambda values: pl.DataFrame(values, schema=names),
        "pyarrow": lambda values: pa.table(dict(zip(names, values.T))),
    }
    for kind, convert in kinds.items():
        explainer = axil.Explainer(case.model, convert(train), case.y)
        frame = explainer.similar(convert(new), 4, by="weight")
        assert isinstance(
            frame, {"polars": pl.DataFrame, "pyarrow": pa.Table}.get(kind, pd.DataFrame)
        )
        table = frame.to_pandas() if kind in ("polars", "pyarrow") else frame
        shown = [f"x{i}" for i in range(train.shape[1])] if kind in ("numpy", "csr") else names
        first = ["query", "prediction", "rank", "row", "weight", "share", "target", "contribution"]
        assert list(table.columns) == first + [
            f"{n} ({of})" for n in shown for of in ("row", "query")
        ]
        rows = [int(str(row).lstrip("h")) for row in table["row"]]
        np.testing.assert_array_equal(table[[f"{n} (row)" for n in shown]], train[rows])
        np.testing.assert_array_equal(
            table[[f"{n} (query)" for n in shown]], np.repeat(new, 4, axis=0)
        )
        top = explainer(convert(new)).top(4)
        top = top.to_pandas() if kind in ("polars", "pyarrow") else top
        pd.testing.assert_frame_equal(table[top.columns], top)
        sizes = np.abs(explainer(convert(new)).weights).sum(axis=1)
        share = table["weight"].abs().to_numpy().reshape(3, 4).cumsum(axis=1) / sizes[:, None]
        np.testing.assert_allclose(table["share"].to_numpy().reshape(3, 4), share)


def test_comparables_of_several_outputs_and_text():
    case, explainer = (
        case_of("xgboost", "one_output_per_tree"),
        explainer_of("xgboost", "one_output_per_tree"),
    )
    frame = explainer.similar(case.X_new[:3], 2, columns=[1, "x0"])
    assert list(frame.columns)[-4:] == ["x1 (row)", "x1 (query)", "x0 (row)", "x0 (query)"]
    np.testing.assert_array_equal(
        frame["x1 (query)"], np.repeat(case.X_new[:3, 1], 2 * len(explainer.outputs))
    )
    np.testing.assert_array_equal(frame["x0 (row)"], case.X[frame["row"], 0])
    piped, case = explainer_of("smoother", "pipeline ridge"), case_of("smoother", "pipeline ridge")
    frame = piped.similar(case.X_new[:2], 3, columns="kind")
    assert list(frame["kind (row)"]) == list(case.X["kind"].to_numpy()[frame["row"]])
    assert len(piped.similar(case.X_new[:0], 3)) == 0
    with pytest.raises(InputError, match="columns names 'colour'"):
        piped.similar(case.X_new, columns=["colour"])
    with pytest.raises(InputError, match="k is 0"):
        piped.similar(case.X_new, 0)


NUMBERS = {"exact": "weight", "additive": "contribution", "derivative": "derivative"}


def test_comparables_of_every_kind_and_place(any_explainer, batches):
    rows, new = method_models.X, method_models.NEW
    found, whole = (
        any_explainer.similar(new, 3, columns=["age"], by=NUMBERS[any_explainer.kind]),
        any_explainer(new),
    )
    same(found[whole.top(3).columns], whole.top(3))
    np.testing.assert_array_equal(found["age (row)"], rows.loc[found["row"], "age"])
    np.testing.assert_array_equal(found["age (query)"], new.loc[found["query"], "age"])
    assert found["share"].between(0, 1 + 1e-12).all()
    assert found.attrs["axil"].startswith(NOTES[whole.kind])
    before = any_explainer.similar(new, 3, columns=["age"], asof=0.2, within=("age", 0.9))
    assert len(before)
    assert before["age (row)"].between(0.2 - 0.9, 0.2, inclusive="left").all()
    alike = any_explainer.similar(
        new, 3, columns=["age"], among=lambda rows, query: rows["age"] > query["age"]
    )
    assert len(alike)
    assert (alike["age (row)"] > alike["age (query)"]).all()
    if verified_model(any_explainer).capabilities.is_refused("find_label_issues"):
        with pytest.raises(
            UnsupportedQuestionError,
            match='suspects="drop" has no answer here: it needs find_label_issues, and',
        ):
            any_explainer.similar(new, 3, suspects="drop")
    else:
        table = any_explainer.find_label_issues()
        wrong = set(table["row"][table["is_label_issue"]])
        marked = any_explainer.similar(new, len(rows), columns=["age"], suspects="mark")
        assert set(marked["row"][marked["suspect"]]) == wrong & set(marked["row"])
        assert not wrong & set(any_explainer.similar(new, len(rows), suspects="drop")["row"])


# -- by shared leaves -----------------------------------------------------------------------------------------------------


def alike_rows(similarity, k, allowed=None):
    """(n, k): positions by similarity, -1 for free places."""
    ranked = np.where(similarity > 0, similarity, -1.0)
    if allowed is not None:
        ranked = np.where(allowed, ranked, -1.0)
    order = np.argsort(-ranked, axis=1, kind="stable")[:, :k]
    return np.where(np.take_along_axis(ranked, order, axis=1) > 0, order, -1)


def test_rows_that_share_most_leaves_of_every_kind_and_place(any_explainer, batches):
    rows, new = method_models.X, method_models.NEW
    if any_explainer.kind == "derivative":
        with pytest.raises(
            UnsupportedQuestionError,
            match=r'similar\(by="leaves"\) has no answer here: .* no trees',
        ):
            any_explainer.similar(new, 3, by="leaves")
        return
    whole = any_explainer(new)
    similarity = axil.similarity(verified_model(any_explainer).adapter._booster, new, rows)
    comparables = any_explainer.similar(new, 4, columns=["age"], by="leaves", weights=True)
    by_default = any_explainer.similar(new, 4, columns=["age"])  # all of these are boosted
    pd.testing.assert_frame_equal(by_default, comparables[by_default.columns], rtol=1e-6)
    assert not {"weight", "share", "contribution"} & set(by_default.columns)
    wanted = alike_rows(similarity, 4)
    n_outputs = len(comparables) // (4 * len(new))
    at = rows.index.get_indexer(comparables["row"]).reshape(len(new), n_outputs, 4)
    np.testing.assert_array_equal(at, np.broadcast_to(wanted[:, None], at.shape))
    seen = comparables["similarity"].to_numpy().reshape(at.shape)
    np.testing.assert_allclose(
        seen, np.take_along_axis(similarity[:, None].repeat(n_outputs, 1), at, axis=2)
    )
    contributions = whole.contributions.reshape(len(new), n_outputs, len(rows))
    own = next(name for name in comparables.columns if name.startswith("contribution"))
    np.testing.assert_allclose(
        comparables[own].to_numpy().reshape(at.shape),
        np.take_along_axis(contributions, at, axis=2),
        rtol=1e-8,
        atol=1e-12,
    )
    assert "share most leaves" in comparables.attrs["axil"]
    allowed = rows["age"].to_numpy() > 0
    some = any_explainer.similar(
        new, 4, columns=["age"], by="leaves", among=lambda given: given["age"] > 0
    )
    wanted = alike_rows(similarity, 4, allowed)
    each = wanted[:, None].repeat(n_outputs, axis=1)
    np.testing.assert_array_equal(rows.index.get_indexer(some["row"]), each[each >= 0])


def test_rows_that_speak_for_two_classes_and_against():
    labels = np.where(Y.median() < Y, "dear", "cheap")
    explainer = axil.Explainer(LGBMClassifier(**QUICK).fit(X, labels), X, labels)
    pushes, scores = explainer(NEW).contributions, explainer(NEW).predictions
    assert (scores > 0).any()
    assert (scores < 0).any()
    similarity = axil.similarity(verified_model(explainer).adapter._booster, NEW, X)
    for sign, side in (("for", 1.0), ("against", -1.0)):
        allowed = pushes * np.sign(scores)[:, None] * side > 0
        comparables = explainer.similar(NEW, 3, columns=["area"], by="leaves", sign=sign)
        wanted = alike_rows(similarity, 3, allowed)
        np.testing.assert_array_equal(X.index.get_indexer(comparables["row"]), wanted[wanted >= 0])
        largest = explainer.similar(NEW, 3, columns=["area"], by="contribution", sign=sign)
        wanted = alike_rows(np.abs(pushes), 3, allowed)
        np.testing.assert_array_equal(X.index.get_indexer(largest["row"]), wanted[wanted >= 0])


def test_rows_that_speak_for_a_class_of_a_forest_are_of_it():
    explainer = made("classes")
    comparables = explainer.similar(NEW, 5, columns=["area"], sign="for", by="weight")
    assert (comparables["target"] == 1).all()
    assert (comparables["weight"] > 0).all()
    against = explainer.similar(NEW, 5, columns=["area"], sign="against", by="leaves")
    assert (against["target"] == 0).all()
    assert against["similarity"].between(0, 1).all()


def test_rows_above_and_below_zero_by_leaves():
    explainer = made("boosting")
    for sign, side in (("for", 1), ("against", -1)):
        comparables = explainer.similar(
            NEW, 3, columns=["area"], by="leaves", sign=sign, distinct=OWNER, adjust=True
        )
        assert (side * comparables["weight"] > 0).all()
        assert (
            not comparables.assign(owner=OWNER[X.index.get_indexer(comparables["row"])])
            .duplicated(["query", "owner"])
            .any()
        )


def test_by_names_the_numbers_of_the_model():
    with pytest.raises(InputError, match=r'by is .*contribution.*expected "leaves" or "weight"'):
        made("boosting").similar(NEW, by="contribution")


def test_forests_and_smoothers_list_their_largest_weights():
    """Their weights follow from shared leaves, or there are none."""
    explainer = made("forest")
    pd.testing.assert_frame_equal(explainer.similar(NEW, 3), explainer.similar(NEW, 3, by="weight"))
    comparables = explainer_of("smoother", "pipeline ridge").similar(
        case_of("smoother", "pipeline ridge").X_new[:2], 3
    )
    assert "similarity" not in comparables
