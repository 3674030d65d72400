"""Whether a model can be explained, without its data."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

from axil import adapters, templates
from axil.adapters import parts_of
from axil.adapters.pipeline import last_step
from axil.adapters.searches import unwrapped
from axil.adapters.sklearn.refusals import refuse_learners
from axil.aliases import ForeignModel, ModelKind
from axil.errors import UnsupportedModelError


@dataclass(frozen=True, repr=False)
class Support:
    """The kind of answers that axil has for a model, and the reason."""

    #: as in `Explainer.kind`; "no" where axil does not read the model
    kind: ModelKind | Literal["no"]
    setting: str | None  #: what stands in the way of exact weights, as the library spells it
    reason: str  #: a few sentences; the first says what axil answers, or why it cannot

    @property
    def exact(self) -> bool:
        """Return whether the model has exact weights."""
        return self.kind == "exact"

    def __bool__(self) -> bool:
        return self.exact

    def __repr__(self) -> str:
        """Return the kind, and the reason in lines of its own."""
        return f"axil.Support: {self.kind}\n{self.reason}"

    def _repr_html_(self) -> str:
        facts = [("kind", self.kind), ("reason", self.reason)]
        return templates.render_facts("axil.Support", facts)


def supports(model: ForeignModel) -> Support:
    """Return the kind of answers that `Explainer` has for a fitted model.

    It also says why a model has no exact weights.

    No data is needed.

    Parameters
    ----------
    model : object
        A fitted model.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression, Ridge
    >>> supports(Ridge().fit([[0], [1]], [0, 1]))
    axil.Support: exact
    Predictions of this scikit-learn model are weighted sums of its training targets.
    >>> supports(LogisticRegression().fit([[0], [1]], [0, 1])).exact
    False
    """
    try:
        reading = adapters.examine(model)
        adapter = reading.adapter
        if adapter is not None and adapter.refused_draws is not None:
            raise adapter.refused_draws
        if adapter is None and reading.not_exact is not None:
            return _with_derivatives(model, reading.not_exact)
    except UnsupportedModelError as error:
        return Support("no", error.setting, str(error))
    if adapter is None:
        return _without_adapter(model)
    if reading.not_exact is not None:
        return _support(
            "additive",
            reading.not_exact,
            f"explains this {adapter.library} model by contributions of its training rows, which "
            "add up to its scores.",
        )
    return Support(
        "exact",
        None,
        f"Predictions of this {adapter.library} model are weighted sums of its training targets.",
    )


def _without_adapter(model: ForeignModel) -> Support:
    """Return the support of an object that axil has no adapter for."""
    if "torch" in sys.modules and isinstance(model, sys.modules["torch"].nn.Module):
        return Support(
            "derivative",
            "class",
            "A network is not linear in its targets. axil.Explainer gives the derivative; it takes "
            "the loss, loss=.",
        )
    error = adapters.unread(model)
    return Support("no", getattr(error, "setting", None), str(error))


def _with_derivatives(model: ForeignModel, error: UnsupportedModelError) -> Support:
    """Return the support of a model without weights and, as a whole, without boosted trees.

    Raise for a model without derivatives.
    """
    support = _of_members(model, error)
    if support is not None:
        return support
    refuse_learners(model)
    return _support(
        "derivative",
        error,
        "gives the derivatives of this model's predictions by its training targets.",
    )


def _of_members(model: ForeignModel, error: UnsupportedModelError) -> Support | None:
    """Return the support of a model of several others, by theirs; None for other models."""
    estimator = unwrapped(model)
    last = last_step(estimator)
    parts = parts_of(estimator if last is None else last)
    if parts is None:
        return None
    supports_of_members = [supports(member.model) for member in parts.members]
    for support in supports_of_members:
        if support.kind == "no":
            return support
    if parts.of_scores and all(support.kind == "additive" for support in supports_of_members):
        return _support(
            "additive",
            error,
            "explains the mean of its members' scores by contributions of its training rows.",
        )
    return _support(
        "derivative",
        error,
        "gives the derivatives of its members' predictions, combined as the model combines them.",
    )


def _support(kind: ModelKind, error: UnsupportedModelError, answer: str) -> Support:
    """Return the kind of answers of axil, and what prevents exact weights."""
    reason = (
        f"axil.Explainer(model, X_train, y_train) {answer} It has no exact weights "
        f"({error.setting}={error.value}): {error.reason}."
    )
    return Support(kind, error.setting, reason)
