"""The paper's 20 data sets: from a folder of prepared CSV files, or from OpenML by id, prepared as the paper says and kept.

experiments/datasets.csv has a line for each: title in the paper, OpenML id, target, columns that are no features (dropped where
OpenML has them), the paper's N and M, and the SHA-256 of the prepared CSV file that the committed results were made from.
"""

from __future__ import annotations

import csv
import hashlib
import os
import sys
import tempfile
import warnings
from http.client import HTTPException
from pathlib import Path

import pandas as pd
from sklearn.datasets import fetch_openml, load_diabetes, make_friedman1

INSTEAD = (
    "Pass --data FOLDER with the prepared data sets as CSV files, the target in the last column."
)
with open(Path(__file__).parent / "datasets.csv", encoding="utf-8", newline="") as file:
    TABLE = {line["name"]: line for line in csv.DictReader(file)}
NAMES = list(TABLE)
QUICK = (
    "friedman",
    "scikit_learn_diabetes",
)  # small ones that need neither a folder nor a connection


class DataError(SystemExit):
    """A data set is not there, or not the paper's: a command ends with what this says, without a traceback."""


def read(name: str, folder: Path | None = None) -> tuple[pd.DataFrame, pd.Series]:
    """The features (N, M) and the targets (N,) of a data set: FOLDER/NAME.csv, or OpenML's, kept in the cache folder."""
    if name in QUICK:
        return _quick(name)
    if folder is None and name not in TABLE:
        raise DataError(
            f"There is no data set {name!r} in the paper; its data sets are {', '.join(NAMES)}."
        )
    frame = pd.read_csv(_kept(name) if folder is None else _given(name, folder))
    return frame.iloc[:, :-1], frame.iloc[:, -1]


def _quick(name: str) -> tuple[pd.DataFrame, pd.Series]:
    if name == "scikit_learn_diabetes":
        return load_diabetes(return_X_y=True, as_frame=True)
    X, y = make_friedman1(400, noise=1.0, random_state=0)
    return pd.DataFrame(X), pd.Series(y)


def cache_folder() -> Path:
    """$AXIL_EXPERIMENTS_CACHE, or a folder where the platform keeps caches."""
    if named := os.environ.get("AXIL_EXPERIMENTS_CACHE"):
        return Path(named)
    if sys.platform == "win32":
        parent = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        parent = Path.home() / "Library" / "Caches"
    else:
        parent = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(parent) / "axil-experiments"


def _given(name: str, folder: Path) -> Path:
    path = folder / f"{name}.csv"
    if not path.is_file():
        raise DataError(f"{path} is not there. {INSTEAD} Without --data it comes from OpenML.")
    if name in TABLE and (found := _sha256(path)) != (expected := TABLE[name]["sha256"]):
        warnings.warn(
            f"{path} has SHA-256 {found}, but the committed results were made from {expected}: other values, another order of "
            "rows or another spelling of the same numbers. Results may differ.",
            stacklevel=3,
        )
    return path


def _kept(name: str) -> Path:
    """The data set in the cache folder, fetched where it is not there or not as it was written."""
    path = cache_folder() / f"{name}.csv"
    checksum = path.with_suffix(".sha256")
    if path.exists():
        written = checksum.read_text(encoding="ascii").strip() if checksum.exists() else "nothing"
        if (found := _sha256(path)) == written:
            return path
        warnings.warn(
            f"{path} is damaged: its SHA-256 is {found}, on record is {written}. It is fetched from OpenML again.",
            stacklevel=3,
        )
    frame = prepare(name, *fetch(name))
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        dir=path.parent
    ) as beside:  # on the same disk: moved into place whole or not at all
        new = Path(beside) / path.name
        frame.to_csv(new, index=False, lineterminator="\n")
        checksum.write_text(_sha256(new) + "\n", encoding="ascii")
        new.replace(path)
    return path


def fetch(name: str) -> tuple[pd.DataFrame, str | None]:
    """All columns that OpenML does not tell to ignore, in its order of rows, and the name of its default target."""
    number = int(TABLE[name]["openml_id"])
    try:
        # scikit-learn compares the download with OpenML's MD5; its files are not kept, as it cannot mend a damaged one
        with tempfile.TemporaryDirectory() as passing:
            bunch = fetch_openml(
                data_id=number,
                target_column=None,
                as_frame=True,
                parser="pandas",
                data_home=passing,
                n_retries=1,
            )
    except (
        OSError,
        HTTPException,
        ValueError,
    ) as error:  # no connection, a broken one, or OpenML's refusal
        raise DataError(
            f"Data set {name!r} could not be fetched from OpenML (id {number}): {error}. Try again later, or: {INSTEAD}"
        ) from error
    return bunch.frame, bunch.details.get("default_target_attribute")


def prepare(name: str, frame: pd.DataFrame, default_target: str | None) -> pd.DataFrame:
    """As the paper says: categories one-hot, other columns without numbers and rows with gaps dropped; the target comes last."""
    about = TABLE[name]
    target = _target(about, frame, default_target)
    categorical = [
        c for c in frame if isinstance(frame[c].dtype, pd.CategoricalDtype) and c != target
    ]
    useful = [
        c
        for c in frame
        if pd.api.types.is_numeric_dtype(frame[c]) or c in categorical or c == target
    ]
    frame = frame[[c for c in useful if c == target or c not in about["drop"].split(";")]].dropna()
    try:
        y = frame.pop(target).astype(float)
    except ValueError as error:
        raise DataError(
            f"The target {target!r} of OpenML's {about['openml_id']} is not numeric: {error}."
        ) from error
    X = pd.get_dummies(frame, columns=[c for c in categorical if c in frame], dtype=int)
    expected = int(about["N"]), int(about["M"])
    if X.shape != expected:
        raise DataError(
            f"OpenML's {about['openml_id']} ({name}) gives {X.shape[0]} rows and {X.shape[1]} features ({', '.join(map(str, X))}"
            f"; target {target}); the paper has {expected[0]} and {expected[1]}, so this is not its data. {INSTEAD}"
        )
    return X.assign(**{target: y})


def _target(about: dict[str, str], frame: pd.DataFrame, default: str | None) -> str:
    if about["target"] in frame:
        return about["target"]
    columns = ", ".join(map(str, frame))
    if default not in frame:
        raise DataError(
            f"OpenML's {about['openml_id']} has no column {about['target']!r} and no default target among {columns}. {INSTEAD}"
        )
    warnings.warn(
        f"OpenML's {about['openml_id']} has no column {about['target']!r}; its default target {default!r} is taken.",
        stacklevel=5,
    )
    return default


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
