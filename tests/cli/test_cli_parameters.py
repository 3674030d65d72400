"""Options of several commands: pages, sums, classes, groups, stability and files of weights."""

import io
import json
import re

import joblib
import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.ensemble import RandomForestClassifier

import axil
from tests.cli.cli_models import (
    DATA,
    EXPLAIN,
    FEATURES,
    MODELS,
    PLAIN,
    QUERY,
    TRAIN,
    VALIDATION,
    X,
    Y,
    lightgbm_model,
)

ASKED = QUERY[FEATURES]


@pytest.fixture(scope="module")
def explainer():
    return axil.Explainer(MODELS["lightgbm.txt"][0], X, Y)


def packed(text):
    return re.search(r'id="data">(.*?)</script>', text, re.S)[1]


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("explain", {}),
        ("group --by city", {"groups": TRAIN["city"].to_numpy()}),
        (
            "intervals --calibration validation.csv",
            {"interval": (VALIDATION[FEATURES], VALIDATION["y"])},
        ),
    ],
)
def test_pages_have_the_settings_of_to_html(run, explainer, folder, command, more):
    command, _, rest = command.partition(" ")
    words = "--actual --title 'Three patients' --unit mg --target-name progression --columns bmi,age --map bmi,bp --top 7"
    code, _, err = run(
        f"{command} lightgbm.txt {PLAIN} --query query.csv {rest} --out page.html {words}"
    )
    assert code == 0, err
    if "interval" in more:
        more = {"interval": explainer.calibrate(*more["interval"])}
    expected = explainer.to_html(
        ASKED,
        y=QUERY["y"],
        title="Three patients",
        unit="mg",
        target="progression",
        columns=["bmi", "age"],
        map=("bmi", "bp"),
        k=7,
        **more,
    )
    assert packed((folder / "page.html").read_text(encoding="utf-8")) == packed(expected)


def test_settings_of_pages_without_a_page_are_refused(fails):
    for words in ("--title T", "--actual", "--sigma none"):
        fails(
            f"{EXPLAIN} --query query.csv {words}",
            f"{words.split()[0]} is ",
            "none is written",
            "--out FILE.html",
        )
    fails(
        f"group lightgbm.txt {PLAIN} --query query.csv --by city --top 3",
        "--top is 3",
        "none is written",
    )


def test_sums_of_predictions(run, explainer):
    QUERY.assign(c=[1, -1, 0]).to_csv("coefficients.csv", index=False)
    for given, coefficients in (("sum", "sum"), ("c", [1, -1, 0])):
        code, out, err = run(
            f"{EXPLAIN} --query coefficients.csv --coefficients {given} --top 2 --format csv"
        )
        assert code == 0, err
        expected = explainer.aggregate(ASKED, coefficients).top(2)
        found = pd.read_csv(io.StringIO(out))
        np.testing.assert_allclose(found["contribution"], expected["contribution"], rtol=1e-9)


def test_one_line_for_all_classes(run):
    forest = RandomForestClassifier(4, random_state=0).fit(X, TRAIN["kind"])
    joblib.dump(forest, "kinds.joblib")
    expected = axil.Explainer(forest, X, TRAIN["kind"]).top(ASKED, 2, per_class=False)
    for command in ("explain", "similar --columns bmi"):
        words = f"{command} kinds.joblib --trust --train train.csv --target kind --query query.csv --no-per-class --top 2"
        code, out, err = run(f"{words} --format csv")
        assert code == 0, err
        found = pd.read_csv(io.StringIO(out))
        assert found["row"].tolist() == expected["row"].tolist()
        assert found["target"].tolist() == expected["target"].tolist()
        code, out, err = run(words)
        assert code == 0, err
    assert re.search(
        "predicted (high|low), probability ",
        run(words.replace("similar --columns bmi", "explain"))[1],
    )


def test_the_title_says_which_rows_are_listed(run):
    words = f"lightgbm.txt {PLAIN} --query query.csv"
    assert "10 training rows that share most leaves with each" in run(f"similar {words}")[1]
    assert "1 training row that shares most leaves with each" in run(f"similar {words} --top 1")[1]
    assert "of largest weight in each" in run(f"similar {words} --by weight")[1]


