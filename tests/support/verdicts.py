"""Models made in no time, and results of tests made by hand: for the marks of MCPCs in reports."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from mcpca import MCPCA
from mcpca._inference.dependence_result import ContextDependence
from mcpca._inference.presence import Presence
from mcpca._inference.replication import Replicability


def verdicts(model, rows=40):
    """Results of tests made by hand: MCPCs come back, differ and are present, or not."""
    k, r = model.loadings_.shape
    yes = np.arange(r) % 2 == 0
    cosines = np.where(yes, 0.97, 0.4) * np.ones((3, 1))
    p = np.where(np.arange(r) % 3 == 0, 0.001, 0.8)
    ones = np.ones(r)
    dependence = ContextDependence(
        0.001, p, 2 * ones, ones, np.ones((k, r)), model.contexts_, np.full(k, rows), ones, 0.001
    )
    adjusted = np.where(np.arange(k)[:, None] < np.linspace(0, k, r).astype(int), 0.01, 0.7)
    presence = Presence(ones, adjusted, adjusted, adjusted <= 0.05, 0.05, "fdr")
    return {"replicability": Replicability(cosines), "context_dependence": dependence, "presence": presence}


def exact_model(k, r, name="patient {}"):
    """A model of covariances that are as it says, in no time."""
    names = [name.format(i + 1) for i in range(k)]
    rng = np.random.default_rng(k + r)
    A, B = rng.standard_normal((r + 4, r)), rng.random((k, r))
    S = np.einsum("pr,kr,qr->kpq", A, B, A) + 0.1 * np.eye(r + 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return MCPCA(r, random_state=0, max_iter=20).fit_covariances(S, context_names=names)
