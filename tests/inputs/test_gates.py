"""Every parameter of everything public, met with hostile values: an error of axil's, or the answer of the plain value.

What is tried is in gates.py; a new method or parameter without a row in its `KINDS` fails.
"""

import resource
import signal
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

import axil
from axil import InputError, plots
from tests.inputs.gates import (
    DEFAULTS,
    FUNCTIONS,
    KINDS,
    LIMIT,
    X,
    Y,
    called,
    explainer,
    explanation,
    functions,
    kind_of,
    model,
    table,
    valued,
)


@pytest.fixture(scope="module", autouse=True)
def _all_functions(tmp_path_factory):
    DEFAULTS["write.path"] = tmp_path_factory.mktemp("gates") / "weights.parquet"
    FUNCTIONS.update(
        {name: (function, parameters, needed) for name, function, parameters, needed in functions()}
    )


QUICK = ("lgb.", "predictive.", "rf classes.", "explanation.", "additive.", "BoostIn.", "plots.")


def quick(name):
    return name.startswith(QUICK) and not name.endswith("xplainer")


def test_every_parameter_has_a_kind():
    for name, (_, parameters, _) in FUNCTIONS.items():
        for p in parameters:
            if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                assert kind_of(name, p.name), (name, p.name)


def test_every_kind_has_a_parameter():
    known = {p.name for _, parameters, _ in FUNCTIONS.values() for p in parameters}
    known |= {
        f"{name.rsplit('.', 1)[1]}.{p.name}"
        for name, (_, parameters, _) in FUNCTIONS.items()
        for p in parameters
    }
    assert sorted(KINDS.keys() - known) == []


def test_scalars():
    scalars = {
        "count",
        "flag",
        "limit",
        "choice",
        "output",
        "number",
        "position",
        "which",
        "sizes",
        "page sizes",
        "shares",
        "rows",
        "columns",
        "words",
    }
    assert not table(scalars)


def test_vectors():
    chosen = ("lgb.", "explanation.", "additive.")
    assert not table(
        {"vector", "bags", "changes"}, lambda name: quick(name) and name.startswith(chosen)
    )


def test_vectors_of_a_constructor():
    assert not table(
        {"vector", "bags"}, lambda name: name in ("rf.Explainer", "rf classes.Explainer")
    )


def test_tables():
    assert not table({"table"}, lambda name: name.endswith(".explain"))


def test_labels():
    chosen = (".group", "lgb.similar", "rf.similar")
    assert not table(
        {"labels", "mask"}, lambda name: name.endswith(chosen) or name == "explanation.to_html"
    )


def test_drawn():
    assert not table(
        {"drawn", "values", "object"}, lambda name: name.startswith(("plots.", "dask."))
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "kinds",
    [{"vector", "bags", "changes"}, {"table"}, {"labels", "mask", "object", "drawn"}],
    ids=lambda kinds: "-".join(sorted(kinds)),
)
def test_everything(kinds):
    assert not table(kinds)


@pytest.mark.slow
def test_two_thousand_hostile_calls():
    """Several parameters at once, sampled at random; none crashes, hangs or takes more than the memory limit."""
    draws = np.random.default_rng(14)
    names = sorted(FUNCTIONS)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("hangs"))
    wrong = []
    for _ in range(2000):
        name = names[draws.integers(len(names))]
        _, parameters, needed = FUNCTIONS[name]
        open_to = [
            p.name
            for p in parameters
            if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and kind_of(name, p.name) != "path"
        ]
        if not open_to:
            continue
        given = {}
        for parameter in draws.choice(
            open_to, min(len(open_to), int(draws.integers(1, 4))), replace=False
        ):
            values = valued(name, parameter, needed)[1]
            given[str(parameter)] = values[draws.integers(len(values))][1:]
        signal.alarm(60)
        try:
            called(name, {parameter: value for parameter, (_, value) in given.items()})
        except Exception as error:
            drawn = {parameter: label for parameter, (label, _) in given.items()}
            wrong.append(f"{name}({drawn}): {type(error).__name__}: {str(error)[:150]}")
        finally:
            signal.alarm(0)
    assert wrong == []
    assert 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < LIMIT


def test_the_order_of_columns_is_that_of_the_training_frame():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    explained = axil.Explainer(model("rf"), frame, Y)  # the model itself was fitted without names
    with pytest.raises(InputError, match=r"'c' in another place than X_train"):
        explained(frame[["c", "b", "a"]])
    np.testing.assert_array_equal(
        explained(frame.set_axis(["d", "e", "f"], axis=1)).weights, explained(X).weights
    )


def test_true_is_not_row_one():
    with pytest.raises(InputError, match="names row True"):
        explainer("lgb").what_if(X[:1], {True: 1.0})
    truths = pd.DataFrame(X[:2], index=[False, True])
    ridge = Ridge().fit(X[:2], Y[:2])
    changed = axil.Explainer(ridge, truths, Y[:2]).what_if(X[:1], {True: 9.0})
    expected = axil.Explainer(ridge, X[:2], Y[:2]).what_if(X[:1], {1: 9.0})
    np.testing.assert_array_equal(changed["change"], expected["change"])


@pytest.mark.parametrize(
    "which", [slice(1, 3), [1, 2], np.array([False, True, True, False]), pd.Series([1, 2])]
)
def test_predictions_are_chosen_by_position(which):
    np.testing.assert_array_equal(explanation()[which].weights, explanation().weights[1:3])


def test_exact_numbers_of_python_are_numbers():
    e = explanation()
    for number in (Decimal("1.5"), Fraction(3, 2), np.float16(1.5), np.array(1.5)):
        drawn = plots.waterfall(e, reference=number).get_xlabel()
        assert drawn == plots.waterfall(e, reference=1.5).get_xlabel()


def test_messages_quote_the_library():
    other = X[:1].copy()
    other[0, 0] = np.inf
    with pytest.raises(InputError, match=r"XGBoost cannot read these rows \(XGBoostError: .*`inf`"):
        explainer("xgb")(other)
