"""Record the answers of many models, or compare today's answers with recorded ones.

A change of structure must not change any answer. Record before the change, compare after it:

    python scripts/record_answers.py record build/answers
    python scripts/record_answers.py compare build/answers

The fitted models and their data are kept beside the answers, so that both runs ask the same models. Models come from the
contract tests and from the tests of boosting with other losses. Each is asked in memory, after a round trip through a file, over
Dask partitions, and on a stand-in for a GPU. Refusals are recorded by the class of the error.
"""

from __future__ import annotations

import argparse
import hashlib
import pickle
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import axil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the models of the tests

TOLERANCE = 1e-12  # relative to the largest number of an answer
SHARE = 3  # one contract model in so many is asked
QUERIES = 4


@dataclass(frozen=True)
class Case:
    """A fitted model with the data that its explainer needs."""

    name: str
    model: Any
    X: Any
    y: Any
    sample_weight: Any
    offsets: Any
    X_new: Any

    def explainer(self, convert: Callable[[Any], Any] = lambda values: values) -> axil.Explainer:
        """Return the explainer of the model, with its data converted."""
        data = (self.X, self.y, self.sample_weight, self.offsets)
        X, y, sample_weight, offsets = (
            None if values is None else convert(values) for values in data
        )
        return axil.Explainer(self.model, X, y, sample_weight=sample_weight, init_score=offsets)


def is_chosen(name: str, share: int) -> bool:
    """Return whether a name is among one in ``share`` of all names, whatever other names there are."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % share == 0


def fit_cases() -> Iterator[Case]:
    """Yield the fitted models, from the tests of this checkout."""
    from tests import contract_models
    from tests.contributions import boosting_models, more_models, sampled_models

    for library, cases in contract_models.CASES.items():
        for name, make in cases.items():
            full_name = f"{library} {name}"
            if is_chosen(full_name, SHARE) and not contract_models.LARGE.search(name):
                case = make()
                offsets = contract_models.offsets_of(case)
                yield Case(
                    full_name, case.model, case.X, case.y, case.sample_weight, offsets, case.X_new
                )
    for module in (boosting_models, more_models, sampled_models):
        makers = module.CASES if module is boosting_models else module.MODELS
        for name, make in makers.items():
            case = make() if module is sampled_models else make().fit()
            yield _additive_case(f"loss {name}", case)


def _additive_case(name: str, case: Any) -> Case:
    from tests.contributions import boosting_models

    return Case(
        name,
        case.model,
        boosting_models.X,
        case.y,
        case.weights,
        case.offsets,
        boosting_models.X_NEW,
    )


def first_rows(X: Any, n: int) -> Any:
    """Return the first rows of a table."""
    return X.iloc[:n] if hasattr(X, "iloc") else X[:n]


#: Names that columns had in recordings made before they were renamed, by their names today.
RECORDED_COLUMNS = {
    "given_label": "target",
    "expected_label": "expected",
    "label_quality": "quality",
    "is_label_issue": "suspect",
}


def numbers_of(answer: Any) -> dict[str, np.ndarray]:
    """Return the numeric arrays of an answer, and its texts, by name."""
    if hasattr(answer, "weights") and hasattr(answer, "intercepts"):
        return {
            "weights": np.asarray(answer.weights, float),
            "predictions": np.asarray(answer.predictions, float),
        }
    if hasattr(answer, "columns"):
        columns = {}
        for name in answer.columns:
            values = np.asarray(answer[name])
            recorded_name = RECORDED_COLUMNS.get(str(name), str(name))
            if values.dtype.kind in "biuf":
                columns[recorded_name] = values.astype(float)
            else:
                columns[recorded_name] = np.array([str(value) for value in values])
        return columns
    values = getattr(answer, "toarray", lambda: answer)()
    return {"values": np.asarray(values, dtype=float)}


def methods(case: Case) -> dict[str, Callable[[axil.Explainer], Any]]:
    """Return the calls that every explainer is asked, by the name under which they are recorded.

    A method that is renamed keeps the name of its recording, so that older recordings compare.
    """
    X = first_rows(case.X_new, QUERIES)
    n_rows = case.X.shape[0]
    groups = np.arange(n_rows) % 5
    targets = np.asarray(case.y)
    other_row = int(np.argmax((targets != targets[3]).reshape(n_rows, -1).any(axis=1)))
    y_new = targets[:QUERIES]

    def refitted(explainer: axil.Explainer) -> Any:
        model = explainer.refit(drop=[1, 4, 9]).model
        return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)

    return {
        "explain": lambda explainer: explainer(X),
        "derivatives": lambda explainer: explainer.jacobian.derivatives(X),
        "weight_derivatives": lambda explainer: explainer.jacobian.by_sample_weight(X),
        "pushes": lambda explainer: explainer.jacobian.gradient_contributions(X),
        "top": lambda explainer: explainer.top(X, k=5),
        "similar": lambda explainer: explainer.similar(X, k=5),
        "similar variance": lambda explainer: explainer.similar(X, k=5, tree_weights="variance"),
        "group": lambda explainer: explainer.group(X, groups),
        "statistics": lambda explainer: explainer.concentration(X),
        "combine": lambda explainer: explainer.aggregate(X, np.arange(QUERIES) - 1.0),
        "without": lambda explainer: explainer.without(X, [1, 4, 9]),
        "removal": lambda explainer: explainer.removal(X, k=5),
        "removal groups": lambda explainer: explainer.removal(X, groups=groups),
        "removal first-order": lambda explainer: explainer.removal(X, method="first-order"),
        "what_if": lambda explainer: explainer.what_if(X, {3: targets[other_row]}),
        "leave_one_out": lambda explainer: explainer.diagnostics.leave_one_out(),
        "audit": lambda explainer: explainer.find_label_issues(),
        "influence": lambda explainer: explainer.influence(X, y_new),
        "shapley": lambda explainer: explainer.shapley(X, y_new),
        "leverage": lambda explainer: explainer.diagnostics.leverage(),
        "standard_error": lambda explainer: explainer.diagnostics.standard_error(X),
        "refit": refitted,
    }


def ask(explainer: axil.Explainer, case: Case) -> dict[str, dict[str, np.ndarray]]:
    """Return the answers of an explainer by method; a refusal is the name of its error."""
    answers = {}
    for name, call in methods(case).items():
        try:
            answers[name] = numbers_of(call(explainer))
        except Exception as error:
            answers[name] = {"error": np.array(type(error).__name__)}
    return answers


def in_memory(case: Case) -> axil.Explainer:
    """Return the explainer of rows in memory."""
    return case.explainer()


def from_file(case: Case) -> axil.Explainer:
    """Return the explainer after it was saved and loaded."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "explainer.npz"
        case.explainer().save(path)
        return axil.load(path, case.model, X_train=case.X)


