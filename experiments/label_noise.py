"""Which method puts wrong labels first, and which says how many there are? 5 % of the training targets are corrupted.

    python experiments/label_noise.py --data FOLDER            # the paper's data sets
    python experiments/label_noise.py --quick                  # two small ones, ten seconds

Two kinds of wrong labels: "swapped", the targets of other rows; "shifted", two standard deviations up or down. Half of the rows
are trained on, a quarter validates, labels unspoilt. Every method orders the training rows, residuals by their size; all see the
same fitted LightGBM model. "audit" is `Explainer.audit`, "audit, out-of-fold" with the predictions of five more fits.
"cleanlab" is CleanLearning of cleanlab.regression with its defaults, on the first repetition alone, where it is installed (AGPL;
not a part of axil). "audit, by weights" takes |weights| for the rows around a row, in place of leaves. Both are asked about data
sets of up to 1000 training rows alone; larger ones have two repetitions in place of five.

"precision": the share of wrong labels among as many rows from the top as there are wrong labels (which is the recall there too);
"recall at 10 %": of the wrong labels, when a tenth of the rows is looked at; "average precision" over the whole order. "fits" and
"seconds" are those beyond the model itself and its explainer. Means over repetitions, in results/label_noise.csv with their
spread; means over the data sets in label_noise.md. "other ten": over the data sets that no choice of audit's was made on; the
form of its scale and of its count was chosen on every second one.

results/label_noise_counts.md: by how much the estimated share of wrong labels is off, on the data as they are ("as given", where
all labels count as right) and with wrong ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import lightgbm as lgb
import numpy as np
import pandas as pd
from paper_data import NAMES, QUICK, read
from paper_setting import PACKAGES, Line, arguments, command, markdown, write, write_shown
from sklearn.metrics import average_precision_score
from sklearn.model_selection import KFold, cross_val_predict

import axil
from axil import baselines
from axil.questions.audit import Studentised

try:
    from cleanlab.regression.learn import CleanLearning
except ImportError:
    CleanLearning = None

SHARE, REPETITIONS = 0.05, 5
LARGE, FEWER = (
    1000,
    2,
)  # training rows above which there are so many repetitions, and cleanlab, some seventy fits, is left out
SETTINGS = {
    "n_estimators": 100,
    "num_leaves": 31,
    "learning_rate": 0.1,
    "min_child_samples": 5,
    "n_jobs": 1,
    "verbose": -1,
}
METRICS = ("precision", "recall at 10 %", "average precision")
CHOSEN_ON = NAMES[::2]


@dataclass
class Found:
    """What a method says of every training row, larger for a wrong label, and how many there are, where it says so."""

    suspicion: np.ndarray
    count: float = np.nan
    fits: int = 0
    seconds: float = np.nan


class Counted(lgb.LGBMRegressor):
    """LightGBM that counts its fits."""

    fits = 0

    def fit(self, *args, **kwargs):
        Counted.fits += 1
        return super().fit(*args, **kwargs)


def spoil(y: np.ndarray, kind: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Targets of which some are wrong, and which."""
    wrong = rng.choice(len(y), max(1, round(SHARE * len(y))), replace=False)
    spoilt = y.copy()
    if kind == "shifted":
        spoilt[wrong] += 2 * y.std() * rng.choice([-1, 1], len(wrong))
    else:
        spoilt[wrong] = y[rng.permutation(len(y))[: len(wrong)]]
    return spoilt, np.isin(np.arange(len(y)), wrong[spoilt[wrong] != y[wrong]])


def timed(work: Callable[[], object]) -> tuple[object, float]:
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def audited(table: pd.DataFrame, **known: object) -> Found:
    by_row = table.set_index("row").sort_index()
    return Found(by_row["studentised"].abs().fillna(np.inf).to_numpy(), int(by_row["suspect"].sum()), **known)


