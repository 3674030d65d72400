"""Models that predict a mean of others, or a number of each, some without exact weights.

With shares a_i and members F_i the prediction is ``sum_i a_i F_i(x)``, so its derivatives by the
targets, and the score contributions of boosted members, are the sums of the members' own, times
their shares, each on the rows of its own fit.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from axil import adapters, inputs
from axil.adapters.contract import Defaults, TrainingRows
from axil.adapters.estimators import number_of_features
from axil.adapters.members import InsideModels, Member
from axil.adapters.pipeline import PipelineAdapter, last_step
from axil.adapters.searches import unwrapped
from axil.aliases import FeatureTable, ForeignModel, ForeignObject
from axil.arrays import FloatArray, IntArray
from axil.attribution import (
    CONTRIBUTIONS,
    DERIVATIVES,
    WEIGHTS,
    Attribution,
    Effects,
    Kind,
    Quantity,
    Source,
)
from axil.attribution.block_effects import BlockEffects, derived, mixed
from axil.attribution.capabilities import MEAN_OF_CONTRIBUTIONS, MEAN_OF_DERIVATIVES, Refusal
from axil.errors import InputError, UnsupportedModelError
from axil.implicit.optimum import check_predictions
from axil.implicit.readers import FitInputs, as_rows
from axil.inputs.copies import frozen
from axil.replay.deletions import Deletions, WithoutRows
from axil.replay.members import naming
from axil.replay.output_names import OutputNames, in_order
from axil.replay.queries import Combination, QueryBatch, reflected
from axil.replay.verification import Verification, worst_of
from axil.replay.verified_model import InMemory


class MeanAdapter(Defaults):
    """The adapter of a model whose members are read one by one."""

    library = "scikit-learn"
    kind = Kind.DERIVATIVE
    takes_text = True  # members look at the rows themselves

    def __init__(self, parts: InsideModels, output: str):
        model = parts.whole
        #: whether the whole says itself what is explained: of members side by side it has the
        #: scores alone
        self._compares = parts.predict is not None and (output == "raw" or not parts.of_scores)
        #: whether scores are explained, and not probabilities
        self.explains_scores = parts.of_scores and output == "raw"
        self._parts = parts
        self.n_features = number_of_features(model)
        names = getattr(model, "feature_names_in_", None)
        if names is None:
            self.feature_names = None
        else:
            self.feature_names = [str(name) for name in names]
        if parts.calibration is not None:
            self.about_predictions = ""
        else:
            self.about_predictions = parts.explained_text
        if parts.of_scores and output == "probability":
            self.about_predictions = parts.explained_text.replace("scores", "probabilities")
        self.calibration = parts.calibration
        self.members: list[tuple[Member, InMemory]] = []  #: once they are verified
        stated = [
            f"{type(member.model).__name__} {member.coefficient!r}" for member in parts.members
        ]
        self.fingerprint = hashlib.sha256("\n".join(stated).encode()).hexdigest()
        if parts.classes is not None and len(parts.classes) == 2:
            self.n_outputs = 1
        else:
            self.n_outputs = parts.n_outputs

    def spelling(self, name: str) -> str:
        """Return a column's name, which scikit-learn does not change."""
        return name

    def rows_of(self, X: FeatureTable) -> list[ForeignObject]:
        """Return the rows of X as each of the members gets them."""
        if self._parts.read is not None:
            X = self._parts.read(X)
        return [
            X if member.columns is None else X[:, member.columns] for member in self._parts.members
        ]

    def predictions(self, X: FeatureTable) -> FloatArray:
        """Return the explained numbers, (n, K), from the members' predictions or scores."""
        totals = np.zeros((X.shape[0], self.n_outputs))
        for (member, member_model), rows in zip(self.members, self.rows_of(X)):
            member_predictions = _explained(member_model, member_model.queries(rows))
            if member.output is None:
                columns = _columns(member_predictions, self.n_outputs)
                totals += member.coefficient * columns
            else:
                totals[:, member.output] = _columns(member_predictions, 1)[:, 0]
        return totals

    def whole_predictions(self, X: FeatureTable) -> FloatArray | None:
        """Return the explained numbers that the whole computes, (n, K); None if it does not."""
        if not self._compares:
            return None
        # Warnings of names that rows have and the fit had not, or the other way round
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self._parts.read is not None:
                X = self._parts.read(X)
            assert self._parts.predict is not None
            predictions = self._parts.predict(X)
        if predictions is None:
            return None
        return _columns(
            np.asarray(predictions, dtype=np.float64).reshape(X.shape[0], -1), self.n_outputs
        )

    def mean_probabilities(self, X: FeatureTable) -> FloatArray:
        """Return the probabilities that a calibrated model predicts, (n, K)."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            probabilities = np.asarray(self._parts.whole.predict_proba(X), dtype=np.float64)
        return _columns(probabilities, self.n_outputs)


def _explained(model: InMemory, queries: QueryBatch) -> FloatArray:
    """Return the numbers of a member that are differentiated.

    For boosted trees these are scores, or what their link makes of them.
    """
    boosting = getattr(model, "boosting", None)
    if boosting is None:
        return queries.predictions
    return np.asarray(boosting.predictions(queries.rows))


def _columns(values: FloatArray, n_outputs: int) -> FloatArray:
    """Return the numbers (n, K) of both classes as one column, that of the second."""
    if values.shape[1] == 2 and n_outputs == 1:
        return values[:, 1:]
    return values


def read(fit_inputs: FitInputs, verify: Callable[[FitInputs], InMemory]) -> MeanModel | None:
    """Return a model of several others on its training data; None for a model of another kind.

    Parameters
    ----------
    fit_inputs : FitInputs
        The model and its data.
    verify : callable
        Does the same for a model inside, of whatever kind.
    """
    whole = unwrapped(fit_inputs.model)
    last = last_step(whole)
    parts = _parts_of(whole, last)
    if parts is None:
        return None
    _refuse_settings(fit_inputs, parts)
    # It has no weights, and so no coordinates
    mean_adapter = MeanAdapter(parts, fit_inputs.output)  # type: ignore[abstract]
    adapter: ForeignObject = mean_adapter
    if last is not None:
        adapter = PipelineAdapter(whole, mean_adapter)
    X = inputs.as_features(as_rows(fit_inputs.X), adapter, "X_train")
    n_rows = X.shape[0]
    if n_rows == 0:
        raise InputError("X_train has no rows; expected the rows that the model was fitted on.")
    weights = inputs.as_weights(fit_inputs.sample_weight, n_rows)
    targets = inputs.as_targets(fit_inputs.y, n_rows, parts.n_outputs, parts.classes)
    rows_by_member = adapter.rows_of(X)
    members = parts.members_on(TrainingRows(rows_by_member[0], targets, weights))
    for member, member_rows in zip(members, rows_by_member):
        member_inputs = _inputs_of(fit_inputs, parts, member, member_rows, targets, weights)
        with naming(member):
            member_model = verify(member_inputs)
        _require_own_scale(member, member_model)
        mean_adapter.members.append((member, member_model))
    kind = _kind_of(mean_adapter, parts)
    mean_adapter.classes = None
    if kind is MeanOfContributions:
        mean_adapter.classes = parts.classes
    return kind(
        adapter,
        frozen(inputs.row_index(fit_inputs.index, X, adapter.feature_names, n_rows)),
        X,
        inputs.backend_of(X),
        fit_inputs.limits,
        _verified(mean_adapter, adapter, X, fit_inputs.verify),
        members=tuple(mean_adapter.members),
        targets=frozen(_columns(targets, mean_adapter.n_outputs)),
        parts=parts,
    )


def _parts_of(whole: ForeignModel, last: ForeignModel | None) -> InsideModels | None:
    """Return the parts of a model, or of the last step of a pipeline; None if it has none."""
    if last is None:
        return adapters.parts_of(whole)
    return adapters.parts_of(last)


def _kind_of(mean_adapter: MeanAdapter, parts: InsideModels) -> type[MeanModel]:
    """Return the kind of a model from the kinds of its verified members."""
    kinds = {member_model.kind for _, member_model in mean_adapter.members}
    if kinds == {Kind.ADDITIVE} and parts.of_scores:
        return MeanOfContributions
    return MeanOfDerivatives


def _require_own_scale(member: Member, model: InMemory) -> None:
    """Raise if a member transforms its targets."""
    if not model.scale.is_identity:
        raise UnsupportedModelError(
            member.name,
            type(member.model).__name__,
            "it transforms its targets, and a sum of predictions is not linear in targets on "
            "several scales",
            "Transform the targets of the whole: "
            "TransformedTargetRegressor(VotingRegressor(...), ...).",
        )


def _refuse_settings(fit_inputs: FitInputs, parts: InsideModels) -> None:
    """Raise for arguments that are of one model alone."""
    for name in ("loss", "objective", "in_bag", "init_score", "inverse_func", "group"):
        if getattr(fit_inputs, name) is not None:
            raise InputError(f"A model of several others takes no {name}: leave it out.")
    if fit_inputs.output != "raw" and parts.calibration is not None:
        raise InputError(
            f"output is {fit_inputs.output!r}, and probabilities of this model are calibrated by "
            "curves, which derivatives do not include. Leave it out, or pass one of the "
            "classifiers inside: calibrated_classifiers_[0].estimator."
        )


def _inputs_of(
    fit_inputs: FitInputs,
    parts: InsideModels,
    member: Member,
    X: FeatureTable,
    targets: FloatArray,
    weights: FloatArray | None,
) -> FitInputs:
    """Return a member with the rows, targets and weights of its own fit."""
    if parts.of_scores:
        output = fit_inputs.output
    else:
        output = "probability"
    if member.output is None:
        member_targets = targets
    else:
        member_targets = targets[:, [member.output]]
    if member.rows is not None:
        X = inputs.take_rows(X, member.rows)
        member_targets = member_targets[member.rows]
    names = getattr(member.model, "classes_", None)
    if names is None:
        if member_targets.shape[1] == 1:
            labels: ForeignObject = member_targets[:, 0]
        else:
            labels = member_targets
    else:
        if member_targets.shape[1] == 1:
            codes = member_targets[:, 0].astype(np.intp)
        else:
            codes = member_targets.argmax(axis=1)
        labels = np.asarray(names)[codes]
    y = labels
    sample_weight = member.weights(weights)
    return replace(
        fit_inputs,
        model=member.model,
        X=X,
        y=y,
        sample_weight=sample_weight,
        output=output,
        index=None,
    )


def _verified(
    mean_adapter: MeanAdapter, adapter: ForeignObject, X: FeatureTable, verify: bool
) -> Verification | None:
    """Return the verification after checking that the members sum to the whole's predictions."""
    if not verify:
        return None
    verifications = [
        member_model.verification
        for _, member_model in mean_adapter.members
        if member_model.verification is not None
    ]
    expected = adapter.whole_predictions(X)
    if expected is None:
        error = 0.0
    else:
        error = check_predictions(adapter.predictions(X), expected)
    whole = worst_of([replace(verification, n_rows=X.shape[0]) for verification in verifications])
    details = max(
        (verification.details for verification in verifications),
        key=lambda details: details.get("newton_step", 0.0),
    )
    return replace(whole, n_rows=X.shape[0], max_error=max(whole.max_error, error), details=details)


