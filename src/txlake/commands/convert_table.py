"""CONVERT TO DELTA of a Parquet table of Spark's own catalog, which gets its name in the lake.

Spark's entry stays as it is. Which files are the table's, and of which partition, is what Spark
says; footers are read on the driver, as for a folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from txlake.commands.convert import (
    ParquetFile,
    converted,
    features_of,
    partition_fields,
    partition_value,
    read_files,
)
from txlake.commands.tables import adopted, environment_of, place, register
from txlake.conflict.locking import LockMode
from txlake.ddl.environment import Environment
from txlake.ddl.stored_expressions import CURRENT_DEFAULT
from txlake.ddl.table_metadata import new_table
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
from txlake.statements import ConvertTable, TableName, quoted
from txlake.transaction.change import Change

_SPARK_CATALOG = "spark_catalog"
# What rows of files that lack the column have in Spark.
_OLD_DEFAULT = "EXISTS_DEFAULT"


def convert(context: Context, statement: ConvertTable) -> None:
    """CONVERT TO DELTA of a Parquet table of Spark's own catalog; a table of the lake stays one."""
    table = statement.table
    if context.exists(context.find(table)):
        return
    owner, name = context.engine.qualified(table, context.database)
    known = parquet_table(context.spark, TableName((_SPARK_CATALOG, owner, name)))
    if context.engine.catalog.of_lake().database(owner) is None:
        raise InvalidRequest(
            f"{table}: the lake has no database {owner!r} for the table's name: CREATE DATABASE "
            f"{owner} makes it. Or CONVERT TO DELTA parquet.`{known.location}`, and then CREATE "
            f"TABLE another_name LOCATION '{known.location}'"
        )
    handle = place(context, table, known.location)
    if context.exists(handle):
        adopted(context, handle, managed=False)  # its files were converted before
        return
    change = of_table(
        statement, known, handle.store, environment_of(context), time_zone=context.zone()
    )
    context.transaction.stage(handle, change)
    register(context, handle, change.operation)


def of_table(
    statement: ConvertTable,
    known: ParquetTable,
    store: Store,
    environment: Environment,
    *,
    time_zone: TimeZone = UTC_ZONE,
) -> Change:
    """The change that makes a Delta table of a Parquet table of Spark's own catalog.

    Its schema, partitions, properties and comment are the catalog's, its files those that Spark
    reads for it.

    Args:
        known: what the catalog says of it.
        store: its folder.

    Raises as `convert.convert`; InvalidRequest also for PARTITIONED BY that isn't the catalog's,
    and for a file whose columns aren't of the catalog's types; UnsupportedFeature for collations.
    """
    table = str(statement.table)
    schema = _with_defaults(
        as_table_schema(Struct(tuple(stored_field(item) for item in known.schema))), known.schema
    )
    collated = collated_columns(known.schema)
    if collated:
        raise UnsupportedFeature(
            f"{table}: {', '.join(collated)} has a collation, which txlake doesn't write; CREATE "
            "TABLE ... AS SELECT makes a table of plain texts"
        )
    partitions = tuple(_field(schema, name) for name in known.partition_by)
    asked = partition_fields(statement.partition_columns, table)
    if asked and _folded(asked) != _folded(partitions):
        raise InvalidRequest(
            f"{table}: PARTITIONED BY ({_columns_text(asked)}) isn't what Spark's catalog says, "
            f"({_columns_text(partitions)}); leave it out"
        )
    there = {found.path: found for found in store.list("")}
    for path in known.files.keys() - there.keys():
        raise InvalidRequest(f"{table}: {store.url}/{encode_path(path)} isn't there any more")
    values = [
        [
            (item.name, partition_value(text, item, path, table, time_zone))
            for item, (_, text) in zip(partitions, texts, strict=True)
        ]
        for path, texts in known.files.items()
    ]
    files = read_files(store, [there[path] for path in known.files])
    names = tuple(item.name for item in partitions)
    schema = _spelled_as_in(files, schema, names, table)
    old = {
        item.name: before.metadata[_OLD_DEFAULT]
        for item, before in zip(schema, known.schema, strict=True)
        if before.metadata.get(_OLD_DEFAULT, "NULL") != "NULL"
    }
    for file in files:
        _check_fits(file, schema, names, old, table)
    try:
        definition = new_table(
            schema,
            environment,
            table=table,
            partition_by=names,
            properties=known.properties,
            description=known.comment,
            features=features_of(schema, files),
        )
    except InvalidRequest as error:
        raise InvalidRequest(f"{error}; it is so in Spark's catalog: change it there") from error
    return converted(
        definition,
        files,
        values,
        schema,
        names,
        statistics=statement.statistics,
        source={"catalogTable": ".".join(quoted(one, always=True) for one in known.name.parts)},
    )


def _field(schema: Struct, name: str) -> Field:
    found = schema.find(name)
    assert found is not None, (schema, name)
    return found


def _folded(fields: Iterable[Field]) -> list[tuple[str, DataType]]:
    return [(item.name.lower(), item.type) for item in fields]


def _columns_text(fields: Iterable[Field]) -> str:
    return ", ".join(f"{item.name} {short_text(item.type)}" for item in fields)


def _spelled_as_in(
    files: list[ParquetFile], schema: Struct, partitions: tuple[str, ...], table: str
) -> Struct:
    """The catalog's schema with the letter case that the files have: Hive forgets it."""
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
    old: Mapping[str, object],
    table: str,
) -> None:
    """Raises InvalidRequest for a file that isn't read as the catalog's schema has it.

    `old`: what Spark gives for a column that a file lacks, where that isn't NULL.
    """
    where = f"{table}: {file.stored.path}"
    for item in schema:
        if item.name in partitions:
            continue
        found = file.schema.find(item.name)
        if found is not None:
            _check_declared(found.type, item.type, (item.name,), where)
        elif item.name in old:
            raise InvalidRequest(
                f"{where} hasn't column {item.name!r}, whose default value {old[item.name]} its "
                "rows have in Spark: rewrite the file with it"
            )


def _check_declared(found: DataType, declared: DataType, path: Path, file: str) -> None:
    match found, declared:
        case Struct(fields), Struct(known):
            names = [item.name for item in known]
            for item in fields:
                if item.name not in names:
                    raise InvalidRequest(
                        f"{file}: column {column_text((*path, item.name))} isn't in the table's "
                        "schema in Spark's catalog; rewrite the file without it"
                    )
                _check_declared(
                    item.type, known[names.index(item.name)].type, (*path, item.name), file
                )
        case Array(), Array():
            _check_declared(found.element, declared.element, (*path, "element"), file)
        case Map(), Map():
            _check_declared(found.key, declared.key, (*path, "key"), file)
            _check_declared(found.value, declared.value, (*path, "value"), file)
        case _ if found != declared and found != Primitive("void"):
            raise InvalidRequest(
                f"{file}: column {column_text(path)} has type {short_text(found)}, in Spark's "
                f"catalog {short_text(declared)}; rewrite the file with that type"
            )


def _with_defaults(schema: Struct, declared: Struct) -> Struct:
    """The schema with the catalog's default values."""
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
