"""Audit: which training labels look wrong, by what the other rows say of them; no validation rows, no refit.

Of numbers: r_j is the residual of row j in the fit without it, or of the user's own cross-validation. What is large depends on
where: a_j is the mean |r| of the rows around j (`weights.spread`), shrunk towards the mean over all of them, abar,

    scale_j = u (a_j + abar / 2) / 1.5,    studentised value = r_j / scale_j

The unit u makes the middle of all |studentised values| that of Student's t, whose degrees of freedom, 4 to 20, are those at which
their 80 % quantile is right too: most of the rows set both, so that few wrong labels do not move them. (Where most residuals are
zero, u is 1.) Quality is its two-sided tail probability, so that N right labels have N q with a quality below q. Where more are
that far out, the excess is the number of wrong ones.

Of classes: quality is the share of the row's own class among the other rows in its leaves, a tree at a time, in boosting of
more than two classes the mean of this and of its probability without the row; or its probability in the user's own
cross-validation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from axil import inputs
from axil.errors import InputError, UnsupportedQuestionError
from axil.output import tables
from axil.questions.blame import error_gradient, gains, said_by_others, validation
from axil.questions.question import Question, output_columns
from axil.questions.tails import tails
from axil.replay.proven import ProvenModel
from axil.replay.queries import Queries
from axil.structure import Structure
from axil.types import Array
from axil.weights.spread import around_leaves

# Weight of the mean over all rows in a row's scale; chosen on ten data sets (experiments/label_noise.py)
TOWARDS_ALL = 0.5
FREEDOMS = np.arange(4, 21)  # of Student's t; likewise
MIDDLE, BULK = 0.5, 0.8  # quantiles of |studentised values| that say which one
FAR = 0.01  # quality of a row that is far out
CHANCE = 3.0  # standard errors of a count, above which an excess is no chance

BY_NEIGHBOURS = "by the classes of other rows in the leaves of the fit; not a retraining"
BY_PROBABILITY = "by the probabilities given"
BY_PREDICTION = "by the predictions given"
BY_PUSHES = "by the mean of each row's score without its own push; not a retraining"
BY_WEIGHTS = "by what the weights of the other rows say of each target; not a retraining"
ABOUT = "about {} of {} labels look wrong"  # an estimate
APART = "{} of {} labels are not the class of most of these rows; where classes overlap many of them are right"  # none


class Audit(Question):
    """The question about wrong labels, as a method of `Explainer`."""

    def audit(self, out_of_fold: Any = None, X_val: Any = None, y_val: Any = None, init_score: Any = None) -> Any:
        """Which training labels look wrong, the most suspicious first, and how many; no validation rows, no refit.

        A frame with a line per row and the columns row, output if there are several, and

        - target, and expected, the prediction of the fit without the row, structure held fixed (`leave_one_out`; a leaf of
          boosted trees that is left empty adds nothing, as in `without`);
        - residual, and scale, the size of usual residuals there, from the rows that share the row's leaves;
        - studentised, residual over scale;
        - quality, from 0 to 1: the share of right labels that would be as far out;
        - suspect, which marks the first m lines.

        m is the estimated number of wrong labels: how many more are far out than of right labels would be. It is 0 for clean
        data and Gaussian noise.

        Models that `leave_one_out` refuses, or takes long for, are answered as in `blame`. Rows that have no prediction even so
        have nan and come last; ``attrs["axil"]`` of pandas frames counts them. Of a model
        fitted to transformed targets residuals are in the targets' own units; "scale (log)" and studentised are on the scale of
        the fit.

        Of classes the columns are row, target, expected (the class that most other rows in the row's leaves have), probability
        (of target, without the row; no such column where every row is alone in a leaf, as in fully grown forests), quality (the
        share of target among these rows) and suspect (expected is another class). Of boosting of more than two classes the mean
        of share and probability makes expected and quality.

        O(T N) beyond `leave_one_out`; no (n_train, n_train) array.

        Parameters
        ----------
        out_of_fold : array of shape (n_train,) or (n_train, K), optional
            Predictions of your own cross-validation, given as ``y_train`` was, in place of those of `leave_one_out`; of
            classes probabilities. The mean over several cross-validations finds more wrong labels than one.
        X_val : table, optional
            Validation rows, for a column more: ``gain``, by how much the mean squared error there would fall if the row's
            target were the expected one, as in `blame`.
        y_val : array of shape (n,) or (n, K), optional
            Their targets, or classes, given as ``y_train`` was.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the validation rows, as in `Explainer.explain`.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> y[7] = 1500.0  # a digit too many
        >>> table = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y).audit()
        >>> int(table["row"][0]), bool(table["suspect"][0])
        (7, True)
        """
        model = self._model
        model.can("audit")
        if (X_val is None) != (y_val is None):
            given, lacking = ("X_val", "y_val") if y_val is None else ("y_val", "X_val")
            raise InputError(f"{given} was given without {lacking}; give both for the column gain, or neither.")
        if model.kind == "additive" and X_val is not None:
            raise InputError("X_val and y_val are for models with exact weights; this one has pushes. Leave them out.")
        asked = None if X_val is None else validation(model, X_val, y_val, init_score)
        return _judged(model, out_of_fold, asked).table(model.backend)


def suspects(model: Any) -> NDArray[np.bool_]:
    """(N,): whether the target of each training row looks wrong, in some output."""
    model.can("audit")
    found: NDArray[np.bool_] = _judged(model).columns["suspect"].reshape(model.shape[0], -1).any(axis=1)
    return found


@dataclass(frozen=True, eq=False)
class Judged:
    """Training rows as the other rows see them."""

    columns: dict[str, Any]  #: a line for each row and output, in the order of the rows
    order: NDArray[np.intp]  #: of the lines, the most suspicious first, nan last
    basis: str  #: what it rests on, with places for the number of suspects and of all
    lacking: str  #: what rows that nobody can judge do not have

    def table(self, backend: str) -> Any:
        """The frame, with a note: what it rests on, how many are suspect of how many, how many rows are not judged."""
        columns = {name: values[self.order] for name, values in self.columns.items()}
        unknown = int(np.isnan(columns["quality"]).sum())
        text = self.basis.format(int(columns["suspect"].sum()), len(self.order))
        if unknown:
            text += (
                f"; nan in {unknown} lines: no other row is in one of the row's leaves, so there are no {self.lacking}"
            )
        return tables.note(tables.make(columns, backend), text)


def _judged(model: Any, out_of_fold: Any = None, asked: tuple[Queries, Array] | None = None) -> Judged:
    names = model.classes
    if model.kind == "additive":
        names = model.boosting.class_names
        if not model.boosting.loss.meaning:
            raise UnsupportedQuestionError(
                "audit", "it is of classes, counts and amounts", "Fit with squared error, which has exact weights."
            )
    return _numbers(model, out_of_fold, asked) if names is None else _classes(model, names, out_of_fold, asked)


def _by_others(model: Any) -> tuple[Array, bool]:
    """(N, K): predictions of the training rows without themselves, or means of their scores; and whether these are of fits."""
    if model.kind == "exact":
        return said_by_others(model)
    boosting = model.boosting
    return boosting.means(boosting.fitted - boosting.pushes.on_itself()), False


def _around(model: Any, values: Array) -> Array:
    """(N, S): the means of values (N, S) over the other rows in each row's leaves.

    Numbers of an exact model have a column per output, each with its trees; all else goes by the trees of all outputs.
    """
    if model.kind == "exact":
        if model.classes is None or len(model.engines) == 1:
            return model.across(values, lambda engine, own: engine.around(None, own))  # type: ignore[no-any-return]
        return np.asarray(np.mean([engine.around(None, values) for engine in model.engines], axis=0))
    walked = model.boosting.pushes.walked
    n_leaves = np.diff(walked.starts)
    ones, trees = np.ones(int(walked.starts[-1])), np.ones(len(n_leaves))
    membership = Structure(walked.leaves, n_leaves, ones, ones.copy(), trees, np.zeros(1))
    return around_leaves(membership, model.boosting.backend.rows_of(membership), None, values)


def _gains(proven: ProvenModel, queries: Queries, y: Array, corrected: Array) -> Array:
    return gains(proven, queries, error_gradient(proven, queries, y), corrected)


def _both(second: Array) -> Array:
    """(N, K): of two classes both columns, where there is one for the second."""
    return np.column_stack([1 - second, second]) if second.shape[1] == 1 else second


def _classes(model: Any, names: NDArray[Any], out_of_fold: Any, asked: tuple[Queries, Array] | None) -> Judged:
    """Classes, by those of the rows around or by probabilities given."""
    labels = _both(model.targets)
    if out_of_fold is None:
        shares, said = _around(model, labels), _both(_by_others(model)[0])
        # both together find more (experiments/label_noise_several.py)
        if model.kind == "additive" and labels.shape[1] > 2:
            shares = np.where(np.isnan(said), shares, (shares + said) / 2)
        found = ClassAudit.of_neighbours(labels, shares)
        probabilities = None if np.isnan(said).all() else said
    else:
        inputs.refuse_other_order(model.features, out_of_fold, "out_of_fold")
        probabilities = as_probabilities(out_of_fold, *labels.shape)
        found = ClassAudit.of_probabilities(labels, probabilities)
    columns = found.columns(model.index, names, probabilities)
    if asked is not None:
        columns["gain"] = _gains(model, *asked, np.eye(labels.shape[1])[found.expected]).sum(axis=1)
    basis = f"{BY_NEIGHBOURS}; {APART}" if out_of_fold is None else f"{BY_PROBABILITY}; {ABOUT}"
    return Judged(columns, np.argsort(columns["quality"], kind="stable"), basis, "others to ask")


@dataclass(frozen=True)
class Studentised:
    """Residuals (N, K) by the size that is usual where they are."""

    scale: Array
    value: Array
    quality: Array
    suspect: NDArray[np.bool_]

    @classmethod
    def of(cls, residuals: Array, around: Array, tails: Array | None = None) -> Studentised:
        """From residuals and the mean sizes around them, (N, K) each; nan: not known.

        No quality is below ``tails``, where a distribution is known whose tail probabilities they are.
        """
        sizes = np.abs(residuals)
        known = ~np.isnan(sizes)
        everywhere = np.array([own[there].mean() if there.any() else np.nan for own, there in zip(sizes.T, known.T)])
        local = np.where(np.isnan(around), everywhere, np.maximum(around, 0.0))
        scale = (local + TOWARDS_ALL * everywhere) / (1 + TOWARDS_ALL)
        ratio = np.divide(sizes, scale, out=np.where(known, 0.0, np.nan), where=scale > 0)
        quality = np.full_like(ratio, np.nan)
        for own, there, column, tail in zip(ratio.T, known.T, scale.T, quality.T):
            if there.any():
                unit, freedom = _bulk(own[there])
                column *= unit
                tail[there] = 2 * student.sf(own[there] / unit, freedom)
        if tails is not None:
            quality = np.fmax(quality, np.where(known, tails, np.nan))
        value = np.divide(residuals, scale, out=np.where(known, 0.0, np.nan), where=scale > 0)
        scale[~known] = np.nan
        suspect = np.zeros(value.shape, dtype=bool)
        for own, marks in zip(np.where(known, quality, np.inf).T, suspect.T):
            far = np.flatnonzero(own < FAR)
            far = far[np.argsort(own[far], kind="stable")]
            marks[far[: _beyond(own[far], int(np.isfinite(own).sum()))]] = True
        return cls(scale, value, quality, suspect)

    def columns(self, scale: str) -> dict[str, Any]:
        """The columns of the table, (N * K,) each, with that of the scale under this name."""
        found = {scale: self.scale, "studentised": self.value, "quality": self.quality, "suspect": self.suspect}
        return {name: values.ravel() for name, values in found.items()}


def _bulk(ratios: Array) -> tuple[float, int]:
    """The unit and the degrees of freedom of Student's t with the quantiles `MIDDLE` and `BULK` of these sizes."""
    middle, bulk = np.quantile(ratios, [MIDDLE, BULK])
    if not middle > 0:
        return 1.0, int(FREEDOMS[0])
    middles, bulks = (student.ppf((1 + share) / 2, FREEDOMS) for share in (MIDDLE, BULK))
    nearest = int(np.abs(np.log(bulks / middles) - np.log(bulk / middle)).argmin())
    return float(middle / middles[nearest]), int(FREEDOMS[nearest])


