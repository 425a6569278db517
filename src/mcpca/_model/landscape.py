"""The objective of the power method around each MCPC: its value, its slope, its curvature, and what these certify.

The paper's section "Error analysis" is about

    F(a, b) = ||P (a b^T)||^2 = sum_l (a^T V_l b)^2,   unit a and b,

P being the projector on the span of the top r right singular vectors V_1 .. V_r of ``[S_1 ... S_k]``, seen as p x k
matrices. F is a squared cosine, at most 1, and 1 where ``a b^T`` is in that span, as it is at each MCPC of covariances
that are exactly ``A diag(b_i) A^T``. Its Lemma SI-5.3 has gradient and Hessian on the product of the two spheres. With
``c = V(a, b, .)`` (so ``F = |c|^2``), ``X = sum_l c_l V_l``, ``Z_a = V(., b, .)`` and ``Z_b = V(a, ., .)``:

    grad = 2 (X b - F a, X^T a - F b)
    Hess = 2 Pi ([ Z_a Z_a^T,        Z_a Z_b^T + X ] - F I) Pi,    Pi = diag(I - a a^T, I - b b^T).
                 [ Z_b Z_a^T + X^T,  Z_b Z_b^T     ]

An MCPC is taken with the b that is best for it, the leading right singular vector of ``V(a, ., .)``: solvers differ in
their loadings, and F knows nothing of ``b >= 0``.

**The certificate.** Along a geodesic of unit speed, ``x(t) = a(t) b(t)^T`` has ``|x'| = 1``, ``|x''| <= sqrt(2)`` and
``|x'''| <= 2``; x is orthogonal to x' and x''', and x' to x''. A projector has ``|u^T P v| <= 1/2`` for orthonormal u
and v, so ``|f'''| = |2 x^T P x''' + 6 x'^T P x''| <= L = 2 + 3 sqrt(2)``. With slope g and largest eigenvalue
lambda < 0 no direction rises above ``F + g R + lambda R^2 / 2 + L R^3 / 6`` at distance R. Where that is below F for
some R, which it is if ``g < 3 lambda^2 / (8 L)``, F is lower all around than in the middle: a local maximum lies within
R.

Where an MCPC is further off, as those are that all contexts share best, or that deflation has brought out, climbing
from it (``climbing``) says which maximum it belongs to. The end of a climb counts as one if it is certified in turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .._covariances.array_memory import context_chunks
from .._covariances.stack import congruence, images
from .._covariances.subspace import Core
from .._solvers.climbing import Layouts, Peaks, newton_steps, unit
from .._solvers.joint import SAME_BASIN
from .._solvers.mspm import row_space
from .._utils.optional import require
from .._utils.printing import Shown, counted, extremes, listed_mcpcs, mcpcs, span
from .._utils.types import Array

# The largest third derivative of F along a geodesic of unit speed; see above.
THIRD_DERIVATIVE = 2 + 3 * np.sqrt(2)
# Curvatures closer to 0 than this are rounding of numbers near 1, as with a single context, where F is flat.
_FLAT = 1e-9
# Numbers of a basis that is kept whatever the size of the covariances: 256 kB.
_SMALL_NUMBERS = 2**15
# Ratio of the r-th singular value to the first from which float32 knows every V_l to four digits.
_FLOAT32_SPREAD = 1e-3
# Operations of a landscape that is computed unasked, for a file or a report: one or two seconds.
_MOST_COST = 1e9
# Numbers in one temporary of Hessians and of Newton's equations, 16 MB: MCPCs are taken in chunks that fit.
_BATCH_NUMBERS = 2**21
# Power steps end at the first of these lengths, in some tens of steps; Newton steps, a few of them, at the second.
_SETTLED = 1e-6
_CLIMB_TOL = 1e-9
_MOST_STEPS = 200
_SAME = 1 - 1e-8  # |cos| between ends of climbs at the same maximum


@dataclass(frozen=True, repr=False)
class Landscape(Shown):
    """F, the objective of the paper's power method, at each MCPC, and whether it has a maximum there.

    F is that of the leading directions that a fit works in, see ``MCPCA.landscape``.

    Attributes
    ----------
    F : ndarray (r,)
        The squared cosine between ``a b^T``, with the b that is best for the MCPC a, and the span of the leading r
        right singular vectors of ``[S_1 ... S_k]``. 1 for covariances that the model fits exactly.
    gradients : ndarray (r,)
        Norm of the Riemannian gradient of F on the two unit spheres; 0 at a stationary point, at most about 1.
    curvatures : ndarray (r,)
        The largest eigenvalue of the Riemannian Hessian: how F bends in its flattest direction. At least ``-2 F``, the
        value of a peak without neighbours; near 0 along a ridge, on which axes are not determined; above 0 at a saddle.
    peaks : ndarray (r,)
        F at the local maximum that climbing from the MCPC ends at; NaN if it ends at none that is certified.
    degrees : ndarray (r,)
        Angle between the MCPC and that maximum; NaN likewise.
    basins : ndarray (r,) of int
        Number of that maximum, -1 for none: MCPCs with the same number climb to the same one.
    """

    F: Array
    gradients: Array
    curvatures: Array
    peaks: Array
    degrees: Array
    basins: Array

    @property
    def certified(self) -> Array:
        """Whether a local maximum is certain to be near the MCPC (r,): the slope is small for the curvature."""
        return _is_certain(self.gradients, self.curvatures)

    @property
    def own(self) -> Array:
        """Whether the MCPC has a maximum of its own (r,).

        Climbing from it ends within ``|cos|`` 0.9 of it, and no other MCPC that climbs to the same maximum is nearer.
        The others are there by deflation only, or as axes that contexts share best together.
        """
        degrees = np.where(self.basins < 0, np.inf, self.degrees)
        nearest = np.array([degrees[self.basins == number].min() for number in self.basins.tolist()])
        return np.asarray((degrees == nearest) & (degrees < np.degrees(np.arccos(SAME_BASIN))))

    @property
    def within(self) -> Array:
        """Degrees (r,) within which that maximum lies, an upper bound; NaN where none is certified."""
        # The smaller root of g + lambda R / 2 + L R^2 / 6 = 0.
        half = -self.curvatures / 2
        gap = np.where(self.certified, half**2 - 2 * THIRD_DERIVATIVE * self.gradients / 3, np.nan)
        # 2 g / (half + root), and not (half - root) / (L / 3), which cancels where the slope is small.
        return np.degrees(2 * self.gradients / (half + np.sqrt(gap)))

    @property
    def table(self) -> Any:
        """A pandas DataFrame with one row for each MCPC, or a dict of columns if pandas is not installed."""
        content: dict[str, Any] = {
            "MCPC": mcpcs(len(self.F)),
            "F": self.F,
            "gradient": self.gradients,
            "curvature": self.curvatures,
            "certified": self.certified,
            "F at the maximum": self.peaks,
            "degrees to it": self.degrees,
            "maximum": self.basins,
            "own": self.own,
        }
        # pandas is an extra.
        try:
            return require("pandas", "pandas").DataFrame(content).set_index("MCPC")
        except ImportError:
            return content

    def chosen(self, which: Array) -> Landscape:
        """Return some of the MCPCs, by index."""
        return Landscape(*(getattr(self, name)[which] for name in self.__dataclass_fields__))

    def _words(self) -> list[str]:
        certified = self.certified
        r = len(certified)
        words = [
            f"F is {extremes(self.F, '.3g')}: the squared cosine between an MCPC with its contexts and the span of the "
            "leading singular vectors, 1 for an exact one."
        ]
        if certified.all():
            where = f"a local maximum of F is certain to be within {self.within.max():.2g} degrees of each"
            words.append(f"All {counted(r, 'MCPC')} are certified: {where}.")
        else:
            words.append(
                f"{int(certified.sum())} of {counted(r, 'MCPC')} are certified local maxima of F. Not certified: "
                f"{listed_mcpcs(~certified)}, where the slope of F is too large for its curvature, or F does not bend "
                "down in every direction."
            )
        own = self.own
        if own.all():
            words.append(f"Each has a maximum of its own, {span(self.degrees, '.2g')} degrees away.")
        else:
            words.append(
                f"{int(own.sum())} of them have a maximum of their own; climbing leads away from {listed_mcpcs(~own)}."
            )
        words.append(
            f"Largest eigenvalues of the Hessian: {span(self.curvatures, '.2g')}, -2 being the sharpest peak; norms of "
            f"the gradient: {span(self.gradients, '.2g')}."
        )
        return words

    def _rows(self) -> dict[str, Any]:
        return {
            "": mcpcs(len(self.F)),
            "F": self.F,
            "gradient": self.gradients,
            "curvature": self.curvatures,
            "certified": ["yes" if yes else "no" for yes in self.certified],
            "degrees to a maximum": self.degrees,
            "of its own": ["yes" if yes else "no" for yes in self.own],
        }


@dataclass(frozen=True)
class PowerSpace:
    """The space of the power method in compressed coordinates, and MCPCs in it.

    Attributes
    ----------
    matrices : ndarray (r, e, q), or (k, r (r + 1) / 2)
        An orthonormal basis V: e contexts, or combinations of them, by q directions. Or, for less memory, the upper
        halves of the covariances in r directions, of which V is made when it is needed.
    components : ndarray (q, m)
        MCPCs in the q directions; shorter than 1 by what they have outside these, where F sees nothing.
    """

    matrices: Array
    components: Array

    @property
    def V(self) -> Array:
        """The orthonormal basis (r, e, q)."""
        if self.matrices.ndim == 3:
            return self.matrices
        q = len(self.components)
        rows, columns = np.triu_indices(q)
        T = np.empty((len(self.matrices), q, q))
        T[:, rows, columns] = self.matrices
        T[:, columns, rows] = self.matrices
        U, D = row_space(T, q)
        return _row_matrices(T, U / D)

    @cached_property
    def F(self) -> Array:
        """F at each MCPC (m,), with the best b. Cost O(m r e (q + r))."""
        return self._best[0]

    @cached_property
    def landscape(self) -> Landscape:
        """Value, slope and curvature at each MCPC, and where it climbs to.

        Cost O(m (q + e)^3) and that of some ten Newton steps; memory O((q + e)^2) and three times that of V.
        """
        F, b = self._best
        V, a = self._whole()
        r, e, q = V.shape
        layouts = layouts_of_basis(V)
        slopes, ends = [], []
        step = max(1, _BATCH_NUMBERS // (max(q + e, r) ** 2))
        for start in range(0, len(F), step):
            part = slice(start, start + step)
            here = slope_and_curvature(V, a[part], b[part])
            slopes.append(here)
            climbed = _climb(layouts, a[part], b[part], ~_is_certain(*here))
            ends.append((climbed.a, climbed.b, climbed.F, *slope_and_curvature(V, climbed.a, climbed.b)))
        gradients, curvatures = (np.concatenate(values) for values in zip(*slopes, strict=True))
        end_a, end_b, peaks, *end_slopes = (np.concatenate(values) for values in zip(*ends, strict=True))
        is_peak = _is_certain(*end_slopes)
        cosines = np.clip(np.abs(np.sum(end_a * a, axis=1)), 0, 1)
        return Landscape(
            F,
            gradients,
            curvatures,
            np.where(is_peak, np.clip(peaks, 0, 1), np.nan),
            np.where(is_peak, np.degrees(np.arccos(cosines)), np.nan),
            _basins(end_a, end_b, is_peak),
        )

    def chosen(self, which: Array) -> PowerSpace:
        """Return the space with some of the MCPCs, by index."""
        return PowerSpace(self.matrices, self.components[:, which])

    @property
    def cost(self) -> float:
        """About the operations that ``landscape`` takes, O(m (q + e)^3)."""
        q, m = self.components.shape
        e = self.matrices.shape[1] if self.matrices.ndim == 3 else len(self.matrices)
        return float(m * (q + e) ** 3)

    @cached_property
    def _best(self) -> tuple[Array, Array]:
        """F (m,) and the best b (m, e)."""
        return best_partners(self.V, self.components.T)

    def _whole(self) -> tuple[Array, Array]:
        """Return V and unit a (m, q), with one more direction for what MCPCs have outside the others, if anything."""
        a = self.components.T
        outside = np.sqrt(np.maximum(1 - np.sum(a**2, axis=1), 0))
        # All p directions are there, or all that A spans: the rest is rounding.
        V = self.V
        if outside.max(initial=0) < 1e-7:
            return V, a / np.linalg.norm(a, axis=1, keepdims=True)
        return np.pad(V, ((0, 0), (0, 0), (0, 1))), np.column_stack([a, outside])


def _is_certain(gradients: Array, curvatures: Array) -> Array:
    """Whether slopes are small enough for the curvatures that a local maximum is near."""
    return np.asarray((curvatures < -_FLAT) & (gradients < 3 * curvatures**2 / (8 * THIRD_DERIVATIVE)))


def _climb(layouts: Layouts, a: Array, b: Array, is_far: Array) -> Peaks:
    """Take a (m, q) and b (m, e) to maxima of F: by power steps first where these are far, then by Newton steps."""
    a, b = a.copy(), b.copy()
    r = len(layouts.by_matrix)
    rows = np.flatnonzero(is_far)
    for _ in range(_MOST_STEPS):
        if not len(rows):
            break
        # The alternating power method stays with the slope it is on; a Newton step may cross a valley.
        c = np.matmul((b[rows] @ layouts.by_context).reshape(len(rows), r, -1), a[rows][:, :, None])[:, :, 0]
        X = (c @ layouts.by_matrix).reshape(len(rows), b.shape[1], -1)
        up = unit(np.matmul(b[rows][:, None, :], X)[:, 0])
        length = np.linalg.norm(up - a[rows], axis=1)
        a[rows] = up
        b[rows] = unit(np.matmul(X, up[:, :, None])[:, :, 0])
        rows = rows[length > _SETTLED]
    return newton_steps(layouts, a, b, _CLIMB_TOL, _MOST_STEPS)


def _basins(a: Array, b: Array, is_peak: Array) -> Array:
    """Return a number for each different maximum (m,), in the order of the MCPCs that reach them; -1 for none."""
    same = (np.abs(a @ a.T) > _SAME) & (np.abs(b @ b.T) > _SAME) & is_peak
    # The first MCPC that reaches the same maximum stands for it.
    first = same.argmax(axis=1)
    numbers = np.cumsum(is_peak & (first == np.arange(len(a)))) - 1
    return np.where(is_peak, numbers[first], -1)


def landscape_of(space: PowerSpace | Landscape | None) -> Landscape:
    """Return the landscape of what a model keeps; raise if it keeps nothing."""
    if space is None:
        raise ValueError(
            "landscape() needs the leading singular vectors of [S_1 ... S_k], and this model has not kept them: its "
            "rows lack features or values, an older mcpca saved it, or it is large and was saved before landscape() "
            "was called. Fit complete rows, or fit again and call it before save()."
        )
    return space if isinstance(space, Landscape) else space.landscape


def landscape_on_the_way(space: PowerSpace | Landscape | None) -> Landscape | None:
    """Return the landscape where files and reports should have it: if it is known, or takes a second or two at most."""
    if space is None or isinstance(space, Landscape):
        return space
    is_known = "landscape" in vars(space)  # where ``cached_property`` keeps it
    return space.landscape if is_known or space.cost <= _MOST_COST else None


def power_space(core: Core, A: Array, turned: Array | None = None) -> PowerSpace:
    """Return the space that the power method climbs in at rank r, and the columns of A (p, r) in it.

    Where the core has a basis of q < p directions, the space is that of the core: V_l within these. Where it is the
    covariances themselves and V would be more than an eighth of them, it is that of the r leading directions. Cost
    O(e q^2 r), or O(k p^2 r) for the covariances themselves; memory O(e q r), or at most an eighth of them and 256 kB,
    unless r is more than half of p: then ``k r (r + 1) / 2`` numbers, in single precision if these resolve all r.
    ``turned`` (k, r, r) are the covariances in the r leading directions, if they are known.
    """
    A = np.asarray(A, dtype=np.float64)
    r = A.shape[1]
    part = core.leading(r)
    if part.whole is not None:
        # The core has not been made; the covariances are hardly larger.
        S, U = part.whole, part.directions[:, :r]
        if r * len(S) * len(U) > max(S.size // 8, _SMALL_NUMBERS):
            sigma = part.singular_values[:r]
            dtype = np.float32 if sigma[-1] > _FLOAT32_SPREAD * sigma[0] else np.float64
            # Of size 1 whatever the unit: V has none.
            return PowerSpace(_upper_halves(S, U, turned, sigma[0], dtype), U.T @ A)
        V = _row_matrices(S, U)
        return PowerSpace(V / np.linalg.norm(V, axis=(1, 2), keepdims=True), A)
    U, D = row_space(part.tensor, r, leading=part.basis is not None)
    return PowerSpace(_row_matrices(part.tensor, U / D), A if part.basis is None else part.basis.T @ A)


def _row_matrices(T: Array, U: Array) -> Array:
    """Return ``[T_1 u_l ... T_e u_l]`` as (r, e, q)."""
    out = np.empty((U.shape[1], len(T), U.shape[0]))
    for chunk in context_chunks(T):
        out[:, chunk] = images(T[chunk], U)
    return out


def layouts_of_basis(V: Array) -> Layouts:
    """Return V (r, e, q) in the three orders that Newton's method contracts."""
    r, e, q = V.shape
    return Layouts(
        by_context=np.ascontiguousarray(V.transpose(1, 0, 2)).reshape(e, r * q),
        by_matrix=V.reshape(r, e * q),
        by_feature=np.ascontiguousarray(V.transpose(2, 0, 1)).reshape(q, r * e),
    )


