"""Markdown pages taken apart: fenced blocks, hidden test code, inline code, links and headings."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
PAGES = [page for page in PAGES if "_build" not in page.parts]

# A fence of at least three backticks up to the same one; or a comment that only the tests read.
_PIECE = re.compile(
    r"^(?P<fence>```+)(?P<language>[^\n`]*)\n(?P<body>.*?)^(?P=fence)[ \t]*$"
    r"|^<!--[ ]test(?P<kind>[ ]setup|:[ ]not[ ]run,[ ][^\n]*?)(?P<hidden>\n.*?)?[ ]?-->$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A piece of code on a page; ``language`` is "setup" for what readers do not see."""

    page: str
    line: int
    language: str
    source: str
    not_run: str = ""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page in order; a block after ``<!-- test: not run, REASON -->`` carries the reason."""
    text, found, reason = page.read_text(encoding="utf-8"), [], ""
    for piece in _PIECE.finditer(text):
        line = text.count("\n", 0, piece.start()) + 2
        if piece["fence"] is not None:
            found.append(Block(name_of(page), line, piece["language"].strip(), piece["body"], reason))
            reason = ""
        elif piece["kind"] == " setup":
            found.append(Block(name_of(page), line, "setup", piece["hidden"].lstrip("\n")))
        else:
            reason = piece["kind"].removeprefix(": not run, ").strip()
    return found


def prose(page: Path) -> str:
    """Return a page without its blocks and hidden code."""
    return _PIECE.sub("", page.read_text(encoding="utf-8"))


def inline_code(page: Path) -> list[str]:
    """Return what stands between single backticks in the prose, with line ends as spaces."""
    return [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose(page))]


def links(page: Path) -> list[str]:
    """Return the targets of links and images in the prose."""
    return re.findall(r"\]\(([^()\s]+)\)", prose(page))


def anchors(page: Path) -> set[str]:
    """Return the anchors that headings get in the repository's web page and in the built one."""
    headings = re.findall(r"^#+[ ]+(.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
