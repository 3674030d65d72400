"""What is a refit at the splits of the model worth: rows of early stopping folded back in, and a new period of a series?

    python experiments/refit.py --data FOLDER     # the paper's data sets and two series, some minutes
    python experiments/refit.py --quick           # two small data sets, ten seconds

"early stopping": 60 % of the rows to fit, 20 % to choose the number of trees, 20 % to test, five splits. `Explainer.refit` adds
the rows that chose the number of trees at the splits that are there; "retrained" fits that number of trees to both. Figures are
root mean squared test errors over those of the model as it was fitted: geometric means over the splits.

"series": a model of the first half of a series, which statsmodels ships, predicts the next period from the twelve before. Then
the periods come in one by one. "old": the model stays; "refit": its leaves follow; "retrained": fitted anew after each. Root mean
squared errors over those of the old model, for the first, second, third and last quarter of the periods that came.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightgbm as lgb
import numpy as np
import xgboost as xgb
from catboost import CatBoostRegressor
from paper_data import QUICK, read
from paper_setting import Line, arguments, command, markdown, write_csv
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.model_selection import train_test_split

import axil

SPLITS, MOST_TREES, PATIENCE, LAGS = 5, 500, 20, 12
QUIET = {"allow_writing_files": False, "verbose": 0, "thread_count": 1}
PACKAGES = ("axil", "lightgbm", "xgboost", "catboost", "scikit-learn", "numpy")
Rows = tuple[np.ndarray, np.ndarray]


def lightgbm_model(n_trees: int, seed: int) -> Any:
    return lgb.LGBMRegressor(
        n_estimators=n_trees, n_jobs=1, verbose=-1, force_col_wise=True, random_state=seed
    )


def xgboost_model(n_trees: int, seed: int) -> Any:
    return xgb.XGBRegressor(n_estimators=n_trees, learning_rate=0.1, n_jobs=1, random_state=seed)


def catboost_model(n_trees: int, seed: int) -> Any:
    return CatBoostRegressor(iterations=n_trees, learning_rate=0.1, random_seed=seed, **QUIET)


def sklearn_model(n_trees: int, seed: int) -> Any:
    return GradientBoostingRegressor(n_estimators=n_trees, random_state=seed)


MODELS: dict[str, Callable[[int, int], Any]] = {
    "LightGBM": lightgbm_model,
    "XGBoost": xgboost_model,
    "CatBoost": catboost_model,
    "scikit-learn": sklearn_model,
}


def chosen(make: Callable[[int, int], Any], fit: Rows, stop: Rows, seed: int) -> Any:
    """A model whose number of trees was chosen by other rows, with no more trees than that."""
    whole = make(MOST_TREES, seed).fit(*fit)
    if isinstance(whole, GradientBoostingRegressor):
        stages: Any = whole.staged_predict(stop[0])
    elif isinstance(whole, CatBoostRegressor):
        stages = whole.staged_predict(stop[0])
    elif isinstance(whole, lgb.LGBMRegressor):
        stages = (
            whole.predict(stop[0], num_iteration=t)
            for t in range(1, whole.booster_.num_trees() + 1)
        )
    else:
        stages = (whole.predict(stop[0], iteration_range=(0, t)) for t in range(1, MOST_TREES + 1))
    errors, best = [], 0
    for t, predicted in enumerate(stages):
        errors.append(float(np.mean((stop[1] - predicted) ** 2)))
        best = t if errors[t] < errors[best] else best
        if t - best >= PATIENCE:
            break
    return make(best + 1, seed).fit(*fit)


def rmse(model: Any, rows: Rows) -> float:
    return float(np.sqrt(np.mean((rows[1] - model.predict(rows[0])) ** 2)))


def early_stopping(
    name: str, X: np.ndarray, y: np.ndarray, library: str, splits: int = SPLITS
) -> Line:
    """One line of the first table."""
    refits, retrained = [], []
    for seed in range(splits):
        rest, X_test, y_rest, y_test = train_test_split(X, y, test_size=0.2, random_state=seed)
        fit, stop, y_fit, y_stop = train_test_split(rest, y_rest, test_size=0.25, random_state=seed)
        test = X_test, y_test
        model = chosen(MODELS[library], (fit, y_fit), (stop, y_stop), seed)
        again = axil.Explainer(model, fit, y_fit).refit(add=(stop, y_stop)).model
        n_trees = model.tree_count_ if library == "CatBoost" else model.n_estimators
        anew = MODELS[library](n_trees, seed).fit(
            np.concatenate([fit, stop]), np.concatenate([y_fit, y_stop])
        )
        before = rmse(model, test)
        refits.append(rmse(again, test) / before)
        retrained.append(rmse(anew, test) / before)
    means = (np.exp(np.mean(np.log(ratios))) for ratios in (refits, retrained))
    return {"data": name, "model": library} | dict(
        zip(("refit", "retrained"), (f"{mean:.4f}" for mean in means))
    )


def series() -> dict[str, np.ndarray]:
    """Two series with dates: carbon dioxide week by week, and the temperature of the sea month by month."""
    from statsmodels import datasets

    weekly = datasets.co2.load_pandas().data["co2"].interpolate().to_numpy()
    monthly = datasets.elnino.load_pandas().data.set_index("YEAR").to_numpy().ravel()
    return {"CO2, weekly changes": np.diff(weekly), "El Niño, monthly": monthly}


def arriving(name: str, values: np.ndarray, library: str) -> list[Line]:
    """The lines of the second table for one series and one library."""
    X = np.lib.stride_tricks.sliding_window_view(values[:-1], LAGS).astype(np.float64)
    y = values[LAGS:].astype(np.float64)
    half, n = len(y) // 2, len(y)
    old = MODELS[library](100, 0).fit(X[:half], y[:half])
    explainer = axil.Explainer(old, X[:half], y[:half])
    errors = {
        "old": np.empty(n - half),
        "refit": np.empty(n - half),
        "retrained": np.empty(n - half),
    }
    step = max(1, (n - half) // 100)  # periods that come in together
    for t in range(half, n, step):
        own, at = slice(t - half, t - half + step), slice(t, t + step)
        models = {
            "old": old,
            "refit": explainer.model,
            "retrained": MODELS[library](100, 0).fit(X[:t], y[:t]),
        }
        for way, model in models.items():
            errors[way][own] = (y[at] - model.predict(X[at])) ** 2
        explainer = explainer.refit(add=(X[at], y[at]))
    quarters = np.array_split(np.arange(n - half), 4)
    lines: list[Line] = []
    for way in ("refit", "retrained"):
        ratios = [
            np.sqrt(errors[way][rows].mean() / errors["old"][rows].mean()) for rows in quarters
        ]
        lines.append(
            {"series": name, "model": library, "way": way}
            | {f"quarter {q}": f"{ratio:.3f}" for q, ratio in enumerate(ratios, 1)}
        )
    return lines


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="two small data sets; prints, writes nothing"
    )
    given = parser.parse_args()
    lines: list[Line] = []
    for name in QUICK if given.quick else given.only:
        X, y = (part.to_numpy(float) for part in read(name, given.data))
        for library in MODELS if not given.quick else ("LightGBM", "scikit-learn"):
            lines.append(early_stopping(name, X, y, library, 1 if given.quick else SPLITS))
        print(name, flush=True)
    print("\n".join(markdown(lines)))
    if given.quick:
        return
    write_csv("refit", lines, command("refit", given.data), PACKAGES)
    came = [
        line
        for name, values in series().items()
        for library in MODELS
        for line in arriving(name, values, library)
    ]
    print("\n".join(markdown(came)))
    write_csv("refit_series", came, command("refit", given.data), PACKAGES)


if __name__ == "__main__":
    main()
