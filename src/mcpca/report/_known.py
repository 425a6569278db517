"""What the user and an AnnData say of contexts and rows, gathered for the page: ``render`` calls this, in two steps.

``known_of_rows`` comes before rows are read, since columns of X may be metadata and no features; ``Known.content``
after rows were drawn, since only these are in the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._data.annotations import places_of_contexts
from .._data.contexts import Contexts
from .._data.detect import is_anndata
from .._utils.types import Array
from ._metadata import (
    check_row_bytes,
    check_row_names,
    context_columns,
    metadata_content,
    row_columns,
    row_names_of,
    take_row_metadata,
)
from ._obs_metadata import found_context_columns, found_row_columns
from ._rows import ContextSample, fitted_places


@dataclass(frozen=True)
class Known:
    """What is said of rows.

    Attributes
    ----------
    X : object
        Rows without columns that are metadata.
    columns : dict of values of all rows, or None
        None if nothing was said; an AnnData is then asked.
    names : sequence or None
    adata : AnnData or None
    """

    X: Any
    columns: Mapping[str, Any] | None
    names: Any
    adata: Any

    def check(self, contexts: Contexts) -> None:
        """Raise unless there is a value for each row, before any row is read."""
        n, _ = places_of_contexts(contexts)
        row_columns(self.columns or {}, n, np.arange(0))
        if self.names is not None:
            check_row_names(self.names, n)

    def content(
        self,
        model: Any,
        contexts: Contexts | None,
        samples: Sequence[ContextSample | None] | None,
        context_metadata: Any,
        without: str,
    ) -> dict[str, Any]:
        """Return what the page has of metadata; the column ``without`` of ``obs`` is the fit's own."""
        labels = model.contexts_.tolist()
        of_contexts = [] if context_metadata is None else context_columns(context_metadata, labels)
        if contexts is None or samples is None:
            return metadata_content(of_contexts, [], None, None)
        n, places = places_of_contexts(contexts)
        # Of all contexts one after the other, as the page has them.
        shown = [sample.numbers for sample in samples if sample is not None]
        numbers = np.concatenate(shown) if shown else np.zeros(0, dtype=np.intp)
        if context_metadata is None and self.adata is not None:
            codes = _codes(n, places, fitted_places(model, contexts))
            of_contexts = found_context_columns(self.adata, codes, [str(label) for label in labels], {without})
        if self.columns is not None:
            of_rows = row_columns(self.columns, n, numbers)
            check_row_bytes(of_rows)
        else:
            # A column that is constant within contexts is one of contexts, and serves for rows as well.
            known = {without, *(column.name for column in of_contexts)}
            counts = [0 if sample is None else len(sample.numbers) for sample in samples]
            of = np.repeat(np.array([str(label) for label in labels], dtype=object), counts).tolist()
            of_rows = [] if self.adata is None else found_row_columns(self.adata, numbers, of, known)
        names = None if self.names is None else check_row_names(self.names, n)
        return metadata_content(of_contexts, of_rows, numbers, names)


def known_of_rows(X: Any, row_metadata: Any, row_names: Any) -> Known:
    """Return what is said of the rows of X, which may be an AnnData."""
    if X is None:
        return Known(None, None, None, None)
    names = row_names_of(X) if row_names is None else row_names
    rows, columns = take_row_metadata(X, row_metadata)
    return Known(rows, columns, names, X if is_anndata(X) else None)


def _codes(n: int, places: Sequence[Array], fitted: Sequence[int]) -> Array:
    """Return the fitted context of each of n rows, -1 for none."""
    codes = np.full(n, -1, dtype=np.intp)
    for context, rows in zip(fitted, places, strict=True):
        codes[rows] = context
    return codes
