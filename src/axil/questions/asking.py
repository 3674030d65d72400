"""What the questions need of an explainer, and how it is asked: batch by batch, all outputs or each of its own trees."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.adapters.contract import Model, OffsetModel
from axil.errors import CostWarning
from axil.explanation import Explanation
from axil.machine.memory import Budget
from axil.machine.progress import in_time, track
from axil.machine.shared import Kept
from axil.replay.checks import Verification
from axil.weights.answers import Effects
from axil.weights.contract import Engine

Array = NDArray[np.float64]

WARNED = 30.0  # seconds above which leverages are announced


@dataclass(frozen=True)
class Offsets:
    """What users add to the predictions of n rows, or, where the library means it so, put in the place of the base."""

    values: Array  #: (n, K)
    replace_base: bool = False

    @classmethod
    def of(cls, init_score: Any, n: int, adapter: Model) -> Offsets:
        """Checked; zeros, beside the base, for None."""
        values = inputs.as_offsets(init_score, n, adapter.n_outputs, "explained")
        if values is None:
            return cls(np.zeros((n, adapter.n_outputs)))
        return cls(values, getattr(adapter, "offset_replaces_base", False))

    @property
    def base(self) -> float:
        """How often the base counts in a prediction."""
        return 0.0 if self.replace_base else 1.0

    def __getitem__(self, rows: slice) -> Offsets:
        return replace(self, values=self.values[rows])

    def predictions(self, adapter: Model, X: Any) -> Array:
        """(n, K): the model's own predictions of these rows, with their offsets."""
        if self.replace_base:
            return cast(OffsetModel, adapter).predictions_from(X, self.values)
        return np.asarray(adapter.predictions(X) + self.values)


class Explained(Protocol):
    """An explainer, as far as questions go."""

    index: NDArray[Any]
    verification: Verification | None
    _adapter: Model
    _engines: list[Engine]
    _targets: Array
    _features: Any
    _backend: str
    _n_threads: int
    _budget: Budget
    _kept: Kept

    @property
    def outputs(self) -> NDArray[Any] | None:
        """(K,) names or numbers; None for one output."""

    def explain(self, X: Any, init_score: Any = None, sparse: bool = False) -> Explanation:
        """An explanation of X."""

    def iter(
        self, X: Any, batch_size: int | None = None, init_score: Any = None, sparse: bool = False
    ) -> Iterator[Explanation]:
        """Explanations of X batch by batch."""

    def _queries(self, X: Any, init_score: Any) -> tuple[Any, Offsets]:
        """X and the offsets of its rows, checked."""

    def _batch_size(self, bytes_a_query: int, taken: int = 0) -> int:
        """How many queries to ask at a time, where so many bytes are taken by something else."""

    def _table_batch(self, n: int, lines: int, columns: int, working: int) -> int:
        """The same for a table of so many lines per query, once there is room for it."""

    def _engines_for(self, n_queries: int, taken: int = 0) -> list[Engine]:
        """The engines, with what pays for so many queries done ahead, where so many bytes are taken by something else."""

    def _check(self, X: Any, predictions: Array, labels: NDArray[Any], offsets: Offsets | None = None) -> Array | None:
        """Compare with what the model predicts, with offsets, and give that."""


def checked_coordinates(asked: Explained, X: Any) -> tuple[Any, Array]:
    """The coordinates of X and its predictions (n, K) from the targets, which must be the model's own; one replay of the fit.

    Offsets apart. These sums are always made in the same order, which a library's threads do not promise of theirs.
    """
    coordinates = asked._adapter.coordinates(X, asked._n_threads)
    made = for_all_outputs(asked._engines, asked._targets, lambda engine, own: engine.predicted(coordinates, own))
    asked._check(X, made, inputs.row_labels(X))
    return coordinates, made


def explanations(
    asked: Explained, X: Any, init_score: Any = None, batch_size: int | None = None
) -> Iterator[Explanation]:
    """Explanations of X batch by batch, sparse where most weights are zero; an empty one of no rows."""
    sparse = len(asked._engines) == 1 and asked._engines[0].is_sparse
    if X.shape[0] == 0:
        yield asked.explain(X, init_score)
    else:
        yield from asked.iter(X, batch_size, init_score, sparse)


