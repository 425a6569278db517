"""Fits of one set of rows (all of them, a half, nine tenths) at any rank, by the solver of the user's model.

Every set of rows is a ``SampleFits``. It gets one basis, for the largest rank, from which the bases of all smaller
ranks are cut. Whatever is random is seeded by its rank, so that the numbers at one rank depend neither on the other
ranks nor on the number of jobs. ``halves`` compares two of them; ``criteria`` looks at single ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._covariances.checkpoint import Checkpoint
from .._covariances.context_covariances import ContextCovariances, covariances_of
from .._covariances.fit_data import by_passes
from .._covariances.interface import Covariances
from .._covariances.passes import Passes
from .._covariances.stack import CovarianceStack
from .._covariances.streamed import StreamedCovariances
from .._covariances.subspace import Core, compress, numerical_rank, width
from .._data.contexts import Contexts
from .._linalg import eigenbasis
from .._linalg.canonical import canonical_order
from .._solvers import SOLVERS, Settings, get_solver
from .._solvers.loadings import solve_loadings
from .._utils.parallel import each
from .._utils.progress import Search, silent
from .._utils.types import Array, Report

# Fits of the sweep are less exact than those of MCPCA: cosines are needed to three digits only. Tolerance and steps.
_ACCURACY = {"mspm": (1e-4, 30), "lsq": (1e-5, 60), "ml": (1e-6, 100)}
# Of their leading directions: far below what halves differ by, and looser where every step is a pass over the rows.
_BASIS_TOL = 1e-5
_PASSES_TOL = 1e-2
# Numbers in a stack of a sample that is kept for its fits, 32 MB. Larger ones are released once the basis is known, and
# the few products that a fit needs are passes over the rows.
_KEPT_NUMBERS = 2**22
_COLUMNS = 128  # of several axes that are multiplied in one pass over the rows
_THREADED_WORK = 1e8  # e q^2 r^2 from which threads are faster than one: below, they wait for the interpreter


@dataclass(frozen=True)
class Method:
    """How the model of the user is fitted: checked values of the parameters of ``MCPCA`` of these names.

    ``noise`` has been resolved; ``weights`` of contexts are by name, or None where all are alike.
    """

    solver: str = "mspm"
    orthogonal: bool = False
    noise: str | None = None
    weights: Mapping[Any, float] | None = None

    @property
    def is_likelihood(self) -> bool:
        """Whether contexts are weighted by their rows, and covariances are not."""
        return SOLVERS[self.solver].models_noise

    def of_contexts(self, names: Array) -> Array:
        """Return the weights of these contexts (k,)."""
        return np.ones(len(names)) if self.weights is None else np.array([self.weights[n] for n in names.tolist()])


@dataclass(frozen=True)
class Sweep:
    """How to go through ranks: the largest of them, seed, threads, progress and the method of the fits."""

    largest: int
    seed: int
    workers: int
    report: Report
    method: Method = Method()

    def stage(self, name: str, ranks: Sequence[int], times: int = 1) -> Search:
        """Return the progress of a stage that goes through ``ranks`` ``times`` times, counted in components."""
        # High ranks take longest, so components are a better measure of time than ranks.
        return Search(self.report, name, times * sum(ranks))

    def over(self, progress: Search, call: Callable[[int], Any], ranks: Sequence[int], core: Core) -> list[Any]:
        """Return ``call`` of every rank, in the order of ``ranks``; ``core`` tells how much work a call is."""
        # The largest rank takes longest: it goes first, so that no thread is left with it at the end.
        order = sorted(range(len(ranks)), key=lambda i: -ranks[i])
        values: list[Any] = [None] * len(ranks)
        for place, value in zip(order, each(lambda i: call(ranks[i]), order, self._threads(core, ranks)), strict=True):
            values[place] = value
            progress.step(ranks[place])
        return values

    def _threads(self, core: Core, ranks: Sequence[int]) -> int:
        if len(ranks) < 2:
            return 1
        # Without the tensor, which is computed when it is first needed.
        q = len(core.directions) if core.basis is None else core.basis.shape[1]
        e = core.n_contexts if core.mixture is None else core.mixture.shape[1]
        return self.workers if e * (q * max(ranks)) ** 2 > _THREADED_WORK else 1

    def generator(self, *key: int) -> np.random.Generator:
        """Return the stream of random numbers that belongs to ``key``."""
        # NumPy hashes the whole tuple: streams of different keys are independent, however similar the keys.
        return np.random.default_rng((self.seed, *key))


class FitAtRank(NamedTuple):
    """Components (p, r), and their loadings (k, r) by least squares."""

    A: Array
    B: Array


class SampleFits:
    """Some rows of every context, their basis, and their fits by rank.

    ``given`` are their covariances, if they have been computed; otherwise they are formed, or read in passes where a
    fit of these rows would be. Formed ones are released again if they are large, so that a half costs the memory of its
    core. Without rows (None) ``given`` is required.
    """

    def __init__(self, contexts: Contexts | None, sweep: Sweep, given: ContextCovariances | None = None) -> None:
        self.contexts = contexts
        self.sweep = sweep
        self._given = given
        S = self._covariances()
        assert given is not None or contexts is not None
        names = given.contexts if given is not None else contexts.names  # type: ignore[union-attr]
        # Those of ``given`` count what nuisance has left of the rows.
        self.n_samples = given.n_samples if given is not None else contexts.n_samples  # type: ignore[union-attr]
        self._weights = sweep.method.of_contexts(names)
        # Singular vectors are nested, so the basis of the largest rank holds those of all others.
        self.core = compress(self._weighted(S), sweep.largest)
        self.rank = numerical_rank(self.core.singular_values, S)
        self.squared_norm = float(S.squared_norms().sum())
        is_large = given is None and isinstance(S, CovarianceStack) and S.values.size > _KEPT_NUMBERS
        # A core that is the stack itself is not released by going without it.
        self._is_released = is_large and self.core.basis is not None
        self.products = self._by_rows() if self._is_released else S
        if self._is_released:
            _ = self.core.tensor  # from the stack, while it is there
        self.fits: dict[int, FitAtRank | None] = {}

    @property
    def size(self) -> int:
        """How many numbers are held for further fits: those of the core, and of covariances that were not released."""
        S = self.products
        tensor = self.core.tensor.size
        return tensor + (int(S.values.size) if isinstance(S, CovarianceStack) else 0)

    def covariances(self) -> Covariances:
        """Return the covariances for many products: formed anew if they were released."""
        return self._covariances() if self._is_released else self.products

    def _covariances(self) -> Covariances:
        largest = self.sweep.largest
        if self._given is not None:
            return CovarianceStack(self._given.covariances, _BASIS_TOL)
        assert self.contexts is not None
        if not by_passes(self.contexts, largest):
            return CovarianceStack(covariances_of(self.contexts, silent).covariances, _BASIS_TOL)
        passes = Passes(silent, Checkpoint(None, {}), _PASSES_TOL)
        sketch = max(largest + eigenbasis.SPARE, -(-width(largest, len(self.contexts.names)) // 2))
        return StreamedCovariances.of(self.contexts, sketch, passes)

    def _by_rows(self) -> Covariances:
        assert self.contexts is not None
        return StreamedCovariances.with_means(self.contexts, Passes.silent())

    def _weighted(self, S: Covariances) -> Covariances:
        """Return covariances as a solver of least squares takes them: times the roots of the weights."""
        method = self.sweep.method
        return S if method.weights is None or method.is_likelihood else S.weighted(np.sqrt(self._weights))

    def variances_along(self, axes: Sequence[Array]) -> list[Array]:
        """Return ``a_j^T S_i a_j`` (k, r) for each of several A (p, r); if rows are read for that, many in one pass."""
        if not isinstance(self.products, StreamedCovariances):
            return [self.products.variances_along(A) for A in axes]
        found: list[Array] = []
        while len(found) < len(axes):
            rest = axes[len(found) :]
            ends = np.cumsum([A.shape[1] for A in rest])
            some = max(1, int(np.searchsorted(ends, _COLUMNS, side="right")))
            along = self.products.variances_along(np.hstack(rest[:some]))
            found += np.split(along, ends[: some - 1], axis=1)
        return found

    def fit(self, ranks: Sequence[int], progress: Search) -> None:
        """Fit the ranks that are missing; None where these rows vary in fewer directions."""
        missing = [r for r in ranks if r not in self.fits]
        self._add_fits(missing, self.sweep.over(progress, self._axes, missing, self.core))

    def fitted(self, ranks: Sequence[int]) -> int:
        """Fit the ranks that are missing, and return for how many components in all; for callers in a thread each."""
        # The largest first, as it takes longest; one after the other, as threads are taken.
        missing = sorted((r for r in ranks if r not in self.fits), reverse=True)
        self._add_fits(missing, [self._axes(r) for r in missing])
        return sum(missing)

    def _add_fits(self, ranks: Sequence[int], axes: Sequence[Array | None]) -> None:
        """Keep axes of these ranks with their loadings."""
        known = [(r, A) for r, A in zip(ranks, axes, strict=True) if A is not None]
        self.fits |= dict.fromkeys(ranks)
        for (r, A), along in zip(known, self.variances_along([A for _, A in known]), strict=True):
            # Normal equations of the loadings: <aa', bb'> = (a'b)^2.
            B = solve_loadings((A.T @ A) ** 2, along)
            self.fits[r] = FitAtRank(*canonical_order(A, B)[:2])

    def _axes(self, r: int) -> Array | None:
        # Halves have fewer rows than the whole, and may vary in fewer directions.
        if r > self.rank:
            return None
        method = self.sweep.method
        k = self.core.n_contexts
        tol, steps = _ACCURACY[method.solver]
        # Likelihoods weigh contexts by their rows, and so does ``decompose``.
        freedom = (self.n_samples - 1.0) * self._weights if method.is_likelihood else np.ones(k)
        settings = Settings(self.sweep.generator(r), tol, steps, silent, freedom, method.noise)
        # The solver itself cuts the core of rank r from the shared one (``Core.leading``).
        solve = get_solver(method.solver, method.orthogonal, k)
        try:
            return solve(self._weighted(self.products), self.core, r, settings).components
        except np.linalg.LinAlgError:
            return None  # these rows do not determine a fit of this rank
