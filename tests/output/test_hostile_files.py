"""Bit flips in saved explainers: each is refused or changes nothing; none crashes, hangs or takes memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="the limit of memory is set by what /proc says"
)
@pytest.mark.parametrize("n", [25, pytest.param(2000, marks=pytest.mark.slow)])
def test_bit_flips_are_refused_or_change_nothing(n, tmp_path):
    paths = os.pathsep.join([str(HERE), str(HERE / "adapters"), *sys.path])
    done = subprocess.run(
        [sys.executable, str(HERE / "hostile_files.py"), str(tmp_path), str(n)],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "PYTHONPATH": paths},
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"{lines[-1:]} {done.stderr[-3000:]}"
    assert len(lines) == n
    assert {line.split()[-1] for line in lines} <= {"refused", "same"}
    assert sum(line.endswith("refused") for line in lines) > n // 2
