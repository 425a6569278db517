"""Sparse rows at random places. SciPy's own calls its generator ``random_state`` before 1.15, and ``rng`` since."""

import numpy as np
import scipy.sparse as sp


def random_csr(rng, n, p, density, values=None):
    """Return a CSR array (n, p) with that share of entries, drawn by ``values(size)``: by default uniform in [0, 1)."""
    places = rng.choice(n * p, round(density * n * p), replace=False)
    entries = (values or rng.random)(len(places))
    return sp.csr_array((entries, np.divmod(places, p)), shape=(n, p))
