"""The contract between a model library and the rest of axil."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from axil.adapters.boosted_fit import (
    BoostedFit,
    InitialPrediction,
    LeafRule,
    Placement,
    RowGradients,
    Sampler,
    Schedule,
    TreeTable,
    WeightRule,
)
from axil.adapters.boundary import ReadsRows
from axil.adapters.linear_steps import LinearSteps
from axil.adapters.routes import FeatureTests, Routes, Ways
from axil.aliases import FeatureTable, ForeignObject, TableLike
from axil.arrays import AnyArray, Cells, FloatArray, IntArray, LeafArray, RealArray, RealType
from axil.errors import UnsupportedModelError
from axil.inputs.label_classes import LabelClasses
from axil.kernels import Backend
from axil.machine.arrays import largest_size
from axil.scale import IDENTITY, TargetScale
from axil.structure import Ancestors, Coefficients, Nodes

__all__ = [
    "Adapter",
    "Ancestors",
    "BoostedFit",
    "ClassWeightRule",
    "Coefficients",
    "FittedSmoother",
    "Form",
    "InitialPrediction",
    "Kind",
    "LeafRule",
    "LeafTotals",
    "Model",
    "Nodes",
    "OffsetRule",
    "Placement",
    "Rounding",
    "RowGradients",
    "Sampler",
    "Schedule",
    "ScoreCalibration",
    "SmootherModel",
    "Totals",
    "TrainingRows",
    "TreeModel",
    "TreeTable",
    "WeightRule",
]


DENSE_ROWS = 1 << 14  #: number of sparse rows that are made dense together


#: From the numbers of rows of all classes, (C,), and the sums of their sample weights, (C,), the
#: weight of each class.
ClassWeightRule = Callable[[FloatArray, FloatArray], FloatArray]


class Kind(Enum):
    """The kind of numbers that a model gives. The value is the word that users read."""

    EXACT = "exact"  #: weights: a prediction is the sum of weights times targets
    ADDITIVE = "additive"  #: contributions of the training rows, which add up to the score
    DERIVATIVE = "derivative"  #: derivatives of predictions by targets, which do not add up


class Form(Enum):
    """The form of a model, which decides how its fit is replayed."""

    TREES = "trees"
    SMOOTHER = "smoother"  #: linear: predictions are features times a solution times targets
    SUM = "sum"  #: of other models, or several of them side by side
    RESIDUAL = "residual"  #: trees that are fitted to the residuals of another model


class TargetForm(Enum):
    """The form of the targets of a model that predicts no classes."""

    NUMBERS = "numbers"  #: one for each output
    TIMES = "times"  #: of one output, with a minus sign where a row was censored
    BOUNDS = "bounds"  #: two for the single output: the ends of the interval of a time


class OffsetRule(Enum):
    """The effect of an explained row's offset on its prediction."""

    ADDED = "added"  #: it is added
    REPLACES_INITIAL = "replaces initial"  #: it takes the place of the initial prediction
    #: it would take the place of an initial prediction that is a tree, so it is refused
    REPLACES_TREE = "replaces tree"


@dataclass(frozen=True)
class Rounding:
    """The precision of a library's numbers during the fit; for scores see `BoostedFit`."""

    targets: RealType = np.float64  #: targets and sample weights
    offsets: RealType = np.float64
    residuals: RealType = np.float64  #: and gradients
    #: the initial prediction, where the library estimates it
    initial: RealType = np.float64


class ScoreCalibration(Protocol):
    """The map from scores to probabilities, beside the link."""

    @property
    def notes(self) -> Mapping[str, str]:
        """Notes for tables, by the value of the `Kind`."""

    def probabilities(self, scores: FloatArray, means: FloatArray) -> FloatArray | None:
        """Return the probabilities; None if they do not follow from the scores.

        Parameters
        ----------
        scores : array of shape (n, K)
        means : array of shape (n, K)
            The scores after the link.

        Returns
        -------
        array of shape (n, K), or None
        """


