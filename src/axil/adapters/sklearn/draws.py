"""The rows that scikit-learn fitted each tree on.

Early stopping holds rows out, the stages of gradient boosting take subsamples, and forests and
bagging choose the samples. All are sampled again from the seeds of the model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from axil.adapters.boosted_fit import RowGradients
from axil.adapters.sample_counts import DrawnAgain
from axil.aliases import ForeignModel, ForeignObject
from axil.arrays import AnyArray, BoolArray, FloatArray, LeafArray
from axil.errors import InputError, UnsupportedModelError
from axil.kernels.cpu import bootstrapped

Indices = LeafArray

#: RAND_R_MAX, the bound of the number that each tree's splitter samples (sklearn/tree/_utils.pyx).
LARGEST_TREE_SEED = 2**31 - 1


def training_rows(
    n_rows: int, held_out: float | int, seed: int, classes: FloatArray | None = None
) -> Indices:
    """Return the rows that early stopping did not hold out, in the order of the fit.

    Parameters
    ----------
    n_rows : int
        The number of rows.
    held_out : float or int
        The share, or number, of rows that were held out.
    seed : int
        The seed of the split.
    classes : array of shape (N,), optional
        The classes of the rows, of each of which the same share was held out.
    """
    from sklearn.model_selection import train_test_split

    try:
        rows: Indices = train_test_split(
            np.arange(n_rows), test_size=held_out, random_state=seed, stratify=classes
        )[0]
    except ValueError as error:
        raise InputError(
            f"X has {n_rows} rows, too few to hold out {held_out} of them as the fit did for early "
            f"stopping ({error}). Pass the rows that the model was fitted on."
        ) from None
    return rows


class StageSampler:
    """The subsample of each stage of gradient boosting, which its trees share.

    Of n rows int(subsample * n) are sampled, at least one: with u uniform, row i is in iff
    u_i * (n - i) is less than the number still to be sampled (_random_sample_mask,
    sklearn/ensemble/_gradient_boosting.pyx). One stream serves all stages, and each tree takes one
    more number from it. The rows are those that early stopping left, in its order.
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
        self._n_rows = n_rows
        self._rows = np.arange(n_rows) if rows is None else rows
        self._n_drawn = max(1, int(subsample * len(self._rows)))
        self._seed = seed
        self._trees_per_stage = trees_per_stage
        self._masks = DrawnAgain(self._stages)

    def draw(self, trees: range, leaves: AnyArray, gradients: RowGradients | None) -> AnyArray:
        """Return 1 for the rows of the stage of each of these trees, (len(trees), N)."""
        return np.stack([self.bag(tree) for tree in trees])

    def bag(self, tree: int) -> NDArray[np.uint8]:
        """Return 1 for the rows of a tree's stage, (N,)."""
        bag = np.zeros(self._n_rows, dtype=np.uint8)
        bag[self._rows[self._masks[tree // self._trees_per_stage]]] = 1
        return bag

    def _stages(self) -> Iterator[BoolArray]:
        """Yield the rows of each stage among those of the fit, without end."""
        from sklearn.ensemble._gradient_boosting import _random_sample_mask

        stream = np.random.RandomState(self._seed)
        while True:
            mask = _random_sample_mask(len(self._rows), self._n_drawn, stream)
            yield np.asarray(mask, dtype=bool)
            stream.randint(0, LARGEST_TREE_SEED, self._trees_per_stage)


class BootstrapSampler:
    """The samples of forests and bagging.

    They say how often each row was sampled, times the weight of its class.

    Parameters
    ----------
    name : str
        What was sampled, for messages.
    n_rows : int
        The number of training rows, N.
    sampled_rows : callable
        Starts the rows sampled tree after tree from the beginning, each time it is called.
    factor : callable, optional
        From a tree's rows to the weights (N,) of "balanced_subsample" classes.
    seeds : list of int, optional
        The seed of each tree. The core samples the rows from it, if it samples those of the first
        tree as the library does.
    n_drawn : int
        How many rows the core samples.
    """

    needs_gradients = False
    dtype: type[np.generic] = np.float64

    def __init__(
        self,
        name: str,
        n_rows: int,
        sampled_rows: Callable[[], Iterable[Indices]],
        factor: Callable[[Indices], FloatArray] | None = None,
        seeds: list[int] | None = None,
        n_drawn: int = 0,
    ):
        self.name = name
        self._n_rows = n_rows
        self._factor = factor
        self._sampled_rows = DrawnAgain(sampled_rows)
        self._n_drawn = n_drawn
        self._seeds: list[int] | None = None
        if seeds and factor is None:
            first = bootstrapped(seeds[0], n_rows, n_drawn)
            if np.array_equal(first, self.bag(0)):
                self._seeds = seeds
            else:
                self._seeds = None

    def draw(self, trees: range, leaves: AnyArray, gradients: RowGradients | None) -> AnyArray:
        """Return how often each row is in the sample of each of these trees, (len(trees), N)."""
        return np.stack([self.bag(tree) for tree in trees])

    def bag(self, tree: int) -> AnyArray:
        """Return how often each row is in a tree's sample, (N,)."""
        if self._seeds is not None:
            return bootstrapped(self._seeds[tree], self._n_rows, self._n_drawn)
        rows = self._sampled_rows[tree]
        counts = np.bincount(rows, minlength=self._n_rows)
        if self._factor is None:
            return counts
        return counts * self._factor(rows)


def sampled_rows(model: ForeignModel) -> Iterator[Indices]:
    """Yield the rows of each tree; ``estimators_samples_`` would hold all of them at once."""
    for drawn in model._get_estimators_indices():
        if isinstance(drawn, tuple):
            yield drawn[1]
        else:
            yield drawn


def with_sampled_rows(model: ForeignModel, members: list[ForeignObject]) -> ForeignModel:
    """Return the model in a state from which axil can repeat its random samples."""
    if not hasattr(model, "_sample_weight"):  # pickled before the version that keeps it
        model = copy.copy(model)
        model._sample_weight = None
    if len(getattr(model, "_seeds", members)) == len(members):
        return model
    # Bagging with warm_start remembers the seeds of its last fit only; one stream gave all of them.
    if not isinstance(model.random_state, (int, np.integer)):
        raise UnsupportedModelError(
            "warm_start",
            "True",
            "predictions are linear in the targets, but which rows its first trees were fitted "
            "on cannot be sampled again",
            "Fit all trees at once, or with an integer random_state.",
        )
    model = copy.copy(model)
    stream = np.random.RandomState(model.random_state)
    model._seeds = stream.randint(np.iinfo(np.int32).max, size=len(members))
    return model


def samples_trees(model: ForeignModel) -> bool:
    """Return whether the members of a fitted bagging model are trees.

    A user's subclass of trees may fit something else.
    """
    kinds = {kind.__name__ for kind in type(model.estimators_[0]).__mro__}
    has_trees = all(hasattr(member, "tree_") for member in model.estimators_)
    return has_trees and bool(kinds & {"DecisionTreeRegressor", "DecisionTreeClassifier"})


def is_seed(state: ForeignObject) -> bool:
    """Return whether a random state is a number that starts NumPy's generator."""
    return isinstance(state, int) and 0 <= state < 1 << 32
