"""A statement's context in which rows stand where Spark's frames do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.rows.frames import RowColumn
from tests.simulation.rows.scopes import Rows
from txlake.session.context import Context
from txlake.statements import Expression, SqlText


@dataclass(kw_only=True)
class RowContext(Context):
    """A statement's context, whose expressions and queries are looked at row by row."""

    _tables: dict[str, Rows] = field(default_factory=dict)

    @classmethod
    def of(cls, context: Context) -> RowContext:
        """The same statement's context."""
        return cls(
            engine=context.engine,
            transaction=context.transaction,
            database=context.database,
            writes=context.writes,
            lock_timeout_ms=context.lock_timeout_ms,
            _meanings=context._meanings,
        )

    def text_of(self, expression: Expression) -> tuple[str, Mapping[str, Rows]]:
        """An expression as text, with names for the tables that it reads, and their rows."""
        assert isinstance(expression, SqlText), "expressions are SQL here"
        return expression.rewritten(self._view), self._tables

    def column_of(self, expression: Expression) -> Any:
        return RowColumn(*self.text_of(expression))

    def view_of(self, frame: Any) -> str:
        name = f"txlake_{len(self._tables)}"
        self._tables[name] = frame.found
        return name
