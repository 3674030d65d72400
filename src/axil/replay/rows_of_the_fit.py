"""Rows of the fit among rows that should be new to a model: found by their equal training rows, beyond what chance explains."""

from __future__ import annotations

import numpy as np
from scipy.special import betaln, logsumexp

from axil.arrays import BoolArray, IntArray
from axil.errors import InputError, warn

# training rows that a row equals: more are a value that is common, which says nothing of where a
# row is from
FEW = 3
CHANCE = (
    1e-4  # the probability of as many equal rows, or more, below which they are not equal by chance
)
MOST = 0.5  # of the rows: where more of them are training rows the others are not used either


def twins_among(trained: IntArray) -> tuple[int, int]:
    """How many of some training rows equal no more than `FEW` others, and how many of these equal at least one.

    ``trained``: how many training rows equal each, itself among them.
    """
    others = trained - 1
    return int((others <= FEW).sum()), int(((others > 0) & (others <= FEW)).sum())


def rows_of_the_fit(
    held: IntArray,
    trained: tuple[int, int],
    rows: str,
    alike: str,
    harm: str,
    instead: str = "",
) -> BoolArray:
    """Which rows are to be left out as rows of the fit; raises where that is most of them.

    ``held``: how many training rows equal each row; ``trained``: what `twins_among` says of some training rows. ``rows``,
    ``alike``, ``harm`` and ``instead`` tell users what the rows are, in what they equal training rows, what harm these would do
    and what else to pass.

    If the rows of both are exchangeable, a row equals a training row with the probability that a training row equals another
    one. So their share among the training rows is what duplicates and coarse features predict; only a number of equal rows that
    has a probability below `CHANCE` under it (with a uniform prior on that share) counts as a finding. Rows that equal more than
    `FEW` training rows are left aside on both sides: a value that common may be more or less common here. Of rows of the fit
    none is without an equal one, so the rows without one tell how many the others are.
    """
    equal, (n_train, twins) = (held > 0) & (held <= FEW), trained
    n = int((held <= FEW).sum())
    m = int(equal.sum())
    if m == 0 or _tail(m, n, twins, n_train) >= CHANCE:
        return np.zeros(len(held), dtype=np.bool_)
    by_chance = twins / max(n_train, 1)
    share = (m / n - by_chance) / (1.0 - by_chance)
    found = f"{m} of the {len(held)} {rows} rows are training rows: {alike}"
    if by_chance:
        found += (
            f" ({by_chance:.0%} of the training rows equal another one, which does not explain it)"
        )
    if share > MOST:
        raise InputError(f"{found}. {harm}. Pass rows that were not in the fit{instead}.")
    warn(
        f"{found}. They are left out, and {len(held) - m} {rows} rows stay. {harm}. Pass rows that were not in the fit.",
        UserWarning,
    )
    return equal


def _tail(m: int, n: int, twins: int, n_train: int) -> float:
    """The probability that m or more of n rows equal a training row, where ``twins`` of n_train do (a beta-binomial tail)."""
    j = np.arange(m, n + 1)
    a = twins + 1
    b = n_train - twins + 1
    return float(
        np.exp(
            logsumexp(
                betaln(j + a, n - j + b) - betaln(a, b) - betaln(j + 1, n - j + 1) - np.log(n + 1)
            )
        )
    )
