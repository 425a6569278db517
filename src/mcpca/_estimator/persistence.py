"""One file for one fitted model: arrays and JSON in NumPy's npz container, no pickle, written atomically."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .._data.label_kinds import checked_names, labels_from_json, labels_to_json, names_to_json
from .._data.labels import name_array
from .._model.facets import Facets
from .._rank.paper_rule import RankChoice
from .._rank.selection import RankSelection
from .._utils.array_api import to_host
from .._utils.array_files import read_file, write_file
from .._utils.types import Array

FORMAT = "mcpca-model"
_ARRAYS = (
    "components_",
    "loadings_",
    "projection_",
    "singular_values_",
    "n_samples_per_context_",
    "means_",
    "noise_variance_",
)
_OPTIONAL = ("n_samples_per_context_", "means_", "noise_variance_")
_BY_CONTEXT = "by context"  # a dict in JSON
_FACETS = tuple(name for name in Facets.__dataclass_fields__ if name != "exponent")
_CHOICE = ["choice_ranks", "choice_scores", "choice_scree"]
# Shapes, with k contexts, p features and r components; none where the length is free.
_SHAPES = {
    **{"components_": "pr", "loadings_": "kr", "projection_": "rp", "means_": "kp", "singular_values_": ""},
    **{"n_samples_per_context_": "k", "noise_variance_": "k p", "score_covariances": "krr", "variance_outside": "k"},
    **{f"facet_{name}": "kr" if name == "variance_shares" else "k" for name in _FACETS},
}
_POSITIVE = ("loadings_", "singular_values_", "n_samples_per_context_", "noise_variance_", "facet_squared_norms")
_UNSETTLED = "choice_unsettled"
_WHOLE = ("n_samples_per_context_", "choice_ranks", _UNSETTLED)


def save_model(model: Any, path: Any) -> None:
    """Write a fitted MCPCA to ``path``; see ``MCPCA.save``."""
    write_file(path, FORMAT, *state_of(model))


def state_of(model: Any) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return all that a fitted MCPCA is: arrays by name, and what can be JSON."""
    arrays = {name: to_host(getattr(model, name)) for name in _ARRAYS if getattr(model, name) is not None}
    arrays |= {f"facet_{name}": getattr(model._facets, name) for name in _FACETS}
    header: dict[str, Any] = {
        "parameters": {name: _parameter_to_json(value) for name, value in model.get_params(deep=False).items()},
        "contexts": names_to_json(model.contexts_),
        "feature_names": names_to_json(getattr(model, "feature_names_in_", None)),
        "label_columns": getattr(model, "label_columns_", None),
        "n_iter": model.n_iter_,
        "n_passes": model.n_passes_,
        "basis_residual": model.basis_residual_,
        "exponent": model._facets.exponent,
    }
    if model._score_moments is not None:
        arrays |= {"score_covariances": model._score_moments[0], "variance_outside": model._score_moments[1]}
    choice = model.rank_choice_
    if isinstance(choice, RankSelection):
        header["selection"] = choice.to_json()
    elif choice is not None:
        arrays |= dict(zip(_CHOICE, (choice.ranks, choice.scores, choice.singular_values), strict=True))
        if choice.unsettled is not None:
            arrays[_UNSETTLED] = choice.unsettled
        header["matching"] = choice.matching
        header["choice"] = [choice.rank, choice.outcome, choice.reason, choice.threshold]
    return arrays, header


def load_model(cls: Any, path: Any) -> Any:
    """Read an MCPCA that ``save_model`` wrote."""
    known = [*_SHAPES, *_CHOICE, _UNSETTLED]
    arrays, header = read_file(path, FORMAT, "MCPCA model", "MCPCA.save", lambda header: known)
    required = [*(n for n in _ARRAYS if n not in _OPTIONAL), *(f"facet_{n}" for n in _FACETS)]
    required += _CHOICE if "choice" in header else []
    missing = [name for name in required if name not in arrays]
    missing += [name for name in ("parameters", "contexts", "feature_names", "n_iter") if name not in header]
    if missing:
        raise ValueError(f"path={str(path)!r} lacks {missing}; it is not a complete MCPCA model.")
    try:
        _check_arrays(arrays, header)
        model = from_state(cls, arrays, header)
        model._check_parameters()
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError) as error:
        raise ValueError(
            f"path={str(path)!r} is no MCPCA model that holds together: {error}. Save it again where it was fitted."
        ) from error
    return model


