"""The layout of the report in a browser: no text on other text, nothing clipped, all of the map in view."""

import re
import warnings
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
from browsing import Page
from sklearn.exceptions import ConvergenceWarning

from mcpca import MCPCA, IdentifiabilityWarning
from mcpca._inference.dependence_result import ContextDependence
from mcpca._inference.presence import Presence
from mcpca._inference.replication import Replicability
from mcpca.datasets import make_contexts
from mcpca.report import _page, write_report

TEXT_BOXES = (Path(__file__).parents[1] / "support" / "text_boxes.js").read_text(encoding="utf-8")
WIDTHS = (390, 1024, 1400, 1920, 2560)


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    """A report with everything that can be tested of an MCPC."""
    truth = make_contexts(n_contexts=12, n_features=20, n_components=5, n_samples=60, noise=0.2, random_state=0)
    names = np.array([f"a context with a long name, {i + 1}" for i in range(12)])
    y = names[truth.y]
    model = MCPCA(5, solver="ml", random_state=0).fit(truth.X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)
        halves = model.replicability(truth.X, y, n_splits=2, random_state=0)
    dependence = model.context_dependence(truth.X, y, n_permutations=19, random_state=0)
    folder = tmp_path_factory.mktemp("tested")
    given = {"replicability": halves, "context_dependence": dependence, "presence": model.presence()}
    return write_report(model, folder / "report.html", X=truth.X, y=y, **given), model, given


def verdicts(model, rows=40):
    """Results of tests made by hand: MCPCs come back, differ and are present, or not, or (the last) are not known."""
    k, r = model.loadings_.shape
    yes = np.arange(r) % 2 == 0
    cosines = np.where(yes, 0.97, 0.4) * np.ones((3, 1))
    p = np.where(np.arange(r) % 3 == 0, 0.001, 0.8)
    ones = np.ones(r)
    dependence = ContextDependence(
        0.001, p, 2 * ones, ones, np.ones((k, r)), model.contexts_, np.full(k, rows), ones, 0.001
    )
    adjusted = np.where(np.arange(k)[:, None] < np.linspace(0, k, r).astype(int), 0.01, 0.7)
    presence = Presence(ones, adjusted, adjusted, adjusted <= 0.05, 0.05, "fdr")
    return {"replicability": Replicability(cosines), "context_dependence": dependence, "presence": presence}


