"""The commands on files: read the model and its data, ask, print the answer."""

from __future__ import annotations

import argparse
import warnings
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from axil import adapters, comparison, stability
from axil.adapters import files, smooth
from axil.cli import data, printed_answers
from axil.cli.names import column_of, new_targets, tested
from axil.cli.names import groups as groups_of
from axil.cli.output import MOST_ON_SCREEN, AnswerWords, Output, lines_of, output_of
from axil.cli.parameters import given_options, named_rows, parameters_of, refits, refuse
from axil.errors import AxilError, InputError, UnsupportedModelError, counted, shown
from axil.explainer import Explainer
from axil.kernels.choose import limits_of
from axil.methods.intervals.predictive import Predictive
from axil.methods.intervals.training_errors import is_bagged
from axil.methods.refit import made_of
from axil.output.tables import NOTES
from axil.scale import FORWARD, INVERSES

TOP = 10  # training rows per prediction
ROWS = 20  # of a table about training rows
COVERAGE = 0.9
OF_COLUMNS = (
    *(
        "group_by",
        "mean_by",
        "groups",
        "coefficients",
        "ranges",
        "sample_weight",
        "distinct",
        "columns",
    ),
    *("within", "asof", "map", "search"),
)
OF_REFITS = ("estimator", "y", "X_new", "sample_weight")  # which files have
NOT_OF_PAGES = ("groups", "interval")  # which group and intervals put on theirs


@dataclass(frozen=True)
class CommandSubject:
    """A model with its proven explainer, its training rows and the columns that the user named."""

    name: str
    adapter: adapters.Model
    explainer: Explainer
    roles: data.Roles
    training: data.FileRows
    forward: Any = None  #: what undoes --inverse-func
    in_prices: bool = False  #: whether the targets of the files are still to be transformed

    @property
    def by_position(self) -> Explainer:
        """The explainer with positions for the labels of its training rows, which several rows may share."""
        found = copy(self.explainer)
        found._model = replace(found._model, index=np.arange(len(self.training.features)))
        return found

    def rows(self, path: str, with_target: bool = False) -> data.FileRows:
        """Rows to ask about, as the model takes them."""
        found = data.rows_like(self.training, path, self.roles, self.adapter, with_target)
        return found.transformed(self.forward) if with_target and self.in_prices else found

    def new_targets(self, given: list[str]) -> dict[Any, Any]:
        """New targets by row label, from words such as 12=80."""
        return new_targets(self.training, given, self.adapter.classes, self.forward)

    @property
    def sentence(self) -> str:
        """The meaning of the numbers."""
        note = NOTES[self.explainer.kind]
        return f"{note[0].upper()}{note[1:]}."

    def words(self, title: str = "", table: Any = None, **others: Any) -> AnswerWords:
        """The lines around an answer; a table may say itself what its numbers are."""
        known = None if table is None else table.attrs.get("axil")
        note = self.sentence if known is None else f"{known[0].upper()}{known[1:]}."
        return AnswerWords(self.proof, title, note, **others)

    @property
    def proof(self) -> str:
        """The model's kind and how well the replay agreed."""
        rows = f"{counted(len(self.training.features), 'training row')} of {self.training.path}"
        found = self.explainer.verification
        if found is not None and "sum_error" in found.details:
            error = f"; pushes add up to {found.details['sum_error']:.0e} of the largest score"
            return f"{self.name}: {self.adapter.library}, {rows}{error}"
        error = (
            ""
            if found is None
            else f"; replayed predictions agree to {found.max_error:.0e} of the largest"
        )
        held = (
            ""
            if found is None or found.held is None
            else f"\nheld fixed besides the splits: {found.held}"
        )
        return f"{self.name}: {self.adapter.library}, {rows}{error}{held}"


