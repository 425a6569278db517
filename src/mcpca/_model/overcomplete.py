"""More components than features: ``S_i = A diag(b_i) A^T`` with r > p, from many contexts.

The power method of ``_solvers.mspm`` flattens the covariances to p x (p k), which has rank p at most, so it ends at
r = p. The flattening to contexts x p^2,

    [vec(S_1) ... vec(S_k)]^T = B [vec(a_1 a_1^T) ... vec(a_r a_r^T)]^T,

has rank r as long as k >= r and ``r <= p (p + 1) / 2``, if neither the loadings nor the matrices ``a_j a_j^T`` are
linearly dependent. Its row space L is then the span of the ``a_j a_j^T``, and for almost all A with
``r <= p (p - 1) / 2`` these are the only matrices of rank one in it (the trisecant lemma: L has dimension r, and
symmetric matrices of rank one have codimension ``p (p - 1) / 2``). So components are the maxima, with value 1, of

    F(a) = ||P_L(a a^T)||_F^2 = sum_l (a^T Q_l a)^2   over unit a,   Q_1 .. Q_r an orthonormal basis of L,

which is the objective of the subspace power method (J. Kileel and J. M. Pereira, Subspace power method for symmetric
tensor decomposition) with L from covariances in place of a symmetric tensor. With ``G = sum_l (a^T Q_l a) Q_l`` the
gradient is ``4 G a``. Symmetric matrices with ``<U, W> >= 0`` and norm 1 have ``<P U, W> >= -1/2`` for any projection
P, so ``F(a) + |a|^4 / 2`` is convex, and the shifted power step ``a <- unit(G a + a / 2)`` never lowers F.

Components are not orthogonal and not even independent: A has more columns than rows. Loadings are still unique, since
they need independent ``a_j a_j^T`` only. Scores are not: ``x = A z`` has many solutions z.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .._covariances.scaling import stack_in_range
from .._covariances.stack import CovarianceStack, variances_along
from .._covariances.validation import check_covariances
from .._linalg.canonical import canonical_order
from .._solvers.climbing import unit
from .._solvers.loadings import solve_loadings
from .._solvers.lsq import descend, full_gradient
from .._utils.arguments import as_generator, check_integer, check_real, one_random_state
from .._utils.printing import Shown, counted
from .._utils.progress import reporting
from .._utils.stages import uneven
from .._utils.types import Array, Report
from .._utils.user_warnings import warn
from ..exceptions import RankExceedsDataError

_STAGE = uneven("components")  # most are found together
_STARTS = 20  # for each component: several reach every maximum, and the rarest of 30 was still reached by four
_SHIFT = 0.5  # of the power step; the docstring shows that this much keeps F from falling
_POWER_STEPS = 60
_NEWTON_STEPS = 30
_SETTLED = 1e-9  # length of a step on the sphere
_SAME = 1e-3  # 1 - |cos| below which two ends are one maximum
_BATCH_NUMBERS = 2**21  # in the largest temporary of a batch of starts: 16 MB


@dataclass(frozen=True, repr=False)
class OvercompleteDecomposition(Shown):
    """``S_i ~ components @ diag(loadings[i]) @ components.T`` with any number of components, more than features too.

    Attributes
    ----------
    components : ndarray (p, r)
        A: unit columns in decreasing order of total variance, the largest entry of each positive.
    loadings : ndarray (k, r)
        B >= 0.
    closeness : ndarray (r,)
        ``F(a_j)``, the squared cosine between ``a_j a_j^T`` and the space that the covariances span: 1 in the model,
        and the lower the less the data say that this component is one.
    singular_values : ndarray
        Of the flattening, contexts x p^2: the scree for r.
    error : float
        ``sum_i ||S_i - A B_i A^T||^2 / sum_i ||S_i||^2``.
    gradient : float
        Norm of the projected gradient of that error, relative to ``sum_i ||S_i||^2``.
    n_found : int
        Components that came out as maxima of F. The others were sought beside those, and are less certain.
    converged : bool
        Whether the gradient is at most ``tol``.
    """

    components: Array
    loadings: Array
    closeness: Array
    singular_values: Array
    error: float
    gradient: float
    n_found: int
    converged: bool

    def _words(self) -> list[str]:
        p, r = self.components.shape
        words = [
            f"{counted(r, 'component')} of {counted(len(self.loadings), 'context')} and {counted(p, 'feature')}, "
            f"{'converged' if self.converged else 'not converged'}; relative squared error {self.error:.2g}."
        ]
        if self.n_found < r:
            words.append(f"{self.n_found} of {r} came out as maxima of their own; the others are less certain.")
        return words

    def _rows(self) -> dict[str, Any]:
        total = self.loadings.sum(axis=0)
        return {
            "component": range(1, len(total) + 1),
            "share of the variance": total / (total.sum() or 1),
            "largest loading": self.loadings.max(axis=0),
            "closeness": self.closeness,
        }


def overcomplete(
    S: Any,
    r: int,
    *,
    random_state: Any = None,
    rng: Any = None,
    tol: float = 1e-7,
    max_iter: int = 200,
    verbose: Any = None,
) -> OvercompleteDecomposition:
    """Decompose the covariances of k contexts into r components, where r may exceed the number of features.

    For ``r <= p`` use ``MCPCA`` or ``decompose``, which need two contexts and not r, and have scores, standard errors
    and all else. This is for r > p: sources that outnumber sensors, in many contexts.

    Parameters
    ----------
    S : array-like (k, p, p)
        Covariances: symmetric and positive semi-definite, of at least r contexts.
    r : int
        Number of components, at most k and ``p (p - 1) / 2``. Beyond the second number covariances do not determine
        components; close to it they hardly do. ``singular_values`` is the scree.
    random_state, rng : int, Generator, SeedSequence, BitGenerator or None
        Decides the starts. If the model holds the answer does not depend on it.
    tol, max_iter : float, int
        Of the least squares: converged when the projected gradient is at most ``tol`` times ``sum_i ||S_i||^2``; at
        most ``max_iter`` Newton steps.
    verbose : None, bool or callable
        Progress, as in ``MCPCA``.

    Returns
    -------
    OvercompleteDecomposition

    Notes
    -----
    The row space of the flattening to contexts x p^2 has the ``a_j a_j^T`` as its only matrices of rank one. They are
    found as maxima of ``F(a) = ||P(a a^T)||^2`` from ``20 r`` random starts, and then moved to a stationary point of
    ``sum_i ||S_i - A diag(b_i) A^T||^2`` with B >= 0.

    There is no ``transform``: ``x = A z`` has many solutions z for one row x. In a context the best linear prediction
    of z is ``diag(b_i) A^T S_i^-1 x``, and predictions of different components are correlated.

    Cost O(k p^2 min(k, p^2)) for the space, O(r^2 p^2) a step for all starts, O(r p^3) a Newton step, O(k p^2 r) for
    each step of the least squares; memory O(k p^2 + r p^2).

    Examples
    --------
    >>> import numpy as np
    >>> from mcpca import ascore, overcomplete
    >>> rng = np.random.default_rng(0)
    >>> A = rng.standard_normal((10, 14))
    >>> A /= np.linalg.norm(A, axis=0)
    >>> B = rng.exponential(size=(60, 14))
    >>> found = overcomplete((A * B[:, None, :]) @ A.T, 14, random_state=0)
    >>> bool(1 - ascore(found.components, A) < 1e-9)
    True
    """
    S = check_covariances(S)
    k, p, _ = S.shape
    most = min(k, max(1, p * (p - 1) // 2))  # one component is determined whatever p is
    r = check_integer(
        r,
        "r",
        1,
        most,
        f"k={k} covariances determine at most k components and, of p={p} features, at most p (p - 1) / 2; pass more "
        f"contexts, or r <= {most}.",
    )
    tol = check_real(tol, "tol", 1e-15, 1e-2, "It is a share of the squared norm of the data.")
    max_iter = check_integer(max_iter, "max_iter", 1)
    rng = as_generator(one_random_state(rng, random_state))
    eps = float(np.finfo(S.dtype).eps)  # of the data, which may be float32
    scaled, e = stack_in_range(S)
    T = scaled.astype(np.float64)
    # Symmetric up to rounding only.
    T = (T + T.transpose(0, 2, 1)) / 2
    with reporting(verbose, "overcomplete") as report:
        Q, singular_values = _row_space(T, r, eps)
        A, n_found = _components(Q, r, rng, report)
        report("least squares", 0, 1)
        norm = float((T**2).sum())
        A, _ = descend(T, A, 0.5 * tol * norm, max_iter)
        gradient = float(np.linalg.norm(full_gradient(CovarianceStack(T), A))) / norm
        report("least squares", 1, 1)
    G, h = (A.T @ A) ** 2, variances_along(T, A)
    B = solve_loadings(G, h)
    A, B, _ = canonical_order(A, B)
    result = OvercompleteDecomposition(
        components=A.astype(S.dtype, copy=False),
        loadings=np.ldexp(B, 2 * e).astype(S.dtype, copy=False),
        closeness=_climbed(Q, A.T).F,
        singular_values=np.ldexp(singular_values, 2 * e),
        error=float(((T - (A * B[:, None, :]) @ A.T) ** 2).sum()) / norm,
        gradient=gradient,
        n_found=n_found,
        converged=gradient <= tol,
    )
    if not result.converged:
        warn(
            f"The projected gradient is {gradient:.1e} of the squared norm of the data, above tol={tol:g}; raise "
            f"max_iter={max_iter}, or lower r={r}.",
            ConvergenceWarning,
        )
    return result


def _row_space(T: Array, r: int, eps: float) -> tuple[Array, Array]:
    """Return an orthonormal basis (r, p, p) of the covariances' span, symmetric, and all singular values."""
    k, p, _ = T.shape
    upper = np.triu_indices(p)
    # Entries off the diagonal stand for two: with sqrt(2) the inner product is that of the whole matrices.
    weight = np.where(upper[0] == upper[1], 1, np.sqrt(2))
    _, s, Vt = np.linalg.svd(T[:, upper[0], upper[1]] * weight, full_matrices=False)
    rank = int((s > 10 * eps * max(k, p) * s[0]).sum())
    if rank == 0:
        raise RankExceedsDataError(
            "The covariances are all zero: no feature varies in any context, so there is nothing to decompose."
        )
    if r > rank:
        raise RankExceedsDataError(
            f"r={r} exceeds the number of linearly independent covariances, {rank}: the flattening to contexts x p^2 "
            f"has that rank. Choose r <= {rank}, or pass contexts that differ more."
        )
    Q = np.zeros((r, p, p))
    Q[:, upper[0], upper[1]] = Q[:, upper[1], upper[0]] = Vt[:r] / weight
    return Q, s


