"""One call for all methods: forms of input, order, seeds, scale, time limits, errors."""

import numpy as np
import pytest
from baseline_options import ANY_K, FAST, TIMED, skip_if_missing

from mcpca import ascore, context_covariances
from mcpca.baselines import METHODS, _run, run
from mcpca.datasets import make_contexts
from twins import design_loadings, random_problem, sampled_problem


@pytest.mark.parametrize("name", ANY_K)
def test_every_form_of_input_gives_the_same(name):
    skip_if_missing(name)
    data = make_contexts(4, 6, 3, n_samples=25, noise=0.2, random_state=0)
    blocks = [data.X[data.y == i] for i in range(4)]
    shuffled = np.random.default_rng(0).permutation(len(data.X))
    stack = context_covariances(data.X, data.y).covariances
    forms = [(stack, None), (blocks, None), (dict(enumerate(blocks)), None), (data.X[shuffled], data.y[shuffled])]
    # Iterations amplify rounding, so those that wander long are stopped early.
    options = {"max_iter": 5} if name in ("minf", "als", "parafac2") else {}
    first, *others = (run(name, X, 3, y=y, random_state=0, **options) for X, y in forms)
    for other in others:
        np.testing.assert_allclose(other.components, first.components, atol=1e-6)
        np.testing.assert_allclose(other.loadings, first.loadings, atol=1e-6)


@pytest.mark.parametrize("name", METHODS)
def test_loadings_are_least_squares_and_the_order_is_canonical(rng, name):
    skip_if_missing(name)
    S = sampled_problem(rng, METHODS[name].contexts[1] or 5, 7, 3, 40, 0.3)[2]
    found = run(name, S, 3, random_state=0, **FAST.get(name, {}))
    assert found.components.shape == (7, 3)
    np.testing.assert_allclose(np.linalg.norm(found.components, axis=0), 1, atol=1e-12)
    np.testing.assert_allclose(found.loadings, design_loadings(S, found.components), atol=1e-8)
    assert (np.diff(found.loadings.sum(axis=0)) <= 1e-9).all()
    peaks = found.components[np.abs(found.components).argmax(axis=0), np.arange(3)]
    assert (peaks > 0).all()


@pytest.mark.parametrize("name", METHODS)
def test_reproducible_from_the_seed_alone(rng, name):
    skip_if_missing(name)
    S = sampled_problem(rng, METHODS[name].contexts[1] or 5, 6, 3, 40, 0.3)[2]
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    one, two = (run(name, S, 3, random_state=7, **FAST.get(name, {})) for _ in range(2))
    np.testing.assert_array_equal(one.components, two.components)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_scale_does_not_matter(rng, name, scale):
    skip_if_missing(name)
    S = sampled_problem(rng, METHODS[name].contexts[1] or 5, 5, 3, 40, 0.3)[2]
    # A power of two, so that rounding is the same.
    scale = 2.0 ** np.round(np.log2(scale))
    one, other = (run(name, M, 3, random_state=7, **FAST.get(name, {})) for M in (S, scale * S))
    np.testing.assert_allclose(other.components, one.components, atol=1e-12)
    np.testing.assert_allclose(other.loadings, scale * one.loadings, rtol=1e-9, atol=1e-12 * scale)


@pytest.mark.parametrize("name", METHODS)
def test_finite_on_degenerate_contexts(rng, name):
    """An empty context, a tiny one, equal ones, and rank as low as r; warnings are errors here."""
    skip_if_missing(name)
    k = METHODS[name].contexts[1] or 5
    low = np.stack([np.cov(rng.standard_normal((4, 6)), rowvar=False) for _ in range(k)])
    empty, tiny, alike = low.copy(), low.copy(), np.stack([low.sum(axis=0)] * k)
    empty[0], tiny[0] = 0, 1e-9 * low[0]
    for S, r in ((low, 3), (empty, 3), (tiny, 3), (alike, 3), (np.stack([np.eye(6)] * k), 6), (low, 1)):
        options = {"max_iter": 30} if "max_iter" in METHODS[name].options else {}
        found = run(name, S, r, random_state=0, **(FAST.get(name) or options))
        assert np.isfinite(found.components).all()
        assert (found.loadings >= 0).all()
        np.testing.assert_allclose(np.linalg.norm(found.components, axis=0), 1, atol=1e-12)


