"""Explainer: read a fitted model, prove that it belongs to its training data, answer with weights."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from axil import adapters, inputs, storage, tables
from axil.adapters.base import Adapter
from axil.errors import ExactnessError, InputError
from axil.explanation import Explanation
from axil.leaf_space import LeafSpace
from axil.memory import Budget
from axil.operators import Operators
from axil.progress import track
from axil.verify import Verification, build

Array = NDArray[np.float64]

BATCH_BYTES = 1 << 28  # of weights held at a time while streaming
READ_ROWS = 1 << 13  # training rows read out of leaf space at a time while streaming
STREAM = "Use explainer.top(X) for the largest weights or explainer.iter(X) for batches, or raise memory_limit."


class Explainer:
    """Which training rows made a prediction, and by exactly how much, with the fitted structure held fixed.

    Construction replays the fit on the training data and raises `ExactnessError` unless leaf counts, leaf values and
    predictions agree; a model that is not linear in its targets raises `UnsupportedModelError`. Every explanation is
    checked against the model's own predictions again.

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

    def __init__(
        self,
        model: Any,
        X_train: Any,
        y_train: Any,
        sample_weight: Any = None,
        init_score: Any = None,
        *,
        n_threads: int | None = None,
        memory_limit: int | str | None = None,
        verify: bool = True,
    ):
        threads, budget = _threads(n_threads), _budget(memory_limit)
        adapter = adapters.read(model)
        X_train = inputs.as_features(X_train, adapter, "X_train")
        n_train = X_train.shape[0]
        if n_train == 0:
            raise InputError("X_train has no rows; expected the rows that the model was fitted on.")
        targets = inputs.as_vector(y_train, n_train, "y_train")
        weights = inputs.as_weights(sample_weight, n_train)
        offsets = None if init_score is None else inputs.as_vector(init_score, n_train, "init_score")
        operators, verification = build(adapter, X_train, targets, weights, offsets, threads, budget, verify)
        labels, backend = inputs.row_labels(X_train), tables.backend_of(X_train)
        self._set(adapter, operators, targets, labels, backend, budget, verification)

    def _set(
        self,
        adapter: Adapter,
        operators: Operators,
        targets: Array,
        index: NDArray[Any],
        backend: str,
        budget: Budget,
        verification: Verification | None,
    ) -> None:
        self._adapter = adapter
        self._operators = operators
        self.targets = targets
        self.index = index
        self._backend = backend
        self._budget = budget
        self.verification = verification

    def __repr__(self) -> str:
        s = self._operators.structure
        proof = "not verified" if self.verification is None else f"verified to {self.verification.max_error:.1e}"
        return f"<axil.Explainer: {self._adapter.library}, {s.n_trees} trees, {s.n_rows} training rows, {proof}>"

    def __call__(self, X: Any, init_score: Any = None) -> Explanation:
        """The same as `explain`."""
        return self.explain(X, init_score)

    def explain(self, X: Any, init_score: Any = None) -> Explanation:
        """The weight of every training target in the prediction of every row of X; 8 * n * n_train bytes.

        ``init_score`` (n,): offsets of the rows of X, added to what the model itself predicts.
        """
        X, offsets = self._queries(X, init_score)
        n = X.shape[0]
        self._budget.require(8 * n * len(self.targets), f"The weights of {n} x {len(self.targets)} rows", STREAM)
        self._prepare_if_it_pays(n)
        return self._explain(X, offsets, inputs.row_labels(X))

    def iter(self, X: Any, batch_size: int | None = None, init_score: Any = None) -> Iterator[Explanation]:
        """Explanations of X batch by batch, so that never more than one batch of weights is held."""
        X, offsets = self._queries(X, init_score)
        size = self._batch_size() if batch_size is None else inputs.as_count(batch_size, "batch_size")
        self._budget.require(
            8 * size * len(self.targets), f"A batch of {size} explanations", "Take a smaller batch_size."
        )
        self._prepare_if_it_pays(X.shape[0])
        labels = inputs.row_labels(X)
        parts = (slice(start, start + size) for start in range(0, X.shape[0], size))
        return (self._explain(inputs.take_rows(X, part), offsets[part], labels[part]) for part in parts)

    def top(self, X: Any, k: int = 10, by: str = "weight", init_score: Any = None) -> Any:
        """As `Explanation.top`, for any number of rows of X: never holds an (n, n_train) array."""
        tables.check_by(by)
        k = inputs.as_count(k, "k")
        X, offsets = self._queries(X, init_score)
        n, size = X.shape[0], self._batch_size()
        self._prepare_if_it_pays(n)
        labels, parts = inputs.row_labels(X), []
        for start in track(range(0, max(n, 1), size), "top"):
            part = slice(start, start + size)
            largest = tables.Largest(len(labels[part]), k, self.targets, by, self._operators.n_threads)
            self._stream(inputs.take_rows(X, part), offsets[part], labels[part], largest)
            parts.append(largest.columns(self.index, labels[part]))
        return tables.concatenate(parts, self._backend)

    def matrix(self) -> Array:
        """K (n_train, n_train): row i holds the weights of the prediction of training row i."""
        s = self._operators.structure
        self._budget.require(8 * s.n_rows**2, f"The matrix of {s.n_rows} x {s.n_rows} weights", STREAM)
        self._prepare_if_it_pays(s.n_rows)
        return self._operators.weights(s.leaves.T)[0]

    @property
    def operator(self) -> LinearOperator:
        """K as a linear operator: ``operator @ v`` replays the fit with v for targets, ``operator.T @ u`` is K'u."""
        n = len(self.targets)
        forward, backward = self._operators.forward, self._operators.backward
        return LinearOperator(
            (n, n),
            matvec=lambda v: forward(np.reshape(v, (n, 1)).astype(float))[0][:, 0],
            rmatvec=lambda u: backward(np.reshape(u, (n, 1)).astype(float))[:, 0],
            matmat=lambda v: forward(v.astype(float))[0],
            rmatmat=lambda u: backward(u.astype(float)),
            dtype=np.float64,
        )

    def prepare(self) -> Explainer:
        """Build leaf space now, so that every later query is fast; it is otherwise built when that pays."""
        needed = LeafSpace.size(self._operators.structure.total_leaves)
        self._budget.require(needed, "Leaf space", "Explanations work without it, by sweeps over the trees.")
        self._operators.prepare()
        return self

    def save(self, path: Any) -> None:
        """Write all but the model to one .npz file, without pickle; see `axil.load`."""
        found = None if self.verification is None else vars(self.verification)
        header = {"fingerprint": self._adapter.fingerprint, "backend": self._backend, "verification": found}
        storage.save(path, header, self._operators.structure, self.targets, self.index)

    def _queries(self, X: Any, init_score: Any) -> tuple[Any, Array]:
        """X and the offsets of its rows, checked."""
        X = inputs.as_features(X, self._adapter, "X")
        n = X.shape[0]
        return X, np.zeros(n) if init_score is None else inputs.as_vector(init_score, n, "init_score", "explained")

    def _batch_size(self) -> int:
        held = min(BATCH_BYTES, self._budget.available // 2)
        return int(max(1, min(held // (8 * len(self.targets)), 4096)))

    def _prepare_if_it_pays(self, n_queries: int) -> None:
        fits = 2 * LeafSpace.size(self._operators.structure.total_leaves) <= self._budget.available
        if self._operators.leaf_space is None and fits and self._operators.prepare_pays(n_queries):
            self._operators.prepare()

    def _explain(self, X: Any, offsets: Array, labels: NDArray[Any]) -> Explanation:
        weights, adjoints = self._operators.weights(self._leaves(X))
        intercepts = self._operators.intercepts(adjoints) + offsets
        threads = self._operators.n_threads
        explanation = Explanation(
            weights, intercepts, self.targets, self.index, labels, backend=self._backend, n_threads=threads
        )
        self._check(X, explanation.predictions - offsets, labels)
        return explanation

    def _stream(self, X: Any, offsets: Array, labels: NDArray[Any], largest: tables.Largest) -> None:
        """Hand the weights of X, training rows first, to ``largest``, in blocks where leaf space allows it."""
        if self._operators.leaf_space is None:
            explanation = self._explain(X, offsets, labels)
            largest.add(explanation.weights.T, 0)
            return
        adjoints = self._operators.adjoints(self._leaves(X))
        predictions = self._operators.intercepts(adjoints)
        for first in range(0, len(self.targets), READ_ROWS):
            targets = self.targets[first : first + READ_ROWS]
            block = np.empty((len(targets), len(labels)))
            self._operators.read_out(adjoints, first, block)
            predictions += targets @ block
            largest.add(block, first)
        self._check(X, predictions, labels)

    def _leaves(self, X: Any) -> NDArray[np.integer[Any]]:
        return self._adapter.leaves(X)

    def _check(self, X: Any, predictions: Array, labels: NDArray[Any]) -> None:
        """Compare with what the model predicts, on every use."""
        if self.verification is None or not len(predictions):
            return
        expected = self._adapter.predictions(X)
        error = np.abs(predictions - expected)
        worst = int(error.argmax())
        scale = max(self.verification.scale, float(np.abs(expected).max()))
        if not error[worst] <= self._adapter.tolerance * scale:
            raise ExactnessError(
                f"prediction of row {labels[worst]!r}",
                float(predictions[worst]),
                float(expected[worst]),
                "The model may have changed since the explainer was made: make a new one.",
            )


def load(path: Any, model: Any, n_threads: int | None = None, memory_limit: int | str | None = None) -> Explainer:
    """An explainer saved with `Explainer.save`, for the same fitted model."""
    threads, budget = _threads(n_threads), _budget(memory_limit)
    adapter = adapters.read(model)
    header, structure, targets, index = storage.load(path)
    if header["fingerprint"] != adapter.fingerprint:
        raise InputError(f"{path} was saved for another model than the {adapter.library} model given. Pass that model.")
    verification = None if header["verification"] is None else Verification(**header["verification"])
    explainer = Explainer.__new__(Explainer)
    operators = Operators(structure, threads)
    explainer._set(adapter, operators, targets, index, header["backend"], budget, verification)
    return explainer


def _threads(n_threads: int | None) -> int:
    if n_threads is not None:
        return inputs.as_count(n_threads, "n_threads")
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _budget(memory_limit: int | str | None) -> Budget:
    return Budget(None if memory_limit is None else inputs.as_bytes(memory_limit))
