"""Reports: pages against `similar`, the index against the pages, interrupts, several writers at once, and what is refused."""

import multiprocessing
import re
from html import unescape

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from sklearn.ensemble import RandomForestRegressor

import axil
from axil.errors import InputError, UnsupportedQuestionError
from axil.report import reports
from axil.report.case_page import LEAST_ALIKE
from axil.report.folder import LONGEST, PER_FOLDER, file_names
from axil.report.wording import (
    Words,
    cell,
    commas_from,
    difference,
    number,
    number_beside,
    percent,
    row_name,
    shares,
)
from tests.output.page.page_models import HOSTILE
from tests.report.read_pages import Page, entries, pages

N, Q = 150, 12
DRAWS = np.random.default_rng(5)
FRAME = pd.DataFrame(
    {
        "area": DRAWS.uniform(40, 200, N + Q).round(),
        "built": DRAWS.integers(1900, 2024, N + Q),
        "lat": DRAWS.normal(41.9, 0.1, N + Q),
        "lon": DRAWS.normal(-87.6, 0.1, N + Q),
    },
    index=[f"h{i}" for i in range(N + Q)],
)
PRICE = 1000 * FRAME["area"] + 500 * (FRAME["built"] - 1950) + DRAWS.normal(0, 5000, N + Q) + 1e5
BESIDE = pd.DataFrame(
    {
        "street": [f"{i} Oak & <b>Elm</b>" for i in range(N + Q)],
        "sold": pd.Timestamp("2023-01-01") + pd.to_timedelta(np.arange(N + Q), "D"),
    },
    index=FRAME.index,
)
X, NEW, Y = FRAME.iloc[:N], FRAME.iloc[N:], PRICE.iloc[:N]
QUICK = {"n_estimators": 20, "min_child_samples": 5, "n_jobs": 1, "verbose": -1}
OPTIONS = {
    "k": 3,
    "columns": ["street", "area", "sold"],
    "target": "price",
    "unit": "$",
    "rows": "sales",
    "query": "home",
}
OPTIONS |= {"beside": (BESIDE.iloc[:N], BESIDE.iloc[N:])}


@pytest.fixture(scope="module")
def explainer():
    return axil.Explainer(
        LGBMRegressor(**QUICK).fit(X, np.log(Y)), X, np.log(Y), inverse_func=np.exp
    )


def test_a_page_says_what_similar_says(explainer, tmp_path):
    predictive = explainer.calibrate(NEW, np.log(PRICE.iloc[N:]))
    options = OPTIONS | {
        "by": "weight",
        "map": ("lat", "lon"),
        "within": ("sold", "2Y"),
        "search": ["street"],
    }
    written = explainer.report(
        NEW, tmp_path / "out", interval=predictive, confidence_level=0.8, **options
    )
    assert (written.pages, written.written, written.index) == (
        Q,
        Q,
        tmp_path / "out" / "index.html",
    )
    kept = {name: options[name] for name in ("k", "columns", "beside", "within")}
    table = explainer.similar(NEW, adjust=True, sign="for", by="weight", **kept)
    ends = predictive.interval(NEW, 0.8).set_index("query")
    words = Words(unit="$")
    search = entries(tmp_path / "out")
    assert set(search) == set(NEW.index)
    for said, (label, lines) in zip(table.attrs["comparables"], table.groupby("query", sort=False)):
        file, value, more = search[label]
        page = Page(tmp_path / "out" / file)
        # the model's own prediction, which LightGBM computes from leaves in another order than targets add up to
        assert float(value[1:].replace(",", "")) == pytest.approx(said["prediction"], abs=1)
        assert more == BESIDE["street"][label]
        assert f"Estimated price as of {BESIDE['sold'][label].date()} {value}" in page.text
        lower, upper = (words.amount(ends[name][label]) for name in ("lower", "upper"))
        assert f"Between {lower} and {upper} : 8 of 10 such ranges hold the price." in page.text
        moved = re.search(
            r"10 % higher, the estimate would be .* \(([\d.]+) %\) higher; the other 147", page.text
        )[1]
        assert float(moved) == pytest.approx(100 * (1.1 ** said["value share"] - 1), abs=0.051)
        _, own, *rows, mean = page.cells
        # a home that is valued as of a date was not sold on it
        assert own[2:] == [value, "", "", BESIDE["street"][label], cell(NEW["area"][label]), ""]
        assert mean[:3] == [
            f"Mean of these {len(lines)}",
            "",
            words.amount(lines["adjusted"].mean()),
        ]
        for line, (_, row) in zip(rows, lines.iterrows()):
            assert line[0] == f"{row['rank']}.\u00a0{row['row']}"
            assert line[1:3] == [words.amount(row["target"]), words.amount(row["adjusted"])]
            assert line[3] == words.change(
                said["prediction"] * (1.1 ** row["weight"] - 1), said["prediction"]
            )
            gap = difference(row["area (row)"], row["area (query)"])
            assert line[5:7] == [row["street (row)"], f"{cell(row['area (row)'])} ({gap})"]
            assert re.fullmatch(r"[\d.]+ k?m", line[4])
        assert len(rows) == len(lines)
        assert page.tags.count("circle") == len(lines)
        assert not {"script", "img", "link", "iframe", "object"} & set(page.tags)


