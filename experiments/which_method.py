"""Measure which method predicts a retrained model, for single rows, groups of rows and halves.

    python experiments/which_method.py --data FOLDER     # goes on where it was stopped
    python experiments/which_method.py --quick           # two data sets, two seeds; writes nothing

A cell is one data set, one `min_child_samples` (2 or 20) and one seed. It fits LightGBM (50 trees
of 15 leaves) to at most 300 rows and explains 40 others. It then fits the model again without each
of 40 single rows, without each of 40 groups of 5 % of the rows, and without each of 100 halves. The
table has Spearman's correlation, over the deletions of one kind, between the predicted and the
actual change of a prediction: the mean over explained rows, seeds and data sets. For halves this is
the linear datamodeling score as dattri and quanda define it, if the method adds up over rows. A
prediction that a method says nothing about counts as zero.

The models sample rows and columns: `subsample=0.8`, `subsample_freq=1`, `colsample_bytree=0.8`. The
seed is the model's, and the rows stay the same. "one": each model is compared with its own refits.
"mean": the mean over the models' predicted changes is compared with the mean of their actual
changes.

"size" is the mean predicted |change| over the mean actual |change|. Methods "of the loss" are
compared with the change of (y - F)^2 / 2, as BoostIn, LeafInfluence and TREX were published. All
others are compared with the change of the prediction.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

import lightgbm as lgb
import numpy as np
import paper_data
from paper_setting import Line, arguments, command, markdown, write
from scipy.stats import rankdata

import axil
from axil.baselines import TREX, BoostIn, LeafInfluence
from axil.errors import SplitsWarning

MAX_DATA_ROWS = 900
DATA = [name for name in paper_data.NAMES if int(paper_data.TABLE[name]["N"]) <= MAX_DATA_ROWS]
SETTINGS = {
    "n_estimators": 50,
    "num_leaves": 15,
    "subsample": 0.8,
    "subsample_freq": 1,
    "colsample_bytree": 0.8,
    "force_col_wise": True,
    "n_jobs": 1,
    "verbose": -1,
}
MODELS = ("one", "mean")
MIN_CHILD_SAMPLES = (2, 20)
N_SEEDS = 10
MAX_TRAIN_ROWS = 300
N_EXPLAINED = 40
N_DELETIONS = {"single rows": 40, "groups": 40, "halves": 100}
GROUP_SHARE = 0.05
KINDS = ("single rows", "groups", "halves")
EXACT_SET = "exact deletion of the set"
METHODS = (
    EXACT_SET,
    "exact deletion, summed",
    "LeafInfluence",
    "weight x residual",
    "gradient contributions",
    "BoostIn",
    "TREX",
    "weight x (target - mean)",
    "weight",
)
LOSS_METHODS = ("LeafInfluence of the loss", "BoostIn of the loss", "TREX of the loss")
CACHE = Path(__file__).parent.parent / "build" / "experiments" / "which_method"
Cell = dict[str, np.ndarray]


class Problem:
    """One model, its training rows, the rows it explains, and the rows to delete."""

    def __init__(self, name: str, folder: Path | None, leaf_size: int, seed: int):
        frame, targets = paper_data.read(name, folder)
        X = frame.to_numpy(float)
        y = targets.to_numpy(float)
        rng = np.random.default_rng(0)
        order = rng.permutation(len(y))
        n_train = min(MAX_TRAIN_ROWS, int(0.85 * len(y)))
        train = order[:n_train]
        explained = order[n_train : n_train + N_EXPLAINED]
        self.X = X[train]
        self.y = y[train]
        self.X_new = X[explained]
        self.y_new = y[explained]
        self.settings = SETTINGS | {"min_child_samples": leaf_size, "random_state": seed}
        sizes = {"single rows": 1, "groups": round(GROUP_SHARE * n_train), "halves": n_train // 2}
        #: rows to delete, (deletions, rows), by kind
        self.deletions = {
            kind: np.array([rng.permutation(n_train)[:size] for _ in range(N_DELETIONS[kind])])
            for kind, size in sizes.items()
        }
        single_rows = rng.permutation(n_train)[: N_DELETIONS["single rows"]]
        self.deletions["single rows"] = single_rows[:, None]  # each row once

    def fit(self, deleted: np.ndarray | None = None) -> lgb.LGBMRegressor:
        """Return the model fitted to all training rows, or to those that are not deleted."""
        is_used = np.ones(len(self.y), bool)
        if deleted is not None:
            is_used[deleted] = False
        return lgb.LGBMRegressor(**self.settings).fit(self.X[is_used], self.y[is_used])

    def predictions_without(self, kind: str) -> np.ndarray:
        """Return the predictions without the rows, (deletions, explained rows)."""
        return np.array([self.fit(rows).predict(self.X_new) for rows in self.deletions[kind]])


def effects_by_method(explainer: axil.Explainer, problem: Problem) -> dict[str, np.ndarray]:
    """Return each method's effect of having a row, (explained rows, training rows)."""
    X_new = problem.X_new
    y_new = problem.y_new
    weights = explainer(X_new).weights
    residuals = problem.y - explainer(problem.X).predictions
    return {
        "exact deletion, summed": -explainer.removal(X_new, method="exact"),
        "LeafInfluence": LeafInfluence(explainer).scores(X_new),
        "weight x residual": weights * residuals,
        "gradient contributions": explainer.jacobian.gradient_contributions(X_new),
        "BoostIn": BoostIn(explainer).scores(X_new),
        "TREX": TREX(explainer).scores(X_new),
        "weight x (target - mean)": weights * (problem.y - problem.y.mean()),
        "weight": weights,
        # a positive score lowers the loss
        "LeafInfluence of the loss": -LeafInfluence(explainer).scores(X_new, y_new),
        "BoostIn of the loss": -BoostIn(explainer).scores(X_new, y_new),
        "TREX of the loss": -TREX(explainer).scores(X_new, y_new),
    }


