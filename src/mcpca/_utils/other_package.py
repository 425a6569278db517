"""The authors' own package, which has the same import name: what its names and options are called here.

Code written for it fails here, and should fail with the way out: ``__getattr__`` of the package asks ``moved_name``,
and ``knows_other_options`` stands before methods that had other options there. ``docs/migration.md`` has the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_PAGE = "docs/migration.md has the whole list"
_TENSOR = "covariances are stacked as (k, p, p) here, T.transpose(2, 0, 1) of a (p, p, k) tensor"

# Names of the module: what to write instead.
NAMES = {
    "MCPCA_decompose": f"call mcpca.decompose(S, r), whose result has components and loadings; {_TENSOR}",
    "cov_tensor": "call mcpca.context_covariances(X_list); its covariances are stacked as (k, p, p)",
    "similarity_measures": "call mcpca.ascore(A, B) for the mean |cos|, mcpca.match_components(A, B) for each pair",
    "SPM21": f"its spm_21sym is mcpca.decompose(S, r); {_TENSOR}",
    "MCPCA_module": "its functions are mcpca.decompose, mcpca.choose_rank, mcpca.context_covariances and mcpca.ascore",
    "MCPCA_core": "its functions are mcpca.decompose, mcpca.choose_rank, mcpca.context_covariances and mcpca.ascore",
    "MCPCA_class": "its class is mcpca.MCPCA",
    "myutils": "nothing of it is needed here",
    "compiler_options": "nothing of it is needed here: there is no compiler to choose",
}
TRANSFORM = {
    "return_list": "a list of contexts gives a list of scores, and one matrix with its labels, transform(X, y), one "
    "array in the order of its rows",
}
FIT = {
    "plot_A": "fit, then call mcpca.plotting.plot_components(model), or plot_component_images if features are pixels",
    "plot_B": "fit, then call mcpca.plotting.plot_loadings(model)",
    "store_tensor": "covariances are those of mcpca.context_covariances(X, y), and of the model model.covariances()",
    "scree_plot": "fit, then call mcpca.plotting.plot_scree(model)",
    # fit_transform passes these on to fit.
    "center": "fit(X), then transform(X, center=...), where None, the default, takes the fitted means",
    **TRANSFORM,
}
CHOOSE_RANK = {
    "rank_range": "candidates are the second argument, ranks",
    "stats": "the result has rank, and scores, the agreement of each pair of runs at each rank",
    "scree_plot": "call mcpca.plotting.plot_scree(model) of a fitted model",
}


def moved_name(name: str) -> str | None:
    """Return the message for a name of the authors' package, None for any other."""
    if name not in NAMES:
        return None
    return f"mcpca.{name} is of the authors' package, which has the same name as this one: {NAMES[name]}. {_PAGE}."


def knows_other_options(options: Mapping[str, str]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a function say what to write in place of keyword arguments that it had in the authors' package.

    The signature stays that of the function, for scikit-learn and for help; any other unknown argument is refused by
    Python itself.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        known = signature(function).parameters
        doubled = [name for name in options if name in known]
        assert not doubled, f"{function.__qualname__} has {doubled} of its own"

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            # Nothing to look for in calls without keywords, or with the function's own ones.
            for name in kwargs:
                if name in options:
                    raise TypeError(
                        f"{function.__name__}() has no argument {name!r}, which it has in the authors' package: "
                        f"{options[name]}. {_PAGE}."
                    )
            return function(*args, **kwargs)

        return checked

    return decorate
