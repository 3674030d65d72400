"""Make docs/page.png: run the example of docs/page.md and take a picture of its page in Chromium."""

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


def main() -> None:
    example = re.findall(r"```python\n(.*?)```", (DOCS / "page.md").read_text(encoding="utf-8"), re.S)[0]
    with tempfile.TemporaryDirectory() as room:
        os.chdir(room)
        exec(compile(example, "docs/page.md", "exec"), {})
        with sync_playwright() as running:
            browser = running.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1360, "height": 1240}, color_scheme="light")
            page.goto(Path("report.html").absolute().as_uri())
            page.wait_for_selector("#rows tbody tr")
            page.locator("#start").select_option("mean")
            taken = page.screenshot()
            browser.close()
        os.chdir(DOCS)
    picture = Image.open(BytesIO(taken)).convert("RGB").quantize(64, dither=Image.Dither.NONE)
    picture.save(DOCS / "page.png", optimize=True)


if __name__ == "__main__":
    main()
