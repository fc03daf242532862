"""CONVERT TO DELTA of a Parquet table of Spark's catalog, which becomes a named table of the lake.

The entry in Spark's catalog stays as it is. Spark lists the table's files and their partitions;
footers are read on the driver, as for a folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from txlake.commands.convert import (
    ParquetFile,
    conversion_change,
    partition_fields,
    partition_value,
    read_files,
    required_features,
)
from txlake.commands.placement import attach_if_unnamed, locate_target, register
from txlake.commands.tables import environment_of
from txlake.commit.change import Change
from txlake.conflict.locking import LockMode
from txlake.ddl.environment import Environment
from txlake.ddl.stored_expressions import CURRENT_DEFAULT
from txlake.ddl.table_metadata import new_table_actions
from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.log.time_zones import UTC_ZONE, TimeZone
from txlake.ports import Store
from txlake.protocol.collations import collated_columns
from txlake.protocol.paths import encode_path
from txlake.protocol.schema_change import as_table_schema
from txlake.protocol.schema_rules import Path, column_text
from txlake.protocol.type_text import short_text, stored_field
from txlake.protocol.types import Array, DataType, Field, Map, Primitive, Struct
from txlake.session.command import command, giving_nothing, its_table
from txlake.session.context import Context
from txlake.spark.catalog_tables import ParquetTable, parquet_table
from txlake.sql.statements import ConvertTable, TableName, quoted

_SPARK_CATALOG = "spark_catalog"
# The value that Spark reads for the column in files that lack it.
_OLD_DEFAULT = "EXISTS_DEFAULT"


def convert(context: Context, statement: ConvertTable) -> None:
    """Carry out CONVERT TO DELTA of a table of Spark's catalog.

    A table of the lake is left alone. A folder that was converted before is attached under the
    name. Raises InvalidRequest if the lake has no such database, as `parquet_table`, and as
    `convert_catalog_table`.
    """
    table = statement.table
    if context.tables.exists(context.tables.find(table)):
        return
    owner, name = context.tables.qualified(table)
    catalog_table = parquet_table(context.spark, TableName((_SPARK_CATALOG, owner, name)))
    if context.engine.catalog.of_lake().database(owner) is None:
        raise InvalidRequest(
            f"{table}: the lake has no database {owner!r} for the table's name: CREATE DATABASE "
            f"{owner} makes it. Or CONVERT TO DELTA parquet.`{catalog_table.location}`, and then "
            f"CREATE TABLE another_name LOCATION '{catalog_table.location}'"
        )
    handle = locate_target(context, table, catalog_table.location)
    if context.tables.exists(handle):
        attach_if_unnamed(context, handle, managed=False)  # its files were converted before
        return
    change = convert_catalog_table(
        statement, catalog_table, handle.store, environment_of(context), time_zone=context.zone()
    )
    context.transaction.stage(handle, change)
    register(context, handle, change.operation)


def convert_catalog_table(
    statement: ConvertTable,
    catalog_table: ParquetTable,
    store: Store,
    environment: Environment,
    *,
    time_zone: TimeZone = UTC_ZONE,
) -> Change:
    """Return the change that makes a Delta table of a Parquet table of Spark's catalog.

    Schema, partitions, properties and comment come from Spark's catalog; the files are the ones
    that Spark reads for the table.

    Args:
        catalog_table: the table's entry in Spark's catalog.
        store: the table's folder.
        time_zone: the zone of partition values that name none.

    Raises as `convert.convert_folder`; InvalidRequest also if PARTITIONED BY contradicts Spark's
    catalog, and for a file that is gone or whose columns have other types; UnsupportedFeature for
    collations.
    """
    table = str(statement.table)
    schema = _with_defaults(
        as_table_schema(Struct(tuple(stored_field(item) for item in catalog_table.schema))),
        catalog_table.schema,
    )
    collated = collated_columns(catalog_table.schema)
    if collated:
        raise UnsupportedFeature(
            f"{table}: {', '.join(collated)} has a collation, which txlake doesn't write; CREATE "
            "TABLE ... AS SELECT makes a table of plain texts"
        )
    partitions = tuple(_column(schema, name) for name in catalog_table.partition_by)
    stated = partition_fields(statement.partition_columns, table)
    if stated and _lower_case(stated) != _lower_case(partitions):
        raise InvalidRequest(
            f"{table}: PARTITIONED BY ({_columns_text(stated)}) isn't what Spark's catalog says, "
            f"({_columns_text(partitions)}); leave it out"
        )
    stored = {item.path: item for item in store.list("")}
    for path in catalog_table.files.keys() - stored.keys():
        raise InvalidRequest(f"{table}: {store.url}/{encode_path(path)} isn't there any more")
    values = [
        [
            (item.name, partition_value(text, item, path, table, time_zone))
            for item, (_, text) in zip(partitions, texts, strict=True)
        ]
        for path, texts in catalog_table.files.items()
    ]
    files = read_files(store, [stored[path] for path in catalog_table.files])
    names = tuple(item.name for item in partitions)
    schema = _with_file_spelling(files, schema, names, table)
    old_defaults = {
        item.name: before.metadata[_OLD_DEFAULT]
        for item, before in zip(schema, catalog_table.schema, strict=True)
        if before.metadata.get(_OLD_DEFAULT, "NULL") != "NULL"
    }
    for file in files:
        _check_fits(file, schema, names, old_defaults, table)
    try:
        definition = new_table_actions(
            schema,
            environment,
            table=table,
            partition_by=names,
            properties=catalog_table.properties,
            description=catalog_table.comment,
            features=required_features(schema, files),
        )
    except InvalidRequest as error:
        raise InvalidRequest(f"{error}; it is so in Spark's catalog: change it there") from error
    return conversion_change(
        definition,
        files,
        values,
        schema,
        names,
        statistics=statement.statistics,
        source={
            "catalogTable": ".".join(quoted(part, always=True) for part in catalog_table.name.parts)
        },
    )


def _column(schema: Struct, name: str) -> Field:
    """Return the column of a name that the schema is known to have."""
    column = schema.find(name)
    assert column is not None, (schema, name)
    return column


def _lower_case(fields: Iterable[Field]) -> list[tuple[str, DataType]]:
    return [(item.name.lower(), item.type) for item in fields]


def _columns_text(fields: Iterable[Field]) -> str:
    return ", ".join(f"{item.name} {short_text(item.type)}" for item in fields)


def _with_file_spelling(
    files: list[ParquetFile], schema: Struct, partitions: tuple[str, ...], table: str
) -> Struct:
    """Return the schema with column names in the files' letter case, which Hive doesn't keep.

    Raises InvalidRequest if the files spell a column differently.
    """
    spelled: dict[str, str] = {}
    for file in files:
        for item in file.schema:
            first = spelled.setdefault(item.name.lower(), item.name)
            if first != item.name and schema.find(item.name) is not None:
                raise InvalidRequest(
                    f"{table}: {file.stored.path} calls column {first!r} {item.name!r}; rewrite "
                    "the files with one name"
                )
    return Struct(
        tuple(
            item
            if item.name in partitions
            else replace(item, name=spelled.get(item.name.lower(), item.name))
            for item in schema
        )
    )


def _check_fits(
    file: ParquetFile,
    schema: Struct,
    partitions: tuple[str, ...],
    old_defaults: Mapping[str, object],
    table: str,
) -> None:
    """Raise InvalidRequest for a file that doesn't fit the schema in Spark's catalog.

    `old_defaults`: by column, the value other than NULL that Spark reads where a file lacks it.
    """
    file_label = f"{table}: {file.stored.path}"
    for item in schema:
        if item.name in partitions:
            continue
        column = file.schema.find(item.name)
        if column is not None:
            _check_declared_type(column.type, item.type, (item.name,), file_label)
        elif item.name in old_defaults:
            raise InvalidRequest(
                f"{file_label} hasn't column {item.name!r}, whose default value "
                f"{old_defaults[item.name]} its rows have in Spark: rewrite the file with it"
            )


def _check_declared_type(
    file_type: DataType, declared_type: DataType, path: Path, file: str
) -> None:
    """Raise InvalidRequest unless a file has the type that Spark's catalog declares.

    A file may lack fields of a struct; a column of type void fits any type.
    """
    match file_type, declared_type:
        case Struct(fields), Struct(declared_fields):
            names = [item.name for item in declared_fields]
            for item in fields:
                if item.name not in names:
                    raise InvalidRequest(
                        f"{file}: column {column_text((*path, item.name))} isn't in the table's "
                        "schema in Spark's catalog; rewrite the file without it"
                    )
                _check_declared_type(
                    item.type,
                    declared_fields[names.index(item.name)].type,
                    (*path, item.name),
                    file,
                )
        case Array(), Array():
            _check_declared_type(file_type.element, declared_type.element, (*path, "element"), file)
        case Map(), Map():
            _check_declared_type(file_type.key, declared_type.key, (*path, "key"), file)
            _check_declared_type(file_type.value, declared_type.value, (*path, "value"), file)
        case _ if file_type != declared_type and file_type != Primitive("void"):
            raise InvalidRequest(
                f"{file}: column {column_text(path)} has type {short_text(file_type)}, in Spark's "
                f"catalog {short_text(declared_type)}; rewrite the file with that type"
            )


def _with_defaults(schema: Struct, declared: Struct) -> Struct:
    """Return the schema with the column defaults of Spark's catalog."""
    return Struct(
        tuple(
            replace(
                item, metadata={**item.metadata, CURRENT_DEFAULT: old.metadata[CURRENT_DEFAULT]}
            )
            if CURRENT_DEFAULT in old.metadata
            else item
            for item, old in zip(schema, declared, strict=True)
        )
    )


COMMANDS = dict((command(ConvertTable, giving_nothing(convert), its_table(LockMode.SCH_M)),))
