"""TREX: representer points of a kernel regression on the model's leaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import linalg

from axil.arrays import FloatArray
from axil.baselines.classifier import ClassQueries, FittedClassifier
from axil.baselines.kernel import LeafKernel
from axil.baselines.surrogate import fit_classes, losses, means
from axil.baselines.tree_baselines import Batch, KernelBaseline, Trees
from axil.errors import InputError
from axil.inputs import as_number
from axil.machine.blocks import spans

BLOCK_NUMBERS = 1 << 24  # of tables over leaves while the kernel of the training rows is filled

SEVERAL = "This model has several outputs, and without y TREX has no one score for them: pass y."


@dataclass(frozen=True)
class TREX(KernelBaseline):
    """A kernel ridge regression of the targets on the model's leaves, taken apart by training rows.

        f minimises  sum_j w_j (y_j - f_j)^2 / W + l2 |f|^2,   W = sum_j w_j
        alpha_j = w_j (y_j - f_j) / (2 l2 W),   a_j = alpha_j k(x, j),   g(x) = sum_j a_j = f(x) / 2
        score(x, j) = L(y, g(x) - a_j) - L(y, g(x)) = a_j (y - g(x)) + a_j^2 / 2, or a_j where y is not given

    y_j are the targets of the training rows less their offsets and k is the `LeafKernel`. The 2 is that of the authors' package,
    which takes alpha for the loss (y - f)^2 / 2 and f for (y - f)^2, so that the terms add up to half of f: scores are what
    it computes, see docs/baselines.md. With a small ``l2`` f follows the targets closely and alpha are rough; with a large
    one it falls short and alpha_j comes close to a multiple of w_j y_j. `fidelity` states how close f is to the model.

    Of a classifier f is a logistic or softmax regression of the classes on the leaves of all trees, L its log-loss and p(f) its
    probabilities: alpha_j = w_j (y_j - p(f_j)) / (2 l2 W), whose terms add up to f itself (`axil.baselines.surrogate`). (Brophy,
    Hammoudeh and Lowd, JMLR 24(154), 2023, after Yeh et al., NeurIPS 2018.) Set up by Cholesky among N rows or L leaves,
    whichever are fewer: 8 min(N, L)^2 bytes. O(T N) per query.
    """

    l2: float = 0.003
    alpha: FloatArray = field(init=False, repr=False, compare=False)  #: (N, K)
    fidelity: FloatArray = field(
        init=False, repr=False, compare=False
    )  #: (K,) R^2 of f as to the model, on training rows

    def __post_init__(self) -> None:
        l2 = as_number(self.l2, "l2")
        if not l2 > 0:
            raise InputError(f"l2 is {l2}; expected a positive number, as 0.003.")
        object.__setattr__(self, "l2", l2)
        super().__post_init__()
        if self.classifier is not None:
            self._fit_to_classes(self.classifier)
            return
        fits = [self._fit(kernel, trees) for kernel, trees in zip(self.kernels, self.trees)]
        object.__setattr__(self, "alpha", np.concatenate([alpha for alpha, _ in fits], axis=1))
        object.__setattr__(self, "fidelity", np.concatenate([fidelity for _, fidelity in fits]))

    def _fit_to_classes(self, fit: FittedClassifier) -> None:
        w, weights, coupled = fit.walked, fit.row_weights, fit.loss.coupled
        surrogate = means(fit_classes(self.kernels[0], w.targets, self.l2, coupled), coupled)
        alpha = weights[:, None] * (w.targets - surrogate) / (2.0 * self.l2 * weights.sum())
        object.__setattr__(self, "alpha", alpha)
        object.__setattr__(self, "fidelity", _explained(fit.loss.mean(w.score), surrogate, weights))

    def _add_class_scores(
        self, fit: FittedClassifier, queries: ClassQueries, out: FloatArray
    ) -> None:
        if queries.targets is None and self.alpha.shape[1] > 1:
            raise InputError(SEVERAL)
        for i, alike in enumerate(self.kernels[0].between(queries.leaves.T)):
            terms = alike[:, None] * self.alpha
            if queries.targets is None:
                out[i] += terms[:, 0]
                continue
            whole, y = terms.sum(axis=0, keepdims=True), queries.targets[i]
            out[i] += losses(y, whole - terms, fit.loss.coupled) - losses(
                y, whole, fit.loss.coupled
            )

    def _fit(self, kernel: LeafKernel, trees: Trees) -> tuple[FloatArray, FloatArray]:
        """alpha (N, K) and the R^2 of f as to the model (K,)."""
        targets = trees.fit.started()
        n_rows, n_leaves = len(targets), len(kernel.features)
        size = min(n_rows, n_leaves)
        instead = "Raise memory_limit, or use BoostIn or TreeSim."
        self.proven.budget.require(
            8 * size**2 + 8 * BLOCK_NUMBERS, f"The system of TREX for {size} unknowns", instead
        )
        weights = np.ones(n_rows) if kernel.rows.weights is None else kernel.rows.weights
        ridge = self.l2 * float(weights.sum())
        solve = among_rows if n_rows <= n_leaves else among_leaves
        dual = solve(kernel, weights, targets, ridge)
        counted = weights > 0
        f = targets[counted] - ridge * dual[counted] / weights[counted, None]
        model = trees.fit.predictions(kernel.leaves)[counted] - trees.replaced_base
        return dual / 2.0, _explained(model, f, weights[counted])

    def _add_scores(self, queries: Batch, out: FloatArray) -> None:
        targets = queries.targets
        if targets is None and self.alpha.shape[1] > 1:
            raise InputError(SEVERAL)
        for trees, kernel in zip(self.trees, self.kernels):
            alike = kernel.between(trees.leaves(queries.coordinates))
            for k, base in zip(range(self.alpha.shape[1])[trees.outputs], trees.replaced_base):
                terms = alike * self.alpha[:, k]
                out += terms if targets is None else _raised(terms, targets[:, k] - base)


def _explained(model: FloatArray, f: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the R^2 of f as to the model, (K,), of (rows, K) each; of a constant model 1 where f is it, else -inf."""
    spread = weights @ (model - np.average(model, axis=0, weights=weights)) ** 2
    missed = weights @ (model - f) ** 2
    rounding = 1e-24 * (weights @ model**2)
    is_constant = spread <= rounding
    explained: FloatArray = 1.0 - missed / np.where(is_constant, 1.0, spread)
    explained[is_constant] = np.where(missed <= rounding, 1.0, -np.inf)[is_constant]
    return explained