def _beyond(far: Array, n: int) -> int:
    """How many more of n rows are far out, by their qualities in order, than there would be of right labels alone.

    Of those ``n * quality`` are expected at least as far out as a row. The largest excess counts, among those that are no chance.
    """
    expected = n * far
    excess = np.arange(1, len(far) + 1) - expected
    clear = excess[excess > CHANCE * np.sqrt(expected)]
    return round(float(clear.max(initial=0.0)))


def _numbers(model: Any, out_of_fold: Any, asked: tuple[Queries, Array] | None) -> Judged:
    """Numbers, by their residuals as fits without the rows, or predictions given, have them."""
    additive = model.kind == "additive"
    if out_of_fold is None:
        expected, exact = _by_others(model)
        basis = model.deletion_note() if exact else BY_PUSHES if additive else BY_WEIGHTS
    else:
        expected, basis = model.folds(out_of_fold), BY_PREDICTION
    residuals, scale, basis = model.targets - expected, model.scale, model.note(basis)
    columns = output_columns("row", model.index, model.outputs)
    seen = scale.inverse(expected)
    columns |= {"target": model.shown.ravel(), "expected": seen.ravel(), "residual": (model.shown - seen).ravel()}
    power = model.boosting.variance_power if additive else None
    least = None if power is None else tails(power, model.targets, expected, model.boosting.walked.weights)
    columns |= Studentised.of(residuals, _around(model, np.abs(residuals)), least).columns(scale.label("scale"))
    if asked is not None:
        columns[scale.label("gain")] = _gains(model, *asked, expected).ravel()
    order = np.lexsort((-np.abs(columns["studentised"]), ~columns["suspect"]))
    return Judged(columns, order, f"{basis}; {ABOUT}", "predictions without the row")


