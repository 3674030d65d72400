"""Reports: `Explainer.report`, which writes a page per prediction while the weights of the next ones are computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from axil import inputs
from axil.arrays import FloatArray, IntArray
from axil.errors import InputError, shown
from axil.methods.intervals.predictive import Predictive
from axil.methods.question import Asked, Question, take
from axil.methods.similar import compared, fitted_of, ranked, suspect_rows
from axil.output.page import spread_of
from axil.output.rules import Rules
from axil.report import case_page
from axil.report.content import Cases, cases
from axil.report.folder import Folder, file_names, opened, write_index
from axil.report.report_plan import Plan, page_labels, refuse, refuse_names, shown_of
from axil.report.wording import Words, cell, shares

CHUNK = 64  # pages that a thread writes at a time
WAITING = 64  # chunks that may wait to be written
SAME = (
    1e-6  # of the largest prediction: how far those of an interval may be from those of the report
)


@dataclass(frozen=True)
class Written:
    """A folder of pages, as `Explainer.report` left it."""

    index: Path  #: the page to begin with
    pages: int  #: in the folder
    written: int  #: by this call; the others were there
    unlisted: (
        int  #: of those written, pages that list no training row, as none meets the conditions
    )


class Reports(Question):
    """The question for a folder of pages, as a method of `Explainer`."""

    def report(
        self,
        X: Any,
        folder: Any,
        k: int = 5,
        columns: Sequence[Any] | None = None,
        *,
        title: str = "Estimate",
        target: str = "value",
        unit: str = "",
        rows: str = "records",
        query: str = "case",
        names: Mapping[str, str] | None = None,
        search: Sequence[Any] = (),
        map: Any = None,
        interval: Predictive | None = None,
        coverage: float | None = None,
        refits: Any = None,
        by: str | None = None,
        among: Any = None,
        distinct: Any = None,
        sign: str | None = None,
        within: Any = None,
        asof: Any = None,
        suspects: Any = "mark",
        out_of_fold: Any = None,
        beside: Any = None,
        init_score: Any = None,
    ) -> Written:
        """One small page per row of X in plain language, and an index with a search, for any number of rows.

        A page says what the prediction is, how sure it is, and which training rows carry it. Of each of these it says how far the
        prediction follows its target, how it differs, what its target would be if the model moved it to the query (`similar`
        with ``adjust``), and whether its target looks wrong to `audit`. It has the mean of the adjusted targets, and says why
        where that is off the prediction. A page needs no script and no network, and ``index.html`` needs no server.

        An interrupted report goes on where it was: pages that are there are whole, and are not written again. The file
        ``report.json`` says what a folder was made of, and another model, table or option is refused there. Several processes
        may write to one folder. Streamed: never holds an (n, n_train) array.

        Parameters
        ----------
        X : table
            The n rows to report on: a frame, an array or a sparse matrix with the columns of the fit. The labels of a pandas
            frame name the pages, and no two may be the same.
        folder : str or path
            A directory, which is made if it is not there.
        k : int, default 5
            How many training rows per page.
        columns : sequence, optional
            Which columns to show, by name or position; by default the first eight, those of ``beside`` before features.
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
            Columns of X, by name or position, that the index searches besides labels, such as an address.
        map : pair of columns, optional
            Latitudes and longitudes in degrees, by name or position, for a map on each page; with "miles" as a third, distances
            are in miles rather than km.
        interval : Predictive, optional
            How sure predictions are, as `calibrate` of this explainer made it; without it pages say nothing of that.
        coverage : float, default 0.9
            The probability that an interval is to hold its target with; only together with ``interval``.
        refits : Stability, optional
            What `axil.refits` returned for the rows of X: pages then say how far retraining alone moves the estimate.
        by : "leaves" or "weights", optional
            Which rows are listed, as in `similar`: those that are most like the query, or those that count most for it.
        among : array of bool of shape (n_train,) or function, optional
            The training rows that may be listed, as in `similar`.
        distinct : str, int or sequence of length n_train, optional
            Labels of which each is listed once, as in `similar`.
        sign : "any", "for" or "against", optional
            Only rows whose weight is above or below zero, as in `similar`. By default "for" where weights decide which rows are
            listed, and "any" where leaves do.
        within : pair of a column and a distance, optional
            How near a row must be to the query, as in `similar`: ``("sale_date", "3Y")``.
        asof : date, str or number, optional
            The date of the predictions, or the column of X that has it, as in `similar`: only rows before it are listed, and
            pages say that they are as of this date.
        suspects : "mark", "drop", "keep", labels, truth values or a pair, default "mark"
            What becomes of training rows whose targets look wrong to `audit`: pages say it of them, leave them
            out, or show them like all others. Your own suspects as in `similar`; then audit is not asked.
        out_of_fold : array of shape (n_train,), optional
            Predictions of your own cross-validation that `audit` judges the targets by, as in `similar`.
        beside : pair of frames, optional
            Further columns of the training rows and of the rows of X, as in `similar`.
        init_score : array of shape (n,), optional
            Offsets of the rows of X, as in `similar`.

        Returns
        -------
        Written
            The path of ``index.html``, the number of pages, how many this call has written, and how many of these list no
            training row, as none meets the conditions.

        Examples
        --------
        >>> import tempfile
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X[:400], y[:400]), X[:400], y[:400])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = explainer.report(X[400:], folder, columns=["age", "bmi"], rows="patients", query="patient")
        ...     again = explainer.report(X[400:], folder, columns=["age", "bmi"], rows="patients", query="patient")
        >>> found.pages, found.written, again.written
        (42, 42, 0)
        """
        words = Words(title, target, unit, rows, query, {} if names is None else names)
        asked = self._ask("report", X, init_score)
        refuse(asked, interval)
        model, known = asked.model, asked.listing(beside).known
        refuse_names(words, known)
        suspected = suspect_rows(model, suspects, out_of_fold, len(asked))
        rules = Rules(among, distinct, within, asof, suspected.dropped)
        choice, allowed = model.choice(known, k, rules)
        choice = ranked(asked, choice, by, sign)
        shown_there = shown_of(known, columns, rules, map, suspected.marked, model.shape[0])
        if refits is not None:
            shown_there = replace(shown_there, refits=spread_of(refits, len(asked), 1)[0][:, 0])
        found = known.chosen([] if search is None else search, "search")
        labels = page_labels(asked.queries.rows)
        sure = ""
        if interval is None and coverage is not None:
            raise InputError(
                f"coverage is {shown(coverage)}, and there is no interval to have it. Pass interval=explainer.calibrate(...) "
                "too, or leave it out."
            )
        coverage = 0.9 if coverage is None else inputs.as_number(coverage, "coverage")
        if interval is not None:
            none = inputs.take_rows(asked.queries.rows, slice(0, 0))
            interval.interval(none, coverage)  # refuses a coverage before any work
            sure = ("" if interval.source == "held out" else "about ") + shares(coverage)
        values = model.scale.inverse(asked.queries.predictions)[:, 0]
        offsets = inputs.as_offsets(init_score, len(labels), 1, "explained")
        plan = Plan(
            words,
            choice,
            sign,
            allowed,
            shown_there,
            interval,
            coverage,
            sure,
            labels,
            values,
            offsets,
        )
        place = opened(folder, file_names(labels), plan.made_of(asked, fitted_of(model)))
        missing = place.missing()
        unlisted = _write(plan, place, asked, missing) if len(missing) else 0
        _index(place, plan, found)
        return Written(place.path / "index.html", len(labels), len(missing), unlisted)


def _write(plan: Plan, place: Folder, asked: Asked, missing: IntArray) -> int:
    """Write the pages of these queries, in threads, while the weights of the next ones are computed; how many list no row."""
    unlisted = 0
    pending: deque[Future[None]] = deque()
    pool = ThreadPoolExecutor(asked.model.n_threads)
    try:
        for batch in _cases(plan, take(asked, missing), missing):
            unlisted += int((np.diff(batch.first) == 0).sum())
            for start in range(0, len(batch), CHUNK):
                some = range(start, min(start + CHUNK, len(batch)))
                pending.append(pool.submit(_pages, place, plan, batch, some))
                while len(pending) > WAITING:
                    pending.popleft().result()
        for one in pending:
            one.result()
    finally:
        pool.shutdown(cancel_futures=True)
    return unlisted


def _cases(plan: Plan, asked: Asked, places: IntArray) -> Iterator[Cases]:
    """The content of pages on these rows, at these positions of X, batch by batch."""
    rows, first = asked.queries.rows, 0
    ranges, sides = plan.choice.ranges, plan.choice.sides
    choice, allowed = plan.choice, plan.allowed
    if ranges is not None:
        choice = replace(choice, ranges=(ranges[0][places], ranges[1][places]))
    if sides is not None:
        choice = replace(choice, sides=sides[places])
    if allowed[0].by_query is not None:
        allowed = [replace(allowed[0], by_query=allowed[0].by_query[places])]
    for about, found in compared(asked, choice, allowed, True, 24 + 3 * len(plan.shown.chosen)):
        part = slice(first, first + len(about.labels))
        some, first = places[part], part.stop
        values = plan.values[some]
        made = cases(about, found, some, values, choice.k, plan.shown)
        if plan.predictive is not None:
            offset = None if plan.offsets is None else plan.offsets[some]
            made = replace(
                made, interval=_ends(plan, inputs.take_rows(rows, part), offset, made.values)
            )
        yield made


def _ends(
    plan: Plan, rows: Any, offsets: FloatArray | None, values: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The ends of the intervals of some rows, which must be of the same predictions."""
    assert plan.predictive is not None
    found = inputs.as_frame(plan.predictive.interval(rows, plan.coverage, init_score=offsets))
    assert found is not None
    own, lower, upper = (
        np.asarray(found[name].to_numpy()) for name in ("prediction", "lower", "upper")
    )
    if not np.allclose(own, values, rtol=0, atol=SAME * np.abs(values).max(initial=1e-300)):
        raise InputError(
            "interval predicts other values than this explainer; expected what its own calibrate returned."
        )
    return lower, upper


def _pages(place: Folder, plan: Plan, known: Cases, some: range) -> None:
    for i in some:
        at = int(known.places[i])
        place.write(
            at,
            case_page.render(known, i, plan.labels[at], plan.words, plan.sure, "../../index.html"),
        )


def _index(place: Folder, plan: Plan, found: list[int]) -> None:
    values = [plan.words.amount(value) for value in plan.values.tolist()]
    columns = [
        one for one in plan.shown.known.of_queries(np.arange(len(values)), found) if one is not None
    ]
    more = (
        [", ".join(cell(value) for value in line) for line in zip(*columns)]
        if columns
        else [""] * len(values)
    )
    write_index(place.path, plan.labels, place.files, values, more, plan.words)
