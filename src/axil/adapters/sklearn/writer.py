"""Refitted leaves, written into scikit-learn's models; smoothers are fitted anew."""

from __future__ import annotations

import copy

import numpy as np

from axil.adapters.searches import kinds_of
from axil.adapters.sklearn.adapter import ADAPTERS
from axil.adapters.sklearn.side_by_side import classifiers_of
from axil.adapters.sklearn.solvers import chosen, has_chosen_for_each_output
from axil.aliases import FeatureTable, ForeignModel, ForeignObject
from axil.arrays import FloatArray
from axil.errors import UnsupportedQuestionError
from axil.structure.leaves import LeafFit, NodeFit

INSTEAD = (
    "Ask explainer.without(X, rows) or what_if(X, targets), "
    "which need no model of the library's own."
)


def write(model: ForeignModel, fits: list[LeafFit]) -> ForeignModel:
    """Return a model of the same class with these leaves; the model itself is not touched."""
    (fit,) = fits  # all outputs share trees
    if classifiers_of(model) is not None:
        raise UnsupportedQuestionError("refit", "models of several others are not written", INSTEAD)
    written = copy.deepcopy(model)
    if hasattr(model, "_predictors"):
        _put_histograms(written, fit)
    elif hasattr(model, "init_"):
        _put_stages(written, fit)
    else:
        _put_forest(written, fit)
    return written


def _put_stages(model: ForeignModel, fit: LeafFit) -> None:
    """Write the leaves and the initial prediction of gradient boosting.

    Rows that early stopping held out are not among the new ones.
    """
    model.n_iter_no_change = None
    learning_rate = float(model.learning_rate)
    for t, tree in enumerate(model.estimators_.ravel()):
        if learning_rate:
            factor = float(fit.rates[t]) / learning_rate
        else:
            factor = 1.0
        _put(tree.tree_, fit, t, factor)
    if not fit.estimated:
        return
    if fit.means is None:
        base = np.asarray(fit.base, dtype=np.float64)
        model.init_.constant_ = base.reshape(model.init_.constant_.shape)
    elif len(fit.means) > 1:
        model.init_.class_prior_ = fit.means
    else:
        model.init_.class_prior_ = np.append(1 - fit.means, fit.means)


def _put_forest(model: ForeignModel, fit: LeafFit) -> None:
    """Write the leaves of a tree, a forest or bagged trees."""
    members = getattr(model, "estimators_", [model])
    labels = getattr(model, "classes_", ())
    if any(len(getattr(member, "classes_", ())) != len(labels) for member in members):
        raise UnsupportedQuestionError(
            "refit", "some of its trees were fitted on samples without some class", INSTEAD
        )
    if isinstance(labels, list):
        sizes = [len(names) for names in labels]
    else:
        sizes = None
    for t, member in enumerate(members):
        _put(member.tree_, fit, t, sizes=sizes)
    if hasattr(model, "_n_samples"):
        # Where each sample was as large as the data, it stays so.
        if getattr(model, "_max_samples", None) == model._n_samples:
            model._max_samples = fit.n_rows
        model._n_samples = fit.n_rows
    if hasattr(model, "_sample_weight"):  # from 1.9 on, also where no rows were sampled by them
        model._sample_weight = fit.row_weights


def _put(
    tree: ForeignModel, fit: LeafFit, t: int, factor: float = 1.0, sizes: list[int] | None = None
) -> None:
    """Write other values into a tree in its own memory; the impurities of its nodes stay.

    Parameters
    ----------
    tree : sklearn.tree._tree.Tree
        The tree.
    fit : LeafFit
        The refitted leaves.
    t : int
        The number of the tree.
    factor : float
        What multiplies the values.
    sizes : list of int, optional
        The numbers of classes of several labels. A tree keeps these in rows as long as the longest.
    """
    children = np.stack([tree.children_left, tree.children_right], axis=1)
    nodes = fit.nodes(t, children, np.flatnonzero(tree.children_left == -1))
    if sizes is None:
        tree.value[...] = factor * nodes.values.reshape(tree.value.shape)
    else:
        by_label = np.split(nodes.values, np.cumsum(sizes)[:-1], axis=1)
        for label, values in enumerate(by_label):
            tree.value[:, label, : sizes[label]] = factor * values
    state = tree.__getstate__()
    state["nodes"]["n_node_samples"] = nodes.counts
    state["nodes"]["weighted_n_node_samples"] = nodes.positive(nodes.weights)
    tree.__setstate__(state)


