"""The paper's texts: PG-19 with a catalogue of Project Gutenberg; sentences with a word, and its embedding in each."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .formats import need_columns, read_table
from .loaders import Rows

# Keywords by which the paper tells the form of a work, looked for in its subjects and bookshelves.
SCIENCE = (
    *("science", "philosophy", "physics", "chemistry", "biology", "mathematics", "astronomy", "psychology", "logic"),
    *("ethics", "metaphysics", "epistemology", "natural history", "geology", "evolution", "scientific", "algebra"),
    *("geometry", "medicine", "anatomy", "botany", "zoology", "technology", "engineering", "political science"),
    *("economics", "sociology"),
)
FICTION = (
    *("fiction", "novel", "romance", "adventure", "mystery", "detective", "gothic", "love stories", "short stories"),
    *("fantasy", "science fiction", "historical fiction", "thriller", "western", "sea stories", "war stories"),
    "humorous stories",
)
LONGEST = 600  # characters from which on the authors leave a sentence out
# From where a sentence ends to where the next begins: a mark, perhaps a closing quote, space, then a capital or quote.
_END = re.compile(r"(?<=[.!?])[\"'”’)]*\s+(?=[\"'“‘(]*[A-Z])")
_ABBREVIATION = re.compile(r"\b(?:Mr|Mrs|Dr|St|Prof|Rev|Capt|Col|Gen|Hon|vol|chap|fig|[A-Z])\.$")


def gutenberg(
    pg19: Path,
    catalogue: Path,
    *,
    word: str = "human",
    model: Any = "bert-base-uncased",
    first: int = 1800,
    last: int = 1919,
    years: int = 20,
    verbose: Any = True,
    as_authors: bool = False,
) -> Rows:
    """Read PG-19 and a Gutenberg catalogue, find sentences with a word, and embed it by a language model.

    Looked at: the script by which Hugging Face reads PG-19 (``metadata.csv`` without a header: id, short title, year,
    address; texts in train, validation and test, named by Gutenberg's number), the card of ``gutenberg_english``
    (github.com/LAION-AI/Open-Assistant, data/datasets/gutenberg: METADATA is JSON with text_id, subjects, bookshelves,
    ...), and code of others that reads ``pg_catalog.csv`` (Text#, Type, Issued, Title, Language, Authors, Subjects,
    LoCC, Bookshelves). PG-19 ends with 1918, so periods are the paper's.

    Not told by the paper, and chosen here: keywords are looked for in subjects and bookshelves, titles not, at the
    beginning of words; works with keywords of both forms are left out, "science fiction" being fiction; "human" is a
    whole word, "Human" too; contexts with fewer than 50 sentences are left out. The authors' code
    (join_deepmind_extract_metadata.ipynb, text.ipynb) does otherwise: see ``as_authors``. Project Gutenberg has renamed
    bookshelves since the data set was made, so that its own catalogue of today gives other forms to some works.

    Parameters
    ----------
    pg19 : folder
        With ``metadata.csv`` and texts ``ID.txt`` in it or below it.
    catalogue : path
        ``pg_catalog.csv``, also compressed; or ``gutenberg_english``: one of its Parquet files or a folder of them, of
        which the column METADATA is read (this needs pyarrow), or a CSV file with this column.
    word, model
        As for ``mcpca.analysis.contextual_embeddings``.
    first, last, years : int
        Years of publication that count, and the length of a period.
    as_authors : bool
        As the authors ran it: keywords in subjects alone and anywhere in a word, so that "psychological" has "logic";
        works with keywords of both forms are fiction; sentences of less than 600 characters; periods are
        (1800, 1820], ..., (1900, 1920]; no context is left out for having few sentences.
    """
    from mcpca.analysis import contextual_embeddings

    if as_authors:
        first, last = first + 1, last + 1  # 1801 to 1820 is their first period
    works = _works(Path(pg19), catalogue, first, last, as_authors)
    found: dict[str, list[Any]] = {name: [] for name in ("sentence", "work", "year", "form", "period")}
    for work, text in works:
        for sentence in sentences_with(text.read_text(encoding="utf-8", errors="replace"), word):
            if as_authors and len(sentence) >= LONGEST:
                continue
            period = first + (work["year"] - first) // years * years - int(as_authors)  # named by its first year
            title = f"{work['title']} ({work['year']})"
            for name, value in zip(found, (sentence, title, work["year"], work["form"], period), strict=True):
                found[name].append(value)
    about = pd.DataFrame(found)
    if not len(about):
        raise ValueError(f"No sentence with {word!r} in {len(works)} works of {pg19}; are the texts there?")
    X = contextual_embeddings(about["sentence"].tolist(), word, model, missing="nan", verbose=verbose)
    y = np.array([f"{form} {period}" for form, period in zip(about["form"], about["period"], strict=True)])
    known = np.isfinite(X).all(axis=1)
    features = [f"dimension {i + 1}" for i in range(X.shape[1])]
    rows = Rows(X[known].astype(np.float64), y[known], features, about[known].reset_index(drop=True), "PG-19")
    return rows.keep(2 if as_authors else 50)


def sentences_with(text: str, word: str) -> list[str]:
    """Return the sentences of a text that have a word, whole and in any case, each on one line."""
    joined = re.sub(r"\s+", " ", text).strip()
    has = re.compile(rf"\b{re.escape(word)}\b", re.IGNORECASE).search
    if not has(joined):
        return []
    pieces: list[str] = []
    for piece in _END.split(joined):
        # What was cut after "Mr." is one sentence.
        if pieces and _ABBREVIATION.search(pieces[-1]):
            pieces[-1] += " " + piece
        else:
            pieces.append(piece)
    return [piece for piece in pieces if has(piece)]


def form_of(words: str, *, as_authors: bool = False) -> str | None:
    """Return "science" or "fiction" by the paper's keywords; None where a work has none of them, or both.

    A keyword counts at the beginning of a word: "novels" has "novel", and "psychological" does not have "logic".
    ``as_authors`` looks anywhere, and takes a work that has both for fiction.
    """
    lower = words.lower()
    if as_authors:
        if any(word in lower for word in FICTION):
            return "fiction"
        return "science" if any(word in lower for word in SCIENCE) else None
    fiction = _begins(FICTION, lower)
    # "Science fiction" has a keyword of both; the paper lists it under fiction.
    science = _begins(SCIENCE, lower.replace("science fiction", ""))
    return None if fiction == science else ("fiction" if fiction else "science")


def _begins(keywords: tuple[str, ...], lower: str) -> bool:
    """Whether one of the keywords is at the beginning of a word."""
    return re.search(rf"\b(?:{'|'.join(map(re.escape, keywords))})", lower) is not None


def _works(pg19: Path, catalogue: Path, first: int, last: int, as_authors: bool) -> list[tuple[dict[str, Any], Path]]:
    """Return works of known form and year whose text is there, with the path of the text."""
    listing = pg19 / "metadata.csv"
    if not listing.is_file():
        raise FileNotFoundError(f"{listing} is missing; --pg19 must name the folder of PG-19, which has it.")
    texts = {path.stem: path for path in pg19.glob("**/*.txt")}
    if not texts:
        raise FileNotFoundError(f"{pg19} has no texts (ID.txt in it or below it); get PG-19 with them.")
    forms = dict(_forms(catalogue, as_authors))
    works = []
    with open(listing, encoding="utf-8", newline="") as file:
        for row in csv.reader(file):
            if len(row) < 3 or not re.fullmatch(r"-?\d+", row[2].strip()):
                continue
            name = row[0].strip()
            title = row[1].strip()
            year = int(row[2])
            form = forms.get(name)
            if form and first <= year <= last and name in texts:
                works.append(({"title": title, "year": year, "form": form}, texts[name]))
    if not works:
        raise ValueError(
            f"No work of {listing} from {first} to {last} has a text and a form in {catalogue}; are the ids the same?"
        )
    return works


def _forms(catalogue: Path, as_authors: bool) -> Iterator[tuple[str, str]]:
    """Yield (id, form) of each work whose subjects, or bookshelves unless as the authors do, tell it."""
    keys = ("subjects",) if as_authors else ("subjects", "bookshelves")
    if Path(catalogue).is_dir() or Path(catalogue).suffix == ".parquet":
        table = _read_parquet(catalogue)
    else:
        table = read_table(catalogue, "--catalogue", sep=",", dtype=str, keep_default_na=False)
    if "METADATA" in table:
        for text in table["METADATA"]:
            try:
                known = json.loads(text)
            except json.JSONDecodeError as error:
                raise ValueError(f"{catalogue}: METADATA is no JSON ({error}): {text[:60]!r}.") from error
            form = form_of(" ".join(str(known.get(key, "")) for key in keys), as_authors=as_authors)
            if form:
                yield str(known.get("text_id", "")), form
        return
    need_columns(table, ["Text#", "Subjects", "Bookshelves"], catalogue)
    for name, subjects, shelves in zip(table["Text#"], table["Subjects"], table["Bookshelves"], strict=True):
        form = form_of(subjects if as_authors else f"{subjects} {shelves}", as_authors=as_authors)
        if form:
            yield str(name), form


def _read_parquet(path: Path) -> pd.DataFrame:
    """Read METADATA of Parquet files; texts are in another column, which is left alone."""
    try:
        return pd.read_parquet(path, columns=["METADATA"])
    except (ValueError, OSError) as error:
        raise ValueError(f"--catalogue {path} has no METADATA in Parquet ({error}); pass gutenberg_english.") from error
