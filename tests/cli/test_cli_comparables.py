"""axil similar and axil report: comparables in a table and on pages."""

import io
import re
from pathlib import Path

import lightgbm as lgb
import pandas as pd
import pytest

import axil
from axil.errors import counted
from tests.cli.cli_models import (
    FEATURES,
    MODELS,
    N_QUERY,
    N_TRAIN,
    QUERY,
    RNG,
    TRAIN,
    VALIDATION,
    X,
    Y,
)

SOLD = pd.Timestamp("2022-01-01") + pd.to_timedelta(RNG.integers(0, 900, N_TRAIN + N_QUERY), "D")
PLACES = pd.DataFrame(
    {
        "sold": SOLD.strftime("%Y-%m-%d"),
        "lat": RNG.normal(50, 0.1, len(SOLD)),
        "lon": RNG.normal(8, 0.1, len(SOLD)),
        "recent": SOLD > "2023",
    }
)
SALES, HOMES = TRAIN.join(PLACES), QUERY.join(PLACES.iloc[N_TRAIN:].reset_index(drop=True))
SIMILAR = "lightgbm.txt --train sales.csv --target y --index id --query homes.csv"


@pytest.fixture
def _sales():
    SALES.to_csv("sales.csv", index=False)
    HOMES.to_csv("homes.csv", index=False)


def sold_explainer():
    sales, homes = SALES.set_index("id", drop=False), HOMES.set_index("id", drop=False)
    return axil.Explainer(MODELS["lightgbm.txt"][0], sales[FEATURES], sales["y"]), sales, homes


@pytest.mark.usefixtures("_sales")
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_similar(run, monkeypatch, suffix):
    monkeypatch.setattr("axil.cli.comparables.QUERIES_AT_A_TIME", 2)  # queries at a time, of three
    read = {"csv": pd.read_csv, "parquet": pd.read_parquet}[suffix]
    explainer, sales, homes = sold_explainer()
    code, out, _ = run(f"similar {SIMILAR} --out found.{suffix}")
    assert code == 0
    assert f"{10 * N_QUERY} comparables of {N_QUERY} predictions are in found.{suffix}.\n" in out
    expected = explainer.similar(homes[FEATURES])
    pd.testing.assert_frame_equal(read(f"found.{suffix}"), expected, check_dtype=False, rtol=1e-9)

    more = "--top 4 --adjust --sign for --within sold,1Y --distinct city --columns bmi,sold,city --among 'age >= 30'"
    code, _, err = run(f"similar {SIMILAR} --out found.{suffix} {more}")
    assert code == 0
    assert not re.search(
        r"no features of the model: .*\b(sold|city)\b", err
    )  # which are in the table
    beside = [
        frame[["city"]].assign(sold=pd.to_datetime(frame["sold"])) for frame in (sales, homes)
    ]
    expected = explainer.similar(
        homes[FEATURES],
        4,
        columns=["bmi", "sold", "city"],
        adjust=True,
        sign="for",
        within=("sold", "1Y"),
        distinct="city",
        beside=beside,
        among=(sales["age"] >= 30).to_numpy(),
    )
    found = read(f"found.{suffix}")
    dates = [name for name in found if name.startswith("sold")]
    found[dates] = found[dates].apply(pd.to_datetime)
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-9)


@pytest.mark.usefixtures("_sales")
def test_rows_that_may_be_listed(run):
    explainer, sales, homes = sold_explainer()
    for text, mask in {
        "recent": sales["recent"],
        "sold>=2023-06-01": sales["sold"] >= "2023-06-01",
        "city != Oslo": sales["city"] != "Oslo",
        "age<40": sales["age"] < 40,
    }.items():
        assert run(f"similar {SIMILAR} --out found.csv --columns bmi --among '{text}'")[0] == 0
        expected = explainer.similar(homes[FEATURES], columns=["bmi"], among=mask.to_numpy())
        pd.testing.assert_frame_equal(
            pd.read_csv("found.csv"), expected, check_dtype=False, rtol=1e-9
        )


