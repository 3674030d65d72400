"""The walk through a fit in the core, beside the same walk in NumPy."""

import lightgbm as lgb
import numpy as np
import pytest

from axil import Explainer
from axil.pushes.stages import StageWalk

SETTINGS = {
    "binary": {"objective": "binary"},
    "weighted": {"objective": "binary", "scale_pos_weight": 2.0, "sigmoid": 0.7},
    "classes": {"objective": "multiclass", "num_class": 3},
}
OTHER = {
    "bagged": {"objective": "binary", "bagging_fraction": 0.6, "bagging_freq": 1},
    "goss": {"objective": "binary", "data_sample_strategy": "goss"},
    "dart": {"objective": "binary", "boosting": "dart"},
}


def walked(settings, monkeypatch, in_core):
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(300, 4)), rng.uniform(0.5, 2.0, 300)
    y = (X[:, 0] + rng.normal(size=300) > 0).astype(int) + (settings["objective"] == "multiclass") * (X[:, 1] > 1)
    given = None if "bagging_fraction" in settings else weights
    common = {"num_leaves": 6, "verbose": -1, "num_threads": 1, "deterministic": True}
    model = lgb.train(common | settings, lgb.Dataset(X, y, weight=given), 8)
    found = []
    own = StageWalk._states

    def states(self):
        found.append(own(self) if in_core else None)
        return found[-1]

    monkeypatch.setattr(StageWalk, "_states", states)
    return Explainer(model, X, y, given)._model.boosting._walked, found


@pytest.mark.parametrize("name", SETTINGS)
def test_the_core_walks_as_numpy_does(name, monkeypatch):
    with monkeypatch.context() as patch:
        ours, states = walked(SETTINGS[name], patch, True)
    theirs, _ = walked(SETTINGS[name], monkeypatch, False)
    assert all(each is not None for each in states)
    np.testing.assert_allclose(ours.score, theirs.score, rtol=0, atol=1e-13)  # eight trees of values below one
    for mine, other in zip(ours.steps, theirs.steps, strict=True):
        for part in ("value", "by_g", "by_h", "share"):  # sums of 300 gradients, in another order
            np.testing.assert_allclose(getattr(mine, part), getattr(other, part), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", OTHER)
def test_draws_that_may_need_gradients_and_dropped_trees_are_left_to_numpy(name, monkeypatch):
    _, states = walked(OTHER[name], monkeypatch, True)
    assert states == [None]
