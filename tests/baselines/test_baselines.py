"""What holds for every baseline: shapes, orientation, sign, refusals, memory, threads."""

import numpy as np
import pandas as pd
import pytest

import axil
from axil import InputError, UnsupportedQuestionError
from axil.baselines import TREX, Baseline, BoostIn, LeafInfluence, LeafMatch, Random, TreeSim
from axil.methods.method import verified_model
from tests.adapters import catboost_models, lightgbm_models, smoother_models
from tests.baselines.direct import asked
from tests.contract_models import TREES, explainer_of
from tests.subsets import chosen

EVERY = [BoostIn, LeafInfluence, TREX, TreeSim, LeafMatch, Random]
REFUSED = {(BoostIn, "BoostIn"), (LeafInfluence, "LeafInfluence")}


@pytest.fixture(scope="module")
def case():
    return lightgbm_models.CASES["regressor"]()


def explain(case, **arguments):
    return axil.Explainer(case.model, case.X, case.y, **arguments)


@pytest.mark.parametrize("kind", EVERY)
def test_scores_are_explained_rows_by_training_rows(kind, case):
    baseline = kind(explain(case))
    assert isinstance(baseline, Baseline)
    scores = baseline.scores(case.X_new, np.arange(len(case.X_new)))
    assert scores.shape == (len(case.X_new), len(case.y))
    assert scores.dtype == np.float64
    assert np.isfinite(scores).all()
    assert baseline.scores(case.X_new[:0], []).shape == (0, len(case.y))
    with pytest.raises(AttributeError):
        baseline.explainer = None


