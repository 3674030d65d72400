import numpy as np
import pytest

from axil import InputError
from axil.baselines import Random
from tests.baselines.direct import asked


def test_scores_follow_from_the_seed_alone():
    a = asked("lightgbm", "regressor")
    first = Random(a.explainer).scores(a.X)
    np.testing.assert_array_equal(Random(a.explainer, seed=0).scores(a.X, a.y), first)
    np.testing.assert_array_equal(Random(a.explainer).scores(a.X[:2]), first[:2])
    assert not np.isin(Random(a.explainer, seed=1).scores(a.X), first).any()
    assert abs(np.corrcoef(first)[0, 1]) < 0.3
    assert abs(first.mean()) < 0.2


@pytest.mark.parametrize("seed", [-1, 0.5, None, True])
def test_a_seed_that_is_none_is_refused(seed):
    with pytest.raises(InputError, match="seed is"):
        Random(asked("lightgbm", "regressor").explainer, seed)
