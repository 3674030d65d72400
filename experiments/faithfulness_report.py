"""The tables and the figure of faithfulness.py, from the changes of predictions that it measured."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure
from paper_figures import save
from scipy import stats

SHOWN = ("titanic", "treasury", "concrete")  # in the figure

# Mean and standard error of AURC in the paper, * where it is in bold.
PAPER_METHODS = ("AXIL", "BoostIn", "TREX", "LeafInfluence", "Random")
PAPER_TEXT = """
abalone 0.769/0.077* 0.691/0.070* 0.719/0.059* - 0.313/0.029
airfoil 1.749/0.152* 1.376/0.110 1.692/0.159* 1.035/0.098 0.420/0.026
autos 1.813/0.154* 1.513/0.162 1.323/0.117 1.413/0.134 0.551/0.056
bodyfat 0.606/0.132* 0.560/0.123* 0.504/0.123 0.558/0.120* 0.199/0.039
boston 1.809/0.255* 1.594/0.264 1.510/0.248 1.391/0.251 0.669/0.075
concrete 3.842/0.263* 3.269/0.258 3.387/0.260 2.545/0.215 0.852/0.063
cpu_small 1.053/0.105* 1.005/0.085* 1.011/0.097* - 0.430/0.037
cars 1574.872/204.165* 1632.416/287.889* 1739.300/275.440* 1299.793/243.309 372.616/44.319
diabetes 22.008/1.608* 22.934/1.450* 18.704/1.392 19.206/1.341 10.759/0.682
energy_efficiency 0.359/0.059 0.429/0.071* 0.335/0.059 0.269/0.063 0.061/0.004
forest_fires 19.430/2.767* 17.079/3.127* 17.473/3.163* 16.786/3.081 5.863/0.678
grid_stability 0.006/0.000 0.007/0.000* 0.005/0.000 - 0.003/0.000
kin8nm 0.077/0.005* 0.073/0.005* 0.068/0.004 - 0.029/0.001
qsar_fish 0.513/0.042* 0.422/0.039 0.519/0.047* 0.370/0.034 0.150/0.011
red_wine 0.355/0.034* 0.309/0.032 0.344/0.032* 0.276/0.028 0.110/0.006
space_ga 0.062/0.007* 0.049/0.006 0.059/0.006* - 0.019/0.001
titanic 13.988/3.240* 7.158/1.504 9.754/2.195 6.278/1.386 1.334/0.182
treasury 0.118/0.014* 0.101/0.011 0.107/0.012 0.078/0.012 0.030/0.004
white_wine 0.239/0.021* 0.235/0.022* 0.241/0.019* - 0.102/0.008
yacht 0.329/0.078* 0.321/0.087* 0.240/0.059 0.206/0.063 0.043/0.008
"""
PAPER = {
    name: dict(zip(PAPER_METHODS, cells))
    for name, *cells in map(str.split, PAPER_TEXT.strip().splitlines())
}


def leaders(areas):
    """The methods whose AURC, (queries,) each, is not significantly below the best mean."""
    best = max(areas, key=lambda how: areas[how].mean())
    found = set()
    for how, area in areas.items():
        apart = areas[best] - area
        if not apart.any() or stats.ttest_1samp(apart, 0.0).pvalue >= 0.05:
            found.add(how)
    return found


def lines_of(name, shape, fractions, changes):
    """One line for each method and rule, from the |changes|, (queries, fractions) each."""
    areas = {how: own.mean(axis=1) for how, own in changes.items()}
    as_in_paper = leaders(
        {how: areas[how] for how in areas if how[1] == "size" and how[0] in PAPER_METHODS}
    )
    among_all = leaders(areas)
    for (method, rule), own in changes.items():
        area, paper = (
            areas[method, rule],
            PAPER.get(name, {}).get(method, "-") if rule == "size" else "-",
        )
        yield {
            "data": name, "N": shape[0], "M": shape[1], "queries": len(own), "method": method, "rule": rule,
            "AURC": f"{area.mean():.5g}", "standard error": f"{area.std(ddof=1) / math.sqrt(len(area)):.3g}",
            **{f"{100 * fraction:g} %": f"{mean:.5g}" for fraction, mean in zip(fractions, own.mean(axis=0))},
            "leads": "yes" if (method, rule) in among_all else "",
            "leads the paper's methods": "yes" if (method, rule) in as_in_paper else "",
            "paper": paper.rstrip("*"), "leads in the paper": "yes" if paper.endswith("*") else "",
        }  # fmt: skip


def bold(text, leads):
    return f"**{text}**" if leads else text


def rounded(number, digits):
    """To so many significant digits, never with an exponent."""
    return np.format_float_positional(
        float(number), digits, unique=False, fractional=False, trim="k"
    ).rstrip(".")


def counted(rows, names):
    """Two lines below a table: clear wins, and ties counted with them, from (a set of those that lead) a data set."""
    alone = {name: sum(leads == {name} for leads in rows) for name in names}
    shared = {name: sum(name in leads for leads in rows) for name in names}
    return {"clear wins": alone, "with ties": shared}


def paper_table(lines):
    """The paper's columns, each followed by the paper's own figures."""
    shown, ours, theirs = [], [], []
    for name in dict.fromkeys(line["data"] for line in lines):
        own = {
            line["method"]: line
            for line in lines
            if line["data"] == name and line["rule"] == "size"
        }
        row = {"data": name, "N": own["AXIL"]["N"], "M": own["AXIL"]["M"]}
        for method in PAPER_METHODS:
            ours_here = (
                f"{rounded(own[method]['AURC'], 4)} ({rounded(own[method]['standard error'], 2)})"
            )
            row[method] = bold(ours_here, own[method]["leads the paper's methods"])
            paper = own[method]["paper"].replace("/", " (") + ")" * ("/" in own[method]["paper"])
            row[f"{method}, paper"] = bold(paper, own[method]["leads in the paper"])
        shown.append(row)
        ours.append(
            {method for method in PAPER_METHODS if own[method]["leads the paper's methods"]}
        )
        theirs.append({method for method in PAPER_METHODS if own[method]["leads in the paper"]})
    for kind, own in counted(ours, PAPER_METHODS).items():
        row = {"data": kind, "N": "", "M": ""}
        for method in PAPER_METHODS:
            row |= {
                method: own[method],
                f"{method}, paper": counted(theirs, PAPER_METHODS)[kind][method],
            }
        shown.append(row)
    return shown


def rules_table(lines):
    """A line for each method: by each rule its AURC as a ratio to AXIL's by size, a geometric mean, and how often it leads."""
    areas, leading = {}, {}
    for line in lines:
        how = line["method"], line["rule"]
        areas.setdefault(how, []).append(math.log(float(line["AURC"])))
        leading.setdefault(line["data"], set()).update([how] if line["leads"] else [])
    counts = counted(leading.values(), areas)
    shown = []
    for method in dict.fromkeys(method for method, _ in areas):
        row = {"method": method}
        for rule in dict.fromkeys(rule for _, rule in areas):
            how = method, rule
            ratio = (
                f"{np.exp(np.mean(areas[how]) - np.mean(areas['AXIL', 'size'])):.2f}"
                if how in areas
                else ""
            )
            row |= {f"by {rule}, to AXIL": ratio}
            row |= {f"by {rule}, first or tied": counts["with ties"].get(how, "")}
        shown.append(row)
    return shown


