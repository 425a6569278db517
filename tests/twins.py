"""Slow, obvious twins of what the package does fast. Nothing here is shared with it."""

import numpy as np
from scipy.optimize import minimize, nnls


def random_problem(rng, k, p, r, density=1.0):
    """Exact A (p, r), B (k, r) and covariances (k, p, p)."""
    A = rng.standard_normal((p, r))
    A /= np.linalg.norm(A, axis=0)
    B = np.abs(rng.standard_normal((k, r))) + 0.05
    B *= rng.random((k, r)) < density
    B[rng.integers(k, size=r), np.arange(r)] += 1
    return A, B, compose(A, B)


def compose(A, B):
    return np.stack([A @ np.diag(b) @ A.T for b in B])


def sampled_problem(rng, k, p, r, n, noise, density=1.0):
    """A planted problem with sampling error: A, B and sample covariances."""
    A, B, _ = random_problem(rng, k, p, r, density)
    rows = [(rng.standard_normal((n, r)) * np.sqrt(b)) @ A.T + noise * rng.standard_normal((n, p)) for b in B]
    return A, B, np.stack([np.cov(X, rowvar=False) for X in rows])


def design_loadings(S, A):
    """The reference's way: a (p^2, r) design, one context at a time."""
    design = np.stack([np.outer(a, a).ravel() for a in A.T], axis=1)
    return np.array([nnls(design, Si.ravel())[0] for Si in S])


def sequential_mspm(S, r, rng, tries=3):
    """Algorithm 1 in full coordinates: SVD of the flattening, power iterations, one deflation at a time."""
    k, p, _ = S.shape
    M = np.concatenate(list(S), axis=1)
    U, D, Vt = np.linalg.svd(M, full_matrices=False)
    U, D = U[:, :r], D[:r]
    V = Vt[:r].reshape(r, k, p).transpose(0, 2, 1)  # r matrices (p, k)
    A = np.zeros((p, r))
    normals = np.zeros((r, 0))
    keep = np.eye(r)
    for j in range(r):
        W = np.einsum("lc,lpk->cpk", keep, V)
        best = (-1.0, None)
        for _ in range(tries):
            a, b = rng.standard_normal(p), rng.standard_normal(k)
            a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
            for _ in range(3000):
                c = np.array([a @ Wl @ b for Wl in W])
                X = np.einsum("c,cpk->pk", c, W)
                a = X @ b / np.linalg.norm(X @ b)
                b_new = a @ X / np.linalg.norm(a @ X)
                if np.linalg.norm(b_new - b) < 1e-13:
                    break
                b = b_new
            F = sum((a @ Wl @ b) ** 2 for Wl in W)
            best = max(best, (F, a), key=lambda t: t[0])
            if F > 0.99:
                break
        A[:, j] = best[1]
        normals = np.column_stack([normals, U.T @ A[:, j] / D])
        keep = np.linalg.qr(normals, mode="complete")[0][:, j + 1 :]
    return A


def power_run(T, r, rng, steps=60_000, tol=1e-12):
    """One run of the plain power method on slices (e, q, q): one start a component, two more where F < 0.99."""
    e, q, _ = T.shape
    U, D, _ = np.linalg.svd(np.concatenate(list(T), axis=1))
    V = np.einsum("iab,bl->lai", T, U[:, :r] / D[:r])  # r orthonormal matrices (q, e)
    normals, found = np.zeros((0, r)), []

    def climb(drawn):
        W = V - np.einsum("lai,lm->mai", V, normals.T @ normals)
        a, b = drawn[:q] / np.linalg.norm(drawn[:q]), drawn[q:] / np.linalg.norm(drawn[q:])
        flat = W.reshape(r, -1)
        for _ in range(steps):
            c = flat @ np.outer(a, b).ravel()
            X = (c @ flat).reshape(q, e)
            a = X @ b / np.linalg.norm(X @ b)
            previous, b = b, a @ X / np.linalg.norm(a @ X)
            if np.linalg.norm(b - previous) < tol:
                break
        return c @ c, a

    for _ in range(r):
        F, a = climb(rng.standard_normal(q + e))
        if F < 0.99:
            F, a = max([(F, a), *(climb(drawn) for drawn in rng.standard_normal((2, q + e)))], key=lambda t: t[0])
        found.append(a)
        rows = np.vstack([normals, a @ (U[:, :r] / D[:r])])
        normals = np.linalg.qr(rows.T)[0].T
    return np.stack(found, axis=1)


def authors_score(A, A_ref):
    """Mean cosine of the pairs that the authors' mixture of two distances makes, one column at a time."""
    left, total = A.T, 0.0
    for v in A_ref.T:
        far = np.where(left @ v > 0, np.abs(left - v).sum(axis=1), np.square(left + v).sum(axis=1))
        total += abs(left[far.argmin()] @ v)
        left = np.delete(left, far.argmin(), axis=0)
    return total / A_ref.shape[1]


