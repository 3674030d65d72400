"""Fast parts of long grids: some cases of every kind run always, the others with the slow tests.

A hash of its name decides whether a case is fast. So a new case changes nothing for the others.
"""

import hashlib
import inspect

import pytest


def share_of(n_shares, name):
    """Return the share of a name, from 0 to ``n_shares - 1``; it depends on nothing but the two.

    Shares by different numbers are independent: a third of the names has about a half of a half.
    """
    digest = hashlib.blake2b(f"{n_shares} {name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % n_shares


def name_of(case):
    """Return the name of a case: its values, and the names of modules among them, joined by dashes."""
    values = case if isinstance(case, tuple) else (case,)
    named = [value.__name__ if inspect.ismodule(value) else value for value in values]
    assert all(isinstance(value, (str, int)) for value in named), f"{case} has no lasting name"
    return "-".join(map(str, named))


def chosen(n_shares, cases, share=0):
    """Return about one in ``n_shares`` cases; different shares have no case in common."""
    return [case for case in cases if share_of(n_shares, name_of(case)) == share]


def mostly_slow(n_shares, cases, share=0, is_slow=lambda case: False):
    """Return all cases as parameters of a test, and mark all but about one in ``n_shares`` as slow.

    What the test checks hardly depends on a model's settings.

    Parameters
    ----------
    share : int
        Which of the shares is fast. Two tests with different shares divide the cases.
    is_slow : callable
        Whether a case is slow in any share.
    """
    parameters = []
    for case in cases:
        is_fast = share_of(n_shares, name_of(case)) == share and not is_slow(case)
        values = case if isinstance(case, tuple) else (case,)
        parameters.append(pytest.param(*values, marks=[] if is_fast else [pytest.mark.slow]))
    return parameters
