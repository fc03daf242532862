"""Footers that mislead no reader: bounds and dictionaries of floating-point columns."""

from __future__ import annotations

import math
import random
import struct
from dataclasses import replace
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txlake.datafiles.exact_footers import (
    change_footer,
    chunks_with_zero,
    leaf_count,
    leaves_with_nan,
    needs_change,
)
from txlake.protocol.thrift_compact import (
    LIST,
    Part,
    read_fields,
    read_list,
    read_parts,
    write_list,
    write_parts,
    write_unsigned,
)

NAN = math.nan
ROWS = pa.table(
    {
        "i": pa.array([1, 2, 3, 4] * 50),
        "x": pa.array([1.0, NAN, 2.0, None] * 50),
        "zero": pa.array([0.0, -0.0, 5.0, 0.0] * 50),
        "above": pa.array([1.0, 2.0, 5.0, 1.0] * 50, pa.float32()),
        "none": pa.array([None] * 200, pa.float64()),
        "s": pa.array(["a", "b", "", "\U0010ffff"] * 50),
    }
)


def _written(table: pa.Table, **options: object) -> BytesIO:
    file = BytesIO()
    pq.write_table(table, file, **options)
    return file


def _rows(file: BytesIO) -> str:
    return repr(pq.read_table(BytesIO(file.getvalue())).to_pydict())  # NaN is no NaN


def _chunk(footer: pq.FileMetaData, name: str, group: int = 0) -> pq.ColumnChunkMetaData:
    place = footer.schema.to_arrow_schema().names.index(name)
    return footer.row_group(group).column(place)


def test_a_chunk_with_nan_has_no_bounds_and_keeps_its_count_of_nulls() -> None:
    file = _written(ROWS, row_group_size=100)
    before = pq.read_metadata(BytesIO(file.getvalue()))
    assert _chunk(before, "x").statistics.max == 2.0  # NaN is left out
    footer, size = change_footer(file, {(1, 1)})
    assert size == len(file.getvalue())
    found = pq.read_metadata(BytesIO(file.getvalue()))
    assert found.equals(footer)
    assert not _chunk(found, "x", 1).statistics.has_min_max
    assert _chunk(found, "x", 1).statistics.null_count == 25
    assert _chunk(found, "x", 0).statistics.max == 2.0
    assert _rows(file) == _rows(_written(ROWS))


def test_nan_is_no_bound() -> None:
    """parquet-java writes it as one."""
    file = _written(pa.table({"c": [1.0, 2.0]}), use_dictionary=False, store_schema=False)
    bound = struct.pack("<d", NAN)
    framed = BytesIO(file.getvalue().replace(struct.pack("<d", 2.0), bound))
    before = pq.read_metadata(BytesIO(framed.getvalue()))
    assert math.isnan(_chunk(before, "c").statistics.max)
    assert needs_change(before)
    for_statistics, _ = change_footer(framed)
    for found in (for_statistics, pq.read_metadata(BytesIO(framed.getvalue()))):
        assert not _chunk(found, "c").statistics.has_min_max


def test_a_dictionary_with_a_zero_is_not_said_to_hold_all_values() -> None:
    file = _written(ROWS)
    assert chunks_with_zero(pq.read_metadata(BytesIO(file.getvalue()))) == {(0, 2), (0, 4)}
    change_footer(file)
    column = _column_of(file.getvalue(), 2)
    assert 13 not in column  # encoding_stats
    assert 13 in _column_of(file.getvalue(), 3)
    assert not _chunk(pq.read_metadata(BytesIO(file.getvalue())), "zero").statistics.min > 0
    again = pq.read_table(BytesIO(file.getvalue()))
    assert [math.copysign(1, one.as_py()) for one in again["zero"][:2]] == [1, -1]


def test_the_encodings_of_older_files_gain_the_plain_one() -> None:
    """Where their pages aren't described, parquet-java goes by the list of encodings."""
    file = _written(ROWS.select(["zero"]), version="1.0")
    listed = write_list(5, [b"\x04", b"\x06"])  # PLAIN_DICTIONARY and RLE: no page is plain
    column = {2: listed, 13: None}
    older = BytesIO(_with_column(file.getvalue(), column))
    assert read_list(_column_parts(older.getvalue(), 0)[2])[1] == [b"\x04", b"\x06"]
    change_footer(older)
    assert read_list(_column_parts(older.getvalue(), 0)[2])[1] == [b"\x04", b"\x06", b"\x00"]
    assert _rows(older) == _rows(file)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.0, 2.0, None, 3.0]),
        pa.array([-1.0, -5.0], pa.float32()),
        pa.array([1, 0, 3]),
        pa.array(["0", ""]),
    ],
    ids=["above", "below", "integers", "texts"],
)
def test_other_footers_stay(column: pa.Array) -> None:
    file = _written(pa.table({"c": column}))
    assert not needs_change(pq.read_metadata(BytesIO(file.getvalue())))


def test_a_zero_without_a_dictionary_needs_no_change() -> None:
    file = _written(pa.table({"c": [0.0, 1.0]}), use_dictionary=False)
    assert not needs_change(pq.read_metadata(BytesIO(file.getvalue())))


