"""Output of the commands: one style on the screen and in files, whole or not at all, and nothing hostile in it."""

import io
import json
import re

import joblib
import numpy as np
import pandas as pd
import pytest

from axil.cli import screen
from tests.cli.cli_models import DATA, EXPLAIN, N_TRAIN, PLAIN, TRAIN, X, Y, lightgbm_model
from tests.terminal import Terminal


@pytest.mark.parametrize(
    ("values", "signed", "expected"),
    [
        ([0.0312, -0.25], True, ["+0.03120", "-0.25000"]),
        ([3.12e-7, -1e-8], True, ["+0.00000031200", "-0.00000001000"]),
        ([123456.78, 0.5], False, ["123457", "0"]),
        ([1.0, 20.0], False, ["1", "20"]),
        ([1.5, np.nan], False, ["1.5000", "-"]),
        ([np.inf, 0.5], False, ["inf", "0.50000"]),
        ([0.0, 0.0], False, ["0", "0"]),
        ([3, -4], False, ["3", "-4"]),
        (["a", "a" * 30], False, ["a", "a" * 21 + "..."]),
    ],
)
def test_numbers_show_the_digits_of_the_largest(values, signed, expected):
    assert screen.as_texts(np.array(values), signed) == expected


@pytest.mark.parametrize("kind", ["datetime64[ns]", "datetime64[us]", "datetime64[D]", object])
def test_days_have_no_hours(kind):
    dates = np.array(["2022-03-26", "NaT"], dtype="datetime64[us]").astype(kind)
    assert screen.as_texts(dates)[0] == "2022-03-26"
    noon = np.array(["2022-03-26T12:30"], dtype="datetime64[ns]")
    assert screen.as_texts(noon) == ["2022-03-26 12:30:00"]


def test_output_is_the_same_every_time(run):
    for words in (
        f"{EXPLAIN} --query query.csv",
        f"influence lightgbm.txt {PLAIN} --validation validation.csv",
        "demo",
    ):
        assert run(words) == run(words)


TABLES = {
    "explain": f"{EXPLAIN} --query query.csv --top 2",
    "similar": f"similar lightgbm.txt {PLAIN} --query query.csv --top 2 --columns bmi,city",
    "group": f"group lightgbm.txt {PLAIN} --query query.csv --by city",
    "what-if": f"what-if lightgbm.txt {PLAIN} --query query.csv --set 3=80",
    "without": f"without lightgbm.txt {PLAIN} --query query.csv --rows 3",
    "intervals": f"intervals lightgbm.txt {PLAIN} --query query.csv --calibration validation.csv",
    "find-label-issues": f"find-label-issues lightgbm.txt {PLAIN} --top {N_TRAIN}",
    "influence": f"influence lightgbm.txt {PLAIN} --validation validation.csv --top {N_TRAIN}",
}


@pytest.mark.parametrize("name", TABLES)
def test_one_style_of_output(run, fails, name):
    """Every form has the same table; --out prints where it is, and --quiet nothing but the answer."""
    code, printed, _ = run(f"{TABLES[name]} --format csv")
    assert code == 0
    expected = pd.read_csv(io.StringIO(printed))
    readers = {
        "csv": pd.read_csv,
        "parquet": pd.read_parquet,
        "json": pd.read_json,
        "jsonl": lambda path: pd.read_json(path, lines=True),
    }
    for suffix, read in readers.items():
        code, out, err = run(f"{TABLES[name]} --out answer.{suffix} --quiet")
        assert (code, out, err) == (0, "", "")
        pd.testing.assert_frame_equal(
            read(f"answer.{suffix}"), expected, check_dtype=False, rtol=1e-9
        )
    code, out, _ = run(f"{TABLES[name]} --out answer.csv")
    assert out.startswith(
        "lightgbm.txt: LightGBM, 150 training rows of train.csv; replayed predictions agree to "
    )
    assert re.search(rf"^{len(expected)} [a-z0-9 ]+ are in answer.csv.$", out, re.M)
    assert "query  " not in out
    code, out, _ = run(f"{TABLES[name]} --json")
    assert json.loads(out.splitlines()[0]).keys() == dict.fromkeys(expected.columns).keys()
    whole, quiet = run(TABLES[name])[1], run(f"{TABLES[name]} --quiet")
    assert quiet[2] == ""
    assert quiet[1] in whole
    assert "replayed predictions" not in quiet[1]
    assert "retraining" not in quiet[1]
    if name in ("explain", "group", "intervals"):
        code, out, _ = run(f"{TABLES[name]} --out answer.html")
        assert (code, "The page is in answer.html.\n" in out) == (0, True)
    else:
        fails(
            f"{TABLES[name]} --out answer.html",
            "--out is answer.html; expected",
            "explain, group and intervals",
        )


