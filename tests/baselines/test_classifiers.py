"""The baselines of classifiers against the published formulas, row by row, and TREX against a general minimiser."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

import axil
from axil import ExactnessError, InputError, UnsupportedQuestionError
from axil.baselines import TREX, BoostIn, LeafInfluence, LeafMatch, Random, TreeSim
from axil.methods.method import verified_model
from tests.contributions import boosting_models as models
from tests.contributions.boosting_models import CASES, X_NEW, N, X, case_of
from tests.contributions.fixed_structure import LOSSES, differences, first, replay, sigmoid, softmax
from tests.subsets import chosen

EVERY = [BoostIn, LeafInfluence, TREX, TreeSim, LeafMatch, Random]
CLASSES = [
    name
    for name in CASES
    if case_of(name).loss.startswith(("logistic", "softmax", "gradient", "joint"))
]
CLASSES.remove("lightgbm cross_entropy")  # shares, not classes
ONE_STEP = [
    name for name in CLASSES if "steps" not in case_of(name).more and case_of(name).loss != "joint"
]
CLOSE = 2e-5  # of the largest score: LightGBM and XGBoost keep gradients and leaf values in float32


def fitted(name, **settings):
    case = case_of(name)
    return axil.Explainer(
        case.model,
        X,
        case.y,
        sample_weight=case.weights,
        init_score=case.offsets,
        n_threads=1,
        **settings,
    )


def asked(name):
    """Labels and one-hot targets of the explained rows: some class each."""
    case = case_of(name)
    return case.y[:3], case.targets[:3]


class Fit:
    """Scores before every iteration, leaf values and denominators, by plain sums over the library's own leaves."""

    def __init__(self, name):
        self.case = case = case_of(name)
        more = case.more
        self.leaves, self.queries = case.leaves(X), case.leaves(X_NEW)
        self.y, self.y_new, self.rate = case.targets, asked(name)[1], more.get("rate", 0.25)
        self.slopes = LOSSES[case.loss]
        counted = case.w * more["factors"] if more.get("start_factors") else case.w
        means = counted @ self.y / counted.sum()
        base = first(case.start, case.loss, means)
        F = base + np.zeros_like(self.y) + (0.0 if case.offsets is None else case.offsets[:, None])
        Q = first(more.get("query_start", case.start), case.loss, means) + np.zeros_like(self.y_new)
        l2 = more.get("l2", 0.0) * (case.w.mean() if more.get("scale_l2") else 1.0)
        self.rows = []  # one iteration: scores, scores of queries, weights, values and denominators of all rows' leaves
        for t in range(self.leaves.shape[1]):
            w = case.w * more.get("factors", 1.0) * (more["bags"][:, t] if "bags" in more else 1.0)
            g, h = self.slopes(self.y, F)
            value, below, new = np.zeros_like(F), np.ones_like(F), np.zeros_like(Q)
            for k in range(F.shape[1]):
                for leaf in np.unique(self.leaves[:, t, k]):
                    own = self.leaves[:, t, k] == leaf
                    G, H = (w * g[:, k])[own].sum(), (w * h[:, k])[own].sum()
                    value[own, k], below[own, k] = -G / (H + l2), H + l2
                    new[self.queries[:, t, k] == leaf, k] = -G / (H + l2)
            self.rows.append((F.copy(), Q.copy(), w, value, below))
            F, Q = F + self.rate * value, Q + self.rate * new
        np.testing.assert_allclose(Q, case.scores(X_NEW), atol=1e-5)  # the reference is the model
        self.F, self.Q = F, Q

    def by_score(self, which, F, eps=1e-5):
        """(N, K): the derivative of g (0) or h (1) by the output's own score, by central differences."""
        found = np.zeros_like(F)
        for k in range(F.shape[1]):
            step = eps * np.eye(F.shape[1])[k]
            found[:, k] = (
                self.slopes(self.y, F + step)[which] - self.slopes(self.y, F - step)[which]
            )[:, k] / (2 * eps)
        return found

    def boostin(self):
        total = np.zeros((len(self.Q), N))
        for t, (F, Q, w, value, below) in enumerate(self.rows):
            g, h = self.slopes(self.y, F)
            gradient = self.slopes(self.y_new, Q)[0]
            brings = self.rate * w[:, None] * (g + self.rate * value * h) / below
            for k in range(F.shape[1]):
                same = self.queries[:, t, k][:, None] == self.leaves[:, t, k]
                total += same * gradient[:, k][:, None] * brings[:, k]
        return total

    def leaf_influence(self):
        """The recursion, forward, once for every training row."""
        gradient = self.slopes(self.y_new, self.Q)[0]
        total = np.zeros((len(self.Q), N))
        for j in range(N):
            moved, asked = np.zeros_like(self.F), np.zeros_like(self.Q)
            for t, (F, _, w, value, below) in enumerate(self.rows):
                g, h = self.slopes(self.y, F)
                second = self.by_score(0, F) if "gradient" in self.case.loss else h
                third = self.by_score(1, F)
                before = moved.copy()
                for k in range(F.shape[1]):
                    for leaf in np.unique(self.leaves[:, t, k]):
                        own = self.leaves[:, t, k] == leaf
                        top = (w[:, None] * before * (second + value * third))[own, k].sum()
                        top += own[j] * w[j] * (g[j, k] + value[j, k] * h[j, k])
                        step = -self.rate * top / below[own, k][0]
                        moved[own, k] += step
                        asked[self.queries[:, t, k] == leaf, k] += step
            total[:, j] = -(gradient * asked).sum(axis=1)
        return total

    def kernel(self):
        """(n, N) and (N, N): of the leaves of all trees, those of CatBoost's classes once."""
        shape = self.leaves[:, :, :1] if self.case.library == "catboost" else self.leaves
        asked = self.queries[:, :, : shape.shape[2]]
        weights = self.case.w * self.case.more.get("factors", 1.0)
        found = [np.zeros((len(self.Q), N)), np.zeros((N, N))]
        for own, new in zip(shape.reshape(N, -1).T, asked.reshape(len(self.Q), -1).T):
            same = own[:, None] == own
            sizes = same @ weights
            found[0] += (new[:, None] == own) / sizes**2
            found[1] += same / sizes**2
        return found


