"""Plain models of every library, and their fits again in NumPy: the oracle of deletions, other targets, offsets and pushes.

A replay takes the leaves of the rows from the library and the rule of the leaf values from its documentation; nothing comes from
axil. A model that its own replay does not reproduce is void.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import catboost as cb
import lightgbm as lgb
import numpy as np
import xgboost as xgb
from scipy.special import expit, logit, softmax
from sklearn import ensemble, tree

from tests.fuzz.data import Array, Draw, Trial

SINGLE_ROUNDING = 2.0**-21  # of gradients and their sums, of their size
MOST_LOST = 1e-3  # of a leaf value: rounding that axil shares out among its rows
AGREES = 1e-5  # of the largest number in a fit: XGBoost's leaf values and scores are in float32
N_NEW = 7


@dataclass(frozen=True)
class Loss:
    """A loss: where scores start, gradients and second derivatives; and how its targets are drawn."""

    start: Callable[[Array], Array]  #: (K,) from the means of the targets (K,)
    #: (N, K) each, at targets and scores (N, K); of rows of these weights, (N,), where all rows count in each of them
    slopes: Callable[..., tuple[Array, Array]]
    targets: Callable[[np.random.Generator, Array], Array]  #: as fit takes them, from a signal (N,)
    n_classes: int = 0
    #: the score that a fit starts from, by targets (N,), row weights and whether these were given, where not by means
    start_of: Callable[[Array, Array, bool], float] | None = None


def _classes(rng: np.random.Generator, signal: Array, n: int) -> Array:
    ranks = np.argsort(np.argsort(signal + rng.normal(size=len(signal)) / 2))
    return np.minimum((ranks * n) // len(ranks), n - 1).astype(float)


def _softmax_slopes(y: Array, F: Array) -> tuple[Array, Array]:
    p = softmax(F, axis=1)
    return p - y, p * (1 - p)


def _residual_scale(residuals: Array, w: Array) -> float:
    return float(np.sum(w * np.sqrt(np.abs(residuals))) / w.sum()) ** 2


def _absolute_slopes(y: Array, F: Array, w: Array) -> tuple[Array, Array]:
    """XGBoost's from 3.4 on: smoothed on the scale of all residuals (src/objective/regression_obj.cu)."""
    residuals = F - y
    scale = _residual_scale(residuals[:, 0], w)
    norms = np.hypot(scale, residuals)
    curvature = np.divide(scale, norms, out=np.ones_like(norms), where=norms > 0)
    return residuals * curvature, curvature


def _absolute_start(y: Array, w: Array, weighted: bool) -> float:
    mean = float(np.average(y, weights=w))
    g, h = _absolute_slopes(y[:, None], np.full((len(y), 1), mean), w)
    return mean - float(w @ g[:, 0]) / max(float(w @ h[:, 0]), 1e-6)


def _quantile(alpha: float) -> Loss:
    """XGBoost's from 3.4 on (src/objective/quantile_obj.cu)."""
    share = float(np.float32(alpha))

    def slopes(y: Array, F: Array, w: Array) -> tuple[Array, Array]:
        scale = _residual_scale((F - y)[:, 0], w)
        if not scale > 0:
            return np.zeros_like(F), np.zeros_like(F)
        x = (F - y) / (0.04 * scale)
        ratio = np.divide(np.tanh(x), x, out=np.ones_like(x), where=x != 0)
        return scale / 2 * (np.tanh(x) + 1 - 2 * share), 12.5 * np.maximum(ratio, 3e-4)

    def start(y: Array, w: Array, weighted: bool) -> float:
        order = np.argsort(y[w > 0], kind="stable")
        y, w = y[w > 0][order], w[w > 0][order]
        if weighted:
            sums = np.cumsum(w.astype(np.float32), dtype=np.float32)
            at = int(np.searchsorted(sums, np.float32(float(sums[-1]) * share)))
            return float(y[min(at, len(y) - 1)])
        place = min(max(share * (len(y) + 1) - 1, 0.0), len(y) - 1.0)
        return float(np.interp(place, np.arange(len(y)), y))

    return Loss(lambda m: m, slopes, lambda rng, s: s, start_of=start)


