"""The workers of a parallel run share the cores: one thread each for the libraries, or their threads wait for each other."""

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
