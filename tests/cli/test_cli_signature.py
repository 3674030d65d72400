"""Commands whose options are the parameters of a question, and axil compare."""

import inspect
import io

import numpy as np
import pandas as pd
import pytest

import axil
from axil.cli import options
from axil.cli.commands import make_parser
from axil.methods.diagnostics import Diagnostics
from axil.methods.jacobian import Jacobian
from tests.cli.cli_models import (
    FEATURES,
    MODELS,
    PLAIN,
    QUERY,
    TRAIN,
    VALIDATION,
    X,
    Y,
    lightgbm_model,
)


@pytest.fixture(scope="module")
def explainer():
    return axil.Explainer(MODELS["lightgbm.txt"][0], X, Y)


ASKED = {
    "concentration --query query.csv --shares 0.5,0.9": lambda e: e.concentration(
        QUERY[FEATURES], shares=(0.5, 0.9)
    ),
    "concentration --query query.csv --top-share 0.1": lambda e: e.concentration(
        QUERY[FEATURES], top=0.1
    ),
    "removal --query query.csv": lambda e: e.removal(QUERY[FEATURES], k=10),
    "removal --query query.csv --top 3 --same-sign --greedy": lambda e: e.removal(
        QUERY[FEATURES], k=3, same_sign=True, greedy=True
    ),
    "removal --query query.csv --groups city": lambda e: e.removal(
        QUERY[FEATURES], groups=TRAIN["city"].to_numpy()
    ),
    "shapley --validation validation.csv --groups city --baseline others": lambda e: e.shapley(
        VALIDATION[FEATURES], VALIDATION["y"], baseline="others", groups=TRAIN["city"].to_numpy()
    ),
    "leave-one-out --top 150": lambda e: e.diagnostics.leave_one_out(),
    "leave-one-out-curve": lambda e: e.diagnostics.leave_one_out_curve(),
    "min-label-changes --query query.csv --threshold 150 --bounds 20 --groups city": lambda e: (
        e.min_label_changes(QUERY[FEATURES], 150.0, 20.0, groups=TRAIN["city"].to_numpy())
    ),
    "min-label-changes --query query.csv --threshold 150 --bounds 0,1000 --listed": lambda e: (
        e.min_label_changes(QUERY[FEATURES], 150.0, (0.0, 1000.0), listed=True)
    ),
    "min-label-changes --query query.csv --threshold 150 --bounds w": lambda e: e.min_label_changes(
        QUERY[FEATURES], 150.0, TRAIN["w"].to_numpy()
    ),
    "sensitivity --query query.csv --rows 3,40": lambda e: pd.DataFrame(
        {
            "query": np.repeat(np.arange(3), 2),
            "row": np.tile([3, 40], 3),
            "weight": e.jacobian.sensitivity(QUERY[FEATURES], [3, 40]).ravel(),
        }
    ),
    "leverage --top 150": lambda e: pd.DataFrame(
        {"row": np.arange(len(X)), "leverage": e.diagnostics.leverage()}
    ),
    "leverage --method estimate --top 150": lambda e: pd.DataFrame(
        e.diagnostics.leverage("estimate")._asdict()
    ).rename(columns={"value": "leverage"}),
    "degrees-of-freedom": lambda e: pd.DataFrame(
        {"degrees_of_freedom": [e.diagnostics.degrees_of_freedom()]}
    ),
    "standard-error --query query.csv --sigma 7": lambda e: pd.DataFrame(
        {
            "query": np.arange(3),
            "standard_error": e.diagnostics.standard_error(QUERY[FEATURES], 7.0),
        }
    ),
    "influence --validation validation.csv --out-of-fold w --top 150": lambda e: e.influence(
        VALIDATION[FEATURES], VALIDATION["y"], out_of_fold=TRAIN["w"].to_numpy()
    ),
}


