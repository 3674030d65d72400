"""axil intervals: the tables of Predictive.interval."""

import base64
import json
import re
import zlib
from pathlib import Path

import joblib
import lightgbm as lgb
import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import cross_val_predict

import axil
from tests.cli.cli_models import (
    DATA,
    FEATURES,
    MODELS,
    N_QUERY,
    N_TRAIN,
    QUERY,
    TRAIN,
    VALIDATION,
    X,
    Y,
    lightgbm_model,
    table_of,
)


def test_intervals(run):
    """The tables of Predictive.interval, whichever way the errors are known."""
    labelled = [part.set_index("id") for part in (TRAIN, QUERY, VALIDATION)]
    train, query, held = (part[FEATURES] for part in labelled)
    explainer = axil.Explainer(MODELS["lightgbm.txt"][0], train, labelled[0]["y"])
    words = f"intervals lightgbm.txt {DATA.replace('--weights w ', '')} --query query.csv"
    code, out, _ = run(f"{words} --calibration validation.csv --format csv --out all.csv")
    assert code == 0
    expected = explainer.calibrate(held, labelled[2]["y"]).interval(query)
    pd.testing.assert_frame_equal(table_of(out), expected, check_dtype=False, rtol=1e-9)
    pd.testing.assert_frame_equal(pd.read_csv("all.csv"), expected, check_dtype=False, rtol=1e-9)

    folds = cross_val_predict(lightgbm_model(), X, Y)
    TRAIN.assign(folds=folds).to_csv("folds.csv", index=False)
    more = f"{words.replace('train.csv', 'folds.csv')} --out-of-fold folds --confidence-level 0.8 --skewed"
    code, out, _ = run(f"{more} --format csv --out page.html")
    assert code == 0
    expected = explainer.calibrate(out_of_fold=folds).interval(query, 0.8, symmetric=False)
    pd.testing.assert_frame_equal(table_of(out), expected, check_dtype=False, rtol=1e-9)

    packed = re.search(r'id="data">(.*?)</script>', Path("page.html").read_text(encoding="utf-8"))[
        1
    ]
    shown = json.loads(zlib.decompress(base64.b64decode(packed)))["intervals"]
    np.testing.assert_allclose(
        shown["upper"], [expected["upper"]], rtol=1e-6
    )  # the page has seven digits

    code, out, _ = run(more)
    assert code == 0
    assert (
        f"80 % intervals of {N_QUERY} predictions; {N_TRAIN} calibration rows, out-of-fold\n" in out
    )
    assert re.search(r"^query +prediction +lower +upper +scale +uncertainty_rank\n", out, re.M)
    assert len(re.findall(r"^p\d{3} ", out, re.M)) == N_QUERY
    assert out.endswith("not at every row.\n")


def test_sets_of_a_classifier_in_place_of_intervals(run, fails):
    model = lgb.LGBMClassifier(n_estimators=5, verbose=-1).fit(X, Y > 140)
    model.booster_.save_model("dear.txt")
    TRAIN.assign(y=(Y > 140).astype(int)).to_csv("labels.csv", index=False)
    labels = (VALIDATION["y"] > 140).astype(int)
    VALIDATION.assign(y=labels).to_csv("held.csv", index=False)
    given = "dear.txt --train labels.csv --target y --features age,sex,bmi,bp --query query.csv"
    fails(f"intervals {given} --calibration held.csv", "predict_set")
    fails(f"predict-set {given}", "nothing to calibrate with")
    explainer = axil.Explainer(model.booster_, X, (Y > 140).astype(int))
    sets = explainer.calibrate(VALIDATION[FEATURES], labels)
    for words, options in (
        ("--confidence-level 0.8 --method aps", {"confidence_level": 0.8, "method": "aps"}),
        ("--by-class", {"per_class": True}),
    ):
        code, out, _ = run(f"predict-set {given} --calibration held.csv {words} --format csv")
        assert code == 0
        expected = sets.predict_set(QUERY[FEATURES], **options).astype({"in_set": str})
        pd.testing.assert_frame_equal(table_of(out), expected, check_dtype=False, rtol=1e-9)


def test_intervals_of_a_forest_and_of_several_outputs(run):
    forest = RandomForestRegressor(20, random_state=0).fit(X, TRAIN[["y", "y2"]])
    joblib.dump(forest, "two.joblib")
    explainer = axil.Explainer(forest, X, TRAIN[["y", "y2"]])
    words = "intervals two.joblib --trust --train folds.csv --target y,y2 --query query.csv --features age,sex,bmi,bp"
    TRAIN.assign(f=Y + 1, f2=TRAIN["y2"] - 1).to_csv("folds.csv", index=False)
    given = {
        "": {},
        " --out-of-fold f,f2": {"out_of_fold": np.column_stack([Y + 1, TRAIN["y2"] - 1])},
    }
    for option, names in given.items():
        code, out, _ = run(f"{words}{option} --format csv")
        assert code == 0
        expected = explainer.calibrate(**names).interval(QUERY[FEATURES])
        pd.testing.assert_frame_equal(table_of(out), expected, check_dtype=False, rtol=1e-9)
