"""The contract between a model library and the rest of axil."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
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
from axil.adapters.routes import Routes, Ways
from axil.arrays import FloatArray
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
    "Placement",
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


DENSE_ROWS = 1 << 14  # of sparse rows whose values are looked at together


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
    SMOOTHER = "smoother"  #: linear, predictions are features times a solution times targets
    SUM = "sum"  #: of other models, or several of them side by side
    RESIDUAL = "residual"  #: trees that are fitted to what another model leaves over


class ScoreCalibration(Protocol):
    """What makes probabilities of scores, besides the link."""

    @property
    def notes(self) -> Mapping[str, str]:
        """For tables, by the value of the `Kind`."""

    def probabilities(self, scores: FloatArray, means: FloatArray) -> FloatArray | None:
        """Return probabilities (n, K) from scores and what the link makes of them; None: they follow from no score."""


@dataclass(frozen=True)
class Totals:
    """Sums over the training rows, which parts of a data set add up to."""

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
        """The totals of rows with targets (N, K) and weights (N,)."""
        if weights is None:
            weighted = targets
        else:
            weighted = targets * weights[:, None]
        return cls(
            n_rows=len(targets),
            weight=float(len(targets) if weights is None else weights.sum()),
            lightest=1.0 if weights is None else float(weights.min(initial=np.inf)),
            even=weights is None or bool(np.all(weights == 1)),
            sums=np.array([column.sum() for column in np.ascontiguousarray(weighted.T)]),
            size=float(np.abs(targets).sum()),
            largest=largest_size(targets),
            weighted=weights is not None,
            offset=offsets is not None,
        )

    @property
    def means(self) -> FloatArray:
        """(K,): the weighted means of the targets."""
        return self.sums / self.weight

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.n_rows + other.n_rows,
            self.weight + other.weight,
            min(self.lightest, other.lightest),
            self.even and other.even,
            self.sums + other.sums,
            self.size + other.size,
            max(self.largest, other.largest),
            self.weighted,
            self.offset,
        )


@dataclass(frozen=True)
class LeafTotals:
    """Sums that made the L leaves of one entry of the trees, as the library saw them."""

    weights: FloatArray  #: (L,) of weight * draw
    sums: FloatArray  #: (L, K) of weight * draw * residual


@dataclass(frozen=True)
class TrainingRows:
    """The training rows, checked; as an adapter reads them, targets, weights and offsets are rounded as its library does.

    Most models are read with the totals alone, and rows that lie on several machines have nothing
    else (see `axil.dask`). Where a model's leaves have to show what it does not state, it is read,
    walked through with the rows, and read again with what its leaves were made of.
    """

    X: Any
    targets: FloatArray  #: (N, K)
    weights: FloatArray | None = None  #: (N,)
    offsets: FloatArray | None = None  #: (N, K)
    bags: FloatArray | None = (
        None  #: (N, T) how often each row was drawn for each tree, where that was recorded
    )
    #: of each entry of the trees, once the rows were walked through the fit, for an adapter that
    #: ``settles`` by them
    leaf_totals: list[LeafTotals] | None = None
    #: (T, N) the leaves of the rows, which a file keeps in place of their features
    leaves: NDArray[np.unsignedinteger[Any]] | None = None

    @property
    def at_hand(self) -> bool:
        """Whether all rows are here."""
        return True

    @cached_property
    def totals(self) -> Totals:
        return Totals.of(self.targets, self.weights, self.offsets)


@dataclass(frozen=True)
class FittedSmoother:
    """A fitted linear smoother: predictions are ``features(x) @ solution @ targets``."""

    training: Any  #: (N, p) features of the training rows
    solution: (
        FloatArray | LinearSteps | None
    )  #: (p, N); None: the features of a query are its weights, sparse (n, N)
    weighs_squares: bool = (
        False  #: whether sample weights multiply the squared errors that the solution minimises
    )
    #: why the deletion of a row is not computed; empty: it is, where squared errors are weighted
    undeletable: str = ""


class Model(Protocol):
    """One fitted model, read once. Construction refuses by name what axil cannot explain.

    Base classes have the values stated here.
    """

    library: str  #: for messages
    form: Form
    kind: Kind = Kind.EXACT  #: the numbers that the loss and the rule of the leaf values allow
    #: the setting by which the predictions are no weighted sums of the targets; None: they are, or
    #: nobody asked
    not_exact: UnsupportedModelError | None = None
    n_features: int
    feature_names: list[str] | None = None  #: None where the model was fitted without names
    takes_text: bool = False  #: whether columns may hold other things than numbers
    tells_kinds_apart: bool = (
        False  #: whether 1 and 1.0 in a list of rows are different things to it
    )
    classes: NDArray[Any] | None = (
        None  #: of a classifier: its targets are one-hot, its predictions probabilities
    )
    n_outputs: int = 1
    repeats_targets: bool = (
        False  #: whether all outputs were fitted to one column of targets, as several quantiles are
    )
    missing_targets: bool = (
        False  #: whether a row may have targets of some outputs alone, nan where it has none
    )
    precision: type[np.floating[Any]] = (
        np.float64
    )  #: in which the library keeps targets and weights
    tolerance: float  #: of predictions, relative to the largest |prediction|
    fingerprint: str  #: of what was fitted; equal models have equal ones
    fitted_rows: int | None = (
        None  #: how many rows it was fitted on, where that must be known beforehand
    )
    refused_draws: UnsupportedModelError | None = None  #: raised unless the user gives the draws
    #: whether a query's offset stands in for the base, and `predictions` takes offsets (n, K)
    #: beside rows; else it is added
    offset_replaces_base: bool = False
    #: of categories by the targets, by which training rows had other leaves than predictions have
    encodings: int = 0
    #: whether rows weigh otherwise for each class, so that a row of another class would have
    #: another weight
    weighs_classes: bool = False
    #: what the library does with a category that no training row has, in words; empty: it refuses
    #: it, or it is not known
    unseen: str = ""
    #: of the targets that it was fitted to, and of `predictions`, where it transforms them itself
    scale: TargetScale = IDENTITY
    #: of a classifier of several labels per row, which has no ``classes``
    label_classes: LabelClasses | None = None
    #: what `predictions` are, where they are not the numbers that the model returns
    about_predictions: str = ""
    #: what makes probabilities of scores, besides the link; None: nothing does
    calibration: ScoreCalibration | None = None
    #: whether the trees begin with the base, a tree of one leaf: a percentile of the targets, where
    #: they do not start from a mean
    starts_with_base: bool = False
    #: whether that base is a percentile which predictions from an offset leave out
    starts_with_percentile: bool = False
    #: the categories of columns that the fit had as categories, by name; empty where the model does
    #: not state them
    categories: Mapping[str, list[Any]] = MappingProxyType({})

    def spelling(self, name: str) -> str:
        """How the library writes a column's name: as it is, unless an adapter says otherwise."""
        return name

    def coordinates(self, X: Any, n_threads: int = 1) -> Any:
        """Coordinates that weights are computed from: leaves of trees, or features of a smoother."""

    def predictions(self, X: Any) -> FloatArray:
        """(n, K): what the model predicts by default (probabilities of a classifier), without offsets."""

    def mean_probabilities(self, X: Any) -> FloatArray | None:
        """Return the probabilities (n, K) of a model whose ``calibration`` makes none of scores; None of other models."""
        return None

    def causes(self, what: str) -> str:
        """The most likely reasons, in this library, for a disagreement in "counts", "weights" or "values"; one per line."""


