"""The words of the command line, and the help that explains them."""

from __future__ import annotations

import argparse
import inspect
from typing import Any

import axil
from axil.cli import check, commands, comparables, completion, demo, signature
from axil.cli import help_texts as text
from axil.kernels.choose import DEVICES
from axil.scale import INVERSES

MODELS = "LightGBM .txt, XGBoost .json or .ubj, CatBoost .cbm, skops .skops; .pkl and .joblib only with --trust"
TABLE = "FILE.csv, .tsv or .parquet; - for CSV from standard input"


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    whole = completion.Parser("axil", description=text.ABOUT, epilog=text.EXAMPLES, formatter_class=_Raw)
    whole.add_argument("--version", action="version", version=f"axil {axil.__version__}")
    named = whole.add_subparsers(metavar="COMMAND", required=True)

    one = _command(named, "demo", "fit a model on built-in data and explain five predictions", text.DEMO, demo.run)
    one.add_argument(
        "--save", metavar="DIRECTORY", help="write the model and its data here, to try the other commands on"
    )

    one = _command(named, "explain", "which training rows made these predictions", text.EXPLAIN, commands.explain)
    _asked(one, "the rows to explain")
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
    _answer(one, top=commands.TOP, page=True)

    one = _command(
        named, "group", "how much of these predictions comes from groups of rows", text.GROUP, commands.group
    )
    _asked(one, "the rows to explain")
    one.add_argument(
        "--by",
        required=True,
        dest="group_by",
        metavar="COLUMN",
        help="a column of the training data: a region, a source",
    )
    one.add_argument("--cut", metavar="A,B,...", help="bands of a column of numbers: below A, A to B, ..., and over")
    _written(one, page=True)

    one = _command(
        named, "similar", "the comparables of these predictions, as a table", text.SIMILAR, comparables.similar
    )
    _asked(one, "the rows to explain")
    one.add_argument("--adjust", action="store_true", help="targets as the model moves them to the query")
    _chosen(one, top=10, sign="any", suspects="keep")
    _written(one)

    one = _command(named, "report", "a page for each of these predictions", text.REPORT, comparables.report)
    _asked(one, "the rows to report on")
    one.add_argument("--out", required=True, metavar="FOLDER", help="the folder to write, made if it is not there")
    _chosen(one, top=5, sign="positive", suspects="mark")
    _calibration(one)
    words = one.add_argument_group("the words")
    words.add_argument("--title", default="Estimate", metavar="TEXT", help="above every page (default: Estimate)")
    words.add_argument("--target-name", metavar="TEXT", help="what is predicted (default: what --target says)")
    words.add_argument("--unit", default="", metavar="TEXT", help="of the target, such as $ or kWh")
    words.add_argument("--row-name", default="records", metavar="TEXT", help="training rows, such as sales")
    words.add_argument("--query-name", default="case", metavar="TEXT", help="one row of the query file, such as home")
    words.add_argument("--names", metavar="A=TEXT,...", help="what columns are called on the pages")
    words.add_argument("--search", metavar="A,B,...", help="columns of the query file that the index searches too")
    words.add_argument(
        "--map", metavar="LAT,LON[,miles]", help="two columns, latitudes and longitudes, for a map on each page, in km"
    )

    one = _command(
        named, "check", "can this model be explained, and does it belong to this data", text.CHECK, check.check
    )
    _model(one)
    _data(one, required=False)
    one.add_argument("--format", default="table", choices=("table", "json"), help="(default: table, for reading)")
    _json(one)

    one = _command(named, "audit", "which training labels look wrong, and how many", text.AUDIT, commands.audit)
    _model(one)
    _data(one, required=True)
    one.add_argument(
        "--out-of-fold",
        metavar="COLUMN",
        help="predictions of your own cross-validation in the training file; or a,b,c",
    )
    one.add_argument(
        "--validation", metavar="FILE", help=f"rows with their targets, for what correcting would gain: {TABLE}"
    )
    _answer(one, top=commands.ROWS)

    for command, short in signature.QUESTIONS.items():
        question = signature.question_named(command)
        one = _command(named, command, short, signature.about(question), signature.run)
        one.set_defaults(command=command, about=short)
        _model(one)
        _data(one, required=True)
        for name in signature.files_of(question):
            about = "rows with their targets" if name == "validation" else "the rows to explain"
            one.add_argument(f"--{name}", required=True, metavar="FILE", help=f"{about}: {TABLE}")
        signature.add_options(one, question)
        if "k" in inspect.signature(question).parameters or "query" in signature.files_of(question):
            _written(one)
        else:
            _answer(one, top=commands.ROWS)

    one = _command(
        named, "compare", "why predictions changed from an old model to a new one", text.COMPARE, commands.compare
    )
    one.add_argument("old", metavar="OLD", help="the old model")
    _asked(one, "the rows to predict")
    one.add_argument("--train-old", required=True, metavar="FILE", help=f"the training data of the old model: {TABLE}")
    one.add_argument("--top", type=int, metavar="K", help="list the training rows that did most, K for each prediction")
    _written(one, page=True)

    one = _command(
        named, "what-if", "these predictions if training targets were others", text.WHAT_IF, commands.what_if
    )
    _asked(one, "the rows to predict")
    one.add_argument(
        "--set",
        required=True,
        action="append",
        metavar="ROW=TARGET",
        help="the label of a training row and its new target; may be given again. Several rows: a,b=80; several outputs: a=80:90",
    )
    _written(one)

    one = _command(named, "without", "these predictions if training rows were deleted", text.WITHOUT, commands.without)
    _asked(one, "the rows to predict")
    _deleted(one.add_mutually_exclusive_group(required=True))
    _written(one)

    one = _command(named, "refit", "the model again at its own splits, on other rows", text.REFIT, commands.refit)
    _model(one)
    _data(one, required=True)
    _deleted(one.add_mutually_exclusive_group())
    one.add_argument("--add", metavar="FILE", help=f"further rows with their targets: {TABLE}")
    one.add_argument("--set", action="append", metavar="ROW=TARGET", help="other targets, as what-if takes them")
    one.add_argument("--out", required=True, metavar="FILE", help="the file of the new model, of the kind of MODEL")

    one = _command(named, "intervals", "how sure these predictions are", text.INTERVALS, commands.intervals)
    _asked(one, "the rows to predict")
    _calibration(one)
    one.add_argument(
        "--skewed", action="store_true", help="cut the same share off at either end, rather than as far below as above"
    )
    _written(one, page=True)

    def complete(arguments: argparse.Namespace, out: Any) -> int:
        print(completion.script(named.choices, arguments.shell), end="", file=out)
        return 0

    one = _command(named, "completion", "what a shell needs to complete these words", text.COMPLETION, complete)
    one.add_argument("shell", choices=tuple(completion.SHELLS))
    return whole


