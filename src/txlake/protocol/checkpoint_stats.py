"""Conversion of file statistics between their two forms in checkpoints: JSON text and typed struct.

Owns the checkpoints' `stats_parsed` and `partitionValues_parsed`. Source: PROTOCOL.md, "Per-file
Statistics" and "Checkpoint Schema".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Context, Decimal
from typing import cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from txlake.protocol.partition_values import has_local_times, parse_column
from txlake.protocol.types import DataType, Primitive, Struct, to_arrow_type

_WITHOUT_BOUNDS = frozenset({"boolean", "binary", "void", "variant"})
_EXACT = msgspec.json.Decoder(float_hook=Decimal)
_WIDE = Context(prec=80)
_ESCAPED = r'["\\\x00-\x1f]'


def stats_to_json(stats: pa.StructArray) -> pa.Array:
    """Return the JSON text of each row's statistics, null where the struct is null.

    Values without a JSON form (binary, variant, NaN, infinity) are left out, as an unknown bound.
    Raises ValueError for a column that isn't a struct.
    """
    if not pa.types.is_struct(stats.type):
        raise ValueError(f"stats_parsed: expected a struct, found {stats.type}")
    return pc.if_else(stats.is_valid(), _object(stats), pa.scalar(None, pa.string()))


def _object(values: pa.StructArray) -> pa.Array:
    """Return each row as a JSON object of its fields that have a value; `{}` when none has."""
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
    """Yield each field's name with its values as JSON text, without fields that have no JSON
    form.
    """
    for member, column in zip(values.type, values.flatten()):
        text = _text(column)
        if text is not None:
            yield member.name, text


def _text(column: pa.Array) -> pa.Array | None:
    """Return each value as JSON text, null for null; None when the type has no JSON form in
    statistics.
    """
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
    """Return ISO 8601 texts with six fraction digits; an instant ends in Z, a local time doesn't.

    Nanoseconds come from INT96, in which Spark stores instants and never local times.
    """
    zoned = column.type.tz is not None or column.type.unit == "ns"
    local = column.cast(pa.timestamp("us", tz="UTC" if zoned else None), safe=False)
    return pc.strftime(local, "%Y-%m-%dT%H:%M:%SZ" if zoned else "%Y-%m-%dT%H:%M:%S")


def _strings(column: pa.Array) -> pa.Array:
    """Return each text as a JSON string, null for null."""
    if pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py():
        values = cast("list[str | None]", column.to_pylist())
        return pa.array(
            [None if item is None else json.dumps(item, ensure_ascii=False) for item in values],
            pa.string(),
        )
    return _quoted(column)


def _quoted(column: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', column, '"', "")


def stats_type(texts: Iterable[str | None], schema: Struct) -> pa.StructType | None:
    """Return the type of `stats_parsed` for these JSON texts: the table's columns that any text
    names.

    Physical names, types of the schema; None when there is no statistic at all.
    """
    seen: dict[str, object] = {}
    for text in texts:
        if text:
            _merge(seen, _decoded(text))
    if not seen:
        return None
    members = [pa.field("numRecords", pa.int64())]
    for name, is_count in (("minValues", False), ("maxValues", False), ("nullCount", True)):
        kind = _columns_type(seen.get(name), schema, is_count=is_count)
        if kind is not None:
            members.append(pa.field(name, kind))
    if "tightBounds" in seen:
        members.append(pa.field("tightBounds", pa.bool_()))
    return pa.struct(members)


def stats_from_json(texts: Sequence[str | None], kind: pa.StructType) -> pa.Array:
    """Return the statistics as structs; null for a missing text, and for values of another type."""
    return _column([_decoded(text) if text else None for text in texts], kind)


def _decoded(text: str) -> dict[str, object]:
    """Return a text's object, decimals exact, as a bound must not be rounded; {} for any other
    text.
    """
    try:
        value = _EXACT.decode(text)
    except (ValueError, ArithmeticError, RecursionError):
        return _decoded_leniently(text)
    return value if isinstance(value, dict) else {}


def _decoded_leniently(text: str) -> dict[str, object]:
    """Return a text's object as Python's decoder reads it: NaN, infinities and lone surrogates are
    no JSON, and other writers have them. {} for any other text.
    """
    try:
        value = json.loads(text, parse_float=Decimal)
    except (ValueError, ArithmeticError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _merge(seen: dict[str, object], value: Mapping[str, object]) -> None:
    """Add the names in `value` to `seen`: a dictionary for each nested object, True for other
    values.
    """
    for name, item in value.items():
        if isinstance(item, Mapping):
            inner = seen.setdefault(name, {})
            if isinstance(inner, dict):
                _merge(inner, item)
        else:
            seen.setdefault(name, True)


def _columns_type(seen: object, schema: Struct, *, is_count: bool) -> pa.StructType | None:
    """Return the struct of the columns that are in `seen`, in the schema's order; None without one.

    Types are those of bounds, or with `is_count` integers. Columns without bounds are left out.
    """
    if not isinstance(seen, Mapping):
        return None
    members: list[pa.Field] = []
    for item in schema:
        name = item.physical_name
        if name not in seen:
            continue
        if isinstance(item.type, Struct):
            kind = _columns_type(seen[name], item.type, is_count=is_count)
        else:
            kind = pa.int64() if is_count else _bound_type(item.type)
        if kind is not None:
            members.append(pa.field(name, kind))
    return pa.struct(members) if members else None


def _bound_type(data_type: DataType) -> pa.DataType | None:
    """Return the type of a minimum or maximum; None for types without bounds."""
    if not isinstance(data_type, Primitive) or data_type.name in _WITHOUT_BOUNDS:
        return None
    try:
        return to_arrow_type(data_type)
    except ValueError:
        return None


def _column(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """Return JSON values as a column of the type, null where `_scalar` or a struct has none."""
    if pa.types.is_struct(kind):
        structs = [value if isinstance(value, dict) else None for value in values]
        columns = [
            _column(
                [None if value is None else value.get(item.name) for value in structs], item.type
            )
            for item in kind
        ]
        mask = pa.array([value is None for value in structs], pa.bool_())
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)
    return pa.array([_scalar(value, kind) for value in values], kind)


def _scalar(value: object, kind: pa.DataType) -> object:
    """Return the value if it is exactly one of the column's type, else None."""
    t = pa.types
    try:
        if value is None or isinstance(value, bool):
            return value if t.is_boolean(kind) else None
        if t.is_floating(kind):
            return float(value) if isinstance(value, int | Decimal) else None
        if t.is_decimal(kind):
            return _decimal(value, kind.precision, kind.scale)
        if t.is_integer(kind):
            fits = isinstance(value, int) and -(1 << kind.bit_width - 1) <= value
            return value if fits and cast(int, value) < 1 << kind.bit_width - 1 else None
        if not isinstance(value, str):
            return None
        if t.is_date(kind):
            return date.fromisoformat(value[:10])
        if t.is_timestamp(kind):
            time = datetime.fromisoformat(value)
            if kind.tz is None:
                return time.replace(tzinfo=None)
            return time if time.tzinfo is not None else None  # the instant depends on the zone
    except (ValueError, ArithmeticError):
        return None
    return value if t.is_string(kind) else None


