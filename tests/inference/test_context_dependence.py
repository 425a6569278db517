"""Is it of the contexts? Planted axes that differ and axes that do not, and rows in which nothing does."""

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse

from mcpca import MCPCA, ContextDependence, ContextMoments, context_covariances, context_dependence
from mcpca._data.annotations import take_annotations
from mcpca._inference import context_dependence as core
from mcpca._utils.progress import silent

LOADINGS = np.array([[9.0, 8, 1], [9, 1, 6], [9, 4, 2], [9, 2, 5], [9, 6, 1], [9, 1, 3]])


def axes(p=8, r=3, seed=0):
    A = np.linalg.qr(np.random.default_rng(seed).standard_normal((p, r)))[0] + 0.2
    return A / np.linalg.norm(A, axis=0)


def draw(loadings, rows, seed, *, noise=0.3, t=None):
    """Rows with ``A diag(b_i) A^T + noise^2`` and unequal means."""
    rng = np.random.default_rng(seed)
    A = axes()
    y = np.repeat(np.arange(len(loadings)), rows)
    X = (rng.standard_normal((len(y), 3)) * np.sqrt(loadings)[y]) @ A.T + noise * rng.standard_normal((len(y), len(A)))
    if t is not None:
        X *= np.sqrt((t - 2) / rng.chisquare(t, len(y)))[:, None]
    return X + 5 * rng.standard_normal((len(loadings), len(A)))[y], y


@pytest.fixture(scope="module")
def differing():
    X, y = draw(LOADINGS, 150, 1)
    return X, y, MCPCA(3, random_state=0).fit(X, y)


def test_axes_that_differ_are_told_from_one_that_is_alike(differing):
    X, y, model = differing
    found = model.context_dependence(X, y, n_permutations=199, random_state=0)
    alike = np.argmax(np.abs(model.components_.T @ axes()[:, 0]))
    assert np.abs(model.components_[:, alike] @ axes()[:, 0]) > 0.98
    expected = np.arange(3) != alike
    np.testing.assert_array_equal(found.dependent, expected)
    np.testing.assert_allclose(found.p_values[expected], 1 / 200)
    assert found.p_value == 1 / 200
    assert found.p_values[alike] > 0.05
    assert found.outcome == "dependent"
    assert found.in_words() == "2 of 3 axes differ between contexts; 1 is in all contexts alike (pooled PCA would do)"
    # The variances behind it are the planted ones, over their mean by rows.
    order = [int(np.argmax(np.abs(axes().T @ model.components_[:, j]))) for j in range(3)]
    planted = LOADINGS[:, order] / LOADINGS[:, order].mean(axis=0)
    np.testing.assert_allclose(found.variances, planted, atol=0.5)
    assert np.corrcoef(found.variances[:, expected].ravel(), planted[:, expected].ravel())[0, 1] > 0.95
    sd = LOADINGS[:, order].std(axis=0) / LOADINGS[:, order].mean(axis=0)
    np.testing.assert_allclose(found.dispersion[expected], sd[expected], rtol=0.25)
    assert found.dispersion[alike] < 0.12
    assert (found.agreement > 0.95).all()


def test_identical_covariances_are_called_so_whatever_the_means():
    X, y = draw(np.tile([9.0, 4, 2], (6, 1)), 100, 2)
    found = context_dependence(X, y, 3, n_permutations=199, random_state=0)
    assert found.outcome == "alike"
    assert found.n_dependent == 0
    assert np.isnan(found.p_value_beyond_scale)
    assert "identical covariances in all contexts would look like this, and pooled PCA would do" in str(found)
    assert found.in_words() == "0 of 3 axes differ between contexts; 3 are in all contexts alike (pooled PCA would do)"


def most_different(half, rng):
    """Axes in which the first context differs most from the others in these rows: as fitted to labels as can be."""
    S = context_covariances(half).covariances
    values, vectors = scipy.linalg.eigh(S[0], S[1:].mean(axis=0))
    A = vectors[:, np.argsort(-np.abs(np.log(values)))[:3]]
    return A / np.linalg.norm(A, axis=0)


@pytest.mark.parametrize(("rows", "t"), [(60, None), (60, 5), ([20, 12, 14, 30, 60, 150], None)])
def test_the_level_holds_for_axes_that_are_fitted_to_labels(rows, t):
    n = 100
    claims = 0
    whole = []
    for seed in range(n):
        X, y = draw(np.tile([9.0, 4, 2], (6, 1)), rows, 1000 + seed, t=t)
        contexts = take_annotations(X, y, groups=None, batch=None, covariates=None).contexts()
        rng = np.random.default_rng(seed)
        A = most_different(contexts, rng)
        found = core.dependence_of(contexts, A, most_different, n_splits=2, n_permutations=59, rng=rng, report=silent)
        claims += found.n_dependent > 0
        whole.append(found.p_value)
    # Of 100 at a level of 5%, 13 or more come once in a thousand times, and a uniform mean is within 0.1 of 1/2.
    assert claims < 13
    assert np.mean(np.array(whole) <= 0.05) < 0.13
    assert abs(np.mean(whole) - 0.5) < 0.1


