import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from lightgbm import LGBMRegressor

import axil
from axil.errors import InputError
from axil.inputs import as_bytes
from axil.machine.memory import Budget, free_memory, in_words
from axil.methods.method import verified_model


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (1000, 1000),
        ("2GiB", 2 << 30),
        ("500 MB", 500_000_000),
        ("1.5kib", 1536),
        ("7 B", 7),
        (1e9, 10**9),
        ("2000000000", 2 * 10**9),
    ],
)
def test_limits_are_read(given, expected):
    assert as_bytes(given) == expected


@pytest.mark.parametrize("given", [0, -5, "lots", "-5", "2 GiB!", True, [1]])
def test_bad_limits_are_refused(given):
    with pytest.raises(InputError, match="memory_limit"):
        as_bytes(given)


def test_the_default_is_most_of_what_is_free():
    assert 0 < Budget(None).available < free_memory() * 1.05


def test_a_request_that_does_not_fit_is_refused_in_words():
    Budget(1000).require(1000, "It", "Do less.")
    with pytest.raises(
        InputError,
        match=r"It would take 1\.0 KiB, but 1000 bytes is allowed by memory_limit\. Do less\.",
    ):
        Budget(1000).require(1024, "It", "Do less.")
    with pytest.raises(InputError, match="is free"):
        Budget(None).require(1 << 60, "It", "Do less.")


def test_sizes_in_words():
    assert [in_words(n) for n in (12, 2048, 3 << 20, 5 << 30, 1 << 50)] == [
        "12 bytes", "2.0 KiB", "3.0 MiB", "5.0 GiB", "1024.0 TiB",
    ]  # fmt: skip


def test_scratch_keeps_leaf_numbers_in_a_file_that_leaves_nothing_behind(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(500, 4)), rng.normal(size=500)
    for parameters in ({}, {"subsample": 0.5, "subsample_freq": 1}):
        model = LGBMRegressor(n_estimators=20, verbose=-1, n_jobs=1, **parameters).fit(X, y)
        inside = axil.Explainer(model, X, y)
        outside = axil.Explainer(model, X, y, scratch=tmp_path, memory_limit="1 MiB")
        assert not list(tmp_path.iterdir())  # the file has no name
        cells = verified_model(outside).engines[0].structure.cells
        assert isinstance(cells.base, np.memmap) or isinstance(
            getattr(cells.base, "base", None), np.memmap
        )
        np.testing.assert_array_equal(outside(X[:5]).weights, inside(X[:5]).weights)
    with pytest.raises(InputError, match=r"leaf numbers .* would take .* scratch=directory"):
        axil.Explainer(model, X, y, memory_limit=1000)


@pytest.mark.parametrize("given", ["no/such/place", 5])
def test_a_bad_scratch_directory_is_refused(given):
    with pytest.raises(InputError, match="scratch is"):
        axil.Explainer(LGBMRegressor(), np.zeros((2, 1)), np.zeros(2), scratch=given)


PEAK = """
import sys
import numpy as np
from pathlib import Path
import lightgbm as lgb
import axil

def resident(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])

limit, n = int(sys.argv[1]), 60_000
X = np.random.default_rng(0).random((n, 5))
y = X[:, 0] + np.random.default_rng(1).normal(size=n)
model = lgb.train({"verbose": -1, "num_threads": 1}, lgb.Dataset(X, y), 50)
axil.Explainer(model, X, y, n_threads=2)(X[:3])  # whatever is allocated once and for all
for step in ("set up", "explain", "iter", "top", "group", "prepared"):
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = resident("VmRSS")
    if step == "set up":
        explainer = axil.Explainer(model, X, y, n_threads=2, memory_limit=limit)
    elif step == "explain":
        explainer(X[: limit // (8 * n) // 2])
    elif step == "iter":
        for explanation in explainer.iter(X[:300]):
            pass
        del explanation
    elif step == "top":
        explainer.top(X[:1000], 5)
    elif step == "group":
        explainer.group(X[:300], np.arange(n) % 7)
    else:
        explainer.precompute().top(X[:1000], 5)
    print(step, resident("VmHWM") - before)
"""


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="peak memory is read from /proc"
)
def test_peak_memory_stays_within_the_limit():
    """In a process of its own. Buffers of the kernels and of the allocator may add a tenth of the limit to what is counted."""
    limit = 36 << 20
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(limit)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    peaks = {
        step: int(taken)
        for step, taken in (line.rsplit(" ", 1) for line in done.stdout.splitlines())
    }
    assert set(peaks) == {"set up", "explain", "iter", "top", "group", "prepared"}
    assert {step: taken for step, taken in peaks.items() if taken > 1.1 * limit} == {}


