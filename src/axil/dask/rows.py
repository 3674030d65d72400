"""HeldRows: training rows in partitions on workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class HeldRows:
    """The training rows on the workers."""

    partitions: list[Any]  #: delayed, held; each with ``targets`` and ``labels``
    sizes: list[int]
    label_dtype: np.dtype[Any]
