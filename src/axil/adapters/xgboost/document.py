"""XGBoost's model document taken apart: trees, base and settings.

They are kept as written and without their meaning.

``save_raw("json")`` has the trees: children, ``split_conditions`` (at leaves: the leaf's value,
rate included), ``sum_hessian`` and ``base_weights``; nodes that were pruned away stay in the
arrays. ``save_config()`` has the settings, as text in which float32 numbers keep all their digits;
a model that was loaded from a file has defaults there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.aliases import ForeignModel, ForeignObject
from axil.arrays import BoolArray, FloatArray
from axil.errors import InputError
from axil.structure.leaves import NEGLIGIBLE

#: The fields, besides the leaf values, that decide leaf membership.
_DECISIVE = (
    "left_children",
    "right_children",
    "split_indices",
    "split_conditions",
    "default_left",
    "split_type",
    "categories",
    "categories_nodes",
    "categories_sizes",
    "sum_hessian",
    "leaf_weights",
)
_STEP_ROUNDING = 2.0**-21  # of values that are steps times a rate: both are rounded to float32
_DAMAGED = (
    "This XGBoost model is damaged: in one of its trees a node is its own ancestor, has two "
    "parents or is not there. Read the model from an intact file."
)


@dataclass(frozen=True)
class Tree:
    """One tree with K outputs, S splits and L leaves.

    Leaves are numbered in the order of their nodes.
    """

    fields: Mapping[str, Any]
    n_outputs: int

    def floats(self, key: str) -> FloatArray:
        """Return the real numbers of a field, which XGBoost keeps in float32."""
        return np.array(self.fields.get(key, ()), dtype=np.float32).astype(np.float64)

    def integers(self, key: str) -> NDArray[np.int64]:
        """Return the whole numbers of a field."""
        return np.array(self.fields.get(key, ()), dtype=np.int64)

    # -- nodes ------------------------------------------------------------------------------------

    @property
    def n_nodes(self) -> int:
        """The number of nodes, with those that were pruned away."""
        return len(self.fields["left_children"])

    @property
    def pruned(self) -> bool:
        """Whether nodes were removed from the tree after its growth."""
        return int(self.fields["tree_param"].get("num_deleted", "0")) > 0

    @cached_property
    def depths(self) -> NDArray[np.int64]:
        """The depth of each node, (nodes,), also of pruned ones."""
        ancestors = np.arange(self.n_nodes)
        last_possible_parent = np.maximum(ancestors - 1, 0)  # a node comes after its parent
        parents = np.clip(self.integers("parents"), 0, last_possible_parent)
        depths = np.zeros(self.n_nodes, dtype=np.int64)
        while ancestors.any():
            depths += ancestors > 0
            ancestors = parents[ancestors]
        return depths

    @cached_property
    def splits(self) -> NDArray[np.int64]:
        """The nodes with children that can be reached from the root, level by level, (S,)."""
        left_children = self.integers("left_children")
        right_children = self.integers("right_children")
        level = np.zeros(1, dtype=np.int64)
        splits = [level[:0]]
        is_reached = np.zeros(len(left_children), dtype=bool)
        while len(level := level[left_children[level] != -1]):
            splits.append(level)
            level = np.concatenate([left_children[level], right_children[level]])
            are_nodes = len(right_children) == len(left_children) and bool(
                ((level > 0) & (level < len(left_children))).all()
            )
            if not are_nodes or is_reached[level].any() or len(np.unique(level)) < len(level):
                raise InputError(_DAMAGED)
            is_reached[level] = True
        return np.concatenate(splits)

    @cached_property
    def _child_nodes(self) -> NDArray[np.int64]:
        """The nodes left and right below each split, (S, 2)."""
        sides = (self.integers("left_children"), self.integers("right_children"))
        return np.stack([side[self.splits] for side in sides], axis=1)

    @cached_property
    def leaves(self) -> NDArray[np.int64]:
        """The nodes that are leaves, (L,)."""
        return np.setdiff1d(np.append(self._child_nodes, 0), self.splits)

    @cached_property
    def last_splits(self) -> NDArray[np.int64]:
        """The splits whose children are both leaves, with these children, (S', 3).

        Splits and children are given by their nodes.
        """
        has_leaves = np.isin(self._child_nodes, self.leaves).all(axis=1)
        return np.column_stack([self.splits, self._child_nodes])[has_leaves]

    @property
    def features(self) -> NDArray[np.int64]:
        """The feature that each split tests, (S,)."""
        return self.integers("split_indices")[self.splits]

    @property
    def thresholds(self) -> FloatArray:
        """The threshold of each split, (S,): values below it go left."""
        return self.floats("split_conditions")[self.splits]

    @property
    def sends_missing_left(self) -> BoolArray:
        """Whether missing values go left, (S,)."""
        return np.asarray(self.integers("default_left")[self.splits] != 0)

    @property
    def children(self) -> NDArray[np.int64]:
        """Left and right child of each split, (S, 2): splits by their number, leaves as ~leaf."""
        numbers = np.empty(self.n_nodes, dtype=np.int64)
        numbers[self.splits] = np.arange(len(self.splits))
        numbers[self.leaves] = ~np.arange(len(self.leaves))
        return numbers[self._child_nodes]

    def outcomes(self) -> dict[int, NDArray[np.uint8]]:
        """Return where each split by categories sends them, by the number of the split.

        The entries are 0 (left) or 1 (right) for each category, for other categories and for
        missing values. Those that a split names go right, all others left
        (src/common/categorical.h).
        """
        kinds = self.integers("split_type")
        if not kinds.any():
            return {}
        sends_missing_left = self.sends_missing_left
        categories = self.integers("categories")
        ends = np.cumsum([0, *self.fields.get("categories_sizes", ())]).tolist()
        range_by_node = dict(zip(self.fields.get("categories_nodes", ()), pairwise(ends)))
        outcomes = {}
        for split in np.flatnonzero(kinds[self.splits]).tolist():
            begin, end = range_by_node.get(int(self.splits[split]), (0, 0))
            named = categories[begin:end]
            table = np.zeros(int(named.max(initial=-1)) + 3, dtype=np.uint8)
            table[named] = 1
            table[-1] = not sends_missing_left[split]
            outcomes[split] = table
        return outcomes

    @property
    def split_by_others(self) -> bool:
        """Whether a custom objective chose the splits, and another one the leaves."""
        return len(self.fields.get("base_weights", ())) != self.n_nodes * self.n_outputs

    # -- values -----------------------------------------------------------------------------------

    @cached_property
    def node_values(self) -> FloatArray:
        """The values of leaves, and for splits the number that XGBoost stores there, (nodes, K)."""
        if self.n_outputs == 1:
            return self.floats("split_conditions")[:, None]
        values = self.base_weights.copy()
        if "leaf_weights" in self.fields:  # from 3.2 on, in the order of right_children of leaves
            leaf_values = self.floats("leaf_weights").reshape(-1, self.n_outputs)
            values[self.leaves] = leaf_values[self.integers("right_children")[self.leaves]]
        return values

    @property
    def values(self) -> FloatArray:
        """The leaf values, (L, K)."""
        return self.node_values[self.leaves]

    @property
    def base_weights(self) -> FloatArray:
        """The value of each split's node as a leaf, before the learning rate, (nodes, K)."""
        return self.floats("base_weights").reshape(-1, self.n_outputs)

    @cached_property
    def is_stepped(self) -> bool | None:
        """Whether leaf values are Newton steps, which XGBoost also stores in ``base_weights``.

        It is None if no leaf shows it.

        All leaf values are then one rate times these, or the very same numbers.
        """
        if self.split_by_others or (self.n_outputs > 1 and "leaf_weights" not in self.fields):
            return None
        steps = self.base_weights[self.leaves].ravel()
        values = self.values.ravel()
        largest = int(np.abs(steps).argmax())
        if len(self.leaves) < 2 or steps[largest] == 0:
            return None
        expected = values[largest] / steps[largest] * steps
        return bool((np.abs(values - expected) <= _STEP_ROUNDING * np.abs(expected)).all())

    @cached_property
    def node_hessians(self) -> FloatArray | None:
        """The weight of each node's rows, (nodes,).

        It is None for trees of several outputs before XGBoost 3.2, which do not store it.
        """
        if "sum_hessian" not in self.fields:
            return None
        hessians = self.floats("sum_hessian") / self.n_outputs
        has_rows = hessians > NEGLIGIBLE * self.n_nodes  # see `NodeFit.positive`
        return np.where(has_rows, hessians, 0.0)

    @property
    def leaf_hessians(self) -> FloatArray | None:
        """The weight of each leaf's rows, (L,); None if the tree does not store it."""
        if self.node_hessians is None:
            return None
        return self.node_hessians[self.leaves]

    @property
    def has_whole_hessians(self) -> bool:
        """Whether the weights of all nodes are whole numbers.

        Those of squared error without weights are.
        """
        hessians = self.node_hessians
        return hessians is not None and bool((hessians == np.rint(hessians)).all())


@dataclass(frozen=True)
class ModelDocument:
    """A whole model, its T trees in order."""

    learner: Mapping[str, Any]
    trees: tuple[Tree, ...]
    groups: NDArray[np.int64]  #: (T,) the output that each tree serves
    iterations: NDArray[np.int64]  #: (T,)
    n_parallel: int
    weight_drop: FloatArray | None  #: (T,) of DART
    #: of the XGBoost that wrote the document, which may be newer than the one that trained the
    #: model
    version: tuple[int, ...]

    @property
    def parameters(self) -> Mapping[str, str]:
        """The parameters of the whole model."""
        parameters: Mapping[str, str] = self.learner["learner_model_param"]
        return parameters

    @property
    def n_outputs(self) -> int:
        """The number of outputs."""
        return max(int(self.parameters.get("num_target", "1")), 1)

    @property
    def shared(self) -> bool:
        """Whether the trees have leaves for all outputs (multi_strategy="multi_output_tree")."""
        return self.trees[0].n_outputs > 1

    @property
    def is_stepped(self) -> bool:
        """Whether leaf values are Newton steps for a loss that was once fitted by percentiles.

        XGBoost did so until 3.3. The document has the version of the XGBoost that wrote it, so the
        leaves decide if they can.
        """
        if any(tree.is_stepped is False for tree in self.trees):
            return False
        is_certain = any(tree.is_stepped and len(tree.leaves) > 2 for tree in self.trees)
        return is_certain or self.version >= (3, 4)

    @property
    def has_unit_hessians(self) -> bool:
        """Whether the trees of all rounds have the same weight, as if every second derivative is 1.

        False of a single round. False of trees without a split too: where scores do not move, no
        second derivative does.
        """
        trees_per_round = self.n_parallel
        if not self.shared:
            trees_per_round *= self.n_outputs
        has_rounds = len(self.trees) > trees_per_round
        roots = root_hessians([tree for tree in self.trees if len(tree.splits)])
        return has_rounds and len(roots) > 1 and float(np.ptp(roots)) <= 1e-6 * float(roots.max())

    @property
    def categories(self) -> list[list[ForeignObject]]:
        """The categories of each feature in the order of their numbers, stored from 3.1 on.

        [] if there are none.
        """
        booster = self.learner["gradient_booster"]
        encoders = booster.get("gbtree", booster)["model"].get("cats", {}).get("enc", [])
        return [_categories_of(encoder) for encoder in encoders]

    @property
    def base_score(self) -> FloatArray:
        """The base score: a list (K,) from 3.1 on, before one number for all outputs, (1,)."""
        written = np.array(json.loads(self.parameters["base_score"]), dtype=np.float32)
        return written.astype(np.float64).reshape(-1)

    @property
    def base_estimated(self) -> bool:
        """Whether XGBoost estimated base_score from the targets."""
        return self.parameters.get("boost_from_average", "0") == "1"

    def fingerprint(self, n_trees: int) -> str:
        """Return a digest that is equal for a model and its copies through a file or a pickle."""
        numbers = f"{self.n_outputs} {self.n_parallel} {self.base_score.tolist()}"
        digest = hashlib.sha256(numbers.encode())
        if self.weight_drop is None:
            drop = []
        else:
            drop = self.weight_drop[:n_trees].tolist()
        digest.update(f"{self.groups[:n_trees].tolist()} {drop}".encode())
        for tree in self.trees[:n_trees]:
            for key in _DECISIVE:
                digest.update(key.encode() + tree.floats(key).astype(np.float32).tobytes())
        return digest.hexdigest()


def root_hessians(trees: Iterable[Tree]) -> FloatArray:
    """Return the weight of the rows of each of these trees that stores it."""
    hessians = [tree.node_hessians for tree in trees]
    return np.array([of_nodes[0] for of_nodes in hessians if of_nodes is not None])


def _categories_of(encoder: Mapping[str, Any]) -> list[ForeignObject]:
    """Return the categories of one feature; [] if XGBoost cut their texts in the wrong places.

    Texts stand one after the other as bytes, with where each begins and the last one ends. XGBoost
    3.2 counts characters where it should count bytes, so texts that are not ASCII are cut wrongly.
    """
    values = encoder["values"]
    if "offsets" not in encoder:
        return list(values)
    if any(not 0 <= value < 128 for value in values):
        return []
    return [bytes(values[start:end]).decode() for start, end in pairwise(encoder["offsets"])]


def parse(document: bytes | bytearray) -> ModelDocument | None:
    """Parse a model document.

    It is None if it has no trees, as with gblinear or before training.
    """
    content = json.loads(bytes(document).decode("utf-8", "surrogateescape"))
    booster = content["learner"]["gradient_booster"]
    forest = booster.get("gbtree", booster).get("model", {})
    if not forest.get("trees"):
        return None
    trees = tuple(
        Tree(fields, max(int(fields["tree_param"]["size_leaf_vector"]), 1))
        for fields in forest["trees"]
    )
    n_parallel = max(int(forest["gbtree_model_param"].get("num_parallel_tree", "1")), 1)
    groups = np.array(forest["tree_info"], dtype=np.int64)
    if trees[0].n_outputs > 1:
        groups = np.zeros_like(groups)
    trees_per_round = n_parallel * (int(groups.max()) + 1)
    starts = np.array(
        forest.get("iteration_indptr", range(0, len(trees) + 1, trees_per_round)), dtype=np.int64
    )
    weight_drop = booster.get("weight_drop", forest.get("weight_drop"))  # from 3.4 on beside trees
    return ModelDocument(
        learner=content["learner"],
        trees=trees,
        groups=groups,
        iterations=np.repeat(np.arange(len(starts) - 1), np.diff(starts)),
        n_parallel=n_parallel,
        weight_drop=None if weight_drop is None else np.array(weight_drop, dtype=float),
        version=tuple(content.get("version", ())),
    )


@dataclass(frozen=True)
class XGBoostSettings:
    """Settings that ``save_config()`` states."""

    learner: Mapping[str, Any]

    @classmethod
    def of(cls, booster: ForeignModel) -> XGBoostSettings:
        """Return the settings of a booster."""
        return cls(json.loads(booster.save_config())["learner"])

    @property
    def booster(self) -> Mapping[str, Any]:
        """The settings of the trees, which DART nests one level deeper."""
        outer = self.learner["gradient_booster"]
        inner: Mapping[str, Any] = outer.get("gbtree", outer)
        return inner

    def _sections(self) -> list[Mapping[str, Any]]:
        """Return the sections that settings are looked up in, in this order."""
        sections = [
            self.booster.get("tree_train_param"),
            self.booster.get("gbtree_train_param"),
            self.learner.get("generic_param"),
            self.learner["gradient_booster"].get("dart_train_param"),
            self.learner.get("objective", {}).get("reg_loss_param"),
        ]
        return [section for section in sections if section]

    def text(self, name: str) -> str:
        """Return a setting as it is written; empty if there is none of this name."""
        return next((str(section[name]) for section in self._sections() if name in section), "")

    def number(self, name: str) -> float:
        """Return a setting that is a number; 0 if there is none of this name."""
        return float(self.text(name) or 0.0)

    @property
    def max_step(self) -> float:
        """max_delta_step, 0 if there is none.

        Poisson keeps its own, 0.7 where nobody set it, in model files too.
        """
        poisson = self.learner.get("objective", {}).get("poisson_regression_param", {})
        return self.number("max_delta_step") or float(poisson.get("max_delta_step", 0.0))

    @property
    def monotone_signs(self) -> list[int]:
        """The constraints of the first features, which XGBoost writes as (1,0,-1).

        The others have none.
        """
        signs = self.text("monotone_constraints").strip("() ").split(",")
        return [int(sign) for sign in signs if sign.strip()]

    @property
    def updaters(self) -> list[str]:
        """The names of the updaters that grew the trees."""
        updaters = self.booster.get("updater", [])
        if isinstance(updaters, dict):
            return list(updaters)
        return [updater["name"] for updater in updaters]

    @property
    def device(self) -> str:
        """The device of the fit."""
        return self.text("device") or "cpu"
