"""Reading: what the text of a LightGBM model and its settings say about the fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from axil.adapters.lightgbm.percentile import PERCENTILES
from axil.adapters.lightgbm.text import LightGBMSettings, ModelText


@dataclass(frozen=True)
class LightGBMReading:
    """The text of a model and its settings: all that refusals look at, and that decides how leaves are replayed."""

    text: ModelText
    settings: LightGBMSettings
    refit: str  #: the decay rate of Booster.refit, empty where the model was not refit as far as can be seen
    stops_early: str = ""  #: pred_early_stop of an estimator, which its predict hands to the booster; empty: it does not stop
    own_objective: bool = False  #: whether the user gave the function that it was fitted with

    @property
    def subset_features(self) -> frozenset[int]:
        """Categorical features whose splits group categories, with cat_l2, rather than split one from the rest.

        LightGBM splits one against the rest iff the feature has at most max_cat_to_onehot bins
        (src/treelearner/feature_histogram.cpp).
        """
        most = self.settings.number("max_cat_to_onehot")
        return frozenset(
            feature for feature, bins in self.text.category_counts.items() if bins > most
        )

    @property
    def splits_subsets(self) -> bool:
        """Whether any split groups categories."""
        features = self.subset_features
        return bool(features) and any(tree.splits_on(features).any() for tree in self.text.trees)

    @property
    def forest(self) -> bool:
        """boosting="rf": predictions are averages over trees."""
        return "average_output" in self.text.header

    @property
    def no_features(self) -> bool:
        """Whether no column can be split: all are constant, or split by fewer rows than a leaf must have."""
        return set(self.text.header.get("feature_infos", "").split()) <= {"none"}

    @property
    def machines(self) -> int:
        """On how many machines it was trained; on several, leaves count rows by their weights, not one by one."""
        return int(self.settings.number("num_machines") or 1)

    @property
    def cuda(self) -> bool:
        """Whether the learner for CUDA grew the trees."""
        return self.settings.text("device_type") == "cuda"

    @property
    def on_gpu(self) -> bool:
        return self.settings.text("device_type") in ("gpu", "cuda")

    @property
    def adds_in_single(self) -> bool:
        """Whether a GPU added up histograms in float32."""
        return self.on_gpu and not self.settings.flag("gpu_use_dp")

    @property
    def counts_rows(self) -> bool:
        """Whether leaves count rows one by one: on several machines, and on CUDA, they do so by weights."""
        return self.machines == 1 and not self.cuda

    @property
    def monotone_signs(self) -> NDArray[np.int64]:
        """(features,): 1 where predictions must rise with a feature, -1 where they must fall, else 0."""
        written = self.text.header.get("monotone_constraints") or self.settings.text(
            "monotone_constraints"
        )
        signs = np.zeros(self.text.n_features, dtype=np.int64)
        if self.cuda:  # which does not enforce them
            return signs
        given = [int(sign) for sign in written.replace(",", " ").split()]
        signs[: len(given)] = given
        return signs

    @property
    def monotone_method(self) -> str:
        """How bounds are kept; LightGBM writes the method that it took, where it did not take the one it was given."""
        return self.settings.text("monotone_constraints_method") or "basic"

    @property
    def refitted(self) -> bool:
        """Whether Booster.refit with decay_rate=0 has computed all leaf values again."""
        return self.refit != "" and float(self.refit) == 0.0

    def beside(self, value: str, *names: str) -> str:
        """A value with the first of these settings that the model has beside it; empty: it has none."""
        special = {
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
        has = (
            name
            for name in names
            if (special[name] if name in special else self.settings.number(name) > 0)
        )
        shown = {"objective": f"objective={self.text.objective}"}
        return next((f"{value} with {shown.get(name, name)}" for name in has), "")

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
        return self.settings.text("boosting") == "dart"

    @property
    def bags(self) -> bool:
        """Whether each tree has rows drawn at random; the fractions of positive and negative rows are for classes only."""
        return (
            self.settings.number("bagging_fraction") < 1
            and self.settings.number("bagging_freq") > 0
        )

    @property
    def _bags_by_class(self) -> bool:
        """Whether rows of two classes are drawn with a fraction for each."""
        fractions = [
            self.settings.text(f"{name}_bagging_fraction") or "1" for name in ("pos", "neg")
        ]
        has_fractions = any(float(fraction) < 1 for fraction in fractions)
        return (
            has_fractions
            and self.text.objective.startswith("binary")
            and self.settings.number("bagging_freq") > 0
        )

    @property
    def goss(self) -> bool:
        """Whether rows are drawn by their gradients; before 4.2 the text does not say, but trees of fewer rows do."""
        strategy = self.settings.text("data_sample_strategy")
        if strategy or "goss" in self.settings.given("boosting"):
            return strategy in ("goss", "")
        if self.bags or self._bags_by_class:
            return False
        split = [tree for tree in self.text.trees if tree.n_leaves > 1]
        return len({int(tree.leaf_counts(0).sum()) for tree in split}) > 1
