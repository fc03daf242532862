"""The grammar of ALTER TABLE, ALTER DATABASE and COMMENT ON."""

from __future__ import annotations

from collections.abc import Callable

from txlake.sql.clauses import constant_expression, database, properties, property_key
from txlake.sql.columns import column, data_type, definition, position
from txlake.sql.creation import cluster_columns, constraint, database_isolation
from txlake.sql.cursor import Cursor
from txlake.sql.keys import at_key
from txlake.sql.statements import (
    AddColumns,
    AddConstraint,
    AddedColumn,
    AlterColumn,
    AlterDatabase,
    ClusterBy,
    DropColumns,
    DropConstraint,
    DropFeature,
    DropKey,
    RenameColumn,
    RenameTable,
    ReplaceColumns,
    SetComment,
    SetProperties,
    Statement,
    SyncIdentity,
    Table,
    TableName,
    TablePath,
    UnsetProperties,
)
from txlake.sql.views import alter_view


def alter(cursor: Cursor) -> Statement:
    """Parse ALTER of a table, a view, or a database (ISOLATION LEVEL, SET DBPROPERTIES)."""
    cursor.expect("ALTER")
    if cursor.accept_any("DATABASE", "SCHEMA"):
        name = database(cursor)
        if cursor.accept("SET") and cursor.accept_any("DBPROPERTIES", "PROPERTIES"):
            pairs = properties(cursor)
            cursor.expect_end()
            return AlterDatabase(name, properties=pairs)
        cursor.expect("ISOLATION", "LEVEL")
        level = database_isolation(cursor)
        cursor.expect_end()
        return AlterDatabase(name, level)
    if cursor.at("VIEW"):
        return alter_view(cursor)
    if not cursor.accept("TABLE"):
        cursor.fail("TABLE, VIEW, DATABASE or SCHEMA")
    table = cursor.table()
    word = cursor.expect_any(*_ACTIONS)
    statement = _ACTIONS[word](cursor, table)
    if not cursor.at_end:
        cursor.fail("the end of the statement (one change at a time)")
    return statement


def comment_on(cursor: Cursor) -> Statement:
    """Parse COMMENT ON { TABLE t | COLUMN t.column } IS { 'text' | NULL }.

    For a column NULL gives the empty comment, which removes it.
    """
    cursor.expect("COMMENT", "ON")
    kind = cursor.expect_any("TABLE", "COLUMN")
    if kind == "TABLE":
        table = cursor.table()
        statement: Statement = SetComment(table, _comment(cursor))
    else:
        start = cursor.token
        parts = cursor.path("a column with its table")
        if len(parts) < 2:
            cursor.refuse("expected table.column", start)
        owner: Table = TableName(parts[:-1])
        if len(parts) == 3 and start.upper == "DELTA":
            owner = TablePath(parts[1])
        elif len(parts) > 3:
            cursor.refuse("expected table.column or database.table.column", start)
        # NULL is the empty comment, which removes a column's comment in Spark.
        statement = AlterColumn(table=owner, column=parts[-1:], comment=_comment(cursor) or "")
    cursor.expect_end()
    return statement


def _comment(cursor: Cursor) -> str | None:
    """Parse IS { 'text' | NULL }, after COMMENT ON ...; None for NULL."""
    cursor.expect("IS")
    return None if cursor.accept("NULL") else cursor.string("the comment in quotes, or NULL")


def _set(cursor: Cursor, table: Table) -> Statement:
    """Parse TBLPROPERTIES (key = value, ...), after ALTER TABLE t SET."""
    if not cursor.accept("TBLPROPERTIES"):
        cursor.fail("TBLPROPERTIES")
    return SetProperties(table, properties(cursor))


def _unset(cursor: Cursor, table: Table) -> Statement:
    """Parse TBLPROPERTIES [IF EXISTS] (key, ...), after ALTER TABLE t UNSET."""
    cursor.expect("TBLPROPERTIES")
    if_exists = cursor.accept("IF", "EXISTS")
    return UnsetProperties(table, cursor.parenthesized(lambda: property_key(cursor)), if_exists)


def _add(cursor: Cursor, table: Table) -> Statement:
    """Parse a constraint, a key, or [COLUMN[S]] [IF NOT EXISTS] columns, after ALTER TABLE t
    ADD.
    """
    if cursor.at_any("CONSTRAINT", "CHECK", "UNIQUE") or at_key(cursor):
        return AddConstraint(table, constraint(cursor))
    if cursor.accept_any("COLUMN", "COLUMNS") is None and cursor.at("PARTITION"):
        cursor.fail("COLUMN, COLUMNS, CONSTRAINT or a column")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")

    def added_column() -> AddedColumn:
        """Parse path type [clauses] [FIRST | AFTER c]."""
        path = cursor.path("a column's name")
        spec = definition(cursor, path[-1])
        return AddedColumn(column=spec, parent=path[:-1], position=position(cursor))

    columns = (
        cursor.parenthesized(added_column)
        if cursor.at("(")
        else cursor.comma_separated(added_column)
    )
    return AddColumns(table, columns, if_not_exists)


