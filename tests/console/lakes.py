"""A real lake in a folder, whose statements this process carries out without Spark."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from txlake.commands import HANDLERS
from txlake.console.serving import no_spark
from txlake.lake.lake import LakeSession, open_session
from txlake.session.command import AsRows
from txlake.session.session import Session
from txlake.session.views.describe import Rows


class PlainLake:
    """Opened by a process; `sql` runs a script in a session of the lake."""

    def __init__(self, folder: Path) -> None:
        self.session = open_session(str(folder), make_spark=no_spark)
        self.engine = self.session.engine
        self._others: list[Session] = []

    def sql(self, text: str, session: Session | None = None) -> list[tuple[object, ...]]:
        """The last statement's rows."""
        found = LakeSession(session or self.session)._run_sql(text, None, AsRows())
        assert isinstance(found, Rows)
        return list(found.rows)

    def another(self) -> Session:
        """A session more."""
        self._others.append(Session(self.engine, HANDLERS))
        return self._others[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for one in (*self._others, self.session):
            one.close()
        self.engine.close()


ORDERS = "CREATE TABLE orders (id BIGINT, customer STRING, pieces INT)"
STOCK = "CREATE TABLE stock (item STRING, pieces INT)"
