"""Options that would change nothing in the answer: refused by name, with the reason and what to do."""

import joblib
import lightgbm as lgb
import pytest

from tests.cli.cli_models import EXPLAIN, PLAIN, TRAIN, X

PUSHED = "pushed_only.joblib --trust --train train.csv --target kind"


@pytest.fixture(scope="module")
def pushed(folder):
    """A model of pushes."""
    model = lgb.LGBMClassifier(n_estimators=2, num_leaves=4, n_jobs=1, verbose=-1)
    joblib.dump(model.fit(X, TRAIN["kind"]), folder / "pushed_only.joblib")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (
            f"explain {PUSHED} --query query.csv --inverse-func exp",
            ["--inverse-func is 'exp'", "contributions that add up"],
        ),
        (
            "check lightgbm.txt --weights w",
            ["--weights is 'w'", "without --train", "Give these two"],
        ),
        ("check lightgbm.txt --inverse-func exp", ["--inverse-func is 'exp'", "without --train"]),
        (
            f"{EXPLAIN} --query query.csv --out page.html --by weight",
            ["--by is 'weight'", "a page orders", "--format"],
        ),
        (
            f"report lightgbm.txt {PLAIN} --query query.csv --out pages --confidence-level 0.8",
            ["--confidence-level is 0.8", "--calib"],
        ),
        (
            f"report lightgbm.txt {PLAIN} --query query.csv --out pages --names bmj=BMI",
            ["'bmj'", "Did you mean 'bmi'?"],
        ),
    ],
)
def test_what_changes_nothing_is_refused(fails, pushed, words, parts):
    fails(words, *parts)


def test_a_page_has_as_many_rows_as_top_says(run, folder):
    sizes = []
    for more in (" --top 1", "", " --top 40"):
        assert run(f"{EXPLAIN} --query query.csv --out page.html{more}")[0] == 0
        sizes.append((folder / "page.html").stat().st_size)
    assert sizes[0] < sizes[1] < sizes[2]
