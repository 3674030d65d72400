"""Comparisons between a replayed fit and the fitted model: counts, weights, base and values of leaves, predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

import axil.templates
from axil.adapters.bags import RecordedBags
from axil.adapters.boosted_fit import BoostedFit
from axil.adapters.contract import Adapter, Model
from axil.arrays import FloatArray, IntArray
from axil.errors import ExactnessError, counted
from axil.inputs import take_rows
from axil.machine.arrays import largest_size
from axil.replay.radius import Held
from axil.replay.recover import Replay
from axil.replay.walk import leaf_totals
from axil.structure import NodeRule, Nodes, RowTotals
from axil.weights.inherited import inheriting

# training rows whose prediction is asked of the library; all others are summed from its leaves
CHECKED_ROWS = 1000
COMPARED_ROWS = 1 << 16  # whose errors are held at a time
# Of a leaf's sum of weights, in some libraries in single precision, relative to the sum over all
# rows
WEIGHT_SLACK = 1e-7
MEAN_SLACK = 8  # roundings of the largest target that a mean, as a library keeps it, may be off by
FAR_OFF = (
    "This row is far from all training rows, and the fit kept rounding errors that grow with the distance, as it does where "
    "columns hardly vary beside their size: centre and scale the columns, and fit again."
)  # of smoothers alone: trees do not extrapolate
ROUNDING = (
    1e-12  # of sums in float64 over any order of the rows, relative to the largest |prediction|
)


@dataclass(frozen=True)
class Verification:
    """Findings of the replay of the fit. Errors are relative to the largest |prediction|."""

    n_rows: int
    n_trees: int
    max_error: float  #: of the predictions of the training rows
    #: of the leaf values, each replayed from the model's own state before its tree; of pushes
    #: relative to the largest of them
    leaf_error: float
    tolerance: float  #: what max_error had to stay within
    scale: float  #: the largest |prediction|
    #: what rounding targets and offsets, if they are far larger, may add to an error, absolute
    rounding: float = 0.0
    compared: list[str] = field(
        default_factory=list
    )  #: what the model records of its leaves and was found equal
    #: what the model does not state, e.g. {"rates": [[tree, rate]]}
    recovered: dict[str, Any] = field(default_factory=dict)
    replayed: str = (
        ""  #: what drew the rows of each tree, where they were drawn again, e.g. "LightGBM bagging"
    )
    held: Held | None = (
        None  #: the pattern that is held fixed besides the splits; None where there is none
    )
    #: further findings by name: the loss of boosted trees, how far an optimum is from a stationary
    #: point
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def error(self) -> float:
        """The largest error that was measured, of predictions, leaf values, sums of pushes, or of an optimum its Newton step."""
        further = (
            self.details.get(name, 0.0) for name in ("sum_error", "rounding_error", "newton_step")
        )
        return float(max(self.max_error, self.leaf_error, *further))

    def _lines(self) -> tuple[str, list[tuple[str, str]]]:
        """A title and lines of a name and what was found."""
        pushed = "loss" in self.details
        within = f"within {self.max_error:.1e} (allowed {self.tolerance:.0e})"
        if pushed:
            predictions = ("scores", f"{within}, added up as the library adds them")
        else:
            predictions = ("predictions", within)
        rows = counted(self.n_rows, "training row")
        details = [
            (name, f"{found:.1e}" if isinstance(found, float) else str(found))
            for name, found in self.details.items()
        ]
        if not self.n_trees:
            if details:
                kind = "an optimum"
            else:
                kind = "a linear smoother"
            return f"axil.Verification: {kind} of {rows}", [predictions, *details]
        return f"axil.Verification: {counted(self.n_trees, 'tree')} replayed on {rows}", [
            (
                "equal",
                " and ".join(self.compared) or "nothing that the model records of its leaves",
            ),
            (
                "leaf values",
                f"within {self.leaf_error:.1e} of the largest {'of them' if pushed else 'prediction'}",
            ),
            predictions,
            *([("draws", f"{self.replayed} replayed")] if self.replayed else []),
            *([("held", str(self.held))] if self.held is not None else []),
            *(("recovered", f"{name} ({len(found)})") for name, found in self.recovered.items()),
            *details,
        ]

    def __repr__(self) -> str:
        title, lines = self._lines()
        return "\n".join([title, *(f"  {name:<14} {found}" for name, found in lines)])

    def _repr_html_(self) -> str:
        title, lines = self._lines()
        return axil.templates.render("table.html", caption=title, header=[], rows=lines)


@dataclass(frozen=True)
class Extent(RowTotals):
    """Totals of the training rows that the proof needs besides their leaves; parts of a data set combine to the whole."""

    n_rows: int
    weight: float
    sums: FloatArray  #: (K,) of weight * target
    largest_target: float = field(metadata={"both": max})  #: in absolute value, as all that follow
    largest_offset: float = field(metadata={"both": max})
    largest_score: float = field(
        metadata={"both": max}
    )  #: of the predictions by the model's own leaf values

    @classmethod
    def of(
        cls,
        targets: FloatArray,
        weights: FloatArray | None,
        offsets: FloatArray | None,
        score: FloatArray,
    ) -> Extent:
        """The extent of rows with targets (N, K), row weights (N,), offsets (N, K) and predictions (N, K)."""
        n = len(targets)
        total, sums = (
            (n, targets.sum(axis=0)) if weights is None else (weights.sum(), weights @ targets)
        )
        largest = (
            0.0 if part is None else largest_size(part) for part in (targets, offsets, score)
        )
        return cls(n, float(total), sums, *largest)

    @property
    def scale(self) -> float:
        """The number that errors are relative to."""
        return self.largest_score or 1.0

    def rounding(self, model: Model, base: FloatArray | None) -> float:
        """The error of a prediction that rounded targets, offsets and a constant base (K,) may cause: scores go through them."""
        if base is None:
            start = 0.0
        else:
            start = largest_size(base)
        return (
            MEAN_SLACK
            * float(np.finfo(model.precision).eps)
            * max(self.largest_target, self.largest_offset, start)
        )


@dataclass(frozen=True)
class Miss:
    """Where the linear map and the model's predictions are furthest apart."""

    error: float
    row: int
    found: float
    expected: float


