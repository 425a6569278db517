"""The report in a browser: what is shown is what the model says, nothing else runs, and nothing leaves the page.

Pictures for the documentation are written to the folder in MCPCA_SCREENSHOTS, where it is set.
"""

import base64
import copy
import csv
import io
import json
import os
import warnings
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from browsing import NARROW, WIDE, Page

from mcpca import MCPCA, IdentifiabilityWarning, demo
from mcpca.datasets import make_contexts
from mcpca.report import write_report

NAMES = {
    3: "<script>window.harmed = 1</script>",
    4: '"><img src=x onerror="window.harmed = 2">',
    5: "\u202eevil\u202c and \u05e9\u05dc\u05d5\u05dd",
    6: "N" * 10_000,
    7: "=1+1",
    8: "<b>bold</b><br>&amp; <a href='javascript:window.harmed = 3'>here</a>",
}


def visible(name):
    """A name as the page writes it: marks of direction by their code."""
    return name.replace("\u202e", "\u27e8U+202E\u27e9").replace("\u202c", "\u27e8U+202C\u27e9")


def cut(name):
    """The beginning of a name, without the marks that isolate it in a chart."""
    return name.strip("\u2068\u2069")[:27]


def shown(value, digits=4):
    """A number as the page writes it: the file has five digits, which are rounded once more."""
    return float(f"{float(f'{value:.5g}'):.{digits}g}")


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)
        data = demo.load_digit_contexts(600, random_state=0)
        model = MCPCA(7, random_state=0).fit(data.contexts)
        halves = model.replicability(data.contexts, n_splits=2, random_state=0)
    path = write_report(model, folder / "report.html", X=data.contexts, replicability=halves, run={"date": "today"})
    return path, model, data, halves


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    truth = make_contexts(n_contexts=200, n_features=30, n_components=8, n_samples=40, noise=0.1, random_state=0)
    names = np.array([NAMES.get(i, f"patient {i:03d}") for i in range(200)], dtype=object)
    y = names[truth.y]
    X = pd.DataFrame(truth.X, columns=[NAMES.get(j, f"gene {j:02d}") for j in range(30)])
    model = MCPCA(8, solver="ml", random_state=0).fit(X, y)
    errors, presence = model.standard_errors(), model.presence()
    path = write_report(
        model,
        tmp_path_factory.mktemp("many") / "report.html",
        X=X,
        y=y,
        standard_errors=errors,
        presence=presence,
        title="<i>Two hundred</i> patients",
    )
    return path, model, errors


def test_report_of_the_demo_shows_the_models_numbers(browser, digits):
    path, model, data, halves = digits
    page = Page(browser, path)
    A, B = model.components_, model.corrected_loadings_
    page.click_cell(2, 1)
    assert page.run("return location.hash") == "#mcpc=2&context=3&other=2&rows-context=3"
    F = model.landscape().F
    assert f"F = {F[1]:.3g}" in page.run("return document.querySelector('#mcpc').textContent")
    page.run("document.querySelectorAll('#diagnostics summary')[1].click()")
    np.testing.assert_allclose([float(row[1]) for row in page.table("#diagnostics", 1)], F, rtol=2e-3)
    # Features at both poles: the table has 25 at each end, the chart the first 10.
    a = A[:, 1]
    ends = [i for i in np.argsort(-a, kind="stable")[:25] if a[i] > 0] + [i for i in np.argsort(a)[:25] if a[i] < 0]
    rows = page.table("#mcpc")
    assert [row[0] for row in rows] == [f"feature {i + 1}" for i in ends]
    np.testing.assert_allclose([float(row[2]) for row in rows], a[ends], rtol=2e-3)
    np.testing.assert_allclose(page.chart("features")[0]["x"][:10], np.sort(a)[::-1][:10], rtol=5e-5)
    # Loadings, the largest first.
    order = np.argsort(-B[:, 1])
    rows = page.table("#mcpc", 1)
    assert [row[0] for row in rows] == model.contexts_[order].tolist()
    assert [float(row[1]) for row in rows] == [shown(v) for v in B[order, 1]]
    np.testing.assert_allclose(page.chart("loadings")[0]["x"], B[order, 1], rtol=5e-5)
    # Scores in the contexts that carry it.
    carrying = [i for i in order if B[i, 1] >= B[:, 1].max() / 2]
    boxes = page.chart("scores")[0]
    for number, i in enumerate(carrying):
        name = model.contexts_[i]
        scores = model.transform({name: data.contexts[name]})[name][:, 1]
        for key, q in (("lowerfence", 0.05), ("q1", 0.25), ("median", 0.5), ("q3", 0.75), ("upperfence", 0.95)):
            assert boxes[key][number] == pytest.approx(np.quantile(scores, q), rel=1e-3, abs=1e-3)
    # A cell is an MCPC and a context: its rows are shown.
    assert page.run("return document.getElementById('rows-context').value") == "2"
    words = f"comes back with |cos| {shown(halves.agreement[1], 3):g} (mean of 2 splits"
    assert words in page.text("#replicability")
    assert ("it replicates" in page.text("#replicability")) == halves.replicates[1]
    assert page.messages() == []
    assert page.requests() == [path.as_uri()]


