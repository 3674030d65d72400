"""Reports on classes: the most similar training rows with their classes, then the prediction."""

import html
import re

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier

import axil
from axil.report.wording import percent


def loans(n, seed):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["income", "debt", "years"])
    X.index = [f"{'AB'[seed]}{i}" for i in range(n)]
    is_bad = X["debt"] - X["income"] + rng.normal(scale=0.6, size=n) > 0
    return X, np.where(is_bad, "defaulted", "repaid")


X, Y = loans(300, 0)
NEW, Y_NEW = loans(60, 1)
MODELS = {
    "boosting": lambda: lgb.LGBMClassifier(n_estimators=15, num_leaves=6, verbose=-1, n_jobs=1),
    "forest": lambda: RandomForestClassifier(20, min_samples_leaf=3, random_state=0),
}


def page_of(folder, name):
    text = (folder / "pages" / "0000" / f"{name}.html").read_text(encoding="utf-8")
    return html.unescape(re.sub(r"<style>.*?</style>", "", text, flags=re.S))


def cells_of_table(page):
    """Return the cells of each row of the table of a page."""
    table = page[page.index("<tbody>") : page.index("</tbody>")]
    return [re.findall(r"<td[^>]*>(.*?)</td>", line) for line in table.split("<tr>")[1:]]


@pytest.mark.parametrize("name", MODELS)
def test_pages_count_the_classes_of_the_most_similar_rows(name, tmp_path):
    model = MODELS[name]().fit(X, Y)
    explainer = axil.Explainer(model, X, Y, pos_label="defaulted")
    words = {"rows": "loans", "query": "loan", "target": "outcome"}
    written = explainer.report(NEW.head(8), tmp_path / "pages", k=20, columns=["debt"], **words)
    assert (written.pages, written.written) == (8, 8)
    similar = explainer.similar(NEW.head(8), 20, columns=["debt"], by="leaves")
    outcomes = dict(zip(X.index, Y))
    for place, label in enumerate(NEW.index[:8]):
        page = page_of(tmp_path / "pages", label)
        listed = similar[similar["query"] == label]
        if "output" in similar and similar["output"].nunique() > 1:
            listed = listed[listed["output"] == "defaulted"]
        count = sum(outcomes[row] == "defaulted" for row in listed["row"])
        sentence = f"Of the 20 loans most like this loan: {count} defaulted"
        if count < 20:
            sentence += f", {20 - count} repaid"
        assert f"{sentence}." in page
        cells = cells_of_table(page)
        assert [line[0].split("\u00a0")[1] for line in cells] == listed["row"].tolist()
        assert [line[1] for line in cells] == [outcomes[row] for row in listed["row"]]
        assert [line[2] for line in cells] == [percent(s) for s in listed["similarity"]]
        probability = model.predict_proba(NEW.iloc[[place]])[0, 0]
        assert f"Probability of defaulted: {percent(probability)}" in page
        assert f"<b>{model.predict(NEW.iloc[[place]])[0]}</b>" in page
        assert "not reasons by feature" in page
        assert page.index("most like this loan") < page.index("Probability of")
        assert ("Score of defaulted" in page) == (name == "boosting")
    again = explainer.report(NEW.head(8), tmp_path / "pages", k=20, columns=["debt"], **words)
    assert again.written == 0
    assert "defaulted, " in (tmp_path / "pages" / "search" / "0.js").read_text(encoding="utf-8")


def test_another_class_or_model_is_another_report(tmp_path):
    model = MODELS["boosting"]().fit(X, Y)
    axil.Explainer(model, X, Y).report(NEW.head(2), tmp_path / "pages")
    with pytest.raises(axil.InputError, match="holds another report"):
        axil.Explainer(model, X, Y, pos_label="defaulted").report(NEW.head(2), tmp_path / "pages")


def test_sets_and_calibrated_probabilities(tmp_path):
    model = MODELS["boosting"]().fit(X, Y)
    explainer = axil.Explainer(model, X, Y, pos_label="defaulted")
    predictive = explainer.calibrate(NEW[8:], Y_NEW[8:])
    explainer.report(
        NEW.head(8), tmp_path / "pages", interval=predictive, confidence_level=0.8, search=["debt"]
    )
    sets = predictive.predict_set(NEW.head(8), 0.8)
    calibrated = predictive.probability(NEW.head(8))
    for label in NEW.index[:8]:
        page = page_of(tmp_path / "pages", label)
        own = sets[(sets["query"] == label) & sets["in_set"]]
        classes = " or ".join(own["output"]) or "none"
        assert f"<b>{classes}</b>: 4 of 5 such sets" in page or f"<b>{classes}</b>: 8 of 10" in page
        line = calibrated[(calibrated["query"] == label) & (calibrated["output"] == "defaulted")]
        assert f"{percent(line['probability'].iloc[0])} calibrated" in page


def test_rules_and_suspects(tmp_path):
    model = MODELS["forest"]().fit(X, Y)
    explainer = axil.Explainer(model, X, Y)
    allowed = (X["years"] > 0).to_numpy()
    written = explainer.report(
        NEW.head(3), tmp_path / "pages", k=4, among=allowed, among_text="of more than 0 years",
        suspects=list(X.index[allowed]),
    )  # fmt: skip
    assert written.unlisted == 0
    page = page_of(tmp_path / "pages", NEW.index[0])
    assert "of more than 0 years" in page
    assert page.count("(looks wrong)") == 4
    assert "were not checked" not in page


def test_models_without_trees_list_rows_by_weight(tmp_path):
    model = KNeighborsClassifier(5).fit(X, Y)
    axil.Explainer(model, X, Y).report(NEW.head(2), tmp_path / "pages", k=3)
    page = page_of(tmp_path / "pages", NEW.index[0])
    assert "Of the 3 records most like this case" in page
    assert "were not checked" in page
    assert "Alike" not in page


def test_more_than_two_classes(tmp_path):
    three = np.digitize(X["debt"], [-0.5, 0.5])
    model = MODELS["boosting"]().fit(X, three)
    axil.Explainer(model, X, three).report(NEW.head(2), tmp_path / "pages", k=3)
    page = page_of(tmp_path / "pages", NEW.index[0])
    assert page.count("Probability of") == 3


def test_options_of_numbers_are_refused(tmp_path):
    explainer = axil.Explainer(MODELS["forest"]().fit(X, Y), X, Y)
    for name, value in (("unit", "$"), ("map", ("debt", "years")), ("sign", "for")):
        with pytest.raises(axil.InputError, match=f"{name} is .* this model predicts classes"):
            explainer.report(NEW, tmp_path / "none", **{name: value})
    with pytest.raises(axil.InputError, match="there is no interval to have it"):
        explainer.report(NEW, tmp_path / "none", confidence_level=0.8)
    with pytest.raises(axil.InputError, match="expected what explainer"):
        explainer.report(NEW, tmp_path / "none", interval=3)
    counts = lgb.LGBMRegressor(objective="poisson", n_estimators=3, verbose=-1)
    numbers = (Y == "repaid") + 1.0
    with pytest.raises(axil.UnsupportedQuestionError, match="report"):
        axil.Explainer(counts.fit(X, numbers), X, numbers).report(NEW, tmp_path / "none")
