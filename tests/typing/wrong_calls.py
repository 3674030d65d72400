"""Calls that a type checker must refuse: a line whose comment is not needed is an error itself."""

import pandas as pd
from lightgbm import LGBMRegressor

import axil

X = pd.DataFrame({"area": [80.0, 120.0, 95.0]})
y = [1.0, 2.0, 1.5]
model = LGBMRegressor().fit(X, y)

axil.similarity(model, X, device="gpu")  # type: ignore[call-overload]
axil.similarity(model, X, k="3")  # type: ignore[call-overload]
axil.similarity(model, X, weights=[1.0])  # type: ignore[call-overload]
axil.novelty(model, X)  # type: ignore[call-arg]
axil.novelty(model, X, X, X, 4)  # type: ignore[call-arg]
axil.novelty(model, X, object())  # type: ignore[arg-type]
axil.load(3, model)  # type: ignore[arg-type]
print(axil.supports(model).unknown)  # type: ignore[attr-defined]

axil.Explainer(model, X)  # type: ignore[call-arg]
axil.Explainer(model, X, y, output="odds")  # type: ignore[arg-type]
explainer = axil.Explainer(model, X, y)
explainer.top(X, "3")  # type: ignore[arg-type]
explainer.top(X, rows=3)  # type: ignore[call-arg]
explainer.top(X, by="weights")  # type: ignore[arg-type]
explainer.similar(X, by="leafs")  # type: ignore[arg-type]
explainer.similar(X, sign="+")  # type: ignore[arg-type]
explainer.similar(X, tree_weights="equal")  # type: ignore[arg-type]
explainer.similar(X, 3, ["area"])  # type: ignore[call-arg]
explainer.removal(X, method="fast")  # type: ignore[arg-type]
explainer.diagnostics.leverage(method="fast")  # type: ignore[arg-type]
explainer.calibrate(X, y, method="fast")  # type: ignore[arg-type]
axil.Explainer(model, X, y, [1.0, 1.0, 1.0])  # type: ignore[call-arg]
explainer.group(X)  # type: ignore[call-arg]
explainer.what_if(X, [1.5])  # type: ignore[arg-type]
