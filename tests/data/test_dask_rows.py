"""Fits on Dask equal those in memory; rows stay on the workers; what fails says why."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import mcpca._covariances.fit_data
from mcpca import MCPCA, context_covariances
from mcpca.datasets import make_contexts

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")

from mcpca._data import dask_rows as adapter  # noqa: E402
from mcpca._data.context_sums import Sum  # noqa: E402
from mcpca._data.dask_graph import Graph  # noqa: E402
from mcpca._data.dask_tasks import combined_sums  # noqa: E402
from mcpca._data.lazy_files import opened  # noqa: E402

R, P = 4, 30


SETTINGS = {"host": "127.0.0.1", "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes on this machine, each with a nanny that starts it again."""
    # A worker asks a dead one for data until this time is over, which is 30 s if not set.
    with dask.config.set({"distributed.comm.timeouts.connect": "2s"}):
        cluster = distributed.LocalCluster(n_workers=2, processes=True, **SETTINGS)
    with cluster, distributed.Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture
def client(cluster):
    """The cluster is Dask's default for one test; others do without, which is faster."""
    with cluster.as_current(), dask.config.set(scheduler="dask.distributed"):
        yield cluster


@pytest.fixture(scope="module")
def data():
    """Rows with means, in an order that mixes the contexts."""
    drawn = make_contexts(n_contexts=5, n_features=P, n_components=R, n_samples=120, noise=0.1, random_state=0)
    order = np.random.default_rng(0).permutation(len(drawn.X))
    y = np.asarray(drawn.y)[order]
    return drawn.X[order] + 2 + np.arange(5)[np.unique(y, return_inverse=True)[1]][:, None], y


@pytest.fixture(params=["covariances", "passes"])
def way(request, monkeypatch):
    """Covariances as an array, and products with them by passes."""
    if request.param == "passes":
        monkeypatch.setattr(mcpca._covariances.fit_data, "MOST_NUMBERS", 0)
    return request.param


def model(**options):
    return MCPCA(R, random_state=0, **options)


def assert_same_model(found, expected, tol=1e-8):
    assert found.contexts_.tolist() == expected.contexts_.tolist()
    np.testing.assert_allclose(found.components_, expected.components_, atol=tol)
    np.testing.assert_allclose(found.loadings_, expected.loadings_, atol=tol * expected.loadings_.max())
    np.testing.assert_allclose(found.means_, expected.means_, atol=tol * np.abs(expected.means_).max())
    assert found.n_samples_per_context_.tolist() == expected.n_samples_per_context_.tolist()
    assert found.n_passes_ == expected.n_passes_
    assert found.components_.dtype == expected.components_.dtype


# Equality with a fit in memory


@pytest.mark.parametrize("chunks", [(97, P), (97, 11), (600, P), (1, P)], ids=str)
def test_dense(data, way, chunks):
    X, y = data
    if chunks[0] == 1:
        X, y = X[:60], y[:60]
    assert_same_model(model().fit(da.from_array(X, chunks=chunks), y), model().fit(X, y))


@pytest.mark.parametrize("persist", [False, True])
def test_dense_on_workers(client, data, way, persist):
    X, y = data
    rows = da.from_array(X, chunks=(150, P))
    rows = rows.persist() if persist else rows
    found = model().fit(rows, y)
    assert_same_model(found, model().fit(X, y))
    again = model().fit(rows, da.from_array(y, chunks=50))
    assert (again.components_ == found.components_).all()
    assert (again.loadings_ == found.loadings_).all()


