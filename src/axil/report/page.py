"""The page of one prediction: its value, the rows that carry it, how each differs, and how sure it is."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files

import numpy as np

from axil.output import site_map
from axil.report.content import Cases
from axil.report.wording import Words, cell, difference, percent

SHORT = 14  # letters of a cell that stay on one line
RAISED = 0.1  # by which the targets of the rows listed are raised in a sentence


def part(name: str) -> str:
    """A file of this package."""
    return (files("axil.report") / name).read_text(encoding="utf-8").strip()


@cache
def style() -> str:
    """The style of every page, short."""
    lines = f"{part('page.css')}\n{site_map.style()}".splitlines()
    return (
        "".join(line.strip() for line in lines)
        .replace("; }", "}")
        .replace(" { ", "{")
        .replace("{ ", "{")
        .replace(": ", ":")
    )


def hashed(text: str) -> str:
    """The hash of a style or script, as a content security policy has it."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


@cache
def _head() -> str:
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src {hashed(style())}">'
        f"<style>{style()}</style>"
    )


def render(known: Cases, i: int, label: str, words: Words, sure: str, back: str) -> str:
    """The page of prediction i, whole; ``sure`` is the coverage of its interval in words, ``back`` the way to the index."""
    about, lines = escape(words.query), range(known.first[i], known.first[i + 1])
    parts = [
        _head(),
        f"<title>{escape(label)}: {escape(words.title)}</title></head><body><header>"
        f'<p class="soft">{escape(words.title)}</p><h1>{escape(label)}</h1></header>'
        f'<section><p>Estimated {escape(words.target)}</p><p class="value">{escape(words.amount(known.values[i]))}</p>',
        _sure(known, i, words, sure),
        f"</section><section><h2>Which {escape(words.rows)} carry it</h2><p>{escape(_carried(known, i, words))}</p>",
    ]
    if len(lines):
        parts += [_table(known, i, words), f'<p class="soft">{escape(_notes(known, lines, words))}</p>']
    parts.append("</section>")
    drawn = _map(known, i, lines, words)
    if drawn:
        parts.append(
            f'<section><h2>Where they are</h2>{drawn}<p class="soft">The diamond is this {about}; the numbers are those of the '
            "table, in larger circles where they count more. North is up. Streets are not drawn.</p></section>"
        )
    parts.append(
        f'<footer class="soft"><p>Computed from the fitted model without approximation. It says what the model, as it is, makes '
        f"of each {escape(words.target)}, not what a model fitted again would do.</p>"
        f'<p class="back"><a href="{back}">All pages</a></p></footer></body></html>\n'
    )
    return "".join(parts)


def _sure(known: Cases, i: int, words: Words, sure: str) -> str:
    """A sentence on the interval; nothing where there is none."""
    if known.interval is None:
        return ""
    lower, upper = (escape(words.amount(ends[i])) for ends in known.interval)
    return (
        f"<p>How sure is this? The true {escape(words.target)} lies between <b>{lower}</b> and <b>{upper}</b> with a probability "
        f'of {sure}.</p><p class="soft">That holds on average over many estimates, not for each one.</p>'
    )


def _carried(known: Cases, i: int, words: Words) -> str:
    """Sentences on how much of the estimate the rows listed hold."""
    listed, n = int(known.first[i + 1] - known.first[i]), known.n_train
    made = f"The model makes this estimate from {n:,} {words.rows}. Each counts with a weight of its own. "
    if not listed:
        return made + f"None of those that may be shown counts for this {words.query}."
    which = f"The {listed} below count most of those that may be shown" if listed > 1 else "The one below counts most"
    them = "they hold" if listed > 1 else "it holds"
    made += f"{which}: {them} {percent(known.shares[i])} of all weight; the other {n - listed:,} hold the rest. "
    share = known.value_shares[i]
    if np.isnan(share):
        return made.strip()
    moved = (1 + RAISED) ** share - 1 if known.is_log else RAISED * share
    whose = f"the {words.target} of each of these" if listed > 1 else f"its {words.target}"
    way = "higher" if moved >= 0 else "lower"
    return made + f"If {whose} were {percent(RAISED)} higher, the estimate would be about {percent(abs(moved))} {way}."


def _table(known: Cases, i: int, words: Words) -> str:
    """The rows listed, largest first, below the query itself."""
    heads = [words.rows.capitalize(), "Counts for", words.target.capitalize(), f"Adjusted to this {words.query}"]
    if known.drawings is not None:
        heads.append("Distance")
    heads += [words.name(name) for name in known.names]
    is_ = [escape(head) for head in heads]
    first = [f"This {words.query}", "", "", words.amount(known.values[i]), *([] if known.drawings is None else [""])]
    first += ["" if column is None else cell(column[i]) for column in known.queried]
    made = ["<table><thead><tr>", *(f"<th>{head}</th>" for head in is_), '</tr></thead><tbody><tr class="this">']
    made += [_cell(head, text) for head, text in zip(is_, first)]
    for rank, line in enumerate(range(known.first[i], known.first[i + 1])):
        texts = [
            f"{rank + 1}. {cell(known.rows[line])}",
            percent(known.counts[line]),
            words.amount(known.targets[line]),
            words.amount(known.adjusted[line]),
        ]
        if known.drawings is not None:
            km = known.drawings.km[i, rank]
            texts.append("\u2013" if np.isnan(km) else f"{1000 * km:.0f} m" if km < 1 else f"{km:.1f} km")
        made.append("</tr><tr>")
        made += [_cell(head, text) for head, text in zip(is_, texts)]
        for head, own, queried in zip(is_[len(texts) :], known.own, known.queried):
            gap = "" if own is None or queried is None else difference(own[line], queried[i])
            made.append(_cell(head, "" if own is None else cell(own[line]), gap))
    made.append("</tr></tbody></table>")
    return "".join(made)


def _cell(head: str, text: str, gap: str = "") -> str:
    """A cell under a head that is escaped already; short ones are not broken."""
    kept = ' class="n"' if len(text) <= SHORT else ""
    more = f" <small>({escape(gap)})</small>" if gap else ""
    return f'<td{kept} data-is="{head}">{escape(text)}{more}</td>' if text else "<td></td>"


def _notes(known: Cases, lines: range, words: Words) -> str:
    """Sentences that explain the columns of the table."""
    made = (
        f"Counts for: the share of all weight. Adjusted: its {words.target}, moved by as much as the model puts this "
        f"{words.query} above or below it; for this {words.query} the estimate itself. In brackets: how far it is from this "
        f"{words.query}."
    )
    if any(known.counts[line] < 0 for line in lines):
        made += f" A minus: a higher {words.target} there would lower this estimate."
    return made


def _map(known: Cases, i: int, lines: range, words: Words) -> str:
    if known.drawings is None or not len(lines):
        return ""
    titles = [cell(known.rows[line]) for line in lines]
    return site_map.svg(known.drawings, i, titles, f"Map of this {words.query} and of {len(titles)} {words.rows}")
