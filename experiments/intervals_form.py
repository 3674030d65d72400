"""Which form of the local scale gives the best intervals, on data sets that no comparison counts?

    python experiments/intervals_form.py     # some minutes; needs no data

The forms of src/axil/methods/intervals/local.py and simpler ones, by both methods of `Explainer.calibrate`, each by full
conformal prediction with the same models and calibration rows (`interval_data.py`). CRPS of the predictive distribution and
Winkler score of 90 % intervals, relative to one constant width: geometric means over all splits and models; with all calibration
rows, and with the first 30. "held": their coverage.
"""

from __future__ import annotations

import argparse

import numpy as np
from interval_data import Case, cases
from paper_setting import Line, command, markdown, write_csv

from axil.methods.intervals.calibrate import METHODS
from axil.methods.intervals.conformal import Conformal, order_of
from axil.methods.intervals.local import NAMES, NEARBY, PENALTY

COVERAGE = 0.9
ALL = tuple(range(len(NAMES)))
FORMS: dict[
    str, tuple[tuple[int, ...], tuple[float, ...], float]
] = {  # features, powers of the errors nearby, penalty
    "constant": ((), (0.0, 0.0), PENALTY),
    "errors under |k|": ((), (1.0, 0.0), PENALTY),
    "errors under k^2": ((), (0.0, 1.0), PENALTY),
    "ridge of errors and spreads": (ALL[:4], (NEARBY, NEARBY), PENALTY),
    "and of the effective size": (ALL[:5], (NEARBY, NEARBY), PENALTY),
    "and of the place among targets": (ALL, (NEARBY, NEARBY), PENALTY),
    "that, from a constant": (ALL, (0.0, 0.0), PENALTY),
    "that, from the errors": (ALL, (0.5, 0.5), PENALTY),
    "that, penalty 2": (ALL, (NEARBY, NEARBY), 2.0),
    "that, penalty 32": (ALL, (NEARBY, NEARBY), 32.0),
}


def scores(
    case: Case, form: tuple[tuple[int, ...], tuple[float, ...], float], rows: int | None
) -> np.ndarray:
    """CRPS, Winkler score and coverage."""
    chosen, powers, penalty = form
    features, sizes = [], []
    for local in (case.calibration, case.test):
        features.append(local.features[:, 0, list(chosen)])
        sizes.append(np.exp(local.features[:, 0, :2] @ powers))
    unit = case.test.sizes[0, 0] / np.exp(
        NEARBY * case.test.features[0, 0, :2].sum()
    )  # the spread of the targets
    made = Conformal(
        features[0][:rows],
        unit * sizes[0][:rows],
        case.calibration_errors[:rows],
        np.full(len(chosen), penalty),
    )
    atoms, r = made.atoms(features[1], unit * sizes[1]), case.test_errors[:, None]
    n = atoms.shape[1]
    ranks = 2 * np.arange(1, n + 1) - n - 1
    crps = np.abs(atoms - r).mean(axis=1) - (ranks * atoms).sum(axis=1) / n**2
    half = np.sort(made.magnitudes(features[1], unit * sizes[1]), axis=1)[
        :, order_of(COVERAGE, n) - 1
    ]
    beyond = np.maximum(np.abs(r[:, 0]) - half, 0.0)
    winkler = 2 * half + 2 / (1 - COVERAGE) * beyond
    return np.array([crps.mean(), winkler.mean(), (beyond == 0).mean()])


def lines_of(method: str, every: list[Case]) -> list[Line]:
    """A line for each form."""
    found = {
        (name, rows): np.array([scores(case, form, rows) for case in every])
        for name, form in FORMS.items()
        for rows in (None, 30)
    }
    lines: list[Line] = []
    for name in FORMS:
        line: Line = {"method": method, "form": name}
        for rows, label in ((None, "all rows"), (30, "30 rows")):
            ratio = np.exp(
                np.log(found[name, rows][:, :2] / found["constant", rows][:, :2]).mean(axis=0)
            )
            line |= {f"CRPS, {label}": f"{ratio[0]:.3f}", f"Winkler, {label}": f"{ratio[1]:.3f}"}
            line[f"held, {label}"] = f"{found[name, rows][:, 2].mean():.3f}"
        lines.append(line)
    return lines


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    lines: list[Line] = []
    for method in METHODS:
        lines += lines_of(method, list(cases(method)))
    print("\n".join(markdown(lines)))
    write_csv("intervals_form", lines, command("intervals_form", None))


if __name__ == "__main__":
    main()
