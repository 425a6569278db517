"""What inference needs of the rows themselves: r noisy scores and the squared length outside the MCPCs, of every row.

With features scaled so that noise is isotropic (``GaussianModel.white``), a row x of a context with mean m has the
scores ``z = W (x - m)``, W the pseudoinverse of A, and outside the span of A the squared length

    e = |x - m|^2 - z^T A^T A z.

The Gaussian log-density of a row depends on these r + 1 numbers only (``_solvers.likelihood``), and so do the scores of
all parameters but the direction in which A leaves its span. Rows are read once, in pieces, and sparse ones stay sparse:
``|x - m|^2 = |x|^2 - 2 x . m + |m|^2``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from .._covariances.nuisance import NuisanceFactors, nuisance_factors
from .._covariances.nuisance_bases import context_bases
from .._covariances.row_groups import all_rows
from .._covariances.streamed import context_means
from .._data.blocks import times_power
from .._data.context_sums import rows_of_contexts
from .._data.contexts import Contexts
from .._data.low_rank_rows import LowRankRows
from .._model.fitted_model import FittedModel
from .._model.gaussian import GaussianModel
from .._model.new_rows import read_fitted_contexts
from .._utils.array_api import to_host
from .._utils.types import Array, Report
from .._utils.wording import listed
from .sampling import GroupDesign, checked_groups


class RowScores(NamedTuple):
    """Rows of one context: their noisy scores z (n, r), and their squared lengths e outside the span of A (n,).

    A row moves the covariance of its context by ``gain x x^T + offset Sigma``: x x^T less Sigma, unless rows were
    weighted (``weighted_rows``): scores are then those of the rows times ``roots``.
    """

    scores: Array
    outside: Array
    gain: float = 1.0
    offsets: Array | float = -1.0
    roots: Array | float = 1.0


def check_labelled(X: Any, y: Any, **annotations: Any) -> None:
    """Raise for labels without rows, also for ``groups``, ``batch`` and ``covariates``."""
    if X is None and y is not None:
        raise ValueError("y labels the rows of X, and no X is given; pass both or neither.")
    for name, value in annotations.items():
        if X is None and value is not None:
            raise ValueError(f"{name} is about the rows of X, and no X is given; pass both or neither.")


def read_rows_of_fit(
    model: FittedModel, X: Any, y: Any, *, groups: Any, batch: Any, covariates: Any, what: str
) -> Contexts:
    """Return the rows of a fit for ``what``, with groups if these make a difference: two at least in every context."""
    contexts = checked_groups(read_fitted_contexts(model, X, y, groups=groups, batch=batch, covariates=covariates))
    if contexts.groups is not None:
        design = GroupDesign.of(contexts)
        design.check_several(what, "Drop these contexts, or drop groups.")
        design.warn_of_few(model.n_components)
    return contexts


@dataclass(frozen=True)
class RowReader:
    """Rows of a fit, read in the order of each context's rows.

    ``gaussian`` is that of the rows times ``2^-e``, and ``means`` (k, p) and the factors of the nuisance, which is
    taken out of the rows, are theirs.
    """

    contexts: Contexts
    gaussian: GaussianModel
    means: Array
    e: int
    nuisance: NuisanceFactors | None = None

    @cached_property
    def scale(self) -> Array:
        """Factors of the features (p,) by which noise becomes isotropic."""
        gaussian = self.gaussian
        return np.ones(len(gaussian.white)) if gaussian.scale is None else gaussian.scale

    @property
    def degrees_taken(self) -> Array | int:
        """Degrees of freedom of each context that nuisance takes."""
        return 0 if self.nuisance is None else self.nuisance.ranks

    @cached_property
    def _columns(self) -> list[Any]:
        assert self.contexts.nuisance is not None
        return [basis.columns() for basis in context_bases(self.contexts.nuisance)]

    def explained(self, i: int, part: slice) -> tuple[Any, Array] | None:
        """Return C (n', m) and F (m, p) with ``C F`` what nuisance explains of some rows of context i; None if none."""
        return None if self.nuisance is None else (self._columns[i][part], self.nuisance.of(i))

    def pieces(self) -> Iterator[tuple[int, int, Any]]:
        """Yield some rows of a context, with its index and the position of the first among its rows."""
        return row_pieces(self.contexts, self.e)

    def squares_outside(self, rows: Sequence[RowScores], factors: Sequence[Array]) -> Array:
        """Return ``sum_g M_g^T M_g`` (r, r) with ``M_g = sum x_out t^T`` over the rows of group g, in all contexts.

        ``x_out`` is what a row has outside the span of A, and t its ``factors`` (n_i, r). One pass; memory O(g p r).
        """
        groups = self.contexts.groups
        assert groups is not None
        white = self.gaussian.white
        sums = np.zeros((len(groups.names), *white.shape))
        for i, start, block in self.pieces():
            part = slice(start, start + block.shape[0])
            t = factors[i][part]
            roots = np.broadcast_to(rows[i].roots, len(factors[i]))[part]
            z = rows[i].scores[part] / roots[:, None]
            codes = groups.codes[i][part]
            explained = self.explained(i, part)
            order = np.argsort(codes, kind="stable")
            present, starts = np.unique(codes[order], return_index=True)
            for g, members in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
                tg = t[members]
                # D (X - m)^T t - A z^T t, sparse rows staying sparse.
                across = block[members].T @ tg - np.outer(self.means[i], tg.sum(axis=0))
                if explained is not None:
                    across -= explained[1].T @ (explained[0][members].T @ tg)
                sums[g] += self.scale[:, None] * across - white @ (z[members].T @ tg)
        return np.asarray(np.einsum("gpa,gpb->ab", sums, sums))


def row_pieces(contexts: Contexts, e: int) -> Iterator[tuple[int, int, Any]]:
    """Yield some rows of a context times ``2^-e``, with its index and the position of the first among its rows."""
    seen = np.zeros(len(contexts.names), dtype=np.int64)
    for group in all_rows(contexts):
        for piece in group.pieces():
            block, codes = piece.load()
            block = times_power(block, -e) if e else block
            for i, members in zip(*rows_of_contexts(codes, 0, len(seen)), strict=True):
                part = block[members]
                yield i, int(seen[i]), part
                seen[i] += part.shape[0]


def reader_of(model: FittedModel, gaussian: GaussianModel, contexts: Contexts, e: int) -> RowReader:
    """Return a reader of the rows that ``model`` was fitted on; ``gaussian`` is that of the rows times ``2^-e``.

    One pass if the model was fitted to covariances and knows no means, and one if rows have nuisance.
    """
    if contexts.engine is not None:
        raise ValueError(
            "X is a Dask collection, and the spread of its rows is measured in this process. Pass X.compute() if that "
            "fits into memory, or leave X out for an answer that takes rows to be Gaussian."
        )
    check_counts(model, contexts)
    means = context_means(contexts) if model.means is None else to_host(model.means).astype(np.float64)
    nuisance = nuisance_factors(contexts)
    return RowReader(contexts, gaussian, np.ldexp(means, -e), e, None if nuisance is None else nuisance.times_power(-e))


def read_rows(reader: RowReader, report: Report) -> list[RowScores]:
    """Return the scores of the rows, context by context. One pass; memory O(n r) and a piece of rows."""
    contexts = reader.contexts
    white = reader.gaussian.white
    scale = reader.scale
    # (p, r): takes features as they are, not scaled, to scores.
    directions = scale[:, None] * np.linalg.pinv(white).T
    G = white.T @ white
    n_rows = int(contexts.n_samples.sum())
    parts: list[list[tuple[Array, Array]]] = [[] for _ in contexts.names]
    done = 0
    for i, start, block in reader.pieces():
        explained = reader.explained(i, slice(start, start + block.shape[0]))
        parts[i].append(scores_of(block, reader.means[i], directions, scale, explained))
        done += block.shape[0]
        report("rows", done, n_rows)
    rows = []
    for i, pieces in enumerate(parts):
        Z = np.concatenate([scores for scores, _ in pieces])
        lengths = np.concatenate([squares for _, squares in pieces])
        if not np.isfinite(lengths).all():
            # In double precision, and with the scale of the model, only values that are not finite lead here.
            contexts.check_finite(i)
        inside = np.einsum("na,na->n", Z @ G, Z)
        # Rounding may leave it below 0. If r = p there is no outside, and rounding is all that is left.
        rest = np.maximum(lengths - inside, 0) if len(white) > len(G) else np.zeros(len(Z))
        rows.append(RowScores(Z, rest))
    return rows


def scores_of(
    block: Any, mean: Array, directions: Array, scale: Array, explained: tuple[Any, Array] | None
) -> tuple[Array, Array]:
    """Return ``(x - m) V`` and ``|D (x - m)|^2`` of some rows of one context, V the directions and D the scale.

    What nuisance explains of the rows, ``C F``, is taken off them; sparse rows stay sparse.
    """
    weights = scale**2
    if not isinstance(block, np.ndarray):
        values = block.astype(np.float64)
        scores = values @ directions - mean @ directions
        across = values @ (weights * mean)
        taken: Any = 0.0
        if explained is not None:
            C, F = explained
            scores = scores - C @ (F @ directions)
            # -2 (x - m) . c F + |c F|^2, with the scale in both products.
            with_F = values @ (weights[:, None] * F.T) - (weights * mean) @ F.T
            c = C.toarray()
            taken = np.einsum("nm,nm->n", c, c @ ((F * weights) @ F.T) - 2 * with_F)
        if isinstance(values, LowRankRows):
            squares = values.row_squares(weights)
        else:
            values.data = values.data**2
            squares = values @ weights
        return np.asarray(scores), np.asarray(squares - 2 * across + weights @ mean**2 + taken)
    centred = block - mean  # float64, as the mean is
    if explained is not None:
        centred = centred - explained[0] @ explained[1]
    return centred @ directions, centred**2 @ weights


def check_counts(model: FittedModel, contexts: Contexts) -> None:
    """Raise if contexts have other numbers of rows than in the fit: these are then other rows."""
    if model.n_samples is None:
        return
    fitted = np.asarray(model.n_samples)
    differ = np.flatnonzero(fitted != contexts.n_samples)
    if len(differ):
        names = contexts.names.tolist()
        changed = [f"{names[i]!r} ({contexts.n_samples[i]:,} and {fitted[i]:,})" for i in differ]
        raise ValueError(
            "X must be the rows that the model was fitted on, but contexts have other numbers of rows here than in the "
            f"fit: {listed(changed)}."
        )
