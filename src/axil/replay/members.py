"""The proof of a model of several others: each on its own rows, then that they add up to the predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from axil.adapters.contract import Model, TrainingRows
from axil.adapters.members import Member, ResidualModel, SumModel
from axil.errors import ExactnessError
from axil.inputs import take_rows
from axil.replay.compare import check_predictions, checked_rows, furthest, with_predictions
from axil.replay.verification import Verification, worst_of
from axil.structure import Structure, output_groups
from axil.weights.engine import Engine
from axil.weights.members import Residual, Sum, Term

BOTH_WAYS = 2  # an error of a first model is in the sum, and in what the second is fitted to

Proof = tuple[list[Engine], Verification | None]


def prove_sum(
    model: SumModel,
    rows: TrainingRows,
    n_threads: int,
    check: bool,
    prove: Callable[[Model, TrainingRows], Proof],
) -> Proof:
    """The engines for the outputs and the proof; ``prove`` does the same for one model inside."""
    if check:
        model.check_kept(rows.X, rows.targets, rows.weights)
    members = model.members_on(rows)
    terms: list[list[Term]] = []
    found: list[Verification] = []
    for i, (member, X) in enumerate(zip(members, model.rows_of(rows.X))):
        with naming(member):
            engines, verification = prove(member.model, own_rows(member, X, rows))
        training = _training(member, X, n_threads)
        terms.append(
            [Term(engine, member.coefficient, i, member.rows, training) for engine in engines]
        )
        found += [] if verification is None else [verification]
    added = (
        zip(*terms, strict=True) if members[0].output is None else ((term,) for (term,) in terms)
    )
    total: list[Engine] = [
        Sum(tuple(own), len(rows.targets), constant=model.constant) for own in added
    ]
    if not check:
        return total, None
    errors = [abs(member.coefficient) * _error(proof) for member, proof in zip(members, found)]
    allowed = sum(errors) if members[0].output is None else max(errors)
    return total, _check(model, total, found, rows, allowed)


def prove_residual(
    model: ResidualModel,
    rows: TrainingRows,
    n_threads: int,
    prove: Callable[[Model, TrainingRows], Proof],
    engine_of: Callable[[Structure], Engine],
) -> Proof:
    """Prove the first model on its rows, the trees with its predictions for offsets, then both together as one linear map.

    ``engine_of`` makes the engine of trees, here without the offsets: they are the first model's.
    """
    n_rows = len(rows.targets)
    (X, own), (member, trees) = model.rows_of(rows.X), model.members
    member = replace(member, rows=model.kept_rows(n_rows))
    with naming(member):
        (first,), before = prove(member.model, own_rows(member, X, rows))
    training = _training(member, X, n_threads)
    offsets = member.model.predictions(X)
    with naming(trees):
        (then,), after = prove(trees.model, replace(rows, X=own, offsets=offsets))
    made = Residual(
        Sum((Term(first, 1.0, 0, member.rows, training),), n_rows),
        engine_of(replace(then.structure, offsets=None)),
        n_rows,
    )
    if before is None or after is None:
        return [made], None
    errors = _error(before), _error(after)
    return [made], _check(model, [made], [before, after], rows, BOTH_WAYS * errors[0] + errors[1])


def _training(member: Member, X: Any, n_threads: int) -> Any:
    """Coordinates of all rows where predictions of them are made, if those of the member's own fit are others; else None."""
    apart = member.rows is not None or member.model.encodings
    if apart:
        return member.model.coordinates(X, n_threads)
    return None


def own_rows(member: Member, X: Any, rows: TrainingRows) -> TrainingRows:
    """The rows, targets and weights of a member's own fit."""
    targets = rows.targets
    weights = member.weights(rows.weights)
    if member.output is not None:
        targets = targets[:, [member.output]]
    if member.rows is None:
        return TrainingRows(X, targets, weights)
    return TrainingRows(take_rows(X, member.rows), targets[member.rows], weights)


def _error(proof: Verification) -> float:
    """How far off a model inside may be."""
    return proof.tolerance * proof.scale + proof.rounding


def _check(
    model: SumModel,
    engines: list[Engine],
    members: list[Verification],
    rows: TrainingRows,
    allowed: float,
) -> Verification:
    """Compare the sum with the predictions, within what its members together, or the worst one beside others, may be off."""
    targets = rows.targets
    each = zip(engines, output_groups(len(engines)))
    made = np.concatenate([engine.predicted(None, targets[:, own]) for engine, own in each], axis=1)
    miss = furthest(
        made,
        with_predictions(model, rows.X, checked_rows(len(targets)), None, made.copy(), slice(None)),
    )
    check_predictions(model, miss, allowed)
    scale = float(np.abs(made).max()) or 1.0
    return replace(
        worst_of(members),
        n_rows=len(targets),
        max_error=miss.error / scale,
        tolerance=allowed / scale,
        scale=scale,
        rounding=0.0,
        compared=[
            name for name in members[0].compared if all(name in proof.compared for proof in members)
        ],
        replayed=" and ".join(dict.fromkeys(proof.replayed for proof in members if proof.replayed)),
    )


@contextmanager
def naming(member: Member) -> Iterator[None]:
    """Say in an error which model it is about."""
    try:
        yield
    except ExactnessError as error:
        cause = f"This is about {member.name}, one of the models inside.\n{error.cause}"
        raise ExactnessError(
            error.quantity, error.replayed, error.expected, cause, error.tree, error.leaf
        ) from None
