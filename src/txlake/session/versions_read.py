"""Versions of tables that a caller read elsewhere, and writes from: `read_version`.

Another engine, or a program that began earlier, has read these versions. A statement that is given
them is part of a transaction that reads these tables at these versions, and commits as one that
began then. Owns which statements may be given versions, and which rows count as read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from txlake.conflict.footprint import Read
from txlake.conflict.locking import LockMode
from txlake.errors import InvalidRequest
from txlake.session.command import TableLock, each_once, words_of
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.sql.statements import (
    Delete,
    Expression,
    Insert,
    Merge,
    Optimize,
    ReadTable,
    Select,
    Statement,
    Table,
    Truncate,
    Update,
    Write,
    condition_text,
)
from txlake.sql.statements.text_references import references_of


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRead:
    """A version of a table that the caller read elsewhere.

    Attributes:
        rows: a condition that the rows which were read fulfil; None if the caller doesn't say.
    """

    table: Table
    version: int
    rows: Expression | None = None


def subject_of(statement: Statement) -> Table:
    """Return the table that a statement changes, or the only one that a query names.

    Raises InvalidRequest for other statements, and for a query of several tables.
    """
    require_versions_allowed(statement)
    match statement:
        case Merge():
            return statement.target
        case Select():
            tables = [table for table, _ in each_once(_tables_read(statement))]
            if len(tables) != 1:
                raise InvalidRequest(
                    f"read_version: the query names {len(tables)} tables: give the versions by "
                    "table, {'name': version}"
                )
            return tables[0]
    return _target(statement)


def require_versions_allowed(statement: Statement) -> None:
    """Raise InvalidRequest for a statement that neither reads nor changes rows of tables."""
    kinds = (*_BRINGING, *_SELECTING, Select, ReadTable)
    if not isinstance(statement, kinds):
        raise InvalidRequest(
            f"read_version goes with queries, writes, INSERT, UPDATE, DELETE, MERGE, TRUNCATE and "
            f"OPTIMIZE, found {words_of(statement)}: leave it out"
        )


_BRINGING = (Insert, Write)
"""Statements whose rows the caller brings, made from whatever it has read."""

_SELECTING = (Delete, Update, Merge, Truncate, Optimize)
"""Statements that select the rows of their target themselves."""


def _target(statement: Statement) -> Table:
    assert isinstance(statement, Insert | Write | Delete | Update | Truncate | Optimize | ReadTable)
    return statement.table


def _tables_read(statement: Statement) -> Iterable[TableLock]:
    return ((reference.table, LockMode.SCH_S) for reference in references_of(statement))


def locks_of(versions: Sequence[VersionRead]) -> list[TableLock]:
    """Return the locks on the tables: those of a read."""
    return [(one.table, LockMode.SCH_S) for one in versions]


def begin_at_versions(context: Context, versions: Sequence[VersionRead]) -> None:
    """Let the transaction read the tables at these versions, and note the rows that are stated.

    Raises InvalidRequest for a table that doesn't exist or is given twice, for a version that the
    table doesn't have, or has no more, and if the transaction reads another version of the table;
    for a condition that names an unknown column.
    """
    begun: set[str] = set()
    for one in versions:
        handle = context.tables.handle(one.table)
        if handle.key in begun:
            raise InvalidRequest(
                f"read_version: {handle.name} is given twice; give one version of each table"
            )
        begun.add(handle.key)
        part = context.transaction.begin_at(handle, one.version)
        if one.rows is not None:
            part.add_read(_stated_read(context, handle, one.rows))


def note_unstated_reads(
    context: Context, statement: Statement, versions: Sequence[VersionRead]
) -> None:
    """Note what counts as read of the tables for which the caller didn't state it, after the
    statement has run.

    That is the whole table. Of the table that an UPDATE, DELETE, MERGE, TRUNCATE or OPTIMIZE
    changes it is what the statement itself has read, which the transaction has noted.
    """
    own = None
    if isinstance(statement, _SELECTING):
        own = context.tables.handle(subject_of(statement)).key
    for one in versions:
        handle = context.tables.handle(one.table)
        if one.rows is None and handle.key != own:
            context.transaction.open(handle).read()


def _stated_read(context: Context, handle: Handle, rows: Expression) -> Read:
    """Return the read of the rows for which a condition is true; of all rows if it can't be
    modelled. Raises InvalidRequest for an unknown column.
    """
    work = context.work_on(handle, context.transaction.open(handle).base)
    predicate = work.predicate(rows, None)
    if predicate is None:
        return Read()
    return Read(
        predicate=predicate,
        text=condition_text(rows),
        condition=work.row_condition(predicate, rows, None),
    )
