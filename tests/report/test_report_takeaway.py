"""What a reader takes away from the report: links, names, pictures, paper. All in a browser."""

import base64
import csv
import io
import json
import re
import struct
from urllib.parse import parse_qsl
from xml.etree import ElementTree

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from browsing import Page

from mcpca import MCPCA
from mcpca.datasets import make_contexts
from mcpca.report import write_report

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '<script>window.harmed = 1</script>"&\u202e'


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    truth = make_contexts(n_contexts=6, n_features=20, n_components=4, n_samples=60, noise=0.2, random_state=0)
    names = np.array([f"tissue {i + 1}" for i in range(5)] + [HOSTILE], dtype=object)
    X = pd.DataFrame(truth.X, columns=[f"gene {j + 1}" for j in range(19)] + [HOSTILE])
    model = MCPCA(4, random_state=0).fit(X, names[truth.y])
    folder = tmp_path_factory.mktemp("takeaway")
    path = write_report(model, folder / "report.html", X=X, y=names[truth.y], title="Six/tissues: <b>")
    return path, model


def back(page, key="mcpc", value="1"):
    page.run("history.back()")
    page.wait(lambda: page.address().get(key) == value)
    page.wait(lambda: page.run("return mcpca.address.current() === location.hash"))


def test_back_restores_what_was_shown(browser, report):
    page = Page(browser, report[0])
    page.set("#row-order", "name")
    page.set("#find-context", "tissue")  # typed: no entry of its own
    page.wait(lambda: page.address().get("find-context") == "tissue")
    rows = page.run("return mcpca.map.view.rows")
    assert len(rows) == 5
    entries = page.run("return history.length")
    page.click_cell(2, 3)
    assert page.address()["mcpc"] == "4"
    page.set("#row-order", "total")
    page.set("#least", 50)
    page.set("#find-context", "")
    page.set("#rows-x", 2)
    assert page.run("return history.length") == entries + 3
    page.wait(lambda: page.address().get("rows-x") == "3")
    back(page, "least", "50")
    assert page.run("return document.getElementById('rows-x').value") == "0"
    back(page, "row-order", "name")
    assert page.text("#least-value") == "all"
    assert page.run("return [...document.querySelectorAll('#row-order, #find-context')].map((e) => e.value)") == [
        "tissue",
        "name",
    ]
    assert page.run("return mcpca.map.view.rows") == rows
    back(page)
    assert page.run("return mcpca.chosen") == {"mcpc": 0, "context": 0, "other": 1}
    assert page.run("return document.getElementById('MCPC-select').value") == "0"
    back(page, "row-order", None)
    assert page.run("return mcpca.map.view.rows") == list(range(6))
    page.run("history.go(3)")
    page.wait(lambda: page.address().get("row-order") == "total")
    page.wait(lambda: page.run("return mcpca.chosen.mcpc") == 3)
    assert page.messages() == []


def test_broken_links_show_the_beginning(browser, report):
    broken = "#mcpc=99&context=two&other=-1&row-order=nothing&least=1000&rows-x=7&scale=%E0%A4&who=me&find-context=tis"
    page = Page(browser, report[0], address=broken)
    assert page.run("return mcpca.chosen") == {"mcpc": 0, "context": 0, "other": 1}
    assert page.run("return mcpca.map.view.rows") == [1, 2, 3, 4, 5]  # without the hostile name, which is first
    # A choice writes what is shown, without what was not understood.
    page.set("#MCPC-select", 2)
    assert page.address() == {"mcpc": "3", "context": "1", "other": "2", "find-context": "tis"}
    page = Page(browser, report[0], address="#mcpc=2&context=3&other=3")
    assert page.run("return mcpca.chosen") == {"mcpc": 1, "context": 2, "other": 3}
    assert page.messages() == []


def test_without_addresses_the_page_works(browser, report):
    page = Page(browser, report[0])
    page.run(
        "for (const name of ['pushState', 'replaceState']) history[name] = () => { throw new DOMException('no') };"
    )
    page.set("#MCPC-select", 2)
    page.set("#find-context", "tissue 2")
    assert page.run("return mcpca.chosen.mcpc") == 2
    assert page.run("return mcpca.map.view.rows") == [2]
    page.run("delete history.pushState; delete history.replaceState")
    assert page.messages() == []


