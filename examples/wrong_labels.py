"""Finding wrong labels: 5 % of the targets are spoilt, then looked for with what the other rows say.

scikit-learn's diabetes data; a share of the training targets is replaced by targets two standard deviations off. The table of
`audit` puts first the labels that are furthest from what all other rows say of them, for where they are, and estimates how many
are wrong. With validation rows it also lists what correcting each would gain there. How well that works in general is measured in
experiments/label_noise.py.

    python examples/wrong_labels.py [--out DIRECTORY]
"""

import argparse
from pathlib import Path

import numpy as np
from lightgbm import LGBMRegressor
from sklearn.datasets import load_diabetes

import axil
from axil import plots


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("wrong-labels"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    X, y = load_diabetes(return_X_y=True, as_frame=True)
    train, validation = X.iloc[:320], X.iloc[320:]
    rng = np.random.default_rng(0)
    wrong = rng.choice(train.index, 16, replace=False)
    targets = y.loc[train.index].copy()
    targets.loc[wrong] += 2 * y.std() * rng.choice([-1, 1], len(wrong))
    model = LGBMRegressor(n_estimators=80, num_leaves=8, learning_rate=0.08, verbose=-1, n_jobs=1).fit(train, targets)

    explainer = axil.Explainer(model, train, targets)
    table = explainer.audit(X_val=validation, y_val=y.loc[validation.index])
    table["wrong"] = table["row"].isin(wrong)
    print(table.head(10).round(2).to_string(index=False))
    print(f"{table['suspect'].sum()} labels are further out than right ones would be; {len(wrong)} are wrong.")
    for column, what in (("studentised", "|studentised residual|"), ("gain", "gain on the validation rows")):
        keys = table[column].abs() if column == "studentised" else table[column]
        first = table.loc[keys.sort_values(ascending=False).index[: len(wrong)]]
        print(f"Among the {len(wrong)} rows of largest {what}: {first['wrong'].sum()} of {len(wrong)} wrong labels")

    plots.blame(table).figure.savefig(out / "blame.png")
    print(f"The ranking as a picture: {out / 'blame.png'}")


if __name__ == "__main__":
    main()
