"""Frames of the answers."""

import numpy as np
import pytest

from axil import InputError
from axil.output.tables import make


def test_labels_of_mixed_kinds():
    columns = {"group": np.array([1, "a"], dtype=object)}
    assert list(make(columns, "pandas")["group"]) == [1, "a"]
    with pytest.raises(InputError, match=r"pyarrow makes no table .* labels of one kind"):
        make(columns, "pyarrow")
