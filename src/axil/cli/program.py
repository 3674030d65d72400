"""One run of the program: from its words to an exit code, with no traceback unless asked for."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import TextIO

from axil.cli.commands import make_parser
from axil.cli.data import Note
from axil.cli.request import Request
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

# Python names in messages of the library, and where they come from on the command line
OPTION_BY_PARAMETER = {
    "X_train": "the features of --train",
    "y_train": "the column that --target names",
    "sample_weight": "the column that --weights names",
    "inverse_func": "--inverse-func",
    "pos_label": "--pos-label",
    "n_threads": "--threads",
    "memory_limit": "--memory-limit",
    "scratch": "--scratch",
    "device": "--device",
    "out_of_fold": "--out-of-fold",
    "X_val": "the features of --validation",
    "init_score": "--offset",
}
DONE = 0
REFUSED = 1
BAD_INPUT = 2
UNEXPECTED = 3
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        The words of the command; by default those of the shell.

    Returns
    -------
    exit_code : int
        0: done. 1: axil refuses the model, or the replay of its fit disagrees. 2: bad usage or
        input. 3: an unexpected error.
    """
    parser, _ = make_parser()
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as stop:  # argparse has printed why
        return int(stop.code or 0)
    progress = silent() if arguments.quiet else contextlib.nullcontext()
    try:
        with progress, _answer_stream(arguments.quiet) as stream:
            command = arguments.command
            return command.run(Request(command, arguments, stream)) or DONE
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
    """Print an error in words and return its exit code."""
    if isinstance(error, AxilError):
        _say(str(error) + _options_sentence(str(error)))
        is_refusal = isinstance(error, (UnsupportedModelError, ExactnessError))
        if is_refusal:
            return REFUSED
        return BAD_INPUT
    if isinstance(error, MemoryError):
        _say("there is not enough memory. Explain fewer rows at a time, or set --memory-limit.")
        return BAD_INPUT
    if isinstance(error, OSError):
        _say(f"{error.filename or 'a file'}: {error.strerror or error}.")
        return BAD_INPUT
    lines = str(error).strip().splitlines() or ["no reason given"]
    _say(
        f"Unexpected error (please report it): {type(error).__name__}: {lines[0]}. "
        "Run again with --debug to see where it happened."
    )
    return UNEXPECTED


def _options_sentence(message: str) -> str:
    """Return a line with the options for the Python names in a message; empty without any."""
    options = [
        f"{name} is {option}"
        for name, option in OPTION_BY_PARAMETER.items()
        if re.search(rf"\b{name}\b", message)
    ]
    if options:
        return f"\nOn the command line {', '.join(options)}."
    return ""


def _say(text: str) -> None:
    """Print a message: short, without control characters, further lines indented."""
    lines = visible(shortened(text, LONGEST), allowed="\n").split("\n")
    print("\n  ".join([f"axil: {lines[0]}", *lines[1:]]), file=sys.stderr)


@contextlib.contextmanager
def _answer_stream(quiet: bool) -> Iterator[TextIO]:
    """Yield standard output for the answer alone.

    What libraries print goes to standard error, and a warning is one line there. Where the user
    wants quiet, only warnings of approximations are printed.
    """

    def print_warning(
        message: Warning | str, category: type[Warning], *_: object, **__: object
    ) -> None:
        if not quiet or issubclass(category, ApproximationWarning):
            _say(f"{'note' if issubclass(category, Note) else 'warning'}: {message}")

    stream = sys.stdout
    if hasattr(stream, "reconfigure"):
        # A label that the terminal cannot show is no error.
        stream.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        warnings.showwarning = print_warning
        yield stream
    stream.flush()
