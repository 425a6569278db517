"""Tools that know nothing of the mathematics of MCPCA. Only ``exceptions`` lies below this room.

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
    ``npz``              arrays from untrusted .npz and .npy files
    ``array_files``      our own file format: arrays and a JSON header, on top of the two above
    ``locks``            a lock file, so that one process at a time works on a checkpoint

Reporting
    ``progress``         the progress line, and what ``verbose`` means everywhere
    ``user_warnings``    warnings that point at the user's line
    ``deprecated``       functions, arguments and names that are on their way out, and until when
"""
