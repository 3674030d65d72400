"""VerifiedModel: the interface of a fitted model that was verified on its training rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from axil import inputs
from axil.adapters.contract import Model
from axil.aliases import FeatureTable
from axil.arrays import AnyArray, BoolArray, FloatArray
from axil.attribution import (
    Attribution,
    Capabilities,
    Effects,
    Kind,
    Location,
    Quantity,
    Source,
    notes,
)
from axil.attribution.block_effects import Reflected
from axil.attribution.capabilities import Refusal, without_shared_leaves
from axil.inputs.copies import frozen
from axil.machine.memory import Budget, Limits
from axil.machine.progress import track
from axil.machine.threads import Cache
from axil.reductions import Here, Shards
from axil.replay.deletions import Deletions, ReplayedDeletions
from axil.replay.fitted_trees import FittedTrees
from axil.replay.output_names import OutputNames, in_order
from axil.replay.queries import Combination, Offsets, QueryBatch
from axil.replay.refit import RefitInputs
from axil.replay.target_changes import TargetChanges
from axil.replay.training_columns import ColumnsInMemory, TrainingColumns
from axil.replay.verification import Verification
from axil.scale import IDENTITY, TargetScale
from axil.structure.leaves import LeafFit


@dataclass(frozen=True)
class FitOffsets:
    """The offsets of the training rows that a model was fitted with."""

    were_given: bool = False  #: whether training rows had offsets
    replaced_initial: bool = (
        False  #: whether the fit started from them, not from its initial prediction
    )


@dataclass(frozen=True)
class WeightLayout:
    """The groups of outputs that share numbers, and whether most numbers are zero."""

    output_groups: list[slice]  #: the outputs that share their numbers, group by group
    is_shared: bool = False  #: whether all outputs have the same weights
    is_sparse: bool = False  #: whether most weights are known to be zero, the same for all outputs


class VerifiedModel(ABC):
    """A fitted model that was verified on its training rows, of any kind and in any place.

    The methods of an explainer use this interface and depend neither on the kind of the model nor
    on the place of the rows. `answer` runs a reduction over ``shards``.
    """

    kind: ClassVar[Kind]
    location: ClassVar[Location]
    source: ClassVar[Source]  #: the number that belongs to a query and a training row
    start: ClassVar[int] = 0  #: of the rows in this process, which are one shard
    adapter: Model  #: names, features and outputs of the fitted model
    limits: Limits
    backend: str  #: the name of the frame library that tables are made with
    features: Any  #: (N, features) the training rows; None where they are not at hand
    scale: TargetScale  #: of the fit
    seen: FloatArray | None = (
        None  #: (N, K) targets as people read them; None where that is the scale of the fit
    )
    verification: Verification | None  #: of the replay; None where it was not asked for
    kept: Cache
    is_reflected: bool = False  #: whether its single score is of the first of two classes
    chosen_class: Any = None  #: the class of two that the user chose, where each has an output
    targets: Any  #: (N, K) on the scale of the fit; one-hot for classes
    index: Any  #: (N,) the user's labels of the training rows

    @property
    @abstractmethod
    def training(self) -> TrainingColumns:
        """The columns of the training rows."""

    @property
    def deletions(self) -> Deletions:
        """The refits without some of the training rows."""
        return Deletions(self)

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """The numbers of training rows and of outputs."""

    @property
    def shards(self) -> Shards:
        """The training rows, in one or several places."""
        return Here(self)

    @property
    def n_threads(self) -> int:
        """The number of threads for one request."""
        return self.limits.n_threads

    @property
    def budget(self) -> Budget:
        """The memory for one request."""
        return self.limits.budget

    @property
    def names(self) -> OutputNames:
        """The names of the outputs, and of the classes that the model predicts."""
        classes = in_order(self.adapter.classes, self.is_reflected)
        n_outputs = self.shape[1]
        labels = self.adapter.label_classes
        if n_outputs == 1:
            outputs = None
        elif classes is not None:
            outputs = classes
        elif labels is not None:
            outputs = labels.names
        else:
            outputs = np.arange(n_outputs)
        return OutputNames(outputs, classes, classes, self.chosen_class)

    def has_link_of(self, source: Source) -> bool:
        """Return whether a link turns the sums of these numbers, scores, into predictions."""
        return False

    @property
    def reflection(self) -> float | None:
        """The sum of the predictions of two classes.

        It is None if predictions are those of the library.
        """
        return None

    def note(self, text: str) -> str:
        """Return a note on tables, with fixed encodings and the scored class of two."""
        if self.adapter.encodings:
            text = f"{text}; {notes.ENCODED}"
        about_predictions = self.adapter.about_predictions
        if about_predictions:
            text = f"{text}; {about_predictions}"
        calibration = self.adapter.calibration
        if calibration is not None:
            text = f"{text}; {calibration.notes[self.kind.value]}"
        return notes.of_class(text, self.names.scored_class)

    @cached_property
    def capabilities(self) -> Capabilities:
        """The methods that this model answers, by its kind, its place and its fit."""
        has_features = self.features is not None
        return Capabilities.of(self.kind, self.location, has_features, self.own_refusals())

    def for_method(self, method: str) -> VerifiedModel:
        """Return the model for a method: this one, or one with another kind of numbers."""
        return self

    def own_refusals(self) -> dict[str, Refusal]:
        """Return the methods that this model refuses because of its own fit."""
        if self.trees is not None:
            return {}
        return without_shared_leaves(self.source.name)

    @property
    def fit_offsets(self) -> FitOffsets:
        """The offsets of the training rows in the fit."""
        return FitOffsets()

    @property
    def trees(self) -> FittedTrees | None:
        """The trees for comparisons of rows by leaves; None if the model has none."""
        return None

    # -- queries -----------------------------------------------------------------------------------

    @abstractmethod
    def queries(self, X: FeatureTable, init_score: Any = None) -> QueryBatch:
        """Return the rows of X and their offsets after checks."""

    def batches(
        self, queries: QueryBatch, size: int, what: str, even_empty: bool = False
    ) -> Iterator[tuple[int, QueryBatch]]:
        """Yield batches of ``size`` rows with the position of their first row.

        With ``even_empty``, yield one empty batch if there are no rows.
        """
        n = len(queries)
        for start in track(range(0, max(n, 1) if even_empty else n, size), what):
            yield start, queries[start : start + size]

    def asked(self, batch: QueryBatch, source: Source) -> Any:
        """Return what the shards need to know about a batch."""
        return batch

    @abstractmethod
    def verify_predictions(self, batch: QueryBatch, predictions: FloatArray | None) -> None:
        """Raise unless predictions (n, K) are the model's own; None: compute them."""

    @property
    def weight_layout(self) -> WeightLayout:
        """The groups of outputs that share the numbers of the training rows."""
        groups = [slice(k, k + 1) for k in range(self.shape[1])]
        return WeightLayout(groups)

    def ready(self, source: Source, n_queries: int) -> Any:
        """Return this model with the algorithm for a request of this many rows.

        The algorithm does not depend on the sizes of its batches.
        """
        return self

    @property
    def variance_power(self) -> float | None:
        """The power of the mean that is a target's variance by the loss; None: no such loss."""
        return None

    def meant(self, scores: FloatArray) -> dict[str, FloatArray]:
        """Return the meanings of scores (n, K), such as probabilities, by name.

        The result is empty if scores are the predictions themselves.
        """
        return {}

    def meant_by(self, batch: QueryBatch | Combination) -> dict[str, FloatArray]:
        """Return the model's probabilities or means of these rows, (n, K) by name.

        The result is empty for sums.
        """
        if isinstance(batch, Combination):
            return {}
        return self.meant(batch.predictions)

    @property
    def shown(self) -> Any:
        """The targets in the user's units, (N, K)."""
        if self.seen is None:
            return self.targets
        return self.seen

    def predicted(self, queries: QueryBatch) -> FloatArray:
        """Return the predictions of these rows (n, K), verified against the model's own."""
        self.verify_predictions(queries, None)
        return queries.predictions

    # -- memory ------------------------------------------------------------------------------------

    @abstractmethod
    def bytes_per_query(self, source: Source, whole: bool = False) -> int:
        """Return the bytes that one explained row takes.

        With ``whole`` all of its effects are in memory at once, otherwise they are passed on in
        blocks.
        """

    def require(self, n: int, instead: str) -> None:
        """Raise unless the effects of n queries fit into memory."""
        what = f"The {self.source.name} of {n} x {self.shape[0]} rows"
        self.budget.require(n * self.bytes_per_query(self.source, whole=True), what, instead)


