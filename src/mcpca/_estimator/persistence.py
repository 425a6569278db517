"""One file for one fitted model: arrays and JSON in NumPy's npz container, no pickle, written atomically.

``to_state`` turns a model into arrays and a JSON header, ``from_state`` turns them back; AnnData keeps the same state
(``_results.anndata_layout``). A file may come from anywhere, so ``load_model`` checks that it holds everything, that
shapes and types fit together, and that the parameters are valid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from .._data.fitted_preprocess import FittedPreprocess
from .._data.label_kinds import checked_names, labels_from_json, labels_to_json, names_to_json
from .._data.labels import name_array
from .._data.preprocess import Preprocess
from .._inference.solver_comparison import SolverComparison
from .._model.facets import Facets
from .._model.fitted_model import FittedModel
from .._model.landscape import Landscape, landscape_on_the_way
from .._model.removed_nuisance import RemovedNuisance
from .._rank.paper_rule import RankChoice
from .._rank.selection import RankSelection
from .._solvers import SOLVERS
from .._utils.array_api import to_host
from .._utils.array_files import read_file, write_file
from .._utils.types import Array
from .._utils.wording import quoted

T = TypeVar("T")

MODEL_FORMAT = "mcpca-model"
# Arrays in the file, which have the names of fitted attributes, and the fields of ``FittedModel`` that they hold.
_ARRAYS = {
    "components_": "components",
    "loadings_": "loadings",
    "corrected_loadings_": "corrected_loadings",
    "projection_": "projection",
    "singular_values_": "singular_values",
    "n_samples_per_context_": "n_samples",
    "means_": "means",
    "noise_variance_": "noise_variance",
    "attenuation_": "attenuation",
}
_OPTIONAL = ("corrected_loadings_", "n_samples_per_context_", "means_", "noise_variance_", "attenuation_")
# Marks a parameter that is a dict by context: keys of JSON objects are text, and names of contexts need not be.
_BY_CONTEXT = "by context"
# Marks what is done to rows.
_PREPROCESS = "preprocess"
# The exponent is a number and goes into the header.
_FACETS = tuple(name for name in Facets.__dataclass_fields__ if name != "exponent")
_CHOICE = ["choice_ranks", "choice_scores", "choice_scree"]
# Shapes, with k contexts, p features, r components, m batches within contexts and c covariates; alternatives are
# separated by a space, and an empty text leaves the length free.
_SHAPES = {
    "components_": "pr",
    "loadings_": "kr",
    "corrected_loadings_": "kr",
    "projection_": "rp",
    "means_": "kp",
    "singular_values_": "",
    "n_samples_per_context_": "k",
    "noise_variance_": "k p kp",
    "attenuation_": "r",
    "score_covariances": "krr",
    "variance_outside": "k",
    "nuisance_shares": "k",
    "nuisance_ranks": "k",
    "nuisance_cell_contexts": "m",
    "nuisance_cell_levels": "m",
    "nuisance_cell_counts": "m",
    "nuisance_shifts": "mr",
    "nuisance_centres": "mc",
    "nuisance_slopes": "kcr",
    "landscape_F": "r",
    "landscape_gradients": "r",
    "landscape_curvatures": "r",
    "landscape_peaks": "r",
    "landscape_degrees": "r",
    "landscape_basins": "r",
    "preprocess_columns": "p",
    "preprocess_scales": "p",
    "preprocess_shares": "p",
    **{f"facet_{name}": "kr" if name == "variance_shares" else "k" for name in _FACETS},
}
# Arrays without negative values, and arrays of integers; all others are of floats.
_NONNEGATIVE = (
    "loadings_",
    "corrected_loadings_",
    "singular_values_",
    "n_samples_per_context_",
    "noise_variance_",
    "attenuation_",
    "facet_squared_norms",
    "landscape_F",
    "landscape_gradients",
)
# The fields of ``Landscape``: a file holds what was computed, not the space that it was computed from.
_LANDSCAPE = tuple(Landscape.__dataclass_fields__)
_UNSETTLED = "choice_unsettled"
_OF_CELLS = ("nuisance_cell_contexts", "nuisance_cell_levels", "nuisance_cell_counts")
_INTEGER = (
    *("landscape_basins", "n_samples_per_context_", "choice_ranks", _UNSETTLED, "nuisance_ranks"),
    *_OF_CELLS,
    "preprocess_columns",
)


class SavedModel(NamedTuple):
    """The content of a file: parameters of the constructor, the fitted model, and the evidence behind choices."""

    parameters: dict[str, Any]
    model: FittedModel
    rank_choice: RankSelection | RankChoice | None
    solver_choice: SolverComparison | None = None


def save_model(saved: SavedModel, path: Any) -> None:
    """Write a fitted MCPCA to ``path``; see ``MCPCA.save``."""
    write_file(path, MODEL_FORMAT, *to_state(saved))


def to_state(saved: SavedModel) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return everything that makes a fitted MCPCA: arrays by name, and a header that can be JSON."""
    model = saved.model
    by_name = {name: getattr(model, field) for name, field in _ARRAYS.items()}
    arrays = {name: to_host(array) for name, array in by_name.items() if array is not None}
    arrays |= {f"facet_{name}": getattr(model.facets, name) for name in _FACETS}
    header: dict[str, Any] = {
        "parameters": {
            name: _parameter_to_json(value, keeps_functions=name == "preprocess")
            for name, value in saved.parameters.items()
            # Versions without it read a file of rows that were taken as they are.
            if not (name == "preprocess" and value is None)
        },
        "contexts": names_to_json(model.contexts),
        "feature_names": names_to_json(model.feature_names),
        "label_columns": list(model.label_columns) or None,
        "solver": model.solver,
        "noise": model.noise,
        "n_iter": model.n_iter,
        "n_passes": model.n_passes,
        "basis_residual": model.basis_residual,
        "basis_error": model.basis_error,
        "exponent": model.facets.exponent,
        # Infinity is no number of JSON; text stands for it, and for all others.
        "degrees_of_freedom": None if model.degrees_of_freedom is None else repr(float(model.degrees_of_freedom)),
    }
    if model.kept_of is not None:
        header["kept_of"] = int(model.kept_of)
    if model.score_moments is not None:
        arrays["score_covariances"], arrays["variance_outside"] = model.score_moments
    landscape = landscape_on_the_way(model.space)
    if landscape is not None:
        arrays |= {f"landscape_{name}": getattr(landscape, name) for name in _LANDSCAPE}
    if model.nuisance is not None:
        of_nuisance, header["nuisance"] = model.nuisance.to_state()
        arrays |= of_nuisance
    if model.preprocess is not None:
        of_steps, header["preprocess"] = model.preprocess.to_state()
        arrays |= of_steps
    if saved.solver_choice is not None:
        header["solver_choice"] = saved.solver_choice.to_json()
    choice = saved.rank_choice
    # A selection is JSON throughout; the paper's rule has a few arrays and a few values.
    if isinstance(choice, RankSelection):
        header["selection"] = choice.to_json()
    elif choice is not None:
        arrays |= dict(zip(_CHOICE, (choice.ranks, choice.scores, choice.singular_values), strict=True))
        if choice.unsettled is not None:
            arrays[_UNSETTLED] = choice.unsettled
        header["matching"] = choice.matching
        header["choice"] = [choice.rank, choice.outcome, choice.reason, choice.threshold]
    return arrays, header


