"""Other ways to score training rows, on the structure that axil reads: BoostIn, LeafInfluence, TREX, TreeSim and Random.

    BoostIn(explainer).scores(X, y)      # (n, n_train) float64

They are here to be compared with. None of them decomposes a prediction, as `axil.Explainer` does. Orientation is (explained
rows, training rows). One sign for all, with L = |y - F(x)|^2 / 2 summed over outputs:

    a positive score: having the training row lowers L at (x, y);  a negative one: it raises L

each to first order and by the method's own account of what the row does to F(x). The published formulas map to it so:

- BoostIn: a sum of products of gradients, positive where the row lowers the loss. As it is.
- LeafInfluence: dL / dw_j, positive where the row raises the loss. Times -w_j: what the whole row does.
- TREX: alpha_j k(x, j), the row's term in the prediction of a surrogate. Times y - F(x); as it is where y is not given.
- TreeSim: a similarity, positive where both targets are on the same side of F(x). As it is; without y never negative.
- Random: no sign.

Only BoostIn and LeafInfluence need y. Rows of weight zero (held out by the fit) score zero, except in Random.
"""

from axil.baselines.base import Baseline
from axil.baselines.boostin import BoostIn
from axil.baselines.leaf_influence import LeafInfluence
from axil.baselines.random import Random
from axil.baselines.treesim import TreeSim
from axil.baselines.trex import TREX

__all__ = ["TREX", "Baseline", "BoostIn", "LeafInfluence", "Random", "TreeSim"]
