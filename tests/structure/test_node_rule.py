"""Values of nodes and their affine maps, against values computed node after node and against small changes."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from axil.structure import NodeRule, Nodes
from tests.reference import bent_values

SETTINGS = {
    "nothing": {},
    "l1": {"l1": 2.0},
    "step": {"max_step": 0.4},
    "both": {"l1": 1.0, "max_step": 0.5},
    "smooth": {"smooth": True},
    "monotone": {"monotone": True},
    "monotone l1": {"monotone": True, "l1": 1.0},
    "rivals": {"rivals": True},
    "rivals l1 step": {"rivals": True, "l1": 1.0, "max_step": 0.5},
    "all": {"monotone": True, "smooth": True, "l1": 1.0, "max_step": 0.5},
}


def random_nodes(rng, n_trees, monotone=False, smooth=False):
    """Trees of 1 to 12 leaves, grown at random leaves, nodes numbered as they come."""
    starts, children, leaf, n_leaves = [0], [], [], []
    for t in range(n_trees):
        own, ends = [[-1, -1]], [0]
        for _ in range(0 if t == 2 else rng.integers(1, 12)):
            node = ends.pop(rng.integers(len(ends)))
            own[node] = [len(own), len(own) + 1]
            ends += own[node]
            own += [[-1, -1], [-1, -1]]
        first = sum(n_leaves)
        numbers = np.full(len(own), -1)
        numbers[ends] = first + rng.permutation(len(ends))
        children += [[-1, -1] if c[0] < 0 else [starts[-1] + c[0], starts[-1] + c[1]] for c in own]
        leaf += numbers.tolist()
        starts.append(starts[-1] + len(own))
        n_leaves.append(len(ends))
    m = starts[-1]
    nodes = Nodes(
        np.array(starts),
        np.array(children),
        np.array(leaf),
        np.full(m, 0.5),
        np.full(m, np.nan),
        signs=rng.integers(-1, 2, m).astype(np.int8) if monotone else None,
        own=rng.uniform(0.3, 1.0, m) if smooth else None,
    )
    nodes.check(np.array(n_leaves))
    return nodes, np.array(n_leaves)


def random_rivals(rng, nodes):
    """For each node a few that were made before it, as limits from below or from above but never both: they might cross."""
    found = []
    for first, last in pairwise(nodes.starts):
        for node in range(first + 1, last):
            earlier = [o for o in range(first + 1, last) if nodes.parents[o] < nodes.parents[node]]
            side = rng.integers(2)
            found += [(node, side, o) for o in rng.permutation(earlier)[: rng.integers(4)]]
    return np.array(found, dtype=np.int64).reshape(-1, 3)


def example(seed, l1=0.0, max_step=np.inf, monotone=False, smooth=False, rivals=False):
    rng = np.random.default_rng(seed)
    nodes, n_leaves = random_nodes(rng, 6, monotone, smooth)
    if rivals:
        nodes = replace(nodes, rivals=random_rivals(rng, nodes))
        nodes.check(n_leaves)
    L = int(n_leaves.sum())
    rule = NodeRule(np.full(L, 0.5), np.ones(L), l1=l1, max_step=max_step, nodes=nodes)
    return rule, n_leaves, rng.normal(0, 3, L), rng.uniform(1, 9, L)


def affine(pattern, n_leaves, sums):
    """What the pattern makes of sums."""
    ends = np.cumsum(n_leaves)
    values = pattern.scale * sums
    for t, matrix in enumerate(pattern.mixing or ()):
        if matrix is not None:
            own = slice(ends[t] - n_leaves[t], ends[t])
            values[own] = matrix @ sums[own]
    return values if pattern.shift is None else values + pattern.shift


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", SETTINGS)
def test_values_and_pattern_against_a_walk_from_the_root(name, seed):
    rule, n_leaves, sums, weights = example(seed, **SETTINGS[name])
    trees = [
        bent_values(rule.l2, rule.l1, rule.max_step, rule.nodes, t, sums, weights)
        for t in range(len(n_leaves))
    ]
    expected = np.concatenate([values for values, _ in trees])
    np.testing.assert_allclose(rule.leaf_values(sums, weights), expected, rtol=1e-13, atol=1e-14)
    found = rule.node_values(sums, weights).bounded
    for _, inner in trees:
        np.testing.assert_allclose(found[list(inner)], list(inner.values()), rtol=1e-13, atol=1e-14)
    pattern = rule.linearise(sums, weights)
    np.testing.assert_allclose(affine(pattern, n_leaves, sums), expected, rtol=1e-12, atol=1e-13)
    moved = sums + 1e-9 * np.random.default_rng(seed).normal(
        size=len(sums)
    )  # too little to change a pattern
    change = rule.leaf_values(moved, weights) - rule.leaf_values(sums, weights)
    np.testing.assert_allclose(affine(pattern, n_leaves, moved) - expected, change, atol=1e-14)
    assert sum(pattern.counts.values()) <= len(sums)
    assert (name in ("nothing", "smooth")) == (sum(pattern.counts.values()) == 0)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", [name for name in SETTINGS if name not in ("nothing", "smooth")])
def test_the_nearest_change_of_a_pattern_is_where_it_says(name, seed):
    rule, n_leaves, sums, weights = example(seed, **SETTINGS[name])
    pattern = rule.linearise(sums, weights)
    seeds, distances = rule.nearest_changes(sums, weights, 10**6)
    assert len(distances)
    assert (distances >= 0).all()
    sizes = np.linalg.norm(seeds, axis=0)
    reached = np.divide(
        distances, sizes, out=np.full_like(sizes, np.inf), where=sizes > 1e-12
    )  # not what no sum moves
    first = np.argmin(reached)  # the way to it crosses no other change
    row, distance = seeds[:, first], distances[first]
    direction = row / (row @ row)  # changes the map at the rate of one
    for sign in (1.0, -1.0):  # one of both ways leads to the change
        before, beyond = (sums + sign * direction * distance * factor for factor in (0.999, 1.001))
        held = [
            np.abs(affine(pattern, n_leaves, moved) - rule.leaf_values(moved, weights)).max()
            for moved in (before, beyond)
        ]
        if held[1] > 1e-9 * distance:
            assert held[0] <= 1e-12
            return
    raise AssertionError("the pattern is the same beyond the distance")


@pytest.mark.parametrize(
    "wrong", ["child of two", "child before parent", "leaf twice", "foreign leaf", "starts", "type"]
)
def test_nodes_that_form_no_trees_are_refused(wrong):
    nodes, n_leaves = random_nodes(np.random.default_rng(0), 4)
    parts = {
        name: np.array(getattr(nodes, name))
        for name in ("starts", "children", "leaf", "l2", "values")
    }
    splits, ends = np.flatnonzero(nodes.leaf < 0), np.flatnonzero(nodes.leaf >= 0)
    if wrong == "child of two":
        parts["children"][splits[1], 0] = parts["children"][splits[0], 0]
    elif wrong == "child before parent":
        parts["children"][splits[1], 0] = 0
    elif wrong == "leaf twice":
        parts["leaf"][ends[0]] = parts["leaf"][ends[1]]
    elif wrong == "foreign leaf":
        parts["leaf"][ends[0]], parts["leaf"][ends[-1]] = (
            parts["leaf"][ends[-1]],
            parts["leaf"][ends[0]],
        )
    elif wrong == "starts":
        parts["starts"][1] += 1
    else:
        parts["leaf"] = parts["leaf"].astype(float)
    with pytest.raises(ValueError, match=r"node|leaf"):
        Nodes(**parts).check(n_leaves)


@pytest.mark.parametrize("row", [(1, 0, 10**6), (1, 2, 1), (-1, 0, 1), (1, 0, 2), (30, 0, 1)])
def test_rivals_that_are_not_made_before_are_refused(row):
    nodes, n_leaves = random_nodes(np.random.default_rng(0), 4)
    assert nodes.starts[1] <= 30 < nodes.starts[-1]  # of another tree than node 1
    for rivals in (np.array([row]), np.array([row], dtype=float), np.array([row[:2]])):
        with pytest.raises(ValueError, match="rival"):
            replace(nodes, rivals=rivals).check(n_leaves)
