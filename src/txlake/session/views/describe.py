"""The results of statements that inspect a table, with the columns of Spark and Delta.

DESCRIBE [EXTENDED], DESCRIBE HISTORY and DETAIL, SHOW TBLPROPERTIES, COLUMNS, PARTITIONS and CREATE
TABLE. Results are plain values, from which the session makes DataFrames.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

import pyarrow as pa

from txlake.commit.history import HISTORY_SCHEMA, HistoryRow
from txlake.commit.membership import DOMAIN
from txlake.commit.table_log import TableLog
from txlake.ddl.keys import keys_of
from txlake.ddl.stored_expressions import CURRENT_DEFAULT, GENERATION
from txlake.ddl.table_metadata import INTERNAL_PROPERTIES
from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.protocol.clustering import clustered_by
from txlake.protocol.features import CATALOG_FEATURE, supported_features
from txlake.protocol.identity import identity_of
from txlake.protocol.partition_values import PartitionScalar, parse_value
from txlake.protocol.properties import KEY_PREFIX
from txlake.protocol.schema_rules import column_text
from txlake.protocol.times import FarTime, micros_of
from txlake.protocol.type_text import (
    COMMENT,
    declared_type,
    quoted_name,
    quoted_text,
    short_text,
    sql_text,
)
from txlake.protocol.types import (
    Array,
    Field,
    Map,
    Primitive,
    Struct,
    from_arrow_schema,
    to_arrow_schema,
)
from txlake.sql.statements import (
    DescribeDetail,
    DescribeHistory,
    DescribeTable,
    ShowColumns,
    ShowCreateTable,
    ShowPartitions,
    ShowProperties,
)

_CLUSTERED = "clusteringColumns"  # a property in results only, as in Delta Spark
_TEXT = Primitive("string")
_TEXTS = Array(_TEXT)
_DETAIL = (
    ("format", _TEXT),
    ("id", _TEXT),
    ("name", _TEXT),
    ("description", _TEXT),
    ("location", _TEXT),
    ("createdAt", Primitive("timestamp")),
    ("lastModified", Primitive("timestamp")),
    ("partitionColumns", _TEXTS),
    ("clusteringColumns", _TEXTS),
    ("numFiles", Primitive("long")),
    ("sizeInBytes", Primitive("long")),
    ("properties", Map(_TEXT, _TEXT)),
    ("minReaderVersion", Primitive("integer")),
    ("minWriterVersion", Primitive("integer")),
    ("tableFeatures", _TEXTS),
)

Inspection = (
    DescribeTable
    | DescribeHistory
    | DescribeDetail
    | ShowProperties
    | ShowColumns
    | ShowPartitions
    | ShowCreateTable
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A statement's result: its columns, and a tuple for each row.

    Structs are tuples, maps dictionaries, arrays lists; timestamps are datetimes in UTC.
    """

    schema: Struct
    rows: Sequence[tuple[object, ...]]

    def table(self) -> pa.Table:
        """Return the result as an Arrow table, with the types that Delta's have in Arrow."""
        schema = to_arrow_schema(self.schema)
        columns = zip(*self.rows) if self.rows else ((),) * len(schema)
        return pa.Table.from_arrays(
            [pa.array(values, item.type) for values, item in zip(columns, schema)], schema=schema
        )


def describe(
    statement: Inspection, table: Snapshot, log: TableLog, *, is_managed: bool = False
) -> Rows:
    """Return the result of a statement that inspects one table.

    `is_managed`: the lake chose the table's location. Raises InvalidRequest for the partitions of
    an unpartitioned table, and for an unknown or nested column.
    """
    location = log.store.url
    match statement:
        case DescribeHistory(limit=limit):
            return history(log.history(limit))
        case DescribeDetail():
            return detail(table, location=location)
        case ShowProperties(key=key):
            return properties(table, key)
        case ShowColumns():
            return Rows(schema=_texts("col_name"), rows=[(item.name,) for item in table.schema])
        case ShowPartitions():
            return partitions(table)
        case ShowCreateTable():
            text = create_statement(table, location=location, is_managed=is_managed)
            return Rows(schema=_texts("createtab_stmt"), rows=[(text,)])
        case DescribeTable(column=None, extended=extended):
            return columns(table, location=location if extended else None)
        case DescribeTable(column=column):
            assert column is not None
            return describe_column(table, column)
        case _:
            assert_never(statement)


def history(rows: Sequence[HistoryRow]) -> Rows:
    """Return the result of DESCRIBE HISTORY for rows of `commit.history`."""
    schema = from_arrow_schema(HISTORY_SCHEMA)
    return Rows(
        schema=schema,
        rows=[tuple(_history_value(row[item.name], item) for item in schema) for row in rows],
    )


def _history_value(value: object, item: Field) -> object:
    """Return a value of a history row: milliseconds as a datetime in UTC, a mapping as a tuple."""
    if item.name == "timestamp":
        assert isinstance(value, int)
        return utc_time(value)
    if isinstance(item.type, Struct) and isinstance(value, Mapping):
        return tuple(value.get(name) for name in item.type.names)
    return value


