"""Reductions of effects, one number for each explained row, output and training row."""

from axil.reductions.groups import Groups
from axil.reductions.reduction import Moments, Reduction, ReductionResult
from axil.reductions.shards import Here, Shards, answer
from axil.reductions.top import Best, Ranked, TopRows
from axil.reductions.whole import Whole