@pytest.mark.usefixtures("_sales")
def test_no_row_meets_the_conditions(run):
    HOMES.assign(bmi=1e6).to_csv("homes.csv", index=False)
    code, out, err = run(f"similar {SIMILAR} --within bmi,1")
    assert code == 0
    assert "No training row meets the conditions for 2 of 2 rows of X" in err
    assert (
        f"{counted(N_QUERY - 2, 'more prediction')} may have some: --out FILE or --format csv lists them."
        in out
    )
    assert "has them all" not in out
    code, out, _ = run(f"report {SIMILAR} --within bmi,1 --out without")
    assert code == 0
    assert f"No training row meets the conditions for {N_QUERY} of the new pages" in out


@pytest.mark.usefixtures("_sales")
def test_rows_before_a_date_and_suspects(run):
    explainer, sales, homes = sold_explainer()
    dates = [
        pd.DataFrame({name: pd.to_datetime(frame["sold"])})
        for name, frame in (("sold", sales), ("valued", homes))
    ]
    HOMES.rename(columns={"sold": "valued"}).to_csv("homes.csv", index=False)
    for words, options in (
        ("--within sold,1Y --asof 2023-03-01", {"within": ("sold", "1Y"), "asof": "2023-03-01"}),
        ("--within sold --asof valued", {"within": "sold", "asof": "valued"}),
        ("--within age --asof 50", {"within": "age", "asof": 50}),
        ("--suspects mark", {"suspects": "mark"}),
        ("--by leaves --sign for", {"by": "leaves", "sign": "for"}),
        ("--by leaves --tree-weights error", {"by": "leaves", "tree_weights": "error"}),
        ("--by weight --sign for", {"by": "weight", "sign": "for"}),
        ("--suspects drop", {"suspects": "drop"}),
    ):
        code, _, _ = run(f"similar {SIMILAR} --out found.csv --columns bmi {words}")
        assert code == 0
        expected = explainer.similar(homes[FEATURES], columns=["bmi"], beside=dates, **options)
        pd.testing.assert_frame_equal(
            pd.read_csv("found.csv"), expected, check_dtype=False, rtol=1e-9
        )
        assert len(expected)


@pytest.mark.usefixtures("_sales")
def test_report(run):
    words = f"report {SIMILAR} --out pages --top 3 --columns city,sold,bmi --map lat,lon,miles --within sold,2Y --unit kg"
    words += " --suspects drop --asof 2024-01-01 --by leaves"
    words += " --row-name patients --query-name patient --names bmi=Weight --search city"
    words += " --calibration validation.csv --confidence-level 0.8"
    words += " --feature-groups body=bmi,age"
    code, out, _ = run(words)
    assert code == 0
    assert f"{N_QUERY} pages, {N_QUERY} of them new. Begin with {Path('pages/index.html')}\n" in out
    explainer, sales, homes = sold_explainer()
    beside = [
        frame[["city", "lat", "lon"]].assign(sold=pd.to_datetime(frame["sold"]))
        for frame in (sales, homes)
    ]
    held = VALIDATION.set_index("id")
    explainer.report(
        homes[FEATURES],
        "wanted",
        k=3,
        columns=["city", "sold", "bmi"],
        map=("lat", "lon", "miles"),
        within=("sold", "2Y"),
        asof="2024-01-01",
        suspects="drop",
        by="leaves",
        unit="kg",
        rows="patients",
        query="patient",
        target="y",
        names={"bmi": "Weight"},
        feature_groups={"body": ["bmi", "age"]},
        search=["city"],
        interval=explainer.calibrate(held[FEATURES], held["y"]),
        confidence_level=0.8,
        beside=beside,
    )
    for path in Path("wanted").rglob("*.*"):
        assert Path("pages", path.relative_to("wanted")).read_text(
            encoding="utf-8"
        ) == path.read_text(encoding="utf-8")
    code, out, _ = run(words)
    assert code == 0
    assert f"{N_QUERY} pages, 0 of them new" in out


