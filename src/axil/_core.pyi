"""The compiled kernels: pointers, sizes and loops over rows. Everything about boosting is decided in Python.

Conventions. ``leaves`` is (T, N), C-contiguous, uint8, uint16 or uint32: the leaf of each training row in each tree.
``starts`` is (T + 1,) int64: where each tree's leaves begin among all L leaves, so leaf l of tree t is entry
``starts[t] + l``. Tables are (L, S) float64, C-contiguous, one column per query. Sums are taken in float64 over fixed
chunks of rows and added in row order, so no result depends on ``n_threads``. The GIL is released; Ctrl-C is noticed.
Outputs are written in place and never converted: a wrong dtype or layout raises TypeError; wrong shapes and numbers, and
arrays that are not aligned, raise ValueError. A call that is refused changes nothing. Leaf numbers are trusted.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Leaves = NDArray[np.unsignedinteger[Any]]
_F64 = NDArray[np.float64]
_I64 = NDArray[np.int64]
_F32 = NDArray[np.float32]
_U8 = NDArray[np.uint8]

def on_poll(callable: Callable[[], object]) -> None:
    """Call a function some 20 times a second while a kernel runs, in its calling thread. If it raises, the kernel stops."""

def sweep(
    leaves: _Leaves,
    starts: _I64,
    state: _F64,
    apply: _I64,
    table: _F64,
    apply_weights: _F64 | None,
    gather: _I64,
    sums: _F64,
    gather_weights: _F64 | None,
    n_threads: int,
) -> None:
    """One pass over the rows: apply some trees to the state, then gather sums of the new state for others.

    ``state[j] += a_j * sum_{t in apply} table[starts[t] + leaf_t(j)]`` and then
    ``sums[starts[t] + l] = sum_{j in l} g_j * state[j]`` for t in ``gather`` (other entries of ``sums`` are untouched).
    ``state`` (N, S) in place; ``apply``, ``gather`` tree numbers, possibly none; a, g (N,) or None for ones.
    """

def read_out(
    leaves: _Leaves,
    starts: _I64,
    table: _F64,
    constant: _F64,
    weights: _F64 | None,
    first: int,
    out: _F64,
    n_threads: int,
) -> None:
    """``out[j - first] = w_j * (constant + sum_t table[starts[t] + leaf_t(j)])`` for rows j = first .. first + len(out) - 1.

    ``constant`` (S,), ``out`` (rows, S).
    """

def product(a: _F64, b: _F64, out: _F64, n_threads: int) -> None:
    """``out = a @ b`` for a (m, k) and b (k, S), added up in the order of k: no column depends on those beside it.

    The rows of ``a`` and of ``out`` may lie apart.
    """

def column_sums(block: _F64, values: _F64, measure: int, out: _F64, n_threads: int) -> None:
    """``out[s, m] = sum_j f(block[j, s]) values[j, m]``; f by ``measure``: 0 the number, 1 its size, 2 its square.

    ``block`` (N, S) with any strides, ``values`` (N, M). Blocks of 2048 rows are added up in row order, then the blocks.
    """

def number_keys(keys: NDArray[np.uint64], numbers: _I64) -> int:
    """Fill ``numbers`` (N,) with the numbers of the different ``keys`` (N,), in the order they are met, and count them."""

def encodings_before(
    numbers: NDArray[np.uint32], count: int, values: _U8 | _F32, scales: _F32, bins: _U8
) -> None:
    """``bins[e, j] = ((s_j + prior) / (n_j + 1) - left) / norm * n_bins``, rounded down, in float32.

    s_j is the sum of ``values`` (N,) over the rows before row j that have its number, one of ``count``, and n_j how many these
    are. Values in float32 are added in float32. ``scales`` (E, 4) has prior, left, norm and n_bins of each encoding.
    """

def exchange(partners: _I64, order: _I64) -> None:
    """Exchange ``order[i]`` with ``order[partners[i]]``, for i from 0 on."""

def moments(
    leaves: _Leaves,
    starts: _I64,
    table: _F64,
    constant: _F64,
    weights: _F64 | None,
    values: _F64,
    out: _F64,
    n_threads: int,
) -> None:
    """``out[0, s, m] = sum_j |k_js| values[j, m]`` and ``out[1, s, m] = sum_j k_js^2 values[j, m]``, k what `read_out` gives.

    ``values`` (N, M), ``out`` (2, S, M).
    """

def cooccurrence(
    leaves: _Leaves, starts: _I64, weights: _F64 | None, out: _F64, n_threads: int
) -> None:
    """``out[starts[s] + m, starts[t] + l] = sum of w_i over the rows in leaf m of tree s and leaf l of tree t``, s < t.

    ``out`` (L, L) is overwritten: zero wherever s >= t.
    """

def top(
    block: _F64,
    first: int,
    scale: _F64 | None,
    values: _F64,
    rows: _I64,
    n_threads: int,
) -> None:
    """Merge a block of rows into the running k largest |scale_j * block[j - first, s]| of every query.

    ``block`` (rows, S) holds the rows from ``first`` on; ``scale`` (N,) or None. ``values`` (S, k) holds the block's values
    (not scaled) and ``rows`` (S, k) their row numbers, sorted, largest first, equal ones by row number; free places
    have row -1 and come last.
    """

def top_rows(
    leaves: _Leaves,
    starts: _I64,
    table: _F64,
    constant: _F64,
    weights: _F64 | None,
    scale: _F64 | None,
    values: _F64,
    rows: _I64,
    n_threads: int,
) -> None:
    """`top` of what `read_out` gives for all rows, which is never written down.

    ``constant`` (S,), ``weights`` and ``scale`` (N,) or None; ``values`` and ``rows`` (S, k) as in `top`. A screen in single
    precision with an error bound leaves few values to be computed, exactly, in double precision.
    """

def matches(
    leaves: _Leaves,
    starts: _I64,
    queries: _Leaves,
    weights: _F64 | None,
    first: int,
    out: _F64,
    n_threads: int,
) -> None:
    """Fill ``out`` (rows, n) with the weights (T,) of the trees in which rows from ``first`` on share a leaf with queries (n, T).

    None for ones. Added tree by tree.
    """

def top_matches(
    leaves: _Leaves,
    starts: _I64,
    queries: _Leaves,
    weights: _F64 | None,
    values: _F64,
    rows: _I64,
    n_threads: int,
) -> None:
    """The k largest above 0 of what `matches` gives for all rows, which is never written down.

    ``values`` and ``rows`` (n, k) as in `top`, free before the call. Leaves are compared a vector register at a time, for several
    queries; rounded weights bound the sums from above, and what they let pass is added up as `matches` does.
    """

class Blocks:
    """Training rows in blocks of alike ones."""

    @property
    def nbytes(self) -> int: ...

def blocks(leaves: _Leaves, starts: _I64, places: _F32, n_threads: int) -> Blocks | None:
    """Makes blocks of the rows whose places (N, dimensions) lie close together.

    None where they turn out so mixed that nothing would be won, or where there are more than 2^24 cells.
    """

def top_blocks(
    blocks: Blocks,
    table: _F64,
    constant: _F64,
    weights: _F64 | None,
    scale: _F64 | None,
    most: int,
    values: _F64,
    rows: _I64,
    done: _U8,
    n_threads: int,
) -> None:
    """`top_rows` for the queries whose largest are found within ``most`` look-ups; ``done`` (S,) is 1 for those, else 0.

    No row of a block exceeds the sum over trees of the largest entry among the cells in the block. Blocks are opened in the
    order of their bounds. Values are the bits of `top_rows`; places of other queries stay as they are.
    """

def replay(
    leaves: _Leaves,
    starts: _I64,
    values: _F64,
    targets: _F64,
    weights: _F64 | None,
    single: bool,
    single_score: bool,
    score: _F64,
    sums: _F64,
    counts: _F64,
    n_threads: int,
) -> None:
    """Walk through the trees with the model's own leaf values and sum the residuals that each of its leaves saw.

    For t = 0 .. T - 1: ``sums[starts[t] + l] = sum_{j in l} round(w_j * round(targets_j - score_j))``, then
    ``score_j += values[starts[t] + leaf_t(j)]``; round is to float32 where ``single``, and so is the score after each tree where
    ``single_score``. ``score`` (N,) in place, ``sums`` (L,); ``counts`` (L,) how many rows each leaf has.
    """

def assign(
    values: NDArray[np.floating[Any]],
    columns: _I64,
    thresholds: _F64,
    views: _I64,
    outcomes: NDArray[np.uint8],
    nodes: NDArray[np.int32],
    starts: _I64,
    single: bool,
    strict: bool,
    zero: float,
    out: _Leaves,
    n_threads: int,
) -> bool:
    """Fill ``out`` (T, n) with the leaf of every row of ``values`` (n, features) in every tree; see `adapters.routes`.

    The code of a value x in a column is the number of the column's thresholds below x (``strict``: below or equal); node
    (view, rank, left, right) sends a row left if its code in that view is at most the rank, which is that of a threshold of the
    column, and 0 for categories. Returns whether any value in the columns used is infinite. ``values`` may have any strides; in
    ``out`` the rows of a tree lie next to each other.
    """

def feature_differences(
    queries: _F64,
    rows: _F64,
    pairs: _I64,
    columns: _I64,
    thresholds: _F64,
    views: _I64,
    outcomes: NDArray[np.uint8],
    nodes: NDArray[np.int32],
    starts: _I64,
    single: bool,
    strict: bool,
    zero: float,
    groups: NDArray[np.int32],
    leaf_values: _F64,
    out: _F64,
    n_threads: int,
) -> None:
    """Add to ``out`` (P, G, K) what each group of features puts into the difference of two predictions.

    ``pairs`` (P, 2) names a row of ``queries`` (n, features) and one of ``rows`` (m, features),
    which may have any strides. The trees are those of `assign`, with ``leaf_values`` (L, K) tree
    after tree. ``groups`` (features,) has the group of each feature. With v(S) the sum of the leaf
    values of a row whose features of the groups S are those of ``queries``, and all others those of
    ``rows``, ``out[p]`` gains the Shapley values of v. They sum to the difference of the two sums of
    leaf values.
    """

def leaf_rows(
    cells: _Leaves,
    starts: _I64,
    draws: _F64,
    weights: _F64 | None,
    factors: _F64,
    ends: _I64,
    data: _F64,
    rows: NDArray[np.int32],
    n_threads: int,
) -> None:
    """Sort the rows of every tree by leaf: entry ``weights[j] * draws[level] * factors[starts[t] + leaf]``, zeros left out.

    ``cells`` (T, N) has ``level * n_leaves[t] + leaf``; ``draws`` is (D, 1), or (D, L) by leaf. ``ends`` (L + 1,) says where the
    entries of each leaf begin and end in ``data`` and ``rows``; where these are empty, it is filled with 0 and their numbers.
    """

def bootstrap(seed: int, drawn: int, times: _I64) -> None:
    """Fill ``times`` (N,) with how often each of N rows is in ``RandomState(seed).randint(0, N, drawn)``."""

def drawn_sums(leaves: _Leaves, draws: _F64, values: _F64, sums: _F64, counts: _I64) -> None:
    """Fill ``sums`` (L, S) and ``counts`` (L,) for the leaves (N,) of one tree, row after row.

    ``sums[l] = sum of draws[j] * values[j]`` over the rows j in leaf l, with ``values`` (N, S); ``counts`` are of the rows whose
    draw is above 0.
    """

def ranges(leaves: _Leaves, values: _F64, low: _F64, high: _F64) -> None:
    """Fill ``low`` and ``high`` (L, S) with the range of the values (N, S), nan left out, of the rows in each leaf of one tree.

    nan where there is no value.
    """

class Ways:
    """Trees whose nodes rows follow one by one."""

    def __len__(self) -> int: ...
    def add(
        self,
        left: _I64,
        right: _I64,
        features: _I64,
        thresholds: _F64,
        missing_left: _U8,
    ) -> None:
        """Add a tree, by its nodes (n,), with any strides: -1 for a child marks a leaf, others come after their parents.

        Leaves are numbered in the order of the nodes. Left is up to a threshold, for values in single precision.
        """

def descend(ways: Ways, values: NDArray[np.float32], out: _Leaves, n_threads: int) -> None:
    """Fill ``out`` (T, n) with the leaf of every row of ``values`` (n, features) in every tree; see `assign`.

    ``values`` may have any strides.
    """

def ordered_read_out(
    values: _F64,
    rows: NDArray[np.uint16],
    ends: _I64,
    block_rows: int,
    starts: _I64,
    cells: _I64,
    coefficients: _F64 | None,
    out: _F64,
    n_threads: int,
) -> None:
    """``out[q, j] = sum of coefficients[i] * (the entries of row j in cells[i])``, ``starts[q] <= i < starts[q + 1]``.

    Entries ``values`` and ``rows`` (E,) come in blocks of ``block_rows`` rows, at most 65,536. The entries of cell c in
    block b are ``ends[b, c] .. ends[b, c + 1] - 1``, ``ends`` (blocks, C + 1). Rows count from the first of their block,
    and are trusted. ``coefficients`` None for ones; ``out`` (n, rows). Added in the order of ``cells``.
    """

def scaled_read_out(
    leaves: _Leaves, starts: _I64, table: _F64, factors: _F64, first: int, out: _F64, n_threads: int
) -> None:
    """``out[j - first] = sum_t factors[t, j - first] * table[starts[t] + leaf_t(j)]``.

    ``factors`` (T, rows), ``out`` (rows, S).
    """

def residual_factors(
    leaves: _Leaves,
    starts: _I64,
    steps: _F64,
    levels: _F64,
    draws: _F64,
    start: _F64,
    first: int,
    out: _F64,
    n_threads: int,
) -> None:
    """Walk through the trees and note how far each row's residual stands from its leaf's level.

    For t = 0 .. T - 1, with c = starts[t] + leaf_t(j) and r_j at first start[j - first]:
    ``out[t, j - first] = draws[c] * (r_j - levels[c])``, then ``r_j -= steps[c]``.
    Tables (L,), ``start`` (rows,), ``out`` (T, rows).
    """

def gradient_factors(
    leaves: _Leaves,
    starts: _I64,
    rounds: _I64,
    terms: _I64,
    scales: _F64,
    moves: _I64,
    steps: _F64,
    draws: NDArray[np.uint8] | None,
    link: int,
    product: bool,
    intercepts: _F64,
    slopes: _F64,
    state: _F64,
    first: int,
    out: _F64,
    n_threads: int,
) -> None:
    """Walk through the rounds of a fit and note what each row's own gradient puts into each place.

    Round r has the terms ``rounds[r, 0] .. rounds[r + 1, 0] - 1``, each (tree, output k, place), and the moves
    ``rounds[r, 1] .. rounds[r + 1, 1] - 1``, each (tree, output k). With s = state[:, j - first] and l = leaf_tree(j):
    ``out[place, j - first] += scale[l] * (intercepts[k] + slopes[k] * link(s)[k]) * draws[tree, j]`` for its terms, then
    ``s[k] *= step[l]`` (``product``; else ``+=``) for its moves. ``scales`` and ``steps`` hold the tables of all terms and of all
    moves one after the other, each as long as its tree has leaves. link 0 is s, 1 is 1 / (1 + s), 2 is s / sum(s).
    ``intercepts``, ``slopes`` and ``state`` (K, rows), the last in place; ``out`` (places, rows) starts from 0.
    """

def gradient_sums(
    leaves: _Leaves,
    starts: _I64,
    rounds: _I64,
    terms: _I64,
    scales: _F64,
    moves: _I64,
    steps: _F64,
    draws: NDArray[np.uint8] | None,
    link: int,
    product: bool,
    intercepts: _F64,
    slopes: _F64,
    state: _F64,
    first: int,
    sums: _F64,
    n_threads: int,
) -> None:
    """Add what rows put into the leaves of each term, see `gradient_factors`, and its absolute values, to ``sums``.

    ``sums`` has two columns and the order of ``scales``; places are of no account.
    """

def refit_rounds(
    leaves: _Leaves,
    starts: _I64,
    rounds: _I64,
    moves: _I64,
    steps: _F64,
    terms: _I64,
    link: int,
    curvature: float,
    intercepts: _F64,
    slopes: _F64,
    weights: _F64,
    draws: NDArray[np.uint8] | None,
    state: _F64,
    sums: _F64,
    n_threads: int,
) -> None:
    """In every round, move the rows of C fits by the trees before it, then sum their gradients over the leaves of its own.

    Round r has the moves ``rounds[r, 0] .. rounds[r + 1, 0] - 1`` and the terms ``rounds[r, 1] .. rounds[r + 1, 1] - 1``.
    With l = leaf_tree(j): ``state[c, k, j] *= steps[c][l]`` for every move (tree, output k); then for every term, of a tree and
    an output k likewise, with p = link(state[c, :, j])_k and d = draws[tree, j],
    ``sums[c, l] += weights[c, j] d (intercepts[k, j] + slopes[k, j] p, curvature p (1 - p))``; ``curvature`` 0: 1 in its place.
    ``steps`` (C, tables of all moves), ``sums`` (C, leaves of all terms, 2), which is overwritten, ``state`` (C, K, N) in place,
    ``intercepts`` and ``slopes`` (K, N), ``weights`` (C, N). link 1 is 1 / (1 + s), 2 is s / sum(s).
    """

def factor_sums(
    leaves: _Leaves,
    starts: _I64,
    trees: _I64,
    factors: _F64,
    codes: _I64,
    first: int,
    sums: _F64,
    n_threads: int,
) -> None:
    """``sums[c, g] += factors[i, j - first]`` for the rows j from ``first`` on in cell c of ``trees[i]`` whose code is g.

    ``factors`` (trees, rows), ``codes`` (rows,), ``sums`` (cells of these trees, groups), in the order of the rows.
    """

def pair_sums(
    leaves: _Leaves,
    starts: _I64,
    table: _F64,
    factors: _F64 | None,
    first: int,
    out: _F64,
    n_threads: int,
) -> None:
    """``out[j - first] = sum_{s <= t} factors[s, j - first] * table[starts[s] + leaf_s(j), starts[t] + leaf_t(j)]``.

    ``table`` (L, L), ``factors`` (T, rows) or None for ones, ``out`` (rows,). Cost T^2 / 2 look-ups a row.
    """

def deletions(
    leaves: _Leaves,
    starts: _I64,
    levels: int,
    table: _F64,
    rules: _F64,
    shifts: _F64 | None,
    draws: _F64,
    weights: _F64 | None,
    values: _F64,
    slopes: _F64,
    steps: _F64,
    drifts: _F64,
    start: _F64,
    base: _F64,
    changed: _F64,
    first: int,
    residuals: _F64 | None,
    added: _F64 | None,
    n_threads: int,
) -> None:
    """Walk rows through the trees of the fit without each of them; see `weights.deletion`.

    Here the numbers in ``leaves`` are cells: ``levels`` for every leaf, those of level i being ``i * n_leaves + leaf``. For each
    output k and row j, with l_t its leaf among all leaves, r at first ``start[k, j]`` and (kept, drawn, weight, stiffer,
    constant) its factors in the leaf, for t = 0 .. T - 1:
    ``seen = values[l_t, k] + changed[k, j] * slopes[l_t] + sum_{s < t} table[l_t, l_s] * added[k, s, j]``,
    ``q_t = kept * (seen - drawn * r)``, ``added[k, t, j] = -(weight * r + stiffer * q_t + constant)``,
    ``r -= sum_{s <= t} steps[t, s] * q_s + drifts[t] * base[k, j]``.
    ``residuals[k, t, j]`` is r before tree t, for t = T after all. All are for the rows from ``first`` on.
    The factors are ``a' / a``, ``a w``, ``w``, ``1 / a' - 1 / a``, and ``shift / a`` where a' is 0, with
    ``w = weights[j] * draws[level]`` and a' the scale of a leaf without that: ``rules`` (L, 5) has its weight W, the weight up to
    which none is left, scale a, l2 and steps of Newton. With ``shifts`` (L,) a' is 0 where no weight is left; a leaf of scale
    0 is constant.
    ``table`` (L, L), whose rows may lie apart, ``values`` (L, K), ``slopes`` (L,) by leaf; ``draws`` (levels,), ``weights``
    (rows,), None for ones; ``steps`` (T, T), ``drifts`` (T,); ``start``, ``base``, ``changed`` (K, rows);
    ``residuals`` (K, T + 1, rows), ``added`` (K, T, rows), either None where not wanted. Cost T^2 / 2 look-ups a row.
    """

def instruction_set() -> str:
    """Which clone of the kernels this machine runs: "x86-64-v4", "x86-64-v3" or "baseline"."""