def ask(page, script):
    """The value of a promise."""
    return page.driver.execute_async_script(
        f"const done = arguments[0]; ({script}).then(done, (error) => done('failed: ' + error))"
    )


def drawn(text):
    """An SVG file as an element; it has to be XML."""
    root = ElementTree.fromstring(text.encode())
    assert root.tag == f"{SVG}svg"
    assert not [node.tag for node in root.iter() if node.tag.rpartition("}")[2] in ("script", "image", "foreignObject")]
    assert not [name for node in root.iter() for name in node.attrib if name.startswith("on")]
    return root


def texts(node):
    return ["".join(text.itertext()) for text in node.iter(f"{SVG}text")]


def group(root, name):
    return next(node for node in root.iter(f"{SVG}g") if node.get("id") == name)


def test_the_map_is_saved_as_it_is_sorted(browser, report):
    path, model = report
    page = Page(browser, path, address="#mcpc=1&context=1&other=2&row-order=total&column-order=cluster&find-context=s")
    view = page.run("return mcpca.map.view")
    B = model.corrected_loadings_
    rows = [i for i in np.argsort(-B.sum(axis=1)) if "s" in model.contexts_[i]]
    assert view["rows"] == rows
    root = drawn(page.run("return mcpca.mapSvg()"))
    shown = [HOSTILE.replace("\u202e", "\u27e8U+202E\u27e9")[:39] if i == 0 else model.contexts_[i] for i in rows]
    assert [name.rstrip("\u2026") for name in texts(group(root, "contexts"))] == shown
    assert texts(group(root, "mcpcs")) == [str(j + 1) for j in view["columns"]]
    cells = [node for node in group(root, "cells") if node.tag == f"{SVG}rect"]
    assert len(cells) == len(rows) * 4
    # Numbers in the cells, where there is room for them.
    expected = [float(f"{B[i, j]:.3g}") for i in rows for j in view["columns"]]
    np.testing.assert_allclose([float(text) for text in texts(group(root, "numbers"))], expected, rtol=2e-3)
    # Colours: the darkest cell of a column is its largest loading of all contexts.
    darkness = [-sum(map(int, cell.get("fill")[4:-1].split(","))) for cell in cells]
    table = np.reshape(darkness, (len(rows), 4))
    order = np.argsort(B[rows][:, view["columns"]], axis=0)
    assert (np.diff(np.take_along_axis(table, order, axis=0), axis=0) >= 0).all()
    assert "share of the MCPC's largest" in texts(group(root, "scale"))[1]
    # On white, also where the page is dark.
    page.run("mcpca.setTheme(true)")
    assert ElementTree.tostring(drawn(page.run("return mcpca.mapSvg()"))) == ElementTree.tostring(root)
    assert page.run("return document.documentElement.dataset.theme") == "dark"
    page.run("mcpca.setTheme(false)")
    # Filtered columns are not there.
    page.set("#find-mcpc", "2")
    root = drawn(page.run("return mcpca.mapSvg()"))
    assert texts(group(root, "mcpcs")) == ["2"]
    page.set("#find-mcpc", "gene 7")
    assert "those with gene 7 at a pole" in page.text("#map-count")
    page.set("#find-mcpc", "gene")
    assert "features at a pole that have \u201cgene\u201d in their names" in page.text("#map-count")


