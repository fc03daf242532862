"""The grammar of CREATE, DROP and UNDROP of tables and databases, and of CLONE."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field

from txlake.protocol.schema_rules import column_text
from txlake.protocol.times import parse_time, time_text
from txlake.sql.branches import create_branch, create_tag, drop_branch, drop_tag
from txlake.sql.clauses import (
    QUERY_WORDS,
    database,
    expression,
    properties,
    rest_query,
    time_travel,
)
from txlake.sql.columns import column, data_type
from txlake.sql.control import isolation_level
from txlake.sql.cursor import Cursor
from txlake.sql.keys import at_key, key_constraint
from txlake.sql.spark_commands import spark_command
from txlake.sql.statements import (
    CheckConstraint,
    Clone,
    ColumnSpec,
    CreateDatabase,
    CreateTable,
    CreateTableLike,
    DropDatabase,
    DropTable,
    Isolation,
    KeyConstraint,
    Properties,
    Statement,
    Table,
    TableName,
    TimeTravel,
    UndropTable,
)
from txlake.sql.statements.tables import CreateMode
from txlake.sql.views import create_temporary, create_view, drop_view


def create(cursor: Cursor) -> Statement:
    """Parse CREATE [OR REPLACE] { [EXTERNAL] TABLE | VIEW | TEMPORARY ... }, or CREATE of a
    database, a branch or a tag.
    """
    start = cursor.token
    cursor.expect("CREATE")
    or_replace = cursor.accept("OR", "REPLACE")
    if cursor.at_any("DATABASE", "SCHEMA") and not or_replace:
        return _create_database(cursor)
    if cursor.at_any("BRANCH", "TAG"):
        if or_replace:
            cursor.refuse("a branch or a tag isn't replaced: DROP it first, with IF EXISTS")
        return create_branch(cursor) if cursor.at("BRANCH") else create_tag(cursor)
    if cursor.at_any("TEMP", "TEMPORARY", "GLOBAL"):
        return create_temporary(cursor)
    if cursor.at("VIEW"):
        return create_view(cursor, or_replace=or_replace)
    if cursor.at_any("MATERIALIZED", "FUNCTION"):
        cursor.refuse("the lake keeps tables and views: CREATE VIEW, CREATE TEMPORARY FUNCTION")
    external = cursor.accept("EXTERNAL")
    if not cursor.accept("TABLE"):
        cursor.fail("TABLE, VIEW, DATABASE, SCHEMA, BRANCH, TAG or TEMPORARY VIEW")
    mode: CreateMode = "or_replace" if or_replace else "create"
    if cursor.at("IF", "NOT", "EXISTS"):
        if or_replace:
            cursor.refuse("OR REPLACE and IF NOT EXISTS exclude each other")
        cursor.expect("IF", "NOT", "EXISTS")
        mode = "if_not_exists"
    statement = _table_statement(cursor, mode)
    if external and not isinstance(statement, Clone) and statement.location is None:
        cursor.refuse("an EXTERNAL table needs a LOCATION", start)
    return statement


def replace_table(cursor: Cursor) -> Statement:
    """Parse REPLACE TABLE, of a table that exists."""
    cursor.expect("REPLACE", "TABLE")
    return _table_statement(cursor, "replace")


def drop(cursor: Cursor) -> Statement:
    """Parse DROP { TABLE | VIEW | DATABASE | BRANCH | TAG }.

    DROP TEMPORARY is a command for Spark.
    """
    cursor.expect("DROP")
    if cursor.accept("TABLE"):
        if_exists = cursor.accept("IF", "EXISTS")
        table = cursor.table()
        purge = cursor.accept("PURGE")
        cursor.expect_end()
        return DropTable(table=table, if_exists=if_exists, purge=purge)
    if cursor.accept_any("DATABASE", "SCHEMA"):
        if_exists = cursor.accept("IF", "EXISTS")
        name = database(cursor)
        cascade = cursor.accept_any("RESTRICT", "CASCADE") == "CASCADE"
        cursor.expect_end()
        return DropDatabase(name=name, if_exists=if_exists, cascade=cascade)
    if cursor.at("VIEW"):
        return drop_view(cursor)
    if cursor.at("BRANCH"):
        return drop_branch(cursor)
    if cursor.at("TAG"):
        return drop_tag(cursor)
    if not cursor.at_any("TEMPORARY", "TEMP"):
        cursor.fail("TABLE, DATABASE, SCHEMA, VIEW, BRANCH, TAG or TEMPORARY")
    return spark_command(cursor)


def undrop(cursor: Cursor) -> UndropTable:
    """Parse UNDROP TABLE { name | WITH ID 'id' }."""
    cursor.expect("UNDROP", "TABLE")
    start = cursor.token
    statement: UndropTable
    if cursor.accept("WITH", "ID"):
        statement = UndropTable(table_id=cursor.string("the table's id in quotes"))
    else:
        table = cursor.table()
        if not isinstance(table, TableName):
            cursor.refuse("only a table that had a name comes back", start)
        statement = UndropTable(table)
    cursor.expect_end()
    return statement


@dataclass(slots=True)
class _Clauses:
    columns: list[ColumnSpec] = field(default_factory=list)
    constraints: list[CheckConstraint] = field(default_factory=list)
    keys: list[KeyConstraint] = field(default_factory=list)
    partition_by: tuple[str, ...] | None = None
    cluster_by: tuple[str, ...] | None = None
    properties: Properties = ()
    location: str | None = None
    comment: str | None = None


def _table_statement(cursor: Cursor, mode: CreateMode) -> CreateTable | CreateTableLike | Clone:
    """Parse a name and the rest of the statement, after CREATE ... TABLE or REPLACE TABLE."""
    table = cursor.table()
    if cursor.at_any("SHALLOW", "DEEP", "CLONE"):
        return _clone(cursor, table, mode)
    if cursor.accept("AS", "CLONE", "OF"):
        return _clone_of(cursor, table, mode)
    if cursor.accept("LIKE"):
        return _create_like(cursor, table, mode)
    clauses = _Clauses()
    if cursor.at("(") and cursor.ahead().upper not in QUERY_WORDS:
        cursor.parenthesized(lambda: _table_element(cursor, clauses))
    _table_clauses(cursor, clauses)
    query = None
    if cursor.accept("AS") or cursor.at_any(*QUERY_WORDS) or cursor.at("("):
        if clauses.columns:
            cursor.refuse("CREATE TABLE AS SELECT takes its columns from the query alone")
        query = rest_query(cursor)
    if not cursor.at_end:
        cursor.fail("a clause of CREATE TABLE, AS, or the end of the statement")
    return CreateTable(
        table=table,
        columns=tuple(clauses.columns),
        partition_by=clauses.partition_by,
        cluster_by=clauses.cluster_by,
        properties=clauses.properties,
        constraints=tuple(clauses.constraints),
        keys=tuple(clauses.keys),
        location=clauses.location,
        comment=clauses.comment,
        mode=mode,
        query=query,
    )


def _table_element(cursor: Cursor, clauses: _Clauses) -> None:
    """Parse a column, a key or a constraint in CREATE TABLE's parentheses, into `clauses`."""
    if cursor.at("CONSTRAINT") or cursor.at("CHECK", "(") or cursor.at("UNIQUE", "("):
        parsed = constraint(cursor)
        if isinstance(parsed, KeyConstraint):
            clauses.keys.append(parsed)
        else:
            clauses.constraints.append(parsed)
        return
    if at_key(cursor):
        clauses.keys.append(key_constraint(cursor, None))
        return
    start = cursor.token
    spec = column(cursor, clauses.keys)
    if any(spec.name.lower() == known.name.lower() for known in clauses.columns):
        cursor.refuse(f"column {spec.name} is there twice", start)
    clauses.columns.append(spec)


