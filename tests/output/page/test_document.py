"""The file itself: nothing of the data in the markup, nothing fetched, small."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import scipy.sparse as sp

from axil import Explanation, InputError
from axil.output.context import Context
from axil.output.predictions import WeightedSums
from tests.output.page.page_models import HOSTILE, data_of, hostile, houses


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


def test_names_from_the_data_never_reach_the_markup():
    explainer, X, groups = hostile()
    text, plain = explainer.to_html(X, groups=groups), houses()[0].to_html(houses()[1])
    assert Tags(text).found == Tags(plain).found  # the same markup, whatever the names
    assert "hacked" not in text
    summary = data_of(text)
    assert summary["features"] == HOSTILE
    assert summary["queries"]["labels"] == list(X.index)
    assert set(summary["groups"]) == set(HOSTILE[:4])


def test_previews_escape_names():
    explainer, X, _ = hostile()
    preview = explainer(X)._repr_html_()
    assert not {"script", "img"} & {tag for tag, _ in Tags(preview).found}
    assert "&lt;script&gt;" in preview


def test_only_its_own_script_may_run_and_nothing_is_fetched():
    text = houses()[0].to_html(houses()[1])
    policy = next(
        tag for name, tag in Tags(text).found if tag.get("http-equiv") == "Content-Security-Policy"
    )["content"]
    assert policy.startswith("default-src 'none'; ")
    for kind in ("script", "style"):
        inside = re.search(rf"<{kind}>(.*?)</{kind}>", text, re.S)[1]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.findall(
        r"url\(|@import|innerHTML|insertAdjacentHTML|document\.write|eval\(", text
    )
    assert "{{" not in text


def test_a_thousand_predictions_of_fifty_rows_and_twenty_features_stay_small():
    rng = np.random.default_rng(0)
    n, k, n_train = 1000, 50, 100_000
    columns = rng.choice(
        n_train, n * k, replace=False
    )  # every listed row is another one: the worst case
    weights = sp.csr_array(
        (rng.normal(size=n * k), columns, np.arange(0, n * k + 1, k)), shape=(n, n_train)
    )
    X_train, X = rng.normal(size=(n_train, 20)), rng.normal(size=(n, 20))
    sums = WeightedSums(
        weights=weights,
        intercepts=np.zeros(n),
        targets=rng.normal(size=n_train),
        index=np.arange(n_train),
        query_index=np.arange(n),
        context=Context(X, X_train, None, rng.normal(size=(n, 1))),
    )
    text = Explanation(sums).to_html(k=50)
    summary = data_of(text)
    assert len(summary["training"]["labels"]) == n * k
    assert summary["feature_digits"] == 4
    assert len(text.encode()) < 5_000_000


def test_where_it_is_written(tmp_path):
    explainer, X, _ = houses()
    path = tmp_path / "report.html"
    assert explainer(X).to_html(path) is None
    assert path.read_text(encoding="utf-8") == explainer(X).to_html()
    assert explainer.to_html(X, str(path)) is None
    with pytest.raises(InputError, match="There is no directory"):
        explainer.to_html(X, tmp_path / "missing" / "report.html")
    with pytest.raises(InputError, match="path is a int"):
        explainer(X).to_html(3)
    with pytest.raises(InputError, match="k is 0"):
        explainer.to_html(X, k=0)
