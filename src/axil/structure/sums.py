"""Sums over training rows that lie in several places."""

from __future__ import annotations

from dataclasses import fields
from operator import add
from typing import Any, TypeVar

S = TypeVar("S", bound="RowTotals")


class RowTotals:
    """The base of frozen dataclasses of numbers about some rows: those of other rows are added to them, field by field.

    A field whose metadata has a function under "both" is put together by that. None stays None.
    """

    def __add__(self: S, other: S) -> S:
        found: dict[str, Any] = {}
        for own in fields(self):  # type: ignore[arg-type]
            mine, theirs = getattr(self, own.name), getattr(other, own.name)
            found[own.name] = (
                None
                if mine is None or theirs is None
                else own.metadata.get("both", add)(mine, theirs)
            )
        return type(self)(**found)


def each(mine: list[Any], theirs: list[Any]) -> list[Any]:
    """The sums of the members of two lists."""
    return list(map(add, mine, theirs))