def relative_error(S, A, B):
    return np.linalg.norm(S - compose(A, B)) ** 2 / np.linalg.norm(S) ** 2


def squared_distances(X, mean, covariance):
    """Squared Mahalanobis distances of rows, by the inverse of the covariance."""
    return np.einsum("np,pq,nq->n", X - mean, np.linalg.inv(covariance), X - mean)


def weighted_scatter(X, w):
    """The weighted mean of rows, and ``sum w (x - mean)(x - mean)^T``, row by row."""
    mean = sum(w_t * x for w_t, x in zip(w, X, strict=True)) / w.sum()
    return mean, sum(w_t * np.outer(x - mean, x - mean) for w_t, x in zip(w, X, strict=True))


def covariances_without_nuisance(X, y, batch, Z):
    """Covariances (k, p, p) of the residuals of a regression on batch and covariates in each context, and these."""
    residuals = np.empty_like(X)
    S = []
    for i in np.unique(y):
        rows = y == i
        D = np.column_stack([batch[rows][:, None] == np.unique(batch[rows]), Z[rows]]).astype(float)
        residuals[rows] = X[rows] - D @ np.linalg.lstsq(D, X[rows], rcond=None)[0]
        S.append(residuals[rows].T @ residuals[rows] / (rows.sum() - np.linalg.matrix_rank(D)))
    return np.array(S), residuals


def log1p_of_counts(X, target=None, factors=None):
    """Rows divided by their totals, times the median total of those with counts, and log(1 + x): one row at a time."""
    totals = [float(sum(row)) for row in X.tolist()]
    target = np.median([t for t in totals if t > 0]) if target is None else target
    by = [t / target if t > 0 else 1.0 for t in totals] if factors is None else factors
    return np.array([[np.log(1 + x / s) for x in row] for row, s in zip(X.tolist(), by, strict=True)])


def shrunk_weights(G, v, shares, overlap, common=0.7):
    """Weights of own, pooled, model and identity, one context at a time, from inner products of what they estimate."""
    k = len(G)
    estimated, errors = [], []
    for i in range(k):
        size = G[i, 3, 3]
        error = min(v[i], G[i, 0, 0] - size) / size
        # Own covariance = truth + error; the pooled one and the model have a share of the same error.
        has = [1, shares[i], overlap, 0]
        extra = np.zeros((4, 4))
        for a in range(4):
            extra[0, a] = extra[a, 0] = has[a] * error
        estimated.append(G[i] / size - extra)
        errors.append(extra)
    mean = sum(estimated) / k
    weights = []
    for K, extra in zip(estimated, errors, strict=True):
        K = (1 - common) * K + common * mean
        values, vectors = np.linalg.eigh(K + extra)
        gram = vectors @ np.diag(np.maximum(values, 1e-9 * values.max())) @ vectors.T
        # Many starts of a general method.
        best = min(
            (
                minimize(
                    lambda w, gram=gram, h=K[0]: w @ gram @ w - 2 * h @ w,
                    start,
                    bounds=[(0, 1)] * 4,
                    constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
                    options={"ftol": 1e-15, "maxiter": 500},
                )
                for start in [np.full(4, 0.25), *np.eye(4)]
            ),
            key=lambda found: found.fun,
        )
        weights.append(best.x)
    return np.array(weights)


def held_out_errors(S, M, weights):
    """Both errors of predictions M (k, p, p) for covariances S, entry by entry: off the diagonal, and off identity."""
    p = S.shape[1]
    off, deviatoric = ([0.0, 0.0], [0.0, 0.0])
    for S_i, M_i, w in zip(S, M, weights, strict=True):
        for a in range(p):
            for b in range(p):
                if a != b:
                    off[0] += w * (S_i[a, b] - M_i[a, b]) ** 2
                    off[1] += w * S_i[a, b] ** 2
        R = S_i - M_i
        deviatoric[0] += w * np.linalg.norm(R - np.trace(R) / p * np.eye(p)) ** 2
        deviatoric[1] += w * np.linalg.norm(S_i - np.trace(S_i) / p * np.eye(p)) ** 2
    return off[0] / off[1], deviatoric[0] / deviatoric[1]


def right_singular_matrices(S, r):
    """The top r right singular vectors of [S_1 ... S_k] as matrices (r, p, k)."""
    k, p, _ = S.shape
    return np.linalg.svd(np.concatenate(list(S), axis=1))[2][:r].reshape(r, k, p).transpose(0, 2, 1)


def F_in_full(V, a, b):
    """||P (a b^T)||^2 by the projector itself, V (r, p, k)."""
    D = V.reshape(len(V), -1).T
    x = np.outer(a, b).ravel()
    return x @ (D @ (D.T @ x))


def geodesic(a, b, v, w, t):
    """Where the geodesic from (a, b) with velocity (v, w) is at time t."""

    def on_sphere(x, u):
        speed = np.linalg.norm(u)
        return np.cos(speed * t) * x + (np.sin(speed * t) * u / speed if speed else 0 * x)

    return on_sphere(a, v), on_sphere(b, w)
