"""Questions about rows: what deleting training rows would do, and what each row is without itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from axil import inputs
from axil.errors import InputError
from axil.questions import left_out, removal
from axil.replay.proven import ProvenModel
from axil.types import Array


class RowQuestions:
    """The questions about training rows, as methods of `Explainer`."""

    def __init__(self, proven: ProvenModel):
        self._proven = proven

    @property
    def proven(self) -> ProvenModel:
        """The model and its training data as they were proven: what every answer comes from."""
        return self._proven

    def removal(self, X: Any, method: str | None = None) -> Array:
        """(n, n_train), or (K, n, n_train): the change of each prediction on deleting each training row by itself.

        Exact with the structure held fixed: splits, draws, dropped trees, all other weights, and the pattern of L1. Positive:
        without the row the prediction would be higher. A leaf of boosted trees that no row is left in adds nothing. Where trees
        are averaged (forests, bagging, voting), the mean is over the trees that still have rows in the leaf. nan, with a warning,
        where no tree has any, or where without the row no weight is left at all. In leaf space, O(T^2) per training row once and
        O(T) per row and prediction; 8 * K * n * n_train bytes.

        ``method="first-order"``: ``-w_j dF(x) / dw_j``, as costly as the weights; it does not see a leaf become empty. That is
        also the answer, with an `ApproximationWarning`, where leaf space does not fit into memory and replays without each row,
        O(T N) each, would take more than some 10 seconds; ``method="exact"`` waits for them.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        method : "exact", "first-order" or None
            How effects are computed; by default exactly wherever that fits.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> effects = explainer.removal(X.head(2))
        >>> effects.shape
        (2, 442)
        >>> change = explainer.without(X.head(2), [7])["change"]
        >>> bool(abs(effects[:, 7] - change).max() < 1e-9)
        True
        """
        proven = self.proven
        queries = proven.queries(X)
        way = removal.way_of(proven, _method(method), removal.array_bytes(proven, queries))
        return removal.dense(proven, queries, way)

    @inputs.table_first("rows")
    def without(self, X: Any, rows: Sequence[Any], init_score: Any = None) -> Any:
        """The predictions of X if these training rows, by label, were deleted, all of them at once.

        Exact with the structure held fixed, as `removal` is for single rows: the effects of single rows do not add up to that of
        a set. A frame with the columns query, before, after, change, and output if there are several. Cost of two replays, O(T
        N), whatever the number of rows. A leaf of boosted trees that no row is left in adds nothing; a mean of trees or models is
        over those that still have rows, and nan, with a warning, where none has. Of a model fitted to transformed targets,
        before, after and change are in prices.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        rows : sequence of labels, or of n_train truth values
            The training rows to delete, by label as in `what_if`, or marked with True, such as ``branch == "North"``. Of a
            label that several rows share, such as a customer's, all of them are deleted.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> list(explainer.without(X.head(1), [0, 7, 30]).columns)
        ['query', 'before', 'after', 'change']
        """
        proven = self.proven
        return removal.without(proven, proven.queries(X, init_score), inputs.named_rows(rows, proven.index))

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
        return removal.dense(proven, proven.queries(X), removal.PUSHES)

    def removal_set(self, X: Any, m: int, greedy: bool = False, by: str = "effect", method: str | None = None) -> Any:
        """Up to m training rows whose removal moves each prediction furthest, all in one direction.

        A frame with the columns query, rank, row, effect, and output if there are several. Effects are those of `removal`, exact
        for each row by itself unless ``attrs["axil"]`` says first-order. The direction is the one in which the m largest effects
        add up to more; rows that have none are left out. ``greedy``: after each row the fit without it is computed again,
        structure held fixed, and the next row is the one of largest first-order effect then (of a forest, of largest exact
        effect). Effects are then exact and add up; this takes some three passes over the trees for each row of the set and query.
        ``by="pushes"``: by what the rows put into the steps of the trees instead (`pushes`; the column is push), which predicts
        better what a refit without them does (docs/paper/faithfulness.md). Streamed: never holds an (n, n_train) array.

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
        method : "exact", "first-order" or None
            How effects are computed, as in `removal`; greedy sets begin from first-order ones unless "exact" is given.
        """
        m, method = inputs.as_count(m, "m"), _method(method)
        inputs.as_choice(by, ("effect", "pushes"), "by")
        if inputs.as_flag(greedy, "greedy") and by == "pushes":
            raise InputError(
                'greedy=True computes effects again after each row, and by="pushes" has none: leave one of them out.'
            )
        proven = self.proven
        queries = proven.queries(X)
        if by == "pushes":
            way = removal.PUSHES
        else:
            first_order = greedy and method is None and not removal.are_forests(proven)
            way = removal.way_of(proven, "first-order" if first_order else method, 0)
        return removal.removal_set(proven, queries, m, greedy, way)

    def removal_top(self, X: Any, k: int = 10, method: str | None = None) -> Any:
        """The k training rows whose deletion, each by itself, would change each prediction most, in either direction.

        A frame with the columns query, rank, row, effect, and output if there are several. Effects are those of `removal`; rows
        that have none are left out. ``attrs["axil"]`` says whether they are exact or first-order. `removal_set` has rows of one
        direction instead. Streamed: never holds an (n, n_train) array.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        k : int
            How many training rows per prediction.
        method : "exact", "first-order" or None
            How effects are computed, as in `removal`.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> top = explainer.removal_top(X.head(2), k=3)
        >>> bool(abs(top["effect"][0]) == abs(explainer.removal(X.head(1))).max())
        True
        """
        k, method, proven = inputs.as_count(k, "k"), _method(method), self.proven
        queries = proven.queries(X)
        return removal.removal_top(proven, queries, k, removal.way_of(proven, method, 0))

    def removal_group(self, X: Any, labels: Any, init_score: Any = None) -> Any:
        """The change of each prediction on deleting each group of training rows, all rows of the group at once.

        A frame with the columns query, group, rows (how many the group has), before, after, change, and output if there are
        several. Exact with the structure held fixed, as `without` is: effects of single rows do not add up to that of their
        group. nan where no row is left without the group, and as in `without`. Of a model fitted to transformed targets before,
        after and change are in prices. Some four passes over the trees, O(T N), for each group; never holds an (n, n_train)
        array.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        labels : sequence of length n_train, or str
            A label for each training row: a year, a region, a source; or the name of a column of X_train.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> list(explainer.removal_group(X.head(2), X["sex"] > 0).columns)
        ['query', 'group', 'rows', 'before', 'after', 'change']
        """
        proven = self.proven
        queries = proven.queries(X, init_score)
        return removal.removal_group(proven, queries, *proven.groups(labels))

    def leave_one_out(self) -> Any:
        """The prediction of every training row by the fit without that row, and what it leaves of the target.

        A frame with the columns row, target, prediction, residual = target - prediction, alone, and output if there are several,
        in the order of the training rows. Exact with the structure held fixed. ``alone``: no other row of any weight is in one of
        the row's leaves, or none is left at all, so nothing but the row's own target says what its prediction would be;
        prediction and residual are nan. Where trees are averaged, those in which another row shares its leaf predict it, and
        it is alone where there is none.

        The row did help to choose the splits, so these residuals are smaller than those of refits without it. In leaf space,
        O(T^2) per training row and blocks of rows at a time: some seconds for a million rows and 100 trees
        (docs/scaling.md). Where leaf space does not fit, one replay per row. Made once for an explainer; a
        `CostWarning` says where that takes more than 30 seconds. Of a model fitted to transformed targets all columns are in
        prices.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> left_out = explainer.leave_one_out()
        >>> change = explainer.without(X.loc[[7]], [7])
        >>> bool(abs(left_out["prediction"][7] - change["after"][0]) < 1e-9)
        True
        """
        return left_out.leave_one_out(self.proven)

    def loo_curve(self) -> Any:
        """The mean squared leave-one-out error after every number of trees, from 0 (the base alone) to all of them.

        A frame with the columns trees, error, training_error, and output if there are several. ``error`` is that of
        `leave_one_out` for the model of the first trees, ``training_error`` that of the same rows in the fit with all; by sample
        weights, where the fit had some. Rows that have no prediction without themselves are left out of both. Exact with the
        structure held fixed, from the same pass as `leave_one_out`. The splits followed the targets of all rows, so the error is
        too small, and it goes on falling where that of refits rises: it is no rule for when to stop (docs/questions.md has
        measurements). Of a model fitted to transformed targets errors are on the scale of the fit: "error (log)". Not for
        forests, DART and model shrinkage, whose first trees are no model by themselves.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> curve = explainer.loo_curve()
        >>> len(curve), bool((curve["error"] > curve["training_error"]).all())
        (21, True)
        """
        return left_out.loo_curve(self.proven)


def _method(method: Any) -> str | None:
    """How effects of deletions are to be computed, checked."""
    if method is not None:
        inputs.as_choice(method, ("exact", "first-order"), "method")
    return None if method is None else str(method)
