"""A long fit that is killed resumes where it was, and faults on the way lose nothing."""

import errno
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading

import h5py
import numpy as np
import pytest
import scipy.sparse
import sklearn

from mcpca import MCPCA
from mcpca._covariances import checkpoint, fit_data, gram, row_groups, streamed
from mcpca._covariances.passes import Passes
from mcpca._covariances.streamed import StreamedCovariances
from mcpca._data.contexts import read_contexts
from mcpca._estimator import fitting
from mcpca._utils.progress import silent
from mcpca.datasets import make_contexts

RANK = 3


def problem():
    return make_contexts(4, 40, RANK, n_samples=100, noise=0.3, random_state=0)


class Blocks:
    """Blocks of rows in which something happens: after ``when`` blocks ``what`` is called."""

    def __init__(self, X, when=None, what=None):
        self.X = X
        self.when = when
        self.what = what
        self.read = 0

    def __iter__(self):
        for i in range(0, len(self.X), 50):
            if self.read == self.when:
                self.what()
            self.read += 1
            yield scipy.sparse.csr_array(self.X[i : i + 50])


@pytest.fixture
def by_passes(monkeypatch):
    monkeypatch.setattr(fit_data, "MOST_NUMBERS", 0)
    monkeypatch.setattr(row_groups, "SCAN_BYTES", 2**14)
    monkeypatch.setattr(checkpoint, "_SECONDS_BETWEEN_WRITINGS", 0.0)  # write after every block


def same(model, other):
    np.testing.assert_array_equal(model.components_, other.components_)
    np.testing.assert_array_equal(model.loadings_, other.loadings_)
    np.testing.assert_array_equal(model.squared_norms(), other.squared_norms())


@pytest.mark.parametrize(("when", "memory"), [(12, 1024), (29, 1024), (52, 1024), (80, 0.03)])
def test_killed_fit_resumes_with_the_same_answer(by_passes, tmp_path, when, memory):
    """SIGKILL in the first pass, between passes, in the middle of later ones; contexts larger than memory."""
    path = tmp_path / "fit.ckpt"
    script = f"""
        import os, signal, sklearn
        from mcpca import MCPCA
        from mcpca._covariances import checkpoint, fit_data, row_groups
        from test_checkpoint import Blocks, RANK, problem
        sklearn.set_config(working_memory={memory})
        fit_data.MOST_NUMBERS, row_groups.SCAN_BYTES, checkpoint._SECONDS_BETWEEN_WRITINGS = 0, 2**14, 0.0
        data = problem()
        blocks = Blocks(data.X, {when}, lambda: os.kill(os.getpid(), signal.SIGKILL))
        MCPCA(RANK, tol=1e-7, random_state=0).fit(blocks, data.y, checkpoint={str(path)!r})
    """
    folder = os.path.dirname(__file__)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([folder, *sys.path])}
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert path.exists()
    data = problem()
    whole = Blocks(data.X)
    rest = Blocks(data.X)
    with sklearn.config_context(working_memory=memory):
        uninterrupted = MCPCA(RANK, tol=1e-7, random_state=0).fit(whole, data.y)
        resumed = MCPCA(RANK, tol=1e-7, random_state=0).fit(rest, data.y, checkpoint=path)
    same(resumed, uninterrupted)
    assert resumed.n_passes_ == uninterrupted.n_passes_
    # Finished passes are not read again (the first reading finds the sizes of blocks and the next their identity).
    assert rest.read <= whole.read - when + 2 * 8 + 8 + 1
    assert not path.exists()


def test_without_a_seed_the_resumed_fit_has_the_one_it_began_with(by_passes, tmp_path, monkeypatch):
    data = problem()
    path = tmp_path / "fit.ckpt"
    used, fit_to = [], fitting.fit_to

    def noted(parameters, data, features, report, seed=None):
        used.append(seed)
        return fit_to(parameters, data, features, report, seed)

    monkeypatch.setattr(fitting, "fit_to", noted)

    def stop():
        raise KeyboardInterrupt

    seeds = []
    for blocks in (Blocks(data.X, 40, stop), Blocks(data.X)):
        try:
            MCPCA(RANK).fit(blocks, data.y, checkpoint=path)
        except KeyboardInterrupt:
            with checkpoint.Checkpoint(path, {}) as saved:
                seeds.append(saved.seed)
    assert seeds == used[:1]
    assert used[0] == used[1]
    assert not path.exists()


