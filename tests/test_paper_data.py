"""The paper's data sets: read from a folder, or from OpenML - here a stand-in that answers in its place - and kept."""

import hashlib
import io
import json
import sys
import warnings
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlparse

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import _openml

EXPERIMENTS = Path(__file__).parent.parent / "experiments"
ARFF = """@RELATION toy
@ATTRIBUTE size NUMERIC
@ATTRIBUTE name STRING
@ATTRIBUTE colour {red,green,blue}
@ATTRIBUTE other NUMERIC
@ATTRIBUTE fare NUMERIC
@DATA
1.25,'a b',red,7,10
2,?,blue,8,20
?,c,red,9,30
4,d,green,?,40
5,e,?,1,50
6,f,red,2,60.1
"""
TYPES = {
    "size": "numeric",
    "name": "string",
    "colour": "nominal",
    "other": "numeric",
    "fare": "numeric",
}


class OpenML:
    """Answers scikit-learn's requests for data set 7 as OpenML does."""

    def __init__(self, arff=ARFF, md5=None):
        self.asked = 0
        features = [
            {
                "name": name,
                "data_type": kind,
                "index": str(i),
                "is_target": str(name == "fare").lower(),
            }
            | {
                "is_ignore": "false",
                "is_row_identifier": "false",
                "nominal_value": ["red", "green", "blue"],
            }
            for i, (name, kind) in enumerate(TYPES.items())
        ]
        description = {
            "id": "7",
            "name": "toy",
            "version": "1",
            "description": "",
            "format": "ARFF",
            "status": "active",
        }
        description |= {
            "url": "https://www.openml.org/data/v1/download/1/toy.arff",
            "default_target_attribute": "fare",
        }
        description |= {
            "md5_checksum": md5 or hashlib.md5(arff.encode()).hexdigest(),
            "file_id": "1",
        }
        rows = [{"name": "NumberOfInstances", "value": "6.0"}]
        self.answers = {
            "/api/v1/json/data/7": json.dumps({"data_set_description": description}),
            "/api/v1/json/data/features/7": json.dumps({"data_features": {"feature": features}}),
            "/api/v1/json/data/qualities/7": json.dumps({"data_qualities": {"quality": rows}}),
            "/data/v1/download/1/toy.arff": arff,
            "/data/v1/download/1": arff,  # by scikit-learn before 1.6
        }

    def __call__(self, request, *_, **__):
        self.asked += 1
        answer = io.BytesIO(self.answers[urlparse(request.full_url).path].encode())
        answer.info = dict
        return answer


def line(**changed):
    line = {
        "name": "toy",
        "openml_id": "7",
        "target": "fare",
        "drop": "other",
        "N": "4",
        "M": "4",
        "sha256": "0" * 64,
    }
    return line | changed