@dataclass(frozen=True)
class Totals:
    """Sums over training rows; those of the parts of a data set add up."""

    n_rows: int
    weight: float  #: the sum of the weights
    lightest: float  #: the smallest weight
    even: bool  #: whether every weight is one
    sums: FloatArray  #: (K,) of weight * target
    size: float  #: the sum of |target|, over all outputs
    largest: float  #: the largest |target|
    weighted: bool  #: whether there are weights
    offset: bool  #: whether there are offsets

    @classmethod
    def of(
        cls, targets: FloatArray, weights: FloatArray | None, offsets: FloatArray | None
    ) -> Totals:
        """Return the sums over rows with targets (N, K), weights (N,) and offsets (N, K)."""
        total_weight = float(len(targets))
        smallest_weight = 1.0
        are_even = True
        weighted_targets = targets
        if weights is not None:
            total_weight = float(weights.sum())
            smallest_weight = float(weights.min(initial=np.inf))
            are_even = bool(np.all(weights == 1))
            weighted_targets = targets * weights[:, None]
        columns = np.ascontiguousarray(weighted_targets.T)
        return cls(
            n_rows=len(targets),
            weight=total_weight,
            lightest=smallest_weight,
            even=are_even,
            sums=np.array([column.sum() for column in columns]),
            size=float(np.abs(targets).sum()),
            largest=largest_size(targets),
            weighted=weights is not None,
            offset=offsets is not None,
        )

    @property
    def means(self) -> FloatArray:
        """The weighted means of the targets, (K,)."""
        return self.sums / self.weight

    def __add__(self, totals: Totals) -> Totals:
        """Return the sums over both parts of a data set."""
        return Totals(
            self.n_rows + totals.n_rows,
            self.weight + totals.weight,
            min(self.lightest, totals.lightest),
            self.even and totals.even,
            self.sums + totals.sums,
            self.size + totals.size,
            max(self.largest, totals.largest),
            self.weighted,
            self.offset,
        )


@dataclass(frozen=True)
class LeafTotals:
    """Sums over the rows of the L leaves of one entry of the trees, as the library saw them."""

    weights: FloatArray  #: (L,) of weight * sample count
    sums: FloatArray  #: (L, K) of weight * sample count * residual


@dataclass(frozen=True)
class TrainingRows:
    """The checked training rows.

    Targets, weights and offsets are rounded as the library rounds them.

    Most models are read with the totals alone. Rows that lie on several machines have nothing else
    (see `axil.dask`). An adapter whose model does not state all settings ``settles``: it is read,
    the rows are walked through the fit, and it is read again with the sums over its leaves.
    """

    X: FeatureTable
    targets: FloatArray  #: (N, K)
    weights: FloatArray | None = None  #: (N,)
    offsets: FloatArray | None = None  #: (N, K)
    #: (N, T) how often each row was sampled for each tree, where the user passes that
    in_bag: FloatArray | None = None
    #: (N,) the number of each row's group in a ranking, from 0 up; None: there are no groups
    groups: IntArray | None = None
    #: the sums over the leaves of each entry of the trees, once the rows were walked through the
    #: fit
    leaf_totals: list[LeafTotals] | None = None
    #: (T, N) the leaves of the rows, which a file keeps in place of their features
    leaves: Cells | None = None

    @property
    def at_hand(self) -> bool:
        """Whether all rows are here."""
        return True

    @cached_property
    def totals(self) -> Totals:
        """The sums over all rows."""
        return Totals.of(self.targets, self.weights, self.offsets)


@dataclass(frozen=True)
class FittedSmoother:
    """A fitted linear smoother: predictions are ``features(x) @ solution @ targets``."""

    training: Any  #: (N, p) features of the training rows
    solution: (
        FloatArray | LinearSteps | None
    )  #: (p, N); None: the features of an explained row are its weights, sparse (n, N)
    weighs_squares: bool = (
        False  #: whether sample weights multiply the squared errors that the solution minimises
    )
    #: why the deletion of a row is not computed; empty: it is, where squared errors are weighted
    undeletable: str = ""
    #: (N,) factors with which the solution's rows are those of ``I - K``, so that no digits are
    #: lost in that difference; nan for a row where this does not hold. None: for no row
    residual_factors: FloatArray | None = None


