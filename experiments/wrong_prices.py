"""Wrong prices among comparables: as they are, with suspects left out, and after a fit without them.

    python experiments/wrong_prices.py --data FOLDER     # three sets of house prices, a minute or two
    python experiments/wrong_prices.py --quick           # simulated prices, seconds; prints, writes nothing

FOLDER is that of comparables.py. Of the prices of the fit 2 % are multiplied by 0.1, 0.2, 5 or 10; those asked about are right.
Three splits, boosting of log prices. Five rows of largest positive weight per prediction: "keep", as they are; "drop",
`similar(suspects="drop")`; "refit", of a model that was fitted anew without the suspects of
`find_label_issues`. "wrong, %": of the rows listed; "homes, %": those that list a wrong price;
"far, %": those that list a price adjusted to more than twice or less than half of the estimate.
Errors are root mean squares of logarithms: of the mean of the five adjusted, and of the model.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from comparables import MOST_ASKED, MOST_ROWS, SPLITS, K, fitted, houses
from paper_setting import Line
from sklearn.model_selection import train_test_split

import axil

WRONG, FACTORS, FAR = 0.02, (0.1, 0.2, 5.0, 10.0), 2.0


def listed(
    explainer: axil.Explainer, X: pd.DataFrame, y: np.ndarray, wrong: pd.Index, suspects: str
) -> dict[str, float]:
    """Return figures on the rows listed beside homes X of prices y."""
    comparables = explainer.similar(
        X, K, columns=[], by="weight", adjust=True, sign="for", suspects=suspects
    )
    query, ratio = comparables["query"], np.log(comparables["adjusted"] / comparables["prediction"])
    is_wrong, is_far = comparables["row"].isin(wrong), abs(ratio) > np.log(FAR)
    model = np.log(
        comparables.groupby("query", sort=False)["prediction"].first().to_numpy()
    ) - np.log(y)
    five = model + ratio.groupby(query, sort=False).mean().to_numpy()
    return {
        "wrong, %": 100 * is_wrong.mean(),
        "homes, %": 100 * is_wrong.groupby(query).any().mean(),
        "far, %": 100 * is_far.groupby(query).any().mean(),
        "error of five": np.sqrt(np.mean(five**2)),
        "error of the model": np.sqrt(np.mean(model**2)),
    }


def measure(X: pd.DataFrame, y: np.ndarray) -> list[Line]:
    """A line for each way, as means over the splits."""
    ways: dict[str, list[dict[str, float]]] = {"keep": [], "drop": [], "refit": []}
    for seed in range(SPLITS):
        train, new, prices, y_new = train_test_split(
            X, pd.Series(y, X.index), test_size=0.2, random_state=seed
        )
        train, prices, new, y_new = (
            train[:MOST_ROWS],
            prices[:MOST_ROWS].copy(),
            new[:MOST_ASKED],
            y_new[:MOST_ASKED],
        )
        draws = np.random.default_rng(seed)
        wrong = train.index[draws.choice(len(train), round(WRONG * len(train)), replace=False)]
        prices[wrong] *= draws.choice(FACTORS, len(wrong))
        explainer = fitted("boosting, log price", train, prices, seed)
        table = explainer.find_label_issues()
        kept = train.index.drop(table["row"][table["is_label_issue"]])
        again = fitted("boosting, log price", train.loc[kept], prices[kept], seed)
        for way, one, suspects in (
            ("keep", explainer, "keep"),
            ("drop", explainer, "drop"),
            ("refit", again, "keep"),
        ):
            figures = {
                "suspects": len(train) - len(kept),
                "wrong": len(wrong),
                "found": len(wrong.difference(kept)),
            }
            ways[way].append(figures | listed(one, new, y_new.to_numpy(), wrong, suspects))
    means = {way: pd.DataFrame(lines).mean() for way, lines in ways.items()}
    return [
        {
            "way": way,
            **{
                name: f"{value:.3f}" if "error" in name else f"{value:.1f}"
                for name, value in one.items()
            },
        }
        for way, one in means.items()
    ]


if __name__ == "__main__":
    houses("wrong_prices", __doc__, lambda X, y: iter(measure(X, y)))
