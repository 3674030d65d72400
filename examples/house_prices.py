# %% [markdown]
# # House prices by comparables
#
# What a valuation rests on, for somebody who has to defend it. A simulated town: 2,000 sales in five districts over ten years,
# prices by area, rooms, age, distance, district and year. A model is fitted to the sales, three houses are valued, and each
# valuation is shown with the sales that made it.

# %%
import matplotlib.pyplot as plt
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


sales, prices = town(2000, seed=0)
houses = town(3, seed=1)[0].set_axis(["1 First Street", "2 Second Street", "3 Third Street"])
model = LGBMRegressor(n_estimators=200, num_leaves=16, learning_rate=0.05, verbose=-1, n_jobs=1).fit(sales, prices)

# %% [markdown]
# ## The explainer
#
# It replays the fit on the sales and compares everything with the model. If model and data did not belong together, this line
# would raise an error.

# %%
explainer = axil.Explainer(model, sales, prices)
print(explainer.verification)

# %% [markdown]
# ## Comparables
#
# The five sales that share most leaves with each house, with their features beside the house's own. `share` is the part of all
# weight that the list holds down to this line: a model of 200 trees spreads its weight over many sales, and the table says so.

# %%
pd.set_option("display.width", 160)
comparables = explainer.similar(houses, k=5, columns=["area", "district", "year"])
for house, value in zip(houses.index, model.predict(houses)):
    print(f"{house}: valued at {value:,.0f}")
    print(comparables[comparables["query"] == house].drop(columns="query").to_string(index=False), "\n")
print(explainer.concentration(houses).iloc[:, :6].round(2).to_string(index=False))

# %%
explanation = explainer(houses)
plots.weights(explanation, k=12)
plt.show()

# %% [markdown]
# ## Recent sales count most
#
# Each dot is a sale. The valuation is of a recent year, and so are the sales that carry it.

# %%
plots.weights_against(explanation, "year")
plt.show()

# %% [markdown]
# ## Which districts the value comes from
#
# Where weights are spread, groups of sales say more than single ones.

# %%
print(explainer.group(houses, "district").pivot(index="query", columns="group", values="weight").round(2))

# %% [markdown]
# ## A page for the file

# %%
explainer.to_html(houses, "valuations.html", groups="district")
print("The page for the file: valuations.html")
