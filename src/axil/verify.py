"""From a fitted model and its training data to a structure, and the proof that the two belong together.

The model's own leaf values drive a replay of its fit: at each tree the residuals are those that the library saw, rounded as
it rounds, so the leaf values must come out the same to the last digits and a disagreement shows where it arises. Then the
linear map alone is run over the targets in float64 and must arrive at the model's predictions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import _core
from axil.adapters.base import Adapter, FittedTrees
from axil.errors import ExactnessError, InputError
from axil.inputs import take_rows
from axil.memory import Budget
from axil.operators import Operators
from axil.progress import track
from axil.structure import Structure, leaf_dtype

Array = NDArray[np.float64]

BLOCK_ENTRIES = 1 << 22  # leaf numbers asked of the library at a time
CHECKED_ROWS = 1000  # training rows whose prediction is asked of the library; all others are summed from its leaves
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
    recovered: dict[str, Any] = field(
        default_factory=dict
    )  #: what the model does not state: {"rates": [[tree, rate], ...]}

    def __repr__(self) -> str:
        extra = "".join(
            f"\n  recovered      {name} ({len(found)} of {self.n_trees} trees)"
            for name, found in self.recovered.items()
        )
        return (
            f"axil.Verification: {self.n_trees} trees replayed on {self.n_rows} training rows\n"
            f"  leaf counts    equal to the model's\n"
            f"  leaf values    within {self.leaf_error:.1e} of the largest prediction\n"
            f"  predictions    within {self.max_error:.1e} (allowed {self.tolerance:.0e}){extra}"
        )


def build(
    adapter: Adapter,
    X: Any,
    targets: Array,
    weights: Array | None,
    offsets: Array | None,
    n_threads: int,
    budget: Budget,
    check: bool = True,
) -> tuple[Operators, Verification | None]:
    """Read the model, replay its fit and return the operators on its structure; raise where the two disagree."""
    targets, weights = (
        round_to(adapter.precision, targets),
        None if weights is None else round_to(adapter.precision, weights),
    )
    trees = adapter.trees(targets, weights, offsets)
    leaf_bytes = len(targets) * len(trees.n_leaves) * np.dtype(leaf_dtype(int(trees.n_leaves.max()))).itemsize
    budget.require(
        leaf_bytes, "The leaf numbers of all training rows", "Raise memory_limit or explain a smaller model."
    )
    leaves = assign_leaves(adapter, X, len(targets), trees.n_leaves)
    structure = without_rates(trees, leaves, weights, offsets, n_threads)
    if check:
        check_counts(adapter, trees, structure, n_threads)
    score, values = replay(adapter, trees, structure, targets, n_threads)
    rates, recovered = recover_rates(trees, values)
    operators = Operators(replace(structure, rates=rates), n_threads)
    if not check:
        return operators, None
    scale = float(np.abs(score).max()) or 1.0
    leaf_error = check_values(adapter, trees, structure, values * rates[tree_of_leaf(trees)], scale)
    max_error = check_predictions(adapter, X, operators, targets, score, scale)
    verification = Verification(len(targets), len(rates), max_error, leaf_error, adapter.tolerance, scale, recovered)
    return operators, verification


def round_to(precision: type[np.floating[Any]], values: Array) -> Array:
    """The values as the library keeps them, in float64."""
    with np.errstate(over="ignore"):
        rounded = values.astype(precision).astype(np.float64)
    if not np.isfinite(rounded).all():
        raise InputError(
            f"Targets or weights up to {np.abs(values).max():.3g} overflow the library's {precision.__name__}."
        )
    return rounded


def assign_leaves(
    adapter: Adapter, X: Any, n_rows: int, n_leaves: NDArray[np.int64]
) -> NDArray[np.unsignedinteger[Any]]:
    """(T, N) packed leaf numbers, asked of the library block by block so that its own wide matrix never exists whole."""
    leaves = np.empty((len(n_leaves), n_rows), dtype=leaf_dtype(int(n_leaves.max())))
    step = max(1, BLOCK_ENTRIES // len(n_leaves))
    for start in track(range(0, n_rows, step), "leaves"):
        leaves[:, start : start + step] = adapter.leaves(take_rows(X, slice(start, start + step))).T
    return leaves


def tree_of_leaf(trees: FittedTrees) -> NDArray[np.int64]:
    """(L,): which tree each of the stacked leaves belongs to."""
    return np.repeat(np.arange(len(trees.n_leaves)), trees.n_leaves)


def without_rates(
    trees: FittedTrees,
    leaves: NDArray[np.unsignedinteger[Any]],
    weights: Array | None,
    offsets: Array | None,
    n_threads: int,
) -> Structure:
    """The structure as far as model and rows give it; the rates are still nan."""
    leaf_weights = leaf_totals(leaves, trees.n_leaves, weights, n_threads)
    denominator = leaf_weights + trees.l2
    return Structure(
        leaves=leaves,
        n_leaves=trees.n_leaves,
        leaf_weights=leaf_weights,
        leaf_scale=np.divide(1.0, denominator, out=np.zeros_like(denominator), where=denominator > 0),
        rates=np.full(len(trees.n_leaves), np.nan),
        base=trees.base,
        row_weights=weights,
        offsets=offsets,
        mixing=trees.mixing,
    )


def leaf_totals(
    leaves: NDArray[np.unsignedinteger[Any]], n_leaves: NDArray[np.int64], weights: Array | None, n_threads: int
) -> Array:
    """(L,): the sum of the weights of every leaf's rows, their number where there are no weights."""
    starts = np.concatenate([[0], np.cumsum(n_leaves)])
    state = np.ones((leaves.shape[1], 1)) if weights is None else weights[:, None].copy()
    sums = np.empty((starts[-1], 1))
    none, every = np.empty(0, dtype=np.int64), np.arange(len(n_leaves))
    _core.sweep(leaves, starts, state, none, sums, None, every, sums, None, n_threads)
    return sums[:, 0]


