"""The power method: planted truth, its slow twin, seeds, and the hard corners."""

import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg

from mcpca import ascore, decompose
from mcpca._covariances import flattening
from mcpca._covariances.stack import CovarianceStack
from mcpca._covariances.subspace import compress
from mcpca._covariances.validation import check_covariances
from mcpca._model.landscape import power_space
from mcpca._solvers import climbing, mspm
from mcpca._solvers.interface import Settings
from twins import compose, design_loadings, random_problem, relative_error, sampled_problem, sequential_mspm


@pytest.mark.parametrize(
    ("k", "p", "r"),
    [
        (2, 6, 6),
        (3, 10, 4),
        (4, 30, 8),
        (8, 20, 20),
        (12, 50, 5),
        (5, 260, 12),
        (300, 12, 4),
        (250, 40, 6),
        (2, 40, 15),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_exact_tensor_is_recovered(k, p, r, seed):
    A, B, S = random_problem(np.random.default_rng(seed), k, p, r)
    result = decompose(S, r, random_state=seed)
    match = [int(np.argmax(np.abs(a @ result.components))) for a in A.T]
    assert sorted(match) == list(range(r))
    np.testing.assert_allclose(np.abs((A * result.components[:, match]).sum(axis=0)), 1, atol=1e-8)
    np.testing.assert_allclose(result.loadings[:, match], B, atol=1e-7 * B.max())
    assert result.converged


def test_sparse_loadings_are_recovered_with_exact_zeros(rng):
    A, B, S = random_problem(rng, 30, 25, 10, density=0.3)
    result = decompose(S, 10, random_state=0)
    match = np.argmax(np.abs(A.T @ result.components), axis=1)
    assert (result.loadings[:, match][B == 0] < 1e-12).all()


@pytest.mark.parametrize(("k", "p", "r", "noise"), [(20, 30, 8, 0.1), (30, 25, 15, 0.2), (6, 40, 4, 0.3)])
def test_as_accurate_as_the_sequential_twin(k, p, r, noise):
    ours, twin = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        A, _, S = sampled_problem(rng, k, p, r, 500, noise)
        ours.append(1 - ascore(decompose(S, r, random_state=seed).components, A))
        twin.append(1 - ascore(sequential_mspm(S, r, rng), A))
    assert np.mean(ours) <= 1.1 * np.mean(twin)


def test_few_contexts_keep_the_twins_reconstruction():
    """Few contexts are the hard case: F is nearly flat, and blocks must shrink to one at a time."""
    ratios = []
    for seed in range(8):
        _, _, S = sampled_problem(np.random.default_rng(seed), 3, 60, 9, 300, 0.1)
        result = decompose(S, 9, random_state=seed)
        A = sequential_mspm(S, 9, np.random.default_rng(seed))
        twin = relative_error(S, A, design_loadings(S, A))
        ratios.append(relative_error(S, result.components, result.loadings) / twin)
    assert np.mean(ratios) <= 1.02


@pytest.mark.parametrize(
    ("k", "p", "r", "noise", "n"), [(12, 30, 6, 0.1, 400), (40, 24, 16, 0.2, 400), (220, 15, 5, 0.3, 60)]
)
def test_seeds_agree_where_the_model_is_identifiable(rng, k, p, r, noise, n):
    _, _, S = sampled_problem(rng, k, p, r, n, noise)
    first = decompose(S, r, random_state=0)
    for seed in (1, 2, 3):
        other = decompose(S, r, random_state=seed)
        np.testing.assert_allclose(other.components, first.components, atol=1e-6)
        np.testing.assert_allclose(other.loadings, first.loadings, atol=1e-6 * first.loadings.max())


def test_same_seed_same_bits(rng):
    _, _, S = sampled_problem(rng, 3, 30, 8, 200, 0.2)
    a, b = (decompose(S, 8, random_state=5) for _ in range(2))
    np.testing.assert_array_equal(a.components, b.components)


def test_global_generator_is_not_touched(rng):
    _, _, S = sampled_problem(rng, 4, 12, 3, 100, 0.1)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    decompose(S, 3)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_one_context_is_an_eigendecomposition(rng):
    X = rng.standard_normal((50, 8)) * np.logspace(0, -5, 8)
    S = np.cov(X, rowvar=False)
    w, V = np.linalg.eigh(S)
    result = decompose(S[None], 8)
    np.testing.assert_allclose(result.loadings[0], w[::-1], rtol=1e-8, atol=1e-12 * w[-1])
    np.testing.assert_allclose(np.abs((result.components * V[:, ::-1]).sum(axis=0)), 1, atol=1e-8)


@pytest.mark.parametrize("p", [2, 5, 12, 25])
def test_two_contexts_at_full_rank_are_the_generalised_eigenproblem(p):
    """GSVD: S_1 and S_2 have common axes A = inv(W).T with W from S_1 w = lambda S_2 w."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        S = np.stack(
            [np.cov(rng.standard_normal((4 * p + 5, p)) @ rng.standard_normal((p, p)), rowvar=False) for _ in "12"]
        )
        ratios, W = scipy.linalg.eigh(S[0], S[1])
        A = np.linalg.inv(W).T
        A /= np.linalg.norm(A, axis=0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = decompose(S, p, random_state=seed)
        assert ascore(result.components, A, method="optimal") > 1 - 1e-8
        match = np.argmax(np.abs(A.T @ result.components), axis=1)
        B = result.loadings[:, match]
        np.testing.assert_allclose(B[0] / B[1], ratios, rtol=1e-6)
        np.testing.assert_allclose(compose(result.components, result.loadings), S, atol=1e-8 * np.abs(S).max())


def test_ill_conditioned_directions_survive(rng):
    """Components a million times weaker than the first: squaring the flattening would lose them."""
    A = np.linalg.qr(rng.standard_normal((20, 6)))[0]
    B = (np.abs(rng.standard_normal((9, 6))) + 0.2) * np.logspace(0, -6.5, 6)
    result = decompose(compose(A, B), 6, random_state=0)
    match = np.argmax(np.abs(A.T @ result.components), axis=1)
    assert np.abs((A * result.components[:, match]).sum(axis=0)).min() > 1 - 1e-6


@pytest.mark.parametrize("scale", [1e-24, 1e-12, 1e12, 1e24])
def test_scale_costs_no_accuracy(rng, scale):
    """Covariances scale as the square: rows from 1e-12 to 1e12."""
    _, _, S = sampled_problem(rng, 6, 15, 4, 200, 0.1)
    base, scaled = decompose(S, 4, random_state=0), decompose(S * scale, 4, random_state=0)
    np.testing.assert_allclose(scaled.components, base.components, atol=1e-9)
    np.testing.assert_allclose(scaled.loadings / scale, base.loadings, atol=1e-9)


def test_equivariance(rng):
    _, _, S = sampled_problem(rng, 9, 14, 4, 300, 0.1)
    base = decompose(S, 4, random_state=0)
    contexts, features = rng.permutation(9), rng.permutation(14)
    permuted = decompose(S[contexts][:, features][:, :, features], 4, random_state=1)
    np.testing.assert_allclose(permuted.loadings, base.loadings[contexts], atol=1e-7)
    np.testing.assert_allclose(np.abs(permuted.components), np.abs(base.components[features]), atol=1e-7)
    Q = np.linalg.qr(rng.standard_normal((14, 14)))[0]
    rotated = decompose(Q @ S @ Q.T, 4, random_state=2)
    np.testing.assert_allclose(np.abs((rotated.components * (Q @ base.components)).sum(axis=0)), 1, atol=1e-9)
    np.testing.assert_allclose(rotated.loadings, base.loadings, atol=1e-7)


@pytest.mark.parametrize("seed", range(3))
def test_many_contexts_are_compressed_without_loss(seed, monkeypatch):
    """Above a few hundred contexts the k axis is compressed; the error must not notice."""
    A, _, S = sampled_problem(np.random.default_rng(seed), 230, 16, 4, 40, 0.2)
    assert len(compress(CovarianceStack(S), 4).tensor) < 230
    compressed = 1 - ascore(decompose(S, 4, random_state=0).components, A)
    monkeypatch.setattr("mcpca._covariances.subspace._MANY_CONTEXTS", 1000)
    assert len(compress(CovarianceStack(S), 4).tensor) == 230
    assert compressed < 1.05 * (1 - ascore(decompose(S, 4, random_state=0).components, A))


def test_float32_is_kept_and_close(rng):
    _, _, S = sampled_problem(rng, 8, 20, 5, 300, 0.1)
    double, single = decompose(S, 5, random_state=0), decompose(S.astype(np.float32), 5, random_state=0)
    assert single.components.dtype == single.loadings.dtype == np.float32
    np.testing.assert_allclose(single.components, double.components, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-24, 1, 1e24])
def test_float32_with_many_contexts_at_any_scale(rng, scale):
    _, _, S = sampled_problem(rng, 230, 10, 3, 60, 0.1)
    double, single = decompose(S, 3, random_state=0), decompose((S * scale).astype(np.float32), 3, random_state=0)
    np.testing.assert_allclose(single.components, double.components, atol=1e-4)


def test_zero_context_and_constant_feature_load_zero(rng):
    _A, _B, S = random_problem(rng, 5, 9, 3)
    S = np.pad(S, ((0, 1), (0, 1), (0, 1)))
    result = decompose(S, 3, random_state=0)
    assert (result.loadings[-1] == 0).all()
    assert np.abs(result.components[-1]).max() < 1e-12


def test_proportional_loadings_still_reconstruct(rng):
    """Not identifiable: the axes are arbitrary, what they span and the fit are not."""
    A, B, _ = random_problem(rng, 6, 10, 4)
    B[:, 1] = 2 * B[:, 0]
    S = compose(A, B)
    result = decompose(S, 4, random_state=0)
    assert relative_error(S, result.components, result.loadings) < 1e-10


def test_newton_and_power_find_the_same_maxima(rng):
    _, _, S = sampled_problem(rng, 6, 20, 5, 300, 0.1)
    T = compress(CovarianceStack(S), 5).tensor
    U, D = mspm.row_space(T, 5)
    V = np.einsum("eqs,sr->rqe", T, U / D)
    start = [rng.standard_normal((12, n)) for n in V.shape[1:]]
    a, b = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in start)
    for _ in range(3000):  # the twin: power iterations only
        c = np.einsum("rqe,mq,me->mr", V, a, b)
        a = np.einsum("rqe,mr,me->mq", V, c, b)
        a /= np.linalg.norm(a, axis=1, keepdims=True)
        b = np.einsum("rqe,mr,mq->me", V, c, a)
        b /= np.linalg.norm(b, axis=1, keepdims=True)
    F = (np.einsum("rqe,mq,me->mr", V, a, b) ** 2).sum(axis=1)
    nudged = [z + 1e-3 * rng.standard_normal(z.shape) for z in (a, b)]
    peaks = climbing.newton_steps(
        climbing.layouts_of(T, U / D), *(z / np.linalg.norm(z, axis=1, keepdims=True) for z in nudged), 1e-12, 50
    )
    np.testing.assert_allclose(peaks.F, F, atol=1e-10)
    np.testing.assert_allclose(np.abs((peaks.a * a).sum(axis=1)), 1, atol=1e-8)


def test_components_are_critical_points_of_f(rng):
    """Before the joint refinement each accepted maximum satisfies a = T(., b, c) / F and b = T(a, ., c) / F."""
    _, _, S = sampled_problem(rng, 4, 30, 6, 300, 0.1)
    T = compress(CovarianceStack(S), 6).tensor
    U, D = mspm.row_space(T, 6)
    V = np.einsum("eqs,sr->rqe", T, U / D)
    start = [rng.standard_normal((20, n)) for n in V.shape[1:]]
    peaks = climbing.climb_to_peaks(
        T, U / D, *(z / np.linalg.norm(z, axis=1, keepdims=True) for z in start), 1e-10, 200
    )
    done = peaks.step <= 1e-10
    assert done.mean() > 0.5
    c = np.einsum("rqe,mq,me->mr", V, peaks.a, peaks.b)
    ga = np.einsum("rqe,mr,me->mq", V, c, peaks.b) - peaks.F[:, None] * peaks.a
    gb = np.einsum("rqe,mr,mq->me", V, c, peaks.a) - peaks.F[:, None] * peaks.b
    assert np.abs(ga[done]).max() < 1e-8
    assert np.abs(gb[done]).max() < 1e-8


def test_progress_reports_every_stage(rng):
    _, _, S = random_problem(rng, 4, 8, 3)
    calls = []
    decompose(S, 3, verbose=lambda *call: calls.append(call))
    assert [stage for stage, done, total in calls if done == total] == ["basis", "components", "loadings"]
    assert all(0 <= done <= total for _, done, total in calls)


def test_verbose_prints_to_stderr(rng, capsys):
    _, _, S = random_problem(rng, 4, 8, 3)
    decompose(S, 3, verbose=True)
    out = capsys.readouterr()
    assert out.out == ""
    assert "components: 3/3" in out.err


def test_products_and_gram_find_the_same_basis(rng, monkeypatch):
    """Four contexts go by products S_i (S_i Q), five by the Gram matrix; both equal a plain SVD."""
    _A, _B, S = random_problem(rng, 4, 240, 5)
    S = S + 0.01 * np.eye(240)
    left, sigma, _ = np.linalg.svd(np.hstack(list(S)), full_matrices=False)
    for few in (0, 4):
        monkeypatch.setattr(flattening, "_VERY_FEW", few)
        U, values, *_ = CovarianceStack(S).basis(15, 5)
        np.testing.assert_allclose(values[:5], sigma[:5], rtol=1e-10)
        np.testing.assert_allclose(np.linalg.norm(U[:, :5].T @ left[:, :5]), np.sqrt(5), rtol=1e-10)


@pytest.mark.parametrize("p", [40, 128, 129, 300])
def test_definiteness_by_blocks_agrees_with_eigenvalues(rng, p):
    Q = np.linalg.qr(rng.standard_normal((p, p)))[0]
    w = np.linspace(0, 1, p)  # singular, and still a covariance
    S = np.array([(Q * w) @ Q.T, (Q * w**2) @ Q.T])
    check_covariances(S)
    w[p // 2] = -1e-9
    bad = np.array([S[0], (Q * w) @ Q.T])
    with pytest.raises(ValueError, match=r"S\[1\] is not positive semi-definite: its smallest eigenvalue is -1e-09"):
        check_covariances(bad)


@pytest.mark.parametrize(
    ("k", "p", "r", "n", "noise"),
    [(20, 30, 6, 400, 0.1), (30, 25, 18, 400, 0.2), (5, 60, 4, 1000, 0.1), (230, 16, 4, 80, 0.2)],
)
def test_all_at_once_is_what_deflation_ends_with(k, p, r, n, noise, monkeypatch):
    """Wide cores, narrow ones, and combinations of contexts."""
    for seed in range(3):
        _, _, S = sampled_problem(np.random.default_rng(seed), k, p, r, n, noise)
        at_once = decompose(S, r, random_state=0)
        assert "do not depend on an order" in at_once.message
        with monkeypatch.context() as patch:
            patch.setattr(mspm, "_at_once", lambda *args: None)
            deflated = decompose(S, r, random_state=0)
        assert "order of deflation was removed" in deflated.message
        np.testing.assert_allclose(at_once.components, deflated.components, atol=1e-8)


def test_axes_that_are_no_maxima_are_left_to_deflation(monkeypatch):
    """Contexts that barely differ in what is left beside a strong axis: their best common axes are no maxima of F."""
    answers = []
    for seed in range(4):
        _, _, S = sampled_problem(np.random.default_rng(seed), 4, 16, 6, 40, 1.0)
        joint = decompose(S, 6, random_state=0)
        with monkeypatch.context() as patch:
            patch.setattr(mspm, "_at_once", lambda *args: None)
            deflated = decompose(S, 6, random_state=0)
        if "do not depend on an order" not in joint.message:
            answers.append(seed)
            np.testing.assert_array_equal(joint.components, deflated.components)
    assert answers


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_images_are_combined_as_the_equations_say(rng, dtype):
    """In several chunks of contexts, and in the precision of the starts, whatever that of the slices."""
    _, _, S = random_problem(rng, 120, 60, 5)
    S = S.astype(dtype)
    a, w = rng.standard_normal((2, 7, 60))
    b = np.einsum("jp,kpq,jq->jk", w, S, a)
    combined = np.einsum("jk,kpq,jq->jp", b, S, a)
    for found, exact in zip(climbing.pull_images(S, a, w), (b, combined), strict=True):
        np.testing.assert_allclose(found, exact)
    np.testing.assert_allclose(climbing.combine_images(S, a, b), combined)
    norms = np.linalg.norm(b, axis=1, keepdims=True)
    for found, exact in zip(climbing.weigh_images(S, a, w), (b / norms, combined / norms), strict=True):
        np.testing.assert_allclose(found, exact)
    rounded = climbing.pull_images(S, a.astype(np.float32), w.astype(np.float32))
    assert rounded[0].dtype == rounded[1].dtype == np.float32
    np.testing.assert_allclose(rounded[0], b, rtol=1e-4, atol=1e-4 * np.abs(b).max())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_wide_ranks_need_no_core(rng, dtype):
    """More than half of the directions: the answer is that of covariances that are not in memory, without a core."""
    _, _, S = sampled_problem(rng, 40, 30, 20, 300, 0.1)
    S = S.astype(dtype)
    core = compress(CovarianceStack(S), 20)
    made = []
    lazy = replace(core, make=lambda: made.append(1) or core.tensor)
    settings = Settings(rng, 1e-6, 500, lambda *call: None, np.full(40, 299.0))
    wide = mspm.solve(CovarianceStack(S), lazy, 20, settings)
    assert not made
    assert wide.turned is None
    narrow = mspm.solve(CovarianceStack(S), replace(core, whole=None), 20, settings)
    np.testing.assert_allclose(np.abs((wide.components * narrow.components).sum(axis=0)), 1, atol=1e-12)
    # With room for copies of small covariances.
    copied = mspm.solve(CovarianceStack(S), lazy, 20, replace(settings, spare_numbers=S.size))
    assert not made
    np.testing.assert_allclose(np.abs((copied.components * wide.components).sum(axis=0)), 1, atol=1e-12)
    U = core.directions[:, :20]
    np.testing.assert_allclose(copied.turned, U.T @ S @ U, atol=1e-12 * np.abs(S).max())
    A = wide.components
    with_copies, without = (power_space(core, A, turned) for turned in (copied.turned, None))
    assert with_copies.matrices.dtype == without.matrices.dtype
    np.testing.assert_allclose(with_copies.matrices, without.matrices, atol=1e-6 * np.abs(without.matrices).max())


def workspace_of_eigh(S):
    """Return the bytes that tracemalloc sees of LAPACK's workspace: none before NumPy 2.5."""
    tracemalloc.start()
    try:
        result = np.linalg.eigh(S)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return peak - sum(part.nbytes for part in result)


@pytest.mark.parametrize(("k", "p", "r"), [(50, 100, 60), (230, 60, 20), (12, 150, 8)])
def test_memory_beside_the_covariances(rng, k, p, r):
    _, _, S = sampled_problem(rng, k, p, r, 200, 0.01)
    decompose(S, r, random_state=0)
    tracemalloc.start()
    try:
        decompose(S, r, random_state=0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak - workspace_of_eigh(S[0]) <= 0.25 * S.nbytes
