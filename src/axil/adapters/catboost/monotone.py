"""The orders that CatBoost keeps leaf values in where features have monotone constraints.

A symmetric tree is one of its free splits with a tree of its constrained splits at each leaf. The
leaves of each such tree are put in one order, the first split first, and pooled along it by
isotonic regression with weights ``W + l2``
(catboost/private/libs/algo/monotonic_constraint_utils.cpp; CalcMonotonicLeafDeltasSimple,
approx_calcer.cpp).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.catboost.blob import ModelBlob
from axil.structure import Chains


def signs_of(settings: dict[str, Any]) -> dict[int, int]:
    """Return the constraints of one fit that are not zero.

    The keys are positions among the numeric features.
    """
    stated = dict(settings.get("tree_learner_options", {}).get("monotone_constraints") or {})
    return {int(feature): int(sign) for feature, sign in stated.items() if int(sign) != 0}


def chains(blob: ModelBlob, signs: dict[int, int]) -> Chains | None:
    """Return the chains of all trees; None if no split is constrained."""
    of_splits = np.array(
        [signs.get(feature, 0) for feature in blob.split_features.tolist()], dtype=np.int64
    )
    if not of_splits.any():
        return None
    order = []
    sizes = []
    trees = [0]
    for tree_signs in np.split(of_splits, np.cumsum(blob.depths)[:-1]):
        leaves, lengths = _tree(tree_signs)
        order.append(trees[-1] + leaves)
        sizes.append(lengths)
        trees.append(trees[-1] + len(leaves))
    starts = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
    return Chains(np.concatenate(order), starts, np.array(trees))


def _tree(signs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the leaves of a tree in the order of their chains, and the length of each chain.

    ``signs`` has the constraint of each split of the tree.

    The bits of a leaf's number are the outcomes of the splits.
    """
    leaves = np.arange(1 << len(signs))
    chain = np.zeros_like(leaves)
    rank = np.zeros_like(leaves)
    for split, sign in enumerate(signs):
        outcome = leaves >> split & 1
        if sign == 0:
            chain = 2 * chain + outcome
        else:
            rank = 2 * rank + (outcome if sign > 0 else 1 - outcome)
    constrained = int(np.count_nonzero(signs))
    return np.lexsort((rank, chain)), np.full(1 << (len(signs) - constrained), 1 << constrained)
