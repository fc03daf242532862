"""Spark's hash of text, which chooses the parts of a multi-part checkpoint.

Source: PROTOCOL.md, "Multi-part checkpoint"; Murmur3 (x86, 32 bits), with Spark's variant that
hashes the last bytes of a text one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint32]

SEED = 42
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)


def hash_texts(texts: Sequence[str | None], seeds: Hashes) -> Hashes:
    """Return the hash of each text from its seed; for None the seed itself."""
    hashes = seeds.astype(np.uint32)
    encoded = [None if text is None else text.encode() for text in texts]
    lengths = np.fromiter((-1 if item is None else len(item) for item in encoded), np.int64)
    with np.errstate(over="ignore"):
        for length in np.unique(lengths[lengths >= 0]).tolist():
            rows = np.flatnonzero(lengths == length)
            joined = b"".join(encoded[row] or b"" for row in rows.tolist())
            matrix = np.frombuffer(joined, np.uint8).reshape(len(rows), length)
            hashes[rows] = _hash_bytes(matrix, hashes[rows])
    return hashes


def part_of(hashes: Hashes, parts: int) -> npt.NDArray[np.int64]:
    """Return the part, from 0, of each hash: the remainder of the signed hash, never negative."""
    return hashes.astype(np.int32).astype(np.int64) % parts


def _hash_bytes(matrix: npt.NDArray[np.uint8], seeds: Hashes) -> Hashes:
    """Return one hash for each row of a matrix of bytes."""
    length = matrix.shape[1]
    aligned = length - length % 4
    words = np.ascontiguousarray(matrix[:, :aligned]).view("<u4")
    h = seeds
    for column in range(aligned // 4):
        h = _mixed(h, words[:, column].astype(np.uint32))
    for column in range(aligned, length):
        signed = matrix[:, column].astype(np.int8).astype(np.int32)
        h = _mixed(h, signed.astype(np.uint32))
    h = h ^ np.uint32(length)
    h ^= h >> np.uint32(16)
    h = h * np.uint32(0x85EBCA6B)
    h ^= h >> np.uint32(13)
    h = h * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def _mixed(h: Hashes, k: Hashes) -> Hashes:
    """Return Murmur3's hashes `h` mixed with one word each."""
    k = k * _C1
    k = (k << np.uint32(15)) | (k >> np.uint32(17))
    h = h ^ (k * _C2)
    h = (h << np.uint32(13)) | (h >> np.uint32(19))
    return h * np.uint32(5) + np.uint32(0xE6546B64)