def check_leaves(adapter: Adapter, trees: BoostedFit, walked: Replay, extent: Extent) -> float:
    """Compare all that the model says of its leaves, and its base; the largest error of a leaf value."""
    check_counts(adapter, trees, walked)
    if trees.explain_mismatch is not None:  # before the base, as it may know why that is another
        check_values(adapter, trees, walked, extent.scale)
    check_base(adapter, trees, extent)
    leaf_error = check_values(adapter, trees, walked, extent.scale)
    check_nodes(adapter, trees, walked, extent.scale)
    return leaf_error


def verified(
    adapter: Adapter,
    trees: BoostedFit,
    walked: Replay,
    extent: Extent,
    leaf_error: float,
    miss: Miss,
    held: Held | None = None,
) -> Verification:
    """Findings of the proof, once the predictions agree as well."""
    scale = extent.scale
    rounding = extent.rounding(adapter, trees.initial.constants)
    check_predictions(adapter, miss, adapter.tolerance * scale + rounding)
    known = {"leaf counts": trees.table.leaf_counts, "leaf weights": trees.table.leaf_weights}
    compared = [name for name, recorded in known.items() if recorded is not None]
    n_trees = len(trees.table.n_leaves) - trees.initial.is_first_tree
    found = (
        extent.n_rows,
        n_trees,
        miss.error / scale,
        leaf_error,
        adapter.tolerance,
        scale,
        rounding,
    )
    if trees.sampler is None or isinstance(trees.sampler, RecordedBags):
        drawn = []
    else:
        drawn = [trees.sampler.name]
    if trees.weights.held_out is None:
        drawn += []
    else:
        drawn += ["the rows held out for early stopping"]
    return Verification(*found, compared, walked.recovered, " and ".join(drawn), held)


