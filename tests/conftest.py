import os

# Two workers on two cores: one BLAS thread each is faster than four fighting.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "2")

import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(20240229)