STYLES = {
    ("AXIL", "size"): ("C0", "-"), ("BoostIn", "size"): ("C1", "-"), ("TREX", "size"): ("C2", "-"),
    ("LeafInfluence", "size"): ("C3", "-"), ("steps", "one sign"): ("C0", "--"), ("Random", "size"): ("0.6", ":"),
}  # fmt: skip


def draw(lines):
    """Figure "removal curves", of those of its data sets that were measured."""
    names = [name for name in SHOWN if any(line["data"] == name for line in lines)]
    if not names:
        return
    columns = [column for column in lines[0] if column.endswith(" %")]
    figure = Figure(figsize=(3.6 * len(names), 3.3), layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    for name, ax in zip(names, axes):
        for line in lines:
            how = line["method"], line["rule"]
            if line["data"] == name and how in STYLES:
                colour, style = STYLES[how]
                shares, heights = (
                    [float(c.split()[0]) for c in columns],
                    [float(line[c]) for c in columns],
                )
                label = how[0] if how[1] == "size" else ", ".join(how)
                ax.plot(shares, heights, style, color=colour, marker=".", label=label)
        ax.set(title=name, xlabel="training rows deleted, %", ylim=(0, None))
    axes[0].set_ylabel("mean |change of the prediction|")
    figure.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=len(STYLES),
        frameon=False,
    )
    save(figure, "removal_curves.svg")
