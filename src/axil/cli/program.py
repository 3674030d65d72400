"""One run of the command: from its words to an exit code; no traceback unless asked for."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from axil.cli.arguments import parser
from axil.cli.data import Note
from axil.cli.screen import visible
from axil.errors import (
    LONGEST,
    ApproximationWarning,
    AxilError,
    ExactnessError,
    UnsupportedModelError,
    shortened,
)
from axil.machine.progress import silent

OPTIONS = {
    "X_train": "the features of --train",
    "y_train": "the column that --target names",
    "sample_weight": "the column that --weights names",
    "inverse_func": "--inverse-func",
    "n_threads": "--threads",
    "memory_limit": "--memory-limit",
    "scratch": "--scratch",
    "device": "--device",
    "out_of_fold": "--out-of-fold",
    "X_val": "the features of --validation",
    "init_score": "--offset",
}  # of what messages of the library name
DONE, REFUSED, BAD_INPUT, UNEXPECTED, INTERRUPTED = 0, 1, 2, 3, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these words (by default those of the shell) and give its exit code.

    0: done. 1: the model is refused, or the replay of its fit disagrees. 2: bad usage or input. 3: an unexpected error.
    """
    try:
        arguments = parser().parse_args(argv)
    except SystemExit as stop:  # argparse has said why
        return int(stop.code or 0)
    try:
        with (
            silent() if arguments.quiet else contextlib.nullcontext(),
            _quiet_libraries(arguments.quiet) as out,
        ):
            return int(arguments.run(arguments, out))
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt:
        _say("interrupted.")
        return INTERRUPTED
    except Exception as error:
        if arguments.debug:
            raise
        return _report(error)


def _report(error: Exception) -> int:
    """The exit code of an error, once it has been put into words."""
    if isinstance(error, AxilError):
        _say(str(error) + _in_options(str(error)))
        return REFUSED if isinstance(error, (UnsupportedModelError, ExactnessError)) else BAD_INPUT
    if isinstance(error, MemoryError):
        _say("there is not enough memory. Explain fewer rows at a time, or set --memory-limit.")
        return BAD_INPUT
    if isinstance(error, OSError):
        _say(f"{error.filename or 'a file'}: {error.strerror or error}.")
        return BAD_INPUT
    lines = str(error).strip().splitlines()
    _say(
        f"Unexpected error (please report it): {type(error).__name__}: {lines[0] if lines else 'no reason given'}. "
        "Run again with --debug to see where it happened."
    )
    return UNEXPECTED


def _in_options(text: str) -> str:
    """A last line that gives the options for the Python names in a message; empty where it has none."""
    named = [
        f"{name} is {option}" for name, option in OPTIONS.items() if re.search(rf"\b{name}\b", text)
    ]
    return f"\nOn the command line {', '.join(named)}." if named else ""


def _say(text: str) -> None:
    """Print a message of axil's: short, without control characters, and no line of it looks like another message."""
    first, *rest = visible(shortened(text, LONGEST), kept="\n").split("\n")
    print("\n  ".join([f"axil: {first}", *rest]), file=sys.stderr)


@contextlib.contextmanager
def _quiet_libraries(quiet: bool) -> Iterator[Any]:
    """Standard output for the answer alone: what libraries print goes to standard error, and a warning is one line there.

    Where the user wants ``quiet``, the only warning left is that an answer is an approximation.
    """

    def warn(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
        if not quiet or issubclass(category, ApproximationWarning):
            _say(f"{'note' if issubclass(category, Note) else 'warning'}: {message}")

    out = sys.stdout
    if hasattr(out, "reconfigure"):
        out.reconfigure(
            errors="backslashreplace"
        )  # a label that the terminal cannot show is no error
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        warnings.showwarning = warn
        yield out
    out.flush()
