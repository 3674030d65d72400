"""Every public question of every kind of model, in every place: an answer with the same columns, or a refusal by name."""

import re
from functools import cache

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge

import axil

dd = pytest.importorskip("dask.dataframe")

N, NEW = 90, 4
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(RNG.normal(size=(N + NEW, 3)), columns=["rooms", "size", "age"])
TABLE["size"] = TABLE["size"].round()
X, X_NEW = TABLE.iloc[:N], TABLE.iloc[N:]
SCORE = (TABLE["rooms"] + 0.5 * TABLE["size"] + RNG.normal(0, 0.5, N + NEW)).to_numpy()
TWO, THREE, COUNTS = SCORE > 0, np.digitize(SCORE, [-0.5, 0.5]), np.floor(np.exp(SCORE))
OFFSETS = RNG.normal(0, 0.2, N)
GROUPS = np.where(np.arange(N) % 3, "north", "south")
SMALL = {"n_estimators": 4, "num_leaves": 4, "min_child_samples": 5, "verbose": -1, "n_jobs": 1}

MODELS = {
    "boosting": (lgb.LGBMRegressor(**SMALL), SCORE),
    "forest": (
        RandomForestClassifier(
            4, min_samples_leaf=5, max_features=1, bootstrap=False, random_state=0, n_jobs=1
        ),
        THREE,
    ),
    "ridge": (Ridge(1.0), SCORE),
    "two classes": (lgb.LGBMClassifier(**SMALL), TWO),
    "three classes": (lgb.LGBMClassifier(**SMALL), THREE),
    "counts": (lgb.LGBMRegressor(**SMALL, objective="poisson"), COUNTS),
    "logistic": (LogisticRegression(tol=1e-10), TWO),
}
TREES = "boosting", "forest", "two classes", "three classes", "counts"
CELLS = [(name, "memory") for name in MODELS] + [(name, "dask") for name in TREES]


@cache
def explainer_of(name, place):
    model, y = MODELS[name]
    offsets = OFFSETS if name == "counts" else None
    given = {} if offsets is None else {"init_score": offsets}
    model.fit(X, y[:N], **given)
    if place == "memory":
        return axil.Explainer(model, X, y[:N], **given)
    columns = [
        dd.from_pandas(pd.Series(part, X.index), npartitions=3) for part in (y[:N], *given.values())
    ]
    return axil.Explainer(
        model, dd.from_pandas(X, npartitions=3), columns[0], **dict(zip(given, columns[1:]))
    )


def labels(place, values):
    return (
        values if place == "memory" else dd.from_pandas(pd.Series(values, X.index), npartitions=3)
    )


def of_output(explainer):
    return {} if explainer.outputs is None else {"output": explainer.outputs[0]}


