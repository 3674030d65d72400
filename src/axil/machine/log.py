"""The logger ``axil``: what axil decided, and how long it took.

Verified models, answers and stored arrays have the level INFO, algorithms and devices DEBUG. So a
program that configures no logging sees none of them.
"""

import logging

logger = logging.getLogger("axil")
logger.addHandler(logging.NullHandler())