def _upper_halves(S: Array, U: Array, turned: Array | None, unit: float, dtype: Any) -> Array:
    """Return the upper halves of ``U^T S_i U / unit`` (k, r (r + 1) / 2), from these (k, r, r) if they are known."""
    rows, columns = np.triu_indices(U.shape[1])
    out = np.empty((len(S), len(rows)), dtype=dtype)
    if turned is not None:
        np.divide(turned[:, rows, columns], unit, out=out, casting="same_kind")
        return out
    for chunk in context_chunks(S):
        out[chunk] = congruence(S[chunk], U / np.sqrt(unit))[rows, :, columns].T
    return out


def best_partners(V: Array, a: Array) -> tuple[Array, Array]:
    """Return ``max_b F(a_j, b)`` (m,) and the unit b (m, e) where it is taken, for V (r, e, q) and a (m, q)."""
    r, e, q = V.shape
    Va = (a @ V.reshape(r * e, q).T).reshape(-1, r, e)
    # F(a, b) = |Va b|^2: the largest singular value of Va, squared, from the smaller of its two Gram matrices.
    if e <= r:
        w, Q = np.linalg.eigh(np.matmul(Va.transpose(0, 2, 1), Va))
        b = Q[:, :, -1]
    else:
        w, Q = np.linalg.eigh(np.matmul(Va, Va.transpose(0, 2, 1)))
        b = np.matmul(Q[:, None, :, -1], Va)[:, 0]
        b /= np.maximum(np.linalg.norm(b, axis=1, keepdims=True), np.finfo(float).tiny)
    # A squared cosine; rounding may leave it above 1.
    return np.clip(w[:, -1], 0, 1), b