def worst(found: list[Verification]) -> Verification:
    """One verification for all outputs."""
    first = found[0]
    if len(found) == 1:
        return first
    return Verification(
        first.n_rows,
        sum(v.n_trees for v in found),
        max(v.max_error for v in found),
        max(v.leaf_error for v in found),
        first.tolerance,
        max(v.scale for v in found),
        max(v.rounding for v in found),
        first.compared,
        {name: [v.recovered.get(name, []) for v in found] for v in found for name in v.recovered},
        first.replayed,
        reduce(Held.__add__, patterns)
        if (patterns := [v.held for v in found if v.held is not None])
        else None,
    )


def refuse_rows(model: Model, given: int, fitted: int, weighed: bool = False) -> NoReturn:
    cause = f"The {model.library} model was fitted on {fitted} rows: pass exactly those."
    if weighed:
        cause += f"\nOr it was fitted with whole numbers as sample_weight that add up to {fitted}: pass the same."
    raise ExactnessError("number of training rows", given, fitted, cause)


def check_counts(adapter: Adapter, trees: BoostedFit, walked: Replay) -> None:
    """Compare how many rows, and how much weight, each leaf was fitted on with what the model recorded."""
    s = walked.structure
    before = ""
    if trees.sampler is not None:
        before = (
            f"The rows drawn for this tree could not be replayed ({trees.sampler.name}): rows are drawn by their "
            "position, so they "
            "must come in the order of the fit. If you recorded the draws, pass them as in_bag=.\n"
        )
    if trees.table.leaf_counts is not None:
        n_fitted = int(trees.table.leaf_counts[: trees.table.n_leaves[0]].sum())
        n_given = int(walked.counts[: trees.table.n_leaves[0]].sum())
        if n_fitted != n_given and trees.sampler is None:
            _ask(trees, np.flatnonzero(walked.counts != trees.table.leaf_counts))
            refuse_rows(
                adapter,
                n_given,
                n_fitted,
                weighed=trees.table.leaf_weights is not None and _whole(trees.table.leaf_weights),
            )
        compare(
            "row count",
            walked.counts,
            trees.table.leaf_counts,
            0.5,
            trees,
            before + adapter.causes("counts"),
        )
    if trees.table.leaf_weights is not None:
        total_weight = s.total_weight
        row_weights = trees.weights.row_weights
        if trees.leaf_rule.ranks is not None and row_weights is not None:
            total_weight = float(row_weights.sum())  # the structure does not know the weights
        slack = WEIGHT_SLACK * total_weight
        cause = _weighing(trees, walked) + before + adapter.causes("weights")
        found = walked.drawn_weights
        if trees.weights.recorded_by is not None:
            found = leaf_totals(s.leaves(), trees.table.n_leaves, trees.weights.recorded_by, 1)
        compare("sample weight", found, trees.table.leaf_weights, slack, trees, cause)


def _weighing(trees: BoostedFit, walked: Replay) -> str:
    """Whether the model had sample weights, as far as the weights of its leaves say."""
    assert trees.table.leaf_weights is not None
    given = walked.structure.row_weights is not None
    if (
        given
        and trees.sampler is None
        and np.allclose(trees.table.leaf_weights, walked.counts, rtol=1e-6)
    ):
        return "The model's leaves weigh as much as they have rows: it was fitted without sample_weight. Leave it out.\n"
    if not given and not _whole(trees.table.leaf_weights):
        return "The model's leaves do not weigh as much as they have rows: it was fitted with sample_weight. Pass the same.\n"
    return ""


def _whole(weights: FloatArray) -> bool:
    return bool(np.allclose(weights, np.rint(weights), rtol=1e-9, atol=0))


def check_base(adapter: Adapter, trees: BoostedFit, extent: Extent) -> None:
    """Compare the mean of the targets with the model's, where it starts from that: far from zero no leaf would show it."""
    if not trees.initial.follows_targets:
        return
    found = extent.sums / extent.weight
    slack = (MEAN_SLACK * float(np.finfo(adapter.precision).eps) + ROUNDING) * extent.largest_target
    for k in np.flatnonzero(~(np.abs(found - trees.initial.values) <= slack)):
        raise ExactnessError(
            "mean of the targets",
            found[k],
            float(trees.initial.values[k]),
            adapter.causes("values"),
        )


