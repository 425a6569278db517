"""One score by which models of all solvers compare."""

import numpy as np
import pytest

from mcpca import MCPCA
from mcpca._solvers import SOLVERS
from mcpca.datasets import make_contexts


@pytest.fixture(scope="module")
def data():
    return make_contexts(4, 8, 3, n_samples=400, noise=0.5, random_state=0)


@pytest.mark.parametrize("noise", ["isotropic", "pooled", "diagonal", "scaled"])
def test_share_of_covariance_counts_the_noise_as_predicted(data, noise):
    """Against the covariances of the model, written out; of fitted contexts and of a new one."""
    half = np.arange(len(data.X)) % 2 == 0
    model = MCPCA(3, solver="ml", noise=noise, random_state=0).fit(data.X[half], data.y[half])
    assert model.score(data.X, data.y) == model.score(data.X, data.y, metric="likelihood")
    held, labels = data.X[~half], data.y[~half]
    left = total = 0.0
    for i, name in enumerate(model.contexts_):
        rows = held[labels == name] - model.means_[i]
        S = rows.T @ rows / len(rows)
        by_context = {"diagonal": model.noise_variance_}.get(noise, model.noise_variance_[i])
        N = np.diag(np.broadcast_to(by_context, held.shape[1]))
        left += np.linalg.norm(S - model.components_ @ np.diag(model.loadings_[i]) @ model.components_.T - N) ** 2
        total += np.linalg.norm(S) ** 2
    assert model.score(held, labels, metric="covariance") == pytest.approx(1 - left / total)
    new = held[labels == labels[0]]
    S = np.cov(new, rowvar=False)
    b = model.loadings_for(new)
    low = S - model.components_ @ np.diag(b) @ model.components_.T
    share = model.score(new, metric="covariance")
    if noise == "diagonal":
        assert share == pytest.approx(1 - np.linalg.norm(low - N) ** 2 / np.linalg.norm(S) ** 2)
    else:
        # The noise that likelihood fits is near the one that least squares would choose.
        profile = N / N.mean() if noise == "scaled" else np.eye(len(S))
        best = np.vdot(low, profile) / np.vdot(profile, profile)
        expected = 1 - np.linalg.norm(low - best * profile) ** 2 / np.linalg.norm(S) ** 2
        assert expected - 0.01 < share <= expected


def test_one_score_compares_solvers(data):
    """The noise is a part of these covariances, and ml predicts it too."""
    half = np.arange(len(data.X)) % 2 == 0
    shares = {}
    for solver in SOLVERS:
        model = MCPCA(3, solver=solver, random_state=0).fit(data.X[half], data.y[half])
        shares[solver] = model.score(data.X[~half], data.y[~half], metric="covariance")
        assert shares[solver] <= 1
    assert shares["mspm"] == MCPCA(3, random_state=0).fit(data.X[half], data.y[half]).score(
        data.X[~half], data.y[~half]
    )
    assert 0.7 < shares["mspm"] < shares["ml"] < 1


def test_metric_is_checked(data):
    model = MCPCA(2, random_state=0).fit(data.X, data.y)
    with pytest.raises(ValueError, match="metric='r2'; choose None, 'covariance' or 'likelihood'"):
        model.score(data.X, data.y, metric="r2")
    full = MCPCA(data.X.shape[1], random_state=0).fit(data.X, data.y)
    with pytest.raises(ValueError, match="metric='likelihood' needs noise in every context"):
        full.score(data.X, data.y, metric="likelihood")
