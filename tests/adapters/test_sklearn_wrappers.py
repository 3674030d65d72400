"""Models of several others: voting, bagging and one model for each output, against the library and against sums of members."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from functools import cache

import catboost
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import sklearn
import xgboost as xgb
from scipy.sparse import csr_matrix, issparse
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.linear_model import Lasso, LinearRegression, Ridge, RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import axil
from axil import baselines
from axil.methods.method import verified_model
from tests.adapters.sklearn_models import Case, labels, table

DATA = table(160)
TWO = np.stack([DATA.y, DATA.y**2 / 5], axis=1)
CLASSES = labels(DATA.y)


def lgbm(**settings):
    return lgb.LGBMRegressor(
        **{"n_estimators": 5, "num_leaves": 6, "verbose": -1, "n_jobs": 1, **settings}
    )


def boost():
    return xgb.XGBRegressor(n_estimators=5, max_depth=3, n_jobs=1)


def frame(rows):
    return pd.DataFrame(rows, columns=[f"feature {i}" for i in range(rows.shape[1])])


def fit(model, X=DATA.X, y=DATA.y, weight=None, X_new=DATA.X_new):
    return Case(
        model.fit(X, y) if weight is None else model.fit(X, y, sample_weight=weight),
        X,
        y,
        weight,
        X_new,
    )


def voting(*members, **settings):
    return VotingRegressor([(f"m{i}", member) for i, member in enumerate(members)], **settings)


FOREST = RandomForestRegressor(4, max_depth=5, random_state=0)
STEPS = GradientBoostingRegressor(n_estimators=4, random_state=0)
CASES = {
    "voting": lambda: fit(voting(Ridge(), FOREST, lgbm())),
    "voting weighted": lambda: fit(voting(Ridge(), STEPS, weights=[3.0, 1.0]), weight=DATA.weight),
    "voting of boosting": lambda: fit(voting(lgbm(reg_lambda=1.0), boost(), weights=[1, 2])),
    "voting with catboost": lambda: fit(
        voting(
            catboost.CatBoostRegressor(iterations=4, verbose=False, thread_count=1),
            LinearRegression(),
        )
    ),
    "voting dropped": lambda: fit(
        voting(Ridge(), FOREST, LinearRegression(), weights=[1, 5, 2]).set_params(m1="drop")
    ),
    "voting of pipelines": lambda: fit(
        voting(
            make_pipeline(StandardScaler(), KNeighborsRegressor(5)),
            GridSearchCV(Ridge(), {"alpha": [1.0, 9.0]}, cv=2),
        )
    ),
    "voting in a pipeline": lambda: fit(
        make_pipeline(StandardScaler(), voting(Ridge(), KNeighborsRegressor(3)))
    ),
    "voting in a search": lambda: fit(
        GridSearchCV(voting(Ridge(), FOREST), {"weights": [[1, 3], [2, 1]]}, cv=2)
    ),
    "voting of voting": lambda: fit(voting(Ridge(), voting(FOREST, LinearRegression()))),
    "voting of a frame": lambda: fit(
        voting(lgbm(), Ridge()), frame(DATA.X), X_new=frame(DATA.X_new)
    ),
    "voting sparse weights": lambda: fit(voting(KNeighborsRegressor(3), FOREST)),
    "voting sparse rows": lambda: fit(
        voting(Ridge(), FOREST), csr_matrix(DATA.X), X_new=csr_matrix(DATA.X_new)
    ),
    "voting soft": lambda: fit(
        VotingClassifier(
            [("f", RandomForestClassifier(4, random_state=0)), ("k", KNeighborsClassifier(5))],
            voting="soft",
            weights=[2, 1],
        ),
        y=CLASSES,
    ),
    "voting soft weighted": lambda: fit(
        VotingClassifier(
            [
                ("f", RandomForestClassifier(4, bootstrap=False, random_state=0)),
                ("t", DecisionTreeClassifier(max_depth=3)),
            ],
            voting="soft",
        ),
        y=CLASSES,
        weight=DATA.weight,
    ),
    "outputs lightgbm": lambda: fit(MultiOutputRegressor(lgbm()), y=TWO),
    "outputs xgboost weighted": lambda: fit(
        MultiOutputRegressor(boost()), y=TWO, weight=DATA.weight
    ),
    "outputs ridge": lambda: fit(MultiOutputRegressor(Ridge()), y=TWO),
    "outputs steps in a pipeline": lambda: fit(
        make_pipeline(StandardScaler(), MultiOutputRegressor(STEPS)), y=TWO
    ),
    "one output": lambda: fit(MultiOutputRegressor(lgbm()), y=TWO[:, :1]),
    "bagging linear": lambda: fit(BaggingRegressor(LinearRegression(), 5, random_state=0)),
    "bagging ridge columns": lambda: fit(
        BaggingRegressor(Ridge(), 5, max_features=3, max_samples=0.6, random_state=0)
    ),
    "bagging ridge weighted": lambda: fit(
        BaggingRegressor(Ridge(), 5, random_state=0), weight=DATA.weight
    ),
    "bagging without replacement": lambda: fit(
        BaggingRegressor(Ridge(), 4, bootstrap=False, max_samples=0.9, random_state=0)
    ),
    "bagging neighbours": lambda: fit(
        BaggingRegressor(KNeighborsRegressor(3), 5, max_features=4, random_state=0)
    ),
    "bagging columns drawn again": lambda: fit(
        BaggingRegressor(Ridge(), 4, max_features=5, bootstrap_features=True, random_state=0)
    ),
    "bagging boosting": lambda: fit(BaggingRegressor(lgbm(), 3, random_state=0)),
    "bagging outputs": lambda: fit(BaggingRegressor(Ridge(), 3, random_state=0), y=TWO),
    "bagging of a frame": lambda: fit(
        BaggingRegressor(Ridge(), 3, max_features=3, random_state=0),
        frame(DATA.X),
        X_new=frame(DATA.X_new),
    ),
    "bagging pipelines": lambda: fit(
        BaggingRegressor(make_pipeline(StandardScaler(), Ridge()), 3, random_state=0)
    ),
    "bagging neighbours of classes": lambda: fit(
        BaggingClassifier(KNeighborsClassifier(5), 3, random_state=0), y=CLASSES
    ),
}
CASES = {name: cache(make) for name, make in CASES.items()}
# LightGBM, XGBoost and CatBoost keep targets in float32; all others are closer by far.
CLOSE, SIZE = 1e-6, float(np.abs(TWO).max())


def expected(case, X):
    predictions = (
        case.model.predict_proba(X)
        if hasattr(case.model, "predict_proba")
        else case.model.predict(X)
    )
    return np.asarray(predictions).reshape(X.shape[0], -1)


def explain(case):
    return axil.Explainer(case.model, case.X, case.y, sample_weight=case.sample_weight)


def made(explanation, case):
    """(n, K): weights times targets and intercepts."""
    found = explanation.predictions
    return found.reshape(case.X_new.shape[0], -1)


@pytest.mark.parametrize("name", CASES)
def test_weights_make_the_predictions(name):
    case = CASES[name]()
    assert axil.supports(case.model).exact
    explainer = explain(case)
    right = expected(case, case.X_new)
    np.testing.assert_allclose(
        made(explainer(case.X_new), case), right, rtol=0, atol=CLOSE * np.abs(right).max()
    )
    assert len(explainer.top(case.X_new, k=2)) == 2 * right.size
    assert "Verification" in repr(explainer.verification)


@pytest.mark.parametrize("name", CASES)
def test_the_map_is_the_same_however_it_is_asked(name):
    explainer = explain(CASES[name]())
    matrix = explainer.jacobian.matrix()
    K = np.swapaxes(matrix, 0, 1) if matrix.ndim == 3 else matrix[None]
    rng, rows = np.random.default_rng(0), [3, 8, 9]
    for k, engine in enumerate(verified_model(explainer).engines):
        v = rng.normal(size=(len(K[k]), 2))
        scale = np.abs(v).max()
        # sums of float64 numbers in another order, some through the leaf matrix
        np.testing.assert_allclose(engine.matvec(None, v), K[k] @ v, rtol=0, atol=1e-11 * scale)
        np.testing.assert_allclose(engine.rmatvec(None, v), K[k].T @ v, rtol=0, atol=1e-11 * scale)
        np.testing.assert_allclose(engine.leverage(1 << 30), np.diagonal(K[k]), rtol=0, atol=1e-11)
        np.testing.assert_allclose(engine.squares(1 << 30), np.square(K[k]).sum(), rtol=1e-9)
    reached = explainer.jacobian.sensitivity(CASES[name]().X, rows)
    np.testing.assert_allclose(reached, matrix[..., rows], rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", CASES)
def test_copies_of_explainers_give_the_same_bits(name):
    explainer, rows = explain(CASES[name]()), CASES[name]().X_new
    for again in (copy.deepcopy(explainer), pickle.loads(pickle.dumps(explainer))):
        found, expected = again(rows).weights, explainer(rows).weights
        np.testing.assert_array_equal(found, expected)


def wrong(case):
    """The case with one target changed, two of them swapped, and one row left out."""
    one, two = case.y.copy(), case.y.copy()
    other = (
        int(np.flatnonzero(case.y != case.y[3])[0])
        if case.y.dtype.kind == "U"
        else int(DATA.y.argmax())
    )
    one[3] = case.y[other] if case.y.dtype.kind == "U" else one[3] + 0.5
    two[[3, other]] = two[[other, 3]]
    weight = None if case.sample_weight is None else case.sample_weight[1:]
    yield replace(case, y=one)
    yield replace(case, y=two)
    yield replace(case, X=case.X[1:], y=case.y[1:], sample_weight=weight)
    if case.sample_weight is not None:
        yield replace(case, sample_weight=case.sample_weight * np.linspace(1, 2, len(case.y)))


@pytest.mark.parametrize("name", CASES)
def test_other_data_than_those_of_the_fit_show(name):
    for given in wrong(CASES[name]()):
        with pytest.raises((axil.ExactnessError, axil.InputError)):
            explain(given)


@pytest.mark.parametrize(
    "name",
    [
        "voting in a pipeline",
        "bagging ridge columns",
        "bagging neighbours",
        "bagging pipelines",
        "outputs ridge",
    ],
)
def test_a_what_if_is_a_refit_where_no_split_can_move(name):
    case = CASES[name]()
    changed = case.y.copy()
    changed[:4] += 2.0
    table = explain(case).what_if(case.X_new, {row: changed[row] for row in range(4)})
    right = clone(case.model).fit(case.X, changed).predict(case.X_new)
    np.testing.assert_allclose(
        table["after"], right.ravel(), rtol=0, atol=1e-10 * np.abs(right).max()
    )


def test_removal_adds_up():
    case = CASES["voting weighted"]()
    members = [
        axil.Explainer(model, case.X, case.y, sample_weight=case.sample_weight)
        for model in case.model.estimators_
    ]
    parts = [member.removal(case.X_new) for member in members]
    np.testing.assert_allclose(
        explain(case).removal(case.X_new), (3 * parts[0] + parts[1]) / 4, rtol=0, atol=1e-12
    )
    with pytest.raises(axil.UnsupportedQuestionError, match=r"jacobian\.gradient_contributions"):
        explain(case).jacobian.gradient_contributions(case.X_new)


def test_removal_of_bags_is_a_derivative_by_the_weights_of_the_rows():
    case = CASES["bagging ridge columns"]()
    found, row = explain(case).removal(case.X_new, method="first-order"), 5
    slope = np.zeros(len(case.X_new))
    for model, bag, columns in zip(
        case.model.estimators_, case.model.estimators_samples_, case.model.estimators_features_
    ):
        draws = np.bincount(bag, minlength=len(case.y)).astype(float)
        for sign in (-1, 1):
            weight = draws * (1 + sign * 1e-5 * (np.arange(len(draws)) == row))
            again = clone(model).fit(case.X[:, columns], case.y, sample_weight=weight)
            slope -= (
                sign * again.predict(case.X_new[:, columns]) / 2e-5 / len(case.model.estimators_)
            )
    np.testing.assert_allclose(found[:, row], slope, rtol=0, atol=1e-7)  # of a difference quotient


@pytest.mark.parametrize(
    "name",
    ["voting", "voting of voting", "outputs lightgbm", "bagging boosting", "bagging pipelines"],
)
def test_deletions_of_sums_are_fits_without_the_row(name):
    case = CASES[name]()
    explainer, row = explain(case), 5
    found = explainer.removal(case.X_new, method="exact")
    table = explainer.without(case.X_new, [row])
    change = table["change"].to_numpy().reshape(len(case.X_new), -1)
    wanted = found[..., row].reshape(change.shape)
    # Sums in another order, and in the leaf matrix instead of a replay.
    np.testing.assert_allclose(wanted, change, rtol=0, atol=1e-9 * SIZE)


def test_deletions_of_bags_are_refits():
    """Of ridge regressions, which have no structure: every bag that drew the row is fitted without it."""
    for name, drawn in (("bagging ridge columns", False), ("bagging pipelines", True)):
        case, row = CASES[name](), 5
        after = np.zeros(len(case.X_new))
        for model, bag, columns in zip(
            case.model.estimators_, case.model.estimators_samples_, case.model.estimators_features_
        ):
            kept = bag[bag != row]
            again = clone(model[-1] if drawn else model)
            scale = model[0].transform if drawn else np.asarray
            again.fit(scale(case.X[kept][:, columns]), case.y[kept])
            after += again.predict(scale(case.X_new[:, columns])) / len(case.model.estimators_)
        predictions_after = explain(case).without(case.X_new, [row])["after"]
        np.testing.assert_allclose(
            predictions_after, after, rtol=0, atol=1e-9 * SIZE
        )  # of two solvers


def test_leaving_rows_out_of_sums():
    for name in ("voting", "bagging ridge columns"):
        case = CASES[name]()
        left_out = explain(case).diagnostics.leave_one_out()
        known = np.flatnonzero(~np.isnan(left_out["prediction"]))
        assert len(known)
        row = int(known[0])
        after = explain(case).without(case.X[[row]], [row])["after"][0]
        np.testing.assert_allclose(left_out["prediction"][row], after, rtol=0, atol=1e-9 * SIZE)
    with pytest.raises(axil.UnsupportedQuestionError, match=r"leave_one_out.*copies of rows"):
        explain(CASES["bagging pipelines"]()).diagnostics.leave_one_out()
    with pytest.raises(axil.UnsupportedQuestionError, match=r"diagnostics\.leave_one_out_curve"):
        explain(CASES["voting"]()).diagnostics.leave_one_out_curve()


def test_pushes_and_greedy_sets_of_sums_of_trees():
    case = fit(
        voting(STEPS, GradientBoostingRegressor(n_estimators=3, max_depth=2, random_state=1))
    )
    members = [axil.Explainer(model, case.X, case.y) for model in case.model.estimators_]
    explanation = explain(case).jacobian.gradient_contributions(case.X_new)
    np.testing.assert_allclose(
        explanation,
        sum(member.jacobian.gradient_contributions(case.X_new) for member in members) / 2,
        rtol=0,
        atol=1e-12,
    )
    sets = explain(case).removal(case.X_new[:2], 2, greedy=True)
    assert len(sets) == 4
    rows = sets["row"][sets["query"] == 0].to_numpy()
    before = case.model.predict(case.X_new[:1])[0]
    left = (
        verified_model(explain(case))
        .engines[0]
        .without(rows, verified_model(explain(case)).targets)
    )
    after = left.predicted(
        verified_model(explain(case)).queries(case.X_new[:1]).coordinates, case.targets
    )[0, 0]
    np.testing.assert_allclose(
        sets["effect"][sets["query"] == 0].sum(), after - before, rtol=0, atol=1e-12
    )


def test_weights_of_neighbours_and_forests_stay_sparse():
    explanation = explain(CASES["voting sparse weights"]()).explain(DATA.X_new, sparse=True)
    assert issparse(explanation.weights)
    dense = explain(CASES["voting sparse weights"]())(DATA.X_new).weights
    np.testing.assert_allclose(explanation.weights.toarray(), dense, rtol=0, atol=1e-15)


def test_noise_groups_and_pages():
    for name in ("voting", "outputs ridge", "bagging neighbours"):
        case = CASES[name]()
        explainer = explain(case)
        assert np.all(explainer.diagnostics.standard_error(case.X_new[:3]) > 0)
        assert "<html" in explainer.to_html(case.X_new[:2])
        assert np.all(np.asarray(explainer.diagnostics.degrees_of_freedom()) > 1)


def test_an_error_names_the_member():
    case = CASES["voting"]()
    with pytest.raises(
        axil.ExactnessError,
        match=r"This is about named_estimators_\['m0'\], one of the models inside",
    ):
        axil.Explainer(case.model, case.X, case.y + np.arange(len(case.y)))


def test_such_an_explainer_is_not_saved_and_takes_no_offsets(tmp_path):
    case = CASES["voting"]()
    with pytest.raises(axil.UnsupportedQuestionError, match="several models is not saved"):
        explain(case).save(tmp_path / "file.npz")
    assert not list(tmp_path.iterdir())
    with pytest.raises(axil.InputError, match="neither init_score nor in_bag"):
        axil.Explainer(case.model, case.X, case.y, init_score=case.y)
    shifted = explain(case).explain(case.X_new, init_score=np.ones(len(case.X_new)))
    np.testing.assert_allclose(
        shifted.predictions, case.model.predict(case.X_new) + 1, rtol=0, atol=1e-5
    )


@pytest.mark.parametrize(
    "name",
    [
        "voting",
        "voting sparse weights",
        "outputs ridge",
        "bagging neighbours",
        "voting in a pipeline",
    ],
)
def test_no_rows_and_one(name):
    case = CASES[name]()
    explainer = explain(case)
    assert explainer(case.X_new[:0]).predictions.shape[0] == 0
    one = explainer(case.X_new[:1]).predictions
    np.testing.assert_allclose(
        one.ravel(), case.model.predict(case.X_new[:1]).ravel(), rtol=0, atol=CLOSE * SIZE
    )


def test_baselines_take_trees_of_one_model():
    with pytest.raises(axil.UnsupportedQuestionError, match="of several models"):
        baselines.BoostIn(explain(CASES["voting"]()))


def test_without_a_proof():
    case = CASES["bagging neighbours"]()
    explainer = axil.Explainer(case.model, case.X, case.y, verify=False)
    assert explainer.verification is None
    np.testing.assert_allclose(
        explainer(case.X_new).predictions, case.model.predict(case.X_new), rtol=1e-12
    )


REFUSED = {
    "member": (lambda: fit(voting(Ridge(), Lasso())), "named_estimators_['m1'].class"),
    "bagged": (lambda: fit(BaggingRegressor(Lasso(), 2)), "estimators_[0].class"),
    "output": (lambda: fit(MultiOutputRegressor(Lasso()), y=TWO), "estimators_[0].class"),
    "hard votes": (
        lambda: fit(VotingClassifier([("k", KNeighborsClassifier())]), y=CLASSES),
        "voting",
    ),
    "stacked": (
        lambda: fit(StackingRegressor([("m", lgbm(objective="fair"))], Ridge())),
        "named_estimators_['m'].objective",
    ),
    "draws": (
        lambda: fit(voting(Ridge(), GradientBoostingRegressor(n_estimators=2, subsample=0.5))),
        "random_state",
    ),
    "bag without a class": (
        lambda: fit(
            BaggingClassifier(KNeighborsClassifier(1), 3, max_samples=3, random_state=0), y=CLASSES
        ),
        "estimator",
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSED)
def test_members_that_are_not_exact_are_refused_by_name(name):
    make, setting = REFUSED[name]
    case = make()
    found = axil.supports(case.model)
    assert (found.kind, found.setting) == ("no", setting)
    with pytest.raises(axil.UnsupportedModelError):
        explain(case)


class Constant(RegressorMixin, BaseEstimator):
    """A model of no library."""

    def fit(self, X, y):
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X):
        return np.zeros(len(X))


def test_a_member_that_axil_does_not_know_is_refused():
    found = axil.supports(voting(Ridge(), Constant()).fit(DATA.X, DATA.y))
    assert (found.kind, found.setting) == ("no", "named_estimators_['m1']")
    assert "Constant" in found.reason


def test_weights_that_bags_were_drawn_by():
    case = CASES["bagging ridge weighted"]()
    if not hasattr(case.model, "_sample_weight"):
        pytest.skip("this version of scikit-learn weighs the rows of a bag")
    explain(replace(case, sample_weight=7 * case.sample_weight))  # the same chances to be drawn
    for given, words in (
        (None, "sampled its rows by sample_weight"),
        (case.sample_weight[::-1], "chance"),
    ):
        with pytest.raises((axil.InputError, axil.ExactnessError), match=words):
            explain(replace(case, sample_weight=given))
    plain = CASES["bagging linear"]()
    with pytest.raises((axil.InputError, axil.ExactnessError), match="without sample_weight"):
        explain(replace(plain, sample_weight=DATA.weight))


def test_a_refit_of_the_model_moves_nothing():
    case = fit(voting(Ridge(), FOREST))
    explainer, before = explain(case), case.model.predict(case.X_new)
    case.model.fit(case.X, case.y[::-1])
    np.testing.assert_allclose(explainer(case.X_new).predictions, before, rtol=1e-9)


def test_members_on_a_scale_of_their_own_are_refused():
    inner = TransformedTargetRegressor(LinearRegression(), func=np.arcsinh, inverse_func=np.sinh)
    X, y = np.random.default_rng(0).normal(size=(2, 60, 1))
    model = VotingRegressor([("a", inner), ("b", LinearRegression())]).fit(X, y[:, 0])
    with pytest.raises(axil.UnsupportedModelError, match="it transforms its targets"):
        axil.Explainer(model, X, y[:, 0])
    whole = TransformedTargetRegressor(
        VotingRegressor([("a", LinearRegression())]), func=np.arcsinh, inverse_func=np.sinh
    )
    explanation = axil.Explainer(whole.fit(X, y[:, 0]), X, y[:, 0])(X[:4])
    np.testing.assert_allclose(np.sinh(explanation.predictions), whole.predict(X[:4]))


@pytest.mark.parametrize("inner", [Ridge(), lgbm(), KNeighborsRegressor()])
def test_bags_under_metadata_routing(inner):
    """Rows are drawn by indexing then, unless the weights were requested."""
    with sklearn.config_context(enable_metadata_routing=True):
        explain(fit(BaggingRegressor(clone(inner), 3, random_state=0)))
        requested = clone(inner)
        if hasattr(requested, "set_fit_request"):
            requested.set_fit_request(sample_weight=True)
        explain(fit(BaggingRegressor(requested, 3, random_state=0)))


def test_a_boosted_model_inside_a_stack_is_said_to_be_explained_by_itself():
    inside = [
        ("boosted", lgb.LGBMRegressor(objective="fair", n_estimators=3, verbose=-1)),
        ("ridge", Ridge()),
    ]
    model = StackingRegressor(inside, Ridge(), cv=2).fit(DATA.X, DATA.y)
    with pytest.raises(
        axil.UnsupportedModelError, match="sum of these members' predictions is not explained"
    ) as refused:
        axil.Explainer(model, DATA.X, DATA.y)
    names = {"axil": axil, "model": model, "X": DATA.X, "y": DATA.y}
    exec(f"inner = {str(refused.value).splitlines()[1].strip()}", names)
    assert names["inner"].kind == "additive"


@pytest.mark.parametrize(
    "last",
    [
        RidgeCV(),
        LinearRegression(),
        Lasso(alpha=0.01),
        GridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=2),
    ],
)
def test_a_stack_with_a_linear_last_model_is_the_sum_of_its_members(last):
    """The last model's coefficients are fixed, as their folds cannot be sampled again."""
    X, y, X_new = DATA.X, DATA.y, DATA.X_new
    inside = [
        ("boosted", lgbm()),
        ("forest", RandomForestRegressor(5, random_state=0)),
        ("ridge", Ridge()),
    ]
    model = StackingRegressor(inside, last, cv=3).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    assert axil.supports(model).kind == explainer.kind == "exact"
    linear = getattr(model.final_estimator_, "best_estimator_", model.final_estimator_)
    members = [axil.Explainer(each, X, y).explain(X_new) for each in model.estimators_]
    explanation = explainer.explain(X_new)
    expected = sum(c * each.weights for c, each in zip(linear.coef_, members))
    np.testing.assert_allclose(explanation.weights, expected, rtol=0, atol=1e-12)
    constant = (
        sum(c * np.asarray(each.intercepts) for c, each in zip(linear.coef_, members))
        + linear.intercept_
    )
    np.testing.assert_allclose(explanation.intercepts, constant, rtol=0, atol=1e-9)
    np.testing.assert_allclose(
        explanation.intercepts + explanation.contributions.sum(-1),
        model.predict(X_new),
        rtol=0,
        atol=1e-5,
    )
    change = explainer.what_if(X_new[:4], {3: float(y[3] + 1.0)})["change"].to_numpy()
    np.testing.assert_allclose(change, expected[:4, 3], rtol=0, atol=1e-9)
    left = explainer.without(X_new[:4], [3])
    parts = [
        axil.Explainer(each, X, y).without(X_new[:4], [3])["change"].to_numpy()
        for each in model.estimators_
    ]
    np.testing.assert_allclose(
        left["change"], sum(c * part for c, part in zip(linear.coef_, parts)), rtol=0, atol=1e-9
    )
    swapped, changed = y.copy(), y.copy()
    swapped[[0, 1]], changed[5] = y[[1, 0]], y[5] + 1.0
    for wrong in (swapped, changed, np.random.default_rng(0).permutation(y)):
        with pytest.raises(axil.ExactnessError):
            axil.Explainer(model, X, wrong)


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        (
            {"final_estimator": RandomForestRegressor(3, random_state=0)},
            "final_estimator=RandomForestRegressor",
        ),
        ({"passthrough": True}, "passthrough=True"),
    ],
)
def test_stacks_that_are_no_sums_are_refused_by_name(settings, refused):
    model = StackingRegressor([("ridge", Ridge())], **settings).fit(DATA.X, DATA.y)
    with pytest.raises(axil.UnsupportedModelError, match=refused):
        axil.Explainer(model, DATA.X, DATA.y)


@pytest.mark.parametrize("framed", [False, True])
def test_bagging_hands_single_precision_on(framed):
    """A scaler inside rounds its products to the type of the rows, and thresholds of XGBoost lie between such numbers."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3)).astype(np.float32)
    y = X[:, 0] + rng.normal(size=80)
    rows = pd.DataFrame(X, columns=list("abc")) if framed else X
    inside = make_pipeline(StandardScaler(), xgb.XGBRegressor(n_estimators=5, n_jobs=1))
    model = BaggingRegressor(inside, 2, random_state=0).fit(rows, y)
    explanation = axil.Explainer(model, rows, y)(rows[:4])
    np.testing.assert_allclose(explanation.predictions, model.predict(rows[:4]), rtol=0, atol=1e-5)