@dataclass(frozen=True, eq=False, repr=False)
class MeanModel(InMemory):
    """A model of several others, each verified on the rows of its own fit."""

    adapter: MeanAdapter
    _: KW_ONLY
    members: tuple[tuple[Member, InMemory], ...]
    targets: FloatArray  #: (N, K) numbers, or 0 and 1 of classes
    parts: InsideModels

    @property
    def names(self) -> OutputNames:
        """The names of the outputs, and of the classes that the model predicts."""
        n_outputs = self.targets.shape[1]
        if n_outputs == 1:
            outputs = None
        elif self.parts.classes is None:
            outputs = np.arange(n_outputs)
        else:
            outputs = self.parts.classes
        class_names = in_order(self.parts.classes, self.is_reflected)
        return replace(super().names, outputs=outputs, class_names=class_names)

    def queries(self, X: FeatureTable, init_score: ForeignObject = None) -> QueryBatch:
        """Return the batch of these rows; refuse offsets."""
        if init_score is not None:
            raise InputError(
                "init_score is not taken here: a model of several others has no offsets. Leave it "
                "out."
            )
        return super().queries(as_rows(X))

    def with_offsets_of(self, batch: QueryBatch) -> MeanModel:
        """Return the model with the offsets of these rows; it has none."""
        return self

    @property
    def explains_scores(self) -> bool:
        """Whether the members' scores are explained."""
        return self.adapter.explains_scores

    def reflected(self) -> MeanModel:
        """Return the model of the other one of two classes."""
        model: MeanModel = super().reflected()
        return replace(model, targets=frozen(1.0 - self.targets))

    @property
    def attribution(self) -> MeanAttribution:
        """The sums of the members' numbers."""
        return MeanAttribution(self)

    def verify_predictions(
        self, batch: QueryBatch | Combination, predictions: FloatArray | None
    ) -> None:
        """Raise unless the sum over the members agrees with the whole's predictions.

        Each member was compared with its own predictions before.
        """
        if self.verification is None or isinstance(batch, Combination):
            return
        if len(batch):
            expected = self.adapter.whole_predictions(batch.rows)
        else:
            expected = None
        if expected is not None:
            check_predictions(batch.own_predictions, expected)

    def bytes_per_query(self, source: Source, whole: bool = False) -> int:
        n_rows, n_outputs = self.shape
        inside = max(
            member_model.bytes_per_query(_source_of(member_model, source), True)
            for _, member_model in self.members
        )
        return 32 * n_rows * n_outputs + inside


