import importlib.util
import re
import signal

import numpy as np
import pytest

NEEDED = {"mcpca", "numpy", "scipy", "sklearn", "pytest"}  # without which nothing is tested


def pytest_addoption(parser):
    parser.addoption(
        "--only-installed",
        action="store_true",
        help="skip tests that import a package which is not installed, for environments without all extras",
    )


def pytest_configure():
    """Let Ctrl-C reach tests that send it: shells start what runs in the background with the signal ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _not_installed(name):
    """Return the root of the module's name if that is not installed and need not be, else None."""
    root = (name or "").partition(".")[0]
    return root if root and root not in NEEDED and importlib.util.find_spec(root) is None else None


def missing_extra(error):
    """Return the package that this error says is not installed, or None if the error means anything else.

    An import that fails in a test tells what the test needs. One that fails in mcpca must name the extra to install, by
    ``require``; if it does not, that is a failure.
    """
    if not isinstance(error, ImportError):
        return None
    if 'pip install "mcpca[' in str(error):
        return _not_installed(getattr(error.__cause__, "name", None)) or _not_installed(str(error).split()[0])
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] == "mcpca":
            return None
        trace = trace.tb_next
    return _not_installed(error.name)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    if collector.config.getoption("--only-installed") and report.failed:
        text = str(report.longrepr)
        last = re.findall(r"^E +ModuleNotFoundError: No module named '([\w.]+)'", text, re.MULTILINE)
        missing = _not_installed(last[-1]) if last else None
        if missing:
            report.outcome = "skipped"
            report.longrepr = (str(collector.path), 1, f"Skipped: {missing} is not installed")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if item.config.getoption("--only-installed") and report.failed and call.excinfo is not None:
        missing = missing_extra(call.excinfo.value)
        if missing:
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {missing} is not installed")
    return report


@pytest.fixture
def rng():
    return np.random.default_rng(20240229)


@pytest.fixture(autouse=True)
def no_luck(monkeypatch):
    """What is drawn without a seed is the same in every run."""
    drawn = np.random.default_rng
    monkeypatch.setattr(np.random, "default_rng", lambda seed=None: drawn(5 if seed is None else seed))
