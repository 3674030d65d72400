"""Random calls of the compiled kernels with arguments that do not fit: each is refused or harmless, never a crash.

A call begins as a right one and has some of its arguments changed. A refusal is a TypeError or a ValueError and leaves
every array as it was. Leaf numbers are trusted (cpp/kernels.hpp), so they are all 0, which every tree has.

    python -m tests.hostile_calls --n 4000
"""

from __future__ import annotations

import argparse
import collections
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

# isort: off
from tests import chosen_core  # noqa: F401  (before anything imports axil)
from axil import _core

# isort: on

LARGE = [-(2**63), -(2**62), -1, 1, 2**31, 2**32, 2**62, 2**63 - 1]
ODD = [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324]
SCALARS = [*LARGE, 0, 2**64, None, "1", 1.5, np.nan, np.inf, [], True]


def right_call(
    kernel: str, rng: np.random.Generator, rows: int, n_trees: int, columns: int
) -> dict[str, Any]:
    """Arguments that the kernel takes, by name."""
    starts = np.concatenate([[0], np.cumsum(rng.integers(1, 70, n_trees))]).astype(np.int64)
    total, k, first = int(starts[-1]), int(rng.integers(0, 4)), int(rng.integers(0, rows + 1))
    n = rows - first
    leaves = np.zeros((n_trees, rows), rng.choice([np.uint8, np.uint16, np.uint32]))
    forest = {"leaves": leaves, "starts": starts}
    weights = rng.uniform(1, 2, rows) if rng.random() < 0.5 else None
    threads = {"n_threads": int(rng.integers(1, 4))}
    places = {"values": np.zeros((columns, k)), "rows": np.full((columns, k), -1, np.int64)}

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=shape)

    match kernel:
        case "sweep":
            trees = np.arange(n_trees)
            lists = {"apply": trees[:1], "gather": trees[1:]}
            tables = {
                "state": normal(rows, columns),
                "table": normal(total, columns),
                "sums": normal(total, columns),
            }
            return (
                forest
                | lists
                | tables
                | {"apply_weights": weights, "gather_weights": weights}
                | threads
            )
        case "read_out":
            tables = {
                "table": normal(total, columns),
                "constant": normal(columns),
                "out": normal(n, columns),
            }
            return forest | tables | {"weights": weights, "first": first} | threads
        case "cooccurrence":
            return forest | {"weights": weights, "out": normal(total, total)} | threads
        case "top":
            return (
                {"block": normal(n, columns), "first": first, "scale": weights} | places | threads
            )
        case "top_rows":
            tables = {"table": normal(total, columns), "constant": normal(columns)}
            return forest | tables | {"weights": weights, "scale": weights} | places | threads
        case "blocks":
            return forest | {"places": normal(rows, 2).astype(np.float32)} | threads
        case "top_blocks":
            made = (
                _core.blocks(**forest, places=normal(rows, 2).astype(np.float32), n_threads=1)
                if rows
                else None
            )
            tables = {
                "table": normal(total, columns),
                "constant": normal(columns),
                "done": np.zeros(columns, np.uint8),
            }
            return (
                {"blocks": made, "most": int(rng.choice([0, 1000, 2**62]))}
                | tables
                | {"weights": weights, "scale": weights}
                | places
                | threads
            )
        case "replay":
            vectors = {
                "values": normal(total),
                "targets": normal(rows),
                "weights": weights,
                "score": normal(rows),
            }
            flags = {"single": bool(rng.integers(2)), "single_score": bool(rng.integers(2))}
            return (
                forest
                | vectors
                | flags
                | {"sums": normal(total), "counts": normal(total)}
                | threads
            )
        case "assign":
            return routes(rng, rows, n_trees) | threads
        case "scaled_read_out":
            tables = {
                "table": normal(total, columns),
                "factors": normal(n_trees, n),
                "out": normal(n, columns),
            }
            return forest | tables | {"first": first} | threads
        case "residual_factors":
            vectors = {name: normal(total) for name in ("steps", "levels", "draws")}
            return (
                forest
                | vectors
                | {"start": normal(n), "first": first, "out": normal(n_trees, n)}
                | threads
            )
        case "gradient_factors":
            return forest | program(rng, starts, rows, first, columns) | {"first": first} | threads
        case "pair_sums":
            factors = normal(n_trees, n) if rng.random() < 0.5 else None
            return (
                forest
                | {
                    "table": normal(total, total),
                    "factors": factors,
                    "first": first,
                    "out": normal(n),
                }
                | threads
            )
        case "deletions":
            vectors = {"slopes": normal(total), "drifts": normal(n_trees)}
            steps = np.tril(normal(n_trees, n_trees))
            tables = {
                "table": normal(total, total) / n_trees,
                "values": normal(total, columns),
                "steps": steps,
            }
            of_rows = {name: normal(columns, n) for name in ("start", "base", "changed")}
            own = rng.uniform(1, 2, n) if rng.random() < 0.5 else None
            rules = {"rules": rng.uniform(1, 2, (total, 5)), "draws": np.ones(1), "weights": own}
            rules["shifts"] = normal(total) if rng.random() < 0.5 else None
            outs = {
                "residuals": normal(columns, n_trees + 1, n),
                "added": normal(columns, n_trees, n),
            }
            return (
                forest
                | {"levels": 1, "first": first}
                | tables
                | vectors
                | rules
                | of_rows
                | outs
                | threads
            )
    raise AssertionError(kernel)


