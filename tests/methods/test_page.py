"""Pages of every kind of explainer."""

import pytest

import axil
from tests.methods.method_models import GROUPS, NEW, groups_for


def test_the_page_is_that_of_the_explanation(any_explainer):
    sigma = None if any_explainer.kind == "additive" else 2.0  # whose pushes pass no noise on
    page = any_explainer.to_html(NEW, groups=groups_for(any_explainer), k=4, sigma=sigma)
    assert page == any_explainer(NEW).to_html(groups=GROUPS, k=4, sigma=sigma)
    with pytest.raises(axil.InputError, match="columns"):
        any_explainer.to_html(NEW, columns=["none of this name"])
