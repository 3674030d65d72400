"""Which rows scikit-learn fitted each tree on: the stages of gradient boosting, forests and bagging, held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.bags import DrawnAgain
from axil.adapters.boosted_fit import RowGradients
from axil.arrays import BoolArray, FloatArray
from axil.errors import InputError
from axil.kernels.cpu import bootstrapped

Indices = NDArray[np.integer[Any]]

_LARGEST = (
    2**31 - 1
)  # RAND_R_MAX, the bound of the one number that each tree's splitter draws (sklearn/tree/_utils.pyx)


def training_rows(
    n_rows: int, held_out: float | int, seed: int, classes: FloatArray | None = None
) -> Indices:
    """The rows that are left to fit on, in the order of the fit, once early stopping has held some out of each class (N,)."""
    from sklearn.model_selection import train_test_split

    try:
        rows: Indices = train_test_split(
            np.arange(n_rows), test_size=held_out, random_state=seed, stratify=classes
        )[0]
    except ValueError as error:
        raise InputError(
            f"X has {n_rows} rows, too few to hold out {held_out} of them as the fit did for early stopping ({error}). "
            "Pass the rows that the model was fitted on."
        ) from None
    return rows


class StageSampler:
    """The subsample of each stage of gradient boosting, which its trees share.

    Of n rows int(subsample * n) are drawn, at least one: with u uniform, row i is in iff u_i * (n - i) is less than the
    number still to be drawn (_random_sample_mask, sklearn/ensemble/_gradient_boosting.pyx). One stream serves all
    stages, and each tree takes one more number from it. The rows are those that early stopping left, in its order.
    """

    name = "the subsample of scikit-learn's gradient boosting"
    needs_gradients = False
    dtype: type[np.generic] = np.uint8

    def __init__(
        self,
        n_rows: int,
        rows: Indices | None,
        subsample: float,
        seed: int,
        trees_per_stage: int = 1,
    ):
        self._n_rows, self._trees_per_stage = n_rows, trees_per_stage
        self._rows = np.arange(n_rows) if rows is None else rows
        self._n_drawn = max(1, int(subsample * len(self._rows)))
        self._seed = seed
        self._masks = DrawnAgain(self._stages)

    def draw(
        self, trees: range, leaves: NDArray[Any], gradients: RowGradients | None
    ) -> NDArray[Any]:
        """Return 1 for the rows of the stage that each of these trees belongs to, (len(trees), N)."""
        return np.stack([self.bag(tree) for tree in trees])

    def bag(self, tree: int) -> NDArray[np.uint8]:
        """Return 1 for the rows of a tree's stage, (N,)."""
        drawn = np.zeros(self._n_rows, dtype=np.uint8)
        drawn[self._rows[self._masks[tree // self._trees_per_stage]]] = 1
        return drawn

    def _stages(self) -> Iterator[BoolArray]:
        """The rows of each stage among those of the fit, without end."""
        from sklearn.ensemble._gradient_boosting import _random_sample_mask

        stream = np.random.RandomState(self._seed)
        while True:
            yield np.asarray(
                _random_sample_mask(len(self._rows), self._n_drawn, stream), dtype=bool
            )
            stream.randint(0, _LARGEST, self._trees_per_stage)


class BootstrapSampler:
    """The bags of forests and bagging: how often each row was drawn, times what its class then counts.

    ``bags`` starts the rows drawn tree after tree from the beginning, each time it is called; ``factor`` turns a
    tree's rows into the weights (N,) of the "balanced_subsample" classes. With ``seeds``, one for each tree, the core draws
    the rows, ``n_drawn`` of them, where it draws those of the first tree as the library does.
    """

    needs_gradients = False
    dtype: type[np.generic] = np.float64

    def __init__(
        self,
        name: str,
        n_rows: int,
        bags: Callable[[], Iterable[Indices]],
        factor: Callable[[Indices], FloatArray] | None = None,
        seeds: list[int] | None = None,
        n_drawn: int = 0,
    ):
        self.name, self._n_rows, self._factor = name, n_rows, factor
        self._bags, self._n_drawn, self._seeds = DrawnAgain(bags), n_drawn, None
        if seeds and factor is None:
            first = bootstrapped(seeds[0], n_rows, n_drawn)
            self._seeds = seeds if np.array_equal(first, self.bag(0)) else None

    def draw(
        self, trees: range, leaves: NDArray[Any], gradients: RowGradients | None
    ) -> NDArray[Any]:
        """Return how often each row is in the bag of each of these trees, (len(trees), N)."""
        return np.stack([self.bag(tree) for tree in trees])

    def bag(self, tree: int) -> NDArray[Any]:
        """Return how often each row is in a tree's bag, (N,)."""
        if self._seeds is not None:
            return bootstrapped(self._seeds[tree], self._n_rows, self._n_drawn)
        bag = self._bags[tree]
        times = np.bincount(bag, minlength=self._n_rows)
        return times if self._factor is None else times * self._factor(bag)
