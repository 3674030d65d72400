"""TreeSim against the kernel of one-hot leaves."""

import numpy as np
import pytest

from axil.baselines import TreeSim
from axil.methods.method import verified_model
from tests.baselines.direct import BOOSTED, FORESTS, asked, kernel
from tests.subsets import chosen


@pytest.mark.parametrize(("library", "name"), chosen(2, BOOSTED + FORESTS, share=1))
def test_scores_are_signed_similarities(library, name):
    a = asked(library, name)
    engines, alike, pull = verified_model(a.explainer).engines, 0.0, 0.0
    for k, (fit, queries, targets) in enumerate(a.fits()):
        if k < len(engines):  # outputs that share trees share the kernel
            alike = alike + kernel(fit.s, queries)[0] * fit.weights
        predicted = fit.predict(queries)[:, None]
        pull = pull + (fit.y - fit.offsets - predicted) * (targets[:, None] - predicted)
    found = a.scores(TreeSim(a.explainer))
    np.testing.assert_allclose(found, alike * np.sign(pull), rtol=0, atol=1e-12 * alike.max())
    np.testing.assert_allclose(
        a.scores(TreeSim(a.explainer), y=False), alike, rtol=0, atol=1e-12 * alike.max()
    )


def test_a_row_is_most_like_rows_in_its_own_leaves():
    a = asked("sklearn", "RandomForestRegressor outputs")
    alike = TreeSim(a.explainer).scores(a.case.X)
    assert (alike >= 0).all()
    assert (alike.argmax(axis=1) == np.arange(len(alike))).mean() > 0.9
