"""The page within a notebook: a frame that holds the whole text, so that no file is written and no server asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from axil.errors import InputError
from axil.inputs import as_count

HEIGHT = 600  # pixels of the frame; the page scrolls within it


@dataclass(frozen=True, repr=False)
class Page:
    """A page that notebooks show where it is the last line of a cell; nothing is printed, written or opened."""

    html: str
    height: int = HEIGHT

    def _repr_html_(self) -> str:
        allowed = 'sandbox="allow-scripts allow-downloads"'  # the page asks for nothing outside of itself
        style = f"width:100%;height:{self.height}px;border:0"
        return f'<iframe srcdoc="{escape(self.html)}" {allowed} style="{style}" title="axil"></iframe>'

    def __repr__(self) -> str:
        return '<axil page: notebooks show it; elsewhere write it, to_html(X, "page.html"), and open that file>'


def shown(to_html: Callable[..., str | None], rows: tuple[Any, ...], height: Any, options: dict[str, Any]) -> Page:
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