def _put_histograms(model: ForeignModel, fit: LeafFit) -> None:
    """Write the leaves and the initial prediction of histogram boosting.

    Rows that early stopping held out are not among the new ones.
    """
    model.early_stopping = False
    model.do_early_stopping_ = False
    predictors = [predictor for iteration in model._predictors for predictor in iteration]
    for t, predictor in enumerate(predictors):
        table = predictor.nodes
        below = np.stack([table["left"], table["right"]], axis=1).astype(np.int64)
        is_leaf = table["is_leaf"] != 0
        children = np.where(is_leaf[:, None], -1, below)
        nodes: NodeFit = fit.nodes(t, children, np.flatnonzero(is_leaf))
        values = table["value"].copy()
        values[:] = nodes.values[:, 0]
        values[is_leaf] *= fit.rates[t]
        table["value"] = values
        table["count"] = nodes.counts
    if fit.estimated:
        shape = np.shape(model._baseline_prediction)
        model._baseline_prediction = np.asarray(fit.base).reshape(shape)


def again(
    model: ForeignModel, X: FeatureTable, y: ForeignObject, sample_weight: ForeignObject
) -> ForeignModel:
    """Return a smoother of the same class, fitted to other data.

    It has the same settings, and those that the fit of ``model`` chose stay fixed.
    """
    from sklearn.base import clone
    from sklearn.utils.validation import has_fit_parameter

    if sample_weight is not None and not has_fit_parameter(model, "sample_weight"):
        raise UnsupportedQuestionError(
            "refit", f"{type(model).__name__} takes no sample_weight", "Leave it out."
        )
    if hasattr(model, "lambda_") or has_chosen_for_each_output(model):
        return _with_penalties(model, X, y, sample_weight)
    unfitted = clone(model).set_params(**chosen(model))
    if sample_weight is None:
        return unfitted.fit(X, y)
    return unfitted.fit(X, y, sample_weight=sample_weight)


def _with_penalties(
    model: ForeignModel, X: FeatureTable, y: ForeignObject, sample_weight: ForeignObject
) -> ForeignModel:
    """Return a linear model of other data with the penalties that its own fit estimated.

    No setting of the model holds them: BayesianRidge and ARDRegression estimate them in every fit,
    and RidgeCV chooses one for each output.
    """
    written = copy.deepcopy(model)
    kind = next(kind for kind in kinds_of(model) if kind in ADAPTERS)
    adapter: ForeignObject = ADAPTERS[kind](written)
    fitted = adapter.smoother(X, sample_weight)
    targets = np.asarray(y, dtype=np.float64).reshape(X.shape[0], -1)
    if isinstance(fitted, list):
        outputs = zip(fitted, targets.T)
        solved = np.stack([smoother.solution @ target for smoother, target in outputs], axis=1)
    else:
        solved = fitted.solution @ targets
    written.intercept_ = solved[0].reshape(np.shape(model.intercept_))[()]
    written.coef_ = solved[1:].T.reshape(np.shape(model.coef_))
    if hasattr(model, "sigma_"):
        features = fitted.training[:, 1:]
        written.X_offset_, written.sigma_ = _posterior(model, features, sample_weight)
    return written


def _posterior(
    model: ForeignModel, X: FloatArray, sample_weight: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Return the means of the columns and the covariance of the coefficients in use."""
    if sample_weight is None:
        w = np.ones(len(X))
    else:
        w = np.asarray(sample_weight, dtype=np.float64)
    if model.fit_intercept:
        centre = w @ X / w.sum()
    else:
        centre = np.zeros(X.shape[1])
    precisions = np.broadcast_to(model.lambda_, X.shape[1])
    used = precisions < getattr(model, "threshold_lambda", np.inf)
    centred = (X - centre)[:, used]
    moments = centred.T @ (centred * w[:, None])
    return centre, np.linalg.inv(np.diag(precisions[used]) + model.alpha_ * moments)
