"""Fits without rows where leaf values have a pattern: against replays in NumPy, tree by tree, by the rule of the library."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

import axil
from axil.attribution import notes
from axil.methods.method import verified_model
from axil.structure import IsotonicRule, NodeRule, Nodes
from axil.weights.work import DeletionWork
from tests.adapters import catboost_models, lightgbm_models, sklearn_models, xgboost_models
from tests.reference import bent_values

SMOOTH = {
    "path_smooth=2": 2.0,
    "monotone lambda_l1 max_delta_step path_smooth": 2.0,
    "bagging path_smooth=3": 3.0,
}
NAMES = {
    lightgbm_models: [
        *(
            "lambda_l1=2",
            "lambda_l1=40",
            "monotone",
            "monotone dart",
            "monotone bagging",
            "monotone intermediate",
        ),
        *("monotone weighted lambda_l2=2", "monotone advanced", *SMOOTH),
    ],
    xgboost_models: [
        "reg_alpha=2",
        "reg_alpha dart",
        "monotone",
        "monotone reg_alpha max_delta_step",
    ],
    catboost_models: ["monotone constraints", "monotone weighted", "monotone l2_leaf_reg=0"],
    sklearn_models: ["hist monotonic_cst", "hist monotonic_cst l2 weighted"],
}
CASES = {
    f"{module.__name__.split('.')[-1][:-7]} {name}": module.CASES[name]
    for module, names in NAMES.items()
    for name in names
}
SINGLE = [
    ("lightgbm lambda_l1=40", "the leaf matrix"),
    ("lightgbm lambda_l1=40", "replays"),
    ("xgboost reg_alpha=2", "the leaf matrix"),
    ("xgboost monotone reg_alpha max_delta_step", "replays"),
    pytest.param("catboost monotone weighted", "replays", marks=pytest.mark.slow),
    pytest.param("lightgbm bagging path_smooth=3", "replays", marks=pytest.mark.slow),
]


def leaf_values(s, t, sums, weights, nodes):
    """(L_t,): the values of tree t's leaves by the rule of its library."""
    rule, own = s.leaf_rule.newton, slice(s.starts[t], s.starts[t + 1])
    if nodes is not None:
        every, W = np.zeros(s.total_leaves), np.zeros(s.total_leaves)
        every[own], W[own] = sums, weights
        return bent_values(rule.l2, rule.l1, rule.max_step, nodes, t, every, W)[0]
    D = weights + rule.l2[own]
    value = np.divide(
        np.sign(sums) * np.maximum(np.abs(sums) - rule.l1, 0.0),
        D,
        out=np.zeros_like(D),
        where=D > 0,
    )
    if isinstance(rule, IsotonicRule):
        order, starts = rule.chains.order, rule.chains.starts
        for first, last in pairwise(starts):
            at = order[first:last] - own.start
            if own.start <= order[first] < own.stop and len(at) > 1:
                places = np.arange(len(at))
                value[at] = (
                    IsotonicRegression()
                    .fit(places, value[at], np.maximum(D[at], 1e-300))
                    .predict(places)
                )
    return np.clip(value, -rule.max_step, rule.max_step)


