"""The command line, on files that the libraries themselves have written."""

import base64
import csv
import io
import json
import os
import pickle
import re
import shlex
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import catboost
import joblib
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import skops.io
import xgboost as xgb
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import axil
from axil.cli import main, screen

ROOT = Path(__file__).parent.parent
N_TRAIN, N_QUERY = 150, 3
FEATURES = ["age", "sex", "bmi", "bp"]
RNG = np.random.default_rng(0)


def frames():
    """Training, query and validation rows with labels, weights, two targets, a class and a category."""
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    frame = X[FEATURES].assign(y=y, y2=y**2 / 100, w=RNG.uniform(0.5, 2, len(X)), kind=np.where(y > 140, "high", "low"))
    frame["city"] = np.array(["Oslo", "Rome", "Lima"])[RNG.integers(0, 3, len(X))]
    frame.insert(0, "id", [f"p{i:03d}" for i in range(len(X))])
    parts = frame.iloc[:N_TRAIN], frame.iloc[N_TRAIN : N_TRAIN + N_QUERY], frame.iloc[N_TRAIN + N_QUERY : N_TRAIN + 60]
    return [part.reset_index(drop=True) for part in parts]


TRAIN, QUERY, VALIDATION = frames()
X, Y = TRAIN[FEATURES], TRAIN["y"]


def lightgbm_model(**settings):
    return lgb.LGBMRegressor(n_estimators=8, num_leaves=6, min_child_samples=5, n_jobs=1, verbose=-1, **settings)


def catboost_model():
    return catboost.CatBoostRegressor(iterations=6, depth=3, verbose=0, allow_writing_files=False)


MODELS = {  # file: the model as fitted, how it is written
    "lightgbm.txt": (lightgbm_model(), lambda model, path: model.booster_.save_model(path)),
    "xgboost.json": (
        xgb.XGBRegressor(n_jobs=1, n_estimators=5, max_depth=3),
        lambda model, path: model.save_model(path),
    ),
    "xgboost.ubj": (
        xgb.XGBRegressor(n_jobs=1, n_estimators=5, max_depth=3),
        lambda model, path: model.save_model(path),
    ),
    "catboost.cbm": (catboost_model(), lambda model, path: model.save_model(str(path))),
    "forest.skops": (RandomForestRegressor(5, random_state=0), skops.io.dump),
    "ridge.skops": (make_pipeline(StandardScaler(), Ridge()), skops.io.dump),
    "forest.pkl": (RandomForestRegressor(5, random_state=0), lambda model, path: path.write_bytes(pickle.dumps(model))),
    "forest.joblib": (RandomForestRegressor(5, random_state=0), joblib.dump),
    "xgboost.pkl": (
        xgb.XGBRFRegressor(n_jobs=1, n_estimators=4),
        lambda model, path: path.write_bytes(pickle.dumps(model)),
    ),
    "packed.joblib": (Ridge(), lambda model, path: joblib.dump(model, path, compress=3)),
}
TRUSTED = (
    "forest.skops",
    "forest.pkl",
    "forest.joblib",
    "xgboost.pkl",
    "packed.joblib",
)  # cannot be read without --trust


def table_of(text):
    """A table out of CSV; the numbers in it by Python itself."""
    frame = pd.DataFrame(list(csv.DictReader(text.splitlines())))
    return frame.apply(lambda column: column if column.str.match("[a-zA-Z]").any() else column.map(float))


