"""`axil demo`: five held-out diabetes patients, and the earlier patients that made each prediction."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from axil import adapters
from axil.cli import commands, data, printed_answers
from axil.cli.names import groups as groups_of
from axil.cli.output import Output, lines_of
from axil.errors import InputError
from axil.explainer import Explainer

INDEX, TARGET = "patient", "progression"
N_ASKED = 5
TOP = 5
AGES = "40,50,60"  # where bands of ages end


def run(arguments: argparse.Namespace, out: Any) -> int:
    """Fit LightGBM on scikit-learn's diabetes data: 442 patients; the target is disease progression after a year."""
    try:
        from lightgbm import LGBMRegressor
        from sklearn.datasets import load_diabetes
        from sklearn.model_selection import train_test_split
    except ImportError as error:
        raise InputError(
            f"The demo needs {error.name}, which is not installed. Run: pip install 'axil[demo]'"
        ) from None
    folder = None if arguments.save is None else _made(Path(arguments.save))
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    y.name, X.index.name = TARGET, INDEX
    X_train, X_rest, y_train, y_rest = train_test_split(X, y, test_size=0.2, random_state=42)
    model = LGBMRegressor(n_estimators=100, num_leaves=8, learning_rate=0.05, n_jobs=1, verbose=-1)
    model.fit(X_train, y_train)
    asked = X_rest.head(N_ASKED)

    explainer = Explainer(model, X_train, y_train)
    training = data.FileRows("scikit-learn's diabetes data", X_train, y_train)
    question = commands.CommandSubject(
        "LGBMRegressor", adapters.read(model), explainer, data.Roles(TARGET), training
    )
    _, shown = printed_answers.comparables(
        question.by_position.iter(asked), X_train, asked, TOP, "weight", N_ASKED
    )
    answer = [
        *printed_answers.on_screen(shown, asked),
        "",
        *_by_age(explainer, training, asked.head(1)),
    ]
    after = [] if folder is None else _next(folder)
    if folder is not None:
        validation = X_rest.iloc[N_ASKED:], y_rest.iloc[N_ASKED:]
        _save(folder, model.booster_, (X_train, y_train), asked, validation)
    Output(out, quiet=arguments.quiet).say([question.proof], answer, [question.sentence], after)
    return 0


def _by_age(explainer: Explainer, training: data.FileRows, first: Any) -> list[str]:
    """The first prediction once more, by the age of the patients that it comes from."""
    codes, names = groups_of(training, "age", AGES)
    table = explainer.group(first, codes)
    table["group"] = names[table["group"].to_numpy()]
    return [
        f"Query {first.index[0]} by age of the training patients",
        *lines_of(table.drop(columns="query")),
    ]


def _made(folder: Path) -> Path:
    """The directory, made if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InputError(
            f"--save {folder} is a file; expected a directory, which is made if it is not there."
        ) from None
    return folder


def _save(
    folder: Path, booster: Any, training: tuple[Any, Any], asked: Any, validation: tuple[Any, Any]
) -> None:
    """The model and its data, as the other commands take them."""
    booster.save_model(folder / "model.txt")
    for name, (X, y) in {"train.csv": training, "validation.csv": validation}.items():
        X.assign(**{TARGET: y}).to_csv(folder / name)
    asked.to_csv(folder / "new.csv")


def _next(folder: Path) -> list[str]:
    """Commands to try on the files."""
    common = (
        f"{folder / 'model.txt'} --train {folder / 'train.csv'} --target {TARGET} --index {INDEX}"
    )
    query = f"{common} --query {folder / 'new.csv'}"
    return [
        f"The model and its data are in {folder}. Try next:",
        f"  axil check {common}",
        f"  axil explain {query}",
        f"  axil group {query} --by age --cut {AGES}",
        f"  axil audit {common}",
    ]
