"""What `import axil` may cost and load."""

import json
import subprocess
import sys

PROGRAM = """
import json, sys, time
import numpy, scipy, scipy.linalg, scipy.sparse, scipy.sparse.linalg
before = set(sys.modules)
start = time.perf_counter()
import axil
print(json.dumps({"seconds": time.perf_counter() - start, "modules": sorted(set(sys.modules) - before)}))
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
    "dask",
    "distributed",
    "skops",
}


def test_import_is_quick_and_loads_no_optional_library():
    runs = [json.loads(subprocess.check_output([sys.executable, "-c", PROGRAM])) for _ in range(3)]
    loaded = {name.split(".")[0] for name in runs[0]["modules"]}
    assert not loaded & OPTIONAL
    assert min(run["seconds"] for run in runs) < 0.3  # the limit that users are promised; measured around 0.1


def test_public_names():
    import axil

    assert set(axil.__all__) <= set(dir(axil))
    assert issubclass(axil.InputError, ValueError)
    for error in (axil.InputError, axil.ExactnessError, axil.UnsupportedModelError):
        assert issubclass(error, axil.AxilError)
