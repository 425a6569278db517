"""``groups=`` of the methods of a model: splits, resamples and errors by groups of rows."""

import numpy as np
import pytest
import scipy.sparse

from mcpca import MCPCA
from mcpca._data.annotations import take_annotations
from mcpca._data.contexts import read_contexts
from mcpca._inference import cross_fitting
from mcpca._inference.precision import information_of
from mcpca._inference.row_scores import read_rows, reader_of
from mcpca._inference.sandwich import row_derivatives
from mcpca._model.new_rows import read_fitted_contexts
from mcpca.exceptions import FewGroupsWarning

R = 2
K = 4
P = 8


def sample(seed=0, donors=8, n=15, shift=0.0, crossed=False, k=K):
    """Rows of planted axes, whose scores differ between donors by ``shift`` standard deviations."""
    rng = np.random.default_rng(seed)
    A = np.linalg.qr(rng.standard_normal((P, R)))[0]
    B = rng.uniform(1, 6, (k, R))
    of_donors = shift * rng.standard_normal((1 if crossed else k, donors, 1, R))
    scores = np.sqrt(B)[:, None, None] * (rng.standard_normal((k, donors, n, R)) + of_donors)
    X = scores @ A.T + 0.4 * rng.standard_normal((k, donors, n, P))
    context, donor, _ = np.indices((k, donors, n))
    return X.reshape(-1, P), context.ravel(), (donor if crossed else donor + donors * context).ravel()


@pytest.fixture(scope="module")
def rows():
    return sample()


@pytest.fixture(scope="module")
def fitted(rows):
    X, y, _ = rows
    return MCPCA(R, solver="ml", random_state=0).fit(X, y)


# Splits


def test_halves_of_donors_do_not_agree_on_donors():
    # Three donors a context, and nothing but their shifts: rows come back, donors do not.
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((30, P)) * 0.3 + 2 * rng.standard_normal(P) for _ in range(K * 4)])
    y = np.repeat(np.arange(K), 120)
    donors = np.repeat(np.arange(K * 4), 30)
    model = MCPCA(2, random_state=0).fit(X, y)
    by_rows = model.replicability(X, y, n_splits=4, random_state=0)
    by_donors = model.replicability(X, y, n_splits=4, groups=donors, random_state=0)
    assert by_rows.by == "rows"
    assert by_donors.by == "groups"
    assert by_rows.agreement.min() > 0.95 > 0.85 > by_donors.agreement.mean()
    assert "splits of the groups" in str(by_donors)


def test_rows_as_groups_of_their_own_are_split_as_rows(rows, fitted):
    X, y, _ = rows
    alone = fitted.replicability(X, y, n_splits=2, groups=np.arange(len(y)), random_state=0)
    np.testing.assert_array_equal(alone.cosines, fitted.replicability(X, y, n_splits=2, random_state=0).cosines)
    assert alone.by == "rows"


def test_few_donors_get_an_answer_in_words():
    X, y, donors = sample(donors=3, crossed=True)
    model = MCPCA(R, random_state=0).fit(X, y)
    found = model.replicability(X, y, groups=donors, random_state=0)
    assert found.n_ways == len(found.cosines) == 3
    assert "There are only 3 ways to divide these groups into halves; all were taken." in str(found)
    two = model.replicability(X[donors < 2], y[donors < 2], groups=donors[donors < 2], random_state=0)
    assert len(two.cosines) == 1
    assert "only one way" in str(two)


def test_contexts_are_split_on_their_own_terms():
    # Two axes in all contexts, and one more in each context that no other has.
    rng = np.random.default_rng(1)
    k, n = 8, 150
    basis = np.linalg.qr(rng.standard_normal((16, 2 + k)))[0]
    X = []
    for i in range(k):
        scores = rng.standard_normal((n, 3)) * np.sqrt([rng.uniform(2, 8), rng.uniform(2, 8), 4])
        X.append(scores @ basis[:, [0, 1, 2 + i]].T + 0.2 * rng.standard_normal((n, 16)))
    model = MCPCA(10, random_state=0).fit(X)
    by_rows = model.replicability(X, n_splits=3, random_state=0)
    by_contexts = model.replicability(X, n_splits=3, by="contexts", random_state=0)
    assert by_rows.n_replicating == 10
    assert by_contexts.by == "contexts"
    low_rank = MCPCA(2, random_state=0).fit(X).replicability(X, n_splits=3, by="contexts", random_state=0)
    assert low_rank.agreement.min() > 0.9
    # An MCPC of a single context is in one of the halves only.
    assert by_contexts.n_replicating <= 2


