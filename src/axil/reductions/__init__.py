"""Reductions of effects, one number for each explained row, output and training row; and where the rows are."""

from axil.reductions.groups import Groups
from axil.reductions.moments import Moments
from axil.reductions.reduction import Found, Reduction
from axil.reductions.shards import Here, Shards, answer
from axil.reductions.top import Best, Ranked, TopRows
from axil.reductions.whole import Whole