def test_every_chart_is_saved_as_vectors_and_as_a_picture(browser, report, tmp_path):
    path, model = report
    page = Page(browser, path, address="#mcpc=2&context=1&other=3&feature=20")
    page.wait(lambda: page.run("return Boolean(document.getElementById('chart-feature'))"))
    charts = page.run("return [...document.querySelectorAll('.chart')].map((c) => c.id)")
    assert {"chart-features", "chart-loadings", "chart-rows", "chart-scree", "chart-feature"} <= set(charts)
    page.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    for chart in charts:
        assert page.run(
            "const b = [...document.getElementById(arguments[0]).parentNode.querySelectorAll('.save-tools button')];"
            "return b.map((e) => e.textContent)",
            chart,
        ) == ["Save SVG", "Save PNG"]
    svg = {}
    for chart in ("chart-features", "chart-compare", "chart-rows"):
        root = drawn(ask(page, f"mcpca.chartSvg(document.getElementById('{chart}'))"))
        assert root.get("width") == "760"
        svg[chart] = texts(root)
    a = model.components_[:, 1]
    names = [model.feature_names_in_[i] for i in np.argsort(-a) if i in np.argsort(-np.abs(a))]
    labels = [text.strip("\u2068\u2069\u2026") for text in svg["chart-features"]]
    plain = [name for name in names if name != HOSTILE]
    assert [label for label in labels if label in plain] == [name for name in plain if name in labels]
    assert len(set(labels) & set(plain)) >= 15
    # The name that would be a script is text, cut as it is on the page.
    assert any(text.strip("\u2068").startswith("<script>window.harmed") for text in svg["chart-compare"])
    assert page.run("return window.harmed") is None
    # Files with names that speak.
    page.run(
        "for (const button of document.getElementById('chart-rows').parentNode.querySelectorAll('.save-tools button'))"
        "  button.click()"
    )
    stem = "Six-tissues-b_rows_MCPC-2_"
    page.wait(lambda: len([f for f in tmp_path.iterdir() if f.suffix in (".svg", ".png")]) == 2)
    files = {file.suffix: file for file in tmp_path.iterdir()}
    assert all(file.name.startswith(stem) for file in files.values())
    picture = files[".png"].read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    height = drawn(files[".svg"].read_text("utf-8")).get("height")
    assert struct.unpack(">II", picture[16:24]) == (2 * 760, 2 * int(height))
    assert matplotlib.image.imread(files[".png"])[0, 0, :3].min() == 1  # white paper
    assert page.messages() == []


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["map of loadings"], "Six-tissues-b_map-of-loadings.svg"),
        (["rows", "MCPC 1: a/b\\c", "..\u202e"], "Six-tissues-b_rows_MCPC-1-a-b-c_U-202E.svg"),
        (["\u8840\u6db2 caf\u00e9"], "Six-tissues-b_\u8840\u6db2-caf\u00e9.svg"),
    ],
)
def test_names_of_files_are_safe(browser, report, words, name):
    page = Page(browser, report[0])
    assert page.run("return mcpca.fileName(arguments[0], 'svg')", words) == name
    long = page.run("return mcpca.fileName(['x'.repeat(59), '\u8840'.repeat(59), 'z'.repeat(59)], 'svg')")
    assert len(long.encode()) <= 124
    reserved = "const t = mcpca.data.title; mcpca.data.title = 'con'; const f = mcpca.fileName([], 'csv');"
    assert page.run(
        reserved + "mcpca.data.title = ''; const e = mcpca.fileName([], 'csv'); mcpca.data.title = t; return [f, e]"
    ) == [
        "mcpca_con.csv",
        "mcpca.csv",
    ]


NAME = "<b>T-cell*%</b> \u05e9"


@pytest.fixture
def named(browser, report):
    """A page of its own, with a name and a note that were typed."""
    browser.get("about:blank")
    page = Page(browser, report[0], address="#mcpc=3&context=1&other=2")
    page.run("document.getElementById('naming').open = true")
    page.set("#mcpc-name", NAME)
    page.set("#mcpc-note", "line 1\nline 2 * 100%")
    page.wait(lambda: "notes" in page.address())
    page.wait(lambda: NAME in page.run("return document.getElementById('MCPC-select').textContent"))
    yield page
    browser.get("about:blank")


