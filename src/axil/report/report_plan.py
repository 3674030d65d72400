"""Check everything that a report is made of before any work, and record it for the manifest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from axil import inputs
from axil.aliases import FeatureTable
from axil.arrays import AnyArray, BoolArray, FloatArray
from axil.errors import InputError, UnsupportedQuestionError, shown, suggestion
from axil.methods.intervals.predictive import Predictive
from axil.methods.method import ExplainedRows
from axil.output import site_map
from axil.output.records import fingerprint
from axil.output.rules import Rules
from axil.output.shown_columns import Columns
from axil.output.site_map import Places
from axil.reductions.choice import Allowed, Choice
from axil.report.content import Extras
from axil.report.wording import Words, commas_from, row_name

MOST_COLUMNS = 8  # of a page, unless the user names them


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything about a report except the weights."""

    words: Words
    choice: Choice
    sign: str | None
    allowed: Sequence[Allowed]  #: which rows may be listed
    extras: Extras
    predictive: Predictive | None
    confidence_level: float
    level_words: str
    labels: list[str]
    values: FloatArray  #: (n,) the model's own predictions, as people read them
    offsets: FloatArray | None  #: (n, 1) of the rows of X

    def record(self, asked: ExplainedRows, fitted: FloatArray) -> dict[str, Any]:
        """Return everything that the pages depend on, for the manifest.

        Parameters
        ----------
        asked : ExplainedRows
            The model and the rows of X.
        fitted : ndarray of shape (N, K)
            The predictions of the training rows.
        """
        model = asked.model
        extras = self.extras
        n_train = model.shape[0]
        training_columns = extras.columns.of_training(np.arange(n_train), extras.chosen)
        allowed = self.allowed[0]
        interval = None
        if self.predictive is not None:
            interval = f"{self.predictive!r} at {self.confidence_level:g}"
        places = extras.places
        return {
            "pages": len(self.labels),
            "model": fingerprint(model.targets, np.float32(fitted)),
            "training rows": fingerprint(model.index, *_known(training_columns)),
            "X": self._fingerprint_of_queries(asked.queries.rows),
            "rows that may be listed": fingerprint(
                *_known([allowed.among, allowed.by_query, allowed.codes, *allowed.near_values]),
                *(array for rule in self.choice.near for array in rule.arrays()),
            ),
            "map": places and fingerprint(places.training, places.queries, places.unit),
            "dates": _fingerprint_of(extras.dates),
            "suspects": _fingerprint_of(extras.suspects),
            "stability": _fingerprint_of(extras.stability),
            "interval": interval,
            "adjustments": self._groups_of_grid(),
            "k": self.choice.k,
            "at least": extras.at_least,
            "rules": list(extras.rule_texts),
            "sign": self.sign,
            "by": ranking_name(self.choice),
            "columns": extras.names,
            "hidden": sorted(extras.hidden),
            "words": {
                name: getattr(self.words, name)
                for name in ("title", "target", "unit", "rows", "query", "date_format")
            },
            "names": dict(self.words.names),
        }

    def _groups_of_grid(self) -> dict[str, list[int]] | None:
        """Return the features of each group of the grid, by position; None without a grid."""
        grid = self.extras.grid
        if grid is None:
            return None
        return {name: grid.groups.features(i) for i, name in enumerate(grid.groups.names)}

    def _fingerprint_of_queries(self, rows: FeatureTable) -> str:
        """Return a hash of the labels, features and offsets of X, and of the columns beside it."""
        columns = self.extras.columns
        positions = [*self.extras.chosen]
        arrays = []
        if inputs.is_sparse(rows):
            arrays += [rows.data, rows.indices, rows.indptr]
        else:
            positions = [*range(columns.n_features), *positions]
        if self.offsets is not None:
            arrays.append(self.offsets)
        shown_columns = columns.of_queries(np.arange(len(self.labels)), positions)
        return fingerprint(self.labels, *_known(shown_columns), *arrays)


def ranking_name(choice: Choice) -> str:
    """Return what ranks the listed rows, as the option ``by`` names it."""
    if choice.by_leaves:
        return "leaves"
    return "weight"


