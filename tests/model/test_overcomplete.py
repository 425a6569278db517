"""More components than features: planted truth, twins of the objective, and what is refused."""

import numpy as np
import pytest

from mcpca import MCPCA, OvercompleteDecomposition, RankExceedsDataError, ascore, decompose, overcomplete
from mcpca._model import overcomplete as module
from twins import compose, design_loadings, random_problem


def span_of(S):
    """All matrices as rows, their row space as an orthonormal basis: the twin of the basis in half of the entries."""
    return np.linalg.svd(S.reshape(len(S), -1), full_matrices=False)


@pytest.mark.parametrize(("p", "r", "k"), [(10, 14, 60), (10, 14, 14), (4, 6, 12), (10, 30, 40), (6, 4, 8), (5, 1, 3)])
def test_planted_components_and_loadings_are_recovered(rng, p, r, k):
    A, B, S = random_problem(rng, k, p, r)
    found = overcomplete(S, r, random_state=0)
    assert isinstance(found, OvercompleteDecomposition)
    assert found.converged
    assert found.n_found == r
    assert 1 - ascore(found.components, A, method="optimal") < 1e-9
    np.testing.assert_allclose(np.sort(found.loadings.sum(axis=0)), np.sort(B.sum(axis=0)), rtol=1e-6)
    np.testing.assert_allclose(compose(found.components, found.loadings), S, atol=1e-9)
    np.testing.assert_allclose(found.closeness, 1, atol=1e-9)
    assert found.error < 1e-18


def test_sampled_covariances_come_close_and_closer_with_more_rows(rng):
    A, B, _ = random_problem(rng, 40, 8, 11)
    errors = []
    for n in (500, 8000):
        Z = rng.standard_normal((40, n, 11)) * np.sqrt(B)[:, None, :]
        X = Z @ A.T
        S = np.stack([np.cov(x, rowvar=False) for x in X])
        found = overcomplete(S, 11, random_state=0)
        errors.append(1 - ascore(found.components, A, method="optimal"))
        assert found.closeness.min() < 1 - 1e-6
    assert errors[0] < 0.01
    assert errors[1] < errors[0] / 4


def test_sources_that_some_contexts_lack(rng):
    A, B, S = random_problem(rng, 60, 10, 14, density=0.4)
    found = overcomplete(S, 14, random_state=0)
    assert 1 - ascore(found.components, A, method="optimal") < 1e-9
    order = np.argmax(np.abs(A.T @ found.components), axis=1)
    np.testing.assert_allclose(found.loadings[:, order], B, atol=1e-8)


def test_where_features_are_enough_it_agrees_with_mcpca(rng):
    S = random_problem(rng, 20, 8, 5)[2]
    assert 1 - ascore(overcomplete(S, 5, random_state=0).components, decompose(S, 5).components) < 1e-10


def test_order_signs_and_loadings_are_those_of_all_decompositions(rng):
    S = random_problem(rng, 30, 6, 8)[2]
    noisy = S + np.stack([np.cov(rng.standard_normal((50, 6)), rowvar=False) for _ in S]) / 20
    found = overcomplete(noisy, 8, random_state=0)
    np.testing.assert_allclose(np.linalg.norm(found.components, axis=0), 1, atol=1e-12)
    assert (np.diff(found.loadings.sum(axis=0)) <= 1e-9).all()
    assert (found.components[np.abs(found.components).argmax(axis=0), np.arange(8)] > 0).all()
    np.testing.assert_allclose(found.loadings, design_loadings(noisy, found.components), atol=1e-8)
    residual = noisy - compose(found.components, found.loadings)
    assert found.error == pytest.approx((residual**2).sum() / (noisy**2).sum(), rel=1e-9)


def test_the_answer_does_not_depend_on_the_seed_the_unit_or_the_coordinates(rng):
    A, _, S = random_problem(rng, 40, 7, 10)
    first = overcomplete(S, 10, random_state=0)
    np.testing.assert_allclose(overcomplete(S, 10, random_state=1).components, first.components, atol=1e-9)
    np.testing.assert_array_equal(overcomplete(S, 10, random_state=0).components, first.components)
    large = overcomplete(2.0**40 * S, 10, random_state=0)
    np.testing.assert_allclose(large.components, first.components, atol=1e-9)
    np.testing.assert_allclose(large.loadings, 2.0**40 * first.loadings, rtol=1e-6)
    M = rng.standard_normal((7, 7))
    mapped = M @ A
    other = overcomplete(M @ S @ M.T, 10, random_state=0).components
    assert 1 - ascore(other, mapped / np.linalg.norm(mapped, axis=0), method="optimal") < 1e-8
    assert overcomplete(S.astype(np.float32), 10, random_state=0).components.dtype == np.float32


def test_the_space_is_that_of_whole_matrices(rng):
    S = random_problem(rng, 12, 5, 6)[2]
    Q, s = module._row_space(S, 6, 2e-16)
    _, reference, Vt = span_of(S)
    np.testing.assert_allclose(s, reference[: len(s)], atol=1e-12)
    flat = Q.reshape(6, -1)
    np.testing.assert_allclose(flat @ flat.T, np.eye(6), atol=1e-12)
    np.testing.assert_allclose(flat.T @ flat, Vt[:6].T @ Vt[:6], atol=1e-10)


