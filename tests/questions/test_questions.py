"""What an explainer can be asked beyond weights, against what the weights themselves say."""

from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from reference import replay
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from test_contract import case_of, explainer_of, offsets_of, predict

import axil
from axil import InputError, inputs
from axil.output import tables

MODELS = [
    ("lightgbm", "regressor weighted scored"),
    ("lightgbm", "bagging"),
    ("xgboost", "dart weighted"),
    ("xgboost", "one_output_per_tree"),
    ("xgboost", "multi_output_tree"),
    ("catboost", "multi weighted"),
    ("sklearn", "hist early stopping weighted"),
    ("sklearn", "RandomForestRegressor weighted"),
    ("sklearn", "RandomForestClassifier"),
    ("smoother", "ridge two outputs"),
    ("smoother", "neighbours"),
    ("smoother", "pipeline lightgbm"),
]


def weights_of(explainer, X):
    """(K, n, N): the weights of each output."""
    weights = explainer(X).weights
    return np.broadcast_to(weights, (explainer.proven.targets.shape[1], *weights.shape[-2:]))


def small_batches(monkeypatch, explainer):
    monkeypatch.setattr(
        "axil.machine.memory.BATCH_BYTES", 8 * len(explainer.targets) * 7 * len(explainer.proven.engines)
    )


def lines(frame, name, n):
    """(n, K): a column of a table with a line for each query and output."""
    return frame[name].to_numpy().reshape(n, -1)


# what_if


def changed_targets(explainer, case):
    """Three rows with other targets, as the user writes them, and as numbers (N, K)."""
    y, rows = np.array(case.y), [1, 40, 7]
    if explainer.proven.adapter.classes is not None:
        new = [next(c for c in explainer.proven.adapter.classes if c != y[row]) for row in rows]
        after = explainer.proven.targets.copy()
        after[rows] = np.array(new)[:, None] == explainer.proven.adapter.classes
    else:
        new, after = [y[row] + 3 for row in rows], explainer.proven.targets.copy()
        after[rows] += 3
    return dict(zip(explainer.index[rows], new)), after


@pytest.mark.parametrize(("library", "name"), MODELS)
def test_what_if_moves_predictions_by_the_weights(library, name):
    case, explainer = case_of(library, name), explainer_of(library, name)
    new, after = changed_targets(explainer, case)
    frame = explainer.what_if(new, case.X_new)
    model, n = predict(case, case.X_new), case.X_new.shape[0]
    change = np.einsum("kij,jk->ik", weights_of(explainer, case.X_new), after - explainer.proven.targets)
    slack = 1e-12 * np.abs(after).max()
    np.testing.assert_allclose(lines(frame, "change", n), change, rtol=0, atol=slack)
    np.testing.assert_array_equal(lines(frame, "before", n), model)
    np.testing.assert_allclose(
        lines(frame, "after", n), model + change, rtol=0, atol=slack + 1e-15 * np.abs(model).max()
    )
    assert "structure held fixed" in frame.attrs["axil"]


def test_what_if_against_a_replay_with_the_new_targets():
    case, explainer = case_of("lightgbm", "bagging"), explainer_of("lightgbm", "bagging")
    new, after = changed_targets(explainer, case)
    leaves, s = explainer.proven.adapter.leaves(case.X_new), explainer.proven.engines[0].structure
    frame = explainer.what_if(new, case.X_new)
    moved = replay(s, after[:, 0], leaves) - replay(s, explainer.targets, leaves)
    np.testing.assert_allclose(frame["change"], moved, rtol=0, atol=1e-12)


def test_what_if_with_offsets_labels_and_nothing_new():
    case = case_of("lightgbm", "regressor weighted scored")
    X = pd.DataFrame(np.asarray(case.X), index=[f"r{i}" for i in range(len(case.y))])
    X.columns = getattr(case.model, "booster_", case.model).feature_name()
    explainer = axil.Explainer(case.model, X, case.y, case.sample_weight, offsets_of(case))
    frame = explainer.what_if({"r3": 0.0}, X.iloc[:4], init_score=np.arange(4.0))
    plain = explainer.what_if(pd.Series({"r3": 0.0}), X.iloc[:4])
    np.testing.assert_allclose(frame["before"] - plain["before"], np.arange(4.0))
    assert list(frame["query"]) == ["r0", "r1", "r2", "r3"]
    assert not explainer.what_if({}, X.iloc[:4])["change"].any()
    assert len(explainer.what_if({"r3": 1.0}, X.iloc[:0])) == 0


