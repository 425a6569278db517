"""A Pipeline that ends in MCPCA, as a source for plots and analyses: its model, its rows, and the way back to features.

MCPCA often follows a PCA, and that a scaler. Scores are those of rows that went through these steps
(``transformed_rows``); directions are mapped back through them to the original features (``back_through``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from .._data.alignment import in_fitted_order
from .._data.contexts import named_blocks
from .._data.labels import take_labels
from .._utils.array_api import to_host
from .._utils.types import Array

_ORTHONORMAL = 1e-2  # largest deviation of products of axes from the identity; axes may be float32


def split_steps(source: Any) -> tuple[Pipeline | None, Any]:
    """Return the steps before a fitted MCPCA (None if there are none) and the model."""
    steps, model = (source[:-1], source[-1]) if isinstance(source, Pipeline) else (None, source)
    # By the type: the class MCPCA itself, passed by mistake for a model, has the method as well.
    if not hasattr(type(model), "loadings_for"):
        what = "is a Pipeline that ends in" if steps is not None else "is"
        called = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
        raise TypeError(
            f"source {what} {called}; pass a fitted MCPCA, a Pipeline that ends in one, or an AnnData with a fit."
        )
    check_is_fitted(model)
    # A Pipeline of MCPCA alone has nothing to go back through.
    return (None if steps is None or not len(steps) else steps), model


def transformed_rows(steps: Pipeline, X: Any, y: Any) -> tuple[Any, Any]:
    """Return the rows after the steps, in the form in which they came, and their labels.

    Columns of DataFrames are put into the order in which the first step was fitted; it would refuse any other.
    """
    X, y = take_labels(X, y)
    fitted_names = names_before(steps)

    def after(block: Any) -> Any:
        if fitted_names is not None and hasattr(block, "columns"):
            block = in_fitted_order(block, fitted_names, len(fitted_names), "X")[0]
        return steps.transform(block)

    # A list or dict of contexts is transformed block by block and keeps its form, which tells contexts apart.
    by_context = named_blocks(X)
    if by_context is None:
        return after(X), y
    blocks = [after(block) for block in by_context.blocks]
    if by_context.by_name:
        return dict(zip(by_context.names.tolist(), blocks, strict=True)), y
    return blocks, y


def names_after(steps: Pipeline, m: int) -> list[str] | None:
    """Return the names of the m features that come out of the steps; None if the steps do not know them."""
    try:
        names = [str(name) for name in steps.get_feature_names_out()]
    # Some step has no such method, or was fitted without names.
    except (AttributeError, ValueError):
        return None
    return names if len(names) == m else None


def back_through(step: Any, matrix: Array, by: str, argument: str = "pca") -> Array:
    """Map columns in the space after a linear step (m, r) to the features before it (p, r).

    A PCA is ``z = D^-1 V^T (x - mean)``, with D the standard deviations if it whitens, else I: directions (``by``
    "components") become ``V D a``, weights ("projection") ``V D^-1 w``. A scaler with scale s is the same with V = I
    and D = diag(s). A Pipeline is traversed backwards.

    Parameters
    ----------
    step : fitted PCA, scaler, Pipeline of these, DataFrame or array (m, p) of axes
    matrix : ndarray (m, r)
    by : {"components", "projection"}
    argument : str
        Name of the argument in errors.
    """
    if isinstance(step, Pipeline):
        # The last step is the nearest to MCPCA: undone first.
        for name, inner in reversed(step.steps):
            matrix = back_through(inner, matrix, by, f"{argument}, step {name!r},")
        return matrix
    if step is None or (isinstance(step, str) and step == "passthrough"):
        return matrix
    # x = s z + mean: directions are multiplied by the scale, weights on x are those on z divided by it.
    if hasattr(step, "scale_") and not hasattr(step, "components_"):
        scale = np.ones(len(matrix)) if step.scale_ is None else np.asarray(step.scale_, dtype=np.float64)
        if hasattr(step, "min_"):  # MinMaxScaler multiplies by scale_, all others divide by it
            scale = 1 / scale
        return matrix * scale[:, None] if by == "components" else matrix / scale[:, None]
    axes = _axes(step, len(matrix), argument)
    if getattr(step, "whiten", False):
        # Whitening divided the PCs by their standard deviations, which the way back undoes.
        sd = np.sqrt(np.asarray(step.explained_variance_, dtype=np.float64))[:, None]
        matrix = matrix * sd if by == "components" else matrix / sd
    return np.asarray(axes.T @ matrix)


def names_before(step: Any) -> list[str] | None:
    """Return the names of the features that went into a step or Pipeline; None if it has none."""
    first = step
    if isinstance(step, Pipeline):
        first = next((inner for _, inner in step.steps if hasattr(inner, "fit")), None)  # skips "passthrough"
    names = getattr(first, "feature_names_in_", getattr(first, "columns", None))
    return None if names is None else [str(name) for name in names]


def _axes(pca: Any, m: int, argument: str) -> Array:
    """Return the orthonormal axes (m, p) of a PCA."""
    raw_axes = getattr(pca, "components_", None)
    if raw_axes is None:
        if hasattr(pca, "fit"):
            raise ValueError(
                f"{argument} is a {type(pca).__name__} without components_: fit it first, if it is a PCA; directions "
                "go back through no other steps than PCA and scalers."
            )
        raw_axes = pca
    try:
        axes = np.asarray(to_host(raw_axes), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{argument} is a {type(pca).__name__}; pass a fitted PCA, a Pipeline, or axes (PCs, features)."
        ) from error
    if axes.ndim != 2 or len(axes) != m:
        hint = " They seem to be transposed." if axes.ndim == 2 and axes.shape[1] == m else ""
        raise ValueError(
            f"{argument} has axes of shape {axes.shape}, and the fit is on {m} PCs; pass (PCs, features).{hint}"
        )
    if not np.isfinite(axes).all():
        raise ValueError(f"{argument} has axes with NaN or infinite entries; fit it on finite data.")
    # Weights go back by V for any axes, but directions by pinv(V^T), which is V only if the axes are orthonormal.
    off = float(np.abs(axes @ axes.T - np.eye(m)).max())
    if off > _ORTHONORMAL:
        raise ValueError(
            f"{argument} has axes that are not orthonormal (products are off by {off:.2g}), and only those of a PCA "
            "lead back to features; pass all features of a PCA's axes, not some of them, and no other decomposition."
        )
    return axes
