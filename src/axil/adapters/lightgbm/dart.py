"""DART's drops in LightGBM, from parameters to coefficients; its draws come from the generator of the row samplers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from axil.adapters.lightgbm.bagging import BLOCK, FACTORS, LOW, TERMS
from axil.arrays import FloatArray


@dataclass(frozen=True)
class LightGBMDart:
    """DART's settings, and the rates that follow from them (src/boosting/dart.hpp)."""

    rate: float
    drop_rate: float
    skip_drop: float
    max_drop: int
    seed: int
    uniform: bool
    xgboost: bool

    def run(self, stages: Sequence[Sequence[bool]], n_trees: int) -> tuple[FloatArray, FloatArray]:
        """Coefficients omega (n_trees + 1, n_trees) and beta (n_trees + 1,) of the first trees.

        A stage is one training, which may go on from another, and says of each attempt at a tree whether it found a split.
        One that did not leaves the trees it dropped as they are then: gone from the scores, their sign turned in the
        model. Only the first of all attempts leaves a tree even so, which holds the base alone.
        """
        omega, beta = np.zeros((n_trees + 1, n_trees)), np.ones(n_trees + 1)
        size = 1 + sum(map(len, stages))
        model, score = np.zeros((2, size))  # scales of the trees in the model and in the scores
        base = np.ones(2)  # likewise of the base, which is part of the first tree
        t = 0
        for outcomes in stages:
            begin, drops = t, _Drops(self)
            for found in outcomes:
                dropped, new = drops.next()
                dropped = dropped + begin
                holds_base = 0 in dropped
                model[dropped] *= -1
                score[dropped] += model[dropped]
                base = np.array([-base[0], base[1] - base[0]]) if holds_base else base
                if (found or t == 0) and t < n_trees:
                    omega[t, :t], beta[t] = score[:t], base[1]
                if not found:
                    t = max(t, 1)
                    continue
                model[t] = score[t] = new
                t += 1
                factor = drops.grown()
                model[dropped] *= factor
                score[dropped] += model[dropped]
                base = (
                    np.array([base[0] * factor, base[1] + base[0] * factor]) if holds_base else base
                )
        omega[n_trees], beta[n_trees] = model[:n_trees], base[0]
        return omega, beta


class _Drops:
    """The drops of one training."""

    def __init__(self, dart: LightGBMDart):
        self._dart = dart
        self._word = np.uint32(dart.seed & 0xFFFFFFFF)
        self._weights = np.zeros(0)
        self._total = 0.0
        self._dropped = np.zeros(0, dtype=np.int64)
        self._new = 0.0

    def next(self) -> tuple[NDArray[np.int64], float]:
        """Which trees, from 0, one more attempt drops, and the rate of the tree that comes of it."""
        d, n = self._dart, len(self._weights)
        chance = np.full(n, d.drop_rate)
        if d.uniform and d.max_drop > 0 and n:
            chance = np.full(n, min(d.drop_rate, d.max_drop / n))
        elif not d.uniform and n:
            inverse = n / self._total
            capped = (
                min(d.drop_rate, d.max_drop * inverse / self._total)
                if d.max_drop > 0
                else d.drop_rate
            )
            chance = capped * self._weights * inverse
        self._dropped = np.zeros(0, dtype=np.int64)
        if not self._draw(1)[0] < d.skip_drop:
            before = self._word
            self._dropped = np.flatnonzero(self._draw(n) < chance)
            if 0 <= d.max_drop <= len(self._dropped) and len(
                self._dropped
            ):  # looked at after a drop: 0 allows one
                self._dropped = self._dropped[: max(d.max_drop, 1)]
                self._word = before
                self._draw(int(self._dropped[-1]) + 1)
        k = len(self._dropped)
        self._new = d.rate / (d.rate + k if d.xgboost and k else 1 if d.xgboost else 1 + k)
        return self._dropped, self._new

    def grown(self) -> float:
        """Note that the attempt led to a tree; by what factor the dropped ones, their sign turned, come back."""
        d, k = self._dart, len(self._dropped)
        share = (
            1 / (k + d.rate) if d.xgboost else 1 / (k + 1)
        )  # not d.rate / (k + d.rate), as it should be
        for i in (
            self._dropped
        ):  # one after the other, since draws are compared with these to the last digit
            self._total -= self._weights[i] * share
        self._weights[self._dropped] *= k / (k + d.rate) if d.xgboost else k / (k + 1)
        self._weights = np.append(self._weights, self._new)
        self._total += self._new
        return self._new * (-k / d.rate) if d.xgboost else share * -k

    def _draw(self, n: int) -> FloatArray:
        """(n,) draws, one after the other."""
        found = []
        while n > 0:
            words = FACTORS[:n] * self._word + TERMS[:n]
            self._word = words[-1]
            found.append(((words & LOW) >> np.uint32(16)) / 32768.0)
            n -= BLOCK
        return np.concatenate([np.zeros(0), *found])
