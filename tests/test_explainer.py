"""The whole way, from a fitted model to weights, as a user goes it."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import lightgbm as lgb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

import axil
from axil import InputError
from tests.adapters.lightgbm_models import CASES
from tests.fits import explainer_of_fit
from tests.notebooks import table_cells


def explain(case, **arguments):
    return axil.Explainer(
        case.model,
        case.X,
        case.y,
        sample_weight=case.sample_weight,
        init_score=case.init_score,
        **arguments,
    )


def booster(model):
    return getattr(model, "booster_", model)


@pytest.fixture(scope="module")
def case():
    return CASES["regressor"]()


@pytest.fixture(scope="module")
def explainer(case):
    return explain(case)


def test_streamed_top_is_the_top_of_the_weights(case, monkeypatch):
    explainer = explain(case)
    expected = explainer(case.X_new).top(7, by="contribution")
    monkeypatch.setattr("axil.machine.memory.BATCH_BYTES", 8 * len(explainer.targets) * 3)
    monkeypatch.setattr("axil.weights.tree_answers.READ_ROWS", 50)
    streamed = explainer.top(case.X_new, 7, by="contribution")
    pd.testing.assert_frame_equal(streamed, expected)
    pd.testing.assert_frame_equal(
        explainer.precompute().top(case.X_new, 7, by="contribution"), expected, rtol=1e-10
    )


def test_iter_gives_batches(case, explainer):
    whole = explainer(case.X_new)
    batches = list(explainer.iter(case.X_new, batch_size=7))
    assert [len(batch) for batch in batches[:-1]] == [7] * (len(batches) - 1)
    np.testing.assert_allclose(
        np.concatenate([b.weights for b in batches]), whole.weights, rtol=0, atol=1e-13
    )
    assert list(np.concatenate([b.query_index for b in batches])) == list(whole.query_index)
    with pytest.raises(InputError, match="batch_size is 0"):
        explainer.iter(case.X_new, batch_size=0)


def test_matrix_and_operator(case, explainer):
    K = explainer.jacobian.matrix()
    np.testing.assert_allclose(K, explainer(case.X).weights, rtol=0, atol=1e-13)
    rng = np.random.default_rng(0)
    v = rng.normal(size=(len(K), 3))
    operator = explainer.jacobian.operator
    np.testing.assert_allclose(operator @ v, K @ v, atol=1e-11)
    np.testing.assert_allclose(operator.T @ v, K.T @ v, atol=1e-11)
    np.testing.assert_allclose(operator @ v[:, 0], K @ v[:, 0], atol=1e-11)
    np.testing.assert_allclose(operator.T @ v[:, :1], K.T @ v[:, :1], atol=1e-11)
    assert operator.shape == K.shape


def test_no_queries(case, explainer):
    empty = explainer(case.X_new[:0])
    assert empty.weights.shape == (0, len(explainer.targets))
    assert empty.predictions.shape == (0,)
    assert len(empty.top()) == 0
    assert list(explainer.top(case.X_new[:0]).columns) == list(
        explainer.top(case.X_new[:2]).columns
    )
    assert list(explainer.iter(case.X_new[:0])) == []


def test_results_do_not_depend_on_the_thread_count(case):
    one, three = (explain(case, n_threads=n)(case.X_new).weights for n in (1, 3))
    np.testing.assert_array_equal(one, three)


def frames(case):
    names = booster(case.model).feature_name()
    values = np.asarray(case.X, dtype=float)
    yield "numpy", values, np.arange(len(values))
    yield (
        "pandas",
        pd.DataFrame(values, columns=names, index=[f"r{i}" for i in range(len(values))]),
        None,
    )
    yield "polars", pl.DataFrame(values, schema=names), np.arange(len(values))
    yield "pyarrow", pa.table(dict(zip(names, values.T))), np.arange(len(values))
    yield "csr", sp.csr_matrix(values), np.arange(len(values))
    yield "csc array", sp.csc_array(values), np.arange(len(values))


def test_every_kind_of_table(case):
    expected = explain(case)(np.asarray(case.X)[:4]).weights
    kinds = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.Table}
    for kind, X, labels in frames(case):
        explainer = axil.Explainer(case.model, X, case.y)
        explanation = explainer(X[:4] if kind != "pandas" else X.head(4))
        np.testing.assert_array_equal(explanation.weights, expected)
        assert list(explanation.index) == (list(X.index) if labels is None else list(labels))
        assert isinstance(explanation.top(), kinds.get(kind, pd.DataFrame))


def test_labels_of_queries_and_rows_are_the_users(case):
    X = pd.DataFrame(np.asarray(case.X), columns=booster(case.model).feature_name())
    X.index = [f"house {i}" for i in range(len(X))]
    explanation = axil.Explainer(case.model, X, case.y)(X.loc[["house 5", "house 2"]])
    table = explanation.top(3)
    assert list(table["query"]) == ["house 5"] * 3 + ["house 2"] * 3
    assert set(table["row"]) <= set(X.index)


def test_column_names_with_spaces(case):
    from lightgbm import LGBMRegressor

    X = pd.DataFrame(np.asarray(case.X)).rename(columns=lambda i: f"column number {i}")
    model = LGBMRegressor(n_estimators=3, verbose=-1).fit(X, case.y)
    assert len(axil.Explainer(model, X, case.y)(X.head(2))) == 2


BAD = {
    "short y": (lambda c: (c.model, c.X, c.y[:-1]), "y_train has shape"),
    "nan y": (
        lambda c: (c.model, c.X, np.where(np.arange(len(c.y)) == 3, np.nan, c.y)),
        "nan at position 3",
    ),
    "narrow X": (
        lambda c: (c.model, np.asarray(c.X)[:, 1:], c.y),
        "columns; the LightGBM model was fitted on",
    ),
    "no rows": (lambda c: (c.model, np.asarray(c.X)[:0], c.y[:0]), "has no rows"),
    "two targets": (lambda c: (c.model, c.X, np.stack([c.y, c.y], axis=1)), "y_train has shape"),
    "text y": (lambda c: (c.model, c.X, ["a"] * len(c.y)), "y_train is not numeric"),
    "no model": (lambda c: ("model.txt", c.X, c.y), "The model is a builtins.str"),
    "negative weight": (lambda c: (c.model, c.X, c.y, -np.ones(len(c.y))), "not negative"),
    "short init_score": (lambda c: (c.model, c.X, c.y, None, [1.0]), "init_score has shape"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_refused_before_any_work(case, what, monkeypatch):
    arguments, message = BAD[what]
    monkeypatch.setattr("axil.verify.build", lambda *_: pytest.fail("work was done"))
    with pytest.raises(InputError, match=message):
        explainer_of_fit(*arguments(case))


def test_an_unfitted_model():
    from lightgbm import LGBMRegressor

    with pytest.raises(InputError, match="has not been fitted"):
        axil.Explainer(LGBMRegressor(), np.zeros((3, 2)), np.zeros(3))


def test_bad_queries(case, explainer):
    for ask in (explainer, explainer.top, explainer.iter):
        with pytest.raises(InputError, match=r"X has shape \(\d+,\)"):
            ask(np.asarray(case.X)[0])
        with pytest.raises(InputError, match="X has 1 columns"):
            ask(np.zeros((2, 1)))
        with pytest.raises(InputError, match="init_score has shape"):
            ask(case.X_new, init_score=[1.0])


def test_bad_settings(case):
    with pytest.raises(InputError, match="n_threads is 0"):
        explain(case, n_threads=0)
    with pytest.raises(InputError, match="memory_limit is 'plenty'"):
        explain(case, memory_limit="plenty")


def test_a_result_beyond_the_memory_limit_is_refused_by_name(case):
    explainer = explain(case, memory_limit="64 KiB")
    for ask in (explainer.jacobian.matrix, lambda: explainer(case.X)):
        with pytest.raises(InputError, match=r"memory_limit.*explainer\.top.*explainer\.iter"):
            ask()
    with pytest.raises(InputError, match="The leaf matrix"):
        explainer.precompute()
    with pytest.raises(InputError, match=r"The table of .* memory_limit\. Ask for fewer rows"):
        explainer.top(case.X, 2)
    assert len(explainer.top(case.X[:50], 2)) == 2 * 50
    assert sum(len(batch) for batch in explainer.iter(case.X)) == len(case.y)
    with pytest.raises(InputError, match="leaf numbers"):
        explain(case, memory_limit=100)


def test_nothing_is_printed(case, capfd):
    explainer = explain(case)
    explainer.top(case.X_new)
    explainer(case.X_new).group(np.arange(len(case.y)) % 3)
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_reprs(explainer):
    assert repr(explainer).startswith("<axil.Explainer: LightGBM, ")
    assert "verified to" in repr(explainer)


def test_a_notebook_shows_what_the_repr_says(case):
    model = LogisticRegression().fit(case.X, np.asarray(case.y) > np.median(case.y))
    derivative = axil.Explainer(model, case.X, np.asarray(case.y) > np.median(case.y))
    for explainer in (explain(case), explain(case).refit(drop=[0, 3]), derivative):
        caption, cells = table_cells(explainer._repr_html_())
        assert repr(explainer) == f"<{caption}: {', '.join(cells[1::2])}>"
        assert cells[::2] in (
            ["model", "training data", "verification"],
            ["model", "training data", "kind", "verification"],
        )
    assert cells[5] == "derivative"


INTERRUPTED = """
    import sys, threading, time
    import numpy as np
    import lightgbm as lgb
    import axil
    rng = np.random.default_rng(0)
    X = rng.random((300_000, 5))
    y = X @ np.arange(5) + rng.normal(size=len(X))
    model = lgb.train({"objective": "regression", "verbose": -1}, lgb.Dataset(X, y), 20)
    explainer = axil.Explainer(model, X, y)
    first = explainer(X[:2]).weights
    print("ready", flush=True)
    try:
        for _ in range(100):
            explainer(X[:100])
    except KeyboardInterrupt:
        print("stopped", flush=True)
    assert np.array_equal(explainer(X[:2]).weights, first) or np.allclose(explainer(X[:2]).weights, first, atol=1e-12)
    print("usable", flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="no SIGINT for one process on Windows")
