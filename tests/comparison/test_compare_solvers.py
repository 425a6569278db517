"""``compare_solvers``: one judge for solvers, baselines and naive covariances; what it recommends, says and refuses."""

import json
import sys

import numpy as np
import pytest

import mcpca
from mcpca import SolverComparison, compare_solvers
from mcpca._comparison import solvers as module
from mcpca._comparison.naive import NAIVE
from mcpca._data.contexts import read_contexts
from mcpca._inference.held_out import Half
from mcpca._inference.solver_comparison import AGREEMENT, LOG_LIKELIHOOD, SECONDS
from mcpca.datasets import make_contexts

OFF = "off-diagonal error"
FEW = {"solvers": ["mspm", "ml"], "baselines": (), "n_splits": 2, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    return make_contexts(6, 12, 3, n_samples=60, noise=0.4, random_state=1)


@pytest.fixture(scope="module")
def by_feature():
    """Noise that differs between features, by which only two of the solvers are not misled."""
    made = make_contexts(5, 9, 2, n_samples=100, random_state=1)
    rng = np.random.default_rng(0)
    X = made.X + rng.permuted(np.geomspace(0.3, 1.5, 9)) * rng.standard_normal(made.X.shape)
    return X, made.y


@pytest.fixture(scope="module")
def full(by_feature):
    return compare_solvers(*by_feature, 2, random_state=0)


def same(first, second):
    assert first.names == second.names
    assert (first.best, first.reason) == (second.best, second.reason)
    for name in first.values:
        if name != SECONDS:
            np.testing.assert_array_equal(first.values[name], second.values[name])


def test_the_solver_that_models_the_noise_is_recommended(full):
    assert full.best in ("ml diagonal", "ml scaled")
    error = dict(zip(full.names, full.means[OFF], strict=True))
    assert all(error[full.best] < 0.9 * error[name] for name in ("mspm", "lsq", "ml isotropic", "ml pooled"))
    assert full.options == {"solver": "ml", "noise": full.best.split()[1]}
    assert f"{full.best} has the lowest off-diagonal error of 6 solvers" in full.reason
    assert "3 splits" in full.reason
    agreement = dict(zip(full.names, full.means[AGREEMENT], strict=True))
    assert agreement[full.best] > agreement["mspm"]


def test_all_kinds_are_compared_in_one_table(full):
    pytest.importorskip("pandas")  # without it tables are dictionaries
    table = full.table
    assert set(table["kind"]) == {"solver", "baseline", "naive"}
    assert set(table.index[table["kind"] == "naive"]) == set(NAIVE)
    assert {"pca_stack", "cpc", "ffdiag"} <= set(table.index)
    assert table[OFF].is_monotonic_increasing
    for measure in (OFF, "error beside isotropic noise", LOG_LIKELIHOOD, AGREEMENT):
        expected = full.values[measure].std(axis=1, ddof=1) / np.sqrt(3)
        np.testing.assert_array_equal(table[f"{measure}, s.e."], expected[full.order])
    assert np.isnan(table.loc["own covariance", AGREEMENT])
    assert (table[SECONDS] > 0).all()
    assert table[[OFF, LOG_LIKELIHOOD]].notna().all().all()
    assert table.loc["own covariance", LOG_LIKELIHOOD] < table.loc[full.best, LOG_LIKELIHOOD]


def test_naive_covariances_are_what_they_are_called(data):
    half = Half(read_contexts(data.X, data.y), 3, 1e-7)
    S = half.array
    P = sum(60 * S_i for S_i in S) / (6 * 60)
    found = {name: predict(half, 3).matrices() for name, predict in NAIVE.items()}
    np.testing.assert_array_equal(found["own covariance"], S)
    np.testing.assert_allclose(found["half own half pooled"], (S + P) / 2)
    for i in range(6):
        np.testing.assert_allclose(found["scaled pooled covariance"][i], P * np.trace(S[i]) / np.trace(P))
        values, vectors = np.linalg.eigh(S[i])
        noise = values[:-3].mean()
        # Probabilistic PCA: with its noise it has the top eigenvalues of the covariance, and its trace.
        again = found["own PCA"][i] + noise * np.eye(12)
        np.testing.assert_allclose(np.linalg.eigvalsh(again)[-3:], values[-3:])
        assert np.trace(again) == pytest.approx(np.trace(S[i]))
        np.testing.assert_allclose(np.abs(np.diag(vectors[:, -3:].T @ np.linalg.eigh(again)[1][:, -3:])), 1)


def test_only_solvers_are_recommended(rng):
    """Covariances of full rank: any of the naive ones is closer than one component."""
    pytest.importorskip("pandas")  # without it tables are dictionaries
    X = [rng.standard_normal((400, 8)) @ rng.standard_normal((8, 8)) for _ in range(3)]
    found = compare_solvers(X, r=1, **FEW)
    table = found.table
    assert table["kind"].iloc[0] == "naive"
    assert found.best in ("mspm", "ml isotropic")
    assert "a lower error still" in str(found)
    assert "own covariance" in str(found)
    assert "no components" in str(found)


def test_threads_and_other_candidates_change_nothing(data):
    one = compare_solvers(data.X, data.y, 3, n_jobs=1, **FEW)
    same(one, compare_solvers(data.X, data.y, 3, n_jobs=2, **FEW))
    more = compare_solvers(data.X, data.y, 3, **FEW | {"solvers": ["lsq", "ml", "mspm"], "baselines": ["pca_svd"]})
    for name in one.names:
        for measure in (OFF, LOG_LIKELIHOOD, AGREEMENT):
            first, second = one.values[measure][one.names.index(name)], more.values[measure][more.names.index(name)]
            np.testing.assert_array_equal(first, second)


def test_forms_of_input_agree(data):
    whole = compare_solvers(data.X, data.y, 3, **FEW)
    same(whole, compare_solvers([data.X[data.y == i] for i in range(6)], r=3, **FEW))
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(data.X).assign(context=data.y)
    same(whole, compare_solvers(frame, "context", 3, **FEW))


def test_errors_have_no_unit_and_densities_do(data):
    plain = compare_solvers(data.X, data.y, 3, **FEW)
    scaled = compare_solvers(2.0**200 * data.X, data.y, 3, **FEW)
    np.testing.assert_allclose(scaled.values[OFF], plain.values[OFF], rtol=1e-9)
    expected = plain.values[LOG_LIKELIHOOD] - 200 * np.log(2)
    np.testing.assert_allclose(scaled.values[LOG_LIKELIHOOD], expected, rtol=1e-9)


def test_principal_axes_are_judged_beside_isotropic_noise(data):
    axes = np.linalg.eigh(np.cov(data.X.T))[1]
    turned = compare_solvers(data.X @ axes, data.y, 3, **FEW)
    assert turned.judged_by == "error beside isotropic noise"
    assert "error beside isotropic noise" in turned.reason
    plain = compare_solvers(data.X, data.y, 3, **FEW)
    assert plain.judged_by == OFF
    i = plain.names.index("ml isotropic")  # does not depend on the axes of the features, nor does this error
    measure = turned.judged_by
    np.testing.assert_allclose(turned.values[measure][i], plain.values[measure][i], rtol=1e-3)


def test_groups_are_split_whole(data):
    # Two groups of each context: there is one way to halve it, and two of all contexts cannot share a half with it.
    groups = np.array([f"{context}-{j % 2}" for j, context in enumerate(data.y.tolist())])
    found = compare_solvers(data.X, data.y, 3, groups=groups, **FEW)
    assert found.by == "groups"
    assert "halves of the groups" in found.reason
    lonely = np.where(data.y == 2, "one", groups)
    assert compare_solvers(data.X, data.y, 3, groups=lonely, **FEW).left_out == (2,)


def test_nuisance_is_removed(data, rng):
    batch = rng.integers(2, size=len(data.y))
    plain = compare_solvers(data.X, data.y, 3, batch=batch, **FEW | {"baselines": ["cpc"]})
    shifted = compare_solvers(data.X + 5 * batch[:, None], data.y, 3, batch=batch, **FEW | {"baselines": ["cpc"]})
    np.testing.assert_allclose(shifted.values[OFF], plain.values[OFF], rtol=1e-6)
    assert shifted.best == plain.best


def test_solvers_are_named_in_several_ways(data):
    options = FEW | {"n_splits": 1}
    choices = ["ml", {"solver": "ml", "noise": "isotropic"}, "lsq orthogonal", {"solver": "mspm", "noise": "scaled"}]
    found = compare_solvers(data.X, data.y, 3, **options | {"solvers": choices})
    assert found.names[:3] == ("ml isotropic", "lsq orthogonal", "mspm scaled")
    assert "one split does not say how sure" in found.reason
    assert np.isnan(found.standard_errors[OFF]).all()
    only = compare_solvers(data.X, data.y, 3, **options | {"solvers": "lsq orthogonal"})
    assert only.options == {"solver": "lsq", "noise": None, "orthogonal": True}
    assert "the only solver" in only.reason
    # The options go to MCPCA as they are.
    assert mcpca.MCPCA(3, **only.options).fit(data.X, data.y).orthogonal


def test_a_solver_and_a_baseline_of_the_same_name_are_two(data):
    found = compare_solvers(data.X, data.y, 3, **FEW | {"baselines": ["mspm"]})
    i, j = found.names.index("mspm"), found.names.index("mspm (baseline)")
    np.testing.assert_allclose(found.values[OFF][i], found.values[OFF][j], rtol=1e-3)


def test_a_candidate_that_fails_is_named_and_left_out(data, monkeypatch):
    pytest.importorskip("pandas")  # without it tables are dictionaries

    def broken(*_, **__):
        raise ValueError("it broke down")

    monkeypatch.setattr("mcpca.baselines.run", broken)
    found = compare_solvers(data.X, data.y, 3, **FEW | {"baselines": ["cpc"]})
    assert found.failures == {"cpc": "it broke down"}
    assert "cpc could not be fitted: it broke down" in str(found)
    assert np.isnan(found.means[OFF][found.names.index("cpc")])
    assert found.table.index[-1] == "cpc"


def test_json_brings_everything_back(full):
    pytest.importorskip("pandas")  # without it tables are dictionaries
    again = SolverComparison.from_json(full.to_json())
    same(full, again)
    assert again.table.equals(full.table)
    assert (again.options, again.kinds, str(again)) == (full.options, full.kinds, str(full))
    for change in ({"best": "magic"}, {"kinds": ["solver"]}, {"judged_by": "taste"}, {"options": {"solver": "magic"}}):
        with pytest.raises(ValueError, match="its comparison"):
            SolverComparison.from_json(json.dumps(json.loads(full.to_json()) | change))


def test_without_pandas_the_table_is_a_dict(full, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    table = full.table
    assert isinstance(table, dict)
    assert table["candidate"][0] == full.names[full.order[0]]


def test_progress_counts_splits(data):
    calls = []
    compare_solvers(data.X, data.y, 3, verbose=lambda *call: calls.append(call), **FEW)
    assert [call[1:] for call in calls if call[0] == "halves"] == [(1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"r": None}, "r is missing: .* select_rank"),
        ({"r": 13}, r"r=13 is out of bounds: 1 <= r <= 12"),
        ({"solvers": []}, "solvers is empty"),
        ({"solvers": ["ml loud"]}, r"'loud' is unknown; after the solver comes a noise"),
        ({"solvers": ["magic"]}, "solver='magic' is unknown"),
        ({"solvers": [3]}, "solvers has 3; pass names"),
        ({"solvers": [{"noise": "pooled"}]}, "a dict has 'solver'"),
        ({"solvers": ["ml diagonal orthogonal"]}, "orthogonal=True with noise='diagonal'"),
        ({"baselines": ["magic"]}, "baselines has 'magic', which is unknown"),
        ({"baselines": ["gsvd"]}, "gsvd .* compares exactly 2"),
        ({"n_splits": 0}, "n_splits=0 is out of bounds"),
        ({"n_jobs": 0}, "n_jobs=0 is out of bounds"),
    ],
)
def test_options_are_checked(data, change, told):
    with pytest.raises(ValueError, match=told):
        compare_solvers(data.X, data.y, **{"r": 3, **FEW, **change})


