"""What every solver in the registry must satisfy, those that somebody adds included."""

import re
from dataclasses import fields

import numpy as np
import pytest
from pages import ROOT

import mcpca
from mcpca import MCPCA, ascore, decompose, nonnegative_loadings
from mcpca._covariances import fit_data
from mcpca._covariances.stack import CovarianceStack
from mcpca._covariances.subspace import compress
from mcpca._solvers import SOLVERS, Settings, Solver, SolverResult, get_solver, mspm
from mcpca.datasets import make_contexts
from twins import compose, random_problem, sampled_problem

WAYS = [(solver, orthogonal) for solver in SOLVERS for orthogonal in (False, True)]
every_way = pytest.mark.parametrize(("solver", "orthogonal"), WAYS)


def planted(rng, k, p, r, orthogonal):
    A, B, S = random_problem(rng, k, p, r)
    if orthogonal:
        A = np.linalg.qr(A)[0]
        S = compose(A, B)
    return A, S


def settings(rng, k, report=lambda *_: None):
    return Settings(rng, 1e-7, 200, report, np.full(k, 99.0))


def same_axes(one, other):
    return 1 - ascore(one, other, method="optimal")


@every_way
@pytest.mark.parametrize(("k", "p", "r"), [(5, 12, 4), (3, 8, 8), (6, 10, 1), (230, 9, 3), (4, 220, 3)])
def test_planted_components_are_found(solver, orthogonal, k, p, r, rng):
    A, S = planted(rng, k, p, r, orthogonal)
    result = decompose(S, r, solver=solver, orthogonal=orthogonal, random_state=0)
    assert same_axes(result.components, A) < 1e-8
    assert result.converged


@every_way
@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_result_keeps_the_contract(solver, orthogonal, k, rng):
    _, _, S = sampled_problem(rng, k, 9, 4, 60, 0.4)
    before = S.copy()
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    calls = []
    given = settings(rng, k, lambda *call: calls.append(call))
    stack = CovarianceStack(S)
    result = get_solver(solver, orthogonal, k)(stack, compress(stack, 3), 3, given)
    assert isinstance(result, SolverResult)
    assert result.components.shape == (9, 3)
    np.testing.assert_allclose(np.linalg.norm(result.components, axis=0), 1)
    if orthogonal:
        np.testing.assert_allclose(result.components.T @ result.components, np.eye(3), atol=1e-9)
    assert result.n_iter >= 0
    assert isinstance(result.converged, bool)
    assert result.message.endswith(".")
    if result.loadings is not None:
        assert result.loadings.shape == (k, 3)
        assert (result.loadings >= 0).all()
    assert (result.noise is not None) == SOLVERS[solver].models_noise
    np.testing.assert_array_equal(S, before)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    stages = {}
    for stage, done, total in calls:
        last = stages.get(stage, (0, total))
        assert last[0] <= done <= total == last[1]
        stages[stage] = (done, total)
    assert all(done == total for done, total in stages.values())
    assert not stages.keys() & {"basis", "loadings"}, "stages of the caller: a stage would start again"


@every_way
def test_a_core_made_for_a_larger_rank_serves_a_smaller_one(solver, orthogonal, rng):
    """One core serves a whole sweep over ranks."""
    _, _, S = sampled_problem(rng, 6, 40, 3, 500, 0.2)
    stack = CovarianceStack(S)
    results = [
        get_solver(solver, orthogonal, 6)(stack, compress(stack, r), 3, settings(np.random.default_rng(0), 6))
        for r in (3, 7)
    ]
    assert same_axes(results[0].components, results[1].components) < 1e-6