def test_single_precision_rows_are_worked_on_in_double():
    data = make_contexts(5, 8, 3, n_samples=200, noise=0.1, random_state=0)
    single = run("ffdiag", data.X.astype(np.float32), 3, y=data.y)
    assert single.components.dtype == np.float64
    assert 1 - ascore(single.components, run("ffdiag", data.X, 3, y=data.y).components) < 1e-8


@pytest.mark.parametrize("name", TIMED)
def test_time_limit_stops_and_says_so(rng, name):
    skip_if_missing(name)
    S = sampled_problem(rng, 8, 10, 8, 50, 0.3)[2]
    found = run(name, S, 8, random_state=0, time_limit=0)
    assert not found.converged
    assert "Stopped by time_limit=0 s after" in found.notes
    assert np.isfinite(found.components).all()
    assert "time_limit" not in run(name, S, 8, random_state=0, time_limit=1e6, max_iter=2).notes


@pytest.mark.parametrize("name", METHODS)
def test_one_context(rng, name):
    """PCA where a method can take one context, and an error that says so where it cannot."""
    S = sampled_problem(rng, 1, 6, 3, 50, 0.3)[2]
    if METHODS[name].contexts[0] == 1:
        axes = np.linalg.eigh(S[0])[1][:, ::-1][:, :3]
        found = run(name, S, 3, random_state=0)
        assert 1 - ascore(found.components, axes) < 1e-10
        np.testing.assert_allclose(found.loadings[0], np.linalg.eigvalsh(S[0])[::-1][:3], rtol=1e-8)
    else:
        with pytest.raises(ValueError, match=rf"X has k=1 context\(s\), and {name} .* needs 2 or more"):
            run(name, S, 3)


def test_full_rank_methods_say_that_they_compressed(rng):
    S = random_problem(rng, 5, 7, 3)[2]
    for name in ("ffdiag", "qrj1d", "jennrich", "hogsvd", "pham", "uwedge", "cpc", "jacobi"):
        assert "worked in the top r=3 singular directions of the flattening, not all p=7." in run(name, S, 3).notes
    assert "worked in" not in run("ffdiag", random_problem(rng, 5, 3, 3)[2], 3).notes
    assert "Worked in a core of 9 of p=20 directions and 5 of k=5 contexts." in run("nls", sampled_problem(
        rng, 5, 20, 3, 50, 0.1)[2], 3, random_state=0).notes  # fmt: skip


