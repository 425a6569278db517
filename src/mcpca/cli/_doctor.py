"""``mcpca doctor``: what is in a file, whether MCPCA can use it, and the command that fits it.

In three steps. ``_examine`` looks at the file and collects ``Findings``: facts to print, columns that could be
contexts, and a ``Reading`` that leaves out what cannot be a feature. ``_try`` then reads the file in just that way, so
that the verdict is an experiment and not a guess. ``_fit_command`` writes the reading down as options.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from .._data.sources import as_source
from .._utils.printing import counted
from .._utils.wording import listed
from ._applying import open_model
from ._console import Console, Failure
from ._suspects import suspect_columns, suspects_in_words
from .tables import Reading, TableData, UnusableFileError, read_data, stdin
from .tables._errors import UselessOptionError, foreign_bytes, quoted_names, short
from .tables.annotated import RAW_COUNTS, Annotated
from .tables.arrays import Npz, read_npy
from .tables.columns import matching_columns
from .tables.data import Budget
from .tables.kinds import FileKind, file_kind
from .tables.labels import Labels
from .tables.options import check_options, options_given
from .tables.reading import load_moments
from .tables.survey import Survey, survey
from .tables.tabular import open_table

_MOST_INTEGER_CONTEXTS = 50  # a column of more distinct integers is rather a measurement
_SHOWN_NAMES = 12
_SHOWN_VALUES = 4
_SCAN_BYTES = 2**26  # of rows that are checked at a time
_TABLE_ENDINGS = (".csv", ".tsv", ".tab", ".parquet", ".pq")


@dataclass
class Findings:
    """What ``_examine`` has found.

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
    """

    facts: list[str] = field(default_factory=list)
    contexts: dict[str, list[int]] = field(default_factory=dict)
    reading: Reading = field(default_factory=Reading)
    advice: list[str] = field(default_factory=list)
    no_features: dict[str, str] = field(default_factory=dict)
    has_rows: bool = True


def run_doctor(path: Path, reading: Reading, console: Console) -> dict[str, Any]:
    """Say what is in a file and how to fit it; raise a ``Failure`` if it cannot be fitted."""
    kind = file_kind(path)
    if kind.format in ("model", "moments") and (options := options_given(reading)):
        raise UselessOptionError(path, f"has no rows, so {options[0]} has no effect; drop it.")
    # For a folder, options are checked against the files in it, when these are read (``_try``).
    if kind.format != "folder":
        check_options(reading, [path], [kind])
    with console.phase("reading"), foreign_bytes(path, kind.format):
        findings = _examine(path, kind, reading)
    # Facts before the trial: they help most where the file turns out to be unusable.
    console.say(f"{path}: {findings.facts[0]}")
    for fact in findings.facts[1:]:
        console.say(f"  {fact}")
    content: dict[str, Any] = {"format": kind.format, "facts": findings.facts, "contexts": findings.contexts}
    content["no_features"] = findings.no_features
    # Models and moments say in their facts what to do with them.
    if not findings.has_rows:
        return {**content, "usable": True}
    for text in findings.advice:
        console.say(f"  {text}")
    try:
        with console.phase("trying"):
            data = _try(path, kind, findings.reading)
    except UnusableFileError as error:
        raise Failure(str(error), 3, "input", {**content, "usable": False}) from error
    for text in [*(f"left out: {note}" for note in data.notes), *data.oddities]:
        console.say(f"  {text}")
    # A mask is for prepared rows: totals of raw ones are over all features.
    is_raw = RAW_COUNTS in data.oddities and findings.reading.mask_var in (None, "all")
    command = _fit_command(path, findings.reading, is_raw)
    assert data.labels is not None  # read_data raises without contexts
    counts = data.labels.counts()
    console.say(
        f"MCPCA can use it: {counted(len(counts), 'context')} of {counts.min():,} to {counts.max():,} rows, "
        f"{counted(data.n_features, 'feature')}{'' if data.in_memory else ', streamed from the file'}.\n\n  {command}"
    )
    return {**content, "usable": True, "command": command, "rows": data.n_rows, "features": data.n_features}


# Looking at a file, by its format ------------------------------------------------------------------------------------


def _examine(path: Path, kind: FileKind, reading: Reading) -> Findings:
    if kind.format == "folder":
        return _examine_folder(path, reading)
    if kind.is_table:
        return _examine_table(open_table(path, kind, reading), reading)
    if kind.is_anndata:
        return _examine_anndata(Annotated(path, kind.format), reading)
    if kind.format == "npz":
        return _examine_npz(Npz(path, Budget(reading.max_bytes)), reading)
    if kind.format == "npy":
        array = read_npy(path)
        facts = [f"NumPy array, shape {array.shape}, {array.dtype}"]
        advice = [] if reading.labels else ["It has no contexts: pass --labels FILE with one label per row."]
        return Findings(facts, {}, reading, advice)
    if kind.format == "model":
        return _examine_model(path)
    return _examine_moments(path)


def _examine_model(path: Path) -> Findings:
    model = open_model(path)
    k, r = model.loadings_.shape
    facts = [
        f"a fitted model: {r} MCPCs, {k} contexts, {model.n_features_in_:,} features, solver {model.solver_}",
        f"contexts: {quoted_names(model.contexts_.tolist(), _SHOWN_NAMES)}",
        "Use it with mcpca transform, mcpca loadings and mcpca report.",
    ]
    return Findings(facts, has_rows=False)


def _examine_moments(path: Path) -> Findings:
    moments = load_moments(path)
    k, p = moments.means.shape
    removed = "" if moments.nuisance is None else f"; a fit removes {moments.nuisance.in_words()}"
    facts = [
        f"moments of {k} contexts and {p:,} features, from {int(moments.counts.sum()):,} rows{removed}",
        f"contexts: {quoted_names(moments.contexts.tolist(), _SHOWN_NAMES)}",
        f"MCPCA can use it: mcpca fit {shlex.quote(str(path))}",
    ]
    return Findings(facts, has_rows=False)


def _examine_table(table: Any, reading: Reading) -> Findings:
    # A pass over all rows: the first lines do not show gaps, nor how many values a column has.
    surveyed = survey(table, reading.na_values)
    numbers = [name for name in table.columns if name not in table.text and name != table.index]
    texts = [name for name in table.columns if name in table.text and name != table.index]
    facts = [
        f"{table.format}: {counted(surveyed.n_rows, 'row')}, {counted(len(numbers), 'column')} of numbers, "
        f"{len(texts)} of text",
        f"numbers: {quoted_names(numbers, _SHOWN_NAMES)}",
    ]
    if table.index is not None:
        facts.append("names of rows: the first column" + ("" if table.index else ", which has no name"))
    facts += [f"text {short(name)!r}: {_values_in_words(surveyed.counts[name])}" for name in texts]
    missing = {name: n for name, n in surveyed.missing.items() if n}
    if missing:
        counts = [f"{short(name)!r} ({n:,})" for name, n in missing.items()]
        facts.append(f"missing values: {listed(counts, _SHOWN_NAMES)}")
    if surveyed.row_numbers:
        facts.append(f"row numbers: {quoted_names(surveyed.row_numbers)}")
    candidates = {
        name: list(counts.values())
        for name, counts in surveyed.counts.items()
        if counts is not None and _could_be_contexts(counts, surveyed.n_rows)
    }
    # A feature with gaps cannot be fitted; gaps in text are missing labels, for which there is --drop-unlabelled.
    incomplete = [name for name in missing if name not in table.text]
    # Suspects last, since what is context or index by then is not suspected.
    findings = _suggest(facts, candidates, reading, texts, [*surveyed.row_numbers, *incomplete], surveyed)
    _leave_out_suspects(findings, table, surveyed)
    return findings


def _examine_anndata(adata: Annotated, reading: Reading) -> Findings:
    facts = [f"AnnData ({adata.format}): {counted(adata.n_obs, 'row')} (obs), {counted(adata.n_vars, 'feature')} (var)"]
    candidates = {}
    for column in adata.obs.columns:
        values = adata.obs[column]
        counts = _counts_by_name(adata.labels(str(column), reading.na_values))
        # Numbers of many values are measurements of quality and the like; the range says more than the values.
        if values.dtype.kind in "iuf" and len(counts) > _MOST_INTEGER_CONTEXTS:
            facts.append(f"obs {short(column)!r}: numbers from {values.min():.4g} to {values.max():.4g}")
            continue
        facts.append(f"obs {short(column)!r}: {_values_in_words(counts)}")
        if _could_be_contexts(counts, adata.n_obs):
            candidates[str(column)] = list(counts.values())
    matrices = (("layers", adata.layers), ("obsm", adata.obsm))
    facts += [f"{what}: {quoted_names(names)}" for what, names in matrices if names]
    # Opened, not read: shape and type are in the file's metadata.
    stored, _ = adata.matrix(reading)
    source = as_source(stored, adata.where)
    facts.append(
        f"matrix: {source.shape[0]:,} x {source.shape[1]:,}, {'sparse' if source.sparse else 'dense'} {source.dtype}"
    )
    findings = _suggest(facts, candidates, reading, list(candidates), [], None)
    chosen = [adata.labels(name, reading.na_values) for name in findings.reading.context]
    return _with_labels_apart(findings, reading, chosen)


def _examine_npz(npz: Npz, reading: Reading) -> Findings:
    facts = [f"NumPy archive: {counted(len(npz.arrays), 'array')}"]
    facts += [f"{short(name)}: {info.shape} {info.dtype}" for name, info in list(npz.arrays.items())[:_SHOWN_NAMES]]
    # Without any matrix there is nothing to have n rows, and the trial below says what is missing.
    shape = npz.shape() if npz.matrices() or npz.is_sparse else None
    candidates = {}
    n = 0 if shape is None else shape[0]
    for name in npz.vectors(n) if n else []:
        kind = npz.arrays[name].dtype.kind
        # Text, integers and booleans. Floats are measurements, even if there are few of them.
        if kind in "USiub":
            counts = _counts_by_name(npz.labels(name, reading.na_values))
            is_text = kind in "US"
            if (is_text or len(counts) <= _MOST_INTEGER_CONTEXTS) and _could_be_contexts(counts, n):
                candidates[name] = list(counts.values())
    findings = _suggest(facts, candidates, reading, list(candidates), [], None)
    columns = [name for name in findings.reading.context if name in npz.arrays]
    return _with_labels_apart(findings, reading, [npz.labels(name, reading.na_values) for name in columns])


def _examine_folder(path: Path, reading: Reading) -> Findings:
    inside = sorted(p.name for p in path.iterdir() if not p.name.startswith("."))
    fact = f"a folder with {counted(len(inside), 'file')} or folders: {quoted_names(inside, _SHOWN_NAMES)}"
    findings = Findings([fact], {}, reading)
    tables = [name for name in inside if name.lower().removesuffix(".gz").endswith(_TABLE_ENDINGS)]
    if tables:  # the first stands for all, which must have the same columns
        first = path / tables[0]
        table = open_table(first, file_kind(first), reading)
        _leave_out_suspects(findings, table, survey(table, reading.na_values))
    return findings


# A way to read it ----------------------------------------------------------------------------------------------------


def _suggest(
    facts: list[str],
    candidates: dict[str, list[int]],
    reading: Reading,
    texts: list[str],
    not_features: list[str],
    surveyed: Survey | None,
) -> Findings:
    """Return a way to read the file; options that were given are kept.

    The first column of text that could be contexts is taken as that, or the first of numbers; a column that is
    different in every row names the rows; other text and ``not_features`` are dropped.
    """
    context = reading.context
    if not context and not reading.labels and candidates:
        # Text first: names are made to tell groups apart, and small integers may be counts.
        context = (next((name for name in candidates if name in texts), next(iter(candidates))),)
    if not candidates and not context and not reading.labels:
        facts.append("no column could be contexts; if the rows of the table are its features, transpose it")
    if candidates:
        shown = [f"{short(name)} ({len(counts)})" for name, counts in candidates.items()]
        facts.append(f"could be contexts: {listed(shown, _SHOWN_NAMES)}")
    taken = {*context, *([reading.index] if reading.index else [])}
    index = reading.index
    # Of tables only: an AnnData has names of rows, and ``_with_labels_apart`` would undo the choice.
    if index is None and surveyed is not None and not reading.features:
        unique = [name for name in texts if name not in taken and len(surveyed.counts[name] or {}) == surveyed.n_rows]
        index = next(iter([*surveyed.row_numbers, *unique]), None)
        taken |= {index} if index else set()
    drop = [] if reading.features else [name for name in (*texts, *not_features) if name not in taken]
    # Suggested only where they are needed, so that the command stays short and none of its options is without effect.
    unlabelled = surveyed is not None and any(surveyed.missing.get(name, 0) for name in context)
    # A single row has no covariance. For crossed columns the counts are not known before they are read.
    has_single_rows = len(context) == 1 and any(n < 2 for n in candidates.get(context[0], []))
    suggested = replace(
        reading,
        context=tuple(context),
        index=index,
        drop=tuple(dict.fromkeys([*reading.drop, *drop])),
        drop_unlabelled=reading.drop_unlabelled or unlabelled,
        min_samples=max(reading.min_samples, 2) if has_single_rows else reading.min_samples,
    )
    return Findings(facts, candidates, suggested)


def _with_labels_apart(findings: Findings, reading: Reading, labels: list[Labels]) -> Findings:
    """Undo what ``_suggest`` says about columns: in AnnData and .npz contexts are not among the features."""
    # Known from the labels themselves, since there is no survey of these files.
    has_missing = any((column.codes < 0).any() for column in labels)
    findings.reading = replace(
        findings.reading,
        drop=reading.drop,
        index=reading.index,
        drop_unlabelled=reading.drop_unlabelled or has_missing,
    )
    return findings


def _leave_out_suspects(findings: Findings, table: Any, surveyed: Survey) -> None:
    """Leave out columns that are probably not features, unless features were named."""
    reading = findings.reading
    if reading.features:
        return
    dropped = matching_columns(reading.drop, table.columns, "--drop", table.where)
    # What has a role, or is left out already, needs no suspicion.
    taken = {*reading.context, reading.index, table.index, *dropped}
    numbers = [name for name in table.columns if name not in table.text and name not in taken]
    findings.no_features = suspect_columns(numbers, surveyed)
    if findings.no_features:
        findings.advice.append(suspects_in_words(findings.no_features))
        findings.reading = replace(reading, drop=(*reading.drop, *findings.no_features))


def _try(path: Path, kind: FileKind, reading: Reading) -> TableData:
    """Read the file as suggested, or raise what ``mcpca fit`` would."""
    # The very function that ``mcpca fit`` calls, so that the verdict cannot differ from it.
    data = read_data([path], reading)
    if data.labels is not None and (single := [n for n in data.labels.counts().tolist() if n < 2]):
        raise UnusableFileError(path, f"{counted(len(single), 'context')} with a single row; pass --min-samples 2.")
    # All other values were checked as they were read; a matrix on disk has not been read yet.
    if not data.in_memory and kind.is_anndata:
        for first, block in data.source.scan(_SCAN_BYTES):
            values = block.data if data.source.sparse else block
            if not np.isfinite(values).all():
                raise UnusableFileError(path, f"has missing or infinite values within rows {first + 1:,} onwards.")
    return data


def _fit_command(path: Path, reading: Reading, is_raw: bool) -> str:
    """Return the command that reads a file in this way and fits it, and prepares raw counts."""
    # Only what differs from the defaults, and all of that: the command has to read the file in just this way.
    words = ["mcpca", "fit", str(stdin.as_typed(path))]
    for name in reading.context:
        words += ["--context", name]
    single_values = {
        "--labels": reading.labels,
        "--index": reading.index,
        "--layer": reading.layer,
        "--obsm": reading.obsm,
        "--mask-var": reading.mask_var,
    }
    for option, value in single_values.items():
        words += [option, str(value)] if value else []
    several_values = {"--drop": reading.drop, "--features": reading.features, "--na-values": reading.na_values}
    for option, values in several_values.items():
        for value in values:
            words += [option, value]
    words += ["--normalize", "log1p"] if is_raw else []
    words += ["--min-samples", str(reading.min_samples)] if reading.min_samples else []
    words += ["--drop-unlabelled"] if reading.drop_unlabelled else []
    words += ["--allow-duplicates"] if reading.allow_duplicates else []
    words += ["--max-memory", str(reading.max_bytes // 2**20)] if reading.max_bytes != Reading.max_bytes else []
    words += ["--no-header"] if not reading.header else []
    words += ["--decimal", reading.decimal] if reading.decimal != "." else []
    words += ["--delimiter", reading.delimiter.replace("\t", "tab")] if reading.delimiter else []
    words += ["--encoding", reading.encoding] if reading.encoding else []
    return shlex.join(words)


# Values of a column --------------------------------------------------------------------------------------------------


def _could_be_contexts(counts: dict[str, int], n: int) -> bool:
    """Whether a column has at least two values, and not so many that contexts would have fewer than two rows."""
    # On average two rows a context, the fewest that have a covariance; max(2, ...) for files of very few rows.
    return 2 <= len(counts) <= max(2, n // 2)


def _counts_by_name(labels: Labels) -> dict[str, int]:
    return {name: int(n) for name, n in zip(labels.categories, labels.counts(), strict=True) if n}


def _values_in_words(counts: dict[str, int] | None) -> str:
    """Return how many values a column has, and the most frequent ones; None stands for too many to count."""
    if counts is None:
        return "many values"
    if not counts:
        return "no values"
    frequent = sorted(counts, key=lambda name: -counts[name])[:_SHOWN_VALUES]
    shown = ", ".join(f"{short(name, 24)!r} ({counts[name]:,})" for name in frequent)
    return f"{counted(len(counts), 'value')}, {shown}" + (" ..." if len(counts) > _SHOWN_VALUES else "")
