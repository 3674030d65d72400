"""Everything public with its parameters, what each of them expects, and a judgement of hostile values.

The table is made from signatures, so that a new method or parameter without a row in `KINDS` fails.
"""

import inspect
import warnings
from functools import cache

import dask.array as da
import numpy as np
import pandas as pd
from catboost import CatBoostRegressor
from lightgbm import LGBMClassifier, LGBMRegressor
from matplotlib import pyplot
from scipy.sparse import issparse
from sklearn.ensemble import (
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from xgboost import XGBRegressor

import axil
from axil import AxilError, baselines, plots
from tests.inputs import hostile

N, Q = 40, 4  # training rows, queries
LIMIT = 200_000_000  # bytes: memory_limit of all explainers here
DRAWS = np.random.default_rng(0)
X = DRAWS.integers(1, 9, (N, 3)).astype(
    float
)  # whole numbers, which every dtype holds; no zeros, which XGBoost takes
# for missing in sparse tables
Y = (X @ [1.0, 2.0, 3.0]) // 4
CLASSES = (np.median(Y) < Y).astype(float)
NAMES = [f"g{i % 3}" for i in range(N)]

MODELS = {
    "lgb": lambda: LGBMRegressor(n_estimators=4, min_child_samples=4, verbose=-1, n_jobs=1).fit(
        X, Y
    ),
    "xgb": lambda: XGBRegressor(n_estimators=4, max_depth=2, n_jobs=1).fit(X, Y),
    "cat": lambda: CatBoostRegressor(
        iterations=4, depth=2, verbose=0, allow_writing_files=False, thread_count=1
    ).fit(X, Y),
    "rf": lambda: RandomForestRegressor(4, max_depth=3, random_state=0).fit(X, Y),
    "rf classes": lambda: RandomForestClassifier(4, max_depth=3, random_state=0).fit(X, CLASSES),
    "hist": lambda: HistGradientBoostingRegressor(max_iter=4, min_samples_leaf=4).fit(X, Y),
    "knn": lambda: KNeighborsRegressor(3).fit(X, Y),
    "ridge": lambda: Ridge().fit(X, Y),
}
SMOOTH = {  # what boosted trees of other losses and penalised regressions are: pushes, derivatives
    "additive": lambda: LGBMClassifier(
        n_estimators=4, min_child_samples=4, verbose=-1, n_jobs=1
    ).fit(X, CLASSES),
    "derivative": lambda: LogisticRegression(tol=1e-10, max_iter=10_000).fit(X, CLASSES),
}
BASELINES = [getattr(baselines, name) for name in baselines.__all__ if name != "Baseline"]


@cache
def model(name):
    return MODELS[name]()


@cache
def smooth_model(name):
    return SMOOTH[name]()


@cache
def explainer(name):
    return axil.Explainer(model(name), X, targets(name), memory_limit=LIMIT, n_threads=1)


def targets(name):
    return CLASSES if name == "rf classes" else Y


@cache
def smooth_explainer(name):
    return axil.Explainer(smooth_model(name), X, CLASSES, memory_limit=LIMIT, n_threads=1)


def chunks(values):
    return da.from_array(values, chunks=(20, *values.shape[1:]))


@cache
def dask_explainer():
    return axil.Explainer(model("lgb"), chunks(X), chunks(Y), memory_limit=LIMIT)


@cache
def dask_additive():
    return axil.Explainer(smooth_model("additive"), chunks(X), chunks(CLASSES), memory_limit=LIMIT)


@cache
def explanation():
    return explainer("lgb")(X[:Q])


@cache
def predictive():
    return explainer("lgb").calibrate(X[:20] + 0.5, Y[:20])


@cache
def baseline(kind):
    return kind(explainer("lgb"))


# What a parameter expects, by its name, or by the name of its method and its own where that matters.
KINDS = {
    **dict.fromkeys(("X", "X_val", "X_train", "X_cal"), "table"),
    **dict.fromkeys(
        (
            *("y_train", "y_val", "y_cal", "y", "sample_weight", "init_score"),
            *("out_of_fold", "targets"),
        ),
        "vector",
    ),
    **dict.fromkeys(("labels", "groups", "distinct", "index"), "labels"),
    "among": "mask",
    **dict.fromkeys(("within", "beside", "comparables", "feature_groups"), "object"),
    **dict.fromkeys(("k", "batch_size", "n_threads", "most", "seed", "n", "random_state"), "count"),
    **dict.fromkeys(
        (
            "sparse",
            "greedy",
            "same_sign",
            "verify",
            "exact",
            "cluster",
            "colorbar",
            "ranked",
            "cumulative",
            "retrained",
            "swarm",
        ),
        "flag",
    ),
    **dict.fromkeys(("intercept", "prediction", "reference", "l2"), "number"),
    "confidence_level": "number",
    "coverage.by": "labels",
    **dict.fromkeys(("coordinates", "dates", "calibrate.min_group_size"), "object"),
    "min_group_size": "count",
    **dict.fromkeys(("hide", "before"), "object"),
    "fdr": "number",
    "q": "shares",
    **dict.fromkeys(
        ("symmetric", "return_std", "adjust", "per_class", "weights", "adjustments"), "flag"
    ),
    **dict.fromkeys(("at_least", "sample"), "count"),
    **dict.fromkeys(("among_text", "date_format"), "object"),
    **dict.fromkeys(("by", "device", "sign", "tree_weights"), "choice"),
    "method": "choice",
    "threshold": "number",
    "listed": "flag",
    **dict.fromkeys(("bounds", "baseline", "objective", "frame"), "object"),
    "output": "output",
    "derivatives.output": "object",
    "target": "object",
    "memory_limit": "limit",
    "columns": "columns",
    "map": "object",
    **dict.fromkeys(
        ("title", "unit", "names", "search", "interval", "report.rows", "report.query"), "object"
    ),
    "folder": "path",  # tests/report
    "query": "position",
    **dict.fromkeys(("group", "pos_label"), "object"),
    "which": "which",
    "in_bag": "bags",
    "sigma": "sizes",
    "to_html.sigma": "page sizes",
    **dict.fromkeys(("title", "unit", "to_html.target"), "words"),
    **dict.fromkeys(
        (
            "interval",
            "stability",
            "coefficients",
            "aggregate.by",
            "drop",
            "add",
            "asof",
            "suspects",
        ),
        "object",
    ),
    **dict.fromkeys(("refit.targets", "refit.sample_weight", "others"), "object"),
    "shares": "shares",
    "top": "shares",
    "what_if.targets": "changes",
    "rows": "rows",
    **dict.fromkeys(("source", "explanation"), "drawn"),
    "own": "object",
    "height": "count",
    "column.name": "columns",
    **dict.fromkeys(("values", "dates"), "values"),
    "leverage.values": "drawn",
    "curves": "drawn",
    **dict.fromkeys(("client", "ax", "loss", "model", "explainer", "inverse_func"), "object"),
    **dict.fromkeys(
        ("path", "scratch", "key"), "path"
    ),  # tests/test_files.py and tests/methods/test_write.py
    "name": "path",  # of an axis: any text
}
DEFAULTS = {
    "X": X[:Q],
    "X_val": X[:Q],
    "y_val": Y[:Q],
    "X_cal": X[:Q] + 1.0,
    "y_cal": Y[:Q],
    "q": 0.5,
    "random_state": 0,
    "groups": NAMES,
    "which": 0,
    "rows": [0, 1],
    "what_if.targets": {0: 1.0},
    "threshold": 0.0,
    "bounds": np.ones(N),
    "column.name": 0,
    "folder": __file__,  # no folder, which is refused after everything else
}


def bound(owner, instance, name):
    """A public function with the name of its owner, and how it is called with all that it needs."""
    function = getattr(instance, name)
    parameters = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    return f"{owner}.{name.strip('_')}", function, parameters


def methods(kind):
    names = [
        name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))
    ]
    defined = {name for one in kind.__mro__ for name in vars(one)}
    return names + [name for name in ("__call__", "__getitem__") if name in defined]


