"""Explanation: the weights of a batch of predictions and the views on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, issparse

from axil.errors import InputError
from axil.inputs import as_count, as_positions, as_shares, as_sizes, group_codes
from axil.inputs.owned import frozen
from axil.machine.shared import one_blas_thread
from axil.output import page, tables
from axil.types import Array

ROUNDING = 1e-12  # of a running sum of weights


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """n predictions as weighted sums of the training targets, with the fitted structure held fixed.

    ``predictions = weights @ targets + intercepts``. A weight is what the prediction would move by if that one target
    were one larger and the trees kept their splits; it says nothing of what a refit would do. With several outputs, or
    classes, that share trees the weights are the same for all; outputs with trees of their own come first: (K, n, n_train).
    All arrays are read-only; what methods return is the caller's own.
    """

    weights: Any  #: (n, n_train) or (K, n, n_train); scipy.sparse where asked for
    intercepts: Array  #: (n,) or (n, K) what no target makes: a constant base, offsets
    targets: Array  #: (n_train,) or (n_train, K), as given; one-hot for classes
    index: NDArray[Any]  #: (n_train,) the user's labels of the training rows
    query_index: NDArray[Any]  #: (n,) the user's labels of the explained rows
    exact: bool = True  #: whether the weights decompose the prediction, not only differentiate it
    outputs: NDArray[Any] | None = None  #: (K,) numbers of the outputs or names of the classes; None for one output
    backend: str = "pandas"  #: the frame library that tables are made with
    n_threads: int = 1
    context: page.Context | None = None  #: features and the model's own predictions, for the page; where they are known

    def __post_init__(self) -> None:
        """Arrays that are shared, with the explainer or with parts of this explanation, are read-only."""
        for name in ("intercepts", "targets", "index", "query_index"):
            object.__setattr__(self, name, frozen(getattr(self, name)))
        if issparse(self.weights):
            self.weights.sort_indices()  # scipy would do it later, in place
            self.weights.data.flags.writeable = False
        else:
            object.__setattr__(self, "weights", frozen(self.weights))

    @property
    @one_blas_thread()
    def predictions(self) -> Array:
        """(n,) or (n, K): ``weights @ targets + intercepts``, the model's own predictions."""
        if self.weights.ndim == 3:
            made = np.stack([weights @ targets for weights, targets in self._by_output()], axis=1)
        else:
            made = self.weights @ self.targets
        return np.asarray(made + self.intercepts)

    @property
    def contributions(self) -> Any:
        """``weights * targets``, by output if there are several; with the intercept they sum to the prediction."""
        parts = [weights.multiply(y).tocsr() if issparse(weights) else weights * y for weights, y in self._by_output()]
        return parts[0] if self.outputs is None else parts if issparse(self.weights) else np.stack(parts)

    def _by_output(self) -> list[tuple[Any, Array]]:
        """Weights (n, n_train) and targets (n_train,) of each output."""
        targets = self.targets[:, None] if self.targets.ndim == 1 else self.targets
        weights = self.weights if self.weights.ndim == 3 else [self.weights] * targets.shape[1]
        return list(zip(weights, targets.T))

    def __len__(self) -> int:
        return len(self.query_index)

    def __iter__(self) -> Iterator[Explanation]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, which: Any) -> Explanation:
        """The explanation of some of the predictions, by position: ``[0]`` (of one), ``[2:5]``, ``[[1, 4]]``."""
        which = as_positions(which, len(self))
        weights = self.weights[:, which] if self.weights.ndim == 3 else self.weights[which]
        kept = {"intercepts": self.intercepts[which], "query_index": self.query_index[which]}
        return replace(self, weights=weights, context=None if self.context is None else self.context[which], **kept)

    def __repr__(self) -> str:
        kind = "exact" if self.exact else "derivative"
        outputs = "" if self.outputs is None else f" of {len(self.outputs)} outputs"
        rows = f"{len(self)} predictions{outputs} by {len(self.targets)} training rows"
        return f"<axil.Explanation: {rows}, {kind}, structure held fixed>"

    def top(self, k: int = 10, by: str = "weight") -> Any:
        """The k training rows with the largest |weight| (or |contribution|) in each prediction.

        A frame with the columns query, rank (from 1), row, weight, target, contribution, and output if there are several.

        Parameters
        ----------
        k : int
            How many training rows per prediction.
        by : "weight" or "contribution"
            What the largest are the largest of, in absolute value.
        """
        tables.check_by(by)
        k = as_count(k, "k")
        columns = tables.top_columns(self.largest(k, by), self.index, self.query_index, self.outputs)
        return self._told(tables.make(columns, self.backend))

    def _told(self, frame: Any) -> Any:
        """The frame itself; that of a derivative says so."""
        return frame if self.exact else tables.note(frame, tables.DERIVATIVE)

    def largest(self, k: int, by: str) -> list[tables.Largest]:
        """The k largest of each prediction, for each output."""
        largest = []
        for weights, targets in self._by_output():
            largest.append(tables.Largest(len(self), k, targets, by, self.n_threads))
            if issparse(weights):
                largest[-1].add_sparse(weights)
            else:
                largest[-1].add(weights.T, 0)
        return largest

    def group(self, labels: Any) -> Any:
        """How much of each prediction comes from each group of training rows: the sums of weights and contributions.

        ``labels`` (n_train,): a year, a region, a source. A frame with the columns query, group, weight, contribution, and
        output if there are several.

        Parameters
        ----------
        labels : sequence of length n_train
            A label for each training row: a year, a region, a source.
        """
        return self._told(tables.make(self.group_columns(*group_codes(labels, len(self.targets))), self.backend))

    def group_columns(self, codes: NDArray[np.intp], groups: NDArray[Any]) -> dict[str, Any]:
        """The columns of `group`, for rows of these group numbers (n_train,)."""
        n_train, sums = len(self.targets), []
        for weights, targets in self._by_output():
            for values in (np.ones(n_train), targets):
                member = csc_array((values, codes, np.arange(n_train + 1)), shape=(len(groups), n_train))
                total = member @ weights.T
                sums.append((total.toarray() if issparse(total) else total).T)
        return tables.label_columns(self.query_index, self.outputs, "group", groups) | {
            "weight": np.stack(sums[::2], axis=1).ravel(),
            "contribution": np.stack(sums[1::2], axis=1).ravel(),
        }

    @property
    def norms(self) -> Array:
        """(n,) or (K, n): ``sqrt(sum_j k_j^2)``; times the noise of the targets, the standard error of a prediction."""
        if issparse(self.weights):
            squares = np.asarray(self.weights.multiply(self.weights).sum(axis=1)).ravel()
        else:
            squares = np.einsum("...j,...j->...", self.weights, self.weights)
        return np.asarray(np.sqrt(squares))

    @property
    def effective_size(self) -> Array:
        """(n,) or (K, n): ``(sum |k|)^2 / sum k^2``, how many rows of equal weight each prediction rests on; 0 on none."""
        return _ratio(self.sizes**2, self.norms**2)

    @property
    def negative_share(self) -> Array:
        """(n,) or (K, n): the share of negative weights in ``sum |k|``, from 0 to 1; above 0 a prediction extrapolates."""
        sizes = self.sizes
        return _ratio(np.maximum(sizes - np.asarray(self.weights.sum(axis=-1)).reshape(sizes.shape), 0.0) / 2, sizes)

    @property
    def sizes(self) -> Array:
        """(n,) or (K, n): ``sum |k|``."""
        return np.asarray(abs(self.weights).sum(axis=-1)).reshape(self.weights.shape[:-1])

    def concentration(self, shares: Sequence[float] = (0.5, 0.8, 0.95)) -> Any:
        """How many training rows, the largest weights first, account for these shares of each prediction's ``sum |k|``.

        A frame with the columns query, share, rows, and output where outputs have trees of their own.

        Parameters
        ----------
        shares : sequence of float
            Shares of ``sum |weight|``, from 0 to 1.
        """
        made = tables.make(self.concentration_columns(as_shares(shares)), self.backend)
        return self._told(tables.note(made, tables.NOTE))

    def concentration_columns(self, shares: Array) -> dict[str, Any]:
        """The columns of `concentration`."""
        own = self.weights.ndim == 3
        parts = self.weights if own else [self.weights]
        counts = np.stack([_rows_needed(weights, shares) for weights in parts], axis=1)
        outputs = self.outputs if own else None
        return tables.label_columns(self.query_index, outputs, "share", shares) | {"rows": counts.ravel()}

    def similar_columns(self, k: int) -> dict[str, Any]:
        """The columns of `top`, the share of ``sum |weight|`` down to each row and the rows' positions."""
        largest = self.largest(k, "weight")
        columns = tables.top_columns(largest, self.index, self.query_index, self.outputs)
        sizes = np.atleast_2d(self.sizes).T[:, :, None]
        values, rows = (np.stack([getattr(one, name) for one in largest], axis=1) for name in ("values", "rows"))
        share = _ratio(np.cumsum(np.abs(values), axis=2), np.broadcast_to(sizes, values.shape).copy())
        order = ("query", "output", "rank", "row", "weight", "share", "target", "contribution", "position")
        columns |= {"share": share.ravel(), "position": rows.ravel()}
        return {name: columns[name] for name in order if name in columns}

    def to_html(
        self, path: Any = None, groups: Any = None, k: int = 50, columns: Sequence[Any] | None = None, sigma: Any = None
    ) -> str | None:
        """One self-contained page to choose a prediction on and see the k rows that made most of it; its text without a path.

        ``groups`` (n_train,): labels to sum weights by. ``columns``: which features to show, by name or position. ``sigma``: the
        noise of the targets, a number or one for each output, for standard errors ``sigma * norms``; `Explainer.to_html`
        estimates it, and takes any number of rows.

        Parameters
        ----------
        path : str or path, optional
            The file to write; without one the text of the page is returned.
        groups : sequence of length n_train, optional
            Labels of the training rows to sum weights by.
        k : int, default 50
            How many training rows to show per prediction.
        columns : sequence, optional
            Which features to show, by name or position; all by default.
        sigma : float or array of shape (K,), optional
            The noise of the targets, for standard errors.
        """
        target = page.as_target(path)
        shape = len(self.targets), 1 if self.outputs is None else len(self.outputs)
        return page.write(page.summarise([self], page_options(shape, groups, k, columns, sigma)), target)

    def _repr_html_(self) -> str:
        return page.preview(self)

    def to_frame(self) -> Any:
        """The weights as a frame: one row a query, one column a training row.

        pandas keeps the labels as index and columns; other libraries get a column "query" and the labels as text.
        """
        if self.weights.ndim == 3:
            raise InputError("Each output has weights of its own, which make no single table; use .weights[output].")
        weights = self.weights.toarray() if issparse(self.weights) else self.weights.copy()
        if self.backend == "pandas":
            import pandas as pd

            return self._told(pd.DataFrame(weights, index=self.query_index, columns=self.index))
        names = [str(label) for label in self.index]
        if len({"query", *names}) != len(names) + 1:
            raise InputError(
                "The training rows' labels are not unique as column names; use .weights, or give X_train unique labels."
            )
        columns = dict(zip(names, np.ascontiguousarray(weights.T)))
        return tables.make({"query": self.query_index, **columns}, self.backend)


def _ratio(above: Array, below: Array) -> Array:
    return np.divide(above, below, out=np.zeros_like(below), where=below > 0)


def _rows_needed(weights: Any, shares: Array) -> NDArray[np.int64]:
    """(n, shares): how many of the largest |weights| (n, n_train) add up to each share of all."""
    counts = np.zeros((weights.shape[0], len(shares)), dtype=np.int64)
    for i in range(len(counts)):
        own = weights.data[weights.indptr[i] : weights.indptr[i + 1]] if issparse(weights) else weights[i]
        total = np.cumsum(np.sort(np.abs(own))[::-1])
        if len(total) and total[-1] > 0:
            counts[i] = np.searchsorted(total, shares * total[-1] * (1 - ROUNDING)) + 1
    return counts


def page_options(shape: tuple[int, ...], groups: Any, k: Any, columns: Any, sigma: Any) -> page.Options:
    """Checked options of a page of predictions by targets of this shape, (n_train, K); see `Explanation.to_html`."""
    size = None if sigma is None else as_sizes(sigma, shape[1], "sigma")
    codes = None if groups is None else group_codes(groups, shape[0], "groups")
    return page.Options(as_count(k, "k"), codes, columns, size)
