"""Which back end works: the cores of this machine, or its GPU, whose libraries are loaded only when it is asked for."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from axil import inputs
from axil.errors import InputError
from axil.kernels import Backend
from axil.kernels.cpu import Cpu
from axil.machine.memory import Budget, Limits, free_memory

DEVICES = ("cpu", "cuda", "auto")
GPU_BATCH = 1 << 32  # bytes of weights held on a GPU at a time while streaming
INSTALL = 'Install CuPy for your driver, pip install "axil[cuda12]" or "axil[cuda13]", or use device="cpu".'


# Seconds of set-up with its proof and ten explanations, by benchmarks/gpu.py: per row and tree, per
# explainer, and, for CuPy and the compiled kernels, once per process.
CORE_VISIT = 5.5e-8
GPU_VISIT = 1.5e-9
GPU_EACH = 0.15
GPU_START = 1.2


def settled(limits: Limits, n_visits: float) -> Limits:
    """The limits on the device that costs less for ``n_visits``, rows times trees, where the user leaves the choice: "auto"."""
    if limits.device != "auto":
        return limits
    if _gpu_pays(n_visits, limits.n_threads) and why_no_gpu() is None:
        device = "cuda"
    else:
        device = "cpu"
    return Limits(
        limits.n_threads, budget_of(device, limits.budget.limit, limits.budget.scratch), device
    )


def _gpu_pays(n_visits: float, n_threads: int) -> bool:
    """Whether a GPU costs less than ``n_threads`` cores; CuPy is not even loaded where it does not."""
    if "axil.kernels.cuda" in sys.modules:
        start = 0.0
    else:
        start = GPU_START
    return start + GPU_EACH + GPU_VISIT * n_visits < CORE_VISIT * n_visits / n_threads


def why_no_gpu() -> str | None:
    """The reason why no GPU can be used here; None where one can."""
    try:
        cupy: Any = import_module("cupy")
    except ImportError:
        return "CuPy is not installed"
    except Exception as error:  # what a broken driver or library raises is anything
        return f"CuPy does not load ({error})"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        return f"CuPy finds no GPU ({error})"
    if count:
        return None
    return "CuPy finds no GPU"


def budget_of(device: str, limit: int | None, scratch: Path | None) -> Budget:
    """The memory that work on a device may take: on a GPU no more than is free there and here, in larger batches."""
    if device != "cuda":
        return Budget(limit, scratch)
    return Budget(limit, scratch, _free_everywhere, GPU_BATCH)


def _free_everywhere() -> int:
    from axil.kernels.cuda.launch import free_bytes

    return min(free_memory(), free_bytes())


def backend_of(limits: Limits) -> Backend:
    """The back end that works within these limits."""
    if limits.device != "cuda":
        return host_backend(limits.n_threads)
    from axil.kernels.cuda import Cuda

    return Cuda(limits.n_threads)


def host_backend(n_threads: int = 1) -> Backend:
    """Return the back end for arrays in the memory of this machine, whatever device the user chose for the rest of the work."""
    return Cpu(n_threads)


def limits_of(
    n_threads: int | None, memory_limit: int | str | None, scratch: Any = None, device: str = "cpu"
) -> Limits:
    """The limits that the user sets, or else the machine: a thread for each processor that this process may use, free memory.

    The device "auto" is `settled` once the model and its rows are known; until then it is the
    cores.
    """
    if n_threads is not None:
        threads = inputs.as_count(n_threads, "n_threads", most=inputs.MOST_THREADS)
    else:
        threads = (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
    limit = None if memory_limit is None else inputs.as_bytes(memory_limit)
    missing = why_no_gpu() if inputs.as_choice(device, DEVICES, "device") == "cuda" else None
    if missing is not None:
        raise InputError(f'device="cuda" was asked for, but {missing}. {INSTALL}')
    budget = budget_of(device, limit, None if scratch is None else inputs.as_directory(scratch))
    return Limits(threads, budget, device)