def explain(arguments: argparse.Namespace, out: Any) -> int:
    """The training rows of largest weight in each prediction."""
    output = output_of(arguments, out, page=True)
    if not output.wants_table:
        why = "a page orders rows by weight, or by contribution where pushes add up to a score"
        refuse("--by", arguments.by, why, "Leave it out, or ask for a table too, with --format.")
    settings = page_settings(arguments, output, also="k")
    question = question_of(arguments)
    rows, features = question.rows(arguments.query, arguments.actual), question.training.features
    queries, n = rows.features, len(rows.features)
    asked = rows if output.whole else rows.cut(slice(MOST_ON_SCREEN))
    page: Any = partial(question.explainer.to_html, asked.features, **asked.started)
    explanations = question.by_position.iter(asked.features, **asked.started)
    if arguments.mean_by is not None or arguments.coefficients is not None:
        sums = _sums(arguments, rows) | rows.started
        found = question.by_position.combine(queries, **sums)
        page = question.explainer.combine(queries, **sums).to_html if output.page else None
        queries, n, explanations = None, len(found), iter([found])
    if output.page:
        page(output.page, **settings(question, rows))
    if not output.wants_table:
        return output.give([], question.words())
    top, per_class = arguments.top or TOP, arguments.per_class is not False
    table, shown = printed_answers.comparables(
        explanations, features, queries, top, arguments.by, MOST_ON_SCREEN, per_class
    )
    left = n - MOST_ON_SCREEN if output.form else 0
    return output.give(
        [table], question.words(left=left), lambda _: printed_answers.on_screen(shown, queries)
    )


def _sums(arguments: argparse.Namespace, rows: data.FileRows) -> dict[str, Any]:
    """Which sums of predictions are asked for, as `Explainer.combine` takes them."""
    given: dict[str, Any] = {}
    if arguments.coefficients in ("mean", "sum"):
        given["coefficients"] = arguments.coefficients
    elif arguments.coefficients is not None:
        given["coefficients"] = column_of(rows, arguments.coefficients, "--coefficients").to_numpy()
    if arguments.mean_by is not None:
        given["by"] = column_of(rows, arguments.mean_by, "--mean-by").to_numpy()
    return given


def page_settings(
    arguments: argparse.Namespace, output: Output, page: Any = Explainer.to_html, also: str = ""
) -> Any:
    """A reader of the settings of a page; without a page they are refused, but for that of the table ``also``."""
    for parameter in parameters_of(page, NOT_OF_PAGES):
        value = getattr(arguments, parameter.option.replace("-", "_"))
        if not output.page and value and parameter.name != also:
            why = "it is of a page, and none is written"
            refuse(f"--{parameter.option}", value, why, "Give --out FILE.html, or leave it out.")
    return partial(given_options, arguments, page, skipped=NOT_OF_PAGES)


def group(arguments: argparse.Namespace, out: Any) -> int:
    """How much of each prediction comes from each group of training rows."""
    output = output_of(arguments, out, page=True)
    settings = page_settings(arguments, output)
    question = question_of(arguments)
    asked = question.rows(arguments.query, arguments.actual)
    queries = asked.features
    codes, names = groups_of(question.training, arguments.group_by, arguments.cut)
    if output.page:
        question.explainer.to_html(
            queries, output.page, groups=names[codes], **asked.started, **settings(question, asked)
        )
    table = question.explainer.group(queries, codes, **asked.started)
    table["group"] = names[table["group"].to_numpy()]
    rows = f"{counted(len(names), 'group')} of {len(codes)} training rows"
    return output.give(
        [table],
        question.words(f"{counted(len(queries), 'prediction')} by {arguments.group_by}: {rows}"),
    )


def write(arguments: argparse.Namespace, out: Any) -> int:
    """The weights of all training rows in every prediction, in a file."""
    question = question_of(arguments)
    rows = question.rows(arguments.query)
    question.explainer.write(rows.features, arguments.out, **rows.started)
    asked = f"{counted(len(rows.features), 'prediction')} by {counted(len(question.training.features), 'training row')}"
    Output(out, quiet=arguments.quiet).say([question.proof, f"{asked} are in {arguments.out}"])
    return 0


