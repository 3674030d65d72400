"""Commands that ask one question: their options are the question's parameters, and their help is its docstring."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterator
from typing import Any

from axil.cli.commands import TOP, give_rows, question_of
from axil.cli.names import column_of
from axil.cli.output import output_of
from axil.errors import counted
from axil.explainer import Explainer

QUESTIONS = {
    "statistics": "on how many training rows these predictions rest",
    "removal": "what deleting each training row, or group of rows, would do",
    "blame": "which training targets raise the error on validation rows",
    "shapley": "what each training target is worth on validation rows",
    "leave-one-out": "predictions of the training rows without each of them",
}
FILES = {"X": "query", "X_val": "validation"}
SKIPPED = ("self", "y_val", "init_score", *FILES)  # read from the files, with --target and --offset
NAMES = {"k": "top", "top": "top-share"}  # one word for one thing in all commands
COLUMNS = ("groups", "out_of_fold")  # of the training file


def question_named(command: str) -> Any:
    """The method of `Explainer` behind a command."""
    return getattr(Explainer, command.replace("-", "_"))


def about(question: Any) -> str:
    """The first two paragraphs of a question's docstring."""
    return "\n\n".join((inspect.getdoc(question) or "").split("\n\n")[:2]).replace("``", "").replace("`", "")


def add_options(one: argparse.ArgumentParser, question: Any) -> None:
    """An option for every parameter of the question."""
    for parameter, kind, text in _parameters(question):
        option = f"--{NAMES.get(parameter.name, parameter.name).replace('_', '-')}"
        choices = list(dict.fromkeys(re.findall(r'"([\w-]+)"', kind)))
        if parameter.name in COLUMNS:
            one.add_argument(option, metavar="COLUMN", help=f"a column of the training data: {text}")
        elif isinstance(parameter.default, bool):
            one.add_argument(option, action="store_true", help=text)
        elif isinstance(parameter.default, tuple):
            one.add_argument(option, type=_numbers, metavar="A,B,...", help=text)
        elif choices:
            one.add_argument(option, choices=choices, help=text)
        else:
            one.add_argument(option, type=float if kind.startswith("float") else int, metavar="N", help=text)


def files_of(question: Any) -> list[str]:
    """The files besides the training data that a question needs: "query", "validation"."""
    return [FILES[name] for name in inspect.signature(question).parameters if name in FILES]


def run(arguments: argparse.Namespace, out: Any) -> int:
    """Ask the question with the options given, and give its table."""
    output, asked, about_rows = output_of(arguments, out), question_named(arguments.command), ""
    question = question_of(arguments)
    given: dict[str, Any] = {}
    for name in files_of(asked):
        path = getattr(arguments, name)
        rows = question.rows(path, with_target=name == "validation")
        given |= {"X": rows.features} if name == "query" else {"X_val": rows.features, "y_val": rows.target}
        given |= rows.started
        about_rows = f"{counted(len(rows.features), f'{name} row')} of {path}: "
    for parameter, _, _ in _parameters(asked):
        value = getattr(arguments, NAMES.get(parameter.name, parameter.name).replace("-", "_"))
        if value is None or value is False:
            continue
        if parameter.name == "groups":
            value = column_of(question.training, value, "--groups").to_numpy()
        elif parameter.name == "out_of_fold":
            value = question.training.out_of_fold
        given[parameter.name] = value
    if arguments.command == "removal" and not {"k", "groups"} & set(given):
        given["k"] = TOP
    table = getattr(question.explainer, asked.__name__)(**given)
    title = f"{about_rows}{arguments.about}"
    if "row" in table and "query" not in table:
        return give_rows(output, question, table, question.words(title, table), arguments.top)
    return output.give([table], question.words(title, table))


def _parameters(question: Any) -> Iterator[tuple[inspect.Parameter, str, str]]:
    """The parameters that are options, with the type and the first sentence of each in the docstring."""
    text = inspect.getdoc(question) or ""
    for parameter in inspect.signature(question).parameters.values():
        if parameter.name not in SKIPPED:
            found = re.search(rf"^{parameter.name} : (.*)\n((?:    .*\n?)+)", text, re.M)
            kind, said = (found[1], " ".join(found[2].split())) if found else ("", "")
            sentence = re.split(r"(?<=[.;:])\s", said)[0].rstrip(".;:").replace("``", "").replace("%", "%%")
            yield parameter, kind, sentence[:1].lower() + sentence[1:]


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(word) for word in text.split(","))
