"""Account: facts about predictions that pushes add up to, beside the pushes themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from axil.machine.threads import Kept
from axil.types import Array


@dataclass(frozen=True, eq=False)
class Account:
    """Numbers beside an additive account: what the link makes of the scores, and derivatives, computed when asked for."""

    meaning: str  #: of a score behind the link: "probability", "mean", or "" where the score is all there is
    means: Array | None  #: (n, K) what the link makes of the scores; None where it leaves them as they are
    #: the `WeightedSums` of derivatives by the targets, for rows (n, features) and their offsets
    derive: Callable[[Any, Any], Any]
    offsets: Any = None  #: of the rows, which can be taken by position; None for none
    kept: Kept = field(default_factory=Kept, repr=False)
    scored: Any = None  #: the name of the class that scores are of, the second of two; None where there are not two

    def derived(self, X: Any) -> Any:
        """The derivatives of these predictions, whose rows are X, computed once."""
        return self.kept.get("derived", lambda: self.derive(X, self.offsets))

    def __getitem__(self, which: Any) -> Account:
        """The account of some of the predictions, by position; with their derivatives where these are known."""
        kept = Kept()
        for name, known in self.kept.known().items():
            kept.get(name, lambda own=known[which]: own)  # type: ignore[misc]
        means, offsets = (None if own is None else own[which] for own in (self.means, self.offsets))
        return Account(self.meaning, means, self.derive, offsets, kept, self.scored)