def page_of(explainer, folder, rows=NEW, **options):
    """The first page of a report."""
    explainer.report(rows, folder, **OPTIONS | {"by": "weight"} | options)
    return Page(folder / entries(folder)[rows.index[0]][0])


@pytest.fixture(scope="module")
def doubted():
    """Prices of which five are wrong, and the homes that list one of them."""
    prices = Y.copy()
    prices.iloc[[3, 30, 60, 90, 120]] *= [6, 0.1, 8, 0.15, 7]
    explainer = axil.Explainer(
        LGBMRegressor(**QUICK).fit(X, np.log(prices)), X, np.log(prices), inverse_func=np.exp
    )
    comparables = explainer.similar(
        X, 3, columns=[], adjust=True, sign="for", suspects="mark", by="weight"
    )
    return explainer, comparables


def test_no_doubtful_price_is_shown_without_a_word(doubted, tmp_path):
    explainer, table = doubted
    odd, off = 0, []
    explainer.report(
        X,
        tmp_path / "out",
        k=3,
        target="price",
        unit="$",
        rows="sales",
        query="home",
        by="weight",
        suspects="mark",
    )
    files = entries(tmp_path / "out")
    for label, lines in table.groupby("query"):
        page = Page(tmp_path / "out" / files[label][0])
        estimate, rows = float(files[label][1][1:].replace(",", "")), page.cells[2:-1]
        for line, (_, row) in zip(rows, lines.iterrows()):
            assert ("price looks wrong" in line[0]) == row["suspect"]
            ratio = row["adjusted"] / estimate
            assert ("more than twice the estimate" in line[2]) == (ratio > 2)
            assert ("less than half the estimate" in line[2]) == (ratio < 0.5)
            odd += ratio > 2 or ratio < 0.5
        assert ("far from what the other sales lead one to expect" in page.text) == lines[
            "suspect"
        ].any()
        gap = lines["adjusted"].mean() - estimate
        said = re.search(
            r"The mean is (\$[\d,.]+) (above|below) the estimate(.*?\.) Adjusted", page.text
        )
        assert (said is not None) == (abs(gap) > 0.05 * estimate)
        if said is not None:
            assert float(said[1][1:].replace(",", "")) == pytest.approx(abs(gap), abs=1.5)
            assert said[2] == ("above" if gap > 0 else "below")
            off.append(said[3])
    assert odd > 10
    assert any(
        re.fullmatch(r" because of number \d; without it the mean is \$[\d,]+\.", why)
        for why in off
    )
    assert any(
        "is higher than the model expects of them. The estimate rests on all 150 sales" in why
        for why in off
    )


def test_suspects_are_marked_left_out_or_kept(doubted, tmp_path):
    explainer, table = doubted
    label = table["query"][table["suspect"]].iloc[0]
    wrong = set(table["row"][(table["query"] == label) & table["suspect"]])
    for suspects in ("mark", "drop", "keep"):
        page = page_of(
            explainer,
            tmp_path / suspects,
            X.loc[[label]],
            suspects=suspects,
            columns=[],
            beside=None,
        )
        listed = {line[0].split("\u00a0")[1].split()[0] for line in page.cells[2:-1]}
        assert (wrong <= listed) == (suspects != "drop")
        assert ("looks wrong" in " ".join(line[0] for line in page.cells)) == (suspects == "mark")
        assert ("of those that may be shown" in page.text) == (suspects == "drop")
        assert ("were not checked" in page.text) == (suspects == "keep")
    for action, suspects in (
        ("mark", sorted(wrong)),
        ("drop", ("drop", sorted(wrong))),
    ):  # of one's own
        given = page_of(
            explainer,
            tmp_path / f"own {action}",
            X.loc[[label]],
            suspects=suspects,
            columns=[],
            beside=None,
        )
        own_rows = page_of(
            explainer, tmp_path / action, X.loc[[label]], suspects=action, columns=[], beside=None
        )
        assert given.cells == own_rows.cells
    with pytest.raises(InputError, match="holds another report"):
        page_of(
            explainer, tmp_path / "mark", X.loc[[label]], suspects="drop", columns=[], beside=None
        )