def test_an_interrupt_stops_soon_and_leaves_the_explainer_usable():
    program = [sys.executable, "-c", textwrap.dedent(INTERRUPTED)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().strip() == "ready"
        time.sleep(1.0)
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline().strip() == "stopped"
        waited = time.monotonic() - start
        assert process.stdout.readline().strip() == "usable"
    assert waited < 5  # promised within a second on a machine of one's own


RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(80, 3)), RNG.normal(size=80)
SMALL = {"n_estimators": 3, "num_leaves": 4, "verbose": -1, "n_jobs": 1}


def squared(y, F):
    return F - y, np.ones_like(y)


@pytest.mark.parametrize(
    ("model", "y", "kind"),
    [
        (lgb.LGBMRegressor(**SMALL), Y, "exact"),
        (lgb.LGBMClassifier(**SMALL), Y > 0, "additive"),
        (lgb.LGBMRegressor(**SMALL, objective=squared), Y, "additive"),
        (LogisticRegression(tol=1e-10), Y > 0, "derivative"),
    ],
)
def test_an_explainer_says_which_kind_it_is(model, y, kind):
    found = axil.Explainer(model.fit(X, y), X, y)
    assert found.kind == axil.supports(model).kind == kind
    assert repr(found).startswith("<axil.Explainer: ")
    assert len(found.top(X[:2], 3)) == 6


