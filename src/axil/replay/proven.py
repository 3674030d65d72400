"""ProvenModel: a fitted model that was shown to belong to its training data, and all that questions are answered from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.adapters.contract import Model
from axil.errors import CostWarning, warn
from axil.inputs.owned import frozen
from axil.machine.limits import Limits
from axil.machine.memory import Budget
from axil.machine.progress import track
from axil.machine.shared import Kept
from axil.replay.checks import Verification, check_answer
from axil.replay.queries import Offsets, Queries
from axil.scale import IDENTITY, FittedTargets, TargetScale
from axil.types import Array
from axil.weights.answers import Answer
from axil.weights.contract import Engine

PATIENCE = 30.0  # seconds that queries may take without a word about a faster way
MANY = 64  # queries that leaf space has to pay for, to be built unasked
WORTH = 0.1  # seconds that so many queries have to take by sweeps
MANY_BYTES = 1 << 29  # that it may then take, or half of the user's own limit


@dataclass(frozen=True, eq=False, repr=False)
class ProvenModel:
    """A fitted model, its training rows, and the engines that make its predictions of their targets.

    Nothing in it changes. `prepared`, `for_many` and `prepared_for` give another one, which shares what is kept. Only they choose
    how queries are answered, so no answer depends on how many others were asked for with it.
    """

    adapter: Model
    engines: list[Engine]  #: one for all outputs that share trees, else one for each
    targets: Array  #: (N, K) on the scale of the fit; one-hot for classes
    index: NDArray[Any]  #: (N,) the user's labels of the training rows
    features: Any  #: (N, features) the training rows; None where they are not at hand
    backend: str  #: the name of the frame library that tables are made with
    limits: Limits
    verification: Verification | None  #: what the replay found; None where it was not asked for
    scale: TargetScale = IDENTITY  #: of the fit
    seen: Array | None = None  #: (N, K) targets as people read them; None where that is the scale of the fit
    is_prepared: bool = False  #: whether by `prepared`
    kept: Kept = field(default_factory=Kept)  #: leverages and noise, once they are known

    def __post_init__(self) -> None:
        """Targets and labels are shared with every explanation, so they are read-only."""
        object.__setattr__(self, "targets", frozen(self.targets))
        object.__setattr__(self, "index", frozen(self.index))

    @property
    def n_threads(self) -> int:
        """The threads that its work may take."""
        return self.limits.n_threads

    @property
    def budget(self) -> Budget:
        """The bytes that one request may take."""
        return self.limits.budget

    @property
    def shown(self) -> Array:
        """(N, K): the targets as people read them."""
        return self.targets if self.seen is None else self.seen

    def on(self, fitted: FittedTargets) -> ProvenModel:
        """This model, proven on the scale of the fit, with the targets on both scales."""
        seen = None if fitted.scale.is_identity else frozen(fitted.shown)
        return replace(self, scale=fitted.scale, seen=seen)

    @property
    def outputs(self) -> NDArray[Any] | None:
        """(K,): the names of the classes or the numbers of the outputs; None for a single output."""
        if self.targets.shape[1] == 1:
            return None
        return np.arange(self.targets.shape[1]) if self.adapter.classes is None else self.adapter.classes

    @property
    def is_sparse(self) -> bool:
        """Whether most weights are zero, known to be, and the same for all outputs."""
        return len(self.engines) == 1 and self.engines[0].is_sparse

    # -- engines and outputs --------------------------------------------------------------------------------------------

    def served(self) -> list[slice]:
        """The outputs that each engine serves."""
        return [slice(None)] if len(self.engines) == 1 else [slice(k, k + 1) for k in range(len(self.engines))]

    def by_output(self, columns: Array) -> list[tuple[Engine, Array]]:
        """Each engine with the columns, (., K), of the outputs that it serves."""
        if len(self.engines) == 1:
            return [(self.engines[0], columns)]
        return [(engine, columns[:, [k]]) for k, engine in enumerate(self.engines)]

    def across(self, columns: Array, ask: Callable[[Engine, Array], Array]) -> Array:
        """(., K): the results of each engine for the columns of its outputs, side by side."""
        return np.concatenate([ask(engine, own) for engine, own in self.by_output(columns)], axis=1)

    def own_targets(self) -> list[Array]:
        """The targets engine by engine, always the same arrays: engines keep sums of them."""
        return self.kept.get("targets", lambda: [np.ascontiguousarray(self.targets[:, own]) for own in self.served()])

    def prepared(self) -> ProvenModel:
        """This model, with all done ahead that makes queries cheaper; refused where that does not fit into memory."""
        needed = sum(engine.memory.preparation for engine in self.engines)
        self.budget.require(needed, "Leaf space", "Explanations work without it, by sweeps over the trees.")
        return replace(self, engines=[engine.prepared() for engine in self.engines], is_prepared=True)

    def prepared_for(self, n_queries: int) -> ProvenModel:
        """This model, with what pays for so many queries done ahead, whatever was asked before."""
        available = self.budget.available
        return replace(self, engines=[engine.prepared(n_queries, available) for engine in self.engines])

    def for_many(self) -> ProvenModel:
        """This model as queries ask it, in leaf space or by sweeps: chosen by the model and the limits, never by the request."""
        limit = self.budget.limit
        available = MANY_BYTES if limit is None else min(limit // 2, MANY_BYTES)
        worth = [engine.query_seconds(MANY, available)[0] > WORTH for engine in self.engines]
        engines = [engine.prepared(MANY, available) if pays else engine for engine, pays in zip(self.engines, worth)]
        return replace(self, engines=engines) if any(worth) else self

    def groups(self, labels: Any, what: str = "labels") -> tuple[NDArray[np.intp], NDArray[Any]]:
        """Each training row's group number and the groups' names, from labels or the name of a column of the training rows."""
        values = inputs.row_values(labels, self.features, self.adapter.feature_names, what)
        return inputs.group_codes(values, len(self.targets), what)

    def advise(self, n_queries: int) -> None:
        """Warn, before so many queries are answered, where that takes long and `prepared` would halve it."""
        times = [engine.query_seconds(n_queries, self.budget.available) for engine in self.engines]
        now, prepared = (sum(part) for part in zip(*times))
        if now > PATIENCE and 2 * prepared < now:
            warn(
                f"The weights of {n_queries} queries by sweeps take about {now:.0f} s on two cores. Call explainer.prepare() "
                f"first: then about {prepared:.0f} s, and the same numbers up to their last bits.",
                CostWarning,
            )

    # -- queries --------------------------------------------------------------------------------------------------------

    def queries(self, X: Any, init_score: Any = None) -> Queries:
        """The rows of X and their offsets, checked."""
        rows = inputs.as_features(X, self.adapter, "X", self.features)
        offsets = Offsets.of(init_score, rows.shape[0], self.adapter)
        return Queries(self.adapter, rows, offsets, inputs.row_labels(rows), self.n_threads)

    def batches(
        self, queries: Queries, size: int, what: str, even_empty: bool = False
    ) -> Iterator[tuple[int, Queries]]:
        """So many queries at a time with the position of their first; one empty batch of no queries where asked for."""
        n = len(queries)
        self.advise(n)
        for start in track(range(0, max(n, 1) if even_empty else n, size), what):
            yield start, queries[start : start + size]

    def ask(self, queries: Queries) -> list[Answer]:
        """The weights of the queries, from each engine."""
        return [engine.ask(queries.coordinates, queries.offsets.base) for engine in self.engines]

    def check(self, queries: Queries, predictions: Array) -> Array | None:
        """Compare predictions (n, K), offsets included, with the model's own on every use, and return those."""
        return check_answer(self.verification, predictions, queries.labels, lambda: queries.predictions)

    def predicted(self, queries: Queries) -> Array:
        """(n, K): the predictions, offsets included, as sums over the targets, which must be the model's own.

        One replay of the fit. These sums are always made in the same order, which a library's threads do not promise of theirs.
        """
        coordinates = queries.coordinates
        made = self.across(self.targets, lambda engine, own: engine.predicted(coordinates, own))
        made = made + queries.offsets.values
        if queries.offsets.replace_base:
            made -= self.base_numbers()
        self.check(queries, made)
        return made

    def base_numbers(self) -> Array:
        """(K,): what the base puts into every prediction of trees."""
        parts = []
        for engine, targets in self.by_output(self.targets):
            s = engine.structure
            mean = np.average(targets, axis=0, weights=s.row_weights) if s.base is None else s.base
            parts.append(np.broadcast_to(s.beta[-1] * mean, targets.shape[1:]))
        return np.concatenate(parts)

    def fitted(self) -> Array:
        """(N, K): the training rows' own predictions, with the offsets of the fit, which may stand in for the base."""
        found = self.across(self.targets, lambda engine, own: engine.predicted(None, own))
        return found if self.base_offsets() is None else found - self.base_numbers()

    def base_offsets(self) -> Array | None:
        """(N, K): the offsets that stood in for the base in the fit; None where it started from the base."""
        if not getattr(self.adapter, "offset_replaces_base", False) or self.engines[0].structure.own_base:
            return None
        return np.concatenate([cast(Array, engine.structure.offsets) for engine in self.engines], axis=1)

    # -- memory ---------------------------------------------------------------------------------------------------------

    def require(self, n: int, instead: str) -> None:
        """Raise unless the weights of so many queries fit into memory."""
        n_train = len(self.targets)
        self.budget.require(8 * n * n_train * len(self.engines), f"The weights of {n} x {n_train} rows", instead)

    def streamed_bytes(self) -> int:
        """Bytes that one query takes while its answers are handed on block by block."""
        return sum(engine.memory.per_query for engine in self.engines)

    def dense_bytes(self) -> int:
        """Bytes that the explanation of one query takes while it is made."""
        return sum(max(8 * len(self.targets), engine.memory.per_query) for engine in self.engines)
