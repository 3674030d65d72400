"""Repeat the protocol of OpenDataVal's notebook on diabetes, with axil's values of rows.

    python experiments/opendataval_notebook.py            # needs no data, half a minute

The notebook is examples/diabetes_regression.ipynb of opendataval/opendataval. 100 rows train a
linear regression, 50 validate it and 50 test it. Standard normal noise is added to the features of
a tenth of the rows that train and of those that validate. Every method gives each training row a
value. "F1" is the notebook's: two-means clustering splits the values in two, and the lower group is taken for
the noisy rows. "precision" is the average precision with which low values find them. "low first"
and "high first" are test errors of refits without the rows of lowest, or highest, values: means
over 5, 10, ... 50 % removed, relative to the error with all rows. Low first should be small, high
first large.

The notebook has one draw and does not name it; here are 50. Its F1 stands beside ours where a
method is the same. Data-OOB is minus the squared error of a row by the models of a bagging that did
not see it, as the notebook's; leave-one-out is the rise of the validation error without the row,
which `Explainer.removal` gives without a refit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from paper_setting import Line, markdown, plain_arguments, write
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.metrics import average_precision_score, f1_score

import axil

N_TRAIN = 100
N_VALIDATE = 50
N_TEST = 50
NOISE_RATE = 0.1
N_DRAWS = 50
N_RESAMPLES = 100
REMOVED = np.arange(0.05, 0.51, 0.05)
PUBLISHED = {"leave-one-out": "0.122", "Data-OOB": "0.182", "random": "0.167"}
MEASURES = ("F1", "precision", "low first", "high first")


@dataclass(frozen=True)
class Draw:
    """The rows of one draw; noise has been added to the features of some."""

    X: np.ndarray
    y: np.ndarray
    X_validate: np.ndarray
    y_validate: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    is_noisy: np.ndarray  #: of the training rows
    seed: int

    @classmethod
    def of(cls, seed: int) -> Draw:
        """Draw rows and noise."""
        data = load_diabetes()
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(data.target))[: N_TRAIN + N_VALIDATE + N_TEST]
        train, validate, test = np.split(order, [N_TRAIN, N_TRAIN + N_VALIDATE])
        X = data.data[train]
        X_validate = data.data[validate]
        noisy = rng.permutation(N_TRAIN)[: round(NOISE_RATE * N_TRAIN)]
        noisy_validate = rng.permutation(N_VALIDATE)[: round(NOISE_RATE * N_VALIDATE)]
        X[noisy] += rng.normal(size=(len(noisy), X.shape[1]))
        X_validate[noisy_validate] += rng.normal(size=(len(noisy_validate), X.shape[1]))
        return cls(
            X=X,
            y=data.target[train],
            X_validate=X_validate,
            y_validate=data.target[validate],
            X_test=data.data[test],
            y_test=data.target[test],
            is_noisy=np.isin(np.arange(N_TRAIN), noisy),
            seed=seed,
        )

    def explainer(self) -> axil.Explainer:
        """Return the explainer of the model of all training rows."""
        return axil.Explainer(LinearRegression().fit(self.X, self.y), self.X, self.y, n_threads=1)

    def test_error(self, rows: np.ndarray) -> float:
        """Return the mean squared test error of a model of these training rows."""
        model = LinearRegression().fit(self.X[rows], self.y[rows])
        return float(np.mean((self.y_test - model.predict(self.X_test)) ** 2))


def shapley(draw: Draw, baseline: str) -> np.ndarray:
    """Return axil's exact Shapley values, (N,)."""
    table = draw.explainer().shapley(draw.X_validate, draw.y_validate, baseline=baseline)
    return table.sort_values("row")["value"].to_numpy()


def leave_one_out_residuals(draw: Draw) -> np.ndarray:
    """Return minus the squared residuals of rows by the fits without them, (N,)."""
    return -(draw.explainer().diagnostics.leave_one_out()["residual"].to_numpy() ** 2)


def leave_one_out(draw: Draw) -> np.ndarray:
    """Return how much the validation error rises without each row, (N,)."""
    explainer = draw.explainer()
    predictions = explainer(draw.X_validate).predictions
    effects = explainer.removal(draw.X_validate)
    errors = draw.y_validate[:, None] - predictions[:, None] - effects
    return np.mean(errors**2, axis=0) - np.mean((draw.y_validate - predictions) ** 2)


def data_oob(draw: Draw) -> np.ndarray:
    """Return Data-OOB, (N,)."""
    rng = np.random.default_rng(draw.seed)
    error_sums = np.zeros(N_TRAIN)
    counts = np.zeros(N_TRAIN)
    for _ in range(N_RESAMPLES):
        sample = rng.integers(N_TRAIN, size=N_TRAIN)
        is_out = ~np.isin(np.arange(N_TRAIN), sample)
        model = LinearRegression().fit(draw.X[sample], draw.y[sample])
        error_sums[is_out] += (draw.y[is_out] - model.predict(draw.X[is_out])) ** 2
        counts += is_out
    return -error_sums / np.maximum(counts, 1)


def random_values(draw: Draw) -> np.ndarray:
    """Return independent numbers, (N,)."""
    return np.random.default_rng(draw.seed).normal(size=N_TRAIN)


METHODS: dict[str, Callable[[Draw], np.ndarray]] = {
    "axil shapley, mean": lambda draw: shapley(draw, "mean"),
    "axil shapley, others": lambda draw: shapley(draw, "others"),
    "axil leave-one-out residual": leave_one_out_residuals,
    "leave-one-out": leave_one_out,
    "Data-OOB": data_oob,
    "random": random_values,
}


def lower_cluster(values: np.ndarray) -> np.ndarray:
    """Return whether values are in the lower of the two clusters of least variance, (N,)."""
    ordered = np.sort(values)
    costs = [
        np.var(ordered[:count]) * count + np.var(ordered[count:]) * (len(ordered) - count)
        for count in range(1, len(ordered))
    ]
    return values <= ordered[int(np.argmin(costs))]


def scores(draw: Draw, values: np.ndarray) -> list[float]:
    """Return the measures of the values of a draw."""
    is_low = lower_cluster(values)
    order = np.argsort(values, kind="stable")
    all_rows_error = draw.test_error(order)
    removed_counts = np.round(REMOVED * N_TRAIN).astype(int)
    low_first = np.mean([draw.test_error(order[count:]) for count in removed_counts])
    high_first = np.mean([draw.test_error(order[:-count]) for count in removed_counts])
    return [
        float(f1_score(draw.is_noisy, is_low)),
        float(average_precision_score(draw.is_noisy, -values)),
        float(low_first / all_rows_error),
        float(high_first / all_rows_error),
    ]


def main() -> None:
    """Measure all methods on all draws, and write the means."""
    plain_arguments(__doc__).parse_args()
    draws = [Draw.of(seed) for seed in range(N_DRAWS)]
    lines: list[Line] = []
    for name, method in METHODS.items():
        table = np.array([scores(draw, method(draw)) for draw in draws])
        line: Line = {"method": name}
        line |= {measure: f"{mean:.3f}" for measure, mean in zip(MEASURES, table.mean(axis=0))}
        line["F1 of the notebook"] = PUBLISHED.get(name, "")
        lines.append(line)
    print("\n".join(markdown(lines)))
    write("opendataval_notebook", lines, "python experiments/opendataval_notebook.py")


if __name__ == "__main__":
    main()
