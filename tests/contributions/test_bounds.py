"""Monotone constraints with losses other than squared error: against replays in NumPy, node after node by the library's rule."""

import json
from dataclasses import dataclass, replace
from functools import cache

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from scipy.special import expit, logit
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

import axil
from axil.methods.method import verified_model
from axil.structure import NodeRule
from tests.adapters.lightgbm_models import VERSION as LIGHTGBM_VERSION
from tests.adapters.xgboost_models import VERSION
from tests.reference import bent_values

N = 160
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N + 6, 4)).round(1)
SCORE = X[:, 0] + np.sin(2 * X[:, 1]) - 0.5 * X[:, 2]
LABELS = (SCORE + RNG.logistic(size=N + 6) > 0).astype(int)[:N]
COUNTS = RNG.poisson(np.exp(0.4 * SCORE))[:N]
X, NEW = X[:N], X[N:]
W = RNG.uniform(0.5, 2.0, N)

LIGHTGBM = {"n_estimators": 6, "num_leaves": 9, "min_child_samples": 4, "verbose": -1, "n_jobs": 1}
XGBOOST = {"n_estimators": 6, "max_depth": 3, "n_jobs": 1}
HIST = {"max_iter": 6, "max_leaf_nodes": 9, "min_samples_leaf": 4, "early_stopping": False}
SIGNS = [1, -1, 1, 0]
SMOOTHED = {"path_smooth": 2.0, "max_delta_step": 0.1, **LIGHTGBM}


@dataclass(frozen=True)
class Bounded:
    """A model with monotone constraints, its targets, the link of its start, and g and h as functions of y and F."""

    model: object
    y: np.ndarray
    link: object
    slopes: object
    close: float  #: what rounding in the library leaves, of the largest score


def logistic(y, F):
    p = expit(F)
    return p - y, p * (1 - p)


def poisson(more):
    return lambda y, F: (np.exp(F) - y, np.exp(F + more))


MODELS = {
    "lightgbm binary": lambda: Bounded(
        lgb.LGBMClassifier(monotone_constraints=SIGNS, **LIGHTGBM), LABELS, logit, logistic, 1e-6
    ),
    "lightgbm binary l2 advanced": lambda: Bounded(
        lgb.LGBMClassifier(
            monotone_constraints=SIGNS,
            monotone_constraints_method="advanced",
            reg_lambda=1.0,
            **LIGHTGBM,
        ),
        LABELS,
        logit,
        logistic,
        1e-6,
    ),
    "lightgbm binary l1 clipped": lambda: Bounded(
        lgb.LGBMClassifier(
            monotone_constraints=SIGNS, reg_alpha=0.3, max_delta_step=1.0, **LIGHTGBM
        ),
        LABELS,
        logit,
        logistic,
        1e-6,
    ),
    "lightgbm poisson intermediate": lambda: Bounded(
        lgb.LGBMRegressor(
            objective="poisson",
            monotone_constraints=SIGNS,
            monotone_constraints_method="intermediate",
            **LIGHTGBM,
        ),
        COUNTS,
        np.log,
        poisson(0.7),
        1e-6,
    ),
    "xgboost binary": lambda: Bounded(
        xgb.XGBClassifier(monotone_constraints=tuple(SIGNS), **XGBOOST),
        LABELS,
        logit,
        logistic,
        1e-5,
    ),
    "xgboost poisson alpha": lambda: Bounded(
        xgb.XGBRegressor(
            objective="count:poisson", monotone_constraints=tuple(SIGNS), reg_alpha=0.5, **XGBOOST
        ),
        COUNTS,
        np.log,
        poisson(0.7),
        1e-5,
    ),
    "hist binary": lambda: Bounded(
        HistGradientBoostingClassifier(monotonic_cst=SIGNS, **HIST), LABELS, logit, logistic, 1e-6
    ),
    "hist poisson": lambda: Bounded(
        HistGradientBoostingRegressor(loss="poisson", monotonic_cst=SIGNS, **HIST),
        COUNTS,
        np.log,
        poisson(0.0),
        1e-6,
    ),
}

