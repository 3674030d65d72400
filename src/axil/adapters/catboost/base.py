"""What CatBoost's models say of themselves, whatever their loss.

They state their leaves, tests, recorded weights and encodings.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from axil.adapters.catboost.leaves import EncodedRows, routes
from axil.adapters.catboost.monotone import chains, signs_of
from axil.adapters.catboost.pool import most_categories, pool
from axil.adapters.catboost.refusals import MISSING, CatBoostReading
from axil.adapters.catboost.settings import (
    fit_settings,
)
from axil.adapters.catboost.split_outcomes import outcome_tests, outcomes
from axil.adapters.contract import Rounding, TrainingRows, TreeModel
from axil.adapters.frames import single_table
from axil.adapters.refusals import (
    OTHER_COLUMNS,
    OTHER_ROWS,
    OTHER_TARGETS,
)
from axil.adapters.routes import FeatureTests, Routes
from axil.aliases import FeatureTable, ForeignModel, ForeignObject, TableLike
from axil.arrays import BoolArray, FloatArray, LeafArray, RealArray
from axil.errors import InputError, UnsupportedModelError
from axil.structure import Chains

ROUNDING = 2.0**-24  # of float32, relative
NO_TREES = "This CatBoost model has no trees: fit it with iterations of at least 1."


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
    rounding = Rounding(targets=np.float32, offsets=np.float32, initial=np.float32)
    takes_text = True  # as categories
    tells_kinds_apart = True  # categories are whole numbers or text, and no real numbers

    def __init__(self, model: ForeignModel, reading: CatBoostReading):
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
        self._read_leaf_rule()
        # A continued fit starts from the model before and says boost_from_average=False.
        self._estimated = self._fits[-1].from_average or bool(np.any(self._blob.bias != 0))
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

    def _read_leaf_rule(self) -> None:
        """Read how the leaf values follow from the rows."""
        is_multi_rmse = any(loss.startswith("MultiRMSE") for loss in self._reading.losses)
        # CatBoost leaves lighter leaves at 0 (CalcLeafDers,
        # catboost/private/libs/algo/approx_calcer.cpp).
        if is_multi_rmse:
            self._least_weight = 0.0
        else:
            self._least_weight = float(np.finfo(np.float32).eps)
        self.missing_targets = MISSING in self._reading.losses
        self._chains: Chains | None = None
        if self._reading.pools_leaves and not self._reading.has_percentile_leaves:
            signs = signs_of(self._reading.last)
            if signs:
                self._chains = chains(self._blob, signs)

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
            self.rounding = replace(self.rounding, residuals=np.float32)
            self.tolerance = max(1e-6, 3 * ROUNDING * float(np.sqrt(len(self._n_leaves))))
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

    def _with_light_leaves(self, l2: FloatArray, recorded_weights: FloatArray | None) -> FloatArray:
        """Return l2, (L,): infinite for leaves so light that CatBoost keeps their value at zero.

        ``recorded_weights`` (L,) are those of the leaves; None: they are not known.
        """
        if recorded_weights is None:
            return l2
        is_light = recorded_weights <= self._least_weight
        is_chained = self._in_chains()
        self._require_no_light_chains(recorded_weights[is_light & is_chained])
        return np.where(is_light & ~is_chained, np.inf, l2)

    def _require_no_light_chains(self, recorded: FloatArray) -> None:
        """Raise for light leaves with these weights that monotone constraints pool with others."""
        if (recorded > 0).any():
            raise UnsupportedModelError(
                "sample_weight",
                f"leaves of {recorded.max():.3g} in all, with monotone_constraints",
                f"CatBoost drops leaves that weigh less than {self._least_weight:.2g} before it "
                "pools leaves, and axil does not replay this",
                "Fit with larger weights, or without monotone_constraints.",
            )

    def _placement(self, rows: TrainingRows) -> EncodedRows | None:
        """Return the training rows' leaves if the targets encode categories.

        None stands for the leaves that predictions have.
        """
        if not self.encodings:
            return None
        return EncodedRows(self._blob, self._n_leaves, rows, self.has_initial_tree)

    def _in_chains(self) -> BoolArray:
        """Return which leaves CatBoost pools even if they are light, (L,).

        These are the leaves of trees with constrained splits.
        """
        if self._chains is None:
            return np.zeros(int(self._n_leaves.sum()), dtype=np.bool_)
        return np.repeat(self._chains.longest() > 1, self._n_leaves)

    def _recorded(self) -> FloatArray | None:
        """Return the weights of leaves that the model records, (L,); None if it does not."""
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
        """Return whether the recorded leaf weights of the first tree agree with the rows."""
        recorded = self._recorded()
        if recorded is None or rows.leaves is None:
            return True
        first = recorded[: self._n_leaves[0]]
        weights = np.bincount(self.leaves_of(rows)[:, 0], rows.weights, len(first))
        return len(weights) == len(first) and np.allclose(weights, first, rtol=1e-6)

    def leaves(self, X: FeatureTable) -> LeafArray:
        """Return the leaf of each row in each tree, (n, T)."""
        if X.shape[0] == 0:
            return np.zeros((0, len(self._n_leaves)), dtype=np.int32)
        return np.asarray(self._model.calc_leaf_indexes(self._pool(X)), dtype=np.int32)

    @cached_property
    def routes(self) -> Routes | None:
        """Return the routes through all trees, if all splits are on numbers."""
        return routes(self._blob, self._n_leaves)

    def table(self, X: FeatureTable) -> RealArray | None:
        """Return the numbers that CatBoost casts to float32; zeros of sparse rows are numbers."""
        if bool(sparse.issparse(X)):
            dense: RealArray = X.toarray()
            return dense
        return single_table(X)

    def predictions(self, X: FeatureTable) -> FloatArray:
        """Return the predictions of ``predict``, (n, K)."""
        raw = self._model.predict(self._pool(X), prediction_type="RawFormulaVal")
        return np.asarray(raw, dtype=np.float64).reshape(X.shape[0], self.n_outputs)

    def feature_tests(self) -> FeatureTests | None:
        """Return the tests of all trees, on columns or on outcomes of splits."""
        if self.routes is not None:
            return FeatureTests([self.routes])
        return outcome_tests(self._blob, self._n_leaves)

    def tested_values(self, X: TableLike) -> FloatArray | None:
        """Return the numbers that these tests look at, (n, columns)."""
        if self.routes is not None:
            return super().tested_values(X)
        return outcomes(self._blob, self.leaves(X))

    def _pool(self, X: TableLike) -> ForeignObject:
        return pool(X, self.feature_names, self._cat_features)

    def causes(self, mismatch: str) -> str:
        """Return the most likely reasons for a disagreement, one per line.

        Parameters
        ----------
        mismatch : str
            What disagrees: "counts", "weights" or "values".
        """
        if self.encodings:
            lines = [_ORDER]
        else:
            lines = []
        lines += {"counts": _COUNTS, "weights": _WEIGHTS}.get(mismatch, _VALUES)
        if self._reading.may_bundle and mismatch in ("counts", "weights"):
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
    "The fit used another baseline (pass it as init_score), or another sample_weight.",
    "The model was changed after its fit (set_leaf_values, set_scale_and_bias, shrink), or "
    "continued from one with other data or several other settings (init_model).",
    "It was trained on several machines, or given weights below 1e-7, which CatBoost drops.",
)
