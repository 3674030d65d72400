"""Makes the notebooks beside the scripts of the gallery, and the pictures that the manual shows of them.

    pip install -e '.[notebooks]' && python scripts/make_notebooks.py

Cells of a script begin with ``# %%``, text with ``# %% [markdown]`` (jupytext's percent format). The notebook holds what they put
out when they were run; tests/test_gallery.py compares the cells and runs the scripts.
"""

import base64
import os
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
PICTURES = {
    "house_prices": ["house_prices_weights", "house_prices_years"],
    "wrong_labels": ["wrong_labels_influence"],
    "who_contributed": ["who_contributed_shares"],
}  # in the order in which the cells draw them


def executed(script: Path) -> nbformat.NotebookNode:
    """The notebook of a script, run in a folder that is thrown away."""
    notebook = jupytext.read(script)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    with tempfile.TemporaryDirectory() as room:
        NotebookClient(notebook, timeout=300, resources={"metadata": {"path": room}}).execute()
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"  # the same in every run
        cell.metadata = {}
        if "outputs" in cell:  # without progress bars, whose times differ from run to run
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("text/html", None)
    return notebook


def drawn(notebook: nbformat.NotebookNode) -> list[bytes]:
    """The pictures of a notebook, in order."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    return [
        base64.b64decode(output.data["image/png"])
        for output in outputs
        if "image/png" in output.get("data", {})
    ]


if __name__ == "__main__":
    os.environ["PYTHONHASHSEED"] = "0"
    for name, pictures in PICTURES.items():
        notebook = executed(ROOT / "examples" / f"{name}.py")
        nbformat.write(notebook, ROOT / "examples" / f"{name}.ipynb")
        for picture, content in zip(pictures, drawn(notebook), strict=True):
            (ROOT / "docs" / "figures" / f"{picture}.png").write_bytes(content)
