"""Distances are SciPy's where SciPy has them; trees join what was planted together; orders put like beside like."""

import numpy as np
import pytest
from scipy.cluster.hierarchy import cophenet, fcluster, leaves_list, linkage
from scipy.spatial.distance import pdist, squareform

from mcpca.context_tree import DISTANCE_METRICS, context_distances, context_linkage, similar_order


def planted(rng, sizes=(4, 3, 5), r=6):
    """Loadings of contexts in families that share a profile but not a scale, shuffled; and their families."""
    profiles = rng.exponential(size=(len(sizes), r)) ** 2
    family = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    noise = rng.uniform(0.9, 1.1, (len(family), r))
    return profiles[family] * noise * rng.uniform(1, 50, (len(family), 1)), family


@pytest.mark.parametrize("metric", DISTANCE_METRICS)
def test_distances_are_those_of_scipy(metric, rng):
    B = rng.exponential(size=(9, 5))
    np.testing.assert_allclose(context_distances(B, metric), pdist(B, metric), atol=1e-14)


@pytest.mark.parametrize("metric", ["correlation", "cosine"])
def test_contexts_that_have_no_direction_are_at_distance_one_and_together(metric):
    constant = 0.0 if metric == "cosine" else 0.1  # which has no exact binary form
    B = np.array([[1.0, 2, 3], [constant] * 3, [2, 4, 6], [3 * constant] * 3])
    D = squareform(context_distances(B, metric))
    np.testing.assert_allclose(D[1], [1, 0, 1, 0])
    np.testing.assert_allclose(D[0, 2], 0, atol=1e-15)


def test_distances_of_tiny_and_huge_loadings_do_not_depend_on_their_scale(rng):
    B = rng.exponential(size=(5, 4))
    np.testing.assert_allclose(context_distances(1e-200 * B), context_distances(1e200 * B), rtol=1e-10)


@pytest.mark.parametrize("method", ["average", "complete", "single", "weighted"])
def test_families_are_the_branches(method, rng):
    B, family = planted(rng)
    found = fcluster(context_linkage(B, method=method), 3, "maxclust")
    assert len(set(zip(found, family, strict=True))) == 3


def test_ward_goes_by_euclidean_distance(rng):
    B = np.repeat(10.0 * np.eye(3), 3, axis=0) + rng.uniform(size=(9, 3))
    found = fcluster(context_linkage(B, method="ward", metric="euclidean"), 3, "maxclust")
    assert len(set(zip(found, np.repeat(range(3), 3), strict=True))) == 3


def test_height_of_a_join_is_the_mean_distance_of_what_is_joined(rng):
    B = rng.exponential(size=(6, 4))
    tree, D = context_linkage(B), squareform(context_distances(B))
    joined = squareform(cophenet(tree))
    left = {int(tree[-1, 0]), int(tree[-1, 1])}
    members = [_members(tree, node) for node in left]
    np.testing.assert_allclose(tree[-1, 2], D[np.ix_(*members)].mean())
    np.testing.assert_allclose(joined[np.ix_(*members)], tree[-1, 2])


def _members(tree, node):
    k = len(tree) + 1
    return [node] if node < k else [m for child in tree[node - k, :2] for m in _members(tree, int(child))]


def test_order_puts_like_beside_like(rng):
    B, family = planted(rng)
    order = similar_order(B)
    assert sorted(order) == list(range(len(B)))
    assert np.count_nonzero(np.diff(family[order])) == 2
    distances = context_distances(B, "cosine")
    plain, D = leaves_list(linkage(distances, "average")), squareform(distances)
    assert D[order[:-1], order[1:]].sum() < D[plain[:-1], plain[1:]].sum()


@pytest.mark.parametrize("k", [1, 2])
def test_one_or_two_stay_where_they_are(k):
    assert similar_order(np.eye(k)).tolist() == list(range(k))


@pytest.mark.parametrize(
    ("B", "arguments", "match"),
    [
        (np.eye(3), {"metric": "city"}, r"metric='city' is unknown; choose one of \['correlation'"),
        (np.eye(3), {"method": "best"}, r"method='best' is unknown; choose one of \['average'"),
        (np.eye(3), {"method": "ward"}, "method='ward' needs metric='euclidean', got metric='correlation'"),
        (np.ones((1, 3)), {}, "B has 1 context, and a tree needs at least 2"),
        (np.full((3, 2), np.nan), {}, r"B must be a \(k, r\) matrix of finite loadings"),
        (np.ones(3), {}, r"got shape \(3,\)"),
    ],
)
def test_errors(B, arguments, match):
    with pytest.raises(ValueError, match=match):
        context_linkage(B, **arguments)
