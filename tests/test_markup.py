"""Small tables for notebooks."""

from axil.markup import table


def test_every_cell_is_escaped():
    html = table("a < b", [["<i>", 1234567.0, None, '"']], ["<th>", "x"])
    assert html.count("<tr>") == 2
    for text in ("a &lt; b", "&lt;i&gt;", "&lt;th&gt;", "&quot;", "1.23457e+06", "None"):
        assert text in html
    assert "<i>" not in html


def test_a_table_without_heads():
    assert "<thead>" not in table("found", [("leaf values", "equal")])