def _known(arrays: Sequence[AnyArray | None]) -> list[AnyArray]:
    """Return the arrays that are not None."""
    return [array for array in arrays if array is not None]


def _fingerprint_of(array: AnyArray | None) -> str | None:
    """Return a hash of an array, or None for None."""
    if array is None:
        return None
    return fingerprint(array)


def extras_of(
    known: Columns,
    columns: Any,
    hide: Any,
    rules: Rules,
    map: Any,
    suspects: BoolArray | None,
    n_train: int,
) -> Extras:
    """Check the options for what pages show beside the numbers of the model.

    See `Explainer.report`.
    """
    places = site_map.as_places(map, known)
    hidden = set(known.chosen(hide, "hide"))
    chosen = _shown_columns(known, columns, hidden, places)
    date_column = None
    dates = None
    dated_rule = rules.dated(known)
    if dated_rule is not None:
        date_column = dated_rule.columns[0]
        dates = dated_rule.points
    training_columns = known.of_training(np.arange(n_train), chosen)
    return Extras(
        columns=known,
        chosen=chosen,
        commas_from=[commas_from(column) for column in training_columns],
        n_train=n_train,
        is_restricted=rules.are_any,
        date_column=date_column,
        dates=dates,
        places=places,
        suspects=suspects,
        hidden=frozenset(hidden),
    )


def _shown_columns(
    columns_of_rows: Columns, columns: Any, hidden: set[int], places: Places | None
) -> list[int]:
    """Return the columns that pages show, by position: those of the user, or the first ones.

    A map shows coordinates, so the first ones leave them out.
    """
    if columns is not None:
        return inputs.without_hidden(
            columns_of_rows.chosen(columns), hidden, columns_of_rows.names, True
        )
    features = range(columns_of_rows.n_features)
    further = range(columns_of_rows.n_features, len(columns_of_rows.names))
    if places is not None:
        hidden = hidden.union(places.columns)
    shown_columns = inputs.without_hidden(
        [*further, *features], hidden, columns_of_rows.names, False
    )
    return shown_columns[:MOST_COLUMNS]


def rule_texts(rules: Rules, known: Columns, words: Words, among_text: str) -> list[str]:
    """Return the rules in the words of the pages."""
    if not isinstance(among_text, str):
        raise InputError(f"among_text is {shown(among_text)}; expected text.")
    if among_text and rules.among is None:
        raise InputError(
            "among_text says what among allows, and there is no among. Leave among_text out."
        )
    texts = rules.texts(known, words, among_text)
    if rules.dropped is not None:
        texts.append(f"no {words.target} that looks wrong")
    return texts


def check_names(words: Words, known: Columns) -> None:
    """Raise for names of columns that do not exist."""
    for name in words.names:
        if name not in known.names:
            raise InputError(
                f"names has {shown(name)}, which is no column; expected such as "
                f"{shown(known.names[0])}."
                f"{suggestion(name, known.names)}{known.hint}"
            )


def page_labels(X: FeatureTable) -> list[str]:
    """Return the labels of the rows as text, and raise if two are the same."""
    labels = []
    for label in inputs.as_list(inputs.row_labels(X)):
        labels.append(label if isinstance(label, str) else row_name(label))
    if len(set(labels)) < len(labels):
        repeated = Counter(labels).most_common(1)[0][0]
        raise InputError(
            f"X has several rows labelled {shown(repeated)}, which would have one page; expected "
            "labels of their own. Give X another index, or X.reset_index(drop=True)."
        )
    return labels


def check_report(asked: ExplainedRows, interval: object) -> None:
    """Raise for models, rows and intervals that reports do not support."""
    model = asked.model
    if model.names.outputs is not None:
        raise UnsupportedQuestionError(
            "report",
            f"this model has {model.shape[1]} outputs, and a page is about one value",
            "Explain a model of one output, or write one page of all with to_html.",
        )
    if not len(asked):
        raise InputError("X has no rows, so there is nothing to report on.")
    if interval is not None and not isinstance(interval, Predictive):
        raise InputError(
            f"interval is {shown(interval)}; expected what explainer.calibrate(...) returned."
        )