def test_weights_of_contexts_go_with_the_contexts_that_are_left(rows):
    X, y, _ = rows
    model = MCPCA(R, context_weights=[1.0, 2.0, 3.0, 4.0], random_state=0).fit(X, y)
    found = model.replicability(X, y, n_splits=2, by="contexts", random_state=0)
    half = MCPCA(R, context_weights={0: 1.0, 1: 2.0}, random_state=0).fit(X[y < 2], y[y < 2])
    assert np.isfinite(found.cosines).all()
    assert half.components_.shape == (P, R)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": np.zeros(7)}, "groups has 7 values and X has 480 rows"),
        ({"groups": np.zeros(480)}, "one label 0.0 for all 480 rows"),
        ({"groups": np.repeat(np.arange(K), 120)}, "every context has a single group.*by='contexts'"),
        ({"groups": [None, *["a"] * 479]}, "groups has 1 missing labels, in rows 0"),
        ({"by": "groups"}, "by='groups' splits groups of rows, and none are given"),
        ({"by": "donors"}, "by='donors' is unknown; choose one of"),
        ({"by": "rows", "groups": np.arange(480) // 5}, "groups has no effect, because by='rows'"),
        ({"by": "contexts", "groups": np.arange(480) % 12}, "groups tie all 4 contexts together"),
    ],
)
def test_bad_groups_are_one_line_with_a_way_out(rows, fitted, options, message):
    X, y, _ = rows
    with pytest.raises(ValueError, match=message):
        fitted.replicability(X, y, n_splits=1, **options)


# Fits


def test_groups_without_effect_on_a_fit_are_refused(rows):
    X, y, donors = rows
    with pytest.raises(
        ValueError,
        match=r"groups has no effect, because the rank is given.*replicability, context_dependence, bootstrap",
    ):
        MCPCA(R).fit(X, y, groups=donors)
    with pytest.raises(ValueError, match="groups has no effect, because the paper's rule splits no rows"):
        MCPCA(rank_range=[1, 2]).fit(X, y, groups=donors)


def test_cross_fits_look_at_other_donors():
    X, y, donors = sample(donors=6, shift=0.5)
    annotated = take_annotations(X, y, groups=donors)
    contexts = annotated.attach(read_contexts(X, y))
    parts = cross_fitting._parts(contexts, 5, np.random.default_rng(0))
    assert len(parts) == 5

    def groups_of(some, counted=None):
        codes = [c for i, c in enumerate(some.groups.codes) if counted is None or counted[i]]
        return set(np.concatenate(codes).tolist())

    for part in parts:
        assert not groups_of(part.fitted) & groups_of(part.unseen)
        assert groups_of(part.fitted) | groups_of(part.unseen) == set(donors.tolist())
        for first, second in part.halvings:
            # Of two unseen donors one is in each half, one alone counts in a single half.
            assert not groups_of(first.rows, first.counted) & groups_of(second.rows, second.counted)
    model = MCPCA(R, cross_fit=1, random_state=0).fit(X, y, groups=donors)
    assert (model.attenuation_ > 0.8).all()
    plain = MCPCA(R, cross_fit=1, random_state=0).fit(X, y)
    assert not np.array_equal(model.corrected_loadings_, plain.corrected_loadings_)
    with pytest.raises(ValueError, match="cross_fit=2 by groups needs two groups in every context, and 1 of 4"):
        MCPCA(1, cross_fit=2).fit(X, y, groups=np.where(y == 0, -1, donors))


