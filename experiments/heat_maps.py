"""Figure "AXIL weight matrix K for three datasets" of the paper, and what can be said of it in numbers.

    python experiments/heat_maps.py --data FOLDER     # under a minute; writes results/heat_maps.csv, docs/figures/heat_maps.png

The data sets are OpenML's, or those of a FOLDER of CSV files. LightGBM, 100 trees of 31 leaves, rate 0.1,
min_child_samples 2; the training rows of the 80/20 split with seed 42. The paper does not name its three data sets. These are
the smallest of its twenty and two that are four and sixteen times as large: trees have 31 leaves in all, so it is the share of
the rows in a leaf that differs. `axil.plots.matrix` draws K whole: all rows are in cluster order, and colours end at the 99th
percentile of all |k|. Where a pixel holds several entries of K it has the colour of their mean.
"""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import paper_figures
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from paper_setting import SETTINGS, run

import axil
from axil import plots

NAMES = ["bodyfat", "concrete", "abalone"]
SHADES = 65  # of colour, the middle one for zero; more make the file larger and nothing clearer


def shared_leaves(leaves: np.ndarray) -> np.ndarray:
    """(N, N): in what share of the trees two rows are in one leaf."""
    found = np.zeros((len(leaves), len(leaves)), dtype=np.float32)
    for leaf in leaves.T:
        found += leaf[:, None] == leaf
    return found / leaves.shape[1]


def asymmetry(K: np.ndarray) -> float:
    """The largest |k_ij - k_ji|."""
    return float(max(np.abs(K[i] - K[:, i]).max() for i in range(len(K))))


def weights(fitted, **settings) -> np.ndarray:
    """(N, N): K of the training rows, of the fit itself or of one with other settings."""
    model = (
        lgb.LGBMRegressor(**SETTINGS | settings).fit(fitted.train, fitted.y_train)
        if settings
        else fitted.model
    )
    return axil.Explainer(model, fitted.train, fitted.y_train).jacobian.matrix()


def measure(name, fitted, drawn):
    K = weights(fitted)
    drawn[name] = K
    apart = ~np.eye(len(K), dtype=bool)
    together = shared_leaves(fitted.leaves(fitted.train))
    off_sums = max(np.abs(K.sum(axis=axis) - 1).max() for axis in (0, 1))
    return {
        "data": name,
        "N": fitted.shape[0],
        "M": fitted.shape[1],
        "rows of K": len(K),
        "negative": f"{(K < 0).mean():.1%}",
        "negative, of sum of abs(k)": f"{-K[K < 0].sum() / np.abs(K).sum():.1%}",
        "99th percentile of abs(k)": f"{np.percentile(np.abs(K), 99):.4f}",
        "largest": f"{K.max():.3f}",
        "smallest": f"{K.min():.3f}",
        "own weight largest": f"{(K.argmax(axis=1) == np.arange(len(K))).mean():.1%}",
        "effective size": f"{np.mean(np.abs(K).sum(axis=1) ** 2 / np.square(K).sum(axis=1)):.1f}",
        "trace": f"{np.trace(K):.1f}",
        "sums from 1": f"{off_sums:.0e}",
        "asymmetry, 1 tree": f"{asymmetry(weights(fitted, n_estimators=1)):.0e}",
        "asymmetry": f"{asymmetry(K):.3f}",
        "r with shared leaves": f"{np.corrcoef(K[apart], together[apart])[0, 1]:.2f}",
    }


def draw(drawn):
    figure = Figure(figsize=(11, 4.7), layout="constrained")
    for ax, (name, K) in zip(figure.subplots(1, len(drawn), squeeze=False)[0], drawn.items()):
        plots.matrix(K, most=len(K), colorbar=False, ax=ax)
        image = ax.images[0]
        # Of entries smaller than pixels the means are drawn, not the means of their colours.
        image.set(interpolation="antialiased", interpolation_stage="data")
        image.set_cmap(image.get_cmap().resampled(SHADES))
        ax.set_title(
            f"{name.replace('_', ' ').capitalize()}: {len(K):,} × {len(K):,}",
            loc="left",
            fontsize=12,
        )
        ax.set_aspect("equal")
        bar = figure.colorbar(image, ax=ax, location="bottom", extend="both", aspect=30, pad=0.03)
        bar.set_label("weight (ends: 99th percentile of |k|)")
        bar.locator = MaxNLocator(5)
        bar.outline.set_visible(False)
    return figure


def main() -> None:
    kept: dict[str, np.ndarray] = {}
    run(
        "heat_maps",
        __doc__.splitlines()[0],
        NAMES,
        lambda name, fitted: measure(name, fitted, kept),
    )
    paper_figures.save(draw(kept), "heat_maps.png")


if __name__ == "__main__":
    main()
