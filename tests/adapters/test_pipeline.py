"""Pipelines hand transformed rows to every method of the last step's adapter that takes rows."""

from inspect import signature
from types import FunctionType

import pytest

from axil.adapters.boundary import TAKES_ROWS
from axil.adapters.contract import Adapter, Model, SmootherModel


@pytest.mark.parametrize("contract", [Model, Adapter, SmootherModel])
def test_no_method_that_takes_rows_is_forgotten(contract):
    methods = {
        name: method for name, method in vars(contract).items() if isinstance(method, FunctionType)
    }
    take_rows = {name for name, method in methods.items() if "X" in signature(method).parameters}
    assert take_rows
    assert take_rows <= {*TAKES_ROWS}
