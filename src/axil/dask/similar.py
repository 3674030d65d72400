"""similar over Dask collections: comparables, as every explainer of partitions answers for them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.dask.cluster import partitions, task
from axil.dask.comparables import Chosen, Compared, Taken, by_partition, taken
from axil.dask.rows import Partitioned
from axil.errors import AxilError, InputError, UnsupportedQuestionError, shown
from axil.output import similar, tables
from axil.questions.stream import Stream
from axil.replay.recover import assign_leaves
from axil.types import Array


class Comparable(Partitioned):
    """Training rows in partitions that are listed beside the rows they make predictions of."""

    _X: Any  # the user's collection of training rows
    _parts_of_X: list[Any]  # its partitions, delayed

    @abstractmethod
    def _compare(
        self, X: Any, init_score: Any, chosen: list[Chosen], adjust: bool
    ) -> Iterator[tuple[NDArray[Any], Array, Compared]]:
        """Labels, predictions (n, K) and comparables of batches of X, checked; at least one batch."""

    @property
    @abstractmethod
    def _trees(self) -> tuple[NDArray[np.int64], list[Any]]:
        """(T,) the leaves of all the model's trees; and for each entry of the fitted trees which of them it has."""

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
        """Comparables, the table of `axil.Explainer.similar`: the k rows of largest |weight|, with features beside the query's.

        Every partition sends its k rows per prediction. The features of those that are listed are then read from your
        collection again, from the partitions that hold them; persist it to spare that. Leaves and labels must be those of the
        replay.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        k : int
            How many training rows per prediction; fewer where ``among``, ``distinct`` and ``sign`` leave fewer.
        columns : sequence, optional
            Which features to show, by name or position; all by default.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`. JacobianExplainer takes none.
        adjust : bool, default False
            Add adjusted targets and differences of features. Only where weights make the prediction, not of pushes.
        among : Dask Series or Array of bool, or function, optional
            The training rows that may be listed, in the partitions of X; or a function of the Dask collection X that returns
            them: ``lambda sales: sales["year"] >= 2023``.
        distinct : str, int, Dask Series or Array, optional
            A column of X, by name or position, or a label for each training row, in the partitions of X: of rows with one label
            only that of largest |weight| is listed. Rows without a label stand for themselves.
        sign : "any" or "positive", default "any"
            Whether rows of negative weight are listed too.
        per_class : bool, default True
            A line for each class; False is refused here.
        within : optional
            Refused here.
        beside : optional
            Refused here.

        Examples
        --------
        >>> import dask.dataframe as dd
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil.dask import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> model = LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y)
        >>> explainer = Explainer(model, dd.from_pandas(X, npartitions=2), dd.from_pandas(y, npartitions=2))
        >>> found = explainer.similar(X.head(1), 3, ["bmi"], adjust=True, among=lambda rows: rows["sex"] > 0)
        >>> list(found.columns)[5:]
        ['share', 'target', 'contribution', 'adjusted', 'adjusted (all)', 'bmi (row)', 'bmi (query)', 'bmi (difference)']
        """
        k, adjust = inputs.as_count(k, "k"), inputs.as_flag(adjust, "adjust")
        positive = inputs.as_choice(sign, ("any", "positive"), "sign") == "positive"
        stream = self._stream(X, init_score)
        if adjust and stream.note.startswith(tables.ADDITIVE):
            raise UnsupportedQuestionError("similar(adjust=True)", *similar.NOT_ADJUSTED)
        if within is not None or beside is not None:
            raise UnsupportedQuestionError(
                f"similar({'beside' if within is None else 'within'}=)",
                "it is not made over Dask collections",
                "Choose rows with among, or use axil.Explainer.",
            )
        if not inputs.as_flag(per_class, "per_class"):
            raise UnsupportedQuestionError(
                "similar(per_class=False)",
                "lines of all classes together are not made over Dask collections",
                "Leave per_class out: every class has its line. Or use axil.Explainer.",
            )
        wanted = inputs.chosen_columns(columns, stream.names())
        lines = stream.rows.shape[0] * stream.n_targets[1] * min(k, self._n_rows)
        self._limits.budget.require(
            tables.bytes_of(lines, 13 + 3 * len(wanted)), f"The table of {lines} lines", tables.SMALLER
        )
        nothing: list[Any] = [None] * len(self._held.sizes)
        masks = nothing if among is None else self._masks(among)
        keys = nothing if distinct is None else self._keys(distinct, stream.names())
        chosen = [
            Chosen(p, int(self._held.starts[p]), k, positive, distinct is not None, mask, key)
            for p, (mask, key) in enumerate(zip(masks, keys))
        ]
        parts, summaries, first = [], [], 0
        for labels, predictions, found in self._compare(X, init_score, chosen, adjust):
            if not found.allowed:
                raise InputError(
                    f"among allows none of the {self._n_rows} training rows; expected a mask that is True for some."
                )
            part, summary = self._listed(labels, predictions, found, adjust, stream)
            part["asked"] = part["asked"] + first
            parts.append(part)
            summaries.append(summary)
            first += len(labels)
        made = tables.joined(parts)
        of_rows = self._features(made.pop("position"), wanted)
        return similar.finished(stream.listing(), made, tables.joined(summaries), wanted, of_rows, adjust)

    def _masks(self, among: Any) -> list[Any]:
        given = among
        if callable(among) and not hasattr(among, "dask"):
            try:
                given = among(self._X)
            except AxilError:
                raise
            except Exception as error:  # the user's own function
                raise InputError(
                    f"among raised {type(error).__name__}: {shown(error, 200)}. Expected a function of the Dask collection X "
                    "that returns a truth value for each training row, in its partitions."
                ) from error
        return partitions(given, "among", self._layout)

    def _keys(self, distinct: Any, names: list[str]) -> list[Any]:
        if isinstance(distinct, str) or inputs.is_whole(distinct):
            place = inputs.chosen_columns(distinct, names, "distinct")[0]
            distinct = self._X[:, place] if isinstance(self._X, da.Array) else self._X[names[place]]
        return partitions(distinct, "distinct", self._layout)

    def _meant(self, scores: Array) -> dict[str, Array]:
        """What scores (n, K) stand for, by name; nothing where predictions are no scores."""
        return {}

    def _listed(
        self, labels: NDArray[Any], predictions: Array, found: Compared, adjust: bool, stream: Stream
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The columns of `axil.output.comparables.listed`, and a line for each prediction and output."""
        best, shares = found.best, found.shares
        column = {name: values.ravel() for name, values in best.columns.items()}
        made = tables.predicted_columns(
            labels, self.outputs, predictions, best.size.shape[2], self._meant(predictions)
        ) | {"row": column["row"]}
        if stream.note.startswith(tables.ADDITIVE):
            made |= {"target": column["target"], "contribution": column["weight"], "share": shares.ravel()}
        else:
            made |= {"weight": column["weight"], "share": shares.ravel(), "target": column["target"]}
            made["contribution"] = column["weight"] * column["target"]
        summary: dict[str, Any] = {}
        if adjust:
            moved = np.divide(found.bias, found.weights, out=np.full_like(found.bias, np.nan), where=found.weights > 0)
            mean = predictions + moved
            made["adjusted"] = (predictions[:, :, None] + best.columns["residual"]).ravel()
            made["adjusted (all)"] = np.broadcast_to(mean[:, :, None], best.size.shape).ravel()
            last = shares[:, :, -1].ravel()
            summary = tables.label_columns(labels, self.outputs, "share", np.zeros(1)) | {"share": last}
            listed = np.where(best.size < 0, 0.0, best.columns["weight"] * best.columns["target"]).sum(axis=2)
            whole = np.divide(listed, predictions, out=np.full_like(listed, np.nan), where=predictions != 0)
            summary |= {"value share": whole.ravel(), "prediction": predictions.ravel()}
            summary |= {"mean": mean.ravel(), "bias": found.bias.ravel()}
        asked = np.broadcast_to(np.arange(len(labels))[:, None, None], best.size.shape)
        made |= {"position": column["position"], "asked": asked.ravel()}
        filled = best.size.ravel() >= 0
        return {name: values[filled] for name, values in made.items()}, summary

    def _features(self, positions: NDArray[np.int64], wanted: list[int]) -> list[NDArray[Any]]:
        """These columns, by position, of the rows at these positions among all."""
        rows, back = np.unique(positions, return_inverse=True)
        pairs = list(by_partition(rows, self._held.starts))
        found: list[Taken] = self._cluster.collect(
            [task(taken, self._parts_of_X[p], self._held.partitions[p], own) for p, own in pairs]
        )
        parts = [self._checked(p, one, wanted) for (p, _), one in zip(pairs, found)]
        if not parts:
            return [np.empty(0) for _ in wanted]
        return [np.concatenate(column)[back] for column in zip(*parts)] if wanted else []

    def _checked(self, p: int, one: Taken, wanted: list[int]) -> list[NDArray[Any]]:
        """The columns of rows that the collection gives again; they must be those of the replay."""
        X = inputs.as_features(one.X, self._adapter, "X")
        n = X.shape[0]
        same = not hasattr(X, "index") or np.array_equal(inputs.row_labels(X), one.labels)
        n_leaves, entries = self._trees
        now = assign_leaves(self._adapter, X, n, n_leaves, self._limits)
        same = same and all(np.array_equal(now[own], then) for own, then in zip(entries, one.leaves))
        if not same:
            raise InputError(
                f"Rows of partition {p} (from 0) of X are not those that the explainer was made of; expected a collection that "
                "is the same whenever it is computed. Persist it, or make the explainer again."
            )
        return inputs.feature_columns(X, np.arange(n), wanted)