LOSSES = {
    "absolute": Loss(lambda m: m, _absolute_slopes, lambda rng, s: s, start_of=_absolute_start),
    "quantile 0.9": _quantile(0.9),
    "quantile 0.3": _quantile(0.3),
    "squared": Loss(lambda m: m, lambda y, F: (F - y, np.ones_like(F)), lambda rng, s: s),
    "logistic": Loss(
        logit,
        lambda y, F: (expit(F) - y, expit(F) * expit(-F)),
        lambda rng, s: _classes(rng, s, 2),
        n_classes=2,
    ),
    "poisson": Loss(
        np.log,
        lambda y, F: (np.exp(F) - y, np.exp(F)),
        lambda rng, s: rng.poisson(np.exp(np.clip(s, -2, 2))) + (np.arange(len(s)) == 0),
    ),
    "gamma": Loss(
        np.log,
        lambda y, F: (1 - y * np.exp(-F), y * np.exp(-F)),
        lambda rng, s: rng.gamma(2.0, size=len(s)) * np.exp(np.clip(s, -2, 2)) + 0.01,
    ),
    "softmax": Loss(
        lambda m: np.log(m) - np.log(m).mean(),
        _softmax_slopes,
        lambda rng, s: _classes(rng, s, 3),
        n_classes=3,
    ),
}


def _lost_digits(leaf: Array, g: Array) -> Array:
    """Return the relative rounding of the pushes in each row's leaf, (N,), where gradients cancel.

    Libraries add gradients up in single precision, and the rows share what that adds to the value.
    """
    size = int(leaf.max()) + 1
    net = np.abs(np.bincount(leaf, g, size))
    gross = np.bincount(leaf, np.abs(g), size)
    lost = np.divide(SINGLE_ROUNDING * gross, net, out=np.full(size, MOST_LOST), where=net > 0)
    return np.minimum(lost, MOST_LOST)[leaf]