def check_values(adapter: Adapter, trees: BoostedFit, walked: Replay, scale: float) -> float:
    """Compare leaf values with the model's; the largest difference, relative to the largest |prediction|."""
    values = walked.values * np.repeat(walked.structure.final, trees.table.n_leaves)[:, None]
    largest = float(
        np.abs(trees.table.leaf_values[int(trees.initial.is_first_tree) :]).max(initial=0.0)
    )  # a base says nothing of the leaves
    slack = adapter.leaf_tolerance * largest + ROUNDING * scale + trees.table.value_slack
    first = slice(0, trees.table.n_leaves[0])
    weights = walked.structure.leaf_weights[first]
    shift = np.abs(weights @ (values[first] - trees.table.leaf_values[first])) / max(
        weights.sum(), 1e-300
    )
    # Compared by `check_base`; a hidden base is known from the targets alone.
    compared = trees.initial.follows_targets and not np.any(trees.table.printed_shift)
    if not compared and shift.max() > adapter.tolerance * scale:
        cause = "The targets' mean differs from that of the targets the model was fitted on.\n"
    else:
        cause = "The targets' mean agrees, so the same targets may be in another order, or single ones differ.\n"
    for k in range(values.shape[1]):
        reasons = cause + adapter.causes("values")
        compare(
            "value",
            values[:, k],
            trees.table.leaf_values[:, k],
            slack,
            trees,
            reasons,
            trees.table.printed_shift,
        )
    return float(np.abs(values - trees.table.leaf_values).max(initial=0.0)) / scale


def check_nodes(adapter: Adapter, trees: BoostedFit, walked: Replay, scale: float) -> None:
    """Compare the values of inner nodes where leaves are bent: a leaf at zero or at a bound says little of its own sum."""
    s = walked.structure
    rule = s.newton_rule
    if not isinstance(rule, NodeRule) or not rule.has_active_set:
        return
    bent = inheriting(s).newton_rule
    assert isinstance(bent, NodeRule)
    nodes = rule.nodes
    sizes = np.diff(rule.nodes.starts)
    found = (
        np.repeat(s.final, sizes)
        * bent.node_values(walked.sums[:, 0], walked.drawn_weights).bounded
    )
    slack = (
        adapter.leaf_tolerance * float(np.abs(trees.table.leaf_values).max(initial=0.0))
        + ROUNDING * scale
    )
    compare_nodes(nodes, found, slack, adapter.causes("values"))


def compare_nodes(nodes: Nodes, found: FloatArray, slack: float, causes: str) -> None:
    """Raise for the first inner node whose value ``found`` (M,) and the model's own are further apart than allowed."""
    apart = np.abs(found - nodes.values) > slack + nodes.slack
    for node in np.flatnonzero(apart & (nodes.leaf < 0)):
        tree = int(np.searchsorted(nodes.starts, node, side="right")) - 1
        what = f"value of split {node - nodes.starts[tree]}"
        cause = f"Its leaves agree, but the values that the model keeps of its splits come from other sums.\n{causes}"
        raise ExactnessError(what, float(found[node]), float(nodes.values[node]), cause, tree)


