"""Training rows that do not fit, or do not lie, on one machine: Dask collections.

Leaves are assigned, replayed and read out partition by partition on the workers; only sums over
leaves travel. See docs/scaling.md. Needs the extra ``axil[dask]``.
"""
