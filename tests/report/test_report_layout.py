"""The layout of the report in a browser: no text on other text, nothing clipped, all of the map in view."""

import warnings
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
from browsing import Page

from mcpca import MCPCA, IdentifiabilityWarning
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


def test_no_text_lies_on_other_text(browser, tested):
    page = Page(browser, tested[0])
    sections = page.run("return [...document.querySelectorAll('main section')].map((s) => s.id)")
    assert {"map", "list", "mcpc", "context", "compare", "diagnostics", "rank", "about"} <= set(sections)
    failures = []
    for theme in ("light", "dark"):
        if page.run("return document.documentElement.dataset.theme") != theme:
            page.find("#theme").click()
        for width in WIDTHS:
            for section, answer in sweep(page, width).items():
                failures += [f"{theme}, {width} px, #{section}: {each}" for each in answer["found"]]
    assert not failures, "\n".join(failures)