@pytest.mark.parametrize("name", ONE_STEP)
def test_boostin_is_the_sum_over_shared_leaves(name):
    expected = Fit(name).boostin()
    found = BoostIn(fitted(name)).scores(X_NEW, asked(name)[0])
    np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE * np.abs(expected).max())


@pytest.mark.parametrize("name", chosen(2, ONE_STEP))
def test_leaf_influence_is_the_published_recursion(name):
    expected = Fit(name).leaf_influence()
    found = LeafInfluence(fitted(name)).scores(X_NEW, asked(name)[0])
    np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE * np.abs(expected).max())


def test_leaf_influence_of_two_classes_is_exact():
    """Of the loss at x by a row's weight, against central differences of a replay that starts from constants."""
    name, columns = "lightgbm binary from offsets", [0, 5, 77]
    case, (labels, y) = case_of(name), asked(name)
    leaves, queries, offsets = case.leaves(X), case.leaves(X_NEW), case.offsets[:, None]

    def loss(w):
        F = replay(leaves, queries, case.targets, w, case.loss, case.start, 0.25, offsets=offsets)
        return (np.logaddexp(0, F) - y * F)[:, 0]

    expected = -differences(loss, np.ones(N), columns, 1e-4).T
    found = LeafInfluence(fitted(name)).scores(X_NEW, labels)[:, columns]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    "name", ["catboost binary 4 steps", "catboost multiclass", "catboost multiclass 3 steps"]
)
def test_boostin_of_other_leaf_steps_is_a_sum_over_steps(name):
    """CatBoost's several steps, and leaf values of all classes solved for together; replayed without the package."""
    case, (labels, y_new) = case_of(name), asked(name)
    leaves, queries = case.leaves(X)[:, :, 0], case.leaves(X_NEW)[:, :, 0]
    y, w, steps, rate, joint = (
        case.targets,
        case.w,
        case.more.get("steps", 1),
        0.25,
        case.loss == "joint",
    )
    mean, l2, K = softmax if joint else sigmoid, 3.0 * case.w.mean(), case.targets.shape[1]
    F, Q, expected = np.zeros_like(y), np.zeros_like(y_new), np.zeros((3, N))
    for t in range(leaves.shape[1]):
        done, done_new = np.zeros_like(F), np.zeros_like(Q)
        for _ in range(steps):
            p, gradient = mean(F + done), mean(Q + done_new) - y_new
            curves = [
                np.diag(own) - np.outer(own, own) if joint else np.diag(own * (1 - own))
                for own in p
            ]
            value, value_new = np.zeros_like(F), np.zeros_like(Q)
            for leaf in np.unique(leaves[:, t]):
                own, new = (
                    np.flatnonzero(leaves[:, t] == leaf),
                    np.flatnonzero(queries[:, t] == leaf),
                )
                inverse = np.linalg.inv(sum(w[j] * curves[j] for j in own) + l2 * np.eye(K))
                value[own] = value_new[new] = v = inverse @ (w[own] @ (y - p)[own])
                for j in own:
                    effect = rate * w[j] * inverse @ (p[j] - y[j] + rate * curves[j] @ v)
                    expected[new, j] += gradient[new] @ effect
            done, done_new = done + value, done_new + value_new
        F, Q = F + rate * done, Q + rate * done_new
    np.testing.assert_allclose(Q, case.scores(X_NEW), atol=1e-7)
    found = BoostIn(fitted(name)).scores(X_NEW, labels)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("name", chosen(3, ONE_STEP, share=1))
