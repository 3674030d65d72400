"""certificate: what a refit changed, for the file of a deletion request."""

from __future__ import annotations

import numpy as np

from axil import inputs
from axil.adapters.contract import Form
from axil.arrays import FloatArray, IntArray
from axil.errors import InputError, shown
from axil.methods.kinds import exact_model
from axil.methods.matched_rows import ABSENT, ADDED, CHANGED, REMOVED, match_rows
from axil.methods.method import verified_model
from axil.methods.refit import Refit
from axil.output.records import Record, header_of, plain, state_of

NO_RETRAINING = (
    "The leaves were fitted again with the tree structure of the old model, which was chosen with "
    "the deleted rows. This is no retraining."
)


class Certificate(Refit):
    """Provide `Explainer.certificate`."""

    def certificate(self, before: Refit | None = None) -> Record:
        """Return what `refit` changed, for the file of a deletion request.

        axil compares the leaves of all rows that stayed, and raises `InputError` unless the tree
        structure was kept.

        Parameters
        ----------
        before : Explainer, optional
            The explainer before `refit`. The explainer that `refit` returned knows it. One that was
            loaded from a file does not.

        Returns
        -------
        axil.Record
            Its ``content`` has the digests of model and training data before and after, the labels
            of the rows that were deleted, added or given another target, how far predictions of the
            rows that stayed moved, and both verifications. "tree structure kept" is None for models
            without trees, and for means of several models.

        Examples
        --------
        >>> import axil
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = axil.Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> record = explainer.refit(drop=[7, 30]).certificate()
        >>> record["rows deleted"], record["tree structure kept"]
        ([7, 30], True)
        """
        if before is None:
            before = self._refitted_from
        if not isinstance(before, Refit):
            raise InputError(
                f"before is {shown(before)}, and refit did not make this explainer here; expected "
                "the explainer before refit: refitted.certificate(old)."
            )
        return _certificate(before, self)


def _certificate(old: Refit, new: Refit) -> Record:
    """Return the certificate of a refit."""
    before = state_of(verified_model(old), "certificate")
    after = state_of(verified_model(new), "certificate")
    rows = match_rows(old, new)
    stayed = np.flatnonzero((rows.before != ABSENT) & (rows.after != ABSENT))
    is_structure_kept = _keeps_structure(old, new, rows.before[stayed], rows.after[stayed])
    moved = np.abs(_fitted(new)[rows.after[stayed]] - _fitted(old)[rows.before[stayed]])
    mean_move = 0.0
    if moved.size:
        mean_move = float(moved.mean())
    content = {
        **header_of("certificate"),
        "before": before,
        "after": after,
        "rows deleted": plain(rows.labels[rows.status == REMOVED]),
        "rows added": plain(rows.labels[rows.status == ADDED]),
        "rows with another target": plain(rows.labels[rows.status == CHANGED]),
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


def _fitted(explainer: Refit) -> FloatArray:
    """Return the predictions of the training rows in the targets' own units, (N, K)."""
    model = verified_model(explainer)
    return np.asarray(model.scale.inverse(np.asarray(exact_model(model).fitted())))


def _keeps_structure(old: Refit, new: Refit, before: IntArray, after: IntArray) -> bool | None:
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