CLIPPED = {
    "lightgbm binary smoothed": lambda: Bounded(
        lgb.LGBMClassifier(**SMOOTHED), LABELS, logit, logistic, 1e-6
    ),
    "lightgbm binary smoothed l1": lambda: Bounded(
        lgb.LGBMClassifier(reg_alpha=0.3, **SMOOTHED), LABELS, logit, logistic, 1e-6
    ),
    "lightgbm poisson smoothed": lambda: Bounded(
        lgb.LGBMRegressor(objective="poisson", **SMOOTHED), COUNTS, np.log, poisson(0.7), 1e-6
    ),
    "lightgbm binary monotone": lambda: Bounded(
        lgb.LGBMClassifier(monotone_constraints=SIGNS, max_delta_step=0.1, **LIGHTGBM),
        LABELS,
        logit,
        logistic,
        1e-6,
    ),
    "lightgbm poisson monotone l1": lambda: Bounded(
        lgb.LGBMRegressor(
            objective="poisson",
            monotone_constraints=SIGNS,
            max_delta_step=0.1,
            reg_alpha=0.5,
            **LIGHTGBM,
        ),
        COUNTS,
        np.log,
        poisson(0.7),
        1e-6,
    ),
    "lightgbm binary plain": lambda: Bounded(
        lgb.LGBMClassifier(max_delta_step=0.1, reg_alpha=0.3, **LIGHTGBM),
        LABELS,
        logit,
        logistic,
        1e-6,
    ),
    "xgboost binary monotone": lambda: Bounded(
        xgb.XGBClassifier(
            monotone_constraints=tuple(SIGNS), max_delta_step=0.1, reg_alpha=0.5, **XGBOOST
        ),
        LABELS,
        logit,
        logistic,
        1e-5,
    ),
    "xgboost poisson plain": lambda: Bounded(
        xgb.XGBRegressor(objective="count:poisson", max_delta_step=0.1, reg_alpha=0.5, **XGBOOST),
        COUNTS,
        np.log,
        poisson(0.1),
        1e-5,
    ),
}  # where l1 or a largest step put constants into nodes whose gradients nearly cancel


@cache
def case(name):
    own = (MODELS | CLIPPED)[name]()
    own.model.fit(X, own.y, sample_weight=W)
    return own, axil.Explainer(own.model, X, own.y, sample_weight=W)


def newton_step(y, w, slopes):
    """Return the score that XGBoost before 3.1 starts from: one Newton step from 0, without the addition to hessians."""
    g, h = slopes(y, np.zeros(len(y)))
    return -(w @ g) / (w @ h)


class Fit:
    """The fit to other targets or weights on the same splits."""

    def __init__(self, name, y=None, w=W):
        own, explainer = case(name)
        walked = verified_model(explainer).boosting.walked
        trees = walked.fit
        y = own.y.astype(float) if y is None else y
        base = trees.initial.values[0]
        if (
            trees.initial.follows_targets
            and isinstance(own.model, xgb.XGBModel)
            and VERSION < (3, 1)
        ):
            base = newton_step(y, w, own.slopes)
        elif trees.initial.follows_targets:
            base = own.link(np.average(y, weights=w))
        rates = [coefficient for one in walked.rounds for _, coefficient in one.changes]
        self.leaves, self.rates, self.values, self.pulls = walked.leaves, rates, [], []
        F, self.base = np.full(N, base), base
        starts = np.append(0, np.cumsum(trees.table.n_leaves))
        for t, leaf in enumerate(self.leaves):
            g, h = own.slopes(y, F)
            sums, bends = np.zeros(starts[-1]), np.zeros(starts[-1])
            place = slice(starts[t], starts[t + 1])
            sums[place], bends[place] = (
                np.bincount(leaf, w * each, trees.table.n_leaves[t]) for each in (-g, h)
            )
            rule = (
                trees.leaf_rule.l2,
                trees.leaf_rule.l1,
                trees.leaf_rule.max_step,
                trees.leaf_rule.nodes,
                t,
            )
            values = bent_values(*rule, sums, bends)[0]
            self.values.append(values)
            self.pulls.append((rule, sums, bends, place, -w * g))
            F = F + self.rates[t] * values[leaf]

    def scores(self, leaves):
        return self.base + sum(
            r * v[at] for r, v, at in zip(self.rates, self.values, leaves.T.astype(int))
        )


def met(name, rows=NEW):
    return verified_model(case(name)[1]).queries(rows).coordinates


@pytest.mark.parametrize("name", MODELS)
def test_the_replay_is_the_fit(name):
    own, explainer = case(name)
    steps = verified_model(explainer).boosting.walked.steps
    assert explainer.kind == "additive"
    assert any(step.mix is not None for step in steps)  # a bound holds some leaf
    expected = verified_model(explainer).queries(NEW).predictions[:, 0]
    np.testing.assert_allclose(Fit(name).scores(met(name)), expected, rtol=0, atol=10 * own.close)


