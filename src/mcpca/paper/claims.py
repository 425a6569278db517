"""The paper's qualitative claims, checked on the tables of a run.

A check returns whether the claim holds, by a rule that its constants and docstring state, and the numbers it looked at.
A claim is checked if the section it speaks of, and all methods it names, were run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .running import LABELS
from .tables import (
    ALL_DIGITS_COLUMN,
    ERROR_COLUMN,
    FAR_OFF,
    FAR_OFF_COLUMN,
    RATIO_COLUMN,
    SECONDS_COLUMN,
    SLOPE_COLUMN,
    Row,
)

_ACCURATE_FACTOR = 2.0  # a method is accurate if its error is at most this many times MCPCA's
_EQUAL_FACTOR = 1.05  # errors within 5% count as equal
_RATIO_FACTOR = 2.0  # a ratio of times agrees with the paper's within this factor, since machines differ
_RATE_TOLERANCE = 0.1  # of the slope -1 of an error like 1 / N
# Left out where a claim compares MCPCA with the paper's methods: it says nothing about these two.
_NOT_IN_PAPER = {LABELS["pham"], LABELS["uwedge"]}
_NLS = [LABELS[name] for name in ("nls", "nls_svd", "nls_jennrich")]
_MCPCA = LABELS["mspm"]
Tables = Mapping[str, Sequence[Row]]
Answer = tuple[bool, str]


def check_claims(rows_of: Tables) -> list[Row]:
    """Return a row for each claim that ``rows_of`` ({section: rows of its table}) has the methods for."""
    rows = []
    for section, claim, check in _CLAIMS:
        methods = {row["method"]: row for row in rows_of.get(section, ())}
        # A section that was not run has no rows, and a run with --methods may lack MCPCA: nothing to check.
        if _MCPCA not in methods:
            continue
        try:
            holds, numbers = check(methods)
        except (KeyError, TypeError):  # a method was not run, or gave no answer
            continue
        rows.append({"claim": claim, "section": section, "holds": "yes" if holds else "no", "our numbers": numbers})
    return rows


def _accurate_methods(methods: Mapping[str, Row]) -> list[Row]:
    """Return the paper's methods that are about as accurate as MCPCA."""
    # MCPCA is within its own limit, so the list is never empty.
    limit = _ACCURATE_FACTOR * methods[_MCPCA][ERROR_COLUMN]
    rows = [row for name, row in methods.items() if name not in _NOT_IN_PAPER]
    return [row for row in rows if row[ERROR_COLUMN] is not None and row[ERROR_COLUMN] <= limit]


def _fastest(methods: Mapping[str, Row]) -> Answer:
    rows = sorted(_accurate_methods(methods), key=lambda row: float(row[SECONDS_COLUMN]))
    text = ", ".join(f"{row['method']} {row[SECONDS_COLUMN]:.2g} s" for row in rows)
    return rows[0]["method"] == _MCPCA, f"accurate (error at most {_ACCURATE_FACTOR:g} times MCPCA's): {text}"


def _most_accurate(methods: Mapping[str, Row]) -> Answer:
    rows = sorted(
        (row for row in methods.values() if row[ERROR_COLUMN] is not None), key=lambda row: float(row[ERROR_COLUMN])
    )
    text = ", ".join(f"{row['method']} {row[ERROR_COLUMN]:.2g}" for row in rows[:5])
    # The text shows the least errors of all methods; the verdict is about the paper's.
    of_paper = [row for row in rows if row["method"] not in _NOT_IN_PAPER]
    return bool(methods[_MCPCA][ERROR_COLUMN] <= _EQUAL_FACTOR * of_paper[0][ERROR_COLUMN]), f"least errors: {text}"


def _slower(name: str, times: float) -> Callable[[Mapping[str, Row]], Answer]:
    def check(methods: Mapping[str, Row]) -> Answer:
        # A run stopped at the cap counts with the time at which it was stopped; the ratio is then a lower bound.
        ratio = methods[LABELS[name]][RATIO_COLUMN]
        return times / _RATIO_FACTOR <= ratio <= times * _RATIO_FACTOR, f"{ratio:.2g} times MCPCA's time"

    return check


