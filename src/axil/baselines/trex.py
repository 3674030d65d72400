"""TREX: representer points of a kernel regression on the model's leaves.

For a classifier f is a regularised logistic or softmax regression:

    f minimises  sum_j w_j l(y_j, f_j) / W + l2 |f|^2,   f_j = phi(j)' theta,   W = sum_j w_j

with phi the features of `LeafKernel`. The problem is convex and far from singular, since l2 bounds
its curvature from below: a few Newton steps, each solved by conjugate gradients, that only ever
multiply by phi.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import linalg
from scipy.special import expit, logsumexp, softmax

from axil.arrays import FloatArray
from axil.baselines.classifier import ClassQueries, FittedClassifier
from axil.baselines.tree_baselines import Batch, KernelBaseline, LeafKernel, Trees
from axil.errors import InputError, UnsupportedQuestionError
from axil.inputs import as_number
from axil.machine.blocks import spans

BLOCK_NUMBERS = 1 << 24  # of tables over leaves while the kernel of the training rows is filled

# The gradient relative to the first one: where to stop, and what must be reached
TARGET_GRADIENT = 1e-13
LARGEST_GRADIENT = 1e-9
MOST_STEPS = 60
MOST_PRODUCTS = 2000
SMALLEST_FACTOR = 1e-6  # of a Newton step


@dataclass(frozen=True)
class TREX(KernelBaseline):
    """A kernel ridge regression of the targets on the model's leaves, as a sum over training rows.

        f minimises  sum_j w_j (y_j - f_j)^2 / W + l2 |f|^2,   W = sum_j w_j alpha_j = w_j (y_j -
        f_j) / (2 l2 W),   a_j = alpha_j k(x, j),   g(x) = sum_j a_j = f(x) / 2 score(x, j) = L(y,
        g(x) - a_j) - L(y, g(x)) = a_j (y - g(x)) + a_j^2 / 2, or a_j where y is not given

    y_j are the targets of the training rows less their offsets and k is the `LeafKernel`. The 2 is
    that of the authors' package, which takes alpha for the loss (y - f)^2 / 2 and f for (y - f)^2,
    so that the terms add up to half of f: scores are what it computes, see docs/baselines.md. With
    a small ``l2`` f follows the targets closely and alpha are rough; with a large one it falls
    short and alpha_j comes close to a multiple of w_j y_j. `fidelity` states how close f is to the
    model.

    Of a classifier f is a logistic or softmax regression of the classes on the leaves of all trees,
    L its log-loss and p(f) its probabilities: alpha_j = w_j (y_j - p(f_j)) / (2 l2 W), whose terms
    add up to f itself (`axil.baselines.surrogate`). (Brophy, Hammoudeh and Lowd, JMLR 24(154),
    2023, after Yeh et al., NeurIPS 2018.) Set up by Cholesky among N rows or L leaves, whichever
    are fewer: 8 min(N, L)^2 bytes. O(T N) per explained row.
    """

    scores_predictions = True

    l2: float = 0.003
    alpha: FloatArray = field(init=False, repr=False, compare=False)  #: (N, K)
    #: (K,) R^2 of f as to the model, on training rows
    fidelity: FloatArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        l2 = as_number(self.l2, "l2")
        if not l2 > 0:
            raise InputError(f"l2 is {l2}; expected a positive number, such as 0.003.")
        object.__setattr__(self, "l2", l2)
        super().__post_init__()
        if self.classifier is not None:
            self._fit_to_classes(self.classifier)
            return
        fits = [self._fit(kernel, trees) for kernel, trees in zip(self.kernels, self.trees)]
        object.__setattr__(self, "alpha", np.concatenate([alpha for alpha, _ in fits], axis=1))
        object.__setattr__(self, "fidelity", np.concatenate([fidelity for _, fidelity in fits]))

    def _fit_to_classes(self, fit: FittedClassifier) -> None:
        targets = fit.walked.targets
        weights = fit.row_weights
        regression = ClassRegression(self.kernels[0], targets, self.l2, fit.loss.coupled)
        probabilities = regression.means(regression.fit())
        alpha = weights[:, None] * (targets - probabilities) / (2.0 * self.l2 * weights.sum())
        fidelity = _explained(fit.loss.mean(fit.walked.score), probabilities, weights)
        object.__setattr__(self, "alpha", alpha)
        object.__setattr__(self, "fidelity", fidelity)

    def _add_class_scores(
        self, fit: FittedClassifier, queries: ClassQueries, out: FloatArray
    ) -> None:
        coupled = fit.loss.coupled
        for query, similarities in enumerate(self.kernels[0].between(queries.leaves.T)):
            terms = similarities[:, None] * self.alpha
            if queries.targets is None:
                out[query] += terms[:, 0]
                continue
            y = queries.targets[query]
            score = terms.sum(axis=0, keepdims=True)
            out[query] += losses(y, score - terms, coupled) - losses(y, score, coupled)

    def _fit(self, kernel: LeafKernel, trees: Trees) -> tuple[FloatArray, FloatArray]:
        """Return alpha, (N, K), and the R^2 of f as to the model, (K,)."""
        targets = trees.fit.started()
        n_rows = len(targets)
        n_leaves = len(kernel.features)
        size = min(n_rows, n_leaves)
        self.verified_model.budget.require(
            8 * size**2 + 8 * BLOCK_NUMBERS,
            f"The system of TREX for {size} unknowns",
            "Raise memory_limit, or use BoostIn or TreeSim.",
        )
        weights = kernel.row_weights
        ridge = self.l2 * float(weights.sum())
        if n_rows <= n_leaves:
            solve = among_rows
        else:
            solve = among_leaves
        dual = solve(kernel, weights, targets, ridge)
        counted = weights > 0
        f = targets[counted] - ridge * dual[counted] / weights[counted, None]
        model = trees.fit.predictions(kernel.leaves)[counted] - trees.replaced_base
        return dual / 2.0, _explained(model, f, weights[counted])

    def _add_scores(self, queries: Batch, out: FloatArray) -> None:
        targets = queries.targets
        for trees, kernel in zip(self.trees, self.kernels):
            similarities = kernel.between(trees.leaves(queries.coordinates))
            outputs = range(self.alpha.shape[1])[trees.outputs]
            for output, base in zip(outputs, trees.replaced_base):
                terms = similarities * self.alpha[:, output]
                if targets is None:
                    out += terms
                else:
                    out += _loss_increase(terms, targets[:, output] - base)


def _explained(model: FloatArray, f: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the R^2 of f (rows, K) as to the model (rows, K), of shape (K,).

    For a constant model it is 1 where f is the same constant, else -inf.
    """
    spread = weights @ (model - np.average(model, axis=0, weights=weights)) ** 2
    missed = weights @ (model - f) ** 2
    rounding = 1e-24 * (weights @ model**2)
    is_constant = spread <= rounding
    explained: FloatArray = 1.0 - missed / np.where(is_constant, 1.0, spread)
    explained[is_constant] = np.where(missed <= rounding, 1.0, -np.inf)[is_constant]
    return explained


