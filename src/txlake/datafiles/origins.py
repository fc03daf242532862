"""Which rows the rows of a new file were made of, on their way from a task to the driver.

Owns the packed form alone: no more than pyarrow's own dependencies are needed to read it.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

Ordinals = npt.NDArray[np.int32]
Positions = npt.NDArray[np.int64]

NO_FILE = -1
"""The ordinal of a row that was made of no other."""


def pack_origins(files: Ordinals, rows: Positions) -> bytes:
    """Ordinals of files, NO_FILE for none, and positions in them, one each a row, as bytes.

    Rows mostly come in the order of their sources: steps compress to next to nothing.
    """
    steps = np.diff(rows, prepend=np.int64(0)).astype("<i8")
    return zlib.compress(files.astype("<i4").tobytes() + steps.tobytes(), 1)


def unpack_origins(data: bytes) -> tuple[Ordinals, Positions]:
    """The inverse of `pack_origins`."""
    plain = zlib.decompress(data)
    count = len(plain) // 12
    files = np.frombuffer(plain, "<i4", count).astype(np.int32)
    steps = np.frombuffer(plain, "<i8", count, offset=4 * count)
    return files, np.cumsum(steps, dtype=np.int64)
