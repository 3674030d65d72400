"""The models and settings of scikit-survival that axil does not explain, and why.

The tables are tried in order and also make the documentation.
"""

from __future__ import annotations

from axil.adapters.refusals import AT_RISK, Refusal
from axil.aliases import ForeignModel

BOOSTED = "GradientBoostingSurvivalAnalysis"
FORESTS = "RandomSurvivalForest", "ExtraSurvivalTrees"
EXACT = (
    "none: risk scores are explained by contributions",
    "targets: records of an event and a time, or times with a minus sign where a row was censored",
)

_CONTRIBUTIONS = "Ask for contributions: they add up to the score."
_LOSS_REASONS = {
    "coxph": AT_RISK,
    "squared": "residuals of censored rows count only up to their times",
    "ipcwls": "targets are logarithms of times",
}
_FIT_COX = 'Fit with loss="coxph".'


def _for_weights(setting: str, name: str, reason: str) -> Refusal[ForeignModel]:
    """Return why a model has no exact weights, if this is its setting or its class."""

    def find_value(model: ForeignModel) -> str:
        if name in (getattr(model, setting, ""), type(model).__name__):
            return name
        return ""

    return Refusal(setting, find_value, reason, _CONTRIBUTIONS, "(ii)", derivative=True)


STAGES: tuple[Refusal[ForeignModel], ...] = tuple(
    _for_weights("loss", name, reason) for name, reason in _LOSS_REASONS.items()
)

#: Of boosting, by contributions too.
STAGES_BY_GRADIENTS: tuple[Refusal[ForeignModel], ...] = (
    Refusal(
        "dropout_rate",
        lambda model: bool(model.dropout_rate) and str(model.dropout_rate),
        "which trees were left out of each stage is not sampled again",
        "Fit with dropout_rate=0.",
    ),
    Refusal(
        "n_iter_no_change",
        lambda model: model.n_iter_no_change is not None and str(model.n_iter_no_change),
        "the rows that early stopping held out are in no risk set",
        "Fit with n_iter_no_change=None, and with the n_estimators_ that it found.",
    ),
    Refusal(
        "loss",
        lambda model: model.loss not in _LOSS_REASONS and str(model.loss),
        "axil does not know its gradient",
        _FIT_COX,
    ),
)

#: Of forests.
FOREST: tuple[Refusal[ForeignModel], ...] = tuple(
    _for_weights(
        "estimator",
        name,
        "hazards are sums of events over the numbers of rows that are still at risk",
    )
    for name in FORESTS
)