# Each takes an explainer, the place of its rows, the targets of X_NEW, and a folder.
QUESTIONS = {
    "call": lambda e, place, y, path: e(X_NEW),
    "explain": lambda e, place, y, path: e.explain(X_NEW),
    "explain(sparse=True)": lambda e, place, y, path: e.explain(X_NEW, sparse=True),
    "explain().weights": lambda e, place, y, path: e.explain(X_NEW).weights,
    "explain().concentration": lambda e, place, y, path: e.explain(X_NEW).concentration(),
    "explain().to_html": lambda e, place, y, path: e.explain(X_NEW).to_html(),
    "aggregate": lambda e, place, y, path: e.aggregate(X_NEW, "sum"),
    "aggregate(by=)": lambda e, place, y, path: e.aggregate(X_NEW, by="age").contributions,
    "iter": lambda e, place, y, path: list(e.iter(X_NEW, 3)),
    "top": lambda e, place, y, path: e.top(X_NEW, 3),
    "top(by='weight')": lambda e, place, y, path: e.top(X_NEW, 3, by="weight"),
    "similar": lambda e, place, y, path: e.similar(X_NEW, 3),
    "similar(adjust=True)": lambda e, place, y, path: e.similar(X_NEW, 3, adjust=True),
    "similar(within=)": lambda e, place, y, path: e.similar(X_NEW, 3, within=("age", 1.0)),
    "similar(distinct=)": lambda e, place, y, path: e.similar(
        X_NEW, 3, distinct="size", sign="for"
    ),
    "similar(tree_weights=)": lambda e, place, y, path: e.similar(
        X_NEW, 3, by="leaves", tree_weights="error"
    ),
    "similar(beside=)": lambda e, place, y, path: e.similar(X_NEW, 3, beside=(X + 1, X_NEW + 1)),
    "adjustments": lambda e, place, y, path: e.adjustments(X_NEW, 3),
    "group": lambda e, place, y, path: e.group(X_NEW, labels(place, GROUPS)),
    "group(column)": lambda e, place, y, path: e.group(X_NEW, "size"),
    "concentration": lambda e, place, y, path: e.concentration(X_NEW),
    "what_if": lambda e, place, y, path: e.what_if(X_NEW, {3: y[0]}),
    "jacobian.sensitivity": lambda e, place, y, path: e.jacobian.sensitivity(X_NEW, [3, 5]),
    "without": lambda e, place, y, path: e.without(X_NEW, labels(place, np.arange(N) % 7 == 0)),
    "removal": lambda e, place, y, path: e.removal(X_NEW),
    "removal(method='first-order')": lambda e, place, y, path: e.removal(
        X_NEW, method="first-order"
    ),
    "removal(k=)": lambda e, place, y, path: e.removal(X_NEW, 3),
    "removal(by='contribution')": lambda e, place, y, path: e.removal(X_NEW, 3, by="contribution"),
    "removal(same_sign=True)": lambda e, place, y, path: e.removal(X_NEW, 3, same_sign=True),
    "removal(greedy=True)": lambda e, place, y, path: e.removal(X_NEW, 2, greedy=True),
    "removal(groups=)": lambda e, place, y, path: e.removal(X_NEW, groups=labels(place, GROUPS)),
    "jacobian.gradient_contributions": lambda e, place, y, path: e.jacobian.gradient_contributions(
        X_NEW
    ),
    "diagnostics.leave_one_out": lambda e, place, y, path: e.diagnostics.leave_one_out(),
    "diagnostics.in_bag": lambda e, place, y, path: e.diagnostics.in_bag(),
    "diagnostics.out_of_bag": lambda e, place, y, path: e.diagnostics.out_of_bag(),
    "diagnostics.leave_one_out_curve": lambda e, place, y, path: (
        e.diagnostics.leave_one_out_curve()
    ),
    "find_label_issues": lambda e, place, y, path: e.find_label_issues(),
    "influence": lambda e, place, y, path: e.influence(X_NEW, y),
    "shapley": lambda e, place, y, path: e.shapley(X_NEW, y),
    "min_label_changes": lambda e, place, y, path: e.min_label_changes(X_NEW, 0.5, 0.1),
    "diagnostics.leverage": lambda e, place, y, path: e.diagnostics.leverage(),
    "diagnostics.degrees_of_freedom": lambda e, place, y, path: e.diagnostics.degrees_of_freedom(),
    "diagnostics.standard_error": lambda e, place, y, path: e.diagnostics.standard_error(
        X_NEW, 0.1
    ),
    "calibrate": lambda e, place, y, path: e.calibrate(X_NEW, y),
    "jacobian.derivatives": lambda e, place, y, path: e.jacobian.derivatives(X_NEW, **of_output(e)),
    "jacobian.by_sample_weight": lambda e, place, y, path: e.jacobian.by_sample_weight(X_NEW),
    "jacobian.matrix": lambda e, place, y, path: e.jacobian.matrix(),
    "jacobian.operator": lambda e, place, y, path: e.jacobian.operator,
    "precompute": lambda e, place, y, path: e.precompute(),
    "to_html": lambda e, place, y, path: e.to_html(X_NEW),
    "report": lambda e, place, y, path: e.report(X_NEW, path / "report"),
    "write": lambda e, place, y, path: e.write(X_NEW, path / "written.parquet"),
    "save": lambda e, place, y, path: e.save(path / "saved.npz"),
}


def columns_of(found):
    """What must be the same in every place: the columns of a table, the shape of an array, the type of the rest."""
    if isinstance(found, list):
        return [columns_of(one) for one in found]
    if isinstance(found, pd.DataFrame):
        return list(found.columns), len(found)
    return type(found).__name__, getattr(found, "shape", None)


