"""From a fitted model and its training data to the verified model of its kind.

The loss and the rule of the leaf values decide the kind: predictions that are weighted sums of the
targets have weights, other boosted trees have score contributions, and smooth learners have
derivatives.
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import Any, cast

from axil import adapters, inputs
from axil.adapters.contract import Adapter, Form, Kind, Model, TrainingRows
from axil.contributions import boosting
from axil.contributions.additive_model import AdditiveModel
from axil.errors import ExactnessError, InputError, shown
from axil.implicit import learners, mean, torch
from axil.implicit.derivative_model import DerivativeModel
from axil.implicit.optimum import Implicit
from axil.implicit.readers import (
    FitInputs,
    as_rows,
    copied,
    in_order_of_labels,
    refuse_group,
    require_raw_output,
    unread,
)
from axil.inputs.copies import frozen, owned, owned_rows
from axil.kernels.choose import settled
from axil.machine.log import logger
from axil.replay import mistakes
from axil.replay.build import build
from axil.replay.exact_model import ExactModel
from axil.replay.verified_model import InMemory
from axil.scale import fitted_targets

_NO_IN_BAG = (
    "in_bag counts how often each tree sampled each row, and this model has no trees. Leave it out."
)
_NO_INVERSE = (
    "inverse_func is for targets that you transformed and weights make predictions of; "
    "this model's score has a link of its own. Leave it out."
)


def make_verified_model(fit_inputs: FitInputs) -> InMemory:
    """Return the verified model of a fitted model on its training data; log how long that took."""
    start = perf_counter()
    model = _make_verified_model(fit_inputs)
    logger.info(
        "%s model of kind %s with %d training rows, on %s, in %.3f s",
        model.adapter.library,
        model.kind.value,
        model.shape[0],
        model.limits.device,
        perf_counter() - start,
    )
    return model


def _make_verified_model(fit_inputs: FitInputs) -> InMemory:
    """Return the verified model of a fitted model on its training data.

    An ``objective`` or a ``loss`` is for a model without exact weights, so such a model is not
    asked for them.
    """
    adapter: Model | None = None
    if fit_inputs.objective is not None or fit_inputs.loss is not None:
        adapter = adapters.find_by_gradients(fit_inputs.model, fit_inputs.objective)
    else:
        adapter = _read(fit_inputs)
    if adapter is not None and adapter.kind is Kind.EXACT:
        if fit_inputs.output != "raw":
            raise InputError(
                f"output is {fit_inputs.output!r}, which is for models with a link, "
                f"such as boosted classifiers. Predictions of this "
                "model are weighted sums of its targets: leave it out."
            )
        return exact_model(adapter, fit_inputs)
    if fit_inputs.inverse_func is not None:
        raise InputError(_NO_INVERSE)
    return _without_weights(fit_inputs, adapter)


def _read(fit_inputs: FitInputs) -> Model | None:
    """Return the adapter of a model; None if it may have derivatives alone."""
    reading = adapters.examine(fit_inputs.model)
    if reading.adapter is None and reading.not_exact is None:
        raise adapters.unread(fit_inputs.model)
    return reading.adapter


def _member_model(fit_inputs: FitInputs) -> InMemory:
    """Return the verified model of one of several models inside another."""
    adapter = _read(fit_inputs)
    if adapter is not None and adapter.kind is Kind.EXACT:
        return exact_model(adapter, replace(fit_inputs, output="raw"))
    return _without_weights(fit_inputs, adapter)


def exact_model(adapter: Model, fit_inputs: FitInputs) -> ExactModel:
    """Return the verified model of predictions that are weighted sums of the targets."""
    refuse_group(fit_inputs, "a model of exact weights")
    as_given = (fit_inputs.X, fit_inputs.y)
    limits = fit_inputs.limits
    try:
        X = owned_rows(inputs.as_features(fit_inputs.X, adapter, "X_train"))
    except InputError as error:
        raise mistakes.names_target(error, *as_given) from None
    n_rows = X.shape[0]
    if n_rows == 0:
        raise InputError("X_train has no rows; expected the rows that the model was fitted on.")
    repeated = adapter.repeats_targets
    missing = adapter.missing_targets
    classes = inputs.coding_of(adapter)
    targets = owned(
        inputs.as_targets(
            fit_inputs.y, n_rows, adapter.n_outputs, classes, repeated=repeated, missing=missing
        )
    )
    if fit_inputs.inverse_func is not None and classes is not None:
        raise InputError(
            "inverse_func is for transformed numbers; this model predicts classes. Leave it out."
        )
    fitted = fitted_targets(adapter.scale, fit_inputs.inverse_func, targets, fit_inputs.y)
    weights = inputs.as_weights(fit_inputs.sample_weight, n_rows)
    offsets = inputs.as_offsets(fit_inputs.init_score, n_rows, adapter.n_outputs, "training")
    in_bag = inputs.as_in_bag(fit_inputs.in_bag, n_rows)
    labels = inputs.row_index(fit_inputs.index, X, adapter.feature_names, n_rows)
    if limits.device == "auto":
        limits = settled(limits, n_rows * _number_of_trees(adapter, X))
    if not fit_inputs.verify:
        mistakes.refuse_other_order(*as_given)
    rows = TrainingRows(X, fitted.targets, weights, offsets, in_bag)
    try:
        return build(adapter, rows, labels, limits, fit_inputs.verify).on(fitted)
    except ExactnessError as error:
        raise mistakes.with_cause(
            error, adapter, rows, as_given, lambda changed: build(adapter, changed, labels, limits)
        ) from None


def of_class(model: InMemory, pos_label: Any) -> InMemory:
    """Return the model with its single score of this class of two; see `Explainer`."""
    if pos_label is None:
        return model
    names = model.names.class_names
    if names is None or len(names) != 2:
        if names is None:
            predicted = "numbers"
        else:
            predicted = f"{len(names)} classes"
        raise InputError(
            f"pos_label is {shown(pos_label)}, and it chooses one of two classes; this model "
            f"predicts {predicted}. Leave it out."
        )
    position = inputs.position_of(pos_label, names.tolist())
    if position is None:
        listed = " or ".join(shown(name) for name in names.tolist())
        raise InputError(
            f"pos_label is {shown(pos_label)}; expected a class of this model: {listed}."
        )
    if model.names.outputs is not None:
        return replace(model, chosen_class=names[position])
    if position == 0:
        reflected: InMemory = model.reflected()
        return reflected
    return model


def _number_of_trees(adapter: Model, X: object) -> int:
    """Return the number of trees; 0 of a model without trees."""
    if adapter.form is not Form.TREES:
        return 0
    return int(adapter.coordinates(inputs.take_rows(X, slice(0, 1))).shape[1])


def _without_weights(fit_inputs: FitInputs, adapter: Model | None) -> InMemory:
    """Return the verified model of contributions or, for predictions without them, of derivatives.

    ``adapter`` reads boosted trees; it is None for other models.
    """
    if adapter is not None:
        return additive_model(fit_inputs, cast(Adapter, adapter))
    refuse_group(fit_inputs, "no booster")
    fit_inputs = _copied(fit_inputs)
    several = mean.read(fit_inputs, _member_model)
    if several is not None:
        return several
    require_raw_output(fit_inputs)
    model = in_order_of_labels(_differentiated, fit_inputs)
    if fit_inputs.in_bag is not None:
        raise InputError(_NO_IN_BAG)
    features = inputs.as_features(fit_inputs.X, model, "X_train")
    labels = frozen(
        inputs.row_index(fit_inputs.index, features, model.feature_names, len(model.targets))
    )
    backend = inputs.backend_of(fit_inputs.X)
    return DerivativeModel(model, labels, features, backend, fit_inputs.limits, model.verification)


def additive_model(fit_inputs: FitInputs, adapter: Adapter) -> AdditiveModel:
    """Return the verified model of boosted trees, of squared error too, by their gradients."""
    fit_inputs = _copied(fit_inputs)
    require_raw_output(fit_inputs)
    model = in_order_of_labels(lambda ordered: boosting.read(ordered, adapter), fit_inputs)
    features = inputs.as_features(fit_inputs.X, adapter, "X_train")
    labels = frozen(
        inputs.row_index(fit_inputs.index, features, adapter.feature_names, len(model.targets))
    )
    backend = inputs.backend_of(fit_inputs.X)
    model_fields = (adapter, labels, features, backend, model.limits, model.verification)
    return AdditiveModel(*model_fields, seen=model.seen, boosting=model)


def _copied(fit_inputs: FitInputs) -> FitInputs:
    """Return the model with copies of its data, which later changes by the user do not reach."""
    return replace(
        fit_inputs,
        X=owned_rows(as_rows(fit_inputs.X)),
        y=copied(fit_inputs.y),
        sample_weight=copied(fit_inputs.sample_weight),
        init_score=copied(fit_inputs.init_score),
        group=copied(fit_inputs.group),
    )


def _differentiated(fit_inputs: FitInputs) -> Implicit:
    """Return the smooth learner or the network on its training data."""
    for read in (learners.read, torch.read):
        model = read(fit_inputs)
        if model is not None:
            return model
    raise unread(fit_inputs)
