"""Records of decisions: digests of a model, of its training data and of the rows it explains.

They are plain data that `json` writes. Digests are SHA-256 of values, so that a record can be
compared with a model and with data later.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from typing import Any, TypeAlias

import narwhals.stable.v2 as nw
import numpy as np

from axil import inputs
from axil.aliases import FeatureTable, PathLike
from axil.errors import UnsupportedQuestionError
from axil.inputs import as_path
from axil.machine.atomic import whole
from axil.replay.verified_model import VerifiedModel

#: What `json` can write.
Data: TypeAlias = Any


@dataclass(frozen=True)
class Record:
    """A record of a decision, as a dict that `json` writes."""

    content: dict[str, Data]

    def __getitem__(self, name: str) -> Data:
        """Return an entry of the record."""
        return self.content[name]

    def to_json(self, path: PathLike | None = None) -> str:
        """Return the record as JSON, and write it to a file if there is a path."""
        text = json.dumps(self.content, indent=1, allow_nan=False) + "\n"
        if path is not None:
            whole(as_path(path, "path"), text)
        return text


def header_of(kind: str) -> dict[str, Data]:
    """Return what every record begins with."""
    return {
        "record": kind,
        "axil": version("axil"),
        "python": platform.python_version(),
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def fingerprint(*columns: Any) -> str:
    """Return a hash of arrays, numbers and text that depends on their values only."""
    digest = hashlib.sha256()
    for column in columns:
        values = np.asarray(column)
        if values.dtype.kind in "OUSV":
            texts = [
                str(value).encode("utf-8", "surrogatepass") for value in values.ravel().tolist()
            ]
            lengths = [len(text) for text in texts]
            digest.update(f"text{values.shape}{lengths}".encode())
            digest.update(b"".join(texts))
        else:
            digest.update(f"{values.dtype.kind}{values.shape}".encode())
            digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()[:32]


def state_of(model: VerifiedModel, method: str) -> dict[str, Data]:
    """Return digests of a model and of its training data, with its verification.

    Parameters
    ----------
    model : VerifiedModel
    method : str
        What needs them, for a refusal.
    """
    features = getattr(model, "features", None)
    if features is None or not hasattr(features, "shape") or not hasattr(model, "index"):
        raise UnsupportedQuestionError(
            method,
            "it needs the training rows, in memory",
            "Load the explainer with them: axil.load(path, model, X_train=X_train).",
        )
    n_rows = features.shape[0]
    columns = inputs.feature_columns(features, np.arange(n_rows), list(range(features.shape[1])))
    verification = model.verification
    text = ""
    if verification is not None:
        text = repr(verification)
    return {
        "library": model.adapter.library,
        "kind": model.kind.value,
        "model": fingerprint(str(model.adapter.fingerprint)),
        "training data": {
            "rows": n_rows,
            "digest": fingerprint(model.index, np.asarray(model.targets), *columns),
        },
        "verification": text.splitlines(),
    }


def record_of(
    state: dict[str, Data], X: FeatureTable, labels: Iterable[object], table: nw.DataFrame[Any]
) -> Record:
    """Return what predictions were made of.

    Parameters
    ----------
    state : dict
        What `state_of` returns.
    X : table
        The n explained rows.
    labels : iterable of length n
        Their labels.
    table : DataFrame
        What `Explanation.top` returns, as many lines for each row.
    """
    digests = _row_digests(X)
    n_lines = len(table) // max(len(digests), 1)
    lines: list[list[dict[str, Data]]] = [[] for _ in digests]
    for number, line in enumerate(table.iter_rows(named=True)):
        del line["query"]
        lines[number // n_lines].append({name: plain(value) for name, value in line.items()})
    rows = [
        {"row": plain(label), "features": digest, "training rows": training_rows}
        for label, digest, training_rows in zip(labels, digests, lines)
    ]
    return Record({**header_of("record"), **state, "rows": rows})


def _row_digests(X: FeatureTable) -> list[str]:
    """Return a digest of the features of each row."""
    n_rows = X.shape[0]
    columns = inputs.feature_columns(X, np.arange(n_rows), list(range(X.shape[1])))
    return [fingerprint(*[column[i : i + 1] for column in columns]) for i in range(n_rows)]


def plain(value: object) -> Data:
    """Return a value, or an array of them, as `json` writes it."""
    if isinstance(value, np.ndarray):
        return [plain(element) for element in inputs.as_list(value)]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