def test_models_that_nothing_explains_are_refused_by_name():
    booster = lgb.LGBMRegressor(**SMALL, objective=squared).fit(X, Y).booster_
    with pytest.raises(axil.UnsupportedModelError, match="as objective="):
        axil.Explainer(booster, X, Y)
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(lgb.LGBMRegressor(**SMALL).fit(X, Y), X, Y[::-1])


def test_names_of_other_libraries_are_refused_with_what_to_pass_instead():
    for name in ("base_margin", "baseline"):
        with pytest.raises(axil.InputError, match=f"takes no {name}.*init_score"):
            axil.Explainer(lgb.LGBMRegressor(), X, Y, **{name: Y})
    with pytest.raises(TypeError, match="unexpected keyword argument 'wieghts'"):
        axil.Explainer(lgb.LGBMRegressor(), X, Y, wieghts=1)


def test_a_warning_names_the_line_that_asked():
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = lgb.LGBMRegressor(n_estimators=4, verbose=-1).fit(X, X[:, 0])
    explainer = axil.Explainer(model, X, X[:, 0])
    with pytest.warns(axil.SplitsWarning) as found:
        explainer.without(X[:4], list(range(20)))
    assert [one.filename for one in found] == [__file__]


def test_an_explainer_has_few_names():
    assert len([name for name in dir(axil.Explainer) if not name.startswith("_")]) <= 40


class TestLabelsInAnotherOrder:
    """Rows are matched by position, so values with the labels of the rows in another order are refused."""

    X = pd.DataFrame(
        np.random.default_rng(0).normal(size=(90, 3)),
        columns=list("abc"),
        index=[f"r{i}" for i in range(90)],
    )
    y = X["a"] + X["b"] ** 2

    @pytest.mark.parametrize(
        ("what", "ask"),
        [
            ("groups", lambda e, X, y, other: e.group(X, other)),
            ("groups", lambda e, X, y, other: e.removal(X, groups=other)),
            ("groups", lambda e, X, y, other: e(X).group(other)),
            ("by", lambda e, X, y, other: e.aggregate(X, by=other)),
            ("out_of_fold", lambda e, X, y, other: e.find_label_issues(out_of_fold=other)),
            ("out_of_fold", lambda e, X, y, other: e.influence(X, y, out_of_fold=other)),
            ("y_val", lambda e, X, y, other: e.influence(X, other)),
            ("y_cal", lambda e, X, y, other: e.calibrate(X + 0.01, other)),
            ("y", lambda e, X, y, other: e.calibrate(X + 0.01, y).crps(X, other)),
            ("init_score", lambda e, X, y, other: e.top(X, init_score=other)),
            ("sample_weight", lambda e, X, y, other: e.refit(sample_weight=other.abs())),
            (r"add\[1\]", lambda e, X, y, other: e.refit(add=(X, other))),
            ("baseline", lambda e, X, y, other: e.shapley(X, y, baseline=other)),
        ],
    )
    def test_are_refused(self, what, ask):
        X, y = self.X, self.y
        explainer = axil.Explainer(
            lgb.LGBMRegressor(n_estimators=4, verbose=-1, n_jobs=1).fit(X, y), X, y
        )
        of = (
            "X_train"
            if what in ("groups", "out_of_fold", "sample_weight", "baseline")
            else r"(X|X_val|X_cal|add\[0\])"
        )
        with pytest.raises(
            axil.InputError, match=f"^{what} has the row labels of {of} in another order"
        ):
            ask(explainer, X, y, y.iloc[::-1])
