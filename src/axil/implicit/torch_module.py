"""The outputs of a torch module as a function of its parameters, differentiated by torch.func."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np

from axil.aliases import FeatureTable, ForeignModel, ForeignObject
from axil.arrays import FloatArray

CHUNK_BYTES = 1 << 27  # of derivatives carried through the module at a time


class TorchModule:
    """Outputs of a module as a function of its trained parameters, which are in a row.

    See `axil.implicit.optimum.Learner`.
    """

    def __init__(self, model: ForeignModel, X: FloatArray):
        import torch

        module = copy.deepcopy(model).double().cpu().eval()
        self._module = module
        self._trained = {
            name: parameter.detach()
            for name, parameter in module.named_parameters()
            if parameter.requires_grad
        }
        self._fixed = {
            name: parameter.detach()
            for name, parameter in module.named_parameters()
            if not parameter.requires_grad
        }
        self._fixed |= dict(module.named_buffers())
        self._theta = torch.cat([parameter.reshape(-1) for parameter in self._trained.values()])
        self._training = torch.as_tensor(X)
        self.parameters = self._theta.numpy()
        with torch.no_grad():
            outputs = self._outputs(self._theta, self._training)
        self.n_outputs = int(outputs.shape[1])
        # What one direction holds on its way: what the layers give for each row, and itself.
        self.bytes_a_direction = 8 * (
            len(X) * (self.n_outputs + _width(module)) + 2 * len(self.parameters)
        )

    def _outputs(self, theta: ForeignObject, rows: FeatureTable) -> ForeignObject:
        """Return the outputs of rows with these parameters, (n, K)."""
        import torch
        from torch.func import functional_call

        split = torch.split(theta, [values.numel() for values in self._trained.values()])
        named = {
            name: values.reshape(parameter.shape)
            for values, (name, parameter) in zip(split, self._trained.items())
        }
        return functional_call(self._module, {**named, **self._fixed}, (rows,)).reshape(
            len(rows), -1
        )

    def scores(self, X: FloatArray) -> FloatArray:
        """Return the scores of rows, (n, K)."""
        import torch

        with torch.no_grad():
            return np.asarray(self._outputs(self._theta, torch.as_tensor(X)).numpy())

    def jacobian(self, X: FloatArray) -> FloatArray:
        """Return the derivatives of the scores by the parameters, (n, K, P), backwards by row."""
        import torch
        from torch.func import jacrev, vmap

        row_jacobian = jacrev(lambda theta, row: self._outputs(theta, row[None])[0])
        return np.asarray(
            vmap(row_jacobian, (None, 0), chunk_size=self._chunk())(
                self._theta, torch.as_tensor(X)
            ).numpy()
        )

    def push(self, directions: FloatArray) -> FloatArray:
        """Return the derivatives of training scores along directions, (N, K, m), forwards."""
        from torch.func import jvp

        def along_direction(direction: ForeignObject) -> ForeignObject:
            return jvp(
                lambda theta: self._outputs(theta, self._training), (self._theta,), (direction,)
            )[1]

        return np.moveaxis(self._map(along_direction, directions), 0, 2)

    def pull(self, pulls: FloatArray) -> FloatArray:
        """Return the gradient of weighted scores of the training rows, (P,)."""
        import torch
        from torch.func import vjp

        _, back = vjp(lambda theta: self._outputs(theta, self._training), self._theta)
        return np.asarray(back(torch.as_tensor(np.ascontiguousarray(pulls)))[0].numpy())

    def product(
        self, directions: FloatArray, gradient: FloatArray, curvature: FloatArray
    ) -> FloatArray:
        """Return the product of the Hessian and directions, (P, m), forwards over backwards.

        It is that of the quadratic function of the outputs that has these derivatives.
        """
        import torch
        from torch.func import grad, jvp

        g = torch.as_tensor(gradient)
        D = torch.as_tensor(curvature)
        start = torch.as_tensor(self.scores(self._training))

        def loss(theta: ForeignObject) -> ForeignObject:
            outputs = self._outputs(theta, self._training)
            moved = outputs - start
            return (g * outputs).sum() + torch.einsum("nj,njk,nk->", moved, D, moved) / 2

        def along_direction(direction: ForeignObject) -> ForeignObject:
            return jvp(grad(loss), (self._theta,), (direction,))[1]

        return np.asarray(self._map(along_direction, directions).T)

    def _map(
        self, along_direction: Callable[[ForeignObject], ForeignObject], directions: FloatArray
    ) -> FloatArray:
        """Return the result for each direction, (m, ...), a few directions at a time."""
        import torch
        from torch.func import vmap

        rows = torch.as_tensor(np.ascontiguousarray(directions.T))
        return np.asarray(vmap(along_direction, chunk_size=self._chunk())(rows).numpy())

    def _chunk(self) -> int:
        """Return how many directions go through the module at a time."""
        return max(1, CHUNK_BYTES // self.bytes_a_direction)


def _width(module: ForeignModel) -> int:
    """Return roughly how many numbers a row has in the layers: the outputs of linear layers."""
    return sum(int(parameter.shape[0]) for parameter in module.parameters() if parameter.ndim > 1)
