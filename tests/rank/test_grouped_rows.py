"""``groups=`` in the choice of a rank: noise within and between groups, and halves of groups and of contexts."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from mcpca import MCPCA, RankSelection, select_rank
from mcpca._covariances.context_covariances import covariances_of
from mcpca._data.annotations import take_annotations
from mcpca._data.contexts import read_contexts
from mcpca._rank.grouped_rows import GroupedRows
from mcpca._rank.noise_test import ResidualTest
from mcpca.exceptions import NothingAboveNoiseError

P = 20


def donor_rows(seed, shift, strength=0.0, k=5, donors=6, n=25, crossed=False):
    """Noise, shifts of donors, and if ``strength`` is above 0 three axes with loadings up to it."""
    rng = np.random.default_rng(seed)
    A = np.linalg.qr(rng.standard_normal((P, 3)))[0]
    B = strength * rng.uniform(0.2, 1, (k, 3))
    shifts = shift * rng.standard_normal((1 if crossed else k, donors, 1, P))
    scores = rng.standard_normal((k, donors, n, 3)) * np.sqrt(B)[:, None, None]
    X = scores @ A.T + shifts + rng.standard_normal((k, donors, n, P))
    context, donor, _ = np.indices((k, donors, n))
    return X.reshape(-1, P), context.ravel(), (donor if crossed else donor + donors * context).ravel()


def grouped(X, y, **annotations):
    annotated = take_annotations(X, y, **annotations)
    contexts = annotated.attach(read_contexts(annotated.X, annotated.y))
    return contexts, covariances_of(contexts, lambda *a: None)


@pytest.mark.parametrize("crossed", [False, True], ids=["nested", "crossed"])
def test_shifts_of_donors_are_no_axes(crossed):
    for seed in range(4):
        X, y, donors = donor_rows(seed, 1.0, crossed=crossed)
        found = select_rank(X, y, groups=donors, criteria=(), random_state=0)
        assert (found.rank, found.outcome) == (0, "noise")
        assert "drawn for rows within groups and for groups" in found.reason
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert select_rank(X, y, criteria=(), random_state=0).rank > 0


def test_axes_beside_shifts_are_found_in_halves_of_groups():
    X, y, donors = donor_rows(0, 0.3, strength=6.0)
    found = select_rank(X, y, groups=donors, random_state=0)
    assert (found.rank, found.outcome) == (3, "agreed")
    assert found.replicability.by == "groups"
    assert "Halves of the groups agree" in found.reason
    # What other contexts say is reported beside it.
    assert found.replicability_by_contexts.by == "contexts"
    assert found.replicability_by_contexts.agreement.min() > 0.6
    assert "splits of the contexts" in found.reason
    assert found.columns["context agreement"][found.ranks.tolist().index(3)] > 0.6
    read = RankSelection.from_json(found.to_json())
    assert read.replicability.by == "groups"
    np.testing.assert_array_equal(read.replicability_by_contexts.cosines, found.replicability_by_contexts.cosines)


def test_shifts_that_hide_axes_are_removed_as_batches():
    X, y, donors = donor_rows(1, 1.5, strength=6.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hidden = select_rank(X, y, groups=donors, criteria=(), random_state=0)
    assert hidden.outcome == "at odds"
    assert "batch" in hidden.reason
    found = select_rank(X, y, groups=donors, batch=donors, criteria=(), random_state=0)
    assert (found.rank, found.outcome) == (3, "agreed")


def test_how_much_groups_differ_is_said_where_it_may_hide_axes():
    for shift, expected in ((0.0, 0.0), (0.3, 0.08), (0.8, 0.37)):
        X, y, donors = donor_rows(3, shift, strength=0.01, k=6, donors=20, n=30)
        contexts, moments = grouped(X, y, groups=donors)
        test = ResidualTest(moments, contexts, "auto", 0, 1)
        # Of noise with variance 1 and next to no axes, shift^2 / (shift^2 + 1).
        assert test.share_of_groups == pytest.approx(expected, abs=0.03)
        contexts, moments = grouped(X, y)
        assert ResidualTest(moments, contexts, "auto", 0, 1).share_of_groups == 0
    X, y, donors = donor_rows(0, 0.8, strength=20.0)
    found = select_rank(X, y, groups=donors, criteria=(), random_state=0)
    assert found.outcome == "agreed"
    assert "Differences between groups are" in found.reason
    X, y, donors = donor_rows(0, 0.1, strength=20.0)
    assert "Differences between" not in select_rank(X, y, groups=donors, criteria=(), random_state=0).reason


def test_a_model_chooses_the_same_rank():
    X, y, donors = donor_rows(2, 0.3, strength=6.0)
    model = MCPCA(random_state=0).fit(X, y, groups=donors)
    found = select_rank(X, y, groups=donors, criteria=(), random_state=0)
    assert model.n_components_ == found.rank
    assert model.rank_choice_.reason == found.reason
    with pytest.raises(NothingAboveNoiseError, match="rows within groups"):
        MCPCA(random_state=0).fit(*donor_rows(0, 1.0)[:2], groups=donor_rows(0, 1.0)[2])


def test_rows_of_their_own_change_nothing():
    X, y, _ = donor_rows(3, 0.0, strength=6.0)
    alone = select_rank(X, y, groups=np.arange(len(y)), criteria=(), random_state=0)
    plain = select_rank(X, y, criteria=(), random_state=0)
    assert alone.reason == plain.reason
    np.testing.assert_array_equal(alone.replicability.cosines, plain.replicability.cosines)


def test_two_and_three_donors_get_an_answer():
    for donors in (2, 3):
        X, y, groups = donor_rows(4, 0.2, strength=6.0, donors=donors, n=60, crossed=True)
        found = select_rank(X, y, groups=groups, criteria=(), random_state=0)
        assert found.rank == 3
        assert len(found.replicability.cosines) <= (1 if donors == 2 else 3)
    assert "only 3 ways" in found.reason or len(found.replicability.cosines) == 2


def test_contexts_that_are_one_group_each_are_told_what_to_ask():
    X, y, _ = donor_rows(5, 0.0, strength=6.0)
    with pytest.raises(ValueError, match=r"every context has a single group.*by='contexts'"):
        select_rank(X, y, groups=y, criteria=(), random_state=0)


def test_some_contexts_with_one_group_take_no_part_in_halves():
    X, y, donors = donor_rows(6, 0.2, strength=6.0, n=60)
    found = select_rank(X, y, groups=np.where(y == 0, -1, donors), criteria=(), random_state=0)
    assert found.rank == 3
    assert found.replicability.left_out == (0,)
    assert "1 context could not be split by groups and took no part: 0." in found.reason


def test_scatters_within_and_between_groups_add_up():
    X, y, donors = donor_rows(7, 0.8, strength=3.0)
    keep = np.random.default_rng(0).random(len(y)) < 0.7  # groups of unequal size
    contexts, moments = grouped(X[keep], y[keep], groups=donors[keep])
    parts = GroupedRows(contexts, moments)
    k = len(contexts.names)
    for i in range(k):
        rows = X[keep][y[keep] == i]
        codes = donors[keep][y[keep] == i]
        within = sum(np.cov(rows[codes == g].T, ddof=0) * (codes == g).sum() for g in np.unique(codes))
        n, g = len(rows), len(np.unique(codes))
        freedom = parts.moments.n_samples[[i, k + i]] - 1
        np.testing.assert_allclose(freedom, [n - g, g - 1])
        np.testing.assert_allclose(parts.moments.covariances[i] * (n - g), within, atol=1e-8)
        total = freedom @ parts.moments.covariances[[i, k + i]].reshape(2, -1)
        np.testing.assert_allclose(total.reshape(P, P), (n - 1) * moments.covariances[i], atol=1e-8)
        # The rows whose signs are drawn have these scatters.
        contrasts = parts.rows_within(i)
        assert contrasts.shape == (n - g, P)
        np.testing.assert_allclose(contrasts.T @ contrasts, within, atol=1e-8)
        between, present, basis = parts.rows_between(i)
        assert present.tolist() == np.unique(codes).tolist()
        np.testing.assert_allclose(basis.T @ between, 0, atol=1e-8)


def test_groups_that_are_batches_have_no_scatter_of_their_own():
    X, y, donors = donor_rows(8, 2.0)
    contexts, moments = grouped(X, y, groups=donors, batch=donors)
    freedom = contexts.n_samples - 6.0
    parts = GroupedRows(contexts, replace(moments, n_samples=freedom + 1))
    np.testing.assert_allclose(parts.moments.n_samples[:5] - 1, freedom)
    assert np.abs(parts.moments.n_samples[5:] - 1).max() < 1e-8
    assert not parts.moments.covariances[5:].any()
    assert (
        ResidualTest(replace(moments, n_samples=freedom + 1), contexts, "features", 0, 1).directions_above_noise() == 0
    )


def test_the_band_of_the_scree_holds_donors():
    X, y, donors = donor_rows(9, 1.0)
    contexts, moments = grouped(X, y, groups=donors)
    test = ResidualTest(moments, contexts, "features", 0, 1)
    band = test.scree_band()
    values = test.singular_values()
    assert (values <= band.mean(axis=0) + 5 * band.std(axis=0, ddof=1)).all()
    without = ResidualTest(moments, replace(contexts, groups=None), "features", 0, 1).scree_band()
    assert values[0] > (without.mean(axis=0) + 5 * without.std(axis=0, ddof=1))[0]


def test_covariances_have_no_groups():
    with pytest.raises(ValueError, match="groups has no effect, because it is about rows, and covariances have none"):
        select_rank(np.stack([np.eye(3)] * 2), n_samples=10, groups=["a", "b"])