def exact_changes(explainer: axil.Explainer, X: np.ndarray, deletions: np.ndarray) -> np.ndarray:
    """Return the changes with the tree structure fixed, (deletions, explained rows)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SplitsWarning)
        return np.array([explainer.without(X, rows)["change"].to_numpy() for rows in deletions])


def measure(problem: Problem) -> Cell:
    """Return actual and predicted changes, (deletions, explained rows), by kind and method."""
    model = problem.fit()
    before = model.predict(problem.X_new)
    explainer = axil.Explainer(model, problem.X, problem.y, n_threads=1)
    effects = effects_by_method(explainer, problem)
    cell: Cell = {}
    for kind, deletions in problem.deletions.items():
        after = problem.predictions_without(kind)
        cell[f"{kind}|actual"] = after - before
        loss_change = (problem.y_new - after) ** 2 - (problem.y_new - before) ** 2
        cell[f"{kind}|actual loss"] = loss_change / 2
        for method, effect in effects.items():
            cell[f"{kind}|{method}"] = -effect[:, deletions].sum(axis=2).T
        if kind == "single rows":
            cell[f"{kind}|{EXACT_SET}"] = cell[f"{kind}|exact deletion, summed"]
        else:
            cell[f"{kind}|{EXACT_SET}"] = exact_changes(explainer, problem.X_new, deletions)
    return {name: values.astype(np.float32) for name, values in cell.items()}


def kept_cell(folder: Path | None, cache: Path, name: str, leaf_size: int, seed: int) -> Cell:
    """Return a cell of the cache; measure it first if it is not there."""
    path = cache / f"{name}-{leaf_size}-{seed}.npz"
    if not path.exists():
        cell = measure(Problem(name, folder, leaf_size, seed))
        path.parent.mkdir(parents=True, exist_ok=True)
        partial_path = path.with_suffix(".partial.npz")
        np.savez_compressed(partial_path, **cell)
        partial_path.replace(path)
        print(path.stem, flush=True)
    with np.load(path) as arrays:
        return dict(arrays)


def centred_ranks(values: np.ndarray) -> np.ndarray:
    """Return the ranks in each column, less their mean."""
    ranks = rankdata(values, axis=0)
    return np.asarray(ranks - ranks.mean(axis=0))


def correlation(predicted: np.ndarray, actual: np.ndarray) -> float:
    """Return the mean over explained rows of Spearman's correlation over deletions."""
    predicted_ranks = centred_ranks(predicted)
    actual_ranks = centred_ranks(actual)
    norms = np.sqrt((predicted_ranks**2).sum(axis=0) * (actual_ranks**2).sum(axis=0))
    products = (predicted_ranks * actual_ranks).sum(axis=0)
    return float(np.divide(products, norms, out=np.zeros_like(norms), where=norms > 0).mean())