def utc_time(milliseconds: int) -> datetime.datetime:
    """Return a time, in milliseconds since the epoch, as a datetime in UTC."""
    # Not fromtimestamp: binary fractions would round microseconds.
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return epoch + datetime.timedelta(milliseconds=milliseconds)


def detail(table: Snapshot, *, location: str) -> Rows:
    """Return the result of DESCRIBE DETAIL: one row with Delta Spark's columns.

    `name` is None for a path table.
    """
    metadata, protocol = table.metadata, table.protocol
    clustered = clustered_by(table.schema, table.domains, table=table.table)
    sizes = table.files.columns("size")["size"].to_pylist()
    row = (
        "delta",
        metadata.id,
        None if table.table == location else table.table,
        metadata.description,
        location,
        None if metadata.created_time is None else utc_time(metadata.created_time),
        utc_time(table.timestamp_ms),
        list(table.partition_columns),
        [column_text(path) for path in clustered],
        len(sizes),
        sum(sizes),
        dict(metadata.configuration),
        protocol.min_reader_version,
        protocol.min_writer_version,
        sorted(supported_features(protocol)),
    )
    schema = Struct(tuple(Field(name, kind) for name, kind in _DETAIL))
    return Rows(schema=schema, rows=[row])


def all_properties(table: Snapshot) -> dict[str, str]:
    """Return the table's properties and those implied by its protocol, sorted by key.

    The clustering columns are among them, as JSON, as in Delta Spark.
    """
    protocol = table.protocol
    features = (*(protocol.reader_features or ()), *(protocol.writer_features or ()))
    merged = {
        **table.metadata.configuration,
        **{f"delta.feature.{name}": "supported" for name in features},
        "delta.minReaderVersion": str(protocol.min_reader_version),
        "delta.minWriterVersion": str(protocol.min_writer_version),
    }
    clustered = clustered_by(table.schema, table.domains, table=table.table)
    if clustered:
        merged[_CLUSTERED] = json.dumps(clustered, separators=(",", ":"), ensure_ascii=False)
    return dict(sorted(merged.items()))


def properties(table: Snapshot, key: str | None) -> Rows:
    """Return the result of SHOW TBLPROPERTIES, for all keys, or for `key`.

    As in Spark the value of a missing key is a text that says so.
    """
    pairs = all_properties(table)
    if key is not None:
        pairs = {key: pairs.get(key, f"Table {table.table} does not have property: {key}")}
    return Rows(schema=_texts("key", "value"), rows=list(pairs.items()))


def partitions(table: Snapshot) -> Rows:
    """Return the result of SHOW PARTITIONS: typed partition columns, a row for each partition.

    The rows are sorted, null before any value. Raises InvalidRequest for an unpartitioned table.
    """
    if not table.partition_columns:
        raise InvalidRequest(
            f"{table.table}: SHOW PARTITIONS needs a partitioned table, and this one isn't"
        )
    fields = _partition_fields(table)
    texts = {
        tuple(dict(pairs).get(item.physical_name) for item in fields)
        for pairs in table.files.columns("partition_values")["partition_values"].to_pylist()
    }
    values = {
        tuple(parse_value(text, item.type) for text, item in zip(row, fields, strict=True))
        for row in texts
    }
    rows = sorted(values, key=lambda row: [(value is not None, _sort_key(value)) for value in row])
    schema = Struct(tuple(Field(item.name, item.type) for item in fields))
    return Rows(schema=schema, rows=rows)


def _sort_key(value: PartitionScalar) -> object:
    return micros_of(value) if isinstance(value, datetime.datetime | FarTime) else value


def _partition_fields(table: Snapshot) -> list[Field]:
    return [item for name in table.partition_columns if (item := table.schema.find(name))]


def columns(table: Snapshot, *, location: str | None = None) -> Rows:
    """Return the result of DESCRIBE: columns, partitioning and clustering.

    With a location, as DESCRIBE EXTENDED, also the table's details, its keys and defaults.
    """
    rows: list[tuple[object, ...]] = [_column_row(item) for item in table.schema]
    heading = ("# col_name", "data_type", "comment")
    if table.partition_columns:
        rows += [("# Partition Information", "", ""), heading]
        rows += [
            _column_row(item)
            for name in table.partition_columns
            if (item := table.schema.find(name))
        ]
    clustered = clustered_by(table.schema, table.domains, table=table.table)
    if clustered:
        rows += [("# Clustering Information", "", ""), heading]
        for path in clustered:
            item = table.schema.resolve(path)
            if item is not None:
                rows.append((column_text(path), *_column_row(item)[1:]))
    if location is not None:
        rows += _details(table, location)
    schema = Struct(
        (Field("col_name", _TEXT, False), Field("data_type", _TEXT, False), Field("comment", _TEXT))
    )
    return Rows(schema=schema, rows=rows)


