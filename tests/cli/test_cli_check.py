"""axil check: models that are proven, refused, damaged or fitted on other data."""

import json
import pickle
import re
from importlib.metadata import version
from pathlib import Path

import joblib
import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from tests.cli.cli_models import MODELS, PLAIN, TRAIN, TRUSTED, X, Y, lightgbm_model, trust


@pytest.mark.parametrize("name", MODELS)
def test_check_says_that_a_model_is_exact_and_proves_it(run, name):
    code, out, _ = run(f"check {name}{trust(name)}")
    assert code == 0
    assert out.startswith(f"{name}: exact weights\n")
    code, out, _ = run(f"check {name} {PLAIN}{trust(name)}")
    assert code == 0
    assert out.startswith(f"{name}: exact weights, verified on train.csv\naxil.Verification")


def test_check_as_json(run):
    code, out, _ = run(f"check lightgbm.txt {PLAIN} --json")
    found = json.loads(out)
    assert (code, found["explained"], found["kind"], found["train"]) == (
        0,
        True,
        "exact",
        "train.csv",
    )
    code, out, err = run("check lightgbm.txt --train train.csv --target y2 --json")
    found = json.loads(out)
    assert (code, found["explained"], found["kind"]) == (1, False, "no")
    assert "does not agree with the fitted model" in found["reason"]
    assert "not agree" not in err
    lightgbm_model(linear_tree=True, reg_alpha=1.0).fit(X, Y).booster_.save_model("linear.txt")
    code, out, _ = run("check linear.txt --format json")
    assert (code, json.loads(out)["setting"]) == (1, "linear_tree")
    code, out, err = run(f"check lightgbm.txt {PLAIN} --quiet")
    assert (code, out, err) == (0, "lightgbm.txt: exact weights, verified on train.csv\n", "")


#: skops 0.12 trusts every type of scikit-learn.
HAS_TYPES_TO_TRUST = tuple(int(part) for part in version("skops").split(".")[:2]) > (0, 12)


@pytest.mark.parametrize(
    "name", [name for name in TRUSTED if HAS_TYPES_TO_TRUST or not name.endswith(".skops")]
)
def test_nothing_is_unpickled_unasked(fails, name):
    reason = (
        "sklearn.tree._tree.Tree"
        if name.endswith(".skops")
        else "runs whatever code its author put into it"
    )
    fails(f"check {name}", reason, "pass --trust")


def test_a_pickle_under_another_name_is_seen_and_not_run(fails, folder):
    class Bomb:
        def __reduce__(self):
            return Path.touch, (folder / "exploded",)

    (folder / "model.txt").write_bytes(pickle.dumps(Bomb()))
    fails("check model.txt", "model.txt is a pickle", "--trust")
    assert not (folder / "exploded").exists()


@pytest.mark.skipif(not HAS_TYPES_TO_TRUST, reason="skops 0.12 trusts every type of scikit-learn")
def test_types_that_are_trusted_are_named(run):
    assert (
        "--trust: forest.skops is read with sklearn.tree._tree.Tree"
        in run("check forest.skops --trust")[2]
    )


def test_models_that_are_refused(run, fails, folder):
    lgb.LGBMClassifier(n_estimators=2, verbose=-1).fit(X, TRAIN["kind"]).booster_.save_model(
        "classes.txt"
    )
    xgb.XGBClassifier(n_jobs=1, n_estimators=2).fit(X, Y > 140).save_model("classes.json")
    lightgbm_model(objective="fair").fit(X, Y).booster_.save_model("fair.txt")
    for name in (
        "classes.txt",
        "classes.json",
        "fair.txt",
    ):  # which explain answers: their contributions add up
        code, out, err = run(f"check {name}")
        assert (code, err) == (0, "")
        assert out.startswith(
            f"{name}: no exact weights, but contributions that add up to the score\n"
        )
        assert "objective=" in out
    lightgbm_model(linear_tree=True, reg_alpha=1.0).fit(X, Y).booster_.save_model("linear.txt")
    code, out, err = run("check linear.txt")
    assert (code, err) == (1, "")
    assert out.startswith("linear.txt: no exact weights\n")
    assert "linear_tree" in out
    MODELS["xgboost.pkl"][0].save_model(
        "sampled.json"
    )  # which does not say which rows were sampled
    fails(f"check sampled.json {PLAIN}", "a model file does not keep subsample and seed", code=1)
    joblib.dump({"not": "a model"}, folder / "dict.joblib")
    fails(f"check dict.joblib --trust {PLAIN}", "The model is a builtins.dict; axil reads")


def test_a_replay_that_disagrees(fails, folder):
    TRAIN.iloc[:-1].to_csv(folder / "short.csv", index=False)
    fails(
        "check lightgbm.txt --train short.csv --target y",
        "does not agree with the fitted model",
        code=1,
    )
    fails(
        "check lightgbm.txt --train train.csv --target y2",
        "does not agree with the fitted model",
        code=1,
    )
    fails(
        "check lightgbm.txt --train train.csv --target y --weights w",
        "does not agree with the fitted model",
        code=1,
    )


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
    model = lgb.LGBMRegressor(n_estimators=5, verbose=-1).fit(
        TRAIN[["age", "bmi"]], np.log(TRAIN["y"])
    )
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
    said = fails(
        "check scaled.txt --train train.csv --target y",
        "the model was fitted on scaled columns",
        code=1,
    )
    assert "learning_rate" not in said


def test_a_device_is_looked_for_before_any_work(run, fails, monkeypatch):
    monkeypatch.setattr("axil.kernels.choose.why_no_gpu", lambda: "CuPy is not installed")
    fails(
        f"check lightgbm.txt {PLAIN} --device cuda",
        'device="cuda" was requested, but CuPy is not installed',
    )
    assert run(f"check lightgbm.txt {PLAIN} --device auto")[0] == 0


def test_a_plain_number_is_a_memory_limit(run):
    assert run(f"check lightgbm.txt {PLAIN} --memory-limit 2000000000")[0] == 0


def changed(folder, name, edit):
    """A model file with something changed in it."""
    document = json.loads((folder / "xgboost.json").read_text())
    tree = document["learner"]["gradient_booster"]["model"]["trees"][0]
    edit(tree)
    (folder / name).write_text(json.dumps(document))


@pytest.mark.skipif(
    tuple(map(int, xgb.__version__.split(".")[:2])) >= (3, 4), reason="reads such a file whole"
)
def test_an_older_xgboost_would_read_half_of_a_newer_file(fails, folder):
    """XGBoost 3.4 writes the weights of dropped trees beside the trees, where older versions pass them over."""
    document = json.loads((folder / "xgboost.json").read_text())
    document["learner"]["gradient_booster"]["model"]["weight_drop"] = [1.0, 0.5, 0.5, 1.0, 1.0]
    (folder / "newer.json").write_text(json.dumps(document | {"version": [3, 4, 1]}))
    fails(
        "check newer.json",
        "newer.json has weights of dropped trees",
        f"XGBoost {xgb.__version__}",
        "XGBoost 3.4.1",
    )


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

    monkeypatch.setattr("axil.cli.request.adapters.examine", broken)
    err = fails(
        f"check catboost.cbm {PLAIN}",
        "catboost.cbm was read but cannot be used (KeyError: 'leaf_value')",
    )
    assert err.count("\n") == 1
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    monkeypatch.setattr("axil.cli.request.Explainer", broken)
    fails(
        f"check catboost.cbm {PLAIN}",
        "catboost.cbm was read but cannot be used on the rows of train.csv",
    )