def by_weights(explainer: axil.Explainer, X: np.ndarray, y: np.ndarray, alone: np.ndarray) -> Found:
    """audit with means by |weight| for its scale."""
    weights = np.abs(explainer(X).weights)
    np.fill_diagonal(weights, 0.0)
    residuals = (y - alone)[:, None]
    made = Studentised.of(residuals, weights @ np.abs(residuals) / weights.sum(axis=1, keepdims=True))
    return Found(np.abs(made.value[:, 0]), int(made.suspect.sum()))


def cleaned(X: np.ndarray, y: np.ndarray, seed: int) -> Found:
    Counted.fits = 0
    issues, seconds = timed(lambda: CleanLearning(Counted(**SETTINGS), seed=seed).find_label_issues(X, y))
    count = int(issues["is_label_issue"].sum())
    return Found(-issues["label_quality"].to_numpy(), count, Counted.fits, seconds)


def audits(X: np.ndarray, y: np.ndarray, seed: int) -> tuple[axil.Explainer, np.ndarray, np.ndarray, dict[str, Found]]:
    """The explainer, predictions without the row, out-of-fold predictions, and what the audits say."""
    explainer = axil.Explainer(lgb.LGBMRegressor(**SETTINGS).fit(X, y), X, y, n_threads=1)
    folds = KFold(5, shuffle=True, random_state=seed)
    unseen, longer = timed(lambda: cross_val_predict(lgb.LGBMRegressor(**SETTINGS), X, y, cv=folds))
    table, seconds = timed(explainer.audit)
    given, more = timed(lambda: explainer.audit(unseen))
    alone = table.set_index("row")["expected"].sort_index().to_numpy()
    found = {
        "audit": audited(table, seconds=seconds),
        "audit, out-of-fold": audited(given, fits=5, seconds=longer + more),
        "out-of-fold residual": Found(np.abs(y - unseen), fits=5, seconds=longer),
    }
    return explainer, alone, unseen, found


def orders(X: np.ndarray, y: np.ndarray, X_val: np.ndarray, y_val: np.ndarray, seed: int) -> dict[str, Found]:
    """What each method says of every training row."""
    explainer, alone, unseen, found = audits(X, y, seed)

    def gains(correction: str | np.ndarray) -> Found:
        table = explainer.blame(X_val, y_val, correction=correction)
        return Found(table.set_index("row")["gain"].fillna(-np.inf).loc[np.arange(len(y))].to_numpy())

    found |= {
        "blame, leave-one-out": gains("leave-one-out"),
        "blame, cross-fitted": gains(unseen),
        "leave-one-out residual": Found(np.nan_to_num(np.abs(y - alone), nan=np.inf)),
        "residual": Found(np.abs(y - explainer.proven.fitted()[:, 0])),
    }
    if len(y) <= LARGE:
        found["audit, by weights"] = by_weights(explainer, X, y, alone)
    if CleanLearning is not None and seed == 0 and len(y) <= LARGE:
        found["cleanlab"] = cleaned(X, y, seed)
    rivals = (baselines.BoostIn, baselines.LeafInfluence, baselines.TREX, baselines.TreeSim, baselines.Random)
    for rival in rivals:  # a positive score: the row lowers the loss
        found[rival.__name__] = Found(-rival(explainer).scores(X_val, y_val).sum(axis=0))
    return found


def judge(suspicion: np.ndarray, wrong: np.ndarray) -> list[float]:
    order = np.argsort(-suspicion, kind="stable")
    m, tenth = int(wrong.sum()), round(0.1 * len(wrong))
    finite = np.nan_to_num(suspicion, posinf=np.nanmax(suspicion[np.isfinite(suspicion)]) + 1, neginf=-1e300)
    return [wrong[order[:m]].mean(), wrong[order[:tenth]].sum() / m, average_precision_score(wrong, finite)]


