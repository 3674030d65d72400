"""The page of a comparison: why each value changed, in words for the people concerned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from axil import inputs
from axil.aliases import FeatureTable, LabelsLike, PathLike
from axil.arrays import AnyArray, FloatArray, IntArray
from axil.explainer import Explainer
from axil.methods.matched_rows import ABSENT, ADDED, CHANGED, REMOVED, ComparedRows
from axil.methods.method import verified_model
from axil.output.page import document
from axil.output.page.options import as_words
from axil.report.wording import Words, commas_from, percent, row_name
from axil.scale import TargetScale
from axil.templates import render

MOST_GROUPS = 8  # groups of training rows that have a bar of their own
NARROWEST = 0.3  # percent of the width that a bar has at least
RETRAINED = "The model fitted anew"
COMPARABLES = 5  # of each value, before and now
STATUS_WORDS = ("as before", "{target} corrected", "new", "left out")


class ShownChanges(Protocol):
    """What the page is about: an `axil.comparison.Comparison`."""

    @property
    def before(self) -> FloatArray:
        """The predictions of the old model on the scale of the fit, (n, K)."""

    @property
    def parts(self) -> dict[str, FloatArray]:
        """The parts of the change, (n, K) each."""

    @property
    def effects(self) -> FloatArray:
        """The effects of the training rows, (n, K, M)."""

    @property
    def rows(self) -> ComparedRows:
        """The training rows of both models."""

    @property
    def old(self) -> Explainer:
        """The explainer of the old model."""

    @property
    def new(self) -> Explainer:
        """The explainer of the new model."""

    @property
    def X(self) -> FeatureTable:
        """The explained rows as the old model takes them."""

    @property
    def new_X(self) -> FeatureTable:
        """The explained rows as the new model takes them."""

    @property
    def query_index(self) -> AnyArray:
        """The labels of the rows of X, (n,)."""

    @property
    def outputs(self) -> AnyArray | None:
        """The names of the outputs, (K,); None for one."""

    @property
    def scale(self) -> TargetScale:
        """The scale of the fit."""

    def effects_of_groups(self, groups: LabelsLike) -> tuple[AnyArray, FloatArray]:
        """Return the names of groups of training rows, and their effects (n, K, groups)."""

    def targets_before(self, rows: IntArray, output: int) -> AnyArray:
        """Return the old targets of some training rows."""

    def targets_after(self, rows: IntArray, output: int) -> AnyArray:
        """Return the new targets of some training rows."""


@dataclass(frozen=True)
class Bar:
    """One part of a change, from ``left`` on; both are percentages of the drawing's width."""

    name: str
    amount: str
    percent: str
    left: float
    width: float
    is_negative: bool


@dataclass(frozen=True)
class ListedTable:
    """A table: its caption, its heads, its rows, and which columns hold numbers."""

    caption: str
    heads: list[str]
    rows: list[list[str]]
    is_number: list[bool]


@dataclass(frozen=True)
class ChangeSection:
    """The change of one value, as its section of the page shows it."""

    name: str
    before: str
    after: str
    change: str
    bars: list[Bar]
    tables: list[ListedTable]
    search: str  #: what the search compares with, in lower case


@dataclass(frozen=True, eq=False)
class PageOptions:
    """What the page shows beside the parts of each change."""

    k: int
    words: Words
    columns: list[str]
    by: LabelsLike | None


def write_page(
    comparison: ShownChanges, path: PathLike | None, options: PageOptions, title: str | None
) -> str | None:
    """Write the page of a comparison, or return its text if there is no path."""
    file = document.as_target(path)
    words = options.words
    title = as_words(title, "title")
    if title is None:
        title = f"Why did each {words.target} change?"
    effects_by_group = _effects_by_group(comparison, options)
    comparables = _comparables(comparison, options)
    sections = []
    labels = [row_name(label) for label in inputs.as_list(comparison.query_index)]
    outputs = comparison.outputs
    for i, label in enumerate(labels):
        for k in range(comparison.before.shape[1]):
            name = label
            if outputs is not None:
                name += f", {inputs.as_list(np.asarray(outputs))[k]}"
            parts = _parts(comparison, effects_by_group, i, k, words)
            tables = [_rows_table(comparison, options, i, k), *comparables.get(i, [])]
            sections.append(_section(comparison, name, i, k, parts, tables, words))
    text = render(
        "changes/page.html",
        title=title,
        words=words,
        sections=sections,
        row_counts=_row_counts(comparison, words),
        is_log=comparison.scale.is_log,
        has_groups=effects_by_group is not None,
    )
    return document.saved(text + "\n", file)


def _row_counts(comparison: ShownChanges, words: Words) -> str:
    """Return how many training rows stayed, came and went, as a text without those of none."""
    counts = comparison.rows.counts()
    texts = {
        "kept": "stayed as they were",
        "added": "are new",
        "removed": "were left out",
        "changed": f"have another {words.target}",
    }
    parts = [f"{counts[name]:,} {text}" for name, text in texts.items() if counts[name]]
    if len(parts) < 3:
        return " and ".join(parts)
    return f"{', '.join(parts[:-1])}, and {parts[-1]}"


