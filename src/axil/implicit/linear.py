"""Scores that are linear in the parameters: theta_k' phi(x), with phi the columns, or a kernel's features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack, issparse

from axil.types import Array


def as_they_are(rows: Any) -> Any:
    """The rows themselves."""
    return rows


def with_ones(rows: Any) -> Any:
    """The rows, dense or sparse, with a last column of ones."""
    ones = np.ones((rows.shape[0], 1))
    return csr_array(hstack([rows, ones])) if issparse(rows) else np.hstack([rows, ones])


class Linear:
    """K scores of q features; parameters (K, q) in a row. Products cost N * K * q, sparse features what they hold."""

    def __init__(self, coefficients: Array, features: Callable[[Any], Any], X: Any):
        self._coefficients, self._features = coefficients, features
        self._training = features(X)
        self.parameters = coefficients.ravel()
        self.bytes_a_direction = 8 * (3 * self._training.shape[0] * len(coefficients) + 2 * coefficients.size)

    def scores(self, X: Any) -> Array:
        """(n, K)."""
        return np.asarray(self._features(X) @ self._coefficients.T)

    def jacobian(self, X: Any) -> Array:
        """(n, K, P): the features, in the block of their score."""
        phi = self._features(X)
        phi = phi.toarray() if issparse(phi) else phi
        n_outputs = len(self._coefficients)
        return np.asarray(np.einsum("kj,nq->nkjq", np.eye(n_outputs), phi).reshape(len(phi), n_outputs, -1))

    def push(self, directions: Array) -> Array:
        """(N, K, m)."""
        blocks = directions.reshape(*self._coefficients.shape, -1)
        return np.stack([np.asarray(self._training @ block) for block in blocks], axis=1)

    def pull(self, pulls: Array) -> Array:
        """(P,), or (P, m) for pulls (N, K, m)."""
        blocks = [np.asarray(self._training.T @ pulls[:, k]) for k in range(pulls.shape[1])]
        return np.concatenate(blocks)

    def product(self, directions: Array, gradient: Array, curvature: Array) -> Array:
        """(P, m): Phi' D Phi directions; the gradient by the scores does not matter where these are linear."""
        return self.pull(np.einsum("ijk,ikm->ijm", curvature, self.push(directions)))