def load_model(path: Any, check: Callable[[SavedModel], T]) -> T:
    """Read what ``save_model`` wrote, and return what ``check`` makes of it; it raises if parameters are invalid."""
    # Arrays of other names are not even read: a later version may have added them.
    known = [*_SHAPES, *_CHOICE, _UNSETTLED]
    arrays, header = read_file(path, MODEL_FORMAT, "MCPCA model", "MCPCA.save", lambda header: known)
    required = [*(n for n in _ARRAYS if n not in _OPTIONAL), *(f"facet_{n}" for n in _FACETS)]
    required += _CHOICE if "choice" in header else []
    missing = [name for name in required if name not in arrays]
    missing += [name for name in ("parameters", "contexts", "feature_names", "n_iter") if name not in header]
    if missing:
        raise ValueError(f"path={str(path)!r} lacks {quoted(missing)}; it is not a complete MCPCA model.")
    # Nothing in the file is trusted, so any failure to make a model of it means the same to the user.
    try:
        _check_arrays(arrays, header)
        return check(from_state(arrays, header))
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError) as error:
        raise ValueError(
            f"path={str(path)!r} is not a consistent MCPCA model: {error}. Save it again where it was fitted."
        ) from error


def _check_arrays(arrays: dict[str, Array], header: dict[str, Any]) -> None:
    """Raise if arrays do not have the shapes of one model, or have values that no model has."""
    sizes = {"k": len(checked_names(header["contexts"], "contexts"))}
    if arrays["components_"].ndim != 2:
        raise ValueError(f"components_ has shape {arrays['components_'].shape}, not (p, r)")
    # k comes from the names of contexts, p and r from A; every other array has to agree with these.
    sizes["p"], sizes["r"] = arrays["components_"].shape
    nuisance = header.get("nuisance")
    if nuisance is not None:
        sizes["m"] = len(arrays["nuisance_cell_contexts"])
    # Apart from the sizes that must not be 0: there may be batches alone.
    lengths = sizes if nuisance is None else sizes | {"c": len(nuisance["columns"])}
    for name, values in arrays.items():
        shapes = [tuple(lengths[letter] for letter in letters) for letters in _SHAPES.get(name, "").split()]
        if shapes and values.shape not in shapes:
            raise ValueError(f"{name} has shape {values.shape} where {' or '.join(map(str, shapes))} is needed")
        if values.dtype.kind not in ("iu" if name in _INTEGER else "f"):
            raise ValueError(f"{name} is of type {values.dtype}")
        # The likelihood loss is infinite for contexts whose scores are singular.
        bad = np.isnan(values) if name == "facet_likelihood_losses" else ~np.isfinite(values)
        # NaN is the mean of a feature that a context lacks.
        if name == "means_" and header["parameters"].get("missing", "error") != "error":
            bad = np.isinf(values)
        # And of MCPCs that climb to no maximum.
        if name in ("landscape_peaks", "landscape_degrees"):
            bad = np.isinf(values)
        if bad.any():
            raise ValueError(f"{name} has values that are NaN or infinite")
        if name in _NONNEGATIVE and values.size and values.min() < 0:
            raise ValueError(f"{name} has values below 0 (the smallest is {values.min():.3g})")
    if 0 in sizes.values():
        raise ValueError(f"it has {sizes['k']} contexts, {sizes['p']} features and {sizes['r']} components")
    kinds_of_numbers: dict[str, Any] = {
        "n_iter": int,
        "n_passes": (int, type(None)),
        "basis_residual": (int, float, type(None)),
        "basis_error": (int, float, type(None)),
    }
    for name, kinds in kinds_of_numbers.items():
        if not isinstance(header.get(name), kinds):
            raise ValueError(f"{name} is {str(header.get(name))[:40]!r}")
    features = header["feature_names"]
    if features is not None and len(checked_names(features, "feature_names")) != sizes["p"]:
        raise ValueError(f"it has {len(features)} names for {sizes['p']} features")


