"""Whether a model can be explained, without its data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from axil import adapters
from axil.adapters import smooth
from axil.errors import UnsupportedModelError


@dataclass(frozen=True, repr=False)
class Support:
    """The kind of answers that axil has for a model, and the reason."""

    kind: str  #: `Explainer.kind` of this model: "exact", "additive" or "derivative"; "no" where axil does not read it
    setting: str | None  #: the setting that stands in the way of exact weights, as the library spells it
    reason: str  #: in a sentence or two

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
        adapter = adapters.find(model)
    except UnsupportedModelError as error:
        return _smooth(model, error)
    refused = None if adapter is None else adapter.refused_draws
    if refused is not None:
        return Support("no", refused.setting, str(refused))
    if adapter is None and smooth.is_module(model):
        reason = (
            "A network is not linear in its targets. axil.Explainer gives the derivative; it takes the loss, loss=."
        )
        return Support("derivative", "class", reason)
    if adapter is None:
        unread = adapters.unread(model)
        return Support("no", getattr(unread, "setting", None), str(unread))
    return Support(
        "exact", None, f"Predictions of this {adapter.library} model are weighted sums of its training targets."
    )


def _smooth(model: Any, error: UnsupportedModelError) -> Support:
    """The support of a model without exact weights: pushes, a derivative, or what stands in their way."""
    try:
        found = smooth.find(model)
        if found is not None and found.refused_draws is not None:
            raise found.refused_draws
        if found is not None:
            return Support("additive", error.setting, str(error))
        if error.derivative:
            smooth.refuse_learners(model)
    except UnsupportedModelError as second:
        told = second if error.derivative else error  # the reason against exact weights, unless they cannot exist
        return Support("no", told.setting, str(told))
    return Support("derivative" if error.derivative else "no", error.setting, str(error))