def constraint(cursor: Cursor) -> CheckConstraint | KeyConstraint:
    """Parse [CONSTRAINT name] key, or CONSTRAINT name CHECK (condition) [ENFORCED]."""
    name = cursor.name("the constraint's name") if cursor.accept("CONSTRAINT") else None
    if at_key(cursor):
        return key_constraint(cursor, name)
    if cursor.at("UNIQUE"):
        cursor.refuse("UNIQUE is not known: PRIMARY KEY, FOREIGN KEY and CHECK (condition) are")
    if name is None:
        cursor.refuse("a CHECK needs a name: CONSTRAINT name CHECK (condition)")
    cursor.expect("CHECK", "(")
    start = cursor.token
    condition = expression(cursor, what="a condition")
    if condition.references:
        cursor.refuse("a constraint's condition can't have a query", start)
    cursor.expect(")")
    cursor.accept("ENFORCED")
    return CheckConstraint(name, condition)


def _table_clauses(cursor: Cursor, clauses: _Clauses) -> None:
    """Parse the clauses between columns and AS, into `clauses`; each once, in any order."""
    names: set[str] = set()
    while True:
        start = cursor.token
        if cursor.accept("USING"):
            clause = "USING"
            provider = cursor.token
            if cursor.name("DELTA").lower() != "delta":
                cursor.refuse("the lake's tables are Delta tables: USING DELTA", provider)
        elif cursor.accept("PARTITIONED", "BY"):
            clause = "PARTITIONED BY"
            clauses.partition_by = cursor.parenthesized(lambda: _partition_column(cursor, clauses))
        elif cursor.at("CLUSTER", "BY"):
            clause = "CLUSTER BY"
            clauses.cluster_by = cluster_columns(cursor)
        elif cursor.accept("TBLPROPERTIES"):
            clause = "TBLPROPERTIES"
            clauses.properties = properties(cursor)
        elif cursor.accept("LOCATION"):
            clause = "LOCATION"
            clauses.location = cursor.string("the place in quotes")
        elif cursor.accept("COMMENT"):
            clause = "COMMENT"
            clauses.comment = cursor.string("the comment in quotes")
        elif cursor.at_any("OPTIONS", "CLUSTERED", "STORED", "ROW", "SKEWED", "DEFAULT"):
            cursor.refuse(f"{cursor.token.upper} is no clause of a Delta table")
        else:
            break
        if clause in names:
            cursor.refuse(f"{clause} is given twice", start)
        names.add(clause)
    if clauses.partition_by and clauses.cluster_by:
        cursor.refuse("a table is PARTITIONED BY or CLUSTER BY, not both")


