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
PROVEN = {
    "exact": "exact weights",
    "additive": "pushes that add up to the score",
}  # which this program explains

OF_DATA = ("weights", "offset", "index", "features", "inverse_func", "categorical")  # options


def check(arguments: argparse.Namespace, out: Any) -> int:
    """Whether a model can be explained; 0 where it can, 1 where not."""
    if (arguments.train is None) != (arguments.target is None):
        given, lacking = (
            ("--train", "--target") if arguments.target is None else ("--target", "--train")
        )
        raise InputError(
            f"{given} was given without {lacking}; give both to replay the fit, or neither."
        )
    as_record = arguments.format == "json"
    if arguments.train is None:
        for name in OF_DATA:
            option, why = (
                f"--{name.replace('_', '-')}",
                "without --train and --target no fit is replayed",
            )
            refuse(
                option, getattr(arguments, name), why, "Give these two as well, or leave it out."
            )
        model = files.load(arguments.model, arguments.trust)
        with files.usable(arguments.model), suppress(UnsupportedModelError):
            adapters.read(model)  # which a damaged file cannot
        known = supports(model)
        kind, setting, reason = known.kind, known.setting, known.reason
        said = f"{VERDICTS[kind]}\n{reason}"
    else:
        try:
            explainer = commands.question_of(arguments).explainer
        except (UnsupportedModelError, ExactnessError) as error:
            if not as_record:
                raise
            kind, setting, reason = "no", getattr(error, "setting", None), str(error)
        else:
            kind, setting, said = (
                explainer.kind,
                None,
                f"{PROVEN[explainer.kind]}, proven on {arguments.train}",
            )
            reason = f"{said[0].upper()}{said[1:]}."
            said += "" if arguments.quiet else f"\n{explainer.verification}"
    explained = kind in PROVEN
    record = {
        "model": arguments.model,
        "train": arguments.train,
        "explained": explained,
        "kind": kind,
    }
    record |= {"setting": setting, "reason": reason}
    print(as_json(record) if as_record else f"{arguments.model}: {said}", file=out)
    return 0 if explained else 1
