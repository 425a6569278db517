"""``mcpca doctor``: what is in a file, and whether MCPCA can use it. The verdict is a reading, not a guess."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from .._data.sources import as_source
from ._applying import load_model
from ._console import Console, Failure
from ._suspects import no_features, told
from .tables import Reading, TableData, UnusableFileError, read_data
from .tables._errors import foreign_bytes, plural, short, some
from .tables.annotated import Annotated
from .tables.arrays import Npz, read_npy
from .tables.columns import matching
from .tables.data import Budget
from .tables.delimited import DelimitedTable
from .tables.kinds import Kind, kind_of
from .tables.labels import Labels
from .tables.options import check_options, given
from .tables.parquet import ParquetTable
from .tables.reading import load_moments
from .tables.survey import Survey, survey

_INTEGER_CONTEXTS = 50  # more distinct integers are rather a measurement
_SHOWN = 12
_TABLES = (".csv", ".tsv", ".tab", ".parquet", ".pq")


@dataclass
class Findings:
    """What was found: sentences, names of columns that could be contexts, and a way to read the file."""

    facts: list[str] = field(default_factory=list)
    contexts: dict[str, list[int]] = field(default_factory=dict)
    reading: Reading = field(default_factory=Reading)
    advice: list[str] = field(default_factory=list)
    no_features: dict[str, str] = field(default_factory=dict)
    has_rows: bool = True


def doctor(path: Path, reading: Reading, console: Console) -> dict[str, Any]:
    """Say what is in a file and how to fit it; raise a ``Failure`` where that cannot be."""
    kind = kind_of(path)
    if kind.format in ("model", "moments") and (options := given(reading)):
        raise UnusableFileError(path, f"has no rows, so that {options[0]} has no effect; drop it.")
    if kind.format != "folder":
        check_options(reading, [path], [kind])
    with console.phase("reading"), foreign_bytes(path, kind.format):
        found = _look(path, kind, reading)
    console.say(f"{path}: {found.facts[0]}")
    for fact in found.facts[1:]:
        console.say(f"  {fact}")
    content: dict[str, Any] = {"format": kind.format, "facts": found.facts, "contexts": found.contexts}
    content["no_features"] = found.no_features
    if not found.has_rows:
        return {**content, "usable": True}
    for text in found.advice:
        console.say(f"  {text}")
    try:
        with console.phase("trying"):
            data = _try(path, kind, found)
    except UnusableFileError as error:
        raise Failure(str(error), 3, "input", {**content, "usable": False}) from error
    for text in [*(f"left out: {note}" for note in data.notes), *data.oddities]:
        console.say(f"  {text}")
    command = _command(path, found.reading)
    assert data.labels is not None
    counts = data.labels.counts()
    console.say(
        f"MCPCA can use it: {plural(len(counts), 'context')} of {counts.min():,} to {counts.max():,} rows, "
        f"{plural(data.n_features, 'feature')}{'' if data.in_memory else ', streamed from the file'}.\n\n  {command}"
    )
    return {**content, "usable": True, "command": command, "rows": data.n_rows, "features": data.n_features}


def _look(path: Path, kind: Kind, reading: Reading) -> Findings:
    if kind.format == "folder":
        return _folder(path, reading)
    if kind.format in ("text", "Parquet"):
        table = _opened(path, kind, reading)
        return _table(table, survey(table, reading.na_values), reading)
    if kind.format in ("h5ad", "zarr"):
        return _annotated(Annotated(path, kind.format), reading)
    if kind.format == "npz":
        return _npz(Npz(path, Budget(reading.max_bytes)), reading)
    if kind.format == "npy":
        array = read_npy(path)
        facts = [f"array of NumPy, shape {array.shape}, {array.dtype}"]
        advice = [] if reading.labels else ["It has no contexts: pass --labels FILE with one label per row."]
        return Findings(facts, {}, reading, advice)
    if kind.format == "model":
        model = load_model(path)
        k, r = model.loadings_.shape
        facts = [
            f"a fitted model: {r} MCPCs, {k} contexts, {model.n_features_in_:,} features, solver {model.solver}",
            f"contexts: {some(model.contexts_.tolist(), _SHOWN)}",
            "It goes with mcpca transform, mcpca loadings and mcpca report.",
        ]
        return Findings(facts, has_rows=False)
    found = load_moments(path)
    k, p = found.means.shape
    facts = [
        f"moments of {k} contexts and {p:,} features, from {int(found.counts.sum()):,} rows",
        f"contexts: {some(found.contexts.tolist(), _SHOWN)}",
        f"MCPCA can use it: mcpca fit {shlex.quote(str(path))}",
    ]
    return Findings(facts, has_rows=False)


def _opened(path: Path, kind: Kind, reading: Reading) -> Any:
    return DelimitedTable(path, kind.compression, reading) if kind.format == "text" else ParquetTable(path)


def _table(table: Any, seen: Survey, reading: Reading) -> Findings:
    numbers = [name for name in table.columns if name not in table.text and name != table.index]
    texts = [name for name in table.columns if name in table.text and name != table.index]
    facts = [
        f"{table.format}: {plural(seen.n_rows, 'row')}, {plural(len(numbers), 'column')} of numbers, "
        f"{len(texts)} of text",
        f"numbers: {some(numbers, _SHOWN)}" if numbers else "numbers: none",
    ]
    if table.index is not None:
        facts.append("names of rows: the first column" + ("" if table.index else ", which has no name"))
    for name in texts:
        counts = seen.counts[name]
        facts.append(f"text {short(name)!r}: {_values(counts)}")
    missing = {name: n for name, n in seen.missing.items() if n}
    if missing:
        facts.append("missing values: " + ", ".join(f"{short(n)!r} ({c:,})" for n, c in list(missing.items())[:_SHOWN]))
    if seen.counting:
        facts.append(f"counts rows: {some(seen.counting)}")
    candidates = {
        name: list(counts.values())
        for name, counts in seen.counts.items()
        if counts is not None and _could_be_contexts(counts, seen.n_rows)
    }
    gaps = [name for name in missing if name not in table.text]
    found = _suggest(facts, candidates, reading, texts, [*seen.counting, *gaps], seen)
    _leave_out(found, table, seen)
    return found


def _leave_out(found: Findings, table: Any, seen: Survey) -> None:
    """Leave out columns that are hardly features, unless features are named."""
    reading = found.reading
    taken = {
        *reading.context,
        reading.index,
        table.index,
        *matching(reading.drop, table.columns, "--drop", table.where),
    }
    asked = [name for name in table.columns if name not in table.text and name not in taken]
    found.no_features = {} if reading.features else no_features(asked, seen)
    if found.no_features:
        found.advice.append(told(found.no_features))
        found.reading = replace(reading, drop=(*reading.drop, *found.no_features))


def _suggest(
    facts: list[str],
    candidates: dict[str, list[int]],
    reading: Reading,
    texts: list[str],
    gaps: list[str],
    seen: Survey | None,
) -> Findings:
    """Return a way to read the file: the first text that could be contexts, what else is no feature left out."""
    context = reading.context
    if not context and not reading.labels and candidates:
        context = (next((name for name in candidates if name in texts), next(iter(candidates))),)
    if not candidates and not context and not reading.labels:
        facts.append("no column could be contexts; where features are the rows of the table, transpose it")
    if candidates:
        shown = ", ".join(f"{short(name)} ({len(n)})" for name, n in list(candidates.items())[:_SHOWN])
        facts.append(f"could be contexts: {shown}")
    taken = {*context, *([reading.index] if reading.index else [])}
    index = reading.index
    if index is None and seen is not None:
        unique = [name for name in texts if name not in taken and len(seen.counts[name] or {}) == seen.n_rows]
        index = next(iter([*seen.counting, *unique]), None) if not reading.features else None
        taken |= {index} if index else set()
    drop = [] if reading.features else [name for name in (*texts, *gaps) if name not in taken]
    unlabelled = seen is not None and any(seen.missing.get(name, 0) for name in context)
    small = bool(context) and len(context) == 1 and any(n < 2 for n in candidates.get(context[0], []))
    return Findings(
        facts,
        candidates,
        replace(
            reading,
            context=tuple(context),
            index=index,
            drop=tuple(dict.fromkeys([*reading.drop, *drop])),
            drop_unlabelled=reading.drop_unlabelled or unlabelled,
            min_samples=max(reading.min_samples, 2) if small else reading.min_samples,
        ),
    )


def _annotated(found: Annotated, reading: Reading) -> Findings:
    facts = [f"AnnData ({found.format}): {plural(found.n_obs, 'row')} (obs), {plural(found.n_vars, 'feature')} (var)"]
    candidates = {}
    for column in found.obs.columns:
        counts, values = _counts(found.labels(str(column), reading.na_values)), found.obs[column]
        if values.dtype.kind in "iuf" and len(counts) > _INTEGER_CONTEXTS:
            facts.append(f"obs {short(column)!r}: numbers from {values.min():.4g} to {values.max():.4g}")
            continue
        facts.append(f"obs {short(column)!r}: {_values(counts)}")
        if _could_be_contexts(counts, found.n_obs):
            candidates[str(column)] = list(counts.values())
    facts += [f"{what}: {some(names)}" for what, names in (("layers", found.layers), ("obsm", found.obsm)) if names]
    stored, _ = found.matrix(reading)
    source = as_source(stored, found.where)
    facts.append(
        f"matrix: {source.shape[0]:,} x {source.shape[1]:,}, {'sparse' if source.sparse else 'dense'} {source.dtype}"
    )
    result = _suggest(facts, candidates, reading, list(candidates), [], None)
    return _mended(result, reading, [found.labels(name, reading.na_values) for name in result.reading.context])


def _npz(found: Npz, reading: Reading) -> Findings:
    facts = [f"arrays of NumPy: {plural(len(found.arrays), 'array')}"]
    facts += [f"{short(name)}: {info.shape} {info.dtype}" for name, info in list(found.arrays.items())[:_SHOWN]]
    shape = found.shape() if found.matrices() or found.is_sparse else None
    candidates = {}
    if shape is not None:
        for name in found.vectors(shape[0]):
            if found.arrays[name].dtype.kind in "USiub":
                counts = _counts(found.labels(name, reading.na_values))
                few = found.arrays[name].dtype.kind in "US" or len(counts) <= _INTEGER_CONTEXTS
                if few and _could_be_contexts(counts, shape[0]):
                    candidates[name] = list(counts.values())
    result = _suggest(facts, candidates, reading, list(candidates), [], None)
    columns = [name for name in result.reading.context if name in found.arrays]
    return _mended(result, reading, [found.labels(name, reading.na_values) for name in columns])


def _mended(result: Findings, reading: Reading, columns: list[Labels]) -> Findings:
    """Leave out rows without a context where there are some; columns of contexts are no features here."""
    missing = any((labels.codes < 0).any() for labels in columns)
    result.reading = replace(
        result.reading,
        drop=reading.drop,
        index=reading.index,
        drop_unlabelled=reading.drop_unlabelled or missing,
    )
    return result


def _folder(path: Path, reading: Reading) -> Findings:
    inside = sorted(p.name for p in path.iterdir() if not p.name.startswith("."))
    found = Findings([f"a folder with {plural(len(inside), 'file')} or folders: {some(inside, _SHOWN)}"], {}, reading)
    tables = [name for name in inside if name.lower().removesuffix(".gz").endswith(_TABLES)]
    if tables:
        table = _opened(path / tables[0], kind_of(path / tables[0]), reading)
        _leave_out(found, table, survey(table, reading.na_values))
    return found


def _try(path: Path, kind: Kind, found: Findings) -> TableData:
    data = read_data([path], found.reading)
    if data.labels is not None and (few := [n for n in data.labels.counts().tolist() if n < 2]):
        raise UnusableFileError(path, f"{plural(len(few), 'context')} with a single row; pass --min-samples 2.")
    if not data.in_memory and kind.format in ("h5ad", "zarr"):  # all else was looked at as it was read
        for first, block in data.source.scan(2**26):
            values = block.data if data.source.sparse else block
            if not np.isfinite(values).all():
                raise UnusableFileError(path, f"has missing or infinite values within rows {first + 1:,} onwards.")
    return data


def _command(path: Path, reading: Reading) -> str:
    """Return the command that reads a file in this way and fits it."""
    words = ["mcpca", "fit", str(path)]
    for name in reading.context:
        words += ["--context", name]
    for option, value in (("--labels", reading.labels), ("--index", reading.index), ("--layer", reading.layer)):
        words += [option, str(value)] if value else []
    words += ["--obsm", reading.obsm] if reading.obsm else []
    words += ["--mask-var", reading.mask_var] if reading.mask_var else []
    listed = ("--drop", reading.drop), ("--features", reading.features), ("--na-values", reading.na_values)
    for option, values in listed:
        for value in values:
            words += [option, value]
    words += ["--min-samples", str(reading.min_samples)] if reading.min_samples else []
    words += ["--drop-unlabelled"] if reading.drop_unlabelled else []
    words += ["--allow-duplicates"] if reading.allow_duplicates else []
    words += ["--max-memory", str(reading.max_bytes // 2**20)] if reading.max_bytes != Reading.max_bytes else []
    words += ["--no-header"] if not reading.header else []
    words += ["--decimal", reading.decimal] if reading.decimal != "." else []
    words += ["--delimiter", reading.delimiter.replace("\t", "tab")] if reading.delimiter else []
    words += ["--encoding", reading.encoding] if reading.encoding else []
    return shlex.join(words)


def _could_be_contexts(counts: dict[str, int], n: int) -> bool:
    return 2 <= len(counts) <= max(2, n // 2)


def _counts(labels: Labels) -> dict[str, int]:
    return {name: int(n) for name, n in zip(labels.categories, labels.counts(), strict=True) if n}


def _values(counts: dict[str, int] | None) -> str:
    if counts is None:
        return "many values"
    if not counts:
        return "no values"
    most = sorted(counts, key=lambda name: -counts[name])[:4]
    return (
        f"{plural(len(counts), 'value')}, {', '.join(f'{short(name, 24)!r} ({counts[name]:,})' for name in most)}"
        + (" ..." if len(counts) > 4 else "")
    )
