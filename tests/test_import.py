"""What `import axil` loads, and the names it gives."""

import ast
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import axil

PROGRAM = """
import json, sys
import axil
print(json.dumps(sorted(sys.modules)))
"""
OPTIONAL = {
    "lightgbm",
    "sklearn",
    "xgboost",
    "catboost",
    "torch",
    "matplotlib",
    "tqdm",
    "polars",
    "pyarrow",
    "pandas",
    "zarr",
    "dask",
    "distributed",
    "skops",
}
WHEN_ASKED_FOR = {f"axil.{name}" for name in ("baselines", "cli", "dask", "plots")}


@cache
def modules():
    """The modules of the package by path, each parsed once."""
    package = Path(axil.__file__).parent
    return {
        path.relative_to(package).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in package.rglob("*.py")
    }


def loaded_by(program):
    return set(json.loads(subprocess.check_output([sys.executable, "-c", program])))


def test_import_loads_little_and_an_explainer_nothing_that_only_some_ask_for():
    """That is what makes it quick: `import axil` loads NumPy alone, the explainer SciPy and narwhals besides."""
    loaded = loaded_by(PROGRAM)
    assert len([name for name in loaded if name.split(".")[0] == "axil"]) <= 12
    assert not {name.split(".")[0] for name in loaded} & {*OPTIONAL, "scipy", "narwhals"}
    loaded = loaded_by(PROGRAM.replace("import axil", "import axil; axil.Explainer, axil.supports"))
    assert "axil.explainer" in loaded
    assert not {name.split(".")[0] for name in loaded} & OPTIONAL
    assert not loaded & WHEN_ASKED_FOR


def test_names_stay_what_they_are_whatever_is_imported():
    """A submodule that is imported later does not take the place of a public name."""
    code = "import axil, axil.cli, axil.support, axil.dask; print(axil.supports.__name__, callable(axil.Explainer))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["supports", "True"]
    assert callable(axil.adapters.register)
    assert not hasattr(axil, "no_such_name")


def test_public_names():
    submodules = {"baselines", "plots"}
    assert set(dir(axil)) == {*axil.__all__, *submodules, "__version__"}
    assert all(getattr(axil, name) is not None for name in dir(axil))
    assert issubclass(axil.InputError, ValueError)
    for error in (
        axil.InputError,
        axil.ExactnessError,
        axil.UnsupportedModelError,
        axil.UnsupportedQuestionError,
    ):
        assert issubclass(error, axil.AxilError)


def test_one_module_imports_the_compiled_core():
    """A second back end has one door to stand beside; the linter cannot see a compiled module."""
    found = set()
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
                if any("_core" in one.split(".") for one in names):
                    found.add(name)
    assert found == {"kernels/cpu.py"}


def test_submodules_come_with_the_package():
    """In an interpreter of its own: here other tests have imported them."""
    code = "import axil; print(axil.Explainer.__name__, axil.baselines.TREX.__name__, axil.plots.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Explainer", "TREX", "axil.plots"]


def test_every_class_has_a_name_of_its_own():
    places = {}
    for name, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
