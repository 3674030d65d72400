"""Count what the style of the project avoids, package by package, and keep the counts from rising.

    python scripts/style_budgets.py                              # today's counts, with the budgets that are exceeded
    python scripts/style_budgets.py --list vague_names axil/cli  # the places of one measure in one package
    python scripts/style_budgets.py --lower                      # write today's counts as the new budgets

tests/style_budgets.csv has the budgets and tests/test_style.py compares. ``--lower`` also follows modules that move to another
package: a package may take over what another one loses. It refuses if the total of a measure has risen.
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUDGETS = ROOT / "tests" / "style_budgets.csv"
FOLDERS = ("src/axil", "tests", "scripts", "benchmarks", "experiments", "examples")
MOST_STATEMENTS = 30

VAGUE_NAMES = re.compile(
    "about|asked|each|found|given|gone|held|here|it|kept|known|left|made|meant|one|others?|own|part"
    "|same|seen|served|shown|such|taken|that|there|these|things?|this|those|wanted|what|which"
)

#: What the manual, docstrings and messages say no more, as a regular expression, and what they say instead.
TERMS = {
    r"push|pushes|pushed": "contribution",
    r"splits (are )?(kept|held)|(structure|splits) held( fixed)?": "with the tree structure fixed",
    r"(pattern|ranks) held|held fixed": "active set fixed, fixed",
    r"prove|proves|proved|proven|proofs?": "verify, verified, verification",
    r"leaf space": "leaf matrix",
    r"sweeps?": "backward pass",
    r"ways": "algorithms",
    r"drawn? again|(rows|trees) (are |were )?drawn|(?<!out[- ]of[- ])bags?": "sampled rows, in_bag",
    r"bends?|pulls?(?! request)|lightest": "hessian, negative gradient, min_hessian",
    r"smooth loss|smooth losses": "gradient boosting with a loss",
    r"(?<!--)quer(y|ies)(?! file)(?!,)": "explained row",
    r"questions?": "method",
    r"alarms?": "uncertainty rank",
    r"lonely": "singleton",
    r"fits? without (a |each |some |single |the |these |those )?(rows?|it|them|folds?)": (
        "leave-one-out fit, refit without"
    ),
    r"likeness(es)?": "similarity",
    r"as people read (it|them)": "in the user's units",
}
OLD_TERM = re.compile(rf"\b({'|'.join(TERMS)})\b", re.IGNORECASE)

#: Words of `TERMS` that names of functions, classes, variables and modules had, and what they say.
OLD_NAME_WORDS = {
    "push": "contribution",
    "pushes": "contributions",
    "pushed": "contributed",
    "proof": "verification",
    "proven": "verified",
    "prove": "verify",
    "sweep": "backward_pass",
    "sweeps": "backward_passes",
    "bags": "in_bag, sampled_rows",
    "alarm": "uncertainty_rank",
    "lonely": "singleton",
    "likeness": "similarity",
}

#: Rules of ruff with more offenders than a list of exceptions could name; pyproject.toml leaves them to this script.
RUFF_RULES = {
    "long_lines": ["E501"],
    "any_arguments": ["ANN401"],
    "docstring_rules": ["D1", "D205", "D209", "D210", "D301", "D400", "D401", "D403", "D404"],
    "complexity_rules": ["C901", "PLR0911", "PLR0912", "PLR0913", "PLR0915", "PLR0917", "PLR1704"],
}


@dataclass(frozen=True)
class Place:
    """One occurrence of what a measure counts."""

    path: Path
    line: int
    text: str

    @property
    def package(self) -> str:
        """The folder below src, tests or the root; all pages of the manual are the package docs."""
        parts = self.path.relative_to(ROOT).parts
        if self.path.suffix == ".md":
            return "docs"
        if parts[0] == "src":
            parts = parts[1:]
        depth = 2 if parts[0] in ("axil", "tests") else 1
        return "/".join(parts[:-1][:depth])

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.text}"


@dataclass(frozen=True)
class Measure:
    """A count of the syntax tree: its places as pairs of line and text, and how to lower it."""

    places: Callable[[ast.Module], Iterator[tuple[int, str]]]
    advice: str
    of_product_only: bool = False


def vague_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield assigned names and parameters that do not say what they hold."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        else:
            continue
        if VAGUE_NAMES.fullmatch(name.strip("_")):
            yield node.lineno, name


def packed_assignments(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield assignments of one tuple to another, except for swaps."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
            continue
        target = node.targets[0]
        if not isinstance(target, ast.Tuple):
            continue
        names = [ast.unparse(element) for element in target.elts]
        values = [ast.unparse(element) for element in node.value.elts]
        if sorted(names) != sorted(values):
            yield node.lineno, ", ".join(names)


def conditional_expressions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield every ``a if condition else b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp):
            yield node.lineno, ast.unparse(node)


def any_types(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield every use of ``Any``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "Any":
            yield node.lineno, "Any"


def long_functions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield functions of more than MOST_STATEMENTS statements; those of inner functions count."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            n_statements = sum(isinstance(inner, ast.stmt) for inner in ast.walk(node)) - 1
            if n_statements > MOST_STATEMENTS:
                yield node.lineno, f"{node.name}: {n_statements} statements"


def private_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield private names of other modules: attributes that this module does not define, and imports."""
    defined = names_defined(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in defined:
            if not isinstance(node.value, ast.Name) or node.value.id not in ("self", "cls"):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("axil", "tests")):
            for alias in node.names:
                if is_private(alias.name) and alias.name != "_core":
                    yield node.lineno, f"{node.module}.{alias.name}"