def test_rows_along_two_principal_components(browser, digits):
    path, model, data, _ = digits
    page = Page(browser, path, address="#mcpc=4&context=1&other=2")
    page.set("#rows-context", 1)
    page.set("#rows-y", 2)
    points, line = page.chart("rows")
    X = data.contexts[model.contexts_[1]]
    _, s, Vt = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    assert len(points["x"]) == 500
    # Rows that are shown are rows of the context, at their place in this plane, with their scores as colours.
    scores = model.transform({model.contexts_[1]: X})[model.contexts_[1]][:, 3]
    planes = np.abs(np.column_stack([(X - X.mean(axis=0)) @ Vt[[0, 2]].T, scores]))
    found = np.abs(np.column_stack([points["x"], points["y"], points["marker"]["color"]]))
    distances = np.abs(found[:, None] - planes[None]).max(axis=2).min(axis=1)
    assert distances.max() < 1e-3 * planes.max()
    # The axis: two standard deviations of the MCPC, seen in this plane.
    expected = 2 * np.sqrt(model.corrected_loadings_[1, 3]) * np.abs(Vt[[0, 2]] @ model.components_[:, 3])
    np.testing.assert_allclose(np.abs([line["x"][1], line["y"][1]]), expected, rtol=1e-2, atol=1e-3)
    assert "500 of 600 rows, drawn at random" in page.text("#mcpc")
    share = s[2] ** 2 / (s**2).sum()
    assert f"PC 3 ({100 * share:.1f}%)" in page.text("#rows-y")


def test_keyboard_moves_and_selects(browser, digits):
    path, model, _, _ = digits
    page = Page(browser, path)
    page.run("document.getElementById('heatmap').focus()")
    page.press("ArrowDown", "ArrowRight", "ArrowRight", "End", "ArrowLeft")
    spoken = page.run("return document.getElementById('live').textContent")
    assert spoken.startswith(
        f"{model.contexts_[1]}, MCPC 6: corrected loading {shown(model.corrected_loadings_[1, 5]):g}"
    )
    page.press("Enter")
    assert page.run("return location.hash") == "#mcpc=6&context=2&other=1&rows-context=2"
    assert page.run("return document.getElementById('MCPC-select').value") == "5"
    assert page.run("return document.activeElement.id") == "heatmap"
    # Every control can be reached by Tab and says what it is.
    unnamed = page.run(
        "const text = (e) => e.tagName == 'BUTTON' && e.textContent;"
        "const named = (e) => e.getAttribute('aria-label') || e.labels?.length || text(e);"
        "return [...document.querySelectorAll('button, select, input, .scroll, #heatmap')].filter((e) => !named(e))"
        ".map((e) => e.outerHTML)"
    )
    assert unnamed == []
    labels = page.run("return [...document.querySelectorAll('[role=figure]')].map(e => e.getAttribute('aria-label'))")
    assert len(labels) >= 8
    assert all(labels)


