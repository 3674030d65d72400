"""Explainers of boosted classifiers and other losses on disk: the same bits, and no trust in files."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.ensemble._gradient_boosting import _random_sample_mask
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import axil
from tests.contributions.boosting_models import BINARY, CASES, LGB, X_NEW, N, X, case_of, explain
from tests.contributions.more_models import MODELS, logistic
from tests.contributions.sampled_models import model_of
from tests.output.saved_files import proven, rewritten, with_one_changed
from tests.subsets import mostly_slow

LABELS = [f"row {i}" for i in range(N)]


def again(explainer, path, model, **settings):
    explainer.save(path)
    return axil.load(path, model, **settings)


def assert_same(after, before, derived=True):
    np.testing.assert_array_equal(
        after.jacobian.gradient_contributions(X_NEW), before.jacobian.gradient_contributions(X_NEW)
    )
    for name in ("intercepts", "contributions"):
        np.testing.assert_array_equal(getattr(after(X_NEW), name), getattr(before(X_NEW), name))
    pd.testing.assert_frame_equal(after.top(X_NEW, 3), before.top(X_NEW, 3))
    if derived:
        np.testing.assert_array_equal(after(X_NEW).weights, before(X_NEW).weights)
    assert after.verification == before.verification
    assert after.kind == before.kind == "additive"


@pytest.mark.parametrize("name", mostly_slow(2, CASES))
def test_a_loaded_explainer_gives_the_same_bits(name, tmp_path):
    case = case_of(name)
    rows = pd.DataFrame(X, index=LABELS)
    before = explain(case, rows, output="probability")
    after = again(before, tmp_path / "saved", case.model)
    assert_same(after, before)
    assert list(after.index) == LABELS
    pd.testing.assert_frame_equal(
        after.without(X_NEW, LABELS[:3]), before.without(X_NEW, LABELS[:3])
    )


@pytest.mark.parametrize("name", ["lightgbm dart", "lightgbm goss multiclass", "xgboost dart"])
def test_draws_and_drops_are_replayed_again(name, tmp_path):
    case = model_of(name)
    before = axil.Explainer(
        case.model, X, case.y, sample_weight=case.weights, init_score=case.offsets
    )
    assert_same(again(before, tmp_path / "saved", case.model), before)


@pytest.mark.parametrize("classes", [2, 3])
def test_draws_that_were_given_are_kept(classes, tmp_path):
    """The model keeps a generator, from which its draws cannot be made again."""
    labels = np.digitize(X[:, 0], np.quantile(X[:, 0], np.arange(1, classes) / classes))
    state, bags = np.random.RandomState(0), []
    model = GradientBoostingClassifier(
        n_estimators=4, subsample=0.6, random_state=np.random.RandomState(0)
    ).fit(X, labels)
    for _ in range(4):
        mask = _random_sample_mask(N, int(0.6 * N), state)
        for _ in range(1 if classes == 2 else classes):
            bags.append(np.asarray(mask, dtype=float))
            state.randint(np.iinfo(np.int32).max)  # the seed of a tree
    before = axil.Explainer(model, X, labels, in_bag=np.stack(bags, axis=1))
    after = again(before, tmp_path / "drawn", model)
    assert_same(after, before)
    assert_same(axil.load(tmp_path / "drawn", model, X_train=X), before)


@pytest.mark.parametrize(
    "damage",
    [
        lambda bags: bags[:, 1:],
        lambda bags: bags[1:],
        lambda bags: 1 - bags,
        lambda bags: bags.astype(str),
        lambda bags: np.where(bags > 0, np.nan, bags),
    ],
)
def test_draws_of_a_damaged_file(damage, tmp_path):
    model = GradientBoostingClassifier(n_estimators=4, random_state=0).fit(X, BINARY)
    axil.Explainer(model, X, BINARY, in_bag=np.ones((N, 4))).save(tmp_path / "drawn.npz")
    with np.load(tmp_path / "drawn.npz") as stored:
        arrays = dict(stored)
    rewritten(arrays, tmp_path / "drawn.npz", in_bag=damage(arrays["in_bag"]))
    with pytest.raises(axil.InputError, match="is not a complete axil explainer"):
        proven(tmp_path / "drawn.npz", model)


def test_an_objective_of_your_own_is_given_again(tmp_path):
    case = MODELS["lightgbm custom"]().fit()
    before = axil.Explainer(case.model, X, case.y)
    assert_same(
        again(before, tmp_path / "own", case.model), before, derived=False
    )  # an estimator knows it

    def native(scores, data):
        return logistic(data.get_label(), scores)

    booster = lgb.train(
        {"objective": native, "verbose": -1, "num_leaves": 5},
        lgb.Dataset(X, BINARY.astype(float)),
        5,
    )
    before = axil.Explainer(booster, X, BINARY.astype(float), objective=native)
    assert_same(again(before, tmp_path / "own", booster, objective=native), before, derived=False)
    with pytest.raises(axil.UnsupportedModelError, match="objective="):
        axil.load(tmp_path / "own", booster)
    with pytest.raises(axil.InputError, match="is not a complete axil explainer"):
        proven(
            tmp_path / "own", booster, objective=lambda scores, data: (scores, np.ones_like(scores))
        )


def test_pipelines_and_features(tmp_path):
    model = make_pipeline(StandardScaler(), lgb.LGBMClassifier(**LGB)).fit(X, BINARY)
    before = axil.Explainer(model, X, BINARY)
    assert_same(again(before, tmp_path / "piped", model), before)
    with_rows = axil.load(tmp_path / "piped", model, X_train=X)
    pd.testing.assert_frame_equal(with_rows.similar(X_NEW, 3), before.similar(X_NEW, 3))
    with pytest.raises(axil.ExactnessError, match="leaf of training row 0"):
        axil.load(tmp_path / "piped", model, X_train=X[::-1])
    with pytest.raises(axil.InputError, match="119 rows"):
        axil.load(tmp_path / "piped", model, X_train=X[1:])


@pytest.fixture(scope="module")
def case():
    return case_of("xgboost binary from offsets")


@pytest.fixture(scope="module")
def explainer(case):
    return axil.Explainer(
        case.model, X, case.y, sample_weight=case.weights, init_score=case.offsets
    )


@pytest.fixture(scope="module")
def saved(explainer, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "whole"
    explainer.save(path)
    with np.load(path) as file:
        return dict(file)


def test_what_cannot_be_saved_is_refused_by_name(tmp_path, case):
    smooth = axil.Explainer(
        LogisticRegression(tol=1e-10, max_iter=10_000).fit(X, BINARY), X, BINARY
    )
    with pytest.raises(axil.UnsupportedQuestionError, match=r"save.*no file keeps"):
        smooth.save(tmp_path / "no")
    unproven = axil.Explainer(
        case.model, X, case.y, sample_weight=case.weights, init_score=case.offsets, verify=False
    )
    with pytest.raises(axil.InputError, match="verify=False"):
        unproven.save(tmp_path / "no")
    assert list(tmp_path.iterdir()) == []


def test_other_models_and_arguments_are_refused(tmp_path, explainer, case):
    explainer.save(tmp_path / "e")
    with pytest.raises(axil.InputError, match="another model"):
        axil.load(tmp_path / "e", case_of("xgboost binary").model)
    with pytest.raises(axil.InputError, match="boosted trees"):
        axil.load(tmp_path / "e", LogisticRegression().fit(X, BINARY))
    with pytest.raises(axil.InputError, match="inverse_func is given"):
        axil.load(tmp_path / "e", case.model, inverse_func=np.exp)
    exact = axil.Explainer(lgb.LGBMRegressor(**LGB).fit(X, X[:, 0]), X, X[:, 0])
    exact.save(tmp_path / "exact")
    with pytest.raises(axil.InputError, match="objective is given"):
        axil.load(tmp_path / "exact", case.model, objective=logistic)


def test_damaged_files_are_refused(tmp_path, explainer, case):
    explainer.save(tmp_path / "whole")
    data, rng = (tmp_path / "whole").read_bytes(), np.random.default_rng(0)
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    with pytest.raises(axil.InputError, match="not a complete axil explainer"):
        axil.load(tmp_path / "cut", case.model)
    for _ in range(20):
        flipped = bytearray(data)
        flipped[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        (tmp_path / "flipped").write_bytes(flipped)
        try:
            found = axil.load(tmp_path / "flipped", case.model)
        except axil.InputError:
            continue
        np.testing.assert_array_equal(
            found.jacobian.gradient_contributions(X_NEW),
            explainer.jacobian.gradient_contributions(X_NEW),
        )


CHANGES = {
    "no leaves": lambda s: {"leaves": None},
    "no targets": lambda s: {"targets": None},
    "no weights": lambda s: {"weights": None},
    "no offsets": lambda s: {"offsets": None},
    "no labels": lambda s: {"index": None},
    "leaves beyond their trees": lambda s: {"leaves": s["leaves"] + np.uint8(100)},
    "leaves of another type": lambda s: {"leaves": s["leaves"].astype(np.int64)},
    "leaves of fewer trees": lambda s: {"leaves": s["leaves"][1:]},
    "leaves of other rows": lambda s: {"leaves": s["leaves"][:, ::-1].copy()},
    "leaves in the other order": lambda s: {"leaves": np.asfortranarray(s["leaves"])},
    "other targets": lambda s: {"targets": 1 - s["targets"]},
    "targets of one dimension": lambda s: {"targets": s["targets"][:, 0]},
    "targets that are not finite": lambda s: {"targets": s["targets"] * np.nan},
    "weights below zero": lambda s: {"weights": -s["weights"]},
    "weights of zero": lambda s: {"weights": 0 * s["weights"]},
    "other weights": lambda s: {"weights": s["weights"] ** 2},
    "other offsets": lambda s: {"offsets": s["offsets"] + 0.5},
    "offsets of two outputs": lambda s: {"offsets": np.hstack([s["offsets"], s["offsets"]])},
    "labels of other rows": lambda s: {"index": s["index"][1:]},
    "an unknown array": lambda s: {"surprise": np.zeros(3)},
    "no rows": lambda s: {name: s[name][:0] for name in ("index", "targets", "weights", "offsets")},
}
HEADERS = {
    "another output": {"output": "everything"},
    "no output": {"output": None},
    "an error that is no proof": {"prediction_error": 0.5},
    "an error that is no number": {"prediction_error": "0"},
    "a rounding error that is no number": {"rounding_error": "0"},
    "no frame library": {"backend": "os"},
    "another kind": {"kind": "derivative"},
    "the kind of exact weights": {"kind": "exact"},
}


def test_a_file_of_which_one_entry_was_changed_is_refused(tmp_path, saved, case):
    rng = np.random.default_rng(1)
    for part in saved.keys() - {"header"}:
        for _ in range(3):
            changed = with_one_changed(saved[part], rng)
            path = rewritten(saved, tmp_path / "changed.npz", signed=False, **{part: changed})
            with pytest.raises(axil.InputError, match="changed since the file was written"):
                axil.load(path, case.model)


@pytest.mark.parametrize("name", [*CHANGES, *HEADERS])
def test_contents_that_do_not_fit_are_refused(name, tmp_path, saved, case):
    changed = CHANGES[name](saved) if name in CHANGES else {}
    path = rewritten(saved, tmp_path / "hostile.npz", HEADERS.get(name, {}), **changed)
    model = case.model
    with pytest.raises(
        (axil.InputError, axil.UnsupportedModelError),
        match=r"not a complete axil explainer|squared",
    ):
        proven(path, model)


def test_a_file_larger_than_the_limit_is_refused(tmp_path, explainer, case):
    explainer.save(tmp_path / "e")
    with pytest.raises(axil.InputError, match=r"would take .* memory_limit"):
        axil.load(tmp_path / "e", case.model, memory_limit=1000)