@dataclass(kw_only=True)
class Fit(Trial):
    """A fitted model with the leaves and the settings that its values follow from."""

    loss: Loss
    leaves: Array  #: (T, N)
    asked: Array  #: (T, n), of X_new
    raw: Callable[[Any, Any], Any]  #: scores of rows with offsets or None
    new_offsets: Array | None = None
    rate: float = 1.0
    l2: float = 0.0
    l1: float = 0.0
    most: float = np.inf  #: of a step
    by_weight: bool = (
        False  #: CatBoost: l2 grows with the mean weight of the rows, those of no weight among them
    )
    start: float | None = None  #: None: estimated from the targets
    keeps_base: bool = False  #: XGBoost: rows without offsets start from the base, though the fit of rows with offsets does not
    root_is_zero: bool = (
        False  #: histogram boosting: a tree without a split has no value, whatever its rows say
    )
    curvature: float = 1.0  #: what the library multiplies second derivatives by
    draws: Array | None = None  #: (T, N) of an average, else None
    #: of an average, for each tree and leaf: the leaves below each node above it, the nearest first
    above: list[dict[int, list[list[int]]]] = field(default_factory=list)
    start_of_means: Callable[[Array], Array] | None = (
        None  #: where the library starts from another number than the loss
    )
    apart: float = 0.0  #: the largest difference of the replay's scores from the model's
    columns: Array = field(init=False)  #: (N, K): the targets, one-hot for more than two classes

    def __post_init__(self) -> None:
        self.columns = self.one_hot(self.y)

    def one_hot(self, y: Array) -> Array:
        return (
            y[:, None] == np.arange(self.loss.n_classes)
            if self.several
            else np.asarray(y, dtype=float)[:, None]
        )

    @property
    def several(self) -> bool:
        """Whether there is an output for each class."""
        return self.loss.n_classes > 2 or (self.loss.n_classes > 0 and self.draws is not None)

    @property
    def weights(self) -> Array:
        return np.ones(len(self.y)) if self.sample_weight is None else self.sample_weight

    @property
    def size(self) -> float:
        """The largest number among targets, offsets and scores."""
        given = [self.columns, self.scores()[0]] + [
            a for a in (self.offsets, self.new_offsets) if a is not None
        ]
        return float(max(np.nanmax(np.abs(a)) for a in given)) or 1.0

    def scores(self, y: Array | None = None, gone: Array | None = None) -> tuple[Array, Array]:
        """(n, K) of X_new and (N, K) of the training rows, fitted to other targets or without rows on the same splits."""
        new, own, *_ = self.refitted(y, gone)
        return new, own

    def refitted(
        self, y: Array | None = None, gone: Array | None = None
    ) -> tuple[Array, Array, Array, Array, Array]:
        """`scores`, the patterns of all leaves, the pushes (K, n, N) on X_new, and their rounding."""
        y = self.columns if y is None else self.one_hot(y)
        gone = np.zeros(len(y), dtype=bool) if gone is None else gone
        w = np.where(gone, 0.0, self.weights)
        if self.draws is not None:
            return *self._averages(y, w), np.zeros(0), np.zeros(0), np.zeros(0)
        base = self._base(y, w)
        unoffset = base if self.offsets is None or self.keeps_base else np.zeros_like(base)
        own = np.zeros(y.shape) + (base if self.offsets is None else self.offsets[:, None])
        new = np.zeros((self.asked.shape[1], y.shape[1]))
        new += unoffset if self.new_offsets is None else self.new_offsets[:, None]
        l2 = self.l2 * w.sum() / (~gone).sum() if self.by_weight else self.l2
        pushes, patterns = np.zeros((y.shape[1], *new.shape[:1], len(w))), []
        rounding = np.zeros_like(pushes)
        for t, (leaf, at) in enumerate(zip(self.leaves, self.asked)):
            k = t % y.shape[1]
            if k == 0:
                g, h = (
                    self.loss.slopes(y, own, w) if self.loss.start_of else self.loss.slopes(y, own)
                )
                before = own.copy()
                g, h = g * w[:, None], h * w[:, None] * self.curvature
            value, part, pattern = self._values(leaf, at, g[:, k], h[:, k], l2)
            if self.root_is_zero and not leaf.any():
                value, part = np.zeros_like(value), np.zeros_like(part)
            own[:, k] = before[:, k] + self.rate * value[leaf]
            new[:, k] += self.rate * value[at]
            own_pushes = self.rate * np.where(
                at[:, None] == leaf, (part[leaf] * g[:, k])[None], 0.0
            )
            pushes[k] += own_pushes
            rounding[k] += np.abs(own_pushes) * _lost_digits(leaf, g[:, k])
            patterns.append(pattern)
        return new, own, np.concatenate(patterns), pushes, rounding

    def _values(
        self, leaf: Array, at: Array, g: Array, h: Array, l2: float
    ) -> tuple[Array, Array, Array]:
        """Of each leaf: its value, what a gradient in it counts, and its pattern."""
        size = int(max(leaf.max(), at.max())) + 1
        G, H = np.bincount(leaf, g, size), np.bincount(leaf, h, size)
        moved = -np.sign(G) * np.maximum(np.abs(G) - self.l1, 0.0)
        step = np.divide(moved, H + l2, out=np.zeros(size), where=H > 0)
        value = np.clip(step, -self.most, self.most)
        plain = np.divide(-1.0, H + l2, out=np.zeros(size), where=H > 0)
        part = np.where(
            value == G * plain, plain, np.divide(value, G, out=np.zeros(size), where=G != 0)
        )
        return value, part, np.sign(moved) * (1 + (np.abs(step) > self.most))

    def _base(self, y: Array, w: Array) -> Array:
        if self.start is not None:
            return np.full(y.shape[1], self.start)
        if self.loss.start_of is not None:
            return np.array(
                [self.loss.start_of(column, w, self.sample_weight is not None) for column in y.T]
            )
        means = np.average(y, axis=0, weights=w)
        with np.errstate(divide="ignore"):
            return (self.start_of_means or self.loss.start)(means)

    def _averages(self, y: Array, w: Array) -> tuple[Array, Array]:
        """Means over the trees; nan where no row is left.

        A leaf without rows has the value of the nearest node above it that has some, and a tree whose sample is gone the mean
        of all rows.
        """
        assert self.draws is not None
        found = [np.zeros((self.asked.shape[1], y.shape[1])), np.zeros(y.shape)]
        if not w.any():
            return np.full_like(found[0], np.nan), np.full_like(found[1], np.nan)
        for leaf, at, drawn, above in zip(self.leaves, self.asked, self.draws, self.above):
            size = int(max(leaf.max(), at.max(), *above)) + 1
            W = np.bincount(leaf, w * drawn, size)
            S = np.stack([np.bincount(leaf, w * drawn * column, size) for column in y.T], axis=1)
            value = np.divide(S, W[:, None], out=np.zeros_like(S), where=W[:, None] > 0)
            for empty in np.flatnonzero(W == 0).tolist():
                node = next((leaves for leaves in above.get(empty, []) if W[leaves].any()), None)
                value[empty] = (
                    w @ y / w.sum() if node is None else S[node].sum(axis=0) / W[node].sum()
                )
            for total, rows in zip(found, (at, leaf)):
                total += value[rows] / len(self.leaves)
        return found[0], found[1]

    def alone(self, row: int) -> bool:
        """Whether the fit without the row has no prediction of it: no other row is in one of its leaves.

        Leaves that L1 puts to zero, or that a step is clipped in, do not follow their rows, and keep their values without them.
        """
        kept = np.delete(np.arange(len(self.y)), row)
        if self.draws is not None:  # a mean takes values from further up
            return not len(kept)
        left = (self.leaves[:, kept] == self.leaves[:, [row]]).any(axis=1)
        sizes = np.maximum(self.leaves.max(axis=1), self.asked.max(axis=1)) + 1
        patterns = self.refitted()[2][np.cumsum(sizes) - sizes + self.leaves[:, row]]
        follows = (np.abs(patterns) == 1) | (
            (patterns == 0) & (self.l1 == 0)
        )  # a sum may be zero by itself
        return bool((~left & follows).any())


