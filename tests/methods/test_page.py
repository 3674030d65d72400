"""Pages of every kind of explainer."""

import pytest

import axil
from tests.methods.method_models import GROUPS, NEW, groups_for, labels_for
from tests.output.page.page_models import data_of


def test_the_page_is_that_of_the_explanation(any_explainer):
    sigma = None if any_explainer.kind == "additive" else 2.0  # whose pushes pass no noise on
    page = any_explainer.to_html(NEW, groups=groups_for(any_explainer), k=4, sigma=sigma)
    assert page == any_explainer(NEW).to_html(groups=GROUPS, k=4, sigma=sigma)
    with pytest.raises(axil.InputError, match="columns"):
        any_explainer.to_html(NEW, columns=["none of this name"])


def test_hidden_features_and_small_groups_are_not_on_the_page(any_explainer):
    labels = GROUPS.astype(object)
    labels[:2] = "rare"
    labels[2:9] = "few"
    options = {"hide": ["rooms"], "min_group_size": 5}
    facts = data_of(any_explainer.to_html(NEW, groups=labels_for(any_explainer, labels), **options))
    assert "rooms" not in facts["features"]
    assert facts["groups"] == ["a", "b", "c", "2 groups of few rows"]
    assert (
        data_of(any_explainer(NEW).to_html(groups=labels, **options))["groups"] == facts["groups"]
    )
    with pytest.raises(axil.InputError, match="hide names 'cellar'"):
        any_explainer.to_html(NEW, hide=["cellar"])
