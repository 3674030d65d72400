"""Rows of the fit among rows that should be new to a model.

axil finds them by their equal training rows, beyond what chance explains.
"""

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
    """Return the number of training rows that equal at most `FEW` others.

    Also return how many of these equal at least one.

    ``trained`` has the number of training rows that equal each row, itself among them.
    """
    n_twins = trained - 1
    return int((n_twins <= FEW).sum()), int(((n_twins > 0) & (n_twins <= FEW)).sum())


def rows_of_the_fit(
    held: IntArray,
    trained: tuple[int, int],
    rows: str,
    alike: str,
    harm: str,
    instead: str = "",
) -> BoolArray:
    """Return the rows to leave out as rows of the fit; raise if they are most of the rows.

    Two exchangeable rows are equal with the same probability, whether both are training rows or
    only one is. So the share of equal rows among the training rows predicts what duplicates and
    coarse features cause. Only a number of equal rows whose probability is below `CHANCE` (with a
    uniform prior on that share) counts as a finding. Rows that equal more than `FEW` training rows
    are ignored on both sides, because a value that common may be more or less common here. Every
    row of the fit equals a training row, so the rows without an equal one tell how many the others
    are.

    Parameters
    ----------
    held : array of shape (n,)
        How many training rows equal each row.
    trained : tuple of int
        The result of `twins_among` for some training rows.
    rows, alike, harm, instead : str
        For messages: what the rows are, in what they equal training rows, what harm they would do,
        and what the user can pass instead.
    """
    equal, (n_train, twins) = (held > 0) & (held <= FEW), trained
    n = int((held <= FEW).sum())
    m = int(equal.sum())
    if m == 0 or _tail(m, n, twins, n_train) >= CHANCE:
        return np.zeros(len(held), dtype=np.bool_)
    by_chance = twins / max(n_train, 1)
    share = (m / n - by_chance) / (1.0 - by_chance)
    finding = f"{m} of the {len(held)} {rows} rows are training rows: {alike}"
    if by_chance:
        finding += (
            f" ({by_chance:.0%} of the training rows equal another one, which does not explain it)"
        )
    if share > MOST:
        raise InputError(f"{finding}. {harm}. Pass rows that were not in the fit{instead}.")
    warn(
        f"{finding}. They are left out, and {len(held) - m} {rows} rows stay. {harm}. Pass rows "
        "that were not in the fit.",
        UserWarning,
    )
    return equal


def _tail(m: int, n: int, twins: int, n_train: int) -> float:
    """Return the probability that m or more of n rows equal a training row.

    It is a beta-binomial tail, where ``twins`` of n_train rows equal another one.
    """
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
