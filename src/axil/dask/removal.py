"""Deletions over Dask collections: what predictions would be without training rows, exactly, with the structure held fixed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from axil import inputs
from axil.dask.answers import Best
from axil.dask.cluster import literal, partitions, task
from axil.dask.deletion import (
    AskedEffects,
    LargestEffects,
    largest_effects,
    read_effects,
)
from axil.dask.fits import coded
from axil.dask.refits import Refits
from axil.dask.weighted import Batch
from axil.errors import UnsupportedQuestionError
from axil.machine.progress import track
from axil.output import tables
from axil.questions.left_out import warn_pattern
from axil.questions.removal import warn_emptied
from axil.types import Array

METHODS = ("exact", "first-order")


class Deletions(Refits):
    """Questions about deletions of training rows in partitions, and about what each row puts into the steps of trees."""

    def removal(self, X: Any, method: str | None = None) -> Any:
        """(n, n_train), or (K, n, n_train): the change of each prediction on deleting each training row, as a Dask array.

        The numbers of `axil.Explainer.removal`: exact with the structure held fixed, or ``method="first-order"``. Nothing is read
        out yet: chunks lie along the training rows. The first exact question makes the responses of leaf values to leaf sums
        on a worker, in a pass over the rows, and sends them to the others: 8 L^2 bytes for L leaves.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        method : "exact", "first-order" or None
            How effects are computed; by default exactly.

        Examples
        --------
        >>> import dask.dataframe as dd
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil.dask import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> model = LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y)
        >>> explainer = Explainer(model, dd.from_pandas(X, npartitions=2), dd.from_pandas(y, npartitions=2))
        >>> explainer.removal(X.head(2)).shape
        (2, 442)
        >>> change = explainer.without(X.head(2), [7])["change"]
        >>> bool(abs(explainer.removal(X.head(2))[:, 7].compute() - change).max() < 1e-9)
        True
        """
        return self._read(X, _method(method), "removal")

    def pushes(self, X: Any) -> Any:
        """(n, n_train), or (K, n, n_train): what each row puts into the steps of trees, as a Dask array along training rows.

        The numbers of `axil.Explainer.pushes`; with the base they add up to the prediction.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        """
        return self._read(X, "pushes", "pushes")

    def removal_top(self, X: Any, k: int = 10, method: str | None = None) -> Any:
        """The k training rows whose deletion, each by itself, would change each prediction most: `axil.Explainer.removal_top`.

        Every partition sends its k largest effects alone.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        k : int
            How many training rows per prediction.
        method : "exact", "first-order" or None
            How effects are computed, as in `removal`.
        """
        k, way = inputs.as_count(k, "k"), _method(method)
        return self._largest(X, way, k, False, "effect", "removal_top")

    def removal_set(self, X: Any, m: int, greedy: bool = False, by: str = "effect", method: str | None = None) -> Any:
        """Up to m training rows whose removal moves each prediction furthest, in one direction: `axil.Explainer.removal_set`.

        Every partition sends its m largest effects of either sign. ``greedy=True`` is refused: each step is a fit of its own.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        m : int
            The largest number of rows in a set.
        greedy : bool, default False
            Not taken here.
        by : "effect" or "pushes"
            What rows are chosen by.
        method : "exact", "first-order" or None
            How effects are computed, as in `removal`.
        """
        m, way = inputs.as_count(m, "m"), _method(method)
        inputs.as_choice(by, ("effect", "pushes"), "by")
        if inputs.as_flag(greedy, "greedy"):
            raise UnsupportedQuestionError(
                "removal_set(greedy=True)",
                "each row of each set takes a fit of its own, a pass over the rows of all partitions",
                "Leave greedy out and ask without(X, rows) for the effect of a whole set, or use axil.Explainer.",
            )
        if by == "pushes":
            return self._largest(X, "pushes", m, True, "push", "removal_set")
        return self._largest(X, way, m, True, "effect", "removal_set")

    @inputs.table_first("rows")
    def without(self, X: Any, rows: Sequence[Any], init_score: Any = None) -> Any:
        """The predictions of X if these training rows, by label, were deleted, all at once: `axil.Explainer.without`.

        One pass over the rows, as long as leaf space takes, whatever the number of rows deleted.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        rows : sequence of labels
            The training rows to delete: labels of the Dask DataFrame's index, or positions from 0 in a Dask Array. Of a label
            that several rows share all of them are deleted.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`.
        """
        gone = self._positions(inputs.asked_labels(rows))
        X, offsets = self._queries(X, init_score)
        self._refuse_unknown("without")
        fits, left = self._fits(), [self._fit_without(e, gone) for e in range(len(self._held.entries))]
        parts = []
        for batch in self._batches(X, offsets):
            before, after = self._predicted(fits, batch), self._predicted(left, batch)
            batch.check(before)
            columns = tables.label_columns(batch.labels, self.outputs, "before", np.zeros(1))
            parts.append(
                columns | {"before": before.ravel(), "after": after.ravel(), "change": (after - before).ravel()}
            )
        lost = sum(int(np.isnan(part["after"]).sum()) for part in parts)
        warn_emptied(lost, sum(len(part["after"]) for part in parts))
        note = tables.NOTE
        if beyond := self._beyond(left, gone):
            warn_pattern(f"Without these rows up to {beyond:,} leaves would have another pattern")
            note = tables.HELD
        return tables.note(tables.concatenate(parts, "pandas"), note)

    def removal_group(self, X: Any, labels: Any, init_score: Any = None) -> Any:
        """The change of each prediction on deleting each group of training rows: `axil.Explainer.removal_group`.

        One pass over the rows, as long as leaf space takes, for each group.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        labels : Dask Series or Array
            A label for each training row, in the partitions of X.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`.
        """
        X, offsets = self._queries(X, init_score)
        self._refuse_unknown("removal_group")
        columns = zip(self._held.partitions, partitions(labels, "labels", self._layout))
        pairs = self._cluster.hold([task(coded, part, column) for part, column in columns])
        names: list[tuple[NDArray[Any], NDArray[Any]]] = self._cluster.collect([pair[1] for pair in pairs])
        known = [own for own, _ in names if len(own)]
        whole = np.concatenate(known)
        codes, groups = inputs.group_codes(whole, len(whole))
        counts, local, done = np.zeros(len(groups), dtype=np.int64), [], 0
        for own, sizes in names:
            code = codes[done : done + len(own)]
            counts[code] += sizes
            local.append(dict(zip(code.tolist(), range(len(own)))))
            done += len(own)
        left, beyond = [], 0
        for g in track(range(len(groups)), "groups"):
            own_codes = [own.get(g, -1) for own in local]
            left.append(self._fits_without_group(pairs, own_codes))
            beyond = max(beyond, 0 if left[-1] is None else self._group_beyond(left[-1], pairs, own_codes))
        note = tables.HELD if beyond else tables.NOTE
        if beyond:
            warn_pattern(f"Without a group up to {beyond:,} leaves would have another pattern")
        fits, parts, emptied = self._fits(), [], 0
        for batch in self._batches(X, offsets):
            before = self._predicted(fits, batch)
            batch.check(before)
            after = [np.full_like(before, np.nan) if own is None else self._predicted(own, batch) for own in left]
            emptied += sum(int(np.isnan(made).sum()) for made, own in zip(after, left) if own is not None)
            changed, started = np.stack(after, axis=2).ravel(), np.repeat(before.ravel(), len(groups))
            lines = self._lines(batch.labels, "group", groups) | {"rows": np.tile(counts, before.size)}
            parts.append(lines | {"before": started, "after": changed, "change": changed - started})
        warn_emptied(emptied, sum(len(part["after"]) for part in parts))
        return tables.note(tables.concatenate(parts, "pandas"), note)

    def leave_one_out(self) -> Any:
        """The prediction of every training row by the fit without that row: the table of `axil.Explainer.leave_one_out`.

        A Dask DataFrame in the partitions of X, whose lines are computed when asked for.
        """
        targets, outputs = self._held.label_dtype, self.outputs
        meta = pd.DataFrame({"row": np.empty(0, dtype=targets)})
        if outputs is not None:
            meta["output"] = outputs[:0]
        for name in ("target", "prediction", "residual"):
            meta[name] = np.empty(0)
        meta["alone"] = np.empty(0, dtype=bool)
        self._pattern_note()  # which warns
        found = zip(self._held.partitions, self._left_out(), self._held.sizes)
        parts = [task(left_out_table, part, own, outputs) for part, own, size in found if size]
        return dd.from_delayed(parts, meta=meta, verify_meta=False)

    # -- effects --------------------------------------------------------------------------------------------------------

    def _asked(self, batch: Batch, method: str) -> Any:
        adjoints = batch.adjoints if method == "first-order" else []
        phi, beta = [one.phi for one in adjoints], [one.beta for one in adjoints]
        return literal(AskedEffects(method, batch.leaves, phi, beta, self._limits.n_threads))

    def _read(self, X: Any, method: str, question: str) -> Any:
        X, offsets = self._queries(X, None)
        if method != "pushes":
            self._refuse_unknown(question)
        if method == "exact":
            self._pattern_note()  # which warns
        plans, known = self._plans(method == "exact")
        found, held = [], [pair for pair in zip(self._held.partitions, self._held.sizes) if pair[1]]
        for batch in self._batches(X, offsets):
            batch.check(self._predicted(self._fits(), batch))
            asked, n = self._asked(batch, method), len(batch.labels)
            shape = (self._adapter.n_outputs, n)
            blocks = [(task(read_effects, part, plans, known, asked), size) for part, size in held]
            made = [da.from_delayed(block, (shape[0], size, n), np.float64) for block, size in blocks]
            found.append(da.concatenate(made, axis=1).swapaxes(1, 2))
        whole = da.concatenate(found, axis=1)
        return whole[0] if self.outputs is None else whole

    def _largest(self, X: Any, method: str, k: int, signed: bool, name: str, question: str) -> Any:
        X, offsets = self._queries(X, None)
        if method != "pushes":
            self._refuse_unknown(question)
        plans, known = self._plans(method == "exact")
        parts = []
        for batch in self._batches(X, offsets):
            batch.check(self._predicted(self._fits(), batch))
            asked = self._asked(batch, method)
            tasks = [task(largest_effects, part, plans, known, asked, k, signed) for part in self._held.partitions]
            found: LargestEffects = self._cluster.total(tasks)
            best = _one_side(*found.sides) if signed else found.sides[0]
            lines = self._lines(batch.labels, "rank", np.arange(1, best.size.shape[2] + 1))
            lines |= {"row": best.columns["row"].ravel(), name: best.columns["effect"].ravel()}
            kept = best.size.ravel() > 0  # rows without effect are left out
            parts.append({column: values[kept] for column, values in lines.items()})
        note = tables.FIRST_ORDER if method == "first-order" else tables.NOTE
        if method == "exact":
            note = self._pattern_note()
        return tables.note(tables.concatenate(parts, "pandas"), note)


def _one_side(positive: Best, negative: Best) -> Best:
    """The effects of the sign that adds up to more, for each prediction."""
    falls = (negative.size.sum(axis=2) > positive.size.sum(axis=2))[:, :, None]
    columns = {name: np.where(falls, negative.columns[name], own) for name, own in positive.columns.items()}
    return Best(positive.k, np.where(falls, negative.size, positive.size), columns)


def left_out_table(partition: Any, found: Array, outputs: NDArray[Any] | None) -> pd.DataFrame:
    """The lines of `leave_one_out` about one partition's rows."""
    targets = partition.targets
    columns: dict[str, Any] = {"row": np.repeat(partition.labels, targets.shape[1])}
    if outputs is not None:
        columns["output"] = np.tile(outputs, len(targets))
    columns |= {"target": targets.ravel(), "prediction": found.ravel(), "residual": (targets - found).ravel()}
    return pd.DataFrame(columns | {"alone": np.isnan(found).ravel()})


def _method(method: Any) -> str:
    return "exact" if method is None else str(inputs.as_choice(method, METHODS, "method"))
