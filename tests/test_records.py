"""Records of decisions and certificates of refits, compared with the models themselves."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import axil
from axil.errors import InputError, UnsupportedQuestionError

N = 120
RNG = np.random.default_rng(9)
X = pd.DataFrame(RNG.normal(size=(N, 3)), columns=list("abc"), index=[f"r{i}" for i in range(N)])
Y = 100 + 10 * X["a"] + RNG.normal(size=N)
NEW = X.iloc[:3] + 0.1
SETTINGS = {"n_estimators": 15, "min_child_samples": 5, "n_jobs": 1, "verbose": -1}


def explainer_of(model=None, y=Y) -> axil.Explainer:
    if model is None:
        model = LGBMRegressor(**SETTINGS)
    return axil.Explainer(model.fit(X, y), X, y)


def record_of(explainer, rows) -> dict:
    return json.loads(explainer(rows).to_json())


MODELS = {
    "lightgbm": lambda: LGBMRegressor(**SETTINGS),
    "forest": lambda: RandomForestRegressor(10, random_state=0),
    "ridge": Ridge,
    "pipeline": lambda: make_pipeline(StandardScaler(), LGBMRegressor(**SETTINGS)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_record_has_the_lines_of_top(name, tmp_path):
    explainer = explainer_of(MODELS[name]())
    text = explainer(NEW).to_json(tmp_path / "record.json", k=4)
    record = json.loads(text)
    assert (tmp_path / "record.json").read_text() == text
    table = explainer.top(NEW, 4)
    for row in record["rows"]:
        lines = table[table["query"] == row["row"]].drop(columns="query")
        pd.testing.assert_frame_equal(
            pd.DataFrame(row["training rows"]), lines.reset_index(drop=True), check_dtype=False
        )
    assert record["training data"]["rows"] == N
    assert record["verification"] == repr(explainer.verification).splitlines()


def test_digests_tell_models_and_data_apart(tmp_path):
    explainer = explainer_of()
    record = record_of(explainer, NEW)
    same = record_of(explainer_of(), NEW)
    assert (same["model"], same["training data"]) == (record["model"], record["training data"])
    other = record_of(explainer_of(y=Y + (X.index == "r7")), NEW)
    assert other["training data"]["digest"] != record["training data"]["digest"]
    assert other["model"] != record["model"]
    moved = NEW.copy()
    moved.iloc[1, 2] += 1e-12
    digests = [row["features"] for row in record_of(explainer, moved)["rows"]]
    expected = [row["features"] for row in record["rows"]]
    assert [a == b for a, b in zip(digests, expected)] == [True, False, True]
    explainer.save(tmp_path / "saved.npz")
    loaded = axil.load(tmp_path / "saved.npz", explainer.model, X_train=X)
    again = record_of(loaded, NEW)
    assert again["training data"] == record["training data"]
    assert [row["features"] for row in again["rows"]] == expected
    bare = axil.load(tmp_path / "saved.npz", explainer.model)
    with pytest.raises(UnsupportedQuestionError, match="it needs the training rows"):
        bare(NEW).to_json()


@pytest.mark.parametrize("name", MODELS)
def test_a_certificate_says_what_a_refit_changed(name):
    old = explainer_of(MODELS[name]())
    deleted = ["r3", "r50", "r51"]
    new = old.refit(drop=deleted)
    certificate = new.certificate()
    assert certificate["rows deleted"] == deleted
    assert certificate["rows added"] == []
    stayed = X.drop(index=deleted)
    moved = np.abs(new.model.predict(stayed) - old.model.predict(stayed))
    assert certificate["predictions moved"]["rows"] == N - 3
    assert certificate["predictions moved"]["largest"] == pytest.approx(moved.max(), rel=1e-4)
    assert certificate["predictions moved"]["mean"] == pytest.approx(moved.mean(), rel=1e-4)
    assert certificate["before"] == {
        name: value for name, value in record_of(old, NEW).items() if name in certificate["before"]
    }
    assert certificate["before"]["model"] != certificate["after"]["model"]
    if name == "ridge":
        assert certificate["tree structure kept"] is None
    else:
        assert certificate["tree structure kept"] is True
        assert "This is no retraining." in certificate["statement"]
    json.loads(certificate.to_json())


def test_other_targets_and_added_rows_are_named():
    old = explainer_of()
    further = pd.DataFrame(RNG.normal(size=(2, 3)), columns=list("abc"), index=["n0", "n1"])
    new = old.refit(add=(further, np.array([90.0, 110.0])), targets={"r5": 130.0})
    certificate = new.certificate()
    assert certificate["rows added"] == ["n0", "n1"]
    assert certificate["rows with another target"] == ["r5"]


def test_a_retrained_model_has_no_certificate():
    old = explainer_of()
    rows = X.index[5:]
    model = LGBMRegressor(**SETTINGS | {"num_leaves": 4}).fit(X.loc[rows], Y[rows])
    with pytest.raises(InputError, match="other trees"):
        axil.Explainer(model, X.loc[rows], Y[rows]).certificate(old)


def test_an_explanation_without_its_rows_has_no_record():
    explainer = explainer_of()
    assert record_of(explainer, NEW)["rows"][1]["row"] == "r1"
    assert json.loads(explainer(NEW)[1].to_json())["rows"][0]["row"] == "r1"
    for explanation in (pickle.loads(pickle.dumps(explainer(NEW))), explainer.aggregate(NEW)):
        with pytest.raises(UnsupportedQuestionError, match="sums of predictions, or it was unp"):
            explanation.to_json()


def test_a_certificate_needs_the_explainer_before(tmp_path):
    old = explainer_of()
    new = old.refit(drop=["r3"])
    expected = new.certificate()
    again = new.refit(drop=["r5"])
    assert again.certificate()["rows deleted"] == ["r5"]
    assert again.certificate(old)["rows deleted"] == ["r3", "r5"]
    copied = pickle.loads(pickle.dumps(new))
    for alone in (copied, old):
        with pytest.raises(InputError, match="expected the explainer before refit"):
            alone.certificate()
    content = copied.certificate(old).content
    assert {**content, "made": ""} == {**expected.content, "made": ""}
