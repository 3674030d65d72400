"""Label issues: training labels that look wrong, judged by the other rows.

No validation rows and no refit are needed. For numbers, r_j is the residual of row j in a fit
without its fold (`unseen_predictions`), or of the user's own cross-validation. What is large
depends on where: a_j is the mean |r| of the rows around j (`weights.spread`), shrunk towards the
mean over all of them, abar,

    scale_j = u (a_j + abar / 2) / 1.5,    studentised value = r_j / scale_j

The unit u makes the middle of all |studentised values| that of Student's t, whose degrees of
freedom, 4 to 20, are those at which their 80 % quantile is right too: most of the rows set both, so
that few wrong labels do not move them. (Where most residuals are zero, u is 1.) Quality is its
two-sided tail probability, so that N right labels have N q with a quality below q. Where more are
that far out, the excess is the estimated number of wrong ones. The rows marked are as many, the
furthest first, as hold at most a share ``fdr`` of right labels (Benjamini and Hochberg, JRSS B
1995).

For classes see `class_labels`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student

from axil import inputs
from axil.aliases import ArrayLike, DataFrame, OutOfFold, TableLike
from axil.arrays import AnyArray, BoolArray, FloatArray, IntArray
from axil.attribution import Kind, Location
from axil.errors import InputError, UnsupportedQuestionError
from axil.methods import leave_one_out
from axil.methods.class_labels import ClassLabels, as_probabilities, both_classes
from axil.methods.folds import BY_FOLDS, fold_predictions, number_of_folds
from axil.methods.influence import error_gradient, gains, validation
from axil.methods.kinds import refittable_model
from axil.methods.method import Method, output_columns
from axil.methods.tails import tails
from axil.methods.unseen_predictions import as_method, unseen_predictions
from axil.output import tables
from axil.replay.exact_model import ExactModel
from axil.replay.queries import QueryBatch
from axil.structure import LinearLeaves, Structure
from axil.weights.engine import across
from axil.weights.spread import around_leaves

# Weight of the mean over all rows in a row's scale; chosen on ten data sets
# (experiments/label_noise.py)
TOWARDS_ALL = 0.5
FREEDOMS = np.arange(4, 21)  # of Student's t; likewise
# quantiles of |studentised values| that say which one
MIDDLE = 0.5
BULK = 0.8
FAR = 0.01  # quality of a row that is far out
CHANCE = 3.0  # standard errors of a count, above which an excess is no chance
FDR = 0.1  # share of right labels among those marked

BY_NEIGHBOURS = "by the classes of other rows in the leaves of the fit; not a retraining"
BY_PROBABILITY = "by the probabilities given, and the model's own without the row"
BY_PREDICTION = "by the predictions given"
BY_CONTRIBUTIONS = "by the mean of each row's score without its own contribution; not a retraining"
ABOUT = "about {marked} of {lines} labels look wrong"  # an estimate
#: The order of the columns, of which a narrow screen shows the first; those of cleanlab come first.
COLUMNS = (
    "row",
    "output",
    "is_label_issue",
    "label_quality",
    "given_label",
    "expected_label",
    "gain",
    "probability",
    "residual",
)
AMONG_CLASSES = "; where classes overlap, right labels are among them"


class LabelIssues(Method):
    """Provide `Explainer.find_label_issues`."""

    def find_label_issues(
        self,
        *,
        out_of_fold: OutOfFold | None = "folds",
        X_val: TableLike | None = None,
        y_val: ArrayLike | None = None,
        init_score: ArrayLike | None = None,
        fdr: float | None = None,
    ) -> DataFrame:
        """Return the training labels with their quality, the most suspicious first.

        No validation rows and no refit are needed. The table has a line per training row, and per
        output if there are several. Its columns are row, output and

        - is_label_issue, which marks the first lines: as many as hold at most a share ``fdr`` of
          right labels;
        - label_quality, from 0 to 1: the share of right labels that would be as far out;
        - given_label, the target of the training data;
        - expected_label, the prediction of a refit without a fold of the rows, this row among them,
          with the tree structure fixed (a leaf of boosted trees that loses all rows adds nothing,
          as in `without`);
        - residual, the given label less the expected one;
        - scale, the size of usual residuals there, from the rows that share the row's leaves;
        - studentised, residual over scale.

        ``attrs["axil"]`` of a pandas table says how many labels are marked, how many look wrong in
        all (how many more are far out than right labels would be), and how far the labels of
        quality below 0.01 are from the expected ones. Hardly any label is marked in clean data with
        Gaussian noise. If residuals have long tails, labels that are far out may be right, and none
        is marked.

        Models that cannot be fitted without some of their rows use the correction that `influence`
        describes. Rows that have no prediction even so have nan and come last. For a model that was
        fitted to transformed targets, residuals are in the targets' own units; "scale (log)" and
        studentised are on the scale of the fit.

        For classes the columns are row, is_label_issue (another class is expected), label_quality,
        given_label, expected_label, and probability (of the given label, without the row, if it is
        known). The quality is the mean of this probability and of the share of the given
        label among the other rows in the row's leaves. Of boosted trees the first ones count most:
        the splits of later ones follow wrong labels. The expected label is the class for which
        this mean is largest; of a marked row it is another class than the given one. A boosted
        classifier marks the rows of lowest quality, as many as have another expected class or
        another class that is more frequent in their leaves. A forest marks the rows that have
        another expected class. With ``out_of_fold`` your probabilities take the place of the
        shares, and no more rows are marked than confident learning estimates to be wrong.

        Each of 5 to 20 folds takes O(T N). Forests and linear models leave out every row instead,
        which takes less there. No (n_train, n_train) array is held.

        Parameters
        ----------
        out_of_fold : "folds", "leave-one-out" or array of shape (n_train,) or (n_train, K)
            Where predictions without the row come from; "folds" by default: 5 to 20 refits without
            one fold of the rows each. "leave-one-out" refits without each row (`leave_one_out`),
            which takes longer, for additive models one replay of the fit per row. An array has the
            predictions of your own cross-validation, on the scale of ``y_train``, or probabilities
            of classes. The mean over several cross-validations finds more wrong labels than one.
        X_val : table, optional
            Validation rows, for one more column, gain: by how much the mean squared error there
            would fall if the row's label became the expected one, as in `influence`.
        y_val : array of shape (n,) or (n, K), optional
            Their targets, or classes, on the scale of ``y_train``.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the validation rows, as in `Explainer.explain`.
        fdr : float, default 0.1
            The share of right labels that the marked rows may hold, by the estimated distribution
            of residuals. A larger share marks more rows. For numbers only.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> y[7] = 1500.0  # a digit too many
        >>> model = LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y)
        >>> table = Explainer(model, X, y).find_label_issues()
        >>> int(table["row"][0]), bool(table["is_label_issue"][0])
        (7, True)
        """
        model = self._answering("find_label_issues")
        if (X_val is None) != (y_val is None):
            if y_val is None:
                raise InputError(
                    "X_val was given without y_val; give both for the column gain, or neither."
                )
            raise InputError(
                "y_val was given without X_val; give both for the column gain, or neither."
            )
        if model.kind is Kind.ADDITIVE and X_val is not None:
            raise InputError(
                "X_val and y_val are for models with exact weights; this one has contributions. "
                "Leave them out."
            )
        validation_rows = None
        if X_val is not None and y_val is not None:
            validation_rows = validation(refittable_model(model), X_val, y_val, init_score)
        return judged(model, out_of_fold, validation_rows, fdr).table(model.backend)


def suspects(model: Any, out_of_fold: Any = "folds") -> BoolArray:
    """Return whether the target of each training row looks wrong in some output, (N,)."""
    model.capabilities.require("find_label_issues")
    model = model.for_method("find_label_issues")
    marks: BoolArray = (
        judged(model, out_of_fold).columns["is_label_issue"].reshape(model.shape[0], -1).any(axis=1)
    )
    return marks


def _place(column: str) -> int:
    """Return the place of a column in the table; "gain (log)" is where "gain" is."""
    name, _, _ = column.partition(" (")
    if name in COLUMNS:
        return COLUMNS.index(name)
    return len(COLUMNS)


@dataclass(frozen=True, eq=False)
class Judged:
    """The judgement of other rows on training rows."""

    columns: dict[str, Any]  #: a line for each row and output, in the order of the rows
    order: IntArray  #: of the lines, the most suspicious first, nan last
    basis: str  #: what it rests on, and how many labels look wrong
    lacking: str  #: what rows that nobody can judge do not have

    def table(self, backend: str) -> DataFrame:
        """Return the frame, noting its evidence and how many rows are suspect or not judged."""
        columns = {
            name: self.columns[name][self.order] for name in sorted(self.columns, key=_place)
        }
        unknown = int(np.isnan(columns["label_quality"]).sum())
        text = self.basis
        if unknown:
            text += (
                f"; nan in {unknown} lines: no other row is in one of the row's leaves, "
                f"so there are no {self.lacking}"
            )
        return tables.note(tables.make(columns, backend), text)


def judged(
    model: Any,
    out_of_fold: Any = "folds",
    validation_rows: tuple[QueryBatch, FloatArray] | None = None,
    fdr: float | None = None,
) -> Judged:
    """Judge the labels of the training rows; see `LabelIssues.find_label_issues`."""
    if isinstance(out_of_fold, str):
        as_method(out_of_fold)
    class_names = model.names.classes
    if model.kind is Kind.ADDITIVE:
        class_names = model.boosting.class_names
    if class_names is None:
        if fdr is None:
            fdr = FDR
        return _numbers(model, out_of_fold, validation_rows, inputs.as_share(fdr, "fdr"))
    if fdr is not None:
        raise InputError(
            "fdr is for numbers, whose residuals have a distribution; this model predicts classes. "
            "Leave it out: lines are in the order of quality, so take as many of them as you can "
            "look at."
        )
    return _classes(model, class_names, out_of_fold, validation_rows)


def around_rows(
    model: Any, values: FloatArray, tree_weights: FloatArray | None = None
) -> FloatArray:
    """Return the means of values (N, S) over the other rows in each row's leaves, (N, S).

    Numbers of an exact model have a column per output, each with its trees; all else goes by the
    trees of all outputs. ``tree_weights``, (T,), are those of the trees of an additive model.
    """
    if model.kind is Kind.EXACT:
        if model.names.classes is None or len(model.engines) == 1:
            return across(
                model.engines, values, lambda engine, columns: engine.around(None, columns)
            )
        return np.asarray(
            np.mean([engine.around(None, values) for engine in model.engines], axis=0)
        )
    if model.location is Location.PARTITIONS:
        return model.around(values, tree_weights)  # type: ignore[no-any-return]
    walked = model.boosting.contributions.walked
    n_leaves = np.diff(walked.starts)
    ones = np.ones(int(walked.starts[-1]))
    trees = np.ones(len(n_leaves))
    membership = Structure(
        walked.leaves, n_leaves, ones, LinearLeaves(ones.copy()), trees, np.zeros(1)
    )
    rows = model.boosting.backend.rows_of(membership)
    return around_leaves(membership, rows, None, values, tree_weights)


def _gains(
    verified: ExactModel, queries: QueryBatch, y: FloatArray, corrected: FloatArray
) -> FloatArray:
    """Return the fall of the validation error if each target were corrected; see `gains`."""
    return gains(verified, queries, error_gradient(verified, queries, y), corrected)


# -- classes ---------------------------------------------------------------------------------------


def _classes(
    model: Any,
    names: AnyArray,
    out_of_fold: Any,
    validation_rows: tuple[QueryBatch, FloatArray] | None,
) -> Judged:
    """Judge classes by the rows around or the user's probabilities, and by leave-one-out ones."""
    if len(names) == 1:
        raise UnsupportedQuestionError(
            "find_label_issues",
            f"all training rows are of one class, {names[0]}, so no row can be of another",
            "Fit with the rows of other classes, too.",
        )
    labels = both_classes(model.targets)
    own_probabilities = _probabilities_without(model, out_of_fold)
    if isinstance(out_of_fold, str):
        shares = class_shares(model, labels)
        if model.kind is Kind.EXACT:
            class_labels = ClassLabels.of_shares(labels, shares, own_probabilities)
        else:
            class_labels = ClassLabels.of_boosted_shares(labels, shares, own_probabilities)
        if np.isnan(own_probabilities).all():
            probabilities = None
        else:
            probabilities = own_probabilities
        basis = BY_NEIGHBOURS
    else:
        given_probabilities = model.training.ordered_values(out_of_fold, "out_of_fold")
        probabilities = as_probabilities(given_probabilities, *labels.shape)
        class_labels = ClassLabels.of_probabilities(labels, probabilities, own_probabilities)
        basis = BY_PROBABILITY
    columns = class_labels.columns(model.index, names, probabilities)
    if validation_rows is not None:
        corrected = np.eye(labels.shape[1])[class_labels.expected]
        columns["gain"] = _gains(model, *validation_rows, corrected).sum(axis=1)
    estimate = ABOUT.format(marked=class_labels.n_wrong, lines=len(labels))
    marked = f"{class_labels.is_label_issue.sum()} are marked"
    order = np.argsort(columns["label_quality"], kind="stable")
    return Judged(columns, order, f"{basis}; {estimate}; {marked}{AMONG_CLASSES}", "others to ask")