@pytest.mark.parametrize(
    "name", [name for name in MODELS if "l1" not in name and "alpha" not in name]
)
def test_pushes_go_through_bounds(name):
    """A leaf at a bound has its value from all rows below the two nodes that make it: shares by differences of the rule."""
    own, explainer = case(name)
    fit, leaves, expected = Fit(name), met(name).astype(int), np.zeros((len(NEW), N))
    for t, (rule, sums, bends, place, pull) in enumerate(fit.pulls):
        n = place.stop - place.start
        mixed = np.empty((n, n))
        for m in range(n):
            step = np.zeros_like(sums)
            step[place.start + m] = 1e-6
            mixed[:, m] = (
                bent_values(*rule, sums + step, bends)[0]
                - bent_values(*rule, sums - step, bends)[0]
            ) / 2e-6
        expected += fit.rates[t] * mixed[np.ix_(leaves[:, t], fit.leaves[t])] * pull
    explanation = explainer(NEW)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(
        explanation.contributions, expected, rtol=0, atol=max(1e-6, 10 * own.close) * scale
    )
    np.testing.assert_allclose(
        explanation.contributions.sum(axis=1) + explanation.intercepts,
        explanation.predictions,
        rtol=1e-9,
    )
    groups = np.arange(N) % 3
    by_group = (
        explainer.group(NEW, groups)
        .pivot(index="query", columns="group", values="contribution")
        .to_numpy()
    )
    sums = np.stack(
        [explanation.contributions[:, groups == g].sum(axis=1) for g in range(3)], axis=1
    )
    np.testing.assert_allclose(by_group, sums, atol=1e-10)


def raw_scores(own, X):
    """Return the library's own scores."""
    if isinstance(own.model, lgb.LGBMModel):
        return own.model.predict(X, raw_score=True)
    return own.model.predict(X, output_margin=True)


def node_shares(rule, sums, bends):
    """Return what leaf values are made of, (L, L), and the values: a node's part shrinks with its value."""
    _, l1, most, nodes, t = rule
    root, parts, found, n = nodes.starts[t], {}, {}, len(sums)

    def below(node):
        if nodes.leaf[node] >= 0:
            return [nodes.leaf[node]]
        return [leaf for child in nodes.children[node] for leaf in below(child)]

    def visit(node, parent):
        rows = below(node)
        S, denominator = sums[rows].sum(), bends[rows].sum() + nodes.l2[node]
        value = float(np.clip(np.sign(S) * max(abs(S) - l1, 0.0) / denominator, -most, most))
        part = np.zeros(n)
        part[rows] = (
            1.0 / denominator if abs(value * denominator) == abs(S) else abs(value) / abs(S)
        )
        if parent is not None:
            share = nodes.own[node]
            value = share * value + (1 - share) * found[parent]
            part = share * part + (1 - share) * parts[parent]
        found[node], parts[node] = value, part
        for child in nodes.children[node][nodes.children[node] >= 0]:
            visit(child, node)

    visit(root, None)
    at = {nodes.leaf[node]: node for node in found if nodes.leaf[node] >= 0}
    return np.array([parts[at[leaf]] for leaf in sorted(at)]), np.array(
        [found[at[leaf]] for leaf in sorted(at)]
    )


@pytest.mark.parametrize("name", [name for name in CLIPPED if "smoothed" in name])
def test_pushes_of_smoothed_leaves_with_constants(name):
    """L1 and a largest step act on nodes before smoothing mixes values; the rows below carry them."""
    explainer = case(name)[1]
    fit, leaves, expected = Fit(name), met(name).astype(int), np.zeros((len(NEW), N))
    for t, (rule, sums, bends, place, pull) in enumerate(fit.pulls):
        local = sums[place], bends[place]
        nodes = rule[3].tree(t)
        share, values = node_shares((rule[0], rule[1], rule[2], nodes, 0), *local)
        np.testing.assert_allclose(values, fit.values[t], atol=1e-9)
        expected += fit.rates[t] * share[np.ix_(leaves[:, t], fit.leaves[t])] * pull
    explanation = explainer(NEW)
    np.testing.assert_allclose(
        explanation.contributions, expected, rtol=0, atol=1e-6 * np.abs(expected).max()
    )


