"""What every source has to give, for all tests of sources."""

import numpy as np
import scipy.sparse as sp


def assert_same_rows(source, twin):
    """Gather and scan give the rows of a dense twin, in every order and in blocks of every size."""
    n = len(twin)
    rng = np.random.default_rng(1)
    assert source.shape == twin.shape
    asked = [
        *(slice(None), slice(3, n - 5), slice(n, None), slice(5, 5), slice(None, None, 7), slice(n - 2, 2, -3)),
        *(np.arange(n), np.array([5, 3, 3, n - 1, 0, 7, 0]), np.array([], dtype=int), rng.integers(0, n, 3 * n)),
    ]
    for rows in asked:
        _assert_block(source, source.gather(rows), twin[rows])
    for max_bytes in (1, 400, 10**9):
        stop = 0
        for first, block in source.scan(max_bytes):
            assert first == stop
            stop += block.shape[0]
            _assert_block(source, block, twin[first:stop])
        assert stop == n


def _assert_block(source, block, twin):
    assert block.dtype == source.dtype
    if source.sparse:
        assert type(block) is sp.csr_array
        # Looked up anew, not remembered.
        assert sp.csr_array((block.data, block.indices, block.indptr), shape=block.shape).has_canonical_format
        block = block.toarray()
    assert type(block) is np.ndarray
    if not np.array_equal(block, twin):
        np.testing.assert_allclose(block, twin, rtol=1e-6)  # sums of duplicates round