@pytest.fixture
def paper_data(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    import paper_data

    monkeypatch.setenv("AXIL_EXPERIMENTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(paper_data.TABLE, "toy", line())
    return paper_data


@pytest.fixture
def openml(monkeypatch):
    answering = OpenML()
    monkeypatch.setattr(_openml, "urlopen", answering)
    return answering


def test_the_table_names_the_data_sets_of_all_commands(paper_data, monkeypatch):
    import runtime
    import target_sensitivity

    assert sorted(paper_data.NAMES) == sorted(runtime.PAPER) == sorted(target_sensitivity.PAPER)
    assert all(len(paper_data.TABLE[name]["sha256"]) == 64 for name in paper_data.NAMES)


def test_openml_is_prepared_as_the_paper_says_and_kept(paper_data, openml, tmp_path):
    X, y = paper_data.read("toy")
    assert list(X) == [
        "size",
        "colour_blue",
        "colour_green",
        "colour_red",
    ]  # name is text, the table drops other
    rows = [
        [1.25, 0, 0, 1],
        [2, 1, 0, 0],
        [4, 0, 1, 0],
        [6, 0, 0, 1],
    ]  # gaps in dropped columns do not count
    assert X.to_numpy().tolist() == rows
    assert (y.name, y.tolist()) == ("fare", [10, 20, 40, 60.1])
    asked = openml.asked
    X_again, y_again = paper_data.read("toy")
    assert openml.asked == asked > 0
    pd.testing.assert_frame_equal(X, X_again)
    pd.testing.assert_series_equal(y, y_again)
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["toy.csv", "toy.sha256"]


@pytest.mark.parametrize("damage", ["another value", "no checksum"])
def test_a_damaged_cache_is_fetched_anew(paper_data, openml, tmp_path, damage):
    expected, _ = paper_data.read("toy")
    asked, path = openml.asked, tmp_path / "cache" / "toy.csv"
    if damage == "another value":
        path.write_text(path.read_text().replace("1.25", "1.26"))
    else:
        path.with_suffix(".sha256").unlink()
    with pytest.warns(UserWarning, match=r"toy\.csv is damaged.*fetched from OpenML again"):
        X, _ = paper_data.read("toy")
    assert openml.asked > asked
    pd.testing.assert_frame_equal(X, expected)


def test_another_shape_than_the_papers_is_refused_and_not_kept(
    paper_data, openml, tmp_path, monkeypatch
):
    monkeypatch.setitem(paper_data.TABLE, "toy", line(M="5"))
    with pytest.raises(
        paper_data.DataError, match=r"gives 4 rows and 4 features \(size, .* the paper has 4 and 5"
    ):
        paper_data.read("toy")
    assert not (tmp_path / "cache").exists()


def test_another_spelling_of_the_target(paper_data, openml, monkeypatch):
    monkeypatch.setitem(paper_data.TABLE, "toy", line(target="Fare ($)"))
    with pytest.warns(
        UserWarning, match=r"no column 'Fare \(\$\)'; its default target 'fare' is taken"
    ):
        assert paper_data.read("toy")[1].name == "fare"
    with pytest.raises(paper_data.DataError, match=r"no column 'Fare .*no default target among a"):
        paper_data.prepare("toy", pd.DataFrame({"a": [1.0]}), None)


def test_a_target_of_categories(paper_data, monkeypatch):
    monkeypatch.setitem(paper_data.TABLE, "toy", line(N="2", M="1"))
    frame = pd.DataFrame({"fare": pd.Categorical(["5", "6"]), "size": [1.0, 2.0]})
    assert paper_data.prepare("toy", frame, None)["fare"].tolist() == [5.0, 6.0]
    with pytest.raises(paper_data.DataError, match="target 'fare' of OpenML's 7 is not numeric"):
        paper_data.prepare("toy", frame.assign(fare=pd.Categorical(["low", "high"])), None)


def test_no_connection_and_broken_downloads_say_what_to_do(paper_data, monkeypatch):
    def nobody(*_, **__):
        raise URLError("Name or service not known")

    monkeypatch.setattr(_openml.time, "sleep", lambda _: None)
    monkeypatch.setattr(_openml, "urlopen", nobody)
    with (
        pytest.warns(UserWarning, match="Retrying"),
        pytest.raises(paper_data.DataError, match=r"'toy'.*id 7.*not known.*--data FOLDER"),
    ):
        paper_data.read("toy")
    monkeypatch.setattr(_openml, "urlopen", OpenML(md5="0" * 32))
    with (
        pytest.warns(RuntimeWarning),
        pytest.raises(paper_data.DataError, match=r"md5 checksum.*--data FOLDER"),
    ):
        paper_data.read("toy")


def test_a_folder(paper_data, tmp_path, monkeypatch):
    frame = pd.DataFrame({"a": [1, 2], "fare": [0.5, 1.5]})
    frame.to_csv(tmp_path / "toy.csv", index=False)
    found = hashlib.sha256((tmp_path / "toy.csv").read_bytes()).hexdigest()
    with pytest.warns(
        UserWarning, match=f"SHA-256 {found}.*made from {'0' * 64}.*Results may differ"
    ):
        X, y = paper_data.read("toy", tmp_path)
    assert (list(X), y.tolist()) == (["a"], [0.5, 1.5])
    monkeypatch.setitem(paper_data.TABLE, "toy", line(sha256=found))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(paper_data.read("toy", tmp_path)[1], [0.5, 1.5])
    with pytest.raises(paper_data.DataError, match=r"yacht\.csv is not there"):
        paper_data.read("yacht", tmp_path)
    with pytest.raises(paper_data.DataError, match=r"no data set 'yach' in the paper.*abalone"):
        paper_data.read("yach")


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"XDG_CACHE_HOME": "/c"}, Path("/c/axil-experiments")),
        ("linux", {}, Path.home() / ".cache" / "axil-experiments"),
        ("darwin", {}, Path.home() / "Library" / "Caches" / "axil-experiments"),
        ("win32", {"LOCALAPPDATA": "/local"}, Path("/local/axil-experiments")),
        ("win32", {"AXIL_EXPERIMENTS_CACHE": "/mine"}, Path("/mine")),
    ],
)
def test_where_the_cache_is(paper_data, monkeypatch, platform, variables, expected):
    for name in ("AXIL_EXPERIMENTS_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert paper_data.cache_folder() == expected


def test_names_of_data_sets_are_checked(paper_data, capsys):
    import paper_setting

    parser = paper_setting.arguments("A table.")
    assert parser.parse_args([]).only == paper_data.NAMES
    with pytest.raises(SystemExit):
        parser.parse_args(["--only", "yach"])
    assert "invalid choice: 'yach' (choose from" in capsys.readouterr().err
    assert paper_setting.command("runtime", None) == "python experiments/runtime.py"
    assert (
        paper_setting.command("runtime", Path("there"))
        == "python experiments/runtime.py --data FOLDER"
    )