@dataclass
class Rows:
    """Tables of numbers that float32 holds, so that libraries and replay see the same."""

    X: Array
    y: Array
    w: Array | None
    offsets: Array | None
    X_new: Array
    new_offsets: Array | None
    loss: str

    @classmethod
    def drawn(cls, draw: Draw, loss: str, offsets: bool) -> Rows:
        rng, n = draw.rng, draw.pick("rows", 6, 12, 12, 25, 25, 60)
        X = rng.normal(size=(n + N_NEW, draw.pick("columns", 1, 2, 4)))
        if draw.flag("whole", 0.3):
            X = np.rint(X)
        signal = np.sin(2 * X[:n, 0]) + X[:n, -1] + rng.normal(size=n) / 2
        if loss == "squared":
            kind = draw.pick("targets", "plain", "plain", "balanced", "far", "outlier", "whole")
            other = np.where(np.arange(n) % 2, 1.0, -1.0) if kind == "balanced" else signal
            other = {"far": signal + 100, "whole": np.rint(signal), "plain": signal + 3}.get(
                kind, other
            )
            signal = np.where((np.arange(n) == 0) & (kind == "outlier"), 50.0, other)
        w = {
            "none": None,
            "gamma": rng.gamma(2.0, size=n) + 0.05,
            "whole": rng.integers(1, 5, n).astype(float),
        }[draw.pick("weights", "none", "none", "gamma", "whole")]
        both = rng.normal(size=n + N_NEW) * draw.pick("offset size", 1.0, 30.0) ** (
            loss == "squared"
        )
        asked = both[n:] if offsets and draw.flag("offsets asked", 0.6) else None
        parts = (
            X[:n],
            LOSSES[loss].targets(rng, signal),
            w,
            both[:n] if offsets else None,
            X[n:],
            asked,
        )
        rounded = [
            None if part is None else part.astype(np.float32).astype(float) for part in parts
        ]
        return cls(*rounded, loss)  # type: ignore[arg-type]

    def fit(
        self, model: Any, raw: Callable[[Any, Any], Any], leaves: Callable[[Any], Any], **how: Any
    ) -> Fit:
        """The fit with its replay, which must reproduce the model's scores of both tables."""
        own, asked = (
            np.asarray(leaves(X)).reshape(len(X), -1).T.astype(int) for X in (self.X, self.X_new)
        )
        loss = LOSSES[self.loss]
        given = (
            model,
            self.X,
            self.y,
            self.w,
            self.offsets,
            self.X_new,
            lambda rows: raw(rows, None),
        )
        found = Fit(
            *given, loss=loss, leaves=own, asked=asked, raw=raw, new_offsets=self.new_offsets, **how
        )
        without_offsets = replace(found, new_offsets=None).scores()[0]
        made = [*found.scores(), without_offsets]
        theirs = [
            raw(self.X_new, self.new_offsets),
            raw(self.X, self.offsets),
            raw(self.X_new, None),
        ]
        apart = max(float(np.abs(a - np.reshape(b, a.shape)).max()) for a, b in zip(made, theirs))
        if not apart <= AGREES * found.size:
            raise RuntimeError(f"the replay is off by {apart:.3g}")
        found.apart = apart
        return found


