"""Ratio studies: how level and how even predicted values are, as assessors measure them.

A ratio is a predicted value A over a sale price S. The statistics follow the Standard on Ratio
Studies of the International Association of Assessing Officers (IAAO), with m the median ratio:

    COD = 100 mean |r - m| / m                  PRD = mean(r) / (sum A / sum S)
    PRB = the slope of (r - m) / m on log2 of the value V = (S + A / m) / 2
    VEI = 100 (median ratio of the dearest sales - that of the cheapest) / m, by groups of V

PRD, PRB and VEI tell whether dear homes are valued as cheap ones are. All five are functions of the
predictions, so their derivatives by the predictions say which training rows move them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.sparse import csr_array

from axil import inputs
from axil.aliases import ArrayLike, DataFrame, TableLike
from axil.arrays import AnyArray, FloatArray, IntArray
from axil.attribution import Kind
from axil.errors import InputError, UnsupportedQuestionError, shown
from axil.inputs.libraries import frame_library
from axil.methods.method import ExplainedRows, Method, verified_model
from axil.output import tables
from axil.replay.queries import Combination
from axil.replay.verified_model import VerifiedModel

LEAST_FOR_VEI = 20  # sales; the statistic is not defined for fewer
GROUPS_OF_VALUE = ((51, 2), (501, 4))  # up to how many sales there are so many groups
MOST_GROUPS = 10
STEP = 1e-6  # of a number, for the slope of a scale that is no logarithm
NOTE = (
    "ratios of predictions to prices; low and high are bootstrap intervals; the standard is that "
    "of the IAAO for single-family homes"
)


# -- the statistics --------------------------------------------------------------------------------


def _median_weights(numbers: FloatArray) -> FloatArray:
    """Return the derivative of the median by each number, (n,)."""
    order = np.argsort(numbers, kind="stable")
    weights = np.zeros(len(numbers))
    middle = [order[(len(numbers) - 1) // 2], order[len(numbers) // 2]]
    for place in middle:
        weights[place] += 0.5
    return weights


def _median(values: FloatArray, prices: FloatArray) -> float:
    return float(np.median(values / prices))


def _median_slopes(values: FloatArray, prices: FloatArray) -> FloatArray:
    return _median_weights(values / prices) / prices


def _cod(values: FloatArray, prices: FloatArray) -> float:
    ratios = values / prices
    median = np.median(ratios)
    return float(100 * np.mean(np.abs(ratios - median)) / median)


def _cod_slopes(values: FloatArray, prices: FloatArray) -> FloatArray:
    ratios = values / prices
    median = np.median(ratios)
    signs = np.sign(ratios - median)
    distance = np.mean(np.abs(ratios - median))
    by_median = -signs.mean() / median - distance / median**2
    by_ratio = signs / len(ratios) / median + by_median * _median_weights(ratios)
    return np.asarray(100 * by_ratio / prices)


def _prd(values: FloatArray, prices: FloatArray) -> float:
    return float(np.mean(values / prices) * prices.sum() / values.sum())


def _prd_slopes(values: FloatArray, prices: FloatArray) -> FloatArray:
    level = prices.sum() / values.sum()
    mean = np.mean(values / prices)
    return np.asarray(level / (len(values) * prices) - mean * level / values.sum())


def _market_values(values: FloatArray, prices: FloatArray) -> FloatArray:
    """Return the mean of each price and of the prediction at the median level, (n,)."""
    return np.asarray((prices + values / np.median(values / prices)) / 2)


def _prb(values: FloatArray, prices: FloatArray) -> float:
    ratios = values / prices
    median = np.median(ratios)
    sizes = np.log2(_market_values(values, prices))
    centred = sizes - sizes.mean()
    return float(centred @ ((ratios - median) / median) / (centred @ centred))


def _prb_slopes(values: FloatArray, prices: FloatArray) -> FloatArray:
    ratios = values / prices
    median = np.median(ratios)
    market = _market_values(values, prices)
    sizes = np.log2(market)
    centred = sizes - sizes.mean()
    square = centred @ centred
    errors = (ratios - median) / median
    slope = centred @ errors / square
    by_error = centred / square
    by_size = (errors - errors.mean() - 2 * slope * centred) / square
    size_by_market = 1 / (market * np.log(2))
    by_median = -(by_error * ratios).sum() / median**2
    by_median -= (by_size * size_by_market * values).sum() / (2 * median**2)
    directly = by_error / (median * prices) + by_size * size_by_market / (2 * median)
    return np.asarray(directly + by_median * _median_weights(ratios) / prices)


def _extremes(values: FloatArray, prices: FloatArray) -> tuple[IntArray, IntArray]:
    """Return the cheapest and the dearest of the groups of sales by market value."""
    n = len(values)
    n_groups = next((groups for most, groups in GROUPS_OF_VALUE if n < most), MOST_GROUPS)
    groups = np.array_split(np.argsort(_market_values(values, prices), kind="stable"), n_groups)
    return groups[0], groups[-1]


def _vei(values: FloatArray, prices: FloatArray) -> float:
    if len(values) < LEAST_FOR_VEI:
        return float("nan")
    ratios = values / prices
    cheapest, dearest = _extremes(values, prices)
    gap = np.median(ratios[dearest]) - np.median(ratios[cheapest])
    return float(100 * gap / np.median(ratios))


def _vei_slopes(values: FloatArray, prices: FloatArray) -> FloatArray:
    ratios = values / prices
    median = np.median(ratios)
    cheapest, dearest = _extremes(values, prices)
    by_ratio = -_vei(values, prices) / median * _median_weights(ratios)
    by_ratio[dearest] += 100 * _median_weights(ratios[dearest]) / median
    by_ratio[cheapest] -= 100 * _median_weights(ratios[cheapest]) / median
    return np.asarray(by_ratio / prices)


@dataclass(frozen=True)
class RatioStatistic:
    """One statistic of a ratio study, and the range that the standard asks for."""

    compute: Callable[[FloatArray, FloatArray], float]
    slopes: Callable[[FloatArray, FloatArray], FloatArray]  #: derivatives by the predictions
    low: float
    high: float


STATISTICS = {
    "median": RatioStatistic(_median, _median_slopes, 0.9, 1.1),
    "COD": RatioStatistic(_cod, _cod_slopes, 5.0, 15.0),
    "PRD": RatioStatistic(_prd, _prd_slopes, 0.98, 1.03),
    "PRB": RatioStatistic(_prb, _prb_slopes, -0.05, 0.05),
    "VEI": RatioStatistic(_vei, _vei_slopes, -10.0, 10.0),
}


# -- the study -------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class RatioStudy:
    """The statistics of the ratios of predictions to prices.

    `axil.ratio_study` makes it.
    """

    predictions: FloatArray  #: (n,)
    prices: FloatArray  #: (n,)
    table: DataFrame  #: a line for each stratum and statistic
    codes: IntArray  #: (n,) the stratum of each sale
    strata: AnyArray  #: (strata,)

    def __repr__(self) -> str:
        """Return the table as text."""
        return f"<axil.RatioStudy: {len(self.prices)} sales>\n{self.table}"

    def influence(
        self,
        explainer: Method,
        X: TableLike,
        statistic: Literal["median", "COD", "PRD", "PRB", "VEI"] = "COD",
        *,
        stratum: Hashable = None,
    ) -> DataFrame:
        """Return which training rows move a statistic, those that move it most first.

        The derivative of the statistic by each prediction is taken at the predictions. With the
        weights of the training rows it makes the derivative by every training target. The tree
        structure is fixed.

        Parameters
        ----------
        explainer : axil.Explainer
            The explainer of the model that made the predictions, of kind "exact".
        X : table
            The rows of the predictions, in their order.
        statistic : {"median", "COD", "PRD", "PRB", "VEI"}, default "COD"
            The statistic.
        stratum : label, optional
            The stratum whose statistic it is; by default that of all sales.

        Returns
        -------
        table
            A line for each training row: its label, its target, the ``derivative`` of the statistic
            by the target on the scale of the fit, and ``per percent``: the change of the statistic,
            to first order, if the target were one percent higher.
        """
        model = verified_model(explainer)
        inputs.as_choice(statistic, tuple(STATISTICS), "statistic")
        if model.kind is not Kind.EXACT or model.shape[1] > 1:
            raise UnsupportedQuestionError(
                "RatioStudy.influence",
                "it needs weights of the targets of one output",
                "Fit with squared error, on prices or on their logarithms.",
            )
        queries = model.queries(X)
        if len(queries) != len(self.prices):
            raise InputError(
                f"X has {len(queries)} rows; expected {len(self.prices)}, those of the predictions."
            )
        self._check_predictions(model.scale.inverse(queries.predictions)[:, 0])
        slopes = self._slopes(statistic, stratum) * _scale_slopes(model, queries.predictions)
        total = Combination(queries, csr_array(slopes[None]), np.array([statistic]))
        (sums,) = ExplainedRows(model, total).whole(1)
        weights = np.asarray(sums.weights).reshape(-1)
        targets, index = model.training.gathered()
        shown_targets = np.asarray(model.shown)[:, 0]
        effects = weights * _one_percent(model, targets[:, 0])
        order = np.argsort(-np.abs(effects), kind="stable")
        columns = {
            "row": index[order],
            "target": shown_targets[order],
            "derivative": weights[order],
            "per percent": effects[order],
        }
        return tables.note(
            tables.make(columns, model.backend),
            f"derivatives of {statistic} by the training targets, with the tree structure fixed",
        )

    def _slopes(self, statistic: str, stratum: Hashable) -> FloatArray:
        """Return the derivatives of a statistic by all predictions, (n,)."""
        sales = np.arange(len(self.prices))
        if stratum is not None:
            names = inputs.as_list(self.strata)
            if stratum not in names:
                raise InputError(f"stratum is {shown(stratum)}; expected one of {shown(names)}.")
            sales = np.flatnonzero(self.codes == names.index(stratum))
        if statistic == "VEI" and len(sales) < LEAST_FOR_VEI:
            raise InputError(
                f"VEI is not defined for {len(sales)} sales; expected {LEAST_FOR_VEI} or more."
            )
        slopes = np.zeros(len(self.prices))
        slopes[sales] = STATISTICS[statistic].slopes(self.predictions[sales], self.prices[sales])
        return slopes

    def _check_predictions(self, predictions: FloatArray) -> None:
        """Raise unless these are the predictions of the study."""
        apart = np.abs(predictions - self.predictions)
        worst = int(np.argmax(apart))
        if apart[worst] > 1e-4 * np.abs(self.predictions).max():
            raise InputError(
                f"The explained model predicts {predictions[worst]:.6g} for row {worst} of X, and "
                f"the study has {self.predictions[worst]:.6g}. Pass the model and the rows of the "
                "study."
            )


def _scale_slopes(model: VerifiedModel, predictions: FloatArray) -> FloatArray:
    """Return the derivatives of predictions in the user's units by those of the fit, (n,)."""
    scale = model.scale
    if scale.is_identity:
        return np.ones(len(predictions))
    if scale.base is not None:
        return np.asarray((scale.inverse(predictions)[:, 0] + scale.shift) * np.log(scale.base))
    step = STEP * np.maximum(np.abs(predictions), 1.0)
    rise = scale.inverse(predictions + step) - scale.inverse(predictions - step)
    return np.asarray(rise[:, 0] / (2 * step[:, 0]))


