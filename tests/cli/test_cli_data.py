"""Columns of the tables that commands read: categories, text, names, and tables that cannot be used."""

import io
import json
import re

import catboost as cb
import lightgbm
import numpy as np
import pandas as pd
import pytest
import skops.io
import xgboost as xgb
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import axil
from tests.cli.cli_models import (
    EXPLAIN,
    FEATURES,
    PLAIN,
    QUERY,
    TRAIN,
    X,
    Y,
    lightgbm_model,
    table_of,
)

STATES_CATEGORIES = tuple(map(int, xgb.__version__.split(".")[:2])) >= (3, 1)


def test_categories(run, fails):
    frame = TRAIN[[*FEATURES, "city"]].astype({"city": "category"})
    y = Y + 100 * (TRAIN["city"] == "Rome")
    TRAIN.assign(y=y).to_csv("cities.csv", index=False)
    lightgbm_model(min_data_per_group=5).fit(frame, y).booster_.save_model("city.txt")
    xgb.XGBRegressor(n_jobs=1, n_estimators=4, enable_categorical=True).fit(frame, y).save_model(
        "city.json"
    )
    for name in ("city.txt", "city.json"):
        words = f"explain {name} --train cities.csv --target y --query query.csv --top 2"
        code, out, err = run(f"{words} --categorical city")
        assert code == 0, err
        assert re.search("Oslo|Rome|Lima", out) or "city" in out
        if name == "city.txt" or STATES_CATEGORIES:
            assert run(words)[:2] == (code, out)
        else:
            fails(
                words,
                "Column 'city' of cities.csv holds '",
                "takes numbers",
                "pass --categorical 'city'",
            )
    frame["sex"] = frame["sex"].astype("category")  # numbers, so that nothing shows in the file
    lightgbm_model().fit(frame[FEATURES], y).booster_.save_model("sex.txt")
    assert run("check sex.txt --train cities.csv --target y")[0] == 0
    QUERY.assign(city="Bonn").to_csv("new_city.csv", index=False)
    fails(
        f"{words} --categorical city".replace("query.csv", "new_city.csv"),
        "holds 'Bonn' (row 0), a category that no row of cities.csv has",
    )


def test_text_is_text_in_every_file(run):
    """A file of rows to ask about that has codes of digits alone is read as the training file is."""
    codes = {"Oslo": "007", "Rome": "203", "Lima": "2A"}
    train = TRAIN.assign(kind=TRAIN["city"].map(codes))
    y = Y + 100 * (train["kind"] == "007")
    train.assign(y=y).to_csv("kinds.csv", index=False)
    model = cb.CatBoostRegressor(
        iterations=5, verbose=0, cat_features=["kind"], one_hot_max_size=9, thread_count=1
    )
    model.set_params(allow_writing_files=False).fit(train[[*FEATURES, "kind"]], y).save_model(
        "kind.cbm"
    )
    asked = QUERY.assign(kind="007")
    asked.to_csv("digits.csv", index=False)
    code, out, err = run(
        "explain kind.cbm --train kinds.csv --target y --query digits.csv --top 1 --format csv"
    )
    assert code == 0, err
    found = pd.read_csv(io.StringIO(out)).drop_duplicates("query")["prediction"]
    np.testing.assert_allclose(found, model.predict(asked[[*FEATURES, "kind"]]), rtol=1e-6)


def test_categories_of_text_that_look_like_numbers(run, fails):
    codes = {"Oslo": "00501", "Rome": "60601", "Lima": "60602"}
    train, query = (part.assign(zip=part["city"].map(codes)) for part in (TRAIN, QUERY))
    frame = train[[*FEATURES, "zip"]].astype({"zip": "category"})
    y = Y + 100 * (TRAIN["city"] == "Rome")
    train.assign(y=y).to_csv("zips.csv", index=False)
    query.to_csv("zip_query.csv", index=False)
    lightgbm_model(min_data_per_group=5).fit(frame, y).booster_.save_model("zip.txt")
    xgb.XGBRegressor(n_jobs=1, n_estimators=4, enable_categorical=True).fit(frame, y).save_model(
        "zip.json"
    )
    for name in ("zip.txt", "zip.json")[: 1 + STATES_CATEGORIES]:
        words = (
            f"explain {name} --train zips.csv --target y --query zip_query.csv --top 1 --format csv"
        )
        code, out, err = run(words)
        assert code == 0, err
        assert set(np.unique(pd.read_csv(io.StringIO(out), dtype=str)["zip (query)"])) <= {
            *codes.values()
        }
    query.assign(zip=501).to_csv("short.csv", index=False)
    fails(
        words.replace("zip_query.csv", "short.csv"),
        "holds '501' (row 0), a category that no row of zips.csv has",
    )