@pytest.mark.parametrize("name", [*MODELS, *CLIPPED])
def test_no_push_is_larger_than_the_terms_of_the_leaf_values(name):
    """A row puts at most |w g| / (H + l2) into a tree, H of its own leaf: no sum near zero divides."""
    own, explainer = case(name)
    walked, found = verified_model(explainer).boosting.walked, explainer(NEW)
    trees = walked.fit
    F, most = np.full(N, trees.initial.values[0]), np.zeros(N)
    for t, leaf in enumerate(walked.leaves):
        g, h = own.slopes(own.y, F)
        place = slice(walked.starts[t], walked.starts[t + 1])
        denominators = (
            np.bincount(leaf, W * h, len(trees.leaf_rule.l2[place])) + trees.leaf_rule.l2[place]
        )
        (rate,) = {coefficient for _, coefficient in walked.rounds[t].changes}
        most += rate * W * np.abs(g) / denominators[leaf]
        F = F + trees.table.leaf_values[place, 0][leaf]
    assert (np.abs(found.contributions) <= (1 + 1e-3) * most + 1e-12).all()
    if not isinstance(own.model, lgb.LGBMModel | xgb.XGBModel):
        return
    made = found.contributions.sum(axis=1) + found.intercepts
    np.testing.assert_allclose(made, raw_scores(own, NEW), rtol=0, atol=10 * own.close)


@pytest.mark.parametrize("name", ["lightgbm binary smoothed", "lightgbm poisson smoothed"])
def test_shares_that_are_quotients_of_rounding_are_refused(name, monkeypatch):
    """Shares of value / sum of the parts make pushes 1e15 times the score, which must not pass."""
    own, _ = case(name)

    coupled_leaves = NodeRule.coupled_leaves

    def quotients(rule, sums, weights):
        maps = coupled_leaves(rule, sums, weights)
        linear = maps.by_sum @ sums
        return replace(
            maps, share=(rule.leaf_values(sums, weights) / linear)[:, None] * maps.by_sum
        )

    monkeypatch.setattr(NodeRule, "coupled_leaves", quotients)
    with (
        np.errstate(all="ignore"),
        pytest.raises(axil.ExactnessError, match="sum of the contributions in a leaf"),
    ):
        axil.Explainer(own.model, X, own.y, sample_weight=W)


@pytest.mark.parametrize("name", MODELS)
def test_derivatives_go_through_bounds(name):
    own, explainer = case(name)
    by_target, by_weight = explainer(NEW).weights, explainer.jacobian.by_sample_weight(NEW)
    leaves, close = met(name), max(2e-5, 10 * own.close)
    scale = np.abs(by_target).max(), np.abs(by_weight).max()
    for j in (0, 31, 77, 140):
        unit, step = np.eye(N)[j], 1e-5
        y = own.y.astype(float)
        moved = [Fit(name, y + s * step * unit).scores(leaves) for s in (1, -1)]
        np.testing.assert_allclose(
            by_target[:, j], (moved[0] - moved[1]) / (2 * step), rtol=0, atol=close * scale[0]
        )
        moved = [Fit(name, w=W + s * step * unit).scores(leaves) for s in (1, -1)]
        np.testing.assert_allclose(
            by_weight[:, j], (moved[0] - moved[1]) / (2 * step), rtol=0, atol=close * scale[1]
        )


@pytest.mark.parametrize("name", MODELS)
def test_fits_without_rows_follow_the_bounds(name):
    own, explainer = case(name)
    for gone in ([3], [0, 40, 41, 90], list(range(0, N, 9))):
        w = W.copy()
        w[gone] = 0.0
        fit = Fit(name, w=w)
        if any(len(np.unique(leaf[w > 0])) < len(np.unique(leaf)) for leaf in fit.leaves):
            continue  # a node without rows is no bound
        table = explainer.without(NEW, gone)
        expected = fit.scores(met(name)) - Fit(name).scores(met(name))
        np.testing.assert_allclose(
            table["change"], expected, rtol=0, atol=max(1e-9, 10 * own.close)
        )


MONOTONE = [name for name in (*MODELS, *CLIPPED) if "smoothed" not in name]


def inner_values(own, model):
    """Return the values that the model keeps of its splits, tree after tree; None where it keeps none."""
    if isinstance(model, lgb.LGBMModel):
        trees = model.booster_.model_to_string().split("internal_value=")[1:]
        first = 1 if LIGHTGBM_VERSION < (4, 2) else 0  # LightGBM 4.1 wrote 0 for roots
        return np.concatenate(
            [np.array(tree.split("\n")[0].split()[first:], dtype=float) for tree in trees]
        )
    if isinstance(model, xgb.XGBModel):
        trees = json.loads(model.get_booster().save_raw("json"))["learner"]["gradient_booster"][
            "model"
        ]["trees"]
        return np.concatenate([
            np.array(tree["base_weights"])[np.array(tree["left_children"]) >= 0] for tree in trees
        ])  # fmt: skip
    return None


