"""The time left: true within a factor of two where parts vary, and nothing where it cannot be known."""

import copy
import pickle

import numpy as np
import pytest

from mcpca._utils.progress import Search, within
from mcpca._utils.stages import Stage, kind_of, uneven
from mcpca._utils.time_left import Pace


def told(durations, threads=1):
    """Return the true and the estimated time left (or None) at 200 moments of a stage whose parts take ``durations``.

    Threads end their parts together, as slow as the slowest. Moments are those after a tenth of the parts, or 3 s.
    """
    n = len(durations)
    slowest = [max(durations[i : i + threads]) for i in range(0, n, threads)]
    ends = np.cumsum(slowest)
    counts = np.minimum(threads * np.arange(1, len(ends) + 1), n)
    pace = Pace(0.0, 0)
    pairs = []
    done = 0
    for now in np.linspace(0, ends[-1], 202)[1:-1]:
        while done < len(ends) and ends[done] <= now:
            pace.reached(float(ends[done]), int(counts[done]))
            done += 1
        if now >= 3 or (done and counts[done - 1] >= n / 10):
            pairs.append((ends[-1] - now, pace.left(float(now), n)))
    return pairs


STAGES = {
    "20 parts, a third apart": (lambda rng: rng.gamma(9, 1 / 3, 20), 1, 0.02),
    "20 parts, half apart": (lambda rng: rng.gamma(4, 3 / 4, 20), 1, 0.05),
    "100 parts, as far apart as they are long": (lambda rng: rng.gamma(1, 1, 100), 1, 0.05),
    "1000 parts, twice as far apart": (lambda rng: rng.gamma(0.25, 0.4, 1000), 1, 0.02),
    "200 parts in 4 threads": (lambda rng: rng.gamma(4, 1 / 4, 200), 4, 0.02),
    "8 parts": (lambda rng: rng.gamma(25, 4 / 25, 8), 1, 0.02),
    "100 parts that become twice as long": (lambda rng: np.linspace(1, 2, 100) * rng.gamma(4, 1 / 4, 100), 1, 0.05),
    "100 parts that become twice as quick": (lambda rng: np.linspace(2, 1, 100) * rng.gamma(4, 1 / 4, 100), 1, 0.05),
}


@pytest.mark.parametrize("stage", STAGES)
def test_true_within_a_factor_of_two(stage):
    draw, threads, misses = STAGES[stage]
    rng = np.random.default_rng(7)
    pairs = [pair for _ in range(40) for pair in told(draw(rng), threads)]
    said = [(true, left) for true, left in pairs if left is not None]
    assert len(said) > 0.8 * len(pairs)  # not true by silence
    # A second more or less is as near as a line that shows whole seconds can be.
    wrong = [not (left <= 2 * true + 1 and true <= 2 * left + 1) for true, left in said]
    assert np.mean(wrong) < misses


def test_equal_parts_are_told_to_the_second():
    pairs = told(np.full(40, 2.0))
    said = [(true, left) for true, left in pairs if left is not None]
    assert len(said) > 0.9 * len(pairs)
    assert max(abs(true - left) for true, left in said) < 2.01  # a part: the one under way may be at its end


def test_the_estimate_falls_between_reports_and_rises_for_a_part_that_does_not_end():
    pace = Pace(0.0, 0)
    for i in range(1, 5):
        pace.reached(10.0 * i, i)
    lefts = [pace.left(now, 10) for now in (40.0, 44.0, 49.0)]
    assert lefts == [60.0, 56.0, 51.0]
    assert pace.left(60.0, 10) == pytest.approx(12.0 * 5)  # five parts have taken 60 s at least
    assert pace.left(1000.0, 10) > 900


@pytest.mark.parametrize(
    ("marks", "now"),
    [
        ([], 100.0),  # nothing done
        ([(0.2, 5)], 0.5),  # the first second
        ([(1.0, 1), (2.0, 2)], 2.0),  # neither three seconds nor a tenth
        ([(5.0, 1)], 6.0),  # one of a hundred, alone
        ([(1.0, 1), (40.0, 2), (40.5, 3), (41.0, 4)], 41.5),  # all of it in one part: who knows
        ([(10.0, 100)], 20.0),  # done
    ],
)
def test_silence_where_it_is_not_known(marks, now):
    pace = Pace(0.0, 0)
    for when, done in marks:
        pace.reached(when, done)
    assert pace.left(now, 100) is None


def test_parts_of_an_earlier_run_do_not_count_and_marks_are_bounded():
    pace = Pace(50.0, 900)
    for i in range(1, 51):
        pace.reached(50.0 + i, 900 + i)
        pace.reached(50.0 + i, 900)  # what goes back is not believed
    assert pace.left(100.0, 1000) == pytest.approx(50.0)
    many = Pace(0.0, 0)
    for i in range(1, 100_001):
        many.reached(i / 100, i)
    assert len(many._marks) <= 129
    assert many.left(1000.0, 200_000) == pytest.approx(1000.0, rel=0.02)


def test_stages_are_text_that_knows_its_kind():
    stage = uneven("components")
    assert (stage, kind_of(stage), kind_of("components")) == ("components", "uneven", "even")
    assert isinstance(stage, str)
    assert {stage: 1}["components"] == 1
    for other in (copy.deepcopy(stage), pickle.loads(pickle.dumps(stage))):
        assert (other, other.kind) == ("components", "uneven")
    seen = []
    Search(within(lambda *call: seen.append(call), "second start"), "likelihood", 30)
    assert seen == [("second start: likelihood", 0, 30)]
    assert kind_of(seen[0][0]) == "bounded"
    assert Stage("pass 1, means", "pass") == "pass 1, means"
