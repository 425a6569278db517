"""Metadata and the scatter in a browser: strips beside the map, colours of points, and rows that are selected."""

import csv
import io
import time
from itertools import pairwise

import matplotlib
import numpy as np
import pandas as pd
import pytest
from browsing import NARROW, WIDE, Page

from mcpca import MCPCA
from mcpca.datasets import make_contexts
from mcpca.report import write_report

matplotlib.use("Agg")

K, R, N = 24, 4, 20
BAD = '<img src=x onerror="window.harmed = 1">'
# Contexts that have row-order known-1 by tissue: eleven names, so that colours come back with another mark.
TISSUES = ["gut", "skin", "lung", BAD, "bone", "liver", "brain", "ear", "eye", "toe", "=1+1"]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    truth = make_contexts(n_contexts=K, n_features=12, n_components=R, n_samples=N, noise=0.1, random_state=0)
    names = np.array([f"patient {i:02d}" for i in range(K)])
    y = names[truth.y]
    X = pd.DataFrame(truth.X, columns=[f"gene {j}" for j in range(12)], index=[f"cell {i}" for i in range(K * N)])
    model = MCPCA(R, random_state=0).fit(X, y)
    rng = np.random.default_rng(0)
    contexts = pd.DataFrame(
        {
            "tissue": [TISSUES[i % len(TISSUES)] for i in range(K)],
            "sex": [["f", "m", None][i % 3] for i in range(K)],
            "dose": np.where(np.arange(K) == 5, np.nan, rng.normal(size=K).round(2)),
            BAD: [f"site {i % 2}" for i in range(K)],
        },
        index=names,
    )
    rows = pd.DataFrame(
        {"phase": rng.choice(["G1", "S", BAD], K * N), "depth": rng.gamma(2, 100, K * N)}, index=X.index
    )
    rows.iloc[3, 0] = None
    path = write_report(
        model,
        tmp_path_factory.mktemp("metadata") / "report.html",
        X=X,
        y=y,
        context_metadata=contexts,
        row_metadata=rows,
    )
    return path, model, X, y, contexts, rows


def opened(browser, report, size=WIDE, dark=False, more=""):
    return Page(browser, report[0], size, dark, f"#mcpc=1&context=1&other=2{more}")


def safe(page):
    assert page.run("return window.harmed") is None
    assert page.messages() == []


def strip_colours(page, column):
    """The colours of all cells of a strip in view, near their lower right corner, where no mark covers them."""
    return page.run(
        "const v = mcpca.map.view, c = document.querySelector('.map-sides').getContext('2d');"
        "const d = window.devicePixelRatio, w = mcpca.map.BESIDE, x = arguments[0] * w + w - 4;"
        "const data = c.getImageData(x * d, 0, 1, c.canvas.height).data, found = {};"
        "v.rows.forEach((i, a) => {"
        "  const y = Math.round(((a + 1) * v.rowHeight - 3 - mcpca.map.scroller.scrollTop) * d);"
        "  if (y >= 0 && y < c.canvas.height) found[i] = [...data.slice(4 * y, 4 * y + 3)].join();"
        "});"
        "return found",
        column,
    )


def test_strips_have_the_colours_of_the_legend_and_words_for_them(browser, report):
    contexts = report[4]
    page = opened(browser, report)
    assert page.run("return mcpca.map.beside.map((b) => b.title)") == ["tissue", "sex", "dose"]
    assert page.run("return [...document.querySelectorAll('.map-letter')].map((n) => n.textContent)") == ["a", "b", "c"]
    words = page.run("return mcpca.map.view.rows.map((i) => mcpca.map.beside.map((b) => b.words(i)))")
    for i, (tissue, sex, dose) in enumerate(words):
        expected = contexts.iloc[i]
        assert tissue == expected["tissue"]
        assert sex == (expected["sex"] if isinstance(expected["sex"], str) else "not known")
        assert dose == "not known" if np.isnan(expected["dose"]) else float(dose) == expected["dose"]
    # Equal values have equal colours on the canvas, and different ones different.
    colours = strip_colours(page, 1)
    by_value = {}
    for i, (_, sex, _) in enumerate(words):
        by_value.setdefault(sex, set()).add(colours[str(i)])
    assert {len(found) for found in by_value.values()} == {1}
    assert len({colour for found in by_value.values() for colour in found}) == 3
    legend = page.text("#metadata")
    assert all(name in legend for name in ("tissue", "sex", "dose", BAD, "not known", *TISSUES))
    safe(page)


