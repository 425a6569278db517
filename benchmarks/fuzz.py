"""Claim: any covariances give finite answers or a named error, and never a warning from a division.

Random problems of shapes 1 to 12: zero, duplicate, collinear, rank-deficient, at scales from 1e-9 to 1e9.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from mcpca import IdentifiabilityWarning, decompose

CHOICES = [
    {"solver": "mspm"},
    {"solver": "lsq"},
    {"solver": "ml"},
    {"solver": "ml", "noise": "pooled"},
    {"solver": "ml", "noise": "diagonal"},
    {"solver": "ml", "noise": "scaled"},
    {"solver": "ml", "noise": None},
    {"solver": "lsq", "orthogonal": True},
    {"solver": "ml", "orthogonal": True},
]


def problem(rng: np.random.Generator) -> tuple[np.ndarray, int, np.ndarray]:
    """Covariances (k, p, p), a rank, and samples per context."""
    k, p = (int(v) for v in rng.integers(1, 13, size=2))
    r = int(rng.integers(1, p + 1))
    A = rng.standard_normal((p, r))
    B = np.abs(rng.standard_normal((k, r)))
    if rng.random() < 0.3:
        B *= rng.random((k, r)) < 0.5
    if rng.random() < 0.2:
        A[:, rng.integers(r)] = A[:, rng.integers(r)] * rng.choice([1, -2]) + rng.choice([0, 1e-8, 1e-3])
    if rng.random() < 0.2:
        B[:, rng.integers(r)] = 2 * B[:, rng.integers(r)]
    n = rng.integers(2, 40, size=k)
    noise = rng.choice([0, 1e-8, 0.1, 1])
    S = np.empty((k, p, p))
    for i in range(k):
        X = (rng.standard_normal((n[i], r)) * np.sqrt(B[i])) @ A.T + noise * rng.standard_normal((n[i], p))
        S[i] = np.cov(X, rowvar=False).reshape(p, p)
    if rng.random() < 0.2:
        S[rng.integers(k)] = 0
    if rng.random() < 0.2:
        S[rng.integers(k)] = S[rng.integers(k)]
    if rng.random() < 0.2:
        f = rng.integers(p)
        S[:, f] = 0
        S[:, :, f] = 0
    if rng.random() < 0.2:  # exact, not sampled
        S = (A * B[:, None, :]) @ A.T
        S = (S + S.transpose(0, 2, 1)) / 2
    if rng.random() < 0.3:
        S *= 10.0 ** rng.uniform(-4, 4, size=(k, 1, 1))
    return S * 10.0 ** rng.uniform(-9, 9), r, n


def attempt(seed: int) -> str:
    """Return what became of one problem: 'fine', 'not converged', a named error, or a defect."""
    rng = np.random.default_rng(seed)
    S, r, n = problem(rng)
    options = CHOICES[int(rng.integers(len(CHOICES)))]
    with warnings.catch_warnings(record=True) as caught, np.errstate(divide="warn", over="warn", invalid="warn"):
        warnings.simplefilter("always")
        try:
            result = decompose(S, r, n_samples=n, random_state=0, **options)
        except ValueError as error:
            named = "exceeds the numerical rank" in str(error) or "are all zero" in str(error)
            return "named error" if named else f"DEFECT seed {seed} {options}: {error}"
        except Exception as error:
            return f"DEFECT seed {seed} {options}: {type(error).__name__}: {error}"
    odd = [w for w in caught if not issubclass(w.category, (ConvergenceWarning, IdentifiabilityWarning))]
    if odd:
        return f"DEFECT seed {seed} {options}: {odd[0].category.__name__}: {odd[0].message}"
    arrays = [result.components, result.loadings] + ([] if result.noise is None else [result.noise])
    if not all(np.isfinite(a).all() for a in arrays) or (result.loadings < 0).any():
        return f"DEFECT seed {seed} {options}: not finite or negative"
    if np.abs(np.linalg.norm(result.components, axis=0) - 1).max() > 1e-6:
        return f"DEFECT seed {seed} {options}: columns are not of unit length"
    return "fine" if result.converged else "not converged"


def measure(count: int, log: Callable[[str], None]) -> list[dict]:
    outcomes: Counter[str] = Counter()
    defects = []
    for seed in range(count):
        outcome = attempt(seed)
        if outcome.startswith("DEFECT"):
            defects.append(outcome)
            log(outcome)
            outcome = "DEFECT"
        outcomes[outcome] += 1
        if (seed + 1) % 1000 == 0:
            log(f"fuzz  {seed + 1}: {dict(outcomes)}")
    return [
        {"problems": count, **{name: outcomes[name] for name in ("fine", "not converged", "named error", "DEFECT")}}
    ]
