"""The page within a notebook: the same text, in a frame, and nothing printed or written."""

from html.parser import HTMLParser

import pytest

import axil
from tests.output.page.page_models import hostile, houses


def frame_of(page):
    """The attributes of the one tag that a notebook is given."""
    found = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: found.append((tag, dict(attributes)))
    parser.feed(page._repr_html_())
    ((tag, attributes),) = found
    assert tag == "iframe"
    return attributes


def test_a_notebook_shows_the_page_of_to_html(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    explainer, X, years = houses()
    predictive = explainer.calibrate(X, explainer(X).predictions)
    for page, text in (
        (explainer.show(X[:3], groups=years, k=7), explainer.to_html(X[:3], groups=years, k=7)),
        (explainer(X[:3]).show(height=300, k=7), explainer(X[:3]).to_html(k=7)),
        (
            predictive.show(X[:3], confidence_level=0.5),
            predictive.to_html(X[:3], confidence_level=0.5),
        ),
    ):
        assert frame_of(page)["srcdoc"] == text
    assert "height:300px" in frame_of(explainer(X[:3]).show(height=300))["style"]
    assert frame_of(page)["sandbox"] == "allow-scripts allow-downloads"  # no way out of the frame
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr() == ("", "")


def test_elsewhere_it_says_what_to_do():
    explainer, X, _ = houses()
    assert 'elsewhere write it, to_html(X, "page.html")' in repr(explainer.show(X[:3]))
    with pytest.raises(axil.InputError, match="leave out path, or use to_html"):
        explainer.show(X[:3], path="page.html")
    for wrong in (0, "high", None, 1.5):
        with pytest.raises(axil.InputError, match="height is"):
            explainer.show(X[:3], wrong)


def test_names_stay_within_the_frame():
    explainer, X, groups = hostile()
    page = explainer.show(X, groups=groups)
    assert frame_of(page)["srcdoc"] == explainer.to_html(X, groups=groups)
