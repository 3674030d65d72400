"""Explainers of boosted models on disk: leaves, targets, weights and offsets of the training rows, never pickle.

Nothing in a file is trusted: the fit is replayed from its arrays, and every leaf value proven again, as construction does.
Only how far the scores of the training rows were from the model's is taken from the file, unless the rows are given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.adapters import smooth
from axil.adapters.bags import RecordedBags
from axil.arrays import FloatArray
from axil.contributions.additive_model import AdditiveModel
from axil.contributions.boosting import Boosting, KnownLeaves
from axil.errors import ExactnessError, InputError
from axil.implicit.readers import OUTPUTS
from axil.inputs.copies import frozen
from axil.machine.memory import Limits
from axil.output import archive
from axil.output.archive import Archive
from axil.output.save import UNPROVEN, require_model
from axil.output.tables import as_backend

KIND = "additive"


def save(path: Any, proven: AdditiveModel, key: bytes | None = None) -> None:
    """Write the file whole or not at all."""
    model = proven.boosting
    if model.found is None:
        raise InputError(UNPROVEN)
    arrays = {"leaves": model.found.leaves, "targets": model.rows.targets}
    arrays |= {
        name: own
        for name in ("weights", "offsets")
        if (own := getattr(model.rows, name)) is not None
    }
    if model.rows.bags is not None:
        arrays["bags"] = model.rows.bags.astype(
            RecordedBags(model.rows.bags, len(model.found.leaves)).dtype
        )
    header = {
        "kind": KIND,
        "fingerprint": model.adapter.fingerprint,
        "backend": proven.backend,
        "output": model.differentiates,
        "counts_classes": model.label_weights.counts_classes,
        "score_error": model.found.score_error,
        "rounding_error": model.found.rounding_error,
    }
    archive.write(path, header, proven.index, arrays, key)


def load(
    file: Archive, model: Any, limits: Limits, X_train: Any, objective: Any
) -> Callable[[], AdditiveModel]:
    """The proof of a file's model, for the same fitted model, once the arrays fit each other; called, it replays the fit."""
    adapter = smooth.find(model, objective)
    if adapter is None:
        raise InputError(
            f"{file.path} was saved for boosted trees, and the model given is a {type(model).__module__}."
            f"{type(model).__qualname__}. Pass the model that it was saved for."
        )
    header, arrays = file.header, dict(file.arrays)
    try:
        leaves, targets = arrays.pop("leaves"), _numbers(arrays.pop("targets"), len(file.index))
        weights, offsets = arrays.pop("weights", None), arrays.pop("offsets", None)
        bags = inputs.as_bags(arrays.pop("bags", None), len(targets))
        if arrays:
            raise ValueError(f"{len(arrays)} arrays too many")
        if not len(targets):
            raise ValueError("no rows")
        if weights is not None and (
            _numbers(weights[:, None], len(targets)).min() < 0 or not weights.any()
        ):
            raise ValueError("weights below 0, or 0 everywhere")
        if offsets is not None and _numbers(offsets, len(targets)).shape != targets.shape:
            raise ValueError("offsets of other outputs")
        if bags is not None and bags.shape[1] != len(leaves):
            raise ValueError("bags of other trees")
        output, off, rounded = header["output"], header["score_error"], header.get("rounding_error")
        if (
            output not in OUTPUTS
            or type(off) is not float
            or not 0 <= off <= adapter.smooth_tolerance
        ):
            raise ValueError("a header that proves nothing")
        counts_classes = header["counts_classes"]
        if type(counts_classes) is not bool:
            raise ValueError(f"counts_classes of {counts_classes!r}")
        if rounded is not None and (type(rounded) is not float or not 0 <= rounded < np.inf):
            raise ValueError(f"a rounding error of {rounded!r}")
        backend = as_backend(header.get("backend"))
    except Exception as error:  # whatever arrays that do not fit raise
        raise file.damaged(error) from error
    require_model(file, adapter, targets.shape[1])
    X = None if X_train is None else inputs.as_features(X_train, adapter, "X_train")
    if X is not None and X.shape[0] != len(targets):
        raise InputError(
            f"X_train has {X.shape[0]} rows; the explainer was made of {len(targets)}."
        )

    def proven() -> AdditiveModel:
        try:
            known = KnownLeaves(frozen(leaves), off, rounded)
            found = Boosting(
                adapter,
                None,
                targets,
                weights,
                offsets,
                output,
                limits,
                True,
                known,
                bags,
                counts_classes,
            )
        except InputError:
            raise
        except (ExactnessError, ValueError) as error:
            raise file.damaged(error) from error
        if X is not None:
            found.check_again(X, found.limits)
        return AdditiveModel(
            adapter, file.index, X, backend, found.limits, found.verification, boosting=found
        )

    return proven


def _numbers(values: NDArray[Any], n_rows: int) -> FloatArray:
    """(N, K): finite numbers, K at least 1."""
    if (
        values.dtype != np.float64
        or values.ndim != 2
        or len(values) != n_rows
        or not values.shape[1]
    ):
        raise ValueError(
            f"numbers of type {values.dtype} and shape {values.shape} for {n_rows} rows"
        )
    if not np.isfinite(values).all():
        raise ValueError("numbers that are not finite")
    return values