def check_counts(adapter: Adapter, trees: FittedTrees, structure: Structure, n_threads: int) -> None:
    """Compare how many rows, and how much weight, fall into each leaf with what the model recorded."""
    counts = structure.leaf_weights
    if structure.row_weights is not None:
        counts = leaf_totals(structure.leaves, trees.n_leaves, None, n_threads)
    fitted_rows = int(trees.counts[: trees.n_leaves[0]].sum())
    if fitted_rows != structure.n_rows:
        raise ExactnessError(
            "number of training rows",
            structure.n_rows,
            fitted_rows,
            f"The {adapter.library} model was fitted on {fitted_rows} rows: pass exactly those.",
        )
    _compare("row count", counts, trees.counts, 0.5, trees, adapter.causes("counts"))
    if trees.weights is not None:
        slack = 1e-7 * structure.total_weight
        _compare("sample weight", structure.leaf_weights, trees.weights, slack, trees, adapter.causes("weights"))


def replay(
    adapter: Adapter, trees: FittedTrees, structure: Structure, targets: Array, n_threads: int
) -> tuple[Array, Array]:
    """Run through the fit with the model's leaf values: its predictions (N,) and each leaf's value before the rate (L,)."""
    score = np.full(structure.n_rows, trees.base_value)
    if structure.offsets is not None:
        score += structure.offsets
    sums = np.empty(structure.total_leaves)
    s, single = structure, adapter.precision is np.float32
    _core.replay(s.leaves, s.starts, trees.values, targets, s.row_weights, single, score, sums, n_threads)
    values = np.concatenate([s.leaf_values(t, sums[s.starts[t] : s.starts[t + 1], None]) for t in range(s.n_trees)])
    return score, values[:, 0]


def recover_rates(trees: FittedTrees, values: Array) -> tuple[Array, dict[str, Any]]:
    """The rates; where the model does not state one, the least-squares ratio of its leaf values to those before the rate."""
    rates = trees.rates.copy()
    ends = np.cumsum(trees.n_leaves)
    for t in np.flatnonzero(np.isnan(rates)):
        own = slice(ends[t] - trees.n_leaves[t], ends[t])
        rates[t] = trees.values[own] @ values[own] / (values[own] @ values[own])
    unknown = np.flatnonzero(np.isnan(trees.rates))
    return rates, {"rates": [[int(t), float(rates[t])] for t in unknown]} if len(unknown) else {}


def check_values(adapter: Adapter, trees: FittedTrees, structure: Structure, values: Array, scale: float) -> float:
    """Compare leaf values with the model's; the largest difference, relative to the largest |prediction|."""
    slack = adapter.leaf_tolerance * float(np.abs(trees.values).max(initial=0.0)) + ROUNDING * scale
    first = slice(0, trees.n_leaves[0])
    totals = [float(structure.leaf_weights[first] @ v[first]) / structure.total_weight for v in (values, trees.values)]
    if abs(totals[0] - totals[1]) > adapter.tolerance * scale:
        cause = "The targets' mean differs from that of the targets the model was fitted on. "
    else:
        cause = "The targets' mean agrees, so the same targets may be in another order, or single ones differ. "
    _compare("value", values, trees.values, slack, trees, cause + adapter.causes("values"))
    return float(np.abs(values - trees.values).max(initial=0.0)) / scale


def check_predictions(
    adapter: Adapter, X: Any, operators: Operators, targets: Array, score: Array, scale: float
) -> float:
    """Compare the linear map applied to the targets with the model's predictions; the largest relative difference.

    The predictions of up to `CHECKED_ROWS` rows are the library's own; the others' are the sums of its leaf values.
    """
    s = operators.structure
    constant = (s.base or 0.0) + (np.zeros(s.n_rows) if s.offsets is None else s.offsets)
    found = operators.forward((targets - constant)[:, None])[0][:, 0] + constant
    expected = score.copy()
    asked = np.arange(0, s.n_rows, -(-s.n_rows // CHECKED_ROWS))
    expected[asked] = adapter.predictions(take_rows(X, asked)) + (0.0 if s.offsets is None else s.offsets[asked])
    error = np.abs(found - expected)
    worst = int(error.argmax())
    if not error[worst] <= adapter.tolerance * scale:
        what = f"prediction of training row {worst} (from 0)"
        raise ExactnessError(what, found[worst], expected[worst], adapter.causes("values"))
    return float(error[worst]) / scale


def _compare(
    what: str,
    found: NDArray[Any],
    expected: NDArray[Any],
    slack: float,
    trees: FittedTrees,
    cause: str,
) -> None:
    apart = np.flatnonzero(~(np.abs(found - expected) <= slack))
    if len(apart):
        first = apart[0]
        tree = int(tree_of_leaf(trees)[first])
        leaf = int(first - trees.n_leaves[:tree].sum())
        raise ExactnessError(what, float(found[first]), float(expected[first]), cause, tree, leaf)
