"""Who contributed what: how much of each prediction comes from each data provider.

Three providers of chemical measurements, simulated: a large one with noise, a small exact one and one that measured another
range. Weights sum to one in each prediction, so their sums by provider are shares, and may be negative where a provider is
argued against.

    python examples/who_contributed.py [--out DIRECTORY]
"""

import argparse
from pathlib import Path

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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("who-contributed"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    data = measurements()
    X, y, provider = data[["logP", "charge", "size"]], data["solubility"], data["provider"]
    model = HistGradientBoostingRegressor(max_iter=120, max_leaf_nodes=12, learning_rate=0.08).fit(X, y)
    explainer = axil.Explainer(model, X, y)

    compounds = pd.DataFrame({"logP": [-1.0, 0.5, 2.5], "charge": [0.0, 1.0, -0.5], "size": [0.0, 0.5, 0.2]})
    compounds.index = ["ordinary", "charged", "far out"]
    shares = explainer.group(compounds, provider)
    table = shares.pivot(index="query", columns="group", values="weight").loc[compounds.index]
    print(table.round(3).to_string(), "\n")
    rows = provider.value_counts(normalize=True)
    print("Share of the rows:", ", ".join(f"{name} {rows[name]:.0%}" for name in PROVIDERS))
    every = explainer.group(X, provider).groupby("group")["weight"].mean()
    print(
        "Mean share over all training rows' predictions:", ", ".join(f"{name} {every[name]:.0%}" for name in PROVIDERS)
    )

    plots.group(shares).figure.savefig(out / "shares.png")
    print(f"The shares as a picture: {out / 'shares.png'}")


if __name__ == "__main__":
    main()
