"""The bias that noise gives to solvers of least squares, with any number of rows, and loadings without it.

"mspm" and "lsq" look for axes with ``S_i ~ A diag(b_i) A^T``, and the covariances have noise besides. If A is
orthonormal, the identity within its span is ``sum_j a_j a_j^T`` and changes loadings only, which a floor takes out. If
it is not, the axes themselves turn towards the eigenvectors of noise and signal together, and with them everything that
is measured along them: a loading of 0 comes out as a few per cent of the others, however many rows there are.

Neither rows nor resamples of them show a bias that they all share, but the solver does: given the covariances
``A diag(b_i) A^T + s_i I`` of a model, it returns another model. ``bias_of_noise`` looks for the model that the solver
turns into the fitted one (indirect inference), by adding what is missing until the two agree:

    (A, B, s) <- (A, B, s) + fitted - solver(A, B, s)

Everything happens in the span of A and one direction outside it, which stands for all others: r + 1 features. If the
rows of the fit were infinitely many, the end is the truth.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._linalg.canonical import match_components
from .._model.fitted_model import FittedModel
from .._solvers import SOLVERS
from .._solvers.floor import own_floor
from .._utils.array_api import to_host
from .._utils.types import Array
from .._utils.user_warnings import muted

# The error halves in each step, or better.
_MOST_STEPS = 12
# Relative change of loadings at which the end is reached: far below any standard error.
_SETTLED = 1e-4


class _State(NamedTuple):
    """Axes (r, r) in a basis of their span, loadings (k, r) and noise variances (k,)."""

    R: Array
    B: Array
    s: Array


def bias_of_noise(model: FittedModel, unfitted: Any, rng: np.random.Generator) -> Array:
    """Return what noise adds to the corrected loadings (k, r) of ``model`` through its axes.

    0 for a likelihood, which has noise in its model, and for orthogonal axes; also for noise by feature, which r + 1
    features cannot show. ``unfitted`` has the parameters of the fit.

    Notes
    -----
    Cost: up to twelve fits to k covariances of r + 1 features.
    """
    B = model.compared_loadings().astype(np.float64)
    noise = model.noise_by_context
    # Where contexts lack features, axes of least squares are found beside a floor of noise as well.
    has_noise = SOLVERS[model.solver].models_noise or model.missing == "union"
    is_unbiased = has_noise or model.orthogonal or len(B) == 1
    if is_unbiased or noise is None or model.n_features == model.n_components or not (noise > 0).any():
        return np.zeros_like(B)
    # In units of the loadings: squares of those of the data may be out of range.
    unit = float(max(B.max(), noise.max()))
    Q, R = np.linalg.qr(to_host(model.components).astype(np.float64))
    fitted = _State(R, B / unit, noise.astype(np.float64) / unit)
    options = {"random_state": rng, "noise": "auto", "robust": False, "cross_fit": 0, "missing": "error"}
    twin = type(unfitted)(**{**unfitted.get_params(), **options})
    state = fitted
    best = fitted.B
    least = np.inf
    for _ in range(_MOST_STEPS):
        # A component that is in no context has no axis.
        try:
            with muted():
                found = _solved(twin, model, state, Q)
        except ValueError:
            break
        missing = fitted.B - found.B
        # A loading of 0 cannot be lowered.
        size = float(np.linalg.norm(missing[(state.B > 0) | (missing > 0)]) / np.linalg.norm(fitted.B))
        # Few rows may leave axes that the solver does not return for any model: the closest is then kept.
        if size < least:
            least = size
            best = state.B
        if size <= _SETTLED or size > 2 * least:
            break
        R = state.R + (fitted.R - found.R)
        state = _State(
            R / np.linalg.norm(R, axis=0),
            np.maximum(state.B + missing, 0),
            np.maximum(state.s + fitted.s - found.s, 0),
        )
    return np.asarray(unit * (fitted.B - best))


def _solved(twin: Any, model: FittedModel, state: _State, Q: Array) -> _State:
    """Return what the solver makes of the covariances of ``state``, whose axes in p features are ``Q R``."""
    p, r = Q.shape
    inside = np.einsum("aj,ij,bj->iab", state.R, state.B, state.R) + state.s[:, None, None] * np.eye(r)
    S = np.zeros((len(inside), r + 1, r + 1))
    S[:, :r, :r] = inside
    S[:, r, r] = state.s
    twin.fit_covariances(S, model.n_samples, context_names=model.contexts.tolist())
    # Their part in the span of A is all of them but for rounding.
    V = match_components(twin.components_[:r], state.R).apply(twin.components_[:r])
    V = V / np.linalg.norm(V, axis=0)
    along = np.einsum("aj,iab,bj->ij", V, inside, V)
    # Loadings beside the floor in p features, as the fit has them: the direction outside stands for p - r.
    floor = own_floor(Q @ V, along, np.einsum("iaa->i", inside) + (p - r) * state.s)
    return _State(V, floor.loadings, floor.noise)
