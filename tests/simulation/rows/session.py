"""A session whose data plane is rows of this process: the same statements, without Spark.

Owns which statements are carried out here. All others, and everything else of a session, are the
engine's own: transactions, locks, names, footprints, commits, recovery.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeGuard

from tests.simulation.rows import data, definitions
from tests.simulation.rows.engine import RowContext
from tests.simulation.rows.frames import RowFrame, frame_of
from tests.simulation.rows.scopes import Name, Rows
from tests.simulation.rows.values import LONG
from txlake.protocol.types import Struct
from txlake.session.context import Context
from txlake.session.dispatch import Answer, run
from txlake.session.locking import TableLock
from txlake.session.session import Session
from txlake.session.transaction import Transaction
from txlake.sql import parse
from txlake.statements import (
    AlterStatement,
    Clone,
    CopyInto,
    CreateTable,
    Delete,
    Insert,
    Merge,
    Optimize,
    RenameTable,
    Reorg,
    Select,
    SparkCommand,
    Statement,
    Truncate,
    Update,
    Write,
)


@lru_cache(maxsize=8192)
def _parsed(sql: str) -> tuple[Statement, ...]:
    return parse(sql)


class RowSession(Session):
    """A session that answers with rows."""

    def rows(self, sql: str) -> list[dict[str, object]]:
        """Carries out one statement, or several; the last one's rows, or its counts."""
        return self._carried_out(None, sql)

    def within(self, transaction: Transaction, sql: str) -> list[dict[str, object]]:
        """As `rows`, in a transaction that isn't the session's own."""
        return self._carried_out(transaction, sql)

    def _carried_out(self, transaction: Transaction | None, sql: str) -> list[dict[str, object]]:
        try:
            statements = _parsed(sql)
        except BaseException as error:
            failed = transaction or self.current
            if failed is not None:
                failed.fail(error)
            raise
        found: list[dict[str, object]] = []
        for statement in statements:
            if transaction is None:
                frame: Any = self.execute(statement)
            else:
                frame = self.execute_in(transaction, statement)
            found = frame.dicts()
        return found

    @contextmanager
    def _within(
        self,
        transaction: Transaction | None,
        wanted: Sequence[TableLock],
        *,
        leaves: bool = False,
        writes: bool = False,
        pins: bool = True,
    ) -> Iterator[Context]:
        given = super()._within(transaction, wanted, leaves=leaves, writes=writes, pins=pins)
        with given as context:
            yield RowContext.of(context)

    def _run(self, context: Context, statement: Statement) -> Answer:
        assert isinstance(context, RowContext)
        match statement:
            case Delete():
                return _counts(data.delete(context, statement))
            case Update():
                return _counts(data.update(context, statement))
            case Insert():
                return _counts(data.insert(context, statement))
            case Merge():
                return _counts(data.merge(context, statement))
            case Truncate():
                data.truncate(context, statement)
                return _nothing
            case Optimize() | Reorg():
                return data.optimize(context, statement)
            case CreateTable():
                definitions.create_table(context, statement)
                return _nothing
            case Clone():
                counts = definitions.clone_table(context, statement)
                return _counts(counts) if counts else _nothing
            case _ if _changes_table(statement):
                definitions.alter_table(context, statement)
                return _nothing
            case Write():
                return _counts(data.write(context, statement))
            case CopyInto():
                return _counts(data.copy_into(context, statement))
            case SparkCommand():
                raise AssertionError(f"{type(statement).__name__} isn't known here")
            case Select(query):
                frame = context.query(query)
                return lambda _: frame
        return run(context, statement)


def _changes_table(statement: Statement) -> TypeGuard[AlterStatement]:
    return isinstance(statement, AlterStatement) and not isinstance(statement, RenameTable)


# Answers


def _counts(counts: Mapping[str, int]) -> Answer:
    names = tuple(Name(name, LONG) for name in counts)
    frame: Any = RowFrame(Rows(names, [tuple(counts.values())]))
    return lambda _: frame


def _nothing(_: object) -> Any:
    return frame_of([], Struct(()))