def test_names_are_told_apart_by_colour_and_mark(browser, report):
    page = opened(browser, report)
    styles = page.run(
        "const s = mcpca.metadata.scaleOf(mcpca.metadata.columns[0]);"
        "return s.order.map((code) => { const { colour, variant } = s.style(code); return [colour, variant]; })"
    )
    assert len({tuple(style) for style in styles}) == len(TISSUES)
    assert [variant for _, variant in styles] == [0] * 8 + [1] * 3


def test_contexts_are_grouped_sorted_and_found_by_metadata(browser, report):
    contexts = report[4]
    page = opened(browser, report)
    page.set("#row-order", "known-2")
    rows = page.run("return mcpca.map.view.rows")
    sexes = contexts["sex"].iloc[rows].fillna("z").tolist()
    assert sexes == sorted(sexes)
    assert sorted(rows) == list(range(K))
    assert page.run("return mcpca.metadata.breaks(mcpca.map.state.rowOrder, mcpca.map.view.rows)") == [8, 16]
    assert page.address()["row-order"] == "known-2"
    page.set("#row-order", "known-3")
    doses = contexts["dose"].iloc[page.run("return mcpca.map.view.rows")].to_numpy()
    assert (np.diff(doses[:-1]) <= 0).all()
    assert np.isnan(doses[-1])
    page.set("#find-context", "brain")
    assert page.run("return mcpca.map.view.rows.length") == sum(contexts["tissue"] == "brain") == 2
    page.set("#find-context", "")
    page.run("document.getElementById('map-table').open = true")
    page.wait(lambda: page.run("return document.querySelectorAll('#map-table tbody tr').length") > 0)
    table = page.table("#map-table")
    assert {row[0]: row[1] for row in table} == dict(zip(contexts.index, contexts["tissue"], strict=True))
    page.run("document.getElementById('map-table').open = false")
    page.set("#row-order", "given")


def test_strips_are_chosen_by_keyboard_and_kept_in_the_address(browser, report):
    page = opened(browser, report)
    page.run("document.getElementById('strip-4').focus()")
    page.find("#strip-4").send_keys(" ")
    assert page.run("return document.activeElement.id") == "strip-4"
    assert page.run("return mcpca.map.beside.length") == 4
    assert page.address()["strips"] == "1.2.3.4"
    for number in (1, 2, 3, 4):
        page.find(f"#strip-{number}").click()
    assert page.address()["strips"] == "none"
    assert page.run("return mcpca.map.view.labels === mcpca.map.view.names")
    page.run("history.back()")
    page.wait(lambda: page.run("return mcpca.map.beside.map((b) => b.letter).join()") == "d")
    page = opened(browser, report, more="&strips=2.9")  # a link of another report
    assert page.run("return mcpca.map.beside.length") == 3
    safe(page)


@pytest.mark.parametrize(("size", "dark"), [(WIDE, False), (NARROW, True)])
def test_nothing_lies_on_a_name(browser, report, size, dark):
    page = opened(browser, report, size, dark)
    page.run("document.getElementById('map-view').scrollIntoView()")
    boxes = page.run(
        "return [...document.querySelectorAll('.map-names span, .map-letter, .map-corner, .map-numbers [data-mcpc]')]"
        ".map((n) => [n.textContent, n.getBoundingClientRect()])"
        ".map(([text, r]) => [text, r.left, r.top, r.right, r.bottom])"
    )
    sides = page.run("const r = document.querySelector('.map-sides').getBoundingClientRect(); return [r.left, r.right]")
    assert len(boxes) > 10
    for text, _, _, right, _ in boxes:
        if text.startswith("patient"):
            assert right <= sides[0]
    for a, first in enumerate(boxes):
        for second in boxes[:a]:
            across = min(first[3], second[3]) - max(first[1], second[1])
            down = min(first[4], second[4]) - max(first[2], second[2])
            assert across <= 1 or down <= 4, (first, second)
    page.wait_for_width(size[0])
    safe(page)


