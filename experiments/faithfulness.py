"""Table "Faithfulness" and Figure "removal curves" of the paper: does deleting the rows ranked first move the prediction?

    python experiments/faithfulness.py --data FOLDER     # all data sets; goes on where it was interrupted
    python experiments/faithfulness.py --quick           # two small data sets, five queries

For each of up to 100 rows held out, every method ranks the training rows; the first 0.1, 0.5, 1, 1.5 and 2 % are deleted, the
model is fitted again without them, and the change of that one prediction is taken. AURC is the mean of the five |changes|.
Methods are compared as in the paper: those whose AURC is not significantly below the best mean (paired two-sided t-test over
queries, p >= 0.05) share the first place; alone there it is a clear win.

Two rules turn scores into a set of m rows, the same for every method. "size", the paper's: the m of largest |score|. "one sign":
the m largest of one sign, the one whose m scores add up to more, since rows that pull apart cancel. `removal` is the first-order
effect of deleting a row, and "greedy" deletes one after the other, each of largest effect once those before are gone
(Explainer.removal, also with greedy=True). `steps` is what a row's residuals put into the trees' steps at the query
(Explainer.jacobian.gradient_contributions).

Writes results/faithfulness.csv (every method, rule and fraction), faithfulness.md (the paper's table), faithfulness_rules.md (all
methods and rules) and the figure. Fits are kept by data, settings and deleted rows, so methods that agree share them.
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
from faithfulness_report import draw, lines_of, paper_table, rules_table
from kept import Cache, key
from paper_data import QUICK
from paper_setting import SETTINGS, Fitted, arguments, command, markdown, write, write_shown

import axil
from axil import baselines

FRACTIONS = (0.001, 0.005, 0.01, 0.015, 0.02)
NONE = np.empty(0, np.int32)  # no row deleted
CACHE = Path(__file__).parent.parent / "build" / "experiments" / "faithfulness.sqlite"


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
        "removal": explainer.removal(new, method="first-order"),
        "steps": explainer.jacobian.gradient_contributions(new),
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
        return cls.predict(
            lgb.LGBMRegressor(**SETTINGS).fit(cls.train[kept], cls.y_train[kept]), cls.new
        )

    @staticmethod
    def predict(model, new):
        """(queries,): the predictions of the model that is explained."""
        return model.predict(new)

    @classmethod
    def remove_in_turn(cls, task):
        """(m,): the rows that Explainer.removal deletes one after the other for a query."""
        query, m = task
        return cls.explainer.removal(cls.new[query : query + 1], m, greedy=True)["row"].to_numpy()


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
    found["Random", "size"] = [
        [by_size(own, m) for m in sizes] for own in random
    ]  # it has no sign to speak of
    return {
        how: [[np.sort(rows).astype(np.int32) for rows in own] for own in sets]
        for how, sets in found.items()
    }


def changes_of(name, fitted, n_queries, jobs, kept, worker=Worker, choose=sets_of):
    """(queries, fractions) for every method and rule: |prediction without the rows - prediction|."""
    chosen = np.random.default_rng(42).permutation(len(fitted.new))[:n_queries]
    new, y_new = fitted.new[chosen], fitted.y_new[chosen]
    setting = key(fitted.train, fitted.y_train, new, json.dumps(SETTINGS), version("lightgbm"))
    spawn, begin = (
        multiprocessing.get_context("spawn"),
        (fitted.train, fitted.y_train, new, fitted.model),
    )
    with ProcessPoolExecutor(
        jobs, mp_context=spawn, initializer=worker.begin, initargs=begin
    ) as pool:
        try:
            removed = choose(name, fitted, new, y_new, kept, setting, pool)
            tasks = {
                key(setting, rows): rows
                for sets in removed.values()
                for own in sets
                for rows in own
            }
            tasks[key(setting, NONE)] = NONE
            made = kept.fill(tasks, worker.refit, pool, f"{name}: fits")
        finally:
            pool.shutdown(cancel_futures=True)
    print(f"{name}: {len(tasks)} fits, {made} of them new", flush=True)
    before = kept[key(setting, NONE)]
    if not np.array_equal(before, worker.predict(fitted.model, new)):
        raise RuntimeError(
            f"{name}: a second fit to all rows predicts otherwise, so changes would not be the rows' own."
        )
    return {
        how: np.abs(
            [
                [kept[key(setting, rows)][q] - before[q] for rows in own]
                for q, own in enumerate(sets)
            ]
        )
        for how, sets in removed.items()
    }


def measure(names, folder, n_queries, jobs, cache):
    """The lines of all data sets, one after the other."""
    kept, lines = Cache(cache), []
    for name in names:
        start = time.monotonic()
        fitted = Fitted(name, folder)
        lines += lines_of(
            name, fitted.shape, FRACTIONS, changes_of(name, fitted, n_queries, jobs, kept)
        )
        print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
    return lines


def main():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument(
        "--quick",
        action="store_true",
        help="two small data sets, five queries; prints, writes nothing",
    )
    parser.add_argument(
        "--queries",
        type=int,
        default=100,
        help="rows held out to ask about, at most (default: 100)",
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
        for table in (paper_table(lines), rules_table(lines)):
            print("\n".join(markdown(table)))
        return
    lines = measure(given.only, given.data, given.queries, given.jobs, given.cache)
    write("faithfulness", lines, command("faithfulness", given.data), shown=paper_table(lines))
    write_shown("faithfulness_rules", rules_table(lines), command("faithfulness", given.data))
    draw(lines)


if __name__ == "__main__":
    main()
