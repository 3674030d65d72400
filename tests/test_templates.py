"""Templates: every value is escaped, and pages allow their own scripts only."""

import pytest
from jinja2 import UndefinedError

from axil.templates import render


def table(caption, rows, header=()):
    return render("table.html", caption=caption, rows=rows, header=header)


def test_every_cell_is_escaped():
    html = table("a < b", [["<i>", 1234567.0, None, '"']], ["<th>", "x"])
    assert html.count("<tr>") == 2
    for text in ("a &lt; b", "&lt;i&gt;", "&lt;th&gt;", "&#34;", "1.23457e+06", "None"):
        assert text in html
    assert "<i>" not in html


def test_a_table_without_heads():
    assert "<thead>" not in table("comparison", [("leaf values", "equal")])


def test_a_value_that_a_template_needs_must_be_given():
    with pytest.raises(UndefinedError):
        render("table.html", caption="comparison", rows=[])