def compared(cell: Cell) -> Iterator[tuple[str, str, float, float]]:
    """Yield kind, method, correlation and size of the predicted changes of a cell."""
    for kind, method in product(KINDS, METHODS + LOSS_METHODS):
        if method in LOSS_METHODS:
            actual = cell[f"{kind}|actual loss"]
        else:
            actual = cell[f"{kind}|actual"]
        predicted = cell[f"{kind}|{method}"]
        size = np.abs(predicted).mean() / np.abs(actual).mean()
        yield kind, method, correlation(predicted, actual), float(size)


def mean_cell(cells: Iterable[Cell]) -> Cell:
    """Return the mean changes of several models of the same rows."""
    all_cells = list(cells)
    return {name: np.mean([cell[name] for cell in all_cells], axis=0) for name in all_cells[0]}


def measured(cells: list[Cell]) -> Iterator[Line]:
    """Yield a line for each kind and method: the mean over the cells of one data set."""
    comparisons = zip(*(compared(cell) for cell in cells))
    for of_seeds in comparisons:
        kind, method, *_ = of_seeds[0]
        correlations = [comparison[2] for comparison in of_seeds]
        sizes = [comparison[3] for comparison in of_seeds]
        yield {
            "deleted": kind,
            "method": method,
            "seeds": len(cells),
            "Spearman": f"{np.mean(correlations):.4f}",
            "deviation": f"{np.std(correlations):.4f}",
            "size": f"{np.median(sizes):.4g}",
        }


def lines_of(names: list[str], folder: Path | None, cache: Path, n_seeds: int) -> list[Line]:
    """Return a line for one model and their mean, data set, minimum leaf size, kind and method."""
    for seed, name, leaf_size in product(range(n_seeds), names, MIN_CHILD_SAMPLES):
        kept_cell(folder, cache, name, leaf_size, seed)  # an early stop leaves whole seeds
    lines: list[Line] = []
    for models, name, leaf_size in product(MODELS, names, MIN_CHILD_SAMPLES):
        cells = [kept_cell(folder, cache, name, leaf_size, seed) for seed in range(n_seeds)]
        if models == "mean":
            cells = [mean_cell(cells)]
        where: Line = {"data": name, "models": models, "min_child_samples": leaf_size}
        lines += [where | line for line in measured(cells)]
    return lines


def shown(lines: list[Line]) -> list[Line]:
    """Return a line for each kind of models and method: the means over data sets."""
    table: list[Line] = []
    for models, method in product(MODELS, METHODS + LOSS_METHODS):
        row: Line = {"models": models, "method": method}
        for leaf_size, kind in product(MIN_CHILD_SAMPLES, KINDS):
            values = [
                float(line["Spearman"])
                for line in lines
                if line["models"] == models
                and line["method"] == method
                and line["deleted"] == kind
                and line["min_child_samples"] == leaf_size
            ]
            row[f"{kind}, {leaf_size}"] = f"{np.mean(values):.2f}"
        table.append(row)
    return table


def main() -> None:
    """Measure what is missing, and write the table."""
    parser = arguments(__doc__.splitlines()[0], DATA)
    parser.add_argument(
        "--quick", action="store_true", help="two small data sets, two seeds; writes nothing"
    )
    parser.add_argument(
        "--seeds", type=int, default=N_SEEDS, help="how many seeds (default: %(default)s)"
    )
    parser.add_argument(
        "--cache", type=Path, default=CACHE, help="folder of measured cells (default: %(default)s)"
    )
    options = parser.parse_args()
    if options.quick:
        lines = lines_of(list(paper_data.QUICK), None, options.cache, 2)
    else:
        lines = lines_of(options.only, options.data, options.cache, options.seeds)
    table = shown(lines)
    print("\n".join(markdown(table)))
    if not options.quick:
        typed = command("which_method", options.data)
        if options.seeds != N_SEEDS:
            typed += f" --seeds {options.seeds}"
        write("which_method", lines, typed, shown=table)


if __name__ == "__main__":
    main()