def test_as_of_a_date_or_of_a_column(explainer, tmp_path):
    homes = pd.DataFrame({"valued": BESIDE["sold"].iloc[N:], "street": "Elm"}, index=NEW.index)
    for asof, date in (("2023-03-01", "2023-03-01"), ("valued", "2023-05-31")):
        beside = BESIDE.iloc[:N], homes
        page = page_of(explainer, tmp_path / asof, beside=beside, within=("sold", "2M"), asof=asof)
        assert f"Estimated price as of {date} $" in page.text
        sold = [line[6] for line in page.cells[2:-1]]
        assert len(sold) == 3
        least = str((pd.Timestamp(date) - pd.DateOffset(months=2)).date())
        assert all(least <= one < date for one in sold)
        assert page.cells[1][6] == ""
    page = page_of(
        explainer, tmp_path / "year", asof=2000, within="built", columns=["built"], beside=None
    )
    assert "Estimated price as of 2000 $" in page.text
    assert all(int(line[4]) < 2000 for line in page.cells[2:-1])


def test_rows_fit_for_each_query(explainer, tmp_path, monkeypatch):
    """A page that is written later lists the same rows."""
    alike = {"by": "weight", "among": lambda sales, home: abs(sales["area"] - home["area"]) < 20}
    explainer.report(NEW, tmp_path, **OPTIONS | alike)
    before = pages(tmp_path)
    for name in sorted(before)[4:8]:
        (tmp_path / "pages" / "0000" / name).unlink()
    explainer.report(NEW, tmp_path, **OPTIONS | alike)
    assert pages(tmp_path) == before
    for file, *_ in entries(tmp_path).values():
        gaps = [
            line[5].partition("(")[2].rstrip(")").replace("−", "-")
            for line in Page(tmp_path / file).cells[2:-1]
        ]
        assert gaps
        assert all(gap == "same" or abs(float(gap)) < 20 for gap in gaps)


def test_a_page_without_rows_says_so_and_is_counted(explainer, tmp_path):
    far = NEW.assign(area=NEW["area"].where(np.arange(len(NEW)) != 2, 1e6))
    written = explainer.report(far, tmp_path, **OPTIONS | {"within": ("area", 50)})
    assert (written.pages, written.written, written.unlisted) == (len(NEW), len(NEW), 1)
    said = (
        f"The model makes this estimate from {N} sales. None of these sales meets the conditions."
    )
    assert [said in Page(tmp_path / file).text for file, *_ in entries(tmp_path).values()].count(
        True
    ) == 1
    assert (
        explainer.report(far, tmp_path, **OPTIONS | {"within": ("area", 50)}).unlisted == 0
    )  # nothing was written


@pytest.mark.parametrize("sign", ["any", "for"])
def test_rows_that_are_most_alike(explainer, tmp_path, sign):
    table = explainer.similar(NEW, 3, columns=[], by="leaves", sign=sign)
    explainer.report(NEW, tmp_path, by="leaves", sign=sign, **OPTIONS)
    (tmp_path / "pages" / "0000" / f"{NEW.index[5]}.html").unlink()  # a page that is written later
    explainer.report(NEW, tmp_path, by="leaves", sign=sign, **OPTIONS)
    for label, lines in table.groupby("query"):
        page = Page(tmp_path / entries(tmp_path)[label][0])
        assert "Listed are the 3 most like this home." in page.text
        assert "Alike: in how many of its steps the model treats it like this home." in page.text
        assert page.cells[0][4] == "Alike"
        rows = [
            (line[0].split("\u00a0")[1], line[4].removesuffix(" hardly alike"))
            for line in page.cells[2:-1]
        ]
        assert rows == [
            (row, percent(share)) for row, share in zip(lines["row"], lines["similarity"])
        ]
    with pytest.raises(InputError, match=r"differs in by \('leaves', now 'weight'\)"):
        explainer.report(NEW, tmp_path, by="weight", sign=sign, **OPTIONS)


