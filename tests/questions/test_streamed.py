"""Questions that need weights alone, of every explainer that has weights, against what one whole explanation answers."""

import dask
import dask.dataframe as dd
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import zarr
from sklearn.linear_model import LogisticRegression, Ridge

import axil
import axil.dask
from axil.intervals.calibrate import Calibrates
from axil.output.tables import NOTES
from axil.questions.audit import LabelQuestions
from axil.questions.questions import Questions
from axil.questions.rows import RowQuestions
from axil.questions.streamed import OTHERS

RNG = np.random.default_rng(5)
X = pd.DataFrame(RNG.normal(size=(90, 3)), columns=["rooms", "size", "age"], index=[f"house {i}" for i in range(90)])
Y = pd.Series(3 * X["rooms"] + RNG.normal(size=90), index=X.index, name="price")
CLASSES = np.digitize(X["rooms"], [-0.5, 0.5])
QUIET = {"n_estimators": 6, "num_leaves": 5, "min_child_samples": 5, "verbose": -1, "n_jobs": 1}
GROUPS = np.array(["a", "b", "c"])[np.arange(90) % 3]
NEW = X.iloc[:11] + 0.1
KINDS = ["exact", "derivative", "pushes", "pushes of classes", "dask"]


@pytest.fixture(scope="module", params=KINDS)
def explainer(request):
    """In this thread: Dask's own threads would be others in every run."""
    with dask.config.set(scheduler="synchronous"):
        if request.param == "derivative":
            model = LogisticRegression(tol=1e-10).fit(X, CLASSES > 1)
            yield axil.JacobianExplainer(model, X, CLASSES > 1, output="probability")
            return
        if request.param == "pushes of classes":
            model = lgb.LGBMClassifier(**QUIET).fit(X, CLASSES)
            yield axil.JacobianExplainer(model, X, CLASSES, output="probability")
            return
        model = lgb.LGBMRegressor(**QUIET).fit(X, Y)
        if request.param == "dask":
            # Four partitions, in the order of the labels as they are.
            parts = [dd.from_pandas(part, npartitions=4, sort=False) for part in (X, Y)]
            yield axil.dask.Explainer(model, *parts)
        else:
            kind = axil.Explainer if request.param == "exact" else axil.JacobianExplainer
            yield kind(model, X, Y)


@pytest.fixture
def batches(monkeypatch):
    """Four queries at a time."""
    monkeypatch.setattr("axil.machine.memory.MOST_QUERIES", 4)


def same(found, wanted):
    """Weights of a batch are the same up to rounding, which depends on how many queries are asked together."""
    pd.testing.assert_frame_equal(found, wanted, rtol=1e-9, atol=1e-12, check_dtype=False)


def labels_for(explainer):
    """Groups as the explainer takes them: over Dask in the partitions of the training rows."""
    if not isinstance(explainer, axil.dask.Explainer):
        return GROUPS
    return dd.from_pandas(pd.Series(GROUPS, index=X.index), npartitions=4, sort=False)


def test_tables(explainer, batches):
    whole = explainer(NEW)
    note = NOTES[whole.kind]
    pairs = [
        (explainer.top(NEW, 3), whole.top(3)),
        (explainer.top(NEW, 3, by="contribution"), whole.top(3, by="contribution")),
        (explainer.group(NEW, labels_for(explainer)), whole.group(GROUPS)),
        (explainer.concentration(NEW, (0.3, 0.9)), whole.concentration((0.3, 0.9))),
        (explainer.portfolio(NEW, 0.1), whole.portfolio(0.1)),
    ]
    for found, wanted in pairs:
        if isinstance(explainer, axil.dask.Explainer) and "prediction" in found:
            # Over Dask it is summed by leaves from the targets as LightGBM keeps them, in float32.
            np.testing.assert_allclose(found["prediction"], wanted["prediction"], rtol=1e-6)
            found, wanted = found.drop(columns="prediction"), wanted.drop(columns="prediction")
        same(found, wanted)
        if not whole.exact:
            assert found.attrs["axil"] == note
    assert pairs[-1][0].attrs["axil"] == note


def test_numbers(explainer, batches):
    whole = explainer(NEW)
    np.testing.assert_allclose(explainer.effective_size(NEW), whole.effective_size, rtol=1e-9)
    np.testing.assert_allclose(explainer.negative_share(NEW), whole.negative_share, rtol=1e-9, atol=1e-12)


