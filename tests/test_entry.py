"""axil.explain: one entry point, whichever explainer it is."""

import lightgbm as lgb
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import axil

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(80, 3)), RNG.normal(size=80)
SMALL = {"n_estimators": 3, "num_leaves": 4, "verbose": -1, "n_jobs": 1}


def squared(y, F):
    return F - y, np.ones_like(y)


@pytest.mark.parametrize(
    ("model", "y", "kind", "explainer"),
    [
        (lgb.LGBMRegressor(**SMALL), Y, "exact", "axil.Explainer"),
        (lgb.LGBMClassifier(**SMALL), Y > 0, "additive", "axil.JacobianExplainer"),
        (lgb.LGBMRegressor(**SMALL, objective=squared), Y, "additive", "axil.JacobianExplainer"),
        (LogisticRegression(tol=1e-10), Y > 0, "jacobian", "axil.JacobianExplainer"),
    ],
)
def test_the_right_explainer_says_which_it_is(model, y, kind, explainer):
    found = axil.explain(model.fit(X, y), X, y)
    assert found.kind == axil.supports(model).kind == kind
    assert repr(found).startswith(f"<{explainer}: ")
    assert len(found.top(X[:2], 3)) == 6


def test_two_lines_of_the_refusal_run():
    model = lgb.LGBMClassifier(**SMALL).fit(X, Y > 0)
    with pytest.raises(axil.UnsupportedModelError) as caught:
        axil.Explainer(model, X, Y > 0)
    lines = [line.strip() for line in str(caught.value).splitlines() if line.startswith("    ")]
    assert lines == ["explainer = axil.explain(model, X_train, y_train)", "print(explainer.top(X))"]
    names = {"axil": axil, "model": model, "X_train": X, "y_train": Y > 0, "X": X[:2]}
    exec("\n".join(lines), names)
    assert names["explainer"].kind == "additive"


def test_models_that_nothing_explains_are_refused_by_name():
    model = lgb.LGBMRegressor(**SMALL, objective="l1").fit(X, Y)
    with pytest.raises(axil.UnsupportedModelError, match="medians"):
        axil.explain(model, X, Y)
    booster = lgb.LGBMRegressor(**SMALL, objective=squared).fit(X, Y).booster_
    with pytest.raises(axil.UnsupportedModelError, match="as objective="):
        axil.explain(booster, X, Y)
    with pytest.raises(axil.ExactnessError):
        axil.explain(lgb.LGBMRegressor(**SMALL).fit(X, Y), X, Y[::-1])


@pytest.mark.parametrize(("name", "instead"), [("base_margin", "init_score"), ("inverse_func", r"axil\.Explainer\(")])
def test_parameters_of_others_are_refused_with_what_to_pass_instead(name, instead):
    with pytest.raises(axil.InputError, match=f"takes no {name}.*{instead}"):
        axil.explain(lgb.LGBMRegressor(), X, X[:, 0], **{name: X[:, 0]})
    with pytest.raises(TypeError, match="unexpected keyword argument 'wieghts'"):
        axil.explain(lgb.LGBMRegressor(), X, X[:, 0], wieghts=1)
