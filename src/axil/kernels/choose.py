"""The choice of the back end: the cores of this machine, or its GPU.

Libraries of the GPU are loaded only when it is asked for.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

from axil import inputs
from axil.aliases import Device, ForeignObject
from axil.errors import InputError
from axil.kernels import Backend
from axil.kernels.cpu import Cpu
from axil.machine.log import logger
from axil.machine.memory import Budget, Limits, free_memory

DEVICES: tuple[Device, ...] = ("cpu", "cuda", "auto")
GPU_BATCH = 1 << 32  # bytes of weights held on a GPU at a time while streaming
INSTALL = (
    'Install CuPy for your driver, pip install "axil[cuda12]" or "axil[cuda13]", or use '
    'device="cpu".'
)

# Seconds of set-up with its verification and ten explanations, by benchmarks/gpu.py: per row and
# tree, per explainer, and, for CuPy and the compiled kernels, once per process.
CORE_VISIT = 5.5e-8
GPU_VISIT = 1.5e-9
GPU_EACH = 0.15
GPU_START = 1.2


def settled(limits: Limits, n_visits: float) -> Limits:
    """Return the limits on the cheaper device, if the user passes "auto".

    ``n_visits`` is the work, in rows times trees.
    """
    if limits.device != "auto":
        return limits
    device = "cpu"
    if _gpu_pays(n_visits, limits.n_threads) and why_no_gpu() is None:
        device = "cuda"
    logger.debug('device="auto" for %.3g rows times trees: %s', n_visits, device)
    budget = budget_of(device, limits.budget.limit, limits.budget.scratch)
    return Limits(limits.n_threads, budget, device)


def _gpu_pays(n_visits: float, n_threads: int) -> bool:
    """Return whether a GPU costs less than the cores; CuPy is not even loaded if it does not."""
    start = GPU_START
    if "axil.kernels.cuda" in sys.modules:
        start = 0.0
    return start + GPU_EACH + GPU_VISIT * n_visits < CORE_VISIT * n_visits / n_threads


def why_no_gpu() -> str | None:
    """Return the reason why no GPU can be used here; None if one can."""
    try:
        cupy: ForeignObject = import_module("cupy")
    except ImportError:
        return "CuPy is not installed"
    except Exception as error:  # a broken driver or library may raise anything
        return f"CuPy does not load ({error})"
    try:
        n_devices = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        return f"CuPy finds no GPU ({error})"
    if n_devices:
        return None
    return "CuPy finds no GPU"


def budget_of(device: str, limit: int | None, scratch: Path | None) -> Budget:
    """Return the memory that work on a device may take.

    On a GPU it is no more than is free both there and here, in larger batches.
    """
    if device != "cuda":
        return Budget(limit, scratch)
    return Budget(limit, scratch, _free_everywhere, GPU_BATCH)


def _free_everywhere() -> int:
    """Return the bytes that are free both on the host and on the GPU."""
    from axil.kernels.cuda.launch import free_bytes

    return min(free_memory(), free_bytes())


def backend_of(limits: Limits) -> Backend:
    """Return the back end that works within these limits."""
    if limits.device != "cuda":
        return host_backend(limits.n_threads)
    from axil.kernels.cuda import Cuda

    return Cuda(limits.n_threads)


def host_backend(n_threads: int = 1) -> Backend:
    """Return the back end for arrays in the memory of this machine.

    It is the same whatever device the user chose for the rest of the work.
    """
    return Cpu(n_threads)


def limits_of(
    n_threads: int | None,
    memory_limit: int | str | None,
    scratch: object = None,
    device: str = "cpu",
) -> Limits:
    """Return the limits that the user sets, or else those of the machine.

    By default these are a thread for each processor that this process may use, and free memory. The
    device "auto" is `settled` once the model and its rows are known; until then it is the cores.
    """
    if n_threads is None:
        n_threads = _n_processors()
    else:
        n_threads = inputs.as_count(n_threads, "n_threads", most=inputs.MOST_THREADS)
    limit = None
    if memory_limit is not None:
        limit = inputs.as_bytes(memory_limit)
    if inputs.as_choice(device, DEVICES, "device") == "cuda":
        reason = why_no_gpu()
        if reason is not None:
            raise InputError(f'device="cuda" was requested, but {reason}. {INSTALL}')
    directory = None
    if scratch is not None:
        directory = inputs.as_directory(scratch)
    return Limits(n_threads, budget_of(device, limit, directory), device)


def _n_processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
