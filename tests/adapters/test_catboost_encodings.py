"""CatBoost's encodings of categories: training rows where the fit had them, from random_seed and the order of the rows."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import catboost as cb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.ensemble import VotingRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

import axil
from axil import ExactnessError, Explainer, UnsupportedModelError
from axil.adapters.catboost.blob import parse
from axil.adapters.catboost.categories import Categories, hashes
from axil.adapters.catboost.encodings import BORDERS, BUCKETS, COUNTER, MEAN, classes_of, encodings
from axil.adapters.catboost.permutations import AveragingFold, Generator
from axil.adapters.catboost.refusals import REFUSALS, CatBoostReading
from axil.adapters.refusals import refusal
from axil.methods.method import verified_model
from tests.adapters.catboost_models import (
    CASES,
    N_ROWS,
    QUIET,
    encoded,
    letters,
    loaded,
    regressor,
    table,
)
from tests.adapters.common import check_refusal

ENCODED = [name for name in CASES if "encoded" in name]
WORD = (1 << 64) - 1


class OneByOne:
    """The generator as its definition has it: two PCG streams of 32 bits, a step and an output at a time."""

    def __init__(self, seed: int):
        seeds = self._stream(seed, 0)
        (a, b, c, d, e, f) = (next(seeds) for _ in range(6))
        self._high = self._stream(a | b << 32, c)
        self._low = self._stream(
            d | e << 32, f if c & (2**31 - 1) != f & (2**31 - 1) else ~f & 0xFFFFFFFF
        )

    @staticmethod
    def _stream(x: int, sequence: int):
        while True:
            x = (x * 6364136223846793005 + 2 * sequence + 1) & WORD
            word, turn = ((x >> 18 ^ x) >> 27) & 0xFFFFFFFF, x >> 59
            yield (word >> turn | word << (32 - turn) % 32) & 0xFFFFFFFF

    def shuffled(self, n: int) -> list[int]:
        found = list(range(n))
        for i in range(1, n):
            most = WORD - WORD % (i + 1)
            drawn = next(value for value in self if value < most)
            found[i], found[drawn % (i + 1)] = found[drawn % (i + 1)], found[i]
        return found

    def __iter__(self):
        return self

    def __next__(self) -> int:
        return next(self._high) << 32 | next(self._low)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, WORD), st.lists(st.integers(0, 90), min_size=1, max_size=4))
def test_shuffles_are_those_of_the_generator_step_by_step(seed: int, sizes: list[int]) -> None:
    ours, theirs = Generator(seed), OneByOne(seed)
    for n in sizes:
        assert ours.shuffled(n).tolist() == theirs.shuffled(n)
    ours.skip(7)
    theirs.shuffled(7)
    assert ours.shuffled(5).tolist() == theirs.shuffled(5)


def test_the_averaging_fold_shuffles_blocks_of_the_shuffled_rows() -> None:
    n, one = 2500, OneByOne(3)
    rows = one.shuffled(n)
    for _ in range(2):
        one.shuffled(834)
    blocks = [rows[3 * i : 3 * i + 3] for i in one.shuffled(834)]
    drawn = {"permutation_count": 4, "fold_permutation_block": 0}
    settings_of = {"data_processing_options": {}, "boosting_options": drawn, "random_seed": 3}
    assert AveragingFold.of(n, settings_of).rows.tolist() == [
        row for block in blocks for row in block
    ]


def test_hashes_are_those_of_catboost() -> None:
    """CatBoost hashes the names of groups likewise, but for those that are numbers."""
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list("abcxyzé1 "), n)) + "~" for n in range(200)]
    groups = cb.Pool(np.zeros((len(texts), 1)), group_id=texts).get_group_id_hash()
    expected = np.array(groups, dtype=np.uint64) & np.uint64(0xFFFFFFFF)
    np.testing.assert_array_equal(hashes([text.encode() for text in texts]), expected)


def test_equal_texts_and_whole_numbers_are_one_category() -> None:
    found = Categories.of(np.array(["1", 1, True, np.int8(1), b"1", "x"], dtype=object))
    assert len(set(found.hashes[found.codes].tolist())) == 2


@pytest.mark.parametrize("name", ENCODED)
def test_leaves_are_proven_and_encodings_are_named(name: str) -> None:
    case = CASES[name]()
    verification = Explainer(
        case.model, case.X, case.y, sample_weight=case.sample_weight, init_score=case.baseline
    ).verification
    assert verification.active_set.encodings > 0
    assert f"{verification.active_set.encodings} encoding" in str(verification.active_set)
    assert verification.compared == ["leaf counts"] * (case.sample_weight is None) + [
        "leaf weights"
    ]


def test_combinations_of_every_sort_are_among_the_models() -> None:
    blobs = (parse(CASES[name]().model._serialize_model()) for name in ENCODED)
    statistics = [encoding.statistic for blob in blobs for encoding in encodings(blob)]
    assert {statistic.kind for statistic in statistics} == {BORDERS, BUCKETS, MEAN, COUNTER}
    assert any(len(statistic.categories) > 1 for statistic in statistics)
    assert any(statistic.tests for statistic in statistics)
    assert any(statistic.one_hot for statistic in statistics)


@pytest.mark.parametrize(
    "name", ["encoded", "encoded has_time weighted", "encoded Lossguide weighted", "encoded means"]
)
@pytest.mark.parametrize(
    "wrong", ["two exchanged", "one changed", "shuffled", "rows in another order"]
)
def test_wrong_targets_never_pass(name: str, wrong: str) -> None:
    case, rng = CASES[name](), np.random.default_rng(0)
    y, X, weight = case.y.copy(), case.X, case.sample_weight
    if wrong == "two exchanged":
        y[[3, 200]] = y[[200, 3]]
    elif wrong == "one changed":
        y[17] += 0.01
    elif wrong == "shuffled":
        y = rng.permutation(y)
    else:
        order = rng.permutation(len(y))
        X, y, weight = X.iloc[order], y[order], None if weight is None else weight[order]
    order_named = (
        r"Reasons, the most likely first:\n- The rows are in another order than in the fit"
    )
    with pytest.raises(
        ExactnessError, match=order_named if wrong == "rows in another order" else None
    ):
        Explainer(case.model, X, y, sample_weight=weight)


def test_other_categories_are_named() -> None:
    case = CASES["encoded stopped"]()
    with pytest.raises(ExactnessError, match=r"Categories are not those of the fit|row count"):
        Explainer(case.model, case.X.assign(g=case.X["g"] + 100), case.y)


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_missing_categories_are_named(missing: Any) -> None:
    case = CASES["encoded"]()
    rows = case.X.assign(f=[missing, *case.X["f"][1:]])
    with pytest.raises(axil.InputError, match="missing values, which CatBoost does not take"):
        Explainer(case.model, pl.from_pandas(rows) if missing is None else rows, case.y)


def test_borders_of_targets_follow_from_how_many_lie_above() -> None:
    target = np.array([3.0, 1.0, 2.0, 2.0, 5.0])
    assert classes_of(target, np.array([1, 2, 2])).tolist() == [2, 0, 1, 1, 2]
    assert classes_of(target, np.array([0, 5, 0])).tolist() == [1, 1, 1, 1, 1]
    with pytest.raises(ExactnessError, match="targets up to the border"):
        classes_of(target, np.array([2, 3]))


LOSSES: dict[str, tuple[Any, dict[str, Any]]] = {
    "Logloss": (lambda y: (y > 5).astype(int), {}),
    "MultiClass": (lambda y: np.digitize(y, [3, 5, 7]), {"loss_function": "MultiClass"}),
    "MultiClassOneVsAll": (
        lambda y: np.digitize(y, [3, 5, 7]),
        {"loss_function": "MultiClassOneVsAll"},
    ),
    "means of classes": (
        lambda y: np.digitize(y, [3, 5, 7]),
        {"loss_function": "MultiClass", "simple_ctr": ["BinarizedTargetMeanValue", "Buckets"]},
    ),
    "words": (lambda y: np.array(["no", "yes"])[(y > 5).astype(int)], {"grow_policy": "Lossguide"}),
    "Poisson": (lambda y: np.round(np.abs(y)), {"loss_function": "Poisson"}),
    "LogCosh": (lambda y: y, {"loss_function": "LogCosh", "leaf_estimation_method": "Gradient"}),
    "CrossEntropy": (lambda y: 1 / (1 + np.exp(5 - y)), {"loss_function": "CrossEntropy"}),
}


@cache
def classified(name: str) -> tuple[Any, pd.DataFrame, Any]:
    change, params = LOSSES[name]
    data = table()
    X, y = letters(data.X), change(data.y)
    classes = params.get("loss_function", "Logloss") in (
        "Logloss",
        "MultiClass",
        "MultiClassOneVsAll",
    )
    kind = cb.CatBoostClassifier if classes else cb.CatBoost
    settings_of = {"iterations": 6, "depth": 4, "max_ctr_complexity": 2, **QUIET, **params}
    model = cb.CatBoost(settings_of) if kind is cb.CatBoost else kind(**settings_of)
    return model.fit(cb.Pool(X, y, cat_features=["d", "f", "g"])), X, y


@pytest.mark.parametrize("name", LOSSES)
def test_pushes_of_every_loss_add_up_to_the_scores(name: str) -> None:
    model, X, y = classified(name)
    explainer, X_new = Explainer(model, X, y), letters(table().X_new)
    assert explainer.kind == "additive"
    assert explainer.verification.active_set.encodings > 0
    explanation = explainer(X_new)
    scores = np.asarray(model.predict(X_new, prediction_type="RawFormulaVal"))
    np.testing.assert_allclose(
        np.reshape(explanation.predictions, scores.shape),
        scores,
        rtol=0,
        atol=1e-6 * np.abs(scores).max(),
    )
    low, high = (
        np.flatnonzero(y == y[order])[0] for order in np.argsort(y, kind="stable")[[0, -1]]
    )
    wrong = np.array(y)
    wrong[[low, high]] = wrong[[high, low]]
    with pytest.raises(ExactnessError):
        Explainer(model, X, wrong)


def test_tables_say_that_encodings_are_held() -> None:
    case = CASES["encoded"]()
    explainer = Explainer(case.model, case.X, case.y)
    for made in (
        explainer.what_if(case.X_new, {0: 9.0}),
        explainer.without(case.X_new, [3]),
        explainer.removal(case.X_new, k=2),
        explainer.diagnostics.leave_one_out(),
        explainer.find_label_issues(),
    ):
        assert "encodings of categories by the targets are fixed" in made.attrs["axil"]


def test_training_rows_are_left_out_where_the_fit_had_them() -> None:
    """Each by the replay of the fit without it, at the leaves of its encodings in the fit."""
    case = CASES["encoded"]()
    explainer = Explainer(case.model, case.X, case.y)
    found, (engine,) = (
        explainer.diagnostics.leave_one_out()["prediction"].to_numpy(),
        verified_model(explainer).engines,
    )
    leaves = engine.structure.leaves().T
    for row in (0, 7, 100):
        alone = engine.without(np.array([row]), verified_model(explainer).targets).predicted(
            leaves[[row]], verified_model(explainer).targets
        )[0, 0]
        assert abs(alone - found[row]) < 1e-9 or np.isnan(found[row])


def test_a_saved_explainer_has_the_same_answers(tmp_path) -> None:
    case = CASES["encoded"]()
    explainer = Explainer(case.model, case.X, case.y)
    explainer.save(tmp_path / "kept")
    for more in ({}, {"X_train": case.X}):
        again = axil.load(tmp_path / "kept", case.model, **more)
        np.testing.assert_array_equal(again(case.X_new).weights, explainer(case.X_new).weights)
        assert again.verification.active_set == explainer.verification.active_set
    with pytest.raises(axil.AxilError):
        axil.load(tmp_path / "kept", case.model, X_train=case.X.iloc[::-1])
    model, X, y = classified("Logloss")
    Explainer(model, X, y).save(tmp_path / "pushes")
    again = axil.load(tmp_path / "pushes", model, X_train=X)
    np.testing.assert_allclose(
        again(X[:5]).predictions, Explainer(model, X, y)(X[:5]).predictions, rtol=1e-12
    )
    with pytest.raises(axil.AxilError):
        axil.load(tmp_path / "pushes", model, X_train=X.iloc[::-1])


def test_refuses_what_is_not_replayed() -> None:
    first = encoded(iterations=3)
    more = regressor(
        convert=letters,
        cat_features=["d", "f", "g"],
        iterations=2,
        fit={"init_model": loaded(first).model},
    )
    check_refusal(more.model, "init_model", "a model with", None)
    case = encoded(ctr_leaf_count_limit=4)
    with pytest.raises(UnsupportedModelError, match=r"ctr_leaf_count_limit=4 with \d+ categories"):
        Explainer(case.model, case.X, case.y)
    whole = encoded(ctr_leaf_count_limit=N_ROWS, iterations=3)
    assert Explainer(whole.model, whole.X, whole.y).verification.active_set.encodings


def test_refuses_encodings_that_were_made_on_a_gpu() -> None:
    blob = parse(CASES["encoded"]().model._serialize_model())
    document = json.loads(blob.info["params"]) | {"task_type": "GPU"}
    found = refusal(
        REFUSALS, CatBoostReading(replace(blob, info={**blob.info, "params": json.dumps(document)}))
    )
    assert found is not None
    assert found.setting == "task_type"
    assert str(found.value).startswith("GPU with ")


def test_refuses_json_that_lost_which_targets_are_counted() -> None:
    check_refusal(
        loaded(CASES["multi encoded"](), "json").model,
        "target_border",
        "3 ways to classify the targets",
        None,
    )
    case = loaded(CASES["encoded"](), "json")
    assert Explainer(case.model, case.X, case.y).verification.active_set.encodings


def test_rows_in_any_container_are_encoded_alike() -> None:
    case = CASES["encoded"]()
    expected = Explainer(case.model, case.X, case.y)(case.X_new).weights
    again = Explainer(case.model, pl.from_pandas(case.X), case.y)(
        pl.from_pandas(case.X_new)
    ).weights
    np.testing.assert_array_equal(again, expected)
    rows = sparse.csr_matrix((10 * np.abs(table().X)).astype(np.int64))
    model = cb.CatBoostRegressor(iterations=4, **QUIET).fit(
        cb.Pool(rows, case.y, cat_features=[0, 1, 7])
    )
    for form in (rows, rows.tocsc()):
        assert Explainer(model, form, case.y).verification.active_set.encodings


def doubled(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(a=2 * rows["a"])


def fitted(
    kind: Any, X: Any, categories: list[int], most_one_hot: int, **settings: Any
) -> tuple[Any, Any]:
    """A small model and its targets."""
    y = np.random.default_rng(3).normal(size=len(X))
    y = y if kind is cb.CatBoostRegressor else (y > 0).astype(int)
    model = kind(
        iterations=6, depth=3, cat_features=categories, one_hot_max_size=most_one_hot, **QUIET
    )
    return model.fit(X, y, **settings), y


def raw(model: Any, X: Any) -> Any:
    return model.predict(X, prediction_type="RawFormulaVal")


@pytest.mark.parametrize("most_one_hot", [2, 10])
@pytest.mark.parametrize("kind", [cb.CatBoostRegressor, cb.CatBoostClassifier])
@pytest.mark.parametrize(
    "names",
    [[0, 1, 2], [5, 6, 7], [2, 1, 0], [1.5, 2.5, 3.5], [0, "a", 1], [("a", 1), ("a", 2), ("b", 1)]],
    ids=str,
)
def test_names_of_columns_may_be_numbers(names: list[Any], kind: Any, most_one_hot: int) -> None:
    rng = np.random.default_rng(0)
    parts = rng.normal(size=80), rng.choice(list("abcdef"), 80), rng.integers(0, 5, 80)
    X = pd.DataFrame(dict(enumerate(parts)))
    X.columns = names
    weights = rng.uniform(0.5, 2.0, 80)
    for options in ({}, {"sample_weight": weights}):
        model, y = fitted(kind, X, [1, 2], most_one_hot, **options)
        explainer = Explainer(model, X, y, **options)
        explanation = explainer(X.head(5))
        np.testing.assert_allclose(explanation.predictions, raw(model, X.head(5)), atol=1e-7)
        assert len(explainer.similar(X.head(2), k=2)) == 4


@pytest.mark.parametrize("most_one_hot", [2, 10])
@pytest.mark.parametrize("kind", [cb.CatBoostRegressor, cb.CatBoostClassifier])
@pytest.mark.parametrize("table", ["text", "numbers", "whole numbers"])
def test_lists_of_rows(table: str, kind: Any, most_one_hot: int) -> None:
    """CatBoost's own examples are lists; whole numbers in them are categories, and real numbers are none."""
    rng = np.random.default_rng(1)
    first = {"text": rng.choice(list("abcd"), 80).tolist(), "numbers": rng.normal(size=80).tolist()}
    first["whole numbers"] = rng.integers(0, 4, 80).tolist()
    X = [
        list(row)
        for row in zip(
            first[table], rng.integers(0, 5, 80).tolist(), rng.integers(0, 9, 80).tolist()
        )
    ]
    model, y = fitted(kind, X, [0, 1] if table == "text" else [1], most_one_hot)
    explainer = Explainer(model, X, y)
    np.testing.assert_allclose(explainer(X[:5]).predictions, raw(model, X[:5]), atol=1e-7)
    assert len(explainer.similar(X[:2], k=2)) == 4
    with pytest.raises(axil.InputError, match="rows of equal length"):
        explainer([X[0], X[1][:2]])


