"""Questions: what a proven model can be asked about its training data beyond weights.

All answers are exact with the fitted structure held fixed, except removal, which is a first-order effect and says so. None
of them is a retraining: a refit may choose other splits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from axil import inputs
from axil.errors import InputError, shown
from axil.questions import noise, removal
from axil.questions.explain import batches
from axil.questions.streamed import measured
from axil.questions.targets import blame, changed_rows, corrections, on_scale, reach, what_if
from axil.replay.proven import ProvenModel
from axil.types import Array


class Questions:
    """The questions, as methods of `Explainer`."""

    def __init__(self, proven: ProvenModel):
        self._proven = proven

    @property
    def proven(self) -> ProvenModel:
        """The model and its training data as they were proven: what every answer comes from."""
        return self._proven

    def removal(self, X: Any) -> Array:
        """(n, n_train), or (K, n, n_train): the first-order change of each prediction on deleting each training row.

        ``-w_j dF(x) / dw_j``; positive: without the row the prediction would be higher. Structure, draws and all other weights
        are held fixed. As costly as the weights; 8 * K * n * n_train bytes.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        """
        proven = self.proven
        return removal.dense(proven, proven.queries(X), removal.removals, prepared=True)

    def pushes(self, X: Any) -> Array:
        """(n, n_train), or (K, n, n_train): what each training row puts into the steps that the trees take to each prediction.

        ``sum_t rate_t w_j r_tj / (W + l2)`` over the trees t where the row is in x's leaf, with r_tj the residual that the tree
        saw of it. Positive: the row raised the prediction. With the base they add up to it, exactly, as contributions do; but a
        row's push is not of its target alone: other rows have their part in r_tj, which the weights follow and pushes do
        not. For a forest: weights times targets. Costs less than the weights; 8 * K * n * n_train bytes.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        """
        proven = self.proven
        return removal.dense(proven, proven.queries(X), removal.pushes)

    def removal_set(self, X: Any, m: int, greedy: bool = False, by: str = "effect") -> Any:
        """Up to m training rows whose removal moves each prediction furthest, all in one direction.

        A frame with the columns query, rank, row, effect, and output if there are several. The direction is the one in which the
        m largest first-order effects add up to more; rows that have none are left out. ``greedy``: after each row the fit
        without it is computed again, structure held fixed, so that the next is the best one then and effects are exact; some
        three passes over the trees for each row of the set and query. ``by="pushes"``: by what the rows put into the steps of
        the trees instead (`pushes`; the column is push), which predicts better what a refit without them does
        (docs/paper/faithfulness.md).
        Streamed: never holds an (n, n_train) array.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        m : int
            The largest number of rows in a set.
        greedy : bool, default False
            Choose each row with those before it removed; effects are then exact.
        by : "effect" or "pushes"
            What rows are chosen by.
        """
        m = inputs.as_count(m, "m")
        inputs.as_choice(by, ("effect", "pushes"), "by")
        if inputs.as_flag(greedy, "greedy") and by == "pushes":
            raise InputError(
                'greedy=True computes effects again after each row, and by="pushes" has none: leave one of them out.'
            )
        proven = self.proven
        return removal.removal_set(proven, proven.queries(X), m, greedy, by)

    def what_if(self, targets: Mapping[Any, Any], X: Any, init_score: Any = None) -> Any:
        """The predictions of X if some training rows, by label, had other targets (of a classifier: other classes).

        Exact with the structure held fixed: ``change = sum_j k_j (new_j - old_j)`` over the rows named. A frame with the columns
        query, before, after, change, and output if there are several. Cost of one replay, O(T N), whatever the number of rows.

        With L1, clipped steps or monotone constraints a pattern is held fixed as well (``verification.held``). Where the new
        targets would change it, an ApproximationWarning says in how many leaves.

        Of a model fitted to transformed targets, before, after and change are in prices. New targets are given as ``y_train``
        was: in prices where the model takes the logarithms itself, in logarithms where you took them (``inverse_func``).

        Parameters
        ----------
        targets : mapping of row label to target
            The new targets, given as ``y_train`` was.
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, added to what the model itself predicts; for XGBoost their base_margin, which takes the
            place of base_score, as in its own ``predict``.
        """
        proven = self.proven
        moved = changed_rows(proven, targets)
        return what_if(proven, proven.queries(X, init_score), moved)

    def reach(self, rows: Sequence[Any], X: Any, init_score: Any = None) -> Array:
        """How much each prediction of X moves per unit of each of these training targets: whom does a row move?

        Columns of K: ``explainer(X).weights[..., rows]``, without the other weights. Exact with the structure held fixed.

        Parameters
        ----------
        rows : sequence of labels
            The training rows, by label as in `what_if`.
        X : table
            The n rows to explain.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`.

        Returns
        -------
        array of shape (n, rows), or (K, n, rows) where outputs have trees of their own
            One replay of the fit for each row named, O(T (N + n)), 32 of them together.
        """
        proven = self.proven
        try:
            labels = None if isinstance(rows, (str, bytes)) else list(rows)
        except Exception:  # whatever an object that is no sequence raises
            labels = None
        if labels is None:
            raise InputError(f"rows is {shown(rows)}; expected a list of labels of training rows.")
        chosen = inputs.positions(labels, proven.index, "rows")
        return reach(proven, proven.queries(X, init_score), chosen)

    def blame(self, X_val: Any, y_val: Any, correction: Any = "leave-one-out", init_score: Any = None) -> Any:
        """Which training targets raise the error on validation rows, and what correcting each would gain.

        A frame with the columns row, target, gradient, corrected, gain, and output if there are several, largest gain first.
        ``gradient``: of the mean squared validation error in the row's target, ``(2 / n) K'(prediction - y_val)``, in one sweep;
        predictions are weights times targets, in float64.
        ``corrected``: what else the target might be: with "leave-one-out" what all other rows say, ``(F_j - K_jj y_j) /
        (1 - K_jj)``, nan where K_jj is within 1e-6 of one; or your own out-of-fold predictions as an array (n_train,) or
        (n_train, K). ``gain``: by how much the mean squared validation error would fall if this one target were corrected,
        exactly ``-(d gradient_j + d^2 / n sum_i K_ij^2)`` with d the correction; the squares are streamed.
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
            Offsets of the rows of X, added to what the model itself predicts; for XGBoost their base_margin, which takes the
            place of base_score, as in its own ``predict``.
        """
        proven = self.proven
        queries = proven.queries(X_val, init_score)
        if not len(queries):
            raise InputError("X_val has no rows; expected validation rows with their targets.")
        classes = proven.adapter.classes
        y = inputs.as_targets(y_val, len(queries), proven.targets.shape[1], classes, "y_val", "validation")
        return blame(proven, queries, on_scale(proven, y, "y_val"), corrections(proven, correction))

    def leverage(self) -> Array:
        """(n_train,), or (K, n_train) where outputs have trees of their own: K[j, j], each row's weight in its own prediction.

        In leaf space, O(T^2 N + L^3) and 16 L^2 bytes, or in batches of rows, O(T N^2); never an (n_train, n_train) array. Made
        once for an explainer; where that takes more than 30 seconds a `CostWarning` says how long before the work begins.
        """
        found = noise.leverages(self.proven).T.copy()
        return found[0] if len(found) == 1 else found

    def degrees_of_freedom(self, estimate: bool = False) -> Any:
        """trace K, how many free parameters the fit is worth: a number, or (K,) where outputs have trees of their own.

        Exact, from `leverage`. ``estimate``: from 32 vectors of random signs, O(T N), as a pair of value and standard_error.

        Parameters
        ----------
        estimate : bool, default False
            Estimate the trace from random vectors.
        """
        estimate, proven = inputs.as_flag(estimate, "estimate"), self.proven
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
