"""Print what the release on GitHub says: the page of release notes, or without one the section of the changelog."""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.versions import ROOT, headings

PAGES = "https://mcpca.readthedocs.io/en/latest"


def notes(root: Path = ROOT) -> str:
    """Return the notes of the newest version, with links that work from anywhere."""
    newest, *_ = headings(root)
    page = root / "docs" / f"release-notes-{newest.version}.md"
    if page.exists():
        _, _, text = page.read_text(encoding="utf-8").partition("\n")
    else:
        _, _, later = (root / "CHANGELOG.md").read_text(encoding="utf-8").partition(f"## {newest.version} ")
        _, _, section = later.partition("\n")
        text = re.split(r"^## ", section, maxsplit=1, flags=re.MULTILINE)[0]
    return re.sub(r"\]\((?!https?://)([\w./-]+)\.md(#[^)]*)?\)", rf"]({PAGES}/\1.html\2)", text).strip() + "\n"


if __name__ == "__main__":
    print(notes(), end="")