def exact_model(k, r, name="patient {}"):
    """A model of covariances that are as it says, in no time."""
    names = [name.format(i + 1) for i in range(k)]
    rng = np.random.default_rng(k + r)
    A, B = rng.standard_normal((r + 4, r)), rng.random((k, r))
    S = np.einsum("pr,kr,qr->kpq", A, B, A) + 0.1 * np.eye(r + 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return MCPCA(r, random_state=0, max_iter=20).fit_covariances(S, context_names=names)


def sweep(page, width, height=900):
    """Return what overlaps, by section; every section is scrolled to."""
    page.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    page.driver.set_script_timeout(60)
    answer = page.driver.execute_async_script(
        f"const done = arguments[0]; {TEXT_BOXES} sweep().then(done, (e) => done({{error: String(e)}}))"
    )
    assert "error" not in answer, answer
    assert all(section["count"] > 10 for section in answer.values())
    return answer


def test_no_text_lies_on_other_text(browser, tested):
    page = Page(browser, tested[0])
    sections = page.run("return [...document.querySelectorAll('main section')].map((s) => s.id)")
    assert {"map", "list", "mcpc", "context", "compare", "diagnostics", "rank", "about"} <= set(sections)
    failures = []
    for width in WIDTHS:
        themes = set()
        for _ in range(2):
            theme = page.run("return document.documentElement.dataset.theme")
            themes.add(theme)
            for section, answer in sweep(page, width).items():
                failures += [f"{theme}, {width} px, #{section}: {each}" for each in answer["found"]]
            if len(themes) == 1:
                page.find("#theme").click()
        assert themes == {"light", "dark"}
    assert not failures, "\n".join(failures)
    # What is asked for can fail: in one grid with all the rest, the map stays over it.
    page.run(
        "const rest = document.querySelector('.rest'); rest.style.gridColumn = '1 / -1';"
        "document.querySelector('.explore').append(rest)"
    )
    found = sweep(page, 1400)
    assert all(found[section]["found"] for section in ("diagnostics", "about"))
    page.driver.get("about:blank")


# What does not fit: [what, pixels that it has, pixels that it needs].
CLIPPED = """
  const clipped = [];
  const ruler = document.createElement("canvas").getContext("2d");
  const check = (what, has, needs) => { if (needs > has + 0.6) clipped.push([what, has, needs]); };
  const content = (node) => {
    const style = getComputedStyle(node);
    ruler.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    return node.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  };
  for (const input of document.querySelectorAll("input[placeholder]")) {
    const has = content(input);
    check(`placeholder of #${input.id}`, has, ruler.measureText(input.placeholder).width);
  }
  const ARROW = 20; // pixels, at the right of a select
  for (const select of document.querySelectorAll("#map .controls select")) {
    const has = content(select) - ARROW;
    if (select.clientWidth === 0) continue; // hidden
    for (const option of select.options) if (!option.disabled) check(`${select.id}: ${option.text}`, has, ruler.measureText(option.text).width);
  }
  for (const select of document.querySelectorAll("#criterion")) check("criterion", content(select) - ARROW, ruler.measureText("split-half agreement").width);
  for (const details of document.querySelectorAll(".table details")) details.open = true;
  for (const head of document.querySelectorAll("thead th")) {
    const [outer, inner] = [head.getBoundingClientRect(), document.createRange()];
    inner.selectNodeContents(head);
    const text = inner.getBoundingClientRect();
    check(`header ${head.textContent}`, outer.width, text.right - Math.min(text.left, outer.left));
    check(`header ${head.textContent}, down`, outer.height, text.height);
  }
  for (const node of document.querySelectorAll("#heatmap, #list .scroll, .map-numbers span")) {
    check(`${node.id || node.className} ${node.textContent.slice(0, 8)}, across`, node.clientWidth, node.scrollWidth);
    if (node.id === "heatmap") check("heatmap, down", node.clientHeight, node.scrollHeight);
  }
  const numbers = [...document.querySelectorAll(".map-numbers [data-mcpc]")].map((n) => n.getBoundingClientRect());
  numbers.sort((a, b) => a.left - b.left);
  const [frame, names] = [".map-numbers", ".map-names"].map((at) => document.querySelector(at).getBoundingClientRect());
  numbers.forEach((box, at) => {
    check(`number ${at} and the one before`, box.left - (at ? numbers[at - 1].right + 3 : names.right), 0);
    check(`number ${at} and the end`, frame.right, box.right);
  });
  const lines = [...document.querySelectorAll(".map-numbers .map-corner")].map((n) => n.getBoundingClientRect().right);
  return { clipped, numbers: numbers.length, corner: Math.max(...lines) - numbers[0].left,
    rows: mcpca.map.view.rows.length, columns: mcpca.map.view.columns.length, rowHeight: mcpca.map.view.rowHeight,
    said: document.getElementById("map-in-view").textContent,
    below: document.getElementById("heatmap").getBoundingClientRect().bottom - innerHeight };
"""


@pytest.fixture
def without_charts(monkeypatch):
    """The page without Plotly, which takes longer to read than all the rest: charts stay empty."""
    stub = "window.Plotly = { react() {}, purge() {}, Plots: { resize() {} } };"
    monkeypatch.setattr(_page, "_plotly", lambda: stub)


@pytest.mark.usefixtures("without_charts")
@pytest.mark.parametrize(("k", "r"), [(12, 3), (12, 12), (12, 50), (250, 3), (250, 12), (250, 50)])
def test_all_of_the_map_is_in_view_and_nothing_is_clipped(browser_with_bars, tmp_path, k, r):
    model = exact_model(k, r)
    path = write_report(model, tmp_path / "report.html", **verdicts(model))
    page = Page(browser_with_bars, path, size=(1400, 900))
    assert page.run("return innerWidth - document.documentElement.clientWidth") > 0  # bars take room here
    for width, height in ((1400, 900), (390, 844), (1024, 768), (1920, 1080)):
        page.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        page.wait(lambda: page.run("return mcpca.map.view.room === document.getElementById('map-view').clientWidth"))
        found = page.run(CLIPPED)
        assert not found["clipped"], f"{width} px: {found['clipped']}"
        assert (found["rows"], found["columns"], found["said"]) == (k, r, "")
        assert found["rowHeight"] >= 1
        assert found["numbers"] >= min(r, 8)
        assert found["corner"] <= 0
        if width == 1400:
            assert found["below"] < 0  # all of it, when the page is opened
        page.driver.get_log("browser")


@pytest.mark.usefixtures("without_charts")
def test_what_is_in_view_is_said_where_it_is_not_all(browser_with_bars, tmp_path):
    path = write_report(exact_model(900, 3), tmp_path / "report.html")
    page = Page(browser_with_bars, path, size=(1024, 768))
    page.send("Emulation.setDeviceMetricsOverride", width=1024, height=768, deviceScaleFactor=1, mobile=False)
    said = "return document.getElementById('map-in-view').textContent"
    found = re.fullmatch(r"In view: rows 1 to (\d+) of 900; scroll for the others\.", page.run(said))
    height = page.run("return mcpca.map.view.height - mcpca.map.view.head")
    assert int(found[1]) == int(height / page.run("return mcpca.map.view.rowHeight")) < 900
    page.run("document.getElementById('heatmap').scrollTop = 1e6")
    page.wait(lambda: f"rows {901 - int(height)} to 900 of 900" in page.run(said))
    # Fewer contexts are all in view again, and sideways there is nothing to scroll.
    assert page.run("const h = document.getElementById('heatmap'); return h.scrollWidth <= h.clientWidth")
    page.set("#find-context", "patient 1")
    page.wait(lambda: page.run(said) == "")
    page.set("#rows-height", "read")
    assert page.run(said).startswith("In view: rows 1 to ")
