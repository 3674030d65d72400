"""Section "Boundary Results" of the paper: which models have exact weights, and how far others are from linear in the targets.

    python experiments/boundary.py     # ten seconds; writes results/boundary*.csv and docs/figures/boundary.svg

All on 150 rows and four columns of scikit-learn's diabetes data; labels are targets above their mean. `axil.supports` is asked
of each model, then the explainer that it points to is built: what that finds is the last column of the first table. In the second
"additivity" is ``f(y + a) + f(y + b) - f(y) - f(y + a + b)`` relative to ``f(y + a + b) - f(y)``, root mean squares over 50 draws
of a and b, which change a tenth of the targets each, and over the predictions of all rows. "line" is the largest distance of one
prediction from its best straight line as targets move along a straight line, relative to its range. Both are zero for weights
times targets.
"""

from __future__ import annotations

import warnings

import boundary_networks
import boundary_trees
import numpy as np
import paper_figures
from boundary_measures import Curve, off_line
from boundary_models import Asked, data, fitted
from matplotlib.figure import Figure
from paper_setting import PACKAGES, plain_arguments, write

import axil
from axil.plots.canvas import DASHES, LINES, colours, dress

COMMAND = "python experiments/boundary.py"
DRAWN = ("base logit", "log-loss", "tanh network, 500", "relu network, 500", "MLPRegressor")


def verification_text(asked: Asked, kind: str) -> str:
    """What the explainer found when it was built."""
    if kind == "exact":
        explainer = axil.Explainer(asked.model, asked.X, asked.y)
        found, more = explainer.verification, ""
        if found.active_set is not None:
            more = ", active set fixed"
        elif not explainer.scale.is_identity:
            more = f" ({explainer.scale.name})"
        return f"K y within {found.max_error:.0e}{more}"
    try:
        found = axil.Explainer(asked.model, asked.X, asked.y).verification
    except axil.UnsupportedModelError as refused:
        return f"refused: {refused.setting}"
    step = found.details.get("newton_step")
    if step is not None:
        damped = f", damped by {found.details['damping']:.0e}" if found.details["damping"] else ""
        where = (
            "optimum" if step < 0.01 and not damped else "near an optimum"
        )  # which axil warns of
        return f"{where}: Newton step {step:.0e}{damped}"
    return f"replay within {max(found.leaf_error, found.max_error):.0e}"


def support(asked: Asked) -> dict[str, object]:
    """One line of the table."""
    found = axil.supports(asked.model)
    return {
        "class": asked.group,
        "model": asked.name,
        "targets": asked.task,
        "paper": asked.paper,
        "axil": found.kind,
        "setting": found.setting or "",
        "verification": "" if found.kind == "no" else verification_text(asked, found.kind),
    }


def by_class(table: list[dict[str, object]]) -> list[dict[str, object]]:
    """A line for each class of models and answer, with the settings that stand in the way, or the models."""
    found: dict[tuple[object, ...], list[dict[str, object]]] = {}
    for line in table:
        held = (
            ", active set fixed" if str(line["verification"]).endswith("active set fixed") else ""
        )
        found.setdefault((line["class"], line["paper"], f"{line['axil']}{held}"), []).append(line)
    return [
        {
            "class": name,
            "models": len(lines),
            "paper": verdict,
            "axil": answer,
            "refused, or without exact weights, by": ", ".join(
                sorted(
                    {
                        str(line["setting"] if line["setting"] != "class" else line["model"])
                        for line in lines
                    }
                    - {""}
                )
            ),
        }
        for (name, verdict, answer), lines in found.items()
    ]


def demonstrations(curves: list[Curve]) -> list[dict[str, object]]:
    """How far from linear, each beside its exact counterpart."""
    (X, y), (_, labels) = data("values"), data("two classes")
    found = [(what, "additivity", *rest) for what, *rest in boundary_trees.departures(X, y, labels)]
    found += [
        (one.what, "line", one.departures[0], one.counterpart, one.departures[1]) for one in curves
    ]
    return [
        {
            "what": what,
            "measure": name,
            "departure": f"{far:.0e}",
            "exact counterpart": other,
            "its departure": f"{its:.0e}",
        }
        for what, name, far, other, its in found
    ]


def draw(curves: list[Curve]) -> Figure:
    """Each curve with its derivative and its exact counterpart, and at last how far all are from straight lines."""
    drawn = [one for one in curves if one.what.startswith(DRAWN)]
    figure = Figure(figsize=(9, 10.5), layout="constrained")
    *panels, last = figure.subplots(3, 2).flat
    for ax, one in zip(panels, drawn):
        apart = max(1, len(one.x) // 12)
        ax.plot(one.x, one.f, color=LINES[0], linewidth=2, label=one.predicted)
        ax.plot(
            one.x, one.tangent, color=LINES[0], linewidth=1, linestyle="--", label="its derivative"
        )
        ax.plot(one.x, one.control, color=LINES[1], linewidth=2, label=one.counterpart)
        ax.plot(
            one.x[::apart],
            one.exact[::apart],
            "x",
            color=colours(ax).ink,
            markersize=5,
            label="its weights × targets",
        )
        dress(ax, title(one), one.along, "")
        ax.legend(fontsize=8, frameon=False)
    for colour, dash, one in zip(LINES, DASHES, drawn):
        along = (one.x - one.x[0]) / np.ptp(one.x)
        name = one.what.split(",")[0].removesuffix(" at its optimum")
        last.plot(
            along,
            100 * off_line(one.x, one.f) / np.ptp(one.f),
            color=colour,
            linestyle=dash,
            label=name,
        )
        controls = last.plot(
            along,
            100 * off_line(one.x, one.control) / np.ptp(one.control),
            color=colours(last).ink,
            linewidth=2,
        )
    controls[0].set_label("exact counterparts, all")
    dress(last, "Distance from the best straight line, % of the range", "way of the targets", "")
    last.legend(fontsize=8, frameon=False)
    return figure


def title(one: Curve) -> str:
    return one.what[0].upper() + one.what[1:]


def main() -> None:
    plain_arguments(__doc__).parse_args()
    (X, y), (_, labels) = data("values"), data("two classes")
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", axil.ApproximationWarning
        )  # the column verification says it
        table = [support(asked) for asked in fitted()]
    packages = (*PACKAGES[:2], "xgboost", "catboost", *PACKAGES[2:])
    write("boundary", table, COMMAND, packages, by_class(table))
    curves = [
        boundary_trees.base_curve(labels),
        boundary_trees.label_curve(X, labels),
        *boundary_networks.curves(X, y),
    ]
    write("boundary_demonstrations", demonstrations(curves), COMMAND)
    paper_figures.save(draw(curves), "boundary.svg")


if __name__ == "__main__":
    main()
