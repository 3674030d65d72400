"""Commands that ask one question: their options are the question's parameters, and their help is its docstring."""

from __future__ import annotations

import argparse
import inspect
from typing import Any

import numpy as np

from axil.cli.commands import TOP, CommandSubject, give_rows, question_of
from axil.cli.output import output_of
from axil.cli.parameters import FILES, given_options
from axil.errors import counted
from axil.explainer import Explainer
from axil.methods.audit import FAR

QUESTIONS = {
    "audit": "which training labels look wrong, and how many",
    "statistics": "on how many training rows these predictions rest",
    "what-if": "these predictions if training targets were others",
    "reach": "how far these predictions move with the targets of some training rows",
    "budget": "the fewest training targets that bring these predictions to a line",
    "without": "these predictions if training rows were deleted",
    "removal": "what deleting each training row, or group of rows, would do",
    "standard-error": "how far noise of the training targets moves these predictions",
    "blame": "which training targets raise the error on validation rows",
    "shapley": "what each training target is worth on validation rows",
    "leave-one-out": "predictions of the training rows without each of them",
    "loo-curve": "the error without each training row itself, by the number of trees",
    "leverage": "the weight of each training row in its own prediction",
    "degrees-of-freedom": "how many free parameters the fit is worth",
}
OF_ROWS = (
    "audit",
    "blame",
    "shapley",
    "leave-one-out",
    "leverage",
)  # whose tables have a line per training row
ARRAYS = {
    "reach": ("weight", "query", "output", "row"),
    "standard_error": ("standard_error", "query", "output"),
    "leverage": ("leverage", "row", "output"),
    "degrees_of_freedom": ("degrees_of_freedom", "output"),
}  # the numbers of an array, and its axes; that of outputs is there where these differ


def question_named(command: str) -> Any:
    """The method of `Explainer` behind a command."""
    return getattr(Explainer, command.replace("-", "_"))


def about(question: Any) -> str:
    """The first two paragraphs of a question's docstring."""
    return (
        "\n\n".join((inspect.getdoc(question) or "").split("\n\n")[:2])
        .replace("``", "")
        .replace("`", "")
    )


def files_of(question: Any) -> dict[str, bool]:
    """The files besides the training data that a question takes, "query" and "validation", and whether it needs them."""
    taken = inspect.signature(question).parameters.items()
    return {
        FILES[name]: one.default is inspect.Parameter.empty for name, one in taken if name in FILES
    }


def run(arguments: argparse.Namespace, out: Any) -> int:
    """Ask the question with the options given, and give its table."""
    output, asked, n_rows = output_of(arguments, out), question_named(arguments.command), ""
    subject = question_of(arguments)
    given: dict[str, Any] = {}
    for name in files_of(asked):
        path = getattr(arguments, name)
        if path is None:
            continue
        rows = subject.rows(path, with_target=name == "validation")
        given |= (
            {"X": rows.features}
            if name == "query"
            else {"X_val": rows.features, "y_val": rows.target}
        )
        given |= {
            name: value
            for name, value in rows.started.items()
            if name in inspect.signature(asked).parameters
        }
        n_rows = f"{counted(len(rows.features), f'{name} row')} of {path}: "
    given |= given_options(arguments, asked, subject)
    if arguments.command == "removal" and not {"k", "groups"} & set(given):
        given["k"] = TOP
    explainer = subject.by_position if arguments.command in OF_ROWS else subject.explainer
    table = getattr(explainer, asked.__name__)(**given)
    if asked.__name__ in ARRAYS:
        table = _table(table, asked.__name__, explainer, given)
    words = subject.words(_title(arguments, subject, given, n_rows, table), table)
    if arguments.command in OF_ROWS and "row" in table:
        return give_rows(output, subject, table, words, arguments.top)
    return output.give([table], words)


def _title_of_audit(table: Any) -> str:
    """Return how many labels look wrong, and of numbers how many are how far out."""
    marked = f"{int(table['suspect'].sum())} of {len(table)} labels"
    if "studentised" not in table:
        return f"{marked} are not of the class expected; the most suspicious first"
    n_far = int((table["quality"] < FAR).sum())
    farthest = table["studentised"].abs().max()
    return (
        f"{marked} look wrong; the most suspicious first. {n_far} have a quality below {FAR:g}, the farthest "
        f"{farthest:.3g} usual residuals off"
    )


def _title(
    arguments: argparse.Namespace,
    subject: CommandSubject,
    given: dict[str, Any],
    n_rows: str,
    table: Any,
) -> str:
    """The question, and the number of rows that it is about."""
    labels = subject.training.features.index
    if arguments.command == "audit":
        return _title_of_audit(table)
    if arguments.command == "without":
        changed = f"without {int(given['rows'].sum())} of {len(labels)} training rows"
    elif arguments.command == "what-if":
        changed = f"with {int(labels.isin(list(given['targets'])).sum())} of {len(labels)} targets changed"
    else:
        return f"{n_rows}{arguments.about}"
    return f"{counted(len(given['X']), 'prediction')} {changed}"


def _table(found: Any, name: str, explainer: Explainer, given: dict[str, Any]) -> Any:
    """A line for each number of an array, and beside an estimate its standard error."""
    import pandas as pd

    called, *axes = ARRAYS[name]
    values, errors = found if isinstance(found, tuple) else (found, None)
    if np.ndim(values) < len(axes):
        axes.remove("output")
    labels = {"query": given["X"].index if "X" in given else None, "output": explainer.outputs}
    labels["row"] = explainer.index[given["rows"]] if "rows" in given else explainer.index
    grids = np.meshgrid(*(np.arange(n) for n in np.shape(values)), indexing="ij")
    columns = {axis: np.asarray(labels[axis])[at.ravel()] for axis, at in zip(axes, grids)}
    columns |= {called: np.ravel(values)} | (
        {} if errors is None else {"standard_error": np.ravel(errors)}
    )
    return pd.DataFrame(columns)