class _Climbed(NamedTuple):
    """Unit vectors a (m, p), ``Q_l a`` as (m, r, p), ``a^T Q_l a`` (m, r) and F (m,)."""

    a: Array
    images: Array
    c: Array
    F: Array


def _climbed(Q: Array, a: Array) -> _Climbed:
    r, p, _ = Q.shape
    # Each Q_l is symmetric, so all products of all starts are one.
    images = (a @ Q.reshape(r * p, p).T).reshape(len(a), r, p)
    c = np.matmul(images, a[:, :, None])[:, :, 0]
    return _Climbed(a, images, c, (c**2).sum(axis=1))


def _climb(Q: Array, a: Array) -> tuple[Array, Array, Array]:
    """Take starts (m, p) to maxima of F; return them, F, and which of them have settled."""
    size = max(1, _BATCH_NUMBERS // (Q.shape[0] * Q.shape[1] + Q.shape[1] ** 2))
    parts = [_climb_batch(Q, a[i : i + size]) for i in range(0, len(a), size)]
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))  # type: ignore[return-value]


def _climb_batch(Q: Array, a: Array) -> tuple[Array, Array, Array]:
    here = _climbed(Q, a)
    for _ in range(_POWER_STEPS):
        here = _climbed(Q, _power_step(here))
    step = np.full(len(a), np.inf)
    p = a.shape[1]
    for _ in range(_NEWTON_STEPS):
        # With N = sum_l (Q_l a)(Q_l a)^T the Hessian of F / 4 on the sphere is that of G + 2 N - F I, on what is
        # orthogonal to a. The term a a^T makes the system regular and leaves that part alone.
        x, images, c, F = here
        G = np.tensordot(c, Q, axes=1)
        hessian = G + 2 * np.matmul(images.transpose(0, 2, 1), images)
        tangent = np.eye(p) - x[:, :, None] * x[:, None, :]
        system = F[:, None, None] * np.eye(p) - tangent @ hessian @ tangent
        gradient = np.matmul(c[:, None, :], images)[:, 0] - F[:, None] * x
        d = np.linalg.solve(system + 1e-12 * np.eye(p), gradient[:, :, None])[:, :, 0]
        there = _climbed(Q, unit(x + d))
        # Away from a maximum Newton's step may go down or to a saddle: there the power step is taken.
        worse = ~(there.F >= F * (1 - 1e-13)) | (np.linalg.norm(d, axis=1) > 0.5)
        if worse.any():
            there = _climbed(Q, np.where(worse[:, None], _power_step(here), there.a))
        step = np.linalg.norm(there.a - x, axis=1)
        here = there
        if step.max() <= _SETTLED:
            break
    return here.a, here.F, step <= _SETTLED


