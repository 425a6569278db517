"""The page of a comparison, and the report in a notebook's sandboxed frame, in Chromium."""

import io
import json

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from browsing import NARROW, WIDE
from reading_reports import content, elements

import mcpca.report
from mcpca import MCPCA, compare_models
from mcpca.datasets import make_contexts
from mcpca.report import Report, render_comparison, report, write_comparison

HOSTILE = "<img src=x onerror=\"document.title='hit'\">&amp; \u202eevil</script>"


@pytest.fixture(scope="module")
def models():
    rows = make_contexts(7, 12, 4, n_samples=300, noise=0.05, random_state=2)
    names = [f"f{j}" for j in range(11)] + [HOSTILE]
    table = pd.DataFrame(rows.X, columns=names)
    labels = np.array([HOSTILE, *"bcdefg"], dtype=object)[rows.y]
    first = MCPCA(4, random_state=0).fit(table, labels)
    second = MCPCA(3, solver="lsq", random_state=0).fit(table.iloc[:, ::-1], labels)
    return first, second, table, labels


@pytest.fixture(scope="module")
def page(models, tmp_path_factory):
    file = tmp_path_factory.mktemp("comparison") / "comparison.html"
    found = compare_models(*models[:2], names=(HOSTILE, "after"), threshold=0.8)
    changes = [{"what": "--rank", "first": "4", "second": HOSTILE}]
    write_comparison(found, file, changes=changes, notes=["A note."])
    return found, file


def opened(driver, file, size=WIDE, dark=False, address=""):
    for kind in ("browser", "performance"):
        driver.get_log(kind)
    width, height = size
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    driver.get("about:blank")
    driver.get(file.as_uri() + address)
    return driver


def complaints(driver):
    return [entry["message"] for entry in driver.get_log("browser")]


def cells(driver, section, number=0):
    return driver.execute_script(
        "const t = document.querySelectorAll(arguments[0] + ' .table')[arguments[1]];"
        "t.querySelector('details').open = true; const more = t.querySelector('.more');"
        "if (!more.hidden && more.textContent.startsWith('Show all')) more.click();"
        "return [...t.querySelectorAll('tbody tr')].map(tr => [...tr.children].map(c => c.textContent))",
        section,
        number,
    )


# The page of a comparison ------------------------------------------------------------------------------------------


def test_the_page_holds_the_comparison_and_no_markup_of_names(page):
    found, file = page
    text = file.read_text()
    shown = content(text)
    assert [(p["first"], p["second"]) for p in shown["pairs"]] == list(
        zip(found.first.tolist(), found.second.tolist(), strict=True)
    )
    np.testing.assert_allclose([p["cosine"] for p in shown["pairs"]], found.cosines, rtol=1e-5)
    np.testing.assert_allclose(shown["ofFirst"]["loadings"], found.loadings[0], rtol=1e-3)
    np.testing.assert_allclose(shown["loadings"], found.loadings[1], rtol=1e-3)
    tags, attributes, scripts = elements(text)
    assert "img" not in tags
    assert len(scripts) == 2
    policy = next(value for tag, name, value in attributes if name == "content" and "default-src" in value)
    assert policy.count("sha256-") == 1
    assert "default-src 'none'" in policy
    assert len(text) < 100_000
    assert text == render_comparison(
        found, changes=[{"what": "--rank", "first": "4", "second": HOSTILE}], notes=["A note."]
    )