def test_the_same_rows_for_axes_and_variances_would_not_do():
    """What the halves are for: axes that are judged in the rows they were fitted to seem to differ."""
    whole = []
    for seed in range(40):
        X, y = draw(np.tile([9.0, 4, 2], (6, 1)), 60, 1000 + seed)
        contexts = take_annotations(X, y, groups=None, batch=None, covariates=None).contexts()
        A = most_different(contexts, None)
        options = {"n_splits": 1, "n_permutations": 59, "rng": np.random.default_rng(seed), "report": silent}
        whole.append(core.dependence_of(contexts, A, lambda half, rng, A=A: A, **options).p_value)
    assert np.mean(whole) < 0.25
    assert np.mean(np.array(whole) <= 0.05) > 0.2


def test_a_factor_for_each_context_is_a_difference_of_scale():
    X, y = draw(np.tile([9.0, 4, 2], (6, 1)), 150, 4)
    X = (X - np.stack([X[y == i].mean(axis=0) for i in range(6)])[y]) * np.geomspace(0.4, 2.5, 6)[y][:, None]
    found = context_dependence(X, y, 3, n_permutations=199, random_state=0)
    assert found.p_value == 1 / 200
    assert found.p_value_beyond_scale > 0.05
    assert found.outcome == "scale"
    assert "overall scale only" in str(found)


def test_function_method_and_forms_of_rows_agree(differing):
    X, y, model = differing
    options = {"n_splits": 2, "n_permutations": 39, "random_state": 0}
    one = model.context_dependence(X, y, **options)
    for other in (
        context_dependence(X, y, 3, **options),
        context_dependence([X[y == i] for i in range(6)], None, 3, **options),
        context_dependence(scipy.sparse.csr_array(X), y, 3, **options),
        model.context_dependence(lambda: iter([X[:400], X[400:]]), y, **options),
        model.context_dependence(X, y, n_jobs=2, **options),
    ):
        np.testing.assert_allclose(other.statistics, one.statistics, rtol=1e-6)
        np.testing.assert_array_equal(other.p_values, one.p_values)
        assert other.p_value == one.p_value


def test_means_units_and_huge_numbers_do_not_matter(differing):
    X, y, model = differing
    options = {"n_splits": 1, "n_permutations": 39, "random_state": 0}
    one = model.context_dependence(X, y, **options)
    moved = X + np.random.default_rng(0).standard_normal((6, 8))[y]
    for rows in (moved, X * 1e100, X * 1e-100):
        other = MCPCA(3, random_state=0).fit(rows, y).context_dependence(rows, y, **options)
        np.testing.assert_allclose(other.statistics, one.statistics, rtol=1e-5)
        np.testing.assert_array_equal(other.p_values, one.p_values)


def test_scores_are_those_on_the_axes_of_the_other_half(differing):
    X, y, _ = differing
    contexts = take_annotations(X, y, groups=None, batch=None, covariates=None).contexts()

    def fit(half, rng):
        return MCPCA(3, random_state=0).fit(half).components_

    (split,) = core.fit_halves(contexts, fit, 1, np.random.default_rng(0), silent)
    _, sides = core._sides(contexts, [split])
    Z = core._scores(contexts, [[np.linalg.pinv(half).T for half in split.axes]], sides)
    side = np.concatenate(sides)[:, 0]
    assert sorted(np.unique(side).tolist()) == [0, 1]
    rows = np.concatenate([X[y == i] - X[y == i].mean(axis=0) for i in range(6)])
    for half in (0, 1):
        expected = rows[side == half] @ np.linalg.pinv(split.axes[1 - half]).T
        np.testing.assert_allclose(Z[side == half], expected / np.sqrt(np.mean(expected**2, axis=0)), rtol=1e-8)
    # Each half was fitted to its own rows only.
    first = np.concatenate([np.asarray(split.first.block(i)) for i in range(6)])
    np.testing.assert_allclose(
        np.sort(first[:, 0]), np.sort(np.concatenate([X[y == i] for i in range(6)])[side == 0, 0])
    )


