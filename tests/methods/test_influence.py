"""influence, against the change of the validation error."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import Ridge

import axil
from axil import InputError
from axil.methods.folds import fold_numbers
from axil.methods.method import verified_model
from tests.contract_models import case_of, explainer_of
from tests.methods.method_models import MODELS, full_tree, small_batches, validation, weights_of


@pytest.mark.parametrize(("library", "name"), MODELS)
def test_influence_is_the_change_of_the_validation_error(library, name, monkeypatch):
    case, explainer = case_of(library, name), explainer_of(library, name)
    small_batches(monkeypatch, explainer)
    y = validation(library, name)
    known = (
        y
        if verified_model(explainer).adapter.classes is None
        else (y[:, None] == verified_model(explainer).adapter.classes).astype(float)
    )
    known = np.reshape(known, (len(y), -1))
    K, targets = weights_of(explainer, case.X_new), verified_model(explainer).targets
    model = explainer(case.X_new).predictions.reshape(
        known.shape
    )  # in float64, and to 1e-6 what the model itself says
    frame = explainer.influence(case.X_new, y)
    assert frame["gain"].dropna().is_monotonic_decreasing
    at = pd.Series(np.arange(len(targets)), index=explainer.index)[frame["row"]].to_numpy()
    outputs = (
        list(range(targets.shape[1])) if explainer.outputs is None else list(explainer.outputs)
    )
    k = (
        np.zeros(len(frame), int)
        if explainer.outputs is None
        else np.array([outputs.index(o) for o in frame["output"]])
    )
    np.testing.assert_array_equal(frame["target"], targets[at, k])
    gradient = 2 / len(y) * np.einsum("ikj,ik->jk", K, model - known)
    np.testing.assert_allclose(
        frame["gradient"], gradient[at, k], rtol=0, atol=1e-10 * np.abs(gradient).max()
    )
    for line in [
        0,
        1,
        len(frame) // 2,
        len(frame) - 1,
    ]:  # the loss itself, with the one target moved
        row, output, moved = (
            at[line],
            k[line],
            frame["corrected"].iloc[line] - frame["target"].iloc[line],
        )
        if np.isnan(moved):
            continue
        before = model[:, output] - known[:, output]
        after = before + K[:, output, row] * moved
        gain = np.mean(before**2) - np.mean(after**2)
        np.testing.assert_allclose(
            frame["gain"].iloc[line], gain, rtol=0, atol=1e-10 * np.mean(before**2)
        )
    alone = explainer.influence(case.X_new, y, out_of_fold=None)
    assert "gain" not in alone.columns
    assert alone["gradient"].abs().is_monotonic_decreasing
    np.testing.assert_allclose(
        np.sort(alone["gradient"]), np.sort(frame["gradient"]), rtol=0, atol=1e-15
    )


@pytest.mark.parametrize("name", ["linear regression", "ridge", "kernel ridge"])
def test_left_out_values_of_least_squares_are_those_of_refits(name):
    case, explainer = case_of("smoother", name), explainer_of("smoother", name)
    frame = explainer.influence(case.X_new, validation("smoother", name)).set_index("row")
    for row in (0, 5, 77):
        keep = np.arange(len(case.y)) != row
        refitted = clone(case.model).fit(case.X[keep], case.y[keep]).predict(case.X[[row]])[0]
        np.testing.assert_allclose(frame["corrected"][row], refitted, rtol=1e-8)


def test_corrections_are_predictions_without_the_row():
    """`leave_one_out`, which tests/weights/test_deletion.py compares with fits without the row."""
    case, explainer = case_of("lightgbm", "weighted"), explainer_of("lightgbm", "weighted")
    y = validation("lightgbm", "weighted")
    frame = (
        explainer.influence(case.X_new, y, out_of_fold="leave-one-out")
        .set_index("row")
        .sort_index()
    )
    left_out = explainer.diagnostics.leave_one_out()
    np.testing.assert_array_equal(frame["corrected"], left_out["prediction"])
    np.testing.assert_array_equal(left_out["residual"], left_out["target"] - left_out["prediction"])
    assert "exact" in left_out.attrs["axil"]


def test_left_out_values_agree_with_their_own_predictions_where_rows_cannot_be_deleted():
    """With its target at that value a row's prediction, structure fixed, is that value."""
    case = case_of("lightgbm", "weighted")
    model = GradientBoostingRegressor(init=Ridge(), n_estimators=5).fit(
        np.nan_to_num(case.X), case.y
    )
    explainer = axil.Explainer(model, np.nan_to_num(case.X), case.y)
    with pytest.warns(
        axil.ApproximationWarning, match=r"approximate here.*residuals of another model"
    ) as said:
        frame = explainer.influence(
            np.nan_to_num(case.X_new), validation("lightgbm", "weighted")
        ).set_index("row")
    assert said[0].filename == __file__
    weights, intercepts = explainer.jacobian.matrix(), explainer(np.nan_to_num(case.X)).intercepts
    for row in (0, 5, 17):
        y = explainer.targets.copy()
        y[row] = frame["corrected"][row]
        np.testing.assert_allclose(weights[row] @ y + intercepts[row], y[row], rtol=1e-9)


def test_corrections_are_those_of_folds_unless_asked_for():
    """The fit without a fold of the rows, as `without` has it."""
    case, explainer = case_of("lightgbm", "weighted"), explainer_of("lightgbm", "weighted")
    y = validation("lightgbm", "weighted")
    corrected = explainer.influence(case.X_new, y).set_index("row").sort_index()["corrected"]
    folds = fold_numbers(verified_model(explainer))
    for fold in (0, 7):
        rows = np.flatnonzero(folds == fold)
        after = explainer.without(case.X[rows], rows)["after"]
        np.testing.assert_allclose(corrected[rows], after, atol=1e-9 * np.abs(case.y).max())


def test_rows_alone_in_a_leaf_are_corrected_by_its_ancestor():
    """As `without` has it."""
    model = full_tree()
    frame = model.influence(np.array([[0.1], [0.9]]), [0.0, 1.0]).set_index("row").sort_index()
    for row in frame.index[:5]:
        after = model.without(verified_model(model).features[[row]], [row])["after"]
        np.testing.assert_allclose(frame["corrected"][[row]], after, rtol=1e-12)
    assert frame["gain"].notna().all()


def test_corrections_of_ones_own():
    case, explainer = case_of("lightgbm", "regressor"), explainer_of("lightgbm", "regressor")
    y, own = validation("lightgbm", "regressor"), np.linspace(0, 1, len(case.y))
    frame = explainer.influence(case.X_new, y, out_of_fold=own).set_index("row").sort_index()
    np.testing.assert_array_equal(frame["corrected"], own)
    two = explainer_of("xgboost", "one_output_per_tree")
    X, y2 = (
        case_of("xgboost", "one_output_per_tree").X_new,
        validation("xgboost", "one_output_per_tree"),
    )
    assert len(two.influence(X, y2, out_of_fold=two.targets)) == two.targets.size
    for bad, message in [
        (own[1:], "out_of_fold has shape"),
        ("cross-fitted", "cross_val_predict"),
        (own * np.nan, "nan"),
    ]:
        with pytest.raises(InputError, match=message):
            explainer.influence(case.X_new, y, out_of_fold=bad)
    with pytest.raises(InputError, match="out_of_fold has shape"):
        two.influence(X, y2, out_of_fold=own)
    with pytest.raises(InputError, match="y_val has shape"):
        explainer.influence(case.X_new, y[1:])
    with pytest.raises(InputError, match="no rows"):
        explainer.influence(case.X_new[:0], [])
