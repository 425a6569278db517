"""Every function of ``mcpca.tl`` on an AnnData that is read lazily or on Dask gives what it gives in memory."""

import gc
import hashlib
import warnings
import weakref
from importlib.metadata import version

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import mcpca
from mcpca import MCPCA, DroppedContextsWarning, analysis
from mcpca._data import lazy_files
from mcpca._data.dask_reading import DaskReader
from mcpca._data.sources import as_source
from mcpca.datasets import make_contexts

anndata = pytest.importorskip("anndata")
dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
h5py = pytest.importorskip("h5py")
pytest.importorskip("xarray")
read_lazy = getattr(anndata.experimental, "read_lazy", None)
if read_lazy is None:
    pytest.skip("this anndata reads nothing lazily", allow_module_level=True)

R, P, N = 3, 12, 300
tl = mcpca.tl


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def draw():
    drawn = make_contexts(n_contexts=5, n_features=P, n_components=R, n_samples=60, noise=0.1, random_state=0)
    rng = np.random.default_rng(0)
    order = rng.permutation(N)
    y = np.asarray(drawn.y)[order]
    X = drawn.X[order] + 1
    X = sp.csr_matrix(X * (X > 0))
    names = [f"d{v}" for v in y]
    obs = pd.DataFrame(
        {
            "patient": pd.Categorical(names, categories=[f"d{v}" for v in (9, 4, 3, 2, 1, 0)]),
            "stage": y * 1.5,
            "number": pd.array(y, dtype="Int64"),
            "late": pd.array(y > 2, dtype="boolean"),
            "donor": [f"{name}-{i}" for name, i in zip(names, rng.integers(0, 6, N), strict=True)],
            "lane": pd.Categorical(rng.choice(["u", "v"], N)),
            "depth": rng.standard_normal(N),
            "sex": rng.choice(["f", "m"], N),
            "gaps": pd.Categorical(np.where(np.arange(N) % 7 == 0, None, y.astype(str))),
            "unused": rng.standard_normal(N),
        },
        index=[f"c{i}" for i in range(N)],
    )
    var = pd.DataFrame({"highly_variable": np.arange(P) != 5}, index=[f"g{i}" for i in range(P)])
    adata = anndata.AnnData(X, obs=obs, var=var)
    adata.layers["dense"] = X.toarray()
    axes = np.linalg.qr(rng.standard_normal((P, 6)))[0]
    adata.varm["PCs"] = axes
    adata.obsm["X_pca"] = (X.toarray() - X.toarray().mean(axis=0)) @ axes
    return adata


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("files")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the version of Zarr's format
        draw().write_h5ad(path / "cells.h5ad")
        draw().write_zarr(path / "cells.zarr")
    return path


@pytest.fixture(scope="module")
def fitted():
    """A fit to the same rows in memory, for what meets rows later."""
    adata = draw()
    tl.mcpca(adata, "patient", n_comps=R, batch="lane", covariates=["depth", "sex"])
    return adata


def on_dask(X, blocks):
    return da.from_array(X.toarray() if sp.issparse(X) else X, chunks=(70, 5)).map_blocks(blocks)


def opened(form, folder):
    if form == "memory":
        return draw()
    if form == "backed":
        return anndata.read_h5ad(folder / "cells.h5ad", backed="r")
    if form.startswith("cells"):
        return read_lazy(folder / form)
    if form == "rows of a file":  # a step after the reading: blocks come from Dask
        return read_lazy(folder / "cells.h5ad")[np.arange(N)].copy()
    if form == "no index":
        return read_lazy(folder / "cells.h5ad", load_annotation_index=False)
    adata = draw()
    if form == "elements":
        file = h5py.File(folder / "cells.h5ad", "r")
        adata.X = anndata.experimental.read_elem_lazy(file["X"], chunks=(70, P))
        adata.layers["dense"] = anndata.experimental.read_elem_lazy(file["layers/dense"], chunks=(70, P))
        return adata
    adata.X = on_dask(adata.X, sp.csr_array)
    adata.layers["dense"] = on_dask(adata.layers["dense"], np.asarray)
    adata.obsm["X_pca"] = on_dask(adata.obsm["X_pca"], np.asarray)
    return adata


