"""The GPU of this machine for tests that can run on one.

Where there is none, tests of a GPU alone are skipped, with the reason, and those of several back ends run on the others.
"""

from __future__ import annotations

import pytest

from axil.kernels import Backend
from axil.kernels.choose import backend_of, why_no_gpu
from axil.machine.memory import Budget, Limits


def need_gpu() -> None:
    missing = why_no_gpu()
    if missing is not None:
        pytest.skip(f"needs a GPU: {missing}")


def gpu(n_threads: int) -> Backend:
    """The back end of the GPU, with so many threads beside it."""
    need_gpu()
    return backend_of(Limits(n_threads, Budget(None), "cuda"))


#: The last of the back ends that a test goes through: a thousand tests that are skipped would hide one that should not be.
GPU = [] if why_no_gpu() else [pytest.param(gpu, id="cuda")]
