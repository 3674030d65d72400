"""The sales comparison grid of a page, compared with `Explainer.adjustments` and the model."""

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import axil
from axil.errors import InputError, UnsupportedQuestionError
from axil.report.grid import LEAST_SHARE, PER_GRID
from tests.report.read_pages import Page, entries

N_SALES = 300
N_HOMES = 8
QUICK = {"n_estimators": 30, "min_child_samples": 5, "n_jobs": 1, "verbose": -1}
WORDS = {
    "k": 5,
    "target": "price",
    "unit": "$",
    "rows": "sales",
    "query": "home",
    "suspects": "keep",
}


def town() -> tuple[pd.DataFrame, pd.Series]:
    """Return homes and their prices; four columns hardly matter."""
    rng = np.random.default_rng(4)
    n = N_SALES + N_HOMES
    homes = pd.DataFrame(
        {
            "area": rng.uniform(40, 200, n).round(),
            "built": rng.integers(1900, 2024, n),
            "lat": rng.normal(41.9, 0.1, n),
            "lon": rng.normal(-87.6, 0.1, n),
            **{f"small {i}": rng.integers(0, 5, n) for i in range(4)},
        },
        index=[f"h{i}" for i in range(n)],
    )
    prices = 1000 * homes["area"] + 500 * (homes["built"] - 1950) + 6e5 * (homes["lat"] - 41.9)
    prices += 100 * homes[[f"small {i}" for i in range(4)]].sum(axis=1)
    return homes, prices + 2e5 + rng.normal(0, 3000, n)


HOMES, PRICES = town()
SALES = HOMES.iloc[:N_SALES]
NEW = HOMES.iloc[N_SALES:]
SOLD = PRICES.iloc[:N_SALES]


def of_prices() -> axil.Explainer:
    return axil.Explainer(LGBMRegressor(**QUICK).fit(SALES, SOLD), SALES, SOLD)


def of_logarithms() -> axil.Explainer:
    model = LGBMRegressor(**QUICK).fit(SALES, np.log(SOLD))
    return axil.Explainer(model, SALES, np.log(SOLD), inverse_func=np.exp)


def of_a_booster() -> axil.Explainer:
    model = LGBMRegressor(**QUICK).fit(SALES, SOLD).booster_
    return axil.Explainer(model, SALES, SOLD)


def of_a_pipeline() -> axil.Explainer:
    model = make_pipeline(StandardScaler(), LGBMRegressor(**QUICK)).fit(SALES, SOLD)
    return axil.Explainer(model, SALES, SOLD)


def of_a_forest() -> axil.Explainer:
    model = RandomForestRegressor(20, min_samples_leaf=3, random_state=0).fit(SALES, SOLD)
    return axil.Explainer(model, SALES, SOLD)


def of_a_line() -> axil.Explainer:
    return axil.Explainer(LinearRegression().fit(SALES, SOLD), SALES, SOLD)


MAKERS = [of_prices, of_logarithms, of_a_booster, of_a_pipeline, of_a_forest, of_a_line]


def written(explainer: axil.Explainer, folder, **options) -> dict[str, Page]:
    """Write a report on the new homes, and return its pages by label."""
    explainer.report(NEW, folder, **WORDS | options)
    return {label: Page(folder / file) for label, (file, *_) in entries(folder).items()}


def money(text: str) -> float:
    """Return an amount that a page shows as a number."""
    return float(text.replace("$", "").replace(",", "").replace("\u2212", "-"))


def amount_in(cell: str) -> float:
    """Return the amount of a cell, which follows a value and is followed by a percentage."""
    words = [word for word in cell.split("(")[0].split() if "$" in word]
    if not words:
        return 0.0
    return money(words[-1])


