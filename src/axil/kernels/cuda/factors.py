"""Factors of rows in every place of a fit: the walk through its rounds, and sums by group."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import cupy as cp
import numpy as np

from axil.kernels import LINKS, Numbers, Program
from axil.kernels.cuda.cells import KeptCells
from axil.kernels.cuda.checks import expect, expect_output, expect_rows
from axil.kernels.cuda.launch import THREADS, blocks, within_memory
from axil.machine.arrays import DeviceArray, is_host

CHUNK = 1024  # least rows of one tree that a warp adds up
PARTIAL_BYTES = 1 << 28  # of the sums of all chunks
MOST_CHUNKS = 65535


@dataclass(frozen=True)
class PutProgram:
    """A program on the device; see `Program`."""

    rounds: DeviceArray  #: (R + 1, 2)
    #: (M, 5) tree, output, place, where its table begins, and whether it is the first of its place
    terms: DeviceArray
    scales: DeviceArray
    moves: DeviceArray  #: (Q, 3) tree, output, and where its table begins
    steps: DeviceArray
    draws: DeviceArray
    outputs: int  #: least number that it is of
    places: Numbers  #: that a term puts something into, on the host

    @classmethod
    def of(cls, program: Program, sizes: Numbers, n_rows: int) -> PutProgram:
        """Copy a program for trees of these sizes after checking that it stays within them."""
        terms = program.terms
        moves = program.moves
        rounds = program.rounds
        for name, array, columns in (
            ("rounds", rounds, 2),
            ("terms", terms, 3),
            ("moves", moves, 2),
        ):
            expect(name, array, (len(array), columns), np.int64)
        bounds = [(0, 0), (len(terms), len(moves))]
        is_increasing = len(rounds) > 0 and (np.diff(rounds, axis=0) >= 0).all()
        if not is_increasing or (rounds[[0, -1]] != bounds).any():
            raise ValueError(
                "rounds must begin with 0, increase, and end with the number of terms and of moves"
            )
        begins = []
        for name, entries, table_name, table in (
            ("terms", terms, "scales", program.scales),
            ("moves", moves, "steps", program.steps),
        ):
            if (entries < 0).any() or (entries[:, 0] >= len(sizes)).any():
                raise ValueError(f"{name} has a tree, an output or a place that does not exist")
            entry_sizes = sizes[entries[:, 0]]
            expect(table_name, table, (int(entry_sizes.sum()),))
            begins.append(np.cumsum(entry_sizes) - entry_sizes)
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
    """The factors of single rows in each step of a fit."""

    @within_memory()
    def gradient_factors(
        self,
        program: Program,
        intercepts: DeviceArray,
        slopes: DeviceArray,
        state: DeviceArray,
        first: int,
        out: DeviceArray,
    ) -> None:
        expect_output("state", state, tuple(getattr(state, "shape", ())[:2]))
        outputs, rows = state.shape
        expect("intercepts", intercepts, (outputs, rows))
        expect("slopes", slopes, (outputs, rows))
        expect_output("out", out, (len(out), rows))
        expect_rows(first, rows, self.n_rows)
        link = LINKS.index(program.link)
        make = partial(PutProgram.of, program, np.diff(self.starts), self.n_rows)
        put: PutProgram = program.device_copies.get(self.starts.tobytes(), make)
        if put.outputs > outputs or put.places.max(initial=-1) >= len(out):
            raise ValueError("the program has an output or a place that state or out does not have")
        device_state = self._put(state)
        if is_host(out):
            device_out = cp.empty(out.shape)
        else:
            device_out = out
        empty_places = np.setdiff1d(np.arange(len(out)), put.places)
        if len(empty_places):
            device_out[cp.asarray(empty_places)] = 0.0
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
            row_arguments = (
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
                *row_arguments,
                device_state,
                device_out,
            )
        for output, device_output in ((state, device_state), (out, device_out)):
            if is_host(output):
                device_output.get(out=output)

    @within_memory()
    def factor_sums(
        self,
        factors: DeviceArray,
        codes: DeviceArray,
        first: int,
        sums: DeviceArray,
        trees: Numbers | None = None,
    ) -> None:
        chosen = self.some(trees)
        rows = len(codes)
        groups = sums.shape[1]
        expect("factors", factors, (len(chosen.trees), rows))
        expect("codes", codes, (rows,), np.int64)
        expect_rows(first, rows, self.n_rows)
        expect_output("sums", sums, (chosen.n_cells, groups))
        if not rows or not sums.size or not len(chosen.trees):
            return
        n_chunks = max(1, min(-(-rows // CHUNK), PARTIAL_BYTES // (8 * sums.size), MOST_CHUNKS))
        chunk = -(-rows // n_chunks)
        partial_sums = cp.zeros((n_chunks, *sums.shape))
        read = (
            self.cells,
            self.n_rows,
            chosen.trees,
            len(chosen.trees),
            chosen.starts,
            self._put(factors),
            self._put(codes),
        )
        grid = (len(chosen.trees), n_chunks)
        self._run("factor_sums", grid, (32,), *read, groups, first, rows, chunk, partial_sums)
        total = partial_sums.sum(axis=0)
        if not is_host(sums):
            sums += total
        else:
            sums += total.get()
