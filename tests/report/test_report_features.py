"""Search of features in the report: every feature is found by any form of its name, with the model's numbers."""

import base64
import csv
import io
import json
import zlib
from decimal import Decimal
from functools import partial

import numpy as np
import pandas as pd
import pytest
from browsing import Page

from mcpca import MCPCA
from mcpca.datasets import make_contexts
from mcpca.poles import percentiles
from mcpca.report import _content, write_report
from mcpca.report._features import all_features

P, R = 120, 5
NAMES = {
    0: "TP53",
    1: "tp53",
    2: "TP53BP1",
    3: "WRAP-TP53",
    4: "<img src=x onerror='window.harmed = 1'>",
    5: "a\u200bb",  # a character that is not seen
    6: "=SUM(1)",
    7: "two\nlines\there",
    8: "N" * 300 + "end",
    9: "",
    10: "caf\u00e9",
    11: "'=quoted",
}


def numbers(content):
    """The fields of ``all_features``, read by the description in its module: arrays (n, each)."""
    planes = np.frombuffer(zlib.decompress(base64.b64decode(content["numbers"])), dtype=np.uint8)
    n, each = content["written"], content["each"]
    fields, at = {}, 0
    for name, size in content["fields"]:
        parts = planes[at : at + size * n * each].reshape(size, n, each).astype(np.int64)
        fields[name] = sum(part << 8 * (size - 1 - i) for i, part in enumerate(parts))
        at += size * n * each
    assert at == len(planes)
    return fields


def values(codes, largest, step):
    size = codes & 0x7FFF
    return np.where(codes >> 15, -1, 1) * np.where(size, largest * np.exp(-np.asarray(step) * (size - 1)), 0)


def names_of(content):
    return json.loads(zlib.decompress(base64.b64decode(content["names"])))


class Fit:
    """What ``all_features`` reads of a fit."""

    def __init__(self, A, projection=None):
        self.components, self.projection = A, np.linalg.pinv(A) if projection is None else projection
        self.features = [f"gene {i}" for i in range(len(A))]


@pytest.fixture
def wide():
    """Entries over fourteen orders of magnitude, with zeros, and an MCPC without any."""
    rng = np.random.default_rng(0)
    A = rng.choice([-1, 1], size=(400, 6)) * 10.0 ** rng.uniform(-13.9, 0, size=(400, 6))
    A[rng.random(A.shape) < 0.1] = 0
    A[:, 5] = 0
    return A


def test_entries_are_known_to_half_a_thousandth(wide):
    content = all_features(Fit(wide))
    found = values(numbers(content)["entry"], content["largest"], content["step"])
    kept = np.abs(wide) > 1e-12 * np.abs(wide).max(axis=0)
    assert 0.7 < kept[:, :5].mean() < 0.9
    np.testing.assert_allclose(found[kept], wide[kept], rtol=5e-4)
    assert not found[~kept].any()
    assert names_of(content) == [f"gene {i}" for i in range(400)]
    assert json.loads(json.dumps(content)) == content
    # The order of sizes survives, so percentiles that are counted from codes are right.
    codes = numbers(content)["entry"] & 0x7FFF
    order = np.argsort(-np.abs(wide[:, 0]), kind="stable")[:200]
    assert (np.diff(codes[order, 0]) >= 0).all()


def test_weights_of_scores_follow_from_the_entries():
    A = np.random.default_rng(0).standard_normal((50, 4))
    content = all_features(Fit(A))
    assert [name for name, _ in content["fields"]] == ["entry"]
    np.testing.assert_allclose(A @ np.array(content["inverse"]), np.linalg.pinv(A).T, rtol=1e-8, atol=1e-10)
    # Of another origin they are written.
    other = np.random.default_rng(1).standard_normal((4, 50))
    content = all_features(Fit(A, other))
    assert "inverse" not in content
    found = values(numbers(content)["weight"], content["largestWeight"], content["weightStep"])
    np.testing.assert_allclose(found, other.T, rtol=5e-4)


