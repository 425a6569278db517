"""A small model whose loadings are known: no random number decides what its pictures look like."""

import numpy as np

from mcpca import MCPCA

CONTEXTS = ["brain", "lung", "skin", "liver", "colon", "kidney"]
B = np.array(
    [
        [9.0, 0.1, 3.0, 0.0, 0.2],
        [8.0, 0.2, 3.5, 0.0, 0.1],
        [7.5, 6.0, 0.1, 0.0, 0.0],
        [6.0, 0.3, 0.2, 3.0, 0.1],
        [7.0, 0.1, 0.0, 0.1, 1.2],
        [5.0, 0.2, 0.1, 0.2, 1.3],
    ]
)
KINDS = ["broad", "specific", "shared", "specific", "shared"]


def axes_of(p=36, r=5):
    """Unit columns (p, r), not orthogonal: waves that fade, with a little of the first one in each of the others.

    Since they fade, each has one largest entry, and no rounding decides its sign.
    """
    x = (np.arange(p) + 0.5) / p
    A = np.cos(np.pi * np.outer(x, np.arange(1, r + 1))) * np.exp(-x)[:, None]
    A[:, 1:] += 0.15 * np.arange(1, r) * A[:, :1]
    return A / np.linalg.norm(A, axis=0)


def planted_model(B=B, contexts=CONTEXTS, noise=0.02, p=36):
    """Return the fit of covariances with loadings ``B`` and noise that grows from context to context."""
    A = axes_of(p, B.shape[1])
    floor = noise * np.arange(len(B))[:, None, None] * np.eye(p)
    S = np.einsum("pr,kr,qr->kpq", A, B, A) + floor
    return MCPCA(B.shape[1], random_state=0).fit_covariances(S, context_names=list(contexts))


def rearranged_model():
    """Return another fit: contexts and MCPCs are no longer where they were, nor is anything made of their numbers."""
    rng = np.random.default_rng(3)
    return planted_model(rng.permuted(B, axis=None).reshape(B.shape), CONTEXTS[::-1], noise=0.4)
