"""Fits with preprocess="pearson" equal fits to the dense residuals, wherever rows are and however covariances are."""

import inspect
import tracemalloc

import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.sparse as sp
from random_csr import random_csr

import mcpca
import mcpca._covariances.fit_data
from mcpca import MCPCA, Preprocess, context_covariances, pl, tl
from mcpca._covariances import gram_passes, row_groups
from mcpca._data import preprocessed
from mcpca._data.contexts import read_contexts
from mcpca._data.low_rank_rows import dense_rows
from mcpca._data.preprocessed import fit_and_preprocess

N, P, K, R = 420, 60, 3, 3


def residuals(X, fitted=None, theta=100.0, clip=None):
    """The definition; ``fitted`` are the rows that shares and clip are of."""
    fitted = X if fitted is None else fitted
    mu = X.sum(axis=1, keepdims=True) * (fitted.sum(axis=0) / fitted.sum())
    clip = np.sqrt(len(fitted)) if clip is None else clip
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(mu > 0, np.clip((X - mu) / np.sqrt(mu + mu**2 / theta), -clip, clip), 0)


@pytest.fixture(scope="module")
def data():
    """Counts of three programmes whose activity varies by context, new rows of the same kind, and labels."""
    rng = np.random.default_rng(1)
    activity = np.array([[1.0, 0.1, 0.6], [0.2, 1.0, 0.4], [0.5, 0.6, 1.0]])
    programmes = rng.normal(size=(R, P)) * (rng.random((R, P)) < 0.3)
    rates = rng.gamma(1.0, 1.0, P)

    def draw(n):
        codes = rng.integers(0, K, n)
        scores = rng.normal(size=(n, R)) * activity[codes]
        return rng.poisson(rng.lognormal(0.5, 0.7, (n, 1)) * rates * np.exp(scores @ programmes)).astype(float), codes

    X, codes = draw(N)
    X[5] = 0
    return X, np.array(["a", "b", "c"])[codes], draw(50)[0]


