"""axil group: weights per group of training rows."""

import io

import numpy as np
import pandas as pd
import pytest

import axil
from tests.cli.cli_models import FEATURES, MODELS, PLAIN, QUERY, TRAIN, X, Y, table_of

BANDS = np.array(["below 40", "40 to 60", "60 and over"])


@pytest.mark.parametrize("by", ["city", "sex", "age --cut 40,60"])
def test_group(run, by):
    code, out, err = run(f"group lightgbm.txt {PLAIN} --query query.csv --by {by} --format csv")
    assert code == 0
    assert "city" not in err or by != "city"  # which is not left out
    explainer = axil.Explainer(MODELS["lightgbm.txt"][0], X, Y)
    labels = np.digitize(TRAIN["age"], [40, 60]) if by.startswith("age") else TRAIN[by]
    labels = (
        labels.astype(int) if by == "sex" else labels
    )  # 1 and 2 of the file, which has them as 1.0 and 2.0
    expected = explainer.group(QUERY[FEATURES], labels)
    expected["group"] = (
        BANDS[expected["group"]] if by.startswith("age") else expected["group"].astype(str)
    )
    found = pd.read_csv(io.StringIO(out), dtype={"group": str})
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-9)


def test_groups_of_rows_without_a_value(run, folder):
    TRAIN.assign(city=TRAIN["city"].where(TRAIN.index > 5)).to_csv("somewhere.csv", index=False)
    words = f"group lightgbm.txt {PLAIN.replace('train.csv', 'somewhere.csv')} --query query.csv"
    code, out, _ = run(f"{words} --by city --out groups.html --format csv")
    assert code == 0
    assert sorted(table_of(out)["group"][:4]) == ["Lima", "Oslo", "Rome", "missing"]
    total = table_of(out).groupby("query")["weight"].sum()
    np.testing.assert_allclose(total, 1.0)  # as the weights of this model do
    assert "<html" in (folder / "groups.html").read_text(encoding="utf-8")
