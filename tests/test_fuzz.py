"""Some two hundred random models at a fixed seed: exact or refused by name. ``make fuzz`` runs five thousand."""

import collections
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from lightgbm import LGBMRegressor
from sklearn.ensemble import ExtraTreesRegressor

import axil
from axil.methods.diagnostics import Diagnostics
from axil.methods.jacobian import Jacobian
from tests.fuzz import answers, mutations, refits, trials
from tests.fuzz.data import Draw, Trial
from tests.fuzz.judge import Wrong, check_sums
from tests.fuzz.sklearn import misplaces_missing_values
from tests.subsets import mostly_slow

SEEDS = trials.seeds(100, 0)
CHUNKS = [SEEDS[i : i + 20] for i in range(0, 100, 20)]


@pytest.mark.parametrize("numbers", CHUNKS, ids=lambda numbers: f"from {numbers[0]}")
def test_random_models_are_exact_or_refused(numbers):
    outcomes = [trials.run(seed) for seed in numbers]
    assert not [str(outcome) for outcome in outcomes if outcome.kind in ("failed", "disagreed")]
    kinds = collections.Counter(outcome.kind for outcome in outcomes)
    assert kinds["exact"] >= 8  # the rest are refused by axil or, void, by the libraries


@pytest.mark.parametrize("seed", [23001091, 31001052, 7000526, 7001301, 78000051])
def test_wrong_targets_that_once_passed_are_noticed(seed):
    """Rates and regularisation that are not stated had been fitted to them: few leaves, as many numbers to find."""
    assert trials.run(seed).kind not in ("failed", "disagreed")


@pytest.mark.parametrize(
    ("seed", "kind"),
    [
        (
            31000682,
            "exact",
        ),  # CatBoost's record of leaf weights, where it had shuffled the rows for categories
        (43002532, "exact"),  # CatBoost: shrink() after a fit with model_shrink_rate
        (41000087, "refused"),  # CatBoost misplaces zeros of sparse columns, in trees of leaves
        (42000742, "refused"),  # and in symmetric ones
        (
            43002157,
            "refused",
        ),  # CatBoost: continued, then shrunk to fewer trees than the last fit had
        (43002044, "refused"),  # kernel ridge, ill-conditioned
        (41000064, "refused"),  # ridge in float32
        (41000320, "exact"),  # weights left out that change nothing but the weights
    ],
)
def test_trials_that_once_failed(seed, kind):
    assert trials.run(seed).kind == kind


class Exploded:
    """An explainer whose contributions add up, but for two rows that cancel."""

    def __init__(self, *data, **options):
        self._explainer = EXPLAINER(*data, **options)

    def __call__(self, X):
        explanation = self._explainer(X)
        parts = np.array(explanation.contributions)
        parts[..., 0] += 1e3
        parts[..., 1] -= 1e3
        return SimpleNamespace(
            contributions=parts,
            intercepts=explanation.intercepts,
            predictions=explanation.predictions,
        )


EXPLAINER = axil.Explainer


def test_contributions_that_cancel_are_noticed(monkeypatch):
    number = next(
        n for n in trials.seeds(20, 0, of="terms") if trials.run(n, "terms").kind == "exact"
    )
    monkeypatch.setattr(axil, "Explainer", Exploded)
    outcome = trials.run(number, "terms")
    assert outcome.kind == "failed"
    assert "times the terms of its leaf values" in outcome.why


def test_sums_of_huge_contributions_are_noticed():
    parts = np.array([[1e9, -1e9, 0.5]])
    with pytest.raises(Wrong, match="in absolute value"):
        check_sums(
            SimpleNamespace(
                contributions=parts, intercepts=np.zeros(1), predictions=np.full(1, 0.5)
            )
        )
    with pytest.raises(Wrong, match="away from the scores"):
        check_sums(
            SimpleNamespace(
                contributions=parts / 1e9, intercepts=np.zeros(1), predictions=np.full(1, 0.5)
            )
        )


def test_a_trial_can_be_replayed():
    assert trials.run(SEEDS[0]) == trials.run(SEEDS[0])


def test_seed_numbers_tell_the_library():
    assert {trials.library_of(seed) for seed in trials.seeds(50, 3, "xgboost")} == {"xgboost"}
    assert {trials.library_of(seed) for seed in SEEDS} == set(trials.LIBRARIES)


@pytest.mark.parametrize("of", mostly_slow(2, [of for of in trials.KINDS if of != "weights"]))
def test_answers_about_random_models_are_those_of_replays(of):
    outcomes = [trials.run(seed, of) for seed in trials.seeds(12, 0, of=of)]
    assert not [str(outcome) for outcome in outcomes if outcome.bad]
    assert sum(outcome.kind == "exact" for outcome in outcomes) >= (
        6 if of in ("encodings", "ranks") else 8
    )  # others are void more often


def test_numbers_are_spread_over_kinds():
    counts = collections.Counter(of for _, of in trials.numbers_of(100, 3))
    assert counts == {of: round(100 * kind.share) for of, kind in trials.KINDS.items()}
    assert {of for _, of in trials.numbers_of(20, 3, "smoother")} == {"weights", "dropped"}
    assert trials.numbers_of(2, 3, only="files") == [(3_000_000, "files"), (3_000_001, "files")]


