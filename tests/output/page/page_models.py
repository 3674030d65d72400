"""What the tests of the page share: real models, hostile names, and how a page is read back."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
from lightgbm import LGBMRegressor

import axil

HOSTILE = [
    "<script>window.hacked = 1</script>",
    "</script><img src=x onerror='window.hacked = 1'>",
    "\"quoted\" 'twice' & `more`",
    "中文 ümlaut \u2028 \u202e 🏠",
    "{{data}}",
    "[column]",
]


def data_of(text):
    """The summary that a page carries."""
    packed = re.search(
        r'<script type="application/octet-stream" id="data">([A-Za-z0-9+/=]*)</script>', text
    )
    return json.loads(zlib.decompress(base64.b64decode(packed[1])))


@cache
def sales():
    """A model of 300 sales with missing values and categories; features and targets of 340, and the years of the 300."""
    rng = np.random.default_rng(0)
    n = 340
    X = pd.DataFrame(
        {
            "area": rng.gamma(9.0, 14.0, n).round(),
            "year built": rng.integers(1890, 2024, n),
            "distance": np.where(rng.random(n) < 0.1, np.nan, rng.gamma(2.0, 4.0, n)),
            "condition": pd.Categorical(rng.choice(["poor", "fair", "good"], n)),
        },
        index=[f"parcel {i:03d}" for i in range(n)],
    )
    y = (
        1800 * X["area"] + 900 * (X["year built"] - 1950) + rng.normal(0, 20000, n) + 150000
    ).round(-2)
    model = LGBMRegressor(n_estimators=40, num_leaves=8, verbose=-1).fit(X[:300], y[:300])
    return model, X, y, rng.integers(2018, 2024, 300)


@cache
def houses():
    """An explainer of the sales, 40 rows to explain, and the years of the sales."""
    model, X, y, years = sales()
    return axil.Explainer(model, X[:300], y[:300]), X[300:], years


@cache
def hostile():
    """An explainer whose columns, rows and categories have names that would break a careless page."""
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.normal(size=(90, 5)).round(3), columns=[f"f{i}" for i in range(5)])
    X["kind"] = pd.Categorical(rng.choice(HOSTILE, 90), categories=HOSTILE)
    y = 100 + 10 * X["f0"] + 5 * X["kind"].cat.codes + rng.normal(size=90)
    X.index = [f"{HOSTILE[i % len(HOSTILE)]} {i}" for i in range(90)]
    # scikit-learn is the library that takes any name of a column.
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OrdinalEncoder

    X.columns = HOSTILE
    encode = make_column_transformer((OrdinalEncoder(), [HOSTILE[5]]), remainder="passthrough")
    model = make_pipeline(encode, RandomForestRegressor(10, random_state=0)).fit(X[:80], y[:80])
    return axil.Explainer(model, X[:80], y[:80]), X[80:], [HOSTILE[i % 4] for i in range(80)]


def bare(explainer, X):
    """An explanation by itself, without features and without the model's own predictions."""
    return axil.Explanation(replace(explainer(X)._sums, context=None))
