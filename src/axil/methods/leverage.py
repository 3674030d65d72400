"""Estimates of leverages from random vectors.

The leverage of a training row is its weight in its own prediction.

For a vector z of random signs the mean of ``z_j (K z)_j`` is ``K[j, j]``, and its variance the sum
of the other squared weights of row j (Hutchinson's estimate, row by row). Most of that variance is
taken away by a matrix B that is close to K and whose diagonal is known
(`Engine.approximate_matvec`): the mean of

    z_j (K z)_j - c (z_j (B z)_j - B[j, j])

is ``K[j, j]`` whatever the number c, which is chosen once for all rows. Its scatter over `PROBES`
vectors gives the standard error.
"""

from __future__ import annotations

import numpy as np

from axil import inputs
from axil.arrays import FloatArray
from axil.machine.progress import track
from axil.methods.noise import Estimate
from axil.replay.exact_model import ExactModel
from axil.weights.engine import Engine

PROBES = 32  # random vectors
TOGETHER = 16  # of them in one pass
METHODS = ("exact", "estimate")


def is_estimated(method: str | None) -> bool:
    """Whether an answer is to be estimated; None: exact."""
    return method is not None and inputs.as_choice(method, METHODS, "method") == "estimate"


def estimated(verified: ExactModel) -> Estimate:
    """Return leverages and their standard errors, (N, 1) each, computed once.

    They have shape (N, K) if outputs have trees of their own.
    """
    return verified.kept.get("estimated leverages", lambda: _estimated(verified))


def _estimated(verified: ExactModel) -> Estimate:
    engine_estimates = [_of_engine(engine, len(verified.targets)) for engine in verified.engines]
    value, error = (np.stack(parts, axis=1) for parts in zip(*engine_estimates))
    value.setflags(write=False)
    error.setflags(write=False)
    return Estimate(value, error)


def _of_engine(engine: Engine, n_rows: int) -> tuple[FloatArray, FloatArray]:
    """Return leverages and their standard errors, (N,) each.

    Memory has sums over the random vectors, never the vectors.
    """
    stream = np.random.default_rng(0)
    own, near, of_own, of_near, of_both = np.zeros((5, n_rows))
    known = np.zeros(n_rows)
    for _ in track(range(0, PROBES, TOGETHER), "leverages"):
        z = np.where(stream.random((n_rows, TOGETHER)) < 0.5, -1.0, 1.0)
        a, like = z * engine.matvec(None, z), engine.approximate_matvec(z)
        own += a.sum(axis=1)
        of_own += np.square(a).sum(axis=1)
        if like is not None:
            b, known = z * like[0], like[1]
            b -= known[:, None]
            near += b.sum(axis=1)
            of_near += np.square(b).sum(axis=1)
            of_both += np.einsum("ij,ij->i", a, b)
    own, near = own / PROBES, near / PROBES
    of_own, of_near, of_both = (
        of_own / PROBES - own**2,
        of_near / PROBES - near**2,
        of_both / PROBES - own * near,
    )
    c = of_both.sum() / of_near.sum() if of_near.sum() > 0 else 0.0  # of least scatter
    scatter = of_own - 2 * c * of_both + c**2 * of_near
    return own - c * near, np.sqrt(np.maximum(scatter, 0.0) / (PROBES - 1))
