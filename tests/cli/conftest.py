"""A folder with the files of models and their data, and commands run in it."""

import json
import shlex

import pytest

from axil.cli import main
from tests.cli.cli_models import FILES, MODELS, QUERY, TRAIN, VALIDATION, X, Y


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A directory with the models and their data."""
    path = tmp_path_factory.mktemp("cli")
    for name, frame in {"train": TRAIN, "query": QUERY, "validation": VALIDATION}.items():
        frame.to_csv(path / f"{name}.csv", index=False)
        frame.to_parquet(path / f"{name}.parquet")
    for name, (model, write) in MODELS.items():
        write(model.fit(X, Y), path / name)
    return path


@pytest.fixture(scope="session")
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
    (folder / "dump.json").write_text(
        json.dumps(MODELS["lightgbm.txt"][0].booster_.dump_model()), encoding="utf-8"
    )
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
