"""MCPCs and contexts by number or by name: what MCPCs are called, and who misspells a name is told the nearest ones.

MCPCs are called "MCPC 1", "MCPC 2", ... in messages, tables, pictures, files and AnnData; only
``get_feature_names_out`` has scikit-learn's "mcpca0", ...
"""

from __future__ import annotations

import numbers
import re
from collections.abc import Iterable, Sequence
from typing import Any

from .arguments import check_integer
from .wording import nearest, plain_name


def mcpc_name(j: int) -> str:
    """Return what the MCPC in column j is called."""
    return f"MCPC {j + 1}"


def component_names(model: Any) -> list[str]:
    """Return what the MCPCs of a fitted model are called, by the class itself where it has other names for them."""
    prefix = type(model).__name__.lower()
    of_sklearn = enumerate(model.get_feature_names_out())
    return [mcpc_name(j) if str(name) == f"{prefix}{j}" else str(name) for j, name in of_sklearn]


def as_called_now(names: Iterable[Any]) -> list[str]:
    """Return names of MCPCs as they were stored, which older versions did without a space: "MCPC1"."""
    return [re.sub(r"^MCPC(\d+)$", r"MCPC \1", str(name)) for name in names]


def component_index(component: Any, names: Sequence[str], argument: str = "component") -> int:
    """Return the column of an MCPC.

    Parameters
    ----------
    component : int or str
        0 is the first MCPC; a name goes by ``names``, without regard to case and spaces ("MCPC 3", "mcpc3").
    names : sequence of r str
    argument : str
        What to call it in errors.
    """
    if not isinstance(component, str):
        way_out = f"MCPCs count from 0, as columns: 0 is {names[0]}."
        return check_integer(component, argument, 0, len(names) - 1, way_out)
    if component in names:
        return list(names).index(component)
    plain = [plain_name(name) for name in names]
    if plain.count(plain_name(component)) == 1:
        return plain.index(plain_name(component))
    raise ValueError(unknown(component, argument, names, "an MCPC") + f" Pass a name, or 0 to {len(names) - 1}.")


def component_indices(components: Any, names: Sequence[str], argument: str = "components") -> list[int]:
    """Return the columns of one MCPC or of several, each of them once."""
    several = [components] if isinstance(components, (str, numbers.Number)) else list(components)
    chosen = [component_index(j, names, argument) for j in several]
    if not chosen:
        raise ValueError(f"{argument} is empty; pass at least one of 0 to {len(names) - 1}.")
    if len(set(chosen)) < len(chosen):
        twice = sorted({names[j] for j in chosen if chosen.count(j) > 1})
        raise ValueError(f"{argument} names {', '.join(twice)} more than once; pass each MCPC once.")
    return chosen


def context_index(context: Any, contexts: Sequence[str], argument: str = "context") -> int:
    """Return the position of a context, by its name (a number where contexts are called by numbers)."""
    if str(context) in contexts:
        return list(contexts).index(str(context))
    raise ValueError(unknown(context, argument, contexts, "a context") + " Pass the name of one.")


def unknown(name: Any, argument: str, known: Iterable[Any], kind: str) -> str:
    """Return the sentence that ``argument=name`` is none of ``known``, with those that are spelt most like it."""
    return f"{argument}={name!r} is not {kind}; {nearest(name, known)}"