def is_private(name: str) -> bool:
    """Return whether a name begins with one underscore; `__len__` and `_repr_html_` are hooks."""
    is_hidden = re.fullmatch(r"_[^_](.*[^_])?", name) is not None
    return is_hidden and name not in ("_asdict", "_replace", "_fields")


def names_defined(tree: ast.Module) -> set[str]:
    """Return the names of functions, classes, variables and attributes of self that the module defines."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and is_set_on_self(node):
            names.add(node.attr)
    return names


def is_set_on_self(node: ast.Attribute) -> bool:
    """Return whether an attribute is the target of ``self.attribute = ...``."""
    return isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"


def old_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield defined names with a word of `OLD_NAME_WORDS`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        else:
            continue
        if has_old_word(name):
            yield node.lineno, name


def has_old_word(name: str) -> bool:
    """Return whether a name in snake case or camel case has a word of `OLD_NAME_WORDS`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_")
    return not OLD_NAME_WORDS.keys().isdisjoint(words)


def old_terms(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the words of `TERMS` in docstrings and messages; code between backticks does not count."""
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and " " in node.value.strip():
            yield from old_terms_of_text(node.value, node.lineno)


def old_terms_of_text(text: str, first_line: int = 1) -> Iterator[tuple[int, str]]:
    """Yield the words of `TERMS` in a text outside of code, with the term to write instead."""
    fences = re.sub(r"```.*?```", lambda code: "\n" * code[0].count("\n"), text, flags=re.DOTALL)
    prose = re.sub(r"`[^`\n]*`|\]\([^)\n]*\)", "", fences)
    for match in OLD_TERM.finditer(prose):
        line = first_line + prose.count("\n", 0, match.start())
        yield line, f"{match[0]!r}: write {term_instead(match[0])!r}"


def term_instead(word: str) -> str:
    """Return what to write instead of a word of `TERMS`."""
    for pattern, term in TERMS.items():
        if re.fullmatch(pattern, word, re.IGNORECASE):
            return term
    raise KeyError(word)


MEASURES = {
    "vague_names": Measure(vague_names, "name the type of thing: leaf_values, row_weights"),
    "packed_assignments": Measure(packed_assignments, "one statement per value"),
    "conditional_expressions": Measure(conditional_expressions, "use if and else statements"),
    "any_types": Measure(any_types, "a class, a Protocol or an alias; Any is for foreign objects"),
    "long_functions": Measure(long_functions, f"at most {MOST_STATEMENTS} statements"),
    "private_names": Measure(private_names, "ask through a public name, or make the name public"),
    "old_names": Measure(old_names, "see OLD_NAME_WORDS in this script for the words to use"),
    "old_terms": Measure(old_terms, "use the terms of the field, see TERMS in this script", True),
}
ADVICE = {name: measure.advice for name, measure in MEASURES.items()} | {
    "long_lines": "at most 100 columns",
    "any_arguments": "annotate with a type instead of Any",
    "docstring_rules": "numpydoc, with a summary in the imperative",
    "complexity_rules": "fewer branches, returns, statements or parameters",
}


def places_of_syntax() -> dict[str, list[Place]]:
    """Return the places of every measure of syntax trees, and of old terms in the pages of the manual."""
    places: dict[str, list[Place]] = {name: [] for name in MEASURES}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            if has_old_word(path.stem):
                places["old_names"].append(Place(path, 1, path.stem))
            for name, measure in MEASURES.items():
                if folder == "src/axil" or not measure.of_product_only:
                    places[name] += [Place(path, line, text) for line, text in measure.places(tree)]
    for page in [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]:
        occurrences = old_terms_of_text(page.read_text(encoding="utf-8"))
        places["old_terms"] += [Place(page, line, text) for line, text in occurrences]
    return places


def places_of_ruff() -> dict[str, list[Place]]:
    """Return the places of every measure that ruff takes; nothing where ruff is not installed."""
    if find_spec("ruff") is None:
        return {}
    rules = [rule for rules in RUFF_RULES.values() for rule in rules]
    command = [sys.executable, "-m", "ruff", "check", "--exit-zero", "--output-format=json"]
    command += ["--config=lint.pycodestyle.max-line-length=100", f"--select={','.join(rules)}"]
    output = subprocess.check_output([*command, *FOLDERS], cwd=ROOT, text=True)
    places: dict[str, list[Place]] = {name: [] for name in RUFF_RULES}
    for finding in json.loads(output):
        path = Path(finding["filename"])
        if path.suffix == ".py":
            text = f"{finding['code']} {finding['message']}"
            place = Place(path, finding["location"]["row"], text)
            places[measure_of_rule(finding["code"])].append(place)
    return places


def measure_of_rule(code: str) -> str:
    """Return the measure that counts a rule of ruff."""
    for name, rules in RUFF_RULES.items():
        if code.startswith(tuple(rules)):
            return name
    raise KeyError(code)


def counts_of(places: list[Place]) -> Counter[str]:
    """Return the number of places per package."""
    return Counter(place.package for place in places)


def read_budgets() -> dict[str, dict[str, int]]:
    """Return the budget of every measure and package; a package that is not listed has none."""
    budgets: dict[str, dict[str, int]] = {}
    with BUDGETS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            package = row.pop("package")
            for name, count in row.items():
                budgets.setdefault(name, {})[package] = int(count)
    return budgets


def write_budgets(counts: dict[str, Counter[str]]) -> None:
    """Write the counts, one line per package."""
    packages = sorted({package for count in counts.values() for package in count})
    with BUDGETS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["package", *counts])
        for package in packages:
            writer.writerow([package, *(count[package] for count in counts.values())])


def excesses(name: str, places: list[Place]) -> list[str]:
    """Return a line for each package whose count of a measure is above its budget, and its first places."""
    budget = read_budgets().get(name, {})
    lines = []
    for package, count in sorted(counts_of(places).items()):
        allowed = budget.get(package, 0)
        if count > allowed:
            lines.append(f"{name} in {package}: {count}, and the budget is {allowed}")
    if lines:
        lines.append(f"How to lower it: {ADVICE[name]}.")
        lines.append(f"The places: python scripts/style_budgets.py --list {name} PACKAGE")
        lines.append("A module that moved: python scripts/style_budgets.py --lower")
    return lines


def lower(places: dict[str, list[Place]]) -> int:
    """Write today's counts as budgets, unless a total has risen; return the exit status."""
    counts = {name: counts_of(places[name]) for name in places}
    budgets = read_budgets() if BUDGETS.exists() else {}
    risen = []
    for name, count in counts.items():
        before = sum(budgets[name].values()) if name in budgets else count.total()
        if count.total() > before:
            risen.append(f"{name}: {count.total()}, and the budgets sum to {before}")
    if risen:
        print("These totals have risen; lower them first:", *risen, sep="\n")
        return 1
    write_budgets(counts)
    return 0


def report(places: dict[str, list[Place]]) -> int:
    """Print the totals and what is above its budget; return the exit status."""
    exceeded = []
    for name, found_places in places.items():
        print(f"{name:25}{len(found_places):6}")
        exceeded += excesses(name, found_places)
    if exceeded:
        print(*exceeded, sep="\n")
        return 1
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lower", action="store_true", help="write today's counts as budgets")
    parser.add_argument("--list", nargs=2, metavar=("MEASURE", "PACKAGE"), help="print the places")
    arguments = parser.parse_args()
    places = places_of_syntax() | places_of_ruff()
    if arguments.list:
        name, package = arguments.list
        print(*(place for place in places[name] if place.package == package), sep="\n")
        return 0
    if arguments.lower:
        if not places.keys() >= RUFF_RULES.keys():
            print("ruff is needed to count: pip install axil[lint]")
            return 1
        return lower(places)
    return report(places)


if __name__ == "__main__":
    sys.exit(main())
