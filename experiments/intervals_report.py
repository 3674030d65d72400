"""The tables of intervals.py, from scores of each test row."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from itertools import combinations

import numpy as np
import pandas as pd
from intervals_rivals import METHODS, OWN_MODELS, REFITS, SAME_MODEL
from paper_setting import PACKAGES, Line, markdown, write, write_shown
from scipy import stats
from sklearn.metrics import roc_auc_score

Found = dict[tuple[str, int, str], dict[str, np.ndarray]]
SCORES = ("crps", "nll", "winkler")
OTHERS = ("quantile-forest", "ngboost", "catboost")
BASE, FIRST, ALPHA = "constant", "axil", 0.05
ALARMS = {
    "local scale (`uncertainty_rank` of `Predictive.interval`)": "local scale",
    "norm of the weights": "norm of the weights",
    "effective size, small": "effective size, inverse",
    "distance to the nearest training row": "distance to a training row",
    "spread of the targets of the nearest rows, IBUG's with k = 9": "spread of targets, IBUG's",
    "prediction far from the mean target": "size of the prediction",
}


def by_row(found: Found) -> pd.DataFrame:
    """A line for each data set, split, method and test row."""
    parts = []
    for (name, seed, method), arrays in found.items():
        if method != "strata":
            rows = found[name, seed, "strata"]["row"]
            own = {key: value for key, value in arrays.items() if key != "seconds"}
            parts.append(
                pd.DataFrame({"data": name, "split": seed, "method": method, "row": rows} | own)
            )
    return pd.concat(parts, ignore_index=True)


def by_split(found: Found) -> pd.DataFrame:
    """Means over the test rows of a split, and seconds."""
    lines = [
        {
            "data": name,
            "split": seed,
            "method": method,
            **{key: float(np.mean(value)) for key, value in arrays.items()},
        }
        for (name, seed, method), arrays in found.items()
        if method != "strata"
    ]
    return pd.DataFrame(lines)


def means_of(frame: pd.DataFrame, score: str, over: str = "row") -> dict[str, pd.DataFrame]:
    """{data: table of the scores, a line for each row or split and a column for each method}.

    A row that several splits test counts once, with its mean.
    """
    return {
        name: own.pivot_table(index=over, columns="method", values=score, aggfunc="mean")
        for name, own in frame.groupby("data", sort=False)
    }


def shared(frame: pd.DataFrame, *methods: str) -> pd.DataFrame:
    """The lines of these methods on the splits that all of them were measured on."""
    own = frame[frame["method"].isin(methods)]
    return own[own.groupby(["data", "split"])["method"].transform("nunique") == len(methods)]


def compared(table: pd.DataFrame, one: str, other: str) -> int:
    """1: the first has the lower mean by a paired two-sided t-test, -1: the other has, 0: neither."""
    apart = (table[one] - table[other]).to_numpy()
    if not np.isfinite(apart).all() or np.ptp(apart) == 0:
        return -int(np.sign(np.nan_to_num(apart.mean(), nan=0.0)))
    found = stats.ttest_1samp(apart, 0.0)
    return -int(np.sign(found.statistic)) if found.pvalue < ALPHA else 0


def leaders(table: pd.DataFrame, methods: list[str]) -> set[str]:
    """The one with the lowest mean, and those that are not significantly behind it."""
    best = table[methods].mean().idxmin()
    return {best} | {method for method in methods if compared(table, best, method) < 1}


def data_table(rows: pd.DataFrame, shapes: dict[str, Line]) -> list[Line]:
    """CRPS by data set; bold: first or tied among those with the same fitted model."""
    present = [method for method in METHODS if method in set(rows["method"])]
    same, shown, first, tied = (
        list(SAME_MODEL),
        [],
        dict.fromkeys(SAME_MODEL, 0),
        dict.fromkeys(SAME_MODEL, 0),
    )
    for name, table in means_of(rows, "crps").items():
        lead, means = leaders(table, same), table.mean()
        first[means[same].idxmin()] += 1
        for method in lead:
            tied[method] += 1
        cells = {m: f"{means[m]:.3g}" if m in means else "" for m in present}
        shown.append(
            {"data": name}
            | shapes[name]
            | {m: f"**{c}**" if m in lead else c for m, c in cells.items()}
        )
    for kind, counts in (("lowest mean", first), ("first or tied", tied)):
        shown.append(
            {"data": kind, "N": "", "M": ""}
            | {method: counts.get(method, "") for method in present}
        )
    return shown


def method_table(rows: pd.DataFrame, splits: pd.DataFrame) -> list[Line]:
    """Over the data sets: CRPS, Winkler score and width as geometric means of ratios to those of one constant width, NLL as the
    median of differences from its."""
    shown, places = (
        [],
        [leaders(table, list(SAME_MODEL)) for table in means_of(rows, "crps").values()],
    )
    for group, methods in (
        ("same model", SAME_MODEL),
        ("same model, refits", REFITS),
        ("own model", OWN_MODELS),
    ):
        for method in methods:
            if method not in set(splits["method"]):
                continue
            both = shared(splits, *{method, BASE}).groupby(["method", "data"])
            means = both[[*SCORES, "covered", "width", "seconds"]].mean()
            own, base = means.loc[method], means.loc[BASE]
            ratios = [
                np.exp(np.log(own[score] / base[score]).mean())
                for score in ("crps", "winkler", "width")
            ]
            tied = sum(method in lead for lead in places) if method in SAME_MODEL else ""
            cells = [
                f"{ratios[0]:.3f}", tied, f"{ratios[1]:.3f}", f"{(own['nll'] - base['nll']).median():+.3f}",
                f"{own['covered'].mean():.3f}", f"{own['covered'].min():.3f} to {own['covered'].max():.3f}",
                f"{ratios[2]:.3f}", f"{own['seconds'].mean():.2f}",
                splits.loc[splits["method"] == method, "split"].nunique(),
            ]  # fmt: skip
            shown.append({"method": method, "group": group} | dict(zip(_HEADS, cells)))
    return shown


_HEADS = (
    "CRPS",
    "first or tied",
    "Winkler",
    "NLL",
    "coverage",
    "by data set",
    "width",
    "seconds",
    "splits",
)


def pairs_table(
    rows: pd.DataFrame, splits: pd.DataFrame, pairs: list[tuple[str, str]]
) -> list[Line]:
    """Significant wins, ties and losses of the first of each pair over data sets."""
    shown = []
    for one, other in pairs:
        line: Line = {"method": one, "against": other}
        own = shared(rows, one, other)
        if own.empty:
            continue
        tables = {score: means_of(own, score) for score in SCORES}
        tables["over splits"] = means_of(shared(splits, one, other), "crps", "split")
        known = tables["crps"].values()
        ratios = np.array([table[one].mean() / table[other].mean() for table in known])
        line |= {
            "CRPS to its": f"{np.exp(np.log(ratios).mean()):.3f}",
            "lower on": f"{(ratios < 1).sum()} of {len(known)}",
        }
        line["p"] = f"{stats.wilcoxon(np.log(ratios)).pvalue:.2g}" if len(known) > 1 else ""
        titles = ("CRPS", "NLL", "Winkler", "CRPS, over splits")
        for title, sets in zip(titles, tables.values()):
            found = [compared(table, one, other) for table in sets.values()]
            line[title] = "-".join(str(found.count(result)) for result in (1, 0, -1))
        shown.append(line)
    return shown


def coverage_table(found: Found) -> list[Line]:
    """Coverage by tenths of axil's local scale, and in the worst third by the model's main feature; means over data sets."""
    deciles: dict[str, list[np.ndarray]] = {}
    gaps: dict[str, list[float]] = {}
    for (name, seed, method), arrays in found.items():
        if method == "strata":
            continue
        strata, covered = found[name, seed, "strata"], arrays["covered"]
        deciles.setdefault(method, []).append(
            np.array(
                [
                    part.mean()
                    for part in np.array_split(covered[np.argsort(strata["local scale"])], 10)
                ]
            )
        )
        thirds = np.array_split(covered[np.argsort(strata["feature"], kind="stable")], 3)
        gaps.setdefault(method, []).append(min(part.mean() for part in thirds))
    shown = []
    for method in (method for method in METHODS if method in deciles):
        means = np.mean(deciles[method], axis=0)
        cells = {f"{10 * i} to {10 * i + 10} %": f"{mean:.2f}" for i, mean in enumerate(means)}
        shown.append(
            {"method": method} | cells | {"worst third by feature": f"{np.mean(gaps[method]):.3f}"}
        )
    return shown


def alarm_table(found: Found) -> list[Line]:
    """AUROC of the largest tenth of the errors of each split; means over splits, then data sets."""
    aurocs: dict[str, dict[str, list[float]]] = {}
    for (name, _, what), arrays in found.items():
        if what == "strata":
            large = arrays["error"] > np.quantile(arrays["error"], 0.9)
            for title, key in ALARMS.items():
                aurocs.setdefault(title, {}).setdefault(name, []).append(
                    float(roc_auc_score(large, arrays[key]))
                )
    means = pd.DataFrame(
        {
            title: {name: np.mean(own) for name, own in sets.items()}
            for title, sets in aurocs.items()
        }
    )
    best = means.idxmax(axis=1)
    shown = [
        {"number": title, "AUROC": f"{means[title].mean():.3f}",
         "lowest": f"{means[title].min():.2f}", "highest": f"{means[title].max():.2f}", "best on": int((best == title).sum())}
        for title in means.mean().sort_values(ascending=False).index
    ]  # fmt: skip
    return shown


def kept_lines(splits: pd.DataFrame) -> list[Line]:
    """A line for each data set and method: means over the splits, and the standard deviation of the CRPS over them."""
    grouped = splits.groupby(["data", "method"], sort=False)
    means = grouped[[*SCORES, "covered", "width", "seconds"]].mean()
    means.insert(0, "splits", grouped.size())
    means["crps, spread"] = grouped["crps"].std(ddof=0)
    short = means.map(lambda cell: f"{cell:.5g}" if isinstance(cell, float) else cell)
    return short.reset_index().to_dict("records")


def packages() -> list[str]:
    names = list(PACKAGES)
    for name in OTHERS:
        try:
            version(name)
        except PackageNotFoundError:
            continue
        names.append(name)
    return names


def write_tables(
    found: Found, shapes: dict[str, Line], table: str | None, command: str, short: bool = False
) -> None:
    """results/TABLE.csv and its summaries; None: they are printed; ``short``: the table of methods is all."""
    rows, splits = by_row(found), by_split(found)
    if short and table is not None:
        write(table, kept_lines(splits), command, shown=method_table(rows, splits))
        return
    pairs = [(FIRST, other) for other in METHODS if other != FIRST]
    pairs += [pair for pair in combinations(REFITS, 2) if pair[1] == "CV+"] + [
        ("IBUG", BASE),
        ("IBUG, conformal", BASE),
    ]
    shown = {
        "methods": method_table(rows, splits),
        "pairs": pairs_table(rows, splits, pairs),
        "coverage": coverage_table(found),
        "large_errors": alarm_table(found),
    }
    by_data = data_table(rows, shapes)
    if table is None:
        for lines in (by_data, *shown.values()):
            print("\n".join([*markdown(lines), ""]))
        return
    write(table, kept_lines(splits), command, packages(), shown=by_data)
    for name, lines in shown.items():
        write_shown(f"{table}_{name}", lines, command, packages())