def slope_and_curvature(V: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """Return the norm of the gradient and the largest eigenvalue of the Hessian of F at unit a (m, q), b (m, e).

    Cost O(m (q + e)^3), memory O(m (q + e)^2). Directions outside the q and the e have the eigenvalue ``-2 F``, which
    is never the largest: the trace of the rest of the Hessian is not negative.
    """
    gradient, hessian = gradient_and_hessian(V, a, b)
    return np.linalg.norm(gradient, axis=1), np.linalg.eigvalsh(hessian)[:, -1]


def gradient_and_hessian(V: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """Return the lemma's gradient (m, q + e) and Hessian (m, q + e, q + e), for V (r, e, q).

    The two directions along a and along b, in which nothing moves, have the eigenvalue ``-2 F`` and not 0, so that the
    largest eigenvalue is that of the tangent space.
    """
    r, e, q = V.shape
    Z_b = (a @ V.reshape(r * e, q).T).reshape(-1, r, e)  # V(a, ., .), transposed
    Z_a = np.tensordot(b, V, axes=(1, 1))  # V(., b, .), (m, r, q)
    c = np.matmul(Z_a, a[:, :, None])[:, :, 0]
    F = np.sum(c**2, axis=1)
    X = np.tensordot(c, V, axes=(1, 0)).transpose(0, 2, 1)  # (m, q, e)
    gradient = 2 * np.concatenate(
        [
            np.matmul(X, b[:, :, None])[:, :, 0] - F[:, None] * a,
            np.matmul(a[:, None, :], X)[:, 0] - F[:, None] * b,
        ],
        axis=1,
    )
    # Projected off a and off b before anything is multiplied: Pi Z Z^T Pi = (Pi Z) (Pi Z)^T.
    Z_a = Z_a - c[:, :, None] * a[:, None, :]
    Z_b = Z_b - c[:, :, None] * b[:, None, :]
    X = X - a[:, :, None] * np.matmul(a[:, None, :], X)
    X = X - np.matmul(X, b[:, :, None]) * b[:, None, :]
    Z = np.concatenate([Z_a, Z_b], axis=2)
    hessian = np.matmul(Z.transpose(0, 2, 1), Z)
    hessian[:, :q, q:] += X
    hessian[:, q:, :q] += X.transpose(0, 2, 1)
    hessian[:, np.arange(q + e), np.arange(q + e)] -= F[:, None]
    return gradient, 2 * hessian
