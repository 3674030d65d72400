"""`Explainer.report`, which writes one page per prediction.

It writes while the weights of the next ones are computed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from axil import inputs
from axil.aliases import ArrayLike, FeatureTable, PathLike, Sign, SimilarBy, Suspects, TableLike
from axil.arrays import FloatArray, IntArray
from axil.errors import InputError, shown
from axil.methods.intervals.class_predictive import ClassPredictive
from axil.methods.intervals.predictive import Predictive
from axil.methods.method import ExplainedRows, Method, take
from axil.methods.similar import compared, fitted_of, ranked, suspect_rows
from axil.output.page import spread_of
from axil.output.rules import Rules, as_at_least
from axil.output.shown_columns import Columns
from axil.reductions.choice import Allowed, Choice
from axil.report import case_page
from axil.report.class_report import (
    ClassPlan,
    checked_predictive,
    default_ranking,
    require_class_options,
)
from axil.report.content import Cases, cases
from axil.report.folder import Folder, file_names, opened, write_index
from axil.report.grid import grid_plan
from axil.report.report_plan import (
    Plan,
    check_names,
    check_report,
    extras_of,
    page_labels,
    rule_texts,
)
from axil.report.wording import COMMAS_FROM, Words, shares

if TYPE_CHECKING:
    from axil.retraining import Stability

CHUNK = 64  # pages that a thread writes at a time
WAITING = 64  # chunks that may wait to be written
INDEX = "../../index.html"  # as pages link to it
DEFAULT_CONFIDENCE_LEVEL = 0.9
TOLERANCE = 1e-6  # of the largest prediction, between those of an interval and those of the report


@dataclass(frozen=True)
class Written:
    """A folder of pages, as `Explainer.report` left it."""

    index: Path  #: the page to begin with
    pages: int  #: in the folder
    written: int  #: by this call; the others were there
    #: of those written, pages that list no training row, because none meets the conditions
    unlisted: int
    too_few: int = 0  #: of those written, pages that list fewer training rows than `at_least`


class Reports(Method):
    """The method `report` of `Explainer`."""

    def report(
        self,
        X: TableLike,
        folder: PathLike,
        *,
        k: int = 10,
        columns: Sequence[Any] | None = None,
        hide: Sequence[Any] = (),
        title: str = "Estimate",
        target: str = "value",
        unit: str = "",
        rows: str = "records",
        query: str = "case",
        names: Mapping[str, str] | None = None,
        search: Sequence[str | int] = (),
        map: Any = None,
        interval: Predictive | None = None,
        confidence_level: float | None = None,
        stability: Stability | None = None,
        by: SimilarBy | None = None,
        among: Any = None,
        distinct: Any = None,
        sign: Sign | None = None,
        within: Any = None,
        asof: Any = None,
        suspects: Suspects = "keep",
        out_of_fold: ArrayLike | None = None,
        beside: Any = None,
        init_score: ArrayLike | None = None,
        adjustments: bool | None = None,
        feature_groups: Mapping[str, Sequence[str | int]] | None = None,
        at_least: int | None = None,
        among_text: str = "",
        date_format: str = "",
        sample: int | None = None,
        seed: int = 0,
    ) -> Written:
        """Write one small page per row of X in plain language, and an index with a search.

        For a classifier a page is led by the training rows most like the case and the class of
        each: "Of the 10 loans most like this one: 7 defaulted". It then has the predicted class,
        and the score and the probability of ``pos_label``; with ``interval`` also the calibrated
        probability and the prediction set. ``unit``, ``map``, ``stability``, ``sign``,
        ``adjustments`` and ``feature_groups`` are for numbers alone.

        A page says what the prediction is, how sure it is, and which training rows carry it. For
        each of these rows it says how far the prediction follows its target, how the row differs,
        and what its target would be if the model moved it to the explained row (`similar` with
        ``adjust``). It marks targets that look wrong to
        `find_label_issues`. It shows the mean of the adjusted targets, and explains why that
        differs from the prediction. A page needs no script and no network, and ``index.html`` needs
        no server.

        An interrupted report continues where it stopped: existing pages are complete, and are not
        written again. The file ``report.json`` records what a folder was made of, and axil refuses
        another model, table or option there. Several processes may write to one folder. The report
        never holds an (n, n_train) array.

        Parameters
        ----------
        X : table
            The n rows to report on: a frame, an array or a sparse matrix with the columns of the
            fit. The labels of a pandas frame name the pages, and no two may be the same.
        folder : str or path
            A directory, which is made if it is not there.
        k : int, default 10
            How many training rows per page.
        columns : sequence, optional
            Which columns to show, by name or position; by default the first eight, those of
            ``beside`` before features, without the coordinates of a map.
        hide : sequence, optional
            Columns whose values no page shows, by name or position.
        title : str, default "Estimate"
            The words above every page.
        target : str, default "value"
            What pages call the target, such as "price".
        unit : str, optional
            Its unit, such as "kWh"; a sign of money, such as "$", goes in front.
        rows : str, default "records"
            What pages call the training rows, in the plural, such as "sales".
        query : str, default "case"
            What pages call a row of X, such as "home".
        names : dict, optional
            What pages call columns: ``{"bldg_sf": "Floor area"}``.
        search : sequence, optional
            Columns of X, by name or position, that the index searches besides labels, such as an
            address.
        map : pair of columns, optional
            Latitudes and longitudes in degrees, by name or position, for a map on each page; with
            "miles" as a third, distances are in miles rather than km.
        interval : Predictive, optional
            How sure predictions are, as `calibrate` of this explainer made it; without it pages say
            nothing of that.
        confidence_level : float, default 0.9
            The probability that an interval is to hold its target with; only together with
            ``interval``.
        stability : Stability, optional
            What `axil.stability` returned for the rows of X: pages then say how far retraining
            alone moves the estimate.
        by : "leaves" or "weight", optional
            Which rows are listed, as in `similar`: those that are most like the query, or those
            that count most for it.
        among : array of bool of shape (n_train,) or function, optional
            The training rows that may be listed, as in `similar`.
        distinct : str, int or sequence of length n_train, optional
            Labels of which each is listed once, as in `similar`.
        sign : "any", "for" or "against", optional
            Only rows whose weight is above or below zero, as in `similar`. By default "for" where
            weights decide which rows are listed, and "any" where leaves do.
        within : pair of a column and a distance, or list of such pairs, optional
            How near a row must be to the query, as in `similar`: ``("sale_date", "3Y")``, or
            several rules.
        asof : date, str or number, optional
            The date of the predictions, or the column of X that has it, as in `similar`: only rows
            before it are listed, and pages say that they are as of this date.
        suspects : "keep", "mark", "drop", labels, truth values or a pair, default "keep"
            What happens to training rows whose targets look wrong to `find_label_issues`: the pages
            show them like all others, mark them, or leave them out. You may pass suspects of your
            own, as in `similar`; then `find_label_issues` does not run.
        out_of_fold : array of shape (n_train,), optional
            Predictions of your own cross-validation that `find_label_issues` judges the targets by,
            as in `similar`.
        beside : pair of frames, optional
            Further columns of the training rows and of the rows of X, as in `similar`.
        init_score : array of shape (n,), optional
            Offsets of the rows of X, as in `similar`.
        adjustments : bool, optional
            Whether pages have a sales comparison grid: a column for each listed row and a line for
            each feature, with what the model adds to the row's target because of that feature
            (`adjustments`). By default pages have it where axil can split the adjustments.
        feature_groups : mapping from text to columns, optional
            Features that have one line of the grid together, as in `adjustments`. The two columns
            of ``map`` are one group, "Location", unless you name them.
        at_least : int, optional
            How many training rows a page needs, k at most: pages with fewer say so.
        among_text : str, optional
            What ``among`` allows in words, such as "sold at arm's length". Pages state all rules:
            those of ``within``, ``asof`` and ``distinct`` in axil's words.
        date_format : str, optional
            How pages write dates, as `datetime.strftime` takes it, such as "%d.%m.%Y" or
            "%b %-d, %Y"; by default 2024-03-31.
        sample : int, optional
            Write pages for so many rows of X alone, drawn at random: for quality control of a
            folder that would be too large to read.
        seed : int, default 0
            Which rows the sample has; the same number draws the same rows.

        Returns
        -------
        Written
            The path of ``index.html``, the number of pages, how many this call has written, how
            many of these list no training row, as none meets the conditions, and how many list
            fewer than ``at_least``.

        Examples
        --------
        >>> import tempfile
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> model = LGBMRegressor(n_estimators=20, verbose=-1).fit(X[:400], y[:400])
        >>> explainer = Explainer(model, X[:400], y[:400])
        >>> words = {"rows": "patients", "query": "patient"}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     first = explainer.report(X[400:], folder, columns=["age", "bmi"], **words)
        ...     again = explainer.report(X[400:], folder, columns=["age", "bmi"], **words)
        >>> first.pages, first.written, again.written
        (42, 42, 0)
        """
        explained = self._explained_rows("report", X, init_score)
        if sample is not None:
            positions = _sampled(len(explained), sample, seed)
            explained = take(explained, positions)
            beside, init_score = _of_sample(positions, beside, init_score, stability)
        model = explained.model
        is_of_classes = model.names.class_names is not None
        if is_of_classes:
            require_class_options(
                {
                    "unit": unit,
                    "map": map,
                    "stability": stability,
                    "sign": sign,
                    "adjustments": adjustments,
                    "feature_groups": feature_groups,
                }
            )
        else:
            check_report(explained, interval)
        names = {} if names is None else names
        words = Words(title, target, unit, rows, query, names, date_format)
        table_columns = explained.listing(beside).known
        check_names(words, table_columns)
        suspected = suspect_rows(model, suspects, out_of_fold, len(explained))
        rules = Rules(among, distinct, within, asof, suspected.dropped)
        choice, allowed = model.training.choice(table_columns, k, rules)
        extras = replace(
            extras_of(table_columns, columns, hide, rules, map, suspected.marked, model.shape[0]),
            at_least=as_at_least(at_least, choice.k),
            are_targets_checked=suspected.were_sought,
            rule_texts=rule_texts(rules, table_columns, words, among_text),
        )
        if is_of_classes:
            level, level_words = _level_of_sets(interval, confidence_level)
            class_plan = ClassPlan(
                asked=explained,
                words=words,
                choice=ranked(explained, choice, by or default_ranking(model)),
                allowed=allowed,
                columns=table_columns,
                chosen=extras.chosen,
                labels=page_labels(explained.queries.rows),
                suspects=suspected.marked,
                are_targets_checked=suspected.were_sought,
                predictive=checked_predictive(interval),
                confidence_level=level,
                level_words=level_words,
                rule_texts=extras.rule_texts,
                at_least=extras.at_least,
            )
            return _report_on_classes(class_plan, folder, search)
        has_offsets = init_score is not None
        extras = replace(
            extras,
            grid=grid_plan(
                explained, table_columns, adjustments, feature_groups, extras.places, has_offsets
            ),
            approximate=_approximate_figures(explained, words),
            stability=_spread_of_refits(stability, len(explained)),
        )
        level, level_words = _checked_level(explained, interval, confidence_level)
        plan = Plan(
            words=words,
            choice=ranked(explained, choice, by, sign),
            sign=sign,
            allowed=allowed,
            extras=extras,
            predictive=interval,
            confidence_level=level,
            level_words=level_words,
            labels=page_labels(explained.queries.rows),
            values=model.scale.inverse(explained.queries.predictions)[:, 0],
            offsets=inputs.as_offsets(init_score, len(explained), 1, "explained"),
        )
        return _report_on_numbers(plan, explained, folder, search)


def _spread_of_refits(stability: Stability | None, n: int) -> FloatArray | None:
    """Return how far retraining moves each of n predictions, (n,); None without refits."""
    if stability is None:
        return None
    spread, _ = spread_of(stability, n, 1)
    return spread[:, 0]


def _report_on_numbers(
    plan: Plan, explained: ExplainedRows, folder: PathLike, search: Sequence[str | int] | None
) -> Written:
    """Write the pages of a report on numbers, and its index."""
    search_columns = _searched(plan.extras.columns, search)
    record = plan.record(explained, fitted_of(explained.model))
    place = opened(folder, file_names(plan.labels), record)
    missing = place.missing()
    n_listed = np.zeros(0, dtype=np.intp)
    if len(missing):
        n_listed = _write_pages(plan, place, explained, missing)
    amounts = [plan.words.amount(value) for value in plan.values.tolist()]
    search_words = _search_words(plan.extras.columns, search_columns, plan.labels, plan.words)
    write_index(place.path, plan.labels, place.files, amounts, search_words, plan.words)
    return _written(place, n_listed, plan.extras.at_least)


def _report_on_classes(
    plan: ClassPlan, folder: PathLike, search: Sequence[str | int] | None
) -> Written:
    """Write the pages of a report on classes, and its index."""
    if not len(plan.asked):
        raise InputError("X has no rows, so there is nothing to report on.")
    search_columns = _searched(plan.columns, search)
    place = opened(folder, file_names(plan.labels), plan.record())
    missing = place.missing()
    n_listed = np.zeros(0, dtype=np.intp)
    if len(missing):
        n_listed = plan.write_pages(place, missing, INDEX)
    search_words = _search_words(plan.columns, search_columns, plan.labels, plan.words)
    write_index(place.path, plan.labels, place.files, plan.values, search_words, plan.words)
    return _written(place, n_listed, plan.at_least)


def _searched(columns: Columns, search: Sequence[str | int] | None) -> list[int]:
    """Return the positions of the columns that the index searches."""
    if search is None:
        return []
    return columns.chosen(search, "search")


def _written(folder: Folder, n_listed: IntArray, at_least: int) -> Written:
    """Return the summary of a report from the number of rows that each page of this call lists."""
    return Written(
        index=folder.path / "index.html",
        pages=len(folder.files),
        written=len(n_listed),
        unlisted=int((n_listed == 0).sum()),
        too_few=int((n_listed < at_least).sum()),
    )


def _level_of_sets(
    interval: Predictive | ClassPredictive | None, confidence_level: float | None
) -> tuple[float, str]:
    """Return the confidence level of prediction sets as a number and in words."""
    predictive = checked_predictive(interval)
    level = _level(predictive, confidence_level)
    return level, _level_words(predictive, level)


def _level(
    predictive: Predictive | ClassPredictive | None, confidence_level: float | None
) -> float:
    """Return the confidence level of a report, checked; the default one for None."""
    if confidence_level is None:
        return DEFAULT_CONFIDENCE_LEVEL
    if predictive is None:
        raise InputError(
            f"confidence_level is {shown(confidence_level)}, and there is no interval to have it. "
            "Pass interval=explainer.calibrate(...) too, or leave it out."
        )
    return inputs.as_number(confidence_level, "confidence_level")


def _level_words(predictive: Predictive | ClassPredictive | None, level: float) -> str:
    """Return a confidence level in words; "" without calibration rows."""
    if predictive is None:
        return ""
    if predictive.source == "held out":
        return shares(level)
    return f"about {shares(level)}"


def _sampled(n: int, sample: int, seed: int) -> IntArray:
    """Return the positions of a random sample of n rows, in their order."""
    size = inputs.as_count(sample, "sample")
    number = inputs.as_count(seed, "seed", least=0)
    if size > n:
        raise InputError(f"sample is {size}, and X has {n} rows; expected at most as many.")
    rows = np.random.default_rng(number).choice(n, size, replace=False)
    return np.asarray(np.sort(rows))


def _of_sample(
    positions: IntArray,
    beside: Any,
    init_score: ArrayLike | None,
    stability: Stability | None,
) -> tuple[Any, ArrayLike | None]:
    """Return the further columns and the offsets of a sample of X."""
    if stability is not None:
        raise InputError(
            "stability is of all rows of X, and sample takes some of them. Leave one of them out."
        )
    if isinstance(beside, (tuple, list)) and len(beside) == 2 and beside[1] is not None:
        beside = (beside[0], inputs.take_rows(beside[1], positions))
    if init_score is not None:
        init_score = np.asarray(init_score)[positions]
    return beside, init_score


def _approximate_figures(explained: ExplainedRows, words: Words) -> str:
    """Return which figures of the pages are approximate, in words; "" for none."""
    verification = explained.model.verification
    if verification is None or verification.active_set is None:
        return ""
    return f"the effects of other {words.target}s hold for small changes"


def _checked_level(
    explained: ExplainedRows, interval: Predictive | None, confidence_level: float | None
) -> tuple[float, str]:
    """Return the confidence level of the intervals as a number and in words.

    It is checked before any work.
    """
    level = _level(interval, confidence_level)
    if interval is not None:
        no_rows = inputs.take_rows(explained.queries.rows, slice(0, 0))
        interval.interval(no_rows, level)  # raises for a level that it cannot have
    return level, _level_words(interval, level)


def _write_pages(
    plan: Plan, folder: Folder, explained: ExplainedRows, missing: IntArray
) -> IntArray:
    """Write the pages of these rows, and return how many training rows each of them lists.

    Threads write while the weights of the next rows are computed.
    """
    n_listed = []
    pending: deque[Future[None]] = deque()
    pool = ThreadPoolExecutor(explained.model.n_threads)
    try:
        for batch in _batches(plan, take(explained, missing), missing):
            n_listed.append(np.diff(batch.starts))
            for start in range(0, len(batch), CHUNK):
                chunk = range(start, min(start + CHUNK, len(batch)))
                pending.append(pool.submit(_write_chunk, folder, plan, batch, chunk))
                while len(pending) > WAITING:
                    pending.popleft().result()
        for future in pending:
            future.result()
    finally:
        pool.shutdown(cancel_futures=True)
    return np.concatenate(n_listed)


def _batches(plan: Plan, explained_rows: ExplainedRows, positions: IntArray) -> Iterator[Cases]:
    """Yield the content of the pages on these rows, which are at these positions of X."""
    choice, allowed = _restricted(plan, positions)
    n_columns = 24 + 3 * len(plan.extras.chosen)
    start = 0
    for predicted, listed in compared(explained_rows, choice, allowed, True, n_columns):
        stop = start + len(predicted.labels)
        batch_positions = positions[start:stop]
        values = plan.values[batch_positions]
        explained = take(explained_rows, np.arange(start, stop))
        batch = cases(explained, predicted, listed, batch_positions, values, choice.k, plan.extras)
        if plan.predictive is not None:
            offsets = None
            if plan.offsets is not None:
                offsets = plan.offsets[batch_positions]
            rows = inputs.take_rows(explained_rows.queries.rows, slice(start, stop))
            batch = replace(batch, interval=_interval(plan, rows, offsets, values))
        start = stop
        yield batch


def _restricted(plan: Plan, positions: IntArray) -> tuple[Choice, Sequence[Allowed]]:
    """Return the choice of rows for the rows at these positions of X.

    Return also which rows it may list.
    """
    choice = plan.choice
    choice = replace(choice, near=tuple(rule.of(positions) for rule in choice.near))
    if choice.sides is not None:
        choice = replace(choice, sides=choice.sides[positions])
    allowed = plan.allowed
    if allowed[0].by_query is not None:
        allowed = [replace(allowed[0], by_query=allowed[0].by_query[positions])]
    return choice, allowed


def _interval(
    plan: Plan, rows: FeatureTable, offsets: FloatArray | None, values: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the lower and upper ends of the intervals of some rows.

    Check that the predictive has the same predictions.
    """
    assert plan.predictive is not None
    table = inputs.as_frame(
        plan.predictive.interval(rows, plan.confidence_level, init_score=offsets)
    )
    assert table is not None
    predictions = np.asarray(table["prediction"].to_numpy())
    tolerance = TOLERANCE * np.abs(values).max(initial=1e-300)
    if not np.allclose(predictions, values, rtol=0, atol=tolerance):
        raise InputError(
            "interval predicts other values than this explainer; expected what its own calibrate "
            "returned."
        )
    return np.asarray(table["lower"].to_numpy()), np.asarray(table["upper"].to_numpy())


def _write_chunk(folder: Folder, plan: Plan, batch: Cases, chunk: range) -> None:
    """Write some pages of a batch."""
    for i in chunk:
        position = int(batch.positions[i])
        label = plan.labels[position]
        text = case_page.render(batch, i, label, plan.words, plan.level_words, INDEX)
        folder.write(position, text)


def _search_words(
    known: Columns, search_columns: list[int], labels: list[str], words: Words
) -> list[str]:
    """Return the values that the index searches for each row of X, in one text."""
    columns = []
    for column in known.of_queries(np.arange(len(labels)), search_columns):
        if column is not None:
            columns.append([words.cell(value, COMMAS_FROM) for value in column])
    if not columns:
        return [""] * len(labels)
    return [", ".join(values) for values in zip(*columns)]
