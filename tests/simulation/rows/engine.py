"""An engine and a statement's context in which rows stand where Spark's frames do.

Owns the wiring: what the engine asks of Spark is answered by `frames`, scans by `files`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tests.simulation.rows.files import RowWork
from tests.simulation.rows.frames import RowColumn, RowSpark
from tests.simulation.rows.scopes import Rows
from txlake.log.snapshot import Snapshot
from txlake.session.context import Context
from txlake.session.engine import Engine, Handle
from txlake.spark.work import Work
from txlake.statements import (
    Expression,
    SqlText,
)


def _no_spark() -> Any:
    raise AssertionError("there is no Spark here")


@dataclass(kw_only=True)
class RowEngine(Engine):
    """An engine whose tables are read and written as rows; no Spark is ever started."""

    make_spark: Any = _no_spark

    @cached_property
    def _rows(self) -> RowSpark:
        return RowSpark()

    @property
    def spark(self) -> Any:
        """What stands for the Spark session."""
        return self._rows

    @property
    def has_spark(self) -> bool:
        """Conditions can be looked at row by row at any time."""
        return True

    def spark_setting(self, key: str, default: str) -> str:
        return self._rows.conf.get(key, default) or default

    def work(self, handle: Handle, snapshot: Snapshot) -> Work:
        """The means to read and write a table's rows as they were at a snapshot."""
        return RowWork(
            start=lambda: self.spark,
            manifests=self.manifests,
            system=self.system,
            settings=self.settings,
            snapshot=snapshot,
            store=handle.store,
            storage_options=self.storage_options,
            column_of=_column_of,
            name=handle.qualifier,
            store_at=self.store_at,
        )


def _column_of(expression: Expression) -> Any:
    assert isinstance(expression, SqlText), "conditions are SQL here"
    return RowColumn(expression.rewritten(lambda _: None))


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
