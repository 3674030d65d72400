"""What the paper's tables share: the split of its data sets, the model, the command line, and how results are written."""

from __future__ import annotations

import argparse
import csv
import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import paper_data
from sklearn.model_selection import train_test_split

import axil

SETTINGS = {
    "n_estimators": 100,
    "num_leaves": 31,
    "learning_rate": 0.1,
    "min_child_samples": 2,
    "force_col_wise": True,  # left to itself LightGBM times both ways, so a fit is not always repeated to the last bit
    "n_jobs": 1,
    "verbose": -1,
}
PACKAGES = ("axil", "lightgbm", "numpy", "scikit-learn")
RESULTS = Path(__file__).parent / "results"
OVERWRITE = "AXIL_OVERWRITE"  # set to replace results that are there
KEPT = f"Results that are there are kept: new ones are written beside them as NAME.new.csv. {OVERWRITE}=1 replaces them."
Line = dict[str, object]


class Fitted:
    """One data set, split and fitted to as in the paper; of a folder of CSV files or else of OpenML."""

    def __init__(self, name: str, folder: Path | None = None):
        X, y = (part.to_numpy(float) for part in paper_data.read(name, folder))
        self.train, self.new, self.y_train, self.y_new = train_test_split(
            X, y, test_size=0.2, random_state=42
        )
        self.model = lgb.LGBMRegressor(**SETTINGS).fit(self.train, self.y_train)
        self.shape: tuple[int, int] = X.shape

    def leaves(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.model.predict(X, pred_leaf=True))


def plain_arguments(description: str | None) -> argparse.ArgumentParser:
    """The arguments of an experiment that takes none, or adds its own."""
    return argparse.ArgumentParser(description=(description or "").splitlines()[0], epilog=KEPT)


def arguments(description: str, names: Sequence[str] = paper_data.NAMES) -> argparse.ArgumentParser:
    """The arguments that all commands take: where the data sets are, and which of them."""
    parser = plain_arguments(description)
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FOLDER",
        help="a folder of prepared CSV files (default: from OpenML, kept in a cache)",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=names,
        default=list(names),
        metavar="NAME",
        help=f"of {', '.join(names)}",
    )
    return parser


def command(table: str, folder: Path | None) -> str:
    """What to type for the same table, wherever the folder is."""
    return f"python experiments/{table}.py" + ("" if folder is None else " --data FOLDER")


def furthest(
    explainer: axil.Explainer, X: Any, predictions: np.ndarray, offsets: np.ndarray | None = None
) -> float:
    """The largest difference of weights @ targets + intercepts from the model's predictions (n, K), relative to the largest."""
    made = np.concatenate([part.predictions for part in explainer.iter(X, init_score=offsets)])
    scale = max(np.abs(predictions).max(), explainer.verification.scale)
    return float(np.abs(made.reshape(predictions.shape) - predictions).max() / scale)


def run(
    table: str,
    description: str,
    names: Sequence[str],
    measure: Callable[[str, Fitted], Line],
    packages: Sequence[str] = PACKAGES,
) -> None:
    """Measure one data set after the other, print the lines of the table and write them."""
    given = arguments(description, names).parse_args()
    lines = []
    for name in given.only:
        lines.append(measure(name, Fitted(name, given.data)))
        print(markdown_line(lines[-1].values()), flush=True)
    write(table, lines, command(table, given.data), packages)


def about(command: str, packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """What a result has to tell of how it came about."""
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": " ".join(f"{name} {version(name)}" for name in packages)
        + f" Python {platform.python_version()}",
        "command": command,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def place(folder: Path | None, name: str) -> Path:
    """Where a result goes: a file that is there is kept, unless `OVERWRITE` is set, and the new one gets a name beside it."""
    path = (folder or RESULTS) / name
    if not path.exists() or os.environ.get(OVERWRITE):
        return path
    beside = path.with_suffix(f".new{path.suffix}")
    print(
        f"{path} is kept; the new result is {beside.name}. {OVERWRITE}=1 replaces it.", flush=True
    )
    return beside


def write(
    table: str,
    lines: list[Line],
    command: str,
    packages: Sequence[str] = PACKAGES,
    shown: list[Line] | None = None,
    folder: Path | None = None,
) -> None:
    """results/TABLE.csv and results/TABLE.md; ``shown``: the lines of the latter, where they are not those of the CSV."""
    write_csv(table, lines, command, packages, folder)
    write_shown(table, lines if shown is None else shown, command, packages, folder)


def write_csv(
    table: str,
    lines: list[Line],
    command: str,
    packages: Sequence[str] = PACKAGES,
    folder: Path | None = None,
) -> None:
    """results/TABLE.csv, or FOLDER/TABLE.csv, where every line tells command, date, versions and machine."""
    told = about(command, packages)
    with open(place(folder, f"{table}.csv"), "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*lines[0], *told], lineterminator="\n")
        writer.writeheader()
        writer.writerows(line | told for line in lines)


def write_shown(
    table: str,
    lines: list[Line],
    command: str,
    packages: Sequence[str] = PACKAGES,
    folder: Path | None = None,
) -> None:
    """results/TABLE.md, or FOLDER/TABLE.md, which tells command, date, versions and machine once."""
    told = about(command, packages)
    made = [
        *markdown(lines),
        "",
        f"`{command}`; {told['versions']}; {told['machine']}; {told['date']}.",
        "",
    ]
    place(folder, f"{table}.md").write_text("\n".join(made), encoding="utf-8")


def markdown(lines: list[Line]) -> list[str]:
    return [
        markdown_line(lines[0]),
        "|---" * len(lines[0]) + "|",
        *(markdown_line(line.values()) for line in lines),
    ]


def markdown_line(cells: Iterable[object]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
