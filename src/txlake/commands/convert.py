"""CONVERT TO DELTA: turn a folder of Parquet files into a table in place.

Reads file names and footers only, on the driver. Source: PROTOCOL.md, "Add File and Remove File",
"Per-file Statistics", "Partition Value Serialization".
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from txlake.commit.change import Change
from txlake.datafiles.footers import read_footer, statistics_of
from txlake.datafiles.parquet import is_shredded
from txlake.ddl.environment import Environment
from txlake.ddl.operations import as_json
from txlake.ddl.table_metadata import new_table_actions
from txlake.errors import CorruptTable, InvalidRequest
from txlake.log.time_zones import UTC_ZONE, TimeZone
from txlake.ports import Store, StoredObject
from txlake.protocol.actions import Action, Add
from txlake.protocol.partition_values import format_value, local_time, parse_value
from txlake.protocol.paths import encode_path, unescape_partition
from txlake.protocol.schema_change import as_table_schema, merge_schemas
from txlake.protocol.schema_rules import Path, check_duplicates, column_text
from txlake.protocol.statistics import FileStatistics
from txlake.protocol.table_properties import TableProperties
from txlake.protocol.times import time_text
from txlake.protocol.type_text import parse_type, short_text, stored_field
from txlake.protocol.types import (
    Array,
    DataType,
    Field,
    Map,
    Primitive,
    Struct,
    from_arrow_schema,
    has_variant,
    type_from_json,
)
from txlake.sql.statements import ConvertToDelta

_THREADS = 16
_SHREDDING = ("variantShredding",)
# Spark's own schema of a file, with types that Parquet has no name for.
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"


def convert_folder(
    statement: ConvertToDelta,
    store: Store,
    environment: Environment,
    *,
    time_zone: TimeZone = UTC_ZONE,
) -> Change:
    """Return the change that makes a Delta table of the Parquet files below a store's root.

    Args:
        statement: partition columns with their types, and whether statistics are collected.
        store: the folder.
        environment: time and ids.
        time_zone: the zone of timestamps in folder names that name none.

    Raises:
        InvalidRequest: no files, a file that isn't Parquet, schemas that can't be merged, or
            folder names without the partition columns; the message names the file.
        Unavailable: the store can't be reached.
    """
    place = store.url
    partitions = partition_fields(statement.partition_columns, place)
    parquet_files = [stored for stored in store.list("") if not _is_hidden(stored.path)]
    if not parquet_files:
        raise InvalidRequest(f"{place}: there are no Parquet files to convert")
    values = [
        _partition_values(stored.path, partitions, place, time_zone) for stored in parquet_files
    ]
    files = read_files(store, parquet_files)
    schema = _with_partitions(_merged_schema(files, place), partitions)
    names = tuple(item.name for item in partitions)
    definition = new_table_actions(
        schema,
        environment,
        table=place,
        partition_by=names,
        features=required_features(schema, files),
    )
    return conversion_change(
        definition, files, values, schema, names, statistics=statement.statistics, source={}
    )


def read_files(store: Store, objects: Iterable[StoredObject]) -> list[ParquetFile]:
    """Read the footers of files, in order. Raises InvalidRequest for a file that isn't Parquet."""
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda stored: _read_parquet_file(store, stored), objects))


def required_features(schema: Struct, files: Iterable[ParquetFile]) -> tuple[str, ...]:
    """Return the table features that the files need and the schema doesn't show.

    That is variantShredding for a shredded VARIANT, else none.
    """
    if not has_variant(schema):
        return ()
    fields = (item for file in files for item in file.footer.schema.to_arrow_schema())
    return _SHREDDING if any(is_shredded(item.type) for item in fields) else ()


def conversion_change(
    definition: tuple[Action, ...],
    files: list[ParquetFile],
    values: Sequence[Iterable[tuple[str, str | None]]],
    schema: Struct,
    partitions: tuple[str, ...],
    *,
    statistics: bool,
    source: Mapping[str, object],
) -> Change:
    """Return the change that adds existing Parquet files to a new table.

    Args:
        definition: the table's protocol and metadata.
        files: the files with their footers.
        values: each file's partition values, serialized, in the order of the files.
        schema: the table's schema, whose columns get statistics.
        statistics: whether the files get statistics.
        source: further operation parameters that say where the files come from.
    """
    properties = TableProperties()
    with_statistics = {item.name.lower() for item in schema} - {name.lower() for name in partitions}
    adds: list[Action] = [
        Add(
            path=encode_path(file.stored.path),
            partition_values=dict(texts),
            size=file.stored.size_bytes,
            modification_time=file.stored.modified_ms,
            data_change=True,
            stats=_statistics(file, with_statistics, properties) if statistics else None,
        )
        for file, texts in zip(files, values, strict=True)
    ]
    return Change(
        operation="CONVERT",
        parameters={
            "numFiles": len(adds),
            "partitionedBy": as_json(list(partitions)),
            "collectStats": statistics,
            **source,
            "sourceFormat": "parquet",
        },
        actions=(*definition, *adds),
        metrics={"numConvertedFiles": len(adds)},
    )