def test_refits_take_the_nuisance_along(rows):
    X, y, donors = rows
    rng = np.random.default_rng(3)
    batch = rng.integers(2, size=len(y))
    shifted = X + 5 * batch[:, None] * rng.standard_normal(P)
    model = MCPCA(R, random_state=0).fit(shifted, y, batch=batch)
    clean = MCPCA(R, random_state=0).fit(X, y)
    options = {"n_splits": 2, "groups": donors, "random_state": 0}
    found = model.replicability(shifted, y, batch=batch, **options)
    np.testing.assert_allclose(found.cosines, clean.replicability(X, y, **options).cosines, atol=0.05)
    drawn = model.bootstrap(shifted, y, n=4, batch=batch, groups=donors, random_state=0)
    assert np.median(drawn.angles) < 20


# Errors


def slow_cluster_sandwich(model, X, y, groups):
    """Variances of X within the span (r^2,) from influences of rows, summed over groups one by one."""
    contexts = read_fitted_contexts(model, X, y, groups=groups)
    gaussian = model.gaussian("test")
    rows = read_rows(reader_of(model, gaussian, contexts, 0), lambda *a: None)
    counts = np.array([len(row.scores) for row in rows])
    information = information_of(gaussian, counts, pooled=False, orthogonal=False)
    V = information.covariance
    total = {}
    for i, row in enumerate(rows):
        U = row.scores @ information.likelihood.P[i]
        n = len(U)
        of_context, of_X = row_derivatives(information, i, U, row.outside, 1.0, np.full(n, -1.0))
        score = of_X - of_context @ information.responses(slice(i, i + 1))[0]
        score = score - score.mean(axis=0)
        codes = contexts.groups.codes[i]
        g = len(set(codes.tolist()))
        for code in set(codes.tolist()):
            total[code] = total.get(code, 0) + np.sqrt(g / (g - 1)) * score[codes == code].sum(axis=0)
    meat = sum(np.outer(s, s) for s in total.values())
    return np.diag(V @ meat @ V)


@pytest.mark.parametrize("crossed", [False, True])
def test_cluster_errors_are_those_of_sums_over_groups(crossed, monkeypatch):
    from mcpca._estimator.mcpca import fitted_model
    from mcpca._inference import precision

    X, y, donors = sample(shift=0.5, crossed=crossed)
    model = MCPCA(R, solver="ml", random_state=0).fit(X, y)
    spreads = []
    original = precision.cluster_sandwich_of
    monkeypatch.setattr(precision, "cluster_sandwich_of", lambda *a: spreads.append(original(*a)) or spreads[-1])
    model.standard_errors(X, y, groups=donors)
    expected = slow_cluster_sandwich(fitted_model(model), X, y, donors)
    np.testing.assert_allclose(np.diag(spreads[0].covariance), expected, rtol=1e-8)


def test_groups_of_single_rows_have_the_errors_of_rows(rows, fitted, monkeypatch):
    from mcpca._inference import row_scores

    X, y, _ = rows
    expected = fitted.standard_errors(X, y)
    alone = fitted.standard_errors(X, y, groups=np.arange(len(y)))
    np.testing.assert_array_equal(alone.loadings, expected.loadings)
    # Through the sums over groups, too, also outside the span, and for sparse rows.
    monkeypatch.setattr(row_scores, "checked_groups", lambda contexts: contexts)
    for data in (X, scipy.sparse.csr_array(X)):
        through = fitted.standard_errors(data, y, groups=np.arange(len(y)))
        np.testing.assert_allclose(through.loadings, expected.loadings, rtol=1e-8)
        np.testing.assert_allclose(through.angles, expected.angles, rtol=1e-3)  # n / (n - 1) outside the span
        tests = fitted.presence(data, y, groups=np.arange(len(y)))
        np.testing.assert_allclose(tests.statistics, fitted.presence(X, y).statistics, rtol=1e-8)