def _column_row(item: Field) -> tuple[object, ...]:
    """Return a column's name, type and comment (None without one)."""
    return (item.name, short_text(declared_type(item)), item.metadata.get(COMMENT))


def _details(table: Snapshot, location: str) -> Iterator[tuple[object, ...]]:
    """Yield the rows that DESCRIBE EXTENDED adds: the table's details, its keys, its defaults."""
    pairs = ",".join(f"{key}={value}" for key, value in all_properties(table).items())
    yield ("", "", "")
    yield ("# Detailed Table Information", "", "")
    yield ("Name", table.table, "")
    if table.metadata.description is not None:
        yield ("Comment", table.metadata.description, "")
    yield ("Location", location, "")
    yield ("Provider", "delta", "")
    yield ("Table Properties", f"[{pairs}]", "")
    keys = keys_of(table.metadata.configuration)
    if keys:
        yield ("", "", "")
        yield ("# Constraints", "", "")
        yield from ((key.name, key.text, "") for key in keys)
    defaults = [
        (item.name, short_text(declared_type(item)), item.metadata[CURRENT_DEFAULT])
        for item in table.schema
        if CURRENT_DEFAULT in item.metadata
    ]
    if defaults:
        yield ("", "", "")
        yield ("# Column Default Values", "", "")
        yield from defaults


def describe_column(table: Snapshot, path: tuple[str, ...]) -> Rows:
    """Return the result of DESCRIBE for one column: name, type and comment.

    Raises InvalidRequest for an unknown or nested column.
    """
    if len(path) > 1:
        raise InvalidRequest(
            f"{table.table}: DESCRIBE takes a top-level column, found {column_text(path)}"
        )
    item = table.schema.find(path[0])
    if item is None:
        names = ", ".join(quoted_name(name) for name in table.schema.names)
        raise InvalidRequest(
            f"{table.table}: there is no column {column_text(path)}; there are: {names}"
        )
    name, kind, comment = _column_row(item)
    rows = [("col_name", name), ("data_type", kind), ("comment", comment or "NULL")]
    return Rows(schema=_texts("info_name", "info_value"), rows=rows)


def create_statement(table: Snapshot, *, location: str, is_managed: bool = False) -> str:
    """Return a CREATE TABLE statement for a table with the same definition, without its rows.

    As in Spark, the statement has the table's location, unless the lake chose that (`is_managed`).
    """
    path_table = table.table == location
    name = f"delta.{'`' + location.replace('`', '``') + '`'}" if path_table else table.table
    lines = [f"CREATE TABLE {name} ("]
    elements = [f"  {_definition(item, table.table)}" for item in table.schema]
    for key in keys_of(table.metadata.configuration):
        elements.append(f"  CONSTRAINT {quoted_name(key.name)} {key.text}")
    lines.append(",\n".join(elements) + ")")
    lines.append("USING delta")
    if table.partition_columns:
        lines.append(f"PARTITIONED BY ({', '.join(map(quoted_name, table.partition_columns))})")
    clustered = clustered_by(table.schema, table.domains, table=table.table)
    if clustered:
        lines.append(f"CLUSTER BY ({', '.join(map(column_text, clustered))})")
    if table.metadata.description is not None:
        lines.append(f"COMMENT {quoted_text(table.metadata.description)}")
    if not path_table and not is_managed:
        lines.append(f"LOCATION {quoted_text(location)}")
    internal = {*INTERNAL_PROPERTIES, _CLUSTERED, f"delta.feature.{CATALOG_FEATURE}"}
    if set(table.domains) == {DOMAIN}:  # the catalog added the feature
        internal.add("delta.feature.domainMetadata")
    pairs = (
        f"  {quoted_text(key)} = {quoted_text(value)}"
        for key, value in all_properties(table).items()
        if key not in internal and not key.startswith(KEY_PREFIX)
    )
    lines.append("TBLPROPERTIES (\n" + ",\n".join(pairs) + ")")
    return "\n".join(lines)


def _definition(item: Field, table: str) -> str:
    """Return a column's definition for CREATE TABLE. `table` names the table in errors."""
    parts = [quoted_name(item.name), sql_text(declared_type(item))]
    if not item.nullable:
        parts.append("NOT NULL")
    generation = item.metadata.get(GENERATION)
    if isinstance(generation, str):
        parts.append(f"GENERATED ALWAYS AS ({generation})")
    identity = identity_of(item, table)
    if identity is not None:
        kind = "BY DEFAULT" if identity.allows_explicit else "ALWAYS"
        parts.append(
            f"GENERATED {kind} AS IDENTITY (START WITH {identity.start} "
            f"INCREMENT BY {identity.step})"
        )
    default = item.metadata.get(CURRENT_DEFAULT)
    if isinstance(default, str):
        parts.append(f"DEFAULT {default}")
    comment = item.metadata.get(COMMENT)
    if isinstance(comment, str):
        parts.append(f"COMMENT {quoted_text(comment)}")
    return " ".join(parts)


def _texts(*names: str) -> Struct:
    return Struct(tuple(Field(name, _TEXT, False) for name in names))
