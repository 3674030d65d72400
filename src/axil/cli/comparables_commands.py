"""`axil similar` and `axil report`: comparables as one table, or as a folder of pages."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from typing import Any

from axil.cli import commands, data, screen
from axil.cli.names import listed, mask, number_or_word
from axil.cli.output import Output, lines_of, output_of
from axil.cli.parameters import given_options, refuse
from axil.errors import InputError, counted, meant, shown
from axil.explainer import Explainer
from axil.inputs import as_count
from axil.machine.blocks import spans

TOP = 10  # training rows per query
PART = 20_000  # queries whose table is held at a time
ON_SCREEN = 2  # queries whose comparables are for reading
# The first columns to go in a narrow window
SPARED = ("share", "contribution", "factor", "adjusted (all)", "rank", "prediction", "weight")
# Parameters that are read here
BY_HAND = (
    "folder",
    "target",
    "interval",
    "names",
    "beside",
    "within",
    "asof",
    "among",
    "out_of_fold",
)


def similar(arguments: argparse.Namespace, out: Any) -> int:
    """The comparables of each query, as one table."""
    output = output_of(arguments, out)
    question = commands.question_of(arguments)
    asked, (first, second), rules = _asked(question, arguments)
    features = list(asked.features.columns)  # without the columns of options
    options: dict[str, Any] = {"k": TOP, "columns": features} | rules
    options |= given_options(arguments, Explainer.similar, question, skipped=BY_HAND)
    options |= _judged_by(question, arguments, "keep")
    n_asked = len(asked.features)
    n = n_asked if output.whole else min(n_asked, ON_SCREEN)

    def parts() -> Iterator[Any]:
        for some in spans(n, PART):
            beside, rows = (first, second.iloc[some]), asked.cut(some)
            yield question.explainer.similar(
                rows.features, beside=beside, **rows.started, **options
            )

    asks = counted(n_asked, "prediction")
    leaves = arguments.by == "leaves" or (
        arguments.by is None and question.explainer._model.is_boosted
    )
    share = "shares" if options["k"] == 1 else "share"
    which = f"that {share} most leaves with each" if leaves else "of largest weight in each"
    title = f"{asks} and the {counted(options['k'], 'training row')} {which}"
    words = question.words(title, left=n_asked - n, called="comparable", about=f" of {asks}")
    return output.give(parts(), words, partial(lines_of, spared=SPARED))


def report(arguments: argparse.Namespace, out: Any) -> int:
    """A page per query, and an index."""
    if arguments.top is not None:
        as_count(arguments.top, "--top")
    sure = arguments.calibration is not None or arguments.out_of_fold is not None
    if not sure:
        why = "it is of intervals, and there is nothing to calibrate them with"
        refuse(
            "--coverage",
            arguments.coverage,
            why,
            "Give --calibration or --out-of-fold, or leave it out.",
        )
    question = commands.question_of(arguments)
    explainer: Any = question.explainer  # one that cannot answer refuses, by name
    predictive = commands.calibrated(question, arguments) if sure else None
    asked, others, rules = _asked(question, arguments)
    shown_columns = {name for frame in (asked.features, *others) for name in frame}
    found = explainer.report(
        asked.features,
        arguments.out,
        names={
            name: other
            for name, other in _renamed(arguments.names).items()
            if name in shown_columns
        },
        target=arguments.target_name or arguments.target,
        interval=predictive,
        beside=others,
        **asked.started,
        **rules,
        **given_options(arguments, Explainer.report, question, asked, BY_HAND),
        **_judged_by(question, arguments, "mark"),
    )
    said = f"{counted(found.pages, 'page')}, {found.written} of them new. Begin with {found.index}"
    if found.unlisted:
        said += f"\nNo training row meets the conditions for {found.unlisted} of the new pages"
    answer = [screen.visible(str(found.index))] if arguments.quiet else []
    Output(out, quiet=arguments.quiet).say([question.proof, said], answer, [question.sentence])
    return 0


def _judged_by(
    question: commands.CommandSubject, arguments: argparse.Namespace, default: str
) -> dict[str, Any]:
    """Return the out-of-fold predictions that the audit of training rows goes by, where it is asked and there are some."""
    if arguments.out_of_fold is None or (arguments.suspects or default) == "keep":
        return {}
    return {"out_of_fold": question.training.out_of_fold}


def _asked(
    question: commands.CommandSubject, arguments: argparse.Namespace
) -> tuple[data.FileRows, tuple[Any, Any], dict[str, Any]]:
    """The queries; the further columns that options name, of training rows and of queries; and which rows may be listed."""
    training, queries = question.training, question.rows(arguments.query)
    features = list(training.features.columns)
    near = (
        None if arguments.within is None else _within(arguments.within, arguments.asof is not None)
    )
    dated = near[0] if isinstance(near, tuple) else near
    asof = (
        arguments.asof
        if arguments.asof in (*queries.features.columns, *queries.others.columns)
        else None
    )
    columns, places, search = (
        listed(getattr(arguments, name, None)) for name in ("columns", "map", "search")
    )
    named = [
        *columns,
        *places[:2],
        *search,
        *(name for name in (dated, asof, arguments.distinct) if name),
    ]
    known = {*features, *training.others.columns, *queries.others.columns}
    for name in (*named, *_renamed(getattr(arguments, "names", None))):
        if name not in known:
            raise InputError(
                f"The options name {shown(name)}, which neither {training.path} nor {queries.path} has. "
                f"{data.columns_in_words(training)}{meant(name, known)}"
            )
    beside = [
        frame.others[[name for name in frame.others.columns if name in named]].copy()
        for frame in (training, queries)
    ]
    for column, option in ((dated, "--within"), (asof, "--asof")):
        for frame, rows in zip(beside, (training, queries)):
            if column in frame:
                frame[column] = data.as_dates(frame[column], rows.path, option)
    options = {
        "within": near,
        "asof": _asof(training, arguments.asof, dated) if asof is None else asof,
        "among": None if arguments.among is None else mask(training, arguments.among, "--among"),
    }
    return queries, (beside[0], beside[1]), options


def _renamed(text: str | None) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in listed(text)]
    if any(not sign for _, sign, _ in pairs):
        raise InputError(f"--names is {shown(text)}; expected such as area=Floor area,built=Built.")
    return {name.strip(): called.strip() for name, _, called in pairs}


def _within(text: str, alone: bool) -> Any:
    """A column and a distance, which is a number where it looks like one; or the column, where that may stand alone."""
    name, _, distance = (word.strip() for word in text.rpartition(","))
    if alone and not name:
        return distance
    if not name or not distance:
        raise InputError(
            f"--within is {shown(text)}; expected a column and a distance, such as sale_date,3Y or area,20."
        )
    return name, number_or_word(distance)


def _asof(training: data.FileRows, text: str | None, dated: str | None) -> Any:
    """A date as text; a number where the column of --within holds numbers."""
    if text is None or dated is None:
        return text
    frame = training.features if dated in training.features else training.others
    return number_or_word(text) if frame[dated].dtype.kind in "biuf" else text
