"""What was done to the rows of a fit, as an AnnData keeps it: ``uns[key]["preprocess"]``, and a parameter as text."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import numpy as np

from .._data.fitted_preprocess import FittedPreprocess
from .._data.preprocess import Preprocess, as_preprocess, with_factors
from .._data.size_factors import column_of_obs
from .._utils.types import Array


def stored_preprocess(preprocess: Any) -> str | None:
    """Return the parameter ``preprocess`` as text that a file can hold."""
    if preprocess is None or isinstance(preprocess, str):
        return preprocess
    spec = as_preprocess(preprocess)
    assert spec is not None
    return json.dumps(spec.to_json())


def preprocess_parameter(text: Any) -> Any:
    """Return the parameter that ``stored_preprocess`` made text of."""
    if text is None:
        return None
    text = str(text)
    return Preprocess.from_json(json.loads(text)) if text.startswith("{") else text


def preprocess_content(steps: FittedPreprocess) -> dict[str, Any]:
    """Return the dict that stores what was done."""
    arrays, header = steps.to_state()
    content = {"summary": steps.summary(), "json": json.dumps(header), **arrays}
    return content if steps.target_sum is None else content | {"target_sum": steps.target_sum}


def preprocess_state(stored: dict[str, Any]) -> tuple[dict[str, Array], dict[str, Any]] | None:
    """Return arrays and header of what was done to the rows of a stored fit; None if they were taken as they are."""
    content = stored.get("preprocess")
    if content is None:
        return None
    arrays = {name: np.asarray(content[name]) for name in FittedPreprocess.array_names if name in content}
    return arrays, json.loads(str(content["json"]))


def fitted_preprocess(stored: dict[str, Any]) -> FittedPreprocess | None:
    """Return what was done to the rows of a stored fit."""
    state = preprocess_state(stored)
    return None if state is None else FittedPreprocess.from_state(*state)


def of_rows_in(model: Any, adata: Any) -> Any:
    """Return a model for the rows of this AnnData: with their size factors, where a column of ``obs`` has these."""
    steps = getattr(model, "preprocess_", None)
    if steps is None or steps.spec.divides_by_totals or not isinstance(steps.spec.size_factors, str):
        return model
    own = copy.copy(model)
    factors = np.asarray(column_of_obs(steps.spec.size_factors, adata))
    own.preprocess_ = replace(steps, spec=with_factors(steps.spec, factors))
    return own
