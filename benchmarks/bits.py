"""How far answers to the same question differ by the number of rows asked about at a time, and after `precompute`."""

import numpy as np
from lightgbm import LGBMRegressor

import axil

ROWS, TREES, LEAVES, QUERIES = 20_000, 100, 31, 200


def main() -> None:
    """Print differences in weights, relative to the largest, and in predictions, relative to theirs."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 9))
    y = 2 * X[:, 0] + np.sin(3 * X[:, 1]) + X[:, 2] * X[:, 3] + rng.normal(size=ROWS) / 2
    model = LGBMRegressor(n_estimators=TREES, num_leaves=LEAVES, verbose=-1).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    whole = explainer(X[:QUERIES])
    prepared = axil.Explainer(model, X, y).precompute()(X[:QUERIES])
    for what, weights, predictions in (
        ("one by one", *_one_by_one(explainer, X)),
        ("after precompute()", prepared.weights, prepared.predictions),
        ("again", explainer(X[:QUERIES]).weights, explainer(X[:QUERIES]).predictions),
    ):
        of_weights = np.abs(weights - whole.weights).max() / np.abs(whole.weights).max()
        of_predictions = (
            np.abs(predictions - whole.predictions).max() / np.abs(whole.predictions).max()
        )
        print(f"{what}: weights {of_weights:.0e}, predictions {of_predictions:.0e}")


def _one_by_one(explainer: axil.Explainer, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    parts = list(explainer.iter(X[:QUERIES], batch_size=1))
    return np.concatenate([part.weights for part in parts]), np.concatenate(
        [part.predictions for part in parts]
    )


if __name__ == "__main__":
    main()
