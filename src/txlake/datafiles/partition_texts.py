"""Partition values of Arrow columns, as the log writes them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from txlake.errors import InvalidRequest
from txlake.protocol.partition_values import format_column
from txlake.protocol.types import Field


def partition_values(column: pa.ChunkedArray | pa.Array, item: Field) -> pa.ChunkedArray | pa.Array:
    """Return a partition column's values as the table holds them once the log has them as texts.

    Empty strings and bytes become null, and -0.0 becomes 0.0; other values stay. Whatever judges or
    computes by a partition column has to use these values. `spark.writing.partition_value` does the
    same in Spark.
    """
    data_type = column.type
    if pa.types.is_floating(data_type):
        return pc.add(column, pa.scalar(0.0, data_type))
    if not (pa.types.is_string(data_type) or pa.types.is_binary(data_type)):
        return column
    is_empty = pc.equal(pc.binary_length(column), 0)
    return pc.if_else(is_empty, pa.scalar(None, data_type), column)


def partition_texts(column: pa.Array, item: Field) -> pa.Array:
    """Return a partition column's values as texts, as `spark.writing.partition_text` does in Spark.

    A null stays null. Raises InvalidRequest for bytes that aren't valid UTF-8.
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
    """Return the start of the message about bytes that aren't valid UTF-8; the bytes follow."""
    return f"column {item.name!r} is a partition column: expected text in UTF-8, found the bytes "