def test_ctrl_c_leaves_the_model_as_it_was(by_passes):
    data = problem()
    model = MCPCA(RANK, tol=1e-7, random_state=0).fit(data.X, data.y)
    before = {name: np.copy(value) for name, value in vars(model).items() if isinstance(value, np.ndarray)}
    threads = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        model.fit(Blocks(data.X, 33, lambda: signal.raise_signal(signal.SIGINT)), data.y)
    assert threading.active_count() == threads
    for name, value in before.items():
        np.testing.assert_array_equal(getattr(model, name), value)


def test_another_fit_does_not_touch_the_file(by_passes, tmp_path, monkeypatch):
    data = problem()
    path = tmp_path / "fit.ckpt"

    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        MCPCA(RANK, tol=1e-7, random_state=0).fit(Blocks(data.X, 40, stop), data.y, checkpoint=path)
    content = path.read_bytes()
    for X, y, parameters, named in (
        (data.X[:-1], data.y[:-1], {}, "the number of rows"),
        (data.X[:, 1:], data.y, {}, "the number of features"),
        (2 * data.X, data.y, {}, r"the rows \(context 0, context 1, context 2 and 1 more\)"),
        (data.X, data.y[::-1], {}, "the labels of rows"),
        (data.X, data.y, {"solver": "lsq"}, "the parameters"),
    ):
        with pytest.raises(ValueError, match=f"belongs to another fit: it differs in .*{named}.*delete the file"):
            MCPCA(RANK, **{"random_state": 0, "tol": 1e-7, **parameters}).fit(Blocks(X), y, checkpoint=path)
        assert path.read_bytes() == content
    with (
        sklearn.config_context(working_memory=17),
        pytest.raises(ValueError, match="belongs to another fit: it differs in scikit-learn's working_memory"),
    ):
        MCPCA(RANK, tol=1e-7, random_state=0).fit(Blocks(data.X), data.y, checkpoint=path)
    monkeypatch.setattr(checkpoint, "code_digest", lambda: "of today")
    with pytest.raises(
        ValueError, match=r"written by different code \(mcpca .*, [0-9a-f]{32}\) from that running now \(mcpca .*, of"
    ):
        MCPCA(RANK, tol=1e-7, random_state=0).fit(Blocks(data.X), data.y, checkpoint=path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("calls", [0, 1, 2, 7])
def test_a_fit_from_disk_resumes_in_its_first_pass_and_later(by_passes, tmp_path, monkeypatch, calls):
    """Means and products are found in one pass there."""
    data = make_contexts(6, 40, RANK, n_samples=400, noise=0.3, random_state=0)
    path = tmp_path / "fit.ckpt"
    monkeypatch.setattr(streamed, "_SAMPLE_SHARE", 0.25)
    whole = gram.Gram.whole
    made = []

    def counted(self, X, codes):
        made.append(len(codes))
        if len(made) == stop:
            raise KeyboardInterrupt
        return whole(self, X, codes)

    monkeypatch.setattr(gram.Gram, "whole", counted)
    with h5py.File(tmp_path / "rows.h5", "w") as file, sklearn.config_context(working_memory=0.4):
        X = file.create_dataset("X", data=data.X, chunks=(50, 40))
        stop = None
        uninterrupted = MCPCA(RANK, random_state=0, tol=1e-10).fit(X, data.y)
        needed = sum(made)
        stop = calls + 1
        assert needed == len(data.X) * (uninterrupted.n_passes_ - 1)  # all but the last, for the components
        made.clear()
        with pytest.raises(KeyboardInterrupt):
            MCPCA(RANK, random_state=0, tol=1e-10).fit(X, data.y, checkpoint=path)
        lost = made[-1]
        resumed = MCPCA(RANK, random_state=0, tol=1e-10).fit(X, data.y, checkpoint=path)
    same(resumed, uninterrupted)
    np.testing.assert_array_equal(resumed.means_, uninterrupted.means_)
    assert sum(made) == needed + lost


def test_totals_on_file_are_those_of_the_pass(tmp_path):
    """Whatever becomes of them afterwards: they are written again with every later pass."""
    data = problem()
    path = tmp_path / "fit.ckpt"
    expected = np.stack([np.cov(data.X[data.y == i].T) for i in range(4)])
    for _ in range(2):  # the second time from the file
        with checkpoint.Checkpoint(path, {}) as saved:
            passes = Passes(silent, saved, 1e-7)
            rows = StreamedCovariances.with_means(read_contexts(data.X, data.y), passes)
            S = rows.whole()
            rows.variances_along(data.components)
        np.testing.assert_allclose(S, expected, atol=1e-12)
    total = np.zeros(3)
    with checkpoint.Checkpoint(tmp_path / "other.ckpt", {}) as saved:
        saved.after("means", [total])
        with pytest.raises(ValueError, match="read-only"):
            total += 1


def test_writing_takes_a_tenth_of_the_time_at_most(tmp_path, monkeypatch):
    """After a writing that took long, passes wait for the next one; a fit that fails writes those that have waited."""
    path = tmp_path / "fit.ckpt"
    clock = [1000.0]
    took = 2.0
    write = checkpoint.write_file

    def slow(*what):
        write(*what)
        clock[0] += took

    monkeypatch.setattr(checkpoint, "write_file", slow)
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: clock[0])

    def on_file():
        with np.load(path) as file:
            return sorted(name for name in file.files if name.startswith(("pass", "sum")))

    def fit(saved):
        nonlocal took
        saved.after("means", [np.zeros(3)])
        assert on_file() == ["pass_0_0"]
        clock[0] += 19
        saved.after("basis", [np.ones(3)])
        saved.during(checkpoint.PassUnderWay("core", 1, 10, [np.ones(2)]))
        assert on_file() == ["pass_0_0"]
        clock[0] += 1
        took = 0.2
        saved.after("core", [np.ones(2)])
        assert on_file() == ["pass_0_0", "pass_1_0", "pass_2_0"]
        took = 2.0
        saved.after("loadings", [np.ones(1)])  # at once, since the one before took no time
        saved.after("traces", [np.ones(1)])
        assert on_file()[-1] == "pass_3_0"
        raise RuntimeError("it broke down")

    with pytest.raises(RuntimeError, match="broke"), checkpoint.Checkpoint(path, {}) as saved:
        fit(saved)
    assert on_file()[-1] == "pass_4_0"