@pytest.mark.parametrize("l2", [0.003, 1e-5])
def test_trex_is_a_regression_on_the_leaves(name, l2):
    """Scores from the whole kernel matrix; the weights are where a general minimiser of the same loss arrives, less exactly."""
    fit = Fit(name)
    (between, gram), y, weights = (
        fit.kernel(),
        fit.y,
        fit.case.w * fit.case.more.get("factors", 1.0),
    )
    coupled, shares = "softmax" in fit.case.loss, weights / weights.sum()
    eigenvalues, vectors = np.linalg.eigh(gram)
    kept = eigenvalues > 1e-12 * eigenvalues.max()
    features = vectors[:, kept] * np.sqrt(eigenvalues[kept])

    def objective(flat):
        theta = flat.reshape(-1, y.shape[1])
        f = features @ theta
        each = (
            logsumexp(f, axis=1) - (y * f).sum(axis=1)
            if coupled
            else (np.logaddexp(0, f) - y * f).sum(axis=1)
        )
        p = softmax(f) if coupled else sigmoid(f)
        slope = features.T @ (shares[:, None] * (p - y)) + 2 * l2 * theta
        return shares @ each + l2 * (theta**2).sum(), slope.ravel()

    start = np.zeros(features.shape[1] * y.shape[1])
    options = {"maxiter": 10000, "maxfun": 100000, "ftol": 0, "gtol": 1e-12, "maxcor": 50}
    theta = minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x
    f = features @ theta.reshape(-1, y.shape[1])
    alpha = shares[:, None] * (y - (softmax(f) if coupled else sigmoid(f))) / (2 * l2)
    baseline = TREX(fitted(name), l2=l2)
    np.testing.assert_allclose(baseline.alpha, alpha, rtol=0, atol=1e-5 * np.abs(alpha).max())
    np.testing.assert_allclose(
        gram @ baseline.alpha, f, rtol=0, atol=1e-4 * np.abs(f).max()
    )  # terms add up to f
    expected = np.zeros((3, N))
    for i, target in enumerate(fit.y_new):
        whole = between[i] @ baseline.alpha
        for j in range(N):
            left = whole - between[i, j] * baseline.alpha[j]
            if coupled:
                expected[i, j] = logsumexp(left) - target @ left - logsumexp(whole) + target @ whole
            else:
                expected[i, j] = (
                    np.logaddexp(0, left) - target * left - np.logaddexp(0, whole) + target * whole
                ).sum()
    found = baseline.scores(X_NEW, asked(name)[0])
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=1e-6 * np.abs(expected).max()
    )  # weights in float32


@pytest.mark.parametrize("name", chosen(3, ONE_STEP))
def test_treesim_is_signed_by_the_classes(name):
    case, labels = case_of(name), asked(name)[0]
    alike = Fit(name).kernel()[0] * case.w * case.more.get("factors", 1.0)
    baseline = TreeSim(fitted(name))
    np.testing.assert_allclose(baseline.scores(X_NEW), alike, rtol=1e-6)
    signs = np.where(np.asarray(labels)[:, None] == np.asarray(case.y), 1.0, -1.0)
    np.testing.assert_allclose(
        baseline.scores(X_NEW, labels), signs * alike, rtol=1e-6
    )  # libraries round weights to float32


@pytest.mark.parametrize("kind", EVERY)
def test_batches_and_threads_change_nothing(kind, monkeypatch):
    case = case_of("lightgbm multiclass")
    expected = kind(fitted("lightgbm multiclass")).scores(X[:20], case.y[:20])
    monkeypatch.setattr("axil.machine.memory.MOST_QUERIES", 7)
    fit = axil.Explainer(case.model, X, case.y, sample_weight=case.weights, n_threads=2)
    np.testing.assert_allclose(kind(fit).scores(X[:20], case.y[:20]), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [BoostIn, LeafInfluence, TREX])
