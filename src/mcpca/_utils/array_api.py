"""Arrays of other libraries, on other devices: how they are told, the way to the host and the way back.

Only the array API standard is used, through array-api-compat, which is imported when the first such array comes.
NumPy's arrays are told by their type and never get that far.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from .optional import require

# Tensors of PyTorch do not name their namespace themselves, and JAX's arrays do not in older versions.
_LIBRARIES = frozenset({"torch", "jax", "jaxlib", "cupy"})
# These do name one, and are no arrays on a device.
_OTHERS = frozenset({"numpy", "dask", "sparse", "xarray", "pandas", "polars"})


def is_device_array(x: Any) -> bool:
    """Whether ``x`` is an array of another library than NumPy that follows the array API standard."""
    if isinstance(x, (np.ndarray, np.generic)):
        return False
    # The type first: datasets of a closed file raise when asked for their shape.
    kind = type(x)
    roots = {cls.__module__.partition(".")[0] for cls in kind.__mro__}
    if not roots & _LIBRARIES and (not hasattr(kind, "__array_namespace__") or roots & _OTHERS):
        return False
    return hasattr(x, "shape") and hasattr(x, "dtype")


def namespace(x: Any) -> Any:
    """Return the functions for ``x``."""
    return _compat().array_namespace(x)


def device_of(x: Any) -> Any:
    """Return where ``x`` is."""
    return _compat().device(x)


def kind_of(x: Any) -> str:
    """Return library and device of ``x`` for a message, such as "torch.Tensor on cuda:0"."""
    name = f"{type(x).__module__.partition('.')[0]}.{type(x).__name__}"
    return f"{name} on {device_of(x)}" if is_device_array(x) else name


def without_gradient(x: Any) -> Any:
    """Return a dense tensor of PyTorch outside its graph, and anything else as it is."""
    if not _compat().is_torch_array(x):
        return x
    if str(x.layout) != "torch.strided":
        raise TypeError(f"X is a sparse tensor of PyTorch ({x.layout}), which is not supported; pass X.to_dense().")
    return x.detach()


def is_writeable(x: Any) -> bool:
    """Whether entries of ``x`` can be set; JAX's cannot."""
    return not _compat().is_jax_array(x)


def to_host(x: Any) -> Any:
    """Return the NumPy array with the values of a device array; anything else as it is."""
    if not is_device_array(x):
        return x
    compat = _compat()
    if compat.is_torch_array(x):
        x = x.detach().cpu()
        # NumPy has no bfloat16.
        return (x if x.dtype in _numpy_types(x) else x.double()).numpy()
    if compat.is_cupy_array(x):
        return x.get()
    if not compat.is_jax_array(x):
        xp = namespace(x)
        if xp.__name__ == "array_api_strict":  # whose devices but the first refuse NumPy
            x = x.to_device(xp.Device("CPU_DEVICE"))
    return np.asarray(x)


def from_host(x: Any, reference: Any, dtype: Any = None) -> Any:
    """Return a copy of NumPy's ``x`` beside ``reference``, with its dtype or a given one of its namespace."""
    xp = namespace(reference)
    dtype = reference.dtype if dtype is None else dtype
    # A copy in the wanted precision first: some devices cannot hold float64, and PyTorch warns of read-only memory.
    plain = np.array(x, dtype=np.float32 if dtype == xp.float32 else x.dtype, order="C")
    return xp.asarray(plain, dtype=dtype, device=device_of(reference))


def like(x: Any, reference: Any) -> Any:
    """Return NumPy's ``x`` with the library, device and dtype of ``reference``; as it is where that is NumPy's too."""
    return from_host(x, reference) if is_device_array(reference) and x is not None else x


def indices(x: Any, reference: Any) -> Any:
    """Return NumPy's positions beside ``reference``, in 32 bits where they fit, since JAX may have no more."""
    xp = namespace(reference)
    small = x.size == 0 or int(x.max()) < 2**31
    plain = np.array(x, dtype=np.int32 if small else np.int64)
    return xp.asarray(plain, dtype=xp.int32 if small else xp.int64, device=device_of(reference))


def widest_float(x: Any) -> Any:
    """Return float64 where the device of ``x`` has it, and float32 where not (Apple's GPUs, JAX as it comes)."""
    xp = namespace(x)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # JAX gives float32 and a warning
            probe = xp.zeros(1, dtype=xp.float64, device=device_of(x))
    except (TypeError, ValueError, RuntimeError):
        return xp.float32
    return probe.dtype


def as_float(x: Any) -> Any:
    """Return ``x`` as float32 or float64: unchanged if it is, and otherwise as wide as its device has."""
    xp = namespace(x)
    return x if x.dtype in (xp.float32, xp.float64) else xp.astype(x, widest_float(x))


def stand_in(x: Any) -> Any:
    """Return a NumPy array of zeros with the shape and kind of a device array, in the memory of one number.

    Checks of shapes, labels and numbers of rows need no values, and so they are the same for all arrays. Anything else
    is returned as it is.
    """
    if not is_device_array(x):
        return x
    xp = namespace(x)
    dtype: Any = np.float32 if x.dtype == xp.float32 else np.float64
    if xp.isdtype(x.dtype, "complex floating"):
        dtype = np.complex128
    return np.broadcast_to(np.zeros((), dtype=dtype), tuple(x.shape))


def take_rows(x: Any, rows: slice | Any) -> Any:
    """Return rows of a device array, by a slice or by NumPy's indices."""
    if isinstance(rows, slice):
        return x[rows, ...]
    return namespace(x).take(x, indices(rows, x), axis=0)


def _numpy_types(x: Any) -> tuple[Any, ...]:
    xp = namespace(x)
    names = ("float32", "float64", "complex64", "complex128", "bool", "uint8", "int8", "int16", "int32", "int64")
    return tuple(getattr(xp, name) for name in names)


def _compat() -> Any:
    return require("array_api_compat", "devices")