def test_donors_widen_errors_and_intervals():
    X, y, donors = sample(donors=12, n=30, shift=1.0)
    model = MCPCA(R, solver="ml", random_state=0).fit(X, y)
    by_rows = model.standard_errors(X, y)
    by_donors = model.standard_errors(X, y, groups=donors)
    assert by_donors.loadings.mean() > 1.3 * by_rows.loadings.mean()
    assert by_donors.n_groups.tolist() == [12] * K
    assert "as the spread between the groups shows, 12 in a context" in str(by_donors)
    widths = [np.log(high / low).mean() for low, high in (e.intervals(model.loadings_) for e in (by_rows, by_donors))]
    assert widths[1] > 1.3 * widths[0]
    drawn = model.bootstrap(X, y, n=40, groups=donors, random_state=0)
    single = model.bootstrap(X, y, n=40, random_state=0)
    assert drawn.standard_errors.mean() > 1.3 * single.standard_errors.mean()
    assert "of the 12 groups" in str(drawn)


def test_presence_by_groups_has_their_degrees_of_freedom(rows, fitted):
    X, y, donors = rows
    tests = fitted.presence(X, y, groups=donors)
    assert tests.present.all()
    # Eight groups cannot be as sure as 120 rows.
    assert tests.p_values.min() > fitted.presence(X, y).p_values.min()
    assert "spread between groups, 8 in a context" in str(tests)


def test_few_groups_are_named_and_single_ones_refused(rows, fitted):
    X, y, donors = rows
    for method in (fitted.standard_errors, fitted.presence, lambda *a, **o: fitted.bootstrap(*a, n=2, **o)):
        with pytest.warns(FewGroupsWarning, match=r"4 of 4 contexts have fewer than 4 groups.*0 \(2\)"):
            method(X, y, groups=donors // 4)
        with pytest.raises(ValueError, match="needs two groups in every context, and 4 of 4 contexts have one"):
            method(X, y, groups=donors // 8)


def test_groups_need_rows_and_a_kind_that_looks_at_them(rows, fitted):
    X, y, donors = rows
    with pytest.raises(ValueError, match="groups is about the rows of X, and no X is given"):
        fitted.standard_errors(groups=donors)
    with pytest.raises(ValueError, match="groups has no effect, because kind='model'"):
        fitted.standard_errors(X, y, kind="model", groups=donors)


def test_errors_are_those_of_rows_without_nuisance(rows):
    X, y, donors = rows
    rng = np.random.default_rng(4)
    batch = rng.integers(3, size=len(y))
    depth = rng.standard_normal(len(y))
    moved = X + rng.standard_normal((3, P))[batch] + np.outer(depth, rng.standard_normal(P))
    residual = moved.copy()
    for i in range(K):
        Z = np.column_stack([batch[y == i][:, None] == np.arange(3), depth[y == i]]).astype(float)
        residual[y == i] -= Z @ np.linalg.lstsq(Z, moved[y == i], rcond=None)[0]
    nuisance = {"batch": batch, "covariates": depth}
    model = MCPCA(R, solver="ml", random_state=0).fit(moved, y, **nuisance)
    twin = MCPCA(R, solver="ml", random_state=0).fit(residual, y)
    for groups in (None, donors):
        expected = twin.standard_errors(residual, y, groups=groups)
        for data in (moved, scipy.sparse.csr_array(moved)):
            found = model.standard_errors(data, y, groups=groups, **nuisance)
            np.testing.assert_allclose(found.angles, expected.angles, rtol=1e-4)
            # Variances are divided by n - 4 and not by n - 1.
            np.testing.assert_allclose(found.loadings, expected.loadings * 119 / 116, rtol=1e-3)


def test_names_of_columns_serve_as_groups(rows, fitted):
    pd = pytest.importorskip("pandas")
    X, y, donors = rows
    table = pd.DataFrame(X, columns=[f"f{j}" for j in range(P)]).assign(context=y, donor=donors)
    model = MCPCA(R, solver="ml", random_state=0).fit(table.drop(columns="donor"), "context")
    by_name = model.replicability(table, "context", n_splits=2, groups="donor", random_state=0)
    by_label = fitted.replicability(X, y, n_splits=2, groups=donors, random_state=0)
    np.testing.assert_allclose(by_name.cosines, by_label.cosines, atol=1e-8)