@pytest.mark.parametrize("words", ASKED)
def test_a_command_is_its_question(run, explainer, words):
    command, _, rest = words.partition(" ")
    code, out, err = run(f"{command} lightgbm.txt {PLAIN} {rest} --format csv")
    assert code == 0, err
    expected, found = ASKED[words](explainer), pd.read_csv(io.StringIO(out))
    pd.testing.assert_frame_equal(
        found[list(expected.columns)],
        expected,
        check_dtype=False,
        rtol=1e-9,
        check_column_type=False,
    )


NO_COMMAND = {
    "iter": "explain reads and writes batch by batch",
    "gradient_contributions": "an array of all training rows: explain --by contribution and removal --by contribution list "
    "its largest numbers",
    "derivatives": "an array of all training rows and classes, for programs",
    "by_sample_weight": "an array of all training rows, for programs",
    "in_bag": "an array of all training rows and trees, for programs",
    "out_of_bag": "an array of all training rows, for programs",
    "matrix": "an array of training rows by training rows, for programs",
    "precompute": "for an explainer that is asked again and again",
    "certificate": "of an explainer and the one before it, for programs",
    "save": "for an explainer that is asked again and again",
    "show": "for notebooks",
}
COMMANDS = {
    "top": "explain",
    "aggregate": "explain",
    "to_html": "explain",
    "calibrate": "intervals",
}  # others: their name
NO_OPTION = {
    ("explain", "sparse"): "how arrays are held in memory",
    ("adjustments", "comparables"): "--top and the rules of similar choose them",
    ("similar", "beside"): "columns of the files that are no features are taken as they are named",
    ("report", "beside"): "columns of the files that are no features are taken as they are named",
    ("to_html", "groups"): "group writes this page",
    ("to_html", "min_group_size"): "group writes this page",
    ("to_html", "interval"): "intervals writes this page",
}
OPTIONS = {
    **{"X": "query"},
    **dict.fromkeys(("X_val", "y_val"), "validation"),
    **dict.fromkeys(("X_cal", "y_cal", "interval"), "calibration"),
    **dict.fromkeys(("path", "folder"), "out"),
    **{"init_score": "offset", "drop": "rows", **options.OPTION_NAMES, "rows": "rows"},
    ("aggregate", "by"): "mean-by",
    ("group", "groups"): "by",
    ("report", "rows"): "row-name",
}  # by question and parameter, or by parameter; others: its name


def test_every_parameter_of_every_question_is_an_option():
    _, commands = make_parser()
    questions = {
        name: one
        for kind in (axil.Explainer, Diagnostics, Jacobian)
        for name, one in inspect.getmembers(kind, inspect.isfunction)
        if name[0] != "_"
    }
    asked = 0
    for question, method in questions.items():
        if question in NO_COMMAND:
            continue
        options = commands[
            COMMANDS.get(question, question.replace("_", "-"))
        ]._option_string_actions
        for name in list(inspect.signature(method).parameters)[1:]:
            option = OPTIONS.get((question, name), OPTIONS.get(name, name)).replace("_", "-")
            assert ((question, name) in NO_OPTION) != (f"--{option}" in options), (question, name)
            asked += 1
    assert asked > 90
    assert NO_COMMAND.keys() <= questions.keys()
    assert {question for question, _ in NO_OPTION} <= questions.keys()


def test_compare(run):
    old = lightgbm_model().fit(X[:120], Y[:120])
    old.booster_.save_model("old.txt")
    TRAIN[:120].to_csv("train_old.csv", index=False)
    words = f"compare old.txt lightgbm.txt --train-old train_old.csv {PLAIN} --index id --query query.csv"
    labelled = X.set_axis(TRAIN["id"]), Y.set_axis(TRAIN["id"])
    first = axil.Explainer(old, labelled[0][:120], labelled[1][:120])
    comparison = axil.compare(
        first,
        axil.Explainer(MODELS["lightgbm.txt"][0], *labelled),
        QUERY[FEATURES].set_axis(QUERY["id"]),
    )
    for more, expected in (("", comparison.table()), ("--top 2", comparison.top(2))):
        code, out, err = run(f"{words} {more} --format csv")
        assert code == 0, err
        pd.testing.assert_frame_equal(
            pd.read_csv(io.StringIO(out)), expected, check_dtype=False, rtol=1e-6
        )
    code, out, _ = run(words)
    assert "120 training rows kept, 0 of them with other targets, 30 added, 0 removed" in out
    assert out.count("training rows of train") == 2  # both proofs