def class_shares(model: Any, labels: FloatArray) -> FloatArray:
    """Return the share of each class among the other rows in each row's leaves, (N, K).

    The trees of a boosted classifier count by the part of the labels that is left to fit when they
    are made (`Schedule.unfitted_shares`). Splits of later trees follow what single rows have left
    over, wrong labels among them, and gather such rows in leaves of their own.

    Parameters
    ----------
    model : ExactModel or AdditiveModel
    labels : array of shape (N, K)
        The one-hot classes of the training rows.
    """
    if model.kind is Kind.EXACT:
        return around_rows(model, labels)
    return around_rows(model, labels, model.boosting.unfitted_shares)


def _probabilities_without(model: Any, out_of_fold: Any) -> FloatArray:
    """Return the model's own probabilities of each row's classes without the row, (N, K).

    For boosted trees they are those of the row's score less its own contribution, which find more
    wrong labels than folds and take less time (experiments/label_issues.py), or of the fit without
    the row, if that is asked for.
    """
    if model.kind is Kind.EXACT:
        if isinstance(out_of_fold, str):
            method = out_of_fold
        else:
            method = "folds"
        return both_classes(unseen_predictions(model, method)[0])
    if isinstance(out_of_fold, str) and out_of_fold == "leave-one-out":
        scores = leave_one_out.scores_of(model, "exact")
        return both_classes(model.boosting.expected_targets(scores))
    return both_classes(means_without_own_contribution(model.boosting))


