"""axil explain: the explainer's table, and how it is shown."""

import base64
import json
import re
import zlib

import joblib
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

import axil
from tests.cli.cli_models import (
    EXPLAIN,
    FEATURES,
    MODELS,
    N_QUERY,
    PLAIN,
    QUERY,
    TRAIN,
    VALIDATION,
    X,
    Y,
    lightgbm_model,
    table_of,
    trust,
)


@pytest.mark.parametrize("name", MODELS)
def test_explain_gives_what_the_explainer_gives(run, name):
    code, out, _ = run(
        f"explain {name} {PLAIN} --query query.csv --top 4 --format csv{trust(name)}"
    )
    assert code == 0
    table = table_of(out)
    explanation = axil.Explainer(MODELS[name][0], X, Y)(QUERY[FEATURES])
    expected = explanation.top(4)
    pd.testing.assert_frame_equal(
        table[list(expected.columns)], expected, check_dtype=False, rtol=1e-12
    )
    np.testing.assert_allclose(
        table["prediction"], np.repeat(explanation.predictions, 4), rtol=1e-12
    )
    np.testing.assert_array_equal(table["bmi (row)"], X["bmi"].iloc[expected["row"]])
    np.testing.assert_array_equal(table["bmi (query)"], np.repeat(QUERY["bmi"], 4))


def test_the_table_for_reading(run):
    code, out, err = run(f"{EXPLAIN} --query query.csv --top 2")
    assert (code, err.count("\n")) == (0, 1)
    assert (
        "note: train.csv has columns that are no features of the model: id, y2, w, kind, city"
        in err
    )
    lines = out.splitlines()
    assert lines[0].startswith(
        "lightgbm.txt: LightGBM, 150 training rows of train.csv; replayed predictions agree to "
    )
    explanation = axil.Explainer(MODELS["lightgbm.txt"][0], X, Y)(QUERY[FEATURES])
    top = explanation.top(2)
    assert lines[2] == f"Query 0: predicted {explanation.predictions[0]:.7g}"
    assert lines[3].split() == ["rank", "row", "weight", "target", "contribution", *FEATURES]
    assert [float(word) for word in lines[4].split()[1:]] == pytest.approx(
        list(QUERY[FEATURES].iloc[0])
    )
    shown = [float(word) for word in lines[5].split()]
    first = top.iloc[0]
    expected = [
        1,
        first["row"],
        first["weight"],
        first["target"],
        first["contribution"],
        *X.iloc[int(first["row"])],
    ]
    assert shown == pytest.approx(expected, rel=1e-3)
    assert len({len(line) for line in lines[3:7]}) == 1
    held = np.abs(explanation.weights[0])
    share = np.sort(held)[-2:].sum() / held.sum()
    assert (
        lines[7] == f"{share:.0%} of the absolute weight of all 150 training rows is in this table."
    )
    assert lines[-1] == "Exact with the fitted structure fixed; not a retraining."


