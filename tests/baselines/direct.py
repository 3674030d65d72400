"""The published formulas of the baselines, row by row in dense NumPy, on the structures of real models."""

from functools import cache

import numpy as np

from axil.methods.method import verified_model
from tests.contract_models import case_of, explainer_of, offsets_of

# What decides leaf values in each library: weights, l2, offsets, draws, coefficients, several outputs, held-out rows.
BOOSTED = [
    ("lightgbm", "regressor"),
    ("lightgbm", "weighted lambda_l2=3"),
    ("lightgbm", "scored weighted boost_from_average=False"),
    ("lightgbm", "categorical"),
    ("lightgbm", "bagging scored"),
    ("lightgbm", "goss"),
    ("lightgbm", "dart bagging weighted"),
    ("lightgbm", "weights some zero"),
    ("xgboost", "regressor weighted"),
    ("xgboost", "hist subsample weighted"),
    ("xgboost", "hist forests"),
    ("xgboost", "dart plain"),
    ("xgboost", "one_output_per_tree weighted"),
    ("xgboost", "multi_output_tree weighted"),
    ("xgboost", "min_child_weight=30"),
    ("xgboost", "base_margin outputs"),
    ("catboost", "defaults"),
    ("catboost", "SymmetricTree Ordered weighted"),
    ("catboost", "baseline"),
    ("catboost", "shrink"),
    ("catboost", "shrink one tree"),
    ("catboost", "multi weighted"),
    ("catboost", "scale and bias"),
    ("sklearn", "stages weighted"),
    ("sklearn", "stages subsample weighted"),
    ("sklearn", "stages n_iter_no_change"),
    ("sklearn", "hist l2 weighted"),
    ("sklearn", "hist early stopping"),
]
FORESTS = [
    ("lightgbm", "rf weighted lambda_l2=2"),
    ("xgboost", "regressor forest weighted"),
    ("sklearn", "DecisionTreeRegressor pruned"),
    ("sklearn", "RandomForestRegressor oob"),
    ("sklearn", "RandomForestRegressor outputs"),
    ("sklearn", "RandomForestClassifier bootstrap=False weighted"),
    ("sklearn", "ExtraTreesRegressor weights some zero"),
]
N_QUERIES = 4


class Asked:
    """A real model's explainer and a few rows to be explained, with targets, offsets and leaves."""

    def __init__(self, library, name):
        self.case, self.explainer = case_of(library, name), explainer_of(library, name)
        rng = np.random.default_rng(0)
        self.X = self.case.X_new[:N_QUERIES]
        n_outputs = verified_model(self.explainer).targets.shape[1]
        classes = verified_model(self.explainer).adapter.classes
        if np.ndim(self.case.y) == 2 and hasattr(
            self.case.model, "predict_proba"
        ):  # several labels
            self.y = self.case.y[:N_QUERIES]
            self.targets = verified_model(self.explainer).targets[:N_QUERIES]
        elif classes is None:
            spread = verified_model(self.explainer).targets.std(axis=0)
            self.targets = verified_model(self.explainer).targets[:N_QUERIES] + spread * rng.normal(
                size=(N_QUERIES, n_outputs)
            )
            self.y = self.targets[:, 0] if n_outputs == 1 else self.targets
        else:
            self.y = classes[np.arange(N_QUERIES) % len(classes)]
            self.targets = (self.y[:, None] == classes).astype(float)
        self.init_score = None
        if offsets_of(self.case) is not None:
            self.init_score = rng.normal(size=(N_QUERIES, n_outputs))
            self.targets = self.targets - self.init_score
            if library == "xgboost":  # offsets take the place of the base
                y, weights = (
                    verified_model(self.explainer).targets,
                    verified_model(self.explainer).engines[0].structure.row_weights,
                )
                bases = [
                    engine.structure.initial for engine in verified_model(self.explainer).engines
                ]
                estimated = bases[0] is None
                self.targets = self.targets + (
                    np.average(y, axis=0, weights=weights) if estimated else np.concatenate(bases)
                )
            self.init_score = self.init_score[:, 0] if n_outputs == 1 else self.init_score
        self.leaves = verified_model(self.explainer).adapter.leaves(self.X)

    def fits(self):
        """A `Fit`, the leaves of the queries (n, T) and their targets, offsets off, (n,), for each output."""
        engines = verified_model(self.explainer).engines
        for k, target in enumerate(self.targets.T):
            s = engines[k if len(engines) > 1 else 0].structure
            own = 0 if len(engines) > 1 else k
            leaves = self.leaves if s.columns is None else self.leaves[:, s.columns]
            yield (
                Fit(s, verified_model(self.explainer).targets[:, k], own),
                leaves.astype(int),
                target,
            )

    def scores(self, baseline, y=True):
        return baseline.scores(self.X, self.y if y else None, init_score=self.init_score)


