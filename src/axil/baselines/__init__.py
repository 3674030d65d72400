"""Other ways to score training rows, on the structure that axil reads.

They are BoostIn, LeafInfluence, TREX, TreeSim, LeafMatch and Random:

    BoostIn(explainer).scores(X, y)      # (n, n_train) float64, of regression or of a classifier

They are here to be compared with. None of them decomposes a prediction, as `axil.Explainer` does.
Orientation is (explained rows, training rows). One sign for all, with L = |y - F(x)|^2 / 2 summed
over outputs, or a classifier's log-loss:

    a positive score: having the training row lowers L at (x, y);  a negative one: it raises L

each by the method's own account of what the row does to F(x). The scores are what the authors'
package `tree_influence` computes, which `docs/baselines.md` compares them with:

- BoostIn: a sum of products of gradients, positive where the row lowers the loss.
- LeafInfluence: -w_j dL / dw_j: to first order, what the whole row does.
- TREX: how the loss of a surrogate rises without the row's term.
- TreeSim: a similarity, positive where both targets are on the same side of F(x), or both rows of
  one class; without y never negative.
- LeafMatch: the share of trees in which both rows are in one leaf; never negative, whatever y is.
- Random: no sign.

Without y, BoostIn, LeafInfluence and TREX score the prediction in place of the loss: a positive
score means that having the row raises the prediction. The model must then have one output. Rows
of weight zero (held out by the fit) score zero, except in Random.
"""

from axil.baselines.base import Baseline, Random
from axil.baselines.influence import BoostIn, LeafInfluence
from axil.baselines.treesim import LeafMatch, TreeSim
from axil.baselines.trex import TREX

__all__ = ["TREX", "Baseline", "BoostIn", "LeafInfluence", "LeafMatch", "Random", "TreeSim"]


def __dir__() -> list[str]:
    return __all__
