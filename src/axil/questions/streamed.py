"""Streamed: the questions that need weights alone, batch by batch, for every explainer that can give them."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from axil import inputs
from axil.errors import InputError, UnsupportedQuestionError
from axil.output import similar, tables
from axil.output.portfolio import Portfolio
from axil.output.sums import WeightedSums
from axil.questions import write as writing
from axil.questions.paged import Paged
from axil.questions.stream import COPIES, measured
from axil.types import Array

NO_FEATURES = (
    "this explainer was loaded from a file, which keeps no features",
    "Load it with them: axil.load(path, model, X_train=X_train).",
)


# Questions that need K, which `Questions` and `Calibrates` have.
OTHERS = (
    *("removal", "without", "removal_set", "removal_top", "removal_group", "pushes", "leave_one_out", "loo_curve"),
    *("what_if", "reach", "blame", "shapley", "audit"),
    *("budget", "leverage", "degrees_of_freedom", "standard_error", "calibrate"),
)


class Streamed(Paged, ABC):
    """Questions about any number of rows X. None of them holds an (n, n_train) array."""

    _no_others: tuple[str, str]  # the reason for which an explainer has none of `OTHERS`, and what to do
    _refusals: ClassVar[dict[str, tuple[str, str]]] = {}  # the same for single questions

    if not TYPE_CHECKING:  # mypy is to know of no other attributes

        def __getattr__(self, name):
            """Refuse a question that this explainer cannot answer, by name."""
            if name in OTHERS:
                raise UnsupportedQuestionError(name, *self._refusals.get(name, self._no_others))
            own = getattr(type(self), name, None)
            if isinstance(own, property):  # it refused: Python takes that for a missing attribute
                return own.__get__(self)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def top(self, X: Any, k: int = 10, by: str | None = None, init_score: Any = None, *, per_class: bool = True) -> Any:
        """The table of `Explanation.top`, for any number of rows of X: never holds an (n, n_train) array.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        k : int
            How many training rows per prediction.
        by : "weight" or "contribution", optional
            What the largest are the largest of, in absolute value; by default weights, of an additive explainer contributions.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`. axil.dask.JacobianExplainer takes none.
        per_class : True
            A line for each class. False is for `Explanation.top` and `similar`.
        """
        tables.check_by(by)
        tables.check_per_class(per_class)
        k = inputs.as_count(k, "k")
        stream = self._stream(X, init_score)
        lines = min(k, stream.n_targets[0])
        return stream.table(lines, 8, lambda one: one.top_columns(k, one.order(by)))

    def effective_size(self, X: Any, init_score: Any = None) -> Array:
        """`Explanation.effective_size` for any number of rows of X: never holds an (n, n_train) array.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`. axil.dask.JacobianExplainer takes none.
        """
        return self._measured(X, init_score, lambda one: one.effective_size)

    def negative_share(self, X: Any, init_score: Any = None) -> Array:
        """`Explanation.negative_share` for any number of rows of X: never holds an (n, n_train) array.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`. axil.dask.JacobianExplainer takes none.
        """
        return self._measured(X, init_score, lambda one: one.negative_share)

    def _measured(self, X: Any, init_score: Any, measure: Callable[[WeightedSums], Array]) -> Array:
        found = measured(self._stream(X, init_score).parts(), measure)
        return found[0] if len(found) == 1 else found

    def group(self, X: Any, labels: Any, init_score: Any = None) -> Any:
        """The table of `Explanation.group`, for any number of rows of X: never holds an (n, n_train) array.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        labels : sequence of length n_train, or str
            A label for each training row: a year, a region, a source; or the name of a column of X_train.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`. axil.dask.JacobianExplainer takes none.
        """
        stream = self._stream(X, init_score)
        codes, groups = stream.groups(labels)
        return stream.table(len(groups), 5, lambda one: one.group_columns(codes, groups))

    def concentration(self, X: Any, shares: Sequence[float] = (0.5, 0.8, 0.95), init_score: Any = None) -> Any:
        """The table of `Explanation.concentration`, for any number of rows of X: never holds an (n, n_train) array.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        shares : sequence of float
            Shares of ``sum |weight|``, from 0 to 1.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`. axil.dask.JacobianExplainer takes none.
        """
        wanted = inputs.as_shares(shares)
        stream = self._stream(X, init_score)
        return stream.table(len(wanted), 4, lambda one: one.concentration_columns(wanted))

    def portfolio(self, X: Any, top: float = 0.05, init_score: Any = None) -> Any:
        """The table of `Explanation.portfolio`, for any number of rows of X: never holds an (n, n_train) array.

        Concentration, short position and turnover of each prediction's weights. The rows of X are taken in their order: sort them
        by date, and turnover is what each forecast moved out of some training rows and into others since the one before.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        top : float, default 0.05
            The share of the training rows that ``top_share`` is about, above 0 and up to 1; rounded up to whole rows.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`. axil.dask.JacobianExplainer takes none.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> found = explainer.portfolio(X.head(3))
        >>> list(found.columns)
        ['query', 'net', 'gross', 'short', 'top_share', 'effective_size', 'turnover']
        >>> bool((abs(found["net"] - 1) < 1e-9).all())  # weights of this model sum to one
        True
        """
        share = inputs.as_share(top, "top")
        return self._stream(X, init_score).table(1, 8, Portfolio(share).columns)

    def similar(
        self,
        X: Any,
        k: int = 10,
        columns: Sequence[Any] | None = None,
        init_score: Any = None,
        *,
        adjust: bool = False,
        among: Any = None,
        distinct: Any = None,
        sign: str = "any",
        per_class: bool = True,
        within: Any = None,
        beside: Any = None,
    ) -> Any:
        """Comparables: the k training rows of largest |weight| in each prediction, their features beside the query's own.

        A frame with the columns query, prediction, rank, row, weight, share, target, contribution, and output where there are
        several; then for each feature (or those in ``columns``, by name or position) ``name (row)`` and ``name (query)``.
        ``share`` is that of the rows down to this one in ``sum |weight|`` of all training rows, listed or not. The training rows
        are those that the explainer was made of; one that was loaded needs them: ``axil.load(path, model, X_train=X_train)``.

        With ``adjust`` there are also ``adjusted``, the row's target as the model itself adjusts it to the query,
        ``y_j + F(x) - F(x_j)``; ``adjusted (all)``, the mean of all training rows' adjusted targets by their weights; and
        ``name (difference)``, row less query, for features that are numbers. Both are computed on the scale of the fit and shown
        as people read them: of a model fitted to logarithms in prices, and the mean is a geometric one. Where weights sum to one
        the mean is ``F(x) + sum_j k_j r_j`` of the residuals ``r = y - F``; the second term is a check of local bias: what the
        model leaves over among the rows that make this prediction. A pandas frame says it in ``attrs["axil"]``, and has for each
        prediction its value, the mean, the bias (on the scale of the fit), the ``share`` of the weight that the rows listed hold
        and their ``value share`` in ``attrs["comparables"]``. That is the share of the prediction that follows their targets:
        if they were one percent higher, the prediction would rise by so many percent. It is ``sum k_j y_j / F(x)`` over the
        rows listed; of logarithms, in prices, ``sum k_j``; nan for other transformed targets.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        k : int
            How many training rows per prediction; fewer where ``among``, ``distinct``, ``sign`` and ``within`` leave fewer.
        columns : sequence, optional
            Which features to show, by name or position; all by default.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`. axil.dask.JacobianExplainer takes none.
        adjust : bool, default False
            Add adjusted targets and differences of features. Only where weights make the prediction, not of pushes.
        among : array of bool of shape (n_train,) or function, optional
            The training rows that may be listed, or a function of the training rows as they were given that returns such a mask:
            ``lambda sales: sales["year"] >= 2023``.
        distinct : str, int or sequence of length n_train, optional
            A column of the training rows, by name or position, or a label for each of them, such as a property's number: of rows
            with one label only that of largest |weight| is listed. Rows without a label stand for themselves.
        sign : "any" or "positive", default "any"
            Whether rows of negative weight, whose targets push the other way, are listed too.
        per_class : bool, default True
            A line for each class. False, where classes share their weights as in forests: one line per training row, with the
            class predicted and its probability, and the row's own class by name as target.
        within : pair of a column and a distance, optional
            Only rows whose column lies so far from the query's own value at most: ``("sale_date", "3Y")``. The distance is a
            number for numbers; for dates a number of days, a timedelta, or text in D, W, M or Y: days, weeks, months, years.
        beside : pair of frames, optional
            Further columns that are no features, of the training rows and of the rows of X, such as addresses and dates:
            ``(sales, homes)``. They are shown, and ``columns``, ``distinct`` and ``within`` may name them. A column of one
            frame alone is shown for its rows. One with the name of a feature is left out: give it another name.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> found = explainer.similar(X.head(1), 3, ["bmi"], adjust=True, among=lambda rows: rows["sex"] > 0, sign="positive")
        >>> list(found.columns)[5:]
        ['share', 'target', 'contribution', 'adjusted', 'adjusted (all)', 'bmi (row)', 'bmi (query)', 'bmi (difference)']
        """
        adjust = inputs.as_flag(adjust, "adjust")
        stream = self._stream(X, init_score)
        if stream.features is None:
            raise UnsupportedQuestionError("similar", *self._no_features)
        if adjust and stream.fitted is None:
            raise UnsupportedQuestionError("similar(adjust=True)", *similar.NOT_ADJUSTED)
        if adjust and not per_class:
            raise InputError(
                "per_class=False lists classes by name, which adjust=True cannot move. Leave one of them out."
            )
        listing = stream.listing(beside)
        choice = listing.choice(k, among, distinct, sign, per_class, within)
        chosen = listing.known.chosen(columns)
        lines = choice.most(stream.n_targets[0]) * stream.n_targets[1]
        more = 0 if choice.is_plain else COPIES * 8 * stream.n_targets[0]
        parts = stream.for_table(lines, 14 + 3 * len(chosen), 24 * 8, more)
        return similar.listed(parts, listing, choice, chosen, stream.fitted if adjust else None)

    _no_features = NO_FEATURES  # the reason that `similar` gives where it has none, and what to do

    def write(self, X: Any, path: Any, init_score: Any = None) -> None:
        """Write the weights of all rows of X to a path that ends in .parquet or .zarr, batch by batch.

        Parquet has one line per query (and output): its label, prediction, intercept and weights as a list in the order of the
        training rows. zarr has arrays: weights (n, n_train), predictions, intercepts, query_index and index. Labels other than
        numbers, dates and text are written as text. Predictions and intercepts are on the scale of the fit, where they add up.
        Of an additive explainer contributions, which are pushes, take the place of weights.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        path : str or path
            A file that ends in .parquet, or a directory that ends in .zarr.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`. axil.dask.JacobianExplainer takes none.
        """
        stream = self._stream(X, init_score)
        if stream.rows.shape[0] == 0:
            raise InputError("X has no rows, so there is nothing to write.")
        n_train, n_outputs = stream.n_targets
        parts = (one.dense() for one in stream.parts(2 * 8 * n_train * n_outputs))  # copies on the way
        writing.write(parts, inputs.row_labels(stream.rows), stream.index(), n_outputs, path)
