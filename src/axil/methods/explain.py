"""explain: the effects of every training row on every prediction, whole or batch by batch."""

from __future__ import annotations

from collections.abc import Iterator

from axil import inputs
from axil.aliases import ArrayLike, TableLike
from axil.explanation import Explanation
from axil.machine.arrays import module_of
from axil.methods.method import Method

STREAM = (
    "Use explainer.top(X) for the largest weights or explainer.iter(X) for batches, or raise "
    "memory_limit."
)


class Explain(Method):
    """Provide `Explainer.explain` and `Explainer.iter`."""

    def explain(
        self, X: TableLike, *, init_score: ArrayLike | None = None, sparse: bool = False
    ) -> Explanation:
        """Return the weight, or the contribution, of every training row in every prediction.

        It takes 8 * n * n_train bytes for each output that has weights of its own. Contributions
        and derivatives take twice as much.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, such as logarithms of their exposures, added to what the model
            itself predicts; for XGBoost their base_margin, which takes the place of base_score, as
            in its own ``predict``. Intercepts hold them.
        sparse : bool, default False
            Weights as a scipy.sparse CSR array, for forests and neighbours at the cost of the
            leaves met. Not where outputs have weights of their own: such weights stay (n, K,
            n_train).
        """
        explained = self._explained_rows("explain", X, init_score)
        sparse = inputs.as_flag(sparse, "sparse")
        if not (sparse and explained.model.weight_layout.is_sparse):
            explained.model.require(len(explained), STREAM)
        (sums,) = explained.whole(max(len(explained), 1), sparse)
        return Explanation(sums, module_of(X))

    def __call__(
        self, X: TableLike, *, init_score: ArrayLike | None = None, sparse: bool = False
    ) -> Explanation:
        """Call `explain`.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`.
        sparse : bool, default False
            Weights as a scipy.sparse CSR array, as in `explain`.
        """
        return self.explain(X, init_score=init_score, sparse=sparse)

    def iter(
        self,
        X: TableLike,
        batch_size: int | None = None,
        *,
        init_score: ArrayLike | None = None,
        sparse: bool = False,
    ) -> Iterator[Explanation]:
        """Explain X batch by batch, so that memory never has more than one batch of weights.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        batch_size : int, optional
            How many rows to explain at a time; by default as many as memory allows, up to 1024.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`.
        sparse : bool, default False
            Weights as a scipy.sparse CSR array, as in `explain`.
        """
        explained = self._explained_rows("iter", X, init_score)
        sparse = inputs.as_flag(sparse, "sparse")
        if batch_size is None:
            size = explained.size()
        else:
            size = inputs.as_count(batch_size, "batch_size")
        explained.model.require(size, "Take a smaller batch_size or raise memory_limit.")
        if not len(explained):
            return iter(())
        return (Explanation(sums, module_of(X)) for sums in explained.whole(size, sparse))
