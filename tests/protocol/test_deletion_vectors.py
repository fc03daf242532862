from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from txlake.errors import CorruptTable, UnsupportedFeature
from txlake.protocol.actions import Add, DeletionVector, Remove, decode_actions
from txlake.protocol.deletion_vectors import (
    decode_inline,
    inline,
    read_from_file,
    relative_file_name,
    relative_vector,
    slice_range,
    vector_path,
    z85_decode,
    z85_encode,
)
from txlake.protocol.roaring import NATIVE_MAGIC, decode_bitmap, encode_bitmap, vector_file

UUID = "d2c639aa-8816-431a-aaf6-d3fe2512ff61"
POSITIONS = st.lists(st.integers(0, 2**34 - 1), max_size=50)


def vector(kind: str, path: str, size: int = 34, rows: int = 1) -> DeletionVector:
    return DeletionVector(
        storage_type=kind, path_or_inline_dv=path, size_in_bytes=size, cardinality=rows, offset=1
    )


def test_z85_is_that_of_its_specification() -> None:
    assert z85_encode(bytes.fromhex("864fd26fb559f75b")) == "HelloWorld"
    assert z85_decode("HelloWorld") == bytes.fromhex("864fd26fb559f75b")


@given(st.binary())
def test_z85_reads_back(data: bytes) -> None:
    assert z85_decode(z85_encode(data))[: len(data)] == data


@pytest.mark.parametrize(
    ("text", "data"),
    [("##093", "0300"), ("HelloWorld##093", "864fd26fb559f75b0300"), ("###30", "ff")],
)
def test_the_short_last_group_of_rust_writers_is_read(text: str, data: str) -> None:
    assert z85_decode(text) == bytes.fromhex(data)


@pytest.mark.parametrize("text", ["#####", "####0", "##zzz", "##09300000", "abcd", "abc~d"])
def test_what_is_no_z85_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        z85_decode(text)


@given(POSITIONS)
def test_bitmaps_read_back(positions: list[int]) -> None:
    bitmap = BitMap64(positions)
    assert decode_bitmap(encode_bitmap(bitmap), file="f") == bitmap
    assert decode_inline(inline(bitmap)) == bitmap


def test_encoding_leaves_the_bitmap_as_it_is() -> None:
    bitmap = BitMap64(range(1000))
    assert len(encode_bitmap(bitmap)) < 100  # as one run
    assert bitmap == BitMap64(range(1000))


def test_bytes_are_those_that_delta_writes() -> None:
    made = inline(BitMap64([3, 4, 7, 11, 18, 29]))
    assert made.path_or_inline_dv == "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    assert (made.size_in_bytes, made.cardinality, made.offset) == (44, 6, None)


def test_the_native_format_of_older_writers_is_read() -> None:
    halves = [BitMap([1, 5]), BitMap([2])]
    data = struct.pack("<Ii", NATIVE_MAGIC, len(halves))
    for half in halves:
        content = half.serialize()
        data += struct.pack("<i", len(content)) + content
    assert list(decode_bitmap(data, file="f")) == [1, 5, (1 << 32) + 2]
    with pytest.raises(CorruptTable, match="f: deletion vector"):
        decode_bitmap(data[:-1], file="f")


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00\x00\x00\x00", encode_bitmap(BitMap64([1]))[:-1], encode_bitmap(BitMap64())[:4]],
)
def test_damaged_bytes_name_their_file(data: bytes) -> None:
    with pytest.raises(CorruptTable, match="some-file: deletion vector"):
        decode_bitmap(data, file="some-file")


def test_a_file_holds_several_vectors() -> None:
    bitmaps = [BitMap64([1, 2]), BitMap64(), BitMap64([7, 1 << 33])]
    data, places = vector_file(bitmaps)
    assert data[0] == 1
    for bitmap, (offset, size) in zip(bitmaps, places, strict=True):
        made = relative_vector(UUID, "", offset, size, len(bitmap))
        start, length = slice_range(made)
        assert read_from_file(data, made, file="f") == bitmap
        assert read_from_file(data[start : start + length], made, file="f") == bitmap


