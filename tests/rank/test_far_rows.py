"""Rows far from the rest of their context do not decide on the rank, unless they have axes that come back."""

import warnings

import numpy as np
import pytest

import mcpca._rank.far_rows
from mcpca import MCPCA, UncertainRankWarning, select_rank
from mcpca._covariances.checkpoint import Checkpoint
from mcpca._covariances.context_covariances import covariances_of
from mcpca._covariances.passes import Passes
from mcpca._data.contexts import read_contexts
from mcpca._model.first_weights import first_weights
from mcpca._utils.progress import silent
from mcpca.datasets import make_contexts

R = 5
SEEDS = (6, 8)


def with_tails(seed, nu, **options):
    """Rows of a t distribution with nu degrees of freedom: all features of a row are large together."""
    data = make_contexts(8, 20, R, n_samples=150, noise=0.6, random_state=seed, **options)
    rng = np.random.default_rng(seed)
    return data.X * np.sqrt(1 / rng.chisquare(nu, (len(data.X), 1))), data.y


def quietly(X, y, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertainRankWarning)
        return select_rank(X, y, criteria=(), random_state=0, **options)


@pytest.mark.parametrize("seed", SEEDS)
def test_axes_of_rows_with_heavy_tails_are_counted(seed):
    found = quietly(*with_tails(seed, 3))
    assert found.rank == found.n_above_noise == R
    assert found.outcome == "agreed"
    assert "where rows far from the rest of their context weigh less" in found.reason


def test_without_that_look_halves_do_not_agree(monkeypatch):
    """What the other tests rest on: far rows do decide here."""
    monkeypatch.setattr(mcpca._rank.far_rows, "LONG_ROWS", np.inf)
    assert [quietly(*with_tails(seed, 3)).rank for seed in SEEDS] != [R, R]


def test_evidence_is_that_of_the_model_which_is_fitted():
    """The rank is that of near rows; which MCPCs come back is asked of all rows, as the model is fitted to them."""
    X, y = with_tails(8, 3)
    message = r"With all rows alike mean \|cos\| is 0\.\d+, .* robust=True gives far rows less"
    with pytest.warns(UncertainRankWarning, match=message):
        model = MCPCA(random_state=0).fit(X, y)
    choice = model.rank_choice_
    assert choice.rank == R
    assert choice.recommended.sum() < R
    given = MCPCA(R, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.components_, given.components_, atol=1e-7)
    robust = MCPCA(robust=True, random_state=0).fit(X, y).rank_choice_
    assert robust.rank == robust.recommended.sum() == R
    assert "weigh less" not in robust.reason


def test_an_axis_of_far_rows_that_comes_back_is_kept():
    """A tenth of the rows are far out along one axis: a rare population, not a handful of errors."""
    data = make_contexts(6, 20, 3, n_samples=400, noise=0.3, random_state=0)
    rng = np.random.default_rng(0)
    rare = rng.random(len(data.X)) < 0.1
    axis = np.zeros(20)
    axis[:4] = 0.5
    strength = rng.uniform(2, 8, 6)[data.y]
    X = data.X + np.where(rare, strength * rng.standard_normal(len(data.X)), 0)[:, None] * axis
    found = quietly(X, data.y)
    assert found.rank == 4
    assert found.recommended.all()


def test_gaussian_rows_are_not_looked_at_twice(monkeypatch):
    def fail(*_):
        raise AssertionError

    monkeypatch.setattr(mcpca._rank.far_rows, "first_weights", fail)
    data = make_contexts(8, 20, R, n_samples=150, noise=0.6, random_state=4)
    assert quietly(data.X, data.y).rank == R
    with pytest.raises(AssertionError):
        quietly(*with_tails(8, 3))


def test_ranks_of_the_caller_bound_it():
    """Where the rank of near rows is not among those asked for, halves of all rows decide; robust fits are named."""
    found = quietly(*with_tails(8, 3), ranks=[1, 2, 3, 4])
    assert found.rank < R
    assert "robust=True gives them less weight" in found.reason
    assert quietly(*with_tails(8, 3), ranks=[4, 5, 6]).rank == R


def test_nuisance_leaves_the_choice_to_all_rows():
    """Robust fits refuse nuisance, so they are not proposed beside it."""
    X, y = with_tails(8, 3)
    found = quietly(X, y, batch=np.arange(len(y)) % 2)
    assert "robust" not in found.reason
    assert "weigh less" not in found.reason


def test_the_unit_does_not_matter():
    X, y = with_tails(6, 3)
    assert quietly(X * 2.0**20, y).reason == quietly(X, y).reason


def test_first_weights_are_those_of_a_t_with_one_degree(rng):
    """A loop over the rows: (1 + p) / (1 + d2) about weighted means, by weighted variances, once these have settled."""
    X = rng.standard_normal((200, 6)) * np.sqrt(1 / rng.chisquare(3, (200, 1))) + 2
    y = np.repeat([0, 1], 100)
    contexts = read_contexts(X, y)
    found = first_weights(contexts, covariances_of(contexts, silent), Passes(silent, Checkpoint(None, {}), 1.0))
    near = found.shrunk(contexts)
    for i in range(2):
        rows = X[y == i]
        d2 = [((x - found.distances.means[i]) ** 2).sum() / found.distances.noise[i] for x in rows]
        w = np.array([7 / (1 + d) for d in d2])
        assert found.totals[i] == pytest.approx(w.sum())
        # They are centred, and their ordinary scatter is the weighted one over the mean weight.
        Z = rows - found.distances.means[i]
        expected = np.einsum("n,np,nq->pq", w, Z, Z) / w.mean()
        shrunk = near.dense_block(i)
        np.testing.assert_allclose(shrunk.T @ shrunk, expected, rtol=1e-10)
