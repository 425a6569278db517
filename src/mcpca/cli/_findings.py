"""What ``mcpca doctor`` has found in a file, and the ``Reading`` that it suggests."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .._utils.printing import counted
from .._utils.wording import listed
from .tables import Reading
from .tables._errors import short
from .tables.labels import Labels, crossed_labels
from .tables.survey import Survey

SHOWN_NAMES = 12
_SHOWN_VALUES = 4


@dataclass
class Findings:
    """What was found in a file.

    Attributes
    ----------
    facts, advice : list of str
        Sentences to print; the first fact says what the file is.
    contexts : dict of str to list of int
        Columns that could be contexts, with the number of rows of each.
    reading : Reading
        A way to read the file.
    no_features : dict of str to str
        Numeric columns that ``reading`` leaves out, with the reason.
    has_rows : bool
        Whether there is something to try; a model and moments have no rows.
    problem : str or None
        What the user has to do before the file can be fitted.
    """

    facts: list[str] = field(default_factory=list)
    contexts: dict[str, list[int]] = field(default_factory=dict)
    reading: Reading = field(default_factory=Reading)
    advice: list[str] = field(default_factory=list)
    no_features: dict[str, str] = field(default_factory=dict)
    has_rows: bool = True
    problem: str | None = None


def suggest(
    facts: list[str],
    candidates: dict[str, list[int]],
    reading: Reading,
    texts: list[str],
    not_features: list[str],
    surveyed: Survey | None,
    in_folder: bool = False,
) -> Findings:
    """Return a way to read the file; options that were given are kept.

    The first candidate is taken for the contexts; a column that is different in every row names the rows; other text
    and ``not_features`` are dropped. In a folder the files are the contexts.
    """
    context = reading.context
    advice = []
    if not context and not reading.labels and candidates:
        context = (next(iter(candidates)),)
    if not candidates and not context and not reading.labels and not in_folder:
        counts = {} if surveyed is None else {name: surveyed.counts[name] or {} for name in texts}
        alone = [name for name in texts if len(counts.get(name, {})) == 1]
        if alone:
            context = (alone[0],)
            advice.append(f"The only column of contexts, {short(alone[0])!r}, has one value.")
        else:
            facts.append("no column could be contexts; if one line is one feature, pass --transpose")
    say_candidates(facts, candidates)
    # With --labels the column of contexts is one of that file.
    contexts_here = () if reading.labels else context
    taken = {*contexts_here, *([reading.index] if reading.index else []), *reading.annotation_columns}
    index = reading.index
    # Of tables only: an AnnData has names of rows, and the examination of those would undo the choice.
    if index is None and surveyed is not None and not reading.features:
        unique = [name for name in texts if name not in taken and len(surveyed.counts[name] or {}) == surveyed.n_rows]
        index = next(iter([*surveyed.row_numbers, *unique]), None)
        taken |= {index} if index else set()
    drop = [] if reading.features else [name for name in (*texts, *not_features) if name not in taken]
    # Suggested only where they are needed, so that the command stays short and none of its options is without effect.
    unlabelled = surveyed is not None and any(surveyed.missing.get(name, 0) for name in contexts_here)
    suggested = replace(
        reading,
        context=tuple(context),
        index=index,
        drop=tuple(dict.fromkeys([*reading.drop, *drop])),
        drop_unlabelled=reading.drop_unlabelled or unlabelled,
    )
    return Findings(facts, candidates, suggested, advice)


def say_candidates(facts: list[str], candidates: dict[str, list[int]]) -> None:
    if candidates:
        shown = [f"{short(name)} ({len(counts)})" for name, counts in candidates.items()]
        facts.append(f"could be contexts: {listed(shown, SHOWN_NAMES)}")


def could_be_contexts(counts: dict[str, int], n: int) -> bool:
    """Whether a column has at least two values, and not so many that contexts would have fewer than two rows."""
    # On average two rows a context, the fewest that have a covariance; max(2, ...) for files of very few rows.
    return 2 <= len(counts) <= max(2, n // 2)


def counts_by_name(labels: Labels) -> dict[str, int]:
    return {name: int(n) for name, n in zip(labels.categories, labels.counts(), strict=True) if n}


def values_in_words(counts: dict[str, int] | None) -> str:
    """Return how many values a column has, and the most frequent ones; None stands for too many to count."""
    if counts is None:
        return "many values"
    if not counts:
        return "no values"
    frequent = sorted(counts, key=lambda name: -counts[name])[:_SHOWN_VALUES]
    shown = ", ".join(f"{short(name, 24)!r} ({counts[name]:,})" for name in frequent)
    return f"{counted(len(counts), 'value')}, {shown}" + (" ..." if len(counts) > _SHOWN_VALUES else "")


def crossed_in_words(labels: list[Labels], candidates: dict[str, list[int]]) -> list[str]:
    """Say what the first two candidates give together."""
    counts = crossed_labels(labels).counts()
    counts = counts[counts > 0]
    first, second = (short(name) for name in list(candidates)[:2])
    return [
        f"crossed, {first!r} and {second!r} give {len(counts):,} contexts of {counts.min():,} to {counts.max():,} rows "
        "(name both with --context)"
    ]
