"""File statistics between their two forms in checkpoints: a JSON text and a typed struct.

Owns `stats_parsed`, and `partitionValues_parsed`, of checkpoints. Source: PROTOCOL.md, "Per-file
Statistics" and "Checkpoint Schema".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

_ESCAPED = r'["\\\x00-\x1f]'


def stats_to_json(stats: pa.StructArray) -> pa.Array:
    """The JSON text of each row's statistics, null where the struct is; column by column.

    What has no JSON form (binary, variant, NaN, infinity) is left out, as an unknown bound.
    """
    if not pa.types.is_struct(stats.type):
        raise ValueError(f"stats_parsed: expected a struct, found {stats.type}")
    return pc.if_else(stats.is_valid(), _object(stats), pa.scalar(None, pa.string()))


def _object(values: pa.StructArray) -> pa.Array:
    """Each row as a JSON object of its fields that have a value; `{}` when none has."""
    members = [
        pc.coalesce(
            pc.binary_join_element_wise(f",{json.dumps(name, ensure_ascii=False)}:", text, ""), ""
        )
        for name, text in _members(values)
    ]
    if not members:
        return pa.array(["{}"] * len(values), pa.string())
    joined = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*members, ""), 1)
    return pc.binary_join_element_wise("{", joined, "}", "")


def _members(values: pa.StructArray) -> Iterator[tuple[str, pa.Array]]:
    for member, column in zip(values.type, values.flatten()):
        text = _text(column)
        if text is not None:
            yield member.name, text


def _text(column: pa.Array) -> pa.Array | None:
    """Each value as JSON; null for null. None when the type has no JSON form in statistics."""
    kind = column.type
    if pa.types.is_struct(kind):
        return pc.if_else(column.is_valid(), _object(column), pa.scalar(None, pa.string()))
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if pa.types.is_floating(kind):
        finite = pc.is_finite(column)
        return pc.if_else(finite, column.cast(pa.string()), pa.scalar(None, pa.string()))
    if pa.types.is_date(kind):
        return _quoted(column.cast(pa.string()))
    if pa.types.is_timestamp(kind):
        return _quoted(_timestamps(column))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _strings(column.cast(pa.string()))
    return None


def _timestamps(column: pa.Array) -> pa.Array:
    """ISO 8601 with six fraction digits; an instant ends in Z, a local time in nothing.

    Nanoseconds come from INT96, in which Spark stores instants and never local times.
    """
    zoned = column.type.tz is not None or column.type.unit == "ns"
    local = column.cast(pa.timestamp("us", tz="UTC" if zoned else None), safe=False)
    return pc.strftime(local, "%Y-%m-%dT%H:%M:%SZ" if zoned else "%Y-%m-%dT%H:%M:%S")


def _strings(column: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py():
        values = cast("list[str | None]", column.to_pylist())
        return pa.array(
            [None if item is None else json.dumps(item, ensure_ascii=False) for item in values],
            pa.string(),
        )
    return _quoted(column)


def _quoted(column: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', column, '"', "")