def test_labels_are_as_written(run, fails):
    TRAIN.assign(id=[f"{i:05d}" for i in range(len(TRAIN))]).to_csv("padded.csv", index=False)
    words = "lightgbm.txt --train padded.csv --target y --index id"
    changed = table_of(run(f"without {words} --query query.csv --rows 00012 --format csv")[1])
    plain = table_of(
        run(f"without lightgbm.txt {PLAIN} --query query.csv --rows 12 --format csv")[1]
    )
    np.testing.assert_array_equal(changed["after"], plain["after"])
    fails(
        f"without {words} --query query.csv --rows 12",
        "has no row labelled '12'",
        "its labels are 00000, 00001",
    )
    lines = run(f"leverage {words} --json")[1].splitlines()
    assert [json.loads(line)["row"] for line in lines] == [f"{i:05d}" for i in range(20)]


def test_labels_that_are_numbers_may_be_compared_and_are_the_same_in_every_file(run):
    TRAIN.assign(id=range(100, 100 + len(TRAIN))).to_csv("numbers.csv", index=False)
    TRAIN.assign(id=range(100, 100 + len(TRAIN))).to_parquet("numbers.parquet")
    found = [
        run(
            f"without lightgbm.txt --train numbers.{kind} --target y --index id --query query.csv --format csv {rows}"
        )
        for kind in ("csv", "parquet")
        for rows in ("--rows 100,101", "--where id<102")
    ]
    assert {code for code, _, _ in found} == {0}
    assert len({out for _, out, _ in found}) == 1
    words = "lightgbm.txt --train-old numbers.csv --train numbers.parquet --target y --index id --query query.csv"
    code, out, _ = run(f"compare lightgbm.txt {words}")
    assert code == 0
    assert f"{len(TRAIN)} training rows kept" in out


def test_a_pipeline_may_take_text(run):
    text = make_pipeline(OneHotEncoder(), Ridge()).fit(TRAIN[["city"]], Y)
    skops.io.dump(text, "text.skops")
    code, out, _ = run(
        "explain text.skops --trust --train train.csv --target y --query query.csv --top 1"
    )
    assert code == 0
    assert re.search("Oslo|Rome|Lima", out)


@pytest.mark.filterwarnings("ignore::axil.SplitsWarning")
def test_a_label_that_several_rows_share_stands_for_all_of_them(run, fails):
    explainer = axil.Explainer(lightgbm_model().fit(X, Y), X.set_axis(TRAIN["city"]), Y)
    asked = f"lightgbm.txt {PLAIN} --index city --query query.csv --format csv"
    rome = {"rows": ["Rome"]}, f"without {asked} --rows Rome"
    moved = {"targets": {"Rome": 80.0}}, f"what-if {asked} --set Rome=80"
    for question, (given, words) in {explainer.without: rome, explainer.what_if: moved}.items():
        np.testing.assert_allclose(
            table_of(run(words)[1])["after"],
            question(QUERY[FEATURES], **given)["after"],
            rtol=1e-12,
        )
    for words in (
        f"explain {asked}",
        f"find-label-issues lightgbm.txt {PLAIN} --index city --format csv",
    ):
        shared, own = (table_of(run(one)[1]) for one in (words, words.replace(" --index city", "")))
        assert list(shared["row"]) == list(TRAIN["city"].iloc[own["row"]])
        rest = [name for name in own if name not in ("row", "query")]  # features of the very rows
        assert shared[rest].equals(own[rest])
    old_and_new = "lightgbm.txt lightgbm.txt --train-old train.csv --train train.csv --target y"
    fails(
        f"compare {old_and_new} --index city --query query.csv",
        "stands for",
        "training rows of the old explainer",
    )


def test_standard_input(run, fails, monkeypatch):
    words = f"explain lightgbm.txt {PLAIN} --query query.csv --format csv --quiet"
    _, wanted, _ = run(words)
    with open("query.csv") as piped:
        monkeypatch.setattr("sys.stdin", piped)
        assert run(words.replace("query.csv", "-")) == (0, wanted, "")
        fails(words.replace("query.csv", "-"), "- is empty")  # all of it was read


