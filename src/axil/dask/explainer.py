"""Explainer over Dask collections: the same questions, answered by partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NoReturn

import dask.array as da
import numpy as np

from axil import adapters, inputs
from axil.dask.answers import Best, Grouped, best, grouped, read
from axil.dask.build import Collections, build
from axil.dask.cluster import Cluster, layout, literal, partitions, refuse_gpu, task
from axil.dask.intervals import Calibrates
from axil.errors import UnsupportedModelError, UnsupportedQuestionError, counted
from axil.explainer import limits_of
from axil.explanation import Explanation
from axil.machine.shared import Kept
from axil.output import tables

STREAM = (
    "Use explainer.top(X) or explainer.group(X, labels), explainer.iter(X) for batches, explainer.weights(X) for a Dask array, "
    "or raise memory_limit."
)


class Explainer(Calibrates):
    """Explains as `axil.Explainer` does, with the same numbers, for training rows in the partitions of Dask collections.

    ``X`` is a Dask DataFrame or Array; ``y``, ``sample_weight``, ``init_score`` and ``bags`` have the same partitions. The
    model is a fitted one of any library that axil reads, also one that Dask trained (DaskLGBMRegressor, DaskXGBRegressor,
    the dictionary that ``xgboost.dask.train`` returns). ``client`` is a distributed.Client; without one Dask's own choice
    is taken. ``n_threads`` are those of one task, ``memory_limit`` is for this process. Queries are rows in memory.

    Parameters
    ----------
    model : fitted model
        A model of any library that axil reads, or a pipeline that ends in one.
    X : Dask DataFrame or Array
        The training rows, in any partitions.
    y : Dask Series or Array
        The targets, in the partitions of X.
    sample_weight : Dask Series or Array, optional
        The weights of the fit, in the partitions of X.
    init_score : Dask Series or Array, optional
        The offsets of the fit, in the partitions of X.
    bags : Dask Array, optional
        How often each row was drawn for each tree, in the partitions of X.
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
    >>> from lightgbm import LGBMRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = LGBMRegressor(verbose=-1).fit(X, y)
    >>> explainer = Explainer(model, dd.from_pandas(X, npartitions=4), dd.from_pandas(y, npartitions=4))
    >>> len(explainer.top(X.head(3), k=5))
    15
    """

    def __init__(
        self,
        model: Any,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        init_score: Any = None,
        bags: Any = None,
        *,
        client: Any = None,
        n_threads: int = 1,
        memory_limit: int | str | None = None,
        verify: bool = True,
        device: str = "cpu",
    ):
        refuse_gpu(device, "axil.Explainer")
        self._cluster = Cluster(client)
        self._limits = limits_of(inputs.as_count(n_threads, "n_threads", most=inputs.MOST_THREADS), memory_limit)
        verify = inputs.as_flag(verify, "verify")
        self._adapter = adapters.read(model["booster"] if isinstance(model, dict) and "booster" in model else model)
        if not self._adapter.scale.is_identity:
            raise UnsupportedModelError(
                "transform of the targets",
                self._adapter.scale.name,
                "axil does not transform the targets of Dask collections",
                "Transform them yourself and explain the model inside on those: regressor_ of a TransformedTargetRegressor.",
            )
        data = Collections.of(X, y, sample_weight, init_score, bags)
        self._X, self._parts_of_X, self._layout = X, data.X, layout(X)
        self._kept = Kept()
        self._held, self.verification = build(self._adapter, data, self._cluster, self._limits, verify)

    def __repr__(self) -> str:
        proof = "not verified" if self.verification is None else f"verified to {self.verification.max_error:.1e}"
        rows = f"{counted(self._n_rows, 'training row')} in {counted(len(self._held.sizes), 'partition')}"
        return f"<axil.dask.Explainer: {self._adapter.library}, {rows}, {proof}>"

    def explain(self, X: Any, init_score: Any = None) -> Explanation:
        """The weight of every training target in the prediction of every row of X, gathered here; 8 * n * n_train bytes.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `axil.Explainer.explain`.
        """
        X, offsets = self._queries(X, init_score)
        self._require(X.shape[0], STREAM)
        return Explanation(self._sums(X, offsets, inputs.row_labels(X)))

    __call__ = explain

    def weights(self, X: Any) -> Any:
        """(n, n_train), or (K, n, n_train) where outputs have trees of their own: the weights as a Dask array.

        Nothing is read out yet: chunks lie along the training rows, in the partitions of X, and are made when asked for.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        """
        X, offsets = self._queries(X, None)
        rows: list[list[Any]] = [[] for _ in self._held.entries]
        for batch in self._batches(X, offsets):
            batch.check(self._made(batch.asked) + batch.intercepts)
            shared, n = literal(batch.asked), len(batch.labels)
            for e, entry in enumerate(rows):
                held = [pair for pair in zip(self._held.partitions, self._held.sizes) if pair[1]]
                blocks = [da.from_delayed(task(read, part, shared, e), (size, n), np.float64) for part, size in held]
                entry.append(da.concatenate(blocks).T)
        found = [da.concatenate(entry) for entry in rows]
        return found[0] if len(found) == 1 else da.stack(found)

    def iter(self, X: Any, batch_size: int | None = None, init_score: Any = None) -> Iterator[Explanation]:
        """Explanations of X batch by batch, so that never more than one batch of weights is gathered.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        batch_size : int, optional
            How many rows to explain at a time; by default as many as memory allows, up to 1024.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `axil.Explainer.explain`.
        """
        X, offsets = self._queries(X, init_score)
        given = None if batch_size is None else inputs.as_count(batch_size, "batch_size")
        size = given or self._limits.budget.batch_size(self._bytes_per_query)
        self._require(size, "Take a smaller batch_size or raise memory_limit.")
        return map(Explanation, self._parts(X, offsets, size))

    def top(self, X: Any, k: int = 10, by: str | None = None, init_score: Any = None, *, per_class: bool = True) -> Any:
        """The table of `Explanation.top`, for any number of rows of X: every partition sends its k largest weights alone.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        k : int
            How many training rows per prediction.
        by : "weight" or "contribution", default "weight"
            What the largest are the largest of, in absolute value.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `axil.Explainer.explain`.
        per_class : True
            A line for each class. False is for `Explanation.top` and `similar`.
        """
        tables.check_by(by)
        tables.check_per_class(per_class)
        k = inputs.as_count(k, "k")
        X, offsets = self._queries(X, init_score)
        parts = []
        for batch in self._batches(X, offsets):
            made = self._made(batch.asked) + batch.intercepts
            batch.check(made)
            shared = literal(batch.asked)
            found: Best = self._cluster.total(
                [task(best, part, shared, k, by or "weight") for part in self._held.partitions]
            )
            parts.append(tables.predicted_columns(batch.labels, self.outputs, made, found.size.shape[2], {}))
            parts[-1] |= {name: column.ravel() for name, column in found.columns.items()}
            parts[-1]["contribution"] = parts[-1]["weight"] * parts[-1]["target"]
        return tables.concatenate(parts, "pandas")

    def group(self, X: Any, labels: Any, init_score: Any = None) -> Any:
        """The table of `Explanation.group`, streamed: how much of each prediction comes from each group of training rows.

        ``labels`` is a Dask Series or Array with the partitions of the training rows.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        labels : Dask Series or Array
            A label for each training row, in the partitions of X.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `axil.Explainer.explain`.
        """
        X, offsets = self._queries(X, init_score)
        columns = partitions(labels, "labels", self._layout)
        parts = []
        for batch in self._batches(X, offsets):
            shared = literal(batch.asked)
            tasks = [task(grouped, part, column, shared) for part, column in zip(self._held.partitions, columns)]
            found: Grouped = self._cluster.total(tasks)
            batch.check(found.made + batch.intercepts)
            parts.append(self._lines(batch.labels, "group", found.groups))
            parts[-1] |= {"weight": found.weights.ravel(), "contribution": found.contributions.ravel()}
        return tables.concatenate(parts, "pandas")

    _no_others = (
        "it is not computed over training rows in Dask collections",
        "Use axil.Explainer on training rows in memory, or the weights of explainer.weights(X).",
    )
    _refusals: ClassVar[dict[str, tuple[str, str]]] = {
        "what_if": (
            "changed targets are matched with rows by label, and labels stay in their partitions",
            "Multiply weights by the changes: explainer.weights(X)[..., positions] @ changes, or use axil.Explainer.",
        ),
        "standard_error": (
            "the noise of the targets follows from the leverages of all training rows, which are not computed here",
            "With your own sigma: sigma * (explainer.weights(X) ** 2).sum(axis=-1) ** 0.5. Or ask calibrate, or axil.Explainer.",
        ),
        "audit": (
            "labels are ranked over all training rows in memory",
            "Sort explainer.leave_one_out() by its residuals, or use axil.Explainer.",
        ),
        "loo_curve": (
            "errors after every number of trees are not summed over partitions",
            "explainer.leave_one_out() has the errors after all trees; for the curve use axil.Explainer.",
        ),
    } | dict.fromkeys(
        ("leverage", "degrees_of_freedom"),
        (
            "weights of all training rows in their own predictions are not computed over Dask collections",
            "Use axil.Explainer on training rows in memory, or on a sample of them with a model fitted to it.",
        ),
    )

    def prepare(self) -> Explainer:
        """Build leaf space now, in one pass over the rows; with ``verify=True`` the proof has built it already."""
        self._prepare()
        return self

    def matrix(self) -> NoReturn:
        """Refused: (n_train, n_train) numbers are no answer for data of this size."""
        raise UnsupportedQuestionError(
            "matrix",
            f"{self._n_rows} x {self._n_rows} weights are not made over Dask collections",
            "Use explainer.weights(X) for the rows you want, as a Dask array, or explainer.top(X).",
        )

    @property
    def operator(self) -> NoReturn:
        """Refused: its vectors would have to be gathered."""
        raise UnsupportedQuestionError(
            "operator",
            "its vectors have one number for each training row, which would have to be gathered from Dask collections",
            "Use explainer.weights(X), a Dask array that can be multiplied, or axil.Explainer.",
        )