def _deleted(which: Any) -> None:
    which.add_argument("--rows", metavar="A,B,...", help="labels of the training rows to delete")
    which.add_argument(
        "--where", metavar="TEST", help="rows to delete: a column that marks them with 1, or such as customer=17"
    )


def _calibration(one: argparse.ArgumentParser) -> None:
    one.add_argument(
        "--calibration", metavar="FILE", help=f"rows that the model was not fitted on, with targets: {TABLE}"
    )
    one.add_argument(
        "--out-of-fold",
        metavar="COLUMN",
        help="a column of the training data: predictions of its rows by fits without them; for several outputs a,b,c",
    )
    one.add_argument("--coverage", type=float, metavar="C", help="between 0 and 1 (default: 0.9)")


def _chosen(one: argparse.ArgumentParser, top: int, sign: str, suspects: str) -> None:
    """Which training rows may be listed, and what is shown of them; columns of the files that are no features will do."""
    one.add_argument("--top", type=int, default=top, metavar="K", help=f"how many training rows (default: {top})")
    one.add_argument("--columns", metavar="A,B,...", help="columns of the files to show")
    one.add_argument("--among", metavar="TEST", help="only rows that a column marks with 1, or such as year>=2023")
    one.add_argument("--distinct", metavar="COLUMN", help="one row for each value of it, such as a property's number")
    one.add_argument(
        "--within", metavar="COLUMN,D", help="only rows so near to the query, such as sale_date,3Y or area,20"
    )
    one.add_argument(
        "--asof",
        metavar="DATE",
        help="only rows before it, or before a column of the query; --within names their column",
    )
    one.add_argument(
        "--suspects",
        choices=("keep", "mark", "drop"),
        default=suspects,
        help=f"training rows whose targets look wrong to audit (default: {suspects})",
    )
    one.add_argument(
        "--sign",
        choices=("any", "positive", "for", "against"),
        default=sign,
        help=f"rows of positive weight only, or those for or against the prediction (default: {sign})",
    )
    one.add_argument(
        "--by",
        choices=("leaves", "weights", "pushes"),
        help="rows that share most leaves with the query, or those of largest weight or push",
    )