@dataclass(frozen=True)
class ClassAudit:
    """The classes of N rows, as the other rows see them."""

    own: NDArray[np.intp]  #: (N,) the row's class
    expected: NDArray[np.intp]  #: (N,) the class that others expect
    quality: Array  #: (N,)
    suspect: NDArray[np.bool_]  #: (N,)

    @classmethod
    def of_neighbours(cls, labels: Array, shares: Array) -> ClassAudit:
        """From one-hot labels and what the rows around say of each class, from 0 to 1, (N, K) each; nan: none is there."""
        own, known = labels.argmax(axis=1), ~np.isnan(shares).any(axis=1)
        expected = np.where(known, np.nan_to_num(shares).argmax(axis=1), own)
        quality = np.where(known, np.clip(shares[np.arange(len(own)), own], 0.0, 1.0), np.nan)
        return cls(own, expected, quality, expected != own)

    @classmethod
    def of_probabilities(cls, labels: Array, probabilities: Array) -> ClassAudit:
        """From one-hot labels and out-of-fold probabilities, (N, K) each.

        Suspect: another class is more probable than it is on average for rows that are of that class (confident learning,
        Northcutt, Jiang and Chuang, JAIR 2021). A wrong class where probabilities are near to even is no sign of a wrong label.
        """
        own, every = labels.argmax(axis=1), np.arange(len(labels))
        counts = np.maximum(labels.sum(axis=0), 1.0)
        usual = (probabilities * labels).sum(axis=0) / counts
        sure = np.where(labels.any(axis=0) & (probabilities >= usual), probabilities, -1.0)
        likely = sure.argmax(axis=1)
        suspect = (sure[every, likely] >= 0) & (likely != own)
        expected = np.where(suspect, likely, probabilities.argmax(axis=1))
        return cls(own, expected, probabilities[every, own], suspect)

    def columns(self, index: NDArray[Any], classes: Any, probabilities: Array | None) -> dict[str, Any]:
        """The columns of the table, in the order of the rows."""
        names = np.asarray(classes)
        found: dict[str, Any] = {"row": index, "target": names[self.own], "expected": names[self.expected]}
        if probabilities is not None:
            found["probability"] = probabilities[np.arange(len(self.own)), self.own]
        return found | {"quality": self.quality, "suspect": self.suspect}


def as_probabilities(given: Any, n: int, n_classes: int) -> Array:
    """(n, K): out-of-fold probabilities of all classes; of two the second class's will do."""
    numbers = inputs.as_numbers(given, "out_of_fold", "probabilities, one row per training row")
    if n_classes == 2 and (numbers.ndim < 2 or numbers.shape[1] == 1):
        second = inputs.as_vector(given, n, "out_of_fold")
        numbers = np.stack([1 - second, second], axis=1)
    found = inputs.as_table(numbers, n, n_classes, "out_of_fold")
    if found.min() < -1e-6 or found.max() > 1 + 1e-6:
        raise InputError(
            f"out_of_fold holds {found.min():.6g} to {found.max():.6g}; expected probabilities from 0 to 1, such as "
            'cross_val_predict(model, X, y, method="predict_proba").'
        )
    return found