def test_beyond_the_limit_the_largest_entries_are_written():
    A = np.random.default_rng(0).standard_normal((90, 7))
    content = all_features(Fit(A), most_numbers=629, most_kept=270)
    fields = numbers(content)
    assert (content["written"], content["each"], content["features"]) == (90, 3, 90)
    np.testing.assert_array_equal(fields["mcpc"], np.argsort(-np.abs(A), axis=1)[:, :3])
    at = (np.arange(90)[:, None], fields["mcpc"])
    scale = [np.array(content[key])[fields["mcpc"]] for key in ("largest", "step")]
    np.testing.assert_allclose(values(fields["entry"], *scale), A[at], rtol=5e-4)
    scale = [np.array(content[key])[fields["mcpc"]] for key in ("largestWeight", "weightStep")]
    np.testing.assert_allclose(values(fields["weight"], *scale), np.linalg.pinv(A).T[at], rtol=5e-4)
    np.testing.assert_allclose(100 * fields["smaller"] / 90, percentiles(A)[at])
    # Names too, beyond a number of them: those with the largest entries, for their MCPC.
    content = all_features(Fit(A), most_numbers=10, most_kept=40, most_features=40)
    strength = (np.abs(A) / np.abs(A).max(axis=0)).max(axis=1)
    assert names_of(content) == [f"gene {i}" for i in sorted(np.argsort(-strength)[:40])]
    assert content["each"] == 1
    assert all_features(Fit(A), most_numbers=630)["each"] == 7


@pytest.fixture(scope="module")
def fitted():
    truth = make_contexts(n_contexts=5, n_features=P, n_components=R, n_samples=80, noise=0.2, random_state=1)
    X = pd.DataFrame(truth.X, columns=[NAMES.get(j, f"gene {j:03d}") for j in range(P)])
    return MCPCA(R, random_state=0).fit(X, truth.y)


@pytest.fixture(scope="module")
def report(fitted, tmp_path_factory):
    return write_report(fitted, tmp_path_factory.mktemp("features") / "report.html")


def search(page, text):
    """Type a text; return the words on what was found."""
    page.set("#find-feature", text)
    page.wait(lambda: page.run("return mcpca.features.searched") == text)
    return page.text("#feature-count")


def agree(shown, values):
    """Whether numbers as text are right to one in their last digit, and have at most three."""
    numbers = [Decimal(text) for text in shown]
    units = np.array([10.0 ** number.as_tuple().exponent for number in numbers])
    few = all(len(number.as_tuple().digits) <= 3 for number in numbers)
    return few and bool((np.abs(np.array(numbers, dtype=float) - values) <= 1.001 * units).all())


def found(page):
    script = "return [...document.querySelectorAll('#feature-matches li')].map((li) => li.firstChild.textContent)"
    return page.run(script)


def heading(page):
    return page.run("return document.querySelector('#feature h3')?.textContent")


def test_a_feature_has_the_models_numbers(browser, fitted, report):
    page = Page(browser, report)
    assert heading(page) is None
    search(page, "gene 050")
    assert heading(page) == "gene 050"
    a, w, q = fitted.components_[50], fitted.projection_[:, 50], percentiles(fitted.components_)[50]
    order = np.argsort(-np.abs(a))
    rows = page.table("#features")
    assert [row[0] for row in rows] == [f"MCPC {j + 1}" for j in order]
    assert agree([row[1] for row in rows], a[order])
    np.testing.assert_allclose([float(row[2].rstrip("%")) for row in rows], q[order], atol=0.05001)
    assert agree([row[3] for row in rows], w[order])
    assert min(len(Decimal(row[3]).as_tuple().digits) for row in rows) >= 2
    assert f"Its largest entry is {rows[0][1]}, in {rows[0][0]}: {rows[0][2]} of all 120" in page.text("#feature-words")
    np.testing.assert_allclose(page.chart("feature")[0]["x"], a[order], rtol=5.5e-3)
    # Saved as shown.
    page.run("mcpca.save = (file, text) => { window.saved = text }")
    page.run("document.querySelector('#features .table button[aria-label^=Save]').click()")
    saved = list(csv.reader(io.StringIO(page.run("return window.saved"))))
    assert saved[0] == ["MCPC", "entry", "percentile", "weight in scores"]
    assert [float(line[1]) for line in saved[1:]] == [float(row[1]) for row in rows]
    # A click on a line goes to the MCPC, and Back to where it came from.
    page.run("document.querySelectorAll('#features tbody button')[1].click()")
    assert page.address()["mcpc"] == str(order[1] + 1)
    assert page.run("return document.activeElement.id") == "mcpc"
    assert page.run("return document.querySelector('#features tr.marked').firstChild.textContent") == rows[1][0]
    assert page.messages() == []