def test_distances_in_miles(explainer, tmp_path):
    near = page_of(explainer, tmp_path / "km", map=("lat", "lon")).cells[2:-1]
    far = page_of(explainer, tmp_path / "miles", map=("lat", "lon", "miles")).cells[2:-1]
    km, miles = ([float(line[4].split()[0]) for line in lines] for lines in (near, far))
    assert all(line[4].endswith(" miles") for line in far)
    np.testing.assert_allclose(miles, np.array(km) / 1.609344, atol=0.09)


def test_labels_are_written_as_in_the_records(explainer, tmp_path):
    """A parcel's number has no commas, so that a search finds it."""
    numbers = NEW.set_axis(14213100550000 + np.arange(Q))
    explainer.report(numbers, tmp_path, k=2)
    assert entries(tmp_path)["14213100550000"][0] == "pages/0000/14213100550000.html"


def test_pages_are_small_and_fetch_nothing(explainer, tmp_path):
    explainer.report(NEW, tmp_path, map=("lat", "lon"), **OPTIONS)
    for text in pages(tmp_path).values():
        assert len(text) < 12000
        assert "default-src 'none'" in text
        assert "http://" not in text.replace("http-equiv", "")
        assert "https://" not in text


def test_without_an_interval_nothing_is_said_of_it(explainer, tmp_path):
    explainer.report(NEW.head(1), tmp_path)
    (text,) = pages(tmp_path).values()
    assert "sure" not in Page(next((tmp_path / "pages").rglob("*.html"))).text
    assert "<svg" not in text


def test_a_report_goes_on_after_an_interrupt(explainer, tmp_path, monkeypatch):
    explainer.report(NEW, tmp_path / "whole", **OPTIONS)
    wanted = pages(tmp_path / "whole")
    monkeypatch.setattr("axil.machine.memory.Budget.batch_size", lambda self, *_: 4)
    real, done = reports.cases, []

    def stops(*given):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(1)
        return real(*given)

    monkeypatch.setattr(reports, "cases", stops)
    with pytest.raises(KeyboardInterrupt):
        explainer.report(NEW, tmp_path / "part", **OPTIONS)
    begun = pages(tmp_path / "part")
    assert begun.items() <= wanted.items()
    assert not (tmp_path / "part" / "index.html").exists()
    monkeypatch.setattr(reports, "cases", real)
    found = explainer.report(NEW, tmp_path / "part", **OPTIONS)
    assert (found.pages, found.written) == (Q, Q - len(begun))
    assert found.written > 0
    assert pages(tmp_path / "part") == wanted
    assert entries(tmp_path / "part") == entries(tmp_path / "whole")
    assert explainer.report(NEW, tmp_path / "part", **OPTIONS).written == 0


def test_a_page_that_cannot_be_written_stops_the_report(explainer, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "axil.machine.atomic.os.replace",
        lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")),
    )
    with pytest.raises(InputError, match=r"h15\d.html cannot be written: No space left"):
        explainer.report(NEW, tmp_path, **OPTIONS)
    assert not list(tmp_path.rglob("*.part"))
    monkeypatch.undo()
    assert explainer.report(NEW, tmp_path, **OPTIONS).written == Q


def _write_once(explainer, folder):
    explainer.report(NEW, folder, **OPTIONS)


