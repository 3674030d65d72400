"""Five held-out diabetes patients: which earlier patients made each prediction, the check that they sum to it, and a page.

Fits LightGBM on scikit-learn's built-in diabetes data (442 patients; the target is disease progression after a year).
"""

from pathlib import Path

import numpy as np
from lightgbm import LGBMRegressor
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

import axil


def main() -> None:
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    X_train, X_test, y_train, _ = train_test_split(X, y, test_size=0.2, random_state=42)
    model = LGBMRegressor(n_estimators=100, num_leaves=8, learning_rate=0.05, random_state=0, verbose=-1)
    model.fit(X_train, y_train)

    explainer = axil.Explainer(model, X_train, y_train)
    patients = X_test.head(5)
    explanation = explainer(patients)

    print(explainer.verification)
    table = explanation.top(5)
    predicted = model.predict(patients)
    for position, patient in enumerate(patients.index):
        weights = explanation.weights[position]
        print(f"\nPatient {patient}: predicted {predicted[position]:.2f}")
        rows = table[table["query"] == patient].drop(columns="query")
        print(rows.to_string(index=False, formatters={"weight": "{:+.4f}".format, "contribution": "{:+.2f}".format}))
        sizes = np.sort(np.abs(weights))[::-1]
        print(
            f"These 5 of {len(weights)} training patients hold {sizes[:5].sum() / sizes.sum():.0%} of the absolute weight."
        )
        weighted_sum = weights @ y_train.to_numpy() + explanation.intercepts[position]
        print(f"Check: weights x targets = {weighted_sum:.10f}, model = {predicted[position]:.10f}", end="")
        print(f", apart by {abs(weighted_sum - predicted[position]):.1e}")
    print("\nEverything above holds with the fitted trees' structure fixed; it does not say what a refit would do.")

    page = Path("axil-demo.html").absolute()
    bands = np.array(["below 40 years", "40 to 49 years", "50 to 59 years", "60 years and over"])
    explainer.to_html(X_test, page, groups=bands[np.digitize(X_train["age"], [40, 50, 60])])
    print(f"All {len(X_test)} held-out patients on a page for your browser: {page.as_uri()}")


if __name__ == "__main__":
    main()
