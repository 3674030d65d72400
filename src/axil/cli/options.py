"""Parameters of methods as options.

The name, type and first sentence of a parameter in the docstring make an option and its help.
Tables hold what differs: the names of options, arguments of argparse, and how a text becomes the
value that the method takes.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from axil.cli.rows import comma_separated, named_rows, number_or_word
from axil.errors import InputError, shown

if TYPE_CHECKING:
    from axil.cli.request import Request

Method = Callable[..., Any]
ArgparseSettings = dict[str, Any]

INPUT_FILES = {"X": "query", "X_val": "validation"}
NOT_OPTIONS = ("self", "y_val", "init_score", "path", *INPUT_FILES)  # files and --out have these
OPTION_NAMES = {
    "k": "top",
    "top": "top-share",
    "targets": "set",
    "target": "target-name",
    "rows": "row-name",
    "query": "query-name",
    "y": "actual",
    "weights": "with-weights",  # --weights is the column of the sample weights
}
COLUMN_OF_TRAINING_DATA = "a column of the training data"
# Arguments of argparse that type and docstring do not say
SETTINGS: dict[str, ArgparseSettings] = {
    "groups": {
        "metavar": "COLUMN",
        "help": f"labels of the rows: {COLUMN_OF_TRAINING_DATA}, feature or not",
    },
    "out_of_fold": {
        "metavar": "COLUMN",
        "help": f"{COLUMN_OF_TRAINING_DATA}: out-of-fold predictions of its rows; "
        "for several outputs a,b,c",
    },
    "sample_weight": {
        "metavar": "COLUMN",
        "help": "other weights of the training rows: a column of their file",
    },
    "targets": {
        "metavar": "ROW=TARGET",
        "action": "append",
        "help": "the label of a training row and its new target; may be given again. Several rows: "
        "a,b=80; several outputs: a=80:90",
    },
    "bounds": {
        "metavar": "R",
        "help": "how far each target may move: a number, a column, or columns LOWEST,HIGHEST",
    },
    "sigma": {
        "metavar": "S",
        "help": "the noise of the targets: a number, exact or estimate; on a page also none",
    },
    "columns": {"metavar": "A,B,...", "help": "columns to show"},
    "hide": {"metavar": "A,B,...", "help": "columns that are not shown"},
    "coordinates": {"metavar": "LAT,LON", "help": "columns whose places say which groups are near"},
    "dates": {
        "metavar": "COLUMN",
        "help": "dates or numbers of the rows; warns of rows newer than all calibration rows",
    },
    "min_group_size": {
        "type": int,
        "metavar": "N",
        "help": "groups of fewer rows are put together with others",
    },
    "search": {
        "metavar": "A,B,...",
        "help": "columns of the query file that the index searches too",
    },
    "among": {
        "metavar": "TEST",
        "help": "only rows that a column marks with 1, or such as year>=2023",
    },
    "distinct": {
        "metavar": "COLUMN",
        "help": "one row for each value of it, such as a property's number",
    },
    "within": {
        "metavar": "COLUMN,D",
        "action": "append",
        "help": "only rows so near to the query, such as sale_date,3Y, area,25%% or lat,lon,5km; "
        "may be given again",
    },
    "asof": {
        "metavar": "DATE",
        "help": "only rows before it, or before a column of the query; --within names their column",
    },
    "query": {
        "metavar": "TEXT",
        "help": "what pages call one row of the query file, such as home",
    },
    "names": {"metavar": "A=TEXT,...", "help": "what columns are called on the pages"},
    "map": {"metavar": "LAT,LON[,miles]"},
    "y": {
        "action": "store_true",
        "default": None,
        "help": "the query file has targets too: show them",
    },
    "adjustments": {
        "action": argparse.BooleanOptionalAction,
        "default": None,
        "help": "a grid on each page that splits adjustments over features (default: where axil "
        "can split them)",
    },
    "feature_groups": {
        "metavar": "NAME=A,B,...",
        "action": "append",
        "help": "columns that share one line, such as location=lat,lon; may be given again",
    },
    "stability": {
        "type": int,
        "metavar": "N",
        "help": "retrain N times, and report how far that moves predictions",
    },
}
# How the value of an option becomes the value of a parameter; others are taken as they are
CONVERTERS: dict[str, Callable[[Any, Request], object]] = {
    "groups": lambda name, request: request.training_column(name, "--groups"),
    "out_of_fold": lambda _, request: request.subject.training.out_of_fold,
    "sample_weight": lambda name, request: request.training_column(name, "--sample-weight"),
    "targets": lambda texts, request: request.subject.new_targets(texts),
    "bounds": lambda text, request: _bounds(text, request),
    "sigma": lambda text, _: False if text == "none" else number_or_word(text),
    "columns": lambda text, _: comma_separated(text),
    "hide": lambda text, _: comma_separated(text),
    "feature_groups": lambda texts, _: _feature_groups(texts),
    "map": lambda text, _: comma_separated(text),
    "search": lambda text, _: comma_separated(text),
    "y": lambda _, request: request.rows.target,
    "stability": lambda n, request: request.stability(n=n),
}


class OptionGroup(Protocol):
    """A parser, or a group of options in its help."""

    def add_argument(self, *names: str, **settings: Any) -> argparse.Action:
        """Add an option."""

    def add_mutually_exclusive_group(self, *, required: bool = False) -> Any:
        """Add a group of which one option may be given."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a method that is an option."""

    name: str
    default: object
    type_text: str  #: its type in the docstring
    help: str  #: the first sentence on it there

    @property
    def option(self) -> str:
        """Return the name of the option, without dashes in front."""
        return OPTION_NAMES.get(self.name, self.name).replace("_", "-")

    @property
    def attribute(self) -> str:
        """Return the name that argparse keeps its value under."""
        return self.option.replace("-", "_")

    @property
    def is_row_choice(self) -> bool:
        """Return whether its value is a choice of training rows."""
        return self.name == "rows" and not self.type_text.startswith("str")

    @property
    def settings(self) -> ArgparseSettings:
        """Return the arguments of argparse."""
        settings: ArgparseSettings = {"help": self.help} | self._settings_by_type()
        if self.default is inspect.Parameter.empty:
            settings["required"] = True
            return settings
        if isinstance(self.default, (bool, tuple)):
            return settings
        stated_default = re.search(r'default "?([^"]+)', self.type_text)
        if stated_default:
            default = stated_default[1]
        else:
            default = self.default
        if default:
            settings["help"] += f" (default: {default})"
        return settings

    def _settings_by_type(self) -> ArgparseSettings:
        if self.name in SETTINGS:
            return SETTINGS[self.name]
        if self.default is True:
            return {"action": argparse.BooleanOptionalAction, "default": None}
        if self.default is False:
            return {"action": "store_true"}
        if isinstance(self.default, tuple):
            return {"type": _numbers, "metavar": "A,B,..."}
        return self._settings_by_type_text()

    def _settings_by_type_text(self) -> ArgparseSettings:
        choices = list(dict.fromkeys(re.findall(r'"([\w-]+)"', self.type_text)))
        if self.type_text.startswith("str"):
            return {"metavar": "TEXT"}
        if choices:
            return {"choices": choices}
        number = float if self.type_text.startswith("float") else int
        return {"type": number, "metavar": "N"}


