"""Parameters of questions as options: help comes from the docstring, and words become what the question takes."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from axil import inputs, stability
from axil.adapters import files
from axil.cli.names import column_of, labelled_rows, listed, mask, number_or_word
from axil.errors import InputError, shown

FILES = {"X": "query", "X_val": "validation"}
FROM_FILES = ("self", "y_val", "init_score", "path", *FILES)  # with --target, --offset and --out
NAMES = {
    "k": "top",
    "top": "top-share",
    "targets": "set",
    "target": "target-name",
    "rows": "row-name",
    "query": "query-name",
    "y": "actual",
}  # as all commands say
COLUMN, ACTUAL = (
    {"metavar": "COLUMN"},
    {"action": "store_true", "help": "the query file has targets too: show them"},
)
SET = "the label of a training row and its new target; may be given again. Several rows: a,b=80; several outputs: a=80:90"
WORDS: dict[str, dict[str, Any]] = {
    "groups": COLUMN
    | {"help": "labels of the rows: a column of the training data, feature or not"},
    "out_of_fold": COLUMN
    | {
        "help": "a column of the training data: predictions of its rows by fits without them; for several outputs a,b,c"
    },
    "sample_weight": COLUMN
    | {"help": "other weights of the training rows: a column of their file"},
    "targets": {"metavar": "ROW=TARGET", "action": "append", "help": SET},
    "ranges": {
        "metavar": "R",
        "help": "how far each target may move: a number, a column, or columns LOWEST,HIGHEST",
    },
    "sigma": {
        "metavar": "S",
        "help": "the noise of the targets: a number, exact or estimate; on a page also none",
    },
    "columns": {"metavar": "A,B,...", "help": "columns to show"},
    "search": {
        "metavar": "A,B,...",
        "help": "columns of the query file that the index searches too",
    },
    "among": {
        "metavar": "TEST",
        "help": "only rows that a column marks with 1, or such as year>=2023",
    },
    "distinct": COLUMN | {"help": "one row for each value of it, such as a property's number"},
    "within": {
        "metavar": "COLUMN,D",
        "help": "only rows so near to the query, such as sale_date,3Y or area,20",
    },
    "asof": {
        "metavar": "DATE",
        "help": "only rows before it, or before a column of the query; --within names their column",
    },
    "query": {"metavar": "TEXT", "help": "what pages call one row of the query file, such as home"},
    "names": {"metavar": "A=TEXT,...", "help": "what columns are called on the pages"},
    "map": {"metavar": "LAT,LON[,miles]"},
    "y": ACTUAL,
    "refits": {
        "type": int,
        "metavar": "N",
        "help": "fit N times in earnest, and say how far that moves predictions",
    },
}  # what argparse is told where type and docstring do not say it
Reader = Callable[
    [Any, Any, Any], Any
]  # of the option's value, the model with its data, and the rows asked about
READERS: dict[str, Reader] = {
    "groups": lambda name, subject, _: column_of(subject.training, name, "--groups").to_numpy(),
    "out_of_fold": lambda _, subject, __: subject.training.out_of_fold,
    "sample_weight": lambda name, subject, _: column_of(
        subject.training, name, "--sample-weight"
    ).to_numpy(),
    "targets": lambda given, subject, _: subject.new_targets(given),
    "ranges": lambda text, subject, _: ranges(text, subject.training),
    "sigma": lambda text, _, __: False if text == "none" else number_or_word(text),
    **dict.fromkeys(("columns", "map", "search"), lambda text, _, __: listed(text)),
    "y": lambda _, __, rows: rows.target,
    "refits": lambda n, subject, rows: refits(subject, rows, n=n),
}


@dataclass(frozen=True)
class QuestionParameter:
    """A parameter that is an option."""

    name: str
    default: Any
    kind: str  #: its type in the docstring
    about: str  #: the first sentence on it there

    @property
    def option(self) -> str:
        return NAMES.get(self.name, self.name).replace("_", "-")

    @property
    def names_rows(self) -> bool:
        """Whether its value are training rows, rather than a word for them."""
        return self.name == "rows" and not self.kind.startswith("str")

    @property
    def words(self) -> dict[str, Any]:
        """Arguments of argparse for it."""
        said: dict[str, Any] = {"help": self.about}
        choices = list(dict.fromkeys(re.findall(r'"([\w-]+)"', self.kind)))
        if self.name in WORDS:
            said |= WORDS[self.name]
        elif isinstance(self.default, bool):
            said["action"] = argparse.BooleanOptionalAction if self.default else "store_true"
        elif isinstance(self.default, tuple):
            said |= {"type": _numbers, "metavar": "A,B,..."}
        elif self.kind.startswith("str"):
            said["metavar"] = "TEXT"
        elif choices:
            said["choices"] = choices
        else:
            said |= {"type": float if self.kind.startswith("float") else int, "metavar": "N"}
        stated = re.search(r'default "?([^"]+)', self.kind)
        usual = self.default if stated is None else stated[1]
        if self.default is inspect.Parameter.empty:
            said["required"] = True
        elif usual and not isinstance(self.default, (bool, tuple)):
            said["help"] += f" (default: {usual})"
        elif said.get("action") == argparse.BooleanOptionalAction:
            said["default"] = None
        return said


def parameters_of(question: Any, skipped: tuple[str, ...] = ()) -> Iterator[QuestionParameter]:
    """The parameters that are options, with the type and the first sentence of each in the docstring."""
    text = inspect.getdoc(question) or ""
    for parameter in inspect.signature(question).parameters.values():
        if parameter.name not in (*FROM_FILES, *skipped):
            found = re.search(rf"^{parameter.name} : (.*)\n((?:    .*\n?)+)", text, re.M)
            kind, said = (found[1], " ".join(found[2].split())) if found else ("", "")
            sentence = (
                re.split(r"(?<=[.;:])\s", said)[0].rstrip(".;:").replace("`", "").replace("%", "%%")
            )
            about = sentence[:1].lower() + sentence[1:]
            yield QuestionParameter(parameter.name, parameter.default, kind, about)


def add_options(one: Any, question: Any, skipped: tuple[str, ...] = ()) -> None:
    """An option for every parameter of the question; two for rows, by label and by a test."""
    for parameter in parameters_of(question, skipped):
        if parameter.names_rows:
            add_rows(one.add_mutually_exclusive_group(required=True), parameter.about)
        else:
            one.add_argument(f"--{parameter.option}", **parameter.words)


def add_rows(which: Any, about: str) -> None:
    """The two ways to name training rows."""
    which.add_argument("--rows", metavar="A,B,...", help=f"{about}; their labels")
    which.add_argument(
        "--where",
        metavar="TEST",
        help="the same rows by a column that marks them with 1, or customer=17",
    )


def given_options(
    arguments: argparse.Namespace,
    question: Any,
    subject: Any,
    rows: Any = None,
    skipped: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The options that were given, as the question takes them."""
    given: dict[str, Any] = {}
    for parameter in parameters_of(question, skipped):
        if parameter.names_rows:
            given["rows"] = named_rows(arguments, subject.training)
            continue
        value = getattr(arguments, parameter.option.replace("-", "_"))
        if value is None or (value is False and not parameter.default):
            continue
        reader = READERS.get(parameter.name)
        given[parameter.name] = value if reader is None else reader(value, subject, rows)
    return given