@pytest.mark.parametrize("name", MONOTONE)
@pytest.mark.parametrize("kind", ["few rows", "many rows", "a whole leaf"])
def test_refits_keep_the_bounds(name, kind):
    """The model that is written is verified with its inner nodes, and predicts what `without` says."""
    own, explainer = case(name)
    leaf = verified_model(explainer).boosting.walked.leaves[0]
    gone = {
        "few rows": [0, 40, 41],
        "many rows": range(0, N, 3),
        "a whole leaf": np.flatnonzero(leaf == leaf[0]),
    }
    gone = list(gone[kind])
    again = explainer.refit(drop=gone)
    after = explainer.without(NEW, gone)["after"]
    found = verified_model(again).queries(NEW).predictions[:, 0]
    np.testing.assert_allclose(found, after, rtol=0, atol=10 * own.close)
    contributions = again(NEW)
    made = contributions.contributions.sum(axis=1) + contributions.intercepts
    np.testing.assert_allclose(made, found, rtol=0, atol=10 * own.close)
    changed = inner_values(own, again.model)
    if changed is None:
        return
    assert changed.shape == inner_values(own, own.model).shape
    assert not np.allclose(changed, inner_values(own, own.model), atol=1e-4)
    kept = np.delete(np.arange(N), gone)
    y = own.y.copy()
    y[kept[:2]] = 1 - (y[kept[:2]] > 0)
    with pytest.raises(axil.AxilError):
        axil.Explainer(again.model, X[kept], y[kept], sample_weight=W[kept])


@pytest.mark.parametrize("name", MONOTONE)
def test_refits_to_other_targets_are_what_if(name):
    own, explainer = case(name)
    targets = {int(row): int(own.y[row] == 0) for row in (5, 80, 81)}
    again = explainer.refit(targets=targets)
    expected = explainer.what_if(NEW, targets)["after"]
    np.testing.assert_allclose(again(NEW).predictions, expected, rtol=0, atol=10 * own.close)


def test_a_refit_of_all_rows_is_the_model():
    """Node after node, as LightGBM and XGBoost wrote them."""
    for name in ("lightgbm binary", "lightgbm poisson intermediate", "xgboost binary"):
        own, explainer = case(name)
        again = explainer.refit(drop=[])
        expected = inner_values(own, own.model)
        np.testing.assert_allclose(inner_values(own, again.model), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_wrong_targets_do_not_pass(name):
    own, explainer = case(name)
    leaves, rng = verified_model(explainer).boosting.walked.leaves, np.random.default_rng(0)
    for _ in range(4):
        i, j = rng.choice(N, 2, replace=False)
        if own.y[i] == own.y[j] or (leaves[:, i] == leaves[:, j]).all():
            continue  # of two rows that share all leaves no model shows whose target is whose
        y = own.y.copy()
        y[[i, j]] = y[[j, i]]
        with pytest.raises(axil.AxilError):
            axil.Explainer(own.model, X, y, sample_weight=W)
    with pytest.raises(axil.AxilError):
        axil.Explainer(own.model, X, own.y)  # without the weights


def test_saved_and_loaded(tmp_path):
    own, explainer = case("lightgbm binary")
    explainer.save(tmp_path / "bounded.npz")
    again = axil.load(tmp_path / "bounded.npz", own.model)
    np.testing.assert_array_equal(again(NEW).contributions, explainer(NEW).contributions)
    v = np.linspace(-1, 1, N)
    np.testing.assert_allclose(
        explainer.jacobian.operator.T @ v, explainer(X).weights.T @ v, atol=1e-12
    )
    np.testing.assert_allclose(
        explainer.jacobian.operator @ v, explainer(X).weights @ v, atol=1e-12
    )


def test_constraints_of_zero_beside_l1():
    """XGBoost takes gains of splits from leaf values then, so that the gain of a stump does not show its rate."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(60, 1))
        labels = (rows[:, 0] + rng.normal(size=60) > 0).astype(int)
        settings = {
            "monotone_constraints": (0,),
            "reg_alpha": 1.0,
            "max_depth": 1,
            "n_estimators": 3,
            "n_jobs": 1,
        }
        model = xgb.XGBClassifier(learning_rate=0.1, **settings).fit(rows, labels)
        explanation = axil.Explainer(model, rows, labels)(rows)
        made = explanation.contributions.sum(axis=1) + explanation.intercepts
        np.testing.assert_allclose(made, model.predict(rows, output_margin=True), rtol=0, atol=1e-5)
