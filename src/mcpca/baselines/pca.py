"""PCA used on several contexts: of the combined data, or of each context with the axes combined afterwards.

* PCA-STACK: eigenvectors of ``sum_i n_i S_i``, the covariance of all rows, each centred by its context;
* PCA-C: eigenvectors v of every ``S_i`` in r clusters of lines, ``max sum |<v, c>|^2`` over assignments, then means;
* PCA-SVD: right singular vectors of the matrix whose rows are the eigenvectors of every ``S_i``.

All three recover the components of the model only if they are orthonormal, and the last two depend on the gaps between
eigenvalues within contexts (the paper's "Explanation of numerical advantages" in "Orthogonal MCPCA").
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.cluster import KMeans

from .._utils.arguments import check_integer
from .._utils.types import Array
from ._interface import MethodOutput, Problem, method

_EPS = float(np.finfo(float).eps)
_SAME_LINE = 1e-12  # squared sine below which two unit vectors are one line, up to rounding


@method(
    "pca_stack",
    title="PCA of the stacked data",
    citation="I. T. Jolliffe, Principal Component Analysis, Springer (2002)",
    assumptions="A orthonormal; total variances of components distinct.",
    cost="O(k p^2 + p^3)",
    contexts=(1, None),
    in_paper=True,
)
def pca_stack(problem: Problem, *, center: str = "context") -> MethodOutput:
    """PCA of all rows together.

    ``center="context"`` takes off each context's own mean, so the covariance of all rows is the mean of the contexts'
    weighted by their degrees of freedom (equal weights if only covariances are known). ``center="overall"`` takes
    off one mean, so that differences between the means of contexts count as variation; it needs rows. Cost
    O(k p^2 + p^3).
    """
    if center not in ("context", "overall"):
        raise ValueError(f"center={center!r} is unknown; choose 'context' or 'overall'.")
    S = np.tensordot(problem.weights, problem.S, axes=1)
    note = "Rows were centred by their context."
    if center == "overall":
        if problem.rows is None:
            raise ValueError(
                "center='overall' needs rows, and X is a stack of covariances, which do not know means of contexts; "
                "pass rows, or center='context'."
            )
        S = _overall(problem)
        note = "Rows were centred by one overall mean."
    A = np.linalg.eigh(S)[1][:, ::-1][:, : problem.r]
    return MethodOutput(A, notes=(note,))


def _overall(problem: Problem) -> Array:
    """Return the covariance of all rows about their overall mean, up to a factor."""
    rows = problem.rows
    assert rows is not None
    blocks = [rows.dense_block(i).astype(np.float64) for i in range(len(rows.names))]
    n = rows.n_samples
    # All rows count alike, so means of contexts are weighted by their number of rows.
    mean = n @ np.array([block.mean(axis=0) for block in blocks]) / n.sum()
    X = np.concatenate(blocks) - mean
    # Only axes are wanted, so the scale is free; this one keeps the squares of large numbers in range.
    X /= max(float(np.abs(X).max(initial=0)), np.finfo(float).tiny)
    return np.asarray(X.T @ X)


@method(
    "pca_c",
    title="PCA of each context, axes clustered",
    citation="the paper's PCA-C; clustering of lines: I. S. Dhillon and D. S. Modha, Mach. Learn. 42 (2001)",
    assumptions="A orthonormal; within every context the positive loadings are distinct, and well apart under noise.",
    cost="O(k p^3 + n_init sweeps k r^2 p)",
    contexts=(1, None),
    in_paper=True,
)
def pca_c(problem: Problem, *, n_init: int = 10, max_iter: int = 100, kmeans: str = "lines") -> MethodOutput:
    """Top r principal axes of each context, clustered into r groups up to sign; the groups' means.

    k-means of lines: a line belongs to the centre with the largest |cos|, and a centre is the mean of its lines after
    each has been given the sign of the centre; of ``n_init`` starts by k-means++ the tightest end is kept. Axes with no
    variance are left out. Cost O(k p^3) for the axes, O(k r^2 p) a sweep; memory O(k p^2 + k r p).

    ``kmeans="vectors"`` is ordinary k-means of the axes as vectors, the largest entry of each positive, which is what
    the authors' code does: an axis and its negative are then far apart, although they are one axis.
    """
    n_init = check_integer(n_init, "n_init", 1)
    max_iter = check_integer(max_iter, "max_iter", 1)
    if kmeans not in ("lines", "vectors"):
        raise ValueError(f"kmeans={kmeans!r} is unknown; choose 'lines', or 'vectors' for ordinary k-means.")
    lines = _context_axes(problem)
    if kmeans == "vectors":
        return _cluster_vectors(lines, problem, n_init, max_iter)
    best = _cluster_lines(lines, problem.r, problem.rng, max_iter)
    for _ in range(n_init - 1):
        other = _cluster_lines(lines, problem.r, problem.rng, max_iter)
        if other.tightness > best.tightness * (1 + 1e-12):  # the first of those that only rounding tells apart
            best = other
    spread = 1 - best.tightness / len(lines)
    notes = [f"{len(lines)} axes of contexts in {problem.r} clusters; mean squared sine to the centres {spread:.2g}."]
    if not best.settled:
        notes.append(f"Not settled in max_iter={max_iter} sweeps.")
    return MethodOutput(best.centres.T, best.settled, tuple(notes))


@method(
    "pca_svd",
    title="PCA of each context, then SVD of the axes",
    citation="the paper's PCA-SVD",
    assumptions="A orthonormal; within every context the positive loadings are distinct; every component is present in "
    "a different number of contexts, since that number is its squared singular value.",
    cost="O(k p^3)",
    contexts=(1, None),
    in_paper=True,
)
def pca_svd(problem: Problem) -> MethodOutput:
    """Top r right singular vectors of the stacked principal axes, r of each context. Cost O(k p^3), memory O(k p^2).

    Axes with no variance are left out.
    """
    lines = _context_axes(problem)
    # The axes are orthonormal, so all singular values are 1 and the SVD would return any rotation of them.
    if len(problem.S) == 1:
        return MethodOutput(lines.T, notes=("One context: the answer is PCA's.",))
    # Right singular vectors from the (p, p) Gram matrix, which is smaller than the k r lines if contexts are many.
    w, V = np.linalg.eigh(lines.T @ lines)
    # Equal singular values, also of the last axis taken and the first left out.
    ties = np.diff(w[-problem.r - 1 :]) if problem.r < len(w) else np.diff(w)
    note = f"SVD of {len(lines)} axes of contexts."
    if ties.size and ties.min() <= 1e-8 * w[-1]:
        note += " Some singular values are equal: within those the axes are arbitrary."
    return MethodOutput(V[:, ::-1][:, : problem.r], notes=(note,))


def _context_axes(problem: Problem) -> Array:
    """Return the top r eigenvectors of each context as rows, without those of eigenvalue zero."""
    w, V = np.linalg.eigh(problem.S)
    w = w[:, ::-1][:, : problem.r]
    V = V[:, :, ::-1][:, :, : problem.r]
    # Eigenvectors without variance are any basis of the null space, and would only add noise to the clusters.
    present = w > 10 * _EPS * problem.S.shape[1] * np.maximum(w[:, :1], np.finfo(float).tiny)
    return np.ascontiguousarray(V.transpose(0, 2, 1)[present])


def _cluster_vectors(lines: Array, problem: Problem, n_init: int, max_iter: int) -> MethodOutput:
    """Group axes (n, p) by ordinary k-means, min sum |v - c|^2, with the signs that PCA of scikit-learn gives them."""
    largest = np.abs(lines).argmax(axis=1)
    vectors = lines * np.sign(lines[np.arange(len(lines)), largest])[:, None]
    if len(vectors) < problem.r:
        raise ValueError(
            f"Contexts have {len(vectors)} axes with variance, fewer than r={problem.r} clusters; lower r, or take "
            "kmeans='lines'."
        )
    seed = int(problem.rng.integers(2**31))
    fit = KMeans(problem.r, n_init=n_init, max_iter=max_iter, random_state=seed).fit(vectors)
    settled = fit.n_iter_ < max_iter
    note = f"{len(vectors)} axes of contexts as vectors in {problem.r} clusters, squared distances {fit.inertia_:.2g}."
    return MethodOutput(fit.cluster_centers_.T, settled, (note,))


class _Clusters(NamedTuple):
    """The sum of squared cosines of lines to their centres, the centres (r, p), and whether the assignment settled."""

    tightness: float
    centres: Array
    settled: bool


def _cluster_lines(lines: Array, r: int, rng: np.random.Generator, max_iter: int) -> _Clusters:
    """Group lines (n, p) around r centres, from centres that are far apart."""
    centres = _spread_out(lines, r, rng)
    owner = np.full(len(lines), -1)
    for _ in range(max_iter):
        # lines (n, p), centres (r, p), cosines (n, r). A line has no sign: |cos| decides, and the sign is undone in the
        # mean.
        cosines = lines @ centres.T
        previous = owner
        owner = np.argmax(np.abs(cosines), axis=1)
        cosine = np.take_along_axis(cosines, owner[:, None], 1)[:, 0]  # of each line to its own centre
        if np.array_equal(owner, previous):
            return _Clusters(float((cosine**2).sum()), centres, True)
        member = np.zeros((r, len(lines)))
        member[owner, np.arange(len(lines))] = np.where(cosine < 0, -1.0, 1.0)
        means = member @ lines
        size = np.linalg.norm(means, axis=1)
        # A centre that lost all its lines moves to the line that is farthest from its own centre.
        empty = np.flatnonzero(size < 1e-12)
        means[empty] = lines[np.argsort(cosine**2, kind="stable")[: len(empty)]]
        centres = means / np.where(size < 1e-12, 1, size)[:, None]
    return _Clusters(float((cosine**2).sum()), centres, False)


def _spread_out(lines: Array, r: int, rng: np.random.Generator) -> Array:
    """Choose r of the lines far from one another: greedy k-means++.

    Each is the best of a few drawn with chance in proportion to their squared sine to those chosen before, best being
    the one that lowers the sum of squared sines most.
    """
    # As many as in scikit-learn's k-means++.
    trials = 2 + int(np.log(r))
    chosen = [int(rng.integers(len(lines)))]
    far = _squared_sines(lines, lines[chosen])[:, 0]
    while len(chosen) < r:
        # Rounding leaves a line at 1e-16 from itself; it must not be drawn again while others are left.
        chance = np.where(far > _SAME_LINE, far, 0)
        if chance.sum() == 0:
            chance = np.ones(len(lines))
            chance[chosen] = 0
        drawn = rng.choice(len(lines), trials, p=chance / chance.sum())
        left = np.minimum(far[:, None], _squared_sines(lines, lines[drawn]))
        best = int(np.argmin(left.sum(axis=0)))
        chosen.append(int(drawn[best]))
        far = left[:, best]
    return lines[chosen]


def _squared_sines(lines: Array, centres: Array) -> Array:
    """Return squared sines (n, m) between unit rows."""
    return np.asarray(np.maximum(1 - (lines @ centres.T) ** 2, 0))
