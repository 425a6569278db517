"""The paper's qualitative claims, checked on the tables of a run.

Each check states what it takes for yes; a claim is checked where the sections that it speaks of were run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .running import LABELS
from .tables import FAR_OFF, Row

_ACCURATE = 2.0  # times MCPCA's error
_SAME = 1.05  # errors within 5 % count as equal
_FACTOR = 2.0  # within this factor of the paper's ratio
_ADDED = {LABELS["pham"], LABELS["uwedge"]}  # not in the paper
_NLS = [LABELS[name] for name in ("nls", "nls_svd", "nls_jennrich")]
_MCPCA = LABELS["mspm"]
_ERROR, _SECONDS, _RATIO = "median 1 - Ascore", "median seconds", "times MCPCA's"
Tables = Mapping[str, Sequence[Row]]
Answer = tuple[bool, str]


def check_claims(found: Tables) -> list[Row]:
    """Return a row for each claim whose section is in ``found`` ({section: rows}) with all the methods it names."""
    rows = []
    for section, claim, check in _CLAIMS:
        methods = {row["method"]: row for row in found.get(section, ())}
        if _MCPCA not in methods:
            continue
        try:
            holds, numbers = check(methods)
        except (KeyError, TypeError):  # a method was not run, or gave no answer
            continue
        rows.append({"claim": claim, "section": section, "holds": "yes" if holds else "no", "our numbers": numbers})
    return rows


def _accurate(methods: Mapping[str, Row], added: bool = False) -> list[Row]:
    limit = _ACCURATE * methods[_MCPCA][_ERROR]
    rows = [row for name, row in methods.items() if added or name not in _ADDED]
    return [row for row in rows if row[_ERROR] is not None and row[_ERROR] <= limit]


def _fastest(methods: Mapping[str, Row]) -> Answer:
    rows = sorted(_accurate(methods), key=lambda row: float(row[_SECONDS]))
    text = ", ".join(f"{row['method']} {row[_SECONDS]:.2g} s" for row in rows)
    return rows[0]["method"] == _MCPCA, f"accurate (error at most {_ACCURATE:g} times MCPCA's): {text}"


def _most_accurate(methods: Mapping[str, Row]) -> Answer:
    rows = sorted((row for row in methods.values() if row[_ERROR] is not None), key=lambda row: float(row[_ERROR]))
    text = ", ".join(f"{row['method']} {row[_ERROR]:.2g}" for row in rows[:5])
    paper = [row for row in rows if row["method"] not in _ADDED]
    return bool(methods[_MCPCA][_ERROR] <= _SAME * paper[0][_ERROR]), f"least errors: {text}"


def _slower(name: str, times: float) -> Callable[[Mapping[str, Row]], Answer]:
    def check(methods: Mapping[str, Row]) -> Answer:
        ratio = methods[LABELS[name]][_RATIO]
        return times / _FACTOR <= ratio <= times * _FACTOR, f"{ratio:.2g} times MCPCA's time"

    return check


def _start_matters(methods: Mapping[str, Row]) -> Answer:
    key = f"trials above {FAR_OFF:g}"
    off = {name: methods[name][key] for name in _NLS}
    text = ", ".join(f"{name} {off[name]} of {methods[name]['trials']}" for name in _NLS)
    return any(off.values()), f"trials with an error above {FAR_OFF:g}: {text}; MCPCA {methods[_MCPCA][key]}"


def _best_at_every_size(methods: Mapping[str, Row]) -> Answer:
    sizes = [name for name in methods[_MCPCA] if name.startswith("N = ")]
    beaten = []
    for size in sizes:
        rows = [row for name, row in methods.items() if name not in _ADDED and row[size] is not None]
        best = min(rows, key=lambda row: float(row[size]))
        if methods[_MCPCA][size] > _SAME * best[size]:
            beaten.append(f"{size}: MCPCA {methods[_MCPCA][size]:.2g}, {best['method']} {best[size]:.2g}")
    added = [f"{name} {methods[name][sizes[-1]]:.2g}" for name in sorted(_ADDED) if name in methods]
    text = f"least error of the paper's methods at {len(sizes) - len(beaten)} of {len(sizes)} sizes"
    text += f" ({'; '.join(beaten)})" if beaten else ""
    outside = f"; at {sizes[-1]} MCPCA has {methods[_MCPCA][sizes[-1]]:.2g}, {', '.join(added)}" if added else ""
    return not beaten, text + outside


def _like_one_over_n(methods: Mapping[str, Row]) -> Answer:
    rate = methods[_MCPCA]["slope"]
    return -1.1 <= rate <= -0.9, f"slope {rate:.3f} (-1 is 1 / N)"


def _only_mcpca_and_nls(methods: Mapping[str, Row]) -> Answer:
    half = [name for name, row in methods.items() if 2 * int(row["all three"].split()[0]) >= row["draws"]]
    expected = {_MCPCA, *_NLS}
    text = ", ".join(f"{name} {methods[name]['all three']}" for name in {**dict.fromkeys(half), _MCPCA: None})
    return set(half) == expected, f"draws with all three digits: {text}"


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