@pytest.mark.parametrize("scheduler", ["threads", "synchronous"])
def test_without_a_cluster(data, way, scheduler):
    X, y = data
    with dask.config.set(scheduler=scheduler):
        assert_same_model(model().fit(da.from_array(X, chunks=(50, P)), y), model().fit(X, y))


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix, sp.coo_array])
@pytest.mark.parametrize("told", [False, True], ids=["meta says dense", "meta says sparse"])
def test_sparse(data, way, kind, told):
    X, y = data
    X = X * (np.random.default_rng(1).random(X.shape) < 0.3)
    meta = {"meta": kind(np.zeros((0, P)))} if told else {"meta": np.zeros((0, P)), "dtype": float}
    rows = da.from_array(X, chunks=(90, P)).map_blocks(kind, **meta)
    # Sums by blocks are rounded otherwise, and at the usual tol two fits may stop a step apart.
    assert_same_model(model(tol=1e-11).fit(rows, y), model(tol=1e-11).fit(sp.csr_array(X), y))


def test_sparse_on_workers(client, data, way):
    X, y = data
    X = X * (np.random.default_rng(1).random(X.shape) < 0.3)
    rows = da.from_array(X, chunks=(90, P)).map_blocks(sp.csr_array)
    assert_same_model(model(tol=1e-11).fit(rows, y), model(tol=1e-11).fit(sp.csr_array(X), y))


@pytest.mark.parametrize("labels", ["column", "series", "categorical", "array", "pandas"])
def test_dataframe(request, data, way, labels):
    if labels == "column" and way == "passes":
        request.getfixturevalue("client")
    X, y = data
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(P)])
    group = pd.Series([f"c{v}" for v in y])
    if labels == "categorical":
        group = pd.Series(pd.Categorical(group, categories=["unused", *sorted(set(group))[::-1]]))
    expected = model().fit(frame, group)
    rows = dd.from_pandas(frame.assign(group=group), npartitions=3, sort=False)
    features = rows[list(frame.columns)]
    given = {
        "column": (rows, "group"),
        "series": (features, rows["group"]),
        "categorical": (features, rows["group"]),
        "array": (features, rows["group"].astype(object).to_dask_array()),
        "pandas": (features, group),
    }
    found = model().fit(*given[labels])
    assert_same_model(found, expected)
    assert found.feature_names_in_.tolist() == list(frame.columns)
    scores = found.transform(*given[labels])
    np.testing.assert_allclose(scores.compute(), expected.transform(frame, group), atol=1e-10)


def test_labels_in_chunks_of_their_own(data):
    X, y = data
    rows = da.from_array(X, chunks=(150, P))
    unknown = da.from_array(y, chunks=61).map_blocks(lambda b: b, chunks=((np.nan,) * 10,), dtype=y.dtype)
    assert np.isnan(unknown.shape[0])
    for labels in (da.from_array(y, chunks=61), da.from_array(y[:, None], chunks=(61, 1)), unknown):
        assert_same_model(model().fit(rows, labels), model().fit(X, y))


def test_contexts_apart(data, way):
    X, y = data
    parts = {f"c{v}": X[y == v] for v in np.unique(y)}
    remote = {name: da.from_array(part, chunks=(37, P)) for name, part in parts.items()}
    expected = model().fit(parts)
    assert_same_model(model().fit(remote), expected)
    found = model().fit(list(remote.values()))
    assert_same_model(found, model().fit(list(parts.values())))
    for name, scores in model().fit(remote).transform(remote).items():
        np.testing.assert_allclose(scores.compute(), expected.transform(parts)[name], atol=1e-10)
    np.testing.assert_allclose(
        model().fit(remote["c1"], None).components_, model().fit(parts["c1"]).components_, atol=1e-8
    )


def test_frames_of_contexts_are_aligned(data):
    X, y = data
    columns = [f"f{i}" for i in range(P)]
    parts = {str(v): pd.DataFrame(X[y == v], columns=columns) for v in np.unique(y)}
    remote = {name: dd.from_pandas(part, npartitions=2) for name, part in parts.items()}
    remote["2"] = remote["2"][columns[::-1]]
    assert_same_model(model().fit(remote), model().fit(parts))


def test_float32_and_integers(data, way):
    X, y = data
    X32 = X.astype(np.float32)
    assert_same_model(model().fit(da.from_array(X32, chunks=(150, P)), y), model().fit(X32, y), tol=2e-4)
    whole = np.round(X * 10).astype(np.int16)
    assert_same_model(model().fit(da.from_array(whole, chunks=(150, P)), y), model().fit(whole, y))


