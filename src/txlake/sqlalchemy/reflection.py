"""What a lake has, as SQLAlchemy's inspector asks for it.

A table's definition is read from its `SHOW CREATE TABLE`, parsed as txlake parses it; nothing here
needs Spark, nor sees anything but the connection's own transaction. No statement is sent that could
fail, because a failed one rolls the transaction back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import exc
from sqlalchemy.engine import Connection, reflection
from sqlalchemy.engine.default import DefaultDialect

from txlake.protocol.properties import CONSTRAINT_PREFIX
from txlake.sql import parse
from txlake.sql.statements import ColumnSpec, CreateTable, TableName, quoted
from txlake.sqlalchemy.types import type_of

# Properties that a table has by its columns and constraints, and one that new tables have.
_IMPLIED = (CONSTRAINT_PREFIX, "delta.feature.", "delta.minReaderVersion", "delta.minWriterVersion")
_DEFAULT = ("delta.enableDeletionVectors", "true")


class Reflection(DefaultDialect):
    """The reflecting methods of the dialect."""

    @reflection.cache
    def get_schema_names(self, connection: Connection, **_: Any) -> list[str]:
        return [row[0] for row in _rows(connection, "SHOW DATABASES")]

    @reflection.cache
    def get_table_names(
        self, connection: Connection, schema: str | None = None, **kw: Any
    ) -> list[str]:
        return self._listed(connection, "TABLES", schema, kw)

    @reflection.cache
    def get_view_names(
        self, connection: Connection, schema: str | None = None, **kw: Any
    ) -> list[str]:
        return self._listed(connection, "VIEWS", schema, kw)

    def _listed(self, connection: Connection, what: str, schema: str | None, kw: Any) -> list[str]:
        """Return the names of tables or views; none of a schema that isn't there."""
        name = schema or self.default_schema_name
        if not self.has_schema(connection, name, **kw):
            return []
        rows = _rows(connection, f"SHOW {what} IN {quoted(str(name))}")
        return [row[1] for row in rows if not row[2]]

    def has_schema(self, connection: Connection, schema_name: Any, **kw: Any) -> bool:
        names = self.get_schema_names(connection, **kw)
        return str(schema_name).lower() in {name.lower() for name in names}

    @reflection.cache
    def has_table(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> bool:
        return self._kind(connection, table_name, schema, kw) is not None

    def _kind(self, connection: Connection, name: str, schema: str | None, kw: Any) -> str | None:
        """Return whether a name is a table's or a view's; None if it is nobody's."""
        folded = name.lower()
        if folded in {one.lower() for one in self.get_table_names(connection, schema, **kw)}:
            return "table"
        if folded in {one.lower() for one in self.get_view_names(connection, schema, **kw)}:
            return "view"
        return None

    def _full_name(self, name: str, schema: str | None) -> str:
        return f"{quoted(str(schema or self.default_schema_name))}.{quoted(name)}"

    @reflection.cache
    def _definition(
        self, connection: Connection, name: str, schema: str | None = None, **kw: Any
    ) -> CreateTable | None:
        """Return a table's definition; None for a view. Raises NoSuchTableError."""
        kind = self._kind(connection, name, schema, kw)
        if kind is None:
            raise exc.NoSuchTableError(f"{schema}.{name}" if schema else name)
        if kind == "view":
            return None
        [row] = _rows(connection, f"SHOW CREATE TABLE {self._full_name(name, schema)}")
        [statement] = parse(row[0])
        assert isinstance(statement, CreateTable)
        return statement

    @reflection.cache
    def get_columns(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        definition = self._definition(connection, table_name, schema, **kw)
        if definition is not None:
            return [_column(one) for one in definition.columns]
        rows = _rows(connection, f"DESCRIBE {self._full_name(table_name, schema)}")
        return [
            {
                "name": name,
                "type": type_of(kind),
                "nullable": True,
                "default": None,
                "comment": comment,
            }
            for name, kind, comment in rows
        ]

    @reflection.cache
    def get_pk_constraint(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        definition = self._definition(connection, table_name, schema, **kw)
        for key in definition.keys if definition is not None else ():
            if key.parent is None:
                return {"name": key.name, "constrained_columns": list(key.columns)}
        return {"name": None, "constrained_columns": []}

    @reflection.cache
    def get_foreign_keys(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        definition = self._definition(connection, table_name, schema, **kw)
        return [
            self._foreign_key(connection, key, schema, kw)
            for key in (definition.keys if definition is not None else ())
            if key.parent is not None
        ]

    def _foreign_key(self, connection: Connection, key: Any, schema: str | None, kw: Any) -> Any:
        assert isinstance(key.parent, TableName)
        database = key.parent.parts[-2] if len(key.parent.parts) > 1 else schema
        if schema is None and database == self.default_schema_name:
            database = None
        columns = list(key.parent_columns)
        if not columns and self._kind(connection, key.parent.name, database, kw) == "table":
            columns = self.get_pk_constraint(connection, key.parent.name, database, **kw)[
                "constrained_columns"
            ]
        return {
            "name": key.name,
            "constrained_columns": list(key.columns),
            "referred_schema": database,
            "referred_table": key.parent.name,
            "referred_columns": columns,
            "options": {},
        }

    @reflection.cache
    def get_check_constraints(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        definition = self._definition(connection, table_name, schema, **kw)
        if definition is None:
            return []
        return [
            {"name": name.removeprefix(CONSTRAINT_PREFIX), "sqltext": text}
            for name, text in definition.properties
            if name.startswith(CONSTRAINT_PREFIX)
        ]

    @reflection.cache
    def get_table_comment(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        definition = self._definition(connection, table_name, schema, **kw)
        return {"text": None if definition is None else definition.comment}

    @reflection.cache
    def get_table_options(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        definition = self._definition(connection, table_name, schema, **kw)
        return {} if definition is None else dict(_options(definition))

    @reflection.cache
    def get_view_definition(
        self, connection: Connection, view_name: str, schema: str | None = None, **kw: Any
    ) -> str:
        if self._kind(connection, view_name, schema, kw) != "view":
            raise exc.NoSuchTableError(f"{schema}.{view_name}" if schema else view_name)
        rows = _rows(connection, f"DESCRIBE TABLE EXTENDED {self._full_name(view_name, schema)}")
        return next(str(row[1]) for row in rows if row[0] == "View Text")

    @reflection.cache
    def get_indexes(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        self._definition(connection, table_name, schema, **kw)
        return []

    get_unique_constraints = get_indexes


def _rows(connection: Connection, statement: str) -> Sequence[Any]:
    return connection.exec_driver_sql(statement).fetchall()


def _column(spec: ColumnSpec) -> dict[str, Any]:
    column: dict[str, Any] = {
        "name": spec.name,
        "type": type_of(str(spec.data_type)),
        "nullable": spec.nullable,
        "default": spec.default,
        "comment": spec.comment,
    }
    if spec.generated is not None:
        column["computed"] = {"sqltext": spec.generated, "persisted": True}
    if spec.identity is not None:
        column["identity"] = {
            "always": spec.identity.always,
            "start": spec.identity.start,
            "increment": spec.identity.step,
        }
        column["autoincrement"] = True
    return column


def _options(definition: CreateTable) -> Iterator[tuple[str, Any]]:
    """Yield the dialect's options of a table, without what each table has."""
    if definition.partition_by:
        yield "txlake_partitioned_by", list(definition.partition_by)
    if definition.cluster_by:
        yield "txlake_cluster_by", list(definition.cluster_by)
    if definition.location is not None:
        yield "txlake_location", definition.location
    properties = {
        name: value
        for name, value in definition.properties
        if not name.startswith(_IMPLIED) and (name, value) != _DEFAULT
    }
    if properties:
        yield "txlake_properties", properties
