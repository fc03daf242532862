"""Compact encoding of row positions for the way to and from Spark's tasks."""

from __future__ import annotations

import numpy as np


def pack_positions(positions: np.ndarray) -> bytes:
    """Return sorted distinct positions as bytes, in the shorter of two forms.

    `p` and 64-bit numbers, or `b` and a bit for each position up to the last one.
    """
    highest = int(positions[-1]) if len(positions) else 0
    if len(positions) * 64 <= highest:
        return b"p" + positions.astype("<i8").tobytes()
    bits = np.zeros(highest + 1, dtype=bool)
    bits[positions] = True
    return b"b" + np.packbits(bits, bitorder="little").tobytes()


def unpack_positions(data: bytes) -> np.ndarray:
    """Return sorted positions, unsigned 64-bit: the inverse of `pack_positions`."""
    if data[:1] == b"p":
        return np.frombuffer(data, dtype="<i8", offset=1).astype(np.uint64)
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8, offset=1), bitorder="little")
    return np.flatnonzero(bits).astype(np.uint64)
