"""Pictures of explanations, with matplotlib (``pip install 'axil[plots]'``).

docs/plots.md shows each.

A plot has the name of what it draws, as an explanation or an explainer spells it: ``plots.weights``
draws ``explanation.weights``, ``plots.influence`` what ``explainer.influence`` returns. Every
function takes ``ax=`` and returns the axes that it drew on; without one it makes a new figure of
pyplot's, which notebooks show at the end of the cell. No setting of matplotlib is changed, and
colours follow the style in use.

Where one prediction is drawn, ``query`` is its position in what was given, or its label, and
``output`` the name of one of several outputs. Blue is positive, orange is negative. Weights and
what follows from them hold with the fitted tree structure fixed; those that only differentiate a
prediction are called derivatives.
"""

from axil.plots.bar_plots import group, influence, weights
from axil.plots.coverage_map import coverage_map
from axil.plots.curve_plots import concentration, leave_one_out_curve, leverage, removal
from axil.plots.heat_map import matrix
from axil.plots.interval_plots import calibration, coverage, fan
from axil.plots.overall_plots import overall
from axil.plots.point_plots import label_issues, targets, weights_against
from axil.plots.step_plots import waterfall
from axil.plots.time_plots import timeline

__all__ = [
    "calibration",
    "concentration",
    "coverage",
    "coverage_map",
    "fan",
    "group",
    "influence",
    "label_issues",
    "leave_one_out_curve",
    "leverage",
    "matrix",
    "overall",
    "removal",
    "targets",
    "timeline",
    "waterfall",
    "weights",
    "weights_against",
]


def __dir__() -> list[str]:
    return __all__
