"""leverage, degrees_of_freedom and standard_error: the weights of training rows in their own predictions, and noise.

Leverages are estimated where their exact work is too much.

For a vector z of random signs the mean of ``z_j (K z)_j`` is ``K[j, j]``, and its variance the sum
of the other squared weights of row j (Hutchinson's estimate, row by row). Most of that variance is
taken away by a matrix B that is close to K and whose diagonal is known (`Engine.approximate_matvec`): the
mean of

    z_j (K z)_j - c (z_j (B z)_j - B[j, j])

is ``K[j, j]`` whatever the number c, which is chosen once for all rows. Its scatter over `PROBES`
vectors gives the standard error.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from axil import inputs
from axil.arrays import FloatArray
from axil.machine.progress import track
from axil.methods import noise
from axil.methods.concentration import measured
from axil.methods.noise import Estimate
from axil.methods.question import Question
from axil.replay.exact_model import ExactModel
from axil.weights.engine import Engine

PROBES = 32  # random vectors
TOGETHER = 16  # of them in one pass
METHODS = ("exact", "estimate")


class Leverage(Question):
    """The questions, as methods of `Explainer`."""

    def leverage(self, method: str | None = None) -> Any:
        """(n_train,), or (n_train, K) where outputs have trees of their own: K[j, j], each row's weight in its own prediction.

        In the leaf matrix, O(T^2 N + L^3) and 16 L^2 bytes, or in batches of rows, O(T N^2); never
        an (n_train, n_train) array. Made once for an explainer; where that takes more than 30
        seconds a `CostWarning` says how long before the work begins, and what takes far longer is
        refused. ``method="estimate"`` has no such limits: O(T N) for each of 32 vectors of random
        signs, always the same ones.

        Parameters
        ----------
        method : "exact", "estimate" or None
            None: exact. "estimate": a pair of value and standard_error, each as above, without
            bias.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> value, error = explainer.leverage(method="estimate")
        >>> bool((abs(value - explainer.leverage()) < 5 * error).mean() > 0.99)
        True
        """
        model = self._answering("leverage")
        if not is_estimated(method):
            return _by_output(noise.leverages(model))
        return noise.Estimate(*map(_by_output, estimated(model)))

    def degrees_of_freedom(self, method: str | None = None) -> Any:
        """trace K, how many free parameters the fit is worth: a number, or (K,) where outputs have trees of their own.

        Exact, from `leverage`; or from 32 vectors of random signs, O(T N), as a pair of value and
        standard_error.

        Parameters
        ----------
        method : "exact", "estimate" or None
            None: exact. "estimate": a pair of value and standard_error, from random vectors.
        """
        model = self._answering("degrees_of_freedom")
        estimate = is_estimated(method)
        if estimate:
            found = noise.estimated_trace(model)
        else:
            found = noise.Estimate(noise.leverages(model).sum(axis=0), None)
        value, error = (
            float(part[0]) if part is not None and len(part) == 1 else part for part in found
        )
        if estimate:
            return noise.Estimate(value, error)
        return value

    def standard_error(self, X: Any, sigma: Any = None) -> FloatArray:
        """(n,) or (n, K), as predictions: ``sigma * sqrt(sum_j k_j^2)``, the noise of the targets as a prediction passes it on.

        For targets with independent noise of one size sigma and the structure held fixed: neither a bias of the model nor what
        other targets would do to its splits is in it. ``sigma``: a number, or one for each output; otherwise
        ``sigma^2 = RSS / trace((I - K)'(I - K))``, kept once it is known. Where that takes more than some 10 seconds the trace is
        estimated from random vectors, and an `ApproximationWarning` says how well; ``sigma="exact"`` waits for it, and
        ``sigma="estimate"`` always estimates, without a warning. Streamed: never holds an (n, n_train) array. On the scale of the
        fit: of a model fitted to logarithms, 0.02 is about 2 % of the price.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        sigma : float, (K,), "exact", "estimate" or None
            The noise of the targets, for standard errors; see `standard_error`.
        """
        asked = self._ask("standard_error", X)
        noise_size = noise.sigma_of(asked.model, sigma)
        norms = measured(asked, lambda one: one.norms)
        wide = norms.ndim == 1 and asked.model.outputs is not None
        return np.asarray((norms[:, None] if wide else norms) * noise_size)


def _by_output(found: FloatArray) -> FloatArray:
    """Numbers of training rows, (N, K), or (N,) where there is one of each."""
    if found.shape[1] == 1:
        return found[:, 0].copy()
    return found.copy()


def is_estimated(method: str | None) -> bool:
    """Whether an answer is to be estimated; None: exact."""
    return method is not None and inputs.as_choice(method, METHODS, "method") == "estimate"


def estimated(proven: ExactModel) -> Estimate:
    """(N, 1) each, or (N, K) where outputs have trees of their own: leverages and their standard errors; made once."""
    return proven.kept.get("estimated leverages", lambda: _estimated(proven))


def _estimated(proven: ExactModel) -> Estimate:
    found = [_of_engine(engine, len(proven.targets)) for engine in proven.engines]
    value, error = (np.stack(parts, axis=1) for parts in zip(*found))
    value.setflags(write=False)
    error.setflags(write=False)
    return Estimate(value, error)


def _of_engine(engine: Engine, n_rows: int) -> tuple[FloatArray, FloatArray]:
    """Leverages, (N,), and their standard errors. Sums over the vectors are kept, never the vectors."""
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
