"""axil without and axil what-if: predictions without rows and with other targets."""

import json
import re

import joblib
import lightgbm
import numpy as np
import pandas as pd
import xgboost as xgb
from sklearn.ensemble import RandomForestClassifier

import axil
from tests.cli.cli_models import (
    DATA,
    FEATURES,
    MODELS,
    N_QUERY,
    N_TRAIN,
    QUERY,
    TRAIN,
    X,
    Y,
    table_of,
)


def test_without(run):
    words = f"without lightgbm.txt {DATA.replace('--weights w ', '')} --query query.csv"
    code, out, _ = run(f"{words} --rows p003,p077 --format csv --out all.csv")
    assert code == 0
    explainer = axil.Explainer(MODELS["lightgbm.txt"][0], X.set_axis(TRAIN["id"]), Y)
    expected = explainer.without(QUERY[FEATURES].set_axis(QUERY["id"]), ["p003", "p077"])
    pd.testing.assert_frame_equal(table_of(out), expected, check_dtype=False, rtol=1e-9)
    pd.testing.assert_frame_equal(pd.read_csv("all.csv"), expected, check_dtype=False, rtol=1e-9)
    TRAIN.assign(drop=TRAIN["id"].isin(["p003", "p077"])).to_csv("marked.csv", index=False)
    marked = words.replace("train.csv", "marked.csv")
    assert run(f"{marked} --where drop --format csv")[:2] == (0, out)
    code, out, _ = run(f"{words} --rows p003")
    assert code == 0
    assert f"{N_QUERY} predictions without 1 of {N_TRAIN} training rows\n" in out
    assert re.search(r"^query +before +after +change\n", out, re.M)
    assert len(re.findall(r"^p\d{3} ", out, re.M)) == N_QUERY
    assert out.endswith("\nExact with the fitted structure fixed; not a retraining.\n")


def test_without_rows_by_number_and_with_several_outputs(run):
    model = xgb.XGBRegressor(n_jobs=1, n_estimators=4, max_depth=2, base_score=0.5).fit(
        X, TRAIN[["y", "y2"]]
    )
    model.save_model("own.json")
    code, out, _ = run(
        "without own.json --train train.csv --target y,y2 --query train.csv --rows 149 --format json"
    )
    assert code == 0
    expected = axil.Explainer(model, X, TRAIN[["y", "y2"]]).without(X, [149])
    np.testing.assert_allclose(
        [json.loads(line)["change"] for line in out.splitlines()], expected["change"], rtol=1e-9
    )
    code, out, _ = run(
        "without own.json --train train.csv --target y,y2 --query train.csv --rows 149"
    )
    assert code == 0
    assert f"{2 * N_TRAIN - 20} more lines: --out FILE" in out


def test_what_if(run):
    words = f"what-if lightgbm.txt {DATA.replace('--weights w ', '')} --query query.csv"
    code, out, _ = run(f"{words} --set p003=80 --set 'p010, p077=140.5' --format csv")
    assert code == 0
    explainer = axil.Explainer(MODELS["lightgbm.txt"][0], X.set_axis(TRAIN["id"]), Y)
    asked = QUERY[FEATURES].set_axis(QUERY["id"])
    expected = explainer.what_if(asked, {"p003": 80.0, "p010": 140.5, "p077": 140.5})
    pd.testing.assert_frame_equal(table_of(out), expected, check_dtype=False, rtol=1e-9)
    code, out, _ = run(f"{words} --set p003=80")
    assert f"{N_QUERY} predictions with 1 of {N_TRAIN} targets changed\n" in out
    assert re.search(r"^query +before +after +change\n", out, re.M)


def test_what_if_of_classes_and_of_several_outputs(run, fails):
    forest = RandomForestClassifier(4, random_state=0).fit(X, TRAIN["kind"])
    joblib.dump(forest, "classes.joblib")
    words = (
        "what-if classes.joblib --trust --train train.csv --target kind --query query.csv --json"
    )
    other = "low" if TRAIN["kind"][3] == "high" else "high"
    code, out, _ = run(f"{words} --set 3={other}")
    assert code == 0
    expected = axil.Explainer(forest, X, TRAIN["kind"]).what_if(QUERY[FEATURES], {3: other})
    found = pd.DataFrame([json.loads(line) for line in out.splitlines()])
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-9)
    fails(f"{words} --set 3=medium", "--set gives the class 'medium'; the model has high, low")
    both = TRAIN[["y", "y2"]]
    model = xgb.XGBRegressor(n_jobs=1, n_estimators=4, max_depth=2, base_score=0.5).fit(X, both)
    model.save_model("own.json")
    words = "what-if own.json --train train.csv --target y,y2 --query query.csv --format csv"
    code, out, _ = run(f"{words} --set 3=80:90")
    assert code == 0
    expected = axil.Explainer(model, X, both).what_if(QUERY[FEATURES], {3: [80.0, 90.0]})
    np.testing.assert_allclose(table_of(out)["change"], expected["change"], rtol=1e-9)
    fails(
        f"{words} --set 3=80", "--set gives the target '80'; expected 2 numbers, such as 12=80:90"
    )


