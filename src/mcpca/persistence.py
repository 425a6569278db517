"""One file for one fitted model: arrays and JSON in NumPy's npz container, no pickle, written atomically."""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from ._check import Array

FORMAT = "mcpca-model"
VERSION = 1
_HEADER = "header"


def write_model(path: Any, arrays: dict[str, Array], header: dict[str, Any]) -> None:
    """Write arrays and a JSON header to ``path``; a crash on the way leaves the old file as it was."""
    path = Path(path)
    text = json.dumps({"format": FORMAT, "version": VERSION, **header})
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path={str(path)!r}: the folder {str(path.parent)!r} does not exist; create it first.")
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **{_HEADER: np.frombuffer(text.encode(), dtype=np.uint8)}, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_model(path: Any) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read what ``write_model`` wrote; no code can run from the file."""
    path = Path(path)
    content = path.read_bytes()
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop(_HEADER).tobytes().decode())
        if header["format"] != FORMAT:
            raise KeyError("format")
    except (zipfile.BadZipFile, ValueError, KeyError, EOFError, OSError, AttributeError, TypeError) as error:
        raise ValueError(
            f"path={str(path)!r} is not a complete MCPCA model ({len(content)} bytes; {type(error).__name__}: {error}). "
            "It may be truncated or another kind of file; pass what MCPCA.save wrote."
        ) from error
    if header["version"] > VERSION:
        raise ValueError(
            f"path={str(path)!r} has format version {header['version']} and this mcpca reads up to {VERSION}; upgrade mcpca."
        )
    return arrays, header


def names_to_json(names: Array | None) -> list[Any] | None:
    """Names as JSON values; strings, integers, floats and booleans come back as they were."""
    if names is None:
        return None
    values = [n.item() if isinstance(n, np.generic) else n for n in names]
    odd = sorted({type(v).__name__ for v in values if not isinstance(v, (str, int, float, bool))})
    if odd:
        raise TypeError(f"Names of type {odd} cannot be saved; rename contexts and features with strings or integers.")
    return values


def parameter_to_json(value: Any) -> Any:
    """Return a constructor parameter as JSON, or None for what only the run needed (generators, functions)."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (range, tuple, np.ndarray)):
        value = [parameter_to_json(v) for v in value]
    return value if isinstance(value, (str, int, float, bool, list, type(None))) else None
