"""Methods that make predictive distributions: axil's and those of others, as their papers have them.

A method takes a `Split` and returns an `Answer` for its test rows. None sees a test target.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import lightgbm as lgb
import numpy as np
from intervals_scores import COVERAGE, LEVELS, crps_normal, nll_normal, outward, place
from scipy import stats
from sklearn.model_selection import KFold

import axil

MODEL = {
    "n_jobs": 1,
    "verbose": -1,
    "random_state": 0,
}  # else LightGBM's defaults: 100 trees of up to 31 leaves
FOLDS = 5
PAIRS = (
    0.025,
    0.05,
    0.15,
    0.3,
    0.5,
    0.7,
    0.85,
    0.95,
    0.975,
)  # levels of quantile models; between them a straight line
NEIGHBOURS = (3, 5, 7, 9, 11, 15, 31, 61, 91, 121, 151, 201, 301, 401, 501, 601, 701)  # IBUG's
FACTORS = np.outer(10.0 ** np.arange(-8, 4), (1.0, 2.5, 5.0)).ravel()  # IBUG's
COMPARED = 100_000_000  # pairs of rows whose shared leaves are counted at a time
GROUP = 20  # calibration rows that a group of leaf prefixes has at least


@dataclass(frozen=True, eq=False)
class Answer:
    quantiles: np.ndarray  #: (n, 20) at LEVELS
    lower: np.ndarray
    upper: np.ndarray
    mean: np.ndarray  #: with std, of the normal distribution whose likelihood is taken
    std: np.ndarray


@dataclass(eq=False)
class Split:
    """Rows to fit, to calibrate and to test on, and the LightGBM model with these settings that most methods share."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_cal: np.ndarray
    y_cal: np.ndarray
    X: np.ndarray
    seed: int
    settings: dict[str, Any]

    @cached_property
    def model(self) -> Any:
        return lgb.LGBMRegressor(**self.settings).fit(self.X_train, self.y_train)

    @cached_property
    def made(self) -> np.ndarray:
        return self.model.predict(self.X)

    @cached_property
    def left(self) -> np.ndarray:
        """Errors of the calibration rows."""
        return self.y_cal - self.model.predict(self.X_cal)

    @cached_property
    def folds(self) -> tuple[np.ndarray, np.ndarray, float]:
        """(N,) out-of-fold predictions, (n, N) those of the test rows by the fit without each training row, and seconds."""
        start, N = time.perf_counter(), len(self.y_train)
        out, new = np.empty(N), np.empty((len(self.X), N))
        for fit, rest in KFold(FOLDS, shuffle=True, random_state=self.seed).split(self.X_train):
            model = lgb.LGBMRegressor(**self.settings).fit(self.X_train[fit], self.y_train[fit])
            out[rest], new[:, rest] = (
                model.predict(self.X_train[rest]),
                model.predict(self.X)[:, None],
            )
        return out, new, time.perf_counter() - start

    @cached_property
    def neighbours(self) -> tuple[np.ndarray, np.ndarray]:
        """The standard deviations of the targets of the k nearest training rows, calibration (n_cal, k) and test (n, k)."""
        known = self.model, self.X_train, self.y_train
        return spreads(*known, self.X_cal), spreads(*known, self.X)


