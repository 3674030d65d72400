"""top, streamed, against what one whole explanation answers."""

import numpy as np
import pytest

import axil
from axil.output.tables import NOTES
from tests.methods.method_models import NEW, over_dask, same


@pytest.mark.parametrize("by", [None, "weight", "contribution"])
def test_top_is_that_of_the_explanation(any_explainer, batches, by):
    whole = any_explainer(NEW)
    if by == "weight" and any_explainer.kind == "additive" and over_dask(any_explainer):
        with pytest.raises(axil.UnsupportedQuestionError, match="weights has no answer here"):
            any_explainer.top(NEW, 3, by=by)
        return
    found, wanted = any_explainer.top(NEW, 3, by=by), whole.top(3, by=by)
    note = NOTES[
        "derivative" if by == "weight" and any_explainer.kind == "additive" else whole.kind
    ]
    assert found.attrs["axil"].startswith(note)
    assert wanted.attrs == found.attrs
    if over_dask(any_explainer):
        # Over Dask it is summed by leaves from the targets as LightGBM keeps them, in float32.
        np.testing.assert_allclose(found["prediction"], wanted["prediction"], rtol=1e-6)
        found, wanted = (table.drop(columns="prediction") for table in (found, wanted))
    same(found, wanted)


def test_no_rows(any_explainer):
    assert list(any_explainer.top(NEW.head(0), 3).columns) == list(
        any_explainer.top(NEW, 3).columns
    )
    assert len(any_explainer.top(NEW.head(0), 3)) == 0