@pytest.fixture(params=[False, True], ids=["formed", "passes"])
def by_passes(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(mcpca._covariances.fit_data, "by_passes", lambda *_: True)
    return request.param


def forms(X, tmp_path):
    import anndata as ad
    import dask.array as da

    yield "dense", X
    yield "csr", sp.csr_array(X)
    yield "csc", sp.csc_array(X)
    ad.AnnData(sp.csr_matrix(X)).write_h5ad(tmp_path / "counts.h5ad")
    yield "file", ad.read_h5ad(tmp_path / "counts.h5ad", backed="r").X
    yield "dask", da.from_array(X, chunks=(97, P)).map_blocks(sp.csr_array)


def fit(X, y, **options):
    return MCPCA(R, random_state=0, tol=1e-12, **options).fit(X, y)


def close(a, b, tol=1e-9):
    np.testing.assert_allclose(a, b, rtol=tol, atol=tol * np.abs(b).max())


@pytest.mark.filterwarnings("ignore::mcpca.DominantFeatureWarning")
@pytest.mark.parametrize(
    "options", [{}, {"n_top": 25}, {"scale": True}, {"theta": 10.0, "clip": np.inf}, {"clip": 4.0}]
)
def test_every_form_equals_the_dense_residuals(data, tmp_path, by_passes, options):
    X, y, new = data
    of_residuals = {name: options[name] for name in ("theta", "clip") if name in options}
    before = None
    for name, form in forms(X, tmp_path):
        ours = fit(form, y, preprocess=Preprocess("pearson", **options))
        if before is None:
            columns = slice(None) if ours.preprocess_.columns is None else ours.preprocess_.columns
            dense = residuals(X, **of_residuals)[:, columns]
            spread = dense.std(axis=0, ddof=1) if "scale" in options else 1.0
            new_dense = residuals(new, X, **of_residuals)[:, columns] / spread
            theirs = fit(dense / spread, y)
        close(ours.components_, theirs.components_)
        close(ours.loadings_, theirs.loadings_)
        close(ours.means_, theirs.means_)
        close(ours.transform(new), theirs.transform(new_dense))
        close(ours.transform(sp.csr_array(new)), theirs.transform(new_dense))
        if name != "dask":
            close(ours.transform(form, y), theirs.transform(dense / spread, y))
            close(ours.score(form, y), theirs.score(dense / spread, y))
        before = ours


def test_single_precision(data, by_passes):
    X, y, _ = data
    theirs = fit(residuals(X), y)
    for form in (sp.csr_array(X.astype(np.float32)), sp.csr_array(X.astype(np.int64))):
        ours = fit(form, y, preprocess="pearson")
        assert ours.means_.dtype == np.float32
        close(ours.components_, theirs.components_, 2e-5)
        close(ours.loadings_, theirs.loadings_, 2e-5)


def test_methods_that_take_rows(data, by_passes):
    """Splits and resamples of rows among them, each with the residuals of the fit."""
    X, y, new = data
    dense, sparse = residuals(X), sp.csr_array(X)
    ours, theirs = fit(sparse, y, preprocess="pearson"), fit(dense, y)
    close(ours.loadings_for(sp.csr_array(new)), theirs.loadings_for(residuals(new, X)))
    for name, options, results in [
        ("bootstrap", {"n": 4}, ("loadings",)),
        ("replicability", {}, ("cosines",)),
        ("context_dependence", {}, ("statistics", "null_means")),
        ("presence", {}, ("statistics",)),
        ("covariances", {}, ("covariances", "weights")),
    ]:
        pair = []
        for model, rows in ((ours, sparse), (theirs, dense)):
            method = getattr(model, name)
            seed = {"random_state": 0} if "random_state" in inspect.signature(method).parameters else {}
            pair.append(method(rows, y, **options, **seed))
        for result in results:
            close(getattr(pair[0], result), getattr(pair[1], result), 1e-8)
    close(ours.outlyingness(sparse, y), theirs.outlyingness(dense, y))


@pytest.mark.parametrize("scan_bytes", [6000, 2**26])
@pytest.mark.parametrize("options", [{}, {"clip": 4.0}])
def test_rows_in_any_order(data, tmp_path, monkeypatch, rng, scan_bytes, options):
    """In blocks of any size, and by their numbers, some at a time."""
    monkeypatch.setattr(preprocessed, "SCAN_BYTES", scan_bytes)
    X, y, _ = data
    expected = residuals(X, **options)
    for name, form in forms(X, tmp_path):
        if name == "dask":
            continue
        contexts = preprocessed.fit_and_preprocess(Preprocess("pearson", **options), read_contexts(form, y))
        source = contexts.sources[0]
        assert source.sparse == (name != "dense" and "clip" not in options)
        for rows in (slice(3, 50), slice(None), slice(0, 0), rng.integers(0, N, 2 * N), np.array([7, 3, 3, 400])):
            np.testing.assert_allclose(dense_rows(source.gather(rows)), expected[rows], atol=1e-10)
        for size in (1, 5000, 2**30):
            blocks = [dense_rows(block) for _, block in source.scan(size)]
            np.testing.assert_allclose(np.concatenate(blocks), expected, atol=1e-10)


def test_new_contexts_by_their_own_means(data):
    X, y, new = data
    labels = np.arange(50) % 2
    ours, theirs = fit(sp.csr_array(X), y, preprocess="pearson"), fit(residuals(X), y)
    close(
        ours.transform(sp.csr_array(new), labels, center="own"),
        theirs.transform(residuals(new, X), labels, center="own"),
    )


def test_pictures_and_reports_of_rows(data, tmp_path):
    """They show entries of few rows, which are made dense for it."""
    X, y, _ = data
    dense, sparse = residuals(X), sp.csr_array(X)
    ours, theirs = fit(sparse, y, preprocess="pearson"), fit(dense, y)
    drawn = [
        pl.plot_covariances(model, X=rows, y=y).axes[0].images[0].get_array()
        for model, rows in ((ours, sparse), (theirs, dense))
    ]
    close(drawn[0], drawn[1])
    plt.close("all")
    path = mcpca.report.write_report(ours, tmp_path / "report.html", X=sparse, y=y)
    assert "Pearson residuals" in path.read_text()


def test_anndata(data):
    ad = pytest.importorskip("anndata")
    X, y, new = data
    adata, other = ad.AnnData(sp.csr_matrix(X), obs={"label": y}), ad.AnnData(sp.csr_matrix(new))
    tl.mcpca(adata, "label", n_comps=R, preprocess="pearson", random_state=0)
    theirs = MCPCA(R, random_state=0).fit(residuals(X), y)
    close(adata.varm["MCPCs"], theirs.components_)
    tl.transform(other, model=adata)
    close(other.obsm["X_mcpca"], theirs.transform(residuals(new, X)))
    assert "Pearson residuals" in adata.uns["mcpca"]["preprocess"]["summary"]


@pytest.mark.parametrize("options", [{"robust": True}, {"solver": "ml"}, {"cross_fit": 2}])
def test_other_ways_to_fit(data, by_passes, options):
    X, y, _ = data
    ours = MCPCA(R, random_state=0, preprocess="pearson", **options).fit(sp.csr_array(X), y)
    theirs = MCPCA(R, random_state=0, **options).fit(residuals(X), y)
    close(ours.loadings_, theirs.loadings_, 1e-8)


def test_nuisance(data, by_passes):
    X, y, _ = data
    batch = np.arange(N) % 2
    ours = fit_with_batch(sp.csr_array(X), y, batch, preprocess="pearson")
    theirs = fit_with_batch(residuals(X), y, batch)
    close(ours.loadings_, theirs.loadings_)


def fit_with_batch(X, y, batch, **options):
    return MCPCA(R, random_state=0, tol=1e-12, **options).fit(X, y, batch=batch)


def test_covariances(data):
    X, y, _ = data
    ours = context_covariances(sp.csr_array(X), y, preprocess="pearson")
    close(ours.covariances, context_covariances(residuals(X), y).covariances)


def test_contexts_that_are_read_twice(data, tmp_path, monkeypatch):
    """Larger than memory may hold, so that they are read in parts."""
    X, y, _ = data
    monkeypatch.setattr(mcpca._covariances.fit_data, "by_passes", lambda *_: True)
    for module in (gram_passes, row_groups, mcpca._covariances.streamed):
        monkeypatch.setattr(module, "memory_limit", lambda: 2000)
    file = dict(forms(X, tmp_path))["file"]
    close(fit(file, y, preprocess="pearson").loadings_, fit(residuals(X), y).loadings_)


def test_many_contexts(data, by_passes):
    """Sums of sparse rows are then added by entry, which these rows have no use for; powers of two scale them."""
    X, _, _ = data
    y = np.arange(N) % 210
    scale = 2.0**60
    ours = fit_and_preprocess(Preprocess("pearson", clip=np.inf), read_contexts(sp.csr_array(X), y))
    found = MCPCA(2, random_state=0).fit(ours)
    theirs = MCPCA(2, random_state=0).fit(residuals(X, clip=np.inf), y)
    close(found.loadings_, theirs.loadings_, 1e-8)
    scaled = mcpca._covariances.scaling.scaled_rows(ours, 60)
    assert scaled.low_rank
    close(mcpca._covariances.streamed.context_means(scaled) * scale, residuals_by_context(X, y))


def residuals_by_context(X, y):
    dense = residuals(X, clip=np.inf)
    return np.stack([dense[y == i].mean(axis=0) for i in range(y.max() + 1)])


def test_saved(data, tmp_path):
    X, y, new = data
    for options in ({}, {"clip": np.inf, "theta": 50.0}, {"n_top": 20, "scale": True}):
        model = fit(sp.csr_array(X), y, preprocess=Preprocess("pearson", **options))
        model.save(tmp_path / "model")
        again = MCPCA.load(tmp_path / "model")
        np.testing.assert_array_equal(again.transform(sp.csr_array(new)), model.transform(sp.csr_array(new)))
        assert repr(again.preprocess_.spec) == repr(model.preprocess_.spec)
        assert "Pearson residuals" in again.preprocess_.summary()


def test_programmes_are_found():
    """A programme that is active in one context only has its largest loading there, whatever the depth of rows."""
    rng = np.random.default_rng(0)
    n, p = 4000, 100
    y = np.repeat([0, 1], n // 2)
    scores = rng.normal(size=(n, 2)) * np.array([[1.0, 0.05], [0.05, 1.0]])[y]
    programmes = np.zeros((2, p))
    programmes[0, :15], programmes[1, 15:30] = 0.8, 0.8
    depths = rng.lognormal(1, 1.0, (n, 1)) * np.array([1.0, 4.0])[y][:, None]
    X = rng.poisson(depths * np.exp(scores @ programmes))
    model = MCPCA(2, random_state=0, preprocess="pearson").fit(sp.csr_array(X), y)
    # Totals of rows are taken as they are, so what some features gain all lose in proportion to their shares.
    axes = programmes - programmes.mean(axis=1, keepdims=True)
    cosines = np.abs(axes @ model.components_) / np.linalg.norm(axes, axis=1)[:, None]
    assert sorted(cosines.argmax(axis=1)) == [0, 1]
    assert cosines.max(axis=1).min() > 0.97
    order = cosines.argmax(axis=1)
    shares = model.loadings_[:, order] / model.loadings_[:, order].sum(axis=0)
    assert np.diag(shares).min() > 0.9


def test_nothing_is_made_dense(monkeypatch):
    monkeypatch.setattr(mcpca._covariances.fit_data, "by_passes", lambda *_: True)
    rng = np.random.default_rng(0)
    n, p = 4000, 3000
    X = random_csr(rng, n, p, 0.01, lambda size: rng.integers(1, 9, size))
    y = np.arange(n) % 4
    model = MCPCA(2, random_state=0, tol=1e-2, preprocess="pearson")
    tracemalloc.start()
    model.fit(X.astype(np.float32), y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5 * n * p * 4  # half of the dense rows in float32


def test_refused(data):
    X, y, _ = data
    for options, message in [
        ({"theta": 0}, r"theta=0 is no overdispersion; pass a positive number"),
        ({"clip": -1.0}, r"clip=-1.0 is no bound; pass a positive number, numpy.inf, or None"),
        ({"target_sum": 1e4}, r"target_sum=10000.0 has no effect, because preprocess='pearson' takes the totals"),
        ({"size_factors": np.ones(N)}, r"size_factors have no effect, because preprocess='pearson' takes the totals"),
    ]:
        with pytest.raises(ValueError, match=message):
            MCPCA(R, preprocess=Preprocess("pearson", **options)).fit(X, y)
    for name in ("theta", "clip"):
        with pytest.raises(
            ValueError, match=rf"{name}=50.0 has no effect, because preprocess='log1p' has no residuals"
        ):
            MCPCA(R, preprocess=Preprocess("log1p", **{name: 50.0})).fit(X, y)
    with pytest.raises(ValueError, match=r"X has no counts at all"):
        MCPCA(R, preprocess="pearson").fit(np.zeros((20, 4)), np.arange(20) % 2)
    bad = X.copy()
    bad[33, 4] = -1
    with pytest.raises(ValueError, match=r"X has negative values.*row 33, feature 4"):
        MCPCA(R, preprocess="pearson").fit(sp.csr_array(bad), y)