def program(
    rng: np.random.Generator, starts: np.ndarray, rows: int, first: int, outputs: int
) -> dict[str, Any]:
    """One round per tree, its gradients of the last output, which it moves."""
    n_trees, own, shape = len(starts) - 1 if outputs else 0, outputs - 1, (outputs, rows - first)
    order, of_output = np.arange(n_trees), np.full(n_trees, own)
    return {
        "rounds": np.repeat(np.arange(n_trees + 1)[:, None], 2, axis=1),
        "terms": np.stack([order, of_output, order], axis=1),
        "scales": rng.normal(size=starts[n_trees]),
        "moves": np.stack([order, of_output], axis=1),
        "steps": rng.uniform(0.5, 2, size=starts[n_trees]),
        "draws": rng.integers(0, 2, (len(starts) - 1, rows)).astype(np.uint8)
        if rng.random() < 0.5
        else None,
        "link": int(rng.integers(3)),
        "product": bool(rng.integers(2)),
        "intercepts": rng.normal(size=shape),
        "slopes": rng.normal(size=shape),
        "state": rng.uniform(1, 2, size=shape),
        "out": rng.normal(size=(n_trees + 1, rows - first)),
    }


def routes(rng: np.random.Generator, rows: int, n_trees: int) -> dict[str, Any]:
    """Trees of three nodes over two columns, the second of categories."""
    one_tree = [[0, 1, 1, 2], [1, 0, ~0, ~1], [2, 0, ~2, ~3]]
    return {
        "values": rng.normal(size=(rows, 3)).astype(rng.choice([np.float32, np.float64])),
        "columns": np.array([[0, 0], [2, 4], [0, 4]]),
        "thresholds": np.arange(4.0),
        "views": np.array([[0, 1, 0, 0], [1, 5, 0, 3], [1, 5, 5, 1]]),
        "outcomes": np.array([0, 1, 0, 1, 1, 0, 1, 0], np.uint8),
        "nodes": np.array(one_tree * n_trees, np.int32).reshape(3 * n_trees, 4),
        "starts": 3 * np.arange(n_trees + 1),
        "single": bool(rng.integers(2)),
        "strict": bool(rng.integers(2)),
        "zero": 1e-35,
        "out": np.zeros((n_trees, rows), rng.choice([np.uint8, np.uint16])),
    }


KERNELS = (
    *("sweep", "read_out", "cooccurrence", "top", "top_rows", "blocks", "top_blocks"),
    *(
        "replay",
        "assign",
        "scaled_read_out",
        "residual_factors",
        "gradient_factors",
        "pair_sums",
        "deletions",
    ),
)


