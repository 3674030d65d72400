"""Turn a summary into one HTML page, write it, or show it in a notebook.

The summary is compressed JSON in base64, so no text of the data ever stands in the markup. The
page's script shows it as text only.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import axil.templates
from axil.aliases import FeatureTable
from axil.errors import InputError
from axil.inputs import as_count, as_file
from axil.machine.atomic import atomic
from axil.output.page.values import labels
from axil.output.predictions import WeightedSums

N_PREVIEWED = 5  # predictions of a preview, and training rows of each
QUANTITIES = {"exact": "weight", "additive": "contribution", "derivative": "derivative"}  # by kind
HEIGHT = 600  # pixels of the frame; the page scrolls within it


def render(summary: dict[str, Any]) -> str:
    """Return the page of a summary as text."""
    return axil.templates.render("explanation/page.html", data=pack(summary))


def pack(summary: dict[str, Any]) -> str:
    """Return the summary as base64 of compressed JSON.

    A browser reads it with ``DecompressionStream("deflate")``.
    """
    text = json.dumps(summary, separators=(",", ":"), allow_nan=False)
    return b64encode(zlib.compress(text.encode())).decode()


def as_target(path: Any) -> Path | None:
    """Check that a page can be written to this path, and return it; None stays None."""
    if path is None:
        return None
    return as_file(path)


def write(summary: dict[str, Any], path: Path | None) -> str | None:
    """Write the page of a summary to a path, or return its text if there is no path."""
    return saved(render(summary), path)


def saved(text: str, path: Path | None) -> str | None:
    """Write a page to a path, or return its text if there is no path."""
    if path is None:
        return text
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return None


def preview(source: WeightedSums, title: str) -> str:
    """Return a small HTML table of the first predictions.

    A line has the label of the row, its output, its prediction, and the training rows of largest
    weight, each with its weight.
    """
    first = source[:N_PREVIEWED]
    if len(source) > len(first):
        title += f" The first {len(first)} of them:"
    quantity = QUANTITIES[source.kind]
    header = ["query"]
    if source.outputs is not None:
        header.append("output")
    header.append("score" if source.additive else "prediction")
    if first.account is not None and first.account.means is not None:
        header.append(first.account.meaning)
    header.append(f"largest {quantity}s: row ({quantity})")
    rows = _preview_rows(first)
    return axil.templates.render("table.html", caption=title, header=header, rows=rows)


def _preview_rows(sums: WeightedSums) -> list[list[object]]:
    """Return the lines of a preview, one per prediction and output."""
    largest_by_output = sums.largest(N_PREVIEWED)
    predictions = sums.shown_predictions.reshape(len(sums), len(largest_by_output))
    if sums.outputs is None:
        outputs = None
    else:
        outputs = labels(sums.outputs)
    if sums.account is None:
        means = None
    else:
        means = sums.account.means
    lines: list[list[object]] = []
    for i, query in enumerate(labels(sums.query_index)):
        for k, largest in enumerate(largest_by_output):
            line: list[object] = [query]
            if outputs is not None:
                line.append(outputs[k])
            line.append(float(predictions[i, k]))
            if means is not None:
                line.append(float(means[i, k]))
            has_weight = largest.values[i] != 0
            rows = labels(sums.index[largest.rows[i][has_weight]])
            weights = largest.values[i][has_weight]
            line.append(", ".join(f"{row} ({weight:+.4g})" for row, weight in zip(rows, weights)))
            lines.append(line)
    return lines


@dataclass(frozen=True, repr=False)
class Page:
    """A page that a notebook shows where it is the last line of a cell."""

    html: str
    height: int = HEIGHT

    def _repr_html_(self) -> str:
        return axil.templates.render("notebook.html", page=self.html, height=self.height)

    def __repr__(self) -> str:
        return (
            '<axil page: notebooks show it; elsewhere write it, to_html(X, "page.html"), and open '
            "that file>"
        )


def shown(
    to_html: Callable[..., str | None], rows: tuple[Any, ...], height: Any, options: dict[str, Any]
) -> Page:
    """Return the page that ``to_html(*rows, **options)`` makes, for a notebook."""
    height = as_count(height, "height")
    if "path" in options:
        raise InputError("show writes no file; leave out path, or use to_html.")
    return Page(to_html(*rows, **options) or "", height)


class Shown:
    """The method `show` of classes that have `to_html`."""

    if TYPE_CHECKING:

        def to_html(self, X: FeatureTable, *args: Any, **kwargs: Any) -> str | None: ...

    def show(self, X: FeatureTable, height: int = HEIGHT, **options: Any) -> Page:
        """Show the page of `to_html` within a notebook, where this is the last line of a cell.

        Nothing is printed, written or opened. Outside of notebooks write the page to a file
        instead: ``to_html(X, path)``.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        height : int, default 600
            Pixels on the screen; the page scrolls within them.
        **options : keyword arguments
            As in `to_html`, such as ``groups`` and ``columns``.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.ensemble import RandomForestRegressor
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> forest = RandomForestRegressor(20, min_samples_leaf=5, random_state=0)
        >>> explainer = Explainer(forest.fit(X[:300], y[:300]), X[:300], y[:300])
        >>> explainer.show(X[300:303])  # doctest: +NORMALIZE_WHITESPACE
        <axil page: notebooks show it; elsewhere write it, to_html(X, "page.html"), and open
        that file>
        """
        return shown(self.to_html, (X,), height, options)
