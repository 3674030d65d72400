"""Reductions of effects, one number for each explained row, output and training row; and where the rows are."""

from axil.effects.groups import Groups
from axil.effects.moments import Moments
from axil.effects.reduction import Found, Reduction
from axil.effects.shards import Here, Shards, answer
from axil.effects.top import Best, Ranked, TopRows
from axil.effects.whole import Whole