def misaligned(a: np.ndarray) -> np.ndarray:
    """A copy that begins one byte after a place where its numbers may begin."""
    room = np.zeros(a.nbytes + a.itemsize + 1, np.uint8)
    begin = -room.ctypes.data % a.itemsize + 1
    out = room[begin : begin + a.nbytes].view(a.dtype).reshape(a.shape)
    out[...] = a
    return out


def frozen(a: np.ndarray) -> np.ndarray:
    out = a.copy()
    out.setflags(write=False)
    return out


def resized(a: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    shape = list(a.shape)
    axis = int(rng.integers(len(shape)))
    shape[axis] = int(
        rng.choice([0, max(shape[axis] - 1, 0), shape[axis] + 1, 2 * shape[axis] + 1])
    )
    return np.resize(a, shape) if a.size else np.zeros(shape, a.dtype)


def with_odd_number(a: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    out = a.copy()
    if out.size:
        where = int(rng.integers(out.size))
        if out.dtype.kind == "f":
            with np.errstate(over="ignore"):  # infinite in float32
                out.reshape(-1)[where] = rng.choice(ODD)
        else:
            limits = np.iinfo(out.dtype)
            out.reshape(-1)[where] = np.clip(
                int(rng.choice(LARGE)), int(limits.min), int(limits.max)
            )
    return out


LAYOUTS: list[Callable[[np.ndarray, np.random.Generator], Any]] = [
    lambda a, rng: a.astype(
        rng.choice([np.float32, np.int32, np.int8, np.complex128, np.bool_, object])
    ),
    lambda a, rng: a.astype(a.dtype.newbyteorder()),
    lambda a, rng: np.asfortranarray(a),
    lambda a, rng: a[::-1],
    lambda a, rng: np.repeat(a, 2, axis=-1)[..., ::2],
    lambda a, rng: np.broadcast_to(a[:1], (max(len(a), 2), *a.shape[1:])) if len(a) else a,
    lambda a, rng: a[None],
    lambda a, rng: a.reshape(-1),
    lambda a, rng: misaligned(a),
    lambda a, rng: frozen(a),
    lambda a, rng: resized(a, rng),
    lambda a, rng: a.tolist(),
    lambda a, rng: None,
    lambda a, rng: "text",
]


def changed(name: str, value: Any, rng: np.random.Generator) -> Any:
    if not isinstance(value, np.ndarray):
        return SCALARS[int(rng.integers(len(SCALARS)))]
    if name != "leaves" and rng.random() < 0.5:
        return with_odd_number(value, rng)
    return LAYOUTS[int(rng.integers(len(LAYOUTS)))](value, rng)


def hostile_calls(n: int, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    rng = np.random.default_rng(seed)
    for i in range(n):
        kernel = KERNELS[i % len(KERNELS)]
        rows, n_trees, columns = (
            int(rng.choice(sizes)) for sizes in ([0, 1, 7, 300], [0, 1, 3], [0, 1, 3, 17])
        )
        arguments = right_call(kernel, rng, rows, n_trees, columns)
        for name in rng.choice(list(arguments), int(rng.integers(1, 4)), replace=False):
            arguments[name] = changed(name, arguments[name], rng)
        yield kernel, arguments


def same(a: Any, b: Any) -> bool:
    return not isinstance(a, np.ndarray) or a.dtype == object or a.tobytes() == b.tobytes()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    outcomes: collections.Counter[str] = collections.Counter()
    for kernel, arguments in hostile_calls(given.n, given.seed):
        before = {
            name: value.copy() if isinstance(value, np.ndarray) else value
            for name, value in arguments.items()
        }
        try:
            getattr(_core, kernel)(**arguments)
            outcomes["accepted"] += 1
        except (TypeError, ValueError):
            outcomes["refused"] += 1
            if not all(same(value, before[name]) for name, value in arguments.items()):
                raise SystemExit(
                    f"{kernel} was refused, but its arguments changed: {before}"
                ) from None
    sys.stdout.write(f"{outcomes['accepted']} accepted, {outcomes['refused']} refused\n")


if __name__ == "__main__":
    main()