def test_a_component_that_vanished_is_replaced_and_noted(rng):
    problem, _ = _run._read(random_problem(rng, 3, 4, 2)[2], 2, None, 0)
    A, notes = _run._unit_columns(_run.MethodOutput(np.array([[2.0, 0], [0, 0], [0, 0], [0, 0]])), problem, "als")
    np.testing.assert_allclose(np.linalg.norm(A, axis=0), 1)
    np.testing.assert_array_equal(A[:, 0], [1, 0, 0, 0])
    assert notes == ("1 component(s) had vanished and are random directions.",)
    with pytest.raises(FloatingPointError, match=r"als broke down: its components are not finite\. Lower r=2"):
        _run._unit_columns(_run.MethodOutput(np.full((4, 2), np.nan)), problem, "als")


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("fdiag", {}, r"name='fdiag' is unknown; choose one of pca_stack, pca_c, .*stablepca\."),
        (["ffdiag"], {}, r"name=\['ffdiag'\] is unknown"),
        ("gsvd", {}, r"X has k=3 contexts, and gsvd \(generalised SVD\) compares exactly 2; pass the two"),
        ("cpca", {}, r"X has k=3 contexts, and cpca .* compares exactly 2"),
        ("ffdiag", {"tol": -1.0}, r"tol=-1\.0 is out of bounds"),
        ("ffdiag", {"max_iter": 0}, "max_iter=0 is out of bounds"),
        ("ffdiag", {"theta": 1.0}, r"theta=1\.0 is out of bounds.*cannot become singular"),
        ("ffdiag", {"time_limit": -1}, "time_limit=-1 is out of bounds.*Pass seconds, or None"),
        ("ffdiag", {"time_limit": "1 s"}, "time_limit='1 s' is out of bounds"),
        ("hogsvd", {"pi": -1}, "pi=-1 is out of bounds.*share of the sum"),
        ("pham", {"shrinkage": -1}, "shrinkage=-1 is out of bounds.*share of the mean"),
        ("als", {"init": "pca"}, "init='pca' is unknown; choose 'random', 'svd' or 'jennrich'"),
        ("nls", {"n_starts": 0}, "n_starts=0 is out of bounds"),
        ("pca_stack", {"center": "none"}, "center='none' is unknown; choose 'context' or 'overall'"),
        ("pca_stack", {"center": "overall"}, "center='overall' needs rows, and X is a stack of covariances"),
        ("pca_c", {"n_init": 0}, "n_init=0 is out of bounds"),
        ("mspm", {"random_state": -1}, "random_state=-1 is negative"),
        ("stack_svd", {"weights": "best"}, "weights='best' is unknown; choose 'optimal', 'noise' or 'rows'"),
        ("perpca", {"unique": 3}, "unique=3 is out of bounds: 0 <= unique <= 2 .*at most p=5; lower it, or r=3"),
        ("stablepca", {"worst": "all"}, "worst='all' is unknown; choose 'variance' or 'error'"),
    ],
)
def test_errors_name_the_argument_and_the_way_out(rng, name, options, message):
    S = random_problem(rng, 3, 5, 3)[2]
    with pytest.raises(ValueError, match=message):
        run(name, S, 3, **options)


def test_errors_of_two_contexts(rng):
    S = random_problem(rng, 2, 5, 3)[2]
    with pytest.raises(ValueError, match="foreground=2 is out of bounds: 0 <= foreground <= 1"):
        run("cpca", S, 3, foreground=2)
    with pytest.raises(ValueError, match="alpha=-1 is out of bounds"):
        run("cpca", S, 3, alpha=-1)
    with pytest.raises(ValueError, match="patterns='yes'; choose True or False"):
        run("gcpca", S, 3, patterns="yes")


def test_errors_of_the_input(rng):
    S = random_problem(rng, 3, 5, 3)[2]
    with pytest.raises(ValueError, match="r=6 is out of bounds: 1 <= r <= 5"):
        run("ffdiag", S, 6)
    with pytest.raises(ValueError, match="r=0 is out of bounds"):
        run("ffdiag", S, 0)
    with pytest.raises(ValueError, match=r"r=4 exceeds the numerical rank of the data, 3: .* Choose r <= 3"):
        run("ffdiag", S, 4)
    with pytest.raises(ValueError, match="The covariances are all zero"):
        run("ffdiag", np.zeros((2, 3, 3)), 1)
    with pytest.raises(ValueError, match="a stack of covariances, which takes no y; drop y"):
        run("ffdiag", S, 3, y=[0, 1, 2])
    with pytest.raises(ValueError, match=r"X\[0\] is not symmetric"):
        run("ffdiag", rng.standard_normal((2, 3, 3)), 1)
    with pytest.raises(TypeError, match=r"option\(s\) \['steps'\] are unknown to jennrich; it takes none"):
        run("jennrich", S, 3, steps=3)
    with pytest.raises(TypeError, match=r"\['alpha'\] are unknown to als; it takes \['init', 'n_starts'"):
        run("als", S, 3, alpha=3)
