"""Messages of the library and of click in words of the command line: options for parameters, files for arrays.

The library speaks to those who write Python: ``n_components=3``, ``X``, row 0. Whoever typed a command knows
``--rank 3``, a file, and row 1. ``in_words_of_the_command`` is the only place where one becomes the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable

# Parameters of the library, and the options that stand for them.
_OPTIONS = {
    **{"n_components": "--rank", "preprocess": "--normalize", "n_top": "--hvg", "random_state": "--seed"},
    **{name: f"--{name.replace('_', '-')}" for name in ("cross_fit", "max_iter", "min_samples", "target_sum", "tol")},
    **{name: f"--{name}" for name in ("solver", "noise", "center", "groups", "batch", "covariates", "checkpoint")},
    **{name: f"--{name}" for name in ("robust", "orthogonal", "posterior", "ranks", "criteria")},
    "allow_duplicates": "--allow-duplicates",
}
# name=value, where the value is quoted, a number, a word, or "..." for any.
_ASSIGNED = re.compile(rf"\b({'|'.join(_OPTIONS)})=('[^']*'|\"[^\"]*\"|\.\.\.|[\w+-]+(?:\.\d+)?)")
_ROW_AND_FEATURE = re.compile(r"\brow (\d+), feature (\d+)")
# In this order: a rule sees what those before it have left.
_Replacement = str | Callable[[re.Match[str]], str]
_RULES: tuple[tuple[str, _Replacement], ...] = (
    # Ways out that only Python has.
    (r" Whether axes come back in other contexts is replicability\(.*?\)\.", ""),
    (r" mcpca\.select_rank\(.*?\)\.plot\(\) shows every criterion\.", " mcpca rank shows every criterion."),
    (r", or give a mean\b", ""),
    (r"Pass raw counts \(a layer, or adata\.raw\)", "Pass raw counts (--layer may name them)"),
    (r"; update with more\b", "; merge them with moments that have more, or make them anew with --min-samples 2"),
    (r", because they are float32 or float64\b", ""),
    # Of parameters.
    (r"^(batch|groups|covariates): ", r"--\1: "),
    (r"\band preprocess is for\b", "and --normalize is for"),
    (r"\bn_components <= (\d+)", r"--rank \1 or lower"),
    (r"\bn_components < n_features\b", "a --rank below the number of features"),
    (r"\bcorrected=False\b", "--as-fitted"),
    (r"\bmissing='error'", "complete rows"),
    # Of results.
    (r"\bcorrected_loadings_\b", "corrected_loadings.csv"),
    (r"\bloadings_\b", "loadings.csv"),
    (r", singular_values_,", " (scree.csv)"),
    # Of data: what is wrong with X is wrong with the file, which is named in front.
    (r"^X (?=has |is |holds |does |mixes )", ""),
    (r"^y: ", ""),
    (
        r"\bis too large for float64: its squares overflow \(its values are about (\S+)\)\. Divide it\b",
        r"has values of about \1, whose squares are too large to compute with. Divide them",
    ),
    (r"\brows of X\b", "rows"),
    (r"\b(of|in|from|out of) X\b", r"\1 the file"),
    (r"\bX\b(?=[ ,])", "the file"),
    (r"\(n_samples = 1\)", "(1 row)"),
    (r"\(n_samples = (\d+)\)", r"(\1 rows)"),
    (r"\bsamples\b", "rows"),
    # Of click.
    (r"\bis not a valid (float|float range)\b", "is not a number"),
    (r"\bis not a valid (integer|integer range)\b", "is not a whole number"),
    (r"\bis not in the range x>=(\S+?)\.?$", r"is less than \1"),
    (r"\bis not in the range x>(\S+?)\.?$", r"is not above \1"),
    (r"\bis not in the range (\S+?)<=x<=(\S+?)\.?$", r"is not within \1 to \2"),
)  # fmt: skip
_COMPILED = tuple((re.compile(pattern), replacement) for pattern, replacement in _RULES)


def in_words_of_the_command(text: str) -> str:
    """Return a message on one line, in words of the command line."""
    line = " ".join(text.split())
    for pattern, replacement in _COMPILED:
        line = pattern.sub(replacement, line)
    line = _ASSIGNED.sub(_option, line)
    # Counted from 0 in Python, and from 1 by everybody else.
    line = _ROW_AND_FEATURE.sub(lambda found: f"row {int(found[1]) + 1}, feature {int(found[2]) + 1}", line)
    line = re.sub(r"(\S+) <= (\S+) <= (\S+) is needed\.", r"it goes from \1 to \3.", line)
    for parameter, option in _OPTIONS.items():
        # Words such as "noise" and "batch" are also plain English; only those with an underscore are not.
        if "_" in parameter:
            line = re.sub(rf"\b{parameter}\b", option, line)
    return line


def _option(found: re.Match[str]) -> str:
    """Return ``--rank 3`` for ``n_components=3``, and "no --robust" for ``robust=False``."""
    option, value = _OPTIONS[found[1]], found[2].strip("'\"")
    if value in ("None", "False", "0") and found[1] != "random_state":
        return f"no {option}"
    # A flag has no value, and "..." stands for any.
    if value in ("True", "...", ""):
        return option
    return f"{option} {found[2] if ' ' in value else value}"