def constructors():
    for name in MODELS:
        needed = {
            "model": model(name),
            "X_train": X,
            "y_train": targets(name),
            "memory_limit": LIMIT,
            "n_threads": 1,
        }
        yield f"{name}.Explainer", axil.Explainer, needed
    for name in SMOOTH:
        needed = {"model": smooth_model(name), "X_train": X, "y_train": CLASSES}
        yield f"{name}.Explainer", axil.Explainer, needed
    for kind in BASELINES:
        yield f"{kind.__name__}.Baseline", kind, {"explainer": explainer("lgb")}
    needed = {
        "model": model("lgb"),
        "X_train": chunks(X),
        "y_train": chunks(Y),
        "groups": chunks(np.array(NAMES)),
    }
    yield "dask.Explainer", axil.Explainer, needed


def drawings():
    e = explainer("lgb")
    frames = {
        "influence": e.influence(X[:Q], Y[:Q]),
        "leverage": e.diagnostics.leverage(),
        "removal": e.removal(X[:Q], 3, same_sign=True),
    }
    for name in plots.__all__:
        needed = {"source": frames.get(name, explanation()), "explanation": explanation()}
        needed |= {
            "curves": frames["removal"],
            "values": frames["leverage"],
            "groups": None,
            "frame": e.diagnostics.leave_one_out_curve(),
        }
        needed["dates"] = np.arange(N)
        if name in ("fan", "coverage", "calibration"):
            needed |= {"frame": predictive().interval(X), "y": Y, "values": predictive().cdf(X, Y)}
        if name == "coverage_map":
            places = predictive().coverage(X, Y, by=NAMES, coordinates=(0, 1))
            needed["frame"] = places
        if name == "label_issues":
            needed["frame"] = e.find_label_issues()
        if name == "group":
            needed["groups"] = NAMES
        yield f"plots.{name}", getattr(plots, name), needed


