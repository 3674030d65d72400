"""`axil ratio-study`: ratios of predictions to prices, beside the ranges of the standard."""

from __future__ import annotations

import numpy as np

import axil
from axil.cli.request import Request
from axil.errors import counted
from axil.methods.method import verified_model


def ratio_study(request: Request) -> None:
    """Print the statistics of the ratios of predictions to the prices of sales."""
    subject = request.subject
    model = verified_model(subject.explainer)
    rows = subject.read_rows(request.arguments.query, with_target=True)
    queries = model.queries(rows.features, rows.init_score)
    targets = model.scale.checked_forward(np.asarray(rows.target)[:, None], "y")
    strata = None
    if request.arguments.group_by is not None:
        strata = rows.column(request.arguments.group_by, "--by").to_numpy()
    study = axil.ratio_study(
        model.scale.inverse(queries.predictions)[:, 0],
        model.scale.inverse(targets)[:, 0],
        by=strata,
        **request.parameters(axil.ratio_study, ("predictions", "prices", "by")),
    )
    title = f"ratios of predictions to prices, {counted(len(rows.features), 'sale')} of {rows.path}"
    request.output.give([study.table], subject.answer_text(title, study.table))