def test_quiet_keeps_the_warning_of_an_approximation(run):
    """LightGBM counts the weighted rows of smoothed leaves by bins that its model does not keep."""
    joblib.dump(
        lightgbm_model(path_smooth=3.0).fit(X, Y, sample_weight=TRAIN["w"]), "smooth.joblib"
    )
    code, _, err = run(
        f"without smooth.joblib --trust {DATA} --query query.csv --rows p003 --quiet"
    )
    assert code == 0
    assert err.startswith("axil: warning: Leaves of this model are smoothed by numbers of rows ")
    assert err.count("\n") == 1


HOSTILE = "\x1b]0;title\x07\x1b[2J"  # sets a window's title, rings, clears the screen


def test_control_characters_never_reach_the_terminal(run, fails, folder):
    labels = TRAIN["id"].where(TRAIN.index > 0, f"{HOSTILE}a\nInjected: ok: predicted -0.5\u202e")
    odd = TRAIN.assign(id=labels).rename(columns={"bmi": f"b\nmi{HOSTILE}x"})
    odd.to_csv(folder / "odd.csv", index=False)
    model = lightgbm_model().fit(odd[["age", "sex", f"b\nmi{HOSTILE}x", "bp"]].to_numpy(), Y)
    model.booster_.save_model(folder / "odd.txt")
    names = f"--features 'age,sex,b\nmi{HOSTILE}x,bp'"
    for words in (
        f"explain odd.txt --train odd.csv --target y --index id {names} --query odd.csv --top 5",
        f"influence odd.txt --train odd.csv --target y --index id {names} --validation odd.csv "
        "--top 150",
    ):
        code, out, err = run(words)
        assert code == 0, err
        assert "\\x1b]0;title\\x07" in out
        assert not set(out + err) & {"\x1b", "\x07", "\u202e"}
        assert not [line for line in out.splitlines() if line.startswith("Injected")]
    err = fails(
        "explain lightgbm.txt --train odd.csv --target y --query odd.csv",
        "lacks 1 of the 4 features",
    )
    assert "\x1b" not in err
    assert err.count("\n") == 1
    warned = run("explain lightgbm.txt --train train.csv --target y --query query.csv")[2]
    assert all(line.startswith("axil: ") for line in warned.splitlines())


def test_csv_has_no_formulas_and_json_no_infinity():
    from axil.cli.table_files import TextWriter, as_csv

    frame = pd.DataFrame(
        {
            "label": ["=cmd|x", "+1", "-5 m", "@a", "\tb", "a=b", "-1e5"],
            "=name": [-1.5, np.inf, -np.inf, np.nan, 0.0, 1e300, 2.0],
            "kind": pd.Categorical(["=a", "b"] * 3 + ["b"]),
            "whole": [-3] * 7,
        }
    )
    read = pd.read_csv(io.StringIO(as_csv(frame)), dtype={"label": str})
    assert list(read.columns) == ["label", "'=name", "kind", "whole"]
    assert list(read["label"]) == ["'=cmd|x", "+1", "'-5 m", "'@a", "'\tb", "a=b", "-1e5"]
    assert list(read["kind"][:2]) == ["'=a", "b"]
    np.testing.assert_array_equal(read["'=name"], frame["=name"])
    assert (read["whole"] == -3).all()

    def refuse(name):
        raise AssertionError(name)

    out = io.StringIO()
    TextWriter(out, "jsonl").add(frame)
    records = [json.loads(line, parse_constant=refuse) for line in out.getvalue().splitlines()]
    assert [record["=name"] for record in records] == [-1.5, None, None, None, 0.0, 1e300, 2.0]
    shown = Terminal()
    TextWriter(shown, "csv").add(frame.assign(label=HOSTILE))
    assert "\x1b" not in shown.getvalue()
    assert shown.getvalue().count("\n") == 8


def test_the_csv_file_is_written_whole_or_not_at_all(run, fails, folder, monkeypatch):
    (folder / "kept.csv").write_text("before")
    monkeypatch.setattr(
        "axil.cli.table_files.as_csv",
        lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left on device")),
    )
    fails(
        f"{EXPLAIN} --query query.csv --out kept.csv",
        "kept.csv cannot be written: No space left on device",
    )
    assert (folder / "kept.csv").read_text() == "before"
    assert not list(folder.glob(".axil-*"))
