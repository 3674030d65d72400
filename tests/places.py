"""The places that training rows may be in.

Each function makes the explainer of a model from its rows, targets, weights and offsets in one place.
"""

import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import axil
from axil.kernels import choose
from tests.away import Away
from tests.dask.dask_models import partitioned
from tests.fits import explainer_of_fit


def in_memory(model, *data):
    """Return the explainer of rows in memory."""
    return explainer_of_fit(model, *data)


def from_file(model, *data):
    """Return the explainer after it was saved and loaded."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "explainer.npz"
        explainer_of_fit(model, *data).save(path)
        return axil.load(path, model, X_train=data[0])


def over_dask(model, *data):
    """Return the explainer of rows in Dask partitions."""
    collections = [None if values is None else partitioned(values) for values in data]
    return explainer_of_fit(model, *collections)


def on_stand_in(model, *data):
    """Return the explainer on a back end whose arrays do not mix with the host's, as on a GPU."""
    explainer_of_fit(model, *data)  # loads the modules that choose a back end
    with stand_in_chosen():
        return explainer_of_fit(model, *data)


@contextmanager
def stand_in_chosen():
    """Let all modules that are loaded choose the back end `Away`."""
    original = choose.backend_of
    patched = []
    for name, module in sys.modules.items():
        if name.startswith("axil.") and getattr(module, "backend_of", None) is original:
            patched.append(module)
    for module in patched:
        module.backend_of = lambda limits: Away(limits.n_threads)
    try:
        yield
    finally:
        for module in patched:
            module.backend_of = original


PLACES = {
    "memory": in_memory,
    "file": from_file,
    "stand-in": on_stand_in,
    "dask": over_dask,
}
