"""The outputs of a torch module as a function of its trained parameters, differentiated by torch.func."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from axil.arrays import FloatArray

CHUNK_BYTES = 1 << 27  # of derivatives carried through the module at a time


class TorchModule:
    """Outputs of a module as a function of its trained parameters in a row; see `axil.implicit.optimum.Learner`."""

    def __init__(self, model: Any, X: FloatArray):
        import torch

        module = copy.deepcopy(model).double().cpu().eval()
        self._module = module
        self._trained = {
            name: part.detach() for name, part in module.named_parameters() if part.requires_grad
        }
        self._fixed = {
            name: part.detach()
            for name, part in module.named_parameters()
            if not part.requires_grad
        }
        self._fixed |= dict(module.named_buffers())
        self._theta = torch.cat([part.reshape(-1) for part in self._trained.values()])
        self._training = torch.as_tensor(X)
        self.parameters = self._theta.numpy()
        with torch.no_grad():
            found = self._outputs(self._theta, self._training)
        self.n_outputs = int(found.shape[1])
        # What one direction holds on its way: what the layers give for each row, and itself.
        self.bytes_a_direction = 8 * (
            len(X) * (self.n_outputs + _width(module)) + 2 * len(self.parameters)
        )

    def _outputs(self, theta: Any, rows: Any) -> Any:
        """Outputs of rows with these parameters."""
        import torch
        from torch.func import functional_call

        split = torch.split(theta, [part.numel() for part in self._trained.values()])
        named = {
            name: part.reshape(own.shape) for part, (name, own) in zip(split, self._trained.items())
        }
        return functional_call(self._module, {**named, **self._fixed}, (rows,)).reshape(
            len(rows), -1
        )

    def scores(self, X: FloatArray) -> FloatArray:
        """(n, K)."""
        import torch

        with torch.no_grad():
            return np.asarray(self._outputs(self._theta, torch.as_tensor(X)).numpy())

    def jacobian(self, X: FloatArray) -> FloatArray:
        """(n, K, P): backwards, row by row."""
        import torch
        from torch.func import jacrev, vmap

        one = jacrev(lambda theta, row: self._outputs(theta, row[None])[0])
        return np.asarray(
            vmap(one, (None, 0), chunk_size=self._chunk())(self._theta, torch.as_tensor(X)).numpy()
        )

    def push(self, directions: FloatArray) -> FloatArray:
        """(N, K, m): forwards along each direction."""
        from torch.func import jvp

        def one(direction: Any) -> Any:
            return jvp(
                lambda theta: self._outputs(theta, self._training), (self._theta,), (direction,)
            )[1]

        return np.moveaxis(self._map(one, directions), 0, 2)

    def pull(self, pulls: FloatArray) -> FloatArray:
        """(P,)."""
        import torch
        from torch.func import vjp

        _, back = vjp(lambda theta: self._outputs(theta, self._training), self._theta)
        return np.asarray(back(torch.as_tensor(np.ascontiguousarray(pulls)))[0].numpy())

    def product(
        self, directions: FloatArray, gradient: FloatArray, curvature: FloatArray
    ) -> FloatArray:
        """(P, m): forwards over backwards, of the quadratic in the outputs that has these derivatives."""
        import torch
        from torch.func import grad, jvp

        g = torch.as_tensor(gradient)
        D = torch.as_tensor(curvature)
        start = torch.as_tensor(self.scores(self._training))

        def loss(theta: Any) -> Any:
            found = self._outputs(theta, self._training)
            moved = found - start
            return (g * found).sum() + torch.einsum("nj,njk,nk->", moved, D, moved) / 2

        def one(direction: Any) -> Any:
            return jvp(grad(loss), (self._theta,), (direction,))[1]

        return np.asarray(self._map(one, directions).T)

    def _map(self, one: Callable[[Any], Any], directions: FloatArray) -> FloatArray:
        """(m, ...): of each direction, some at a time."""
        import torch
        from torch.func import vmap

        rows = torch.as_tensor(np.ascontiguousarray(directions.T))
        return np.asarray(vmap(one, chunk_size=self._chunk())(rows).numpy())

    def _chunk(self) -> int:
        return max(1, CHUNK_BYTES // self.bytes_a_direction)


def _width(module: Any) -> int:
    """Numbers that a row leaves behind in the layers, roughly: the sizes of what linear layers give."""
    return sum(int(part.shape[0]) for part in module.parameters() if part.ndim > 1)
