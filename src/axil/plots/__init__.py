"""Pictures of explanations, with matplotlib (``pip install 'axil[plots]'``); docs/plots.md shows each.

A plot has the name of what it draws, as an explanation or an explainer spells it: ``plots.weights`` draws
``explanation.weights``, ``plots.blame`` what ``explainer.blame`` returns. Every function takes ``ax=`` and returns the axes that
it drew on; without one it makes a figure of its own, ``ax.figure``, which pyplot does not know of. Nothing is shown, and no
setting of matplotlib is changed.

Where one prediction is drawn, ``query`` is its position in what was given and ``output`` the name of one of several outputs.
Blue is positive and dark, orange is negative and light. Weights and what follows from them hold with the fitted structure held
fixed, and the axes say so; those of a `JacobianExplainer` are called derivatives.
"""

from axil.plots.bars import blame, group, weights
from axil.plots.curves import concentration, leverage, loo_curve, removal
from axil.plots.heat import matrix
from axil.plots.intervals import calibration, coverage, fan
from axil.plots.labels import audit
from axil.plots.points import targets, weights_against
from axil.plots.timeline import timeline
from axil.plots.waterfall import contributions

__all__ = [
    "audit",
    "blame",
    "calibration",
    "concentration",
    "contributions",
    "coverage",
    "fan",
    "group",
    "leverage",
    "loo_curve",
    "matrix",
    "removal",
    "targets",
    "timeline",
    "weights",
    "weights_against",
]