@pytest.mark.parametrize("kind", EVERY)
def test_batches_and_threads_change_nothing(kind, case, monkeypatch):
    y = np.arange(len(case.X_new))
    expected = kind(explain(case, n_threads=1)).scores(case.X_new, y)
    np.testing.assert_array_equal(kind(explain(case, n_threads=3)).scores(case.X_new, y), expected)
    monkeypatch.setattr("axil.machine.memory.MOST_QUERIES", 7)
    monkeypatch.setattr("axil.baselines.tree_baselines.BLOCK_NUMBERS", 500)
    monkeypatch.setattr("axil.baselines.trex.BLOCK_NUMBERS", 1000)
    again = kind(explain(case)).scores(case.X_new, y)
    np.testing.assert_allclose(again, expected, rtol=0, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("kind", EVERY)
def test_frames_and_targets_of_any_kind(kind, case):
    explainer, y = explain(case), np.arange(4.0)
    expected = kind(explainer).scores(case.X_new[:4], y)
    names = case.model.feature_name_
    X = pd.DataFrame(case.X_new[:4], columns=names)
    np.testing.assert_array_equal(kind(explainer).scores(X, pd.Series(y)), expected)
    np.testing.assert_array_equal(kind(explainer).scores(X, y[:, None]), expected)


@pytest.mark.parametrize("kind", [BoostIn, LeafInfluence, TreeSim])
def test_positive_rows_lower_the_loss(kind):
    """One sign: a refit of the leaves without the rows of the most positive scores has a larger loss, and the reverse."""
    a = asked("lightgbm", "regressor")
    fit, queries, _ = next(a.fits())
    target = a.case.y.mean() + 3 * a.case.y.std()  # far above, so that rows of large targets help
    scores = kind(a.explainer).scores(a.X[:1], [target])[0]
    losses = {}
    for name, rows in {
        "none": [],
        "helping": np.argsort(-scores)[:15],
        "harming": np.argsort(scores)[:15],
    }.items():
        weights = fit.weights.copy()
        weights[rows] = 1e-9
        losses[name] = (target - type(fit)(fit.s, fit.y, 0, weights).predict(queries[:1])[0]) ** 2
    assert losses["helping"] > losses["none"] > losses["harming"]


@pytest.mark.parametrize("kind", [BoostIn, LeafInfluence, TREX, TreeSim, LeafMatch])
@pytest.mark.parametrize(
    ("library", "name"), [("sklearn", "hist early stopping"), ("lightgbm", "weights some zero")]
)
def test_rows_without_weight_score_zero(kind, library, name):
    a = asked(library, name)
    without = verified_model(a.explainer).engines[0].structure.row_weights == 0
    assert without.any()
    scores = a.scores(kind(a.explainer))
    assert not scores[:, without].any()
    assert scores[:, ~without].any()


@pytest.mark.parametrize("kind", [BoostIn, LeafInfluence, TREX])
def test_several_outputs_need_targets(kind):
    a = asked("xgboost", "multi_output_tree weighted")
    with pytest.raises(InputError, match=f"several outputs, and without y {kind.__name__} has no"):
        kind(a.explainer).scores(a.X)


@pytest.mark.parametrize("kind", EVERY)
def test_bad_targets_are_named(kind, case):
    baseline = kind(explain(case))
    with pytest.raises(
        InputError,
        match=r"y has shape \(3,\); expected \(4,\), one number for each of the 4 explained",
    ):
        baseline.scores(case.X_new[:4], [1, 2, 3])
    with pytest.raises(InputError, match="y holds nan at position 1"):
        baseline.scores(case.X_new[:2], [1, np.nan])
    with pytest.raises(InputError, match="two dimensions"):
        baseline.scores(case.X_new[0], [1])


@pytest.mark.parametrize(("library", "name"), chosen(9, TREES))
def test_every_model_is_scored_or_refused_by_name(library, name):
    a = asked(library, name)
    for kind in EVERY:
        refused = None
        try:
            scores = a.scores(kind(a.explainer))
        except UnsupportedQuestionError as error:
            refused = kind, error.question
        if refused is not None:
            assert refused in REFUSED
        else:
            assert scores.shape == (len(a.y), len(a.explainer.targets))
            assert np.isfinite(scores).all()


@pytest.mark.parametrize("kind", EVERY)
def test_smoothers_are_refused(kind):
    ridge = smoother_models.CASES["ridge"]()
    explainer = axil.Explainer(ridge.model, ridge.X, ridge.y)
    with pytest.raises(
        UnsupportedQuestionError, match=f"{kind.__name__} has no answer here: it is a baseline for"
    ):
        kind(explainer)


@pytest.mark.parametrize("kind", EVERY)
def test_other_things_than_explainers_are_refused(kind, case):
    with pytest.raises(
        InputError, match=rf"{kind.__name__} takes an axil\.Explainer, not a LGBMRegressor"
    ):
        kind(case.model)


def test_leaf_values_that_are_no_quotients_have_no_leaf_influence():
    with pytest.raises(
        UnsupportedQuestionError, match=r"own leaf's rows alone, .* path_smooth=positive"
    ):
        LeafInfluence(explainer_of("lightgbm", "path_smooth=2"))
    with pytest.raises(
        UnsupportedQuestionError, match=r"of one step, .* leaf_estimation_iterations=\d+"
    ):
        LeafInfluence(explainer_of("catboost", "steps"))


@pytest.mark.parametrize("kind", [BoostIn, TREX, TreeSim])
@pytest.mark.parametrize(
    ("library", "name"), [("lightgbm", "path_smooth=2"), ("catboost", "steps")]
)
def test_the_others_take_any_leaf_values(kind, library, name):
    a = asked(library, name)
    assert a.scores(kind(a.explainer)).any()


@pytest.mark.parametrize("kind", EVERY)
def test_memory_is_asked_for_before_it_is_taken(kind, case):
    X, y = np.repeat(case.X_new, 20, axis=0), np.zeros(20 * len(case.X_new))
    limit = 8 * len(X) * len(case.y) // 2
    explainer = explain(case)
    baseline = kind(explainer)
    verified_model(explainer).budget.limit = limit
    with pytest.raises(
        InputError,
        match=rf"The {kind.__name__} scores of {len(X)} x {len(case.y)} rows would take .* memory_limit",
    ):
        baseline.scores(X, y)
    assert baseline.scores(X[:5], y[:5]).shape == (5, len(case.y))


def test_the_system_of_trex_must_fit(case):
    with pytest.raises(InputError, match="The system of TREX for"):
        TREX(explain(case, memory_limit="1MB"))


def test_a_model_that_changed_is_noticed(case):
    model = catboost_models.CASES["defaults"]()
    explainer = axil.Explainer(model.model, model.X, model.y)
    baseline, copied = (
        TreeSim(explainer),
        verified_model(explainer).adapter._model,
    )  # which no one else has
    scale, bias = copied.get_scale_and_bias()
    copied.set_scale_and_bias(scale, bias + 1.0)
    with pytest.raises(axil.ExactnessError, match="may have changed"):
        baseline.scores(model.X_new)


def test_explainers_from_a_file(case, tmp_path):
    explainer = explain(case)
    explainer.save(tmp_path / "explainer.npz")
    again = axil.load(tmp_path / "explainer.npz", case.model)
    for kind in EVERY:
        expected = kind(explainer).scores(case.X_new, np.zeros(len(case.X_new)))
        np.testing.assert_array_equal(
            kind(again).scores(case.X_new, np.zeros(len(case.X_new))), expected
        )


def test_the_package_is_there_when_asked_for():
    assert axil.baselines.BoostIn is BoostIn
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = axil.nothing
