"""Display of an explanation in a notebook: the first predictions and their largest weights, pushes or derivatives."""

from __future__ import annotations

from axil.markup import table
from axil.output.page.values import labels
from axil.output.predictions import WeightedSums

FIRST = 5  # predictions, and rows of each
WORDS = {"exact": "weight", "additive": "contribution", "derivative": "derivative"}


def preview(source: WeightedSums, title: str) -> str:
    """A small table under a title: query, output, prediction, the rows of largest |weight| and their weights; all escaped."""
    outputs: list[str | None] = [None] if source.outputs is None else [*labels(source.outputs)]
    shown = source[:FIRST]
    largest = shown.largest(FIRST)
    predictions = shown.shown_predictions.reshape(len(shown), len(outputs))
    account = shown.account
    means = None if account is None else account.means
    named = ["score" if source.additive else "prediction"]
    named += [account.meaning] if account is not None and means is not None else []
    lines = []
    for i, query in enumerate(labels(shown.query_index)):
        for k, (output, one) in enumerate(zip(outputs, largest)):
            kept = one.values[i] != 0
            rows = zip(labels(source.index[one.rows[i][kept]]), one.values[i][kept])
            cells = [query, *([] if output is None else [output]), float(predictions[i, k])]
            cells += [] if means is None else [float(means[i, k])]
            lines.append([*cells, ", ".join(f"{row} ({weight:+.4g})" for row, weight in rows)])
    word = WORDS[source.kind]
    asked = ["query", *([] if source.outputs is None else ["output"])]
    header = [*asked, *named, f"largest {word}s: row ({word})"]
    left = len(source) - len(shown)
    more = f" The first {len(shown)} of them:" if left else ""
    return table(title + more, lines, header)
