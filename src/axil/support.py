"""Whether a model can be explained, without its data."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from axil import adapters
from axil.adapters import parts_of
from axil.adapters.pipeline import last_step
from axil.adapters.searches import unwrapped
from axil.adapters.sklearn.learners import refuse_learners
from axil.errors import UnsupportedModelError


@dataclass(frozen=True, repr=False)
class Support:
    """The kind of answers that axil has for a model, and the reason."""

    kind: str  #: `Explainer.kind` of this model: "exact", "additive" or "derivative"; "no" where axil does not read it
    setting: (
        str | None
    )  #: the setting that stands in the way of exact weights, as the library spells it
    reason: str  #: in a few sentences, the first of which says what axil answers, or why it has no answer

    @property
    def exact(self) -> bool:
        return self.kind == "exact"

    def __bool__(self) -> bool:
        return self.exact

    def __repr__(self) -> str:
        """The kind, and the reason in lines of its own."""
        return f"axil.Support: {self.kind}\n{self.reason}"


def supports(model: Any) -> Support:
    """Which kind of answers `Explainer` has for this fitted model, and why not exact weights; no data is needed.

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
        adapter, not_exact = reading.adapter, reading.not_exact
        if adapter is not None and adapter.refused_draws is not None:
            raise adapter.refused_draws
        if adapter is None and not_exact is not None:
            return _with_derivatives(model, not_exact)
    except UnsupportedModelError as error:
        return Support("no", error.setting, str(error))
    if adapter is None:
        return _without_adapter(model)
    if not_exact is None:
        reason = f"Predictions of this {adapter.library} model are weighted sums of its training targets."
        return Support("exact", None, reason)
    answers = (
        f"axil.Explainer(model, X_train, y_train) explains this {adapter.library} model by contributions of its "
        f"training rows, which add up to its scores. {_not_exact(not_exact)}"
    )
    return Support("additive", not_exact.setting, answers)


def _without_adapter(model: Any) -> Support:
    """Return the support of an object that axil has no adapter for."""
    if "torch" in sys.modules and isinstance(model, sys.modules["torch"].nn.Module):
        reason = "A network is not linear in its targets. axil.Explainer gives the derivative; it takes the loss, loss=."
        return Support("derivative", "class", reason)
    unread = adapters.unread(model)
    return Support("no", getattr(unread, "setting", None), str(unread))


def _of_several(model: Any, error: UnsupportedModelError) -> Support | None:
    """Return the support of a model of several others, by theirs; None for other models."""
    whole = unwrapped(model)
    last = last_step(whole)
    parts = parts_of(whole if last is None else last)
    if parts is None:
        return None
    found = [supports(member.model) for member in parts.members]
    refused = next((one for one in found if one.kind == "no"), None)
    if refused is not None:
        return refused
    if parts.of_scores and all(one.kind == "additive" for one in found):
        kind, answers = (
            "additive",
            "explains the mean of its members' scores by contributions of its training rows.",
        )
    else:
        kind, answers = (
            "derivative",
            "gives the derivatives of its members' predictions, put together as it does.",
        )
    return Support(
        kind,
        error.setting,
        f"axil.Explainer(model, X_train, y_train) {answers} {_not_exact(error)}",
    )


def _with_derivatives(model: Any, error: UnsupportedModelError) -> Support:
    """Return the support of a model that has neither weights nor, as a whole, boosted trees; raise for what has no derivative."""
    several = _of_several(model, error)
    if several is not None:
        return several
    refuse_learners(model)
    answers = (
        "axil.Explainer(model, X_train, y_train) gives the derivatives of this model's predictions by its training targets. "
        f"{_not_exact(error)}"
    )
    return Support("derivative", error.setting, answers)


def _not_exact(error: UnsupportedModelError) -> str:
    """Return the sentence on what stands in the way of exact weights, without advice."""
    return f"It has no exact weights ({error.setting}={error.value}): {error.reason}."