def _drop(cursor: Cursor, table: Table) -> Statement:
    """Parse { CONSTRAINT [IF EXISTS] name [RESTRICT | CASCADE] | key | FEATURE name [TRUNCATE
    HISTORY] | COLUMN[S] [IF EXISTS] columns }, after ALTER TABLE t DROP.
    """
    if cursor.accept("CONSTRAINT"):
        if_exists = cursor.accept("IF", "EXISTS")
        name = cursor.name("the constraint's name")
        cursor.accept_any("RESTRICT", "CASCADE")  # nothing depends on a constraint
        return DropConstraint(table, name, if_exists)
    if at_key(cursor):
        return _drop_key(cursor, table)
    if cursor.accept("FEATURE"):
        feature = cursor.name("a feature's name")
        return DropFeature(table, feature, cursor.accept("TRUNCATE", "HISTORY"))
    if cursor.accept_any("COLUMN", "COLUMNS") is None:
        cursor.fail("COLUMN, COLUMNS, CONSTRAINT or FEATURE")
    if_exists = cursor.accept("IF", "EXISTS")
    columns = (
        cursor.parenthesized(cursor.path) if cursor.at("(") else cursor.comma_separated(cursor.path)
    )
    return DropColumns(table, columns, if_exists)


def _drop_key(cursor: Cursor, table: Table) -> DropKey:
    """Parse { PRIMARY KEY | FOREIGN KEY } [IF EXISTS] [(columns)] [RESTRICT | CASCADE].

    Follows ALTER TABLE t DROP. Only a foreign key has columns.
    """
    is_primary = cursor.expect_any("PRIMARY", "FOREIGN") == "PRIMARY"
    cursor.expect("KEY")
    if_exists = cursor.accept("IF", "EXISTS")
    columns = None
    if not is_primary:
        columns = cursor.parenthesized(lambda: cursor.name("a column"))
    cursor.accept_any("RESTRICT", "CASCADE")
    return DropKey(table=table, columns=columns, if_exists=if_exists)


def _rename(cursor: Cursor, table: Table) -> Statement:
    """Parse COLUMN path TO name, or TO table, after ALTER TABLE t RENAME."""
    if cursor.accept("COLUMN"):
        path = cursor.path()
        cursor.expect("TO")
        start = cursor.token
        new = cursor.path("the new name")
        if len(new) > 1:
            cursor.refuse("the new name is the column's alone, without its struct", start)
        return RenameColumn(table, path, new[0])
    if not cursor.accept("TO"):
        cursor.fail("COLUMN or TO")
    return RenameTable(table, cursor.table())


def _replace(cursor: Cursor, table: Table) -> Statement:
    """Parse COLUMN[S] (definitions), after ALTER TABLE t REPLACE."""
    cursor.expect_any("COLUMNS", "COLUMN")
    return ReplaceColumns(table, cursor.parenthesized(lambda: column(cursor)))


def _alter(cursor: Cursor, table: Table) -> Statement:
    """Parse [COLUMN] path and one change of it, after ALTER TABLE t ALTER."""
    cursor.accept("COLUMN")
    path = cursor.path()
    if cursor.accept("COMMENT"):
        return AlterColumn(table=table, column=path, comment=cursor.string("the comment"))
    if cursor.accept("TYPE") or cursor.accept("SET", "DATA", "TYPE"):
        return AlterColumn(table=table, column=path, data_type=data_type(cursor))
    if cursor.accept("SET", "NOT", "NULL"):
        return AlterColumn(table=table, column=path, nullable=False)
    if cursor.accept("DROP", "NOT", "NULL"):
        return AlterColumn(table=table, column=path, nullable=True)
    if cursor.accept("SET", "DEFAULT"):
        return AlterColumn(table=table, column=path, default=constant_expression(cursor))
    if cursor.accept("SYNC", "IDENTITY"):
        return SyncIdentity(table, path)
    if cursor.accept("DROP", "DEFAULT"):
        return AlterColumn(table=table, column=path, drop_default=True)
    new_position = position(cursor)
    if new_position is None:
        cursor.fail("TYPE, COMMENT, SET or DROP (NOT NULL, DEFAULT), SYNC IDENTITY, FIRST or AFTER")
    return AlterColumn(table=table, column=path, position=new_position)


def _change(cursor: Cursor, table: Table) -> Statement:
    """Parse [COLUMN] name [name] type [COMMENT '...'] [FIRST | AFTER c], after ALTER TABLE t
    CHANGE.

    This is Hive's form, where the second name has to be the same. The changes of ALTER COLUMN are
    accepted too.
    """
    mark = cursor.mark
    cursor.accept("COLUMN")
    path = cursor.path()
    if cursor.at_any("COMMENT", "TYPE", "SET", "SYNC", "DROP", "FIRST", "AFTER"):
        cursor.back(mark)
        return _alter(cursor, table)
    if cursor.token.name.lower() == path[-1].lower():
        cursor.advance()
    kind = data_type(cursor)
    comment = cursor.string("the comment") if cursor.accept("COMMENT") else None
    return AlterColumn(
        table=table, column=path, data_type=kind, comment=comment, position=position(cursor)
    )


def _cluster(cursor: Cursor, table: Table) -> Statement:
    """Parse BY (columns) or BY NONE, after ALTER TABLE t CLUSTER."""
    cursor.back(cursor.mark - 1)
    return ClusterBy(table, cluster_columns(cursor))


_ACTIONS: dict[str, Callable[[Cursor, Table], Statement]] = {
    "SET": _set,
    "UNSET": _unset,
    "ADD": _add,
    "DROP": _drop,
    "RENAME": _rename,
    "REPLACE": _replace,
    "ALTER": _alter,
    "CHANGE": _change,
    "CLUSTER": _cluster,
}