def _check_arrays(arrays: dict[str, Array], header: dict[str, Any]) -> None:
    """Raise where arrays do not have the shapes of one model, or values that no model has."""
    sizes = {"k": len(checked_names(header["contexts"], "contexts"))}
    if arrays["components_"].ndim != 2:
        raise ValueError(f"components_ has shape {arrays['components_'].shape} and not (p, r)")
    sizes["p"], sizes["r"] = arrays["components_"].shape
    for name, values in arrays.items():
        shapes = [tuple(sizes[letter] for letter in letters) for letters in _SHAPES.get(name, "").split()]
        if shapes and values.shape not in shapes:
            raise ValueError(f"{name} has shape {values.shape} where {' or '.join(map(str, shapes))} is needed")
        if values.dtype.kind not in ("iu" if name in _WHOLE else "f"):
            raise ValueError(f"{name} is of type {values.dtype}")
        # A loss is infinite where scores are singular.
        bad = np.isnan(values) if name == "facet_likelihood_losses" else ~np.isfinite(values)
        if bad.any():
            raise ValueError(f"{name} has values that are NaN or infinite")
        if name in _POSITIVE and values.size and values.min() < 0:
            raise ValueError(f"{name} has values below 0 (the smallest is {values.min():.3g})")
    if 0 in sizes.values():
        raise ValueError(f"it has {sizes['k']} contexts, {sizes['p']} features and {sizes['r']} components")
    for name, kinds in (("n_iter", int), ("n_passes", (int, type(None))), ("basis_residual", (int, float, type(None)))):
        if not isinstance(header.get(name), kinds):
            raise ValueError(f"{name} is {str(header.get(name))[:40]!r}")
    features = header["feature_names"]
    if features is not None and len(checked_names(features, "feature_names")) != sizes["p"]:
        raise ValueError(f"it has {len(features)} names for {sizes['p']} features")


def from_state(cls: Any, arrays: dict[str, Array], header: dict[str, Any]) -> Any:
    """Return the model that ``state_of`` told of."""
    known = cls().get_params(deep=False)
    # None stands for what was not kept, and is the default wherever that can be.
    given = {name: _parameter_from_json(value) for name, value in header["parameters"].items()}
    model = cls(**{n: v for n, v in given.items() if n in known})
    for name in _ARRAYS:
        setattr(model, name, arrays.get(name))
    model.n_features_in_, model.n_components_ = map(int, model.components_.shape)
    model.contexts_ = name_array(labels_from_json(header["contexts"]))
    if header["feature_names"] is not None:
        model.feature_names_in_ = name_array(labels_from_json(header["feature_names"])).astype(object)
    if header.get("label_columns"):
        model.label_columns_ = header["label_columns"]
    model.n_iter_ = header["n_iter"]
    model.n_passes_ = header.get("n_passes")
    model.basis_residual_ = header.get("basis_residual", 0.0)
    facets: dict[str, Any] = {name: arrays[f"facet_{name}"] for name in _FACETS}
    model._facets = Facets(**facets, exponent=int(header.get("exponent") or 0))
    evidence = arrays.get("score_covariances"), arrays.get("variance_outside")
    model._score_moments = None if evidence[0] is None else evidence
    model.rank_choice_ = RankSelection.from_json(header["selection"]) if "selection" in header else None
    if "choice" in header:
        rank, outcome, reason, threshold = header["choice"]
        ranks, scores, scree = (arrays[name] for name in _CHOICE)
        extra = arrays.get(_UNSETTLED), header.get("matching", "greedy")
        model.rank_choice_ = RankChoice(rank, outcome, reason, ranks, scores, threshold, scree, *extra)
    return model


def _parameter_to_json(value: Any) -> Any:
    """Return a constructor parameter as JSON, or None for what only the run needed (generators, functions)."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (range, tuple, np.ndarray)):
        value = [_parameter_to_json(v) for v in value]
    if isinstance(value, Mapping):  # by context, whose names need not be text
        return {_BY_CONTEXT: [labels_to_json(value), [_parameter_to_json(v) for v in value.values()]]}
    return value if isinstance(value, (str, int, float, bool, list, type(None))) else None


def _parameter_from_json(value: Any) -> Any:
    if not isinstance(value, dict) or list(value) != [_BY_CONTEXT]:
        return value
    names, values = value[_BY_CONTEXT]
    return dict(zip(labels_from_json(names), values, strict=True))