def test_a_model_without_names_takes_the_columns_in_order(run, fails):
    model = lightgbm_model().fit(X.to_numpy(), Y)
    model.booster_.save_model("unnamed.txt")
    words = f"explain unnamed.txt {PLAIN} --query query.csv --top 1 --format csv"
    fails(
        words,
        "Without the target, train.csv has 9 columns",
        "was fitted on 4",
        "--features",
        "--index",
    )
    code, out, err = run(f"{words} --features age,sex,bmi,bp")
    assert (code, err) == (0, "")
    np.testing.assert_allclose(table_of(out)["prediction"], model.predict(QUERY[FEATURES]))
    TRAIN[["bp", "y"]].join(TRAIN[["age"]]).to_csv("few.csv", index=False)
    fails(
        "check unnamed.txt --train few.csv --target y --features age,bp",
        "--features names 2 columns (age, bp)",
    )


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("missing.csv", ["missing.csv does not exist"]),
        (".", ["expected .csv, .tsv or .parquet"]),
        ("empty.csv", ["empty.csv is empty"]),
        ("header.csv", ["header.csv has columns but no rows"]),
        ("semicolons.csv", ["has semicolons between its columns"]),
        ("ragged.csv", ["cannot be read as a table", "line 3"]),
        ("wide.csv", ["more values in its rows than names"]),
        ("latin.csv", ["is not UTF-8 text"]),
        ("text.csv", ["Column 'bmi' of text.csv holds '?' in row 1", "takes numbers"]),
        (
            "text_target.csv",
            ["Column 'y' of text_target.csv (--target) holds 'none' in row 1", "expected numbers"],
        ),
        (
            "gap.csv",
            ["Column 'y' of gap.csv (--target) has no value in 1 of 2 rows, first in row 1"],
        ),
        ("broken.parquet", ["broken.parquet cannot be read as Parquet"]),
        ("table.xlsx", ["ends in '.xlsx'", "expected .csv, .tsv or .parquet"]),
        ("data.csv.gz", ["data.csv.gz"]),
    ],
)
@pytest.mark.usefixtures("damaged")
def test_tables_that_cannot_be_used(fails, name, parts):
    fails(f"check lightgbm.txt --train {name} --target y", *parts)
    if "(--target)" not in parts[0]:
        fails(f"{EXPLAIN} --query {name}", *parts)
        fails(f"influence lightgbm.txt {PLAIN} --validation {name}", *parts)


def test_a_large_field_makes_no_large_message(fails, folder):
    large = "x" * 5_000_000
    TRAIN.astype({"bmi": object}).assign(bmi=[large, *TRAIN["bmi"][1:]]).to_csv(
        folder / "large.csv", index=False
    )
    err = fails(
        "explain lightgbm.txt --train large.csv --target y --query query.csv",
        "'bmi'",
        "characters)",
    )
    assert len(err) < 1000
    TRAIN.rename(columns={"bmi": large}).to_csv(folder / "large.csv", index=False)
    assert (
        len(fails("explain lightgbm.txt --train large.csv --target y --query query.csv", "lacks"))
        < 1000
    )
    assert len(str(axil.InputError("x" * 10**7))) < 5000


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes_that_are_text_where_the_file_keeps_numbers(n_classes, run, fails):
    """LightGBM's file has no names of classes; its estimator numbers them in sorted order."""
    names = np.array(["paid", "default", "late"])[
        np.digitize(Y, np.quantile(Y, np.arange(1, n_classes) / n_classes))
    ]
    model = lightgbm.LGBMClassifier(
        n_estimators=4, num_leaves=4, min_child_samples=5, n_jobs=1, verbose=-1
    )
    model.fit(X, names).booster_.save_model("named.txt")
    TRAIN.assign(y=names).to_csv("named.csv", index=False)
    words = f"named.txt {PLAIN.replace('train.csv', 'named.csv')}"
    code, out, err = run(f"explain {words} --query query.csv --format csv")
    assert code == 0, err
    assert f"0 is 'default', 1 is '{'paid' if n_classes == 2 else 'late'}'" in err
    table = pd.read_csv(io.StringIO(out))
    if n_classes == 3:
        assert sorted(set(table["output"])) == ["default", "late", "paid"]
    row = int(np.flatnonzero(names == "paid")[0])
    code, changed, err = run(f"what-if {words} --query query.csv --set {row}=default --format csv")
    assert code == 0, err
    expected = axil.Explainer(model, X, names).what_if(QUERY[FEATURES], {row: "default"})
    np.testing.assert_allclose(
        pd.read_csv(io.StringIO(changed))["after"], expected["after"], rtol=1e-5
    )
    code, _, err = run(f"refit {words} --set {row}=default --out again.txt")
    assert code == 0, err
    TRAIN.assign(y="one").to_csv("one.csv", index=False)
    fails(
        f"explain {words.replace('named.csv', 'one.csv')} --query query.csv",
        "holds 1 different texts",
        f"has {n_classes} classes",
    )


@pytest.mark.parametrize(
    "command", ["explain", "similar", "what-if --set 3=40", "without --rows 3"]
)
def test_models_of_several_quantiles_take_one_column(command, run, fails):
    loss = "MultiQuantile:alpha=0.1,0.5,0.9"
    model = cb.CatBoostRegressor(
        iterations=4, depth=3, verbose=0, allow_writing_files=False, loss_function=loss
    )
    model.fit(X, Y).save_model("quantiles.cbm")
    name, *options = command.split(maxsplit=1)
    words = f"{name} quantiles.cbm {PLAIN} --query query.csv {' '.join(options)}"
    code, out, err = run(words)
    assert code == 0, err
    assert out
    fails(words.replace("--target y", "--target y,y2"), "3 quantiles of one column")
