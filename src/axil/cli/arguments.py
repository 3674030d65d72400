"""The words of the command line, and the help that explains them."""

from __future__ import annotations

import argparse
from typing import Any

import axil
from axil.cli import check, commands, comparables_commands, completion, demo, parameters, signature
from axil.cli import help_texts as text
from axil.comparison import Comparison
from axil.explainer import Explainer
from axil.kernels.choose import DEVICES
from axil.methods.intervals.predictive import Predictive
from axil.scale import INVERSES

MODELS = "LightGBM .txt, XGBoost .json or .ubj, CatBoost .cbm, skops .skops; .pkl and .joblib only with --trust"
TABLE = "FILE.csv, .tsv or .parquet; - for CSV from standard input"


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    whole = completion.Parser(
        "axil", description=text.ABOUT, epilog=text.EXAMPLES, formatter_class=_Raw
    )
    whole.add_argument("--version", action="version", version=f"axil {axil.__version__}")
    named = whole.add_subparsers(metavar="COMMAND", required=True)

    one = _command(
        named, "demo", "fit a model on built-in data and explain five predictions", demo.run
    )
    one.add_argument(
        "--save",
        metavar="DIRECTORY",
        help="write the model and its data here, to try the other commands on",
    )

    one = _command(
        named,
        "explain",
        "which training rows made these predictions",
        commands.explain,
        asked="the rows to explain",
    )
    one.add_argument(
        "--by",
        choices=("weight", "contribution"),
        help="what is largest (default: weight; contribution where pushes add up to a score)",
    )
    one.add_argument(
        "--mean-by",
        metavar="COLUMN",
        help="explain the mean prediction of the rows of each value of this column of the query file",
    )
    one.add_argument(
        "--coefficients",
        metavar="C",
        help="mean, sum, or a column of the query file: explain that sum of the predictions (default: mean with --mean-by)",
    )
    parameters.add_options(one, Explainer.top, ("k", "by"))
    _written(one, page=f"{commands.TOP}, on a page 50")

    one = _command(
        named,
        "group",
        "how much of these predictions comes from groups of rows",
        commands.group,
        asked="the rows to explain",
    )
    one.add_argument(
        "--by",
        required=True,
        dest="group_by",
        metavar="COLUMN",
        help="a column of the training data: a region, a source",
    )
    one.add_argument(
        "--cut",
        metavar="A,B,...",
        help="bands of a column of numbers: below A, A to B, ..., and over",
    )
    _written(one, page="50")

    one = _command(
        named,
        "similar",
        "the comparables of these predictions, as a table",
        comparables_commands.similar,
        asked="the rows to explain",
    )
    parameters.add_options(one, Explainer.similar, ("beside",))
    _written(one)

    one = _command(
        named,
        "report",
        "a page for each of these predictions",
        comparables_commands.report,
        asked="the rows to report on",
    )
    one.add_argument(
        "--out",
        required=True,
        metavar="FOLDER",
        help="the folder to write, made if it is not there",
    )
    _calibration(one)
    parameters.add_options(
        one, Explainer.report, ("folder", "target", "interval", "beside", "out_of_fold")
    )
    one.add_argument(
        "--target-name", metavar="TEXT", help="what is predicted (default: what --target says)"
    )

    one = _command(
        named, "check", "can this model be explained, and does it belong to this data", check.check
    )
    _data(one, required=False)
    one.add_argument(
        "--format", default="table", choices=("table", "json"), help="(default: table, for reading)"
    )
    _json(one)

    for command, short in signature.QUESTIONS.items():
        question = signature.question_named(command)
        one = _command(named, command, short, signature.run, asked="")
        one.set_defaults(command=command, about=short)
        for name, required in signature.files_of(question).items():
            about = "rows with their targets" if name == "validation" else "the rows to explain"
            about += "" if required else ", for what correcting would gain"
            one.add_argument(
                f"--{name}", required=required, metavar="FILE", help=f"{about}: {TABLE}"
            )
        parameters.add_options(one, question)
        if command in signature.OF_ROWS:
            shown = f"how many training rows to show (default: {commands.ROWS})"
            one.add_argument("--top", type=int, metavar="K", help=shown)
        _written(one)

    one = _command(
        named, "compare", "why predictions changed from an old model to a new one", commands.compare
    )
    one.add_argument("old", metavar="OLD", help="the old model")
    _data(one, "the rows to predict")
    one.add_argument(
        "--train-old",
        required=True,
        metavar="FILE",
        help=f"the training data of the old model: {TABLE}",
    )
    parameters.add_options(one, Comparison.to_html, ("k",))
    one.add_argument(
        "--top",
        type=int,
        metavar="K",
        help="list the training rows that did most, K for each prediction",
    )
    _written(one, page="")

    one = _command(
        named, "refit", "the model again at its own splits, on other rows", commands.refit, asked=""
    )
    parameters.add_rows(one.add_mutually_exclusive_group(), "training rows to leave out")
    one.add_argument("--add", metavar="FILE", help=f"further rows with their targets: {TABLE}")
    parameters.add_options(one, Explainer.refit, ("drop", "add"))
    one.add_argument(
        "--out",
        required=True,
        metavar="FILE",
        help="the file of the new model, of the kind of MODEL",
    )

    one = _command(
        named,
        "refits",
        "how far retraining moves these predictions",
        commands.refitted,
        asked="the rows to predict",
    )
    parameters.add_options(one, axil.refits, commands.OF_REFITS)
    parameters.add_options(one, axil.Stability.table)
    _written(one)

    one = _command(
        named,
        "write",
        "all weights of these predictions, in a file",
        commands.write,
        asked="the rows to explain",
    )
    one.add_argument(
        "--out", required=True, metavar="FILE", help="FILE.parquet, or a folder that ends in .zarr"
    )

    one = _command(
        named,
        "intervals",
        "how sure these predictions are",
        commands.intervals,
        asked="the rows to predict",
    )
    _calibration(one)
    one.add_argument(
        "--skewed",
        action="store_true",
        help="cut the same share off at either end, rather than as far below as above",
    )
    parameters.add_options(one, Predictive.interval, ("symmetric", "groups"))
    parameters.add_options(one, Explainer.calibrate, ("X_cal", "y_cal", "out_of_fold"))
    _written(one, page="50")

    def complete(arguments: argparse.Namespace, out: Any) -> int:
        print(completion.script(named.choices, arguments.shell), end="", file=out)
        return 0

    one = _command(named, "completion", "what a shell needs to complete these words", complete)
    one.add_argument("shell", choices=tuple(completion.SHELLS))
    return whole


