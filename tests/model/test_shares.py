"""Shares of the squared covariance: error and explained add up in every path, and estimates say so."""

import json

import numpy as np
import pandas as pd
import pytest
from table_files import exact_csv

import mcpca._covariances.fit_data
import mcpca._covariances.streamed
from mcpca import MCPCA, facets, nonnegative_loadings
from mcpca._solvers import SOLVERS
from mcpca.cli import main
from mcpca.datasets import make_contexts
from mcpca.report import write_report

RANK = 4
DATA = make_contexts(n_contexts=6, n_features=150, n_components=RANK, n_samples=80, noise=0.4, random_state=3)
PATHS = ["formed", "passed over"]


def fit(monkeypatch, path, **options):
    monkeypatch.setattr(mcpca._covariances.fit_data, "by_passes", lambda *_: path == "passed over")
    return MCPCA(RANK, random_state=0, **options).fit(DATA.X, DATA.y)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("orthogonal", [False, True])
@pytest.mark.parametrize("solver", SOLVERS)
def test_error_and_explained_add_up(monkeypatch, solver, orthogonal, path):
    """Also where loadings are held at 0, are not those of least squares, or norms are estimates."""
    model = fit(monkeypatch, path, solver=solver, orthogonal=orthogonal)
    total = model.reconstruction_error("context") + model.variance_explained("context")
    np.testing.assert_allclose(total, model.squared_norms(), rtol=1e-13)
    np.testing.assert_allclose(model.variance_explained("component").sum(), model.variance_explained(), rtol=1e-12)
    np.testing.assert_allclose(
        model.explained_share("context"), 1 - model.reconstruction_error("context") / model.squared_norms(), rtol=1e-9
    )
    share = model.variance_explained() / model.squared_norms().mean()
    assert model.explained_share() == pytest.approx(share, rel=1e-12)


def test_loadings_held_at_zero_are_in_the_account():
    """A context on the far side of one axis from the other: without the bound that one would be subtracted."""
    A = np.array([[1, np.sqrt(0.5)], [0, np.sqrt(0.5)], [0, 0]])
    S = np.stack([np.outer(v, v) for v in ([1, 0.5, 0.2], [1, -0.3, 0.1])])
    B = nonnegative_loadings(S, A)
    assert (B[1] == 0).tolist() == [False, True]
    measured = facets(S, A, B)
    assert (measured.variance_shares >= 0).all()
    left = np.linalg.norm(S - np.einsum("pj,kj,qj->kpq", A, B, A), axis=(1, 2)) ** 2
    np.testing.assert_allclose(measured.reconstruction_errors, left, rtol=1e-12)
    np.testing.assert_allclose(measured.variance_shares.sum(axis=1) + left, measured.squared_norms, rtol=1e-12)


def test_estimated_shares_are_within_their_errors(monkeypatch):
    """And better by every pass: the last one has little left to estimate."""
    exact, estimated = fit(monkeypatch, "formed"), fit(monkeypatch, "passed over")
    assert exact.explained_share_error() == 0
    assert not exact.explained_share_error("context").any()
    errors = estimated.explained_share_error("context")
    assert (errors > 0).all()
    gap = (estimated.explained_share("context") - exact.explained_share("context")) / errors
    assert np.abs(gap).max() < 5
    assert estimated.explained_share_error() < 0.01
    assert abs(estimated.explained_share() - exact.explained_share()) < 4 * estimated.explained_share_error()


def test_norms_are_never_below_what_is_explained(monkeypatch):
    """An estimate that is too small would make an error below 0."""
    monkeypatch.setattr(
        mcpca._covariances.streamed.StreamedCovariances, "squared_norms", lambda rows: np.full(rows.n_contexts, 1e-3)
    )
    model = fit(monkeypatch, "passed over")
    np.testing.assert_array_equal(model.squared_norms(), model.variance_explained("context"))
    assert not model.reconstruction_error("context").any()


@pytest.mark.parametrize("path", PATHS)
def test_commands_and_reports_say_what_is_an_estimate(monkeypatch, path, tmp_path, capsys):
    monkeypatch.setattr(mcpca._covariances.fit_data, "by_passes", lambda *_: path == "passed over")
    table = pd.DataFrame(DATA.X, columns=[f"g{j}" for j in range(DATA.X.shape[1])])
    table.insert(0, "group", [f"c{i}" for i in DATA.y])
    table.to_csv(tmp_path / "rows.csv", index=False)
    out = tmp_path / "out"
    assert main(["fit", str(tmp_path / "rows.csv"), "--context", "group", "--rank", "4", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    model = MCPCA.load(out / "model.mcpca")
    summary = json.loads((out / "diagnostics.json").read_text())
    contexts = exact_csv(out / "diagnostics.csv", index_col=0)
    assert summary["variance_explained"] + summary["relative_error"] == 1
    np.testing.assert_allclose(contexts["variance_explained"] + contexts["relative_error"], 1, rtol=1e-15)
    assert summary["variance_explained_error"] == model.explained_share_error()
    np.testing.assert_array_equal(contexts["variance_explained_error"], model.explained_share_error("context"))
    write_report(model, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    if path == "formed":
        assert "estimate" not in said
        assert summary["variance_explained_error"] == 0
        assert "Estimated shares" not in page
    else:
        error = model.explained_share_error()
        assert (
            f"explain {model.explained_share():.0%} (an estimate, +- {error:.1%}: covariances were not formed)" in said
        )
        assert "Estimated shares" in page
        assert f"{model.explained_share():.1%} +- {error:.1%} of the squared covariances" in page
