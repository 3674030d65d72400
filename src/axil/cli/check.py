"""`axil check`: whether a model can be explained, and whether it was fitted on this data."""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import Any

from axil import adapters
from axil.adapters import files
from axil.cli import commands
from axil.cli.parameters import refuse
from axil.cli.written import as_json
from axil.errors import ExactnessError, InputError, UnsupportedModelError
from axil.support import supports

VERDICTS = {
    "exact": "exact weights",
    "additive": "no exact weights, but pushes that add up to the score",
    "derivative": "no exact weights, but derivatives",
    "no": "no exact weights",
}
PROVEN = {"exact": "exact weights", "additive": "pushes that add up to the score"}  # which this program explains

OF_DATA = ("weights", "offset", "index", "features", "inverse_func", "categorical")  # options


def check(arguments: argparse.Namespace, out: Any) -> int:
    """Whether a model can be explained; 0 where it can, 1 where not."""
    if (arguments.train is None) != (arguments.target is None):
        given, lacking = ("--train", "--target") if arguments.target is None else ("--target", "--train")
        raise InputError(f"{given} was given without {lacking}; give both to replay the fit, or neither.")
    as_record = arguments.format == "json"
    if arguments.train is not None:
        return _proven(arguments, out, as_record)
    for name in OF_DATA:
        why = "without --train and --target no fit is replayed"
        refuse(f"--{name.replace('_', '-')}", getattr(arguments, name), why, "Give these two as well, or leave it out.")
    model = files.load(arguments.model, arguments.trust)
    with files.usable(arguments.model), suppress(UnsupportedModelError):
        adapters.read(model)  # which a damaged file cannot
    known = supports(model)
    explained = known.kind in PROVEN
    if as_record:
        _print(arguments, out, explained, known.kind, known.setting, known.reason)
    else:
        print(f"{arguments.model}: {VERDICTS[known.kind]}\n{known.reason}", file=out)
    return 0 if explained else 1


def _proven(arguments: argparse.Namespace, out: Any, as_record: bool) -> int:
    """Checks a model by a replay of the fit on its data."""
    try:
        explainer = commands.question_of(arguments).explainer
    except (UnsupportedModelError, ExactnessError) as error:
        if not as_record:
            raise
        _print(arguments, out, False, "no", getattr(error, "setting", None), str(error))
        return 1
    verdict = f"{PROVEN[explainer.kind]}, proven on {arguments.train}"
    if as_record:
        _print(arguments, out, True, explainer.kind, None, f"{verdict[0].upper()}{verdict[1:]}.")
    else:
        print(f"{arguments.model}: {verdict}", file=out)
        if not arguments.quiet:
            print(explainer.verification, file=out)
    return 0


def _print(arguments: argparse.Namespace, out: Any, explained: bool, kind: str, setting: Any, reason: str) -> None:
    record = {"model": arguments.model, "train": arguments.train, "explained": explained, "kind": kind}
    print(as_json(record | {"setting": setting, "reason": reason}), file=out)
