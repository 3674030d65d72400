"""Errors and warnings of axil.

Every message says what was found, what was expected and what to do next.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from difflib import get_close_matches
from inspect import currentframe
from typing import Any

import numpy as np

LONGEST = 4000  # characters of a message
LONGEST_VALUE = 80  # characters of a value in it


def shown(value: object, most: int = LONGEST_VALUE) -> str:
    """Return a value, or the text of an error, as a message quotes it.

    The text is on one line. The middle of a text of more than ``most`` characters is left out.
    """
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return date_text(value)
    if isinstance(value, np.generic):
        value = value.item()  # 3, not np.int64(3)
    try:
        if isinstance(value, BaseException):
            text = str(value)
        else:
            text = repr(value)
    except Exception:
        # A whole number of thousands of digits has no text, nor has an object that refuses.
        return f"a {type(value).__name__}"
    line = " ".join(text.split())
    return shortened(line.encode("utf-8", "backslashreplace").decode(), most)


def date_text(value: np.datetime64 | np.timedelta64) -> str:
    """Return a date as 2011-06-01, with the time of day if it has one, or a span as 5 days."""
    if isinstance(value, np.timedelta64):
        return str(value)
    return str(np.datetime_as_string(value, unit="auto")).replace("T", " ")


def shortened(text: str, most: int) -> str:
    """Return the text, or its beginning and its end if it has more than ``most`` characters."""
    if len(text) <= most:
        return text
    n_shown = most // 2
    return f"{text[:n_shown]}... ({len(text) - 2 * n_shown} characters) ...{text[-n_shown:]}"


def counted(n: int, noun: str, form: str = "") -> str:
    """Return a number with its noun, in the singular or plural: "1 row", "12 rows".

    ``form`` is the format of the number.
    """
    if n == 1:
        plural = ""
    else:
        plural = "s"
    return f"{n:{form}} {noun}{plural}"


def suggestion(name: object, valid_names: Iterable[Any]) -> str:
    """Return " Did you mean ...?" with the valid name most like this one; "" if none is like it."""
    if not isinstance(name, str) or len(name) > LONGEST_VALUE:
        return ""
    candidates = [valid_name for valid_name in valid_names if isinstance(valid_name, str)]
    matches = get_close_matches(name, candidates, n=1)
    if matches:
        return f" Did you mean {shown(matches[0])}?"
    return ""


class AxilError(Exception):
    """The base of every error that axil raises on purpose.

    Its message stays short, whatever values are in it.
    """

    #: what the message was made of; None where that is the message itself
    _arguments: tuple[Any, ...] | None = None

    def __init__(self, message: str = ""):
        super().__init__(shortened(message, LONGEST))

    def __reduce__(self) -> tuple[Any, ...]:
        """Make the exception picklable: the default would pass the message for all arguments."""
        if self._arguments is None:
            return type(self), self.args
        return type(self), self._arguments


class InputError(AxilError, ValueError):
    """Invalid data or arguments."""


class CancellationError(AxilError):
    """A computation that `axil.Cancellation.cancel` stopped from another thread."""


class ApproximationWarning(UserWarning):
    """An answer that is not exact.

    It may be a derivative of a fit that stopped early, noise estimated from random vectors, or the
    effect of targets that move beyond the active set of the fit.
    """


class SplitsWarning(UserWarning):
    """An answer with fixed tree structure, although a retrained model likely has other splits."""


class CostWarning(UserWarning):
    """Work that begins now and takes long.

    The message says how long, and which call is cheaper.
    """


class UnseenCategoryWarning(UserWarning):
    """Rows to explain with a category that no training row has.

    The message says what the library does with it.
    """


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line of the user's code that called axil, however deep the call stack is."""
    frame = currentframe()
    level = 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "axil":
        frame = frame.f_back
        level = level + 1
    warnings.warn(message, category, stacklevel=level)


#: The end of a refusal of exact weights, for a model that `axil.Explainer` takes all the same.
OTHERWISE = """
No exact weights can exist for it as it is; for contributions that add up to its score, \
or derivatives, write:
    explainer = axil.Explainer(model, X_train, y_train)
    print(explainer.top(X))"""