def test_intervals_within_groups(run, explainer):
    words = f"intervals lightgbm.txt {PLAIN} --query query.csv --calibration validation.csv --confidence-level 0.7"
    code, out, err = run(f"{words} --groups kind --method exact --format csv")
    assert code == 0, err
    predictive = explainer.calibrate(
        VALIDATION[FEATURES], VALIDATION["y"], groups=VALIDATION["kind"].to_numpy(), method="exact"
    )
    expected = predictive.interval(ASKED, 0.7, groups=QUERY["kind"].to_numpy())
    np.testing.assert_allclose(pd.read_csv(io.StringIO(out))["upper"], expected["upper"], rtol=1e-9)


def test_weights_of_refits(run):
    """Other weights of the training rows, and those of rows that are added, out of their files."""
    lightgbm_model().fit(X, Y, sample_weight=TRAIN["w"]).booster_.save_model("weighted.txt")
    TRAIN.assign(v=1.0 / TRAIN["w"]).to_csv("weighted.csv", index=False)
    more = VALIDATION[:5].assign(v=1.0)
    more.to_csv("more.csv", index=False)
    words = f"refit weighted.txt {DATA.replace('train.csv', 'weighted.csv')} --rows p003 --add more.csv --sample-weight v"
    code, out, err = run(f"{words} --out new.txt")
    assert code == 0, err
    assert "154 rows, 150 before; 1 dropped" in out
    labelled = X.set_axis(TRAIN["id"])
    own = axil.Explainer(
        lightgbm_model().fit(labelled, Y, sample_weight=TRAIN["w"]),
        labelled,
        Y,
        sample_weight=TRAIN["w"],
    )
    again = own.refit(
        drop=["p003"],
        add=(more[FEATURES], more["y"], more["w"]),
        sample_weight=1.0 / TRAIN["w"].to_numpy(),
    )
    predictions = lightgbm.Booster(model_file="new.txt").predict(ASKED)
    np.testing.assert_allclose(predictions, again.model.predict(ASKED), rtol=1e-9)


def test_refits(run, fails):
    joblib.dump(lightgbm_model().fit(X, Y), "estimator.joblib")
    words = f"stability estimator.joblib --trust {PLAIN} --query query.csv --n 3 --random-state 5"
    code, out, err = run(f"{words} --format csv --confidence-level 0.5")
    assert code == 0, err
    expected = axil.stability(lightgbm_model(), X, Y, ASKED, n=3, random_state=5)
    pd.testing.assert_frame_equal(
        pd.read_csv(io.StringIO(out)),
        expected.table(0.5),
        check_dtype=False,
        check_names=False,
        rtol=1e-9,
    )
    assert "3 refits to sampled rows, 3 predictions" in run(words)[1]
    fails(
        words.replace("estimator.joblib --trust", "lightgbm.txt"),
        "not the settings",
        ".skops or .joblib",
    )
    page = (
        f"explain estimator.joblib --trust {PLAIN} --query query.csv --out page.html --stability 3"
    )
    assert run(page)[0] == 0
    code, _, err = run(
        f"report estimator.joblib --trust {PLAIN} --query query.csv --out retrained --stability 3"
    )
    assert code == 0, err


def test_write(run, fails, explainer):
    words = f"write lightgbm.txt {PLAIN} --query query.csv"
    code, out, err = run(f"{words} --out weights.parquet")
    assert code == 0, err
    assert "3 predictions by 150 training rows are in weights.parquet" in out
    found = np.stack(pd.read_parquet("weights.parquet")["weights"])
    np.testing.assert_allclose(found, explainer(ASKED).weights, rtol=1e-12)
    fails(f"{words} --out weights.csv", ".parquet or .zarr")


def test_arrays_of_several_outputs_name_them(run):
    both = TRAIN[["y", "y2"]]
    model = xgb.XGBRegressor(n_jobs=1, n_estimators=3, max_depth=2, base_score=0.5).fit(X, both)
    model.save_model("both.json")
    words = "--train train.csv --target y,y2"
    code, out, err = run(f"sensitivity both.json {words} --query query.csv --rows 3,40 --json")
    assert code == 0, err
    lines = [json.loads(line) for line in out.splitlines()]
    expected = axil.Explainer(model, X, both).jacobian.sensitivity(ASKED, [3, 40])
    assert expected.shape == (3, 2, 2)
    for line in lines:
        weight = expected[line["query"], line["output"], [3, 40].index(line["row"])]
        assert line["weight"] == pytest.approx(weight, rel=1e-9, abs=1e-15)
    code, out, err = run(f"degrees-of-freedom both.json {words} --json")
    assert code == 0, err
    assert [json.loads(line)["output"] for line in out.splitlines()] == [0, 1]
