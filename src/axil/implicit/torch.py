"""Any torch.nn.Module with the loss and the weight decay of its training, through torch.func."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from axil import inputs
from axil.adapters.sklearn.base import numbers
from axil.aliases import FeatureTable, ForeignModel, ForeignObject
from axil.arrays import FloatArray
from axil.errors import InputError, UnsupportedModelError, shown
from axil.implicit import row_losses
from axil.implicit.optimum import Implicit, Predictor, Training
from axil.implicit.readers import FitInputs
from axil.implicit.torch_module import TorchModule

_KINKED = (
    *(
        "L1Loss",
        "HingeEmbeddingLoss",
        "MultiMarginLoss",
        "MultiLabelMarginLoss",
        "MarginRankingLoss",
        "CTCLoss",
    ),
    *("TripletMarginLoss", "TripletMarginWithDistanceLoss", "CosineEmbeddingLoss"),
)
_COUPLED = ("BatchNorm", "SyncBatchNorm", "LazyBatchNorm", "InstanceNorm")
_REMEDY = (
    "Train on (full batches, a smaller rate, or torch.optim.LBFGS) until the gradient vanishes, "
    "with some weight decay."
)


@dataclass(frozen=True)
class TrainingLoss:
    """The loss that a module was trained with, for ``Explainer(module, X, y, loss=...)``.

    axil calls ``rows(outputs, targets)`` for one row at a time, with outputs and targets (1, K). It
    must consist of torch functions that are differentiable twice; a torch.nn loss will do. Losses
    are summed or averaged by the weights of the rows, as ``reduction`` says ("sum" or "mean"; None
    stands for that of a torch.nn loss, else "mean"). To this, axil adds
    ``weight_decay / 2 * |parameters|^2``, as the optimisers of torch do. A mapping from parameter
    names to numbers gives each its own weight decay, 0 for others.
    """

    rows: Callable[[Any, Any], Any]
    weight_decay: float | Mapping[str, float] = 0.0
    reduction: str | None = None
    #: "identity", "sigmoid" or "softmax": from outputs to probabilities
    link: str = field(default="identity", kw_only=True)

    def __post_init__(self) -> None:
        if self.reduction not in ("mean", "sum", None):
            raise InputError(f'reduction is {self.reduction!r}; expected "mean" or "sum".')
        if self.link not in _LINKS:
            raise InputError(f"link is {self.link!r}; expected one of {', '.join(_LINKS)}.")


_LINKS: dict[str, row_losses.Link] = {
    "identity": row_losses.identity_link,
    "sigmoid": row_losses.sigmoid_link,
    "softmax": row_losses.softmax_link,
}


def read(fit_inputs: FitInputs) -> Implicit | None:
    """Return a module on its training data; None for any other object.

    Raises for a module that has no such derivative.
    The module is copied, in float64 and in evaluation mode. ``output="probability"`` takes the
    sigmoid or softmax of the outputs, where the loss says which.
    """
    model = fit_inputs.model
    output = fit_inputs.output
    limits = fit_inputs.limits
    if "torch" not in sys.modules or not isinstance(model, sys.modules["torch"].nn.Module):
        return None
    loss = _training_loss(fit_inputs.loss)
    _refuse_layers(model)
    if fit_inputs.init_score is not None:
        raise InputError("A torch module takes no offsets (init_score): leave them out.")
    if output == "probability" and loss.link == "identity":
        raise InputError(
            "The loss does not say how outputs become probabilities; "
            'use output="raw", or name a link.'
        )
    X = _array(fit_inputs.X)
    columns = _AnyColumns(int(np.shape(X)[1]) if np.ndim(X) == 2 else -1)
    X = inputs.as_features(X, columns, "X_train")
    if X.shape[0] == 0:
        raise InputError("X_train has no rows; expected the rows that the module was trained on.")
    weights = inputs.as_weights(fit_inputs.sample_weight, X.shape[0])
    module = TorchModule(model, _prepare(X))
    targets = _targets(_array(fit_inputs.y), X.shape[0], module.n_outputs, loss)
    weights = np.ones(len(targets)) if weights is None else weights
    decay = _decay(model, loss.weight_decay)
    scaled = loss.reduction == "mean"
    training = Training(
        loss=partial(_differentiated, loss.rows),
        targets=targets,
        weights=weights,
        penalty=decay * weights.sum() if scaled else decay,
        penalty_growth=decay if scaled else 0.0,
        convex=False,
    )
    copied_model = copy.deepcopy(model)  # a module can be trained further
    link = _LINKS[loss.link] if output == "probability" else row_losses.identity_link
    predictor = Predictor(
        library="torch",
        columns=columns,
        prepare=_prepare,
        predict=partial(_linked_outputs, copied_model, link),
        link=link,
        outputs=None if module.n_outputs == 1 else np.arange(module.n_outputs),
        remedy=_REMEDY,
    )
    return Implicit(  # type: ignore[abstract]  # it has no coordinates
        predictor, module, training, _prepare(X), limits.n_threads, limits.budget, fit_inputs.verify
    )


class _AnyColumns:
    """The columns of a module, which have no names."""

    library = "torch"
    takes_text = False
    feature_names: list[str] | None = None

    def __init__(self, n_features: int):
        self.n_features = n_features

    def spelling(self, name: str) -> str:
        return name


def _prepare(X: FeatureTable) -> FloatArray:
    rows = numbers(_array(X), np.float64)
    return np.asarray(rows.toarray() if inputs.is_sparse(rows) else rows)


def _array(values: ForeignObject) -> ForeignObject:
    """Return a tensor as an array, and other objects unchanged."""
    if hasattr(values, "detach"):
        return values.detach().cpu().numpy()
    return values


def _training_loss(loss: ForeignObject) -> TrainingLoss:
    from torch import nn

    if loss is None:
        raise InputError(
            "A torch module does not say what it was trained on: pass loss=torch.nn.MSELoss(), or "
            "loss=axil.implicit.torch.TrainingLoss(rows, weight_decay=...)."
        )
    if isinstance(loss, TrainingLoss):
        training_loss = loss
    else:
        training_loss = TrainingLoss(loss)
    rows = training_loss.rows
    if not callable(rows):
        raise InputError(
            f"loss is {shown(rows)}; expected a function of outputs and targets, such as "
            "torch.nn.MSELoss()."
        )
    name = type(rows).__name__
    if name in _KINKED:
        raise UnsupportedModelError(
            "loss",
            name,
            "it is not differentiable twice",
            "Train with a smooth loss (MSELoss, BCEWithLogitsLoss, ...).",
        )
    if getattr(rows, "weight", None) is not None:
        raise UnsupportedModelError(
            "loss",
            f"{name} with class weights",
            "a mean by class weights is not a mean over the rows",
            "Pass sample_weight.",
        )
    stated_reduction = getattr(rows, "reduction", None)
    reduction = training_loss.reduction or (
        stated_reduction if stated_reduction in ("mean", "sum") else "mean"
    )
    link = {nn.BCEWithLogitsLoss: "sigmoid", nn.CrossEntropyLoss: "softmax"}.get(
        type(rows), "identity"
    )
    return replace(
        training_loss,
        reduction=reduction,
        link=link if training_loss.link == "identity" else training_loss.link,
    )


def _refuse_layers(model: ForeignModel) -> None:
    for layer in model.modules():
        name = type(layer).__name__
        noisy = "Dropout" in name and getattr(layer, "p", 0) > 0
        if noisy or name.startswith(_COUPLED):
            if noisy:
                reason = "its training loss is noisy"
            else:
                reason = "its training loss ties the rows of a batch together"
            raise UnsupportedModelError(
                "layer",
                name,
                reason + ", so it has no derivative row by row",
                "Train without such layers (LayerNorm will do).",
            )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UnsupportedModelError(
            "parameters",
            "none",
            "no parameter is trained (requires_grad)",
            "Unfreeze those that were fitted.",
        )


def _targets(y: ForeignObject, n_rows: int, n_outputs: int, loss: TrainingLoss) -> FloatArray:
    """Return targets (N, K); labels 0 .. K-1 become one-hot for a softmax."""
    if np.ndim(y) == 1 and n_outputs > 1 and loss.link == "softmax":
        return inputs.one_hot(y, n_rows, np.arange(n_outputs))
    if np.ndim(y) == 2 and np.shape(y)[1] != n_outputs:
        raise InputError(
            f"y_train has {np.shape(y)[1]} columns; the module has {n_outputs} outputs."
        )
    return inputs.as_targets(y, n_rows, n_outputs, None)


def _decay(model: ForeignModel, weight_decay: float | Mapping[str, float]) -> FloatArray:
    """Return the weight decay of each parameter, (P,)."""
    names = {
        name: parameter.numel()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }
    if not isinstance(weight_decay, Mapping):
        weight_decay = dict.fromkeys(names, weight_decay)
    unknown = [name for name in weight_decay if name not in names]
    if unknown or any(not value >= 0 for value in weight_decay.values()):
        raise InputError(
            f"weight_decay is {weight_decay!r}; expected numbers from 0 up, for parameters among "
            f"{', '.join(list(names)[:5])}."
        )
    return np.concatenate(
        [np.full(size, float(weight_decay.get(name, 0.0))) for name, size in names.items()]
    )


def _linked_outputs(model: ForeignModel, link: row_losses.Link, rows: FloatArray) -> FloatArray:
    """Return the outputs of the module, through a link, (n, K).

    They are computed in evaluation mode and in the module's own precision.
    """
    import torch

    first = next(model.parameters())
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            outputs = model(torch.as_tensor(rows, dtype=first.dtype, device=first.device))
    finally:
        model.train(was_training)
    return link(np.asarray(outputs.reshape(len(rows), -1).double().cpu().numpy()))[0]


def _differentiated(
    rows: Callable[[Any, Any], Any], scores: FloatArray, targets: FloatArray
) -> row_losses.RowLosses:
    """Return the derivatives of the rows' losses by scores and targets, by torch.func."""
    import torch
    from torch.func import grad, jacrev, vmap

    def row_loss(score: ForeignObject, target: ForeignObject) -> ForeignObject:
        return rows(score[None], target[None]).sum()

    s = torch.tensor(scores)
    y = torch.tensor(targets)
    try:
        slope = grad(row_loss)
        derivatives = (vmap(f)(s, y) for f in (slope, jacrev(slope, 0), jacrev(slope, 1)))
        return row_losses.RowLosses(*(derivative.detach().numpy() for derivative in derivatives))
    except RuntimeError as error:
        raise InputError(
            "The loss cannot be differentiated twice by torch.func; expected a function of one "
            "row's outputs and targets, "
            f"both (1, {scores.shape[1]}) in float64: {error}"
        ) from error