def test_many_groups_of_contexts(client, data, monkeypatch):
    """Contexts one at a time, spread over all blocks."""
    X, y = data
    monkeypatch.setattr(mcpca._covariances.fit_data, "MOST_NUMBERS", 0)
    monkeypatch.setattr(adapter, "_GROUP_BYTES", 1)
    for rows in (da.from_array(X, chunks=(300, P)), da.from_array(X, chunks=(300, P)).persist()):
        assert_same_model(model().fit(rows, y), model().fit(X, y))


@pytest.mark.parametrize("options", [{"solver": "lsq"}, {"solver": "ml"}, {"orthogonal": True}], ids=str)
def test_other_solvers(data, way, options):
    X, y = data
    found, expected = (model(**options).fit(rows, y) for rows in (da.from_array(X, chunks=(200, P)), X))
    assert_same_model(found, expected, tol=1e-6)


def test_rank_is_chosen_on_workers(client, way, monkeypatch):
    """By halves of the rows, as in memory; ``tests/rank`` has other forms of rows, without a cluster."""
    if way == "passes":
        monkeypatch.setattr("mcpca._rank.rank_data.RANK_FEATURES", 20)
    drawn = make_contexts(6, 120, 3, n_samples=120, noise=0.15, random_state=1)
    X, y = drawn.X, drawn.y
    expected = MCPCA(random_state=0).fit(X, y).rank_choice_
    assert expected.rank == 3
    rows = da.from_array(X, chunks=(150, 120))
    for form in (rows, rows.persist()) if way == "passes" else (rows,):
        found = MCPCA(random_state=0).fit(form, y).rank_choice_
        assert found.rank == expected.rank
        assert found.reason == expected.reason
        assert found.outcome == "agreed"
        np.testing.assert_allclose(found.replicability.cosines, expected.replicability.cosines, atol=1e-6)


def test_covariances(client, data):
    X, y = data
    found, expected = context_covariances(da.from_array(X, chunks=(97, 7)), y), context_covariances(X, y)
    np.testing.assert_allclose(found.covariances, expected.covariances, atol=1e-12)
    np.testing.assert_allclose(found.means, expected.means, atol=1e-12)


