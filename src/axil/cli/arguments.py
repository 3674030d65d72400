"""The words of the command line, and the help that explains them."""

from __future__ import annotations

import argparse
from typing import Any

import axil
from axil.cli import commands, comparables, demo
from axil.kernels.choose import DEVICES
from axil.scale import INVERSES

ABOUT = """\
Which training rows made a prediction, and by exactly how much.

A prediction of squared-error boosting, a forest or a linear smoother is a weighted sum of the targets it was
trained on. axil computes the weights from the fitted model and its training data, and proves them on every run."""

EXAMPLES = """\
examples:
  axil demo --save demo                        try it: fits a model and writes it, with its data, into demo/
  axil check demo/model.txt                    can this model be explained?
  axil explain demo/model.txt --train demo/train.csv --target progression --index patient --query demo/new.csv
  axil similar demo/model.txt --train demo/train.csv --target progression --index patient --query demo/new.csv \\
      --out comparables.csv
  axil report demo/model.txt --train demo/train.csv --target progression --index patient --query demo/new.csv --out pages
  axil audit demo/model.txt --train demo/train.csv --target progression --index patient
  axil blame demo/model.txt --train demo/train.csv --target progression --index patient --validation demo/validation.csv
  axil remove demo/model.txt --train demo/train.csv --target progression --index patient --query demo/new.csv --rows 12,31
  axil intervals demo/model.txt --train demo/train.csv --target progression --index patient --query demo/new.csv \\
      --calibration demo/validation.csv

exit codes: 0 done; 1 the model is refused, or the replay of its fit disagrees; 2 bad usage or input;
3 an unexpected error"""

EXPLAIN = """\
Prints, for each row of the query file, the training rows of largest weight in its prediction, with their features.

  weight        how far the prediction would move if that row's target were one larger
  contribution  weight times target; over all training rows, with the intercept, they sum to the prediction
  factor        of a model fitted to logarithms: target to the power of its weight; they multiply to the prediction

Both hold with the fitted structure held fixed: they do not say what a refit would do."""

DEMO = """\
Fits LightGBM on scikit-learn's diabetes data (442 patients; the target is disease progression after a year) and shows which
earlier patients made the predictions for five new ones."""

CHECK = """\
Says whether exact weights exist for a model, and if not, which setting stands in the way. With --train and --target the
fit is replayed on the data, and compared with the model leaf by leaf."""

BLAME = """\
Ranks the training rows by what correcting their target would gain on validation rows.

  gradient   of the mean squared validation error in the row's target
  corrected  what all other rows say the target would be
  gain       by how much the mean squared validation error would fall if this one target were corrected"""

REMOVE = """\
Prints, for each row of the query file, its prediction before and after some training rows are deleted, all of them at once.

  before  the prediction of the model as it was fitted
  after   the prediction of the fit without these rows
  change  after less before

Exact with the fitted structure held fixed: splits stay, leaf values follow. It does not say what a refit would do."""

AUDIT = """\
Ranks the training rows by how wrong their label looks, by what the other rows say of it. Needs no validation rows and no
further fit.

  expected     the prediction of the fit without the row, splits kept
  scale        the size of usual residuals there
  studentised  residual over scale
  quality      from 0 to 1: the share of right labels that would be as far out
  suspect      the rows that make up the estimated number of wrong labels

Of classes: expected is the class that most other rows in the row's leaves have, quality the share of the row's own."""

INTERVALS = """\
Prints, for each row of the query file, an interval that holds its target with the probability --coverage.

  lower, upper  the ends of the interval
  scale         the size that half of the errors around this prediction stay below
  alarm         the share of calibration rows where errors are expected to be smaller; near 1 is unusual

Calibrated with rows that the model was not fitted on (--calibration), with predictions of the training rows by fits without
them (--out-of-fold), or, without either, with the out-of-bag rows of a forest. Coverage holds on average over rows like the
calibration rows, not at every single row."""