def _one_percent(model: VerifiedModel, targets: FloatArray) -> FloatArray:
    """Return one percent of each target as a change on the scale of the fit, (N,)."""
    return np.asarray(0.01 * np.asarray(model.shown)[:, 0] / _scale_slopes(model, targets[:, None]))


def ratio_study(
    predictions: ArrayLike,
    prices: ArrayLike,
    *,
    by: ArrayLike | None = None,
    confidence_level: float = 0.95,
    n_resamples: int = 1000,
    random_state: int = 0,
) -> RatioStudy:
    """Return the statistics of a ratio study, with intervals, beside the ranges of the standard.

    Parameters
    ----------
    predictions : array of shape (n,)
        Predicted values of homes that were sold.
    prices : array of shape (n,)
        Their sale prices.
    by : array of shape (n,), optional
        The stratum of each sale, such as its town. Each stratum has lines of its own after those of
        all sales.
    confidence_level : float, default 0.95
        The confidence level of the intervals.
    n_resamples : int, default 1000
        The number of bootstrap samples of the sales.
    random_state : int, default 0
        The seed of the samples.

    Returns
    -------
    RatioStudy
        Its ``table`` has the columns stratum, sales, statistic, value, low, high, ``standard low``,
        ``standard high`` and meets: whether the value is within the range of the standard. VEI is
        nan for fewer than 20 sales.

    Examples
    --------
    >>> import axil
    >>> study = axil.ratio_study([98.0, 210.0, 330.0, 380.0], [100.0, 200.0, 300.0, 400.0])
    >>> study.table["value"].round(3).tolist()[:3]
    [1.015, 5.419, 1.002]
    """
    values, sale_prices = _checked(predictions, prices)
    n = len(sale_prices)
    confidence_level = inputs.as_share(confidence_level, "confidence_level")
    n_resamples = inputs.as_count(n_resamples, "n_resamples")
    codes = np.zeros(n, dtype=np.intp)
    strata: AnyArray = np.zeros(0, dtype=object)
    lines = _lines("all", values, sale_prices, confidence_level, n_resamples, random_state)
    if by is not None:
        codes, strata = inputs.group_codes(by, n, "by")
        for code, name in enumerate(inputs.as_list(strata)):
            is_of_stratum = codes == code
            sales = values[is_of_stratum], sale_prices[is_of_stratum]
            lines += _lines(str(name), *sales, confidence_level, n_resamples, random_state)
    columns = {name: np.array([line[name] for line in lines]) for name in lines[0]}
    table = tables.note(tables.make(columns, frame_library()), NOTE)
    return RatioStudy(values, sale_prices, table, codes, strata)


