"""Another build of the core gives the same bits as the installed one; see chosen_core.py."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from axil import _core
from tests import chosen_core
from tests.hostile_calls import KERNELS, right_call


def results() -> dict[str, str]:
    """A digest of all that each kernel leaves behind, for rows in several blocks and columns in tiles of every width."""
    rng, found = np.random.default_rng(0), {}
    for kernel in KERNELS:
        digest = hashlib.sha256()
        for columns in (1, 2, 5, 8, 33):
            arguments = right_call(kernel, rng, rows=5000, n_trees=20, columns=columns)
            if "leaves" in arguments:
                counts = np.diff(arguments["starts"])[:, None]
                arguments["leaves"][...] = rng.integers(0, counts, arguments["leaves"].shape)
            getattr(_core, kernel)(**arguments)
            for name in sorted(arguments):
                if isinstance(arguments[name], np.ndarray):
                    digest.update(arguments[name].tobytes())
        found[kernel] = digest.hexdigest()
    return found


@pytest.mark.skipif(
    not chosen_core.PATH, reason="compares the build that AXIL_CORE names with the installed one"
)
def test_the_same_bits_as_the_installed_core() -> None:
    others = {
        name: value for name, value in os.environ.items() if name not in ("AXIL_CORE", "LD_PRELOAD")
    }
    root = Path(__file__).parents[1]
    assert (
        json.loads(
            subprocess.check_output(
                [sys.executable, "-m", "tests.test_core_variants"], cwd=root, env=others
            )
        )
        == results()
    )


if __name__ == "__main__":
    sys.stdout.write(json.dumps(results()))
