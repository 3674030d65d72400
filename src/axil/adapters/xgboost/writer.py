"""Leaves that were fitted again, written into an XGBoost model.

The result is its JSON document with other values and hessians.
"""

from __future__ import annotations

import copy
import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from axil.adapters.xgboost.document import ModelDocument, Tree, parse
from axil.adapters.xgboost.percentile import PERCENTILES
from axil.aliases import ForeignModel
from axil.arrays import FloatArray
from axil.structure.leaves import LeafFit, NodeFit


def write(model: ForeignModel, fits: list[LeafFit]) -> ForeignModel:
    """Return a model of the same class with these leaves; the model itself is not touched."""
    is_estimator = hasattr(model, "get_booster")
    if is_estimator:
        booster = model.get_booster()
    else:
        booster = model
    document = json.loads(bytes(booster.save_raw("json")).decode("utf-8", "surrogateescape"))
    config = json.loads(booster.save_config())
    _write_trees(document, fits)
    if any(fit.estimated for fit in fits):
        base_score = _base_score(document["learner"], fits)
        for learner in (document["learner"], config["learner"]):
            parameters = learner["learner_model_param"]
            parameters["base_score"] = _spelled_as(parameters["base_score"], base_score)
    refitted = type(booster)()
    refitted.load_model(bytearray(_encoded(document)))
    refitted.load_config(json.dumps(config))
    if not is_estimator:
        return refitted
    estimator = copy.copy(model)
    estimator._Booster = refitted
    return estimator


def _encoded(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode("utf-8", "surrogateescape")


def _base_score(learner: dict[str, Any], fits: list[LeafFit]) -> FloatArray:
    """Return base_score, (K,): a score for several classes, else a mean."""
    keeps_scores = str(learner["objective"]["name"]).startswith("multi:")
    bases = [fit.base if keeps_scores or fit.means is None else fit.means for fit in fits]
    return np.concatenate(bases)


def _spelled_as(written: str, base_score: FloatArray) -> str:
    """Return the base score as the document writes it: one number, or from 3.1 on a list.

    Numbers are written as XGBoost writes them, "-7.1401213E8" say, with as few digits as single
    precision needs: XGBoost 2 takes 0.5 for numbers that it cannot read.
    """
    numbers = [_as_text(np.float32(number)) for number in base_score]
    if written.strip().startswith("["):
        return f"[{','.join(numbers)}]"
    return numbers[0]


def _as_text(number: np.float32) -> str:
    """Return the shortest decimal that single precision reads back, in XGBoost's notation."""
    text = np.format_float_scientific(number, unique=True, trim="-", exp_digits=1)
    return text.replace("e+", "E").replace("e", "E")


def _write_trees(document: dict[str, Any], fits: list[LeafFit]) -> None:
    """Write the leaves of all fits into the trees of the document."""
    model = parse(_encoded(document))
    assert model is not None  # it has trees
    learner = document["learner"]
    booster = learner["gradient_booster"]
    trees = booster.get("gbtree", booster)["model"]["trees"]
    keeps_steps = _keeps_steps(str(learner["objective"]["name"]), model)
    # There is one fit for each output, where these share trees and leaf values are bent.
    fits_of_tree: defaultdict[int, list[tuple[LeafFit, int]]] = defaultdict(list)
    for fit in fits:
        for t, place in enumerate(fit.columns.tolist()):
            fits_of_tree[place].append((fit, t))
    for place, tree_fits in fits_of_tree.items():
        if model.weight_drop is None:
            drop = 1.0
        else:
            drop = float(model.weight_drop[place])
        _write_tree(trees[place], model.trees[place], tree_fits, drop, keeps_steps)


def _keeps_steps(objective: str, model: ModelDocument) -> bool:
    """Return whether the document stores Newton steps beside leaf values that are percentiles.

    Percentiles are told from steps by steps that differ from them: those of the fit stay.
    """
    return objective in PERCENTILES and not model.is_stepped


def _write_tree(
    fields: dict[str, Any],
    tree: Tree,
    tree_fits: Sequence[tuple[LeafFit, int]],
    drop: float,
    keeps_steps: bool,
) -> None:
    """Write other values into the fields of one tree, except for pruned nodes.

    Parameters
    ----------
    fields : dict
        The tree in the document.
    tree : Tree
        The same tree, taken apart.
    tree_fits : sequence of (LeafFit, int)
        The fits that have the tree, and its number in each.
    drop : float
        DART's factor of the tree.
    keeps_steps : bool
        Whether base_weights and gains stay those of the fit.
    """
    n_splits = len(tree.splits)
    nodes = np.concatenate([tree.splits, tree.leaves])
    children = np.full((len(nodes), 2), -1)
    children[:n_splits] = np.where(tree.children < 0, n_splits + ~tree.children, tree.children)
    leaf_nodes = np.arange(n_splits, len(nodes))
    node_fits = [fit.nodes(t, children, leaf_nodes) for fit, t in tree_fits]
    node_values = np.concatenate([node_fit.values for node_fit in node_fits], axis=1)
    rates = np.concatenate(
        [
            np.full(node_fit.values.shape[1], fit.rates[t])
            for node_fit, (fit, t) in zip(node_fits, tree_fits)
        ]
    )
    base_weights = tree.base_weights.copy()
    if tree.n_outputs == node_values.shape[1] and not keeps_steps:
        base_weights[nodes] = node_values
        fields["base_weights"] = _singles(base_weights)
    if "sum_hessian" in fields:
        hessians = node_fits[0].positive(node_fits[0].hessians * tree.n_outputs)
        _overwrite(fields, "sum_hessian", nodes, hessians)
    if "loss_changes" in fields and not keeps_steps:
        _overwrite(fields, "loss_changes", tree.splits, _split_gains(node_fits, children))
    _write_leaf_values(fields, tree, rates / drop * node_values[n_splits:], base_weights)


def _write_leaf_values(
    fields: dict[str, Any], tree: Tree, values: FloatArray, base_weights: FloatArray
) -> None:
    """Write leaf values, (L, K), into the fields of this version of XGBoost."""
    if tree.n_outputs == 1:
        _overwrite(fields, "split_conditions", tree.leaves, values[:, 0])
    elif "leaf_weights" in fields:  # from 3.2 on, in an order that right_children of leaves gives
        vectors = np.array(fields["leaf_weights"], dtype=np.float64).reshape(-1, tree.n_outputs)
        vectors[tree.integers("right_children")[tree.leaves]] = values
        fields["leaf_weights"] = _singles(vectors)
    else:
        base_weights[tree.leaves] = values
        fields["base_weights"] = _singles(base_weights)


def _split_gains(node_fits: Sequence[NodeFit], children: NDArray[np.int64]) -> FloatArray:
    """Return the gain of each split, (S,): the gains of its children less its own."""
    gains = np.sum([node_fit.gains for node_fit in node_fits], axis=0)
    children_of_splits = children[children[:, 0] >= 0]
    return np.asarray(gains[children_of_splits].sum(axis=1) - gains[: len(children_of_splits)])


def _overwrite(
    fields: dict[str, Any], name: str, nodes: NDArray[np.int64], values: FloatArray
) -> None:
    """Replace the numbers of some nodes in a field with one number per node."""
    numbers = np.array(fields[name], dtype=np.float64)
    numbers[nodes] = values
    fields[name] = _singles(numbers)


def _singles(values: ArrayLike) -> list[float]:
    """Return numbers in single precision, which survive the way through text."""
    singles = np.asarray(values, dtype=np.float32).astype(np.float64)
    numbers: list[float] = singles.ravel().tolist()
    return numbers