def test_every_flipped_byte_of_a_stored_vector_is_noticed() -> None:
    data, [(offset, size)] = vector_file([BitMap64([1, 2, 3])])
    made = relative_vector(UUID, "", offset, size, 3)
    for place in range(offset, len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        with pytest.raises(CorruptTable, match=r"f\.bin: deletion vector at 1"):
            read_from_file(bytes(damaged), made, file="f.bin")
    with pytest.raises(CorruptTable, match=r"expected .* bytes, found"):
        read_from_file(data[:-2], made, file="f.bin")


def test_a_cardinality_that_differs_is_noticed() -> None:
    data, [(offset, size)] = vector_file([BitMap64([1, 2, 3])])
    with pytest.raises(CorruptTable, match="the log says 4 rows"):
        read_from_file(data, relative_vector(UUID, "", offset, size, 4), file="f")
    made = msgspec.structs.replace(inline(BitMap64([1])), cardinality=2)
    with pytest.raises(CorruptTable, match="the log says 2 rows"):
        decode_inline(made)


def test_an_inline_vector_of_another_size_is_noticed() -> None:
    made = msgspec.structs.replace(inline(BitMap64([1])), size_in_bytes=4)
    with pytest.raises(CorruptTable, match="expected 4 bytes"):
        decode_inline(made)
    made = msgspec.structs.replace(inline(BitMap64([1])), path_or_inline_dv="~~~~~")
    with pytest.raises(CorruptTable, match="not a Z85"):
        decode_inline(made)


@pytest.mark.parametrize(
    ("made", "path"),
    [
        (vector("u", "ab^-aqEH.-t@S}K{vb[*k^"), f"ab/deletion_vector_{UUID}.bin"),
        (vector("u", "^-aqEH.-t@S}K{vb[*k^"), f"deletion_vector_{UUID}.bin"),
        (vector("p", f"s3://other/{UUID}%20.bin"), f"s3://other/{UUID}%20.bin"),
        (vector("p", f"s3a://b/t/x%20y/{UUID}.bin"), f"x y/{UUID}.bin"),
        (vector("p", f"s3://b/t2/{UUID}.bin"), f"s3://b/t2/{UUID}.bin"),
    ],
)
def test_where_a_vector_is_stored(made: DeletionVector, path: str) -> None:
    assert vector_path(made, "s3://b/t") == path


def test_a_relative_vector_says_where_its_file_is() -> None:
    made = relative_vector(UUID, "ab", 1, 34, 2)
    assert made.path_or_inline_dv == "ab^-aqEH.-t@S}K{vb[*k^"
    assert vector_path(made, "s3://b/t") == f"ab/{relative_file_name(UUID)}"
    assert made.unique_id == "uab^-aqEH.-t@S}K{vb[*k^@1"


def test_a_vector_that_points_nowhere() -> None:
    with pytest.raises(UnsupportedFeature, match=r"s3://b/t: .*storage type 'r'"):
        vector_path(vector("r", "x"), "s3://b/t")
    with pytest.raises(CorruptTable, match="an id"):
        vector_path(vector("u", "short"), "s3://b/t")
    with pytest.raises(ValueError, match="has no file"):
        vector_path(inline(BitMap64([1])), "s3://b/t")


def test_every_vector_of_the_golden_tables_decodes(golden: Path) -> None:
    seen = 0
    for table, made in _golden_vectors(golden):
        if made.storage_type == "i":
            assert len(decode_inline(made)) == made.cardinality
            seen += 1
            continue
        file = table / vector_path(made, f"file://{table}")
        if file.exists():
            assert len(read_from_file(file.read_bytes(), made, file=str(file))) == made.cardinality
            seen += 1
    assert seen > 50


def _golden_vectors(golden: Path) -> Iterator[tuple[Path, DeletionVector]]:
    for folder in golden.rglob("_delta_log"):
        for commit in folder.glob("[0-9]*.json"):
            try:
                actions = decode_actions(commit.read_bytes(), file=str(commit))
            except CorruptTable:
                continue
            for action in actions:
                if isinstance(action, Add | Remove) and action.deletion_vector is not None:
                    yield folder.parent, action.deletion_vector
        for checkpoint in (*folder.glob("*.checkpoint*.parquet"), *folder.glob("_sidecars/*")):
            try:
                adds = pq.read_table(checkpoint, columns=["add"])["add"].to_pylist()
            except (OSError, ValueError):
                continue
            for add in adds:
                stored = (add or {}).get("deletionVector")
                if stored is not None:
                    stored.pop("maxRowIndex", None)  # only Delta's own, and never set
                    yield folder.parent, msgspec.convert(stored, DeletionVector)