@pytest.mark.parametrize("kind", [cb.CatBoostRegressor, cb.CatBoostClassifier])
def test_pipelines_encode_the_rows_that_they_hand_on(kind: Any) -> None:
    data = table()
    X, y = letters(data.X), data.y if kind is cb.CatBoostRegressor else data.y > 5
    model = kind(iterations=4, cat_features=["d", "f", "g"], **QUIET)
    pipeline = Pipeline([("doubled", FunctionTransformer(doubled)), ("model", model)]).fit(X, y)
    explainer = Explainer(pipeline, X, y)
    assert explainer.verification.active_set.encodings
    assert len(explainer(letters(data.X_new)).predictions) == len(data.X_new)


def test_means_of_models_predict_training_rows_as_the_models_do() -> None:
    data = table()
    X, seeds = letters(data.X), (0, 3)
    model = VotingRegressor([(f"m{seed}", cb.CatBoostRegressor()) for seed in seeds])
    model.estimators_ = [encoded(random_seed=seed, iterations=3).model for seed in seeds]
    model.named_estimators_ = dict(zip("ab", model.estimators_))
    model.feature_names_in_ = np.array(X.columns, dtype=object)
    explainer = Explainer(model, X, data.y)
    explanation = explainer(X)
    np.testing.assert_allclose(explanation.predictions, model.predict(X), rtol=1e-6)
    np.testing.assert_allclose(
        verified_model(explainer).fitted()[:, 0], model.predict(X), rtol=1e-6
    )
    assert "encodings" in explainer.without(X[:2], [3]).attrs["axil"]


def test_folds_of_many_rows_draw_more() -> None:
    """Beyond 100,000 rows every fold samples rows for the borders of texts, though there are none."""
    rng, n = np.random.default_rng(0), 101_000
    X = pd.DataFrame({"c": rng.integers(0, 50, n)})
    y = rng.normal(size=50)[X["c"]] + rng.normal(size=n)
    model = cb.CatBoostRegressor(iterations=1, depth=2, cat_features=[0], **QUIET).fit(X, y)
    assert Explainer(model, X, y).verification.active_set.encodings