SIMILAR = """\
Writes the comparables of each row of the query file to a table: the training rows of largest weight in its prediction, with
their features beside the query's own.

  share     of the absolute weight of all training rows, down to this row
  adjusted  with --adjust: the row's target as the model moves it to the query, target + F(query) - F(row)"""

REPORT = """\
Writes a folder of small pages in plain language, one for each row of the query file, and an index with a search: what the
prediction is, which training rows carry it, how each differs, and with --calibration how sure it is.

Run again after an interrupt it goes on where it was. A folder of other data or options is refused."""

MODELS = "LightGBM .txt, XGBoost .json or .ubj, CatBoost .cbm, skops .skops; .pkl and .joblib only with --trust"
TABLE = "FILE.csv, .tsv or .parquet"


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    whole = argparse.ArgumentParser("axil", description=ABOUT, epilog=EXAMPLES, formatter_class=_Raw)
    whole.add_argument("--version", action="version", version=f"axil {axil.__version__}")
    named = whole.add_subparsers(metavar="COMMAND", required=True)

    one = _command(named, "demo", "fit a model on built-in data and explain five predictions", DEMO, demo.run)
    one.add_argument(
        "--save", metavar="DIRECTORY", help="write the model and its data here, to try the other commands on"
    )

    one = _command(named, "explain", "which training rows made these predictions", EXPLAIN, commands.explain)
    _model(one)
    _data(one, required=True)
    one.add_argument("--query", required=True, metavar="FILE", help=f"the rows to explain: {TABLE}")
    one.add_argument(
        "--by",
        choices=("weight", "contribution"),
        help="what is largest (default: weight; contribution where pushes add up to a score)",
    )
    _answer(one, top=10)
    one.add_argument("--html", metavar="FILE", help="write a page that a browser shows")

    one = _command(named, "similar", "the comparables of these predictions, as a table", SIMILAR, comparables.similar)
    _model(one)
    _data(one, required=True)
    one.add_argument("--query", required=True, metavar="FILE", help=f"the rows to explain: {TABLE}")
    one.add_argument("--out", required=True, metavar="FILE", help="the table to write: FILE.parquet or .csv")
    one.add_argument("--adjust", action="store_true", help="targets as the model moves them to the query")
    _chosen(one, top=10, sign="any")

    one = _command(named, "report", "a page for each of these predictions", REPORT, comparables.report)
    _model(one)
    _data(one, required=True)
    one.add_argument("--query", required=True, metavar="FILE", help=f"the rows to report on: {TABLE}")
    one.add_argument("--out", required=True, metavar="FOLDER", help="the folder to write, made if it is not there")
    _chosen(one, top=5, sign="positive")
    _calibration(one)
    words = one.add_argument_group("the words")
    words.add_argument("--title", default="Estimate", metavar="TEXT", help="above every page (default: Estimate)")
    words.add_argument("--target-name", metavar="TEXT", help="what is predicted (default: what --target says)")
    words.add_argument("--unit", default="", metavar="TEXT", help="of the target, such as $ or kWh")
    words.add_argument("--row-name", default="records", metavar="TEXT", help="training rows, such as sales")
    words.add_argument("--query-name", default="case", metavar="TEXT", help="one row of the query file, such as home")
    words.add_argument("--names", metavar="A=TEXT,...", help="what columns are called on the pages")
    words.add_argument("--search", metavar="A,B,...", help="columns of the query file that the index searches too")
    words.add_argument("--map", metavar="LAT,LON", help="two columns, latitudes and longitudes, for a map on each page")

    one = _command(
        named, "check", "can this model be explained, and does it belong to this data", CHECK, commands.check
    )
    _model(one)
    _data(one, required=False)

    one = _command(named, "audit", "which training labels look wrong, and how many", AUDIT, commands.audit)
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
    _answer(one, top=20)

    one = _command(named, "blame", "which training targets raise the error on validation rows", BLAME, commands.blame)
    _model(one)
    _data(one, required=True)
    one.add_argument("--validation", required=True, metavar="FILE", help=f"rows with their targets: {TABLE}")
    _answer(one, top=20)

    one = _command(named, "remove", "what deleting training rows would do to predictions", REMOVE, commands.remove)
    _model(one)
    _data(one, required=True)
    one.add_argument("--query", required=True, metavar="FILE", help=f"the rows to predict: {TABLE}")
    which = one.add_mutually_exclusive_group(required=True)
    which.add_argument("--rows", metavar="A,B,...", help="labels of the training rows to delete")
    which.add_argument(
        "--where", metavar="COLUMN", help="a column of the training data: true, or 1, for rows to delete"
    )
    _written(one)

    one = _command(named, "intervals", "how sure these predictions are", INTERVALS, commands.intervals)
    _model(one)
    _data(one, required=True)
    one.add_argument("--query", required=True, metavar="FILE", help=f"the rows to predict: {TABLE}")
    _calibration(one)
    one.add_argument(
        "--skewed", action="store_true", help="cut the same share off at either end, rather than as far below as above"
    )
    _written(one)
    one.add_argument(
        "--html", metavar="FILE", help="write a page that a browser shows, with the rows that make each wide"
    )
    return whole


