"""A progress bar on long work, where tqdm is installed and somebody is looking."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 2.0  # seconds before a bar appears


def track(steps: Sequence[T], what: str) -> Iterable[T]:
    """Iterate over the steps; a bar appears if that takes longer than `PATIENCE`."""
    watched = sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)
    if not watched or len(steps) < 2:
        return steps
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return steps
    return tqdm(steps, desc=what, delay=PATIENCE, leave=False)  # type: ignore[no-any-return]
