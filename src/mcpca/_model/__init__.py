"""A solution and what it says: components and loadings, facets, scores, new contexts, the Gaussian model.

From a solver to a fitted model:

- ``decomposition``: covariances in, components and loadings out; ``decompose`` and the steps that a fit shares with it.
- ``facets``: how well the decomposition holds, context by context; ``facet_measures`` sums it up for users.
- ``identifiability``, ``dominance``: what makes a fit doubtful, as warnings.
- ``fitted_model``: ``FittedModel``, the typed value that a fit leaves behind and that all functions below take.
- ``gaussian``: the model of the rows that a fit with noise implies.

What a fitted model does with rows:

- ``new_rows``: rows matched to the features of the fit, checked, grouped by context.
- ``centering``: which mean is subtracted from which row; ``scores``: scores of rows, and rows from scores.
- ``new_contexts``: loadings of contexts that were not in the fit, and how well held-out rows are predicted.

Apart from the rest, ``common_components`` fits Flury's common principal components.
"""
