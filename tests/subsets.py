"""Parts of long grids: some cases of every kind run always, the others with the slow tests."""

import pytest


def every(step, cases, first=0):
    """Every ``step``-th case from the ``first``; the others are slow, as what they test hardly depends on a model's settings."""
    rows = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [
        pytest.param(*row, marks=[pytest.mark.slow] * (i % step != first))
        for i, row in enumerate(rows)
    ]