def over_dask(case: Case) -> axil.Explainer:
    """Return the explainer of rows in Dask partitions."""
    from tests.dask.dask_models import partitioned

    return case.explainer(partitioned)


def on_stand_in(case: Case) -> axil.Explainer:
    """Return the explainer on a back end whose arrays do not mix with the host's."""
    from tests.places import stand_in_chosen

    case.explainer()  # loads the modules that choose a back end
    with stand_in_chosen():
        return case.explainer()


PLACES = {
    "memory": (in_memory, 1),
    "file": (from_file, 2),
    "stand-in": (on_stand_in, 3),
    "dask": (over_dask, 4),
}


def answer_case(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the name of a stored model and its answers by place and method."""
    import dask

    warnings.simplefilter("ignore")
    case = pickle.loads(path.read_bytes())
    answers: dict[str, Any] = {}
    with dask.config.set(scheduler="synchronous"):
        for place, (make, share) in PLACES.items():
            if not is_chosen(f"{place} {case.name}", share):
                continue
            try:
                explainer = make(case)
            except Exception as error:
                answers[place] = {"construction": {"error": np.array(type(error).__name__)}}
                continue
            answers[place] = ask(explainer, case)
    return case.name, answers


def differences(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> str:
    """Return how two answers differ; empty where they agree."""
    if before.keys() != after.keys():
        return f"{sorted(before)} became {sorted(after)}"
    for name, expected in before.items():
        actual = after[name]
        if expected.shape != actual.shape:
            return f"{name}: shape {expected.shape} became {actual.shape}"
        if expected.dtype.kind not in "biuf":
            if not np.array_equal(expected, actual):
                return f"{name}: {expected.ravel()[:3]} became {actual.ravel()[:3]}"
            continue
        scale = np.nanmax(np.abs(expected[np.isfinite(expected)]), initial=0.0) or 1.0
        if not np.allclose(expected, actual, rtol=0, atol=TOLERANCE * scale, equal_nan=True):
            return f"{name}: largest difference {np.nanmax(np.abs(expected - actual)):.2g} of {scale:.3g}"
    return ""


def main() -> int:
    """Record answers, or compare them and return 1 if any differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["record", "compare"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="ask only models whose name contains this text")
    parser.add_argument("--share", type=int, default=1, help="ask one model in so many")
    arguments = parser.parse_args()
    models = arguments.folder / "models"
    if arguments.action == "record":
        models.mkdir(parents=True, exist_ok=True)
        for number, case in enumerate(fit_cases()):
            try:
                (models / f"{number:04d}.pkl").write_bytes(pickle.dumps(case))
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                (models / f"{number:04d}.pkl").unlink(missing_ok=True)
                print(f"not recorded: {case.name}: {error}")
    chosen = []
    for path in sorted(models.glob("*.pkl")):
        name = pickle.loads(path.read_bytes()).name
        if arguments.only in name and is_chosen(f"share {name}", arguments.share):
            chosen.append(path)
    recorded = arguments.folder / "answers.pkl"
    # A forked process would wait for OpenMP threads that only its parent has.
    with ProcessPoolExecutor(arguments.jobs, get_context("spawn")) as pool:
        answers = dict(pool.map(partial(answer_case), chosen, chunksize=2))
    if arguments.action == "record":
        recorded.write_bytes(pickle.dumps(answers))
        print(f"recorded {len(answers)} models")
        return 0
    expected = pickle.loads(recorded.read_bytes())
    n_compared = n_different = 0
    for name, by_place in answers.items():
        for place, by_method in by_place.items():
            for method, after in by_method.items():
                before = expected[name].get(place, {}).get(method)
                if before is None:  # a method that was not recorded
                    continue
                n_compared += 1
                difference = differences(before, after)
                if difference:
                    n_different += 1
                    print(f"{name} | {place} | {method}: {difference}")
    print(f"{n_compared} answers compared, {n_different} differ")
    return int(n_different > 0)


if __name__ == "__main__":
    sys.exit(main())
