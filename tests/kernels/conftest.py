"""Back ends that the tests of the kernels go through."""

from __future__ import annotations

from typing import Any

import pytest

from axil.kernels.cpu import Cpu
from tests.devices import GPU


@pytest.fixture(scope="module", params=[pytest.param(Cpu, id="cpu"), *GPU])
def backend(request: pytest.FixtureRequest) -> Any:
    """Makes a back end of so many threads; every one of them goes through all that follows."""
    return request.param
