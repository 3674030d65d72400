"""The replayed samplers of scikit-learn against its own draws and against their definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn import ensemble
from sklearn.model_selection import train_test_split

from axil.adapters.sklearn.draws import BootstrapSampler, StageSampler, training_rows
from axil.errors import InputError
from axil.kernels.cpu import bootstrapped

NOWHERE = np.zeros(0, dtype=np.int64)
NOTHING = np.zeros((0, 1))


def stages(n_rows: int, subsample: float, seed: int, n_trees: int) -> list[NDArray[np.bool_]]:
    """The definition, number by number."""
    stream = np.random.RandomState(seed)
    drawn = []
    for _ in range(n_trees):
        u, left = stream.uniform(size=n_rows), max(1, int(subsample * n_rows))
        mask = np.zeros(n_rows, dtype=bool)
        for i in range(n_rows):
            mask[i] = u[i] * (n_rows - i) < left
            left -= int(mask[i])
        drawn.append(mask)
        stream.randint(0, 2**31 - 1)
    return drawn


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("n_rows", "subsample"), [(1, 0.5), (7, 0.1), (100, 0.5), (1000, 0.999), (2000, 0.0003)]
)
def test_stages_are_drawn_as_defined(n_rows: int, subsample: float, seed: int) -> None:
    sampler = StageSampler(n_rows, None, subsample, seed)
    for t, expected in enumerate(stages(n_rows, subsample, seed, 3)):
        drawn = sampler.bag(t)
        np.testing.assert_array_equal(drawn, expected)
        assert drawn.sum() == max(1, int(subsample * n_rows))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("subsample", [0.1, 0.5, 0.95])
@pytest.mark.parametrize("held_out", [None, 0.2])
def test_stages_are_those_of_a_fit(seed: int, subsample: float, held_out: float | None) -> None:
    """Each row its own leaf, so that a tree shows which rows it was fitted on."""
    rng = np.random.default_rng(seed)
    X, y = np.arange(200.0)[:, None], rng.normal(size=200)
    stop: dict[str, Any] = (
        {"n_iter_no_change": 50, "validation_fraction": held_out} if held_out else {}
    )
    model = ensemble.GradientBoostingRegressor(
        n_estimators=6,
        subsample=subsample,
        random_state=seed,
        max_depth=None,
        learning_rate=0.5,
        **stop,
    ).fit(X, y)
    rows = training_rows(200, held_out, seed) if held_out else None
    sampler = StageSampler(200, rows, subsample, seed)
    for t, (fitted,) in enumerate(model.estimators_):
        drawn = sampler.bag(t)
        leaf = fitted.apply(X)
        assert drawn.sum() == fitted.tree_.n_node_samples[0] == fitted.get_n_leaves()
        assert len(set(leaf[drawn > 0])) == drawn.sum()
        if rows is not None:
            assert set(np.flatnonzero(drawn)) <= set(rows)


def test_samplers_start_over() -> None:
    model = ensemble.RandomForestRegressor(5, random_state=0).fit(
        np.arange(50.0)[:, None], np.arange(50.0)
    )
    bags = BootstrapSampler("bags", 50, lambda: model.estimators_samples_)
    for sampler in (StageSampler(50, None, 0.5, 0), bags):
        first = [sampler.bag(t) for t in range(5)]
        for t in (3, 0, 4, 4, 1):
            np.testing.assert_array_equal(sampler.bag(t), first[t])
    for t, bag in enumerate(model.estimators_samples_):
        np.testing.assert_array_equal(bags.bag(t), np.bincount(bag, minlength=50))


@pytest.mark.parametrize("n_rows", [1, 2, 3, 9, 624, 1000, 32768, 32769])
def test_the_core_draws_as_random_states_do(n_rows: int) -> None:
    rng = np.random.default_rng(n_rows)
    for n_drawn in (1, 623, 624, 625, 5000):
        for seed in (0, 1, 2**32 - 1, int(rng.integers(2**32))):
            drawn = np.random.RandomState(seed).randint(0, n_rows, n_drawn)
            expected = np.bincount(drawn, minlength=n_rows)
            np.testing.assert_array_equal(bootstrapped(seed, n_rows, n_drawn), expected)


@pytest.mark.parametrize("max_samples", [None, 0.3])
def test_bags_of_seeds_are_those_of_the_library(max_samples: float | None) -> None:
    X, y = np.arange(700.0)[:, None], np.arange(700.0)
    model = ensemble.RandomForestRegressor(5, random_state=3, max_samples=max_samples).fit(X, y)
    seeds = [tree.random_state for tree in model.estimators_]
    given = "bags", 700, lambda: model.estimators_samples_, None
    by_seeds = BootstrapSampler(*given, seeds, model._n_samples_bootstrap)
    others = BootstrapSampler(
        *given, seeds[::-1], model._n_samples_bootstrap
    )  # not the library's: its own are drawn
    assert by_seeds._seeds is not None
    assert others._seeds is None
    for t, bag in enumerate(model.estimators_samples_):
        for sampler in (by_seeds, others):
            np.testing.assert_array_equal(sampler.bag(t), np.bincount(bag, minlength=700))


def test_bags_times_a_factor() -> None:
    sampler = BootstrapSampler(
        "bags", 4, lambda: [np.array([1, 1, 3])], lambda bag: np.full(4, len(bag) / 2)
    )
    np.testing.assert_array_equal(sampler.bag(0), [0, 3, 0, 1.5])
    assert sampler.name == "bags"


@pytest.mark.parametrize("held_out", [0.1, 0.5, 17])
def test_training_rows(held_out: float) -> None:
    values = np.random.default_rng(0).normal(size=333)
    rows = training_rows(333, held_out, 5)
    np.testing.assert_array_equal(
        values[rows], train_test_split(values, test_size=held_out, random_state=5)[0]
    )


def test_too_few_rows_to_hold_any_out() -> None:
    with pytest.raises(InputError, match=r"X has 1 rows, too few to hold out 0\.1.*Pass the rows"):
        training_rows(1, 0.1, 0)


def test_a_million_rows_in_a_moment() -> None:
    sampler = StageSampler(1_000_000, None, 0.5, 0)
    assert all(sampler.bag(t).sum() == 500_000 for t in range(5))
