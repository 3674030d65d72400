"""How near to the price are five comparables: adjusted by the model or not, by weight or by shared leaves?

    python experiments/comparables.py --data FOLDER     # three sets of house prices, some minutes
    python experiments/comparables.py --quick           # simulated prices, seconds; prints, writes nothing

FOLDER has boston.csv (as for the paper's tables), housing.csv (California's districts of 1990, as the book of Geron has them) and
AmesHousing.csv (sales in Ames, as De Cock published them); those that are not there are left out. Three splits, four fifths to
fit, at most 4,000 rows, and at most 500 of the rest to ask about. Text is numbered in alphabetical order.

Five rows per prediction: the largest positive weights, `similar(X, 5, by="weight", sign="for")`; the most shared leaves,
`LeafMatch`; five at random. Errors are root mean squares of price less estimate, over that of the model's own prediction, which
is in percent of the mean price. Estimates are means of five: of prices as they are, or as the model adjusts them to the query,
y_j + F(x) - F(x_j). "weighted": by their weights. "all adjusted": the mean of all training rows by their weights. Random rows
show how much of an adjusted mean is the model alone. "share": of the absolute weight that the five rows of either kind hold.
"variance", "error", "improved": the most shared leaves where trees count by these rules, `similar(X, 5, by="leaves",
tree_weights="variance")`; of boosted trees alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
from paper_setting import SETTINGS, Line, arguments, command, markdown, write
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split

import axil
from axil.baselines import LeafMatch

K, SPLITS, MOST_ROWS, MOST_ASKED = 5, 3, 4000, 500
FILES = {"boston": "boston.csv", "california": "housing.csv", "ames": "AmesHousing.csv"}
TARGETS = {"boston": "MEDV", "california": "median_house_value", "ames": "SalePrice"}
MODELS = ("boosting", "boosting, log price", "forest")
RULES = ("variance", "error", "improved")  # by which trees may count


def read(name: str, folder: Path) -> tuple[pd.DataFrame, np.ndarray]:
    """Features and prices."""
    frame = pd.read_csv(folder / FILES[name]).drop(columns=["Order", "PID"], errors="ignore")
    prices = frame.pop(TARGETS[name]).to_numpy(float)
    for column in frame.columns[[not pd.api.types.is_numeric_dtype(kind) for kind in frame.dtypes]]:
        frame[column] = frame[column].astype("category").cat.codes
    return frame.fillna(-1).astype(float), prices


def simulated() -> tuple[pd.DataFrame, np.ndarray]:
    """600 houses in a town with a dear centre."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(size=(600, 4)), columns=["north", "east", "area", "age"])
    away = np.hypot(X["north"] - 0.5, X["east"] - 0.5)
    return X, np.exp(
        12 + X["area"] - 2 * away - 0.3 * X["age"] + 0.1 * rng.normal(size=600)
    ).to_numpy()


def fitted(kind: str, X: pd.DataFrame, y: np.ndarray, seed: int) -> axil.Explainer:
    if kind == "forest":
        return axil.Explainer(
            RandomForestRegressor(100, min_samples_leaf=5, random_state=seed).fit(X, y), X, y
        )
    if kind == "boosting":
        return axil.Explainer(lgb.LGBMRegressor(**SETTINGS).fit(X, y), X, y)
    logs = np.log(y)
    return axil.Explainer(lgb.LGBMRegressor(**SETTINGS).fit(X, logs), X, logs, inverse_func=np.exp)


def by_weight(explainer: axil.Explainer, X: pd.DataFrame) -> tuple[dict[str, np.ndarray], float]:
    """Return estimates of the prices of X from `similar`, (n,) by name, and the share of weight."""
    comparables = explainer.similar(X, K, columns=[], by="weight", adjust=True, sign="for")
    footer, query = pd.DataFrame(comparables.attrs["comparables"]), comparables["query"]
    weights = comparables["weight"] / comparables.groupby("query", sort=False)["weight"].transform(
        "sum"
    )
    estimates = {
        "model": footer["prediction"].to_numpy(),
        "all adjusted": footer["mean"].to_numpy(),
    }
    for name, column in (("as they are", "target"), ("adjusted", "adjusted")):
        estimates[f"weights, {name}"] = (
            comparables.groupby("query", sort=False)[column].mean().to_numpy()
        )
        estimates[f"weights, {name}, weighted"] = (
            (comparables[column] * weights).groupby(query, sort=False).sum().to_numpy()
        )
    return estimates, float(footer["share"].mean())


