"""Diagnostics of the fit: leave-one-out errors, leverage, degrees of freedom, standard errors."""

from __future__ import annotations

from typing import Any

import numpy as np

from axil import inputs
from axil.aliases import ArrayLike, DataFrame, LabelsLike, LeaveOneOut, LeverageMethod, TableLike
from axil.arrays import AnyArray, FloatArray
from axil.attribution import Kind
from axil.contributions.additive_model import AdditiveModel
from axil.errors import UnsupportedQuestionError
from axil.explanation import Explanation
from axil.methods import leave_one_out as left_out
from axil.methods import leverage, noise, sampled_rows
from axil.methods.concentration import measured
from axil.methods.folds import BY_FOLDS, fold_predictions, number_of_folds
from axil.methods.kinds import additive_model, exact_model
from axil.methods.method import Method, output_columns
from axil.output import tables
from axil.output.tables import Predicted
from axil.replay.exact_model import ExactModel
from axil.replay.verified_model import VerifiedModel


class Diagnostics(Method):
    """Tables and numbers about the fit, from its weights; ``explainer.diagnostics`` makes it."""

    def leave_one_out(self, *, method: LeaveOneOut | None = None) -> DataFrame:
        """Return the prediction of every training row by the refit without that row.

        The table has the columns row, target, those of the prediction as in `Explainer.top`,
        residual, alone, method, and output if there are several, in the order of the training rows.
        The residual is the target less the prediction, for classes less the probability (or the
        score, where there is none). It is exact with the tree structure fixed. Where ``alone`` is
        true, no other row of any weight is in one of the row's leaves, or no row is left at all.
        Nothing but the row's own target then says what its prediction would be, so prediction and
        residual are missing.

        The row did help to choose the splits, so these residuals are smaller than those of refits
        without it. In the leaf matrix the cost is O(T^2) per training row, in blocks of rows: some
        seconds for a million rows and 100 trees (docs/production.md). If the leaf matrix does not
        fit into memory, axil replays the fit once per row. The answer is computed once per
        explainer; a `CostWarning` says where that takes more than 30 seconds. For a model that was
        fitted to transformed targets, all columns are in the targets' own units. Trees, forests and
        bagged trees with balanced classes are refused, because every row has a part in the weights
        of all others.

        For boosted classifiers and other additive models the fit is replayed once per fold of the
        rows, 5 to 20 times, and ``method="exact"`` replays it once per row: O(T N^2) in all. The
        residual of counts and amounts is the target less the expected value. With folds ``alone``
        is true where no row of any weight is left outside the fold.

        Parameters
        ----------
        method : "exact", "folds" or None
            Fits without each row, or without one fold of the rows each, as in `find_label_issues`.
            None is exact, for additive models folds. The column method says which.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> table = explainer.diagnostics.leave_one_out()
        >>> change = explainer.without(X.loc[[7]], [7])
        >>> bool(abs(table["prediction"][7] - change["after"][0]) < 1e-9)
        True
        """
        model = self._answering(left_out.METHOD)
        if method is not None:
            method = inputs.as_choice(method, left_out.METHODS, "method")
        if model.kind is Kind.ADDITIVE:
            return _of_scores(additive_model(model), method or "folds")
        return self._of_weights(exact_model(model), method or "exact")

    def _of_weights(self, model: ExactModel, method: str) -> DataFrame:
        """Return the table of `leave_one_out` for a model with exact weights."""
        targets, index = model.training.gathered()
        if model.seen is not None:
            targets = model.seen
        if method == "exact":
            predictions = left_out.predictions(model)
            note = model.deletions.note()
        else:
            predictions = fold_predictions(model)
            note = BY_FOLDS.format(number_of_folds(model))
        return _left_out_table(model, index, targets, predictions, method, note)

    def leave_one_out_curve(self) -> DataFrame:
        """Return the mean squared leave-one-out error after every number of trees.

        The table has the columns trees (from 0, the initial prediction alone, to all of them),
        error, training_error, and output if there are several. ``error`` is that of `leave_one_out`
        for the model of the first trees. ``training_error`` is that of the same rows in the fit
        with all of them. Both are weighted by the sample weights of the fit and leave out rows that
        have no prediction without themselves. They are exact with the tree structure fixed and come
        from the same pass as `leave_one_out`.

        The splits followed the targets of all rows, so the error is too small, and it goes on
        falling where that of refits rises: it is no rule for when to stop (measured in
        docs/evidence_deletions.md). For a model that was fitted to transformed targets, errors are
        on the scale of the fit: "error (log)". Forests, DART and model shrinkage are refused,
        because their first trees are no model by themselves.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> curve = explainer.diagnostics.leave_one_out_curve()
        >>> len(curve), bool((curve["error"] > curve["training_error"]).all())
        (21, True)
        """
        model = exact_model(self._answering("diagnostics.leave_one_out_curve"))
        curves = left_out.curves(model)
        if curves is None:
            raise UnsupportedQuestionError(
                "diagnostics.leave_one_out_curve",
                "the trees of this model are not fitted one after the other to the residuals of "
                "those before (a forest, DART, model shrinkage, no trees at all, or percentiles), "
                "so its first trees are no model by themselves",
                "diagnostics.leave_one_out works for it; refit with fewer trees to compare.",
            )
        if not any(curve.rows for curve in curves):
            raise UnsupportedQuestionError(
                "diagnostics.leave_one_out_curve",
                "every training row is alone in one of its leaves, so none has a prediction "
                "without itself",
                "Fit with larger leaves.",
            )
        columns = output_columns("trees", curves[0].trees, model.names.outputs)
        for name, attribute in (("error", "left_out"), ("training_error", "fitted")):
            errors = np.concatenate([getattr(curve, attribute) for curve in curves], axis=1)
            columns[model.scale.label(name)] = errors.ravel()
        return tables.note(tables.make(columns, model.backend), model.note(model.deletions.note()))

    def in_bag(self) -> FloatArray:
        """Return how often each tree saw each training row, (n_train, n_trees).

        The numbers are those of the replayed fit: drawn again by axil, or as you passed them. Rows
        that the fit held out, such as those of early stopping, have 0. `Explainer` takes the array
        as ``in_bag``. Its columns are those of `axil.leaves`.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.ensemble import RandomForestRegressor
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> forest = RandomForestRegressor(20, random_state=0).fit(X, y)
        >>> counts = Explainer(forest, X, y).diagnostics.in_bag()
        >>> counts.shape, counts.sum(axis=0)[:3].tolist()  # as many draws as rows
        ((442, 20), [442.0, 442.0, 442.0])
        """
        return sampled_rows.sample_counts(self._answering(sampled_rows.IN_BAG))

    def out_of_bag(self, rows: LabelsLike | None = None) -> Explanation:
        """Return the predictions of training rows by the trees of a forest fitted without them.

        The weights of each row are those of the other rows in these trees, so its own is 0. The
        predictions are the forest's out-of-bag predictions, such as ``oob_prediction_``. They have
        not seen the row, so their errors are those to expect of new rows.

        Parameters
        ----------
        rows : sequence of labels, or of n_train truth values, optional
            The training rows; by default all rows that some tree did not see, in their order.
            The weights take 8 * rows * n_train bytes for each output that has weights of its own.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.ensemble import RandomForestRegressor
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> forest = RandomForestRegressor(50, oob_score=True, random_state=0).fit(X, y)
        >>> unseen = Explainer(forest, X, y).diagnostics.out_of_bag([3, 7])
        >>> bool(abs(unseen.predictions - forest.oob_prediction_[[3, 7]]).max() < 1e-9)
        True
        """
        model = exact_model(self._answering(sampled_rows.OUT_OF_BAG))
        return Explanation(sampled_rows.out_of_bag_sums(model, rows))

    def leverage(self, method: LeverageMethod | None = None) -> DataFrame:
        """Return the weight of each training row in its own prediction, K[j, j].

        The array is (n_train,), or (n_train, K) where outputs have trees of their own. In the leaf
        matrix the cost is O(T^2 N + L^3) and 16 L^2 bytes; in batches of rows it is O(T N^2). No
        (n_train, n_train) array is held. The answer is computed once per explainer. If that takes
        more than 30 seconds, a `CostWarning` says how long before the work begins, and what takes
        far longer is refused. ``method="estimate"`` has no such limits: O(T N) for each of 32
        vectors of random signs, which are always the same ones.

        Parameters
        ----------
        method : "exact", "estimate" or None
            None is exact. "estimate" returns a pair of value and standard_error, each an array as
            above, without bias.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> value, error = explainer.diagnostics.leverage(method="estimate")
        >>> exact = explainer.diagnostics.leverage()
        >>> bool((abs(value - exact) < 5 * error).mean() > 0.99)
        True
        """
        model = exact_model(self._answering("diagnostics.leverage"))
        if not leverage.is_estimated(method):
            return _without_single_output(noise.leverages(model))
        estimate = leverage.estimated(model)
        return noise.Estimate(*map(_without_single_output, estimate))

    def degrees_of_freedom(self, method: LeverageMethod | None = None) -> Any:
        """Return the trace of K, the number of free parameters that the fit is worth.

        It is a number, or (K,) where outputs have trees of their own. It is exact, from `leverage`,
        or a pair of value and standard_error from 32 vectors of random signs, O(T N).

        Parameters
        ----------
        method : "exact", "estimate" or None
            None is exact. "estimate" returns a pair of value and standard_error, from random
            vectors.
        """
        model = exact_model(self._answering("diagnostics.degrees_of_freedom"))
        if not leverage.is_estimated(method):
            return _number(noise.leverages(model).sum(axis=0))
        value, error = noise.estimated_trace(model)
        return noise.Estimate(_number(value), _number(error))

    def standard_error(self, X: TableLike, sigma: ArrayLike | None = None) -> FloatArray:
        """Return the standard error of each prediction, ``sigma * sqrt(sum_j k_j^2)``.

        The array has the shape of predictions, (n,) or (n, K). It measures how much noise of the
        targets a prediction passes on, for independent noise of one size sigma and with the tree
        structure fixed. Neither a bias of the model is in it, nor what other targets would do to
        its splits. No (n, n_train) array is held. It is on the scale of the fit: for a model fitted
        to logarithms, 0.02 is about 2 % of the price.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        sigma : float, (K,), "exact", "estimate" or None
            The standard deviation of the noise: a number, or one for each output. By default
            ``sigma^2 = RSS / trace((I - K)'(I - K))``, which is computed once. If that takes more
            than some 10 seconds, axil estimates the trace from random vectors, and an
            `ApproximationWarning` says how well. "exact" waits for it, and "estimate" always
            estimates, without a warning.
        """
        request = self._explained_rows("diagnostics.standard_error", X)
        sigma = noise.sigma_of(exact_model(request.model), sigma)
        norms = measured(request, lambda sums: sums.norms)
        if norms.ndim == 1 and request.model.names.outputs is not None:
            norms = norms[:, None]
        return np.asarray(norms * sigma)


