"""Hypothesis: any shape, any degenerate data, any junk."""

import warnings

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.exceptions import ConvergenceWarning

from mcpca import MCPCA, IdentifiabilityWarning, decompose, nonnegative_loadings
from mcpca.exceptions import DominantFeatureWarning
from twins import compose, design_loadings, relative_error

settings.register_profile("mcpca", max_examples=60, deadline=None, derandomize=True)
settings.load_profile("mcpca")

shapes = st.tuples(st.integers(1, 6), st.integers(1, 9)).flatmap(
    lambda kp: st.tuples(st.just(kp[0]), st.just(kp[1]), st.integers(1, kp[1]))
)


def quietly(call):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", IdentifiabilityWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DominantFeatureWarning)
        return call()


@given(shapes, st.integers(0, 10**6), st.sampled_from([1e-9, 1.0, 1e9]), st.floats(0.2, 1))
def test_any_exact_model_is_reconstructed(shape, seed, scale, density):
    """Also where B has proportional or zero columns, and the axes are then arbitrary."""
    k, p, r = shape
    rng = np.random.default_rng(seed)
    A = np.linalg.qr(rng.standard_normal((p, r)))[0] + 0.3 * rng.standard_normal((p, r))
    A /= np.linalg.norm(A, axis=0)
    B = scale * rng.uniform(0.5, 2, (k, r)) * (rng.random((k, r)) < density)
    B[0, B.sum(axis=0) == 0] = scale
    S = compose(A, B)
    rank = np.linalg.matrix_rank(np.concatenate(list(S), axis=1), tol=1e-6 * scale)
    result = quietly(lambda: decompose(S, min(r, rank), random_state=seed))
    assert (result.loadings >= 0).all()
    np.testing.assert_allclose(np.linalg.norm(result.components, axis=0), 1)
    if rank == r:
        assert relative_error(S, result.components, result.loadings) < 1e-6


SOLVERS = [
    *({"solver": "ml", "noise": noise} for noise in ("isotropic", "pooled", "diagonal", "scaled", None)),
    *({"solver": solver, "orthogonal": orthogonal} for solver in ("mspm", "lsq") for orthogonal in (False, True)),
    {"solver": "ml", "orthogonal": True},
]


@settings(max_examples=300)
@given(shapes, st.integers(0, 10**6), st.sampled_from(SOLVERS), st.sampled_from([1e-9, 1.0, 1e9]))
def test_any_covariances_give_finite_ordered_results(shape, seed, solver, scale):
    k, p, r = shape
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((k, p, p)) * (rng.random((k, 1, p)) < 0.7) * rng.choice([0, 1, 1, 100], (k, 1, 1))
    S = scale * factors @ factors.transpose(0, 2, 1)
    rank = np.linalg.matrix_rank(np.concatenate(list(S), axis=1), tol=1e-6 * max(np.abs(S).max(), 1e-300))
    if rank == 0:
        return
    result = quietly(lambda: decompose(S, min(r, rank), random_state=seed, **solver))
    assert np.isfinite(result.components).all()
    assert np.isfinite(result.loadings).all()
    totals = result.loadings.sum(axis=0)
    assert (np.diff(totals) <= 1e-6 * totals.max(initial=0)).all()
    assert (result.loadings >= 0).all()
    if solver["solver"] != "ml":
        np.testing.assert_allclose(result.loadings, design_loadings(S, result.components), atol=1e-6 * np.abs(S).max())


@given(
    st.integers(1, 5).flatmap(
        lambda p: st.lists(
            hnp.arrays(np.float64, st.tuples(st.integers(0, 6), st.just(p)), elements=st.floats(-1e3, 1e3, width=16)),
            min_size=1,
            max_size=4,
        )
    ),
    st.integers(-1, 6),
)
def test_any_rows_fit_or_explain_themselves(blocks, r):
    """A model with finite numbers, or a ValueError of ours with a way out; never an error from inside NumPy."""
    try:
        model = quietly(lambda: MCPCA(r, random_state=0).fit(blocks))
    except ValueError as error:
        message = str(error)
    else:
        assert np.isfinite(model.components_).all()
        assert all(np.isfinite(z).all() for z in model.transform(blocks))
        return
    assert any(word in message for word in ("Choose", "choose", "drop or merge", "nothing to decompose"))


@given(shapes, st.integers(0, 10**6))
def test_loadings_equal_the_twin_for_any_components(shape, seed):
    k, p, r = shape
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((k, p, p))
    S = factors @ factors.transpose(0, 2, 1)
    A = rng.standard_normal((p, r))
    A /= np.linalg.norm(A, axis=0)
    ours, twin = nonnegative_loadings(S, A), design_loadings(S, A)
    # Near-collinear columns leave the minimiser loose; the minimum is not.
    assert np.linalg.norm(S - compose(A, ours)) <= np.linalg.norm(S - compose(A, twin)) * (1 + 1e-9)
