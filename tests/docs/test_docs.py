"""Every block of code in the README and on the pages runs; commands, options, names and links in them exist."""

import builtins
import contextlib
import doctest
import importlib
import inspect
import re
import shlex
import tomllib
import warnings

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from pages import PAGES, ROOT, anchors, blocks, inline_code, links, name_of, prose

import mcpca
from mcpca import MCPCA, analysis, baselines, datasets, plotting, report, tl
from mcpca.datasets import make_contexts

# Blocks that cannot run where tests run: (page, the reason on the page, its first line). They are compiled instead.
NOT_RUN = [("docs/devices.md", "needs JAX", "import jax")]

# What a fence may say; directives of Sphinx ({toctree}, {eval-rst}, ...) and cells run when the pages are built.
LANGUAGES = {"python", "bash", "text", "r"}

PUBLIC = {
    "mcpca": [name for name in mcpca.__all__ if not inspect.ismodule(getattr(mcpca, name))],
    "mcpca.tl": tl.__all__,
    "mcpca.plotting": plotting.__all__,
    "mcpca.report": report.__all__,
    "mcpca.analysis": analysis.__all__,
    "mcpca.datasets": datasets.__all__,
    "mcpca.baselines": baselines.__all__,
}

ids = {"ids": name_of}
with_python = [page for page in PAGES if any(block.language == "python" for block in blocks(page))]


