"""The proof that a fitted model and its training data belong together, and the operators on what they make.

First every leaf value, computed from the residuals that the library saw, is compared with the model's own; a disagreement
shows where it arises. Then the linear map alone is run over the targets in float64 and must arrive at the predictions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from axil.adapters.base import Adapter, FittedTrees, Model, SmootherModel
from axil.engines import Engine, ForestEngine, SmootherEngine, TreeEngine
from axil.errors import ExactnessError, InputError
from axil.forest import Forest, is_forest
from axil.inputs import take_rows
from axil.memory import Budget
from axil.operators import Operators
from axil.replay import ELSEWHERE, Replay, assign_leaves, replay
from axil.sampling.recorded import RecordedBags
from axil.structure import Structure

Array = NDArray[np.float64]

CHECKED_ROWS = 1000  # training rows whose prediction is asked of the library; all others are summed from its leaves
WEIGHT_SLACK = (
    1e-7  # of a leaf's sum of weights, in some libraries in single precision, relative to the sum over all rows
)
MEAN_SLACK = 8  # roundings of the largest target that a mean, as a library keeps it, may be off by
ROUNDING = 1e-12  # of sums in float64 over any order of the rows, relative to the largest |prediction|


@dataclass(frozen=True)
class Verification:
    """What the replay of the fit found. Errors are relative to the largest |prediction|."""

    n_rows: int
    n_trees: int
    max_error: float  #: of the predictions of the training rows
    leaf_error: float  #: of the leaf values, each replayed from the model's own state before its tree
    tolerance: float  #: what max_error had to stay within
    scale: float  #: the largest |prediction|
    rounding: float = 0.0  #: what rounding targets and offsets, if they are far larger, may add to an error, absolute
    compared: list[str] = field(default_factory=list)  #: what the model records of its leaves and was found equal
    recovered: dict[str, Any] = field(
        default_factory=dict
    )  #: what the model does not state, e.g. {"rates": [[tree, rate]]}

    def __repr__(self) -> str:
        if not self.n_trees:
            return (
                f"axil.Verification: a linear smoother of {self.n_rows} training rows\n"
                f"  predictions    within {self.max_error:.1e} (allowed {self.tolerance:.0e})"
            )
        extra = "".join(f"\n  recovered      {name} ({len(found)})" for name, found in self.recovered.items())
        return (
            f"axil.Verification: {self.n_trees} trees replayed on {self.n_rows} training rows\n"
            f"  equal          {' and '.join(self.compared) or 'nothing that the model records of its leaves'}\n"
            f"  leaf values    within {self.leaf_error:.1e} of the largest prediction\n"
            f"  predictions    within {self.max_error:.1e} (allowed {self.tolerance:.0e}){extra}"
        )


def build(
    model: Model,
    X: Any,
    targets: Array,
    weights: Array | None,
    offsets: Array | None,
    bags: Array | None,
    n_threads: int,
    budget: Budget,
    check: bool = True,
) -> tuple[list[Engine], Verification | None]:
    """Read the model, replay its fit and return the engines for its outputs; raise where model and data disagree."""
    if bags is None and model.refused_draws is not None:
        raise model.refused_draws
    if model.fitted_rows is not None and model.fitted_rows != len(targets):
        _refuse_rows(model, len(targets), model.fitted_rows)
    targets = round_to(model.precision, targets)
    weights = None if weights is None else round_to(model.precision, weights)
    if hasattr(model, "smoother"):
        if offsets is not None or bags is not None:
            raise InputError(f"This {model.library} model has no trees: it takes neither init_score nor bags.")
        return _build_smoother(cast(SmootherModel, model), X, targets, weights, check)
    return _build_trees(cast(Adapter, model), X, targets, weights, offsets, bags, n_threads, budget, check)


def _build_smoother(
    model: SmootherModel, X: Any, targets: Array, weights: Array | None, check: bool
) -> tuple[list[Engine], Verification | None]:
    """Solve for the smoother again, without the targets, and compare what it makes of them with the predictions."""
    engine = SmootherEngine(model.smoother(X, weights), targets.shape[1])
    if not check:
        return [engine], None
    found = engine.fitted(targets)
    scale = float(np.abs(found).max()) or 1.0
    max_error = check_predictions(model, X, None, found, found, slice(None), model.tolerance * scale) / scale
    return [engine], Verification(len(targets), 0, max_error, 0.0, model.tolerance, scale)


def _build_trees(
    adapter: Adapter,
    X: Any,
    targets: Array,
    weights: Array | None,
    offsets: Array | None,
    bags: Array | None,
    n_threads: int,
    budget: Budget,
    check: bool,
) -> tuple[list[Engine], Verification | None]:
    """One engine for all outputs where they share trees, else one for each output."""
    offsets = None if offsets is None else round_to(adapter.offset_precision, offsets)
    fitted = adapter.trees(X, targets, weights, offsets)
    leaves = _all_leaves(adapter, X, len(targets), fitted, budget, n_threads)
    outputs = [slice(None)] if len(fitted) == 1 else [slice(k, k + 1) for k in range(len(fitted))]
    engines: list[Engine] = []
    found: list[Verification] = []
    for trees, output in zip(fitted, outputs):
        if trees.row_weights is None:
            trees = replace(trees, row_weights=weights)
        if bags is not None:
            own_bags = bags if trees.columns is None else bags[:, trees.columns]
            trees = replace(trees, sampler=RecordedBags(own_bags, len(trees.n_leaves)))
        own_leaves = leaves if trees.columns is None else _own_leaves(leaves, trees.columns, budget)
        own_offsets = None if offsets is None else offsets[:, output]
        walked = replay(adapter, trees, own_leaves, targets[:, output], own_offsets, n_threads, budget)
        engine = tree_engine(walked.structure, n_threads)
        if check:
            own_targets = targets[:, output]
            found.append(_verify(adapter, X, trees, walked, engine.fitted(own_targets), own_targets, output))
        engines.append(engine)
    return engines, _worst(found) if check else None


def tree_engine(structure: Structure, n_threads: int) -> Engine:
    """The engine for a structure: an inverted index for forests, operators for all others."""
    if is_forest(structure):
        return ForestEngine(Forest(structure))
    return TreeEngine(Operators(structure, n_threads))


def round_to(precision: type[np.floating[Any]], values: Array) -> Array:
    """The values as the library keeps them, in float64."""
    with np.errstate(over="ignore"):
        rounded = values.astype(precision).astype(np.float64)
    if not np.isfinite(rounded).all():
        raise InputError(
            f"Targets or weights up to {np.abs(values).max():.3g} overflow the library's {precision.__name__}."
        )
    return rounded


def _all_leaves(
    adapter: Adapter, X: Any, n_rows: int, fitted: list[FittedTrees], budget: Budget, n_threads: int
) -> NDArray[np.unsignedinteger[Any]]:
    """(T, N): the leaves of all trees, of whatever output."""
    n_leaves = fitted[0].n_leaves
    if fitted[0].columns is not None:
        n_leaves = np.zeros(sum(len(trees.n_leaves) for trees in fitted), dtype=np.int64)
        for trees in fitted:
            n_leaves[trees.columns] = trees.n_leaves
    return assign_leaves(adapter, X, n_rows, n_leaves, n_threads, budget)


def _own_leaves(
    leaves: NDArray[np.unsignedinteger[Any]], columns: NDArray[np.int64], budget: Budget
) -> NDArray[np.unsignedinteger[Any]]:
    """Those of one output's trees, apart."""
    own = budget.empty((len(columns), leaves.shape[1]), leaves.dtype, "The leaf numbers of one output", ELSEWHERE)
    for t, column in enumerate(columns):
        own[t] = leaves[column]
    return own


