"""Files of rows: what is in them is told from their content, and read as ``MCPCA.fit`` takes it; tables are written.

For the command line (extra ``cli``). ``read_data`` reads delimited text, Parquet, AnnData in HDF5 and Zarr, arrays of
NumPy, and several files or a folder of them; what exceeds a bound of memory stays in the file and is read in blocks.
"""

from ._errors import UnusableFileError
from .data import Reading, TableData
from .reading import read_data
from .writing import write_table

__all__ = ["Reading", "TableData", "UnusableFileError", "read_data", "write_table"]
