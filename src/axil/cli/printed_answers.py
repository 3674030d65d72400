"""Answers about predictions: one table of all, for files, and one for each prediction, for reading."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from axil.cli import screen
from axil.errors import LONGEST_VALUE, shortened
from axil.explanation import Explanation

# What scores stand for: columns, and words of a title
LINKED = {"probability": "probability", "mean": "expected value"}
# Columns whose signs are shown
SIGNED = ("weight", "contribution", "gradient", "gain", "change", "residual", "studentised")


def is_signed(name: str) -> bool:
    """Whether the signs of a column are shown, also of one that names a scale, such as "contribution (log)"."""
    return name.startswith(SIGNED)


@dataclass(frozen=True)
class PrintedAnswer:
    """One prediction and the training rows that are largest in it."""

    title: str
    top: Any  #: the columns of `Explanation.top`
    rows: Any  #: the features of these training rows
    share: float  #: of sum |weight|, or of pushes, that these rows hold
    quantity: str  #: which of them
    n_train: int
    query: int  #: the position of the query

    def lines(self, queries: Any) -> list[str]:
        """A title, the table with features as far as there is room, the query's own above them, and the share."""
        names = [
            name
            for name in self.top.columns
            if name not in ("query", "output", "prediction", *LINKED)
        ]
        above = ("", "") if queries is None else ("query", " ")
        columns = [
            screen.column(name, self.top[name].to_numpy(), is_signed(name), above[name != "row"])
            for name in names
        ]
        own = None if queries is None else queries.iloc[[self.query]]
        columns += features(self.rows, own)
        held = f"{self.share:.0%} of the absolute {self.quantity} of all {self.n_train} training rows is in this table."
        return [self.title, *screen.fitted(columns), held]


def comparables(
    explanations: Iterable[Explanation],
    training: Any,
    queries: Any,
    k: int,
    by: str,
    n_shown: int,
    per_class: bool = True,
) -> tuple[Any, list[PrintedAnswer]]:
    """The k largest training rows of every prediction with their features beside the query's, and the first answers to show.

    The columns are those of `Explanation.top`, then ``name (row)`` and ``name (query)`` for each feature; without ``queries``,
    of means of them, ``name (row)`` alone. ``explanations`` have the positions of training rows for their labels.
    """
    import pandas as pd

    answers: list[PrintedAnswer] = []
    parts, start = [], 0
    for part in explanations:
        top, own = labelled(part.top(k, by, per_class=per_class), training)
        outputs = 1 if part.outputs is None or not per_class else len(part.outputs)
        lines = len(top) // (len(part) * outputs)
        answers += _answers(part, top, own, lines, outputs, start)[
            : n_shown * outputs - len(answers)
        ]
        each = np.repeat(np.arange(start, start + len(part)), lines * outputs)
        asked = None if queries is None else queries.iloc[each]
        parts.append(with_features(top, own, asked))
        start += len(part)
    return pd.concat(parts, ignore_index=True), answers


def on_screen(shown: list[PrintedAnswer], queries: Any) -> list[str]:
    """The lines of answers, with a blank one between two of them."""
    found = [line for answer in shown for line in ("", *answer.lines(queries))]
    return found[1:]


def _answers(
    part: Explanation, top: Any, rows: Any, lines: int, outputs: int, start: int
) -> list[PrintedAnswer]:
    """An answer for each prediction and output of a batch."""
    pushed = (
        part.kind == "additive" and "weight" not in top.columns
    )  # whose weights nobody asked for
    quantity = "contribution" if pushed else "weight"
    sizes = np.abs(part.contributions if pushed else part.weights).sum(axis=-1)
    # Outputs that share trees share weights
    sizes = np.broadcast_to(sizes.reshape(len(part), -1), (len(part), outputs))
    found = []
    for query in range(len(part)):
        for output in range(outputs):
            at = slice((query * outputs + output) * lines, (query * outputs + output + 1) * lines)
            own = top.iloc[at]
            name = (
                ""
                if part.outputs is None or outputs == 1
                else f", output {screen.visible(str(part.outputs[output]))}"
            )
            share = (
                own[quantity].abs().sum() / sizes[query, output] if sizes[query, output] else 0.0
            )
            label = shortened(screen.visible(screen.plain(part.query_index[query])), LONGEST_VALUE)
            stands = LINKED.get(part.meaning)
            value = own["prediction"].iloc[0]
            said = f"{value:.7g}" if isinstance(value, float) else screen.visible(str(value))
            title = f"Query {label}{name}: {'score' if stands else 'predicted'} {said}"
            if not isinstance(value, float):  # a class
                title += f", probability {own['probability'].iloc[0]:.4g}"
            if part.probabilities is not None:
                title += f", {stands} {np.reshape(part.probabilities, (len(part), outputs))[query, output]:.4g}"
            held = float(share), quantity, len(part.targets)
            found.append(PrintedAnswer(title, own, rows.iloc[at], *held, start + query))
    return found


def labelled(table: Any, training: Any) -> tuple[Any, Any]:
    """A table that has positions of training rows with their labels instead, and the features of these rows."""
    rows = training.iloc[table["row"]]
    return table.assign(row=rows.index), rows


def with_features(table: Any, rows: Any, asked: Any = None) -> Any:
    """The table with ``name (row)`` for each feature, and ``name (query)`` beside it where queries are asked about."""
    import pandas as pd

    beside: dict[str, Any] = {}
    for name in rows.columns:
        beside[f"{name} (row)"] = rows[name].to_numpy()
        if asked is not None:
            beside[f"{name} (query)"] = asked[name].to_numpy()
    return pd.concat([table, pd.DataFrame(beside, index=table.index)], axis=1)


def features(rows: Any, query: Any = None) -> list[screen.TextColumn]:
    """A column for each feature, the query's own value first."""
    above = [] if query is None else [query]
    return [
        screen.column(str(name), np.concatenate([part[name].to_numpy() for part in (*above, rows)]))
        for name in rows.columns
    ]
