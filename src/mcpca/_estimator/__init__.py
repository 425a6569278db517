"""``MCPCA`` itself: fitting from every form of input, and its file.

- ``mcpca``: the class, its fitted attributes, and ``fitted_model``, by which other packages get at what was fitted.
- ``parameters``: the parameters of the constructor as one value, checked as a whole before any row is read.
- ``fitting``: from rows, moments or covariances to a ``FittedModel``.
- ``context_dependence``: a fit and its test whether axes are of the contexts, in one call.
- ``chunks_of_rows``: ``partial_fit``.
- ``persistence``: the file of a model, and the arrays and JSON that also go into AnnData.
"""
