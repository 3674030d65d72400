"""JacobianExplainer over Dask collections: pushes of boosted models of any loss, as sums over partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask.array as da
import numpy as np

from axil import inputs
from axil.adapters import smooth
from axil.dask.additive import build
from axil.dask.answers import Grouped
from axil.dask.build import Collections
from axil.dask.cluster import Cluster, layout, literal, partitions, refuse_gpu, task
from axil.dask.gradients import LargestPushes, grouped_pushes, largest_pushes, read_pushes
from axil.dask.pushed import Pushed
from axil.errors import InputError, counted
from axil.explainer import limits_of
from axil.explanation import Explanation
from axil.jacobian.readers import Report
from axil.output import tables

STREAM = (
    "Use explainer.top(X) or explainer.group(X, labels), explainer.iter(X) for batches, explainer.pushes(X) for a Dask array, "
    "or raise memory_limit."
)


class JacobianExplainer(Pushed):
    """Pushes as `axil.JacobianExplainer` has them, for training rows in the partitions of Dask collections.

    Boosted classifiers and other losses: a push is what a row's own gradients put into a score, and the base with all pushes is
    the score, checked on every use. Features and leaves stay on the workers; targets, weights and offsets, 8 bytes each per row,
    are gathered once to read the model with. There are no derivatives here, so that explanations have no ``weights``. Refused by
    name: rows drawn at random, DART, several Newton steps per tree, leaves that solve for all classes together (CatBoost's
    MultiClass), parallel trees, objectives of your own.

    Parameters
    ----------
    model : fitted model
        A boosted model of any library that axil reads, or a pipeline that ends in one.
    X : Dask DataFrame or Array
        The training rows, in any partitions.
    y : Dask Series or Array
        The targets, or classes, in the partitions of X.
    sample_weight : Dask Series or Array, optional
        The weights of the fit, in the partitions of X.
    init_score : Dask Series or Array, optional
        The offsets of the fit, in the partitions of X.
    client : distributed.Client, optional
        Where the work is done; by default by Dask's own scheduler.
    n_threads : int, default 1
        The threads of one task.
    memory_limit : int or str, optional
        The bytes that one request may take in this process.
    verify : bool, default True
        Prove that model and data belong together. Without it no answer is compared with the model.
    device : "cpu" or "auto", default "cpu"
        The cores of the workers either way. "cuda" is refused: partitions would travel to a GPU again with every task.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> from lightgbm import LGBMClassifier
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> model = LGBMClassifier(n_estimators=20, verbose=-1).fit(X, y)
    >>> explainer = JacobianExplainer(model, dd.from_pandas(X, npartitions=4), dd.from_pandas(y, npartitions=4))
    >>> len(explainer.top(X.head(3), k=5))
    15
    """

    kind = "additive"  #: as `axil.supports` has it
    verification: Report | None  #: what the replay found; None with ``verify=False``
    _no_others = (
        "it is not computed over training rows in Dask collections",
        "Use axil.JacobianExplainer on training rows in memory.",
    )

    def __init__(
        self,
        model: Any,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        init_score: Any = None,
        *,
        client: Any = None,
        n_threads: int = 1,
        memory_limit: int | str | None = None,
        verify: bool = True,
        device: str = "cpu",
    ):
        refuse_gpu(device, "axil.JacobianExplainer")
        self._cluster = Cluster(client)
        self._limits = limits_of(inputs.as_count(n_threads, "n_threads", most=inputs.MOST_THREADS), memory_limit)
        self._verify = inputs.as_flag(verify, "verify")
        given = model["booster"] if isinstance(model, dict) and "booster" in model else model
        adapter = smooth.find(given)
        if adapter is None:
            raise InputError(
                f"The model is a {type(given).__module__}.{type(given).__qualname__}; expected boosted trees. Use axil.explain "
                "with the training rows in memory."
            )
        self._adapter = adapter
        data = Collections.of(X, y, sample_weight, init_score)
        self._X, self._parts_of_X, self._layout = X, data.X, layout(X)
        self._held, found = build(adapter, data, self._cluster, self._limits, self._verify)
        self.verification = Report(found) if found else None

    @property
    def report(self) -> Report:
        """`verification` under its earlier name; empty with ``verify=False``."""
        return Report() if self.verification is None else self.verification

    def __repr__(self) -> str:
        proof = "verified" if self.verification else "not verified"
        rows = f"{counted(self._n_rows, 'training row')} in {counted(len(self._held.sizes), 'partition')}"
        return (
            f"<axil.dask.JacobianExplainer: {self._adapter.library}, {rows}, pushes that add up to the score, {proof}>"
        )

    def __call__(self, X: Any) -> Explanation:
        """Calls `explain`.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        """
        return self.explain(X)

    def explain(self, X: Any) -> Explanation:
        """The pushes of every training row on the score of every row of X, gathered here; 8 * K * n * n_train bytes.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        """
        X = self._in_memory(X)
        self._require(X.shape[0], STREAM)
        return Explanation(self._sums(X, inputs.row_labels(X)))

    def iter(self, X: Any, batch_size: int | None = None) -> Iterator[Explanation]:
        """Explanations of X batch by batch, so that never more than one batch of pushes is gathered.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        batch_size : int, optional
            How many rows to explain at a time; by default as many as memory allows, up to 1024.
        """
        X = self._in_memory(X)
        given = None if batch_size is None else inputs.as_count(batch_size, "batch_size")
        size = given or self._limits.budget.batch_size(self._bytes_per_query)
        self._require(size, "Take a smaller batch_size or raise memory_limit.")
        return map(Explanation, self._parts(X, size))

    def pushes(self, X: Any) -> Any:
        """(n, n_train), or (K, n, n_train): the pushes as a Dask array, chunked along the training rows.

        Made when it is computed; their sums are checked before, in one pass over the rows.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        """
        X, found = self._in_memory(X), []
        for batch, asked in self._batches(X):
            n, shared = batch.shape[0], literal(asked)
            tasks = [task(largest_pushes, part, self._held.shared, shared, 1) for part in self._held.partitions]
            self._check(batch, asked, self._cluster.total(tasks).made)
            blocks = []
            for part, size in zip(self._held.partitions, self._held.sizes):
                if size:
                    made = task(read_pushes, part, self._held.shared, shared)
                    blocks.append(da.from_delayed(made, (self._adapter.n_outputs, size, n), np.float64))
            found.append(da.concatenate(blocks, axis=1).swapaxes(1, 2))
        whole = da.concatenate(found, axis=1)
        return whole[0] if self.outputs is None else whole

    def top(self, X: Any, k: int = 10, by: str | None = None, init_score: Any = None, *, per_class: bool = True) -> Any:
        """The table of `Explanation.top`, for any number of rows of X: every partition sends its k largest pushes alone.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        k : int
            How many training rows per prediction.
        by : "contribution", optional
            Pushes are contributions; there are no weights here.
        init_score : None
            Not taken here.
        per_class : True
            A line for each class. False is for `Explanation.top` and `similar`.
        """
        tables.check_by(by)
        tables.check_per_class(per_class)
        if by == "weight":
            raise self._underived()
        k, X = inputs.as_count(k, "k"), self._taken(X, init_score)
        parts, labels, start = [], inputs.row_labels(X), 0
        for batch, asked in self._batches(X):
            shared = literal(asked)
            tasks = [task(largest_pushes, part, self._held.shared, shared, k) for part in self._held.partitions]
            found: LargestPushes = self._cluster.total(tasks)
            self._check(batch, asked, found.made)
            own, best = labels[start : start + batch.shape[0]], found.best
            scores = self.base + found.made
            parts.append(tables.predicted_columns(own, self.outputs, scores, best.size.shape[2], self._meant(scores)))
            parts[-1] |= {name: column.ravel() for name, column in best.columns.items()}
            start += batch.shape[0]
        return tables.note(tables.concatenate(parts, "pandas"), self._note)

    def group(self, X: Any, labels: Any, init_score: Any = None) -> Any:
        """The table of `Explanation.group`, streamed: how much of each score comes from each group of training rows.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        labels : Dask Series or Array
            A label for each training row, in the partitions of X.
        init_score : None
            Not taken here.
        """
        X, columns = self._taken(X, init_score), partitions(labels, "labels", self._layout)
        parts, names, start = [], inputs.row_labels(X), 0
        for batch, asked in self._batches(X):
            shared, held = literal(asked), self._held
            tasks = [
                task(grouped_pushes, part, held.shared, column, shared)
                for part, column in zip(held.partitions, columns)
            ]
            found: Grouped = self._cluster.total(tasks)
            self._check(batch, asked, found.made)
            parts.append(self._lines(names[start : start + batch.shape[0]], "group", found.groups))
            parts[-1]["contribution"] = found.contributions.ravel()
            start += batch.shape[0]
        return tables.note(tables.concatenate(parts, "pandas"), self._note)
