"""What a notebook shows of a model: scikit-learn's diagram before a fit, the map and a line per MCPC after it."""

import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import sklearn
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mcpca import MCPCA
from mcpca.datasets import make_contexts
from mcpca.poles import poles
from mcpca.sharing import carrying_contexts

HOSTILE = "<script>\u202e\ud800"


class Text(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.texts.append(data)


def fitted(k=5, p=8, r=3, labels=None, names=None):
    rows = make_contexts(k, p, r, n_samples=80, random_state=0)
    # As objects: text of pandas 3 holds no surrogates.
    X = rows.X if names is None else pd.DataFrame(rows.X, columns=pd.Index(names, dtype=object))
    y = rows.y if labels is None else np.array(labels, dtype=object)[rows.y]
    return MCPCA(r, random_state=0).fit(X, y)


def lines(html):
    """Cells of the table, row by row."""
    rows = re.findall(r"<tr>(.*?)</tr>", html)[1:]
    return [["".join(Text(cell).texts) for cell in re.findall(r"<t[hd]>(.*?)</t[hd]>", row)] for row in rows]


def test_a_fitted_model_shows_its_map_and_a_line_per_mcpc():
    names = [f"gene {j}" for j in range(8)]
    model = fitted(labels=["a", "b", "c", "d", "e"], names=names)
    html = model._repr_html_()
    assert html == model._repr_mimebundle_()["text/html"]
    assert model._repr_mimebundle_()["text/plain"] == repr(model)
    assert "3 MCPCs of 5 contexts, 8 features, 400 rows" in html
    assert "corrected loadings" in html
    B = model.corrected_loadings_
    shares = B.sum(axis=0) / B.sum()
    table = lines(html)
    assert [row[0] for row in table] == ["MCPC 1", "MCPC 2", "MCPC 3"]
    for j, row in enumerate(table):
        ends = poles(model.components_, names, j, 3)
        carriers = [model.contexts_[i] for i in carrying_contexts(B[:, j])]
        told = ", ".join(carriers[:3]) + (f" and {len(carriers) - 3} more" if len(carriers) > 3 else "")
        expected = [f"{shares[j]:.0%}", told, *(", ".join(pole.names) or "none" for pole in ends)]
        assert row[1:] == expected
    # A cell for each loading that is at least a sixteenth of the largest of its MCPC, the darkest for that one.
    shown = np.round(8 * B / B.max(axis=0))
    assert html.count("M") - html.count("MCPC") == (shown > 0).sum()
    darkest = re.search(r'<path d="([^"]*)" fill-opacity="1"/>', html)[1]
    assert darkest.count("M") == (shown == 8).sum() >= 3
    assert len(html) < 6000


def test_large_models_are_cut_off_and_say_so():
    model = fitted(k=30, p=40, r=15)
    html = model._repr_html_()
    assert "... and 10 more contexts" in html
    assert "... and 3 more MCPCs" in html
    assert len(lines(html)) == 12
    assert len(html) < 20_000


def test_names_are_text():
    names = [HOSTILE, *(f"f{j}" for j in range(7))]
    html = fitted(labels=[HOSTILE, "b" * 300, "", "d", "e"], names=names)._repr_html_()
    page = Text(html)
    assert set(page.tags) <= {"div", "p", "b", "br", "code", "svg", "g", "path", "text", "table", "thead", "tbody"} | {
        *("tr", "th", "td", "bdi")
    }
    assert "<script>\u27e8U+202E\u27e9\u27e8U+D800\u27e9" in page.texts
    assert "b" * 30 not in html
    assert any("(empty)" in text for text in page.texts)
    html.encode("ascii")  # also where names have what no file can hold


def test_before_a_fit_and_in_pipelines_the_diagram_is_scikit_learns():
    model = MCPCA(3)
    assert "sk-container" in model._repr_html_()
    rows = make_contexts(5, 8, 3, n_samples=80, random_state=0)
    pipeline = make_pipeline(StandardScaler(), MCPCA(3, random_state=0))
    for each in (pipeline, pipeline.fit(rows.X, rows.y)):
        diagram = each._repr_html_()
        assert "sk-container" in diagram
        assert "StandardScaler" in diagram
        assert "MCPCA" in diagram
        assert "<svg role" not in diagram
    assert "<svg role" in pipeline[-1]._repr_html_()


def test_the_setting_of_scikit_learn_is_obeyed():
    model = fitted()
    with sklearn.config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert "text/html" not in model._repr_mimebundle_()
    assert hasattr(model, "_repr_html_")