def test_two_processes_at_once(explainer, tmp_path):
    """Both write the same folder, whatever comes first; it is as one alone leaves it."""
    context = multiprocessing.get_context("fork")
    both = [
        context.Process(target=_write_once, args=(explainer, tmp_path / "both")) for _ in range(2)
    ]
    for one in both:
        one.start()
    for one in both:
        one.join(600)
    assert [one.exitcode for one in both] == [0, 0]
    explainer.report(NEW, tmp_path / "alone", **OPTIONS)
    for name in ("report.json", "index.html", "search/0.js"):
        assert (tmp_path / "both" / name).read_text() == (tmp_path / "alone" / name).read_text()
    assert pages(tmp_path / "both") == pages(tmp_path / "alone")
    assert not list((tmp_path / "both").rglob("*.part"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 2}, r"differs in k \(3, now 2\)"),
        ({"unit": "EUR"}, "differs in words"),
        ({"sign": "any"}, "differs in sign"),
        ({"among": (X["area"] > 60).to_numpy()}, "differs in rows that may be listed"),
        ({"within": ("area", 50)}, "differs in rows that may be listed"),
        ({"X": NEW.assign(area=NEW["area"] + 1)}, "differs in X"),
        (
            {"X": NEW.head(3), "beside": (BESIDE.iloc[:N], BESIDE.iloc[N:].head(3))},
            r"X .*, pages \(12, now 3\)",
        ),
        ({"explainer": "forest"}, "differs in .*model"),
        (
            {"beside": (BESIDE.iloc[:N].assign(street="?"), BESIDE.iloc[N:])},
            "differs in training rows",
        ),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(value),
)
def test_a_folder_of_another_report_is_refused(explainer, tmp_path, changes, message):
    explainer.report(NEW, tmp_path, **OPTIONS)
    before = pages(tmp_path)
    options = OPTIONS | changes
    rows, asked = options.pop("X", NEW), explainer
    if options.pop("explainer", None):
        asked = axil.Explainer(
            RandomForestRegressor(5, min_samples_leaf=3, random_state=0).fit(X, Y), X, Y
        )
    with pytest.raises(InputError, match=f"holds another report, whose report.json .*{message}"):
        asked.report(rows, tmp_path, **options)
    assert pages(tmp_path) == before


