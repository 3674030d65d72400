"""Commands on a saved explainer: the answers of the training data, without it."""

import io

import catboost
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb

import axil
from tests.cli.cli_models import FEATURES, MODELS, PLAIN, TRAIN, X, Y, lightgbm_model
from tests.cli.cli_models import QUERY as QUERY_ROWS

SAVED = "--explainer saved.npz"
QUERY = "--query query.csv"


@pytest.fixture(autouse=True, scope="module")
def _saved(folder):
    axil.Explainer(MODELS["lightgbm.txt"][0], X, Y).save(folder / "saved.npz")


@pytest.mark.parametrize(
    "words",
    [
        "concentration",
        "sensitivity --rows 3,40",
        "without --rows 3,40",
        "removal --top 3",
        "standard-error --sigma 7",
        "explain --top 4",
        "explain --mean-by age",
    ],
)
def test_answers_are_those_of_the_training_data(run, words):
    name, _, more = words.partition(" ")
    answers = []
    for fit in (PLAIN, SAVED):
        code, out, err = run(f"{name} lightgbm.txt {fit} {QUERY} {more} --format json --quiet")
        assert code == 0, err
        answers.append(pd.read_json(io.StringIO(out), lines=True))
    expected, answer = answers
    assert len(answer)
    pd.testing.assert_frame_equal(answer, expected[list(answer.columns)])
    unsaved = set(expected.columns) - set(answer.columns)
    features = {f"{name}{suffix}" for name in FEATURES for suffix in ("", " (row)", " (query)")}
    assert unsaved <= features  # that the file does not keep


def test_classes_and_columns_without_names(run):
    classifier = lgb.LGBMClassifier(n_estimators=4, verbose=-1, n_jobs=1)
    classifier.fit(X.to_numpy(), TRAIN["kind"])
    classifier.booster_.save_model("unnamed.txt")
    explainer = axil.Explainer(classifier, X.to_numpy(), TRAIN["kind"])
    explainer.save("classes.npz")
    words = f"explain unnamed.txt --explainer classes.npz {QUERY} --top 4 --json --quiet"
    code, out, err = run(f"{words} --features {','.join(FEATURES)}")
    assert code == 0, err
    table = pd.read_json(io.StringIO(out), lines=True)
    expected = explainer.top(QUERY_ROWS[FEATURES].to_numpy(), 4)
    np.testing.assert_allclose(table["contribution"], expected["contribution"])
    assert table["row"].tolist() == expected["row"].tolist()


@pytest.mark.parametrize("library", ["CatBoost", "LightGBM", "XGBoost"])
def test_a_model_of_categories_needs_the_training_data(run, library):
    frame = TRAIN[[*FEATURES, "city"]].astype({"city": "category"})
    if library == "CatBoost":
        path = "text.cbm"
        model = catboost.CatBoostRegressor(
            iterations=4, depth=2, verbose=0, allow_writing_files=False, cat_features=["city"]
        ).fit(frame, Y)
        model.save_model(path)
    elif library == "LightGBM":
        path = "categories.txt"
        lightgbm_model().fit(frame, Y).booster_.save_model(path)
    else:
        path = "categories.ubj"
        model = xgb.XGBRegressor(n_jobs=1, n_estimators=4, enable_categorical=True).fit(frame, Y)
        model.save_model(path)
    code, out, err = run(f"explain {path} {SAVED} {QUERY}")
    assert (code, out) == (2, "")
    assert f"This {library} model may take text or categories" in err


def test_all_weights_are_written(run, tmp_path):
    code, out, err = run(f"write lightgbm.txt {SAVED} {QUERY} --out {tmp_path}/saved.parquet")
    assert code == 0, err
    assert "saved.npz" in out
    assert run(f"write lightgbm.txt {PLAIN} {QUERY} --out {tmp_path}/train.parquet")[0] == 0
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "saved.parquet"), pd.read_parquet(tmp_path / "train.parquet")
    )


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (f"without lightgbm.txt {SAVED} {QUERY} --where city=Oslo", ["saved explainer", "--train"]),
        (f"explain lightgbm.txt {SAVED} {QUERY} --out p.html", ["A page shows the features"]),
        (f"explain lightgbm.txt {SAVED} {PLAIN} {QUERY}", ["--train is 'train.csv'"]),
        (f"explain lightgbm.txt {SAVED} {QUERY} --weights w", ["--weights is 'w'"]),
        (f"explain lightgbm.txt {QUERY}", ["Give --train and --target, or --explainer"]),
        (f"explain lightgbm.txt {QUERY} --train train.csv", ["or --explainer"]),
        (f"explain xgboost.json {SAVED} {QUERY}", ["saved for another model"]),
        (f"explain lightgbm.txt --explainer noise.bin {QUERY}", ["noise.bin"]),
        (f"explain lightgbm.txt --explainer none.npz {QUERY}", ["There is no file none.npz"]),
        (f"similar lightgbm.txt {SAVED} {PLAIN} {QUERY}", []),
    ],
)
@pytest.mark.usefixtures("damaged")
def test_what_a_saved_explainer_cannot_answer(run, words, parts):
    code, out, err = run(words)
    assert (code, out) == (2, "")
    assert all(words in err for words in parts)
