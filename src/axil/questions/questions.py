"""Questions: what a proven model can be asked about its training data beyond weights.

All answers are exact with the fitted structure held fixed; where exact deletions do not fit, removal takes first-order effects
and says so. None of them is a retraining: a refit may choose other splits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from axil import inputs
from axil.questions import budget as budgets
from axil.questions import leverage, noise, valuation
from axil.questions.audit import LabelQuestions
from axil.questions.explain import batches
from axil.questions.stream import measured
from axil.questions.targets import blame, changed_rows, corrections, on_scale, reach, validation, what_if
from axil.types import Array


class Questions(LabelQuestions):
    """The questions, as methods of `Explainer`."""

    @inputs.table_first("targets")
    def what_if(self, X: Any, targets: Mapping[Any, Any], init_score: Any = None) -> Any:
        """The predictions of X if some training rows, by label, had other targets (of a classifier: other classes).

        Exact with the structure held fixed: ``change = sum_j k_j (new_j - old_j)`` over the rows named. A frame with the columns
        query, before, after, change, and output if there are several. Cost of one replay, O(T N), whatever the number of rows.

        With L1, clipped steps or monotone constraints a pattern is held fixed as well (``verification.held``). Where the new
        targets would change it, an ApproximationWarning says in how many leaves.

        Of a model fitted to transformed targets, before, after and change are in prices. New targets are given as ``y_train``
        was: in prices where the model takes the logarithms itself, in logarithms where you took them (``inverse_func``).

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        targets : mapping of row label to target
            The new targets, given as ``y_train`` was. Of a label that several training rows share, all of them get the target.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`.
        """
        proven = self.proven
        moved = changed_rows(proven, targets)
        return what_if(proven, proven.queries(X, init_score), moved)

    @inputs.table_first("rows")
    def reach(self, X: Any, rows: Sequence[Any], init_score: Any = None) -> Array:
        """How much each prediction of X moves per unit of each of these training targets: whom does a row move?

        Columns of K: ``explainer(X).weights[..., rows]``, without the other weights. Exact with the structure held fixed.

        Parameters
        ----------
        X : table
            The n rows to explain.
        rows : sequence of labels, or of n_train truth values
            The training rows, by label as in `what_if`, or marked with True. A label that several rows share has a column for
            each.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`.

        Returns
        -------
        array of shape (n, rows), or (K, n, rows) where outputs have trees of their own
            One replay of the fit for each row named, O(T (N + n)), 32 of them together.
        """
        proven = self.proven
        chosen = inputs.named_rows(rows, proven.index)
        return reach(proven, proven.queries(X, init_score), chosen)

    def blame(self, X_val: Any, y_val: Any, correction: Any = "leave-one-out", init_score: Any = None) -> Any:
        """Which training targets raise the error on validation rows, and what correcting each would gain.

        A frame with the columns row, target, gradient, corrected, gain, and output if there are several, largest gain first.
        ``gradient``: of the mean squared validation error in the row's target, ``(2 / n) K'(prediction - y_val)``, in one sweep;
        predictions are weights times targets, in float64.
        ``corrected``: what else the target might be: with "leave-one-out" the prediction without the row, structure held fixed
        (`leave_one_out`; nan where there is none); or your own out-of-fold predictions as an array (n_train,) or (n_train, K).
        Some models have ``(F_j - K_jj y_j) / (1 - K_jj)`` instead: those that `leave_one_out` refuses, takes more than 30 seconds
        for, or has no prediction from for most rows, such as forests of full depth. This is the target at which the row's own
        prediction would agree with it, of forests the mean of the others by weight. For boosted trees an `ApproximationWarning`
        says so.
        ``gain``: by how much the mean squared validation error would fall if this one target were corrected, exactly
        ``-(d gradient_j + d^2 / n sum_i K_ij^2)`` with d the correction; the squares are streamed.
        ``correction=None``: gradients alone, the largest first. Several outputs have a mean squared error each.

        Of a model fitted to transformed targets the error is on the scale of the fit, such as the squared error of logarithms,
        and so are "gradient (log)" and "gain (log)"; target and corrected are in prices. ``y_val`` and ``correction`` are given
        as ``y_train`` was.

        Parameters
        ----------
        X_val : table
            The n validation rows.
        y_val : array of shape (n,) or (n, K)
            Their targets, or classes, given as ``y_train`` was.
        correction : "leave-one-out", None or array of shape (n_train,) or (n_train, K)
            What the training targets might be instead.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the validation rows, as in `Explainer.explain`.
        """
        proven = self.proven
        queries, y = validation(proven, X_val, y_val, init_score)
        return blame(proven, queries, y, None if correction is None else corrections(proven, correction))

    def shapley(
        self, X_val: Any, y_val: Any, baseline: Any = "mean", groups: Any = None, init_score: Any = None
    ) -> Any:
        """The exact Shapley value of every training target for the error on validation rows.

        A coalition of training rows knows its targets, all others have a baseline, and its worth is minus the mean squared
        error on the validation rows, structure held fixed. ``value`` is a row's mean contribution over all orders in which rows
        may join; the values sum to the fall of the error from no target known to all. Positive: knowing this target lowers the
        error. In closed form, ``d_j [K'(e + r)]_j / n``, by one sweep, O(T (N + n)), for all rows.

        A frame with the columns row, target, baseline, value, and output if there are several, largest value first. With
        ``groups`` the columns group, rows, value: a group's value as one player is the sum of its rows' values. Several outputs
        have a mean squared error each. Of a model fitted to transformed targets the error, and so "value (log)", is on the scale
        of the fit; target and baseline are in prices. ``y_val`` and ``baseline`` are given as ``y_train`` was.

        Parameters
        ----------
        X_val : table
            The n validation rows.
        y_val : array of shape (n,) or (n, K)
            Their targets, or classes, given as ``y_train`` was.
        baseline : "mean", "others" or array of shape (n_train,) or (n_train, K)
            The targets of rows that are not known: the mean of all, what the others say (`leave_one_out`; a row of which they
            say nothing keeps its target and has the value nan), or numbers of your own.
        groups : sequence of length n_train, or str, optional
            A label for each training row: a year, a region, a source; or the name of a column of X_train.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the validation rows, as in `Explainer.explain`.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> model = LGBMRegressor(n_estimators=20, verbose=-1).fit(X[:300], y[:300])
        >>> values = Explainer(model, X[:300], y[:300]).shapley(X[300:], y[300:])
        >>> error = ((y[300:] - model.predict(X[300:])) ** 2).mean()
        >>> none_known = ((y[300:] - y[:300].mean()) ** 2).mean()
        >>> bool(abs(values["value"].sum() - (none_known - error)) < 1e-6 * error)
        True
        """
        proven = self.proven
        queries, y = validation(proven, X_val, y_val, init_score)
        codes = None if groups is None else proven.groups(groups, "groups")
        return valuation.shapley(proven, queries, y, valuation.baselines(proven, baseline), codes)

    def budget(
        self, X: Any, line: Any, ranges: Any, groups: Any = None, listed: bool = False, init_score: Any = None
    ) -> Any:
        """The fewest training targets, each moved within its range, that bring each prediction of X to a line or across it.

        Exact with the structure held fixed: predictions are linear in the targets, so sorting rows by the most that each can add
        towards the line, ``|k_j| * range_j``, is best. A frame with the columns query, prediction, fewest (nan: all targets
        together do not suffice), furthest (the prediction with every target moved as far as it helps), and output if there are
        several. Where ``fewest`` is m, no m - 1 wrong or forged targets within these ranges can have put the prediction on this
        side of the line. Streamed: never holds an (n, n_train) array.

        With L1, clipped steps or monotone constraints the pattern is held fixed as well (``verification.held``). Of a model
        fitted to transformed targets predictions are in prices, and "change (log)" is on the scale of the fit; line and ranges
        are given as ``y_train`` was.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        line : float
            The number that predictions are to reach.
        ranges : float, array of shape (n_train,) or (n_train, K), or a tuple of two of these
            How far each target may move either way; a tuple: the lowest and the highest value of each target.
        groups : sequence of length n_train, or str, optional
            Labels of the training rows, or the name of a column of X_train: the fewest groups whose targets all move.
        listed : bool, default False
            List these rows, or groups, instead: query, rank, row, change, and prediction with all down to this one moved.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> found = explainer.budget(X.head(2), line=150.0, ranges=20.0)
        >>> list(found.columns)
        ['query', 'prediction', 'fewest', 'furthest']
        """
        proven = self.proven
        lines = np.full((1, proven.targets.shape[1]), inputs.as_number(line, "line"))
        within = budgets.Ranges.of(ranges, proven)
        codes = None if groups is None else proven.groups(groups, "groups")
        listed = inputs.as_flag(listed, "listed")
        queries = proven.queries(X, init_score)
        return budgets.budget(proven, queries, on_scale(proven, lines, "line")[0], within, codes, listed)

    def leverage(self, method: str | None = None) -> Any:
        """(n_train,), or (K, n_train) where outputs have trees of their own: K[j, j], each row's weight in its own prediction.

        In leaf space, O(T^2 N + L^3) and 16 L^2 bytes, or in batches of rows, O(T N^2); never an (n_train, n_train) array. Made
        once for an explainer; where that takes more than 30 seconds a `CostWarning` says how long before the work begins, and
        what takes far longer is refused. ``method="estimate"`` has no such limits: O(T N) for each of 32 vectors of
        random signs, always the same ones.

        Parameters
        ----------
        method : "exact", "estimate" or None
            None: exact. "estimate": a pair of value and standard_error, each as above, without bias.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> value, error = explainer.leverage(method="estimate")
        >>> bool((abs(value - explainer.leverage()) < 5 * error).mean() > 0.99)
        True
        """
        if not leverage.is_estimated(method):
            return _by_output(noise.leverages(self.proven))
        return noise.Estimate(*map(_by_output, leverage.estimated(self.proven)))

    def degrees_of_freedom(self, estimate: bool = False, method: str | None = None) -> Any:
        """trace K, how many free parameters the fit is worth: a number, or (K,) where outputs have trees of their own.

        Exact, from `leverage`; or from 32 vectors of random signs, O(T N), as a pair of value and standard_error.

        Parameters
        ----------
        estimate : bool, default False
            The same as ``method="estimate"``.
        method : "exact", "estimate" or None
            None: exact. "estimate": a pair of value and standard_error, from random vectors.
        """
        estimate = leverage.is_estimated(method, inputs.as_flag(estimate, "estimate"))
        proven = self.proven
        found = noise.estimated_trace(proven) if estimate else noise.Estimate(noise.leverages(proven).sum(axis=0), None)
        value, error = (float(part[0]) if part is not None and len(part) == 1 else part for part in found)
        return noise.Estimate(value, error) if estimate else value

    def standard_error(self, X: Any, sigma: Any = None) -> Array:
        """(n,) or (n, K), as predictions: ``sigma * sqrt(sum_j k_j^2)``, the noise of the targets as a prediction passes it on.

        For targets with independent noise of one size sigma and the structure held fixed: neither a bias of the model nor what
        other targets would do to its splits is in it. ``sigma``: a number, or one for each output; otherwise
        ``sigma^2 = RSS / trace((I - K)'(I - K))``, kept once it is known. Where that takes more than some 10 seconds the trace is
        estimated from random vectors, and an `ApproximationWarning` says how well; ``sigma="exact"`` waits for it, and
        ``sigma="estimate"`` always estimates, without a warning. Streamed: never holds an (n, n_train) array. On the scale of the
        fit: of a model fitted to logarithms, 0.02 is about 2 % of the price.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        sigma : float, (K,), "exact", "estimate" or None
            The noise of the targets, for standard errors; see `Explainer.standard_error`.
        """
        proven = self.proven
        queries = proven.queries(X)
        noise_size = noise.sigma_of(proven, sigma)
        size = proven.budget.batch_size(proven.dense_bytes())
        parts = batches(proven, queries, size, proven.is_sparse, even_empty=True)
        errors = measured(parts, lambda one: one.norms).T * noise_size
        return np.asarray(errors[:, 0] if proven.outputs is None else errors)


def _by_output(found: Array) -> Array:
    """Numbers of training rows, (N, K), as (K, N), or as (N,) where there is one of each."""
    own = found.T.copy()
    return own[0] if len(own) == 1 else own
