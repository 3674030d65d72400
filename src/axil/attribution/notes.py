"""The notes of tables on the kind of their numbers."""

from __future__ import annotations

from typing import Any

NOTE = "exact with the fitted structure fixed; not a retraining"
ADDITIVE = (
    "contributions: what each row's own gradients add to the score; with the initial prediction "
    "they sum to it exactly"
)
DERIVATIVE = (
    "a derivative by the targets with the fitted structure fixed; not a decomposition of the "
    "prediction"
)
SIMILARITY = "weights=True shows what each listed row adds to the prediction"
ENCODED = "encodings of categories by the targets are fixed too"
PATTERN = (
    "exact with the tree structure fixed; the active set (sums that L1 moves or puts to zero, "
    "clips, bounds, ranks of rows) is computed again; not a retraining"
)
FIRST_ORDER = "a first-order effect with the fitted structure fixed; not a retraining"


def replayed(n: int, n_rows: int) -> str:
    """Return the note on deletions of single rows, with the number n of replayed ones.

    They change the active set, or are in leaves that depend on each other.
    """
    if n == 0:
        how = "no deletion changes it"
    else:
        how = f"{n:,} of {n_rows:,} leave-one-out fits, which may change it, were replayed"
    return f"{PATTERN}; {how}"


def of_class(text: str, scored: Any) -> str:
    """Return a note that names the scored class of two; None: there are not two."""
    if scored is None:
        return text
    return f"{text}; scores are of class {scored}, whose rows have target 1"
