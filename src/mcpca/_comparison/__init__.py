"""Solvers beside baselines and naive covariances, on halves of the user's rows: ``compare_solvers``.

- ``naive``: covariances that need no components: a context's own, its PCA, the pooled one, and their average.
- ``solvers``: the public function, which puts solvers, baselines and these before one judge (``_inference.held_out``).
- ``models``: two fitted models beside each other, MCPC by MCPC: ``compare_models``.

A room above ``baselines``, which the judge itself does not know.
"""