def run(name: str, X: np.ndarray, y: np.ndarray) -> Iterator[Line]:
    for kind in ("as given", "swapped", "shifted"):
        results: dict[str, list[list[float]]] = {}
        for seed in range(REPETITIONS if len(y) // 2 <= LARGE else FEWER):
            rng = np.random.default_rng(seed)
            order = rng.permutation(len(y))
            train, val = order[: len(y) // 2], order[len(y) // 2 : len(y) * 3 // 4]
            if kind == "as given":
                made, wrong = audits(X[train], y[train], seed)[3], np.zeros(len(train), dtype=bool)
            else:
                spoilt, wrong = spoil(y[train], kind, rng)
                made = orders(X[train], spoilt, X[val], y[val], seed)
            for method, found in made.items():
                measures = judge(found.suspicion, wrong) if wrong.any() else [np.nan] * len(METRICS)
                off = (found.count - wrong.sum()) / len(wrong)
                results.setdefault(method, []).append([*measures, off, abs(off), found.fits, found.seconds])
        for method, lines in results.items():
            means, spreads = np.mean(lines, axis=0), np.std(lines, axis=0)
            line: Line = {"data": name, "training rows": len(y) // 2, "wrong": kind, "method": method}
            line |= {metric: round(mean, 3) for metric, mean in zip(METRICS, means)}
            line |= {f"{metric}, spread": round(spread, 3) for metric, spread in zip(METRICS, spreads)}
            more = zip(("share too high", "share off", "fits", "seconds"), means[len(METRICS) :])
            yield line | {what: round(value, 4) for what, value in more}


def summary(lines: list[Line]) -> list[Line]:
    """Means over the data sets, the best average precision first."""
    frame = pd.DataFrame(lines).query("wrong != 'as given'")
    means = frame.groupby(["wrong", "method"])[["precision", "average precision"]].mean().unstack("wrong")
    unseen = frame[~frame["data"].isin(CHOSEN_ON)].groupby(["wrong", "method"])["precision"].mean().unstack("wrong")
    work = frame.groupby("method")[["fits", "seconds"]].mean()
    means = means.sort_values(("average precision", "shifted"), ascending=False)
    made = []
    for method, row in means.iterrows():
        line: Line = {"method": method} | {f"{metric}, {kind}": f"{value:.2f}" for (metric, kind), value in row.items()}
        line |= {f"precision, {kind}, other ten": f"{value:.2f}" for kind, value in unseen.loc[method].items()}
        seconds = work.loc[method, "seconds"]
        made.append(
            line | {"fits": round(work.loc[method, "fits"]), "seconds": "" if np.isnan(seconds) else f"{seconds:.2g}"}
        )
    return made


def counts(lines: list[Line]) -> list[Line]:
    """How far the estimated share of wrong labels is from the true one: mean size over the data sets, and mean with its sign."""
    frame = pd.DataFrame(lines).dropna(subset=["share off"])
    frame["half"] = np.where(frame["data"].isin(CHOSEN_ON), "chosen on", "other ten")
    made = []
    for (method, kind), own in frame.groupby(["method", "wrong"]):
        line: Line = {"method": method, "wrong": kind, "share off": f"{own['share off'].mean():.3f}"}
        line["share off, other ten"] = f"{own[own['half'] == 'other ten']['share off'].mean():.3f}"
        line["median share off"] = f"{own['share off'].median():.3f}"
        made.append(line | {"share too high": f"{own['share too high'].mean():+.3f}"})
    return made


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two small data sets; prints, writes nothing")
    given = parser.parse_args()
    lines: list[Line] = []
    for name in QUICK if given.quick else given.only:
        X, y = (part.to_numpy(float) for part in read(name, given.data))
        lines += run(name, X, y)
        print(name, flush=True)
    print("\n".join([*markdown(summary(lines)), "", *markdown(counts(lines))]))
    if not given.quick:
        packages = PACKAGES if CleanLearning is None else (*PACKAGES, "cleanlab")
        write("label_noise", lines, command("label_noise", given.data), packages, summary(lines))
        write_shown("label_noise_counts", counts(lines), command("label_noise", given.data), packages)


if __name__ == "__main__":
    main()
