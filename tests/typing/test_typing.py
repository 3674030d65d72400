"""Type checkers on code as a user writes it: they infer the types and refuse wrong calls."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
SOURCES = FOLDER.parents[1] / "src"
USER_CODE = [FOLDER / "right_calls.py", FOLDER / "wrong_calls.py"]


def run(command):
    """Return the exit status and the output of a command in a folder without settings."""
    environment = os.environ | {"MYPYPATH": str(SOURCES)}
    result = subprocess.run(
        [sys.executable, "-m", *command],
        capture_output=True,
        text=True,
        cwd=FOLDER,
        env=environment,
        check=False,
    )
    return result.returncode, result.stdout + result.stderr


def test_mypy_knows_the_types_of_the_public_interface(tmp_path):
    pytest.importorskip("mypy")
    options = ["--strict", "--ignore-missing-imports", "--follow-imports=silent"]
    command = ["mypy", *options, "--config-file=", f"--cache-dir={tmp_path}", *map(str, USER_CODE)]
    status, output = run(command)
    assert status == 0, output


def test_pyright_knows_the_types_of_the_public_interface(tmp_path):
    if find_spec("pyright") is None:
        pytest.skip("pyright is not installed")
    settings = {
        "include": list(map(str, USER_CODE)),
        "extraPaths": [str(SOURCES)],
        "reportUnnecessaryTypeIgnoreComment": "error",
        "reportMissingTypeStubs": False,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = ["pyright", "--project", str(tmp_path), "--pythonpath", sys.executable]
    status, output = run(command)
    assert status == 0, output