def test_power_steps_never_lower_the_squared_cosine(rng):
    """Of any space of symmetric matrices, not only those that come from a model."""
    Q = rng.standard_normal((7, 6, 6))
    Q = Q + Q.transpose(0, 2, 1)
    Q = np.linalg.qr(Q.reshape(7, -1).T)[0].T.reshape(7, 6, 6)
    here = module._climbed(Q, module.unit(rng.standard_normal((200, 6))))
    outer = here.a[:, :, None] * here.a[:, None, :]
    projected = np.einsum("lpq,mpq->ml", Q, outer)
    np.testing.assert_allclose(here.F, (projected**2).sum(axis=1), atol=1e-12)
    for _ in range(30):
        there = module._climbed(Q, module._power_step(here))
        assert (there.F >= here.F - 1e-13).all()
        here = there


def test_ends_of_the_climb_are_maxima(rng):
    Q, _ = module._row_space(random_problem(rng, 30, 6, 9)[2] + 0.01 * np.diag(rng.uniform(1, 2, 6)), 9, 2e-16)
    a, F, settled = module._climb(Q, module.unit(rng.standard_normal((60, 6))))
    assert settled.mean() > 0.9
    for end, value in zip(a[settled][:20], F[settled][:20], strict=True):
        near = module.unit(end + 1e-3 * rng.standard_normal((50, 6)))
        assert module._climbed(Q, near).F.max() <= value + 1e-12


class OneStart:
    """A generator that draws one start wherever many are asked for."""

    def __init__(self, rng):
        self.rng = rng

    def standard_normal(self, shape):
        return self.rng.standard_normal((1, shape[1]))


def test_components_that_no_start_leads_to_are_sought_beside_the_others(rng):
    A, _, S = random_problem(rng, 30, 6, 8)
    Q, _ = module._row_space(S, 8, 2e-16)
    found, n_found = module._components(Q, 8, OneStart(rng), lambda *_: None)
    assert 1 <= n_found <= 2
    assert found.shape == (6, 8)
    assert abs(found[:, 0] @ A).max() > 1 - 1e-9
    # The others are orthogonal to those before, as matrices in the space, and least squares moves them to the truth.
    moved, _ = module.descend(S, found, 1e-12 * (S**2).sum(), 200)
    assert 1 - ascore(moved, A, method="optimal") < 1e-6


def test_it_prints_what_is_less_certain(rng):
    S = random_problem(rng, 20, 5, 7)[2]
    found = overcomplete(S, 7, random_state=0)
    assert "7 components of 20 contexts and 5 features, converged" in str(found)
    assert "less certain" not in str(found)
    fewer = OvercompleteDecomposition(found.components, found.loadings, found.closeness, np.ones(7), 0.0, 0.0, 5, True)
    assert "5 of 7 came out as maxima of their own; the others are less certain." in str(fewer)


def test_one_feature_and_one_context(rng):
    np.testing.assert_allclose(overcomplete(np.array([[[2.0]], [[3.0]]]), 1).loadings, [[2], [3]])
    S = random_problem(rng, 1, 4, 4)[2]
    top = np.linalg.eigh(S[0])[1][:, -1]
    assert abs(overcomplete(S, 1, random_state=0).components[:, 0] @ top) > 1 - 1e-9


def test_contexts_that_do_not_differ_or_do_not_vary(rng):
    A, B, _ = random_problem(rng, 20, 5, 6)
    B[:, 1] = 2 * B[:, 0]  # proportional: five independent covariances, for six components
    with pytest.raises(RankExceedsDataError, match=r"r=6 exceeds .* covariances, 5: .*contexts that differ more"):
        overcomplete(compose(A, B), 6)
    with pytest.raises(RankExceedsDataError, match="The covariances are all zero"):
        overcomplete(np.zeros((3, 4, 4)), 1)


def test_errors_name_the_bound_and_the_way_out(rng):
    S = random_problem(rng, 20, 5, 4)[2]
    with pytest.raises(ValueError, match=r"r=11 is out of bounds: 1 <= r <= 10 .*p \(p - 1\) / 2; pass more contexts"):
        overcomplete(S, 11)
    with pytest.raises(ValueError, match=r"r=9 is out of bounds: 1 <= r <= 8 .* k=8 covariances"):
        overcomplete(S[:8], 9)
    with pytest.raises(RankExceedsDataError, match=r"r=6 exceeds the number of linearly independent covariances, 4"):
        overcomplete(S, 6)
    with pytest.raises(ValueError, match="tol=-1 is out of bounds"):
        overcomplete(S, 4, tol=-1)
    with pytest.raises(ValueError, match="max_iter=0 is out of bounds"):
        overcomplete(S, 4, max_iter=0)
    with pytest.warns(UserWarning, match=r"The projected gradient is .* above tol=1e-14; raise max_iter=1"):
        overcomplete(S + 0.1 * np.eye(5) * rng.uniform(size=(20, 1, 1)), 4, tol=1e-14, max_iter=1, random_state=0)
    with pytest.raises(ValueError, match=r"n_components=6 is out of bounds.*mcpca\.overcomplete\(S, r\)"):
        MCPCA(6).fit_covariances(S)
