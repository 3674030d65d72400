"""Scores of a fully connected network, and their derivatives along directions."""

from __future__ import annotations

import numpy as np

from axil.aliases import FeatureTable
from axil.arrays import FloatArray


def _slopes(activation: str, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the first and second derivative of the activation, from its values.

    Those of a rectifier at its kink are 0.
    """
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
    """Layers ``a_(l+1) = f(a_l W_l + b_l)``, the last one without f.

    Parameters are all W, then all b, in a row.
    A product with the Hessian is one pass forwards and one backwards over the N training rows for
    each direction.
    """

    def __init__(
        self, weights: list[FloatArray], biases: list[FloatArray], activation: str, X: FeatureTable
    ):
        self._weights = weights
        self._biases = biases
        self._activation = activation
        self.parameters = np.concatenate([layer.ravel() for layer in (*weights, *biases)])
        self._training = self._forward(X)
        width = sum(len(b) for b in biases)
        self.bytes_a_direction = 8 * (4 * len(X) * width + 2 * len(self.parameters))

    def _forward(self, X: FeatureTable) -> list[FloatArray]:
        """Return the values of all layers, inputs first and scores last."""
        values = [X]
        for layer, (W, b) in enumerate(zip(self._weights, self._biases)):
            z = np.asarray(values[-1] @ W + b)
            if layer < len(self._weights) - 1:
                z = self._activate(z)
            values.append(z)
        return values

    def _activate(self, z: FloatArray) -> FloatArray:
        """Return the activations of a layer's sums."""
        if self._activation == "tanh":
            return np.asarray(np.tanh(z))
        if self._activation == "logistic":
            from scipy.special import expit

            return np.asarray(expit(z))
        if self._activation == "relu":
            return np.maximum(z, 0)
        return z

    def scores(self, X: FeatureTable) -> FloatArray:
        """Return the scores of rows, (n, K)."""
        return self._forward(X)[-1]

    def jacobian(self, X: FeatureTable) -> FloatArray:
        """Return the derivatives of the scores by the parameters, (n, K, P)."""
        values = self._forward(X)
        n, n_outputs = values[-1].shape
        derivatives = np.empty((n, n_outputs, len(self.parameters)))
        for k in range(n_outputs):
            pull = np.zeros((n, n_outputs))
            pull[:, k] = 1.0
            deltas = self._deltas(values, pull)
            parts = [np.einsum("ni,no->nio", a, d).reshape(n, -1) for a, d in zip(values, deltas)]
            derivatives[:, k] = np.concatenate([*parts, *deltas], axis=1)
        return derivatives

    def _deltas(self, values: list[FloatArray], pull: FloatArray) -> list[FloatArray]:
        """Return the gradient by each layer's sums before its activation, row by row."""
        deltas = [pull]
        for layer in range(len(self._weights) - 1, 0, -1):
            first, _ = _slopes(self._activation, values[layer])
            deltas.insert(0, (deltas[0] @ self._weights[layer].T) * first)
        return deltas

    def _moves(
        self, directions: FloatArray
    ) -> tuple[list[FloatArray], list[FloatArray], list[FloatArray]]:
        """Return directions (P, m) as moves of the weights, of the biases and of the values.

        Moves of values are those of the training rows before the activations, (m, N, units) by
        layer.
        """
        cuts = np.cumsum(
            [layer_directions.size for layer_directions in (*self._weights, *self._biases)]
        )[:-1]
        directions_by_layer = np.split(directions.T, cuts, axis=1)
        depth = len(self._weights)
        by_weights = [
            layer_directions.reshape(-1, *W.shape)
            for layer_directions, W in zip(directions_by_layer[:depth], self._weights)
        ]
        by_biases = directions_by_layer[depth:]
        moved: list[FloatArray] = []  # of the sums before the activations
        before: FloatArray | None = None  # how the layer's inputs move
        for layer, (W, dW, db) in enumerate(zip(self._weights, by_weights, by_biases)):
            z = self._training[layer] @ dW + db[:, None, :]
            if before is not None:
                z = z + before @ W
            moved.append(z)
            if layer < depth - 1:
                before = moved[-1] * _slopes(self._activation, self._training[layer + 1])[0]
        return by_weights, by_biases, moved

    def push(self, directions: FloatArray) -> FloatArray:
        """Return how the scores of the training rows move along directions, (N, K, m)."""
        return np.moveaxis(self._moves(directions)[2][-1], 0, 2)

    def pull(self, pulls: FloatArray) -> FloatArray:
        """Return the gradient of weighted scores of the training rows, (P,)."""
        deltas = self._deltas(self._training, pulls)
        parts = [(a.T @ d).ravel() for a, d in zip(self._training, deltas)]
        return np.concatenate([*parts, *(d.sum(axis=0) for d in deltas)])

    def product(
        self, directions: FloatArray, gradient: FloatArray, curvature: FloatArray
    ) -> FloatArray:
        """Return the product of the Hessian and directions, (P, m).

        The gradient goes backwards together with how it moves along the directions.
        """
        by_weights, _, moved = self._moves(directions)
        deltas = self._deltas(self._training, gradient)
        change = np.einsum("ijk,mik->mij", curvature, moved[-1])
        weights: list[FloatArray] = []
        biases: list[FloatArray] = []
        for layer in range(len(self._weights) - 1, -1, -1):
            values = self._training[layer]
            weight_products = values.T @ change
            if layer > 0:
                first, second = _slopes(self._activation, values)
                weight_products = (
                    weight_products + np.swapaxes(moved[layer - 1] * first, 1, 2) @ deltas[layer]
                )
                back = deltas[layer] @ self._weights[layer].T
            weights.insert(0, weight_products.reshape(len(weight_products), -1))
            biases.insert(0, change.sum(axis=1))
            if layer > 0:
                onward = change @ self._weights[layer].T + deltas[layer] @ np.swapaxes(
                    by_weights[layer], 1, 2
                )
                change = onward * first + back * second * moved[layer - 1]
        return np.concatenate([*weights, *biases], axis=1).T
