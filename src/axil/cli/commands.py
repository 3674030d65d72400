"""Every command as data, and the parser that is made of them.

Commands that ask a method of `Explainer` take their options and help from its signature and
docstring.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import axil
from axil.cli import answers, comparables, completion, demo, ratios
from axil.cli.descriptions import ABOUT, DESCRIPTIONS, EXAMPLES
from axil.cli.options import (
    SETTINGS,
    Method,
    OptionGroup,
    add_parameters,
    add_row_choice,
    input_files,
)
from axil.cli.request import Request
from axil.comparison import Comparison
from axil.explainer import Explainer
from axil.kernels.choose import DEVICES
from axil.methods.diagnostics import Diagnostics
from axil.methods.intervals.class_predictive import ClassPredictive
from axil.methods.intervals.predictive import Predictive
from axil.methods.jacobian import Jacobian
from axil.retraining import Stability
from axil.scale import INVERSES

Option = tuple[str, dict[str, Any]]  #: its name, with dashes in front, and arguments of argparse

TABLE = "FILE.csv, .tsv or .parquet; - for CSV from standard input"
TOP_HELP = "how many training rows to show (default: {})"


def option(name: str, help: str, **settings: Any) -> Option:
    """Return an option; a name without dashes is a positional argument."""
    return name, {"help": help, **settings}


RUN_OPTIONS = (
    option(
        "--quiet",
        "print nothing but the answer: no verification, no notes, no progress",
        action="store_true",
    ),
    option("--debug", "show the traceback of an error", action="store_true"),
)
MODEL_OPTIONS = (
    option(
        "model",
        "LightGBM .txt, XGBoost .json or .ubj, CatBoost .cbm, skops .skops; .pkl and .joblib only "
        "with --trust",
        metavar="MODEL",
    ),
    option(
        "--trust",
        "read a pickle, or types that skops does not know: this runs code out of the file",
        action="store_true",
    ),
)
FIT_OPTIONS = (  # which a replay of the fit needs
    option("--train", TABLE, metavar="FILE"),
    option("--target", "what was predicted; for several outputs a,b,c", metavar="COLUMN"),
)
SAVED_EXPLAINER = option(
    "--explainer",
    "what Explainer.save wrote for MODEL, in place of --train and --target",
    metavar="FILE.npz",
)
DATA_OPTIONS = (
    option("--weights", "the sample weights of the fit", metavar="COLUMN"),
    option(
        "--offset",
        "what the fit started from (init_score, base_margin, baseline)",
        metavar="COLUMN",
    ),
    option("--index", "labels of the rows (default: 0, 1, 2, ... down the file)", metavar="COLUMN"),
    option(
        "--features",
        "the columns of the fit, in its order (default: those that the model names, or if it names "
        "none, all others)",
        metavar="A,B,...",
    ),
    option(
        "--inverse-func",
        "for targets transformed before the fit: what undoes it, such as exp for logarithms; the "
        "column may hold either",
        metavar="NAME",
        choices=tuple(INVERSES),
    ),
    option(
        "--pos-label",
        "the class of two that scores and probabilities are of (default: the model's second)",
        metavar="CLASS",
    ),
    option(
        "--categorical",
        "columns of pandas' category type (default: as MODEL says)",
        metavar="A,B,...",
    ),
)
WORK_OPTIONS = (
    option(
        "--memory-limit", 'bytes, or such as "2GiB" (default: most of what is free)', metavar="SIZE"
    ),
    option(
        "--scratch",
        "keep the leaf numbers of all training rows here, not in memory",
        metavar="DIRECTORY",
    ),
    option("--threads", "(default: all processors)", type=int, metavar="N"),
    option(
        "--device",
        "compute on an NVIDIA GPU, or, with auto, where that costs less",
        choices=DEVICES,
        default="cpu",
    ),
)
FORMAT = option(
    "--format",
    "the format of what is printed (default: table, for reading; with --out only where the "
    "answer is)",
    choices=("table", "csv", "json"),
)
JSON = option(
    "--json", "the same as --format json", dest="format", action="store_const", const="json"
)
CALIBRATION = (
    option(
        "--calibration",
        f"rows that the model was not fitted on, with targets: {TABLE}",
        metavar="FILE",
    ),
    ("--out-of-fold", SETTINGS["out_of_fold"]),
)


@dataclass(frozen=True)
class Command:
    """A command: its name, its options, and the function that answers it."""

    name: str
    summary: str  #: one line for `axil --help`
    run: Callable[[Request], int | None]  #: returns the exit code; None is 0
    method: Method = Explainer  #: that `answers.ask` calls
    namespace: str = ""  #: of `Explainer`, where the method is
    has_model: bool = True
    needs_fit: bool = True  #: whether the training data is required
    takes_explainer: bool = False  #: whether a saved explainer can stand for the training data
    has_table: bool = True  #: whether the answer is a table, with options on where it goes
    query: str = ""  #: what the rows of --query are for; "" where the command takes none
    options: tuple[Option, ...] = ()
    row_choice: str = ""  #: help of --rows and --where, where these are optional
    parameters: tuple[tuple[Method, tuple[str, ...]], ...] = ()  #: methods, less some parameters
    further_options: tuple[Option, ...] = ()  #: behind those of the parameters
    page: Method | None = None  #: writes the answer as HTML
    page_skips: tuple[str, ...] = ()
    top: str = ""  #: the default of --top in words; "" where the command has none of its own
    table_has_top: bool = False  #: whether --top is for tables, and not only for pages

    @property
    def attribute(self) -> str:
        """Return the name of the method from the explainer, such as "diagnostics.leverage"."""
        return f"{self.namespace}.{self.method.__name__}".lstrip(".")

    @property
    def description(self) -> str:
        """Return the text above the options: the command's own or two docstring paragraphs."""
        if self.name in DESCRIPTIONS:
            return DESCRIPTIONS[self.name]
        paragraphs = (inspect.getdoc(self.method) or "").split("\n\n")[:2]
        return "\n\n".join(paragraphs).replace("`", "")