def state(adata, key="mcpca"):
    """All that a fit has stored, as numbers; names are compared here."""
    model = tl.model(adata, key)
    stored = adata.uns[key]
    assert list(stored["loadings"].index) == [str(name) for name in model.contexts_]
    assert isinstance(adata.obsm[f"X_{key}"], np.ndarray)
    codes = adata.obs[f"{key}_context"]
    labels = pd.Categorical(getattr(codes, "data", codes)).astype(object)
    position = {name: i for i, name in enumerate(stored["loadings"].index)}
    return [
        adata.obsm[f"X_{key}"],
        model.components_,
        model.loadings_,
        model.corrected_loadings_,
        np.array([position.get(label, -1) for label in labels]),
        np.asarray(adata.varm["MCPCs" if key == "mcpca" else f"{key}_MCPCs"]),
    ]


def fit(adata, context_key="patient", n_comps=R, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DroppedContextsWarning)
        tl.mcpca(adata, context_key, n_comps=n_comps, **options)
    return adata


def answers(adata, options, asked):
    adata = fit(adata, **options)
    return [*state(adata), *asked(adata)]


def table(adata, **options):
    return [tl.associate(adata, "stage", **options).table.select_dtypes("number").to_numpy()]


def moved(adata, model, *context_key, **options):
    tl.transform(adata, *context_key, model=model, key_added="new", **options)
    return [np.asarray(adata.obsm["X_new"])]


FUNCTIONS = {
    "automatic rank": lambda adata, _: answers(
        adata, {"n_comps": None, "groups": "donor"}, lambda a: [a.uns["mcpca"]["rank"]["rank"]]
    ),
    "one layer": lambda adata, _: answers(adata, {"layer": "dense", "mask_var": None}, lambda a: []),
    "components": lambda adata, _: answers(adata, {"obsm": "X_pca", "center": "context"}, lambda a: []),
    "rows without a context": lambda adata, _: answers(
        adata, {"context_key": "gaps", "missing": "drop"}, lambda a: [tl.replicability(a, n_splits=1).cosines]
    ),
    "crossed": lambda adata, _: answers(adata, {"context_key": ["number", "sex"]}, lambda a: []),
    "nuisance": lambda adata, _: answers(
        adata,
        {"batch": "lane", "covariates": "sex + np.exp(depth)"},
        lambda a: [tl.replicability(a, n_splits=1).cosines, tl.bootstrap(a, n=2).standard_errors],
    ),
    "rank": lambda adata, _: [tl.rank(adata, "patient", criteria=(), n_splits=4).replicability.cosines],
    "replicability": lambda adata, _: answers(
        adata, {}, lambda a: [tl.replicability(a, n_splits=2, **way).cosines for way in WAYS]
    ),
    "dependence": lambda adata, _: answers(
        adata, {}, lambda a: [tl.context_dependence(a, n_splits=2, n_permutations=39).statistics]
    ),
    "bootstrap": lambda adata, _: answers(
        adata, {}, lambda a: [tl.bootstrap(a, n=3, groups=groups).standard_errors for groups in (None, "donor")]
    ),
    "associate": lambda adata, _: answers(adata, {}, lambda a: table(a) + table(a, of="sd", n_pcs=0)),
    "loadings_for": lambda adata, known: [
        tl.loadings_for(adata, "sex", model=known, batch="lane", covariates=["depth", "sex"][:1]).to_numpy(),
        tl.loadings_for(adata, model=known).to_numpy(),
    ],
    "transform": lambda adata, known: moved(adata, known),
    "transform by context": lambda adata, known: moved(
        adata, known, "patient", batch="lane", covariates=["depth", "sex"]
    ),
    "transform by own mean": lambda adata, known: moved(adata, known, "late", center="own"),
    "robust": lambda adata, _: answers(adata, {"robust": True}, lambda a: []),
    "choice of a solver": lambda adata, _: answers(adata, {"solver": "auto"}, lambda a: []),
    "cross-fitted": lambda adata, _: answers(adata, {"cross_fit": 1}, lambda a: []),
}
WAYS = ({}, {"by": "contexts"}, {"groups": "donor"})
LONG = ("robust", "choice of a solver", "cross-fitted", "rank")
_IN_MEMORY: dict = {}


