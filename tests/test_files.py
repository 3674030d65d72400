"""Saving without pickle, and what happens to damaged files."""

import contextlib
import hashlib
import hmac
import io
import json
import pickle
import re
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostRegressor
from lightgbm import LGBMRegressor
from sklearn.ensemble import RandomForestClassifier
from xgboost import XGBRegressor

import axil
from axil import InputError, files
from axil.kernels.choose import limits_of
from axil.methods.method import verified_model
from axil.output import archive as archive_file
from tests.adapters.lightgbm_models import CASES
from tests.output.saved_files import proven, rewritten, with_one_changed


@pytest.fixture(scope="module")
def case():
    return CASES["regressor"]()


@pytest.fixture(scope="module")
def explainer(case):
    return axil.Explainer(case.model, case.X, case.y)


@pytest.mark.parametrize("name", ["regressor", "weighted", "scored", "path_smooth=2"])
def test_a_loaded_explainer_gives_the_same_weights(name, tmp_path):
    case = CASES[name]()
    before = axil.Explainer(
        case.model, case.X, case.y, sample_weight=case.sample_weight, init_score=case.init_score
    )
    before.save(tmp_path / "saved")
    after = axil.load(tmp_path / "saved", case.model)
    np.testing.assert_array_equal(after(case.X_new).weights, before(case.X_new).weights)
    np.testing.assert_array_equal(after(case.X_new).intercepts, before(case.X_new).intercepts)
    assert after.verification == before.verification
    pd.testing.assert_frame_equal(after.top(case.X_new), before.top(case.X_new))


@pytest.mark.parametrize(
    "index",
    [
        list("abcdef"),
        ["a\0", "a", "", "\0", "b\0c\0", "\u00e9"],
        pd.date_range("2020-01-01", periods=6),
        [1.5, 2, 3, 4, 5, 6],
    ],
)
def test_labels_survive(index, tmp_path, explainer, case):
    labels = pd.Index(np.resize(np.array(index, dtype=object), len(case.y)), dtype=object)
    labels = labels if isinstance(index[0], str) else labels.infer_objects()
    X = pd.DataFrame(np.asarray(case.X), index=labels)
    X.columns = verified_model(explainer).adapter.feature_names or X.columns
    axil.Explainer(case.model, X, case.y).save(tmp_path / "e")
    assert list(axil.load(tmp_path / "e", case.model).index) == list(labels.to_numpy())


def test_labels_that_need_pickle_are_refused_and_nothing_is_written(tmp_path, explainer):
    labels = np.empty(2, dtype=object)
    labels[:] = [("a", 1), ("b", 2)]
    with pytest.raises(InputError, match="labels are of type tuple"):
        archive_file.plain_labels(labels)
    with pytest.raises(InputError, match="labels are of type int"):
        archive_file.plain_labels(np.array(["a", 1], dtype=object))
    assert list(tmp_path.iterdir()) == []


def test_another_model_is_refused(tmp_path, explainer):
    explainer.save(tmp_path / "e")
    with pytest.raises(InputError, match="another model"):
        axil.load(tmp_path / "e", CASES["weighted"]().model)


def test_no_file(tmp_path, case):
    with pytest.raises(InputError, match="There is no file"):
        axil.load(tmp_path / "nothing", case.model)


def test_foreign_files_are_refused(tmp_path, case):
    (tmp_path / "text").write_text("weights,1,2,3")
    np.savez(tmp_path / "other.npz", a=np.arange(3))
    np.save(tmp_path / "single.npy", np.arange(3))
    (tmp_path / "empty").write_bytes(b"")
    np.savez(tmp_path / "pickled.npz", header=np.array([{}], dtype=object))
    for name in ("text", "other.npz", "single.npy", "empty", "pickled.npz"):
        with pytest.raises(InputError, match="not a complete axil explainer"):
            axil.load(tmp_path / name, case.model)