# Methods whose answers about rows need no features of the training rows
ROW_QUESTIONS = ("concentration", "sensitivity", "without", "removal", "standard-error")
NAMESPACES: dict[str, type] = {"": Explainer, "diagnostics": Diagnostics, "jacobian": Jacobian}


def _question(name: str, summary: str, has_top: bool = False, namespace: str = "") -> Command:
    """Return the command of a method of `Explainer`, or of one of its namespaces."""
    method: Method = getattr(NAMESPACES[namespace], name.replace("-", "_"))
    return Command(
        name,
        summary,
        answers.ask,
        method,
        namespace,
        takes_explainer=name in ROW_QUESTIONS,
        options=tuple(
            _file_option(file, required) for file, required in input_files(method).items()
        ),
        parameters=((method, ()),),
        top=str(answers.ROWS) if has_top else "",
        table_has_top=has_top,
    )


def _file_option(file: str, is_required: bool) -> Option:
    """Return the option for a file that a method takes."""
    if file == "validation":
        help = "rows with their targets"
    else:
        help = "the rows to explain"
    if not is_required:
        help += ", for what correcting would gain"
    return option(f"--{file}", f"{help}: {TABLE}", required=is_required, metavar="FILE")


def print_completion(request: Request) -> None:
    """Print a script that lets a shell complete commands and options."""
    _, parsers = make_parser()
    script = completion.SCRIPTS[request.arguments.shell](parsers)
    print(script, end="", file=request.stream)


EXPLAINER_PAGE: dict[str, Any] = {
    "page": Explainer.to_html,
    "page_skips": ("groups", "interval", "min_group_size"),
}

