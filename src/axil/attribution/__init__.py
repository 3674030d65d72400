"""Attribution: which number belongs to an explained row and a training row.

It also says what a verified model can answer.
"""

from axil.adapters.contract import Kind
from axil.attribution.capabilities import Capabilities, Location
from axil.attribution.effects import Attribution, Effects, Shard
from axil.attribution.source import (
    CONTRIBUTIONS,
    DELETIONS,
    DERIVATIVES,
    FIRST_ORDER,
    SIMILARITIES,
    STEP_CONTRIBUTIONS,
    WEIGHTS,
    Quantity,
    Source,
)