def _loss_increase(terms: FloatArray, targets: FloatArray) -> FloatArray:
    """Return the increase of the loss of ``g = sum of terms`` without each term, (n, N)."""
    increase = terms / 2.0
    increase += (targets - terms.sum(axis=1))[:, None]
    increase *= terms
    return increase


def among_rows(
    kernel: LeafKernel, weights: FloatArray, targets: FloatArray, ridge: float
) -> FloatArray:
    """Solve ``(K + ridge / w) dual = y``, (N, N), made symmetric by sqrt(w)."""
    root = np.sqrt(weights)
    system = np.empty((len(targets), len(targets)))
    size = max(1, BLOCK_NUMBERS // len(kernel.features))
    for rows in spans(len(targets), size):
        system[rows] = kernel.between(kernel.leaves[:, rows])
    system *= root
    system *= root[:, None]
    system[np.diag_indices_from(system)] += ridge
    return np.asarray(root[:, None] * _solve(system, root[:, None] * targets))


def among_leaves(
    kernel: LeafKernel, weights: FloatArray, targets: FloatArray, ridge: float
) -> FloatArray:
    """Solve ``(Phi' W Phi + ridge) theta = Phi' W y``, (L, L); dual = w (y - Phi theta) / ridge."""
    features = kernel.features[:, None]
    system = kernel.gram_of_leaves()
    system[np.diag_indices_from(system)] += ridge
    theta = _solve(system, features * kernel.gather(targets))
    return np.asarray(weights[:, None] * (targets - kernel.read_out(features * theta)) / ridge)


def _solve(system: FloatArray, right: FloatArray) -> Any:
    """Solve a system in place by Cholesky.

    LAPACK reads only the upper triangle of the C-ordered system, which to it is the lower one.
    """
    factor = linalg.cho_factor(system.T, lower=True, overwrite_a=True, check_finite=False)
    return linalg.cho_solve(factor, right, check_finite=False)


def losses(y: FloatArray, scores: FloatArray, coupled: bool) -> FloatArray:
    """Return the log-losses of scores (n, K) summed over outputs, or their cross-entropy, (n,)."""
    products = y * scores
    if coupled:
        return np.asarray(logsumexp(scores, axis=-1) - products.sum(axis=-1))
    return np.asarray((np.logaddexp(0.0, scores) - products).sum(axis=-1))


class ClassRegression:
    """A regularised logistic regression (softmax where ``coupled``) on the leaves of a model."""

    def __init__(self, kernel: LeafKernel, targets: FloatArray, l2: float, coupled: bool):
        self._kernel = kernel
        self._features = kernel.features[:, None]
        self._targets = targets
        self._l2 = l2
        self._coupled = coupled
        self._weights = kernel.row_weights
        self._total_weight = float(self._weights.sum())

    def means(self, scores: FloatArray) -> FloatArray:
        """Return the probabilities of scores, (n, K)."""
        return np.asarray(softmax(scores, axis=1) if self._coupled else expit(scores))

    def fit(self) -> FloatArray:
        """Return the scores of the training rows at the minimum, (N, K)."""
        theta = np.zeros((len(self._features), self._targets.shape[1]))
        scores = self._scores(theta)
        first_size = 0.0
        size = np.inf
        for _ in range(MOST_STEPS):
            probabilities = self.means(scores)
            gradient = self._by_theta(probabilities - self._targets, theta)
            size = float(np.linalg.norm(gradient))
            first_size = first_size or size
            if size <= TARGET_GRADIENT * first_size:
                break
            step = _conjugate_gradients(self._hessian_product(probabilities), -gradient)
            shorter = self._line_search(theta, scores, step)
            if shorter is None:
                break
            theta, scores = shorter
        if size > LARGEST_GRADIENT * first_size:
            raise UnsupportedQuestionError(
                "TREX",
                f"its surrogate with l2={self._l2:g} is too ill-conditioned to be fitted to these "
                "leaves",
                "Raise l2.",
            )
        return scores

    def _scores(self, theta: FloatArray) -> FloatArray:
        """Return ``phi theta``, (N, K)."""
        return self._kernel.read_out(self._features * theta)

    def _by_theta(self, by_scores: FloatArray, theta: FloatArray) -> FloatArray:
        """Return a gradient by theta, (L, K), from that by the scores, (N, K)."""
        gathered = self._features * self._kernel.gather(by_scores) / self._total_weight
        return np.asarray(gathered + 2.0 * self._l2 * theta)

    def _hessian_product(self, probabilities: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """Return the function that multiplies the hessian by a direction, (L, K)."""

        def product(direction: FloatArray) -> FloatArray:
            moves = self._scores(direction)
            if self._coupled:
                mean_moves = (probabilities * moves).sum(axis=1, keepdims=True)
                changes = probabilities * (moves - mean_moves)
            else:
                changes = probabilities * (1 - probabilities) * moves
            return self._by_theta(changes, direction)

        return product

    def _objective(self, theta: FloatArray, scores: FloatArray) -> float:
        row_losses = losses(self._targets, scores, self._coupled)
        mean_loss = self._weights @ row_losses / self._total_weight
        return float(mean_loss + self._l2 * (theta**2).sum())

    def _line_search(
        self, theta: FloatArray, scores: FloatArray, step: FloatArray
    ) -> tuple[FloatArray, FloatArray] | None:
        """Return theta and scores after a step that does not raise the objective; None: no step."""
        before = self._objective(theta, scores)
        factor = 1.0
        while factor >= SMALLEST_FACTOR:
            new_theta = theta + factor * step
            new_scores = self._scores(new_theta)
            if self._objective(new_theta, new_scores) <= before + 1e-13 * abs(before):
                return new_theta, new_scores
            factor /= 2.0
        return None


def _conjugate_gradients(
    product: Callable[[FloatArray], FloatArray], right: FloatArray
) -> FloatArray:
    """Solve ``product(x) = right`` by conjugate gradients, to rounding or `MOST_PRODUCTS`."""
    x = np.zeros_like(right)
    residual = right.copy()
    direction = residual.copy()
    squared = float((residual**2).sum())
    goal = 1e-20 * squared
    for _ in range(MOST_PRODUCTS):
        if squared <= goal:
            break
        image = product(direction)
        step_size = squared / float((direction * image).sum())
        x += step_size * direction
        residual -= step_size * image
        new_squared = float((residual**2).sum())
        direction = residual + (new_squared / squared) * direction
        squared = new_squared
    return x
