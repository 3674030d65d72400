"""Arguments of the kernels that must be refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.devices import gpu
from tests.kernels.forests import forest, trees


class TestRefusals:
    """Wrong dtypes and layouts raise TypeError, wrong shapes ValueError: nothing is converted or read out of bounds."""

    def sweep(self, backend: Any, n_threads: int = 1, **changed: Any) -> None:
        f = forest(n_rows=50)
        arguments = {
            "cells": f.leaves,
            "starts": f.starts,
            "state": np.zeros((50, 4)),
            "apply": trees(0),
            "table": np.zeros((f.total, 4)),
            "apply_weights": None,
            "gather": trees(1),
            "sums": np.zeros((f.total, 4)),
            "gather_weights": None,
        } | changed
        backend(n_threads).rows(arguments.pop("cells"), arguments.pop("starts")).sweep(**arguments)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("cells", np.zeros((7, 50), np.int64)),
            ("cells", np.zeros((50, 7), np.uint8).T),
            ("starts", np.zeros(8, np.int32)),
            ("state", np.zeros((50, 4), np.float32)),
            ("state", np.zeros((4, 50)).T),
            ("state", np.zeros((50, 8))[:, ::2]),
            ("state", np.broadcast_to(0.0, (50, 4))),
            ("state", None),
            ("apply", np.zeros(1, np.int32)),
            ("table", np.zeros((95, 4), np.float32)),
            ("apply_weights", np.ones(50, np.float32)),
            ("gather_weights", np.ones(100)[::2]),
            ("sums", np.asfortranarray(np.zeros((95, 4)))),
        ],
    )
    def test_type_or_layout(self, backend: Any, name: str, value: Any) -> None:
        with pytest.raises(TypeError):
            self.sweep(backend, **{name: value})

    def test_read_only_output(self, backend: Any) -> None:
        sums = np.zeros((95, 4))
        sums.setflags(write=False)
        with pytest.raises(TypeError):
            self.sweep(backend, sums=sums)

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("starts", np.arange(7), "starts has length 7 where 8 is expected"),
            ("starts", np.arange(1, 9), "begin with 0"),
            ("starts", trees(0, 5, 6, 37, 30, 31, 32, 95), "tree 3 has no leaves"),
            ("state", np.zeros((49, 4)), r"state has shape \(49, 4\) where \(50, 4\) is expected"),
            ("table", np.zeros((94, 4)), "table has shape"),
            ("sums", np.zeros((95, 3)), "sums has shape"),
            ("apply", trees(7), "apply has tree 7, but there are 7 trees"),
            ("gather", trees(-1), "gather has tree -1"),
            ("apply_weights", np.ones(49), "apply_weights has length 49"),
            ("gather_weights", np.ones(51), "gather_weights has length 51"),
            ("n_threads", 0, "n_threads"),
        ],
    )
    def test_shape(self, backend: Any, name: str, value: Any, message: str) -> None:
        if name == "n_threads" and backend is gpu:
            pytest.skip("threads are the CPU's")
        with pytest.raises(ValueError, match=message):
            self.sweep(backend, **{name: value})

    @pytest.mark.parametrize(("first", "n"), [(-1, 3), (0, 51), (48, 3), (2**62, 1)])
    def test_rows_to_read_out(self, backend: Any, first: int, n: int) -> None:
        f = forest(n_rows=50)
        with pytest.raises(ValueError, match="rows"):
            f.rows(backend(1)).read_out(
                np.zeros((95, 2)), np.zeros(2), None, first, np.zeros((n, 2))
            )

    def test_other_shapes(self, backend: Any) -> None:
        f = forest(n_rows=50)
        with pytest.raises(ValueError, match="constant"):
            f.rows(backend(1)).read_out(np.zeros((95, 2)), np.zeros(3), None, 0, np.zeros((50, 2)))
        with pytest.raises(ValueError, match="values"):
            f.rows(backend(1)).moments(
                np.zeros((95, 2)), np.zeros(2), None, np.zeros((49, 3)), np.zeros((2, 2, 3))
            )
        with pytest.raises(ValueError, match=r"\(2, 2, 3\)"):
            f.rows(backend(1)).moments(
                np.zeros((95, 2)), np.zeros(2), None, np.zeros((50, 3)), np.zeros((2, 3, 2))
            )
        with pytest.raises(ValueError, match="out"):
            f.rows(backend(1)).cooccurrence(0, len(f.n_leaves), None, np.zeros((95, 94)))
        with pytest.raises(ValueError, match="factors"):
            f.rows(backend(1)).scaled_read_out(
                np.zeros((95, 2)), np.zeros((7, 49)), 0, np.zeros((50, 2))
            )
        with pytest.raises(ValueError, match="rows"):
            f.rows(backend(1)).scaled_read_out(
                np.zeros((95, 2)), np.zeros((7, 9)), 42, np.zeros((9, 2))
            )
        with pytest.raises(ValueError, match="table"):
            f.rows(backend(1)).pair_sums(np.zeros((95, 94)), None, 0, np.zeros(50))
        with pytest.raises(ValueError, match="factors"):
            f.rows(backend(1)).pair_sums(np.zeros((95, 95)), np.zeros((6, 50)), 0, np.zeros(50))
        with pytest.raises(ValueError, match="targets"):
            f.rows(backend(1)).replay(
                np.zeros(95), np.zeros(49), None, False, False, np.zeros(50), *np.zeros((2, 95))
            )
        rows = np.full((2, 3), -1, np.int64)
        with pytest.raises(ValueError, match="values"):
            backend(1).top(np.zeros((5, 2)), 0, None, np.zeros((3, 3)), rows)
        with pytest.raises(ValueError, match="scale"):
            backend(1).top(np.zeros((5, 2)), 6, np.ones(10), np.zeros((2, 3)), rows)
        with pytest.raises(ValueError, match="beyond the end of scale"):
            backend(1).top(np.zeros((5, 2)), 0, np.ones(10), np.zeros((2, 3)), rows + 11)
