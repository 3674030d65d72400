"""What predicts large errors: the norm of the weights, the effective size, the errors nearby, the distance, or the local scale?

    python experiments/intervals_alarm.py     # some minutes; needs no data

The area under the ROC curve for test rows whose |error| is among the largest tenth, by each number
that is known of a row before its target is. Means over the splits and models of `interval_data.py`,
and how often each is the best. `Predictive.interval` has the calibrated local scale, as the share
of calibration rows with a smaller one, in its column "uncertainty_rank".
"""

from __future__ import annotations

import numpy as np
from interval_data import Case, cases
from paper_setting import Line, command, markdown, plain_arguments, write_csv
from scipy.stats import rankdata

from axil.methods.intervals.conformal import Conformal
from axil.methods.intervals.local import PENALTY

LARGE = 0.1  # of all test rows


def area(score: np.ndarray, large: np.ndarray) -> float:
    """Under the ROC curve."""
    hits = large.sum()
    return float(
        (rankdata(score)[large].sum() - hits * (hits + 1) / 2) / (hits * (len(large) - hits))
    )


def areas(case: Case) -> dict[str, float]:
    errors = np.abs(case.test_errors)
    large = errors > np.quantile(errors, 1 - LARGE)
    features, sizes = case.test.features[:, 0], case.test.sizes[:, 0]
    own = case.calibration
    made = Conformal(
        own.features[:, 0],
        own.sizes[:, 0],
        case.calibration_errors,
        np.full(features.shape[1], PENALTY),
    )
    known = {
        "norm of the weights": case.norms,
        "effective size, the smallest first": features[:, 4],
        "errors nearby under |k|": features[:, 0],
        "errors nearby under k^2": features[:, 1],
        "spread of targets under |k|": features[:, 2],
        "spread of targets under k^2": features[:, 3],
        "distance to the nearest training row": case.distances,
        "calibrated local scale": made.scales(features, sizes),
    }
    return {name: area(score, large) for name, score in known.items()}


def main() -> None:
    plain_arguments(__doc__).parse_args()
    found = [areas(case) for case in cases("exact")]
    values = np.array([list(one.values()) for one in found])
    best = values == values.max(axis=1, keepdims=True)
    lines: list[Line] = [
        {"by": name, "area": f"{mean:.3f}", "best": f"{wins} of {len(values)}"}
        for name, mean, wins in zip(found[0], values.mean(axis=0), best.sum(axis=0))
    ]
    print("\n".join(markdown(lines)))
    write_csv("intervals_alarm", lines, command("intervals_alarm", None))


if __name__ == "__main__":
    main()