def _partition_column(cursor: Cursor, clauses: _Clauses) -> str:
    """Parse a name in PARTITIONED BY (...), and in Hive's form its type, which adds the column."""
    start = cursor.token
    name = cursor.name("a column")
    if cursor.at("(") or cursor.at("."):
        cursor.refuse("a partition column is a whole column of the table; generate one", start)
    if not cursor.at_any(",", ")"):
        # Hive's form: PARTITIONED BY declares the column.
        clauses.columns.append(ColumnSpec(name=name, data_type=data_type(cursor)))
        if cursor.accept("COMMENT"):
            cursor.string()
    return name


def cluster_columns(cursor: Cursor) -> tuple[str, ...]:
    """Parse CLUSTER BY (columns) or CLUSTER BY NONE, which gives ().

    A field of a struct is one dotted text.
    """
    cursor.expect("CLUSTER", "BY")
    if cursor.accept("NONE"):
        return ()
    if cursor.at("AUTO"):
        cursor.refuse("CLUSTER BY AUTO is not known: name the columns")
    return cursor.parenthesized(lambda: column_text(cursor.path()))


def _clone(cursor: Cursor, table: Table, mode: CreateMode) -> Clone:
    """Parse [SHALLOW | DEEP] CLONE source [AS OF ...] [clauses], after CREATE TABLE t."""
    shallow = cursor.accept_any("SHALLOW", "DEEP") == "SHALLOW"
    cursor.expect("CLONE")
    source = cursor.table()
    travel = time_travel(cursor)
    pairs: Properties = ()
    location = None
    while not cursor.at_end:
        if cursor.accept("TBLPROPERTIES"):
            pairs = properties(cursor)
        elif cursor.accept("LOCATION"):
            location = cursor.string("the place in quotes")
        else:
            cursor.fail("TBLPROPERTIES, LOCATION or the end of the statement")
    return Clone(
        table=table,
        source=source,
        travel=travel,
        shallow=shallow,
        mode=mode,
        properties=pairs,
        location=location,
    )