def test_pairs_are_chosen_and_read(browser, page):
    found, file = page
    driver = opened(browser, file, address="#pair=2")
    assert driver.execute_script("return mcpca.comparison.chosen.pair") == 1
    rows = cells(driver, "#mcpcs")
    partner = dict(zip(found.first.tolist(), found.second.tolist(), strict=True))
    assert [row[1] for row in rows] == [f"MCPC {partner[i] + 1}" if i in partner else "none" for i in range(4)]
    assert [row[3] for row in rows].count("comes back") == int(found.returns.sum()) > 0
    lines = driver.find_elements("css selector", "#mcpcs .finding p")
    assert lines[0].text.endswith("(|cos| >= 0.8); 1 not.")
    # The table of all |cos| has the numbers of the library, and frames the pairs.
    matrix = driver.execute_script(
        "return [...document.querySelectorAll('.cosines tbody tr')].map(tr => [...tr.querySelectorAll('td')]"
        ".map(td => [Number(td.textContent), td.classList.contains('paired')]))"
    )
    np.testing.assert_allclose([[cell[0] for cell in row] for row in matrix], found.all_cosines, atol=0.00501)
    framed = [(i, j) for i, row in enumerate(matrix) for j, cell in enumerate(row) if cell[1]]
    assert framed == [(i, partner[i]) for i in sorted(partner)]
    # A click on an MCPC leads to its pair: its loadings in both, the largest difference first.
    n = 2
    driver.execute_script(
        "document.querySelectorAll('#mcpcs tbody button.link')[arguments[0]].click()", int(found.first[n])
    )
    assert driver.execute_script("return location.hash") == "#pair=3"
    shown = cells(driver, "#pair")
    difference = found.differences[:, n]
    order = np.argsort(-np.abs(difference), kind="stable")
    np.testing.assert_allclose([float(row[3]) for row in shown], difference[order], atol=2e-3)
    assert shown[[found.contexts[i] for i in order].index(HOSTILE)][0].startswith("<img src=x")
    bars = driver.execute_script(
        "return [...document.querySelectorAll('#bars-loadings svg')].map(s => [...s.querySelectorAll('rect')]"
        ".map(r => Number(r.getAttribute('width'))))"
    )
    values = np.array([found.loadings[0][:, found.first[n]], found.loadings[1][:, found.second[n]]]).T[order]
    np.testing.assert_allclose(np.array(bars), 100 * values / values.max(), rtol=5e-3, atol=1e-2)
    # Weights of the second are turned where its MCPC points the other way, so that signs agree.
    weights = np.array([[float(row[1]), float(row[2])] for row in cells(driver, "#pair", 1)])
    assert (weights[0] > 0).all() or (weights[0] < 0).all()
    assert [row[0] for row in cells(driver, "#changes")] == ["--rank"]
    assert driver.title != "hit"
    assert complaints(driver) == []
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert {url.partition("#")[0] for url in asked if not url.startswith(("data:", "about:"))} == {file.as_uri()}


