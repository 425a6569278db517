"""Arrays of PyTorch, JAX and CuPy: recognising them, copying them to the host, and copying results back.

``_data`` and ``_covariances`` compute sums over rows where the rows are, on their device; everything of size (k, p, p)
or smaller then comes to the host with ``to_host`` and is NumPy from there on. ``like`` brings results back.

Only functions of the array API standard are used, through array-api-compat, which is imported when the first such
array arrives. NumPy arrays are recognised by their type, so that users without that package never need it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from .optional import require

# PyTorch tensors, and JAX arrays of older versions, lack __array_namespace__.
_DEVICE_LIBRARIES = frozenset({"torch", "jax", "jaxlib", "cupy", "cupyx"})
# These have it, but are read by other means: lazily (dask), as sparse matrices, or as tables.
_OTHER_LIBRARIES = frozenset({"numpy", "dask", "sparse", "xarray", "pandas", "polars"})
# dtypes of PyTorch that NumPy has as well; bfloat16, for one, is missing from it.
_SHARED_DTYPES = ("float32", "float64", "complex64", "complex128", "bool", "uint8", "int8", "int16", "int32", "int64")


def is_device_array(x: Any) -> bool:
    """Whether ``x`` is an array of a library other than NumPy that follows the array API standard, or sparse there."""
    # By far the most frequent answer, and from NumPy 2 on its arrays have __array_namespace__ as well.
    if isinstance(x, (np.ndarray, np.generic)):
        return False
    # Look at the type before any attribute: an HDF5 dataset of a closed file raises when asked for its shape.
    cls = type(x)
    if _is_csr(x):
        return True
    # All base classes: a subclass of a tensor may be defined in a module of any name.
    libraries = _libraries(cls)
    follows_standard = hasattr(cls, "__array_namespace__") and not libraries & _OTHER_LIBRARIES
    if not libraries & _DEVICE_LIBRARIES and not follows_standard:
        return False
    return hasattr(x, "shape") and hasattr(x, "dtype")


def is_sparse_on_device(x: Any) -> bool:
    """Whether ``x`` is a sparse matrix of PyTorch or CuPy, in any layout, or a ``DeviceCSR``."""
    # By name, so that torch need not be imported here.
    is_torch_sparse = "torch" in _libraries(type(x)) and str(getattr(x, "layout", "torch.strided")) != "torch.strided"
    return is_torch_sparse or is_cupy_sparse(x) or _is_csr(x)


def is_cupy_sparse(x: Any) -> bool:
    """Whether ``x`` is a sparse matrix of CuPy."""
    return "cupyx" in _libraries(type(x)) and hasattr(x, "tocsr")


def is_torch(x: Any) -> bool:
    """Whether ``x`` is a tensor of PyTorch."""
    return bool(_compat().is_torch_array(x))


def _is_csr(x: Any) -> bool:
    """Whether ``x`` is a ``DeviceCSR``: by a mark of the class, whose module imports this one."""
    return bool(getattr(type(x), "is_device_csr", False))


def _libraries(cls: type) -> set[str]:
    return {base.__module__.partition(".")[0] for base in cls.__mro__}


def namespace(x: Any) -> Any:
    """Return the module of array functions for ``x``."""
    return _compat().array_namespace(_dense(x))


def device_of(x: Any) -> Any:
    """Return the device that ``x`` is on."""
    return _compat().device(_dense(x))


def _dense(x: Any) -> Any:
    """Return an array with the library and device of ``x``: of CuPy's sparse matrices, and of ours, their values."""
    if _is_csr(x):
        return x.values
    if is_cupy_sparse(x):
        return x.data
    if _libraries(type(x)) & {"jax", "jaxlib"} and hasattr(x, "n_sparse"):
        raise TypeError(
            f"X is a sparse array of JAX ({type(x).__name__}), which is not supported; pass X.todense(), or rows in "
            "CSR of PyTorch, CuPy or SciPy."
        )
    return x


def kind_of(x: Any) -> str:
    """Return library and device of ``x`` for a message, such as "torch.Tensor on cuda:0"."""
    name = f"{type(x).__module__.partition('.')[0]}.{type(x).__name__}"
    return f"{name} on {device_of(x)}" if is_device_array(x) else name


def without_gradient(x: Any) -> Any:
    """Return a dense PyTorch tensor detached from its graph, another dense array unchanged; raise for a sparse one."""
    if is_sparse_on_device(x):
        layout = getattr(x, "layout", type(x).__name__)
        way_out = "to_dense" if is_torch(x) else "toarray"
        raise TypeError(
            f"Rows may be sparse on a device ({layout}), covariances and scores may not; make them dense by "
            f"{way_out}()."
        )
    return x.detach() if is_torch(x) else x


