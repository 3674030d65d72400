"""Plan: what the pages of a report are made of besides weights, checked before any work, and its record for the manifest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from axil import inputs
from axil.arrays import BoolArray, FloatArray
from axil.errors import InputError, UnsupportedQuestionError, meant, shown
from axil.methods.intervals.predictive import Predictive
from axil.methods.question import Asked
from axil.output import site_map
from axil.output.rules import Rules
from axil.output.shown_columns import Columns
from axil.reductions.choice import Allowed, Choice
from axil.report.content import ShownBeside
from axil.report.folder import fingerprint
from axil.report.wording import Words, commas_from, row_name

MOST_COLUMNS = 8  # that a page shows unless they are named


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that pages are made of besides the weights."""

    words: Words
    choice: Choice
    sign: str | None
    allowed: Sequence[Allowed]  #: which rows may be listed
    shown: ShownBeside
    predictive: Predictive | None
    coverage: float
    sure: str  #: the coverage in words
    labels: list[str]
    values: FloatArray  #: (n,) the model's own predictions, as people read them
    offsets: FloatArray | None  #: (n, 1) of the rows of X

    def made_of(self, asked: Asked, fitted: FloatArray) -> dict[str, Any]:
        """All that pages depend on, with the training rows' own predictions, for the manifest."""
        model, rows, place = asked.model, asked.queries.rows, self.shown.on_map
        shown, choice, n = self.shown, self.choice, len(self.labels)
        known, allowed, sparse = shown.known, self.allowed[0], inputs.is_sparse(rows)
        every = [*(() if sparse else range(known.n_features)), *shown.chosen]
        return {
            "pages": n,
            "model": fingerprint(model.targets, np.float32(fitted)),
            "training rows": fingerprint(
                model.index,
                *(
                    one
                    for one in known.of_training(np.arange(model.shape[0]), shown.chosen)
                    if one is not None
                ),
            ),
            "X": fingerprint(
                self.labels,
                *(one for one in known.of_queries(np.arange(n), every) if one is not None),
                *([rows.data, rows.indices, rows.indptr] if sparse else []),
                *([] if self.offsets is None else [self.offsets]),
            ),
            "rows that may be listed": fingerprint(
                *(
                    one
                    for one in (allowed.among, allowed.by_query, allowed.codes, allowed.values)
                    if one is not None
                ),
                *(choice.ranges or ()),
            ),
            "map": None
            if place is None
            else fingerprint(place.training, place.queries, place.unit),
            "dates": None if shown.dates is None else fingerprint(shown.dates[1]),
            "suspects": None if shown.suspects is None else fingerprint(shown.suspects),
            "refits": None if shown.refits is None else fingerprint(shown.refits),
            "interval": None
            if self.predictive is None
            else f"{self.predictive!r} at {self.coverage:g}",
            "k": choice.k,
            "sign": self.sign,
            "by": "leaves" if choice.by_leaves else "weights",
            "columns": shown.names,
            "words": {
                name: getattr(self.words, name)
                for name in ("title", "target", "unit", "rows", "query")
            },
            "names": dict(self.words.names),
        }


def shown_of(
    known: Columns,
    columns: Any,
    rules: Rules,
    map: Any,
    suspects: BoolArray | None,
    n_train: int,
) -> ShownBeside:
    """Things that pages show beside the numbers of the model, checked."""
    first = [*range(known.n_features, len(known.names)), *range(known.n_features)][:MOST_COLUMNS]
    chosen = first if columns is None else known.chosen(columns)
    plain = [commas_from(own) for own in known.of_training(np.arange(n_train), chosen)]
    dates = None
    if rules.within is not None or rules.asof is not None:
        points = rules.points(known)[0]
        if rules.asof is not None or points.dtype.kind == "M":
            dates = rules.column(known)[0], points
    return ShownBeside(
        known,
        chosen,
        plain,
        n_train,
        rules.are_any,
        dates,
        site_map.as_places(map, known),
        suspects,
    )


def refuse_names(words: Words, known: Columns) -> None:
    """Refuse names of columns that are not there."""
    for name in words.names:
        if name not in known.names:
            raise InputError(
                f"names has {shown(name)}, which is no column; expected such as {shown(known.names[0])}."
                f"{meant(name, known.names)}{known.hint}"
            )


def page_labels(X: Any) -> list[str]:
    """The labels of the rows as text, no two of which may be the same."""
    labels = [
        row_name(own) if not isinstance(own, str) else own
        for own in inputs.as_list(inputs.row_labels(X))
    ]
    if len(set(labels)) < len(labels):
        twice = Counter(labels).most_common(1)[0][0]
        raise InputError(
            f"X has several rows labelled {shown(twice)}, which would have one page; expected labels of their own. Give X "
            "another index, or X.reset_index(drop=True)."
        )
    return labels


def refuse(asked: Asked, interval: Any) -> None:
    """Refuse what a report cannot be made of, by name."""
    model = asked.model
    if model.outputs is not None:
        raise UnsupportedQuestionError(
            "report",
            f"this model has {model.shape[1]} outputs, and a page is about one value",
            "Explain a model of one output, or write one page of all with to_html.",
        )
    if not len(asked):
        raise InputError("X has no rows, so there is nothing to report on.")
    if interval is not None and not isinstance(interval, Predictive):
        raise InputError(
            f"interval is {shown(interval)}; expected what explainer.calibrate(...) returned."
        )
