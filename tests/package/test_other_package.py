"""Code for the authors' package, which has the same import name, fails with what to write instead."""

import inspect
import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

import mcpca
from mcpca import MCPCA
from mcpca._utils.other_package import CHOOSE_RANK, FIT, NAMES, TRANSFORM, knows_other_options
from mcpca.datasets import make_contexts


@pytest.fixture(scope="module")
def truth():
    return make_contexts(5, 6, 3, random_state=0)


@pytest.fixture(scope="module")
def stack(truth):
    return mcpca.context_covariances(truth.X, truth.y).covariances


@pytest.mark.parametrize("name", NAMES)
def test_names_of_the_module(name):
    with pytest.raises(AttributeError, match=rf"mcpca\.{name} is of the authors' package"):
        getattr(mcpca, name)
    assert not hasattr(mcpca, name)
    with pytest.raises(ImportError, match=rf"mcpca\.{name} is of the authors' package"):
        exec(f"from mcpca import {name}")
    assert name not in dir(mcpca)


def test_other_names_are_unknown_as_ever():
    with pytest.raises(AttributeError, match="module 'mcpca' has no attribute 'nothing'"):
        mcpca.nothing  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        from mcpca import nothing  # noqa: F401


def test_what_messages_name_is_there():
    words = " ".join([*NAMES.values(), *FIT.values(), *TRANSFORM.values(), *CHOOSE_RANK.values()])
    named = re.findall(r"mcpca\.([A-Za-z_.]+)", words)
    assert len(named) > 10
    for path in named:
        thing = mcpca
        for part in path.strip(".").split("."):
            thing = getattr(thing, part)


@pytest.mark.parametrize("option", FIT)
def test_options_of_fit(truth, option):
    with pytest.raises(TypeError, match=rf"fit\(\) has no argument '{option}', which it has in the authors' package"):
        MCPCA(3).fit(truth.X, truth.y, **{option: True})


def test_options_of_transform_and_of_the_choice_of_the_rank(truth, stack):
    model = MCPCA(3, random_state=0).fit(truth.X, truth.y)
    with pytest.raises(TypeError, match=r"no argument 'return_list', .* a list of contexts gives a list of scores"):
        model.transform([truth.X[truth.y == name] for name in model.contexts_], return_list=True)
    for option in CHOOSE_RANK:
        with pytest.raises(TypeError, match=rf"choose_rank\(\) has no argument '{option}'"):
            mcpca.choose_rank(stack, **{option: True})


def test_centring_by_a_bool_and_fit_transform(truth):
    model = MCPCA(3, random_state=0).fit(truth.X, truth.y)
    with pytest.raises(ValueError, match=r"center=True is no mean; None, the default, .* numpy.zeros\(6\) leaves rows"):
        model.transform(truth.X, truth.y, center=True)
    np.testing.assert_allclose(model.transform(truth.X, center=np.zeros(6)), truth.X @ model.projection_.T)
    for option in ("return_list", "center"):
        with pytest.raises(TypeError, match=rf"fit\(\) has no argument '{option}'"):
            model.fit_transform([truth.X[truth.y == i] for i in range(5)], **{option: True})


def test_signatures_and_checks_stay(truth):
    for method in (MCPCA.fit, MCPCA.transform):
        parameters = inspect.signature(method).parameters
        assert not any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    assert has_fit_parameter(MCPCA(), "groups")
    assert not has_fit_parameter(MCPCA(), "plot_B")
    with pytest.raises(TypeError, match="unexpected keyword argument 'plot_C'"):
        MCPCA(3).fit(truth.X, truth.y, plot_C=True)
    assert clone(MCPCA(3)).fit(truth.X, truth.y).n_components_ == 3


def test_an_option_of_its_own_is_not_taken_from_a_function():
    with pytest.raises(AssertionError, match=r"has \['a'\] of its own"):
        knows_other_options({"a": "b"})(lambda a: a)


@pytest.mark.parametrize(
    "call",
    [
        lambda T: mcpca.decompose(T, 2),
        lambda T: MCPCA(2).fit(T),
        lambda T: MCPCA(2).fit_covariances(T),
        lambda T: mcpca.choose_rank(T, [1, 2]),
        lambda T: mcpca.baselines.run("mspm", T, 2),
    ],
)
def test_contexts_along_the_last_axis(stack, call):
    with pytest.raises(ValueError, match=r"pass [SX]\.transpose\(2, 0, 1\), of shape \(5, 6, 6\)"):
        call(stack.transpose(1, 2, 0))
    # As many contexts as features: only symmetry tells.
    square = np.concatenate([stack, stack[:1]])
    with pytest.raises(ValueError, match=r"is not symmetric.* pass [SX]\.transpose\(2, 0, 1\), of shape \(6, 6, 6\)"):
        call(square.transpose(1, 2, 0))


def test_other_shapes_get_no_such_advice(stack):
    with pytest.raises(ValueError, match=r"got shape \(5, 6, 4\)\.$"):
        mcpca.decompose(stack[:, :, :4], 2)
    skew = np.random.default_rng(0).standard_normal((6, 6, 5))
    with pytest.raises(ValueError, match=r"got shape \(6, 6, 5\)\.$"):
        mcpca.decompose(skew, 2)


def test_the_authors_toy_example():
    """Two data sets of two features: their covariances, and the numbers that the authors' notebook prints for them."""
    S = np.array(
        [
            [[3.3499492800217623, 0.8297225651339077], [0.8297225651339077, 0.8165216769995053]],
            [[3.919244940955188, 3.2792875961324235], [3.2792875961324235, 3.266086707998021]],
        ]
    )
    A = np.array([[-0.70824722, 0.9999912], [-0.7059645, 0.0041948]])
    B = np.array([[1.63824306, 2.5282279], [6.55330696, 0.63202469]])
    choice = mcpca.choose_rank(S, [1, 2], cos_sim_threshold=0.9, random_state=0)
    assert choice.rank == 2  # r_ there
    found = mcpca.decompose(S, choice.rank, random_state=0)
    matched = mcpca.match_components(found.components, A)
    np.testing.assert_allclose(matched.cosines, 1, atol=1e-12)
    np.testing.assert_allclose(found.components * [-1, 1], A, atol=1e-8)  # signs and order are free; ours is this one
    np.testing.assert_allclose(found.loadings, B, rtol=1e-7)
    # Two contexts and two components: the model is exact.
    np.testing.assert_allclose(found.components * found.loadings[:, None] @ found.components.T, S, rtol=1e-9)
