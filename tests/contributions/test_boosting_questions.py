"""Questions about boosted classifiers and other losses, against an independent replay with the leaves held fixed."""

from dataclasses import replace
from functools import cache, partial

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

import axil
from axil.methods.method import verified_model
from tests.contributions.boosting_models import (
    BINARY,
    CASES,
    CENTRED,
    CLASSES,
    COUNTS,
    LGB,
    X_NEW,
    N,
    X,
    along_gradients,
    case_of,
    explain,
    replayed,
)
from tests.contributions.fixed_structure import differences, replay, sigmoid, softmax
from tests.contributions.more_models import MODELS

ROWS = [0, 3, 17, 60, 119]
LABELS = np.array([f"row {i}" for i in range(N)])


@cache
def explainer_of(name):
    case = case_of(name)
    rows = pd.DataFrame(X, index=LABELS)
    return explain(case, rows)


def others(case):
    """{row: another target}, far away: another class, or twice the target and one."""
    y = case.y
    if hasattr(case.model, "classes_") and len(case.model.classes_):
        names = np.asarray(case.model.classes_)
        return {i: names[(int(np.flatnonzero(names == y[i])[0]) + 1) % len(names)] for i in ROWS}
    return {i: 1 - y[i] if y.max() < 1 else 2 * abs(y[i]) + 1 for i in ROWS}


def targets_with(case, changes):
    y = case.y.copy()
    for i, new in changes.items():
        y[i] = new
    return type(case)(case.model, y, case.loss, case.start).targets


@pytest.mark.parametrize("name", CASES)
def test_what_if_is_the_fit_again_with_other_targets(name):
    """Both run in float64; sums in another order leave some 1e-13, targets rounded to float32 some 1e-7 of the change."""
    case, explainer = case_of(name), explainer_of(name)
    changes = others(case)
    frame = explainer.what_if(X_NEW, {LABELS[i]: new for i, new in changes.items()})
    expected = replayed(case, targets_with(case, changes)) - replayed(case, case.targets)
    found = frame["change"].to_numpy().reshape(expected.shape)
    assert np.abs(expected).max() > 1e-3
    assert np.abs(found - expected).max() < 1e-6 * np.abs(expected).max()
    assert np.allclose(frame["after"] - frame["before"], frame["change"])
    assert np.allclose(frame["before"], case.scores(X_NEW).ravel())


@pytest.mark.parametrize("name", [name for name in CASES if "poisson" in name or "tweedie" in name])
def test_targets_of_counts_may_be_set_to_zero(name):
    """Alone and beside others, in `what_if` and `refit`; a fit to zeros alone has no start."""
    case, explainer = case_of(name), explainer_of(name)
    row = int(np.flatnonzero(case.y > 0)[0])
    frame = explainer.what_if(X_NEW, {LABELS[row]: 0})
    expected = replayed(case, targets_with(case, {row: 0.0})) - replayed(case, case.targets)
    assert np.abs(frame["change"] - expected.ravel()).max() < 1e-6 * np.abs(expected).max()
    again = explainer.refit(targets={LABELS[row]: 0})
    np.testing.assert_allclose(
        again.what_if(X_NEW, {})["before"], frame["after"], rtol=3e-6, atol=3e-6
    )
    nothing = dict.fromkeys(LABELS, 0.0)
    for ask in (
        partial(explainer.what_if, X_NEW, nothing),
        partial(explainer.refit, targets=nothing),
    ):
        with pytest.raises(
            axil.InputError,
            match="targets goes down to 0; this loss takes targets from 0 up, not all 0",
        ):
            ask()


def test_rows_without_weight_do_not_save_a_fit_to_zeros():
    """The rows that early stopping held out take no part in the start."""
    model = HistGradientBoostingRegressor(
        loss="poisson", max_iter=3, early_stopping=True, random_state=0
    )
    explainer = axil.Explainer(model.fit(X, COUNTS + 1), X, COUNTS + 1)
    fitted = np.flatnonzero(verified_model(explainer).boosting.walked.weights)
    assert len(fitted) < N
    with pytest.raises(axil.InputError, match="this loss takes targets from 0 up, not all 0"):
        explainer.what_if(X_NEW, dict.fromkeys(fitted.tolist(), 0.0))
    assert np.isfinite(
        explainer.what_if(X_NEW, dict.fromkeys(fitted.tolist()[1:], 0.0))["change"]
    ).all()


def test_what_if_says_what_the_scores_stand_for():
    frame = explainer_of("lightgbm binary").what_if(X_NEW, {"row 3": 1 - BINARY[3]})
    assert list(frame) == [
        "query",
        "output",
        "before",
        "after",
        "change",
        "probability before",
        "probability after",
    ]
    assert np.allclose(frame["probability after"], sigmoid(frame["after"]))
    assert (explainer_of("lightgbm binary").what_if(X_NEW, {})["change"] == 0).all()
    assert "mean after" in explainer_of("lightgbm poisson").what_if(X_NEW, {"row 3": 5.0})
    several = explainer_of("catboost multiclass").what_if(X_NEW, {"row 3": (CLASSES[3] + 1) % 3})
    after, found = (
        several[name].to_numpy().reshape(-1, 3) for name in ("after", "probability after")
    )
    assert np.allclose(found, softmax(after))


