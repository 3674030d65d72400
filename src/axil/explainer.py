"""Explainer: read a fitted model, prove that it belongs to its training data, answer with weights."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator

from axil import adapters, inputs
from axil.adapters.contract import Model
from axil.errors import ExactnessError, InputError
from axil.explanation import Explanation
from axil.inputs.owned import frozen, owned, owned_rows
from axil.machine.memory import Budget
from axil.machine.progress import track
from axil.machine.shared import Kept
from axil.output import save as storage
from axil.output import tables
from axil.output.page import Context
from axil.questions import write as writing
from axil.questions.asking import Offsets, dense_bytes
from axil.questions.questions import Questions
from axil.replay import mistakes
from axil.replay.build import build, checked_rows, confirm, tree_engine
from axil.replay.checks import Verification, check_answer
from axil.weights.answers import Answer
from axil.weights.contract import Engine

Array = NDArray[np.float64]

BATCH_BYTES = 1 << 28  # of weights held at a time while streaming
MOST_QUERIES = 1024  # of a batch: more are no faster
STREAM = "Use explainer.top(X) for the largest weights or explainer.iter(X) for batches, or raise memory_limit."


class Explainer(Questions):
    """Which training rows made a prediction, and by exactly how much, with the fitted structure held fixed.

    Construction replays the fit on the training data and raises `ExactnessError` unless leaf counts, leaf values and
    predictions agree; a model that is not linear in its targets raises `UnsupportedModelError`. Every explanation is
    checked against the model's own predictions again.

    All answers are about the data and the model as they were then: the explainer keeps copies (of large arrays too, unless they
    are read-only), so that neither a later change of the data nor a refit of the model moves them.

    ``memory_limit`` (bytes, or text such as "2GiB"): what one request may take; by default most of what is free. ``scratch``: a
    directory for the leaf numbers of all training rows, N * T bytes, which are otherwise kept in memory.

    An explainer may be asked from many threads at once, and stays right after any exception, Ctrl-C among them. The same
    request gives the same bits whatever was asked before; see docs/scaling.md.

    >>> from lightgbm import LGBMRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = LGBMRegressor(verbose=-1).fit(X, y)
    >>> explainer = Explainer(model, X, y)
    >>> explanation = explainer(X.head(3))
    >>> bool(abs(explanation.predictions - model.predict(X.head(3))).max() < 1e-6 * y.max())
    True
    """

    verification: Verification | None  #: what the replay found; None with ``verify=False``
    _features: Any

    def __init__(
        self,
        model: Any,
        X_train: Any,
        y_train: Any,
        sample_weight: Any = None,
        init_score: Any = None,
        bags: Any = None,
        *,
        n_threads: int | None = None,
        memory_limit: int | str | None = None,
        scratch: Any = None,
        verify: bool = True,
    ):
        threads, budget = threads_of(n_threads), budget_of(memory_limit, scratch)
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
        targets = owned(inputs.as_targets(y_train, n_train, adapter.n_outputs, adapter.classes))
        weights = inputs.as_weights(sample_weight, n_train)
        offsets = inputs.as_offsets(init_score, n_train, adapter.n_outputs, "training")
        bags = inputs.as_bags(bags, n_train)
        if not verify:
            mistakes.refuse_other_order(*given)
        rest = offsets, bags, threads, budget
        try:
            engines, verification = build(adapter, X_train, targets, weights, *rest, verify)
        except ExactnessError as error:
            data = mistakes.Given(X_train, targets, weights, given)
            raise mistakes.told(error, adapter, data, lambda X, y, w: build(adapter, X, y, w, *rest)) from None
        labels, backend = inputs.row_labels(X_train), tables.backend_of(X_train)
        self._set(adapter, engines, targets, labels, backend, threads, budget, verification)
        self._features = X_train  # for tables of features; not saved

    def _set(
        self,
        adapter: Model,
        engines: list[Engine],
        targets: Array,
        index: NDArray[Any],
        backend: str,
        n_threads: int,
        budget: Budget,
        verification: Verification | None,
    ) -> None:
        self._adapter = adapter
        self._engines = engines  # one for all outputs that share trees, else one for each
        self._targets = targets = frozen(targets)  # (N, K)
        self._outputs_of = [slice(None)] if len(engines) == 1 else [slice(k, k + 1) for k in range(len(engines))]
        self._targets_of = [np.ascontiguousarray(targets[:, own]) for own in self._outputs_of]  # engine by engine
        self.targets = targets[:, 0] if targets.shape[1] == 1 else targets
        self.index = frozen(index)
        self._backend = backend
        self._n_threads = n_threads
        self._budget = budget
        self.verification = verification
        self._features = None
        self._kept = Kept()  # leverages and noise, once they are known

    def __repr__(self) -> str:
        proof = "not verified" if self.verification is None else f"verified to {self.verification.max_error:.1e}"
        return f"<axil.Explainer: {self._adapter.library}, {len(self.targets)} training rows, {proof}>"

    @property
    def outputs(self) -> NDArray[Any] | None:
        """(K,): the names of the classes or the numbers of the outputs; None for a single output."""
        if self._targets.shape[1] == 1:
            return None
        return np.arange(self._targets.shape[1]) if self._adapter.classes is None else self._adapter.classes

    def __call__(self, X: Any, init_score: Any = None, sparse: bool = False) -> Explanation:
        """The same as `explain`."""
        return self.explain(X, init_score, sparse)

    def explain(self, X: Any, init_score: Any = None, sparse: bool = False) -> Explanation:
        """The weight of every training target in the prediction of every row of X; 8 * n * n_train bytes.

        ``init_score`` (n,): offsets of the rows of X, added to what the model itself predicts; of XGBoost their base_margin,
        which takes the place of base_score, as in its own ``predict``. ``sparse``: weights as a scipy.sparse CSR array, for
        forests and neighbours at the cost of the leaves met.
        """
        X, offsets = self._queries(X, init_score)
        if not (inputs.as_flag(sparse, "sparse") and self._engines[0].is_sparse):
            self._require(X.shape[0], STREAM)
        taken = 8 * X.shape[0] * len(self.targets) * len(self._engines)
        answers = self._ask(X, self._engines_for(X.shape[0], taken), offsets.base)
        return self._explanation(X, answers, offsets, inputs.row_labels(X), sparse)

    def iter(
        self, X: Any, batch_size: int | None = None, init_score: Any = None, sparse: bool = False
    ) -> Iterator[Explanation]:
        """Explanations of X batch by batch, so that never more than one batch of weights is held."""
        inputs.as_flag(sparse, "sparse")
        X, offsets = self._queries(X, init_score)
        size = self._batch_size(dense_bytes(self)) if batch_size is None else inputs.as_count(batch_size, "batch_size")
        self._require(size, "Take a smaller batch_size or raise memory_limit.")
        n, labels = X.shape[0], inputs.row_labels(X)
        engines = self._engines_for(n)

        def explained() -> Iterator[Explanation]:
            for start in track(range(0, n, size), "explain"):
                part = slice(start, start + size)
                batch = inputs.take_rows(X, part)
                answers = self._ask(batch, engines, offsets.base)
                yield self._explanation(batch, answers, offsets[part], labels[part], sparse)

        return explained()

    def top(self, X: Any, k: int = 10, by: str = "weight", init_score: Any = None) -> Any:
        """As `Explanation.top`, for any number of rows of X: never holds an (n, n_train) array."""
        tables.check_by(by)
        k = inputs.as_count(k, "k")
        X, offsets = self._queries(X, init_score)
        n, labels, parts = X.shape[0], inputs.row_labels(X), []
        lines = min(k, len(self.targets)) * self._targets.shape[1]
        engines = self._engines_for(n, tables.bytes_of(n * lines, 7))
        working = sum(engine.streamed_bytes() for engine in engines) + 12 * 8 * lines
        size = self._table_batch(n, lines, 6 if self.outputs is None else 7, working)
        for start in track(range(0, max(n, 1), size), "top"):
            part = slice(start, start + size)
            batch, own = inputs.take_rows(X, part), labels[part]
            largest = [tables.Largest(len(own), k, y, by, self._n_threads) for y in self._targets.T]
            self._stream(batch, self._ask(batch, engines, offsets.base), offsets[part], own, largest)
            parts.append(tables.top_columns(largest, self.index, own, self.outputs))
        return tables.concatenate(parts, self._backend)

    def write(self, X: Any, path: Any, init_score: Any = None) -> None:
        """Write the weights of all rows of X to a path that ends in .parquet or .zarr, batch by batch.

        Parquet has one line a query (and output): its label, prediction, intercept and weights as a list in the order of the
        training rows. zarr has arrays: weights (n, n_train), predictions, intercepts, query_index and index. Labels other than
        numbers, dates and text are written as text.
        """
        X, _ = self._queries(X, None)
        if X.shape[0] == 0:
            raise InputError("X has no rows, so there is nothing to write.")
        n_outputs = self._targets.shape[1]
        size = self._batch_size(8 * len(self.targets) * (len(self._engines) + 2 * n_outputs))  # copies on the way
        explanations = self.iter(X, size, init_score)
        writing.write(explanations, inputs.row_labels(X), self.index, n_outputs, path)

    def matrix(self) -> Array:
        """K (n_train, n_train), or (K, n_train, n_train): row i has the weights of the prediction of training row i."""
        n = len(self.targets)
        self._require(n, STREAM)
        weights = [engine.ask_training_rows().dense() for engine in self._engines_for(n)]
        return weights[0] if len(weights) == 1 else np.stack(weights)

    @property
    def operator(self) -> LinearOperator:
        """K as a linear operator: ``operator @ v`` replays the fit with v for targets, ``operator.T @ u`` is K'u."""
        if len(self._engines) > 1:
            raise InputError(
                f"This model has {len(self._engines)} outputs with trees of their own; use explainer.matrix()."
            )
        n, engine = len(self.targets), self._engines[0]
        return LinearOperator(
            (n, n),
            matvec=lambda v: engine.forward(np.reshape(v, (n, 1)).astype(float))[:, 0],
            rmatvec=lambda u: engine.backward(np.reshape(u, (n, 1)).astype(float))[:, 0],
            matmat=lambda v: engine.forward(v.astype(float)),
            rmatmat=lambda u: engine.backward(u.astype(float)),
            dtype=np.float64,
        )

    def prepare(self) -> Explainer:
        """Build leaf space now, so that every later query is fast; otherwise it is used where a request by itself pays for it.

        Weights may then differ from those before in their last bits; see docs/scaling.md.
        """
        needed = sum(engine.preparation() for engine in self._engines)
        self._budget.require(needed, "Leaf space", "Explanations work without it, by sweeps over the trees.")
        self._engines = [engine.prepared() for engine in self._engines]
        return self

    def save(self, path: Any) -> None:
        """Write all but the model to one .npz file, without pickle; see `axil.load`.

        An explainer made with ``verify=False`` is not saved: a file that could say so could switch the proof off.
        """
        if self.verification is None:
            raise InputError(
                "This explainer was made with verify=False, and only a proven one is saved. Make it with verify=True."
            )
        found = vars(self.verification)
        header = {"fingerprint": self._adapter.fingerprint, "backend": self._backend, "verification": found}
        storage.save(path, header, [engine.structure for engine in self._engines], self._targets, self.index)

    def _queries(self, X: Any, init_score: Any) -> tuple[Any, Offsets]:
        """X and the offsets of its rows, checked."""
        X = inputs.as_features(X, self._adapter, "X", self._features)
        return X, Offsets.of(init_score, X.shape[0], self._adapter)

    def _require(self, n: int, instead: str) -> None:
        n_train = len(self.targets)
        self._budget.require(8 * n * n_train * len(self._engines), f"The weights of {n} x {n_train} rows", instead)

    def _batch_size(self, bytes_a_query: int, taken: int = 0) -> int:
        """How many queries to ask at a time, where so many bytes are or will be taken by something else."""
        held = min(
            BATCH_BYTES, (self._budget.available - taken) // 4
        )  # the batch before may still be there, and work goes on
        return int(max(1, min(held // bytes_a_query, MOST_QUERIES)))

    def _table_batch(self, n: int, lines: int, columns: int, working: int) -> int:
        """The same for a table of so many lines per query, once there is room for it and for one query's work."""
        table = tables.bytes_of(n * lines, columns)
        self._budget.require(table + working, f"The table of {n * lines} lines", tables.SMALLER)
        return self._batch_size(working, table)

    def _engines_for(self, n_queries: int, taken: int = 0) -> list[Engine]:
        """The engines to ask so many queries, the same whatever was asked before, where so many bytes are taken."""
        return [engine.prepared_for(n_queries, self._budget.available - taken) for engine in self._engines]

    def _ask(self, X: Any, engines: list[Engine], base: float) -> list[Answer]:
        """The engines' answers about the rows of X."""
        coordinates = self._adapter.coordinates(X, self._n_threads)
        return [engine.ask(coordinates, base) for engine in engines]

    def _explanation(
        self, X: Any, answers: list[Answer], offsets: Offsets, labels: NDArray[Any], sparse: bool = False
    ) -> Explanation:
        if len(answers) > 1:
            weights: Any = np.stack([answer.dense() for answer in answers])
        else:
            known = answers[0].sparse() if sparse else None
            weights = known if known is not None else answers[0].dense()
            weights = csr_array(weights) if sparse else weights
        intercepts = self._intercepts(answers) + offsets.values
        explanation = Explanation(
            weights=weights,
            intercepts=intercepts[:, 0] if self.outputs is None else intercepts,
            targets=self.targets,
            index=self.index,
            query_index=labels,
            outputs=self.outputs,
            backend=self._backend,
            n_threads=self._n_threads,
        )
        known = self._check(X, explanation.predictions.reshape(intercepts.shape), labels, offsets)
        return replace(explanation, context=Context(owned_rows(X), self._features, self._adapter.feature_names, known))

    def _stream(
        self, X: Any, answers: list[Answer], offsets: Offsets, labels: NDArray[Any], largest: list[tables.Largest]
    ) -> None:
        """Hand the weights to ``largest``, one for each output."""
        made = self._intercepts(answers) + offsets.values
        for own, targets, answer in zip(self._outputs_of, self._targets_of, answers):
            made[:, own] += answer.product(targets)
            for one in largest[own]:
                answer.hand_to(one)
        self._check(X, made, labels, offsets)

    def _intercepts(self, answers: list[Answer]) -> Array:
        """(n, K)."""
        parts = np.concatenate([answer.intercepts for answer in answers], axis=1)
        return np.array(np.broadcast_to(parts, (len(parts), self._targets.shape[1])))

    def _check(self, X: Any, predictions: Array, labels: NDArray[Any], offsets: Offsets | None = None) -> Array | None:
        """Compare with what the model predicts, with offsets, on every use, and give that."""
        own = partial(self._adapter.predictions if offsets is None else partial(offsets.predictions, self._adapter), X)
        return check_answer(self._adapter, self.verification, predictions, labels, own)


def load(
    path: Any, model: Any, n_threads: int | None = None, memory_limit: int | str | None = None, X_train: Any = None
) -> Explainer:
    """An explainer saved with `Explainer.save`, for the same fitted model; ``X_train`` only for `Explainer.similar`.

    The file may come from anywhere: its parts must fit each other and the model, what it states of its proof must follow from
    its arrays, and every answer is compared with the model's predictions, whatever the file says. That the labels and targets
    are those of the fit only the training data could show.
    """
    threads, budget = threads_of(n_threads), budget_of(memory_limit, None)
    adapter = adapters.read(model)
    header, structures, targets, index = storage.load(path, budget)
    if header.get("fingerprint") != adapter.fingerprint:
        raise InputError(f"{path} was saved for another model than the {adapter.library} model given. Pass that model.")
    if targets.shape[1] != adapter.n_outputs:
        raise InputError(f"{path} has {targets.shape[1]} outputs; the {adapter.library} model has {adapter.n_outputs}.")
    cells = sum(int(structure.cell_starts[-1]) for structure in structures)
    budget.require(24 * cells * targets.shape[1], f"The sums over the leaves of {path}", "Raise memory_limit.")
    engines = [tree_engine(structure, threads) for structure in structures]
    try:
        verification, fitted = confirm(adapter, engines, targets, header.get("verification"))
        backend = tables.as_backend(header.get("backend"))
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(storage.damaged(path, error)) from error
    explainer = Explainer.__new__(Explainer)
    explainer._set(adapter, engines, targets, index, backend, threads, budget, verification)
    if X_train is not None:
        explainer._features = owned_rows(inputs.as_features(X_train, adapter, "X_train"))
        if explainer._features.shape[0] != len(targets):
            raise InputError(
                f"X_train has {explainer._features.shape[0]} rows; the explainer was made of {len(targets)}."
            )
        some = checked_rows(len(targets))
        explainer._check(inputs.take_rows(explainer._features, some), fitted[some], index[some])
    return explainer


def threads_of(n_threads: int | None) -> int:
    """How many threads to use: as the user says, or one for each processor that this process may use."""
    if n_threads is not None:
        return inputs.as_count(n_threads, "n_threads", most=inputs.MOST_THREADS)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def budget_of(memory_limit: int | str | None, scratch: Any = None) -> Budget:
    """The budget that the user sets, or that the machine does."""
    limit = None if memory_limit is None else inputs.as_bytes(memory_limit)
    return Budget(limit, None if scratch is None else inputs.as_directory(scratch))