# Questions that a kind of model does not answer, and those that no model does over partitions.
LINEAR = {"jacobian.derivatives", "jacobian.by_sample_weight"}
WEIGHTED = {
    "similar(adjust=True)",
    "jacobian.sensitivity",
    "removal(greedy=True)",
    "diagnostics.leave_one_out",
    "diagnostics.leave_one_out_curve",
    "shapley",
    "min_label_changes",
    "diagnostics.leverage",
}
WEIGHTED |= {
    "diagnostics.degrees_of_freedom",
    "diagnostics.standard_error",
    "calibrate",
    "diagnostics.out_of_bag",
    "jacobian.matrix",
    "precompute",
    "report",
}
STEPS = {name for name in QUESTIONS if name.startswith("removal")} | {
    "what_if",
    "without",
    "jacobian.gradient_contributions",
    "find_label_issues",
    "influence",
}
OF_CLASSES = {"diagnostics.leave_one_out", "calibrate", "report", "precompute"}
NO_TREES = {"diagnostics.in_bag", "diagnostics.out_of_bag"}
PARTS = NO_TREES | {
    "adjustments",
    "similar(beside=)",
    "removal(greedy=True)",
    "jacobian.derivatives",
    "jacobian.by_sample_weight",
    "jacobian.matrix",
    "jacobian.operator",
    "report",
    "save",
}
ACCOUNT = {name for name in QUESTIONS if name.startswith("removal")} | {
    "without",
    "what_if",
    "jacobian.sensitivity",
    "find_label_issues",
    "influence",
    "explain().weights",
    "top(by='weight')",
}
REFUSED = {
    ("boosting", "memory"): LINEAR | {"diagnostics.out_of_bag"},
    ("forest", "memory"): LINEAR
    | {"similar(tree_weights=)", "diagnostics.leave_one_out_curve", "diagnostics.out_of_bag"},
    ("ridge", "memory"): LINEAR
    | NO_TREES
    | {
        "similar(tree_weights=)",
        "removal(by='contribution')",
        "jacobian.gradient_contributions",
        "diagnostics.leave_one_out_curve",
        "save",
    },
    ("two classes", "memory"): WEIGHTED - OF_CLASSES,
    ("three classes", "memory"): WEIGHTED - OF_CLASSES,
    # they start from offsets
    ("counts", "memory"): WEIGHTED - {"diagnostics.leave_one_out", "calibrate", "precompute"}
    | {"adjustments"},
    ("logistic", "memory"): WEIGHTED
    | STEPS
    | NO_TREES
    | {"similar(tree_weights=)", "adjustments", "save"},
    ("boosting", "dask"): PARTS,
    ("forest", "dask"): PARTS
    | {"similar(tree_weights=)", "calibrate", "diagnostics.leave_one_out_curve"},
    ("two classes", "dask"): WEIGHTED | PARTS | ACCOUNT - {"find_label_issues"},
    ("three classes", "dask"): WEIGHTED | PARTS | ACCOUNT - {"find_label_issues"},
    ("counts", "dask"): WEIGHTED | PARTS | ACCOUNT,
}


@cache
def answers(name, place, folder):
    """The answer to every question, or the error that refuses it."""
    found, y = {}, MODELS[name][1][N:]
    for number, (question, ask) in enumerate(QUESTIONS.items()):
        own = folder / f"{name} {place} {number}"
        own.mkdir()
        try:
            found[question] = ask(explainer_of(name, place), place, y, own)
        except axil.UnsupportedQuestionError as error:
            found[question] = error
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("table")


def refused_of(found):
    return {
        name: answer
        for name, answer in found.items()
        if isinstance(answer, axil.UnsupportedQuestionError)
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "place"), CELLS)
def test_every_question_has_an_answer_or_a_refusal_by_name(name, place, folder):
    refused = refused_of(answers(name, place, folder))
    assert set(refused) == REFUSED[name, place]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TREES)
def test_an_answer_has_the_same_columns_and_numbers_in_every_place(name, folder):
    """Sums in another order differ by 1e-12 or so; that may turn rows of equal effect round."""
    here, there = (answers(name, place, folder) for place in ("memory", "dask"))
    for question in here.keys() - refused_of(here).keys() - refused_of(there).keys():
        ours, theirs = here[question], there[question]
        assert columns_of(theirs) == columns_of(ours), question
        if isinstance(ours, pd.DataFrame):
            tied = ["row"] if question.startswith("removal") and "row" in ours else []
            pd.testing.assert_frame_equal(
                theirs.drop(columns=tied), ours.drop(columns=tied), rtol=1e-7, atol=1e-9
            )
            assert theirs.attrs["axil"] == ours.attrs["axil"], question
        elif isinstance(ours, np.ndarray):
            np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-9, err_msg=question)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "place"), CELLS)
def test_a_refusal_names_no_other_question_that_is_refused(name, place, folder):
    """What to do instead must be possible with the same explainer."""
    refused = refused_of(answers(name, place, folder))
    methods = {question.partition("(")[0] for question in refused} - {"explain", "similar", "top"}
    methods -= {own for own in methods if own in QUESTIONS and own not in refused}
    for question, error in refused.items():
        names_another = ("top(by='weight')", "removal(by='contribution')")  # what they rest on
        assert error.question.partition("(")[0] in question or question in names_another, error
        assert (
            not set(re.findall(r"explainer\.((?:diagnostics\.|jacobian\.)?\w+)", error.instead))
            & methods
        ), error
        if "explainer(X).weights" in error.instead:
            assert "explain().weights" not in refused, error