COMMANDS = (
    Command(
        "demo",
        "fit a model on built-in data and explain five predictions",
        demo.run,
        has_model=False,
        has_table=False,
        options=(
            option(
                "--save",
                "write the model and its data here, to try the other commands on",
                metavar="DIRECTORY",
            ),
        ),
    ),
    Command(
        "explain",
        "which training rows made these predictions",
        answers.explain,
        takes_explainer=True,
        query="the rows to explain",
        options=(
            option(
                "--by",
                "what is largest (default: weight; contribution for an additive model)",
                choices=("weight", "contribution"),
            ),
            option(
                "--mean-by",
                "explain the mean prediction of the rows of each value of this column of the query "
                "file",
                metavar="COLUMN",
            ),
            option(
                "--coefficients",
                "mean, sum, or a column of the query file: explain that sum of the predictions "
                "(default: mean with --mean-by)",
                metavar="C",
            ),
        ),
        parameters=((Explainer.top, ("k", "by")),),
        top=str(answers.TOP),
        table_has_top=True,
        **EXPLAINER_PAGE,
    ),
    Command(
        "group",
        "how much of these predictions comes from groups of rows",
        answers.group,
        query="the rows to explain",
        options=(
            option(
                "--by",
                "a column of the training data: a region, a source",
                required=True,
                dest="group_by",
                metavar="COLUMN",
            ),
            option(
                "--cut",
                "bands of a column of numbers: below A, A to B, ..., and over",
                metavar="A,B,...",
            ),
        ),
        parameters=((Explainer.group, ("groups",)),),
        top=str(answers.TOP),
        **EXPLAINER_PAGE,
    ),
    Command(
        "similar",
        "the comparables of these predictions, as a table",
        comparables.similar,
        query="the rows to explain",
        parameters=((Explainer.similar, ("beside",)),),
    ),
    Command(
        "adjustments",
        "what each feature adds to the targets of the comparables",
        comparables.adjustments,
        Explainer.adjustments,
        query="the rows to explain",
        parameters=(
            (Explainer.similar, comparables.NOT_FOR_ADJUSTMENTS),
            (Explainer.adjustments, ("comparables",)),
        ),
    ),
    Command(
        "ratio-study",
        "ratios of predictions to prices: level and evenness, by stratum",
        ratios.ratio_study,
        axil.ratio_study,
        query="sales with their prices",
        options=(
            option(
                "--by",
                "the stratum of each sale: a column of the query file",
                dest="group_by",
                metavar="COLUMN",
            ),
        ),
        parameters=((axil.ratio_study, ("predictions", "prices", "by")),),
    ),
    Command(
        "report",
        "a page for each of these predictions",
        comparables.report,
        has_table=False,
        query="the rows to report on",
        options=(
            option(
                "--out",
                "the folder to write, made if it is not there",
                required=True,
                metavar="FOLDER",
            ),
            *CALIBRATION,
        ),
        parameters=((Explainer.report, ("folder", "target", "interval", "beside", "out_of_fold")),),
        further_options=(
            option(
                "--target-name",
                "what is predicted (default: what --target says)",
                metavar="TEXT",
            ),
        ),
    ),
    Command(
        "check",
        "can this model be explained, and does it belong to this data",
        answers.check,
        has_table=False,
        needs_fit=False,
        options=(
            option(
                "--format",
                "(default: table, for reading)",
                default="table",
                choices=("table", "json"),
            ),
            JSON,
        ),
    ),
    _question("find-label-issues", "which training labels look wrong, and how many", has_top=True),
    _question("concentration", "on how many training rows these predictions rest"),
    _question("what-if", "these predictions if training targets were others"),
    _question(
        "sensitivity",
        "how far these predictions move with the targets of some training rows",
        namespace="jacobian",
    ),
    _question(
        "min-label-changes",
        "the fewest training targets that bring these predictions to a threshold",
    ),
    _question("without", "these predictions if training rows were deleted"),
    _question("removal", "what deleting each training row, or group of rows, would do"),
    _question(
        "standard-error",
        "how far noise of the training targets moves these predictions",
        namespace="diagnostics",
    ),
    _question(
        "influence", "which training targets raise the error on validation rows", has_top=True
    ),
    _question("shapley", "what each training target is worth on validation rows", has_top=True),
    _question(
        "leave-one-out",
        "predictions of the training rows without each of them",
        has_top=True,
        namespace="diagnostics",
    ),
    _question(
        "leave-one-out-curve",
        "the error without each training row itself, by the number of trees",
        namespace="diagnostics",
    ),
    _question(
        "leverage",
        "the weight of each training row in its own prediction",
        has_top=True,
        namespace="diagnostics",
    ),
    _question(
        "degrees-of-freedom",
        "how many free parameters the fit is worth",
        namespace="diagnostics",
    ),
    Command(
        "compare",
        "why predictions changed from an old model to a new one",
        answers.compare,
        query="the rows to predict",
        options=(
            option("old", "the old model", metavar="OLD"),
            option(
                "--train-old",
                f"the training data of the old model: {TABLE}",
                required=True,
                metavar="FILE",
            ),
        ),
        parameters=((Comparison.to_html, ("k", "names")),),
        further_options=(
            option(
                "--top",
                "list the training rows that did most, K for each prediction",
                type=int,
                metavar="K",
            ),
        ),
        page=Comparison.to_html,
        page_skips=("names",),
        table_has_top=True,
    ),
    Command(
        "refit",
        "the model again at its own splits, on other rows",
        answers.refit,
        has_table=False,
        row_choice="training rows to leave out",
        options=(option("--add", f"further rows with their targets: {TABLE}", metavar="FILE"),),
        parameters=((Explainer.refit, ("drop", "add")),),
        further_options=(
            option(
                "--out",
                "the file of the new model, of the kind of MODEL",
                required=True,
                metavar="FILE",
            ),
        ),
    ),
    Command(
        "stability",
        "how far retraining moves these predictions",
        answers.stability,
        query="the rows to predict",
        parameters=((axil.stability, answers.FILE_PARAMETERS), (Stability.table, ())),
    ),
    Command(
        "write",
        "all weights of these predictions, in a file",
        answers.write,
        takes_explainer=True,
        has_table=False,
        query="the rows to explain",
        options=(
            option(
                "--out",
                "FILE.parquet, or a folder that ends in .zarr",
                required=True,
                metavar="FILE",
            ),
        ),
    ),
    Command(
        "intervals",
        "how sure these predictions are",
        answers.intervals,
        query="the rows to predict",
        options=(
            *CALIBRATION,
            option(
                "--skewed",
                "leave the same share of targets outside at either end, rather than ends at the "
                "same distance",
                action="store_true",
            ),
        ),
        parameters=(
            (Predictive.interval, ("symmetric", "groups", "dates")),
            (Explainer.calibrate, ("X_cal", "y_cal", "out_of_fold")),
        ),
        top=str(answers.TOP),
        **EXPLAINER_PAGE,
    ),
    Command(
        "predict-set",
        "which classes these predictions leave possible",
        answers.predict_set,
        query="the rows to predict",
        options=(
            *CALIBRATION,
            option(
                "--by-class",
                "calibrate each class by its own rows, so that sets cover rare classes as often "
                "as others",
                action="store_true",
            ),
        ),
        parameters=(
            (ClassPredictive.predict_set, ("per_class", "groups")),
            (
                Explainer.calibrate,
                (
                    *("X_cal", "y_cal", "out_of_fold", "method"),
                    *("min_group_size", "coordinates", "dates"),
                ),
            ),
        ),
    ),
    Command(
        "completion",
        "a script that lets a shell complete commands and options",
        print_completion,
        has_model=False,
        has_table=False,
        options=(option("shell", "", choices=tuple(completion.SCRIPTS)),),
    ),
)


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help as it was written, with room for long options."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=28)


