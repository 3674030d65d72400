"""What `import axil` loads, and the names it gives."""

import json
import subprocess
import sys

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
WHEN_ASKED_FOR = {f"axil.{name}" for name in ("baselines", "cli", "dask", "jacobian", "plots")}


def test_import_loads_no_optional_library_and_nothing_that_only_some_ask_for():
    """That is what makes it quick: what is loaded beyond NumPy and SciPy is axil's own and small."""
    loaded = set(json.loads(subprocess.check_output([sys.executable, "-c", PROGRAM])))
    assert "axil.explainer" in loaded
    assert not {name.split(".")[0] for name in loaded} & OPTIONAL
    assert not loaded & WHEN_ASKED_FOR


def test_public_names():
    import axil

    assert set(axil.__all__) <= set(dir(axil))
    assert issubclass(axil.InputError, ValueError)
    for error in (axil.InputError, axil.ExactnessError, axil.UnsupportedModelError):
        assert issubclass(error, axil.AxilError)
