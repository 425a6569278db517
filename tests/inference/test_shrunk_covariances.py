"""Covariances of contexts as mixtures: their weights, their errors on planted truth, and every form of rows."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from scipy.optimize import minimize
from sklearn.covariance import ledoit_wolf, oas

from mcpca import MCPCA, ShrunkCovariances
from mcpca._data.annotations import take_annotations
from mcpca._data.contexts import read_contexts
from mcpca._inference.covariance_errors import overlap, sampling_errors
from mcpca._inference.shrunk_covariances import weights_of
from mcpca._linalg.simplex import least_on_simplex
from mcpca._model.covariance_parts import PARTS, CovarianceParts, ModelCovariances
from mcpca._utils.progress import silent
from mcpca.datasets import make_contexts
from twins import covariances_without_nuisance, shrunk_weights

K, P, R = 6, 12, 3


@pytest.fixture(scope="module")
def truth():
    return make_contexts(K, P, R, n_samples=40, noise=0.4, random_state=1)


@pytest.fixture(scope="module")
def model(truth):
    return MCPCA(R, solver="ml", random_state=0).fit(truth.X, truth.y)


@pytest.fixture(scope="module")
def auto(model, truth):
    return model.covariances(truth.X, truth.y, random_state=0)


def own_of(X, y):
    return np.stack([np.cov(X[y == name], rowvar=False) for name in np.unique(y)])


def parts_of(rng, k=5, p=7, r=3):
    rows = rng.standard_normal((k, 20, p)) * rng.uniform(0.5, 2, (k, 1, p))
    own = np.stack([np.cov(X, rowvar=False) for X in rows])
    model = ModelCovariances(rng.standard_normal((p, r)), rng.random((k, r)), rng.random((k, p)))
    return CovarianceParts.of(own, rng.uniform(5, 30, k), model)


def dense(parts):
    """All parts as (4, k, p, p)."""
    k, p, _ = parts.own.shape
    pooled = np.broadcast_to(np.average(parts.own, axis=0, weights=parts.freedom), (k, p, p))
    A, B, D = parts.model.A, parts.model.B, parts.model.D
    models = np.stack([A @ np.diag(b) @ A.T + np.diag(d) for b, d in zip(B, D, strict=True)])
    means = np.trace(parts.own, axis1=1, axis2=2) / p
    return np.stack([parts.own, pooled, models, means[:, None, None] * np.eye(p)])


# The mathematics


def test_inner_products_are_those_of_dense_parts(rng):
    parts = parts_of(rng)
    T = dense(parts)
    np.testing.assert_allclose(parts.gram(), np.einsum("akpq,bkpq->kab", T, T), rtol=1e-12)


def test_a_mixture_is_the_weighted_sum(rng):
    parts = parts_of(rng)
    weights = rng.random((5, 4))
    expected = np.einsum("ka,akpq->kpq", weights, dense(parts))
    C = parts.mixed(weights)
    np.testing.assert_allclose(C, expected, rtol=1e-12)
    np.testing.assert_array_equal(C, C.transpose(0, 2, 1))


def test_weights_on_the_simplex_are_the_least(rng):
    roots = rng.standard_normal((20, 6, 4))
    G = roots.transpose(0, 2, 1) @ roots
    h = 3 * rng.standard_normal((20, 4))
    w = least_on_simplex(G, h)
    np.testing.assert_allclose(w.sum(axis=1), 1, rtol=1e-12)
    assert (w >= 0).all()
    assert 0.1 < (w == 0).mean() < 0.9  # some bounds hold and some do not
    for Gi, hi, wi in zip(G, h, w, strict=True):
        start = np.full(4, 0.25)
        options = {"ftol": 1e-14, "maxiter": 500}
        total = {"type": "eq", "fun": lambda x: x.sum() - 1}
        twin = minimize(
            lambda x, G=Gi, h=hi: x @ G @ x - 2 * h @ x, start, bounds=[(0, 1)] * 4, constraints=total, options=options
        )
        np.testing.assert_allclose(wi, twin.x, atol=1e-5)


def test_equal_parts_leave_the_smaller_set():
    # The second part is the first once more: one of them is enough.
    G = np.array([[[2.0, 2, 1], [2, 2, 1], [1, 1, 3]]])
    w = least_on_simplex(G, np.array([[1.5, 1.5, 1.5]]))
    assert w[0, 1] == 0
    np.testing.assert_allclose(w[0, [0, 2]], [2 / 3, 1 / 3], atol=1e-6)


def test_weights_are_those_of_the_obvious_twin(rng):
    G = parts_of(rng).gram()
    v = 0.3 * G[:, 0, 0] * rng.random(5)
    shares = rng.dirichlet(np.ones(5))
    np.testing.assert_allclose(weights_of(G, v, shares, 0.2), shrunk_weights(G, v, shares, 0.2), atol=1e-4)


def test_weights_follow_contexts_and_not_units(rng):
    G = parts_of(rng).gram()
    v = 0.2 * G[:, 0, 0] * rng.random(5)
    shares = rng.dirichlet(np.ones(5))
    weights = weights_of(G, v, shares, 0.3)
    order = rng.permutation(5)
    np.testing.assert_allclose(weights_of(G[order], v[order], shares[order], 0.3), weights[order], atol=1e-9)
    np.testing.assert_allclose(weights_of(1e6 * G, 1e6 * v, shares, 0.3), weights, atol=1e-7)


def test_more_rows_mean_more_of_the_own_covariance(rng):
    G = parts_of(rng).gram()
    shares = np.full(5, 0.2)
    own = [weights_of(G, c * G[:, 0, 0], shares, 0.2)[:, 0] for c in (0.0, 0.02, 0.1, 0.5)]
    np.testing.assert_allclose(own[0], 1, atol=1e-6)  # without errors nothing is better
    assert all((few <= many + 1e-9).all() for many, few in pairwise(own))
    assert own[-1].max() < 0.7


def test_a_model_that_repeats_the_rows_does_not_count_as_evidence(rng):
    # Five contexts alike. The model is the own covariance itself: with overlap 1 the two have the weight of the own.
    G = np.tile(parts_of(rng).gram()[0], (5, 1, 1))
    G[:, 2] = G[:, 0]
    G[:, :, 2] = G[:, :, 0]
    v = 0.2 * G[:, 0, 0]
    shares = np.full(5, 0.2)
    useless = G.copy()
    useless[:, 2, 2] *= 1e6
    alone = weights_of(useless, v, shares, 0.0)[:, 0]
    repeated = weights_of(G, v, shares, 1.0)
    np.testing.assert_allclose(repeated[:, 0] + repeated[:, 2], alone, atol=1e-5)
    assert 0.2 < alone[0] < 0.8
    # Taken for independent of the rows, it would be evidence that they are right, and have all the weight.
    np.testing.assert_allclose(weights_of(G, v, shares, 0.0)[:, 2], 1, atol=1e-6)


# Errors of covariances


def errors_of(X, y, groups=None):
    annotated = take_annotations(X, y, groups=groups)
    contexts = annotated.attach(read_contexts(annotated.X, annotated.y))
    k = len(contexts.names)
    rows = X.reshape(k, -1, X.shape[1])  # sorted, and as many in each context
    means = rows.mean(axis=1)
    Z = rows - means[:, None]
    nu = rows.shape[1] - 1.0
    S = Z.transpose(0, 2, 1) @ Z / nu
    return sampling_errors(contexts, S, means, np.full(k, nu), None, 0, silent), S


@pytest.mark.parametrize("heavy", [False, True])
def test_sampling_errors_are_those_of_repeated_draws(rng, heavy):
    # Contexts with the same truth: the mean of the estimates against what the covariances did.
    k, n, p = 3000, 9, 4
    root = np.diag([3.0, 2, 1, 0.5])
    Z = rng.standard_normal((k * n, p))
    if heavy:
        Z *= np.sqrt(6 / rng.chisquare(8, size=(k * n, 1)))  # of variance 1
    v, S = errors_of(Z @ root, np.repeat(np.arange(k), n))
    happened = ((S - root**2) ** 2).sum(axis=(1, 2)).mean()
    assert v.mean() == pytest.approx(happened, rel=0.08 if heavy else 0.05)


def test_groups_of_one_row_change_nothing_and_groups_of_equal_rows_count_once(truth):
    X, y = truth.X, truth.y
    n = 40
    plain, _ = errors_of(X, y)
    np.testing.assert_allclose(errors_of(X, y, np.arange(len(y)))[0], plain, rtol=1e-10)
    # Every row three times: by rows errors look three times smaller, by groups they are what they were, up to degrees
    # of freedom: S and its error have 3 n / (3 n - 1) in place of n / (n - 1), and nu / (nu - 1) is that of 3 n rows.
    X3, y3 = np.repeat(X, 3, axis=0), np.repeat(y, 3)
    tripled, _ = errors_of(X3, y3, np.repeat(np.arange(len(y)), 3))
    factor = (3 * (n - 1) / (3 * n - 1)) ** 2 * (3 * n - 1) / (3 * n - 2) * (n - 2) / (n - 1)
    np.testing.assert_allclose(tripled, plain * factor, rtol=1e-9)
    assert (errors_of(X3, y3)[0] < 0.4 * plain).all()


def test_overlap_is_1_for_the_rows_themselves_and_0_for_a_fixed_model(rng):
    first, second = parts_of(rng), parts_of(rng)
    identity = np.eye(7)
    # Each covariance as a model of full rank: A diag(b) A^T with its eigenvectors differs by context, so one context.
    models = []
    for S in (first.own[0], second.own[0]):
        values, vectors = np.linalg.eigh(S)
        models.append(ModelCovariances(vectors, values[None], np.zeros((1, 7))))
    assert overlap(models, first.own[:1], second.own[:1]) == pytest.approx(1)
    fixed = ModelCovariances(identity, np.ones((5, 7)), np.ones((5, 7)))
    assert overlap([fixed, fixed], first.own, second.own) == 0


# What users get


def test_the_mixture_is_closer_to_the_truth_than_each_part():
    errors = []
    for seed in range(4):
        data = make_contexts(8, 15, 4, n_samples=30, noise=0.3, random_state=seed)
        rng = np.random.default_rng(seed)
        # Beside the model, each context has an axis of its own, so that no part is right.
        extra = rng.standard_normal((8, 15)) / 3
        X = data.X + rng.standard_normal((len(data.y), 1)) * extra[data.y]
        A, B = data.components, data.loadings
        Sigma = np.stack([A @ np.diag(b) @ A.T + np.outer(u, u) for b, u in zip(B, extra, strict=True)])
        Sigma += 0.3**2 * np.eye(15)
        fitted = MCPCA(4, solver="ml", random_state=0).fit(X, data.y)
        estimates = [fitted.covariances(X, data.y, shrink={part: 1}) for part in PARTS]
        estimates += [fitted.covariances(X, data.y, random_state=0)]
        stacks = [np.asarray(C) for C in estimates]
        for peer in (ledoit_wolf, oas):
            stacks.append(np.stack([peer(X[data.y == i])[0] for i in range(8)]))
        errors.append([((C - Sigma) ** 2).sum() / (Sigma**2).sum() for C in stacks])
    own, pooled, of_model, identity, mixture, *peers = np.mean(errors, axis=0)
    assert mixture < 0.95 * min(own, pooled, of_model, identity, *peers)


def test_a_result_is_what_it_says(auto, model, truth):
    assert isinstance(auto, ShrunkCovariances)
    assert auto.parts == PARTS == ("own", "pooled", "model", "identity")
    assert auto.covariances.shape == (K, P, P) == np.asarray(auto).shape
    np.testing.assert_allclose(auto.weights.sum(axis=1), 1)
    np.testing.assert_array_equal(auto.contexts, model.contexts_)
    np.testing.assert_array_equal(auto.covariances, auto.covariances.transpose(0, 2, 1))
    assert np.linalg.eigvalsh(auto.covariances).min() > 0
    assert 0 < auto.overlap < 1
    # Rows are Gaussian: v is about (||S||^2 + tr(S)^2) / n, less for ||S||^2 itself has errors.
    own = own_of(truth.X, truth.y)
    squares = (own**2).sum(axis=(1, 2))
    about = (squares + np.trace(own, axis1=1, axis2=2) ** 2) / 40
    np.testing.assert_allclose(auto.sampling_errors, about / squares, rtol=0.5)
    assert list(auto.table.columns) == [*PARTS, "sampling error"]
    assert auto.table.index.tolist() == model.contexts_.tolist()
    assert str(auto).startswith("Covariances of 6 contexts and 12 features. Mean weights: own ")
    assert "nan" not in auto._repr_html_()


def test_the_mixture_has_the_weights_that_it_says(auto, model, truth):
    again = model.covariances(truth.X, truth.y, shrink=auto.weights)
    np.testing.assert_allclose(again.covariances, auto.covariances, rtol=1e-12)
    assert again.sampling_errors is None
    assert again.overlap is None


@pytest.mark.parametrize(
    "options",
    [
        {"solver": "mspm"},
        {"solver": "lsq", "noise": "isotropic"},
        {"solver": "ml", "noise": "pooled"},
        {"solver": "ml", "noise": "diagonal"},
        {"solver": "ml", "noise": "scaled"},
        {"solver": "mspm", "orthogonal": True},
        {"solver": "mspm", "cross_fit": 1},
    ],
    ids=str,
)
def test_parts_are_what_they_are_called(truth, options):
    X, y = truth.X, truth.y
    fitted = MCPCA(R, random_state=0, **options).fit(X, y)
    A, B, noise = fitted.components_, fitted.corrected_loadings_, fitted.noise_variance_
    if options.get("noise") == "diagonal":
        noise = np.tile(noise, (K, 1))
    elif noise.ndim == 1:
        noise = np.repeat(noise[:, None], P, axis=1)
    of_model = np.stack([A @ np.diag(b) @ A.T + np.diag(d) for b, d in zip(B, noise, strict=True)])
    np.testing.assert_allclose(fitted.covariances(), of_model, atol=1e-12)
    np.testing.assert_array_equal(fitted.covariances().weights, np.tile([0, 0, 1, 0], (K, 1)))
    own = own_of(X, y)
    pooled = np.broadcast_to(own.mean(axis=0), own.shape)
    identity = np.trace(own, axis1=1, axis2=2)[:, None, None] / P * np.eye(P)
    for part, expected in zip(PARTS, (own, pooled, of_model, identity), strict=True):
        np.testing.assert_allclose(fitted.covariances(X, y, shrink={part: 1}), expected, atol=1e-12)
    found = fitted.covariances(X, y, random_state=0)
    expected = np.einsum("ka,akpq->kpq", found.weights, np.stack([own, pooled, of_model, identity]))
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_every_form_of_rows_gives_the_same(auto, model, truth):
    X, y = truth.X, truth.y
    blocks = {name: X[y == name] for name in np.unique(y)}
    for rows, labels in ((scipy.sparse.csr_matrix(X), y), (X.tolist(), y), (blocks, None), (X[::-1], y[::-1])):
        other = model.covariances(rows, labels, random_state=0)
        if labels is None or labels[0] == y[0]:
            np.testing.assert_allclose(other, auto, rtol=1e-5)
            np.testing.assert_allclose(other.sampling_errors, auto.sampling_errors, rtol=1e-8)
        else:
            # Another order of rows is another split.
            np.testing.assert_allclose(other.sampling_errors, auto.sampling_errors, rtol=1e-8)
            assert abs(other.overlap - auto.overlap) < 0.3
    frame = pd.DataFrame(X, columns=[f"f{j}" for j in range(P)]).assign(context=y)
    named = MCPCA(R, solver="ml", random_state=0).fit(frame, "context")
    shuffled = frame[[*frame.columns[:P][::-1], "context"]]
    np.testing.assert_allclose(named.covariances(shuffled, "context", random_state=0), auto, rtol=1e-5)


def test_annotated_rows(auto, truth):
    anndata = pytest.importorskip("anndata")
    adata = anndata.AnnData(
        truth.X, obs=pd.DataFrame({"context": truth.y.astype(str)}, index=np.arange(len(truth.y)).astype(str))
    )
    named = MCPCA(R, solver="ml", random_state=0).fit(adata, "context")
    np.testing.assert_allclose(named.covariances(adata, "context", random_state=0), auto, rtol=1e-5)


def test_the_order_of_contexts_is_that_of_the_fit(model, truth):
    X, y = truth.X, truth.y
    blocks = {name: X[y == name] for name in np.unique(y)[::-1]}
    half = {"own": 0.5, "pooled": 0.3, "identity": 0.2}
    np.testing.assert_allclose(model.covariances(blocks, shrink=half), model.covariances(X, y, shrink=half), rtol=1e-12)


@pytest.mark.parametrize("exponent", [3, 400, -400])
def test_the_unit_of_the_data_does_not_matter(auto, truth, exponent):
    X = np.ldexp(truth.X, exponent)
    scaled = MCPCA(R, solver="ml", random_state=0).fit(X, truth.y).covariances(X, truth.y, random_state=0)
    np.testing.assert_allclose(scaled.weights, auto.weights, atol=1e-6)
    np.testing.assert_allclose(np.ldexp(scaled.covariances, -2 * exponent), auto.covariances, rtol=1e-5, atol=1e-9)


def test_rotated_features_have_rotated_covariances(rng, auto, truth):
    Q = np.linalg.qr(rng.standard_normal((P, P)))[0]
    X = truth.X @ Q
    rotated = MCPCA(R, solver="ml", random_state=0).fit(X, truth.y).covariances(X, truth.y, random_state=0)
    np.testing.assert_allclose(rotated.weights, auto.weights, atol=1e-3)
    np.testing.assert_allclose(Q @ rotated.covariances @ Q.T, auto.covariances, atol=1e-3)


def test_single_precision(auto, truth):
    X = truth.X.astype(np.float32)
    single = MCPCA(R, solver="ml", random_state=0).fit(X, truth.y)
    mixture = single.covariances(X, truth.y, random_state=0)
    assert mixture.covariances.dtype == single.covariances().covariances.dtype == np.float32
    np.testing.assert_allclose(mixture, auto, atol=2e-3)


def test_rows_in_groups_have_larger_errors_and_less_weight(rng, truth):
    # Five rows of a group are nearly the same.
    X, y = np.repeat(truth.X, 5, axis=0), np.repeat(truth.y, 5)
    X = X + 0.1 * rng.standard_normal(X.shape)
    donors = np.repeat(np.arange(len(truth.y)), 5)
    fitted = MCPCA(R, solver="ml", random_state=0).fit(X, y)
    by_rows = fitted.covariances(X, y, random_state=0)
    by_groups = fitted.covariances(X, y, groups=donors, random_state=0)
    assert (by_groups.sampling_errors > 3 * by_rows.sampling_errors).all()
    assert by_groups.weights[:, 0].mean() < by_rows.weights[:, 0].mean()
    sparse = fitted.covariances(scipy.sparse.csr_matrix(X), y, groups=donors, random_state=0)
    np.testing.assert_allclose(sparse, by_groups, rtol=1e-5)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
def test_nuisance_is_removed(rng, truth, sparse, grouped):
    X, y = truth.X, truth.y
    batch = np.arange(len(y)) % 2
    Z = rng.standard_normal((len(y), 1))
    donors = {"groups": np.arange(len(y)) // 4} if grouped else {}
    X = X + 2 * rng.standard_normal((2, P))[batch] + Z @ rng.standard_normal((1, P))
    own, residuals = covariances_without_nuisance(X, y, batch, Z)
    said = {"batch": batch, "covariates": Z}
    fitted = MCPCA(R, solver="ml", random_state=0).fit(X, y, **said)
    rows = scipy.sparse.csr_matrix(X) if sparse else X
    found = fitted.covariances(rows, y, random_state=0, **said, **donors)
    np.testing.assert_allclose(fitted.covariances(rows, y, shrink={"own": 1}, **said), own, atol=1e-8)
    # Residuals as rows have as many fourth moments; their degrees of freedom are 2 fewer than these rows seem to have.
    twin = MCPCA(R, solver="ml", random_state=0).fit(residuals, y).covariances(residuals, y, random_state=0, **donors)
    np.testing.assert_allclose(found.sampling_errors, twin.sampling_errors, rtol=0.15)
    with pytest.raises(ValueError, match="has removed batch"):
        fitted.covariances(rows, y)


def test_one_context_has_no_use_for_a_pooled_covariance(rng):
    X = rng.standard_normal((30, 8)) * np.linspace(0.5, 2, 8)
    fitted = MCPCA(2, solver="ml", random_state=0).fit([X])
    mixture = fitted.covariances([X], random_state=0)
    assert mixture.weights[0, 1] == 0
    assert np.linalg.eigvalsh(mixture.covariances).min() > 0


def test_a_full_rank_and_more_features_than_rows(rng):
    few = make_contexts(4, 20, 2, n_samples=8, noise=0.5, random_state=0)
    fitted = MCPCA(2, random_state=0).fit(few.X, few.y)
    mixture = fitted.covariances(few.X, few.y, random_state=0)
    assert np.linalg.eigvalsh(mixture.covariances).min() > 1e-3
    assert np.linalg.eigvalsh(own_of(few.X, few.y)).min() < 1e-9
    many = make_contexts(3, 4, 4, n_samples=50, noise=0.1, random_state=0)
    full = MCPCA(4, random_state=0).fit(many.X, many.y)
    assert np.isfinite(full.covariances(many.X, many.y, random_state=0).covariances).all()


def test_a_constant_context(truth):
    X = truth.X.copy()
    X[truth.y == 2] = 1.0
    fitted = MCPCA(R, random_state=0).fit(X, truth.y)
    mixture = fitted.covariances(X, truth.y, random_state=0)
    assert np.isfinite(mixture.covariances).all()
    assert np.isfinite(mixture.weights).all()


def test_the_same_seed_gives_the_same(model, truth, auto):
    np.testing.assert_array_equal(model.covariances(truth.X, truth.y, shrink="auto", random_state=0), auto)
    other = model.covariances(truth.X, truth.y, random_state=1)
    assert other.overlap != auto.overlap
    np.testing.assert_allclose(other.weights, auto.weights, atol=0.2)


# Errors


def test_calls_that_cannot_be_answered(model, truth):
    X, y = truth.X, truth.y
    with pytest.raises(ValueError, match=r"shrink='auto' has no effect, because there are no rows.*pass X"):
        model.covariances(shrink="auto")
    with pytest.raises(ValueError, match="random_state=0 has no effect"):
        model.covariances(random_state=0)
    with pytest.raises(ValueError, match="y labels the rows of X"):
        model.covariances(y=y)
    with pytest.raises(ValueError, match=r"shrink='best' is unknown. Pass 'auto'"):
        model.covariances(X, y, shrink="best")
    with pytest.raises(ValueError, match="shrink has weights for 'mine'"):
        model.covariances(X, y, shrink={"mine": 1})
    with pytest.raises(ValueError, match=r"shrink has shape \(3,\).*\(4,\) or \(6, 4\)"):
        model.covariances(X, y, shrink=[1, 0, 0])
    with pytest.raises(ValueError, match="neither one number nor 6"):
        model.covariances(X, y, shrink={"own": [1, 2]})
    with pytest.raises(ValueError, match="below 0, none above 0"):
        model.covariances(X, y, shrink={"own": -1, "model": 2})
    with pytest.raises(ValueError, match="below 0, none above 0"):
        model.covariances(X, y, shrink={})
    with pytest.raises(TypeError, match="not a set of weights"):
        model.covariances(X, y, shrink=object())
    with pytest.raises(ValueError, match="groups has no effect"):
        model.covariances(X, y, shrink={"own": 1}, groups=np.arange(len(y)))
    with pytest.raises(ValueError, match="the model was fitted on"):
        model.covariances(X, y + 1)
    with pytest.raises(ValueError, match="contexts have other numbers of rows here"):
        model.covariances(np.vstack([X, X]), np.concatenate([y, y]))
    with pytest.raises(ValueError, match="contexts have one"):
        model.covariances(X, y, groups=np.where(y == 0, -1, np.arange(len(y))))


def test_contexts_too_small_for_halves(rng):
    X, y = rng.standard_normal((23, 4)), np.repeat([0, 1, 2], [10, 10, 3])
    fitted = MCPCA(1, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match=r"fewer than 4 rows.*2 \(3\).*pass weights"):
        fitted.covariances(X, y)
    assert fitted.covariances(X, y, shrink={"own": 0.5, "pooled": 0.5}).covariances.shape == (3, 4, 4)


def test_halves_that_cannot_be_fitted_say_so(truth):
    X, y = truth.X[np.arange(len(truth.y)) % 40 < 6], truth.y[np.arange(len(truth.y)) % 40 < 6]
    fitted = MCPCA(R, cross_fit=1, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="shrink='auto' fits halves of the rows, and one cannot be fitted"):
        fitted.covariances(X, y)


def test_too_many_features(model, truth, monkeypatch):
    monkeypatch.setattr("mcpca._inference.shrunk_covariances.MOST_NUMBERS", 100)
    with pytest.raises(ValueError, match=r"6 contexts with 12 features have more than 100 entries. Fit principal"):
        model.covariances(truth.X, truth.y)
    with pytest.raises(ValueError, match="more than 100 entries"):
        model.covariances()


def test_rows_on_dask(model, truth):
    da = pytest.importorskip("dask.array")
    with pytest.raises(ValueError, match=r"X is a Dask collection.*X.compute"):
        model.covariances(da.from_array(truth.X, chunks=(60, P)), truth.y)


def test_missing_values_are_for_the_model_alone(truth):
    X = truth.X.copy()
    X[0, 0] = np.nan
    fitted = MCPCA(R, solver="ml", missing="em", random_state=0).fit(X, truth.y)
    assert np.isfinite(np.asarray(fitted.covariances())).all()
    with pytest.raises(ValueError, match=r"for models of complete rows.*leave X out"):
        fitted.covariances(X, truth.y)
