"""Explanation: the weights of a batch of predictions and the views on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse

from axil import inputs
from axil.aliases import ArrayLike, DataFrame, LabelsLike, PathLike, Ranking
from axil.arrays import AnyArray, FloatArray, IntArray
from axil.errors import InputError, UnsupportedQuestionError, counted
from axil.inputs import as_count, as_positions, as_share, as_shares, group_codes, row_values
from axil.output import comparables, page, tables
from axil.output.comparables import as_per_class
from axil.output.explained_arrays import Arrays
from axil.output.portfolio import Portfolio
from axil.output.predictions import WeightedSums
from axil.output.records import record_of
from axil.reductions.choice import Choice


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Arrays):
    """n predictions as weighted sums of the training targets, with the fitted tree structure fixed.

    ``predictions = weights @ targets + intercepts``. A weight is what the prediction would move by
    if that one target were one larger and the trees kept their splits; it says nothing of what a
    refit would do. With several outputs, or classes, that share trees the weights are the same for
    all; outputs with trees of their own have (n, K, n_train). All arrays are read-only; what
    methods return is the caller's own. Explainers make explanations. Where X was a CuPy array, so
    are weights, contributions, predictions and intercepts; tables and measures are the host's.

    All arrays are on the scale of the fit, so that they add up. Of a model fitted to logarithms,
    targets and predictions are logarithms, and ``scale.inverse(predictions)`` are in the targets'
    own units. Tables, plots and the page show these units: their column target has them,
    "contribution (log)" has not, and factor is what the row multiplies the prediction by.

    Of boosted classifiers, and of other losses than squared error, ``kind`` is "additive": no exact
    weights exist, predictions are raw scores. ``contributions`` are what each row's own
    gradients put into the score, and with the ``intercepts`` they sum to it exactly, whatever the
    target. ``weights`` are then derivatives of the score by the targets, good for small changes
    only and computed when they are first asked for. All tables, plots and measures are of the
    contributions.
    """

    def __iter__(self) -> Iterator[Explanation]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, which: Any) -> Explanation:
        """Return the explanation of predictions by position: ``[0]``, ``[2:5]``, ``[[1, 4]]``."""
        return Explanation(self._sums[as_positions(which, len(self))], self._module)

    def __repr__(self) -> str:
        kind = {
            "exact": "exact",
            "additive": "contributions that add up to the score",
            "derivative": "derivative",
        }[self.kind]
        if self.outputs is None:
            outputs = ""
        else:
            outputs = f" of {len(self.outputs)} outputs"
        rows = (
            f"{counted(len(self), 'prediction')}{outputs} by "
            f"{counted(len(self.targets), 'training row')}"
        )
        if self.scale.is_identity:
            fitted = ""
        else:
            fitted = f", fitted to {self.scale.name}"
        return f"<axil.Explanation: {rows}, {kind}, structure fixed{fitted}>"

    def top(self, k: int = 10, by: Ranking | None = None, *, per_class: bool = True) -> DataFrame:
        """Return the k training rows of largest |weight| (or |contribution|) in each prediction.

        The table has the columns query, output, prediction, score, probability, rank (from 1), row,
        weight, target and contribution.

        - output is there for several outputs and for classes. It names the class of the numbers in
          the line; for two classes with one score that is `pos_label`.
        - prediction is what the model's ``predict`` returns: the class of largest probability, an
          expected count or amount, or a value in the targets' own units.
        - score is the sum of the contributions, if that is neither the prediction nor the
          probability.
        - probability is there for classes alone.
        - weight is not there for additive explanations.

        If the model was fitted to transformed targets, prediction and target are not transformed,
        and the name of contribution says how it is, such as "contribution (log)". For logarithms
        there is a column factor, ``target ** weight``.

        Parameters
        ----------
        k : int
            How many training rows per prediction.
        by : "weight" or "contribution", optional
            What the largest are the largest of, in absolute value; by default weights, of an
            additive explanation contributions.
        per_class : bool, default True
            A line for each class. False, where classes share their weights as in forests: one line
            per training row, with the class predicted and its probability, and the row's own class
            by name as target.
        """
        tables.check_by(by)
        k = as_count(k, "k")
        if not as_per_class(per_class, self._sums.is_shared):
            if by == "contribution":
                raise InputError(
                    "per_class=False lists rows by weight, which all classes share. "
                    'Leave by="contribution" out.'
                )
            columns = comparables.listed(*self._sums.compared(Choice(k)), per_class=False).columns
            return self._table(
                {
                    name: columns[name]
                    for name in columns
                    if name not in ("share", "position", "asked")
                }
            )
        if by == "weight" and self._sums.additive:
            return Explanation(self._sums.derived).top(k, by)
        return self._table(self._sums.top_columns(k, self._sums.order(by)))

    def _table(self, columns: dict[str, Any]) -> Any:
        """Return a frame of the user's library, with a note on its numbers."""
        return tables.note(tables.make(columns, self._sums.backend), self._sums.note)

    def group(self, groups: LabelsLike, *, min_group_size: int = 1) -> DataFrame:
        """Return the sums of weights and contributions over each group of training rows.

        Pass a label for each training row: a year, a region, a source. The table has the columns
        query, group, weight, contribution, and output if there are several. Groups of a prediction
        are in the order of abs(weight), or of abs(contribution) where there are no weights.
        Contributions are weight times target. If the model was fitted to logarithms, they are
        weight times (target - mean target), in a column "contribution (log)", and the rows of the
        group multiply the prediction by ``factor``, counted from the geometric mean of the targets.

        Parameters
        ----------
        groups : sequence of length n_train, or str
            A label for each training row: a year, a region, a source; or the name of a column of
            X_train.
        min_group_size : int, default 1
            Groups of fewer training rows are put together in one, for tables that other people see.
        """
        least = as_count(min_group_size, "min_group_size")
        codes, names = self._groups(groups, "groups")
        return self._table(self._sums.group_columns(codes, names, least))

    def concentration(
        self, shares: Sequence[float] = (0.5, 0.8, 0.95), top: float = 0.05
    ) -> DataFrame:
        """Return how concentrated the weights of each prediction are.

        The table has a line per explained row, in their order, and the columns

        - effective_size, ``(sum |k|)^2 / sum k^2``: as many rows of equal weight would be as
          concentrated; 0 on none;
        - negative_share, the share of negative weights in ``sum |k|``; it grows with the number of
          trees;
        - rows for 50%, and so on for each of ``shares``: how many rows, the largest first, hold
          that share of ``sum |k|``;
        - net, ``sum k``, and gross, ``sum |k|``;
        - short, the sum of the negative weights, 0 or less: ``gross + 2 * short = net``;
        - top_share, the share of gross in the largest ``top`` of the training rows;
        - turnover, ``sum_j |k_j - k_j of the query before|``, without a factor of one half; nan of
          the first query;
        - fit, the squared correlation of weights and targets, and asymmetry, half the squared
          difference between the correlations of the targets with the positive weights and with the
          negative ones; of exact weights that no two outputs share;

        and output where outputs have trees of their own. k are the weights of an exact explanation,
        the contributions of an additive one and the derivatives of one of kind "derivative". With
        contributions, net is the score without its initial value.

        Parameters
        ----------
        shares : sequence of float
            Shares of ``sum |weight|``, from 0 to 1.
        top : float, default 0.05
            The share of the training rows that ``top_share`` is about, above 0 and up to 1; rounded
            up to whole rows.
        """
        columns = Portfolio(as_share(top, "top"), as_shares(shares)).columns(self._sums)
        return self._table(columns)

    def to_html(
        self,
        path: PathLike | None = None,
        *,
        groups: LabelsLike | None = None,
        sigma: ArrayLike | None = None,
        **options: Any,
    ) -> str | None:
        """Return a self-contained page about the predictions, or write it to a path.

        You choose a prediction on it, and see the k rows that made most of it. `Explainer.to_html`
        accepts any number of rows, and estimates ``sigma``.

        Parameters
        ----------
        path : str or path, optional
            The file to write; without one the text of the page is returned.
        groups : sequence of length n_train, or str, optional
            Labels of the training rows to sum weights by, or the name of a column of X_train.
        sigma : float or array of shape (K,), optional
            The noise of the targets, for standard errors.
        **options : keyword arguments
            ``k``, ``columns``, ``hide``, ``min_group_size``, ``map``, ``y``, ``title``, ``unit``,
            ``target`` and ``stability``, as in `Explainer.to_html`.
        """
        place = page.as_target(path)
        shape = len(self.targets), 1 if self.outputs is None else len(self.outputs)
        if groups is None:
            codes_and_names = None
        else:
            codes_and_names = self._groups(groups, "groups")
        chosen = page.as_options(
            shape, len(self), self._sums.context, codes_and_names, sigma, **options
        )
        return page.write(page.summarise([self._sums], chosen), place)

    def _groups(self, labels: Any, what: str) -> tuple[IntArray, AnyArray]:
        context = self._sums.context
        rows = None
        names = None
        if context is not None:
            rows = context.X_train
            names = context.feature_names
        return group_codes(row_values(labels, rows, names, what), len(self.targets), what)

    def show(self, height: int = page.HEIGHT, **options: Any) -> page.Page:
        """Show the page of `to_html` in a notebook, if this is the last line of a cell.

        Parameters
        ----------
        height : int, default 600
            Pixels on the screen; the page scrolls within them.
        **options : keyword arguments
            As in `to_html`, such as ``groups`` and ``columns``.
        """
        return page.shown(self.to_html, (), height, options)

    def _repr_html_(self) -> str:
        return page.preview(self._sums, repr(self).strip("<>"))

    def to_json(self, path: PathLike | None = None, *, k: int = 10) -> str:
        """Return a record of what the predictions were made of, for a file that is kept.

        It has the versions, the digests of the model and of the training data, the verification,
        and for each row its label, the digest of its features and the lines of `top`. The same
        model and data have the same digests later.

        Parameters
        ----------
        path : str or path, optional
            The file to write besides.
        k : int, default 10
            The number of training rows that are listed for each prediction, as in `top`.

        Examples
        --------
        >>> import json
        >>> from axil import Explainer
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> record = json.loads(explainer(X.head(1)).to_json(k=3))
        >>> [line["rank"] for line in record["rows"][0]["training rows"]]
        [1, 2, 3]
        """
        context = self._sums.context
        if context is None or context.X is None or context.state is None:
            raise UnsupportedQuestionError(
                "to_json",
                "this explanation is of sums of predictions, or it was unpickled without its model",
                "Explain the rows: explainer(X).to_json().",
            )
        table = inputs.as_frame(self.top(k))
        assert table is not None
        labels = inputs.as_list(self.query_index)
        return record_of(context.state(), context.X, labels, table).to_json(path)

    def to_frame(self) -> Any:
        """Return the weights, or the contributions of an additive explanation, as a table.

        It has one row per explained row and one column per training row.

        Where outputs have weights of their own there is a row for each query and output. pandas
        keeps the labels as index and columns; other libraries get the columns "query" and "output",
        and the labels of training rows as text.
        """
        if self._sums.additive:
            weights = self.contributions
        else:
            weights = self.weights
        if issparse(weights):
            weights = weights.toarray()
        else:
            weights = np.array(weights)
        lines = {"query": self.query_index}
        if weights.ndim == 3:
            n, n_outputs, _ = weights.shape
            lines = {
                "query": np.repeat(self.query_index, n_outputs),
                "output": np.tile(np.asarray(self.outputs), n),
            }
            weights = weights.reshape(n * n_outputs, -1)
        if self._sums.backend == "pandas":
            import pandas as pd

            several = pd.MultiIndex.from_arrays(list(lines.values()), names=list(lines))
            if len(lines) == 1:
                index = self.query_index
            else:
                index = several
            return tables.note(
                pd.DataFrame(weights, index=index, columns=self.index), self._sums.note
            )
        names = [str(label) for label in self.index]
        if len({*lines, *names}) != len(names) + len(lines):
            raise InputError(
                "The training rows' labels are not unique as column names; use .weights, "
                "or give X_train unique labels."
            )
        columns = dict(zip(names, np.ascontiguousarray(weights.T)))
        return tables.make({**lines, **columns}, self._sums.backend)

    def to_shap(self) -> Any:
        """Return a ``shap.Explanation`` whose features are the training rows.

        The plots of shap then show rows. ``values`` are contributions, (n, n_train) or (n, n_train,
        K), and ``base_values`` are intercepts; they sum to the predictions on the scale of the fit.
        ``data`` are the targets of the rows in the user's units, or their classes.
        ``feature_names`` are the labels of the rows. It needs the package shap.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> model = LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y)
        >>> explanation = Explainer(model, X, y)(X.head(2))
        >>> import shap  # doctest: +SKIP
        >>> shap.plots.waterfall(explanation.to_shap()[0])  # doctest: +SKIP
        """
        return to_shap(self._sums.dense(), Explanation(self._sums.dense()).values)


def to_shap(sums: WeightedSums, values: FloatArray) -> Any:
    """Return a ``shap.Explanation`` of contributions (n, n_train) or (n, n_train, K).

    See `Explanation.to_shap`.
    """
    try:
        from shap import Explanation
    except ImportError as error:
        raise InputError(
            "to_shap makes an object of the package shap, which is not installed: pip install shap."
        ) from error
    shown_targets = sums.named
    # shap has one number per feature, not K
    if shown_targets.ndim == 1:
        data = shown_targets
    else:
        data = np.full(len(shown_targets), np.nan)
    return Explanation(
        values=np.array(values),
        base_values=np.array(sums.intercepts),
        data=np.tile(data, (len(sums), 1)),
        feature_names=[str(label) for label in sums.index],
        output_names=None if sums.outputs is None else [str(name) for name in sums.outputs],
    )
