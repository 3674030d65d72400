"""Does deleting the rows ranked first move the score of a classifier? Retraining, as in the paper's table, with two classes.

    python experiments/classifiers.py --data FOLDER     # all data sets; goes on where it was interrupted
    python experiments/classifiers.py --quick           # two small data sets, five queries

For each of up to 20 rows held out, every method ranks the training rows; the first 0.5, 1 and 2 % are deleted, LightGBM's binary
model (the paper's settings) is fitted again without them, and the change of that one raw score is taken. AURC is the mean of the
|changes|. Rules, places and paired tests are those of faithfulness.py. The methods:

- contributions: what the row's own gradients put into the score (class_contributions.py)
- J: the derivative of the score by the row's target, Explainer's weights
- removal: the first-order effect of leaving the row out, Explainer.jacobian.by_sample_weight
- BoostIn, LeafInfluence, TREX, TreeSim, Random: axil.baselines

Writes results/classifiers.csv (every method, rule and share), classifiers.md (AURC over that of Random by data set, rows of one
sign), classifiers_rules.md (all methods and rules) and
classifiers_pairs.md (contributions against each other method).
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from pathlib import Path

import lightgbm as lgb
import numpy as np
from class_contributions import contributions
from class_data import NAMES, read_classes
from faithfulness import RULES, Worker, by_size, changes_of
from faithfulness_report import bold, counted, leaders
from kept import Cache
from paper_data import QUICK
from paper_setting import SETTINGS, arguments, command, markdown, write, write_shown
from scipy import stats
from sklearn.model_selection import train_test_split

import axil
from axil import baselines

SHARES = (0.005, 0.01, 0.02)
CACHE = Path(__file__).parent.parent / "build" / "experiments" / "classifiers.sqlite"
RANDOM = "Random", "size"


class Fitted:
    """One data set with two classes, split and fitted to."""

    def __init__(self, name, folder=None):
        X, y = read_classes(name, folder)
        self.train, self.new, self.y_train, self.y_new = train_test_split(
            X, y, test_size=0.2, random_state=42, stratify=y
        )
        self.model = lgb.LGBMClassifier(**SETTINGS).fit(self.train, self.y_train)
        self.shape = X.shape


class ClassWorker(Worker):
    """`Worker` that fits classifiers."""

    @classmethod
    def begin(cls, train, y_train, new, model):
        cls.train, cls.y_train, cls.new = train, y_train, new

    @classmethod
    def refit(cls, removed):
        """(queries,): the raw scores of a model fitted without these rows."""
        kept = np.delete(np.arange(len(cls.train)), removed)
        return cls.predict(
            lgb.LGBMClassifier(**SETTINGS).fit(cls.train[kept], cls.y_train[kept]), cls.new
        )

    @staticmethod
    def predict(model, new):
        """(queries,): raw scores."""
        return model.predict(new, raw_score=True)


def scores_of(fitted, new, y_new):
    """Every method's scores, (queries, training rows)."""
    given = fitted.model, fitted.train, fitted.y_train
    explainer = axil.Explainer(*given, n_threads=1)
    return {
        "contributions": contributions(*given, new),
        "J": explainer(new).weights,
        "removal": -explainer.jacobian.by_sample_weight(new),
        "BoostIn": baselines.BoostIn(explainer).scores(new, y_new),
        "LeafInfluence": baselines.LeafInfluence(explainer).scores(new, y_new),
        "TREX": baselines.TREX(explainer).scores(new, y_new),
        "TreeSim": baselines.TreeSim(explainer).scores(new, y_new),
    }


def sets_of(name, fitted, new, y_new, kept, setting, pool):
    """The rows to delete for every method and rule, query and share, in the order of the rows."""
    sizes = [math.ceil(share * len(fitted.train)) for share in SHARES]
    found = {
        (method, rule): [[choose(own, m) for m in sizes] for own in scores]
        for method, scores in scores_of(fitted, new, y_new).items()
        for rule, choose in RULES.items()
    }
    fit = axil.Explainer(fitted.model, fitted.train, fitted.y_train, n_threads=1)
    found[RANDOM] = [
        [by_size(own, m) for m in sizes] for own in baselines.Random(fit, seed=42).scores(new)
    ]
    return {
        how: [[np.sort(rows).astype(np.int32) for rows in own] for own in sets]
        for how, sets in found.items()
    }


