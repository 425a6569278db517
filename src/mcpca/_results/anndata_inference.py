"""Where an AnnData keeps what was found out about a fit after it was made: how sure it is, and what goes with it.

In ``uns[key]``, beside the fit (``anndata_layout``), and gone with it when another fit takes its key:

- "replicability": "table", a DataFrame (r rows) with "agreement", "spread" and "replicates" of each MCPC; "cosines"
  (n_splits, r), "threshold", and "params";
- "context_dependence": "table", a DataFrame (r rows) with "p", "q", "dependent" and "dispersion" of each MCPC;
  "p_value", "outcome", and "json", from which the whole result is read; "params";
- "bootstrap": "lower", "upper", "standard_errors" and "bias", DataFrames (k, r) of the loadings; "angle_bounds", a
  DataFrame (r rows) with "degrees"; "angles" (n, r), "confidence", "n_failed", "corrected", and "params". The loadings
  of single resamples, n k r numbers, are not kept;
- "associations": a dict by covariate, each with the fields of ``mcpca.analysis.Association``, of which "table" has a
  row for each MCPC, and "params".

``tl`` writes them; plots, cards and reports read them by the functions here, which return the results as they were
returned to whoever asked for them. All of it survives ``write_h5ad`` and ``write_zarr``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any, TypeVar

import numpy as np

from .._data.anndata_rows import EXTRA
from .._data.detect import is_anndata
from .._inference.bootstrap import Bootstrap
from .._inference.dependence_result import ContextDependence
from .._inference.replication import Replicability
from .._utils.optional import require
from .anndata_layout import loaded

_Result = TypeVar("_Result")
REPLICABILITY, BOOTSTRAP, ASSOCIATIONS = "replicability", "bootstrap", "associations"
DEPENDENCE = "context_dependence"
_SEVERAL = "names of rows"  # columns of a stored table that tell its rows apart
_OF_LOADINGS = ("lower", "upper", "standard_errors", "bias")  # of a bootstrap, (k, r) each


def stored_result(source: Any, key: str, name: str) -> Any:
    """Return what ``source`` keeps under this name beside its fit; None if it is no AnnData, or keeps nothing."""
    if not is_anndata(source):
        return None
    stored = source.uns.get(key)
    return loaded(stored.get(name)) if hasattr(stored, "keys") else None


def replicability_content(result: Replicability, mcpcs: Sequence[str], params: dict[str, Any]) -> dict[str, Any]:
    """Return the dict that stores a replicability."""
    pd = require("pandas", EXTRA)
    columns = {"agreement": result.agreement, "spread": result.spread, "replicates": result.replicates}
    table = pd.DataFrame(columns, index=list(mcpcs))
    content = {
        "table": table,
        "cosines": result.cosines,
        "threshold": result.threshold,
        "by": result.by,
        "params": params,
    }
    # Neither None nor an empty list of text is kept by all versions of anndata.
    if result.n_ways is not None:
        content["n_ways"] = result.n_ways
    if result.left_out:
        content["left_out"] = np.array([str(name) for name in result.left_out], dtype=object)
    return content


def stored_replicability(source: Any, key: str) -> Replicability | None:
    """Return the replicability that an AnnData keeps with a fit; None if there is none."""
    stored = stored_result(source, key, REPLICABILITY)
    if stored is None:
        return None
    n_ways = stored.get("n_ways")
    return Replicability(
        np.asarray(stored["cosines"], dtype=np.float64),
        float(stored["threshold"]),
        by=str(stored.get("by", "rows")),
        n_ways=None if n_ways is None else int(n_ways),
        left_out=tuple(str(name) for name in stored.get("left_out", ())),
    )


def dependence_content(result: ContextDependence, mcpcs: Sequence[str], params: dict[str, Any]) -> dict[str, Any]:
    """Return the dict that stores a test of whether axes are of the contexts."""
    pd = require("pandas", EXTRA)
    columns = {
        "p": result.p_values,
        "q": result.q_values,
        "dependent": result.dependent,
        "dispersion": result.dispersion,
    }
    return {
        "table": pd.DataFrame(columns, index=list(mcpcs)),
        "p_value": result.p_value,
        "outcome": result.outcome,
        "json": result.to_json(),
        "params": params,
    }


def stored_dependence(source: Any, key: str) -> ContextDependence | None:
    """Return the test of contexts that an AnnData keeps with a fit; None if there is none."""
    stored = stored_result(source, key, DEPENDENCE)
    return None if stored is None else ContextDependence.from_json(str(stored["json"]))


def bootstrap_content(
    result: Bootstrap, contexts: Sequence[str], mcpcs: Sequence[str], params: dict[str, Any]
) -> dict[str, Any]:
    """Return the dict that stores a bootstrap, without the loadings of single resamples."""
    pd = require("pandas", EXTRA)
    tables = {
        name: pd.DataFrame(getattr(result, name), index=list(contexts), columns=list(mcpcs))
        for name in _OF_LOADINGS
        if getattr(result, name) is not None
    }
    return {
        **tables,
        "angle_bounds": pd.DataFrame({"degrees": result.angle_bounds}, index=list(mcpcs)),
        "angles": result.angles,
        "confidence": result.confidence,
        "n_failed": result.n_failed,
        "corrected": result.corrected,
        "params": params,
    }


def stored_bootstrap(source: Any, key: str) -> Bootstrap | None:
    """Return the bootstrap that an AnnData keeps with a fit, without single resamples; None if there is none."""
    stored = stored_result(source, key, BOOTSTRAP)
    if stored is None:
        return None
    tables = {name: stored[name].to_numpy(dtype=np.float64) for name in _OF_LOADINGS if name in stored}
    return Bootstrap(
        **tables,
        angles=np.asarray(stored["angles"], dtype=np.float64),
        angle_bounds=stored["angle_bounds"]["degrees"].to_numpy(dtype=np.float64),
        loadings=None,
        confidence=float(stored["confidence"]),
        n_failed=int(stored["n_failed"]),
        corrected=bool(stored["corrected"]),
    )


# Results that are tables and numbers, whatever their fields


def fields_content(result: Any) -> dict[str, Any]:
    """Return the fields of a result in forms that an AnnData file can hold; those that are None are left out."""
    return {
        field.name: _plain(getattr(result, field.name))
        for field in fields(result)
        if getattr(result, field.name) is not None
    }


def _plain(value: Any) -> Any:
    # Files hold tables whose rows have one name each, as text. Several names become columns, beside a list of these;
    # numbers become text, which ``_as_before`` knows again.
    if hasattr(value, "columns"):
        if value.index.nlevels > 1:
            return {_SEVERAL: np.array(list(value.index.names), dtype=object), "table": _plain(value.reset_index())}
        return value.set_axis(value.index.astype(str), axis=0)
    # Files hold arrays of text, and neither tuples nor lists.
    if isinstance(value, (tuple, list)) and all(isinstance(v, str) for v in value):
        return np.array(list(value), dtype=object)
    if isinstance(value, (tuple, list)):
        return np.array(value)
    return {str(name): _plain(v) for name, v in value.items()} if isinstance(value, dict) else value


def read_fields(cls: type[_Result], stored: Any) -> _Result:
    """Return the result whose fields ``fields_content`` stored; a field that is not there has its default, or None."""
    found = {}
    for field in fields(cls):  # type: ignore[arg-type]
        if field.name in stored:
            found[field.name] = _as_before(stored[field.name])
        elif field.default is MISSING and field.default_factory is MISSING:
            found[field.name] = None
    return cls(**found)


def _as_before(value: Any) -> Any:
    if isinstance(value, dict) and _SEVERAL in value:
        return value["table"].set_index([str(name) for name in value[_SEVERAL]])
    if hasattr(value, "columns"):
        is_numbered = list(value.index) == [str(i) for i in range(len(value))]
        return value.reset_index(drop=True) if is_numbered else value
    # Text was a tuple; numbers stay the array they are.
    if isinstance(value, np.ndarray) and value.dtype.kind in "OUT":
        return tuple(map(str, value.tolist()))
    if isinstance(value, np.generic):
        return value.item()
    return {name: _as_before(v) for name, v in value.items()} if type(value) is dict else value


def stored_associations(source: Any, key: str, cls: type[_Result]) -> list[_Result]:
    """Return the associations that an AnnData keeps with a fit, by the names of their covariates."""
    stored = stored_result(source, key, ASSOCIATIONS)
    # Sorted, as files do not keep the order of entries.
    return [] if stored is None else [read_fields(cls, stored[name]) for name in sorted(stored)]
