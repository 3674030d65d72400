"""ProvenOptimum: a smooth learner that was shown to be at an optimum of its training data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.effects import DERIVATIVES, Effects, Source
from axil.effects.blocks import derived
from axil.errors import InputError
from axil.implicit.contract import Differentiated
from axil.implicit.readers import as_rows
from axil.inputs.copies import frozen
from axil.machine.limits import Limits
from axil.machine.threads import Kept
from axil.pushes.proven import DERIVED, WITHOUT_WEIGHTS
from axil.replay.model import Proven
from axil.replay.queries import Offsets, Queries
from axil.scale import IDENTITY, TargetScale
from axil.types import Array

NO_STEPS = "this model is not a sum of steps along gradients"


@dataclass(frozen=True, eq=False, repr=False)
class ProvenOptimum(Proven):
    """A smooth learner at its optimum, ready to give derivatives of its predictions by its targets."""

    adapter: Differentiated
    index: NDArray[Any]  #: (N,) the user's labels of the training rows
    features: Any
    backend: str
    limits: Limits
    verification: Any
    scale: TargetScale = IDENTITY
    kept: Kept = field(default_factory=Kept)

    kind = "derivative"
    source = DERIVATIVES
    refusals = WITHOUT_WEIGHTS | {
        **dict.fromkeys(
            ("pushes", "audit", "blame", "operator"),
            (NO_STEPS, DERIVED),
        ),
        "derivatives": ("each prediction has one block of derivatives, that by its own targets", DERIVED),
        "what_if": ("other targets move the optimum, and only its derivatives are at hand", DERIVED),
        **dict.fromkeys(
            ("removal", "without", "leave_one_out", "loo_curve", "removal(greedy=True)"),
            (
                "a fit without some rows has another optimum, and only derivatives of this one are at hand",
                "Minus a row's weight times explainer.weight_derivatives(X) is the first-order effect of leaving it out.",
            ),
        ),
        "save": (
            "derivatives at an optimum come from the model and its training data, which no file keeps",
            "Keep the model and the data, and make the explainer again.",
        ),
    }
    no_features = "the training rows of this explainer are no table", "Use explainer.top(X)."

    def __post_init__(self) -> None:
        """Labels are shared with every explanation, so they are read-only."""
        object.__setattr__(self, "index", frozen(self.index))

    @property
    def shape(self) -> tuple[int, int]:
        return self.adapter.targets.shape

    @property
    def targets(self) -> Array:
        """(N, K): the numbers that predictions are differentiated by; 0 and 1 for classes."""
        return frozen(self.adapter.targets)

    @property
    def classes(self) -> NDArray[Any] | None:
        return None

    @property
    def outputs(self) -> NDArray[Any] | None:
        return self.adapter.outputs

    def queries(self, X: Any, init_score: Any = None) -> Queries:
        if init_score is not None:
            raise InputError(
                f"init_score is not taken here: a {self.adapter.library} model that is not boosted has no offsets. Leave it out."
            )
        rows = inputs.as_features(as_rows(X), self.adapter, "X", self.features)
        offsets = Offsets(np.zeros((rows.shape[0], self.shape[1])))
        return Queries(self.adapter, rows, offsets, inputs.row_labels(rows), self.n_threads)

    def asked_of(self, batch: Queries) -> Differentiated:
        """The model for exactly these rows."""
        return self.adapter

    def effects(self, source: Source, asked: Queries) -> Effects:
        """The derivatives of these queries' predictions by the targets."""
        return derived(self.adapter.target_derivatives(asked.rows), asked.predictions, self.targets, asked.start)

    def prove(self, batch: Queries, predictions: Array | None) -> None:
        """Derivatives are no decomposition: there is nothing to compare."""

    def bytes_per_query(self, source: Source, whole: bool = False) -> int:
        return self.adapter.bytes_per_query()