def test_names_are_shown_everywhere(named):
    page, label = named, f"MCPC 3: {NAME}"
    assert page.run("return document.getElementById('MCPC-select').selectedOptions[0].textContent") == label
    assert page.run("return document.getElementById('note').textContent") == "line 1\nline 2 * 100%"
    assert page.run("return document.querySelector('.map-given').textContent") == NAME
    assert label in [row[0] for row in page.table("#context")]
    assert label in [row[0] for row in page.table("#list")]
    assert page.run("return document.getElementById('compare').textContent").count(NAME) >= 1
    assert label in page.run("return document.getElementById('mcpc').textContent")
    assert label in page.run("return document.getElementById('scatter-x').textContent")
    ticks = page.chart("made") and page.run(
        "return [...document.querySelectorAll('#chart-made .ytick text')].map((t) => t.textContent)"
    )
    assert f"\u2068{label}\u2069" in ticks
    root = drawn(page.run("return mcpca.mapSvg()"))
    assert texts(group(root, "names")) == [NAME]
    # In saved tables, by name, and in the list with its note.
    page.run("mcpca.save = (file, text) => { window.saved = text }")
    page.run("document.querySelector('#list button[aria-label^=Save]').click()")
    lines = list(csv.reader(io.StringIO(page.run("return window.saved"))))
    assert [line[0] for line in lines[1:]] == ["MCPC 1", "MCPC 2", label, "MCPC 4"]
    assert lines[3][lines[0].index("note")] == "line 1\nline 2 * 100%"
    # Found by it, too.
    page.set("#find-mcpc", "t-cell")
    assert page.run("return mcpca.map.view.columns") == [2]
    assert "those with \u201ct-cell\u201d in their name" in page.text("#map-count")
    assert page.run("return document.querySelectorAll('bdi *, option *').length") == 0
    assert page.messages() == []


def test_back_keeps_names_and_a_link_brings_them(named, report):
    page = named
    page.set("#MCPC-select", 0)
    page.run("history.back()")
    page.wait(lambda: page.run("return mcpca.chosen.mcpc") == 2)
    page.set("#mcpc-name", "Another")
    page.run("history.go(1)")
    page.wait(lambda: page.run("return mcpca.chosen.mcpc") == 0)
    page.wait(lambda: page.address().get("names") == "3.Another")  # what was written last, not what was then
    assert page.run("return mcpca.data.mcpcs") == ["MCPC 1", "MCPC 2", "MCPC 3: Another", "MCPC 4"]
    link = page.run("return location.hash")
    # Another link without names does not take them away; one with others replaces them.
    Page(page.driver, report[0], address="#mcpc=2&context=1&other=2")
    assert page.run("return mcpca.data.mcpcs[2]") == "MCPC 3: Another"
    Page(page.driver, report[0], address="#mcpc=2&context=1&other=2&names=1.First*9.None*x*2.")
    assert page.run("return mcpca.data.mcpcs") == ["MCPC 1: First", "MCPC 2", "MCPC 3", "MCPC 4"]
    page.driver.get("about:blank")
    Page(page.driver, report[0], address=link)
    assert page.run("return mcpca.data.mcpcs[2]") == "MCPC 3: Another"
    assert page.run("return mcpca.names.note(2)") == "line 1\nline 2 * 100%"


def test_names_are_saved_and_loaded(named):
    page = named
    content = page.run("return mcpca.names.content()")
    assert content == {
        "report": "Six/tissues: <b>",
        "mcpcs": [{"mcpc": 3, "name": NAME, "note": "line 1\nline 2 * 100%"}],
    }
    content["mcpcs"] = [{"mcpc": 1, "name": "x" * 100, "note": 7}, {"mcpc": 77, "name": "none"}, None]
    page.run("mcpca.names.take(arguments[0])", json.dumps(content))
    assert page.run("return mcpca.data.mcpcs[0]") == "MCPC 1: " + "x" * 30
    assert page.run("return mcpca.data.mcpcs[2]") == f"MCPC 3: {NAME}"
    assert page.text("#names-read") == "1 MCPC named; 2 of the file are not in this report."
    page.run("mcpca.names.take('name,note')")
    assert page.text("#names-read") == "This is no file of names: it has no list \u201cmcpcs\u201d."
    # More than the address has room for is said; all of it is still there.
    notes = [{"mcpc": j + 1, "name": "", "note": "\u8840" * 400} for j in range(4)]
    page.run("mcpca.names.take(arguments[0])", json.dumps({"mcpcs": notes}))
    assert "The address has room for 4,000 letters: 3 names or notes are not in it." in page.text("#names-full")
    assert len(page.run("return location.hash")) < 4200
    assert page.run("return mcpca.names.note(3).length") == 400