def test_transform(data):
    X, y = data
    rows = da.from_array(X, chunks=(150, P))
    fitted = model(solver="ml").fit(X, y)
    mean = X.mean(axis=0)
    cases = [
        {},
        {"y": y},
        {"y": y, "center": "own"},
        {"center": "own"},
        {"y": y, "center": "overall"},
        {"y": y, "center": mean},
        {"y": y, "center": {y[0]: mean}},
        {"posterior": True},
        {"y": y, "posterior": True},
        {"y": y, "center": "overall", "posterior": True},
    ]
    for options in cases:
        scores = fitted.transform(rows, **options)
        assert isinstance(scores, da.Array)
        assert scores.chunks == (rows.chunks[0], (R,))
        np.testing.assert_allclose(scores.compute(), fitted.transform(X, **options), atol=1e-10)
    small = fitted.transform(rows.astype(np.float32), y)
    assert small.dtype == small.compute().dtype == fitted.transform(X.astype(np.float32), y).dtype
    np.testing.assert_allclose(fitted.loadings_for(rows, y), fitted.loadings_for(X, y), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(fitted.loadings_for(rows), fitted.loadings_for(X), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("labels", ["none", "here", "there"])
def test_inverse_transform(data, labels):
    X, y = data
    fitted = model().fit(X, y)
    Z = fitted.transform(X)
    scores = da.from_array(Z, chunks=(150, R))
    given = {"none": (None, None), "here": (y, y), "there": (y, da.from_array(y, chunks=97))}[labels]
    cases = [{}, {"center": X.mean(axis=0)}, {"center": "overall"}]
    cases += [] if labels == "none" else [{"center": {y[0]: X.mean(axis=0)}}]
    for options in cases:
        rows = fitted.inverse_transform(scores, given[1], **options)
        assert isinstance(rows, da.Array)
        assert rows.chunks == (scores.chunks[0], (P,))
        np.testing.assert_allclose(rows.compute(), fitted.inverse_transform(Z, given[0], **options), atol=1e-12)
    there = fitted.inverse_transform(fitted.transform(da.from_array(X, chunks=(150, P)), y), y)
    np.testing.assert_allclose(there.compute(), fitted.inverse_transform(fitted.transform(X, y), y), atol=1e-10)
    with pytest.raises(ValueError, match="X has 3 columns, but scores of this model have 4"):
        fitted.inverse_transform(scores[:, :3])
    with pytest.raises(ValueError, match="center='own' is not known from scores"):
        fitted.inverse_transform(scores, center="own")


def test_inverse_transform_of_contexts(data):
    X, y = data
    parts = {f"c{v}": X[y == v] for v in np.unique(y)}
    fitted = model().fit(parts)
    Z = fitted.transform(parts)
    remote = fitted.inverse_transform({name: da.from_array(own, chunks=(37, R)) for name, own in Z.items()})
    for name, rows in fitted.inverse_transform(Z).items():
        assert isinstance(remote[name], da.Array)
        np.testing.assert_allclose(remote[name].compute(), rows, atol=1e-12)


@pytest.mark.parametrize("told", [0, 2], ids=["the first partition's", "the last partition's"])
@pytest.mark.parametrize("as_column", [False, True])
def test_categories_that_differ_between_partitions(data, told, as_column):
    """Contexts are those of all partitions, sorted as pandas has them once it puts the partitions together."""
    X, y = data
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(P)]).assign(g=[f"c{v}" for v in y])
    parts = [frame[i : i + 200].assign(g=lambda part: part["g"].astype("category")) for i in (0, 200, 400)]
    table = dd.from_map(lambda i: parts[i], range(3), meta=parts[told].iloc[:0])
    expected = model().fit(frame, "g")
    found = model().fit(table, "g") if as_column else model().fit(table.drop(columns="g"), table["g"])
    assert_same_model(found, expected)


# What goes over the wire


def test_a_pass_is_one_small_computation(client, data, monkeypatch):
    X, y = data
    monkeypatch.setattr(mcpca._covariances.fit_data, "MOST_NUMBERS", 0)
    rows = da.from_array(X, chunks=(20, P)).persist()
    n_blocks = rows.numblocks[0]
    computed, sent, came, original, get = [], [], [], Graph.compute, distributed.Client.get

    def compute(self, key):
        graph = self.delayed(key).dask
        computed.append(len(dict(graph)))
        sent.append(len(distributed.protocol.pickle.dumps({k: v for k, v in dict(graph).items() if k[0] == self.name})))
        return original(self, key)

    def counted(self, *args, **kwargs):
        result = get(self, *args, **kwargs)
        came.append(dask.sizeof.sizeof(result))
        return result

    monkeypatch.setattr(Graph, "compute", compute)
    monkeypatch.setattr(distributed.Client, "get", counted)
    stages = []
    found = model(verbose=lambda *progress: stages.append(progress)).fit(rows, y)
    passes = [stage for stage in stages if stage[0].startswith("pass")]
    assert len(passes) == 2 * found.n_passes_
    assert passes[0] == ("pass 1, means", 0, len(X))
    assert passes[1] == ("pass 1, means", len(X), len(X))
    assert len(came) == len(computed) == found.n_passes_ + 2  # a look at the rows, and one at the labels
    assert max(computed) <= 5 * n_blocks  # blocks, labels, two products, sums
    assert max(sent) < 1000 * n_blocks + 50_000
    assert max(came) < X.nbytes / 5  # 600 rows would have 30 numbers each; sums are (30, 14), and cores


