"""Which number tells rows that the training rows do not support from rows that they do?

    python experiments/novelty.py --data FOLDER     # FOLDER as for the paper's tables; 2 minutes

The area under the ROC curve: rows that a model was not fitted on against the same rows moved. LightGBM, 100 trees of 15 leaves;
three fifths of at most 2,500 rows to fit, one to calibrate, one to ask about. "leaves changed": the share of leaves that are
others after the move. `axil.novelty` was chosen on the data sets of CHOSEN_ON, and is judged on others. "distance to the nearest
rows": of five, by standardised features; it knows nothing of the model. Shuffled columns keep every column's values: rows
that no single column gives away.
"""

from __future__ import annotations

from pathlib import Path

import lightgbm as lgb
import numpy as np
import pandas as pd
from paper_setting import Line, arguments, command, markdown, write
from scipy.stats import rankdata
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

import axil

CHOSEN_ON = ("diabetes", "concrete", "airfoil", "cars")
JUDGED_ON = ("boston", "energy_efficiency", "abalone", "red_wine", "qsar_fish", "kin8nm")
MOST_ROWS = 2500


def area(inside: np.ndarray, outside: np.ndarray) -> float:
    """Under the ROC curve."""
    ranks, m = rankdata(np.concatenate([inside, outside]))[len(inside) :], len(outside)
    return float((ranks.sum() - m * (m + 1) / 2) / (m * len(inside)))


def moved(new: np.ndarray, train: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The rows, moved in several ways."""
    spread, each = train.std(axis=0), np.arange(len(new))
    column = rng.integers(0, new.shape[1], len(new))
    one, beyond = new.copy(), new.copy()
    one[each, column] += 4 * spread[column]
    beyond[each, column] = train.max(axis=0)[column] + 3 * spread[column]
    return {
        "all columns times three": 3 * new,
        "all columns + 3 sd": new + 3 * spread,
        "one column + 4 sd": one,
        "one column beyond its range": beyond,
        "noise of 1 sd": new + rng.normal(size=new.shape) * spread,
        "columns shuffled": np.stack([rng.permutation(own) for own in new.T], axis=1),
    }


class Scores:
    """Every number of some rows, the larger the less they are supported."""

    def __init__(
        self, train: np.ndarray, y: np.ndarray, held_out: np.ndarray, y_held_out: np.ndarray
    ):
        settings = {"verbose": -1, "num_leaves": 15, "min_data_in_leaf": 10, "num_threads": 1}
        self.model, self.train = lgb.train(settings, lgb.Dataset(train, y), 100), train
        self.predictive = axil.Explainer(self.model, train, y, n_threads=1).calibrate(
            held_out, y_held_out, method="exact"
        )
        self.isolation, self.scaler = (
            IsolationForest(random_state=0).fit(train),
            StandardScaler().fit(train),
        )
        self.near = NearestNeighbors(n_neighbors=5).fit(self.scaler.transform(train))

    def leaves(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self.model.predict(rows, pred_leaf=True))

    def of(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        alike = axil.similarity(self.model, rows, self.train, k=5, n_threads=1)[0]
        return {
            "uncertainty rank": self.predictive.interval(rows)["uncertainty_rank"].to_numpy(),
            "similarity to the nearest row": -alike[:, 0],
            "similarity to five rows": -alike.mean(axis=1),
            "axil.novelty": axil.novelty(self.model, rows, self.train, n_threads=1),
            "isolation forest": -self.isolation.score_samples(rows),
            "distance to the nearest rows": self.near.kneighbors(self.scaler.transform(rows))[
                0
            ].mean(axis=1),
        }


def measure(name: str, folder: Path) -> list[Line]:
    table = (
        pd.read_csv(folder / f"{name}.csv")
        .sample(frac=1, random_state=0)[:MOST_ROWS]
        .to_numpy(float)
    )
    fit, calibrate, new = np.split(table, [int(0.6 * len(table)), int(0.8 * len(table))])
    scores, rng = (
        Scores(fit[:, :-1], fit[:, -1], calibrate[:, :-1], calibrate[:, -1]),
        np.random.default_rng(0),
    )
    inside, asked = scores.of(new[:, :-1]), new[:, :-1]
    lines: list[Line] = []
    for move, rows in moved(asked, scores.train, rng).items():
        found = scores.of(rows)
        changed = float((scores.leaves(rows) != scores.leaves(asked)).mean())
        lines.append(
            {"move": move, "leaves changed": changed}
            | {own: area(inside[own], found[own]) for own in found}
        )
    return lines


def main() -> None:
    given = arguments(__doc__.splitlines()[0], [*CHOSEN_ON, *JUDGED_ON]).parse_args()
    shown: list[Line] = []
    for what, names in (("chosen on", CHOSEN_ON), ("judged on", JUDGED_ON)):
        found = pd.DataFrame(
            [line for name in names if name in given.only for line in measure(name, given.data)]
        )
        means = found.groupby("move", sort=False).mean()
        means.loc["mean"] = means.mean()
        for move, line in means.iterrows():
            shown.append(
                {"data": what, "move": move}
                | {name: f"{value:.3f}" for name, value in line.items()}
            )
    print("\n".join(markdown(shown)))
    write("novelty", shown, command("novelty", given.data))


if __name__ == "__main__":
    main()
