"""BoostIn and LeafInfluence of a classifier, from the gradients g and second derivatives h of its replayed fit.

A leaf's value is v = -G / (H + l2). With a row's weight it moves by ``v_G g_j + v_H h_j``, v_G = dv/dG and v_H = dv/dH.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from axil.arrays import FloatArray
from axil.baselines.classifier import ClassQueries, FittedClassifier
from axil.kernels.choose import host_backend
from axil.replay.replayed_stages import Round
from axil.trees.losses import Softmax

NONE, ALL = np.zeros(0, dtype=np.int64), np.zeros(1, dtype=np.int64)  # of one tree


def add_boostin(fit: FittedClassifier, queries: ClassQueries, out: FloatArray) -> None:
    """Add BoostIn's scores to ``out`` (n, N)."""
    w, sums = fit.walked, np.zeros(out.T.shape)
    assert queries.targets is not None
    for one, rows, asked in fit.rounds(queries):
        gradients = np.broadcast_to(fit.loss.slopes(queries.targets, asked).g, asked.shape)
        g, h = _row_slopes(fit, one, rows)
        for place, stage in enumerate(one.stages):
            t, k, rate = int(w.stage_tree[stage]), int(w.stage_output[stage]), fit.rates[stage]
            step, leaf = w.steps[stage], queries.leaves[:, t]
            if step.inverse is None:
                pulled = step.by_g[leaf] * gradients[:, k]
            else:  # leaf values of all classes are solved for together
                pulled = -np.einsum("im,im->i", step.inverse[leaf, place], gradients)
            table = np.zeros((len(step.value), len(queries)))
            table[leaf, np.arange(len(queries))] = -rate * pulled
            value = (
                1.0 if step.inverse is not None else step.value[w.leaves[t]]
            )  # which h then has in it
            brings = w.weights * w.counted(t) * (g[:, k] + rate * value * h[:, k])
            _sweep(fit, t, sums, ALL, table, brings, NONE)
    out += sums.T


def add_leaf_influence(fit: FittedClassifier, queries: ClassQueries, out: FloatArray) -> None:
    """Add LeafInfluence's scores to ``out`` (n, N): the published recursion, run backwards for all rows at once."""
    w, sums = fit.walked, np.zeros(out.T.shape)
    assert queries.targets is not None
    n, columns = len(queries), np.arange(len(queries))
    seeds = -np.broadcast_to(
        fit.loss.slopes(queries.targets, queries.scores).g, queries.scores.shape
    )
    moves = [
        np.zeros((fit.n_rows, n)) for _ in range(seeds.shape[1])
    ]  # of the loss by the rows' scores, less the sign
    for one, rows, _ in fit.rounds(queries):
        slopes = fit.loss.slopes(w.targets, rows)
        g, h = (np.broadcast_to(one, rows.shape) for one in (slopes.g, slopes.h))
        chain = _own_slopes(fit, rows)
        second = slopes.g_by_score * chain if fit.loss.unit_hessian else h
        third = slopes.h_by_score * chain
        for stage in one.stages:
            t, k, step = int(w.stage_tree[stage]), int(w.stage_output[stage]), w.steps[stage]
            table = np.empty((len(step.value), n))
            _sweep(fit, t, moves[k], NONE, table, None, ALL)
            table[queries.leaves[:, t], columns] += seeds[:, k]
            table *= fit.rates[stage]
            leaf, counted = w.leaves[t], w.weights * w.counted(t)
            _sweep(
                fit,
                t,
                sums,
                ALL,
                table,
                counted * (step.by_g[leaf] * g[:, k] + step.by_h[leaf] * h[:, k]),
                NONE,
            )
            passed = counted * (step.by_g[leaf] * second[:, k] + step.by_h[leaf] * third[:, k])
            _sweep(fit, t, moves[k], ALL, table, passed, NONE)
    out += sums.T


def _row_slopes(
    fit: FittedClassifier, one: Round, rows: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """g and h (N, K); of a joint step h times rate and value, as the row's own part of the leaf's matrix gives it."""
    w, loss = fit.walked, fit.loss
    if isinstance(loss, Softmax) and loss.joint:
        leaf = w.leaves[int(w.stage_tree[one.stages[0]])]
        solved = [w.steps[stage].solved for stage in one.stages]
        values = np.stack([value[leaf] for value in solved if value is not None], axis=1)
        slopes = loss.joint_slopes(w.targets, rows, values)
    else:
        slopes = loss.slopes(w.targets, rows)
    return np.broadcast_to(slopes.g, rows.shape), np.broadcast_to(slopes.h, rows.shape)


def _own_slopes(fit: FittedClassifier, rows: FloatArray) -> FloatArray:
    """(N, K): derivative of an output's mean by its own score where slopes are by the mean, else 1."""
    if not fit.loss.coupled:
        return np.ones_like(rows)
    p = fit.loss.mean(rows)
    return np.asarray(p * (1 - p))


def _sweep(
    fit: FittedClassifier,
    tree: int,
    state: FloatArray,
    apply: Any,
    table: FloatArray,
    rows: Any,
    gather: Any,
) -> None:
    """``state[j] += rows[j] table[leaf of j]``, or ``table[l] = sum of state over l``."""
    leaves, starts = fit.walked.leaves[tree : tree + 1], np.array([0, len(table)])
    host_backend(fit.n_threads).rows(leaves, starts).sweep(
        state, apply, table, rows, gather, table, None
    )