def refitted(arguments: argparse.Namespace, out: Any) -> int:
    """How far predictions move when the model is fitted again in earnest."""
    output, question = output_of(arguments, out), question_of(arguments)
    rows = question.rows(arguments.query)
    found = refits(
        question, rows, **given_options(arguments, stability.refits, question, skipped=OF_REFITS)
    )
    words = AnswerWords(
        question.proof, repr(found).removeprefix("<axil.Stability: ").removesuffix(">"), ""
    )
    return output.give([found.table(**given_options(arguments, found.table, question))], words)


def give_rows(
    output: Output, question: CommandSubject, table: Any, words: AnswerWords, given: int | None
) -> int:
    """A table about training rows, by position, with their features: files have all of it, the first lines are printed."""
    (table, rows), top = printed_answers.labelled(table, question.training.features), given or ROWS
    whole = printed_answers.with_features(table, rows)
    beside = printed_answers.features(rows.head(top))
    return output.give(
        [whole], words, lambda _: lines_of(table.head(top), more=beside), whole.head(top)
    )


def refit(arguments: argparse.Namespace, out: Any) -> int:
    """The model again at its own splits, on other rows or to other targets, in a file of its library."""
    question = question_of(arguments)
    training, change = question.training, dict[str, Any]()
    if arguments.rows is not None or arguments.where is not None:
        change["drop"] = named_rows(arguments, training)
    change |= given_options(arguments, question.explainer.refit, question, skipped=("drop", "add"))
    if arguments.add is not None:
        more = question.rows(arguments.add, with_target=True)
        change["add"] = (more.features, more.target, more.weights, more.offset)[
            : 3 if more.offset is None else 4
        ]
    if not change:
        raise InputError(
            "There is nothing to change. Give --rows or --where, --add, --set or --sample-weight."
        )
    again = question.explainer.refit(**change)
    files.save(again.model, arguments.out, arguments.model)
    rows = f"{counted(len(again.index), 'row')}, {len(training.features)} before"
    dropped = made_of(again).dropped
    rows += f"; {dropped} dropped" if dropped else ""
    said = f"{arguments.out}: fitted again at the same splits to {rows}"
    Output(out, quiet=arguments.quiet).say([question.proof, said])
    return 0


def compare(arguments: argparse.Namespace, out: Any) -> int:
    """Why predictions changed from an old model to a new one."""
    output = output_of(arguments, out, page=True)
    settings = page_settings(arguments, output, comparison.Comparison.to_html, also="k")
    old = question_of(
        argparse.Namespace(
            **vars(arguments) | {"model": arguments.old, "train": arguments.train_old}
        )
    )
    new = question_of(arguments)
    asked = new.rows(arguments.query)
    found = comparison.compare(old.explainer, new.explainer, asked.features, **asked.started)
    if output.page:
        found.to_html(output.page, **settings(new))
    table = found.table() if arguments.top is None else found.top(arguments.top)
    title = repr(found).removeprefix("<axil.Comparison: ").removesuffix(">")
    words = AnswerWords(f"{old.proof}\n{new.proof}", title, new.sentence)
    return output.give([table], words, partial(lines_of, spared=("base",)))


def intervals(arguments: argparse.Namespace, out: Any) -> int:
    """Prediction intervals, calibrated with rows held out, out-of-fold predictions, or out of bag."""
    output = output_of(arguments, out, page=True)
    settings = page_settings(arguments, output)
    question = question_of(arguments)
    predictive = calibrated(question, arguments, arguments.groups, arguments.method)
    asked = question.rows(arguments.query, arguments.actual)
    queries = asked.features
    coverage = COVERAGE if arguments.coverage is None else arguments.coverage
    level = {"coverage": coverage, "symmetric": not arguments.skewed, **asked.started}
    if output.page:
        predictive.to_html(queries, output.page, **level, **settings(question, asked))
    if arguments.groups is not None:
        level["groups"] = column_of(asked, arguments.groups, "--groups").to_numpy()
    table = predictive.interval(queries, **level)
    title = (
        f"{100 * coverage:.6g} % intervals of {counted(len(queries), 'prediction')}; "
        f"{predictive.n_calibration} calibration rows, {predictive.source}"
    )
    return output.give([table], question.words(title, table))


