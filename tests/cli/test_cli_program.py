"""The command line as a program: other processes, missing libraries, unexpected errors, the demo and the manual's page."""

import os
import re
import shlex
import sys
from pathlib import Path

import pandas as pd
import pytest

from axil.cli import main
from tests.cli.cli_models import EXPLAIN, N_QUERY, TRAIN, shell, table_of

ROOT = Path(__file__).parent.parent.parent


def test_the_demo_shows_ages_and_groups_by_name(run, tmp_path):
    code, out, err = run(f"demo --quiet --save {tmp_path}")
    assert (code, err) == (0, "")
    assert out.startswith("Query ")
    assert re.search(r"^60 and over +[+-]0\.\d+ +[+-]\d+", out, re.M)
    ages = pd.read_csv(tmp_path / "train.csv")["age"]
    assert 18 <= ages.min() < ages.max() < 100
    assert "Try next" not in out


def test_a_library_that_is_missing_is_named(fails, monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    fails(
        "check lightgbm.txt",
        "needs lightgbm, which is not installed",
        "pip install 'axil[lightgbm]'",
    )
    fails("demo", "The demo needs lightgbm", "pip install 'axil[demo]'")
    monkeypatch.setitem(sys.modules, "skops", None)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    fails("check ridge.skops", "needs skops", "pip install 'axil[skops]'")


def test_an_unexpected_error(fails, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("no idea")

    monkeypatch.setattr("axil.cli.answers.supports", broken)
    fails(
        "check lightgbm.txt",
        "Unexpected error (please report it): ZeroDivisionError: no idea",
        "--debug",
        code=3,
    )
    with pytest.raises(ZeroDivisionError):
        main(["check", "lightgbm.txt", "--debug"])


def test_as_a_program(folder):
    words = [
        sys.executable,
        "-m",
        "axil",
        *shlex.split(f"{EXPLAIN} --query query.csv --format csv"),
    ]
    done = shell(words, folder)
    assert done.returncode == 0, done.stderr
    assert len(table_of(done.stdout)) == 10 * N_QUERY
    failed = shell([sys.executable, "-m", "axil", "check", "missing.txt"], folder)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert "Traceback" not in failed.stderr


def test_labels_that_the_terminal_cannot_show(folder):
    TRAIN.assign(id="Øst " + TRAIN["id"]).to_csv(folder / "east.csv", index=False)
    words = shlex.split(
        "influence lightgbm.txt --train east.csv --target y --index id --validation validation.csv "
        "--top 2"
    )
    done = shell(
        [sys.executable, "-m", "axil", *words],
        folder,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\\xd8st p") == 2


def test_a_reader_that_stops_early_is_no_error(folder):
    words = f"{EXPLAIN} --query validation.csv --top 150 --format csv"
    command = f"set -o pipefail; {sys.executable} -m axil {words} | head -1"
    done = shell(["bash", "-c", command], folder)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert done.stdout.startswith("query,prediction,rank,row")


@pytest.mark.filterwarnings(
    "ignore:np.find_common_type:DeprecationWarning"
)  # of pandas 2.0 with NumPy 1.25
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
