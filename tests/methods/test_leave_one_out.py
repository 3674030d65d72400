"""leave_one_out: what tables say of rows that stand alone. tests/weights/test_deletion.py has the numbers."""

import numpy as np
from sklearn.ensemble import GradientBoostingRegressor

import axil
from tests.contract_models import explainer_of


def test_tables_say_which_rows_stand_alone_and_why():
    X, y = np.arange(10.0)[:, None], np.arange(10.0) ** 2
    X[1] = X[0]  # these two share a leaf of trees grown in full
    model = GradientBoostingRegressor(n_estimators=2, max_depth=None)
    explainer = axil.Explainer(model.fit(X, y), X, y)
    table = explainer.diagnostics.leave_one_out()
    assert list(table["alone"]) == [False, False] + [True] * 8
    assert list(table["prediction"].isna()) == list(table["alone"])
    assert "nan in 8 of 10 lines: no other training row" in table.attrs["axil"]
    loose = explainer_of("lightgbm", "regressor").diagnostics.leave_one_out()
    assert not loose["alone"].any()
    assert "nan" not in loose.attrs["axil"]
    valued = explainer.shapley(X[:2], y[:2], baseline="others")
    assert list(valued["value"].isna()) == [False] * 2 + [True] * 8  # nan last
    assert "nan in 8 of 10 lines: no other training row" in valued.attrs["axil"]
