"""House prices by comparables: what a valuation rests on, for somebody who has to defend it.

A simulated town: 2,000 sales in five districts over ten years, prices by area, rooms, age, distance, district and year. A model
is fitted to the sales; three houses are valued; each valuation is shown with the sales that made it.

    python examples/house_prices.py [--out DIRECTORY]
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from lightgbm import LGBMRegressor

import axil
from axil import plots

DISTRICTS = {"harbour": 1.25, "old town": 1.4, "hill": 1.1, "mills": 0.85, "station": 0.95}


def town(n, seed):
    """Sales of a town that does not exist."""
    rng = np.random.default_rng(seed)
    district = rng.choice(list(DISTRICTS), n, p=[0.15, 0.2, 0.25, 0.25, 0.15])
    area = rng.gamma(9, 12, n).round()
    sales = pd.DataFrame(
        {
            "area": area,
            "rooms": np.clip((area / 24 + rng.normal(0, 0.8, n)).round(), 1, None),
            "built": rng.integers(1890, 2022, n),
            "km to centre": rng.gamma(2, 1.5, n).round(1),
            "year": rng.integers(2015, 2025, n),
            "district": pd.Categorical(district, categories=list(DISTRICTS)),
        },
        index=[f"sale {i:04d}" for i in range(n)],
    )
    level = np.array([DISTRICTS[name] for name in district]) * (1 + 0.04 * (sales["year"] - 2015))
    price = (
        level
        * (30_000 + 2_600 * area**0.95)
        * np.exp(-0.05 * sales["km to centre"])
        * (1 + 0.001 * (sales["built"] - 1955))
    )
    return sales, (price * rng.lognormal(0, 0.08, n)).round(-2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("house-prices"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    sales, prices = town(2000, seed=0)
    houses = town(3, seed=1)[0].set_axis(["1 First Street", "2 Second Street", "3 Third Street"])
    model = LGBMRegressor(n_estimators=200, num_leaves=16, learning_rate=0.05, verbose=-1, n_jobs=1).fit(sales, prices)
    explainer = axil.Explainer(model, sales, prices)
    print(explainer.verification, "\n")

    pd.set_option("display.width", 160)
    comparables = explainer.similar(houses, k=5, columns=["area", "district", "year"])
    values, errors = model.predict(houses), explainer.standard_error(houses)
    for house, value, error in zip(houses.index, values, errors):
        print(f"{house}: valued at {value:,.0f}, +- {error:,.0f} from noise in the sale prices (splits kept)")
        print(comparables[comparables["query"] == house].drop(columns="query").to_string(index=False), "\n")
    print(explainer.concentration(houses).to_string(index=False))

    explanation = explainer(houses)
    plots.weights(explanation, k=12).figure.savefig(out / "weights.png")
    plots.weights_against(explanation, "year").figure.savefig(out / "years.png")
    explainer.to_html(houses, out / "valuations.html", groups=sales["district"])
    print(f"\nThe page for the file: {out / 'valuations.html'}")


if __name__ == "__main__":
    main()
