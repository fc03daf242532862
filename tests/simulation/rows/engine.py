"""An engine in which rows stand where Spark's frames do.

Owns the wiring: what the engine asks of Spark is answered by `frames`, scans by `files`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from tests.simulation.rows.commands import ROW_COMMANDS
from tests.simulation.rows.files import RowWork
from tests.simulation.rows.frames import RowColumn, RowSpark
from txlake.log.snapshot import Snapshot
from txlake.session.command import Commands
from txlake.session.engine import Engine, Handle
from txlake.spark.table_access import TableAccess
from txlake.statements import (
    Expression,
    SqlText,
)


def _no_spark() -> Any:
    raise AssertionError("there is no Spark here")


@dataclass(kw_only=True)
class RowEngine(Engine):
    """An engine whose tables are read and written as rows; no Spark is ever started."""

    commands: Commands = field(default_factory=lambda: ROW_COMMANDS)
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

    def work(self, handle: Handle, snapshot: Snapshot) -> TableAccess:
        """The means to read and write a table's rows as they were at a snapshot."""
        work = super().work(handle, snapshot)
        given = {one.name: getattr(work, one.name) for one in fields(work)}
        return RowWork(**{**given, "column_of": _column_of, "store_at": self.store_at})


def _column_of(expression: Expression) -> Any:
    assert isinstance(expression, SqlText), "conditions are SQL here"
    return RowColumn(expression.rewritten(lambda _: None))
