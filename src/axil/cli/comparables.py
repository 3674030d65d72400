"""`axil similar`, `axil adjustments` and `axil report`: comparables in tables or on pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from axil.cli.answers import TOP, calibrated
from axil.cli.data import FileRows, as_dates
from axil.cli.options import refuse
from axil.cli.request import Request
from axil.cli.rows import comma_separated, marked_rows, number_or_word
from axil.cli.screen import table_lines, visible
from axil.errors import InputError, counted, shown, suggestion
from axil.explainer import Explainer
from axil.machine.blocks import spans
from axil.methods.method import verified_model
from axil.replay.fitted_trees import are_boosted

if TYPE_CHECKING:
    import pandas as pd

QUERIES_AT_A_TIME = 20_000  # whose table is in memory
QUERIES_ON_SCREEN = 2
ADJUSTED = 5  # comparables of each row, unless --top says otherwise
FIRST_TO_GO = ("share", "contribution", "factor", "adjusted (all)", "rank", "prediction", "weight")
# Parameters of `similar` that `axil adjustments` does not take
NOT_FOR_ADJUSTMENTS = ("beside", "adjust", "columns", "tree_weights", "per_class", "weights")
# Parameters that are read here, because they depend on several options
READ_HERE = (
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


def similar(request: Request) -> None:
    """Print the comparables of each explained row, as one table."""
    output = request.output
    subject = request.subject
    choice = _choice(request)
    rows = choice.queries
    parameters: dict[str, Any] = {
        "k": TOP,
        "columns": list(rows.features.columns),  # without the columns of options
        **choice.parameters,
        **request.parameters(Explainer.similar, READ_HERE),
        **_suspect_predictions(request),
    }
    n_queries = len(rows.features)
    if output.shows_all:
        n_printed = n_queries
    else:
        n_printed = min(n_queries, QUERIES_ON_SCREEN)

    def tables() -> Iterator[pd.DataFrame]:
        for span in spans(n_printed, QUERIES_AT_A_TIME):
            rows_of_span = rows.part(span)
            yield subject.explainer.similar(
                rows_of_span.features,
                beside=(choice.training_columns, choice.query_columns.iloc[span]),
                init_score=rows_of_span.init_score,
                **parameters,
            )

    by = request.arguments.by
    order = "of largest weight in each"
    if by == "leaves" or (by is None and are_boosted(verified_model(subject.explainer).trees)):
        order = f"that {'shares' if parameters['k'] == 1 else 'share'} most leaves with each"
    predictions = counted(n_queries, "prediction")
    text = subject.answer_text(
        f"{predictions} and the {counted(parameters['k'], 'training row')} {order}",
        n_hidden=n_queries - n_printed,
        row_name="comparable",
        table_subject=f" of {predictions}",
    )
    output.give(tables(), text, partial(table_lines, first_to_go=FIRST_TO_GO))


def adjustments(request: Request) -> None:
    """Print what each feature adds to the targets of the comparables of each explained row."""
    subject = request.subject
    choice = _choice(request)
    rows = choice.queries
    parameters = {
        "k": ADJUSTED,
        **choice.parameters,
        **request.parameters(Explainer.similar, (*READ_HERE, *NOT_FOR_ADJUSTMENTS)),
        **_suspect_predictions(request),
    }
    comparables = subject.explainer.similar(
        rows.features,
        columns=[],
        beside=(choice.training_columns, choice.query_columns),
        init_score=rows.init_score,
        **parameters,
    )
    table = subject.explainer.adjustments(
        rows.features,
        comparables,
        **request.parameters(Explainer.adjustments, ("comparables",)),
    )
    title = (
        f"{counted(len(comparables), 'comparable')} of "
        f"{counted(len(rows.features), 'prediction')}: what each feature adds to their targets"
    )
    request.output.give([table], subject.answer_text(title, table))


def report(request: Request) -> None:
    """Write a page per explained row, and an index."""
    arguments = request.arguments
    output = request.output
    has_intervals = arguments.calibration is not None or arguments.out_of_fold is not None
    if not has_intervals:
        refuse(
            "--confidence-level",
            arguments.confidence_level,
            "it is of intervals, and there is nothing to calibrate them with",
            "Give --calibration or --out-of-fold, or leave it out.",
        )
    subject = request.subject
    if has_intervals:
        predictive = calibrated(request)
    else:
        predictive = None
    choice = _choice(request)
    frames = (choice.queries.features, choice.training_columns, choice.query_columns)
    columns = {name for frame in frames for name in frame}
    names = {name: text for name, text in _column_texts(arguments.names).items() if name in columns}
    written = subject.explainer.report(
        choice.queries.features,
        arguments.out,
        names=names,
        target=arguments.target_name or arguments.target,
        interval=predictive,
        beside=(choice.training_columns, choice.query_columns),
        init_score=choice.queries.init_score,
        **choice.parameters,
        **request.parameters(Explainer.report, READ_HERE),
        **_suspect_predictions(request),
    )
    title = (
        f"{counted(written.pages, 'page')}, {written.written} of them new. "
        f"Begin with {written.index}"
    )
    if written.unlisted:
        title += f"\nNo training row meets the conditions for {written.unlisted} of the new pages"
    if arguments.at_least is not None and written.too_few:
        title += f"\n{written.too_few} of the new pages list fewer than {arguments.at_least} rows"
    if arguments.quiet:
        answer = [visible(str(written.index))]
    else:
        answer = []
    output.say([subject.verification, title], answer, [subject.note])


def _suspect_predictions(request: Request) -> dict[str, Any]:
    """Return the out-of-fold predictions that judge the labels of training rows, if any."""
    if request.arguments.out_of_fold is None:
        return {}
    if request.arguments.suspects in (None, "keep"):
        return {}
    return {"out_of_fold": request.subject.training.out_of_fold}


@dataclass(frozen=True)
class ComparableChoice:
    """The rows to explain, further columns of the files, and which training rows may be listed."""

    queries: FileRows
    training_columns: pd.DataFrame  #: that options name and that are no features
    query_columns: pd.DataFrame
    parameters: dict[str, Any]  #: "within", "asof" and "among"


def _choice(request: Request) -> ComparableChoice:
    """Read the options on which training rows may be listed, and on the columns shown."""
    arguments = request.arguments
    training = request.subject.training
    queries = request.rows
    near_rules = _near_rules(arguments.within, arguments.asof is not None)
    near_columns = [column for rule in near_rules for column in rule.columns]
    first_column = near_columns[0] if near_columns else None
    asof_column = arguments.asof if arguments.asof in queries.column_names else None
    names = [
        *comma_separated(getattr(arguments, "columns", None)),
        *comma_separated(getattr(arguments, "map", None))[:2],
        *comma_separated(getattr(arguments, "search", None)),
        *near_columns,
        *(name for name in (asof_column, arguments.distinct) if name),
    ]
    _require_columns(request, names)
    columns = []
    for rows in (training, queries):
        frame = rows.other_columns[
            [name for name in rows.other_columns.columns if name in names]
        ].copy()
        dated_columns = [(rule.columns[0], "--within") for rule in near_rules if not rule.is_place]
        for column, option in (*dated_columns, (asof_column, "--asof")):
            if column in frame:
                frame[column] = as_dates(frame[column], rows.path, option)
        columns.append(frame)
    asof: float | str | None = asof_column
    if asof is None:
        asof = _date_or_number(training, arguments.asof, first_column)
    among = None
    if arguments.among is not None:
        among = marked_rows(training, arguments.among, "--among")
    within = [rule.value for rule in near_rules] or None
    parameters = {"within": within, "asof": asof, "among": among}
    return ComparableChoice(queries, columns[0], columns[1], parameters)


def _require_columns(request: Request, names: list[str]) -> None:
    """Refuse columns that neither file has, also those of --names."""
    training = request.subject.training
    queries = request.rows
    known_names = {*training.column_names, *queries.column_names}
    for name in (*names, *_column_texts(getattr(request.arguments, "names", None))):
        if name not in known_names:
            raise InputError(
                f"The options name {shown(name)}, which neither {training.path} nor {queries.path} "
                f"has. {training.columns_sentence}{suggestion(name, known_names)}"
            )


def _column_texts(text: str | None) -> dict[str, str]:
    """Return the names of columns on pages, from text such as area=Floor area,built=Built."""
    texts = {}
    for pair in comma_separated(text):
        name, sign, column_text = pair.partition("=")
        if not sign:
            raise InputError(
                f"--names is {shown(text)}; expected such as area=Floor area,built=Built."
            )
        texts[name.strip()] = column_text.strip()
    return texts


@dataclass(frozen=True)
class NearRuleText:
    """A rule of --within: its columns, and the distance or None for any."""

    columns: list[str]
    distance: float | str | None

    @property
    def is_place(self) -> bool:
        """Whether the columns are a latitude and a longitude."""
        return len(self.columns) == 2

    @property
    def value(self) -> object:
        """Return the rule as `Explainer.similar` takes it."""
        if self.distance is None:
            return self.columns[0]
        if self.is_place:
            return tuple(self.columns), self.distance
        return self.columns[0], self.distance


def _near_rules(texts: list[str] | None, has_date: bool) -> list[NearRuleText]:
    """Return the rules of --within; with a date, the first may be a column alone."""
    rules: list[NearRuleText] = []
    for text in texts or []:
        *columns, distance = (word.strip() for word in text.split(","))
        if not columns and distance and has_date and not rules:
            rules.append(NearRuleText([distance], None))
        elif columns and all(columns) and distance and len(columns) <= 2:
            rules.append(NearRuleText(columns, number_or_word(distance)))
        else:
            raise InputError(
                f"--within is {shown(text)}; expected a column and a distance, such as "
                "sale_date,3Y, area,20 or area,25%, or two columns of places and a length, such as "
                "lat,lon,5km."
            )
    return rules


def _date_or_number(training: FileRows, text: str | None, column: str | None) -> float | str | None:
    """Return a date as text, or a number if the column of --within has numbers."""
    if text is None or column is None:
        return text
    is_numeric = training.column(column, "--within").dtype.kind in "biuf"
    if is_numeric:
        return number_or_word(text)
    return text
