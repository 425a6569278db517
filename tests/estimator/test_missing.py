"""Features that some contexts lack, and values that are missing within rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from mcpca import MCPCA, ascore
from mcpca._covariances.observed import pairwise
from mcpca._covariances.overlap import check_tied, undetermined
from mcpca._data.union import read_union
from mcpca._solvers.masked import Masked
from mcpca._solvers.masked_em import IncompleteRows, expect
from mcpca._solvers.masked_lsq import minimise_squares
from mcpca._utils.progress import silent
from mcpca.datasets import make_contexts
from mcpca.exceptions import ExtraFeaturesWarning, MissingFeaturesWarning

K, P, R, N = 8, 16, 3, 400
NAMES = [f"g{j}" for j in range(P)]


@pytest.fixture(scope="module")
def planted():
    return make_contexts(
        n_contexts=K, n_features=P, n_components=R, n_samples=N, noise=0.3, density=1.0, random_state=1
    )


@pytest.fixture(scope="module")
def mask():
    """Each feature in five of eight contexts."""
    rng = np.random.default_rng(0)
    out = np.zeros((K, P), dtype=bool)
    for feature in range(P):
        out[rng.choice(K, 5, replace=False), feature] = True
    return out


def frames_of(planted, mask, order=None):
    """Return a DataFrame of its own features for each context."""
    X, y = np.asarray(planted.X), np.asarray(planted.y)
    labels = np.unique(y)
    blocks = {}
    for i, label in enumerate(labels):
        table = pd.DataFrame(X[y == label], columns=NAMES)
        blocks[f"c{i}"] = table[[name for name, there in zip(NAMES, mask[i], strict=True) if there]]
    return blocks if order is None else {name: blocks[name] for name in order}


def with_nan(planted, mask):
    """Return one matrix with NaN where a context lacks a feature, and its labels."""
    X, y = np.array(planted.X), np.asarray(planted.y)
    codes = np.unique(y, return_inverse=True)[1]
    X[~mask[codes]] = np.nan
    return X, np.array([f"c{i}" for i in codes])


@pytest.fixture(scope="module")
def models(planted, mask):
    return {
        solver: MCPCA(R, solver=solver, missing="union", random_state=0).fit(frames_of(planted, mask))
        for solver in ("lsq", "ml")
    }


def in_order(model):
    """Return A with its features in the order of NAMES."""
    return pd.DataFrame(model.components_, index=model.feature_names_in_).loc[NAMES].to_numpy()


# The fit --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["lsq", "ml"])
def test_planted_axes_are_found_over_the_union(planted, mask, models, solver):
    model = models[solver]
    assert set(model.feature_names_in_) == set(NAMES)
    assert 1 - ascore(in_order(model), planted.components) < 0.005
    assert np.isnan(model.means_).sum() == (~mask).sum()
    np.testing.assert_allclose(np.median(model.noise_variance_), 0.09, rtol=0.1)


def test_features_come_in_the_order_in_which_they_are_first_seen(planted, mask, models):
    frames = frames_of(planted, mask)
    seen = list(dict.fromkeys(name for frame in frames.values() for name in frame.columns))
    assert models["ml"].feature_names_in_.tolist() == seen


@pytest.mark.parametrize("solver", ["lsq", "ml"])
def test_tables_and_nan_give_the_same_fit(planted, mask, models, solver):
    X, y = with_nan(planted, mask)
    model = MCPCA(R, solver=solver, missing="union", random_state=0).fit(pd.DataFrame(X, columns=NAMES), y)
    np.testing.assert_allclose(np.abs(model.components_), np.abs(in_order(models[solver])), atol=2e-4)
    np.testing.assert_allclose(model.loadings_, models[solver].loadings_, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("solver", "noise"), [("lsq", None), ("ml", "isotropic"), ("ml", "pooled"), ("ml", "diagonal"), ("ml", "scaled")]
)
def test_complete_rows_give_the_complete_fit(planted, solver, noise):
    # Without missing features, the objective is that of the complete solver.
    complete = MCPCA(R, solver=solver, noise=noise, random_state=0, tol=1e-9).fit(planted.X, planted.y)
    union = MCPCA(R, solver=solver, noise=noise, missing="union", random_state=0, tol=1e-9).fit(planted.X, planted.y)
    np.testing.assert_allclose(union.components_, complete.components_, atol=1e-4)
    np.testing.assert_allclose(union.loadings_, complete.loadings_, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(union.reconstruction_error(), complete.reconstruction_error(), rtol=1e-2)


def test_the_fit_ends_at_the_minimum_that_the_truth_leads_to(planted, mask, models):
    X, y = with_nan(planted, mask)
    moments = pairwise(read_union(X, y, "union"), "union", silent)
    data = Masked(moments.covariances, moments.mask, np.ones(K), N - 1.0)
    best = minimise_squares(data, np.asarray(planted.components), floor=True, tol=1e-9, max_iter=100)
    mine = minimise_squares(data, in_order(models["lsq"]), floor=True, tol=1e-9, max_iter=100)
    assert mine.gradient < 1e-9
    np.testing.assert_allclose(mine.value, best.value, rtol=1e-8)


def test_facets_are_those_of_the_observed_entries(planted, mask, models):
    model = models["lsq"]
    position = {name: j for j, name in enumerate(model.feature_names_in_)}
    for i, frame in enumerate(frames_of(planted, mask).values()):
        own = [position[name] for name in frame.columns]
        S = np.cov(frame.to_numpy(), rowvar=False)
        error = S - (model.components_[own] * model.loadings_[i]) @ model.components_[own].T
        np.testing.assert_allclose(model.reconstruction_error(per="context")[i], (error**2).sum(), rtol=1e-6)


def test_a_feature_in_one_context_is_named_and_left_out(planted, mask):
    frames = frames_of(planted, mask)
    frames["c0"] = frames["c0"].assign(alone=np.random.default_rng(0).standard_normal(len(frames["c0"])))
    with pytest.warns(MissingFeaturesWarning, match="1 of 17 features are in fewer than 2 contexts.*'alone'"):
        model = MCPCA(R, solver="ml", missing="union").fit(frames)
    assert "alone" not in model.feature_names_in_


def test_a_weight_that_nothing_determines_is_named_and_small():
    rng = np.random.default_rng(3)
    A = np.linalg.qr(rng.standard_normal((10, 2)))[0]
    B = np.array([[2.0, 0], [3, 0], [1, 2], [2, 1], [0.5, 3]])
    blocks = {}
    for i, b in enumerate(B):
        X = (rng.standard_normal((500, 2)) * np.sqrt(b)) @ A.T + 0.2 * rng.standard_normal((500, 10))
        # Feature 0 is in the two contexts without the second component.
        blocks[f"c{i}"] = pd.DataFrame(X, columns=[f"g{j}" for j in range(10)]).iloc[:, 0 if i < 2 else 1 :]
    with pytest.warns(MissingFeaturesWarning, match="nothing determines the weight of 'g0' in MCPC 2"):
        model = MCPCA(2, solver="ml", missing="union", random_state=0).fit(blocks)
    assert abs(model.components_[0, 1]) < 0.15
    rest = model.components_[1:] / np.linalg.norm(model.components_[1:], axis=0)
    assert 1 - ascore(rest, A[1:] / np.linalg.norm(A[1:], axis=0)) < 0.01


def test_scale_of_the_data_does_not_matter(planted, mask, models):
    X, y = with_nan(planted, mask)
    small = MCPCA(R, solver="lsq", missing="union", random_state=0).fit(1e-40 * X, y)
    np.testing.assert_allclose(np.abs(small.components_), np.abs(in_order(models["lsq"])), atol=2e-4)


def test_sparse_matrices_and_weights_of_contexts(planted, mask, models):
    anndata = pytest.importorskip("anndata")
    adatas = {
        name: anndata.AnnData(scipy.sparse.csr_matrix(frame.to_numpy()), var=pd.DataFrame(index=list(frame.columns)))
        for name, frame in frames_of(planted, mask).items()
    }
    model = MCPCA(R, solver="lsq", missing="union", context_weights=np.full(K, 2.0), random_state=0).fit(adatas)
    np.testing.assert_allclose(model.components_, models["lsq"].components_, atol=1e-6)


# Values within rows ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def holes(planted):
    X = np.array(planted.X)
    X[np.random.default_rng(5).random(X.shape) < 0.2] = np.nan
    return X


@pytest.mark.parametrize(("solver", "missing"), [("ml", "em"), ("lsq", "pairwise"), ("mspm", "pairwise")])
def test_values_missing_at_random(planted, holes, solver, missing):
    model = MCPCA(R, solver=solver, missing=missing, random_state=0).fit(holes, planted.y)
    assert 1 - ascore(model.components_, planted.components) < 0.005
    assert np.isfinite(model.means_).all()


def test_em_without_missing_values_is_the_complete_fit(planted):
    complete = MCPCA(R, solver="ml", random_state=0, tol=1e-9).fit(planted.X, planted.y)
    em = MCPCA(R, solver="ml", missing="em", random_state=0, tol=1e-9).fit(planted.X, planted.y)
    np.testing.assert_allclose(em.components_, complete.components_, atol=1e-4)


def test_em_takes_whole_features_that_are_missing_as_well(planted, mask, models):
    X, y = with_nan(planted, mask)
    em = MCPCA(R, solver="ml", missing="em", random_state=0).fit(X, y)
    np.testing.assert_allclose(np.abs(em.components_), np.abs(in_order(models["ml"])), atol=1e-3)
    assert np.isnan(em.means_).sum() == (~mask).sum()


def test_the_expectation_is_that_of_a_slow_twin():
    rng = np.random.default_rng(0)
    p, r, n = 5, 2, 40
    A = rng.standard_normal((p, r))
    b, d, mean = rng.random(r) + 0.5, rng.random(p) + 0.2, rng.standard_normal(p)
    X = rng.standard_normal((n, p)) + 1
    X[rng.random(X.shape) < 0.3] = np.nan
    own = np.array([True, True, True, True, False])
    X[:, ~own] = np.nan
    Sigma = (A * b) @ A.T + np.diag(d)
    completed, spread = [], np.zeros((p, p))
    for x in X:
        o = ~np.isnan(x)
        m = own & ~o
        T = Sigma[np.ix_(m, o)] @ np.linalg.inv(Sigma[np.ix_(o, o)])
        row = np.where(o, x, 0)
        row[m] = mean[m] + T @ (x[o] - mean[o])
        completed.append(row)
        spread[np.ix_(m, m)] += Sigma[np.ix_(m, m)] - T @ Sigma[np.ix_(o, m)]
    completed = np.array(completed)
    result = expect([IncompleteRows.of(X)], own[None], A, b[None], d[None], np.where(own, mean, 0)[None])
    np.testing.assert_allclose(result.means[0], completed.mean(axis=0), atol=1e-12)
    S = np.cov(completed, rowvar=False) + spread / n
    np.testing.assert_allclose(result.covariances[0], S * np.outer(own, own), atol=1e-12)


def test_pairwise_covariances_are_those_of_pandas(holes, planted):
    y = np.asarray(planted.y)
    moments = pairwise(read_union(holes, y, "pairwise"), "pairwise", silent)
    for i, label in enumerate(np.unique(y)):
        expected = pd.DataFrame(holes[y == label]).cov().to_numpy()
        assert np.linalg.eigvalsh(expected)[0] > 0  # so that nothing is projected
        np.testing.assert_allclose(moments.covariances[i], expected, atol=1e-10)


# Rows that meet the model ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("posterior", [False, True])
def test_scores_are_those_of_the_features_that_are_there(planted, mask, models, posterior):
    model = models["ml"]
    frames = frames_of(planted, mask)
    with pytest.warns(MissingFeaturesWarning, match="variance of their errors is up to"):
        Z = model.transform({"c2": frames["c2"]}, posterior=posterior)["c2"]
    own = [model.feature_names_in_.tolist().index(name) for name in frames["c2"].columns]
    A = model.components_[own]
    centred = frames["c2"].to_numpy() - frames["c2"].to_numpy().mean(axis=0)
    if posterior:
        Sigma = (A * model.loadings_[2]) @ A.T + model.noise_variance_[2] * np.eye(len(own))
        expected = centred @ np.linalg.solve(Sigma, A * model.loadings_[2])
    else:
        expected = centred @ np.linalg.pinv(A).T
    np.testing.assert_allclose(Z, expected, atol=1e-8)


@pytest.mark.filterwarnings("ignore::mcpca.exceptions.MissingFeaturesWarning")
def test_all_ways_to_rows_with_missing_features_agree(planted, mask, models):
    model = models["lsq"]
    frames = frames_of(planted, mask)
    X, y = with_nan(planted, mask)
    by_context = np.concatenate(list(model.transform(frames).values()))
    whole = model.transform(pd.DataFrame(X, columns=NAMES), y)
    order = np.argsort(y, kind="stable")
    np.testing.assert_allclose(whole[order], by_context, atol=1e-10)
    np.testing.assert_allclose(
        model.outlyingness(pd.DataFrame(X, columns=NAMES), y)[order],
        np.concatenate(list(model.outlyingness(frames).values())),
        rtol=1e-9,
    )
    np.testing.assert_allclose(model.score(frames), model.score(pd.DataFrame(X, columns=NAMES), y), rtol=1e-9)


def test_a_complete_model_and_a_panel_that_lacks_features(planted):
    table = pd.DataFrame(np.asarray(planted.X), columns=NAMES)
    model = MCPCA(R, solver="ml", random_state=0).fit(table, planted.y)
    panel = table[NAMES[3:]]
    with pytest.raises(ValueError, match="lacks 3 of the 16 features of the fit: 'g0', 'g1', 'g2'"):
        model.transform(panel, planted.y)
    with pytest.warns(
        MissingFeaturesWarning, match=r"up to 3 of 16 in a row \('g0', 'g1', 'g2'\): scores are by least"
    ):
        Z = model.transform(panel, planted.y, missing="union")
    complete = model.transform(table, planted.y)
    for j in range(R):
        assert np.corrcoef(Z[:, j], complete[:, j])[0, 1] > 0.9
    with pytest.warns(MissingFeaturesWarning, match="loadings are by least squares"):
        B = model.loadings_for(panel, planted.y, missing="union")
    np.testing.assert_allclose(B, model.loadings_, rtol=0.2, atol=0.1)
    # Nothing is missing: nothing changes, and nobody is warned.
    np.testing.assert_allclose(model.transform(table, planted.y, missing="union"), complete, atol=1e-10)
    np.testing.assert_allclose(
        model.loadings_for(table, planted.y, missing="union"), model.loadings_for(table, planted.y), rtol=1e-6
    )


def test_a_sparse_panel_goes_the_same_way(planted):
    anndata = pytest.importorskip("anndata")
    table = pd.DataFrame(np.asarray(planted.X), columns=NAMES)
    model = MCPCA(R, random_state=0).fit(table, planted.y)
    panel = anndata.AnnData(scipy.sparse.csr_matrix(table.to_numpy()[:, 3:]), var=pd.DataFrame(index=NAMES[3:]))
    with pytest.warns(MissingFeaturesWarning, match="up to 3 of 16"):
        sparse = model.transform(panel, planted.y, missing="union")
    with pytest.warns(MissingFeaturesWarning, match="up to 3 of 16"):
        dense = model.transform(table[NAMES[3:]], planted.y, missing="union")
    np.testing.assert_allclose(sparse, dense, atol=1e-8)


def test_the_cost_is_the_growth_of_the_variance(planted):
    table = pd.DataFrame(np.asarray(planted.X), columns=NAMES)
    model = MCPCA(R, random_state=0).fit(table, planted.y)
    A = model.components_
    factors = np.diag(np.linalg.inv(A[4:].T @ A[4:])) / np.diag(np.linalg.inv(A.T @ A))
    with pytest.warns(
        MissingFeaturesWarning, match=rf"up to {factors.max():.3g} times .*\(MCPC {factors.argmax() + 1}\)"
    ):
        model.transform(table[NAMES[4:]], planted.y, missing="union")


def test_rows_with_too_few_features_have_no_scores_by_least_squares(planted):
    table = pd.DataFrame(np.asarray(planted.X), columns=NAMES)
    model = MCPCA(R, solver="ml", random_state=0).fit(table, planted.y)
    X = table.to_numpy().copy()
    X[7, 2:] = np.nan
    with pytest.raises(ValueError, match=r"Row 7 has 2 of the 16 features.*posterior=True"):
        model.transform(pd.DataFrame(X, columns=NAMES), planted.y, missing="union")
    with pytest.warns(MissingFeaturesWarning, match="expected given"):
        Z = model.transform(pd.DataFrame(X, columns=NAMES), planted.y, posterior=True, missing="union")
    assert np.isfinite(Z).all()
    with pytest.warns(ExtraFeaturesWarning), pytest.warns(MissingFeaturesWarning):
        model.loadings_for(table[NAMES[1:]].assign(other=1.0), planted.y, missing="union")


@pytest.mark.filterwarnings("ignore::mcpca.exceptions.MissingFeaturesWarning")
def test_files_keep_the_model(planted, mask, models, tmp_path):
    model = models["lsq"]
    model.save(tmp_path / "model.npz")
    again = MCPCA.load(tmp_path / "model.npz")
    frames = frames_of(planted, mask)
    np.testing.assert_array_equal(again.means_, model.means_)
    np.testing.assert_array_equal(again.transform(frames)["c3"], model.transform(frames)["c3"])
    np.testing.assert_allclose(again.score(frames), model.score(frames))


def test_resamples_and_halves_are_fitted_in_the_same_way(planted, mask, models):
    frames = frames_of(planted, mask)
    bootstrap = models["lsq"].bootstrap(frames, n=4, random_state=0)
    assert bootstrap.n_failed == 0
    assert (bootstrap.angles < 10).all()
    halves = models["ml"].replicability(frames, n_splits=1, random_state=0)
    assert (halves.cosines > 0.95).all()


def test_groups_are_resampled_together_and_nuisance_is_refused(planted, mask, models):
    X, y = with_nan(planted, mask)
    table = pd.DataFrame(X, columns=NAMES)
    groups = np.arange(len(y)) % 20
    assert (models["ml"].bootstrap(table, y, n=2, groups=groups, random_state=0).angles < 10).all()
    batch = np.arange(len(y)) % 2
    with pytest.raises(ValueError, match="batch with missing='union': nuisance is removed from complete rows"):
        MCPCA(R, solver="ml", missing="union").fit(table, y, batch=batch)
    with pytest.raises(ValueError, match="covariates with missing='union'"):
        models["ml"].transform(table, y, covariates=batch.astype(float))


def test_inverse_transform_knows_no_mean_of_missing_features(planted, mask, models):
    model = models["ml"]
    rows = model.inverse_transform(np.zeros((1, R)), y=["c0"])
    np.testing.assert_array_equal(np.isnan(rows[0]), np.isnan(model.means_[0]))
    assert np.isfinite(model.inverse_transform(np.zeros((1, R)))).all()


# Bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"missing": "drop"}, r"missing='drop' is unknown; choose one of \['error', 'union', 'pairwise', 'em'\]"),
        ({"missing": "union"}, "mspm needs all features in all contexts. Pass solver='lsq' or solver='ml'"),
        ({"missing": "em", "solver": "lsq"}, "missing='em' with solver='lsq'.*Pass solver='ml'"),
        ({"missing": "pairwise", "solver": "ml"}, "Pass solver='mspm' or solver='lsq'"),
        ({"missing": "union", "solver": "lsq", "orthogonal": True}, "orthogonal axes need all features"),
        ({"missing": "union", "solver": "lsq", "noise": "diagonal"}, "noise='isotropic' or None"),
        ({"missing": "union", "solver": "ml", "noise": None}, "needs noise"),
        ({"missing": "union", "solver": "ml", "n_components": None}, "needs n_components"),
        ({"missing": "union", "solver": "ml", "robust": True}, "robust=True, which is for complete rows"),
        ({"missing": "union", "solver": "ml", "cross_fit": 2}, "cross_fit=2, which is for complete rows"),
    ],
)
def test_parameters_that_do_not_go_together(planted, mask, parameters, message):
    with pytest.raises(ValueError, match=message):
        MCPCA(**{"n_components": R, **parameters}).fit(frames_of(planted, mask))


def refused(X, message, y=None, r=R, missing="union", solver="ml", error=ValueError):
    with pytest.raises(error, match=message):
        MCPCA(r, solver=solver, missing=missing).fit(X, y)


def test_bad_rows_are_refused_in_one_line(planted, mask):
    frames = frames_of(planted, mask)
    X, y = with_nan(planted, mask)
    empty = X.copy()
    empty[y == "c3"] = np.nan
    refused(empty, "Contexts 'c3' have no feature at all", y)
    partly = X.copy()
    partly[np.flatnonzero(y == "c1")[:7], np.flatnonzero(mask[1])[0]] = np.nan
    refused(partly, "whole features, and context 'c1' has NaN in some of its rows only.*missing='em'", y)
    infinite = X.copy()
    infinite[0, np.flatnonzero(np.isfinite(X[0]))[0]] = np.inf
    refused(infinite, r"infinite \(inf\) values", y)
    apart = {name: frame.add_suffix(f" of {name}") for name, frame in frames.items()}
    refused(apart, "no two contexts share a feature")
    refused({**frames, "c1": frames["c1"].to_numpy()}, "context 'c1', has no names")
    alone = X.copy()
    alone[y != "c0", 0] = np.nan
    alone[y == "c0", 0] = 1.0
    refused(alone, r"features 0 \(counted from 0\) are in fewer than 2 contexts.*pass DataFrames", y)
    refused(
        X, "needs every feature in every context, and context 'c0' has no value of", y, missing="pairwise", solver="lsq"
    )
    with pytest.raises(ValueError, match="missing='union' looks for missing values among rows, and covariances"):
        MCPCA(R, solver="ml", missing="union").fit_covariances(np.stack([np.eye(4)] * 2))
    with pytest.raises(ValueError, match="missing='other'; choose 'union'"):
        MCPCA(R, random_state=0).fit(planted.X, planted.y).transform(planted.X, missing="other")


def test_a_context_that_shares_too_little_is_named(planted, mask):
    frames = frames_of(planted, mask)
    few = list(frames["c4"].columns[:2])
    frames["c4"] = frames["c4"][few].assign(x=0.0, y=1.0, z=2.0)
    with (
        pytest.warns(MissingFeaturesWarning, match="'x', 'y', 'z'"),
        pytest.raises(ValueError, match=r"1 of 8 contexts share fewer.*'c4' \(2\). Choose n_components <= 1, or leave"),
    ):
        MCPCA(R, solver="ml", missing="union").fit(frames)


def test_a_rank_beyond_what_is_shared_is_refused(planted, mask):
    frames = frames_of(planted, mask)
    refused(frames, "n_components=13 needs contexts that share at least 14 features, .*n_components <= 5", r=13)
    MCPCA(5, solver="ml", missing="union", random_state=0).fit(frames)


def test_dask_is_refused_by_name():
    array = pytest.importorskip("dask.array")
    X = array.ones((20, 4), chunks=(10, 4))
    refused(X, "missing='union' needs rows in the memory of this process", np.repeat([0, 1], 10), error=TypeError, r=1)


def test_tests_that_need_complete_rows_say_so(models):
    with pytest.raises(ValueError, match=r"standard_errors\(\) is for models of complete rows.*bootstrap"):
        models["ml"].standard_errors()
    with pytest.raises(ValueError, match=r"presence\(\) is for models of complete rows"):
        models["ml"].presence()


def test_contexts_are_tied_through_others():
    # A chain: the first and the last share nothing, and are tied by those between them.
    chain = np.array([[1, 1, 1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1]], dtype=bool)
    check_tied(chain, ["a", "b", "c"], 2, noise=False, missing="union")
    with pytest.raises(ValueError, match=r"share at least 3 features.*n_components <= 1"):
        check_tied(chain, ["a", "b", "c"], 2, noise=True, missing="union")


def test_undetermined_weights():
    mask = np.array([[True, True], [True, False]])
    B = np.array([[1.0, 0.0], [0.5, 2.0]])
    np.testing.assert_array_equal(undetermined(mask, B, 0.01), [[False, False], [False, True]])
