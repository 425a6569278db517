"""scikit-learn's own conformance checks."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from mcpca import MCPCA

EXPECTED: dict[str, str] = {}
ESTIMATORS = [
    MCPCA(),
    MCPCA(n_components=1),
    MCPCA(n_components=1, solver="lsq"),
    MCPCA(n_components=1, solver="ml"),
    MCPCA(n_components=1, solver="ml", orthogonal=True),
]


@pytest.mark.filterwarnings("ignore::mcpca.IdentifiabilityWarning")
@pytest.mark.filterwarnings("ignore::mcpca.UncertainRankWarning")  # the checks have a few dozen rows
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda _: EXPECTED)
def test_scikit_learn_conformance(estimator, check):
    check(estimator)
