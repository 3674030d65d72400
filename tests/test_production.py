"""The page on explanations in a service: its recipe runs."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "production.md").read_text(encoding="utf-8")


def test_the_recipe_gives_rows_and_novelty_after_a_round_trip_through_mlflow(capsys):
    pytest.importorskip("mlflow")
    names = {}
    exec(re.search(r"```python\n(.*?)```", PAGE, re.S).group(1), names)
    answer, new = names["answer"], names["new"]
    assert answer["prediction"].tolist() == names["model"].predict(new.head(2)).tolist()
    top = names["explained"].explainer.top(new.head(2), k=5)
    for label, made_by in answer["made_by"].items():
        own = top[top["query"] == label]
        assert {int(row): w for row, w in json.loads(made_by).items()} == pytest.approx(
            dict(zip(own["row"], own["weight"])), abs=1e-4
        )
    assert (names["moved"]["novelty"] > 0.95).all()
    assert (answer["novelty"] < 0.95).all()
