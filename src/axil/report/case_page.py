"""The page of one prediction: its value, the rows that carry it, how each differs, and how sure it is."""

from __future__ import annotations

from functools import cache
from html import escape

import numpy as np

from axil.output import site_map
from axil.output.page.template import hashed, part_of
from axil.report.content import RAISED, Cases
from axil.report.wording import Words, cell, difference, percent, row_name

SHORT = 14  # letters of a cell that stay on one line on a screen
UNBROKEN = 28  # letters of a word, such as a hyphenated label, that stay on one line
FAR = 2.0  # times the estimate: an adjusted target beyond it, or below its inverse, is not shown without a word
OFF = 0.05  # of the estimate: how far from it the mean of the adjusted targets needs no word


@cache
def style() -> str:
    """The style of every page, short."""
    lines = f"{part_of('page.css', 'axil.report')}\n{part_of('site_map.css', 'axil.output')}".splitlines()
    return (
        "".join(line.strip() for line in lines)
        .replace("; }", "}")
        .replace(" { ", "{")
        .replace("{ ", "{")
        .replace(": ", ":")
    )


@cache
def _head() -> str:
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src {hashed(style())}">'
        f"<style>{style()}</style>"
    )


def render(known: Cases, i: int, name: str, words: Words, sure: str, back: str) -> str:
    """The page of prediction i, whole; ``sure`` is the coverage of its interval in words, ``back`` the way to the index."""
    about, lines = escape(words.query), range(known.first[i], known.first[i + 1])
    dates = known.shown.dates
    asof = "" if dates is None else f" as of {cell(dates[1][known.places[i]], np.inf)}"
    parts = [
        _head(),
        f"<title>{escape(name)}: {escape(words.title)}</title></head><body><header>"
        f'<p class="soft">{escape(words.title)}</p><h1>{escape(name)}</h1></header>'
        f"<section><p>Estimated {escape(words.target)}{escape(asof)}</p>"
        f'<p class="value">{escape(words.amount(known.values[i]))}</p>',
        _sure(known, i, words, sure),
        _retrained(known, i, words),
        f"</section><section><h2>Which {escape(words.rows)} {'carry it' if known.alike is None else 'are like it'}</h2>"
        f"<p>{escape(_carried(known, i, words))}</p>",
    ]
    if len(lines):
        mean = _mean(known, i, words)
        parts += [
            _table(known, i, words),
            f"<p>{escape(mean)}</p>" if mean else "",
            _notes(known, lines, words),
        ]
    parts.append("</section>")
    drawn = _map(known, i, lines, words)
    if drawn:
        parts.append(
            f'<section><h2>Where they are</h2>{drawn}<p class="soft">The diamond is this {about}; the numbers are those of the '
            "table, in larger circles where they count more. North is up. Streets are not drawn.</p></section>"
        )
    parts.append(
        f'<footer class="soft"><p>All figures are computed from the model itself, without approximation. They say what this '
        f"model makes of each {escape(words.target)}; a model made anew might make something else of it.</p>"
        f'<p class="back"><a href="{back}">All pages</a></p></footer></body></html>\n'
    )
    return "".join(parts)


def _sure(known: Cases, i: int, words: Words, sure: str) -> str:
    """A sentence on the interval; nothing where there is none."""
    if known.interval is None:
        return ""
    lower, upper = (escape(words.amount(ends[i])) for ends in known.interval)
    held = f"{sure} such ranges hold the {escape(words.target)}"
    return f"<p>How sure is this? Between <b>{lower}</b> and <b>{upper}</b>: {held}.</p>"


def _retrained(known: Cases, i: int, words: Words) -> str:
    """A sentence on real refits; nothing where none were made."""
    if known.shown.refits is None:
        return ""
    moved, value = known.shown.refits[known.places[i]], known.values[i]
    share = f" ({percent(abs(moved / value))})" if value else ""
    by = escape(f"{words.amount(moved, value)}{share}")
    return f"<p>A model trained again from the start would move this estimate by about <b>± {by}</b>.</p>"


def _carried(known: Cases, i: int, words: Words) -> str:
    """Sentences on the rows listed, and on what they mean for the estimate."""
    listed, n = int(known.first[i + 1] - known.first[i]), known.shown.n_train
    made = f"The model makes this estimate from {n:,} {words.rows}. "
    if not listed:
        return made + f"None of these {words.rows} meets the conditions."
    may = " of those that may be shown" if known.shown.is_restricted else ""
    if known.alike is None:
        which = f"are the {listed} that count most" if listed > 1 else "is the one that counts most"
    else:
        which = (
            f"{f'are the {listed}' if listed > 1 else 'is the one'} most like this {words.query}"
        )
    made += f"Listed {which}{may}. "
    moved, value = known.moved[i], known.values[i]
    if np.isnan(moved):
        return made.strip()
    whose = f"the {words.target} of each of them" if listed > 1 else f"its {words.target}"
    share = f" ({percent(abs(moved / value))})" if value else ""
    way = "higher" if moved >= 0 else "lower"
    made += f"If {whose} had been {percent(RAISED)} higher, the estimate would be {words.amount(abs(moved), value)}{share} {way}"
    return made + (f"; the other {n - listed:,} make the rest of it." if n > listed else ".")


