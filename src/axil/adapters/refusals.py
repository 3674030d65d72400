"""Refusals: the settings that axil does not explain, as tables that are tried in order and make the documentation.

Condition (i): the first prediction is linear in the targets. Condition (ii): residuals are linear in the targets and
leaf values linear in the residuals. A setting is refused if it breaks one for some targets, not only where it binds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from axil.errors import InputError, UnsupportedModelError

R = TypeVar("R")

# Reasons that several libraries share.
LOGIT = "residuals pass through a sigmoid, and the logit of a mean, from which a fit may start, is not linear in the targets"
SOFTMAX = "residuals pass through a softmax, and a fit may start from logarithms of means"
EXPONENTIAL = (
    "predictions pass through an exponential, and a fit may start from the logarithm of a mean"
)
DAMPED = "residuals are damped by a non-linear function"
ONE_OUTPUT = "axil explains the classes of one output at a time"
OTHER_GRADIENTS = "its gradients are not known to be those of squared error"
RANKED = "residuals depend on how the rows of a group are ranked, and axil is not given the groups"
OWN_RANKING = (
    "Fit with a ranking objective of your own, a function that knows the groups and draws nothing at random: "
    "axil.Explainer takes it as objective=. Or fit with squared error."
)


@dataclass(frozen=True)
class Refusal(Generic[R]):
    """One row of a table: ``found`` looks at what was read of a model and returns the offending value, False or "" for none."""

    setting: str
    found: Callable[[R], Any]
    reason: str
    instead: str
    condition: str | None = None  #: which it breaks; None where it is linear but not replayed
    derivative: bool = (
        False  #: whether predictions are at least smooth in the targets, with the structure fixed
    )
    linear_only: bool = False  #: whether it stands in the way of exact weights alone

    def error(self, value: Any) -> UnsupportedModelError:
        """The error for a model with this value."""
        about = self.setting, str(value), self.reason, self.instead
        return UnsupportedModelError(*about, self.condition, self.derivative)


def by_name(
    setting: str,
    names_of: Callable[[R], Sequence[str]],
    reasons: Mapping[str, tuple[str, str]],
    instead: str,
    derivative: bool = False,
) -> tuple[Refusal[R], ...]:
    """A row for each name of a loss or class: the reason, and the condition that it breaks. ``names_of`` are those of a model."""

    def row(name: str, reason: str, condition: str) -> Refusal[R]:
        def found(reading: R) -> str:
            return name if name in names_of(reading) else ""

        advice = OWN_RANKING if reason is RANKED else instead
        return Refusal(setting, found, reason, advice, condition, derivative)

    return tuple(row(name, *why) for name, why in reasons.items())


def refusal(table: Iterable[Refusal[R]], reading: R) -> UnsupportedModelError | None:
    """The error for the first row of the table that applies, None if none does."""
    for row in table:
        value = row.found(reading)
        if value:
            return row.error(value)
    return None


def refuse(table: Iterable[Refusal[R]], reading: R) -> None:
    """Raise for the first row of the table that applies."""
    error = refusal(table, reading)
    if error is not None:
        raise error


def smooth_refusals(table: Iterable[Refusal[R]], *more: Refusal[R]) -> tuple[Refusal[R], ...]:
    """The rows that stand in the way of a derivative too, and those that only it has."""
    return *(row for row in table if not (row.derivative or row.linear_only)), *more


def first_of(settings: dict[str, Any]) -> str:
    """The first name of a setting that a model has; empty: it has none."""
    return next((name for name, there in settings.items() if there), "")


def not_fitted(model: Any) -> InputError:
    """Error for a model that has not been fitted."""
    return InputError(f"This {type(model).__name__} has not been fitted: call its fit(X, y) first.")
