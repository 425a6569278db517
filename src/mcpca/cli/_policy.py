"""One policy for options: one that could have no effect is refused, with why and the way out.

Permissions (``--force``, ``--allow-duplicates``) and what is asked to be left out may be given where there is nothing
to permit or to leave out: what was asked for is done. What depends on the files is looked at in ``tables.options``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ._console import output_failure
from .tables import Reading
from .tables.options import given

TABLES = {
    "": "csv",
    ".csv": "csv",
    ".txt": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_PAGES = frozenset({"", ".html", ".htm"})
# Endings of files that are something else than a folder of results, or than moments.
_FILES = frozenset(
    {
        ".csv",
        ".tsv",
        ".tab",
        ".txt",
        ".gz",
        ".zip",
        ".parquet",
        ".pq",
        ".xlsx",
        ".xls",
        ".ods",
        ".json",
        ".html",
        ".htm",
    }
    | {".pdf", ".png", ".svg", ".h5ad", ".h5", ".hdf5", ".zarr", ".npy", ".mcpca", ".pkl", ".pickle", ".rds"}
)


def refused(option: str, why: str) -> click.UsageError:
    """Return the error for an option without effect."""
    return click.UsageError(f"{option} has no effect: {why}.")


def check_fit(params: dict[str, Any]) -> None:
    """Raise where an option of a fit goes with no other."""
    if not params["tol"] > 0:
        raise click.BadParameter(f"{params['tol']} is not above 0.", param_hint="--tol")
    if params["noise"] != "isotropic" and params["solver"] != "ml":
        raise refused(
            f"--noise {params['noise']}", f"--solver {params['solver']} has no noise; pass --solver ml, or drop it"
        )
    if params["noise"] == "diagonal" and params["orthogonal"]:
        raise click.UsageError(
            "--orthogonal does not go with --noise diagonal: axes that are orthogonal are not so once features are "
            "divided by their noise; choose --noise isotropic or pooled."
        )
    if params["center"] != "overall" and not params["scores"]:
        raise refused(f"--center {params['center']}", "with --no-scores there are none to centre; drop one of the two")
    if params["title"] is not None and params["report"] is False:
        raise refused("--title", "with --no-report there is none to give it to; drop one of the two")


def check_moments(center: str, checkpoint: Path | None) -> None:
    """Raise where an option of a fit is about rows, and there are moments only."""
    if center != "overall":
        raise refused(f"--center {center}", "moments have no rows, and so no scores to centre; drop it")
    if checkpoint is not None:
        raise refused("--checkpoint", "a fit to moments makes no pass over rows; drop it")


def check_criteria(criteria: tuple[str, ...]) -> None:
    """Raise where "all" or "none" comes with others."""
    alone = [name for name in ("all", "none") if name in criteria]
    if alone and len(set(criteria)) > 1:
        raise refused(f"--criteria {alone[0]}", "others are named beside it; pass it alone, or name the criteria")


def check_needs_out(out: Path | None, **options: bool) -> None:
    """Raise where an option is about the output, and it goes to stdout."""
    for name, is_given in options.items():
        if out is None and is_given:
            raise refused(f"--{name}", "nothing is written to a file; pass --out, or drop it")


def check_context(reading: Reading, several: bool, center: str) -> None:
    """Raise where rows are to be centred by their context, and nothing says which that is."""
    if center == "context" and not (reading.context or reading.labels or several):
        raise click.UsageError("--center context needs --context or --labels.")


def check_no_rows(reading: Reading) -> None:
    """Raise where options say how to read rows, and no file of rows is named."""
    if options := given(reading):
        raise refused(options[0], "no file of rows is given; pass DATA, or drop it")


def table_format(out: Path) -> str:
    """Return the format of a table by the ending of its name, or raise where it is of another one."""
    if out.suffix.lower() not in TABLES:
        raise output_failure(
            f"--out {out}: tables are .csv, .tsv or .parquet; {out.suffix} is not written, choose one."
        )
    return TABLES[out.suffix.lower()]


def check_page(out: Path) -> None:
    """Raise where the name of a report says that it is no page."""
    if out.suffix.lower() not in _PAGES:
        raise output_failure(f"--out {out}: the report is a page; let its name end in .html.")


def check_no_ending(out: Path, what: str) -> None:
    """Raise where a name ends as that of another kind of file does."""
    if out.suffix.lower() in _FILES and not out.exists():
        raise output_failure(f"--out {out}: {what}; a name that ends in {out.suffix} is one of another kind.")
