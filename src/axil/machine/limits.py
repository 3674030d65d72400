"""Limits of an explainer on its machine: threads and bytes."""

from __future__ import annotations

from dataclasses import dataclass

from axil.machine.memory import Budget


@dataclass(frozen=True)
class Limits:
    """The threads and bytes that work may take, and where large arrays are kept."""

    n_threads: int
    budget: Budget
