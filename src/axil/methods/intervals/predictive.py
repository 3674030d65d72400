"""Predictive: the distribution of a target around each prediction, calibrated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from axil import inputs, templates
from axil.aliases import ArrayLike, DataFrame, LabelsLike, PathLike, TableLike
from axil.errors import UnsupportedQuestionError
from axil.methods.intervals import why
from axil.methods.intervals.calibration_groups import rows_in_groups
from axil.methods.intervals.deviance_scale import NO_ERRORS_NEARBY, DevianceScale
from axil.methods.intervals.distribution import Distribution
from axil.methods.intervals.local import Surroundings
from axil.methods.method import ExplainedRows
from axil.output import page, tables

OF_CLASSES = ("this model predicts numbers", "Ask interval, quantiles or cdf.")
ON_PAGE = 10  # rows per prediction that make its interval wide


class Predictive(Distribution, page.Shown):
    """The predictive distribution around the model's predictions.

    `Explainer.calibrate` makes it.

    Every calibration row puts its own error, moved to the scale of errors around the query, on the
    prediction: the predictive distribution is these `n_calibration` numbers, each as likely as any
    other. The local scale comes from the training rows in the leaves of the query, or by its
    weights from those that the prediction rests on: their errors and targets, how many these are,
    and where the prediction lies among the targets. How it follows them is fitted to the
    calibration rows and the query together (full conformal prediction), so that all are treated
    alike.

    **Promised**: the interval of confidence level c holds the target with probability at least
    c, whatever the model. Without ties it does so with probability at most c + 1 / (n + 1), or
    c + 2 / (n + 1) with ``symmetric=False``. The calibration rows must be rows that the model
    was not fitted on, and the rows to predict exchangeable with them. Few rows make the
    interval wide, never short; where they are too few there is an error. **Not promised**:
    coverage at every single row, or in every group, unless `calibrate` was given groups; see
    `axil.plots.coverage`. From out-of-fold or out-of-bag predictions (``source``) the promise
    is not exact, as those are of other fits.

    Boosted trees with a Poisson, gamma or Tweedie loss take the local scale from the loss: the
    variance that it gives a target of the predicted mean. Their intervals go from 0 up, and `why`
    and `to_html` are refused.

    Of a model fitted to transformed targets all results are in the targets' own units, by the
    inverse, which keeps coverage.
    """

    @property
    def training_errors(self) -> str:
        """The source of the training rows' errors in the local scale.

        "out-of-fold", "out-of-bag", "folds", "leave-one-out", or where these are not to be had
        "leverage" or "fit". "loss" says that there is no such scale: the variance of a Poisson,
        gamma or Tweedie loss is in its place.
        """
        return self._around.source

    def __repr__(self) -> str:
        (_, rows), (_, source), (name, errors) = self._facts()
        return f"<axil.Predictive: {rows}, {source}; {name}: {errors}>"

    def _repr_html_(self) -> str:
        return templates.render_facts("axil.Predictive", self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        """Return pairs of a name and a text: the calibration rows, and where errors come from."""
        rows = rows_in_groups(self.n_calibration, self._groups)
        return [
            ("calibrated with", rows),
            ("source", self.source),
            ("errors nearby", self.training_errors),
        ]

    def why(self, X: TableLike, k: int = 10, *, init_score: ArrayLike | None = None) -> Any:
        """Return the training rows whose errors make each interval wide.

        They are the k largest terms of ``sum_j |k_j r_j|``. The table has the columns query, rank,
        row, weight, error, share, and output if there are several. ``error`` is r_j, the target of
        the row less an out-of-sample prediction (`training_errors`), on the scale of the fit.
        ``share`` is the row's share of the sum. No (n, n_train) array is in memory.

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
        surroundings = self._surroundings("why")
        return why.table(self._model, surroundings, self._model.queries(X, init_score), k)

    def _surroundings(self, method: str) -> Surroundings:
        """Return the errors of the training rows, or refuse the method if there are none."""
        if isinstance(self._around, DevianceScale):
            raise UnsupportedQuestionError(method, *NO_ERRORS_NEARBY)
        return self._around

    def predict_set(self, X: TableLike, confidence_level: float = 0.9, **options: Any) -> DataFrame:
        """Refuse: sets of classes are for classifiers; see `axil.ClassPredictive.predict_set`."""
        raise UnsupportedQuestionError("predict_set", *OF_CLASSES)

    def probability(self, X: TableLike, **options: Any) -> DataFrame:
        """Refuse: probabilities are of classes; see `axil.ClassPredictive.probability`."""
        raise UnsupportedQuestionError("probability", *OF_CLASSES)

    def to_html(
        self,
        X: TableLike,
        path: PathLike | None = None,
        *,
        confidence_level: float = 0.9,
        groups: LabelsLike | None = None,
        symmetric: bool = True,
        init_score: ArrayLike | None = None,
        **options: Any,
    ) -> str | None:
        """Return the page of `Explainer.to_html` with intervals, and with the rows of `why`.

        No (n, n_train) array is in memory.

        Parameters
        ----------
        X : table
            The n rows to explain.
        path : str or path, optional
            The file to write; without one the text of the page is returned.
        confidence_level : float, default 0.9
            The probability that an interval is to hold its target with, between 0 and 1.
        groups : sequence of length n_train, or str, optional
            Labels of the training rows to sum weights by, or the name of a column of X_train.
        symmetric : bool, default True
            As in `interval`.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`.
        **options : keyword arguments
            ``k``, ``columns``, ``hide``, ``min_group_size``, ``map``, ``y``, ``title``, ``unit``,
            ``target`` and ``stability``, as in `Explainer.to_html`.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.ensemble import RandomForestRegressor
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> forest = RandomForestRegressor(50, min_samples_leaf=3, random_state=0)
        >>> forest = forest.fit(X[:300], y[:300])
        >>> predictive = Explainer(forest, X[:300], y[:300]).calibrate()
        >>> page = predictive.to_html(X[300:], confidence_level=0.8)
        >>> page.startswith("<!DOCTYPE html>")
        True
        """
        place = page.as_target(path)
        verified = self._model
        verified.capabilities.require("to_html of intervals")
        surroundings = self._surroundings("to_html of intervals")
        queries = verified.queries(X, init_score)
        explained = ExplainedRows(verified, queries)
        chosen = explained.page_options(groups, None, options)
        ends = self._interval(queries, confidence_level, symmetric)
        columns = tables.joined(
            [best.columns for _, best in why.reasons(verified, surroundings, queries, ON_PAGE)]
        )
        intervals = page.Intervals(
            confidence_level=float(confidence_level),
            n_calibration=self.n_calibration,
            source=self.source,
            training_errors=self.training_errors,
            **{name: ends[name] for name in ("lower", "upper", "uncertainty_rank")},
            rows=columns["position"],
            weights=columns["effect"],
            errors=columns["error"],
            shares=columns["share"],
        )
        return page.write(
            page.summarise(explained.parts(), replace(chosen, intervals=intervals)), place
        )


def is_of(found: Any, model: Any) -> bool:
    """Whether this is the `Predictive` of a model."""
    return isinstance(found, Predictive) and found._model is model
