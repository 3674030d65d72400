"""What an explainer keeps: whole after any exception, the same for many threads, in copies, and whatever was asked before."""

import copy
import linecache
import pickle
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import cloudpickle
import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingRegressor
from threadpoolctl import threadpool_info

import axil
from axil.kernels import cpu
from axil.kernels.cpu import Cpu
from axil.machine.threads import Cache, one_blas_thread
from axil.methods import noise
from axil.methods.method import verified_model
from axil.weights.boosting import BoostedTrees
from tests.contract_models import case_of, offsets_of

MODELS = [
    ("lightgbm", "regressor"),
    ("lightgbm", "bagging"),
    ("xgboost", "one_output_per_tree"),
    ("catboost", "multi weighted"),
    ("sklearn", "hist early stopping weighted"),
    ("sklearn", "RandomForestRegressor weighted"),
    ("smoother", "ridge two outputs"),
    ("smoother", "neighbours"),
]
STATE = (
    "leaf_matrix.py",
    "boosting.py",
    "passes.py",
    "leverage.py",
    "cpu.py",
    "threads.py",
    "noise.py",
    "proven.py",
    "queries.py",
    "what_if.py",
    "influence.py",
)


def fresh(library, name):
    case = case_of(library, name)
    return axil.Explainer(
        case.model, case.X, case.y, sample_weight=case.sample_weight, init_score=offsets_of(case)
    ), case


def questions(case):
    """Of every kind: by sweeps, in the leaf matrix, of all training rows, kept ones and others."""
    X = case.X_new
    return {
        "explain": lambda e: e(X[:3]).weights,
        "many": lambda e: np.concatenate([part.predictions for part in e.iter(X, batch_size=7)]),
        "top": lambda e: e.top(X, 4).drop(columns="row").to_numpy(),
        "leverage": lambda e: e.diagnostics.leverage(),
        "freedom": lambda e: e.diagnostics.degrees_of_freedom(),
        "estimated freedom": lambda e: np.array(
            e.diagnostics.degrees_of_freedom(method="estimate")
        ),
        "error": lambda e: e.diagnostics.standard_error(X[:5], sigma="exact"),
        "estimated error": lambda e: e.diagnostics.standard_error(X[:5], sigma="estimate"),
        "what if": lambda e: e.what_if(
            X, {e.index[1]: np.zeros(verified_model(e).targets.shape[1])}
        )["change"].to_numpy(),
        "influence": lambda e: e.influence(
            X, np.zeros((X.shape[0], verified_model(e).targets.shape[1])).squeeze()
        )["gain"].to_numpy(),
    }


def small():
    """A model whose the leaf matrix has several blocks, and what it answers."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = X[:, 0] - X[:, 1] ** 2 + rng.normal(size=300)
    model = GradientBoostingRegressor(n_estimators=12, max_leaf_nodes=8, max_depth=None).fit(X, y)
    return axil.Explainer(model, X, y, n_threads=1), X


def answers(explainer, X):
    return [
        explainer.diagnostics.degrees_of_freedom(),
        explainer(X[:3]).weights,
        explainer.top(X[:40], 3)["weight"].to_numpy(),
        explainer.diagnostics.standard_error(X[:4]),
        explainer.diagnostics.standard_error(X[:4], sigma="estimate"),
    ]


ACTIONS = {
    "precompute": lambda e, X: e.precompute(),
    "leverage": lambda e, X: e.diagnostics.leverage(),
    "standard error": lambda e, X: e.diagnostics.standard_error(X[:2]),
    "top": lambda e, X: e.top(X[:40], 3),
    "explain": lambda e, X: e(X[:3]),
}


@pytest.fixture
def by_number(monkeypatch):
    """The number of queries alone chooses the way, not what is kept: answers of all states have the same bits."""
    monkeypatch.setattr(BoostedTrees, "prepare_pays", lambda self, n: n > 20)
    monkeypatch.setattr(BoostedTrees, "inverse_pays", lambda self, n: True)


@pytest.fixture
def blocks(monkeypatch, by_number):
    monkeypatch.setattr(cpu, "BLOCK", 16)


def after(action, explainer, X, error, k):
    """Whether an exception came at the k-th line of the modules that keep state, while the action ran.

    Lines that say ``with`` are traced once more as their block ends, where Python itself lets no signal in: left out.
    """
    seen = 0

    def lines(frame, event, _):
        nonlocal seen
        within = (
            linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with ")
        )
        if event == "line" and not within:
            seen += 1
            if seen == k:
                raise error
        return lines

    def calls(frame, event, _):
        return lines if frame.f_code.co_filename.endswith(STATE) else None

    sys.settrace(calls)
    try:
        ACTIONS[action](explainer, X)
    except error:
        return True
    finally:
        sys.settrace(None)
    return False


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, pytest.param(MemoryError, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("action", ACTIONS)
def test_an_exception_at_any_line_breaks_nothing(action, error, blocks):
    """Every third line of the first 60, then ever fewer: the later ones are those of loops."""
    whole, X = small()
    threads = [info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"]
    prepared = answers(copy.deepcopy(whole).precompute(), X)
    expected, k, stopped = answers(copy.deepcopy(whole), X), 1, 0
    while True:
        explainer = copy.deepcopy(whole)
        if not after(action, explainer, X, error, k):
            break
        stopped += 1
        right = (
            prepared if verified_model(explainer).engines[0].leaf_matrix is not None else expected
        )
        for found, wanted in zip(answers(explainer, X), right):
            np.testing.assert_array_equal(found, wanted, err_msg=f"line {k}")
        k += 3 if k < 60 else 1 + k // 8
    assert stopped > 15
    assert [
        info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"
    ] == threads


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_exception_in_lapack_breaks_nothing(error, blocks, monkeypatch):
    """As it comes out of LAPACK itself, at every call of it: degrees of freedom used to be wrong from then on, silently."""
    whole, X = small()
    expected, real, calls = answers(copy.deepcopy(whole), X), cpu.lapack.dtrtri, []

    def dtrtri(*arguments, **options):
        calls.append(None)
        found = real(*arguments, **options)
        if len(calls) == stop:
            raise error
        return found

    monkeypatch.setattr(cpu.lapack, "dtrtri", dtrtri)
    for stop in range(1, 8):
        calls.clear()
        explainer = copy.deepcopy(whole)
        if stop <= -(-verified_model(whole).engines[0].structure.total_leaves // cpu.BLOCK):
            with pytest.raises(error):
                explainer.diagnostics.leverage()
        for found, wanted in zip(answers(explainer, X), expected):
            np.testing.assert_array_equal(found, wanted)
    assert len(calls) > 3


def test_a_signal_while_leaf_matrix_is_built_breaks_nothing():
    """Real signals, at delays that fall before, within and after the work."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 4))
    y = X[:, 0] + rng.normal(size=1500)
    model = GradientBoostingRegressor(n_estimators=30, max_leaf_nodes=31, max_depth=None).fit(X, y)
    whole = axil.Explainer(model, X, y, n_threads=1)
    expected = whole.diagnostics.degrees_of_freedom()

    def interrupt(*_):
        raise KeyboardInterrupt

    before, stopped = signal.signal(signal.SIGALRM, interrupt), 0
    whole._model, delay = replace(verified_model(whole), kept=Cache()), 0.002
    base = verified_model(whole).engines[0].structure
    try:
        for _ in range(8):
            whole._model = replace(verified_model(whole), engines=[BoostedTrees(base, Cpu(1))])
            try:
                signal.setitimer(signal.ITIMER_REAL, delay)
                whole.diagnostics.leverage()
            except KeyboardInterrupt:
                stopped += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert whole.diagnostics.degrees_of_freedom() == expected
            whole._model = replace(verified_model(whole), kept=Cache())
            delay *= 2
    finally:
        signal.signal(signal.SIGALRM, before)
    assert stopped


