"""Covariances that are never formed: each product with them is a pass over the rows.

``fit_data_of_rows`` makes a ``StreamedCovariances`` if an array (k, p, p) would be too large or too expensive. Solvers
use it through the same interface as ``CovarianceStack``. With ``X_i`` the rows of context i, ``m_i`` their mean and
``Z_i = (X_i - 1 m_i^T) V`` the centred scores,

    S_i V = (X_i - 1 m_i^T)^T Z_i / (n_i - 1),   V^T S_i V = Z_i^T Z_i / (n_i - 1).

Only scores are centred, so sparse rows stay sparse, and memory is O(p m + k m^2) plus the means, (k, p). Where batch or
covariates are removed, ``S_i`` is less by ``F_i^T F_i`` (``nuisance.py``): products are corrected by it after the pass,
those for the basis within it. Most passes
take rows in any order (``kernels.py``); those for the basis need all rows of a context together (``gram_passes.py``).
The docstring of ``passes.py`` lists the passes of a fit in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .._data.contexts import Contexts
from .._data.held_rows import memory_limit
from .._data.sparse_products import compiled_products
from .._linalg import eigenbasis
from .._utils.parallel import blas_aside
from .._utils.types import Array
from . import kernels
from .gram import Gram, GramInParts
from .gram_passes import block_for, learned, multiply, multiply_and_find_means
from .interface import Basis, Covariances
from .nuisance import Downdate, NuisanceFactors, degrees_of_freedom, nuisance_factors
from .pass_results import PassMemory, PassResults
from .passes import TOL, Kernel, Passes, run_pass
from .row_sample import RowSample, sample_of
from .sampling_limits import SHARE, SamplingGoal, power_step

# Bound on the products, and so on the passes, for one basis. If the scree drops at the rank, two to ten suffice; if it
# is flat there, no answer exists to converge to, and Lanczos usually stops by itself when products no longer help.
_MOST_PRODUCTS = 40
# Share of the rows on disk that the first look reads. A larger sample costs more of a pass; a smaller one gives
# directions that are further from the answer, so that more passes follow.
_SAMPLE_SHARE = 1 / 16
# Fewest rows in the sample for each direction sought in it. With fewer, its directions are mostly noise, and random
# ones, which cost nothing, do as well.
_SAMPLE_ROWS_PER_DIRECTION = 10
# The sample's directions are only a start for those of all rows, so a few products with it and seven digits suffice.
_SAMPLE_PRODUCTS = 3
_SAMPLE_TOL = 1e-7


class _FirstGuess(NamedTuple):
    """Likely leading ``directions`` (p, s), and the weights ``mixture`` (k, s) with which contexts enter the sketch."""

    directions: Array
    mixture: Array


class _FirstLook(NamedTuple):
    """The leading ``directions`` (p, s) of a ``sample`` of the rows."""

    directions: Array
    sample: RowSample

    def guess(self, k: int) -> _FirstGuess:
        """Return the directions with weights for k contexts."""
        # Weighted by their variance along direction l, the contexts that vary there dominate column l.
        rows = StreamedCovariances.with_means(self.sample.contexts, Passes.silent())
        variances = rows.variances_along(self.directions)
        # Contexts without rows in the sample get the average of the others.
        mixture = np.tile(variances.mean(axis=0), (k, 1))
        mixture[self.sample.chosen] = variances
        return _FirstGuess(self.directions, mixture)


@dataclass(frozen=True)
class StreamedCovariances:
    """``Covariances`` of rows, computed by passes over them.

    Attributes
    ----------
    contexts : Contexts
        The rows.
    passes : Passes
        How passes are made; its ledger counts them.
    means : ndarray (k, p)
        Means of the rows before features are scaled.
    sketch : ndarray (p, s)
        A first approximation of the leading directions, from the pass that found the means.
    weights : ndarray (k,)
        Factors of the covariances.
    squares : ndarray (k,) or None
        Sums of squared lengths of the rows, which are not centred; None if the first pass found the means only.
    scale : ndarray (p,) or None
        Factors of the features.
    nuisance : NuisanceFactors or None
        What is removed from the scatters.

    Notes
    -----
    Products change nothing that can be seen from outside except the count of passes: results that may be needed again
    go to ``_memory``.
    """

    contexts: Contexts
    passes: Passes
    means: Array
    sketch: Array
    weights: Array
    squares: Array | None = None
    scale: Array | None = None
    nuisance: NuisanceFactors | None = None
    _memory: PassMemory = field(default_factory=PassMemory)

    @classmethod
    @blas_aside()
    def of(cls, contexts: Contexts, width: int, passes: Passes) -> StreamedCovariances:
        """Find the means, and sketch ``[S_1 ... S_k]`` by ``width`` combinations of its columns: one pass.

        Column l of the sketch is ``sum_i w_il S_i x_l``, which under the model is ``A diag(sum_i w_il b_i) A^T x_l``: a
        combination of the components. For rows in memory x and w are random. For rows on disk, x are the leading
        directions of a sample and w the variances along them, which saves a pass or two later. If in addition every
        context fits into memory, the sketch is ``sum_i S_i S_i x_l``, and this is also the first pass for the basis.
        """
        # More columns than features would depend on each other.
        width = min(width, contexts.n_features)
        look = cls._first_look(contexts, width, passes)
        if look is None:
            return cls._with_sketch(contexts, _random_guess(contexts, width), passes)
        # ``S_i x`` has to be complete before it is multiplied by S_i again. With all rows of a context in memory, that
        # is possible within a single pass, and without its mean (``Gram.whole``).
        if (contexts.context_bytes() <= memory_limit()).all():
            directions = look.directions
            del look  # with the sample, whose memory the pass has a use for
            return cls._with_first_product(contexts, directions, passes)
        return cls._with_sketch(contexts, look.guess(len(contexts.names)), passes)

    @classmethod
    def with_means(cls, contexts: Contexts, passes: Passes) -> StreamedCovariances:
        """Find the means only, if no basis will be needed: one pass."""
        means = context_means(contexts, passes)
        sketch = np.empty((contexts.n_features, 0))
        return cls(contexts, passes, means, sketch, np.ones(len(means)), nuisance=_nuisance(contexts, passes))

    @classmethod
    def _with_first_product(cls, contexts: Contexts, V: Array, passes: Passes) -> StreamedCovariances:
        """Find the means and ``G V`` for an orthonormal V in one pass. Every context has to fit into memory."""
        ones = np.ones(len(contexts.names))
        # V (p, s) is followed by probes for the norms, since nothing is known of them yet. Scale and weights come
        # later, by ``scaled`` and ``weighted``: this pass is of the rows as they are.
        block = block_for(V, PassResults(), len(ones))
        dtype = contexts.dtype
        nuisance = _nuisance(contexts, passes)
        factors = _scatter_factors(contexts, ones, nuisance)
        gram = Gram(
            block.directions.astype(dtype), block.s, factors, None, block.seen.astype(dtype), _downdate(nuisance, dtype)
        )
        totals, means, squares = multiply_and_find_means(contexts, passes, gram)
        # Both the product, which ``basis`` need not repeat, and the core of V.
        results = learned(PassResults(), block, totals).with_products(V, totals.product)
        memory = PassMemory(results)
        return cls(contexts, passes, means, totals.product, ones, squares, nuisance=nuisance, _memory=memory)

    @classmethod
    def _with_sketch(cls, contexts: Contexts, guess: _FirstGuess, passes: Passes) -> StreamedCovariances:
        """Find the means and ``sum_i w_il S_i x_l`` in one pass over rows in any order."""
        k = len(contexts.names)
        p = contexts.n_features
        # directions x (p, s), mixture w (k, s), means (k, p), sketch (p, s)
        directions = guess.directions
        # A context with a single row has scatter 0, whatever it is divided by.
        mixture = guess.mixture / np.maximum(contexts.n_samples - 1.0, 1.0)[:, None]
        kernel = partial(
            kernels.row_sums_and_sketch,
            kernels.adds_by_entry(contexts),
            directions.astype(contexts.dtype),
            mixture.astype(contexts.dtype),
        )
        row_sums = np.zeros((k, p))
        uncentred = np.zeros((p, directions.shape[1]))
        squares = np.zeros((k, 1))
        both = partial(kernels.with_row_squares, kernel, kernels.SquareLengths(), 2)
        run_pass(contexts, passes, "means", both, [row_sums, uncentred, squares])
        means = row_sums / contexts.n_samples[:, None]
        # The means were not known during the pass. Correcting for them afterwards loses digits if they are large, which
        # does little harm: the sketch affects the number of passes that follow, and not what they converge to.
        sketch = uncentred - means.T @ ((means @ directions) * mixture * contexts.n_samples[:, None])
        nuisance = _nuisance(contexts, passes)
        if nuisance is not None:
            sketch -= nuisance.combine(directions, mixture)
        return cls(contexts, passes, means, sketch, np.ones(k), squares[:, 0], nuisance=nuisance)

    @classmethod
    def _first_look(cls, contexts: Contexts, width: int, passes: Passes) -> _FirstLook | None:
        """Return leading eigenvectors of ``sum_i S_i`` over a sample of the rows on disk; None without a sample."""
        sample = sample_of(contexts, _SAMPLE_SHARE, _SAMPLE_ROWS_PER_DIRECTION * width)
        if sample is None:
            return None
        passes.report("a first look", 0, 1)
        rows = sample.contexts
        everybody = np.arange(len(rows.names))
        factors = _scatter_factors(rows, np.ones(len(everybody)), None)

        # Of sum_i S_i and not of G: under the model both have the span of A, and the former takes one product.
        def times(V: Array) -> Array:
            product = np.zeros(V.shape)
            kernel = partial(kernels.pooled_products, V.astype(rows.dtype), factors)
            run_pass(rows, Passes.silent(), "a first look", kernel, [product], whole=everybody)
            return product

        # Whether that pays is for all rows to say, most of which are multiplied next.
        with compiled_products(contexts.sparse_bytes):
            leading = eigenbasis.top_eigenvectors(
                times,
                times(_random_directions(rows, width)),
                width,
                width,
                tol=_SAMPLE_TOL,
                eps=_SAMPLE_TOL,
                most=_SAMPLE_PRODUCTS,
            )
        passes.report("a first look", 1, 1)
        return _FirstLook(leading.vectors, sample)

    def on_host(self, contexts: Contexts) -> StreamedCovariances:
        """Return the same for a copy of the rows on the host, where later passes are made, with an empty memory."""
        return replace(self, contexts=contexts, passes=replace(self.passes, device=None), _memory=PassMemory())

    @property
    def n_contexts(self) -> int:
        """Number of contexts, k."""
        return len(self.contexts.names)

    @property
    def n_features(self) -> int:
        """Number of features, p."""
        return self.contexts.n_features

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 when all rows are, float64 otherwise."""
        return self.contexts.dtype

    @property
    def known(self) -> PassResults:
        """The results of passes so far that may be needed again."""
        return self._memory.results

    @blas_aside()
    def basis(self, q: int, r: int) -> Basis:
        """Return the top ``q`` left singular vectors of ``[S_1 ... S_k]`` by block Lanczos, a pass for each product."""
        # Lanczos accepts residuals of 8 eps times the largest eigenvalue: one rounding error of the rows' precision.
        eps = float(np.finfo(self.dtype).eps) / 8
        # At least q / 2, so that two blocks hold the q directions asked for.
        width = max(min(r + eigenbasis.SPARE, self.n_features), -(-q // 2))
        start = self.known.multiplied
        # A first product from before the rank was known may be too narrow; the sketch can be padded.
        if start is None or start.shape[1] < width:
            start = self._first_block(width)

        def times(V: Array) -> Array:
            product = self.known.product(V)  # the first pass may have multiplied the first block already
            return self._gram_times(V) if product is None else product

        tol = self.passes.tol
        top = eigenbasis.top_eigenvectors(
            times,
            start,
            q,
            r,
            tol=TOL if tol is None else tol,
            goal=self._goal(r) if tol is None else None,
            shrink=power_step if tol is None else None,
            eps=eps,
            most=_MOST_PRODUCTS,
        )
        self.passes.room.clear()  # later passes take rows in any order, and gather none
        error = SHARE * top.excess if tol is None else None
        # G = M M^T for M = [S_1 ... S_k], so its eigenvalues are the squares of singular values of M.
        return Basis(top.vectors, np.sqrt(top.values), top.residual, error)

    def _goal(self, r: int) -> SamplingGoal:
        """Return what the rows can tell of the leading r directions."""

        def core_of(U: Array) -> Array | None:
            parts = self.known.congruences(U)
            return None if parts is None else np.concatenate([np.asarray(part, dtype=np.float64) for part in parts])

        return SamplingGoal(r, core_of, self._rough_traces(), degrees_of_freedom(self.contexts, self.nuisance))

    def _first_block(self, width: int) -> Array:
        """Return the sketch with ``width`` columns: cut, or padded with random directions."""
        start = self._scaled_columns(self.sketch)
        missing = width - start.shape[1]
        if missing > 0:  # the rank was unknown when the sketch was made
            # A fixed seed, here as elsewhere: a resumed fit has to multiply the directions of the totals on file.
            more = np.random.default_rng(1).standard_normal((len(start), missing))
            # Scaled like the sketch, so that neither part drowns in the rounding of the other. A sketch that is empty
            # or zero has no size; columns times 0 would have no directions.
            size = np.linalg.norm(start) / np.sqrt(max(start.size, 1))
            start = np.hstack([start, more * max(size, np.finfo(float).tiny)])
        return start[:, :width]

    def _gram_times(self, V: Array) -> Array:
        """Return ``sum_i S_i S_i V`` (p, s) for an orthonormal V, and remember what else the pass finds."""
        block = block_for(V, self.known, self.n_contexts)
        # The covariances are ``D S_i D``: D enters with the directions here, as D^2 between the two products, and last
        # in the result below, so the rows themselves are never scaled.
        scaled = self._scaled_columns(block.directions)
        gram = GramInParts(
            scaled.astype(self.dtype),
            block.s,
            self._factors,
            self.scale,
            block.seen.astype(self.dtype),
            _downdate(self.nuisance, self.dtype),
            means=self.means,
            offsets=self.means @ scaled,
        )
        totals = multiply(self.contexts, self.passes, gram)
        self._memory.results = learned(self.known, block, totals)
        return self._scaled_columns(totals.product)

    def array_or_none(self) -> Array | None:
        """Return None: the entries are not in memory."""
        return None

    @blas_aside()
    def whole(self) -> Array:
        """Return all entries (k, p, p): one pass, in which rows are made dense a block at a time."""
        k, p = self.means.shape
        # float64 totals whatever the rows are: rounding errors of many blocks would add up.
        scatters = np.zeros((k, p, p))
        centred_sums = np.zeros((k, p))
        kernel = partial(kernels.centred_scatters, self.means.astype(self.dtype))
        run_pass(self.contexts, self.passes, "covariances", kernel, [scatters, centred_sums])
        S = scatters * self._factors[:, None, None]
        # sum (x - m)(x - m)^T exceeds the scatter by n d d^T, where d = centred_sums / n is the rounding error of m.
        # One context at a time, in place: all outer products together would be a second (k, p, p).
        for Si, sums, factor in zip(S, centred_sums, self._factors / self.contexts.n_samples, strict=True):
            Si -= np.outer(factor * sums, sums)
        if self.nuisance is not None:
            self.nuisance.remove_from(S, 1 / self._factors)
        return S if self.scale is None else S * np.outer(self.scale, self.scale)

    def congruences(self, A: Array) -> Iterator[Array]:
        """Yield ``A^T S_i A`` of all contexts: one pass. Cost O(nnz m), memory O(k m^2).

        If ``A = U C`` with an orthonormal U whose core ``T_i = U^T S_i U`` is known, they are ``C^T T_i C``: no pass.
        """
        known = self.known.congruences(A)
        yield from [self._core(A)] if known is None else known

    @blas_aside()
    def _core(self, A: Array) -> Array:
        m = A.shape[1]
        scatters = np.zeros((self.n_contexts, m, m))
        # On a device rows are in its own blocks, and what they add is summed there.
        by_row = self.passes.device is None and kernels.adds_by_row(self.contexts)
        kernel = kernels.score_rows if by_row else kernels.score_scatters
        self._run_with_traces("core", partial(kernel, self._scores(A)), [scatters])
        if self.nuisance is not None:
            scatters = scatters - self.nuisance.congruences(self._scaled_columns(A))
        core = scatters * self._factors[:, None, None]
        # In the precision of the rows, like the cores that passes for the basis find: the memory is k m^2 numbers.
        self._memory.results = self.known.with_core(A, core.astype(self.dtype))
        return core

    @blas_aside()
    def variances_along(self, A: Array) -> Array:
        """Return ``a_j^T S_i a_j`` (k, m): one pass. Cost O(nnz m)."""
        squares = np.zeros((self.n_contexts, A.shape[1]))
        run_pass(self.contexts, self.passes, "loadings", partial(kernels.score_squares, self._scores(A)), [squares])
        if self.nuisance is not None:
            # Rounding must not make a variance negative.
            squares = np.maximum(squares - self.nuisance.squares_along(self._scaled_columns(A)), 0)
        return squares * self._factors[:, None]

    @blas_aside()
    def combine(self, A: Array, weights: Array) -> Array:
        """Return ``sum_i S_i A W_i`` (p, m): one pass. Cost O(nnz m)."""
        # The total is summed over contexts, so the factor of each goes in before, with its W_i: (k, 1) or (k, 1, 1).
        factors = self._factors.reshape((-1,) + (1,) * (weights.ndim - 1))
        exact = factors * weights
        W = exact.astype(self.dtype)
        products = np.zeros(A.shape)
        sums = np.zeros((self.n_contexts, A.shape[1]))
        kernel = partial(kernels.combined_products, self._scores(A), W)
        self._run_with_traces("components", kernel, [products, sums])
        # sum_i (X_i - 1 m_i^T)^T Z_i W_i = sum_i X_i^T Z_i W_i - m_i (1^T Z_i W_i)
        product = products - self.means.T @ sums
        if self.nuisance is not None:
            product -= self.nuisance.combine(self._scaled_columns(A), exact)
        return self._scaled_columns(product)

    @blas_aside()
    def variances(self) -> Array:
        """Return the variances of features in every context (k, p): one pass, the first time."""
        if self.known.variances is None:
            squares = np.zeros((self.n_contexts, self.n_features))
            run_pass(self.contexts, self.passes, "variances", partial(kernels.feature_squares, self.means), [squares])
            # The sums over sparse rows are of (x - m)^2 - m^2, which is 0 for entries that are not stored.
            left_out = np.where(self.contexts.sparse, self.contexts.n_samples, 0)[:, None] * self.means**2
            scatters = squares + left_out
            if self.nuisance is not None:
                scatters = np.maximum(scatters - self.nuisance.squares(), 0)
            variances = scatters * self._factors[:, None]
            variances = variances if self.scale is None else variances * self.scale**2
            self._memory.results = self.known.with_variances(variances)
        assert self.known.variances is not None
        return self.known.variances

    @blas_aside()
    def traces(self) -> Array:
        """Return ``tr S_i`` (k,): one pass, unless another one has found it on the way."""
        if not self._know_traces():
            self._run_with_traces("traces", kernels.nothing, [])
        assert self.known.traces is not None
        return self.known.traces

    def _know_traces(self) -> bool:
        """Whether the traces are known, or follow from what the first pass has found; then they are known now."""
        if self.known.traces is None and self.contexts.sparse.all() and self._tells_traces:
            # Squares of sparse rows are summed without centring in any case.
            self._memory.results = self.known.with_traces(self._rough_traces())
        return self.known.traces is not None

    @property
    def _tells_traces(self) -> bool:
        """Whether the first pass has found what traces follow from; with scaled features, lengths are others."""
        return self.squares is not None and self.scale is None

    def _rough_traces(self) -> Array:
        """Return ``tr S_i`` (k,), without a pass where the first one tells them: less exact where means are large."""
        if self.known.traces is not None or not self._tells_traces:
            return self.traces()
        assert self.squares is not None
        return self._traces_of(self.squares, self.contexts.n_samples)

    def _traces_of(self, squares: Array, uncentred: Array) -> Array:
        """Return ``tr S_i`` (k,) from sums of squared lengths; those of ``uncentred`` (k,) rows are about 0."""
        weights = np.ones(self.n_features) if self.scale is None else self.scale**2
        # One reading of the means: a copy of them is a third of a gigabyte with thousands of contexts.
        about_zero = uncentred * np.einsum("kp,kp,p->k", self.means, self.means, weights)
        if self.nuisance is not None:
            about_zero = about_zero + self.nuisance.squares() @ weights
        return np.asarray(np.maximum(squares - about_zero, 0) * self._factors)

    def _run_with_traces(self, stage: str, kernel: Kernel, totals: list[Array]) -> None:
        """Run a pass that also finds the traces, if they are not known.

        Their O(nnz) is little beside the O(nnz m) of scores on m directions; a pass of their own would not be.
        """
        if self._know_traces():
            run_pass(self.contexts, self.passes, stage, kernel, totals)
            return
        lengths = kernels.SquareLengths(self.means, None if self.scale is None else self.scale**2)
        squares = np.zeros((self.n_contexts, 1))
        both = partial(kernels.with_row_squares, kernel, lengths, len(totals))
        run_pass(self.contexts, self.passes, stage, both, [*totals, squares])
        uncentred = np.where(self.contexts.sparse, self.contexts.n_samples, 0)
        self._memory.results = self.known.with_traces(self._traces_of(squares[:, 0], uncentred))

    def squared_norms(self) -> Array:
        """Return estimates of ``||S_i||_F^2`` (k,) from the passes for the basis; see ``norm_errors``."""
        if self.known.squared_norms is None:
            # Norms come with any pass for the basis. If there was none, two columns carry the probes at little cost.
            self._gram_times(np.linalg.qr(self._first_block(2))[0])
        assert self.known.squared_norms is not None
        return self.known.squared_norms

    def norm_errors(self) -> Array:
        """Return the standard errors of ``squared_norms`` (k,)."""
        self.squared_norms()
        assert self.known.norm_errors is not None
        return self.known.norm_errors

    def pooled(self, weights: Array) -> Array:
        """Return ``sum_i weights_i S_i`` (p, p): one pass, for few features."""
        p = self.n_features
        # With A = I, m is p and the scores are the centred rows: O(nnz p), and dense.
        return self.combine(np.eye(p), np.broadcast_to(weights[:, None], (len(weights), p)))

    def scaled(self, scale: Array) -> StreamedCovariances:
        """Return the covariances of features multiplied by ``scale`` (p,); of earlier results only traces are kept."""
        together = scale if self.scale is None else self.scale * scale
        # Norms, core and products are of other covariances now, and diagonals tell the new traces. Means and sketch are
        # kept, since they are of the rows as they are, and so are ``passes``: all passes of a fit count.
        variances = self.known.variances
        results = PassResults() if variances is None else PassResults().with_traces(variances @ scale**2)
        return replace(self, scale=together, _memory=PassMemory(results))

    def weighted(self, weights: Array) -> Covariances:
        """Return the covariances times ``weights`` (k,); of earlier results only traces are kept."""
        traces = self.known.traces
        results = PassResults() if traces is None else PassResults().with_traces(traces * weights)
        return replace(self, weights=self.weights * weights, _memory=PassMemory(results))

    @property
    def _factors(self) -> Array:
        return _scatter_factors(self.contexts, self.weights, self.nuisance)

    def _scaled_columns(self, A: Array) -> Array:
        """Return ``D A`` with D = diag(scale): ``(X D) A = X (D A)``, so that rows need not be scaled."""
        return A if self.scale is None else self.scale[:, None] * A

    def _scores(self, A: Array) -> kernels.CentredScores:
        # Offsets from directions and means in float64, rounded once at the end.
        A = self._scaled_columns(A)
        return kernels.CentredScores(A.astype(self.dtype), (self.means @ A).astype(self.dtype))


def context_means(contexts: Contexts, passes: Passes | None = None) -> Array:
    """Return the means of contexts (k, p) in float64: one pass. A single row per context is enough."""
    # In float64 whatever the rows are: a rounded mean would shift all scores of its context.
    sums = np.zeros((len(contexts.names), contexts.n_features))
    kernel = partial(kernels.row_sums, kernels.adds_by_entry(contexts))
    run_pass(contexts, passes or Passes.silent(), "means", kernel, [sums])
    return np.asarray(sums / contexts.n_samples[:, None])


def _random_guess(contexts: Contexts, width: int) -> _FirstGuess:
    # Fixed seeds: they affect the number of passes, and no reported result.
    mixture = np.random.default_rng(3).standard_normal((len(contexts.names), width))
    return _FirstGuess(_random_directions(contexts, width), mixture)


def _random_directions(contexts: Contexts, width: int) -> Array:
    return np.random.default_rng(0).standard_normal((contexts.n_features, width))


def _scatter_factors(contexts: Contexts, weights: Array, nuisance: NuisanceFactors | None) -> Array:
    """Return ``w_i / (n_i - 1)`` (k,), or less what nuisance takes: the factors that turn scatters into covariances."""
    return np.asarray(weights / degrees_of_freedom(contexts, nuisance))  # the scatter of a single row is 0


def _nuisance(contexts: Contexts, passes: Passes) -> NuisanceFactors | None:
    """Return the factors of the nuisance, if rows have some; the pass counts."""
    if contexts.nuisance is None:
        return None
    passes.ledger.enter("nuisance")
    return nuisance_factors(contexts, passes.report)


def _downdate(nuisance: NuisanceFactors | None, dtype: Any) -> Downdate | None:
    return None if nuisance is None else Downdate(nuisance.F.astype(dtype, copy=False), nuisance.bounds)