def is_writeable(x: Any) -> bool:
    """Whether entries of ``x`` can be assigned; those of JAX arrays cannot."""
    return not _compat().is_jax_array(x)


def to_host(x: Any) -> Any:
    """Return a device array as a NumPy array, a sparse one as SciPy's CSR, and anything else unchanged."""
    if not is_device_array(x):
        return x
    if is_sparse_on_device(x):
        from .device_csr import DeviceCSR  # here, because that module imports this one

        return DeviceCSR.of(x).to_host()
    compat = _compat()
    if compat.is_torch_array(x):
        # A tensor that takes part in a graph, or is on a GPU, refuses ``numpy()``.
        x = x.detach().cpu()
        return (x if x.dtype in _dtypes_shared_with_numpy(x) else x.double()).numpy()
    if compat.is_cupy_array(x):
        # CuPy refuses implicit conversion by ``np.asarray``.
        return x.get()
    if not compat.is_jax_array(x):
        xp = namespace(x)
        # array-api-strict, with which the tests stand in for a GPU, converts to NumPy from its first device only.
        if xp.__name__ == "array_api_strict":
            x = x.to_device(xp.Device("CPU_DEVICE"))
    return np.asarray(x)


def from_host(x: Any, reference: Any, dtype: Any = None) -> Any:
    """Return a copy of a NumPy array on the device of ``reference``, with its dtype unless another one is given."""
    xp = namespace(reference)
    dtype = reference.dtype if dtype is None else dtype
    # Convert on the host: some devices cannot hold float64, and PyTorch warns when it is given read-only memory.
    converted = np.array(x, dtype=np.float32 if dtype == xp.float32 else x.dtype, order="C")
    return xp.asarray(converted, dtype=dtype, device=device_of(reference))


def like(x: Any, reference: Any) -> Any:
    """Return a NumPy array with the library, device and dtype of ``reference``, or unchanged if that is NumPy too."""
    return from_host(x, reference) if is_device_array(reference) and x is not None else x


def indices(x: Any, reference: Any) -> Any:
    """Return NumPy indices on the device of ``reference``, as int32 if they fit: JAX may not have int64."""
    xp = namespace(reference)
    # ``max`` of an empty array would raise.
    fits = x.size == 0 or int(x.max()) < 2**31
    converted = np.array(x, dtype=np.int32 if fits else np.int64)
    return xp.asarray(converted, dtype=xp.int32 if fits else xp.int64, device=device_of(reference))


def widest_float(x: Any) -> Any:
    """Return float64 if the device of ``x`` has it, else float32 (Apple GPUs, and JAX in its default setting)."""
    xp = namespace(x)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # JAX returns float32 with a warning
            probe = xp.zeros(1, dtype=xp.float64, device=device_of(x))
    except (TypeError, ValueError, RuntimeError):
        return xp.float32
    return probe.dtype


def as_float(x: Any) -> Any:
    """Return ``x`` unchanged if it is float32 or float64, and otherwise in the widest float of its device."""
    xp = namespace(x)
    return x if x.dtype in (xp.float32, xp.float64) else xp.astype(x, widest_float(x))


def stand_in(x: Any) -> Any:
    """Return a NumPy array of zeros with the shape and kind of a device array, in the memory of a single number.

    Checks of shapes, labels and numbers of rows need no values, so the same code can check arrays of every library.
    Anything but a device array is returned unchanged.
    """
    if not is_device_array(x):
        return x
    xp = namespace(x)
    # Integers stand in as float64, which is what they will be read as; complex numbers as such, to be refused.
    dtype: Any = np.float32 if x.dtype == xp.float32 else np.float64
    if xp.isdtype(x.dtype, "complex floating"):
        dtype = np.complex128
    return np.broadcast_to(np.zeros((), dtype=dtype), tuple(x.shape))


def take_rows(x: Any, rows: slice | Any) -> Any:
    """Return rows of a device array, given by a slice or by NumPy indices."""
    if isinstance(rows, slice):
        # The ellipsis is the standard's: an index that does not name every axis needs one.
        return x[rows, ...]
    return namespace(x).take(x, indices(rows, x), axis=0)


def _dtypes_shared_with_numpy(x: Any) -> tuple[Any, ...]:
    xp = namespace(x)
    return tuple(getattr(xp, name) for name in _SHARED_DTYPES)


def _compat() -> Any:
    return require("array_api_compat", "devices")
