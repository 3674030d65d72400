"""TREX: representer points of a kernel surrogate of the model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from axil.baselines.kernel import LeafKernel
from axil.baselines.trees import Queries, TreeBaseline
from axil.errors import InputError

Array = NDArray[np.float64]

BLOCK_NUMBERS = 1 << 24  # of tables over leaves while the kernel of the training rows is filled


@dataclass(frozen=True)
class TREX(TreeBaseline):
    """A kernel ridge regression of the model's own predictions on its leaves, taken apart by training rows.

        f(x) = sum_j alpha_j k(x, j),   alpha_j = w_j (F_j - f_j) / (l2 W),   W = sum_j w_j
        score(x, j) = (y - F(x)) alpha_j k(x, j), or alpha_j k(x, j) where y is not given

    f minimises ``sum_j w_j (F_j - f_j)^2 / W + l2 |f|^2``; F are the model's predictions of the training rows and k is the
    `LeafKernel`. With a small ``l2`` the surrogate follows the model closely and its alpha are rough; with a large one it falls
    short of the model and alpha_j comes close to a multiple of F_j. `fidelity` tells which. (Brophy, Hammoudeh and Lowd,
    JMLR 24(154), 2023, after Yeh et al., NeurIPS 2018.) Set up by Cholesky among N rows or L leaves, whichever are fewer:
    8 min(N, L)^2 bytes. O(T N) a query.
    """

    l2: float = 0.003
    kernels: list[LeafKernel] = field(init=False, repr=False, compare=False)
    alpha: Array = field(init=False, repr=False, compare=False)  #: (N, K)
    fidelity: Array = field(init=False, repr=False, compare=False)  #: (K,) R^2 of the surrogate as to the model

    def __post_init__(self) -> None:
        if not (isinstance(self.l2, (int, float)) and np.isfinite(self.l2) and self.l2 > 0):
            raise InputError(f"l2 is {self.l2!r}; expected a positive number, as 0.003.")
        super().__post_init__()
        kernels = [LeafKernel.of(t.fit.structure, self.explainer._n_threads) for t in self.trees]
        fits = [self._fit(kernel, self._fitted(i)) for i, kernel in enumerate(kernels)]
        object.__setattr__(self, "kernels", kernels)
        object.__setattr__(self, "alpha", np.concatenate([alpha for alpha, _ in fits], axis=1))
        object.__setattr__(self, "fidelity", np.concatenate([fidelity for _, fidelity in fits]))

    def _fitted(self, i: int) -> Array:
        """(N, K): the model's predictions of the training rows."""
        return self.explainer._engines[i].fitted(self.trees[i].fit.targets)

    def _fit(self, kernel: LeafKernel, fitted: Array) -> tuple[Array, Array]:
        """alpha (N, K) and the surrogate's R^2 (K,)."""
        n_rows, n_leaves = len(fitted), len(kernel.features)
        size = min(n_rows, n_leaves)
        instead = "Raise memory_limit, or use BoostIn or TreeSim."
        self.explainer._budget.require(
            8 * size**2 + 8 * BLOCK_NUMBERS, f"The system of TREX for {size} unknowns", instead
        )
        weights = np.ones(n_rows) if kernel.weights is None else kernel.weights
        ridge = self.l2 * float(weights.sum())
        solve = among_rows if n_rows <= n_leaves else among_leaves
        alpha = solve(kernel, weights, fitted, ridge)
        counted = weights > 0
        left, apart = ridge * alpha[counted] / weights[counted, None], fitted[counted]
        apart = apart - np.average(apart, axis=0, weights=weights[counted])
        spread = weights[counted] @ apart**2
        missed = weights[counted] @ left**2
        return alpha, 1.0 - np.divide(missed, spread, out=np.zeros_like(missed), where=spread > 0)

    def _add_scores(self, queries: Queries, out: Array) -> None:
        errors = queries.errors
        if errors is None and self.alpha.shape[1] > 1:
            raise InputError("This model has several outputs, and without y TREX has no one score for them: pass y.")
        factors = np.ones((len(queries), 1)) if errors is None else errors
        for trees, kernel in zip(self.trees, self.kernels):
            alike = kernel.between(trees.leaves(queries.coordinates))
            alike *= factors[:, trees.outputs] @ self.alpha[:, trees.outputs].T
            out += alike


def among_rows(kernel: LeafKernel, weights: Array, fitted: Array, ridge: float) -> Array:
    """alpha from ``(K + ridge / w) alpha = F``, (N, N); symmetric by way of sqrt(w)."""
    root = np.sqrt(weights)
    system = np.empty((len(fitted), len(fitted)))
    size = max(1, BLOCK_NUMBERS // len(kernel.features))
    for first in range(0, len(fitted), size):
        part = slice(first, first + size)
        system[part] = kernel.between(kernel.leaves[:, part])
    system *= root
    system *= root[:, None]
    system[np.diag_indices_from(system)] += ridge
    return np.asarray(root[:, None] * _solve(system, root[:, None] * fitted))


def among_leaves(kernel: LeafKernel, weights: Array, fitted: Array, ridge: float) -> Array:
    """The same through ``(Phi' W Phi + ridge) theta = Phi' W F``, (L, L), and alpha = w (F - Phi theta) / ridge."""
    features = kernel.features[:, None]
    system = kernel.gram_of_leaves()
    system[np.diag_indices_from(system)] += ridge
    theta = _solve(system, features * kernel.gather(fitted))
    return np.asarray(weights[:, None] * (fitted - kernel.read_out(features * theta)) / ridge)


def _solve(system: Array, right: Array) -> Any:
    """Cholesky in place; only the upper triangle of the C-ordered system is read: to LAPACK it is the lower one."""
    factor = linalg.cho_factor(system.T, lower=True, overwrite_a=True, check_finite=False)
    return linalg.cho_solve(factor, right, check_finite=False)
