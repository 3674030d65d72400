"""Puts the core that the environment variable AXIL_CORE names in place of the installed one.

So the tests run on a build with sanitizers or of plain C++; `make sanitize` and `make test-plain` do so.
"""

import importlib.util
import os
import sys

PATH = os.environ.get("AXIL_CORE")

if PATH and "axil._core" not in sys.modules:
    spec = importlib.util.spec_from_file_location("axil._core", PATH)
    if spec is None or spec.loader is None:
        raise ImportError(f"AXIL_CORE is {PATH!r}, which is no compiled module.")
    core = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(core)
    sys.modules["axil._core"] = core