class Model(Protocol):
    """The contract of an adapter: one fitted model, read once.

    The constructor of an adapter refuses by name what axil cannot explain. The base classes
    `TreeModel` and `SmootherModel` have the values stated here.
    """

    # -- what it is -------------------------------------------------------------------------------
    library: str  #: the name of the library, for messages
    fingerprint: str  #: a digest of what was fitted; equal models have equal ones
    form: Form
    #: the numbers that the loss and the leaf rule, or the form, allow
    kind: Kind = Kind.EXACT
    #: the setting by which the predictions are no weighted sums of the targets; None: they are, or
    #: the model was read by its gradients
    not_exact: UnsupportedModelError | None = None
    #: raised unless the user passes the sampled rows of each tree
    refused_draws: UnsupportedModelError | None = None

    # -- features ---------------------------------------------------------------------------------
    n_features: int
    feature_names: list[str] | None = None  #: None where the model was fitted without names
    takes_text: bool = False  #: whether columns may hold other things than numbers
    #: whether transformers make other columns of the features
    transforms_columns: bool = False
    #: whether the library treats 1 and 1.0 in a list of rows as different values
    tells_kinds_apart: bool = False
    #: the categories of columns that the fit had as categories, by name; empty where the model does
    #: not state them
    categories: Mapping[str, list[ForeignObject]] = MappingProxyType({})
    #: a sentence on what the library does with a category that no training row has; empty: it
    #: raises, or that is not known
    unseen: str = ""
    #: number of encodings of categories by the targets, by which training rows had other leaves
    #: than predictions have
    encodings: int = 0

    # -- targets ----------------------------------------------------------------------------------
    n_outputs: int = 1
    #: the names of the classes; targets are then one-hot
    classes: AnyArray | None = None
    #: whether the predictions of classes are probabilities, and no other scores
    predicts_probabilities: bool = True
    #: the classes of a classifier of several labels per row, which has no ``classes``
    label_classes: LabelClasses | None = None
    #: whether all outputs were fitted to one column of targets, as several quantiles are
    repeats_targets: bool = False
    #: whether targets may be nan, where a row has targets of some outputs alone
    missing_targets: bool = False
    target_form: TargetForm = TargetForm.NUMBERS
    #: whether a row's weight depends on its class, so that a row of another class would have
    #: another weight
    weighs_classes: bool = False
    #: the scale of the targets that it was fitted to, and of ``predictions``, where the library
    #: transforms them itself
    scale: TargetScale = IDENTITY
    #: whether axil writes a model of this library with other leaf values
    is_written: bool = True
    #: the number of rows of its fit, where that must be known beforehand
    fitted_rows: int | None = None

    # -- numbers ----------------------------------------------------------------------------------
    rounding: Rounding = Rounding()
    #: precision in which the library keeps the scores of its training rows
    score_precision: RealType = np.float64
    tolerance: float  #: of predictions, relative to the largest |prediction|

    # -- predictions ------------------------------------------------------------------------------
    offset_rule: OffsetRule = OffsetRule.ADDED
    #: a sentence on what ``predictions`` are, where they are not the numbers that the model returns
    about_predictions: str = ""
    #: the map from scores to probabilities besides the link; None: there is none
    calibration: ScoreCalibration | None = None
    #: whether the trees begin with the initial prediction, a percentile of the targets, as a tree
    #: of one leaf that the model does not have. See `InitialPrediction.is_first_tree`
    has_initial_tree: bool = False

    def spelling(self, name: str) -> str:
        """Return how the library writes a column's name. By default it is the name itself."""
        return name

    def replayed_targets(self, targets: FloatArray) -> FloatArray:
        """Return a column of targets for each output, (n, K).

        The loss itself has both bounds of `TargetForm.BOUNDS`.
        """
        if self.target_form is TargetForm.BOUNDS:
            return targets[:, :1]
        return targets

    def coordinates(self, X: FeatureTable, n_threads: int = 1) -> ForeignObject:
        """Return the leaves of trees, or the features of a smoother, from which weights follow."""

    def predictions(self, X: FeatureTable) -> FloatArray:
        """Return what the model predicts by default, without offsets.

        With an ``offset_rule`` other than `OffsetRule.ADDED` it also takes offsets (n, K).

        Returns
        -------
        array of shape (n, K)
            Probabilities of a classifier.
        """

    def mean_probabilities(self, X: FeatureTable) -> FloatArray | None:
        """Return the probabilities, (n, K), of a model without a ``calibration`` of scores.

        It is None for other models.
        """
        return None

    def causes(self, mismatch: str) -> str:
        """Return the most likely reasons for a disagreement in this library, one per line.

        Parameters
        ----------
        mismatch : {"counts", "weights", "values"}
            What disagrees.
        """


