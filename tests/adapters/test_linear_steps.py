"""LinearSteps and its transpose against the same map as a dense matrix."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np

from axil.adapters import read
from tests.adapters.lightgbm_models import with_gaps


def test_the_map_and_its_transpose_are_one_matrix() -> None:
    data = with_gaps()
    model = lgb.LGBMRegressor(
        n_estimators=4, linear_tree=True, subsample=0.7, subsample_freq=1, n_jobs=1, verbose=-1
    )
    found = read(model.fit(data.X, data.y)).smoother(data.X, None)  # type: ignore[attr-defined]
    steps = found.solution
    whole = steps @ np.eye(len(data.y))
    assert steps.shape == whole.shape == (found.training.shape[1], len(data.y))
    np.testing.assert_allclose(
        steps.T @ np.eye(len(whole)), whole.T, rtol=0, atol=1e-12 * np.abs(whole).max()
    )
    y, u = data.y[:, None], np.linspace(-1, 1, len(whole))[:, None]
    np.testing.assert_allclose(steps @ y, whole @ y, rtol=0, atol=1e-10 * np.abs(whole).max())
    np.testing.assert_allclose(steps.T @ u, whole.T @ u, rtol=0, atol=1e-10 * np.abs(whole).max())
    predicted = np.asarray(model.predict(data.X_new))
    coordinates = read(model).coordinates(data.X_new)
    np.testing.assert_allclose((coordinates @ (whole @ y))[:, 0], predicted, rtol=1e-6)
