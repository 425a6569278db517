"""Chromium for the tests of the report.

Where it, its driver or selenium is missing these are skipped; MCPCA_REQUIRE_BROWSER=1 makes that a failure.
"""

import os
import shutil

import pytest

from mcpca.report import _page


@pytest.fixture(scope="module")
def browser():
    """Chromium without scroll bars, as on a phone: pictures are of the page alone."""
    yield from _started("--hide-scrollbars")


@pytest.fixture(scope="module")
def browser_with_bars():
    """Chromium with scroll bars that take room, as on most desktops."""
    yield from _started()


def _started(*more):
    binary = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        webdriver = None
    missing = [
        name for name, found in (("Chromium", binary), ("chromedriver", driver), ("selenium", webdriver)) if not found
    ]
    if missing:
        reason = f"{' and '.join(missing)} not found"
        if os.environ.get("MCPCA_REQUIRE_BROWSER") == "1":
            pytest.fail(f"{reason}, and MCPCA_REQUIRE_BROWSER=1 asks for it.")
        pytest.skip(f"{reason}: the report is not tried in a browser")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    # Containers have no sandbox for root and little shared memory.
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", *more):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(driver))
    yield found
    found.quit()


@pytest.fixture
def without_charts(monkeypatch):
    """The page without Plotly, which takes longer to read than all the rest: charts stay empty."""
    stub = "window.Plotly = { react() {}, purge() {}, Plots: { resize() {} } };"
    monkeypatch.setattr(_page, "_plotly", lambda: stub)
