"""The workers of a parallel run share the cores: one thread each for the libraries, or their threads wait for each other."""

import os

import chosen_core  # noqa: F401  (before anything imports axil)

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