@every_way
def test_contexts_and_features_have_no_order(solver, orthogonal, rng):
    _, _, S = sampled_problem(rng, 6, 12, 3, 400, 0.2)
    contexts, features = rng.permutation(6), rng.permutation(12)
    options = {"solver": solver, "orthogonal": orthogonal, "random_state": 0, "tol": 1e-9}
    plain = decompose(S, 3, **options)
    permuted = decompose(S[contexts][:, features][:, :, features], 3, **options)
    assert same_axes(permuted.components, plain.components[features]) < 1e-8
    np.testing.assert_allclose(permuted.loadings, plain.loadings[contexts], atol=1e-3 * plain.loadings.max())


@every_way
@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_scale_does_not_matter(solver, orthogonal, scale, rng):
    _, _, S = sampled_problem(rng, 6, 12, 4, 200, 0.2)
    options = {"solver": solver, "orthogonal": orthogonal, "random_state": 0}
    plain, scaled = decompose(S, 4, **options), decompose(S * scale, 4, **options)
    np.testing.assert_allclose(scaled.components, plain.components, atol=1e-6)
    np.testing.assert_allclose(scaled.loadings / scale, plain.loadings, atol=1e-6 * plain.loadings.max())


@every_way
def test_passes_over_rows_give_the_answer_of_the_array(solver, orthogonal, monkeypatch):
    """Only the first r directions of a core are certified: what a solver takes from the others must not matter."""
    data = make_contexts(6, 40, 4, n_samples=200, noise=0.2, random_state=2)
    options = {"solver": solver, "orthogonal": orthogonal, "random_state": 0}
    options["tol"] = 1e-9 if SOLVERS[solver].models_noise else 1e-7
    explicit = MCPCA(4, **options).fit(data.X, data.y)
    monkeypatch.setattr(fit_data, "by_passes", lambda *_: True)
    passing = MCPCA(4, **options).fit(data.X, data.y)
    assert passing.n_passes_ > 3
    np.testing.assert_allclose(passing.components_, explicit.components_, atol=1e-6)
    np.testing.assert_allclose(passing.loadings_, explicit.loadings_, atol=1e-6 * explicit.loadings_.max())


@every_way
def test_weights_of_contexts_are_not_in_the_loadings(solver, orthogonal, rng):
    """Least squares sees ``sqrt(w_i) S_i``; the loadings are those of the covariances themselves."""
    _, _, S = sampled_problem(rng, 4, 12, 3, 400, 0.2)
    weights = np.array([1.0, 4.0, 9.0, 16.0])
    options = {"solver": solver, "orthogonal": orthogonal, "random_state": 0}
    result = decompose(S, 3, context_weights=weights, **options)
    if not SOLVERS[solver].models_noise:
        np.testing.assert_allclose(result.loadings, nonnegative_loadings(S, result.components), atol=1e-9)
    scaled = decompose(S, 3, context_weights=7 * weights, **options)
    np.testing.assert_allclose(scaled.loadings, result.loadings, rtol=1e-6, atol=1e-6)


@every_way
def test_same_seed_same_bits(solver, orthogonal, rng):
    _, _, S = sampled_problem(rng, 3, 20, 5, 100, 0.5)
    options = {"solver": solver, "orthogonal": orthogonal, "random_state": 5}
    one, two = decompose(S, 5, **options), decompose(S, 5, **options)
    np.testing.assert_array_equal(one.components, two.components)
    np.testing.assert_array_equal(one.loadings, two.loadings)


@every_way
def test_float32_stays_float32_and_agrees(solver, orthogonal, rng):
    _, _, S = sampled_problem(rng, 5, 12, 3, 300, 0.3)
    options = {"solver": solver, "orthogonal": orthogonal, "random_state": 0}
    single, double = decompose(S.astype(np.float32), 3, **options), decompose(S, 3, **options)
    assert single.components.dtype == single.loadings.dtype == np.float32
    np.testing.assert_allclose(single.components, double.components, atol=1e-3)