def test_a_folder_that_is_none_of_ours(explainer, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="holds other files; expected a new or an empty directory"):
        explainer.report(NEW, tmp_path, **OPTIONS)
    with pytest.raises(InputError, match="a file; expected a directory"):
        explainer.report(NEW, tmp_path / "mine.txt", **OPTIONS)
    with pytest.raises(InputError, match="There is no directory"):
        explainer.report(NEW, tmp_path / "a" / "b", **OPTIONS)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 0}, "k is 0"),
        ({"title": 3}, "title is 3; expected text"),
        ({"names": {"area": 3}}, "names is .*expected a dict"),
        ({"search": ["city"]}, "search names 'city'"),
        (
            {"names": {"aera": "Floor area"}},
            "names has 'aera', which is no column; .*Did you mean 'area'",
        ),
        (
            {"names": {"town": "Town"}, "beside": None, "columns": None},
            "names has 'town'.* comes with beside=",
        ),
        ({"map": ("lat", "lon", "yards")}, "map has 'yards' as the unit of distances"),
        ({"suspects": True}, "suspects is True; expected"),
        ({"asof": "2023-01-01"}, "within is None; expected a column and a distance"),
        ({"map": ("lat", "sold")}, "sold of the training rows holds dates"),
        ({"interval": 0.9}, "interval is 0.9; expected what explainer.calibrate"),
        ({"columns": ["city"]}, "columns names 'city'"),
        ({"X": NEW.set_index(pd.Index(["1", 1, *range(2, Q)]))}, "X has several rows labelled '1'"),
        ({"X": NEW.head(0), "beside": None, "columns": None}, "X has no rows"),
        ({"confidence_level": 0.8}, r"confidence_level is 0\.8, and there is no interval"),
    ],
    ids=lambda value: None if isinstance(value, str) else next(iter(value)),
)
def test_bad_input_leaves_no_folder(explainer, tmp_path, changes, message):
    options = OPTIONS | changes
    with pytest.raises(InputError, match=message):
        explainer.report(options.pop("X", NEW), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_an_interval_of_another_model_is_refused(explainer, tmp_path):
    other = axil.Explainer(LGBMRegressor(**QUICK, num_leaves=4).fit(X, Y), X, Y).calibrate(
        NEW, PRICE.iloc[N:]
    )
    with pytest.raises(InputError, match="interval predicts other values than this explainer"):
        explainer.report(NEW, tmp_path, interval=other, confidence_level=0.8, **OPTIONS)


def test_what_has_no_report(tmp_path):
    counts = Y.round().to_numpy()
    poisson = LGBMRegressor(objective="poisson", **QUICK)
    pushes = axil.Explainer(poisson.fit(X, counts), X, counts)
    with pytest.raises(
        UnsupportedQuestionError,
        match=r"report has no answer here: .*sums of contributions or smooth functions",
    ):
        pushes.report(NEW, tmp_path / "out")
    both = np.column_stack([Y, Y])
    several = axil.Explainer(RandomForestRegressor(3, random_state=0).fit(X, both), X, both)
    with pytest.raises(UnsupportedQuestionError, match="this model has 2 outputs"):
        several.report(NEW, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_names_of_files():
    """Safe everywhere, below their folder, and different where the labels are."""
    labels = [
        "14-21",
        "../../etc/passwd",
        "..",
        ".",
        "",
        "a/b",
        "a\\b",
        "CON",
        "nul.txt",
        "A",
        "a",
        "x" * 500,
        "x" * 499 + "y",
        "%41",
        "~41",
    ]
    labels += [*HOSTILE, "-rf", "ß", "ẞ", "a b", "a\tb", "a\0b"]
    labels += [f"l{i}" for i in range(PER_FOLDER)]
    found = file_names(labels)
    assert found[0] == "0000/14-21.html"
    assert len({name.lower() for name in found}) == len(labels)  # also where case does not count
    assert found == file_names(labels)
    for name in found:
        assert re.fullmatch(r"\d{4}/[A-Za-z0-9_~][A-Za-z0-9._~-]*\.html", name)
        assert len(name) <= LONGEST + 20
    assert max(pd.Series([name[:4] for name in found]).value_counts()) <= PER_FOLDER


def test_hostile_labels_are_shown_and_do_nothing(tmp_path):
    names = [*HOSTILE, "../up", "a" * 300, "A", "a", "x\ud7ff"][:Q]
    rows = X.set_axis([*HOSTILE, *range(N - len(HOSTILE))], axis=0)
    rows.columns = [*HOSTILE[:3], "lon"]
    new = NEW.set_axis([*names, *range(Q - len(names))], axis=0).set_axis(rows.columns, axis=1)
    forest = RandomForestRegressor(5, min_samples_leaf=3, random_state=0).fit(rows.to_numpy(), Y)
    explainer = axil.Explainer(forest, rows, Y)
    words = dict.fromkeys(("title", "target", "unit", "rows", "query"), HOSTILE[1])
    explainer.report(
        new, tmp_path / "out", k=N, search=[0], map=(2, 3), names={HOSTILE[0]: HOSTILE[2]}, **words
    )
    for label, (file, _, _) in entries(tmp_path / "out").items():
        page = Page(tmp_path / "out" / file)
        assert not {"script", "img"} & set(page.tags)
        assert " ".join(label.split()) in page.text
        assert (
            (tmp_path / "out" / file)
            .resolve()
            .is_relative_to((tmp_path / "out" / "pages").resolve())
        )
    index = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert index.count("<script>") == 1
    assert "<img" not in index
    assert unescape(re.search("<h1>(.*?)</h1>", index)[1]) == HOSTILE[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1234567.8, "1,234,568"),
        (12.3456, "12.35"),
        (5.0, "5"),
        (-0.00123456, "−0.001235"),
        (np.nan, "–"),
        (1e-9, "1.0e−09"),
    ],
)
def test_numbers(value, expected):
    assert number(value) == expected


def test_cells_and_amounts():
    assert [cell(v) for v in (1987, 12000, None, True, np.datetime64("2024-02-01"), "x")] == [
        "1,987",
        "12,000",
        "–",
        "yes",
        "2024-02-01",
        "x",
    ]
    assert [Words(unit=unit).amount(-1500.0) for unit in ("", "$", "kWh")] == [
        "−1,500",
        "−$1,500",
        "−1,500 kWh",
    ]
    assert [Words(unit="$").amount(value) for value in (123.456, 12.3, -0.001, 7.0)] == [
        "$123",
        "$12.30",
        "$0.00",
        "$7",
    ]
    assert [Words(unit="$").change(value, 9e5) for value in (12.3, -12.3, 0.001)] == [
        "+$12",
        "−$12",
        "$0",
    ]
    assert [Words(unit="kg").change(value, 165.9) for value in (0.9406, -3.987, 0.001)] == [
        "+0.94 kg",
        "−3.99 kg",
        "0.00 kg",
    ]
    assert [number_beside(-0.04, other) for other in (954280.0, 12.0, 0.0)] == [
        "0",
        "−0.040",
        "−0.04",
    ]
    years, areas = np.array([1890, 2023]), np.array([90.0, 2023.0, np.nan])
    assert [cell(2023, commas_from(column)) for column in (years, areas, None)] == [
        "2023",
        "2,023",
        "2,023",
    ]
    assert [shares(level) for level in (0.9, 0.8, 0.95, 0.99, 0.935)] == [
        "9 of 10",
        "8 of 10",
        "19 of 20",
        "99 of 100",
        "93.5 of 100",
    ]
    assert [row_name(value) for value in (14021, np.int64(7), 7.0, 7.5, "14-21", True)] == [
        "14021",
        "7",
        "7",
        "7.5",
        "14-21",
        "yes",
    ]
    assert [
        difference(*pair) for pair in ((3, 1), (1, 3), (2, 2.0), ("a", "b"), (None, 1), (np.nan, 1))
    ] == [
        "+2",
        "−2",
        "same",
        "",
        "",
        "",
    ]


