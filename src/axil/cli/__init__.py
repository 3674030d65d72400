"""The command line: `axil demo`, `axil explain`, `axil check` and `axil blame`."""

from axil.cli.program import main

__all__ = ["main"]
