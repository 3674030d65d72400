"""The models of a forecaster with their explainers: one for all steps, or one for each step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from axil import inputs
from axil.aliases import FeatureTable, ForeignObject
from axil.arrays import AnyArray, FloatArray, IntArray
from axil.errors import UnsupportedQuestionError
from axil.explainer import Explainer
from axil.explanation import Explanation
from axil.forecasts.readers.contract import Models, TargetRows
from axil.forecasts.runs import RecordedRun, numbers
from axil.inputs.codes import keys
from axil.inputs.libraries import needed_pandas
from axil.methods.method import verified_model
from axil.output.predictions import WeightedSums

# Of the largest target: models of several steps have the same targets at the same dates.
SAME_TARGETS = 1e-6


def row_labels(series: AnyArray, dates: AnyArray) -> AnyArray:
    """Return the date of each training row, (N,), with its series if there are several."""
    if len(np.unique(series)) == 1:
        return dates
    labels = [f"{name} {date_text(date)}" for name, date in zip(series, dates)]
    return np.array(labels, dtype=object)


def date_text(date: ForeignObject) -> str:
    """Return a date as text, without the time of the day if that is midnight."""
    if isinstance(date, np.datetime64):
        text = str(date.astype("datetime64[s]"))
    else:
        text = str(date)
    return text.removesuffix("T00:00:00")


@dataclass(frozen=True, eq=False)
class ExplainedModels:
    """The explainers of a forecaster's models, and the training rows of all of them."""

    explainers: list[Explainer]
    rows: list[TargetRows]  #: of each explainer

    @classmethod
    def of(
        cls, models: Models, rows: list[TargetRows], settings: dict[str, ForeignObject]
    ) -> ExplainedModels:
        """Verify each model on its rows."""
        explainers = []
        for model, of_model in zip(models, rows):
            labels = row_labels(of_model.series, of_model.dates)
            explainer = Explainer(
                model,
                of_model.X,
                of_model.y,
                sample_weight=of_model.sample_weight,
                index=labels,
                **settings,
            )
            explainers.append(explainer)
        kinds = {explainer.kind for explainer in explainers}
        if "derivative" in kinds:
            raise UnsupportedQuestionError(
                "forecast",
                'its model is of kind "derivative"',
                "Ask axil.Explainer about the model itself.",
            )
        return cls(explainers, rows[: len(models)])

    @cached_property
    def all_rows(self) -> TargetRows:
        """Return the training rows of all models, each series and date once."""
        first = self.rows[0]
        if len(self.rows) == 1:
            return first
        series = np.concatenate([rows.series for rows in self.rows])
        dates = np.concatenate([rows.dates for rows in self.rows])
        y = np.concatenate([rows.y for rows in self.rows])
        row_keys = list(zip(keys(series), keys(dates)))
        position_by_key = {key: position for position, key in enumerate(row_keys)}
        positions = np.sort(np.fromiter(position_by_key.values(), dtype=np.intp))
        same_targets = y[[position_by_key[key] for key in row_keys]]
        if not np.allclose(y, same_targets, rtol=0.0, atol=SAME_TARGETS * np.abs(y).max()):
            raise UnsupportedQuestionError(
                "forecast",
                "its models of several steps have different targets at one date",
                "Ask axil.Explainer about each model.",
            )
        return TargetRows(first.X, y[positions], series[positions], dates[positions])

    @property
    def labels(self) -> AnyArray:
        """Return the label of each of all training rows, (N,)."""
        return row_labels(self.all_rows.series, self.all_rows.dates)

    def _positions(self, model: int) -> IntArray:
        """Return the positions of a model's training rows among all rows."""
        all_keys = zip(keys(self.all_rows.series), keys(self.all_rows.dates))
        position_by_key = {key: position for position, key in enumerate(all_keys)}
        rows = self.rows[model]
        row_keys = zip(keys(rows.series), keys(rows.dates))
        return np.array([position_by_key[key] for key in row_keys], dtype=np.intp)

    def steps_of(self, model: int, h: int) -> slice:
        """Return the steps that a model predicts."""
        if len(self.explainers) == 1:
            return slice(0, h)
        return slice(model, model + 1)

    def rows_of_steps(self, run: RecordedRun, model: int) -> FeatureTable:
        """Return the rows of all steps that a model predicts, step after step."""
        steps = run.steps[self.steps_of(model, len(run.steps))]
        stacked = steps[0]
        for rows in steps[1:]:
            stacked = inputs.stack_rows(stacked, rows)
        X = self.rows[model].X
        if not hasattr(X, "columns"):
            return stacked
        pd = needed_pandas("Rows of a forecaster")
        return pd.DataFrame(numbers(stacked), columns=X.columns).astype(X.dtypes.to_dict())

    def scores(self, run: RecordedRun) -> FloatArray:
        """Return the sums that the explanations of the steps add up to, (h, S)."""
        scores = []
        for model, explainer in enumerate(self.explainers):
            verified = verified_model(explainer)
            batch = verified.queries(self.rows_of_steps(run, model))
            scores.append(verified.predicted(batch).reshape(-1, run.values.shape[1]))
        return np.concatenate(scores)

    def explain(self, run: RecordedRun, coefficients: FloatArray, names: list[str]) -> Explanation:
        """Return the explanation of sums of scores of the steps.

        Parameters
        ----------
        run : RecordedRun
            The run of h steps of S series.
        coefficients : array of shape (n, h, S)
            Of each of n sums.
        names : list of str
            The names of the sums, (n,).
        """
        pd = needed_pandas("A forecast")
        explanations = []
        for model, explainer in enumerate(self.explainers):
            of_steps = coefficients[:, self.steps_of(model, coefficients.shape[1])]
            table = pd.DataFrame(of_steps.reshape(len(names), -1), index=names)
            explanations.append(explainer.aggregate(self.rows_of_steps(run, model), table))
        if len(explanations) == 1:
            return explanations[0]
        return self._sum_of(explanations)

    def _sum_of(self, explanations: list[Explanation]) -> Explanation:
        """Return the sum of the explanations by each model, among all training rows."""
        first = explanations[0]
        is_additive = first.kind == "additive"
        y = self.all_rows.y
        weights = np.zeros((len(first), len(y)))
        for model, explanation in enumerate(explanations):
            values = explanation.weights
            if is_additive:
                values = explanation.contributions
            weights[:, self._positions(model)] += values
        targets = y
        shown_targets = None
        if is_additive:
            targets = np.ones(len(y))
            shown_targets = y[:, None]
        sums = WeightedSums(
            weights=weights,
            intercepts=np.sum([explanation.intercepts for explanation in explanations], axis=0),
            targets=targets,
            index=self.labels,
            query_index=first.query_index,
            kind=first.kind,
            seen=shown_targets,
        )
        return Explanation(sums)