def _calibration(one: argparse.ArgumentParser) -> None:
    one.add_argument(
        "--calibration", metavar="FILE", help=f"rows that the model was not fitted on, with targets: {TABLE}"
    )
    one.add_argument(
        "--out-of-fold",
        metavar="COLUMN",
        help="a column of the training data: predictions of its rows by fits without them; for several outputs a,b,c",
    )
    one.add_argument("--coverage", type=float, default=0.9, metavar="C", help="between 0 and 1 (default: 0.9)")


def _chosen(one: argparse.ArgumentParser, top: int, sign: str) -> None:
    """Which training rows may be listed, and what is shown of them; columns of the files that are no features will do."""
    one.add_argument("--top", type=int, default=top, metavar="K", help=f"how many training rows (default: {top})")
    one.add_argument("--columns", metavar="A,B,...", help="columns of the files to show")
    one.add_argument("--among", metavar="TEST", help="only rows that a column marks with 1, or such as year>=2023")
    one.add_argument("--distinct", metavar="COLUMN", help="one row for each value of it, such as a property's number")
    one.add_argument(
        "--within", metavar="COLUMN,D", help="only rows so near to the query, such as sale_date,3Y or area,20"
    )
    one.add_argument(
        "--sign", choices=("any", "positive"), default=sign, help=f"rows of positive weight only (default: {sign})"
    )


class _Raw(argparse.RawDescriptionHelpFormatter):
    """Help as it was written, with room for long options."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=28)


def _command(named: Any, name: str, short: str, text: str, run: Any) -> Any:
    one = named.add_parser(name, help=short, description=text, formatter_class=_Raw)
    one.add_argument("--debug", action="store_true", help="show the traceback of an error")
    one.set_defaults(run=run)
    return one


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
        help="for a target column that was transformed before the fit: what undoes it, such as exp for logarithms",
    )
    data.add_argument("--categorical", metavar="A,B,...", help="columns that were of pandas' category type in the fit")
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
        help="compute exact weights on an NVIDIA GPU, or there if there is one",
    )


def _answer(one: argparse.ArgumentParser, top: int) -> None:
    one.add_argument(
        "--top", type=int, default=top, metavar="K", help=f"how many training rows to show (default: {top})"
    )
    _written(one)


def _written(one: argparse.ArgumentParser) -> None:
    one.add_argument("--csv", metavar="FILE", help="write the whole table here")
    one.add_argument(
        "--format",
        default="table",
        choices=("table", "csv", "json"),
        help="of what is printed (default: table, for reading)",
    )
