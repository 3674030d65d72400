"""Records of decisions: what a prediction was made of, and what a refit without some rows changed.

Both are plain data that `json` writes. Digests are SHA-256 of values, so that a record can be
compared with a model and with data later.
"""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from typing import Any, TypeAlias

import numpy as np

from axil import inputs
from axil.adapters.contract import Form
from axil.aliases import PathLike, TableLike
from axil.arrays import FloatArray, IntArray
from axil.errors import InputError, UnsupportedQuestionError, shown
from axil.explainer import Explainer
from axil.inputs import as_path
from axil.machine.atomic import whole
from axil.matched_rows import ABSENT, ADDED, CHANGED, REMOVED, match_rows
from axil.methods.kinds import exact_model
from axil.methods.method import verified_model
from axil.replay.queries import QueryBatch
from axil.report.folder import fingerprint

#: What `json` can write.
Data: TypeAlias = Any

NO_RETRAINING = (
    "The leaves were fitted again with the tree structure of the old model, which was chosen with "
    "the deleted rows. This is no retraining."
)


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


def record(explainer: Explainer, X: TableLike, *, k: int = 10) -> Record:
    """Return what the predictions of X were made of, for a file that is kept.

    Parameters
    ----------
    explainer : Explainer
        The explainer of the model, made of training rows in memory.
    X : table
        The n rows, with the columns of the fit.
    k : int, default 10
        The number of training rows that are listed for each row, as in `Explainer.top`.

    Returns
    -------
    Record
        Its ``content`` has the versions, the digests of the model and of the training data, the
        verification, and for each row its label, the digest of its features, the columns of
        `Explainer.top` and the training rows of the largest weights.

    Examples
    --------
    >>> import axil
    >>> from lightgbm import LGBMRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> explainer = axil.Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
    >>> axil.record(explainer, X.head(1), k=3)["rows"][0]["training rows"][0]["rank"]
    1
    """
    state = _state(explainer)
    table = inputs.as_frame(explainer.top(X, k))
    assert table is not None
    model = verified_model(explainer)
    queries = model.queries(X)
    digests = _row_digests(queries)
    lines: list[list[dict[str, Data]]] = [[] for _ in digests]
    n_lines = len(table) // max(len(digests), 1)
    for number, line in enumerate(table.iter_rows(named=True)):
        lines[number // n_lines].append({name: _plain(value) for name, value in line.items()})
    rows = []
    labels = inputs.as_list(queries.labels)
    for label, digest, training_rows in zip(labels, digests, lines):
        for line in training_rows:
            del line["query"]
        rows.append({"row": _plain(label), "features": digest, "training rows": training_rows})
    return Record({**_header("record"), **state, "rows": rows})


def certificate(old: Explainer, new: Explainer) -> Record:
    """Return what a refit changed, for the file of a deletion request.

    Parameters
    ----------
    old : Explainer
        The explainer before `Explainer.refit`.
    new : Explainer
        What `refit` returned.

    Returns
    -------
    Record
        Its ``content`` has the digests of model and training data before and after, the labels of
        the rows that were deleted, added or given another target, how far predictions of the rows
        that stayed moved, and both verifications. axil compares the leaves of these rows in both
        models, and raises `InputError` unless the tree structure was kept. "tree structure kept" is
        None for models without trees, and for means of several models.

    Examples
    --------
    >>> import axil
    >>> from lightgbm import LGBMRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> explainer = axil.Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
    >>> record = axil.certificate(explainer, explainer.refit(drop=[7, 30]))
    >>> record["rows deleted"], record["tree structure kept"]
    ([7, 30], True)
    """
    before = _state(old)
    after = _state(new)
    rows = match_rows(old, new)
    stayed = np.flatnonzero((rows.before != ABSENT) & (rows.after != ABSENT))
    is_structure_kept = _keeps_structure(old, new, rows.before[stayed], rows.after[stayed])
    moved = np.abs(_fitted(new)[rows.after[stayed]] - _fitted(old)[rows.before[stayed]])
    mean_move = 0.0
    if moved.size:
        mean_move = float(moved.mean())
    content = {
        **_header("certificate"),
        "before": before,
        "after": after,
        "rows deleted": _plain(rows.labels[rows.status == REMOVED]),
        "rows added": _plain(rows.labels[rows.status == ADDED]),
        "rows with another target": _plain(rows.labels[rows.status == CHANGED]),
        "tree structure kept": is_structure_kept,
        "predictions moved": {
            "rows": len(stayed),
            "largest": float(moved.max(initial=0.0)),
            "mean": mean_move,
        },
    }
    if is_structure_kept:
        content["statement"] = NO_RETRAINING
    return Record(content)


def _header(kind: str) -> dict[str, Data]:
    """Return what every record begins with."""
    return {
        "record": kind,
        "axil": version("axil"),
        "python": platform.python_version(),
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def _state(explainer: Explainer) -> dict[str, Data]:
    """Return digests of a model and of its training data, with its verification."""
    model = verified_model(explainer)
    features = getattr(model, "features", None)
    if features is None or not hasattr(features, "shape") or not hasattr(model, "index"):
        raise UnsupportedQuestionError(
            "record",
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


def _row_digests(queries: QueryBatch) -> list[str]:
    """Return a digest of the features of each explained row."""
    rows = queries.rows
    columns = inputs.feature_columns(rows, np.arange(len(queries)), list(range(rows.shape[1])))
    return [fingerprint(*[column[i : i + 1] for column in columns]) for i in range(len(queries))]


def _fitted(explainer: Explainer) -> FloatArray:
    """Return the predictions of the training rows in the targets' own units, (N, K)."""
    model = verified_model(explainer)
    return np.asarray(model.scale.inverse(np.asarray(exact_model(model).fitted())))


def _keeps_structure(
    old: Explainer, new: Explainer, before: IntArray, after: IntArray
) -> bool | None:
    """Return whether rows are in the same leaves of both models; None for models without trees.

    Raises if they are not.
    """
    models = [verified_model(explainer) for explainer in (old, new)]
    if any(model.adapter.form is not Form.TREES for model in models):
        return None
    leaves = []
    for model, places in zip(models, (before, after)):
        rows = inputs.take_rows(model.features, places)
        leaves.append(np.asarray(model.adapter.coordinates(rows, model.n_threads)))
    if leaves[0].shape == leaves[1].shape and (leaves[0] == leaves[1]).all():
        return True
    raise InputError(
        "The two models have other trees: a row is in other leaves. A certificate is about a model "
        f"and its refit, old.refit(...); the old one is {shown(old)}."
    )


def _plain(value: object) -> Data:
    """Return a value, or an array of them, as `json` writes it."""
    if isinstance(value, np.ndarray):
        return [_plain(element) for element in inputs.as_list(value)]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
