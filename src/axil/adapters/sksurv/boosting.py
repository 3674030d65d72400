"""scikit-survival's gradient boosting, whose stages are those of scikit-learn."""

from __future__ import annotations

import hashlib

import numpy as np

from axil.adapters.boosted_fit import BoostedFit, InitialPrediction
from axil.adapters.contract import TargetForm, TrainingRows
from axil.adapters.refusals import kind_of, refusal
from axil.adapters.sklearn.boosting import GradientBoostingAdapter
from axil.adapters.sklearn.refusals import DRAWS
from axil.adapters.sklearn.trees import StackAdapter
from axil.adapters.sksurv.loss import STAGE_LOSSES
from axil.adapters.sksurv.refusals import STAGES, STAGES_BY_GRADIENTS
from axil.aliases import FeatureTable, ForeignModel
from axil.arrays import FloatArray


class SurvivalBoostingAdapter(GradientBoostingAdapter):
    """GradientBoostingSurvivalAnalysis: trees of means of residuals, which start from 0."""

    library = "scikit-survival"
    target_form = TargetForm.TIMES
    is_written = False

    def __init__(self, model: ForeignModel):
        kind, not_exact = kind_of(model, STAGES, STAGES_BY_GRADIENTS)
        StackAdapter.__init__(self, model, [*model.estimators_.ravel()])
        self.kind = kind
        self.not_exact = not_exact
        self.refused_draws = refusal(DRAWS, model)
        self._loss = STAGE_LOSSES[model.loss]
        content = f"{self._stack.fingerprint()} {float(model.learning_rate)!r} {model.loss}"
        self.fingerprint = hashlib.sha256(content.encode()).hexdigest()

    def scores(self, X: FeatureTable) -> FloatArray:
        """Return the raw scores, (n, 1): logarithms of hazards or of times."""
        if not X.shape[0]:
            return np.zeros((0, 1))
        predicted = np.asarray(self._model.predict(self._rows(X)), dtype=np.float64)
        if self._model.loss != "coxph":
            predicted = np.log(predicted)
        return predicted.reshape(X.shape[0], 1)

    def predictions(self, X: FeatureTable) -> FloatArray:
        """Return the raw scores, (n, 1), of which ``predict`` may take exponentials."""
        return self.scores(X)

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return the trees as one entry. The rows of each stage are sampled again."""
        return [self._stages(rows)]

    def _initial(self) -> InitialPrediction:
        """Return the initial prediction, 0."""
        return InitialPrediction(np.zeros(1))
