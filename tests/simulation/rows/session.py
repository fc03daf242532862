"""The engine's session on the row plane, which returns rows as dictionaries."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from txlake.commands import HANDLERS
from txlake.conflict.levels import Level
from txlake.session.engine import Engine
from txlake.session.session import Session
from txlake.session.transaction import Transaction
from txlake.sql import parse
from txlake.sql.statements import Statement


@lru_cache(maxsize=8192)
def _parsed(sql: str) -> tuple[Statement, ...]:
    return parse(sql)


class RowSession(Session):
    """A session that returns rows."""

    def __init__(self, engine: Engine, *, level: Level | None = None) -> None:
        super().__init__(engine, HANDLERS, level=level)

    def rows(self, sql: str) -> list[dict[str, object]]:
        """Execute statements; return the rows or the counts of the last one."""
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