def in_memory(name, fitted):
    if name not in _IN_MEMORY:
        _IN_MEMORY[name] = FUNCTIONS[name](draw(), fitted)
    return _IN_MEMORY[name]


def assert_same(found, expected):
    assert len(found) == len(expected) > 0
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-7)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize(
    ("form", "name"),
    # A file goes the way of backed ones, so what takes long is asked of Dask alone.
    [*(("chunks", name) for name in FUNCTIONS), *(("cells.h5ad", name) for name in FUNCTIONS if name not in LONG)],
)
def test_the_same_as_in_memory(form, name, folder, fitted):
    adata = opened(form, folder)
    assert_same(FUNCTIONS[name](adata, fitted), in_memory(name, fitted))
    assert isinstance(adata.X, da.Array)


INDEX_MAY_STAY = tuple(map(int, version("anndata").split(".")[:3])) >= (0, 12, 19)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("form", ["backed", "cells.zarr", "elements", "no index", "rows of a file"])
def test_other_forms(form, folder, fitted):
    if form == "no index" and not INDEX_MAY_STAY:
        pytest.skip("anndata 0.12.6 fails where it should read an index that stayed in the file; 0.12.19 does not")
    for name in ("nuisance", "transform by context"):
        adata = opened(form, folder)
        assert_same(FUNCTIONS[name](adata, fitted), in_memory(name, fitted))


@pytest.mark.parametrize("context_key", ["patient", ["number", "late"]])
def test_mcpca_itself(folder, context_key):
    found, expected = (
        MCPCA(R, random_state=0).fit(adata, context_key, batch="lane", covariates=["depth", "sex"])
        for adata in (opened("cells.zarr", folder), draw())
    )
    assert found.contexts_.tolist() == expected.contexts_.tolist()
    assert found.feature_names_in_.tolist() == expected.feature_names_in_.tolist()
    np.testing.assert_allclose(found.components_, expected.components_, atol=1e-7)
    # An index of names puts labels in order, also if the names are still in the file.
    labels = draw().obs["patient"][::-1]
    for form in ("cells.h5ad", "no index"):
        found = MCPCA(R, random_state=0).fit(opened(form, folder), labels)
        np.testing.assert_allclose(
            found.components_, MCPCA(R, random_state=0).fit(draw(), "patient").components_, atol=1e-7
        )


def test_select_rank(folder):
    found, expected = (
        mcpca.select_rank(adata, "patient", ranks=[2, R], random_state=0)
        for adata in (opened("cells.h5ad", folder), draw())
    )
    assert (found.reason, found.rank) == (expected.reason, expected.rank)
    assert found.replicability is not None


# Where results are


def test_results_are_read_from_a_lazy_object(folder, tmp_path):
    """Pictures, cards and reports show what is stored, and write what they write in memory."""
    plt = pytest.importorskip("matplotlib.pyplot")
    shown = []
    for form in ("memory", "cells.h5ad"):
        adata = fit(opened(form, folder))
        tl.replicability(adata, n_splits=2)
        tl.associate(adata, "stage", n_pcs=0)
        mcpca.plotting.plot_loadings(adata)
        mcpca.plotting.plot_scores(adata, 0)
        mcpca.plotting.plot_covariate(adata, 0, "stage")
        plt.close("all")
        cards = analysis.describe(adata)
        tables = [analysis.sample_scores(adata), analysis.top_samples(adata, 5), analysis.top_features(adata, 3)]
        shown.append((str(cards), [str(one.round(6)) for one in tables]))
    assert shown[1] == shown[0]


def test_report(folder):
    pytest.importorskip("plotly")
    from mcpca.report import render

    pages = [render(fit(opened(form, folder))) for form in ("backed", "cells.h5ad", "chunks")]
    # Rows that are shown are drawn from a file and from Dask alike.
    assert len(pages[0]) == len(pages[1]) == len(pages[2])


