"""Files of rows: recognised by their content, read as ``MCPCA.fit`` takes them, and tables written.

For the command line (extra ``cli``). ``read_data`` reads delimited text, Parquet, Excel, AnnData in HDF5 and Zarr, and
NumPy arrays, from one file, several, or a folder of them. Rows that exceed a bound of memory stay in the file and are
read in blocks, at each pass of a fit again.

From top to bottom:

    ``reading``       ``read_data``: which files, each opened by its format, labels, one ``TableData``
    ``assembling``    rows of several files one below the other, without those to be left out
    ``duplicates``    the same rows twice
    ``options``       options that the files have no use for
    ``survey``        one pass over a table, for ``mcpca doctor``
    ``completion``    names of columns, for the shell
    ``tabular``       the rows of a table, text, Parquet or a workbook, batch by batch
    ``transposed``    the rows of a table whose columns they are
    ``delimited``     text, parsed by Arrow
    ``comments``      its lines without comments
    ``dialect``       what its first lines say: encoding, delimiter, header, columns of numbers
    ``parquet``       Parquet
    ``workbook``      sheets of Excel
    ``annotated``     AnnData and MuData (.h5ad, .h5mu, .zarr)
    ``arrays``        .npz and .npy
    ``stdin``         what is piped in, as a file
    ``kinds``         what a file is, from its first bytes
    ``label_files``   contexts in a file of their own
    ``context_table`` what is known of contexts, in a file of its own, for the report
    ``constant_columns``  columns of rows that say it: those with one value in each context
    ``columns``       which column is a feature, a context, a name of the row, or nothing
    ``labels``        the context of each row, as codes and names
    ``spoiled_names`` names of features that Excel has turned into dates
    ``data``          ``Reading`` (what is asked for), ``FilePart`` (one file), ``TableData`` (all together), ``Budget``
    ``writing``       CSV, TSV, Parquet and Excel tables
    ``cells``         text that a spreadsheet would run as a formula
    ``_errors``       ``UnusableFileError``

How to add a file format
------------------------
1. ``kinds``: add its first bytes to ``_MAGIC``, and its name to ``FileKind``.
2. A module that opens it and returns a ``FilePart``: names of features, labels of the columns in ``reading.context``,
   and the rows, in ``blocks`` if ``budget.take`` allows, otherwise in ``rows`` as anything that ``as_source`` reads.
   For a table, implement the protocol ``Table`` of ``tabular`` instead (columns, and batches of Arrow), as ``parquet``
   does; ``read_table``, ``survey``, labels and doctor then work with it.
3. ``reading``: call it in ``open_part`` (a table: in ``tabular.open_table``), and add its ending to ``_ENDINGS``, so
   that it is found in folders.
4. ``options``: which options it has a use for, and what to call it in errors.
5. ``completion`` and ``cli/_doctor.py``: its columns, and what to say about it.
6. Tests: ``tests/support/table_files.py`` writes one table in every format, and ``tests/cli/test_tables.py`` checks
   that all are read alike; add a damaged file to ``make_wrong``. Add a row to the table "Files" of ``docs/cli.md``.
"""

from . import stdin
from ._errors import UnusableFileError
from .data import Reading, TableData
from .reading import read_data
from .writing import write_table

__all__ = ["Reading", "TableData", "UnusableFileError", "read_data", "stdin", "write_table"]
