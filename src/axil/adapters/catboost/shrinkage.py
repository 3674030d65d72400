"""How CatBoost shrinks the scores of losses that it keeps as exponentials.

CatBoost keeps ``exp(F)`` for log-losses and Poisson (IsStoreExpApprox, enum_helpers.cpp). Model
shrinkage then takes the logarithm of what it keeps by P. Mineiro's approximation in single
precision, which has about four digits (FastLogf, library/cpp/fast_log; ScaleAllApproxes,
catboost/private/libs/algo/approx_updater_helpers.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from axil.arrays import FloatArray

#: Losses for which CatBoost keeps the exponentials of the scores.
KEPT_AS_EXPONENTIALS = ("Logloss", "CrossEntropy", "Poisson", "PairLogit")

# The bits of a number in single precision, and the constants of the approximation.
_MANTISSA_BITS = np.uint32(0x007FFFFF)
_HALF_BITS = np.uint32(0x3F000000)
_BIT_SIZE = np.float32(2.0**-23)
_OFFSET = np.float32(124.22551499)
_LINEAR = np.float32(1.498030302)
_RATIONAL = np.float32(1.72587999)
_POLE = np.float32(0.3520887068)
_LOG_2 = np.float32(0.69314718)


def approximate_log(numbers: FloatArray) -> FloatArray:
    """Return the natural logarithms of positive numbers as CatBoost approximates them."""
    bits = numbers.astype(np.float32).view(np.uint32)
    mantissas = ((bits & _MANTISSA_BITS) | _HALF_BITS).view(np.float32)
    scaled_bits = bits.astype(np.float32) * _BIT_SIZE
    base_2 = scaled_bits - _OFFSET - _LINEAR * mantissas - _RATIONAL / (_POLE + mantissas)
    return np.asarray(_LOG_2 * base_2, dtype=np.float64)


@dataclass(frozen=True)
class ExponentialShrinkage:
    """The shrinkage of scores that CatBoost stores as exponentials, for a fit of one output."""

    factors: FloatArray  #: (T,) what all scores are multiplied by after each tree

    def deviation(self, tree: int, tree_sums: FloatArray, before: FloatArray) -> FloatArray:
        """Return the differences of scores from the sums of their shrunk trees; see `Shrinkage`.

        Parameters
        ----------
        tree : int
            The tree after which the scores are shrunk.
        tree_sums : array
            The sums of the leaf values so far, as exact shrinkage leaves them.
        before : array of the same shape
            The deviation of the scores that the tree was added to.
        """
        factor = self.factors[tree]
        if factor == 1.0:
            return before
        with np.errstate(over="ignore"):
            exponentials = np.exp(tree_sums / factor + before)
            return np.asarray(factor * approximate_log(exponentials) - tree_sums)