TABLES = """
import ctypes
import sys
import numpy as np
from pathlib import Path
import lightgbm as lgb
import axil

def resident(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])

limit, folder, n = int(sys.argv[1]), Path(sys.argv[2]), 20_000
X = np.random.default_rng(0).random((n, 5))
y = X[:, 0] + np.random.default_rng(1).normal(size=n)
model = lgb.train({"verbose": -1, "num_threads": 1}, lgb.Dataset(X, y), 20)
explainer = axil.Explainer(model, X, y, n_threads=2, memory_limit=limit)
asks = {
    "top": lambda m: explainer.top(X[:m], n),
    "group": lambda m: explainer.group(X[:m], np.arange(n)),
    "similar": lambda m: explainer.similar(X[:m], 2000),
    "removal_set": lambda m: explainer.removal(X[:m], k=5000, same_sign=True),
    "removal_top": lambda m: explainer.removal(X[:m], k=5000),
    "removal": lambda m: explainer.removal(X[:m]),
    "pushes": lambda m: explainer.jacobian.gradient_contributions(X[:m]),
    "parquet": lambda m: explainer.write(X[:m], folder / "w.parquet"),
    "zarr": lambda m: explainer.write(X[:m], folder / "w.zarr"),
}
trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)
for name, ask in asks.items():
    ask(2)  # whatever is allocated once and for all
    rows, refused = 640, 0
    while True:
        trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before = resident("VmRSS")
        try:
            answer = ask(rows)
            break
        except axil.InputError as error:
            assert "memory_limit" in str(error)
            rows, refused = rows * 4 // 5, refused + 1
    print(name, refused, resident("VmHWM") - before)
    del answer
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="peak memory is read from /proc"
)
def test_the_answers_own_tables_count(tmp_path):
    """The largest request of each kind that is not refused; see above for the tenth of the limit."""
    limit = 100 << 20
    done = subprocess.run(
        [sys.executable, "-c", TABLES, str(limit), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = {
        name: (int(refused), int(taken))
        for name, refused, taken in map(str.split, done.stdout.splitlines())
    }
    assert len(found) == 9
    assert {name: taken for name, (_, taken) in found.items() if taken > 1.1 * limit} == {}
    assert all(
        found[name][0] for name in ("top", "group", "similar", "removal_set", "removal_top")
    )  # 640 rows do not fit
    assert not any(found[name][0] for name in ("parquet", "zarr"))  # written batch by batch


def test_scratch_space_is_taken_before_it_is_mapped(tmp_path, monkeypatch):
    """A page of a sparse file that finds the disk full would end the process with SIGBUS."""
    taken, memmap = [], np.memmap
    monkeypatch.setattr(
        np,
        "memmap",
        lambda file, *args, **kw: (
            taken.append(os.fstat(file.fileno())) or memmap(file, *args, **kw)
        ),
    )
    for lacking in (False, True):  # systems without the call get zeros written
        if lacking:
            monkeypatch.delattr(os, "posix_fallocate", raising=False)
        array = Budget(None, tmp_path).empty((3, 1 << 20), np.uint8, "It", "Do less.")
        assert taken[-1].st_size == array.nbytes <= 512 * taken[-1].st_blocks


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the call that takes the space")
def test_a_full_scratch_disk_is_said(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(
        InputError,
        match=r"It would take 1\.0 KiB, for which .* has no room: No space left on device",
    ):
        Budget(None, tmp_path).empty((2, 512), np.uint8, "It", "Do less.")
    assert list(tmp_path.iterdir()) == []
