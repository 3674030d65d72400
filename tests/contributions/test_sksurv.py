"""scikit-survival's boosting and forests: contributions and refits, compared with plain loops."""

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import axil
from tests.contributions.survival_models import DATA, N

ensemble = pytest.importorskip("sksurv.ensemble")

ROOT = Path(__file__).parents[2]
X_NEW = DATA.X_new
TIMES = DATA.labels + np.sign(DATA.labels)  # the loss "ipcwls" takes no times below 1
RECORDS = np.array([(time > 0, abs(time)) for time in TIMES], dtype=[("died", "?"), ("days", "f8")])
RATE = 0.2


def boosting(weights=None, **settings):
    """Return a fitted model of GradientBoostingSurvivalAnalysis."""
    model = ensemble.GradientBoostingSurvivalAnalysis(
        **{"n_estimators": 8, "learning_rate": RATE, "random_state": 0, **settings}
    )
    return model.fit(DATA.X, RECORDS, sample_weight=weights)


def forest(weights=None, name="RandomSurvivalForest", **settings):
    """Return a fitted forest."""
    make = getattr(ensemble, name)
    model = make(**{"n_estimators": 5, "random_state": 0, "min_samples_leaf": 4, **settings})
    return model.fit(DATA.X, RECORDS, sample_weight=weights)


MODELS = {
    "coxph": (boosting, {}),
    "coxph weights": (boosting, {"weights": DATA.row_weights}),
    "squared": (boosting, {"loss": "squared", "weights": DATA.row_weights}),
    "ipcwls": (boosting, {"loss": "ipcwls"}),
    "forest": (forest, {"bootstrap": False, "weights": DATA.row_weights}),
    "bootstrap": (forest, {"max_samples": 0.8, "low_memory": True}),
    "extra trees": (forest, {"name": "ExtraSurvivalTrees", "bootstrap": True}),
}


@pytest.fixture(params=MODELS, scope="module")
def case(request):
    """Return the name of a model, the model and the sample weights of its fit."""
    make, settings = MODELS[request.param]
    return request.param.split()[0], make(**settings), settings.get("weights")


def score_of(name, model, rows):
    """Return the library's own scores, (n,)."""
    if name in ("squared", "ipcwls"):
        return np.log(model.predict(rows))
    return model.predict(rows)


def residuals(name, scores, signed_times):
    """Return the negative gradients of a loss of boosting, (N,)."""
    times = np.abs(signed_times)
    if name == "ipcwls":
        return np.log(times) - scores
    if name == "squared":
        beyond = (signed_times < 0) & (scores >= np.log(times))
        return np.where(beyond, 0.0, np.log(times) - scores)
    negative_gradients = np.zeros(len(scores))
    for row, time in enumerate(times):
        hazard = 0.0
        for event in signed_times[(signed_times > 0) & (signed_times <= time)]:
            hazard += 1 / np.exp(scores[times >= event]).sum()
        negative_gradients[row] = (signed_times[row] > 0) - np.exp(scores[row]) * hazard
    return negative_gradients


def counts_of(weights):
    """Return the weights of the rows, (N,)."""
    if weights is None:
        return np.ones(N)
    return weights


def leaves_of(tree, rows):
    """Return the leaf of each row in a tree of either kind, (n,)."""
    return tree.tree_.apply(np.float32(rows))


def boosted(name, model, weights, signed_times, is_present):
    """Return contributions (n, N) of a replay of boosting with leaf values of its own."""
    contributions = np.zeros((len(X_NEW), N))
    scores = np.zeros(N)
    counts = np.where(is_present, counts_of(weights), 0.0)
    for tree in model.estimators_.ravel():
        negative_gradients = np.zeros(N)
        negative_gradients[is_present] = residuals(
            name, scores[is_present], signed_times[is_present]
        )
        leaves = leaves_of(tree, DATA.X)
        weighted = counts * negative_gradients
        for leaf in np.unique(leaves):
            inside = leaves == leaf
            parts = np.where(inside, RATE * weighted / counts[inside].sum(), 0.0)
            scores += np.where(inside, parts.sum(), 0.0)
            contributions[leaves_of(tree, X_NEW) == leaf] += parts
    return contributions


def hazards(name, model, weights, signed_times, is_present):
    """Return contributions (n, N) to risk scores, from the estimator of Nelson and Aalen."""
    contributions = np.zeros((len(X_NEW), N))
    times = np.abs(signed_times)
    is_event = (signed_times > 0) & is_present
    grid = np.unique(times[is_event])
    for number, tree in enumerate(model.estimators_):
        counts = counts_of(weights)
        if model.bootstrap:
            rows = model.estimators_samples_[number]
            counts = np.bincount(rows, minlength=N).astype(float)
        counts = np.where(is_present, counts, 0.0)
        leaves = leaves_of(tree, DATA.X)
        for row in np.flatnonzero(is_event & (counts > 0)):
            inside = leaves == leaves[row]
            at_risk = counts[inside & (times >= times[row])].sum()
            part = counts[row] / at_risk * (grid >= times[row]).sum() / len(model.estimators_)
            contributions[leaves_of(tree, X_NEW) == leaves[row], row] += part
    return contributions


def replay(case, signed_times=TIMES, is_present=None):
    """Return the contributions (n, N) of a case with other times or fewer rows."""
    if is_present is None:
        is_present = np.ones(N, dtype=bool)
    compute = boosted
    if case[0] not in ("coxph", "squared", "ipcwls"):
        compute = hazards
    return compute(*case, signed_times, is_present)