def test_context_and_comparison(browser, digits):
    path, model, _, _ = digits
    page = Page(browser, path, address="#mcpc=1&context=3&other=2")
    B = model.corrected_loadings_
    share = (model.variance_explained(per="context") / model.squared_norms())[2]
    assert f"The MCPCs explain {100 * share:.1f}% of its squared covariance" in page.text("#context-words")
    rows = page.table("#context")
    order = np.argsort(-B[2], kind="stable")
    assert [row[0] for row in rows] == [f"MCPC {j + 1}" for j in order]
    assert [float(row[1]) for row in rows] == [shown(v) for v in B[2, order]]
    rows = page.table("#compare")
    difference = {f"MCPC {j + 1}": B[2, j] - B[1, j] for j in range(7)}
    assert [row[0] for row in rows] == sorted(difference, key=lambda name: -abs(difference[name]))
    np.testing.assert_allclose([float(row[3]) for row in rows], [difference[row[0]] for row in rows], 1e-3, 1e-4)
    cosine = B[1] @ B[2] / np.linalg.norm(B[1]) / np.linalg.norm(B[2])
    assert f"Cosine between their loadings: {shown(cosine, 3):g} " in page.text("#compare-words")
    for place in ("#compare-loadings", "#map-loadings"):
        assert page.text(place) == "Shown are corrected loadings: the noise of each context is taken out."
    page.set("#compare-b", 0)
    assert page.address()["other"] == "1"


def test_tables_are_saved_and_copied(browser, digits, tmp_path):
    path, model, _, _ = digits
    page = Page(browser, path)
    page.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.run("document.querySelector('#map-table summary').click()")
    page.wait(lambda: page.run("return Boolean(document.querySelector('#map-table .table'))"))
    page.run("document.querySelector('#map-table button[aria-label^=Save]').click()")
    file = tmp_path / f"7-MCPCs-of-{len(model.contexts_)}-contexts_loadings.csv"
    page.wait(file.exists)
    rows = list(csv.reader(file.read_text(encoding="utf-8-sig").splitlines()))
    assert rows[0] == ["context", *(f"MCPC {j + 1}" for j in range(7))]
    assert [row[0] for row in rows[1:]] == model.contexts_.tolist()
    np.testing.assert_allclose(
        np.array([row[1:] for row in rows[1:]], dtype=float), model.corrected_loadings_, rtol=5e-5
    )
    page.run("navigator.clipboard.writeText = async (text) => { window.copied = text }")
    page.run("document.querySelector('#mcpc button[aria-label^=Copy]').click()")
    copied = list(csv.reader(io.StringIO(page.run("return window.copied")), delimiter="\t"))
    assert copied[0] == ["feature", "pole", "entry", "weight in scores"]
    assert float(copied[1][2]) == pytest.approx(model.components_[:, 0].max(), rel=5e-5)
    assert page.messages() == []


