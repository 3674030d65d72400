import pytest

from axil.errors import InputError
from axil.inputs import as_bytes
from axil.memory import Budget, free_memory, in_words


@pytest.mark.parametrize(
    ("given", "expected"),
    [(1000, 1000), ("2GiB", 2 << 30), ("500 MB", 500_000_000), ("1.5kib", 1536), ("7 B", 7), (1e9, 10**9)],
)
def test_limits_are_read(given, expected):
    assert as_bytes(given) == expected


@pytest.mark.parametrize("given", [0, -5, "lots", "5", "2 GiB!", True, [1]])
def test_bad_limits_are_refused(given):
    with pytest.raises(InputError, match="memory_limit"):
        as_bytes(given)


def test_the_default_is_most_of_what_is_free():
    assert 0 < Budget(None).available < free_memory() * 1.05


def test_a_request_that_does_not_fit_is_refused_in_words():
    Budget(1000).require(1000, "It", "Do less.")
    with pytest.raises(InputError, match=r"It takes 1\.0 KiB, but 1000 bytes is allowed by memory_limit\. Do less\."):
        Budget(1000).require(1024, "It", "Do less.")
    with pytest.raises(InputError, match="is free"):
        Budget(None).require(1 << 60, "It", "Do less.")


def test_sizes_in_words():
    assert [in_words(n) for n in (12, 2048, 3 << 20, 5 << 30, 1 << 50)] == [
        "12 bytes", "2.0 KiB", "3.0 MiB", "5.0 GiB", "1024.0 TiB",
    ]  # fmt: skip
