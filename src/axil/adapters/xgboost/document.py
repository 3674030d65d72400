"""XGBoost's model document taken apart: trees, base and settings, as written and without their meaning.

``save_raw("json")`` has the trees: children, ``split_conditions`` (at leaves: the leaf's value, rate included),
``sum_hessian`` and ``base_weights``; nodes that were pruned away stay in the arrays. ``save_config()`` has the settings,
as text in which float32 numbers keep all their digits; a model that was loaded from a file has defaults there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import BoolArray, FloatArray
from axil.errors import InputError
from axil.structure.leaves import NEGLIGIBLE

# The fields, besides the leaf values, that decide leaf membership.
_SIDES = ("left_children", "right_children")
_STRUCTURE = (*_SIDES, "split_indices", "split_conditions", "default_left", "split_type")
_DECISIVE = (
    *_STRUCTURE,
    "categories",
    "categories_nodes",
    "categories_sizes",
    "sum_hessian",
    "leaf_weights",
)


_STEP_ROUNDING = 2.0**-21  # of values that are steps times a rate: both are rounded to float32


@dataclass(frozen=True)
class Tree:
    """One tree with K outputs; its L leaves are numbered in the order of their nodes."""

    fields: Mapping[str, Any]
    n_outputs: int

    def floats(self, key: str) -> FloatArray:
        return np.array(self.fields.get(key, ()), dtype=np.float32).astype(np.float64)

    def integers(self, key: str) -> NDArray[np.int64]:
        return np.array(self.fields.get(key, ()), dtype=np.int64)

    @property
    def n_nodes(self) -> int:
        """With those that were pruned away."""
        return len(self.fields["left_children"])

    @property
    def pruned(self) -> bool:
        """Whether nodes were taken off it after it had been grown."""
        return int(self.fields["tree_param"].get("num_deleted", "0")) > 0

    @cached_property
    def depths(self) -> NDArray[np.int64]:
        """(nodes,): how far each is from the root, with those that were pruned away."""
        at = np.arange(self.n_nodes)
        above = np.clip(
            self.integers("parents"), 0, np.maximum(at - 1, 0)
        )  # a node comes after its parent
        found = np.zeros(self.n_nodes, dtype=np.int64)
        while at.any():
            found += at > 0
            at = above[at]
        return found

    @property
    def split_by_others(self) -> bool:
        """Whether splits were chosen by other gradients than those that made the leaves (a custom objective's)."""
        return len(self.fields["base_weights"]) != self.n_nodes * self.n_outputs

    @cached_property
    def splits(self) -> NDArray[np.int64]:
        """The nodes with children that can be reached from the root, level by level; each is met once."""
        left, right = self.integers("left_children"), self.integers("right_children")
        level, found, met = np.zeros(1, dtype=np.int64), [], np.zeros(len(left), dtype=bool)
        while len(level := level[left[level] != -1]):
            found.append(level)
            level = np.concatenate([left[level], right[level]])
            inside = len(right) == len(left) and (level > 0).all() and (level < len(left)).all()
            if not inside or met[level].any() or len(np.unique(level)) < len(level):
                raise InputError(
                    "This XGBoost model is damaged: in one of its trees a node is its own ancestor, has two parents or is not "
                    "there. Read the model from an intact file."
                )
            met[level] = True
        return np.concatenate(found) if found else level

    @cached_property
    def last_splits(self) -> NDArray[np.int64]:
        """(S', 3): the splits whose children are both leaves, and these children."""
        found = np.stack(
            [self.splits, *(self.integers(side)[self.splits] for side in _SIDES)], axis=1
        )
        return found[np.isin(found[:, 1:], self.leaves).all(axis=1)]

    @cached_property
    def leaves(self) -> NDArray[np.int64]:
        """(L,): the nodes that are leaves."""
        children = np.concatenate([self.integers(side)[self.splits] for side in _SIDES])
        return np.setdiff1d(np.append(children, 0), self.splits)

    def nodes(self) -> tuple[NDArray[np.int64], FloatArray, BoolArray, NDArray[np.int64]]:
        """Splits in their order: feature, threshold, whether missing values go left, children (leaves as ~leaf)."""
        number = np.empty(self.n_nodes, dtype=np.int64)
        number[self.splits] = np.arange(len(self.splits))
        number[self.leaves] = ~np.arange(len(self.leaves))
        sides = [self.integers(side)[self.splits] for side in _SIDES]
        features, left = (
            self.integers("split_indices")[self.splits],
            self.integers("default_left")[self.splits] != 0,
        )
        return (
            features,
            self.floats("split_conditions")[self.splits],
            left,
            number[np.stack(sides, axis=1)],
        )

    def outcomes(self) -> dict[int, NDArray[np.uint8]]:
        """By the number of a split, where it tests for categories: 0 (left) or 1 for each, for others, for missing values.

        Those that a split names go right, all others left (src/common/categorical.h).
        """
        kinds = self.integers("split_type")
        if not kinds.any():
            return {}
        named, ends = (
            self.integers("categories"),
            np.cumsum([0, *self.fields.get("categories_sizes", ())]),
        )
        by_node = dict(zip(self.fields.get("categories_nodes", ()), pairwise(ends.tolist())))
        left, found = self.integers("default_left"), {}
        for number in np.flatnonzero(kinds[self.splits]).tolist():
            node = int(self.splits[number])
            right = named[slice(*by_node.get(node, (0, 0)))]
            table = np.zeros(int(right.max(initial=-1)) + 3, dtype=np.uint8)
            table[right], table[-1] = 1, not left[node]
            found[number] = table
        return found

    @cached_property
    def node_values(self) -> FloatArray:
        """(nodes, K): at leaves their values, at splits whatever XGBoost keeps there."""
        if self.n_outputs == 1:
            return self.floats("split_conditions")[:, None]
        values = self.base_weights.copy()
        if (
            "leaf_weights" in self.fields
        ):  # from 3.2 on, in an order that right_children of leaves gives
            values[self.leaves] = self.floats("leaf_weights").reshape(-1, self.n_outputs)[
                self.integers("right_children")[self.leaves]
            ]
        return values

    @property
    def values(self) -> FloatArray:
        """(L, K)."""
        return self.node_values[self.leaves]

    @property
    def base_weights(self) -> FloatArray:
        """(nodes, K): at splits what the node's value would be as a leaf, before the rate."""
        return self.floats("base_weights").reshape(-1, self.n_outputs)

    @cached_property
    def is_stepped(self) -> bool | None:
        """Whether leaf values are Newton steps, which XGBoost keeps in ``base_weights`` besides; None where no leaf shows it.

        All leaf values are then one rate times these, or the very same numbers.
        """
        steps = self.base_weights
        if len(steps) != self.n_nodes or (self.n_outputs > 1 and "leaf_weights" not in self.fields):
            return None
        steps, values = steps[self.leaves].ravel(), self.values.ravel()
        largest = int(np.abs(steps).argmax())
        if len(self.leaves) < 2 or steps[largest] == 0:
            return None
        expected = values[largest] / steps[largest] * steps
        return bool((np.abs(values - expected) <= _STEP_ROUNDING * np.abs(expected)).all())

    @property
    def has_whole_hessians(self) -> bool:
        """Whether the weights of all nodes are whole numbers, as of squared error without weights: each output has the same."""
        hessians = self.node_hessians
        return hessians is not None and bool((hessians == np.rint(hessians)).all())

    @cached_property
    def node_hessians(self) -> FloatArray | None:
        """(nodes,): the weight of each node's rows; None where trees of several outputs do not keep it (before 3.2)."""
        if "sum_hessian" not in self.fields:
            return None
        hessians = self.floats("sum_hessian") / self.n_outputs
        return np.where(
            hessians > NEGLIGIBLE * self.n_nodes, hessians, 0.0
        )  # of no row: see `NodeFit.positive`


@dataclass(frozen=True)
class ModelDocument:
    """A whole model, its trees in order; ``groups[t]`` is the output that tree t serves, ``iterations[t]`` its iteration."""

    learner: Mapping[str, Any]
    trees: tuple[Tree, ...]
    groups: NDArray[np.int64]
    iterations: NDArray[np.int64]
    n_parallel: int
    weight_drop: FloatArray | None  #: (T,) of DART
    version: tuple[
        int, ...
    ]  #: of the XGBoost that wrote the document, which may be newer than the one that trained

    @property
    def parameters(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.learner["learner_model_param"]
        return found

    @property
    def n_outputs(self) -> int:
        return max(int(self.parameters.get("num_target", "1")), 1)

    @property
    def shared(self) -> bool:
        """Whether the trees have leaves for all outputs (multi_strategy="multi_output_tree")."""
        return self.trees[0].n_outputs > 1

    @property
    def is_stepped(self) -> bool:
        """Whether the leaf values of all trees are Newton steps, for a loss that XGBoost fitted by percentiles until 3.3.

        The version is that of the XGBoost that wrote the document, so the leaves decide where they show it.
        """
        shown = [tree.is_stepped for tree in self.trees]
        if False in shown:
            return False
        several = any(len(tree.leaves) > 2 and step for tree, step in zip(self.trees, shown))
        return several or self.version >= (3, 4)

    @property
    def has_unit_hessians(self) -> bool:
        """Whether the trees of all rounds have the same weight, as where every second derivative is 1.

        False of a single round. False of trees without a split too: where scores do not move, no second derivative does.
        """
        has_rounds = len(self.trees) > self.n_parallel * (1 if self.shared else self.n_outputs)
        hessians = [tree.node_hessians for tree in self.trees if len(tree.splits)]
        roots = np.array([own[0] for own in hessians if own is not None])
        return has_rounds and len(roots) > 1 and float(np.ptp(roots)) <= 1e-6 * float(roots.max())

    @property
    def categories(self) -> list[list[Any]]:
        """The categories of each feature, in the order of their numbers, kept from 3.1 on; [] where there are none."""
        booster = self.learner["gradient_booster"]
        kept = booster.get("gbtree", booster)["model"].get("cats", {}).get("enc", [])
        return [_texts(one) if "offsets" in one else list(one["values"]) for one in kept]

    @property
    def base_score(self) -> FloatArray:
        """(K,) or (1,): from 3.1 on a list, before one number for all outputs."""
        return (
            np.array(json.loads(self.parameters["base_score"]), dtype=np.float32)
            .astype(np.float64)
            .reshape(-1)
        )

    @property
    def base_estimated(self) -> bool:
        return self.parameters.get("boost_from_average", "0") == "1"

    def fingerprint(self, n_trees: int) -> str:
        """Digest that is equal for a model and for its copies through a file or a pickle."""
        digest = hashlib.sha256(
            f"{self.n_outputs} {self.n_parallel} {self.base_score.tolist()}".encode()
        )
        drop = [] if self.weight_drop is None else self.weight_drop[:n_trees].tolist()
        digest.update(f"{self.groups[:n_trees].tolist()} {drop}".encode())
        for tree in self.trees[:n_trees]:
            for key in _DECISIVE:
                digest.update(key.encode() + tree.floats(key).astype(np.float32).tobytes())
        return digest.hexdigest()


def _texts(listed: Mapping[str, Any]) -> list[str]:
    """Texts that stand one after the other as bytes, with where each begins and the last one ends; [] where these are wrong.

    XGBoost 3.2 counts characters where it should count bytes, so texts that are not ASCII are cut in the wrong places.
    """
    values = listed["values"]
    if any(not 0 <= value < 128 for value in values):
        return []
    return [bytes(values[start:end]).decode() for start, end in pairwise(listed["offsets"])]


def parse(document: bytes | bytearray) -> ModelDocument | None:
    """Take a model document apart; None where it has no trees, as with gblinear or before training."""
    whole = json.loads(bytes(document).decode("utf-8", "surrogateescape"))
    learner = whole["learner"]
    booster = learner["gradient_booster"]
    forest = booster.get("gbtree", booster).get("model", {})
    drop = booster.get("weight_drop", forest.get("weight_drop"))  # from 3.4 on beside the trees
    if not forest.get("trees"):
        return None
    trees = tuple(
        Tree(tree, max(int(tree["tree_param"]["size_leaf_vector"]), 1)) for tree in forest["trees"]
    )
    n_parallel = max(int(forest["gbtree_model_param"].get("num_parallel_tree", "1")), 1)
    groups = np.array(forest["tree_info"], dtype=np.int64)
    if trees[0].n_outputs > 1:
        groups = np.zeros_like(groups)
    width = n_parallel * (int(groups.max()) + 1)
    starts = np.array(forest.get("iteration_indptr", range(0, len(trees) + 1, width)))
    iterations = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    dropped = None if drop is None else np.array(drop, dtype=float)
    return ModelDocument(
        learner, trees, groups, iterations, n_parallel, dropped, tuple(whole.get("version", ()))
    )


@dataclass(frozen=True)
class XGBoostSettings:
    """Settings that ``save_config()`` states."""

    learner: Mapping[str, Any]

    @classmethod
    def of(cls, booster: Any) -> XGBoostSettings:
        return cls(json.loads(booster.save_config())["learner"])

    @property
    def booster(self) -> Mapping[str, Any]:
        """The settings of the trees; DART wraps them once more."""
        outer = self.learner["gradient_booster"]
        found: Mapping[str, Any] = outer.get("gbtree", outer)
        return found

    def _sections(self) -> list[Mapping[str, Any]]:
        inner = self.booster
        sections = [
            inner.get("tree_train_param"),
            inner.get("gbtree_train_param"),
            self.learner.get("generic_param"),
        ]
        dart = self.learner["gradient_booster"].get("dart_train_param")
        loss = self.learner.get("objective", {}).get("reg_loss_param")
        return [section for section in (*sections, dart, loss) if section]

    def text(self, name: str) -> str:
        return next((str(section[name]) for section in self._sections() if name in section), "")

    def number(self, name: str) -> float:
        return float(self.text(name) or 0.0)

    @property
    def max_step(self) -> float:
        """max_delta_step, 0 where there is none. Poisson keeps its own, 0.7 where nobody set it, in model files too."""
        own = self.learner.get("objective", {}).get("poisson_regression_param", {})
        return self.number("max_delta_step") or float(own.get("max_delta_step", 0.0))

    @property
    def monotone_signs(self) -> list[int]:
        """The constraints of the first features, which XGBoost writes as (1,0,-1); the others have none."""
        return [
            int(sign)
            for sign in self.text("monotone_constraints").strip("() ").split(",")
            if sign.strip()
        ]

    @property
    def updaters(self) -> list[str]:
        found = self.booster.get("updater", [])
        return list(found) if isinstance(found, dict) else [updater["name"] for updater in found]

    @property
    def device(self) -> str:
        return self.text("device") or "cpu"
