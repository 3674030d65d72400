"""Groups of training rows, such as the search results of a ranking model."""

from __future__ import annotations

import numpy as np

from axil.aliases import ForeignObject
from axil.arrays import AnyArray, FloatArray, IntArray
from axil.errors import InputError, shown
from axil.inputs.codes import numbered
from axil.inputs.numbers import as_array, as_weights, unmasked

EXPECTED = "the numbers of rows of the groups, or one group label for each row"


def as_row_groups(values: ForeignObject, n_rows: int) -> IntArray | None:
    """Return the number of each row's group, (N,), from 0 up; None for None.

    Parameters
    ----------
    values : sequence of n_rows labels, or of sizes that add up to n_rows, or None
        Labels such as XGBoost's ``qid`` or CatBoost's ``group_id``, or LightGBM's sizes. As many
        entries as rows are labels.
    n_rows : int

    Raises
    ------
    InputError
        Also where the rows of a group are not next to each other.
    """
    if values is None:
        return None
    try:
        entries = as_array(unmasked(values, "group"), "group")
    except (InputError, MemoryError):
        raise
    except Exception as error:  # each kind of array has its own
        raise InputError(f"group is {shown(values)}; expected {EXPECTED}.") from error
    if entries.ndim != 1 or not len(entries):
        raise InputError(f"group has shape {entries.shape}; expected {EXPECTED}.")
    if len(entries) == n_rows:
        return _numbers_of_labels(entries)
    return np.repeat(np.arange(len(entries)), _sizes(entries, n_rows))


def _sizes(entries: AnyArray, n_rows: int) -> IntArray:
    """Return the sizes of the groups after checking that they sum to the number of rows."""
    is_whole = entries.dtype.kind in "iu"
    if entries.dtype.kind == "f":
        is_whole = bool(np.isfinite(entries).all() and (entries == np.rint(entries)).all())
    if not is_whole or (entries < 1).any():
        raise InputError(
            f"group has {len(entries)} entries for {n_rows} rows, and they are not group sizes: "
            f"{shown(entries.tolist())}. Expected {EXPECTED}."
        )
    total = int(entries.sum())
    if total != n_rows:
        raise InputError(
            f"group has {len(entries)} sizes that add up to {total}, and X_train has {n_rows} "
            f"rows; expected {EXPECTED}."
        )
    return entries.astype(np.intp)


def _numbers_of_labels(labels: AnyArray) -> IntArray:
    """Return the groups of rows by their labels, numbered in the order of the rows."""
    codes, _ = numbered(labels)
    starts_group = np.append(True, codes[1:] != codes[:-1])
    first_codes = codes[starts_group]
    if len(np.unique(first_codes)) < len(first_codes):
        order = np.argsort(first_codes, kind="stable")
        repeated = order[1:][np.diff(first_codes[order]) == 0].min()
        row = int(np.flatnonzero(starts_group)[repeated])
        raise InputError(
            f"group has {shown(labels[row])} at row {row} (from 0) and at rows before another "
            "group; expected the rows of each group next to each other, as in the fit."
        )
    return np.cumsum(starts_group) - 1


def weights_of_rows(
    sample_weight: ForeignObject, groups: IntArray | None, n_rows: int
) -> FloatArray | None:
    """Return sample weights (N,), also from one weight for each of the groups; None for None."""
    if sample_weight is not None and groups is not None:
        weights = as_array(unmasked(sample_weight, "sample_weight"), "sample_weight")
        n_groups = int(groups[-1]) + 1
        if weights.shape == (n_groups,) and n_groups != n_rows:
            of_groups = as_weights(weights, n_groups)
            assert of_groups is not None
            return of_groups[groups]
    return as_weights(sample_weight, n_rows)
