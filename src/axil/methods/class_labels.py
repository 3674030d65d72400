"""Classes of the training rows, as the other rows see them: which labels look wrong.

The quality of a label is the mean of two numbers: the share of the row's class among the other rows
in its leaves, a tree at a time, and the probability of the class without the row. ``expected`` is
the class of the largest such mean. Shares alone follow the sizes of the classes, and probabilities
alone follow the splits, which have seen the label. Together they find more
(experiments/label_issues.py). In a forest a label is an issue where another class is expected.

Splits of boosted trees have seen the labels more than once: late trees gather the rows of wrong
labels in leaves of their own. Trees therefore count in the shares by the part of the labels that
was left to fit when they were made, and these shares alone also say how many labels to look at: the
issues are the rows of lowest quality, as many as have another expected class or another class of
the largest share. The estimated number of wrong labels is that of the rows of another expected
class.

A user's own out-of-fold probabilities take the place of the shares. They have not seen the label at
all. The issues are the rows of lowest quality, as many as have another expected class or
another class that is confidently likely. A class is that where its probability is at least the mean
of those that rows of this class have. No more rows are issues than confident learning estimates to
be wrong (Northcutt, Jiang and Chuang, JAIR 2021): of each class the share of its rows that are
confidently of another class among those that are confidently of any.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from axil import inputs
from axil.arrays import AnyArray, BoolArray, FloatArray, IntArray
from axil.errors import InputError


@dataclass(frozen=True)
class ClassLabels:
    """The labels of N rows, judged by the other rows."""

    given: IntArray  #: (N,) the class of the training data
    expected: IntArray  #: (N,) the class that the other rows expect
    quality: FloatArray  #: (N,)
    is_label_issue: BoolArray  #: (N,)
    n_wrong: int  #: the estimated number of wrong labels

    @classmethod
    def of_shares(
        cls, labels: FloatArray, shares: FloatArray, probabilities: FloatArray
    ) -> ClassLabels:
        """Judge one-hot labels by class shares around each row and by leave-one-out probabilities.

        All arrays have shape (N, K). One of the two is enough; nan stands for no evidence.
        """
        given_classes = labels.argmax(axis=1)
        means = _means(shares, probabilities)
        is_judged = ~np.isnan(means).any(axis=1)
        expected = np.where(is_judged, np.nan_to_num(means).argmax(axis=1), given_classes)
        quality = _given_quality(means, given_classes)
        is_label_issue = expected != given_classes
        return cls(given_classes, expected, quality, is_label_issue, int(is_label_issue.sum()))

    @classmethod
    def of_boosted_shares(
        cls, labels: FloatArray, shares: FloatArray, probabilities: FloatArray
    ) -> ClassLabels:
        """Judge one-hot labels of a boosted classifier by both; see `of_shares`.

        The trees count in the shares by the part of the labels that they had left to fit.
        """
        given_classes = labels.argmax(axis=1)
        means = _means(shares, probabilities)
        is_judged = ~np.isnan(means).any(axis=1)
        expected = np.where(is_judged, np.nan_to_num(means).argmax(axis=1), given_classes)
        has_shares = ~np.isnan(shares).any(axis=1)
        most_frequent = np.where(has_shares, np.nan_to_num(shares).argmax(axis=1), given_classes)
        is_other_expected = expected != given_classes
        n_contested = int((is_other_expected | (most_frequent != given_classes)).sum())
        n_wrong = int(is_other_expected.sum())
        return cls._of_lowest_quality(labels, means, expected, n_contested, n_wrong)

    @classmethod
    def of_probabilities(
        cls, labels: FloatArray, out_of_fold: FloatArray, probabilities: FloatArray
    ) -> ClassLabels:
        """Judge one-hot labels by the user's out-of-fold probabilities and by leave-one-out ones.

        All arrays have shape (N, K).
        """
        given_classes = labels.argmax(axis=1)
        means = _means(out_of_fold, probabilities)
        expected = means.argmax(axis=1)
        confident = _confident_classes(labels, out_of_fold)
        contested = (expected != given_classes) | ((confident >= 0) & (confident != given_classes))
        n_issues = min(int(contested.sum()), _n_confidently_wrong(given_classes, confident))
        return cls._of_lowest_quality(labels, means, expected, n_issues, n_issues)

    @classmethod
    def _of_lowest_quality(
        cls,
        labels: FloatArray,
        means: FloatArray,
        expected: IntArray,
        n_issues: int,
        n_wrong: int,
    ) -> ClassLabels:
        """Mark the ``n_issues`` rows of lowest quality, and expect the best other class of each."""
        given_classes = labels.argmax(axis=1)
        quality = _given_quality(means, given_classes)
        is_label_issue = np.zeros(len(given_classes), dtype=bool)
        is_label_issue[np.argsort(quality, kind="stable")[:n_issues]] = True
        best_other_classes = np.where(labels > 0, -1.0, means).argmax(axis=1)
        expected = np.where(is_label_issue, best_other_classes, expected)
        return cls(given_classes, expected, quality, is_label_issue, n_wrong)

    def columns(
        self, index: AnyArray, classes: Any, probabilities: FloatArray | None
    ) -> dict[str, Any]:
        """Return the columns of the table, in the order of the rows."""
        names = np.asarray(classes)
        columns: dict[str, Any] = {
            "row": index,
            "given_label": names[self.given],
            "expected_label": names[self.expected],
        }
        if probabilities is not None:
            columns["probability"] = probabilities[np.arange(len(self.given)), self.given]
        return columns | {"label_quality": self.quality, "is_label_issue": self.is_label_issue}


def _means(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return the means of two arrays (N, K), or the known number where the other is nan."""
    means = (first + second) / 2
    means = np.where(np.isnan(second), first, means)
    return np.where(np.isnan(first), second, means)