def _clone_of(cursor: Cursor, table: Table, mode: CreateMode) -> Clone:
    """Parse source [AT 'moment in UTC'], after CREATE TABLE t AS CLONE OF.

    This is Fabric's clause, which copies no data.
    """
    source = cursor.table()
    travel = None
    if cursor.accept("AT"):
        start = cursor.token
        moment = _utc_moment(cursor.string("the moment in quotes, in UTC"))
        if moment is None:
            cursor.refuse("AT takes a moment in UTC, as '2026-01-31T12:00:00'", start)
        travel = TimeTravel(timestamp=moment)
    cursor.expect_end()
    return Clone(table=table, source=source, travel=travel, shallow=True, mode=mode)


def _utc_moment(text: str) -> str | None:
    """Return a timestamp with its zone, UTC by default; None for a text that is no timestamp."""
    try:
        parsed = parse_time(text)
    except ValueError:
        try:
            moment = datetime.datetime.fromisoformat(text.strip())
        except ValueError:
            return None
        utc = moment.replace(tzinfo=moment.tzinfo or datetime.UTC)
        return utc.isoformat()
    return time_text(parsed.wall, zoned=True) if parsed.offset_s is None else text


def _create_like(cursor: Cursor, table: Table, mode: CreateMode) -> CreateTableLike:
    """Parse source [clauses], after CREATE TABLE t LIKE."""
    if mode not in {"create", "if_not_exists"}:
        cursor.refuse("CREATE TABLE ... LIKE can't replace a table")
    source = cursor.table()
    clauses = _Clauses()
    _table_clauses(cursor, clauses)
    if clauses.partition_by or clauses.cluster_by or clauses.comment:
        cursor.refuse("CREATE TABLE ... LIKE takes USING, TBLPROPERTIES and LOCATION")
    cursor.expect_end()
    return CreateTableLike(
        table=table,
        source=source,
        mode=mode,
        location=clauses.location,
        properties=clauses.properties,
    )


def _create_database(cursor: Cursor) -> CreateDatabase:
    """Parse { DATABASE | SCHEMA } [IF NOT EXISTS] name [clauses], after CREATE."""
    cursor.expect_any("DATABASE", "SCHEMA")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = database(cursor)
    comment: str | None = None
    location: str | None = None
    pairs: Properties = ()
    isolation: Isolation | None = None
    while not cursor.at_end:
        if cursor.accept("COMMENT"):
            comment = cursor.string("the comment in quotes")
        elif cursor.accept("LOCATION") or cursor.accept("MANAGED", "LOCATION"):
            location = cursor.string("the place in quotes")
        elif cursor.accept("WITH", "DBPROPERTIES") or cursor.accept("DBPROPERTIES"):
            pairs = properties(cursor)
        elif cursor.accept("ISOLATION", "LEVEL"):
            isolation = database_isolation(cursor)
        elif cursor.at("WITH", "ISOLATION"):
            cursor.advance()  # Redshift's optional WITH
        else:
            cursor.fail("COMMENT, LOCATION, WITH DBPROPERTIES, ISOLATION LEVEL or the end")
    return CreateDatabase(
        name=name,
        if_not_exists=if_not_exists,
        comment=comment,
        location=location,
        properties=pairs,
        isolation=isolation,
    )


def database_isolation(cursor: Cursor) -> Isolation:
    """Parse a database's isolation level, after ISOLATION LEVEL.

    Raises InvalidRequest for a level weaker than a snapshot.
    """
    start = cursor.token
    level, spelling = isolation_level(cursor)
    if level is None:
        cursor.refuse(f"a database's level is SNAPSHOT or SERIALIZABLE, found {spelling}", start)
    return level