def test_strips_scroll_and_print_with_the_map(browser, report):
    page = opened(browser, report)
    page.run("mcpca.map.state.fit = false; mcpca.map.refresh()")
    before = strip_colours(page, 0)
    page.run("mcpca.map.scroller.scrollTop = 3.5 * mcpca.map.view.rowHeight; mcpca.map.paint()")
    after = strip_colours(page, 0)
    assert page.run("return mcpca.map.scroller.scrollTop") > 0
    both = before.keys() & after.keys()
    assert len(both) > 8
    assert {i: before[i] for i in both} == {i: after[i] for i in both}
    page.run("mcpca.map.scroller.scrollTop = 0; mcpca.map.state.fit = true; mcpca.map.refresh()")
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    assert page.run("return mcpca.map.view.labels - mcpca.map.view.names") > 30
    assert len(set(strip_colours(page, 1).values())) == 3
    page.run("window.dispatchEvent(new Event('afterprint'))")


def test_what_is_known_of_the_chosen_context_is_said(browser, report):
    page = opened(browser, report, more="").text("#context-known")
    assert page == f"Known of it: tissue: gut; sex: f; dose: {report[4]['dose'].iloc[0]:g}; {BAD}: site 0."


def test_rows_of_a_context_are_coloured_by_metadata(browser, report):
    _, _, _, y, _, rows = report
    page = opened(browser, report, more="&rows-context=1")
    page.set("#rows-colour", "row-1")
    traces = page.chart("rows")
    own = rows.iloc[np.flatnonzero(y == "patient 00")]
    counts = {trace["name"].strip("\u2068\u2069"): len(trace["x"]) for trace in traces[:-1]}
    expected = own["phase"].fillna("not known").value_counts().to_dict()
    assert {name.replace("&lt;", "<").replace("&gt;", ">"): n for name, n in counts.items()} == {
        name if name != BAD else name[:27] + "\u2026": n for name, n in expected.items()
    }
    assert page.address()["rows-colour"] == "row-1"
    page.set("#rows-colour", "row-2")
    traces = page.chart("rows")
    np.testing.assert_allclose(sorted(traces[0]["marker"]["color"]), np.sort(own["depth"]), rtol=1e-6)
    safe(page)


def test_scatter_has_the_scores_of_the_model(browser, report):
    _, model, X, y, _, _ = report
    page = opened(browser, report)
    page.find("#scatter-all").click()
    page.set("#scatter-x", 2)
    page.set("#scatter-y", 0)
    traces = page.chart("scatter")
    scores = model.transform(X, y)
    drawn = {}
    for trace in traces:
        for text, x, up in zip(trace["text"], trace["x"], trace["y"], strict=True):
            drawn[text.split("<br>")[0].strip("\u2068\u2069")] = (x, up)
    assert set(drawn) == set(X.index)
    points = np.array([drawn[name] for name in X.index])
    np.testing.assert_allclose(points, scores[:, [2, 0]], atol=4e-5 * np.abs(scores).max())
    assert page.address()["scatter-contexts"] == "all"
    page.find("#scatter-usual").click()
    names = [trace["name"].strip("\u2068\u2069") for trace in page.chart("scatter")]
    assert names[0] == "other contexts"
    assert len(names) == 1 + 8
    page.set("#scatter-others", "hidden")
    assert len(page.chart("scatter")) == 8
    page.set("#scatter-colour", "known-1")
    kept = page.address()
    assert [kept[f"scatter-{name}"] for name in ("x", "y", "colour")] == ["3", "1", "known-1"]
    assert "scatter-contexts" not in kept
    # The link leads to the same.
    again = Page(browser, report[0], WIDE, False, page.run("return location.hash"))
    assert again.run("return mcpca.scatter.state") == {
        "x": 2,
        "y": 0,
        "colour": "known-1",
        "contexts": None,
        "others": "hidden",
    }
    safe(page)


def drag(page, selector, corners):
    """Drag the pointer along corners, in shares of an element that has come to rest."""
    script = (
        "const r = document.querySelector(arguments[0]).getBoundingClientRect();"
        "return [r.left, r.top, r.width, r.height]"
    )
    boxes = [None]

    def rests():
        boxes.append(page.run(script, selector))
        time.sleep(0.05)
        return len(boxes) > 4 and boxes[-1] == boxes[-2] == boxes[-3]

    page.wait(rests)
    box = boxes[-1]
    places = [(box[0] + x * box[2], box[1] + y * box[3]) for x, y in corners]
    send = page.send
    send("Input.dispatchMouseEvent", type="mousePressed", x=places[0][0], y=places[0][1], button="left", clickCount=1)
    for (x0, y0), (x1, y1) in pairwise(places):
        for t in (0.25, 0.5, 0.75, 1):
            at = {"x": x0 + t * (x1 - x0), "y": y0 + t * (y1 - y0)}
            send("Input.dispatchMouseEvent", type="mouseMoved", button="left", buttons=1, **at)
    send(
        "Input.dispatchMouseEvent", type="mouseReleased", x=places[-1][0], y=places[-1][1], button="left", clickCount=1
    )


