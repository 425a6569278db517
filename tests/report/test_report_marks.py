"""Marks of what is known of every MCPC, the list of MCPCs and the filter by both, in a browser."""

import csv
import io

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
from browsing import Page
from verdicts import exact_model, verdicts

from mcpca._inference.replication import Replicability
from mcpca.report import write_report

K, R = 12, 7
LEVELS = (
    "return mcpca.range(mcpca.r).map((j) => ['back', 'differs', 'present'].map((key) => mcpca.marks.level(key, j)))"
)
LISTED = "return [...document.querySelectorAll('#list tbody tr:not(.below) th')].map((node) => node.textContent)"
HEADS = "return [...document.querySelectorAll('#list thead th')].map((node) => node.textContent)"
TABLE = "return [...document.querySelectorAll('#list tbody tr')].map((tr) => [...tr.children].map((c) => c.innerText))"


@pytest.fixture
def model():
    return exact_model(K, R)


@pytest.fixture
def page(browser, model, tmp_path, without_charts):
    return Page(browser, write_report(model, tmp_path / "report.html", **verdicts(model)))


def truth(model):
    """What the marks should say: whether it comes back, whether it differs, in how many contexts it is present."""
    given = verdicts(model)
    back = given["replicability"].replicates
    return back, given["context_dependence"].dependent, given["presence"].present.sum(axis=0)


def named(which):
    return [f"MCPC {j + 1}" for j in np.flatnonzero(which)]


def test_marks_are_what_the_tests_say(page, model):
    back, differs, places = truth(model)
    assert 0 < back.sum() < R
    assert 0 < differs.sum() < R
    assert places.min() == 0
    assert places.max() == K
    np.testing.assert_allclose(page.run(LEVELS), np.column_stack([back, differs, places / K]))
    # As they are painted: full for yes, empty for no, in the colours of the page.
    pixels = page.run(
        "const v = mcpca.map.view, c = document.querySelector('.map-marks');"
        "const { data, width } = c.getContext('2d').getImageData(0, 0, c.width, c.height);"
        "const at = (b, line) => 4 * (Math.floor((line + 0.5) * 12) * width + Math.floor((b + 0.5) * v.columnWidth));"
        "return [0, 1, 2].map((line) => v.columns.map((_, b) => [...data.slice(at(b, line), at(b, line) + 4)]))"
    )
    green = [int("1b7837"[i : i + 2], 16) for i in (0, 2, 4)]
    for line, yes in ((0, back), (1, differs)):
        assert [pixel[3] > 200 for pixel in pixels[line]] == yes.tolist()
        assert all(pixel[:3] == green for pixel, full in zip(pixels[line], yes, strict=True) if full)
    clear = np.flatnonzero(places != K / 2)  # a box is full from below: half of it ends on this pixel
    assert [pixels[2][j][3] > 0 for j in clear] == (places[clear] > K / 2).tolist()
    # In words: in a tip, and spoken on the way into a column, once.
    for j, said in ((0, "comes back with |cos| 0.97"), (1, "does not come back with |cos| 0.4")):
        page.run(
            "const c = document.querySelector('.map-marks'), b = c.getBoundingClientRect(), v = mcpca.map.view;"
            "c.dispatchEvent(new MouseEvent('mousemove', {clientX: b.left + (arguments[0] + 0.5) * v.columnWidth,"
            " clientY: b.top + 3}))",
            j,
        )
        tip = page.run("return document.getElementById('tip').innerText")
        assert tip.startswith(f"MCPC {j + 1}\n{said} (mean of 3 splits, more than 0.9 is required)")
        assert ("differs between contexts (q = 0.0023)" in tip) == differs[j]
        where = (
            f"present in {places[j]} of 12 contexts" if places[j] else "not shown to be present in any of 12 contexts"
        )
        assert where in tip
    page.run("document.getElementById('heatmap').focus()")
    spoken = "return document.getElementById('live').textContent"
    page.press("ArrowRight")
    assert "Tests: does not come back with |cos| 0.4" in page.run(spoken)
    page.press("ArrowDown")
    assert page.run(spoken).startswith("patient 2, MCPC 2: ")
    assert "come back" not in page.run(spoken)
    legend = page.text("#marks-legend")
    for words in ("comes back in halves of the rows", "does not come back", "differs between contexts", "alike"):
        assert words in legend
    assert "Not tested" not in legend
    assert page.messages() == []