#: What exact weights need, by the condition of the linear leaf-update criterion.
NEEDED = {
    "(i)": "a first prediction that is linear in the targets",
    "(ii)": "residuals and fitted values that are linear in the targets",
}


class UnsupportedModelError(AxilError):
    """A model whose predictions are not linear in the training targets, or that axil cannot read.

    Parameters
    ----------
    setting : str
        The name of the setting in the way, as its library spells it.
    value : object
        Its value in the model.
    reason : str
        Why axil refuses it.
    instead : str
        What to do about it, in a sentence.
    condition : str, optional
        The part of the linear leaf-update criterion that the setting breaks: "(i)", the first
        prediction is linear in the targets, or "(ii)", residuals are linear in the targets and leaf
        values linear in the residuals.
    derivative : bool, default False
        Whether `axil.Explainer` also accepts the model, and returns score contributions or
        derivatives instead of weights.
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
            needed = (
                f" Exact weights need {meaning} (condition {condition} of the linear leaf-update "
                "criterion)."
            )
        otherwise = ""
        if derivative:
            otherwise = OTHERWISE
        subject = _subject(setting, value, condition)
        super().__init__(f"{subject}: {reason}.{needed} {instead}{otherwise}")


def _subject(setting: str, value: object, condition: str | None) -> str:
    """Return the beginning of a refusal, which names a setting or a class of models."""
    owner, _, name = setting.rpartition(".")
    if name != "class":
        return f"This model has {setting}={value!s}"
    subject = "This model"
    if owner:
        subject = f"Its {owner}"
    if condition is None:
        return f"{subject}, of class {value!s}, is not read"
    return f"{subject}, of class {value!s}, has no exact weights"


class UnsupportedQuestionError(AxilError):
    """A method that has no answer for this model or these data.

    Parameters
    ----------
    question : str
        The name of the method, as the user called it.
    reason : str
        Why there is no answer.
    instead : str
        What to call instead, in a sentence.
    """

    def __init__(self, question: str, reason: str, instead: str):
        self._arguments = (question, reason, instead)
        self.question = question
        self.reason = reason
        self.instead = instead
        super().__init__(f"{question} has no answer here: {reason}. {instead}")


#: Two numbers that differ by less than this share of their size may look the same when printed.
ALIKE = 1e-3


class ExactnessError(AxilError):
    """The fitted model disagrees with a replay of its fit on the training data.

    Parameters
    ----------
    quantity : str
        What was compared, such as "row count".
    replayed : float
        Its value in the replay.
    expected : float
        Its value in the model.
    cause : str
        The likely reasons, one per line, the most likely first.
    tree, leaf : int, optional
        The first place where they disagree; None if there is no single place.
    """

    def __init__(
        self,
        quantity: str,
        replayed: float,
        expected: float,
        cause: str,
        tree: int | None = None,
        leaf: int | None = None,
    ):
        self._arguments = (quantity, replayed, expected, cause, tree, leaf)
        self.quantity = quantity
        self.replayed = replayed
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
        super().__init__(
            f"The {quantity}{place} does not agree with the fitted model: the data given lead to "
            f"{replayed:.10g}, the model has {expected:.10g}{_distance(replayed, expected)}. "
            f"{_listed(cause)}"
        )

    def because(self, cause: str) -> ExactnessError:
        """Return this error with another cause."""
        return ExactnessError(
            self.quantity, self.replayed, self.expected, cause, self.tree, self.leaf
        )


def _distance(replayed: float, expected: float) -> str:
    """Return the difference of two numbers that print alike, as text; "" for others."""
    distance = abs(replayed - expected)
    if not distance <= ALIKE * abs(expected):
        return ""
    if distance < 1000:
        return f" (apart by {distance:.3g})"
    return f" (apart by {distance:.0f})"  # never 1e+03, above all for numbers of rows


def _listed(cause: str) -> str:
    """Return the cause, or a list of several."""
    reasons = cause.strip().splitlines()
    if len(reasons) < 2:
        return cause
    return "\n".join(["Reasons, the most likely first:", *(f"- {reason}" for reason in reasons)])
