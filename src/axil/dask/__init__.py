"""Answers over training data that do not fit, or do not lie, on one machine: Dask collections in, weights or pushes out.

Leaves are assigned, replayed and read out partition by partition on the workers; only sums over leaves travel. See
docs/scaling.md. Needs the extra ``axil[dask]``.
"""

from axil.dask.explainer import Explainer
from axil.dask.intervals import Predictive
from axil.dask.jacobian import JacobianExplainer

__all__ = ["Explainer", "JacobianExplainer", "Predictive"]
