"""Make tidy tables in the user's own frame library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from axil.arrays import AnyArray, FloatArray, IntArray
from axil.attribution import notes
from axil.errors import InputError, shown
from axil.inputs import as_choice
from axil.inputs.libraries import frame_library, is_installed, require_frame_library
from axil.machine.memory import Budget
from axil.reductions import Best
from axil.reductions.groups import Grouped
from axil.scale import TargetScale

COPIES = (
    3.5  # of the columns: in batches, joined, and in the frame; freed memory is not always returned
)
TIE_DIGITS = 9  # of a share; groups whose shares agree in these are in the order of their labels
SMALLER = "Ask for fewer rows of X at a time, for fewer lines of each, or raise memory_limit."
LIBRARIES = ("pandas", "polars", "pyarrow", "modin", "cudf")
NOTES = {"exact": notes.NOTE, "additive": notes.ADDITIVE, "derivative": notes.DERIVATIVE}  # by kind


def as_backend(name: Any) -> str:
    """Return the frame library that a file names, or an installed one if that is not installed."""
    if name not in LIBRARIES:
        raise ValueError(f"no frame library: {name!r}")
    if is_installed(name):
        return str(name)
    return frame_library()


def make(columns: dict[str, Any], backend: str) -> Any:
    """Return a frame of this library with these columns."""
    require_frame_library(backend)
    try:
        implementation = nw.Implementation.from_string(backend)
        return nw.from_dict(columns, backend=implementation).to_native()  # type: ignore[arg-type]
    except MemoryError:
        raise
    except Exception as error:  # pyarrow takes no labels of mixed kinds
        raise InputError(
            f"{backend} makes no table of these columns ({shown(error, 200)}); expected labels of "
            "one kind: all numbers, all text or all dates. Turn them into text, or pass X_train "
            "as a frame of pandas or polars."
        ) from error


def note(frame: Any, text: str, **more: Any) -> Any:
    """Return the frame; a pandas frame has the note in ``attrs["axil"]``.

    It also has further attributes by name.
    """
    if isinstance(getattr(frame, "attrs", None), dict):
        frame.attrs.update(axil=text, **more)
    return frame


def check_by(by: str | None) -> None:
    """Raise for an order that tables do not have; None stands for the default."""
    if by is not None:
        as_choice(by, ("weight", "contribution"), "by")


@dataclass(frozen=True, eq=False)
class Predicted:
    """Explained rows with the columns of their predictions in tables."""

    labels: AnyArray  #: (n,) the user's
    outputs: AnyArray | None  #: (K,) the names in the column ``output``; None for no such column
    scale: TargetScale  #: of the fit
    meant: Mapping[str, FloatArray]  #: (n, K) by name: what scores stand for, such as probabilities
    weighted: bool  #: whether the numbers are weights of targets, and not contributions
    #: (C,) the names of the classes, of which a single score is of the second; None for numbers
    classes: AnyArray | None = None
    #: whether a link leads from what contributions add up to, the score, to the prediction
    has_link: bool = False
    is_sum: bool = False  #: whether these are sums of several predictions

    def prediction_columns(self, scores: FloatArray) -> dict[str, AnyArray]:
        """Return the columns prediction, score and probability.

        They have a line for each prediction and output.

        - prediction is what the model's ``predict`` returns: the class of largest probability, an
          expected count or amount, or a value in the targets' own units.
        - score is what contributions add up to, where that is neither the prediction nor the
          probability.
        - probability is that of the class in the column ``output``.

        Sums of several predictions have one column alone: no class is predicted for them, and
        sums of scores have no meaning behind the link.

        Parameters
        ----------
        scores : ndarray of shape (n, K)
            The predictions on the scale of the fit, or raw scores.
        """
        if self.has_link and not self.meant:
            return self._of_scores(scores)
        if self.is_sum and self.classes is not None:
            return {"probability": scores.ravel()}
        if self.classes is None and not self.meant:
            return {"prediction": self.scale.inverse(scores).ravel()}
        probabilities = self.meant.get("probability", scores)
        columns: dict[str, AnyArray]
        if self.classes is None:
            ((name, means),) = self.meant.items()
            columns = {"prediction": means.ravel(), "score": scores.ravel()}
            if name == "probability":
                columns[name] = means.ravel()
            return columns
        names = known_names(likeliest(self.classes, probabilities), scores)
        columns = {"prediction": np.repeat(names, probabilities.shape[1])}
        if probabilities is not scores:
            columns["score"] = scores.ravel()
        return columns | {"probability": probabilities.ravel()}

    def _of_scores(self, scores: FloatArray) -> dict[str, AnyArray]:
        """Return the columns of scores without probabilities.

        They are the class of largest score, and the score.
        """
        if self.classes is None or self.is_sum:
            return {"score": scores.ravel()}
        if scores.shape[1] == 1:
            predicted = self.classes[(scores[:, 0] > 0).astype(np.intp)]
        else:
            predicted = self.classes[scores.argmax(axis=1)]
        names = known_names(predicted, scores)
        return {"prediction": np.repeat(names, scores.shape[1]), "score": scores.ravel()}

    def moved_columns(self, scores: FloatArray, outputs: IntArray) -> dict[str, AnyArray]:
        """Return the column of predictions of which one output alone moved.

        It is prediction, score or probability. No class is predicted from one output.

        Parameters
        ----------
        scores : ndarray of shape (m,)
            Predictions on the scale of the fit, or raw scores.
        outputs : ndarray of shape (m,)
            The positions of their outputs.
        """
        if self.classes is not None and (self.has_link or self.meant):
            return {"score": scores}
        if self.classes is not None:
            return {"probability": scores}
        if self.outputs is None:
            n_outputs = 1
        else:
            n_outputs = len(self.outputs)
        every_output = np.repeat(scores[:, None], n_outputs, axis=1)
        return {"prediction": self.scale.inverse(every_output)[np.arange(len(scores)), outputs]}


def shown_outputs(outputs: AnyArray | None, class_names: AnyArray | None) -> AnyArray | None:
    """Return the column ``output``, (K,): the outputs, or the scored class of two."""
    if outputs is None and class_names is not None and len(class_names) == 2:
        return np.asarray(class_names[1:])
    return outputs


def likeliest(classes: AnyArray, probabilities: FloatArray) -> AnyArray:
    """Return the names of the classes of largest probability, (n,).

    ``probabilities`` are (n, K), of every class, or of the second of two.
    """
    if probabilities.shape[1] < len(classes):
        return np.asarray(classes[(probabilities[:, 0] > 0.5).astype(np.intp)])
    return np.asarray(classes[probabilities.argmax(axis=1)])


def known_names(names: AnyArray, scores: FloatArray) -> AnyArray:
    """Return the names of predicted classes, without one where a score of the row is nan.

    Numbers are then nan, and other names None.

    Parameters
    ----------
    names : ndarray of shape (n,)
    scores : ndarray of shape (n, K)
    """
    is_unknown = np.isnan(scores).any(axis=1)
    if not is_unknown.any():
        return names
    if names.dtype.kind in "iuf":
        return np.where(is_unknown, np.nan, names)
    known = names.astype(object)
    known[is_unknown] = None
    return known


def top_columns(predicted: Predicted, best: Best) -> dict[str, Any]:
    """Return the columns of the k largest rows of each prediction, with a line for each listed row.

    They are query, (output,) those of the prediction, rank, row, (weight,) target and contribution.
    Rows that are only compared by their leaves have neither weight nor contribution.
    """
    n_lines = best.size.shape[2]
    columns = predicted_columns(
        predicted.labels, predicted.outputs, predicted.prediction_columns(best.predictions), n_lines
    )
    columns["row"] = best.columns["row"].ravel()
    has_effects = "effect" in best.columns
    if predicted.weighted and has_effects:
        columns["weight"] = best.columns["effect"].ravel()
    columns["target"] = best.columns["target"].ravel()
    if not has_effects:
        return columns
    contributions = best.columns["contribution"].ravel()
    return columns | contribution_columns(contributions, predicted.scale)


def group_columns(
    query_index: AnyArray,
    outputs: AnyArray | None,
    scale: TargetScale,
    sums: Grouped,
    weighted: bool,
    means: FloatArray | None,
) -> dict[str, Any]:
    """Return query, (output,) group, weight and contribution, the largest group of each row first.

    Parameters
    ----------
    query_index : ndarray of shape (n,)
    outputs : ndarray of shape (K,), optional
    scale : TargetScale
    sums : Grouped
    weighted : bool
        Whether there are weights. Contributions of additive models have none.
    means : ndarray of shape (K,), optional
        The targets that contributions are counted from; None for 0.
    """
    contributions = sums.contributions
    if means is not None:
        contributions = contributions - sums.effects * means[:, None]
    sizes = contributions
    if weighted:
        sizes = sums.effects
    order = _largest_first(sizes)
    columns = label_columns(query_index, outputs, "group", sums.groups)
    columns["group"] = sums.groups[order.ravel()]
    if weighted:
        columns["weight"] = np.take_along_axis(sums.effects, order, axis=2).ravel()
    ordered = np.take_along_axis(contributions, order, axis=2)
    return columns | contribution_columns(ordered.ravel(), scale)


def _largest_first(values: FloatArray) -> IntArray:
    """Return the order of values (n, K, G) by size; near ties stay in their order."""
    sizes = np.abs(values)
    largest = sizes.max(axis=2, initial=0.0, keepdims=True)
    shares = np.divide(sizes, largest, out=np.zeros_like(sizes), where=largest > 0)
    return np.argsort(-shares.round(TIE_DIGITS), axis=2, kind="stable")


def predicted_columns(
    query_index: AnyArray,
    outputs: AnyArray | None,
    prediction_columns: Mapping[str, AnyArray],
    k: int,
) -> dict[str, Any]:
    """Return the first columns of a table of the k largest.

    They are query, (output,) the columns of the prediction, and rank.
    """
    columns = label_columns(query_index, outputs, "rank", np.arange(1, k + 1))
    rank = columns.pop("rank")
    for name, values in prediction_columns.items():
        columns[name] = np.repeat(values, k)
    columns["rank"] = rank
    return columns


def contribution_columns(values: FloatArray, scale: TargetScale) -> dict[str, FloatArray]:
    """Return the column of contributions, and for logarithms also a column of factors.

    The name of the first column has the scale of the fit.
    """
    columns = {scale.label("contribution"): values}
    if scale.is_log:
        columns["factor"] = scale.factors(values)
    return columns


def label_columns(
    query_index: AnyArray, outputs: AnyArray | None, name: str, values: AnyArray
) -> dict[str, Any]:
    """Return query, (output,) and one more column, with a line for each combination."""
    n = len(query_index)
    if outputs is None:
        n_outputs = 1
    else:
        n_outputs = len(outputs)
    columns = {"query": np.repeat(query_index, n_outputs * len(values))}
    if outputs is not None:
        columns["output"] = np.tile(np.repeat(outputs, len(values)), n)
    return columns | {name: np.tile(values, n * n_outputs)}


def concatenate(parts: list[dict[str, Any]], backend: str) -> Any:
    """Return one frame of the columns of several batches, which are emptied."""
    return make(joined(parts), backend)


def joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Join the columns of several batches one by one.

    Memory then never holds all of them twice.
    """
    return {
        name: np.concatenate([columns.pop(name) for columns in parts]) for name in list(parts[0])
    }


def bytes_of(lines: int, columns: int) -> int:
    """Return the bytes of a table during its construction, with 8 per line and column."""
    return int(COPIES * 8 * lines * columns)


def batch_size(budget: Budget, n: int, lines: int, columns: int, working: int) -> int:
    """Return the number of explained rows per batch, for a table with ``lines`` lines each.

    Raises if the table and the ``working`` bytes of one query do not fit into memory.
    """
    table = bytes_of(n * lines, columns)
    budget.require(table + working, f"The table of {n * lines} lines", SMALLER)
    return budget.batch_size(working, table)
