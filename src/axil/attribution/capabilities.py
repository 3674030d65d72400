"""Capabilities: which public methods a verified model refuses.

Each refusal has the reason and says what to do instead. A model refuses a method because of its
kind, because of the place of its training rows, or because of its own fit. The tables below list
all methods that a kind or a place refuses. A model adds what only its own fit refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from axil.adapters.contract import Kind
from axil.errors import ApproximationWarning, UnsupportedQuestionError, warn

Refusal = tuple[str, str]  # the reason, and the advice


class Location(Enum):
    """The place of the training rows."""

    MEMORY = "memory"
    PARTITIONS = "partitions"  #: of Dask collections


@dataclass(frozen=True)
class Capabilities:
    """The methods that one verified model refuses, and those that it answers approximately."""

    refused: Mapping[
        str, Refusal
    ]  #: by method, or method with an option such as "removal(greedy=True)"
    approximate: Mapping[str, str] = field(
        default_factory=dict
    )  #: by method the text of the warning

    @classmethod
    def of(
        cls, kind: Kind, location: Location, has_features: bool, more: Mapping[str, Refusal]
    ) -> Capabilities:
        """Return the capabilities of a kind in a location.

        Parameters
        ----------
        kind : Kind
            The kind of the model. Its refusals come before those of the place, whose advice would
            not help.
        location : Location
            Where the training rows are.
        has_features : bool
            Whether the features of the training rows are at hand.
        more : mapping
            What only this model refuses. These refusals come first.
        """
        refused: dict[str, Refusal] = {}
        if not has_features:
            refused |= _WITHOUT_FEATURES
        for table in (
            _BY_LOCATION[location],
            _BY_KIND[kind],
            _BY_BOTH.get((kind, location), {}),
            more,
        ):
            refused.update(table)
        return cls(refused)

    def require(self, method: str) -> None:
        """Raise `UnsupportedQuestionError` if the model refuses the method.

        Warn if its answer is approximate.
        """
        if method in self.refused:
            raise UnsupportedQuestionError(method, *self.refused[method])
        if method in self.approximate:
            warn(self.approximate[method], ApproximationWarning)

    def is_refused(self, method: str) -> bool:
        """Return whether the model refuses the method."""
        return method in self.refused


NO_WEIGHTS = "it needs exact weights, which this model does not have"
NO_STEPS = "this model is not a sum of steps along gradients"
ELSEWHERE = "it is not computed over training rows in Dask collections"
ONE_BY_ONE = "it is a mean of several models, and axil answers this method for one model"

REFIT = (
    'Fit a model of kind "exact" instead: a forest, or boosting with squared error '
    "(axil.supports(model))."
)
DERIVED = "Ask for its derivatives by the targets: explainer(X).weights."
IN_MEMORY = "Use training rows in memory."
ASK_MEMBERS = "Ask it of an explainer of one member, on the rows of its own fit."


def _each(methods: tuple[str, ...], reason: str, advice: str) -> dict[str, Refusal]:
    """Return one refusal for several methods."""
    return dict.fromkeys(methods, (reason, advice))


_WITHOUT_FEATURES = _each(
    ("similar", "adjustments", "report"),
    "this explainer was loaded from a file, which keeps no features",
    "Load it with them: axil.load(path, model, X_train=X_train).",
)

_EXACT: dict[str, Refusal] = _each(
    ("jacobian.derivatives", "jacobian.by_sample_weight"),
    "predictions are linear in the targets",
    "explainer(X).weights has the derivatives; for weights of rows ask removal.",
)

_WITHOUT_WEIGHTS: dict[str, Refusal] = {
    **_each(
        (
            "shapley",
            "min_label_changes",
            "diagnostics.leverage",
            "diagnostics.degrees_of_freedom",
            "diagnostics.standard_error",
        ),
        NO_WEIGHTS,
        REFIT,
    ),
    **_each(("jacobian.sensitivity", "jacobian.matrix"), NO_WEIGHTS, DERIVED),
    "diagnostics.out_of_bag": (
        "only forests have out-of-bag predictions",
        "Ask diagnostics.leave_one_out.",
    ),
    **_each(
        ("diagnostics.leave_one_out_curve", "removal(greedy=True)"),
        NO_WEIGHTS,
        "Ask explainer.removal(X, k=10), or explainer.without(X, rows) for a set of rows.",
    ),
    "similar(adjust=True)": (
        "this model's score is not a weighted sum of targets, so no target can be moved along "
        "with it",
        "Leave adjust out, or fit with squared error.",
    ),
}

#: Pages on numbers that no weights of targets make.
REPORT_OF_SCORES = (
    "its pages describe predictions as weighted sums of targets, and the scores of this model "
    "are sums of contributions or smooth functions of all targets",
    "Write one page of all predictions with to_html, or fit with squared error.",
)

_DERIVATIVE: dict[str, Refusal] = {
    **_WITHOUT_WEIGHTS,
    "precompute": (
        "the leaf matrix is made of exact weights, which this model does not have",
        "Leave the call out.",
    ),
    "report": REPORT_OF_SCORES,
    "calibrate": (NO_WEIGHTS, REFIT),
    "diagnostics.in_bag": ("it has no trees", "Leave the call out."),
    **_each(
        ("jacobian.gradient_contributions", "find_label_issues", "influence"), NO_STEPS, DERIVED
    ),
    "adjustments": (
        "axil reads neither trees nor coefficients of this model",
        "Fit boosted trees, a forest or a linear model of numbers.",
    ),
    "refit": ("it has no splits to keep", "Fit its model to the new rows."),
    "what_if": (
        "other targets have another optimum, and axil knows derivatives at this one alone",
        DERIVED,
    ),
    **_each(
        (
            "removal",
            "without",
            "diagnostics.leave_one_out",
            "diagnostics.leave_one_out_curve",
            "removal(greedy=True)",
        ),
        "a refit without some rows has another optimum, and axil knows derivatives at this one "
        "alone",
        "Minus a row's weight times explainer.jacobian.by_sample_weight(X) is the first-order "
        "effect of leaving it out.",
    ),
    "save": (
        "derivatives at an optimum come from the model and its training data, which no file keeps",
        "Keep the model and the data, and make the explainer again.",
    ),
}

_PARTITIONS: dict[str, Refusal] = {
    **_each(
        ("diagnostics.in_bag", "diagnostics.out_of_bag"),
        "it has one row for each training row, and training rows stay in their partitions",
        IN_MEMORY,
    ),
    **_each(
        ("jacobian.matrix", "jacobian.operator"),
        "its rows and columns are the training rows, which stay in their partitions",
        IN_MEMORY,
    ),
    "adjustments": (
        "it exchanges features between rows, and those of training rows stay in their partitions",
        IN_MEMORY,
    ),
    **_each(
        ("report", "to_html of intervals"),
        "its pages list the features of training rows, which stay in their partitions",
        "Write one page of all predictions with explainer.to_html(X), or use training rows in "
        "memory.",
    ),
    "refit": (
        "a refit rounds every leaf value as the library does, and sums over partitions are "
        "rounded differently",
        IN_MEMORY,
    ),
    "similar(beside=)": (
        "it would gather further columns of the training rows in this process",
        "Give them as columns of X_train, or use training rows in memory.",
    ),
    "removal(greedy=True)": (
        "it needs a pass over the partitions for every row of every set",
        "Leave greedy out, or use training rows in memory.",
    ),
    **_each(("jacobian.derivatives", "jacobian.by_sample_weight", "weights"), ELSEWHERE, IN_MEMORY),
    "save": (
        "a file would hold all training rows of the collection",
        "Keep the model and the collection, and make the explainer again.",
    ),
    "calibrate without X_cal and y_cal": (
        "calibration rows among the training rows would take their features and leverages out of "
        "the partitions",
        "Pass rows that the model was not fitted on, or use training rows in memory.",
    ),
}

_BY_KIND = {Kind.EXACT: _EXACT, Kind.ADDITIVE: _WITHOUT_WEIGHTS, Kind.DERIVATIVE: _DERIVATIVE}
_BY_LOCATION = {Location.MEMORY: dict[str, Refusal](), Location.PARTITIONS: _PARTITIONS}
_BY_BOTH = {
    (Kind.ADDITIVE, Location.PARTITIONS): {
        **_each(
            ("diagnostics.leave_one_out", "diagnostics.leave_one_out_curve"),
            NO_WEIGHTS,
            REFIT,
        ),
        **_each(
            (
                "removal",
                "removal(greedy=True)",
                "without",
                "what_if",
                "jacobian.sensitivity",
                "jacobian.matrix",
                "calibrate",
            ),
            ELSEWHERE,
            IN_MEMORY,
        ),
        "precompute": (
            "contributions in leaf order are stored beside the rows, which are in partitions",
            "Leave the call out, or use training rows in memory.",
        ),
        "influence": (
            "the derivative of the loss goes backwards through the rounds of all training rows",
            IN_MEMORY,
        ),
    },
}

# -- refusals of single models ---------------------------------------------------------------------

#: Rows without a target of some outputs: methods that need a target of every row for every output.
MISSING_TARGETS = _each(
    (
        *(
            "find_label_issues",
            "influence",
            "min_label_changes",
            "calibrate",
            "calibrate without X_cal and y_cal",
            "diagnostics.leave_one_out_curve",
            "refit",
            "report",
        ),
        *("shapley", "similar", "diagnostics.standard_error"),
    ),
    "some rows have no target of some outputs, and this method needs all of them",
    "Weights, top, group, what_if, without, removal and leave_one_out work for it.",
)

#: Boosted trees whose loss says nothing of how scores and targets compare: a loss of ranks, or the
#: user's own.
SCORES_ALONE = (
    "the loss does not say which target a score stands for, so there are no residuals",
    "Use contributions: they add up to the score for every loss.",
)

#: The option of `similar` by which trees count as far as they took away from the rows' own errors.
TREES_BY_ERRORS = 'similar(tree_weights="error" or "improved")'

#: Boosted trees whose contributions a GPU computes.
ORDERED_ON_DEVICE = (
    "the cores read contributions in leaf order, and this explainer computes them on a GPU",
    'Leave the call out, or make the explainer with device="cpu".',
)

#: Boosted trees of numbers whose contributions add up to a score.
INTERVALS_OF_SCORES = (
    "intervals rest on exact weights, which this model does not have",
    'Fit a model of kind "exact" instead: a forest, or boosting with squared error.',
)

#: The option of `calibrate` to take training rows, and why trees of counts and amounts refuse it.
WITHOUT_HELD_OUT = "calibrate without X_cal and y_cal"
HELD_OUT_ALONE = (
    "intervals of this model come from Pearson residuals of rows that it was not fitted on",
    "Pass X_cal and y_cal.",
)

#: A model of several others of which only derivatives are at hand.
MEAN_OF_DERIVATIVES: dict[str, Refusal] = {
    "jacobian.by_sample_weight": (ONE_BY_ONE, ASK_MEMBERS),
    **_each(("jacobian.derivatives", "jacobian.operator"), ONE_BY_ONE, DERIVED),
}

#: A model of several others whose contributions add up to its score.
MEAN_OF_CONTRIBUTIONS: dict[str, Refusal] = {
    **_each(
        (
            "adjustments",
            "find_label_issues",
            "influence",
            "what_if",
            "jacobian.by_sample_weight",
            "diagnostics.leave_one_out",
            "diagnostics.in_bag",
            "calibrate",
            "report",
            "save",
            "refit",
            "precompute",
        ),
        ONE_BY_ONE,
        ASK_MEMBERS,
    ),
    "removal": (ONE_BY_ONE, "Ask explainer.without(X, rows) for a set of rows."),
    **_each(("jacobian.derivatives", "jacobian.operator"), ONE_BY_ONE, DERIVED),
}


def without_shared_leaves(name: str) -> dict[str, Refusal]:
    """Return the refusals of a model without trees; ``name`` is the word for its numbers."""
    reason = "this model has no trees of its own, so no rows share a leaf"
    option = name.removesuffix("s")
    return {'similar(by="leaves")': (reason, f'Leave by out, or say by="{option}".')}