@pytest.mark.parametrize("values", [[0.0, 0.0], [-0.0], [0.0, None, -0.0]])
def test_zeros_have_no_bounds_in_the_file_and_keep_them_for_statistics(
    values: list[float | None],
) -> None:
    file = _written(pa.table({"c": values, "i": [0] * len(values)}), use_dictionary=False)
    assert needs_change(pq.read_metadata(BytesIO(file.getvalue())))
    for_statistics, _ = change_footer(file)
    found = pq.read_metadata(BytesIO(file.getvalue()))
    assert not _chunk(found, "c").statistics.has_min_max
    assert _chunk(found, "c").statistics.null_count == values.count(None)
    assert _chunk(found, "i").statistics.max == 0
    assert _chunk(for_statistics, "c").statistics.min == 0.0
    assert _chunk(for_statistics, "c").statistics.max == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_all_else_stays_as_it_is(seed: int) -> None:
    luck = random.Random(seed)
    names = luck.sample(ROWS.column_names, k=luck.randint(1, 6))
    file = _written(
        ROWS.select(names),
        row_group_size=luck.choice([1, 7, 200]),
        compression=luck.choice(["snappy", "zstd", "none"]),
        write_page_index=luck.random() < 0.5,
        write_statistics=luck.random() < 0.8,
        store_schema=luck.random() < 0.5,
    )
    before = pq.read_metadata(BytesIO(file.getvalue()))
    rows = _rows(file)
    chosen = {
        (group, column)
        for group in range(before.num_row_groups)
        for column in range(before.num_columns)
        if luck.random() < 0.2
    }
    after, _ = change_footer(file, chosen)
    assert after.schema.equals(before.schema)
    assert after.metadata == before.metadata
    assert _rows(file) == rows
    for group in range(before.num_row_groups):
        for column in range(before.num_columns):
            old, new = (one.row_group(group).column(column) for one in (before, after))
            if (group, column) not in chosen:
                assert new.statistics == old.statistics
            assert new.data_page_offset == old.data_page_offset
            assert new.total_compressed_size == old.total_compressed_size


def test_nan_is_found_in_every_leaf() -> None:
    kind = pa.struct(
        [
            ("a", pa.float64()),
            ("m", pa.map_(pa.float64(), pa.list_(pa.float32()))),
            ("n", pa.struct([("i", pa.int32()), ("x", pa.float64())])),
        ]
    )
    plain = {"a": 1.0, "m": [(1.0, [2.0, None])], "n": {"i": 1, "x": 1.0}}
    assert leaf_count(kind) == 5
    for leaf, row in enumerate(
        [
            {**plain, "a": NAN},
            {**plain, "m": [(NAN, [])]},
            {**plain, "m": [(1.0, [1.0, NAN])]},
            None,
            {**plain, "n": {"i": 1, "x": NAN}},
        ]
    ):
        column = pa.array([plain, row, None], kind)
        assert list(leaves_with_nan(column, 10)) == ([] if row is None else [10 + leaf])
        assert list(leaves_with_nan(column.slice(0, 1), 10)) in ([], [10 + leaf])


def test_a_struct_is_written_as_it_was_read() -> None:
    footer = _footer(_written(ROWS, row_group_size=3).getvalue())
    parts, end = read_parts(footer)
    assert end == len(footer)
    assert write_parts(parts) == footer
    for part in parts:
        if part.kind == 9:
            assert write_list(*read_list(part.data)) == part.data


def test_large_numbers_of_fields_and_long_lists_are_written() -> None:
    inner = write_parts([])
    long = write_list(12, [inner] * 300)
    assert read_list(long) == (12, [inner] * 300)
    data = b"\x0c" + write_unsigned(1000 << 1) + inner + b"\x15\x02\x00"
    parts, _ = read_parts(data)
    assert [part.number for part in parts] == [1000, 1001]
    assert write_parts(parts) == data


@pytest.mark.parametrize("data", [b"", b"\x15", b"\x1c\x1c", b"\x1e\x00", b"\x15" + b"\xff" * 12])
def test_what_is_no_struct_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="Thrift"):
        read_parts(data)
    with pytest.raises(ValueError, match="Thrift"):
        read_fields(data, 0)


def _footer(data: bytes) -> bytes:
    length = int.from_bytes(data[-8:-4], "little")
    return data[-8 - length : -8]


def _column_parts(data: bytes, column: int) -> dict[int, bytes]:
    """The fields of a column's metadata in the first row group."""
    parts = {part.number: part.data for part in read_parts(_footer(data))[0]}
    _, groups = read_list(parts[4])
    _, columns = read_list({part.number: part.data for part in read_parts(groups[0])[0]}[1])
    inner = {part.number: part.data for part in read_parts(columns[column])[0]}[3]
    return {part.number: part.data for part in read_parts(inner)[0]}


def _with_column(data: bytes, changed: dict[int, bytes | None]) -> bytes:
    """The file with other values of fields of its only column's metadata, None for no field."""

    def inside(parts: list[Part], path: tuple[int, ...]) -> bytes:
        if not path:
            return write_parts(
                replace(part, data=changed.get(part.number) or part.data)
                for part in parts
                if changed.get(part.number, b"") is not None
            )
        return write_parts(
            replace(part, data=_descended(part, path[1:])) if part.number == path[0] else part
            for part in parts
        )

    def _descended(part: Part, path: tuple[int, ...]) -> bytes:
        if part.kind == LIST:
            kind, elements = read_list(part.data)
            return write_list(kind, [inside(read_parts(one)[0], path) for one in elements])
        return inside(read_parts(part.data)[0], path)

    before = _footer(data)
    after = inside(read_parts(before)[0], (4, 1, 3))
    return data[: -8 - len(before)] + after + len(after).to_bytes(4, "little") + b"PAR1"


def _column_of(data: bytes, column: int) -> set[int]:
    return set(_column_parts(data, column))
