"""LeafFit: leaves of trees that were fitted again at the same splits, as a library writes them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray, LeafArray
from axil.structure.newton import NewtonRule
from axil.structure.node_rule import NodeRule

NEGLIGIBLE = (
    2.0**-70
)  # far below the least second derivative of one row, 1e-16, and held by single precision


@dataclass(frozen=True)
class LeafFit:
    """L leaves of T trees, which serve K outputs, fitted again."""

    n_leaves: NDArray[np.int64]  #: (T,)
    columns: NDArray[np.int64]  #: (T,) which of all the model's trees these are
    rates: FloatArray  #: (T,) what values are multiplied by in a prediction
    raw: FloatArray  #: (L, K) values before the rate
    sums: FloatArray  #: (L, K) of weight * draw * residual, or of -weight * draw * gradient
    weights: FloatArray  #: (L,) of weight * draw
    counts: NDArray[np.int64]  #: (L,) rows that were drawn
    base: FloatArray  #: (outputs,) the start of predictions, or scores, as numbers
    share: float  #: how much of the base is in a prediction
    estimated: bool  #: whether the base follows from the targets
    n_rows: int  #: of the fit
    rule: NewtonRule  #: how values follow from sums and weights, or hessians
    outputs: NDArray[np.int64] | None = (
        None  #: (T,) the output that each tree serves; None: all of them
    )
    #: (L, 1), or (L, K) of each output, of weight * draw * second derivative; None: these are 1, as
    #: of squared error
    hessians: FloatArray | None = None
    #: (outputs,) the targets' means that scores of ``base`` stand for; None: the base itself
    means: FloatArray | None = None
    class_weights: FloatArray | None = (
        None  #: (C,) weights of classes that the library counted or was given; None: there are none
    )
    #: whether nodes without rows have their parents' values, as those of averaged trees have
    inherits: bool = False
    row_weights: FloatArray | None = (
        None  #: (n_rows,) sample weights, as scikit-learn's forests keep them; None: there are none
    )

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where the leaves of each tree begin among all leaves, (T + 1,)."""
        return np.concatenate([[0], np.cumsum(self.n_leaves)]).astype(np.int64)

    def begins(self, t: int) -> int | None:
        """Return the output that tree t is the first tree of, or None."""
        if self.outputs is None:
            if t == 0:
                return 0
            return None
        k = int(self.outputs[t])
        if t == int(np.argmax(self.outputs == k)):
            return k
        return None

    @property
    def values(self) -> FloatArray:
        """What each leaf adds to a prediction, (L, K)."""
        return np.repeat(self.rates, self.n_leaves)[:, None] * self.raw

    def nodes(self, t: int, children: LeafArray, leaves: LeafArray) -> NodeFit:
        """Return all M nodes of tree t.

        A node has a larger number than its parent, and nodes of the rule are numbered likewise.

        Parameters
        ----------
        t : int
        children : array of shape (M, 2)
            The children of each node, negative at leaves.
        leaves : array of shape (L_t,)
            The nodes that are leaves, in the order of the leaves.
        """
        places = slice(int(self.starts[t]), int(self.starts[t + 1]))
        if self.hessians is None:
            bends = self.weights[:, None]
        else:
            bends = self.hessians
        n_outputs = self.sums.shape[1]
        parts = [
            self.sums[places],
            bends[places],
            self.weights[places, None],
            self.counts[places, None],
        ]
        totals = np.zeros((len(children), n_outputs + bends.shape[1] + 2))
        totals[leaves] = np.concatenate(parts, axis=1)
        sizes = np.zeros(len(children), dtype=np.int64)
        sizes[leaves] = 1
        for node in np.flatnonzero(children[:, 0] >= 0)[::-1]:
            totals[node] = totals[children[node]].sum(axis=0)
            sizes[node] = sizes[children[node]].sum()
        sums = totals[:, :n_outputs]
        bends = totals[:, n_outputs:-2]
        weights = totals[:, -2]
        counts = totals[:, -1]
        l2 = self.rule.l2[places][np.isfinite(self.rule.l2[places])].min(initial=np.inf)
        if not isinstance(self.rule, NodeRule):
            of_outputs = np.broadcast_to(bends, sums.shape)
            steps = [
                self.rule.step(column, own_bends + l2)
                for column, own_bends in zip(sums.T, of_outputs.T)
            ]
            values = np.stack(steps, axis=1)
        else:
            values = self._node_values[int(self.rule.nodes.starts[t]) :][
                : len(children), None
            ].copy()
            if n_outputs == 2:  # shares of two classes
                values = np.hstack([values, 1.0 - values])
        values[leaves] = self.raw[places]
        # A rule that shares the values of parents has done this, and keeps nodes in their bounds.
        if self.inherits and not self.rule.smooths_nodes:
            for node in np.flatnonzero(children[:, 0] >= 0):
                below = children[node][
                    (weights[children[node]] == 0) & (children[children[node], 0] >= 0)
                ]
                values[below] = values[node]
        gains = np.zeros(len(values))
        if np.isfinite(l2):  # of a plain sum S it is S^2 / (H + l2)
            lowered = 2 * (sums * values - self.rule.l1 * np.abs(values)) - (bends + l2) * values**2
            gains = lowered.sum(axis=1)
        return NodeFit(
            values, weights, bends.mean(axis=1), np.rint(counts).astype(np.int64), gains, sizes
        )

    @cached_property
    def _node_values(self) -> FloatArray:
        """The values of all nodes of the rule, before the learning rate."""
        assert isinstance(self.rule, NodeRule)
        if self.hessians is None:
            hessians = self.weights
        else:
            hessians = self.hessians[:, 0]
        return self.rule.node_values(self.sums[:, 0], hessians).bounded


@dataclass(frozen=True)
class NodeFit:
    """The nodes of one tree, fitted again."""

    values: FloatArray  #: (M, K) as leaves, before the rate
    weights: FloatArray  #: (M,)
    hessians: FloatArray  #: (M,) the means of those of all outputs
    counts: NDArray[np.int64]  #: (M,)
    gains: FloatArray  #: (M,) by how much the values lower twice the loss
    sizes: NDArray[np.int64]  #: (M,) the number of leaves below each node

    def positive(self, of_nodes: FloatArray) -> FloatArray:
        """Return sums over the leaves of nodes, (M,), with `NEGLIGIBLE` per leaf instead of zero.

        Libraries divide by them for Shapley values, so a leaf that has lost all its rows needs some
        weight.
        """
        return np.where(of_nodes == 0, NEGLIGIBLE * self.sizes, of_nodes)