def spreads(model: Any, X_train: np.ndarray, y_train: np.ndarray, X: np.ndarray) -> np.ndarray:
    """(n, k): the standard deviations of the targets of the k training rows with most leaves in common, k of NEIGHBOURS.

    Of rows with equally many the later one comes first.
    """
    N, trees = len(X_train), model.booster_.num_trees()
    ks, found, step = [k for k in NEIGHBOURS if k <= N], [], max(1, COMPARED // N)
    for first in range(0, len(X), step):
        for share in axil.similarity(model, X[first : first + step], X_train, n_threads=1):
            order = np.rint(share * trees).astype(np.int64) * N + np.arange(N)
            nearest = np.argpartition(order, N - ks[-1])[N - ks[-1] :]
            targets = y_train[nearest[order[nearest].argsort()[::-1]]]
            found.append([targets[:k].std() for k in ks])
    return np.array(found)


def axil_held_out(split: Split, method: str = "leaves") -> Answer:
    explainer = axil.Explainer(split.model, split.X_train, split.y_train)
    return _axil(explainer.calibrate(split.X_cal, split.y_cal, method=method), split)


def axil_out_of_fold(split: Split) -> Answer:
    explainer = axil.Explainer(split.model, split.X_train, split.y_train)
    return _axil(explainer.calibrate(out_of_fold=split.folds[0]), split)


def axil_both(split: Split) -> Answer:
    explainer = axil.Explainer(split.model, split.X_train, split.y_train)
    return _axil(explainer.calibrate(split.X_cal, split.y_cal, out_of_fold=split.folds[0]), split)


def _axil(predictive: Any, split: Split) -> Answer:
    table = predictive.interval(split.X, COVERAGE)
    mean, std = predictive.predict(split.X, return_std=True)
    ends = table["lower"].to_numpy(), table["upper"].to_numpy()
    return Answer(predictive.quantiles(split.X, LEVELS), *ends, mean, std)


def constant(split: Split) -> Answer:
    """Split conformal: one width."""
    return _scaled(split, np.ones(len(split.left)), np.ones(len(split.X)))


def ibug(split: Split) -> Answer:
    """As published: first k, then a factor or an addend, by the calibration rows; by CRPS, and by NLL for the likelihood."""
    return _normal(
        split.made, *(ibug_scale(split, score)[1] for score in (crps_normal, nll_normal))
    )


def ibug_conformal(split: Split) -> Answer:
    """More than published: k and the factor or addend tuned together, and split conformal of errors over the scale."""
    return _scaled(split, *ibug_scale(split, crps_normal, together=True))


def ibug_scale(
    split: Split, score: Callable[..., np.ndarray], together: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Standard deviations of the calibration rows and of the test rows."""

    def loss(std: np.ndarray) -> float:
        return float(score(split.left, 0.0, std).mean())

    fits = []
    for known, new in zip(*(part.T + 1e-15 for part in split.neighbours)):
        floor = known[known > 2e-15].min(
            initial=np.inf
        )  # the least that is not nothing, as published
        fits.append(
            [np.maximum(part, floor if np.isfinite(floor) else 1e-15) for part in (known, new)]
        )
    if together:
        changes = [calibrated(known, loss) for known, _ in fits]
        best = int(np.argmin([loss(change(known)) for change, (known, _) in zip(changes, fits)]))
        change = changes[best]
    else:
        best = int(np.argmin([loss(known) for known, _ in fits]))
        change = calibrated(fits[best][0], loss)
    return change(fits[best][0]), change(fits[best][1])


def calibrated(
    std: np.ndarray, loss: Callable[[np.ndarray], float]
) -> Callable[[np.ndarray], np.ndarray]:
    """The better of a factor and an addend to standard deviations, of IBUG's grid, by the calibration rows."""
    ways = [("add", 0.0), *(("add", d) for d in FACTORS), *(("times", g) for g in FACTORS)]
    how, by = min(ways, key=lambda way: loss(std + way[1] if way[0] == "add" else std * way[1]))
    return lambda s: s + by if how == "add" else s * by


def leaf_prefixes(split: Split) -> Answer:
    """Errors of the calibration rows that share the leaves of as many first trees as leave GROUP of them."""
    cal, new = (split.model.predict(X, pred_leaf=True) for X in (split.X_cal, split.X))
    errors, found = split.left, []
    for row in new:
        alike = np.logical_and.accumulate(cal == row, axis=1)
        deep = (alike.sum(axis=0) >= GROUP).sum()
        own = errors if deep == 0 else errors[alike[:, deep - 1]]
        half = np.sort(np.abs(own))[place(COVERAGE, len(own))]
        found.append(np.concatenate([[half, np.sqrt(np.mean(np.square(own)))], outward(own)]))
    half, std, quantiles = (part.T for part in np.split(np.array(found), [1, 2], axis=1))
    made = split.made
    return Answer(made[:, None] + quantiles.T, made - half[0], made + half[0], made, std[0])


def cv_plus(split: Split) -> Answer:
    """Barber and others (2021): errors of each fold's fit, around that fit's prediction."""
    out, new, _ = split.folds
    errors = split.y_train - out
    n, atoms = len(errors), new + errors
    low, high = np.sort(new - np.abs(errors), axis=1), np.sort(new + np.abs(errors), axis=1)
    ends = low[:, n - 1 - place(COVERAGE, n)], high[:, place(COVERAGE, n)]
    return Answer(outward(atoms), *ends, atoms.mean(axis=1), atoms.std(axis=1))


def _scaled(split: Split, cal: np.ndarray, new: np.ndarray) -> Answer:
    """Split conformal of errors over a scale of the calibration rows and of the test rows."""
    made, ratios = split.made, split.left / cal
    half = new * np.sort(np.abs(ratios))[place(COVERAGE, len(ratios))]
    quantiles = made[:, None] + new[:, None] * outward(ratios)
    return Answer(
        quantiles, made - half, made + half, made, new * np.sqrt(np.mean(np.square(ratios)))
    )


def _normal(mean: np.ndarray, std: np.ndarray, for_likelihood: np.ndarray) -> Answer:
    half = stats.norm.ppf((1 + COVERAGE) / 2) * std
    quantiles = mean[:, None] + std[:, None] * stats.norm.ppf(LEVELS)
    return Answer(quantiles, mean - half, mean + half, mean, for_likelihood)


# -- models of their own ------------------------------------------------------------------------------------------------------


def cqr(split: Split) -> Answer:
    """Romano and others (2019): quantile models of the training rows, each pair of levels made wider by the calibration rows."""
    cal, new = _quantile_models(split.X_train, split.y_train, split.X_cal, split.X)

    def wider(low: np.ndarray, high: np.ndarray, share: float, y: np.ndarray) -> float:
        return float(np.sort(np.maximum(low - y, y - high))[place(share, len(y))])

    count = len(PAIRS)
    for i in range(count // 2):
        by = wider(cal[:, i], cal[:, -1 - i], 1 - 2 * PAIRS[i], split.y_cal)
        new[:, i] -= by
        new[:, -1 - i] += by
    return _from_levels(new)


def quantile_pairs(split: Split) -> Answer:
    (new,) = _quantile_models(*both(split), split.X)
    return _from_levels(new)


def _quantile_models(X: np.ndarray, y: np.ndarray, *rows: np.ndarray) -> list[np.ndarray]:
    models = [
        lgb.LGBMRegressor(objective="quantile", alpha=alpha, **MODEL).fit(X, y) for alpha in PAIRS
    ]
    return [np.column_stack([model.predict(own) for model in models]) for own in rows]


def _from_levels(found: np.ndarray) -> Answer:
    lower, upper = found[:, PAIRS.index(0.05)], found[:, PAIRS.index(0.95)]
    ends = np.minimum(lower, upper), np.maximum(lower, upper)  # crossed ones in order
    quantiles = np.array([np.interp(LEVELS, PAIRS, row) for row in np.sort(found, axis=1)])
    return Answer(quantiles, *ends, quantiles.mean(axis=1), _not_zero(quantiles.std(axis=1)))


def quantile_forest(split: Split) -> Answer:
    from quantile_forest import RandomForestQuantileRegressor

    forest = RandomForestQuantileRegressor(
        100, min_samples_leaf=5, random_state=split.seed, n_jobs=1
    )
    forest.fit(*both(split))
    found = forest.predict(split.X, quantiles=[*LEVELS, 0.05, 0.95])
    quantiles = found[:, :-2]
    std = _not_zero(quantiles.std(axis=1))
    return Answer(quantiles, found[:, -2], found[:, -1], quantiles.mean(axis=1), std)


def ngboost(split: Split) -> Answer:
    """Stopped early, and its standard deviation tuned as IBUG's, on the calibration rows."""
    from ngboost import NGBRegressor

    model = NGBRegressor(n_estimators=500, random_state=split.seed, verbose=False)
    model.fit(split.X_train, split.y_train, split.X_cal, split.y_cal, early_stopping_rounds=20)
    (mean_cal, std_cal), (mean, std) = (
        (found.loc, found.scale) for found in map(model.pred_dist, (split.X_cal, split.X))
    )
    return _tuned(split, mean_cal, std_cal, mean, std)


def catboost(split: Split) -> Answer:
    """RMSEWithUncertainty, stopped early, and its standard deviation tuned as IBUG's, on the calibration rows."""
    from catboost import CatBoostRegressor

    model = CatBoostRegressor(
        loss_function="RMSEWithUncertainty", iterations=500, thread_count=1, random_seed=split.seed, verbose=False,
        allow_writing_files=False, early_stopping_rounds=20,
    )  # fmt: skip
    model.fit(split.X_train, split.y_train, eval_set=(split.X_cal, split.y_cal))
    cal, new = (
        model.predict(X, prediction_type="RMSEWithUncertainty") for X in (split.X_cal, split.X)
    )
    return _tuned(split, cal[:, 0], np.sqrt(cal[:, 1]), new[:, 0], np.sqrt(new[:, 1]))


def _tuned(
    split: Split, mean_cal: np.ndarray, std_cal: np.ndarray, mean: np.ndarray, std: np.ndarray
) -> Answer:
    fits = [
        calibrated(std_cal, lambda s, score=score: float(score(split.y_cal, mean_cal, s).mean()))
        for score in (crps_normal, nll_normal)
    ]
    return _normal(mean, *(fit(std) for fit in fits))


def both(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Training and calibration rows: for models that need no rows to calibrate with."""
    return np.concatenate([split.X_train, split.X_cal]), np.concatenate(
        [split.y_train, split.y_cal]
    )


def _not_zero(std: np.ndarray) -> np.ndarray:
    """Standard deviations of which none is nothing, as the likelihood of a point is infinite."""
    known = std[std > 0]
    return np.maximum(std, known.min() if len(known) else 1e-15)


SAME_MODEL = {
    "axil": axil_held_out,
    "axil, exact": partial(axil_held_out, method="exact"),
    "constant": constant,
    "IBUG": ibug,
    "IBUG, conformal": ibug_conformal,
    "leaf prefixes": leaf_prefixes,
}
REFITS = {"axil, out-of-fold": axil_out_of_fold, "axil, both": axil_both, "CV+": cv_plus}
OWN_MODELS = {
    "CQR": cqr,
    "quantile pairs": quantile_pairs,
    "quantile-forest": quantile_forest,
    "NGBoost": ngboost,
    "CatBoost": catboost,
}
METHODS = SAME_MODEL | REFITS | OWN_MODELS