def _calibration(one: argparse.ArgumentParser) -> None:
    one.add_argument(
        "--calibration",
        metavar="FILE",
        help=f"rows that the model was not fitted on, with targets: {TABLE}",
    )
    one.add_argument("--out-of-fold", **parameters.WORDS["out_of_fold"])


class _Raw(argparse.RawDescriptionHelpFormatter):
    """Help as it was written, with room for long options."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=28)


def _command(named: Any, name: str, short: str, run: Any, asked: str | None = None) -> Any:
    """A command; its help is the text of its name, or the docstring of its question. ``asked``: as in `_data`."""
    about = vars(text).get(name.upper()) or signature.about(signature.question_named(name))
    one = named.add_parser(name, help=short, description=about, formatter_class=_Raw)
    one.about = short
    one.add_argument(
        "--quiet",
        action="store_true",
        help="print nothing but the answer: no proof, no notes, no progress",
    )
    one.add_argument("--debug", action="store_true", help="show the traceback of an error")
    one.set_defaults(run=run)
    if asked is not None:
        _data(one, asked)
    return one


def _data(one: argparse.ArgumentParser, asked: str = "", required: bool = True) -> None:
    """A model, its training data, and, where ``asked`` says what they are, rows of a file that the question is about."""
    one.add_argument("model", metavar="MODEL", help=MODELS)
    one.add_argument(
        "--trust",
        action="store_true",
        help="read a pickle, or types that skops does not know: this runs code out of the file",
    )
    if asked:
        one.add_argument("--query", required=True, metavar="FILE", help=f"{asked}: {TABLE}")
    data = one.add_argument_group(
        "the training data", "exactly the rows that the model was fitted on, in the same order"
    )
    data.add_argument("--train", required=required, metavar="FILE", help=TABLE)
    data.add_argument(
        "--target",
        required=required,
        metavar="COLUMN",
        help="what was predicted; for several outputs a,b,c",
    )
    data.add_argument("--weights", metavar="COLUMN", help="the sample weights of the fit")
    data.add_argument(
        "--offset",
        metavar="COLUMN",
        help="what the fit started from (init_score, base_margin, baseline)",
    )
    data.add_argument(
        "--index", metavar="COLUMN", help="labels of the rows (default: 0, 1, 2, ... down the file)"
    )
    data.add_argument(
        "--features",
        metavar="A,B,...",
        help="the columns of the fit, in its order (default: those that the model names, or if it names none, all others)",
    )
    data.add_argument(
        "--inverse-func",
        metavar="NAME",
        choices=tuple(INVERSES),
        help="for targets transformed before the fit: what undoes it, such as exp for logarithms; the column may hold either",
    )
    data.add_argument(
        "--categorical",
        metavar="A,B,...",
        help="columns of pandas' category type (default: as MODEL says)",
    )
    work = one.add_argument_group("the work")
    work.add_argument(
        "--memory-limit",
        metavar="SIZE",
        help='bytes, or such as "2GiB" (default: most of what is free)',
    )
    work.add_argument(
        "--scratch",
        metavar="DIRECTORY",
        help="keep the leaf numbers of all training rows here, not in memory",
    )
    work.add_argument("--threads", type=int, metavar="N", help="(default: all processors)")
    work.add_argument(
        "--device",
        choices=DEVICES,
        default="cpu",
        help="compute on an NVIDIA GPU, or, with auto, where that costs less",
    )


def _written(one: argparse.ArgumentParser, page: str | None = None) -> None:
    """Where the answer goes, and the settings of its page; ``page`` says how many training rows it shows."""
    answer = one.add_argument_group("the answer")
    forms = "csv, .parquet, .json, .jsonl" + (
        ", or .html for a page that a browser shows" if page is not None else ""
    )
    answer.add_argument("--out", metavar="FILE", help=f"write all of it here: FILE.{forms}")
    answer.add_argument(
        "--format",
        choices=("table", "csv", "json"),
        help="of what is printed (default: table, for reading; with --out nothing but where the answer is)",
    )
    _json(answer)
    if page:
        settings = one.add_argument_group("the page", "with --out FILE.html")
        one.add_argument(
            "--top", type=int, metavar="K", help=f"how many training rows to show (default: {page})"
        )
        parameters.add_options(settings, Explainer.to_html, ("k", *commands.NOT_OF_PAGES))


def _json(one: Any) -> None:
    one.add_argument(
        "--json",
        dest="format",
        action="store_const",
        const="json",
        help="the same as --format json",
    )
