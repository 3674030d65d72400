"""Models that their library hardly takes, or on inputs that are no table: an error of axil that says so, never a raw one."""

import catboost as cb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from scipy import sparse
from sklearn.ensemble import BaggingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor, kernels
from sklearn.neighbors import KNeighborsRegressor, RadiusNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

import axil

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = X[:, 0] * 2 + RNG.normal(size=60)


def test_fewer_rows_than_neighbours():
    model = KNeighborsRegressor(5).fit(X[:3], Y[:3])
    with pytest.raises(axil.InputError, match="n_neighbors=5 and was fitted on 3 rows"):
        axil.Explainer(model, X[:3], Y[:3])


@pytest.mark.parametrize("kind", [KNeighborsRegressor, RadiusNeighborsRegressor])
def test_distances_that_do_not_exist(kind):
    """Haversine takes two dimensions; scikit-learn notices when it predicts."""
    model = kind(metric="haversine", algorithm="brute").fit(X, Y)
    with pytest.raises(axil.InputError, match="only valid in 2 dimensions"):
        axil.Explainer(model, X, Y)
    plane = X[:, :2]
    model = KNeighborsRegressor(metric="haversine", algorithm="ball_tree").fit(plane, Y)
    axil.Explainer(model, plane, Y)


class Letters(kernels.GenericKernelMixin, kernels.StationaryKernelMixin, kernels.Kernel):
    """How many letters two words share."""

    def __init__(self):
        pass

    def __call__(self, X, Y=None, eval_gradient=False):
        return np.array(
            [[float(sum(a == b for a in x for b in y)) for y in (X if Y is None else Y)] for x in X]
        )

    def diag(self, X):
        return np.diag(self(X))


def test_a_gaussian_process_of_words():
    words, y = np.array(["AGCT", "AGC", "AACT", "TAA", "GAACA"]), np.arange(5.0)
    model = GaussianProcessRegressor(Letters(), optimizer=None, alpha=1.0).fit(words, y)
    for given in (words, list(words), words[:, None]):
        with pytest.raises(
            axil.UnsupportedModelError, match=r"other objects .* than the rows of a table"
        ):
            axil.Explainer(model, given, y)


class Stump(DecisionTreeRegressor):
    """A tree by name only."""

    def fit(self, X, y, sample_weight=None, check_input=True):
        self.mean_ = float(np.mean(y))
        return self

    def predict(self, X, check_input=True):
        return np.full(len(X), self.mean_)


def test_bags_of_a_users_own_estimator():
    with pytest.raises(axil.UnsupportedModelError, match=r"estimators_\[0\]"):
        axil.Explainer(BaggingRegressor(Stump(), n_estimators=3).fit(X, Y), X, Y)


def test_catboost_categories_given_as_real_numbers():
    table = np.column_stack([X.astype(object), RNG.integers(0, 3, 60).astype(object)])
    how = {"iterations": 3, "verbose": 0, "allow_writing_files": False, "cat_features": [3]}
    model = cb.CatBoostRegressor(one_hot_max_size=9, **how).fit(table, Y)
    explainer = axil.Explainer(model, table, Y)
    real = table.astype(float)
    for given in (real, pd.DataFrame(real), sparse.csr_matrix(real)):
        with pytest.raises(axil.InputError, match=r"Columns \[3\] .* are categories"):
            axil.Explainer(model, given, Y)
        with pytest.raises(axil.InputError, match=r"Columns \[3\] .* are categories"):
            explainer(given)


def test_catboost_weights_where_rows_were_shuffled_for_categories():
    """CatBoost then records leaf weights of other rows; the leaf values are right, and show other weights."""
    table = pd.DataFrame(X, columns=list("abc")).assign(
        d=[f"level {i}" for i in RNG.integers(0, 5, 60)]
    )
    weights = np.exp(RNG.normal(size=60))
    how = {
        "iterations": 3,
        "depth": 1,
        "verbose": 0,
        "allow_writing_files": False,
        "bootstrap_type": "Bernoulli",
    }
    model = cb.CatBoostRegressor(**how).fit(cb.Pool(table, Y, weight=weights, cat_features=["d"]))
    axil.Explainer(model, table, Y, sample_weight=weights)
    for wrong in (None, weights[::-1]):
        with pytest.raises(axil.ExactnessError):
            axil.Explainer(model, table, Y, sample_weight=wrong)


