"""Run the fuzzer: python -m tests.fuzz --n 5000 --jobs 2."""

import sys

from tests.fuzz.trials import main

if __name__ == "__main__":
    sys.exit(main())
