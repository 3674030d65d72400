"""Distribution: intervals, quantiles and scores of targets around predictions.

The distribution does not depend on where the training rows are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from axil import inputs
from axil.aliases import ArrayLike, DataFrame, FeatureTable, LabelsLike, TableLike
from axil.arrays import AnyArray, FloatArray, IntArray
from axil.errors import InputError, shown
from axil.machine.blocks import spans
from axil.methods.intervals.calibration_dates import CalibrationDates
from axil.methods.intervals.calibration_groups import CalibrationGroups
from axil.methods.intervals.calibration_rows import fit_targets
from axil.methods.intervals.conformal import Conformal, least_rows, order_of
from axil.methods.intervals.coverage import AreaRows, coordinate_columns
from axil.methods.intervals.deviance_scale import DevianceScale
from axil.methods.intervals.local import Local, Surroundings
from axil.methods.method import output_columns
from axil.output import tables
from axil.replay.queries import QueryBatch
from axil.replay.verified_model import VerifiedModel

ATOM_ENTRIES = 1 << 21  # atoms or results of some queries that are worked on at a time
COPIES = 8  # of these while they are made, of 8 bytes each
NOTE = (
    "calibrated: holds on average over rows that are exchangeable with the calibration rows, "
    "not at every row"
)


@dataclass(frozen=True, eq=False, repr=False)
class Distribution:
    """The predictive distribution of each row of X.

    It follows from calibration rows, and from the errors and targets around the row.
    """

    _model: VerifiedModel
    _around: Surroundings | DevianceScale
    _rows: tuple[Conformal, ...]  # of each output
    source: str  #: where the calibration errors are from: "held out", "out-of-fold" or "out-of-bag"
    _groups: CalibrationGroups | None = None
    _dates: CalibrationDates | None = None
    _group: object = None  # the labels of these rows, where they are one pool of groups

    @property
    def n_calibration(self) -> int:
        """The number of calibration rows."""
        return len(self._rows[0].errors)

    # -- questions ---------------------------------------------------------------------------------

    def interval(
        self,
        X: TableLike,
        confidence_level: float = 0.9,
        *,
        symmetric: bool = True,
        init_score: ArrayLike | None = None,
        groups: LabelsLike | None = None,
        dates: LabelsLike | None = None,
    ) -> DataFrame:
        """Return prediction intervals, as a table with a row per prediction and output.

        The columns are query, prediction, lower, upper, scale and uncertainty_rank. An interval
        holds the target with probability ``confidence_level`` or a little more; see `Predictive`.
        ``scale``: the size that half of the errors around this query stay below, on the scale of
        the fit. ``uncertainty_rank``: the share of calibration rows with a smaller local scale,
        from 0 to 1. Near 1 the prediction is among those with the largest errors to be expected;
        of all that weights say, this predicts large errors best (experiments/intervals_alarm.py).
        Rows from elsewhere it may miss: ask `axil.novelty`. With groups that are pooled there are
        ``pool_rows``, the calibration rows that an interval follows from, and ``pool``, the labels
        of their groups.
        Streamed: never holds an (n, n_train) array.

        Parameters
        ----------
        X : table
            The n rows to predict: a frame, an array or a sparse matrix with the columns of the fit.
        confidence_level : float, default 0.9
            The probability that an interval is to hold its target with, between 0 and 1.
        symmetric : bool, default True
            As far below the prediction as above, on the scale of the fit. False: cuts the same
            share off at either end, which is narrower where errors are skewed, and needs twice as
            many calibration rows.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`.
        groups : array of shape (n,), optional
            Labels of the rows of X, where `calibrate` was given labels; a column that it was given
            is read from X.
        dates : array of shape (n,), optional
            Dates of the rows of X, where `calibrate` was given dates; a column that it was given is
            read from X.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> model = LGBMRegressor(n_estimators=20, verbose=-1).fit(X[:250], y[:250])
        >>> predictive = Explainer(model, X[:250], y[:250]).calibrate(X[250:350], y[250:350])
        >>> table = predictive.interval(X[350:], confidence_level=0.8)
        >>> list(table.columns)
        ['query', 'prediction', 'lower', 'upper', 'scale', 'uncertainty_rank']
        >>> y_new = y[350:].values
        >>> is_covered = (table["lower"] <= y_new) & (y_new <= table["upper"])
        >>> bool(is_covered.mean() > 0.7)
        True
        """
        queries = self._model.queries(X, init_score)
        self._check_dates(queries, dates)
        columns = output_columns("query", queries.labels, self._model.names.outputs)
        intervals = self._interval(queries, confidence_level, symmetric, groups)
        columns |= {name: values.ravel() for name, values in intervals.items()}
        columns |= self._pool_columns(queries, groups)
        return tables.note(tables.make(columns, self._model.backend), NOTE)

    def coverage(
        self,
        X: TableLike,
        y: ArrayLike,
        *,
        confidence_level: float = 0.9,
        by: LabelsLike | None = None,
        coordinates: tuple[str | int, str | int] | None = None,
        symmetric: bool = True,
        init_score: ArrayLike | None = None,
        groups: LabelsLike | None = None,
    ) -> DataFrame:
        """Return the share of known targets inside their intervals, group by group.

        The columns are group, rows, covered, lower and upper, median_width, and output if there are
        several. ``lower`` and ``upper`` bound the coverage of all rows of the group with 95 %
        confidence (Clopper and Pearson), for the chance in the rows of X. With coordinates there
        are latitude and longitude, the medians of the rows; `axil.plots.coverage_map` draws them.

        Parameters
        ----------
        X : table
            The n rows to predict, which are neither training nor calibration rows.
        y : array of shape (n,) or (n, K)
            Their targets, given as ``y_train`` was.
        confidence_level : float, default 0.9
            The probability that an interval is to hold its target with, between 0 and 1.
        by : array of shape (n,) or str, optional
            A label for each row of X, or the name of a column. By default the groups that
            `calibrate` was given; without these all rows together.
        coordinates : tuple of two columns, optional
            The latitude and the longitude, by name or position.
        symmetric : bool, default True
            As in `interval`.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`.
        groups : array of shape (n,), optional
            Labels of the rows of X, where `calibrate` was given labels.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> model = LGBMRegressor(n_estimators=20, verbose=-1).fit(X[:250], y[:250])
        >>> predictive = Explainer(model, X[:250], y[:250]).calibrate(X[250:350], y[250:350])
        >>> table = predictive.coverage(X[350:], y[350:], by=X["sex"][350:] > 0)
        >>> table[["group", "rows"]].values.tolist()
        [[False, 47], [True, 45]]
        """
        queries = self._model.queries(X, init_score)
        truth = self._shown(self._targets(y, queries))
        if by is None:
            by = groups
        if by is None and self._groups is not None:
            by = self._groups.column
        columns_of_places = None
        if coordinates is not None:
            columns_of_places = coordinate_columns(coordinates, queries)
        areas = AreaRows.of(queries, by, columns_of_places)
        ends = self._interval(queries, confidence_level, symmetric, groups)
        is_inside = (ends["lower"] <= truth) & (truth <= ends["upper"])
        widths = ends["upper"] - ends["lower"]
        outputs = self._model.names.outputs
        parts = []
        for k in range(truth.shape[1]):
            columns = areas.columns(is_inside[:, k], widths[:, k])
            if outputs is not None:
                columns["output"] = np.repeat(np.asarray(outputs)[[k]], len(areas.names))
            parts.append(columns)
        frame = tables.concatenate(parts, self._model.backend)
        return tables.note(frame, NOTE, confidence_level=float(confidence_level))

    def calibration_groups(self) -> DataFrame:
        """Return the groups of calibration rows, as a table with a row per group.

        The columns are group, rows, pool_rows and pooled_with. ``pool_rows``: the calibration rows
        of the group and of those that it is pooled with, whose labels are in ``pooled_with``.
        """
        if self._groups is None:
            raise InputError("calibrate was given no groups. Calibrate with groups=.")
        return tables.make(self._groups.table(), self._model.backend)

    def quantiles(
        self,
        X: TableLike,
        q: ArrayLike,
        *,
        init_score: ArrayLike | None = None,
        groups: LabelsLike | None = None,
    ) -> FloatArray:
        """Return quantiles of the predictive distributions, (n, Q) or (n, Q, K).

        Quantiles above one half are rounded up to the next calibration row, and those below one
        half down, so that a target exceeds a quantile with at most the probability that it names.

        Parameters
        ----------
        X : table
            The n rows to predict.
        q : float or sequence of Q floats
            Probabilities, between 0 and 1.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`.
        groups : array of shape (n,), optional
            Labels of the rows of X, where `calibrate` was given labels; a column that it was given
            is read from X.
        """
        probabilities = _as_probabilities(q)
        if self._rising:
            rising = probabilities
        else:
            rising = 1.0 - probabilities

        def ends(distribution: Distribution, local: Local, _: IntArray) -> FloatArray:
            for share in probabilities:
                distribution._require(max(share, 1.0 - share), share, "q")
            n = distribution.n_calibration
            # Both places for one half, whose mean is the median.
            above = np.array(
                [
                    order_of(max(share, 0.5), n)
                    if share >= 0.5
                    else n + 1 - order_of(1.0 - share, n)
                    for share in rising
                ]
            )
            below = np.where(rising == 0.5, n + 1 - above, above)
            lower = distribution._atoms(local, Conformal.lower)
            upper = distribution._atoms(local, Conformal.upper)
            highest = np.where((rising >= 0.5)[:, None], upper[:, above - 1], lower[:, above - 1])
            lowest = np.where((rising > 0.5)[:, None], upper[:, below - 1], lower[:, below - 1])
            return (highest + lowest) / 2

        return self._reduced(X, init_score, ends, len(probabilities), "quantiles", groups)

    def cdf(
        self,
        X: TableLike,
        y: ArrayLike,
        *,
        init_score: ArrayLike | None = None,
        groups: LabelsLike | None = None,
    ) -> FloatArray:
        """Return the probability of a target at or below y for each row, (n,) or (n, K).

        For true targets it is nearly uniform.

        Parameters
        ----------
        X : table
            The n rows to predict.
        y : array of shape (n,) or (n, K)
            A number for each row, given as ``y_train`` was.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`.
        groups : array of shape (n,), optional
            Labels of the rows of X, where `calibrate` was given labels; a column that it was given
            is read from X.
        """
        queries = self._model.queries(X, init_score)
        at = self._shown(self._targets(y, queries))

        def rank(distribution: Distribution, local: Local, some: IntArray) -> FloatArray:
            n = distribution.n_calibration
            atoms = distribution._atoms(local)
            value = at[some][:, None, :]
            return np.asarray(
                ((atoms < value).sum(axis=1) + (atoms <= value).sum(axis=1) + 1.0) / (2 * (n + 1))
            )

        return self._reduced(queries, None, rank, groups=groups)

    def std(
        self, X: TableLike, *, init_score: ArrayLike | None = None, groups: LabelsLike | None = None
    ) -> FloatArray:
        """Return the standard deviation of each predictive distribution, (n,) or (n, K).

        Parameters
        ----------
        X : table
            The n rows to predict.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`.
        groups : array of shape (n,), optional
            Labels of the rows of X, where `calibrate` was given labels; a column that it was given
            is read from X.
        """
        return self._reduced(X, init_score, _deviations, groups=groups)

    def predict(
        self, X: TableLike, return_std: bool = False, *, init_score: ArrayLike | None = None
    ) -> Any:
        """Return the model's predictions, (n,) or (n, K).

        With ``return_std=True`` return a pair, the predictions and `std`. Code that expects a
        regressor with standard deviations, such as conformity scores of other libraries, can use
        this.

        Parameters
        ----------
        X : table
            The n rows to predict.
        return_std : bool, default False
            Return the standard deviations too.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`.
        """
        queries = self._model.queries(X, init_score)
        predictions = self._shown(self._around.predictions(self._model, queries))
        if self._model.names.outputs is None:
            predictions = predictions[:, 0]
        if inputs.as_flag(return_std, "return_std"):
            return (predictions, self._reduced(queries, None, _deviations))
        return predictions

    def sample(
        self,
        X: TableLike,
        n: int = 1,
        *,
        random_state: int | None = None,
        init_score: ArrayLike | None = None,
        groups: LabelsLike | None = None,
    ) -> FloatArray:
        """Return targets sampled from the predictive distributions, (rows, n) or (rows, n, K).

        A sample uses the errors of one calibration row for all outputs, so that outputs depend on
        each other as these errors do.

        Parameters
        ----------
        X : table
            The rows to predict.
        n : int, default 1
            How many to draw for each row.
        random_state : int, optional
            The seed, for the same numbers again.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`.
        groups : array of shape (n,), optional
            Labels of the rows of X, where `calibrate` was given labels; a column that it was given
            is read from X.
        """
        n = inputs.as_count(n, "n")
        if random_state is None:
            seed = None
        else:
            seed = inputs.as_count(random_state, "random_state", least=0)
        draws = np.random.default_rng(seed)

        def drawn(distribution: Distribution, local: Local, _: IntArray) -> FloatArray:
            atoms = distribution._atoms(local, Conformal.drawn)
            positions = draws.integers(atoms.shape[1], size=(len(atoms), n, 1))
            return np.take_along_axis(atoms, positions, axis=1)

        return self._reduced(X, init_score, drawn, n, "draws", groups)

    def crps(
        self,
        X: TableLike,
        y: ArrayLike,
        *,
        init_score: ArrayLike | None = None,
        groups: LabelsLike | None = None,
    ) -> FloatArray:
        """Return the continuous ranked probability score of true targets, (n,) or (n, K).

        It is ``E|Y - y| - E|Y - Y'| / 2`` over the predictive distribution, in the units of the
        targets. Less is better. For a single number it would be the absolute error.

        Parameters
        ----------
        X : table
            The n rows to predict.
        y : array of shape (n,) or (n, K)
            Their targets, given as ``y_train`` was.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`.
        groups : array of shape (n,), optional
            Labels of the rows of X, where `calibrate` was given labels; a column that it was given
            is read from X.
        """
        queries = self._model.queries(X, init_score)
        truth = self._shown(self._targets(y, queries))

        def score(distribution: Distribution, local: Local, some: IntArray) -> FloatArray:
            atoms = distribution._atoms(local)
            n = atoms.shape[1]
            ranks = (2.0 * np.arange(1, n + 1) - n - 1)[:, None]
            apart = np.abs(atoms - truth[some][:, None, :]).mean(axis=1)
            return np.asarray(apart - (ranks * np.sort(atoms, axis=1)).sum(axis=1) / n**2)

        return self._reduced(queries, None, score, groups=groups)

    # -- the distribution --------------------------------------------------------------------------

    def _interval(
        self,
        queries: QueryBatch,
        confidence_level: float,
        symmetric: bool,
        groups: LabelsLike | None = None,
    ) -> dict[str, FloatArray]:
        """Return the columns of `interval`, each (n, K)."""
        level = _as_probability(confidence_level, "confidence_level")
        symmetric = inputs.as_flag(symmetric, "symmetric")
        required_level = (1.0 + level) / 2
        if symmetric:
            required_level = level
        members = self._members(queries, groups)
        for distribution, _ in members:
            distribution._require(required_level, confidence_level, "confidence_level")
        local = self._around.local(self._model, queries)
        (*ends, scale), uncertainty_ranks = (
            np.empty((3, *local.predictions.shape)),
            np.empty_like(local.predictions),
        )
        for distribution, rows in members:
            ends[0][rows], ends[1][rows], scale[rows] = distribution._ends(
                local[rows], level, symmetric
            )
            uncertainty_ranks[rows] = distribution._uncertainty_ranks(local[rows])
        shown_ends = [self._shown(self._around.targets(local.predictions, end)) for end in ends]
        if self._rising:
            lower, upper = shown_ends
        else:
            lower, upper = shown_ends[::-1]
        return {
            "prediction": self._shown(local.predictions),
            "lower": lower,
            "upper": upper,
            self._model.scale.label("scale"): scale,
            "uncertainty_rank": uncertainty_ranks,
        }

    def _pool_columns(self, queries: QueryBatch, groups: LabelsLike | None) -> dict[str, AnyArray]:
        """Return the columns of `interval` about pools of groups; none without pools."""
        if self._groups is None or self._groups.pooling is None:
            return {}
        pools = self._groups.pools_of_queries(queries, groups)
        sizes = np.bincount(self._groups.pools[self._groups.codes])
        names = np.array([self._groups.pool_name(pool) for pool in range(len(sizes))], dtype=object)
        n_outputs = len(self._rows)
        return {
            "pool_rows": np.repeat(sizes[pools], n_outputs),
            "pool": np.repeat(names[pools], n_outputs),
        }

    def _check_dates(self, queries: QueryBatch, dates: LabelsLike | None) -> None:
        """Warn of rows that are newer than all calibration rows."""
        if self._dates is not None:
            self._dates.warn_of_newer(queries, dates)
        elif dates is not None:
            raise InputError(
                "dates was given, and calibrate was given none. Leave it out, or calibrate with "
                "dates=."
            )

    def _ends(self, local: Local, confidence_level: float, symmetric: bool) -> FloatArray:
        """Return the lower and upper errors of intervals and the median error size, (3, n, K)."""
        n = self.n_calibration
        errors = np.empty((3, *local.predictions.shape))
        middle = (n - 1) // 2
        inner = order_of(confidence_level, n)
        outer = order_of((1.0 + confidence_level) / 2, n)
        for k, rows in enumerate(self._rows):
            alike = np.argsort(rows.reaches(local.features[:, k]), kind="stable")
            for some in (alike[rows_of_part] for rows_of_part in self._some(len(alike))):
                at = local.features[some, k], local.sizes[some, k]
                if symmetric:
                    scale, upper = rows.at_places(*at, [middle, inner - 1]).T
                    errors[:, some, k] = -upper, upper, scale
                else:
                    lowest, highest = rows.bounds(*at)
                    errors[:, some, k] = (
                        lowest[:, n - outer],
                        highest[:, outer - 1],
                        rows.at_places(*at, [middle])[:, 0],
                    )
        return errors

    def _uncertainty_ranks(self, local: Local) -> FloatArray:
        """Return the share of calibration rows with a smaller local scale, (n, K)."""
        ranks = np.empty_like(local.predictions)
        for k, rows in enumerate(self._rows):
            sorted_scales = np.sort(rows.scales(rows.features, rows.sizes))
            ranks[:, k] = np.searchsorted(
                sorted_scales, rows.scales(local.features[:, k], local.sizes[:, k])
            ) / len(sorted_scales)
        return ranks

    def _reduced(
        self,
        X: FeatureTable,
        init_score: ArrayLike | None,
        reduce: Callable[[Distribution, Local, IntArray], FloatArray],
        lines: int | None = None,
        what: str = "results",
        groups: LabelsLike | None = None,
    ) -> FloatArray:
        """Return the results of ``reduce`` for all of X.

        Its arguments are the distribution of a group, the local sums of some explained rows in this
        group, and the positions of these rows.

        Parameters
        ----------
        lines : int
            The number of results per explained row.
        what : str
            What the results are, for messages.
        """
        if isinstance(X, QueryBatch):
            queries = X
        else:
            queries = self._model.queries(X, init_score)
        n = len(queries)
        k = len(self._rows)
        of_each = lines or 1
        # of a single query
        if n:
            working = COPIES * max(of_each, self.n_calibration)
        else:
            working = 0
        self._model.budget.require(
            8 * k * (n * of_each + working),
            f"{n} x {of_each} {what}",
            "Ask for fewer at a time: for fewer rows of X, or fewer numbers for each. "
            "Or raise memory_limit.",
        )
        members = self._members(queries, groups)
        local = self._around.local(self._model, queries)
        results = np.empty((n, k) if lines is None else (n, lines, k))
        for distribution, rows in members:
            for rows_of_part in distribution._some(len(rows), of_each):
                some = rows[rows_of_part]
                results[some] = reduce(distribution, local[some], some)
        if self._model.names.outputs is None:
            return results[..., 0]
        return results

    def _members(
        self, queries: QueryBatch, labels: LabelsLike | None
    ) -> list[tuple[Distribution, IntArray]]:
        """Return the distribution of each group of calibration rows and its explained rows."""
        if self._groups is None:
            if labels is not None:
                raise InputError(
                    "groups was given, and calibrate was given none. Leave it out, "
                    "or calibrate with groups=."
                )
            return [(self, np.arange(len(queries)))]
        calibration_groups = self._groups
        pools = calibration_groups.pools_of_queries(queries, labels)
        return [
            (self._of_pool(calibration_groups, pool), np.flatnonzero(pools == pool))
            for pool in np.unique(pools).tolist()
        ]

    def _of_pool(self, calibration_groups: CalibrationGroups, pool: int) -> Distribution:
        """Return this distribution with the calibration rows of one pool of groups alone."""
        is_of_pool = calibration_groups.rows_of(pool)
        rows = tuple(output_rows[is_of_pool] for output_rows in self._rows)
        return replace(self, _rows=rows, _groups=None, _group=calibration_groups.pool_name(pool))

    def _atoms(
        self,
        local: Local,
        of: Callable[[Conformal, FloatArray, FloatArray], FloatArray] = Conformal.atoms,
    ) -> FloatArray:
        """Return the targets that the calibration rows make likely, in the user's units, (m, n, K).

        They are sorted on the scale of the fit.
        """
        parts = [
            self._around.targets(
                local.predictions[:, [k]], of(rows, local.features[:, k], local.sizes[:, k])
            )
            for k, rows in enumerate(self._rows)
        ]
        every = np.stack(parts, axis=-1)
        return self._shown(every.reshape(-1, every.shape[-1])).reshape(every.shape)

    def _some(self, n: int, lines: int = 1) -> list[slice]:
        """Return slices of the explained rows, as many at a time as memory allows.

        Memory also holds all results, of which each row has ``lines``.
        """
        k = len(self._rows)
        n_entries = (self._model.budget.available - 8 * k * n * lines) // (8 * COPIES)
        step = max(1, min(ATOM_ENTRIES, n_entries) // (k * max(self.n_calibration, lines)))
        return spans(n, step)

    def _require(self, share: float, value: object, parameter: str) -> None:
        n = self.n_calibration
        needed = least_rows(share)
        if n < needed:
            shortage = f"there are {n}. Calibrate with more rows"
            if self._group is not None:
                shortage = (
                    f"the group {shown(self._group)} has {n}. Calibrate with more rows of it, "
                    "join it with another group"
                )
            raise InputError(
                f"{parameter} is {shown(value)}, which takes at least {needed} calibration rows; "
                f"{shortage}, or ask for less."
            )

    def _shown(self, values: FloatArray) -> FloatArray:
        """Return numbers (m, K) of the scale of the fit in the user's units.

        Infinite numbers stay infinite.
        """
        scale = self._model.scale
        if scale.is_identity:
            return values
        finite = np.isfinite(values)
        # Functions may refuse what is infinite, so any target stands in for it.
        readable = scale.inverse(np.where(finite, values, self._model.targets[0]))
        return np.where(finite, readable, values if self._rising else -values)

    @property
    def _rising(self) -> bool:
        """Whether the user's units keep the order of the scale of the fit."""
        if self._model.scale.is_identity:
            return True
        t = self._model.targets[:, 0]
        readable = self._model.shown[:, 0]
        return bool(readable[t.argmax()] >= readable[t.argmin()])

    def _targets(self, y: ArrayLike, queries: QueryBatch) -> FloatArray:
        """Return the user's targets on the scale of the fit, (n, K)."""
        inputs.refuse_other_order(queries.rows, y, "y", "X")
        return fit_targets(self._model, y, len(queries), "y", "predicted")


def _as_probability(value: object, parameter: str) -> float:
    probability = inputs.as_number(value, parameter)
    if not 0.0 < probability < 1.0:
        raise InputError(
            f"{parameter} is {shown(value)}; expected a number between 0 and 1, such as 0.9."
        )
    return probability


def _as_probabilities(q: ArrayLike) -> FloatArray:
    probabilities = np.atleast_1d(inputs.as_numbers(q, "q", "numbers between 0 and 1"))
    if (
        probabilities.ndim != 1
        or not len(probabilities)
        or not ((probabilities > 0) & (probabilities < 1)).all()
    ):
        raise InputError(
            f"q is {shown(q)}; expected numbers between 0 and 1, such as (0.05, 0.5, 0.95)."
        )
    return probabilities


def _deviations(distribution: Distribution, local: Local, rows: object) -> FloatArray:
    """Return the standard deviation of the predictive distribution of each row, (n,) or (n, K)."""
    return np.asarray(distribution._atoms(local).std(axis=1))