def test_the_core_takes_halves_that_were_fitted(differing):
    X, y, model = differing
    contexts = take_annotations(X, y, groups=None, batch=None, covariates=None).contexts()

    def fit(half, rng):
        return MCPCA(3, random_state=rng).fit(half).components_

    options = {"n_permutations": 39, "report": silent}
    one = core.dependence_of(contexts, model.components_, fit, n_splits=2, rng=np.random.default_rng(5), **options)
    rng = np.random.default_rng(5)
    rng.spawn(1)
    halves = core.fit_halves(contexts, fit, 2, rng, silent)
    two = core.dependence_of(contexts, model.components_, halves, rng=np.random.default_rng(5), **options)
    np.testing.assert_array_equal(one.p_values, two.p_values)
    np.testing.assert_array_equal(one.statistics, two.statistics)
    # Some of the model's axes: what is said of them stays, since halves are looked at on all of theirs.
    some = core.dependence_of(contexts, model.components_[:, 1:], halves, rng=np.random.default_rng(5), **options)
    np.testing.assert_allclose(some.statistics, one.statistics[1:], rtol=1e-9)
    # Another order of the model's axes is another order of the answer.
    back = core.dependence_of(contexts, model.components_[:, ::-1], halves, rng=np.random.default_rng(5), **options)
    np.testing.assert_allclose(back.statistics, one.statistics[::-1], rtol=1e-9)


def test_differences_between_donors_are_none_between_contexts():
    rng = np.random.default_rng(6)
    donor = np.repeat(np.arange(30), 25)
    y = donor // 5
    X, _ = draw(np.tile([9.0, 4, 2], (6, 1)), 125, 7)
    X = X + 2 * rng.standard_normal((30, 8))[donor]
    X = X * np.exp(0.5 * rng.standard_normal(30))[donor][:, None]
    options = {"n_splits": 2, "n_permutations": 199, "random_state": 0}
    rows = context_dependence(X, y, 3, **options)
    assert rows.p_value == 1 / 200
    found = context_dependence(X, y, 3, groups=donor, **options)
    assert found.by == "groups"
    assert found.p_value > 0.05
    assert found.n_dependent == 0
    # Contexts that do differ are seen by donors as well.
    X, _ = draw(LOADINGS, 125, 7)
    assert context_dependence(X, y, 3, groups=donor, **options).n_dependent >= 2


def test_donors_in_all_contexts_trade_among_these():
    rng = np.random.default_rng(8)
    X, y = draw(LOADINGS, 120, 9)
    donor = np.tile(np.repeat(np.arange(6), 20), 6)
    X = X + rng.standard_normal((6, 8))[donor]
    options = {"n_splits": 2, "n_permutations": 199, "random_state": 0}
    assert context_dependence(X, y, 3, groups=donor, **options).p_value == 1 / 200
    alike, _ = draw(np.tile([9.0, 4, 2], (6, 1)), 120, 10)
    assert (
        context_dependence(alike + X[:1] + rng.standard_normal((6, 8))[donor], y, 3, groups=donor, **options).p_value
        > 0.05
    )


def test_small_contexts_take_no_part_and_are_named(differing):
    X, y, _ = differing
    few = np.concatenate([np.flatnonzero(y < 5), np.flatnonzero(y == 5)[:3]])
    found = context_dependence(X[few], y[few], 3, n_splits=1, n_permutations=39, random_state=0)
    assert found.left_out == (5,)
    assert found.contexts.tolist() == [0, 1, 2, 3, 4]
    assert "1 context takes no part, because it has fewer than 4 rows: 5." in str(found)


def test_batches_are_removed_first():
    rng = np.random.default_rng(11)
    X, y = draw(np.tile([9.0, 4, 2], (6, 1)), 100, 12)
    batch = rng.integers(3, size=len(y))
    # Batches differ more in some contexts than in others.
    shifted = X + np.linspace(0, 6, 6)[y][:, None] * rng.standard_normal((3, 8))[batch]
    options = {"n_splits": 2, "n_permutations": 99, "random_state": 0}
    assert context_dependence(shifted, y, 3, **options).p_value == 0.01
    found = context_dependence(shifted, y, 3, batch=batch, **options)
    assert found.p_value > 0.05
    # The same as if there had been none, but for rounding: covariances within batches do not see shifts.
    plain = context_dependence(X, y, 3, batch=batch, **options)
    np.testing.assert_allclose(found.statistics, plain.statistics, rtol=1e-6)
    with pytest.raises(ValueError, match="batch"):
        MCPCA(3, random_state=0).fit(shifted, y, batch=batch).context_dependence(shifted, y, **options)