@every_way
@pytest.mark.parametrize("case", ["zero context", "constant feature", "proportional loadings", "one strong context"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_degenerate_input_gives_finite_answers(solver, orthogonal, case, rng):
    A, B, _ = random_problem(rng, 5, 8, 3)
    if case == "proportional loadings":
        B[:, 1] = 2 * B[:, 0]
    if case == "one strong context":
        B[2] *= 1e8
    S = compose(A, B) + 0.01 * np.eye(8)
    if case == "zero context":
        S[1] = 0
    if case == "constant feature":
        S[:, 3, :] = S[:, :, 3] = 0
    result = decompose(S, 3, solver=solver, orthogonal=orthogonal, random_state=0)
    assert np.isfinite(result.components).all()
    assert np.isfinite(result.loadings).all()
    assert (result.loadings >= 0).all()


# The registry ---------------------------------------------------------------------------------------------------------


def test_a_new_solver_is_one_function_and_one_line(monkeypatch):
    """The recipe in the docstring of the package: nothing else has to know the name."""

    def solve(S, core, r, settings):
        part = core.leading(r)
        settings.report("axes", 0, 1)
        A = part.lift(np.linalg.eigh(part.tensor.sum(axis=0))[1][:, ::-1][:, :r])
        settings.report("axes", 1, 1)
        return SolverResult(A, 1, True, "Axes of the summed covariances.")

    monkeypatch.setitem(SOLVERS, "summed", Solver(solve))
    data = make_contexts(5, 8, 3, n_samples=100, noise=0.3, random_state=0)
    model = MCPCA(3, solver="summed").fit(data.X, data.y)
    np.testing.assert_allclose(model.components_.T @ model.components_, np.eye(3), atol=1e-10)
    assert model.loadings_.shape == (5, 3)
    MCPCA(3, solver="summed", orthogonal=True).fit(data.X, data.y)
    MCPCA(3, solver="summed").fit(data.X)  # one context
    assert "summed" in SOLVERS
    choices = sorted([*SOLVERS, "auto"])
    with pytest.raises(ValueError, match=re.escape(f"solver='sumed' is unknown; choose one of {choices}.")):
        MCPCA(3, solver="sumed").fit(data.X, data.y)
    # A floor of noise comes with every solver.
    corrected = MCPCA(3, solver="summed", noise="isotropic").fit(data.X, data.y)
    np.testing.assert_array_equal(corrected.components_, model.components_)
    np.testing.assert_array_equal(corrected.loadings_, model.corrected_loadings_)


def test_a_solver_that_breaks_down_is_named(monkeypatch, rng):
    def solve(S, core, r, settings):
        raise np.linalg.LinAlgError("Singular matrix")

    monkeypatch.setitem(SOLVERS, "mspm", Solver(solve))
    _, _, S = random_problem(rng, 3, 6, 2)
    with pytest.raises(ValueError, match=r"solver='mspm' broke down at rank 2 \(Singular matrix\)"):
        decompose(S, 2)


def test_the_first_solver_is_the_papers():
    assert next(iter(SOLVERS.values())).solve is mspm.solve


@pytest.mark.parametrize("name", ["MCPCA", "decompose", "tl.mcpca"])
def test_documentation_names_every_solver(name):
    target = mcpca
    for part in name.split("."):
        target = getattr(target, part)
    # "auto" compares fits of halves of the rows, which decompose does not have.
    choices = ", ".join(f'"{solver}"' for solver in [*SOLVERS, *(["auto"] if name != "decompose" else [])])
    assert f"solver : {{{choices}}}" in target.__doc__, f"the docstring of {name} lacks a solver"


def test_pages_name_every_solver():
    when, how = ((ROOT / "docs" / page).read_text() for page in ("solvers.md", "method.md"))
    for solver in SOLVERS:
        entry = f'- **`"{solver}"`**'
        assert entry in when, f"docs/solvers.md does not say when to use {solver}: a paragraph with {entry}"
        entry = f'`solver="{solver}"`'
        assert entry in how, f"docs/method.md does not say how {solver} works: a paragraph with {entry}"


def test_every_setting_is_explained():
    for field in fields(Settings):
        assert f"``{field.name}" in Settings.__doc__, field.name