def means_without_own_contribution(boosting: Any) -> FloatArray:
    """Return the mean of each row's score without the row's own contribution, (N, K)."""
    scores = boosting.fitted - boosting.contributions.on_itself()
    means: FloatArray = boosting.expected_targets(scores)
    return means


# -- numbers ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Studentised:
    """Residuals (N, K) relative to the usual size around them."""

    scale: FloatArray
    value: FloatArray
    quality: FloatArray
    is_label_issue: BoolArray
    n_wrong: int  #: the estimated number of wrong labels
    n_far: int  #: the number of labels whose quality is below `FAR`

    @classmethod
    def of(
        cls,
        residuals: FloatArray,
        around: FloatArray,
        tails: FloatArray | None = None,
        fdr: float = FDR,
    ) -> Studentised:
        """Judge residuals by the mean sizes around them, (N, K) each; nan stands for unknown.

        No quality is below ``tails``, the tail probabilities of a known distribution.
        """
        sizes = np.abs(residuals)
        is_known = ~np.isnan(sizes)
        everywhere = np.full(sizes.shape[1], np.nan)
        for output, sizes_of_output in enumerate(sizes.T):
            if is_known[:, output].any():
                everywhere[output] = sizes_of_output[is_known[:, output]].mean()
        local = np.where(np.isnan(around), everywhere, np.maximum(around, 0.0))
        scale = (local + TOWARDS_ALL * everywhere) / (1 + TOWARDS_ALL)
        ratio = np.divide(sizes, scale, out=np.where(is_known, 0.0, np.nan), where=scale > 0)
        quality = np.full_like(ratio, np.nan)
        for output in range(ratio.shape[1]):
            rows = is_known[:, output]
            if rows.any():
                unit, freedom = _bulk(ratio[rows, output])
                scale[:, output] *= unit
                quality[rows, output] = 2 * student.sf(ratio[rows, output] / unit, freedom)
        if tails is not None:
            quality = np.fmax(quality, np.where(is_known, tails, np.nan))
        value = np.divide(residuals, scale, out=np.where(is_known, 0.0, np.nan), where=scale > 0)
        scale[~is_known] = np.nan
        is_label_issue = np.zeros(value.shape, dtype=bool)
        n_wrong = 0
        for qualities, sizes_of_output, marks in zip(quality.T, np.abs(value).T, is_label_issue.T):
            order = np.lexsort((-sizes_of_output, qualities))  # nan last
            ordered = qualities[order]
            ordered = ordered[: np.isfinite(ordered).sum()]
            marks[order[: _n_marked(ordered, fdr)]] = True
            n_wrong += _n_beyond(ordered[ordered < FAR], len(ordered))
        return cls(scale, value, quality, is_label_issue, n_wrong, int((quality < FAR).sum()))

    def columns(self, scale: str) -> dict[str, Any]:
        """Return the columns of the table, (N * K,) each; ``scale`` names the scale's column."""
        columns = {
            scale: self.scale,
            "studentised": self.value,
            "label_quality": self.quality,
            "is_label_issue": self.is_label_issue,
        }
        return {name: values.ravel() for name, values in columns.items()}

    def summary(self, targets: FloatArray, expected: FloatArray, fdr: float) -> str:
        """Return in words how many labels look wrong, and the distance of the furthest targets.

        ``targets`` and ``expected``, (N, K) each, are the targets and the values expected, in the
        targets' own units.
        """
        n_marked = int(self.is_label_issue.sum())
        n_known = int(np.isfinite(self.quality).sum())
        estimate = ABOUT.format(marked=self.n_wrong, lines=self.quality.size)
        marked = f"{n_marked} are marked, at an estimated false discovery rate of {100 * fdr:.3g} %"
        far = self.quality < FAR
        if not far.any():
            return f"{estimate}; {marked}; none has a quality below {FAR:g}"
        usual = (
            f"{self.n_far} have a quality below {FAR:g}, as {FAR * n_known:.0f} right ones would"
        )
        return f"{estimate}; {marked}; {usual}, {_how_far(targets[far], expected[far])}"


