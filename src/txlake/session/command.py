"""Commands: for each type of statements, the locks that it takes and its handler.

Owns which locks a statement takes by its command and its texts; `txlake.commands` has the commands.
The modes are those of Microsoft's "Understanding Locking and DDL Blocking in Microsoft Fabric Data
Warehouse": Sch-S to read, IX to change rows, Sch-M to change a table's definition. Statements that
Fabric lacks take the modes of what they do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from txlake.commit.data_plane import ResultRows
from txlake.conflict.locking import LockMode, conversion_mode
from txlake.protocol.types import Field, Primitive, Struct
from txlake.session.context import Context
from txlake.session.views.describe import Rows
from txlake.sql.statements import Statement, Table, TableName
from txlake.sql.statements.text_references import references_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TableLock: TypeAlias = tuple[Table, LockMode]
S = TypeVar("S")
R = TypeVar("R")


class Answer(Protocol):
    """The result of a statement: a query's DataFrame, or rows in the form that `by` makes."""

    def __call__(self, by: ResultRows[R], /) -> R | DataFrame: ...


class NamesTable(Protocol):
    """A statement about one table."""

    @property
    def table(self) -> Table: ...


def no_table(_: object) -> Sequence[TableLock]:
    """Return no locks, for a statement that names tables in its SQL texts alone."""
    return ()


def its_table(mode: LockMode) -> Callable[[NamesTable], Sequence[TableLock]]:
    """Return the function for the locks of a statement about one table."""
    return lambda statement: [(statement.table, mode)]


def _never(_: object) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The handler of the statements of one type, and the locks that it needs.

    Attributes:
        run: does it, once the context holds the locks.
        locks: on the tables that the statement itself names, outside of its texts.
        leaves_existing: whether it makes a table, and changes nothing where there is one: Sch-S
            will do on that.
        is_alone: whether it can't be part of a transaction.
        writes: whether it changes the lake: what it reads counts as read for its writes, and a
            caller that may only read may not run it.
        is_served: whether a server's callers may run it: it concerns the lake's own tables and the
            caller's session, not other files of the machine, nor what all sessions share.
    """

    run: Callable[[Context, Any], Answer]
    locks: Callable[[Any], Sequence[TableLock]]
    leaves_existing: Callable[[Any], bool] = _never
    is_alone: bool = False
    writes: bool = True
    is_served: bool = False

    def all_locks(self, statement: Statement) -> list[TableLock]:
        """Return a statement's locks: each table once, in the strongest mode that it needs.

        First the tables that it changes, then those that its texts read, in the order of the text:
        in subqueries and by time travel too. A name in a text may be no table of the lake (a view
        of Spark's). The statements of a BEGIN ATOMIC take their locks when they run.
        """
        read = ((reference.table, LockMode.SCH_S) for reference in references_of(statement))
        return each_once([*self.locks(statement), *read])


Commands: TypeAlias = Mapping[type[Any], Command]


def command(
    kind: type[S],
    run: Callable[[Context, S], Answer],
    locks: Callable[[S], Sequence[TableLock]],
    *,
    leaves_existing: Callable[[S], bool] = _never,
    is_alone: bool = False,
    writes: bool = True,
) -> tuple[type[Any], Command]:
    """Return a type of statements and its command; the arguments are `Command`'s attributes."""
    made = Command(
        run=run, locks=locks, leaves_existing=leaves_existing, is_alone=is_alone, writes=writes
    )
    return kind, made


def served(*commands: tuple[type[Any], Command]) -> Commands:
    """Return commands by their types of statements; a server's callers may run them."""
    return {kind: replace(entry, is_served=True) for kind, entry in commands}


def words_of(statement: Statement) -> str:
    """Return a statement's type in capitals, made of its class name: `UNDROP TABLE`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(statement).__name__).upper()


def each_once(locks: Iterable[TableLock]) -> list[TableLock]:
    """Return each table once, in the weakest mode that covers all of its modes.

    The tables stay in the order of their first appearance. Names that differ only in letter case
    are one table; the first spelling is kept.
    """
    found: dict[Table, TableLock] = {}
    for table, mode in locks:
        first, held = found.get(_folded(table), (table, mode))
        found[_folded(table)] = (first, conversion_mode(held, mode))
    return list(found.values())


def _folded(table: Table) -> Table:
    """Return a table's name in lower case; a path as it is."""
    if isinstance(table, TableName):
        return TableName(tuple(part.lower() for part in table.parts))
    return table


class AsRows:
    """Makes the rows of results without Spark."""

    def frame(self, schema: Struct, rows: Sequence[tuple[object, ...]]) -> Rows:
        """Return rows of a given schema."""
        return Rows(schema=schema, rows=rows)

    def counts(self, counts: Mapping[str, int]) -> Rows:
        """Return one row of counts."""
        columns = tuple(Field(name, Primitive("long")) for name in counts)
        return Rows(schema=Struct(columns), rows=[tuple(counts.values())])

    def nothing(self) -> Rows:
        """Return no rows and no columns."""
        return Rows(schema=Struct(()), rows=())


# What a handler gives becomes the answer.


def nothing(by: ResultRows[R], /) -> R:
    """Make the result of statements that return nothing."""
    return by.nothing()


def giving_counts(
    handler: Callable[[Context, S], Mapping[str, int]],
) -> Callable[[Context, S], Answer]:
    """Return the run function of a handler that returns counts: one row, or nothing if empty."""

    def run(context: Context, statement: S) -> Answer:
        counts = handler(context, statement)
        return (lambda by: by.counts(counts)) if counts else nothing

    return run


def giving_rows(handler: Callable[[Context, S], Rows]) -> Callable[[Context, S], Answer]:
    """Return the run function of a handler that returns rows."""

    def run(context: Context, statement: S) -> Answer:
        rows = handler(context, statement)
        return lambda by: by.frame(rows.schema, rows.rows)

    return run


def giving_frame(handler: Callable[[Context, S], DataFrame]) -> Callable[[Context, S], Answer]:
    """Return the run function of a handler that returns a DataFrame."""

    def run(context: Context, statement: S) -> Answer:
        frame = handler(context, statement)
        return lambda _: frame

    return run


def answering(rows: Rows) -> Answer:
    """Return the answer that has these rows."""
    return lambda by: by.frame(rows.schema, rows.rows)


def giving_nothing(handler: Callable[[Context, S], None]) -> Callable[[Context, S], Answer]:
    """Return the run function of a handler without a result."""

    def run(context: Context, statement: S) -> Answer:
        handler(context, statement)
        return nothing

    return run
