"""Threads of BLAS are one number for the process: whoever limits it leaves it as it was."""

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import numpy as np
import pytest

from mcpca import MCPCA
from mcpca._utils import parallel
from mcpca.datasets import make_contexts


class Blas:
    """Stands in for threadpoolctl's controller, with two threads whatever the machine."""

    def __init__(self):
        self.threads = 2

    def info(self):
        return [{"num_threads": self.threads}]

    def limit(self, limits):
        return Limiter(self, limits)


class Limiter:
    """What ``limit`` returns: it remembers what it found."""

    def __init__(self, blas, limits):
        self.blas, self.found = blas, blas.threads
        blas.threads = limits

    def restore_original_limits(self):
        self.blas.threads = self.found

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.restore_original_limits()


@pytest.fixture
def blas(monkeypatch):
    found = Blas()
    monkeypatch.setattr(parallel, "_blas", lambda: found)
    return found


def test_the_last_one_out_restores_what_the_first_one_found(blas):
    """The first ends while the second is still at it."""
    inside, go = threading.Event(), threading.Event()

    def second():
        with parallel.one_thread_each():
            inside.set()
            go.wait(5)
            return blas.threads

    with ThreadPoolExecutor(1) as pool:
        with parallel.one_thread_each():
            running = pool.submit(second)
            inside.wait(5)
        assert blas.threads == 1  # the other one still needs it
        go.set()
        assert running.result() == 1
    assert blas.threads == 2


def test_errors_and_nesting_leave_blas_as_it_was(blas):
    def fail(piece):
        raise RuntimeError(piece)

    with parallel.blas_aside(), parallel.one_thread_each():
        assert blas.threads == 1
        with pytest.raises(RuntimeError, match="7"):
            list(parallel.each(fail, [7, 8], 2))
        assert blas.threads == 1
    assert blas.threads == 2
    with pytest.raises(RuntimeError), parallel.own_threads(100, 100):
        raise RuntimeError
    assert blas.threads == 2


def test_threads_are_kept_aside(blas):
    """The same ones serve all calls within ``blas_aside`` for as many of them, and are gone after it."""
    here = threading.active_count()
    barrier = threading.Barrier(2, timeout=5)

    def name(_):
        barrier.wait()  # so that each thread gets one
        return threading.get_ident()

    with parallel.blas_aside():
        assert parallel.n_workers() == 2
        first, second = (set(parallel.each(name, [0, 1], 2)) for _ in range(2))
        assert first == second
        assert len(first) == 2
        with parallel.blas_aside():
            assert set(parallel.each(name, [0, 1], 2)) == first
        assert list(parallel.each(lambda i: threading.get_ident() in first, range(3), 3)) == [False] * 3
        assert list(parallel.each(lambda i: parallel.n_workers(), [0, 1], 2)) == [1, 1]  # within them there are no more
    assert threading.active_count() == here


@pytest.mark.parametrize("aside", [True, False])
def test_nothing_goes_on_after_a_failure(aside, blas):
    done = []

    def slow(i):
        if i == 0:
            raise RuntimeError("it broke down")
        time.sleep(0.05)
        done.append(i)

    with parallel.blas_aside() if aside else contextlib.nullcontext():
        with pytest.raises(RuntimeError, match="broke"):
            list(parallel.each(slow, range(40), 2))
        ended = len(done)
        time.sleep(0.12)
        assert len(done) == ended < 10


@pytest.mark.parametrize("aside", [True, False])
def test_what_holds_for_the_caller_holds_in_threads(aside, blas):
    client = ContextVar("client", default=None)
    client.set("own")
    with parallel.blas_aside(2) if aside else contextlib.nullcontext():
        seen = list(parallel.each(lambda _: (client.get(), client.set("other"), parallel.is_aside()), range(4), 2))
    # Each has a context of its own, and none waits for the pool that it runs in.
    assert [(name, is_aside) for name, _, is_aside in seen] == [("own", False)] * 4
    assert client.get() == "own"


def test_fits_in_parallel_threads_leave_blas_as_it_was(blas):
    data = make_contexts(40, 30, 3, n_samples=20, noise=0.2, random_state=0)
    expected = MCPCA(3, random_state=0).fit(data.X, data.y)
    assert blas.threads == 2
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(MCPCA(3, random_state=0).fit, data.X, data.y) for _ in range(12)]
        for job in jobs:
            np.testing.assert_allclose(job.result().components_, expected.components_, atol=1e-8)
    assert blas.threads == 2