def _how_far(targets: FloatArray, expected: FloatArray) -> str:
    """Return in words how far these targets are from the expected values.

    It is a factor if all values are above zero.
    """
    if (targets > 0).all() and (expected > 0).all():
        ratios = targets / expected
        return f"with targets of {ratios.min():.3g} to {ratios.max():.3g} times the value expected"
    residuals = targets - expected
    return f"with targets off the value expected by {residuals.min():.3g} to {residuals.max():.3g}"


def _bulk(ratios: FloatArray) -> tuple[float, int]:
    """Return the unit and the degrees of freedom of the Student's t that fits these sizes.

    Its quantiles `MIDDLE` and `BULK` are those of the sizes.
    """
    middle, bulk = np.quantile(ratios, [MIDDLE, BULK])
    if not middle > 0:
        return 1.0, int(FREEDOMS[0])
    middles, bulks = (student.ppf((1 + share) / 2, FREEDOMS) for share in (MIDDLE, BULK))
    nearest = int(np.abs(np.log(bulks / middles) - np.log(bulk / middle)).argmin())
    return float(middle / middles[nearest]), int(FREEDOMS[nearest])


def _n_marked(qualities: FloatArray, fdr: float) -> int:
    """Return the number of rows to mark, so that at most this share of them has right labels.

    They are the rows of lowest quality.

    Of N right labels ``N * quality`` are expected at least as far out as a row, and that is at most
    ``fdr`` times their number.
    """
    expected = len(qualities) * qualities
    within = np.flatnonzero(expected <= fdr * np.arange(1, len(qualities) + 1))
    if len(within):
        return int(within[-1]) + 1
    return 0


