"""Which components come back in other rows."""

import numpy as np
import pytest

from mcpca import MCPCA, match_components
from mcpca._covariances.context_covariances import covariances_of
from mcpca._covariances.passes import Passes
from mcpca._covariances.streamed import StreamedCovariances
from mcpca._data.contexts import read_contexts
from mcpca._inference.replication import agreement_of_halves
from mcpca._inference.sampling import split_rows
from mcpca.datasets import make_contexts


@pytest.fixture(scope="module")
def planted():
    return make_contexts(6, 20, 3, n_samples=200, noise=0.2, random_state=0)


@pytest.mark.parametrize("shuffled", [False, True])
def test_parts_share_no_row_and_lose_none(planted, shuffled):
    order = np.random.default_rng(1).permutation(len(planted.X)) if shuffled else np.arange(len(planted.X))
    X, y = planted.X[order], planted.y[order]
    for share in (0.5, 0.9):
        parts = split_rows(read_contexts(X, y), share, np.random.default_rng(0))
        for i in range(6):
            rows = [part.block(i) for part in parts]
            assert [len(r) for r in rows] == [int(200 * share), 200 - int(200 * share)]
            together = np.vstack(rows)
            context = X[y == i]
            np.testing.assert_array_equal(together[np.lexsort(together.T)], context[np.lexsort(context.T)])


def test_small_contexts_keep_two_rows(rng):
    first, second = split_rows(read_contexts([rng.standard_normal((5, 3))]), 0.1, rng)
    assert first.n_samples.tolist() == [2]
    assert second.n_samples.tolist() == [3]


def test_variances_along_is_that_of_the_covariances(planted, rng):
    A = rng.standard_normal((20, 4))
    contexts = read_contexts(planted.X + 1e3, planted.y)
    S = covariances_of(contexts, lambda *_: None).covariances
    rows = StreamedCovariances.of(contexts, 1, Passes.silent())
    np.testing.assert_allclose(rows.variances_along(A), np.einsum("pj,kpq,qj->kj", A, S, A), rtol=1e-8)


def test_agreement_is_in_the_order_of_the_whole(rng):
    A = np.linalg.qr(rng.standard_normal((10, 3)))[0]
    turned = A.copy()
    turned[:, 1] = (A[:, 1] + A[:, 0]) / np.sqrt(2)  # 45 degrees away
    agreement = agreement_of_halves(A[:, [2, 0, 1]], -turned[:, [1, 2, 0]], A)
    np.testing.assert_allclose(agreement, [1, np.sqrt(0.5), 1])


def test_planted_components_come_back_and_the_surplus_does_not(planted):
    model = MCPCA(4, random_state=0).fit(planted.X, planted.y)
    replicability = model.replicability(planted.X, planted.y, 3, random_state=0)
    assert replicability.cosines.shape == (3, 4)
    true = match_components(model.components_, planted.components).indices
    assert sorted(np.flatnonzero(replicability.replicates)) == sorted(true)
    assert replicability.n_replicating == 3
    np.testing.assert_allclose(replicability.agreement, replicability.cosines.mean(axis=0))


@pytest.mark.parametrize("solver", ["lsq", "ml"])
def test_the_models_own_solver_is_used(planted, solver):
    model = MCPCA(3, solver=solver, random_state=0).fit(planted.X, planted.y)
    replicability = model.replicability(planted.X, planted.y, 1, random_state=0)
    halves = split_rows(read_contexts(planted.X, planted.y), 0.5, np.random.default_rng(0).spawn(1)[0])
    refitted = [
        MCPCA(3, solver=solver, random_state=1).fit([half.block(i) for i in range(len(half.names))]) for half in halves
    ]
    expected = agreement_of_halves(refitted[0].components_, refitted[1].components_, model.components_)
    np.testing.assert_allclose(replicability.cosines[0], expected, atol=1e-5)


def test_reproducible_with_progress_and_names(planted):
    blocks = {f"c{i}": planted.X[planted.y == i] for i in range(6)}
    model = MCPCA(3, context_weights=dict.fromkeys(blocks, 1.0), random_state=0).fit(blocks)
    calls = []
    one = model.replicability(blocks, n_splits=2, random_state=3, verbose=lambda *c: calls.append(c))
    two = model.replicability(blocks, n_splits=2, random_state=3)
    np.testing.assert_array_equal(one.cosines, two.cosines)
    assert calls == [("halves", i, 4) for i in (1, 2, 3, 4)]


def test_errors(planted):
    model = MCPCA(3, random_state=0).fit(planted.X, planted.y)
    with pytest.raises(ValueError, match=r"n_splits=0 is out of bounds: n_splits >= 1"):
        model.replicability(planted.X, planted.y, 0)
    with pytest.raises(ValueError, match=r"threshold=2.* 0 <= threshold <= 1"):
        model.replicability(planted.X, planted.y, threshold=2)
    with pytest.raises(ValueError, match="needs the rows that the model was fitted on"):
        model.replicability(planted.X, planted.y + 1)
    with pytest.raises(ValueError, match="X has 5 features, but MCPCA is expecting 20"):
        model.replicability(planted.X[:, :5], planted.y)
    few = [planted.X[:3], planted.X[200:300]]
    with pytest.raises(ValueError, match=r"1 of 2 contexts have fewer than 4 rows.*0 \(3\).*bootstrap"):
        MCPCA(2, random_state=0).fit(few).replicability(few)
    small = [planted.X[:8]]
    with pytest.raises(ValueError, match="Half of the rows cannot be fitted with 5 components: n_components=5 exceeds"):
        MCPCA(5).fit(small).replicability(small, random_state=0)
