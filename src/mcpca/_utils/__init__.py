"""Tools that know no mathematics of MCPCA: any numerical package needs most of them. The lowest room but exceptions.

Checking and naming
    ``arguments``        integers, numbers, ranks and seeds: errors that name the argument, the value and the bound
    ``component_names``  what MCPCs are called, and how a number or a (misspelt) name is turned into a column
    ``wording``          lists that end in "and 3 more", "did you mean", numbers with enough digits
    ``printing``         ``Shown``, the base class of results that print themselves as sentences and small tables
    ``types``            ``Array`` and ``Report``, for annotations

Computing
    ``parallel``         threads for many small matrix products, with BLAS kept to one thread each
    ``array_api``        PyTorch, JAX and CuPy arrays: recognising them, to NumPy and back
    ``optional``         ``require``: late import of a package that an extra installs

Files
    ``atomic_files``     files and folders that appear whole or not at all
    ``npz``              arrays from .npz and .npy files that nobody vouches for
    ``array_files``      our own file format: arrays and a JSON header, on top of the two above
    ``locks``            a file that one process has to itself

Telling
    ``progress``         the progress line, and what ``verbose`` means everywhere
"""
