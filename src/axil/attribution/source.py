"""Sources: names of the number that belongs to an explained row and a training row."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from axil.attribution import notes


class Quantity(Enum):
    """The number that belongs to an explained row and a training row.

    The value is the word that users read.
    """

    WEIGHT = "weights"
    CONTRIBUTION = "contributions"
    DERIVATIVE = "derivatives"
    DELETION = "deletions"
    FIRST_ORDER = "first-order"
    SIMILARITY = "similarities"


@dataclass(frozen=True)
class Source:
    """A quantity, with the facts that answers need about it."""

    quantity: Quantity
    note: str  #: what tables say of the number
    adds_up: bool = True  #: whether contributions and intercept add up to the prediction
    available: int = 0  #: bytes that may be worked in

    @property
    def name(self) -> str:
        """The word for the numbers in messages and tables."""
        return self.quantity.value


WEIGHTS = Source(Quantity.WEIGHT, notes.NOTE)
CONTRIBUTIONS = Source(Quantity.CONTRIBUTION, notes.ADDITIVE)
#: what rows put into the steps of trees, of a model whose weights make its predictions
STEP_CONTRIBUTIONS = Source(Quantity.CONTRIBUTION, notes.NOTE, adds_up=False)
# The intercepts of derivatives are what they leave over, of probabilities too, so that their sums
# prove nothing.
DERIVATIVES = Source(Quantity.DERIVATIVE, notes.DERIVATIVE, adds_up=False)
FIRST_ORDER = Source(Quantity.FIRST_ORDER, notes.FIRST_ORDER, adds_up=False)
#: the share of trees in which two rows are in one leaf, of which training rows have no numbers else
SIMILARITIES = Source(Quantity.SIMILARITY, notes.SIMILARITY, adds_up=False)
DELETIONS = Source(Quantity.DELETION, notes.NOTE, adds_up=False)