def test_results_go_to_a_new_file(folder, tmp_path):
    """What is on file stays as it was; with annotations in memory anndata writes a copy with the results."""
    before = hashlib.sha256((folder / "cells.h5ad").read_bytes()).hexdigest()
    adata = fit(opened("cells.h5ad", folder))
    assert hashlib.sha256((folder / "cells.h5ad").read_bytes()).hexdigest() == before
    assert "X_mcpca" not in opened("cells.h5ad", folder).obsm
    adata.obs, adata.var = adata.obs.to_memory(), adata.var.to_memory()
    adata.write_h5ad(tmp_path / "results.h5ad")
    written = anndata.read_h5ad(tmp_path / "results.h5ad")
    assert_same(state(written), state(fit(draw())))
    assert_same(state(adata.to_memory()), state(fit(draw())))


@pytest.mark.filterwarnings("ignore:Setting element .* of view")
def test_a_view_and_a_copy(folder):
    here, there = (opened(form, folder)[20:] for form in ("memory", "cells.h5ad"))
    copied = tl.mcpca(there, "patient", n_comps=R, copy=True)
    assert "mcpca" not in there.uns
    assert isinstance(copied.X, da.Array)
    assert_same(state(copied), state(fit(here.copy())))
    assert_same(state(fit(there)), state(copied))


def test_files_that_are_joined(folder, tmp_path):
    parts = [draw()[:140].copy(), draw()[140:].copy()]
    for i, part in enumerate(parts):
        part.write_h5ad(tmp_path / f"{i}.h5ad")
    lazy = anndata.concat([read_lazy(tmp_path / f"{i}.h5ad") for i in range(2)], label="part")
    whole = anndata.concat(parts, label="part")
    for adata in (lazy, whole):
        fit(adata, ["part", "number"], mask_var=None)
    assert_same(state(lazy), state(whole))


# What is read


class Watched:
    """Makes blocks of rows, counts how often, and knows how many bytes of them are alive."""

    def __init__(self, X, rows):
        self.X = X
        self.rows = rows
        self.calls = 0
        self.live = 0
        self.most = 0

    def block(self, block_info=None):
        (first, stop), _ = block_info[None]["array-location"]
        block = self.X[first:stop].copy()
        self.calls += 1
        self.live += block.data.nbytes
        self.most = max(self.most, self.live)
        weakref.finalize(block.data, self._gone, block.data.nbytes)
        return block

    def _gone(self, nbytes):
        self.live -= nbytes

    def array(self):
        n, p = self.X.shape
        lengths = tuple(min(self.rows, n - first) for first in range(0, n, self.rows))
        return da.map_blocks(
            self.block, chunks=(lengths, (p,)), dtype=self.X.dtype, meta=sp.csr_matrix((0, 0), dtype=self.X.dtype)
        )


@pytest.mark.parametrize("passes", [False, True])
def test_rows_are_never_here_as_a_whole(passes, monkeypatch, fitted):
    if passes:
        monkeypatch.setattr(mcpca._covariances.fit_data, "MOST_NUMBERS", 0)
    adata = draw()
    X = sp.csr_matrix(adata.X)
    watched = Watched(X, 15)
    n_blocks = N // 15
    adata.X = watched.array()
    asked = {
        "mcpca": lambda: tl.mcpca(adata, "patient", n_comps=R, batch="lane"),
        "replicability": lambda: tl.replicability(adata, n_splits=1),
        "context_dependence": lambda: tl.context_dependence(adata, n_splits=1, n_permutations=19),
        "bootstrap": lambda: tl.bootstrap(adata, n=2),
        "associate": lambda: tl.associate(adata, "stage", n_pcs=0),
        "transform": lambda: tl.transform(adata, model=fitted, key_added="new"),
        "loadings_for": lambda: tl.loadings_for(adata, "sex", model=fitted),
    }
    if passes:
        asked = {name: asked[name] for name in ("mcpca", "bootstrap", "loadings_for")}
    for name, call in asked.items():
        gc.collect()
        watched.most = watched.live
        watched.calls = 0
        call()
        if name == "associate":
            assert watched.calls == 0
            continue
        assert watched.calls >= n_blocks, name
        # A few blocks of twenty: those of the task under way, and of the one before it.
        assert 0 < watched.most <= 0.25 * X.data.nbytes, name
    assert isinstance(adata.X, da.Array)
    adata.X.compute()  # what it would have been otherwise
    assert watched.most > 0.9 * X.data.nbytes


