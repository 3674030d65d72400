"""Table "Faithfulness" and Figure "removal curves" of the paper: does deleting the rows ranked first move the prediction?

    python experiments/faithfulness.py --data FOLDER     # all data sets; goes on where it was interrupted
    python experiments/faithfulness.py --quick           # two small data sets, five queries

For each of up to 100 rows held out, every method ranks the training rows; the first 0.1, 0.5, 1, 1.5 and 2 % are deleted, the
model is fitted anew without them, and the change of that one prediction is taken. AURC is the mean of the five |changes|.
Methods are compared as in the paper: those whose AURC is not significantly below the best mean (paired two-sided t-test over
queries, p >= 0.05) share the first place; alone there it is a clear win.

Two rules turn scores into a set of m rows, the same for every method. "size", the paper's: the m of largest |score|. "one sign":
the m largest of one sign, the one whose m scores add up to more, since rows that pull apart cancel. `removal` is the first-order
effect of deleting a row, and "greedy" deletes one after the other, each of largest effect once those before are gone
(Explainer.removal, removal_set).

Writes results/faithfulness.csv (every method, rule and fraction), faithfulness.md (the paper's table), faithfulness_rules.md (all
methods) and the figure. Fits are kept by data, settings and deleted rows, so methods that agree share them.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pandas as pd
from kept import Kept, key
from paper_setting import SETTINGS, Fitted, arguments, command, markdown, write, write_shown
from scipy import stats
from sklearn.datasets import load_diabetes, make_friedman1

import axil
from axil import baselines

FRACTIONS = (0.001, 0.005, 0.01, 0.015, 0.02)
NONE = np.empty(0, np.int32)  # no row deleted
SHOWN = ("titanic", "treasury", "concrete")  # in the figure
CACHE = Path(__file__).parent.parent / "build" / "experiments" / "faithfulness.sqlite"
FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "removal_curves.svg"

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
PAPER = {name: dict(zip(PAPER_METHODS, cells)) for name, *cells in map(str.split, PAPER_TEXT.strip().splitlines())}


def by_size(scores, m):
    """(m,): the rows of largest |score|."""
    return np.argsort(-np.abs(scores), kind="stable")[:m]


def of_one_sign(scores, m):
    """(m,): the rows of largest score, or of smallest, whichever add up to more."""
    rising, falling = np.argsort(-scores, kind="stable")[:m], np.argsort(scores, kind="stable")[:m]
    ahead = np.maximum(scores[rising], 0).sum() >= np.maximum(-scores[falling], 0).sum()
    return rising if ahead else falling


RULES = {"size": by_size, "one sign": of_one_sign}


def scores_of(explainer, new, y_new):
    """Every method's scores, (queries, training rows)."""
    return {
        "AXIL": explainer(new).weights,
        "BoostIn": baselines.BoostIn(explainer).scores(new, y_new),
        "TREX": baselines.TREX(explainer).scores(new, y_new),
        "LeafInfluence": baselines.LeafInfluence(explainer).scores(new, y_new),
        "removal": explainer.removal(new),
    }


class Worker:
    """What a process knows of the data set at hand; set once by `begin`."""

    @classmethod
    def begin(cls, train, y_train, new, model):
        cls.train, cls.y_train, cls.new = train, y_train, new
        cls.explainer = axil.Explainer(model, train, y_train, n_threads=1)

    @classmethod
    def refit(cls, removed):
        """(queries,): the predictions of a model fitted without these rows."""
        kept = np.delete(np.arange(len(cls.train)), removed)
        return lgb.LGBMRegressor(**SETTINGS).fit(cls.train[kept], cls.y_train[kept]).predict(cls.new)

    @classmethod
    def remove_in_turn(cls, task):
        """(m,): the rows that Explainer.removal_set deletes one after the other for a query."""
        query, m = task
        return cls.explainer.removal_set(cls.new[query : query + 1], m, greedy=True)["row"].to_numpy()