def namespaces(name):
    """Yield the methods of the namespaces of an explainer, as `functions` does."""
    for namespace in (explainer(name).diagnostics, explainer(name).jacobian):
        for method in methods(type(namespace)):
            yield *bound(name, namespace, method), DEFAULTS


def functions():
    """(name, function, its parameters, what it needs) of everything public."""
    for name in MODELS:
        for method in methods(axil.Explainer):
            known = dict.fromkeys(("y_val", "y_cal", "y"), targets(name)[:Q])
            yield *bound(name, explainer(name), method), DEFAULTS | known
        yield from namespaces(name)
    for method in methods(axil.Predictive):
        yield *bound("predictive", predictive(), method), DEFAULTS | {"y": Y[:Q]}
    for name in SMOOTH:
        for method in methods(axil.Explainer):
            yield *bound(name, smooth_explainer(name), method), DEFAULTS
    for method in methods(axil.Explainer):
        yield (
            *bound("dask", dask_explainer(), method),
            DEFAULTS | {"groups": chunks(np.array(NAMES))},
        )
        yield (
            *bound("dask additive", dask_additive(), method),
            DEFAULTS | {"groups": chunks(np.array(NAMES))},
        )
    for method in methods(axil.Explanation):
        yield *bound("explanation", explanation(), method), DEFAULTS
    for kind in BASELINES:
        yield *bound(kind.__name__, baseline(kind), "scores"), DEFAULTS | {"y": Y[:Q]}
    for name, function, needed in (*constructors(), *drawings()):
        yield name, function, list(inspect.signature(function).parameters.values()), needed


def kind_of(name, parameter):
    method = name.rsplit(".", 1)[1]
    return KINDS.get(f"{method}.{parameter}") or KINDS[parameter]


def expected_size(name, parameter):
    constructs = name.endswith("xplainer")
    return N if constructs or parameter == "out_of_fold" or name.startswith("plots") else Q


