"""Asked: rows to explain, with their offsets and the model that is asked about them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from axil import inputs
from axil.errors import InputError
from axil.jacobian.base import Differentiated
from axil.jacobian.boosting import Boosting
from axil.replay.queries import Offsets


@dataclass(frozen=True, eq=False)
class Asked:
    """Checked rows to explain. Only boosted models take offsets of them."""

    whole: Differentiated
    rows: Any  #: (n, features)
    offsets: Offsets | None = None

    @classmethod
    def of(cls, model: Differentiated, rows: Any, init_score: Any) -> Asked:
        """With checked offsets, where the user gives any."""
        if init_score is None:
            return cls(model, rows)
        if not isinstance(model, Boosting):
            raise InputError(
                f"init_score is not taken here: a {model.library} model that is not boosted has no offsets. Leave it out."
            )
        return cls(model, rows, model.offsets_of(init_score, rows.shape[0]))

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def __getitem__(self, part: slice) -> Asked:
        """Some of the rows."""
        offsets = None if self.offsets is None else self.offsets[part]
        return replace(self, rows=inputs.take_rows(self.rows, part), offsets=offsets)

    @property
    def labels(self) -> NDArray[Any]:
        """(n,): the user's."""
        return inputs.row_labels(self.rows)

    @property
    def model(self) -> Differentiated:
        """The model for exactly these rows."""
        return self.whole.shifted(self.offsets) if isinstance(self.whole, Boosting) else self.whole

    @property
    def boosted(self) -> Boosting:
        """The model for exactly these rows, where the caller knows that it is boosted."""
        assert isinstance(self.whole, Boosting)
        return self.whole.shifted(self.offsets)
