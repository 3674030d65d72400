"""Explanation: the weights of a batch of predictions and the views on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from axil import tables
from axil.errors import InputError
from axil.inputs import as_count

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """n predictions as weighted sums of the training targets, with the fitted structure held fixed.

    ``predictions = weights @ targets + intercepts``. A weight is what the prediction would move by if that one target
    were one larger and the trees kept their splits; it says nothing of what a refit would do.
    """

    weights: Array  #: (n, n_train)
    intercepts: Array  #: (n,) what no target makes: a constant base, offsets
    targets: Array  #: (n_train,) as given
    index: NDArray[Any]  #: (n_train,) the user's labels of the training rows
    query_index: NDArray[Any]  #: (n,) the user's labels of the explained rows
    exact: bool = True  #: whether the weights decompose the prediction, not only differentiate it
    backend: str = "pandas"  #: the frame library that tables are made with
    n_threads: int = 1

    @property
    def predictions(self) -> Array:
        """(n,): ``weights @ targets + intercepts``, the model's own predictions."""
        return np.asarray(self.weights @ self.targets + self.intercepts)

    @property
    def contributions(self) -> Array:
        """(n, n_train): ``weights * targets``; a row of it plus the intercept sums to the prediction."""
        return self.weights * self.targets

    def __len__(self) -> int:
        return len(self.weights)

    def __iter__(self) -> Iterator[Explanation]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, which: Any) -> Explanation:
        """The explanation of some of the predictions, by position: ``[0]`` (of one prediction), ``[2:5]``, ``[[1, 4]]``."""
        if isinstance(which, (int, np.integer)) and not isinstance(which, bool):
            if not -len(self) <= which < len(self):
                raise IndexError(f"prediction {which} of {len(self)}")
            which = [int(which)]
        return replace(
            self,
            weights=self.weights[which],
            intercepts=self.intercepts[which],
            query_index=self.query_index[which],
        )

    def __repr__(self) -> str:
        kind = "exact" if self.exact else "derivative"
        return f"<axil.Explanation: {len(self)} predictions by {len(self.targets)} training rows, {kind}, structure held fixed>"

    def top(self, k: int = 10, by: str = "weight") -> Any:
        """The k training rows with the largest |weight| (or |contribution|) in each prediction.

        A frame with the columns query, rank (from 1), row, weight, target, contribution.
        """
        tables.check_by(by)
        largest = tables.Largest(len(self), as_count(k, "k"), self.targets, by, self.n_threads)
        largest.add(self.weights.T, 0)
        return tables.make(largest.columns(self.index, self.query_index), self.backend)

    def group(self, labels: Any) -> Any:
        """How much of each prediction comes from each group of training rows: the sums of weights and contributions.

        ``labels`` (n_train,): a year, a region, a source. A frame with the columns query, group, weight, contribution.
        """
        codes, groups = group_codes(labels, len(self.targets))
        n_train = len(self.targets)
        shape = (len(groups), n_train)
        member = csc_array((np.ones(n_train), codes, np.arange(n_train + 1)), shape=shape)
        valued = csc_array((self.targets, codes, np.arange(n_train + 1)), shape=shape)
        columns = {
            "query": np.repeat(self.query_index, len(groups)),
            "group": np.tile(groups, len(self)),
            "weight": (member @ self.weights.T).T.ravel(),
            "contribution": (valued @ self.weights.T).T.ravel(),
        }
        return tables.make(columns, self.backend)

    def to_frame(self) -> Any:
        """The weights as a frame: one row a query, one column a training row.

        pandas keeps the labels as index and columns; other libraries get a column "query" and the labels as text.
        """
        if self.backend == "pandas":
            import pandas as pd

            return pd.DataFrame(self.weights, index=self.query_index, columns=self.index)
        names = [str(label) for label in self.index]
        if len({"query", *names}) != len(names) + 1:
            raise InputError(
                "The training rows' labels are not unique as column names; use .weights, or give X_train unique labels."
            )
        columns = dict(zip(names, np.ascontiguousarray(self.weights.T)))
        return tables.make({"query": self.query_index, **columns}, self.backend)


def group_codes(labels: Any, n_rows: int) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Each row's group number and the groups' names, in sorted order where they can be sorted."""
    import pandas as pd

    values = labels.to_numpy() if hasattr(labels, "to_numpy") else np.asarray(labels)
    if values.shape != (n_rows,):
        raise InputError(f"labels has shape {values.shape}; expected ({n_rows},), one label for each training row.")
    try:
        codes, groups = pd.factorize(values, sort=True, use_na_sentinel=False)
    except TypeError:  # labels of mixed types have no order
        codes, groups = pd.factorize(values, use_na_sentinel=False)
    return codes, np.asarray(groups)