def test_a_lasso_leads_to_a_table_of_rows(browser, report):
    _, model, X, y, contexts, rows = report
    page = opened(browser, report)
    page.find("#scatter-all").click()
    page.set("#scatter-drag", "lasso")  # else none where the window was narrow
    page.chart("scatter")
    page.run("document.getElementById('chart-scatter').scrollIntoView({block: 'center'})")
    drag(page, "#chart-scatter .nsewdrag", [(0.5, 0.02), (0.98, 0.02), (0.98, 0.98), (0.5, 0.98), (0.5, 0.02)])
    page.wait(lambda: "selected." in page.text("#scatter-selected"))
    table = page.table("#scatter")
    # All rows to the right of the middle of the chart, and no others.
    low, high = page.run("return document.getElementById('chart-scatter').layout.xaxis.range")
    scores = pd.DataFrame(model.transform(X, y)[:, :2], index=X.index)
    middle = (low + high) / 2
    tolerance = 0.01 * (high - low)
    found = {row[0] for row in table}
    assert (
        set(scores.index[scores[0] > middle + tolerance]) <= found <= set(scores.index[scores[0] > middle - tolerance])
    )
    assert 0 < len(found) < len(X)
    for name, context, x, up, phase, depth, tissue, *_ in table:
        i = X.index.get_loc(name)
        assert context == y[i]
        np.testing.assert_allclose([float(x), float(up)], scores.loc[name], rtol=2e-3, atol=1e-3)
        own = rows["phase"].iloc[i]
        assert phase == ("not known" if pd.isna(own) else own)
        assert float(depth) == pytest.approx(rows["depth"].iloc[i], rel=1e-3)
        assert tissue == contexts.loc[context, "tissue"]
    saved = page.run(
        "let text; const before = mcpca.save; mcpca.save = (file, t) => (text = [file, t]);"
        "[...document.querySelectorAll('#scatter .table-tools button')]"
        ".find((b) => b.textContent === 'Save CSV').click();"
        "mcpca.save = before; return text"
    )
    assert saved[0].startswith("rows-mcpc-1-2")
    lines = list(csv.reader(io.StringIO(saved[1])))
    assert lines[0][:4] == ["row", "context", "MCPC 1", "MCPC 2"]
    assert {line[0] for line in lines[1:]} == found
    assert all(not cell.startswith("=") for line in lines for cell in line)
    safe(page)


def test_rows_are_selected_without_a_pointer(browser, report):
    _, model, X, y, _, _ = report
    page = opened(browser, report, more="&scatter-contexts=2.3")
    page.run("document.querySelector('#scatter details:has(#select-rows)').open = true")
    page.set("#select-x-from", 0.5)
    page.set("#select-y-to", 0.25)
    page.run("document.getElementById('select-rows').focus()")
    page.find("#select-rows").send_keys("\ue007")  # Enter
    scores = model.transform(X, y)
    expected = np.isin(y, ["patient 01", "patient 02"]) & (scores[:, 0] >= 0.5) & (scores[:, 1] <= 0.25)
    assert 0 < expected.sum() < 40
    assert {row[0] for row in page.table("#scatter")} == set(X.index[expected])
    assert page.text("#scatter-selected") == f"{expected.sum()} rows selected."
    strong = sum(len(trace.get("selectedpoints", [])) for trace in page.chart("scatter"))
    assert strong == expected.sum()
    page.find("#select-none").click()
    assert page.run("return mcpca.scatter.selected()") is None
    safe(page)


def test_reports_without_metadata_have_no_strips(browser, report, tmp_path):
    _, _, X, y, _, _ = report
    model = MCPCA(1, random_state=0).fit(X, y)
    page = Page(browser, write_report(model, tmp_path / "plain.html"), WIDE)
    assert page.run("return document.getElementById('metadata')") is None
    assert page.run("return mcpca.map.beside.length") == 0
    assert "There is only one MCPC." in page.text("#scatter")
    safe(page)