def changes_of(name, fitted, n_queries, jobs, kept):
    """(queries, fractions) for every method and rule: |prediction without the rows - prediction|."""
    chosen = np.random.default_rng(42).permutation(len(fitted.new))[:n_queries]
    new, y_new = fitted.new[chosen], fitted.y_new[chosen]
    setting = key(fitted.train, fitted.y_train, new, json.dumps(SETTINGS), version("lightgbm"))
    spawn, begin = multiprocessing.get_context("spawn"), (fitted.train, fitted.y_train, new, fitted.model)
    with ProcessPoolExecutor(jobs, mp_context=spawn, initializer=Worker.begin, initargs=begin) as pool:
        try:
            removed = sets_of(name, fitted, new, y_new, kept, setting, pool)
            tasks = {key(setting, rows): rows for sets in removed.values() for own in sets for rows in own}
            tasks[key(setting, NONE)] = NONE
            made = kept.fill(tasks, Worker.refit, pool, f"{name}: fits")
        finally:
            pool.shutdown(cancel_futures=True)
    print(f"{name}: {len(tasks)} fits, {made} of them new", flush=True)
    before = kept[key(setting, NONE)]
    if not np.array_equal(before, fitted.model.predict(new)):
        raise RuntimeError(
            f"{name}: a second fit to all rows predicts otherwise, so changes would not be the rows' own."
        )
    return {
        how: np.abs([[kept[key(setting, rows)][q] - before[q] for rows in own] for q, own in enumerate(sets)])
        for how, sets in removed.items()
    }


def sets_of(name, fitted, new, y_new, kept, setting, pool):
    """The rows to delete for every method and rule, query and fraction; in order, since the order means nothing to a fit."""
    sizes = [math.ceil(fraction * len(fitted.train)) for fraction in FRACTIONS]
    orders = {key(setting, "greedy", q, sizes[-1]): (q, sizes[-1]) for q in range(len(new))}
    kept.fill(orders, Worker.remove_in_turn, pool, f"{name}: greedy sets")
    explainer = axil.Explainer(fitted.model, fitted.train, fitted.y_train)
    found = {
        (method, rule): [[choose(own, m) for m in sizes] for own in scores]
        for method, scores in scores_of(explainer, new, y_new).items()
        for rule, choose in RULES.items()
    }
    found["removal", "greedy"] = [[kept[order][:m] for m in sizes] for order in orders]
    random = baselines.Random(explainer, seed=42).scores(new)
    found["Random", "size"] = [[by_size(own, m) for m in sizes] for own in random]  # it has no sign to speak of
    return {how: [[np.sort(rows).astype(np.int32) for rows in own] for own in sets] for how, sets in found.items()}


def leaders(areas):
    """The methods whose AURC, (queries,) each, is not significantly below the best mean."""
    best = max(areas, key=lambda how: areas[how].mean())
    found = set()
    for how, area in areas.items():
        apart = areas[best] - area
        if not apart.any() or stats.ttest_1samp(apart, 0.0).pvalue >= 0.05:
            found.add(how)
    return found


def lines_of(name, fitted, changes):
    """One line for each method and rule."""
    areas = {how: own.mean(axis=1) for how, own in changes.items()}
    as_in_paper = leaders({how: areas[how] for how in areas if how[1] == "size" and how[0] in PAPER_METHODS})
    among_all = leaders(areas)
    for (method, rule), own in changes.items():
        area, paper = areas[method, rule], PAPER.get(name, {}).get(method, "-") if rule == "size" else "-"
        yield {
            "data": name, "N": fitted.shape[0], "M": fitted.shape[1], "queries": len(own), "method": method, "rule": rule,
            "AURC": f"{area.mean():.5g}", "standard error": f"{area.std(ddof=1) / math.sqrt(len(area)):.3g}",
            **{f"{100 * fraction:g} %": f"{mean:.5g}" for fraction, mean in zip(FRACTIONS, own.mean(axis=0))},
            "leads": "yes" if (method, rule) in among_all else "",
            "leads the paper's methods": "yes" if (method, rule) in as_in_paper else "",
            "paper": paper.rstrip("*"), "leads in the paper": "yes" if paper.endswith("*") else "",
        }  # fmt: skip


def cell(line, leads):
    shown = f"{float(line['AURC']):.4g} ({float(line['standard error']):.2g})"
    return f"**{shown}**" if leads else shown


def counted(rows, names):
    """Two lines below a table: clear wins, and ties counted with them, from (a set of those that lead) a data set."""
    alone = {name: sum(leads == {name} for leads in rows) for name in names}
    shared = {name: sum(name in leads for leads in rows) for name in names}
    return {"clear wins": alone, "with ties": shared}


def paper_table(lines):
    """The paper's columns, each followed by the paper's own figures."""
    shown, ours, theirs = [], [], []
    for name in dict.fromkeys(line["data"] for line in lines):
        own = {line["method"]: line for line in lines if line["data"] == name and line["rule"] == "size"}
        row = {"data": name, "N": own["AXIL"]["N"], "M": own["AXIL"]["M"]}
        for method in PAPER_METHODS:
            row[method] = cell(own[method], own[method]["leads the paper's methods"])
            paper = own[method]["paper"].replace("/", " (") + ")" * ("/" in own[method]["paper"])
            row[f"{method}, paper"] = f"**{paper}**" if own[method]["leads in the paper"] else paper
        shown.append(row)
        ours.append({method for method in PAPER_METHODS if own[method]["leads the paper's methods"]})
        theirs.append({method for method in PAPER_METHODS if own[method]["leads in the paper"]})
    for kind, own in counted(ours, PAPER_METHODS).items():
        row = {"data": kind, "N": "", "M": ""}
        for method in PAPER_METHODS:
            row |= {method: own[method], f"{method}, paper": counted(theirs, PAPER_METHODS)[kind][method]}
        shown.append(row)
    return shown


