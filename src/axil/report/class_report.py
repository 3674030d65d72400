"""Reports on classes: a page per row of X, led by the most similar training rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from axil import inputs
from axil.aliases import FeatureTable
from axil.arrays import AnyArray, BoolArray, FloatArray, IntArray
from axil.errors import InputError, shown
from axil.methods.intervals.class_predictive import ClassPredictive, class_probabilities
from axil.methods.method import ExplainedRows, take
from axil.methods.similar import compared, source_of
from axil.output import comparables
from axil.output.records import fingerprint
from axil.output.shown_columns import Columns
from axil.reductions.choice import Allowed, Choice
from axil.replay.verified_model import VerifiedModel
from axil.report.folder import Folder
from axil.report.report_plan import ranking_name
from axil.report.wording import DASH, Words, percent, row_name
from axil.templates import render

LEAST_ALIKE = 0.5  # rows that share fewer leaves get a caution
MOST_CLASSES = 4  # whose probabilities a page shows
DEFAULT_TARGET = "value"
NOT_REASONS = (
    "These {rows} are the ones that the model treats most like this {query}. They are evidence, "
    "not reasons by feature: nothing here says which of its features led to the prediction."
)


@dataclass(frozen=True, eq=False)
class ClassPlan:
    """Everything about a report on classes except the weights."""

    asked: ExplainedRows
    words: Words
    choice: Choice
    allowed: Sequence[Allowed]  #: which training rows may be listed
    columns: Columns
    chosen: list[int]  #: columns shown, by position
    labels: list[str]  #: of the rows of X
    suspects: BoolArray | None
    are_targets_checked: bool  #: whether suspects were looked for, or named by the user
    predictive: ClassPredictive | None
    confidence_level: float
    level_words: str
    rule_texts: Sequence[str]
    at_least: int
    probabilities: FloatArray = field(init=False)  #: (n, C) by the model
    training_classes: IntArray = field(init=False)  #: (N,) the class of each training row

    def __post_init__(self) -> None:
        """Compute the probabilities of all rows, which are compared with the model."""
        model = self.asked.model
        targets, _ = model.training.gathered()
        codes = targets[:, 0].astype(np.intp)
        if targets.shape[1] > 1:
            codes = targets.argmax(axis=1)
        object.__setattr__(self, "training_classes", codes)
        probabilities = class_probabilities(model, self.asked.queries)
        object.__setattr__(self, "probabilities", probabilities)

    @property
    def names(self) -> AnyArray:
        """The names of the classes, (C,)."""
        return np.asarray(self.asked.model.names.class_names)

    @property
    def target(self) -> str:
        """What pages call the class."""
        if self.words.target == DEFAULT_TARGET:
            return "class"
        return self.words.target

    @property
    def values(self) -> list[str]:
        """The predicted class of each row of X with its probability, for the index."""
        best = self.probabilities.argmax(axis=1)
        return [
            f"{row_name(self.names[code])}, {percent(self.probabilities[i, code])}"
            for i, code in enumerate(best.tolist())
        ]

    def record(self) -> dict[str, Any]:
        """Return everything that the pages depend on, for the manifest."""
        n_train = len(self.training_classes)
        rows = np.arange(n_train)
        allowed = self.allowed[0]
        restrictions = [allowed.among, allowed.by_query, allowed.codes, *allowed.near_values]
        columns = [
            column for column in self.columns.of_training(rows, self.chosen) if column is not None
        ]
        interval = None
        if self.predictive is not None:
            interval = f"{self.predictive!r} at {self.confidence_level:g}"
        suspects = None
        if self.suspects is not None:
            suspects = fingerprint(self.suspects)
        model = self.asked.model
        return {
            "pages": len(self.labels),
            "model": fingerprint(model.targets, str(model.adapter.fingerprint)),
            "training rows": fingerprint(model.index, *columns),
            "X": fingerprint(self.labels, np.float32(self.probabilities)),
            "class": str(model.names.pos_label),
            "rows that may be listed": fingerprint(
                *(values for values in restrictions if values is not None)
            ),
            "suspects": suspects,
            "interval": interval,
            "k": self.choice.k,
            "at least": self.at_least,
            "rules": list(self.rule_texts),
            "by": ranking_name(self.choice),
            "columns": [self.columns.names[i] for i in self.chosen],
            "words": {
                name: getattr(self.words, name)
                for name in ("title", "target", "rows", "query", "date_format")
            },
            "names": dict(self.words.names),
        }

    def write_pages(self, folder: Folder, missing: IntArray, index: str) -> IntArray:
        """Write the pages of these rows of X; return how many training rows each of them lists."""
        n_listed = np.zeros(len(missing), dtype=np.intp)
        explained = take(self.asked, missing)
        n_columns = 24 + 3 * len(self.chosen)
        start = 0
        source = source_of(explained, self.choice)
        for predicted, comparison in compared(
            explained, self.choice, self.allowed, False, n_columns, source
        ):
            columns = comparables.listed(predicted, comparison).columns
            if predicted.outputs is not None and len(predicted.outputs) > 1:
                # Rows are listed once, and not once for each class.
                is_first = columns["output"] == predicted.outputs[0]
                columns = {name: values[is_first] for name, values in columns.items()}
            for i in range(len(predicted.labels)):
                lines = np.flatnonzero(columns["asked"] == i)
                position = int(missing[start + i])
                page = ClassPage(self, position, {n: v[lines] for n, v in columns.items()})
                folder.write(position, page.render(index))
                n_listed[start + i] = len(lines)
            start += len(predicted.labels)
        return n_listed


@dataclass(frozen=True, eq=False)
class ClassPage:
    """The page of one row of X."""

    plan: ClassPlan
    position: int  #: of the row in X
    lines: dict[str, AnyArray]  #: the columns of the listed training rows

    def render(self, index: str) -> str:
        """Return the whole page; ``index`` is the relative address of the index."""
        plan = self.plan
        words = plan.words
        return render(
            "report/class_case.html",
            name=plan.labels[self.position],
            words=words,
            target=plan.target,
            predicted=row_name(plan.names[plan.probabilities[self.position].argmax()]),
            probabilities=self._probability_texts(),
            score=self._score_text(),
            classes_of_set=self._set_text(),
            level_words=plan.level_words,
            outcomes=self._outcomes(),
            likeness=self._similarity_text(),
            rules="; ".join(plan.rule_texts),
            heads=self._heads(),
            rows=self._rows(),
            not_reasons=self._not_reasons(),
            index=index,
        )

    def _not_reasons(self) -> str:
        """Return what the page does not say: reasons by feature, and whether labels are right."""
        words = self.plan.words
        text = NOT_REASONS.format(rows=words.rows, query=words.query)
        if not self.plan.are_targets_checked:
            text += f" {words.not_checked}"
        return text

    def _probability_texts(self) -> list[str]:
        """Return the probability of the class that the report is about, then those of others."""
        plan = self.plan
        of_row = plan.probabilities[self.position]
        names = plan.names.tolist()
        leading = plan.asked.model.names.pos_label
        order = np.argsort(-of_row, kind="stable").tolist()
        if leading is not None:
            order = [names.index(leading)]
        calibrated = self._calibrated()
        texts = []
        for code in order[:MOST_CLASSES]:
            text = f"Probability of {row_name(names[code])}: {percent(of_row[code])}"
            if calibrated is not None:
                text += f" by the model, {percent(calibrated[code])} calibrated"
            texts.append(text)
        return texts

    def _calibrated(self) -> FloatArray | None:
        """Return the calibrated probabilities of the row, (C,); None without calibration rows."""
        plan = self.plan
        if plan.predictive is None:
            return None
        table = inputs.as_frame(plan.predictive.probability(self._row()))
        assert table is not None
        by_name = dict(zip(table["output"].to_list(), table["probability"].to_list()))
        return np.array([by_name[name] for name in plan.names.tolist()])

    def _row(self) -> FeatureTable:
        """Return the row of X."""
        rows = self.plan.asked.queries.rows
        return inputs.take_rows(rows, slice(self.position, self.position + 1))

    def _score_text(self) -> str:
        """Return the raw score, or "" if it is the probability itself."""
        model = self.plan.asked.model
        if model.names.outputs is not None or not model.has_link_of(model.source):
            return ""
        score = float(self.plan.asked.queries.predictions[self.position, 0])
        return (
            f"Score of {row_name(model.names.pos_label)}: {self.plan.words.cell(round(score, 4))}"
        )

    def _set_text(self) -> str:
        """Return the classes of the prediction set, or "" without calibration rows."""
        plan = self.plan
        if plan.predictive is None:
            return ""
        table = inputs.as_frame(plan.predictive.predict_set(self._row(), plan.confidence_level))
        assert table is not None
        pairs = zip(table["output"].to_list(), table["in_set"].to_list())
        names = [row_name(name) for name, is_in_set in pairs if is_in_set]
        if not names:
            return "none"
        return " or ".join(names)

    def _outcomes(self) -> str:
        """Return how many of the listed training rows are of each class, in a sentence."""
        words = self.plan.words
        n_listed = len(self.lines["row"])
        if not n_listed:
            return f"None of the {words.rows} meets the conditions."
        codes = self.plan.training_classes[self.lines["position"]]
        counts = np.bincount(codes, minlength=len(self.plan.names))
        order = np.argsort(-counts, kind="stable").tolist()
        leading = self.plan.asked.model.names.pos_label
        if leading is not None:
            first = self.plan.names.tolist().index(leading)
            order = [first, *(code for code in order if code != first)]
        parts = [
            f"{counts[code]} {row_name(self.plan.names[code])}"
            for code in order
            if counts[code] or code == order[0]
        ]
        text = f"Of the {n_listed} {words.rows} most like this {words.query}: {', '.join(parts)}."
        if n_listed < self.plan.at_least:
            text += f" {self.plan.at_least} are wanted."
        return text

    def _similarity_text(self) -> str:
        """Return the similarity of the nearest training row in words; a low one has a caution."""
        if "similarity" not in self.lines or not len(self.lines["row"]):
            return ""
        words = self.plan.words
        most = float(self.lines["similarity"].max())
        text = f"The most similar one is like it in {percent(most)} of the steps of the model."
        if most < LEAST_ALIKE:
            text += (
                f" None of the {words.rows} is very like this {words.query}: take the prediction "
                "with caution."
            )
        return text

    def _heads(self) -> list[str]:
        """Return the heads of the table."""
        words = self.plan.words
        heads = [words.rows.capitalize(), self.plan.target.capitalize()]
        if "similarity" in self.lines:
            heads.append("Alike")
        names = [words.name(self.plan.columns.names[i]) for i in self.plan.chosen]
        return [*heads, *names]

    def _rows(self) -> list[list[str]]:
        """Return the cells of the explained row and of the listed training rows."""
        plan = self.plan
        words = plan.words
        n_shown = len(self.lines["row"])
        of_query = plan.columns.of_queries(np.array([self.position]), plan.chosen)
        of_rows = plan.columns.of_training(self.lines["position"], plan.chosen)
        has_similarity = "similarity" in self.lines
        first = [f"This {words.query}", DASH]
        if has_similarity:
            first.append("")
        first += _cells(of_query, 0, words)
        rows = [first]
        for line in range(n_shown):
            position = self.lines["position"][line]
            name = row_name(plan.names[plan.training_classes[position]])
            if plan.suspects is not None and plan.suspects[position]:
                name += " (looks wrong)"
            cells = [f"{line + 1}.\u00a0{row_name(self.lines['row'][line])}", name]
            if has_similarity:
                cells.append(percent(float(self.lines["similarity"][line])))
            cells += _cells(of_rows, line, words)
            rows.append(cells)
        return rows


def _cells(columns: Sequence[AnyArray | None], line: int, words: Words) -> list[str]:
    """Return one line of some columns as text; "" for a column that the rows do not have."""
    texts = []
    for column in columns:
        if column is None:
            texts.append("")
        else:
            texts.append(words.cell(column[line]))
    return texts


def require_class_options(options: dict[str, object]) -> None:
    """Raise for options of `report` that are of numbers alone; None and "" stand for none."""
    for name, value in options.items():
        if value is not None and not (isinstance(value, str) and not value):
            raise InputError(
                f"{name} is {shown(value)}, which is for reports on numbers, and this model "
                "predicts classes. Leave it out."
            )


def checked_predictive(interval: object) -> ClassPredictive | None:
    """Return the prediction sets for the pages after checking their type."""
    if interval is None or isinstance(interval, ClassPredictive):
        return interval
    raise InputError(
        f"interval is {shown(interval)}; expected what explainer.calibrate(...) returned."
    )


def default_ranking(model: VerifiedModel) -> str | None:
    """Return how similar rows are ranked: by shared leaves, or None, by weight, without trees."""
    if model.capabilities.is_refused('similar(by="leaves")'):
        return None
    return "leaves"
