"""Prediction intervals over Dask collections: errors of the training rows stay in their partitions, sums under weights travel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.dask.answers import Best
from axil.dask.cluster import added, literal, partitions, task
from axil.dask.local import (
    Known,
    Moments,
    counts_and_twins,
    errors_of,
    has_bags,
    joined_keys,
    keys_of,
    known_of,
    moments_of,
    out_of_bag_of,
    out_of_fold_of,
    reasons_of,
    some_keys,
    spread_of,
)
from axil.dask.removal import Deletions
from axil.dask.weighted import Batch
from axil.errors import InputError, UnsupportedQuestionError, counted
from axil.intervals.calibrate import MOST_ROWS, calibration_rows, conformal_rows, occurrences, trained_on
from axil.intervals.conformal import Conformal
from axil.intervals.distribution import Distribution
from axil.intervals.local import Local, Usual, joined
from axil.machine.memory import Budget
from axil.output import tables
from axil.replay.queries import Offsets, Queries
from axil.types import Array
from axil.weights.forest import is_forest


@dataclass(frozen=True)
class Errors:
    """Errors of the training rows in their partitions."""

    parts: list[Any]  #: (n, K) each, delayed and held
    source: str
    filling: Array  #: (K,) the size of one that is not known
    usual: Usual


class Calibrates(Deletions):
    """The question of how sure a prediction is."""

    def calibrate(
        self, X_cal: Any = None, y_cal: Any = None, out_of_fold: Any = None, init_score: Any = None
    ) -> Predictive:
        """Prediction intervals and distributions from rows held out: those of `axil.Explainer.calibrate`.

        Errors of the training rows, which make the local scale, stay in their partitions: out of fold where given, out of bag in
        forests, else those of `leave_one_out`. Calibration rows are always rows held out: out-of-fold or out-of-bag predictions
        alone are refused.

        Parameters
        ----------
        X_cal : table
            Rows in memory that the model was not fitted on, in no way; not for choosing its settings either.
        y_cal : array of shape (n,) or (n, K)
            Their targets.
        out_of_fold : Dask Series or Array, optional
            Predictions of the training rows by fits without them, in the partitions of X, for the local scale.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the calibration rows, as in `explain`.

        Examples
        --------
        >>> import dask.dataframe as dd
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil.dask import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> model = LGBMRegressor(n_estimators=20, verbose=-1).fit(X[:250], y[:250])
        >>> parts = dd.from_pandas(X[:250], npartitions=2), dd.from_pandas(y[:250], npartitions=2)
        >>> Explainer(model, *parts).calibrate(X[250:350], y[250:350])
        <axil.dask.Predictive: 100 calibration rows, held out; errors nearby: leave-one-out>
        """
        if self._adapter.classes is not None:
            raise UnsupportedQuestionError(
                "calibrate",
                "this model predicts classes, and an interval is one of numbers",
                "Calibrate its probabilities instead, such as with sklearn.calibration.",
            )
        if X_cal is None and y_cal is None:
            raise UnsupportedQuestionError(
                "calibrate without X_cal and y_cal",
                "calibration rows among the training rows would take their features and leverages out of the partitions",
                "Pass rows that the model was not fitted on, or use axil.Explainer.",
            )
        if X_cal is None or y_cal is None:
            missing = "X_cal" if X_cal is None else "y_cal"
            raise InputError(f"{missing} is missing: calibration rows take both X_cal and y_cal.")
        rows, offsets = self._queries(X_cal, init_score)
        truth = inputs.as_table(y_cal, rows.shape[0], self._adapter.n_outputs, "y_cal", "calibration")
        folds = None if out_of_fold is None else partitions(out_of_fold, "out_of_fold", self._layout)
        some = calibration_rows(rows.shape[0])
        some = some[~self._trained_on(inputs.take_rows(rows, some), truth[some])]
        errors = self._training_errors(folds)
        local = self._around(errors, inputs.take_rows(rows, some), Offsets(offsets.values[some], offsets.replace_base))
        around, reasons = partial(self._around, errors), partial(self._reasons, errors)
        model = Answers(self._as_queries, around, self._predictions, reasons, self.outputs, self._limits.budget)
        return Predictive(model, errors.source, conformal_rows(local, truth[some] - local.predictions))

    def _trained_on(self, X: Any, truth: Array) -> NDArray[np.bool_]:
        """Which of these calibration rows are training rows; raises where most are. Keys of rows stay in their partitions."""
        single = inputs.is_single(X) or inputs.is_single(getattr(self._X, "_meta", self._X))
        tasks = [task(keys_of, *pair, single) for pair in zip(self._held.partitions, self._parts_of_X)]
        parts = self._cluster.hold(tasks)
        share = min(1.0, MOST_ROWS / max(self._n_rows, 1))
        own = literal(inputs.row_keys(X, truth, single))
        asked = task(joined_keys, own, [task(some_keys, part, share) for part in parts])
        counts = added([task(occurrences, part, asked) for part in parts])
        return trained_on(*self._cluster.collect([task(counts_and_twins, counts, len(truth))])[0])

    def _training_errors(self, folds: list[Any] | None) -> Errors:
        held, forest = self._held, all(is_forest(entry.trees.structure) for entry in self._held.entries)
        if folds is not None:
            parts, source = zip(range(len(folds)), held.partitions, folds), "out-of-fold"
            tasks = [task(out_of_fold_of, *three) for three in parts]
        elif forest and any(self._cluster.collect([task(has_bags, part) for part in held.partitions])):
            source, fits = "out-of-bag", literal(self._fits())
            tasks = [task(out_of_bag_of, part, fits) for part in held.partitions]
        else:
            source = "leave-one-out"
            tasks = [task(errors_of, *pair) for pair in zip(held.partitions, self._left_out())]
        kept = self._cluster.hold(tasks)
        found: Known = self._cluster.total([task(known_of, *pair) for pair in zip(held.partitions, kept)])
        if source == "leave-one-out" and found.complete <= found.rows / 2:
            raise UnsupportedQuestionError(
                "calibrate",
                "most training rows are alone in one of their leaves, so that no fit without them says how large errors are",
                "Pass out_of_fold=, predictions of the training rows by your own cross-validation, or use axil.Explainer.",
            )
        filling = np.sqrt(found.errors / np.maximum(found.known, 1))
        means = found.targets / found.rows
        sums = self._cluster.total([task(spread_of, *pair, filling, means) for pair in zip(held.partitions, kept)])
        averages = sums / found.rows
        spread = np.sqrt(averages[2])
        spread = np.where(spread > 0, spread, 1.0)
        return Errors(
            kept, source, filling, Usual(means, spread, found.lowest - means, found.highest - means, averages)
        )

    def _around(self, errors: Errors, X: Any, offsets: Offsets) -> Local:
        """All that is known around the rows of X, batch by batch."""
        parts = []
        for batch in self._batches(X, offsets):
            made = self._predicted(self._fits(), batch)
            batch.check(made)
            parts.append(errors.usual.local(self._moments(errors, batch).sums, self._served(), made))
        return joined(parts)

    def _as_queries(self, X: Any, init_score: Any) -> Queries:
        rows, offsets = self._queries(X, init_score)
        return Queries(self._adapter, rows, offsets, inputs.row_labels(rows), self._limits.n_threads)

    def _predictions(self, queries: Queries) -> Array:
        """(n, K): the predictions of the fit, which must be the model's."""
        parts = []
        for batch in self._batches(queries.rows, queries.offsets):
            parts.append(self._predicted(self._fits(), batch))
            batch.check(parts[-1])
        return np.concatenate(parts)

    def _moments(self, errors: Errors, batch: Batch) -> Moments:
        shared, more = literal(batch.asked), (errors.filling, errors.usual.means)
        pairs = zip(self._held.partitions, errors.parts)
        found: Moments = self._cluster.total([task(moments_of, *pair, *more, shared) for pair in pairs])
        return found

    def _served(self) -> list[slice]:
        """The outputs that each entry of the fitted trees serves."""
        n = len(self._held.entries)
        return [slice(None)] if n == 1 else [slice(k, k + 1) for k in range(n)]

    def _reasons(self, errors: Errors, X: Any, offsets: Offsets, k: int) -> Any:
        """The table of `Predictive.why`."""
        parts = []
        for batch in self._batches(X, offsets):
            made = self._predicted(self._fits(), batch)
            batch.check(made)
            total = errors.usual.local(self._moments(errors, batch).sums, self._served(), made).nearby[:, :, None]
            shared, pairs = literal(batch.asked), zip(self._held.partitions, errors.parts)
            best: Best = self._cluster.total([task(reasons_of, *pair, errors.filling, shared, k) for pair in pairs])
            share = np.divide(best.size, total, out=np.zeros_like(best.size), where=total > 0)
            lines = self._lines(batch.labels, "rank", np.arange(1, best.size.shape[2] + 1))
            lines |= {name: column.ravel() for name, column in best.columns.items()}
            parts.append(lines | {"share": share.ravel()})
        return tables.note(tables.concatenate(parts, "pandas"), tables.NOTE)