# -- parts -----------------------------------------------------------------------------------------


def _effects_by_group(
    comparison: ShownChanges, options: PageOptions
) -> tuple[list[str], FloatArray] | None:
    """Return the names of groups of training rows, and their effects (n, K, groups)."""
    if options.by is None:
        return None
    names, effects = comparison.effects_of_groups(options.by)
    return [options.words.cell(name) for name in inputs.as_list(names)], effects


def _parts(
    comparison: ShownChanges,
    effects_by_group: tuple[list[str], FloatArray] | None,
    i: int,
    k: int,
    words: Words,
) -> dict[str, float]:
    """Return the parts of a change by their names on the page, on the scale of the fit.

    Rows that came, went or weigh otherwise than before move a value in opposite directions. One
    part has all of these effects, or one for each group of rows.
    """
    values = {name: float(of_part[i, k]) for name, of_part in comparison.parts.items()}
    retrained = {RETRAINED: values["new splits"]}
    if effects_by_group is None:
        data = sum(values[name] for name in ("rows added", "rows removed", "rows kept", "base"))
        return {
            f"{words.target.capitalize()}s on record corrected": values["targets changed"],
            _name_of_data_part(comparison, words): data,
            **retrained,
        }
    names, effects = effects_by_group
    of_groups = effects[i, k]
    order = np.argsort(-np.abs(of_groups), kind="stable")
    own_bars = np.sort(order[:MOST_GROUPS])
    parts = {f"{words.rows.capitalize()} of {names[g]}": float(of_groups[g]) for g in own_bars}
    rest = float(of_groups[order[MOST_GROUPS:]].sum()) + values["base"]
    return {**parts, f"All other {words.rows}": rest, **retrained}


def _name_of_data_part(comparison: ShownChanges, words: Words) -> str:
    """Return the name of the part of rows that came or went."""
    counts = comparison.rows.counts()
    if counts["added"] and counts["removed"]:
        return f"New {words.rows}, and those left out"
    if counts["removed"]:
        return f"{words.rows.capitalize()} left out"
    return f"New {words.rows}"


def _section(
    comparison: ShownChanges,
    name: str,
    i: int,
    k: int,
    parts: dict[str, float],
    tables: list[ListedTable],
    words: Words,
) -> ChangeSection:
    """Return the section of one value; parts without an effect that it could show are left out."""
    readable = _readable_steps(comparison, i, k, list(parts.values()))
    before = float(readable[0])
    after = float(readable[-1])
    amounts = np.diff(readable)
    lowest = float(readable.min())
    width = float(readable.max()) - lowest or 1.0
    bars = []
    for part_name, value, amount, start in zip(parts, parts.values(), amounts.tolist(), readable):
        text = words.change(amount, after)
        if not any(digit in text for digit in "123456789"):
            continue
        left = 100 * (min(start, start + amount) - lowest) / width
        size = max(100 * abs(amount) / width, NARROWEST)
        if comparison.scale.is_log:
            share = float(comparison.scale.factors(np.array(value))) - 1
        else:
            share = _share(amount, before)
        bars.append(Bar(part_name, text, _signed_percent(share), left, size, amount < 0))
    change = words.change(after - before, after)
    share_text = _signed_percent(_share(after - before, before))
    if share_text:
        change += f" ({share_text})"
    texts = [name, *(cell for table in tables for row in table.rows for cell in row)]
    return ChangeSection(
        name,
        words.amount(before),
        words.amount(after),
        change,
        bars,
        [table for table in tables if table.rows],
        " ".join(texts).lower(),
    )


def _readable_steps(comparison: ShownChanges, i: int, k: int, parts: Sequence[float]) -> FloatArray:
    """Return the old value, the value after each part, in the units that people read."""
    steps = np.repeat(comparison.before[[i]], len(parts) + 1, axis=0)
    steps[:, k] += np.concatenate([[0.0], np.cumsum(parts)])
    return np.asarray(comparison.scale.inverse(steps)[:, k])


def _share(change: float, value: float) -> float:
    """Return a change as a share of a value; nan of zero."""
    if not value:
        return float("nan")
    return change / abs(value)


def _signed_percent(share: float) -> str:
    """Return a share in percent with its sign, or "" where it is not known."""
    if np.isnan(share):
        return ""
    if share > 0:
        return f"+{percent(share)}"
    return percent(share)


# -- tables ----------------------------------------------------------------------------------------