def calibrated(
    question: CommandSubject,
    arguments: argparse.Namespace,
    groups: str | None = None,
    method: str | None = None,
) -> Predictive:
    """How sure the model's predictions are, from what the user gives; within groups of rows where a column names them."""
    explainer: Any = question.explainer  # one that cannot answer refuses, by name
    given: dict[str, Any] = {"out_of_fold": question.training.out_of_fold} | (
        {} if method is None else {"method": method}
    )
    held = question.training
    if arguments.calibration is not None:
        held = question.rows(arguments.calibration, with_target=True)
        given |= {"X_cal": held.features, "y_cal": held.target, **held.started}
    elif (
        arguments.out_of_fold is None
        and explainer.kind == "exact"
        and not is_bagged(explainer._model)
    ):
        raise InputError(
            "There is nothing to calibrate with, as this model is no forest whose trees leave rows out. Give rows that it was "
            "not fitted on with --calibration, or a column of out-of-fold predictions with --out-of-fold."
        )
    if groups is not None:
        given["groups"] = column_of(held, groups, "--groups").to_numpy()
    made: Predictive = explainer.calibrate(**given)
    return made


def _adapter_of(model: Any) -> tuple[Any, bool]:
    """The adapter of a model, and whether its score adds up from pushes."""
    try:
        return adapters.read(model), False
    except UnsupportedModelError:
        with suppress(UnsupportedModelError):
            pushed = smooth.find(model)
            if pushed is not None:
                return pushed, True
        raise


def _others(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Columns that options name and that may be no features."""
    words = [text for name in OF_COLUMNS if (text := getattr(arguments, name, None)) is not None]
    return (*words, *(part.strip() for text in words for part in text.split(",")))


def question_of(arguments: argparse.Namespace) -> CommandSubject:
    """The model of the command line, proven on its training data."""
    # What is wrong with these is said before files are read.
    limits_of(arguments.threads, arguments.memory_limit, arguments.scratch, arguments.device)
    model = files.load(arguments.model, arguments.trust)
    with files.usable(arguments.model):
        adapter, has_pushes = _adapter_of(model)
    if has_pushes:
        why = "it leads from sums of targets to prices, and this model has pushes that add up to a score"
        refuse("--inverse-func", arguments.inverse_func, why)
    columns = arguments.index, arguments.weights, arguments.features, arguments.categorical
    more = {
        "marks": tested(getattr(arguments, "where", None)),
        "out_of_fold": getattr(arguments, "out_of_fold", None),
    }
    roles = data.Roles(
        arguments.target, *columns, **more, offset=arguments.offset, others=_others(arguments)
    )
    training = data.training_rows(arguments.train, roles, adapter)
    names = data.names_of_classes(training, adapter)
    if names is not None:
        model.classes_ = np.array(names, dtype=object)  # as an estimator has them
        adapter, _ = _adapter_of(model)
        numbered = ", ".join(f"{number} is {shown(name)}" for number, name in enumerate(names))
        warnings.warn(
            f"the model's file has numbers of classes alone: {numbered}", data.Note, stacklevel=2
        )
    limits: dict[str, Any] = {
        "n_threads": arguments.threads,
        "memory_limit": arguments.memory_limit,
    }
    limits |= {"device": arguments.device, "scratch": None if has_pushes else arguments.scratch}
    with files.usable(arguments.model, arguments.train):
        inverse, forward = (known.get(arguments.inverse_func) for known in (INVERSES, FORWARD))

        def proven(rows: data.FileRows) -> CommandSubject:
            made = {"inverse_func": inverse, **rows.started, **limits}
            explainer = Explainer(model, rows.features, rows.target, rows.weights, **made)
            return CommandSubject(
                arguments.model, adapter, explainer, roles, rows, forward, rows is not training
            )

        try:
            return proven(training)
        except AxilError:  # prices may not even be numbers that the inverse takes
            if forward is None:
                raise
            try:
                found = proven(training.transformed(forward))
            except AxilError:
                found = None
            if found is None:
                raise
    units = f"column {arguments.target} of {training.path} is in the units of the answers; its {forward.__name__} was taken"
    warnings.warn(units, data.Note, stacklevel=2)
    return found
