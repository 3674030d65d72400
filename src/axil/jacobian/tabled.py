"""Tables of pushes for any number of rows: the largest of each score, and sums by groups of training rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.jacobian.asked import Asked
from axil.jacobian.boosting import Boosting
from axil.jacobian.deletions import Kept
from axil.machine.arrays import host
from axil.output import tables
from axil.scale import IDENTITY
from axil.types import Array, Leaves


def top(kept: Kept, asked: Asked, k: int) -> Any:
    """The table of `JacobianExplainer.top` by contribution. Blocks of training rows are read out."""
    model, (n_rows, n_outputs) = kept.model, kept.model.targets.shape
    lines = min(k, n_rows) * n_outputs
    size = tables.batch_size(kept.budget, len(asked), lines, 8, model.pushes.bytes_per_query())
    parts, labels = [], asked.labels
    for start in range(0, max(len(asked), 1), size):
        part = slice(start, start + size)
        found, scores = largest(kept, asked[part], k)
        means = model.means(scores)
        meant = {} if means is None else {model.meaning: means}
        columns = tables.top_columns(
            found, kept.index, labels[part], kept.outputs, IDENTITY, model.targets, scores, meant
        )
        parts.append({name: values for name, values in columns.items() if name != "weight"})
    return tables.note(tables.concatenate(parts, kept.backend), tables.of_class(tables.ADDITIVE, kept.model.scored))


def largest(kept: Kept, asked: Asked, k: int) -> tuple[list[tables.Largest], Array]:
    """For each output the largest pushes on these rows, and the sums (n, K) of all, from where scores start."""
    model: Boosting = asked.boosted
    leaves: Leaves = model.located(asked.rows)[0]
    n, threads, backend = len(leaves), kept.n_threads, model.backend
    ones = np.ones(len(model.targets))
    with backend.guard():
        starts = model.starts(n).T
        found = [tables.Largest(n, k, ones, "weight", threads, backend=backend) for _ in starts]
        scores = [backend.xp.array(start) for start in starts]
        for first, blocks in model.pushes.blocks(leaves):
            for one, score, block in zip(found, scores, blocks):
                one.add(block, first)
                score += block.sum(axis=0)
        return found, np.stack([host(score) for score in scores], axis=1)


def group(kept: Kept, asked: Asked, codes: NDArray[np.intp], groups: NDArray[Any]) -> Any:
    """The table of `JacobianExplainer.group`. Pushes are summed by leaf and group in one walk through the training rows."""
    pushes, lines = kept.model.pushes, len(groups) * kept.model.targets.shape[1]
    cells = pushes.cells_by_group(codes, len(groups))
    size = tables.batch_size(kept.budget, len(asked), lines, 4, 8 * (lines + len(cells[0])))
    parts, names = [], asked.labels
    for start in range(0, max(len(asked), 1), size):
        own = asked[start : start + size]
        sums = pushes.sums_by_group(own.boosted.located(own.rows)[0], cells)
        found = tables.label_columns(names[start : start + size], kept.outputs, "group", groups)
        parts.append(found | tables.contribution_columns(sums.ravel(), IDENTITY))
    return tables.note(tables.concatenate(parts, kept.backend), tables.of_class(tables.ADDITIVE, kept.model.scored))