def test_filter_of_map_and_list_in_the_address(page, model):
    back, differs, places = truth(model)
    everything = np.ones(R, dtype=bool)
    choices = {
        "back": (back, "those that come back"),
        "differ": (differs, "those that differ between contexts"),
        "both": (back & differs, "those that come back and differ between contexts"),
        "present": (places > 0, "those present in some context"),
    }
    for key, (which, words) in choices.items():
        page.set("#show", key)
        assert page.run("return mcpca.map.view.columns") == np.flatnonzero(which).tolist()
        assert page.run(LISTED) == named(which)
        assert page.text("#map-count") == f"Showing all 12 contexts and {which.sum()} of 7 MCPCs, {words}."
        assert page.run("return location.hash").endswith(f"&show={key}")
    page.driver.back()
    page.wait(lambda: page.run(LISTED) == named(back & differs))
    assert page.run("return document.getElementById('show').value") == "both"
    page.set("#show", "all")
    assert page.run(LISTED) == named(everything)
    assert "show" not in page.run("return location.hash")


def test_list_is_sorted_chosen_from_and_saved(page, model):
    back, differs, places = truth(model)
    rows = page.run(TABLE)[::2]
    features = page.run(
        "return [...document.querySelectorAll('#list tr.below')].map((tr) =>"
        " [...tr.querySelectorAll('bdi')].map((node) => node.textContent))"
    )
    for j, (line, top) in enumerate(zip(rows, features, strict=True)):
        assert line[0] == f"MCPC {j + 1}"
        assert line[3:] == ["yes" if back[j] else "no", "yes" if differs[j] else "no", f"{places[j]} of 12"]
        order = np.argsort(-model.components_[:, j])
        assert top == [f"feature {i + 1}" for i in [*order[:3], *order[::-1][:3]]]
    page.run("document.querySelectorAll('#list thead button')[5].click()")  # present in: the largest first
    order = sorted(range(R), key=lambda j: -places[j])
    assert page.run(LISTED) == [f"MCPC {j + 1}" for j in order]
    assert (
        page.run("return document.querySelector('#list thead th:last-child').getAttribute('aria-sort')") == "descending"
    )
    page.run("document.querySelectorAll('#list tbody th button')[1].click()")
    assert page.run("return mcpca.chosen.mcpc") == order[1]
    assert page.run("return document.activeElement.id") == "mcpc"
    assert page.run(LISTED) == [f"MCPC {j + 1}" for j in order]  # sorted as it was
    assert page.run("return document.querySelector('#list tr.marked th').textContent") == f"MCPC {order[1] + 1}"
    page.run("mcpca.save = (file, text) => { window.saved = text }")
    page.run("document.querySelector('#list button[aria-label^=Save]').click()")
    saved = list(csv.reader(io.StringIO(page.run("return window.saved"))))
    assert saved[0][3:6] == ["comes back: mean |cos|", "differs between contexts: q", "present in: number of contexts"]
    assert [row[0] for row in saved[1:]] == [f"MCPC {j + 1}" for j in order]
    np.testing.assert_allclose([float(row[3]) for row in saved[1:]], np.where(back, 0.97, 0.4)[order])
    np.testing.assert_allclose([float(row[5]) for row in saved[1:]], places[order])


@pytest.mark.usefixtures("without_charts")
def test_what_was_not_computed_is_not_a_failure(browser, model, tmp_path):
    page = Page(browser, write_report(model, tmp_path / "none.html"))
    sentence = (
        "Not tested: whether MCPCs come back, whether they differ between contexts, in which contexts they are present."
    )
    assert page.text("#marks-legend") == sentence
    assert sentence in page.text("#list")
    assert page.run(HEADS) == ["MCPC", "share", "carried by"]
    assert page.run("return mcpca.marks.tested") == []
    assert page.run("return mcpca.map.strips.height") == 0
    options = page.run("return [...document.getElementById('show').options].map((o) => [o.text, o.disabled])")
    assert options[0] == ["all", False]
    assert all(text.endswith("(not tested)") and disabled for text, disabled in options[1:])
    # A link that asks for what was not tested shows all.
    page = Page(browser, tmp_path / "none.html", address="#mcpc=2&context=1&other=2&show=back")
    assert page.run("return mcpca.map.view.columns.length") == R
    # Halves of too few rows say nothing about any MCPC.
    unknown = {"replicability": Replicability(np.full((2, R), np.nan))}
    page = Page(browser, write_report(model, tmp_path / "nan.html", **unknown))
    assert page.run("return mcpca.range(mcpca.r).map((j) => mcpca.marks.level('back', j))") == [None] * R
    assert {row[3] for row in page.run(TABLE)[::2]} == {"not known"}
    assert page.text("#replicability") == "It is not known whether this MCPC comes back: halves have too few rows."
    assert "not replicate" not in page.run("return document.body.innerText")
    assert page.messages() == []
