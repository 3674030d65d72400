"""The verification of a model of several others: each on its own rows, then their sum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from axil.adapters.contract import Model, TrainingRows
from axil.adapters.members import Member, ResidualModel, SumModel
from axil.aliases import FeatureTable
from axil.arrays import FloatArray
from axil.errors import ExactnessError
from axil.inputs import take_rows
from axil.replay.compare_predictions import (
    check_predictions,
    checked_rows,
    furthest,
    with_predictions,
)
from axil.replay.verification import Verification, worst_of
from axil.structure import Structure, output_groups
from axil.weights.engine import Engine
from axil.weights.members import Residual, Sum, Term

# An error of a first model is in the sum, and in what the second is fitted to.
COUNTED_TWICE = 2

Verified = tuple[list[Engine], Verification | None]


def verify_sum(
    model: SumModel,
    rows: TrainingRows,
    n_threads: int,
    check: bool,
    verify: Callable[[Model, TrainingRows], Verified],
) -> Verified:
    """Return the engines for the outputs of a sum of models, and the verification.

    ``verify`` does the same for one of the models.
    """
    if check:
        model.check_kept(rows.X, rows.targets, rows.weights)
    members = model.members_on(rows)
    terms: list[list[Term]] = []
    verifications: list[Verification] = []
    for number, (member, X) in enumerate(zip(members, model.rows_of(rows.X))):
        with naming(member):
            engines, verification = verify(member.model, rows_of_member(member, X, rows))
        if verification is not None:
            verifications.append(verification)
        coordinates = _training_coordinates(member, X, n_threads)
        terms.append(
            [
                Term(engine, member.coefficient, number, member.rows, coordinates)
                for engine in engines
            ]
        )
    shares_outputs = members[0].output is None
    terms_of_outputs: Iterable[tuple[Term, ...]]
    if shares_outputs:
        terms_of_outputs = zip(*terms, strict=True)
    else:
        terms_of_outputs = ((term,) for (term,) in terms)
    n_rows = len(rows.targets)
    sums: list[Engine] = [
        Sum(terms_of_output, n_rows, constant=model.constant)
        for terms_of_output in terms_of_outputs
    ]
    if not check:
        return sums, None
    errors = [
        abs(member.coefficient) * _allowed_error(verification)
        for member, verification in zip(members, verifications)
    ]
    if shares_outputs:
        allowed = sum(errors)
    else:
        allowed = max(errors)
    return sums, _compare(model, sums, verifications, rows, allowed)


def verify_residual(
    model: ResidualModel,
    rows: TrainingRows,
    n_threads: int,
    verify: Callable[[Model, TrainingRows], Verified],
    engine_of: Callable[[Structure], Engine],
) -> Verified:
    """Verify a model, then the trees that were fitted to its residuals, then their sum.

    ``engine_of`` returns the engine of trees, here without the offsets: they are the first model's.
    """
    n_rows = len(rows.targets)
    X_of_first, X_of_trees = model.rows_of(rows.X)
    first_member, tree_member = model.members
    first_member = replace(first_member, rows=model.kept_rows(n_rows))
    with naming(first_member):
        first_rows = rows_of_member(first_member, X_of_first, rows)
        (first_engine,), first_verification = verify(first_member.model, first_rows)
    coordinates = _training_coordinates(first_member, X_of_first, n_threads)
    offsets = first_member.model.predictions(X_of_first)
    with naming(tree_member):
        tree_rows = replace(rows, X=X_of_trees, offsets=offsets)
        (trees,), tree_verification = verify(tree_member.model, tree_rows)
    residual = Residual(
        Sum((Term(first_engine, 1.0, 0, first_member.rows, coordinates),), n_rows),
        engine_of(replace(trees.structure, offsets=None)),
        n_rows,
    )
    if first_verification is None or tree_verification is None:
        return [residual], None
    allowed = COUNTED_TWICE * _allowed_error(first_verification)
    allowed += _allowed_error(tree_verification)
    verifications = [first_verification, tree_verification]
    return [residual], _compare(model, [residual], verifications, rows, allowed)


def _training_coordinates(member: Member, X: FeatureTable, n_threads: int) -> Any:
    """Return coordinates of all rows if those of the member's own fit differ, otherwise None."""
    if member.rows is not None or member.model.encodings:
        return member.model.coordinates(X, n_threads)
    return None


def rows_of_member(member: Member, X: FeatureTable, rows: TrainingRows) -> TrainingRows:
    """Return the rows, targets and weights of a member's own fit."""
    targets = rows.targets
    weights = member.weights(rows.weights)
    if member.output is not None:
        targets = targets[:, [member.output]]
    if member.rows is None:
        return TrainingRows(X, targets, weights)
    return TrainingRows(take_rows(X, member.rows), targets[member.rows], weights)


def _allowed_error(verification: Verification) -> float:
    """Return the allowed error of the predictions of a member."""
    return verification.tolerance * verification.scale + verification.rounding


def predictions_of(engines: Sequence[Engine], targets: FloatArray) -> FloatArray:
    """Return the predictions (N, K) of the training rows that engines make of targets."""
    groups = zip(engines, output_groups(len(engines)))
    predictions = [engine.predicted(None, targets[:, outputs]) for engine, outputs in groups]
    return np.concatenate(predictions, axis=1)


def _compare(
    model: SumModel,
    engines: list[Engine],
    verifications: list[Verification],
    rows: TrainingRows,
    allowed: float,
) -> Verification:
    """Compare the sum with the predictions, within the joint error of its members."""
    targets = rows.targets
    predictions = predictions_of(engines, targets)
    checked = checked_rows(len(targets))
    expected = with_predictions(model, rows.X, checked, None, predictions.copy(), slice(None))
    miss = furthest(predictions, expected)
    check_predictions(model, miss, allowed)
    scale = float(np.abs(predictions).max()) or 1.0
    compared = verifications[0].compared
    for verification in verifications:
        compared = [name for name in compared if name in verification.compared]
    samplers = [verification.replayed for verification in verifications if verification.replayed]
    return replace(
        worst_of(verifications),
        n_rows=len(targets),
        max_error=miss.error / scale,
        tolerance=allowed / scale,
        scale=scale,
        rounding=0.0,
        compared=compared,
        replayed=" and ".join(dict.fromkeys(samplers)),
    )


@contextmanager
def naming(member: Member) -> Iterator[None]:
    """Name the model in errors about it."""
    try:
        yield
    except ExactnessError as error:
        cause = f"This is about {member.name}, one of the models inside.\n{error.cause}"
        raise ExactnessError(
            error.quantity, error.replayed, error.expected, cause, error.tree, error.leaf
        ) from None
