"""The layout of the report in a browser: no text on other text, nothing clipped, all of the map in view."""

import re
import warnings
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
from browsing import Page
from verdicts import exact_model, verdicts

from mcpca import MCPCA, IdentifiabilityWarning, select_rank
from mcpca.datasets import make_contexts
from mcpca.report import write_report

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
    given["selection"] = select_rank(truth.X, y, ranks=[4, 5], solver="ml", random_state=0)
    return write_report(model, folder / "report.html", X=truth.X, y=y, **given), model, given


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


# The widest of a select's options that it has no room for, or null; its arrow takes 20 pixels.
TOO_NARROW = """
  const select = document.querySelector(arguments[0]), style = getComputedStyle(select);
  const ruler = document.createElement("canvas").getContext("2d");
  ruler.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  const has = select.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - 20;
  return [...select.options].map((option) => option.text).find((text) => ruler.measureText(text).width > has) ?? null;
"""


def test_no_text_lies_on_other_text(browser, tested):
    page = Page(browser, tested[0])
    sections = page.run("return [...document.querySelectorAll('main section')].map((s) => s.id)")
    assert {"map", "list", "mcpc", "context", "compare", "diagnostics", "rank", "about"} <= set(sections)
    failures = []
    for width in WIDTHS:
        for theme in ("light", "dark"):
            # By the button once, else by the style alone: charts painted anew take long, and lie where they lay.
            if (width, theme) == (1400, "dark"):
                page.find("#theme").click()
            page.run("document.documentElement.dataset.theme = arguments[0]", theme)
            found = sweep(page, width)
            assert page.run(TOO_NARROW, "#criterion") is None
            for section, answer in found.items():
                failures += [f"{theme}, {width} px, #{section}: {each}" for each in answer["found"]]
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
    for (const { text, disabled } of select.options)
      if (!disabled) check(`${select.id}: ${text}`, has, ruler.measureText(text).width);
  }
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