# --- names ---


def _is_hidden(path: str) -> bool:
    """Return whether Spark ignores a file.

    That is so if a part of its path starts with `.`, or with `_` and has no `=`.
    """
    return any(
        part.startswith(".") or (part.startswith("_") and "=" not in part)
        for part in path.split("/")
    )


def partition_fields(columns: Iterable[tuple[str, str]], place: str) -> tuple[Field, ...]:
    """Return the columns of PARTITIONED BY from their names and types.

    Raises InvalidRequest for a text that is no type, and for a name that occurs twice. `place`
    names the table in the message.
    """
    fields = tuple(stored_field(Field(name, parse_type(text))) for name, text in columns)
    check_duplicates(Struct(fields), f"{place}: PARTITIONED BY")
    return fields


def _partition_values(
    path: str, fields: tuple[Field, ...], place: str, time_zone: TimeZone
) -> Iterable[tuple[str, str | None]]:
    """Return (column, value) of the partition values in a file's path, serialized; None for null.

    Raises InvalidRequest if the folders aren't those of the partition columns, in their order.
    """
    folder_values = [
        (unescape_partition(name), unescape_partition(value))
        for folder in path.split("/")[:-1]
        for name, separator, value in [folder.partition("=")]
        if separator
    ]
    names = [name for name, _ in folder_values]
    if [str(name).lower() for name in names] != [item.name.lower() for item in fields]:
        raise InvalidRequest(
            f"{place}: PARTITIONED BY ({', '.join(item.name for item in fields)}) doesn't fit "
            f"{path}, whose folders say ({', '.join(map(str, names))}); give the columns of all "
            "folders in their order, with types"
        )
    return [
        (item.name, partition_value(text, item, path, place, time_zone))
        for item, (_, text) in zip(fields, folder_values, strict=True)
    ]


def partition_value(
    text: str | None, item: Field, path: str, place: str, zone: TimeZone
) -> str | None:
    """Return a folder name's partition value as the log serializes it; None for null.

    A timestamp without a zone is in `zone`. Raises InvalidRequest for a text that is no value of
    the column's type.
    """
    try:
        wall = local_time(text, item.type)
        if wall is not None:
            (instant,) = zone.instants([wall])
            if instant is None:
                raise ValueError(f"no time in the session's time zone, {zone.name}")
            return time_text(instant, zoned=True)
        return format_value(parse_value(text, item.type), item.type)
    except (CorruptTable, ValueError) as error:
        raise InvalidRequest(
            f"{place}: {path}: the folder says {item.name}={text}, which is no "
            f"{short_text(item.type)}"
        ) from error


def _with_partitions(schema: Struct, partitions: tuple[Field, ...]) -> Struct:
    """Return the schema with the partition columns.

    They come last; a partition column that the files hold too keeps its position and gets the
    declared type.
    """
    declared = {item.name.lower(): item for item in partitions}
    columns = [
        replace(declared.pop(item.name.lower()), name=item.name)
        if item.name.lower() in declared
        else item
        for item in schema
    ]
    return Struct((*columns, *declared.values()))


# --- footers ---


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """A Parquet file with its footer and its columns."""

    stored: StoredObject
    footer: pq.FileMetaData
    schema: Struct


def _read_parquet_file(store: Store, stored: StoredObject) -> ParquetFile:
    """Read a file's footer. Raises InvalidRequest for a file that isn't Parquet."""
    try:
        footer = read_footer(partial(store.get_range, stored.path), stored.size_bytes)
        return ParquetFile(stored, footer, _schema_of(footer))
    except (pa.ArrowException, ValueError, KeyError, TypeError) as error:
        raise InvalidRequest(
            f"{store.url}/{encode_path(stored.path)} can't be converted, it isn't a Parquet file "
            f"that a Delta table can hold: {error}"
        ) from error