def refit(s, y, gone, smooth):
    """The base and the leaf values of the fit without the rows ``gone``, on the same splits and draws."""
    w = np.ones(s.n_rows) if s.row_weights is None else s.row_weights.copy()
    before, left = w.mean(), np.delete(np.arange(s.n_rows), gone)
    w[gone] = 0.0
    rule, nodes = s.leaf_rule.newton, getattr(s.leaf_rule.newton, "nodes", None)
    leaves = s.leaves().astype(int)
    draws = s.sample_counts[(s.cells // s.n_leaves[:, None].astype(s.cells.dtype)).astype(int)]
    omega = (
        np.tril(np.tile(s.learning_rates, (s.n_trees + 1, 1)), -1)
        if s.coefficients is None
        else s.coefficients.omega
    )
    base = np.average(y, weights=w) if s.initial is None else s.initial[0]
    started = y if s.offsets is None else y - s.offsets[:, 0]
    if rule.by_weight:
        rule = replace(rule, l2=rule.l2 * w[left].mean() / before)
        s = type(s)(
            **{
                **{f: getattr(s, f) for f in s.__dataclass_fields__ if f != "starts"},
                "leaf_rule": replace(s.leaf_rule, newton=rule),
            }
        )
    if smooth:
        counts = [
            np.bincount(leaves[t][left], draws[t][left] > 0, s.n_leaves[t])
            for t in range(s.n_trees)
        ]
        n = nodes.totals(np.concatenate(counts).astype(float))
        nodes = type(nodes)(
            **{
                **{f: getattr(nodes, f) for f in nodes.__dataclass_fields__},
                "own": n / (n + smooth),
            }
        )
    values = np.zeros(s.total_leaves)
    for t in range(s.n_trees):
        seen = started - s.beta[t] * base
        for u in range(t):
            seen = seen - omega[t, u] * values[s.starts[u] + leaves[u].astype(int)]
        sums, weights = (
            np.bincount(leaves[t], w * draws[t] * v, s.n_leaves[t])
            for v in (seen, np.ones(s.n_rows))
        )
        values[s.starts[t] : s.starts[t + 1]] = leaf_values(s, t, sums, weights, nodes)
    return base, values


def predicted(s, base, values, leaves):
    return s.beta[-1] * base + s.final @ values[s.starts[:-1, None] + leaves.T.astype(int)]


def emptied(s, gone):
    """Whether some leaf has no row left."""
    left = np.delete(np.arange(s.n_rows), gone)
    return any(
        len(np.unique(s.leaves()[t][left])) < len(np.unique(s.leaves()[t]))
        for t in range(s.n_trees)
    )


def explained(case):
    given = {"sample_weight": case.sample_weight, "init_score": getattr(case, "init_score", None)}
    return axil.Explainer(case.model, case.X, case.y, **given)


def asked(name):
    """An explainer, its structure, queries, their leaves, targets and the fit without rows of a case."""
    case = CASES[name]()
    explainer, smooth = explained(case), SMOOTH.get(name.partition(" ")[2], 0.0)
    s, y = verified_model(explainer).engines[0].structure, verified_model(explainer).targets[:, 0]
    leaves = verified_model(explainer).queries(case.X_new[:3]).coordinates
    own = leaves if s.columns is None else leaves[:, s.columns]
    return case, explainer, s, own, lambda gone: refit(s, y, gone, smooth)


@pytest.mark.parametrize("name", CASES)
def test_fits_without_rows_follow_the_rule(name):
    (case, explainer, s, leaves, without), rng = asked(name), np.random.default_rng(0)
    scale, done = np.abs(case.y).max(), 0
    for size in (1, 40):
        gone = rng.choice(s.n_rows, size, replace=False)
        if isinstance(s.leaf_rule.newton, NodeRule) and emptied(s, gone):
            continue
        changes = explainer.without(case.X_new[:3], explainer.index[gone])
        np.testing.assert_allclose(
            changes["after"], predicted(s, *without(gone), leaves), rtol=0, atol=1e-9 * scale
        )
        assert changes.attrs["axil"] == notes.PATTERN
        done += 1
    assert done


@pytest.mark.parametrize(("name", "way"), SINGLE)
def test_single_rows_that_change_the_pattern_are_replayed(name, way, monkeypatch):
    monkeypatch.setattr(
        DeletionWork,
        "uses_leaf_matrix",
        lambda self, available: way == "the leaf matrix" and self.in_leaf_matrix < np.inf,
    )
    case, explainer, s, leaves, without = asked(name)
    own, scale, some = s.leaves().T, np.abs(case.y).max(), np.arange(0, s.n_rows, 23)
    before, effects, left_out = (
        explainer(case.X_new[:3]).predictions,
        explainer.removal(case.X_new[:3]),
        explainer.diagnostics.leave_one_out(),
    )
    offsets = np.zeros(s.n_rows) if s.offsets is None else s.offsets[:, 0]
    for j in some:
        base, values = without([j])
        if isinstance(s.leaf_rule.newton, NodeRule) and emptied(s, [j]):
            continue
        np.testing.assert_allclose(
            effects[:, j], predicted(s, base, values, leaves) - before, rtol=0, atol=1e-8 * scale
        )
        if not left_out["alone"][j]:
            expected = predicted(s, base, values, own[[j]]) + offsets[j]
            np.testing.assert_allclose(
                left_out["prediction"][j], expected[0], rtol=0, atol=1e-8 * scale
            )
    assert left_out.attrs["axil"].startswith(notes.PATTERN)


def test_a_node_without_rows_is_no_bound_of_others():
    nodes = Nodes(
        starts=np.array([0, 7]),
        children=np.array([[1, 2], [3, 4], [5, 6], *[[-1, -1]] * 4]),
        leaf=np.array([-1, -1, -1, 0, 1, 2, 3]),
        l2=np.zeros(7),
        values=np.full(7, np.nan),
        signs=np.array([1, 0, 0, 0, 0, 0, 0], dtype=np.int8),
    )
    rule, sums, weights = (
        NodeRule(np.zeros(4), np.ones(4), nodes=nodes),
        np.array([0.0, 12, 10, 14]),
        np.full(4, 2.0),
    )
    np.testing.assert_allclose(
        rule.leaf_values(sums, weights), [0, 4.5, 5, 7]
    )  # the middle of 3 and 6
    gone = np.array([False, False, True, True])
    rule = replace(rule, nodes=nodes.emptied(gone))
    np.testing.assert_allclose(
        rule.leaf_values(np.where(gone, 0, sums), np.where(gone, 0, weights)), [0, 6, 0, 0]
    )