def test_a_link_restores_everything(browser, report):
    link = (
        "#mcpc=4&context=3&other=6&rows-context=2&rows-x=2&rows-y=3&find-context=tissue&row-order=name&column-order=carrying"
        "&scale=context&least=10&feature=5&find-feature=gene&names=4.Last&notes=4.A+note&print-without=about&print-mcpcs=1.2"
        "&print-tables=all&theme=dark&tables=mcpc-features.2dao%2Cmcpcs-at-a-glance.1u%2Cmcpcs.o&scatter-rows=box_-1_1_-2_0.5"
    )
    browser.get("about:blank")
    page = Page(browser, report[0], address=link)
    page.wait(lambda: page.run("return document.querySelector('#feature h3')?.textContent") == "gene 5")
    script = "return Object.fromEntries(new URLSearchParams(mcpca.address.text().slice(1)))"
    given = dict(parse_qsl(link[1:]))
    assert page.run(script) == given
    values = page.run(
        "const ids = ['row-order', 'scale', 'least', 'rows-x'];"
        "return Object.fromEntries(ids.map((id) => [id, document.getElementById(id).value]))"
    )
    assert values == {"row-order": "name", "scale": "context", "least": "10", "rows-x": "1"}
    assert page.run("return document.getElementById('note').textContent") == "A note"
    assert page.run("return mcpca.dark()")
    shares = [float(row[1].rstrip("%")) for row in page.table("#list") if len(row) > 1]
    assert shares == sorted(shares)
    assert len(set(shares)) > 1
    assert page.run("return document.querySelector('#mcpc .table details').open")
    scores = page.run(
        "const of = (context) => mcpca.columns(context.scores).slice(0, 2).map((s) => [...s]);"
        "return mcpca.data.rows.contexts.map(of)"
    )
    inside = [(np.abs(x) <= 1) & (np.array(y) >= -2) & (np.array(y) <= 0.5) for x, y in scores]
    assert 0 < len(page.run("return mcpca.scatter.selected()")) == sum(int(some.sum()) for some in inside)
    browser.get("about:blank")


def test_tables_stay_as_they_were_made(browser, report):
    """Sorted and opened tables stay so for another MCPC; Back undoes it, and so does a link without them."""
    page = Page(browser, report[0])
    heads = "[...document.querySelectorAll('#mcpc .table')[0].querySelectorAll('thead th')]"
    page.run("document.querySelector('#mcpc .table summary').click()")
    page.run(f"{heads}[1].querySelector('button').click()")
    sorted_by = f"return {heads}.map((th) => th.getAttribute('aria-sort'))"
    assert page.run(sorted_by)[1] == "ascending"
    assert "tables=mcpc-features.1uo" in page.run("return location.hash")
    page.run("mcpca.choose({ mcpc: 1 })")
    assert page.run(sorted_by)[1] == "ascending"
    assert page.run("return document.querySelector('#mcpc .table details').open")
    for _ in range(2):
        page.run("history.back()")
    page.wait(lambda: page.run(sorted_by)[1] is None)
    assert page.run("return mcpca.chosen.mcpc") == 0
    assert page.run("return document.querySelector('#mcpc .table details').open")
    page.run("history.back()")
    page.wait(lambda: not page.run("return document.querySelector('#mcpc .table details').open"))


def test_a_lasso_is_kept_with_few_corners(browser, report):
    page = Page(browser, report[0])
    turn = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    points = {"x": (1.5 * np.cos(turn)).tolist(), "y": np.sin(turn).tolist()}
    page.chart("scatter")
    page.run("document.getElementById('chart-scatter').emit('plotly_selected', { lassoPoints: arguments[0] })", points)
    chosen = page.run("return mcpca.scatter.selected()")
    link = page.run("return mcpca.address.text()")
    assert len(chosen) > 5
    assert len(link) < 1000
    browser.get("about:blank")
    page = Page(browser, report[0], address=link)
    assert sorted(page.run("return mcpca.scatter.selected()")) == sorted(chosen)
    page.run("document.getElementById('select-none').click()")
    assert page.run("return mcpca.scatter.selected()") is None
    page.run("history.back()")
    page.wait(lambda: page.run("return (mcpca.scatter.selected() ?? []).length") == len(chosen))


