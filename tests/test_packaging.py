"""What pyproject.toml promises: the version, the oldest libraries, the notices of what is compiled in."""

import re
import runpy
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import axil

ROOT = Path(__file__).parent.parent
NOT_PINNED = {
    "torch",
    "docs",
    "lint",
    "test",
    "bench",
    "notebooks",
    "demo",
    "browser",
    "cuda12",
    "cuda13",
}  # extras of tools, or in environments of their own


@pytest.fixture(scope="module")
def project():
    tomllib = pytest.importorskip("tomllib")
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_version_stands_in_one_place(project):
    assert project["dynamic"] == ["version"]
    assert version("axil") == axil.__version__


def test_the_oldest_versions_tested_are_the_lower_bounds(project):
    asked = list(project["dependencies"])
    for name, extra in project["optional-dependencies"].items():
        asked += extra if name not in NOT_PINNED else []
    bounds = {}
    for requirement in map(Requirement, asked):
        if requirement.name != "axil":
            (bound,) = requirement.specifier
            assert bound.operator == ">="
            bounds[requirement.name] = bound.version
    pins = dict(
        re.findall(r"^([\w-]+)==([\d.]+)$", (ROOT / "tests" / "oldest.txt").read_text(), re.M)
    )

    def padded(version):
        return (*map(int, version.split(".")), 0, 0)[:3]

    assert {name: padded(pins[name]) for name in bounds} == {
        name: padded(bound) for name, bound in bounds.items()
    }


def test_notices_of_what_is_compiled_in_go_with_the_wheel(project):
    notices = (ROOT / "THIRD_PARTY.txt").read_text(encoding="utf-8")
    assert "THIRD_PARTY.txt" in project["license-files"]
    for owner, condition in [
        ("Copyright (c) 2022 Wenzel Jakob", "Redistributions in binary form must reproduce"),
        (
            "Copyright (c) 2017 Thibaut Goetghebuer-Planchon",
            "this permission notice shall be included in",
        ),
    ]:
        assert owner in notices
        assert condition in notices


def test_the_recipe_asks_for_what_the_project_asks_for(project):
    recipe = (ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
    assert f'version: "{axil.__version__}"' in recipe
    listed = re.search(r"  run:\n    - python\n((?:    - .+\n)+)", recipe).group(1)
    assert [
        line.removeprefix("    - ").replace(" ", "") for line in listed.splitlines()
    ] == project["dependencies"]


def test_ruff_is_the_same_before_a_commit_as_in_lint(project):
    (pinned,) = [
        name for name in project["optional-dependencies"]["lint"] if name.startswith("ruff")
    ]
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert f"rev: v{pinned.removeprefix('ruff==')}" in hooks


def test_a_release_names_what_is_missing():
    reasons = runpy.run_path(str(ROOT / "scripts" / "check_release.py"))["missing"]("v9.9")
    assert any("the tag is v9.9" in reason for reason in reasons)


def test_workflows_and_pages_name_commands_that_exist():
    """`make X` in workflows, README and CONTRIBUTING, and the commands of the weekly run."""
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    texts = [
        path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml")
    ]
    texts += [
        (ROOT / name).read_text(encoding="utf-8")
        for name in (".ci/run", "README.md", "CONTRIBUTING.md")
    ]
    asked = {
        name
        for text in texts
        for name in re.findall(r"(?:`|^|run: +|    )make ([a-z-]+)", text, re.M)
    }
    listed = [re.search(r"command: \[(.+)\]", text) for text in texts]
    weekly = {name for found in listed if found for name in found[1].split(", ")}
    assert weekly == {"test", "test-slow", "sanitize", "test-plain", "fuzz", "coverage"}
    assert {"test", "lint", "docs"} <= asked
    assert asked | weekly <= known
