"""Words and actual values that a page shows beside the predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from axil.arrays import FloatArray
from axil.errors import InputError, shown
from axil.inputs import as_table, one_hot
from axil.output.page.values import nested, number
from axil.output.predictions import WeightedSums

MOST_LETTERS = 200  # of a title, a unit or the name of the target


@dataclass(frozen=True, eq=False)
class About:
    """A page's title, the unit and name of its targets, and actual values of its n predictions."""

    title: str | None = None
    unit: str | None = None
    target: str | None = None
    y: Any = None  #: (n,) or (n, K), as ``y_train`` was given; None where they are not known
    n: int = 0  #: predictions

    def words(self) -> dict[str, str | None]:
        """The texts of the page."""
        return {"title": self.title, "unit": self.unit, "target": self.target}

    def actual(self, part: WeightedSums) -> FloatArray | None:
        """(n, K) targets as people read them, or (n, 1) class numbers; refuses what the model of ``part`` cannot have."""
        if self.y is None:
            return None
        if part.classes is not None:
            codes = one_hot(self.y, self.n, part.classes, "y", "explained").argmax(axis=1)
            return np.asarray(codes[:, None], dtype=np.float64)
        n_outputs = 1 if part.outputs is None else len(part.outputs)
        given = as_table(self.y, self.n, n_outputs, "y", "explained")
        found = part.scale.inverse(part.scale.forward(given))
        if not np.isfinite(found).all():
            raise InputError(
                f"y holds {given[~np.isfinite(found)][0]:.6g}, which is no target of this model. Pass actual values as y_train "
                "was given."
            )
        return found


NOTHING = About()


def as_words(value: Any, what: str) -> str | None:
    """A line of text, or None."""
    if value is None:
        return None
    if (
        not isinstance(value, str)
        or not value.strip()
        or not value.isprintable()
        or len(value) > MOST_LETTERS
    ):
        raise InputError(
            f"{what} is {shown(value)}; expected one line of text, up to {MOST_LETTERS} letters."
        )
    return value.strip()


def compared(actual: FloatArray, part: WeightedSums, predictions: FloatArray) -> dict[str, Any]:
    """Actual values in short, and how far predictions (n, K) are from them: the median by output, or how many classes are right.

    A few wrong actual values do not move a median.
    """
    if part.classes is None:
        apart = (
            np.median(np.abs(actual - predictions), axis=0)
            if len(actual)
            else np.zeros(actual.shape[1])
        )
        return {"values": nested(actual), "typical": [number(one) for one in apart], "right": None}
    several = predictions.shape[1] > 1
    chosen = (
        predictions.argmax(axis=1) if several else predictions[:, 0] > 0.5
    )  # the probability of the second class
    return {"values": nested(actual), "typical": None, "right": int((chosen == actual[:, 0]).sum())}
