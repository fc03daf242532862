from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txlake.protocol.parquet_sizes import require_bounded

ROWS = pa.table(
    {
        "text": pa.array([f"name {i % 7}" for i in range(5_000)]),
        "number": pa.array(range(5_000)),
        "map": pa.array([[("k", "v")], None, []] * 1_666 + [None, None], pa.map_("str", "str")),
        "nothing": pa.nulls(5_000, pa.string()),
    }
)


def _check(table: pa.Table, *columns: str, **options: object) -> None:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    data = sink.getvalue()
    require_bounded(data, pq.read_metadata(pa.BufferReader(data)), columns or [""])


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "brotli", "lz4"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_what_writers_write_is_bounded(codec: str, version: str) -> None:
    _check(ROWS, compression=codec, data_page_version=version)
    _check(ROWS, compression=codec, data_page_version=version, use_dictionary=False)
    _check(ROWS, compression=codec, row_group_size=100, data_page_size=64)
    _check(ROWS.slice(0, 0), compression=codec)
    encodings = {"text": "DELTA_BYTE_ARRAY", "number": "DELTA_BINARY_PACKED"}
    _check(ROWS.select(["text", "number"]), use_dictionary=False, column_encoding=encodings)


def test_an_empty_row_group_is_bounded() -> None:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, ROWS.schema) as writer:
        writer.write_table(ROWS)
        writer.write_table(ROWS.slice(0, 0))
        writer.write_table(ROWS)
    data = sink.getvalue()
    require_bounded(data, pq.read_metadata(pa.BufferReader(data)), [""])


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "brotli", "lz4"])
def test_a_dictionary_counts_as_often_as_it_is_used(codec: str) -> None:
    large = pa.array(["x" * 30_000]).dictionary_encode()
    repeated = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0), 100_000), large.dictionary)
    with pytest.raises(ValueError, match="would become more than"):
        _check(pa.table({"text": repeated, "other": pa.nulls(100_000)}), compression=codec)
    # Only what is about to be read counts.
    _check(pa.table({"text": repeated, "other": pa.nulls(100_000)}), "other", compression=codec)


def test_run_lengths_count() -> None:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, pa.schema([("n", pa.int8())])) as writer:
        for _ in range(6):
            writer.write_table(pa.table({"n": pa.nulls(4_000_000, pa.int8())}))
    data = sink.getvalue()
    assert len(data) < 50_000
    with pytest.raises(ValueError, match="would become more than"):
        require_bounded(data, pq.read_metadata(pa.BufferReader(data)), ["n"])


def test_every_flipped_bit_of_a_header_is_refused_or_harmless() -> None:
    sink = io.BytesIO()
    pq.write_table(ROWS.slice(0, 20), sink)
    data = bytearray(sink.getvalue())
    metadata = pq.read_metadata(pa.BufferReader(bytes(data)))
    for place in range(4, 400):
        for bit in (1, 16, 128):
            data[place] ^= bit
            with suppress(ValueError, OSError):
                require_bounded(bytes(data), metadata, [""])
            data[place] ^= bit
    with pytest.raises(ValueError, match="beyond"):
        require_bounded(bytes(data[:100]), metadata, [""])


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_nulls_use_no_dictionary(version: str) -> None:
    """The text of a schema stands in one row of a checkpoint's many."""
    texts = pa.array([None, "x" * 1_000_000, *[None] * 1_000_000, "y"])
    _check(pa.table({"metaData": texts}), data_page_version=version)
    nested = pa.StructArray.from_arrays([texts], ["schemaString"])
    _check(pa.table({"metaData": nested}), data_page_version=version, compression="zstd")
    lists = pa.array([None, ["x" * 1_000_000], *[None] * 500_000, [], [None]])
    _check(pa.table({"metaData": lists}), data_page_version=version)


def test_the_golden_checkpoints_are_bounded(golden: Path) -> None:
    found = sorted(golden.rglob("*.checkpoint*.parquet"))
    assert found
    for path in found:
        data = path.read_bytes()
        try:
            metadata = pq.read_metadata(pa.BufferReader(data))
        except pa.ArrowException:
            continue  # damaged on purpose
        require_bounded(data, metadata, [""])