def test_refit(run, fails):
    words = f"refit lightgbm.txt {DATA.replace('--weights w ', '')}"
    TRAIN.iloc[:5].assign(id=[f"n{i}" for i in range(5)]).to_csv("more.csv", index=False)
    code, out, _ = run(f"{words} --rows p003,p077 --set p010=80 --add more.csv --out new.txt")
    assert code == 0
    assert (
        f"new.txt: fitted again at the same splits to {N_TRAIN + 3} rows, {N_TRAIN} before" in out
    )
    explainer = axil.Explainer(MODELS["lightgbm.txt"][0], X.set_axis(TRAIN["id"]), Y)
    again = explainer.refit(drop=["p003", "p077"], targets={"p010": 80.0}, add=(X[:5], Y[:5]))
    predictions = lightgbm.Booster(model_file="new.txt").predict(QUERY[FEATURES])
    np.testing.assert_allclose(predictions, again.model.predict(QUERY[FEATURES]), rtol=1e-12)
    assert "nothing to change" in fails(f"{words} --out new.txt")
    assert "does not end in .txt" in fails(f"{words} --rows p003 --out new.json")


def test_refit_of_other_formats(run):
    for name, ending in (
        ("xgboost.json", "json"),
        ("catboost.cbm", "cbm"),
        ("ridge.skops", "skops"),
    ):
        code, out, error = run(
            f"refit {name} {DATA.replace('--weights w ', '')} --set p010=80 --out new.{ending}"
        )
        assert code == 0, error
        assert "fitted again at the same splits" in out
        assert run(f"check new.{ending}")[0] == 0


def test_compare_of_files_with_other_categories(run):
    """The second file has a category more, and lacks one of the first."""
    rng = np.random.default_rng(0)
    codes, size = rng.integers(0, 5, 120), rng.normal(size=120)
    zips = np.array(["00123", "98002", "98003", "98004", "98005"])[codes]
    whole = pd.DataFrame(
        {"id": [f"h{i}" for i in range(120)], "zip": zips, "size": size, "y": 10.0 * codes + size}
    )
    new = whole[whole["zip"] != "98003"].iloc[10:].copy()
    new.iloc[-12:, 1] = "98006"
    settings = {"n_estimators": 3, "min_child_samples": 5, "min_data_per_group": 2, "verbose": -1}
    for name, rows in (("old", whole), ("new", new)):
        rows.to_csv(f"{name}.csv", index=False)
        X_train = rows[["zip", "size"]].astype({"zip": "category"})
        lightgbm.LGBMRegressor(**settings).fit(X_train, rows["y"]).booster_.save_model(
            f"{name}.txt"
        )
    new.head(5).to_csv("asked.csv", index=False)
    words = "compare old.txt new.txt --train-old old.csv --train new.csv --target y --index id --query asked.csv --format csv"
    code, out, err = run(words)
    assert code == 0, err
    table = table_of(out)
    np.testing.assert_allclose(table.iloc[:, 4:].sum(axis=1), table["change"], atol=1e-9)
    expected = lightgbm.Booster(model_file="new.txt").predict(
        new.head(5)[["zip", "size"]].astype({"zip": "category"})
    )
    np.testing.assert_allclose(table["after"], expected, rtol=1e-6)
    assert "'98006'" in err  # which the old model takes for a missing value


def test_what_if_of_bounds_of_times(run, fails):
    times = TRAIN["y"].to_numpy()
    train = TRAIN.assign(low=times, high=np.where(times > 200, np.inf, times))
    train.to_csv("times.csv", index=False)
    matrix = xgb.DMatrix(X)
    matrix.set_float_info("label_lower_bound", train["low"])
    matrix.set_float_info("label_upper_bound", train["high"])
    parameters = {"objective": "survival:aft", "max_depth": 3, "nthread": 1}
    model = xgb.train(parameters, matrix, 5)
    model.save_model("times.json")
    words = "what-if times.json --train times.csv --target low,high --query query.csv --format csv"
    code, out, _ = run(f"{words} --set 3=80:inf")
    assert code == 0
    explainer = axil.Explainer(model, X, train[["low", "high"]])
    expected = explainer.what_if(QUERY[FEATURES], {3: (80.0, np.inf)})
    np.testing.assert_allclose(table_of(out)["change"], expected["change"], rtol=1e-9)
    fails(f"{words} --set 3=80", "expected 2 numbers, such as 12=80:90")
    fails(words.replace("low,high", "low,high,y") + " --set 3=80:90", "the bounds of a time")
