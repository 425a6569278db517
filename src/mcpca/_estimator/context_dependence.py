"""``context_dependence``: are axes of the contexts, or in all of them alike? A fit and its test in one call."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any

from numpy.random import SeedSequence

from .._data.annotations import take_annotations
from .._inference.context_dependence import judged_contexts, refuse_without_rows
from .._inference.dependence_result import PERMUTATIONS, SPLITS, ContextDependence
from .._utils.arguments import as_generator, one_random_state
from .._utils.array_api import to_host
from .._utils.progress import reporting
from .mcpca import MCPCA


def context_dependence(
    X: Any,
    y: Any,
    r: int,
    *,
    groups: Any = None,
    batch: Any = None,
    covariates: Any = None,
    preprocess: Any = None,
    solver: str = "mspm",
    noise: str | None = "auto",
    orthogonal: bool = False,
    n_splits: int = SPLITS,
    n_permutations: int = PERMUTATIONS,
    random_state: Any = None,
    rng: Any = None,
    n_jobs: int | None = None,
    verbose: Any = None,
) -> ContextDependence:
    """Fit r MCPCs, and test which of them differ between contexts and which are the same in all of them.

    Where none differ, there is nothing that contexts could tell apart, and PCA of the pooled rows, centred by context,
    would do.

    Parameters
    ----------
    X, y
        Rows and contexts in any form that ``MCPCA.fit`` takes; ``y=None`` for a list or dict of contexts.
    r : int
        Number of MCPCs.
    groups : labels (n,), str or list of str, optional
        Which rows were sampled together, as in ``MCPCA.context_dependence``.
    batch, covariates : optional
        Nuisance to be removed, as in ``MCPCA.fit``.
    preprocess : optional
        What is done to rows while they are read, as in ``MCPCA``.
    solver, noise, orthogonal
        Of the model and of its halves, as in ``MCPCA``.
    n_splits, n_permutations, random_state, rng, n_jobs, verbose
        As in ``MCPCA.context_dependence``. The model of all rows has the same ``random_state`` as ``MCPCA`` would.

    Returns
    -------
    ContextDependence
        Of the MCPCs of ``MCPCA(r, solver=..., ...).fit(X, y)``, in their order.

    Examples
    --------
    >>> from mcpca import context_dependence
    >>> from mcpca.datasets import make_contexts
    >>> truth = make_contexts(n_contexts=6, n_features=20, n_components=4, random_state=0)
    >>> context_dependence(truth.X, truth.y, 4, n_permutations=199, random_state=0).in_words()
    '4 of 4 axes differ between contexts'
    """
    refuse_without_rows(X)
    # A seed means the model that the user would fit with it; a generator goes on from the fit to the test.
    random_state = one_random_state(rng, random_state)
    is_seed = isinstance(random_state, (Integral, SeedSequence))
    state = random_state if is_seed else as_generator(random_state)
    with reporting(verbose, "context dependence") as report:
        annotated = take_annotations(to_host(X), y, groups=groups, batch=batch, covariates=covariates)
        contexts = annotated.contexts(preprocess=preprocess, report=report)
        # Before the fit, which would be in vain.
        judged_contexts(contexts)
        model = MCPCA(r, solver=solver, noise=noise, orthogonal=orthogonal, random_state=state, verbose=report)
        model.fit(replace(contexts, groups=None))
        return model.context_dependence(
            contexts,
            n_splits=n_splits,
            n_permutations=n_permutations,
            random_state=state,
            n_jobs=n_jobs,
            verbose=report,
        )