_GROWTH = {"rate": (0.1, 0.5, 1.0), "trees": (1, 3, 8), "l2": (0.0, 1.0, 5.0)}


def _growth(draw: Draw) -> tuple[float, int, float]:
    return tuple(draw.pick(name, *values) for name, values in _GROWTH.items())  # type: ignore[return-value]


def _bends(draw: Draw, held: bool) -> dict[str, float]:
    """L1, and sometimes a largest step."""
    if not held:
        return {}
    step = (
        {"max_delta_step": draw.pick("max_delta_step", 0.3, 1.0)} if draw.flag("step", 0.2) else {}
    )
    return {"reg_alpha": draw.pick("l1", 0.1, 0.5, 2.0), **step}


def lightgbm(draw: Draw, rows: Rows, held: bool) -> Fit:
    """An LGBMRegressor or LGBMClassifier; of squared error a random forest too."""
    rate, n_trees, l2 = _growth(draw)
    params = {
        "n_estimators": n_trees,
        "learning_rate": rate,
        "reg_lambda": l2,
        "num_leaves": draw.pick("leaves", 3, 6),
    }
    params |= {
        "min_child_samples": draw.pick("smallest", 1, 3),
        "min_data_in_bin": 1,
        "n_jobs": 1,
        "verbose": -1,
    }
    bends = _bends(draw, held)
    names = {"squared": "l2", "logistic": "binary", "softmax": "multiclass"}
    kind = lgb.LGBMClassifier if LOSSES[rows.loss].n_classes else lgb.LGBMRegressor
    if rows.loss in ("squared", "logistic", "poisson") and draw.flag("start at zero", 0.2):
        params["boost_from_average"] = False
    model = kind(objective=names.get(rows.loss, rows.loss), **params, **bends)
    model.fit(rows.X, rows.y, sample_weight=rows.w, init_score=rows.offsets)

    def raw(X: Any, own: Any) -> Any:
        return model.predict(X, raw_score=True) + (0.0 if own is None else own)

    if (model.predict(rows.X, pred_leaf=True).reshape(len(rows.X), -1).max(axis=0) == 0).any():
        raise RuntimeError("a tree without a split, whose value LightGBM does not fit")
    # Poisson: second derivatives times exp(0.7); softmax: times K / (K - 1).
    curvature = {"poisson": np.exp(0.7), "softmax": 1.5}.get(rows.loss, 1.0)
    return rows.fit(
        model, raw, lambda X: model.predict(X, pred_leaf=True), rate=rate, l2=l2, curvature=curvature,
        start_of_means=np.log if rows.loss == "softmax" else None,
        start=0.0 if "boost_from_average" in params else None, **_rule(bends),
    )  # fmt: skip


def _rule(bends: dict[str, float]) -> dict[str, float]:
    return {"l1": bends.get("reg_alpha", 0.0), "most": bends.get("max_delta_step", np.inf)}


