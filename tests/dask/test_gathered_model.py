"""Methods with a number for every training row, over Dask collections: the numbers of one machine."""

import catboost as cb
import dask
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestRegressor

import axil
from axil.methods.method import verified_model
from tests.dask.dask_models import QUERIES, WEIGHTS, X, Y, close, partitioned, same_table
from tests.fits import explainer_of_fit

VALIDATION = slice(0, 40)
QUIET = {"verbose": -1, "n_jobs": 1}
OFFSETS = pd.Series(np.linspace(0, 5, len(Y)), index=Y.index)
TWO_OUTPUTS = np.stack([Y, 3 - 2 * Y], axis=1)


def boosted(**settings):
    return lgb.LGBMRegressor(n_estimators=15, num_leaves=9, **QUIET, **settings)


def unfitted_and_data(name):
    """Return a model to fit, its targets, weights and offsets."""
    forest = {"bootstrap": False, "min_samples_leaf": 3, "max_features": 2, "random_state": 0}
    quiet = {"iterations": 6, "verbose": False, "allow_writing_files": False}
    cases = {
        "plain": (boosted(), Y, None, None),
        "weights": (boosted(), Y, WEIGHTS, None),
        "active set": (boosted(reg_alpha=5.0, reg_lambda=2.0), Y, None, None),
        "offsets": (boosted(), Y, None, OFFSETS),
        "forest": (RandomForestRegressor(6, n_jobs=1, **forest), Y, None, None),
        "two outputs": (
            cb.CatBoostRegressor(loss_function="MultiRMSE", **quiet),
            TWO_OUTPUTS,
            None,
            None,
        ),
    }
    return cases[name]


NAMES = ("plain", "weights", "active set", "offsets", "forest", "two outputs")


@pytest.fixture(scope="module", params=NAMES)
def pair(request):
    """Return the explainers of a model over Dask collections and in memory."""
    model, y, weights, offsets = unfitted_and_data(request.param)
    arguments = {"sample_weight": weights, "init_score": offsets}
    model.fit(X, y, **{name: values for name, values in arguments.items() if values is not None})
    data = (X, y, weights, offsets)
    collections = [None if values is None else partitioned(values) for values in data]
    with dask.config.set(scheduler="synchronous"):
        return explainer_of_fit(model, *collections), explainer_of_fit(model, *data)


def validation(explainer):
    targets = TWO_OUTPUTS
    if explainer.outputs is None:
        targets = Y.to_numpy()
    return X.iloc[VALIDATION], targets[VALIDATION] + 7.0


METHODS = {
    "leverage": lambda e: e.diagnostics.leverage(),
    "leverage(method='estimate')": lambda e: np.stack(e.diagnostics.leverage(method="estimate")),
    "degrees_of_freedom": lambda e: e.diagnostics.degrees_of_freedom(),
    "degrees_of_freedom(method='estimate')": lambda e: np.stack(
        e.diagnostics.degrees_of_freedom(method="estimate")
    ),
    "standard_error": lambda e: e.diagnostics.standard_error(QUERIES, sigma=3.0),
    "standard_error(sigma='estimate')": lambda e: e.diagnostics.standard_error(
        QUERIES, sigma="estimate"
    ),
    "leave_one_out": lambda e: e.diagnostics.leave_one_out(),
    "find_label_issues": lambda e: e.find_label_issues(),
    "find_label_issues(out_of_fold='leave-one-out')": lambda e: e.find_label_issues(
        out_of_fold="leave-one-out"
    ),
    "find_label_issues(X_val=)": lambda e: e.find_label_issues(
        X_val=validation(e)[0], y_val=validation(e)[1]
    ),
    "influence": lambda e: e.influence(*validation(e)),
    "influence(out_of_fold=None)": lambda e: e.influence(*validation(e), out_of_fold=None),
    "what_if": lambda e: e.what_if(QUERIES, {"patient 3": changed(e), "patient 300": changed(e)}),
    "reach": lambda e: e.jacobian.sensitivity(QUERIES, ["patient 3", "patient 200"]),
    "shapley": lambda e: e.shapley(*validation(e)),
    "shapley(baseline='mean')": lambda e: e.shapley(*validation(e), baseline="mean"),
    "shapley(groups=)": lambda e: e.shapley(*validation(e), groups="sex"),
    "min_label_changes": lambda e: e.min_label_changes(QUERIES, 150.0, (-900.0, 900.0)),
    "min_label_changes(groups=)": lambda e: e.min_label_changes(
        QUERIES, 150.0, (-900.0, 900.0), groups="sex"
    ),
}