def by_rule(explainer: axil.Explainer, X: pd.DataFrame, rule: str) -> np.ndarray:
    """(n, k): positions of the training rows that share most leaves, where trees count by a rule."""
    rows = explainer.similar(X, K, columns=[], by="leaves", tree_weights=rule)["row"]
    return pd.Index(explainer.index).get_indexer(rows).reshape(len(X), K)


def of_rows(
    explainer: axil.Explainer, train: pd.DataFrame, X: pd.DataFrame, rows: np.ndarray
) -> list[np.ndarray]:
    """(n,) each: means of the prices of these training rows (n, k), as they are and adjusted."""
    fit, asked = (
        np.concatenate([part.predictions for part in explainer.iter(own)]) for own in (train, X)
    )
    adjusted = asked[:, None] + (explainer.targets - fit)[rows]
    return [
        explainer.scale.inverse(values).mean(axis=1)
        for values in (explainer.targets[rows], adjusted)
    ]


def measure(X: pd.DataFrame, y: np.ndarray, kind: str) -> Line:
    """Errors over that of the model, and shares, as means over the splits."""
    lines = []
    for seed in range(SPLITS):
        train, new, y_train, y_new = train_test_split(X, y, test_size=0.2, random_state=seed)
        train, y_train, new, y_new = (
            train[:MOST_ROWS],
            y_train[:MOST_ROWS],
            new[:MOST_ASKED],
            y_new[:MOST_ASKED],
        )
        explainer = fitted(kind, train, y_train, seed)
        made, share = by_weight(explainer, new)
        matches = np.argsort(-LeafMatch(explainer).scores(new), axis=1, kind="stable")[:, :K]
        chance = np.random.default_rng(seed).integers(len(train), size=(len(new), K))
        listed = {"shared leaves": matches, "random": chance}
        if kind != "forest":
            listed |= {rule: by_rule(explainer, new, rule) for rule in RULES}
        for name, rows in listed.items():
            plain, adjusted = of_rows(explainer, train, new, rows)
            made |= {f"{name}, as they are": plain, f"{name}, adjusted": adjusted}
        own = np.sqrt(np.mean((y_new - made.pop("model")) ** 2))
        errors = {
            name: np.sqrt(np.mean((y_new - found) ** 2)) / own for name, found in made.items()
        }
        weights = np.abs(explainer(new).weights)
        matched = np.take_along_axis(weights, matches, axis=1).sum(axis=1) / weights.sum(axis=1)
        line = {"error of the model, %": 100 * own / y_new.mean(), **errors}
        lines.append(line | {"share, weights": share, "share, shared leaves": matched.mean()})
    means = pd.DataFrame(lines).mean().to_dict()
    for name in (f"{rule}, {how}" for rule in RULES for how in ("as they are", "adjusted")):
        means[name] = means.pop(name, np.nan)  # last, and in every line of the table
    return {
        "rows": len(train),
        **{name: "" if np.isnan(value) else f"{value:.3f}" for name, value in means.items()},
    }


def houses(name: str, text: str, measured: Callable[[Any, Any], Iterator[Line]]) -> None:
    """The command of an experiment on house prices: measures each data set that is there, prints a table and writes it."""
    parser = arguments(text.splitlines()[0], list(FILES))
    parser.add_argument(
        "--quick", action="store_true", help="simulated prices; prints, writes nothing"
    )
    given = parser.parse_args()
    if given.data is None and not given.quick:
        parser.error("house prices are read from a folder: pass --data FOLDER, or --quick")
    lines: list[Line] = []
    for data in ["simulated"] if given.quick else given.only:
        if not given.quick and not (given.data / FILES[data]).is_file():
            print(f"{given.data / FILES[data]} is not there: {data} is left out.")
            continue
        for line in measured(*(simulated() if given.quick else read(data, given.data))):
            lines.append({"data": data, **line})
            print(*lines[-1].values(), flush=True)
    print("\n".join(markdown(lines)) if lines else "No data.")
    if lines and not given.quick:
        write(name, lines, command(name, given.data))


if __name__ == "__main__":
    houses(
        "comparables",
        __doc__,
        lambda X, y: ({"model": kind, **measure(X, y, kind)} for kind in MODELS),
    )
