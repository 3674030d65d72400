"""Saved files with some of their contents changed."""

import json

import numpy as np

import axil
from axil.output.archive import digest


def proven(path, model, **settings):
    """A loaded explainer, proven: what loading does not see must be refused here, before any answer."""
    explainer = axil.load(path, model, **settings)
    assert explainer.verification is not None
    return explainer


def rewritten(arrays, path, header=None, signed=True, **changed):
    """The file with some arrays, or some of the header, replaced (None, or ... in the header: left out).

    Signed: with the digest of the changed contents, as who changes a file may change that too.
    """
    head = json.loads(arrays["header"].tobytes()) | (header or {})
    head = {key: value for key, value in head.items() if value is not ...}
    kept = {
        name: array
        for name, array in (arrays | changed).items()
        if array is not None and name != "header"
    }
    if signed:
        head["digest"] = digest(
            {key: value for key, value in head.items() if key != "digest"}, kept
        )
    np.savez(path, **kept, header=np.frombuffer(json.dumps(head).encode(), dtype=np.uint8))
    return path


def with_one_changed(array, rng):
    """A copy with one entry changed: a number moved by a tenth or by one, a flag turned over."""
    changed = array.copy()
    flat = changed.reshape(-1)
    at = int(rng.integers(flat.size))
    if flat.dtype.kind == "b":
        flat[at] = not flat[at]
    elif flat.dtype.kind == "f":
        flat[at] = 1.1 * flat[at] if np.isfinite(flat[at]) and flat[at] else 1.0
    else:
        flat[at] = flat[at] - 1 if flat[at] == np.iinfo(flat.dtype).max else flat[at] + 1
    return changed