@dataclass(frozen=True, eq=False, repr=False)
class InMemory(VerifiedModel):
    """A verified model whose training rows are in this process."""

    location = Location.MEMORY

    adapter: Model
    index: AnyArray
    features: Any
    backend: str
    limits: Limits
    verification: Verification | None
    scale: TargetScale = IDENTITY
    seen: FloatArray | None = None
    kept: Cache = field(default_factory=Cache)
    is_reflected: bool = False  #: whether its single score is of the first of two classes
    chosen_class: Any = None  #: the class of two that the user chose, where each has an output

    def __post_init__(self) -> None:
        """Make the labels read-only, because every explanation shares them."""
        object.__setattr__(self, "index", frozen(self.index))

    # -- two classes -------------------------------------------------------------------------------

    def reflected(self) -> Any:
        """Return this model with the score, or probability, of the other class of two."""
        return replace(self, is_reflected=not self.is_reflected, kept=Cache())

    @property
    def as_fitted(self) -> Any:
        """This model with its score of the class that the library scores."""
        if not self.is_reflected:
            return self
        return self.kept.get("as fitted", self.reflected)

    @property
    def explains_scores(self) -> bool:
        """Whether scores are explained, and not probabilities.

        The scores of two classes are each other's negatives.
        """
        return True

    @property
    def reflection(self) -> float | None:
        """The sum of the predictions of two classes.

        It is None if predictions are those of the library.
        """
        if not self.is_reflected:
            return None
        if self.explains_scores:
            return 0.0
        return 1.0

    def labels_in_order(self, targets: FloatArray) -> FloatArray:
        """Return targets (n, 1) of two classes, with 1 for the scored class; others unchanged."""
        if self.is_reflected:
            return np.asarray(1.0 - targets)
        return targets

    @property
    @abstractmethod
    def attribution(self) -> Attribution[QueryBatch | Combination]:
        """The numbers of explained rows and training rows."""

    def effects(self, source: Source, query_batch: QueryBatch | Combination) -> Effects:
        """Return the numbers that the source names, of the class that the model scores."""
        effects = self.attribution.effects(source, query_batch)
        # Derivatives of either score by the labels of its class are the same.
        is_negated = effects.has_numbers and source.quantity is not Quantity.DERIVATIVE
        if self.is_reflected and is_negated:
            return Reflected(effects)
        return effects

    # -- queries -----------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int]:
        n_rows, n_outputs = self.targets.shape
        return n_rows, n_outputs

    @property
    def training(self) -> TrainingColumns:
        return ColumnsInMemory(self)

    def queries(self, X: FeatureTable, init_score: Any = None) -> QueryBatch:
        inputs.refuse_other_order(X, init_score, "init_score", "X")
        rows = inputs.as_features(X, self.adapter, "X", self.features)
        self.training.warn_of_unseen(rows)
        offsets = Offsets.of(init_score, rows.shape[0], self.adapter)
        labels = inputs.row_labels(rows)
        return QueryBatch(
            self.adapter, rows, offsets, labels, self.n_threads, reflection=self.reflection
        )


class Refittable(InMemory):
    """A model in this process that can be fitted again to other targets, or without some rows."""

    @property
    @abstractmethod
    def deletions(self) -> ReplayedDeletions:
        """The refits without some of the training rows."""

    @property
    @abstractmethod
    def row_weights(self) -> FloatArray:
        """The row weights of the fit, (N,); 0 for rows that the fit held out."""

    def held_out(self, sample_weight: FloatArray | None) -> BoolArray:
        """Return which rows the fit held out, (N,), except rows that the user gave no weight."""
        if sample_weight is None:
            counted = np.ones(self.shape[0], dtype=np.bool_)
        else:
            counted = sample_weight > 0
        return np.asarray((self.row_weights == 0) & counted)

    @property
    @abstractmethod
    def changes(self) -> TargetChanges:
        """The fits to other targets."""

    @abstractmethod
    def refit_leaves(self, refit_inputs: RefitInputs) -> tuple[list[LeafFit], FloatArray | None]:
        """Return the leaves and sample counts (N, T) of a fit to other rows.

        The tree structure stays fixed.
        """