@pytest.mark.parametrize("grow_policy", ["Lossguide", "Depthwise"])
def test_catboost_zeros_that_it_misplaces(grow_policy):
    """Where they lie above negative numbers in a sparse column; dense, all is well."""
    rows = np.column_stack([np.where(np.arange(20) == 0, -1.0, 0.0), np.arange(1.0, 21.0)])
    y = np.where(np.arange(20) == 0, -5.0, 0.1 * np.arange(20))
    how = {
        "iterations": 3,
        "depth": 2,
        "verbose": 0,
        "allow_writing_files": False,
        "grow_policy": grow_policy,
    }
    with pytest.raises(axil.UnsupportedModelError, match="zeros above negative numbers in column"):
        axil.Explainer(
            cb.CatBoostRegressor(**how).fit(sparse.csr_matrix(rows), y), sparse.csr_matrix(rows), y
        )
    axil.Explainer(cb.CatBoostRegressor(**how).fit(rows, y), rows, y)


def test_a_catboost_column_without_a_name():
    """CatBoost calls it by its position."""
    frame = pd.DataFrame(X, columns=["a", "", "c"])
    model = cb.CatBoostRegressor(iterations=3, verbose=0, allow_writing_files=False).fit(frame, Y)
    explainer = axil.Explainer(model, frame, Y)
    np.testing.assert_allclose(
        explainer(frame).weights @ Y, model.predict(frame), rtol=0, atol=1e-6 * np.abs(Y).max()
    )
    axil.Explainer(model, X, Y)
    with pytest.raises(axil.InputError, match="other columns"):
        axil.Explainer(model, frame.rename(columns={"": "b"}), Y)


def test_xgboost_trees_for_one_output_and_for_all_in_one_model():
    class InTurns(xgb.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            model.set_param(
                {"multi_strategy": ("one_output_per_tree", "multi_output_tree")[epoch % 2]}
            )
            return False

    y = np.column_stack([Y, X[:, 1]])
    how = {"tree_method": "hist", "multi_strategy": "multi_output_tree"}
    booster = xgb.train(how, xgb.DMatrix(X, y), 4, callbacks=[InTurns()])
    with pytest.raises(axil.UnsupportedModelError, match=r"multi_strategy=.* in turns"):
        axil.Explainer(booster, X, y)


@pytest.mark.skipif(
    not hasattr(xgb, "objective"),
    reason="objectives with gradients for splits came with XGBoost 3.2",
)
def test_xgboost_splits_chosen_by_other_gradients(tmp_path):
    class Split(xgb.objective.TreeObjective):
        def __call__(self, iteration, y_pred, dtrain):
            return y_pred - dtrain.get_label().reshape(y_pred.shape), np.ones_like(y_pred)

        def split_grad(self, iteration, grad, hess):
            return grad.mean(axis=1, keepdims=True), hess.mean(axis=1, keepdims=True)

    y = np.column_stack([Y, X[:, 1]])
    how = {"multi_strategy": "multi_output_tree", "num_target": 2, "base_score": 0}
    booster = xgb.train(how, xgb.DMatrix(X, y), 3, obj=Split())
    booster.save_model(tmp_path / "model.json")
    for model in (booster, xgb.Booster(model_file=tmp_path / "model.json")):
        with pytest.raises(axil.UnsupportedModelError, match="objective=custom"):
            axil.Explainer(model, X, y)
        with pytest.raises(axil.UnsupportedModelError, match="objective=custom"):
            axil.Explainer(model, X, y, objective=Split())