@pytest.mark.parametrize("page", with_python, **ids)
def test_python_on_the_page_runs(page, tmp_path, monkeypatch):
    """Blocks of a page run in one namespace, in a folder of their own, warnings being errors as everywhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MPLBACKEND", raising=False)
    with contextlib.ExitStack() as exits:
        exits.callback(plt.close, "all")
        names = {"__name__": "page", "monkeypatch": monkeypatch, "exits": exits}
        for block in blocks(page):
            if block.language in ("python", "setup"):
                # Lines are those of the page in a traceback.
                code = compile("\n" * (block.line - 1) + block.source, block.page, "exec")
                if not block.not_run:
                    exec(code, names)


def test_only_the_listed_blocks_are_not_run():
    skipped = [(b.page, b.not_run, b.source.splitlines()[0]) for page in PAGES for b in blocks(page) if b.not_run]
    assert skipped == NOT_RUN


def test_fences_say_what_they_hold():
    """A fence without a language, or with another spelling of one, would pass by every test here."""
    odd = [
        (block.page, block.line, block.language)
        for page in PAGES
        for block in blocks(page)
        if block.language not in LANGUAGES | {"setup"} and not re.match(r"\{[\w-]+\}", block.language)
    ]
    assert odd == []


def test_pages_with_cells_say_so():
    """A {code-cell} is executed only on a page with the header of a notebook."""
    for page in PAGES:
        if any(block.language.startswith("{code-cell}") for block in blocks(page)):
            assert page.read_text(encoding="utf-8").startswith("---\nfile_format: mystnb\n"), page


# Commands


def commands():
    """Yield (page, words) for each command in blocks of shell and in inline code."""
    for page in PAGES:
        lines = [line for block in blocks(page) if block.language == "bash" for line in block.source.splitlines()]
        first = r"(?:\w+=\S+ )*(?:make|mcpca|python|pip install)(?: |$)"
        lines += [span for span in inline_code(page) if re.match(first, span) and "..." not in span]
        for line in lines:
            words = shlex.split(line, comments=True)
            while words and re.match(r"^[A-Z_]+=", words[0]):  # environment variables
                words.pop(0)
            if words:
                yield name_of(page), words


def help_of(words, capsys):
    """The help of ``mcpca COMMAND`` or ``python -m MODULE``; the source of ``python FILE``, which has its options."""
    if words[0] == "mcpca":
        main, arguments = importlib.import_module("mcpca.cli").main, words[1:2]
    elif words[1] == "-m" and words[2].startswith("mcpca"):
        main, arguments = importlib.import_module(words[2]).main, []
    else:
        return (ROOT / words[1]).read_text(encoding="utf-8")
    with contextlib.suppress(SystemExit):
        assert main([*arguments, "--help"]) in (0, None)
    return capsys.readouterr().out


def test_commands_and_their_options_exist(capsys):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    seen = set()
    for page, words in commands():
        seen.add(words[0])
        if words[0] == "make":
            assert {w for w in words[1:] if "=" not in w} <= targets, (page, words)
        elif words[0] in ("python", "mcpca"):
            text = help_of(words, capsys)
            options = [w.split("=")[0] for w in words if w.startswith("--")]
            assert [o for o in options if o not in text] == [], (page, words)
            assert not text.startswith("usage: mcpca COMMAND") or len(words) == 1, (page, words)
        else:
            assert words[:2] == ["pip", "install"], (page, words)
    assert seen == {"make", "mcpca", "pip", "python"}


def test_extras_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(project["optional-dependencies"])
    named = {
        extra.strip()
        for page in PAGES
        for group in re.findall(r"(?:mcpca|'?\.)\[([a-z, -]+)\]", page.read_text(encoding="utf-8"))
        for extra in group.split(",")
    }
    assert named
    assert named <= extras


# Names


@pytest.fixture(scope="module")
def fitted():
    truth = make_contexts(5, 8, 2, n_samples=50, noise=0.1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = pd.DataFrame(truth.X, columns=list("abcdefgh"))
        return MCPCA(2, solver="ml", random_state=0).partial_fit(rows, truth.y)


def snippets(page):
    return inline_code(page) + [b.source for b in blocks(page) if b.language == "python" or "code-cell" in b.language]


@pytest.mark.parametrize("page", PAGES, **ids)
def test_names_on_the_page_exist(page, fitted):
    """What prose and code call ``mcpca.NAME``, ``model.NAME`` or ``from mcpca import NAME`` is there."""
    for text in snippets(page):
        for dotted in re.findall(r"(?<![\w./\"'-])mcpca(?:\.[A-Za-z_]\w*)+", text):
            resolve(dotted)
        for module, group in re.findall(r"from (mcpca[\w.]*) import ([\w, ]+)", text):
            for name in group.split(","):
                resolve(f"{module}.{name.strip()}")
        for name in re.findall(r"(?<![\w.\"'])model\.(?!mcpca\b)([a-z]\w*)", text):  # model.mcpca is a file
            assert hasattr(fitted, name), f"model.{name}"


def resolve(dotted):
    """Import a dotted name, whether it ends in modules or in their contents."""
    parts = dotted.split(".")
    found = importlib.import_module(parts[0])
    for i, part in enumerate(parts[1:], start=2):
        if not hasattr(found, part):
            importlib.import_module(".".join(parts[:i]))
        found = getattr(found, part)


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_in_the_reference(module):
    """As an entry of autodoc, not only as a word."""
    documented = set()
    for page in (ROOT / "docs" / "api").glob("*.md"):
        current = None
        for line in page.read_text(encoding="utf-8").splitlines():
            if match := re.match(r"\.\. currentmodule:: (\S+)", line):
                current = match[1]
            elif match := re.match(r"\.\. (?:auto(?:class|function|exception|data)|py:data):: (\S+)", line):
                documented.add((current, match[1]))
    assert {(module, name) for name in PUBLIC[module]} == {pair for pair in documented if pair[0] == module}


def test_every_method_of_the_estimator_is_in_the_reference():
    """Those that are ours, wherever they are inherited from; scikit-learn has its own reference."""

    def is_ours(name):
        found = inspect.getattr_static(MCPCA, name)
        found = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        return not name.startswith("_") and getattr(found, "__module__", "").startswith("mcpca.")

    page = (ROOT / "docs" / "api" / "estimator.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\s*\.\. auto(?:method|property):: (?:MCPCA\.)?(\w+)$", page, re.MULTILINE)
    assert sorted(documented) == [name for name in dir(MCPCA) if is_ours(name)]


def test_every_picture_is_in_the_gallery():
    cells = [b.source for b in blocks(ROOT / "docs" / "gallery.md") if "code-cell" in b.language]
    called = {name for cell in cells for name in re.findall(r"^(plot_\w+)\(", cell, re.MULTILINE)}
    assert called == set(plotting.__all__)


def documented_objects():
    """Public classes and functions, and public methods of the classes."""
    for module, names in PUBLIC.items():
        for name in names:
            found = getattr(importlib.import_module(module), name)
            if inspect.isclass(found) or inspect.isfunction(found):
                yield f"{module}.{name}", found


def test_examples_in_docstrings_hold():
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for name, found in documented_objects():
        for test in finder.find(found, name, module=False, globs={"__builtins__": builtins}):
            runner.run(test)
            plt.close("all")  # other tests ask that no picture stays open
    result = runner.summarize(verbose=False)
    assert result.attempted > 10
    assert result.failed == 0


def test_public_names_have_docstrings():
    bare = [name for name, found in documented_objects() if not inspect.getdoc(found)]
    assert bare == []


# Links


@pytest.mark.parametrize("page", PAGES, **ids)
def test_links_lead_somewhere(page):
    """Sphinx checks the built pages; this, what the repository's web page shows."""
    for target in links(page):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        aim = (page.parent / path).resolve() if path else page
        assert aim.exists(), target
        assert not anchor or anchor in anchors(aim), target


def test_pages_speak_of_no_machine():
    for page in PAGES:
        assert not re.search(r"/(?:home|tmp|root|work)/", prose(page)), page