def test_json_and_words(differing):
    X, y, model = differing
    found = model.context_dependence(X, y, n_splits=1, n_permutations=19, random_state=0)
    again = ContextDependence.from_json(found.to_json())
    for name in ("p_values", "statistics", "null_means", "variances", "n_samples", "agreement", "q_values"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))
    assert (again.p_value, again.outcome, again.by, again.left_out) == (found.p_value, found.outcome, "rows", ())
    assert repr(found).startswith("<ContextDependence: ")
    assert "<table>" in found._repr_html_()
    assert "p <= 0.05, by 19 permutations of rows over 6 contexts" in str(found)


def result(p_values, p_value=0.001, beyond=0.001):
    r = len(p_values)
    ones = np.ones(r)
    return ContextDependence(
        p_value, np.array(p_values), 9 * ones, ones, np.ones((2, r)), np.arange(2), np.array([9, 9]), ones, beyond
    )


def test_sentences_count_axes_that_come_back():
    found = result([0.001] * 9 + [0.6] * 3)
    assert found.in_words([True] * 12) == (
        "12 axes come back; 9 of them differ between contexts; 3 are in all contexts alike (pooled PCA would do)"
    )
    assert found.in_words([True] * 9 + [False] * 3) == "9 axes come back; all of them differ between contexts"
    assert found.in_words([False] * 10 + [True] * 2) == (
        "2 axes come back; none of them differs between contexts; 2 are in all contexts alike (pooled PCA would do)"
    )
    assert found.in_words([True] + [False] * 11) == "1 axis comes back; it differs between contexts"
    assert found.in_words([False] * 12) == "no axis comes back"
    assert result([0.9, 0.8], p_value=0.5).outcome == "alike"
    assert result([0.2, 0.3], p_value=0.04).outcome == "diffuse"
    assert "no single MCPC can be named" in str(result([0.2, 0.3], p_value=0.04))
    assert result([0.001, 0.001], beyond=0.4).outcome == "scale"
    # No MCPC is named where the whole is alike.
    assert not result([0.001, 0.9], p_value=0.2).dependent.any()


def test_one_mcpc_and_an_axis_without_variance():
    X, y = draw(LOADINGS, 60, 13)
    found = context_dependence(X, y, 1, n_splits=1, n_permutations=39, random_state=0)
    assert found.p_values.shape == (1,)
    assert np.isnan(found.p_value_beyond_scale)


def test_what_cannot_be_tested_says_why(differing):
    X, y, model = differing
    with pytest.raises(ValueError, match=r"there is one, 0; pass y with a label for each row"):
        context_dependence(X, None, 3)
    with pytest.raises(ValueError, match="X holds covariances or moments, without rows; pass the rows"):
        context_dependence(context_covariances(X, y).covariances, None, 3)
    with pytest.raises(ValueError, match="X holds covariances or moments, without rows"):
        model.context_dependence(ContextMoments().update(X, y))
    with pytest.raises(ValueError, match="X is None, without rows"):
        model.context_dependence(None)
    with pytest.raises(ValueError, match=r"n_permutations=9 is out of bounds.*no p-value is below 0.05"):
        model.context_dependence(X, y, n_permutations=9)
    with pytest.raises(ValueError, match="n_splits=0"):
        model.context_dependence(X, y, n_splits=0)
    with pytest.raises(ValueError, match="n_jobs=0"):
        model.context_dependence(X, y, n_jobs=0)
    few = np.concatenate([np.flatnonzero(y == i)[:3] for i in range(6)])
    with pytest.raises(ValueError, match=r"0 of 6 have them.*merge small contexts"):
        context_dependence(X[few], y[few], 2)
    with pytest.raises(ValueError, match="every context has a single group"):
        model.context_dependence(X, y, groups=y)
    with pytest.raises(ValueError, match="one label 0"):
        model.context_dependence(X, y, groups=np.zeros(len(y), dtype=int))


def test_rows_on_dask(differing):
    """Halves are fitted there, and only scores come here."""
    da = pytest.importorskip("dask.array")
    X, y, _ = differing
    found, expected = (
        context_dependence(rows, y, 3, n_splits=1, n_permutations=39, random_state=0)
        for rows in (da.from_array(X, chunks=(300, 8)), X)
    )
    np.testing.assert_array_equal(found.p_values, expected.p_values)
    np.testing.assert_allclose(found.statistics, expected.statistics, rtol=1e-6)


def test_models_of_missing_values_are_refused(differing):
    X, y, _ = differing
    holes = X.copy()
    holes[::7, 0] = np.nan
    model = MCPCA(2, missing="pairwise", random_state=0).fit(holes, y)
    with pytest.raises(ValueError, match=r"context_dependence\(\) is for models of complete rows"):
        model.context_dependence(holes, y)
