"""One policy for options: an option that could have no effect is refused, with the reason and the way out.

An ignored option reads like one that was obeyed. Exempt are permissions (``--force``, ``--allow-duplicates``) and
requests to leave something out, which are met even if there is nothing to permit or to leave out. Here are the rules
that follow from the command line alone; those that depend on the files are in ``tables.options``.

The same holds for names of outputs: one whose ending promises another kind of file is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .._data.preprocess import LOG1P, Preprocess
from .._estimator.parameters import MISSING
from ._console import output_failure
from .tables import Reading, TableData
from .tables.options import options_given
from .tables.workbook_writing import too_large

# Without an ending a table is CSV, as it is on stdout.
_TABLE_FORMATS = {
    "": "csv",
    ".csv": "csv",
    ".txt": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "xlsx",
}
_PAGE_ENDINGS = frozenset({"", ".html", ".htm"})
# Endings that belong to neither a folder of results nor a file of moments.
_OTHER_ENDINGS = frozenset(
    {
        *(".csv", ".tsv", ".tab", ".txt", ".gz", ".zip", ".parquet", ".pq", ".xlsx", ".xls", ".ods"),
        *(".json", ".html", ".htm", ".pdf", ".png", ".svg"),
        *(".h5ad", ".h5mu", ".h5", ".hdf5", ".zarr", ".npy", ".mcpca", ".pkl", ".pickle", ".rds"),
    }
)
PREPROCESS = ("normalize", "hvg", "target_sum", "scale")  # options for what is done to rows
RESULTS_ARE_A_FOLDER = "results are a folder"
MOMENTS_ARE_THEIR_OWN_FORMAT = "moments have a file format of their own"


def without_effect(option: str, why: str) -> click.UsageError:
    """Return the error for an option without effect."""
    return click.UsageError(f"{option} has no effect: {why}.")


def check_fit(params: dict[str, Any]) -> None:
    """Raise if options of a fit contradict one another."""
    # Written so that NaN is refused too.
    if params["tol"] is not None and not params["tol"] > 0:
        raise click.BadParameter(f"{params['tol']} is not above 0.", param_hint="--tol")
    if params["noise"] in ("diagonal", "scaled") and params["orthogonal"] and params["solver"] in ("ml", "auto"):
        raise click.UsageError(
            f"--orthogonal cannot be combined with --noise {params['noise']} and --solver {params['solver']}: axes do "
            "not stay "
            "orthogonal when features are divided by their noise; choose --noise isotropic or pooled."
        )
    if params["solver"] == "auto" and params["robust"]:
        raise click.UsageError(
            "--solver auto cannot be combined with --robust: rows are weighted by the fit of one solver; name it."
        )
    if params["robust"] and params["checkpoint"] is not None:
        raise without_effect("--checkpoint", "a robust fit keeps no progress in files; drop one of the two")
    # Errors in the report are by groups; they are those of a likelihood.
    reports_errors = params["solver"] == "ml" and params["report"] is not False
    by_groups = not isinstance(params["rank"], int) or params["cross_fit"] or reports_errors or params["context_test"]
    by_groups = by_groups or params["solver"] == "auto" or params["replicability"] or params["bootstrap"]
    if params["groups"] and not by_groups:
        raise without_effect(
            "--groups",
            "the rank is given, and nothing else splits rows; drop it, or one of --rank and --no-context-test, or "
            "pass --replicability",
        )
    if params["bootstrap"] == 1:
        raise click.BadParameter(
            "1 resample has no spread; pass some hundreds, or 0 for none.", param_hint="--bootstrap"
        )
    if params["robust"] and params["cross_fit"]:
        raise click.UsageError(
            "--cross-fit cannot be combined with --robust: loadings in unseen rows are variances, which bad rows spoil."
        )
    if params["center"] != "overall" and not params["scores"]:
        raise without_effect(
            f"--center {params['center']}", "with --no-scores there are none to centre; drop one of the two"
        )
    # ``is False``: None means a report if plotly is installed.
    if params["title"] is not None and params["report"] is False:
        raise without_effect("--title", "with --no-report there is none to give it to; drop one of the two")
    if params["open_page"] and params["report"] is False:
        raise without_effect("--open", "with --no-report there is no page; drop one of the two")
    for option, given in (("--context-table", params["context_table"]), ("--row-metadata", params["row_metadata"])):
        if given and params["report"] is False:
            raise without_effect(option, "it is for the report, and --no-report leaves that out; drop one of the two")


def check_missing(params: dict[str, Any]) -> None:
    """Raise if ``--missing`` does not go with other options of a fit."""
    missing = params["missing"]
    if missing == "error":
        return
    solvers = MISSING[missing]
    if params["solver"] not in solvers:
        ways = " or ".join(f"--solver {name}" for name in solvers)
        raise click.UsageError(f"--missing {missing} is not for --solver {params['solver']}; pass {ways}.")
    if not isinstance(params["rank"], int):
        raise click.UsageError(
            f"--missing {missing} needs --rank R: ranks are chosen on complete rows (mcpca rank, on features or rows "
            "without gaps)."
        )
    if params["orthogonal"] and missing != "pairwise":
        raise click.UsageError(f"--orthogonal cannot be combined with --missing {missing}, but with pairwise.")
    if params["solver"] == "ml" and params["noise"] == "none":
        raise click.UsageError(f"--missing {missing} with --solver ml needs noise; drop --noise none.")
    if params["solver"] == "lsq" and missing == "union" and params["noise"] not in ("auto", "none", "isotropic"):
        raise click.UsageError("--missing union with --solver lsq has --noise isotropic or none only.")
    of_complete_rows = {"--robust": "robust", "--cross-fit": "cross_fit", "--checkpoint": "checkpoint"}
    of_complete_rows |= {"--batch": "batch", "--covariates": "covariates", "--normalize": "normalize"}
    for option, name in {**of_complete_rows, "--scale": "scale"}.items():
        if params[name]:
            raise click.UsageError(f"{option} is for complete rows and cannot be combined with --missing {missing}.")


def preprocess_of(
    normalize: str | None, hvg: int | None, target_sum: float | None, scale: bool = False
) -> Preprocess | None:
    """Return what ``--normalize``, ``--hvg``, ``--target-sum`` and ``--scale`` say is done to rows."""
    if normalize is None and not scale:
        return None
    return Preprocess(normalize, n_top=hvg, target_sum=target_sum, scale=scale).checked()


def check_preprocess(params: dict[str, Any]) -> Preprocess | None:
    """Return what is done to rows; raise if the options for it contradict others, or have no effect."""
    normalize, hvg, target_sum, scale = (params[name] for name in PREPROCESS)
    if normalize is None:
        for option, value in (("--hvg", hvg), ("--target-sum", target_sum)):
            if value is not None:
                raise without_effect(option, "it is for raw counts; pass --normalize log1p or pearson, or drop it")
        return preprocess_of(None, None, None, scale)
    if target_sum is not None and normalize != LOG1P:
        raise without_effect("--target-sum", f"it is for --normalize {LOG1P}; drop it")
    if params["obsm"] is not None:
        raise click.UsageError(
            f"--normalize is for counts, and --obsm {params['obsm']} has none; drop one of the two, or pass --layer."
        )
    if params["mask_var"] not in (None, "all"):
        raise click.UsageError(
            f"--mask-var {params['mask_var']} with --normalize: totals of rows are over all features. Choose features "
            "by --hvg, or drop one of the two."
        )
    return preprocess_of(normalize, hvg, target_sum, scale)


def check_moments(
    center: str,
    checkpoint: Path | None,
    robust: bool,
    cross_fit: int,
    solver: str,
    preprocess: Preprocess | None = None,
) -> None:
    """Raise if an option of a fit is about rows and there are only moments."""
    if preprocess is not None:
        option = "--scale" if preprocess.kind is None else "--normalize"
        raise click.UsageError(f"{option} prepares rows, and moments do not have them; pass the rows, or drop it.")
    if solver == "auto":
        raise click.UsageError(
            "--solver auto fits halves of the rows, and moments do not have them; pass the rows, or name a solver."
        )
    if center != "overall":
        raise without_effect(f"--center {center}", "moments have no rows, and so no scores to centre; drop it")
    if checkpoint is not None:
        raise without_effect("--checkpoint", "a fit to moments makes no pass over rows; drop it")
    if robust:
        raise click.UsageError("--robust weighs single rows, and moments do not have them; pass the rows, or drop it.")
    if cross_fit:
        raise click.UsageError(
            f"--cross-fit {cross_fit} fits parts of the rows, and moments do not have them; pass the rows, or drop it."
        )


def check_moments_for_refits(replicability: bool | None, bootstrap: int) -> None:
    """Raise if parts of the rows are to be fitted and there are only moments."""
    wanted = [("--replicability", replicability), (f"--bootstrap {bootstrap}", bootstrap)]
    for option, is_wanted in wanted:
        if is_wanted:
            raise click.UsageError(
                f"{option} fits parts of the rows, and moments do not have them; pass the rows, or drop it."
            )


def check_criteria(criteria: tuple[str, ...]) -> None:
    """Raise if "all" or "none" is combined with other criteria."""
    # The option may be repeated; "all" twice is no contradiction, and a set of one.
    exclusive = [name for name in ("all", "none") if name in criteria]
    if exclusive and len(set(criteria)) > 1:
        raise without_effect(
            f"--criteria {exclusive[0]}", "others are named beside it; pass it alone, or name the criteria"
        )


def check_needs_out(out: Path | None, **options: bool) -> None:
    """Raise if an option is about the output file and there is none."""
    for name, is_given in options.items():
        if out is None and is_given:
            raise without_effect(f"--{name}", "nothing is written to a file; pass --out, or drop it")


def check_context(reading: Reading, several_files: bool, center: str) -> None:
    """Raise if rows are to be centred by context and nothing says which that is."""
    if center == "context" and not (reading.context or reading.labels or several_files):
        raise click.UsageError("--center context needs --context or --labels.")


def check_no_rows(reading: Reading) -> None:
    """Raise if options say how to read rows and no file of rows is named."""
    if options := options_given(reading):
        raise without_effect(options[0], "no file of rows is given; pass DATA, or drop it")


def table_format(out: Path) -> str:
    """Return the format of a table by the ending of its name, or raise if that is not one of ours."""
    ending = out.suffix.lower()
    if ending not in _TABLE_FORMATS:
        raise output_failure(
            f"--out {out}: tables are written as .csv, .tsv, .parquet or .xlsx, and not as {out.suffix}; choose one of "
            "these."
        )
    return _TABLE_FORMATS[ending]


def is_page(out: Path) -> bool:
    """Whether a name is that of a page, and not of a folder."""
    return out.suffix.lower() in _PAGE_ENDINGS - {""} and not out.is_dir()


def check_sheets(data: TableData, scores: bool) -> None:
    """Raise, before the fit, if a table of results is too large for a sheet of Excel."""
    rows = {"--format xlsx: components.xlsx": data.n_features}
    if scores:
        rows["--format xlsx: scores.xlsx"] = data.n_rows
    for name, n in rows.items():
        if why := too_large(n, 1):
            raise output_failure(f"{name} would have {why}; choose --format parquet or csv.")


def check_page(out: Path) -> None:
    """Raise if the name of a report promises something else than a page."""
    if out.suffix.lower() not in _PAGE_ENDINGS:
        raise output_failure(f"--out {out}: the report is a page; choose a name that ends in .html.")


def check_ending(out: Path, what: str) -> None:
    """Raise if a name ends like that of another kind of file; ``what`` is one of the two constants above."""
    # A folder that is already called results.csv is its owner's choice; replacing it is for ``check_folder`` to decide.
    if out.suffix.lower() in _OTHER_ENDINGS and not out.exists():
        raise output_failure(f"--out {out}: {what}; choose a name that does not end in {out.suffix}.")
