"""Are the five comparables of the same place and type: by weight, or by shared leaves?

    python experiments/alike.py --data FOLDER     # FOLDER as for the paper's tables; 1 minute

Three sets of real prices: homes near Boston (place: the town, by its tax, schools and industry; type: on the river or not), used
cars (make; body), fares of the Titanic above 0 (port; class). LightGBM and forests fitted to logarithms, three splits, four
fifths to fit. Errors are root mean squares of logarithms of five prices' means: as they are, and as the model adjusts them to the
query.
"""

from __future__ import annotations

from pathlib import Path

import lightgbm as lgb
import numpy as np
import pandas as pd
from paper_setting import Line, arguments, command, markdown, write
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split

import axil

K, SPLITS = 5, 3
MAKES = ["Buick", "Cadillac", "Chevy", "Pontiac", "Saab", "Saturn"]
BODIES = ["convertible", "coupe", "hatchback", "sedan", "wagon"]
MODELS = {
    "boosting, 100 trees": lambda: lgb.LGBMRegressor(n_estimators=100, verbose=-1),
    "boosting, 400 trees": lambda: lgb.LGBMRegressor(
        n_estimators=400, min_child_samples=5, verbose=-1
    ),
    "forest": lambda: RandomForestRegressor(min_samples_leaf=5, random_state=0),
}


def read(name: str, folder: Path) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]:
    """Features, logarithms of prices, places and types."""
    frame = pd.read_csv(folder / f"{name}.csv")
    if name == "boston":
        prices, place = frame.pop("MEDV"), frame.groupby(["TAX", "PTRATIO", "INDUS"]).ngroup()
        return frame, np.log(prices.to_numpy()), place.to_numpy(), frame["CHAS_1"].to_numpy()
    if name == "cars":
        prices = frame.pop("Price")
        makes, bodies = (frame[own].to_numpy().argmax(axis=1) for own in (MAKES, BODIES))
        return frame, np.log(prices.to_numpy()), makes, bodies
    frame = frame[frame["Fare"] > 0].reset_index(drop=True)
    prices = frame.pop("Fare")
    return (
        frame,
        np.log(prices.to_numpy()),
        frame["Embarked"].to_numpy(),
        frame["Pclass"].to_numpy(),
    )


def measure(name: str, kind: str, folder: Path) -> list[Line]:
    X, y, place, type_ = read(name, folder)
    found: dict[str, list[list[float]]] = {}
    for seed in range(SPLITS):
        old, new = train_test_split(np.arange(len(y)), test_size=0.2, random_state=seed)
        model = MODELS[kind]().fit(X.iloc[old], y[old])
        explainer = axil.Explainer(model, X.iloc[old], y[old])
        own, asked = model.predict(X.iloc[old]), model.predict(X.iloc[new])
        for by in ("weight", "leaves"):
            rows = (
                explainer.similar(X.iloc[new], K, columns=[], by=by)["row"]
                .to_numpy()
                .reshape(-1, K)
            )
            at = np.searchsorted(np.sort(old), rows)
            at = np.argsort(old)[at]
            means = y[old][at].mean(axis=1), (asked[:, None] + (y[old] - own)[at]).mean(axis=1)
            errors = [float(np.sqrt(np.mean((y[new] - mean) ** 2))) for mean in (*means, asked)]
            same = [
                float((which[old][at] == which[new][:, None]).mean()) for which in (place, type_)
            ]
            found.setdefault(by, []).append(same + errors)
    names = (
        "same place",
        "same type",
        "error, as they are",
        "error, adjusted",
        "error of the model",
    )
    return [
        {"data": name, "model": kind, "by": by}
        | dict(zip(names, (f"{v:.3f}" for v in np.mean(lines, axis=0))))
        for by, lines in found.items()
    ]


def main() -> None:
    given = arguments(__doc__.splitlines()[0], ["boston", "cars", "titanic"]).parse_args()
    lines = [
        line for name in given.only for kind in MODELS for line in measure(name, kind, given.data)
    ]
    print("\n".join(markdown(lines)))
    write("alike", lines, command("alike", given.data))


if __name__ == "__main__":
    main()