@pytest.mark.parametrize("make", MAKERS)
def test_the_grid_says_what_adjustments_says(make, tmp_path):
    explainer = make()
    pages = written(explainer, tmp_path / "out", k=4, sign="any")
    table = explainer.adjustments(NEW, 4)
    summary = pd.DataFrame(table.attrs["comparables"]).set_index(["query", "row"])
    for label, page in pages.items():
        (grid,) = page.grids
        head, prices, *lines, net, gross, adjusted = grid
        rows = [text.partition("\u00a0")[2] for text in head[2:]]
        assert len(rows) == 4
        assert adjusted[1] == entries(tmp_path / "out")[label][1]
        for column, row in enumerate(rows, 2):
            parts = table[(table["query"] == label) & (table["row"] == row)]
            amounts = parts.set_index("feature")["amount"]
            expected = summary.loc[(label, row)]
            own_lines = {line[0]: line[column] for line in lines if not line[0].startswith("Other")}
            for feature, cell in own_lines.items():
                assert amount_in(cell) == pytest.approx(amounts.get(feature, 0.0), abs=0.51)
            others = [line[column] for line in lines if line[0].startswith("Other")]
            folded = amounts[[name for name in amounts.index if name not in own_lines]]
            if others:
                assert amount_in(others[0]) == pytest.approx(folded.sum(), abs=0.51)
            else:
                assert folded.empty
            assert money(prices[column]) == pytest.approx(expected["target"], abs=0.51)
            assert amount_in(net[column]) == pytest.approx(
                expected["adjusted"] - expected["target"], abs=0.51
            )
            assert amount_in(gross[column]) == pytest.approx(amounts.abs().sum(), abs=0.51)
            assert money(adjusted[column]) == pytest.approx(expected["adjusted"], abs=0.51)


def test_amounts_lead_from_the_price_to_the_adjusted_price(tmp_path):
    pages = written(of_logarithms(), tmp_path / "out")
    for page in pages.values():
        (grid,) = page.grids
        _, prices, *lines, _, _, adjusted = grid
        for column in range(2, len(prices)):
            total = money(prices[column]) + sum(amount_in(line[column]) for line in lines)
            assert total == pytest.approx(money(adjusted[column]), abs=len(lines) / 2 + 1)


def test_percentages_of_logarithms_multiply(tmp_path):
    pages = written(of_logarithms(), tmp_path / "out")
    assert all("percentages multiply" in page.text for page in pages.values())
    for page in pages.values():
        (grid,) = page.grids
        _, _, *lines, net, _, _ = grid
        for column in range(2, len(net)):
            factor = 1.0
            for line in lines:
                factor *= 1 + percent_in(line[column]) / 100
            assert 100 * (factor - 1) == pytest.approx(percent_in(net[column]), abs=0.6)


def percent_in(cell: str) -> float:
    """Return the percentage of a cell; none is zero."""
    if "(" not in cell:
        return 0.0
    text = cell.split("(")[1].replace("%)", "").replace("\u2212", "-").replace("\u00a0", "")
    return float(text)


def test_small_lines_are_folded(tmp_path):
    explainer = of_prices()
    pages = written(explainer, tmp_path / "out")
    n_folded = 0
    for label, page in pages.items():
        (grid,) = page.grids
        names = [line[0] for line in grid[2:-3]]
        lines = explainer.adjustments(NEW.loc[[label]], 5)
        largest = lines["amount"].abs().groupby(lines["feature"]).max()
        value = explainer.model.predict(NEW.loc[[label]])[0]
        small = largest[largest <= LEAST_SHARE * value]
        if len(small) > 1:
            n_folded += 1
            assert names[-1] == f"Other ({len(small)} more)"
            assert not set(small.index) & set(names)
    assert n_folded > 0


def test_coordinates_are_one_line(tmp_path):
    explainer = of_prices()
    pages = written(explainer, tmp_path / "map", map=("lat", "lon", "miles"))
    table = explainer.adjustments(NEW, 5, feature_groups={"Location": ["lat", "lon"]})
    for label, page in pages.items():
        (grid,) = page.grids
        (line,) = [line for line in grid if line[0] == "Location"]
        assert line[1] == ""
        for cell, head in zip(line[2:], grid[0][2:]):
            assert "miles away" in cell or "feet away" in cell
            row = head.partition("\u00a0")[2]
            is_part = (table["query"] == label) & (table["row"] == row)
            amounts = table[is_part].set_index("feature")["amount"]
            assert amount_in(cell) == pytest.approx(amounts.get("Location", 0.0), abs=0.51)
    named = written(
        explainer, tmp_path / "named", map=("lat", "lon"), feature_groups={"north": ["lat"]}
    )
    assert all("Location" not in page.text for page in named.values())