def _decimal(value: object, precision: int, scale: int) -> Decimal | None:
    """Return a statistic as a decimal of the type; None where the type can't hold it exactly.

    Raises ArithmeticError for a text that isn't a number.
    """
    if not isinstance(value, int | Decimal | str):
        return None
    exact = Decimal(value).quantize(Decimal(1).scaleb(-scale), context=_WIDE)
    return exact if exact == Decimal(value) and len(exact.as_tuple().digits) <= precision else None


def are_partitions_known(
    maps: pa.ChunkedArray, schema: Struct, partition_columns: Sequence[str]
) -> bool:
    """Return whether each partition text is the same value for all readers: no timestamp without a
    zone.
    """
    fields = [item for name in partition_columns if (item := schema.find(name)) is not None]
    return not any(
        has_local_times(pc.map_lookup(maps, item.physical_name, "first"), item.type)
        for item in fields
        if item.type == Primitive("timestamp")
    )


def partition_values_parsed(
    maps: pa.ChunkedArray, schema: Struct, partition_columns: Sequence[str]
) -> pa.StructArray | None:
    """Return the partition values of each row, typed; None when the table isn't partitioned.

    Physical names. Raises CorruptTable when a text is no value of its column's type.
    """
    fields: list[pa.Field] = []
    columns: list[pa.Array] = []
    for name in partition_columns:
        item = schema.find(name)
        if item is not None:
            texts = pc.map_lookup(maps, item.physical_name, "first")
            values = parse_column(texts, item.type)
            columns.append(values)
            fields.append(pa.field(item.physical_name, values.type))
    return pa.StructArray.from_arrays(columns, fields=fields) if columns else None
