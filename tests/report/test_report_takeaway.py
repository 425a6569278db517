"""What a reader takes away from the report: links, names, pictures, paper. All in a browser."""

import numpy as np
import pandas as pd
import pytest
from browsing import Page

from mcpca import MCPCA
from mcpca.datasets import make_contexts
from mcpca.report import write_report

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
