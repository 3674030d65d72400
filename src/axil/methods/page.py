"""to_html and show: one self-contained page of any number of predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from axil.aliases import ArrayLike, LabelsLike, PathLike, TableLike
from axil.arrays import FloatArray
from axil.attribution import Location
from axil.errors import InputError, shown
from axil.methods import noise
from axil.methods.intervals.predictive import Predictive, is_of
from axil.methods.method import Method
from axil.output import page


class Pages(Method, page.Shown):
    """Provide `Explainer.to_html`."""

    def to_html(
        self,
        X: TableLike,
        path: PathLike | None = None,
        *,
        groups: LabelsLike | None = None,
        k: int = 10,
        columns: Sequence[Any] | None = None,
        hide: Sequence[Any] = (),
        min_group_size: int = 1,
        sigma: ArrayLike | None = None,
        init_score: ArrayLike | None = None,
        map: Any = None,
        y: ArrayLike | None = None,
        title: str | None = None,
        unit: str | None = None,
        target: str | None = None,
        interval: Predictive | None = None,
        stability: Any = None,
    ) -> str | None:
        """Return a self-contained page about the predictions, or write it to a path.

        You choose a prediction on it, and see the k rows that made most of it. X may have any
        number of rows, because no (n, n_train) array is in memory.

        The page never computes a slow number that you did not ask for. It has standard errors if
        sigma is known, if they take at most two seconds, or with ``sigma=True``. They say little
        about real errors. With ``y`` real errors replace them, and with ``interval`` prediction
        intervals do.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        path : str or path, optional
            The file to write; without one the text of the page is returned.
        groups : sequence of length n_train, or str, optional
            Labels of the training rows to sum weights by, or the name of a column of X_train.
        k : int, default 10
            How many training rows to show per prediction.
        columns : sequence, optional
            Which features to show, by name or position; all by default.
        hide : sequence, optional
            Features that the page does not show, by name or position.
        min_group_size : int, default 1
            ``groups`` of fewer training rows are put together in one.
        sigma : float, (K,), "exact", "estimate", bool or None
            The noise of the targets, for standard errors; see
            `Explainer.diagnostics.standard_error`. True: however long it takes. False: no standard
            errors.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`.
        map : pair of columns, optional
            Latitudes and longitudes in degrees, by name or position, for a map: ``("lat", "lon")``.
            With "miles" as a third, distances are in miles. Nothing is fetched for it.
        y : array of shape (n,) or (n, K), optional
            Actual values of the rows, as ``y_train`` was given: shown beside predictions, with
            their errors.
        title : str, optional
            The title of the page.
        unit : str, optional
            The unit of the targets, such as "$" or "kg".
        target : str, optional
            The name of the targets, such as "price".
        interval : Predictive, optional
            What `calibrate` of this explainer returned: the page then shows 90 % prediction
            intervals; for another level see `Predictive.to_html`.
        stability : Stability, optional
            What `axil.stability` returned for the rows of X: the page then says how far retraining
            alone moves each prediction.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.ensemble import RandomForestRegressor
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> forest = RandomForestRegressor(20, random_state=0).fit(X[:300], y[:300])
        >>> explainer = Explainer(forest, X[:300], y[:300])
        >>> page = explainer.to_html(X[300:], y=y[300:], title="Diabetes", target="progression")
        >>> page.startswith("<!DOCTYPE html>")
        True
        """
        place = page.as_target(path)
        options = {
            "k": k,
            "columns": columns,
            "hide": hide,
            "min_group_size": min_group_size,
            "map": map,
            "y": y,
            "title": title,
            "unit": unit,
            "target": target,
        }
        options["stability"] = stability
        if interval is not None:
            if not is_of(interval, self._model):
                raise InputError(
                    f"interval is {shown(interval)}; expected what calibrate of this explainer "
                    "returned."
                )
            if sigma is not None and sigma is not False:
                raise InputError(
                    "interval takes the place of standard errors. Leave out sigma, or interval."
                )
            return interval.to_html(X, path, groups=groups, init_score=init_score, **options)
        explained = self._explained_rows("to_html", X, init_score)
        sigma_rule = as_asked(sigma, y)
        if sigma_rule is None:
            page_options = explained.page_options(groups, sigma, options)
        else:
            page_options = explained.page_options(groups, None, options)
            sigma_values, sentence = _sigma(explained.model, sigma_rule)
            page_options = replace(page_options, sigma=sigma_values, about_sigma=sentence)
        return page.write(page.summarise(explained.parts(), page_options), place)


def _sigma(model: Any, sigma_rule: str) -> tuple[FloatArray | None, str | None]:
    """Return the noise of the targets or None, and the sentence of a page about it."""
    if sigma_rule == "none":
        return None, None
    if sigma_rule == "cheap":
        # Over partitions it would take passes over all rows.
        is_elsewhere = model.location is Location.PARTITIONS
        if is_elsewhere or model.capabilities.is_refused("diagnostics.standard_error"):
            return None, None
    model.capabilities.require("diagnostics.standard_error")
    model = model.for_method("diagnostics.standard_error")
    if sigma_rule not in ("cheap", "any"):
        return noise.sigma_of(model, sigma_rule), None
    return noise.for_page(model, sigma_rule == "any")


def as_asked(sigma: Any, y: Any) -> str | None:
    """Return the rule by which a page computes sigma; None if sigma is a number.

    The rules are "none", "cheap" if it takes no time, "any" however long it takes, and the names of
    `sigma_of`.
    """
    if isinstance(sigma, (bool, np.bool_)):
        if sigma:
            return "any"
        return "none"
    if sigma is None:
        # actual errors take the place of standard errors
        if y is None:
            return "cheap"
        return "none"
    if isinstance(sigma, str):
        return sigma
    return None