def refuse(option: str, given: object, why: str, instead: str = "Leave it out.") -> None:
    """Refuse an option that was given and would change nothing in the answer, before any work.

    Limits (threads, memory, scratch, device) change no answer anyway, and are taken by every command.
    """
    if given is not None:
        raise InputError(
            f"{option} is {shown(given)}, which would change nothing: {why}. {instead}"
        )


def named_rows(arguments: argparse.Namespace, training: Any) -> Any:
    """(N,): which training rows --rows names, or --where marks."""
    if arguments.rows is not None:
        named = labelled_rows(training, arguments.rows, "--rows")
        return training.features.index.isin(inputs.asked_labels(named))
    marked = mask(training, arguments.where, "--where")
    if not marked.any():
        raise InputError(f"{arguments.where} (--where) is true of no row of {training.path}.")
    return marked


def ranges(text: str, training: Any) -> Any:
    """How far targets may move: a number or a column of numbers, or the lowest and the highest targets, two of these."""
    found = []
    for word in text.split(","):
        number = number_or_word(word.strip())
        found.append(
            column_of(training, number, "--ranges").to_numpy()
            if isinstance(number, str)
            else number
        )
    return found[0] if len(found) == 1 else tuple(found)


def refits(subject: Any, rows: Any, **given: Any) -> stability.Stability:
    """Fits in earnest of the model in a file, which must hold its settings."""
    if not files.has_settings(subject.name):
        raise InputError(
            f"{subject.name} has the trees of a model, and not the settings that a new fit would need. For refits give the "
            "estimator itself, as a .skops or .joblib file."
        )
    training = subject.training
    if training.offset is not None:
        raise InputError(
            "Refits take no offsets. Leave refits out, or fit the model without --offset."
        )
    fitted = subject.explainer.model, training.features, training.target
    return stability.refits(*fitted, rows.features, sample_weight=training.weights, **given)


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(word) for word in text.split(","))
