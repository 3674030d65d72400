"""Explainer: read a fitted model, prove that it belongs to its training data, answer with weights."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from axil import adapters, inputs
from axil.adapters.contract import TrainingRows
from axil.errors import ExactnessError, InputError, counted
from axil.explanation import Explanation
from axil.inputs.owned import owned, owned_rows
from axil.intervals.calibrate import Calibrates
from axil.intervals.on_page import IntervalPages
from axil.kernels.choose import DEVICES, budget_of, chosen
from axil.machine.arrays import module_of
from axil.machine.limits import Limits
from axil.output import save as storage
from axil.output import tables
from axil.output.archive import Archive
from axil.questions.explain import STREAM, batches, top, weighted_sums
from axil.questions.questions import Questions
from axil.questions.stream import Stream
from axil.questions.streamed import Streamed
from axil.replay import mistakes
from axil.replay.build import build
from axil.replay.checks import Verification
from axil.replay.proven import ProvenModel
from axil.report.write import Reports
from axil.scale import TargetScale, fitted_targets
from axil.types import Array


class Explainer(Questions, Calibrates, IntervalPages, Reports, Streamed):
    """Which training rows made a prediction, and by exactly how much, with the fitted structure held fixed.

    Construction replays the fit on the training data and raises `ExactnessError` unless leaf counts, leaf values and
    predictions agree; a model that is not linear in its targets raises `UnsupportedModelError`. Every explanation is
    checked against the model's own predictions again.

    All answers are about the data and the model as they were then. The explainer keeps copies, of large arrays too unless they
    are read-only, so a later change of the data or a refit of the model does not move them.

    An explainer may be asked from many threads at once, and stays right after any exception, Ctrl-C among them. A row's answer
    has the same bits whatever was asked before or with it; see docs/scaling.md.

    Parameters
    ----------
    model : fitted model
        A model of any library that axil reads, or a pipeline that ends in one.
    X_train : table
        The rows that the model was fitted on, in the order of the fit.
    y_train : array of shape (n_train,) or (n_train, K)
        Their targets, or classes, as the fit got them: prices for a model that takes logarithms itself
        (TransformedTargetRegressor, LightGBM's reg_sqrt), logarithms where you took them.
    sample_weight : array of shape (n_train,), optional
        The weights of the fit.
    init_score : array of shape (n_train,) or (n_train, K), optional
        The offsets of the fit, such as logarithms of exposures: XGBoost's base_margin, CatBoost's baseline.
    bags : array of shape (n_train, n_trees), optional
        How often each row was drawn for each tree, where the model does not say it.
    inverse_func : callable, optional
        For targets that you transformed before the fit: the function that undoes it, such as ``np.exp`` for logarithms. It
        takes arrays, keeps the order of the targets or reverses it. Answers are then shown in prices; weights are the same.
    index : sequence of length n_train, or str, optional
        The labels of the training rows, or the name of a column of X_train that has them; by default the index of a pandas frame,
        else positions from 0.
    n_threads : int, optional
        How many threads to use; by default one for each processor that the process may use.
    memory_limit : int or str, optional
        The bytes that one request may take, or text such as "2GiB"; by default most of what is free.
    scratch : path, optional
        A directory for the leaf numbers of all training rows, N * T bytes, which are otherwise kept in memory.
    verify : bool, default True
        Prove that model and data belong together. Without it no answer is compared with the model.
    device : "cpu", "cuda" or "auto", default "cpu"
        Where weights of boosted trees are computed: on the cores, on an NVIDIA GPU through CuPy, or there if there is one.

    Examples
    --------
    >>> from lightgbm import LGBMRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = LGBMRegressor(verbose=-1).fit(X, y)
    >>> explainer = Explainer(model, X, y)
    >>> explanation = explainer(X.head(3))
    >>> bool(abs(explanation.predictions - model.predict(X.head(3))).max() < 1e-6 * y.max())
    True
    """

    kind = "exact"  #: as `axil.supports` has it

    def __init__(
        self,
        model: Any,
        X_train: Any,
        y_train: Any,
        sample_weight: Any = None,
        init_score: Any = None,
        bags: Any = None,
        *,
        inverse_func: Any = None,
        index: Any = None,
        n_threads: int | None = None,
        memory_limit: int | str | None = None,
        scratch: Any = None,
        verify: bool = True,
        device: str = "cpu",
    ):
        limits = limits_of(n_threads, memory_limit, scratch, device)
        verify = inputs.as_flag(verify, "verify")
        adapter = adapters.read(model)
        given = X_train, y_train
        try:
            X_train = owned_rows(inputs.as_features(X_train, adapter, "X_train"))
        except InputError as error:
            raise mistakes.names_target(error, *given) from None
        n_train = X_train.shape[0]
        if n_train == 0:
            raise InputError("X_train has no rows; expected the rows that the model was fitted on.")
        own = owned(inputs.as_targets(y_train, n_train, adapter.n_outputs, adapter.classes))
        if inverse_func is not None and adapter.classes is not None:
            raise InputError("inverse_func is for transformed numbers; this model predicts classes. Leave it out.")
        fitted = fitted_targets(adapter.scale, inverse_func, own, y_train)
        targets = fitted.targets
        weights = inputs.as_weights(sample_weight, n_train)
        offsets = inputs.as_offsets(init_score, n_train, adapter.n_outputs, "training")
        bags = inputs.as_bags(bags, n_train)
        labels = inputs.row_index(index, X_train, adapter.feature_names, n_train)
        if not verify:
            mistakes.refuse_other_order(*given)
        rows = TrainingRows(X_train, targets, weights, offsets, bags)
        try:
            proven = build(adapter, rows, labels, limits, verify).on(fitted)
        except ExactnessError as error:
            raise mistakes.with_cause(
                error, adapter, rows, given, lambda changed: build(adapter, changed, labels, limits)
            ) from None
        super().__init__(proven)

    @classmethod
    def _of(cls, proven: ProvenModel) -> Explainer:
        """An explainer of a model that is proven already, such as `axil.load` reads from a file."""
        explainer = cls.__new__(cls)  # past the reading and the proof, which are done
        Questions.__init__(explainer, proven)
        return explainer

    def __repr__(self) -> str:
        proof = "not verified" if self.verification is None else f"verified to {self.verification.max_error:.1e}"
        rows = counted(len(self.targets), "training row")
        return f"<axil.Explainer: {self.proven.adapter.library}, {rows}, {proof}>"

    @property
    def targets(self) -> Array:
        """(n_train,) or (n_train, K): the training targets on the scale of the fit; one-hot for classes."""
        found = self.proven.targets
        return found[:, 0] if found.shape[1] == 1 else found

    @property
    def scale(self) -> TargetScale:
        """The scale of the fit; ``scale.inverse`` leads from it to prices."""
        return self.proven.scale

    @property
    def index(self) -> NDArray[Any]:
        """(n_train,): the labels of the training rows."""
        return self.proven.index

    @property
    def outputs(self) -> NDArray[Any] | None:
        """(K,): the names of the classes or the numbers of the outputs; None for a single output."""
        return self.proven.outputs

    @property
    def verification(self) -> Verification | None:
        """Findings of the replay; None with ``verify=False``."""
        return self.proven.verification

    def explain(self, X: Any, init_score: Any = None, sparse: bool = False) -> Explanation:
        """The weight of every training target in the prediction of every row of X; 8 * n * n_train bytes.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, added to what the model itself predicts; for XGBoost their base_margin, which takes the
            place of base_score, as in its own ``predict``.
        sparse : bool, default False
            Weights as a scipy.sparse CSR array, for forests and neighbours at the cost of the leaves met.
        """
        proven = self.proven
        queries = proven.queries(X, init_score)
        if not (inputs.as_flag(sparse, "sparse") and proven.engines[0].is_sparse):
            proven.require(len(queries), STREAM)
        proven = proven.for_many()
        proven.advise(len(queries))
        return Explanation(weighted_sums(proven, queries, sparse), module_of(X))

    __call__ = explain

    def iter(
        self, X: Any, batch_size: int | None = None, init_score: Any = None, sparse: bool = False
    ) -> Iterator[Explanation]:
        """Explanations of X batch by batch, so that never more than one batch of weights is held.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        batch_size : int, optional
            How many rows to explain at a time; by default as many as memory allows, up to 1024.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`.
        sparse : bool, default False
            Weights as a scipy.sparse CSR array, for forests and neighbours at the cost of the leaves met.
        """
        inputs.as_flag(sparse, "sparse")
        proven = self.proven
        queries = proven.queries(X, init_score)
        given = None if batch_size is None else inputs.as_count(batch_size, "batch_size")
        size = given or proven.budget.batch_size(proven.dense_bytes())
        proven.require(size, "Take a smaller batch_size or raise memory_limit.")
        return (Explanation(sums, module_of(X)) for sums in batches(proven, queries, size, sparse))

    def top(self, X: Any, k: int = 10, by: str | None = None, init_score: Any = None, *, per_class: bool = True) -> Any:
        """The table of `Explanation.top`, for any number of rows of X: never holds an (n, n_train) array.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        k : int
            How many training rows per prediction.
        by : "weight" or "contribution", default "weight"
            What the largest are the largest of, in absolute value.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`.
        per_class : True
            A line for each class. False is for `Explanation.top` and `similar`.
        """
        tables.check_by(by)
        tables.check_per_class(per_class)
        k = inputs.as_count(k, "k")
        proven = self.proven
        return top(proven, proven.queries(X, init_score), k, by or "weight")

    def _stream(self, X: Any, init_score: Any) -> Stream:
        proven = self.proven
        queries = proven.queries(X, init_score)
        return Stream(
            rows=queries.rows,
            batches=lambda size: batches(proven, queries, size, proven.is_sparse, even_empty=True),
            n_targets=proven.targets.shape,
            index=lambda: proven.index,
            outputs=proven.outputs,
            backend=proven.backend,
            budget=proven.budget,
            bytes_per_query=proven.dense_bytes(),
            features=proven.features,
            feature_names=proven.adapter.feature_names,
            is_shared=proven.adapter.classes is not None and len(proven.engines) == 1,
            fitted=lambda: proven.kept.get("fitted", proven.fitted),
        )

    def matrix(self) -> Array:
        """K (n_train, n_train), or (K, n_train, n_train): row i has the weights of the prediction of training row i."""
        proven, n = self.proven, len(self.proven.targets)
        proven.require(n, STREAM)
        weights = [engine.ask(None).dense() for engine in proven.prepared_for(n).engines]
        return weights[0] if len(weights) == 1 else np.stack(weights)

    @property
    def operator(self) -> LinearOperator:
        """K as a linear operator: ``operator @ v`` replays the fit with v for targets, ``operator.T @ u`` is K'u."""
        engines = self.proven.engines
        if len(engines) > 1:
            raise InputError(f"This model has {len(engines)} outputs with trees of their own; use explainer.matrix().")
        n, engine = len(self.targets), engines[0]
        return LinearOperator(
            (n, n),
            matvec=lambda v: engine.apply(None, np.reshape(v, (n, 1)).astype(float))[:, 0],
            rmatvec=lambda u: engine.combine(None, np.reshape(u, (n, 1)).astype(float))[:, 0],
            matmat=lambda v: engine.apply(None, v.astype(float)),
            rmatmat=lambda u: engine.combine(None, u.astype(float)),
            dtype=np.float64,
        )

    def prepare(self) -> Explainer:
        """Build leaf space now, so that every later query is fast; see docs/scaling.md.

        The first query builds it by itself where 64 queries pay for it. Elsewhere answers differ from those before this call in
        their last bits. A file that `save` writes later is loaded prepared.
        """
        self._proven = self.proven.prepared()
        return self

    def save(self, path: Any) -> None:
        """Write all but the model to one .npz file, without pickle; see `axil.load`.

        An explainer made with ``verify=False`` is not saved: a file that could say so could switch the proof off.

        Parameters
        ----------
        path : str or path
            The .npz file to write.
        """
        storage.save(path, self.proven)


def loaded(file: Archive, model: Any, limits: Limits, X_train: Any = None, inverse_func: Any = None) -> Explainer:
    """An explainer that `Explainer.save` wrote, for the same fitted model; see `axil.load`."""
    return Explainer._of(storage.load(file, adapters.read(model), limits, X_train, inverse_func))


def limits_of(
    n_threads: int | None, memory_limit: int | str | None, scratch: Any = None, device: str = "cpu"
) -> Limits:
    """The limits that the user sets, or else the machine: a thread for each processor that this process may use, free memory."""
    if n_threads is not None:
        threads = inputs.as_count(n_threads, "n_threads", most=inputs.MOST_THREADS)
    else:
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = None if memory_limit is None else inputs.as_bytes(memory_limit)
    found = chosen(inputs.as_choice(device, DEVICES, "device"))
    budget = budget_of(found, limit, None if scratch is None else inputs.as_directory(scratch))
    return Limits(threads, budget, found)
