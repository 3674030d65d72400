"""Pictures stay as they were.

They are compared without their text, on axes of a fixed place, so that fonts cannot matter; texts are compared as text.
"""

import numpy as np
import pytest
from matplotlib.testing.compare import compare_images

from axil import plots
from tests.plots.plot_models import DRAWN, IMAGES, explanation, picture

TOLERANCE = 2.0  # root mean square of grey levels; a redrawn picture has 0, one bar 10 % too long more than this


@pytest.mark.parametrize("name", DRAWN)
def test_pictures_stay_as_they_were(name, tmp_path):
    picture(DRAWN[name], tmp_path / f"{name}.png")
    kept = tmp_path / "kept.png"
    kept.write_bytes((IMAGES / f"{name}.png").read_bytes())
    assert compare_images(str(kept), str(tmp_path / f"{name}.png"), tol=TOLERANCE) is None


def test_a_wrong_bar_would_be_seen(tmp_path):
    weights = explanation().weights[2].copy()
    weights[np.abs(weights).argsort()[-3]] *= 1.1
    picture(lambda ax: plots.weights(weights, 15, ax=ax), tmp_path / "wrong.png")
    kept = tmp_path / "kept.png"
    kept.write_bytes((IMAGES / "weights.png").read_bytes())
    assert compare_images(str(kept), str(tmp_path / "wrong.png"), tol=TOLERANCE) is not None