def valued(name, parameter, needed):
    """(whether it is right, refused or either, what it is called, a hostile value), and the plain value."""
    kind, n = kind_of(name, parameter), expected_size(name, parameter)
    classes = "classes" in name or (
        any(kind in name for kind in SMOOTH) and parameter != "sample_weight"
    )
    if kind == "vector":
        plain = {"sample_weight": np.ones(N), "init_score": np.zeros(n)}.get(parameter)
        plain = (CLASSES if classes else Y)[:n] if plain is None else plain
        labels = classes and parameter not in (
            "init_score",
            "out_of_fold",
        )  # any label will do that is a class
        odd = [("either" if labels else "refused", *pair) for pair in hostile.no_numbers(plain)]
        same = (
            []
            if name.startswith("dask")
            else [("same", *pair) for pair in hostile.same_vector(plain)]
        )
        return plain, same + odd
    if kind == "table":
        plain = needed.get(parameter, X)
        if name == "dask.Explainer":
            return plain, [("refused", *pair) for pair in hostile.no_tables(X)]
        odd = [("same or refused", *pair) for pair in hostile.same_tables(plain)]
        odd += [("either", *pair) for pair in hostile.odd_tables(plain)]
        return plain, odd + [("refused", *pair) for pair in hostile.no_tables(plain)]
    if kind == "labels":
        if name.startswith("dask"):
            return needed["groups"], [("refused", *pair) for pair in hostile.no_labels(N)]
        same = [("same", *pair) for pair in hostile.same_labels(NAMES)]
        odd = [("either", str(i), make(N)) for i, make in enumerate(hostile.ODD_LABELS)]
        return NAMES, [*same, *odd, *(("refused", *pair) for pair in hostile.no_labels(N))]
    if kind == "mask":
        odd = [
            *hostile.no_labels(N),
            *hostile.no_numbers(np.ones(N)),
            ("none", np.zeros(N, dtype=bool)),
            ("Y", Y),
        ]
        odd += [
            ("a function", lambda rows: 1 / 0),
            ("no function", lambda: None),
            ("missing", [None, True] * (N // 2)),
        ]
        return None, [("refused", *pair) for pair in odd]
    if kind == "bags":
        plain = np.ones((N, 4))
        return plain, [("refused", *pair) for pair in hostile.no_numbers(np.ones(N))]
    if kind == "changes":
        free = (
            hostile.EQUAL_TO_ONE if classes else ("categories",)
        )  # a series of one number is that number
        odd = [
            ("either" if label in free else "refused", label, {0: value})
            for label, value in hostile.no_numbers(np.ones(1))
        ]
        odd += [
            ("refused", str(i), {label: 1.0})
            for i, label in enumerate((True, np.True_, (0, 1), None, pd.NA, "\ud800", 0.5))
        ]
        odd += [
            ("refused", str(i), value)
            for i, value in enumerate((None, 3, [1], "ab", {-1: 1.0}, hostile.Unwilling()))
        ]
        same = [
            ("same", label, {0: value})
            for label, value in (("int", 1), ("bool", True), ("float32", np.float32(1)))
        ]
        return {0: 1.0}, same + odd
    if kind == "drawn":
        free = "longer", "shorter", "csr", "three dimensions"  # of which something can be drawn
        odd = [
            ("either" if label in free else "refused", label, value)
            for label, value in hostile.no_numbers(np.ones(N))
        ]
        return None, odd + [
            ("refused", str(i), value)
            for i, value in enumerate(({}, None, 3j, X[:0], explanation()[:0]))
        ]
    sizes = [
        *(value for value in hostile.NO_NUMBERS if not isinstance(value, list)),
        -1.0,
        [],
        [1.0] * 9,
    ]
    truths = bool, np.bool_  # with these a page is asked for sigma, or for none
    values = {
        "count": hostile.NO_COUNTS,
        "flag": hostile.NO_FLAGS,
        "limit": hostile.NO_LIMITS,
        "choice": hostile.NO_CHOICES,
        "output": [*hostile.NO_CHOICES[:2], *hostile.NO_CHOICES[5:], "other"],
        "number": hostile.NO_NUMBERS,
        "columns": hostile.NO_COLUMNS,
        "position": [p for p in hostile.NO_POSITIONS if not isinstance(p, list)],
        "which": hostile.NO_POSITIONS,
        "sizes": sizes,
        "page sizes": [value for value in sizes if not isinstance(value, truths)],
        "words": [
            3,
            b"a",
            "",
            " ",
            "a\nb",
            "\ud800",
            "a" * 201,
            ["a"],
            object(),
            hostile.Unwilling(),
            hostile.Unwilling,
        ],
        "rows": [
            None,
            3,
            "ab",
            b"ab",
            [-1],
            [True],
            [0, 0],
            [None],
            [[0]],
            [0.5],
            hostile.Unwilling(),
            hostile.Unwilling,
        ],
        "shares": [*hostile.NO_NUMBERS, 0.0, 1.5, [], [[0.5]]],
        "values": [
            None,
            3,
            "a",
            [{}] * N,
            X,
            hostile.Unwilling(),
            hostile.Unwilling,
            np.zeros(N, dtype=[("a", "f8")]),
            np.ones(N) * 1j,
        ],
        "object": [3, "model", object(), hostile.Unwilling(), [], {}],
    }[kind]
    # A parameter may be left out, and means something else then; 0 is a seed.
    signature = inspect.signature(FUNCTIONS[name][0]).parameters
    free = [None] * (signature[parameter].default is None) + [0] * (
        parameter in ("seed", "random_state")
    )
    verdicts = [
        "either" if kind == "object" or any(value is one for one in free) else "refused"
        for value in values
    ]
    return needed.get(parameter), [
        (verdict, str(i), value) for i, (verdict, value) in enumerate(zip(verdicts, values))
    ]


FUNCTIONS = {}


def outcome(name, arguments):
    """What a call gives, as arrays; the error where it is one of axil's. Anything else is raised."""
    function = FUNCTIONS[name][0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            positional = (arguments["which"],) if name == "explanation.getitem" else ()
            found = function(*positional, **({} if positional else arguments))
            return arrays(list(found) if inspect.isgenerator(found) else found)
        except AxilError as error:
            return error
        finally:
            pyplot.close("all")


def arrays(found):
    if isinstance(found, list):
        return [part for one in found for part in arrays(one)]
    if isinstance(found, axil.Explanation):
        return [
            found.weights.toarray() if issparse(found.weights) else found.weights,
            found.intercepts,
            found.query_index,
        ]
    if isinstance(found, pd.DataFrame):  # lines of equal size may change places with the last digit
        return [np.sort(found[name].to_numpy()) for name in found.select_dtypes("number")]
    return [found] if isinstance(found, np.ndarray) else []


SCORED = (
    ".explain",
    ".call",
    ".iter",
    ".removal",
    ".steps",
    ".scores",
)  # whose first array is one number per training row


def equal(found, expected):
    """To 1e-9, for the leaf matrix may have been inverted meanwhile, which shows in the last digits."""
    return len(found) == len(expected) and all(
        a.shape == b.shape
        and (
            np.allclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True)
            if a.dtype.kind == "f"
            else np.array_equal(a, b)
        )
        for a, b in zip(found, expected)
    )


def called(name, given):
    """What a function makes of these arguments, and of plain ones where it needs more."""
    _, parameters, needed = FUNCTIONS[name]
    method = name.rsplit(".", 1)[1]
    arguments = {p.name: needed[p.name] for p in parameters if needed.get(p.name) is not None}
    arguments |= {
        p.name: needed[f"{method}.{p.name}"] for p in parameters if f"{method}.{p.name}" in needed
    }
    return outcome(name, arguments | given)


def judge(name, parameter, verdict, label, value, plain):
    """What is wrong with this call, or None."""
    where = f"{name}({parameter}={label})"
    try:
        found = called(name, {parameter: value})
    except (MemoryError, KeyboardInterrupt):
        raise
    except Exception as error:
        return f"{where}: {type(error).__name__}: {str(error)[:150]}"
    refused = isinstance(found, AxilError)
    if refused and len(str(found)) > 2000:
        return f"{where}: a message of {len(str(found))} characters"
    if verdict == "refused" and not refused:
        return f"{where}: accepted"
    if verdict == "same" and refused != isinstance(plain, AxilError):
        return f"{where}: {found}"
    if verdict == "same" and not refused and not equal(found, plain):
        return f"{where}: another answer"
    compared = verdict == "same or refused" and not refused and name.endswith(SCORED)
    if compared and not equal(found[:1], plain[:1]):
        return f"{where}: another answer"
    return None


def table(kinds, names=lambda name: True):
    """All that is wrong with the functions of these names and their parameters of these kinds."""
    wrong = []
    for name, (_, parameters, needed) in FUNCTIONS.items():
        for p in parameters:
            if (
                not names(name)
                or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
                or kind_of(name, p.name) not in kinds
            ):
                continue
            given, values = valued(name, p.name, needed)
            plain = (
                called(name, {p.name: given})
                if any(verdict.startswith("same") for verdict, *_ in values)
                else None
            )
            wrong += [judge(name, p.name, *value, plain) for value in values]
    return [found for found in wrong if found]