def outline(page):
    """Headings of the page on paper."""
    options = {"printBackground": True, "generateDocumentOutline": True, "generateTaggedPDF": True}
    pdf = base64.b64decode(page.send("Page.printToPDF", **options)["data"])
    assert pdf.startswith(b"%PDF")
    return [title.decode("latin-1") for title in re.findall(rb"/Title \(([^)]*)\)", pdf)]


def test_a_chosen_set_is_printed(browser, report):
    page = Page(browser, report[0], address="#mcpc=3&context=2&other=1")
    found = outline(page)
    assert [title for title in found if title.startswith("MCPC ")] == ["MCPC 3"]
    assert {"Map of the loadings", "Context tissue 1", "Diagnostics", "Loadings: where it varies"} <= set(found)
    # The set is chosen in a dialog.
    page.find("#print").click()
    assert page.run("return document.getElementById('print-dialog').open")
    assert page.run("return [...document.querySelectorAll('#print-mcpcs input:checked')].map((b) => b.value)") == ["2"]
    page.run(
        "window.print = () => { window.asked = true };"
        "for (const b of document.querySelectorAll('#print-mcpcs input')) if (b.value !== '1') b.click();"
        "for (const b of document.querySelectorAll('#print-sections input'))"
        "  if (!['mcpc', 'rank'].includes(b.value)) b.click();"
    )
    page.run("document.getElementById('print-now').click()")
    assert page.run("return window.asked")
    assert page.address()["print-mcpcs"] == "1.4"
    # Before it is printed: both are there, whole, and nothing else.
    page.run(
        "window.addEventListener('beforeprint', () => { window.printed = {"
        "  sections: [...document.querySelectorAll('main section')].filter((s) => s.checkVisibility() &&"
        "    !s.classList.contains('not-printed')).map((s) => s.dataset.mcpc ?? s.id),"
        "  paths: [...document.querySelectorAll('.printed-mcpc')].map((s) => s.querySelectorAll('svg path').length),"
        "  ids: [...document.querySelectorAll('[id]')].map((e) => e.id),"
        "} })"
    )
    found = outline(page)
    assert [title for title in found if title.startswith("MCPC ")] == ["MCPC 1", "MCPC 4"]
    assert not {"Map of the loadings", "Diagnostics", "Context tissue 1"} & set(found)
    assert "Rank" in found
    printed = page.run("return window.printed")
    assert printed["sections"] == ["0", "3", "rank"]
    assert min(printed["paths"]) > 20
    assert len(set(printed["ids"])) == len(printed["ids"])
    # The page is as it was.
    assert page.run("return document.querySelectorAll('.printed-mcpc, .not-printed').length") == 0
    assert page.run("return [mcpca.printing, mcpca.chosen.mcpc]") == [False, 2]
    assert page.messages() == []


def test_tables_are_printed_whole(browser, report):
    page = Page(browser, report[0], address="#mcpc=1&context=2&other=1&print-tables=all")
    page.run(
        "window.addEventListener('beforeprint', () => { window.rows = [...document.querySelectorAll('#mcpc .table')]"
        ".map((t) => [t.querySelector('details').open, t.querySelectorAll('tbody tr').length]) })"
    )
    few = "return [...document.querySelectorAll('#mcpc .table')].map((t) => t.querySelectorAll('tbody tr').length)"
    before = page.run(few)
    assert before[0] == 10
    outline(page)
    rows = page.run("return window.rows")
    assert rows[0] == [True, 20]
    assert rows[1] == [True, 6]
    assert page.run(few) == before
    assert page.run("return document.querySelectorAll('#mcpc .table details[open]').length") == 0
    # Nothing is cut off: on paper no part of it scrolls.
    page.send("Emulation.setEmulatedMedia", media="print")
    styles = page.run(
        "const styles = [...document.querySelectorAll('.scroll')].map((s) => getComputedStyle(s));"
        "return styles.map((s) => [s.maxHeight, s.overflowX])"
    )
    page.send("Emulation.setEmulatedMedia", media="")
    assert styles
    assert set(map(tuple, styles)) == {("none", "visible")}