def _of_scores(model: AdditiveModel, method: str) -> DataFrame:
    """Return the table of `Diagnostics.leave_one_out` for an additive model.

    The contributions of an additive model add up to its scores.
    """
    scores = left_out.scores_of(model, method)
    if method == "exact":
        note = model.deletions.replay_note
    else:
        note = BY_FOLDS.format(number_of_folds(model))
    return _left_out_table(model, model.index, model.targets, scores, method, note)


def _left_out_table(
    model: VerifiedModel,
    index: AnyArray,
    targets: FloatArray,
    scores: FloatArray,
    method: str,
    note: str,
) -> DataFrame:
    """Return the table of leave-one-out predictions of all training rows.

    Parameters
    ----------
    model : VerifiedModel
    index : ndarray of shape (N,)
        The labels of the rows.
    targets : ndarray of shape (N, K)
        In the user's units.
    scores : ndarray of shape (N, K)
        Predictions on the scale of the fit, or raw scores; nan for a row that has no prediction
        without itself.
    method, note : str
        The fits that made the predictions, by name and in words.
    """
    meanings = model.meant(scores)
    expected = next(iter(meanings.values()), model.scale.inverse(scores))
    predicted = Predicted(
        index,
        model.names.of_tables,
        model.scale,
        meanings,
        weighted=False,
        classes=model.names.class_names,
        has_link=model.has_link_of(model.source),
    )
    columns = output_columns("row", index, model.names.of_tables)
    columns["target"] = targets.ravel()
    columns |= predicted.prediction_columns(scores)
    columns["residual"] = (targets - expected).ravel()
    columns["alone"] = np.isnan(scores).ravel()
    columns["method"] = np.full(scores.size, method)
    note = model.note(left_out.note_on(columns["alone"], note))
    return tables.note(tables.make(columns, model.backend), note)


def _without_single_output(values: FloatArray) -> FloatArray:
    """Return numbers of training rows (N, K), or (N,) if there is one output."""
    if values.shape[1] == 1:
        return values[:, 0].copy()
    return values.copy()


def _number(values: FloatArray) -> FloatArray | float:
    """Return the only number of an array, or the array."""
    if len(values) == 1:
        return float(values[0])
    return values