def checked_rows(n_rows: int) -> IntArray:
    """Training rows, evenly spread, whose prediction is asked of the library."""
    return np.arange(0, n_rows, -(-n_rows // CHECKED_ROWS))


def with_predictions(
    adapter: Model,
    X: Any,
    asked: IntArray,
    offsets: FloatArray | None,
    score: FloatArray,
    output: slice,
) -> FloatArray:
    """(N, K): the model's predictions: the library's own for the rows ``asked``, sums of its leaf values, ``score``, for others.

    It is ``score`` itself, written over at the rows asked.
    """
    score[asked] = adapter.predictions(take_rows(X, asked))[:, output]
    if offsets is not None:
        score[asked] += offsets[asked]
    return score


def furthest(found: FloatArray, expected: FloatArray) -> Miss:
    """Where what the linear map makes of the targets, (N, K), is furthest from the model's predictions; nan is furthest."""
    parts = [
        slice(start, start + COMPARED_ROWS) for start in range(0, max(len(found), 1), COMPARED_ROWS)
    ]
    return reduce(worse, (_furthest(found[part], expected[part], part.start) for part in parts))


def _furthest(found: FloatArray, expected: FloatArray, first: int) -> Miss:
    """The miss of some rows, the first of which has this number."""
    error = np.abs(found - expected)
    worst = np.unravel_index(int(error.argmax()), error.shape)  # nan before all others
    return Miss(
        float(error[worst]), first + int(worst[0]), float(found[worst]), float(expected[worst])
    )


def worse(one: Miss, other: Miss) -> Miss:
    """The larger miss; nan is the largest."""
    return max(one, other, key=lambda miss: np.nan_to_num(miss.error, nan=np.inf))


def check_predictions(adapter: Model, miss: Miss, allowed: float) -> None:
    """Raise where the linear map and the model's predictions are further apart than allowed."""
    if not miss.error <= allowed:
        what = f"prediction of training row {miss.row} (from 0)"
        raise ExactnessError(what, miss.found, miss.expected, adapter.causes("values"))


def check_answer(
    verification: Verification | None,
    predictions: FloatArray,
    labels: NDArray[Any],
    own: Callable[[], FloatArray],
    sizes: FloatArray | float = 1.0,
) -> FloatArray | None:
    """Compare the predictions (n, K) that weights make of the targets with the model's ``own``, and give these, on every use.

    ``sizes`` (n, 1): of sums of predictions, the numbers that errors count by.
    """
    if verification is None or not len(predictions):
        return None
    expected = own()
    miss = furthest(predictions / sizes, expected / sizes)
    scale = max(verification.scale, float(np.abs(expected / sizes).max()))
    if not miss.error <= verification.tolerance * scale + verification.rounding:
        cause = "The model may have changed since the explainer was made: make a new one."
        if not verification.n_trees:
            cause = f"{FAR_OFF}\n{cause}"
        raise ExactnessError(
            f"prediction of row {labels[miss.row]}", miss.found, miss.expected, cause
        )
    return expected


def compare(
    what: str,
    found: NDArray[Any],
    expected: NDArray[Any],
    slack: FloatArray | float,
    trees: BoostedFit,
    cause: str,
    hidden: FloatArray | float = 0.0,
) -> None:
    """Raise for the first leaf where ``found`` and ``expected`` are further apart than ``slack``.

    A refusal that explains why just these trees disagree comes first. ``hidden`` is added to both
    numbers as they are printed.
    """
    apart = np.flatnonzero(~(np.abs(found - expected) <= slack))
    if len(apart):
        _ask(trees, apart)
        first = int(apart[0])
        ends = np.cumsum(trees.table.n_leaves)
        tree = int(np.searchsorted(ends, first, side="right"))
        leaf = first - int(ends[tree] - trees.table.n_leaves[tree])
        more = float(np.broadcast_to(hidden, found.shape)[first])
        if tree < trees.initial.is_first_tree:
            raise ExactnessError(
                f"{what} of the base", float(found[first]), float(expected[first]), cause
            )
        raise ExactnessError(
            what,
            float(found[first]) + more,
            float(expected[first]) + more,
            cause,
            tree - trees.initial.is_first_tree,
            leaf,
        )


def _ask(trees: BoostedFit, apart: IntArray) -> None:
    """Raise the refusal that explains why just these leaves disagree, where the model has one."""
    if trees.explain_mismatch is not None:
        disagree = np.searchsorted(np.cumsum(trees.table.n_leaves), apart, side="right")
        error = trees.explain_mismatch(~np.isin(np.arange(len(trees.table.n_leaves)), disagree))
        if error is not None:
            raise error
