"""The frozen structure of a fitted ensemble: all that decides the weights."""

from axil.structure.ancestors import Ancestors
from axil.structure.class_counts import UNKNOWN, ClassCounts
from axil.structure.cut import Cut, CutRows
from axil.structure.isotonic import Chains, IsotonicRule
from axil.structure.newton import LinearLeaves, NewtonRule
from axil.structure.node_rule import NodeRule, with_nodes
from axil.structure.nodes import Nodes
from axil.structure.ranks import RankedFit, Ranks
from axil.structure.records import RowTotals, Transferable, aligned
from axil.structure.rule_state import RuleState
from axil.structure.trees import Coefficients, Structure, all_n_leaves, cell_dtype, output_groups
