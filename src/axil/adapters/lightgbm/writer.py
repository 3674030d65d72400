"""Leaves that were fitted again, written into a LightGBM model: its text with other values, weights and counts."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from axil.adapters.lightgbm.text import TreeText, parse
from axil.structure.leaves import LeafFit


def write(model: Any, fits: list[LeafFit]) -> Any:
    """A model of the same class with these leaves; the model itself is not touched."""
    booster = getattr(model, "booster_", model)
    made = type(booster)(model_str=_text(booster, fits))
    made.params = copy.deepcopy(booster.params)
    made.best_iteration, made.best_score = booster.best_iteration, copy.deepcopy(booster.best_score)
    made.pandas_categorical = booster.pandas_categorical
    if booster is model:
        if hasattr(
            model, "classes_"
        ):  # names of classes that were given to a booster, which keeps none
            made.classes_ = model.classes_
        return made
    written = copy.copy(model)
    written._Booster = made
    return written


def _text(booster: Any, fits: list[LeafFit]) -> str:
    text: str = booster.model_to_string(num_iteration=max(int(booster.best_iteration), 0) or -1)
    forest, _, rest = text.partition("\nend of trees")
    head, *blocks = forest.split("\nTree=")
    trees, averages = parse(text).trees, "average_output" in head.splitlines()
    for fit in fits:
        for t, place in enumerate(fit.columns):
            blocks[place] = _block(blocks[place], trees[place], fit, t, averages)
    sizes = [len(f"Tree={block}\n".encode()) for block in blocks]
    head = re.sub(r"(?m)^tree_sizes=.*$", "tree_sizes=" + " ".join(map(str, sizes)), head)
    return "\nTree=".join([head, *blocks]) + "\nend of trees" + rest


def _block(block: str, tree: TreeText, fit: LeafFit, t: int, averages: bool) -> str:
    """The lines of one tree with other values."""
    n, rate = tree.n_leaves, float(fit.rates[t])
    if averages and rate:  # else a tree of no split in the first iteration, which says nothing
        rate = 1.0
    children = np.full((2 * n - 1, 2), -1)
    children[: n - 1] = tree.children if n > 1 else children[:0]
    nodes = fit.nodes(t, children, np.arange(n - 1, 2 * n - 1))
    values = rate * nodes.values[:, 0]
    begun, share = fit.begins(t), fit.share
    if averages:  # by all trees with a split, not by the first alone
        share = 1.0
        begun = None
        if n > 1:
            begun = 0 if fit.outputs is None else int(fit.outputs[t])
    if fit.estimated and begun is not None:
        values = values + share * fit.base[begun]
    splits, leaves = slice(0, n - 1), slice(n - 1, None)
    hessians = np.where(nodes.counts == 0, nodes.positive(nodes.hessians), nodes.hessians)
    counts = nodes.counts.copy()
    counts[leaves] = np.maximum(
        counts[leaves], 1
    )  # LightGBM divides by them for Shapley values; see `TreeText.leaf_counts`
    for split in range(n - 2, -1, -1):
        counts[split] = counts[children[split]].sum()
    lines = {
        "leaf_value": map(repr, values[leaves].tolist()),
        "leaf_weight": map(repr, hessians[leaves].tolist()),
        "leaf_count": map(str, counts[leaves].tolist()),
        "internal_value": map(repr, values[splits].tolist()),
        "internal_weight": map(repr, hessians[splits].tolist()),
        "internal_count": map(str, counts[splits].tolist()),
    }
    for key, numbers in lines.items():
        block = _put(block, key, numbers)
    folded = fit.estimated and begun is not None and not averages and n > 1 and fit.share == 1
    return _put(block, "shrinkage", ["1"]) if folded else block


def _put(block: str, key: str, numbers: Iterable[str]) -> str:
    """The block with these numbers under a key that it has."""
    line = f"{key}={' '.join(numbers)}"
    return re.sub(rf"(?m)^{key}=.*$", lambda _: line, block, count=1)
