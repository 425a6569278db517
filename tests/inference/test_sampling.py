"""Rows that were sampled together: splits, resamples and parts by groups and by contexts."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from mcpca._data.contexts import read_contexts
from mcpca._data.row_designs import SamplingGroups
from mcpca._inference.sampling import (
    GroupDesign,
    Halves,
    checked_groups,
    draw_groups,
    split_parts,
    subsample_groups,
    without_some_groups,
)


def grouped(codes):
    """Contexts whose rows are numbered 0, 1, ... in their only feature; ``codes`` are the groups of each context."""
    blocks = [np.arange(len(c), dtype=float)[:, None] + 100 * i for i, c in enumerate(codes)]
    n_groups = int(max(max(c) for c in codes)) + 1
    return replace(read_contexts(blocks), groups=SamplingGroups([np.array(c) for c in codes], np.arange(n_groups)))


def groups_in(contexts):
    return [set(codes.tolist()) for codes in contexts.groups.codes]


NESTED = grouped([np.repeat([0, 1, 2, 3], 5), np.repeat([4, 5, 6], 5), np.repeat([7, 8, 9, 10], [9, 2, 3, 6])])
CROSSED = grouped([np.repeat([0, 1, 2, 3], 3)] * 3)


@pytest.mark.parametrize("contexts", [NESTED, CROSSED], ids=["nested", "crossed"])
def test_halves_share_no_group_and_have_all_rows(contexts):
    for seed in range(20):
        first, second = Halves(contexts, "groups", 5).split(0, np.random.default_rng(seed))
        for i, (a, b) in enumerate(zip(groups_in(first), groups_in(second), strict=True)):
            assert not a & b
            assert a | b == groups_in(contexts)[i]
            assert abs(len(a) - len(b)) <= 1
        rows = np.concatenate([np.concatenate([half.dense_block(i) for i in range(3)]) for half in (first, second)])
        assert sorted(rows.ravel()) == sorted(np.concatenate([contexts.dense_block(i) for i in range(3)]).ravel())


def test_a_crossed_group_is_on_the_same_side_everywhere():
    sides = [Halves(CROSSED, "groups", 2).split(0, np.random.default_rng(seed))[0] for seed in range(10)]
    for half in sides:
        assert len(set(map(frozenset, groups_in(half)))) == 1
    # By chance, not always the same.
    assert len({frozenset(groups_in(half)[0]) for half in sides}) > 2


def test_groups_of_neighbouring_sizes_go_to_different_halves():
    contexts = grouped([np.repeat(np.arange(6), [100, 90, 40, 30, 6, 5])])
    for seed in range(10):
        first, second = Halves(contexts, "groups", 2).split(0, np.random.default_rng(seed))
        assert abs(int(first.n_samples[0]) - int(second.n_samples[0])) <= 10 + 10 + 1


def test_few_groups_have_few_splits_and_each_is_taken_once():
    halves = Halves(grouped([np.repeat([0, 1, 2], 4)] * 2), "groups", 10)
    assert halves.n_splits == halves.n_ways == 3
    rng = np.random.default_rng(0)
    seen = [frozenset(map(frozenset, (groups_in(half)[0] for half in halves.split(i, rng)))) for i in range(3)]
    assert set(seen) == {frozenset([frozenset([g]), frozenset({0, 1, 2} - {g})]) for g in range(3)}
    one = Halves(grouped([np.repeat([0, 1], 4)] * 2), "groups", 10)
    assert one.n_splits == one.n_ways == 1


def test_numbers_of_splits_are_those_of_a_slow_count():
    def counted(sizes):
        """Count assignments of groups to two sides, balanced in each context, up to a swap."""
        total = 1
        for g in sizes:
            total *= sum(1 for m in {g // 2, -(-g // 2)} for _ in combinations(range(g), m))
        return total // 2

    for sizes in ([2, 2], [3, 2], [4], [5], [3, 3, 2]):
        starts = np.cumsum([0, *sizes])
        codes = [np.repeat(np.arange(a, a + g), 3) for a, g in zip(starts, sizes, strict=False)]
        assert Halves(grouped(codes), "groups", 10_000).n_ways == counted(sizes)


def test_a_context_with_one_group_takes_no_part():
    contexts = grouped([np.repeat([0, 1], 4), [2] * 6, np.repeat([3, 4], 4)])
    halves = Halves(contexts, "groups", 3)
    pairs = [halves.split(i, np.random.default_rng(i)) for i in range(halves.n_splits)]
    assert all(first.names.tolist() == [0, 2] for first, _ in pairs)
    assert halves.left_out(pairs) == (1,)


def test_contexts_of_a_triangle_of_groups_leave_a_split_one_at_a_time():
    # Every context has two of three groups: whatever the sides, two groups are on the same one.
    contexts = grouped([np.repeat(pair, 3) for pair in ([0, 1], [1, 2], [0, 2])])
    halves = Halves(contexts, "groups", 10)
    for i in range(halves.n_splits):
        first, second = halves.split(i, np.random.default_rng(i))
        assert len(first.names) == len(second.names) == 2


def test_halves_of_contexts_keep_those_of_a_group_together():
    codes = [np.repeat([0, 1], 3), np.repeat([0, 2], 3), [3] * 4, [4] * 4, [5] * 4, [6] * 4]
    halves = Halves(grouped(codes), "contexts", 6)
    for i in range(halves.n_splits):
        first, second = (set(half.names.tolist()) for half in halves.split(i, np.random.default_rng(i)))
        assert first | second == set(range(6))
        assert not first & second
        assert min(len(first), len(second)) >= 2
        assert ({0, 1} <= first) or ({0, 1} <= second)


@pytest.mark.parametrize(
    ("codes", "by", "message"),
    [
        ([[0] * 4, [1] * 4], "groups", "every context has a single group"),
        ([np.repeat([0, 1], 3)] * 4, "contexts", "groups tie all 4 contexts together"),
        ([np.repeat([2 * i, 2 * i + 1], 3) for i in range(3)], "contexts", "at least 4 contexts.*there are 3 contexts"),
    ],
)
def test_what_cannot_be_split_is_an_error_with_a_way_out(codes, by, message):
    with pytest.raises(ValueError, match=message):
        Halves(grouped(codes), by, 5)


def test_rows_that_are_their_own_groups_are_rows():
    contexts = grouped([np.arange(5), np.arange(5, 9)])
    assert checked_groups(contexts).groups is None
    with pytest.raises(ValueError, match=r"one label 0 for all 9 rows.*pass a label for each unit"):
        checked_groups(grouped([[0] * 5, [0] * 4]))


def test_resamples_draw_whole_groups_within_contexts():
    for seed in range(10):
        drawn = draw_groups(NESTED, np.random.default_rng(seed))
        for i, codes in enumerate(drawn.groups.codes):
            values, counts = np.unique(codes, return_counts=True)
            sizes = np.array([(NESTED.groups.codes[i] == g).sum() for g in values])
            assert (counts % sizes == 0).all()
            # As many groups as the context has, some of them more than once.
            assert (counts // sizes).sum() == len(set(NESTED.groups.codes[i].tolist()))


def test_resamples_of_crossed_groups_are_the_same_in_every_context():
    for seed in range(10):
        codes = [np.sort(c) for c in draw_groups(CROSSED, np.random.default_rng(seed)).groups.codes]
        assert all(np.array_equal(c, codes[0]) for c in codes)


def test_subsamples_leave_groups_out_and_repeat_none():
    for seed in range(10):
        drawn = subsample_groups(NESTED, 0.8, np.random.default_rng(seed))
        assert [len(g) for g in groups_in(drawn)] == [3, 2, 3]
        for i in range(3):
            assert len(np.unique(drawn.dense_block(i))) == drawn.n_samples[i]


def test_parts_have_every_group_once_and_every_context():
    for contexts in (NESTED, CROSSED):
        parts = split_parts(contexts, 5, np.random.default_rng(0))
        assert len(parts) == min(len(g) for g in groups_in(contexts))
        for i in range(3):
            rows = np.concatenate([part[i] for part in parts])
            assert sorted(rows) == list(range(contexts.n_samples[i]))
            seen = [set(contexts.groups.codes[i][part[i]].tolist()) for part in parts]
            assert sum(map(len, seen)) == len(set.union(*seen))


def test_a_tenth_is_held_out_in_whole_groups():
    codes = [np.repeat(np.arange(20), 5), np.repeat([20, 21], 10), [22] * 8]
    rest = without_some_groups(grouped(codes), 0.1, np.random.default_rng(0))
    assert [len(g) for g in groups_in(rest)] == [18, 1, 1]
    assert rest.n_samples.tolist() == [90, 10, 8]


def test_components_join_groups_that_meet():
    design = GroupDesign.of(grouped([[0, 0, 1, 1], [1, 1, 2, 2], [3, 3, 4, 4]]))
    assert len(set(design.component[:3].tolist())) == 1
    assert design.component[3] == design.component[4] != design.component[0]
    assert design.groups_to_draw.tolist() == [3, 3, 2]
    assert design.crossed