def test_rows_are_needed(data, monkeypatch):
    with pytest.raises(ValueError, match="a stack of covariances, and solvers are judged on rows"):
        compare_solvers(np.eye(3)[None], r=1)
    few = np.flatnonzero((data.y != 0) | (np.arange(len(data.y)) < 3))
    with pytest.raises(ValueError, match="1 of 6 contexts have fewer than 4 rows"):
        compare_solvers(data.X[few], data.y[few], 3)
    with pytest.raises(TypeError, match="solvers is a int"):
        compare_solvers(data.X, data.y, 3, solvers=4)
    monkeypatch.setattr(module, "MOST_NUMBERS", 100)
    with pytest.raises(ValueError, match=r"864 entries; at most 100 are formed.*solver='auto'"):
        compare_solvers(data.X, data.y, 3)


def test_rows_on_dask(data):
    """Halves are picked on the workers; baselines that decompose rows get theirs there, too."""
    array = pytest.importorskip("dask.array")
    rows = array.from_array(data.X, chunks=(200, 12))
    found, expected = (
        compare_solvers(form, data.y, 3, ["mspm", "ml"], baselines=["pca_stack", "stack_svd"], random_state=0)
        for form in (rows, data.X)
    )
    assert found.best == expected.best
    for name in set(expected.table.columns) - {"seconds"}:
        left, right = found.table[name], expected.table[name]
        if right.dtype.kind == "f":
            np.testing.assert_allclose(left, right, rtol=1e-6, atol=1e-8, err_msg=name)
