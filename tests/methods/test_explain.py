"""What every question has in common: names of classes, refusals, the proof at every answer."""

import inspect
from operator import attrgetter

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier

import axil
from axil import InputError, UnsupportedQuestionError, inputs
from axil.methods.method import verified_model
from tests.contract_models import case_of, explainer_of
from tests.methods.method_models import NEW, validation


def test_classes_answer_with_their_names():
    rng = np.random.default_rng(0)
    X = rng.random((120, 3))
    y = np.where(X[:, 0] > 0.5, "high", "low")
    explainer = axil.Explainer(
        RandomForestClassifier(5, min_samples_leaf=5, random_state=0).fit(X, y), X, y
    )
    frame = explainer.what_if(X[:4], {0: "high" if y[0] == "low" else "low"})
    assert set(frame["output"]) == {"high", "low"}
    np.testing.assert_allclose(frame.groupby("query")["change"].sum(), 0, atol=1e-15)
    assert set(explainer.removal(X[:2], k=2, same_sign=True)["output"]) == {"high", "low"}
    assert set(explainer.influence(X[:9], y[:9])["output"]) == {"high", "low"}


def test_categories_keep_their_missing_values():
    words = pl.DataFrame({"kind": ["a", None, "c"]}).with_columns(
        pl.col("kind").cast(pl.Categorical)
    )
    for X in (words, words.to_arrow(), words.to_pandas()):
        (found,) = inputs.feature_columns(X, np.array([2, 1, 1, 0]), [0])
        assert [None if word != word else word for word in found] == ["c", None, None, "a"]


def test_a_model_that_changed_since_is_noticed():
    case = case_of("smoother", "ridge")
    model = clone(case.model).fit(case.X, case.y)
    explainer = axil.Explainer(model, case.X, case.y)
    verified_model(explainer).adapter._model.coef_ = model.coef_ + 1.0  # it keeps a copy of its own
    asked = {
        "removal": lambda: explainer.removal(case.X_new),
        "removal(same_sign=True)": lambda: explainer.removal(case.X_new, k=2, same_sign=True),
        "what_if": lambda: explainer.what_if(case.X_new, {0: 1.0}),
        "influence": lambda: explainer.influence(case.X_new, np.zeros(len(case.X_new))),
        "diagnostics.standard_error": lambda: explainer.diagnostics.standard_error(case.X_new),
        "similar": lambda: explainer.similar(case.X_new),
        "group": lambda: explainer.group(case.X_new, case.y > 0),
        "concentration": lambda: explainer.concentration(case.X_new),
    }
    for ask in asked.values():
        with pytest.raises(axil.ExactnessError, match="may have changed"):
            ask()


def test_nothing_is_printed(capfd):
    case, explainer = case_of("lightgbm", "regressor"), explainer_of("lightgbm", "regressor")
    explainer.removal(case.X_new, k=2, same_sign=True)
    explainer.diagnostics.standard_error(case.X_new)
    explainer.influence(case.X_new, validation("lightgbm", "regressor"))
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_a_loaded_explainer_asks_for_the_training_rows(tmp_path):
    case, explainer = case_of("lightgbm", "bagging"), explainer_of("lightgbm", "bagging")
    explainer.save(tmp_path / "e")
    loaded = axil.load(tmp_path / "e", case.model)
    np.testing.assert_allclose(
        loaded.removal(case.X_new), explainer.removal(case.X_new), atol=1e-12
    )
    with pytest.raises(axil.UnsupportedQuestionError, match=r"X_train=X_train"):
        loaded.similar(case.X_new)
    again = axil.load(tmp_path / "e", case.model, X_train=case.X)
    pd.testing.assert_frame_equal(again.similar(case.X_new, 3), explainer.similar(case.X_new, 3))
    with pytest.raises(InputError, match="X_train has 9 rows"):
        axil.load(tmp_path / "e", case.model, X_train=case.X[:9])


QUESTIONS = {
    "what_if": lambda e: e.what_if(NEW, {}),
    "jacobian.sensitivity": lambda e: e.jacobian.sensitivity(NEW, []),
    "without": lambda e: e.without(NEW, e.index[:2]),
    "removal": lambda e: e.removal(NEW, k=2),
    "jacobian.gradient_contributions": lambda e: e.jacobian.gradient_contributions(NEW),
    "diagnostics.leave_one_out": lambda e: e.diagnostics.leave_one_out(),
    "diagnostics.leave_one_out_curve": lambda e: e.diagnostics.leave_one_out_curve(),
    "find_label_issues": lambda e: e.find_label_issues(),
    "influence": lambda e: e.influence(NEW, np.arange(len(NEW)) % 2),
    "shapley": lambda e: e.shapley(NEW, np.arange(len(NEW)) % 2),
    "min_label_changes": lambda e: e.min_label_changes(NEW, 1.0, 1.0),
    "diagnostics.leverage": lambda e: e.diagnostics.leverage(),
    "diagnostics.degrees_of_freedom": lambda e: e.diagnostics.degrees_of_freedom(),
    "diagnostics.standard_error": lambda e: e.diagnostics.standard_error(NEW),
    "calibrate": lambda e: e.calibrate(NEW, np.arange(len(NEW)) % 2),
    "jacobian.matrix": lambda e: e.jacobian.matrix(),
    "jacobian.operator": lambda e: e.jacobian.operator,
    "jacobian.derivatives": lambda e: e.jacobian.derivatives(
        NEW, *([] if e.outputs is None else [e.outputs[0]])
    ),
    "jacobian.by_sample_weight": lambda e: e.jacobian.by_sample_weight(NEW),
    "precompute": lambda e: e.precompute(),
    "report": lambda e: e.report(NEW, "nowhere/at/all"),
    "save": lambda e: e.save("nowhere/at/all.npz"),
}


def has_method(explainer, name):
    """Return whether an explainer, or one of its namespaces, has a method; none is called."""
    namespace, _, method = name.rpartition(".")
    owner = explainer
    if namespace:
        owner = attrgetter(namespace)(explainer)
    return inspect.getattr_static(owner, method, None) is not None


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_without_an_answer_are_refused_by_name(any_explainer, question):
    """Everywhere with the reason and what to do; every other question comes to its own arguments."""
    assert has_method(any_explainer, question)
    if question not in verified_model(any_explainer).capabilities.refused:
        return
    with pytest.raises(
        UnsupportedQuestionError, match=f"{question} has no answer here: .*[a-z)]\\. .*\\."
    ):
        QUESTIONS[question](any_explainer)


def test_refusals_name_questions_that_exist(any_explainer):
    for name in verified_model(any_explainer).capabilities.refused:
        method = name.split("(")[0].split(" ")[0]
        assert has_method(any_explainer, method) or name in ("to_html of intervals", "weights")


def test_an_exact_explainer_in_memory_answers_nearly_everything():
    explainer = explainer_of("lightgbm", "regressor")
    assert not set(verified_model(explainer).capabilities.refused) - {
        "jacobian.derivatives",
        "jacobian.by_sample_weight",
    }


def test_a_name_that_does_not_exist_is_no_question(any_explainer):
    with pytest.raises(AttributeError, match="has no attribute 'wieghts'"):
        any_explainer.wieghts  # noqa: B018
