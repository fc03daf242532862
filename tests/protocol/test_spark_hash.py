from __future__ import annotations

import numpy as np

from txlake.protocol.spark_hash import SEED, hash_texts, part_of

# What Spark 4.2 answers to `hash(a)` and `hash(a, b)`.
_TEXTS = ["", "a", "ab", "abc", "abcd", "abcde", "part-0000-ü.parquet", "x" * 37, "日本"]
_ONE = [
    142593372,
    1485273170,
    -97053317,
    1322437556,
    -396302900,
    814637928,
    141713190,
    1439221402,
    -336983209,
]
_TWO = [
    -1696176718,
    1485273170,
    1383413876,
    1322437556,
    -774950589,
    814637928,
    229737172,
    1439221402,
    -715199294,
]


def test_hashes_are_those_of_spark() -> None:
    one = hash_texts(_TEXTS, np.full(len(_TEXTS), SEED, np.uint32))
    assert one.astype(np.int32).tolist() == _ONE
    second = [None if at % 2 else "u" + text for at, text in enumerate(_TEXTS)]
    assert hash_texts(second, one).astype(np.int32).tolist() == _TWO


def test_parts_are_never_negative() -> None:
    hashes = np.array(_ONE, np.int32).astype(np.uint32)
    assert part_of(hashes, 7).tolist() == [value % 7 for value in _ONE]
