"""What is written about a fitted model: tables with names, diagnostics, and the loadings as text for a terminal."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._estimator.mcpca import MCPCA, fitted_model
from .._model.landscape import landscape_on_the_way
from .._rank.selection import RankSelection
from .._utils.array_api import to_host
from .._utils.component_names import component_names
from .._utils.types import Array
from .tables import TableData
from .tables.labels import Labels
from .tables.writing import matrix_columns

# What a terminal has room for; the file has everything.
_SHOWN_CONTEXTS = 30
_SHOWN_COMPONENTS = 10
_NAME_LENGTH = 28


def feature_labels(model: MCPCA) -> list[str]:
    """Return the names of the features, or numbers counted from 1 if they have none."""
    names = getattr(model, "feature_names_in_", None)
    # From 1, as rows and MCPCs are counted in all tables.
    return [str(j + 1) for j in range(model.n_features_in_)] if names is None else [str(name) for name in names]


def known_labels(model: MCPCA, labels: Labels) -> Labels:
    """Return labels in the model's own names for them: 3 for a file's "3"."""
    # A model fitted in Python may have integers for contexts, a file only text. Unknown names are left to the library.
    names = {str(name): name for name in model.contexts_.tolist()}
    return Labels(labels.codes, [names.get(name, name) for name in labels.categories])


def model_tables(model: MCPCA) -> dict[str, dict[str, Any]]:
    """Return the tables of a model by the names of their files, each as columns by name."""
    # components (p, r), projection (r, p), loadings (k, r): always one column per MCPC, whatever the rows are.
    names = component_names(model)
    features = feature_labels(model)
    tables = {
        "components": matrix_columns("feature", features, to_host(model.components_), names),
        "projection": matrix_columns("feature", features, to_host(model.projection_).T, names),
        "loadings": matrix_columns("context", model.contexts_, to_host(model.loadings_), names),
        "corrected_loadings": matrix_columns("context", model.contexts_, to_host(model.corrected_loadings_), names),
        "diagnostics": diagnostics_by_context(model),
        "scree": {
            "index": np.arange(1, len(model.singular_values_) + 1),
            "singular_value": to_host(model.singular_values_),
        },
    }
    # Noise by context is a column of the diagnostics; by feature it is one column, or one for each context.
    if model.noise_ == "diagonal":
        tables["noise"] = {"feature": features, "variance": to_host(model.noise_variance_)}
    elif model.noise_ == "scaled":
        contexts = [str(name) for name in model.contexts_]
        tables["noise"] = matrix_columns("feature", features, to_host(model.noise_variance_).T, contexts)
    choice = model.rank_choice_
    # Rank "auto" has all criteria in its table; the paper's rule has one curve.
    if isinstance(choice, RankSelection):
        tables["rank"] = {"rank": choice.ranks, **choice.columns}
    elif choice is not None:
        tables["rank"] = {"rank": choice.ranks, "seed stability": choice.mean_scores}
    compared = model.solver_choice_
    if compared is not None:
        means, errors = compared.means, compared.standard_errors
        tables["solvers"] = {"solver": [compared.names[i] for i in compared.order]}
        for name in means:
            tables["solvers"] |= {name: means[name][compared.order], f"{name}, s.e.": errors[name][compared.order]}
    return tables


def diagnostics_by_context(model: MCPCA) -> dict[str, Any]:
    """Return one row per context: how many rows it has, and how well the model fits it."""
    share = model.explained_share(per="context")
    counts = model.n_samples_per_context_
    columns: dict[str, Any] = {"context": [str(name) for name in model.contexts_]}
    # Covariances that were given without numbers of rows have none.
    if counts is not None:
        columns["n_samples"] = np.asarray(counts)
    columns |= {
        "squared_norm": model.squared_norms(),
        "reconstruction_error": model.reconstruction_error(per="context"),
        "relative_error": 1 - share,
        "variance_explained": share,
        "variance_explained_error": model.explained_share_error(per="context"),
        "score_correlation": model.offdiagonal_correlation(per="context", normalized=True),
        "likelihood_loss": model.likelihood_loss(per="context"),
    }
    # Noise by feature is in a table of its own.
    noise = fitted_model(model).noise_by_context
    if noise is not None:
        columns["noise_variance"] = noise
    if model.nuisance_ is not None:
        columns["nuisance_share"] = model.nuisance_.shares
    return columns


def diagnostics(model: MCPCA, data: TableData, warnings: list[str]) -> dict[str, Any]:
    """Return the diagnostics of the whole fit, the content of ``diagnostics.json``."""
    names = component_names(model)
    share = model.explained_share()
    varies = bool(np.isfinite(share))  # it is NaN if all covariances are zero
    # Both are means over contexts, so that the shares of the components add up to ``variance_explained``.
    shares = model.variance_explained(per="component") / np.mean(model.squared_norms()) if varies else []
    choice = model.rank_choice_
    pairs = [
        {"components": [names[pair.first], names[pair.second]], "degrees": pair.degrees}
        for pair in model.proportional_loadings()
    ]
    return {
        "rank": model.n_components_,
        "rank_reason": "given" if choice is None else choice.reason,
        "solver": model.solver_,
        "noise": model.noise_,
        "solver_reason": "given" if model.solver_choice_ is None else model.solver_choice_.reason,
        "contexts": len(model.contexts_),
        "features": model.n_features_in_,
        "rows": None if model.n_samples_per_context_ is None else int(model.n_samples_per_context_.sum()),
        "preprocess": None if model.preprocess_ is None else model.preprocess_.summary(),
        "relative_error": 1 - share if varies else None,
        "variance_explained": share if varies else None,
        "variance_explained_error": model.explained_share_error() if varies else None,
        # Without variation there are no shares to pair with the names, and the dict is empty.
        "variance_explained_by_component": dict(zip(names, map(float, shares), strict=varies)),
        "score_correlation": model.offdiagonal_correlation(normalized=True),
        "likelihood_loss": model.likelihood_loss(),
        "proportional_loadings": pairs,
        **_landscape(model, names),
        # What the two tables of loadings are.
        "loadings": fitted_model(model).loadings_in_words(corrected=False),
        "corrected_loadings": fitted_model(model).loadings_in_words(),
        "iterations": model.n_iter_,
        "passes": model.n_passes_,
        "basis_residual": model.basis_residual_,
        "basis_error": model.basis_error_,
        "degrees_of_freedom": model.degrees_of_freedom_,  # infinite ones, of Gaussian rows, are null in JSON
        "left_out": data.notes,
        "contexts_left_out": data.dropped,
        "warnings": warnings,
    }


def _landscape(model: MCPCA, names: list[str]) -> dict[str, Any]:
    """Return F at each MCPC, and which of them are maxima of it; null where that is not known, or takes long."""
    landscape = landscape_on_the_way(fitted_model(model).space)
    if landscape is None:
        return {"F_by_component": None, "certified_maxima": None, "own_maxima": None}
    return {
        "F_by_component": dict(zip(names, map(float, landscape.F), strict=True)),
        "certified_maxima": [name for name, certain in zip(names, landscape.certified, strict=True) if certain],
        "own_maxima": [name for name, own in zip(names, landscape.own, strict=True) if own],
    }


def loadings_text(model: MCPCA) -> str:
    """Return the loadings for a terminal, each MCPC divided by its largest, which they are, and what is not shown."""
    fit = fitted_model(model)
    # Contexts stand one below the other, to be compared.
    B: Array = fit.compared_loadings()
    k, r = B.shape
    largest = B.max(axis=0)
    # An MCPC without loadings stays 0.
    shown = (B / np.where(largest > 0, largest, 1))[:_SHOWN_CONTEXTS, :_SHOWN_COMPONENTS]
    contexts = [_printable(str(name)) for name in model.contexts_[:_SHOWN_CONTEXTS]]
    width = max(map(len, contexts))
    lines = [" " * width + "".join(f"{name:>8}" for name in component_names(model)[:_SHOWN_COMPONENTS])]
    for name, row in zip(contexts, shown, strict=True):
        lines.append(f"{name:<{width}}" + "".join(f"{value:8.2f}" for value in row))
    more = [f"{k - _SHOWN_CONTEXTS} more contexts"] if k > _SHOWN_CONTEXTS else []
    more += [f"{r - _SHOWN_COMPONENTS} more MCPCs"] if r > _SHOWN_COMPONENTS else []
    tail = f"; {' and '.join(more)} in the file" if more else ""
    return "\n".join([*lines, f"(each MCPC divided by its largest loading{tail})", f"({fit.loadings_in_words()})"])


def _printable(name: str) -> str:
    """Return a name for a terminal: one line, of bounded length, without control characters that could recolour it."""
    # Names come from files that others wrote: an escape sequence in one could rewrite the terminal.
    line = "".join(c if c.isprintable() else "?" for c in name)
    return line if len(line) <= _NAME_LENGTH else line[: _NAME_LENGTH - 3] + "..."
