"""The loess curve: exact for quadratics, what scikit-misc gives, and sane where points coincide."""

import numpy as np
import pytest

from mcpca._linalg.loess import loess

# Points with a tie, out of order on purpose below, and what scikit-misc 0.5.3 fits with span=0.3, degree=2.
X = [
    *(-0.8, -0.566, -0.383, -0.245, -0.144, -0.034, -0.034, -0.011, -0.002, 0.0, 0.001, 0.006),
    *(0.023, 0.056, 0.114, 0.2, 0.323, 0.488, 0.7, 0.967, 1.294, 1.688, 2.155, 2.7),
]
Y = [
    *(-0.485, -0.741, -0.642, -0.286, 0.017, 0.258, 0.258, 0.288, 0.298, 0.3, 0.301, 0.306),
    *(0.319, 0.333, 0.323, 0.25, 0.126, 0.18, 0.7, 1.088, 0.682, 1.213, 0.591, 0.727),
]
FITTED = [
    *(-0.482206018986, -0.755835613458, -0.621548147977, -0.27477688491, 0.0127702299112, 0.257999927723),
    *(0.257999927723, 0.288004183986, 0.298012304051, 0.300072381142, 0.301076818156, 0.30585188531),
    *(0.319016549037, 0.332999890454, 0.323439802909, 0.254801053784, 0.146579236515, 0.196543272946),
    *(0.608528115291, 0.998996416196, 0.951376493149, 0.938082914683, 0.815100692472, 0.671215542734),
]


def test_the_values_of_scikit_misc(rng):
    order = rng.permutation(len(X))
    np.testing.assert_allclose(loess(np.array(X)[order], np.array(Y)[order]), np.array(FITTED)[order], rtol=1e-10)


@pytest.mark.parametrize("n", [14, 15, 200, 1001])
def test_a_quadratic_is_its_own_curve(rng, n):
    x = rng.normal(size=n) ** 3
    y = 2 - x + 0.3 * x**2
    np.testing.assert_allclose(loess(x, y), y, rtol=1e-9, atol=1e-9)


def test_a_curve_is_found_in_noise(rng):
    x = rng.uniform(-2, 2, 4000)
    fitted = loess(x, np.sin(2 * x) + 0.5 * rng.normal(size=4000))
    assert np.abs(fitted - np.sin(2 * x)).max() < 0.15


def test_shift_and_scale_of_both_variables(rng):
    x, y = rng.normal(size=(2, 300))
    np.testing.assert_allclose(loess(3 * x + 5, 2 * y - 1), 2 * loess(x, y) - 1, atol=1e-9)


def test_more_equal_points_than_neighbours(rng):
    """The curve goes through the mean of the points that coincide, and stays finite."""
    x = np.repeat([0.0, 1.0, 2.0], 50)
    y = x + rng.normal(size=150)
    fitted = loess(x, y)
    assert np.isfinite(fitted).all()
    assert loess(np.ones(50), y[:50]) == pytest.approx(np.full(50, y[:50].mean()))
    np.testing.assert_allclose(fitted[50:100], y[50:100].mean(), atol=1e-9)


def test_too_few_points():
    with pytest.raises(ValueError, match=r"n = 13 points are too few.*span=0.3: 3 neighbours.*at least 4; raise span"):
        loess(np.arange(13.0), np.arange(13.0))