class Adapter(Model, Protocol):
    """An ensemble of trees, of any loss; ``coordinates`` gives (n, T) leaves.

    The loss and the leaf rule of its `BoostedFit` decide ``kind``. With ``Kind.EXACT``, ``trees``
    may return one entry per output. With ``Kind.ADDITIVE`` it returns one entry for all outputs,
    whose loss says what the gradients are. The targets of classes are 0 and 1.
    """

    form: Form = Form.TREES
    offset_precision: type[np.floating[Any]] = np.float64  #: in which the library keeps offsets
    residual_precision: type[np.floating[Any]]  #: in which it keeps residuals
    score_precision: type[np.floating[Any]]  #: in which it keeps predictions while it fits
    base_precision: type[np.floating[Any]] = (
        np.float64
    )  #: in which it keeps a base that it estimates
    leaf_steps: int = 1  #: Newton steps that make a leaf value
    leaf_tolerance: (
        float  #: of leaf values in a replay that rounds as the library does, relative likewise
    )
    records_other_weights: bool = (
        False  #: whether it may record sums of other weights than the rows of a leaf have
    )
    #: whether `trees` is asked again, with the leaf totals, for what the model does not state
    settles: bool = False
    #: whether rows were sampled in proportion to their weights, which then count in no leaf
    weights_drawn: bool = False
    #: of leaf values and scores in a replay in float64, relative to the largest
    gradient_tolerance: float = 1e-6
    #: number of classes of a model that keeps no names of classes; the user may pass names
    numbered_classes: int = 0
    #: weights by the numbers of the classes, or "balanced"; None: all are one
    class_weight: Any = None
    #: how the library counts ``class_weight`` from the rows, where the model states the weights as
    #: numbers
    counts_classes_by: ClassWeightRule | None = None
    #: whether `label_factors` are counted from the labels of all rows
    balances_labels: bool = False

    @property
    def single_output_setting(self) -> str:
        """Return the setting, in words, that keeps the model from being one of several outputs.

        It is empty where there is none.
        """
        return ""

    def label_factors(self, targets: FloatArray) -> FloatArray | None:
        """Return the factors of the row weights in leaves by the labels of the rows, (N,); None: all are one."""
        return None

    def scores(self, X: Any) -> FloatArray:
        """Return the library's raw scores, before any link and without offsets, (n, K)."""

    @property
    def routes(self) -> Routes | Ways | None:
        """The trees' tests, where it is proven how the library applies them."""
        return None

    def counted_weights(self, rows: TrainingRows) -> FloatArray | None:
        """Return what rows (N,) count in the leaves of a fit to them; None stands for ones."""
        return rows.weights

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """The model's trees: one entry for all outputs where they share trees, else one for each output."""

    def l2_at(self, l2: FloatArray, before: float, after: float) -> FloatArray:
        """Return l2 (L,), which follows the mean weight of all rows, where that is ``after`` and no longer ``before``."""

    def leaves(self, X: Any) -> NDArray[np.integer[Any]]:
        """(n, T): which leaf of each tree, from 0, every row of X falls into, by the library's own account."""

    def assign(
        self,
        X: Any,
        out: NDArray[np.unsignedinteger[Any]],
        n_threads: int,
        backend: Backend | None = None,
    ) -> None:
        """Fill ``out`` (T, n) with the same leaves, by routes through the trees where there are any, on this back end."""


