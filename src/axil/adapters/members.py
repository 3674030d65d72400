"""Models whose predictions come from the predictions of other models.

They are weighted sums of the predictions of these models, or those of several side by side.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from axil.adapters.contract import Defaults, Form, Model, ScoreCalibration, TrainingRows
from axil.aliases import FeatureTable, ForeignModel, ForeignObject
from axil.arrays import AnyArray, FloatArray, IntArray

__all__ = ["Coordinates", "InsideModels", "Member", "ResidualModel", "SumModel"]


class KnownColumns(Protocol):
    """The protocol of objects that know the columns of the rows."""

    n_features: int
    feature_names: list[str] | None
    takes_text: bool

    def spelling(self, name: str) -> str: ...


@dataclass(frozen=True)
class Coordinates:
    """Coordinates of n explained rows for each of several models."""

    parts: tuple[Any, ...]

    def __getitem__(self, rows: slice) -> Coordinates:
        """Return the coordinates of some of the rows."""
        return Coordinates(tuple(coordinates[rows] for coordinates in self.parts))

    @property
    def shape(self) -> tuple[int]:
        """The number of rows, n."""
        return (int(self.parts[0].shape[0]),)


@dataclass(frozen=True)
class Member:
    """One of the models inside another, with its rows and targets."""

    name: str  #: for messages
    model: Model
    coefficient: float = 1.0  #: what its predictions are multiplied by
    output: int | None = None  #: the one output that it predicts; None: all
    columns: IntArray | None = None  #: the features that it looks at; None: all
    #: the rows of its fit, in their order, repeated as they were sampled; None: all
    rows: IntArray | None = None
    #: (N,) how often each row was sampled, where its fit took that for weights
    draws: IntArray | None = None
    weighted: bool = True  #: whether its fit was given the sample weights

    def weights(self, weights: FloatArray | None) -> FloatArray | None:
        """Return the sample weights of the member's rows, from those (N,) of all rows."""
        if self.weighted:
            own_weights = weights
        else:
            own_weights = None
        if self.draws is not None and own_weights is None:
            own_weights = self.draws.astype(np.float64)
        elif self.draws is not None and own_weights is not None:
            own_weights = own_weights * self.draws
        if own_weights is None or self.rows is None:
            return own_weights
        return own_weights[self.rows]


class InsideModels(Protocol):
    """The models inside another, each with its share in the sum, or with its own output."""

    whole: ForeignModel
    members: list[Member]  #: ``model`` is a fitted model here, not its adapter
    classes: AnyArray | None  #: of the whole
    n_outputs: int  #: columns of targets: classes, labels or numbers
    explained_text: str  #: what is explained, for the note of tables
    of_scores: bool  #: whether the members' scores are explained
    calibration: ScoreCalibration | None  #: notes on the probability beside the score
    #: returns what is explained, by the whole's own account; None: it has none
    predict: Callable[[FeatureTable], FloatArray | None] | None
    #: returns what the whole makes of rows before it hands them on
    read: Callable[[FeatureTable], FeatureTable] | None

    def members_on(self, rows: TrainingRows) -> list[Member]:
        """Return the members with the rows of their own fits."""


class SumModel(Defaults):
    """The adapter of a model of several others; ``coordinates`` gives those for each of them.

    Parameters
    ----------
    predict : callable
        What the whole model predicts of rows, by its own account.
    members : list of Member
        The models inside. Either each predicts all outputs, and their products with the
        coefficients add up, or each predicts one.
    columns : KnownColumns
        See `KnownColumns`.
    classes : array, optional
        The names of the classes.
    constant : float
        What predictions have besides the sum.
    read : callable, optional
        What the model makes of rows before it hands them on.
    """

    library = "scikit-learn"
    form = Form.SUM

    def __init__(
        self,
        predict: Callable[[ForeignObject], ForeignObject],
        members: list[Member],
        columns: KnownColumns,
        classes: AnyArray | None = None,
        constant: float = 0.0,
        read: Callable[[ForeignObject], ForeignObject] | None = None,
    ):
        self._predict = predict
        self._read = read
        self.constant = constant
        self._columns = columns
        self.members = members
        self.n_features: int = columns.n_features
        self.feature_names = columns.feature_names
        self.takes_text = columns.takes_text
        self.classes = classes
        has_one_per_output = members[0].output is not None
        if has_one_per_output:
            self.n_outputs = len(members)
        else:
            self.n_outputs = members[0].model.n_outputs
        self.encodings = sum(member.model.encodings for member in members)
        self.weighs_classes = any(member.model.weighs_classes for member in members)
        self.tolerance = max(member.model.tolerance for member in members)
        refusals = (member.model.refused_draws for member in members)
        self.refused_draws = next((error for error in refusals if error is not None), None)
        lines = [f"{member.model.fingerprint} {member.coefficient!r}" for member in members]
        text = "\n".join([*lines, repr(constant)])
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest()

    def spelling(self, name: str) -> str:
        """Return how the library writes a column's name."""
        return str(self._columns.spelling(name))

    def _rows(self, X: FeatureTable) -> FeatureTable:
        if self._read is None:
            return X
        return self._read(X)

    def rows_of(self, X: FeatureTable) -> list[ForeignObject]:
        """Return the rows of X as each of the members gets them."""
        X = self._rows(X)
        return [X if member.columns is None else X[:, member.columns] for member in self.members]

    def check_kept(self, X: FeatureTable, targets: FloatArray, weights: FloatArray | None) -> None:
        """Raise unless the training data agree with those that the model stores.

        By default the model keeps nothing.
        """

    def members_on(self, rows: TrainingRows) -> list[Member]:
        """Return the members with the rows of their own fits.

        By default they know them without the training rows.
        """
        return self.members

    def coordinates(self, X: FeatureTable, n_threads: int = 1) -> Coordinates:
        """Return the coordinates of the rows of X in every member."""
        pairs = zip(self.members, self.rows_of(X))
        return Coordinates(
            tuple(member.model.coordinates(rows, n_threads) for member, rows in pairs)
        )

    def predictions(self, X: FeatureTable) -> FloatArray:
        """Return the predictions that the whole model computes, (n, K)."""
        # Warnings are of names that rows have and the fit had not, or the other way round.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            predictions = np.asarray(self._predict(self._rows(X)), dtype=np.float64)
        return predictions.reshape(X.shape[0], self.n_outputs)

    def causes(self, mismatch: str) -> str:
        """Return reasons why the sum disagrees although every member agrees."""
        return (
            "Each model inside agrees with these data, but their sum does not: settings or "
            "models were changed after the fit."
        )


class ResidualModel(SumModel):
    """The adapter of a sum of two models.

    Trees are fitted to the targets less the predictions of the first model.
    """

    form = Form.RESIDUAL
    stages: Any  #: the adapter of the trees

    def kept_rows(self, n_rows: int) -> IntArray | None:
        """Return the rows, among ``n_rows``, that both were fitted on, in the order of their fits.

        It is None if they are all rows.
        """
        rows: IntArray | None = self.stages.kept_rows(n_rows)
        return rows