def test_bad_targets_are_refused():
    explainer = explainer_of("lightgbm binary")
    for targets, words in (
        ([1], "expected {row"),
        ({"row 999": 1}, "row 999"),
        ({"row 3": 7}, "7"),
    ):
        with pytest.raises(axil.InputError, match=words):
            explainer.what_if(X_NEW, targets)
    with pytest.raises(axil.InputError, match="above 0"):
        explainer_of("lightgbm gamma").what_if(X_NEW, {"row 3": -1.0})
    for name in ("xgboost pseudo-huber", "catboost mae by gradients"):
        case = MODELS[name]().fit()
        with pytest.raises(
            axil.UnsupportedQuestionError, match=r"starts from|the initial score is one step from 0"
        ):
            axil.Explainer(case.model, X, case.y, sample_weight=case.weights).what_if(
                X_NEW, {3: 1.0}
            )


def test_what_if_where_a_leaf_has_a_value_for_every_class():
    """XGBoost's vector leaves; from 3.1 on the fit starts from centred logarithms of the shares."""
    case = replace(MODELS["xgboost vector leaves"]().fit(), start=CENTRED)
    changes = axil.Explainer(case.model, X, case.y, sample_weight=case.weights).what_if(
        X_NEW, others(case)
    )["change"]
    leaves = [
        np.repeat(case.model.apply(rows).astype(int)[:, :, None], 3, axis=2) for rows in (X, X_NEW)
    ]
    w = np.float32(case.w).astype(float)
    old, new = (
        replay(*leaves, y, w, case.loss, case.start, rate=0.25, **case.more)
        for y in (case.targets, targets_with(case, others(case)))
    )
    assert np.abs(changes.to_numpy() - (new - old).ravel()).max() < 1e-6 * np.abs(new - old).max()


def test_what_if_of_an_objective_of_your_own_asks_it_again():
    case = MODELS["lightgbm custom"]().fit()
    own = axil.Explainer(case.model, X, case.y)
    changes = own.what_if(X_NEW, {i: 1 - BINARY[i] for i in ROWS})["change"]
    y = np.where(np.isin(np.arange(N), ROWS), 1 - BINARY, BINARY)[:, None].astype(float)
    expected = replayed(case, y) - replayed(case, BINARY[:, None].astype(float))
    assert (
        np.abs(changes - expected[:, 0]).max() < 1e-6 * np.abs(expected).max()
    )  # its gradients are kept in float32


LOSS = {
    "lightgbm binary": lambda y, F: np.logaddexp(0, F) - y * F,
    "xgboost multiclass": lambda y, F: -np.log((softmax(F) * y).sum(axis=1)),
    "catboost multiclass": lambda y, F: -np.log((softmax(F) * y).sum(axis=1)),
    "lightgbm multiclassova": lambda y, F: (np.logaddexp(0, F) - y * F).sum(axis=1),
    "sklearn hist poisson": lambda y, F: np.exp(F) - y * F,
}


@pytest.mark.parametrize("name", LOSS)
def test_influence_is_the_derivative_of_the_validation_loss(name):
    """By every column of the targets, classes of other rows' scores among them; central differences are good to 1e-9 or so."""
    case, explainer = case_of(name), explainer_of(name)
    K = case.targets.shape[1]
    y_val = COUNTS[:3] if "poisson" in name else case.y[:3]
    targets = targets_with(case, {})[:3] if K > 1 or "poisson" not in name else y_val[:, None]

    def loss(column, k):
        y = case.targets.copy()
        y[:, k] = column
        return np.mean(LOSS[name](targets, replayed(case, y)).reshape(3, -1).sum(axis=1))

    expected = np.stack(
        [differences(lambda v, k=k: loss(v, k), case.targets[:, k], ROWS, 1e-5) for k in range(K)],
        axis=1,
    )
    found = explainer.influence(X_NEW, y_val).set_index("row")
    if K == 1 and "gradient" in found:
        assert (
            np.abs(found.loc[LABELS[ROWS], "gradient"] - expected[:, 0]).max()
            < 1e-6 * np.abs(found["gradient"]).max()
        )
        assert np.all(np.diff(found["gradient"].abs()) <= 0)
        return
    full = expected if K > 1 else np.column_stack([np.zeros(len(ROWS)), expected])
    names = list(case.model.classes_)
    for i, gradient in zip(ROWS, full):
        line, own = found.loc[LABELS[i]], names.index(case.y[i])
        assert line["target"] == case.y[i]
        gains = np.delete(gradient[own] - gradient, own)
        assert abs(line["gain"] - gains.max()) < 1e-6 * found["gain"].abs().max()
        assert line["corrected"] == np.delete(names, own)[gains.argmax()]
    assert np.all(np.diff(found["gain"]) <= 0)