def xgboost(draw: Draw, rows: Rows, held: bool) -> Fit:
    """An XGBRegressor or XGBClassifier."""
    rate, n_trees, l2 = _growth(draw)
    params = {
        "n_estimators": n_trees,
        "learning_rate": rate,
        "reg_lambda": l2,
        "max_depth": draw.pick("depth", 1, 2, 3),
    }
    params |= {
        "min_child_weight": 0.0 if rows.loss != "squared" else draw.pick("smallest", 0.0, 1.0),
        "n_jobs": 1,
    }
    bends = _bends(draw, held)
    names = {
        "squared": "reg:squarederror",
        "logistic": "binary:logistic",
        "softmax": "multi:softprob",
    }
    names |= {"poisson": "count:poisson", "gamma": "reg:gamma", "absolute": "reg:absoluteerror"}
    if rows.loss.startswith("quantile"):
        params["quantile_alpha"] = float(rows.loss.split()[1])
    start, given = None, draw.pick("base_score", None, None, 0.0, 0.5)
    if (
        given is not None
        and rows.loss in ("squared", "logistic")
        and not (rows.loss == "logistic" and given == 0.0)
    ):
        params["base_score"] = given
        start = given if rows.loss == "squared" else 0.0
    kind = xgb.XGBClassifier if LOSSES[rows.loss].n_classes else xgb.XGBRegressor
    model = kind(objective=names.get(rows.loss, "reg:quantileerror"), **params, **bends)
    model.fit(rows.X, rows.y, sample_weight=rows.w, base_margin=rows.offsets)

    def raw(X: Any, own: Any) -> Any:
        return model.predict(X, output_margin=True, base_margin=own)

    rule = _rule({"max_delta_step": 0.7, **bends} if rows.loss == "poisson" else bends)
    curvature = {"poisson": np.exp(rule["most"]), "softmax": 2.0}.get(rows.loss, 1.0)
    start_of_means = _near_logs if rows.loss == "softmax" else None
    if STARTS_WITH_A_STEP:
        start_of_means = _NEWTON_STEPS.get(rows.loss)
    return rows.fit(
        model, raw, model.apply, rate=rate, l2=l2, start=start, keeps_base=True, curvature=curvature,
        start_of_means=start_of_means, **rule,
    )  # fmt: skip


#: Before 3.1 XGBoost starts from one Newton step from 0 (src/objective/init_estimation.cc).
STARTS_WITH_A_STEP = tuple(int(part) for part in xgb.__version__.split(".")[:2]) < (3, 1)
_NEWTON_STEPS: dict[str, Callable[[Array], Array]] = {
    "logistic": lambda means: 4.0 * (means - 0.5),
    "poisson": lambda means: np.exp(-0.7) * (means - 1.0),
    "gamma": lambda means: 1.0 - 1.0 / means,
}


def _near_logs(means: Array) -> Array:
    """Where XGBoost's softmax starts (src/objective/multiclass_obj.cu)."""
    logs = np.log(means + 1e-6)
    return logs - logs.mean()


def catboost(draw: Draw, rows: Rows, held: bool) -> Fit:
    """A CatBoostRegressor or CatBoostClassifier of single Newton steps."""
    rate, n_trees, l2 = _growth(draw)
    names = {"squared": "RMSE", "logistic": "Logloss", "poisson": "Poisson"}
    params = {
        "iterations": n_trees,
        "learning_rate": rate,
        "l2_leaf_reg": l2,
        "depth": draw.pick("depth", 1, 2, 4),
    }
    params |= {
        "leaf_estimation_method": "Newton",
        "leaf_estimation_iterations": 1,
        "boosting_type": "Plain",
    }
    params |= {
        "thread_count": 1,
        "verbose": False,
        "allow_writing_files": False,
        "loss_function": names[rows.loss],
    }
    if rows.loss == "squared" and rows.w is not None and draw.flag("heavy row", 0.1):
        rows.w = 10 ** draw.rng.uniform(-3, 3, len(rows.w)).astype(np.float32).astype(float)
        rows.w[0] = 3e7
    averaged = (
        rows.loss == "squared" and rows.offsets is None and draw.flag("boost_from_average", 0.7)
    )
    kind = cb.CatBoostClassifier if rows.loss == "logistic" else cb.CatBoostRegressor
    model = kind(boost_from_average=averaged, **params)
    model.fit(cb.Pool(rows.X, rows.y, weight=rows.w, baseline=rows.offsets))

    def raw(X: Any, own: Any) -> Any:
        return model.predict(X, prediction_type="RawFormulaVal") + (0.0 if own is None else own)

    return rows.fit(
        model,
        raw,
        model.calc_leaf_indexes,
        rate=rate,
        l2=l2,
        by_weight=True,
        start=None if averaged else 0.0,
    )


