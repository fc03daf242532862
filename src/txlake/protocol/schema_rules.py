"""The rules for every schema of a Delta table: names, duplicates, partition columns.

Source: PROTOCOL.md, "Schema Serialization Format" and "Partition Value Serialization"; the
restrictions on names are Parquet's and Delta's, lifted by column mapping.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from txlake.errors import InvalidRequest
from txlake.protocol.type_text import quoted_name, short_text
from txlake.protocol.types import Array, DataType, Map, Primitive, Struct

Path = tuple[str, ...]

_FORBIDDEN = " ,;{}()\n\t="
_UNPARTITIONABLE = ("void", "variant")


def column_text(path: Sequence[str]) -> str:
    """Return a column's path as SQL writes it."""
    return ".".join(quoted_name(part) for part in path)


def validate_schema(
    schema: Struct,
    partition_columns: Sequence[str],
    *,
    mapped: bool = False,
    known: Collection[str] = (),
) -> None:
    """Raise InvalidRequest unless a table can have this schema.

    Args:
        schema: the table's schema.
        partition_columns: as `metaData.partitionColumns` holds them.
        mapped: whether the table has column mapping, which lifts the restrictions on names.
        known: names that the table has already, which are accepted as they are.

    Raises:
        InvalidRequest: a column twice (letter case doesn't count), a name that files can't hold, a
            partition column that doesn't exist, is nested, twice or of a type without a text form,
            or no column beside the partition columns.
    """
    check_duplicates(schema, "the table's schema")
    _check_names(schema, (), None if mapped else known)
    seen: set[str] = set()
    for name in partition_columns:
        column = schema.find(name)
        if column is None or (column.name != name and name.lower() not in seen):
            known = ", ".join(quoted_name(item.name) for item in schema)
            raise InvalidRequest(
                f"partition column {quoted_name(name)} isn't a column of the table; "
                f"its columns: {known}"
            )
        if name.lower() in seen:
            raise InvalidRequest(f"partition column {quoted_name(name)} is named twice")
        seen.add(name.lower())
        if not isinstance(column.type, Primitive) or column.type.name in _UNPARTITIONABLE:
            raise InvalidRequest(
                f"column {quoted_name(name)} of type {short_text(column.type)} can't be a "
                "partition column; partition by columns of plain types"
            )
    if schema.fields and len(seen) == len(schema.fields):
        raise InvalidRequest(
            "all columns are partition columns; a table needs at least one that isn't"
        )


def _check_names(data_type: DataType, path: Path, known: Collection[str] | None) -> None:
    """Check the names of all fields except `known` ones; None accepts any but an empty name.

    Raises InvalidRequest naming the column.
    """
    match data_type:
        case Primitive():
            return
        case Array(element, _):
            _check_names(element, (*path, "element"), known)
        case Map(key, value, _):
            _check_names(key, (*path, "key"), known)
            _check_names(value, (*path, "value"), known)
        case Struct(fields):
            for item in fields:
                _check_name(item.name, path, known)
                _check_names(item.type, (*path, item.name), known)


def _check_name(name: str, path: Path, known: Collection[str] | None) -> None:
    """Raise InvalidRequest for an empty name, and for one with a character that files can't hold.

    Names in `known` may have any character; with None all may.
    """
    if not name:
        raise InvalidRequest(f"a column of {column_text(path) or 'the table'} has an empty name")
    bad = next((sign for sign in _FORBIDDEN if sign in name), None)
    if bad is not None and known is not None and name not in known:
        raise InvalidRequest(
            f"the name of column {column_text((*path, name))} contains {bad!r}; rename it, or "
            "set the table property delta.columnMapping.mode to 'name'"
        )


def check_duplicates(data_type: DataType, where: str, path: Path = ()) -> None:
    """Raise InvalidRequest if a struct has a name twice, in any letter case.

    `where` begins the message, which names the column.
    """
    match data_type:
        case Primitive():
            return
        case Array(element, _):
            check_duplicates(element, where, (*path, "element"))
        case Map(key, value, _):
            check_duplicates(key, where, (*path, "key"))
            check_duplicates(value, where, (*path, "value"))
        case Struct(fields):
            seen: set[str] = set()
            for item in fields:
                if item.name.lower() in seen:
                    raise InvalidRequest(
                        f"{where}: column {column_text((*path, item.name))} is there twice; "
                        "letter case doesn't tell columns apart"
                    )
                seen.add(item.name.lower())
                check_duplicates(item.type, where, (*path, item.name))
