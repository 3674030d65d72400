"""The command line: `axil explain`, `axil report` and the other commands of `commands`."""

from axil.cli.program import main

__all__ = ["main"]