class Adapter(Model, Protocol):
    """The contract of an ensemble of trees, of any loss; ``coordinates`` returns leaves (n, T).

    The loss and the leaf rule of its `BoostedFit` decide ``kind``. With ``Kind.EXACT``, ``trees``
    may return one entry per output. With ``Kind.ADDITIVE`` it returns one entry for all outputs,
    whose loss says what the gradients are. The targets of classes are 0 and 1.
    """

    form: Form = Form.TREES
    #: of leaf values in a replay that rounds as the library does, relative to the largest
    leaf_tolerance: float
    #: of leaf values and scores in a replay by gradients in float64, relative to the largest
    gradient_tolerance: float = 1e-6
    #: whether ``trees`` is called again, with the leaf totals, for what the model does not state
    settles: bool = False
    #: whether the library may record leaf weights that are sums of other weights than the rows have
    records_other_weights: bool = False
    leaf_steps: int = 1  #: Newton steps that make a leaf value
    #: whether rows were sampled in proportion to their weights, which then count in no leaf
    weights_drawn: bool = False

    # -- classes ----------------------------------------------------------------------------------
    #: number of classes of a model that keeps no names of classes; the user may pass names
    numbered_classes: int = 0
    #: weights by the numbers of the classes, or "balanced"; None: all are one
    class_weight: ForeignObject = None
    #: how the library counts ``class_weight`` from the rows, where the model states the weights as
    #: numbers
    counts_classes_by: ClassWeightRule | None = None
    #: whether `label_factors` are counted from the labels of all rows
    balances_labels: bool = False

    @property
    def single_output_setting(self) -> str:
        """Return the setting, in words, that keeps the model from being one of several outputs.

        It is empty if there is none.
        """
        return ""

    @property
    def routes(self) -> Routes | Ways | None:
        """The tests of all trees; None if it is not known how the library applies them."""
        return None

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return the trees.

        There is one entry for all outputs that share trees, else one for each output.
        """

    def counted_weights(self, rows: TrainingRows) -> FloatArray | None:
        """Return the weight of each row in the leaves of a fit to these rows, (N,).

        None stands for weights that are all one.
        """
        return rows.weights

    def label_factors(self, targets: FloatArray) -> FloatArray | None:
        """Return the factors of the row weights in leaves by the labels of the rows, (N,).

        None: all are one.
        """
        return None

    def scores(self, X: FeatureTable) -> FloatArray:
        """Return the library's raw scores, before any link and without offsets, (n, K)."""

    def feature_tests(self) -> FeatureTests | None:
        """Return the tests on the columns of `tested_values`; None if they are unknown."""

    def tested_values(self, X: TableLike) -> FloatArray | None:
        """Return the numbers that these tests read, (n, columns); None if they are unknown."""

    def l2_at(self, l2: FloatArray, before: float, after: float) -> FloatArray:
        """Return l2 that is in proportion to the mean weight of all rows, for another mean.

        Parameters
        ----------
        l2 : array of shape (L,)
            What regularisation adds to the leaves' denominators.
        before, after : float
            The mean weight that it was computed for, and the other one.
        """

    def leaves(self, X: FeatureTable) -> LeafArray:
        """Return the leaf of each row in each tree, (n, T).

        Leaves are numbered from 0, and are those that the library itself finds.
        """

    def assign(
        self,
        X: FeatureTable,
        out: Cells,
        n_threads: int,
        backend: Backend | None = None,
    ) -> None:
        """Fill ``out`` (T, n) with the leaves of the rows, by ``routes`` if it has them."""


class Defaults(ReadsRows, Model):
    """Base class of adapters."""