def parameters_of(method: Method, skipped: tuple[str, ...] = ()) -> Iterator[Parameter]:
    """Yield the parameters of a method that are options."""
    docstring = inspect.getdoc(method) or ""
    for parameter in inspect.signature(method).parameters.values():
        if parameter.name in (*NOT_OPTIONS, *skipped):
            continue
        entry = re.search(rf"^{parameter.name} : (.*)\n((?:    .*\n?)+)", docstring, re.M)
        if entry:
            type_text = entry[1]
        else:
            type_text = ""
        if entry:
            description = " ".join(entry[2].split())
        else:
            description = ""
        sentence = re.split(r"(?<=[.;:])\s", description)[0].rstrip(".;:")
        sentence = sentence.replace("`", "").replace("%", "%%")
        help = sentence[:1].lower() + sentence[1:]
        yield Parameter(parameter.name, parameter.default, type_text, help)


def input_files(method: Method) -> dict[str, bool]:
    """Return which of the files "query" and "validation" a method uses, and whether it must."""
    parameters = inspect.signature(method).parameters
    return {
        file: parameters[name].default is inspect.Parameter.empty
        for name, file in INPUT_FILES.items()
        if name in parameters
    }


def add_parameters(group: OptionGroup, method: Method, skipped: tuple[str, ...] = ()) -> None:
    """Add an option for every parameter of a method; a choice of rows has two."""
    for parameter in parameters_of(method, skipped):
        if parameter.is_row_choice:
            rows = group.add_mutually_exclusive_group(required=True)
            add_row_choice(rows, parameter.help)
        else:
            group.add_argument(f"--{parameter.option}", **parameter.settings)


def add_row_choice(group: OptionGroup, help: str) -> None:
    """Add the two ways to name training rows."""
    group.add_argument("--rows", metavar="A,B,...", help=f"{help}; their labels")
    group.add_argument(
        "--where",
        metavar="TEST",
        help="the same rows by a column that marks them with 1, or customer=17",
    )


def given_parameters(
    request: Request, method: Method, skipped: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the parameters that options set, as the method takes them."""
    arguments = request.arguments
    values: dict[str, Any] = {}
    for parameter in parameters_of(method, skipped):
        if parameter.is_row_choice:
            training = request.subject.training
            values["rows"] = named_rows(training, arguments.rows, arguments.where)
            continue
        value = getattr(arguments, parameter.attribute)
        if value is None or (value is False and parameter.default is False):
            continue
        convert = CONVERTERS.get(parameter.name)
        if convert is None:
            values[parameter.name] = value
        else:
            values[parameter.name] = convert(value, request)
    return values


def refuse(option: str, value: object, why: str, instead: str = "Leave it out.") -> None:
    """Refuse an option that would not change the answer, before any work.

    Limits (threads, memory, scratch, device) change no answer; every command takes them.
    """
    if value is not None:
        raise InputError(
            f"{option} is {shown(value)}, which would change nothing: {why}. {instead}"
        )


def _bounds(text: str, request: Request) -> object:
    """Return how far targets may move, or pairs of the lowest and the highest targets."""
    bounds: list[object] = []
    for word in text.split(","):
        bound = number_or_word(word.strip())
        if isinstance(bound, str):
            bounds.append(request.training_column(bound, "--bounds"))
        else:
            bounds.append(bound)
    if len(bounds) == 1:
        return bounds[0]
    return tuple(bounds)


def _feature_groups(texts: list[str]) -> dict[str, list[str]]:
    """Return columns by the name of their group, from texts such as location=lat,lon."""
    groups: dict[str, list[str]] = {}
    for text in texts:
        name, _, columns = text.partition("=")
        if not name.strip() or not columns.strip() or name.strip() in groups:
            raise InputError(
                f"--feature-groups is {shown(text)}; expected a new name and its columns, such as "
                "location=lat,lon."
            )
        groups[name.strip()] = comma_separated(columns)
    return groups


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(word) for word in text.split(","))