@dataclass(frozen=True)
class Answers:
    """Answers of an explainer about rows to predict, given the errors of its training rows."""

    queries: Callable[[Any, Any], Queries]  #: from X and init_score
    around: Callable[[Any, Offsets], Local]  #: all that is known around rows
    predictions: Callable[[Queries], Array]  #: (n, K)
    reasons: Callable[[Any, Offsets, int], Any]  #: the table of `Predictive.why`
    outputs: NDArray[Any] | None
    budget: Budget


@dataclass(frozen=True, eq=False, repr=False)
class Predictive(Distribution):
    """The distribution of the target of each row of X, over training rows in Dask collections; made by `Explainer.calibrate`.

    It has the answers of `axil.Predictive`, with the same numbers and the same promise; `to_html` is refused.
    """

    _model: Answers
    training_errors: str  #: source of the errors of the training rows: "out-of-fold", "out-of-bag" or "leave-one-out"
    _rows: tuple[Conformal, ...]
    source: str = "held out"  #: where the calibration errors are from

    def __repr__(self) -> str:
        rows = f"{counted(self.n_calibration, 'calibration row')}, {self.source}"
        return f"<axil.dask.Predictive: {rows}; errors nearby: {self.training_errors}>"

    def why(self, X: Any, k: int = 10, init_score: Any = None) -> Any:
        """The training rows whose errors make each interval wide: the table of `axil.Predictive.why`.

        Parameters
        ----------
        X : table
            The n rows to predict.
        k : int, default 10
            How many training rows per prediction.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`.
        """
        k, queries = inputs.as_count(k, "k"), self._queries(X, init_score)
        return self._model.reasons(queries.rows, queries.offsets, k)

    def to_html(self, *args: Any, **options: Any) -> NoReturn:
        """Refused: the page shows training rows with their features, which stay in their partitions."""
        raise UnsupportedQuestionError(
            "to_html of intervals",
            "the page shows training rows with their features, which stay in their partitions",
            "Use interval(X), why(X) and explainer.similar(X), or axil.Explainer.",
        )

    # -- the model ------------------------------------------------------------------------------------------------------

    def _queries(self, X: Any, init_score: Any) -> Queries:
        return self._model.queries(X, init_score)

    def _local(self, queries: Queries) -> Local:
        return self._model.around(queries.rows, queries.offsets)

    def _predicted(self, queries: Queries) -> Array:
        return self._model.predictions(queries)

    def _targets(self, y: Any, n: int) -> Array:
        return inputs.as_table(y, n, len(self._rows), "y", "predicted")

    def _shown(self, values: Array) -> Array:
        return values

    @property
    def _budget(self) -> Budget:
        return self._model.budget

    @property
    def _rising(self) -> bool:
        return True

    @property
    def _outputs(self) -> NDArray[Any] | None:
        return self._model.outputs