def _schema_of(footer: pq.FileMetaData) -> Struct:
    """Return a file's columns: Spark's own schema in the footer, or else Parquet's.

    INT96 columns become timestamps.
    """
    written = (footer.metadata or {}).get(_SPARK_SCHEMA)
    if written is not None:
        spark_schema = type_from_json(json.loads(written))
        if isinstance(spark_schema, Struct):
            return as_table_schema(Struct(tuple(stored_field(item) for item in spark_schema)))
    schema = footer.schema.to_arrow_schema()
    old_times = any(
        footer.schema.column(i).physical_type == "INT96" for i in range(len(footer.schema))
    )
    if old_times:
        # INT96 is an instant; Arrow has no other sign of it than nanoseconds without a zone.
        schema = pa.schema([item.with_type(_as_instants(item.type)) for item in schema])
    return as_table_schema(from_arrow_schema(schema))


def _as_instants(data_type: pa.DataType) -> pa.DataType:
    """Return the type with INT96 timestamps, at any depth, as instants in microseconds."""
    if pa.types.is_timestamp(data_type) and data_type.unit == "ns" and data_type.tz is None:
        return pa.timestamp("us", "UTC")
    if pa.types.is_struct(data_type):
        members = (data_type.field(i) for i in range(data_type.num_fields))
        return pa.struct([item.with_type(_as_instants(item.type)) for item in members])
    if pa.types.is_list(data_type):
        item = data_type.value_field
        return pa.list_(item.with_type(_as_instants(item.type)))
    if pa.types.is_map(data_type):
        return pa.map_(
            _as_instants(data_type.key_type),
            data_type.item_field.with_type(_as_instants(data_type.item_type)),
        )
    return data_type


def _merged_schema(files: list[ParquetFile], place: str) -> Struct:
    """Return the schema of all files. Raises InvalidRequest if two differ in a column's type."""
    merged = files[0].schema
    for file in files[1:]:
        if file.schema == merged:
            continue
        try:
            merged = merge_schemas(merged, file.schema)
        except InvalidRequest as error:
            raise InvalidRequest(
                f"{place}: {file.stored.path} doesn't fit the files before it: {error}"
            ) from error
    for file in files:
        _check_same(file.schema, merged, (), f"{place}: {file.stored.path}")
    return merged


def _check_same(file_type: DataType, merged_type: DataType, path: Path, file: str) -> None:
    """Raise InvalidRequest unless a file has the merged types: files aren't rewritten.

    A file may lack columns and fields of structs; a column of type void fits any type.
    """
    match file_type, merged_type:
        case Struct(fields), Struct():
            for item in fields:
                merged_field = merged_type.find(item.name)
                assert merged_field is not None
                _check_same(item.type, merged_field.type, (*path, item.name), file)
        case Array(), Array():
            _check_same(file_type.element, merged_type.element, (*path, "element"), file)
        case Map(), Map():
            _check_same(file_type.key, merged_type.key, (*path, "key"), file)
            _check_same(file_type.value, merged_type.value, (*path, "value"), file)
        case _ if file_type != merged_type and file_type != Primitive("void"):
            raise InvalidRequest(
                f"{file}: column {column_text(path)} has type {short_text(file_type)}, in other "
                f"files {short_text(merged_type)}; rewrite the files with one type"
            )


def _statistics(file: ParquetFile, columns: Collection[str], properties: TableProperties) -> str:
    """Return a file's statistics of the columns with these names (lower case), as JSON.

    Only the number of rows if the footer's columns can't be matched with the schema.
    """
    footer = file.footer
    if _leaf_count(file.schema) != footer.num_columns:
        return FileStatistics(num_records=footer.num_rows).to_json()
    # A footer doesn't say whether there are NaNs, which come after its maximum.
    uncertain = list(_floating_columns(file.schema, ()))
    statistics = statistics_of(footer, file.schema, (), properties, uncertain)

    def selected(bounds: Mapping[str, object]) -> dict[str, object]:
        return {name: value for name, value in bounds.items() if name.lower() in columns}

    return replace(
        statistics,
        min_values=selected(statistics.min_values),
        max_values=selected(statistics.max_values),
        null_count=selected(statistics.null_count),
    ).to_json()


def _leaf_count(data_type: DataType) -> int:
    """Return the number of Parquet's columns that a type has."""
    match data_type:
        case Primitive(name):
            return {"void": 0, "variant": 2}.get(name, 1)
        case Struct(fields):
            return sum(_leaf_count(item.type) for item in fields)
        case Array(element, _):
            return _leaf_count(element)
        case Map(key, value, _):
            return _leaf_count(key) + _leaf_count(value)


def _floating_columns(data_type: DataType, path: Path) -> Iterator[Path]:
    """Yield the paths of the float and double columns, except in arrays and maps."""
    match data_type:
        case Struct(fields):
            for item in fields:
                yield from _floating_columns(item.type, (*path, item.name))
        case Primitive("float" | "double"):
            yield path
        case _:
            return
