"""Paged: the page of any number of predictions, for every explainer whose weights come batch by batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from axil import inputs
from axil.output import page
from axil.output.context import Context
from axil.questions.stream import Stream
from axil.types import Array


class Paged(page.Shown, ABC):
    """`to_html`, and with it `show`."""

    @abstractmethod
    def _stream(self, X: Any, init_score: Any) -> Stream:
        """The rows of X, checked, with their weights to come."""

    def to_html(
        self,
        X: Any,
        path: Any = None,
        groups: Any = None,
        k: int = 50,
        columns: Sequence[Any] | None = None,
        sigma: Any = None,
        init_score: Any = None,
        map: Any = None,
        *,
        y: Any = None,
        title: str | None = None,
        unit: str | None = None,
        target: str | None = None,
    ) -> str | None:
        """The page of `Explanation.to_html`, for any number of rows of X: never holds an (n, n_train) array.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        path : str or path, optional
            The file to write; without one the text of the page is returned.
        groups : sequence of length n_train, or str, optional
            Labels of the training rows to sum weights by, or the name of a column of X_train.
        k : int, default 50
            How many training rows to show per prediction.
        columns : sequence, optional
            Which features to show, by name or position; all by default.
        sigma : float or array of shape (K,), optional
            The noise of the targets, for standard errors.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`. axil.dask.JacobianExplainer takes none.
        map : pair of columns, optional
            Latitudes and longitudes in degrees, by name or position, for a map: ``("lat", "lon")``. Nothing is fetched for it.
        y : array of shape (n,) or (n, K), optional
            Actual values of the rows, as ``y_train`` was given: shown beside predictions, with their errors.
        title : str, optional
            The title of the page.
        unit : str, optional
            The unit of the targets, such as "$" or "kg".
        target : str, optional
            The name of the targets, such as "price".
        """
        place = page.as_target(path)
        stream = self._stream(X, init_score)
        asked = as_asked(sigma, y)
        known = None if groups is None else stream.groups(groups, "groups")
        context = Context(stream.rows, stream.features, stream.feature_names, None)
        about = page.as_about(stream.rows.shape[0], title, unit, target, y)
        given = sigma if asked is None else None
        options = page.as_options(stream.n_targets, known, k, columns, given, map, context, about)
        inputs.chosen_columns(columns, stream.names())  # refused before any work
        if asked is not None:
            size, said = self._sigma(asked, stream.n_targets[1])
            options = replace(options, sigma=size, about_sigma=said)
        return page.write(page.summarise(stream.parts(), options), place)

    def _sigma(self, asked: str, n_outputs: int) -> tuple[Array | None, str | None]:
        """The noise of the targets, None for none, and what a page has to say about it; see `as_asked`."""
        return None if asked in ("none", "cheap") else inputs.as_sizes(asked, n_outputs, "sigma"), None


def as_asked(sigma: Any, y: Any) -> str | None:
    """How a page is to come by sigma; None where it is given as a number.

    "none" for not at all, "cheap" for where that takes no time, "any" for however long it takes, or as the user names it.
    """
    if isinstance(sigma, (bool, np.bool_)):
        return "any" if sigma else "none"
    if sigma is None:
        return "cheap" if y is None else "none"  # actual errors take the place of standard errors
    return sigma if isinstance(sigma, str) else None
