"""Reading: what the text of a LightGBM model and its settings say about the fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from axil.adapters.lightgbm.percentile import PERCENTILES
from axil.adapters.lightgbm.text import LightGBMSettings, ModelText


@dataclass(frozen=True)
class LightGBMReading:
    """The text of a model and its settings.

    Refusals look at these alone, and these decide how leaves are replayed.
    """

    text: ModelText
    settings: LightGBMSettings
    #: the decay rate of Booster.refit, empty where the model was not refit as far as can be seen
    refit: str
    #: pred_early_stop of an estimator, which its predict hands to the booster; empty: it does not
    #: stop
    stops_early: str = ""
    own_objective: bool = False  #: whether the user gave the function that it was fitted with

    @property
    def subset_features(self) -> frozenset[int]:
        """The categorical features whose splits group categories, with cat_l2.

        LightGBM splits one category against the rest iff the feature has at most max_cat_to_onehot
        bins, and groups categories otherwise
        (src/treelearner/feature_histogram.cpp).
        """
        most_bins = self.settings.number("max_cat_to_onehot")
        counts = self.text.category_counts
        return frozenset(feature for feature, n_bins in counts.items() if n_bins > most_bins)

    @property
    def splits_subsets(self) -> bool:
        """Whether any split groups categories."""
        features = self.subset_features
        return bool(features) and any(tree.splits_on(features).any() for tree in self.text.trees)

    @property
    def forest(self) -> bool:
        """Whether predictions are averages over trees (boosting="rf")."""
        return "average_output" in self.text.header

    @property
    def no_features(self) -> bool:
        """Whether no column can be split.

        All columns are constant, or split by fewer rows than a leaf must have.
        """
        return set(self.text.header.get("feature_infos", "").split()) <= {"none"}

    @property
    def machines(self) -> int:
        """The number of machines that it was trained on.

        On several, leaves count rows by their weights, not one by one.
        """
        return int(self.settings.number("num_machines") or 1)

    @property
    def cuda(self) -> bool:
        """Whether the learner for CUDA grew the trees."""
        return self.settings.text("device_type") == "cuda"

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU added up histograms."""
        return self.settings.text("device_type") in ("gpu", "cuda")

    @property
    def adds_in_single(self) -> bool:
        """Whether a GPU added up histograms in single precision."""
        return self.on_gpu and not self.settings.flag("gpu_use_dp")

    @property
    def counts_rows(self) -> bool:
        """Whether leaves count rows one by one.

        On several machines, and on CUDA, they count them by weights.
        """
        return self.machines == 1 and not self.cuda

    @property
    def monotone_signs(self) -> NDArray[np.int64]:
        """The sign of the monotone constraint of each feature, (features,): 1, -1 or 0."""
        signs = np.zeros(self.text.n_features, dtype=np.int64)
        if self.cuda:  # which does not enforce them
            return signs
        written = self.text.header.get("monotone_constraints")
        written = written or self.settings.text("monotone_constraints")
        first_signs = [int(sign) for sign in written.replace(",", " ").split()]
        signs[: len(first_signs)] = first_signs
        return signs

    @property
    def monotone_method(self) -> str:
        """The method of the bounds, which may differ from the setting."""
        return self.settings.text("monotone_constraints_method") or "basic"

    @property
    def refitted(self) -> bool:
        """Whether Booster.refit with decay_rate=0 has computed all leaf values again."""
        return self.refit != "" and float(self.refit) == 0.0

    def beside(self, value: str, *names: str) -> str:
        """Return a value followed by the first of these settings that the model has too.

        It is empty if there is none.
        """
        is_set = {
            "objective": self.ranked or self.cuts,
            "boosting=dart": self.dart,
            "boosting=rf": self.forest,
            "GOSS": self.goss,
            "Booster.refit": self.refit,
            "monotone_constraints": self.monotone_signs.any(),
            "forcedsplits_filename": self.settings.text("forcedsplits_filename"),
            "num_machines": self.machines > 1,
            "device_type": self.on_gpu,
            "device_type=cuda": self.cuda,
        }
        for name in names:
            if name in is_set:
                has_setting = is_set[name]
            else:
                has_setting = self.settings.number(name) > 0
            if has_setting and name == "objective":
                return f"{value} with objective={self.text.objective}"
            if has_setting:
                return f"{value} with {name}"
        return ""

    @property
    def ranked(self) -> bool:
        """Whether leaf values are percentiles of residuals."""
        return self.text.objective in PERCENTILES

    @property
    def cuts(self) -> bool:
        """Whether residuals are cut off at alpha."""
        return self.text.objective == "huber"

    @property
    def linear(self) -> bool:
        """Whether leaves are regressions on features."""
        return any(tree.is_linear for tree in self.text.trees)

    @property
    def dart(self) -> bool:
        """Whether trees are dropped while it is trained (boosting="dart")."""
        return self.settings.text("boosting") == "dart"

    @property
    def samples_rows(self) -> bool:
        """Whether each tree has rows sampled at random.

        The fractions of positive and negative rows are for classes only.
        """
        has_fraction = self.settings.number("bagging_fraction") < 1
        return has_fraction and self.settings.number("bagging_freq") > 0

    @property
    def _samples_by_class(self) -> bool:
        """Whether rows of two classes are sampled with a fraction for each."""
        names = ("pos_bagging_fraction", "neg_bagging_fraction")
        has_fractions = any(float(self.settings.text(name) or 1) < 1 for name in names)
        has_two_classes = self.text.objective.startswith("binary")
        return has_fractions and has_two_classes and self.settings.number("bagging_freq") > 0

    @property
    def goss(self) -> bool:
        """Whether rows are sampled by their gradients.

        Before 4.2 the text does not say, but trees of fewer rows do.
        """
        strategy = self.settings.text("data_sample_strategy")
        if strategy or "goss" in self.settings.given("boosting"):
            return strategy in ("goss", "")
        if self.samples_rows or self._samples_by_class:
            return False
        trees_with_splits = [tree for tree in self.text.trees if tree.n_leaves > 1]
        row_counts = {int(tree.leaf_counts(0).sum()) for tree in trees_with_splits}
        return len(row_counts) > 1