def _given_quality(means: FloatArray, given_classes: IntArray) -> FloatArray:
    """Return the quality of the label of each row, the mean for its class, from 0 to 1, (N,)."""
    return np.clip(means[np.arange(len(given_classes)), given_classes], 0.0, 1.0)


def _confident_classes(labels: FloatArray, probabilities: FloatArray) -> IntArray:
    """Return the most probable of the confidently likely classes of each row, (N,).

    It is -1 if none is.
    """
    counts = np.maximum(labels.sum(axis=0), 1.0)
    usual = (probabilities * labels).sum(axis=0) / counts
    confident = np.where(labels.any(axis=0) & (probabilities >= usual), probabilities, -1.0)
    return np.where(confident.max(axis=1) >= 0, confident.argmax(axis=1), -1)


def _n_confidently_wrong(given_classes: IntArray, confident: IntArray) -> int:
    """Return the number of wrong labels by confident learning.

    The share of wrong labels of a class is that among its confident rows.
    """
    n_wrong = 0.0
    for k in np.unique(given_classes):
        confident_classes = confident[(given_classes == k) & (confident >= 0)]
        if len(confident_classes):
            n_wrong += (given_classes == k).sum() * (confident_classes != k).mean()
    return round(n_wrong)


def both_classes(second: FloatArray) -> FloatArray:
    """Return the columns of both classes, from a column for the second of two."""
    if second.shape[1] == 1:
        return np.column_stack([1 - second, second])
    return second


def as_probabilities(passed: Any, n: int, n_classes: int) -> FloatArray:
    """Return checked out-of-fold probabilities of all classes, (n, K).

    For two classes the user may pass those of the second.
    """
    numbers = inputs.as_numbers(passed, "out_of_fold", "probabilities, one row per training row")
    if n_classes == 2 and (numbers.ndim < 2 or numbers.shape[1] == 1):
        second = inputs.as_vector(passed, n, "out_of_fold")
        numbers = np.stack([1 - second, second], axis=1)
    probabilities = inputs.as_table(numbers, n, n_classes, "out_of_fold")
    if probabilities.min() < -1e-6 or probabilities.max() > 1 + 1e-6:
        raise InputError(
            f"out_of_fold holds {probabilities.min():.6g} to {probabilities.max():.6g}; "
            f"expected probabilities from 0 to 1, such as "
            'cross_val_predict(model, X, y, method="predict_proba").'
        )
    return probabilities