def test_full_disk_keeps_the_previous_checkpoint(by_passes, tmp_path):
    """A real limit on the size of files stands in for a full disk."""
    data = problem()
    path = tmp_path / "fit.ckpt"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def fill():
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size // 2, hard))

    model = MCPCA(RANK, tol=1e-7, random_state=0)
    try:
        with pytest.raises(OSError, match=r"checkpoint=.* could not be written .*previous one is unchanged") as caught:
            model.fit(Blocks(data.X, 40, fill), data.y, checkpoint=path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    assert not hasattr(model, "components_")
    assert [p.name for p in tmp_path.iterdir()] == ["fit.ckpt"]
    resumed = MCPCA(RANK, tol=1e-7, random_state=0).fit(Blocks(data.X), data.y, checkpoint=path)
    same(resumed, MCPCA(RANK, tol=1e-7, random_state=0).fit(Blocks(data.X), data.y))


def test_errors_of_the_file(by_passes, tmp_path):
    data = problem()
    with pytest.raises(FileNotFoundError, match=r"checkpoint=.*does not exist; create it first"):
        MCPCA(RANK).fit(data.X, data.y, checkpoint=tmp_path / "nowhere" / "fit.ckpt")
    torn = tmp_path / "torn.ckpt"
    torn.write_bytes(b"PK\x03\x04 half of it")
    with pytest.raises(ValueError, match="is not a complete checkpoint"):
        MCPCA(RANK).fit(data.X, data.y, checkpoint=torn)
    assert torn.read_bytes() == b"PK\x03\x04 half of it"


def test_nan_is_named_by_its_rows(by_passes):
    data = problem()
    X = data.X.copy()
    X[123, 7] = np.nan
    X[321, 1] = np.inf
    model = MCPCA(RANK)
    for given in (scipy.sparse.csr_array(X), Blocks(X)):
        with pytest.raises(ValueError, match=r"X contains 1 NaN and . infinite.* within rows 123 to .*, in feature"):
            model.fit(given, data.y)
    assert not hasattr(model, "components_")


def test_block_of_another_width_is_named(by_passes):
    data = problem()

    def blocks():
        yield data.X[:200]
        yield data.X[200:, :-1]

    with pytest.raises(ValueError, match=r"39.*40"):
        MCPCA(RANK).fit(blocks, data.y)


def test_small_data_need_no_checkpoint(tmp_path):
    """Covariances as an array take seconds: the file is not written."""
    data = problem()
    MCPCA(RANK, tol=1e-7, random_state=0).fit(data.X, data.y, checkpoint=tmp_path / "fit.ckpt")
    assert list(tmp_path.iterdir()) == []
