"""axil find-label-issues and axil influence: labels and rows that do harm."""

import re

import joblib
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from catboost import CatBoostClassifier
from sklearn.ensemble import RandomForestClassifier

import axil
from tests.cli.cli_models import (
    DATA,
    FEATURES,
    MODELS,
    N_TRAIN,
    PLAIN,
    TRAIN,
    VALIDATION,
    X,
    Y,
    table_of,
)


def test_influence(run):
    code, out, _ = run(
        f"influence lightgbm.txt {PLAIN} --validation validation.csv --top 7 --format csv --out "
        "all.csv"
    )
    assert code == 0
    found = table_of(out)
    explainer = axil.Explainer(MODELS["lightgbm.txt"][0], X, Y)
    expected = explainer.influence(VALIDATION[FEATURES], VALIDATION["y"])
    assert len(found) == 7
    pd.testing.assert_frame_equal(
        found[list(expected.columns)], expected.head(7), check_dtype=False, rtol=1e-9
    )
    np.testing.assert_array_equal(found["age (row)"], X["age"].iloc[found["row"]])
    assert len(pd.read_csv("all.csv")) == N_TRAIN
    code, out, _ = run(
        f"influence lightgbm.txt {DATA.replace('--weights w ', '')} --validation validation.csv "
        "--top 3"
    )
    assert code == 0
    assert re.search(r"^row +target +gradient +corrected +gain +age", out, re.M)
    assert len(re.findall(r"^p\d{3} ", out, re.M)) == 3


def test_find_label_issues(run):
    code, out, _ = run(f"find-label-issues lightgbm.txt {PLAIN} --top 7 --format csv --out all.csv")
    assert code == 0
    explainer = axil.Explainer(MODELS["lightgbm.txt"][0], X, Y)
    expected, found = explainer.find_label_issues(), table_of(out)
    assert list(found["is_label_issue"]) == [
        str(mark) for mark in expected["is_label_issue"].head(7)
    ]
    numbers = [name for name in expected.columns if name != "is_label_issue"]
    pd.testing.assert_frame_equal(
        found[numbers], expected[numbers].head(7), check_dtype=False, rtol=1e-9
    )
    np.testing.assert_array_equal(found["age (row)"], X["age"].iloc[found["row"]])
    assert len(pd.read_csv("all.csv")) == N_TRAIN
    code, out, _ = run(
        f"find-label-issues lightgbm.txt {PLAIN} --validation validation.csv --top 3"
    )
    assert code == 0
    assert (
        f"{expected['is_label_issue'].sum()} of {N_TRAIN} labels look wrong; the most suspicious "
        "first" in out
    )
    assert re.search(
        r"^row +is_label_issue +label_quality +given_label +expected_label +gain +residual",
        out,
        re.M,
    )


def test_label_issues_of_ones_own_predictions(run):
    TRAIN.assign(unseen=Y + 1.0).to_csv("more.csv", index=False)
    words = PLAIN.replace("train.csv", "more.csv")
    code, out, err = run(
        f"find-label-issues lightgbm.txt {words} --out-of-fold unseen --format csv"
    )
    assert code == 0
    assert "unseen" not in err  # which is not left out
    np.testing.assert_allclose(table_of(out)["residual"], -1.0)
    code, _, err = run(f"find-label-issues lightgbm.txt {words} --out-of-fold kind")
    assert code == 2
    assert "--out-of-fold" in err


def test_label_issues_of_classes_and_of_pushes(run):
    joblib.dump(RandomForestClassifier(4, random_state=0).fit(X, TRAIN["kind"]), "classes.joblib")
    code, out, _ = run(
        "find-label-issues classes.joblib --trust --train train.csv --target kind --top 2"
    )
    assert code == 0
    assert re.search(
        r"^row +is_label_issue +label_quality +given_label +expected_label +probability", out, re.M
    )
    model = lgb.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1).fit(X, TRAIN["kind"])
    joblib.dump(model, "pushed.joblib")
    words = "find-label-issues pushed.joblib --trust --train train.csv --target kind --top 2"
    code, out, _ = run(words)
    assert code == 0
    assert re.search(
        r"^row +is_label_issue +label_quality +given_label +expected_label +probability", out, re.M
    )
    code, _, err = run(f"{words} --validation validation.csv")
    assert code == 2
    assert "are for models with exact weights" in err
    assert "X_val is the features of --validation" in err


CLASSIFIERS = {
    "classes.txt": lambda y: lgb.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1).fit(X, y),
    "classes.json": lambda y: xgb.XGBClassifier(n_estimators=5, n_jobs=1).fit(X, y),
    "classes.cbm": lambda y: CatBoostClassifier(
        iterations=5, thread_count=1, verbose=0, allow_writing_files=False, random_seed=0
    ).fit(X, y),
}


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("file", CLASSIFIERS)
def test_the_label_issues_of_a_file_is_that_of_the_classifier(file, n_classes, run):
    """A file may hold less of a classifier than its Python object does, such as no names of classes."""
    classes = pd.qcut(Y, n_classes, labels=False)
    model = CLASSIFIERS[file](classes)
    (model.booster_ if file == "classes.txt" else model).save_model(file)
    TRAIN.assign(y=classes).to_csv("labels.csv", index=False)
    code, _, err = run(
        f"find-label-issues {file} {PLAIN.replace('train.csv', 'labels.csv')} --out all.csv"
    )
    assert code == 0, err
    found, expected = pd.read_csv("all.csv"), axil.Explainer(model, X, classes).find_label_issues()
    pd.testing.assert_frame_equal(
        found[list(expected.columns)], expected, check_dtype=False, rtol=1e-9
    )
