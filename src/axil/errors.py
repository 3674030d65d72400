"""Errors and warnings of axil. Every message says what was found, what was expected and what to do next."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from difflib import get_close_matches
from inspect import currentframe
from typing import Any

import numpy as np

LONGEST = 4000  # characters of a message
LONGEST_VALUE = 80  # characters of a value in it


def shown(value: Any, most: int = LONGEST_VALUE) -> str:
    """A value, or the text of an error, as a message quotes it: on one line, the middle of a long one left out."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return date_text(value)
    # 3, not np.int64(3)
    if isinstance(value, np.generic):
        value = value.item()
    try:
        text = " ".join((str(value) if isinstance(value, BaseException) else repr(value)).split())
    except (
        Exception
    ):  # a whole number of thousands of digits has no text, nor has an object that refuses
        return f"a {type(value).__name__}"
    return shortened(text.encode("utf-8", "backslashreplace").decode(), most)


def date_text(value: np.datetime64 | np.timedelta64) -> str:
    """Return a date as 2011-06-01, with the time of day where there is one, or a span of time such as 5 days."""
    if isinstance(value, np.timedelta64):
        return str(value)
    return str(np.datetime_as_string(value, unit="auto")).replace("T", " ")


def shortened(text: str, most: int) -> str:
    """The text, or its beginning and its end where it is longer than ``most`` characters."""
    if len(text) <= most:
        return text
    left = most // 2
    return f"{text[:left]}... ({len(text) - 2 * left} characters) ...{text[-left:]}"


def counted(n: int, thing: str, form: str = "") -> str:
    """A number of things, which is one thing where the number is one: "1 row", "12 rows"; ``form`` is that of the number."""
    return f"{n:{form}} {thing}{'' if n == 1 else 's'}"


def meant(name: Any, known: Iterable[Any]) -> str:
    """A question for the end of a message, with the known name that is nearest to this one; "" where none is near."""
    if not isinstance(name, str) or len(name) > LONGEST_VALUE:
        return ""
    near = get_close_matches(name, [one for one in known if isinstance(one, str)], n=1)
    if near:
        return f" Did you mean {shown(near[0])}?"
    return ""


class AxilError(Exception):
    """The base of every error that axil raises on purpose. Its message stays short, whatever values are in it."""

    _arguments: tuple[Any, ...] | None = (
        None  # that the message was made of, where it is not the only one
    )

    def __init__(self, message: str = ""):
        super().__init__(shortened(message, LONGEST))

    def __reduce__(self) -> tuple[Any, ...]:
        """Makes the exception picklable: the default would pass the message for all arguments."""
        return type(self), self.args if self._arguments is None else self._arguments


class InputError(AxilError, ValueError):
    """Data or arguments that cannot be used as given."""


class ApproximationWarning(UserWarning):
    """An answer that is not exact: a derivative of a fit that stopped early, noise estimated from random vectors, or targets
    moved beyond the pattern that weights hold fixed."""


class SplitsWarning(UserWarning):
    """An answer that keeps splits which a retrained model is not likely to have."""


class CostWarning(UserWarning):
    """Work that begins now and takes long; the message says how long, and what does without."""


class UnseenCategoryWarning(UserWarning):
    """Rows to explain with a category that no training row has; the message says what the library does with it."""


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line of the user's that asked: the first one outside axil, however deep the work is that warns."""
    frame = currentframe()
    level = 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "axil":
        frame = frame.f_back
        level = level + 1
    warnings.warn(message, category, stacklevel=level)


OTHERWISE = """
No exact weights can exist for it as it is; for pushes that add up to its score, or derivatives, write:
    explainer = axil.Explainer(model, X_train, y_train)
    print(explainer.top(X))"""


NEEDED = {
    "(i)": "a first prediction that is linear in the targets",
    "(ii)": "residuals and fitted values that are linear in the targets",
}  # by condition


class UnsupportedModelError(AxilError):
    """A model whose predictions are not linear in the training targets, or a setting axil does not read yet.

    ``setting`` is the name of the setting as its library spells it, and ``value`` what the model has there.
    ``condition`` is the part of the linear leaf-update criterion that it breaks: (i) the first prediction is linear in the
    targets, (ii) residuals are linear in the targets and leaf values linear in the residuals.
    ``derivative`` says whether `axil.Explainer` takes it all the same: its score adds up from pushes, or has a derivative.
    """

    def __init__(
        self,
        setting: str,
        value: object,
        reason: str,
        instead: str,
        condition: str | None = None,
        derivative: bool = False,
    ):
        self._arguments = (setting, value, reason, instead, condition, derivative)
        self.setting = setting
        self.value = value
        self.reason = reason
        self.instead = instead
        self.condition = condition
        self.derivative = derivative
        needed = ""
        if condition is not None:
            meaning = NEEDED.get(condition, "predictions that are linear in the targets")
            needed = f" Exact weights need {meaning} (condition {condition} of the linear leaf-update criterion)."
        super().__init__(
            f"{_subject(setting, value, condition)}: {reason}.{needed} {instead}{OTHERWISE if derivative else ''}"
        )


def _subject(setting: str, value: object, condition: str | None) -> str:
    """The subject of a refusal: a setting, or a whole class of models."""
    whole, _, name = setting.rpartition(".")
    if name != "class":
        return f"This model has {setting}={value!s}"
    return f"{f'Its {whole}' if whole else 'This model'}, of class {value!s}, " + (
        "is not read" if condition is None else "has no exact weights"
    )


class UnsupportedQuestionError(AxilError):
    """A question that has no answer for this model or these data, where others have.

    ``question`` names it as it was asked, ``reason`` says why there is no answer and ``instead`` what to ask.
    """

    def __init__(self, question: str, reason: str, instead: str):
        self._arguments = (question, reason, instead)
        self.question = question
        self.reason = reason
        self.instead = instead
        super().__init__(f"{question} has no answer here: {reason}. {instead}")


ALIKE = 1e-3  # of a number: below it two that are printed look the same


class ExactnessError(AxilError):
    """The fitted model and a replay of its fit on the data given disagree.

    ``what`` names the quantity, ``tree`` and ``leaf`` the first place (None where there is no one place),
    ``found`` the replayed value, ``expected`` the model's and ``cause`` the likely reasons, one per line, the most likely first.
    """

    def __init__(
        self,
        what: str,
        found: float,
        expected: float,
        cause: str,
        tree: int | None = None,
        leaf: int | None = None,
    ):
        self._arguments = (what, found, expected, cause, tree, leaf)
        self.what = what
        self.found = found
        self.expected = expected
        self.cause = cause
        self.tree = tree
        self.leaf = leaf
        if tree is None:
            place = ""
        elif leaf is None:
            place = f" of tree {tree}"
        else:
            place = f" of leaf {leaf} in tree {tree}"
        distance = abs(found - expected)
        # never 1e+03, of rows above all
        if distance < 1000:
            size = f"{distance:.3g}"
        else:
            size = f"{distance:.0f}"
        if distance <= ALIKE * abs(expected):
            apart = f" (apart by {size})"
        else:
            apart = ""
        reasons = cause.strip().splitlines()
        if len(reasons) < 2:
            listed = cause
        else:
            listed = "\n".join(["Reasons, the most likely first:", *(f"- {r}" for r in reasons)])
        super().__init__(
            f"The {what}{place} does not agree with the fitted model: the data given lead to {found:.10g}, "
            f"the model has {expected:.10g}{apart}. {listed}"
        )

    def because(self, cause: str) -> ExactnessError:
        """This error with another cause."""
        return ExactnessError(self.what, self.found, self.expected, cause, self.tree, self.leaf)
