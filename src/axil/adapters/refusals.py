"""Refusals: the settings that axil does not explain.

They are tables that are tried in order and that also make the documentation.

Condition (i): the first prediction is linear in the targets. Condition (ii): residuals are linear
in the targets and leaf values linear in the residuals. A setting is refused if it breaks one for
some targets, not only if it binds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from axil.adapters.contract import Kind
from axil.errors import InputError, UnsupportedModelError

R = TypeVar("R")

# Reasons that several libraries share.
LOGIT = (
    "residuals pass through a sigmoid, and the logit of a mean, from which a fit may start, is "
    "not linear in the targets"
)
SOFTMAX = "residuals pass through a softmax, and a fit may start from logarithms of means"
EXPONENTIAL = (
    "predictions pass through an exponential, and a fit may start from the logarithm of a mean"
)
DAMPED = "residuals are damped by a non-linear function"
ONE_OUTPUT = "axil explains the classes of one output at a time"
OTHER_GRADIENTS = "its gradients are not known to be those of squared error"
AT_RISK = "residuals depend on the scores of the rows that are still at risk"
GROUPED = "residuals depend on the scores of the other rows of a group"
RANKED = "residuals depend on how the rows of a group are ranked, and axil is not given the groups"
OWN_RANKING = (
    "Fit with a ranking objective of your own, a function that knows the groups and samples "
    "nothing at random: axil.Explainer takes it as objective=. Or fit with squared error."
)

# Likely causes of a disagreement with the data that several libraries share.
OTHER_ROWS = (
    "These are not the rows and columns that the model was fitted on: other rows, or columns in "
    "another order."
)
OTHER_COLUMNS = (
    "Columns were scaled or otherwise changed for the fit, or categories and missing values were "
    "encoded otherwise."
)
OTHER_WEIGHTS = (
    "sample_weight is not what the fit was given: pass the same weights, in the order of the rows, "
    "or none if it had none."
)
OTHER_GROUPS = "The groups are not those of the fit, or the fit was given positions of the rows."
OTHER_TARGETS = (
    "The targets are not those of the fit, or were transformed for it (a logarithm), or are in "
    "another order."
)


@dataclass(frozen=True)
class Refusal(Generic[R]):
    """One row of a table: a setting that axil does not explain, why, and what to do instead."""

    setting: str
    #: returns the offending value from what was read of a model, False or "" for none
    find_value: Callable[[R], object]
    reason: str
    instead: str
    condition: str | None = None  #: which it breaks; None where it is linear but not replayed
    #: whether predictions are at least smooth in the targets, with the tree structure fixed
    derivative: bool = False
    linear_only: bool = False  #: whether it stands in the way of exact weights alone

    def error(self, value: object) -> UnsupportedModelError:
        """Return the error for a model with this value."""
        return UnsupportedModelError(
            self.setting, str(value), self.reason, self.instead, self.condition, self.derivative
        )


def by_name(
    setting: str,
    names_of: Callable[[R], Sequence[str]],
    reasons: Mapping[str, tuple[str, str]],
    instead: str,
    derivative: bool = False,
) -> tuple[Refusal[R], ...]:
    """Return a row for each name of a loss or class.

    Parameters
    ----------
    setting : str
        The setting that has such a name.
    names_of : callable
        Returns the names that a model has.
    reasons : mapping
        From a name to the reason why it is refused, and the condition that it breaks.
    instead : str
        What to do instead.
    derivative : bool
        See `Refusal`.
    """

    def row(name: str, reason: str, condition: str) -> Refusal[R]:
        def find_name(reading: R) -> str:
            if name in names_of(reading):
                return name
            return ""

        if reason is RANKED:
            advice = OWN_RANKING
        else:
            advice = instead
        return Refusal(setting, find_name, reason, advice, condition, derivative)

    return tuple(row(name, reason, condition) for name, (reason, condition) in reasons.items())


def refusal(table: Iterable[Refusal[R]], reading: R) -> UnsupportedModelError | None:
    """Return the error for the first row of the table that applies, None if none does."""
    for row in table:
        value = row.find_value(reading)
        if value:
            return row.error(value)
    return None


def refuse(table: Iterable[Refusal[R]], reading: R) -> None:
    """Raise for the first row of the table that applies."""
    error = refusal(table, reading)
    if error is not None:
        raise error


def weights_refusal(table: Iterable[Refusal[R]], reading: R) -> UnsupportedModelError | None:
    """Return why a model has no exact weights though it may be explained by its gradients.

    It is None if it has them.

    Raise if neither is possible.
    """
    error = refusal(table, reading)
    if error is not None and not error.derivative:
        raise error
    return error


def kind_of(
    reading: R,
    for_weights: Iterable[Refusal[R]],
    for_gradients: Iterable[Refusal[R]],
    by_gradients: bool = False,
) -> tuple[Kind, UnsupportedModelError | None]:
    """Return the kind of boosted trees, and why they have no exact weights.

    Raise for trees that have neither weights nor score contributions.

    Parameters
    ----------
    reading : object
        What was read of the model.
    for_weights : iterable of Refusal
        The settings that stand in the way of exact weights.
    for_gradients : iterable of Refusal
        The settings that stand in the way of score contributions.
    by_gradients : bool
        Whether the kind is additive even if the model has exact weights.
    """
    not_exact = None
    if not by_gradients:
        not_exact = weights_refusal(for_weights, reading)
        if not_exact is None:
            return Kind.EXACT, None
    refuse(for_gradients, reading)
    return Kind.ADDITIVE, not_exact


def gradient_refusals(table: Iterable[Refusal[R]], *more: Refusal[R]) -> tuple[Refusal[R], ...]:
    """Return the rows of the table that apply to gradients: those of both kinds, then their own."""
    shared_rows = (row for row in table if not (row.derivative or row.linear_only))
    return *shared_rows, *more


def first_of(settings: Mapping[str, object]) -> str:
    """Return the first name whose setting is true of a model; empty: none is."""
    return next((name for name, is_set in settings.items() if is_set), "")


def not_fitted(model: object) -> InputError:
    """Return the error for a model that has not been fitted."""
    return InputError(f"This {type(model).__name__} has not been fitted: call its fit(X, y) first.")
