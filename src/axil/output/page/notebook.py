"""Display of an explanation in a notebook: the first predictions and their largest weights."""

from __future__ import annotations

from axil.markup import table
from axil.output.page.values import labels
from axil.output.sums import WeightedSums

FIRST = 5  # predictions, and rows of each


def preview(source: WeightedSums, title: str) -> str:
    """A small table under a title: query, output, prediction, the rows of largest |weight| and their weights; all escaped."""
    outputs: list[str | None] = [None] if source.outputs is None else [*labels(source.outputs)]
    shown = source[:FIRST]
    largest = shown.largest(FIRST)
    predictions = shown.shown_predictions.reshape(len(shown), len(outputs))
    lines = []
    for i, query in enumerate(labels(shown.query_index)):
        for k, (output, one) in enumerate(zip(outputs, largest)):
            kept = one.values[i] != 0
            rows = zip(labels(source.index[one.rows[i][kept]]), one.values[i][kept])
            cells = [query, *([] if output is None else [output]), float(predictions[i, k])]
            lines.append([*cells, ", ".join(f"{row} ({weight:+.4g})" for row, weight in rows)])
    header = ["query", *([] if source.outputs is None else ["output"]), "prediction", "largest weights: row (weight)"]
    left = len(source) - len(shown)
    more = f" The first {len(shown)} of them:" if left else ""
    return table(title + more, lines, header)
