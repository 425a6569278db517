"""The report with what its extra brings, plotly: arrays, lists and dictionaries in, without tables or pictures."""

import numpy as np
import pytest
from reading_reports import content

from mcpca import MCPCA, select_rank
from mcpca.datasets import make_contexts
from mcpca.report import render, write_report

NAMES = np.array(["lung", "skin", "gut", "bone", "liver"])


@pytest.fixture(scope="module")
def planted():
    truth = make_contexts(n_contexts=5, n_features=12, n_components=3, n_samples=60, random_state=0)
    return truth.X, NAMES[truth.y], MCPCA(3, random_state=0).fit(truth.X, NAMES[truth.y])


def test_numbers_are_those_of_the_fit(planted):
    X, y, model = planted
    data = content(render(model, X=X, y=y))
    np.testing.assert_allclose(data["loadings"], model.corrected_loadings_, atol=1e-4)
    assert data["contexts"] == sorted(NAMES)
    assert data["ofContexts"]["rows"] == [60] * 5
    assert len(data["rows"]["contexts"]) == 5


def test_a_page_with_all_that_is_known(planted, tmp_path):
    X, y, model = planted
    systems = dict(zip(NAMES.tolist(), ["breath", "cover", "food", "frame", "food"], strict=True))
    selection = select_rank(X, y, ranks=(2, 3), criteria=(), random_state=0)
    path = tmp_path / "page.html"
    known = {"context_metadata": {"system": systems}, "row_metadata": {"depth": np.arange(len(y), dtype=float)}}
    write_report(model, path, X=X, y=y, selection=selection, **known)
    data = content(path.read_text(encoding="utf-8"))
    assert [column["name"] for column in data["metadata"]["contexts"]] == ["system"]
    assert [column["name"] for column in data["metadata"]["rows"]] == ["depth"]
    assert data["rank"]["reason"] == selection.reason