def dense_bytes(asked: Explained) -> int:
    """Bytes that the explanation of one query takes while it is made."""
    return sum(max(8 * len(asked._targets), engine.streamed_bytes()) for engine in asked._engines)


Batches = Iterator[tuple[slice, Any, list[Effects]]]


def removals(asked: Explained, X: Any, engines: list[Engine], batch_size: int) -> Batches:
    """Batches of X: which rows, their coordinates and the effects of deleting training rows on each output."""
    return _effects(asked, X, engines, batch_size, "removal", lambda engine, *query: engine.removal(*query))


def steps(asked: Explained, X: Any, engines: list[Engine], batch_size: int) -> Batches:
    """The same of what training rows put into the steps of the trees."""
    return _effects(asked, X, engines, batch_size, "steps", lambda engine, *query: engine.steps(*query))


def _effects(
    asked: Explained,
    X: Any,
    engines: list[Engine],
    size: int,
    what: str,
    ask: Callable[[Engine, Any, Array], Sequence[Effects]],
) -> Batches:
    """So many queries at a time; their effects are read out block by block."""
    n = X.shape[0]
    for start in track(range(0, n, size), what):
        part = slice(start, min(start + size, n))
        coordinates, _ = checked_coordinates(asked, inputs.take_rows(X, part))
        effects = [
            of_output
            for engine, targets in by_engine(engines, asked._targets)
            for of_output in ask(engine, coordinates, targets)
        ]
        yield part, coordinates, effects


def by_engine(engines: list[Engine], columns: Array) -> list[tuple[Engine, Array]]:
    """Each engine with the columns, (., K), of the outputs that it serves."""
    if len(engines) == 1:
        return [(engines[0], columns)]
    return [(engine, columns[:, [k]]) for k, engine in enumerate(engines)]


def for_all_outputs(engines: list[Engine], columns: Array, ask: Callable[[Engine, Array], Array]) -> Array:
    """(., K): what each engine makes of the columns of its outputs, side by side."""
    return np.concatenate([ask(engine, own) for engine, own in by_engine(engines, columns)], axis=1)


def base_numbers(asked: Explained) -> Array:
    """(K,): what the base puts into every prediction of trees."""
    parts = []
    for engine, targets in by_engine(asked._engines, asked._targets):
        s = engine.structure
        mean = np.average(targets, axis=0, weights=s.row_weights) if s.base is None else s.base
        parts.append(np.broadcast_to(s.beta[-1] * mean, targets.shape[1:]))
    return np.concatenate(parts)


def fitted(asked: Explained) -> Array:
    """(N, K): the training rows' own predictions, with the offsets of the fit, as the weights make them."""
    made = for_all_outputs(asked._engines, asked._targets, lambda engine, own: engine.fitted(own))
    if not getattr(asked._adapter, "offset_replaces_base", False):
        return made
    s = asked._engines[0].structure  # a base that is estimated stays: it is in the weights, and so in leverages too
    return made if s.offsets is None or s.base is None else made - base_numbers(asked)


def leverages(asked: Explained) -> Array:
    """(N, 1), or (N, K) where outputs have trees of their own; made once, after a warning where that takes long."""
    return asked._kept.get("leverages", lambda: _leverages(asked))


def _leverages(asked: Explained) -> Array:
    available = asked._budget.available
    announce("leverages", asked, sum(engine.leverage_seconds(available) for engine in asked._engines))
    found = np.stack([engine.leverage(available) for engine in asked._engines], axis=1)
    found.setflags(write=False)
    return found


def announce(what: str, asked: Explained, seconds: float) -> None:
    """Say before work on all training rows begins how long it takes, if that is long."""
    if WARNED < seconds < np.inf:
        warnings.warn(
            f"The {what} of {len(asked._targets)} training rows take {in_time(seconds)} on two cores, once for this explainer. "
            'Without them there are degrees_of_freedom(estimate=True), standard_error(X, sigma="estimate"), and blame with '
            "correction=None or a correction of your own.",
            CostWarning,
            stacklevel=7,  # the question that was asked
        )
