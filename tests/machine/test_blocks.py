"""Blocks of rows: every row is worked on once, whoever does it."""

import numpy as np
import pytest

from axil.machine import blocks
from axil.machine.blocks import row_blocks


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("n_rows", [0, 1, 10, 64])
def test_every_row_is_worked_on_once(n_rows, n_threads, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 10)
    seen = np.zeros(n_rows)

    def work(rows):
        assert rows.stop - rows.start <= 10
        seen[rows] += 1

    def fail(rows):
        raise ZeroDivisionError

    with row_blocks(n_rows, n_threads) as each:
        each(work)
        each(work)
        if n_rows:
            with pytest.raises(ZeroDivisionError):
                each(fail)
    assert (seen == 2).all()
