"""ClassPredictive: sets of classes that hold the true one, and calibrated probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from axil import inputs, templates
from axil.aliases import ArrayLike, DataFrame, LabelsLike, SetMethod, TableLike
from axil.arrays import AnyArray, BoolArray, FloatArray, IntArray
from axil.errors import InputError, UnsupportedQuestionError, shown, warn
from axil.methods.intervals.calibration_groups import CalibrationGroups, rows_in_groups
from axil.methods.intervals.conformal import least_rows, order_of
from axil.methods.intervals.venn_abers import VennAbers, normalised
from axil.methods.method import ExplainedRows
from axil.methods.similar import against_prediction
from axil.output import tables
from axil.replay.queries import QueryBatch
from axil.replay.verified_model import VerifiedModel

SET_METHODS: tuple[SetMethod, ...] = ("lac", "aps")
NOTE = (
    "calibrated: the sets hold the true class on average over rows that are exchangeable with the "
    "calibration rows, not at every row"
)
PROBABILITY_NOTE = (
    "calibrated by Venn-Abers prediction: for rows that are exchangeable with the calibration rows"
)

DIGITS = 9  # of scores, beyond which they differ by rounding
#: Calibration rows, as truth values, and the explained rows that they are for.
Parts: TypeAlias = list[tuple[BoolArray, IntArray]]


@dataclass(frozen=True, eq=False, repr=False)
class ClassPredictive:
    """Sets of classes and calibrated probabilities of each row of X; made by `Explainer.calibrate`.

    Calibration rows say how far the model's probabilities can be trusted. **Promised**: the set of
    confidence level c holds the true class with probability at least c, whatever the model, for
    rows that are exchangeable with the calibration rows. With ``per_class=True`` it does so among
    the rows of each class, and with groups among the rows of each group. **Not promised**: coverage
    at every single row. From out-of-fold or out-of-bag probabilities (``source``) the promise is
    not exact, because those are of other fits.

    Examples
    --------
    >>> from lightgbm import LGBMClassifier
    >>> from sklearn.datasets import load_wine
    >>> from axil import Explainer
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> train, held_out, new = (X.iloc[i::3] for i in range(3))
    >>> model = LGBMClassifier(n_estimators=20, verbose=-1).fit(train, y[train.index])
    >>> explainer = Explainer(model, train, y[train.index])
    >>> predictive = explainer.calibrate(held_out, y[held_out.index])
    >>> table = predictive.predict_set(new, confidence_level=0.9)
    >>> list(table.columns)
    ['query', 'output', 'prediction', 'probability', 'p_value', 'in_set', 'set_size']
    """

    _model: VerifiedModel
    _probabilities: FloatArray  # (n, C) of the calibration rows, by the model
    _codes: IntArray  # (n,) their classes
    source: str  #: where they are from: "held out", "out-of-fold" or "out-of-bag"
    _groups: CalibrationGroups | None = None

    @property
    def n_calibration(self) -> int:
        """The number of calibration rows."""
        return len(self._codes)

    @property
    def classes(self) -> AnyArray:
        """The names of the classes, (C,)."""
        return np.asarray(self._model.names.class_names).copy()

    def __repr__(self) -> str:
        texts = [text for _, text in self._facts()]
        return f"<axil.ClassPredictive: {', '.join(texts)}>"

    def _repr_html_(self) -> str:
        return templates.render_facts("axil.ClassPredictive", self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        """Return pairs of a name and a text: the classes, and the calibration rows."""
        rows = rows_in_groups(self.n_calibration, self._groups)
        return [
            ("classes", f"{len(self.classes)} classes"),
            ("calibrated with", rows),
            ("source", self.source),
        ]

    # -- methods -----------------------------------------------------------------------------------

    def predict_set(
        self,
        X: TableLike,
        confidence_level: float = 0.9,
        *,
        method: SetMethod = "lac",
        per_class: bool = False,
        groups: LabelsLike | None = None,
        init_score: ArrayLike | None = None,
    ) -> DataFrame:
        """Return sets of classes, as a table with a line for each row of X and class.

        The columns are query, output (the class), prediction (the class of largest probability),
        probability (by the model), p_value, in_set and set_size. ``p_value``: how usual it is among
        the calibration rows that their own class is as unlikely as this one; a set of confidence
        level c has the classes whose p-value is above 1 - c. A set without a class says that the
        row is unlike the calibration rows.

        Parameters
        ----------
        X : table
            The n rows to predict: a frame, an array or a sparse matrix with the columns of the fit.
        confidence_level : float, default 0.9
            The probability that a set is to hold the true class with, between 0 and 1.
        method : "lac" or "aps", default "lac"
            "lac" (least ambiguous classes) takes classes by their probability: the smallest sets.
            "aps" (adaptive prediction sets) takes classes from the most probable one down, until
            their probabilities add up to enough: larger sets, whose coverage differs less from row
            to row. They are not randomised, so they hold the class more often than asked for.
        per_class : bool, default False
            Whether each class is calibrated by its own rows, so that sets hold rare classes as
            often as frequent ones. A class with too few calibration rows is in every set, with a
            warning.
        groups : array of shape (n,), optional
            Labels of the rows of X, if `calibrate` was given labels; a column that it was given is
            read from X.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`.
        """
        level = _as_level(confidence_level)
        method = inputs.as_choice(method, SET_METHODS, "method")
        per_class = inputs.as_flag(per_class, "per_class")
        queries = self._model.queries(X, init_score)
        probabilities = class_probabilities(self._model, queries)
        scores = nonconformity(self._probabilities, method)
        of_calibration = scores[np.arange(self.n_calibration), self._codes]
        of_queries = nonconformity(probabilities, method)
        p_values = np.ones_like(probabilities)
        in_set = np.ones(probabilities.shape, dtype=np.bool_)
        n_classes = probabilities.shape[1]
        for is_used, rows in self._parts(queries, groups):
            self._require_rows(int(is_used.sum()), level)
            for k in range(n_classes):
                is_compared = is_used
                if per_class:
                    is_compared = is_used & (self._codes == k)
                scores = np.sort(of_calibration[is_compared])
                at_least = len(scores) - np.searchsorted(scores, of_queries[rows, k], "left")
                p_values[rows, k] = (1 + at_least) / (len(scores) + 1)
                in_set[rows, k] = of_queries[rows, k] <= _threshold(scores, level)
        if per_class:
            self._warn_of_rare_classes(queries, groups, level)
        columns = self._columns(queries, probabilities)
        columns |= {
            "probability": probabilities.ravel(),
            "p_value": p_values.ravel(),
            "in_set": in_set.ravel(),
            "set_size": np.repeat(in_set.sum(axis=1), n_classes),
        }
        return self._table(columns, NOTE)

    def probability(
        self,
        X: TableLike,
        *,
        groups: LabelsLike | None = None,
        init_score: ArrayLike | None = None,
    ) -> DataFrame:
        """Return calibrated probabilities, as a table with a line for each row of X and class.

        The columns are query, output (the class), prediction (of the model), probability, lower,
        upper and uncalibrated (the probability by the model). ``probability``
        lies between ``lower`` and ``upper``. Wide bounds say that few calibration rows have such a
        score. For two classes the bounds are the two probabilities of Venn-Abers prediction, one of
        which is perfectly calibrated. With more than two classes, axil calibrates each class
        against all others and divides the probabilities by their sum. The bounds are then the
        smallest and the largest value that this division gives between the Venn-Abers bounds of
        all classes.

        Parameters
        ----------
        X : table
            The n rows to predict: a frame, an array or a sparse matrix with the columns of the fit.
        groups : array of shape (n,), optional
            As in `predict_set`.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`.
        """
        queries = self._model.queries(X, init_score)
        uncalibrated = class_probabilities(self._model, queries)
        low = np.empty_like(uncalibrated)
        high = np.empty_like(uncalibrated)
        for is_used, rows in self._parts(queries, groups):
            self._calibrate(is_used, uncalibrated[rows], low, high, rows)
        probabilities, lower, upper = normalised(low, high)
        columns = self._columns(queries, uncalibrated)
        columns |= {
            "probability": probabilities.ravel(),
            "lower": lower.ravel(),
            "upper": upper.ravel(),
            "uncalibrated": uncalibrated.ravel(),
        }
        return self._table(columns, PROBABILITY_NOTE)

    def why(self, X: TableLike, k: int = 10, *, init_score: ArrayLike | None = None) -> DataFrame:
        """Return the training rows that make each set wide.

        They are those that speak most against the predicted class. For exact models they are rows
        of other classes with the largest weights. For boosted trees they are the rows whose
        contributions move the score of the predicted class down most. The columns are those of
        `Explainer.similar` with ``sign="against"``, without features.

        Parameters
        ----------
        X : table
            The n rows to predict.
        k : int, default 10
            How many training rows per prediction.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`.
        """
        k = inputs.as_count(k, "k")
        queries = self._model.queries(X, init_score)
        return against_prediction(ExplainedRows(self._model, queries), k)

    def interval(self, X: TableLike, confidence_level: float = 0.9, **options: Any) -> DataFrame:
        """Refuse: intervals are of numbers; see `axil.Predictive.interval`."""
        reason = "this model predicts classes, and an interval is one of numbers"
        raise UnsupportedQuestionError("interval", reason, "Ask predict_set or probability.")

    # -- calibration rows --------------------------------------------------------------------------

    def _parts(self, queries: QueryBatch, groups: LabelsLike | None) -> Parts:
        """Return the calibration rows of each group, as truth values, with its explained rows."""
        n = len(queries)
        if self._groups is None:
            if groups is not None:
                raise InputError(
                    "groups was given, and calibrate was given none. Leave it out, or calibrate "
                    "with groups=."
                )
            return [(np.ones(self.n_calibration, dtype=np.bool_), np.arange(n))]
        pools = self._groups.pools_of_queries(queries, groups)
        return [
            (self._groups.rows_of(pool), np.flatnonzero(pools == pool))
            for pool in np.unique(pools).tolist()
        ]

    def _require_rows(self, n: int, level: float) -> None:
        """Raise if there are too few calibration rows for a set that leaves a class out."""
        needed = least_rows(level)
        if n < needed:
            raise InputError(
                f"confidence_level is {level:g}, which takes at least {needed} calibration rows, "
                f"and there are {n}. Calibrate with more rows, or ask for less."
            )

    def _warn_of_rare_classes(
        self, queries: QueryBatch, groups: LabelsLike | None, level: float
    ) -> None:
        """Warn of classes with so few calibration rows that they are in every set."""
        needed = least_rows(level)
        rare: set[int] = set()
        for is_used, _ in self._parts(queries, groups):
            numbers = np.bincount(self._codes[is_used], minlength=len(self.classes))
            rare.update(np.flatnonzero(numbers < needed).tolist())
        if rare:
            names = ", ".join(shown(name) for name in self.classes[sorted(rare)].tolist())
            warn(
                f"Sets of every row hold {names}: at confidence level {level:g} a class needs "
                f"{needed} calibration rows of its own. Calibrate with more rows of it, or leave "
                "per_class out.",
                UserWarning,
            )

    def _calibrate(
        self,
        is_used: BoolArray,
        uncalibrated: FloatArray,
        lower: FloatArray,
        upper: FloatArray,
        rows: IntArray,
    ) -> None:
        """Write the Venn-Abers bounds of some explained rows, from some calibration rows."""
        rounded = np.round(self._probabilities[is_used], DIGITS)
        uncalibrated = np.round(uncalibrated, DIGITS)
        codes = self._codes[is_used]
        n_classes = uncalibrated.shape[1]
        if n_classes == 2:
            events = VennAbers(rounded[:, 1], (codes == 1) * 1.0)
            low, high = events.bounds(uncalibrated[:, 1])
            lower[rows] = np.column_stack([1.0 - high, low])
            upper[rows] = np.column_stack([1.0 - low, high])
            return
        for k in range(n_classes):
            events = VennAbers(rounded[:, k], (codes == k) * 1.0)
            lower[rows, k], upper[rows, k] = events.bounds(uncalibrated[:, k])

    # -- tables ------------------------------------------------------------------------------------

    def _columns(self, queries: QueryBatch, probabilities: FloatArray) -> dict[str, AnyArray]:
        """Return the columns query, output and prediction."""
        columns = tables.label_columns(queries.labels, self.classes, "prediction", np.zeros(1))
        predicted = tables.likeliest(self.classes, probabilities)
        return columns | {"prediction": np.repeat(predicted, probabilities.shape[1])}

    def _table(self, columns: dict[str, AnyArray], note: str) -> DataFrame:
        """Return the table in the frame library of the training rows, with a note."""
        return tables.note(tables.make(columns, self._model.backend), note)


def class_probabilities(model: VerifiedModel, queries: QueryBatch) -> FloatArray:
    """Return the model's probability of every class, (n, C), which must be the model's own."""
    scores = model.predicted(queries)
    return both_probabilities(model.meant_by(queries).get("probability", scores))


def both_probabilities(probabilities: FloatArray) -> FloatArray:
    """Return (n, C): with one column for the second of two classes, both of them."""
    if probabilities.shape[1] > 1:
        return probabilities
    return np.hstack([1.0 - probabilities, probabilities])


def _aps(probabilities: FloatArray) -> FloatArray:
    """Return the summed probability of each class and of all more probable ones, (n, C)."""
    order = np.argsort(-probabilities, axis=1, kind="stable")
    sums = np.cumsum(np.take_along_axis(probabilities, order, axis=1), axis=1)
    sums /= sums[:, -1:]  # which libraries round
    scores = np.empty_like(probabilities)
    np.put_along_axis(scores, order, sums, axis=1)
    return scores


def nonconformity(probabilities: FloatArray, method: str) -> FloatArray:
    """Return how little each class conforms to a row, (n, C).

    Numbers that differ by rounding alone are equal. Rows of one score have one rank among the
    calibration rows, such as all least probable classes by "aps", whose sums are one.
    """
    if method == "aps":
        return np.round(_aps(probabilities), DIGITS)
    return np.round(1.0 - probabilities, DIGITS)


def _threshold(sorted_scores: FloatArray, level: float) -> float:
    """Return the score that at least this share of the calibration rows is at or below."""
    place = order_of(level, len(sorted_scores))
    if place > len(sorted_scores):
        return np.inf
    return float(sorted_scores[place - 1])


def _as_level(confidence_level: float) -> float:
    """Return the confidence level, checked."""
    level = inputs.as_number(confidence_level, "confidence_level")
    if not 0.0 < level < 1.0:
        raise InputError(
            f"confidence_level is {shown(confidence_level)}; expected a number between 0 and 1, "
            "such as 0.9."
        )
    return level