class SmootherModel(Defaults):
    """Base class for adapters of linear smoothers.

    Their predictions are ``coordinates(X) @ solution @ targets``.

    An adapter defines ``library``, ``n_features``, ``tolerance``, ``fingerprint``,
    ``predictions(X)``, ``causes(what)``, and the two members below that have no default:
    ``coordinates`` and ``smoother``.
    """

    form: Form = Form.SMOOTHER
    #: the largest ``tolerance`` that is allowed where the library's own solver stays that far from
    #: the solution
    widest: float = 1e-6

    #: (X, weights) -> the smoother on the training rows X with these sample weights; a list of one
    #: for each output where outputs have different weights
    smoother: Callable[..., FittedSmoother | list[FittedSmoother]]

    def row_weights(self, targets: FloatArray, weights: FloatArray | None) -> FloatArray | None:
        """Return the weight of each row in the fit, (N,).

        It is the row's sample weight times the weight of its class.
        """
        return weights

    def check_kept(self, X: FeatureTable, targets: FloatArray, weights: FloatArray | None) -> None:
        """Raise unless the training data are those that the model itself keeps, if it keeps any."""

    def again(
        self, X: FeatureTable, targets: FloatArray, weights: FloatArray | None
    ) -> FloatArray | None:
        """Return predictions of the library's solver, run again on these data, (N, K).

        It is None if the solver cannot be run again.
        """
        return None

    def unsolved(
        self, X: FeatureTable, weights: FloatArray | None, error: float
    ) -> UnsupportedModelError:
        """Return the refusal of a fit whose solver is too far from the solution.

        ``error`` is relative to the largest |prediction|.
        """
        return UnsupportedModelError(
            "solver",
            f"{error:.1e} from the solution",
            f"the library's own solver ends further from the solution than {self.widest:g} of the "
            "largest prediction",
            "Fit with a direct solver, or scale the features.",
        )


class TreeModel(Defaults, Adapter):
    """Base class for adapters of trees.

    An adapter defines ``library``, ``n_features``, ``tolerance``, ``leaf_tolerance``,
    ``fingerprint``, ``predictions(X)``, ``causes(what)``, ``leaves(X)`` and ``trees(rows)``: see
    `Adapter`.
    """

    def table(self, X: FeatureTable) -> RealArray | None:
        """Return the values that the library tests in these rows, (n, features).

        It is None where only the library itself knows them.
        """
        return None

    def feature_tests(self) -> FeatureTests | None:
        """Return the tests on the columns of `tested_values`; None if they are unknown."""
        if isinstance(self.routes, Routes):
            return FeatureTests([self.routes])
        return None

    def tested_values(self, X: TableLike) -> FloatArray | None:
        """Return the numbers that these tests read, (n, columns); None if they are unknown."""
        values = self.table(X)
        if values is None:
            return None
        return np.asarray(values, dtype=np.float64)

    def assign(
        self,
        X: FeatureTable,
        out: Cells,
        n_threads: int,
        backend: Backend | None = None,
    ) -> None:
        """Fill ``out`` (T, n) with the leaves of the rows of X."""
        if self.has_initial_tree:
            out[0] = 0
            out = out[1:]
        n_rows = X.shape[0]
        if self.routes is None or not n_rows:
            out[...] = self.leaves(X).T
            return
        if not sparse.issparse(X):
            self._assign_block(X, out, n_threads, backend)
            return
        for first in range(0, n_rows, DENSE_ROWS):  # a block at a time is made dense
            block = slice(first, first + DENSE_ROWS)
            self._assign_block(X[block], out[:, block], n_threads, backend)

    def _assign_block(
        self,
        rows: FeatureTable,
        out: Cells,
        n_threads: int,
        backend: Backend | None,
    ) -> None:
        """Fill ``out`` (T, n) with the leaves of rows, by routes if their values are known."""
        table = self.table(rows)
        assert self.routes is not None
        if table is None or not self.routes.assign(table, out, n_threads, backend):
            out[...] = self.leaves(rows).T

    def scores(self, X: FeatureTable) -> FloatArray:
        """Return the raw scores, (n, K): the predictions, unless a link makes these of scores."""
        return self.predictions(X)

    def l2_at(self, l2: FloatArray, before: float, after: float) -> FloatArray:
        """Return l2 (L,) that is in proportion to the mean weight of all rows, for another mean."""
        return l2 * (after / before)

    def leaves_of(self, rows: TrainingRows) -> LeafArray:
        """Return the leaf of each training row in each tree, (N, T), without an initial tree."""
        if rows.leaves is None:
            return self.leaves(rows.X)
        return rows.leaves[int(self.has_initial_tree) :].T

    def coordinates(self, X: FeatureTable, n_threads: int = 1) -> LeafArray:
        """Return the leaf of each row in each tree, (n, T)."""
        if self.routes is None:
            library_leaves: LeafArray = self.leaves(X)
            if self.has_initial_tree:
                return np.pad(library_leaves, ((0, 0), (1, 0)))
            return library_leaves
        leaves = np.empty(
            (self.routes.n_trees + self.has_initial_tree, X.shape[0]), dtype=np.uint16
        )
        self.assign(X, leaves, n_threads)
        return leaves.T
