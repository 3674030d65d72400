"""The tests of a model's trees, and the features that they look at."""

from __future__ import annotations

from dataclasses import dataclass

from axil.adapters.routes import Routes


@dataclass(frozen=True)
class FeatureTests:
    """The tests of T trees on the columns of `TreeModel.tested_values`."""

    #: the trees, some at a time, in the order of the model
    routes: list[Routes]
    #: of each tested column the features that it follows from; None: the columns are the features
    sources: list[tuple[int, ...]] | None = None