def _source_of(member_model: InMemory, source: Source) -> Source:
    """Return the source of a member: weights, where the whole has derivatives."""
    if source.quantity is Quantity.DERIVATIVE and member_model.kind is Kind.EXACT:
        return WEIGHTS
    return source


def _by_output(effects: Effects) -> list[FloatArray]:
    """Return the numbers (n, rows) of each output."""
    dense = effects.dense()
    first = sorted(effects.output_groups, key=lambda outputs: outputs[0])
    numbers_by_output = {
        output: numbers for outputs, numbers in zip(first, dense) for output in outputs
    }
    return [numbers_by_output[output] for output in sorted(numbers_by_output)]


def _spread(numbers: FloatArray, member: Member, n_rows: int) -> FloatArray:
    """Return numbers of a member's rows as numbers of all rows, (n, N).

    A row that the member has several times gets the sum.
    """
    if member.rows is None:
        return numbers
    n_own = len(member.rows)
    places = csr_array((np.ones(n_own), member.rows, np.arange(n_own + 1)), (n_own, n_rows))
    return np.asarray(numbers @ places)


@dataclass(frozen=True, eq=False, repr=False)
class MeanOfDerivatives(MeanModel):
    """A mean with derivatives by the targets alone."""

    kind = Kind.DERIVATIVE
    source = DERIVATIVES

    def own_refusals(self) -> dict[str, Refusal]:
        return super().own_refusals() | MEAN_OF_DERIVATIVES

    @property
    def names(self) -> OutputNames:
        """The names of the outputs and of the predicted classes; its targets are numbers."""
        return replace(super().names, classes=None)

    def has_link_of(self, source: Source) -> bool:
        """Return whether the explained scores have a link."""
        return self.parts.classes is not None and self.adapter.explains_scores


