"""Effects: one number for each query, output and training row; what reduces them, and where the rows are."""

from axil.effects.groups import Groups
from axil.effects.moments import Moments
from axil.effects.shards import Here, Shards, answer
from axil.effects.source import (
    DELETIONS,
    DERIVATIVES,
    FIRST_ORDER,
    PUSHES,
    STEPS,
    WEIGHTS,
    Effects,
    Reduction,
    Shard,
    Source,
)
from axil.effects.top import Best, Ranked, TopRows
from axil.effects.whole import Whole