def test_at_most_five_listed_rows_are_beside_each_other(tmp_path):
    pages = written(of_prices(), tmp_path / "out", k=PER_GRID + 2)
    for page in pages.values():
        first, second = page.grids
        assert (len(first[0]), len(second[0])) == (2 + 4, 2 + 3)
        assert [line[0] for line in first] == [line[0] for line in second]
        assert second[0][2].startswith("5.")


def test_models_that_axil_cannot_split_have_no_grid(tmp_path):
    near = axil.Explainer(KNeighborsRegressor(5).fit(SALES, SOLD), SALES, SOLD)
    pages = written(near, tmp_path / "near")
    assert all(not page.grids and "adjusted" not in page.text for page in pages.values())
    with pytest.raises(UnsupportedQuestionError, match="neighbours"):
        near.report(NEW, tmp_path / "asked", adjustments=True)
    assert not (tmp_path / "asked").exists()
    without = written(of_prices(), tmp_path / "without", adjustments=False)
    assert not any(page.grids for page in without.values())


def test_offsets_have_no_grid(tmp_path):
    explainer = of_prices()
    offsets = np.linspace(0, 1e4, N_HOMES)
    pages = written(explainer, tmp_path / "out", init_score=offsets)
    assert not any(page.grids for page in pages.values())
    with pytest.raises(InputError, match="init_score"):
        explainer.report(NEW, tmp_path / "asked", init_score=offsets, adjustments=True)
    with pytest.raises(InputError, match="adjustments=False"):
        explainer.report(NEW, tmp_path / "asked", adjustments=False, feature_groups={"a": ["lat"]})


def test_a_loaded_explainer_writes_the_same_grid(tmp_path):
    explainer = of_logarithms()
    explainer.save(tmp_path / "explainer.npz")
    loaded = axil.load(
        tmp_path / "explainer.npz", explainer.model, X_train=SALES, inverse_func=np.exp
    )
    first = written(explainer, tmp_path / "first")
    second = written(loaded, tmp_path / "second")
    assert {label: page.tables for label, page in first.items()} == {
        label: page.tables for label, page in second.items()
    }


def test_another_grouping_is_another_report(tmp_path):
    explainer = of_prices()
    written(explainer, tmp_path / "out")
    with pytest.raises(InputError, match="adjustments"):
        written(explainer, tmp_path / "out", feature_groups={"place": ["lat", "lon"]})


def test_hidden_columns_are_on_no_page(tmp_path):
    """The amounts of a hidden feature stay; what other homes have there does not."""
    explainer = of_prices()
    pages = written(explainer, tmp_path / "all")
    hidden_pages = written(explainer, tmp_path / "hidden", hide=["built"])
    for label, page in pages.items():
        assert "built" in page.cells[0]
        assert "built" not in hidden_pages[label].cells[0]
        lines = {line[0]: line for line in page.grids[0]}
        hidden_lines = {line[0]: line for line in hidden_pages[label].grids[0]}
        assert list(lines) == list(hidden_lines)
        cells = zip(lines.get("built", [])[1:], hidden_lines.get("built", [])[1:])
        for cell, hidden_cell in cells:
            assert amount_in(cell) == amount_in(hidden_cell)
            assert not hidden_cell.strip() or hidden_cell.split()[0][0] in "+\u2212$"
    with pytest.raises(InputError, match="hide names 'built', which columns names too"):
        explainer.report(NEW, tmp_path / "both", columns=["built"], hide=["built"])
    with pytest.raises(InputError, match="hide names 'cellar'"):
        explainer.report(NEW, tmp_path / "none", hide=["cellar"])
    with pytest.raises(InputError, match="hidden"):  # the folder has pages that show it
        explainer.report(NEW, tmp_path / "all", hide=["small 3"], **WORDS)


def test_coordinates_of_a_map_are_no_columns_unless_named(tmp_path):
    page = next(iter(written(of_prices(), tmp_path / "map", map=("lat", "lon")).values()))
    assert not {"lat", "lon"} & set(page.cells[0])
    named = written(of_prices(), tmp_path / "named", map=("lat", "lon"), columns=["lat"])
    assert "lat" in next(iter(named.values())).cells[0]