def test_importing_is_free():
    code = "import mcpca, mcpca._data.dask_rows, sys; sys.exit(bool({'dask', 'distributed'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_sums_are_joined():
    sparse = sp.csr_array(np.array([[0.0, 1.0, 2.0]]))
    first = [Sum(0, ..., np.ones(2)), Sum(1, np.array([2]), np.full((1, 3), 5.0)), Sum(2, np.array([1]), sparse)]
    second = [Sum(0, ..., np.ones(2)), Sum(1, np.array([0, 2]), np.ones((2, 3))), Sum(2, np.array([3]), sparse)]
    whole, dense, csr = combined_sums([first, second, []])
    assert whole.value.tolist() == [2, 2]
    assert dense.key.tolist() == [0, 2]
    assert dense.value[:, 0].tolist() == [1, 6]
    assert csr.key.tolist() == [1, 3]
    assert csr.value.toarray().tolist() == [[0, 1, 2], [0, 1, 2]]
    assert first[0].value.tolist() == [1, 1]
    assert first[1].value[0, 0] == 5


# What fails


def unfitted(model):
    return not [name for name in vars(model) if name.endswith("_")]


@pytest.mark.parametrize("sparse", [False, True])
def test_nan_is_told_with_its_rows(client, data, way, sparse):
    X, y = data[0].copy(), data[1]
    X[123, 4] = np.nan
    rows = da.from_array(X, chunks=(150, P))
    rows = rows.map_blocks(sp.csr_array) if sparse else rows
    failed = model()
    with pytest.raises(ValueError, match=r"X contains 1 NaN .* within rows 123 to 123, in feature\(s\) 4; impute"):
        failed.fit(rows, y)
    assert unfitted(failed)
    fitted = model().fit(*data)
    with pytest.raises(ValueError, match="within rows 123 to 123"):
        fitted.transform(rows).compute()


def test_overflow(data, way):
    X = data[0].astype(np.float32) * np.float32(1e30)
    with pytest.raises(ValueError, match="too large for float32: its squares overflow"):
        model().fit(da.from_array(X, chunks=(150, P)), data[1])


def test_blocks_of_another_shape(client, data):
    X, y = data
    wide = dask.delayed(np.zeros)((100, P + 1))
    good = [dask.delayed(X[i : i + 100]) for i in range(0, 500, 100)]
    rows = da.concatenate([da.from_delayed(d, (100, P), float) for d in [*good, wide]])
    failed = model()
    with pytest.raises(
        ValueError, match=r"a block of shape \(100, 31\) in place of rows 500 to 599, where \(100, 30\)"
    ):
        failed.fit(rows, y)
    assert unfitted(failed)


def _told_float(rows, function, dtype=np.float64):
    return rows.astype(dtype).map_blocks(function, meta=np.zeros((0, 0), dtype))


def _wider_than_told(block, block_info=None):
    return block if block_info[0]["chunk-location"][0] == 0 else block.astype(np.float64)


ANNOUNCED = [
    (
        lambda rows, y: (da.Array(rows.dask, rows.name, ((150,) * 4, (15, 15)), dtype=float), y),
        r"X announces 8 blocks and has no task for 4 of them; the first is block \(0, 1\)",
    ),
    (lambda rows, y: (da.Array(rows.dask, rows.name, ((150,) * 5, (P,)), dtype=float), y), "X announces 5 blocks"),
    (lambda rows, y: (rows, da.Array(rows.dask, rows.name, ((120,) * 5,), dtype=float)), "y announces 5 blocks"),
    (
        lambda rows, y: (_told_float(rows, lambda b: b + 1j), y),
        r"Complex data not supported: X, the block from row \d+",
    ),
    (lambda rows, y: (_told_float(rows, lambda b: np.full(b.shape, "a")), y), "X, the block from .* is not numeric"),
    (
        lambda rows, y: (_told_float(rows, _wider_than_told, np.float32), y),
        "X announces float32 and its block from row .* on is float64: digits would be lost",
    ),
    (
        lambda rows, y: (rows, da.from_array(y, chunks=150).map_blocks(lambda b: np.stack([b, b]), dtype=int)),
        r"y has a block of shape \(2, 150\); pass one",
    ),
]


