"""ActiveSet: what is fixed besides the splits, its radius, and wrong data that it must reveal."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb

import axil
from axil.methods.method import verified_model
from axil.replay.radius import ActiveSet, leaves_beyond
from tests.adapters.lightgbm_models import CASES
from tests.reference import bent_values
from tests.subsets import mostly_slow

NAMES = [
    name
    for name in CASES
    if name.startswith(("lambda_l1", "max_delta_step", "monotone")) and "=0" not in name
]


def explained(case, **changed):
    given = {
        "sample_weight": case.sample_weight,
        "init_score": case.init_score,
        "y": case.y,
        "X": case.X,
    } | changed
    X, y = given.pop("X"), given.pop("y")
    return axil.Explainer(case.model, X, y, **given)


@pytest.mark.parametrize("name", NAMES)
def test_weights_and_intercept_are_the_prediction(name):
    case = CASES[name]()
    explainer = explained(case)
    held = explainer.verification.active_set
    assert isinstance(held, ActiveSet)
    assert 0 < held.share <= 1
    assert held.radius > 0
    assert (held.shift == 0) == (held.moved + held.clipped == 0)
    expected = case.model.predict(case.X_new)
    for one in (explainer, explainer.precompute()):
        explanation = one(case.X_new)
        assert explanation.exact
        # Targets and residuals are float32 in LightGBM, so predictions differ by that.
        np.testing.assert_allclose(
            explanation.weights @ case.y + explanation.intercepts, expected, atol=1e-5
        )
    assert str(held) in repr(explainer.verification)


@pytest.mark.parametrize("draws", [1, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", mostly_slow(3, NAMES))
def test_wrong_data_do_not_pass(name, draws):
    case, rng = CASES[name](), np.random.default_rng(0)
    spread, leaves = case.y.std(), case.model.predict(case.X, pred_leaf=True)
    for j in rng.integers(0, len(case.y), draws):
        y = case.y.copy()
        y[j] += spread * rng.choice([-1, 1])
        with pytest.raises(axil.ExactnessError):
            explained(case, y=y)
    for i, j in rng.integers(0, len(case.y), (draws, 2)):
        alike = (
            leaves[i] == leaves[j]
        ).all()  # of two rows that share all leaves no model shows whose target is whose
        if alike or abs(case.y[i] - case.y[j]) < 0.1 * spread:
            continue
        y = case.y.copy()
        y[[i, j]] = y[[j, i]]
        with pytest.raises(axil.ExactnessError):
            explained(case, y=y)
    rows = np.delete(np.arange(len(case.y)), 7)
    fewer = {"sample_weight": case.sample_weight, "init_score": case.init_score}
    fewer = {key: None if value is None else value[rows] for key, value in fewer.items()}
    with pytest.raises(axil.ExactnessError):
        explained(case, X=case.X[rows], y=case.y[rows], **fewer)
    weights = np.ones(len(case.y)) if case.sample_weight is None else case.sample_weight
    with pytest.raises(axil.AxilError):  # path_smooth with weights is refused
        explained(case, sample_weight=1.5 * weights)


def refit(case, structure, y):
    """The fit to targets y on the same splits, node after node; its patterns are its own. Leaf values (L,)."""
    rule, s = structure.newton_rule, structure
    w = np.ones(s.n_rows) if s.row_weights is None else s.row_weights
    residual, values = y - np.average(y, weights=w), np.zeros(s.total_leaves)
    for t in range(s.n_trees):
        own = slice(s.starts[t], s.starts[t + 1])
        sums = np.zeros(s.total_leaves)
        sums[own] = np.bincount(s.cells[t], w * residual, s.n_leaves[t])
        values[own] = bent_values(
            rule.l2, rule.l1, rule.max_step, rule.nodes, t, sums, s.leaf_weights
        )[0]
        residual = residual - s.learning_rates[t] * values[own][s.cells[t]]
    return values


@pytest.mark.parametrize(
    "name",
    [
        "lambda_l1=2",
        "lambda_l1=40",
        "monotone",
        "monotone weighted lambda_l2=2",
        "lambda_l1 path_smooth=3",
    ],
)
def test_the_pattern_holds_up_to_the_radius(name):
    case = CASES[name]()
    explainer = explained(case)
    (engine,), radius = verified_model(explainer).engines, explainer.verification.active_set.radius
    rng = np.random.default_rng(1)
    largest = np.abs(engine.fit(case.y[:, None]).values).max()
    for j in rng.integers(0, len(case.y), 10):
        y = case.y.copy()
        y[j] += 0.99 * radius * rng.choice([-1, 1])
        found = engine.fit(y[:, None]).values[:, 0]
        np.testing.assert_allclose(found, refit(case, engine.structure, y), atol=1e-9 * largest)
    far = case.y + 50 * rng.normal(size=len(case.y))
    found, expected = engine.fit(far[:, None]).values[:, 0], refit(case, engine.structure, far)
    assert np.abs(found - expected).max() > 1e-3 * largest


@pytest.mark.parametrize("most", [None, 16])
def test_the_radius_is_a_bound_for_every_direction(most, monkeypatch):
    """One target or all of them, in many small models; also where derivatives of few changes are computed."""
    if most is not None:
        monkeypatch.setattr("axil.weights.sum_rule.SECONDS", 0.0)
    rng, bagged, moved = np.random.default_rng(0), 0, 0
    for seed in range(25):
        n = int(rng.integers(30, 150))
        # At a rate of one leaves that come again have sums of exactly l1: many are near to a change that no target makes.
        X, y = rng.integers(0, 4, size=(n, 2)).astype(float), rng.normal(size=n)
        w = None if seed % 3 == 0 else 10 ** rng.uniform(-2, 2, n)
        sampled = {"subsample": 0.6, "subsample_freq": 1} if seed % 4 == 0 else {}
        model = lgb.LGBMRegressor(
            n_estimators=12, num_leaves=16, min_child_samples=2, reg_alpha=10 ** rng.uniform(-2, 1),
            learning_rate=rng.choice([0.5, 1.0]), verbose=-1, random_state=seed, **sampled,
        )  # fmt: skip
        explainer = axil.Explainer(model.fit(X, y, sample_weight=w), X, y, sample_weight=w)
        (engine,), radius = (
            verified_model(explainer).engines,
            explainer.verification.active_set.radius,
        )
        bagged += bool(sampled) and radius > 0
        if not 0 < radius < np.inf:
            continue
        targets, s = verified_model(explainer).targets, engine.structure
        slopes = engine.sum_weights(np.eye(s.total_leaves))
        gaps = np.abs(np.abs(engine.fit(targets).sums[:, 0]) - s.newton_rule.l1)
        soonest = np.argsort(gaps / np.abs(slopes).max(axis=0))[
            :3
        ]  # and the target that brings each of them nearest
        single = [*np.abs(slopes[:, soonest]).argmax(axis=0), *rng.integers(0, n, 4)]
        for direction in [*np.eye(n)[single], *-np.eye(n)[single], *rng.normal(size=(4, n))]:
            move = rng.choice([-1, 1]) * 0.999 * radius * direction / np.abs(direction).sum()
            assert leaves_beyond(engine, targets + move[:, None], targets) == 0
            moved += 1
    assert moved > 100
    assert (
        most is not None or bagged
    )  # without a bound of the others' slopes all changes have to be looked at


def test_steps_add_up_to_the_prediction():
    case = CASES["lambda_l1=2"]()
    explainer = explained(case)
    steps = explainer.jacobian.gradient_contributions(case.X_new)
    expected = case.model.predict(case.X_new) - case.y.mean()
    np.testing.assert_allclose(steps.sum(axis=1), expected, atol=1e-5)  # float32 residuals


def test_saved_and_loaded(tmp_path):
    case = CASES["monotone lambda_l1 max_delta_step path_smooth"]()
    explainer = explained(case)
    explainer.save(tmp_path / "explainer.npz")
    again = axil.load(tmp_path / "explainer.npz", case.model)
    assert again.verification == explainer.verification
    np.testing.assert_array_equal(again(case.X_new).weights, explainer(case.X_new).weights)
    np.testing.assert_array_equal(again(case.X_new).intercepts, explainer(case.X_new).intercepts)
    pd.testing.assert_frame_equal(
        again.what_if(case.X_new, {0: 1000.0}), explainer.what_if(case.X_new, {0: 1000.0})
    )


def test_a_county(tmp_path):
    """As many leaves per tree as those who publish comparables for every home have, and their L1."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 12))
    y = 300 + 40 * X[:, 0] + 30 * np.abs(X[:, 1]) + 20 * rng.normal(size=3000)
    params = {
        "num_leaves": 235,
        "min_data_in_leaf": 2,
        "lambda_l1": 0.349,
        "learning_rate": 0.05,
        "verbose": -1,
    }
    model = lgb.train(params, lgb.Dataset(X, y), 40)
    explainer = axil.Explainer(model, X, y)
    explanation = explainer(X[:5])
    np.testing.assert_allclose(
        explanation.weights @ y + explanation.intercepts, model.predict(X[:5]), rtol=1e-6
    )
    assert 0 < explainer.verification.active_set.shift < 1  # cents of prices in thousands


def test_leaves_that_are_all_at_zero_stay_there():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    model = xgb.XGBRegressor(n_estimators=2, max_depth=2, reg_alpha=1e3, base_score=0.5).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    np.testing.assert_allclose(explainer.without(X[:3], [0, 1, 2])["change"], 0.0, atol=1e-12)
