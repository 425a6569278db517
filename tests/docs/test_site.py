"""What readers of the site need, as far as sources tell: pictures in words, one title a page, every page reachable."""

import itertools
import re
import tomllib

import pytest
from pages import PAGES, ROOT, blocks, name_of, prose

DOCS = ROOT / "docs"
SITE = [page for page in PAGES if DOCS in page.parents]
# Pages that have no title of their own: they include another file.
INCLUDED = {"docs/changelog.md"}


def pictures(page):
    """Yield (file, words in its place) for each picture of a page, by Markdown, by a figure or as HTML."""
    text = prose(page)
    for words, file in re.findall(r"!\[([^\]]*)\]\(([^)\s]+)\)", text):
        yield file, words
    for tag in re.findall(r"<img\b[^>]*>", text):
        words = re.search(r'\balt="([^"]*)"', tag)
        yield tag, words[1] if words else ""
    for block in blocks(page):
        if match := re.match(r"\{(?:figure|image)\}\s*(\S+)", block.language):
            words = re.search(r"^:alt:[ ]*(.*)$", block.source, re.MULTILINE)
            yield match[1], words[1] if words else ""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_picture_is_also_told_in_words(page):
    for file, words in pictures(page):
        assert len(words.split()) >= 2, f"{file} has no alternative text: {words!r}"
        assert not re.search(r"\.(?:png|svg|jpe?g)\b", words), f"{file}: {words!r} is the name of a file"


def test_pictures_are_found_however_they_are_written(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text('# A\n\n![two words](a.png)\n\n<img src="b.png">\n\n```{figure} c.png\n:alt: a map\n```\n')
    monkeypatch.setattr("pages.ROOT", tmp_path)
    assert list(pictures(page)) == [("a.png", "two words"), ('<img src="b.png">', ""), ("c.png", "a map")]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_headings_go_down_step_by_step_from_one_title(page):
    if name_of(page) in INCLUDED:
        assert any(block.language.startswith("{include}") for block in blocks(page))
        return
    levels = [len(marks) for marks in re.findall(r"^(#{1,6})[ ]", prose(page), re.MULTILINE)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    jumps = [(above, below) for above, below in itertools.pairwise(levels) if below > above + 1]
    assert jumps == []


def test_every_page_is_reached_from_the_front_page():
    reached, waiting = set(), [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        for block in blocks(page):
            if block.language == "{toctree}":
                entries = [line for line in block.source.split() if not line.startswith(":")]
                options = {"1", "2"}  # of maxdepth
                targets = [(page.parent / f"{entry}.md").resolve() for entry in entries if entry not in options]
                assert [target for target in targets if not target.is_file()] == []
                waiting += [target for target in targets if target not in reached]
    assert [name_of(page) for page in SITE if page not in reached] == []


def test_claims_have_a_command_and_a_date():
    """Each line of the tables of claims ends in a command, or in "the same", and the day of the last measurement."""
    lines = re.findall(r"^\|(.+)\|$", prose(DOCS / "claims.md"), re.MULTILINE)
    rows = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    dated = [row for row in rows if len(row) == 4 and re.fullmatch(r"\d{4}-\d{2}-\d{2}", row[-1])]
    assert len(dated) > 30
    for claim, number, command, _ in dated:
        assert command == "the same" or re.match(r"`(?:\w+=\S+ )?(?:python|make) ", command), claim
        assert re.search(r"\d", number), claim
    tables = {"claim", "---", "shape (features, contexts, rank)"}
    others = [row[0] for row in rows if row not in dated and row[0] not in tables and len(row) == 4]
    assert len(others) == 7  # the shapes, whose commands and dates are below their table


def test_what_conf_loads_is_installed_by_the_extra():
    conf = (DOCS / "conf.py").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lists = [*project["project"]["optional-dependencies"].items(), *project.get("dependency-groups", {}).items()]
    wanted = [one for name, many in lists if name == "docs" for one in many if isinstance(one, str)]
    required = {re.match(r"[\w-]+", one)[0].replace("-", "_") for one in wanted}
    loaded = re.search(r"^extensions = \[(.*?)\]$", conf, re.MULTILINE | re.DOTALL)[1]
    names = [name for name in re.findall(r'"([\w.]+)"', loaded) if not name.startswith("sphinx.")]
    assert "sphinx_copybutton" in names
    assert [name for name in names if name not in required] == []
