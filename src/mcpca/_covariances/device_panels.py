"""Passes over sparse rows on a device: panels of contexts side by side, so that a product is one for all of them.

A panel has pieces of rows, each of one context, as one block-diagonal matrix. With ``X_j`` (n_j, p) the rows of piece j
and R the most rows that a piece of the panel has, rows of zeros below them,

    B = diag(X_1, ..., X_c)  (c R, c p),     B [V_1; ...; V_c] = [X_1 V_1; ...; X_c V_c],     B^T [Z_1; ...; Z_c] =
    [X_1^T Z_1; ...; X_c^T Z_c],

so that products with directions of its own for every context, as the second half of ``sum_i S_i S_i V`` needs, are one
sparse product of the library (``DeviceCSR``), and sums by context are sums along an axis of (c, R, m). B and B^T are
made once: together they take about twice the memory of the rows. Results of a solver's size, (p, m), (k, m) and
(k, m, m), come to the host; rows and scores do not.

A piece has at most 4,096 rows, over which products are summed in the precision of the rows; pieces are added in
float64. A context with more rows has panels for itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._data import context_sums
from .._data.contexts import Contexts
from .._data.labels import as_numbers
from .._utils.array_api import device_of, from_host, namespace, to_host, widest_float
from .._utils.device_csr import DeviceCSR
from .._utils.types import Array
from .device_kernels import gram_sums, on_device
from .device_rows import SparseDeviceSource, check_finite_entries, is_sparse_there
from .gram import GramInParts
from .passes import Kernel

# Most rows of a piece. With more, sums in single precision lose digits; with fewer, there are more images to add.
_PIECE_ROWS = 2**12
# Most rows, or features, of all pieces of a panel together: with 50 directions products of it have 100 MB in single
# precision. With fewer, products are too small to keep a device busy.
_PANEL_NUMBERS = 2**19


@dataclass(frozen=True)
class Panel:
    """Pieces of rows on a device.

    Attributes
    ----------
    forward : DeviceCSR (c R, c p)
        B, with the rows of each piece followed by rows of zeros.
    backward : DeviceCSR (c p, c R)
        Its transpose.
    filled : array (c, R, 1) or None
        1 for rows and 0 for those of zeros; None if there are none of these.
    codes : ndarray (c,)
        The context of each piece: all different, or all the same.
    counts : ndarray (c,)
        Rows of each piece.
    is_whole : bool
        Whether the panel has all rows of its contexts.
    n_features : int
    """

    forward: DeviceCSR
    backward: DeviceCSR
    filled: Any
    codes: Array
    counts: Array
    is_whole: bool
    n_features: int

    @property
    def values(self) -> Any:
        """The entries, as a reference for library, device and precision."""
        return self.forward.values

    @property
    def n_pieces(self) -> int:
        """Number of pieces, c."""
        return len(self.codes)

    @property
    def of_one_context(self) -> bool:
        """Whether all pieces are of one context."""
        return self.n_pieces == 1 or bool(self.codes[0] == self.codes[-1])

    @property
    def of_whole_pieces(self) -> bool:
        """Whether every piece has all rows of its context."""
        return self.is_whole and self.n_pieces == len(self.contexts)

    @property
    def contexts(self) -> Array:
        """The contexts of the panel (c',), each once."""
        return self.codes[:1] if self.of_one_context else self.codes

    def send(self, x: Array, dtype: Any = None) -> Any:
        """Return NumPy's ``x`` on the device, in the precision of the rows or in another dtype."""
        return from_host(x, self.values, dtype)

    def times(self, V: Any) -> Any:
        """Return ``X_j V`` or ``X_j V_j`` (c, R, m), for V (p, m) or (c, p, m) on the device."""
        xp = namespace(self.values)
        c, p, m = self.n_pieces, self.n_features, V.shape[-1]
        stacked = xp.reshape(xp.broadcast_to(V, (c, p, m)), (c * p, m))
        return xp.reshape(self.forward @ stacked, (c, -1, m))

    def centred(self, V: Any, offsets: Any) -> Any:
        """Return ``times(V)`` less ``offsets`` (c, m) in every row, 0 in rows of zeros."""
        Z = self.times(V) - offsets[:, None, :]
        return Z if self.filled is None else Z * self.filled

    def transposed_times(self, Z: Any) -> Any:
        """Return ``X_j^T Z_j`` (c, p, m), for Z (c, R, m)."""
        xp = namespace(self.values)
        flat = xp.reshape(Z, (-1, Z.shape[-1]))
        return xp.reshape(self.backward @ flat, (self.n_pieces, self.n_features, -1))

    def feature_sums(self, values: Any) -> Any:
        """Return the sums (c, p) of entries of ``backward`` with these values, in their precision."""
        xp = namespace(values)
        ones = xp.ones((self.backward.shape[1], 1), dtype=values.dtype, device=device_of(values))
        return xp.reshape(self.backward.with_values(values) @ ones, (self.n_pieces, self.n_features))

    def dense(self, j: int) -> Any:
        """Return the rows of piece j as an array (R, p) on the device, with its rows of zeros."""
        R = self.forward.shape[0] // self.n_pieces
        rows = self.forward.rows(slice(j * R, (j + 1) * R))
        own = DeviceCSR(rows.indptr, rows.indices - j * self.n_features, rows.values, (R, self.n_features))
        return own.toarray()

    def wide(self, x: Any) -> Any:
        """Return ``x`` in float64 where the device has it."""
        return namespace(x).astype(x, widest_float(x), copy=False)

    def by_context(self, x: Any) -> Any:
        """Return sums over the pieces of a context (c', ...) of ``x`` (c, ...), in float64 where the device has it."""
        xp = namespace(x)
        return xp.sum(x, axis=0, keepdims=True, dtype=widest_float(x)) if self.of_one_context else self.wide(x)

    def receive(self, x: Any) -> Array:
        """Return a result on the host in float64."""
        return np.asarray(to_host(x), dtype=np.float64)


@dataclass(frozen=True)
class DevicePanels:
    """All rows of a fit as panels, in groups that have all rows of their contexts; makes passes (``PassEngine``)."""

    groups: list[list[Panel]]

    def add(self, kernel: Kernel, totals: list[Array]) -> None:
        """Add what ``kernel`` makes of all rows to ``totals``, by its twin for panels."""
        twin = on_device(kernel)
        with np.errstate(invalid="ignore", over="ignore"):  # of libraries that compute by NumPy
            for group in self.groups:
                for panel in group:
                    for item in twin(panel):
                        context_sums.add(totals, item)

    def add_gram(self, gram: GramInParts, totals: list[Array]) -> None:
        """Add ``sum_i S_i S_i V``, lengths and core to ``totals``."""
        with np.errstate(invalid="ignore", over="ignore"):
            for group in self.groups:
                for item in gram_sums(gram, group):
                    context_sums.add(totals, item)


def panels_of(contexts: Contexts) -> DevicePanels | None:
    """Return the panels of sparse rows on a device; None for other rows. Raises where entries are not finite.

    Cost one sort of the entries; memory on the device about twice that of the rows.
    """
    if not is_sparse_there(contexts):
        return None
    for source in {id(source): source for source in contexts.sources}.values():
        assert isinstance(source, SparseDeviceSource)
        check_finite_entries(source.csr, "X")
    return DevicePanels([[_panel(contexts, pieces) for pieces in group] for group in _planned(contexts)])


class _Piece(NamedTuple):
    """Rows ``start`` to ``stop`` of context ``context``."""

    context: int
    start: int
    stop: int


def _planned(contexts: Contexts) -> Iterator[list[list[_Piece]]]:
    """Yield groups of panels: one panel of small contexts from one source, or all panels of a large context."""
    p = contexts.n_features
    panel: list[_Piece] = []
    longest = 0
    for i, n in enumerate(contexts.n_samples.tolist()):
        if n > _PIECE_ROWS:
            pieces = [_Piece(i, a, min(a + _PIECE_ROWS, n)) for a in range(0, n, _PIECE_ROWS)]
            step = max(1, _PANEL_NUMBERS // max(p, _PIECE_ROWS))
            yield [pieces[a : a + step] for a in range(0, len(pieces), step)]
            continue
        longest = max(longest, n)
        full = (len(panel) + 1) * max(p, longest) > _PANEL_NUMBERS
        if panel and (full or contexts.sources[panel[0].context] is not contexts.sources[i]):
            yield [panel]
            panel, longest = [], n
        panel.append(_Piece(i, 0, n))
    if panel:
        yield [panel]


def _panel(contexts: Contexts, pieces: list[_Piece]) -> Panel:
    source = contexts.sources[pieces[0].context]
    assert isinstance(source, SparseDeviceSource)
    p = contexts.n_features
    counts = np.array([piece.stop - piece.start for piece in pieces])
    numbers = np.concatenate([as_numbers(contexts.row_numbers(*piece)) for piece in pieces])
    in_order = bool((np.diff(numbers) == 1).all())
    rows = source.csr.rows(slice(int(numbers[0]), int(numbers[-1]) + 1) if in_order else numbers)
    xp = namespace(rows.values)
    R = int(counts.max())
    # Row t of piece j begins where the rows of the piece have come to; rows of zeros begin and end at its end.
    ends = np.cumsum(counts)
    places = (ends - counts)[:, None] + np.minimum(np.arange(R)[None, :], counts[:, None])
    pointers = np.append(rows.pointers[places].ravel(), rows.pointers[-1])
    indptr = xp.astype(from_host(pointers, rows.values, xp.int64), xp.int32)
    # Columns of piece j are moved by j p: the number of pieces that end at or before an entry is its piece.
    entries = xp.arange(rows.nnz, dtype=xp.int64, device=device_of(rows.values))
    piece = xp.searchsorted(from_host(rows.pointers[ends], rows.values, xp.int64), entries, side="right")
    columns = xp.astype(xp.astype(rows.indices, xp.int64) + p * xp.astype(piece, xp.int64), xp.int32)
    c = len(pieces)
    # Contexts may differ in precision, and products of all of them are in the wider one.
    values = xp.astype(rows.values, xp.float32 if contexts.dtype == np.float32 else xp.float64, copy=False)
    forward = DeviceCSR(indptr, columns, values, (c * R, c * p))
    filled = None
    if (counts < R).any():
        filled = from_host((np.arange(R)[None, :] < counts[:, None])[:, :, None].astype(np.float64), values)
    codes = np.array([piece.context for piece in pieces])
    is_whole = bool(counts.sum() == contexts.n_samples[np.unique(codes)].sum())
    return Panel(forward, forward.transposed(), filled, codes, counts, is_whole, p)