def explainer_of(case, targets=RECORDS):
    """Return the explainer of a case."""
    _, model, weights = case
    return axil.Explainer(model, DATA.X, targets, sample_weight=weights)


def test_contributions_are_those_of_the_replay(case):
    name, model, _ = case
    explainer = explainer_of(case)
    explanation = explainer(X_NEW)
    expected = replay(case)
    np.testing.assert_allclose(explanation.contributions, expected, rtol=0, atol=1e-10)
    sums = explanation.base_values + explanation.contributions.sum(axis=1)
    np.testing.assert_allclose(sums, score_of(name, model, X_NEW), rtol=1e-9)
    assert axil.supports(model).kind == "additive"
    signed = explainer_of(case, TIMES)
    np.testing.assert_array_equal(signed(X_NEW).contributions, explanation.contributions)
    assert len(explainer.top(X_NEW[:2], k=3)) == 6
    assert len(explainer.similar(X_NEW[:2], k=3)) == 6


def test_changes_of_times_and_rows(case):
    explainer = explainer_of(case)
    before = replay(case).sum(axis=1)
    row = int(np.flatnonzero(TIMES > 0)[0])
    times = TIMES.copy()
    times[row] = -times[row]
    change = explainer.what_if(X_NEW, {row: times[row]})["change"]
    np.testing.assert_allclose(change, replay(case, times).sum(axis=1) - before, atol=1e-9)
    is_present = np.arange(N) != 5
    change = explainer.without(X_NEW, [5])["change"]
    expected = replay(case, is_present=is_present).sum(axis=1) - before
    np.testing.assert_allclose(change, expected, atol=1e-9)
    with pytest.raises(axil.UnsupportedQuestionError, match="models of scikit-survival are not"):
        explainer.refit(drop=[5])


def test_wrong_times_are_noticed(case):
    for wrong in (TIMES[::-1], np.abs(TIMES)):
        if case[0] == "ipcwls" and (np.abs(wrong) == np.abs(TIMES)).all():
            continue  # the loss does not ask which rows were censored
        with pytest.raises(axil.ExactnessError):
            explainer_of(case, wrong)
    with pytest.raises(axil.InputError, match="times of 0"):
        explainer_of(case, np.where(np.arange(N) == 2, 0.0, TIMES))


def test_files(case, tmp_path):
    explainer = explainer_of(case)
    explainer.save(tmp_path / "survival.axil")
    loaded = axil.load(tmp_path / "survival.axil", case[1])
    np.testing.assert_array_equal(loaded(X_NEW).contributions, explainer(X_NEW).contributions)


def test_a_leaf_without_rows_has_no_hazard():
    model = forest(bootstrap=False)
    explainer = axil.Explainer(model, DATA.X, RECORDS)
    leaves = leaves_of(model.estimators_[0], DATA.X)
    emptied = np.flatnonzero(leaves == leaves[0])
    with pytest.raises(axil.UnsupportedQuestionError, match="would lose all rows"):
        explainer.without(X_NEW, emptied.tolist())


def test_subsamples_and_missing_seeds():
    model = boosting(subsample=0.6)
    explanation = axil.Explainer(model, DATA.X, RECORDS)(X_NEW)
    sums = explanation.contributions.sum(axis=1)
    np.testing.assert_allclose(sums, model.predict(X_NEW), atol=1e-12)
    with pytest.raises(axil.UnsupportedModelError, match="random_state"):
        axil.Explainer(boosting(subsample=0.6, random_state=None), DATA.X, RECORDS)


@pytest.mark.parametrize(
    ("make", "settings", "match"),
    [
        (boosting, {"dropout_rate": 0.3}, "dropout_rate=0.3"),
        (boosting, {"n_iter_no_change": 3}, "n_iter_no_change=3"),
        (forest, {"weights": DATA.row_weights}, "sample_weight=given with bootstrap=True"),
    ],
)
def test_refusals(make, settings, match):
    model = make(**settings)
    with pytest.raises(axil.UnsupportedModelError, match=match):
        axil.Explainer(model, DATA.X, RECORDS, sample_weight=settings.get("weights"))


def test_hazard_curves_are_sums_of_contributions():
    model = forest(bootstrap=False)
    contributions = axil.Explainer(model, DATA.X, RECORDS)(X_NEW).contributions
    events = TIMES[TIMES > 0]
    n_later = (np.unique(events) >= np.abs(TIMES)[:, None]).sum(axis=1)
    jumps = contributions / np.maximum(n_later, 1)
    curves = jumps @ (np.abs(TIMES)[:, None] <= model.unique_times_)
    expected = model.predict_cumulative_hazard_function(X_NEW, return_array=True)
    np.testing.assert_allclose(curves, expected, atol=1e-12)


def test_a_pipeline_takes_records():
    pipeline = make_pipeline(StandardScaler(), clone(boosting())).fit(DATA.X, RECORDS)
    explanation = axil.Explainer(pipeline, DATA.X, RECORDS)(X_NEW)
    sums = explanation.contributions.sum(axis=1)
    np.testing.assert_allclose(sums, pipeline.predict(X_NEW), atol=1e-12)


def test_the_page_shows_what_its_code_prints(capsys):
    page = (ROOT / "docs" / "ranking_survival.md").read_text(encoding="utf-8")
    ((code, shown),) = re.findall(r"```py\n(.*?)```\n\n```text\n(.*?)```", page, re.S)
    exec(compile(code, "docs/ranking_survival.md", "exec"), {})
    assert capsys.readouterr().out == shown
