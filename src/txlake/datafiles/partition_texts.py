"""Partition values as the log writes them, of Arrow columns."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from txlake.errors import InvalidRequest
from txlake.protocol.partition_values import format_column
from txlake.protocol.types import Field


def partition_values(column: pa.ChunkedArray | pa.Array, item: Field) -> pa.ChunkedArray | pa.Array:
    """The values of a partition column as the table will hold them, once they were texts.

    Empty texts and bytes become null, and zero loses its sign. What judges or computes by a
    partition column has to see these; `spark.writing.partition_value` is Spark's way.
    """
    kind = column.type
    if pa.types.is_floating(kind):
        return pc.add(column, pa.scalar(0.0, kind))
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return column
    is_empty = pc.equal(pc.binary_length(column), 0)
    return pc.if_else(is_empty, pa.scalar(None, kind), column)


def partition_texts(column: pa.Array, item: Field) -> pa.Array:
    """The values of a partition column as texts; `spark.writing.partition_text` is Spark's way.

    Raises InvalidRequest for bytes that are no text in UTF-8.
    """
    encoded = column.dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    try:
        texts = format_column(encoded.dictionary, item.type)
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{invalid_text_message(item)}{error.object.hex().upper()}") from error
    return pa.array(texts, pa.string()).take(encoded.indices)


def invalid_text_message(item: Field) -> str:
    """What is said of bytes, which follow, that are no text."""
    return f"column {item.name!r} is a partition column: expected text in UTF-8, found the bytes "
