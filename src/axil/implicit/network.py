"""Scores of a fully connected network, with derivatives along directions carried forwards and backwards by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from axil.arrays import FloatArray


def _slopes(activation: str, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """First and second derivative of the activation, from its values; that of a rectifier at its kink is 0."""
    if activation == "tanh":
        first = 1 - values**2
        return first, -2 * values * first
    if activation == "logistic":
        first = values * (1 - values)
        return first, first * (1 - 2 * values)
    if activation == "relu":
        first = (values > 0).astype(float)
    else:
        first = np.ones_like(values)
    return first, np.zeros_like(values)


class Network:
    """Layers ``a_(l+1) = f(a_l W_l + b_l)``, the last one without f; parameters are all W, then all b, in a row.

    A product with the Hessian is one pass forwards and one backwards over the N training rows for
    each direction.
    """

    def __init__(
        self, weights: list[FloatArray], biases: list[FloatArray], activation: str, X: Any
    ):
        self._weights = weights
        self._biases = biases
        self._activation = activation
        self.parameters = np.concatenate([part.ravel() for part in (*weights, *biases)])
        self._training = self._forward(X)
        width = sum(len(b) for b in biases)
        self.bytes_a_direction = 8 * (4 * len(X) * width + 2 * len(self.parameters))

    def _forward(self, X: Any) -> list[FloatArray]:
        """The values of all layers, inputs first and scores last."""
        values = [X]
        for layer, (W, b) in enumerate(zip(self._weights, self._biases)):
            z = np.asarray(values[-1] @ W + b)
            values.append(z if layer == len(self._weights) - 1 else self._activate(z))
        return values

    def _activate(self, z: FloatArray) -> FloatArray:
        if self._activation == "tanh":
            return np.asarray(np.tanh(z))
        if self._activation == "logistic":
            from scipy.special import expit

            return np.asarray(expit(z))
        if self._activation == "relu":
            return np.maximum(z, 0)
        return z

    def scores(self, X: Any) -> FloatArray:
        """(n, K)."""
        return self._forward(X)[-1]

    def jacobian(self, X: Any) -> FloatArray:
        """(n, K, P)."""
        values = self._forward(X)
        n, n_outputs = values[-1].shape
        found = np.empty((n, n_outputs, len(self.parameters)))
        for k in range(n_outputs):
            pull = np.zeros((n, n_outputs))
            pull[:, k] = 1.0
            deltas = self._deltas(values, pull)
            parts = [np.einsum("ni,no->nio", a, d).reshape(n, -1) for a, d in zip(values, deltas)]
            found[:, k] = np.concatenate([*parts, *deltas], axis=1)
        return found

    def _deltas(self, values: list[FloatArray], pull: FloatArray) -> list[FloatArray]:
        """The gradient by each layer's sums before its activation, row by row."""
        deltas = [pull]
        for layer in range(len(self._weights) - 1, 0, -1):
            first, _ = _slopes(self._activation, values[layer])
            deltas.insert(0, (deltas[0] @ self._weights[layer].T) * first)
        return deltas

    def _moves(
        self, directions: FloatArray
    ) -> tuple[list[FloatArray], list[FloatArray], list[FloatArray]]:
        """Directions (P, m) as moves of the layers' parameters; and how values of the training rows move, (m, N, units)."""
        cuts = np.cumsum([part.size for part in (*self._weights, *self._biases)])[:-1]
        parts = np.split(directions.T, cuts, axis=1)
        depth = len(self._weights)
        by_weights = [part.reshape(-1, *W.shape) for part, W in zip(parts[:depth], self._weights)]
        by_biases = parts[depth:]
        moved: list[FloatArray] = []  # of the sums before the activations
        before: FloatArray | None = None  # how the layer's inputs move
        for layer, (W, dW, db) in enumerate(zip(self._weights, by_weights, by_biases)):
            z = self._training[layer] @ dW + db[:, None, :]
            moved.append(z if before is None else z + before @ W)
            if layer < depth - 1:
                before = moved[-1] * _slopes(self._activation, self._training[layer + 1])[0]
        return by_weights, by_biases, moved

    def push(self, directions: FloatArray) -> FloatArray:
        """(N, K, m)."""
        return np.moveaxis(self._moves(directions)[2][-1], 0, 2)

    def pull(self, pulls: FloatArray) -> FloatArray:
        """(P,)."""
        deltas = self._deltas(self._training, pulls)
        parts = [(a.T @ d).ravel() for a, d in zip(self._training, deltas)]
        return np.concatenate([*parts, *(d.sum(axis=0) for d in deltas)])

    def product(
        self, directions: FloatArray, gradient: FloatArray, curvature: FloatArray
    ) -> FloatArray:
        """(P, m): the gradient is carried backwards together with how it moves along the directions."""
        by_weights, _, moved = self._moves(directions)
        deltas = self._deltas(self._training, gradient)
        change = np.einsum("ijk,mik->mij", curvature, moved[-1])
        weights: list[FloatArray] = []
        biases: list[FloatArray] = []
        for layer in range(len(self._weights) - 1, -1, -1):
            values = self._training[layer]
            found = values.T @ change
            if layer > 0:
                first, second = _slopes(self._activation, values)
                found = found + np.swapaxes(moved[layer - 1] * first, 1, 2) @ deltas[layer]
                back = deltas[layer] @ self._weights[layer].T
            weights.insert(0, found.reshape(len(found), -1))
            biases.insert(0, change.sum(axis=1))
            if layer > 0:
                onward = change @ self._weights[layer].T + deltas[layer] @ np.swapaxes(
                    by_weights[layer], 1, 2
                )
                change = onward * first + back * second * moved[layer - 1]
        return np.concatenate([*weights, *biases], axis=1).T
