"""A MuData: one of its modalities by name, with the columns that ``mdata.obs`` has for all of them.

A modality is an AnnData, and results go into it. Columns of rows (contexts, groups, covariates) are those of the
modality's own ``obs``, and where it has none of a name, those of ``mdata.obs``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .._utils.arguments import refuse_without_effect
from .._utils.wording import close_names, quoted
from .detect import is_mudata

P = ParamSpec("P")
T = TypeVar("T")


def chosen_modality(names: list[str], mod: Any, argument: str = "mod") -> str:
    """Return the modality that is meant among ``names``: that of this name, or the only one."""
    if mod is None and len(names) == 1:
        return names[0]
    if mod is None:
        raise ValueError(
            f"{argument} is not given, and the MuData has {len(names)} modalities: {quoted(names, 10)}; name one of "
            "them."
        )
    if mod not in names:
        near = close_names(str(mod), names)
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise ValueError(f"{argument}={mod!r} is not a modality; there are {quoted(names, 10)}.{hint}")
    return str(mod)


def joint_columns(own: Any, joint: Any, where: str) -> Any:
    """Return the columns of the table ``joint`` that ``own`` does not have, for the rows of ``own``, by index."""
    others = [column for column in joint.columns if column not in own.columns]
    if not others:
        return joint[others].reindex(own.index)
    if not joint.index.is_unique:
        repeated = joint.index[joint.index.duplicated()][0]
        raise ValueError(
            f"{where} names row {str(repeated)!r} more than once, and its columns go to modalities by name; call "
            "mdata.obs_names_make_unique() and mdata.update()."
        )
    places = np.asarray(joint.index.get_indexer(own.index))
    if (places < 0).any():
        raise ValueError(
            f"{where} lacks {(places < 0).sum()} of the {len(places)} rows of the modality: "
            f"{quoted(own.index[places < 0].tolist())}; call mdata.update()."
        )
    columns = joint[others].iloc[places]
    columns.index = own.index
    return columns


def modality_of(mdata: Any, mod: Any) -> Any:
    """Return the AnnData of a modality, the only one if none is named."""
    return mdata.mod[chosen_modality(list(mdata.mod), mod)]


@contextmanager
def with_joint_columns(mdata: Any, mod: Any) -> Iterator[Any]:
    """Give the AnnData of a modality, which has the columns of ``mdata.obs`` beside its own for the time being."""
    if mdata.is_view:
        raise ValueError("adata is a view of a MuData, which takes no results; call mdata.copy().")
    adata = modality_of(mdata, mod)
    columns = joint_columns(adata.obs, mdata.obs, "mdata.obs")
    # A joined table in place of the modality's own: results are written to it, and stay when the others are dropped.
    adata.obs = adata.obs.join(columns)
    try:
        yield adata
    finally:
        adata.obs = adata.obs.drop(columns=columns.columns)


def takes_mudata(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function of an AnnData take a MuData and the name of a modality, ``mod``, in its place.

    A MuData as its ``model`` stands for the same modality, and ``copy=True`` returns a MuData.
    """
    call: Callable[..., Any] = function

    @wraps(function)
    def of_modality(*args: Any, **options: Any) -> Any:
        mod = options.pop("mod", None)
        first, rest = (args[0], args[1:]) if args else (options.pop("adata", None), ())
        model = options.get("model")
        if is_mudata(model):
            options["model"] = modality_of(model, mod)
        if not is_mudata(first):
            if not is_mudata(model):
                refuse_without_effect("mod", mod, None, "adata is not a MuData", "drop it")
            return call(first, *rest, **options)
        mdata = first.copy() if options.get("copy") else first
        copied = options.pop("copy", False)
        with with_joint_columns(mdata, mod) as adata:
            result = call(adata, *rest, **options)
        return mdata if copied else result

    return of_modality
