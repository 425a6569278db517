"""The facets of a fit whose contexts lack features: of each context, on the features that it has.

``facets`` measures complete contexts. With ``A_(i)``, the rows of A for the features of context i, its formulas hold as
they are, whatever the length of columns; contexts with the same features are measured together.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from .._covariances.stack import CovarianceStack
from .._solvers.masked import Masked
from .._utils.types import Array
from .facets import Facets, measure


def masked_facets(data: Masked, A: Array, B: Array, exponent: int) -> Facets:
    """Return the facets of covariances of rows times ``2^-exponent``; cost O(k p^2 r)."""
    arrays = [field.name for field in fields(Facets) if field.name != "exponent"]
    found: dict[str, Array] = {}
    for members in data.patterns:
        own = data.mask[members[0]]
        S = np.ascontiguousarray(data.S[members][:, own][:, :, own])
        part = measure(CovarianceStack(S), A[own], B[members])
        for name in arrays:
            values = getattr(part, name)
            whole = found.setdefault(name, np.empty((len(B), *values.shape[1:])))
            whole[members] = values
    return Facets(**found, exponent=exponent)