def _table(known: Cases, i: int, words: Words) -> str:
    """The rows listed, largest first, below the query itself, and the mean of their adjusted targets."""
    shown, estimate = known.shown, words.amount(known.values[i])
    heads = [
        words.rows.capitalize(),
        words.target.capitalize(),
        f"Adjusted to this {words.query}",
        "Effect of 10 % more",
    ]
    if known.alike is not None:
        heads.append("Alike")
    if known.drawings is not None:
        heads.append("Distance")
    is_ = [escape(head) for head in (*heads, *(words.name(name) for name in shown.names))]
    own = [
        "" if column is None else cell(column[i], plain)
        for column, plain in zip(known.queried, shown.plain)
    ]
    made = [
        "<table><thead><tr>",
        *(f"<th>{head}</th>" for head in is_),
        '</tr></thead><tbody><tr class="this">',
    ]
    made += [_cell(is_[0], f"This {words.query}"), "<td></td>", _cell("Estimate", estimate)]
    made += ["<td></td>" for _ in heads[3:]]
    made += [_cell(head, text) for head, text in zip(is_[len(heads) :], own)]
    lines = range(known.first[i], known.first[i + 1])
    for rank, line in enumerate(lines):
        wrong = f"{words.target} looks wrong" if known.suspect[line] else ""
        made.append("</tr><tr>")
        made += [
            _cell(is_[0], f"{rank + 1}.\u00a0{row_name(known.rows[line])}", word=wrong),
            _cell(is_[1], words.amount(known.targets[line])),
            _cell(is_[2], words.amount(known.adjusted[line]), word=_far(known, i, line)),
            _cell(is_[3], words.change(known.moves[line], known.values[i])),
        ]
        if known.alike is not None:
            made.append(_cell("Alike", percent(known.alike[line])))
        if known.drawings is not None:
            made.append(
                _cell(
                    "Distance",
                    site_map.distance_text(known.drawings.away[i, rank], known.drawings.unit),
                )
            )
        for head, row, queried, plain in zip(
            is_[len(heads) :], known.own, known.queried, shown.plain
        ):
            gap = "" if row is None or queried is None else difference(row[line], queried[i], plain)
            made.append(_cell(head, "" if row is None else cell(row[line], plain), gap))
    made.append("</tr>")
    if len(lines) > 1:
        mean = words.amount(known.adjusted[lines.start : lines.stop].mean())
        made += [
            '<tr class="this">',
            _cell(is_[0], f"Mean of these {len(lines)}"),
            "<td></td>",
            _cell(is_[2], mean),
        ]
        made += ["<td></td>" for _ in is_[3:]]
    made.append("</tr></tbody></table>")
    return "".join(made)


def _cell(head: str, text: str, gap: str = "", word: str = "") -> str:
    """A cell under a head that is escaped already, with a difference or a word of caution; short ones are not broken."""
    if not text:
        return "<td></td>"
    kept = (
        ' class="n"'
        if len(text) <= UNBROKEN and " " not in text
        else ' class="s"'
        if len(text) <= SHORT
        else ""
    )
    more = f" <small>({escape(gap)})</small>" if gap else ""
    more += f' <small class="word">{escape(word)}</small>' if word else ""
    return f'<td{kept} data-is="{head}">{escape(text)}{more}</td>'


def _far(known: Cases, i: int, line: int) -> str:
    """A word for an adjusted target that is far from the estimate; nothing for others."""
    ratio = known.adjusted[line] / known.values[i] if known.values[i] else 1.0
    return (
        "more than twice the estimate"
        if ratio > FAR
        else "less than half the estimate"
        if ratio < 1 / FAR
        else ""
    )


def _mean(known: Cases, i: int, words: Words) -> str:
    """A sentence on the mean of the adjusted targets where it is off the estimate; nothing where it is near."""
    lines = np.arange(known.first[i], known.first[i + 1])
    adjusted, value = known.adjusted[lines], float(known.values[i])
    gap = adjusted.mean() - value
    if len(lines) < 2 or abs(gap) <= OFF * abs(value):
        return ""
    odd = np.array([bool(known.suspect[line] or _far(known, i, line)) for line in lines])
    said = f"The mean is {words.amount(abs(gap), value)} {'above' if gap > 0 else 'below'} the estimate"
    rest = adjusted[~odd].mean() if odd.any() and not odd.all() else np.inf
    if abs(rest - value) <= abs(gap) / 2:
        *most, last = (str(rank + 1) for rank in np.flatnonzero(odd))
        whose, them = (
            (f"numbers {', '.join(most)} and {last}", "them") if most else (f"number {last}", "it")
        )
        return f"{said} because of {whose}; without {them} the mean is {words.amount(rest)}."
    way = "higher" if gap > 0 else "lower"
    return (
        f"{said}: on average the {words.target} of these {len(lines)} {words.rows} is {way} than the "
        f"model expects of them. The estimate rests on all {known.shown.n_train:,} {words.rows}, not on these alone."
    )


def _notes(known: Cases, lines: range, words: Words) -> str:
    """Sentences that explain the columns of the table."""
    made = (
        f"Adjusted: what its {words.target} would have been for this {words.query}, by the model. Effect of "
        f"10 % more: how far this estimate would move if that {words.target} had been 10 % higher."
    )
    if known.alike is not None:
        made += f" Alike: in how many of its steps the model treats it like this {words.query}."
    if any(
        known.queried[j] is not None and known.own[j] is not None for j in range(len(known.own))
    ):
        made += f" In brackets: the difference from this {words.query}."
    if any(known.suspect[line] for line in lines):
        made += (
            f" Looks wrong: the {words.target} is far from what the other {words.rows} lead one to expect. It may be a mistake "
            "in the records, or a case that is like no other."
        )
    return f'<p class="soft">{escape(made)}</p>'


def _map(known: Cases, i: int, lines: range, words: Words) -> str:
    if known.drawings is None or not len(lines):
        return ""
    titles = [row_name(known.rows[line]) for line in lines]
    return site_map.svg(
        known.drawings, i, titles, f"Map of this {words.query} and of {len(titles)} {words.rows}"
    )
