"""The command line: `axil demo`, `axil explain`, `axil check`, `axil blame` and `axil remove`."""

from axil.cli.program import main

__all__ = ["main"]