class _Raw(argparse.RawDescriptionHelpFormatter):
    """Help as it was written, with room for long options."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=28)


def _command(named: Any, name: str, short: str, about: str, run: Any) -> Any:
    one = named.add_parser(name, help=short, description=about, formatter_class=_Raw)
    one.about = short
    one.add_argument(
        "--quiet", action="store_true", help="print nothing but the answer: no proof, no notes, no progress"
    )
    one.add_argument("--debug", action="store_true", help="show the traceback of an error")
    one.set_defaults(run=run)
    return one


def _asked(one: argparse.ArgumentParser, rows: str) -> None:
    """A model, its training data, and rows of a file that the question is about."""
    _model(one)
    _data(one, required=True)
    one.add_argument("--query", required=True, metavar="FILE", help=f"{rows}: {TABLE}")


def _model(one: argparse.ArgumentParser) -> None:
    one.add_argument("model", metavar="MODEL", help=MODELS)
    one.add_argument(
        "--trust",
        action="store_true",
        help="read a pickle, or types that skops does not know: this runs code out of the file",
    )


def _data(one: argparse.ArgumentParser, required: bool) -> None:
    data = one.add_argument_group(
        "the training data", "exactly the rows that the model was fitted on, in the same order"
    )
    data.add_argument("--train", required=required, metavar="FILE", help=TABLE)
    data.add_argument(
        "--target", required=required, metavar="COLUMN", help="what was predicted; for several outputs a,b,c"
    )
    data.add_argument("--weights", metavar="COLUMN", help="the sample weights of the fit")
    data.add_argument(
        "--offset", metavar="COLUMN", help="what the fit started from (init_score, base_margin, baseline)"
    )
    data.add_argument("--index", metavar="COLUMN", help="labels of the rows (default: 0, 1, 2, ... down the file)")
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
        "--categorical", metavar="A,B,...", help="columns of pandas' category type (default: as MODEL says)"
    )
    work = one.add_argument_group("the work")
    work.add_argument("--memory-limit", metavar="SIZE", help='bytes, or such as "2GiB" (default: most of what is free)')
    work.add_argument(
        "--scratch", metavar="DIRECTORY", help="keep the leaf numbers of all training rows here, not in memory"
    )
    work.add_argument("--threads", type=int, metavar="N", help="(default: all processors)")
    work.add_argument(
        "--device",
        choices=DEVICES,
        default="cpu",
        help="compute on an NVIDIA GPU, or there if there is one",
    )


def _answer(one: argparse.ArgumentParser, top: int, page: bool = False) -> None:
    one.add_argument("--top", type=int, metavar="K", help=f"how many training rows to show (default: {top})")
    _written(one, page)


def _written(one: argparse.ArgumentParser, page: bool = False) -> None:
    """Where the answer goes."""
    answer = one.add_argument_group("the answer")
    forms = "csv, .parquet, .json, .jsonl" + (", or .html for a page that a browser shows" if page else "")
    answer.add_argument("--out", metavar="FILE", help=f"write all of it here: FILE.{forms}")
    answer.add_argument(
        "--format",
        choices=("table", "csv", "json"),
        help="of what is printed (default: table, for reading; with --out nothing but where the answer is)",
    )
    _json(answer)


def _json(one: Any) -> None:
    one.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format json")