def test_damaged_files_are_refused(tmp_path, explainer, case):
    explainer.save(tmp_path / "whole")
    data = (tmp_path / "whole").read_bytes()
    rng = np.random.default_rng(0)
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="not a complete axil explainer"):
        axil.load(tmp_path / "cut", case.model)
    for _ in range(20):
        flipped = bytearray(data)
        flipped[rng.integers(len(data) // 10, len(data) * 9 // 10)] ^= 0xFF
        (tmp_path / "flipped").write_bytes(flipped)
        try:
            found = axil.load(tmp_path / "flipped", case.model)
        except InputError:
            continue
        np.testing.assert_array_equal(found(case.X_new).weights, explainer(case.X_new).weights)


def test_missing_or_ill_fitting_parts_are_refused(tmp_path, explainer, case):
    explainer.save(tmp_path / "whole")
    with np.load(tmp_path / "whole") as file:
        arrays = dict(file)
    for name in arrays:
        if name == "header":
            np.savez(
                tmp_path / "part.npz",
                **{key: value for key, value in arrays.items() if key != name},
            )
        else:
            rewritten(arrays, tmp_path / "part.npz", **{name: None})
        with pytest.raises(InputError, match="not a complete axil explainer"):
            axil.load(tmp_path / "part.npz", case.model)
    for name in ("leaves", "targets", "index"):
        rewritten(arrays, tmp_path / "part.npz", **{name: arrays[name][:-1]})
        with pytest.raises(InputError, match="not a complete axil explainer"):
            proven(tmp_path / "part.npz", case.model)


@pytest.fixture(scope="module")
def saved(tmp_path_factory, explainer):
    path = tmp_path_factory.mktemp("saved") / "whole"
    explainer.save(path)
    with np.load(path) as file:
        return dict(file)


HEADERS = {
    "no kind": {"kind": ...},
    "another kind": {"kind": "derivative"},
    "a list for a kind": {"kind": []},
    "the kind of contributions": {"kind": "additive"},
    "no fingerprint": {"fingerprint": ...},
    "no backend": {"backend": ...},
    "a module for a backend": {"backend": "os"},
    "a list for a backend": {"backend": []},
    "no error": {"prediction_error": ...},
    "an error that is no number": {"prediction_error": "0"},
    "an error that is not finite": {"prediction_error": float("inf")},
    "an error that is no proof": {"prediction_error": 0.5},
    "an error below zero": {"prediction_error": -1.0},
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_does_not_fit_is_refused(name, tmp_path, saved, case):
    path = rewritten(saved, tmp_path / "hostile.npz", HEADERS[name])
    with pytest.raises(
        InputError, match=r"not a complete axil explainer|another model|saved for boosted trees"
    ):
        proven(path, case.model)


def bags(s, n_trees=0):
    return np.ones((s["leaves"].shape[1], len(s["leaves"]) + n_trees), np.uint8)


ARRAYS = {
    "leaves beyond their tree": lambda s: {"leaves": np.full_like(s["leaves"], 255)},
    "signed leaves": lambda s: {"leaves": s["leaves"].astype(np.int64)},
    "leaves of another type": lambda s: {"leaves": s["leaves"].astype(np.uint32)},
    "leaves in the other order": lambda s: {"leaves": np.asfortranarray(s["leaves"])},
    "leaves of another byte order": lambda s: {"leaves": s["leaves"].astype(">u2")},
    "leaves of fewer trees": lambda s: {"leaves": s["leaves"][1:]},
    "leaves of no tree": lambda s: {"leaves": s["leaves"][:0]},
    "leaves of one dimension": lambda s: {"leaves": s["leaves"][0]},
    "leaves of other rows": lambda s: {"leaves": s["leaves"][:, ::-1].copy()},
    "targets of another byte order": lambda s: {"targets": s["targets"].astype(">f8")},
    "targets of single precision": lambda s: {"targets": s["targets"].astype(np.float32)},
    "targets of text": lambda s: {"targets": s["targets"].astype(str)},
    "targets that are not finite": lambda s: {"targets": s["targets"] * np.nan},
    "other targets": lambda s: {"targets": s["targets"] * 3},
    "targets of two outputs": lambda s: {"targets": np.hstack([s["targets"], s["targets"]])},
    "targets of one dimension": lambda s: {"targets": s["targets"][:, 0]},
    "no rows": lambda s: {
        "targets": s["targets"][:0],
        "index": s["index"][:0],
        "leaves": s["leaves"][:, :0],
    },
    "labels of two dimensions": lambda s: {"index": s["index"][:, None]},
    "labels whose ends run backwards": lambda s: {
        "index": np.zeros(3, np.uint8),
        "index.ends": np.arange(len(s["index"]))[::-1].copy(),
    },
    "labels that are no text": lambda s: {
        "index": np.full(len(s["index"]), 255, np.uint8),
        "index.ends": np.arange(len(s["index"])) + 1,
    },
    "offsets of one dimension": lambda s: {"offsets": s["targets"][:, 0]},
    "offsets of two outputs": lambda s: {"offsets": np.hstack([s["targets"], s["targets"]])},
    "other offsets": lambda s: {"offsets": s["targets"]},
    "weights of another length": lambda s: {"weights": np.ones(3)},
    "weights in a table": lambda s: {"weights": np.ones_like(s["targets"])},
    "weights below zero": lambda s: {"weights": -np.ones(len(s["targets"]))},
    "weights of zero": lambda s: {"weights": np.zeros(len(s["targets"]))},
    "other weights": lambda s: {"weights": np.linspace(1, 2, len(s["targets"]))},
    "bags of text": lambda s: {"in_bag": bags(s).astype(str)},
    "bags of fewer trees": lambda s: {"in_bag": bags(s, -1)},
    "bags of fewer rows": lambda s: {"in_bag": bags(s)[1:]},
    "other bags": lambda s: {"bags": np.tril(bags(s))},
    "targets to show without a function": lambda s: {"shown": s["targets"]},
    "an unknown array": lambda s: {"surprise": np.zeros(3)},
    "an array without a shape": lambda s: {"targets": np.float64(3.0)},
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_that_do_not_fit_are_refused(name, tmp_path, saved, case):
    path = rewritten(saved, tmp_path / "hostile.npz", **ARRAYS[name](saved))
    with pytest.raises(
        InputError, match=r"not a complete axil explainer|has 2 outputs; the LightGBM model has 1"
    ):
        proven(path, case.model)


def archive(path, members, method=zipfile.ZIP_STORED, flags=0):
    """A zip file of these names and bytes."""
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in members:
            file.writestr(name, data)
    if flags:
        data = bytearray(path.read_bytes())
        for magic, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
            for found in re.finditer(re.escape(magic), bytes(data)):
                data[found.start() + at] |= flags
        path.write_bytes(data)
    return path


def npy(array, shape=None):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"shape": shape or array.shape, "fortran_order": False, "descr": array.dtype.str}
    )
    return stream.getvalue() + array.tobytes()


def in_bytes(saved, **changed):
    return [
        (f"{name}.npy", changed.get(name, npy(np.asarray(array)))) for name, array in saved.items()
    ]


ARCHIVES = {
    "compressed": lambda path, s: archive(path, in_bytes(s), zipfile.ZIP_DEFLATED),
    "compressed otherwise": lambda path, s: archive(path, in_bytes(s), zipfile.ZIP_LZMA),
    "encrypted": lambda path, s: archive(path, in_bytes(s), flags=1),
    "a member twice": lambda path, s: archive(
        path, [*in_bytes(s), ("targets.npy", npy(s["targets"]))]
    ),
    "a foreign member": lambda path, s: archive(
        path, [*in_bytes(s), ("../../evil.npy", npy(s["targets"]))]
    ),
    "a member without an array": lambda path, s: archive(path, in_bytes(s, targets=b"")),
    "a huge shape": lambda path, s: archive(
        path, in_bytes(s, targets=npy(s["targets"], (2**40, 2**20)))
    ),
    "a shape below zero": lambda path, s: archive(
        path, in_bytes(s, targets=npy(s["targets"], (-1, -len(s["targets"]))))
    ),
    "a header of deep brackets": lambda path, s: archive(
        path, in_bytes(s, targets=b"\x93NUMPY\1\0" + (9000).to_bytes(2, "little") + b"(" * 9000)
    ),
    "deep JSON": lambda path, s: archive(
        path, in_bytes(s, header=npy(np.frombuffer(b"[" * 100_000, np.uint8)))
    ),
    "JSON of a list": lambda path, s: archive(
        path, in_bytes(s, header=npy(np.frombuffer(b"[1]", np.uint8)))
    ),
    "no JSON": lambda path, s: archive(
        path, in_bytes(s, header=npy(np.frombuffer(b"\xff", np.uint8)))
    ),
    "nothing": lambda path, s: archive(path, []),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_odd_archives_are_refused(name, tmp_path, saved, case):
    with (
        pytest.warns(UserWarning, match="Duplicate")
        if name == "a member twice"
        else contextlib.nullcontext()
    ):
        path = ARCHIVES[name](tmp_path / "odd.npz", saved)
    with pytest.raises(InputError, match="not a complete axil explainer"):
        axil.load(path, case.model)


def test_memory_is_required_before_it_is_taken(tmp_path, saved, case):
    path = tmp_path / "large.npz"
    rewritten(saved, path, None, targets=np.zeros((1 << 20, 4)))
    taken = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "empty", lambda *args, **kwargs: taken.append(args))
        with pytest.raises(InputError, match=r"would take .* allowed by memory_limit"):
            axil.load(path, case.model, memory_limit="1 MB")
    assert taken == []


def test_an_explainer_without_proof_is_not_saved(tmp_path, case):
    with pytest.raises(InputError, match="verify=False"):
        axil.Explainer(case.model, case.X, case.y, verify=False).save(tmp_path / "e")
    assert list(tmp_path.iterdir()) == []


def test_the_models_leaves_must_be_those_of_the_structure(tmp_path, case):
    """A structure of another model is consistent in itself; the kernels would read beyond its leaves."""
    small = axil.Explainer(case.model, case.X, case.y)
    other = axil.Explainer(
        LGBMRegressor(n_estimators=3, num_leaves=3, verbose=-1).fit(case.X, case.y), case.X, case.y
    )
    small._model = replace(verified_model(small), engines=verified_model(other).engines)
    with pytest.raises(axil.ExactnessError, match="number of trees"):
        small(case.X_new)


def test_training_rows_given_again_are_compared(tmp_path, explainer, case):
    explainer.save(tmp_path / "e")
    X = case.X.iloc[::-1] if hasattr(case.X, "iloc") else case.X[::-1]
    with pytest.raises(axil.ExactnessError, match="leaf of training row 0"):
        axil.load(tmp_path / "e", case.model, X_train=X)


@pytest.mark.parametrize(
    ("version", "advice"),
    [(99, "newer axil that wrote it"), (6, "older axil wrote it: make the explainer again")],
)
def test_another_format_says_so(version, advice, tmp_path, saved, case):
    path = rewritten(saved, tmp_path / "other.npz", {"version": version})
    with pytest.raises(InputError, match=f"version {version} .* reads version 7. .*{advice}"):
        axil.load(path, case.model)


def test_the_file_is_a_plain_npz(tmp_path, explainer):
    explainer.save(tmp_path / "e.npz")
    assert zipfile.is_zipfile(tmp_path / "e.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["e.npz"]
    with np.load(tmp_path / "e.npz", allow_pickle=False) as file:
        assert all(array.dtype != object for array in file.values())


def test_a_failed_save_keeps_the_old_file(tmp_path, explainer, monkeypatch):
    explainer.save(tmp_path / "e")
    old = (tmp_path / "e").read_bytes()
    monkeypatch.setattr(np, "savez", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(InputError, match="cannot be written: disk full"):
        explainer.save(tmp_path / "e")
    assert (tmp_path / "e").read_bytes() == old
    assert [path.name for path in tmp_path.iterdir()] == ["e"]


BAGGED = {
    "n_estimators": 6,
    "num_leaves": 5,
    "subsample": 0.6,
    "subsample_freq": 1,
    "reg_lambda": 2.0,
    "verbose": -1,
}
KINDS = {
    "bagged, with l2": lambda X, y, w: LGBMRegressor(**BAGGED).fit(X, y, sample_weight=w),
    "outputs with trees of their own": lambda X, y, w: XGBRegressor(
        n_estimators=4, max_depth=2, base_score=0.5
    ).fit(X, np.column_stack([y, y**2]), sample_weight=w),
    "several steps, l2 by weight": lambda X, y, w: CatBoostRegressor(
        iterations=5,
        depth=3,
        leaf_estimation_iterations=3,
        bootstrap_type="No",
        verbose=False,
        allow_writing_files=False,
    ).fit(X, y, sample_weight=w),
    "forest": lambda X, y, w: RandomForestClassifier(4, max_depth=3, random_state=0).fit(
        X, y > 0, sample_weight=w
    ),
}


@pytest.fixture(scope="module")
def of_every_kind(tmp_path_factory):
    """Model, explainer, rows and saved arrays of each kind."""
    rng, found = np.random.default_rng(5), {}
    X = rng.normal(size=(80, 3))
    y, w = X[:, 0] + rng.normal(size=80), rng.choice([0.5, 1.0, 2.0], size=80)
    for name, fit in KINDS.items():
        model = fit(X, y, w)
        targets = {
            "forest": y > 0,
            "outputs with trees of their own": np.column_stack([y, y**2]),
        }.get(name, y)
        explainer, path = (
            axil.Explainer(model, X, targets, sample_weight=w),
            tmp_path_factory.mktemp("kinds") / "whole",
        )
        explainer.save(path)
        with np.load(path) as file:
            found[name] = model, explainer, X[:3], dict(file)
    return found


@pytest.mark.parametrize("name", KINDS)
def test_a_file_of_which_one_entry_was_changed_is_refused(name, tmp_path, of_every_kind):
    model, _, _, arrays = of_every_kind[name]
    rng = np.random.default_rng(1)
    for part in arrays.keys() - {"header"}:
        for _ in range(3):
            changed = with_one_changed(arrays[part], rng)
            path = rewritten(arrays, tmp_path / "changed.npz", signed=False, **{part: changed})
            with pytest.raises(InputError, match="changed since the file was written"):
                axil.load(path, model)


def answers(explainer, X):
    """Answers, most of which depend on what rows leave behind when they are taken out."""
    gone = list(explainer.index[:2])
    frames = explainer.diagnostics.leave_one_out(), explainer.without(X, gone)
    return [
        explainer(X).weights,
        explainer.removal(X),
        *(frame.select_dtypes("number") for frame in frames),
    ]


SAMPLED = (
    "bagged, with l2",
    "forest",
)  # the leaf of a row that a tree was fitted without is in no leaf value


@pytest.mark.parametrize(
    ("name", "part"),
    [
        (name, part)
        for name in KINDS
        for part in ("leaves", "targets", "weights")
        if part != "leaves" or name not in SAMPLED
    ],
)
def test_rows_that_do_not_lead_to_the_models_leaves_are_refused_whatever_the_digest(
    name, part, tmp_path, of_every_kind
):
    model, explainer, X, arrays = of_every_kind[name]
    rng = np.random.default_rng(2)
    for _ in range(5):
        changed = with_one_changed(arrays[part], rng)
        path = rewritten(arrays, tmp_path / "changed.npz", **{part: changed})
        try:
            again = proven(path, model)
        except InputError:
            continue
        for found, expected in zip(answers(again, X), answers(explainer, X)):
            np.testing.assert_array_equal(found, expected)


ANSWERS = {
    "explain": lambda explainer, X: explainer(X),
    "top": lambda explainer, X: explainer.top(X),
    "leave_one_out": lambda explainer, X: explainer.diagnostics.leave_one_out(),
    "index": lambda explainer, X: explainer.index,
    "repr": lambda explainer, X: repr(explainer),
    "pickle": lambda explainer, X: pickle.dumps(explainer),
    "precompute": lambda explainer, X: explainer.precompute(),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_file_that_proves_nothing_answers_nothing(name, tmp_path, saved, case):
    """Who changes an entry and the digest with it passes the checks of loading; the replay comes before every answer."""
    loaded = axil.load(
        rewritten(saved, tmp_path / "hostile.npz", targets=saved["targets"] * 3), case.model
    )
    for _ in range(2):
        with pytest.raises(InputError, match="not a complete axil explainer"):
            ANSWERS[name](loaded, case.X_new)


def test_training_rows_and_a_prepared_explainer_are_proven_by_loading(tmp_path, saved, case):
    changed = {"targets": saved["targets"] * 3}
    with pytest.raises(InputError, match="not a complete axil explainer"):
        axil.load(rewritten(saved, tmp_path / "rows.npz", **changed), case.model, X_train=case.X)
    with pytest.raises(InputError, match="not a complete axil explainer"):
        axil.load(
            rewritten(saved, tmp_path / "prepared.npz", {"prepared": True}, **changed), case.model
        )


def test_a_loaded_explainer_is_proven_once_and_pickles_proven(
    tmp_path, explainer, case, monkeypatch
):
    explainer.save(tmp_path / "e")
    proofs = []
    build = files.build
    monkeypatch.setattr(files, "build", lambda *given: proofs.append(given) or build(*given))
    loaded = axil.load(tmp_path / "e", case.model)
    assert proofs == []
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: loaded(case.X_new).weights, range(4)))
    copied = pickle.loads(pickle.dumps(loaded))
    for weights in [*found, copied(case.X_new).weights]:
        np.testing.assert_array_equal(weights, explainer(case.X_new).weights)
    assert len(proofs) == 1


LABELLED = pd.DataFrame(np.random.default_rng(4).normal(size=(60, 3)), columns=list("abc"))
LABELLED.index = [f"house {i}" for i in range(60)]
PRICES = (3 * LABELLED["a"] + LABELLED["b"] ** 2 + 5).to_numpy()


def labelled(kind):
    objective = "regression" if kind == "exact" else "poisson"
    model = LGBMRegressor(n_estimators=3, min_child_samples=5, objective=objective, verbose=-1)
    return model.fit(LABELLED, PRICES)


@pytest.mark.parametrize("kind", ["exact", "additive"])
def test_labels_of_training_rows_must_be_those_of_the_file(kind, tmp_path):
    """Rows in the right order under labels that a file turned round: every answer would name other rows."""
    model, path = labelled(kind), tmp_path / "e.npz"
    explainer = axil.Explainer(model, LABELLED, PRICES)
    assert explainer.kind == kind
    explainer.save(path)
    assert (
        axil.load(path, model, X_train=LABELLED).similar(LABELLED[:1], 1)["row"].iloc[0]
        == "house 0"
    )
    archive_file.write(tmp_path / "turned.npz", *parts_of(path, index=explainer.index[::-1]))
    with pytest.raises(
        InputError, match=r"Row 0 of X_train has the label 'house 0', and .* says 'house 59'"
    ):
        axil.load(tmp_path / "turned.npz", model, X_train=LABELLED)
    assert (
        axil.load(path, model, X_train=LABELLED.reset_index(drop=True), index=LABELLED.index).kind
        == kind
    )
    assert axil.load(path, model, X_train=LABELLED.to_numpy()).kind == kind  # which has no labels
    with pytest.raises(InputError, match="where it was made with index="):
        axil.load(path, model, X_train=LABELLED.reset_index(drop=True))
    with pytest.raises(InputError, match="which is not given"):
        axil.load(path, model, index=LABELLED.index)
    if kind == "exact":
        dated = axil.Explainer(
            model,
            LABELLED,
            PRICES,
            index=np.arange("2011-01-01", "2011-03-02", dtype="datetime64[D]"),
        )
        dated.save(tmp_path / "dated.npz")
        days = LABELLED.set_axis(pd.date_range("2011-01-01", periods=60))
        assert (
            axil.load(tmp_path / "dated.npz", model, X_train=days).index.dtype.kind == "M"
        )  # in another unit


def parts_of(path, index):
    """Header, labels and arrays of a file, to be written again by who changed them: the digest is made anew."""
    file = archive_file.read(path, limits_of(None, None).budget)
    header = {
        name: value for name, value in file.header.items() if name not in ("format", "version")
    }
    return header, np.asarray(index), file.arrays


@pytest.mark.parametrize("kind", ["exact", "additive"])
def test_a_signed_file(kind, tmp_path):
    model, path, key = labelled(kind), tmp_path / "e.npz", b"a secret of 32 bytes, or nearly so"
    explainer = axil.Explainer(model, LABELLED, PRICES)
    explainer.save(path, key=key)
    np.testing.assert_array_equal(
        axil.load(path, model, key=key)(LABELLED[:3]).predictions,
        explainer(LABELLED[:3]).predictions,
    )
    with pytest.raises(InputError, match=r"is signed. Pass the key"):
        axil.load(path, model)
    for wrong in (b"another", key[:-1]):
        with pytest.raises(InputError, match="does not belong to this key"):
            axil.load(path, model, key=wrong)
    explainer.save(tmp_path / "plain.npz")
    with pytest.raises(InputError, match="is not signed"):
        axil.load(tmp_path / "plain.npz", model, key=key)
    for bad in ("text", b"", 3):
        with pytest.raises(InputError, match=r"key is .*; expected bytes"):
            axil.load(path, model, key=bad)
        with pytest.raises(InputError, match=r"key is .*; expected bytes"):
            explainer.save(tmp_path / "bad.npz", key=bad)
    assert not (tmp_path / "bad.npz").exists()


def test_a_signature_covers_every_entry(tmp_path):
    """Whoever changes an array or the header, with a digest that is right again, cannot sign it."""
    model, path, key = labelled("exact"), tmp_path / "e.npz", b"secret"
    axil.Explainer(model, LABELLED, PRICES).save(path, key=key)
    with np.load(path) as stored:
        whole = {name: stored[name] for name in stored.files}
    header = json.loads(whole.pop("header").tobytes())
    signed = hmac.new(key, digestmod=hashlib.sha256)
    stated = {name: value for name, value in header.items() if name not in ("digest", "signature")}
    signed.update(json.dumps(stated, sort_keys=True).encode())
    for name in sorted(whole):
        signed.update(f"{name} {whole[name].dtype.str} {whole[name].shape}".encode())
        signed.update(np.ascontiguousarray(whole[name]).tobytes())
    assert header["signature"] == signed.hexdigest()
    for name in [*whole, "header"]:
        changed, stated_now = dict(whole), dict(stated)
        if name == "header":
            stated_now["prepared"] = not stated["prepared"]
        else:
            raw = bytearray(np.ascontiguousarray(whole[name]).tobytes())
            if not raw:
                continue
            raw[-1] ^= 1
            changed[name] = np.frombuffer(bytes(raw), dtype=whole[name].dtype).reshape(
                whole[name].shape
            )
        stated_now |= {
            "digest": archive_file.digest(stated_now, changed),
            "signature": header["signature"],
        }
        packed = np.frombuffer(json.dumps(stated_now).encode(), dtype=np.uint8)
        np.savez(tmp_path / "forged.npz", **changed, header=packed)
        with pytest.raises(InputError, match="does not belong to this key"):
            axil.load(tmp_path / "forged.npz", model, key=key)
