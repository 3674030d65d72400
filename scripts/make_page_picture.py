"""Make docs/page.png and docs/report.png: run the examples and take pictures in Chromium."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parent.parent / "docs"


def taken(name: str, file: str, width: int, height: int) -> Image.Image:
    """The picture of a file that the example of docs/NAME.md writes."""
    blocks = re.findall(
        r"```python\n(.*?)```", (DOCS / f"{name}.md").read_text(encoding="utf-8"), re.S
    )
    example = "\n".join(blocks)
    with tempfile.TemporaryDirectory() as room:
        os.chdir(room)
        exec(compile(example, f"docs/{name}.md", "exec"), {})
        with sync_playwright() as running:
            browser = running.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            page = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme="light"
            )
            page.goto(Path(file).absolute().as_uri())
            if name == "plots":
                page.wait_for_selector("#rows tbody tr")
            shot = page.screenshot()
            browser.close()
        os.chdir(DOCS)
    return Image.open(BytesIO(shot)).convert("RGB").quantize(64, dither=Image.Dither.NONE)


def main() -> None:
    taken("plots", "report.html", 1360, 1240).save(DOCS / "page.png", optimize=True)
    taken("prices", "valuations/pages/0000/sale~200.html", 1100, 1500).save(
        DOCS / "report.png", optimize=True
    )


if __name__ == "__main__":
    main()
