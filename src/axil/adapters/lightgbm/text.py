"""LightGBM's model text taken apart: header, trees and parameters, as written and without their meaning.

The text (a model file is the same) begins with a header of ``key=value`` lines; then comes a block for each tree, from
``Tree=`` on; after ``end of trees`` come the importances and a ``parameters:`` block of ``[key: value]`` lines. Leaf
values and thresholds have 17 digits, rates and parameters 6 (src/boosting/gbdt_model_text.cpp, src/io/tree.cpp).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.lightgbm.bagging import Bagging, Goss, goss, streams
from axil.adapters.lightgbm.dart import LightGBMDart
from axil.arrays import BoolArray, FloatArray
from axil.errors import InputError
from axil.structure.leaves import NEGLIGIBLE

# decision_type: a bit for a categorical split, one for missing values to the left, two for what counts as missing
# (include/LightGBM/tree.h).
CATEGORICAL, DEFAULT_LEFT, MISSING_SHIFT = 1, 2, 2

# The fields that decide leaf membership and predictions; not leaf_weight, which a loaded one-leaf tree has lost.
_STRUCTURE = (
    "num_leaves",
    "split_feature",
    "threshold",
    "decision_type",
    "left_child",
    "right_child",
)
_DECISIVE = (
    *_STRUCTURE,
    "cat_boundaries",
    "cat_threshold",
    "leaf_value",
    "leaf_count",
    "shrinkage",
)

_LINEAR = ("leaf_const", "num_features", "leaf_features", "leaf_coeff")
_OF_LEAVES = ("leaf_value", "leaf_count", "leaf_weight", *_LINEAR[:2])
_OF_SPLITS = (*_STRUCTURE[1:], "split_gain", "internal_value", "internal_weight", "internal_count")

_ALIASES = {
    "boosting": ("boosting_type", "boost"),
    "learning_rate": ("shrinkage_rate", "eta"),
    "lambda_l1": ("reg_alpha", "l1_regularization"),
    "max_delta_step": ("max_tree_output", "max_leaf_output"),
    "lambda_l2": ("reg_lambda", "lambda", "l2_regularization"),
    "bagging_fraction": ("sub_row", "subsample", "bagging"),
    "drop_rate": ("rate_drop",),
}
_PRINTED_DIGITS = 6


@dataclass(frozen=True)
class TreeText:
    """One tree: L leaves and L - 1 splits, numbered in the order they were made, so a parent comes before its children."""

    fields: dict[str, str]

    @property
    def n_leaves(self) -> int:
        return int(self.fields["num_leaves"])

    @property
    def shrinkage(self) -> str:
        """Number as printed: six significant digits."""
        return self.fields.get("shrinkage", "1")

    @property
    def is_linear(self) -> bool:
        return self.fields.get("is_linear", "0") != "0"

    def floats(self, key: str) -> FloatArray:
        return np.array(self.fields.get(key, "").split(), dtype=np.float64)

    def integers(self, key: str) -> NDArray[np.int64]:
        return np.array(self.fields.get(key, "").split(), dtype=np.int64)

    def leaf_counts(self, n_rows: int) -> NDArray[np.int64]:
        """(L,): rows in each leaf; before 4.6 a tree of one leaf did not record them.

        A leaf that lost all its rows in a refit has a count of one and next to no weight: see `NodeFit.positive`.
        """
        counts = self.integers("leaf_count")
        if self.n_leaves == 1:
            return counts if counts.any() else np.array([n_rows])
        weights = self.floats("leaf_weight")
        if len(weights) != len(counts):
            return counts
        return np.where((counts == 1) & (weights == NEGLIGIBLE), 0, counts)

    @property
    def children(self) -> NDArray[np.int64]:
        """(L - 1, 2): left and right child of each split; splits are nodes 0 .. L - 2, leaves nodes L - 1 .. 2L - 2."""
        written = np.stack([self.integers("left_child"), self.integers("right_child")], axis=1)
        return np.where(written < 0, self.n_leaves - 1 + ~written, written)  # leaf l is written ~l

    def check(self, n_features: int) -> None:
        """Refuse a damaged tree: nodes that do not form one, or arrays of other lengths. Readers follow children unchecked."""
        for key in self.fields:
            self.floats(key)  # a tree is numbers alone
        n, splits = self.n_leaves, self.n_leaves - 1
        slopes = self.integers("leaf_features")
        sizes = {
            len(slopes),
            len(self.floats("leaf_coeff")),
            int(self.integers("num_features").sum()),
        }
        if self.is_linear and (len(sizes) > 1 or ((slopes < 0) | (slopes >= n_features)).any()):
            raise InputError(
                _damaged("the coefficients of a tree's leaves are not those of its features")
            )
        if n == 1:
            return
        lengths = dict.fromkeys(_OF_SPLITS, splits) | dict.fromkeys(_OF_LEAVES, n)
        wrong = [
            key
            for key, length in lengths.items()
            if key in self.fields and len(self.floats(key)) != length
        ]
        features, sides = self.integers("split_feature"), ("left_child", "right_child")
        if (
            n < 1
            or wrong
            or not {"split_feature", "threshold", "leaf_value", *sides} <= self.fields.keys()
        ):
            raise InputError(
                _damaged(f"a tree of {n} leaves has other numbers of {', '.join(wrong) or 'parts'}")
            )
        children, parents = self.children, np.arange(splits)[:, None]
        ordered = (children > parents) & (children < 2 * n - 1)
        if not ordered.all() or len(np.unique(children)) < 2 * splits:
            raise InputError(
                _damaged("a node of a tree is its own ancestor, has two parents or is not there")
            )
        if (features < 0).any() or (features >= n_features).any():
            raise InputError(_damaged(f"a tree splits on feature {features.max()} of {n_features}"))
        bounds, sets = self.integers("cat_boundaries"), self.floats("threshold")
        sets = sets[(self.integers("decision_type") & CATEGORICAL) != 0]
        ends = [0, *bounds.tolist(), len(self.integers("cat_threshold"))]
        known = ((sets >= 0) & (sets < len(bounds) - 1)).all()
        if not known or any(a > b for a, b in pairwise(ends)):
            raise InputError(_damaged("a tree's sets of categories are not there"))

    def outcomes(self) -> dict[int, NDArray[np.uint8]]:
        """For each categorical split: 0 (left) for the categories it names, 1 for others up to them, beyond, and missing."""
        bounds, words = self.integers("cat_boundaries"), self.integers("cat_threshold")
        sets, found = self.floats("threshold"), {}  # the number of the set, at categorical splits
        for split in np.flatnonzero(self.integers("decision_type") & CATEGORICAL):
            which = int(sets[split])
            own = words[bounds[which] : bounds[which + 1]].astype("<u4")
            named = np.unpackbits(own.view(np.uint8), bitorder="little")
            found[int(split)] = np.append(1 - named, [1, 1]).astype(np.uint8)
        return found

    @property
    def sends_missing_right(self) -> BoolArray:
        """(L - 1,): which splits on numbers know of missing values and send them to the right."""
        kinds = self.integers("decision_type")
        knows = (kinds & (3 << MISSING_SHIFT)) != 0
        found: BoolArray = knows & ((kinds & (CATEGORICAL | DEFAULT_LEFT)) == 0)
        return found

    def splits_on(self, features: frozenset[int]) -> BoolArray:
        """(L - 1,): which splits are categorical and on one of these features."""
        categorical = (self.integers("decision_type") & CATEGORICAL) != 0
        found: BoolArray = np.isin(self.integers("split_feature"), sorted(features)) & categorical
        return found


@dataclass(frozen=True)
class ModelText:
    """A whole model; ``parameters`` is None where the text has no such block."""

    header: dict[str, str]
    trees: tuple[TreeText, ...]
    parameters: dict[str, str] | None

    @property
    def n_features(self) -> int:
        return int(self.header.get("max_feature_idx", "-1")) + 1

    @property
    def objective(self) -> str:
        """Canonical name and modifiers, as in "regression sqrt"; empty for a custom objective."""
        return self.header.get("objective", "")

    @property
    def category_counts(self) -> dict[int, int]:
        """For each categorical feature, how many bins it has, the one for missing values included.

        Numeric features are written ``[min:max]``, unused ones ``none``, categorical ones ``-1:3:0:...``.
        """
        infos = self.header.get("feature_infos", "").split()
        return {
            i: info.count(":") + 1
            for i, info in enumerate(infos)
            if info != "none" and not info.startswith("[")
        }

    def fingerprint(self) -> str:
        """Digest that is equal for a model and for its copies through a file, a string or a pickle."""
        digest = hashlib.sha256(self.objective.encode())
        for tree in self.trees:
            for key in (*_DECISIVE, *(_LINEAR if tree.is_linear else ())):
                digest.update(f"{key}={tree.fields.get(key, '')}\n".encode())
        return digest.hexdigest()


def parse(text: str) -> ModelText:
    """Take a model text apart."""
    forest, _, rest = text.partition("\nend of trees")
    head, *trees = forest.split("\nTree=")
    return ModelText(
        _fields(head), tuple(TreeText(_fields(tree)) for tree in trees), _parameters(rest)
    )


def check(text: str) -> None:
    """Refuse a damaged model text, before the library reads it: on such a text LightGBM may loop or end the process."""
    model = parse(text)
    n_features = model.n_features
    listed = [
        len(model.header.get(key, "").split(" ")) for key in ("feature_names", "feature_infos")
    ]
    if "\0" in text or listed != [n_features] * 2:
        raise InputError(_damaged(f"its header does not list {n_features} features"))
    signs = model.header.get("monotone_constraints", "0").split()
    if len(signs) > max(n_features, 1) or not set(signs) <= {"-1", "0", "1"}:
        raise InputError(_damaged(f"its header has monotone_constraints of {len(signs)} features"))
    for tree in model.trees:
        tree.check(n_features)
    starts = [found.start() + 1 for found in re.finditer(r"\nTree=", text)]
    ends = [*starts[1:], text.find("\nend of trees") + 1]
    sizes = [len(text[a:b].encode()) for a, b in zip(starts, ends)]
    settings = (
        text.partition("\nparameters:\n")[2]
        .partition("\nend of parameters")[0]
        .strip()
        .splitlines()
    )
    if not all(re.fullmatch(r"\[\w+: .*\]", line) for line in settings):
        raise InputError(_damaged("a line of its parameters is not [name: value]"))
    stated = model.header.get("tree_sizes")  # where the library begins to read each tree
    if not model.trees or (stated is not None and [int(size) for size in stated.split()] != sizes):
        raise InputError(_damaged("its trees are not where its header says"))


def _damaged(found: str) -> str:
    return f"This LightGBM model is damaged: {found}. Read the model from an intact file."


def _fields(block: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in block.splitlines())
    return {key: value for key, _, value in pairs}


def _parameters(rest: str) -> dict[str, str] | None:
    _, found, block = rest.partition("\nparameters:\n")
    if not found:
        return None
    lines = block.partition("\nend of parameters")[0].splitlines()
    pairs = (line.strip()[1:-1].partition(": ") for line in lines if line.startswith("["))
    return {key.rstrip(":"): value for key, _, value in pairs}


@dataclass(frozen=True)
class LightGBMSettings:
    """The ``parameters:`` block, and what the booster in memory remembers of the settings it was trained with."""

    printed: Mapping[str, str]
    remembered: Mapping[str, Any] = field(default_factory=dict)

    def given(self, name: str) -> list[Any]:
        """The values that were passed for a setting, under any of its names."""
        names = (name, *_ALIASES.get(name, ()))
        return [self.remembered[alias] for alias in names if self.remembered.get(alias) is not None]

    def text(self, name: str) -> str:
        """Setting as printed. Before 4.2 the block leaves out data_sample_strategy and the settings of quantized training."""
        if name in self.printed:
            return self.printed[name]
        return next(
            (
                str(int(value)) if isinstance(value, bool) else str(value)
                for value in self.given(name)
            ),
            "",
        )

    def number(self, name: str) -> float:
        return float(self.text(name) or 0.0)

    def flag(self, name: str) -> bool:
        return self.text(name) == "1"

    def precisely(self, name: str, printed: str | None = None) -> tuple[float, float]:
        """A number, by default as the block prints it, and how far off it may be: 0 unless the last digits are lost."""
        printed = self.text(name) or "0" if printed is None else printed
        for value in self.given(
            name
        ):  # a booster that was loaded remembers the printed number only
            if (
                isinstance(value, (int, float))
                and f"{value:g}" == printed
                and float(value) != float(printed)
            ):
                return float(value), 0.0
        mantissa, _, exponent = printed.partition("e")
        digits = mantissa.lstrip("-").replace(".", "").lstrip("0")
        if len(digits) < _PRINTED_DIGITS:
            return float(printed), 0.0
        decimals = len(mantissa.partition(".")[2]) - int(exponent or 0)
        return float(printed), 0.5 * 10.0**-decimals

    def _integers(self, *names: str) -> Iterator[int]:
        return (int(self.number(name)) for name in names)

    def bagging(self, n_rows: int) -> Bagging:
        """Bagging of N rows; its seed is printed as it was used, also where it came of the master seed."""
        seed, frequency = self._integers("bagging_seed", "bagging_freq")
        return Bagging(
            self.precisely("bagging_fraction")[0], frequency, streams(seed, n_rows), n_rows
        )

    def goss(self, n_rows: int) -> tuple[Goss, ...]:
        """GOSS of N rows."""
        seed, n_threads = self._integers("bagging_seed", "num_threads")
        top_rate, other_rate = self.precisely("top_rate")[0], self.precisely("other_rate")[0]
        return goss(top_rate, other_rate, seed, n_rows, n_threads)

    def dart(self) -> LightGBMDart:
        rate, drop_rate, skip_drop = (
            self.precisely(name)[0] for name in ("learning_rate", "drop_rate", "skip_drop")
        )
        max_drop, seed = self._integers("max_drop", "drop_seed")
        uniform, xgboost = self.flag("uniform_drop"), self.flag("xgboost_dart_mode")
        return LightGBMDart(rate, drop_rate, skip_drop, max_drop, seed, uniform, xgboost)