def test_bad_changes_are_refused():
    case, explainer = case_of("lightgbm", "regressor"), explainer_of("lightgbm", "regressor")
    bad = {
        "unknown": ({10**6: 1.0}, "names row 1000000"),
        "twice": (pd.Series([1.0, 2.0], index=[3, 3]), "names row 3 twice"),
        "nan": ({3: np.nan}, "targets holds nan"),
        "text": ({3: "high"}, "not numeric"),
        "a list": ([1.0], "targets is a list"),
    }
    for new, message in bad.values():
        with pytest.raises(InputError, match=message):
            explainer.what_if(new, case.X_new)
    repeated = pd.DataFrame(np.asarray(case.X), index=np.arange(len(case.y)) // 2)
    repeated.columns = getattr(case.model, "booster_", case.model).feature_name()
    shared = axil.Explainer(case.model, repeated, case.y)  # a label of two rows names both
    both, apart = shared.what_if({3: 1.0, 5: 2.0}, case.X_new), {6: 1.0, 7: 1.0, 10: 2.0, 11: 2.0}
    np.testing.assert_array_equal(both["change"], explainer.what_if(apart, case.X_new)["change"])
    both = shared.without(case.X_new, [5, 3])
    np.testing.assert_array_equal(both["change"], explainer.without(case.X_new, [6, 7, 10, 11])["change"])
    classifier = explainer_of("sklearn", "RandomForestClassifier")
    with pytest.raises(InputError, match="knows the classes"):
        classifier.what_if({0: "no such class"}, case_of("sklearn", "RandomForestClassifier").X_new)


# blame


@cache
def validation(library, name):
    """Targets for the case's new rows: the predictions, and then some."""
    case, explainer = case_of(library, name), explainer_of(library, name)
    if explainer.proven.adapter.classes is not None:
        return np.resize(explainer.proven.adapter.classes, case.X_new.shape[0])
    y = predict(case, case.X_new) + np.random.default_rng(0).normal(
        size=(case.X_new.shape[0], explainer.proven.targets.shape[1])
    )
    return y[:, 0] if y.shape[1] == 1 else y


@pytest.mark.parametrize(("library", "name"), MODELS)
def test_blame_is_the_change_of_the_validation_error(library, name, monkeypatch):
    case, explainer = case_of(library, name), explainer_of(library, name)
    small_batches(monkeypatch, explainer)
    y = validation(library, name)
    known = (
        y
        if explainer.proven.adapter.classes is None
        else (y[:, None] == explainer.proven.adapter.classes).astype(float)
    )
    known = np.reshape(known, (len(y), -1))
    K, targets = weights_of(explainer, case.X_new), explainer.proven.targets
    model = explainer(case.X_new).predictions.reshape(known.shape)  # in float64, and to 1e-6 what the model itself says
    frame = explainer.blame(case.X_new, y)
    assert frame["gain"].dropna().is_monotonic_decreasing
    at = pd.Series(np.arange(len(targets)), index=explainer.index)[frame["row"]].to_numpy()
    outputs = list(range(targets.shape[1])) if explainer.outputs is None else list(explainer.outputs)
    k = (
        np.zeros(len(frame), int)
        if explainer.outputs is None
        else np.array([outputs.index(o) for o in frame["output"]])
    )
    np.testing.assert_array_equal(frame["target"], targets[at, k])
    gradient = 2 / len(y) * np.einsum("kij,ik->jk", K, model - known)
    np.testing.assert_allclose(frame["gradient"], gradient[at, k], rtol=0, atol=1e-10 * np.abs(gradient).max())
    for line in [0, 1, len(frame) // 2, len(frame) - 1]:  # the loss itself, with the one target moved
        row, output, moved = at[line], k[line], frame["corrected"].iloc[line] - frame["target"].iloc[line]
        if np.isnan(moved):
            continue
        before = model[:, output] - known[:, output]
        after = before + K[output, :, row] * moved
        gain = np.mean(before**2) - np.mean(after**2)
        np.testing.assert_allclose(frame["gain"].iloc[line], gain, rtol=0, atol=1e-10 * np.mean(before**2))
    alone = explainer.blame(case.X_new, y, correction=None)
    assert "gain" not in alone.columns
    assert alone["gradient"].abs().is_monotonic_decreasing
    np.testing.assert_allclose(np.sort(alone["gradient"]), np.sort(frame["gradient"]), rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", ["linear regression", "ridge", "kernel ridge"])
def test_left_out_values_of_least_squares_are_those_of_refits(name):
    case, explainer = case_of("smoother", name), explainer_of("smoother", name)
    frame = explainer.blame(case.X_new, validation("smoother", name)).set_index("row")
    for row in (0, 5, 77):
        keep = np.arange(len(case.y)) != row
        refitted = clone(case.model).fit(case.X[keep], case.y[keep]).predict(case.X[[row]])[0]
        np.testing.assert_allclose(frame["corrected"][row], refitted, rtol=1e-8)


def test_corrections_are_predictions_without_the_row():
    """`leave_one_out`, which tests/weights/test_deletion.py compares with fits without the row."""
    case, explainer = case_of("lightgbm", "weighted"), explainer_of("lightgbm", "weighted")
    frame = explainer.blame(case.X_new, validation("lightgbm", "weighted")).set_index("row").sort_index()
    left_out = explainer.leave_one_out()
    np.testing.assert_array_equal(frame["corrected"], left_out["prediction"])
    np.testing.assert_array_equal(left_out["residual"], left_out["target"] - left_out["prediction"])
    assert "exact" in left_out.attrs["axil"]


def test_left_out_values_agree_with_their_own_predictions_where_rows_cannot_be_deleted():
    """With its target at that value a row's prediction, structure held fixed, is that value."""
    case, explainer = case_of("lightgbm", "path_smooth=2"), explainer_of("lightgbm", "path_smooth=2")
    with pytest.warns(axil.ApproximationWarning, match="leave-one-out.*path_smooth") as said:
        frame = explainer.blame(case.X_new, validation("lightgbm", "path_smooth=2")).set_index("row")
    assert said[0].filename == __file__
    s = explainer.proven.engines[0].structure
    for row in (0, 5, 77):
        y = explainer.targets.copy()
        y[row] = frame["corrected"][row]
        np.testing.assert_allclose(replay(s, y, s.leaves().T)[row], y[row], rtol=1e-10)


def test_corrections_that_take_long_are_approximate_unless_asked_for(monkeypatch):
    """By the warning's own advice they are exact, and what is known by then is used."""
    case, y = case_of("lightgbm", "weighted"), validation("lightgbm", "weighted")
    explainer = axil.Explainer(case.model, case.X, case.y, case.sample_weight)
    monkeypatch.setattr("axil.questions.targets.WARNED", 0.0)
    monkeypatch.setattr("axil.questions.left_out.seconds_of", lambda proven: 40.0)
    with pytest.warns(axil.ApproximationWarning, match=r"take some 40 seconds.*leave_one_out\(\)") as said:
        near = explainer.blame(case.X_new, y).set_index("row").sort_index()["corrected"]
    assert said[0].filename == __file__
    monkeypatch.undo()
    exact = explainer.leave_one_out()["prediction"]
    assert 0 < np.nanmedian(np.abs(near - exact)) < 0.01 * np.ptp(case.y)
    np.testing.assert_array_equal(explainer.blame(case.X_new, y).set_index("row").sort_index()["corrected"], exact)


def test_rows_that_only_their_own_target_speaks_for_have_no_correction():
    model = axil_tree()
    frame = model.blame(np.array([[0.1], [0.9]]), [0.0, 1.0])
    assert frame["corrected"].isna().all()
    assert frame["gain"].isna().all()


def axil_tree():
    from sklearn.tree import DecisionTreeRegressor

    X, y = np.arange(10.0)[:, None], np.arange(10.0) ** 2
    return axil.Explainer(DecisionTreeRegressor(random_state=0).fit(X, y), X, y)


def test_corrections_of_ones_own():
    case, explainer = case_of("lightgbm", "regressor"), explainer_of("lightgbm", "regressor")
    y, own = validation("lightgbm", "regressor"), np.linspace(0, 1, len(case.y))
    frame = explainer.blame(case.X_new, y, correction=own).set_index("row").sort_index()
    np.testing.assert_array_equal(frame["corrected"], own)
    two = explainer_of("xgboost", "one_output_per_tree")
    X, y2 = case_of("xgboost", "one_output_per_tree").X_new, validation("xgboost", "one_output_per_tree")
    assert len(two.blame(X, y2, correction=two.targets)) == two.targets.size
    for bad, message in [
        (own[1:], "correction has shape"),
        ("cross-fitted", "cross_val_predict"),
        (own * np.nan, "nan"),
    ]:
        with pytest.raises(InputError, match=message):
            explainer.blame(case.X_new, y, correction=bad)
    with pytest.raises(InputError, match="correction has shape"):
        two.blame(X, y2, correction=own)
    with pytest.raises(InputError, match="y_val has shape"):
        explainer.blame(case.X_new, y[1:])
    with pytest.raises(InputError, match="no rows"):
        explainer.blame(case.X_new[:0], [])


# sizes and standard errors


@pytest.mark.parametrize(("library", "name"), MODELS)
def test_sizes_of_weights_are_streamed(library, name, monkeypatch):
    case, explainer = case_of(library, name), explainer_of(library, name)
    weights = explainer(case.X_new).weights
    explanation = explainer(case.X_new)
    small_batches(monkeypatch, explainer)
    size = np.abs(weights).sum(axis=-1)
    expected = {
        "effective_size": size**2 / np.square(weights).sum(axis=-1),
        "negative_share": np.maximum(-weights, 0).sum(axis=-1) / size,
    }
    for what, right in expected.items():
        np.testing.assert_allclose(getattr(explanation, what), right, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(getattr(explainer, what)(case.X_new), right, rtol=1e-9, atol=1e-12)
        assert getattr(explainer, what)(case.X_new[:0]).shape == (*weights.shape[:-2], 0)
    sigma = np.arange(1.0, 1 + explainer.proven.targets.shape[1])
    errors = explainer.standard_error(case.X_new, sigma)
    assert errors.shape == explanation.predictions.shape
    right = np.linalg.norm(weights_of(explainer, case.X_new), axis=-1).T * sigma
    np.testing.assert_allclose(errors.reshape(right.shape), right)


@pytest.mark.parametrize(("library", "name"), [MODELS[0], MODELS[1], MODELS[3], MODELS[4], MODELS[9]])
def test_noise_is_estimated_from_the_residuals(library, name):
    case, explainer = case_of(library, name), explainer_of(library, name)
    K = explainer.matrix()
    K = K if K.ndim == 3 else [K] * explainer.proven.targets.shape[1]
    fitted = explainer(case.X, init_score=offsets_of(case)).predictions.reshape(explainer.proven.targets.shape)
    left = [np.eye(len(own)) - own for own in K]
    rss = np.square(explainer.proven.targets - fitted).sum(axis=0)
    sigma = np.sqrt(rss / [np.trace(one.T @ one) for one in left])
    np.testing.assert_allclose(
        explainer.standard_error(case.X_new), explainer.standard_error(case.X_new, sigma), rtol=1e-9
    )


def test_standard_errors_of_linear_regression_are_the_textbooks():
    case, explainer = case_of("smoother", "linear regression"), explainer_of("smoother", "linear regression")
    A, B = (np.hstack([np.ones((len(X), 1)), X]) for X in (case.X, case.X_new))
    residuals = case.y - case.model.predict(case.X)
    sigma = np.sqrt(residuals @ residuals / (len(A) - A.shape[1]))
    expected = sigma * np.sqrt(np.einsum("ij,jk,ik->i", B, np.linalg.inv(A.T @ A), B))
    np.testing.assert_allclose(explainer.standard_error(case.X_new), expected, rtol=1e-9)
    assert explainer.degrees_of_freedom() == pytest.approx(A.shape[1])


def test_noise_that_cannot_be_told_is_refused():
    with pytest.raises(InputError, match="degrees of freedom"):
        axil_tree().standard_error(np.ones((1, 1)))
    np.testing.assert_allclose(axil_tree().standard_error(np.ones((1, 1)), 2.0), 2.0)
    classifier, case = explainer_of(*MODELS[8]), case_of(*MODELS[8])
    with pytest.raises(InputError, match="class labels"):
        classifier.standard_error(case.X_new)
    for bad in (-1.0, np.nan, "much", [1.0, 2.0, 3.0, 4.0, 5.0]):
        with pytest.raises(InputError, match="sigma is"):
            axil_tree().standard_error(np.ones((1, 1)), bad)


# tables


@pytest.mark.parametrize(("library", "name"), MODELS)
def test_streamed_groups_are_those_of_the_explanation(library, name, monkeypatch):
    case, explainer = case_of(library, name), explainer_of(library, name)
    labels = np.arange(len(case.y)) % 3
    expected = explainer(case.X_new).group(labels)
    small_batches(monkeypatch, explainer)
    pd.testing.assert_frame_equal(explainer.group(case.X_new, labels), expected, rtol=1e-9, atol=1e-10)
    assert len(explainer.group(case.X_new[:0], labels)) == 0
    with pytest.raises(InputError, match="labels has shape"):
        explainer.group(case.X_new, labels[1:])


@pytest.mark.parametrize(("library", "name"), MODELS)
def test_concentration_counts_the_largest_weights(library, name, monkeypatch):
    case, explainer = case_of(library, name), explainer_of(library, name)
    explanation = explainer(case.X_new)
    small_batches(monkeypatch, explainer)
    frame = explainer.concentration(case.X_new, (0.5, 0.9, 1.0))
    weights = np.abs(explanation.weights.reshape(-1, *explanation.weights.shape[-2:]))
    counts = frame["rows"].to_numpy().reshape(-1, len(weights), 3)
    for k, i in np.ndindex(len(weights), 5):
        own = np.sort(weights[k, i])[::-1]
        for share, count in zip((0.5, 0.9, 1.0), counts[i, k]):
            assert own[:count].sum() >= share * own.sum() * (1 - 1e-9)
            assert own[: count - 1].sum() < share * own.sum()
    pd.testing.assert_frame_equal(frame, explanation.concentration((0.5, 0.9, 1.0)))
    for bad in ((), (0.0,), (1.5,), "half"):
        with pytest.raises(InputError, match="shares is"):
            explainer.concentration(case.X_new, bad)


def test_comparables_in_every_kind_of_table():
    case = case_of("lightgbm", "regressor")
    names = getattr(case.model, "booster_", case.model).feature_name()
    train, new = np.asarray(case.X, dtype=float), np.asarray(case.X_new, dtype=float)[:3]
    kinds = {
        "numpy": lambda values: values,
        "csr": sp.csr_matrix,
        "pandas": lambda values: pd.DataFrame(values, columns=names, index=[f"h{i}" for i in range(len(values))]),
        "polars": lambda values: pl.DataFrame(values, schema=names),
        "pyarrow": lambda values: pa.table(dict(zip(names, values.T))),
    }
    for kind, convert in kinds.items():
        explainer = axil.Explainer(case.model, convert(train), case.y)
        frame = explainer.similar(convert(new), 4)
        assert isinstance(frame, {"polars": pl.DataFrame, "pyarrow": pa.Table}.get(kind, pd.DataFrame))
        table = frame.to_pandas() if kind in ("polars", "pyarrow") else frame
        shown = [f"x{i}" for i in range(train.shape[1])] if kind in ("numpy", "csr") else names
        first = ["query", "prediction", "rank", "row", "weight", "share", "target", "contribution"]
        assert list(table.columns) == first + [f"{n} ({of})" for n in shown for of in ("row", "query")]
        rows = [int(str(row).lstrip("h")) for row in table["row"]]
        np.testing.assert_array_equal(table[[f"{n} (row)" for n in shown]], train[rows])
        np.testing.assert_array_equal(table[[f"{n} (query)" for n in shown]], np.repeat(new, 4, axis=0))
        top = explainer(convert(new)).top(4)
        top = top.to_pandas() if kind in ("polars", "pyarrow") else top
        pd.testing.assert_frame_equal(table[top.columns], top)
        sizes = np.abs(explainer(convert(new)).weights).sum(axis=1)
        share = table["weight"].abs().to_numpy().reshape(3, 4).cumsum(axis=1) / sizes[:, None]
        np.testing.assert_allclose(table["share"].to_numpy().reshape(3, 4), share)


def test_comparables_of_several_outputs_and_text():
    case, explainer = case_of("xgboost", "one_output_per_tree"), explainer_of("xgboost", "one_output_per_tree")
    frame = explainer.similar(case.X_new[:3], 2, columns=[1, "x0"])
    assert list(frame.columns)[-4:] == ["x1 (row)", "x1 (query)", "x0 (row)", "x0 (query)"]
    np.testing.assert_array_equal(frame["x1 (query)"], np.repeat(case.X_new[:3, 1], 2 * len(explainer.outputs)))
    np.testing.assert_array_equal(frame["x0 (row)"], case.X[frame["row"], 0])
    piped, case = explainer_of("smoother", "pipeline ridge"), case_of("smoother", "pipeline ridge")
    frame = piped.similar(case.X_new[:2], 3, columns="kind")
    assert list(frame["kind (row)"]) == list(case.X["kind"].to_numpy()[frame["row"]])
    assert len(piped.similar(case.X_new[:0], 3)) == 0
    with pytest.raises(InputError, match="columns names 'colour'"):
        piped.similar(case.X_new, columns=["colour"])
    with pytest.raises(InputError, match="k is 0"):
        piped.similar(case.X_new, 0)


def test_a_loaded_explainer_asks_for_the_training_rows(tmp_path):
    case, explainer = case_of("lightgbm", "bagging"), explainer_of("lightgbm", "bagging")
    explainer.save(tmp_path / "e")
    loaded = axil.load(tmp_path / "e", case.model)
    np.testing.assert_allclose(loaded.removal(case.X_new), explainer.removal(case.X_new), atol=1e-12)
    with pytest.raises(axil.UnsupportedQuestionError, match=r"X_train=X_train"):
        loaded.similar(case.X_new)
    again = axil.load(tmp_path / "e", case.model, X_train=case.X)
    pd.testing.assert_frame_equal(again.similar(case.X_new, 3), explainer.similar(case.X_new, 3))
    with pytest.raises(InputError, match="X_train has 9 rows"):
        axil.load(tmp_path / "e", case.model, X_train=case.X[:9])


def test_classes_answer_with_their_names():
    rng = np.random.default_rng(0)
    X = rng.random((120, 3))
    y = np.where(X[:, 0] > 0.5, "high", "low")
    explainer = axil.Explainer(RandomForestClassifier(5, min_samples_leaf=5, random_state=0).fit(X, y), X, y)
    frame = explainer.what_if({0: "high" if y[0] == "low" else "low"}, X[:4])
    assert set(frame["output"]) == {"high", "low"}
    np.testing.assert_allclose(frame.groupby("query")["change"].sum(), 0, atol=1e-15)
    assert set(explainer.removal_set(X[:2], 2)["output"]) == {"high", "low"}
    assert set(explainer.blame(X[:9], y[:9])["output"]) == {"high", "low"}


def test_categories_keep_their_missing_values():
    words = pl.DataFrame({"kind": ["a", None, "c"]}).with_columns(pl.col("kind").cast(pl.Categorical))
    for X in (words, words.to_arrow(), words.to_pandas()):
        (found,) = inputs.feature_columns(X, np.array([2, 1, 1, 0]), [0])
        assert [None if word != word else word for word in found] == ["c", None, None, "a"]


def test_a_model_that_changed_since_is_noticed():
    case = case_of("smoother", "ridge")
    model = clone(case.model).fit(case.X, case.y)
    explainer = axil.Explainer(model, case.X, case.y)
    explainer.proven.adapter._model.coef_ = model.coef_ + 1.0  # it keeps a copy of its own
    asked = {
        "removal": lambda: explainer.removal(case.X_new),
        "removal_set": lambda: explainer.removal_set(case.X_new, 2),
        "what_if": lambda: explainer.what_if({0: 1.0}, case.X_new),
        "blame": lambda: explainer.blame(case.X_new, np.zeros(len(case.X_new))),
        "standard_error": lambda: explainer.standard_error(case.X_new),
        "similar": lambda: explainer.similar(case.X_new),
        "group": lambda: explainer.group(case.X_new, case.y > 0),
        "concentration": lambda: explainer.concentration(case.X_new),
    }
    for ask in asked.values():
        with pytest.raises(axil.ExactnessError, match="may have changed"):
            ask()


def test_nothing_is_printed(capfd):
    case, explainer = case_of("lightgbm", "regressor"), explainer_of("lightgbm", "regressor")
    explainer.removal_set(case.X_new, 2)
    explainer.standard_error(case.X_new)
    explainer.blame(case.X_new, validation("lightgbm", "regressor"))
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


@pytest.mark.parametrize(("library", "name"), MODELS[:9])
def test_sets_by_pushes_are_the_largest_of_one_sign(library, name, monkeypatch):
    case, explainer = case_of(library, name), explainer_of(library, name)
    steps = explainer.pushes(case.X_new)
    small_batches(monkeypatch, explainer)
    np.testing.assert_allclose(explainer.pushes(case.X_new), steps, rtol=0, atol=1e-12 * np.abs(steps).max())
    frame = explainer.removal_set(case.X_new, 3, by="pushes")
    assert list(frame.columns) == ["query", *(["output"] if steps.ndim == 3 else []), "rank", "row", "push"]
    assert frame.attrs["axil"] == tables.NOTE
    keys = ["query"] if steps.ndim == 2 else ["output", "query"]
    for key, own in frame.groupby(keys):
        *output, query = key
        values = steps[query] if steps.ndim == 2 else steps[list(explainer.outputs).index(output[0]), query]
        expected = max(np.sort(values)[-3:].clip(0).sum(), -np.sort(values)[:3].clip(None, 0).sum())
        np.testing.assert_allclose(np.abs(own["push"]).sum(), expected, rtol=1e-9)
        np.testing.assert_allclose(own["push"], values[own["row"]], rtol=1e-9)


def test_pushes_that_do_not_exist_are_refused():
    case, explainer = case_of("smoother", "ridge"), explainer_of("smoother", "ridge")
    with pytest.raises(axil.UnsupportedQuestionError, match="not tree by tree"):
        explainer.pushes(case.X_new)
    case, explainer = case_of("lightgbm", "bagging"), explainer_of("lightgbm", "bagging")
    with pytest.raises(InputError, match='expected "effect" or "pushes"'):
        explainer.removal_set(case.X_new, 2, by="weight")
    with pytest.raises(InputError, match="leave one of them out"):
        explainer.removal_set(case.X_new, 2, greedy=True, by="pushes")
    assert explainer.pushes(case.X_new[:0]).shape == (0, len(case.y))


@pytest.mark.parametrize(
    ("library", "name"),
    [
        ("lightgbm", "regressor"),
        ("lightgbm", "bagging"),
        ("xgboost", "one_output_per_tree weighted"),
        ("xgboost", "base_margin base_score=2 weighted"),
        ("catboost", "multi weighted"),
        ("sklearn", "RandomForestRegressor weighted"),
        ("smoother", "ridge two outputs"),
        ("smoother", "neighbours"),
    ],
)
@pytest.mark.parametrize("scored", [False, True])
def test_reach_is_columns_of_the_weights(library, name, scored, monkeypatch):
    """Up to rounding: these are made by replays of the fit, those by sweeps back from the predictions."""
    monkeypatch.setattr("axil.questions.targets.COLUMNS", 3)
    explainer, case = explainer_of(library, name), case_of(library, name)
    rows = [5, 0, 17, 3]
    offsets = np.arange(case.X_new.shape[0], dtype=float) if scored and library != "smoother" else None
    if offsets is not None and explainer.outputs is not None:
        offsets = np.stack([offsets] * len(explainer.outputs), axis=1)
    found = explainer.reach(explainer.index[rows], case.X_new, offsets)
    wanted = explainer(case.X_new, offsets).weights[..., rows]
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)
    assert explainer.reach([], case.X_new).shape == (*wanted.shape[:-1], 0)


def test_reach_refuses_what_it_cannot_answer():
    explainer, X = explainer_of("lightgbm", "regressor"), case_of("lightgbm", "regressor").X_new
    for rows, message in [
        (["nobody"], "rows"),
        ("nobody", "expected a list of labels"),
        (3, "expected a list of labels"),
    ]:
        with pytest.raises(axil.InputError, match=message):
            explainer.reach(rows, X)
    small = axil.Explainer(*(getattr(case_of("lightgbm", "regressor"), part) for part in ("model", "X", "y")))
    small.proven.budget.limit = 1000
    with pytest.raises(axil.InputError, match=r"would take .* memory_limit"):
        small.reach(small.index[:2], X)
