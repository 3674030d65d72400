"""Keep pytest from importing the samples: the checkers read them, and some of their calls are wrong."""

collect_ignore = ["right_calls.py", "wrong_calls.py"]
