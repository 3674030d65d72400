"""The scripts of the gallery and the demo run, say what they should and leave their pictures."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
GALLERY = {
    "house_prices": (["weights.png", "years.png", "valuations.html"], "predictions    within"),
    "wrong_labels": (["blame.png"], "wrong labels"),
    "who_contributed": (["shares.png"], "Share of the rows"),
}


@pytest.mark.parametrize("name", GALLERY)
def test_gallery(name, tmp_path, monkeypatch, capsys):
    files, said = GALLERY[name]
    monkeypatch.setattr(sys, "argv", [name, "--out", str(tmp_path / "out")])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert said in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(files)
    assert all(path.stat().st_size > 5000 for path in (tmp_path / "out").iterdir())


def test_the_demo_ends_with_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "diabetes.py"), run_name="__main__")
    assert capsys.readouterr().out.rstrip().endswith((tmp_path / "axil-demo.html").as_uri())


def test_every_script_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*GALLERY, "diabetes"}
