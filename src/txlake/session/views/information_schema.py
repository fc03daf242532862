"""INFORMATION_SCHEMA, with Databricks' columns and constants.

Source: "SCHEMATA", "TABLES", "VIEWS" and "COLUMNS" of the Databricks SQL language manual, which
gives the constants of reserved columns. Columns that a lake has no value for (creators, owners) are
NULL.
"""

from __future__ import annotations

from collections.abc import Iterator

from txlake.ddl.stored_expressions import CURRENT_DEFAULT
from txlake.errors import CorruptTable
from txlake.protocol.identity import LONG_MAX, LONG_MIN, identity_of, is_identity
from txlake.protocol.type_text import COMMENT, declared_type, short_text
from txlake.protocol.types import Array, DataType, Field, Map, Primitive, Struct
from txlake.session.views.view import EntrySource, RowValues, utc_time, view

CATALOG = "spark_catalog"
"""The catalog's name in three-part names, for every lake."""

_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64, "float": 32, "double": 64}
_INTEGRAL = frozenset({"byte", "short", "integer", "long"})
_TIME_DIGITS = {"date": 0, "timestamp": 3, "timestamp_ntz": 3}


def _schemata(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each database."""
    for entry in entries.databases():
        yield {
            "catalog_name": CATALOG,
            "schema_name": entry.name,
            "comment": entry.comment,
            "created": utc_time(entry.created_ms),
        }


def _tables(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each table, then for each view."""
    for entry in entries.tables():
        yield {
            "table_catalog": CATALOG,
            "table_schema": entry.database,
            "table_name": entry.name,
            "table_type": "MANAGED" if entry.managed else "EXTERNAL",
            "is_insertable_into": "YES",
            "commit_action": "PRESERVE",
            "created": utc_time(entry.created_ms),
            "last_altered": utc_time(entry.modified_ms),
            "data_source_format": "DELTA",
            "storage_path": entry.location,
        }
    for view_entry in entries.views():
        yield {
            "table_catalog": CATALOG,
            "table_schema": view_entry.database,
            "table_name": view_entry.name,
            "table_type": "VIEW",
            "is_insertable_into": "NO",
            "commit_action": "PRESERVE",
            "comment": view_entry.comment,
            "created": utc_time(view_entry.created_ms),
            "last_altered": utc_time(view_entry.modified_ms),
        }


def _views(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each view."""
    for entry in entries.views():
        yield {
            "table_catalog": CATALOG,
            "table_schema": entry.database,
            "table_name": entry.name,
            "view_definition": entry.query,
            "check_option": "NONE",
            "is_updatable": "NO",
            "is_insertable_into": "NO",
            "is_materialized": False,
        }


def _columns(entries: EntrySource) -> Iterator[RowValues]:
    """Yield a row for each column of each table, whose log is read; none for views."""
    for table in entries.tables():
        layout = entries.layout(table)
        if layout is None:
            continue
        partitions = [name.lower() for name in layout.partition_columns]
        for position, item in enumerate(layout.schema, 1):
            kind = declared_type(item)
            folded = item.name.lower()
            yield {
                "table_catalog": CATALOG,
                "table_schema": table.database,
                "table_name": table.name,
                "column_name": item.name,
                "ordinal_position": position,
                "column_default": item.metadata.get(CURRENT_DEFAULT),
                "is_nullable": "YES" if item.nullable else "NO",
                "full_data_type": short_text(kind),
                "data_type": _simple_name(kind),
                **_numbers(kind),
                **_identity(item, table.name),
                "is_generated": "NEVER",
                "is_system_time_period_start": "NO",
                "is_system_time_period_end": "NO",
                "is_updatable": "YES",
                "partition_index": (partitions.index(folded) + 1 if folded in partitions else None),
                "comment": item.metadata.get(COMMENT),
            }


def _identity(item: Field, table: str) -> RowValues:
    """Return the values of the identity columns; a column with invalid metadata has only YES."""
    if not is_identity(item):
        return {"is_identity": "NO"}
    try:
        identity = identity_of(item, table)
    except CorruptTable:
        identity = None
    if identity is None:
        return {"is_identity": "YES"}  # the column's identity metadata is invalid
    return {
        "is_identity": "YES",
        "identity_generation": "BY DEFAULT" if identity.allows_explicit else "ALWAYS",
        "identity_start": str(identity.start),
        "identity_increment": str(identity.step),
        "identity_maximum": str(LONG_MAX),
        "identity_minimum": str(LONG_MIN),
        "identity_cycle": "NO",
    }


def _simple_name(kind: DataType) -> str:
    """Return a type's name without parameters and element types, in capitals: `DECIMAL`."""
    match kind:
        case Struct():
            return "STRUCT"
        case Array():
            return "ARRAY"
        case Map():
            return "MAP"
        case Primitive():
            return short_text(kind).partition("(")[0].upper()


def _numbers(kind: DataType) -> RowValues:
    """Return a type's precision, radix and scale in digits or bits; empty for nested types."""
    if not isinstance(kind, Primitive):
        return {}
    if kind.decimal is not None:
        precision, scale = kind.decimal
        return {
            "numeric_precision": precision,
            "numeric_precision_radix": 10,
            "numeric_scale": scale,
        }
    if kind.name in _BITS:
        return {
            "numeric_precision": _BITS[kind.name],
            "numeric_precision_radix": 2,
            "numeric_scale": 0 if kind.name in _INTEGRAL else None,
        }
    return {"datetime_precision": _TIME_DIGITS.get(kind.name)}


SCHEMATA = view(
    "SCHEMATA | Databricks on AWS",
    """
    catalog_name STRING, schema_name STRING, schema_owner STRING, comment STRING,
    created TIMESTAMP, created_by STRING, last_altered TIMESTAMP, last_altered_by STRING
    """,
    _schemata,
)
TABLES = view(
    "TABLES | Databricks on AWS",
    """
    table_catalog STRING, table_schema STRING, table_name STRING, table_type STRING,
    is_insertable_into STRING, commit_action STRING, table_owner STRING, comment STRING,
    created TIMESTAMP, created_by STRING, last_altered TIMESTAMP, last_altered_by STRING,
    data_source_format STRING, storage_sub_directory STRING, storage_path STRING
    """,
    _tables,
)
VIEWS = view(
    "VIEWS | Databricks on AWS",
    """
    table_catalog STRING, table_schema STRING, table_name STRING, view_definition STRING,
    check_option STRING, is_updatable STRING, is_insertable_into STRING, sql_path STRING,
    is_materialized BOOLEAN
    """,
    _views,
)
COLUMNS = view(
    "COLUMNS | Databricks on AWS",
    """
    table_catalog STRING, table_schema STRING, table_name STRING, column_name STRING,
    ordinal_position INT, column_default STRING, is_nullable STRING, full_data_type STRING,
    data_type STRING, character_maximum_length INT, character_octet_length STRING,
    numeric_precision INT, numeric_precision_radix INT, numeric_scale INT,
    datetime_precision INT, interval_type STRING, interval_precision INT,
    maximum_cardinality INT, is_identity STRING, identity_generation STRING,
    identity_start STRING, identity_increment STRING, identity_maximum STRING,
    identity_minimum STRING, identity_cycle STRING, is_generated STRING,
    generation_expression STRING, is_system_time_period_start STRING,
    is_system_time_period_end STRING, system_time_period_timestamp_generation STRING,
    is_updatable STRING, partition_index INT, comment STRING
    """,
    _columns,
)
