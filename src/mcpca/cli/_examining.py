"""What is in a file, for ``mcpca doctor``: facts, columns that could be contexts, and a way to read it.

One function a format, all of which return ``Findings``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._data.sources import as_source
from .._utils.printing import counted
from .._utils.wording import listed
from ._applying import open_model
from ._findings import (
    SHOWN_NAMES,
    Findings,
    could_be_contexts,
    counts_by_name,
    crossed_in_words,
    say_candidates,
    suggest,
    values_in_words,
)
from ._remedies import opened
from ._sample_sheets import find_sheet, line_of_contexts, looks_turned, samples_of
from ._suspects import METADATA_IF_WHOLE, suspect_columns, suspects_in_words
from .tables import Reading
from .tables._errors import quoted_names, short
from .tables.annotated import Annotated
from .tables.arrays import Npz, array_in_words, read_npy
from .tables.columns import matching_columns
from .tables.data import Budget
from .tables.kinds import FileKind, file_kind
from .tables.labels import LabelBuilder, Labels
from .tables.reading import load_moments
from .tables.strays import find_strays, stray_in_words
from .tables.survey import Survey, survey
from .tables.tabular import Table

_MOST_INTEGER_CONTEXTS = 50  # a column of more distinct integers is rather a measurement
_LEAST_ROWS = 5  # of the average context of a column that is preferred
_MOST_DROPPED = 0.5  # of the columns of numbers that are left out for their gaps; with more, the rows are to blame
_TABLE_ENDINGS = (".csv", ".tsv", ".tab", ".parquet", ".pq", ".xlsx")
# What columns of contexts are called, of which one is preferred to others.
_CONTEXT_NAMES = re.compile(
    r"context|group|condition|(cell|tumou?r|sample)?[_. ]?types?|tissue|organ|(bulk_)?labels?|clusters?|class|genre|"
    r"treatment|region|species|category|population|diagnosis|disease|cohort|arm|leiden|louvain",
    re.IGNORECASE,
)


def examine(path: Path, kind: FileKind, reading: Reading) -> Findings:
    """Look at a file, or a folder."""
    if kind.format == "folder":
        return _examine_folder(path, reading)
    if kind.is_table:
        table, remedied, remedies = opened(path, kind, reading)
        return _examine_table(table, path, remedied, remedies)
    if kind.is_anndata:
        return _examine_anndata(Annotated(path, kind.format, reading.mod), reading)
    if kind.format == "npz":
        return _examine_npz(Npz(path, Budget(reading.max_bytes)), reading)
    if kind.format == "npy":
        advice = [] if reading.labels else ["It has no contexts: pass --labels FILE with one label per row."]
        return Findings([f"NumPy array of {array_in_words(read_npy(path))}"], {}, reading, advice)
    if kind.format == "model":
        return _examine_model(path)
    return _examine_moments(path)


def _examine_model(path: Path) -> Findings:
    model = open_model(path)
    k, r = model.loadings_.shape
    facts = [
        f"a fitted model: {counted(r, 'MCPC')}, {counted(k, 'context')}, {model.n_features_in_:,} features, solver "
        f"{model.solver_}",
        f"contexts: {quoted_names(model.contexts_.tolist(), SHOWN_NAMES)}",
        "Use it with mcpca transform, mcpca loadings and mcpca report.",
    ]
    return Findings(facts, has_rows=False)


def _examine_moments(path: Path) -> Findings:
    moments = load_moments(path)
    k, p = moments.means.shape
    removed = "" if moments.nuisance is None else f"; a fit removes {moments.nuisance.in_words()}"
    facts = [
        f"moments of {k} contexts and {p:,} features, from {int(moments.counts.sum()):,} rows{removed}",
        f"contexts: {quoted_names(moments.contexts.tolist(), SHOWN_NAMES)}",
    ]
    names = [str(name) for name in moments.contexts]
    contexts = {name: [int(n)] for name, n in zip(names, moments.counts, strict=True)}
    return Findings(facts, contexts, has_rows=False)


def _examine_folder(path: Path, reading: Reading) -> Findings:
    inside = sorted(p.name for p in path.iterdir() if not p.name.startswith("."))
    fact = f"a folder with {counted(len(inside), 'file')} or folders: {quoted_names(inside, SHOWN_NAMES)}"
    tables = [name for name in inside if name.lower().removesuffix(".gz").endswith(_TABLE_ENDINGS)]
    if not tables:
        return Findings([fact], {}, reading)
    # The first stands for all, which must have the same columns; the trial reads them all.
    first = path / tables[0]
    table, remedied, remedies = opened(first, file_kind(first), reading)
    findings = _examine_table(table, first, remedied, remedies, in_folder=True)
    findings.facts = [fact, f"the first, {tables[0]}: {findings.facts[0]}", *findings.facts[1:]]
    return findings


# Tables --------------------------------------------------------------------------------------------------------------


def _examine_table(
    table: Table, path: Path, reading: Reading, remedies: list[str], in_folder: bool = False
) -> Findings:
    # A pass over all rows: the first lines do not show gaps, nor how many values a column has.
    surveyed = survey(table, reading.na_values)
    numbers = samples_of(table)
    texts = [name for name in table.columns if name in table.text and name != table.index]
    facts = [
        f"{table.format}: {counted(surveyed.n_rows, 'row')}, {counted(len(numbers), 'column')} of numbers, "
        f"{len(texts)} of text",
        *remedies,
        f"numbers: {quoted_names(numbers, SHOWN_NAMES)}",
    ]
    if table.index is not None:
        facts.append("names of rows: the first column" + ("" if table.index else ", which has no name"))
    strays = find_strays(table, texts, reading.decimal, reading.na_values)
    turned = line_of_contexts(table, strays)
    if turned is not None and not reading.transpose and not in_folder and not reading.context:
        return _turned_by_line(facts, table, turned, reading)
    facts += [stray_in_words(table, name, stray) for name, stray in strays.items()]
    # A column of numbers with a few words in it is no column of contexts.
    texts = [name for name in texts if name not in strays]
    facts += [f"text {short(name)!r}: {values_in_words(surveyed.counts[name])}" for name in texts]
    missing = {name: n for name, n in surveyed.missing.items() if n}
    if missing:
        counts = [f"{short(name)!r} ({n:,})" for name, n in missing.items()]
        facts.append(f"missing values: {listed(counts, SHOWN_NAMES)}")
    if surveyed.row_numbers:
        facts.append(f"row numbers: {quoted_names(surveyed.row_numbers)}")
    if reading.transpose:
        return _transposed(facts, table, path, reading)
    candidates = {} if in_folder else _candidates(table, surveyed, [*texts, *numbers])
    if not candidates and not in_folder and not reading.context:
        elsewhere = _contexts_elsewhere(facts, table, surveyed, path, reading)
        if elsewhere is not None:
            return elsewhere
    # A feature with gaps cannot be fitted; gaps in text are missing labels, for which there is --drop-unlabelled.
    incomplete = [name for name in missing if name not in table.text]
    if len(incomplete) > _MOST_DROPPED * max(len(numbers), 1):
        incomplete = []
    not_features = [*surveyed.row_numbers, *incomplete, *strays]
    # Suspects last, since what is context or index by then is not suspected.
    findings = suggest(facts, candidates, reading, texts, not_features, surveyed, in_folder)
    if len(candidates) > 1 and not reading.context:
        findings.facts += crossed_in_words(_labels_of(table, candidates, reading), candidates)
    _leave_out_suspects(findings, table, surveyed)
    return findings


def _candidates(table: Table, surveyed: Survey, names: list[str]) -> dict[str, list[int]]:
    """Return the columns that could be contexts, with the number of rows of each; the best of them first.

    Of whole numbers, only those whose name says so or that are exceptions: small numbers may well be counts.
    """
    n_numbers = sum(name not in table.text for name in names)
    found = {}
    for name in names:
        counts = surveyed.counts.get(name)
        if counts is None or not could_be_contexts(counts, surveyed.n_rows):
            continue
        is_named = METADATA_IF_WHOLE.fullmatch(name) or _CONTEXT_NAMES.fullmatch(name)
        # Among other whole numbers, a column in order is rather a label by which rows were sorted.
        is_label = is_named or 3 * len(surveyed.whole) <= n_numbers or name in surveyed.ordered
        if name not in table.text and not is_label:
            continue
        found[name] = list(counts.values())
    return _best_first(found, {name for name in found if name not in table.text})


def _best_first(candidates: dict[str, list[int]], numeric: set[str]) -> dict[str, list[int]]:
    """Return columns that could be contexts, those that most probably are first."""

    def rank(name: str) -> tuple[bool, bool, bool]:
        # Text first: names are made to tell groups apart. Then contexts of a few rows at least.
        small = sum(candidates[name]) < _LEAST_ROWS * len(candidates[name])
        return (name in numeric, small, not _CONTEXT_NAMES.fullmatch(name))

    return {name: candidates[name] for name in sorted(candidates, key=rank)}


def _labels_of(table: Table, candidates: dict[str, list[int]], reading: Reading) -> list[Labels]:
    """Return the labels of the first two candidates."""
    names = list(candidates)[:2]
    builders = [LabelBuilder(reading.na_values) for _ in names]
    for batch in table.batches([], names):
        for i, builder in enumerate(builders):
            builder.add(batch.column(i))
    return [builder.finish() for builder in builders]


def _contexts_elsewhere(
    facts: list[str], table: Table, surveyed: Survey, path: Path, reading: Reading
) -> Findings | None:
    """Return findings for a table without contexts: a sample sheet says them, or the table has to be turned."""
    samples = samples_of(table)
    if (sheet := find_sheet(path, samples, reading)) is not None:
        facts.append(f"one line per feature: {sheet.path.name} names its columns in {sheet.names_column!r}")
        return _by_sheet(facts, sheet, replace(reading, transpose=True))
    first = table.columns[0]
    if table.index is not None or first in table.text:
        names = [text or "" for batch in table.batches([], [first]) for text in batch.column(0).to_pylist()]
        if (sheet := find_sheet(path, names, reading)) is not None:
            facts.append(f"{sheet.path.name} names its rows in {sheet.names_column!r}")
            index = None if table.index is not None else first
            return _by_sheet(facts, sheet, replace(reading, index=reading.index or index))
    if reading.labels is None and looks_turned(table, surveyed):
        return _turned(facts, table, path, reading)
    return None


def _by_sheet(facts: list[str], sheet: Any, reading: Reading) -> Findings:
    candidates = {name: list(counts.values()) for name, counts in sheet.contexts.items()}
    say_candidates(facts, candidates)
    context = reading.context or (next(iter(candidates)),)
    suggested = replace(
        reading,
        labels=sheet.path,
        context=context,
        drop_unlabelled=reading.drop_unlabelled or sheet.missing,
    )
    return Findings(facts, candidates, suggested)


def _transposed(facts: list[str], table: Table, path: Path, reading: Reading) -> Findings:
    """Return findings for a table that is to be turned because the user says so."""
    if reading.context or (reading.labels is not None and file_kind(reading.labels).format == "npy"):
        return Findings(facts, {}, reading)
    sheet = find_sheet(path, samples_of(table), reading)
    if sheet is not None:
        return _by_sheet(facts, sheet, reading)
    return Findings(facts, {}, reading) if reading.labels is not None else _turned(facts, table, path, reading)


def _turned(facts: list[str], table: Table, path: Path, reading: Reading) -> Findings:
    """Return findings for genes x samples, of whose samples nothing is said."""
    samples = samples_of(table)
    facts.append(f"one line per feature, it seems, and one column per row: {quoted_names(samples, 4)}")
    problem = (
        f"is turned (features x rows), and nothing says which context each of its {len(samples):,} columns is from: "
        f"write a table with the columns 'sample' ({quoted_names(samples, 3)}) and 'context', and pass --transpose "
        "--labels FILE --context context"
    )
    return Findings(facts, {}, replace(reading, transpose=True), problem=problem)


def _turned_by_line(facts: list[str], table: Table, line: str, reading: Reading) -> Findings:
    """Return findings for genes x samples with a line that has the contexts of samples."""
    facts[0] = f"{table.format}: one line per feature, one column per row"
    facts[-1] = f"rows: {quoted_names(table.columns[1:], SHOWN_NAMES)}"
    facts.append(f"contexts are in the line {line!r}")
    return Findings(facts, {}, replace(reading, transpose=True, context=(line,)))


def _leave_out_suspects(findings: Findings, table: Table, surveyed: Survey) -> None:
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


# AnnData and arrays --------------------------------------------------------------------------------------------------


def _examine_anndata(adata: Annotated, reading: Reading) -> Findings:
    what = "AnnData" if adata.mod is None else f"MuData, modality {adata.mod!r}"
    facts = [f"{what} ({adata.format}): {counted(adata.n_obs, 'row')} (obs), {counted(adata.n_vars, 'feature')} (var)"]
    candidates = {}
    numeric = set()
    for column in adata.obs.columns:
        values = adata.obs[column]
        counts = counts_by_name(adata.labels(str(column), reading.na_values))
        # Numbers of many values are measurements of quality and the like; the range says more than the values.
        if values.dtype.kind in "iuf" and len(counts) > _MOST_INTEGER_CONTEXTS:
            facts.append(f"obs {short(column)!r}: numbers from {values.min():.4g} to {values.max():.4g}")
            continue
        facts.append(f"obs {short(column)!r}: {values_in_words(counts)}")
        if could_be_contexts(counts, adata.n_obs):
            candidates[str(column)] = list(counts.values())
            numeric |= {str(column)} if values.dtype.kind in "iufb" else set()
    candidates = _best_first(candidates, numeric)
    matrices = (("layers", adata.layers), ("obsm", adata.obsm))
    facts += [f"{what}: {quoted_names(names)}" for what, names in matrices if names]
    # Opened, not read: shape and type are in the file's metadata.
    stored, _ = adata.matrix(reading)
    source = as_source(stored, adata.where)
    facts.append(f"matrix: {source.shape[0]:,} x {source.shape[1]:,}, {'sparse' if source.sparse else 'dense'}")
    findings = suggest(facts, candidates, reading, list(candidates), [], None)
    if len(candidates) > 1 and not reading.context:
        labels = [adata.labels(name, reading.na_values) for name in list(candidates)[:2]]
        findings.facts += crossed_in_words(labels, candidates)
    chosen = [adata.labels(name, reading.na_values) for name in findings.reading.context if not reading.labels]
    return _with_labels_apart(findings, reading, chosen)


def _examine_npz(npz: Npz, reading: Reading) -> Findings:
    facts = [f"NumPy archive: {counted(len(npz.arrays), 'array')}"]
    facts += [f"{short(name)}: {array_in_words(info)}" for name, info in list(npz.arrays.items())[:SHOWN_NAMES]]
    # Without any matrix there is nothing to have n rows, and the trial below says what is missing.
    shape = npz.shape() if npz.matrices() or npz.is_sparse else None
    candidates = {}
    n = 0 if shape is None else shape[0]
    for name in npz.vectors(n) if n else []:
        kind = npz.arrays[name].dtype.kind
        # Text, integers and booleans. Floats are measurements, even if there are few of them.
        if kind in "USiub":
            counts = counts_by_name(npz.labels(name, reading.na_values))
            is_text = kind in "US"
            if (is_text or len(counts) <= _MOST_INTEGER_CONTEXTS) and could_be_contexts(counts, n):
                candidates[name] = list(counts.values())
    candidates = _best_first(candidates, {name for name in candidates if npz.arrays[name].dtype.kind not in "US"})
    findings = suggest(facts, candidates, reading, list(candidates), [], None, in_folder=shape is None)
    columns = [name for name in findings.reading.context if name in npz.arrays and not reading.labels]
    return _with_labels_apart(findings, reading, [npz.labels(name, reading.na_values) for name in columns])


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
