"""What the kernels refuse: numbers whose sums overflow, arrays that are not aligned, and whatever else chance brings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from axil import _core
from tests.hostile_calls import KERNELS, misaligned, right_call

MOST = 2**63 - 1
OF_LEAVES = [kernel for kernel in KERNELS if kernel not in ("top", "assign", "top_blocks")]


def call(kernel: str) -> dict[str, Any]:
    return right_call(kernel, np.random.default_rng(1), rows=7, n_trees=3, columns=2)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_call_is_right_before_it_is_changed(kernel: str) -> None:
    getattr(_core, kernel)(**call(kernel))


@pytest.mark.parametrize("kernel", OF_LEAVES)
@pytest.mark.parametrize(
    "starts", [[0, MOST, 5, 6], [0, MOST, -MOST, 9], [0, 5, -(2**63), 9], [0, 1, 1, 2]]
)
def test_starts_that_do_not_increase(kernel: str, starts: list[int]) -> None:
    with pytest.raises(ValueError, match="starts must increase"):
        getattr(_core, kernel)(**call(kernel) | {"starts": np.array(starts)})


@pytest.mark.parametrize(
    "kernel",
    [
        "read_out",
        "scaled_read_out",
        "residual_factors",
        "gradient_factors",
        "pair_sums",
        "deletions",
    ],
)
@pytest.mark.parametrize("first", [-1, 8, MOST, -(2**63)])
def test_rows_that_do_not_exist(kernel: str, first: int) -> None:
    with pytest.raises(ValueError, match="rows"):
        getattr(_core, kernel)(**call(kernel) | {"first": first})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first": 5, "scale": np.ones(7)}, "scale ends before"),
        ({"first": MOST, "scale": None}, "first"),
        ({"first": -1}, "first"),
    ],
)
def test_rows_of_a_block(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _core.top(**call("top") | {"block": np.zeros((3, 2))} | changes)


@pytest.mark.parametrize(
    ("name", "place", "number", "message"),
    [
        ("views", (1, 2), MOST, "view 1 does not fit"),
        ("views", (1, 3), MOST, "view 1 does not fit"),
        ("views", (2, 3), 2, "view 2 does not fit"),
        ("views", (0, 0), -1, "view 0 does not fit"),
        ("columns", (1, 1), MOST, "column 0 names"),
        ("columns", (0, 1), -(2**63), "column 0 names"),
        ("starts", 3, MOST, "starts must increase"),
        ("nodes", (0, 2), 0, "out of order"),
        ("nodes", (0, 2), 2, "node 2 has two parents"),
        ("nodes", (0, 0), 3, "no such view"),
        ("nodes", (0, 1), -1, "rank -1"),
        ("nodes", (0, 1), 256, "rank 256"),  # 0 in a code of one byte
        ("nodes", (0, 1), 65535, "rank 65535"),
        ("views", (0, 1), 6, "view 0 does not fit"),
        ("nodes", (1, 2), -(2**31), "out of order"),
    ],
)
def test_routes_that_lead_nowhere(name: str, place: Any, number: int, message: str) -> None:
    arguments = call("assign")
    arguments[name][place] = number
    with pytest.raises(ValueError, match=message):
        _core.assign(**arguments)


@pytest.mark.parametrize(
    ("name", "place", "number", "message"),
    [
        ("terms", (1, 0), 3, "terms has a tree"),
        ("terms", (1, 1), 2, "terms has a tree or an output"),
        ("terms", (2, 2), 4, "a place"),
        ("terms", (0, 2), -1, "a place"),
        ("moves", (1, 0), -1, "moves has a tree"),
        ("moves", (1, 1), MOST, "moves has a tree or an output"),
        ("rounds", (1, 0), MOST, "must increase"),
        ("rounds", (1, 1), 3, "must increase"),
        ("rounds", (0, 0), 1, "begin with 0"),
        ("rounds", (3, 1), 2, "end with the number"),
    ],
)
def test_rounds_of_things_that_do_not_exist(
    name: str, place: Any, number: int, message: str
) -> None:
    arguments = call("gradient_factors")
    arguments[name][place] = number
    with pytest.raises(ValueError, match=message):
        _core.gradient_factors(**arguments)
    with pytest.raises(ValueError, match="link"):
        _core.gradient_factors(**call("gradient_factors") | {"link": 3})


def test_a_tree_whose_nodes_share_children_is_no_tree() -> None:
    """Followed from its root, it would take 2^40 steps."""
    arguments = call("assign")
    nodes = np.array([[0, 0, i + 1, i + 1] for i in range(40)] + [[0, 0, ~0, ~1]], np.int32)
    changes = {"nodes": nodes, "starts": np.array([0, 41]), "out": np.zeros((1, 7), np.uint8)}
    with pytest.raises(ValueError, match="node 1 has two parents"):
        _core.assign(**arguments | changes)


@pytest.mark.parametrize("kernel", KERNELS)
def test_arrays_that_are_not_aligned(kernel: str) -> None:
    arguments = call(kernel)
    several = {
        name: a
        for name, a in arguments.items()
        if isinstance(a, np.ndarray) and a.itemsize > 1 and a.size
    }
    assert several
    for name, array in several.items():
        with pytest.raises(ValueError, match="not aligned"):
            getattr(_core, kernel)(**arguments | {name: misaligned(array)})


# A crash ends a process, so these have one of their own.
@pytest.mark.parametrize("n", [300, pytest.param(6000, marks=pytest.mark.slow)])
def test_random_calls_are_refused_or_harmless(n: int) -> None:
    program = [sys.executable, "-m", "tests.hostile_calls", "--n", str(n)]
    run = subprocess.run(
        program, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stdout + run.stderr
    accepted, refused = (int(word) for word in run.stdout.split() if word.isdigit())
    assert accepted + refused == n
    assert (
        min(accepted, refused) > n / 20
    )  # neither all too tame nor all refused at the first glance