def test_only_columns_that_are_named_are_read(folder, monkeypatch):
    read = set()
    get = h5py.Dataset.__getitem__

    def noted(self, key, *args, **kwargs):
        read.add(self.name)
        return get(self, key, *args, **kwargs)

    adata = opened("cells.h5ad", folder)
    monkeypatch.setattr(h5py.Dataset, "__getitem__", noted)
    tl.mcpca(adata, "patient", n_comps=R, batch="lane", covariates="depth")
    of_obs = {name.split("/")[2] for name in read if name.startswith("/obs/")}
    assert {"patient", "lane", "depth"} <= of_obs
    assert not of_obs & {"unused", "donor", "stage", "sex", "gaps"}
    assert not any(name.startswith(("/layers", "/obsm")) for name in read)


@pytest.mark.parametrize("form", ["cells.h5ad", "cells.zarr"])
def test_the_file_behind_a_matrix(form, folder, tmp_path):
    """Without a cluster a matrix as it was opened is read from its file; anything else is left to Dask."""
    adata = opened(form, folder)
    dataset = lazy_files.opened(adata.X)
    assert not isinstance(dataset, da.Array)
    np.testing.assert_array_equal(as_source(dataset, "X").gather(slice(0, N)).toarray(), draw().X.toarray())
    for changed in (adata.X[1:], adata.X[:, ::-1], adata.X * 2, adata.X.rechunk((70, P)), draw().layers["dense"]):
        assert lazy_files.opened(changed) is changed
    copied = tmp_path / "gone.h5ad"
    draw().write_h5ad(copied)
    gone = read_lazy(copied)
    gone.file.close()
    copied.unlink()
    assert lazy_files.opened(gone.X) is gone.X


def test_features_that_are_missing(folder):
    """A file is read context by context; of other rows on Dask it is said what to do."""
    options = {"missing_features": "union", "solver": "lsq"}
    assert_same(state(fit(opened("cells.h5ad", folder), **options)), state(fit(draw(), **options)))
    with pytest.raises(ValueError, match=r"missing_features='union' reads rows in this process.*to_memory"):
        fit(opened("chunks", folder), **options)


# The source behind pictures and reports


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_by_number(sparse):
    adata = draw()
    X = adata.layers["dense"].astype(np.float32)
    reader = DaskReader(on_dask(X, sp.csr_matrix if sparse else np.asarray), "X")
    twin = as_source(sp.csr_array(X) if sparse else X, "X")
    assert (reader.shape, reader.dtype, reader.sparse) == (twin.shape, twin.dtype, twin.sparse)
    dense = (lambda M: M.toarray()) if sparse else np.asarray
    for rows in (slice(3, 200), np.array([299, 0, 0, 71, 70, 69]), np.array([], dtype=int)):
        np.testing.assert_array_equal(dense(reader.gather(rows)), dense(twin.gather(rows)))
    blocks = list(reader.scan(1000))
    assert [first for first, _ in blocks] == np.cumsum([0, *(block.shape[0] for _, block in blocks)])[:-1].tolist()
    np.testing.assert_array_equal(np.concatenate([dense(block) for _, block in blocks]), X)
    W = np.random.default_rng(0).standard_normal((P, 2))
    np.testing.assert_allclose(reader.products(W), X.astype(np.float64) @ W, rtol=1e-5)
    with pytest.raises(IndexError, match="0 to 300 are asked for"):
        reader.gather(np.array([0, 300]))


# Schedulers


def test_threads(folder, fitted):
    """Not a bit differs: sums are added in the same order whatever the threads do."""

    def run():
        adata = fit(opened("cells.h5ad", folder), batch="lane")
        return [*state(adata), tl.bootstrap(adata, n=2).standard_errors, *moved(adata, fitted)]

    expected = run()
    with dask.config.set(scheduler="threads"):
        for found, right in zip(run(), expected, strict=True):
            np.testing.assert_array_equal(found, right)
