"""Documents that are made from the code, and code in documents."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_page_of_models_is_made_from_the_adapters():
    spec = importlib.util.spec_from_file_location("make_models_page", ROOT / "scripts" / "make_models_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "models.md").read_text(encoding="utf-8") == module.page()


def run(path):
    """Every block of Python in a page, each by itself."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(encoding="utf-8"), re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, path, "exec"), {})


def test_the_readme_runs(capsys):
    run("README.md")
    assert "contribution" in capsys.readouterr().out


def test_the_page_of_baselines_runs(capsys):
    run("docs/baselines.md")
    assert capsys.readouterr().out.count("(42, 400)") == 5
