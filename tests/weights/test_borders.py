"""Changes of ranks: told where rows change sides, and not before."""

import numpy as np
import pytest

import axil
from axil.methods.method import verified_model
from axil.replay.radius import leaves_beyond
from tests.adapters import catboost_models, lightgbm_models, sklearn_models, xgboost_models

CASES = {
    "lightgbm": lightgbm_models.RANKED["quantile"],
    "lightgbm weighted": lightgbm_models.RANKED["l1 weighted bagging"],
    "lightgbm dart": lightgbm_models.RANKED["quantile dart bagging weighted"],
    "xgboost": xgboost_models.RANKED["absolute error"],
    "catboost": catboost_models.RANKED["MAE"],
    "forest": sklearn_models.RANKED["forest absolute_error"],
}


@pytest.mark.parametrize("name", CASES)
def test_within_the_radius_no_rank_changes_and_beyond_it_some_do(name):
    case = CASES[name]()
    explainer = axil.Explainer(case.model, case.X, case.y, sample_weight=case.sample_weight)
    radius, targets = explainer.verification.active_set.radius, verified_model(explainer).targets
    engine = verified_model(explainer).engines[0]
    assert radius > 0
    changed = 0
    for row in range(0, len(targets), 21):
        for way in (-1, 1):
            near, far = targets.copy(), targets.copy()
            near[row] += way * 0.99 * radius
            far[row] += way * np.ptp(targets)
            assert leaves_beyond(engine, near, targets) == 0
            changed += leaves_beyond(engine, far, targets)
    assert changed > 0