def _checked(predictions: ArrayLike, prices: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return predictions and prices as positive numbers, (n,) each."""
    numbers = inputs.as_numbers(prices, "prices", "a price for each prediction")
    n = len(numbers)
    checked = []
    for values, name in ((predictions, "predictions"), (prices, "prices")):
        vector = inputs.as_vector(values, n, name)
        if not (np.isfinite(vector) & (vector > 0)).all():
            raise InputError(
                f"{name} holds numbers that are not above zero; leave those sales out."
            )
        checked.append(vector)
    if n < 2:
        raise InputError(f"prices has {n} sales; expected two or more.")
    return checked[0], checked[1]


def _lines(
    name: str,
    values: FloatArray,
    prices: FloatArray,
    confidence_level: float,
    n_resamples: int,
    seed: int,
) -> list[dict[str, str | int | float | bool]]:
    """Return a line for each statistic of some sales."""
    n = len(prices)
    samples = np.random.default_rng(seed).integers(0, n, size=(n_resamples, n))
    tail = (1 - confidence_level) / 2
    lines: list[dict[str, str | int | float | bool]] = []
    for label, statistic in STATISTICS.items():
        value = statistic.compute(values, prices)
        with np.errstate(invalid="ignore", divide="ignore"):
            resampled = [statistic.compute(values[rows], prices[rows]) for rows in samples]
        low = float("nan")
        high = float("nan")
        if not np.isnan(value):
            low = float(np.nanquantile(resampled, tail))
            high = float(np.nanquantile(resampled, 1 - tail))
        lines.append(
            {
                "stratum": name,
                "sales": n,
                "statistic": label,
                "value": value,
                "low": low,
                "high": high,
                "standard low": statistic.low,
                "standard high": statistic.high,
                "meets": statistic.low <= value <= statistic.high,
            }
        )
    return lines
