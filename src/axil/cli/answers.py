"""Commands on a model: read it with its data, call a method of `Explainer`, print the answer."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from axil import adapters, comparison, retraining
from axil.adapters import files
from axil.cli import printed
from axil.cli.options import given_parameters, refuse
from axil.cli.output import MOST_ON_SCREEN, AnswerText
from axil.cli.request import Request, read_subject
from axil.cli.rows import comma_separated, named_rows, row_groups
from axil.cli.screen import table_lines
from axil.cli.table_files import as_json
from axil.errors import (
    ExactnessError,
    InputError,
    UnsupportedModelError,
    counted,
)
from axil.explainer import Explainer
from axil.explanation import Explanation
from axil.methods.intervals.class_predictive import ClassPredictive
from axil.methods.intervals.predictive import Predictive
from axil.methods.intervals.training_errors import is_bagged
from axil.methods.kinds import exact_model
from axil.methods.label_issues import FAR
from axil.methods.method import verified_model
from axil.methods.refit import arguments_of
from axil.support import supports

if TYPE_CHECKING:
    import pandas as pd

TOP = 10  # training rows per prediction
ROWS = 20  # of a table about training rows
CONFIDENCE_LEVEL = 0.9
FILE_PARAMETERS = ("estimator", "y", "X_new", "sample_weight")  # of `stability`, which files have

SUPPORT_TEXTS = {
    "exact": "exact weights",
    "additive": "no exact weights, but contributions that add up to the score",
    "derivative": "no exact weights, but derivatives",
    "no": "no exact weights",
}
VERIFIED_TEXTS = {  # of the kinds that the command line explains
    "exact": "exact weights",
    "additive": "contributions that add up to the score",
}
REPLAY_OPTIONS = (
    "weights",
    "offset",
    "index",
    "features",
    "inverse_func",
    "pos_label",
    "categorical",
)

# The numbers of an array and its axes; that of outputs is there where these differ
ARRAY_COLUMNS = {
    "sensitivity": ("weight", "query", "output", "row"),
    "standard-error": ("standard_error", "query", "output"),
    "leverage": ("leverage", "row", "output"),
    "degrees-of-freedom": ("degrees_of_freedom", "output"),
}


def ask(request: Request) -> None:
    """Call the method of `Explainer` that the command names, and print its table."""
    command = request.command
    method = command.method
    output = request.output
    subject = request.subject
    parameters: dict[str, Any] = {}
    file_title = ""
    for name, rows in request.input_rows(method).items():
        if name == "query":
            parameters["X"] = rows.features
        else:
            parameters |= {"X_val": rows.features, "y_val": rows.target}
        if "init_score" in inspect.signature(method).parameters:
            parameters["init_score"] = rows.init_score
        file_title = f"{counted(len(rows.features), f'{name} row')} of {rows.path}: "
    parameters |= request.parameters(method)
    if command.name == "removal" and not {"k", "groups"} & set(parameters):
        parameters["k"] = TOP
    if command.table_has_top:
        explainer = subject.by_position
    else:
        explainer = subject.explainer
    table = attrgetter(command.attribute)(explainer)(**parameters)
    if command.name in ARRAY_COLUMNS:
        table = _array_table(table, command.name, explainer, parameters)
    if command.name in TITLES:
        title = TITLES[command.name](request, parameters, table)
    else:
        title = f"{file_title}{command.summary}"
    text = subject.answer_text(title, table)
    if command.table_has_top and "row" in table:
        _give_training_rows(request, table, text)
    else:
        output.give([table], text)


def _without_title(request: Request, parameters: dict[str, Any], _: pd.DataFrame) -> str:
    n_predictions = counted(len(parameters["X"]), "prediction")
    n_rows = len(request.subject.training.features)
    n_deleted = int(parameters["rows"].sum())
    return f"{n_predictions} without {n_deleted} of {n_rows} training rows"


def _what_if_title(request: Request, parameters: dict[str, Any], _: pd.DataFrame) -> str:
    n_predictions = counted(len(parameters["X"]), "prediction")
    labels = request.subject.training.features.index
    n_changed = int(labels.isin(list(parameters["targets"])).sum())
    return f"{n_predictions} with {n_changed} of {len(labels)} targets changed"


def _label_issues_title(_: Request, __: dict[str, Any], table: pd.DataFrame) -> str:
    """Return how many labels look wrong and, for numbers, how far off they are."""
    issues = f"{int(table['is_label_issue'].sum())} of {len(table)} labels"
    if "studentised" not in table:
        return f"{issues} are not of the class expected; the most suspicious first"
    n_far = int((table["label_quality"] < FAR).sum())
    farthest = table["studentised"].abs().max()
    return (
        f"{issues} look wrong; the most suspicious first. {n_far} have a quality below {FAR:g}, "
        f"the farthest {farthest:.3g} usual residuals off"
    )


# Lines above the tables of commands, where these are not the summary of the command
TITLES: dict[str, Callable[[Request, dict[str, Any], Any], str]] = {
    "find-label-issues": _label_issues_title,
    "without": _without_title,
    "what-if": _what_if_title,
}


def _array_table(
    answer: Any, command: str, explainer: Explainer, parameters: dict[str, Any]
) -> pd.DataFrame:
    """Return a row for each number of an array, and the standard errors of an estimate."""
    import pandas as pd

    value_name, *axes = ARRAY_COLUMNS[command]
    values = answer
    errors = None
    if isinstance(answer, tuple):
        values, errors = answer
    if np.ndim(values) < len(axes):
        axes.remove("output")
    labels: dict[str, Any] = {"output": explainer.outputs, "row": explainer.index}
    if "X" in parameters:
        labels["query"] = parameters["X"].index
    if "rows" in parameters:
        labels["row"] = explainer.index[parameters["rows"]]
    places = np.indices(np.shape(values))
    columns = {}
    for axis, axis_places in zip(axes, places):
        columns[axis] = np.asarray(labels[axis])[axis_places.ravel()]
    columns[value_name] = np.ravel(values)
    if errors is not None:
        columns["standard_error"] = np.ravel(errors)
    return pd.DataFrame(columns)


def _give_training_rows(request: Request, table: pd.DataFrame, text: AnswerText) -> None:
    """Print a table about positions of training rows; files have all of it, with features."""
    n_rows = request.arguments.top or ROWS
    table, features = printed.with_labels(table, request.subject.training.features)
    whole_table = printed.with_features(table, features)
    columns = printed.feature_columns(features.head(n_rows))

    def to_lines(_: pd.DataFrame) -> list[str]:
        return table_lines(table.head(n_rows), further_columns=columns)

    request.output.give([whole_table], text, to_lines, whole_table.head(n_rows))


def explain(request: Request) -> None:
    """Print the training rows of largest weight in each prediction."""
    arguments = request.arguments
    output = request.output
    if not output.wants_table:
        refuse(
            "--by",
            arguments.by,
            "a page orders rows by weight, or by contribution for an additive model",
            "Leave it out, or ask for a table too, with --format.",
        )
    subject = request.subject
    queries = None
    if arguments.mean_by is None and arguments.coefficients is None:
        queries = request.rows.features
        n_predictions = len(queries)
        explanations = _explanations(request)
    else:
        explanation = _explanation_of_sums(request)
        n_predictions = len(explanation)
        explanations = iter([explanation])
    if not output.wants_table:
        output.give([], subject.answer_text())
        return
    table, answers = printed.comparables(
        explanations,
        subject.training.features,
        queries,
        arguments.top or TOP,
        arguments.by,
        MOST_ON_SCREEN,
        arguments.per_class is not False,
    )
    if output.printed_format:
        n_hidden = n_predictions - MOST_ON_SCREEN
    else:
        n_hidden = 0
    text = subject.answer_text(n_hidden=n_hidden)
    output.give([table], text, lambda _: printed.answer_lines(answers, queries))


def _explanations(request: Request) -> Iterator[Explanation]:
    """Write the page, if one is wanted, and return the explanations batch by batch."""
    output = request.output
    subject = request.subject
    rows = request.rows
    if not output.shows_all:
        rows = rows.part(slice(MOST_ON_SCREEN))
    if output.page_path:
        subject.explainer.to_html(
            rows.features, output.page_path, init_score=rows.init_score, **request.page_options
        )
    return subject.by_position.iter(rows.features, init_score=rows.init_score)


def _explanation_of_sums(request: Request) -> Explanation:
    """Write the page, if one is wanted, and return the explanation of sums of predictions."""
    subject = request.subject
    features = request.rows.features
    sums = _sums(request)
    if request.output.page_path:
        explanation = subject.explainer.aggregate(features, **sums)
        explanation.to_html(request.output.page_path, **request.page_options)
    return subject.by_position.aggregate(features, **sums)


def _sums(request: Request) -> dict[str, Any]:
    """Return which sums of predictions to explain, as `Explainer.aggregate` takes them."""
    arguments = request.arguments
    parameters: dict[str, Any] = {"init_score": request.rows.init_score}
    if arguments.coefficients in ("mean", "sum"):
        parameters["coefficients"] = arguments.coefficients
    elif arguments.coefficients is not None:
        column = request.rows.column(arguments.coefficients, "--coefficients")
        parameters["coefficients"] = column.to_numpy()
    if arguments.mean_by is not None:
        parameters["by"] = request.rows.column(arguments.mean_by, "--mean-by").to_numpy()
    return parameters


def group(request: Request) -> None:
    """Print how much of each prediction comes from each group of training rows."""
    arguments = request.arguments
    output = request.output
    explainer = request.subject.explainer
    rows = request.rows
    codes, names = row_groups(request.subject.training, arguments.group_by, arguments.cut)
    sizes = given_parameters(request, Explainer.group, ("groups",))
    if output.page_path:
        explainer.to_html(
            rows.features,
            output.page_path,
            groups=names[codes],
            init_score=rows.init_score,
            **sizes,
            **request.page_options,
        )
    table = explainer.group(rows.features, names[codes], init_score=rows.init_score, **sizes)
    title = (
        f"{counted(len(rows.features), 'prediction')} by {arguments.group_by}: "
        f"{counted(len(names), 'group')} of {len(codes)} training rows"
    )
    output.give([table], request.subject.answer_text(title))


def write(request: Request) -> None:
    """Write the weights of all training rows in every prediction."""
    path = request.arguments.out
    rows = request.rows
    subject = request.subject
    subject.explainer.write(rows.features, path, init_score=rows.init_score)
    n_predictions = counted(len(rows.features), "prediction")
    n_train = counted(len(subject.training.features), "training row")
    request.output.say([subject.verification, f"{n_predictions} by {n_train} are in {path}"])


def stability(request: Request) -> None:
    """Print how far predictions move when the model is fitted again, splits and all."""
    output = request.output
    refitted = request.stability(**request.parameters(retraining.stability, FILE_PARAMETERS))
    title = repr(refitted).removeprefix("<axil.Stability: ").removesuffix(">")
    table = refitted.table(**request.parameters(retraining.Stability.table))
    output.give([table], AnswerText(request.subject.verification, title))


def refit(request: Request) -> None:
    """Write the model refitted at its own splits, as a file of its library."""
    arguments = request.arguments
    subject = request.subject
    training = subject.training
    changes: dict[str, Any] = {}
    if arguments.rows is not None or arguments.where is not None:
        changes["drop"] = named_rows(training, arguments.rows, arguments.where)
    changes |= request.parameters(Explainer.refit, skipped=("drop", "add"))
    if arguments.add is not None:
        added = subject.read_rows(arguments.add, with_target=True)
        changes["add"] = (added.features, added.target, added.weights)
        if added.offset is not None:
            changes["add"] += (added.offset,)
    if not changes:
        raise InputError(
            "There is nothing to change. Give --rows or --where, --add, --set or --sample-weight."
        )
    refitted = subject.explainer.refit(**changes)
    files.save(refitted.model, arguments.out, arguments.model)
    n_rows = counted(len(refitted.index), "row")
    title = (
        f"{arguments.out}: fitted again at the same splits to {n_rows}, "
        f"{len(training.features)} before"
    )
    n_dropped = arguments_of(refitted).dropped
    if n_dropped:
        title += f"; {n_dropped} dropped"
    request.output.say([subject.verification, title])


def compare(request: Request) -> None:
    """Print why predictions changed from an old model to a new one."""
    arguments = request.arguments
    output = request.output
    old_names = {"model": arguments.old, "train": arguments.train_old}
    old = read_subject(argparse.Namespace(**vars(arguments) | old_names))
    new = request.subject
    rows = request.rows
    change = comparison.compare(
        old.explainer, new.explainer, rows.features, init_score=rows.init_score
    )
    if output.page_path:
        change.to_html(output.page_path, **request.page_options)
    if arguments.top is None:
        table = change.table()
    else:
        table = change.top(arguments.top)
    title = repr(change).removeprefix("<axil.Comparison: ").removesuffix(">")
    text = AnswerText(f"{old.verification}\n{new.verification}", title, new.note)
    output.give([table], text, partial(table_lines, first_to_go=("base",)))


def intervals(request: Request) -> None:
    """Print prediction intervals."""
    arguments = request.arguments
    output = request.output
    predictive = calibrated(request, arguments.groups, arguments.method)
    rows = request.rows
    if arguments.confidence_level is None:
        confidence_level = CONFIDENCE_LEVEL
    else:
        confidence_level = arguments.confidence_level
    settings: dict[str, Any] = {
        "confidence_level": confidence_level,
        "symmetric": not arguments.skewed,
        "init_score": rows.init_score,
    }
    if output.page_path:
        predictive.to_html(rows.features, output.page_path, **settings, **request.page_options)
    if arguments.groups is not None:
        settings["groups"] = rows.column(arguments.groups, "--groups").to_numpy()
    if arguments.dates is not None:
        settings["dates"] = rows.column(arguments.dates, "--dates").to_numpy()
    table = predictive.interval(rows.features, **settings)
    title = (
        f"{100 * confidence_level:.6g} % intervals of {counted(len(rows.features), 'prediction')}; "
        f"{predictive.n_calibration} calibration rows, {predictive.source}"
    )
    output.give([table], request.subject.answer_text(title, table))


def predict_set(request: Request) -> None:
    """Print prediction sets of classes."""
    arguments = request.arguments
    rows = request.rows
    predictive: Any = calibrated(request, arguments.groups)
    if not isinstance(predictive, ClassPredictive):
        raise InputError("Sets are of classes, and this model predicts numbers: ask intervals.")
    confidence_level = arguments.confidence_level
    if confidence_level is None:
        confidence_level = CONFIDENCE_LEVEL
    settings: dict[str, Any] = {
        "method": arguments.method or "lac",
        "per_class": bool(arguments.by_class),
        "init_score": rows.init_score,
    }
    if arguments.groups is not None:
        settings["groups"] = rows.column(arguments.groups, "--groups").to_numpy()
    table = predictive.predict_set(rows.features, confidence_level, **settings)
    title = (
        f"{100 * confidence_level:.6g} % sets of {counted(len(rows.features), 'prediction')}; "
        f"{predictive.n_calibration} calibration rows, {predictive.source}"
    )
    request.output.give([table], request.subject.answer_text(title, table))


def calibrated(
    request: Request, groups: str | None = None, method: str | None = None
) -> Predictive:
    """Calibrate intervals with the user's files, within the groups of a column."""
    arguments = request.arguments
    explainer = request.subject.explainer
    rows = request.subject.training
    parameters: dict[str, Any] = {"out_of_fold": rows.out_of_fold}
    if method is not None:
        parameters["method"] = method
    if arguments.calibration is not None:
        rows = request.subject.read_rows(arguments.calibration, with_target=True)
        parameters |= {
            "X_cal": rows.features,
            "y_cal": rows.target,
            "init_score": rows.init_score,
        }
    elif (
        arguments.out_of_fold is None
        and explainer.kind == "exact"
        and not is_bagged(exact_model(verified_model(explainer)))
    ):
        raise InputError(
            "There is nothing to calibrate with, as this model is no forest whose trees leave rows "
            "out. Give rows that it was not fitted on with --calibration, or a column of "
            "out-of-fold predictions with --out-of-fold."
        )
    if groups is not None:
        parameters["groups"] = rows.column(groups, "--groups").to_numpy()
    if getattr(arguments, "min_group_size", None) is not None:
        parameters["min_group_size"] = arguments.min_group_size
    if getattr(arguments, "coordinates", None) is not None:
        parameters["coordinates"] = comma_separated(arguments.coordinates)
    if getattr(arguments, "dates", None) is not None:
        parameters["dates"] = rows.column(arguments.dates, "--dates").to_numpy()
    predictive: Predictive = explainer.calibrate(**parameters)
    return predictive