@pytest.mark.parametrize(("library", "name"), MODELS)
def test_eight_threads_get_the_answers_of_one(library, name, monkeypatch, by_number):
    """To the last bit, whoever comes first to what is kept."""
    monkeypatch.setattr(cpu, "BLOCK", 64)
    explainer, case = fresh(library, name)
    asked = questions(case)
    expected = {name: ask(copy.deepcopy(explainer)) for name, ask in asked.items()}
    together = threading.Barrier(8)

    def work(seed):
        together.wait()
        order = np.random.default_rng(seed).permutation(list(asked))
        return [(name, asked[name](explainer)) for name in order]

    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(work, range(8)):
            for name, answer in found:
                np.testing.assert_array_equal(answer, expected[name], err_msg=name)


@pytest.mark.parametrize(("library", "model"), MODELS)
def test_what_was_asked_before_changes_no_bit(library, model, by_number):
    explainer, case = fresh(library, model)
    asked = questions(case)
    first = {name: ask(explainer) for name, ask in asked.items()}
    for name, ask in reversed(asked.items()):
        np.testing.assert_array_equal(ask(explainer), first[name], err_msg=name)
        np.testing.assert_array_equal(ask(fresh(library, model)[0]), first[name], err_msg=name)


@pytest.mark.parametrize("dumped", [None, pickle.dumps, cloudpickle.dumps])
def test_copies_have_what_is_kept_and_locks_of_their_own(dumped, blocks):
    explainer, X = small()
    expected = answers(explainer, X)
    other = copy.deepcopy(explainer) if dumped is None else pickle.loads(dumped(explainer))
    assert verified_model(other).kept is not verified_model(explainer).kept
    assert (
        verified_model(other).kept._values.keys() == verified_model(explainer).kept._values.keys()
    )
    for found, wanted in zip(answers(other, X), expected):
        np.testing.assert_array_equal(found, wanted)
    assert verified_model(other.precompute()).engines[0].leaf_matrix is not None


def test_a_value_is_made_by_one_thread_and_never_seen_half():
    kept, made, together = Cache(), [], threading.Barrier(4)

    def make():
        made.append(threading.get_ident())
        return np.zeros(3)

    def work(_):
        together.wait()
        return kept.get("zeros", make)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, range(4)))
    assert len(made) == 1
    assert all(one is found[0] for one in found)
    with pytest.raises(ZeroDivisionError):
        kept.get("none", lambda: 1 / 0)
    assert kept.get("none", lambda: 7) == 7


def test_blas_gets_its_threads_back_after_the_last_block():
    before = [info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"]
    inside, leave = threading.Event(), threading.Event()

    def work():
        with one_blas_thread():
            inside.set()
            leave.wait()

    other = threading.Thread(target=work)
    with one_blas_thread():
        other.start()
        assert inside.wait(30)
    assert {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"} == {1}
    leave.set()
    other.join()
    assert [
        info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"
    ] == before


def test_the_noise_is_computed_once(monkeypatch):
    explainer, X = small()
    first = (
        explainer.diagnostics.standard_error(X[:3]),
        explainer.diagnostics.standard_error(X[:3], sigma="estimate"),
    )
    monkeypatch.setattr(noise, "_exact", lambda asked: pytest.fail("computed again"))
    monkeypatch.setattr(noise, "_probe", lambda asked: pytest.fail("computed again"))
    np.testing.assert_array_equal(explainer.diagnostics.standard_error(X[:3]), first[0])
    np.testing.assert_array_equal(
        explainer.diagnostics.standard_error(X[:3], sigma="estimate"), first[1]
    )
    assert explainer.to_html(X[:3]) is not None
