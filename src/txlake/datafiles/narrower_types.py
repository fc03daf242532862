"""Data files that hold narrower types than their table's schema, according to their footers.

Source: PROTOCOL.md, "Type Widening".
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from txlake.datafiles.parquet import find_field
from txlake.log.snapshot import Snapshot
from txlake.protocol.column_mapping import all_fields
from txlake.protocol.type_widening import TYPE_CHANGES
from txlake.protocol.types import Field, to_arrow_type


def widened_columns(snapshot: Snapshot) -> list[Field]:
    """Return the top-level columns whose type, or that of a nested field, was ever widened."""
    return [item for item in snapshot.schema if _is_widened(item)]


def _is_widened(item: Field) -> bool:
    nested = all_fields(item.type)
    return any(TYPE_CHANGES in field.metadata for field in (item, *nested))


def holds_narrower_types(footer: pq.FileMetaData, columns: list[Field], *, by_id: bool) -> bool:
    """Return whether a column has another type in a file than in the table's schema.

    A column that the file lacks doesn't count. True where the footer doesn't say, because Arrow has
    no such type or several names differ only in letter case.
    """
    try:
        fields = list(footer.schema.to_arrow_schema())
        return any(_differs(fields, item, by_id) for item in columns)
    except (pa.ArrowException, NotImplementedError, ValueError):
        return True


def _differs(fields: list[pa.Field], item: Field, by_id: bool) -> bool:
    """Return whether the file has the column, in another type. Raises ValueError as
    `find_field`.
    """
    identity = None if item.column_id is None else {"PARQUET:field_id": str(item.column_id)}
    expected_type = to_arrow_type(item.type, physical=True)
    expected = pa.field(item.physical_name, expected_type, True, identity)
    index = find_field(fields, expected, by_id)
    return index is not None and not _same(fields[index].type, expected.type)


def _same(actual: pa.DataType, expected: pa.DataType) -> bool:
    """Return whether two types are equal but for nullability; structs may lack fields, which are
    compared by name.
    """
    if pa.types.is_struct(expected):
        if not pa.types.is_struct(actual):
            return False
        types = {item.name: item.type for item in actual}
        return all(
            item.name not in types or _same(types[item.name], item.type) for item in expected
        )
    if pa.types.is_map(expected):
        return (
            pa.types.is_map(actual)
            and _same(actual.key_type, expected.key_type)
            and _same(actual.item_type, expected.item_type)
        )
    if pa.types.is_list(expected):
        return pa.types.is_list(actual) and _same(actual.value_type, expected.value_type)
    return bool(actual.equals(expected))
