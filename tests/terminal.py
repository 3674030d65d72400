"""A screen that somebody looks at."""

import io


class Terminal(io.StringIO):
    """Text that says it is a terminal."""

    def isatty(self):
        return True
