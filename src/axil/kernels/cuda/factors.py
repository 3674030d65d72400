"""Factors of rows in every place of a fit: the walk through its rounds that makes them, and their sums by cell and group."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import cupy as cp
import numpy as np

from axil.kernels import LINKS, Numbers, Program
from axil.kernels.cuda.cells import KeptCells
from axil.kernels.cuda.checks import expect, expect_output, expect_rows
from axil.kernels.cuda.launch import THREADS, blocks, within_memory
from axil.machine.arrays import is_host
from axil.machine.threads import Cache

CHUNK = 1024  # least rows of one tree that a warp adds up
PARTIAL_BYTES = 1 << 28  # of the sums of all chunks
MOST_CHUNKS = 65535

PROGRAMS: WeakKeyDictionary[Program, Cache] = (
    WeakKeyDictionary()
)  # on the device, as long as the host's live


@dataclass(frozen=True)
class PutProgram:
    """A program on the device; see `Program`."""

    rounds: Any  #: (R + 1, 2)
    #: (M, 5) tree, output, place, where its table begins, and whether it is the first of its place
    terms: Any
    scales: Any
    moves: Any  #: (Q, 3) tree, output, and where its table begins
    steps: Any
    draws: Any
    outputs: int  #: least number that it is of
    places: Numbers  #: that a term puts something into, on the host

    @classmethod
    def of(cls, program: Program, sizes: Numbers, n_rows: int) -> PutProgram:
        """Copies a program for trees of these sizes once it is known to stay within them."""
        terms = program.terms
        moves = program.moves
        rounds = program.rounds
        for name, array, columns in (
            ("rounds", rounds, 2),
            ("terms", terms, 3),
            ("moves", moves, 2),
        ):
            expect(name, array, (len(array), columns), np.int64)
        ends = [(0, 0), (len(terms), len(moves))]
        if (
            not len(rounds)
            or (rounds[[0, -1]] != ends).any()
            or (np.diff(rounds, axis=0) < 0).any()
        ):
            raise ValueError(
                "rounds must begin with 0, increase, and end with the number of terms and of moves"
            )
        begins = []
        for name, some, table in (
            ("terms", terms, program.scales),
            ("moves", moves, program.steps),
        ):
            if (some < 0).any() or (some[:, 0] >= len(sizes)).any():
                raise ValueError(f"{name} has a tree, an output or a place that does not exist")
            own = np.cumsum(sizes[some[:, 0]])
            expect(
                "scales" if name == "terms" else "steps", table, (int(own[-1]) if len(own) else 0,)
            )
            begins.append(own - sizes[some[:, 0]])
        if program.draws is not None:
            expect("draws", program.draws, (len(sizes), n_rows), np.uint8)
        places, first = np.unique(terms[:, 2], return_index=True)
        fresh = np.zeros(len(terms), dtype=np.int64)
        fresh[first] = 1
        outputs = 1 + max(terms[:, 1].max(initial=-1), moves[:, 1].max(initial=-1))
        put = cp.asarray
        return cls(
            put(rounds),
            put(np.column_stack([terms, begins[0], fresh])),
            put(program.scales),
            put(np.column_stack([moves, begins[1]])),
            put(program.steps),
            None if program.draws is None else put(program.draws),
            int(outputs),
            places,
        )


class CudaFactors(KeptCells):
    """Factors that single rows put into each place of a fit."""

    @within_memory()
    def gradient_factors(
        self, program: Program, intercepts: Any, slopes: Any, state: Any, first: int, out: Any
    ) -> None:
        expect_output("state", state, tuple(getattr(state, "shape", ())[:2]))
        outputs, rows = state.shape
        expect("intercepts", intercepts, (outputs, rows))
        expect("slopes", slopes, (outputs, rows))
        expect_output("out", out, (len(out), rows))
        expect_rows(first, rows, self.n_rows)
        link = LINKS.index(program.link)
        kept = PROGRAMS.setdefault(program, Cache())
        make = partial(PutProgram.of, program, np.diff(self.starts), self.n_rows)
        put: PutProgram = kept.get(self.starts.tobytes(), make)
        if put.outputs > outputs or put.places.max(initial=-1) >= len(out):
            raise ValueError("the program has an output or a place that state or out does not have")
        moved = self._put(state)
        if is_host(out):
            made = cp.empty(out.shape)
        else:
            made = out
        left = np.setdiff1d(np.arange(len(out)), put.places)
        if len(left):
            made[cp.asarray(left)] = 0.0
        if rows:
            walked = (
                put.rounds,
                len(put.rounds) - 1,
                put.terms,
                put.scales,
                put.moves,
                put.steps,
                put.draws,
            )
            rest = (
                link,
                program.product,
                outputs,
                self._put(intercepts),
                self._put(slopes),
                first,
                rows,
            )
            grid = (blocks(rows, THREADS),)
            self._run(
                "gradient_factors",
                grid,
                (THREADS,),
                self.cells,
                self.n_rows,
                *walked,
                *rest,
                moved,
                made,
            )
        for given, found in ((state, moved), (out, made)):
            if is_host(given):
                found.get(out=given)

    @within_memory()
    def factor_sums(
        self, factors: Any, codes: Any, first: int, sums: Any, trees: Numbers | None = None
    ) -> None:
        own = self.some(trees)
        rows = len(codes)
        groups = sums.shape[1]
        expect("factors", factors, (len(own.trees), rows))
        expect("codes", codes, (rows,), np.int64)
        expect_rows(first, rows, self.n_rows)
        expect_output("sums", sums, (own.n_cells, groups))
        if not rows or not sums.size or not len(own.trees):
            return
        n_chunks = max(1, min(-(-rows // CHUNK), PARTIAL_BYTES // (8 * sums.size), MOST_CHUNKS))
        chunk = -(-rows // n_chunks)
        partial_sums = cp.zeros((n_chunks, *sums.shape))
        read = (
            self.cells,
            self.n_rows,
            own.trees,
            len(own.trees),
            own.starts,
            self._put(factors),
            self._put(codes),
        )
        grid = (len(own.trees), n_chunks)
        self._run("factor_sums", grid, (32,), *read, groups, first, rows, chunk, partial_sums)
        found = partial_sums.sum(axis=0)
        if not is_host(sums):
            sums += found
        else:
            sums += found.get()
