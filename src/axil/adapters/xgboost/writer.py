"""Leaves that were fitted again, written into an XGBoost model: its JSON document with other values and hessians."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.xgboost.document import Tree, parse
from axil.adapters.xgboost.percentile import PERCENTILES
from axil.arrays import FloatArray
from axil.structure.leaves import LeafFit


def write(model: Any, fits: list[LeafFit]) -> Any:
    """A model of the same class with these leaves; the model itself is not touched."""
    estimator = hasattr(model, "get_booster")
    booster = model.get_booster() if estimator else model
    document = json.loads(bytes(booster.save_raw("json")).decode("utf-8", "surrogateescape"))
    found = parse(json.dumps(document).encode("utf-8", "surrogateescape"))
    assert found is not None  # it has trees
    learner = document["learner"]
    booster_part = learner["gradient_booster"]
    trees = booster_part.get("gbtree", booster_part)["model"]["trees"]
    drop = np.ones(len(trees)) if found.weight_drop is None else found.weight_drop
    # Leaves of percentiles are told from steps by steps that differ from them: those of the fit stay.
    is_ranked = str(learner["objective"]["name"]) in PERCENTILES and not found.is_stepped
    fits_of_tree: dict[int, list[tuple[LeafFit, int]]] = {}
    for fit in fits:  # one for each output, where these share trees and leaf values are bent
        for t, place in enumerate(fit.columns.tolist()):
            fits_of_tree.setdefault(place, []).append((fit, t))
    for place, tree_fits in fits_of_tree.items():
        _put(trees[place], found.trees[place], tree_fits, float(drop[place]), is_ranked)
    config = json.loads(booster.save_config())
    if any(fit.estimated for fit in fits):
        scores = str(learner["objective"]["name"]).startswith(
            "multi:"
        )  # else base_score is kept as a mean
        base = np.concatenate(
            [fit.base if scores or fit.means is None else fit.means for fit in fits]
        )
        for part in (learner, config["learner"]):
            part["learner_model_param"]["base_score"] = _as_before(
                part["learner_model_param"]["base_score"], base
            )
    made = type(booster)()
    made.load_model(bytearray(json.dumps(document).encode("utf-8", "surrogateescape")))
    made.load_config(json.dumps(config))
    if not estimator:
        return made
    written = copy.copy(model)
    written._Booster = made
    return written


def _as_before(written: str, base: Any) -> str:
    """Return the base as the document writes it: one number, or from 3.1 on a list.

    Numbers are written as XGBoost writes them, "-7.1401213E8" say, with as few digits as single precision
    needs: XGBoost 2 takes 0.5 for numbers that it cannot read.
    """
    numbers = [_as_text(np.float32(number)) for number in base]
    return f"[{','.join(numbers)}]" if written.strip().startswith("[") else numbers[0]


def _as_text(number: np.float32) -> str:
    """Return the shortest decimal number that single precision reads back, in XGBoost's notation."""
    text = np.format_float_scientific(number, unique=True, trim="-", exp_digits=1)
    return text.replace("e+", "E").replace("e", "E")


def _put(
    document: dict[str, Any],
    tree: Tree,
    tree_fits: list[tuple[LeafFit, int]],
    drop: float,
    is_ranked: bool,
) -> None:
    """Write other values for one tree, from its number in each fit that has it; nodes that were pruned away stay as they are."""
    splits, leaves = tree.splits, tree.leaves
    n = len(splits)
    children = np.full((2 * n + 1, 2), -1)
    below = tree.children
    children[:n] = np.where(below < 0, n + ~below, below)
    nodes = [fit.nodes(t, children, np.arange(n, 2 * n + 1)) for fit, t in tree_fits]
    node_values = np.concatenate([own.values for own in nodes], axis=1)
    rates = [np.full(own.values.shape[1], fit.rates[t]) for own, (fit, t) in zip(nodes, tree_fits)]
    places = np.concatenate([splits, leaves])
    width, values = tree.n_outputs, np.concatenate(rates) / drop * node_values[n:]
    weights = tree.base_weights.copy()
    if width == node_values.shape[1] and not is_ranked:
        weights[places] = node_values
        document["base_weights"] = _single(weights)
    if "sum_hessian" in document:
        hessians = np.array(document["sum_hessian"], dtype=np.float64)
        hessians[places] = nodes[0].positive(nodes[0].hessians * width)
        document["sum_hessian"] = _single(hessians)
    if "loss_changes" in document and not is_ranked:
        gains = np.array(document["loss_changes"], dtype=np.float64)
        gains[splits] = _gains(np.sum([own.gains for own in nodes], axis=0), children)
        document["loss_changes"] = _single(gains)
    if width == 1:
        conditions = np.array(document["split_conditions"], dtype=np.float64)
        conditions[leaves] = values[:, 0]
        document["split_conditions"] = _single(conditions)
    elif "leaf_weights" in document:  # from 3.2 on, in an order that right_children of leaves gives
        vectors = np.array(document["leaf_weights"], dtype=np.float64).reshape(-1, width)
        vectors[tree.integers("right_children")[leaves]] = values
        document["leaf_weights"] = _single(vectors)
    else:
        weights[leaves] = values
        document["base_weights"] = _single(weights)


def _gains(node_gains: FloatArray, children: NDArray[np.integer[Any]]) -> FloatArray:
    """Return what each split gains: the gains of its children less its own."""
    below = children[children[:, 0] >= 0]
    return np.asarray(node_gains[below].sum(axis=1) - node_gains[: len(below)])


def _single(values: Any) -> list[float]:
    """Numbers that single precision holds, so that nothing is lost on the way through text."""
    found: list[float] = np.asarray(values, dtype=np.float32).astype(np.float64).ravel().tolist()
    return found
