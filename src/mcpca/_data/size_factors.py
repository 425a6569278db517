"""Size factors that the user gives: one positive number for each row, matched to the rows of each matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._utils.types import Array
from .._utils.wording import nearest
from .alignment import in_row_order
from .contexts import Contexts
from .detect import InputKind, input_kind
from .preprocess import LostFactors, Preprocess


def factors_of_sources(spec: Preprocess, contexts: Contexts, X: Any) -> list[Array | None]:
    """Return the size factors (n,) of the rows of each context's source; None where rows go by their totals.

    ``X`` is what the user passed: factors are given in the form of its contexts.
    """
    given = spec.size_factors
    if not spec.takes_counts or spec.divides_by_totals:
        return [None] * len(contexts.names)
    if isinstance(given, LostFactors):
        raise ValueError(
            "This model was fitted with size factors of its own rows, which a file does not keep. Divide rows by "
            "theirs, and set model.preprocess_ to dataclasses.replace(model.preprocess_, spec=Preprocess('log1p', "
            "size_factors=...)) with those of these rows."
        )
    n_sources = len({id(source) for source in contexts.sources})
    if isinstance(given, Mapping) or (n_sources > 1 and isinstance(given, (list, tuple))):
        by_context = _by_context(given, contexts)
        return [
            _checked(values, source.shape[0], f"size_factors of context {name!r}")
            for values, source, name in zip(by_context, contexts.sources, contexts.names.tolist(), strict=True)
        ]
    if n_sources > 1:
        raise ValueError(
            f"size_factors are a {type(given).__name__}, and X holds {n_sources} contexts: pass a list or a dict with "
            "an array for each of them."
        )
    values = _of_one_matrix(given, X)
    factors = _checked(values, int(contexts.sources[0].shape[0]), "size_factors")
    return [factors] * len(contexts.names)


def _by_context(given: Any, contexts: Contexts) -> Sequence[Any]:
    names = contexts.names.tolist()
    if isinstance(given, Mapping):
        missing = [name for name in names if name not in given]
        if missing:
            raise ValueError(f"size_factors lack the context {missing[0]!r}; give an array for each context.")
        return [given[name] for name in names]
    if len(given) != len(names):
        raise ValueError(
            f"size_factors are a list of {len(given)}, and X has {len(names)} contexts; give one for each."
        )
    return given  # type: ignore[no-any-return]


def _of_one_matrix(given: Any, X: Any) -> Any:
    """Return the factors of the rows of one matrix: a column of ``obs``, or values, by index where both have one."""
    kind = None if X is None else input_kind(X)
    if not isinstance(given, str):
        return given if kind is None else in_row_order(X, given, kind, "size_factors")
    if kind is not InputKind.ANNDATA:
        raise ValueError(
            f"size_factors={given!r} names a column of obs, and X is no AnnData; pass the numbers, one for each row."
        )
    return column_of_obs(given, X)


def column_of_obs(name: str, adata: Any) -> Any:
    """Return a column of ``obs``; raise if it is not there."""
    columns = list(adata.obs.columns)
    if name not in columns:
        raise ValueError(f"size_factors={name!r} is no column of adata.obs; {nearest(name, columns)}")
    return adata.obs[name]


def _checked(values: Any, n: int, what: str) -> Array:
    """Return positive finite numbers (n,) in float64."""
    try:
        factors = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} are no numbers ({error}); pass one positive number for each row.") from error
    if factors.shape != (n,):
        raise ValueError(
            f"{what} have shape {factors.shape}, and X has {n} rows: one for each is needed. Those of a fit are not "
            "those of other rows; 'total' takes these from the rows, and a column of obs goes with them."
        )
    bad = np.flatnonzero(~((factors > 0) & np.isfinite(factors)))
    if len(bad):
        raise ValueError(
            f"{what} are to divide rows by, and {len(bad)} of {n} are not positive and finite, the first of them "
            f"{factors[bad[0]]} of row {bad[0]}; drop rows without counts, or give them 1."
        )
    return factors