def test_comparables(explainer, batches):
    found, whole = explainer.similar(NEW, 3, columns=["age"]), explainer(NEW)
    same(found[whole.top(3).columns], whole.top(3))
    np.testing.assert_array_equal(found["age (row)"], X.loc[found["row"], "age"])
    np.testing.assert_array_equal(found["age (query)"], NEW.loc[found["query"], "age"])
    assert found["share"].between(0, 1 + 1e-12).all()
    assert found.attrs["axil"] == NOTES[whole.kind]
    if isinstance(explainer, axil.dask.Explainer):  # whose explanations have no training rows
        with pytest.raises(axil.UnsupportedQuestionError, match="not at hand"):
            whole.similar(3, ["age"])
        return
    at_hand = whole.similar(3, ["age"])
    same(at_hand, found)
    assert at_hand.attrs["axil"] == NOTES[whole.kind]
    some = {"among": lambda rows: rows["age"] > 0, "distinct": "rooms", "sign": "positive"}
    same(whole.similar(2, ["age"], **some), explainer.similar(NEW, 2, ["age"], **some))


def test_files(explainer, batches, tmp_path):
    whole = explainer(NEW)
    explainer.write(NEW, tmp_path / "w.parquet")
    table = pd.read_parquet(tmp_path / "w.parquet")
    n_outputs = 1 if whole.outputs is None else len(whole.outputs)
    name = "contributions" if whole.kind == "additive" else "weights"
    weights, wanted = np.stack(table[name].to_list()).reshape(len(NEW), n_outputs, -1), getattr(whole, name)
    wanted = wanted if wanted.ndim == 3 else wanted[None]
    np.testing.assert_allclose(weights.swapaxes(0, 1), wanted, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(table["prediction"], whole.predictions.ravel(), rtol=1e-9)
    assert list(table["query"]) == list(np.repeat(NEW.index, n_outputs))
    explainer.write(NEW, tmp_path / "w.zarr")
    stored = zarr.open_group(str(tmp_path / "w.zarr"), mode="r")
    np.testing.assert_allclose(stored[name][...], getattr(whole, name), rtol=1e-9, atol=1e-12)
    assert list(stored["index"][...]) == list(X.index)
    with pytest.raises(axil.InputError, match="no rows"):
        explainer.write(NEW.head(0), tmp_path / "none.zarr")


def test_pages(explainer):
    sigma = None if explainer(NEW).kind == "additive" else 2.0  # whose pushes pass no noise on
    page = explainer.to_html(NEW, groups=GROUPS, k=4, sigma=sigma)
    assert page == explainer(NEW).to_html(groups=GROUPS, k=4, sigma=sigma)
    with pytest.raises(axil.InputError, match="columns"):
        explainer.to_html(NEW, columns=["none of this name"])


def test_no_rows(explainer):
    none = NEW.head(0)
    assert len(explainer.top(none, 3)) == len(explainer.concentration(none)) == len(explainer.portfolio(none)) == 0
    assert len(explainer.group(none, labels_for(explainer))) == 0
    assert explainer.effective_size(none).shape[-1] == explainer.negative_share(none).shape[-1] == 0


def test_derivatives_take_no_offsets():
    explainer = axil.JacobianExplainer(Ridge().fit(X, Y), X, Y)
    with pytest.raises(axil.InputError, match="init_score is not taken here"):
        explainer.group(NEW, GROUPS, init_score=np.ones(len(NEW)))


def test_offsets_are_in_no_weight(monkeypatch):
    explainer = axil.Explainer(lgb.LGBMRegressor(**QUIET).fit(X, Y), X, Y)
    offsets = np.arange(len(NEW), dtype=float)
    same(explainer.group(NEW, GROUPS, init_score=offsets), explainer(NEW, offsets).group(GROUPS))
    np.testing.assert_array_equal(explainer.effective_size(NEW, offsets), explainer(NEW, offsets).effective_size)


def test_questions_that_need_more_than_weights_are_refused_by_name(explainer):
    """Every public question besides the streamed ones; an explainer of exact weights has them all."""
    kinds = (Questions, LabelQuestions, RowQuestions, Calibrates)
    names = {name for kind in kinds for name, value in vars(kind).items() if callable(value)}
    names = {name for name in names if not name.startswith("_")}
    assert set(OTHERS) == names
    for name in sorted(names):
        if isinstance(explainer, axil.Explainer) or hasattr(type(explainer), name):  # some have one of their own
            assert callable(getattr(explainer, name))
            continue
        assert not hasattr(explainer, name)
        with pytest.raises(axil.UnsupportedQuestionError, match=f"{name} has no answer here.*axil.Explainer"):
            getattr(explainer, name)
    with pytest.raises(AttributeError, match="has no attribute 'wieghts'"):
        explainer.wieghts  # noqa: B018


def test_one_line_for_all_classes_is_refused_by_name(explainer):
    with pytest.raises(axil.InputError, match=r"per_class is False.*explain\(X\)\.top"):
        explainer.top(NEW, per_class=False)


def test_a_property_that_refuses_says_why():
    explainer = axil.JacobianExplainer(LogisticRegression(tol=1e-10).fit(X, CLASSES > 1), X, CLASSES > 1)
    with pytest.raises(
        axil.UnsupportedQuestionError, match="base has no answer here: this model is not a sum of steps"
    ):
        explainer.base  # noqa: B018