def rules_table(lines):
    """All methods and rules; below, how often each leads and its AURC as a ratio to AXIL's by size, a geometric mean."""
    shown, leading, ratios = [], [], {}
    hows = list(dict.fromkeys((line["method"], line["rule"]) for line in lines))
    for name in dict.fromkeys(line["data"] for line in lines):
        own = {(line["method"], line["rule"]): line for line in lines if line["data"] == name}
        shown.append({"data": name} | {", ".join(how): cell(own[how], own[how]["leads"]) for how in hows})
        leading.append({how for how in hows if own[how]["leads"]})
        for how in hows:
            ratio = float(own[how]["AURC"]) / float(own["AXIL", "size"]["AURC"])
            ratios.setdefault(how, []).append(math.log(ratio))
    for kind, own in counted(leading, hows).items():
        shown.append({"data": kind} | {", ".join(how): own[how] for how in hows})
    shown.append(
        {"data": "to AXIL by size"} | {", ".join(how): f"{math.exp(np.mean(ratios[how])):.2f}" for how in hows}
    )
    return shown


def draw(lines, path):
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    styles = {
        ("AXIL", "size"): ("C0", "-"), ("BoostIn", "size"): ("C1", "-"), ("TREX", "size"): ("C2", "-"),
        ("LeafInfluence", "size"): ("C3", "-"), ("removal", "one sign"): ("C0", "--"), ("Random", "size"): ("0.6", ":"),
    }  # fmt: skip
    names = [name for name in SHOWN if any(line["data"] == name for line in lines)]
    if not names:
        return
    figure, axes = plt.subplots(1, len(names), figsize=(3.6 * len(names), 3.2), layout="constrained", squeeze=False)
    for name, ax in zip(names, axes[0]):
        for line in lines:
            how = line["method"], line["rule"]
            if line["data"] == name and how in styles:
                heights = [float(line[f"{100 * fraction:g} %"]) for fraction in FRACTIONS]
                colour, style = styles[how]
                label = how[0] if how[1] == "size" else ", ".join(how)
                ax.plot([100 * f for f in FRACTIONS], heights, style, color=colour, marker=".", label=label)
        ax.set(title=name, xlabel="training rows deleted, %", ylim=(0, None))
    axes[0, 0].set_ylabel("mean |change of the prediction|")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(styles), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def quick_data(folder):
    """Two small data sets that need no connection, as CSV files; their names."""
    X, y = make_friedman1(300, noise=1.0, random_state=0)
    frames = {"friedman": pd.DataFrame(X).assign(y=y), "diabetes_of_scikit_learn": load_diabetes(as_frame=True).frame}
    for name, frame in frames.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    return list(frames)


def measure(names, folder, n_queries, jobs, cache):
    """The lines of all data sets, one after the other."""
    kept, lines = Kept(cache), []
    for name in names:
        start = time.monotonic()
        fitted = Fitted(name, folder)
        lines += lines_of(name, fitted, changes_of(name, fitted, n_queries, jobs, kept))
        print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
    return lines


def main():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="two small data sets, five queries; prints, writes nothing"
    )
    parser.add_argument("--queries", type=int, default=100, help="rows held out to ask about, at most (default: 100)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="processes that fit models (default: all cores)"
    )
    parser.add_argument("--cache", type=Path, default=CACHE, help="file in which fits are kept (default: %(default)s)")
    given = parser.parse_args()
    if given.quick:
        with tempfile.TemporaryDirectory() as folder:
            names = quick_data(Path(folder))
            lines = measure(names, Path(folder), 5, given.jobs, Path(folder) / "fits.sqlite")
        for table in (paper_table(lines), rules_table(lines)):
            print("\n".join(markdown(table)))
        return
    lines = measure(given.only, given.data, given.queries, given.jobs, given.cache)
    write("faithfulness", lines, command("faithfulness", given.data), shown=paper_table(lines))
    write_shown("faithfulness_rules", rules_table(lines), command("faithfulness", given.data))
    draw(lines, FIGURE)


if __name__ == "__main__":
    main()
