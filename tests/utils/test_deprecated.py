"""What is on its way out: warnings with both versions at the caller's line, and none that outstays its time."""

import importlib
import inspect
import json
import re
import sys
import types
import warnings

import numpy as np
import pytest
from pages import ROOT

import mcpca
from mcpca._utils import deprecated as module
from mcpca._utils.deprecated import (
    DEPRECATIONS,
    deprecated,
    overdue,
    release_of,
    renamed_names,
    renamed_parameter,
)

WHEN = {"since": "0.2.0", "removed_in": "0.4.0"}


@pytest.fixture(autouse=True)
def _own_list(monkeypatch):
    """What tests deprecate is not of the package."""
    monkeypatch.setattr(module, "DEPRECATIONS", list(DEPRECATIONS))


def test_a_function_warns_at_the_line_that_calls_it():
    @deprecated("mcpca.old", **WHEN, instead="call mcpca.new")
    def old(x, *, y=1):
        """Add."""
        return x + y

    assert old.__doc__ == "Add."
    assert str(inspect.signature(old)) == "(x, *, y=1)"
    told = re.escape("mcpca.old is deprecated since mcpca 0.2.0 and goes in mcpca 0.4.0: call mcpca.new.")
    with pytest.warns(FutureWarning, match=told) as caught:
        assert old(2, y=3) == 5
    assert caught[0].filename == __file__


def test_the_getter_of_a_property_warns():
    class Result:
        @property
        @deprecated("Result.old", **WHEN, instead="use Result.new")
        def old(self):
            return 3

    with pytest.warns(FutureWarning, match=r"Result\.old is deprecated"):
        assert Result().old == 3


def test_an_argument_goes_by_its_old_name_too():
    @renamed_parameter("n_comps", "n_components", **WHEN)
    def fit(X, n_components=2):
        return X, n_components

    assert list(inspect.signature(fit).parameters) == ["X", "n_components"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fit(1, 5) == fit(1, n_components=5) == (1, 5)
    with pytest.warns(
        FutureWarning, match=r"'n_comps' of .*fit\(\) is deprecated .* called 'n_components' now"
    ) as caught:
        assert fit(1, n_comps=5) == (1, 5)
    assert caught[0].filename == __file__
    with pytest.raises(TypeError, match="both 'n_components' and 'n_comps'"):
        fit(1, n_components=5, n_comps=5)


@pytest.mark.parametrize(("old", "new"), [("n_comps", "rank"), ("X", "X")])
def test_an_argument_that_is_not_renamed_cannot_be_declared_so(old, new):
    with pytest.raises(AssertionError):
        renamed_parameter(old, new, **WHEN)(lambda X: X)


def test_a_module_finds_what_it_calls_something_else_now(monkeypatch):
    other = types.ModuleType("some_module")
    other.new = object()
    other.__getattr__ = renamed_names("some_module", {"old": "new"}, **WHEN)
    monkeypatch.setitem(sys.modules, "some_module", other)
    with pytest.warns(FutureWarning, match=r"some_module\.old is deprecated .* called some_module\.new now") as caught:
        from some_module import old
    assert old is other.new
    assert caught[0].filename == __file__
    with pytest.raises(AttributeError, match="module 'some_module' has no attribute 'odl'"):
        _ = other.odl


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("0.4.0", (0, 4, 0)), ("0.4.0rc1", (0, 4, 0)), ("0.4.0.dev3+g1a2b", (0, 4, 0)), ("1.12", (1, 12))],
)
def test_numbers_of_versions(version, numbers):
    assert release_of(version) == numbers


def test_what_outstays_its_time_is_found():
    assert not any(noted.what == "mcpca.old" for noted in overdue("99.0"))
    deprecated("mcpca.old", **WHEN, instead="call mcpca.new")
    for version in ("0.4.0", "0.4.0.dev1+gabc", "0.10.0", "1.0.0"):
        assert "mcpca.old" in [noted.what for noted in overdue(version)]
    for version in ("0.2.0", "0.3.9", "0.3.10.dev4"):
        assert "mcpca.old" not in [noted.what for noted in overdue(version)]
    with pytest.raises(AssertionError, match="would go before"):
        deprecated("mcpca.old", since="0.4.0", removed_in="0.4.0", instead="")


def test_nothing_in_the_package_outstays_its_time():
    """Whatever fails here is to be removed, with its tests and a fragment of type removed."""
    users = {}
    for path in (ROOT / "src").rglob("*.py"):
        uses = len(re.findall(r"@deprecated\(|@renamed_parameter\(|= renamed_names\(", path.read_text()))
        if uses:
            users[".".join(path.relative_to(ROOT / "src").with_suffix("").parts)] = uses
    for name in users:
        importlib.import_module(name.removesuffix(".__init__"))
    assert len(DEPRECATIONS) >= sum(users.values())
    assert [str(noted) for noted in overdue(mcpca.__version__)] == []
    for noted in DEPRECATIONS:
        since, gone = release_of(noted.since), release_of(noted.removed_in)
        assert gone >= (since[0], since[1] + 2, 0), f"{noted.what} goes sooner than the policy promises"


def test_number_of_features_of_a_rank_choice():
    selection = mcpca.RankSelection(2, "Why.", 2, np.array([1, 2]), {}, {}, None)
    with pytest.warns(FutureWarning, match=r"RankSelection\.of_features .* 0\.4\.0") as caught:
        assert selection.of_features is None
    assert caught[0].filename == __file__
    written = json.loads(selection.to_json())
    assert "of_features" not in written
    # Files from before have it.
    assert mcpca.RankSelection.from_json(json.dumps(written | {"of_features": 500})).rank == 2