def from_state(arrays: dict[str, Array], header: dict[str, Any]) -> SavedModel:
    """Return the model that ``to_state`` was called with."""
    # None stands for what was not kept (a generator, a function), and is the default of every such parameter.
    parameters = {name: _parameter_from_json(value) for name, value in header["parameters"].items()}
    features = header["feature_names"]
    facets: dict[str, Any] = {name: arrays[f"facet_{name}"] for name in _FACETS}
    moments = None
    if "score_covariances" in arrays:
        moments = (arrays["score_covariances"], arrays["variance_outside"])
    required: dict[str, Any] = {field: arrays.get(name) for name, field in _ARRAYS.items()}
    # Files of versions without a choice of the solver have it in the parameters only.
    solver = header.get("solver", parameters.get("solver", "mspm"))
    if solver not in SOLVERS:
        raise ValueError(f"solver is {str(solver)[:40]!r}")
    noise = header.get("noise")
    if "noise" not in header:
        # Files of versions in which only a likelihood had noise: "isotropic" was the default of all solvers.
        noise = parameters.get("noise", "isotropic") if SOLVERS[solver].models_noise else None
        parameters["noise"] = noise if SOLVERS[solver].models_noise else "auto"
        required["corrected_loadings"] = None if noise is None else required["loadings"]
    # ``get`` with a default is for what files of older versions lack.
    model = FittedModel(
        **required,
        contexts=name_array(labels_from_json(header["contexts"])),
        n_iter=header["n_iter"],
        n_passes=header.get("n_passes"),
        basis_residual=header.get("basis_residual", 0.0),
        basis_error=header.get("basis_error"),
        facets=Facets(**facets, exponent=int(header.get("exponent") or 0)),
        score_moments=moments,
        feature_names=None if features is None else name_array(labels_from_json(features)).astype(object),
        label_columns=tuple(header.get("label_columns") or ()),
        solver=solver,
        noise=noise,
        orthogonal=bool(parameters.get("orthogonal", False)),
        degrees_of_freedom=_degrees_of_freedom(header.get("degrees_of_freedom")),
        missing=str(parameters.get("missing", "error")),
        nuisance=_nuisance(arrays, header),
        kept_of=None if header.get("kept_of") is None else int(header["kept_of"]),
        space=_landscape(arrays),
        preprocess=_preprocess(arrays, header),
    )
    compared = header.get("solver_choice")
    comparison = None if compared is None else SolverComparison.from_json(compared)
    return SavedModel(parameters, model, _rank_choice(arrays, header), comparison)


