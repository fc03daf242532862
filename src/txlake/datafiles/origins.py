"""The origins of a new file's rows, packed for the way from a task to the driver.

An origin is the source row that a new row was made of: the ordinal of its file, and its position.
Needs no more than numpy to be read.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

Ordinals = npt.NDArray[np.int32]
Positions = npt.NDArray[np.int64]

NO_FILE = -1
"""The ordinal of a row without an origin."""


def pack_origins(files: Ordinals, rows: Positions) -> bytes:
    """Return file ordinals (NO_FILE for none) and positions, one of each per row, as compressed
    bytes.

    Rows mostly come in the order of their sources, so the differences of positions compress well.
    """
    deltas = np.diff(rows, prepend=np.int64(0)).astype("<i8")
    return zlib.compress(files.astype("<i4").tobytes() + deltas.tobytes(), 1)


def unpack_origins(data: bytes) -> tuple[Ordinals, Positions]:
    """Return the ordinals and positions: the inverse of `pack_origins`."""
    plain = zlib.decompress(data)
    count = len(plain) // 12
    files = np.frombuffer(plain, "<i4", count).astype(np.int32)
    deltas = np.frombuffer(plain, "<i8", count, offset=4 * count)
    return files, np.cumsum(deltas, dtype=np.int64)
