"""MCPCs and contexts by number or by name.

MCPCs are called "MCPC 1", "MCPC 2", ... in messages, tables, pictures, files and AnnData; only
``get_feature_names_out`` follows scikit-learn's convention of "mcpca0", ... Functions with a parameter such as
``component=`` resolve it here; an unknown name is answered with the most similar known ones.
"""

from __future__ import annotations

import numbers
import re
from collections.abc import Iterable, Sequence
from typing import Any

from .arguments import check_integer
from .wording import nearest, plain_name


def mcpc_name(j: int) -> str:
    """Return the name of the MCPC in column j."""
    return f"MCPC {j + 1}"


def component_names(model: Any) -> list[str]:
    """Return the names of a fitted model's MCPCs; a subclass that has names of its own for them keeps those."""
    # "mcpca0" and so on is scikit-learn's default, made of the class name and the column; anything else was chosen.
    prefix = type(model).__name__.lower()
    names_out = enumerate(model.get_feature_names_out())
    return [mcpc_name(j) if str(name) == f"{prefix}{j}" else str(name) for j, name in names_out]


def as_called_now(names: Iterable[Any]) -> list[str]:
    """Return stored names of MCPCs in today's spelling: older versions wrote "MCPC1", without a space."""
    return [re.sub(r"^MCPC(\d+)$", r"MCPC \1", str(name)) for name in names]


def component_index(component: Any, names: Sequence[str], argument: str = "component") -> int:
    """Return the column of an MCPC.

    Parameters
    ----------
    component : int or str
        A column counted from 0, or one of ``names``; case and spaces do not matter ("MCPC 3", "mcpc3").
    names : sequence of r str
    argument : str
        What to call it in errors.
    """
    # Numbers are columns, as everywhere in Python; names count from 1, as in the paper.
    if not isinstance(component, str):
        way_out = f"MCPCs count from 0, as columns: 0 is {names[0]}."
        return check_integer(component, argument, 0, len(names) - 1, way_out)
    # An exact name wins over any that merely reads like it.
    if component in names:
        return list(names).index(component)
    # Only if one name alone reads like it: names of a subclass may differ by case.
    plain = [plain_name(name) for name in names]
    if plain.count(plain_name(component)) == 1:
        return plain.index(plain_name(component))
    raise ValueError(unknown(component, argument, names, "an MCPC") + f" Pass a name, or 0 to {len(names) - 1}.")


def component_indices(components: Any, names: Sequence[str], argument: str = "components") -> list[int]:
    """Return the columns of one MCPC or of several different ones."""
    # A string is a sequence too, and would be taken apart into characters.
    sequence = [components] if isinstance(components, (str, numbers.Number)) else list(components)
    columns = [component_index(j, names, argument) for j in sequence]
    if not columns:
        raise ValueError(f"{argument} is empty; pass at least one of 0 to {len(names) - 1}.")
    # Compared as columns: "MCPC 1" and 0 are the same one.
    if len(set(columns)) < len(columns):
        repeated = sorted({names[j] for j in columns if columns.count(j) > 1})
        raise ValueError(f"{argument} names {', '.join(repeated)} more than once; pass each MCPC once.")
    return columns


def context_index(context: Any, contexts: Sequence[str], argument: str = "context") -> int:
    """Return the position of a context by its name, which may be a number if contexts are numbered."""
    if str(context) in contexts:
        return list(contexts).index(str(context))
    raise ValueError(unknown(context, argument, contexts, "a context") + " Pass the name of one.")


def unknown(name: Any, argument: str, known: Iterable[Any], kind: str) -> str:
    """Return the sentence that ``argument=name`` is not one of ``known``, with the most similar of them."""
    return f"{argument}={name!r} is not {kind}; {nearest(name, known)}"
