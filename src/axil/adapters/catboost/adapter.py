"""CatBoost models of squared error, medians, quantiles and Huber: CatBoostRegressor, CatBoost; in memory, pickled, in a file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from axil.adapters.boosted_fit import BoostedFit, Schedule
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
    fit,
    settings_of_each_tree,
    shrunk_further,
)
from axil.adapters.causes import OTHER_COLUMNS, OTHER_ROWS, OTHER_TARGETS
from axil.adapters.contract import TrainingRows, TreeModel
from axil.adapters.frames import single_table
from axil.adapters.percentiles import require_rows, with_base
from axil.adapters.refusals import not_fitted, refuse
from axil.adapters.routes import Routes
from axil.arrays import BoolArray, FloatArray
from axil.errors import InputError, UnsupportedModelError

ROUNDING = 2.0**-24  # of float32, relative


def read(model: Any, leaves_only: bool = False) -> CatBoostAdapter | None:
    """The adapter for a CatBoost model, None for any other object; of one whose leaves alone are read nothing is refused."""
    return CatBoostAdapter(model, leaves_only) if is_fitted(model) else None


def is_fitted(model: Any) -> bool:
    """Whether an object is a model of CatBoost; raises for one that has not been fitted."""
    import catboost

    if isinstance(model, catboost.CatBoost) and not model.is_fitted():
        raise not_fitted(model)
    return isinstance(model, catboost.CatBoost)


def own_copy(model: Any) -> Any:
    """Return a copy of the model, which can be changed in place (shrink, set_leaf_values); itself where CatBoost makes none.

    CatBoost writes a bias of 1e17 as a whole number into its JSON and does not read that back.
    """
    import catboost

    try:
        return model.copy()
    except catboost.CatBoostError:
        return model


class CatBoostAdapter(TreeModel):
    """All trees of a CatBoost model: ``use_best_model`` drops those after the best iteration in the fit itself.

    Every row counts in every leaf, whatever the bootstrap: it, random_strength, rsm and Ordered boosting only choose
    splits (the averaging fold, CalcLeafValues, catboost/private/libs/algo/approx_calcer.cpp). CatBoost keeps targets,
    weights, offsets and the mean it starts from in float32, residuals and scores in float64: a replay that begins with
    its mean meets its leaves to the last digits, one that begins with the mean itself is 6e-8 of it off. A GPU keeps residuals
    and scores in float32 as well (catboost/cuda/methods), and a replay that rounds likewise meets its leaves.
    """

    library = "CatBoost"
    unseen = "CatBoost encodes such a value by the prior alone, and no test for a single category finds it."
    refusals = REFUSALS
    precision = np.float32
    residual_precision: type[np.floating[Any]] = np.float64
    score_precision: type[np.floating[Any]] = np.float64
    offset_precision = np.float32
    base_precision = np.float32
    takes_text = True  # as categories
    tells_kinds_apart = True  # categories are whole numbers or text, and no real numbers

    def __init__(self, model: Any, leaves_only: bool = False):
        self._model = model = own_copy(model)
        self._blob = parse(model._serialize_model())
        names = [str(name) for name in model.feature_names_]
        self._reading = CatBoostReading(self._blob)
        refuse(() if leaves_only else self.refusals, self._reading)
        self._fits = [fit(settings) for settings in self._blob.settings]
        self.leaf_steps = max(fit.steps for fit in self._fits)
        self._n_leaves = np.asarray(model.get_tree_leaf_counts(), dtype=np.int64)
        if len(self._n_leaves) == 0:
            raise InputError(
                "This CatBoost model has no trees: fit it with iterations of at least 1."
            )
        self.encodings = self._blob.features("target statistics")
        self._cat_features = [int(i) for i in model.get_cat_feature_indices()]
        self.records_other_weights = bool(
            self._cat_features
        )  # those of rows that were shuffled for the categories
        self.n_features = len(names)
        self.feature_names: list[str] | None = (
            None if names == [str(i) for i in range(len(names))] else names
        )
        self.n_outputs = self._blob.n_outputs
        # CatBoost leaves lighter leaves at 0 (CalcLeafDers, catboost/private/libs/algo/approx_calcer.cpp).
        several = any(loss.startswith("MultiRMSE") for loss in self._reading.losses)
        self._least_weight = 0.0 if several else float(np.finfo(np.float32).eps)
        signs = {} if several else signs_of(self._reading.last)  # which it does not enforce
        self.missing_targets = MISSING in self._reading.losses
        self.starts_with_base = self._reading.ranked and not leaves_only
        self.repeats_targets = self.starts_with_base
        self._chains = chains(self._blob, signs) if signs and not self.starts_with_base else None
        # A continued fit starts from the model before and says boost_from_average=False.
        self._estimated = self._fits[-1].from_average or bool(np.any(self._blob.bias != 0))
        self.settles = self._reading.continued and not self.starts_with_base
        self._set_tolerances()
        self.fingerprint = self._fingerprint()

    def _set_tolerances(self) -> None:
        """How closely predictions and leaf values can agree.

        Targets and their mean are kept in float32, off by up to 6e-8 of themselves, and predictions can be a fraction of
        them. Backtracking drops a step that, by rounding, does not lower the loss: the loss has 16 digits and is flat at its
        minimum, so some 1e-8 of a leaf. A GPU makes a leaf value in float32: its sum, its weight, their quotient and the rate
        times that are rounded; and a score, to which it adds tree by tree, loses half a digit more with every tree.
        """
        self.tolerance, self.leaf_tolerance = (
            1e-6,
            1e-6 if any(fit.backtracks for fit in self._fits) else 1e-12,
        )
        if self._reading.on_gpu:
            self.residual_precision = self.score_precision = np.float32
            self.tolerance = max(1e-6, 3 * ROUNDING * float(np.sqrt(len(self._n_leaves))))
            self.leaf_tolerance = 4 * ROUNDING
        if self.starts_with_base:  # residuals and percentiles of them are in float32
            self.residual_precision, self.leaf_tolerance = np.float32, 4 * ROUNDING

    def _fingerprint(self) -> str:
        """Digest of splits, leaf values, scale and bias; in float32, because JSON loses a last digit."""
        blob = self._blob
        digest = hashlib.sha256(blob.splits)
        for numbers in (
            self._n_leaves,
            *(np.float32(part) for part in (blob.leaf_values, blob.bias, blob.scale)),
        ):
            digest.update(numbers.tobytes())
        return digest.hexdigest()

    def spelling(self, name: str) -> str:
        """CatBoost keeps names as they are, and names a column that has none by its position."""
        numbered = [own for i, own in enumerate(self.feature_names or []) if own == str(i)]
        return numbered[0] if name == "" and len(numbered) == 1 else name

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """All trees in one entry: they serve every output; where targets are missing, one entry per output."""
        if self.starts_with_base:
            return self._percentiles(rows)
        if self.missing_targets and np.isnan(rows.targets).any():
            return self._with_missing(rows)
        return [self._entry(rows, rows.totals.means)]

    def _with_missing(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return one entry per output, in which rows without its target have no weight; l2 follows the weights of all rows."""
        there = ~np.isnan(rows.targets)
        weights = there * (1.0 if rows.weights is None else rows.weights[:, None])
        for k in np.flatnonzero(~weights.any(axis=0))[:1]:
            raise InputError(
                f"y_train has no number in column {k}; expected a target of some row for each output."
            )
        means = (weights * np.nan_to_num(rows.targets)).sum(axis=0) / weights.sum(axis=0)
        whole = self._entry(rows, means)
        return [
            replace(
                whole,
                leaf_values=whole.leaf_values[:, [k]],
                base=None if whole.base is None else whole.base[[k]],
                base_value=whole.base_value[[k]],
                row_weights=np.ascontiguousarray(weights[:, k]),
                recorded_by=np.ones(len(there)) if rows.weights is None else rows.weights,
                columns=None if self.n_outputs == 1 else np.arange(len(self._n_leaves)),
                l2_by_weight=whole.l2_by_weight and rows.weights is not None,
                scaling_weights=rows.weights,
            )
            for k in range(self.n_outputs)
        ]

    def _entry(self, rows: TrainingRows, means: FloatArray) -> BoostedFit:
        """All trees, for all outputs, whose targets have these means (K,)."""
        blob, n_trees, last = self._blob, len(self._n_leaves), self._fits[-1]
        factor = base_factor(last, n_trees, blob.scale, blob.bias, means)
        base_value = blob.bias / factor
        rates, l2, steps = self._regularisation(rows, base_value)
        recorded, recorded_by = self._recorded(), self._recorded_by(rows)
        if recorded is not None and recorded_by is None:
            light, chained = recorded <= self._least_weight, self._in_chains()
            if (light & chained & (recorded > 0)).any():
                raise UnsupportedModelError(
                    "sample_weight",
                    f"leaves of {recorded[light & chained].max():.3g} in all, with monotone_constraints",
                    f"CatBoost drops rows of leaves below {self._least_weight:.2g} before it pools leaves, which is not replayed",
                    "Fit with larger weights, or without monotone_constraints.",
                )
            l2 = np.where(light & ~chained, np.inf, l2)
        if last.leaves_zero:
            l2 = np.full_like(l2, np.inf)
        scale = blob.scale * self._shrunk_further(rows, base_value)
        return BoostedFit(
            n_leaves=self._n_leaves,
            leaf_values=blob.scale * blob.leaf_values.reshape(-1, self.n_outputs),
            leaf_counts=self._counts(rows),
            leaf_weights=recorded,
            recorded_by=recorded_by,
            l2=l2,
            schedule=Schedule.one_by_one(rates, coefficients(last, rates, scale, factor)),
            base=None if self._estimated else np.zeros(self.n_outputs),
            base_value=base_value,
            steps=steps,
            chains=self._chains,
            l2_by_weight=last.scales_l2,
            placement=self._placement(rows),
            cut=self._reading.cut,
            explain_mismatch=partial(
                doubt,
                self._reading.continued,
                zeros_above_negatives(rows.X) if rows.at_hand else None,
            ),
        )

    def _placement(self, rows: TrainingRows) -> EncodedRows | None:
        """The training rows' leaves where categories were encoded by the targets; else those of predictions."""
        return (
            EncodedRows(self._blob, self._n_leaves, rows, self.starts_with_base)
            if self.encodings
            else None
        )

    def _percentiles(self, rows: TrainingRows) -> list[BoostedFit]:
        """One entry per output of trees whose leaf values are percentiles of residuals."""
        require_rows(rows, "loss_function", self._reading.losses[-1])
        blob, n_trees, last = self._blob, len(self._n_leaves), self._fits[-1]
        ranks = rules(self._reading.last["loss_function"], rows.weights)
        everyone, once = np.zeros(len(rows.targets), dtype=np.int64), np.ones(len(rows.targets))
        starts = [
            rule.picks(everyone, rows.targets[:, k], once, True).value(rows.targets[:, k])
            for k, rule in enumerate(ranks)
        ]
        factor = base_factor(last, n_trees, blob.scale, blob.bias, np.array(starts))
        rates = np.full(n_trees, np.nan if self._reading.continued else last.rate)
        entries = []
        for k, rule in enumerate(ranks):
            entry = BoostedFit(
                n_leaves=self._n_leaves,
                leaf_values=blob.scale * blob.leaf_values.reshape(-1, self.n_outputs)[:, [k]],
                leaf_counts=self._counts(rows),
                leaf_weights=self._recorded(),
                recorded_by=self._recorded_by(rows),
                l2=np.zeros(int(self._n_leaves.sum())),
                schedule=Schedule.one_by_one(rates, coefficients(last, rates, blob.scale, factor)),
                base=np.zeros(1),
                base_value=np.zeros(1),
                columns=None if len(ranks) == 1 else np.arange(n_trees),
                placement=self._placement(rows),
            )
            start = float(blob.bias[k] / factor)
            entries.append(
                with_base(
                    entry, rule, rows, start if self._estimated else None, 4 * ROUNDING * abs(start)
                )
            )
        return entries

    def _shrunk_further(self, rows: TrainingRows, base: FloatArray) -> float:
        """Factor by which trees that are no longer there had multiplied the others."""
        last, n_trees = self._fits[-1], len(self._n_leaves)
        if not last.shrink or n_trees >= last.iterations or not (rows.at_hand or rows.leaf_totals):
            return 1.0
        mean_weight = rows.totals.weight / rows.totals.n_rows
        first = None if self._chains is None else self._chains.tree(0)
        factor = shrunk_further(last, n_trees, next(self._stages(rows, base)), mean_weight, first)
        if factor != 1.0 and not rows.at_hand:
            raise UnsupportedModelError(
                "training rows",
                "on several machines",
                f"trees that shrink() removed had multiplied those left by {factor:.6g}, which the first tree's rows show, and "
                "rows on machines are walked through the fit before",
                "Use axil.Explainer with all rows in memory, or fit with as many iterations as there are trees.",
            )
        return factor

    def _in_chains(self) -> BoolArray:
        """(L,): leaves of trees with constrained splits, which are pooled however light they are."""
        if self._chains is None:
            return np.zeros(int(self._n_leaves.sum()), dtype=np.bool_)
        return np.repeat(self._chains.longest() > 1, self._n_leaves)

    def _recorded(self) -> FloatArray | None:
        """(L,): the weights of leaves that the model records, if it does."""
        recorded = self._blob.leaf_weights
        return recorded if len(recorded) == int(self._n_leaves.sum()) else None

    def _counts(self, rows: TrainingRows) -> NDArray[np.int64] | None:
        """(L,): the rows of leaves, where all weigh one and the model records whole numbers."""
        recorded = self._recorded()
        whole = recorded is not None and rows.totals.even and np.all(recorded == np.rint(recorded))
        return recorded.astype(np.int64) if recorded is not None and whole else None

    def _recorded_by(self, rows: TrainingRows) -> FloatArray | None:
        """(N,): the weights that rows have in this record, where they are not their own."""
        if rows.totals.even or not self._shuffled(rows) or rows.weights is None:
            return None
        return AveragingFold.of(
            rows.totals.n_rows, self._reading.last, bool(self._blob.number_features)
        ).recorded(rows.weights)

    def _shuffled(self, rows: TrainingRows) -> bool:
        """Whether the fit shuffled the rows."""
        in_order = all(self._reading.values("data_processing_options", "has_time"))
        if not self._cat_features or in_order or self.encodings:
            return bool(self.encodings) and not in_order
        if not rows.at_hand or rows.X is None:
            return False
        encoded = min(
            size or 2 for size in self._reading.values("cat_feature_params", "one_hot_max_size")
        )
        return most_categories(rows.X, self._cat_features) > encoded

    def _regularisation(
        self, rows: TrainingRows, base: FloatArray
    ) -> tuple[FloatArray, FloatArray, int | FloatArray]:
        """rates (T,), l2 (L,) and steps."""
        n_trees, last = len(self._n_leaves), self._fits[-1]
        mean_weight = rows.totals.weight / rows.totals.n_rows
        if not self.settles or rows.leaf_totals is None:
            return (
                np.full(n_trees, last.rate),
                np.full(self._n_leaves.sum(), last.scaled_l2(mean_weight)),
                last.steps,
            )
        return settings_of_each_tree(self._fits, self._stages(rows, base), mean_weight)

    def l2_at(self, l2: FloatArray, before: float, after: float) -> FloatArray:
        """Return l2 (L,) at another mean weight; several outputs keep it in float32, rounded once it is scaled."""
        scaled = super().l2_at(l2, before, after)
        for settings in self._fits:
            if settings.rounds_l2:
                scaled[np.isclose(l2, settings.scaled_l2(before), rtol=ROUNDING, atol=0)] = (
                    settings.scaled_l2(after)
                )
        return scaled

    def _stages(self, rows: TrainingRows, base: FloatArray) -> Iterator[Stage]:
        """The sums that made the leaves of each tree; of the first alone where the rows have not been walked through the fit."""
        ends, negligible = np.cumsum(self._n_leaves)[:-1], 1e-9 * rows.totals.largest or 1.0
        values = np.split(self._blob.leaf_values.reshape(-1, self.n_outputs), ends)
        if rows.leaf_totals is not None:
            (found,) = rows.leaf_totals
            parts = zip(np.split(found.sums, ends), np.split(found.weights, ends), values)
            yield from (Stage(*part, negligible) for part in parts)
            return
        w = np.ones(len(rows.targets)) if rows.weights is None else rows.weights
        residuals = (
            rows.targets - base if rows.offsets is None else rows.targets - base - rows.offsets
        )
        leaf, own = self._training_leaves(rows)[0], values[0]
        weights, *sums = (
            np.bincount(leaf, each, len(own)).astype(np.float64) for each in (w, *(w * residuals.T))
        )
        yield Stage(np.stack(sums, axis=1), weights, own, negligible)

    def _training_leaves(self, rows: TrainingRows) -> NDArray[np.integer[Any]]:
        """(T, N)."""
        placement = self._placement(rows)
        if placement is None:
            return self.leaves(rows.X).T
        found = np.empty((len(self._n_leaves), len(rows.targets)), dtype=np.uint16)
        placement.assign(found, 1)
        return found

    def leaves(self, X: Any) -> NDArray[np.integer[Any]]:
        """(n, T): which leaf of each tree every row falls into."""
        if X.shape[0] == 0:
            return np.zeros((0, len(self._n_leaves)), dtype=np.int32)
        return np.asarray(self._model.calc_leaf_indexes(self._pool(X)), dtype=np.int32)

    @cached_property
    def routes(self) -> Routes | None:
        """The way of a row through every tree, where all splits are on numbers."""
        return routes(self._blob, self._n_leaves)

    def table(self, X: Any) -> NDArray[np.floating[Any]] | None:
        """The numbers that CatBoost casts to float32; of sparse rows zeros are numbers like others."""
        return X.toarray() if bool(sparse.issparse(X)) else single_table(X)

    def predictions(self, X: Any) -> FloatArray:
        """(n, K): what ``predict`` gives."""
        found = self._model.predict(self._pool(X), prediction_type="RawFormulaVal")
        return np.asarray(found, dtype=np.float64).reshape(X.shape[0], self.n_outputs)

    def _pool(self, X: Any) -> Any:
        return pool(X, self.feature_names, self._cat_features)

    def causes(self, what: str) -> str:
        """The most likely reasons for a disagreement in "counts", "weights" or "values", one per line."""
        bundles = (_BUNDLES,) if self._reading.bundles else ()
        found = {"counts": (*_COUNTS, *bundles), "weights": (*_WEIGHTS, *bundles)}
        return "\n".join((*((_ORDER,) if self.encodings else ()), *found.get(what, _VALUES)))


_ORDER = (
    "The rows are in another order than in the fit, or their targets are: CatBoost encodes the categories of each row by the "
    "targets of the rows before it."
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
    "sample_weight is not what the fit was given: pass the same weights, in the order of the rows, or none if it had none; group "
    "weights multiply them.",
    "These are not the rows and columns that the model was fitted on, or columns were scaled or encoded otherwise.",
)
_VALUES = (
    OTHER_TARGETS,
    "The fit was given another baseline (pass it as init_score), or another sample_weight.",
    "The model was changed after its fit (set_leaf_values, set_scale_and_bias, shrink), or continued from one with other data or "
    "several other settings (init_model).",
    "It was trained on several machines, or given weights below 1e-7, which CatBoost drops.",
)