def test_pages_say_how_far_retraining_moves_an_estimate(tmp_path):
    model = LGBMRegressor(**QUICK)
    refits = axil.stability(model, X, Y, NEW, n=4)
    explainer = axil.Explainer(model.fit(X, Y), X, Y)
    explainer.report(NEW, tmp_path / "report", stability=refits, unit="$")
    pages = sorted((tmp_path / "report").rglob("h15*.html"))
    share = refits.std[0] / model.predict(NEW)[0]
    text = next(page for page in pages if page.stem == "h150").read_text(encoding="utf-8")
    assert re.search(
        r"trained again from the start would move this estimate by about <b>± \$[\d,]+ \((.*?) ?%\)</b>",
        text,
    )
    assert f"{100 * share:.1f}" in text or f"{100 * share:.0f}" in text
    with pytest.raises(
        InputError, match="stability has 12 predictions; expected those of the 3 rows"
    ):
        explainer.report(NEW.head(3), tmp_path / "other", stability=refits)


def test_dates_in_the_format_of_the_place(explainer, tmp_path):
    options = {"by": "weight", "within": ("sold", "2Y"), "date_format": "%d/%m/%Y"}
    page = page_of(explainer, tmp_path / "out", **options)
    day = BESIDE["sold"][NEW.index[0]]
    assert f"Estimated price as of {day:%d/%m/%Y}" in page.text
    table = explainer.similar(
        NEW.head(1),
        3,
        columns=["sold"],
        beside=(BESIDE.iloc[:N], BESIDE.iloc[N : N + 1]),
        by="weight",
        sign="for",
        within=("sold", "2Y"),
    )
    assert [row[-1] for row in page.cells[2:-1]] == [
        f"{sold:%d/%m/%Y}" for sold in table["sold (row)"]
    ]


def test_rows_that_are_hardly_alike_get_a_caution(explainer, tmp_path):
    rules = {"among": lambda sales, home: abs(sales["area"] - home["area"]) > 30, "by": "leaves"}
    explainer.report(NEW, tmp_path / "out", **OPTIONS, **rules)
    table = explainer.similar(NEW, 3, columns=[], **rules)
    files = entries(tmp_path / "out")
    n_cautions = 0
    for label, lines in table.groupby("query"):
        page = Page(tmp_path / "out" / files[label][0])
        is_alike = lines["similarity"] >= LEAST_ALIKE
        assert ["hardly alike" in row[4] for row in page.cells[2:-1]] == (~is_alike).tolist()
        assert ("None of them is very like it" in page.text) == (not is_alike.any())
        n_cautions += (~is_alike).sum()
    assert 0 < n_cautions < len(table)


def test_a_sample_has_the_pages_of_the_whole(explainer, tmp_path):
    explainer.report(NEW, tmp_path / "whole", **OPTIONS)
    written = explainer.report(NEW, tmp_path / "sample", sample=4, seed=7, **OPTIONS)
    again = explainer.report(NEW, tmp_path / "again", sample=4, seed=7, **OPTIONS)
    other = explainer.report(NEW, tmp_path / "other", sample=4, seed=8, **OPTIONS)
    assert (written.pages, again.pages, other.pages) == (4, 4, 4)
    whole, some = pages(tmp_path / "whole"), pages(tmp_path / "sample")
    assert {name: whole[name] for name in some} == some
    assert pages(tmp_path / "again") == some
    assert set(pages(tmp_path / "other")) != set(some)
    with pytest.raises(InputError, match="sample is 99, and X has 12 rows"):
        explainer.report(NEW, tmp_path / "more", sample=99)