class Defaults(ReadsRows, Model):
    """Base class of adapters."""


class SmootherModel(Defaults):
    """Base class for adapters of linear smoothers, whose predictions are ``coordinates(X) @ solution @ targets``.

    An adapter defines ``library``, ``n_features``, ``tolerance``, ``fingerprint``,
    ``predictions(X)``, ``causes(what)``, and the two members below that have no default:
    ``coordinates`` and ``smoother``.
    """

    form: Form = Form.SMOOTHER
    #: what ``tolerance`` may grow to where the library's own solver is no closer to the solution
    widest: float = 1e-6

    #: (X, weights) -> the smoother on the training rows X with these sample weights; a list of one
    #: for each output where outputs have different weights
    smoother: Callable[..., FittedSmoother | list[FittedSmoother]]

    def row_weights(self, targets: FloatArray, weights: FloatArray | None) -> FloatArray | None:
        """Return what each row counts in the fit, (N,): its sample weight, and what the model makes of its class."""
        return weights

    def check_kept(self, X: Any, targets: FloatArray, weights: FloatArray | None) -> None:
        """Raise unless the training data are what the model itself keeps of them. Default: it keeps nothing."""

    def again(self, X: Any, targets: FloatArray, weights: FloatArray | None) -> FloatArray | None:
        """(N, K): predictions of the library's solver when it is run again on these data; None where it cannot be."""
        return None

    def unsolved(self, X: Any, weights: FloatArray | None, error: float) -> UnsupportedModelError:
        """The refusal of a fit whose solver leaves such an error, relative to the largest |prediction|, on its own data."""
        return UnsupportedModelError(
            "solver",
            f"{error:.1e} from the solution",
            f"the library's own solver ends further from the solution than {self.widest:g} of the largest prediction",
            "Fit with a direct solver, or scale the features.",
        )


class TreeModel(Defaults, Adapter):
    """Base class for adapters of trees.

    An adapter defines ``library``, ``n_features``, ``tolerance``, ``leaf_tolerance``, ``residual_precision``,
    ``score_precision``, ``fingerprint``, ``predictions(X)``, ``causes(what)``, ``leaves(X)`` and ``trees(rows)``: see `Adapter`.
    """

    def table(self, X: Any) -> NDArray[np.floating[Any]] | None:
        """(n, features): the values that the library tests in these rows; None where only the library itself knows."""
        return None

    def assign(
        self,
        X: Any,
        out: NDArray[np.unsignedinteger[Any]],
        n_threads: int,
        backend: Backend | None = None,
    ) -> None:
        """Fill ``out`` (T, n) with the leaves of the rows of X."""
        if self.starts_with_base:
            out[0] = 0
            out = out[1:]
        if self.routes is None or not X.shape[0]:
            out[...] = self.leaves(X).T
            return
        # of sparse rows some at a time are made dense
        if sparse.issparse(X):
            step = DENSE_ROWS
        else:
            step = X.shape[0]
        for first in range(0, X.shape[0], step):
            if step == X.shape[0]:
                rows = X
            else:
                rows = X[first : first + step]
            table = self.table(rows)
            own = out[:, first : first + step]
            if table is None or not self.routes.assign(table, own, n_threads, backend):
                own[...] = self.leaves(rows).T

    def scores(self, X: Any) -> FloatArray:
        """Return the raw scores, (n, K): the predictions, unless a link makes these of scores."""
        return self.predictions(X)

    def l2_at(self, l2: FloatArray, before: float, after: float) -> FloatArray:
        """Return l2 (L,), which follows the mean weight of all rows, where that is ``after`` and no longer ``before``."""
        return l2 * (after / before)

    def leaves_of(self, rows: TrainingRows) -> NDArray[np.integer[Any]]:
        """Return the leaf of each training row in each tree, (N, T), without a base."""
        if rows.leaves is None:
            return self.leaves(rows.X)
        return rows.leaves[int(self.starts_with_base) :].T

    def coordinates(self, X: Any, n_threads: int = 1) -> NDArray[np.integer[Any]]:
        """(n, T): the leaves."""
        if self.routes is None:
            found: NDArray[np.integer[Any]] = self.leaves(X)
            if self.starts_with_base:
                return np.pad(found, ((0, 0), (1, 0)))
            return found
        leaves = np.empty(
            (self.routes.n_trees + self.starts_with_base, X.shape[0]), dtype=np.uint16
        )
        self.assign(X, leaves, n_threads)
        return leaves.T
