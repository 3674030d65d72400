"""`python -m axil` is the command `axil`."""

import sys

from axil.cli import main

if __name__ == "__main__":
    sys.exit(main())