def test_influence_where_there_is_none():
    squared = along_gradients(lgb.LGBMRegressor(**LGB).fit(X, COUNTS), X, COUNTS)
    with pytest.raises(axil.UnsupportedQuestionError, match="squared error"):
        squared.influence(X_NEW, COUNTS[:3])
    with pytest.raises(axil.InputError, match="no rows"):
        explainer_of("lightgbm binary").influence(X_NEW[:0], BINARY[:0])


@pytest.mark.parametrize("name", ["lightgbm binary", "xgboost multiclass"])
def test_removal_sets_are_the_largest_pushes_of_one_sign(name):
    explainer = explainer_of(name)
    pushes = explainer.jacobian.gradient_contributions(X_NEW).reshape(len(X_NEW), -1, N)
    frame = explainer.removal(X_NEW, 4, by="contribution", same_sign=True)
    for i, of_query in enumerate(pushes):
        for k, own in enumerate(of_query):
            lines = frame[
                (frame["query"] == i)
                & (frame["output"] == (k if explainer.outputs is not None else 1))
            ]
            sides = [np.sort(np.maximum(sign * own, 0))[::-1][:4].sum() for sign in (1, -1)]
            assert np.isclose(np.abs(lines["contribution"].sum()), max(sides))
            assert np.allclose(
                own[[list(LABELS).index(row) for row in lines["row"]]], lines["contribution"]
            )
    assert len(explainer.removal(X_NEW[:0], 4, by="contribution", same_sign=True)) == 0


ONE = [name for name in CASES if case_of(name).targets.shape[1] == 1]


@pytest.mark.parametrize("name", ONE)
def test_the_operator_is_the_matrix_of_derivatives(name):
    """The link is taken at sums of leaves in float64, of queries at the library's scores, which may be float32."""
    case, v = case_of(name), np.random.default_rng(1).normal(size=N)
    for output, slack in (("raw", 1e-10), ("probability", 1e-6)):
        explainer = explain(case, output=output)
        matrix = explainer(X).weights
        scale = np.abs(matrix @ v).max()
        assert np.abs(explainer.jacobian.operator @ v - matrix @ v).max() < slack * scale
        assert (
            np.abs(explainer.jacobian.operator.T @ v - matrix.T @ v).max()
            < slack * np.abs(matrix.T @ v).max()
        )


@pytest.mark.parametrize("name", [name for name in CASES if name not in ONE])
def test_the_operator_of_several_outputs_has_their_blocks(name):
    """Every output by the targets of every output, row after row, as one sweep backwards for each output has them."""
    case, rng = case_of(name), np.random.default_rng(1)
    for output, slack in (("raw", 1e-10), ("probability", 1e-6)):
        explainer = explain(case, output=output)
        blocks = np.stack(
            [explainer.jacobian.derivatives(X, output=name) for name in explainer.outputs], axis=1
        )  # (N, K, K, N)
        size = N * len(explainer.outputs)
        matrix = blocks.transpose(0, 1, 3, 2).reshape(size, size)
        v, operator = rng.normal(size=size), explainer.jacobian.operator
        assert operator.shape == matrix.shape
        assert np.abs(operator @ v - matrix @ v).max() < slack * np.abs(matrix @ v).max()
        assert np.abs(operator.T @ v - matrix.T @ v).max() < slack * np.abs(matrix.T @ v).max()


def test_tables_of_two_classes_name_the_one_that_is_scored():
    """The second, also where a Booster has labels of 0 and 1 without names; more classes have their names in output."""
    names = np.where(BINARY, "Yes", "No")
    model = lgb.LGBMClassifier(**LGB).fit(X, names)
    booster = axil.Explainer(model.booster_, X, BINARY.astype(float))
    for explainer, scored in ((axil.Explainer(model, X, names), "Yes"), (booster, "1")):
        explanation = explainer(X_NEW)
        made = [
            explainer.top(X_NEW, 2),
            explainer.similar(X_NEW, 2),
            explainer.group(X_NEW, BINARY),
        ]
        made += [
            explainer.without(X_NEW, [0]),
            explainer.what_if(X_NEW, {}),
            explainer.removal(X_NEW, 2),
        ]
        made += [explanation.top(2), explanation.group(BINARY)]
        for table in made:
            assert (
                f"; scores are of class {scored}, whose rows have target 1" in table.attrs["axil"]
            )
    several = axil.Explainer(lgb.LGBMClassifier(**LGB).fit(X, CLASSES), X, CLASSES)
    assert "scores are of" not in several.top(X_NEW, 2).attrs["axil"]
