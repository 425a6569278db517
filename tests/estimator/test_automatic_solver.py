"""``solver="auto"``: the model of the solver that it chooses, what it goes with, and what it refuses by name."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from mcpca import MCPCA, ContextMoments, SolverComparison, context_covariances
from mcpca._covariances import fit_data
from mcpca.datasets import make_contexts

R = 2
# Without scaled noise, which takes most of the time.
FAST = {"noise": "isotropic", "random_state": 0}


@pytest.fixture(scope="module")
def data():
    """Rows with noise by feature, and their labels."""
    made = make_contexts(5, 9, R, n_samples=100, random_state=1)
    rng = np.random.default_rng(0)
    X = made.X + rng.permuted(np.geomspace(0.3, 1.5, 9)) * rng.standard_normal(made.X.shape)
    return X, made.y


@pytest.fixture(scope="module")
def model(data):
    return MCPCA(R, solver="auto", random_state=0).fit(*data)


def same_fit(first, second):
    for name in ("components_", "loadings_", "corrected_loadings_", "noise_variance_", "singular_values_"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    assert (first.solver_, first.noise_) == (second.solver_, second.noise_)


def test_the_model_is_that_of_the_chosen_solver(data, model):
    assert (model.solver, model.noise) == ("auto", "auto")
    assert (model.solver_, model.noise_) == ("ml", "scaled")
    choice = model.solver_choice_
    assert choice.best == "ml scaled"
    assert choice.names == ("mspm", "lsq", "ml isotropic", "ml scaled")
    assert choice.judged_by == "off-diagonal error"
    assert (choice.n_splits, choice.rank) == (2, R)
    given = MCPCA(R, solver="ml", noise="scaled", random_state=0).fit(*data)
    same_fit(model, given)
    assert given.solver_choice_ is None
    assert model.score(*data) == given.score(*data)


@pytest.mark.parametrize(
    ("solver", "noise"), [("mspm", None), ("lsq", None), ("ml", "isotropic"), ("mspm", "pooled"), ("ml", "diagonal")]
)
def test_given_solvers_are_published_with_their_noise(data, solver, noise):
    fitted = MCPCA(R, solver=solver, noise=noise, random_state=0).fit(*data)
    assert (fitted.solver_, fitted.noise_, fitted.solver_choice_) == (solver, noise, None)
    if noise in (None, "isotropic"):
        default = MCPCA(R, solver=solver, random_state=0).fit(*data)
        assert default.noise_ == noise


def test_the_same_seed_gives_the_same_choice(data, model):
    again = clone(model).fit(*data)
    same_fit(model, again)
    np.testing.assert_array_equal(
        again.solver_choice_.values["off-diagonal error"], model.solver_choice_.values["off-diagonal error"]
    )


def test_files_keep_the_choice(data, model, tmp_path):
    model.save(tmp_path / "model.mcpca")
    loaded = MCPCA.load(tmp_path / "model.mcpca")
    same_fit(model, loaded)
    assert loaded.get_params() == model.get_params()
    assert isinstance(loaded.solver_choice_, SolverComparison)
    assert loaded.solver_choice_.to_json() == model.solver_choice_.to_json()
    np.testing.assert_array_equal(loaded.transform(*data, posterior=True), model.transform(*data, posterior=True))
    # Twice the same bytes: the choice does not hold times.
    model.save(tmp_path / "again.mcpca")
    assert (tmp_path / "again.mcpca").read_bytes() == (tmp_path / "model.mcpca").read_bytes()


def test_the_rank_is_chosen_with_the_default_solver_and_again_with_the_chosen_one():
    data = make_contexts(5, 10, 2, n_samples=150, noise=0.3, random_state=0)
    auto = MCPCA(solver="auto", random_state=0).fit(data.X, data.y)
    assert auto.n_components_ == auto.rank_choice_.rank
    # Solvers were compared at the rank of the default one.
    assert auto.solver_choice_.rank == MCPCA(random_state=0).fit(data.X, data.y).n_components_


def test_principal_axes_have_no_noise_by_feature_among_the_candidates(data):
    X, y = data
    turned = X @ np.linalg.eigh(np.cov(X.T))[1]
    choice = MCPCA(R, solver="auto", random_state=0).fit(turned, y).solver_choice_
    assert choice.names == ("mspm", "lsq", "ml isotropic")
    assert choice.judged_by == "error beside isotropic noise"
    # Also where a batch is removed, which principal axes of the rows do not know.
    batch = np.arange(len(y)) % 2
    removed = MCPCA(R, solver="auto", random_state=0).fit(turned, y, batch=batch).solver_choice_
    assert removed.judged_by == choice.judged_by


def test_noise_and_orthogonal_hold_for_all_candidates(data):
    pooled = MCPCA(R, solver="auto", noise="pooled", random_state=0).fit(*data)
    assert pooled.solver_choice_.names == ("mspm pooled", "lsq pooled", "ml pooled")
    assert pooled.noise_ == "pooled"
    orthogonal = MCPCA(R, solver="auto", orthogonal=True, random_state=0).fit(*data)
    assert orthogonal.solver_choice_.names == ("mspm orthogonal", "lsq orthogonal", "ml isotropic orthogonal")
    np.testing.assert_allclose(orthogonal.components_.T @ orthogonal.components_, np.eye(R), atol=1e-10)


def test_weights_of_contexts_count_in_the_choice(data):
    X, y = data
    weights = {0: 1.0, 1: 5.0, 2: 1.0, 3: 1.0, 4: 2.0}
    weighted = MCPCA(R, solver="auto", context_weights=weights, **FAST).fit(X, y)
    given = MCPCA(R, solver=weighted.solver_, context_weights=weights, **FAST).fit(X, y)
    same_fit(weighted, given)
    listed = MCPCA(R, solver="auto", context_weights=list(weights.values()), **FAST).fit(X, y)
    measure = weighted.solver_choice_.judged_by
    np.testing.assert_array_equal(weighted.solver_choice_.values[measure], listed.solver_choice_.values[measure])
    plain = MCPCA(R, solver="auto", **FAST).fit(X, y)
    assert (plain.solver_choice_.values[measure] != listed.solver_choice_.values[measure]).all()


def test_groups_are_split_whole_also_with_a_given_rank(data):
    X, y = data
    groups = [f"{context}-{i % 6}" for i, context in enumerate(y.tolist())]
    assert MCPCA(R, solver="auto", **FAST).fit(X, y, groups=groups).solver_choice_.by == "groups"
    with pytest.raises(ValueError, match="groups has no effect, because the rank is given"):
        MCPCA(R, random_state=0).fit(X, y, groups=groups)


def test_nuisance_is_removed_in_the_halves(data, rng):
    X, y = data
    batch = rng.integers(2, size=len(y))
    age = rng.uniform(20, 80, len(y))
    plain = MCPCA(R, solver="auto", **FAST).fit(X, y, batch=batch, covariates=age)
    shifted = X + 5 * batch[:, None] + age[:, None]
    moved = MCPCA(R, solver="auto", **FAST).fit(shifted, y, batch=batch, covariates=age)
    measure = plain.solver_choice_.judged_by
    np.testing.assert_allclose(moved.solver_choice_.values[measure], plain.solver_choice_.values[measure], rtol=1e-5)


def test_cross_fit_is_of_the_chosen_solver(data):
    crossed = MCPCA(R, solver="auto", cross_fit=1, **FAST).fit(*data)
    given = MCPCA(R, solver=crossed.solver_, cross_fit=1, **FAST).fit(*data)
    same_fit(crossed, given)
    np.testing.assert_array_equal(crossed.attenuation_, given.attenuation_)


def test_rows_by_passes_choose_the_same(data, monkeypatch):
    model = MCPCA(R, solver="auto", **FAST).fit(*data)
    monkeypatch.setattr(fit_data, "MOST_NUMBERS", 0)
    passed = MCPCA(R, solver="auto", **FAST).fit(*data)
    assert passed.n_passes_ is not None
    assert (passed.solver_, passed.noise_) == (model.solver_, model.noise_)
    np.testing.assert_allclose(np.abs((passed.components_ * model.components_).sum(axis=0)), 1, atol=1e-5)


def test_resamples_and_halves_keep_the_solver(data, model):
    unfitted = model._unfitted()
    assert (unfitted.solver, unfitted.noise) == ("ml", "scaled")
    assert model.replicability(*data, n_splits=1, random_state=0).cosines.shape == (1, R)


def test_a_pipeline_passes_it_on(data):
    X, y = data
    pipeline = make_pipeline(FunctionTransformer(), MCPCA(R, **FAST)).set_params(mcpca__solver="auto")
    assert pipeline.fit(X, y)[-1].solver_choice_.best.split()[0] == pipeline[-1].solver_
    assert pipeline.transform(X).shape == (len(X), R)


def test_one_context_is_pca(data):
    X, _ = data
    found = MCPCA(R, solver="auto", random_state=0).fit(X)
    assert found.solver_choice_ is not None
    assert found.components_.shape == (9, R)


def test_what_it_does_not_go_with_is_refused_by_name(data):
    X, y = data
    auto = MCPCA(R, solver="auto")
    S = context_covariances(X, y)
    for fit in (
        lambda: auto.fit_covariances(S.covariances, S.n_samples),
        lambda: auto.fit(S.covariances),
        lambda: auto.fit(ContextMoments().update(X, y)),
        lambda: auto.partial_fit(X, y),
    ):
        with pytest.raises(ValueError, match=r"solver='auto' fits halves of the rows, and .* cannot be divided"):
            fit()
    with pytest.raises(ValueError, match=r"solver='auto' with robust=True: .* Name a solver"):
        clone(auto).set_params(robust=True).fit(X, y)
    for missing in ("union", "em", "pairwise"):
        with pytest.raises(ValueError, match=f"solver='auto' with missing='{missing}': .* Name a solver"):
            clone(auto).set_params(missing=missing).fit(X, y)
    with pytest.raises(ValueError, match="orthogonal=True with noise='scaled'"):
        clone(auto).set_params(orthogonal=True, noise="scaled").fit(X, y)
    few = np.flatnonzero((y != 0) | (np.arange(len(y)) < 3))
    with pytest.raises(ValueError, match=r"fewer than 4 rows.*name a solver in place of 'auto'"):
        auto.fit(X[few], y[few])
    assert not hasattr(auto, "components_")


def test_a_rank_that_halves_do_not_have_is_an_error(rng):
    X = [rng.standard_normal((4, 9)) for _ in range(2)]
    with pytest.raises(ValueError, match=r"No solver could be fitted to halves of the rows .*numerical rank"):
        MCPCA(6, solver="auto", random_state=0).fit(X)


def test_rows_on_dask(data):
    array = pytest.importorskip("dask.array")
    X, y = data
    rows = array.from_array(X, chunks=(200, X.shape[1]))
    found, expected = (MCPCA(R, solver="auto", random_state=0).fit(form, y) for form in (rows, X))
    assert (found.solver_, found.noise_) == (expected.solver_, expected.noise_)
    np.testing.assert_allclose(found.components_, expected.components_, atol=1e-7)
