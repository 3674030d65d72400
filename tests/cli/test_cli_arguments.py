"""Arguments that are refused, and the usage of every command."""

import pytest

import axil
from tests.cli.cli_models import EXPLAIN, INTERVALS, PLAIN


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (
            "check lightgbm.txt --train train.csv --target Y",
            ["no column 'Y' (--target)", "it has id, age"],
        ),
        ("check lightgbm.txt --train train.csv --target cty", ["Did you mean 'city'?"]),
        ("check lightgbm.txt --train train.csv", ["--train was given without --target"]),
        ("check lightgbm.txt --target y", ["--target was given without --train"]),
        (
            "check lightgbm.txt --train train.csv --target y,y2",
            ["--target names 2 columns", "has 1 outputs"],
        ),
        (
            f"check lightgbm.txt {PLAIN} --weights city",
            ["Column 'city' of train.csv (--weights) holds '"],
        ),
        (f"check lightgbm.txt {PLAIN} --features age,age,bmi,bp", ["names a column twice"]),
        (
            f"check lightgbm.txt {PLAIN} --features age,y,bmi,bp",
            ["--features names 'y', which is the target"],
        ),
        (f"check lightgbm.txt {PLAIN} --features bp,bmi,sex,age", ["in another order"]),
        (
            f"check lightgbm.txt {PLAIN} --categorical city",
            ["not among the features: age, sex, bmi, bp"],
        ),
        (f"check lightgbm.txt {PLAIN} --threads 0", ["n_threads is 0"]),
        (f"check lightgbm.txt {PLAIN} --memory-limit lots", ["memory_limit is 'lots'"]),
        (f"check lightgbm.txt {PLAIN} --memory-limit 10B", ["10 bytes is allowed by memory_limit"]),
        (
            f"check lightgbm.txt {PLAIN} --scratch nowhere",
            ["scratch is 'nowhere', which is no directory"],
        ),
        (
            "check lightgbm.txt --train noage.csv --target y",
            ["noage.csv lacks 1 of the 4 features", ": age. It has id"],
        ),
        (
            f"{EXPLAIN} --query noage.csv",
            ["noage.csv lacks 1 of the 4 features: age", "columns of train.csv"],
        ),
        (f"{EXPLAIN} --query query.csv --top 0", ["--top is 0"]),
        (f"{EXPLAIN} --query query.csv --out no/where.csv", ["There is no directory", "where.csv"]),
        (f"{EXPLAIN} --query query.csv --out .", ["--out is '.', a directory"]),
        (
            f"influence lightgbm.txt {PLAIN} --validation noy.csv",
            ["noy.csv has no column 'y' (--target)"],
        ),
        (
            f"without lightgbm.txt {PLAIN} --query query.csv --rows 3,150",
            ["no row labelled '150' (--rows)", "from 0"],
        ),
        (f"without lightgbm.txt {PLAIN} --query query.csv --rows 3,3", ["names row 3 twice"]),
        (
            f"without lightgbm.txt {PLAIN} --query query.csv --where drop",
            ["--where is 'drop'; expected a column of true"],
        ),
        (
            f"without lightgbm.txt {PLAIN} --query query.csv --where kind",
            ["(--where) holds 'high'", "expected numbers"],
        ),
        (
            f"without lightgbm.txt {PLAIN} --query query.csv --where y2",
            ["(--where) holds ", "1 for rows to delete"],
        ),
        (
            f"without lightgbm.txt {PLAIN} --query query.csv --where age",
            ["'age' among its features, which --where"],
        ),
        (
            f"what-if lightgbm.txt {PLAIN} --query query.csv --set 3",
            ["--set is '3'; expected a row label and its new"],
        ),
        (
            f"what-if lightgbm.txt {PLAIN} --query query.csv --set 3=x",
            ["target 'x'; expected a number, such as 12=80"],
        ),
        (
            f"what-if lightgbm.txt {PLAIN} --query query.csv --set 3=1 --set 3=2",
            ["--set names row '3' twice"],
        ),
        (
            f"what-if lightgbm.txt {PLAIN} --query query.csv --set 150=1",
            ["no row labelled '150' (--set)"],
        ),
        (
            f"group lightgbm.txt {PLAIN} --query query.csv --by cty",
            ["--by names 'cty'", "Did you mean 'city'?"],
        ),
        (
            f"group lightgbm.txt {PLAIN} --query query.csv --by city --cut 3",
            ["--cut needs numbers; column 'city'"],
        ),
        (
            f"group lightgbm.txt {PLAIN} --query query.csv --by age --cut 50,40",
            ["--cut is '50,40'; expected rising"],
        ),
        (f"{EXPLAIN} --query query.csv --out page.pdf", ["--out is page.pdf", ".jsonl or .html"]),
        (INTERVALS, ["nothing to calibrate with", "--calibration", "--out-of-fold"]),
        (f"{INTERVALS} --calibration noy.csv", ["noy.csv has no column 'y' (--target)"]),
        (
            f"{INTERVALS} --calibration query.csv",
            ["takes at least 9 calibration rows; there are 3"],
        ),
        (
            f"{INTERVALS} --calibration validation.csv --confidence-level 90",
            ["confidence_level is 90", "between 0 and 1"],
        ),
        (f"{INTERVALS} --out-of-fold folds", ["train.csv has no column 'folds' (--out-of-fold)"]),
        (f"{INTERVALS} --out-of-fold y2,w", ["out_of_fold", "2"]),
        (f"{INTERVALS} --out-of-fold kind", ["(--out-of-fold) holds 'high'", "expected numbers"]),
        (f"{INTERVALS} --out-of-fold age", ["'age' among its features, which --out-of-fold"]),
        ("check missing.txt", ["missing.txt cannot be read: No such file"]),
        ("check .", [". is a directory"]),
        ("check train.csv", ["a table of data by its name, not a model"]),
        ("check noise.bin", ["no model that axil knows: it begins with b'noise'"]),
        ("check nothing.txt", ["nothing.txt is empty"]),
        (
            "check cut.txt",
            ["looks like a LightGBM model but cannot be read", "save the model again"],
        ),
        ("check cut.json", ["looks like an XGBoost model but cannot be read"]),
        ("check cut.cbm", ["looks like a CatBoost model but cannot be read"]),
        ("check cut.pkl --trust", ["looks like a pickle but cannot be read"]),
        ("check catboost.json", ["looks like CatBoost's JSON", "model.save_model('model.cbm')"]),
        ("check dump.json", ["looks like LightGBM's dump_model"]),
        ("demo --save train.csv", ["--save train.csv is a file"]),
    ],
)
@pytest.mark.usefixtures("damaged")
def test_bad_input(fails, words, parts):
    fails(words, *parts)


def test_usage(run):
    for words in (
        "",
        "explain",
        "explain model.txt",
        "nonsense",
        f"{EXPLAIN} --query query.csv --by size",
        "check",
        f"without lightgbm.txt {PLAIN} --query query.csv",
    ):
        code, out, err = run(words)
        assert (code, out) == (2, "")
        assert err.startswith("usage: axil")
    commands = (
        "explain",
        "similar",
        "group",
        "what-if",
        "check",
        "find-label-issues",
        "influence",
        "without",
        "intervals",
        "report",
        "demo",
    )
    for words in ("--help", *(f"{name} --help" for name in commands)):
        code, out, _ = run(words)
        assert (code, out[:11]) == (0, "usage: axil")
    assert run("--version") == (0, f"axil {axil.__version__}\n", "")
