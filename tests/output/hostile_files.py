"""Loads damaged copies of a saved explainer under a limit of memory; prints one line per outcome. Run by test_hostile_files.

A crash, a hang or an error that is not axil's ends the process, so the last line names the copy.
"""

import resource
import sys
from pathlib import Path

import numpy as np

import axil
from tests.adapters.lightgbm_models import CASES

ROOM = (
    1 << 30
)  # bytes of address space beyond what is mapped before: far less than a wrong size would ask for


def main(folder: Path, n: int) -> None:
    case = CASES["regressor"]()
    explainer = axil.Explainer(case.model, case.X, case.y, n_threads=1)
    explainer.save(folder / "whole")
    data, rng = (folder / "whole").read_bytes(), np.random.default_rng(0)
    expected = explainer(case.X_new).weights
    axil.load(folder / "whole", case.model, n_threads=1)(case.X_new)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + ROOM, mapped + ROOM))
    # Half of the flips go where the structure of the file is: its directory, its headers and the JSON.
    plain = [i for i in range(len(data)) if data[i : i + 2] in (b"PK", b"\x93N", b"{'", b'{"')]
    for i in range(n):
        damaged = bytearray(data)
        at = int(rng.choice(plain) + rng.integers(200) if i % 2 else rng.integers(len(data))) % len(
            data
        )
        damaged[at] ^= 1 << int(rng.integers(8))
        (folder / "damaged").write_bytes(damaged)
        print(i, at, end=" ", flush=True)
        try:
            again = axil.load(folder / "damaged", case.model, n_threads=1, memory_limit="100 MB")
        except axil.InputError:
            print("refused", flush=True)
            continue
        np.testing.assert_array_equal(again(case.X_new).weights, expected)
        print("same", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