def test_map_of_many_contexts_is_ordered_and_filtered(browser, many):
    path, model, errors = many
    page = Page(browser, path)
    B = model.loadings_
    rows = "return mcpca.map.view.rows"
    assert page.run(rows) == list(range(200))
    page.set("#row-order", "chosen")
    assert page.run(rows) == sorted(range(200), key=lambda i: -shown(B[i, 0], 5))
    page.set("#row-order", "cluster")
    found = page.run(rows)
    assert sorted(found) == list(range(200))
    scaled = B / B.max(axis=0)
    unit = scaled / np.linalg.norm(scaled, axis=1, keepdims=True)
    gap = np.linalg.norm(np.diff(unit[found], axis=0), axis=1).mean()
    assert gap < 0.7 * np.linalg.norm(np.diff(unit, axis=0), axis=1).mean()  # neighbours are alike
    page.set("#find-context", "PATIENT 01")
    assert page.text("#map-count") == "Showing 10 of 200 contexts and all 8 MCPCs."
    page.set("#find-context", "")
    page.set("#least", 80)
    carry = (scaled >= 0.8).any(axis=1)
    assert page.text("#map-count") == f"Showing {carry.sum()} of 200 contexts and all 8 MCPCs."
    page.set("#least", 0)
    page.set("#find-mcpc", "3")
    assert page.run("return mcpca.map.view.columns") == [2]
    page.set("#find-mcpc", "GENE 29")
    a = np.abs(model.components_)
    strong = [j for j in range(8) if 29 in np.argsort(-model.components_[:, j])[:25] or 29 in np.argsort(a[:, j])[-25:]]
    assert set(page.run("return mcpca.map.view.columns")) >= set(strong)
    page.set("#find-mcpc", "")
    page.set("#rows-height", "read")
    assert page.run("return document.querySelectorAll('.map-names span').length") < 80  # only those in view are there
    # Intervals, of the context with the largest loading.
    lower, upper = errors.intervals(B)
    top = int(np.argmax(B[:, 0]))
    row = page.table("#mcpc", 1)[0]
    assert [float(cell) for cell in row[1:4]] == [shown(v[top, 0]) for v in (B, lower, upper)]
    trace = page.chart("loadings")[0]
    assert trace["error_x"]["array"][0] == pytest.approx(upper[top, 0] - B[top, 0], rel=1e-3)
    page.set("#rows-height", "fit")
    page.set("#row-order", "given")


def test_hostile_names_are_text(browser, many):
    path, model, _ = many
    index = {name: i for i, name in enumerate(model.contexts_.tolist())}
    for name in NAMES.values():
        page = Page(browser, path, address=f"#mcpc=1&context={index[name] + 1}&other=100")
        assert page.run("return mcpca.chosen.context") == index[name]
        seen = page.run("return document.querySelector('#context-select').selectedOptions[0].textContent")
        if len(name) > 100:
            assert seen == "N" * 59 + "\u2026"
            page.run("document.querySelector('.whole-name').open = true")
            assert page.text(".whole-name p") == name
        else:
            assert seen in (visible(name), name[:59] + "\u2026")
        label = page.run("return document.querySelector('.map-names .chosen').textContent")
        assert label.rstrip("\u2026") == seen[: len(label.rstrip("\u2026"))]
        # Plotly shows the characters too: the legend of the comparison names both contexts.
        page.chart("compare")
        legend = page.run("return document.querySelector('#chart-compare .legendtext').textContent")
        assert cut(legend) == cut(visible(name))
        assert page.run("return window.harmed") is None
        assert (
            page.run("return document.querySelectorAll('main img, main i, main a[href^=javascript], main br').length")
            == 0
        )
        assert page.messages() == []
        assert set(page.requests()) <= {path.as_uri()}
    # Names of features, which Plotly writes beside the bars.
    labels = "return [...document.querySelectorAll('#chart-features .ytick text')].map((t) => t.textContent)"
    for j, a in enumerate(model.components_.T):
        page = Page(browser, path, address=f"#mcpc={j + 1}&context=1&other=2")
        page.chart("features")
        order = np.argsort(-a, kind="stable")
        bars = [i for i in order[:10] if a[i] > 0] + [i for i in order[-10:] if a[i] < 0]
        assert [cut(t) for t in page.run(labels)] == [cut(visible(model.feature_names_in_[i])) for i in bars]
    assert page.run("return document.querySelectorAll('svg a, svg [style*=bold]').length") == 0
    assert page.run("return window.harmed") is None
    assert page.text("h1") == "<i>Two hundred</i> patients"


def test_saved_names_are_no_formulas(browser, many, tmp_path):
    path, model, _ = many
    page = Page(browser, path)
    page.run("mcpca.save = (file, text) => { window.saved = text }")
    page.run("document.querySelector('#diagnostics button[aria-label^=Save]').click()")
    rows = list(csv.reader(io.StringIO(page.run("return window.saved"))))
    assert [row[0] for row in rows[1:]] == [n if not n.startswith("=") else f"'{n}" for n in model.contexts_]
    np.testing.assert_allclose([float(row[1]) for row in rows[1:]], model.n_samples_per_context_)