def histogram(draw: Draw, rows: Rows, held: bool) -> Fit:
    """A HistGradientBoostingRegressor or -Classifier."""
    rate, n_trees, l2 = _growth(draw)
    params = {
        "learning_rate": rate,
        "max_iter": n_trees,
        "l2_regularization": l2,
        "early_stopping": False,
    }
    params |= {
        "min_samples_leaf": draw.pick("smallest", 1, 3),
        "max_leaf_nodes": draw.pick("leaves", 3, 6),
    }
    if LOSSES[rows.loss].n_classes:
        model = ensemble.HistGradientBoostingClassifier(**params)
    else:
        name = "squared_error" if rows.loss == "squared" else rows.loss
        model = ensemble.HistGradientBoostingRegressor(loss=name, **params)
    model.fit(rows.X, rows.y, sample_weight=rows.w)

    def leaves(X: Any) -> Any:
        return np.stack(
            [_walked(each.nodes, X) for stage in model._predictors for each in stage], axis=1
        )

    return rows.fit(
        model, lambda X, own: model._raw_predict(X), leaves, rate=rate, l2=l2, root_is_zero=True
    )


def _walked(nodes: Any, X: Array) -> Array:
    """The leaf of each row in a tree of scikit-learn's histogram boosting."""
    at = np.zeros(len(X), dtype=int)
    while not nodes["is_leaf"][at].all():
        inner = nodes[at]
        left = X[np.arange(len(X)), inner["feature_idx"]] <= inner["num_threshold"]
        at = np.where(inner["is_leaf"], at, np.where(left, inner["left"], inner["right"]))
    return at


def gradient(draw: Draw, rows: Rows, held: bool) -> Fit:
    """A GradientBoostingRegressor or -Classifier."""
    rate, n_trees, _ = _growth(draw)
    params = {
        "learning_rate": rate,
        "n_estimators": n_trees,
        "max_depth": draw.pick("depth", 1, 2, 3),
        "random_state": 0,
    }
    params |= {"min_samples_leaf": draw.pick("smallest", 1, 3)}
    if draw.flag("start at zero", 0.2):
        params["init"] = "zero"
    kind = (
        ensemble.GradientBoostingClassifier
        if LOSSES[rows.loss].n_classes
        else ensemble.GradientBoostingRegressor
    )
    model = kind(**params).fit(rows.X, rows.y, sample_weight=rows.w)
    raw = model.decision_function if LOSSES[rows.loss].n_classes else model.predict
    # Softmax: leaf values times (K - 1) / K.
    return rows.fit(
        model, lambda X, own: raw(X), model.apply, rate=rate, start=0.0 if "init" in params else None,
        curvature=1.5 if rows.loss == "softmax" else 1.0,
    )  # fmt: skip


