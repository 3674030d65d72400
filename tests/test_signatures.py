"""The public signatures: rows first, options by keyword only, one default and one type per option."""

import inspect
import typing

import pytest

import axil
from axil import baselines, plots
from axil.forecasts.forecast import Forecast
from axil.methods.diagnostics import Diagnostics
from axil.methods.jacobian import Jacobian

CLASSES = [
    axil.Explainer,
    axil.Explanation,
    axil.Predictive,
    axil.Comparison,
    axil.RatioStudy,
    axil.Stability,
    baselines.BoostIn,
    Diagnostics,
    Forecast,
    Jacobian,
]
#: Functions about a model, which comes before the rows.
FUNCTIONS = [
    axil.compare,
    axil.forecast,
    axil.load,
    axil.novelty,
    axil.ratio_study,
    axil.similarity,
    axil.stability,
]
DEFAULTS = {"k": 10, "suspects": "keep", "per_class": True, "confidence_level": 0.9}
#: k without a default of 10: no k stands for all rows, or for a matrix.
WITHOUT_K = {"Explainer.removal", "similarity"}
#: A ratio study states the confidence level of its standard.
OTHER_LEVELS = {"ratio_study"}
OPTIONS = ("by", "method", "sign", "statistic", "suspects", "tree_weights", "device", "output")
#: `by` that names groups of rows, outputs that the user names, and numbers.
VALUES_OF_THE_USER = {
    ("Comparison.targets_after", "output"),
    ("Comparison.targets_before", "output"),
    ("Comparison.to_html", "by"),
    ("Explainer.aggregate", "by"),
    ("Predictive.coverage", "by"),
    ("ratio_study", "by"),
    ("Jacobian.derivatives", "output"),
    ("similarity", "tree_weights"),
}


def public_callables():
    """Yield the name, the callable and how many leading parameters may be positional."""
    for owner in CLASSES:
        for name, member in inspect.getmembers(owner, inspect.isfunction):
            if not name.startswith("_") or name == "__call__":
                is_about_a_model = member is axil.RatioStudy.influence
                yield f"{owner.__name__}.{name}", member, 2 + is_about_a_model
    yield "Explainer", axil.Explainer.__init__, 3
    for function in FUNCTIONS:
        yield function.__name__, function, 3
    for name in plots.__all__:
        yield f"plots.{name}", getattr(plots, name), 2


CALLABLES = {name: (member, most) for name, member, most in public_callables()}


def parameters_of(member):
    parameters = inspect.signature(member).parameters
    return {name: parameter for name, parameter in parameters.items() if name != "self"}


@pytest.mark.parametrize("name", CALLABLES)
def test_options_after_the_first_parameters_are_keywords(name):
    member, most = CALLABLES[name]
    positional = [
        parameter
        for parameter in parameters_of(member).values()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    options = [
        parameter.name
        for parameter in positional[most:]
        if parameter.default is not parameter.empty
    ]
    assert not options


@pytest.mark.parametrize("name", CALLABLES)
def test_a_default_is_the_same_in_every_method(name):
    exceptions = {"k": WITHOUT_K, "confidence_level": OTHER_LEVELS}
    for parameter in parameters_of(CALLABLES[name][0]).values():
        is_exception = name in exceptions.get(parameter.name, ())
        if parameter.name in DEFAULTS and not is_exception and parameter.default is not None:
            assert parameter.default == DEFAULTS[parameter.name], parameter.name


@pytest.mark.parametrize("name", CALLABLES)
def test_options_list_their_values_in_their_types(name):
    member, _ = CALLABLES[name]
    parameters = parameters_of(member)
    for option in OPTIONS:
        if option not in parameters or (name, option) in VALUES_OF_THE_USER:
            continue
        if name.startswith("plots.") and option == "output":
            continue  # an output of the model
        module = inspect.getmodule(inspect.unwrap(member))
        annotation = eval(parameters[option].annotation, vars(module))
        assert values_of(annotation), f"{option}: {parameters[option].annotation}"


def values_of(annotation):
    """Return the values of the Literal types inside an annotation."""
    if typing.get_origin(annotation) is typing.Literal:
        return typing.get_args(annotation)
    inner = [values_of(argument) for argument in typing.get_args(annotation)]
    return [value for values in inner for value in values]


WRONG_VALUES = {
    "top": (lambda e, X, y: e.top(X, by="weights"), ("weight", "contribution")),
    "similar(by=)": (lambda e, X, y: e.similar(X, by="leafs"), ("leaves", "weight")),
    "similar(sign=)": (lambda e, X, y: e.similar(X, sign="+"), ("any", "for", "against")),
    "similar(suspects=)": (lambda e, X, y: e.similar(X, suspects="no"), ("keep", "mark", "drop")),
    "similar(tree_weights=)": (
        lambda e, X, y: e.similar(X, tree_weights="equal"),
        ("alike", "variance", "error", "improved"),
    ),
    "removal(method=)": (lambda e, X, y: e.removal(X, method="fast"), ("exact", "first-order")),
    "removal(by=)": (lambda e, X, y: e.removal(X, 3, by="weight"), ("effect", "contribution")),
    "aggregate": (lambda e, X, y: e.aggregate(X, "median"), ("mean", "sum")),
    "shapley": (lambda e, X, y: e.shapley(X, y, baseline="zero"), ("mean", "others")),
    "calibrate": (lambda e, X, y: e.calibrate(X, y, method="fast"), ("leaves", "exact")),
    "find_label_issues": (
        lambda e, X, y: e.find_label_issues(out_of_fold="loo"),
        ("folds", "leave-one-out"),
    ),
    "influence": (
        lambda e, X, y: e.influence(X, y, out_of_fold="loo"),
        ("folds", "leave-one-out"),
    ),
    "leverage": (lambda e, X, y: e.diagnostics.leverage(method="fast"), ("exact", "estimate")),
    "report": (lambda e, X, y: e.report(X, "pages", sign="up"), ("any", "for", "against")),
}


@pytest.mark.parametrize("question", WRONG_VALUES)
def test_a_wrong_value_raises_an_error_that_lists_the_right_ones(question, explainer):
    ask, values = WRONG_VALUES[question]
    e, X, y = explainer
    with pytest.raises(axil.InputError) as error:
        ask(e, X, y)
    for value in values:
        assert f'"{value}"' in str(error.value), str(error.value)


@pytest.fixture(scope="module")
def explainer():
    lightgbm = pytest.importorskip("lightgbm")
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True, as_frame=True)
    model = lightgbm.LGBMRegressor(n_estimators=5, verbose=-1).fit(X, y)
    return axil.Explainer(model, X, y), X[:5], y[:5]