@dataclass(frozen=True, eq=False, repr=False)
class MeanOfContributions(MeanModel):
    """A mean of the scores of boosted models, which their contributions add up to."""

    kind = Kind.ADDITIVE
    source = CONTRIBUTIONS

    def own_refusals(self) -> dict[str, Refusal]:
        return super().own_refusals() | MEAN_OF_CONTRIBUTIONS

    @property
    def deletions(self) -> MeanDeletions:
        """The refits without training rows."""
        return MeanDeletions(self)

    def has_link_of(self, source: Source) -> bool:
        return self.parts.classes is not None

    def meant_by(self, batch: QueryBatch | Combination) -> dict[str, FloatArray]:
        if isinstance(batch, Combination) or self.parts.calibration is None:
            return {}
        probabilities = self.adapter.mean_probabilities(batch.rows)
        if self.is_reflected:
            probabilities = reflected(probabilities, 1.0)
        return {"probability": probabilities}


@dataclass(frozen=True, eq=False)
class MeanAttribution(Attribution["QueryBatch | Combination"]):
    """The sums of the members' numbers, for each explained row and training row."""

    model: MeanModel

    def derivative_effects(self, query_batch: QueryBatch | Combination) -> Effects:
        """Return the derivatives of predictions by the targets of the training rows."""
        derivatives = self._summed(self.model.source, query_batch)
        return derived(derivatives, query_batch.predictions, self.model.targets, query_batch.start)

    def contribution_effects(self, query_batch: QueryBatch | Combination) -> Effects:
        if isinstance(query_batch, QueryBatch):
            contributions, starts = self._numbers(self.model.source, query_batch)
        else:
            contributions = self._summed(self.model.source, query_batch)
            starts = query_batch.of(self._numbers(self.model.source, query_batch.queries)[1])
        blocks = [(0, [of_output.T for of_output in contributions])]
        return BlockEffects(
            lambda: iter(blocks),
            self.model.shape,
            len(query_batch),
            starts,
            first=query_batch.start,
        )

    def _summed(self, source: Source, query_batch: QueryBatch | Combination) -> FloatArray:
        """Return the sums of the members' numbers, (K, n, N).

        They are for these rows, or for sums of their predictions.
        """
        if isinstance(query_batch, QueryBatch):
            return self._numbers(source, query_batch)[0]
        size = self.model.budget.batch_size(self.model.bytes_per_query(source))
        return mixed(query_batch, size, lambda queries: self._numbers(source, queries)[0])

    def _numbers(self, source: Source, batch: QueryBatch) -> tuple[FloatArray, FloatArray]:
        """Return the numbers of the training rows (K, n, N), and the initial predictions (n, K)."""
        n_rows, n_outputs = self.model.shape
        numbers = np.zeros((n_outputs, len(batch), n_rows))
        starts = np.zeros((len(batch), n_outputs))
        for (member, member_model), rows in zip(
            self.model.members, self.model.adapter.rows_of(batch.rows)
        ):
            queries = member_model.queries(rows)
            effects = member_model.effects(_source_of(member_model, source), queries)
            by_output = _by_output(effects)
            member_starts = effects.intercepts
            if source.adds_up:
                member_model.verify_predictions(
                    queries, member_starts + effects.contribution_sums()
                )
            if member.output is None:
                width = n_outputs
            else:
                width = 1
            if width == 1 and len(by_output) == 2:
                by_output = by_output[1:]
                member_starts = member_starts[:, 1:]
            if member.output is None:
                places = slice(None)
            else:
                places = slice(member.output, member.output + 1)
            if member.output is not None:
                share = 1.0
            else:
                share = member.coefficient
            starts[:, places] += share * member_starts
            for total, member_numbers in zip(numbers[places], by_output, strict=True):
                total += share * _spread(member_numbers, member, n_rows)
        return numbers, starts


@dataclass(frozen=True, eq=False)
class MeanDeletions(Deletions):
    """Deletions of rows from the members, each of which is fitted again to those that remain."""

    model: MeanOfContributions

    def share_of(self, rows: IntArray) -> float:
        """Return the share of these rows among all."""
        return len(rows) / self.model.shape[0]

    def without(self, queries: QueryBatch, rows: IntArray) -> WithoutRows:
        """Return scores before and after rows are dropped from the members.

        The folds stay fixed, and so does the structure of the trees.
        """
        n_outputs = self.model.shape[1]
        change = np.zeros((len(queries), self.model.shape[1]))
        emptied = 0
        for (member, member_model), member_rows in zip(
            self.model.members, self.model.adapter.rows_of(queries.rows)
        ):
            if member.rows is None:
                dropped = rows
            else:
                dropped = np.flatnonzero(np.isin(member.rows, rows))
            result = member_model.deletions.without(member_model.queries(member_rows), dropped)
            change += member.coefficient * _columns(result.after - result.before, n_outputs)
            emptied += result.emptied
        change = reflected(change, self.model.reflection)
        return WithoutRows(queries.predictions, queries.predictions + change, emptied)