@pytest.mark.parametrize("there", [False, True], ids=["threads", "cluster"])
@pytest.mark.parametrize(("make", "message"), ANNOUNCED, ids=[message[:25] for _, message in ANNOUNCED])
def test_what_is_announced_wrongly_is_named(request, data, there, make, message):
    """The cluster is there, and is not said to be lost."""
    if there:
        request.getfixturevalue("client")
    X, y = data
    failed = model()
    with pytest.raises(ValueError, match=message):
        failed.fit(*make(da.from_array(X, chunks=(150, P)), y))
    assert unfitted(failed)


@pytest.mark.parametrize("there", [False, True], ids=["threads", "cluster"])
@pytest.mark.parametrize("error", [ConnectionRefusedError, TimeoutError])
def test_errors_of_blocks_are_not_those_of_the_cluster(request, data, there, error):
    if there:
        request.getfixturevalue("client")

    def read(block):
        raise error("no such bucket")

    rows = da.from_array(data[0], chunks=(150, P)).map_blocks(read, meta=np.zeros((0, 0)))
    with pytest.raises(error, match="no such bucket") as caught:
        model().fit(rows, data[1])
    assert type(caught.value) is error


def test_persisted_rows_that_were_cancelled(data):
    with cluster_here() as cluster, distributed.Client(cluster, set_as_default=False) as own:
        rows = own.persist(da.from_array(data[0], chunks=(150, P)))
        own.cancel(rows, force=True)
        with pytest.raises(ValueError, match=r"what was persisted was cancelled.*The cluster is still there"):
            model().fit(rows, data[1])


def _without_mcpca():
    for name in [name for name in sys.modules if name.partition(".")[0] == "mcpca"]:
        del sys.modules[name]
    sys.modules["mcpca"] = None


def test_workers_without_mcpca(client, data):
    X, y = data
    rows = da.from_array(X, chunks=(300, P)).persist()
    fitted = model().fit(rows, y)
    client.run(_without_mcpca)
    try:
        for method in (model().fit, fitted.transform, fitted.loadings_for):
            message = r"lacks the package mcpca: .* worker tcp.* and 1 more \(.*install mcpca on every worker"
            with pytest.raises(ModuleNotFoundError, match=message):
                method(rows, y)
    finally:
        client.run(lambda: sys.modules.pop("mcpca"))
    assert_same_model(model().fit(rows, y), fitted)


def test_masks_are_not_dropped(data):
    X, y = data
    hidden = np.zeros(X.shape, dtype=bool)
    hidden[123, 4] = True
    rows = da.from_array(X, chunks=(100, P))
    masked = da.ma.masked_array(rows, da.from_array(hidden, chunks=(100, P)))
    with pytest.raises(ValueError, match="X, the block from row 100 on, has 1 masked values; fill them"):
        model().fit(masked, y)
    assert_same_model(model().fit(da.ma.masked_array(rows, False), y), model().fit(X, y))
    labels = da.ma.masked_array(da.from_array(y, chunks=100), da.from_array(y == 1, chunks=100))
    with pytest.raises(ValueError, match="y has 120 missing labels"):
        model().fit(rows, labels)


def frame_of(X, y):
    return dd.from_pandas(pd.DataFrame(X).rename(columns=str).assign(g=[f"c{v}" for v in y]), npartitions=2, sort=False)