def _raised(terms: FloatArray, targets: FloatArray) -> FloatArray:
    """(n, N): how far the loss of ``g = sum of terms`` rises where one of them, (n, N), is left out."""
    left = terms / 2.0
    left += (targets - terms.sum(axis=1))[:, None]
    left *= terms
    return left


def among_rows(
    kernel: LeafKernel, weights: FloatArray, targets: FloatArray, ridge: float
) -> FloatArray:
    """The dual weights from ``(K + ridge / w) dual = y``, (N, N); symmetric by way of sqrt(w)."""
    root = np.sqrt(weights)
    system = np.empty((len(targets), len(targets)))
    size = max(1, BLOCK_NUMBERS // len(kernel.features))
    for part in spans(len(targets), size):
        system[part] = kernel.between(kernel.leaves[:, part])
    system *= root
    system *= root[:, None]
    system[np.diag_indices_from(system)] += ridge
    return np.asarray(root[:, None] * _solve(system, root[:, None] * targets))


def among_leaves(
    kernel: LeafKernel, weights: FloatArray, targets: FloatArray, ridge: float
) -> FloatArray:
    """Dual coefficients through ``(Phi' W Phi + ridge) theta = Phi' W y``, (L, L), and dual = w (y - Phi theta) / ridge."""
    features = kernel.features[:, None]
    system = kernel.gram_of_leaves()
    system[np.diag_indices_from(system)] += ridge
    theta = _solve(system, features * kernel.gather(targets))
    return np.asarray(weights[:, None] * (targets - kernel.read_out(features * theta)) / ridge)


def _solve(system: FloatArray, right: FloatArray) -> Any:
    """Cholesky in place; only the upper triangle of the C-ordered system is read: to LAPACK it is the lower one."""
    factor = linalg.cho_factor(system.T, lower=True, overwrite_a=True, check_finite=False)
    return linalg.cho_solve(factor, right, check_finite=False)
