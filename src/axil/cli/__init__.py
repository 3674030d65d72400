"""The command line: `axil demo`, `axil explain`, `axil report` and the others of `arguments`."""

from axil.cli.program import main

__all__ = ["main"]