@pytest.mark.parametrize(
    ("values", "signed", "expected"),
    [
        ([0.0312, -0.25], True, ["+0.03120", "-0.25000"]),
        ([3.12e-7, -1e-8], True, ["+0.00000031200", "-0.00000001000"]),
        ([123456.78, 0.5], False, ["123457", "0"]),
        ([1.0, 20.0], False, ["1", "20"]),
        ([1.5, np.nan], False, ["1.5000", "-"]),
        ([np.inf, 0.5], False, ["inf", "0.50000"]),
        ([0.0, 0.0], False, ["0", "0"]),
        ([3, -4], False, ["3", "-4"]),
        (["a", "a" * 30], False, ["a", "a" * 21 + "..."]),
    ],
)
def test_numbers_show_the_digits_of_the_largest(values, signed, expected):
    assert screen.texts(np.array(values), signed) == expected


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory with the models and their data."""
    path = tmp_path_factory.mktemp("cli")
    for name, frame in {"train": TRAIN, "query": QUERY, "validation": VALIDATION}.items():
        frame.to_csv(path / f"{name}.csv", index=False)
        frame.to_parquet(path / f"{name}.parquet")
    for name, (model, write) in MODELS.items():
        write(model.fit(X, Y), path / name)
    return path


@pytest.fixture(scope="module")
def damaged(folder):
    """Files there that no command can use."""
    TRAIN.drop(columns="age").to_csv(folder / "noage.csv", index=False)
    VALIDATION.drop(columns="y").to_csv(folder / "noy.csv", index=False)
    (folder / "noise.bin").write_bytes(b"noise")
    (folder / "nothing.txt").write_bytes(b"")
    for name, whole in {
        "txt": "lightgbm.txt",
        "json": "xgboost.json",
        "cbm": "catboost.cbm",
        "pkl": "forest.pkl",
    }.items():
        (folder / f"cut.{name}").write_bytes((folder / whole).read_bytes()[:300])
    MODELS["catboost.cbm"][0].save_model(str(folder / "catboost.json"), format="json")
    (folder / "dump.json").write_text(json.dumps(MODELS["lightgbm.txt"][0].booster_.dump_model()), encoding="utf-8")
    for known, content in FILES.items():
        (folder / known).write_bytes(content)


@pytest.fixture(autouse=True)
def _here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def run(capsys):
    """Run a command and give its exit code, output and errors; there is never a traceback."""

    def ran(words):
        code = main(shlex.split(words))
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    return ran


@pytest.fixture
def fails(run):
    """Run a command that must fail with this exit code and a message that holds these words; stdout stays empty."""

    def failed(words, *parts, code=2):
        found, out, err = run(words)
        assert found == code, err
        assert out == ""
        assert err.startswith("axil: ")
        for part in parts:
            assert part in err
        return err

    return failed


DATA = "--train train.csv --target y --weights w --index id"
PLAIN = "--train train.csv --target y"
EXPLAIN = f"explain lightgbm.txt {PLAIN}"
INTERVALS = f"intervals lightgbm.txt {PLAIN} --query query.csv"


def trust(name):
    return " --trust" if name in TRUSTED else ""


@pytest.mark.parametrize("name", MODELS)
def test_explain_gives_what_the_explainer_gives(run, name):
    code, out, _ = run(f"explain {name} {PLAIN} --query query.csv --top 4 --format csv{trust(name)}")
    assert code == 0
    table = table_of(out)
    explanation = axil.Explainer(MODELS[name][0], X, Y)(QUERY[FEATURES])
    expected = explanation.top(4)
    pd.testing.assert_frame_equal(table[list(expected.columns)], expected, check_dtype=False, rtol=1e-12)
    np.testing.assert_allclose(table["prediction"], np.repeat(explanation.predictions, 4), rtol=1e-12)
    np.testing.assert_array_equal(table["bmi (row)"], X["bmi"].iloc[expected["row"]])
    np.testing.assert_array_equal(table["bmi (query)"], np.repeat(QUERY["bmi"], 4))


@pytest.mark.parametrize("name", MODELS)
def test_check_says_that_a_model_is_exact_and_proves_it(run, name):
    code, out, _ = run(f"check {name}{trust(name)}")
    assert code == 0
    assert out.startswith(f"{name}: exact weights\n")
    code, out, _ = run(f"check {name} {PLAIN}{trust(name)}")
    assert code == 0
    assert out.startswith(f"{name}: exact weights, proven on train.csv\naxil.Verification")


def test_the_table_for_reading(run):
    code, out, err = run(f"{EXPLAIN} --query query.csv --top 2")
    assert (code, err.count("\n")) == (0, 1)
    assert "does not know these columns of train.csv, left out: id, y2, w, kind, city" in err
    lines = out.splitlines()
    assert lines[0].startswith("lightgbm.txt: LightGBM, 150 training rows of train.csv; replayed predictions agree to ")
    explanation = axil.Explainer(MODELS["lightgbm.txt"][0], X, Y)(QUERY[FEATURES])
    top = explanation.top(2)
    assert lines[2] == f"Query 0: predicted {explanation.predictions[0]:.7g}"
    assert lines[3].split() == ["rank", "row", "weight", "target", "contribution", *FEATURES]
    assert [float(word) for word in lines[4].split()[1:]] == pytest.approx(list(QUERY[FEATURES].iloc[0]))
    shown = [float(word) for word in lines[5].split()]
    first = top.iloc[0]
    expected = [1, first["row"], first["weight"], first["target"], first["contribution"], *X.iloc[int(first["row"])]]
    assert shown == pytest.approx(expected, rel=1e-3)
    assert len({len(line) for line in lines[3:7]}) == 1
    held = np.abs(explanation.weights[0])
    share = np.sort(held)[-2:].sum() / held.sum()
    assert lines[7] == f"{share:.0%} of the absolute weight of all 150 training rows is in this table."
    assert lines[-1] == "Exact with the fitted structure held fixed; not a retraining."


def test_a_narrow_window_leaves_columns_out_and_says_so(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    _, out, _ = run(f"{EXPLAIN} --query query.csv --top 3")
    tables = [line for line in out.splitlines()[2:] if re.match(r"rank|\s+(query|\d)", line)]
    assert len(tables) == 5 * N_QUERY
    assert max(map(len, tables)) <= 60
    assert re.search(r"more columns in a wider window or with --out: .*bp\)", out)


def test_formats_agree(run, folder):
    words = f"{EXPLAIN} --features {','.join(FEATURES)} --query query.csv --by contribution"
    _, table, err = run(f"{words} --csv out.csv")
    assert err == ""
    _, printed, _ = run(f"{words} --format csv")
    _, lines, _ = run(f"{words} --format json")
    assert (folder / "out.csv").read_text(encoding="utf-8") == printed
    records = [json.loads(line) for line in lines.splitlines()]
    frame = table_of((folder / "out.csv").read_text(encoding="utf-8"))
    assert records == frame.to_dict("records")
    assert (frame.groupby("query")["contribution"].apply(lambda own: own.abs().is_monotonic_decreasing)).all()
    assert table.count("Query ") == N_QUERY


def test_output_is_the_same_every_time(run):
    for words in (f"{EXPLAIN} --query query.csv", f"blame lightgbm.txt {PLAIN} --validation validation.csv", "demo"):
        assert run(words) == run(words)


def test_only_so_many_predictions_are_shown(run):
    _, out, _ = run(f"{EXPLAIN} --query validation.csv --top 1")
    assert out.count("\nQuery ") == 20
    assert f"{len(VALIDATION) - 20} more predictions: --out FILE or --format csv has them all." in out
    _, out, _ = run(f"{EXPLAIN} --query validation.csv --top 1 --format csv")
    assert out.count("\n") == 1 + len(VALIDATION)


def test_parquet_weights_and_labels(run, folder):
    model = lightgbm_model().fit(X, Y, sample_weight=TRAIN["w"])
    model.booster_.save_model("weighted.txt")
    table = "--train train.parquet --target y --weights w --index id --query query.parquet --format csv"
    code, out, _ = run(f"explain weighted.txt {table} --threads 1 --memory-limit 1GiB")
    assert code == 0
    found = table_of(out)
    labelled = X.set_axis(TRAIN["id"]), Y.set_axis(TRAIN["id"])
    expected = axil.Explainer(model, *labelled, TRAIN["w"])(QUERY[FEATURES].set_axis(QUERY["id"])).top(10)
    pd.testing.assert_frame_equal(found[list(expected.columns)], expected, check_dtype=False, rtol=1e-12)
    TRAIN.to_csv(folder / "train.tsv", sep="\t", index=False)
    TRAIN.to_csv(folder / "train.csv.gz", index=False)
    for name in ("train.tsv", "train.csv.gz", "train.csv"):
        assert run(f"explain weighted.txt {table.replace('train.parquet', name)} --scratch .")[:2] == (0, out)
    TRAIN.set_index("id").to_parquet(folder / "indexed.parquet")  # as pandas keeps an index
    again = run(f"explain weighted.txt {table.replace('train.parquet', 'indexed.parquet')}")
    assert again[:2] == (0, out)


def test_blame(run):
    code, out, _ = run(f"blame lightgbm.txt {PLAIN} --validation validation.csv --top 7 --format csv --csv all.csv")
    assert code == 0
    found = table_of(out)
    explainer = axil.Explainer(MODELS["lightgbm.txt"][0], X, Y)
    expected = explainer.blame(VALIDATION[FEATURES], VALIDATION["y"])
    assert len(found) == 7
    pd.testing.assert_frame_equal(found[list(expected.columns)], expected.head(7), check_dtype=False, rtol=1e-9)
    np.testing.assert_array_equal(found["age (row)"], X["age"].iloc[found["row"]])
    assert len(pd.read_csv("all.csv")) == N_TRAIN
    code, out, _ = run(f"blame lightgbm.txt {DATA.replace('--weights w ', '')} --validation validation.csv --top 3")
    assert code == 0
    assert re.search(r"^row +target +gradient +corrected +gain +age", out, re.M)
    assert len(re.findall(r"^p\d{3} ", out, re.M)) == 3


def test_remove(run):
    words = f"remove lightgbm.txt {DATA.replace('--weights w ', '')} --query query.csv"
    code, out, _ = run(f"{words} --rows p003,p077 --format csv --csv all.csv")
    assert code == 0
    explainer = axil.Explainer(MODELS["lightgbm.txt"][0], X.set_axis(TRAIN["id"]), Y)
    expected = explainer.without(["p003", "p077"], QUERY[FEATURES].set_axis(QUERY["id"]))
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
    assert out.endswith("\nExact with the fitted structure held fixed; not a retraining.\n")


def test_remove_rows_by_number_and_with_several_outputs(run):
    model = xgb.XGBRegressor(n_jobs=1, n_estimators=4, max_depth=2).fit(X, TRAIN[["y", "y2"]])
    model.save_model("own.json")
    code, out, _ = run("remove own.json --train train.csv --target y,y2 --query train.csv --rows 149 --format json")
    assert code == 0
    expected = axil.Explainer(model, X, TRAIN[["y", "y2"]]).without([149], X)
    np.testing.assert_allclose([json.loads(line)["change"] for line in out.splitlines()], expected["change"], rtol=1e-9)
    code, out, _ = run("remove own.json --train train.csv --target y,y2 --query train.csv --rows 149")
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
    words = "what-if classes.joblib --trust --train train.csv --target kind --query query.csv --json"
    other = "low" if TRAIN["kind"][3] == "high" else "high"
    code, out, _ = run(f"{words} --set 3={other}")
    assert code == 0
    expected = axil.Explainer(forest, X, TRAIN["kind"]).what_if(QUERY[FEATURES], {3: other})
    found = pd.DataFrame([json.loads(line) for line in out.splitlines()])
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-9)
    fails(f"{words} --set 3=medium", "--set gives the class 'medium'; the model has high, low")
    both = TRAIN[["y", "y2"]]
    model = xgb.XGBRegressor(n_jobs=1, n_estimators=4, max_depth=2).fit(X, both)
    model.save_model("own.json")
    words = "what-if own.json --train train.csv --target y,y2 --query query.csv --format csv"
    code, out, _ = run(f"{words} --set 3=80:90")
    assert code == 0
    expected = axil.Explainer(model, X, both).what_if(QUERY[FEATURES], {3: [80.0, 90.0]})
    np.testing.assert_allclose(table_of(out)["change"], expected["change"], rtol=1e-9)
    fails(f"{words} --set 3=80", "--set gives the target '80'; expected 2 numbers, such as 12=80:90")


BANDS = np.array(["below 40", "40 to 60", "60 and over"])


@pytest.mark.parametrize("by", ["city", "sex", "age --cut 40,60"])
def test_group(run, by):
    code, out, err = run(f"group lightgbm.txt {PLAIN} --query query.csv --by {by} --format csv")
    assert code == 0
    assert "city" not in err or by != "city"  # which is not left out
    explainer = axil.Explainer(MODELS["lightgbm.txt"][0], X, Y)
    labels = np.digitize(TRAIN["age"], [40, 60]) if by.startswith("age") else TRAIN[by]
    labels = labels.astype(int) if by == "sex" else labels  # 1 and 2 of the file, which has them as 1.0 and 2.0
    expected = explainer.group(QUERY[FEATURES], labels)
    expected["group"] = BANDS[expected["group"]] if by.startswith("age") else expected["group"].astype(str)
    found = pd.read_csv(io.StringIO(out), dtype={"group": str})
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-9)


def test_groups_of_rows_without_a_value(run, folder):
    TRAIN.assign(city=TRAIN["city"].where(TRAIN.index > 5)).to_csv("somewhere.csv", index=False)
    words = f"group lightgbm.txt {PLAIN.replace('train.csv', 'somewhere.csv')} --query query.csv"
    code, out, _ = run(f"{words} --by city --out groups.html --format csv")
    assert code == 0
    assert list(table_of(out)["group"][:4]) == ["Lima", "Oslo", "Rome", "missing"]
    total = table_of(out).groupby("query")["weight"].sum()
    np.testing.assert_allclose(total, 1.0)  # as the weights of this model do
    assert "<html" in (folder / "groups.html").read_text(encoding="utf-8")


TABLES = {
    "explain": f"{EXPLAIN} --query query.csv --top 2",
    "similar": f"similar lightgbm.txt {PLAIN} --query query.csv --top 2 --columns bmi,city",
    "group": f"group lightgbm.txt {PLAIN} --query query.csv --by city",
    "what-if": f"what-if lightgbm.txt {PLAIN} --query query.csv --set 3=80",
    "remove": f"remove lightgbm.txt {PLAIN} --query query.csv --rows 3",
    "intervals": f"intervals lightgbm.txt {PLAIN} --query query.csv --calibration validation.csv",
    "audit": f"audit lightgbm.txt {PLAIN} --top {N_TRAIN}",
    "blame": f"blame lightgbm.txt {PLAIN} --validation validation.csv --top {N_TRAIN}",
}


@pytest.mark.parametrize("name", TABLES)
def test_one_style_of_output(run, fails, name):
    """Every form has the same table; --out prints where it is, and --quiet nothing but the answer."""
    code, printed, _ = run(f"{TABLES[name]} --format csv")
    assert code == 0
    expected = pd.read_csv(io.StringIO(printed))
    readers = {
        "csv": pd.read_csv,
        "parquet": pd.read_parquet,
        "json": pd.read_json,
        "jsonl": lambda path: pd.read_json(path, lines=True),
    }
    for suffix, read in readers.items():
        code, out, err = run(f"{TABLES[name]} --out answer.{suffix} --quiet")
        assert (code, out, err) == (0, "", "")
        pd.testing.assert_frame_equal(read(f"answer.{suffix}"), expected, check_dtype=False, rtol=1e-9)
    code, out, _ = run(f"{TABLES[name]} --out answer.csv")
    assert out.startswith("lightgbm.txt: LightGBM, 150 training rows of train.csv; replayed predictions agree to ")
    assert re.search(rf"^{len(expected)} [a-z0-9 ]+ are in answer.csv.$", out, re.M)
    assert "query  " not in out
    code, out, _ = run(f"{TABLES[name]} --json")
    assert json.loads(out.splitlines()[0]).keys() == dict.fromkeys(expected.columns).keys()
    whole, quiet = run(TABLES[name])[1], run(f"{TABLES[name]} --quiet")
    assert quiet[2] == ""
    assert quiet[1] in whole
    assert "replayed predictions" not in quiet[1]
    assert "retraining" not in quiet[1]
    if name in ("explain", "group", "intervals"):
        code, out, _ = run(f"{TABLES[name]} --out answer.html")
        assert (code, "The page is in answer.html.\n" in out) == (0, True)
    else:
        fails(f"{TABLES[name]} --out answer.html", "--out is answer.html; expected", "explain, group and intervals")


def test_quiet_keeps_the_warning_of_an_approximation(run):
    """The new target moves the sums of leaves that L1 put to zero."""
    model = lightgbm_model(reg_alpha=40.0).fit(X, Y)
    joblib.dump(model, "sparse.joblib")
    words = f"what-if sparse.joblib --trust {PLAIN} --query query.csv --set 3=90000 --quiet"
    code, _, err = run(words)
    assert code == 0
    assert err.startswith("axil: warning: These targets would change the pattern of ")
    assert err.count("\n") == 1


def test_check_as_json(run):
    code, out, _ = run(f"check lightgbm.txt {PLAIN} --json")
    found = json.loads(out)
    assert (code, found["explained"], found["kind"], found["train"]) == (0, True, "exact", "train.csv")
    code, out, err = run("check lightgbm.txt --train train.csv --target y2 --json")
    found = json.loads(out)
    assert (code, found["explained"], found["kind"]) == (1, False, "no")
    assert "does not agree with the fitted model" in found["reason"]
    assert "not agree" not in err
    lightgbm_model(linear_tree=True).fit(X, Y).booster_.save_model("linear.txt")
    code, out, _ = run("check linear.txt --format json")
    assert (code, json.loads(out)["setting"]) == (1, "linear_tree")
    code, out, err = run(f"check lightgbm.txt {PLAIN} --quiet")
    assert (code, out, err) == (0, "lightgbm.txt: exact weights, proven on train.csv\n", "")


def test_completion_in_bash(run, folder):
    """A real bash completes commands, options and values, and leaves files to itself."""
    code, script, _ = run("completion bash")
    assert code == 0
    (folder / "axil.bash").write_text(script)
    asked = {
        "axil wh": "what-if",
        "axil explain --q": "--quiet --query",
        "axil explain m.txt --by ": "weight contribution",
        "axil explain --train ": "",
        "axil completion ": "bash zsh fish",
        "axil remove --cs": "",
    }
    lines = ["source axil.bash"]
    for line in asked:
        words = " ".join(f"'{word}'" for word in line.split(" "))
        lines += [f"COMP_WORDS=({words})", "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))", "_axil", 'echo "${COMPREPLY[*]}"']
    done = shell(["bash", "-c", "\n".join(lines)], folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == list(asked.values())


@pytest.mark.parametrize(("name", "begins"), [("zsh", "#compdef axil"), ("fish", "# Completes axil in fish")])
def test_completion_in_other_shells(run, folder, name, begins):
    code, script, _ = run(f"completion {name}")
    assert code == 0
    assert script.startswith(begins)
    for word in ("what-if", "intervals", "inverse-func", "weight contribution", "write all of it here"):
        assert word in script
    if shutil.which(name):
        (folder / f"axil.{name}").write_text(script)
        assert shell([name, "-n", f"axil.{name}"], folder).returncode == 0


def test_audit(run):
    code, out, _ = run(f"audit lightgbm.txt {PLAIN} --top 7 --format csv --csv all.csv")
    assert code == 0
    explainer = axil.Explainer(MODELS["lightgbm.txt"][0], X, Y)
    expected, found = explainer.audit(), table_of(out)
    assert list(found["suspect"]) == [str(mark) for mark in expected["suspect"].head(7)]
    numbers = [name for name in expected.columns if name != "suspect"]
    pd.testing.assert_frame_equal(found[numbers], expected[numbers].head(7), check_dtype=False, rtol=1e-9)
    np.testing.assert_array_equal(found["age (row)"], X["age"].iloc[found["row"]])
    assert len(pd.read_csv("all.csv")) == N_TRAIN
    code, out, _ = run(f"audit lightgbm.txt {PLAIN} --validation validation.csv --top 3")
    assert code == 0
    assert f"{expected['suspect'].sum()} of {N_TRAIN} labels look wrong; the most suspicious first" in out
    assert re.search(r"^row +target +expected +residual +scale +studentised +quality +suspect +gain", out, re.M)


def test_audit_of_ones_own_predictions(run):
    TRAIN.assign(unseen=Y + 1.0).to_csv("more.csv", index=False)
    words = PLAIN.replace("train.csv", "more.csv")
    code, out, err = run(f"audit lightgbm.txt {words} --out-of-fold unseen --format csv")
    assert code == 0
    assert "unseen" not in err  # which is not left out
    np.testing.assert_allclose(table_of(out)["residual"], -1.0)
    code, _, err = run(f"audit lightgbm.txt {words} --out-of-fold kind")
    assert code == 2
    assert "--out-of-fold" in err


def test_audit_of_classes_and_of_pushes(run):
    joblib.dump(RandomForestClassifier(4, random_state=0).fit(X, TRAIN["kind"]), "classes.joblib")
    code, out, _ = run("audit classes.joblib --trust --train train.csv --target kind --top 2")
    assert code == 0
    assert re.search(r"^row +target +expected +probability +quality +suspect", out, re.M)
    model = lgb.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1).fit(X, TRAIN["kind"])
    joblib.dump(model, "pushed.joblib")
    words = "audit pushed.joblib --trust --train train.csv --target kind --top 2"
    code, out, _ = run(words)
    assert code == 0
    assert re.search(r"^row +target +expected +probability +quality +suspect", out, re.M)
    code, _, err = run(f"{words} --validation validation.csv")
    assert code == 2
    assert "--validation needs a model with exact weights" in err


def test_intervals(run):
    """The tables of Predictive.interval, whichever way the errors are known."""
    labelled = [part.set_index("id") for part in (TRAIN, QUERY, VALIDATION)]
    train, query, held = (part[FEATURES] for part in labelled)
    explainer = axil.Explainer(MODELS["lightgbm.txt"][0], train, labelled[0]["y"])
    words = f"intervals lightgbm.txt {DATA.replace('--weights w ', '')} --query query.csv"
    code, out, _ = run(f"{words} --calibration validation.csv --format csv --csv all.csv")
    assert code == 0
    expected = explainer.calibrate(held, labelled[2]["y"]).interval(query)
    pd.testing.assert_frame_equal(table_of(out), expected, check_dtype=False, rtol=1e-9)
    pd.testing.assert_frame_equal(pd.read_csv("all.csv"), expected, check_dtype=False, rtol=1e-9)

    folds = cross_val_predict(lightgbm_model(), X, Y)
    TRAIN.assign(folds=folds).to_csv("folds.csv", index=False)
    more = f"{words.replace('train.csv', 'folds.csv')} --out-of-fold folds --coverage 0.8 --skewed"
    code, out, _ = run(f"{more} --format csv --html page.html")
    assert code == 0
    expected = explainer.calibrate(out_of_fold=folds).interval(query, 0.8, symmetric=False)
    pd.testing.assert_frame_equal(table_of(out), expected, check_dtype=False, rtol=1e-9)

    packed = re.search(r'id="data">(.*?)</script>', Path("page.html").read_text(encoding="utf-8"))[1]
    shown = json.loads(zlib.decompress(base64.b64decode(packed)))["intervals"]
    np.testing.assert_allclose(shown["upper"], [expected["upper"]], rtol=1e-6)  # the page has seven digits

    code, out, _ = run(more)
    assert code == 0
    assert f"80 % intervals of {N_QUERY} predictions; {N_TRAIN} calibration rows, out-of-fold\n" in out
    assert re.search(r"^query +prediction +lower +upper +scale +alarm\n", out, re.M)
    assert len(re.findall(r"^p\d{3} ", out, re.M)) == N_QUERY
    assert out.endswith("not at every row.\n")


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
    monkeypatch.setattr("axil.cli.comparables.PART", 2)  # queries at a time, of three
    read = {"csv": pd.read_csv, "parquet": pd.read_parquet}[suffix]
    explainer, sales, homes = sold_explainer()
    code, out, _ = run(f"similar {SIMILAR} --out found.{suffix}")
    assert code == 0
    assert f"{10 * N_QUERY} comparables of {N_QUERY} predictions are in found.{suffix}.\n" in out
    expected = explainer.similar(homes[FEATURES])
    pd.testing.assert_frame_equal(read(f"found.{suffix}"), expected, check_dtype=False, rtol=1e-9)

    more = (
        "--top 4 --adjust --sign positive --within sold,1Y --distinct city --columns bmi,sold,city --among 'age >= 30'"
    )
    code, _, err = run(f"similar {SIMILAR} --out found.{suffix} {more}")
    assert code == 0
    assert not re.search(r"left out: .*\b(sold|city)\b", err)  # which are in the table
    beside = [frame[["city"]].assign(sold=pd.to_datetime(frame["sold"])) for frame in (sales, homes)]
    expected = explainer.similar(
        homes[FEATURES],
        4,
        ["bmi", "sold", "city"],
        adjust=True,
        sign="positive",
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
        pd.testing.assert_frame_equal(pd.read_csv("found.csv"), expected, check_dtype=False, rtol=1e-9)


@pytest.mark.usefixtures("_sales")
def test_report(run):
    words = f"report {SIMILAR} --out pages --top 3 --columns city,sold,bmi --map lat,lon --within sold,2Y --unit kg"
    words += " --row-name patients --query-name patient --names bmi=Weight --search city"
    words += " --calibration validation.csv --coverage 0.8"
    code, out, _ = run(words)
    assert code == 0
    assert f"{N_QUERY} pages, {N_QUERY} of them new. Begin with {Path('pages/index.html')}\n" in out
    explainer, sales, homes = sold_explainer()
    beside = [frame[["city", "lat", "lon"]].assign(sold=pd.to_datetime(frame["sold"])) for frame in (sales, homes)]
    held = VALIDATION.set_index("id")
    explainer.report(
        homes[FEATURES],
        "wanted",
        3,
        ["city", "sold", "bmi"],
        map=("lat", "lon"),
        within=("sold", "2Y"),
        unit="kg",
        rows="patients",
        query="patient",
        target="y",
        names={"bmi": "Weight"},
        search=["city"],
        interval=explainer.calibrate(held[FEATURES], held["y"]),
        coverage=0.8,
        beside=beside,
    )
    for path in Path("wanted").rglob("*.*"):
        assert Path("pages", path.relative_to("wanted")).read_text(encoding="utf-8") == path.read_text(encoding="utf-8")
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
        ("similar --out found.csv --columns price", ("neither sales.csv nor homes.csv has", "sales.csv has")),
        ("similar --out found.csv --within sold", ("--within is 'sold'; expected a column and a distance",)),
        ("similar --out found.csv --within city,3Y", ("Column 'city' of sales.csv (--within) holds", "2024-03-31")),
        ("similar --out found.csv --among price>3", ("--among is 'price>3'; expected a column",)),
        ("similar --out found.csv --among age", ("Column 'age' of sales.csv (--among) holds", "rows to list")),
        ("similar --out found.csv --among age>old", ("holds numbers, with 'old'; expected a number",)),
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


def test_a_report_of_a_classifier_is_refused(fails):
    lgb.LGBMClassifier(n_estimators=2, verbose=-1).fit(X, Y > 140).booster_.save_model("dear.txt")
    TRAIN.assign(y=(Y > 140).astype(int)).to_csv("labels.csv", index=False)
    fails("report dear.txt --train labels.csv --target y --query query.csv --out none", "report has no answer here")


def test_intervals_of_a_classifier_are_refused(fails):
    lgb.LGBMClassifier(n_estimators=2, verbose=-1).fit(X, Y > 140).booster_.save_model("dear.txt")
    TRAIN.assign(y=(Y > 140).astype(int)).to_csv("labels.csv", index=False)
    fails("intervals dear.txt --train labels.csv --target y --query query.csv", "calibrate")


def test_intervals_of_a_forest_and_of_several_outputs(run):
    forest = RandomForestRegressor(20, random_state=0).fit(X, TRAIN[["y", "y2"]])
    joblib.dump(forest, "two.joblib")
    explainer = axil.Explainer(forest, X, TRAIN[["y", "y2"]])
    words = "intervals two.joblib --trust --train folds.csv --target y,y2 --query query.csv --features age,sex,bmi,bp"
    TRAIN.assign(f=Y + 1, f2=TRAIN["y2"] - 1).to_csv("folds.csv", index=False)
    given = {"": {}, " --out-of-fold f,f2": {"out_of_fold": np.column_stack([Y + 1, TRAIN["y2"] - 1])}}
    for option, names in given.items():
        code, out, _ = run(f"{words}{option} --format csv")
        assert code == 0
        expected = explainer.calibrate(**names).interval(QUERY[FEATURES])
        pd.testing.assert_frame_equal(table_of(out), expected, check_dtype=False, rtol=1e-9)


def test_several_outputs_and_classes(run):
    forest = RandomForestRegressor(4, random_state=0).fit(X, TRAIN[["y", "y2"]])
    joblib.dump(forest, "two.joblib")
    words = "explain two.joblib --trust --train train.csv --query query.csv --top 2"
    code, out, _ = run(f"{words} --target y,y2")
    assert code == 0
    predicted = forest.predict(QUERY[FEATURES])
    for query, output in np.ndindex(predicted.shape):
        assert f"Query {query}, output {output}: predicted {predicted[query, output]:.7g}\n" in out
    joblib.dump(RandomForestClassifier(4, random_state=0).fit(X, TRAIN["kind"]), "classes.joblib")
    code, out, _ = run(f"{words.replace('two', 'classes')} --target kind")
    assert code == 0
    assert "Query 0, output high: predicted " in out


def test_outputs_with_trees_of_their_own(run):
    model = xgb.XGBRegressor(n_jobs=1, n_estimators=4, max_depth=2).fit(X, TRAIN[["y", "y2"]])
    model.save_model("own.json")
    code, out, _ = run("explain own.json --train train.csv --target y,y2 --query query.csv --top 3")
    assert code == 0
    explanation = axil.Explainer(model, X, TRAIN[["y", "y2"]])(QUERY[FEATURES])
    for query, output in np.ndindex(N_QUERY, 2):
        held = np.abs(explanation.weights[output, query])
        part = out.split(f"Query {query}, output {output}: predicted {explanation.predictions[query, output]:.7g}\n")[1]
        assert f"\n{np.sort(held)[-3:].sum() / held.sum():.0%} of the absolute" in part.split("Query")[0]
    code, out, _ = run("blame own.json --train train.csv --target y,y2 --validation validation.csv --top 3")
    assert code == 0
    assert re.search(r"^row +output +target +gradient", out, re.M)


def test_missing_values(run):
    QUERY.assign(bmi=np.nan).to_csv("gaps.csv", index=False)
    _, out, _ = run(f"{EXPLAIN} --query gaps.csv --top 1 --format json")
    assert [json.loads(line)["bmi (query)"] for line in out.splitlines()] == [None] * N_QUERY
    _, out, _ = run(f"{EXPLAIN} --query gaps.csv --top 1")
    assert re.search(r"^ +query .* - ", out, re.M)


def test_early_stopping_of_xgboost_is_kept(run):
    model = xgb.XGBRegressor(n_jobs=1, n_estimators=60, early_stopping_rounds=2, max_depth=3)
    model.fit(X, Y, eval_set=[(VALIDATION[FEATURES], VALIDATION["y"])], verbose=False)
    model.save_model("stopped.json")
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    code, out, _ = run(f"explain stopped.json {PLAIN} --query query.csv --top 1 --format csv")
    assert code == 0
    np.testing.assert_allclose(table_of(out)["prediction"], model.predict(QUERY[FEATURES]), rtol=1e-5)


def test_categories(run, fails):
    frame = TRAIN[[*FEATURES, "city"]].astype({"city": "category"})
    y = Y + 100 * (TRAIN["city"] == "Rome")
    TRAIN.assign(y=y).to_csv("cities.csv", index=False)
    lightgbm_model(min_data_per_group=5).fit(frame, y).booster_.save_model("city.txt")
    xgb.XGBRegressor(n_jobs=1, n_estimators=4, enable_categorical=True).fit(frame, y).save_model("city.json")
    for name in ("city.txt", "city.json"):
        words = f"explain {name} --train cities.csv --target y --query query.csv --top 2"
        code, out, err = run(f"{words} --categorical city")
        assert code == 0, err
        assert re.search("Oslo|Rome|Lima", out) or "city" in out
        fails(words, "Column 'city' of cities.csv holds '", "takes numbers", "pass --categorical 'city'")
    frame["sex"] = frame["sex"].astype("category")  # numbers, so that nothing shows in the file
    lightgbm_model().fit(frame[FEATURES], y).booster_.save_model("sex.txt")
    fails(
        "check sex.txt --train cities.csv --target y",
        "The rows of cities.csv do not fit: LightGBM cannot read",
        "--categorical",
    )
    assert run("check sex.txt --train cities.csv --target y --categorical sex")[0] == 0
    QUERY.assign(city="Bonn").to_csv("new_city.csv", index=False)
    fails(
        f"{words} --categorical city".replace("query.csv", "new_city.csv"),
        "holds 'Bonn' (row 0), a category that no row of cities.csv has",
    )


def test_a_pipeline_may_take_text(run):
    text = make_pipeline(OneHotEncoder(), Ridge()).fit(TRAIN[["city"]], Y)
    skops.io.dump(text, "text.skops")
    code, out, _ = run("explain text.skops --trust --train train.csv --target y --query query.csv --top 1")
    assert code == 0
    assert re.search("Oslo|Rome|Lima", out)


def test_a_model_without_names_takes_the_columns_in_order(run, fails):
    model = lightgbm_model().fit(X.to_numpy(), Y)
    model.booster_.save_model("unnamed.txt")
    words = f"explain unnamed.txt {PLAIN} --query query.csv --top 1 --format csv"
    fails(words, "Without the target, train.csv has 9 columns", "was fitted on 4", "--features", "--index")
    code, out, err = run(f"{words} --features age,sex,bmi,bp")
    assert (code, err) == (0, "")
    np.testing.assert_allclose(table_of(out)["prediction"], model.predict(QUERY[FEATURES]))
    TRAIN[["bp", "y"]].join(TRAIN[["age"]]).to_csv("few.csv", index=False)
    fails("check unnamed.txt --train few.csv --target y --features age,bp", "--features names 2 columns (age, bp)")


@pytest.mark.parametrize("name", TRUSTED)
def test_nothing_is_unpickled_unasked(fails, name):
    reason = "sklearn.tree._tree.Tree" if name.endswith(".skops") else "runs whatever code its author put into it"
    fails(f"check {name}", reason, "pass --trust")


def test_a_pickle_under_another_name_is_seen_and_not_run(fails, folder):
    class Bomb:
        def __reduce__(self):
            return Path.touch, (folder / "exploded",)

    (folder / "model.txt").write_bytes(pickle.dumps(Bomb()))
    fails("check model.txt", "model.txt is a pickle", "--trust")
    assert not (folder / "exploded").exists()


def test_types_that_are_trusted_are_named(run):
    assert "--trust: forest.skops is read with sklearn.tree._tree.Tree" in run("check forest.skops --trust")[2]


def test_pushes_of_a_classifier_add_up_on_the_screen_too(run):
    model = lgb.LGBMClassifier(n_estimators=3, num_leaves=4, verbose=-1).fit(X, Y > 140)
    model.booster_.save_model("dear.txt")
    table = TRAIN.assign(y=(Y > 140).astype(int))
    table.to_csv("labels.csv", index=False)
    more = " ".join(PLAIN.split()).replace("train.csv", "labels.csv")
    code, out, _ = run(f"explain dear.txt {more} --query query.csv --top 300 --csv pushes.csv")
    assert code == 0
    assert "they add up to it, exactly" in out
    assert ", probability 0." in out
    assert ": score " in out
    found = pd.read_csv("pushes.csv")
    assert "weight" not in found
    base = float(axil.explain(model, X, Y > 140).base[0])
    for _, own in found.groupby("query"):
        assert abs(own["contribution"].sum() + base - own["prediction"].iloc[0]) < 1e-9
        assert abs(1 / (1 + np.exp(-own["prediction"].iloc[0])) - own["probability"].iloc[0]) < 1e-9
    code, out, _ = run(f"check dear.txt {more}")
    assert code == 0
    assert "pushes that add up to the score, proven on labels.csv" in out
    code, out, _ = run(f"remove dear.txt {more} --query query.csv --rows 3 --format csv")
    assert code == 0
    expected = axil.explain(model, X, Y > 140).without([3], QUERY[FEATURES])
    np.testing.assert_allclose(table_of(out)["change"], expected["change"], rtol=1e-9)
    code, out, _ = run(f"blame dear.txt {more} --validation labels.csv --top 2")
    assert code == 0
    assert "gain" in out


def test_models_that_are_refused(run, fails, folder):
    lgb.LGBMClassifier(n_estimators=2, verbose=-1).fit(X, TRAIN["kind"]).booster_.save_model("classes.txt")
    xgb.XGBClassifier(n_jobs=1, n_estimators=2).fit(X, Y > 140).save_model("classes.json")
    lightgbm_model(objective="huber").fit(X, Y).booster_.save_model("huber.txt")
    for name in ("classes.txt", "classes.json", "huber.txt"):  # which explain answers: their pushes add up
        code, out, err = run(f"check {name}")
        assert (code, err) == (0, "")
        assert out.startswith(f"{name}: no exact weights, but pushes that add up to the score\n")
        assert "objective=" in out
    lightgbm_model(linear_tree=True).fit(X, Y).booster_.save_model("linear.txt")
    code, out, err = run("check linear.txt")
    assert (code, err) == (1, "")
    assert out.startswith("linear.txt: no exact weights\n")
    assert "linear_tree" in out
    MODELS["xgboost.pkl"][0].save_model("sampled.json")  # which does not say which rows were drawn
    fails(f"check sampled.json {PLAIN}", "a model file does not keep subsample and seed", code=1)
    joblib.dump({"not": "a model"}, folder / "dict.joblib")
    fails(f"check dict.joblib --trust {PLAIN}", "The model is a builtins.dict; axil reads")


def test_a_replay_that_disagrees(fails, folder):
    TRAIN.iloc[:-1].to_csv(folder / "short.csv", index=False)
    fails("check lightgbm.txt --train short.csv --target y", "does not agree with the fitted model", code=1)
    fails("check lightgbm.txt --train train.csv --target y2", "does not agree with the fitted model", code=1)
    fails("check lightgbm.txt --train train.csv --target y --weights w", "does not agree with the fitted model", code=1)


def test_a_target_among_the_features(fails):
    """The column is there: it must not be called missing."""
    said = fails(
        "check lightgbm.txt --train train.csv --target age",
        "'age' among its features",
        "--target",
        "fit the model again",
    )
    assert "lacks" not in said
    fails(f"check lightgbm.txt {PLAIN} --weights bmi", "'bmi' among its features", "--weights")


def test_a_target_that_was_logged_for_the_fit(fails, folder):
    model = lgb.LGBMRegressor(n_estimators=5, verbose=-1).fit(TRAIN[["age", "bmi"]], np.log(TRAIN["y"]))
    model.booster_.save_model("logged.txt")
    said = fails("check logged.txt --train train.csv --target y", "np.log(y_train)", code=1)
    assert "bundle" not in said
    assert said.splitlines()[-1].strip() == (
        "On the command line y_train is the column that --target names, inverse_func is --inverse-func."
    )


def test_columns_that_were_scaled_for_the_fit(fails):
    """A model file does not state its rates, and rows that all fall into one leaf lead to none."""
    scaled = (X - X.mean()) / X.std(ddof=0)
    lightgbm_model().fit(scaled, Y).booster_.save_model("scaled.txt")
    said = fails("check scaled.txt --train train.csv --target y", "the model was fitted on scaled columns", code=1)
    assert "learning_rate" not in said


FILES = {
    "empty.csv": b"",
    "header.csv": b"age,sex,bmi,bp,y\n",
    "semicolons.csv": b"age;sex;bmi;bp;y\n1;2;3;4;5\n",
    "ragged.csv": b"age,sex,bmi,bp,y\n1,2,3,4,5\n1,2,3,4,5,6,7\n",
    "wide.csv": b"age,sex,bmi,bp,y\n1,2,3,4,5,6\n1,2,3,4,5,6\n",
    "latin.csv": "age,sex,bmi,bp,y,Stra\xdfe\n1,2,3,4,5,6\n".encode("latin-1"),
    "text.csv": b"age,sex,bmi,bp,y\n1,2,3,4,5\n1,2,?,4,5\n",
    "text_target.csv": b"age,sex,bmi,bp,y\n1,2,3,4,5\n1,2,3,4,none\n1,2,3,4,lots\n",
    "gap.csv": b"age,sex,bmi,bp,y\n1,2,3,4,5\n1,2,3,4,\n",
    "broken.parquet": b"PAR1 but not really",
    "table.xlsx": b"PK",
    "data.csv.gz": b"not gzip",
}


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
        ("text_target.csv", ["Column 'y' of text_target.csv (--target) holds 'none' in row 1", "expected numbers"]),
        ("gap.csv", ["Column 'y' of gap.csv (--target) has no value in 1 of 2 rows, first in row 1"]),
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
        fails(f"blame lightgbm.txt {PLAIN} --validation {name}", *parts)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("check lightgbm.txt --train train.csv --target Y", ["no column 'Y' (--target)", "it has id, age"]),
        ("check lightgbm.txt --train train.csv --target cty", ["Did you mean 'city'?"]),
        ("check lightgbm.txt --train train.csv", ["--train was given without --target"]),
        ("check lightgbm.txt --target y", ["--target was given without --train"]),
        ("check lightgbm.txt --train train.csv --target y,y2", ["--target names 2 columns", "has 1 outputs"]),
        (f"check lightgbm.txt {PLAIN} --weights city", ["Column 'city' of train.csv (--weights) holds '"]),
        (f"check lightgbm.txt {PLAIN} --index kind", ["has the label ", "twice in column 'kind'"]),
        (f"check lightgbm.txt {PLAIN} --features age,age,bmi,bp", ["names a column twice"]),
        (f"check lightgbm.txt {PLAIN} --features age,y,bmi,bp", ["--features names 'y', which is the target"]),
        (f"check lightgbm.txt {PLAIN} --features bp,bmi,sex,age", ["in another order"]),
        (f"check lightgbm.txt {PLAIN} --categorical city", ["not among the features: age, sex, bmi, bp"]),
        (f"check lightgbm.txt {PLAIN} --threads 0", ["n_threads is 0"]),
        (f"check lightgbm.txt {PLAIN} --memory-limit lots", ["memory_limit is 'lots'"]),
        (f"check lightgbm.txt {PLAIN} --memory-limit 10B", ["10 bytes is allowed by memory_limit"]),
        (f"check lightgbm.txt {PLAIN} --scratch nowhere", ["scratch is 'nowhere', which is no directory"]),
        (
            "check lightgbm.txt --train noage.csv --target y",
            ["noage.csv lacks 1 of the 4 features", ": age. It has id"],
        ),
        (f"{EXPLAIN} --query noage.csv", ["noage.csv lacks 1 of the 4 features: age", "columns of train.csv"]),
        (f"{EXPLAIN} --query query.csv --top 0", ["--top is 0"]),
        (f"{EXPLAIN} --query query.csv --csv no/where.csv", ["There is no directory", "where.csv"]),
        (f"{EXPLAIN} --query query.csv --csv .", ["--csv is '.', a directory"]),
        (f"blame lightgbm.txt {PLAIN} --validation noy.csv", ["noy.csv has no column 'y' (--target)"]),
        (f"remove lightgbm.txt {PLAIN} --query query.csv --rows 3,150", ["no row labelled '150' (--rows)", "from 0"]),
        (f"remove lightgbm.txt {PLAIN} --query query.csv --rows 3,3", ["names row 3 twice"]),
        (f"remove lightgbm.txt {PLAIN} --query query.csv --where drop", ["train.csv has no column 'drop' (--where)"]),
        (f"remove lightgbm.txt {PLAIN} --query query.csv --where kind", ["(--where) holds 'high'", "expected numbers"]),
        (f"remove lightgbm.txt {PLAIN} --query query.csv --where y2", ["(--where) holds ", "1 for rows to delete"]),
        (f"remove lightgbm.txt {PLAIN} --query query.csv --where age", ["'age' among its features, which --where"]),
        (f"what-if lightgbm.txt {PLAIN} --query query.csv --set 3", ["--set is '3'; expected a row label and its new"]),
        (f"what-if lightgbm.txt {PLAIN} --query query.csv --set 3=x", ["target 'x'; expected a number, such as 12=80"]),
        (f"what-if lightgbm.txt {PLAIN} --query query.csv --set 3=1 --set 3=2", ["--set names row '3' twice"]),
        (f"what-if lightgbm.txt {PLAIN} --query query.csv --set 150=1", ["no row labelled '150' (--set)"]),
        (f"group lightgbm.txt {PLAIN} --query query.csv --by cty", ["--by names 'cty'", "Did you mean 'city'?"]),
        (f"group lightgbm.txt {PLAIN} --query query.csv --by city --cut 3", ["--cut needs numbers; column 'city'"]),
        (f"group lightgbm.txt {PLAIN} --query query.csv --by age --cut 50,40", ["--cut is '50,40'; expected rising"]),
        (f"{EXPLAIN} --query query.csv --out page.pdf", ["--out is page.pdf", ".jsonl or .html"]),
        (INTERVALS, ["nothing to calibrate with", "--calibration", "--out-of-fold"]),
        (f"{INTERVALS} --calibration noy.csv", ["noy.csv has no column 'y' (--target)"]),
        (f"{INTERVALS} --calibration query.csv", ["takes at least 9 calibration rows; there are 3"]),
        (f"{INTERVALS} --calibration validation.csv --coverage 90", ["coverage is 90", "between 0 and 1"]),
        (f"{INTERVALS} --out-of-fold folds", ["train.csv has no column 'folds' (--out-of-fold)"]),
        (f"{INTERVALS} --out-of-fold y2,w", ["out_of_fold", "2"]),
        (f"{INTERVALS} --out-of-fold kind", ["(--out-of-fold) holds 'high'", "expected numbers"]),
        (f"{INTERVALS} --out-of-fold age", ["'age' among its features, which --out-of-fold"]),
        ("check missing.txt", ["missing.txt cannot be read: No such file"]),
        ("check .", [". is a directory"]),
        ("check train.csv", ["a table of data by its name, not a model"]),
        ("check noise.bin", ["no model that axil knows: it begins with b'noise'"]),
        ("check nothing.txt", ["nothing.txt is empty"]),
        ("check cut.txt", ["looks like a LightGBM model but cannot be read", "save the model again"]),
        ("check cut.json", ["looks like an XGBoost model but cannot be read"]),
        ("check cut.cbm", ["looks like a CatBoost model but cannot be read"]),
        ("check cut.pkl --trust", ["looks like a pickle but cannot be read"]),
        ("check catboost.json", ["looks like CatBoost's JSON", "model.save_model('model.cbm')"]),
        ("check dump.json", ["looks like LightGBM's dump_model"]),
        ("demo --save train.csv", ["--save train.csv is a file"]),
    ],
)
@pytest.mark.usefixtures("damaged")
def test_bad_input(fails, words, parts):
    fails(words, *parts)


def test_the_demo_shows_ages_and_groups_by_name(run, tmp_path):
    code, out, err = run(f"demo --quiet --save {tmp_path}")
    assert (code, err) == (0, "")
    assert out.startswith("Query ")
    assert re.search(r"^60 and over +[+-]0\.\d+ +[+-]\d+", out, re.M)
    ages = pd.read_csv(tmp_path / "train.csv")["age"]
    assert 18 <= ages.min() < ages.max() < 100
    assert "Try next" not in out


def test_usage(run):
    for words in (
        "",
        "explain",
        "explain model.txt",
        "nonsense",
        f"{EXPLAIN} --query query.csv --by size",
        "check",
        f"remove lightgbm.txt {PLAIN} --query query.csv",
    ):
        code, out, err = run(words)
        assert (code, out) == (2, "")
        assert err.startswith("usage: axil")
    commands = (
        "explain",
        "similar",
        "group",
        "what-if",
        "check",
        "audit",
        "blame",
        "remove",
        "intervals",
        "report",
        "demo",
    )
    for words in ("--help", *(f"{name} --help" for name in commands)):
        code, out, _ = run(words)
        assert (code, out[:11]) == (0, "usage: axil")
    assert run("--version") == (0, f"axil {axil.__version__}\n", "")


def test_a_library_that_is_missing_is_named(fails, monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    fails("check lightgbm.txt", "needs lightgbm, which is not installed", "pip install 'axil[lightgbm]'")
    fails("demo", "The demo needs lightgbm", "pip install 'axil[demo]'")
    monkeypatch.setitem(sys.modules, "skops", None)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    fails("check ridge.skops", "needs skops", "pip install 'axil[skops]'")


def test_an_unexpected_error(fails, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("no idea")

    monkeypatch.setattr("axil.cli.checks.supports", broken)
    fails("check lightgbm.txt", "Unexpected error (please report it): ZeroDivisionError: no idea", "--debug", code=3)
    with pytest.raises(ZeroDivisionError):
        main(["check", "lightgbm.txt", "--debug"])


HOSTILE = "\x1b]0;title\x07\x1b[2J"  # sets a window's title, rings, clears the screen


def test_control_characters_never_reach_the_terminal(run, fails, folder):
    labels = TRAIN["id"].where(TRAIN.index > 0, f"{HOSTILE}a\nInjected: ok: predicted -0.5\u202e")
    odd = TRAIN.assign(id=labels).rename(columns={"bmi": f"b\nmi{HOSTILE}x"})
    odd.to_csv(folder / "odd.csv", index=False)
    model = lightgbm_model().fit(odd[["age", "sex", f"b\nmi{HOSTILE}x", "bp"]].to_numpy(), Y)
    model.booster_.save_model(folder / "odd.txt")
    names = f"--features 'age,sex,b\nmi{HOSTILE}x,bp'"
    for words in (
        f"explain odd.txt --train odd.csv --target y --index id {names} --query odd.csv --top 5",
        f"blame odd.txt --train odd.csv --target y --index id {names} --validation odd.csv --top 150",
    ):
        code, out, err = run(words)
        assert code == 0, err
        assert "\\x1b]0;title\\x07" in out
        assert not set(out + err) & {"\x1b", "\x07", "\u202e"}
        assert not [line for line in out.splitlines() if line.startswith("Injected")]
    err = fails("explain lightgbm.txt --train odd.csv --target y --query odd.csv", "lacks 1 of the 4 features")
    assert "\x1b" not in err
    assert err.count("\n") == 1
    warned = run("explain lightgbm.txt --train train.csv --target y --query query.csv")[2]
    assert all(line.startswith("axil: ") for line in warned.splitlines())


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_csv_has_no_formulas_and_json_no_infinity():
    from axil.cli.written import Text, as_csv

    frame = pd.DataFrame(
        {
            "label": ["=cmd|x", "+1", "-5 m", "@a", "\tb", "a=b", "-1e5"],
            "=name": [-1.5, np.inf, -np.inf, np.nan, 0.0, 1e300, 2.0],
            "kind": pd.Categorical(["=a", "b"] * 3 + ["b"]),
            "whole": [-3] * 7,
        }
    )
    read = pd.read_csv(io.StringIO(as_csv(frame)), dtype={"label": str})
    assert list(read.columns) == ["label", "'=name", "kind", "whole"]
    assert list(read["label"]) == ["'=cmd|x", "+1", "'-5 m", "'@a", "'\tb", "a=b", "-1e5"]
    assert list(read["kind"][:2]) == ["'=a", "b"]
    np.testing.assert_array_equal(read["'=name"], frame["=name"])
    assert (read["whole"] == -3).all()

    def refuse(name):
        raise AssertionError(name)

    out = io.StringIO()
    Text(out, "jsonl").add(frame)
    records = [json.loads(line, parse_constant=refuse) for line in out.getvalue().splitlines()]
    assert [record["=name"] for record in records] == [-1.5, None, None, None, 0.0, 1e300, 2.0]
    shown = Terminal()
    Text(shown, "csv").add(frame.assign(label=HOSTILE))
    assert "\x1b" not in shown.getvalue()
    assert shown.getvalue().count("\n") == 8


def test_the_csv_file_is_written_whole_or_not_at_all(run, fails, folder, monkeypatch):
    (folder / "kept.csv").write_text("before")
    monkeypatch.setattr(
        "axil.cli.written.as_csv", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    fails(f"{EXPLAIN} --query query.csv --csv kept.csv", "kept.csv cannot be written: No space left on device")
    assert (folder / "kept.csv").read_text() == "before"
    assert not list(folder.glob(".axil-*"))


def test_a_large_field_makes_no_large_message(fails, folder):
    large = "x" * 5_000_000
    TRAIN.astype({"bmi": object}).assign(bmi=[large, *TRAIN["bmi"][1:]]).to_csv(folder / "large.csv", index=False)
    err = fails("explain lightgbm.txt --train large.csv --target y --query query.csv", "'bmi'", "characters)")
    assert len(err) < 1000
    TRAIN.rename(columns={"bmi": large}).to_csv(folder / "large.csv", index=False)
    assert len(fails("explain lightgbm.txt --train large.csv --target y --query query.csv", "lacks")) < 1000
    assert len(str(axil.InputError("x" * 10**7))) < 5000


def test_a_device_is_looked_for_before_any_work(run, fails, monkeypatch):
    monkeypatch.setattr("axil.kernels.choose.why_no_gpu", lambda: "CuPy is not installed")
    fails(f"check lightgbm.txt {PLAIN} --device cuda", 'device="cuda" was asked for, but CuPy is not installed')
    assert run(f"check lightgbm.txt {PLAIN} --device auto")[0] == 0


def test_a_plain_number_is_a_memory_limit(run):
    assert run(f"check lightgbm.txt {PLAIN} --memory-limit 2000000000")[0] == 0


def changed(folder, name, edit):
    """A model file with something changed in it."""
    document = json.loads((folder / "xgboost.json").read_text())
    tree = document["learner"]["gradient_booster"]["model"]["trees"][0]
    edit(tree)
    (folder / name).write_text(json.dumps(document))


def test_damaged_models_are_named_in_one_line(fails, folder, monkeypatch):
    text = (folder / "lightgbm.txt").read_text()
    damages = {
        "cycle": re.sub(r"left_child=\S+", "left_child=0", text, count=1),
        "number": re.sub(r"left_child=\S+", "left_child=9999", text, count=1),
        "feature": re.sub(r"split_feature=\S+", "split_feature=77", text, count=1),
        "negative": re.sub(r"num_leaves=\S+\nnum_cat", "num_leaves=-3\nnum_cat", text, count=1),
        "short": re.sub(r"leaf_value=\S+", "leaf_value=", text, count=1),
        "sizes": re.sub(r"tree_sizes=\S+", "tree_sizes=7", text, count=1),
        "digits": re.sub(r"threshold=\S", "threshold=x", text, count=1),
    }
    for name, damaged in damages.items():
        assert damaged != text
        (folder / f"damaged_{name}.txt").write_text(damaged)
        err = fails(f"check damaged_{name}.txt {PLAIN}", f"damaged_{name}.txt", "damaged")
        assert err.count("\n") == 1
    changed(folder, "damaged.json", lambda tree: tree["left_children"].__setitem__(1, 0))
    err = fails(f"check damaged.json {PLAIN}", "damaged.json", code=2)
    assert err.count("\n") == 1
    (folder / "damaged.skops").write_bytes((folder / "ridge.skops").read_bytes()[:-30])
    fails("check damaged.skops", "damaged.skops")

    def broken(*_):
        raise KeyError("leaf_value")

    monkeypatch.setattr("axil.cli.commands.adapters.read", broken)
    err = fails(f"check catboost.cbm {PLAIN}", "catboost.cbm was read but cannot be used (KeyError: 'leaf_value')")
    assert err.count("\n") == 1
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    monkeypatch.setattr("axil.cli.commands.Explainer", broken)
    fails(f"check catboost.cbm {PLAIN}", "catboost.cbm was read but cannot be used on the rows of train.csv")


def test_the_page(run, folder):
    code, out, _ = run(f"{EXPLAIN} --query query.csv --html page.html")
    assert code == 0
    assert out.count("Query ") == N_QUERY
    page = (folder / "page.html").read_text(encoding="utf-8")
    packed = re.search(r'id="data">(.*?)</script>', page)[1]
    summary = json.loads(zlib.decompress(base64.b64decode(packed)))
    assert summary["n"] == N_QUERY
    assert summary["standard_errors"] is not None


def shell(words, cwd, **more):
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=120, **more)


def test_as_a_program(folder):
    words = [sys.executable, "-m", "axil", *shlex.split(f"{EXPLAIN} --query query.csv --format csv")]
    done = shell(words, folder)
    assert done.returncode == 0, done.stderr
    assert len(table_of(done.stdout)) == 10 * N_QUERY
    failed = shell([sys.executable, "-m", "axil", "check", "missing.txt"], folder)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert "Traceback" not in failed.stderr


def test_labels_that_the_terminal_cannot_show(folder):
    TRAIN.assign(id="Øst " + TRAIN["id"]).to_csv(folder / "east.csv", index=False)
    words = shlex.split("blame lightgbm.txt --train east.csv --target y --index id --validation validation.csv --top 2")
    done = shell([sys.executable, "-m", "axil", *words], folder, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\\xd8st p") == 2


def test_a_reader_that_stops_early_is_no_error(folder):
    words = f"{EXPLAIN} --query validation.csv --top 150 --format csv"
    command = f"set -o pipefail; {sys.executable} -m axil {words} | head -1"
    done = shell(["bash", "-c", command], folder)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert done.stdout.startswith("query,prediction,rank,row")


def test_the_page_of_the_command_line_runs(run, tmp_path, monkeypatch):
    """Every command on docs/cli.md, one after the other in one directory; they print what the page shows."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```(?:\n\n```text\n(.*?)```)?", page, re.S)
    assert len(blocks) >= 5
    for words, shown in blocks:
        for line in words.splitlines():
            assert line.startswith("axil ")
            code, out, err = run(line.removeprefix("axil "))
            assert (code, err) == (0, "")
        for line in shown.splitlines():
            assert line == "..." or line in out.splitlines()