def changed(explainer):
    if explainer.outputs is None:
        return 300.0
    return 300.0, -10.0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", METHODS)
def test_numbers_are_those_of_one_machine(pair, method):
    over_dask, in_memory = (METHODS[method](explainer) for explainer in pair)
    if isinstance(in_memory, pd.DataFrame):
        numbers = [name for name in in_memory if in_memory[name].dtype.kind == "f"]
        same_table(over_dask, in_memory, numbers)
        assert over_dask.attrs == in_memory.attrs
    else:
        close(over_dask, in_memory)


def test_the_errors_after_every_number_of_trees(pair):
    curves = []
    for explainer in pair:
        try:
            curves.append(explainer.diagnostics.leave_one_out_curve())
        except axil.UnsupportedQuestionError as refusal:
            curves.append(refusal.reason)
    if isinstance(curves[0], str):
        assert curves[0] == curves[1]
    else:
        same_table(*curves, ("error", "training_error"))


def test_the_noise_follows_from_all_squared_weights(pair):
    explainer, whole = pair
    if not verified_model(explainer).trees.are_boosted:
        with pytest.raises(axil.UnsupportedQuestionError, match=r'forest.*sigma="estimate"'):
            explainer.diagnostics.standard_error(QUERIES)
    else:
        close(
            explainer.diagnostics.standard_error(QUERIES), whole.diagnostics.standard_error(QUERIES)
        )


def test_predictions_of_ones_own_are_collections(pair):
    explainer, whole = pair
    predictions = np.asarray(whole(X).predictions) * 0.9
    expected = whole.find_label_issues(out_of_fold=predictions)
    numbers = [name for name in expected if expected[name].dtype.kind == "f"]
    same_table(explainer.find_label_issues(out_of_fold=partitioned(predictions)), expected, numbers)


@pytest.mark.parametrize(
    "settings", [{"path_smooth": 2.0}, {"objective": "huber", "alpha": 0.5, "reg_alpha": 0.1}]
)
def test_models_whose_rows_cannot_be_deleted(settings):
    model = boosted(**settings).fit(X, Y)
    explainer = axil.Explainer(model, partitioned(X), partitioned(Y))
    for ask in (
        explainer.find_label_issues,
        explainer.diagnostics.leave_one_out_curve,
        explainer.diagnostics.leave_one_out,
    ):
        with pytest.raises(axil.UnsupportedQuestionError, match=r"path_smooth|Huber"):
            ask()
    whole = axil.Explainer(model, X, Y)
    close(explainer.diagnostics.leverage(), whole.diagnostics.leverage())
    targets = {"patient 5": 250.0}
    if "objective" in settings:
        with pytest.raises(axil.UnsupportedQuestionError, match="Huber"):
            explainer.what_if(QUERIES, targets)
    else:
        numbers = ("before", "after", "change")
        same_table(explainer.what_if(QUERIES, targets), whole.what_if(QUERIES, targets), numbers)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "suspects", ["mark", "drop", ("drop", ["patient 5", "patient 17"]), ["patient 17"]]
)
def test_comparables_with_suspects(pair, suspects):
    numbers = ("weight", "contribution", "target", "share", "prediction")
    tables = [explainer.similar(QUERIES, 4, suspects=suspects) for explainer in pair]
    same_table(*tables, numbers)
    allowed = np.arange(len(X)) % 2 > 0
    masks = (partitioned(allowed), allowed)
    tables = [
        explainer.similar(QUERIES, 4, suspects=suspects, among=mask)
        for explainer, mask in zip(pair, masks)
    ]
    same_table(*tables, numbers)
