# %% [markdown]
# # Who contributed what
#
# How much of each prediction comes from each data provider. Three providers of chemical measurements, simulated: a large one with
# noise, a small exact one and one that measured another range.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

import axil
from axil import plots

PROVIDERS = {
    "Alba": (600, 0.8, 0.0),
    "Borea": (150, 0.1, 0.0),
    "Cirrus": (300, 0.4, 1.5),
}  # rows, noise, shift of the range


def measurements(seed=0):
    rng = np.random.default_rng(seed)
    parts = []
    for provider, (n, noise, shift) in PROVIDERS.items():
        X = pd.DataFrame(rng.normal([shift, 0, 0], 1, size=(n, 3)), columns=["logP", "charge", "size"])
        truth = 2 * np.tanh(X["logP"]) + X["charge"] ** 2 + 0.5 * X["size"]
        parts.append(X.assign(solubility=truth + noise * rng.normal(size=n), provider=provider))
    whole = pd.concat(parts, ignore_index=True)
    return whole.set_axis([f"{name}-{i}" for i, name in enumerate(whole["provider"])])


data = measurements()
X, y, provider = data[["logP", "charge", "size"]], data["solubility"], data["provider"]
model = HistGradientBoostingRegressor(max_iter=120, max_leaf_nodes=12, learning_rate=0.08).fit(X, y)
explainer = axil.Explainer(model, X, y)

# %% [markdown]
# ## Shares of three predictions
#
# Weights sum to one in each prediction, so their sums by provider are shares. A share is negative where a provider is argued
# against.

# %%
compounds = pd.DataFrame({"logP": [-1.0, 0.5, 2.5], "charge": [0.0, 1.0, -0.5], "size": [0.0, 0.5, 0.2]})
compounds.index = ["ordinary", "charged", "far out"]
shares = explainer.group(compounds, provider)
print(shares.pivot(index="query", columns="group", values="weight").loc[compounds.index].round(3))

# %%
plots.group(shares)
plt.show()

# %% [markdown]
# ## Shares over all predictions
#
# Averaged over the predictions of all training rows the shares are those of the rows: influence is conserved. For a single
# compound they are not.

# %%
rows = provider.value_counts(normalize=True)
print("Share of the rows:", ", ".join(f"{name} {rows[name]:.0%}" for name in PROVIDERS))
every = explainer.group(X, provider).groupby("group")["weight"].mean()
print("Mean share over all training rows' predictions:", ", ".join(f"{name} {every[name]:.0%}" for name in PROVIDERS))
