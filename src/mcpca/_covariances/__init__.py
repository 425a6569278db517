"""From rows to products with the covariances of contexts: as an array, on a device, or by passes over rows.

``interface`` is the protocol that solvers see. ``stack`` implements it for an array, of NumPy or on a device
(``array_memory``), ``streamed`` by passes over rows; ``fit_data`` chooses between them, and ``subspace`` compresses
either to the core that solvers work on. ``moments`` are covariances that can be merged.
"""