def test_what_matched_is_shown_and_sorted(browser, report):
    page = Page(browser, report)
    words = search(page, "tp53")
    assert words == "4 features: 2 with this name, 1 that begin so, 1 that contain it."
    assert found(page) == ["tp53", "TP53", "TP53BP1", "WRAP-TP53"]
    assert heading(page) == "tp53"  # the same letters, of two that differ in their case
    marks = page.run("return [...document.querySelectorAll('#feature-matches mark')].map((m) => m.textContent)")
    assert marks == ["tp53", "TP53", "TP53", "TP53"]
    assert search(page, "gene 0").startswith("88 features: 88 that begin so; the first 20 are listed")
    assert len(found(page)) == 20
    assert search(page, "nowhere") == f"No feature has this in its name, of {P} features."
    # By keyboard: the first of the list, from the field.
    search(page, "WRAP")
    page.run("document.getElementById('find-feature').focus()")
    page.press("ArrowDown")
    assert page.run("return document.activeElement.textContent") == "WRAP-TP53"
    page.press("ArrowUp", "Enter")
    page.wait(lambda: heading(page) == "WRAP-TP53")
    assert page.address()["feature"] == "4"
    page.run("history.back()")
    page.wait(lambda: heading(page) == "tp53")


def test_names_as_shown_and_as_saved_find_the_feature(browser, report):
    page = Page(browser, report)
    for j, name in NAMES.items():
        forms = {
            4: [name],
            5: [name, "a\u27e8U+200B\u27e9b", "A\u27e8u+200b\u27e9B"],
            6: [name, "'=SUM(1)", "=sum(1)"],
            7: [name.replace("\n", ""), "two lines here", "two\u27e8U+000A\u27e9lines\u27e8U+0009\u27e9here"],
            8: [name, name[:39] + "\u2026"],
            9: ["(empty)"],
            10: [name, "cafe\u0301", "CAF\u00c9"],
            11: [name, "''=quoted"],
        }.get(j, [])
        for form in forms:
            search(page, "")
            search(page, form)
            chosen = page.run(
                "document.querySelector('#feature-matches button').click(); return mcpca.features.state.chosen"
            )
            page.wait(lambda j=j: page.run("return mcpca.features.state.chosen") == j)
            assert chosen is not None
    assert page.run("return window.harmed") is None
    assert page.run("return document.querySelectorAll('main img').length") == 0
    assert page.messages() == []
    assert page.requests() in ([], [report.as_uri()])


def test_a_link_and_a_pole_lead_to_a_feature(browser, fitted, report):
    browser.get("about:blank")
    page = Page(browser, report, address="#mcpc=2&context=1&other=2&find-feature=gene%2003&feature=36")
    page.wait(lambda: heading(page) == "gene 035")
    page.wait(lambda: len(found(page)) == 10)
    assert heading(page) == "gene 035"  # what is in the field does not change what is chosen
    first = page.table("#mcpc")[0][0]
    page.run("document.querySelector('#mcpc .table tbody button').click()")
    page.wait(lambda: heading(page) == first)
    assert page.run("return document.activeElement.id") == "features"
    top = np.argmax(fitted.components_[:, 1])
    assert page.address()["feature"] == str(top + 1)


def test_a_part_of_the_entries_is_said_to_be_one(browser, fitted, tmp_path, monkeypatch):
    limited = partial(all_features, most_numbers=100, most_kept=200, most_features=100)
    monkeypatch.setattr(_content, "all_features", limited)
    path = write_report(fitted, tmp_path / "report.html")
    page = Page(browser, path)
    words = page.text("#features p")
    assert "Of 120 features the 100 with the largest entries are in this file." in words
    assert "Of each feature its largest entries, 2 of 5, are in this file." in words
    A = fitted.components_
    strength = (np.abs(A) / np.abs(A).max(axis=0)).max(axis=1)
    f = next(i for i in np.argsort(-strength) if i not in NAMES)
    name = f"gene {f:03d}"
    search(page, name)
    rows = page.table("#features")
    order = np.argsort(-np.abs(A[f]))[:2]
    assert [row[0] for row in rows] == [f"MCPC {j + 1}" for j in order]
    assert agree([row[3] for row in rows], fitted.projection_[order, f])
    np.testing.assert_allclose([float(row[2].rstrip("%")) for row in rows], percentiles(A)[f, order], atol=0.05001)


def test_a_browser_that_cannot_unpack_is_told(browser, report):
    source = "delete window.DecompressionStream"
    script = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": source})["identifier"]
    browser.get("about:blank")
    page = Page(browser, report)
    page.set("#find-feature", "gene 001")
    page.wait(lambda: "This browser cannot unpack the features" in page.text("#feature-count"))
    page.set("#MCPC-select", 2)
    assert page.run("return mcpca.chosen.mcpc") == 2
    assert page.messages() == []
    browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", {"identifier": script})
    browser.get("about:blank")