def _landscape(arrays: dict[str, Array]) -> Landscape | None:
    """Return F and its derivatives at the MCPCs; None if the file is of a version without them, or of missing rows."""
    names = [f"landscape_{name}" for name in _LANDSCAPE]
    return Landscape(*(arrays[name] for name in names)) if all(name in arrays for name in names) else None


def _preprocess(arrays: dict[str, Array], header: dict[str, Any]) -> FittedPreprocess | None:
    """Return what is done to rows, if anything."""
    stored = header.get("preprocess")
    return None if stored is None else FittedPreprocess.from_state(arrays, stored)


def _nuisance(arrays: dict[str, Array], header: dict[str, Any]) -> RemovedNuisance | None:
    """Return what the fit has removed, if anything."""
    if header.get("nuisance") is None:
        return None
    contexts = name_array(labels_from_json(header["contexts"]))
    removed = RemovedNuisance.from_state(arrays, header["nuisance"], contexts)
    for name, bound in (("cell_contexts", len(contexts)), ("cell_levels", len(removed.levels))):
        places = getattr(removed, name)
        if places.size and not (places.min() >= 0 and places.max() < bound):
            raise ValueError(f"nuisance_{name} is not within 0 to {bound - 1}")
    return removed


def _degrees_of_freedom(text: Any) -> float | None:
    freedom = None if text is None else float(text)
    # Written so that NaN is refused too.
    if freedom is not None and not freedom > 0:
        raise ValueError(f"degrees_of_freedom is {str(text)[:40]!r}")
    return freedom


def _rank_choice(arrays: dict[str, Array], header: dict[str, Any]) -> RankSelection | RankChoice | None:
    """Return the evidence behind the rank: of the paper's rule, of ``select_rank``, or None for a given rank."""
    if "choice" in header:
        rank, outcome, reason, threshold = header["choice"]
        ranks, scores, scree = (arrays[name] for name in _CHOICE)
        unsettled = arrays.get(_UNSETTLED)
        matching = header.get("matching", "greedy")
        return RankChoice(rank, outcome, reason, ranks, scores, threshold, scree, unsettled, matching)
    return RankSelection.from_json(header["selection"]) if "selection" in header else None


def _parameter_to_json(value: Any, *, keeps_functions: bool = False) -> Any:
    """Return a parameter of the constructor as JSON, or None for what only a run needs (generators, functions).

    ``keeps_functions`` is for a function that rows are prepared by, of which the name is kept.
    """
    # NumPy's scalars first: JSON takes np.float64, which is a float, but neither np.int64 nor np.bool_.
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (range, tuple, np.ndarray)):
        value = [_parameter_to_json(v) for v in value]
    if callable(value) and not isinstance(value, type):
        value = Preprocess(value) if keeps_functions else None
    if isinstance(value, Preprocess):
        return {_PREPROCESS: value.to_json()}
    if isinstance(value, Mapping):
        return {_BY_CONTEXT: [labels_to_json(value), [_parameter_to_json(v) for v in value.values()]]}
    return value if isinstance(value, (str, int, float, bool, list, type(None))) else None


def _parameter_from_json(value: Any) -> Any:
    if isinstance(value, dict) and list(value) == [_PREPROCESS]:
        return Preprocess.from_json(value[_PREPROCESS])
    if not isinstance(value, dict) or list(value) != [_BY_CONTEXT]:
        return value
    names, values = value[_BY_CONTEXT]
    return dict(zip(labels_from_json(names), values, strict=True))