@pytest.mark.usefixtures("_sales")
@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (
            "similar --out found.txt",
            ("--out is found.txt; expected a file that ends in .csv, .parquet, .json or .jsonl",),
        ),
        (
            "similar --out found.csv --columns price",
            ("neither sales.csv nor homes.csv has", "sales.csv has"),
        ),
        (
            "similar --out found.csv --within sold",
            ("--within is 'sold'; expected a column and a distance",),
        ),
        ("similar --out found.csv --asof 2023-01-01", ("within is None; expected a column",)),
        ("similar --out found.csv --asof soon --within sold", ("asof is 'soon'; expected a date",)),
        (
            "similar --out found.csv --within city,3Y",
            ("Column 'city' of sales.csv (--within) holds", "2024-03-31"),
        ),
        ("similar --out found.csv --among price>3", ("--among is 'price>3'; expected a column",)),
        (
            "similar --out found.csv --among age",
            ("Column 'age' of sales.csv (--among) holds", "rows to list"),
        ),
        (
            "similar --out found.csv --among age>old",
            ("holds numbers, with 'old'; expected a number",),
        ),
        ("similar --out found.csv --top 0", ("--top is 0",)),
        ("report --out pages2 --map lat", ("map is ['lat']; expected two columns",)),
        ("report --out pages2 --names bmi", ("--names is 'bmi'; expected such as",)),
        ("report --out homes.csv", ("a file; expected a directory",)),
    ],
)
def test_comparables_that_cannot_be_written(fails, words, parts):
    command, rest = words.split(" ", 1)
    fails(f"{command} {SIMILAR} {rest}", *parts)
    assert not Path("found.csv").exists() or Path("found.csv").stat().st_size
    assert not Path("pages2").exists()


def test_a_report_of_a_classifier(run, fails):
    lgb.LGBMClassifier(n_estimators=2, verbose=-1).fit(X, Y > 140).booster_.save_model("dear.txt")
    TRAIN.assign(y=(Y > 140).astype(int)).to_csv("labels.csv", index=False)
    given = "report dear.txt --train labels.csv --target y --features age,sex,bmi,bp"
    code, _, err = run(f"{given} --query query.csv --top 5 --pos-label 0 --out classes")
    assert code == 0, err
    pages = sorted(Path("classes/pages").rglob("*.html"))
    assert len(pages) == N_QUERY
    assert "Of the 5 records most like this case" in pages[0].read_text(encoding="utf-8")
    assert "Probability of 0: " in pages[0].read_text(encoding="utf-8")
    fails(f"{given} --query query.csv --unit kg --out none", "unit is 'kg', which is for reports")


@pytest.mark.usefixtures("_sales")
def test_several_rules_and_adjustments(run):
    explainer, sales, homes = sold_explainer()
    beside = [
        frame[["lat", "lon"]].assign(sold=pd.to_datetime(frame["sold"])) for frame in (sales, homes)
    ]
    within = [("sold", "2Y"), (("lat", "lon"), "30 km"), ("bmi", "25%")]
    options = "--within sold,2Y --within lat,lon,30km --within bmi,25% --asof 2024-01-01 --top 4"
    expected = explainer.similar(
        homes[FEATURES], 4, columns=FEATURES, within=within, asof="2024-01-01", beside=beside
    )
    code, _, err = run(f"similar {SIMILAR} {options} --out found.csv")
    assert code == 0, err
    pd.testing.assert_frame_equal(pd.read_csv("found.csv"), expected, check_dtype=False, rtol=1e-9)
    groups = {"body": ["bmi", "age"]}
    code, _, err = run(
        f"adjustments {SIMILAR} {options} --feature-groups body=bmi,age --out parts.csv"
    )
    assert code == 0, err
    pd.testing.assert_frame_equal(
        pd.read_csv("parts.csv"),
        explainer.adjustments(homes[FEATURES], expected, feature_groups=groups),
        check_dtype=False,
        check_column_type=False,
        rtol=1e-6,
        atol=1e-9,
    )
    for words, message in (
        ("--within sold", "--within is 'sold'"),
        ("--feature-groups body", "--feature-groups is 'body'"),
        ("--at-least 9 --top 3", "at_least is 9"),
    ):
        code, _, err = run(f"adjustments {SIMILAR} {words}")
        assert code == 2
        assert message in err


@pytest.mark.usefixtures("_sales")
def test_ratio_study(run):
    explainer, _, _ = sold_explainer()
    study = axil.ratio_study(
        explainer.model.predict(VALIDATION[FEATURES]),
        VALIDATION["y"],
        by=VALIDATION["city"],
        n_resamples=50,
    )
    words = "--train sales.csv --target y --index id --query validation.csv"
    code, out, err = run(
        f"ratio-study lightgbm.txt {words} --by city --n-resamples 50 --format csv"
    )
    assert code == 0, err
    found = pd.read_csv(io.StringIO(out))
    pd.testing.assert_frame_equal(found, study.table, check_dtype=False, rtol=1e-6)