REFUSED = [
    (lambda X, y: (da.from_array(X), y[:-1]), r"y has shape \(599,\) and X has 600 rows"),
    (lambda X, y: (da.from_array(X), da.from_array(y[:-1])), r"y has shape \(599,\) and X has 600 rows"),
    (lambda X, y: (da.from_array(X), da.from_array(np.where(y == 1, np.nan, y))), "y has 120 missing labels"),
    (lambda X, y: (da.from_array(X), da.from_array(np.tile(y[:, None], 2))), "y has 2 dimensions"),
    (lambda X, y: (da.from_array(X), "g"), "y='g' is not a column of X, which has none"),
    (lambda X, y: (frame_of(X, y), "h"), "y='h' is not a column of X, which has '0', '1'.* and 21 more"),
    (lambda X, y: (frame_of(X, y), y), r"X has non-numeric columns \['g'\]; drop or encode them \(y='name'"),
    (lambda X, y: (da.from_array(X[:, :, None]), y), "X must be 2-D .*, got 3 dimensions"),
    (lambda X, y: (da.from_array(X.astype(complex)), y), "Complex data not supported"),
    (lambda X, y: (da.from_array(X[:, :0]), y), r"X has 0 feature\(s\)"),
    (lambda X, y: (da.from_array(X[:0]), None), "X has 0 samples"),
    (lambda X, y: (da.from_array(X), np.arange(600)), "600 of 600 contexts have fewer than 2 samples"),
    (lambda X, y: ([da.from_array(X), X], None), r"contexts on Dask and others that are not \(X, context 1\)"),
    (lambda X, y: ([da.from_array(X), da.from_array(X[:, 1:])], None), "context 0 has 30 and context 1 has 29"),
    (
        lambda X, y: ([frame_of(X, y)[["1", "2"]], frame_of(X, y)[["1", "3"]]], None),
        "context 1, lacks 1 of the 2 features of the first context: '2', and has 1 in addition: '3'",
    ),
    (lambda X, y: ([da.from_array(X)], y), "y labels the rows of one 2-D X, but X already holds separate contexts"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_input_that_is_refused(data, make, message):
    failed = model()
    with pytest.raises(ValueError, match=message):
        failed.fit(*make(*data))
    assert unfitted(failed)


def test_methods_that_need_rows_here(data):
    X, y = data
    rows = da.from_array(X, chunks=(150, P))
    fitted = model().fit(rows, y)
    with pytest.raises(ValueError, match="X is a Dask collection, and the spread of its rows"):
        MCPCA(R, solver="ml", random_state=0).fit(rows, y).standard_errors(rows, y)
    with pytest.raises(ValueError, match="X has 29 features, but MCPCA is expecting 30"):
        fitted.transform(rows[:, 1:])
    frame = frame_of(X, y)
    named = model().fit(frame, "g")
    other_way = named.transform(frame[[*[str(i) for i in range(P)][::-1], "g"]], "g")  # by name
    np.testing.assert_array_equal(other_way.compute(), named.transform(frame, "g").compute())


@pytest.mark.parametrize("solver", ["mspm", "ml"])
def test_score(data, solver):
    X, y = data
    rows, fitted = da.from_array(X, chunks=(97, P)), model(solver=solver).fit(X[::2], y[::2])
    assert fitted.score(rows, y) == pytest.approx(fitted.score(X, y), rel=1e-9)
    assert fitted.score(rows[1:90], y[1:90]) == pytest.approx(fitted.score(X[1:90], y[1:90]), rel=1e-9)
    assert fitted.score(rows) == pytest.approx(fitted.score(X), rel=1e-9)
    small, few = X.astype(np.float32), model().fit(X.astype(np.float32), y)
    assert few.score(da.from_array(small, chunks=(97, P)), y) == pytest.approx(few.score(small, y), rel=1e-4)


def test_a_checkpoint_keeps_finished_passes(client, data, tmp_path, monkeypatch):
    X, y = data
    monkeypatch.setattr(mcpca._covariances.fit_data, "MOST_NUMBERS", 0)
    rows = da.from_array(X, chunks=(150, P))
    path = tmp_path / "passes"

    def stop(stage, done, total):
        if stage.startswith("pass 4"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model(verbose=stop).fit(rows, y, checkpoint=path)
    later = da.concatenate([rows[:450], 3 * rows[450:]])
    with pytest.raises(
        ValueError, match=r"belongs to another fit: it differs in the rows \(context 0, .*delete the file"
    ):
        model().fit(later, y, checkpoint=path)
    with pytest.raises(ValueError, match="belongs to another fit: it differs in the labels of rows"):
        model().fit(rows, np.sort(y), checkpoint=path)
    stages = []
    found = model(verbose=lambda *progress: stages.append(progress[0])).fit(rows, y, checkpoint=path)
    made = [stage for stage in stages if stage.startswith("pass")]
    assert made[0].startswith("pass 4")
    assert_same_model(found, model().fit(X, y))
    assert not path.exists()


def test_a_worker_is_killed(client, data, tmp_path, monkeypatch):
    """SIGKILL in the middle of a pass: what the worker had is made again elsewhere."""
    X, y = data
    monkeypatch.setattr(mcpca._covariances.fit_data, "MOST_NUMBERS", 0)
    armed, victim, dead = (tmp_path / name for name in ("armed", "victim", "dead"))

    def until(path):
        deadline = time.monotonic() + 20
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.01)

    def block(i):
        if i == 3 and armed.exists() and not victim.exists():
            (victim.parent / "pid").write_text(str(os.getpid()))
            (victim.parent / "pid").rename(victim)
            until(dead)
        return X[100 * i : 100 * (i + 1)]

    def kill():
        until(victim)
        os.kill(int(victim.read_text()), signal.SIGKILL)
        dead.touch()

    def arm(stage, done, total):
        if stage.startswith("pass 2"):
            armed.touch()

    rows = da.concatenate([da.from_delayed(dask.delayed(block)(i), (100, P), float) for i in range(6)])
    killer = threading.Thread(target=kill)
    killer.start()
    found = model(verbose=arm).fit(rows, y)
    killer.join()
    assert dead.exists()
    assert_same_model(found, model().fit(X, y))
    client.wait_for_workers(2)


@pytest.mark.parametrize("form", ["h5ad", "zarr"])
def test_files_that_workers_open(client, tmp_path, form):
    """``mcpca.tl`` on a file that is read lazily: workers read their own blocks, and the answer is that of memory."""
    anndata = pytest.importorskip("anndata")
    pytest.importorskip("xarray")
    drawn = make_contexts(n_contexts=4, n_features=10, n_components=R, n_samples=40, noise=0.1, random_state=0)
    order = np.random.default_rng(0).permutation(160)
    here = anndata.AnnData(
        sp.csr_matrix(drawn.X[order]), {"donor": np.asarray(drawn.y)[order].astype(str), "lane": np.arange(160) % 2}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the version of Zarr's format
        getattr(here, f"write_{form}")(tmp_path / f"cells.{form}")
    there = anndata.experimental.read_lazy(tmp_path / f"cells.{form}")
    assert opened(there.X) is there.X
    answers = []
    for adata in (there, here):
        mcpca.tl.mcpca(adata, "donor", n_comps=R, batch="lane")
        answers.append(
            [
                adata.obsm["X_mcpca"],
                mcpca.tl.bootstrap(adata, n=2).standard_errors,
                mcpca.tl.replicability(adata, n_splits=1).cosines,
                mcpca.tl.loadings_for(adata, "lane", model=adata).to_numpy(),
            ]
        )
    for found, expected in zip(*answers, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-8)


def cluster_here():
    return distributed.LocalCluster(n_workers=1, processes=False, **{**SETTINGS, "host": None})


@pytest.mark.parametrize("lost", ["client", "cluster"])
def test_a_cluster_is_lost(data, way, lost):
    X, y = data
    with cluster_here() as cluster, distributed.Client(cluster, set_as_default=False) as own:
        rows = own.persist(da.from_array(X, chunks=(150, P)))
        found = model().fit(rows, y)
        assert_same_model(found, model().fit(X, y))
        before = found.components_

        def lose(stage, done, total):
            if stage.startswith("pass 1" if way == "covariances" else "pass 2") and done == 0:
                (own if lost == "client" else cluster).close()

        found.set_params(verbose=lose)
        message = r"The Dask cluster was lost, or its client closed.*Connect again with distributed.Client\(address\)"
        with pytest.raises(ConnectionError, match=message):
            found.fit(rows, y)
        assert found.components_ is before
        with pytest.raises(ConnectionError, match="Nothing was fitted"):
            model().fit(rows, y)
