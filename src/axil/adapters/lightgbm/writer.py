"""Leaves that were fitted again, written into a LightGBM model.

The result is the model's text with other values, weights and counts.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable

import numpy as np

from axil.adapters.lightgbm.text import TreeText, parse
from axil.aliases import ForeignModel
from axil.structure.leaves import LeafFit


def write(model: ForeignModel, fits: list[LeafFit]) -> ForeignModel:
    """Return a model of the same class with these leaves; the model itself is not touched."""
    booster: ForeignModel = getattr(model, "booster_", model)
    refitted = type(booster)(model_str=_text(booster, fits))
    refitted.params = copy.deepcopy(booster.params)
    refitted.best_iteration = booster.best_iteration
    refitted.best_score = copy.deepcopy(booster.best_score)
    refitted.pandas_categorical = booster.pandas_categorical
    if booster is not model:
        estimator = copy.copy(model)
        estimator._Booster = refitted
        return estimator
    if hasattr(model, "classes_"):  # names that were given to a booster, which keeps none
        refitted.classes_ = model.classes_
    return refitted


def _text(booster: ForeignModel, fits: list[LeafFit]) -> str:
    """Return the text of the model with these leaves."""
    text: str = booster.model_to_string(num_iteration=max(int(booster.best_iteration), 0) or -1)
    forest, _, rest = text.partition("\nend of trees")
    head, *blocks = forest.split("\nTree=")
    trees = parse(text).trees
    averages = "average_output" in head.splitlines()
    for fit in fits:
        for t, place in enumerate(fit.columns):
            blocks[place] = _block(blocks[place], trees[place], fit, t, averages)
    sizes = [len(f"Tree={block}\n".encode()) for block in blocks]
    head = re.sub(r"(?m)^tree_sizes=.*$", "tree_sizes=" + " ".join(map(str, sizes)), head)
    return "\nTree=".join([head, *blocks]) + "\nend of trees" + rest


def _block(block: str, tree: TreeText, fit: LeafFit, t: int, averages: bool) -> str:
    """Return the lines of one tree with other values.

    Parameters
    ----------
    block : str
        The lines as they are.
    tree : TreeText
        The same lines, taken apart.
    fit : LeafFit
        The leaves that were fitted again.
    t : int
        The number of the tree in the fit.
    averages : bool
        Whether predictions are averages over trees.
    """
    n_leaves = tree.n_leaves
    n_splits = n_leaves - 1
    children = np.full((2 * n_leaves - 1, 2), -1)
    if n_splits:
        children[:n_splits] = tree.children
    nodes = fit.nodes(t, children, np.arange(n_splits, 2 * n_leaves - 1))
    rate = float(fit.rates[t])
    if averages and rate:  # a rate of 0 is that of a first tree without a split, which says nothing
        rate = 1.0
    base = _base_in_values(fit, t, n_splits > 0, averages)
    values = rate * nodes.values[:, 0] + base
    hessians = np.where(nodes.counts == 0, nodes.positive(nodes.hessians), nodes.hessians)
    counts = nodes.counts.copy()
    # LightGBM divides by the counts of leaves for Shapley values; see `TreeText.leaf_counts`.
    counts[n_splits:] = np.maximum(counts[n_splits:], 1)
    for split in reversed(range(n_splits)):
        counts[split] = counts[children[split]].sum()
    for kind, rows in (("leaf", slice(n_splits, None)), ("internal", slice(0, n_splits))):
        block = _put(block, f"{kind}_value", map(repr, values[rows].tolist()))
        block = _put(block, f"{kind}_weight", map(repr, hessians[rows].tolist()))
        block = _put(block, f"{kind}_count", map(str, counts[rows].tolist()))
    begins = fit.begins(t) is not None
    if fit.estimated and begins and not averages and n_splits and fit.share == 1:
        return _put(block, "shrinkage", ["1"])
    return block


def _base_in_values(fit: LeafFit, t: int, has_split: bool, averages: bool) -> float:
    """Return the initial prediction that LightGBM includes in the leaf values of a tree.

    The first tree includes it; in forests every tree with a split does.
    """
    if not fit.estimated:
        return 0.0
    if averages:
        if not has_split:
            return 0.0
        return float(fit.base[0 if fit.outputs is None else int(fit.outputs[t])])
    output = fit.begins(t)
    if output is None:
        return 0.0
    return float(fit.share * fit.base[output])


def _put(block: str, key: str, numbers: Iterable[str]) -> str:
    """Return the block with these numbers under a key that it has."""
    line = f"{key}={' '.join(numbers)}"
    return re.sub(rf"(?m)^{key}=.*$", lambda _: line, block, count=1)