def test_a_verdict_for_each_kind():
    outcomes = [
        trials.Outcome(1, "exact", "lightgbm"),
        trials.Outcome(2, "failed", "xgboost: Wrong", of="files"),
    ]
    lines = trials.summary(outcomes).splitlines()
    assert lines[0].split() == ["weights", "ok", "1", "trials:", "1", "exact"]
    assert lines[1].split() == ["files", "WRONG", "1", "trials:", "1", "failed"]
    assert "--kind files --only 2" in str(outcomes[1])


@pytest.fixture
def fit():
    return refits.make(Draw(1), "lightgbm")


@pytest.mark.parametrize("question", ["without", "removal", "leave_one_out", "what_if"])
def test_an_answer_that_is_not_the_replays_is_reported(question, fit, monkeypatch):
    owner = axil.Explainer
    if question == "leave_one_out":
        owner = Diagnostics
    right = getattr(owner, question)

    def wrong(self, *given, **how):
        found = right(self, *given, **how)
        return found * 1.01 if question == "removal" else found.assign(after=2.0, prediction=2.0)

    monkeypatch.setattr(owner, question, wrong)
    with pytest.raises(Wrong, match=question):
        answers.check_answers(fit, Draw(0))


def test_pushes_that_are_not_the_replays_are_reported(monkeypatch):
    fit = refits.make(Draw(1), "lightgbm", loss="other")
    right = Jacobian.gradient_contributions
    monkeypatch.setattr(Jacobian, "gradient_contributions", lambda self, X: 1.01 * right(self, X))
    with pytest.raises(Wrong, match="pushes"):
        answers.check_answers(fit, Draw(0))


def test_a_radius_that_is_too_large_is_reported(monkeypatch):
    monkeypatch.setattr(answers, "INSIDE", 50.0)
    fit = refits.make(Draw(1), "lightgbm", held=True)
    with pytest.raises(Wrong, match="inside the radius"):
        answers.check_radius(fit, Draw(0))


def test_wrong_data_that_pass_are_reported(fit, monkeypatch):
    monkeypatch.setattr(axil, "Explainer", partial(axil.Explainer, verify=False))
    with pytest.raises(Wrong, match="passed, and contributions move"):
        answers.check_mistakes(fit, Draw(0))


def test_a_changed_file_that_passes_is_reported(fit, monkeypatch):
    other = answers.explained(refits.make(Draw(2), "lightgbm"))
    monkeypatch.setattr(
        answers, "_answers", lambda explainer, fit: {"removal": np.full(2, explainer is other)}
    )
    monkeypatch.setattr(axil, "load", lambda path, model: other)
    with pytest.raises(Wrong, match="changed in a file and passed; removal differs"):
        answers.check_file(fit, Draw(0))


@pytest.mark.parametrize("mistake", mutations.MUTATIONS)
def test_a_mistake_that_passes_is_reported(mistake, monkeypatch):
    rng = np.random.default_rng(0)
    X, y, w = rng.normal(size=(60, 2)), rng.normal(size=60), rng.gamma(2.0, size=60)
    model = LGBMRegressor(n_estimators=5, min_child_samples=5, reg_lambda=1.0, verbose=-1).fit(
        X, y, sample_weight=w
    )
    trial, explainer = (
        Trial(model, X, y, w, None, X, model.predict),
        axil.Explainer(model, X, y, sample_weight=w),
    )
    proven = mutations.VerifiedModel(explainer, X, None, explainer(X).weights)
    assert mutations.passed(mistake, trial, proven, Draw(0)) == ""  # noticed
    other = LGBMRegressor(n_estimators=5, min_child_samples=9, reg_lambda=1.0, verbose=-1)

    def believed(model, X, y, *, sample_weight, init_score):  # makes the mistake right
        return axil_explainer(
            other.fit(X, y, sample_weight=sample_weight), X, y, sample_weight=sample_weight
        )

    axil_explainer = axil.Explainer
    monkeypatch.setattr(axil, "Explainer", believed)
    assert mutations.passed(mistake, trial, proven, Draw(0)).startswith(mistake)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed", "4294"], "the seed is 4294; expected a whole number from 0 to 4293"),
        (["--seed", "-1"], "the seed is -1; expected a whole number from 0 to 4293"),
        (["--only", str(2**32)], "expected a whole number from 0 to 4294967295"),
        (["--n", "1000001"], "expected a whole number from 0 to 1000000"),
    ],
)
def test_seeds_that_numpy_does_not_take_are_refused(monkeypatch, capsys, arguments, message):
    monkeypatch.setattr("sys.argv", ["fuzz", *arguments])
    with pytest.raises(SystemExit):
        trials.main()
    assert message in capsys.readouterr().err


def test_the_largest_seed_runs():
    number = trials.seeds(trials.SEEDS_PER_RUN, trials.MAX_SEED)[-1]
    assert number <= trials.MAX_NUMBER
    assert trials.run(number).kind != "failed"


@pytest.mark.parametrize("sampled", [False, True])
def test_trees_that_misplace_rows_with_missing_values_are_told_by_their_own_counts(sampled):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3)).astype(np.float32)
    weight = np.where(rng.random(120) < 0.3, 0.0, 1.0)
    model = ExtraTreesRegressor(3, bootstrap=sampled, random_state=0).fit(X, X[:, 0])
    assert not misplaces_missing_values(model, X, None)
    assert misplaces_missing_values(model, -X, None)
    if not sampled:
        model.fit(X, X[:, 0], sample_weight=weight)
        assert not misplaces_missing_values(model, X, weight)
