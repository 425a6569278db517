"""Five questions that a reader has, each answered within three clicks, by a pointer on what is in view."""

import numpy as np
import pandas as pd
import pytest
from browsing import Page

from mcpca import MCPCA
from mcpca.datasets import make_contexts
from mcpca.report import write_report


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    truth = make_contexts(n_contexts=8, n_features=30, n_components=3, n_samples=80, noise=0.2, random_state=0)
    y = np.array([f"patient {i + 1}" for i in range(8)])[truth.y]
    X = pd.DataFrame(truth.X, columns=[f"gene {j}" for j in range(30)])
    model = MCPCA(3, random_state=0).fit(X, y)
    halves = model.replicability(X, y, n_splits=2, random_state=0)
    test = model.context_dependence(X, y, random_state=0)
    folder = tmp_path_factory.mktemp("tasks")
    path = write_report(model, folder / "report.html", X=X, y=y, replicability=halves, context_dependence=test)
    return path, model


@pytest.fixture
def page(browser, report):
    browser.get("about:blank")
    return Page(browser, report[0])


def click(page, script, *arguments):
    """Click the middle of an element, where it is in view: what lies on top gets the click."""
    x, y = page.run(
        f"const e = {script}; e.scrollIntoView({{ block: 'center' }}); const b = e.getBoundingClientRect();"
        "return [b.left + b.width / 2, b.top + b.height / 2]",
        *arguments,
    )
    for kind in ("mousePressed", "mouseReleased"):
        page.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


def number_above_the_map(page, j):
    click(page, "document.querySelector(`#heatmap [data-mcpc='${arguments[0]}']`)", j)
    page.wait(lambda: page.run("return mcpca.chosen.mcpc") == j)


def test_which_mcpc_matters(page, report):
    """None: the list is in view, the largest share first. One: the MCPC."""
    B = report[1].corrected_loadings_
    shares = [float(row[1].rstrip("%")) for row in page.table("#list") if len(row) > 1]
    np.testing.assert_allclose(shares, 100 * B.sum(axis=0) / B.sum(), atol=0.5)
    click(page, "document.querySelectorAll('#list tbody button')[1]")
    page.wait(lambda: page.run("return mcpca.chosen.mcpc") == 1)
    assert page.run("return document.querySelector('#mcpc h2').getBoundingClientRect().top") >= 0


def test_who_shares_it(page, report):
    """Two: its number above the map, and the order of contexts."""
    number_above_the_map(page, 2)
    page.set("#row-order", "chosen")
    rows = page.run("return mcpca.map.view.rows")
    assert rows == np.argsort(-report[1].corrected_loadings_[:, 2], kind="stable").tolist()


def test_which_genes(page, report):
    """One: its number above the map. Two more: the table of poles, and a gene in all MCPCs."""
    number_above_the_map(page, 1)
    a = report[1].components_[:, 1]
    page.chart("features")
    labels = page.run("return document.getElementById('chart-features').textContent")
    assert f"gene {int(np.argmax(a))}" in labels
    click(page, "document.querySelector('#mcpc .table summary')")
    assert page.run("return document.querySelector('#mcpc .table details').open")
    click(page, "document.querySelector('#mcpc .table tbody button')")
    page.wait(lambda: page.run("return document.querySelector('#feature h3')?.textContent ?? ''").startswith("gene "))


def test_is_it_real(page, report):
    """None: the marks are above every column. One: what they stand for, in words."""
    assert page.run("return mcpca.range(mcpca.r).map((j) => mcpca.marks.words(j).length > 0)") == [True] * 3
    number_above_the_map(page, 1)
    words = page.text("#mcpc")
    assert "In halves of the rows it comes back with |cos|" in words
    assert "Is it of the contexts?" in words


def test_save_the_figure(page):
    """One."""
    page.run("window.saved = []; mcpca.saveBlob = async (name, blob) => saved.push([name, await blob.text()])")
    click(page, "[...document.querySelectorAll('#map-save button')].find((b) => b.textContent === 'Save SVG')")
    page.wait(lambda: page.run("return saved.length") == 1)
    name, content = page.run("return saved[0]")
    assert name.endswith(".svg")
    assert content.count("<rect") >= 24
