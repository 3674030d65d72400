"""The scripts of the gallery and the demo run, say what they should and leave their pictures."""

import re
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


def test_the_page_shows_the_scripts():
    """The markers that put them into the page stand there as the manual's builder wants them: no formatter changed them."""
    page = (EXAMPLES.parent / "docs" / "gallery.md").read_text(encoding="utf-8")
    shown = re.findall(r'^    --8<-- "examples/(\w+)\.py"$', page, re.M)
    assert sorted(shown) == sorted(GALLERY)
    assert all((EXAMPLES / f"{name}.py").exists() for name in shown)
    settings = (EXAMPLES.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r'\[tool\.ruff\.format\]\nexclude = \["docs/gallery\.md"\]', settings)


def test_every_script_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*GALLERY, "diabetes"}
