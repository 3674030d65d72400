"""Tables with one line per training row where the classes of a classifier share their weights."""

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier

import axil
from axil import InputError

DRAWS = np.random.default_rng(0)
X = pd.DataFrame(DRAWS.random((90, 3)), columns=["a", "b", "c"], index=[f"r{i}" for i in range(90)])
KINDS = np.array(["low", "middle", "high"])[(3 * X["a"].to_numpy()).astype(int)]
NEW = X[:4] + 0.05


@pytest.fixture(scope="module")
def forest():
    return RandomForestClassifier(10, max_depth=4, random_state=0).fit(X, KINDS)


@pytest.fixture(scope="module")
def explainer(forest):
    return axil.Explainer(forest, X, KINDS)


def test_one_line_per_row_with_classes_by_name(explainer, forest):
    explanation = explainer(NEW)
    table, per_class = explanation.top(3, per_class=False), explanation.top(3)
    assert list(table.columns) == [
        "query",
        "prediction",
        "probability",
        "rank",
        "row",
        "weight",
        "target",
    ]
    assert list(table["prediction"]) == list(np.repeat(forest.predict(NEW), 3))
    np.testing.assert_allclose(
        table["probability"], np.repeat(forest.predict_proba(NEW).max(axis=1), 3), atol=1e-12
    )
    assert list(table["target"]) == list(KINDS[X.index.get_indexer(table["row"])])
    low = per_class[per_class["output"] == "low"]
    assert np.array_equal(table[["row", "weight"]], low[["row", "weight"]])
    comparables = explainer.similar(NEW, 3, columns=["b"], per_class=False)
    pd.testing.assert_frame_equal(comparables[list(table.columns)], table)
    assert np.array_equal(comparables["b (row)"], X.loc[comparables["row"], "b"])
    assert "contribution" not in comparables
    kept = explainer.similar(NEW, 3, per_class=False, among=KINDS == "low", distinct="b")
    assert set(kept["target"]) == {"low"}
    assert len(explainer.similar(NEW[:0], 3, per_class=False)) == 0


def test_other_models_refuse_it(explainer):
    numbers = axil.Explainer(LGBMRegressor(n_estimators=3, verbose=-1).fit(X, X["a"]), X, X["a"])
    boosted = axil.Explainer(GradientBoostingClassifier(n_estimators=3).fit(X, KINDS), X, KINDS)
    for other in (numbers, boosted):
        for ask in (other(NEW).top, lambda per_class, e=other: e.similar(NEW, per_class=per_class)):
            with pytest.raises(
                InputError,
                match="per_class=False is for classifiers whose classes share their weights",
            ):
                ask(per_class=False)
    with pytest.raises(InputError, match='Leave by="contribution" out'):
        explainer(NEW).top(by="contribution", per_class=False)
    with pytest.raises(InputError, match="Leave one of them out"):
        explainer.similar(NEW, adjust=True, per_class=False)
