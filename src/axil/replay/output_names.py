"""OutputNames: how users name the outputs of a model, and the classes that it predicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from axil.arrays import AnyArray


@dataclass(frozen=True, eq=False)
class OutputNames:
    """The names of the outputs of a verified model, and of the classes that it predicts."""

    outputs: AnyArray | None  #: the classes or the numbers of the outputs, (K,); None for one
    classes: AnyArray | None  #: the classes of the targets, (C,); None for numeric targets
    class_names: AnyArray | None  #: the predicted classes, (C,); None for numbers
    chosen_class: Any = None  #: the class of two that the user chose, where each has an output

    @property
    def pos_label(self) -> Any:
        """The class of two that pages and reports are about; None if there are not two."""
        if self.chosen_class is not None:
            return self.chosen_class
        if self.class_names is None or len(self.class_names) != 2:
            return None
        return self.class_names[1]

    @property
    def scored_class(self) -> Any:
        """The class of two that has the only score, the second one.

        None for numbers, and if every class has its own score.
        """
        if self.class_names is None or self.outputs is not None or len(self.class_names) != 2:
            return None
        return self.class_names[1]

    @property
    def of_tables(self) -> AnyArray | None:
        """The column ``output`` of tables, (K,).

        For two classes with one score it has the scored class.
        """
        if self.outputs is None and self.scored_class is not None:
            return np.asarray(self.class_names)[1:]
        return self.outputs


def in_order(classes: AnyArray | None, is_reflected: bool) -> AnyArray | None:
    """Return the names of classes, (C,), so that a single score is of the second of two."""
    if is_reflected and classes is not None:
        return classes[::-1]
    return classes
