"""What the files of a report say: the tables and the text of its pages, and its search."""

import json
import re
from html.parser import HTMLParser


class Page(HTMLParser):
    """The cells of the table, those of the grids and all text of a page, as a browser reads it."""

    def __init__(self, path):
        super().__init__()
        self.tags = []
        self.words = []
        self.tables = []  # of each the rows, as lists of cells
        self.inside = False
        self.feed(path.read_text(encoding="utf-8"))
        self.cells, *self.grids = self.tables or [[]]
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.inside = True

    def handle_endtag(self, tag):
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data):
        if self.inside:
            self.tables[-1][-1][-1] += data
        elif self.tags and self.tags[-1] != "style":
            self.words.append(data)


def pages(folder):
    return {
        path.name: path.read_text(encoding="utf-8") for path in (folder / "pages").rglob("*.html")
    }


def entries(folder):
    """What the search knows: label -> (file, value, further words)."""
    known = {}
    for path in (folder / "search").glob("*.js"):
        text = re.fullmatch(r"shard\(\d+,(.*)\);\n", path.read_text(encoding="utf-8"))[1]
        for label, number_, name, value, more in json.loads(text):
            file = name
            if name == 0:
                file = label
            known[label] = f"pages/{number_}/{file}.html", value, more
    return known