def _rows_table(comparison: ShownChanges, options: PageOptions, i: int, k: int) -> ListedTable:
    """Return the training rows that moved a value most."""
    words = options.words
    rows = comparison.rows
    effects = comparison.effects[i, k]
    order = np.argsort(-np.abs(effects), kind="stable")[: options.k]
    order = order[effects[order] != 0]
    before = inputs.as_list(comparison.targets_before(order, k))
    after = inputs.as_list(comparison.targets_after(order, k))
    columns = _row_columns(comparison, order, options)
    value = float(_readable_steps(comparison, i, k, [])[0])
    has_two_targets = bool((rows.status[order] == CHANGED).any())
    lines = []
    for place, row in enumerate(order.tolist()):
        amount = float(effects[row])
        if comparison.scale.is_log:
            effect = _signed_percent(float(comparison.scale.factors(np.array(amount))) - 1)
        else:
            effect = words.change(amount, value)
        status = STATUS_WORDS[rows.status[row]].format(target=words.target)
        texts = [_target_text(before[place], words), _target_text(after[place], words)]
        target_texts = _target_cells(texts, rows.status[row], has_two_targets)
        cells = [column[place] for column in columns]
        lines.append([row_name(rows.labels[row]), status, *target_texts, effect, *cells])
    target_heads = _target_heads(words, has_two_targets)
    heads = [
        words.rows.capitalize(),
        "What happened",
        *target_heads,
        "Effect",
        *(words.name(column) for column in options.columns),
    ]
    is_number = [False, False, *[True for _ in target_heads], True]
    is_number += [False for _ in options.columns]
    caption = f"{words.rows.capitalize()} that did most, before the model was fitted anew"
    return ListedTable(caption, heads, lines, is_number)


def _target_heads(words: Words, has_two_targets: bool) -> list[str]:
    """Return the heads of the columns of targets: one, or those before and now."""
    target = words.target.capitalize()
    if has_two_targets:
        return [f"{target} before", f"{target} now"]
    return [target]


def _target_cells(texts: list[str], status: int, has_two_targets: bool) -> list[str]:
    """Return the cells of the targets of a row before and now, which are the same if it stayed."""
    if not has_two_targets:
        return [texts[0] or texts[1]]
    if status in (ADDED, REMOVED, CHANGED):
        return texts
    return [texts[0], ""]


def _target_text(target: object, words: Words) -> str:
    """Return a target or the name of a class, or "" where the row is not in these data."""
    if target is None or target != target:
        return ""
    if isinstance(target, (int, float)) and not isinstance(target, bool):
        return words.amount(float(target))
    return words.cell(target)


def _row_columns(comparison: ShownChanges, rows: IntArray, options: PageOptions) -> list[list[str]]:
    """Return the columns that the user chose of some training rows, as text."""
    if not options.columns:
        return []
    texts: list[list[str]] = [["" for _ in rows] for _ in options.columns]
    pairs = ((comparison.old, comparison.rows.before), (comparison.new, comparison.rows.after))
    for explainer, positions in pairs:
        model = verified_model(explainer)
        names = inputs.column_names(
            (model.features,), model.adapter.feature_names, model.features.shape[1]
        )
        chosen = inputs.chosen_columns(options.columns, names, "columns")
        is_present = positions[rows] != ABSENT
        places = positions[rows][is_present]
        n_rows = np.arange(model.features.shape[0])
        for text, place in zip(texts, chosen):
            (column,) = inputs.feature_columns(model.features, n_rows, [place])
            commas = commas_from(column)
            for line, row in zip(np.flatnonzero(is_present), places):
                text[line] = options.words.cell(column[row], commas)
    return texts


def _comparables(comparison: ShownChanges, options: PageOptions) -> dict[int, list[ListedTable]]:
    """Return the comparables of each value before and now, by position; none where refused."""
    labels = inputs.as_list(comparison.query_index)
    if len(set(labels)) < len(labels):
        return {}
    by_explainer = []
    for explainer, X in ((comparison.old, comparison.X), (comparison.new, comparison.new_X)):
        capabilities = verified_model(explainer).capabilities
        if capabilities.is_refused("similar") or comparison.before.shape[1] > 1:
            return {}
        by_explainer.append(_lists_of(explainer, X, options.words))
    tables: dict[int, list[ListedTable]] = {}
    words = options.words
    for i, (before, now) in enumerate(zip(*by_explainer)):
        old_names = {name for name, *_ in before}
        new_names = {name for name, *_ in now}
        lines = []
        for cells in now:
            change = "new in this list"
            if cells[0] in old_names:
                change = ""
            lines.append([*cells, change])
        lines += [[*cells, "no longer"] for cells in before if cells[0] not in new_names]
        caption = f"The {words.rows} most like this {words.query}, now and before"
        heads = [words.rows.capitalize(), words.target.capitalize(), ""]
        tables[i] = [ListedTable(caption, heads, lines, [False, True, False])]
    return tables


def _lists_of(explainer: Explainer, X: FeatureTable, words: Words) -> list[list[list[str]]]:
    """Return the label and the target of the comparables of each row of X, most similar first."""
    labels = inputs.as_list(inputs.row_labels(X))
    table = inputs.as_frame(explainer.similar(X, COMPARABLES, columns=[]))
    assert table is not None
    place_by_label = {label: number for number, label in enumerate(labels)}
    lists: list[list[list[str]]] = [[] for _ in labels]
    lines = zip(table["query"].to_list(), table["row"].to_list(), table["target"].to_list())
    for label, row, target in lines:
        lists[place_by_label[label]].append([row_name(row), _target_text(target, words)])
    return lists
