"""Numbers in sentences."""

import numpy as np
import pytest

from mcpca._utils.wording import beside, close_names, listed, nearest


@pytest.mark.parametrize(
    ("value", "bound", "options", "said"),
    [
        (0.8996, 0.9, (2,), "0.8996"),
        (0.9004, 0.9, (2,), "0.9004"),
        (0.9, 0.9, (2,), "0.90"),
        (0.85, 0.9, (2,), "0.85"),
        (4.98, 5.0, (1,), "4.98"),
        (4.6, 5.0, (0,), "4.6"),
        (1938.4, 5.0, (0,), "1938"),
        (1.04e-7, 1e-7, (1, "e"), "1.04e-07"),
        (np.nan, 0.9, (2,), "nan"),
    ],
)
def test_a_value_is_on_its_side_of_the_bound(value, bound, options, said):
    assert beside(value, bound, *options) == said


def test_no_value_is_rounded_across_its_bound(rng):
    for bound in (0.8, 0.9, 5.0):
        for value in bound + rng.standard_normal(50) * 10.0 ** -rng.integers(1, 15, 50):
            said = float(beside(value, bound))
            assert (said > bound, said < bound) == (value > bound, value < bound)


def test_names_are_listed_up_to_a_few():
    assert listed(["a", "b"]) == "a, b"
    assert listed(list("abcdefg")) == "a, b, c, d, e and 2 more"


def test_close_names_ignore_case_and_spaces_and_stay_cheap():
    assert close_names("grup", ["cell", "Group", "group"]) == ["Group"]  # the first of those that read alike
    assert close_names("MCPC1", ["MCPC 1", "MCPC 2"], 1) == ["MCPC 1"]
    assert close_names("x" * 200, ["x" * 200]) == []  # no slip of the keyboard
    assert close_names("last", [f"{i:08}" for i in range(3000)] + ["last"]) == []  # beyond those that are compared


def test_nearest_asks_or_lists():
    assert nearest("grup", ["group", "cell"]) == "did you mean 'group'?"
    assert nearest("zzz", ["group", "cell"]) == "there are 'group', 'cell'."
    assert nearest("zzz", []) == "there are none."
