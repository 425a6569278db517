"""Files of other programs: recognised to say what they are, and what to do about them.

Nothing here is read. Each format has marks (bytes at a place in the file), a name, and a way out in words that whoever
made the file understands.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from ._errors import UnusableFileError, quoted_names

HEAD_BYTES = 512  # as many as the farthest of the marks below needs
READABLE = "delimited text (also .gz), Parquet, .xlsx, .h5ad, .h5mu, .zarr, .npz or .npy"
_SAVE = f"save its table as {READABLE}"
_UNPACK = "unpack it first"
_DRAWN_FROM = "pass the table that it was drawn from"
_EXPORT = "save its sheet as CSV"
_FROM_R = 'in R, write.csv(x, "x.csv", row.names = FALSE) saves a table, zellkonverter::writeH5AD(x, "x.h5ad") cells'
_10X_WAY_OUT = (
    'make it an .h5ad, in Python by scanpy.{reader}("{name}").write_h5ad("cells.h5ad"), in R by '
    "zellkonverter::writeH5AD, with the context of each cell as a column of obs, or in a file for --labels"
)
# (place, pattern of the bytes there, what the file is, what to do). Patterns are as long as it takes to be no text:
# "ORC1" and "GIF" are names of columns.
_MARKS: tuple[tuple[int, bytes, str, str], ...] = (
    (0, rb"\x89PNG", "a picture (PNG)", _DRAWN_FROM),
    (0, rb"\xff\xd8\xff", "a picture (JPEG)", _DRAWN_FROM),
    (0, rb"GIF8[79]a", "a picture (GIF)", _DRAWN_FROM),
    (0, rb"II\*\x00", "a picture (TIFF)", _DRAWN_FROM),
    (0, rb"MM\x00\*", "a picture (TIFF)", _DRAWN_FROM),
    (0, rb"RIFF[\x00-\xff]{4}WEBP", "a picture (WebP)", _DRAWN_FROM),
    (0, b"%!PS", "a picture (PostScript)", _DRAWN_FROM),
    (0, b"%PDF", "a PDF", "copy its table into a spreadsheet, and save that as CSV"),
    (0, rb"\{\\rtf", "a text document (RTF)", _SAVE),
    (0, rb"\xd0\xcf\x11\xe0", "an old Excel workbook or Word document (.xls, .doc), or one with a password", _EXPORT),
    (0, rb"BZh\d1AY", "compressed by bzip2", f"{_UNPACK} (bunzip2)"),
    (0, rb"\x28\xb5\x2f\xfd", "compressed by zstd", f"{_UNPACK} (unzstd)"),
    (0, rb"\xfd7zXZ\x00", "compressed by xz", f"{_UNPACK} (unxz)"),
    (0, rb"7z\xbc\xaf", "an archive (7z)", _UNPACK),
    (0, rb"Rar!\x1a", "an archive (RAR)", _UNPACK),
    (257, rb"ustar[\x00 ]", "an archive (tar)", f"{_UNPACK} (tar xf), and pass the files in it"),
    (0, rb"RD[AX][23]\n", "an R workspace", _FROM_R),
    (0, rb"X\n\x00\x00\x00", "an R object (.rds)", _FROM_R),
    (0, rb"A\n[23]\n\d{5,7}\n\d{5,7}\n", "an R object (.rds)", _FROM_R),
    (0, rb"MATLAB \d\.\d MAT-file", "a MATLAB file", 'in MATLAB, writetable(array2table(x), "x.csv") saves a matrix'),
    (0, b"<stata_dta>", "a Stata file", "in Stata, export delimited saves it as CSV"),
    (0, rb"\$FL[23]", "an SPSS file", "save it as CSV in SPSS"),
    (12, rb"\xc2\xea\x81\x60", "a SAS file", "in SAS, proc export saves it as CSV"),
    (0, rb"SQLite format 3\x00", "a database (SQLite)", "export its table as CSV"),
    (0, b"ARROW1", "an Arrow file (Feather)", "save it as Parquet"),
    (0, rb"Obj\x01", "an Avro file", "save it as Parquet"),
    (0, rb"\x7fELF", "a program", "pass a file of data"),
    (0, b"version https://git-lfs", "a placeholder for a file in Git LFS", "git lfs pull fetches the file itself"),
    (
        0,
        b"%%MatrixMarket",
        "a Matrix Market file, without names of rows and columns",
        _10X_WAY_OUT.format(reader="read_10x_mtx", name="FOLDER"),
    ),
)
# JSON begins with a bracket, and what follows tells it from a heading in brackets.
_JSON = re.compile(rb'\{\s*(["}]|$)|\[\s*([\[{"]|-?[\d.]+\s*,|$)')
_PAGES = {
    b"<!doctype html": ("a web page (HTML)", "the download may have been a page to sign in at; fetch the table itself"),
    b"<html": ("a web page (HTML)", "the download may have been a page to sign in at; fetch the table itself"),
    b"<svg": ("a picture (SVG)", _DRAWN_FROM),
    b"<?xml": ("XML", _SAVE),
}
# Packed by zip: an entry that begins so, what the file is, what to do.
_ZIPPED = (
    ("word/", "a Word document", "copy its table into a spreadsheet, and save that as CSV"),
    ("ppt/", "a PowerPoint presentation", "copy its table into a spreadsheet, and save that as CSV"),
    ("content.xml", "an OpenDocument file", _EXPORT),
    ("Index/", "an Apple Numbers document", _EXPORT),
)


def refuse_foreign(path: Path, head: bytes) -> None:
    """Raise if the first bytes of a file are those of a format that is not read."""
    for place, mark, what, way_out in _MARKS:
        if re.match(mark, head[place:]):
            raise UnusableFileError(path, f"is {what}; {way_out}.")
    # Two bytes of a pickle say little, but no text in UTF-8 begins with the first of them.
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        raise UnusableFileError(path, f"is a Python pickle, which can run code and is never opened; {_SAVE}.")
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    for mark, (what, way_out) in _PAGES.items():
        if text[: len(mark)].lower() == mark:
            raise UnusableFileError(path, f"is {what} and not a table; {way_out}.")
    if _JSON.match(text):
        raise UnusableFileError(path, f"is JSON and not a table; {_SAVE}.")


def foreign_zip(path: Path, names: Collection[str]) -> UnusableFileError:
    """Return the error for a zip file that holds no arrays."""
    for start, what, way_out in _ZIPPED:
        if any(name.startswith(start) for name in names):
            return UnusableFileError(path, f"is {what}; {way_out}.")
    content = f"with {quoted_names(sorted(names), 3)} in it" if names else "with nothing in it"
    return UnusableFileError(path, f"is a zip file {content}; {_UNPACK} (unzip).")


def foreign_hdf5(path: Path, groups: Sequence[str], in_first: Collection[str]) -> UnusableFileError:
    """Return the error for an HDF5 or Zarr file that is no AnnData.

    ``groups`` is what it holds, ``in_first`` what the first group in it holds.
    """
    entries = set(groups)
    way_out = f'make it an .h5ad, in Python by scanpy.read_loom("{path.name}").write_h5ad("cells.h5ad")'
    if {"barcodes", "indptr"} <= set(in_first):
        what, way_out = "a 10x Genomics file", _10X_WAY_OUT.format(reader="read_10x_h5", name=path.name)
    elif {"row_attrs", "col_attrs"} <= entries:
        what = "a loom file"
    elif {"assays", "cell.names"} <= entries:
        what, way_out = "a Seurat file (h5Seurat)", "in R, zellkonverter::writeH5AD saves it as .h5ad"
    else:
        way_out = f"save its rows as {READABLE}"
        return UnusableFileError(
            path, f"is not an AnnData: it lacks obs and var; it has {quoted_names(sorted(entries))}; {way_out}."
        )
    return UnusableFileError(path, f"is {what} and not an AnnData; {way_out}.")


def refuse_foreign_folder(path: Path) -> None:
    """Raise if a folder is something else than a folder of tables: cells of 10x Genomics, or results of ours."""
    names = {file.name.lower().removesuffix(".gz") for file in path.iterdir()}
    if any(name.endswith(".mtx") for name in names) and any("barcodes" in name for name in names):
        raise UnusableFileError(
            path,
            "is a folder of 10x Genomics (matrix.mtx, barcodes, features), one file in three; "
            f"{_10X_WAY_OUT.format(reader='read_10x_mtx', name=path.name)}.",
        )
    if {"run.json", "model.mcpca"} <= names:
        raise UnusableFileError(
            path, "is a folder of results of mcpca fit, which holds no rows; pass the file with the rows."
        )