def _verify(
    adapter: Adapter, X: Any, trees: FittedTrees, walked: Replay, fitted: Array, targets: Array, output: slice
) -> Verification:
    s = walked.structure
    scale = float(np.abs(walked.score).max()) or 1.0
    check_counts(adapter, trees, walked)
    check_base(adapter, trees, s, targets)
    leaf_error = check_values(adapter, trees, walked, scale)
    largest = max(float(np.abs(part).max()) for part in (targets, s.offsets) if part is not None)
    rounding = MEAN_SLACK * float(np.finfo(adapter.precision).eps) * largest
    allowed = adapter.tolerance * scale + rounding
    max_error = check_predictions(adapter, X, s.offsets, fitted, walked.score, output, allowed) / scale
    known = {"leaf counts": trees.counts, "leaf weights": trees.weights}
    compared = [name for name, recorded in known.items() if recorded is not None]
    found = s.n_rows, s.n_trees, max_error, leaf_error, adapter.tolerance, scale, rounding
    return Verification(*found, compared, walked.recovered)


def _worst(found: list[Verification]) -> Verification:
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
    )


def _refuse_rows(model: Model, given: int, fitted: int) -> NoReturn:
    cause = f"The {model.library} model was fitted on {fitted} rows: pass exactly those."
    raise ExactnessError("number of training rows", given, fitted, cause)