def test_a_narrow_window_leaves_columns_out_and_says_so(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    _, out, _ = run(f"{EXPLAIN} --query query.csv --top 3")
    tables = [line for line in out.splitlines()[2:] if re.match(r"rank|\s+(query|\d)", line)]
    assert len(tables) == 5 * N_QUERY
    assert max(map(len, tables)) <= 60
    assert re.search(r"more columns in a wider window or with --out: .*bp\)", out)


def test_formats_agree(run, folder):
    words = f"{EXPLAIN} --features {','.join(FEATURES)} --query query.csv --by contribution"
    _, table, err = run(f"{words} --out out.csv --format table")
    assert err == ""
    _, printed, _ = run(f"{words} --format csv")
    _, lines, _ = run(f"{words} --format json")
    assert (folder / "out.csv").read_text(encoding="utf-8") == printed
    records = [json.loads(line) for line in lines.splitlines()]
    frame = table_of((folder / "out.csv").read_text(encoding="utf-8"))
    # JSON has all digits of a number, a table fifteen
    pd.testing.assert_frame_equal(pd.DataFrame(records), frame, check_dtype=False, rtol=1e-14)
    assert (
        frame.groupby("query")["contribution"].apply(lambda own: own.abs().is_monotonic_decreasing)
    ).all()
    assert table.count("Query ") == N_QUERY


def test_only_so_many_predictions_are_shown(run):
    _, out, _ = run(f"{EXPLAIN} --query validation.csv --top 1")
    assert out.count("\nQuery ") == 20
    assert (
        f"{len(VALIDATION) - 20} more predictions: --out FILE or --format csv has them all." in out
    )
    _, out, _ = run(f"{EXPLAIN} --query validation.csv --top 1 --format csv")
    assert out.count("\n") == 1 + len(VALIDATION)


def test_parquet_weights_and_labels(run, folder):
    model = lightgbm_model().fit(X, Y, sample_weight=TRAIN["w"])
    model.booster_.save_model("weighted.txt")
    table = (
        "--train train.parquet --target y --weights w --index id --query query.parquet --format csv"
    )
    code, out, _ = run(f"explain weighted.txt {table} --threads 1 --memory-limit 1GiB")
    assert code == 0
    found = table_of(out)
    labelled = X.set_axis(TRAIN["id"]), Y.set_axis(TRAIN["id"])
    expected = axil.Explainer(model, *labelled, sample_weight=TRAIN["w"])(
        QUERY[FEATURES].set_axis(QUERY["id"])
    ).top(10)
    pd.testing.assert_frame_equal(
        found[list(expected.columns)], expected, check_dtype=False, rtol=1e-12
    )
    TRAIN.to_csv(folder / "train.tsv", sep="\t", index=False)
    TRAIN.to_csv(folder / "train.csv.gz", index=False)
    for name in ("train.tsv", "train.csv.gz", "train.csv"):
        assert run(f"explain weighted.txt {table.replace('train.parquet', name)} --scratch .")[
            :2
        ] == (0, out)
    TRAIN.set_index("id").to_parquet(folder / "indexed.parquet")  # as pandas keeps an index
    again = run(f"explain weighted.txt {table.replace('train.parquet', 'indexed.parquet')}")
    assert again[:2] == (0, out)


def test_several_outputs_and_classes(run):
    forest = RandomForestRegressor(4, random_state=0).fit(X, TRAIN[["y", "y2"]])
    joblib.dump(forest, "two.joblib")
    words = "explain two.joblib --trust --train train.csv --query query.csv --top 2"
    code, out, _ = run(f"{words} --target y,y2")
    assert code == 0
    predicted = forest.predict(QUERY[FEATURES])
    for query, output in np.ndindex(predicted.shape):
        assert f"Query {query}, output {output}: predicted {predicted[query, output]:.7g}\n" in out
    joblib.dump(RandomForestClassifier(4, random_state=0).fit(X, TRAIN["kind"]), "classes.joblib")
    code, out, _ = run(f"{words.replace('two', 'classes')} --target kind")
    assert code == 0
    assert "Query 0, output high: predicted " in out


def test_outputs_with_trees_of_their_own(run):
    model = xgb.XGBRegressor(n_jobs=1, n_estimators=4, max_depth=2, base_score=0.5).fit(
        X, TRAIN[["y", "y2"]]
    )
    model.save_model("own.json")
    code, out, _ = run("explain own.json --train train.csv --target y,y2 --query query.csv --top 3")
    assert code == 0
    explanation = axil.Explainer(model, X, TRAIN[["y", "y2"]])(QUERY[FEATURES])
    for query, output in np.ndindex(N_QUERY, 2):
        held = np.abs(explanation.weights[query, output])
        part = out.split(
            f"Query {query}, output {output}: predicted {explanation.predictions[query, output]:.7g}\n"
        )[1]
        assert (
            f"\n{np.sort(held)[-3:].sum() / held.sum():.0%} of the absolute"
            in part.split("Query")[0]
        )
    code, out, _ = run(
        "influence own.json --train train.csv --target y,y2 --validation validation.csv --top 3"
    )
    assert code == 0
    assert re.search(r"^row +output +target +gradient", out, re.M)


def test_missing_values(run):
    QUERY.assign(bmi=np.nan).to_csv("gaps.csv", index=False)
    _, out, _ = run(f"{EXPLAIN} --query gaps.csv --top 1 --format json")
    assert [json.loads(line)["bmi (query)"] for line in out.splitlines()] == [None] * N_QUERY
    _, out, _ = run(f"{EXPLAIN} --query gaps.csv --top 1")
    assert re.search(r"^ +query .* - ", out, re.M)


def test_early_stopping_of_xgboost_is_kept(run):
    model = xgb.XGBRegressor(n_jobs=1, n_estimators=60, early_stopping_rounds=2, max_depth=3)
    model.fit(X, Y, eval_set=[(VALIDATION[FEATURES], VALIDATION["y"])], verbose=False)
    model.save_model("stopped.json")
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    code, out, _ = run(f"explain stopped.json {PLAIN} --query query.csv --top 1 --format csv")
    assert code == 0
    np.testing.assert_allclose(
        table_of(out)["prediction"], model.predict(QUERY[FEATURES]), rtol=1e-5
    )


def test_pushes_of_a_classifier_add_up_on_the_screen_too(run):
    model = lgb.LGBMClassifier(n_estimators=3, num_leaves=4, verbose=-1).fit(X, Y > 140)
    model.booster_.save_model("dear.txt")
    TRAIN.assign(y=(Y > 140).astype(int)).to_csv("labels.csv", index=False)
    more = " ".join(PLAIN.split()).replace("train.csv", "labels.csv")
    code, out, _ = run(
        f"explain dear.txt {more} --query query.csv --top 300 --out pushes.csv --format table"
    )
    assert code == 0
    assert "they sum to it exactly" in out
    assert ", probability of 1 0." in out
    assert ", score " in out
    found = pd.read_csv("pushes.csv")
    assert "weight" not in found
    base = float(axil.Explainer(model, X, Y > 140)(X.head(1)).intercepts[0])
    for _, own in found.groupby("query"):
        assert abs(own["contribution"].sum() + base - own["score"].iloc[0]) < 1e-9
        assert abs(1 / (1 + np.exp(-own["score"].iloc[0])) - own["probability"].iloc[0]) < 1e-9
    code, out, _ = run(f"explain dear.txt {more} --pos-label 0 --query query.csv --format csv")
    assert code == 0
    assert set(table_of(out)["output"]) == {0}
    expected = axil.Explainer(model, X, Y > 140, pos_label=False).top(QUERY[FEATURES])
    np.testing.assert_allclose(table_of(out)["contribution"], expected["contribution"], rtol=1e-9)
    code, out, _ = run(f"check dear.txt {more}")
    assert code == 0
    assert "contributions that add up to the score, verified on labels.csv" in out
    code, out, _ = run(f"without dear.txt {more} --query query.csv --rows 3 --format csv")
    assert code == 0
    expected = axil.Explainer(model, X, Y > 140).without(QUERY[FEATURES], [3])
    np.testing.assert_allclose(table_of(out)["change"], expected["change"], rtol=1e-9)
    code, out, _ = run(f"influence dear.txt {more} --validation labels.csv --top 2")
    assert code == 0
    assert "gain" in out


def test_the_page(run, folder):
    code, out, _ = run(f"{EXPLAIN} --query query.csv --out page.html --format table")
    assert code == 0
    assert out.count("Query ") == N_QUERY
    page = (folder / "page.html").read_text(encoding="utf-8")
    packed = re.search(r'id="data">(.*?)</script>', page)[1]
    summary = json.loads(zlib.decompress(base64.b64decode(packed)))
    assert summary["n"] == N_QUERY
    assert summary["standard_errors"] is not None


def test_means_of_groups_of_queries(run, folder):
    QUERY.assign(kind=np.array(["b", "a"])[np.arange(len(QUERY)) % 2]).to_csv(
        "kinds.csv", index=False
    )
    words = f"explain lightgbm.txt {PLAIN} --query kinds.csv --mean-by kind --top 3"
    code, out, _ = run(words)
    assert code == 0
    assert [line.split(":")[0] for line in out.splitlines() if line.startswith("Query ")] == [
        "Query a",
        "Query b",
    ]
    _, printed, _ = run(f"{words} --format csv")
    explainer = axil.Explainer(MODELS["lightgbm.txt"][0], TRAIN[FEATURES], TRAIN["y"])
    expected = explainer.aggregate(
        QUERY[FEATURES], by=np.array(["b", "a"])[np.arange(len(QUERY)) % 2]
    ).top(3)
    found = table_of(printed)
    np.testing.assert_allclose(found["weight"], expected["weight"], rtol=1e-9)
    assert not [name for name in found if name.endswith("(query)")]
    code, _, _ = run(f"{words} --out page.html")
    assert code == 0
    assert (folder / "page.html").exists()
    code, _, err = run(f"{words.replace('kind ', 'knid ')}")
    assert code == 2
    assert "--mean-by names 'knid', which is no column" in err
    assert "Did you mean 'kind'?" in err
