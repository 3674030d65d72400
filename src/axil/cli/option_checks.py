"""Options that would change nothing in the answer asked for: refused by name, before any work.

Limits (threads, memory, scratch, device) change no answer anyway, and are taken by every command.
"""

from __future__ import annotations

import argparse

from axil.errors import InputError, shown

OF_DATA = ("weights", "offset", "index", "features", "inverse_func", "categorical")


def refuse(option: str, given: object, why: str, instead: str = "Leave it out.") -> None:
    """Raise where the option was given."""
    if given is not None:
        raise InputError(f"{option} is {shown(given)}, which would change nothing: {why}. {instead}")


def without_data(arguments: argparse.Namespace) -> None:
    """Refuse what is about training data where there are none."""
    for name in OF_DATA:
        why = "without --train and --target no fit is replayed"
        refuse(f"--{name.replace('_', '-')}", getattr(arguments, name), why, "Give these two as well, or leave it out.")


def with_pushes(arguments: argparse.Namespace) -> None:
    """Refuse what only exact weights have."""
    refuse(
        "--inverse-func",
        arguments.inverse_func,
        "it leads from sums of targets to prices, and this model has pushes that add up to a score",
    )


def on_pages(arguments: argparse.Namespace) -> None:
    """Refuse what only tables have."""
    refuse(
        "--by",
        arguments.by,
        "a page orders rows by weight, or by contribution where pushes add up to a score",
        "Leave it out, or ask for a table too, with --format.",
    )