def check(request: Request) -> int:
    """Print whether a model can be explained; return 0 if it can, 1 if it cannot."""
    arguments = request.arguments
    if (arguments.train is None) != (arguments.target is None):
        present = "--train"
        missing = "--target"
        if arguments.train is None:
            present, missing = missing, present
        raise InputError(
            f"{present} was given without {missing}; give both to replay the fit, or neither."
        )
    if arguments.train is None:
        record, text = _check_settings(request)
    else:
        record, text = _check_fit(request)
    if arguments.format == "json":
        text = as_json(record)
    else:
        text = f"{arguments.model}: {text}"
    print(text, file=request.stream)
    if record["explained"]:
        return 0
    return 1


def _check_settings(request: Request) -> tuple[dict[str, Any], str]:
    """Check a model without its training data; return a record and its text."""
    arguments = request.arguments
    for name in REPLAY_OPTIONS:
        refuse(
            f"--{name.replace('_', '-')}",
            getattr(arguments, name),
            "without --train and --target no fit is replayed",
            "Give these two as well, or leave it out.",
        )
    model = files.load(arguments.model, arguments.trust)
    with files.usable(arguments.model), suppress(UnsupportedModelError):
        adapters.examine(model)  # raises where the file is damaged
    support = supports(model)
    record = _check_record(request, support.kind, support.setting, support.reason)
    return record, f"{SUPPORT_TEXTS[support.kind]}\n{support.reason}"


def _check_fit(request: Request) -> tuple[dict[str, Any], str]:
    """Check a model by replaying its fit; return a record and its text."""
    try:
        explainer = request.subject.explainer
    except (UnsupportedModelError, ExactnessError) as error:
        if request.arguments.format != "json":
            raise
        return _check_record(request, "no", getattr(error, "setting", None), str(error)), ""
    text = f"{VERIFIED_TEXTS[explainer.kind]}, verified on {request.arguments.train}"
    record = _check_record(request, explainer.kind, None, f"{text[0].upper()}{text[1:]}.")
    if not request.arguments.quiet:
        text += f"\n{explainer.verification}"
    return record, text


def _check_record(request: Request, kind: str, setting: str | None, reason: str) -> dict[str, Any]:
    return {
        "model": request.arguments.model,
        "train": request.arguments.train,
        "explained": kind in VERIFIED_TEXTS,
        "kind": kind,
        "setting": setting,
        "reason": reason,
    }
