"""The lake's names as the tables of Flight SQL's catalog commands.

The lake is one catalog, its databases are the schemas. It has no keys that other systems would
enforce. Source: Arrow's FlightSql.proto, the comments of the commands.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pyarrow as pa

from txlake.errors import TxlakeError
from txlake.protocol.type_text import short_text
from txlake.protocol.types import Primitive, Struct, to_arrow_type, type_from_json
from txlake.server.calls import ServedLake
from txlake.server.flight.arrow_stream import schema_bytes
from txlake.server.flight.messages import Message
from txlake.server.flight.sql_info import SQL_INFO, TYPE_INFO, sql_info, type_info
from txlake.session.session import Session
from txlake.sql.statements import TableName

_logger = logging.getLogger(__name__)
_KEY = "ARROW:FLIGHT:SQL:"
_TABLE, _VIEW = "TABLE", "VIEW"


def _texts(*names: str) -> pa.Schema:
    """Return columns of texts; those with `!` have no NULL."""
    return pa.schema(
        [pa.field(name.rstrip("!"), pa.string(), not name.endswith("!")) for name in names]
    )


_TABLES = _texts("catalog_name", "db_schema_name", "table_name!", "table_type!")
_FOREIGN_KEYS = pa.schema(
    [
        *_texts("pk_catalog_name", "pk_db_schema_name", "pk_table_name!", "pk_column_name!"),
        *_texts("fk_catalog_name", "fk_db_schema_name", "fk_table_name!", "fk_column_name!"),
        pa.field("key_sequence", pa.int32(), False),
        *_texts("fk_key_name", "pk_key_name"),
        pa.field("update_rule", pa.uint8(), False),
        pa.field("delete_rule", pa.uint8(), False),
    ]
)
_SCHEMAS = {
    "CommandGetCatalogs": _texts("catalog_name!"),
    "CommandGetDbSchemas": _texts("catalog_name", "db_schema_name!"),
    "CommandGetTableTypes": _texts("table_type!"),
    "CommandGetPrimaryKeys": pa.schema(
        [
            *_texts("catalog_name", "db_schema_name", "table_name!", "column_name!", "key_name"),
            pa.field("key_sequence", pa.int32(), False),
        ]
    ),
    "CommandGetExportedKeys": _FOREIGN_KEYS,
    "CommandGetImportedKeys": _FOREIGN_KEYS,
    "CommandGetCrossReference": _FOREIGN_KEYS,
    "CommandGetSqlInfo": SQL_INFO,
    "CommandGetXdbcTypeInfo": TYPE_INFO,
}


def metadata_schema(name: str, command: Message) -> pa.Schema | None:
    """Return the columns of a command's table; None for a command that isn't about metadata."""
    if name == "CommandGetTables":
        if not command.include_schema:
            return _TABLES
        return _TABLES.append(pa.field("table_schema", pa.binary(), False))
    return _SCHEMAS.get(name)


def metadata_table(served: ServedLake, session: Session, name: str, command: Message) -> pa.Table:
    """Return the table of a command that `metadata_schema` knows."""
    schema = metadata_schema(name, command)
    assert schema is not None
    if name == "CommandGetSqlInfo":
        return sql_info(list(command.info), served.limits)
    if name == "CommandGetXdbcTypeInfo":
        return type_info(command.data_type if command.HasField("data_type") else None)
    rows: list[tuple[object, ...]] = []
    if name == "CommandGetCatalogs":
        rows = [(served.catalog_name,)]
    elif name == "CommandGetTableTypes":
        rows = [(_TABLE,), (_VIEW,)]
    elif name == "CommandGetDbSchemas" and _is_catalog(served, command):
        rows = [(served.catalog_name, one) for one in _databases(session, command)]
    elif name == "CommandGetTables" and _is_catalog(served, command):
        rows = list(_tables(served.catalog_name, session, command))
    columns = zip(*rows) if rows else ((),) * len(schema)
    arrays = [pa.array(values, item.type) for values, item in zip(columns, schema)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _is_catalog(served: ServedLake, command: Message) -> bool:
    return not command.HasField("catalog") or command.catalog.lower() in served.catalog_names


def _databases(session: Session, command: Message) -> list[str]:
    """Return the names of the databases that a command asks for, in their order."""
    matches = _matcher(command, "db_schema_filter_pattern")
    return sorted(one.name for one in session.engine.catalog.databases() if matches(one.name))


def _tables(catalog: str, session: Session, command: Message) -> Iterator[tuple[object, ...]]:
    """Yield the tables and views that a command asks for, with their schemas if it wants them."""
    matches = _matcher(command, "table_name_filter_pattern")
    kinds = set(command.table_types) or {_TABLE, _VIEW}
    lake = session.engine.catalog.of_lake()
    for database in _databases(session, command):
        found: list[tuple[str, str, Callable[[], Struct]]] = []
        if _TABLE in kinds:
            for entry in lake.tables(database):
                if entry.head is not None:
                    found.append((entry.name, _TABLE, _reader(session, database, entry.name)))
        if _VIEW in kinds:
            for view in lake.views.entries(database):
                columns = None if view.schema is None else view.schema.columns
                found.append((view.name, _VIEW, partial(_of_view, columns)))
        for name, kind, read in sorted(found, key=lambda one: one[:2]):
            if matches(name):
                row = (catalog, database, name, kind)
                if command.include_schema:
                    yield (*row, schema_bytes(_described(catalog, database, name, read)))
                else:
                    yield row


def _reader(session: Session, database: str, name: str) -> Callable[[], Struct]:
    return lambda: session.snapshot(TableName((database, name))).schema


def _of_view(columns: str | None) -> Struct:
    """Return a view's columns; none for a view of an older release, which didn't keep them."""
    if columns is None:
        return Struct(())
    found = type_from_json(json.loads(columns))
    assert isinstance(found, Struct)
    return found


def _described(catalog: str, database: str, table: str, read: Callable[[], Struct]) -> pa.Schema:
    """Return a table's columns, with what JDBC and ODBC tell of them; none where it can't be read.

    A column of a type that Arrow doesn't have is listed as text.
    """
    try:
        schema = read()
    except TxlakeError as error:
        _logger.warning("%s.%s is listed without its columns: %s", database, table, error)
        schema = Struct(())
    fields = []
    for item in schema:
        try:
            kind = to_arrow_type(item.type)
        except ValueError:
            kind = pa.string()
        facts = {
            "CATALOG_NAME": catalog,
            "DB_SCHEMA_NAME": database,
            "TABLE_NAME": table,
            "TYPE_NAME": short_text(item.type).upper(),
            "IS_AUTO_INCREMENT": "0",
            "IS_CASE_SENSITIVE": "1",
            "IS_READ_ONLY": "0",
            "IS_SEARCHABLE": "1",
            **_precision(item.type),
        }
        metadata = {f"{_KEY}{key}": value for key, value in facts.items()}
        fields.append(pa.field(item.name, kind, item.nullable, metadata))
    return pa.schema(fields)


def _precision(kind: object) -> Mapping[str, str]:
    decimal = kind.decimal if isinstance(kind, Primitive) else None
    return {} if decimal is None else {"PRECISION": str(decimal[0]), "SCALE": str(decimal[1])}


def _matcher(command: Message, name: str) -> Callable[[str], bool]:
    r"""Return whether a name matches a command's pattern: `%` is any text, `_` any character, and
    `\` before either makes it plain. Letter case doesn't matter; without a pattern all match.
    """
    if not command.HasField(name):
        return lambda _: True
    pieces = re.findall(r"\\.|[%_]|.", getattr(command, name), re.DOTALL)
    wild = {"%": ".*", "_": "."}
    pattern = re.compile(
        "".join(wild.get(piece, re.escape(piece[-1])) for piece in pieces),
        re.IGNORECASE | re.DOTALL,
    )
    return lambda found: pattern.fullmatch(found) is not None
