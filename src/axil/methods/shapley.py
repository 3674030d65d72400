"""shapley: exact Shapley values of training targets for an error on validation rows.

A coalition of rows knows its targets; all others have a baseline. With d = target - baseline, e the
validation residuals where no target is known and r those where all are, predictions are linear in
the targets, the mean squared error is quadratic in which of them are known, and the Shapley value
of such a game is closed:

    e - sum over the rows j of a coalition of d_j K_j       its residuals
    value_j = d_j [K' (e + r)]_j / n,     sum_j value_j = (|e|^2 - |r|^2) / n

The same holds with groups of rows for players: a group's value is the sum of its rows'.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from axil import inputs
from axil.aliases import ArrayLike, DataFrame, LabelsLike, TableLike
from axil.arrays import AnyArray, FloatArray, IntArray
from axil.attribution import notes
from axil.errors import ApproximationWarning, InputError, shown, warn
from axil.methods import leave_one_out
from axil.methods.influence import sorted_table, validation
from axil.methods.kinds import exact_model
from axil.methods.method import Method, output_columns
from axil.replay.exact_model import ExactModel
from axil.replay.radius import leaves_beyond
from axil.weights.engine import across, by_output


class Shapley(Method):
    """Provide `Explainer.shapley`."""

    def shapley(
        self,
        X_val: TableLike,
        y_val: ArrayLike,
        *,
        baseline: Literal["mean", "others"] | ArrayLike = "mean",
        groups: LabelsLike | None = None,
        init_score: ArrayLike | None = None,
    ) -> DataFrame:
        """Return the exact Shapley value of every training target for the error on validation rows.

        The players are the training rows. A coalition knows its own targets; all other rows have a
        baseline as target. Its worth is minus the mean squared error on the validation rows, with
        the tree structure fixed. ``value`` is a row's mean contribution over all orders in which
        rows may join. The values sum to the fall of the error from no target known to all targets
        known. A positive value lowers the error. One backward pass, O(T (N + n)), computes ``d_j
        [K'(e + r)]_j / n`` for all rows.

        The table has the columns row, target, baseline, value, and output if there are several,
        largest value first. With ``groups`` its columns are group, rows and value: the value of a
        group as one player is the sum of its rows' values. Each output has its own mean squared
        error. If the model was fitted to transformed targets, the error and "value (log)" are on
        the scale of the fit, and target and baseline are in the targets' own units. You pass
        ``y_val`` and ``baseline`` on the scale of ``y_train``.

        Parameters
        ----------
        X_val : table
            The n validation rows.
        y_val : array of shape (n,) or (n, K)
            Their targets, or classes, given as ``y_train`` was.
        baseline : "mean", "others" or array of shape (n_train,) or (n_train, K)
            The targets of rows that are not known: the mean of all, what the others say
            (`leave_one_out`; a row of which they say nothing keeps its target and has the value
            nan), or numbers of your own.
        groups : sequence of length n_train, or str, optional
            A label for each training row: a year, a region, a source; or the name of a column of
            X_train.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the validation rows, as in `explain`.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> model = LGBMRegressor(n_estimators=20, verbose=-1).fit(X[:300], y[:300])
        >>> values = Explainer(model, X[:300], y[:300]).shapley(X[300:], y[300:])
        >>> error = ((y[300:] - model.predict(X[300:])) ** 2).mean()
        >>> none_known = ((y[300:] - y[:300].mean()) ** 2).mean()
        >>> bool(abs(values["value"].sum() - (none_known - error)) < 1e-6 * error)
        True
        """
        verified = exact_model(self._answering("shapley"))
        queries, y = validation(verified, X_val, y_val, init_score)
        if groups is None:
            coded = None
        else:
            coded = verified.training.group_codes(groups)[0]
        baseline_targets = baselines(verified, baseline)
        has_baseline = ~np.isnan(baseline_targets)
        moved = np.where(has_baseline, verified.targets - baseline_targets, 0.0)
        after = y - verified.predicted(queries)
        coordinates = queries.coordinates
        base = queries.offsets.base
        before = after + across(
            verified.engines, moved, lambda engine, own: engine.matvec(coordinates, own, base)
        )
        gradients = verified.changes.pulled_back(queries, before + after)
        warn_beyond(verified, verified.targets - moved)
        values = np.where(has_baseline, moved * gradients / len(y), np.nan)
        name = verified.scale.label("value")
        if coded is not None:
            columns = _group_columns(verified, values, *coded)
        else:
            columns = output_columns("row", verified.index, verified.names.outputs) | {
                "target": verified.shown.ravel()
            }
            columns |= {
                "baseline": verified.scale.inverse(baseline_targets).ravel(),
                name: values.ravel(),
            }
        if coded is None:
            note = leave_one_out.note_on(~has_baseline.ravel())
        else:
            note = notes.NOTE
        return sorted_table(verified, columns, columns[name], note)


def warn_beyond(verified: ExactModel, targets: FloatArray) -> None:
    """Warn if a fit to these targets (N, K) would change the active set, which the values fix."""
    if verified.verification is None or verified.verification.active_set is None:
        return
    active_set = verified.verification.active_set
    pairs = zip(by_output(verified.engines, targets), by_output(verified.engines, verified.targets))
    n_beyond = sum(leaves_beyond(engine, after, before) for (engine, after), (_, before) in pairs)
    if not n_beyond:
        return
    radius = ""
    if active_set.radius > 0:
        radius = (
            " The active set is certain to stay the same while targets move by less than "
            f"{active_set.radius:.3g} in total."
        )
    warn(
        f"A fit to the baseline would change the active set of {n_beyond:,} of "
        f"{active_set.n_leaves:,} leaves: sums that L1 moves or puts to zero, values at a clip or "
        "a bound, rows of a certain rank, clipped residuals. The values keep the active set fixed, "
        f"like the splits; see explainer.verification.active_set.{radius}",
        ApproximationWarning,
    )


def baselines(verified: ExactModel, baseline: Any) -> FloatArray:
    """Return the targets of unknown rows, (N, K); nan if the row keeps its own target."""
    n, n_outputs = verified.targets.shape
    if not isinstance(baseline, str):
        inputs.refuse_other_order(verified.features, baseline, "baseline")
        return verified.scale.checked_forward(
            inputs.as_table(baseline, n, n_outputs, "baseline"), "baseline"
        )
    if baseline == "mean":
        return np.tile(verified.targets.mean(axis=0), (n, 1))
    if baseline == "others":
        return leave_one_out.predictions(verified)
    raise InputError(
        f'baseline is {shown(baseline)}; expected "mean", "others", or an array with a number '
        "for every training row."
    )


def _group_columns(
    verified: ExactModel, values: FloatArray, codes: IntArray, names: AnyArray
) -> dict[str, Any]:
    """Return the columns group, (output,) rows and value."""
    n_outputs = values.shape[1]
    sums = [np.bincount(codes, np.nan_to_num(column), len(names)) for column in values.T]
    columns = output_columns("group", names, verified.names.outputs)
    counts = np.bincount(codes, minlength=len(names))
    value = np.stack(sums, axis=1).ravel()
    return columns | {"rows": np.repeat(counts, n_outputs), verified.scale.label("value"): value}
