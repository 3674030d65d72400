"""Leaves that were fitted again, written into scikit-learn's models; linear models and neighbours are fitted anew."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from axil.adapters.searches import kinds_of
from axil.adapters.sklearn.adapter import ADAPTERS
from axil.adapters.sklearn.side_by_side import classifiers_of
from axil.adapters.sklearn.solvers import chosen, has_chosen_for_each_output
from axil.arrays import FloatArray
from axil.errors import UnsupportedQuestionError
from axil.structure.leaves import LeafFit, NodeFit

INSTEAD = "Ask explainer.without(X, rows) or what_if(X, targets), which need no model of the library's own."


def write(model: Any, fits: list[LeafFit]) -> Any:
    """A model of the same class with these leaves; the model itself is not touched."""
    (fit,) = fits  # all outputs share trees
    if classifiers_of(model) is not None:
        raise UnsupportedQuestionError("refit", "models of several others are not written", INSTEAD)
    written = copy.deepcopy(model)
    if hasattr(model, "_predictors"):
        _put_histograms(written, fit)
    elif hasattr(model, "init_"):
        written.n_iter_no_change = (
            None  # rows that early stopping held out are not among the new ones
        )
        learning_rate = float(model.learning_rate)
        for t, tree in enumerate(written.estimators_.ravel()):
            factor = float(fit.rates[t]) / learning_rate if learning_rate else 1.0
            _put(tree.tree_, fit, t, factor)
        if fit.estimated and fit.means is None:
            written.init_.constant_ = np.asarray(fit.base, dtype=np.float64).reshape(
                written.init_.constant_.shape
            )
        elif fit.estimated and fit.means is not None:
            prior = fit.means if len(fit.means) > 1 else np.append(1 - fit.means, fit.means)
            written.init_.class_prior_ = prior
    else:
        members = getattr(written, "estimators_", [written])
        labels = getattr(model, "classes_", ())
        if any(len(getattr(member, "classes_", ())) != len(labels) for member in members):
            raise UnsupportedQuestionError(
                "refit", "some of its trees were fitted on bags without some class", INSTEAD
            )
        for t, member in enumerate(members):
            _put(
                member.tree_,
                fit,
                t,
                sizes=[len(own) for own in labels] if isinstance(labels, list) else None,
            )
        if hasattr(written, "_n_samples"):
            if (
                getattr(written, "_max_samples", None) == written._n_samples
            ):  # each tree of the bag sees all rows
                written._max_samples = fit.n_rows
            written._n_samples = fit.n_rows
        if hasattr(written, "_sample_weight"):  # from 1.9 on, also where no rows were drawn by them
            written._sample_weight = fit.row_weights
    return written


def _put(
    tree: Any, fit: LeafFit, t: int, factor: float = 1.0, sizes: list[int] | None = None
) -> None:
    """Other values for one tree, in its own memory; the impurities of its nodes stay as they were.

    ``sizes``: the numbers of classes of several labels, which a tree keeps in rows as long as the longest.
    """
    children = np.stack([tree.children_left, tree.children_right], axis=1)
    nodes = fit.nodes(t, children, np.flatnonzero(tree.children_left == -1))
    if sizes is None:
        tree.value[...] = factor * nodes.values.reshape(tree.value.shape)
    else:
        for label, own in enumerate(np.split(nodes.values, np.cumsum(sizes)[:-1], axis=1)):
            tree.value[:, label, : sizes[label]] = factor * own
    state = tree.__getstate__()
    state["nodes"]["n_node_samples"] = nodes.counts
    state["nodes"]["weighted_n_node_samples"] = nodes.positive(nodes.weights)
    tree.__setstate__(state)


def _put_histograms(model: Any, fit: LeafFit) -> None:
    """Other values for histogram boosting, whose rows that early stopping held out are not among the new ones."""
    model.early_stopping, model.do_early_stopping_ = False, False
    for t, predictor in enumerate(
        predictor for iteration in model._predictors for predictor in iteration
    ):
        table = predictor.nodes
        below = np.stack([table["left"], table["right"]], axis=1).astype(np.int64)
        ends = table["is_leaf"] != 0
        nodes: NodeFit = fit.nodes(t, np.where(ends[:, None], -1, below), np.flatnonzero(ends))
        own = table["value"].copy()
        own[:] = nodes.values[:, 0]
        own[ends] *= fit.rates[t]
        table["value"], table["count"] = own, nodes.counts
    if fit.estimated:
        model._baseline_prediction = np.asarray(fit.base).reshape(
            np.shape(model._baseline_prediction)
        )


def again(model: Any, X: Any, y: Any, sample_weight: Any) -> Any:
    """A smoother of the same class and the same settings, also those that its fit chose, fitted to other data."""
    from sklearn.base import clone
    from sklearn.utils.validation import has_fit_parameter

    if sample_weight is not None and not has_fit_parameter(model, "sample_weight"):
        raise UnsupportedQuestionError(
            "refit", f"{type(model).__name__} takes no sample_weight", "Leave it out."
        )
    if hasattr(model, "lambda_") or has_chosen_for_each_output(model):
        return _with_penalties(model, X, y, sample_weight)
    made = clone(model).set_params(**chosen(model))
    return made.fit(X, y) if sample_weight is None else made.fit(X, y, sample_weight=sample_weight)


def _with_penalties(model: Any, X: Any, y: Any, sample_weight: Any) -> Any:
    """Return a linear model with coefficients of other data and the penalties that its own fit estimated.

    No setting of the model holds them: BayesianRidge and ARDRegression estimate them in every fit, and RidgeCV chooses one for
    each output.
    """
    written = copy.deepcopy(model)
    adapter: Any = ADAPTERS[next(kind for kind in kinds_of(model) if kind in ADAPTERS)](written)
    fitted = adapter.smoother(X, sample_weight)
    targets = np.asarray(y, dtype=np.float64).reshape(X.shape[0], -1)
    if isinstance(fitted, list):
        solved = np.stack([own.solution @ column for own, column in zip(fitted, targets.T)], axis=1)
    else:
        solved = fitted.solution @ targets
    written.intercept_ = solved[0].reshape(np.shape(model.intercept_))[()]
    written.coef_ = solved[1:].T.reshape(np.shape(model.coef_))
    if hasattr(model, "sigma_"):
        written.X_offset_, written.sigma_ = _posterior(model, fitted.training[:, 1:], sample_weight)
    return written


def _posterior(
    model: Any, X: FloatArray, sample_weight: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Return the means of the columns and the covariance of the coefficients that are not left out."""
    w = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    centre = w @ X / w.sum() if model.fit_intercept else np.zeros(X.shape[1])
    precisions = np.broadcast_to(model.lambda_, X.shape[1])
    used = precisions < getattr(model, "threshold_lambda", np.inf)
    centred = (X - centre)[:, used]
    moments = centred.T @ (centred * w[:, None])
    return centre, np.linalg.inv(np.diag(precisions[used]) + model.alpha_ * moments)