def _n_beyond(far: FloatArray, n: int) -> int:
    """Return how many of n rows are far out, beyond the number that right labels explain.

    ``far`` has the qualities in order. Of right labels, ``n * quality`` are expected at least as
    far out as a row. The largest excess that is no chance counts.
    """
    expected = n * far
    excess = np.arange(1, len(far) + 1) - expected
    clear = excess[excess > CHANCE * np.sqrt(expected)]
    return round(float(clear.max(initial=0.0)))


def _numbers(
    model: Any, out_of_fold: Any, validation_rows: tuple[QueryBatch, FloatArray] | None, fdr: float
) -> Judged:
    """Judge numbers by their out-of-fold residuals, or by the user's predictions."""
    if not isinstance(out_of_fold, str):
        expected = model.training.out_of_fold(out_of_fold)
        basis = BY_PREDICTION
    elif model.kind is Kind.EXACT:
        expected, basis = unseen_predictions(model, out_of_fold)
    elif out_of_fold == "leave-one-out":
        expected = model.boosting.expected_targets(leave_one_out.scores_of(model, "exact"))
        basis = model.deletions.replay_note
    else:
        expected, basis = _means_by_folds(model)
    residuals = model.targets - expected
    scale = model.scale
    columns = output_columns("row", model.index, model.names.outputs)
    expected_targets = scale.inverse(expected)
    columns |= {
        "given_label": model.shown.ravel(),
        "expected_label": expected_targets.ravel(),
        "residual": (model.shown - expected_targets).ravel(),
    }
    if model.kind is Kind.ADDITIVE:
        power = model.boosting.variance_power
    else:
        power = None
    if power is None:
        probabilities = None
    else:
        row_weights = model.boosting.walked.weights
        probabilities = tails(power, model.targets, expected, row_weights)
    sizes_around = around_rows(model, np.abs(residuals))
    studentised = Studentised.of(residuals, sizes_around, probabilities, fdr)
    columns |= studentised.columns(scale.label("scale"))
    if validation_rows is not None:
        columns[scale.label("gain")] = _gains(model, *validation_rows, expected).ravel()
    order = np.lexsort((-np.abs(columns["studentised"]), ~columns["is_label_issue"]))
    text = f"{model.note(basis)}; {studentised.summary(model.shown, expected_targets, fdr)}"
    return Judged(columns, order, text, "predictions without the row")


def _means_by_folds(model: Any) -> tuple[FloatArray, str]:
    """Return the expected counts or amounts by refits without folds.

    Where there is no such fit, they are those of scores without the row's own contribution.
    """
    try:
        scores = fold_predictions(model)
    except UnsupportedQuestionError:
        return means_without_own_contribution(model.boosting), BY_CONTRIBUTIONS
    means: FloatArray = model.boosting.expected_targets(scores)
    return means, BY_FOLDS.format(number_of_folds(model))
