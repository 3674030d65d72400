"""Random data for the fuzzer: tiny and odd tables, targets, weights and offsets, and the forms they are handed over in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[np.float64]

N_CATEGORIES = 6


class Draw:
    """Random choices that are remembered, so that a trial can say what it was."""

    def __init__(self, *seed: int):
        self.start = seed
        self.rng = np.random.default_rng(seed[0] if len(seed) == 1 else seed)
        self.chosen: dict[str, Any] = {}
        self.ranked = False  # whether models have percentiles for leaf values
        self.task = ""  # of tuned models: quantiles, counts or classes; empty: mostly squared error

    def aside(self, stream: int = 1) -> Draw:
        """Choices from a stream of their own: those of the main stream stay as they were for the same seed number."""
        other = Draw(*self.start, stream)
        other.chosen = self.chosen
        return other

    def pick(self, name: str, *options: Any) -> Any:
        """One of the options; repeat one to make it likelier."""
        found = options[int(self.rng.integers(len(options)))]
        self.chosen[name] = found
        return found

    def flag(self, name: str, share: float) -> bool:
        found = bool(self.rng.random() < share)
        if found:
            self.chosen[name] = True
        return found

    def some(self, settings: dict[str, tuple[Any, ...]], share: float) -> dict[str, Any]:
        """Each setting with this chance, at one of its values."""
        return {
            name: self.pick(name, *values)
            for name, values in settings.items()
            if self.rng.random() < share
        }

    def seed(self) -> int:
        return int(self.rng.integers(1 << 30))


@dataclass
class Trial:
    """A fitted model and the data that it was fitted on; ``lossy`` where it is known to have lost a setting."""

    model: Any
    X: Any
    y: Array
    sample_weight: Array | None
    offsets: Array | None
    X_new: Any
    predict: Callable[[Any], Any]
    lossy: bool = False
    base: float = 0.0  #: the constant that predictions start from, where one was given
    refit: Callable[[Array], Any] | None = None  #: the smoother fitted to other targets
    predict_from: Callable[[Any, Any], Any] | None = (
        None  #: of rows with offsets, where these are not simply added
    )


@dataclass
class Data:
    X: Array
    y: Array
    weight: Array | None
    offset: Array | None
    X_new: Array
    categories: list[int] = field(
        default_factory=list
    )  #: columns of whole numbers below N_CATEGORIES
    convert: Callable[[Array], Any] = lambda X: X


def table(
    draw: Draw, *, gaps: bool = True, forms: tuple[str, ...] = ("array",), outputs: bool = False
) -> Data:
    """Rows, targets, weights and offsets, each odd in its own way."""
    rng = draw.rng
    n = draw.pick("rows", 1, 2, 3, 5, 8, 13, 30, 30, 80, 80, 200, 200, 400)
    n_new, n_columns = 7, draw.pick("columns", 1, 2, 3, 5, 8)
    kinds = [_KINDS[int(rng.integers(len(_KINDS)))] for _ in range(n_columns)]
    draw.chosen["kinds"] = ",".join(kinds)
    X = np.stack([_column(rng, kind, n + n_new) for kind in kinds], axis=1)
    if draw.flag("duplicates", 0.15):
        X[:n] = X[rng.integers(0, max(1, n // 3), n)]
    if draw.flag("copied column", 0.1):
        X[:, -1] = X[:, 0]
        kinds[-1] = kinds[0]
    signal = (
        np.nansum(np.sin(np.arange(1, n_columns + 1) * np.clip(X, -3, 3)), axis=1)
        + rng.normal(size=n + n_new) / 2
    )
    y = _targets(rng, draw.pick("targets", *_TARGETS), signal[:n])
    if outputs and draw.flag("outputs", 0.25):
        y = np.stack(
            [
                y,
                *(
                    y[rng.permutation(n)] * 0.5 ** (k - 1)
                    for k in range(draw.pick("extra outputs", 1, 2))
                ),
            ],
            1,
        )
    if gaps and draw.flag("gaps", 0.25):
        numeric = np.array([kind != "category" for kind in kinds])
        X = np.where(
            (rng.random(X.shape) < draw.pick("gap share", 0.05, 0.3, 0.9)) & numeric, np.nan, X
        )
    form = draw.pick("form", *forms)
    categories = [i for i, kind in enumerate(kinds) if kind == "category"]
    weight = _weights(rng, draw.pick("weights", *_WEIGHTS), n)
    offset = (
        rng.normal(size=y.shape) * (np.abs(y).max() or 1.0) if draw.flag("offset", 0.12) else None
    )
    return Data(
        X[:n], y, weight, offset, X[n:], categories, lambda rows: _form(rows, form, categories)
    )


_KINDS = ("normal", "normal", "normal", "constant", "whole", "zeros", "huge", "binary", "category")


def _column(rng: np.random.Generator, kind: str, n: int) -> Array:
    if kind == "constant":
        return np.full(n, 3.0)
    if kind == "whole":
        return rng.integers(-5, 20, n).astype(float)
    if kind == "zeros":
        return np.where(rng.random(n) < 0.8, 0.0, rng.normal(size=n))
    if kind == "huge":
        return rng.normal(size=n) * 1e8 + 1e9
    if kind == "binary":
        return rng.integers(0, 2, n).astype(float)
    if kind == "category":
        return rng.integers(0, N_CATEGORIES, n).astype(float)
    return rng.normal(size=n)


_TARGETS = (
    *("plain",) * 6,
    *(
        "constant",
        "zero",
        "whole",
        "binary",
        "tiny",
        "huge",
        "far",
        "centred",
        "negative",
        "outlier",
        "long",
        "mixed",
    ),
)


def _targets(rng: np.random.Generator, kind: str, signal: Array) -> Array:
    changes: dict[str, Callable[[Array], Array]] = {
        "plain": lambda y: y + 5,
        "constant": lambda y: 0 * y + 3.3,
        "zero": lambda y: 0 * y,
        "whole": np.rint,
        "binary": lambda y: (y > 0).astype(float),
        "tiny": lambda y: y * 1e-12,
        "huge": lambda y: y * 1e9,
        "far": lambda y: y + 1e5,
        "centred": lambda y: y - y.mean(),
        "negative": lambda y: -np.abs(y) - 1,
        "outlier": lambda y: np.where(np.arange(len(y)) == 0, 1e4, y),
        "long": np.exp,
        "mixed": lambda y: np.where(rng.random(len(y)) < 0.5, y, 0.0),
    }
    return changes[kind](signal)


_WEIGHTS = (
    "none",
    "none",
    "none",
    "gamma",
    "gamma",
    "zeros",
    "ones",
    "whole",
    "twos",
    "small",
    "large",
    "wide",
    "lone",
)


def _weights(rng: np.random.Generator, kind: str, n: int) -> Array | None:
    gamma = rng.gamma(2.0, size=n) + 1e-3
    kinds: dict[str, Array | None] = {
        "none": None,
        "gamma": gamma,
        "zeros": np.where(rng.random(n) < 0.4, 0.0, gamma),
        "ones": np.ones(n),
        "whole": rng.integers(1, 5, n).astype(float),
        "twos": np.full(n, 2.0),
        "small": gamma * 1e-3,
        "large": gamma * 1e4,
        "wide": np.exp(rng.normal(size=n) * 3),
        "lone": np.where(np.arange(n) == n // 2, 1.0, 0.0),
    }
    return kinds[kind]


def _form(rows: Array, form: str, categories: list[int]) -> Any:
    if form == "float32":
        return rows.astype(np.float32)
    if form == "fortran":
        return np.asfortranarray(rows)
    if form == "csr":
        return sparse.csr_matrix(rows)
    if form == "csc":
        return sparse.csc_matrix(rows)
    if form == "frame":
        return pd.DataFrame(rows, columns=[f"x {i}" for i in range(rows.shape[1])])
    if form == "categories":
        return categorical(rows, categories)
    return rows


def categorical(rows: Array, categories: list[int]) -> pd.DataFrame:
    """A frame with category columns, one of the categories missing."""
    frame = pd.DataFrame(rows, columns=[f"c{i}" for i in range(rows.shape[1])])
    for i in categories:
        codes = rows[:, i].astype(int)
        codes = np.where(codes == N_CATEGORIES - 1, -1, codes)
        frame[f"c{i}"] = pd.Categorical.from_codes(
            codes, [f"level {k}" for k in range(N_CATEGORIES - 1)]
        )
    return frame
