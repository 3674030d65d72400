"""Vintages: why a forecast of one date moved from one fit of a forecaster to the next.

F_old(p) is what the old forecaster makes of the predictions p of its steps, F_new(p) what the new
one makes of them. With M(R) the predictions of a model for the features R of the steps,

    before            F_old(p0)    p0 = M_old(R_old)
    rows revised      F_old(p1)    p1 = M_1(R_old)    the old splits, rows of both with new values
    rows removed      F_old(p2)    p2 = M_2(R_old)    and without the rows that are gone
    rows added        F_old(p3)    p3 = M_3(R_old)    and with the rows that have come
    features moved    F_old(p4)    p4 = M_3(R_new)    at the dates that both forecast
    base moved        F_new(p5)    p5 = M_3(R_new)    what the new forecaster adds
    new splits        F_new(p6)    p6 = M_new(R_new)

and each part is the difference of two lines. Steps that have become observations are predictions in
the old forecast and part of the base of the new one.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from axil import inputs, templates
from axil.aliases import DataFrame, FeatureTable, ForeignModel
from axil.arrays import AnyArray, BoolArray, FloatArray, IntArray
from axil.errors import InputError, UnsupportedQuestionError, counted, shown
from axil.explainer import Explainer
from axil.forecasts.models import ExplainedModels, row_labels
from axil.forecasts.readers.contract import TargetRows
from axil.forecasts.runs import RecordedRun, numbers
from axil.inputs.codes import keys
from axil.inputs.libraries import needed_pandas
from axil.methods.refit import again, with_features

ABSENT = -1  # the position of a row that a vintage does not have


@dataclass(frozen=True, eq=False)
class Vintage:
    """A fit of a forecaster: its models and its run."""

    models: ExplainedModels
    run: RecordedRun
    is_log: bool


@dataclass(frozen=True, eq=False)
class _MatchedRows:
    """The training rows of one model in both vintages."""

    old: TargetRows
    new: TargetRows
    position_in_new: IntArray  #: (N_old,) or ABSENT
    is_revised: BoolArray  #: (N_old,) whether the new vintage has another target or features

    @classmethod
    def of(cls, old: TargetRows, new: TargetRows) -> _MatchedRows:
        """Match rows by series and date."""
        position_in_new = _positions_in_new(old, new)
        return cls(old, new, position_in_new, _are_revised(old, new, position_in_new))

    @property
    def is_removed(self) -> BoolArray:
        """Return which old rows the new vintage does not have, (N_old,)."""
        return np.asarray(self.position_in_new == ABSENT)

    @property
    def added(self) -> IntArray:
        """Return the positions of new rows that the old vintage does not have."""
        return np.setdiff1d(np.arange(len(self.new.y)), self.position_in_new)

    def counts(self) -> dict[str, int]:
        """Return how many rows are kept, revised, added and removed."""
        return {
            "kept": int(np.count_nonzero(~self.is_removed & ~self.is_revised)),
            "revised": int(np.count_nonzero(self.is_revised)),
            "added": len(self.added),
            "removed": int(np.count_nonzero(self.is_removed)),
        }

    def refitted(self, explainer: Explainer) -> dict[str, ForeignModel]:
        """Return the old splits refitted to more and more of the new rows, by part."""
        revised = explainer
        if self.is_revised.any():
            revised = with_features(explainer, *self._revised_rows())
        without_removed = revised
        if self.is_removed.any():
            without_removed = again(revised, drop=self.is_removed)
        with_added = without_removed
        if len(self.added):
            added_rows = (inputs.take_rows(self.new.X, self.added), self.new.y[self.added])
            labels = row_labels(self.new.series, self.new.dates)[self.added]
            with_added = again(without_removed, add=added_rows, added_labels=labels)
        return {
            "rows revised": revised.model,
            "rows removed": without_removed.model,
            "rows added": with_added.model,
        }

    def _revised_rows(self) -> tuple[FeatureTable, FloatArray]:
        """Return features and targets of the old rows, with the values of the new vintage."""
        n_old = len(self.old.y)
        positions = np.where(self.is_revised, n_old + self.position_in_new, np.arange(n_old))
        X = inputs.take_rows(inputs.stack_rows(self.old.X, self.new.X), positions)
        return X, np.concatenate([self.old.y, self.new.y])[positions]


@dataclass(frozen=True, eq=False, repr=False)
class ForecastComparison:
    """Changes of n forecasts from one vintage to the next; `axil.compare` makes it."""

    series: AnyArray  #: (n,)
    dates: AnyArray  #: (n,)
    old_steps: IntArray  #: (n,) how many steps ahead the old forecast is, from 1
    new_steps: IntArray  #: (n,)
    before: FloatArray  #: (n,) forecasts of the old vintage
    after: FloatArray  #: (n,) forecasts of the new vintage
    parts: dict[str, FloatArray]  #: (n,) each: the parts of ``after - before``
    n_rows: dict[str, int]  #: how many training rows are kept, revised, added and removed

    def __repr__(self) -> str:
        """Return how many forecasts are compared, and how the training rows differ."""
        texts = [text for _, text in self._facts()]
        return f"<axil.forecasts.ForecastComparison: {'; '.join(texts)}>"

    def _repr_html_(self) -> str:
        return templates.render_facts("axil.forecasts.ForecastComparison", self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        """Return pairs of a name and a text: what is compared, and how the training rows differ."""
        rows = ", ".join(f"{n_rows} {status}" for status, n_rows in self.n_rows.items())
        return [
            ("compared", f"{counted(len(self.before), 'forecast')} of the same dates"),
            ("training rows", f"training rows: {rows}"),
        ]

    def table(self) -> DataFrame:
        """Return the parts of each change, on the scale of the series.

        The columns are series, date, old step, new step, before, after, change, and the parts that
        sum to it:

        - rows revised: dates of both vintages have other targets or features, with a scaler those
          of all dates, which the base then counts in the other direction;
        - rows removed: dates are no longer among the training rows;
        - rows added: dates are new among the training rows;
        - features moved: the features of the steps are those of the new vintage, later observations
          in the place of forecasts among them;
        - base moved: the values, means and scales that the forecaster adds to its predictions;
        - new splits: what fitting the model again did beyond the data.
        """
        columns = {
            "series": self.series,
            "date": self.dates,
            "old step": self.old_steps,
            "new step": self.new_steps,
            "before": self.before,
            "after": self.after,
            "change": self.after - self.before,
        }
        return needed_pandas("A forecast").DataFrame(columns | self.parts)


def compare_vintages(old: Vintage, new: Vintage) -> ForecastComparison:
    """Return why the forecasts that both vintages make moved."""
    _check_comparable(old, new)
    old_cells, new_cells = _common_forecasts(old.run, new.run)
    matched_rows = [_MatchedRows.of(*rows) for rows in zip(old.models.rows, new.models.rows)]
    refitted = [
        rows.refitted(explainer) for rows, explainer in zip(matched_rows, old.models.explainers)
    ]
    models_by_part = {name: [models[name] for models in refitted] for name in refitted[0]}
    parts = _parts(old.run, new.run, (old_cells, new_cells), models_by_part)
    old_steps, _ = old_cells
    new_steps, _ = new_cells
    return ForecastComparison(
        series=new.run.series[new_cells],
        dates=new.run.dates[new_cells],
        old_steps=old_steps + 1,
        new_steps=new_steps + 1,
        before=old.run.values_of(old.run.predictions)[old_cells],
        after=new.run.values_of(new.run.predictions)[new_cells],
        parts=parts,
        n_rows=matched_rows[0].counts(),
    )


def _parts(
    old_run: RecordedRun,
    new_run: RecordedRun,
    cells: tuple[tuple[IntArray, IntArray], tuple[IntArray, IntArray]],
    models_by_part: dict[str, list[ForeignModel]],
) -> dict[str, FloatArray]:
    """Return the differences of the forecasts (n,) from stage to stage.

    Parameters
    ----------
    cells : pair of pairs of integer arrays
        Steps and series of the common forecasts, in the old run and in the new one.
    models_by_part : dict of lists of fitted models
        The old splits refitted to more and more of the new rows.
    """
    old_cells, new_cells = cells
    predictions = old_run.predictions
    values = old_run.values_of(predictions)[old_cells]
    parts = {}
    for name, models in models_by_part.items():
        predictions = old_run.predicted_by(models)
        values_after_part = old_run.values_of(predictions)[old_cells]
        parts[name] = values_after_part - values
        values = values_after_part
    new_predictions = new_run.predicted_by(models)
    predictions[old_cells] = new_predictions[new_cells]
    stages = {
        "features moved": old_run.values_of(predictions)[old_cells],
        "base moved": new_run.values_of(new_predictions)[new_cells],
        "new splits": new_run.values_of(new_run.predictions)[new_cells],
    }
    for name, values_after_part in stages.items():
        parts[name] = values_after_part - values
        values = values_after_part
    return parts


def _check_comparable(old: Vintage, new: Vintage) -> None:
    """Raise unless the old splits can be refitted to the new rows."""
    if any(rows.sample_weight is not None for rows in (*old.models.rows, *new.models.rows)):
        raise UnsupportedQuestionError(
            "compare",
            "rows of the forecasters have sample weights",
            "Compare the explainers of the models: axil.compare(old.explainer, new.explainer, X).",
        )
    old_features = _feature_names(old.models.rows[0])
    new_features = _feature_names(new.models.rows[0])
    if old_features != new_features:
        raise InputError(
            f"The old forecaster has the features {shown(old_features)} and the new one "
            f"{shown(new_features)}; expected the same lags and further features."
        )
    if old.is_log != new.is_log:
        raise InputError(
            "One of the forecasters takes logarithms and the other does not; expected two of the "
            "same transforms."
        )
    if len(old.models.rows) != len(new.models.rows):
        raise InputError(
            f"The old forecasts are by {counted(len(old.models.rows), 'model')} and the new ones "
            f"by {len(new.models.rows)}; expected forecasters of one model, or direct ones with "
            "the same number of steps h."
        )


def _feature_names(rows: TargetRows) -> list[object]:
    """Return the names of the features of training rows, or their numbers."""
    return list(getattr(rows.X, "columns", range(rows.X.shape[1])))


def _common_forecasts(
    old_run: RecordedRun, new_run: RecordedRun
) -> tuple[tuple[IntArray, IntArray], tuple[IntArray, IntArray]]:
    """Return steps and series, in either run, of the forecasts that both make."""
    old_cells = _cell_by_key(old_run.series, old_run.dates)
    new_cells = _cell_by_key(new_run.series, new_run.dates)
    pairs = [(old_cells[key], cell) for key, cell in new_cells.items() if key in old_cells]
    if not pairs:
        raise InputError(
            f"The old forecasts are of {_range_text(old_run)}, the new ones of "
            f"{_range_text(new_run)}; expected a date that both forecast. Forecast more steps with "
            "h in the old vintage."
        )
    indices = np.array(sorted(pairs, key=lambda pair: pair[1][::-1]))
    old_steps, old_series = indices[:, 0].T
    new_steps, new_series = indices[:, 1].T
    return (old_steps, old_series), (new_steps, new_series)


def _cell_by_key(series: AnyArray, dates: AnyArray) -> dict[tuple[Hashable, ...], tuple[int, ...]]:
    """Return the position of each pair of a series and a date in two arrays of them."""
    return dict(zip(zip(keys(series.ravel()), keys(dates.ravel())), np.ndindex(series.shape)))


def _range_text(run: RecordedRun) -> str:
    """Return the first and the last date of a run."""
    return f"{run.dates[0, 0]!s:.10} to {run.dates[-1, 0]!s:.10}"


def _positions_in_new(old_rows: TargetRows, new_rows: TargetRows) -> IntArray:
    """Return the position of each old training row among the new ones, (N_old,)."""
    new_cells = _cell_by_key(new_rows.series, new_rows.dates)
    old_keys = _cell_by_key(old_rows.series, old_rows.dates)
    return np.array([new_cells.get(key, (ABSENT,))[0] for key in old_keys], dtype=np.intp)


def _are_revised(
    old_rows: TargetRows, new_rows: TargetRows, position_in_new: IntArray
) -> BoolArray:
    """Return which old rows have other targets or features in the new vintage, (N_old,)."""
    is_common = position_in_new != ABSENT
    new_features = numbers(new_rows.X)[position_in_new]
    old_features = numbers(old_rows.X)
    is_same = (old_features == new_features) | (np.isnan(old_features) & np.isnan(new_features))
    is_same_row = is_same.all(axis=1) & (old_rows.y == new_rows.y[position_in_new])
    return np.asarray(is_common & ~is_same_row)
