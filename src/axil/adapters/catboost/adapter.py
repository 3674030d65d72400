"""CatBoost models of squared error, medians, quantiles and Huber, in memory or in a file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from axil.adapters.boosted_fit import (
    BoostedFit,
    InitialPrediction,
    LeafRule,
    Schedule,
    TreeTable,
    WeightRule,
)
from axil.adapters.catboost.blob import parse
from axil.adapters.catboost.leaves import EncodedRows, routes
from axil.adapters.catboost.monotone import chains, signs_of
from axil.adapters.catboost.percentile import rules
from axil.adapters.catboost.permutations import AveragingFold
from axil.adapters.catboost.pool import most_categories, pool, zeros_above_negatives
from axil.adapters.catboost.refusals import MISSING, REFUSALS, CatBoostReading, doubt
from axil.adapters.catboost.settings import (
    Stage,
    base_factor,
    coefficients,
    fit_settings,
    settings_of_each_tree,
    shrunk_further,
)
from axil.adapters.contract import Rounding, TrainingRows, TreeModel
from axil.adapters.frames import single_table
from axil.adapters.percentiles import require_rows, with_base
from axil.adapters.refusals import (
    OTHER_COLUMNS,
    OTHER_ROWS,
    OTHER_TARGETS,
    not_fitted,
    refuse,
    weights_refusal,
)
from axil.adapters.routes import Routes
from axil.arrays import BoolArray, FloatArray, LeafArray
from axil.errors import InputError, UnsupportedModelError

ROUNDING = 2.0**-24  # of float32, relative
NO_TREES = "This CatBoost model has no trees: fit it with iterations of at least 1."


def read(
    model: Any, by_gradients: bool = False, leaves_only: bool = False
) -> CatBoostAdapter | None:
    """Return the adapter of a CatBoost model; None for any other object.

    Parameters
    ----------
    model : object
        Any object.
    by_gradients : bool
        Whether it is read by its gradients even where it has exact weights.
    leaves_only : bool
        Whether only its leaves are read. Nothing is refused then.
    """
    if not is_fitted(model):
        return None
    protected = _copy_of(model)
    reading = CatBoostReading(parse(protected._serialize_model()))
    if leaves_only:
        return CatBoostAdapter(protected, reading, leaves_only=True)
    if by_gradients:
        not_exact = None
    else:
        not_exact = weights_refusal(REFUSALS, reading)
    if not_exact is None and not by_gradients:
        return CatBoostAdapter(protected, reading)
    from axil.adapters.catboost.loss import CatBoostWithLoss

    adapter = CatBoostWithLoss(protected, reading)
    adapter.not_exact = not_exact
    return adapter


def is_fitted(model: Any) -> bool:
    """Return whether an object is a model of CatBoost; raise for one that has not been fitted."""
    import catboost

    if not isinstance(model, catboost.CatBoost):
        return False
    if not model.is_fitted():
        raise not_fitted(model)
    return True


def _copy_of(model: Any) -> Any:
    """Return a copy of a model that users can change in place (shrink, set_leaf_values).

    CatBoost cannot copy every model: it writes a bias of 1e17 as a whole number into its JSON and
    does not read that back. Such a model is returned itself.
    """
    import catboost

    try:
        return model.copy()
    except catboost.CatBoostError:
        return model


class CatBoostAdapter(TreeModel):
    """All trees of a CatBoost model.

    ``use_best_model`` drops the trees after the best iteration in the fit itself. Every row counts
    in every leaf, whatever the bootstrap: it, random_strength, rsm and Ordered boosting only choose
    splits (the averaging fold, CalcLeafValues, catboost/private/libs/algo/approx_calcer.cpp).

    CatBoost keeps targets, weights, offsets and the mean it starts from in float32, residuals and
    scores in float64. A replay that begins with its mean meets its leaves to the last digits; one
    that begins with the mean itself is 6e-8 of it off. A GPU keeps residuals and scores in float32
    as well (catboost/cuda/methods), and a replay that rounds likewise meets its leaves.
    """

    library = "CatBoost"
    unseen = (
        "CatBoost encodes such a value by the prior alone, "
        "and no test for a single category finds it."
    )
    refusals = REFUSALS
    rounding = Rounding(targets=np.float32, offsets=np.float32, initial=np.float32)
    takes_text = True  # as categories
    tells_kinds_apart = True  # categories are whole numbers or text, and no real numbers

    def __init__(self, model: Any, reading: CatBoostReading, leaves_only: bool = False):
        if not leaves_only:
            refuse(self.refusals, reading)
        self._model = model
        self._reading = reading
        self._blob = reading.blob
        self._fits = [fit_settings(settings) for settings in self._blob.settings]
        self.leaf_steps = max(fit.steps for fit in self._fits)
        self._n_leaves = np.asarray(self._model.get_tree_leaf_counts(), dtype=np.int64)
        if len(self._n_leaves) == 0:
            raise InputError(NO_TREES)
        self._read_columns()
        self.n_outputs = self._blob.n_outputs
        self._read_leaf_rule(leaves_only)
        # A continued fit starts from the model before and says boost_from_average=False.
        self._estimated = self._fits[-1].from_average or bool(np.any(self._blob.bias != 0))
        self.settles = self._reading.is_continued and not self.has_initial_tree
        self._set_tolerances()
        self.fingerprint = self._fingerprint()

    def _read_columns(self) -> None:
        names = [str(name) for name in self._model.feature_names_]
        self.n_features = len(names)
        self.feature_names: list[str] | None = names
        if names == [str(i) for i in range(len(names))]:
            self.feature_names = None
        self.encodings = self._blob.features("target statistics")
        self._cat_features = [int(i) for i in self._model.get_cat_feature_indices()]
        # The record has the weights of rows that were shuffled for the categories.
        self.records_other_weights = bool(self._cat_features)

    def _read_leaf_rule(self, leaves_only: bool) -> None:
        """Read how the leaf values follow from the rows."""
        is_multi_rmse = any(loss.startswith("MultiRMSE") for loss in self._reading.losses)
        # CatBoost leaves lighter leaves at 0 (CalcLeafDers,
        # catboost/private/libs/algo/approx_calcer.cpp).
        if is_multi_rmse:
            self._least_weight = 0.0
        else:
            self._least_weight = float(np.finfo(np.float32).eps)
        self.missing_targets = MISSING in self._reading.losses
        self.has_initial_tree = self._reading.has_percentile_leaves and not leaves_only
        self.repeats_targets = self.has_initial_tree
        self._chains = None
        if self._reading.pools_leaves and not self.has_initial_tree:
            signs = signs_of(self._reading.last)
            if signs:
                self._chains = chains(self._blob, signs)
            else:
                self._chains = None

    def _set_tolerances(self) -> None:
        """Set how closely predictions and leaf values can agree.

        CatBoost keeps targets and their mean in float32, off by up to 6e-8 of themselves, and
        predictions can be a fraction of them. Backtracking drops a step that, by rounding, does not
        lower the loss: the loss has 16 digits and is flat at its minimum, so some 1e-8 of a leaf. A
        GPU makes a leaf value in float32: its sum, its weight, their quotient and the learning rate
        times that are rounded. It adds tree by tree to a score, which loses half a digit more with
        every tree.
        """
        self.tolerance = 1e-6
        self.leaf_tolerance = 1e-12
        if any(fit.backtracks for fit in self._fits):
            self.leaf_tolerance = 1e-6
        if self._reading.on_gpu:
            self.rounding = replace(self.rounding, residuals=np.float32, scores=np.float32)
            self.tolerance = max(1e-6, 3 * ROUNDING * float(np.sqrt(len(self._n_leaves))))
            self.leaf_tolerance = 4 * ROUNDING
        if self.has_initial_tree:  # residuals and percentiles of them are in float32
            self.rounding = replace(self.rounding, residuals=np.float32)
            self.leaf_tolerance = 4 * ROUNDING

    def _fingerprint(self) -> str:
        """Return a digest of splits, leaf values, scale and bias.

        Numbers are taken in float32, because JSON loses a last digit.
        """
        blob = self._blob
        digest = hashlib.sha256(blob.splits)
        digest.update(self._n_leaves.tobytes())
        for numbers in (blob.leaf_values, blob.bias, blob.scale):
            digest.update(np.float32(numbers).tobytes())
        return digest.hexdigest()

    def spelling(self, name: str) -> str:
        """Return a column's name; CatBoost names a column that has none by its position."""
        numbered = [
            feature for i, feature in enumerate(self.feature_names or []) if feature == str(i)
        ]
        if name == "" and len(numbered) == 1:
            return numbered[0]
        return name

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return all trees as one entry, which serves every output.

        Where targets are missing, or leaf values are percentiles, each output has its own entry.
        """
        if self.has_initial_tree:
            return self._percentiles(rows)
        if self.missing_targets and np.isnan(rows.targets).any():
            return self._with_missing(rows)
        return [self._entry(rows, rows.totals.means)]

    def _with_missing(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return one entry per output, in which rows without its target have no weight.

        l2 follows the weights of all rows.
        """
        is_present = ~np.isnan(rows.targets)
        weights = is_present.astype(np.float64)
        if rows.weights is not None:
            weights *= rows.weights[:, None]
        for k in np.flatnonzero(~weights.any(axis=0))[:1]:
            raise InputError(
                f"y_train has no number in column {k}; "
                "expected a target of some row for each output."
            )
        means = (weights * np.nan_to_num(rows.targets)).sum(axis=0) / weights.sum(axis=0)
        all_outputs = self._entry(rows, means)
        if rows.weights is None:
            recorded_by = np.ones(len(is_present))
        else:
            recorded_by = rows.weights
        if self.n_outputs == 1:
            columns = None
        else:
            columns = np.arange(len(self._n_leaves))
        return [
            replace(
                all_outputs,
                table=replace(
                    all_outputs.table,
                    leaf_values=all_outputs.table.leaf_values[:, [k]],
                    columns=columns,
                ),
                initial=InitialPrediction(
                    follows_targets=all_outputs.initial.follows_targets,
                    values=all_outputs.initial.values[[k]],
                ),
                weights=replace(
                    all_outputs.weights,
                    row_weights=np.ascontiguousarray(weights[:, k]),
                    recorded_by=recorded_by,
                    scaling_weights=rows.weights,
                ),
                leaf_rule=replace(
                    all_outputs.leaf_rule,
                    l2_by_weight=all_outputs.leaf_rule.l2_by_weight and rows.weights is not None,
                ),
            )
            for k in range(self.n_outputs)
        ]

    def _entry(self, rows: TrainingRows, means: FloatArray) -> BoostedFit:
        """Return all trees, for all outputs, whose targets have these means (K,)."""
        blob = self._blob
        last = self._fits[-1]
        factor = base_factor(last, len(self._n_leaves), blob.scale, blob.bias, means)
        base_value = blob.bias / factor
        rates, l2, steps = self._regularisation(rows, base_value)
        recorded = self._recorded()
        recorded_by = self._recorded_by(rows)
        if recorded is not None and recorded_by is None:
            is_light = recorded <= self._least_weight
            is_chained = self._in_chains()
            self._require_no_light_chains(recorded[is_light & is_chained])
            l2 = np.where(is_light & ~is_chained, np.inf, l2)
        if last.leaves_zero:
            l2 = np.full_like(l2, np.inf)
        scale = blob.scale * self._shrunk_further(rows, base_value)
        if rows.at_hand:
            sparse_column = zeros_above_negatives(rows.X)
        else:
            sparse_column = None
        return BoostedFit(
            table=TreeTable(
                n_leaves=self._n_leaves,
                leaf_values=blob.scale * blob.leaf_values.reshape(-1, self.n_outputs),
                leaf_counts=self._counts(rows),
                leaf_weights=recorded,
            ),
            weights=WeightRule(recorded_by=recorded_by),
            leaf_rule=LeafRule(
                l2=l2,
                steps=steps,
                chains=self._chains,
                l2_by_weight=last.scales_l2,
                cut=self._reading.cut,
            ),
            initial=InitialPrediction(
                follows_targets=self._estimated,
                values=base_value,
            ),
            schedule=Schedule.one_by_one(rates, coefficients(last, rates, scale, factor)),
            placement=self._placement(rows),
            explain_mismatch=partial(doubt, self._reading.is_continued, sparse_column),
        )

    def _require_no_light_chains(self, recorded: FloatArray) -> None:
        """Raise for light leaves with these weights that monotone constraints pool with others."""
        if (recorded > 0).any():
            raise UnsupportedModelError(
                "sample_weight",
                f"leaves of {recorded.max():.3g} in all, with monotone_constraints",
                f"CatBoost drops rows of leaves below {self._least_weight:.2g} before it pools "
                "leaves, which is not replayed",
                "Fit with larger weights, or without monotone_constraints.",
            )

    def _placement(self, rows: TrainingRows) -> EncodedRows | None:
        """Return the training rows' leaves where the targets encode categories.

        None stands for the leaves that predictions have.
        """
        if not self.encodings:
            return None
        return EncodedRows(self._blob, self._n_leaves, rows, self.has_initial_tree)

    def _percentiles(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return one entry per output of trees whose leaf values are percentiles of residuals."""
        require_rows(rows, "loss_function", self._reading.losses[-1])
        blob = self._blob
        last = self._fits[-1]
        n_trees = len(self._n_leaves)
        ranks = rules(self._reading.last["loss_function"], rows.weights)
        one_leaf = np.zeros(len(rows.targets), dtype=np.int64)
        drawn_once = np.ones(len(rows.targets))
        starts = [
            rule.picks(one_leaf, target, drawn_once, True).value(target)
            for rule, target in zip(ranks, rows.targets.T)
        ]
        factor = base_factor(last, n_trees, blob.scale, blob.bias, np.array(starts))
        rates = np.full(n_trees, last.rate)
        if self._reading.is_continued:
            rates[:] = np.nan
        leaf_values = blob.scale * blob.leaf_values.reshape(-1, self.n_outputs)
        entries = []
        for k, rule in enumerate(ranks):
            entry = BoostedFit(
                table=TreeTable(
                    n_leaves=self._n_leaves,
                    leaf_values=leaf_values[:, [k]],
                    leaf_counts=self._counts(rows),
                    leaf_weights=self._recorded(),
                    columns=None if len(ranks) == 1 else np.arange(n_trees),
                ),
                weights=WeightRule(recorded_by=self._recorded_by(rows)),
                leaf_rule=LeafRule(l2=np.zeros(int(self._n_leaves.sum()))),
                initial=InitialPrediction(values=np.zeros(1)),
                schedule=Schedule.one_by_one(rates, coefficients(last, rates, blob.scale, factor)),
                placement=self._placement(rows),
            )
            start = float(blob.bias[k] / factor)
            slack = 4 * ROUNDING * abs(start)
            entries.append(with_base(entry, rule, rows, start if self._estimated else None, slack))
        return entries

    def _shrunk_further(self, rows: TrainingRows, base: FloatArray) -> float:
        """Return the factor by which trees that shrink() removed had multiplied the others."""
        last = self._fits[-1]
        n_trees = len(self._n_leaves)
        if not last.shrink or n_trees >= last.iterations or not (rows.at_hand or rows.leaf_totals):
            return 1.0
        mean_weight = rows.totals.weight / rows.totals.n_rows
        if self._chains is None:
            first_chains = None
        else:
            first_chains = self._chains.tree(0)
        first_stage = next(self._stages(rows, base))
        factor = shrunk_further(last, n_trees, first_stage, mean_weight, first_chains)
        if factor != 1.0 and not rows.at_hand:
            raise UnsupportedModelError(
                "training rows",
                "on several machines",
                f"trees that shrink() removed had multiplied those left by {factor:.6g}, which the "
                "first tree's rows show, and rows on machines are walked through the fit before",
                "Use axil.Explainer with all rows in memory, or fit with as many iterations as "
                "there are trees.",
            )
        return factor

    def _in_chains(self) -> BoolArray:
        """Return which leaves CatBoost pools however light they are, (L,).

        These are the leaves of trees with constrained splits.
        """
        if self._chains is None:
            return np.zeros(int(self._n_leaves.sum()), dtype=np.bool_)
        return np.repeat(self._chains.longest() > 1, self._n_leaves)

    def _recorded(self) -> FloatArray | None:
        """Return the weights of leaves that the model records, (L,); None where it does not."""
        recorded = self._blob.leaf_weights
        if len(recorded) == int(self._n_leaves.sum()):
            return recorded
        return None

    def _counts(self, rows: TrainingRows) -> NDArray[np.int64] | None:
        """Return the number of rows of each leaf, (L,).

        The model shows it where all rows weigh one and it records whole numbers.
        """
        recorded = self._recorded()
        if recorded is None or not rows.totals.even or np.any(recorded != np.rint(recorded)):
            return None
        return recorded.astype(np.int64)

    def _recorded_by(self, rows: TrainingRows) -> FloatArray | None:
        """Return the weights of the rows in this record, (N,), where they are not their own."""
        if rows.totals.even or not self._shuffled(rows) or rows.weights is None:
            return None
        has_numbers = bool(self._blob.number_features)
        fold = AveragingFold.of(rows.totals.n_rows, self._reading.last, has_numbers)
        return fold.recorded(rows.weights)

    def _shuffled(self, rows: TrainingRows) -> bool:
        """Return whether the fit shuffled the rows."""
        in_order = all(self._reading.values("data_processing_options", "has_time"))
        if in_order:
            return False
        if self.encodings:
            return True
        if not self._cat_features or not rows.at_hand:
            return False
        if rows.X is None:
            return not self._records(rows)
        limits = self._reading.values("cat_feature_params", "one_hot_max_size")
        return most_categories(rows.X, self._cat_features) > min(limit or 2 for limit in limits)

    def _records(self, rows: TrainingRows) -> bool:
        """Return whether the recorded weights of the first tree's leaves are those of the rows."""
        recorded = self._recorded()
        if recorded is None or rows.leaves is None:
            return True
        first = recorded[: self._n_leaves[0]]
        weights = np.bincount(self.leaves_of(rows)[:, 0], rows.weights, len(first))
        return len(weights) == len(first) and np.allclose(weights, first, rtol=1e-6)

    def _regularisation(
        self, rows: TrainingRows, base: FloatArray
    ) -> tuple[FloatArray, FloatArray, int | FloatArray]:
        """Return learning rates (T,), l2 (L,), and the number of steps, of all leaves or (L,)."""
        mean_weight = rows.totals.weight / rows.totals.n_rows
        if self.settles and rows.leaf_totals is not None:
            return settings_of_each_tree(self._fits, self._stages(rows, base), mean_weight)
        last = self._fits[-1]
        rates = np.full(len(self._n_leaves), last.rate)
        l2 = np.full(self._n_leaves.sum(), last.scaled_l2(mean_weight))
        return rates, l2, last.steps

    def l2_at(self, l2: FloatArray, before: float, after: float) -> FloatArray:
        """Return l2 (L,) at another mean weight.

        Several outputs keep it in float32, rounded once it is scaled.
        """
        scaled = super().l2_at(l2, before, after)
        for fit in self._fits:
            if fit.rounds_l2:
                is_of_fit = np.isclose(l2, fit.scaled_l2(before), rtol=ROUNDING, atol=0)
                scaled[is_of_fit] = fit.scaled_l2(after)
        return scaled

    def _stages(self, rows: TrainingRows, base: FloatArray) -> Iterator[Stage]:
        """Yield the sums that made the leaves of each tree.

        Only the first tree comes where the rows have not been walked through the fit.
        """
        ends = np.cumsum(self._n_leaves)[:-1]
        negligible = 1e-9 * rows.totals.largest or 1.0
        tree_values = np.split(self._blob.leaf_values.reshape(-1, self.n_outputs), ends)
        if rows.leaf_totals is None:
            yield self._first_stage(rows, base, tree_values[0], negligible)
            return
        (totals,) = rows.leaf_totals
        tree_sums = np.split(totals.sums, ends)
        tree_weights = np.split(totals.weights, ends)
        for sums, weights, values in zip(tree_sums, tree_weights, tree_values):
            yield Stage(sums, weights, values, negligible)

    def _first_stage(
        self, rows: TrainingRows, base: FloatArray, values: FloatArray, negligible: float
    ) -> Stage:
        if rows.weights is None:
            row_weights = np.ones(len(rows.targets))
        else:
            row_weights = rows.weights
        residuals = rows.targets - base
        if rows.offsets is not None:
            residuals = residuals - rows.offsets
        leaf = self._training_leaves(rows)[0]

        def leaf_sums(numbers: FloatArray) -> FloatArray:
            return np.bincount(leaf, numbers, len(values)).astype(np.float64)

        sums = [leaf_sums(row_weights * residual) for residual in residuals.T]
        return Stage(np.stack(sums, axis=1), leaf_sums(row_weights), values, negligible)

    def _training_leaves(self, rows: TrainingRows) -> LeafArray:
        """Return the leaves of the training rows in the fit, (T, N)."""
        placement = self._placement(rows)
        if placement is None or rows.leaves is not None:
            return self.leaves_of(rows).T
        leaves = np.empty((len(self._n_leaves), len(rows.targets)), dtype=np.uint16)
        placement.assign(leaves, 1)
        return leaves

    def leaves(self, X: Any) -> LeafArray:
        """Return the leaf of each row in each tree, (n, T)."""
        if X.shape[0] == 0:
            return np.zeros((0, len(self._n_leaves)), dtype=np.int32)
        return np.asarray(self._model.calc_leaf_indexes(self._pool(X)), dtype=np.int32)

    @cached_property
    def routes(self) -> Routes | None:
        """Return the routes through all trees, where all splits are on numbers."""
        return routes(self._blob, self._n_leaves)

    def table(self, X: Any) -> NDArray[np.floating[Any]] | None:
        """Return the numbers that CatBoost casts to float32; zeros of sparse rows are numbers."""
        if bool(sparse.issparse(X)):
            dense: NDArray[np.floating[Any]] = X.toarray()
            return dense
        return single_table(X)

    def predictions(self, X: Any) -> FloatArray:
        """Return what ``predict`` gives, (n, K)."""
        raw = self._model.predict(self._pool(X), prediction_type="RawFormulaVal")
        return np.asarray(raw, dtype=np.float64).reshape(X.shape[0], self.n_outputs)

    def _pool(self, X: Any) -> Any:
        return pool(X, self.feature_names, self._cat_features)

    def causes(self, what: str) -> str:
        """Return the most likely reasons for a disagreement, one per line.

        Parameters
        ----------
        what : str
            What disagrees: "counts", "weights" or "values".
        """
        if self.encodings:
            lines = [_ORDER]
        else:
            lines = []
        lines += {"counts": _COUNTS, "weights": _WEIGHTS}.get(what, _VALUES)
        if self._reading.may_bundle and what in ("counts", "weights"):
            lines.append(_BUNDLES)
        return "\n".join(lines)


_ORDER = (
    "The rows are in another order than in the fit, or their targets are: CatBoost encodes the "
    "categories of each row by the targets of the rows before it."
)
_COUNTS = (
    OTHER_ROWS,
    "The fit had sample weights: pass the same.",
    OTHER_COLUMNS,
)
_BUNDLES = (
    "CatBoost bundled columns that overlap: fit again with sparse_features_conflict_fraction=0."
)
_WEIGHTS = (
    "sample_weight is not what the fit was given: pass the same weights, in the order of the rows, "
    "or none if it had none; group weights multiply them.",
    "These are not the rows and columns that the model was fitted on, or columns were scaled or "
    "encoded otherwise.",
)
_VALUES = (
    OTHER_TARGETS,
    "The fit was given another baseline (pass it as init_score), or another sample_weight.",
    "The model was changed after its fit (set_leaf_values, set_scale_and_bias, shrink), or "
    "continued from one with other data or several other settings (init_model).",
    "It was trained on several machines, or given weights below 1e-7, which CatBoost drops.",
)