def check_counts(adapter: Adapter, trees: FittedTrees, walked: Replay) -> None:
    """Compare how many rows, and how much weight, each leaf was fitted on with what the model recorded."""
    s = walked.structure
    before = after = ""
    if trees.sampler is not None:
        before = (
            f"The rows drawn for this tree could not be replayed ({trees.sampler.name}): rows are drawn by their position, "
            "so they must come in the order of the fit. "
        )
        after = " If you recorded the draws, pass them as bags=."
    if trees.counts is not None:
        n_fitted = int(trees.counts[: trees.n_leaves[0]].sum())
        n_given = int(walked.counts[: trees.n_leaves[0]].sum())
        if n_fitted != n_given and trees.sampler is None:
            _refuse_rows(adapter, n_given, n_fitted)
        _compare("row count", walked.counts, trees.counts, 0.5, trees, before + adapter.causes("counts") + after)
    if trees.weights is not None:
        slack = WEIGHT_SLACK * s.total_weight
        cause = before + adapter.causes("weights") + after
        _compare("sample weight", s.leaf_weights, trees.weights, slack, trees, cause)


def check_base(adapter: Adapter, trees: FittedTrees, structure: Structure, targets: Array) -> None:
    """Compare the mean of the targets with the model's, where it starts from that: far from zero no leaf would show it."""
    if trees.base is not None:
        return
    w = np.ones(len(targets)) if structure.row_weights is None else structure.row_weights
    found = w @ targets / w.sum()
    slack = (MEAN_SLACK * float(np.finfo(adapter.precision).eps) + ROUNDING) * np.abs(targets).max()
    for k in np.flatnonzero(~(np.abs(found - trees.base_value) <= slack)):
        raise ExactnessError("mean of the targets", found[k], float(trees.base_value[k]), adapter.causes("values"))


def check_values(adapter: Adapter, trees: FittedTrees, walked: Replay, scale: float) -> float:
    """Compare leaf values with the model's; the largest difference, relative to the largest |prediction|."""
    values = walked.values * np.repeat(walked.structure.final, trees.n_leaves)[:, None]
    slack = adapter.leaf_tolerance * float(np.abs(trees.values).max(initial=0.0)) + ROUNDING * scale
    first = slice(0, trees.n_leaves[0])
    weights = walked.structure.leaf_weights[first]
    shift = np.abs(weights @ (values[first] - trees.values[first])) / max(weights.sum(), 1e-300)
    if shift.max() > adapter.tolerance * scale:
        cause = "The targets' mean differs from that of the targets the model was fitted on. "
    else:
        cause = "The targets' mean agrees, so the same targets may be in another order, or single ones differ. "
    for k in range(values.shape[1]):
        _compare("value", values[:, k], trees.values[:, k], slack, trees, cause + adapter.causes("values"))
    return float(np.abs(values - trees.values).max(initial=0.0)) / scale


def check_predictions(
    adapter: Model, X: Any, offsets: Array | None, found: Array, score: Array, output: slice, allowed: float
) -> float:
    """Compare what the linear map makes of the targets with the model's predictions; the largest difference.

    The predictions of up to `CHECKED_ROWS` rows are the library's own; the others' are the sums of its leaf values.
    """
    expected = score.copy()
    asked = np.arange(0, len(score), -(-len(score) // CHECKED_ROWS))
    expected[asked] = adapter.predictions(take_rows(X, asked))[:, output]
    if offsets is not None:
        expected[asked] += offsets[asked]
    error = np.abs(found - expected)
    worst = np.unravel_index(int(error.argmax()), error.shape)
    if not error[worst] <= allowed:
        what = f"prediction of training row {worst[0]} (from 0)"
        raise ExactnessError(what, float(found[worst]), float(expected[worst]), adapter.causes("values"))
    return float(error[worst])


def _compare(
    what: str, found: NDArray[Any], expected: NDArray[Any], slack: float, trees: FittedTrees, cause: str
) -> None:
    apart = np.flatnonzero(~(np.abs(found - expected) <= slack))
    if len(apart):
        first = int(apart[0])
        ends = np.cumsum(trees.n_leaves)
        tree = int(np.searchsorted(ends, first, side="right"))
        leaf = first - int(ends[tree] - trees.n_leaves[tree])
        raise ExactnessError(what, float(found[first]), float(expected[first]), cause, tree, leaf)
