"""Bad input of every plot."""

import numpy as np
import polars as pl
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

from axil import InputError, plots
from tests.plots.plot_models import (
    explanation,
    influence_frame,
    intervals,
    suspects,
    true_targets,
    years,
)


def test_bad_input_leaves_no_figure():
    for call, message in BAD.values():
        with pytest.raises(InputError, match=message):
            call()
    assert pyplot.get_fignums() == []


BAD = {
    "no such query": (
        lambda: plots.weights(explanation(), query=20),
        "query is 20; expected a position from 0 to 19",
    ),
    "query of a frame": (
        lambda: plots.weights(explanation().top(2), query="patient 1"),
        "query is 'patient 1'",
    ),
    "no such label": (
        lambda: plots.weights(explanation(), query="patient 1"),
        "or a label such as 'patient 80'",
    ),
    "query of an array": (
        lambda: plots.weights([1.0, 2.0], query="one"),
        "query is 'one'; expected a position from 0",
    ),
    "no explanation": (
        lambda: plots.overall([1.0, 2.0]),
        r"expected an axil.Explanation: explainer\(X\)",
    ),
    "no predictions": (lambda: plots.overall(explanation()[:0]), "no explained rows"),
    "overall by": (lambda: plots.overall(explanation(), by="size"), "by is 'size'"),
    "no such feature": (
        lambda: plots.weights_against(explanation(), "weight"),
        "names 'weight'; expected names such as 'age'",
    ),
    "own": (lambda: plots.weights_against(explanation(), years(), own="then"), "own is 'then'"),
    "k": (lambda: plots.weights(explanation(), 0), "k is 0"),
    "text": (lambda: plots.weights("weights"), "What to draw is not numeric"),
    "nothing": (lambda: plots.weights([]), "no entries"),
    "nan": (lambda: plots.weights([1.0, np.nan]), "not finite"),
    "three dimensions": (lambda: plots.weights(np.ones((2, 2, 2))), r"shape \(2, 2, 2\)"),
    "labels": (
        lambda: plots.weights([1.0, 2.0], labels=["a"]),
        r"labels has shape \(1,\); expected \(2,\)",
    ),
    "output": (lambda: plots.weights(explanation(), output=1), "one output only"),
    "output of a frame": (
        lambda: plots.weights(explanation().top(2), output=1),
        "no column 'output'",
    ),
    "another frame": (lambda: plots.weights(influence_frame()), "no column 'weight'"),
    "a figure": (lambda: plots.weights([1.0], ax=Figure()), "ax is a Figure"),
    "a frame is not all": (lambda: plots.concentration(explanation().top(2)), "largest rows only"),
    "no weights": (lambda: plots.concentration([0.0, 0.0]), "All weights are zero"),
    "rest": (lambda: plots.waterfall(explanation().top(2)), "pass prediction="),
    "two intercepts": (lambda: plots.waterfall(explanation(), intercept=1.0), "its own intercept"),
    "two predictions": (lambda: plots.waterfall([1.0], prediction=1.0), "leave out prediction"),
    "reference": (lambda: plots.waterfall([1.0], reference=1.0), "reference needs the weights"),
    "reference text": (
        lambda: plots.waterfall(explanation(), reference="median"),
        "reference is 'median'",
    ),
    "column": (
        lambda: plots.weights_against(explanation(), [1.0]),
        r"values has shape \(1,\); expected \(80,\)",
    ),
    "targets": (lambda: plots.targets([1.0]), "targets are to be given"),
    "targets twice": (lambda: plots.targets(explanation(), [1.0]), "its own"),
    "groups": (lambda: plots.group(explanation()), "pass groups"),
    "groups twice": (
        lambda: plots.group(explanation().group(years()), years()),
        "leave out groups",
    ),
    "group by": (lambda: plots.group(explanation(), years(), by="size"), "by is 'size'"),
    "group array": (lambda: plots.group(np.ones(3)), "The table is a ndarray"),
    "influence by": (lambda: plots.influence(influence_frame(), by="size"), "by is 'size'"),
    "no errors by trees": (
        lambda: plots.leave_one_out_curve([1.0, 2.0]),
        "explainer.diagnostics.leave_one_out_curve",
    ),
    "no table of label issues": (
        lambda: plots.label_issues([1.0, 2.0]),
        "explainer.find_label_issues",
    ),
    "another table than label issues": (
        lambda: plots.label_issues(influence_frame()),
        "explainer.find_label_issues",
    ),
    "an empty table of label issues": (
        lambda: plots.label_issues(suspects().head(0)),
        "at least one row",
    ),
    "one output of label issues": (
        lambda: plots.label_issues(suspects(), output=1),
        "no column 'output'",
    ),
    "marks": (
        lambda: plots.label_issues(suspects().assign(is_label_issue="no")),
        "other things than True and False",
    ),
    "no intervals": (lambda: plots.fan([1.0, 2.0]), r"predictive.interval\(X\)"),
    "no frames": (lambda: plots.fan({}), "frame is empty"),
    "other rows": (
        lambda: plots.fan({"a": intervals(), "b": intervals().iloc[::-1]}),
        "different predictions",
    ),
    "one output of intervals": (lambda: plots.fan(intervals(), output=1), "one output only"),
    "no confidence level": (
        lambda: plots.coverage(intervals(), true_targets(), confidence_level=2.0),
        "confidence_level is 2.0",
    ),
    "no targets": (lambda: plots.coverage(intervals(), [1.0]), r"y has shape \(1,\)"),
    "no probabilities": (lambda: plots.calibration([0.5, 1.5]), "no probabilities"),
    "no curves": (lambda: plots.removal({}), "curves is empty"),
    "curve": (lambda: plots.removal([[1.0, 2.0]]), "a curve has shape"),
    "no leverage": (lambda: plots.leverage([]), "no entries"),
    "leverage": (lambda: plots.leverage(3.0), "float of shape"),
    "leverage of outputs": (
        lambda: plots.leverage(np.ones((2, 3)), output=2),
        "output is 2; expected a position from 0 to 1",
    ),
    "spans": (
        lambda: plots.weights_against(explanation(), np.ones(80, "timedelta64[D]")),
        "spans of time",
    ),
    "label": (
        lambda: plots.weights([1.0, 2.0], labels=3),
        r"labels has shape \(\); expected \(2,\)",
    ),
    "matrix of one output": (lambda: plots.matrix(explanation(), output=1), "one output only"),
    "matrix": (lambda: plots.matrix(np.ones(3)), r"shape \(3,\)"),
    "matrix nan": (lambda: plots.matrix([[1.0, np.nan]]), "finite"),
    "matrix frame": (lambda: plots.matrix(pl.DataFrame({"a": [1.0]})), "pandas keeps labels"),
    "matrix output": (lambda: plots.matrix(np.ones((2, 3, 3))), "output is None; expected one of"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name):
    call, message = BAD[name]
    with pytest.raises(InputError, match=message):
        call()


def test_two_predictions_of_one_label_are_not_mixed_up():
    frame = explanation()[[0, 0]].top(3)
    with pytest.raises(InputError, match="several predictions"):
        plots.weights(frame)
