"""Explainer: read a fitted model, verify it on its training data, and explain its predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from axil import files, inputs, templates
from axil.aliases import (
    ArrayLike,
    Device,
    ForeignModel,
    LabelsLike,
    PathLike,
    ScoreScale,
    TableLike,
)
from axil.arrays import AnyArray, FloatArray
from axil.errors import InputError, counted, shown
from axil.implicit.readers import OUTPUTS, FitInputs
from axil.inputs.codes import keys
from axil.kernels.choose import limits_of
from axil.machine.threads import Cache
from axil.methods.adjustments import Adjustments
from axil.methods.aggregate import Aggregate
from axil.methods.certificate import Certificate
from axil.methods.concentration import Concentration
from axil.methods.diagnostics import Diagnostics
from axil.methods.explain import Explain
from axil.methods.group import Group
from axil.methods.influence import Influence
from axil.methods.intervals.calibrate import Calibrate
from axil.methods.jacobian import Jacobian
from axil.methods.kinds import prepared
from axil.methods.label_issues import LabelIssues
from axil.methods.min_label_changes import MinLabelChanges
from axil.methods.page import Pages
from axil.methods.refit import ExplainerArguments
from axil.methods.removal import Removal
from axil.methods.shapley import Shapley
from axil.methods.similar import Similar
from axil.methods.top import Top
from axil.methods.what_if import WhatIf
from axil.methods.without import Without
from axil.methods.write import Write
from axil.output import archive
from axil.replay.verified_model import VerifiedModel
from axil.report.reports import Reports
from axil.scale import TargetScale
from axil.verify import make_verified_model, of_class

# Kinds that the text of an explainer names; exact weights are the rule
KIND_TEXTS = {
    "additive": "contributions that add up to the score",
    "derivative": "derivative",
}


class Explainer(
    Explain,
    Aggregate,
    Top,
    Similar,
    Adjustments,
    Group,
    Concentration,
    WhatIf,
    Without,
    Certificate,
    Removal,
    LabelIssues,
    Influence,
    Shapley,
    MinLabelChanges,
    Calibrate,
    Pages,
    Reports,
    Write,
):
    """Which training rows made a prediction, and by exactly how much, with fixed tree structure.

    The model decides which number belongs to a prediction and a training row, and ``kind`` says
    which it is:

    - "exact": weights. A prediction is ``weights @ targets + intercept``: boosting with squared
      error, trees, forests, neighbours, linear smoothers.
    - "additive": contributions. A score is the initial prediction plus what the gradients of each
      row add to it: boosted classifiers, and boosting with other losses. ``weights`` are
      derivatives, computed when asked for.
    - "derivative": derivatives of predictions by targets, for small changes: logistic regression,
      networks and other smooth learners. They do not add up to the prediction.

    Construction replays the fit on the training data and raises `ExactnessError` unless leaf
    counts, leaf values and predictions agree; derivatives at an optimum need a fit that has reached
    it. What axil cannot read raises `UnsupportedModelError`, by the name of the setting. Every
    explanation is checked against the model's own predictions again. A method that has no answer
    for this kind of model, or for this place of its rows, raises `UnsupportedQuestionError`, which
    names an alternative.

    All answers are about the data and the model as they were then. The explainer keeps copies, of
    large arrays too unless they are read-only, so a later change of the data or a refit of the
    model does not move them.

    An explainer may be asked from many threads at once, and stays right after any exception, Ctrl-C
    among them. A row's answer has the same bits whatever was asked before or with it; see
    docs/production.md.

    Parameters
    ----------
    model : fitted model
        A model of any library that axil reads, or a pipeline that ends in one.
    X_train : table
        The rows that the model was fitted on, in the order of the fit: a frame, an array, a sparse
        matrix, or a Dask collection, whose rows stay in their partitions.
    y_train : array of shape (n_train,) or (n_train, K)
        Their targets, or classes, as the fit got them: prices for a model that takes logarithms
        itself (TransformedTargetRegressor, LightGBM's reg_sqrt), logarithms where you took them;
        nan for targets that CatBoost's MultiRMSEWithMissingValues went without. With X_train in a
        Dask collection, so are y_train, sample_weight, init_score and in_bag, in the same
        partitions.
    sample_weight : array of shape (n_train,), optional
        The weights of the fit.
    init_score : array of shape (n_train,) or (n_train, K), optional
        The offsets of the fit, such as logarithms of exposures: XGBoost's base_margin, CatBoost's
        baseline.
    in_bag : array of shape (n_train, n_trees), optional
        How often each tree sampled each row, for fits whose samples axil cannot make again.
    group : array of shape (n_train,), or of sizes that add up to n_train, optional
        The groups of a ranking model's rows, as the fit got them: LightGBM's sizes, or a label for
        each row (XGBoost's qid, CatBoost's group_id). ``sample_weight`` may then have one weight
        for each group.
    inverse_func : callable, optional
        For targets that you transformed before the fit: the function that undoes it, such as
        ``np.exp`` for logarithms. It takes arrays, keeps the order of the targets or reverses it.
        Answers are then shown in the targets' own units; weights are the same. For models of kind
        "exact".
    pos_label : class, optional
        The class, of two, that scores, probabilities, contributions and pages are of; by default
        the second one of the model, such as ``model.classes_[1]``. Where the model has an output
        for each class, as forests have, tables have a line for each, and reports are about this
        one.
    output : "raw" or "probability", default "raw"
        For models of the other kinds, what derivatives are of: scores (log-odds, logarithms of
        means), or probabilities and means. Contributions are always of scores.
    loss : function or axil.implicit.torch.TrainingLoss, optional
        For a torch module: the loss of one row, or that with the weight decay of the training.
    objective : function, optional
        For a booster that was trained with an objective of your own: the function, as its library
        calls it. Estimators know theirs.
    index : sequence of length n_train, or str, optional
        The labels of the training rows, or the name of a column of X_train that has them; by
        default the index of a pandas frame, else positions from 0.
    n_threads : int, optional
        How many threads to use; by default one for each processor that the process may use.
    memory_limit : int or str, optional
        The bytes that one request may take, or text such as "2GiB"; by default most of what is
        free.
    scratch : path, optional
        A directory for the leaf numbers of all training rows, N * T bytes, which are otherwise kept
        in memory.
    verify : bool, default True
        Verify that model and data belong together. Without it no answer is compared with the model.
    device : "cpu", "cuda" or "auto", default "cpu"
        Where weights, contributions and derivatives of boosted trees are computed: on the cores; on
        an NVIDIA GPU through CuPy, whose first use on a machine compiles for some six seconds; or,
        with "auto", where set-up and ten explanations cost less.
    client : distributed.Client, optional
        For training rows in Dask collections: the client that their work goes to; by default what
        Dask itself would choose.
    **others : refused
        Names that libraries have for init_score, such as XGBoost's base_margin: the error says what
        to pass instead.

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

    def __init__(
        self,
        model: ForeignModel,
        X_train: TableLike,
        y_train: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        init_score: ArrayLike | None = None,
        in_bag: ArrayLike | None = None,
        group: ArrayLike | None = None,
        inverse_func: Callable[[Any], Any] | None = None,
        pos_label: Any = None,
        output: ScoreScale = "raw",
        loss: Any = None,
        objective: Callable[..., Any] | None = None,
        index: LabelsLike | None = None,
        n_threads: int | None = None,
        memory_limit: int | str | None = None,
        scratch: Any = None,
        verify: bool = True,
        device: Device = "cpu",
        client: Any = None,
        **others: Any,
    ):
        for name in others:
            if name not in ("base_margin", "baseline"):
                raise TypeError(f"Explainer() got an unexpected keyword argument {name!r}")
            raise InputError(
                f"axil.Explainer takes no {name}. It is what predictions of the training rows "
                "start from: pass it as init_score, for every library."
            )
        verify = inputs.as_flag(verify, "verify")
        output = inputs.as_choice(output, OUTPUTS, "output")
        fit: dict[str, Any] = {
            "inverse_func": inverse_func,
            "output": output,
            "loss": loss,
            "objective": objective,
        }
        if hasattr(X_train, "__dask_graph__"):
            from axil.dask import build as build_on_workers
            from axil.dask.cluster import refuse_gpu

            in_memory = {
                "group": group,
                "index": index,
                "scratch": scratch,
                "pos_label": pos_label,
            }
            for name, value in (fit | in_memory).items():
                if value is not None and not (name == "output" and value == "raw"):
                    raise InputError(
                        f"{name} is for training rows in memory, and X_train is a Dask collection. "
                        "Leave it out."
                    )
            refuse_gpu(device)
            limits = limits_of(1 if n_threads is None else n_threads, memory_limit)
            rows = X_train, y_train, sample_weight, init_score
            fit_inputs = FitInputs(model, *rows, in_bag=in_bag, limits=limits, verify=verify)
            super().__init__(build_on_workers(fit_inputs, client))
            return
        named = {
            "y_train": y_train,
            "sample_weight": sample_weight,
            "init_score": init_score,
            "in_bag": in_bag,
            "group": group,
        }
        _refuse_collections(named, client)
        machine = {
            "n_threads": n_threads,
            "memory_limit": memory_limit,
            "scratch": scratch,
            "device": device,
        }
        rows = X_train, y_train, sample_weight, init_score
        given = FitInputs(
            model,
            *rows,
            **fit,
            in_bag=in_bag,
            group=group,
            index=index,
            limits=limits_of(**machine),
            verify=verify,
        )
        super().__init__(of_class(make_verified_model(given), pos_label))
        settings = fit | machine | {"verify": verify, "pos_label": pos_label}
        self._arguments = ExplainerArguments.of(
            model, self._model, *rows[1:], group, settings, type(self)
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle, which cannot hold a function without a name.

        If an argument is such a function, the pickle lacks the arguments, and `refit` does not
        work. An explainer of a file is verified now.
        """
        state = {"_model": self._model, **self.__dict__}
        state.pop("_verify", None)
        state.pop("_refitted_from", None)
        if self._arguments is not None and not self._arguments.is_picklable:
            del state["_arguments"]
        return state

    _verify: Callable[[], VerifiedModel]  # of a file

    @classmethod
    def _of(cls, verify: Callable[[], VerifiedModel]) -> Explainer:
        """Return an explainer of a file, which is verified when it is first used."""
        explainer = cls.__new__(cls)  # past the reading, which is done
        explainer._wait_for(verify)
        return explainer

    def _wait_for(self, verify: Callable[[], VerifiedModel]) -> None:
        """Let the first thread that uses the explainer run the verification, once."""
        cache = Cache()
        self._verify = lambda: cache.get("model", verify)

    @cached_property
    def _model(self) -> VerifiedModel:  # type: ignore[override]
        """The model of a file, verified once, by one thread."""
        return self._verify()

    @property
    def kind(self) -> str:
        """Return "exact", "additive" or "derivative".

        Weights times targets make the prediction of exact models, contributions add up to the score
        of additive ones, and derivatives say how predictions move with small changes of targets.
        """
        return str(self._model.kind.value)

    def __repr__(self) -> str:
        texts = [text for _, text in self._facts()]
        return f"<axil.Explainer: {', '.join(texts)}>"

    def _repr_html_(self) -> str:
        return templates.render_facts("axil.Explainer", self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        """Return pairs of a name and a text: model, training rows, kind and verification."""
        model = self._model
        rows = counted(model.shape[0], "training row")
        if self._arguments is not None and self._arguments.dropped:
            rows += f" ({self._arguments.dropped} dropped)"
        facts = [("model", model.adapter.library), ("training data", rows)]
        if model.deletions.n_emptied == 1:
            facts.append(("emptied", "1 leaf without rows"))
        elif model.deletions.n_emptied:
            facts.append(("emptied", f"{model.deletions.n_emptied} leaves without rows"))
        if self.kind in KIND_TEXTS:
            facts.append(("kind", KIND_TEXTS[self.kind]))
        return [*facts, ("verification", self._verification_text())]

    def _verification_text(self) -> str:
        """Return how well the replay of the fit agreed, in words."""
        verification = self._model.verification
        if not verification:
            return "not verified"
        error = getattr(verification, "error", None)
        if error is None:
            return "verified"
        return f"verified to {error:.1e}"

    @property
    def targets(self) -> FloatArray:
        """Return the training targets on the scale of the fit, (n_train,) or (n_train, K).

        Classes are one-hot. With a single score for two classes, 1 stands for `pos_label`. Targets
        that are intervals of times have two columns, their bounds.
        """
        targets: FloatArray = self._model.targets
        if self.outputs is None and targets.shape[1] == 1:
            return targets[:, 0]
        return targets

    @property
    def scale(self) -> TargetScale:
        """The scale of the fit; ``scale.inverse`` returns to the targets' own units."""
        return self._model.scale

    @property
    def index(self) -> AnyArray:
        """The labels of the training rows, (n_train,)."""
        index: AnyArray = self._model.index
        return index

    @property
    def outputs(self) -> AnyArray | None:
        """The names of the classes or the numbers of the outputs, (K,); None for one output."""
        return self._model.names.outputs

    @property
    def pos_label(self) -> Any:
        """The class, of two, that scores and reports are of; None for numbers and more classes."""
        return self._model.names.pos_label

    @property
    def verification(self) -> Any:
        """Findings of the replay; None with ``verify=False``."""
        return self._model.verification

    @property
    def diagnostics(self) -> Diagnostics:
        """Numbers about the fit itself, such as leave-one-out errors and leverage."""
        return Diagnostics(self._model)

    @property
    def jacobian(self) -> Jacobian:
        """Derivatives and gradient contributions of all training rows, as arrays and operators."""
        return Jacobian(self._model)

    def precompute(self) -> Explainer:
        """Compute now what makes later calls fast.

        For weights this is the leaf matrix; see docs/production.md. Without this call axil builds
        it when that costs less than backward passes. After it, every call uses the leaf matrix, so
        a row's result is bit-identical in any batch.

        For contributions these are the factors of all training rows, in the order of the leaves.
        They take 10 bytes for each training row and tree, and up to 14 if most rows of each tree
        are in one leaf. For several outputs the trees of each output count. A call then reads the
        training rows in the explained row's own leaves, and no others. Contributions keep their
        bits.

        axil raises `InputError` if the result exceeds the memory limit. With ``scratch`` the
        factors are in temporary files. A file that `save` writes afterwards is loaded with the same
        computed again.
        """
        self._model.capabilities.require("precompute")
        self._model = prepared(self._model)
        return self

    def save(self, path: PathLike, *, key: bytes | None = None) -> None:
        """Write all but the model to one .npz file, without pickle; see `axil.load`.

        An explainer made with ``verify=False`` is not saved: a file that could say so could switch
        the verification off.

        Parameters
        ----------
        path : str or path
            The .npz file to write.
        key : bytes, optional
            A secret that signs the file (HMAC-SHA256 over everything in it), such as
            ``secrets.token_bytes(32)``. `axil.load` takes the file with the same key only.
        """
        self._model.capabilities.require("save")
        files.save(path, self._model, key)


def _refuse_collections(values_by_name: Mapping[str, object], client: object) -> None:
    """Raise for Dask collections and a client beside training rows in memory."""
    for name, values in values_by_name.items():
        if hasattr(values, "__dask_graph__"):
            raise InputError(
                f"{name} is a Dask collection, and X_train is none; expected all of them as "
                "collections, or all in memory."
            )
    if client is not None:
        raise InputError(
            "client is for training rows in Dask collections, and X_train is none. Leave it out."
        )


def _check_labels(file: archive.Archive, X_train: Any, index: Any) -> None:
    """Raise if the user's rows have other labels than the file."""
    has_labels = inputs.as_frame(X_train) is not None and hasattr(X_train, "index")
    if index is None and not has_labels:
        return
    if X_train is None:
        raise InputError("index names rows of X_train, which is not given. Pass both, or neither.")
    labels = inputs.row_index(index, X_train, None, len(file.index))
    if len(labels) != len(file.index):
        return  # the number of rows is compared with that of the file
    in_file = keys(file.index)
    label_keys = keys(labels)
    if in_file == label_keys:
        return
    place = next(i for i, pair in enumerate(zip(in_file, label_keys)) if pair[0] != pair[1])
    raise InputError(
        f"Row {place} of X_train has the label {shown(labels[place])}, and {file.path} says "
        f"{shown(file.index[place])}. Pass the rows that the explainer was made of, in their "
        "order; where it was made with index=, pass that here too."
    )


def load(
    path: PathLike,
    model: ForeignModel,
    *,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
    X_train: TableLike | None = None,
    inverse_func: Callable[[Any], Any] | None = None,
    index: ArrayLike | str | None = None,
    objective: Callable[..., Any] | None = None,
    device: Device = "cpu",
    key: bytes | None = None,
) -> Explainer:
    """Return an explainer that ``save`` wrote, for the same fitted model.

    The file may come from anywhere. axil refuses a file with an entry that was changed since, parts
    that do not fit each other, or another model. A digest finds changes, but it is no signature. So
    before the explainer first answers anything, ``verification`` included, it replays the fit from
    the arrays of the file, as the constructor does. Every leaf value must be the model's, and every
    answer is compared with the model's predictions. Only the training data, or a signature with
    ``key``, can show that labels and targets are those of the fit. If you pass ``X_train``, its
    labels and leaves must be those of the file. The replay is part of loading with ``X_train``, and
    for an explainer that was precomputed.

    Parameters
    ----------
    path : str or path
        A file that `Explainer.save` wrote.
    model : fitted model
        The model that the file was made with.
    n_threads : int, optional
        How many threads to use; by default one for each processor that the process may use.
    memory_limit : int or str, optional
        The bytes that one request may take, or text such as "2GiB"; by default most of what is
        free.
    X_train : table, optional
        The training rows, for ``similar``. The index of a pandas frame must have the labels of the
        file.
    inverse_func : callable, optional
        The function that the explainer was made with, where a file cannot keep it: all but NumPy's
        own such as ``np.exp``.
    index : sequence of length n_train or str, optional
        The labels of X_train, as the explainer was made with them, where its index has others.
    objective : function, optional
        Your own objective, where the explainer was made with one; see `Explainer`.
    device : "cpu", "cuda" or "auto", default "cpu"
        Where weights, contributions and derivatives of boosted trees are computed; see `Explainer`.
    key : bytes, optional
        The secret that the file was signed with. A file that is signed with another one, or not
        signed, is refused. So is a signed file without its key.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import axil
    >>> from lightgbm import LGBMRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "explainer.npz"
    >>> axil.Explainer(model, X, y).save(path)
    >>> axil.load(path, model).kind
    'exact'
    """
    limits = limits_of(n_threads, memory_limit, device=device)
    file = archive.read(path, limits.budget, key)
    _check_labels(file, X_train, index)
    verify = files.load(file, model, limits, X_train, inverse_func, objective)
    loaded = Explainer._of(verify)
    if X_train is not None or file.header.get("prepared") is True:
        loaded._model = verify()
    return loaded
