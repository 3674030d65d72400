"""Verification: the findings of the replay of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import axil.templates
from axil.errors import counted
from axil.replay.radius import ActiveSet


@dataclass(frozen=True)
class Verification:
    """Findings of the replay of the fit. Errors are relative to the largest |prediction|."""

    n_rows: int
    n_trees: int
    max_error: float  #: of the predictions of the training rows
    #: of the leaf values, each replayed from the model's own state before its tree; of
    #: contributions relative to the largest of them
    leaf_error: float
    tolerance: float  #: what max_error had to stay within
    scale: float  #: the largest |prediction|
    #: what rounding targets and offsets, if they are far larger, may add to an error, absolute
    rounding: float = 0.0
    #: what the model records of its leaves and was found equal
    compared: list[str] = field(default_factory=list)
    #: what the model does not state, e.g. {"rates": [[tree, rate]]}
    recovered: dict[str, Any] = field(default_factory=dict)
    #: what sampled the rows of each tree, where the replay sampled them, e.g. "LightGBM bagging"
    replayed: str = ""
    #: the active set that is fixed besides the splits; None where there is none
    active_set: ActiveSet | None = None
    #: further findings by name: the loss of boosted trees, how far an optimum is from a stationary
    #: point
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def error(self) -> float:
        """The largest error that was measured.

        It is that of predictions, leaf values, sums of contributions, or of an optimum its Newton
        step.
        """
        names = ("sum_error", "rounding_error", "newton_step")
        further_errors = [self.details.get(name, 0.0) for name in names]
        return float(max(self.max_error, self.leaf_error, *further_errors))

    def __repr__(self) -> str:
        lines = [f"  {name:<14} {finding}" for name, finding in self._findings()]
        return "\n".join([self._title(), *lines])

    def _repr_html_(self) -> str:
        return axil.templates.render_facts(self._title(), self._findings())

    def _title(self) -> str:
        """Return a title with the kind of replay and the number of rows."""
        rows = counted(self.n_rows, "training row")
        if self.n_trees:
            return f"axil.Verification: {counted(self.n_trees, 'tree')} replayed on {rows}"
        if self.details:
            return f"axil.Verification: an optimum of {rows}"
        return f"axil.Verification: a linear smoother of {rows}"

    def _findings(self) -> list[tuple[str, str]]:
        """Return pairs of a name and a finding in words."""
        details = [(name, _in_words(finding)) for name, finding in self.details.items()]
        within = f"within {self.max_error:.1e} (allowed {self.tolerance:.0e})"
        if not self.n_trees:
            return [("predictions", within), *details]
        compared = " and ".join(self.compared) or "nothing that the model records of its leaves"
        findings = [("equal", compared)]
        error = f"within {self.leaf_error:.1e} of the largest"
        if "loss" in self.details:
            findings.append(("leaf values", f"{error} of them"))
            findings.append(("scores", f"{within}, added up as the library adds them"))
        else:
            findings.append(("leaf values", f"{error} prediction"))
            findings.append(("predictions", within))
        if self.replayed:
            findings.append(("sampled rows", f"{self.replayed} replayed"))
        if self.active_set is not None:
            findings.append(("fixed", str(self.active_set)))
        for name, values in self.recovered.items():
            findings.append(("recovered", f"{name} ({len(values)})"))
        return [*findings, *details]


def _in_words(finding: object) -> str:
    """Return a further finding in words."""
    if isinstance(finding, float):
        return f"{finding:.1e}"
    return str(finding)


def worst_of(verifications: Sequence[Verification]) -> Verification:
    """Return one verification for all outputs, or for several models, with the largest errors."""
    first = verifications[0]
    if len(verifications) == 1:
        return first
    recovered: dict[str, Any] = {}
    for verification in verifications:
        for name in verification.recovered:
            recovered[name] = [each.recovered.get(name, []) for each in verifications]
    active_sets = [each.active_set for each in verifications if each.active_set is not None]
    active_set = None
    if active_sets:
        active_set = reduce(ActiveSet.__add__, active_sets)
    return replace(
        first,
        n_trees=sum(each.n_trees for each in verifications),
        max_error=max(each.max_error for each in verifications),
        leaf_error=max(each.leaf_error for each in verifications),
        scale=max(each.scale for each in verifications),
        rounding=max(each.rounding for each in verifications),
        recovered=recovered,
        active_set=active_set,
        details={},
    )
