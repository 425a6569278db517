"""What plotting, analyses, reports and the AnnData interface read from a fit, wherever it is kept.

======================  ===================================================================================
``fitted``              ``fitted(source)``: a model, a Pipeline or an AnnData becomes one ``Fitted``.
``fitted_rows``         The rows that belong to a ``Fitted``: by context, sampled, and their scores.
``pipelines``           A Pipeline that ends in MCPCA: its model, its rows, and directions back through it.
``anndata_layout``      Where a fit is stored in an AnnData: writes it, and reads it back.
``anndata_new``         New rows in an AnnData, aligned with the features of a fit.
``context_values``      One value per context (a stage, a year), in any form that users have it.
``context_tests``       Tests of loadings against such values, exact for few contexts.
``context_tree``        Distances and hierarchical clustering of contexts by their loadings.
``sharing``             How widely an MCPC is shared: specific, shared or broad.
``poles``               The features at both ends of an MCPC.
======================  ===================================================================================

The usual way in is ``fitted(source, key)``; ``context_values`` and ``rows_of_fit`` then read the rest of the arguments
of a public function. Nothing here draws or prints.
"""