def test_policy_forbids_other_scripts_and_the_network(browser, digits):
    page = Page(browser, digits[0])
    page.run("const s = document.createElement('script'); s.textContent = 'window.harmed = 1'; document.body.append(s)")
    page.run(
        "const b = document.createElement('button'); b.setAttribute('onclick', 'window.harmed = 2');"
        "document.body.append(b); b.click()"
    )
    page.run("const i = new Image(); i.src = 'https://example.org/x.png'; document.body.append(i)")
    answer = browser.execute_async_script(
        "const done = arguments[0]; fetch('https://example.org').then(() => done('sent'), (e) => done(e.name))"
    )
    assert answer == "TypeError"
    assert page.run("return window.harmed") is None
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {e["params"]["requestId"] for e in events if "example.org" in str(e["params"].get("request"))}
    blocked = {e["params"]["requestId"] for e in events if e["params"].get("blockedReason") == "csp"}
    assert asked == blocked != set()
    assert sum("Content Security Policy" in message for message in page.messages()) >= 4


def test_narrow_dark_and_print(browser, many, digits):
    for path in (digits[0], many[0]):
        page = Page(browser, path, size=NARROW)
        page.wait_for_width(NARROW[0])
        for section in ("map", "mcpc", "context", "compare", "scatter", "diagnostics", "rank", "about"):
            right = page.run("return document.getElementById(arguments[0]).getBoundingClientRect().right", section)
            assert right <= NARROW[0]
    page = Page(browser, many[0], dark=True)
    assert np.median(page.picture()) < 0.2
    page.find("#theme").click()
    assert page.run("return document.documentElement.dataset.theme") == "light"
    assert np.median(page.picture()) > 0.8
    width = "return document.querySelector('#chart-features .main-svg').getBoundingClientRect().width"
    page.run(
        "window.addEventListener('beforeprint', () => { window.all = [...document.querySelectorAll('.chart')]"
        ".map((c) => [mcpca.painted(c), c.layout.width]) })"
    )
    before = page.run(width)
    page.find("#theme").click()
    pdf = base64.b64decode(page.send("Page.printToPDF", printBackground=True)["data"])
    assert pdf.startswith(b"%PDF")
    assert page.run("return window.all") == [[True, 680]] * 9  # all charts were there, as wide as the paper
    assert page.run("return document.documentElement.dataset.theme") == "dark"
    page.wait(lambda: page.run(width) == before)
    assert page.messages() == []


def test_pictures_of_the_documentation(browser, many, digits, tmp_path):
    folder = Path(os.environ.get("MCPCA_SCREENSHOTS") or tmp_path)
    model = copy.copy(many[1])
    model.contexts_ = np.array([f"patient {i + 1}" for i in range(200)])
    model.feature_names_in_ = np.array([f"gene {j + 1}" for j in range(30)], dtype=object)
    path = write_report(model, tmp_path / "report.html", standard_errors=many[2], title="Two hundred patients")
    address = "#mcpc=2&context=40&other=6"
    page = Page(browser, path, dark=True, address=address)
    page.set("#row-order", "cluster")
    page.set("#column-order", "cluster")
    assert page.picture(folder / "report_dark.png").shape[:2] == (WIDE[1], WIDE[0])
    page.find("#theme").click()
    page.run("document.activeElement.blur()")
    assert page.picture(folder / "report_map.png").std() > 0.1
    page = Page(browser, path, size=NARROW, address=address)
    page.wait_for_width(NARROW[0])
    assert page.picture(folder / "report_narrow.png").shape[:2] == (NARROW[1], NARROW[0])
    page = Page(browser, digits[0], address="#mcpc=2&context=3&other=2")
    page.chart("rows")
    assert page.picture(folder / "report_rows.png").std() > 0.05