@pytest.fixture
def logarithms(folder):
    """Write the data with the logarithms of the targets, and a model that is fitted to them."""
    logs = np.log(Y)
    for name, frame in {"train": TRAIN, "query": QUERY, "validation": VALIDATION}.items():
        frame.assign(log=np.log(frame["y"])).to_csv(folder / f"{name}_log.csv", index=False)
    model = lightgbm_model().fit(X, logs)
    model.booster_.save_model(folder / "log.txt")
    return model, logs


def test_offsets_and_prices(run, logarithms):
    model, logs = logarithms
    offset = TRAIN["w"]
    lightgbm_model().fit(X, logs, init_score=offset).booster_.save_model("offset.txt")
    data = "--train train_log.csv --target log --offset w"
    code, out, err = run(f"explain offset.txt {data} --query query_log.csv --top 2 --format csv")
    assert code == 0, err
    explainer = axil.Explainer(
        lightgbm_model().fit(X, logs, init_score=offset), X, logs, init_score=offset.to_numpy()
    )
    expected = explainer.top(QUERY[FEATURES], 2, init_score=QUERY["w"].to_numpy())
    np.testing.assert_allclose(
        pd.read_csv(io.StringIO(out))["prediction"], expected["prediction"], rtol=1e-9
    )
    explainer = axil.Explainer(model, X, logs, inverse_func=np.exp)
    expected = explainer.what_if(QUERY[FEATURES], {3: np.log(80.0)})
    for target in ("log", "y"):  # in logarithms, and in the units of the answers
        words = f"what-if log.txt --train train_log.csv --target {target} --inverse-func exp --query query_log.csv"
        code, out, err = run(f"{words} --set 3=80 --format csv")
        assert code == 0, err
        np.testing.assert_allclose(
            pd.read_csv(io.StringIO(out))["after"], expected["after"], rtol=1e-9
        )
        assert ("its log was taken" in err) == (target == "y")
    code, _, err = run(f"{words} --set 3=-80")
    assert code == 2
    assert "of which there is a log" in err
    code, out, err = run(
        "intervals log.txt --train train_log.csv --target y --inverse-func exp --query query_log.csv "
        "--calibration validation_log.csv --format csv"
    )
    assert code == 0, err
    held = explainer.calibrate(VALIDATION[FEATURES], np.log(VALIDATION["y"])).interval(
        QUERY[FEATURES]
    )
    np.testing.assert_allclose(pd.read_csv(io.StringIO(out))["upper"], held["upper"], rtol=1e-9)


def test_narrow_windows_keep_the_columns_that_were_asked_for(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    code, out, _ = run(
        f"similar lightgbm.txt {PLAIN} --query query.csv --columns city,age --adjust --top 2"
    )
    assert code == 0
    head = next(line for line in out.splitlines() if line.startswith("query"))
    assert "city (row)" in head
    assert "share" not in head
    assert "share" in out  # named among the columns that are left out


@pytest.mark.usefixtures("logarithms")
def test_factors_of_groups_have_digits(run):
    code, out, _ = run(
        "group log.txt --train train_log.csv --target log --inverse-func exp --query query_log.csv --by city"
    )
    assert code == 0
    factors = [
        line.split()[-1] for line in out.splitlines() if line.split()[:1] in (["0"], ["1"], ["2"])
    ]
    assert factors
    assert all(len(word.replace(".", "").lstrip("0")) >= 3 for word in factors)