def _power_step(here: _Climbed) -> Array:
    """Return ``unit(G a + a / 2)``, which has F no lower."""
    return unit(np.matmul(here.c[:, None, :], here.images)[:, 0] + _SHIFT * here.a)


def _components(Q: Array, r: int, rng: np.random.Generator, report: Report) -> tuple[Array, int]:
    """Return r components (p, r) and how many of them are maxima of F.

    Where the starts have found fewer than r, others begin at maxima of F on the space less the matrices found so far.
    What even these do not lead to is taken from there, one at a time, for least squares to improve.
    """
    p = Q.shape[1]
    report(_STAGE, 0, r)
    found = _distinct(np.zeros((0, p)), *_climb(Q, unit(rng.standard_normal((_STARTS * r, p)))))
    if len(found) < r:
        beside = _climb(_less(Q, found), unit(rng.standard_normal((_STARTS * r, p))))[0]
        found = _distinct(found, *_climb(Q, beside))
    n_found = min(len(found), r)
    found = found[:r]
    while len(found) < r:
        report(_STAGE, len(found), r)
        a, F, _ = _climb(_less(Q, found), unit(rng.standard_normal((_STARTS * r, p))))
        found = np.vstack([found, a[np.argmax(F)]])
    report(_STAGE, r, r)
    return found.T, n_found


def _distinct(known: Array, a: Array, F: Array, settled: Array) -> Array:
    """Return ``known`` and, by decreasing F, the settled rows of a that differ from all others taken."""
    taken = list(known)
    for j in np.argsort(-F, kind="stable"):
        if settled[j] and all(abs(float(a[j] @ other)) < 1 - _SAME for other in taken):
            taken.append(a[j])
    return np.array(taken).reshape(-1, a.shape[1])


def _less(Q: Array, found: Array) -> Array:
    """Return a basis of the part of the space that is orthogonal to the projections of the ``a a^T`` found."""
    # Coordinates of P_L(a a^T) in the basis Q (r, m); what is orthogonal to them among all r.
    coordinates = _climbed(Q, found).c.T
    keep = np.linalg.qr(coordinates, mode="complete")[0][:, len(found) :]
    return np.ascontiguousarray(np.tensordot(keep.T, Q, axes=1))