asked = cache(Asked)


class Fit:
    """Boosting with one output by the definition: `values`, and `residuals` before each tree, for any row weights.

    The base and each leaf's l2 stay what they are in the model, whatever the weights.
    """

    def __init__(self, s, y, output=0, weights=None):
        self.s, self.y, self.output = s, y, output
        self.offsets = np.zeros(s.n_rows) if s.offsets is None else s.offsets[:, output]
        own = np.ones(s.n_rows) if s.row_weights is None else s.row_weights
        self.base = np.average(y, weights=own) if s.initial is None else s.initial[output]
        self.weights = own if weights is None else weights
        self.leaf, self.draw = (
            s.leaves().astype(int),
            s.sample_counts[s.cells // s.n_leaves[:, None]],
        )
        if s.coefficients is None:
            self.omega = np.tril(np.tile(s.learning_rates, (s.n_trees + 1, 1)), -1)
            self.beta = np.ones(s.n_trees + 1)
        else:
            self.omega, self.beta = s.coefficients.omega, s.coefficients.beta
        with np.errstate(divide="ignore"):
            l2 = 1.0 / s.linear_leaves.scale - s.leaf_weights
        self.values, self.residuals, self.totals = [], [], []
        for t in range(s.n_trees):
            self.residuals.append(y - self.offsets - self.before(t, self.leaf))
            counted = self.weights * self.draw[t]
            total = (
                np.bincount(self.leaf[t], counted, s.n_leaves[t])
                + l2[s.starts[t] : s.starts[t + 1]]
            )
            with np.errstate(divide="ignore", invalid="ignore"):
                value = (
                    np.bincount(self.leaf[t], counted * self.residuals[t], s.n_leaves[t]) / total
                )
            self.values.append(np.where(np.isfinite(value), value, 0.0))
            self.totals.append(total)

    def before(self, t, leaves):
        """The prediction before tree t, or in the end, of rows in these leaves, (T, n), offsets apart."""
        start = np.full(leaves.shape[1], self.beta[t] * self.base)
        return start + sum(
            self.omega[t, u] * self.values[u][leaves[u]] for u in range(min(t, self.s.n_trees))
        )

    def predict(self, queries):
        return self.before(self.s.n_trees, queries.T)


def rounding(a):
    """What subtracting predictions from targets loses of a product of two residuals: leaves of one row leave only that."""
    return 1e-14 * max(1.0, np.abs(verified_model(a.explainer).targets).max()) ** 2


def leaf_features(s):
    """(N, L) one-hot leaves, and each leaf's 1 / weight of all its rows."""
    w = np.ones(s.n_rows) if s.row_weights is None else s.row_weights
    one_hot = np.hstack([np.eye(n)[leaf] for leaf, n in zip(s.leaves(), s.n_leaves)])
    totals = w @ one_hot
    return one_hot, np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)


def kernel(s, queries):
    """k between queries in these leaves, (n, T), and training rows, and among training rows."""
    one_hot, inverse = leaf_features(s)
    features = one_hot * inverse
    asked_for = np.hstack([np.eye(n)[queries[:, t]] for t, n in enumerate(s.n_leaves)]) * inverse
    return asked_for @ features.T, features @ features.T
