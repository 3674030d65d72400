"""The plain English of the source: sentences without a noun stay out of docstrings and comments."""

import ast
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "axil"
DOCUMENTED = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
ANYWHERE = {r"\bso\s+many\b": "say how many of what, by the name of the parameter"}
OPENINGS = {  # of docstrings
    r"(That|Those|These) (of|that)\b": "begin with the noun",
    r"(One|Ones|Some) for each\b": "begin with the noun",
    r"(Likewise|As (above|before|for)|The same (as|by|for|from|in|of|on|with))\b": "name the thing that is the same",
    r"(In which|What|Whom)\b": "begin with a noun phrase that names the thing",
}


@cache
def texts(kind):
    """The docstrings, or the comments, of the source, each with its place."""
    read = docstrings if kind == "docstrings" else comments
    files = sorted(SOURCE.rglob("*.py"))
    return [
        (f"{path.relative_to(SOURCE)}:{line}", text) for path in files for line, text in read(path)
    ]


def docstrings(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text


def comments(path):
    with tokenize.open(path) as file:
        yield from (
            (token.start[0], token.string)
            for token in tokenize.generate_tokens(file.readline)
            if token.type == tokenize.COMMENT
        )


def expect_none(found, advice):
    assert not found, f"{advice}:\n" + "\n".join(f"{place}: {text[:80]!r}" for place, text in found)


@pytest.mark.parametrize(("pattern", "advice"), ANYWHERE.items())
def test_no_sentence_lacks_its_noun(pattern, advice):
    expect_none(
        [one for one in texts("docstrings") + texts("comments") if re.search(pattern, one[1])],
        advice,
    )


@pytest.mark.parametrize(("pattern", "advice"), OPENINGS.items())
def test_docstrings_begin_with_a_noun_or_a_verb(pattern, advice):
    expect_none([one for one in texts("docstrings") if re.match(pattern, one[1])], advice)
