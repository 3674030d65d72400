"""LightGBM's model text taken apart: header, trees and parameters.

They are kept as written and without their meaning.

The text (a model file is the same) begins with a header of ``key=value`` lines; then comes a block
for each tree, from ``Tree=`` on; after ``end of trees`` come the importances and a ``parameters:``
block of ``[key: value]`` lines. Leaf values and thresholds have 17 digits, rates and parameters 6
(src/boosting/gbdt_model_text.cpp, src/io/tree.cpp).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.lightgbm.samplers import Bagging, Goss, LightGBMDart, goss, streams
from axil.aliases import ForeignObject
from axil.arrays import BoolArray, FloatArray
from axil.errors import InputError
from axil.structure.leaves import NEGLIGIBLE

# decision_type: a bit for a categorical split, one for missing values to the left, two for what
# counts as missing (include/LightGBM/tree.h).
CATEGORICAL = 1
DEFAULT_LEFT = 2
MISSING_SHIFT = 2

_SPLIT_FIELDS = ("split_feature", "threshold", "decision_type", "left_child", "right_child")
#: The fields that decide leaf membership and predictions; not leaf_weight, which a loaded one-leaf
#: tree has lost.
_DECISIVE = (
    "num_leaves",
    *_SPLIT_FIELDS,
    "cat_boundaries",
    "cat_threshold",
    "leaf_value",
    "leaf_count",
    "shrinkage",
)
_LINEAR = ("leaf_const", "num_features", "leaf_features", "leaf_coeff")
_OF_LEAVES = ("leaf_value", "leaf_count", "leaf_weight", "leaf_const", "num_features")
_OF_SPLITS = (*_SPLIT_FIELDS, "split_gain", "internal_value", "internal_weight", "internal_count")
_NEEDED = frozenset(("split_feature", "threshold", "leaf_value", "left_child", "right_child"))

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
    """One tree: L leaves and L - 1 splits, numbered in the order of the growth.

    A parent comes before its children.
    """

    fields: dict[str, str]

    @property
    def n_leaves(self) -> int:
        """The number of leaves."""
        return int(self.fields["num_leaves"])

    @property
    def shrinkage(self) -> str:
        """Number as printed: six significant digits."""
        return self.fields.get("shrinkage", "1")

    @property
    def is_linear(self) -> bool:
        """Whether leaves are linear functions of features."""
        return self.fields.get("is_linear", "0") != "0"

    def floats(self, key: str) -> FloatArray:
        """Return the real numbers of a field."""
        return np.array(self.fields.get(key, "").split(), dtype=np.float64)

    def integers(self, key: str) -> NDArray[np.int64]:
        """Return the whole numbers of a field."""
        return np.array(self.fields.get(key, "").split(), dtype=np.int64)

    def leaf_counts(self, n_rows: int) -> NDArray[np.int64]:
        """Return how many rows each leaf has, (L,).

        Before 4.6 a tree of one leaf did not record them.

        A leaf that lost all its rows in a refit has a count of one and next to no weight: see
        `NodeFit.positive`.
        """
        counts = self.integers("leaf_count")
        if self.n_leaves == 1:
            if counts.any():
                return counts
            return np.array([n_rows])
        weights = self.floats("leaf_weight")
        if len(weights) != len(counts):
            return counts
        return np.where((counts == 1) & (weights == NEGLIGIBLE), 0, counts)

    @property
    def children(self) -> NDArray[np.int64]:
        """The left and right child of each split, (L - 1, 2).

        Splits are nodes 0 .. L - 2, leaves are nodes L - 1 .. 2L - 2.
        """
        written = np.stack([self.integers("left_child"), self.integers("right_child")], axis=1)
        return np.where(written < 0, self.n_leaves - 1 + ~written, written)  # leaf l is written ~l

    def check(self, n_features: int) -> None:
        """Refuse a damaged tree: nodes that do not form one, or arrays of other lengths.

        Readers follow children unchecked.
        """
        for key in self.fields:
            self.floats(key)  # a tree is numbers alone
        if self.is_linear:
            self._check_coefficients(n_features)
        if self.n_leaves == 1:
            return
        self._check_lengths()
        self._check_splits(n_features)
        self._check_categories()

    def _check_coefficients(self, n_features: int) -> None:
        """Refuse coefficients of leaves that are not one for each of their features."""
        features = self.integers("leaf_features")
        n_coefficients = len(self.floats("leaf_coeff"))
        n_stated = int(self.integers("num_features").sum())
        are_known = ((features >= 0) & (features < n_features)).all()
        if not (len(features) == n_coefficients == n_stated) or not are_known:
            raise _damaged("the coefficients of a tree's leaves are not those of its features")

    def _check_lengths(self) -> None:
        """Refuse fields that are not there, or that have a wrong number of entries.

        The right number is that of the tree's leaves or splits.
        """
        n_leaves = self.n_leaves
        lengths = dict.fromkeys(_OF_SPLITS, n_leaves - 1) | dict.fromkeys(_OF_LEAVES, n_leaves)
        wrong = [
            key
            for key, length in lengths.items()
            if key in self.fields and len(self.floats(key)) != length
        ]
        if n_leaves < 1 or wrong or not self.fields.keys() >= _NEEDED:
            names = ", ".join(wrong) or "parts"
            raise _damaged(f"a tree of {n_leaves} leaves has other numbers of {names}")

    def _check_splits(self, n_features: int) -> None:
        """Refuse children that come before their parents or have several, and unknown features."""
        children = self.children
        n_splits = len(children)
        are_ordered = (children > np.arange(n_splits)[:, None]) & (children < 2 * n_splits + 1)
        if not are_ordered.all() or len(np.unique(children)) < 2 * n_splits:
            raise _damaged("a node of a tree is its own ancestor, has two parents or is not there")
        features = self.integers("split_feature")
        if (features < 0).any() or (features >= n_features).any():
            raise _damaged(f"a tree splits on feature {features.max()} of {n_features}")

    def _check_categories(self) -> None:
        """Refuse splits by sets of categories that are not there."""
        starts = self.integers("cat_boundaries")
        is_categorical = (self.integers("decision_type") & CATEGORICAL) != 0
        numbers = self.floats("threshold")[is_categorical]
        are_known = ((numbers >= 0) & (numbers < len(starts) - 1)).all()
        bounds = [0, *starts.tolist(), len(self.integers("cat_threshold"))]
        if not are_known or any(begin > end for begin, end in pairwise(bounds)):
            raise _damaged("a tree's sets of categories are not there")

    def outcomes(self) -> dict[int, NDArray[np.uint8]]:
        """Return the outcomes of categories at each categorical split, by its number.

        The entries are 0 (left) for the categories that it names, and 1 for others up to them, for
        those beyond, and for missing values.
        """
        starts = self.integers("cat_boundaries")
        words = self.integers("cat_threshold")
        set_numbers = self.floats("threshold")  # at categorical splits
        outcomes = {}
        for split in np.flatnonzero(self.integers("decision_type") & CATEGORICAL).tolist():
            number = int(set_numbers[split])
            set_words = words[starts[number] : starts[number + 1]].astype("<u4")
            is_named = np.unpackbits(set_words.view(np.uint8), bitorder="little")
            outcomes[split] = np.append(1 - is_named, [1, 1]).astype(np.uint8)
        return outcomes

    @property
    def sends_missing_right(self) -> BoolArray:
        """Whether a split on numbers sends missing values to the right, (L - 1,)."""
        kinds = self.integers("decision_type")
        knows_missing = (kinds & (3 << MISSING_SHIFT)) != 0
        goes_right = (kinds & (CATEGORICAL | DEFAULT_LEFT)) == 0
        return np.asarray(knows_missing & goes_right)

    def splits_on(self, features: frozenset[int]) -> BoolArray:
        """Return which splits are categorical and on one of these features, (L - 1,)."""
        is_categorical = (self.integers("decision_type") & CATEGORICAL) != 0
        has_feature = np.isin(self.integers("split_feature"), sorted(features))
        return np.asarray(has_feature & is_categorical)


@dataclass(frozen=True)
class ModelText:
    """A whole model; ``parameters`` is None if the text has no such block."""

    header: dict[str, str]
    trees: tuple[TreeText, ...]
    parameters: dict[str, str] | None

    @property
    def n_features(self) -> int:
        """The number of features."""
        return int(self.header.get("max_feature_idx", "-1")) + 1

    @property
    def objective(self) -> str:
        """Canonical name and modifiers, as in "regression sqrt"; empty for a custom objective."""
        return self.header.get("objective", "")

    @property
    def category_counts(self) -> dict[int, int]:
        """The number of bins of each categorical feature, with the one for missing values.

        Numeric features are written ``[min:max]``, unused ones ``none``, categorical ones
        ``-1:3:0:...``.
        """
        counts = {}
        for feature, info in enumerate(self.header.get("feature_infos", "").split()):
            if info != "none" and not info.startswith("["):
                counts[feature] = info.count(":") + 1
        return counts

    def fingerprint(self) -> str:
        """Return a digest that is equal for a model and for its copies.

        The copies came through a file, a string or a pickle.
        """
        digest = hashlib.sha256(self.objective.encode())
        for tree in self.trees:
            keys = (*_DECISIVE, *_LINEAR) if tree.is_linear else _DECISIVE
            for key in keys:
                digest.update(f"{key}={tree.fields.get(key, '')}\n".encode())
        return digest.hexdigest()


def parse(text: str) -> ModelText:
    """Parse a model text."""
    forest, _, rest = text.partition("\nend of trees")
    head, *blocks = forest.split("\nTree=")
    trees = tuple(TreeText(_fields(block)) for block in blocks)
    return ModelText(_fields(head), trees, _parameters(rest))


def check(text: str) -> None:
    """Refuse a damaged model text, before the library reads it.

    On such a text LightGBM may loop or end the process.
    """
    model = parse(text)
    _check_header(model, text)
    for tree in model.trees:
        tree.check(model.n_features)
    settings = text.partition("\nparameters:\n")[2].partition("\nend of parameters")[0]
    for line in settings.strip().splitlines():
        if not re.fullmatch(r"\[\w+: .*\]", line):
            raise _damaged("a line of its parameters is not [name: value]")
    starts = [match.start() + 1 for match in re.finditer(r"\nTree=", text)]
    ends = [*starts[1:], text.find("\nend of trees") + 1]
    sizes = [len(text[start:end].encode()) for start, end in zip(starts, ends)]
    stated = model.header.get("tree_sizes")  # where the library begins to read each tree
    if not model.trees or (stated is not None and [int(size) for size in stated.split()] != sizes):
        raise _damaged("its trees are not where its header says")


def _check_header(model: ModelText, text: str) -> None:
    """Refuse a header that does not list every feature, or has invalid monotone constraints."""
    n_features = model.n_features
    for key in ("feature_names", "feature_infos"):
        if "\0" in text or len(model.header.get(key, "").split(" ")) != n_features:
            raise _damaged(f"its header does not list {n_features} features")
    signs = model.header.get("monotone_constraints", "0").split()
    if len(signs) > max(n_features, 1) or not set(signs) <= {"-1", "0", "1"}:
        raise _damaged(f"its header has monotone_constraints of {len(signs)} features")


def _damaged(fault: str) -> InputError:
    """Return the error for a model text with this fault."""
    return InputError(
        f"This LightGBM model is damaged: {fault}. Read the model from an intact file."
    )


def _fields(block: str) -> dict[str, str]:
    """Return the fields of lines of the form key=value."""
    pairs = (line.partition("=") for line in block.splitlines())
    return {key: value for key, _, value in pairs}


def _parameters(rest: str) -> dict[str, str] | None:
    """Return the parameters that stand after the trees; None if there is no such block."""
    _, heading, block = rest.partition("\nparameters:\n")
    if not heading:
        return None
    lines = block.partition("\nend of parameters")[0].splitlines()
    pairs = (line.strip()[1:-1].partition(": ") for line in lines if line.startswith("["))
    return {key.rstrip(":"): value for key, _, value in pairs}


@dataclass(frozen=True)
class LightGBMSettings:
    """The ``parameters:`` block, and the settings that the booster in memory has."""

    printed: Mapping[str, str]
    remembered: Mapping[str, Any] = field(default_factory=dict)

    def given(self, name: str) -> list[ForeignObject]:
        """Return the values that the user passed for a setting, under any of its names."""
        values = [self.remembered.get(alias) for alias in (name, *_ALIASES.get(name, ()))]
        return [value for value in values if value is not None]

    def text(self, name: str) -> str:
        """Return a setting as printed, empty if there is none.

        Before 4.2 the block leaves out data_sample_strategy and the settings of quantized training.
        """
        if name in self.printed:
            return self.printed[name]
        for value in self.given(name):
            if isinstance(value, bool):
                return str(int(value))
            return str(value)
        return ""

    def number(self, name: str) -> float:
        """Return a setting that is a number, as printed; 0 if there is none."""
        return float(self.text(name) or 0.0)

    def flag(self, name: str) -> bool:
        """Return whether a setting is on."""
        return self.text(name) == "1"

    def precisely(self, name: str, printed: str | None = None) -> tuple[float, float]:
        """Return a number, and its possible error: 0 unless the text lost its last digits.

        By default the number is the one that the block prints.
        """
        if printed is None:
            printed = self.text(name) or "0"
        for value in self.given(name):  # a booster that was loaded remembers the printed number
            is_number = isinstance(value, (int, float))
            if is_number and f"{value:g}" == printed and float(value) != float(printed):
                return float(value), 0.0
        mantissa, _, exponent = printed.partition("e")
        digits = mantissa.lstrip("-").replace(".", "").lstrip("0")
        if len(digits) < _PRINTED_DIGITS:
            return float(printed), 0.0
        decimals = len(mantissa.partition(".")[2]) - int(exponent or 0)
        return float(printed), 0.5 * 10.0**-decimals

    def bagging(self, n_rows: int) -> Bagging:
        """Return the bagging of N rows.

        Its seed is printed as it was used, also if it came of the master seed.
        """
        return Bagging(
            fraction=self.precisely("bagging_fraction")[0],
            frequency=int(self.number("bagging_freq")),
            generators=streams(int(self.number("bagging_seed")), n_rows),
            n_rows=n_rows,
        )

    def goss(self, n_rows: int) -> tuple[Goss, ...]:
        """Return the states from which GOSS of N rows may begin."""
        return goss(
            top_rate=self.precisely("top_rate")[0],
            other_rate=self.precisely("other_rate")[0],
            seed=int(self.number("bagging_seed")),
            n_rows=n_rows,
            n_threads=int(self.number("num_threads")),
        )

    def dart(self) -> LightGBMDart:
        """Return the settings of boosting="dart"."""
        return LightGBMDart(
            rate=self.precisely("learning_rate")[0],
            drop_rate=self.precisely("drop_rate")[0],
            skip_drop=self.precisely("skip_drop")[0],
            max_drop=int(self.number("max_drop")),
            seed=int(self.number("drop_seed")),
            uniform=self.flag("uniform_drop"),
            xgboost=self.flag("xgboost_dart_mode"),
        )
