"""Notebooks: a preview of an explanation, and the page in a frame with its whole text, without files or a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from axil.errors import InputError
from axil.inputs import as_count
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


HEIGHT = 600  # pixels of the frame; the page scrolls within it


@dataclass(frozen=True, repr=False)
class Page:
    """A page that notebooks show where it is the last line of a cell; nothing is printed, written or opened."""

    html: str
    height: int = HEIGHT

    def _repr_html_(self) -> str:
        allowed = (
            'sandbox="allow-scripts allow-downloads"'  # the page asks for nothing outside of itself
        )
        style = f"width:100%;height:{self.height}px;border:0"
        return (
            f'<iframe srcdoc="{escape(self.html)}" {allowed} style="{style}" title="axil"></iframe>'
        )

    def __repr__(self) -> str:
        return '<axil page: notebooks show it; elsewhere write it, to_html(X, "page.html"), and open that file>'


def shown(
    to_html: Callable[..., str | None], rows: tuple[Any, ...], height: Any, options: dict[str, Any]
) -> Page:
    """The page that ``to_html`` makes of these rows, with options of its own but a path."""
    height = as_count(height, "height")
    if "path" in options:
        raise InputError("show writes no file; leave out path, or use to_html.")
    return Page(to_html(*rows, **options) or "", height)


class Shown:
    """`show`, for whatever has `to_html`."""

    if TYPE_CHECKING:

        def to_html(self, X: Any, *args: Any, **kwargs: Any) -> str | None: ...

    def show(self, X: Any, height: int = HEIGHT, **options: Any) -> Page:
        """The page of `to_html` within a notebook, where this is the last line of a cell.

        Nothing is printed, written or opened. Outside of notebooks write the page to a file instead: ``to_html(X, path)``.

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
        >>> forest = RandomForestRegressor(20, min_samples_leaf=5, random_state=0).fit(X[:300], y[:300])
        >>> Explainer(forest, X[:300], y[:300]).show(X[300:303])
        <axil page: notebooks show it; elsewhere write it, to_html(X, "page.html"), and open that file>
        """
        return shown(self.to_html, (X,), height, options)
