"""Explanations of predictions: one table of all for files, and one for each prediction to read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from axil.aliases import Ranking
from axil.cli.screen import TextColumn, fitted_lines, plain, text_column, visible
from axil.errors import LONGEST_VALUE, shortened
from axil.explanation import Explanation

if TYPE_CHECKING:
    import pandas as pd

# Columns that the title of an answer has, once for all of its lines
TITLE_COLUMNS = ("query", "output", "prediction", "score", "probability")


@dataclass(frozen=True)
class PrintedAnswer:
    """One prediction and the training rows that are largest in it."""

    title: str
    top: pd.DataFrame  #: rows of `Explanation.top`
    features: pd.DataFrame  #: the features of these training rows
    share: float  #: of the absolute quantity of all training rows
    quantity: str  #: "weight" or "contribution"
    n_train: int
    query: int  #: the position of the explained row

    def lines(self, queries: pd.DataFrame | None) -> list[str]:
        """Return the title, a table of the rows and their features, and the share they hold."""
        query_features = None
        label = blank = ""
        if queries is not None:
            query_features = queries.iloc[[self.query]]
            label = "query"
            blank = " "
        columns = [
            text_column(name, self.top[name].to_numpy(), label if name == "row" else blank)
            for name in self.top.columns
            if name not in TITLE_COLUMNS
        ]
        columns += feature_columns(self.features, query_features)
        share = (
            f"{self.share:.0%} of the absolute {self.quantity} of all {self.n_train} training rows "
            "is in this table."
        )
        return [self.title, *fitted_lines(columns), share]


def comparables(
    explanations: Iterable[Explanation],
    training: pd.DataFrame,
    queries: pd.DataFrame | None,
    k: int,
    by: Ranking | None,
    n_printed: int,
    per_class: bool = True,
) -> tuple[pd.DataFrame, list[PrintedAnswer]]:
    """Return the k largest training rows of every prediction, and the first answers to print.

    Parameters
    ----------
    explanations : iterable of Explanation
        With positions of training rows instead of their labels.
    training, queries : pandas.DataFrame
        Their features. ``queries`` is None for means and sums of predictions.
    k, by, per_class : int, str, bool
        As in `Explanation.top`.
    n_printed : int
        How many predictions are printed.
    """
    import pandas as pd

    answers: list[PrintedAnswer] = []
    tables = []
    start = 0
    for explanation in explanations:
        n_queries = len(explanation)
        n_outputs = 1
        if explanation.outputs is not None and per_class:
            n_outputs = len(explanation.outputs)
        top, features = with_labels(explanation.top(k, by, per_class=per_class), training)
        new_answers = _answers(explanation, top, features, n_outputs, start)
        answers += new_answers[: n_printed * n_outputs - len(answers)]
        query_features = None
        if queries is not None:
            rows_per_query = len(top) // n_queries
            query_features = queries.iloc[start + np.repeat(np.arange(n_queries), rows_per_query)]
        tables.append(with_features(top, features, query_features))
        start += n_queries
    return pd.concat(tables, ignore_index=True), answers


def answer_lines(answers: Sequence[PrintedAnswer], queries: pd.DataFrame | None) -> list[str]:
    """Return the lines of answers with a blank line between two of them."""
    lines: list[str] = []
    for answer in answers:
        if lines:
            lines.append("")
        lines += answer.lines(queries)
    return lines


def _answers(
    explanation: Explanation,
    top: pd.DataFrame,
    features: pd.DataFrame,
    n_outputs: int,
    start: int,
) -> list[PrintedAnswer]:
    """Return an answer for each prediction and output of a batch."""
    # Weights of an additive model take time, so they are used only where the table has them.
    uses_weights = explanation.kind != "additive" or "weight" in top.columns
    if uses_weights:
        quantity = "weight"
    else:
        quantity = "contribution"
    if uses_weights:
        values = explanation.weights
    else:
        values = explanation.contributions
    totals = np.abs(values).sum(axis=-1).reshape(len(explanation), -1)
    # Outputs that share trees share weights.
    totals = np.broadcast_to(totals, (len(explanation), n_outputs))
    n_rows = len(top) // (len(explanation) * n_outputs)
    answers = []
    for query, output in np.ndindex(len(explanation), n_outputs):
        first_row = (query * n_outputs + output) * n_rows
        places = slice(first_row, first_row + n_rows)
        rows = top.iloc[places]
        share = 0.0
        if totals[query, output]:
            share = float(rows[quantity].abs().sum() / totals[query, output])
        answers.append(
            PrintedAnswer(
                title=_title(explanation, rows, query, output, n_outputs),
                top=rows,
                features=features.iloc[places],
                share=share,
                quantity=quantity,
                n_train=len(explanation.targets),
                query=start + query,
            )
        )
    return answers


def _title(
    explanation: Explanation, rows: pd.DataFrame, query: int, output: int, n_outputs: int
) -> str:
    """Return the line above an answer: the explained row and its prediction."""
    title = f"Query {shortened(visible(plain(explanation.query_index[query])), LONGEST_VALUE)}"
    if explanation.outputs is not None and n_outputs > 1:
        title += f", output {visible(str(explanation.outputs[output]))}"
    line = {name: rows[name].iloc[0] for name in TITLE_COLUMNS if name in rows.columns}
    facts = []
    if "prediction" in line:
        facts.append(f"predicted {_number_or_name(line['prediction'])}")
    if "score" in line:
        facts.append(f"score {line['score']:.7g}")
    if "probability" in line:
        of_class = ""
        if "output" in line:
            of_class = f" of {visible(str(line['output']))}"
        facts.append(f"probability{of_class} {line['probability']:.4g}")
    return f"{title}: {', '.join(facts)}"


def _number_or_name(value: object) -> str:
    """Return a number with seven digits, or the name of a class."""
    if isinstance(value, float):
        return f"{value:.7g}"
    return visible(str(value))


def with_labels(table: pd.DataFrame, training: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Replace positions of training rows by labels; also return the features of these rows."""
    features = training.iloc[table["row"]]
    return table.assign(row=features.index), features


def with_features(
    table: pd.DataFrame, features: pd.DataFrame, query_features: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Append a column ``name (row)`` per feature, with ``name (query)`` beside it."""
    import pandas as pd

    columns = {}
    for name in features.columns:
        columns[f"{name} (row)"] = features[name].to_numpy()
        if query_features is not None:
            columns[f"{name} (query)"] = query_features[name].to_numpy()
    return pd.concat([table, pd.DataFrame(columns, index=table.index)], axis=1)


def feature_columns(
    features: pd.DataFrame, query_features: pd.DataFrame | None = None
) -> list[TextColumn]:
    """Return a column per feature, the value of the explained row first."""
    if query_features is None:
        frames = [features]
    else:
        frames = [query_features, features]
    return [
        text_column(str(name), np.concatenate([frame[name].to_numpy() for frame in frames]))
        for name in features.columns
    ]