def test_positive_rows_lower_the_loss(kind):
    """One sign: with the leaves held, the loss rises without the rows of the most positive scores, and the reverse."""
    name = "lightgbm binary from offsets"
    case = case_of(name)
    scores = kind(fitted(name)).scores(X_NEW[:1], [1])[0]
    loss = {}
    for which, rows in {
        "none": [],
        "helping": np.argsort(-scores)[:10],
        "harming": np.argsort(scores)[:10],
    }.items():
        w = np.ones(N)
        w[rows] = 1e-9
        leaves, queries = case.leaves(X), case.leaves(X_NEW[:1])
        loss[which] = -replay(
            leaves,
            queries,
            case.targets,
            w,
            "logistic",
            "zero",
            0.25,
            offsets=case.offsets[:, None],
        )
    assert loss["helping"] > loss["none"] > loss["harming"]


def test_what_is_no_classifier_is_refused_by_name():
    with pytest.raises(
        InputError, match="fitted to the loss 'poisson'; expected log-loss or softmax"
    ):
        BoostIn(fitted("lightgbm poisson"))
    with pytest.raises(InputError, match="y_train holds shares; expected classes"):
        BoostIn(fitted("lightgbm cross_entropy"))
    with pytest.raises(InputError, match=r"BoostIn takes an axil\.Explainer, not a LGBMClassifier"):
        BoostIn(case_of("lightgbm binary").model)
    with pytest.raises(ExactnessError):
        axil.Explainer(case_of("lightgbm binary").model, X, 1 - models.BINARY)


def test_leaf_influence_refuses_other_leaf_steps():
    with pytest.raises(UnsupportedQuestionError, match="leaf_estimation_iterations=4"):
        LeafInfluence(fitted("catboost binary 4 steps"))
    with pytest.raises(UnsupportedQuestionError, match="loss_function=MultiClass"):
        LeafInfluence(fitted("catboost multiclass"))


@pytest.mark.parametrize("kind", EVERY)
def test_bad_requests_are_named(kind):
    fit = fitted("lightgbm multiclass")
    baseline = kind(fit)
    with pytest.raises(InputError, match="init_score is not taken"):
        baseline.scores(X_NEW, [0, 1, 2], init_score=np.zeros((3, 3)))
    with pytest.raises(InputError, match="y"):
        baseline.scores(X_NEW, [0, 1, 7])
    verified_model(fit).budget.limit = 8 * N
    with pytest.raises(InputError, match=f"The {kind.__name__} scores of 3 x {N} rows would take"):
        baseline.scores(X_NEW, [0, 1, 2])


@pytest.mark.parametrize("kind", [BoostIn, LeafInfluence])
def test_without_classes_scores_are_effects_on_the_score(kind):
    """The gradients of the loss of the two classes differ by 1."""
    baseline = kind(fitted("lightgbm binary"))
    effects = baseline.scores(X_NEW)
    labels = np.unique(asked("lightgbm binary")[0])
    of_classes = [baseline.scores(X_NEW, [label] * len(X_NEW)) for label in labels]
    np.testing.assert_allclose(
        effects, of_classes[1] - of_classes[0], rtol=0, atol=CLOSE * np.abs(effects).max()
    )


@pytest.mark.parametrize("kind", [BoostIn, LeafInfluence, TREX])
def test_several_classes_need_targets(kind):
    assert TREX(fitted("lightgbm binary")).scores(X_NEW).shape == (3, N)
    with pytest.raises(InputError, match="several outputs"):
        kind(fitted("lightgbm multiclass")).scores(X_NEW)


def test_a_surrogate_that_cannot_be_fitted_is_refused(monkeypatch):
    monkeypatch.setattr("axil.baselines.trex.MOST_STEPS", 1)
    with pytest.raises(UnsupportedQuestionError, match="too ill-conditioned"):
        TREX(fitted("lightgbm binary"))


def test_classes_go_by_their_names():
    case = case_of("lightgbm binary weighted")
    fit = axil.Explainer(case.model, X, case.y, sample_weight=case.weights)
    assert np.isfinite(BoostIn(fit).scores(X_NEW, ["yes", "no", "yes"])).all()


def test_the_proof_is_that_of_the_explainer():
    found = fitted("lightgbm binary")
    assert BoostIn(found).verification is found.verification
