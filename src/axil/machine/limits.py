"""Limits of an explainer on its machine: threads, bytes, and the device that works."""

from __future__ import annotations

from dataclasses import dataclass

from axil.machine.memory import Budget


@dataclass(frozen=True)
class Limits:
    """The threads and bytes that work may take, where large arrays are kept, and the device: "cpu" or "cuda"."""

    n_threads: int
    budget: Budget
    device: str = "cpu"