def average(draw: Draw, rows: Rows, held: bool) -> Fit:
    """A tree, a forest or bagged trees, of numbers or classes, or LightGBM's random forest."""
    kinds = ["RandomForest", "RandomForest", "ExtraTrees", "DecisionTree", "Bagging"]
    kind = draw.pick("kind", *kinds, *(["LightGBM"] if rows.loss == "squared" else []))
    n_trees, smallest = draw.pick("trees", 1, 5, 20), draw.pick("smallest", 1, 1, 3)
    if kind == "LightGBM":
        params = {
            "boosting_type": "rf",
            "n_estimators": n_trees,
            "colsample_bytree": 0.5,
            "min_data_in_bin": 1,
        }
        params |= {"min_child_samples": smallest, "num_leaves": 6, "n_jobs": 1, "verbose": -1}
        forest = lgb.LGBMRegressor(**params).fit(rows.X, rows.y, sample_weight=rows.w)
        drawn = np.ones((forest.n_estimators_, len(rows.y)))
        roots = [each["tree_structure"] for each in forest.booster_.dump_model()["tree_info"]]
        return rows.fit(
            forest,
            lambda X, own: forest.predict(X),
            lambda X: forest.predict(X, pred_leaf=True),
            draws=drawn,
            above=[_above(_lightgbm_nodes(root)) for root in roots],
        )
    rows.w = None if kind != "DecisionTree" else rows.w  # forests draw rows by their weights
    module = tree if kind == "DecisionTree" else ensemble
    params = {"random_state": draw.pick("random_state", 0, 7)}
    params |= {} if kind == "Bagging" else {"min_samples_leaf": smallest}
    params |= {} if kind == "DecisionTree" else {"n_estimators": n_trees}
    if kind in ("RandomForest", "ExtraTrees", "Bagging"):
        params["bootstrap"] = draw.pick("bootstrap", True, True, False)
    model = getattr(module, kind + ("Classifier" if LOSSES[rows.loss].n_classes else "Regressor"))(
        **params
    )
    model.fit(rows.X, rows.y, sample_weight=rows.w)
    trees = [model] if kind == "DecisionTree" else model.estimators_
    drawn = np.ones((len(trees), len(rows.y)))
    if params.get("bootstrap"):
        drawn = np.stack(
            [np.bincount(own, minlength=len(rows.y)) for own in model.estimators_samples_]
        ).astype(float)
    raw = model.predict_proba if LOSSES[rows.loss].n_classes else model.predict
    nodes = [
        [list(pair) for pair in zip(own.tree_.children_left, own.tree_.children_right)]
        for own in trees
    ]
    return rows.fit(
        model,
        lambda X, own: raw(X),
        lambda X: np.stack([each.apply(X) for each in trees], axis=1),
        draws=drawn,
        above=[
            _above({node: pair for node, pair in enumerate(own) if pair[0] >= 0}) for own in nodes
        ],
    )


def _lightgbm_nodes(root: Any) -> dict[int, list[int]]:
    """Return the children of each split: leaves by their numbers, splits as -1 less theirs."""

    def number(node: Any) -> int:
        return node.get("leaf_index", 0) if "split_index" not in node else -1 - node["split_index"]

    found, waiting = {}, [root]
    while waiting:
        node = waiting.pop()
        if "split_index" in node:
            children = node["left_child"], node["right_child"]
            found[number(node)] = [number(child) for child in children]
            waiting += children
    return found


def _above(children: dict[int, list[int]]) -> dict[int, list[list[int]]]:
    """Return, for each leaf, the leaves below each node above it, the nearest first, from the children of all splits."""

    def leaves(node: int) -> list[int]:
        if node not in children:
            return [node]
        return [leaf for child in children[node] for leaf in leaves(child)]

    parents = {child: node for node, pair in children.items() for child in pair}
    found: dict[int, list[list[int]]] = {}
    for leaf in (node for node in parents if node not in children):
        node, found[leaf] = leaf, []
        while node in parents:
            node = parents[node]
            found[leaf].append(leaves(node))
    return found


MAKERS = {
    "lightgbm": lightgbm,
    "xgboost": xgboost,
    "catboost": catboost,
    "histogram": histogram,
    "gradient": gradient,
    "average": average,
}
#: XGBoost's losses that it smooths from 3.4 on, where leaves were percentiles before
_SMOOTHED = ("absolute", "quantile 0.9", "quantile 0.3") if xgb.__version__ >= "3.4" else ()
OF_LOSS = {  # other losses, by library
    "lightgbm": ("logistic", "logistic", "poisson", "gamma", "softmax"),
    "xgboost": ("logistic", "logistic", "poisson", "gamma", "softmax", *_SMOOTHED),
    "catboost": ("logistic", "poisson"),
    "histogram": ("logistic", "logistic", "poisson", "gamma", "softmax"),
    "gradient": ("logistic", "softmax"),
    "average": ("logistic", "softmax"),
}


def make(
    draw: Draw, library: str, *, loss: str = "squared", held: bool = False, offsets: bool = False
) -> Fit:
    """A random model of one library; ``loss="other"``: of one of its other losses."""
    if loss == "other":  # offsets are of one output
        loss = draw.pick(
            "loss", *(name for name in OF_LOSS[library] if not offsets or name != "softmax")
        )
    return MAKERS[library](draw, Rows.drawn(draw, loss, offsets), held)
