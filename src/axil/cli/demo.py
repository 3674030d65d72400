"""`axil demo`: five held-out diabetes patients, and the earlier patients behind each prediction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from axil import adapters
from axil.cli import printed
from axil.cli.data import FileRows, Roles
from axil.cli.output import Output
from axil.cli.request import Request, Subject
from axil.cli.rows import row_groups
from axil.cli.screen import table_lines
from axil.errors import InputError
from axil.explainer import Explainer

if TYPE_CHECKING:
    import pandas as pd

INDEX = "patient"
TARGET = "progression"
N_QUERIES = 5
TOP = 5
AGES = "40,50,60"  # where bands of ages end


def run(request: Request) -> None:
    """Fit LightGBM on scikit-learn's diabetes data and explain five predictions."""
    try:
        from lightgbm import LGBMRegressor
        from sklearn.datasets import load_diabetes
        from sklearn.model_selection import train_test_split
    except ImportError as error:
        raise InputError(
            f"The demo needs {error.name}, which is not installed. Run: pip install 'axil[demo]'"
        ) from None
    folder = None
    if request.arguments.save is not None:
        folder = _make_folder(Path(request.arguments.save))
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    y.name = TARGET
    X.index.name = INDEX
    X_train, X_rest, y_train, y_rest = train_test_split(X, y, test_size=0.2, random_state=42)
    model = LGBMRegressor(n_estimators=100, num_leaves=8, learning_rate=0.05, n_jobs=1, verbose=-1)
    model.fit(X_train, y_train)
    queries = X_rest.head(N_QUERIES)
    subject = Subject(
        "LGBMRegressor",
        adapters.read(model),
        Explainer(model, X_train, y_train),
        Roles(TARGET),
        FileRows("scikit-learn's diabetes data", X_train, X_train[[]], y_train),
    )
    explanations = subject.by_position.iter(queries)
    _, answers = printed.comparables(explanations, X_train, queries, TOP, "weight", N_QUERIES)
    lines = [
        *printed.answer_lines(answers, queries),
        "",
        f"Query {queries.index[0]} by age of the training patients",
        *_lines_by_age(subject, queries.head(1)),
    ]
    advice = []
    if folder is not None:
        model.booster_.save_model(folder / "model.txt")
        X_train.assign(**{TARGET: y_train}).to_csv(folder / "train.csv")
        validation = X_rest.assign(**{TARGET: y_rest}).iloc[N_QUERIES:]
        validation.to_csv(folder / "validation.csv")
        queries.to_csv(folder / "new.csv")
        advice = _next_commands(folder)
    output = Output(request.stream, quiet=request.arguments.quiet)
    output.say([subject.verification], lines, [subject.note], advice)


def _lines_by_age(subject: Subject, query: pd.DataFrame) -> list[str]:
    """Return the lines of a table that splits a prediction by the age of the training patients."""
    codes, names = row_groups(subject.training, "age", AGES)
    table = subject.explainer.group(query, codes)
    table["group"] = names[table["group"].to_numpy()]
    return table_lines(table.drop(columns="query"))


def _make_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InputError(
            f"--save {folder} is a file; expected a directory, which is made if it is not there."
        ) from None
    return folder


def _next_commands(folder: Path) -> list[str]:
    """Return commands to try on the files."""
    model = (
        f"{folder / 'model.txt'} --train {folder / 'train.csv'} --target {TARGET} --index {INDEX}"
    )
    query = f"{model} --query {folder / 'new.csv'}"
    return [
        f"The model and its data are in {folder}. Try next:",
        f"  axil check {model}",
        f"  axil explain {query}",
        f"  axil group {query} --by age --cut {AGES}",
        f"  axil find-label-issues {model}",
    ]
