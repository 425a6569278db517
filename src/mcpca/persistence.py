"""One file for one fitted model: arrays and JSON in NumPy's npz container, no pickle, written atomically."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._check import Array
from ._files import names_to_json, read_file, write_file
from ._namespace import to_host
from .labels import name_array
from .quality import Facets
from .rank import RankChoice
from .selection import RankSelection

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
_FACETS = tuple(Facets.__dataclass_fields__)
_CHOICE = ["choice_ranks", "choice_scores", "choice_scree"]
_UNSETTLED = "choice_unsettled"


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
    }
    if model._evidence is not None:
        arrays |= {"score_covariances": model._evidence[0], "variance_outside": model._evidence[1]}
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
    arrays, header = read_file(path, FORMAT, "MCPCA model", "MCPCA.save")
    required = [*(n for n in _ARRAYS if n not in _OPTIONAL), *(f"facet_{n}" for n in _FACETS)]
    required += _CHOICE if "choice" in header else []
    missing = [name for name in required if name not in arrays]
    if missing:
        raise ValueError(f"path={str(path)!r} lacks {missing}; it is not a complete MCPCA model.")
    return from_state(cls, arrays, header)


def from_state(cls: Any, arrays: dict[str, Array], header: dict[str, Any]) -> Any:
    """Return the model that ``state_of`` told of."""
    known = cls().get_params(deep=False)
    # None stands for what was not kept, and is the default wherever that can be.
    model = cls(**{n: v for n, v in header["parameters"].items() if n in known and not (n == "verbose" and v is None)})
    for name in _ARRAYS:
        setattr(model, name, arrays.get(name))
    model.n_features_in_, model.n_components_ = map(int, model.components_.shape)
    model.contexts_ = name_array(header["contexts"])
    if header["feature_names"] is not None:
        model.feature_names_in_ = np.array(header["feature_names"], dtype=object)
    if header.get("label_columns"):
        model.label_columns_ = header["label_columns"]
    model.n_iter_ = header["n_iter"]
    model.n_passes_ = header.get("n_passes")
    model.basis_residual_ = header.get("basis_residual", 0.0)
    model._facets = Facets(*(arrays[f"facet_{name}"] for name in _FACETS))
    evidence = arrays.get("score_covariances"), arrays.get("variance_outside")
    model._evidence = None if evidence[0] is None else evidence
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
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        value = {name: _parameter_to_json(v) for name, v in value.items()}
    return value if isinstance(value, (str, int, float, bool, list, dict, type(None))) else None