def lines_of(name, shape, changes):
    """One line for each method and rule, from the |changes|, (queries, shares) each."""
    areas = {how: own.mean(axis=1) for how, own in changes.items()}
    among = {
        rule: leaders({how: area for how, area in areas.items() if how[1] == rule or how == RANDOM})
        for rule in RULES
    }
    among_all, random = leaders(areas), areas[RANDOM].mean()
    for (method, rule), own in changes.items():
        area = areas[method, rule]
        yield {
            "data": name, "N": shape[0], "M": shape[1], "queries": len(own), "method": method, "rule": rule,
            "AURC": f"{area.mean():.5g}", "standard error": f"{area.std(ddof=1) / math.sqrt(len(area)):.3g}",
            "to Random": f"{area.mean() / random:.4g}",
            **{f"{100 * share:g} %": f"{mean:.5g}" for share, mean in zip(SHARES, own.mean(axis=0))},
            "leads its rule": "yes" if (method, rule) in among[rule] else "",
            "leads": "yes" if (method, rule) in among_all else "",
        }  # fmt: skip


def data_table(lines, rule="one sign"):
    """A line for each data set: AURC over Random's by one rule, bold for those that share the first place by it."""
    methods = list(dict.fromkeys(line["method"] for line in lines if line["rule"] == rule))
    shown, places = [], []
    for name in dict.fromkeys(line["data"] for line in lines):
        own = {
            line["method"]: line for line in lines if line["data"] == name and line["rule"] == rule
        }
        row = {"data": name, "N": own[methods[0]]["N"], "M": own[methods[0]]["M"]}
        for method in methods:
            row[method] = bold(
                f"{float(own[method]['to Random']):.2f}", own[method]["leads its rule"]
            )
        shown.append(row)
        places.append({method for method in methods if own[method]["leads its rule"]})
    for kind, own in counted(places, methods).items():
        shown.append({"data": kind, "N": "", "M": ""} | {method: own[method] for method in methods})
    return shown


def rules_table(lines):
    """A line for each method: by each rule its AURC over Random's, a geometric mean, and how often it leads all of them."""
    ratios, leading = {}, {}
    for line in lines:
        how = line["method"], line["rule"]
        ratios.setdefault(how, []).append(math.log(float(line["to Random"])))
        leading.setdefault(line["data"], set()).update([how] if line["leads"] else [])
    counts = counted(leading.values(), ratios)
    shown = []
    for method in dict.fromkeys(method for method, _ in ratios):
        row = {"method": method}
        for rule in RULES:
            how = method, rule
            row |= {
                f"by {rule}, to Random": f"{np.exp(np.mean(ratios[how])):.2f}"
                if how in ratios
                else ""
            }
            row |= {f"by {rule}, first or tied": counts["with ties"].get(how, "")}
        shown.append(row)
    return shown


def pairs_table(lines, first="contributions", rule="one sign"):
    """One method against each of the others by one rule: AURC over theirs, and a paired t-test of its log over data sets."""
    logs = {}
    for line in lines:
        if line["rule"] == rule:
            logs.setdefault(line["method"], []).append(math.log(float(line["AURC"])))
    shown = []
    for method, own in logs.items():
        if method != first:
            apart = np.subtract(logs[first], own)
            shown.append({
                "against": method, f"AURC of {first} to its": f"{np.exp(apart.mean()):.2f}",
                f"{first} ahead on": f"{(apart > 0).sum()} of {len(apart)}",
                "p": f"{stats.ttest_1samp(apart, 0.0).pvalue:.2g}",
            })  # fmt: skip
    return shown


def measure(names, folder, n_queries, jobs, cache):
    """The lines of all data sets, one after the other."""
    kept, lines = Cache(cache), []
    for name in names:
        start, fitted = time.monotonic(), Fitted(name, folder)
        changes = changes_of(name, fitted, n_queries, jobs, kept, ClassWorker, sets_of)
        lines += lines_of(name, fitted.shape, changes)
        print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
    return lines


def main():
    parser = arguments(__doc__.splitlines()[0], NAMES)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="two small data sets, five queries; prints, writes nothing",
    )
    parser.add_argument(
        "--queries", type=int, default=20, help="rows held out to ask about, at most (default: 20)"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count(),
        help="processes that fit models (default: all cores)",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=CACHE,
        help="file in which fits are kept (default: %(default)s)",
    )
    given = parser.parse_args()
    if given.quick:
        with tempfile.TemporaryDirectory() as passing:
            lines = measure(QUICK, None, 5, given.jobs, Path(passing) / "fits.sqlite")
        for table in (data_table(lines), rules_table(lines), pairs_table(lines)):
            print("\n".join(markdown(table)))
        return
    lines = measure(given.only, given.data, given.queries, given.jobs, given.cache)
    write("classifiers", lines, command("classifiers", given.data), shown=data_table(lines))
    write_shown("classifiers_rules", rules_table(lines), command("classifiers", given.data))
    write_shown("classifiers_pairs", pairs_table(lines), command("classifiers", given.data))


if __name__ == "__main__":
    main()
