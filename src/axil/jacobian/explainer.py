"""JacobianExplainer: pushes that add up to a score, and derivatives by targets, where no exact weights can exist."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.errors import UnsupportedQuestionError, counted
from axil.explainer import limits_of
from axil.explanation import Explanation
from axil.inputs.owned import frozen, owned, owned_rows
from axil.jacobian import saved, tabled
from axil.jacobian.asked import Asked
from axil.jacobian.audit import LabelAudit
from axil.jacobian.base import OUTPUTS, Differentiated
from axil.jacobian.boosting import Boosting
from axil.jacobian.questions import BoostedQuestions
from axil.jacobian.readers import Report, as_rows, copied, read
from axil.machine.arrays import module_of
from axil.machine.limits import Limits
from axil.machine.memory import BATCH_BYTES
from axil.machine.progress import track
from axil.output import tables
from axil.output.account import Account
from axil.output.archive import Archive
from axil.output.context import Context
from axil.output.sums import WeightedSums
from axil.questions.explain import STREAM
from axil.questions.stream import Stream
from axil.questions.streamed import Streamed
from axil.replay.queries import Offsets
from axil.types import Array

Sums = Callable[[Asked, NDArray[Any]], WeightedSums]  # rows and their labels -> sums


class JacobianExplainer(BoostedQuestions, LabelAudit, Streamed):
    """Scores of boosted models as sums of pushes, for every loss, and derivatives of smooth models by their training targets.

    Boosted trees (``kind`` "additive"): a push is what a row's own gradients put into a score. Contributions are pushes and
    intercepts base and offsets; together they are the raw score, exactly. ``weights`` are derivatives, computed when asked for.

    Other smooth models (``kind`` "jacobian") have derivatives alone, ``J[i, j] = d prediction_i / d y_j``: how a prediction moves
    with each target, for small changes, structure held fixed. J times the targets is not the prediction: intercepts are
    ``predictions - J @ targets``, so that weights times targets plus intercepts is the prediction all the same. For models
    that are linear in their targets J is the exact weights.

    Of two classes there is one output, the second class, and targets are 0 and 1; more classes have an output each, which is
    differentiated by its own column of the one-hot targets; `derivatives` has the other columns.

    Parameters
    ----------
    model : fitted model
        A model of any library that axil reads, or a pipeline that ends in one.
    X_train : table
        The rows that the model was fitted on, in the order of the fit.
    y_train : array of shape (n_train,) or (n_train, K)
        Their targets, or classes.
    sample_weight : array of shape (n_train,), optional
        The weights of the fit.
    init_score : array of shape (n_train,) or (n_train, K), optional
        The offsets of the fit, such as logarithms of exposures: XGBoost's base_margin, CatBoost's baseline.
    output : "raw" or "probability"
        What weights differentiate: scores, or what the link makes of them: probabilities of classes, the expected value of a
        Poisson, gamma or Tweedie target. Contributions are of scores either way.
    loss : optional
        The loss of a model that does not say what it was fitted to.
    objective : function, optional
        Your own objective, for a LightGBM or XGBoost model that was fitted with it, with its library's signature:
        ``(scores, data set)`` for a Booster, ``(labels, scores)`` for an estimator, whose own function is known already.
    index : sequence of length n_train, or str, optional
        The labels of the training rows, or the name of a column of X_train that has them; by default the index of a pandas frame,
        else positions from 0.
    n_threads : int, optional
        How many threads to use; by default one for each processor that the process may use.
    memory_limit : int or str, optional
        The bytes that one request may take, or text such as "2GiB"; by default most of what is free.
    verify : bool, default True
        Prove that model and data belong together. Without it no answer is compared with the model.
    device : "cpu", "cuda" or "auto", default "cpu"
        Where pushes and derivatives of boosted trees are computed: on the cores, on an NVIDIA GPU through CuPy, or there if there
        is one. The replay of the fit, and all other models, are worked out on the cores.

    Examples
    --------
    >>> from lightgbm import LGBMClassifier
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> model = LGBMClassifier(n_estimators=20, verbose=-1).fit(X, y)
    >>> JacobianExplainer(model, X, y, output="probability")(X.head(3))
    <axil.Explanation: 3 predictions by 569 training rows, pushes that add up to the score, structure held fixed>
    """

    exact = False
    verification: Report | None  #: findings of the replay, or of the check of the optimum; None with ``verify=False``

    def __init__(
        self,
        model: Any,
        X_train: Any,
        y_train: Any,
        sample_weight: Any = None,
        init_score: Any = None,
        *,
        output: str = "raw",
        loss: Any = None,
        objective: Any = None,
        index: Any = None,
        n_threads: int | None = None,
        memory_limit: int | str | None = None,
        verify: bool = True,
        device: str = "cpu",
    ):
        limits = limits_of(n_threads, memory_limit, device=device)
        output, verify = inputs.as_choice(output, OUTPUTS, "output"), inputs.as_flag(verify, "verify")
        X_train = owned_rows(as_rows(X_train))
        y_train, sample_weight, init_score = map(copied, (y_train, sample_weight, init_score))
        given = model, X_train, y_train, sample_weight, init_score, output, loss
        settings: dict[str, Any] = {"limits": limits, "verify": verify}
        settings |= {} if objective is None else {"objective": objective}
        self._model = read(given, settings)
        features = X_train if hasattr(X_train, "shape") else None
        labels = inputs.row_index(index, features, self._model.feature_names, len(self._model.targets))
        self._set(self._model, frozen(labels), features, inputs.backend_of(X_train), limits)

    def _set(self, model: Differentiated, index: NDArray[Any], features: Any, backend: str, limits: Limits) -> None:
        self._model, self.index, self._backend = model, index, backend
        self._targets = frozen(model.targets)
        self.targets = self._targets[:, 0] if model.outputs is None else self._targets
        self.outputs = None if model.outputs is None else owned(model.outputs)
        self.verification = Report(model.report) if model.report else None
        self._features = features  # for tables of features
        self._n_threads, self._budget = limits.n_threads, limits.budget

    @classmethod
    def _of(
        cls, model: Boosting, index: NDArray[Any], features: Any, backend: str, limits: Limits
    ) -> JacobianExplainer:
        """An explainer of a model that is proven already, such as `axil.load` reads from a file."""
        explainer = cls.__new__(cls)  # past the reading and the proof, which are done
        cls._set(explainer, model, index, features, backend, limits)
        return explainer

    @property
    def report(self) -> Report:
        """`verification` under its earlier name; empty with ``verify=False``."""
        return Report() if self.verification is None else self.verification

    def __repr__(self) -> str:
        proof = "verified" if self.verification else "not verified"
        kind = "pushes that add up to the score" if self.kind == "additive" else "derivative"
        rows = counted(len(self.targets), "training row")
        return f"<axil.JacobianExplainer: {self._model.library}, {rows}, {kind}, {proof}>"

    def __call__(self, X: Any, init_score: Any = None) -> Explanation:
        """Calls `explain`.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`. Of boosted trees only.
        """
        return self.explain(X, init_score)

    def explain(self, X: Any, init_score: Any = None) -> Explanation:
        """The pushes of every training row on the score of every row of X, or its derivatives by the targets.

        8 * n * n_train bytes and more, for each output.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, such as logarithms of their exposures. They are added to the model's own scores; for XGBoost
            they are its base_margin, which takes the place of base_score, as in its own ``predict``. Intercepts hold them, and
            probabilities, means and derivatives of these are those of scores with offsets. Of boosted trees only.
        """
        module, asked = module_of(X), self._asked(X, init_score)
        self._require(len(asked), STREAM)
        return Explanation(self._sums(asked, asked.labels), module)

    def iter(self, X: Any, batch_size: int | None = None, init_score: Any = None) -> Iterator[Explanation]:
        """Explanations of X batch by batch, so that never more than one batch of derivatives is held.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        batch_size : int, optional
            How many rows to explain at a time; by default as many as memory allows, up to 1024.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`. Of boosted trees only.
        """
        module, asked = module_of(X), self._asked(X, init_score)
        given = None if batch_size is None else inputs.as_count(batch_size, "batch_size")
        size = given or self._budget.batch_size(self._bytes_per_query())
        self._require(size, "Take a smaller batch_size or raise memory_limit.")
        return (Explanation(sums, module) for sums in self._batches(asked, size))

    def _batches(
        self, asked: Asked, size: int, even_empty: bool = False, sums: Sums | None = None
    ) -> Iterator[WeightedSums]:
        n, labels, sums = len(asked), asked.labels, sums or self._sums
        for start in track(range(0, max(n, 1) if even_empty else n, size), "explain"):
            part = slice(start, start + size)
            yield sums(asked[part], labels[part])

    def _stream(self, X: Any, init_score: Any) -> Stream:
        return self._stream_of(self._asked(X, init_score))

    def _stream_of(self, asked: Asked) -> Stream:
        model, note = self._model, tables.NOTES[self.kind]
        note = tables.of_class(note, model.scored) if isinstance(model, Boosting) else note
        return self._streamed(asked, self._sums, self._bytes_per_query(), note)

    def _streamed(self, asked: Asked, sums: Sums, bytes_per_query: int, note: str) -> Stream:
        self._budget.require(
            bytes_per_query, f"The explanation of one row by {len(self.targets)}", "Raise memory_limit."
        )
        return Stream(
            rows=asked.rows,
            batches=lambda size: self._batches(asked, size, even_empty=True, sums=sums),
            n_targets=(len(self._targets), self._targets.shape[1]),
            index=lambda: self.index,
            outputs=self.outputs,
            backend=self._backend,
            budget=self._budget,
            bytes_per_query=bytes_per_query,
            features=self._features,
            feature_names=self._model.feature_names,
            note=note,
        )

    def top(self, X: Any, k: int = 10, by: str | None = None, init_score: Any = None, *, per_class: bool = True) -> Any:
        """The table of `Explanation.top`, for any number of rows of X: never holds an (n, n_train) array.

        By contribution, the default of an additive explainer, blocks of training rows are read out and no derivative is computed.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        k : int
            How many training rows per prediction.
        by : "weight" or "contribution", optional
            What the largest are the largest of, in absolute value; by default weights, of an additive explainer contributions.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`. Of boosted trees only.
        per_class : True
            A line for each class. False is for `Explanation.top` and `similar`.
        """
        tables.check_by(by)
        tables.check_per_class(per_class)
        k = inputs.as_count(k, "k")
        asked = self._asked(X, init_score)
        self._stream_of(asked)  # refused where one row's explanation needs more memory than there is
        if not isinstance(self._model, Boosting):
            return super().top(X, k, by)
        if by == "weight":
            derived = self._streamed(asked, self._derivatives, self._model.bytes_per_query(), tables.DERIVATIVE)
            return derived.table(min(k, len(self._targets)), 8, lambda one: one.top_columns(k, "weight"))
        return tabled.top(self._kept("top"), asked, k)

    def group(self, X: Any, labels: Any, init_score: Any = None) -> Any:
        """The table of `Explanation.group`, for any number of rows of X: never holds an (n, n_train) array.

        Pushes are summed by leaf and group in one walk through the training rows, whatever the number of rows of X.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        labels : sequence of length n_train, or str
            A label for each training row: a year, a region, a source; or the name of a column of X_train.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`. Of boosted trees only.
        """
        asked, model = self._asked(X, init_score), self._model
        codes, groups = self._stream_of(asked).groups(labels)
        if not isinstance(model, Boosting) or len(groups) * model.pushes.bytes_per_query() > BATCH_BYTES:
            return super().group(X, labels, init_score)
        return tabled.group(self._kept("group"), asked, codes, groups)

    _no_others = (
        "it needs exact weights, which this model does not have",
        "Use axil.Explainer for a model that has them (axil.supports(model)).",
    )
    _refusals: ClassVar[dict[str, tuple[str, str]]] = {
        "removal_group": (
            _no_others[0],
            f"Of boosted trees ask explainer.without(X, labels == group), a group at a time. {_no_others[1]}",
        ),
        "removal_top": (_no_others[0], f"Of boosted trees ask explainer.removal_set(X, m). {_no_others[1]}"),
    }
    _no_features = "the training rows of this explainer are no table", "Use explainer.top(X)."

    @property
    def kind(self) -> str:
        """ "additive" where pushes add up to the score, "jacobian" where only derivatives exist; as `axil.supports` has it."""
        return "additive" if isinstance(self._model, Boosting) else "jacobian"

    def save(self, path: Any) -> None:
        """Write all but the model to one .npz file, without pickle; see `axil.load`. Of boosted trees only.

        An explainer made with ``verify=False`` is not saved: loading proves the fit again.

        Parameters
        ----------
        path : str or path
            The .npz file to write.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> import axil
        >>> from lightgbm import LGBMClassifier
        >>> from sklearn.datasets import load_breast_cancer
        >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
        >>> model = LGBMClassifier(n_estimators=20, verbose=-1).fit(X, y)
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "explainer.npz"
        >>> axil.JacobianExplainer(model, X, y).save(path)
        >>> axil.load(path, model)
        <axil.JacobianExplainer: LightGBM, 569 training rows, pushes that add up to the score, verified>
        """
        if not isinstance(self._model, Boosting):
            raise UnsupportedQuestionError(
                "save",
                f"derivatives of {self._model.library} models come from the model and its training data, which no file keeps",
                "Keep the model and the data, and make the explainer again.",
            )
        saved.save(path, self._model, self.index, self._backend)

    def weight_derivatives(self, X: Any, init_score: Any = None) -> Array:
        """(n, n_train) or (K, n, n_train): how predictions move with each row's sample weight.

        ``-weight * derivative`` is the first-order effect of leaving the row out, the structure held fixed. Where boosted trees
        have a ``class_weight``, the weight is the product of that of the class and that of the row.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`. Of boosted trees only.
        """
        asked = self._asked(X, init_score)
        what = f"The derivatives of {counted(len(asked), 'prediction')} by {len(self.targets)} training rows"
        instead = "Ask for fewer rows at a time, or raise memory_limit."
        self._budget.require(len(asked) * self._model.bytes_per_query(), what, instead)
        found = asked.model.weight_derivatives(asked.rows)
        return found[0] if self.outputs is None else found

    def _sums(self, asked: Asked, labels: NDArray[Any]) -> WeightedSums:
        """Pushes where there are any, else derivatives."""
        model, single = asked.model, self.outputs is None
        if not isinstance(model, Boosting):
            return self._derivatives(asked, labels)
        leaves, scores = model.located(asked.rows)
        pushes, starts = model.pushes.dense(leaves), model.starts(len(scores))
        return WeightedSums(
            weights=pushes[0] if single else pushes,
            intercepts=starts[:, 0] if single else starts,
            targets=np.ones_like(self.targets),
            index=self.index,
            query_index=labels,
            kind="additive",
            outputs=self.outputs,
            backend=self._backend,
            n_threads=self._n_threads,
            context=Context(owned_rows(asked.rows), self._features, model.feature_names, scores),
            seen=self._targets,
            account=Account(model.meaning, model.means(scores), self._derived, asked.offsets),
            classes=model.class_names,
        )

    def _derived(self, X: Any, offsets: Offsets | None) -> WeightedSums:
        """The derivatives of rows that an additive explanation has: asked for by ``explanation.weights``."""
        what = f"The derivatives of {counted(X.shape[0], 'prediction')} by {len(self.targets)} training rows"
        self._budget.require(
            X.shape[0] * self._model.bytes_per_query(), what, "Take fewer predictions: explanation[:10]."
        )
        return self._derivatives(Asked(self._model, X, offsets), np.arange(X.shape[0]))

    def _derivatives(self, asked: Asked, labels: NDArray[Any]) -> WeightedSums:
        model, X = asked.model, asked.rows
        predictions, derivatives = model.predictions(X), model.target_derivatives(X)
        products = [own @ y for own, y in zip(derivatives, self._targets.T)]
        intercepts = predictions - np.stack(products, axis=1)
        single = self.outputs is None
        return WeightedSums(
            weights=derivatives[0] if single else derivatives,
            intercepts=intercepts[:, 0] if single else intercepts,
            targets=self.targets,
            index=self.index,
            query_index=labels,
            kind="jacobian",
            outputs=self.outputs,
            backend=self._backend,
            n_threads=self._n_threads,
            context=Context(owned_rows(X), self._features, model.feature_names, predictions),
        )

    def _rows(self, X: Any) -> Any:
        return inputs.as_features(as_rows(X), self._model, "X", self._features)

    def _asked(self, X: Any, init_score: Any) -> Asked:
        return Asked.of(self._model, self._rows(X), init_score)

    def _bytes_per_query(self) -> int:
        """Bytes that the explanation of one row takes while it is made."""
        return 16 * self._targets.size if isinstance(self._model, Boosting) else self._model.bytes_per_query()

    def _require(self, n: int, instead: str) -> None:
        what = f"The explanation of {counted(n, 'prediction')} by {len(self.targets)} training rows"
        self._budget.require(n * self._bytes_per_query(), what, instead)


def loaded(file: Archive, model: Any, limits: Limits, X_train: Any = None, objective: Any = None) -> JacobianExplainer:
    """An explainer that `JacobianExplainer.save` wrote, for the same fitted model; see `axil.load`."""
    features = None if X_train is None else owned_rows(as_rows(X_train))
    found = saved.load(file, model, limits, features, objective)
    try:
        backend = tables.as_backend(file.header.get("backend"))
    except (TypeError, ValueError) as error:
        raise file.damaged(error) from error
    return JacobianExplainer._of(found, frozen(file.index), features, backend, limits)