def make_parser() -> tuple[argparse.ArgumentParser, dict[str, completion.CommandParser]]:
    """Return the parser of the whole command line, and those of the commands by name."""
    parser = completion.CommandParser(
        "axil", description=ABOUT, epilog=EXAMPLES, formatter_class=_HelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"axil {axil.__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    command_parsers = {}
    for command in COMMANDS:
        command_parser = subparsers.add_parser(
            command.name,
            help=command.summary,
            description=command.description,
            formatter_class=_HelpFormatter,
        )
        command_parser.summary = command.summary
        _add_command(command_parser, command)
        command_parsers[command.name] = command_parser
    return parser, command_parsers


def _add_command(parser: argparse.ArgumentParser, command: Command) -> None:
    """Add all options of a command to its parser."""
    parser.set_defaults(command=command)
    positional = [choice for choice in command.options if not choice[0].startswith("-")]
    _add(parser, (*RUN_OPTIONS, *positional))
    if command.has_model:
        _add_data(parser, command)
    if command.row_choice:
        add_row_choice(parser.add_mutually_exclusive_group(), command.row_choice)
    _add(parser, [choice for choice in command.options if choice not in positional])
    for method, skipped in command.parameters:
        add_parameters(parser, method, skipped)
    if command.top:
        help = TOP_HELP.format(command.top)
        parser.add_argument("--top", type=int, metavar="K", help=help)
    _add(parser, command.further_options)
    if command.has_table:
        answer = parser.add_argument_group("the answer")
        formats = "csv, .parquet, .json, .jsonl"
        if command.page is not None:
            formats += ", or .html for a page that a browser shows"
        out = option("--out", f"write all of it here: FILE.{formats}", metavar="FILE")
        _add(answer, (out, FORMAT, JSON))
    if command.page is Explainer.to_html:
        page = parser.add_argument_group("the page", "with --out FILE.html")
        add_parameters(page, command.page, ("k", *command.page_skips))


def _add_data(parser: argparse.ArgumentParser, command: Command) -> None:
    """Add the options for the model, the training data and the rows to explain."""
    _add(parser, MODEL_OPTIONS)
    if command.query:
        help = f"{command.query}: {TABLE}"
        parser.add_argument("--query", required=True, metavar="FILE", help=help)
    data = parser.add_argument_group(
        "the training data", "exactly the rows that the model was fitted on, in the same order"
    )
    needs_options = command.needs_fit and not command.takes_explainer
    for name, settings in FIT_OPTIONS:
        data.add_argument(name, required=needs_options, **settings)
    if command.takes_explainer:
        _add(data, [SAVED_EXPLAINER])
    _add(data, DATA_OPTIONS)
    _add(parser.add_argument_group("the work"), WORK_OPTIONS)


def _add(group: OptionGroup, options: Iterable[Option]) -> None:
    for name, settings in options:
        group.add_argument(name, **settings)