def test_the_page_is_used_by_keyboard_and_its_tables_are_saved(browser, page):
    _, file = page
    driver = opened(browser, file)
    driver.find_element("css selector", "[aria-label='Next pair']").send_keys("\ue007")  # Enter
    assert driver.execute_script("return mcpca.comparison.chosen.pair") == 1
    # Every control has a name; every table a caption and heads.
    unnamed = driver.execute_script(
        "return [...document.querySelectorAll('button, select, [role=region]')]"
        ".filter(e => !(e.getAttribute('aria-label') || e.textContent.trim())).length"
    )
    assert unnamed == 0
    assert driver.execute_script("return [...document.querySelectorAll('table')].every(t => t.caption && t.tHead)")
    saved = driver.execute_script(
        "const made = []; const old = URL.createObjectURL; URL.createObjectURL = (b) => (made.push(b), old(b));"
        "const buttons = [...document.querySelectorAll('.table-tools button')];"
        "buttons.find(b => b.textContent.startsWith('Save')).click();"
        "return made.length"
    )
    assert saved == 1
    assert complaints(driver) == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_nothing_is_cut_off_and_text_can_be_read(browser, page, size, dark):
    _, file = page
    driver = opened(browser, file, size, dark)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= size[0]
    # Contrast of numbers on their cells, of which the darkest is 1: at least 4.5 (WCAG AA).
    pairs = driver.execute_script(
        "return [...document.querySelectorAll('.cosines tbody td')].map(td => {"
        "const s = getComputedStyle(td); return [s.color, s.backgroundColor]})"
    )
    assert pairs

    def luminance(colour):
        numbers = [float(x) for x in colour[colour.index("(") + 1 : -1].replace("srgb", "").replace(",", " ").split()]
        rgb = np.array(numbers[:3]) / (1 if colour.startswith("color(") else 255)
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    for text, ground in pairs:
        lighter, darker = sorted((luminance(text), luminance(ground)), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5
    assert driver.execute_script("return document.documentElement.dataset.theme") == ("dark" if dark else "light")


def test_files_of_comparisons_are_not_replaced_unasked(page, tmp_path):
    found, _ = page
    (tmp_path / "x.html").write_text("mine")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write_comparison(found, tmp_path / "x.html")
    with pytest.raises(IsADirectoryError, match=r"comparison\.html"):
        write_comparison(found, tmp_path)
    with pytest.raises(FileNotFoundError, match="create it first"):
        write_comparison(found, tmp_path / "no" / "x.html")
    with pytest.raises(TypeError, match="pass what compare_models returned"):
        render_comparison("two runs")
    with pytest.raises(TypeError, match="title"):
        render_comparison(found, title=3)


# The report in a notebook ------------------------------------------------------------------------------------------


def test_the_report_works_inside_a_sandboxed_frame(browser, models, tmp_path):
    first, _, table, labels = models
    shown = report(first, table, labels, title=f'a "quoted" & {HOSTILE}', height=700)
    assert isinstance(shown, Report)
    frame = shown._repr_html_()
    tags, attributes, _ = elements(frame)
    assert tags == ["iframe"]  # nothing of the page has got out of the attribute
    named = {name: value for _, name, value in attributes}
    assert named["srcdoc"] == shown.html
    assert "allow-same-origin" not in named["sandbox"]
    assert named["height"] == "700"
    file = tmp_path / "notebook.html"
    file.write_text(f"<!DOCTYPE html><meta charset=utf-8><title>nb</title><p>cell</p>{frame}", encoding="utf-8")
    driver = opened(browser, file)
    driver.switch_to.frame(driver.find_element("css selector", "iframe"))
    try:
        driver.set_script_timeout(30)
        driver.execute_async_script(
            "const done = arguments[0], look = () =>"
            " document.documentElement.dataset.ready === 'yes' ? done() : setTimeout(look, 30); look()"
        )
        assert driver.execute_script("return self.origin") == "null"
        driver.find_element("css selector", "#mcpc [aria-label^='Next']").click()
        assert driver.execute_script("return mcpca.chosen.mcpc") == 1
        driver.find_element("css selector", "nav a[href='#about']").click()
        button = driver.find_element("css selector", "#mcpc .table-tools button")
        driver.execute_script("arguments[0].scrollIntoView()", button)
        button.click()
        driver.execute_async_script(
            "const done = arguments[0], look = () =>"
            " document.getElementById('live').textContent === 'Copied.' ? done() : setTimeout(look, 30); look()"
        )
        driver.find_element("css selector", "#theme").click()
        assert driver.execute_script("return document.documentElement.dataset.theme") == "dark"
        # The chart is drawn: Plotly has been read, by the hash in the page's own policy.
        assert driver.execute_script("return !!window.Plotly")
    finally:
        driver.switch_to.default_content()
    assert driver.title == "nb"
    assert complaints(driver) == []
    picture = matplotlib.image.imread(io.BytesIO(driver.get_screenshot_as_png()))
    assert picture[..., :3].std() > 0.02


def test_a_report_is_a_file_when_it_is_saved(models, tmp_path, monkeypatch):
    first, _, table, labels = models
    shown = report(first, path=tmp_path / "report.html", title="mine")
    assert shown.path == tmp_path / "report.html"
    assert shown.path.read_text(encoding="utf-8") == shown.html == mcpca.report.render(first, title="mine")
    assert "report.html" in repr(shown)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        report(first, path=tmp_path / "report.html")
    alone = report(first, table, labels)
    assert alone.path is None
    assert "in memory" in repr(alone)
    assert alone.save(tmp_path / "second.html").read_text(encoding="utf-8") == alone.html
    with pytest.raises(FileExistsError, match="overwrite=True"):
        alone.save(tmp_path / "second.html")
    with pytest.raises(ValueError, match="overwrite=True has no effect without path"):
        report(first, overwrite=True)
    with pytest.raises(ValueError, match="height"):
        report(first, height=10)
    opened_pages = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened_pages.append(address) or True)
    monkeypatch.setattr("tempfile.mkdtemp", lambda **options: str(tmp_path))
    assert shown.open()
    (tmp_path / "report.html").unlink()
    assert alone.open()
    assert opened_pages == [(tmp_path / "report.html").as_uri()] * 2
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == alone.html
