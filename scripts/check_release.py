"""Refuses to release what is not ready: `python scripts/check_release.py v0.1.0` ends with the list of what is missing."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def version_of_the_source() -> str:
    (version,) = re.findall(
        r'^__version__ = "(.+)"$', (ROOT / "src/axil/__init__.py").read_text(encoding="utf-8"), re.M
    )
    return version


def missing(tag: str) -> list[str]:
    """Reasons why this tag cannot be released, in words."""
    version = version_of_the_source()
    reasons = []
    if tag != f"v{version}":
        reasons.append(
            f"the tag is {tag}, src/axil/__init__.py says {version}: tag v{version}, or change the version"
        )
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", changelog, re.M):
        reasons.append(
            f'CHANGELOG.md has no heading "## {version} (year-month-day)": rename "Unreleased"'
        )
    if f"\nversion: {version}\n" not in (ROOT / "CITATION.cff").read_text(encoding="utf-8"):
        reasons.append(f"CITATION.cff lacks the line version: {version}")
    for name in (
        "pyproject.toml",
        "SECURITY.md",
        "recipe/recipe.yaml",
        ".github/ISSUE_TEMPLATE/config.yml",
    ):
        if "axil.example" in (ROOT / name).read_text(encoding="utf-8"):
            reasons.append(
                f"{name} names the stand-in axil.example: give the project's own address"
            )
    return reasons


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python scripts/check_release.py v<version>")
    if reasons := missing(sys.argv[1]):
        sys.exit("\n".join(f"- {reason}" for reason in reasons))