def _start_matters(methods: Mapping[str, Row]) -> Answer:
    """Whether NLS has missed components in some trial from some start."""
    far_off = {name: methods[name][FAR_OFF_COLUMN] for name in _NLS}
    text = ", ".join(f"{name} {far_off[name]} of {methods[name]['trials']}" for name in _NLS)
    mcpca = f"MCPCA {methods[_MCPCA][FAR_OFF_COLUMN]}"
    return any(far_off.values()), f"trials with an error above {FAR_OFF:g}: {text}; {mcpca}"


def _best_at_every_size(methods: Mapping[str, Row]) -> Answer:
    """Whether no method of the paper has a smaller error at any number of rows; others are mentioned."""
    sizes = [name for name in methods[_MCPCA] if name.startswith("N = ")]
    beaten = []
    for size in sizes:
        # None where a method gave no answer in any trial of this size.
        rows = [row for name, row in methods.items() if name not in _NOT_IN_PAPER and row[size] is not None]
        best = min(rows, key=lambda row: float(row[size]))
        if methods[_MCPCA][size] > _EQUAL_FACTOR * best[size]:
            beaten.append(f"{size}: MCPCA {methods[_MCPCA][size]:.2g}, {best['method']} {best[size]:.2g}")
    others = [f"{name} {methods[name][sizes[-1]]:.2g}" for name in sorted(_NOT_IN_PAPER) if name in methods]
    text = f"least error of the paper's methods at {len(sizes) - len(beaten)} of {len(sizes)} sizes"
    text += f" ({'; '.join(beaten)})" if beaten else ""
    text += f"; at {sizes[-1]} MCPCA has {methods[_MCPCA][sizes[-1]]:.2g}, {', '.join(others)}" if others else ""
    return not beaten, text


def _like_one_over_n(methods: Mapping[str, Row]) -> Answer:
    rate = methods[_MCPCA][SLOPE_COLUMN]
    return abs(rate + 1) <= _RATE_TOLERANCE, f"slope {rate:.3f} (-1 is 1 / N)"


def _only_mcpca_and_nls(methods: Mapping[str, Row]) -> Answer:
    """Whether just these recover all three digits in at least half of the draws."""
    # The column reads "3 of 5"; the number of draws is in a column of its own.
    successful = [name for name, row in methods.items() if 2 * int(row[ALL_DIGITS_COLUMN].split()[0]) >= row["draws"]]
    # Equal sets: the claim fails if another method succeeds, and also if one of these does not.
    expected = {_MCPCA, *_NLS}
    # MCPCA is mentioned in any case, once, and in its place in the table if it is successful.
    text = ", ".join(
        f"{name} {methods[name][ALL_DIGITS_COLUMN]}" for name in {**dict.fromkeys(successful), _MCPCA: None}
    )
    return set(successful) == expected, f"draws with all three digits: {text}"


_CLAIMS: list[tuple[str, str, Callable[[Mapping[str, Row]], Answer]]] = [
    ("2b", "MCPCA is the fastest of the accurate methods", _fastest),
    ("2b", "No method is more accurate than MCPCA", _most_accurate),
    ("2b", "FFDIAG is 30 times slower", _slower("ffdiag", 30)),
    ("2b", "QRJ1D is 300 times slower", _slower("qrj1d", 300)),
    ("2b", "NLS is sensitive to its start", _start_matters),
    ("2c", "MCPCA has the best sample complexity", _best_at_every_size),
    ("s2b", "With orthonormal A MCPCA is the fastest of the accurate methods", _fastest),
    ("s2b", "With orthonormal A no method is more accurate than MCPCA", _most_accurate),
    ("s2b", "Jacobi is 100 times slower", _slower("jacobi", 100)),
    ("s2c", "With orthonormal A the error falls like 1 / N", _like_one_over_n),
    ("s2c", "With orthonormal A MCPCA has the best sample complexity", _best_at_every_size),
    ("digits", "Only MCPCA and NLS recover the digits", _only_mcpca_and_nls),
    ("digits_mnist", "Only MCPCA and NLS recover the digits", _only_mcpca_and_nls),
]
